//! The connection to the connector, as a state machine.
//!
//! A [`Link`] decides when to dial, what a lost socket means, who waits for which answer, and when the
//! connector counts as gone. It opens no socket, reads no clock and throws no dice: a driver performs what
//! [`Link::poll_action`] says, reports what happened through `handle_*`, and calls [`Link::handle_timeout`]
//! when [`Link::poll_timeout`] says so.
//!
//! What the driver promises:
//! - every event carries the [`Generation`] of the dial it belongs to; events of an older one are ignored here;
//! - [`LinkAction::CloseSocket`] ends that generation, be it open, opening or gone already: it is dropped as a whole;
//! - actions are performed in the order in which they are polled, and polled until there are none; only then
//!   is the timeout polled.
//!
//! What the link promises: outside [`LinkState::Ended`] a timer is armed; at most one generation is open or
//! opening; every request is settled exactly once; retry or not is decided in one function, [`Loss`] being
//! always retried and [`End`] never.

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
pub use state::{Generation, HelloIdentity, Idle, Link, LinkSettings, LinkState, Live, WaitReason};
