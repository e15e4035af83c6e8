//! Scale to zero: asks the connector to buffer, closes the socket, and sleeps until there is a reason not to.
//!
//! The order is fixed: no work for a while, `going_idle`, the connector's acknowledgement, another look for work, the socket
//! closed with its next dial held back, another look, and only then the sleep itself. Without the acknowledgement there is no
//! sleep, and work that turns up at any point ends it. Whatever calls a sleep off reconnects, because a connector that was
//! asked to buffer delivers on a new connection only. When to begin is decided in [`IdleWatch`]; nothing here waits or reads a
//! clock. Two clocks come in: one stands still while the machine is frozen, the other does not.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::suspend::Suspender;
use crate::config::{Settings, SleepAction};
use crate::link::{Deadline, DormancyRefused, Moment};
use crate::relay::transport::{LinkStatus, RelayTransport};
use crate::session::{IdleDecision, IdleWatch, OutstandingWork};

/// How long the connector may take to confirm that it buffers.
const IDLE_ACK_TIMEOUT: Duration = Duration::from_secs(10);
/// A first acknowledgement that comes later than this is not the end of a wake.
const MAX_WAKE: Duration = Duration::from_secs(60);
/// How long a machine may take to freeze after the request; a socket dialled meanwhile would freeze with it.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(15);
/// How often the clocks are compared while the machine may freeze at any moment.
const FREEZE_CHECK: Duration = Duration::from_millis(250);
/// How often the clocks are compared during a sleep.
const SLEEP_CHECK: Duration = Duration::from_secs(1);
/// A wall clock that runs ahead by more than this means that the machine was frozen.
const MIN_FREEZE: Duration = Duration::from_secs(5);
/// The state of a link without a socket.
const DORMANT: &str = "dormant";

/// Something on the way to sleep that has to be waited for.
pub type SleepTask<'a> = Pin<Box<dyn Future<Output = SleepEvent> + Send + 'a>>;

/// How a [`SleepTask`] ended.
#[derive(Debug)]
pub enum SleepEvent {
    /// Whether the connector buffers.
    IdleAnswered(bool),
    /// Whether the socket is closed.
    SocketClosed(Result<(), DormancyRefused>),
    /// Whether the machine is going to freeze.
    Suspended(Result<(), String>),
}

/// What the loop has to do about a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepStep {
    Nothing,
    /// Dial.
    Wake,
    /// Stay awake, on a new connection where there is one.
    CallOff,
}

/// How far the relay is on its way to sleep.
#[derive(Clone, Copy, Debug)]
enum SleepState {
    Awake,
    /// The connector is asked to buffer.
    GoingIdle,
    /// The socket is being closed.
    Closing,
    /// There is no socket, and the machine is being told to freeze.
    Suspending {
        checked: Moment,
    },
    /// The machine was asked to freeze, and has or has not by then.
    Freezing {
        until: Deadline,
    },
    /// There is no socket until there is a reason for one.
    Dormant {
        checked: Moment,
        until: Deadline,
    },
    /// There is no socket yet, and the transport is dialling.
    Waking,
    /// The process is to end.
    Over,
}

impl SleepState {
    fn freezing(now: Moment) -> Self {
        Self::Freezing {
            until: Deadline::after(now, FREEZE_TIMEOUT),
        }
    }

    /// Whether it begins with a task.
    fn has_task(self) -> bool {
        matches!(self, Self::GoingIdle | Self::Closing | Self::Suspending { .. })
    }

    /// Whether there is no socket, on purpose.
    fn is_asleep(self) -> bool {
        match self {
            Self::Suspending { .. } | Self::Freezing { .. } | Self::Dormant { .. } | Self::Waking => true,
            Self::Awake | Self::GoingIdle | Self::Closing | Self::Over => false,
        }
    }

    /// Whether the machine may freeze at any moment, and a socket with it.
    fn may_freeze(self, now: Moment) -> bool {
        match self {
            Self::Suspending { .. } => !self.was_frozen(now),
            Self::Freezing { until } => !until.passed(now),
            Self::Awake
            | Self::GoingIdle
            | Self::Closing
            | Self::Dormant { .. }
            | Self::Waking
            | Self::Over => false,
        }
    }

    /// Whether the machine was frozen since the clocks were compared last.
    fn was_frozen(self, now: Moment) -> bool {
        match self {
            Self::Suspending { checked } | Self::Dormant { checked, .. } => {
                frozen_for(checked, now) > MIN_FREEZE
            }
            Self::Awake
            | Self::GoingIdle
            | Self::Closing
            | Self::Freezing { .. }
            | Self::Waking
            | Self::Over => false,
        }
    }

    /// Compares the clocks; `true` when they end the sleep.
    fn check(&mut self, now: Moment) -> bool {
        let frozen = self.was_frozen(now);
        match self {
            Self::Suspending { checked } => {
                *checked = now;
                frozen
            }
            Self::Dormant { checked, until } => {
                *checked = now;
                frozen || until.passed(now)
            }
            Self::Freezing { until } => until.passed(now),
            Self::Awake | Self::GoingIdle | Self::Closing | Self::Waking | Self::Over => false,
        }
    }

    /// How soon the clocks are to be compared again.
    fn next_check(self) -> Option<Duration> {
        match self {
            Self::Suspending { .. } | Self::Freezing { .. } => Some(FREEZE_CHECK),
            Self::Dormant { .. } => Some(SLEEP_CHECK),
            Self::Awake | Self::GoingIdle | Self::Closing | Self::Waking | Self::Over => None,
        }
    }
}

/// How much further the wall clock went than the other, which stands still in a frozen machine.
fn frozen_for(before: Moment, now: Moment) -> Duration {
    let wall = now.unix_ms.saturating_sub(before.unix_ms).max(0).unsigned_abs();
    Duration::from_millis(wall).saturating_sub(now.mono.saturating_sub(before.mono))
}

/// What has happened to sleeps so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct SleepCounters {
    pub sleeps: u64,
    pub wakes: u64,
    pub refused: u64,
}

/// The way to sleep, for a relay that may.
#[derive(Debug)]
pub struct Sleeper {
    idle: IdleWatch,
    action: SleepAction,
    max_sleep: Duration,
    suspender: Option<Suspender>,
    state: SleepState,
    /// The task of this state has not begun.
    task_due: bool,
    /// Somebody asked to wake while the relay was still falling asleep.
    wake_requested: bool,
    /// When to look for idleness again.
    check_at: Duration,
    /// Since when it wakes, until the first acknowledgement.
    waking_since: Option<Moment>,
    last_wake: Option<Duration>,
    counters: SleepCounters,
}

impl Sleeper {
    /// Only with an opt-in, someone who can wake the relay, and what the action needs.
    pub fn new(settings: &Settings, suspender: Option<Suspender>, now: Moment) -> Option<Self> {
        let sleep = &settings.sleep;
        if !sleep.enabled || settings.connector.wake_url.is_none() {
            return None;
        }
        if let Some(bot) = settings.direct.platforms().first() {
            tracing::warn!(
                "`sleep` has no effect with `direct.{bot}`, whose messages no connector buffers: the relay stays awake"
            );
            return None;
        }
        if sleep.action == SleepAction::Suspend && suspender.is_none() {
            tracing::warn!(
                "nothing can suspend this machine, so the relay stays awake: set `sleep.command` or `connector.sleep_url`"
            );
            return None;
        }
        Some(Self {
            idle: IdleWatch::new(Duration::from_secs(sleep.idle_secs), now.mono),
            action: sleep.action,
            max_sleep: Duration::from_secs(sleep.max_secs),
            suspender,
            state: SleepState::Awake,
            task_due: false,
            wake_requested: false,
            check_at: now.mono,
            // A process that ended to sleep wakes by being started.
            waking_since: (sleep.action == SleepAction::Exit).then_some(now),
            last_wake: None,
            counters: SleepCounters::default(),
        })
    }

    pub fn counters(&self) -> SleepCounters {
        self.counters
    }

    /// From the last wake to its first acknowledgement.
    pub fn last_wake(&self) -> Option<Duration> {
        self.last_wake
    }

    /// Whether the process is to end.
    pub fn is_over(&self) -> bool {
        matches!(self.state, SleepState::Over)
    }

    /// When to look again.
    pub fn deadline(&self, now: Duration, live: bool) -> Option<Duration> {
        match self.state {
            SleepState::Awake if live => Some(self.check_at),
            state => state.next_check().map(|wait| now + wait),
        }
    }

    fn enter(&mut self, state: SleepState) {
        self.task_due = state.has_task();
        self.wake_requested &= matches!(state, SleepState::Closing);
        self.state = state;
    }

    fn start_waking(&mut self, now: Moment) {
        self.waking_since.get_or_insert(now);
        self.enter(SleepState::Waking);
    }

    fn go_dormant(&mut self, now: Moment) {
        let until = Deadline::after(now, self.max_sleep);
        self.enter(SleepState::Dormant { checked: now, until });
    }

    /// The task of this state, once.
    pub fn next_task<'a>(&mut self, transport: &'a dyn RelayTransport) -> Option<SleepTask<'a>> {
        if !std::mem::take(&mut self.task_due) {
            return None;
        }
        match self.state {
            SleepState::GoingIdle => {
                let answer = transport.go_idle(IDLE_ACK_TIMEOUT);
                Some(Box::pin(async { SleepEvent::IdleAnswered(answer.await) }))
            }
            SleepState::Closing => {
                let closed = transport.go_dormant();
                Some(Box::pin(async { SleepEvent::SocketClosed(closed.await) }))
            }
            SleepState::Suspending { .. } => {
                let suspended = self.suspender.as_ref().map(Suspender::suspend)?;
                Some(Box::pin(async { SleepEvent::Suspended(suspended.await) }))
            }
            SleepState::Awake
            | SleepState::Freezing { .. }
            | SleepState::Dormant { .. }
            | SleepState::Waking
            | SleepState::Over => None,
        }
    }

    /// Something arrived: the relay is not idle.
    pub fn on_activity(&mut self, now: Moment) {
        self.idle.note_activity(now.mono);
    }

    /// Goes a step further towards sleep, or back.
    pub fn step(&mut self, now: Moment, live: bool, work: &OutstandingWork) -> SleepStep {
        match self.state {
            SleepState::Awake if !live => self.on_activity(now),
            SleepState::Awake => match self.idle.decide(work, now.mono) {
                IdleDecision::AskToBuffer => self.enter(SleepState::GoingIdle),
                IdleDecision::StayAwake { check_at } => self.check_at = check_at,
            },
            SleepState::Suspending { .. } | SleepState::Freezing { .. } | SleepState::Dormant { .. } => {
                let dormant = matches!(self.state, SleepState::Dormant { .. });
                if self.state.check(now) || (dormant && work.any()) {
                    self.start_waking(now);
                    return SleepStep::Wake;
                }
            }
            SleepState::GoingIdle | SleepState::Closing | SleepState::Waking | SleepState::Over => {}
        }
        SleepStep::Nothing
    }

    /// Somebody wants the relay awake. While the machine may freeze, that waits: a socket that freezes with the machine
    /// would swallow what the connector sends.
    pub fn wake(&mut self, now: Moment) -> SleepStep {
        self.wake_requested |= matches!(self.state, SleepState::GoingIdle | SleepState::Closing);
        if self.state.may_freeze(now) {
            self.waking_since.get_or_insert(now);
            return SleepStep::Nothing;
        }
        if self.state.is_asleep() {
            self.start_waking(now);
        }
        SleepStep::Wake
    }

    /// A task has ended.
    pub fn task_ended(&mut self, event: SleepEvent, now: Moment, work: &OutstandingWork) -> SleepStep {
        let wanted = work.any() || self.wake_requested;
        match event {
            SleepEvent::IdleAnswered(true) if wanted => self.call_off("there is work after all", now),
            SleepEvent::IdleAnswered(true) => {
                self.enter(SleepState::Closing);
                SleepStep::Nothing
            }
            SleepEvent::IdleAnswered(false) => {
                self.call_off("the connector has not confirmed that it buffers", now)
            }
            SleepEvent::SocketClosed(Err(reason)) => self.call_off(&reason.to_string(), now),
            SleepEvent::SocketClosed(Ok(())) => {
                self.idle.slept(now.mono);
                self.waking_since = None;
                self.counters.sleeps += 1;
                match self.action {
                    _ if wanted => {
                        self.go_dormant(now);
                        return self.wake(now);
                    }
                    SleepAction::Exit => {
                        tracing::info!("idle: exiting to sleep; the connector buffers until the next start");
                        self.enter(SleepState::Over);
                    }
                    SleepAction::Suspend => self.enter(SleepState::Suspending { checked: now }),
                    SleepAction::Wait => self.go_dormant(now),
                }
                SleepStep::Nothing
            }
            // It froze and is back before the answer came, whatever that says now.
            SleepEvent::Suspended(_) if !matches!(self.state, SleepState::Suspending { .. }) => {
                SleepStep::Nothing
            }
            SleepEvent::Suspended(_) if self.state.was_frozen(now) => self.wake(now),
            SleepEvent::Suspended(Ok(())) => {
                tracing::info!("the machine is about to be suspended");
                self.enter(SleepState::freezing(now));
                SleepStep::Nothing
            }
            SleepEvent::Suspended(Err(error)) => {
                tracing::warn!(error, "the machine was not suspended; reconnecting");
                self.counters.refused += 1;
                self.idle.refused(now.mono);
                self.go_dormant(now);
                self.wake(now)
            }
        }
    }

    /// Stays awake. A connector that was asked to buffer may do so even when its answer was lost, and delivers again on a
    /// new connection only.
    fn call_off(&mut self, reason: &str, now: Moment) -> SleepStep {
        tracing::info!(reason, "staying awake");
        self.counters.refused += 1;
        self.idle.refused(now.mono);
        self.enter(SleepState::Awake);
        SleepStep::CallOff
    }

    /// The link's state changed: a sleep may be over.
    pub fn on_link(&mut self, status: &LinkStatus, now: Moment) {
        if !self.state.is_asleep() {
            return;
        }
        if status.state != DORMANT {
            self.waking_since.get_or_insert(now);
        }
        if status.live.is_some() {
            self.counters.wakes += 1;
            self.idle.slept(now.mono);
            self.enter(SleepState::Awake);
        }
    }

    /// A delivery was acknowledged: the first one after a wake ends it.
    pub fn acknowledged(&mut self, now: Moment) {
        let Some(since) = self.waking_since.take() else {
            return;
        };
        let took = now.mono.saturating_sub(since.mono);
        if took <= MAX_WAKE {
            self.last_wake = Some(took);
            let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(ms, "awake: the first message is acknowledged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(mono: u64, unix_ms: i64) -> Moment {
        Moment {
            mono: Duration::from_millis(mono),
            unix_ms,
        }
    }

    #[test]
    fn sleeping_needs_an_opt_in_a_wake_url_and_a_suspender_where_one_is_needed() {
        let mut settings = Settings::embedded("/nowhere");
        let may_sleep =
            |settings: &Settings, suspender| Sleeper::new(settings, suspender, at(0, 0)).is_some();
        assert!(!may_sleep(&settings, None));
        settings.sleep.enabled = true;
        assert!(!may_sleep(&settings, None), "nobody could wake it");
        settings.connector.wake_url = Some("https://wake.example".to_owned());
        assert!(may_sleep(&settings, None));
        settings.sleep.action = SleepAction::Suspend;
        assert!(!may_sleep(&settings, None), "nothing could suspend it");
        assert!(may_sleep(
            &settings,
            Some(Suspender::new(|| std::future::ready(Ok(()))))
        ));
        settings.sleep.enabled = false;
        assert!(!may_sleep(&settings, None));
    }

    #[test]
    fn a_freeze_is_seen_by_the_wall_clock_alone() {
        assert_eq!(frozen_for(at(0, 0), at(1000, 1000)), Duration::ZERO);
        assert_eq!(frozen_for(at(0, 0), at(1000, 61_000)), Duration::from_secs(60));
        assert_eq!(frozen_for(at(0, 50_000), at(1000, 0)), Duration::ZERO, "set back");
    }

    #[test]
    fn a_machine_that_does_not_freeze_is_waited_for_no_longer_than_the_timeout() {
        let mut state = SleepState::freezing(at(0, HOUR));
        assert!(!state.check(at(14_900, HOUR + 14_900)) && state.may_freeze(at(14_900, HOUR + 14_900)));
        assert!(state.check(at(15_000, HOUR + 15_000)) && !state.may_freeze(at(15_000, HOUR + 15_000)));
        assert!(
            state.check(at(15_000, 0)),
            "a clock that was set back delays nothing"
        );
    }

    #[test]
    fn a_machine_that_comes_back_is_noticed_at_the_first_check() {
        let mut state = SleepState::freezing(at(0, 0));
        assert!(!state.check(at(2500, 2500)));
        assert!(
            state.check(at(2750, HOUR)),
            "an hour passed on the wall clock alone"
        );
    }

    #[test]
    fn a_machine_that_freezes_before_the_answer_is_noticed_without_it() {
        let mut state = SleepState::Suspending { checked: at(0, 0) };
        for check in 1..100_u32 {
            let now = at(u64::from(check) * 250, i64::from(check) * 250);
            assert!(!state.check(now) && state.may_freeze(now), "only slow: {check}");
        }
        let back = at(25_000, HOUR);
        assert!(state.was_frozen(back) && !state.may_freeze(back));
        assert!(state.check(back));
        assert!(!state.check(at(25_250, HOUR + 250)), "once");
    }

    #[test]
    fn a_sleep_without_a_socket_ends_after_its_time_and_after_a_freeze() {
        let dormant = |now| SleepState::Dormant {
            checked: now,
            until: Deadline::after(now, Duration::from_secs(60)),
        };
        let mut state = dormant(at(0, 0));
        assert!(!state.check(at(1000, 1000)) && !state.check(at(2000, 6900)));
        assert!(state.check(at(60_000, 64_900)), "long enough");
        let mut state = dormant(at(0, 0));
        assert!(state.check(at(1000, 6100)), "frozen for five seconds");
    }

    fn secs(secs: u64) -> Moment {
        let ms = secs * 1_000;
        at(ms, HOUR + i64::try_from(ms).unwrap())
    }

    const NONE: OutstandingWork = OutstandingWork {
        turns: 0,
        queued: 0,
        ops: 0,
        uncommitted: 0,
        prompts: 0,
        unseen: false,
        next_due: None,
    };
    const SOME: OutstandingWork = OutstandingWork { turns: 1, ..NONE };

    /// A relay that was idle for long enough: the connector is asked to buffer. Also since when, in seconds.
    fn going_idle(action: SleepAction) -> (Sleeper, u64) {
        let mut settings = Settings::embedded("/nowhere");
        settings.sleep.enabled = true;
        settings.sleep.action = action;
        settings.connector.wake_url = Some("https://wake.example".to_owned());
        let suspender = Suspender::new(|| std::future::ready(Ok(())));
        let mut sleeper = Sleeper::new(&settings, Some(suspender), secs(0)).unwrap();
        assert_eq!(sleeper.step(secs(0), true, &NONE), SleepStep::Nothing);
        assert!(!sleeper.task_due && sleeper.deadline(Duration::ZERO, false).is_none());
        let idle = settings.sleep.idle_secs;
        assert_eq!(sleeper.deadline(Duration::ZERO, true), Some(secs(idle).mono));
        assert_eq!(sleeper.step(secs(idle), true, &NONE), SleepStep::Nothing);
        assert!(matches!(sleeper.state, SleepState::GoingIdle) && sleeper.task_due);
        (sleeper, idle)
    }

    /// The same with its socket closed.
    fn closed(action: SleepAction) -> (Sleeper, u64) {
        let (mut sleeper, now) = going_idle(action);
        let buffers = SleepEvent::IdleAnswered(true);
        assert_eq!(sleeper.task_ended(buffers, secs(now), &NONE), SleepStep::Nothing);
        assert!(matches!(sleeper.state, SleepState::Closing) && sleeper.task_due);
        let closed = SleepEvent::SocketClosed(Ok(()));
        assert_eq!(sleeper.task_ended(closed, secs(now), &NONE), SleepStep::Nothing);
        assert_eq!(sleeper.counters().sleeps, 1);
        (sleeper, now)
    }

    #[test]
    fn work_or_a_wake_on_the_way_to_sleep_calls_it_off() {
        for (answer, work, wakes) in [(true, &SOME, false), (false, &NONE, false), (true, &NONE, true)] {
            let (mut sleeper, now) = going_idle(SleepAction::Wait);
            if wakes {
                assert_eq!(sleeper.wake(secs(now)), SleepStep::Wake);
            }
            let answered = SleepEvent::IdleAnswered(answer);
            assert_eq!(sleeper.task_ended(answered, secs(now), work), SleepStep::CallOff);
            assert!(matches!(sleeper.state, SleepState::Awake) && !sleeper.task_due);
            assert_eq!((sleeper.counters().refused, sleeper.counters().sleeps), (1, 0));
        }
        let (mut sleeper, now) = going_idle(SleepAction::Wait);
        sleeper.task_ended(SleepEvent::IdleAnswered(true), secs(now), &NONE);
        sleeper.wake(secs(now));
        let closed = SleepEvent::SocketClosed(Ok(()));
        assert_eq!(sleeper.task_ended(closed, secs(now), &NONE), SleepStep::Wake);
        assert!(matches!(sleeper.state, SleepState::Waking));
    }

    #[test]
    fn a_relay_without_a_socket_wakes_for_work_and_notes_how_long_that_took() {
        let (mut sleeper, now) = closed(SleepAction::Wait);
        assert!(matches!(sleeper.state, SleepState::Dormant { .. }) && !sleeper.task_due);
        let next = sleeper.deadline(secs(now).mono, false);
        assert_eq!(next, Some(secs(now).mono + SLEEP_CHECK));
        let status = |state: &str, is_live: bool| LinkStatus {
            state: state.to_owned(),
            live: is_live.then(crate::link::Generation::first),
            ..LinkStatus::default()
        };
        sleeper.on_link(&status(DORMANT, false), secs(now));
        assert_eq!(sleeper.step(secs(now + 1), false, &NONE), SleepStep::Nothing);
        assert_eq!(sleeper.step(secs(now + 2), false, &SOME), SleepStep::Wake);
        sleeper.on_link(&status("dialing", false), secs(now + 3));
        assert_eq!(sleeper.counters().wakes, 0);
        sleeper.on_link(&status("live", true), secs(now + 4));
        assert_eq!(sleeper.counters().wakes, 1);
        sleeper.on_link(&status("live", true), secs(now + 5));
        assert_eq!(sleeper.counters().wakes, 1, "it is awake");
        sleeper.acknowledged(secs(now + 7));
        sleeper.acknowledged(secs(now + 9));
        assert_eq!(sleeper.last_wake(), Some(Duration::from_secs(5)));
        let (mut slow, now) = closed(SleepAction::Wait);
        assert_eq!(slow.wake(secs(now)), SleepStep::Wake);
        slow.acknowledged(secs(now + 61));
        assert_eq!(slow.last_wake(), None, "that was something else");
    }

    #[test]
    fn a_process_that_exits_to_sleep_is_over() {
        let (going, _) = going_idle(SleepAction::Exit);
        assert!(!going.is_over());
        let (sleeper, now) = closed(SleepAction::Exit);
        assert!(sleeper.is_over() && !sleeper.task_due);
        assert_eq!(sleeper.deadline(secs(now).mono, true), None);
    }

    #[test]
    fn a_machine_is_suspended_and_comes_back_whatever_the_answer_was() {
        let (mut sleeper, now) = closed(SleepAction::Suspend);
        assert!(matches!(sleeper.state, SleepState::Suspending { .. }) && sleeper.task_due);
        assert_eq!(
            sleeper.wake(secs(now)),
            SleepStep::Nothing,
            "it may freeze at any moment"
        );
        let refused = SleepEvent::Suspended(Err("no".to_owned()));
        assert_eq!(sleeper.task_ended(refused, secs(now), &NONE), SleepStep::Wake);
        assert_eq!(sleeper.counters().refused, 1);
        let (mut sleeper, now) = closed(SleepAction::Suspend);
        let agreed = || SleepEvent::Suspended(Ok(()));
        assert_eq!(sleeper.task_ended(agreed(), secs(now), &NONE), SleepStep::Nothing);
        assert!(matches!(sleeper.state, SleepState::Freezing { .. }));
        assert_eq!(
            sleeper.deadline(secs(now).mono, false),
            Some(secs(now).mono + FREEZE_CHECK)
        );
        assert_eq!(
            sleeper.task_ended(agreed(), secs(now), &NONE),
            SleepStep::Nothing,
            "late"
        );
        assert_eq!(sleeper.step(secs(now + 14), false, &SOME), SleepStep::Nothing);
        assert_eq!(sleeper.step(secs(now + 15), false, &NONE), SleepStep::Wake);
        let (mut sleeper, now) = closed(SleepAction::Suspend);
        let back = at(now * 1_000, 3 * HOUR + HOUR);
        assert_eq!(
            sleeper.task_ended(agreed(), back, &NONE),
            SleepStep::Wake,
            "it was frozen"
        );
    }
}
