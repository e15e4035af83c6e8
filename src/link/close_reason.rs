//! Why a connection closed and what follows: retry, and when, or end. Decided in one function, [`decide`], from the
//! close reason and the history of this process.

use super::state::{Generation, LinkSettings};
use crate::backoff::{Backoff, jitter};
use crate::text::truncate_bytes;
use crate::wire::{close_code, split_mix};
use std::time::Duration;

/// HTTP status of an upgrade whose credentials are revoked. Proxies say it, too: only the second one in a row counts.
const GONE: u16 = 410;
/// Close codes of a connector that goes away, restarts, or is busy for a moment.
const RESTARTS: [u16; 3] = [close_code::GOING_AWAY, close_code::RESTART, close_code::TRY_LATER];
/// Maximum delay of the dial after one of them.
const MAX_RESTART_DELAY: Duration = Duration::from_millis(500);
/// Maximum bytes of a close reason.
const MAX_REASON_BYTES: usize = 123;

/// Why the connection was lost. Always retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The connector could not be reached.
    #[error("the connector could not be reached")]
    DialFailed,
    /// The dial took too long.
    #[error("the dial timed out")]
    DialTimeout,
    /// The upgrade was answered with another status than 101, 401 or 403.
    #[error("the connector refused the upgrade with HTTP status {status}")]
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// The credentials were refused at the upgrade, with HTTP status 401 or 403.
    #[error("the connector refused our credentials with HTTP status {status}")]
    UnauthorizedHttp {
        /// The HTTP status.
        status: u16,
    },
    /// The credentials were refused by close code 4401 before they ever worked in this process.
    #[error("the connector refused our credentials: {reason}")]
    Unauthorized {
        /// The connector's reason.
        reason: String,
    },
    /// The token had expired.
    #[error("the connector reports that our token has expired")]
    Expired,
    /// Credentials that used to work were refused. One dial with a fresh token decides whether they are revoked.
    #[error("the connector refused credentials that used to work: {reason}")]
    Doubted {
        /// The connector's reason.
        reason: String,
    },
    /// No descriptor came in time.
    #[error("the handshake timed out")]
    HandshakeTimeout,
    /// The connector closed the socket.
    #[error("the connector closed the connection with code {code}: {reason}")]
    Closed {
        /// Its close code.
        code: u16,
        /// The connector's reason.
        reason: String,
    },
    /// Nothing was received for too long.
    #[error("the connector stopped responding")]
    Silent,
    /// The socket broke without a close frame.
    #[error("the connection broke")]
    SocketError,
    /// A message exceeded the size limit.
    #[error("the connector sent a message of {bytes} bytes, more than link.max_message_bytes allows")]
    TooLarge {
        /// Its announced size.
        bytes: usize,
    },
    /// The relay dials again so that the connector stops buffering.
    #[error("the connection is renewed so that the connector delivers again")]
    Renewed,
}

impl Loss {
    /// Every [`Self::kind`].
    pub const KINDS: [&'static str; 13] = [
        "dial_failed",
        "dial_timeout",
        "refused",
        "unauthorized",
        "expired",
        "doubted",
        "handshake_timeout",
        "closed",
        "silent",
        "socket_error",
        "too_large",
        "renewed",
        "revoked",
    ];

    /// The reason as a metric label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DialFailed => "dial_failed",
            Self::DialTimeout => "dial_timeout",
            Self::Refused { .. } => "refused",
            Self::UnauthorizedHttp { .. } | Self::Unauthorized { .. } => "unauthorized",
            Self::Expired => "expired",
            Self::Doubted { .. } => "doubted",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::Closed { .. } => "closed",
            Self::Silent => "silent",
            Self::SocketError => "socket_error",
            Self::TooLarge { .. } => "too_large",
            Self::Renewed => "renewed",
        }
    }
}

/// Why the link ended. Never retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The connector refused a fresh token after it had refused one before, or answered two upgrades in a row with HTTP status 410.
    #[error("the connector has revoked this relay: {reason}")]
    Revoked {
        /// The connector's reason.
        reason: String,
    },
    /// The relay closed the link.
    #[error("the link was closed")]
    Closed,
}

/// How a dial failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialFailure {
    /// No connection, no TLS, or no HTTP answer.
    Network,
    /// An HTTP answer that is no upgrade.
    Http {
        /// The HTTP status.
        status: u16,
        /// The answer's `Retry-After`.
        retry_after: Option<Duration>,
    },
}

/// Why a connection closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    Dial(DialFailure),
    DialTimeout,
    HandshakeTimeout,
    Closed { code: u16, reason: String },
    Broken,
    TooLarge { bytes: usize },
    Silent,
    Renewed,
}

/// Whether a connector may have revoked the credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    None,
    /// It refused credentials that used to work, on this generation; the next one, with a fresh token, decides.
    Raised(Generation),
    /// It answered the last upgrade with [`GONE`]; the next one, with a fresh token, decides.
    Gone,
}

/// The history that a decision needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionRecord {
    pub(super) generation: Generation,
    /// Any handshake has completed in this process.
    pub(super) handshaken: bool,
    pub(super) doubt: Doubt,
    /// How long the connection was live; `None` if it never was.
    pub(super) lived: Option<Duration>,
    /// A delivery was acknowledged or an op answered on it.
    pub(super) worked: bool,
    pub(super) stable: Duration,
    /// Its token was minted with a clock that turned out to be wrong, or before a suspend.
    pub(super) stale_token: bool,
}

/// When to dial again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Immediate,
    /// Within a second, whatever the settings: the connector restarts, and a while ago it worked.
    Restart,
    Backoff {
        retry_after: Option<Duration>,
    },
    Slow {
        retry_after: Option<Duration>,
    },
}

/// Retry or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AfterClose {
    Retry { loss: Loss, pace: Pace, doubt: Doubt },
    End(End),
}

/// Retry or end?
pub(super) fn decide(departure: CloseReason, record: &ConnectionRecord) -> AfterClose {
    // A connection that was live proves that the credentials were good.
    let doubt = match (record.doubt, record.lived) {
        (Doubt::Raised(on), None) => Doubt::Raised(on),
        (Doubt::Raised(_), Some(_)) | (Doubt::None | Doubt::Gone, _) => Doubt::None,
    };
    let backoff = Pace::Backoff { retry_after: None };
    let (loss, pace) = match departure {
        CloseReason::Closed { code, reason } => {
            let reason = truncate_bytes(&reason, MAX_REASON_BYTES).to_owned();
            if code == close_code::UNAUTHORIZED {
                return decide_unauthorized(reason, record);
            }
            let restarts = record.worked && RESTARTS.contains(&code);
            let pace = if restarts { Pace::Restart } else { backoff };
            (Loss::Closed { code, reason }, pace)
        }
        CloseReason::Dial(DialFailure::Http {
            status: status @ (401 | 403),
            retry_after,
        }) => {
            let pace = if record.stale_token {
                Pace::Backoff { retry_after }
            } else {
                Pace::Slow { retry_after }
            };
            (Loss::UnauthorizedHttp { status }, pace)
        }
        CloseReason::Dial(DialFailure::Http {
            status: status @ GONE,
            retry_after,
        }) if !record.stale_token => {
            if record.doubt == Doubt::Gone {
                let reason = format!("it answered two upgrades in a row with HTTP status {GONE}");
                return AfterClose::End(End::Revoked { reason });
            }
            return AfterClose::Retry {
                loss: Loss::Refused { status },
                pace: Pace::Backoff { retry_after },
                doubt: Doubt::Gone,
            };
        }
        CloseReason::Dial(DialFailure::Http { status, retry_after }) => {
            (Loss::Refused { status }, Pace::Backoff { retry_after })
        }
        CloseReason::Dial(DialFailure::Network) => (Loss::DialFailed, backoff),
        CloseReason::DialTimeout => (Loss::DialTimeout, backoff),
        CloseReason::HandshakeTimeout => (Loss::HandshakeTimeout, backoff),
        CloseReason::Broken => (Loss::SocketError, backoff),
        CloseReason::TooLarge { bytes } => (Loss::TooLarge { bytes }, backoff),
        CloseReason::Silent => (Loss::Silent, backoff),
        CloseReason::Renewed => (Loss::Renewed, Pace::Immediate),
    };
    AfterClose::Retry { loss, pace, doubt }
}

fn decide_unauthorized(reason: String, record: &ConnectionRecord) -> AfterClose {
    let expired = reason.trim().eq_ignore_ascii_case("expired");
    if expired || record.stale_token {
        return AfterClose::Retry {
            loss: Loss::Expired,
            pace: Pace::Backoff { retry_after: None },
            doubt: Doubt::None,
        };
    }
    if !record.handshaken {
        return AfterClose::Retry {
            loss: Loss::Unauthorized { reason },
            pace: Pace::Slow { retry_after: None },
            doubt: Doubt::None,
        };
    }
    let held = record.lived.is_some_and(|lived| lived >= record.stable);
    match record.doubt {
        Doubt::Raised(on) if on < record.generation && !held => AfterClose::End(End::Revoked { reason }),
        Doubt::Raised(_) | Doubt::None | Doubt::Gone => AfterClose::Retry {
            loss: Loss::Doubted { reason },
            pace: Pace::Immediate,
            doubt: Doubt::Raised(record.generation),
        },
    }
}

/// Upper bound on any `Retry-After`.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// A first refusal of the credentials may be temporary: the delay starts at an eighth of its full length.
const FIRST_REFUSAL_DIVISOR: u32 = 8;

/// The delays between dials.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedialDelay {
    losses: Backoff,
    refusals: Backoff,
    min: Duration,
}

impl RedialDelay {
    pub(super) fn new(settings: &LinkSettings) -> Self {
        let refused = settings.refused_retry;
        Self {
            losses: Backoff::new(settings.backoff_min, settings.backoff_max),
            refusals: Backoff::new(refused / FIRST_REFUSAL_DIVISOR, refused),
            min: settings.backoff_floor,
        }
    }

    /// A connection has lasted long enough.
    pub(super) fn reset(&mut self) {
        self.losses.reset();
        self.refusals.reset();
    }

    /// The delay after a loss.
    pub(super) fn after_loss(&mut self, pace: Pace, rng: &mut u64) -> Duration {
        let (own, retry_after) = match pace {
            Pace::Immediate => return Duration::ZERO,
            Pace::Restart => return self.next(rng).min(MAX_RESTART_DELAY),
            Pace::Backoff { retry_after } => (self.next(rng), retry_after),
            Pace::Slow { retry_after } => {
                self.next(rng);
                (self.next_refused(rng), retry_after)
            }
        };
        own.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))
    }

    fn next(&mut self, rng: &mut u64) -> Duration {
        self.losses.next_delay_with_jitter(split_mix(rng)).max(self.min)
    }

    /// With a quarter of jitter to either side.
    fn next_refused(&mut self, rng: &mut u64) -> Duration {
        let delay = self.refusals.next_delay();
        delay
            .saturating_sub(delay / 4)
            .saturating_add(jitter(delay / 2, split_mix(rng)))
    }
}
