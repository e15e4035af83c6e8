//! The states of a link, and the link itself.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::action::{Counters, LinkAction};
use super::backoff::RedialDelay;
use super::clock::{Clock, Deadline, Moment};
use super::close_reason::{Doubt, End, Loss};
use super::descriptors::Descriptors;
use super::pending::Pending;
use super::rng::Rng;
use super::settings::{HelloIdentity, LinkSettings};
use crate::wire::CapabilityDescriptor;

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

impl Live {
    /// The socket.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// When the handshake was completed.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// Whether the connector was asked to buffer.
    pub fn idle(&self) -> Idle {
        self.idle
    }
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
    pub(super) rng: Rng,
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
            rng: Rng::new(seed),
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

    /// The descriptor of this platform, else the primary, else none yet.
    pub fn descriptor_for(&self, platform: &str) -> Option<&Arc<CapabilityDescriptor>> {
        self.descriptors.for_platform(platform)
    }

    /// Ops written and unanswered.
    pub fn in_flight(&self) -> usize {
        self.pending.in_flight()
    }

    /// Ops accepted and not written yet.
    pub fn waiting(&self) -> usize {
        self.pending.waiting()
    }

    /// How far the connector's clock was ahead of ours when last heard, in milliseconds.
    pub fn clock_skew_ms(&self) -> Option<i64> {
        self.clock.skew_ms()
    }

    /// Until when the next dial is held back.
    pub fn held_until(&self) -> Option<Deadline> {
        self.hold
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
