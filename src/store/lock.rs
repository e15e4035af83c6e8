//! The state directory: owner-only, locked by one process at a time.
//!
//! The lock is the kernel's (`flock`), so it cannot outlive its process; the file's text (process id and start time) is for
//! the error message only. Taking it never waits.

use super::fault::{Holder, OpenError};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The lock on a state directory, held until dropped.
#[derive(Debug)]
pub(super) struct StateLock {
    file: File,
}

impl StateLock {
    /// Creates the directory if needed and locks it.
    pub(super) fn take(dir: &Path, now_ms: i64) -> Result<Self, OpenError> {
        make_private(dir)?;
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

fn make_private(dir: &Path) -> Result<(), OpenError> {
    let failed = |action, source| OpenError::Directory {
        action,
        path: dir.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| failed("create", source))?;
    let mode = fs::metadata(dir)
        .map_err(|source| failed("read", source))?
        .permissions()
        .mode();
    if mode & 0o777 != 0o700 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))
            .map_err(|source| failed("protect", source))?;
    }
    Ok(())
}

fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.take(64).read_to_string(&mut text);
    Holder(
        read.ok()
            .and_then(|_| text.split_whitespace().next()?.parse().ok()),
    )
}
