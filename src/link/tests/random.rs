//! Random walks: a driver that does anything it may do, and much that it may not.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::*;
use crate::wire::split_mix;

const SEEDS: u64 = 20_000;
const STEPS: usize = 60;

static DESCRIPTORS: LazyLock<[ControlFrame; 3]> =
    LazyLock::new(|| ["discord", "telegram", "slack"].map(|platform| descriptor(platform, "x")));

/// How often what was seen, over all walks.
type Seen = BTreeMap<&'static str, u64>;

/// A link, and what a driver knows about it.
pub(super) struct Walk {
    pub(super) rng: u64,
    pub(super) link: Link,
    pub(super) now: Moment,
    /// The generation that is open or opening.
    pub(super) open: Option<Generation>,
    pub(super) dialed: bool,
    pub(super) greeted: bool,
    pub(super) ever_greeted: bool,
    pub(super) highest: u64,
    pub(super) refusals: u64,
    pub(super) answered: u64,
    pub(super) requests: u64,
    pub(super) last_op: u64,
    /// Ops without a result, and whether each was written.
    pub(super) requested: BTreeMap<OpId, bool>,
    pub(super) last_written: OpId,
    /// Requests for an op that was pending already.
    pub(super) repeated: u64,
    /// The reader of the open generation is blocked.
    pub(super) blocked: bool,
    pub(super) seen: Seen,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let now = Moment {
            mono: Duration::ZERO,
            unix_ms: START_UNIX_MS,
        };
        let settings = LinkSettings {
            max_in_flight: 3,
            max_waiting: 4,
            max_platforms: 2,
            ..LinkSettings::default()
        };
        let identities = vec![identity("discord", "b"), identity("telegram", "")];
        Self {
            rng: seed,
            link: Link::new(settings, identities, seed, now),
            now,
            open: None,
            dialed: false,
            greeted: false,
            ever_greeted: false,
            highest: 0,
            refusals: 0,
            answered: 0,
            requests: 0,
            last_op: 0,
            requested: BTreeMap::new(),
            last_written: OpId(0),
            repeated: 0,
            blocked: false,
            seen: Seen::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        split_mix(&mut self.rng) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap()]
    }

    pub(super) fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Mostly the present generation, sometimes an old one, sometimes one that never was.
    fn some_generation(&mut self) -> Generation {
        let stale = self.below(8) == 0;
        if let Some(open) = self.open
            && !stale
        {
            return open;
        }
        let any = self.below(self.highest + 3);
        Generation::numbered(any)
    }

    fn pass_time(&mut self) {
        let millis = self.pick(&[0, 0, 0, 0, 1, 50, 300, 1_000, 5_000, 31_000, 61_000]);
        let skew = match self.below(30) {
            0 => self.pick(&[4_000, 6_000, 70_000, 3_600_000]),
            1 => self.pick(&[-4_000, -6_000, -3_600_000]),
            _ => 0,
        };
        self.now = Moment {
            mono: self.now.mono + Duration::from_millis(millis),
            unix_ms: self.now.unix_ms + i64::try_from(millis).unwrap() + skew,
        };
    }

    fn step(&mut self) {
        self.pass_time();
        match self.below(16) {
            0 | 1 => self.serve_timer(),
            2..=6 => self.advance(),
            7 => self.disturb(),
            8 | 9 => {
                for _ in 0..=self.below(4) {
                    self.ask();
                }
            }
            10 | 11 => self.answer(),
            12 => self.block_reader(),
            13 => self.say_something(),
            _ => self.command(),
        }
        self.perform();
        self.check();
    }

    fn serve_timer(&mut self) {
        self.link.handle_timeout(self.now);
        self.perform();
        if let Some(timer) = self.link.poll_timeout() {
            assert!(timer.wake_at > self.now.mono, "a timer that spins: {timer:?}");
            assert!(timer.wake_at <= timer.due);
        }
    }

    /// What brings a connection about.
    fn advance(&mut self) {
        let generation = self.some_generation();
        let now = self.now;
        if self.dialed {
            let index = self.below(3);
            let frame = DESCRIPTORS[usize::try_from(index).unwrap()].clone();
            self.link.handle_frame(generation, frame, now);
            if self.open == Some(generation) {
                self.greeted = true;
                self.ever_greeted = true;
            }
        } else {
            let date = self.pick(&[None, None, Some(now.unix_ms + 2_000), Some(now.unix_ms + 90_000)]);
            self.link.handle_dialed(generation, date, now);
            self.dialed |= self.open == Some(generation);
        }
    }

    /// What takes a connection away.
    fn disturb(&mut self) {
        let generation = self.some_generation();
        let (code, reason) = self.pick(&[
            (1001, ""),
            (4401, "unauthorized"),
            (4401, "unauthorized"),
            (4401, "expired"),
        ]);
        self.refusals += u64::from(code == 4401);
        let now = self.now;
        if self.dialed || self.below(2) == 0 {
            let close = (self.below(4) != 0).then_some((code, reason));
            if close.is_none() && self.below(2) == 0 {
                self.link.handle_too_large(generation, 1 << 30, now);
            } else {
                self.link.handle_closed(generation, close, now);
            }
        } else {
            let failure = match self.below(2) {
                0 => DialFailure::Network,
                _ => DialFailure::Http {
                    status: self.pick(&[401, 403, 400, 429, 503]),
                    retry_after: self.pick(&[None, Some(secs(90)), Some(Duration::MAX)]),
                },
            };
            let date = self.pick(&[None, Some(now.unix_ms - 90_000), Some(i64::MIN)]);
            self.link.handle_dial_failed(generation, failure, date, now);
            if self.open == Some(generation) {
                self.open = None;
            }
        }
    }

    fn ask(&mut self) {
        let timeout = self.pick(&[None, Some(secs(2)), Some(Duration::ZERO), Some(Duration::MAX)]);
        let pending = self.requested.keys().next().copied();
        let id = match pending {
            Some(pending) if self.link.is_live() && self.link.pending.waiting() < 4 && self.below(8) == 0 => {
                self.repeated += 1;
                pending
            }
            _ => {
                self.last_op += 1;
                let id = OpId(u128::from(self.last_op));
                self.requested.insert(id, false);
                id
            }
        };
        self.requests += 1;
        let op = Op {
            id,
            timeout,
            ..op(self.last_op)
        };
        self.link.request(op, self.now);
    }

    fn answer(&mut self) {
        let written = self.requested.iter().find(|(_, written)| **written);
        let request_id = written.map_or_else(|| self.last_op.to_string(), |(id, _)| id.to_string());
        let result = match self.below(3) {
            0 => None,
            1 => Some(Box::default()),
            _ => Some(Box::new(done())),
        };
        let generation = self.some_generation();
        self.answered += 1;
        let frame = ControlFrame::OutboundResult { request_id, result };
        self.link.handle_frame(generation, frame, self.now);
    }

    fn block_reader(&mut self) {
        // What the time alone brings about comes first.
        self.serve_timer();
        let generation = self.some_generation();
        let current = self.dialed && self.open == Some(generation);
        if self.below(2) == 0 {
            self.link.handle_reader_blocked(generation, self.now);
            if current && self.open == self.link.generation() {
                self.blocked = true;
                self.see("blocked");
            }
        } else {
            self.link.handle_reader_resumed(generation, self.now);
            if current && std::mem::take(&mut self.blocked) {
                self.see("resumed");
            }
        }
    }

    fn say_something(&mut self) {
        let generation = self.some_generation();
        match self.below(4) {
            0 => self.link.handle_traffic(generation, self.now),
            1 => drop(self.link.acknowledge(generation, "7".to_owned())),
            2 => drop(self.link.interrupt("agent:main".to_owned(), None)),
            _ => self
                .link
                .handle_frame(generation, ControlFrame::GoingIdleAck, self.now),
        }
    }

    fn command(&mut self) {
        let now = self.now;
        match self.below(24) {
            0..=4 => {
                let within = self.pick(&[secs(0), secs(2), secs(10)]);
                self.link.go_idle(within, now);
            }
            5..=8 => {
                if let Some(generation) = self.open {
                    self.link
                        .handle_frame(generation, ControlFrame::GoingIdleAck, now);
                }
                if self.link.go_dormant(now).is_ok() {
                    self.see("dormant");
                }
            }
            9..=12 => self.link.hold_redial(now),
            13 | 14 => self.link.release_redial(now),
            15..=18 => self.link.wake(now),
            19 | 20 => self.link.note_secret_rotated(now),
            21 | 22 => self.link.renew(now),
            _ => {
                let within = self.pick(&[secs(0), secs(5)]);
                self.link.close(within, now);
            }
        }
    }

    /// Left alone, a link dials; asked to, it ends; and nobody is left without an answer.
    fn finish(mut self) -> Seen {
        if let Some(generation) = self.open.filter(|_| self.blocked) {
            self.link.handle_reader_resumed(generation, self.now);
            self.blocked = false;
        }
        let before = self.highest;
        for _ in 0..60 {
            let Some(timer) = self.link.poll_timeout().filter(|_| self.highest == before) else {
                break;
            };
            let wait = timer.due.saturating_sub(self.now.mono);
            self.now.mono += wait;
            self.now.unix_ms += i64::try_from(wait.as_millis()).unwrap();
            self.serve_timer();
            self.check();
        }
        let ended = matches!(self.link.state(), LinkState::Ended(_));
        assert!(ended || self.highest > before, "stuck in {:?}", self.link.state());
        self.link.close(Duration::ZERO, self.now);
        self.perform();
        assert_eq!(self.link.state(), &LinkState::Ended(End::Closed));
        assert_eq!((self.open, self.requested.len(), self.repeated), (None, 0, 0));
        let counted = self.link.counters();
        let settled = counted.applied + counted.refused + counted.unknown + counted.not_sent;
        assert_eq!((counted.requests, settled), (self.requests, self.requests));
        self.seen
    }
}

fn walks(seeds: impl Iterator<Item = u64>) -> Seen {
    let mut all = Seen::new();
    for seed in seeds {
        let walked = std::panic::catch_unwind(|| {
            let mut walk = Walk::new(seed);
            walk.perform();
            for _ in 0..STEPS {
                walk.step();
                if walk.link.state() == &LinkState::Ended(End::Closed) && walk.below(4) == 0 {
                    break;
                }
            }
            walk.finish()
        });
        let Ok(seen) = walked else {
            panic!("the walk with seed {seed} went wrong");
        };
        for (what, times) in seen {
            *all.entry(what).or_default() += times;
        }
    }
    all
}

#[test]
fn random_walks_keep_every_promise_and_go_everywhere() {
    let halves = std::thread::scope(|scope| {
        let even = scope.spawn(|| walks((0..SEEDS).step_by(2)));
        let odd = scope.spawn(|| walks((1..SEEDS).step_by(2)));
        [even.join().unwrap(), odd.join().unwrap()]
    });
    let mut all = Seen::new();
    for (what, times) in halves.into_iter().flatten() {
        *all.entry(what).or_default() += times;
    }
    for what in [
        "already in flight",
        "applied",
        "blocked",
        "broken",
        "closed by the connector",
        "closing",
        "described",
        "dial failed",
        "dial timeout",
        "dialing",
        "dormant",
        "doubted",
        "ended",
        "expired",
        "expired in waiting",
        "full",
        "handshake timeout",
        "idle acked",
        "idle acked late",
        "idle unanswered",
        "in closing",
        "live",
        "lost in waiting",
        "not live",
        "refused",
        "refused by HTTP",
        "resumed",
        "revoked",
        "silent",
        "skew",
        "stayed awake",
        "thawed",
        "told dormant",
        "too large",
        "unauthorized",
        "unauthorized by HTTP",
        "unknown",
        "written",
    ] {
        let times = all.get(what).copied().unwrap_or_default();
        assert!(times >= 50, "{what}: {times} times in {all:?}");
    }
}
