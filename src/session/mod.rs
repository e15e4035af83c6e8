//! Sessions, lanes and idleness as state machines. Pure: no I/O, no clock, no runtime.
//!
//! [`Sessions`] decides which message starts a turn and which waits; [`Lanes`] keeps the ops of a chat in order;
//! [`IdleWatch`] decides when the relay may sleep. None holds message text.

mod idle;
mod lanes;
mod turns;

pub use idle::{IdleDecision, IdleWatch, OutstandingWork};
pub use lanes::{LaneId, Lanes};
pub use turns::{Admission, Interrupt, SessionLimits, Sessions, StopReason, TurnId};

#[cfg(test)]
mod tests;
