//! Agents behind HTTP, against real servers on loopback that each test plays itself.

mod chat;
mod hermes_approvals;
mod hermes_chat;
mod hermes_faults;
mod hermes_resumed;
mod hermes_runs;
mod hermes_stop;
mod openai;
mod openai_faults;
mod openai_memory;
mod server;

use std::future::Future;

pub(crate) use crate::support::http_stub::egress;
use crate::support::wait::SOON;

/// A key that must show up nowhere but in the header.
pub(crate) const KEY: &str = "sk-very-secret-0123456789";

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .unwrap_or_else(|_| panic!("never happened: {what}"))
}
