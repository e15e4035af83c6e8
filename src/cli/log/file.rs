//! The log file: bounded in size and number, readable by its owner only, and never a reason to stop.
//!
//! A full file becomes `NAME.1`, that one `NAME.2`, and so on; the oldest is removed. A line that cannot be written, because
//! the disk is full or the directory is gone, is lost and counted, and the first such failure is reported on standard error.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;

use crate::cli::exit::errln;
use crate::config::LogConfig;
use crate::serve::LogCounts;

/// Only the owner may read it.
const MODE: u32 = 0o600;

/// Writes lines to the log file. Clones write to the same one.
#[derive(Clone)]
pub(super) struct LogFile {
    state: Arc<Mutex<RotatingFile>>,
    counts: Arc<LogCounts>,
}

impl LogFile {
    /// Opens the configured file, if any.
    pub(super) fn open(log: &LogConfig, counts: &Arc<LogCounts>) -> io::Result<Option<Self>> {
        let Some(path) = &log.file else {
            return Ok(None);
        };
        let file = RotatingFile::open(path.clone(), log.file_bytes, log.file_count)?;
        Ok(Some(Self {
            state: Arc::new(Mutex::new(file)),
            counts: Arc::clone(counts),
        }))
    }

    /// Opens the file by its name again: another program may have moved it.
    pub(super) fn reopen(&self) {
        let mut state = self.lock();
        if let Err(error) = state.reopen() {
            state.report(&error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RotatingFile> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogFile {
    /// Takes one line. Never fails: a log that cannot be written is no reason to stop.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if let Err(error) = state.append(line) {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            state.report(&error);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The open file and its limits.
struct RotatingFile {
    path: PathBuf,
    max_bytes: u64,
    /// Older files that are kept.
    max_older: u32,
    file: File,
    bytes: u64,
    /// Whether the last line was written in part.
    is_torn: bool,
    /// Whether a failure was reported.
    is_reported: bool,
}

impl RotatingFile {
    fn open(path: PathBuf, max_bytes: u64, max_older: u32) -> io::Result<Self> {
        let (file, bytes) = open(&path)?;
        Ok(Self {
            path,
            max_bytes,
            max_older,
            file,
            bytes,
            is_torn: false,
            is_reported: false,
        })
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.bytes) = open(&self.path)?;
        self.is_torn = false;
        Ok(())
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let added = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(added) > self.max_bytes {
            self.rotate()?;
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.bytes += 1;
            self.is_torn = false;
        }
        let written = self.file.write_all(line);
        if written.is_ok() {
            self.bytes += added;
        } else {
            let bytes = self.file.metadata().map_or(self.bytes, |now| now.len());
            self.is_torn = bytes != self.bytes;
            self.bytes = bytes;
        }
        written
    }

    /// Makes room for a new file. The oldest one makes room first, so that no two have the same name.
    fn rotate(&mut self) -> io::Result<()> {
        for older in (1..=self.max_older).rev() {
            let from = match older {
                1 => self.path.clone(),
                _ => self.older(older - 1),
            };
            match fs::rename(from, self.older(older)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.max_older == 0 {
            self.file.set_len(0)?;
        }
        self.reopen()
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        name.into()
    }

    fn report(&mut self, error: &io::Error) {
        if !self.is_reported {
            errln!(
                "warning: cannot write the log file {}: {error}; the relay goes on, and lines are lost until it can be written",
                self.path.display()
            );
        }
        self.is_reported = true;
    }
}

/// Opens a file to append to it; returns it and its size.
fn open(path: &Path) -> io::Result<(File, u64)> {
    // A pipe that nobody reads would block forever.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(flags)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if metadata.permissions().mode() & 0o777 != MODE {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok((file, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn the_files_are_bounded_in_size_and_number_and_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relay.log");
        fs::write(&path, "0\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let mut log = RotatingFile::open(path.clone(), 4, 2).unwrap();
        for line in [
            "1\n",
            "2\n",
            "3\n",
            "4\n",
            "5\n",
            "6\n",
            "longer than the limit\n",
        ] {
            log.append(line.as_bytes()).unwrap();
        }
        let older = |number| read(&log.older(number));
        assert_eq!(read(&path).as_deref(), Some("longer than the limit\n"));
        assert_eq!(
            (older(1).as_deref(), older(2).as_deref()),
            (Some("6\n"), Some("4\n5\n"))
        );
        assert_eq!(older(3), None, "the oldest are removed");
        for path in [path.clone(), log.older(1), log.older(2)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, MODE);
        }

        let mut log = RotatingFile::open(path.clone(), 4, 0).unwrap();
        log.append(b"new\n").unwrap();
        assert_eq!(read(&path).as_deref(), Some("new\n"));
    }

    #[test]
    fn a_line_that_was_cut_off_does_not_swallow_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relay.log");
        let mut log = RotatingFile::open(path.clone(), 100, 1).unwrap();
        log.append(b"half").unwrap();
        log.is_torn = true;
        log.append(b"whole\n").unwrap();
        assert_eq!(read(&path).as_deref(), Some("half\nwhole\n"));
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let config = LogConfig {
            file: Some(dir.path().join("relay.log")),
            ..LogConfig::default()
        };
        let path = config.file.clone().unwrap();
        let mut log = LogFile::open(&config, &Arc::default()).unwrap().unwrap();
        log.write_all(b"one\n").unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        log.reopen();
        log.write_all(b"two\n").unwrap();
        assert_eq!(read(&path).as_deref(), Some("two\n"));
    }

    #[test]
    fn only_a_regular_file_is_used() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            dir.path(),
            Path::new("/dev/null"),
            &dir.path().join("missing/relay.log"),
        ] {
            assert!(RotatingFile::open(path.to_owned(), 100, 1).is_err(), "{path:?}");
        }
    }
}
