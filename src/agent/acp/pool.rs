//! The processes of one agent, started on demand up to a limit.
//!
//! A turn takes a [`ProcessLease`]. A retired process gets no new turn and exits after its last one. A failed process is
//! restarted by the next turn, with backoff. A process without a turn for as long as the settings say is retired, if its
//! sessions can be continued in another one.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, OwnedSemaphorePermit};

use super::process::Capabilities;
use super::process::{Process, StartError};
use super::sessions::ProcessGeneration;
use super::settings::Launch;
use crate::agent::child::group_memory;
use crate::agent::{AgentCommand, AgentProcess};
use crate::backoff::Backoff;

/// A start, shared by everyone who waits for it.
type Start = Arc<OnceCell<Result<Arc<Process>, Arc<StartError>>>>;

/// The processes of one agent.
#[derive(Debug)]
pub(super) struct Pool {
    launch: Launch,
    commands: Arc<Mutex<Vec<AgentCommand>>>,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    slots: Vec<Slot>,
    /// Take no new turn, and end after their last one.
    retired: Vec<Slot>,
    started: u64,
    backoff: RestartBackoff,
    last_failure: Option<LastFailure>,
    closed: bool,
    /// Whether a task waits for idle processes.
    watched: bool,
}

/// Why there is no process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastFailure {
    pub(super) why: String,
    /// Whether it did not start, and the pause before the next start is not over.
    pub(super) is_pausing: bool,
}

#[derive(Debug)]
struct Slot {
    generation: ProcessGeneration,
    start: Start,
    /// Turns in it, or on their way to it.
    turns: usize,
    /// When its last turn ended.
    idle_since: Option<Instant>,
}

/// A turn's use of a process.
#[derive(Debug)]
pub(super) struct ProcessLease {
    /// The process in use.
    pub(super) process: Arc<Process>,
    claim: Claim,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A turn on its way to a process; counted until it is dropped.
#[derive(Debug)]
struct Claim {
    pool: Arc<Pool>,
    generation: ProcessGeneration,
}

impl Pool {
    /// No process yet.
    pub(super) fn new(launch: Launch, commands: Arc<Mutex<Vec<AgentCommand>>>) -> Arc<Self> {
        Arc::new(Self {
            launch,
            commands,
            state: Mutex::default(),
        })
    }

    /// Acquires the wanted process if it still runs, else the one with the most room. Cancel-safe.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        wanted: Option<ProcessGeneration>,
    ) -> Result<ProcessLease, Arc<StartError>> {
        loop {
            let (claim, start, rest) = self.claim(wanted)?;
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            let started = start.get_or_init(|| async {
                let commands = Arc::clone(&self.commands);
                let started = Process::start(&self.launch, claim.generation, commands).await;
                started.map(Arc::new).map_err(Arc::new)
            });
            let process = match started.await {
                Ok(process) => Arc::clone(process),
                Err(error) => {
                    self.start_failed(claim.generation, error);
                    return Err(Arc::clone(error));
                }
            };
            let permit = match &process.permits {
                // Fails only when the semaphore is closed, which never happens.
                Some(permits) => Arc::clone(permits).acquire_owned().await.ok(),
                None => None,
            };
            if self.state().closed {
                process.stop();
                return Err(Arc::new(StartError::Closed));
            }
            if !process.is_gone() {
                return Ok(ProcessLease {
                    process,
                    claim,
                    _permit: permit,
                });
            }
        }
    }

    /// The running process of that start.
    pub(super) fn alive(&self, generation: ProcessGeneration) -> Option<Arc<Process>> {
        let state = self.state();
        let slot = state.slots.iter().find(|slot| slot.generation == generation)?;
        slot.process().filter(|process| !process.is_gone())
    }

    /// The capabilities of that process.
    pub(super) fn capabilities(&self, generation: ProcessGeneration) -> Option<Capabilities> {
        self.alive(generation).map(|process| process.capabilities.clone())
    }

    /// Any process that takes turns.
    pub(super) fn any(&self) -> Option<Arc<Process>> {
        let state = self.state();
        state.slots.iter().find_map(Slot::process)
    }

    /// Why the last process ended or did not start, if none runs since.
    pub(super) fn last_failure(&self) -> Option<LastFailure> {
        self.state().last_failure(Instant::now())
    }

    /// Retires a process.
    pub(super) fn retire(&self, generation: ProcessGeneration) {
        let mut state = self.state();
        state.retire(generation);
        state.sweep();
    }

    /// The processes that run, with what they take of this machine.
    pub(super) fn processes(&self) -> Vec<AgentProcess> {
        let now = Instant::now();
        let mut found = Vec::new();
        {
            let state = self.state();
            for slot in state.slots.iter().chain(&state.retired) {
                let process = slot.process().filter(|process| !process.is_gone());
                if let Some(group) = process.and_then(|process| process.group) {
                    let idle = slot.idle_since.map(|since| now.saturating_duration_since(since));
                    found.push((group, slot.turns, idle));
                }
            }
        }
        let groups: Vec<i32> = found.iter().map(|(group, ..)| *group).collect();
        let memory = group_memory(&groups);
        let process = |(group, turns, idle): (i32, usize, Option<Duration>)| AgentProcess {
            pid: group.unsigned_abs(),
            turns,
            idle_secs: idle.map(|idle| idle.as_secs()),
            memory_bytes: memory.get(&group).copied(),
        };
        found.into_iter().map(process).collect()
    }

    /// Waits beside the turns for processes that have been idle for too long; one task for all of them.
    fn watch_idle(self: &Arc<Self>) {
        // Dropped with the runtime, a claim leaves nothing to wait for.
        let (Some(limit), Ok(runtime)) = (self.launch.idle_close, Handle::try_current()) else {
            return;
        };
        if std::mem::replace(&mut self.state().watched, true) {
            return;
        }
        let pool = Arc::downgrade(self);
        runtime.spawn(async move {
            loop {
                let Some(pool) = pool.upgrade() else { return };
                let Some(due) = pool.close_idle(Instant::now(), limit) else {
                    return;
                };
                drop(pool);
                tokio::time::sleep_until(due.into()).await;
            }
        });
    }

    /// Ends the processes that have been idle for `limit`; returns when the next one will have been.
    fn close_idle(&self, now: Instant, limit: Duration) -> Option<Instant> {
        let mut state = self.state();
        let idle = state.slots.iter().filter_map(|slot| {
            let continues = slot.process()?.capabilities.continues().is_some();
            Some((slot.generation, slot.idle_since.filter(|_| continues)?))
        });
        let (due, next) = due_idle(idle, now, limit);
        for generation in due {
            tracing::info!(agent = self.launch.name(), "an idle process of the agent ends");
            state.retire(generation);
        }
        state.sweep();
        state.watched = next.is_some();
        next
    }

    /// Ends every process.
    pub(super) async fn close(&self) {
        let slots = {
            let mut state = self.state();
            state.closed = true;
            let mut slots = std::mem::take(&mut state.slots);
            slots.append(&mut state.retired);
            slots
        };
        let ended = slots.iter().filter_map(Slot::process).map(|process| async move {
            process.stop();
            process.exit_report().await;
        });
        join_all(ended).await;
    }

    fn claim(
        self: &Arc<Self>,
        wanted: Option<ProcessGeneration>,
    ) -> Result<(Claim, Start, Duration), StartError> {
        let now = Instant::now();
        let mut state = self.state();
        if state.closed {
            return Err(StartError::Closed);
        }
        state.sweep();
        let place = state.pick(wanted, self.launch.processes, self.launch.turns);
        let at = if let Some(at) = place {
            at
        } else {
            let wait = state.backoff.wait(now);
            if wait > self.launch.start_timeout {
                let why = state.last_failure.as_ref().map(|last| last.why.clone());
                let why = why.unwrap_or_default();
                return Err(StartError::BackingOff { wait, why });
            }
            state.started += 1;
            let generation = ProcessGeneration(state.started);
            state.slots.push(Slot {
                generation,
                start: Start::default(),
                turns: 0,
                idle_since: None,
            });
            state.slots.len() - 1
        };
        let rest = match state.slots[at].start.get() {
            Some(_) => Duration::ZERO,
            None => state.backoff.wait(now),
        };
        let slot = &mut state.slots[at];
        slot.turns += 1;
        slot.idle_since = None;
        let claim = Claim {
            pool: Arc::clone(self),
            generation: slot.generation,
        };
        Ok((claim, Arc::clone(&slot.start), rest))
    }

    /// Counted once per start.
    fn start_failed(&self, generation: ProcessGeneration, error: &StartError) {
        let mut state = self.state();
        if let Some(at) = state.slots.iter().position(|slot| slot.generation == generation) {
            state.slots.swap_remove(at);
            // A missing program is looked for each time.
            if !matches!(error, StartError::Spawn(_)) {
                state.backoff.failed(Instant::now(), Duration::ZERO);
                state.last_failure = Some(LastFailure {
                    why: error.to_string(),
                    is_pausing: true,
                });
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    fn last_failure(&self, now: Instant) -> Option<LastFailure> {
        let last = self.last_failure.clone()?;
        let is_pausing = last.is_pausing && !self.backoff.wait(now).is_zero();
        Some(LastFailure { is_pausing, ..last })
    }

    fn retire(&mut self, generation: ProcessGeneration) {
        if let Some(at) = self.slots.iter().position(|slot| slot.generation == generation) {
            let slot = self.slots.swap_remove(at);
            self.retired.push(slot);
        }
    }

    /// Removes exited processes and stops retired idle ones.
    fn sweep(&mut self) {
        let Self {
            slots,
            retired,
            backoff,
            last_failure,
            ..
        } = self;
        slots.retain(|slot| {
            let Some(process) = slot.process() else {
                return true;
            };
            if !process.is_gone() {
                *last_failure = None;
                return true;
            }
            let ended = process.ended();
            let at = ended.as_ref().map_or_else(Instant::now, |ended| ended.at);
            backoff.failed(at, at.saturating_duration_since(process.since));
            *last_failure = ended.map(|ended| LastFailure {
                why: ended.to_string(),
                is_pausing: false,
            });
            false
        });
        retired.retain(|slot| {
            let Some(process) = slot.process() else {
                return slot.turns > 0;
            };
            if slot.turns == 0 {
                process.stop();
            }
            process.ended().is_none()
        });
    }

    /// Picks the process of a turn; `None` to start one.
    fn pick(
        &self,
        wanted: Option<ProcessGeneration>,
        processes: usize,
        turns: Option<usize>,
    ) -> Option<usize> {
        if let Some(at) =
            wanted.and_then(|wanted| self.slots.iter().position(|slot| slot.generation == wanted))
        {
            return Some(at);
        }
        // Of those without a turn the one that had one last, so that the others can end.
        let load = |slot: &Slot| (slot.turns, Reverse(slot.idle_since));
        let (at, idlest) = self.slots.iter().enumerate().min_by_key(|(_, slot)| load(slot))?;
        let has_room = turns.is_none_or(|turns| idlest.turns < turns);
        (has_room || self.slots.len() >= processes).then_some(at)
    }
}

impl Slot {
    fn process(&self) -> Option<Arc<Process>> {
        self.start.get()?.as_ref().ok().cloned()
    }
}

impl ProcessLease {
    /// Kills the process unless another turn uses it; returns whether it was killed.
    pub(super) async fn kill_if_unused(&self) -> bool {
        let alone = {
            // Under one lock, so that no other turn gets in between.
            let mut state = self.claim.pool.state();
            let generation = self.claim.generation;
            let mut slots = state.slots.iter().chain(&state.retired);
            let alone = slots.any(|slot| slot.generation == generation && slot.turns == 1);
            if alone {
                state.retire(generation);
            }
            alone
        };
        if alone {
            self.process.kill();
            self.process.exit_report().await;
        }
        alone
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let PoolState { slots, retired, .. } = &mut *state;
        let slot = slots
            .iter_mut()
            .chain(retired)
            .find(|slot| slot.generation == self.generation);
        let mut is_idle = false;
        if let Some(slot) = slot {
            slot.turns -= 1;
            is_idle = slot.turns == 0;
            slot.idle_since = is_idle.then(Instant::now);
        }
        state.sweep();
        drop(state);
        if is_idle {
            self.pool.watch_idle();
        }
    }
}

/// The processes that have been idle for `limit`, the longest idle first, and when the next one will have been.
fn due_idle(
    idle: impl Iterator<Item = (ProcessGeneration, Instant)>,
    now: Instant,
    limit: Duration,
) -> (Vec<ProcessGeneration>, Option<Instant>) {
    let mut idle: Vec<_> = idle
        .map(|(generation, since)| (since + limit, generation))
        .collect();
    idle.sort_by_key(|(due, _)| *due);
    let split = idle.partition_point(|(due, _)| *due <= now);
    let next = idle.get(split).map(|(due, _)| *due);
    (
        idle[..split].iter().map(|(_, generation)| *generation).collect(),
        next,
    )
}

/// First delay between restarts; doubles up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A process that ran this long was healthy: its exit counts as a first failure.
const HEALTHY: Duration = Duration::from_secs(60);

/// Backoff between restarts.
#[derive(Clone, Copy, Debug)]
struct RestartBackoff {
    delays: Backoff,
    not_before: Option<Instant>,
}

impl Default for RestartBackoff {
    fn default() -> Self {
        Self {
            delays: Backoff::new(FIRST_DELAY, MAX_DELAY),
            not_before: None,
        }
    }
}

impl RestartBackoff {
    /// Records a failure at `at`, after this lifetime.
    fn failed(&mut self, at: Instant, lived: Duration) {
        if lived >= HEALTHY {
            self.delays.reset();
        }
        self.not_before = at.checked_add(self.delays.next_delay());
    }

    /// Remaining delay.
    fn wait(&self, now: Instant) -> Duration {
        self.not_before
            .map_or(Duration::ZERO, |then| then.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(generation: u64, turns: usize) -> Slot {
        Slot {
            generation: ProcessGeneration(generation),
            start: Start::default(),
            turns,
            idle_since: None,
        }
    }

    #[test]
    fn what_was_idle_for_long_enough_is_due_the_longest_first() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let (now, minute) = (start + 100 * second, 60 * second);
        let idle = |secs: u32| start + (100 - secs) * second;
        let number = |number, since| (ProcessGeneration(number), since);
        let of = |slots: Vec<(ProcessGeneration, Instant)>| due_idle(slots.into_iter(), now, minute);
        assert_eq!(of(Vec::new()), (Vec::new(), None));
        assert_eq!(of(vec![number(1, idle(59))]), (Vec::new(), Some(now + second)));
        assert_eq!(
            of(vec![
                number(1, idle(60)),
                number(2, idle(10)),
                number(3, idle(90)),
                number(4, idle(20))
            ]),
            (
                vec![ProcessGeneration(3), ProcessGeneration(1)],
                Some(now + 40 * second)
            )
        );
    }

    #[test]
    fn a_turn_without_a_session_goes_to_the_process_that_was_used_last() {
        let now = Instant::now();
        let mut state = PoolState {
            slots: vec![slot(1, 0), slot(2, 0), slot(3, 1)],
            ..PoolState::default()
        };
        state.slots[0].idle_since = Some(now);
        state.slots[1].idle_since = Some(now + Duration::from_secs(1));
        assert_eq!(state.pick(None, 3, Some(2)), Some(1));
    }

    #[test]
    fn a_turn_goes_where_its_session_is_else_where_there_is_room() {
        let mut state = PoolState::default();
        assert_eq!(state.pick(None, 2, Some(2)), None);
        state.slots = vec![slot(1, 1)];
        assert_eq!(state.pick(None, 2, Some(2)), Some(0));
        state.slots = vec![slot(1, 2)];
        assert_eq!(state.pick(None, 2, Some(2)), None, "a second process");
        assert_eq!(
            state.pick(Some(ProcessGeneration(1)), 2, Some(2)),
            Some(0),
            "its own, even when full"
        );
        assert_eq!(state.pick(Some(ProcessGeneration(9)), 2, Some(2)), None);
        state.slots = vec![slot(1, 3), slot(2, 2)];
        assert_eq!(
            state.pick(None, 2, Some(2)),
            Some(1),
            "waits where the line is shortest"
        );
        assert_eq!(
            state.pick(None, 9, None),
            Some(1),
            "without a limit one process is enough"
        );
    }

    #[test]
    fn a_failed_start_is_a_pause_until_the_next_start_and_an_ended_process_is_none() {
        let now = Instant::now();
        let failure = |is_pausing| LastFailure {
            why: "it ended".to_owned(),
            is_pausing,
        };
        let mut state = PoolState::default();
        assert_eq!(state.last_failure(now), None);
        state.backoff.failed(now, Duration::ZERO);
        state.last_failure = Some(failure(true));
        assert_eq!(state.last_failure(now), Some(failure(true)));
        assert_eq!(state.last_failure(now + FIRST_DELAY), Some(failure(false)));
        state.last_failure = Some(failure(false));
        assert_eq!(state.last_failure(now), Some(failure(false)));
    }

    #[test]
    fn rests_grow_to_a_bound_and_a_sound_life_starts_over() {
        let now = Instant::now();
        let mut backoff = RestartBackoff::default();
        assert_eq!(backoff.wait(now), Duration::ZERO);
        let rests: Vec<u64> = (0..100)
            .map(|_| {
                backoff.failed(now, Duration::ZERO);
                backoff.wait(now).as_secs()
            })
            .collect();
        assert_eq!(rests[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(rests[99], 60);
        assert_eq!(backoff.wait(now + MAX_DELAY), Duration::ZERO);
        backoff.failed(now, HEALTHY);
        assert_eq!(backoff.wait(now), FIRST_DELAY);
    }
}
