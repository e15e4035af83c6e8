//! The index of dedupe keys: sorted blocks, and runs of newer keys beside them.
//!
//! A block is a row that fills a page with keys. Keys that leave memory are first written into a run, which has one row for each
//! first byte of its keys, so that adding 24,576 keys writes a hundred pages and not one page for each key, however large the index is. When
//! there are enough runs, a pass moves them into the blocks, one first byte after the other: a few steps with each commit. So a key is
//! written more than once, but in large pieces and not in a page of its own. A pass rewrites all blocks; so the larger the index is, the
//! more runs it waits for. With five million keys these are 26, and each key is written into a block about five times.
//!
//! An entry has 12 bytes of the key (whoever has a million messages a month waits for 10¹⁵ years for two that are the same) and the
//! day of its message. A look into the index reads one block at most; filters in memory say where it need not look: one for each run,
//! and one for the blocks of each first byte that were written since the start.
//!
//! Invariants:
//!
//! - A step moves the rows of its byte out of the runs and into the blocks in one transaction: a key is always in one of both.
//! - What is here in memory may promise too much after a rollback (a filter, a count), and never too little: a run is forgotten only
//!   when the file has none of its rows.
//! - Keys of a journal from before are in the table `dedupe` until they are too old.

use super::completion::InboxSeq;
use super::dedupe::{DedupeKey, MOVE_AT_KEYS};
use rusqlite::{Connection, OptionalExtension as _, Result, Statement, params};

pub(super) const SCHEMA: &str = "
    CREATE TABLE key_runs (id INTEGER PRIMARY KEY, keys BLOB NOT NULL) STRICT;
    CREATE TABLE key_blocks (id INTEGER PRIMARY KEY, keys BLOB NOT NULL) STRICT;
";

/// Bytes of a key in the index.
const KEY: usize = 12;
/// Bytes of an entry: the key and its day.
const ENTRY: usize = KEY + 2;
/// Entries of a block: as many as a page of 4 KiB holds.
const BLOCK: usize = 288;
/// Keys of a run.
const RUN: usize = MOVE_AT_KEYS + MOVE_AT_KEYS / 8;
/// Fewest runs at which a pass begins, however few keys they have. While it lasts there may be more: then its steps are larger, so that
/// it ends before there are many.
const MIN_RUNS: usize = 4;
/// Entries that one step of a pass looks at, at least; more when there are too many runs.
const STEP: usize = 4096;
/// Bits of a run's filter: one of a hundred keys that are not there seems to be.
const RUN_FILTER: usize = 1 << 18;
/// Most bits of a filter for the blocks of a first byte, which makes 2 MiB for all. One of forty keys that are not there seems to be in an
/// index of two million keys, one of four in one of five million.
const MAX_BLOCK_FILTER: usize = 1 << 16;

type KeyEntry = [u8; ENTRY];

/// What is known of the index in memory.
#[derive(Debug)]
pub(super) struct KeyIndex {
    /// The oldest first; the last one takes new keys.
    runs: Vec<KeyRun>,
    has_blocks: bool,
    /// Filters for the blocks of each first byte; none before a pass has begun.
    block_filters: Vec<Option<KeyFilter>>,
    /// Whether the table of a journal from before has keys.
    has_old: bool,
    /// About how many keys the blocks have.
    in_blocks: usize,
    pass: Option<Pass>,
}

#[derive(Debug)]
struct KeyRun {
    id: i64,
    keys: usize,
    filter: KeyFilter,
}

/// Keys, and few others that seem to be among them.
#[derive(Debug)]
struct KeyFilter(Box<[u64]>);

/// A pass through the whole index.
#[derive(Debug)]
struct Pass {
    /// The next first byte.
    next: u8,
    is_over: bool,
    /// Runs before this one go into the blocks.
    below: i64,
    entries: usize,
}

/// Which entries a step keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryDays {
    /// Entries of earlier days go.
    pub(super) before: i64,
    /// Entries of later days get this one.
    pub(super) today: i64,
}

impl EntryDays {
    const ALL: Self = Self {
        before: i64::MIN,
        today: i64::MAX,
    };
}

impl KeyRun {
    fn new(id: i64) -> Self {
        Self {
            id,
            keys: 0,
            filter: KeyFilter::new(RUN_FILTER),
        }
    }

    fn row(&self, byte: u8) -> i64 {
        self.id << 8 | i64::from(byte)
    }

    fn add(&mut self, key: &[u8]) {
        self.keys += 1;
        self.filter.add(key);
    }
}

impl KeyFilter {
    /// An empty one; `bits` is a power of two, of 64 or more.
    fn new(bits: usize) -> Self {
        Self(vec![0; bits / 64].into())
    }

    /// One for the blocks of a first byte.
    fn of_blocks(entries: &[KeyEntry]) -> Self {
        let bits = (entries.len() * 8).next_power_of_two();
        let mut filter = Self::new(bits.clamp(64, MAX_BLOCK_FILTER));
        for entry in entries {
            filter.add(&entry[..KEY]);
        }
        filter
    }

    fn add(&mut self, key: &[u8]) {
        for bit in self.places(key) {
            self.0[bit / 64] |= 1 << (bit % 64);
        }
    }

    fn may_have(&self, key: &[u8]) -> bool {
        let mut places = self.places(key).into_iter();
        places.all(|bit| self.0[bit / 64] & 1 << (bit % 64) != 0)
    }

    /// The bits of a key. Keys are hashes, so any of their bytes do.
    fn places(&self, key: &[u8]) -> [usize; 4] {
        let mut places = [0; 4];
        for (place, bytes) in places.iter_mut().zip(key[1..].windows(4).step_by(2)) {
            let number = bytes
                .iter()
                .fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
            *place = number & (self.0.len() * 64 - 1);
        }
        places
    }
}

/// Where the block of a key begins: the first six bytes.
fn block_id(key: &[u8]) -> i64 {
    key[..6].iter().fold(0, |id, byte| id << 8 | i64::from(*byte))
}

fn entries(keys: &[u8]) -> &[KeyEntry] {
    keys.as_chunks().0
}

fn has(keys: &[u8], key: &[u8]) -> bool {
    entries(keys)
        .binary_search_by(|entry| entry[..KEY].cmp(key))
        .is_ok()
}

fn entry(key: &DedupeKey, day: i64) -> KeyEntry {
    let mut entry = [0; ENTRY];
    entry[..KEY].copy_from_slice(&key.as_bytes()[..KEY]);
    entry[KEY..].copy_from_slice(&stored_day(day));
    entry
}

fn stored_day(day: i64) -> [u8; 2] {
    u16::try_from(day.max(0)).unwrap_or(u16::MAX).to_le_bytes()
}

fn day_of(entry: &KeyEntry) -> i64 {
    u16::from_le_bytes([entry[KEY], entry[KEY + 1]]).into()
}

/// All of two sorted lists, sorted; of the same keys the first list's.
fn merge(old: &[KeyEntry], new: &[KeyEntry]) -> Vec<KeyEntry> {
    let mut all = Vec::with_capacity(old.len() + new.len());
    let mut rest = old;
    for entry in new {
        let (before, after) = rest.split_at(rest.partition_point(|other| other[..KEY] < entry[..KEY]));
        all.extend_from_slice(before);
        rest = after;
        if rest.first().is_none_or(|other| other[..KEY] != entry[..KEY]) {
            all.push(*entry);
        }
    }
    all.extend_from_slice(rest);
    all
}

impl KeyIndex {
    /// Reads what has to be in memory.
    pub(super) fn open(db: &Connection) -> Result<Self> {
        // Keys are spread evenly.
        let blocks: i64 = db.query_row("SELECT count(*) FROM key_blocks WHERE id < 1 << 40", [], |row| {
            row.get(0)
        })?;
        let mut index = Self {
            runs: Vec::new(),
            has_blocks: has_rows(db, "key_blocks")?,
            block_filters: Vec::new(),
            has_old: has_rows(db, "dedupe")?,
            in_blocks: usize::try_from(blocks).unwrap_or(0) * BLOCK * 256,
            pass: None,
        };
        let mut find = db.prepare("SELECT id, keys FROM key_runs ORDER BY id")?;
        let mut rows = find.query([])?;
        while let Some(row) = rows.next()? {
            let id = row.get::<_, i64>(0)? >> 8;
            if index.runs.last().is_none_or(|run| run.id != id) {
                index.runs.push(KeyRun::new(id));
            }
            if let Some(run) = index.runs.last_mut() {
                for entry in entries(row.get_ref(1)?.as_blob()?) {
                    run.add(&entry[..KEY]);
                }
            }
        }
        Ok(index)
    }

    /// Whether a key is in the index.
    pub(super) fn contains(&self, db: &Connection, find: &mut FindKey<'_>, key: &DedupeKey) -> Result<bool> {
        let bytes = &key.as_bytes()[..KEY];
        for run in self.runs.iter().filter(|run| run.filter.may_have(bytes)) {
            let mut find = db.prepare_cached("SELECT keys FROM key_runs WHERE id = ?1")?;
            let found = find
                .query_row([run.row(bytes[0])], |row| {
                    Ok(has(row.get_ref(0)?.as_blob()?, bytes))
                })
                .optional()?;
            if found == Some(true) {
                return Ok(true);
            }
        }
        let filter = self.block_filters.get(usize::from(bytes[0]));
        let may_have =
            |filter: &Option<KeyFilter>| filter.as_ref().is_none_or(|filter| filter.may_have(bytes));
        if self.has_blocks && filter.is_none_or(may_have) {
            let mut rows = find.block.query([block_id(bytes)])?;
            if let Some(row) = rows.next()?
                && has(row.get_ref(0)?.as_blob()?, bytes)
            {
                return Ok(true);
            }
        }
        Ok(self.has_old && find.old.exists([key.as_bytes().as_slice()])?)
    }

    /// Adds keys, which are sorted.
    pub(super) fn add(&mut self, db: &Connection, keys: &[(DedupeKey, InboxSeq)], day: i64) -> Result<()> {
        let below = self.pass.as_ref().map_or(0, |pass| pass.below);
        let next = self.runs.last().map_or(1, |run| run.id + 1).max(below);
        let open = self.runs.last();
        if open.is_none_or(|run| run.keys >= RUN || run.id < below) {
            self.runs.push(KeyRun::new(next));
        }
        let Some(run) = self.runs.last_mut() else {
            return Ok(());
        };
        let mut find = db.prepare_cached("SELECT keys FROM key_runs WHERE id = ?1")?;
        let mut put = db.prepare_cached("INSERT OR REPLACE INTO key_runs (id, keys) VALUES (?1, ?2)")?;
        for group in keys.chunk_by(|(one, _), (other, _)| one.as_bytes()[0] == other.as_bytes()[0]) {
            let mut new: Vec<KeyEntry> = group.iter().map(|(key, _)| entry(key, day)).collect();
            for entry in &new {
                run.add(&entry[..KEY]);
            }
            let row = run.row(new[0][0]);
            let old: Option<Vec<u8>> = find.query_row([row], |row| row.get(0)).optional()?;
            if let Some(old) = old {
                new = merge(entries(&old), &new);
            }
            put.execute(params![row, new.as_flattened()])?;
        }
        Ok(())
    }

    /// Begins to move the runs into the blocks, if there are enough of them.
    pub(super) fn begin_pass_if_due(&mut self) {
        if self.pass.is_none() && self.runs.len() >= self.due_runs() {
            self.begin_pass();
        }
    }

    /// The runs at which a pass begins. Each run costs every look into the index and 32 KiB of memory; a pass costs as much as
    /// the index has keys: twice the root of how many runs would make up the index is where both cost about the same.
    fn due_runs(&self) -> usize {
        MIN_RUNS.max(2 * (self.in_blocks / RUN).isqrt())
    }

    fn begin_pass(&mut self) {
        self.pass = Some(Pass {
            next: 0,
            is_over: false,
            below: self.runs.last().map_or(1, |run| run.id + 1),
            entries: 0,
        });
    }

    /// Whether a pass is under way.
    pub(super) fn is_passing(&self) -> bool {
        self.pass.is_some()
    }

    /// Moves some of the runs into the blocks.
    pub(super) fn step(&mut self, db: &Connection) -> Result<()> {
        let enough = STEP * (self.runs.len() / self.due_runs()).max(1);
        let Some(pass) = &mut self.pass else { return Ok(()) };
        if pass.is_over {
            // The last step is committed: what the file has decides.
            let mut find =
                db.prepare_cached("SELECT EXISTS (SELECT 1 FROM key_runs WHERE id >= ?1 AND id < ?2)")?;
            let has_rows = |run: &KeyRun| find.query_row([run.row(0), run.row(0) + 256], |row| row.get(0));
            let has_rows: Vec<bool> = self.runs.iter().map(has_rows).collect::<Result<_>>()?;
            let mut has_rows = has_rows.into_iter();
            let below = pass.below;
            self.runs
                .retain(|run| has_rows.next() == Some(true) || run.id >= below);
            self.in_blocks = pass.entries;
            self.pass = None;
            return Ok(());
        }
        let mut looked_at = 0;
        while looked_at < enough && !pass.is_over {
            let done = rewrite(db, pass.next, &self.runs, EntryDays::ALL)?;
            looked_at += done.looked_at;
            pass.entries += done.kept;
            self.has_blocks |= done.kept > 0;
            if self.block_filters.is_empty() {
                self.block_filters.resize_with(256, || None);
            }
            self.block_filters[usize::from(pass.next)] = Some(done.filter);
            (pass.next, pass.is_over) = pass.next.overflowing_add(1);
        }
        Ok(())
    }

    /// Forgets entries by their day, from a first byte on; returns the byte to go on with, if there is one.
    pub(super) fn sweep(&mut self, db: &Connection, from: u8, days: EntryDays) -> Result<Option<u8>> {
        let (mut looked_at, mut next) = (0, Some(from));
        while looked_at < STEP
            && let Some(byte) = next
        {
            let done = rewrite(db, byte, &self.runs, days)?;
            looked_at += done.looked_at;
            self.has_blocks |= done.kept > 0;
            if let Some(filter) = self.block_filters.get_mut(usize::from(byte)) {
                *filter = Some(done.filter);
            }
            next = byte.checked_add(1);
        }
        Ok(next)
    }

    /// Looks again whether there are keys of a journal from before.
    pub(super) fn look_for_old(&mut self, db: &Connection) -> Result<()> {
        self.has_old = self.has_old && has_rows(db, "dedupe")?;
        Ok(())
    }
}

struct Rewritten {
    looked_at: usize,
    kept: usize,
    /// Of all entries, also of those that go: after a rollback they are there.
    filter: KeyFilter,
}

/// Moves the entries of a first byte out of the runs into the blocks, without those that go by their day.
fn rewrite(db: &Connection, byte: u8, runs: &[KeyRun], days: EntryDays) -> Result<Rewritten> {
    let (low, high) = (i64::from(byte) << 40, (i64::from(byte) + 1) << 40);
    let mut old: Vec<KeyEntry> = Vec::new();
    let mut find = db.prepare_cached("SELECT keys FROM key_blocks WHERE id >= ?1 AND id < ?2 ORDER BY id")?;
    let mut rows = find.query([low, high])?;
    while let Some(row) = rows.next()? {
        old.extend_from_slice(entries(row.get_ref(0)?.as_blob()?));
    }
    drop(rows);
    let mut new: Vec<KeyEntry> = Vec::new();
    let mut take = db.prepare_cached("DELETE FROM key_runs WHERE id = ?1 RETURNING keys")?;
    for run in runs {
        let mut rows = take.query([run.row(byte)])?;
        while let Some(row) = rows.next()? {
            new.extend_from_slice(entries(row.get_ref(0)?.as_blob()?));
        }
    }
    let looked_at = old.len() + new.len();
    let mut is_changed = !new.is_empty();
    new.sort_unstable();
    new.dedup_by(|one, other| one[..KEY] == other[..KEY]);
    let mut all = if new.is_empty() { old } else { merge(&old, &new) };
    let filter = KeyFilter::of_blocks(&all);
    all.retain_mut(|entry| {
        let day = day_of(entry);
        if day > days.today {
            is_changed = true;
            entry[KEY..].copy_from_slice(&stored_day(days.today));
        }
        is_changed |= day < days.before;
        day >= days.before
    });
    if is_changed {
        db.prepare_cached("DELETE FROM key_blocks WHERE id >= ?1 AND id < ?2")?
            .execute([low, high])?;
        write_blocks(db, low, &all)?;
    }
    Ok(Rewritten {
        looked_at,
        kept: all.len(),
        filter,
    })
}

/// Writes the blocks of a first byte, about equally long. Keys that begin with the same six bytes are in the same block.
fn write_blocks(db: &Connection, low: i64, all: &[KeyEntry]) -> Result<()> {
    let mut put = db.prepare_cached("INSERT INTO key_blocks (id, keys) VALUES (?1, ?2)")?;
    let size = all.len().div_ceil(all.len().div_ceil(BLOCK).max(1));
    let (mut id, mut rest) = (low, all);
    while !rest.is_empty() {
        let mut end = size.min(rest.len());
        while end < rest.len() && block_id(&rest[end]) == block_id(&rest[end - 1]) {
            end += 1;
        }
        let (block, later) = rest.split_at(end);
        put.execute(params![id, block.as_flattened()])?;
        id = later.first().map_or(0, |entry| block_id(entry));
        rest = later;
    }
    Ok(())
}

fn has_rows(db: &Connection, table: &str) -> Result<bool> {
    db.query_row(&format!("SELECT EXISTS (SELECT 1 FROM {table})"), [], |row| {
        row.get(0)
    })
}

/// How many keys are in the index, those of a journal from before aside.
#[cfg(test)]
pub(super) fn count(db: &Connection) -> Result<i64> {
    let count = "SELECT (SELECT ifnull(sum(length(keys)), 0) FROM key_blocks)
                      + (SELECT ifnull(sum(length(keys)), 0) FROM key_runs)";
    let bytes: i64 = db.query_row(count, [], |row| row.get(0))?;
    Ok(bytes / 14)
}

/// The statements that look for keys.
#[derive(Debug)]
pub(super) struct FindKey<'c> {
    block: Statement<'c>,
    old: Statement<'c>,
}

impl<'c> FindKey<'c> {
    pub(super) fn prepare(db: &'c Connection) -> Result<Self> {
        Ok(Self {
            block: db.prepare("SELECT keys FROM key_blocks WHERE id <= ?1 ORDER BY id DESC LIMIT 1")?,
            old: db.prepare("SELECT 1 FROM dedupe WHERE key = ?1")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::store::{KeyHash, journal::JournalSettings, schema};

    fn key(number: usize) -> DedupeKey {
        KeyHash::Blake2s.key(&[&number.to_string()])
    }

    fn sorted(numbers: std::ops::Range<usize>) -> Vec<(DedupeKey, InboxSeq)> {
        let mut keys: Vec<_> = numbers.map(|number| (key(number), InboxSeq(1))).collect();
        keys.sort_unstable();
        keys
    }

    /// Adds keys as they leave memory, and lets the index do what it is due to do.
    fn add(index: &mut KeyIndex, db: &Connection, numbers: std::ops::Range<usize>, day: i64) {
        for slice in sorted(numbers).chunks(777) {
            index.add(db, slice, day).unwrap();
            index.step(db).unwrap();
        }
        index.begin_pass_if_due();
    }

    fn knows(index: &KeyIndex, db: &Connection, number: usize) -> bool {
        let mut find = FindKey::prepare(db).unwrap();
        index.contains(db, &mut find, &key(number)).unwrap()
    }

    fn journal(dir: &std::path::Path) -> Connection {
        let db = schema::open(&schema::path_in(dir), &JournalSettings::default()).unwrap();
        db.execute_batch("PRAGMA synchronous = OFF").unwrap();
        db
    }

    #[test]
    fn every_key_is_known_in_runs_in_blocks_and_in_between() {
        let dir = tempfile::tempdir().unwrap();
        let db = journal(dir.path());
        let mut index = KeyIndex::open(&db).unwrap();
        let total = 6 * MOVE_AT_KEYS;
        let mut passes = 0;
        for round in 0..6 {
            add(
                &mut index,
                &db,
                round * MOVE_AT_KEYS..(round + 1) * MOVE_AT_KEYS,
                20_000,
            );
            passes += usize::from(index.is_passing());
            // Another process sees the same.
            let opened = KeyIndex::open(&db).unwrap();
            for number in (0..(round + 1) * MOVE_AT_KEYS).step_by(1009) {
                assert!(knows(&index, &db, number), "{number}");
                assert!(knows(&opened, &db, number), "{number}");
            }
        }
        assert!(passes > 0, "runs became blocks");
        while index.is_passing() {
            index.step(&db).unwrap();
            assert!(knows(&index, &db, 4711));
        }
        assert!(index.runs.len() <= 3, "{}", index.runs.len());
        assert_eq!(count(&db).unwrap(), i64::try_from(total).unwrap());
        assert!((0..total).step_by(101).all(|number| knows(&index, &db, number)));
        assert!((total..total + 1000).all(|number| !knows(&index, &db, number)));
        let pages: i64 = db
            .query_row("SELECT count(*) FROM key_blocks", [], |row| row.get(0))
            .unwrap();
        assert!(pages < i64::try_from(total / 200).unwrap(), "{pages} blocks");
    }

    /// `INDEX_KEYS=5000000` makes a larger index.
    #[test]
    fn a_key_is_rewritten_a_bounded_number_of_times_and_runs_stay_few() {
        const PRINT: usize = 500_000;
        let total = std::env::var("INDEX_KEYS").map_or(600_000, |number| number.parse().unwrap());
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        db.execute_batch("CREATE TABLE dedupe (key BLOB)").unwrap();
        let mut index = KeyIndex::open(&db).unwrap();
        // Numbers that are spread as hashes are.
        let key = |number: usize| {
            let low = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let high = (low ^ low >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            DedupeKey::from_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
        };
        let (mut next, mut rows) = (0, 0);
        while next < total {
            let round = next..total.min(next + MOVE_AT_KEYS);
            next = round.end;
            let mut keys: Vec<_> = round.map(|number| (key(number), InboxSeq(1))).collect();
            keys.sort_unstable();
            // A commit for each hundred messages.
            for some in keys.chunks(200) {
                index.add(&db, some, 20_000).unwrap();
            }
            index.begin_pass_if_due();
            let before = db.total_changes();
            for _ in 0..MOVE_AT_KEYS / 100 {
                index.step(&db).unwrap();
            }
            rows += db.total_changes() - before;
            assert!(
                index.runs.len() <= index.due_runs() + 2,
                "{} runs",
                index.runs.len()
            );
            if next % PRINT < MOVE_AT_KEYS {
                println!("{next} keys: {rows} rows, {} runs", index.runs.len());
            }
        }
        // A row of a step is a block that is deleted or written, or a row of a run, which has about 100 keys. Each key is deleted once from a
        // run, and each pass deletes and writes every block.
        let (per_key, keys) = (rows * 288 / total as u64, index.in_blocks);
        let most = 3 + 2 * (keys / (RUN * index.due_runs())) as u64;
        assert!(per_key <= most, "{per_key} entries for each key");
        let mut find = FindKey::prepare(&db).unwrap();
        for number in (0..total).step_by(997) {
            assert!(index.contains(&db, &mut find, &key(number)).unwrap(), "{number}");
        }
        assert_eq!(count(&db).unwrap(), i64::try_from(total).unwrap());
    }

    #[test]
    fn a_large_index_has_more_runs_and_their_filters_stay_small() {
        let dir = tempfile::tempdir().unwrap();
        let db = journal(dir.path());
        let mut index = KeyIndex::open(&db).unwrap();
        // Few keys in each run, as after many quiet hours.
        let mut runs_until_due = |in_blocks| {
            (index.in_blocks, index.pass) = (in_blocks, None);
            index.runs.clear();
            while !index.is_passing() {
                index.runs.push(KeyRun::new(1));
                index.begin_pass_if_due();
            }
            let filters = index.runs.iter().map(|run| run.filter.0.len() * 8);
            (index.runs.len(), filters.sum::<usize>() >> 10)
        };
        assert_eq!(runs_until_due(0), (4, 128));
        assert_eq!(runs_until_due(5_000_000), (26, 832));
        assert_eq!(runs_until_due(50_000_000), (84, 2688));
    }

    /// How many of these keys make the index read a block.
    fn blocks_read(index: &KeyIndex, db: &Connection, numbers: std::ops::Range<usize>) -> i32 {
        let mut find = FindKey::prepare(db).unwrap();
        for number in numbers {
            index.contains(db, &mut find, &key(number)).unwrap();
        }
        find.block.get_status(StatementStatus::Run)
    }

    #[test]
    fn few_keys_that_are_new_make_it_read_a_block() {
        let dir = tempfile::tempdir().unwrap();
        let db = journal(dir.path());
        let mut index = KeyIndex::open(&db).unwrap();
        let pass = |index: &mut KeyIndex| {
            index.begin_pass();
            while index.is_passing() {
                index.step(&db).unwrap();
            }
        };
        add(&mut index, &db, 0..60_000, 20_000);
        pass(&mut index);
        let read = blocks_read(&index, &db, 100_000..110_000);
        assert!(read < 300, "{read} of 10,000");
        assert_eq!(blocks_read(&index, &db, 0..1000), 1000);
        // Keys that a sweep moves into blocks.
        add(&mut index, &db, 60_000..62_000, 20_000);
        let mut next = Some(0);
        while let Some(byte) = next {
            next = index.sweep(&db, byte, EntryDays::ALL).unwrap();
        }
        assert!((60_000..62_000).all(|number| knows(&index, &db, number)));
        // A start knows nothing of them before the next pass.
        let mut index = KeyIndex::open(&db).unwrap();
        assert_eq!(blocks_read(&index, &db, 100_000..100_100), 100);
        pass(&mut index);
        assert!(blocks_read(&index, &db, 100_000..110_000) < 300);
        assert!((0..60_000).step_by(7).all(|number| knows(&index, &db, number)));
        let filters = index.block_filters.iter().flatten();
        let bytes: usize = filters.map(|filter| filter.0.len() * 8).sum();
        assert!(bytes < 128 << 10, "{bytes} bytes for 60,000 keys");
    }

    #[test]
    fn filters_of_blocks_stay_small() {
        let many: Vec<KeyEntry> = (0..20_000).map(|number| entry(&key(number), 20_000)).collect();
        assert_eq!(KeyFilter::of_blocks(&many).0.len() * 8 * 256, 2 << 20);
        assert_eq!(KeyFilter::of_blocks(&many[..1]).0.len(), 1);
        assert!(!KeyFilter::of_blocks(&[]).may_have(&many[0][..KEY]));
    }

    #[test]
    fn a_rollback_in_the_middle_of_a_pass_loses_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let db = journal(dir.path());
        let mut index = KeyIndex::open(&db).unwrap();
        add(&mut index, &db, 0..9000, 20_000);
        index.begin_pass();
        let mut steps = 0;
        while index.is_passing() {
            steps += 1;
            db.execute_batch("BEGIN").unwrap();
            index.step(&db).unwrap();
            db.execute_batch(if steps % 2 == 0 { "ROLLBACK" } else { "COMMIT" })
                .unwrap();
        }
        assert!(steps > 2);
        assert!((0..9000).step_by(7).all(|number| knows(&index, &db, number)));
        assert_eq!(count(&db).unwrap(), 9000);
        // What was left behind goes with the next pass.
        index.begin_pass();
        while index.is_passing() {
            index.step(&db).unwrap();
        }
        assert!(index.runs.is_empty());
        assert!((0..9000).step_by(7).all(|number| knows(&index, &db, number)));
        assert_eq!(count(&db).unwrap(), 9000);
    }

    #[test]
    fn the_table_of_a_journal_from_before_is_asked_until_it_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let db = journal(dir.path());
        assert!(!KeyIndex::open(&db).unwrap().has_old);
        let old = key(1);
        db.execute(
            "INSERT INTO dedupe VALUES (?1, 1, 20000)",
            [old.as_bytes().as_slice()],
        )
        .unwrap();
        let mut index = KeyIndex::open(&db).unwrap();
        index.look_for_old(&db).unwrap();
        assert!(index.has_old && knows(&index, &db, 1) && !knows(&index, &db, 2));
        db.execute("DELETE FROM dedupe", []).unwrap();
        index.look_for_old(&db).unwrap();
        assert!(!index.has_old && !knows(&index, &db, 1));
    }

    #[test]
    fn keys_are_added_twice_and_go_by_their_day() {
        let dir = tempfile::tempdir().unwrap();
        let db = journal(dir.path());
        let mut index = KeyIndex::open(&db).unwrap();
        add(&mut index, &db, 0..3000, 20_000);
        add(&mut index, &db, 0..3000, 20_003);
        add(&mut index, &db, 3000..4000, 20_005);
        add(&mut index, &db, 4000..5000, 60_000);
        assert_eq!(count(&db).unwrap(), 5000);
        let mut sweep = |before| {
            let days = EntryDays {
                before,
                today: 20_006,
            };
            let mut next = Some(0);
            while let Some(byte) = next {
                next = index.sweep(&db, byte, days).unwrap();
            }
            count(&db).unwrap()
        };
        assert_eq!(sweep(20_000), 5000);
        assert_eq!(sweep(20_001), 2000, "the day of the first time counts");
        assert_eq!(sweep(20_006), 1000, "a day that is to come is today");
        assert_eq!(sweep(20_007), 0);
        assert!(!knows(&index, &db, 1));
    }
}
