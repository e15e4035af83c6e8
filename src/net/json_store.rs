//! Small private JSON files that other programs also write: read whole, replaced whole.
//!
//! It never edits in place, never leaves a half-written file, and never shows a file's content.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tempfile::NamedTempFile;

/// Largest file that is read.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct StoreError {
    path: PathBuf,
    reason: String,
}

impl StoreError {
    /// A failed operation on `path`.
    pub(super) fn new(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }

    fn content(path: &Path, reason: &str) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// The object in `path`; `None` when there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Map<String, Value>>, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::new(path, &error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| StoreError::new(path, &error))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(StoreError::content(path, "too large"));
    }
    let json = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    serde_json::from_slice(json)
        .map(Some)
        .map_err(|_| StoreError::content(path, "not a JSON object"))
}

/// A replacement of a file that has been started and not yet taken effect; dropping it changes nothing.
#[derive(Debug)]
pub(super) struct Replacement {
    path: PathBuf,
    temporary: NamedTempFile,
}

/// Starts replacing `path`: from here on only a full disk can stop it.
pub(super) fn prepare(path: &Path) -> Result<Replacement, StoreError> {
    let temporary = tempfile::Builder::new()
        .prefix(".auth-")
        .tempfile_in(directory(path))
        .map_err(|error| StoreError::new(path, &error))?;
    Ok(Replacement {
        path: path.to_owned(),
        temporary,
    })
}

impl Replacement {
    /// Puts `object` in place, readable by the owner only, and waits until the disk has it.
    pub(super) fn commit(self, object: &Map<String, Value>) -> Result<(), StoreError> {
        let Self { path, mut temporary } = self;
        let write = || {
            let mut json = serde_json::to_vec_pretty(object)?;
            json.push(b'\n');
            temporary.write_all(&json)?;
            temporary.as_file().sync_all()?;
            temporary.persist(&path)?;
            File::open(directory(&path))?.sync_all()
        };
        write().map_err(|error: io::Error| StoreError::new(&path, &error))
    }
}

/// Opens a lock file, creating it for the owner only.
pub(super) fn open_lock(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::new(path, &error))
}

fn directory(path: &Path) -> &Path {
    path.parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
