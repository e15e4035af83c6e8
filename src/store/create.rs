//! The first journal of a state directory: made whole beside its place, then moved there, so that it is there or it is not.
//!
//! Nothing can be lost that is not there yet, so the disk is waited for once and not at each step. It never touches a
//! directory in which anything of a journal lies, and what could not be made whole it takes away again.

use super::fault::OpenError;
use super::lock::{database_files, private_file};
use super::schema::{refused, step_up};
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The name under which it is made; what an earlier run left there is of no use to anybody.
const UNFINISHED: &str = "journal.new";

/// Makes the journal when there is nothing of one.
pub(super) fn create_where_none_is(path: &Path) -> Result<(), OpenError> {
    if parts(path).iter().any(|part| fs::symlink_metadata(part).is_ok()) {
        return Ok(());
    }
    let unfinished = path.with_file_name(UNFINISHED);
    let made = make(&unfinished, path);
    if made.is_err() {
        // A disk that is full gets its room back. What stays is taken away by the next start.
        for left in parts(&unfinished) {
            let _ = fs::remove_file(left);
        }
    }
    made
}

fn make(unfinished: &Path, path: &Path) -> Result<(), OpenError> {
    let failed = |action| {
        let path = unfinished.to_owned();
        move |source| OpenError::Directory { action, path, source }
    };
    for left in parts(unfinished) {
        match fs::remove_file(left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
            _ => {}
        }
    }
    private_file(unfinished)?;
    fill(unfinished)?;
    File::open(unfinished)
        .and_then(|file| file.sync_all())
        .map_err(failed("write"))?;
    fs::rename(unfinished, path).map_err(failed("move"))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("move"))
}

/// Writes the newest format into an empty file. All of it is in the file itself: the log begins with the first commit
/// after this.
fn fill(path: &Path) -> Result<(), OpenError> {
    let told = |error: rusqlite::Error| refused(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(told)?;
    let unwaiting =
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA auto_vacuum = INCREMENTAL;";
    db.execute_batch(unwaiting).map_err(told)?;
    step_up(&db, path)?;
    db.execute_batch("PRAGMA journal_mode = WAL").map_err(told)?;
    db.close().map_err(|(_, error)| told(error))
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
    use super::super::schema::{open, path_in};
    use super::super::settings::JournalSettings;
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
        create_where_none_is(&path).unwrap();
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
        create_where_none_is(&path_in(whole.path())).unwrap();
        let whole = fs::read(path_in(whole.path())).unwrap();
        for written in [0, 1, 4096, whole.len() / 2, whole.len()] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(UNFINISHED), &whole[..written]).unwrap();
            fs::write(dir.path().join("journal.new-wal"), "torn").unwrap();
            open(&path_in(dir.path()), &JournalSettings::default()).unwrap();
            assert!(
                !names(dir.path()).iter().any(|name| name.starts_with(UNFINISHED)),
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
            create_where_none_is(&path_in(dir.path())).unwrap();
            assert_eq!(names(dir.path()).len(), 1);
            assert_eq!(fs::read(&part).unwrap(), b"kept");
        }
    }
}
