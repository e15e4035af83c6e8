//! The journal's inside: faults made by a second connection, upkeep on a made-up clock.

mod bounds;
mod inspecting;

use super::apply::{CommandOutcome, JournalDb};
use super::retention::{SliceContext, Upkeep, free_pages, used_bytes, vacuum, vacuum_slice};
use super::*;
use crate::store::days::DAY_MS;
use rusqlite::Connection;
use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

const NOW: i64 = 1_790_000_000_000;

fn accept(token: u64, session: &str, key: Option<&str>) -> Command {
    Command::Accept {
        token,
        kind: InboxKind::Inbound,
        session: session.into(),
        dedupe: key.map(|key| KeyHash::Blake2s.key(&[key])),
        buffer_id: Some(format!("buffer-{token}")),
        line: vec![b'x'; 400].into(),
        start: true,
        repeatable: false,
        now_ms: NOW,
    }
}

fn end(seq: i64, now_ms: i64) -> Command {
    Command::End {
        seq: InboxSeq(seq),
        state: RowState::Done,
        ops: NewOps::new(),
        now_ms,
    }
}

fn end_with_op(seq: i64) -> Command {
    let mut command = end(seq, NOW);
    if let Command::End { ops, .. } = &mut command {
        ops.push(NewOp {
            session: "s".into(),
            chat: "c".into(),
            op: b"{}".to_vec(),
        });
    }
    command
}

/// The journal of a directory, as its holder opens it.
pub(super) fn open_held(dir: &Path, settings: &JournalSettings) -> Connection {
    let held = lock::StateLock::take(dir, false, NOW).unwrap();
    schema::open_held(&schema::path_in(dir), settings, &held).unwrap()
}

fn with_ledger(dir: &Path, settings: &JournalSettings, work: impl FnOnce(&mut JournalDb<'_>)) {
    let db = open_held(dir, settings);
    let (_, writer_state) = reads::recover(&db, settings).unwrap();
    work(&mut JournalDb::new(&db, writer_state).unwrap());
}

/// How many rows a table has; of finished messages and of keys, how many there are however they are stored.
fn count(db: &Connection, from: &str) -> i64 {
    let packed = match from {
        "done" => finished::count(db).unwrap(),
        "dedupe" => key_index::count(db).unwrap(),
        _ => 0,
    };
    let rows: i64 = db
        .query_row(&format!("SELECT count(*) FROM {from}"), [], |row| row.get(0))
        .unwrap();
    rows + packed
}

async fn next(opened: &mut Opened) -> Vec<Completion> {
    timeout(Duration::from_secs(20), opened.batches.recv())
        .await
        .expect("a batch in time")
        .unwrap()
        .completions
}

#[tokio::test]
async fn a_failed_commit_receipts_nothing_keeps_endings_and_heals() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        lock_wait_ms: 1,
        ..JournalSettings::default()
    };
    let mut opened = Journal::open(dir.path(), settings, NOW).unwrap();
    opened
        .journal
        .submit(vec![accept(1, "s", Some("a"))])
        .await
        .unwrap();
    assert!(matches!(
        next(&mut opened).await[..],
        [Completion::Accepted { seq: InboxSeq(1), .. }]
    ));

    let other = Connection::open(schema::path_in(dir.path())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let asked = vec![
        accept(2, "s", Some("b")),
        end_with_op(1),
        Command::LoadResume {
            token: 3,
            session: "s".into(),
        },
        Command::Handed {
            token: 4,
            command: Box::new(HandedCommand::Contexts),
        },
    ];
    opened.journal.submit(asked).await.unwrap();
    let done = next(&mut opened).await;
    let [
        Completion::Failed(failed),
        Completion::Resume { token: 3, blob: None },
        Completion::Handed { token: 4, .. },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(
        (failed.subject, failed.fault.kind),
        (Subject::Token(2), FaultKind::Busy)
    );
    assert!(matches!(
        &*opened.health.borrow_and_update(),
        Health::Failing { .. }
    ));

    opened
        .journal
        .submit(vec![accept(4, "s", Some("b"))])
        .await
        .unwrap();
    assert!(matches!(next(&mut opened).await[..], [Completion::Failed(_)]));

    other.execute_batch("ROLLBACK").unwrap();
    let done = next(&mut opened).await;
    assert!(
        matches!(done[..], [Completion::Ended { seq: InboxSeq(1), .. }]),
        "{done:?}"
    );
    timeout(
        Duration::from_secs(5),
        opened.health.wait_for(|health| *health == Health::Ok),
    )
    .await
    .unwrap()
    .unwrap();
    opened
        .journal
        .submit(vec![accept(5, "s", Some("b"))])
        .await
        .unwrap();
    let done = next(&mut opened).await;
    let [
        Completion::Accepted {
            seq: InboxSeq(2),
            receipt,
            ..
        },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(receipt.ack_id(), Some("buffer-5"));
    opened.journal.close().await.unwrap();
    assert_eq!(count(&other, "outbox"), 1);
}

/// A journal that cannot be written until the other connection ends its transaction.
fn open_locked() -> (tempfile::TempDir, Opened, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        lock_wait_ms: 1,
        ..JournalSettings::default()
    };
    let opened = Journal::open(dir.path(), settings, NOW).unwrap();
    let other = Connection::open(schema::path_in(dir.path())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    (dir, opened, other)
}

#[tokio::test]
async fn what_an_earlier_process_left_of_jobs_is_taken_in_when_the_disk_is_well_again() {
    let (_dir, mut opened, other) = open_locked();
    let recover = Command::Cron {
        token: 7,
        command: Box::new(CronCommand::Recover {
            owner: current_owner(1),
            now: jiff::Timestamp::from_millisecond(NOW).unwrap(),
        }),
    };
    let asked = vec![recover, accept(1, "s", None)];
    opened.journal.submit(asked).await.unwrap();
    let failed = next(&mut opened).await;
    let [Completion::Failed(only)] = &failed[..] else {
        panic!("{failed:?}")
    };
    assert_eq!(only.subject, Subject::Token(1), "the message comes again");
    other.execute_batch("ROLLBACK").unwrap();
    let done = next(&mut opened).await;
    assert!(
        matches!(
            &done[..],
            [Completion::Cron {
                token: 7,
                reply: CronReply::Recovered { .. }
            }]
        ),
        "{done:?}"
    );
}

#[tokio::test]
async fn a_run_of_a_job_that_waits_is_not_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap();
    let waits = |token, of: InboxKind| {
        let mut command = accept(token, "cron:a1", None);
        if let Command::Accept { start, kind, .. } = &mut command {
            (*start, *kind) = (false, of);
        }
        command
    };
    let drop_message = |token, seq| Command::Repair {
        token,
        repair: Repair::Drop,
        item: Item::Message(InboxSeq(seq)),
        now_ms: NOW,
    };
    let asked = vec![
        waits(1, InboxKind::Job),
        waits(2, InboxKind::Inbound),
        drop_message(3, 1),
        drop_message(4, 2),
    ];
    opened.journal.submit(asked).await.unwrap();
    let mut done = Vec::new();
    while done.len() < 4 {
        done.extend(next(&mut opened).await);
    }
    let repaired = done.iter().filter_map(|done| match done {
        Completion::Repaired { token, repaired } => Some((*token, repaired)),
        _ => None,
    });
    let dropped = Repaired::DroppedMessage(InboxSeq(2), "cron:a1".into());
    let expected = [(3, &Repaired::Refused), (4, &dropped)];
    assert_eq!(repaired.collect::<Vec<_>>(), expected);
    opened.journal.close().await.unwrap();
    // Nor while no relay runs: its claim is taken over by the next start.
    let kept = Inspector::discard(dir.path(), Item::Message(InboxSeq(1)), NOW);
    assert!(matches!(kept, Err(InspectError::NotDroppable)), "{kept:?}");
}

#[test]
fn a_start_after_a_crash_waits_for_another_process_that_writes() {
    thread_local! {
        static OTHER: RefCell<Option<Connection>> = const { RefCell::new(None) };
    }
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    with_ledger(dir.path(), &settings, |ledger| {
        ledger.transact(&[accept(1, "s", None)], NOW).unwrap();
    });
    let path = schema::path_in(dir.path());
    let mut db = schema::open(&path, &settings).unwrap();
    assert_eq!((count(&db, "log"), count(&db, "inbox")), (1, 0));
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch("BEGIN IMMEDIATE; CREATE TABLE elsewhere (x)")
        .unwrap();
    OTHER.set(Some(other));
    // The other one is done as soon as somebody waits for it.
    db.busy_handler(Some(|_| {
        OTHER
            .take()
            .is_some_and(|other| other.execute_batch("COMMIT").is_ok())
    }))
    .unwrap();
    log::recover(&mut db).unwrap();
    assert_eq!((count(&db, "log"), count(&db, "inbox")), (0, 1));
}

#[tokio::test]
async fn a_sick_disk_is_probed_even_when_nobody_asks() {
    let (_dir, mut opened, other) = open_locked();
    opened.journal.submit(vec![accept(1, "s", None)]).await.unwrap();
    assert!(matches!(next(&mut opened).await[..], [Completion::Failed(_)]));
    other.execute_batch("ROLLBACK").unwrap();
    timeout(
        Duration::from_secs(5),
        opened.health.wait_for(|health| *health == Health::Ok),
    )
    .await
    .unwrap()
    .unwrap();
}

#[tokio::test]
async fn an_impossible_command_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap();
    let other = Connection::open(schema::path_in(dir.path())).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER no BEFORE INSERT ON quarantine WHEN new.reason = 'bad'
             BEGIN SELECT raise(ABORT, 'no'); END",
        )
        .unwrap();
    let asked = vec![
        accept(1, "good", Some("a")),
        Command::Quarantine {
            token: 2,
            reason: "bad".to_owned(),
            buffer_id: None,
            line: Vec::new(),
            now_ms: NOW,
        },
        accept(3, "good", Some("c")),
    ];
    opened.journal.submit(asked).await.unwrap();
    let done = next(&mut opened).await;
    let [
        Completion::Failed(failed),
        Completion::Accepted { token: 1, .. },
        Completion::Accepted { token: 3, seq, .. },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(
        (failed.subject, failed.fault.kind),
        (Subject::Token(2), FaultKind::Refused)
    );
    assert_eq!(*seq, InboxSeq(2));
    assert_eq!(*opened.health.borrow(), Health::Ok);
}

#[test]
fn keys_move_to_the_index_and_are_still_known_after_it_and_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let total = 40_000_u64;
    let key = |n: u64| format!("key-{n}");
    with_ledger(dir.path(), &settings, |journal_db| {
        for first in (0..total).step_by(1000) {
            let batch: Vec<_> = (first..first + 1000)
                .map(|n| accept(n, "s", Some(&key(n))))
                .collect();
            journal_db.transact(&batch, NOW).unwrap();
        }
        assert!(count(journal_db.db, "dedupe") >= 20_000, "the index took part");
        let mut last = Vec::new();
        for n in (0..total).step_by(997) {
            last.push(accept(n, "s", Some(&key(n))));
        }
        for outcome in journal_db.transact(&last, NOW).unwrap() {
            assert!(matches!(outcome, CommandOutcome::Duplicate), "{outcome:?}");
        }
    });
    with_ledger(dir.path(), &settings, |journal_db| {
        for n in (0..total).step_by(997) {
            let outcome = journal_db
                .transact(&[accept(n, "s", Some(&key(n)))], NOW)
                .unwrap()
                .pop()
                .unwrap();
            assert!(matches!(outcome, CommandOutcome::Duplicate), "{n}: {outcome:?}");
        }
        let outcome = journal_db
            .transact(&[accept(0, "s", Some("new"))], NOW)
            .unwrap()
            .pop()
            .unwrap();
        assert!(
            matches!(outcome, CommandOutcome::Accepted(InboxSeq(40_001))),
            "{outcome:?}"
        );
    });
}

/// Upkeep from day to day.
struct Days<'s> {
    settings: &'s JournalSettings,
    upkeep: Upkeep,
    wall_ms: i64,
    mono: Duration,
}

impl<'s> Days<'s> {
    fn new(settings: &'s JournalSettings) -> Self {
        Self {
            settings,
            upkeep: Upkeep::default(),
            wall_ms: NOW,
            mono: Duration::ZERO,
        }
    }

    /// Days go by, with upkeep on each.
    fn pass(&mut self, journal_db: &mut JournalDb<'_>, days: u32) {
        for _ in 0..days {
            self.wall_ms += DAY_MS;
            self.mono += Duration::from_secs(86_400);
            self.tidy(journal_db);
        }
    }

    fn tidy(&mut self, journal_db: &mut JournalDb<'_>) {
        let mut slices = 0;
        while self.slice(journal_db) {
            slices += 1;
            assert!(slices < 100, "upkeep comes to an end");
        }
    }

    /// One slice of upkeep; returns whether there is more.
    fn slice(&mut self, journal_db: &mut JournalDb<'_>) -> bool {
        let now = SliceContext {
            now_ms: self.wall_ms,
            mono: self.mono,
            idle: true,
        };
        journal_db
            .upkeep(|journal_db| self.upkeep.slice(journal_db, self.settings, now))
            .unwrap()
    }
}

#[test]
fn old_records_and_keys_go_unfinished_ones_and_the_newest_stay() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        keep_days: 2,
        dedupe_days: 5,
        ..JournalSettings::default()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        let batch: Vec<_> = (0..3000).map(|n| accept(n, "s", Some(&n.to_string()))).collect();
        journal_db.transact(&batch, NOW).unwrap();
        let ends: Vec<_> = (2..=3000).map(|seq| end(seq, NOW)).collect();
        journal_db.transact(&ends, NOW).unwrap();
        let mut days = Days::new(&settings);
        days.pass(journal_db, 1);
        assert_eq!(
            (count(journal_db.db, "done"), count(journal_db.db, "dedupe")),
            (2999, 3000)
        );
        days.pass(journal_db, 2);
        assert_eq!(
            (count(journal_db.db, "done"), count(journal_db.db, "inbox")),
            (1, 1)
        );
        assert_eq!(count(journal_db.db, "dedupe"), 3000);
        days.pass(journal_db, 5);
        assert_eq!(
            (count(journal_db.db, "dedupe"), count(journal_db.db, "inbox")),
            (0, 1)
        );
        let outcome = journal_db
            .transact(&[accept(9, "s", Some("9"))], NOW)
            .unwrap()
            .pop()
            .unwrap();
        assert!(
            matches!(outcome, CommandOutcome::Accepted(InboxSeq(3001))),
            "{outcome:?}"
        );
    });
}

fn wait(token: u64, bytes: usize) -> Command {
    Command::Accept {
        token,
        kind: InboxKind::Inbound,
        session: "s".into(),
        dedupe: None,
        buffer_id: None,
        line: vec![b'x'; bytes].into(),
        start: false,
        repeatable: false,
        now_ms: NOW,
    }
}

/// The rows of a page of what waits, and those behind them.
fn queued(
    journal_db: &mut JournalDb<'_>,
    after: i64,
    (limit, behind): (u32, u32),
) -> (Vec<InboxRow>, Vec<InboxSeq>) {
    let read = Command::NextQueued {
        token: 1,
        session: "s".into(),
        after: InboxSeq(after),
        limit,
        behind,
    };
    let mut outcomes = journal_db.transact(&[read], NOW).unwrap();
    match outcomes.pop() {
        Some(CommandOutcome::Read(Completion::Queued { rows, more, .. })) => (rows, more),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_of_what_waits_names_those_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    with_ledger(dir.path(), &JournalSettings::default(), |journal_db| {
        let bounded = |journal_db: &mut JournalDb<'_>, after, limit, behind| {
            let (rows, more) = queued(journal_db, after, (limit, behind));
            let more: Vec<i64> = more.iter().map(|row| row.0).collect();
            (rows.iter().map(|row| row.seq.0).collect::<Vec<_>>(), more)
        };
        let page = |journal_db: &mut JournalDb<'_>, after, limit| bounded(journal_db, after, limit, 9);
        let messages = [wait(1, 3 << 20), wait(2, 3 << 20), wait(3, 1)];
        journal_db.transact(&messages, NOW).unwrap();
        journal_db.materialise().unwrap();
        let newer = [
            wait(4, 1),
            accept(5, "s", None),
            accept(6, "other", None),
            wait(7, 1),
        ];
        journal_db.transact(&newer, NOW).unwrap();
        assert_eq!(page(journal_db, 0, 1), (vec![1], vec![2, 3, 4, 7]));
        assert_eq!(
            page(journal_db, 0, 9),
            (vec![1, 2], vec![3, 4, 7]),
            "a page has a bound in bytes"
        );
        assert_eq!(page(journal_db, 2, 2), (vec![3, 4], vec![7]));
        assert_eq!(page(journal_db, 2, 9), (vec![3, 4, 7], vec![]));
        assert_eq!(page(journal_db, 7, 9), (vec![], vec![]));
        for (behind, named) in [(1, vec![2]), (3, vec![2, 3, 4]), (0, vec![])] {
            assert_eq!(bounded(journal_db, 0, 1, behind), (vec![1], named));
        }
    });
}

#[test]
fn the_line_of_an_unfinished_message_changes_and_it_keeps_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let edit = |seq| Command::SetLine {
        seq: InboxSeq(seq),
        kind: InboxKind::Forward,
        line: b"edited".as_slice().into(),
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        journal_db.transact(&[wait(1, 1), wait(2, 1)], NOW).unwrap();
        journal_db.materialise().unwrap();
        let newer = [
            wait(3, 1),
            wait(4, 1),
            accept(5, "s", None),
            accept(6, "s", None),
            end(6, NOW),
        ];
        journal_db.transact(&newer, NOW).unwrap();
        let edits = [1, 3, 5, 6].map(edit);
        journal_db.transact(&edits, NOW).unwrap();
    });
    with_ledger(dir.path(), &settings, |journal_db| {
        let lines = |journal_db: &mut JournalDb<'_>| -> Vec<_> {
            let (rows, _) = queued(journal_db, 0, (9, 9));
            rows.into_iter()
                .map(|row| (row.kind, row.line.unwrap()))
                .collect()
        };
        let edited = (InboxKind::Forward, b"edited".as_slice().into());
        let plain = (InboxKind::Inbound, b"x".as_slice().into());
        let expected = vec![edited.clone(), plain.clone(), edited, plain];
        assert_eq!(lines(journal_db), expected);
        journal_db.materialise().unwrap();
        assert_eq!(lines(journal_db), expected);
        let running = reads::running(journal_db.db, 9).unwrap();
        let running: Vec<_> = running
            .iter()
            .map(|row| (row.seq.0, row.line.as_deref()))
            .collect();
        assert_eq!(
            running,
            [(5, Some(b"edited".as_slice()))],
            "an earlier run began it"
        );
    });
}

#[test]
fn days_and_ids_go_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let next_ids = || {
        let db = open_held(dir.path(), &settings);
        let (_, state) = reads::recover(&db, &settings).unwrap();
        (state.counters.inbox, state.counters.op, state.calendar)
    };
    assert_eq!(next_ids(), (1, 1, None));
    let day = NOW / DAY_MS;
    with_ledger(dir.path(), &settings, |journal_db| {
        let messages: Vec<_> = (1..=2000).map(|n| accept(n, "s", Some(&n.to_string()))).collect();
        journal_db.transact(&messages, NOW).unwrap();
        journal_db.transact(&[end_with_op(1)], NOW).unwrap();
        journal_db.materialise().unwrap();
        let mut days = Days::new(&settings);
        days.tidy(journal_db);
        days.wall_ms += 400 * DAY_MS;
        days.tidy(journal_db);
    });
    let calendar = days::Calendar::restore(day + 1, day + 400);
    assert_eq!(next_ids(), (2001, 2, Some(calendar)));
    with_ledger(dir.path(), &settings, |journal_db| {
        let mut days = Days::new(&settings);
        days.wall_ms += 800 * DAY_MS;
        days.tidy(journal_db);
        assert_eq!(count(journal_db.db, "dedupe"), 2000, "only two days went by");
    });
}

#[tokio::test]
async fn after_a_stop_the_text_of_a_busy_journal_is_nowhere_in_its_files() {
    const BATCH: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let mut opened = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap();
    let mut seq = 0;
    // More than a full log, several times.
    for _ in 0..12 {
        let messages: Vec<_> = (0..BATCH).map(|_| accept(1, "s", None)).collect();
        opened.journal.submit(messages).await.unwrap();
        let mut taken = 0;
        while taken < BATCH {
            taken += next(&mut opened).await.len();
        }
        let ends = (0..BATCH).map(|_| {
            seq += 1;
            end(seq, NOW)
        });
        opened.journal.submit(ends.collect()).await.unwrap();
    }
    let closing = opened.journal.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    while opened.batches.recv().await.is_some() {}
    closed.await.unwrap().unwrap();
    let found: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let bytes = std::fs::read(path).unwrap();
            bytes.windows(100).any(|window| window == [b'x'; 100])
        })
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_journal_keeps_making_keys_as_it_began() {
    let hash_of = |dir: &Path| {
        let opened = Journal::open(dir, JournalSettings::default(), NOW).unwrap();
        (opened.recovered.key_hash, opened.journal)
    };
    let (new, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(schema::make_as_of(&schema::path_in(old.path()), schema::WITH_LOG));
    for _ in 0..2 {
        for (dir, hash) in [(&new, KeyHash::Blake2s), (&old, KeyHash::Sha256)] {
            let (found, journal) = hash_of(dir.path());
            assert_eq!(found, hash);
            journal.close().await.unwrap();
        }
    }
}

#[test]
fn a_journal_from_before_there_were_packs_keeps_its_records_and_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let db = schema::make_as_of(&schema::path_in(dir.path()), schema::WITH_LOG);
    for seq in 1..=100 {
        let key = KeyHash::Blake2s.key(&[&seq.to_string()]);
        let key = key.as_bytes().as_slice();
        // The last ten are not in the index yet.
        let state = if seq == 50 {
            RowState::Interrupted
        } else {
            RowState::Done
        };
        db.execute(
            "INSERT INTO done VALUES (?1, 0, 'session ' || ?1 % 7, ?2, 'buffer ' || ?1, ?3, 1, ?4 + ?1, ?4 + ?1, ?4 + 2 * ?1)",
            rusqlite::params![seq, key, state.code(), NOW],
        )
        .unwrap();
        if seq <= 90 {
            db.execute(
                "INSERT INTO dedupe VALUES (?1, ?2, ?3)",
                rusqlite::params![key, seq, NOW / DAY_MS],
            )
            .unwrap();
        }
    }
    db.execute("INSERT INTO meta VALUES ('indexed_upto', 90)", [])
        .unwrap();
    drop(db);
    let listed = || {
        let inspector = Inspector::open(dir.path()).unwrap();
        let (_, one) = (
            inspector.latest(Section::Finished, 3),
            inspector.show(Item::Message(InboxSeq(17))),
        );
        (
            inspector.counts().unwrap().finished,
            inspector.list(Section::Finished, 0, 200).unwrap(),
            inspector.list(Section::Finished, 44, 10).unwrap(),
            inspector.latest(Section::Finished, 7).unwrap(),
            one.unwrap().0,
        )
    };
    let before = listed();
    let known = |journal_db: &mut JournalDb<'_>| {
        (1..=100).all(|seq| {
            let again = accept(seq, "s", Some(&seq.to_string()));
            let outcome = journal_db.transact(&[again], NOW).unwrap().pop();
            matches!(outcome, Some(CommandOutcome::Duplicate))
        })
    };
    for _ in 0..2 {
        with_ledger(dir.path(), &settings, |journal_db| {
            assert!(known(journal_db));
            Days::new(&settings).tidy(journal_db);
            assert!(finished::count(journal_db.db).unwrap() >= 80, "rows were packed");
            assert!(known(journal_db));
        });
        assert_eq!(listed(), before);
    }
    with_ledger(dir.path(), &settings, |journal_db| {
        let mut days = Days::new(&settings);
        days.pass(journal_db, 10);
        assert_eq!(
            journal_db
                .db
                .query_row("SELECT count(*) FROM dedupe", [], |row| row.get(0)),
            Ok(0)
        );
        let outcome = journal_db
            .transact(&[accept(1, "s", Some("1"))], NOW)
            .unwrap()
            .pop();
        assert!(
            matches!(outcome, Some(CommandOutcome::Accepted(InboxSeq(101)))),
            "{outcome:?}"
        );
    });
}

#[test]
fn unfinished_work_of_every_earlier_format_goes_on() {
    for version in 1..=schema::WITH_PACKS {
        let dir = tempfile::tempdir().unwrap();
        let settings = JournalSettings::default();
        let db = schema::make_as_of(&schema::path_in(dir.path()), version);
        let key = |name: &str| KeyHash::Blake2s.key(&[name]).as_bytes().to_vec();
        for (seq, name, state) in [(2, "running", 1), (3, "queued", 0)] {
            db.execute(
                "INSERT INTO inbox (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, line)
                 VALUES (?1, 0, 's', ?2, ?3, ?4, ?4, ?5, ?5, CAST(?3 AS BLOB))",
                rusqlite::params![seq, key(name), name, state, NOW],
            )
            .unwrap();
        }
        db.execute(
            "INSERT INTO done VALUES (1, 0, 's', ?1, 'done', 2, 1, ?2, ?2, ?2)",
            rusqlite::params![key("done"), NOW],
        )
        .unwrap();
        for (seq, state) in [(1, 1), (2, 0)] {
            db.execute(
                "INSERT INTO outbox VALUES (?1, 's', 'c', x'7b7d', 1, ?2, ?3)",
                rusqlite::params![seq, state, NOW],
            )
            .unwrap();
        }
        drop(db);
        let db = open_held(dir.path(), &settings);
        let (recovered, state) = reads::recover(&db, &settings).unwrap();
        let running: Vec<_> = recovered
            .running
            .iter()
            .map(|row| (row.seq, row.line.clone()))
            .collect();
        assert_eq!(running, [(InboxSeq(2), Some(b"running"[..].into()))], "{version}");
        assert!(!recovered.running[0].repeatable, "{version}: nobody noted that");
        assert_eq!(recovered.waiting, 1, "{version}");
        assert_eq!(recovered.key_hash, KeyHash::Sha256, "{version}");
        let ops: Vec<_> = recovered.ops.iter().map(|op| (op.seq, op.state)).collect();
        let wanted = [(OpSeq(1), OpState::Sent), (OpSeq(2), OpState::Pending)];
        assert_eq!(ops, wanted, "{version}");
        let mut journal_db = JournalDb::new(&db, state).unwrap();
        for name in ["done", "running", "queued"] {
            let again = journal_db.transact(&[accept(9, "s", Some(name))], NOW).unwrap();
            assert!(
                matches!(again[..], [CommandOutcome::Duplicate]),
                "{version} {name}"
            );
        }
        journal_db.transact(&[end(2, NOW)], NOW).unwrap();
        let new = journal_db.transact(&[accept(9, "s", Some("new"))], NOW).unwrap();
        assert!(
            matches!(new[..], [CommandOutcome::Accepted(InboxSeq(4))]),
            "{version}"
        );
        journal_db.materialise().unwrap();
        assert_eq!((count(&db, "inbox"), count(&db, "done")), (2, 2), "{version}");
    }
}

#[test]
fn damaged_records_of_finished_messages_stop_neither_a_start_nor_what_is_unfinished() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    with_ledger(dir.path(), &settings, |journal_db| {
        let all: Vec<_> = (1..=900).map(|n| accept(n, "s", Some(&n.to_string()))).collect();
        journal_db.transact(&all, NOW).unwrap();
        let ends: Vec<_> = (1..=900)
            .filter(|seq| seq % 9 > 0)
            .map(|seq| end(seq, NOW))
            .collect();
        journal_db.transact(&ends, NOW).unwrap();
        journal_db.materialise().unwrap();
        Days::new(&settings).tidy(journal_db);
        assert!(finished::count(journal_db.db).unwrap() >= 700, "they are packed");
        let damage = "UPDATE done_packs SET records = zeroblob(length(records))";
        assert!(journal_db.db.execute(damage, []).unwrap() > 0);
    });
    for _ in 0..2 {
        with_ledger(dir.path(), &settings, |journal_db| {
            let again = journal_db.transact(&[accept(9, "s", Some("8"))], NOW).unwrap();
            assert!(matches!(again[..], [CommandOutcome::Duplicate]), "{again:?}");
            // Their numbers are among those of the damaged records.
            let ends: Vec<_> = (1..=90).map(|turn| end(turn * 9, NOW)).collect();
            journal_db.transact(&ends, NOW).unwrap();
            journal_db.materialise().unwrap();
            Days::new(&settings).tidy(journal_db);
        });
    }
    let inspector = Inspector::open(dir.path()).unwrap();
    let listed = inspector.list(Section::Finished, 0, 1000).unwrap();
    assert_eq!(listed.len(), 90, "those that can be read");
    with_ledger(dir.path(), &settings, |journal_db| {
        assert_eq!(count(journal_db.db, "inbox"), 10);
        let new = journal_db.transact(&[accept(9, "s", Some("new"))], NOW).unwrap();
        assert!(
            matches!(new[..], [CommandOutcome::Accepted(InboxSeq(901))]),
            "{new:?}"
        );
        journal_db.transact(&[end(901, NOW)], NOW).unwrap();
        journal_db.materialise().unwrap();
        Days::new(&settings).pass(journal_db, settings.keep_days + 1);
        let packed = finished::count(journal_db.db).unwrap();
        assert_eq!(packed, 0, "what is damaged grows old, too");
    });
}

#[test]
fn the_line_of_an_interrupted_message_is_kept_as_long_as_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        keep_days: 2,
        ..JournalSettings::default()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        let batch: Vec<_> = (0..3000).map(|n| accept(n, "s", Some(&n.to_string()))).collect();
        journal_db.transact(&batch, NOW).unwrap();
        let interrupted = |seq| Command::End {
            seq: InboxSeq(seq),
            state: RowState::Interrupted,
            ops: NewOps::new(),
            now_ms: NOW,
        };
        journal_db
            .transact(&[interrupted(2), interrupted(3)], NOW)
            .unwrap();
        let ends: Vec<_> = (4..=3000).map(|seq| end(seq, NOW)).collect();
        journal_db.transact(&ends, NOW).unwrap();
        let again = journal_db.transact(&[interrupted(2)], NOW).unwrap();
        assert!(
            matches!(again[..], [CommandOutcome::Missing(InboxSeq(2))]),
            "it has ended: {again:?}"
        );
        let held = |db: &Connection| (count(db, "done"), count(db, "inbox"));
        assert_eq!(
            held(journal_db.db),
            (2999, 3),
            "two lines are kept, one turn runs"
        );
        let mut days = Days::new(&settings);
        days.pass(journal_db, 1);
        assert_eq!(held(journal_db.db), (2999, 3));
        days.pass(journal_db, 2);
        assert_eq!(
            held(journal_db.db),
            (1, 1),
            "the newest record and the turn that runs"
        );
    });
}

#[test]
fn the_log_stays_short_while_an_idle_journal_gives_space_back() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let open = |now| Journal::open_stepped(dir.path(), JournalSettings::default(), NOW, now).unwrap();
    let mut now = std::time::Instant::now();
    drop(open(now));
    let db = Connection::open(schema::path_in(dir.path())).unwrap();
    // Half of it is free, and the pages behind that are moved there.
    let fill = "INSERT INTO quarantine (reason, line, at) VALUES ('not json', zeroblob(1 << 20), 0)";
    for _ in 0..80 {
        db.execute(fill, []).unwrap();
    }
    db.execute("DELETE FROM quarantine WHERE seq <= 40", []).unwrap();
    drop(db);
    let (_opened, mut steps) = open(now);
    let size = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().len();
    let before = size("journal.db");
    let mut longest = 0;
    now += Duration::from_secs(20);
    for _ in 0..200 {
        now += Duration::from_millis(20);
        assert!(steps.step(now));
        longest = longest.max(size("journal.db-wal"));
    }
    assert!(longest < 20 * MIB, "{longest}");
    assert!(
        size("journal.db") < before * 3 / 5,
        "{} of {before}",
        size("journal.db")
    );
}

#[test]
fn a_full_journal_forgets_finished_records_early_and_gives_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        max_bytes: 1 << 20,
        ..JournalSettings::default()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        for first in (0..20_000).step_by(1000) {
            let batch: Vec<_> = (first..first + 1000)
                .map(|n| accept(n, "s", Some(&n.to_string())))
                .collect();
            journal_db.transact(&batch, NOW).unwrap();
        }
        for first in (11..=20_000_i64).step_by(1000) {
            let ends: Vec<_> = (first..(first + 1000).min(20_001))
                .map(|seq| end(seq, NOW))
                .collect();
            journal_db.transact(&ends, NOW).unwrap();
        }
        let pages =
            |db: &Connection| -> i64 { db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap() };
        let before = pages(journal_db.db);
        let mut upkeep = Upkeep::default();
        for _ in 0..200 {
            if !journal_db
                .upkeep(|journal_db| {
                    upkeep.slice(
                        journal_db,
                        &settings,
                        SliceContext {
                            now_ms: NOW,
                            mono: Duration::ZERO,
                            idle: true,
                        },
                    )
                })
                .unwrap()
            {
                break;
            }
        }
        assert!(used_bytes(journal_db.db).unwrap() <= settings.max_bytes);
        assert!(
            (1..10_000).contains(&count(journal_db.db, "done")),
            "{}",
            count(journal_db.db, "done")
        );
        assert_eq!(count(journal_db.db, "inbox"), 10);
        while vacuum_slice(journal_db.db).unwrap() {}
        assert!(
            pages(journal_db.db) < before / 2,
            "{} of {before}",
            pages(journal_db.db)
        );
    });
}
