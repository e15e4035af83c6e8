//! How a link behaves, and as whom.

use std::time::Duration;

use serde_json::Value;

/// Every length of time and every bound that a link keeps to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// Longest wait after a first loss; doubles with each further one.
    pub backoff_min: Duration,
    /// Longest wait after any loss.
    pub backoff_max: Duration,
    /// Shortest wait after a loss, whatever chance says.
    pub backoff_floor: Duration,
    /// How long a connection must hold before the waits become short again.
    pub stable: Duration,
    /// About how long to wait after the credentials were refused again and again; an eighth of it at first.
    pub refused_retry: Duration,
    /// For the dial, and again for the first descriptor after it.
    pub handshake_timeout: Duration,
    /// For an op to be written, and again for its answer, unless the op says otherwise.
    pub request_timeout: Duration,
    /// From one ping to the next.
    pub ping_interval: Duration,
    /// Silence that means the connector is gone.
    pub dead_after: Duration,
    /// How long an answer to the ping after a sleep may take.
    pub thaw_grace: Duration,
    /// Ops that may be written and unanswered.
    pub max_in_flight: usize,
    /// Ops that may wait to be written; the next is refused.
    pub max_waiting: usize,
    /// From going dormant to the next dial.
    pub dormant_redial: Duration,
    /// How long that dial can be held back.
    pub hold_ceiling: Duration,
    /// A wall clock that runs ahead by more than this means that the machine slept.
    pub freeze_jump: Duration,
    /// How often both clocks are looked at when nothing else happens.
    pub glance: Duration,
    /// A clock that is wrong by more than this is not corrected for.
    pub max_correction: Duration,
    /// Platforms whose descriptors are kept; the next is ignored.
    pub max_platforms: usize,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            backoff_floor: Duration::from_millis(100),
            stable: Duration::from_secs(60),
            refused_retry: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(30),
            dead_after: Duration::from_secs(60),
            thaw_grace: Duration::from_secs(5),
            max_in_flight: 1024,
            max_waiting: 4096,
            dormant_redial: Duration::from_secs(1),
            hold_ceiling: Duration::from_secs(60),
            freeze_jump: Duration::from_secs(5),
            glance: Duration::from_secs(1),
            max_correction: Duration::from_secs(24 * 60 * 60),
            max_platforms: 64,
        }
    }
}

/// One (platform, bot id) pair, announced with one hello.
#[derive(Clone, Debug, PartialEq)]
pub struct HelloIdentity {
    /// Platform.
    pub platform: String,
    /// Bot on it; may be empty.
    pub bot_id: String,
    /// Slash commands to register (Discord).
    pub command_manifest: Option<Vec<Value>>,
}

/// Who we are when nothing is configured.
impl Default for HelloIdentity {
    fn default() -> Self {
        Self {
            platform: "relay".to_owned(),
            bot_id: String::new(),
            command_manifest: None,
        }
    }
}
