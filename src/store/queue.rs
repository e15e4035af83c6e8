//! The bounded queue between the handles and the writer thread.
//!
//! Capacity is counted in units, one per command plus one per KiB of payload, and released only when the command has
//! completed, so commands kept for a retry count too. It never drops a command.

use super::command::Command;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, TryAcquireError};

/// How long a lazy command may wait for a commit to join.
const LAZY: Duration = Duration::from_millis(50);
/// Maximum commands of one transaction.
const TAKE_COMMANDS: usize = 1024;
/// Maximum payload bytes of one transaction.
const TAKE_BYTES: usize = 4 << 20;

/// Commands for the writer.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<QueueState>,
    notified: Condvar,
    room: Semaphore,
    units: u32,
    /// Wakes the simulation of a writer.
    #[cfg(feature = "internals")]
    simulated: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    commands: VecDeque<Command>,
    urgent: usize,
    oldest_lazy: Option<Instant>,
    closed: bool,
    /// When the writer's timer fires; none while it works, because it looks at the queue before it sleeps.
    looks_at: Option<Instant>,
    /// Something was taken since the writer last slept.
    is_busy: bool,
}

/// Why the writer woke.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Commands were taken.
    Taken,
    /// The deadline passed.
    Time,
    /// The queue is closed and empty.
    Closed,
}

/// Why nothing was queued.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueueRefusal {
    /// No room now.
    Full,
    /// The journal is closed.
    Closed,
}

impl Queue {
    pub(super) fn new(units: u32) -> Self {
        let units = units.max(1);
        Self {
            waiting: Mutex::default(),
            notified: Condvar::new(),
            room: Semaphore::new(units as usize),
            units,
            #[cfg(feature = "internals")]
            simulated: tokio::sync::Notify::new(),
        }
    }

    /// Waits for room and queues the commands in order. If dropped while waiting, the rest is not queued.
    pub(super) async fn push(&self, mut commands: Vec<Command>) -> Result<(), QueueRefusal> {
        while !commands.is_empty() {
            let (count, units) = self.share(&commands);
            let room = self
                .room
                .acquire_many(units)
                .await
                .map_err(|_| QueueRefusal::Closed)?;
            let rest = if count == commands.len() {
                Vec::new()
            } else {
                commands.split_off(count)
            };
            self.enqueue(&mut commands)?;
            room.forget();
            commands = rest;
        }
        Ok(())
    }

    /// Takes all commands out of the list, or none if there is no room. More than the capacity never fits.
    pub(super) fn try_push(&self, commands: &mut Vec<Command>) -> Result<(), QueueRefusal> {
        let units = commands
            .iter()
            .map(|command| self.units_of(command))
            .fold(0, u32::saturating_add);
        match self.room.try_acquire_many(units) {
            Ok(room) => {
                self.enqueue(commands)?;
                room.forget();
                Ok(())
            }
            Err(TryAcquireError::NoPermits) => Err(QueueRefusal::Full),
            Err(TryAcquireError::Closed) => Err(QueueRefusal::Closed),
        }
    }

    /// Accepts no more commands; queued ones still run.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.notified.notify_all();
        #[cfg(feature = "internals")]
        self.simulated.notify_one();
    }

    /// Waits until a writer has something to take.
    #[cfg(feature = "internals")]
    pub(super) async fn waiting(&self) {
        let has_work = || {
            let waiting = self.lock();
            waiting.closed || !waiting.commands.is_empty()
        };
        while !has_work() {
            self.simulated.notified().await;
        }
    }

    /// Moves one transaction's commands into `into`, lazy ones too, without waiting.
    #[cfg(feature = "internals")]
    pub(super) fn take_now(&self, into: &mut Vec<Command>) -> Woken {
        let mut waiting = self.lock();
        if !waiting.commands.is_empty() {
            waiting.drain_share(into);
            Woken::Taken
        } else if waiting.closed {
            Woken::Closed
        } else {
            Woken::Time
        }
    }

    /// Waits for commands or until `until`, then moves one transaction's commands into `into`.
    pub(super) fn take(&self, into: &mut Vec<Command>, until: Instant) -> Woken {
        let mut waiting = self.lock();
        loop {
            let now = Instant::now();
            if waiting.is_due(now) {
                if waiting.commands.is_empty() {
                    return Woken::Closed;
                }
                waiting.drain_share(into);
                return Woken::Taken;
            }
            if until <= now {
                return Woken::Time;
            }
            let wait = waiting.sleep(now, until) - now;
            waiting = self
                .notified
                .wait_timeout(waiting, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            waiting.looks_at = None;
        }
    }

    /// Releases the units of completed commands.
    pub(super) fn release(&self, units: usize) {
        self.room.add_permits(units);
    }

    /// The units of a command.
    pub(super) fn units_of(&self, command: &Command) -> u32 {
        u32::try_from(command.payload() >> 10)
            .unwrap_or(u32::MAX)
            .saturating_add(1)
            .min(self.units)
    }

    fn share(&self, commands: &[Command]) -> (usize, u32) {
        let mut units = 0;
        for (count, command) in commands.iter().enumerate() {
            let more = self.units_of(command);
            if units + more > self.units {
                return (count, units);
            }
            units += more;
        }
        (commands.len(), units)
    }

    fn enqueue(&self, commands: &mut Vec<Command>) -> Result<(), QueueRefusal> {
        let urgent = commands.iter().filter(|command| !command.is_lazy()).count();
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(QueueRefusal::Closed);
        }
        if urgent < commands.len() && waiting.oldest_lazy.is_none() {
            waiting.oldest_lazy = Some(Instant::now());
        }
        waiting.urgent += urgent;
        waiting.commands.extend(commands.drain(..));
        let wakes = waiting.wakes_writer();
        drop(waiting);
        if wakes {
            self.notified.notify_one();
        }
        #[cfg(feature = "internals")]
        self.simulated.notify_one();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// When the oldest lazy command no longer waits for company.
    fn lazy_due(&self) -> Option<Instant> {
        self.oldest_lazy.map(|since| since + LAZY)
    }

    /// Whether the writer has something to take, or nothing more to wait for.
    fn is_due(&self, now: Instant) -> bool {
        self.urgent > 0 || self.closed || self.lazy_due().is_some_and(|due| due <= now)
    }

    /// The writer sleeps until the time that is returned. After a commit it looks again once, no later than a lazy command that comes
    /// now would have to be taken: so none of those that usually follow has to wake it.
    fn sleep(&mut self, now: Instant, until: Instant) -> Instant {
        let soon = std::mem::take(&mut self.is_busy).then(|| now + LAZY);
        let at = [self.lazy_due(), soon]
            .into_iter()
            .flatten()
            .fold(until, Instant::min);
        self.looks_at = Some(at);
        at
    }

    /// Whether the writer has to be woken for what was queued: it sleeps, and not only as long as everything here may wait.
    fn wakes_writer(&mut self) -> bool {
        let Some(looks_at) = self.looks_at else {
            return false;
        };
        let wakes = self.urgent > 0 || self.lazy_due().is_some_and(|due| due < looks_at);
        if wakes {
            self.looks_at = None;
        }
        wakes
    }

    fn drain_share(&mut self, into: &mut Vec<Command>) {
        let mut bytes = 0;
        let mut lazy_left = self.commands.len() - self.urgent;
        while into.len() < TAKE_COMMANDS && bytes < TAKE_BYTES {
            let Some(command) = self.commands.pop_front() else {
                break;
            };
            bytes += command.payload();
            if command.is_lazy() {
                lazy_left -= 1;
            } else {
                self.urgent -= 1;
            }
            into.push(command);
        }
        if lazy_left == 0 {
            self.oldest_lazy = None;
        }
        self.is_busy = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{InboxSeq, OpSeq};

    fn urgent() -> Command {
        Command::Load { seq: InboxSeq(1) }
    }

    #[test]
    fn a_full_queue_gives_everything_back_and_takes_it_after_a_release() {
        let queue = Queue::new(2);
        queue.try_push(&mut vec![urgent(), urgent()]).unwrap();
        let mut back = vec![urgent()];
        let why = queue.try_push(&mut back).unwrap_err();
        assert_eq!((why, back.len()), (QueueRefusal::Full, 1));
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, Instant::now()), Woken::Taken);
        assert_eq!(taken.len(), 2);
        queue.release(2);
        queue.try_push(&mut back).unwrap();
        assert!(back.is_empty());
    }

    #[test]
    fn a_lazy_command_waits_for_company_but_not_for_ever() {
        let queue = Queue::new(8);
        queue
            .try_push(&mut vec![Command::OpSettled { op: OpSeq(1) }])
            .unwrap();
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, Instant::now()), Woken::Time);
        assert_eq!(
            queue.take(&mut taken, Instant::now() + Duration::from_secs(60)),
            Woken::Taken
        );
        queue
            .try_push(&mut vec![Command::OpSettled { op: OpSeq(2) }, urgent()])
            .unwrap();
        assert_eq!(queue.take(&mut taken, Instant::now()), Woken::Taken);
        assert_eq!(taken.len(), 3);
    }

    #[test]
    fn a_lazy_command_that_was_left_behind_keeps_its_time_and_one_that_was_taken_has_none() {
        let lazy = || Command::OpSettled { op: OpSeq(1) };
        let queue = Queue::new(4096);
        let mut many: Vec<Command> = (0..TAKE_COMMANDS).map(|_| urgent()).collect();
        many.push(lazy());
        queue.try_push(&mut many).unwrap();
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, Instant::now()), Woken::Taken);
        assert_eq!(taken.len(), TAKE_COMMANDS);
        assert!(queue.lock().oldest_lazy.is_some(), "one is left");
        taken.clear();
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(queue.take(&mut taken, later), Woken::Taken);
        assert!(queue.lock().oldest_lazy.is_none(), "none is left");
        // So the next one waits for company as long as any other.
        queue.try_push(&mut vec![lazy()]).unwrap();
        assert_eq!(queue.take(&mut taken, Instant::now()), Woken::Time);
    }

    #[test]
    fn a_writer_that_has_worked_is_woken_for_what_is_urgent_only() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut state = QueueState {
            is_busy: true,
            ..QueueState::default()
        };
        assert!(!state.wakes_writer(), "it works, and looks before it sleeps");
        assert_eq!(state.sleep(begun, after(20_000)), after(50));
        state.oldest_lazy = Some(after(1));
        assert!(!state.wakes_writer(), "it looks before that is due");
        // It looked, and found nothing that is due.
        assert!(!state.is_due(after(50)));
        assert_eq!(state.sleep(after(50), after(20_000)), after(51));
        assert!(!state.wakes_writer(), "it sleeps no longer than the lazy one may");
        assert!(state.is_due(after(51)));
        state.urgent = 1;
        assert!(state.wakes_writer());
        assert!(!state.wakes_writer(), "once is enough");
    }

    #[test]
    fn a_writer_that_sleeps_long_is_woken_for_a_lazy_command_too() {
        let begun = Instant::now();
        let long = begun + Duration::from_secs(20);
        let mut state = QueueState::default();
        assert_eq!(
            state.sleep(begun, long),
            long,
            "nothing was taken since it last slept"
        );
        assert!(!state.wakes_writer(), "there is nothing to do");
        state.oldest_lazy = Some(begun);
        assert!(state.wakes_writer());
    }

    #[test]
    fn a_share_is_bounded_and_a_closed_queue_is_worked_off() {
        let queue = Queue::new(4096);
        queue
            .try_push(&mut (0..1500).map(|_| urgent()).collect())
            .unwrap();
        queue.close();
        assert_eq!(
            queue.try_push(&mut vec![urgent()]).unwrap_err(),
            QueueRefusal::Closed
        );
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, Instant::now()), Woken::Taken);
        assert_eq!(taken.len(), TAKE_COMMANDS);
        taken.clear();
        assert_eq!(queue.take(&mut taken, Instant::now()), Woken::Taken);
        assert_eq!(taken.len(), 1500 - TAKE_COMMANDS);
        assert_eq!(queue.take(&mut taken, Instant::now()), Woken::Closed);
    }

    #[test]
    fn a_command_larger_than_the_queue_still_fits_alone() {
        let queue = Queue::new(4);
        let big = Command::SetResume {
            session: "s".into(),
            blob: vec![0; 1 << 20],
            now_ms: 0,
        };
        assert_eq!(queue.units_of(&big), 4);
        queue.try_push(&mut vec![big]).unwrap();
        assert!(queue.try_push(&mut vec![urgent()]).is_err());
    }
}
