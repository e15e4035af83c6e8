//! Why a request to an agent got no answer, or an answer no end.

use std::time::Duration;

use super::reply::MAX_ANSWER;
use crate::wire::SseError;

/// Why a request got no answer, or an answer no end.
#[derive(Debug, thiserror::Error)]
pub enum AgentHttpError {
    /// The client could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// The agent's address cannot be used.
    #[error("{0}; write it like http://127.0.0.1:11434/v1")]
    Address(&'static str),
    /// The conversation would cross the network unencrypted.
    #[error(
        "refusing to talk to {host} unencrypted; use https, or set allow_plaintext if the network is yours"
    )]
    Plaintext {
        /// The host in question.
        host: String,
    },
    /// A header's value contains characters that no header can carry.
    #[error("the value of the header {0} contains characters that cannot travel in a header")]
    Header(String),
    /// No connection was made: the server has certainly seen nothing.
    #[error("no connection to {host}: {reason}")]
    Connect {
        /// Where to.
        host: String,
        /// What the system said.
        reason: String,
    },
    /// The answer was a redirect; it is not followed.
    #[error("it redirected to {target}; configure that address if it is right")]
    Redirect {
        /// Origin the redirect pointed at.
        target: String,
    },
    /// Nothing came for too long.
    #[error("nothing came for {} seconds", .0.as_secs())]
    Silent(Duration),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// An answer that is read whole is over the limit.
    #[error("the answer is longer than {MAX_ANSWER} bytes")]
    TooLarge,
    /// The stream of events cannot be read on.
    #[error(transparent)]
    Events(#[from] SseError),
}
