//! Turns that run on other machines: an agent whose turns go to a pool of workers over NATS, and the worker that runs them.
//!
//! A turn's id goes to the work queue of its pool, or straight to the worker that has the session in memory. A free worker asks the
//! relay whether it may begin; the relay lets one worker begin, once ([`remote_turn`]). Then both talk over a [`channel`] of numbered
//! frames: the message and its files one way, events, questions and the end the other way. Nothing of a message is stored at the
//! server. Whoever hears nothing of the other end for some seconds stops: first the worker, then the relay reports the turn.

mod channel;
mod hub;
mod memory;
mod protocol;
mod relay_side;
mod remote_turn;
mod serve;
mod task;

pub use hub::WorkerHub;
pub use relay_side::WorkerAgent;
pub use serve::{Worker, WorkerSettings};
