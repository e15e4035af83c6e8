//! The journal for people: counts, lists, entries, exports, and repairs by hand.
//!
//! Reading works while a relay runs: it opens the database read-only and takes no lock. Repairs ([`Inspector::retry`],
//! [`Inspector::discard`]) take the state directory's lock and fail while a relay holds it, because its writer keeps row
//! ids and keys in memory; that writer makes them then ([`Command::Repair`](super::Command::Repair)).

use super::access::{self, AccessRow, UsageRow};
use super::completion::{InboxSeq, OpSeq};
use super::fault::{Fault, OpenError};
use super::finished::{self, PackedRange};
use super::journal::JournalSettings;
use super::lock::StateLock;
use super::log;
use super::repair::{self, Beside, Repair, Repaired};
use super::replication;
use super::schema;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Result as SqlResult, Row, Transaction, params};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rows read at a time by an export.
const PAGE: u32 = 256;

/// A read-only view of a journal.
#[derive(Debug)]
pub struct Inspector {
    db: Connection,
    path: PathBuf,
    version: usize,
}

/// An entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A message.
    Message(InboxSeq),
    /// An op.
    Op(OpSeq),
    /// A quarantined line.
    Quarantined(i64),
}

/// A part of the journal that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Messages that wait or run.
    Unfinished,
    /// Messages whose turn ended; their text is gone.
    Finished,
    /// Ops that are not settled, and ops that were dropped.
    Ops,
    /// Lines that could not be decoded.
    Quarantine,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which entry.
    pub item: Item,
    /// Its state in one word.
    pub state: &'static str,
    /// Its session; a quarantined line has none.
    pub session: Option<String>,
    /// The delivery's buffer id, or an op's chat.
    pub name: Option<String>,
    /// Why it is quarantined, or was dropped.
    pub reason: Option<String>,
    /// Number of starts.
    pub attempt: u32,
    /// When it came, Unix milliseconds.
    pub at: i64,
    /// When its turn ended or it was dropped, Unix milliseconds.
    pub ended_at: Option<i64>,
    /// Stored size in bytes.
    pub bytes: u64,
}

/// Counts of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that wait.
    pub queued: u64,
    /// Messages whose turn runs.
    pub running: u64,
    /// Finished messages still listed.
    pub finished: u64,
    /// Unsettled ops.
    pub ops: u64,
    /// Ops that were dropped.
    pub dropped: u64,
    /// Quarantined lines.
    pub quarantined: u64,
    /// Remembered chats.
    pub chats: u64,
}

/// Unfinished work, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Messages that wait.
    pub waiting: u64,
    /// Messages whose turn runs.
    pub running: u64,
    /// Unsettled ops.
    pub owed: u64,
    /// When the oldest message that waits or runs came, Unix milliseconds.
    pub oldest_message: Option<i64>,
    /// When the oldest unsettled op was owed, Unix milliseconds.
    pub oldest_op: Option<i64>,
}

/// Why reading or repairing failed.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no journal.
    #[error("no journal at {}; a relay with this state directory has not run yet", .0.display())]
    NoJournal(PathBuf),
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database failed.
    #[error("cannot read the journal: {0}")]
    Fault(Fault),
    /// The database failed, and nothing was changed.
    #[error("cannot change the journal: {0}")]
    NotChanged(Fault),
    /// There is no such entry.
    #[error("there is no such entry in the journal")]
    NoSuchItem,
    /// The entry is not in a state that can be retried.
    #[error("this entry cannot be retried: only a running message, a sent op or a dropped op can")]
    NotRetryable,
    /// The message has ended, or is no message.
    #[error(
        "this entry cannot be dropped: only a message that has not ended can, and no run of a scheduled job"
    )]
    NotDroppable,
}

impl InspectError {
    /// The error of a change.
    pub(super) fn of_change(error: &rusqlite::Error) -> Self {
        Self::NotChanged(Fault::from_error(error))
    }
}

impl From<rusqlite::Error> for InspectError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Fault(Fault::from_error(&error))
    }
}

impl Inspector {
    /// Opens the journal of a state directory for reading.
    pub fn open(dir: &Path) -> Result<Self, InspectError> {
        let path = existing(dir)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let refused = |error| InspectError::Open(schema::to_open_error(&path, &error));
        let db = Connection::open_with_flags(&path, flags).map_err(refused)?;
        db.busy_timeout(Duration::from_secs(5)).map_err(refused)?;
        let version = schema::check_known(&db, &path)?;
        if version >= schema::WITH_LOG {
            log::create_shadow(&db).map_err(refused)?;
        }
        if version < schema::WITH_DROPPED_OPS {
            // A journal of an older version has none; its writer migrates it.
            db.execute_batch(
                "CREATE TEMP TABLE dropped (seq, session, chat, op, inbox_seq, created_at, dropped_at, reason)",
            )
            .map_err(refused)?;
        }
        Ok(Self { db, path, version })
    }

    /// One moment of the journal, its log included; whatever is read while it lives belongs to it.
    fn snapshot(&self) -> SqlResult<Transaction<'_>> {
        let snapshot = self.db.unchecked_transaction()?;
        if self.version >= schema::WITH_LOG {
            log::fill_shadow(&snapshot)?;
        }
        Ok(snapshot)
    }

    /// Makes packed records visible, if this section has some.
    fn unpack(&self, section: Section, wanted: PackedRange) -> SqlResult<()> {
        if section == Section::Finished && self.version >= schema::WITH_PACKS {
            finished::unpack(&self.db, wanted)?;
        }
        Ok(())
    }

    /// The database's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts of everything.
    pub fn counts(&self) -> Result<Counts, InspectError> {
        let _snapshot = self.snapshot()?;
        let count = |what: &str| -> SqlResult<u64> {
            let count: i64 = self
                .db
                .query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0))?;
            Ok(u64::try_from(count).unwrap_or(0))
        };
        let packed = if self.version >= schema::WITH_PACKS {
            u64::try_from(finished::count(&self.db)?).unwrap_or(0)
        } else {
            0
        };
        Ok(Counts {
            queued: count("inbox WHERE state = 0")?,
            running: count("inbox WHERE state = 1")?,
            finished: count("done")? + packed,
            ops: count("outbox")?,
            dropped: count("dropped")?,
            quarantined: count("quarantine")?,
            chats: count("chats")?,
        })
    }

    /// Counts of unfinished work only.
    pub fn depth(&self) -> Result<Depth, InspectError> {
        let _snapshot = self.snapshot()?;
        let one = |sql: &str| -> SqlResult<Option<i64>> {
            let found = self.db.query_row(sql, [], |row| row.get(0)).optional()?;
            Ok(found.flatten())
        };
        let count = |sql: &str| Ok::<_, rusqlite::Error>(one(sql)?.and_then(|count| count.try_into().ok()));
        Ok(Depth {
            waiting: count("SELECT count(*) FROM inbox WHERE state = 0")?.unwrap_or(0),
            running: count("SELECT count(*) FROM inbox WHERE state = 1")?.unwrap_or(0),
            owed: count("SELECT count(*) FROM outbox")?.unwrap_or(0),
            oldest_message: one("SELECT received_at FROM inbox WHERE state < 2 ORDER BY seq LIMIT 1")?,
            oldest_op: one("SELECT created_at FROM outbox ORDER BY seq LIMIT 1")?,
        })
    }

    /// When the first waiting message of a session came, Unix milliseconds; none when none waits.
    pub fn waiting_since(&self, session: &str) -> Result<Option<i64>, InspectError> {
        let _snapshot = self.snapshot()?;
        let sql = "SELECT received_at FROM inbox WHERE session = ?1 AND state = 0 ORDER BY seq LIMIT 1";
        let mut find = self.db.prepare_cached(sql)?;
        Ok(find.query_row([session], |row| row.get(0)).optional()?)
    }

    /// Who may drive an agent, as verbs and pairings decided it.
    pub fn access(&self) -> Result<Vec<AccessRow>, InspectError> {
        Ok(access::rows(&self.db)?)
    }

    /// What people have used since a day.
    pub fn usage(&self, since_day: i64) -> Result<Vec<UsageRow>, InspectError> {
        let _snapshot = self.snapshot()?;
        Ok(access::usage(&self.db, since_day)?)
    }

    /// Up to `limit` entries of a section with a number above `after`, oldest first.
    pub fn list(&self, section: Section, after: i64, limit: u32) -> Result<Vec<Listed>, InspectError> {
        let _snapshot = self.snapshot()?;
        Ok(self.page(section, after, limit)?)
    }

    fn page(&self, section: Section, after: i64, limit: u32) -> SqlResult<Vec<Listed>> {
        self.unpack(section, PackedRange::After(after, limit))?;
        let sql = format!("{} WHERE seq > ?1 ORDER BY seq LIMIT ?2", section.select());
        let mut find = self.db.prepare_cached(&sql)?;
        let rows = find.query_map(params![after, limit], |row| section.listed(row))?;
        rows.collect()
    }

    /// The `limit` newest entries of a section, newest first.
    pub fn latest(&self, section: Section, limit: u32) -> Result<Vec<Listed>, InspectError> {
        let _snapshot = self.snapshot()?;
        self.unpack(section, PackedRange::Latest(limit))?;
        let sql = format!("{} ORDER BY seq DESC LIMIT ?1", section.select());
        let mut find = self.db.prepare_cached(&sql)?;
        let rows = find.query_map([limit], |row| section.listed(row))?;
        Ok(rows.collect::<SqlResult<_>>()?)
    }

    /// One entry and its content: a message's or quarantined line, an op's encoding.
    pub fn show(&self, item: Item) -> Result<(Listed, Option<Vec<u8>>), InspectError> {
        let _snapshot = self.snapshot()?;
        for section in item.sections() {
            self.unpack(*section, PackedRange::One(item.number()))?;
            let sql = format!("{} WHERE seq = ?1", section.select());
            let mut find = self.db.prepare_cached(&sql)?;
            let found = find
                .query_row([item.number()], |row| section.listed(row))
                .optional()?;
            if let Some(listed) = found {
                return Ok((listed, self.content(*section, item.number())?));
            }
        }
        Err(InspectError::NoSuchItem)
    }

    /// Passes every entry of a section to `each`, oldest first, page by page, until it breaks.
    pub fn export<E: From<InspectError>>(
        &self,
        section: Section,
        mut each: impl FnMut(Listed, Option<Vec<u8>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut after = i64::MIN;
        loop {
            let page = self
                .page_with_content(section, after)
                .map_err(InspectError::from)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = last.item.number();
            for (listed, content) in page {
                each(listed, content)?;
            }
        }
    }

    /// Resets a running or interrupted message to waiting, or a sent or dropped op to pending. Fails while a relay runs.
    pub fn retry(dir: &Path, item: Item, now_ms: i64) -> Result<(), InspectError> {
        match mend(dir, Repair::Retry, item, now_ms)? {
            Repaired::Refused => Err(InspectError::NotRetryable),
            _ => Ok(()),
        }
    }

    /// Drops an entry: a message ends as ignored, an op or a quarantined line is deleted. Fails while a relay runs.
    pub fn discard(dir: &Path, item: Item, now_ms: i64) -> Result<(), InspectError> {
        match mend(dir, Repair::Drop, item, now_ms)? {
            Repaired::Refused if matches!(item, Item::Message(_)) => Err(InspectError::NotDroppable),
            Repaired::Refused => Err(InspectError::NoSuchItem),
            _ => Ok(()),
        }
    }

    fn page_with_content(&self, section: Section, after: i64) -> SqlResult<Vec<(Listed, Option<Vec<u8>>)>> {
        let _snapshot = self.snapshot()?;
        let page = self.page(section, after, PAGE)?.into_iter();
        page.map(|listed| {
            let content = self.content(section, listed.item.number())?;
            Ok((listed, content))
        })
        .collect()
    }

    fn content(&self, section: Section, number: i64) -> SqlResult<Option<Vec<u8>>> {
        let sql = match section {
            // That of an interrupted message is kept.
            Section::Unfinished | Section::Finished => "SELECT line FROM inbox WHERE seq = ?1",
            Section::Ops => {
                "SELECT op FROM outbox WHERE seq = ?1 UNION ALL SELECT op FROM dropped WHERE seq = ?1"
            }
            Section::Quarantine => "SELECT line FROM quarantine WHERE seq = ?1",
        };
        Ok(self
            .db
            .prepare_cached(sql)?
            .query_row([number], |row| row.get(0))
            .optional()?
            .flatten())
    }
}

impl Item {
    /// Its row id.
    pub fn number(self) -> i64 {
        match self {
            Self::Message(InboxSeq(number)) | Self::Op(OpSeq(number)) | Self::Quarantined(number) => number,
        }
    }

    fn sections(self) -> &'static [Section] {
        match self {
            Self::Message(_) => &[Section::Unfinished, Section::Finished],
            Self::Op(_) => &[Section::Ops],
            Self::Quarantined(_) => &[Section::Quarantine],
        }
    }
}

impl Section {
    /// Columns: number, state, session, name, reason, attempt, at, `ended_at`, bytes.
    fn select(self) -> &'static str {
        match self {
            Self::Unfinished => {
                "SELECT * FROM (
                 SELECT seq, state, session, buffer_id, NULL, attempt, received_at, NULL, ifnull(length(line), 0)
                 FROM inbox WHERE state < 2)"
            }
            Self::Finished => {
                "SELECT seq, state, session, buffer_id, NULL, attempt, received_at, ended_at,
                 ifnull((SELECT length(line) FROM inbox WHERE inbox.seq = done.seq), 0) FROM done"
            }
            Self::Ops => {
                "SELECT * FROM (
                 SELECT seq, state, session, chat, NULL, 0, created_at, NULL, length(op) FROM outbox
                 UNION ALL
                 SELECT seq, 2, session, chat, reason, 0, created_at, dropped_at, length(op) FROM dropped)"
            }
            Self::Quarantine => "SELECT seq, 0, NULL, buffer_id, reason, 0, at, NULL, length(line) FROM quarantine",
        }
    }

    fn listed(self, row: &Row<'_>) -> SqlResult<Listed> {
        let number = row.get(0)?;
        let (item, words): (_, &[&'static str]) = match self {
            Self::Unfinished | Self::Finished => (
                Item::Message(InboxSeq(number)),
                &[
                    "queued",
                    "running",
                    "done",
                    "stopped",
                    "failed",
                    "interrupted",
                    "ignored",
                ],
            ),
            Self::Ops => (Item::Op(OpSeq(number)), &["pending", "sent", "dropped"]),
            Self::Quarantine => (Item::Quarantined(number), &["quarantined"]),
        };
        Ok(Listed {
            item,
            state: words.get(usize::from(row.get::<_, u8>(1)?)).unwrap_or(&"unknown"),
            session: row.get(2)?,
            name: row.get(3)?,
            reason: row.get(4)?,
            attempt: row.get(5)?,
            at: row.get(6)?,
            ended_at: row.get(7)?,
            bytes: u64::try_from(row.get::<_, i64>(8)?).unwrap_or(0),
        })
    }
}

fn existing(dir: &Path) -> Result<PathBuf, InspectError> {
    let path = schema::path_in(dir);
    let denied = |action, path: &Path, source| {
        let path = path.to_owned();
        InspectError::Open(OpenError::Directory { action, path, source })
    };
    match std::fs::metadata(&path) {
        Ok(_) => {}
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            return Err(denied("look into", dir, source));
        }
        Err(_) => return Err(InspectError::NoJournal(path)),
    }
    // The database would report a disk error.
    match File::open(&path) {
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => Err(denied("read", &path, source)),
        _ => Ok(path),
    }
}

/// One repair in its own transaction, with the state directory locked.
fn mend(dir: &Path, repair: Repair, item: Item, now_ms: i64) -> Result<Repaired, InspectError> {
    Inspector::open(dir)?.show(item)?;
    let path = existing(dir)?;
    let lock = StateLock::take_existing(dir, now_ms)?;
    let mut db = schema::open_held(&path, &JournalSettings::default(), &lock)?;
    if replication::is_member(&db) {
        return Err(OpenError::Replicated { path }.into());
    }
    let mut change = || {
        let transaction = db.transaction()?;
        let repaired = repair::apply(&transaction, repair, item, Beside::Nobody, now_ms)?;
        transaction.commit()?;
        Ok(repaired)
    };
    let repaired = change().map_err(|error| InspectError::of_change(&error))?;
    drop(db);
    drop(lock);
    Ok(repaired)
}
