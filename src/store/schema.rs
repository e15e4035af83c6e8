//! The database file: creating, opening and migrating it.
//!
//! A new journal is written beside its path and then renamed, so that it exists completely or not at all. Creating never
//! touches a directory that contains any file of a journal.

use super::dedupe::{KEY_HASH, KeyHash};
use super::fault::{Fault, FaultKind, OpenError};
use super::journal::{Durability, JournalSettings};
use super::lock::{StateLock, database_files, private_file};
use super::log;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Migrations; the file's `user_version` is the number of applied ones.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE inbox (
        seq INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        session TEXT NOT NULL,
        dedupe BLOB,
        buffer_id TEXT,
        state INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        received_at INTEGER NOT NULL,
        started_at INTEGER,
        line BLOB
    ) STRICT;
    CREATE INDEX inbox_queued ON inbox (session, seq) WHERE state = 0;
    CREATE INDEX inbox_running ON inbox (seq) WHERE state = 1;
    CREATE TABLE done (
        seq INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        session TEXT NOT NULL,
        dedupe BLOB,
        buffer_id TEXT,
        state INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        received_at INTEGER NOT NULL,
        started_at INTEGER,
        ended_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE dedupe (key BLOB PRIMARY KEY, seq INTEGER NOT NULL, day INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE outbox (
        seq INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        chat TEXT NOT NULL,
        op BLOB NOT NULL,
        inbox_seq INTEGER,
        state INTEGER NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE chats (
        platform TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        memory BLOB NOT NULL,
        last_used INTEGER NOT NULL,
        PRIMARY KEY (platform, chat_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX chats_by_use ON chats (last_used);
    CREATE TABLE resume (session TEXT PRIMARY KEY, blob BLOB NOT NULL, updated_at INTEGER NOT NULL)
        STRICT, WITHOUT ROWID;
    CREATE TABLE quarantine (
        seq INTEGER PRIMARY KEY,
        reason TEXT NOT NULL,
        buffer_id TEXT,
        line BLOB NOT NULL,
        at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
", "
    CREATE INDEX resume_by_update ON resume (updated_at);
", "
    CREATE TABLE dropped (
        seq INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        chat TEXT NOT NULL,
        op BLOB NOT NULL,
        inbox_seq INTEGER,
        created_at INTEGER NOT NULL,
        dropped_at INTEGER NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
", ACCESS, super::cron::SCHEMA, super::handed::SCHEMA, super::handed::META, "
    ALTER TABLE inbox ADD COLUMN shown BLOB;
", log::SCHEMA, super::finished::SCHEMA, super::key_index::SCHEMA, "
    ALTER TABLE inbox ADD COLUMN repeatable INTEGER NOT NULL DEFAULT 0;
"];

/// Who may drive an agent, by verbs and pairings, and how much people have used by day.
const ACCESS: &str = "
    CREATE TABLE access (
        kind TEXT NOT NULL,
        platform TEXT NOT NULL,
        person TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (kind, platform, person)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE usage (
        day INTEGER NOT NULL,
        platform TEXT NOT NULL,
        person TEXT NOT NULL,
        chat TEXT NOT NULL,
        agent TEXT NOT NULL,
        turns INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (day, platform, person, chat, agent)
    ) STRICT, WITHOUT ROWID;
";

/// Migrations after which there is a table of dropped ops.
pub(super) const WITH_DROPPED_OPS: usize = 3;
/// Migrations after which there is a log.
pub(super) const WITH_LOG: usize = 9;
/// Migrations after which there are packed records of finished messages.
pub(super) const WITH_PACKS: usize = 10;

/// SQLite's code for incremental vacuum.
const INCREMENTAL: i64 = 2;

/// Path of the database in a state directory.
pub(super) fn path_in(dir: &Path) -> PathBuf {
    dir.join("journal.db")
}

/// Opens the journal for whoever holds the state directory: moves what an earlier process left in the log into the tables. Only the
/// holder may do that: the log of a running relay is in its memory, too.
pub(super) fn open_held(
    path: &Path,
    settings: &JournalSettings,
    _held: &StateLock,
) -> Result<Connection, OpenError> {
    let mut db = open(path, settings)?;
    log::recover(&mut db).map_err(|error| to_open_error(path, &error))?;
    Ok(db)
}

/// Opens the journal to read and write tables that the log has nothing of; creates or migrates it as needed.
pub(super) fn open(path: &Path, settings: &JournalSettings) -> Result<Connection, OpenError> {
    if let Err(error) = create_if_absent(path) {
        // Opening reports the same problem, with the journal's own path.
        tracing::debug!(%error, "cannot create the journal beside its path");
    }
    private_file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(|error| to_open_error(path, &error))?;
    prepare(&db, settings).map_err(|error| to_open_error(path, &error))?;
    migrate(&db, path)?;
    Ok(db)
}

/// Moves a damaged database and its companions to `journal.corrupt-<seconds>`.
pub(super) fn move_aside(path: &Path, now_ms: i64) -> Result<(), OpenError> {
    move_aside_as(path, "journal.corrupt", now_ms)
}

/// Moves a database and its companions to `<name>-<seconds>`.
pub(super) fn move_aside_as(path: &Path, name: &str, now_ms: i64) -> Result<(), OpenError> {
    let aside = path.with_file_name(format!("{name}-{}", now_ms / 1000));
    for (from, to) in database_files(path).iter().zip(database_files(&aside)) {
        match fs::rename(from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(OpenError::Directory {
                    action: "move",
                    path: from.clone(),
                    source: error,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes a database that nobody uses.
#[cfg(feature = "nats")]
pub(super) fn remove(path: &Path) -> io::Result<()> {
    for file in database_files(path) {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The open error for a database error.
pub(super) fn to_open_error(path: &Path, error: &rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    let fault = Fault::from_error(error);
    match fault.kind {
        FaultKind::Corrupt => OpenError::Corrupt {
            path,
            detail: fault.detail.to_string(),
        },
        FaultKind::ReadOnly => OpenError::ReadOnly { path },
        FaultKind::Newer => OpenError::NewerLog {
            path,
            detail: fault.detail.to_string(),
        },
        FaultKind::Full | FaultKind::Io | FaultKind::Busy | FaultKind::Refused | FaultKind::NotReplicated => {
            OpenError::Database { path, fault }
        }
    }
}

fn prepare(db: &Connection, settings: &JournalSettings) -> rusqlite::Result<()> {
    db.busy_timeout(Duration::from_millis(settings.lock_wait_ms.into()))?;
    let sync = match settings.durability {
        Durability::Full => "FULL",
        Durability::Process => "NORMAL",
    };
    // Setting it writes to the file even if nothing changes.
    let vacuum: i64 = db.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    if vacuum != INCREMENTAL {
        db.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    }
    // The writer places checkpoints between commits.
    db.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = {sync};
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA journal_size_limit = 67108864;
         PRAGMA cache_size = -{cache};
         PRAGMA temp_store = MEMORY;
         PRAGMA foreign_keys = OFF;
         PRAGMA trusted_schema = OFF;
         PRAGMA secure_delete = ON;",
        cache = settings.cache_kib.max(256),
    ))?;
    db.set_prepared_statement_cache_capacity(48);
    // No plan depends on what is bound: a statement is not prepared again because that is another value.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Checks that this program knows the file's format; returns the number of applied migrations.
pub(super) fn check_known(db: &Connection, path: &Path) -> Result<usize, OpenError> {
    let found: i64 = db
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| to_open_error(path, &error))?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    usize::try_from(found)
        .ok()
        .filter(|taken| *taken <= MIGRATIONS.len())
        .ok_or_else(|| OpenError::Newer {
            path: path.to_owned(),
            found,
            known,
        })
}

/// Whether there is a journal that needs no migration.
pub(super) fn is_current(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Ok(db) = Connection::open_with_flags(path, flags) else {
        return false;
    };
    let found = db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    found.is_ok_and(|found| usize::try_from(found).is_ok_and(|found| found >= MIGRATIONS.len()))
}

/// Applies the migrations that the file does not have yet: all of them, or none.
pub(super) fn migrate(db: &Connection, path: &Path) -> Result<(), OpenError> {
    let taken = check_known(db, path)?;
    let missing = &MIGRATIONS[taken..];
    if missing.is_empty() {
        return Ok(());
    }
    db.execute_batch(&format!(
        "BEGIN IMMEDIATE; {}; PRAGMA user_version = {}; COMMIT;",
        missing.join(";"),
        MIGRATIONS.len()
    ))
    .map_err(|error| to_open_error(path, &error))
}

/// Makes a journal as an earlier version did.
#[cfg(test)]
pub(super) fn make_as_of(path: &Path, migrations: usize) -> Connection {
    let db = Connection::open(path).unwrap();
    let vacuum = format!("PRAGMA auto_vacuum = {INCREMENTAL}; PRAGMA journal_mode = WAL;");
    db.execute_batch(&vacuum).unwrap();
    for (step, number) in MIGRATIONS.iter().zip(1..).take(migrations) {
        db.execute_batch(&format!("{step}; PRAGMA user_version = {number};"))
            .unwrap();
    }
    db
}

/// Temporary name of a new journal; leftovers of earlier runs are deleted.
const TEMPORARY_NAME: &str = "journal.new";

/// Creates the journal if no file of one exists.
pub(super) fn create_if_absent(path: &Path) -> Result<(), OpenError> {
    if parts(path).iter().any(|part| fs::symlink_metadata(part).is_ok()) {
        return Ok(());
    }
    let temporary = path.with_file_name(TEMPORARY_NAME);
    let made = make(&temporary, path);
    if made.is_err() {
        // Frees space on a full disk. The next start deletes what remains.
        for left in parts(&temporary) {
            let _ = fs::remove_file(left);
        }
    }
    made
}

fn make(temporary: &Path, path: &Path) -> Result<(), OpenError> {
    let failed = |action| {
        let path = temporary.to_owned();
        move |source| OpenError::Directory { action, path, source }
    };
    for left in parts(temporary) {
        match fs::remove_file(left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
            _ => {}
        }
    }
    private_file(temporary)?;
    fill(temporary)?;
    File::open(temporary)
        .and_then(|file| file.sync_all())
        .map_err(failed("write"))?;
    fs::rename(temporary, path).map_err(failed("move"))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("move"))
}

/// Writes the current schema into an empty file, without a write-ahead log.
fn fill(path: &Path) -> Result<(), OpenError> {
    let open_error = |error: rusqlite::Error| to_open_error(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(open_error)?;
    // Nobody else knows the file yet.
    let alone = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; \
         PRAGMA auto_vacuum = INCREMENTAL;";
    db.execute_batch(alone).map_err(open_error)?;
    migrate(&db, path)?;
    let key_hash = params![KEY_HASH, KeyHash::Blake2s];
    db.execute("INSERT INTO meta (name, value) VALUES (?1, ?2)", key_hash)
        .map_err(open_error)?;
    db.execute_batch("PRAGMA journal_mode = WAL")
        .map_err(open_error)?;
    db.close().map_err(|(_, error)| open_error(error))
}

/// Every file that may belong to a database.
fn parts(path: &Path) -> [PathBuf; 4] {
    let [database, log, index] = database_files(path);
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    [database, log, index, journal.into()]
}

#[cfg(test)]
mod tests {
    use super::super::journal::JournalSettings;
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn number(db: &Connection, pragma: &str) -> i64 {
        db.pragma_query_value(None, pragma, |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_new_journal_is_whole_and_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(dir.path());
        create_if_absent(&path).unwrap();
        assert_eq!(names(dir.path()), ["journal.db"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes[18..20], [2, 2], "it is kept with a write-ahead log");
        let db = open(&path, &JournalSettings::default()).unwrap();
        assert_eq!((number(&db, "auto_vacuum"), number(&db, "synchronous")), (2, 2));
        assert!(number(&db, "user_version") > 0);
        let inbox = db.query_row("SELECT count(*) FROM inbox", [], |row| row.get::<_, i64>(0));
        assert_eq!(inbox.unwrap(), 0);
        let log = fs::metadata(&parts(&path)[1]).unwrap();
        assert_eq!(log.len(), 0, "opening it has nothing to write");
    }

    #[test]
    fn what_a_crash_left_unfinished_is_made_anew() {
        let whole = tempfile::tempdir().unwrap();
        create_if_absent(&path_in(whole.path())).unwrap();
        let whole = fs::read(path_in(whole.path())).unwrap();
        for written in [0, 1, 4096, whole.len() / 2, whole.len()] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(TEMPORARY_NAME), &whole[..written]).unwrap();
            fs::write(dir.path().join("journal.new-wal"), "torn").unwrap();
            open(&path_in(dir.path()), &JournalSettings::default()).unwrap();
            assert!(
                !names(dir.path())
                    .iter()
                    .any(|name| name.starts_with(TEMPORARY_NAME)),
                "{written}"
            );
        }
    }

    #[test]
    fn nothing_is_made_beside_a_part_of_a_journal() {
        for part in parts(&path_in(Path::new(""))) {
            let dir = tempfile::tempdir().unwrap();
            let part = dir.path().join(part);
            fs::write(&part, "kept").unwrap();
            create_if_absent(&path_in(dir.path())).unwrap();
            assert_eq!(names(dir.path()).len(), 1);
            assert_eq!(fs::read(&part).unwrap(), b"kept");
        }
    }
}
