//! The processes of one agent: as few as needed, as many as allowed, each started on first use.
//!
//! A turn takes a [`Seat`] in one of them. A process that is retired takes no new turn and ends after its last one.
//! One that failed is started again by the next turn, after a rest that grows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::{OnceCell, OwnedSemaphorePermit};

use super::process::Capabilities;
use super::process::{Process, StartError};
use super::sessions::Generation;
use super::settings::Launch;
use crate::agent::AgentCommand;

/// A start, shared by everyone who waits for it.
type Start = Arc<OnceCell<Result<Arc<Process>, Arc<StartError>>>>;

/// The processes of one agent.
#[derive(Debug)]
pub(super) struct Pool {
    launch: Launch,
    commands: Arc<Mutex<Vec<AgentCommand>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    /// Take no new turn, and end after their last one.
    retired: Vec<Slot>,
    started: u64,
    backoff: Backoff,
    last_failure: Option<String>,
    closed: bool,
}

#[derive(Debug)]
struct Slot {
    generation: Generation,
    start: Start,
    /// Turns in it, or on their way to it.
    turns: usize,
}

/// A turn's place in a process.
#[derive(Debug)]
pub(super) struct Seat {
    /// The process.
    pub(super) process: Arc<Process>,
    claim: Claim,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A turn on its way to a process; counted until it is dropped.
#[derive(Debug)]
struct Claim {
    pool: Arc<Pool>,
    generation: Generation,
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

    /// A place in the wanted process when it is still there, else in the one that has most room; waits for one.
    /// Dropping the future gives everything back.
    pub(super) async fn seat(self: &Arc<Self>, wanted: Option<Generation>) -> Result<Seat, Arc<StartError>> {
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
            let permit = match &process.seats {
                // Fails only when the places are closed, which nobody does.
                Some(seats) => Arc::clone(seats).acquire_owned().await.ok(),
                None => None,
            };
            if self.state().closed {
                process.stop();
                return Err(Arc::new(StartError::Closed));
            }
            if !process.is_gone() {
                return Ok(Seat {
                    process,
                    claim,
                    _permit: permit,
                });
            }
        }
    }

    /// What the process of that start can do, when it still takes turns.
    pub(super) fn alive(&self, generation: Generation) -> Option<Arc<Process>> {
        let state = self.state();
        let slot = state.slots.iter().find(|slot| slot.generation == generation)?;
        slot.process().filter(|process| !process.is_gone())
    }

    /// The capabilities of that process.
    pub(super) fn capabilities(&self, generation: Generation) -> Option<Capabilities> {
        self.alive(generation).map(|process| process.capabilities.clone())
    }

    /// Any process that takes turns.
    pub(super) fn any(&self) -> Option<Arc<Process>> {
        let state = self.state();
        state.slots.iter().find_map(Slot::process)
    }

    /// Why the last start failed, when none has succeeded since.
    pub(super) fn last_failure(&self) -> Option<String> {
        self.state().last_failure.clone()
    }

    /// Gives a process no new turn, and ends it after its last one.
    pub(super) fn retire(&self, generation: Generation) {
        let mut state = self.state();
        state.retire(generation);
        state.sweep();
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
            process.obituary().await;
        });
        join_all(ended).await;
    }

    fn claim(self: &Arc<Self>, wanted: Option<Generation>) -> Result<(Claim, Start, Duration), StartError> {
        let now = Instant::now();
        let mut state = self.state();
        if state.closed {
            return Err(StartError::Closed);
        }
        state.sweep();
        let place = state.place(wanted, self.launch.processes, self.launch.turns);
        let at = if let Some(at) = place {
            at
        } else {
            let wait = state.backoff.wait(now);
            if wait > self.launch.start_timeout {
                let why = state.last_failure.clone().unwrap_or_default();
                return Err(StartError::Resting { wait, why });
            }
            state.started += 1;
            let generation = Generation(state.started);
            state.slots.push(Slot {
                generation,
                start: Start::default(),
                turns: 0,
            });
            state.slots.len() - 1
        };
        let rest = match state.slots[at].start.get() {
            Some(_) => Duration::ZERO,
            None => state.backoff.wait(now),
        };
        let slot = &mut state.slots[at];
        slot.turns += 1;
        let claim = Claim {
            pool: Arc::clone(self),
            generation: slot.generation,
        };
        Ok((claim, Arc::clone(&slot.start), rest))
    }

    /// Counted once, by whoever gets here first.
    fn start_failed(&self, generation: Generation, error: &StartError) {
        let mut state = self.state();
        if let Some(at) = state.slots.iter().position(|slot| slot.generation == generation) {
            state.slots.swap_remove(at);
            // One that is not there is looked for again each time: that costs little.
            if !matches!(error, StartError::Spawn(_)) {
                state.backoff.failed(Instant::now(), Duration::ZERO);
                state.last_failure = Some(error.to_string());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn retire(&mut self, generation: Generation) {
        if let Some(at) = self.slots.iter().position(|slot| slot.generation == generation) {
            let slot = self.slots.swap_remove(at);
            self.retired.push(slot);
        }
    }

    /// Takes out what has ended, and ends what is retired and idle.
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
            *last_failure = ended.map(|ended| ended.to_string());
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

    /// Where a turn goes; `None` for a process that is yet to be started.
    fn place(&self, wanted: Option<Generation>, processes: usize, turns: Option<usize>) -> Option<usize> {
        if let Some(at) =
            wanted.and_then(|wanted| self.slots.iter().position(|slot| slot.generation == wanted))
        {
            return Some(at);
        }
        let (at, idlest) = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.turns)?;
        let has_room = turns.is_none_or(|turns| idlest.turns < turns);
        (has_room || self.slots.len() >= processes).then_some(at)
    }
}

impl Slot {
    fn process(&self) -> Option<Arc<Process>> {
        self.start.get()?.as_ref().ok().cloned()
    }
}

impl Seat {
    /// Kills the process, unless another turn uses it; whether it is certain to be gone.
    pub(super) async fn kill_alone(&self) -> bool {
        let alone = {
            // In one go, so that nobody comes in between.
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
            self.process.obituary().await;
        }
        alone
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let State { slots, retired, .. } = &mut *state;
        let slot = slots
            .iter_mut()
            .chain(retired)
            .find(|slot| slot.generation == self.generation);
        if let Some(slot) = slot {
            slot.turns -= 1;
        }
        state.sweep();
    }
}

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);

/// At most.
const LONGEST: Duration = Duration::from_secs(60);

/// A process that lived so long was sound: its end counts as a first failure.
const SOUND: Duration = Duration::from_secs(60);

/// Failures in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    not_before: Option<Instant>,
}

impl Backoff {
    /// A process failed at that moment, after it had lived so long.
    pub(super) fn failed(&mut self, at: Instant, lived: Duration) {
        if lived >= SOUND {
            self.failures = 0;
        }
        let rest = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.not_before = at.checked_add(rest);
    }

    /// How long to wait now.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.not_before
            .map_or(Duration::ZERO, |then| then.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(generation: u64, turns: usize) -> Slot {
        Slot {
            generation: Generation(generation),
            start: Start::default(),
            turns,
        }
    }

    #[test]
    fn a_turn_goes_where_its_session_is_else_where_there_is_room() {
        let mut state = State::default();
        assert_eq!(state.place(None, 2, Some(2)), None);
        state.slots = vec![slot(1, 1)];
        assert_eq!(state.place(None, 2, Some(2)), Some(0));
        state.slots = vec![slot(1, 2)];
        assert_eq!(state.place(None, 2, Some(2)), None, "a second process");
        assert_eq!(
            state.place(Some(Generation(1)), 2, Some(2)),
            Some(0),
            "its own, even when full"
        );
        assert_eq!(state.place(Some(Generation(9)), 2, Some(2)), None);
        state.slots = vec![slot(1, 3), slot(2, 2)];
        assert_eq!(
            state.place(None, 2, Some(2)),
            Some(1),
            "waits where the line is shortest"
        );
        assert_eq!(
            state.place(None, 9, None),
            Some(1),
            "without a limit one process is enough"
        );
    }

    #[test]
    fn rests_grow_to_a_bound_and_a_sound_life_starts_over() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.wait(now), Duration::ZERO);
        let rests: Vec<u64> = (0..100)
            .map(|_| {
                backoff.failed(now, Duration::ZERO);
                backoff.wait(now).as_secs()
            })
            .collect();
        assert_eq!(rests[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(rests[99], 60);
        assert_eq!(backoff.wait(now + LONGEST), Duration::ZERO);
        backoff.failed(now, SOUND);
        assert_eq!(backoff.wait(now), FIRST);
    }
}
