//! Settings of an agent whose turns run in a pool of workers.

use serde::{Deserialize, Serialize};

/// Settings of an agent of kind `worker`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// The pool of workers that run its turns.
    pub pool: String,
    /// How long no worker may be there before the chat is told; 0 for never.
    #[serde(default = "notice_after")]
    pub notice_after_secs: u64,
    /// How long a turn waits for a worker.
    #[serde(default = "max_wait")]
    pub max_wait_secs: u64,
    /// Maximum number of turns that wait for a worker.
    #[serde(default = "max_waiting")]
    pub max_waiting: usize,
}

fn notice_after() -> u64 {
    5
}

fn max_wait() -> u64 {
    3600
}

fn max_waiting() -> usize {
    1000
}
