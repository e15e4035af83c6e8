//! Conversations: whose turn it is, and what waits. Pure: no I/O, no clock, no runtime.
//!
//! [`Sessions`] decides which message starts a turn and which waits; [`Lanes`] keeps what must go out to one
//! chat in order; [`IdleWatch`] tells when nothing at all is left to do. All are told what happened and answer what to
//! do; none holds a message's text.

mod idle;
mod lanes;
mod turns;

pub use idle::{IdleDecision, IdleWatch, OutstandingWork};
pub use lanes::{LaneId, Lanes};
pub use turns::{Admission, Interrupt, SessionLimits, Sessions, StopReason, TurnId};

#[cfg(test)]
mod tests;
