//! A power failure at any write of the journal: commits, moving the log into the tables, checkpoints, closing, and opening itself.
//!
//! Every step is one of those that end with a sync. The bytes of the database and of its write-ahead log are read before and after
//! it; what the disk may hold when the power fails in between is the old bytes with any part of the changes: a prefix, cut at and
//! within frames, blocks that came before others that were written earlier, torn sectors. Each of these disks is opened as a
//! starting relay does, and must come to what was committed before the step or, as a whole, after it; after a step that returned,
//! nothing else. A journal that never had a log ([`JournalDb::transact_in_tables`]) says what that is. The memory index
//! (`-shm`) is lost or garbage.
//!
//! That a commit waits for the disk is seen from outside, by the system calls of a process of its own.

#[path = "../../../../tests/support/skip.rs"]
mod skip;
#[path = "../../../../tests/support/torn_disk.rs"]
mod torn_disk;

use super::super::super::retention::vacuum_slice;
use super::super::super::wal_space::WalSpace;
use super::super::super::writer::{checkpoint_fully, checkpoint_now};
use super::*;
use std::fs;
use std::io::Write as _;
use tempfile::TempDir;
use torn_disk::{DiskImage, torn_disks};

/// A directory without a disk behind it, where there is one: only the bytes matter here.
fn fast_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

type Tables = Vec<Vec<Vec<Value>>>;

fn tables(db: &Connection) -> Tables {
    let more = ["quarantine", "access"];
    TABLES.iter().chain(&more).map(|table| dump(db, table)).collect()
}

/// A machine that starts with a disk.
fn boot(disk: &DiskImage, dice: &mut Dice) -> TempDir {
    let dir = fast_dir();
    disk.write_to(dir.path());
    if dice.below(4) == 0 {
        let garbage: Vec<u8> = (0..32_768).map(|_| dice.below(256).to_le_bytes()[0]).collect();
        fs::write(dir.path().join("journal.db-shm"), garbage).unwrap();
    }
    dir
}

fn torn(before: &DiskImage, after: &DiskImage, dice: &mut Dice) -> Vec<DiskImage> {
    torn_disks(before, after, &mut |limit| {
        usize::try_from(dice.below(limit as u64)).unwrap()
    })
}

/// The life of a journal, and of another one without a log.
struct PowerWalk {
    seed: u64,
    dice: Dice,
    settings: JournalSettings,
    /// Disks that were started.
    boots: usize,
}

impl PowerWalk {
    /// What a disk comes to after a start.
    fn start(&mut self, disk: &DiskImage, what: &str) -> Tables {
        let dir = boot(disk, &mut self.dice);
        let db = open_held(dir.path(), &self.settings);
        self.boots += 1;
        assert!(dump(&db, "log").is_empty(), "seed {}: {what}", self.seed);
        if self.dice.below(8) == 0 {
            let sound: String = db
                .query_row("PRAGMA integrity_check", [], |row| row.get(0))
                .unwrap();
            assert_eq!(sound, "ok", "seed {}: {what}", self.seed);
        }
        reads::recover(&db, &self.settings).unwrap();
        tables(&db)
    }

    /// Every disk of a step comes to one of both ends, and the last one to the end.
    fn check(&mut self, what: &str, disks: (&DiskImage, &DiskImage), ends: (&Tables, &Tables)) {
        let (before, after) = disks;
        for disk in torn(before, after, &mut self.dice) {
            let found = self.start(&disk, what);
            assert!(
                found == *ends.0 || found == *ends.1,
                "seed {}: half of a step after {what}",
                self.seed
            );
        }
        let found = self.start(after, what);
        assert_eq!(found, *ends.1, "seed {}: lost after {what}", self.seed);
    }

    /// Opens a disk, with the power failing while it does.
    fn open(&mut self, disk: &DiskImage, expected: &Tables) -> (TempDir, Connection) {
        let dir = boot(disk, &mut self.dice);
        let before = DiskImage::of(dir.path());
        let db = open_held(dir.path(), &self.settings);
        let after = DiskImage::of(dir.path());
        self.check("an opening", (&before, &after), (expected, expected));
        (dir, db)
    }

    fn batch(&mut self, token: &mut u64, rows: u64, ops: u64) -> Vec<Command> {
        let mut commands = Vec::new();
        for _ in 0..self.dice.number(6) {
            *token += 1;
            commands.push(command(&mut self.dice, *token, rows, ops));
        }
        match self.dice.below(20) {
            5 => commands.push(forget_usage(&self.dice.below(2).to_string())),
            0 => commands.push(Command::SetAccess(AccessRow {
                kind: "rule".to_owned(),
                platform: "p".to_owned(),
                person: self.dice.below(3).to_string(),
                value: (self.dice.below(2) == 0).then(|| token.to_string()),
            })),
            1 => commands.push(Command::Quarantine {
                token: *token,
                reason: "why".to_owned(),
                buffer_id: None,
                line: token.to_string().into_bytes(),
                now_ms: NOW,
            }),
            // More pages than one, so that frames of one commit can be lost apart.
            2..5 => commands.push(Command::Accept {
                token: *token,
                kind: InboxKind::Inbound,
                session: "long".into(),
                dedupe: None,
                buffer_id: None,
                line: vec![token.to_le_bytes()[0]; 9000].into(),
                start: false,
                repeatable: false,
                now_ms: NOW,
            }),
            _ => {}
        }
        commands
    }

    /// One life between two power failures; returns what the disk is at its end.
    fn live(&mut self, disk: &DiskImage, plain: &mut JournalDb<'_>, token: &mut u64) -> DiskImage {
        let mut expected = tables(plain.db);
        let (dir, db) = self.open(disk, &expected);
        let (_, state) = reads::recover(&db, &self.settings).unwrap();
        let mut journal = JournalDb::new(&db, state).unwrap();
        let mut last = DiskImage::of(dir.path());
        for _ in 0..5 + self.dice.below(6) {
            let rows = journal.counters.inbox.cast_unsigned() - 1;
            let ops = journal.counters.op.cast_unsigned() - 1;
            let batch = self.batch(token, rows, ops);
            let outcomes = format!("{:?}", journal.transact(&batch, NOW).unwrap());
            let wanted = format!("{:?}", plain.transact_in_tables(&batch, NOW));
            assert_eq!(outcomes, wanted, "seed {}: {batch:#?}", self.seed);
            let committed = tables(plain.db);
            let after = DiskImage::of(dir.path());
            assert!(
                last.database == after.database,
                "a commit changes the write-ahead log alone"
            );
            self.check("a commit", (&last, &after), (&expected, &committed));
            (last, expected) = (after, committed);
            let what = match self.dice.below(12) {
                0 | 1 => {
                    journal.materialise().unwrap();
                    "moving the log"
                }
                5 => {
                    journal.shorten_log(freed(&mut self.dice)).unwrap();
                    "shortening the log"
                }
                2 => {
                    checkpoint_now(&db);
                    "a checkpoint"
                }
                3 => {
                    checkpoint_now(&db);
                    checkpoint_fully(&db);
                    "a full checkpoint"
                }
                4 => {
                    vacuum_slice(&db).unwrap();
                    "giving pages back"
                }
                6 => {
                    journal.vacuum_free_pages().unwrap();
                    "giving back pages with text"
                }
                7 | 8 => {
                    WalSpace::default().after_commit(&db);
                    "adding space to the write-ahead log"
                }
                _ => continue,
            };
            let after = DiskImage::of(dir.path());
            self.check(what, (&last, &after), (&expected, &expected));
            last = after;
        }
        if self.dice.below(2) == 0 {
            return last;
        }
        // It is closed in order, and the power fails while it is.
        journal.materialise().unwrap();
        let moved = DiskImage::of(dir.path());
        self.check("the last move", (&last, &moved), (&expected, &expected));
        drop(journal);
        checkpoint_fully(&db);
        let closing = DiskImage::of(dir.path());
        self.check("a close", (&moved, &closing), (&expected, &expected));
        drop(db);
        let closed = DiskImage::of(dir.path());
        let disks = torn(&moved, &closed, &mut self.dice);
        let one = usize::try_from(self.dice.below(disks.len() as u64)).unwrap();
        disks.into_iter().nth(one).unwrap_or(closed)
    }
}

fn power_walk(seed: u64) -> usize {
    let mut walk = PowerWalk {
        seed,
        dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        settings: JournalSettings {
            durability: Durability::Process,
            ..JournalSettings::default()
        },
        boots: 0,
    };
    let (made, plain) = (fast_dir(), fast_dir());
    drop(open_held(made.path(), &walk.settings));
    let mut disk = DiskImage::of(made.path());
    let mut token = 0;
    for _life in 0..3 {
        let plain_db = open_held(plain.path(), &walk.settings);
        let (_, state) = reads::recover(&plain_db, &walk.settings).unwrap();
        let mut tables = JournalDb::new(&plain_db, state).unwrap();
        disk = walk.live(&disk, &mut tables, &mut token);
    }
    walk.boots
}

#[test]
fn a_power_failure_at_any_write_loses_nothing_and_leaves_nothing_half_done() {
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (first, walks) = (number("POWER_SEED", 1), number("POWER_WALKS", 1));
    let boots: usize = (first..first + walks).map(power_walk).sum();
    assert!(boots > 100, "{boots} disks");
}

/// Set for the process whose system calls are looked at: where it commits.
const TRACED: &str = "POWER_TRACED_DIR";

/// Commits, and says so in a file after each one.
#[test]
fn traced_commits() {
    let Some(dir) = std::env::var_os(TRACED) else {
        return;
    };
    let dir = Path::new(&dir);
    let settings = JournalSettings::default();
    let db = open_held(dir, &settings);
    let (_, state) = reads::recover(&db, &settings).unwrap();
    let mut journal = JournalDb::new(&db, state).unwrap();
    let mut said = fs::File::create(dir.join("said")).unwrap();
    let mut dice = Dice(11);
    for token in 1..=40 {
        let (rows, ops) = (journal.counters.inbox, journal.counters.op);
        let batch = [command(
            &mut dice,
            token,
            rows.cast_unsigned() - 1,
            ops.cast_unsigned() - 1,
        )];
        journal.transact(&batch, NOW).unwrap();
        said.write_all(b"COMMITTED").unwrap();
        match dice.below(8) {
            0 => journal.materialise().unwrap(),
            1 => checkpoint_now(&db),
            2 => {
                journal.shorten_log(FreedPages::NotOverwritten).unwrap();
                said.write_all(b"MOVED").unwrap();
            }
            _ => {}
        }
    }
}

#[test]
fn a_commit_returns_after_its_bytes_were_synced() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let traced = std::process::Command::new("strace")
        .args(["-f", "-y", "-e", "trace=pwrite64,write,fdatasync,fsync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store::log::tests::power_cut::traced_commits",
            "--test-threads=1",
        ])
        .env(TRACED, &state)
        .output();
    let calls = fs::read_to_string(&trace).unwrap_or_default();
    if !traced.is_ok_and(|output| output.status.success()) || calls.is_empty() {
        return skip::skip("strace cannot look at system calls here");
    }
    let (mut unsynced, mut commits, mut writes) = (0, 0, 0);
    for call in calls.lines() {
        let is_about = |name: &str| call.contains(&format!("{name}>"));
        if call.contains("pwrite64(") && is_about("journal.db-wal") {
            (unsynced, writes) = (unsynced + 1, writes + 1);
        } else if (call.contains("fdatasync(") || call.contains("fsync(")) && is_about("journal.db-wal") {
            unsynced = 0;
        } else if call.contains("COMMITTED") || call.contains("MOVED") {
            assert_eq!(
                unsynced, 0,
                "a commit returned before its bytes were synced: {call}"
            );
            commits += u32::from(call.contains("COMMITTED"));
        } else if call.contains("pwrite64(") && is_about("journal.db") {
            assert_eq!(
                unsynced, 0,
                "a checkpoint came before its bytes were synced: {call}"
            );
        }
    }
    assert!(
        commits == 40 && writes >= 20,
        "{commits} commits, {writes} writes"
    );
}
