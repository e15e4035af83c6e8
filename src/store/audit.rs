//! The audit log: one JSON line per entry in `audit.jsonl` of the state directory, owner-only, rotated and bounded.
//!
//! Entries go to a thread of its own, so that a slow disk delays nobody. When that is too far behind, or the disk is full, entries
//! are dropped, and the next line that is written says how many. A line of which only a part was written stays; the next one begins
//! on a line of its own.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

/// The current file.
const NAME: &str = "audit.jsonl";
/// Size at which a file is rotated.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Rotated files that are kept.
const MAX_FILES: usize = 16;
/// Entries that may wait for the disk.
const MAX_WAITING: usize = 4096;
/// Longest line that is read back.
const MAX_LINE_BYTES: usize = 64 << 10;
const DAY: Duration = Duration::from_secs(86_400);

/// Writes entries in the background.
#[derive(Debug)]
pub struct AuditLog {
    lines: Option<mpsc::Sender<String>>,
    thread: Option<JoinHandle<()>>,
    dropped: u64,
}

impl AuditLog {
    /// Starts the thread. The file is created with the first entry.
    pub fn start(dir: &Path, keep_days: u64) -> io::Result<Self> {
        // Takes memory for what waits only: that of the standard library would take it for all that may.
        let (lines, waiting) = mpsc::channel(MAX_WAITING);
        let file = AuditFile::new(dir, keep_days);
        let thread = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write_all(file, waiting))?;
        Ok(Self {
            lines: Some(lines),
            thread: Some(thread),
            dropped: 0,
        })
    }

    /// Queues one line, without its end.
    pub fn write(&mut self, line: String) {
        let Some(lines) = &self.lines else { return };
        let line = match self.dropped {
            0 => line,
            dropped => format!("{}\n{line}", dropped_line(dropped)),
        };
        if lines.try_send(line).is_ok() {
            self.dropped = 0;
            return;
        }
        self.dropped += 1;
        if self.dropped == 1 {
            tracing::error!("the audit log cannot be written fast enough; entries are dropped");
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_all(mut file: AuditFile, mut waiting: mpsc::Receiver<String>) {
    let mut failing = false;
    while let Some(mut lines) = waiting.blocking_recv() {
        lines.push('\n');
        while let Ok(line) = waiting.try_recv() {
            lines.push_str(&line);
            lines.push('\n');
        }
        let written = file.append(&lines);
        if let Err(error) = &written
            && !failing
        {
            tracing::error!(%error, "cannot write the audit log");
        }
        failing = written.is_err();
    }
}

/// What is around the number in the line about dropped entries.
const DROPPED: (&str, &str) = ("{\"event\":\"dropped\",\"entries\":", "}");

/// Says how many entries are missing before it.
fn dropped_line(entries: u64) -> String {
    format!("{}{entries}{}", DROPPED.0, DROPPED.1)
}

/// How many entries these lines are, with those that they say are missing.
fn entries(lines: &str) -> u64 {
    let missing = |line: &str| -> Option<u64> {
        let number = line.strip_prefix(DROPPED.0)?.strip_suffix(DROPPED.1)?;
        number.parse().ok()
    };
    lines.lines().map(|line| missing(line).unwrap_or(1)).sum()
}

/// The files of an audit log.
#[derive(Debug)]
pub struct AuditFile {
    dir: PathBuf,
    keep: Duration,
    open: Option<OpenFile>,
    /// Entries that could not be written since the last one that was.
    dropped: u64,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    size: u64,
    since: SystemTime,
}

impl AuditFile {
    /// The audit log of a state directory.
    pub fn new(dir: &Path, keep_days: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            keep: DAY * u32::try_from(keep_days).unwrap_or(u32::MAX).clamp(1, 36_500),
            open: None,
            dropped: 0,
        }
    }

    /// Appends complete lines. After an error, the next lines that are written follow one that says how many entries are missing.
    pub fn append(&mut self, lines: &str) -> io::Result<()> {
        let lines = match self.dropped {
            0 => Cow::Borrowed(lines),
            dropped => Cow::Owned(format!("{}\n{lines}", dropped_line(dropped))),
        };
        let (whole, result) = self.append_some(&lines);
        self.dropped = entries(&lines[whole..]);
        if result.is_err() {
            self.open = None;
        }
        result
    }

    /// Appends lines; returns how many bytes of them are whole lines in the file.
    fn append_some(&mut self, lines: &str) -> (usize, io::Result<()>) {
        let open = match self.open_file() {
            Ok(open) => open,
            Err(error) => return (0, Err(error)),
        };
        if let Err(error) = open.file.write_all(lines.as_bytes()) {
            let size = open.file.metadata().map_or(0, |found| found.len());
            let written = usize::try_from(size.saturating_sub(open.size)).unwrap_or(0);
            let written = &lines.as_bytes()[..written.min(lines.len())];
            let whole = written.iter().rposition(|byte| *byte == b'\n');
            return (whole.map_or(0, |end| end + 1), Err(error));
        }
        open.size += lines.len() as u64;
        (lines.len(), Ok(()))
    }

    /// The current file, at the beginning of a line.
    fn open_file(&mut self) -> io::Result<&mut OpenFile> {
        // A file that has been open for a day may be old enough to be rotated.
        let is_due = |open: &OpenFile| {
            open.size >= MAX_FILE_BYTES || open.since.elapsed().is_ok_and(|open| open > DAY)
        };
        let open = match self.open.take().filter(|open| !is_due(open)) {
            Some(open) => open,
            None => self.open_new()?,
        };
        Ok(self.open.insert(open))
    }

    fn open_new(&self) -> io::Result<OpenFile> {
        self.rotate();
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.dir.join(NAME))?;
        let mut size = file.metadata()?.len();
        let mut last = [b'\n'];
        if let Some(at) = size.checked_sub(1) {
            file.read_exact_at(&mut last, at)?;
        }
        if last != [b'\n'] {
            file.write_all(b"\n")?;
            size += 1;
        }
        Ok(OpenFile {
            file,
            size,
            since: SystemTime::now(),
        })
    }

    /// Moves the current file aside when it is large or old, and deletes what is too old or too much.
    fn rotate(&self) {
        let path = self.dir.join(NAME);
        let now = SystemTime::now();
        if let Ok(found) = fs::metadata(&path) {
            let age = found
                .created()
                .ok()
                .and_then(|since| now.duration_since(since).ok());
            let is_old = age.is_some_and(|age| age > (self.keep / 8).max(DAY));
            if found.len() >= MAX_FILE_BYTES || (is_old && found.len() > 0) {
                let millis = now
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_millis();
                let _ = fs::rename(&path, self.dir.join(format!("audit-{millis}.jsonl")));
            }
        }
        let mut rotated = rotated_files(&self.dir);
        let surplus = rotated.len().saturating_sub(MAX_FILES);
        for (at, file) in rotated.drain(..).enumerate() {
            let changed = fs::metadata(&file).and_then(|file| file.modified());
            let age = changed.ok().and_then(|changed| now.duration_since(changed).ok());
            if at < surplus || age.is_some_and(|age| age > self.keep) {
                let _ = fs::remove_file(file);
            }
        }
    }

    /// Passes every line to `each`, oldest first.
    pub fn read(dir: &Path, mut each: impl FnMut(&str)) -> io::Result<()> {
        let mut files = rotated_files(dir);
        files.push(dir.join(NAME));
        for path in files {
            let file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut reader = BufReader::new(file);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line)? > 0 {
                if line.len() <= MAX_LINE_BYTES
                    && let Ok(text) = std::str::from_utf8(&line)
                {
                    each(text.trim_end());
                }
                line.clear();
            }
        }
        Ok(())
    }
}

/// Rotated files, oldest first.
fn rotated_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix("audit-")?.strip_suffix(".jsonl")?;
            Some((number.parse().ok()?, entry.path()))
        })
        .collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn lines(dir: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        AuditFile::read(dir, |line| lines.push(line.to_owned())).unwrap();
        lines
    }

    #[test]
    fn entries_are_appended_in_order_for_the_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        assert!(lines(dir.path()).is_empty());
        for round in ["a", "b"] {
            let mut log = AuditLog::start(dir.path(), 90).unwrap();
            log.write(round.to_owned());
        }
        assert_eq!(lines(dir.path()), ["a", "b"]);
        let mode = fs::metadata(dir.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_line_after_dropped_ones_says_how_many_they_were() {
        let (lines, mut waiting) = mpsc::channel(1);
        let mut log = AuditLog {
            lines: Some(lines),
            thread: None,
            dropped: 0,
        };
        for line in ["a", "b", "c", "d"] {
            log.write(line.to_owned());
        }
        assert_eq!(waiting.blocking_recv().unwrap(), "a");
        log.write("e".to_owned());
        assert_eq!(
            waiting.blocking_recv().unwrap(),
            "{\"event\":\"dropped\",\"entries\":3}\ne"
        );
        log.write("f".to_owned());
        assert_eq!(waiting.blocking_recv().unwrap(), "f");
    }

    #[test]
    fn what_a_full_disk_lost_is_counted_and_the_next_entry_has_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut file = AuditFile::new(dir.path(), 90);
        assert!(file.append("a\nb\n").is_err());
        assert!(file.append(&format!("{}\nc\n", dropped_line(3))).is_err());
        fs::remove_file(&path).unwrap();
        // A part of what came before was written.
        fs::write(&path, "x\nhal").unwrap();
        file.append("d\n").unwrap();
        file.append("e\n").unwrap();
        assert_eq!(lines(dir.path()), ["x", "hal", &dropped_line(6), "d", "e"]);
    }

    #[test]
    fn a_large_file_is_rotated_and_the_oldest_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..MAX_FILES + 3 {
            fs::write(
                dir.path().join(format!("audit-{number}.jsonl")),
                format!("{number}\n"),
            )
            .unwrap();
        }
        fs::write(dir.path().join(NAME), "x\n".repeat(4 << 20)).unwrap();
        AuditFile::new(dir.path(), 90).append("new\n").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(NAME)).unwrap(), "new\n");
        let kept = rotated_files(dir.path());
        assert_eq!(kept.len(), MAX_FILES);
        assert!(
            !kept.contains(&dir.path().join("audit-3.jsonl"))
                && kept.contains(&dir.path().join("audit-4.jsonl"))
        );
    }
}
