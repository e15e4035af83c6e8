//! Where the relay is in its life: serving, draining, over; and when it reconnects by its own choice.
//!
//! Shutdown has stages that share one budget: finish turns, stop turns, flush the outbox, close.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::config::{OnRevoked, Settings};

/// How long the last writes may wait for room in the journal.
pub const LAST_WRITES_TIMEOUT: Duration = Duration::from_secs(2);
/// How long aborted turns may take to release what they hold.
pub const ABORT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a shutdown waits for the last indicators of ended turns, once nothing else is left to send.
const LAST_INDICATORS_TIMEOUT: Duration = Duration::from_millis(800);
/// How long the closing handshake and the agents' shutdown may each take.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait before the first reconnect that the journal's recovery asks for; it doubles from there.
const FIRST_RECONNECT: Duration = Duration::from_secs(1);
/// The longest such wait.
const MAX_RECONNECT: Duration = Duration::from_secs(60);
/// How much longer a due reconnect waits for ops in flight.
const IN_FLIGHT_GRACE: Duration = Duration::from_secs(5);

/// A stage of the relay's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// No new turns; running ones may finish until then.
    Draining {
        until: Duration,
        end: Duration,
    },
    /// Running turns were told to stop, and are dropped then.
    Stopping {
        until: Duration,
        end: Duration,
    },
    /// What must reach the chats goes out.
    Flushing {
        /// Until when the last indicators are waited for, if only they are left.
        indicators_until: Option<Duration>,
        end: Duration,
    },
    /// Nothing is left to do.
    Over,
}

/// What is on its way into the journal, or to a chat that can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// Something that a shutdown waits for.
    Work,
    /// Indicators of ended turns, which it waits for a moment.
    Indicators,
    Nothing,
}

/// What the loop is asked to do by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Tell every running turn to stop.
    StopTurns,
}

/// The relay's stage, and what may still arrive.
#[derive(Debug)]
pub struct Lifecycle {
    phase: Phase,
    budget: Duration,
    going_idle: Duration,
    drain: Duration,
    grace: Duration,
    exit_when_revoked: bool,
    /// The connector was asked to buffer before the shutdown and has not answered.
    idle_unanswered: bool,
    /// The transport will deliver nothing any more.
    frames_closed: bool,
    reconnect: Reconnect,
}

impl Lifecycle {
    pub fn new(settings: &Settings) -> Self {
        Self {
            phase: Phase::Serving,
            budget: Duration::from_secs(settings.shutdown.budget_secs),
            going_idle: Duration::from_secs(settings.shutdown.going_idle_secs),
            drain: Duration::from_secs(settings.shutdown.drain_secs),
            grace: Duration::from_secs(settings.sessions.grace_secs),
            exit_when_revoked: settings.link.on_revoked == OnRevoked::Exit,
            idle_unanswered: false,
            frames_closed: false,
            reconnect: Reconnect::default(),
        }
    }

    pub fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether deliveries may still come.
    pub fn takes_frames(&self) -> bool {
        !self.frames_closed && self.phase != Phase::Over
    }

    pub fn exits_when_revoked(&self) -> bool {
        self.exit_when_revoked
    }

    /// When the next timer is due.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Serving => self.reconnect.deadline(now),
            Phase::Draining { until, .. } | Phase::Stopping { until, .. } => Some(until),
            Phase::Flushing {
                indicators_until,
                end,
            } => {
                // Once it has passed, only an event or the end can change anything.
                let until = indicators_until.filter(|until| *until > now);
                Some(until.map_or(end, |until| until.min(end)))
            }
            Phase::Over => None,
        }
    }

    /// Shutdown begins: no new turns. Returns how long the connector may take to confirm that it buffers.
    pub fn begin_shutdown(&mut self, now: Duration) -> Duration {
        let end = now + self.budget.saturating_sub(CLOSE_TIMEOUT);
        let until = (now + self.drain).min(end);
        self.phase = Phase::Draining { until, end };
        self.idle_unanswered = true;
        self.going_idle
    }

    /// The connector has confirmed that it buffers, or will not.
    pub fn idle_answered(&mut self) {
        self.idle_unanswered = false;
    }

    /// The transport will deliver nothing any more.
    pub fn frames_closed(&mut self) {
        self.frames_closed = true;
    }

    /// Moves on to the next stage when this one is through. `idle` says that no turn runs.
    pub fn step(&mut self, now: Duration, idle: bool, unsent: Unsent) -> Step {
        let flushing = |end| Phase::Flushing {
            indicators_until: None,
            end,
        };
        loop {
            if let Phase::Flushing { indicators_until, .. } = &mut self.phase
                && unsent == Unsent::Indicators
            {
                indicators_until.get_or_insert(now + LAST_INDICATORS_TIMEOUT);
            }
            self.phase = match self.phase {
                Phase::Draining { end, .. } | Phase::Stopping { end, .. } if idle => flushing(end),
                Phase::Draining { until, end } if now >= until => {
                    // The end may be over: then turns are asked to stop, and the next step goes on.
                    let until = (now + self.grace * 2).min(end).max(now);
                    self.phase = Phase::Stopping { until, end };
                    return Step::StopTurns;
                }
                Phase::Stopping { until, end } if now >= until => flushing(end),
                Phase::Flushing { end, .. } if now >= end => Phase::Over,
                Phase::Flushing { indicators_until, .. }
                    if !self.idle_unanswered
                        && match unsent {
                            Unsent::Work => false,
                            Unsent::Indicators => indicators_until.is_some_and(|until| now >= until),
                            Unsent::Nothing => true,
                        } =>
                {
                    Phase::Over
                }
                Phase::Serving
                | Phase::Draining { .. }
                | Phase::Stopping { .. }
                | Phase::Flushing { .. }
                | Phase::Over => return Step::Nothing,
            };
        }
    }

    /// Reconnects after a wait, so that the connector delivers again what the journal rejected.
    pub fn plan_reconnect(&mut self, now: Duration) {
        self.reconnect.plan(now);
    }

    /// Reconnects now: nothing is wrong, so it need not wait.
    pub fn reconnect_now(&mut self, now: Duration) {
        self.reconnect.plan_now(now);
    }

    /// Whether a reconnect is planned.
    pub fn is_reconnecting(&self) -> bool {
        self.reconnect.at.is_some()
    }

    /// A message was accepted: the journal works.
    pub fn accepted(&mut self) {
        self.reconnect.accepted();
    }

    /// Whether it is time to reconnect; `true` once.
    pub fn is_reconnect_due(&mut self, now: Duration, in_flight: usize) -> bool {
        self.is_serving() && self.reconnect.is_due(now, in_flight)
    }
}

/// When to reconnect so that the connector delivers again what the journal rejected.
///
/// A journal that fails now and then must not cause a storm of dials: each reconnect waits longer than the one before, until
/// messages are accepted again, and lets ops in flight finish first.
#[derive(Debug)]
struct Reconnect {
    at: Option<Duration>,
    backoff: Backoff,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self {
            at: None,
            backoff: Backoff::new(FIRST_RECONNECT, MAX_RECONNECT),
        }
    }
}

impl Reconnect {
    fn plan(&mut self, now: Duration) {
        if self.at.is_none() {
            self.at = Some(now + self.backoff.next_delay());
        }
    }

    fn plan_now(&mut self, now: Duration) {
        self.at = Some(self.at.map_or(now, |at| at.min(now)));
    }

    fn accepted(&mut self) {
        if self.at.is_none() {
            self.backoff.reset();
        }
    }

    fn is_due(&mut self, now: Duration, in_flight: usize) -> bool {
        let due = self
            .at
            .is_some_and(|at| now >= at && (in_flight == 0 || now >= at + IN_FLIGHT_GRACE));
        if due {
            self.at = None;
        }
        due
    }

    fn deadline(&self, now: Duration) -> Option<Duration> {
        self.at.map(|at| if now < at { at } else { at + IN_FLIGHT_GRACE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn lifecycle() -> Lifecycle {
        let mut settings = Settings::embedded("/nowhere");
        settings.shutdown.budget_secs = 21;
        settings.shutdown.drain_secs = 10;
        settings.sessions.grace_secs = 2;
        Lifecycle::new(&settings)
    }

    #[test]
    fn reconnects_keep_their_distance_until_messages_are_accepted_again() {
        let mut reconnect = Reconnect::default();
        reconnect.plan(secs(0));
        reconnect.plan(FIRST_RECONNECT / 2);
        assert!(!reconnect.is_due(FIRST_RECONNECT / 2, 0));
        assert!(
            !reconnect.is_due(FIRST_RECONNECT, 1),
            "ops in flight finish first"
        );
        assert!(reconnect.is_due(FIRST_RECONNECT, 0));
        assert!(!reconnect.is_due(FIRST_RECONNECT, 0), "reported once");
        reconnect.plan(secs(0));
        assert!(!reconnect.is_due(FIRST_RECONNECT, 0) && reconnect.is_due(FIRST_RECONNECT * 2, 0));
        reconnect.accepted();
        reconnect.plan(secs(0));
        assert!(reconnect.is_due(FIRST_RECONNECT + IN_FLIGHT_GRACE, 1));
    }

    #[test]
    fn a_reconnect_is_looked_at_when_it_is_due_and_when_ops_in_flight_have_had_their_time() {
        let mut lifecycle = lifecycle();
        assert_eq!(lifecycle.deadline(secs(0)), None);
        lifecycle.plan_reconnect(secs(100));
        let at = secs(100) + FIRST_RECONNECT;
        assert!(lifecycle.is_reconnecting());
        assert_eq!(lifecycle.deadline(secs(100)), Some(at));
        assert_eq!(lifecycle.deadline(at), Some(at + IN_FLIGHT_GRACE));
        lifecycle.reconnect_now(secs(100));
        assert_eq!(
            lifecycle.deadline(secs(99)),
            Some(secs(100)),
            "earlier than planned"
        );
        lifecycle.begin_shutdown(secs(100));
        assert!(!lifecycle.is_reconnect_due(secs(200), 0), "it ends instead");
        assert_eq!(
            lifecycle.deadline(secs(109)),
            Some(secs(110)),
            "a reconnect is not looked at again"
        );
    }

    #[test]
    fn a_shutdown_drains_then_stops_then_flushes_within_its_budget() {
        let mut lifecycle = lifecycle();
        assert_eq!(lifecycle.step(secs(0), false, Unsent::Work), Step::Nothing);
        lifecycle.begin_shutdown(secs(100));
        assert_eq!(lifecycle.step(secs(109), false, Unsent::Work), Step::Nothing);
        assert_eq!(lifecycle.step(secs(110), false, Unsent::Work), Step::StopTurns);
        assert_eq!(lifecycle.step(secs(113), false, Unsent::Work), Step::Nothing);
        assert_eq!(lifecycle.deadline(secs(113)), Some(secs(114)));
        lifecycle.step(secs(114), false, Unsent::Work);
        assert_eq!(lifecycle.deadline(secs(114)), Some(secs(120)), "flushing");
        assert!(!lifecycle.is_over());
        lifecycle.step(secs(120), false, Unsent::Work);
        assert!(lifecycle.is_over());
    }

    #[test]
    fn turns_are_asked_to_stop_when_the_budget_is_over_and_the_next_look_is_not_in_the_past() {
        let mut lifecycle = lifecycle();
        lifecycle.begin_shutdown(secs(100));
        let late = secs(121);
        assert_eq!(lifecycle.step(late, false, Unsent::Work), Step::StopTurns);
        assert_eq!(lifecycle.deadline(late), Some(late));
        assert_eq!(lifecycle.step(late, false, Unsent::Work), Step::Nothing);
        assert!(lifecycle.is_over());
    }

    #[test]
    fn a_shutdown_waits_a_moment_for_the_last_indicators_and_no_longer() {
        let begun = || {
            let mut lifecycle = lifecycle();
            lifecycle.begin_shutdown(secs(0));
            lifecycle.idle_answered();
            lifecycle.step(secs(3), true, Unsent::Work);
            lifecycle.step(secs(4), true, Unsent::Indicators);
            assert!(!lifecycle.is_over());
            lifecycle
        };
        let until = secs(4) + LAST_INDICATORS_TIMEOUT;
        let mut sent = begun();
        assert_eq!(sent.deadline(secs(4)), Some(until));
        sent.step(secs(4), true, Unsent::Nothing);
        assert!(sent.is_over());
        let mut stuck = begun();
        stuck.step(secs(4) + LAST_INDICATORS_TIMEOUT / 2, true, Unsent::Indicators);
        assert!(!stuck.is_over());
        stuck.step(until, true, Unsent::Indicators);
        assert!(stuck.is_over());
    }

    #[test]
    fn a_shutdown_whose_last_indicators_had_their_time_waits_for_the_connector_without_looking_again() {
        let mut lifecycle = lifecycle();
        lifecycle.begin_shutdown(secs(0));
        lifecycle.step(secs(3), true, Unsent::Indicators);
        let until = secs(3) + LAST_INDICATORS_TIMEOUT;
        assert_eq!(lifecycle.deadline(secs(3)), Some(until));
        lifecycle.step(until, true, Unsent::Indicators);
        assert!(!lifecycle.is_over(), "the connector has not answered");
        assert_eq!(lifecycle.deadline(until), Some(secs(20)));
        lifecycle.idle_answered();
        lifecycle.step(until, true, Unsent::Indicators);
        assert!(lifecycle.is_over());
    }

    #[test]
    fn the_last_indicators_do_not_outlast_the_budget() {
        let mut lifecycle = lifecycle();
        lifecycle.begin_shutdown(secs(0));
        lifecycle.step(Duration::from_millis(19_999), true, Unsent::Indicators);
        assert_eq!(lifecycle.deadline(secs(19)), Some(secs(20)));
        lifecycle.step(secs(20), true, Unsent::Indicators);
        assert!(lifecycle.is_over());
    }

    #[test]
    fn a_shutdown_without_work_waits_only_for_the_connector_to_buffer() {
        let mut lifecycle = lifecycle();
        lifecycle.begin_shutdown(secs(0));
        lifecycle.step(secs(0), true, Unsent::Nothing);
        assert!(!lifecycle.is_over(), "messages may still come");
        assert!(lifecycle.takes_frames());
        lifecycle.idle_answered();
        lifecycle.step(secs(0), true, Unsent::Work);
        assert!(!lifecycle.is_over(), "something is on its way");
        lifecycle.step(secs(0), true, Unsent::Nothing);
        assert!(lifecycle.is_over() && !lifecycle.takes_frames());
    }

    #[test]
    fn no_frames_are_taken_from_a_transport_that_has_none() {
        let mut lifecycle = lifecycle();
        assert!(lifecycle.is_serving() && lifecycle.takes_frames());
        lifecycle.frames_closed();
        assert!(lifecycle.is_serving() && !lifecycle.takes_frames());
        assert!(!lifecycle.is_reconnecting() && !lifecycle.is_reconnect_due(secs(1), 0));
        lifecycle.plan_reconnect(secs(0));
        assert!(!lifecycle.is_reconnect_due(IN_FLIGHT_GRACE, 1));
        assert!(lifecycle.is_reconnect_due(FIRST_RECONNECT + IN_FLIGHT_GRACE, 1));
        assert!(!lifecycle.is_reconnecting());
    }
}
