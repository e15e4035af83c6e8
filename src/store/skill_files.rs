//! Skills as files: `<name>.skill.md`, which people may edit, and its history beside it in `<name>.versions.jsonl`.
//!
//! A text is written beside its path and renamed; the history is appended. Links are never followed. Changes take a lock, so
//! that two processes do not mix theirs. A file that somebody edited by hand is a new version without an entry in the history
//! until the next change. Earlier texts are not kept.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use super::side_file::unix_secs;
use super::skills::{
    EMPTY, bad_name, check_approval, entry, full, is_same, next_meta, restated, token, unchanged,
};
use crate::skill::{
    ApprovalMode, MAX_BODY_BYTES, MAX_SKILLS, MAX_VERSIONS, SkillBody, SkillDetails, SkillError,
    SkillErrorReason, SkillFeatures, SkillFilter, SkillManifest, SkillMeta, SkillSource, SkillStatus,
    SkillStore, SkillVersion, SkillWrite, is_name,
};

/// Name of the implementation, for errors.
const NAME: &str = "FileSkillStore";
const TEXT: &str = ".skill.md";
const HISTORY: &str = ".versions.jsonl";
/// The lock of changes.
const LOCK: &str = ".lock";
/// Start of the name of a file that is being written.
const UNFINISHED: &str = ".new-";
/// Longest history that is read, in bytes; what is before it is left out.
const MAX_HISTORY_BYTES: u64 = 4 << 20;
/// The end of a history that the token depends on, in bytes.
const TOKEN_TAIL: u64 = 1_024;

/// Skills in a directory, which is created when it is first written. Several processes may use it.
#[derive(Debug)]
pub struct FileSkillStore {
    dir: PathBuf,
    mode: ApprovalMode,
}

/// A line of a history: the entry, and what the text does not say.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct HistoryLine {
    #[serde(flatten)]
    version: SkillVersion,
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status_changed_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    #[serde(default)]
    details: SkillDetails,
}

/// A skill as its files are.
struct Found {
    body: SkillBody,
    meta: SkillMeta,
    history: Vec<HistoryLine>,
}

impl FileSkillStore {
    /// The store in this directory.
    pub fn new(dir: impl Into<PathBuf>, mode: ApprovalMode) -> Self {
        Self {
            dir: dir.into(),
            mode,
        }
    }

    fn path(&self, name: &str, suffix: &str) -> PathBuf {
        self.dir.join(format!("{name}{suffix}"))
    }

    fn find(&self, name: &str) -> Result<Found, SkillError> {
        // A name that cannot be one is never looked for.
        if !is_name(name) {
            return Err(not_found(name));
        }
        let path = self.path(name, TEXT);
        let (bytes, changed_at) = match read_file(&path, MAX_BODY_BYTES as u64 + 1) {
            Ok(Some(read)) => read,
            Ok(None) => return Err(not_found(name)),
            Err(error) => return Err(unavailable("read", &path, &error)),
        };
        if bytes.len() > MAX_BODY_BYTES {
            let why = format!("{} is longer than {} KiB", path.display(), MAX_BODY_BYTES >> 10);
            return Err(fail(SkillErrorReason::Unavailable(why)));
        }
        let source = String::from_utf8(bytes).map_err(|_| {
            fail(SkillErrorReason::Unavailable(format!(
                "{} is not UTF-8 text",
                path.display()
            )))
        })?;
        let body = SkillBody::read(source);
        let history = self.history(name)?;
        let last = history.last();
        let is_known = last.is_some_and(|last| last.version.content_hash == body.content_hash);
        let updated_at = last
            .filter(|_| is_known)
            .map_or(changed_at, |last| last.version.changed_at);
        let known_status = last.map(|last| last.version.status);
        let own_details = last.filter(|_| is_known).map(|last| last.details.clone());
        let meta = SkillMeta {
            name: name.to_owned(),
            version: body.version(),
            content_hash: body.content_hash.clone(),
            status: body.status,
            created_at: last.map_or(changed_at, |last| last.created_at),
            updated_at,
            status_changed_at: match last {
                Some(last) if known_status == Some(body.status) => last.status_changed_at,
                _ => Some(updated_at),
            },
            author: last.and_then(|last| last.author.clone()),
            details: own_details.unwrap_or_default().or(body.details()),
        };
        Ok(Found { body, meta, history })
    }

    /// The readable lines of a history, the oldest first. Torn ones are left out.
    fn history(&self, name: &str) -> Result<Vec<HistoryLine>, SkillError> {
        let path = self.path(name, HISTORY);
        let read = read_end(&path, MAX_HISTORY_BYTES).map_err(|error| unavailable("read", &path, &error))?;
        let lines = read.split(|byte| *byte == b'\n');
        Ok(lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect())
    }

    /// Takes the lock of changes; it is held until dropped.
    fn lock(&self) -> Result<File, SkillError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(|error| unavailable("create", &self.dir, &error))?;
        let path = self.dir.join(LOCK);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(no_follow())
            .open(&path)
            .map_err(|error| unavailable("open", &path, &error))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| unavailable("lock", &path, &error.into()))?;
        self.remove_unfinished();
        Ok(file)
    }

    /// Deletes what a writer that was killed has left. The lock is held, so nobody writes now.
    fn remove_unfinished(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(UNFINISHED)) {
                // It is tried again with the next change.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Writes text and history of a change. The lock is held.
    fn put(
        &self,
        meta: &SkillMeta,
        before: Option<&Found>,
        body: &SkillBody,
        changed_by: Option<&str>,
    ) -> Result<SkillVersion, SkillError> {
        let version = entry(meta, before.map(|before| before.meta.status), changed_by);
        let mut lines: Vec<HistoryLine> = before.map(|before| before.history.clone()).unwrap_or_default();
        lines.push(HistoryLine {
            version: version.clone(),
            created_at: meta.created_at,
            status_changed_at: meta.status_changed_at,
            author: meta.author.clone(),
            details: meta.details.clone(),
        });
        let path = self.path(&meta.name, TEXT);
        self.replace(&path, body.source.as_bytes())
            .map_err(|error| unavailable("write", &path, &error))?;
        let path = self.path(&meta.name, HISTORY);
        let written = if before.is_none() || lines.len() > MAX_VERSIONS {
            let kept = lines.split_off(lines.len().saturating_sub(MAX_VERSIONS));
            let text: String = kept.iter().map(line_text).collect();
            self.replace(&path, text.as_bytes())
        } else {
            append(&path, &lines.last().map(line_text).unwrap_or_default())
        };
        written.map_err(|error| unavailable("write", &path, &error))?;
        Ok(version)
    }

    /// Deletes text and history as far as they are there. The lock is held.
    fn remove(&self, name: &str) -> Result<(), SkillError> {
        // The history first: a text without one is a skill, a history without a text is nothing.
        for suffix in [HISTORY, TEXT] {
            let path = self.path(name, suffix);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(unavailable("delete", &path, &error));
                }
                _ => {}
            }
        }
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| unavailable("write", &self.dir, &error))
    }

    /// Puts a file in place of another one, or of a link, as a whole.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut temporary = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempfile_in(&self.dir)?;
        temporary.write_all(bytes)?;
        temporary.as_file().sync_all()?;
        temporary.persist(path).map_err(|error| error.error)?;
        File::open(&self.dir)?.sync_all()
    }

    /// Names of skills that have a text.
    fn names(&self) -> Result<Vec<String>, SkillError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unavailable("read", &self.dir, &error)),
        };
        let names = entries.flatten().filter_map(|entry| {
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            let name = entry
                .file_name()
                .into_string()
                .ok()?
                .strip_suffix(TEXT)?
                .to_owned();
            (is_file && is_name(&name)).then_some(name)
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }
}

impl SkillStore for FileSkillStore {
    fn load(&self, name: &str, version: Option<&str>) -> Result<SkillSource, SkillError> {
        let Found { body, meta, .. } = self.find(name)?;
        if let Some(wanted) = version.filter(|wanted| *wanted != meta.version) {
            return Err(fail(SkillErrorReason::VersionNotFound {
                name: name.to_owned(),
                version: wanted.chars().take(64).collect(),
            }));
        }
        Ok(SkillSource {
            name: name.to_owned(),
            version: meta.version.clone(),
            content_hash: body.content_hash,
            source: body.source,
            metadata: meta,
        })
    }

    fn query(&self, filter: &SkillFilter) -> Result<Vec<SkillMeta>, SkillError> {
        let mut found = Vec::new();
        for name in self.names()? {
            match self.find(&name) {
                Ok(skill) => found.push(skill.meta),
                // Somebody deleted it meanwhile.
                Err(error) if matches!(error.reason, SkillErrorReason::NotFound(_)) => {}
                Err(error) => tracing::warn!(%error, "a skill cannot be read and is not listed"),
            }
        }
        Ok(filter.select(found))
    }

    fn metadata(&self, name: &str) -> Result<SkillMeta, SkillError> {
        Ok(self.find(name)?.meta)
    }

    fn versions(&self, name: &str) -> Result<Vec<SkillVersion>, SkillError> {
        let Found { meta, history, .. } = self.find(name)?;
        let mut versions: Vec<SkillVersion> = history.into_iter().map(|line| line.version).collect();
        let last = versions.last();
        if last.is_none_or(|last| last.content_hash != meta.content_hash) {
            let previous_status = last.map(|last| last.status);
            versions.push(SkillVersion {
                previous_status,
                changed_at: meta.updated_at,
                ..unchanged(&meta)
            });
        }
        Ok(versions)
    }

    fn store(&self, name: &str, source: &str, write: &SkillWrite) -> Result<SkillVersion, SkillError> {
        if !is_name(name) {
            return Err(fail(bad_name(name)));
        }
        let body =
            SkillBody::new(source, write, self.mode).map_err(|why| fail(SkillErrorReason::Lint(why)))?;
        let lock = self.lock()?;
        let before = match self.find(name) {
            Ok(before) => Some(before),
            Err(error) if matches!(error.reason, SkillErrorReason::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        if before.is_none() && self.names()?.len() >= MAX_SKILLS {
            return Err(fail(full()));
        }
        let known = before.as_ref().map(|before| &before.meta);
        let meta = next_meta(NAME, name, known, &body, write, unix_secs())?;
        let stored = match known {
            Some(known) if is_same(known, &meta) => Ok(unchanged(known)),
            _ => self.put(&meta, before.as_ref(), &body, write.changed_by.as_deref()),
        };
        drop(lock);
        stored
    }

    fn delete(&self, name: &str) -> Result<(), SkillError> {
        self.find(name)?;
        let lock = self.lock()?;
        self.find(name)?;
        let removed = self.remove(name);
        drop(lock);
        removed
    }

    fn update_status(&self, name: &str, status: SkillStatus) -> Result<SkillVersion, SkillError> {
        check_approval(NAME, self.mode, name, status)?;
        self.find(name)?;
        let lock = self.lock()?;
        let before = self.find(name)?;
        if before.meta.status == status {
            return Ok(unchanged(&before.meta));
        }
        let body = before.body.with_status(status);
        let meta = restated(&before.meta, &body);
        let stored = self.put(&meta, Some(&before), &body, None);
        drop(lock);
        stored
    }

    fn manifest(&self) -> SkillManifest {
        SkillManifest {
            capabilities_version: "1.0.0".to_owned(),
            kind: "filesystem".to_owned(),
            implementation: NAME.to_owned(),
            features: SkillFeatures {
                supports_writes: true,
                supports_versioning: false,
                supports_tag_filter: true,
                supports_audit_trail: true,
                supports_atomic_status_transitions: false,
            },
        }
    }

    fn version(&self) -> Result<Option<String>, SkillError> {
        if !self.dir.exists() {
            return Ok(Some(EMPTY.to_owned()));
        }
        let mut lines = Vec::new();
        for name in self.names()? {
            let Ok(text) = fs::symlink_metadata(self.path(&name, TEXT)) else {
                continue;
            };
            // A clock that ticks slowly does not hide a change: the history grows with each, and its end names the text.
            let path = self.path(&name, HISTORY);
            let history = fs::symlink_metadata(&path).map_or(0, |history| history.len());
            let tail = read_end(&path, TOKEN_TAIL).map_err(|error| unavailable("read", &path, &error))?;
            let tail = String::from_utf8_lossy(&tail);
            let (secs, nanos, size, number) = (text.mtime(), text.mtime_nsec(), text.len(), text.ino());
            lines.push(format!(
                "{name}\0{secs}.{nanos}\0{size}\0{number}\0{history}\0{tail}\n"
            ));
        }
        Ok(Some(token(lines.iter().map(String::as_str))))
    }
}

fn line_text(line: &HistoryLine) -> String {
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

/// Appends lines. A torn line before them is ended first.
fn append(path: &Path, lines: &str) -> io::Result<()> {
    let is_torn = read_end(path, 1)?.last().is_some_and(|byte| *byte != b'\n');
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(path)?;
    let end = if is_torn { "\n" } else { "" };
    file.write_all(format!("{end}{lines}").as_bytes())?;
    file.sync_all()
}

/// Up to so many bytes of a regular file and when it was changed; `None` if there is none. A link is an error.
fn read_file(path: &Path, limit: u64) -> io::Result<Option<(Vec<u8>, i64)>> {
    let Some(file) = open_file(path)? else {
        return Ok(None);
    };
    let changed_at = file.metadata()?.mtime();
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some((bytes, changed_at)))
}

/// The last bytes of a regular file; nothing if there is none.
fn read_end(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let Some(mut file) = open_file(path)? else {
        return Ok(Vec::new());
    };
    let size = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(size.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_file(path: &Path) -> io::Result<Option<File>> {
    let opened = OpenOptions::new().read(true).custom_flags(no_follow()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(Some(file))
}

/// Flags: follow no link, and wait for nobody to write into a pipe.
fn no_follow() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

fn fail(reason: SkillErrorReason) -> SkillError {
    SkillError::new(NAME, reason)
}

fn not_found(name: &str) -> SkillError {
    fail(SkillErrorReason::NotFound(name.chars().take(200).collect()))
}

fn unavailable(action: &str, path: &Path, error: &io::Error) -> SkillError {
    let why = format!("cannot {action} {}: {error}", path.display());
    fail(SkillErrorReason::Unavailable(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_that_cannot_be_deleted_keeps_its_text_and_a_missing_file_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileSkillStore::new(dir.path(), ApprovalMode::Unsecured);
        let write = SkillWrite::default();
        let (text, history) = (store.path("a", TEXT), store.path("a", HISTORY));
        let why = |removed: Result<(), SkillError>| match removed.unwrap_err().reason {
            SkillErrorReason::Unavailable(why) => why,
            reason => panic!("{reason}"),
        };
        store.store("a", "one", &write).unwrap();
        fs::remove_file(&history).unwrap();
        fs::create_dir(&history).unwrap();
        assert!(why(store.remove("a")).contains("a.versions.jsonl"));
        assert!(text.exists());
        fs::remove_dir(&history).unwrap();
        store.delete("a").unwrap();
        assert!(!text.exists());

        store.store("a", "two", &write).unwrap();
        fs::remove_file(&text).unwrap();
        store.remove("a").unwrap();
        assert!(!history.exists());

        store.store("a", "three", &write).unwrap();
        fs::remove_file(&text).unwrap();
        fs::create_dir(&text).unwrap();
        assert!(why(store.remove("a")).contains("a.skill.md"));
        assert!(!history.exists(), "it was first");
    }
}
