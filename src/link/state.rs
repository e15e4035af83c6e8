//! The states of a link, and the link itself.

use super::action::{Counters, LinkAction};
use super::clock::{Clock, Deadline, Moment};
use super::close_reason::{Doubt, End, Loss, RedialDelay};
use super::descriptors::Descriptors;
use super::pending::Pending;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// The name of one dial and of the socket that comes of it. Later dials have greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u64);

impl Generation {
    /// The name of a process's first dial.
    pub const fn first() -> Self {
        Self(1)
    }

    /// The name of the dial after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a link stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Between dials.
    Waiting {
        /// When the next dial is due.
        until: Deadline,
        /// What came before.
        why: WaitReason,
    },
    /// A socket is being opened.
    Dialing {
        /// The dial.
        generation: Generation,
        /// When it is given up.
        until: Deadline,
    },
    /// Hellos are written, no descriptor has come.
    Greeting {
        /// The socket.
        generation: Generation,
        /// When it is given up.
        until: Deadline,
    },
    /// The handshake is complete.
    Live(Live),
    /// The socket was closed to sleep, and the connector buffers.
    Dormant {
        /// When the next dial is due, unless it is held.
        until: Deadline,
    },
    /// No new ops; the last ones are being settled.
    Closing {
        /// The socket.
        generation: Generation,
        /// When it is closed, whatever is left.
        until: Deadline,
    },
    /// Over, for this reason.
    Ended(End),
}

/// What came before a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Nothing: the first dial.
    Starting,
    /// A loss.
    Lost(Loss),
    /// A new secret.
    SecretRotated,
}

/// What exists only while the handshake is complete and the socket open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    pub(super) generation: Generation,
    pub(super) since: Moment,
    pub(super) ping_at: Duration,
    pub(super) silent_at: Deadline,
    pub(super) idle: Idle,
    /// When descriptors of the connection before are dropped, as long as there may be any.
    pub(super) older_until: Option<Deadline>,
}

/// Whether the connector was asked to buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It was not: it delivers.
    Awake,
    /// It was, and the answer is awaited.
    Asked {
        /// Until then.
        until: Deadline,
    },
    /// It was, and did not answer in time.
    Unanswered,
    /// It was, and it buffers.
    Acked,
}

/// Whether the socket's reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Reading,
    /// It waits for the relay, so a silent socket says nothing about the connector.
    Blocked,
}

/// Under which clock the token of the present dial was minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mint {
    pub(super) correction_ms: i64,
    /// The machine slept since, or the secret was replaced.
    pub(super) spoiled: bool,
}

/// The connection to the connector.
#[derive(Debug)]
pub struct Link {
    pub(super) settings: LinkSettings,
    pub(super) identities: Vec<HelloIdentity>,
    pub(super) state: LinkState,
    pub(super) actions: VecDeque<LinkAction>,
    pub(super) pending: Pending,
    pub(super) descriptors: Descriptors,
    pub(super) clock: Clock,
    pub(super) rng: u64,
    pub(super) redial_delay: RedialDelay,
    pub(super) last_generation: Generation,
    pub(super) last_dial: Deadline,
    pub(super) mint: Mint,
    pub(super) hold: Option<Deadline>,
    pub(super) handshaken: bool,
    pub(super) doubt: Doubt,
    pub(super) reader: Reader,
    pub(super) counters: Counters,
}

impl Link {
    /// A link that dials at once. Without identities it announces the default one.
    pub fn new(settings: LinkSettings, mut identities: Vec<HelloIdentity>, seed: u64, now: Moment) -> Self {
        if identities.is_empty() {
            identities.push(HelloIdentity::default());
        }
        let at_once = Deadline::after(now, Duration::ZERO);
        let mut link = Self {
            redial_delay: RedialDelay::new(&settings),
            clock: Clock::new(now, settings.freeze_jump, settings.max_correction),
            settings,
            identities,
            state: LinkState::Waiting {
                until: at_once,
                why: WaitReason::Starting,
            },
            actions: VecDeque::new(),
            pending: Pending::default(),
            descriptors: Descriptors::default(),
            rng: seed,
            last_generation: Generation(0),
            last_dial: at_once,
            mint: Mint {
                correction_ms: 0,
                spoiled: false,
            },
            hold: None,
            handshaken: false,
            doubt: Doubt::None,
            reader: Reader::Reading,
            counters: Counters::default(),
        };
        link.dial_if_due(now);
        link
    }

    /// The next thing to do. To be called until there is none, after everything that was reported.
    pub fn poll_action(&mut self) -> Option<LinkAction> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        let generation = match &self.state {
            LinkState::Live(live) => live.generation,
            LinkState::Closing { generation, .. } => *generation,
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Dormant { .. }
            | LinkState::Ended(_) => return None,
        };
        if self.pending.in_flight() >= self.settings.max_in_flight {
            return None;
        }
        let now = self.clock.seen().mono;
        let (op, line) = self.pending.write_next(now)?;
        Some(LinkAction::Write {
            generation,
            line,
            kind: "outbound",
            op: Some(op),
        })
    }

    /// Where the link stands.
    pub fn state(&self) -> &LinkState {
        &self.state
    }

    /// The generation that is open or opening.
    pub fn generation(&self) -> Option<Generation> {
        match &self.state {
            LinkState::Dialing { generation, .. }
            | LinkState::Greeting { generation, .. }
            | LinkState::Closing { generation, .. } => Some(*generation),
            LinkState::Live(live) => Some(live.generation),
            LinkState::Waiting { .. } | LinkState::Dormant { .. } | LinkState::Ended(_) => None,
        }
    }

    /// Whether ops are accepted.
    pub fn is_live(&self) -> bool {
        matches!(self.state, LinkState::Live(_))
    }

    /// What the connector declared at the last handshake.
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// How far the connector's clock was ahead of ours when last heard, in milliseconds.
    pub fn clock_skew_ms(&self) -> Option<i64> {
        self.clock.skew_ms()
    }

    /// What has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn next_generation(&mut self) -> Generation {
        self.last_generation = self.last_generation.next();
        self.last_generation
    }
}

#[cfg(test)]
impl Generation {
    /// A generation for tests.
    pub(super) fn numbered(number: u64) -> Self {
        Self(number)
    }
}

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
