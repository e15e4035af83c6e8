//! Records of finished messages, many in one row.
//!
//! A record in a pack is what differs from the record before it, about 20 bytes. Messages that came and ended while they were in
//! the log are packed at once if they are many ([`Overlay::materialise`](super::log::Overlay::materialise)); all others are rows of
//! `done` first, which upkeep packs when there are enough.
//!
//! Invariants:
//!
//! - A record is in `done` or in one pack. The packs do not overlap: each has all packed records from its first to its last.
//! - The record of an interrupted message stays in `done`, because a repair takes it back.
//! - A pack has no dedupe keys. Those that the index does not have yet are in `recent_keys` until it has.
//! - A pack that cannot be read, because the disk changed it, stays as it is until all of it is too old; it stops nothing else. Records
//!   that would lie in it get a pack of their own.

use super::completion::{InboxKind, InboxSeq, RowState};
use super::dedupe::DedupeKey;
use super::varint;
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

pub(super) const SCHEMA: &str = "
    CREATE TABLE done_packs (
        last INTEGER PRIMARY KEY,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL,
        oldest_end INTEGER NOT NULL,
        newest_end INTEGER NOT NULL,
        records BLOB NOT NULL
    ) STRICT;
    CREATE TABLE recent_keys (seq INTEGER PRIMARY KEY, keys BLOB NOT NULL) STRICT;
";

/// Records of one pack.
const MAX_RECORDS: u32 = 1024;
/// Rows that are packed at a time.
const PACKED_ROWS: u32 = if cfg!(test) { 40 } else { 512 };
/// Packs that retention looks at in a slice.
const FORGET_SLICE: i64 = 16;
/// Bytes of a key in `recent_keys`: the key, and how far its message is before the row's.
const KEY_BYTES: usize = 20;

/// A finished message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinishedRecord<'r> {
    pub(super) seq: i64,
    pub(super) kind: InboxKind,
    pub(super) session: &'r str,
    pub(super) buffer_id: Option<&'r str>,
    pub(super) state: RowState,
    pub(super) attempt: u32,
    pub(super) received_at: i64,
    pub(super) started_at: Option<i64>,
    pub(super) ended_at: i64,
}

/// What a record is written against.
#[derive(Debug, Default)]
struct Before {
    seq: i64,
    received_at: i64,
    session: Vec<u8>,
    buffer_id: Vec<u8>,
}

/// Makes packs, in the order of their records.
#[derive(Debug, Default)]
struct Packer {
    packs: Vec<Pack>,
    bytes: Vec<u8>,
    before: Before,
    first: i64,
    count: u32,
    oldest_end: i64,
    newest_end: i64,
}

/// A row of `done_packs`.
#[derive(Debug)]
struct Pack {
    last: i64,
    first: i64,
    count: u32,
    oldest_end: i64,
    newest_end: i64,
    records: Vec<u8>,
}

impl Packer {
    /// Adds a record; its number is higher than all before it.
    fn push(&mut self, record: &FinishedRecord<'_>) {
        if self.count >= MAX_RECORDS {
            self.finish();
        }
        if self.count == 0 {
            self.first = record.seq;
            (self.oldest_end, self.newest_end) = (record.ended_at, record.ended_at);
        }
        self.count += 1;
        self.oldest_end = self.oldest_end.min(record.ended_at);
        self.newest_end = self.newest_end.max(record.ended_at);
        let (bytes, before) = (&mut self.bytes, &mut self.before);
        varint::put_signed(bytes, record.seq.wrapping_sub(before.seq));
        bytes.push(flags(record));
        if record.attempt != 1 {
            varint::put(bytes, record.attempt.into());
        }
        put_text(bytes, &mut before.session, record.session);
        if let Some(id) = record.buffer_id {
            put_text(bytes, &mut before.buffer_id, id);
        }
        varint::put_signed(bytes, record.received_at.wrapping_sub(before.received_at));
        if let Some(at) = record.started_at {
            varint::put_signed(bytes, at.wrapping_sub(record.received_at));
        }
        varint::put_signed(bytes, record.ended_at.wrapping_sub(record.received_at));
        (before.seq, before.received_at) = (record.seq, record.received_at);
    }

    /// What was added becomes a pack.
    fn finish(&mut self) {
        if self.count == 0 {
            return;
        }
        self.packs.push(Pack {
            last: self.before.seq,
            first: self.first,
            count: self.count,
            oldest_end: self.oldest_end,
            newest_end: self.newest_end,
            records: std::mem::take(&mut self.bytes),
        });
        (self.before, self.count) = (Before::default(), 0);
    }

    /// Stores all packs.
    fn store(mut self, db: &Connection) -> Result<()> {
        self.finish();
        let mut insert = db.prepare_cached(
            "INSERT INTO main.done_packs (last, first, count, oldest_end, newest_end, records)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for pack in &self.packs {
            insert.execute(params![
                pack.last,
                pack.first,
                pack.count,
                pack.oldest_end,
                pack.newest_end,
                pack.records
            ])?;
        }
        Ok(())
    }
}

/// Kind, state, and what follows.
fn flags(record: &FinishedRecord<'_>) -> u8 {
    let code = record.kind.code() | record.state.code() << 2;
    u8::try_from(code).unwrap_or(0)
        | u8::from(record.buffer_id.is_some()) << 5
        | u8::from(record.started_at.is_some()) << 6
        | u8::from(record.attempt == 1) << 7
}

/// Appends what differs from the text before.
fn put_text(bytes: &mut Vec<u8>, before: &mut Vec<u8>, text: &str) {
    let text = text.as_bytes();
    let shared = before
        .iter()
        .zip(text)
        .take_while(|(old, new)| old == new)
        .count();
    varint::put(bytes, shared as u64);
    varint::put(bytes, (text.len() - shared) as u64);
    bytes.extend_from_slice(&text[shared..]);
    before.truncate(shared);
    before.extend_from_slice(&text[shared..]);
}

fn take_text(rest: &mut &[u8], before: &mut Vec<u8>) -> Option<()> {
    let shared = usize::try_from(varint::take(rest)?).ok()?;
    let length = usize::try_from(varint::take(rest)?).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    if shared > before.len() {
        return None;
    }
    *rest = after;
    before.truncate(shared);
    before.extend_from_slice(text);
    Some(())
}

/// What was found in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackState {
    Readable,
    /// After the records that were passed on comes something else.
    Damaged,
}

/// Passes the records of a pack on, in order, until one is refused or cannot be read. They have these numbers.
fn each(
    bytes: &[u8],
    (first, last): (i64, i64),
    mut to: impl FnMut(&FinishedRecord<'_>) -> Result<bool>,
) -> Result<PackState> {
    let (mut rest, mut before, mut latest) = (bytes, Before::default(), None);
    while !rest.is_empty() {
        let is_next = |seq| latest.map_or(seq == first, |latest| latest < seq && seq <= last);
        let Some(record) = next(&mut rest, &mut before).filter(|record| is_next(record.seq)) else {
            return Ok(PackState::Damaged);
        };
        latest = Some(record.seq);
        if !to(&record)? {
            return Ok(PackState::Readable);
        }
    }
    Ok(if latest == Some(last) {
        PackState::Readable
    } else {
        PackState::Damaged
    })
}

fn warn_of_damage(last: i64) {
    tracing::warn!(
        last,
        "records of finished messages up to this one are damaged on the disk and cannot be read; nothing else is affected, and they are \
         deleted when they are too old. Check the disk"
    );
}

fn next<'b>(rest: &mut &[u8], before: &'b mut Before) -> Option<FinishedRecord<'b>> {
    before.seq = before.seq.wrapping_add(varint::take_signed(rest)?);
    let (flags, after) = rest.split_first()?;
    *rest = after;
    let attempt = if flags & 1 << 7 == 0 {
        u32::try_from(varint::take(rest)?).ok()?
    } else {
        1
    };
    take_text(rest, &mut before.session)?;
    let has_buffer = flags & 1 << 5 != 0;
    if has_buffer {
        take_text(rest, &mut before.buffer_id)?;
    }
    before.received_at = before.received_at.wrapping_add(varint::take_signed(rest)?);
    let since = |offset: i64| before.received_at.wrapping_add(offset);
    let started_at = if flags & 1 << 6 == 0 {
        None
    } else {
        Some(since(varint::take_signed(rest)?))
    };
    let ended_at = since(varint::take_signed(rest)?);
    let buffer_id = std::str::from_utf8(&before.buffer_id).ok()?;
    Some(FinishedRecord {
        seq: before.seq,
        kind: InboxKind::from_code((flags & 3).into()),
        session: std::str::from_utf8(&before.session).ok()?,
        buffer_id: has_buffer.then_some(buffer_id),
        state: RowState::from_code((flags >> 2 & 7).into()),
        attempt,
        received_at: before.received_at,
        started_at,
        ended_at,
    })
}

/// Makes new packs of records, in order.
fn pack_alone(db: &Connection, records: &[FinishedRecord<'_>]) -> Result<()> {
    let mut packer = Packer::default();
    for record in records {
        packer.push(record);
    }
    packer.store(db)
}

/// Keeps keys of packed messages, in order, until the index has them.
pub(super) fn keep_keys(db: &Connection, keys: impl Iterator<Item = (DedupeKey, i64)> + Clone) -> Result<()> {
    let Some((_, last)) = keys.clone().last() else {
        return Ok(());
    };
    let mut bytes = Vec::new();
    for (key, seq) in keys {
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(&u32::try_from(last - seq).unwrap_or(0).to_le_bytes());
    }
    db.prepare_cached("INSERT INTO main.recent_keys (seq, keys) VALUES (?1, ?2)")?
        .execute(params![last, bytes])?;
    Ok(())
}

/// Passes the keys on that [`keep_keys`] kept.
pub(super) fn kept_keys(db: &Connection, mut each: impl FnMut(DedupeKey, InboxSeq)) -> Result<()> {
    let mut find = db.prepare("SELECT seq, keys FROM recent_keys ORDER BY seq")?;
    let mut rows = find.query([])?;
    while let Some(row) = rows.next()? {
        let (last, keys) = (row.get::<_, i64>(0)?, row.get_ref(1)?.as_blob()?);
        let (entries, _) = keys.as_chunks::<KEY_BYTES>();
        for entry in entries {
            if let Some((key, offset)) = entry.split_first_chunk::<16>()
                && let Ok(offset) = <[u8; 4]>::try_from(offset)
            {
                let seq = last - i64::from(u32::from_le_bytes(offset));
                each(DedupeKey::from_bytes(*key), InboxSeq(seq));
            }
        }
    }
    Ok(())
}

/// The index has all keys up to this message.
pub(super) fn drop_keys(db: &Connection, upto: InboxSeq) -> Result<()> {
    db.prepare_cached("DELETE FROM recent_keys WHERE seq <= ?1")?
        .execute([upto.0])?;
    Ok(())
}

/// A row of `done`.
struct DoneRow {
    seq: i64,
    kind: i64,
    session: String,
    dedupe: Option<[u8; 16]>,
    buffer_id: Option<String>,
    state: i64,
    attempt: u32,
    received_at: i64,
    started_at: Option<i64>,
    ended_at: i64,
}

impl DoneRow {
    fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            kind: row.get(1)?,
            session: row.get(2)?,
            dedupe: row.get(3)?,
            buffer_id: row.get(4)?,
            state: row.get(5)?,
            attempt: row.get(6)?,
            received_at: row.get(7)?,
            started_at: row.get(8)?,
            ended_at: row.get(9)?,
        })
    }

    fn record(&self) -> FinishedRecord<'_> {
        FinishedRecord {
            seq: self.seq,
            kind: InboxKind::from_code(self.kind),
            session: &self.session,
            buffer_id: self.buffer_id.as_deref(),
            state: RowState::from_code(self.state),
            attempt: self.attempt,
            received_at: self.received_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
        }
    }
}

/// Packs a slice of the oldest rows of `done`, if there are enough; whether there were. Keys up to `indexed` are in the index.
pub(super) fn pack_rows(db: &Connection, indexed: i64) -> Result<bool> {
    let interrupted = RowState::Interrupted.code();
    let rows: Vec<DoneRow> = db
        .prepare_cached(
            "SELECT seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, ended_at
             FROM done WHERE state <> ?1 ORDER BY seq LIMIT ?2",
        )?
        .query_map(params![interrupted, PACKED_ROWS], DoneRow::read)?
        .collect::<Result<_>>()?;
    let (Some(last), true) = (rows.last(), rows.len() >= PACKED_ROWS as usize) else {
        return Ok(false);
    };
    let unindexed = rows.iter().filter(|row| row.seq > indexed);
    keep_keys(
        db,
        unindexed.filter_map(|row| Some((DedupeKey::from_bytes(row.dedupe?), row.seq))),
    )?;
    db.prepare_cached("DELETE FROM done WHERE seq <= ?1 AND state <> ?2")?
        .execute(params![last.seq, interrupted])?;
    let records: Vec<FinishedRecord<'_>> = rows.iter().map(DoneRow::record).collect();
    pack_between(db, &records)?;
    Ok(true)
}

/// Packs records, in order, of which some may be older than some that are packed.
pub(super) fn pack_between(db: &Connection, records: &[FinishedRecord<'_>]) -> Result<()> {
    let mut rest = records;
    while let Some(first) = rest.first() {
        rest = pack_into_next(db, first.seq, rest)?;
    }
    Ok(())
}

/// Adds records to the pack that ends after the first of them, or makes new packs behind all others; returns those that belong to
/// later packs.
fn pack_into_next<'s, 'r>(
    db: &Connection,
    first: i64,
    new: &'s [FinishedRecord<'r>],
) -> Result<&'s [FinishedRecord<'r>]> {
    let pack: Option<((i64, i64), Vec<u8>)> = db
        .prepare_cached("SELECT first, last, records FROM done_packs WHERE last > ?1 ORDER BY last LIMIT 1")?
        .query_row([first], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))
        .optional()?;
    let Some((numbers @ (_, last), old)) = pack else {
        pack_alone(db, new)?;
        return Ok(&[]);
    };
    let (new, rest) = new.split_at(new.partition_point(|record| record.seq < last));
    let (mut packer, mut left) = (Packer::default(), new);
    let state = each(&old, numbers, |record| {
        while let Some((earlier, later)) = left.split_first()
            && earlier.seq < record.seq
        {
            packer.push(earlier);
            left = later;
        }
        packer.push(record);
        Ok(true)
    })?;
    match state {
        PackState::Readable => {
            delete(db, last)?;
            packer.store(db)?;
        }
        PackState::Damaged => {
            warn_of_damage(last);
            pack_alone(db, new)?;
        }
    }
    Ok(rest)
}

fn delete(db: &Connection, last: i64) -> Result<()> {
    db.prepare_cached("DELETE FROM done_packs WHERE last = ?1")?
        .execute([last])?;
    Ok(())
}

/// Deletes packed records of the oldest packs that ended before `older_than` or after `latest`, but never that of `newest`; returns how
/// many.
pub(super) fn forget(db: &Connection, older_than: i64, latest: i64, newest: i64) -> Result<usize> {
    let packs: Vec<(i64, bool, bool)> = db
        .prepare_cached(
            "SELECT last, oldest_end < ?2 OR newest_end > ?3, newest_end < ?2 OR oldest_end > ?3
             FROM done_packs ORDER BY last LIMIT ?1",
        )?
        .query_map(params![FORGET_SLICE, older_than, latest], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<_>>()?;
    let mut forgotten = 0;
    for (last, _, is_over) in packs.into_iter().filter(|(_, has_some, _)| *has_some) {
        let (first, count, records): (i64, u32, Vec<u8>) = db
            .prepare_cached("SELECT first, count, records FROM done_packs WHERE last = ?1")?
            .query_row([last], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let (mut kept, mut gone) = (Packer::default(), 0);
        let state = each(&records, (first, last), |record| {
            if record.seq != newest && (record.ended_at < older_than || record.ended_at > latest) {
                gone += 1;
            } else {
                kept.push(record);
            }
            Ok(true)
        })?;
        match state {
            PackState::Readable if gone > 0 => {
                delete(db, last)?;
                kept.store(db)?;
                forgotten += gone;
            }
            PackState::Damaged if is_over && last != newest => {
                delete(db, last)?;
                forgotten += count as usize;
            }
            PackState::Readable | PackState::Damaged => {}
        }
    }
    Ok(forgotten)
}

/// The newest packed record.
pub(super) fn newest(db: &Connection) -> Result<i64> {
    db.prepare_cached("SELECT ifnull(max(last), 0) FROM done_packs")?
        .query_row([], |row| row.get(0))
}

/// How many records are packed.
pub(super) fn count(db: &Connection) -> Result<i64> {
    db.prepare_cached("SELECT ifnull(sum(count), 0) FROM main.done_packs")?
        .query_row([], |row| row.get(0))
}

/// Which packed records a reader needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum PackedRange {
    /// So many after this one.
    After(i64, u32),
    /// The newest ones.
    Latest(u32),
    /// This one.
    One(i64),
}

/// Writes packed records into the table `temp.log_done` of a reader.
pub(super) fn unpack(db: &Connection, wanted: PackedRange) -> Result<()> {
    let (from, order, mut missing) = match wanted {
        PackedRange::After(seq, limit) => (seq.saturating_add(1), "ASC", i64::from(limit)),
        PackedRange::Latest(limit) => (i64::MIN, "DESC", i64::from(limit)),
        PackedRange::One(seq) => (seq, "ASC", 1),
    };
    let mut find = db.prepare_cached(&format!(
        "SELECT first, last, records FROM main.done_packs WHERE last >= ?1 ORDER BY last {order}"
    ))?;
    let mut insert = db.prepare_cached(
        "INSERT INTO temp.log_done
         (seq, kind, session, buffer_id, state, attempt, received_at, started_at, ended_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let mut packs = find.query([from])?;
    while missing > 0
        && let Some(pack) = packs.next()?
    {
        let (numbers, records) = ((pack.get(0)?, pack.get(1)?), pack.get_ref(2)?.as_blob()?);
        let wanted_here = missing;
        let state = each(records, numbers, |record| {
            if record.seq < from {
                return Ok(true);
            }
            insert.execute(params![
                record.seq,
                record.kind.code(),
                record.session,
                record.buffer_id,
                record.state.code(),
                record.attempt,
                record.received_at,
                record.started_at,
                record.ended_at
            ])?;
            missing -= 1;
            // The newest ones are at the end of their pack.
            Ok(missing > 0 || matches!(wanted, PackedRange::Latest(_)))
        })?;
        if state == PackState::Damaged {
            warn_of_damage(numbers.1);
            // Its last ones are missing, and others may lie between them.
            missing = wanted_here;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{KeyHash, journal::JournalSettings, schema};

    /// A record whose texts are like those of real ones, some of them odd.
    fn row(seq: i64) -> DoneRow {
        DoneRow {
            seq,
            kind: seq % 4,
            session: match seq % 5 {
                0 => String::new(),
                1 => "agent:main:discord:group:grün".to_owned(),
                2 => "agent:main:discord:group:grüße".to_owned(),
                _ => format!("agent:main:discord:group:11{:06}:22{:06}", seq % 100, seq % 1000),
            },
            dedupe: None,
            buffer_id: (seq % 3 > 0).then(|| format!("b{seq:08}")),
            state: 2 + seq % 3,
            attempt: u32::try_from(seq % 4).unwrap(),
            received_at: 1_790_000_000_000 + seq * 7 % 1000,
            started_at: (seq % 6 > 0).then_some(1_790_000_000_500 - seq),
            ended_at: if seq == 7 { i64::MAX } else { seq * 1000 },
        }
    }

    fn numbers(bytes: &[u8], first: i64, last: i64) -> Vec<i64> {
        let mut numbers = Vec::new();
        let state = each(bytes, (first, last), |record| {
            numbers.push(record.seq);
            Ok(true)
        });
        assert_eq!(state, Ok(PackState::Readable));
        numbers
    }

    fn journal() -> (tempfile::TempDir, Connection) {
        let dir = tempfile::tempdir().unwrap();
        let db = schema::open(&schema::path_in(dir.path()), &JournalSettings::default()).unwrap();
        (dir, db)
    }

    fn packs(db: &Connection) -> Vec<(i64, i64, i64, Vec<i64>)> {
        let mut find = db
            .prepare("SELECT first, last, count, records FROM done_packs ORDER BY last")
            .unwrap();
        let packs = find.query_map([], |row| {
            let (first, last, records): (i64, i64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(3)?);
            Ok((first, last, row.get(2)?, numbers(&records, first, last)))
        });
        packs.unwrap().map(Result::unwrap).collect()
    }

    fn insert(db: &Connection, row: &DoneRow) {
        db.execute(
            "INSERT INTO done VALUES (?1, ?2, ?3, NULL, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                row.seq,
                row.kind,
                row.session,
                row.buffer_id,
                row.state,
                row.attempt,
                row.received_at,
                row.started_at,
                row.ended_at
            ],
        )
        .unwrap();
    }

    #[test]
    fn records_are_read_as_they_were_written_and_damage_is_noticed() {
        let rows: Vec<DoneRow> = (1..3000).step_by(3).map(row).collect();
        let mut packer = Packer::default();
        for row in &rows {
            packer.push(&row.record());
        }
        let (bytes, last) = (packer.bytes, (1, 2998));
        let mut wanted = rows.iter().map(DoneRow::record);
        let state = each(&bytes, last, |record| {
            assert_eq!(Some(*record), wanted.next());
            Ok(true)
        });
        assert_eq!(state, Ok(PackState::Readable));
        assert!(wanted.next().is_none());
        assert!(bytes.len() < rows.len() * 32, "{}", bytes.len());
        for cut in 0..2000 {
            let state = each(&bytes[..cut], last, |_| Ok(true));
            assert_eq!(state, Ok(PackState::Damaged), "{cut}");
            let mut changed = bytes.clone();
            changed[cut] ^= 0x55;
            let mut before = 0;
            let _ = each(&changed, last, |record| {
                assert!(before < record.seq && record.seq <= last.1, "they stay in order");
                before = record.seq;
                Ok(true)
            });
        }
        let state = each(&bytes[..bytes.len() - 1], last, |_| Ok(true));
        assert_eq!(state, Ok(PackState::Damaged));
    }

    #[test]
    fn a_damaged_pack_stays_until_it_is_old_and_stops_nothing_else() {
        let (_dir, db) = journal();
        let pack = |seqs: Vec<i64>| {
            let rows: Vec<DoneRow> = seqs.into_iter().map(row).collect();
            let records: Vec<_> = rows.iter().map(DoneRow::record).collect();
            pack_between(&db, &records).unwrap();
        };
        let even = |from: i64, to: i64| (from..to).filter(|seq| seq % 2 == 0).collect();
        pack(even(100, 200));
        pack(even(300, 400));
        let damaged = "UPDATE done_packs SET records = CAST(substr(records, 1, 90) || x'ff' || substr(records, 92) AS BLOB) WHERE last = 198";
        assert_eq!(db.execute(damaged, []), Ok(1));
        let bytes = |last: i64| -> Option<Vec<u8>> {
            db.query_row("SELECT records FROM done_packs WHERE last = ?1", [last], |row| {
                row.get(0)
            })
            .optional()
            .unwrap()
        };
        let before = bytes(198);
        // Messages that took longer than their neighbours.
        pack((1..500).filter(|seq| seq % 2 == 1).collect());
        assert_eq!(bytes(198), before, "it is as it was");
        let unpacked = |wanted| {
            db.execute_batch(
                "DROP TABLE IF EXISTS temp.log_done; CREATE TEMP TABLE log_done AS SELECT * FROM done",
            )
            .unwrap();
            unpack(&db, wanted).unwrap();
            let mut all = db.prepare("SELECT seq FROM temp.log_done ORDER BY seq").unwrap();
            let all = all.query_map([], |row| row.get::<_, i64>(0)).unwrap();
            all.map(Result::unwrap).collect::<Vec<_>>()
        };
        let all = unpacked(PackedRange::After(0, u32::MAX));
        let is_there = |seq: &i64| all.binary_search(seq).is_ok();
        assert!((1..500).filter(|seq| seq % 2 == 1).all(|seq| is_there(&seq)));
        assert!((300..400).all(|seq| is_there(&seq)));
        assert!(
            is_there(&100) && !is_there(&198),
            "what comes before the damage is read"
        );
        assert!(unpacked(PackedRange::One(301)).contains(&301));
        // A message ended at a thousand times its number.
        forget(&db, 150_000, 1_000_000, 499).unwrap();
        assert_eq!(bytes(198), before, "some of it is not too old");
        assert_eq!(unpacked(PackedRange::After(0, u32::MAX)).first(), Some(&100));
        assert!(forget(&db, 200_000, 1_000_000, 499).unwrap() >= 50);
        assert_eq!(bytes(198), None);
        assert_eq!(unpacked(PackedRange::After(0, u32::MAX)).first(), Some(&201));
        assert_eq!(newest(&db), Ok(499));
    }

    #[test]
    fn rows_join_the_packs_that_they_lie_in_and_packs_never_overlap() {
        let (_dir, db) = journal();
        let direct = |seqs: Vec<i64>| {
            let rows: Vec<DoneRow> = seqs.into_iter().map(row).collect();
            let records: Vec<_> = rows.iter().map(DoneRow::record).collect();
            pack_between(&db, &records).unwrap();
        };
        // Each third message took longer than its neighbours.
        direct((1..2000).filter(|seq| seq % 3 > 0).collect());
        direct((2010..2500).filter(|seq| seq % 3 > 0).collect());
        for seq in (1..2520).filter(|seq| seq % 3 == 0) {
            insert(&db, &row(seq));
        }
        while pack_rows(&db, 0).unwrap() {}
        let found = packs(&db);
        let mut all = Vec::new();
        for (first, last, count, numbers) in found {
            assert_eq!((Some(&first), Some(&last)), (numbers.first(), numbers.last()));
            assert_eq!(count, i64::try_from(numbers.len()).unwrap());
            assert!(numbers.len() <= MAX_RECORDS as usize);
            all.extend(numbers);
        }
        assert!(all.is_sorted());
        let left: i64 = db
            .query_row("SELECT count(*) FROM done", [], |row| row.get(0))
            .unwrap();
        assert!(left < PACKED_ROWS.into());
        let wanted = (1..2520).filter(|seq| seq % 3 == 0 || (*seq < 2500 && !(2000..2010).contains(seq)));
        assert_eq!(all.len() + usize::try_from(left).unwrap(), wanted.count());
        assert_eq!(count(&db).unwrap(), i64::try_from(all.len()).unwrap());
    }

    #[test]
    fn single_records_of_a_pack_are_forgotten_and_the_newest_never() {
        let (_dir, db) = journal();
        let rows: Vec<DoneRow> = (1..=100).map(row).collect();
        let records: Vec<_> = rows.iter().map(DoneRow::record).collect();
        pack_between(&db, &records).unwrap();
        let left = |older_than, latest| {
            let gone = forget(&db, older_than, latest, 100).unwrap();
            (gone, packs(&db).iter().map(|pack| pack.3.len()).sum::<usize>())
        };
        assert_eq!(left(0, i64::MAX), (0, 100));
        assert_eq!(left(0, 1_000_000), (1, 99), "that of a clock that was ahead");
        assert_eq!(left(10_000, 1_000_000), (8, 91));
        assert_eq!(left(10_000, 1_000_000), (0, 91));
        assert_eq!(left(i64::MAX, i64::MAX), (90, 1));
        assert_eq!(newest(&db).unwrap(), 100);
    }

    #[test]
    fn keys_are_kept_until_the_index_has_them() {
        let (_dir, db) = journal();
        let key = |seq: i64| (KeyHash::Blake2s.key(&[&seq.to_string()]), seq);
        keep_keys(&db, [3, 4, 9].into_iter().map(key)).unwrap();
        keep_keys(&db, [70_000].into_iter().map(key)).unwrap();
        keep_keys(&db, std::iter::empty()).unwrap();
        let kept = || {
            let mut kept = Vec::new();
            kept_keys(&db, |key, seq| kept.push((key, seq.0))).unwrap();
            kept
        };
        assert_eq!(kept(), [3, 4, 9, 70_000].map(key));
        drop_keys(&db, InboxSeq(8)).unwrap();
        assert_eq!(kept().len(), 4);
        drop_keys(&db, InboxSeq(9)).unwrap();
        assert_eq!(kept(), [key(70_000)]);
    }
}
