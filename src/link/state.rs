//! The link: its settings, its states, and its actions in order.

use super::action::{Counters, LinkAction};
use super::clock::{Deadline, LinkClock, Moment};
use super::close_reason::{Doubt, End, Loss, RedialDelay};
use super::descriptors::Descriptors;
use super::pending::PendingOps;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Numbers a dial and its socket. Later dials have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u64);

impl Generation {
    /// The first dial of a process.
    pub const fn first() -> Self {
        Self(1)
    }

    /// The dial after this one.
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

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Between dials.
    Waiting {
        /// When the next dial is due.
        until: Deadline,
        /// The event before the wait.
        why: WaitReason,
    },
    /// A socket is being opened.
    Dialing {
        /// The generation of the socket that is being opened.
        generation: Generation,
        /// When it times out.
        until: Deadline,
    },
    /// Hellos are sent, no descriptor has been received.
    Greeting {
        /// The generation of the socket.
        generation: Generation,
        /// When it times out.
        until: Deadline,
    },
    /// The handshake is complete.
    Live(Live),
    /// The socket is closed for sleep, and the connector buffers.
    Dormant {
        /// When the next dial is due, unless it is held.
        until: Deadline,
    },
    /// No new ops; waits for the pending ones.
    Closing {
        /// The generation of the socket.
        generation: Generation,
        /// When it closes at the latest.
        until: Deadline,
    },
    /// The link has ended for good.
    Ended(End),
}

/// Why the link waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The first dial is due.
    Starting,
    /// The connection was lost.
    Lost(Loss),
    /// The relay has a new secret.
    SecretRotated,
}

/// The state of a connection after its handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    pub(super) generation: Generation,
    pub(super) since: Moment,
    pub(super) ping_at: Duration,
    pub(super) silent_at: Deadline,
    pub(super) liveness: Liveness,
    /// A delivery was acknowledged or an op answered on this connection.
    pub(super) worked: bool,
    pub(super) idle: IdleRequest,
    /// When descriptors of the previous connection are dropped, if there may be any.
    pub(super) older_until: Option<Deadline>,
}

/// Whether the connector is known to be alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// No ping is unanswered.
    Alive,
    /// A ping went out at this time; anything that is received answers it.
    Pinged(Duration),
    /// The machine was suspended: the connection may be dead since.
    Doubtful,
}

/// Whether the connector was asked to buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleRequest {
    /// The connector was not asked.
    Awake,
    /// The connector was asked, and has not answered yet.
    Asked {
        /// When the request times out.
        until: Deadline,
    },
    /// The connector was asked, and did not answer in time.
    Unanswered,
    /// The connector buffers.
    Acked,
}

/// Whether the socket's reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderState {
    Reading,
    /// The reader waits for the relay, so silence does not mean that the connector is dead.
    Blocked,
}

/// What the socket's writer still has to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterLoad {
    Normal,
    /// So many lines wait for a slow connector that nothing is added that it can do without.
    Crowded,
}

/// How the token of the current dial was minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mint {
    pub(super) correction_ms: i64,
    /// The machine was suspended since, or the secret was replaced.
    pub(super) spoiled: bool,
}

/// The connection to the connector.
#[derive(Debug)]
pub struct Link {
    pub(super) settings: LinkSettings,
    pub(super) identities: Vec<HelloIdentity>,
    pub(super) state: LinkState,
    pub(super) actions: VecDeque<LinkAction>,
    pub(super) pending: PendingOps,
    pub(super) descriptors: Descriptors,
    pub(super) clock: LinkClock,
    pub(super) rng: u64,
    pub(super) redial_delay: RedialDelay,
    pub(super) last_generation: Generation,
    pub(super) last_dial: Deadline,
    pub(super) mint: Mint,
    pub(super) hold: Option<Deadline>,
    pub(super) handshaken: bool,
    pub(super) doubt: Doubt,
    pub(super) reader: ReaderState,
    pub(super) writer: WriterLoad,
    pub(super) counters: Counters,
}

impl Link {
    /// A link that dials immediately. Without identities it announces the default one.
    pub fn new(settings: LinkSettings, mut identities: Vec<HelloIdentity>, seed: u64, now: Moment) -> Self {
        if identities.is_empty() {
            identities.push(HelloIdentity::default());
        }
        let at_once = Deadline::after(now, Duration::ZERO);
        let mut link = Self {
            redial_delay: RedialDelay::new(&settings),
            clock: LinkClock::new(now, settings.freeze_jump, settings.max_correction),
            settings,
            identities,
            state: LinkState::Waiting {
                until: at_once,
                why: WaitReason::Starting,
            },
            actions: VecDeque::new(),
            pending: PendingOps::default(),
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
            reader: ReaderState::Reading,
            writer: WriterLoad::Normal,
            counters: Counters::default(),
        };
        link.dial_if_due(now);
        link
    }

    /// The next action. Call it until there is none after every event and command.
    pub fn poll_action(&mut self) -> Option<LinkAction> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        let now = self.clock.seen().mono;
        let generation = match &self.state {
            // What waits is known to be undelivered; what is written into a dead connection is not.
            LinkState::Live(live) if self.may_be_dead(live, now) => return None,
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
        let (op, line) = self.pending.write_next(now)?;
        Some(LinkAction::Write {
            generation,
            line,
            kind: "outbound",
            op: Some(op),
        })
    }

    /// Whether the connector may be gone: a suspend, or a ping that nothing answered in time.
    fn may_be_dead(&self, live: &Live, now: Duration) -> bool {
        match live.liveness {
            Liveness::Alive => false,
            Liveness::Pinged(at) => now.saturating_sub(at) >= self.settings.ping_grace,
            Liveness::Doubtful => true,
        }
    }

    /// The current state.
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

    /// The descriptors in force.
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// How far the connector's clock was ahead when last measured, in milliseconds.
    pub fn clock_skew_ms(&self) -> Option<i64> {
        self.clock.skew_ms()
    }

    /// Counts since the process started.
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

/// Timeouts and bounds of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// First backoff delay; doubles with each loss. Full jitter applies.
    pub backoff_min: Duration,
    /// Maximum backoff delay.
    pub backoff_max: Duration,
    /// Minimum backoff delay after jitter.
    pub backoff_floor: Duration,
    /// How long a connection that did no work must last before the backoff resets. One on which a delivery was
    /// acknowledged or an op answered resets it whenever it is lost.
    pub stable: Duration,
    /// Delay after repeated refusals of the credentials; an eighth of it at first.
    pub refused_retry: Duration,
    /// Timeout of the dial, and again of the handshake.
    pub handshake_timeout: Duration,
    /// Timeout for an op to be written, and again for its result, unless the op has its own.
    pub request_timeout: Duration,
    /// Interval between pings.
    pub ping_interval: Duration,
    /// Silence after which the connector counts as dead.
    pub dead_after: Duration,
    /// Silence after a ping from which on no op is written until something is received.
    pub ping_grace: Duration,
    /// Timeout of the first ping after a suspend.
    pub thaw_grace: Duration,
    /// Maximum ops in flight.
    pub max_in_flight: usize,
    /// Maximum ops waiting to be written; more are refused.
    pub max_waiting: usize,
    /// Delay from going dormant to the next dial.
    pub dormant_redial: Duration,
    /// Maximum time for which that dial can be held.
    pub hold_ceiling: Duration,
    /// A wall clock that jumps ahead by more than this means that the machine was suspended.
    pub freeze_jump: Duration,
    /// How often both clocks are read when nothing else happens.
    pub glance: Duration,
    /// Maximum clock difference that is corrected.
    pub max_correction: Duration,
    /// Lines that wait for a slow connector at which acknowledgements are left to the next connection and requests of the
    /// connector are not answered.
    pub max_unwritten: usize,
    /// Maximum platforms whose descriptors are kept; more are ignored.
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
            ping_grace: Duration::from_secs(5),
            thaw_grace: Duration::from_secs(5),
            max_in_flight: 1024,
            max_waiting: 4096,
            dormant_redial: Duration::from_secs(1),
            hold_ceiling: Duration::from_secs(60),
            freeze_jump: Duration::from_secs(5),
            glance: Duration::from_secs(1),
            max_correction: Duration::from_secs(24 * 60 * 60),
            max_unwritten: 16 * 1024,
            max_platforms: 64,
        }
    }
}

/// One (platform, bot id) pair, announced with one hello.
#[derive(Clone, Debug, PartialEq)]
pub struct HelloIdentity {
    /// The platform's name.
    pub platform: String,
    /// The bot's id on that platform; may be empty.
    pub bot_id: String,
    /// Slash commands to register (Discord).
    pub command_manifest: Option<Vec<Value>>,
}

/// The identity without configuration.
impl Default for HelloIdentity {
    fn default() -> Self {
        Self {
            platform: "relay".to_owned(),
            bot_id: String::new(),
            command_manifest: None,
        }
    }
}
