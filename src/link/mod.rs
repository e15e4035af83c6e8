//! The connection to the connector, as a state machine.
//!
//! A [`Link`] decides when to dial, what a lost connection means, which op a result belongs to, and when the connector
//! counts as dead. Pure: no I/O, no clock, no random numbers but from its seed. A driver performs the actions of
//! [`Link::poll_action`], reports events through `handle_*`, and calls [`Link::handle_timeout`] at
//! [`Link::poll_timeout`].
//!
//! The driver guarantees:
//! - every event carries the [`Generation`] of its dial; events of older generations are ignored;
//! - [`LinkAction::CloseSocket`] ends that generation, whether it is open, opening or closed already;
//! - actions are performed in order and polled until there are none, before the timeout is polled.
//!
//! The link guarantees: outside [`LinkState::Ended`] a timer is armed; at most one generation is open or opening; every
//! op completes exactly once; one function decides whether to retry: a [`Loss`] always is, an [`End`] never.

mod action;
mod clock;
mod close_reason;
mod commands;
mod descriptors;
mod events;
mod keyring;
mod pending;
mod state;
mod transitions;

#[cfg(test)]
mod tests;

pub use action::{ControlFrame, Counters, LinkAction, LinkEvent, NotSent, SendResult};
pub use clock::{Deadline, Moment};
pub use close_reason::{DialFailure, End, Loss};
pub use commands::DormancyRefused;
pub use descriptors::Descriptors;
pub use events::{Timer, TimerReason};
pub use keyring::Keyring;
pub use pending::Op;
pub use state::{Generation, HelloIdentity, IdleRequest, Link, LinkSettings, LinkState, Live, WaitReason};
