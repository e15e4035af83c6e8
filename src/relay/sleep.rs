//! Scale to zero: asks the connector to buffer, closes the socket, and sleeps until there is a reason not to.
//!
//! The order is fixed: nothing to do for a while, `going_idle`, the connector's acknowledgement, another look for work,
//! the socket closed with its next dial held back, another look, and only then the sleep itself. Without the
//! acknowledgement there is no sleep, and work that turns up at any point ends it. When to begin is decided in
//! [`IdleWatch`]; nothing here waits.

mod stage;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::core::Core;
use super::lever::Lever;
use super::shutdown::Phase;
use super::transport::{LinkView, RelayTransport};
use crate::config::{Settings, SleepAction};
use crate::link::{Deadline, DormancyRefused, Moment};
use crate::session::{IdleDecision, IdleWatch, OutstandingWork};
use stage::Stage;

/// How long the connector may take to say that it buffers.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);
/// A first acknowledgement that comes later than this is not an answer to the wake.
const WAKE_PATIENCE: Duration = Duration::from_secs(60);
/// What a transport without a socket calls its state.
const DORMANT: &str = "dormant";

/// Who waits for what on the way to sleep.
pub(super) type Errand<'a> = Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

/// What an errand came back with.
#[derive(Debug)]
pub(super) enum Done {
    /// Whether the connector buffers.
    Asked(bool),
    /// Whether the socket is closed.
    Left(Result<(), DormancyRefused>),
    /// Whether the machine is going to freeze.
    Suspended(Result<(), String>),
}

/// The way to sleep, for a relay that may.
#[derive(Debug)]
pub(super) struct Sleeper {
    watch: IdleWatch,
    action: SleepAction,
    longest: Duration,
    lever: Option<Lever>,
    stage: Stage,
    /// The errand of this stage has not begun.
    unbegun: bool,
    /// Someone wants us awake who came before the sleep.
    called: bool,
    /// When to look for idleness again.
    check_at: Duration,
    /// Since when it wakes, until the first acknowledgement.
    waking: Option<Moment>,
    /// From the last wake to its first acknowledgement.
    pub(super) last_wake: Option<Duration>,
}

impl Sleeper {
    /// Only with an opt-in, someone who can wake us, and what the action needs.
    pub(super) fn of(settings: &Settings, lever: Option<Lever>, now: Moment) -> Option<Self> {
        let sleep = &settings.sleep;
        if !sleep.enabled || settings.connector.wake_url.is_none() {
            return None;
        }
        if sleep.action == SleepAction::Suspend && lever.is_none() {
            tracing::warn!(
                "nothing can suspend this machine, so the relay stays awake: set `sleep.command` or `connector.sleep_url`"
            );
            return None;
        }
        Some(Self {
            watch: IdleWatch::new(Duration::from_secs(sleep.idle_secs), now.mono),
            action: sleep.action,
            longest: Duration::from_secs(sleep.max_secs),
            lever,
            stage: Stage::Awake,
            unbegun: false,
            called: false,
            check_at: now.mono,
            // A process that ended to sleep wakes by being started.
            waking: (sleep.action == SleepAction::Exit).then_some(now),
            last_wake: None,
        })
    }

    fn enter(&mut self, stage: Stage) {
        self.unbegun = stage.has_errand();
        self.called &= matches!(stage, Stage::Leaving);
        self.stage = stage;
    }

    /// The transport is told to dial.
    fn rise(&mut self, now: Moment) {
        self.waking.get_or_insert(now);
        self.enter(Stage::Waking);
    }

    fn doze(&mut self, now: Moment) {
        let until = Deadline::after(now, self.longest);
        self.enter(Stage::Dormant { looked: now, until });
    }

    /// The errand of this stage, once.
    pub(super) fn errand<'a>(&mut self, transport: &'a dyn RelayTransport) -> Option<Errand<'a>> {
        if !std::mem::take(&mut self.unbegun) {
            return None;
        }
        match self.stage {
            Stage::Asking => {
                let asked = transport.go_idle(ACKNOWLEDGED_WITHIN);
                Some(Box::pin(async { Done::Asked(asked.await) }))
            }
            Stage::Leaving => {
                let left = transport.go_dormant();
                Some(Box::pin(async { Done::Left(left.await) }))
            }
            Stage::Suspending { .. } => {
                let pulled = self.lever.as_ref().map(Lever::pull)?;
                Some(Box::pin(async { Done::Suspended(pulled.await) }))
            }
            Stage::Awake | Stage::Fenced { .. } | Stage::Dormant { .. } | Stage::Waking | Stage::Over => None,
        }
    }

    /// Whether the process is to end.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Something arrived.
    pub(super) fn stir(&mut self, now: Moment) {
        self.watch.note_activity(now.mono);
    }
}

impl Core {
    /// Goes a step further towards sleep, or back.
    pub(super) fn mind_sleep(&mut self) {
        let (now, live) = (self.clock.now(), self.is_live());
        let work = self.work();
        let Some(sleeper) = self
            .sleeper
            .as_mut()
            .filter(|_| matches!(self.phase, Phase::Serving))
        else {
            return;
        };
        match sleeper.stage {
            Stage::Awake if !live => sleeper.stir(now),
            Stage::Awake => match sleeper.watch.decide(&work, now.mono) {
                IdleDecision::AskToBuffer => sleeper.enter(Stage::Asking),
                IdleDecision::StayAwake { check_at } => sleeper.check_at = check_at,
            },
            Stage::Suspending { .. } | Stage::Fenced { .. } | Stage::Dormant { .. } => {
                let dozing = matches!(sleeper.stage, Stage::Dormant { .. });
                if sleeper.stage.glance(now) || (dozing && work.any()) {
                    sleeper.rise(now);
                    self.transport.wake();
                }
            }
            Stage::Asking | Stage::Leaving | Stage::Waking | Stage::Over => {}
        }
    }

    /// Dials at once if there is no connection. Within the fence it is left for its end: a socket that is frozen with the
    /// machine would swallow what the connector sends.
    pub(super) fn wake(&mut self) {
        let now = self.clock.now();
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.called |= matches!(sleeper.stage, Stage::Asking | Stage::Leaving);
            if sleeper.stage.may_freeze(now) {
                sleeper.waking.get_or_insert(now);
                return;
            }
            if sleeper.stage.is_asleep() {
                sleeper.rise(now);
            }
        }
        self.transport.wake();
    }

    /// An errand has come back.
    pub(super) fn take_errand(&mut self, done: Done) {
        let (now, work) = (self.clock.now(), self.work());
        let Some(sleeper) = self
            .sleeper
            .as_mut()
            .filter(|_| matches!(self.phase, Phase::Serving))
        else {
            return;
        };
        let wanted = work.any() || sleeper.called;
        match done {
            Done::Asked(true) if wanted => self.call_off("there is work after all"),
            Done::Asked(true) => sleeper.enter(Stage::Leaving),
            Done::Asked(false) => self.call_off("the connector has not said that it buffers"),
            Done::Left(Err(why)) => self.call_off(&why.to_string()),
            Done::Left(Ok(())) => {
                sleeper.watch.slept(now.mono);
                sleeper.waking = None;
                self.tally.sleeps += 1;
                match sleeper.action {
                    _ if wanted => {
                        sleeper.doze(now);
                        self.wake();
                    }
                    SleepAction::Exit => {
                        tracing::info!(
                            "nothing to do: ending to sleep; the connector buffers until the next start"
                        );
                        sleeper.enter(Stage::Over);
                    }
                    SleepAction::Suspend => sleeper.enter(Stage::Suspending { looked: now }),
                    SleepAction::Wait => sleeper.doze(now),
                }
            }
            // It froze and is back before the answer came, whatever that says now.
            Done::Suspended(_) if !matches!(sleeper.stage, Stage::Suspending { .. }) => {}
            Done::Suspended(_) if sleeper.stage.was_frozen(now) => self.wake(),
            Done::Suspended(Ok(())) => {
                tracing::info!("the machine was told to freeze");
                sleeper.enter(Stage::fenced(now));
            }
            Done::Suspended(Err(why)) => {
                tracing::warn!(why, "the machine was not suspended; connecting again");
                self.tally.sleeps_refused += 1;
                sleeper.watch.refused(now.mono);
                sleeper.doze(now);
                self.wake();
            }
        }
    }

    /// Stays awake, on a new connection: a connector that was asked to buffer may do so even when its word was lost, and
    /// delivers again on a new one only.
    fn call_off(&mut self, why: &str) {
        tracing::info!(why, "staying awake");
        self.tally.sleeps_refused += 1;
        if self.is_live() {
            self.renewal.plan_now(Instant::now());
        }
        let now = self.clock.mono();
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.watch.refused(now);
            sleeper.enter(Stage::Awake);
        }
    }

    /// Notices that a sleep is over.
    pub(super) fn note_link(&mut self, view: &LinkView) {
        let now = self.clock.now();
        let Some(sleeper) = self.sleeper.as_mut().filter(|sleeper| sleeper.stage.is_asleep()) else {
            return;
        };
        if view.state != DORMANT {
            sleeper.waking.get_or_insert(now);
        }
        if view.live.is_some() {
            self.tally.wakes += 1;
            sleeper.watch.slept(now.mono);
            sleeper.enter(Stage::Awake);
        }
    }

    /// The first acknowledgement after a wake ends it.
    pub(super) fn note_acknowledged(&mut self) {
        let now = self.clock.now();
        let Some(sleeper) = &mut self.sleeper else { return };
        let Some(since) = sleeper.waking.take() else {
            return;
        };
        let took = now.mono.saturating_sub(since.mono);
        if took <= WAKE_PATIENCE {
            sleeper.last_wake = Some(took);
            let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(ms, "awake: the first message is safe");
        }
    }

    /// When to look again.
    pub(super) fn sleep_deadline(&self) -> Option<Instant> {
        let sleeper = self.sleeper.as_ref()?;
        match sleeper.stage {
            Stage::Awake if self.is_live() => Some(self.clock.instant(sleeper.check_at)),
            stage => stage.next_glance().map(|wait| Instant::now() + wait),
        }
    }

    /// Everything that is still to be done, wherever it stands.
    fn work(&self) -> OutstandingWork {
        OutstandingWork {
            turns: self.turns.len()
                + self.tasks.len()
                + self.loading.len()
                + self.unstarted.len()
                + self.undecided.len()
                + self.cut_short.len(),
            queued: self.sessions.active(),
            ops: self.owed.len() + self.out.len() + self.egress.passing.len(),
            uncommitted: self.arrivals.len()
                + self.ending.len()
                + self.adding.len()
                + self.refilling.len()
                + self.unread.len()
                + self.recalling.len()
                + self.forgetting.len()
                + self.writes.len()
                + self.lately_out.len()
                + usize::from(self.submission.is_some())
                + usize::from(self.incoming.untaken),
            prompts: self.questions.open(),
            unseen: self.journal_failing.is_some() || self.turned_away || self.renewal.is_planned(),
            next_due: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono: u64, unix_ms: i64) -> Moment {
        Moment {
            mono: Duration::from_millis(mono),
            unix_ms,
        }
    }

    #[test]
    fn only_an_opt_in_with_someone_to_wake_us_and_a_lever_where_one_is_needed_arms_it() {
        let mut settings = Settings::embedded("/nowhere");
        let armed = |settings: &Settings, lever| Sleeper::of(settings, lever, at(0, 0)).is_some();
        assert!(!armed(&settings, None));
        settings.sleep.enabled = true;
        assert!(!armed(&settings, None), "nobody could wake us");
        settings.connector.wake_url = Some("https://wake.example".to_owned());
        assert!(armed(&settings, None));
        settings.sleep.action = SleepAction::Suspend;
        assert!(!armed(&settings, None), "nothing could suspend us");
        assert!(armed(&settings, Some(Lever::new(|| std::future::ready(Ok(()))))));
        settings.sleep.enabled = false;
        assert!(!armed(&settings, None));
    }
}
