//! What a journal notes about the cluster's stream, in the table `meta`: how far it has read, whose the active role is, and whether it
//! has commits that the stream has not.
//!
//! Whose the role is comes from the stream and is the same in every copy. The rest is this journal's own, and is removed from a copy
//! that another member installs.

use rusqlite::{Connection, OptionalExtension as _, Result, params};

/// The last record that is in the journal.
pub(super) const POSITION: &str = "stream_seq";
/// The process id of a relay that is active with this journal.
pub(super) const ACTIVE: &str = "stream_active";
/// Names this journal in the stream.
const MEMBER: &str = "stream_member";
/// The journal whose the active role is without a limit of time.
const HOLDER: &str = "stream_holder";
/// Commits that were made without the server, since the position.
const ALONE: &str = "stream_alone";
/// The relay may go on without the server.
const GOES_ON: &str = "stream_goes_on";

/// All of them.
pub(super) const ALL: [&str; 6] = [POSITION, ACTIVE, MEMBER, HOLDER, ALONE, GOES_ON];

/// What a journal says about the cluster's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMarks {
    /// The last record that is in it; none if it was never in a cluster.
    pub position: Option<u64>,
    /// Names it in the stream.
    pub member: Option<u64>,
    /// The journal whose the active role is without a limit of time.
    pub holder: Option<u64>,
    /// Commits that were made without the server.
    pub alone: Option<u64>,
    /// The relay may go on without the server.
    pub goes_on: bool,
}

#[cfg(feature = "nats")]
impl StreamMarks {
    /// Whether the active role is this journal's without a limit of time, and was not being given back.
    pub fn may_go_on(&self) -> bool {
        self.goes_on && self.holder.is_some() && self.holder == self.member
    }
}

fn get(db: &Connection, name: &str) -> Result<Option<u64>> {
    let number: Option<i64> = db
        .prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    Ok(number.and_then(|number| u64::try_from(number).ok()))
}

fn set(db: &Connection, name: &str, value: Option<u64>) -> Result<()> {
    let Some(value) = value else {
        db.prepare_cached("DELETE FROM meta WHERE name = ?1")?
            .execute([name])?;
        return Ok(());
    };
    db.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?
        .execute(params![name, i64::try_from(value).unwrap_or(i64::MAX)])?;
    Ok(())
}

pub(super) fn read(db: &Connection) -> Result<StreamMarks> {
    Ok(StreamMarks {
        position: get(db, POSITION)?,
        member: get(db, MEMBER)?,
        holder: get(db, HOLDER)?,
        alone: get(db, ALONE)?,
        goes_on: get(db, GOES_ON)?.is_some(),
    })
}

pub(super) fn set_position(db: &Connection, seq: u64) -> Result<()> {
    set(db, POSITION, Some(seq))
}

pub(super) fn set_alone(db: &Connection, commits: Option<u64>) -> Result<()> {
    set(db, ALONE, commits)
}

pub(super) fn set_goes_on(db: &Connection, goes_on: bool) -> Result<()> {
    set(db, GOES_ON, goes_on.then_some(1))
}

#[cfg(feature = "nats")]
pub use member::{set_aside, stand_down, stream_marks};

#[cfg(feature = "nats")]
pub(super) use member::{adopt, name_journal, set_holder};

#[cfg(feature = "nats")]
mod member {
    use super::super::fault::{Fault, OpenError};
    use super::super::lock::StateLock;
    use super::super::schema;
    use super::{
        ACTIVE, ALONE, GOES_ON, HOLDER, MEMBER, POSITION, StreamMarks, get, read, set, set_goes_on,
        set_position,
    };
    use rusqlite::{Connection, OpenFlags, Result};
    use std::path::Path;
    use std::time::Duration;

    /// How long another connection may hold the journal.
    const LOCK_WAIT: Duration = Duration::from_secs(1);

    pub(in crate::store) fn set_holder(db: &Connection, holder: Option<u64>) -> Result<()> {
        set(db, HOLDER, holder)
    }

    /// The journal's name in the stream; it gets one if it has none.
    pub(in crate::store) fn name_journal(db: &Connection) -> Result<u64> {
        if let Some(member) = get(db, MEMBER)? {
            return Ok(member);
        }
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| {
            rusqlite::Error::ToSqlConversionFailure(format!("no random bytes: {error}").into())
        })?;
        let member = u64::from_le_bytes(bytes) >> 1;
        set(db, MEMBER, Some(member))?;
        Ok(member)
    }

    /// A copy of another member's journal becomes one of its own, with everything up to this record.
    pub(in crate::store) fn adopt(db: &Connection, position: Option<u64>) -> Result<()> {
        for own in [ACTIVE, MEMBER, ALONE, GOES_ON] {
            set(db, own, None)?;
        }
        match (position, get(db, POSITION)?) {
            (Some(position), _) => set_position(db, position),
            // The copy of a journal from before the cluster's first record.
            (None, None) => set_position(db, 0),
            (None, Some(_)) => Ok(()),
        }
    }

    fn open(dir: &Path, flags: OpenFlags) -> std::result::Result<Option<Connection>, Fault> {
        let path = schema::path_in(dir);
        if !path.try_exists().unwrap_or(true) {
            return Ok(None);
        }
        let failed = |error: rusqlite::Error| Fault::from_error(&error);
        let db =
            Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
        db.busy_timeout(LOCK_WAIT).map_err(failed)?;
        Ok(Some(db))
    }

    /// What the journal of a state directory says, whoever uses it; nothing if there is none. Blocking.
    pub fn stream_marks(dir: &Path) -> std::result::Result<StreamMarks, Fault> {
        let Some(db) = open(dir, OpenFlags::SQLITE_OPEN_READ_WRITE)? else {
            return Ok(StreamMarks::default());
        };
        match read(&db) {
            Ok(marks) => Ok(marks),
            // An empty file, or a journal from before there were clusters.
            Err(rusqlite::Error::SqliteFailure(error, _)) if error.code == rusqlite::ErrorCode::Unknown => {
                Ok(StreamMarks::default())
            }
            Err(error) => Err(Fault::from_error(&error)),
        }
    }

    /// The relay does not go on without the server any more. With a position: the stream has everything that is in the journal, and
    /// ends there. Blocking.
    pub fn stand_down(dir: &Path, position: Option<u64>) -> std::result::Result<(), Fault> {
        let failed = |error: rusqlite::Error| Fault::from_error(&error);
        let Some(mut db) = open(dir, OpenFlags::SQLITE_OPEN_READ_WRITE)? else {
            return Ok(());
        };
        let mut note = || {
            let transaction = db.transaction()?;
            set_goes_on(&transaction, false)?;
            if let (Some(position), Some(_)) = (position, get(&transaction, ALONE)?) {
                set(&transaction, ALONE, None)?;
                set_position(&transaction, position)?;
            }
            transaction.commit()
        };
        note().map_err(failed)
    }

    /// Keeps the journal of a state directory beside as `journal.stale-*`: another history is the cluster's. Blocking.
    pub fn set_aside(dir: &Path, assigned: bool, now_ms: i64) -> std::result::Result<(), OpenError> {
        let lock = StateLock::take(dir, assigned, now_ms)?;
        schema::move_aside_as(&schema::path_in(dir), "journal.stale", now_ms)?;
        drop(lock);
        Ok(())
    }
}
