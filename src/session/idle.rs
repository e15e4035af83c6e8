//! When the relay may go to sleep: no outstanding work, and no activity for a while.
//!
//! It only decides whether to ask the connector to buffer; it never closes anything.

use std::time::Duration;

use crate::backoff::Backoff;

/// Delay before the connector is asked again after a refusal; doubles with each refusal.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Maximum delay after a refusal.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);

/// Outstanding work at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutstandingWork {
    /// Turns running or starting.
    pub turns: usize,
    /// Messages waiting, in memory or in the journal.
    pub queued: usize,
    /// Ops waiting or in flight.
    pub ops: usize,
    /// Journal commands without a completion.
    pub uncommitted: usize,
    /// Prompts without an answer.
    pub prompts: usize,
    /// There may be work that cannot be counted, for example because the journal fails.
    pub unseen: bool,
    /// When the next scheduled job is due, on the clock of `now`.
    pub next_due: Option<Duration>,
}

impl OutstandingWork {
    /// Whether there is any work now.
    pub fn any(&self) -> bool {
        self.turns + self.queued + self.ops + self.uncommitted + self.prompts > 0 || self.unseen
    }
}

/// Whether to go to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleDecision {
    /// Not now.
    StayAwake {
        /// When to decide again if nothing happens before.
        check_at: Duration,
    },
    /// Ask the connector to buffer.
    AskToBuffer,
}

/// Detects that the relay is idle.
#[derive(Clone, Debug)]
pub struct IdleWatch {
    /// Time without activity that counts as idle.
    idle: Duration,
    idle_since: Duration,
    not_before: Duration,
    retry_delay: Backoff,
}

impl IdleWatch {
    /// A watch that starts now; the relay is idle after `idle` without activity.
    pub fn new(idle: Duration, now: Duration) -> Self {
        Self {
            idle,
            idle_since: now,
            not_before: now,
            retry_delay: Backoff::new(
                FIRST_RETRY_DELAY.min(idle.max(Duration::from_secs(1))),
                MAX_RETRY_DELAY,
            ),
        }
    }

    /// Something happened: the idle time starts over.
    pub fn note_activity(&mut self, now: Duration) {
        self.idle_since = self.idle_since.max(now);
    }

    /// The connector refused: it is asked again later, after longer delays each time.
    pub fn refused(&mut self, now: Duration) {
        self.not_before = now.saturating_add(self.retry_delay.next_delay());
    }

    /// The relay has slept: the backoff starts over.
    pub fn slept(&mut self, now: Duration) {
        self.retry_delay.reset();
        self.note_activity(now);
    }

    /// Whether to go to sleep now.
    pub fn decide(&mut self, work: &OutstandingWork, now: Duration) -> IdleDecision {
        if work.any() {
            self.note_activity(now);
        }
        // A sleep that would end right away is not worth a new connection.
        let spare = work
            .next_due
            .is_none_or(|due| due.saturating_sub(now) > self.idle);
        if !spare {
            return IdleDecision::StayAwake {
                check_at: now.saturating_add(self.idle),
            };
        }
        let check_at = self.idle_since.saturating_add(self.idle).max(self.not_before);
        if now < check_at {
            IdleDecision::StayAwake { check_at }
        } else {
            IdleDecision::AskToBuffer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn watch() -> IdleWatch {
        IdleWatch::new(secs(300), secs(0))
    }

    #[test]
    fn a_silence_of_its_full_length_is_asked_about_and_not_before() {
        let mut watch = watch();
        let none = OutstandingWork::default();
        assert_eq!(
            watch.decide(&none, secs(0)),
            IdleDecision::StayAwake { check_at: secs(300) }
        );
        assert_eq!(
            watch.decide(&none, secs(299)),
            IdleDecision::StayAwake { check_at: secs(300) }
        );
        assert_eq!(watch.decide(&none, secs(300)), IdleDecision::AskToBuffer);
        watch.note_activity(secs(300));
        assert_eq!(
            watch.decide(&none, secs(301)),
            IdleDecision::StayAwake { check_at: secs(600) }
        );
        watch.note_activity(secs(200));
        assert_eq!(
            watch.decide(&none, secs(302)),
            IdleDecision::StayAwake { check_at: secs(600) },
            "time runs one way"
        );
    }

    #[test]
    fn work_of_every_kind_keeps_it_awake_and_the_silence_begins_at_its_end() {
        let kinds: [fn(&mut OutstandingWork); 6] = [
            |work| work.turns = 1,
            |work| work.queued = 1,
            |work| work.ops = 1,
            |work| work.uncommitted = 1,
            |work| work.prompts = 1,
            |work| work.unseen = true,
        ];
        for (index, kind) in kinds.into_iter().enumerate() {
            let mut watch = watch();
            let mut work = OutstandingWork::default();
            kind(&mut work);
            assert!(work.any(), "{index}");
            assert_eq!(
                watch.decide(&work, secs(1000)),
                IdleDecision::StayAwake { check_at: secs(1300) },
                "{index}"
            );
            let none = OutstandingWork::default();
            assert_eq!(
                watch.decide(&none, secs(1299)),
                IdleDecision::StayAwake { check_at: secs(1300) }
            );
            assert_eq!(watch.decide(&none, secs(1300)), IdleDecision::AskToBuffer);
        }
    }

    #[test]
    fn what_is_due_soon_is_not_slept_through() {
        let mut watch = watch();
        let soon = OutstandingWork {
            next_due: Some(secs(700)),
            ..OutstandingWork::default()
        };
        assert_eq!(
            watch.decide(&soon, secs(500)),
            IdleDecision::StayAwake { check_at: secs(800) }
        );
        let later = OutstandingWork {
            next_due: Some(secs(7000)),
            ..OutstandingWork::default()
        };
        assert_eq!(watch.decide(&later, secs(500)), IdleDecision::AskToBuffer);
        let past = OutstandingWork {
            next_due: Some(secs(1)),
            ..OutstandingWork::default()
        };
        assert_eq!(
            watch.decide(&past, secs(500)),
            IdleDecision::StayAwake { check_at: secs(800) }
        );
    }

    #[test]
    fn a_connector_that_refuses_is_asked_less_and_less_often_until_a_sleep() {
        let mut watch = watch();
        let none = OutstandingWork::default();
        let mut now = secs(300);
        let mut waits = Vec::new();
        for _ in 0..7 {
            assert_eq!(watch.decide(&none, now), IdleDecision::AskToBuffer);
            watch.refused(now);
            let IdleDecision::StayAwake { check_at } = watch.decide(&none, now) else {
                panic!("asked at once");
            };
            waits.push(check_at.saturating_sub(now).as_secs());
            now = check_at;
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 600, 600]);
        watch.slept(now);
        watch.refused(now);
        assert_eq!(
            watch.decide(&none, now),
            IdleDecision::StayAwake {
                check_at: now + secs(300)
            }
        );
        assert_eq!(watch.decide(&none, now + secs(300)), IdleDecision::AskToBuffer);
    }
}
