//! The state directory: the relay's own, owner-only, locked by one process at a time.
//!
//! A directory that somebody else uses is not taken over: it is refused before anything in it or about it is changed.
//! The lock is the kernel's (`flock`), so it cannot outlive its process; the file's text (process id and start time) is for
//! the error message only. Taking it waits only as long as the caller allows.

use super::fault::{Holder, OpenError};
use super::schema::path_in;
use crate::text::escape;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How often a lock that is held is tried.
const LOCK_RETRY: Duration = Duration::from_millis(25);

/// The lock on a state directory, held until dropped.
#[derive(Debug)]
pub(super) struct StateLock {
    file: File,
}

impl StateLock {
    /// Creates the directory if needed, makes it private and locks it.
    pub(super) fn take(dir: &Path, assigned: bool, now_ms: i64) -> Result<Self, OpenError> {
        make_private(dir, assigned)?;
        Self::take_existing(dir, now_ms)
    }

    /// The same; while another process holds it, for at most this long: a command, or the kernel that still clears a process away.
    pub(super) fn take_within(
        dir: &Path,
        assigned: bool,
        wait: Duration,
        now_ms: i64,
    ) -> Result<Self, OpenError> {
        let until = Instant::now() + wait;
        let mut is_reported = false;
        loop {
            match Self::take(dir, assigned, now_ms) {
                Err(OpenError::InUse { .. }) if Instant::now() < until => {
                    if !std::mem::replace(&mut is_reported, true) {
                        tracing::info!(
                            "another process uses the state directory; waiting a moment for it to end"
                        );
                    }
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the kernel does not say when a lock is free"
                    )]
                    thread::sleep(LOCK_RETRY);
                }
                taken => return taken,
            }
        }
    }

    /// Locks a directory that holds a journal.
    pub(super) fn take_existing(dir: &Path, now_ms: i64) -> Result<Self, OpenError> {
        let path = dir.join("lock");
        let failed = |action, source| OpenError::Directory {
            action,
            path: path.clone(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|source| failed("open", source))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(OpenError::InUse {
                    dir: dir.to_owned(),
                    pid: holder(&mut file),
                });
            }
            Err(errno) => return Err(failed("lock", errno.into())),
        }
        let text = format!("{} {now_ms}\n", std::process::id());
        keep_private(&file)
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(|source| failed("write", source))?;
        Ok(Self { file })
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // Closing alone would leave it to a child between fork and exec.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// The process that holds a state directory now, if any. Creates nothing and keeps no lock.
pub fn held_by(dir: &Path) -> io::Result<Option<Holder>> {
    let mut file = match File::open(dir.join("lock")) {
        Ok(file) => file,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // Shared, so that two readers do not see each other.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            flock(&file, FlockOperation::Unlock)?;
            Ok(None)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Some(holder(&mut file))),
        Err(errno) => Err(errno.into()),
    }
}

/// Does something while no other process uses a state directory; waits for that no longer than this.
#[cfg(feature = "nats")]
pub fn while_held<T>(
    dir: &Path,
    assigned: bool,
    wait: Duration,
    now_ms: i64,
    work: impl FnOnce() -> T,
) -> Result<T, OpenError> {
    let _lock = StateLock::take_within(dir, assigned, wait, now_ms)?;
    Ok(work())
}

/// Creates a database file if needed and makes it owner-only, whatever the umask.
pub(super) fn private_file(path: &Path) -> Result<(), OpenError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly {
            path: path.to_owned(),
        },
        io::ErrorKind::PermissionDenied if path.exists() => OpenError::ReadOnly {
            path: path.to_owned(),
        },
        _ => OpenError::Directory {
            action: "open",
            path: path.to_owned(),
            source,
        },
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    keep_private(&file).map_err(failed)
}

/// The database file and its companions.
pub(super) fn database_files(path: &Path) -> [PathBuf; 3] {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    [path.to_owned(), beside("-wal"), beside("-shm")]
}

fn keep_private(file: &File) -> io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o777 == 0o600 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(0o600))
}

/// Whether a directory may become the state directory, or does not exist yet. Changes nothing.
///
/// It must belong to this user and hold the relay's journal or nothing that looks like another's: hidden entries are an
/// account's settings, and in an `assigned` directory, which the service manager made for this relay, everything belongs.
pub fn check_state_dir(dir: &Path, assigned: bool) -> Result<(), OpenError> {
    let failed = |source| OpenError::Directory {
        action: "read",
        path: dir.to_owned(),
        source,
    };
    // What cannot be looked at cannot be created either, which says why.
    let Ok(meta) = fs::metadata(dir) else {
        return Ok(());
    };
    let user = rustix::process::geteuid().as_raw();
    let journal = fs::metadata(path_in(dir)).ok();
    if meta.uid() != user && journal.as_ref().is_none_or(|journal| journal.uid() != user) {
        return Err(OpenError::OtherUser {
            dir: dir.to_owned(),
            owner: meta.uid(),
            user,
        });
    }
    if assigned || journal.is_some() || is_our_lock(&dir.join("lock")) {
        return Ok(());
    }
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        let is_ours = name.starts_with('.') || name.starts_with("journal.") || OWN_NAMES.contains(&&*name);
        if !is_ours {
            return Err(OpenError::NotOurs {
                dir: dir.to_owned(),
                found: escape(&name).into_owned(),
            });
        }
    }
    Ok(())
}

/// What a state directory may hold before it has a journal: a disk's own directory, our files, our settings.
const OWN_NAMES: [&str; 12] = [
    "lost+found",
    "lock",
    "control.sock",
    "media",
    "relay.yaml",
    "skills",
    "skills.db",
    "skills.db-wal",
    "skills.db-shm",
    "data.db",
    "data.db-wal",
    "data.db-shm",
];

/// Whether a relay has locked the directory before.
fn is_our_lock(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    let text = lock_text(&mut file);
    let numbers: Vec<_> = text.split_whitespace().map(str::parse::<u64>).collect();
    matches!(numbers[..], [Ok(_), Ok(_)])
}

/// Creates a state directory if needed and makes it owner-only; refuses one that somebody else uses.
pub fn make_private(dir: &Path, assigned: bool) -> Result<(), OpenError> {
    let failed = |action, source| OpenError::Directory {
        action,
        path: dir.to_owned(),
        source,
    };
    check_state_dir(dir, assigned)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| failed("create", source))?;
    let meta = fs::metadata(dir).map_err(|source| failed("read", source))?;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw();
    if is_own && meta.permissions().mode() & 0o777 != 0o700 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))
            .map_err(|source| failed("protect", source))?;
    }
    Ok(())
}

fn holder(file: &mut File) -> Holder {
    let text = lock_text(file);
    Holder(text.split_whitespace().next().and_then(|pid| pid.parse().ok()))
}

/// The text of a lock file: process id and start time.
fn lock_text(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(64).read_to_string(&mut text) {
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    fn mode(dir: &Path) -> u32 {
        fs::metadata(dir).unwrap().permissions().mode() & 0o777
    }

    fn with(entries: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        for entry in entries {
            match entry.strip_suffix('/') {
                Some(name) => fs::create_dir(dir.path().join(name)).unwrap(),
                None => fs::write(dir.path().join(entry), "").unwrap(),
            }
        }
        dir
    }

    #[test]
    fn a_directory_with_other_things_and_no_journal_is_refused_and_left_alone() {
        for entries in [
            &["thesis.tex"][..],
            &["Documents/", ".bashrc"],
            &["lost+found/", "photos/"],
            &["lock", "index"],
            &["media/", "music/"],
        ] {
            let dir = with(entries);
            let refused = StateLock::take(dir.path(), false, 1).unwrap_err();
            assert!(matches!(refused, OpenError::NotOurs { .. }), "{refused}");
            assert_eq!(mode(dir.path()), 0o755, "{entries:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), entries.len());
            // The service manager's is ours, whatever an operator put there.
            StateLock::take(dir.path(), true, 1).unwrap();
            assert_eq!(mode(dir.path()), 0o700);
        }
        let dir = with(&["evil\u{202e}\x1b[2J"]);
        let refused = StateLock::take(dir.path(), false, 1).unwrap_err().to_string();
        assert!(refused.contains("evil\\u202e\\u001b[2J"), "{refused}");
        let dir = with(&["lock", "index"]);
        fs::write(dir.path().join("lock"), "4711\n").unwrap();
        assert!(
            StateLock::take(dir.path(), false, 1).is_err(),
            "another program's lock"
        );
    }

    #[test]
    fn a_state_directory_in_any_state_is_accepted_and_made_private() {
        for entries in [
            &[][..],
            &["lost+found/"],
            // A home of the account that runs the relay, and settings beside the journal.
            &[".env", ".hermes/", ".cache/", "relay.yaml"],
            // A journal, whatever else is there.
            &["journal.db", "photos/"],
            // A journal that was moved aside, or could not be created.
            &[
                "journal.corrupt-1700000000",
                "journal.corrupt-1700000000-wal",
                "media/",
                "control.sock",
            ],
            &["journal.new", "lock"],
        ] {
            let dir = with(entries);
            StateLock::take(dir.path(), false, 1).unwrap_or_else(|error| panic!("{entries:?}: {error}"));
            assert_eq!(mode(dir.path()), 0o700, "{entries:?}");
        }
        // A relay was here: its journal was moved away, and an agent had left a file.
        let dir = with(&[]);
        drop(StateLock::take(dir.path(), false, 1).unwrap());
        fs::write(dir.path().join("notes.txt"), "").unwrap();
        StateLock::take(dir.path(), false, 1).unwrap();
        StateLock::take(&dir.path().join("new/deep"), false, 1).unwrap();
        assert_eq!(mode(&dir.path().join("new/deep")), 0o700);
    }

    #[test]
    fn files_that_others_could_read_become_private() {
        let dir = with(&["journal.db", "lock"]);
        for name in ["journal.db", "lock"] {
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o644)).unwrap();
        }
        private_file(&dir.path().join("journal.db")).unwrap();
        StateLock::take(dir.path(), false, 1).unwrap();
        for name in ["journal.db", "lock"] {
            assert_eq!(mode(&dir.path().join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused_and_left_alone() {
        let us = rustix::process::geteuid().as_raw();
        if us != 0 {
            let refused = StateLock::take(Path::new("/"), true, 1).unwrap_err();
            assert!(
                matches!(refused, OpenError::OtherUser { owner: 0, .. }),
                "{refused}"
            );
            return;
        }
        for entries in [&[][..], &["lost+found/"], &["journal.db"]] {
            let dir = with(entries);
            for entry in entries {
                chown(dir.path().join(entry), Some(1234), Some(1234)).unwrap();
            }
            chown(dir.path(), Some(1234), Some(1234)).unwrap();
            for assigned in [false, true] {
                let refused = StateLock::take(dir.path(), assigned, 1).unwrap_err();
                assert!(
                    matches!(
                        refused,
                        OpenError::OtherUser {
                            owner: 1234,
                            user: 0,
                            ..
                        }
                    ),
                    "{refused}"
                );
            }
            assert_eq!(mode(dir.path()), 0o755);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), entries.len());
        }
        // Our journal on a volume whose mount point is somebody else's: a container that always ran so.
        let dir = with(&["journal.db"]);
        chown(dir.path(), Some(1234), Some(1234)).unwrap();
        StateLock::take(dir.path(), false, 1).unwrap();
        assert_eq!(mode(dir.path()), 0o755, "not ours to change");
    }
}
