//! The process groups of this program that have not ended, so that all of them can be ended before it is replaced.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::leftovers::{GroupFile, NotedGroup};

/// The groups of every child.
pub(super) static LIVE_GROUPS: LiveGroups = LiveGroups::new();

/// Process groups by their leaders.
#[derive(Debug)]
pub(super) struct LiveGroups(Mutex<GroupLeaders>);

#[derive(Debug)]
struct GroupLeaders {
    /// Each in a place of its own, which is free for another when it was reaped. One whose child was dropped is reaped in the
    /// background, and found out later.
    places: Vec<Option<GroupLeader>>,
    /// Where they are noted, in the same places.
    files: Vec<GroupFile>,
    is_closed: bool,
}

#[derive(Debug)]
struct GroupLeader {
    pid: Pid,
    /// Whose process it is.
    agent: Option<String>,
}

impl LiveGroups {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(GroupLeaders {
            places: Vec::new(),
            files: Vec::new(),
            is_closed: false,
        }))
    }

    /// Starts a process of an agent and notes its group. What ends all groups waits for it, so that none is missed.
    pub(super) fn start<C>(
        &self,
        agent: Option<&str>,
        spawn: impl FnOnce() -> io::Result<C>,
        leader: impl FnOnce(&C) -> Option<Pid>,
    ) -> io::Result<(C, Pid)> {
        let mut state = self.state();
        if state.is_closed {
            return Err(io::Error::other("this program is about to be replaced"));
        }
        state.free(|leader| !is_unreaped(leader));
        let child = spawn()?;
        let group = leader(&child).ok_or_else(|| io::Error::other("it has no number"))?;
        state.add(GroupLeader {
            pid: group,
            agent: agent.map(str::to_owned),
        });
        Ok((child, group))
    }

    /// The leader of a group was reaped: its number is not its own any more.
    pub(super) fn reaped(&self, group: Pid) {
        self.state().free(|leader| leader == group);
    }

    /// Whether a group has not ended.
    pub(super) fn contains(&self, group: Pid) -> bool {
        self.state().leaders().any(|leader| leader == group)
    }

    /// Signals a group whose leader is not reaped.
    pub(super) fn signal(&self, group: Pid, signal: Signal) {
        let state = self.state();
        if state.leaders().any(|leader| leader == group) {
            // Fails when the group is empty: there is nothing to stop.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Notes all groups in this file, too.
    pub(super) fn note_in(&self, mut file: GroupFile) {
        let mut state = self.state();
        for (number, leader) in state.places.iter().enumerate() {
            let leader = leader.as_ref();
            file.set(number, leader.and_then(GroupLeader::noted).as_ref());
        }
        state.files.push(file);
    }

    /// Notes no groups in this file any more. What has not ended stays noted in it, unless another file has it: then
    /// another relay of this process may still use it.
    pub(super) fn stop_noting(&self, path: &Path) {
        let mut state = self.state();
        state.free(|leader| !is_unreaped(leader));
        let Some(at) = state.files.iter().position(|file| file.is_at(path)) else {
            return;
        };
        let file = state.files.swap_remove(at);
        if !state.files.is_empty() || state.leaders().next().is_none() {
            file.remove();
        }
    }

    fn state(&self) -> MutexGuard<'_, GroupLeaders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupLeaders {
    fn leaders(&self) -> impl Iterator<Item = Pid> {
        self.places.iter().flatten().map(|leader| leader.pid)
    }

    fn add(&mut self, leader: GroupLeader) {
        let free = self.places.iter().position(Option::is_none);
        let number = free.unwrap_or(self.places.len());
        // What is noted nowhere need not be looked up.
        if !self.files.is_empty() {
            let noted = leader.noted();
            self.files
                .iter_mut()
                .for_each(|file| file.set(number, noted.as_ref()));
        }
        match self.places.get_mut(number) {
            Some(place) => *place = Some(leader),
            None => self.places.push(Some(leader)),
        }
    }

    /// Frees the places of leaders that are gone.
    fn free(&mut self, is_gone: impl Fn(Pid) -> bool) {
        for (number, place) in self.places.iter_mut().enumerate() {
            if place.take_if(|leader| is_gone(leader.pid)).is_some() {
                self.files.iter_mut().for_each(|file| file.set(number, None));
            }
        }
    }
}

impl GroupLeader {
    fn noted(&self) -> Option<NotedGroup> {
        NotedGroup::of(self.pid, self.agent.as_deref())
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
                // The files stay as they are: whatever does not end here is ended by the next start.
                break state
                    .places
                    .drain(..)
                    .flatten()
                    .map(|leader| leader.pid)
                    .collect::<Vec<_>>();
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
