//! The log comes to what the tables come to: random commands, restarts and readers.

#[cfg(feature = "nats")]
mod following;
mod power_cut;

use super::super::access::{AccessRow, UsageRow};
use super::super::apply::JournalDb;
use super::super::command::Command;
use super::super::completion::{ChatRow, InboxKind, InboxSeq, NewOp, NewOps, OpSeq, RowState};
use super::super::cron::{CronCommand, CronFiles};
use super::super::dedupe::{DedupeKey, KeyHash};
use super::super::finished::{self, PackedRange};
use super::super::inspect::{Inspector, Section};
use super::super::journal::{Durability, JournalSettings};
use super::super::tests::open_held;
use super::super::{reads, schema};
use super::FreedPages;
use super::codec::{self, BatchError};
use rusqlite::Connection;
use rusqlite::types::Value;
use std::path::Path;

const NOW: i64 = 1_790_000_000_000;

/// A small generator of numbers: the same seed, the same walk.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn number(&mut self, limit: u64) -> i64 {
        i64::try_from(self.below(limit)).unwrap() + 1
    }
}

/// A random command about rows and ops of which some exist.
#[expect(clippy::too_many_lines, reason = "one arm for each kind of command")]
fn command(dice: &mut Dice, token: u64, rows: u64, ops: u64) -> Command {
    let now_ms = NOW + i64::try_from(token).unwrap();
    let session = || format!("session {}", token % 3).into();
    let key = KeyHash::Blake2s.key(&[&dice.below(200).to_string()]);
    let dedupe = (dice.below(4) > 0).then_some(key);
    let new_ops = |count: u64| -> NewOps {
        let op = |number| NewOp {
            session: session(),
            chat: "chat".into(),
            op: format!("op {token}.{number}").into_bytes(),
        };
        (0..count).map(op).collect()
    };
    let recent = dice.below(12);
    let seq = InboxSeq(if dice.below(8) == 0 {
        dice.number(rows + 3)
    } else {
        i64::try_from(rows.saturating_sub(recent)).unwrap()
    });
    let op = OpSeq(i64::try_from(ops.saturating_sub(dice.below(6))).unwrap());
    let after = i64::try_from(rows.saturating_sub(dice.below(40))).unwrap();
    match dice.below(34) {
        0..8 => Command::Accept {
            token,
            kind: InboxKind::from_code(dice.number(4) - 1),
            session: session(),
            dedupe,
            buffer_id: (token.is_multiple_of(2)).then(|| format!("buffer {token}")),
            line: format!("line {token}").into_bytes().into(),
            start: dice.below(2) == 0,
            repeatable: token.is_multiple_of(3),
            now_ms,
        },
        8 => Command::Ignore {
            token,
            kind: InboxKind::Inbound,
            session: session(),
            dedupe,
            buffer_id: None,
            now_ms,
        },
        9..12 => Command::Start {
            seq,
            repeatable: token.is_multiple_of(3),
            now_ms,
        },
        12..19 => Command::End {
            seq,
            state: RowState::from_code(dice.number(5) + 1),
            ops: new_ops(dice.below(3)),
            now_ms,
        },
        19 => Command::AddOps {
            token,
            // Rows count from 1.
            inbox: (token.is_multiple_of(2) && seq.0 > 0).then_some(seq),
            ops: new_ops(dice.below(3)),
            now_ms,
        },
        20..22 => Command::OpSent { op },
        22 => Command::OpChanged {
            op,
            body: format!("changed {token}").into_bytes(),
        },
        23..26 => Command::OpSettled { op },
        26 => Command::RememberChat(ChatRow {
            platform: "p".into(),
            chat_id: dice.below(3).to_string().into(),
            memory: token.to_string().into_bytes(),
            last_used: NOW + dice.number(1000),
        }),
        27 => Command::AddUsage(UsageRow {
            day: 20_000,
            platform: "p".to_owned(),
            person: dice.below(2).to_string(),
            chat: "c".to_owned(),
            agent: "a".to_owned(),
            turns: 1,
            tokens: dice.number(100),
        }),
        28 if token.is_multiple_of(3) => Command::SetLine {
            seq,
            kind: InboxKind::Forward,
            line: format!("edited {token}").into_bytes().into(),
        },
        28 => Command::SetShown {
            seq,
            shown: (!token.is_multiple_of(4)).then(|| token.to_string().into_bytes()),
        },
        29 if token.is_multiple_of(2) => Command::SetRepeatable { seq },
        29 => Command::Load { seq },
        30 => Command::NextQueued {
            token,
            session: session(),
            after: InboxSeq(after),
            limit: u32::try_from(dice.number(20)).unwrap(),
            behind: u32::try_from(dice.number(20)).unwrap(),
        },
        31 => Command::NextWaiting {
            token,
            after: InboxSeq(after),
            limit: u32::try_from(dice.number(20)).unwrap(),
        },
        32 => Command::NextOps {
            token,
            after: OpSeq(i64::try_from(ops.saturating_sub(dice.below(20))).unwrap()),
            limit: u32::try_from(dice.number(20)).unwrap(),
        },
        _ => match dice.below(40) {
            0 => Command::SetResume {
                session: session(),
                blob: token.to_string().into_bytes(),
                now_ms,
            },
            1 => Command::OpDropped {
                op,
                body: b"dropped".to_vec(),
                reason: "why".to_owned(),
                now_ms,
            },
            2..4 => forget_usage(&dice.below(2).to_string()),
            _ => Command::LoadResume {
                token,
                session: session(),
            },
        },
    }
}

/// Deletes what a person has used.
fn forget_usage(person: &str) -> Command {
    Command::SetAccess(AccessRow {
        kind: "usage".to_owned(),
        platform: "p".to_owned(),
        person: person.to_owned(),
        value: None,
    })
}

const TABLES: [&str; 8] = [
    "inbox", "done", "keys", "outbox", "dropped", "chats", "usage", "resume",
];

/// The keys that the index does not have.
fn dump_keys(db: &Connection) -> Vec<Vec<Value>> {
    let mut keys: Vec<_> = reads::recent(db).unwrap().all().collect();
    keys.sort_unstable();
    let columns = |(key, seq): (DedupeKey, InboxSeq)| vec![key.as_bytes().to_vec().into(), seq.0.into()];
    keys.into_iter().map(columns).collect()
}

/// Everything that a table holds; finished messages however they are stored.
fn dump(db: &Connection, table: &str) -> Vec<Vec<Value>> {
    let table = match table {
        "keys" => return dump_keys(db),
        "done" => {
            db.execute_batch(
                "DROP TABLE IF EXISTS temp.log_done;
                 CREATE TEMP TABLE log_done AS SELECT * FROM main.done;
                 UPDATE temp.log_done SET dedupe = NULL;",
            )
            .unwrap();
            finished::unpack(db, PackedRange::After(0, u32::MAX)).unwrap();
            "temp.log_done"
        }
        table => table,
    };
    let mut find = db
        .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))
        .unwrap();
    let columns = find.column_count();
    let rows = find.query_map([], |row| (0..columns).map(|column| row.get(column)).collect());
    rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

fn listed(dir: &Path) -> String {
    let inspector = Inspector::open(dir).unwrap();
    let sections = [Section::Unfinished, Section::Finished, Section::Ops];
    let lists = sections.map(|section| {
        let mut entries = Vec::new();
        let each = |listed, content| -> Result<(), super::super::InspectError> {
            entries.push((listed, content));
            Ok(())
        };
        inspector.export(section, each).unwrap();
        entries
    });
    let (counts, usage) = (inspector.counts().unwrap(), inspector.usage(0).unwrap());
    format!("{lists:?} {counts:?} {usage:?} {:?}", inspector.depth().unwrap())
}

/// Two journals that get the same commands: one as usual, one in its tables alone.
fn walk(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (logged, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = JournalSettings {
        durability: Durability::Process,
        ..JournalSettings::default()
    };
    let (mut rows, mut ops, mut token) = (0, 0, 0);
    for _run in 0..3 {
        let open = |dir: &Path| {
            let db = open_held(dir, &settings);
            let (recovered, state) = reads::recover(&db, &settings).unwrap();
            (db, format!("{recovered:?}"), state)
        };
        let (db, recovered, state) = open(logged.path());
        let (plain_db, plain_recovered, plain_state) = open(plain.path());
        assert_eq!(recovered, plain_recovered, "seed {seed}");
        let mut journal = JournalDb::new(&db, state).unwrap();
        let mut tables = JournalDb::new(&plain_db, plain_state).unwrap();
        for _ in 0..dice.below(60) {
            let batch: Vec<Command> = (0..dice.number(6))
                .map(|_| {
                    token += 1;
                    command(&mut dice, token, rows, ops)
                })
                .collect();
            let outcomes = format!("{:?}", journal.transact(&batch, NOW).unwrap());
            let wanted = format!("{:?}", tables.transact_in_tables(&batch, NOW));
            assert_eq!(outcomes, wanted, "seed {seed}: {batch:#?}");
            (rows, ops) = (
                journal.counters.inbox.cast_unsigned() - 1,
                journal.counters.op.cast_unsigned() - 1,
            );
            match dice.below(30) {
                0 => journal.materialise().unwrap(),
                2..5 => journal.shorten_log(freed(&mut dice)).unwrap(),
                1 => assert_eq!(listed(logged.path()), listed(plain.path()), "seed {seed}"),
                _ => {}
            }
        }
        // Killed, or closed in order.
        if dice.below(2) == 0 {
            journal.materialise().unwrap();
            for table in TABLES {
                assert_eq!(dump(&db, table), dump(&plain_db, table), "seed {seed}: {table}");
            }
        }
    }
    let db = open_held(logged.path(), &settings);
    let plain_db = open_held(plain.path(), &settings);
    for table in TABLES {
        assert_eq!(dump(&db, table), dump(&plain_db, table), "seed {seed}: {table}");
    }
    assert!(dump(&db, "log").is_empty());
}

#[test]
fn the_log_comes_to_what_the_tables_come_to() {
    let walks = std::env::var("LOG_WALKS").map_or(40, |walks| walks.parse().unwrap());
    for seed in 1..=walks {
        walk(seed);
    }
}

#[test]
fn a_batch_is_read_as_it_was_written_and_damage_is_noticed() {
    let mut dice = Dice(7);
    let commands: Vec<Command> = (1..400).map(|token| command(&mut dice, token, 50, 50)).collect();
    let bytes = super::encode_batch(&commands);
    let known = super::decode_batch(&bytes).unwrap();
    assert!(known.len() > 200 && known.len() < commands.len());
    assert_eq!(super::encode_batch(&known), bytes);
    let (ids, _) = codec::read(&bytes).unwrap();
    assert_eq!((ids.inbox, ids.op), (1, 1));
    for cut in 0..bytes.len().min(2000) {
        let _ = codec::read(&bytes[..cut]);
        let mut changed = bytes.clone();
        changed[cut] ^= 0x55;
        let _ = codec::read(&changed);
    }
    assert!(matches!(codec::read(&[]), Err(BatchError::Damaged)));
    assert!(matches!(codec::read(&[2, 2, 2]), Err(BatchError::Version(2))));
    assert!(matches!(codec::read(&[1, 2, 2, 0]), Err(BatchError::Damaged)));
    assert!(matches!(
        codec::read(&[1, 2, 2, 99]),
        Err(BatchError::UnknownCommand(99))
    ));
}

#[test]
fn a_log_that_cannot_be_read_is_damage_and_not_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (path, settings) = (schema::path_in(dir.path()), JournalSettings::default());
    let db = schema::open(&path, &settings).unwrap();
    db.execute("INSERT INTO log (batch) VALUES (x'0102')", [])
        .unwrap();
    drop(db);
    let held = super::super::lock::StateLock::take(dir.path(), false, NOW).unwrap();
    let error = schema::open_held(&path, &settings, &held).unwrap_err();
    assert!(
        matches!(error, super::super::OpenError::Corrupt { .. }),
        "{error:?}"
    );
}

#[test]
fn a_log_of_a_newer_program_asks_for_an_upgrade_and_stays_where_it_is() {
    use super::super::{Journal, OpenError};
    for (batch, unknown) in [("x'020202'", "format 2"), ("x'010202c8'", "command 200")] {
        let dir = tempfile::tempdir().unwrap();
        let (path, settings) = (schema::path_in(dir.path()), JournalSettings::default());
        let db = schema::open(&path, &settings).unwrap();
        let insert = format!("INSERT INTO log (batch) VALUES ({batch})");
        db.execute(&insert, []).unwrap();
        drop(db);
        let fresh = JournalSettings {
            fresh_on_corruption: true,
            ..settings.clone()
        };
        let error = Journal::open(dir.path(), fresh, NOW).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, OpenError::NewerLog { .. }), "{error:?}");
        assert!(said.contains(unknown) && said.contains("upgrade"), "{said}");
        let db = schema::open(&path, &settings).unwrap();
        assert_eq!(dump(&db, "log").len(), 1, "it was not moved");
    }
}

#[test]
fn another_program_leaves_the_log_of_a_running_relay_alone() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let db = open_held(dir.path(), &settings);
    let (_, state) = reads::recover(&db, &settings).unwrap();
    let mut journal = JournalDb::new(&db, state).unwrap();
    let accept = command(&mut Dice(0), 1, 0, 0);
    assert!(matches!(accept, Command::Accept { .. }));
    journal.transact(&[accept], NOW).unwrap();
    let mut jobs = CronFiles::open(dir.path(), false, NOW).unwrap();
    jobs.run(&CronCommand::Jobs).unwrap();
    assert_eq!((dump(&db, "log").len(), dump(&db, "inbox").len()), (1, 0));
    journal.materialise().unwrap();
    assert_eq!((dump(&db, "log").len(), dump(&db, "inbox").len()), (0, 1));
}

fn freed(dice: &mut Dice) -> FreedPages {
    match dice.below(2) {
        0 => FreedPages::Overwritten,
        _ => FreedPages::NotOverwritten,
    }
}

#[test]
fn what_is_young_and_small_stays_in_a_log_that_is_shortened_once() {
    let accept = |token, bytes| Command::Accept {
        token,
        kind: InboxKind::Inbound,
        session: format!("s{token}").into(),
        dedupe: None,
        buffer_id: None,
        line: vec![b'x'; bytes].into(),
        start: true,
        repeatable: false,
        now_ms: NOW,
    };
    // Whether what is not finished goes on in the log, each time that it is shortened.
    let carried = |commands: Vec<Vec<Command>>| {
        let dir = tempfile::tempdir().unwrap();
        let settings = JournalSettings::default();
        let db = open_held(dir.path(), &settings);
        let (_, state) = reads::recover(&db, &settings).unwrap();
        let mut journal = JournalDb::new(&db, state).unwrap();
        let step = |commands: Vec<Command>| {
            if !commands.is_empty() {
                journal.transact(&commands, NOW).unwrap();
            }
            journal.shorten_log(FreedPages::Overwritten).unwrap();
            dump(&db, "inbox").is_empty() && !dump(&db, "log").is_empty()
        };
        commands.into_iter().map(step).collect::<Vec<bool>>()
    };
    assert_eq!(carried(vec![vec![accept(1, 100)], vec![]]), [true, false]);
    assert_eq!(carried(vec![vec![accept(1, 300 << 10)]]), [false], "it is large");
    let both = vec![vec![accept(1, 100)], vec![accept(2, 100)]];
    assert_eq!(carried(both), [true, false], "one of them is old");
}

#[test]
fn a_full_log_is_shortened_in_the_transaction_of_the_next_commit_or_not_at_all() {
    let (dir, plain_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = JournalSettings::default();
    let (db, plain_db) = (
        open_held(dir.path(), &settings),
        open_held(plain_dir.path(), &settings),
    );
    let open = |db| JournalDb::new(db, reads::recover(db, &settings).unwrap().1).unwrap();
    let (mut journal, mut plain) = (open(&db), open(&plain_db));
    let accept = |token, bytes| Command::Accept {
        token,
        kind: InboxKind::Inbound,
        session: format!("s{token}").into(),
        dedupe: Some(KeyHash::Blake2s.key(&[&token.to_string()])),
        buffer_id: None,
        line: vec![b'x'; bytes].into(),
        start: true,
        repeatable: false,
        now_ms: NOW,
    };
    let end = |seq| Command::End {
        seq: InboxSeq(seq),
        state: RowState::Done,
        ops: NewOps::new(),
        now_ms: NOW,
    };
    let accepted: Vec<_> = (1..12).map(|token| accept(token, 100)).collect();
    let ended: Vec<_> = (1..12).map(end).collect();
    let (last, long) = ([accept(12, 100)], [accept(13, 1 << 20)]);
    for batch in [&accepted[..], &ended, &last] {
        assert!(!journal.is_log_full());
        journal.transact(batch, NOW).unwrap();
    }
    let room = |pages: i64| db.pragma_update(None, "max_page_count", pages).unwrap();
    let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    let before = dump(&db, "log");

    room(pages + 64);
    assert!(journal.transact(&long, NOW).is_err());
    assert!(journal.is_log_full());
    assert_eq!(dump(&db, "log"), before);
    room(1 << 20);
    journal.transact(&long, NOW).unwrap();
    assert!(!journal.is_log_full());
    // What is not finished, and the new one.
    assert_eq!((dump(&db, "log").len(), dump(&db, "inbox").len()), (2, 0));

    for batch in [&accepted[..], &ended, &last, &long] {
        plain.transact_in_tables(batch, NOW);
    }
    journal.materialise().unwrap();
    for table in TABLES {
        assert_eq!(dump(&db, table), dump(&plain_db, table), "{table}");
    }
}

#[test]
fn the_text_of_a_message_that_ended_is_nowhere_in_the_files() {
    const SECRET: &[u8] = b"a text that only the agent may keep";
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let db = open_held(dir.path(), &settings);
    let (_, state) = reads::recover(&db, &settings).unwrap();
    let mut journal = JournalDb::new(&db, state).unwrap();
    let accept = Command::Accept {
        token: 1,
        kind: InboxKind::Inbound,
        session: "s".into(),
        dedupe: None,
        buffer_id: None,
        line: SECRET.repeat(400).into(),
        start: true,
        repeatable: false,
        now_ms: NOW,
    };
    // The first two as in a busy journal.
    for (seq, freed) in (1..).zip([
        FreedPages::NotOverwritten,
        FreedPages::NotOverwritten,
        FreedPages::Overwritten,
    ]) {
        let end = Command::End {
            seq: InboxSeq(seq),
            state: RowState::Done,
            ops: NewOps::new(),
            now_ms: NOW,
        };
        journal.transact(std::slice::from_ref(&accept), NOW).unwrap();
        journal.transact(&[end], NOW).unwrap();
        journal.shorten_log(freed).unwrap();
    }
    while journal.vacuum_free_pages().unwrap() {}
    super::super::writer::checkpoint_fully(&db);
    drop(journal);
    drop(db);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(SECRET.len()).any(|window| window == SECRET);
        assert!(!found, "{}", path.display());
    }
}

/// So many turns and tokens that one more is too many for a column.
fn absurd_usage() -> Command {
    Command::AddUsage(UsageRow {
        day: 20_000,
        platform: "p".to_owned(),
        person: "u".to_owned(),
        chat: "c".to_owned(),
        agent: "a".to_owned(),
        turns: i64::MAX,
        tokens: i64::MAX,
    })
}

#[test]
fn usage_beyond_the_largest_number_stops_neither_the_journal_nor_its_readers_nor_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let used = || {
        let rows = Inspector::open(dir.path()).unwrap().usage(0).unwrap();
        rows.iter().map(|row| (row.turns, row.tokens)).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let db = open_held(dir.path(), &settings);
        let (_, state) = reads::recover(&db, &settings).unwrap();
        let mut journal = JournalDb::new(&db, state).unwrap();
        for _ in 0..2 {
            journal.transact(&[absurd_usage()], NOW).unwrap();
            journal.materialise().unwrap();
        }
        journal.transact(&[absurd_usage(), absurd_usage()], NOW).unwrap();
        assert_eq!(used(), [(i64::MAX, i64::MAX)], "with what is in the log");
    }
    drop(open_held(dir.path(), &settings));
    assert_eq!(used(), [(i64::MAX, i64::MAX)]);
}

#[test]
fn forgotten_usage_is_not_back_when_the_log_is_moved() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let db = open_held(dir.path(), &settings);
    let (_, state) = reads::recover(&db, &settings).unwrap();
    let mut journal = JournalDb::new(&db, state).unwrap();
    journal.transact(&[absurd_usage()], NOW).unwrap();
    journal.transact(&[forget_usage("u")], NOW).unwrap();
    // Both in one commit.
    journal
        .transact(&[absurd_usage(), forget_usage("u")], NOW)
        .unwrap();
    journal.materialise().unwrap();
    assert!(dump(&db, "usage").is_empty());
    journal
        .transact(&[forget_usage("u"), absurd_usage()], NOW)
        .unwrap();
    journal.materialise().unwrap();
    assert_eq!(dump(&db, "usage").len(), 1, "what came after it stays");
}
