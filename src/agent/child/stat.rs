//! What the system says of a process in `/proc/PID/stat`.

use std::fs;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) pid: i32,
    /// It has ended, and waits to be reaped.
    pub(super) has_ended: bool,
    pub(super) group: i32,
    pub(super) session: i32,
    /// When it started, in ticks since the boot.
    pub(super) start: u64,
    /// Its resident memory.
    pub(super) pages: u64,
}

impl ProcessStat {
    /// Reads the text of one process. Its name, which may contain anything, ends at the last bracket.
    pub(super) fn read(stat: &str) -> Option<Self> {
        let (pid, rest) = stat.split_once(' ')?;
        let (_, rest) = rest.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        Some(Self {
            pid: pid.parse().ok()?,
            has_ended,
            group: fields.nth(1)?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            start: fields.nth(15)?.parse().ok()?,
            pages: fields.nth(1)?.parse().ok()?,
        })
    }

    /// The process with this number; none where the system does not say.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::read(&String::from_utf8_lossy(&stat))
    }

    /// Every process that we may see; none where the system does not say.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::of(entry.file_name().to_str()?.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a) b (c) S 1 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1000000 321 184";
        let expected = ProcessStat {
            pid: 42,
            has_ended: false,
            group: 40,
            session: 39,
            start: 99,
            pages: 321,
        };
        assert_eq!(ProcessStat::read(stat), Some(expected.clone()));
        let ended = stat.replace(") S 1", ") Z 1");
        let expected = ProcessStat {
            has_ended: true,
            ..expected
        };
        assert_eq!(ProcessStat::read(&ended), Some(expected));
        for broken in ["", "42 (a", "42 (a) S 1", "42 (a) S 1 x 40", "x (a) S 1 40 39"] {
            assert_eq!(ProcessStat::read(broken), None, "{broken}");
        }
    }

    #[test]
    fn this_process_is_among_all_of_them() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let read = ProcessStat::of(own).unwrap();
        assert_eq!(read.group, rustix::process::getpgrp().as_raw_nonzero().get());
        assert!(ProcessStat::all().any(|process| process.pid == own && process.start == read.start));
    }
}
