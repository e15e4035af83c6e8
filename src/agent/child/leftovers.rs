//! Process groups that outlive the relay.
//!
//! A relay that is killed cannot end the processes of its agents. They would go on, beside those that the next run starts. So
//! every group has a place in a small file in the state directory for as long as it lives, and the next run ends what is left of
//! those groups before it does anything else. What is left is decided by [`NotedGroup::left_in`], from what the system says.
//!
//! Like the file of start marks, this one is not synced: what was written survives the end of the process, and after a loss of
//! power there is nothing to end. Only Linux says when a process started; elsewhere nothing is noted and nothing ended. A
//! process that makes a session of its own leaves its group, and is not found here either; nor is one that was started right
//! before the kill: it is noted as soon as it has a number, and not before.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process};

use super::groups::{LIVE_GROUPS, LiveGroups};
use super::stat::ProcessStat;
use crate::text::{one_line, truncate_bytes};

/// The file in the state directory.
const FILE: &str = "process-groups";
/// Bytes of a line, filled up with spaces. The first line says who writes and where its numbers are valid, each other one has a
/// group or is blank.
const PLACE: usize = 128;
/// Lines that are read and written; a group beyond them is not noted.
const MAX_PLACES: usize = 65_536;
/// Bytes of the file that are read.
const MAX_BYTES: u64 = ((MAX_PLACES + 1) * PLACE) as u64;
/// How long what was killed may take to go.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Interval of looks at it.
const INTERVAL: Duration = Duration::from_millis(5);

/// A process group as it was when it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotedGroup {
    /// The leader's number, which is the group's.
    leader: i32,
    /// When the leader started.
    start: u64,
    session: i32,
    /// Whose process it is, for the log.
    agent: Option<String>,
}

impl NotedGroup {
    /// The group of a leader that nobody has reaped; none where the system does not say.
    pub(super) fn of(leader: Pid, agent: Option<&str>) -> Option<Self> {
        let stat = ProcessStat::of(leader.as_raw_nonzero().get())?;
        Some(Self {
            leader: stat.pid,
            start: stat.start,
            session: stat.session,
            agent: agent.map(str::to_owned),
        })
    }

    /// The processes that are left of it, among all that there are.
    ///
    /// The system gives a number to nobody else as long as a process or a group has it. So whoever has the leader's number is
    /// the leader, or the group is gone. Without a leader, a later group may have had the number: processes of
    /// another session, or that started before this group, are not of it.
    fn left_in(&self, processes: &[ProcessStat], own_group: i32) -> Vec<i32> {
        let has_other_leader =
            (processes.iter()).any(|process| process.pid == self.leader && process.start != self.start);
        if self.leader <= 1 || self.leader == own_group || has_other_leader {
            return Vec::new();
        }
        let is_left = |process: &&ProcessStat| {
            let is_member = process.group == self.leader && process.session == self.session;
            is_member && process.start >= self.start && process.pid > 1 && !process.has_ended
        };
        processes
            .iter()
            .filter(is_left)
            .map(|process| process.pid)
            .collect()
    }

    fn line(&self) -> String {
        let Self {
            leader,
            start,
            session,
            agent,
        } = self;
        let agent = one_line(agent.as_deref().unwrap_or_default(), PLACE);
        format!("{leader} {start} {session} {agent}")
    }

    fn read(line: &str) -> Option<Self> {
        let mut fields = line.splitn(4, ' ');
        Some(Self {
            leader: fields.next()?.parse().ok().filter(|leader| *leader > 1)?,
            start: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            agent: fields.next().map(str::to_owned),
        })
    }
}

/// A line of the file. It never crosses a page, so that a kill leaves it as it was or as it is to be.
fn place(text: &str) -> [u8; PLACE] {
    let mut place = [b' '; PLACE];
    let text = truncate_bytes(text, PLACE - 1).as_bytes();
    place[..text.len()].copy_from_slice(text);
    place[PLACE - 1] = b'\n';
    place
}

/// The process that notes its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noter {
    pid: i32,
    start: u64,
}

impl Noter {
    fn this_process() -> io::Result<Self> {
        let own = ProcessStat::of(getpid().as_raw_nonzero().get());
        let own = own.ok_or_else(|| io::Error::other("the system does not say when a process started"))?;
        Ok(Self {
            pid: own.pid,
            start: own.start,
        })
    }

    fn line(self, here: &str) -> String {
        format!("{here} {} {}", self.pid, self.start)
    }

    /// The writer of a first line, if its numbers are valid here.
    fn read(line: &str, here: &str) -> Option<Self> {
        let (pid, start) = line.strip_prefix(here)?.strip_prefix(' ')?.split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            start: start.parse().ok()?,
        })
    }

    /// Whether it runs beside this process.
    fn is_another(self, processes: &[ProcessStat], own: Self) -> bool {
        let is_it = |process: &ProcessStat| process.pid == self.pid && process.start == self.start;
        self != own && (processes.iter()).any(|process| is_it(process) && !process.has_ended)
    }
}

/// The writer and the groups of a file, if its numbers are valid here. Lines that cannot be read are left out.
fn read_notes(bytes: &[u8], here: &str) -> Option<(Noter, Vec<NotedGroup>)> {
    let (places, _) = bytes.as_chunks::<PLACE>();
    let mut lines = places
        .iter()
        .map(|place| str::from_utf8(place).unwrap_or_default().trim_end());
    let noter = Noter::read(lines.next()?, here)?;
    Some((noter, lines.filter_map(NotedGroup::read).collect()))
}

/// Where numbers of processes are valid: this boot and this namespace, as a container has its own.
fn here() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    Ok(format!("{} {}", boot.trim(), namespace.display()))
}

/// The file with the groups of this process.
#[derive(Debug)]
pub(super) struct GroupFile {
    path: PathBuf,
    first_line: String,
    /// None before the first group.
    file: Option<File>,
    has_failed: bool,
}

impl GroupFile {
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    /// Notes the group of a place, or that the place is free.
    pub(super) fn set(&mut self, number: usize, group: Option<&NotedGroup>) {
        match self.try_set(number, group) {
            Ok(()) => self.has_failed = false,
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => {
                tracing::warn!(%error, "cannot note the processes of agents: if the relay is killed, they may go on");
            }
            Err(_) => {}
        }
    }

    fn try_set(&mut self, number: usize, group: Option<&NotedGroup>) -> io::Result<()> {
        if number >= MAX_PLACES || (self.file.is_none() && group.is_none()) {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).truncate(true).mode(0o600);
                let file = file.open(&self.path)?;
                let mut start = place(&self.first_line).to_vec();
                start.extend(place("").repeat(number));
                file.write_all_at(&start, 0)?;
                none.insert(file)
            }
        };
        let line = group.map(NotedGroup::line).unwrap_or_default();
        let offset = (number as u64 + 1) * PLACE as u64;
        file.write_all_at(&place(&line), offset)
    }

    pub(super) fn remove(&self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Notes the groups of this process in a state directory for as long as it exists. Drop it before the lock is released.
#[derive(Debug)]
pub struct GroupNotes {
    groups: &'static LiveGroups,
    path: PathBuf,
}

impl GroupNotes {
    /// Begins to note them. The caller holds the lock of the state directory.
    pub fn keep_in(state_dir: &Path) -> Self {
        Self::of(&LIVE_GROUPS, state_dir)
    }

    pub(super) fn of(groups: &'static LiveGroups, state_dir: &Path) -> Self {
        let path = state_dir.join(FILE);
        let first_line = here().and_then(|here| Ok(Noter::this_process()?.line(&here)));
        match first_line {
            Ok(first_line) => groups.note_in(GroupFile {
                path: path.clone(),
                first_line,
                file: None,
                has_failed: false,
            }),
            Err(error) => tracing::debug!(%error, "cannot note the processes of agents"),
        }
        Self { groups, path }
    }
}

impl Drop for GroupNotes {
    fn drop(&mut self) {
        self.groups.stop_noting(&self.path);
    }
}

/// Whether an earlier run has left notes.
#[cfg(feature = "nats")]
pub fn has_notes(state_dir: &Path) -> bool {
    state_dir.join(FILE).exists()
}

/// Kills what an earlier run left of the groups that it noted, and waits until it is gone. The caller holds the lock of the
/// state directory: whoever noted them does not run any more.
pub fn end_leftovers(state_dir: &Path) {
    end_leftovers_beside(&LIVE_GROUPS, state_dir);
}

/// The same; what is among these groups is not left over.
pub(super) fn end_leftovers_beside(live: &LiveGroups, state_dir: &Path) {
    let path = state_dir.join(FILE);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(%error, "cannot read which processes an earlier run may have left");
            return;
        }
    }
    let notes = here().ok().and_then(|here| read_notes(&bytes, &here));
    if let (Some((noter, mut groups)), Ok(own)) = (notes, Noter::this_process()) {
        groups.retain(|group| Pid::from_raw(group.leader).is_some_and(|leader| !live.contains(leader)));
        end(noter, &groups, own);
    }
    let _ = fs::remove_file(&path);
}

#[expect(clippy::disallowed_methods, reason = "other processes; the time is bounded")]
fn end(noter: Noter, groups: &[NotedGroup], own: Noter) {
    let own_group = getpgrp().as_raw_nonzero().get();
    let mut killed = vec![BTreeSet::new(); groups.len()];
    let mut refused = BTreeSet::new();
    let deadline = Instant::now() + END_WITHIN;
    while !groups.is_empty() {
        let processes: Vec<_> = ProcessStat::all().collect();
        // The system releases the lock of a process that was killed a moment before the process is gone.
        if noter.is_another(&processes, own) {
            if Instant::now() >= deadline {
                let relay = noter.pid;
                tracing::warn!(
                    relay,
                    "these agent processes belong to another relay that runs: they are left alone"
                );
                return;
            }
            std::thread::sleep(INTERVAL);
            continue;
        }
        let mut left = 0;
        for (group, killed) in groups.iter().zip(&mut killed) {
            for process in group.left_in(&processes, own_group) {
                if refused.contains(&process) {
                    continue;
                }
                let ended =
                    Pid::from_raw(process).map_or(Err(Errno::SRCH), |pid| kill_process(pid, Signal::KILL));
                match ended {
                    Ok(()) => {
                        left += 1;
                        killed.insert(process);
                    }
                    Err(Errno::SRCH) => {}
                    Err(error) => {
                        let agent = group.agent.as_deref();
                        tracing::warn!(agent, process, %error, "cannot kill a process that an earlier run left");
                        refused.insert(process);
                    }
                }
            }
        }
        if left == 0 {
            break;
        }
        if Instant::now() >= deadline {
            tracing::warn!(
                left,
                "processes that an earlier run left were killed and have not gone in time"
            );
            break;
        }
        std::thread::sleep(INTERVAL);
    }
    for (group, killed) in groups
        .iter()
        .zip(&killed)
        .filter(|(_, killed)| !killed.is_empty())
    {
        tracing::warn!(
            agent = group.agent.as_deref(),
            process = group.leader,
            count = killed.len(),
            "killed processes that an earlier run left"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_GROUP: i32 = 50;

    fn noted() -> NotedGroup {
        NotedGroup {
            leader: 700,
            start: 1000,
            session: 30,
            agent: Some("coder".to_owned()),
        }
    }

    fn process(pid: i32, group: i32, start: u64) -> ProcessStat {
        ProcessStat {
            pid,
            has_ended: false,
            group,
            session: 30,
            start,
            pages: 1,
        }
    }

    fn left(processes: &[ProcessStat]) -> Vec<i32> {
        noted().left_in(processes, OWN_GROUP)
    }

    #[test]
    fn the_leader_and_its_group_are_left_and_nobody_else() {
        let others = [process(1, 1, 0), process(50, 50, 900), process(710, 50, 1010)];
        assert_eq!(left(&others), [0; 0]);
        let mut all = others.to_vec();
        all.extend([
            process(700, 700, 1000),
            process(701, 700, 1000),
            process(702, 700, 5000),
        ]);
        assert_eq!(left(&all), [700, 701, 702]);
    }

    #[test]
    fn another_process_with_the_number_of_the_leader_is_another_group() {
        for start in [999, 1001] {
            let other = [process(700, 700, start), process(701, 700, 1001)];
            assert_eq!(left(&other), [0; 0], "{start}");
            // It may also be in a group of another.
            assert_eq!(left(&[process(700, 20, start)]), [0; 0], "{start}");
        }
    }

    #[test]
    fn without_a_leader_its_group_is_of_the_same_session_and_not_older() {
        assert_eq!(
            left(&[process(701, 700, 1000), process(702, 700, 2000)]),
            [701, 702]
        );
        assert_eq!(left(&[process(701, 700, 999)]), [0; 0]);
        let mut elsewhere = process(701, 700, 2000);
        elsewhere.session = 31;
        assert_eq!(left(&[elsewhere]), [0; 0]);
    }

    #[test]
    fn what_has_ended_is_not_left_but_its_children_are() {
        let mut leader = process(700, 700, 1000);
        leader.has_ended = true;
        assert_eq!(left(std::slice::from_ref(&leader)), [0; 0]);
        assert_eq!(left(&[leader, process(701, 700, 1001)]), [701]);
    }

    #[test]
    fn process_1_and_our_own_group_are_never_left() {
        let everybody: Vec<_> = (0..4).map(|pid| process(pid, 1, 2000)).collect();
        let mut first = noted();
        for leader in [-700, 0, 1] {
            first.leader = leader;
            assert_eq!(first.left_in(&everybody, OWN_GROUP), [0; 0]);
        }
        assert_eq!(left(&[process(1, 700, 1000), process(701, 700, 1000)]), [701]);
        let own = [process(700, 700, 1000), process(701, 700, 1001)];
        assert_eq!(noted().left_in(&own, 700), [0; 0]);
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_only_where_its_numbers_are_valid() {
        let nameless = NotedGroup {
            leader: 9,
            agent: None,
            ..noted()
        };
        let spaced = NotedGroup {
            leader: i32::MAX,
            start: u64::MAX,
            session: i32::MAX,
            agent: Some(format!("a b\n{}", "ü".repeat(200))),
        };
        let noter = Noter { pid: 5, start: 77 };
        let mut bytes = place(&noter.line("boot pid:[1]")).to_vec();
        for line in [noted().line(), String::new(), nameless.line(), spaced.line()] {
            bytes.extend(place(&line));
        }
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        assert!(lines.all(|line| line.len() == PLACE));
        let (read_noter, read) = read_notes(&bytes, "boot pid:[1]").unwrap();
        assert_eq!(read_noter, noter);
        assert_eq!(read[..2], [noted(), nameless]);
        assert_eq!(
            (read.len(), read[2].leader, read[2].start),
            (3, i32::MAX, u64::MAX)
        );
        assert!(read[2].agent.as_ref().unwrap().starts_with("a b üü"), "{read:?}");
        for elsewhere in ["boot pid:[2]", "other pid:[1]", "boot", ""] {
            assert_eq!(read_notes(&bytes, elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn damaged_lines_are_left_out() {
        let noter = Noter { pid: 5, start: 77 };
        let mut bytes = place(&noter.line("here")).to_vec();
        for line in [
            "x 1000 30 a",
            "-700 1000 30",
            "0 1000 30",
            "1 1000 30",
            "700 1000",
            "700 -1 30",
            "99999999999 1 1",
            "\u{0}\u{0}",
        ] {
            bytes.extend(place(line));
        }
        bytes.extend([0xff; PLACE]);
        bytes.extend(place(&noted().line()));
        bytes.extend(&place("800 1000 30 torn")[..40]);
        assert_eq!(read_notes(&bytes, "here"), Some((noter, vec![noted()])));
        for torn in [&b""[..], &[0; 300], &bytes[..PLACE - 1], &bytes[1..]] {
            assert_eq!(read_notes(torn, "here"), None);
        }
    }

    #[test]
    fn a_relay_that_runs_keeps_its_groups_unless_it_is_this_one() {
        let (noter, own) = (Noter { pid: 60, start: 77 }, Noter { pid: 61, start: 99 });
        let mut running = process(60, 60, 77);
        assert!(noter.is_another(std::slice::from_ref(&running), own));
        // The program has replaced itself: process and start are the same.
        assert!(!noter.is_another(std::slice::from_ref(&running), noter));
        assert!(!noter.is_another(&[process(60, 60, 78), process(62, 60, 77)], own));
        running.has_ended = true;
        assert!(!noter.is_another(&[running], own));
    }
}
