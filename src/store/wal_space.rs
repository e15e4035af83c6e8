//! Space for the write-ahead log, which is filled with zeros before a commit needs it.
//!
//! To sync bytes that a file did not have before, a file system with a journal also writes where they are and how long the file is,
//! and waits once more. After a checkpoint SQLite writes over the log from its start, but until then each commit makes it longer.
//! So zeros go ahead of it, many pages at a time, while no other process can write to it. SQLite takes them for what they are: a log ends before the first frame that does not have the number
//! in the log's header.

use super::writer::{free_bytes, is_low, wal_pages};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

/// Zeros ahead of a short log.
const MIN_BYTES: u64 = 64 << 10;
/// Most zeros ahead of it: the next commit waits for them.
const MAX_BYTES: u64 = 512 << 10;
/// Bytes that are written at a time.
const PIECE: usize = 16 << 10;
/// Bytes of the log's header.
const HEADER: u64 = 32;
/// Bytes of a page in the log, with its header.
const FRAME: u64 = 4096 + 24;

/// The file of the log, and what it has.
#[derive(Debug, Default)]
pub(super) struct WalSpace {
    /// None before the first commit.
    file: Option<File>,
    /// The length of the file when it was last looked at; none before that.
    length: Option<u64>,
}

impl WalSpace {
    /// Adds zeros if a commit made the file longer. Without them a commit takes longer, and nothing else.
    pub(super) fn after_commit(&mut self, db: &Connection) {
        if let Err(error) = self.look(db) {
            tracing::debug!(%error, "cannot extend the write-ahead log before it is needed");
        }
    }

    fn look(&mut self, db: &Connection) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => match db.path() {
                None | Some("") => return Ok(()),
                Some(path) => {
                    let file = OpenOptions::new().write(true).open(format!("{path}-wal"))?;
                    self.file.insert(file)
                }
            },
        };
        let length = file.metadata()?.len();
        let last = self.length.replace(length);
        if last.is_none_or(|last| length > last) {
            self.length = Some(extend(file, db)?);
        }
        Ok(())
    }
}

/// Adds zeros if what the log has is near the end of its file, and there is room on the disk. Returns the file's length.
fn extend(file: &File, db: &Connection) -> io::Result<u64> {
    let used = HEADER + wal_pages(db).unwrap_or_default() * FRAME;
    let wanted = used + used.clamp(MIN_BYTES, MAX_BYTES);
    // Only who has the write lock may write to the log: commands on the command line commit to the journal, too.
    let lock = Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(io::Error::other)?;
    let mut length = file.metadata()?.len();
    let is_near = (HEADER..used + MIN_BYTES / 2).contains(&length);
    if is_near && !is_low(free_bytes(db)) {
        let zeros = [0; PIECE];
        while length < wanted {
            file.write_all_at(&zeros, length)?;
            length += PIECE as u64;
        }
    }
    lock.rollback().map_err(io::Error::other)?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use tempfile::TempDir;

    fn open(dir: &Path) -> Connection {
        let db = Connection::open(dir.join("test.db")).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;")
            .unwrap();
        db
    }

    /// A database with a table, and its directory.
    fn made() -> (TempDir, Connection) {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        db.execute_batch("CREATE TABLE counts (count INTEGER); INSERT INTO counts VALUES (0);")
            .unwrap();
        (dir, db)
    }

    fn count_up(db: &Connection) {
        db.execute("UPDATE counts SET count = count + 1", []).unwrap();
    }

    fn count(db: &Connection) -> i64 {
        db.query_row("SELECT count FROM counts", [], |row| row.get(0))
            .unwrap()
    }

    fn length(dir: &TempDir) -> u64 {
        fs::metadata(dir.path().join("test.db-wal")).unwrap().len()
    }

    #[test]
    fn the_file_grows_by_many_pages_at_a_time() {
        let (dir, db) = made();
        let mut space = WalSpace::default();
        let mut lengths = vec![length(&dir)];
        for _ in 0..1000 {
            count_up(&db);
            space.after_commit(&db);
            lengths.push(length(&dir));
        }
        let steps: Vec<u64> = lengths.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let grown: Vec<u64> = steps.iter().copied().filter(|step| *step > 0).collect();
        assert!(steps[0] >= MIN_BYTES, "{grown:?}");
        assert!(grown.iter().all(|step| *step >= MIN_BYTES), "{grown:?}");
        assert!(grown.len() < 20, "{grown:?}");
        let used = HEADER + wal_pages(&db).unwrap() * FRAME;
        assert!(length(&dir) < used + MAX_BYTES + PIECE as u64, "it is bounded");
    }

    #[test]
    fn a_file_with_room_is_left_as_it_is_by_the_next_process() {
        let (dir, db) = made();
        count_up(&db);
        WalSpace::default().after_commit(&db);
        let before = length(&dir);
        for _ in 0..5 {
            count_up(&db);
            WalSpace::default().after_commit(&db);
        }
        assert_eq!(length(&dir), before);
    }

    #[test]
    fn nothing_is_written_while_another_process_writes() {
        let (dir, db) = made();
        db.busy_timeout(std::time::Duration::ZERO).unwrap();
        count_up(&db);
        let other = open(dir.path());
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        count_up(&other);
        let before = length(&dir);
        let mut space = WalSpace::default();
        assert!(space.look(&db).is_err());
        assert_eq!(length(&dir), before);
        other.execute_batch("COMMIT").unwrap();
        count_up(&db);
        space.look(&db).unwrap();
        assert!(length(&dir) >= before + MIN_BYTES);
        assert_eq!(count(&other), 3);
    }

    #[test]
    fn others_may_commit_at_any_time() {
        let (dir, db) = made();
        let path = dir.path().to_owned();
        let writes = |db: &Connection, mut after: Box<dyn FnMut(&Connection)>| {
            db.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
            db.execute_batch("PRAGMA synchronous = OFF").unwrap();
            for _ in 0..300 {
                count_up(db);
                after(db);
            }
        };
        let other = std::thread::spawn(move || writes(&open(&path), Box::new(|_| ())));
        let mut space = WalSpace::default();
        writes(&db, Box::new(move |db| space.after_commit(db)));
        other.join().unwrap();
        assert_eq!(count(&db), 600);
        let sound: String = db
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(sound, "ok");
    }

    #[test]
    fn a_log_with_zeros_at_its_end_is_read_and_goes_on() {
        let (dir, db) = made();
        let mut space = WalSpace::default();
        for _ in 0..40 {
            count_up(&db);
            space.after_commit(&db);
        }
        // What a power failure leaves: no index in memory, and nobody closed the log.
        let copy = tempfile::tempdir().unwrap();
        for name in ["test.db", "test.db-wal"] {
            fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        }
        let db = open(copy.path());
        assert_eq!(count(&db), 40);
        count_up(&db);
        drop(db);
        assert_eq!(count(&open(copy.path())), 41);
    }

    #[test]
    fn an_emptied_log_gets_space_again() {
        let (dir, db) = made();
        let mut space = WalSpace::default();
        count_up(&db);
        space.after_commit(&db);
        let emptied = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        assert_eq!((emptied.unwrap(), length(&dir)), (0, 0));
        space.after_commit(&db);
        assert_eq!(length(&dir), 0, "no header, no zeros");
        count_up(&db);
        space.after_commit(&db);
        assert!(length(&dir) > MIN_BYTES);
        assert_eq!(count(&db), 2);
    }

    #[test]
    fn a_database_without_a_file_is_left_alone() {
        let db = Connection::open_in_memory().unwrap();
        let mut space = WalSpace::default();
        space.look(&db).unwrap();
        assert!(space.file.is_none());
    }
}
