//! The life of a turn that runs elsewhere, as the relay sees it, and which workers are there. No I/O; time comes in.
//!
//! The relay alone decides who runs a turn: a worker asks before it begins, and the first one to ask gets it. Whatever was offered
//! twice therefore runs once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::protocol::{Heartbeat, WORKER_LOST};

/// How long the worker that has the session in memory may take before others are asked.
const PREFERENCE: Duration = Duration::from_millis(300);
/// How often a turn that nobody took is offered again: an offer may have been lost with a server or a worker.
const OFFER_AGAIN: Duration = Duration::from_secs(10);
/// When an offer that the server did not take is tried again.
const OFFER_RETRY: Duration = Duration::from_secs(1);
/// Most workers that are remembered.
const MAX_WORKERS: usize = 4096;

/// The workers that were heard.
#[derive(Debug, Default)]
pub struct Roster(BTreeMap<String, (Heartbeat, Instant)>);

impl Roster {
    /// A worker showed that it is there.
    pub fn heard(&mut self, beat: Heartbeat, now: Instant) {
        self.0
            .retain(|_, (_, at)| now.duration_since(*at) < WORKER_LOST * 2);
        if self.0.len() < MAX_WORKERS || self.0.contains_key(&beat.id) {
            self.0.insert(beat.id.clone(), (beat, now));
        }
    }

    /// The worker, if it is there.
    pub fn get(&self, id: &str, now: Instant) -> Option<&Heartbeat> {
        let (beat, at) = self.0.get(id)?;
        (now.duration_since(*at) < WORKER_LOST).then_some(beat)
    }

    /// The workers of a pool that are there.
    pub fn of<'a>(&'a self, pool: &'a str, now: Instant) -> impl Iterator<Item = &'a Heartbeat> {
        let there = self
            .0
            .values()
            .filter(move |(_, at)| now.duration_since(*at) < WORKER_LOST);
        there.map(|(beat, _)| beat).filter(move |beat| beat.pool == pool)
    }

    /// Whether this worker would take another turn at once.
    pub fn has_room(&self, id: &str, now: Instant) -> bool {
        self.get(id, now)
            .is_some_and(|beat| !beat.draining && beat.running.len() < beat.slots)
    }
}

/// What is to be done next with a turn.
#[derive(Debug, PartialEq, Eq)]
pub enum RemoteStep {
    /// Offer it to this worker.
    Offer(String),
    /// Put it into the pool's queue.
    Enqueue,
    /// Tell the chat that no worker is there.
    Notice,
    /// It waited too long.
    Expired,
    /// Its worker is gone: it is interrupted.
    Lost,
}

/// Limits of a waiting turn.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimits {
    /// When the chat is told that no worker is there; `None` for never.
    pub notice_after: Option<Duration>,
    /// How long it waits.
    pub max_wait: Duration,
}

/// A turn that runs elsewhere.
#[derive(Debug)]
pub struct RemoteTurn {
    id: String,
    since: Instant,
    limits: WaitLimits,
    preferred: Option<String>,
    next_offer: Instant,
    noticed: bool,
    /// Who runs it, and since when.
    runner: Option<(String, Instant)>,
    /// The worker that runs it has said something about it.
    is_heard: bool,
}

impl RemoteTurn {
    /// A turn that waits for a worker, best for this one.
    pub fn new(id: &str, preferred: Option<String>, limits: WaitLimits, now: Instant) -> Self {
        Self {
            id: id.to_owned(),
            since: now,
            limits,
            preferred,
            next_offer: now,
            noticed: limits.notice_after.is_none(),
            runner: None,
            is_heard: false,
        }
    }

    /// Who runs it.
    pub fn runner(&self) -> Option<&str> {
        self.runner.as_ref().map(|(worker, _)| worker.as_str())
    }

    /// A worker asks whether it may begin. The same worker gets the same answer again, until it has begun: whoever asks after that
    /// has stopped the turn, and has found another copy of it in the queue.
    pub fn begin(&mut self, worker: &str, now: Instant) -> bool {
        if let Some((runner, _)) = &self.runner {
            return runner == worker && !self.is_heard;
        }
        self.runner = Some((worker.to_owned(), now));
        true
    }

    /// A worker says something about the turn. Whether it runs it.
    pub fn heard(&mut self, worker: &str) -> bool {
        let runs = self.runner() == Some(worker);
        self.is_heard |= runs;
        runs
    }

    /// The offer did not reach the server.
    pub fn offer_failed(&mut self, now: Instant) {
        self.next_offer = now + OFFER_RETRY;
    }

    /// What is due now; ask until there is nothing.
    pub fn step(&mut self, pool: &str, roster: &Roster, now: Instant) -> Option<RemoteStep> {
        if let Some((runner, since)) = &self.runner {
            let begun_just_now = now.duration_since(*since) < WORKER_LOST;
            // A worker that is there and does not name the turn never heard that it may begin, or its task is gone.
            let runs = |beat: &Heartbeat| beat.running.contains(&self.id);
            let is_lost = !roster.get(runner, now).is_some_and(runs);
            return (is_lost && !begun_just_now).then_some(RemoteStep::Lost);
        }
        if now.duration_since(self.since) >= self.limits.max_wait {
            return Some(RemoteStep::Expired);
        }
        if self.next_offer <= now {
            if let Some(worker) = self
                .preferred
                .take()
                .filter(|worker| roster.has_room(worker, now))
            {
                self.next_offer = now + PREFERENCE;
                return Some(RemoteStep::Offer(worker));
            }
            self.next_offer = now + OFFER_AGAIN;
            return Some(RemoteStep::Enqueue);
        }
        let is_late = |after| now.duration_since(self.since) >= after;
        if !self.noticed
            && self.limits.notice_after.is_some_and(is_late)
            && roster.of(pool, now).next().is_none()
        {
            self.noticed = true;
            return Some(RemoteStep::Notice);
        }
        None
    }

    /// When to ask again although nothing happened.
    pub fn deadline(&self, now: Instant) -> Instant {
        let look = now + Duration::from_millis(500);
        match self.runner {
            Some(_) => look,
            None => look.min(self.next_offer).min(self.since + self.limits.max_wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WaitLimits = WaitLimits {
        notice_after: Some(Duration::from_secs(5)),
        max_wait: Duration::from_secs(60),
    };

    fn beat(id: &str, slots: usize) -> Heartbeat {
        Heartbeat {
            id: id.to_owned(),
            name: id.to_owned(),
            pool: "p".to_owned(),
            version: String::new(),
            slots,
            running: vec!["t".to_owned()],
            draining: false,
            steers: false,
            commands: Vec::new(),
        }
    }

    #[test]
    fn the_first_worker_to_ask_runs_it_and_no_other() {
        let now = Instant::now();
        let mut turn = RemoteTurn::new("t", None, LIMITS, now);
        assert_eq!(turn.step("p", &Roster::default(), now), Some(RemoteStep::Enqueue));
        assert!(turn.begin("a", now) && turn.begin("a", now) && !turn.begin("b", now));
        assert_eq!(turn.runner(), Some("a"));
    }

    #[test]
    fn a_worker_that_has_stopped_it_does_not_begin_again() {
        let now = Instant::now();
        let mut turn = RemoteTurn::new("t", None, LIMITS, now);
        assert!(turn.begin("a", now) && !turn.heard("b"));
        assert!(turn.begin("a", now), "the answer was lost");
        assert!(turn.heard("a"));
        assert!(!turn.begin("a", now) && !turn.begin("b", now));
    }

    #[test]
    fn it_prefers_its_worker_then_asks_all() {
        let now = Instant::now();
        let mut roster = Roster::default();
        roster.heard(beat("a", 2), now);
        let mut turn = RemoteTurn::new("t", Some("a".to_owned()), LIMITS, now);
        assert_eq!(
            turn.step("p", &roster, now),
            Some(RemoteStep::Offer("a".to_owned()))
        );
        assert_eq!(turn.step("p", &roster, now), None);
        let later = now + PREFERENCE;
        assert_eq!(turn.step("p", &roster, later), Some(RemoteStep::Enqueue));
        assert_eq!(
            turn.step("p", &roster, later + OFFER_AGAIN),
            Some(RemoteStep::Enqueue),
            "offers may be lost"
        );
        let mut full = RemoteTurn::new("t", Some("b".to_owned()), LIMITS, now);
        roster.heard(beat("b", 1), now);
        assert_eq!(full.step("p", &roster, now), Some(RemoteStep::Enqueue));
    }

    #[test]
    fn without_a_worker_it_says_so_once_and_expires() {
        let now = Instant::now();
        let roster = Roster::default();
        let mut turn = RemoteTurn::new("t", None, LIMITS, now);
        assert_eq!(turn.step("p", &roster, now), Some(RemoteStep::Enqueue));
        assert_eq!(
            turn.step("p", &roster, now + Duration::from_secs(5)),
            Some(RemoteStep::Notice)
        );
        assert_eq!(turn.step("p", &roster, now + Duration::from_secs(6)), None);
        assert_eq!(
            turn.step("p", &roster, now + LIMITS.max_wait),
            Some(RemoteStep::Expired)
        );
    }

    #[test]
    fn a_turn_that_its_worker_does_not_know_is_lost() {
        let now = Instant::now();
        let mut roster = Roster::default();
        let mut turn = RemoteTurn::new("other", None, LIMITS, now);
        turn.begin("a", now);
        roster.heard(beat("a", 1), now + Duration::from_secs(5));
        assert_eq!(turn.step("p", &roster, now + Duration::from_secs(5)), None);
        assert_eq!(turn.step("p", &roster, now + WORKER_LOST), Some(RemoteStep::Lost));
    }

    #[test]
    fn a_silent_worker_is_lost_only_after_it_has_stopped_by_itself() {
        assert!(WORKER_LOST > super::super::protocol::RELAY_LOST);
        let now = Instant::now();
        let mut roster = Roster::default();
        roster.heard(beat("a", 1), now);
        let mut turn = RemoteTurn::new("t", None, LIMITS, now);
        turn.begin("a", now);
        assert_eq!(turn.step("p", &roster, now + Duration::from_secs(5)), None);
        assert_eq!(turn.step("p", &roster, now + WORKER_LOST), Some(RemoteStep::Lost));
        assert!(!turn.begin("b", now + WORKER_LOST), "it never runs again");
    }
}
