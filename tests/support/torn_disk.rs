//! What the disk under a journal may hold after a power failure.

use std::fs;
use std::path::Path;

/// The unit in which a disk writes.
const SECTOR: usize = 512;
/// The unit in which the kernel writes back.
const BLOCK: usize = 4096;
const WAL_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const FRAME: usize = FRAME_HEADER + BLOCK;
/// Blocks of one step that are lost one by one.
const MAX_SINGLE: usize = 6;

const DATABASE: &str = "journal.db";
const WAL: &str = "journal.db-wal";

/// A number below its argument.
pub(crate) type Chance<'c> = &'c mut dyn FnMut(usize) -> usize;

/// What is on the disk: the database and its write-ahead log. The memory index is not part of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DiskImage {
    pub(crate) database: Vec<u8>,
    pub(crate) wal: Vec<u8>,
}

impl DiskImage {
    pub(crate) fn of(dir: &Path) -> Self {
        Self {
            database: fs::read(dir.join(DATABASE)).unwrap_or_default(),
            wal: fs::read(dir.join(WAL)).unwrap_or_default(),
        }
    }

    pub(crate) fn write_to(&self, dir: &Path) {
        fs::write(dir.join(DATABASE), &self.database).unwrap();
        if !self.wal.is_empty() {
            fs::write(dir.join(WAL), &self.wal).unwrap();
        }
    }
}

/// What a file may hold when the power fails while `before` becomes `after`; both ends are not among them.
fn torn_files(before: &[u8], after: &[u8], chance: Chance<'_>) -> Vec<Vec<u8>> {
    let longest = before.len().max(after.len());
    let old = |at: usize| before.get(at).copied().unwrap_or(0);
    let new = |at: usize| after.get(at).copied().unwrap_or(0);
    let changed = |unit: usize| -> Vec<usize> {
        let part = |file: &[u8], from: usize| -> Vec<u8> {
            let part = file.get(from..file.len().min(from + unit)).unwrap_or_default();
            let mut part = part.to_vec();
            part.resize(unit, 0);
            part
        };
        let is_changed = |from: &usize| part(before, *from) != part(after, *from);
        (0..longest).step_by(unit).filter(is_changed).collect()
    };
    // The old bytes, with these parts of the new ones; the file has its new length by then.
    let with = |parts: &[usize], unit: usize| -> Vec<u8> {
        let mut file = before.to_vec();
        file.resize(after.len(), 0);
        for from in parts {
            let to = after.len().min(from + unit);
            if *from < to {
                file[*from..to].copy_from_slice(&after[*from..to]);
            }
        }
        file
    };
    let sectors = changed(SECTOR);
    let Some(first) = sectors.first().copied() else {
        return Vec::new();
    };
    let mut files = Vec::new();
    if after.len() >= before.len() {
        let frames = (WAL_HEADER..after.len()).step_by(FRAME);
        let cuts = frames.flat_map(|frame| [frame, frame + FRAME_HEADER, frame + FRAME - 1]);
        for cut in [WAL_HEADER / 2].into_iter().chain(cuts) {
            if cut > first && cut < after.len() {
                // Written in place, or at the end of a file that grew only so far.
                let tail = before.get(cut..).unwrap_or_default();
                files.push([&after[..cut], tail].concat());
            }
        }
    }
    let blocks = changed(BLOCK);
    for (index, block) in blocks.iter().enumerate().take(MAX_SINGLE) {
        let mut others = blocks.clone();
        others.remove(index);
        files.push(with(&others, BLOCK));
        files.push(with(&[*block], BLOCK));
    }
    for _ in 0..3 {
        let some: Vec<usize> = sectors.iter().copied().filter(|_| chance(2) == 0).collect();
        let mut file = with(&some, SECTOR);
        if chance(2) == 0 {
            // A sector that was being written. What is in it and was synced before stays: SQLite relies on that ("powersafe overwrite").
            let torn = sectors[chance(sectors.len())];
            for at in torn..file.len().min(torn + SECTOR) {
                if old(at) != new(at) {
                    file[at] = chance(256).to_le_bytes()[0];
                }
            }
        }
        files.push(file);
    }
    files.retain(|file| file != before && file != after);
    files
}

/// What the disk may be when the power fails during a step that ends with a sync; the end is not among them. A checkpoint syncs the
/// log before it touches the database, and the database before it empties the log.
pub(crate) fn torn_disks(before: &DiskImage, after: &DiskImage, chance: Chance<'_>) -> Vec<DiskImage> {
    let databases = torn_files(&before.database, &after.database, chance);
    // A log that begins anew has its header synced before anything else is written.
    let mut begun = before.wal.clone();
    if !after.wal.is_empty() {
        begun.resize(begun.len().max(WAL_HEADER), 0);
        begun[..WAL_HEADER].copy_from_slice(&after.wal[..WAL_HEADER]);
    }
    let mut wals = torn_files(&before.wal, &begun, chance);
    wals.extend(torn_files(&begun, &after.wal, chance));
    wals.push(begun);
    let is_emptied = after.wal.len() < before.wal.len();
    let (log_meanwhile, database_meanwhile) = if is_emptied {
        (&before.wal, &after.database)
    } else {
        (&after.wal, &before.database)
    };
    let between = DiskImage {
        database: database_meanwhile.clone(),
        wal: log_meanwhile.clone(),
    };
    let database = |database| DiskImage {
        database,
        wal: log_meanwhile.clone(),
    };
    let wal = |wal| DiskImage {
        database: database_meanwhile.clone(),
        wal,
    };
    let databases = databases.into_iter().map(database);
    let wals = wals.into_iter().map(wal);
    let disks = [before.clone(), between].into_iter().chain(databases);
    disks.chain(wals).collect()
}
