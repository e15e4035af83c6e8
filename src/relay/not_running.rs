//! The one error of everything that is asked of a relay that has ended.

/// The relay has ended, or it ended before it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the relay is not running")]
pub struct NotRunning;
