//! The process groups of this program that have not ended, so that all of them can be ended before it is replaced.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The groups of every child.
pub(super) static LIVE_GROUPS: LiveGroups = LiveGroups::new();

/// Process groups by their leaders.
#[derive(Debug)]
pub(super) struct LiveGroups(Mutex<GroupLeaders>);

#[derive(Debug)]
struct GroupLeaders {
    /// Not reaped, as far as it is known: one whose child was dropped is reaped in the background.
    leaders: Vec<Pid>,
    is_closed: bool,
}

impl LiveGroups {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(GroupLeaders {
            leaders: Vec::new(),
            is_closed: false,
        }))
    }

    /// Starts a process and notes its group. What ends all groups waits for it, so that none is missed.
    pub(super) fn start<C>(
        &self,
        spawn: impl FnOnce() -> io::Result<C>,
        leader: impl FnOnce(&C) -> Option<Pid>,
    ) -> io::Result<(C, Pid)> {
        let mut state = self.state();
        if state.is_closed {
            return Err(io::Error::other("this program is about to be replaced"));
        }
        state.leaders.retain(|leader| is_unreaped(*leader));
        let child = spawn()?;
        let group = leader(&child).ok_or_else(|| io::Error::other("it has no number"))?;
        state.leaders.push(group);
        Ok((child, group))
    }

    /// The leader of a group was reaped: its number is not its own any more.
    pub(super) fn reaped(&self, group: Pid) {
        self.state().leaders.retain(|leader| *leader != group);
    }

    /// Whether a group has not ended.
    #[cfg(test)]
    pub(super) fn contains(&self, group: Pid) -> bool {
        self.state().leaders.contains(&group)
    }

    /// Signals a group whose leader is not reaped.
    pub(super) fn signal(&self, group: Pid, signal: Signal) {
        if self.state().leaders.contains(&group) {
            // Fails when the group is empty: there is nothing to stop.
            let _ = kill_process_group(group, signal);
        }
    }

    fn state(&self) -> MutexGuard<'_, GroupLeaders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a process is a child that nobody has reaped.
fn is_unreaped(pid: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), look).is_ok()
}

/// Ends all groups.
#[cfg(any(test, feature = "nats"))]
pub(super) mod ending {
    use std::sync::TryLockError;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

    #[cfg(feature = "nats")]
    use super::LIVE_GROUPS;
    use super::{LiveGroups, is_unreaped};

    /// Interval of looks at what does not end at once.
    const INTERVAL: Duration = Duration::from_millis(5);

    /// Kills every process group that was started here, and reaps the leaders; from now on nothing is started. For a program
    /// that replaces itself: nothing is dropped then. Returns how many have not gone in time.
    #[cfg(feature = "nats")]
    pub fn end_groups(within: Duration) -> usize {
        LIVE_GROUPS.end(within)
    }

    impl LiveGroups {
        /// Kills and reaps all groups, and starts none any more; returns how many are left.
        #[expect(clippy::disallowed_methods, reason = "other processes; the time is bounded")]
        pub fn end(&self, within: Duration) -> usize {
            let deadline = Instant::now() + within;
            let mut leaders = loop {
                let mut state = match self.0.try_lock() {
                    Ok(state) => state,
                    Err(TryLockError::Poisoned(state)) => state.into_inner(),
                    // One is being started.
                    Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                        std::thread::sleep(INTERVAL);
                        continue;
                    }
                    Err(TryLockError::WouldBlock) => return 1,
                };
                state.is_closed = true;
                break std::mem::take(&mut state.leaders);
            };
            leaders.retain(|leader| is_unreaped(*leader));
            for leader in &leaders {
                let _ = kill_process_group(*leader, Signal::KILL);
            }
            loop {
                leaders.retain(|leader| !reap(*leader));
                if leaders.is_empty() || Instant::now() >= deadline {
                    return leaders.len();
                }
                std::thread::sleep(INTERVAL);
            }
        }
    }

    /// Reaps a child that has ended; returns whether it is gone, whoever reaped it.
    fn reap(pid: Pid) -> bool {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(status) => status.is_some(),
            Err(_) => true,
        }
    }
}
