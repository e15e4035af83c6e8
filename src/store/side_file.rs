//! A database beside the journal, in a file of its own: owner-only, with a write-ahead log and a schema version.
//!
//! A new one is written under another name and linked to its own, so that it exists completely or not at all, also when two
//! processes make it at the same time. Unlike the journal, it has no owner: every change is a transaction of its own.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

/// How long a change waits for another process.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SideFileError {
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is a symbolic link or no file; move it away", .0.display())]
    NoFile(PathBuf),
    #[error("{} has format {found}, this program knows up to {known}; upgrade it", path.display())]
    Newer { path: PathBuf, found: i64, known: usize },
    #[error("{}: {source}", path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
}

/// A database that is opened when it is first needed, and made when it is first written.
#[derive(Debug)]
pub(super) struct SideFile {
    path: PathBuf,
    migrations: &'static [&'static str],
    open: Mutex<Option<OpenDatabase>>,
}

/// An open database, and which file it is.
#[derive(Debug)]
struct OpenDatabase {
    db: Connection,
    file: (u64, u64),
}

impl SideFile {
    pub(super) fn new(path: PathBuf, migrations: &'static [&'static str]) -> Self {
        Self {
            path,
            migrations,
            open: Mutex::new(None),
        }
    }

    /// Reads; `None` while there is no database.
    pub(super) fn read<T, E: From<SideFileError>>(
        &self,
        read: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let mut open = self.open(false)?;
        let Some(open) = open.as_mut() else {
            return Ok(None);
        };
        let transaction = self.sql(open.db.transaction())?;
        read(&transaction).map(Some)
    }

    /// Changes, completely or not at all; it is on disk when this returns.
    pub(super) fn change<T, E: From<SideFileError>>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut open = self.open(true)?;
        let Some(open) = open.as_mut() else {
            return Err(SideFileError::NoFile(self.path.clone()).into());
        };
        let transaction = self.sql(open.db.transaction_with_behavior(TransactionBehavior::Immediate))?;
        let changed = change(&transaction)?;
        self.sql(transaction.commit())?;
        Ok(changed)
    }

    /// The database's own error, with the file.
    pub(super) fn sql<T>(&self, result: rusqlite::Result<T>) -> Result<T, SideFileError> {
        result.map_err(|source| SideFileError::Database {
            path: self.path.clone(),
            source,
        })
    }

    fn open(&self, create: bool) -> Result<MutexGuard<'_, Option<OpenDatabase>>, SideFileError> {
        // A panic leaves the database consistent: its transaction is rolled back.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = self.file_number()?;
        if found.is_none() && create {
            self.create()?;
            found = self.file_number()?;
        }
        // Somebody may have deleted or replaced it while it was open.
        if open.as_ref().map(|open| open.file) != found {
            *open = None;
        }
        if let (None, Some(file)) = (&*open, found) {
            let db = self.connect()?;
            *open = Some(OpenDatabase { db, file });
        }
        Ok(open)
    }

    /// Which file is at the path; `None` if there is none.
    fn file_number(&self) -> Result<Option<(u64, u64)>, SideFileError> {
        match fs::symlink_metadata(&self.path) {
            Ok(meta) if !meta.is_file() => Err(SideFileError::NoFile(self.path.clone())),
            Ok(meta) => Ok(Some((meta.dev(), meta.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => self.named("look at", Err(error)),
        }
    }

    fn connect(&self) -> Result<Connection, SideFileError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = self.sql(Connection::open_with_flags(&self.path, flags))?;
        self.sql(db.busy_timeout(LOCK_WAIT))?;
        self.sql(db.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;",
        ))?;
        let found = self.format(&db)?;
        if found < self.migrations.len() {
            let transaction = self.sql(db.transaction_with_behavior(TransactionBehavior::Immediate))?;
            self.migrate(&transaction)?;
            self.sql(transaction.commit())?;
        }
        Ok(db)
    }

    /// Migrations that were applied to the file.
    fn format(&self, db: &Connection) -> Result<usize, SideFileError> {
        let found: i64 = self.sql(db.pragma_query_value(None, "user_version", |row| row.get(0)))?;
        let known = self.migrations.len();
        (usize::try_from(found).ok())
            .filter(|found| *found <= known)
            .ok_or_else(|| SideFileError::Newer {
                path: self.path.clone(),
                found,
                known,
            })
    }

    fn migrate(&self, db: &Connection) -> Result<(), SideFileError> {
        let taken = self.format(db)?;
        for (step, number) in self.migrations.iter().zip(1..).skip(taken) {
            self.sql(db.execute_batch(&format!("{step}; PRAGMA user_version = {number};")))?;
        }
        Ok(())
    }

    fn create(&self) -> Result<(), SideFileError> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        self.named("create the directory of", made)?;
        let temporary = self.named(
            "create",
            tempfile::Builder::new().prefix(".new-db-").tempfile_in(dir),
        )?;
        self.named(
            "protect",
            temporary
                .as_file()
                .set_permissions(fs::Permissions::from_mode(0o600)),
        )?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = self.sql(Connection::open_with_flags(temporary.path(), flags))?;
        self.sql(db.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;"))?;
        self.migrate(&db)?;
        self.sql(db.execute_batch("PRAGMA journal_mode = WAL;"))?;
        self.sql(db.close().map_err(|(_, error)| error))?;
        self.named(
            "write",
            File::open(temporary.path()).and_then(|file| file.sync_all()),
        )?;
        match fs::hard_link(temporary.path(), &self.path) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => self.named("create", linked)?,
        }
        self.named("write", File::open(dir).and_then(|dir| dir.sync_all()))
    }

    /// The error of an action on the file, with its path.
    fn named<T>(&self, action: &'static str, result: io::Result<T>) -> Result<T, SideFileError> {
        result.map_err(|source| SideFileError::File {
            action,
            path: self.path.clone(),
            source,
        })
    }
}

/// Unix seconds.
pub(super) fn unix_secs() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &[&str] = &["CREATE TABLE t (n INTEGER) STRICT"];

    fn count(file: &SideFile) -> Option<i64> {
        let read =
            |db: &Transaction<'_>| file.sql(db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)));
        file.read(read).unwrap()
    }

    fn insert(file: &SideFile) {
        let change = |db: &Transaction<'_>| file.sql(db.execute("INSERT INTO t VALUES (1)", []));
        file.change(change).unwrap();
    }

    #[test]
    fn a_look_makes_nothing_and_a_change_makes_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/x.db");
        let file = SideFile::new(path.clone(), SCHEMA);
        assert_eq!(count(&file), None);
        assert!(!dir.path().join("deep").exists());
        insert(&file);
        assert_eq!(count(&file), Some(1));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.path().join("deep"))), (0o600, 0o700));
        drop(file);
        let names: Vec<_> = fs::read_dir(dir.path().join("deep")).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_file_of_a_newer_program_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        insert(&SideFile::new(path.clone(), SCHEMA));
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "user_version", 7).unwrap();
        drop(db);
        let before = fs::read(&path).unwrap();
        let file = SideFile::new(path.clone(), SCHEMA);
        let refused = file.read(|_| Ok::<(), SideFileError>(())).unwrap_err();
        assert!(refused.to_string().contains("upgrade"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn links_and_rubbish_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "mine").unwrap();
        let link = dir.path().join("x.db");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let change =
            |path: &Path| SideFile::new(path.to_owned(), SCHEMA).change(|_| Ok::<(), SideFileError>(()));
        assert!(matches!(change(&link), Err(SideFileError::NoFile(_))));
        let rubbish = dir.path().join("y.db");
        fs::write(&rubbish, "rubbish".repeat(1000)).unwrap();
        assert!(matches!(change(&rubbish), Err(SideFileError::Database { .. })));
        assert_eq!(fs::read(&target).unwrap(), b"mine");
    }

    #[test]
    fn many_make_it_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| insert(&SideFile::new(path.clone(), SCHEMA)));
            }
        });
        assert_eq!(count(&SideFile::new(path, SCHEMA)), Some(8));
    }
}
