//! The state directory and its files: private, locked, damaged, full, read-only, looked at and mended.

use super::{NOW, accept, ask, next, op, open};
use crate::support::small_disk::SmallDisk;
use crate::support::wait::SOON;
use hermes_relay::store::{
    Command, Completion, Health, InboxSeq, InspectError, Inspector, Item, Journal, JournalSettings, NewOp,
    NewOps, OpSeq, OpState, OpenError, RowState, Section,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::time::timeout;

#[tokio::test]
async fn everything_is_private_and_one_process_holds_it() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("deep/state");
    let mut opened = open(&dir);
    ask(&mut opened, vec![accept(1, "s", None, true)], 1).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let mut files = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        files += 1;
    }
    assert!(files >= 4, "database, log, shared memory and lock");

    let error = Journal::open(&dir, JournalSettings::default(), NOW).unwrap_err();
    let text = format!(
        "state directory {} is in use by process {}",
        dir.display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), text);
    let refused = Inspector::retry(&dir, Item::Message(InboxSeq(1)), NOW);
    assert!(
        matches!(refused, Err(InspectError::Open(OpenError::InUse { .. }))),
        "{refused:?}"
    );
    opened.journal.close().await.unwrap();
    open(&dir).journal.close().await.unwrap();
}

#[tokio::test]
async fn a_damaged_journal_is_named_or_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).journal.close().await.unwrap();
    fs::write(dir.path().join("journal.db"), vec![b'!'; 8192]).unwrap();
    let error = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("move it aside"), "{error}");

    let settings = JournalSettings {
        fresh_on_corruption: true,
        ..JournalSettings::default()
    };
    let mut opened = Journal::open(dir.path(), settings, NOW).unwrap();
    ask(&mut opened, vec![accept(1, "s", None, true)], 1).await;
    let aside = dir.path().join(format!("journal.corrupt-{}", NOW / 1000));
    assert_eq!(fs::read(aside).unwrap(), vec![b'!'; 8192]);
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = Journal::open(&dir.path().join("file/state"), JournalSettings::default(), NOW).unwrap_err();
    assert!(
        matches!(error, OpenError::Directory { action: "create", .. }),
        "{error}"
    );
    assert!(matches!(
        Inspector::open(dir.path()),
        Err(InspectError::NoJournal(_))
    ));
}

#[tokio::test]
async fn people_can_look_while_it_runs_and_mend_when_it_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let quarantine = Command::Quarantine {
        token: 4,
        reason: "not json".into(),
        buffer_id: Some("q".into()),
        line: b"{oops".to_vec(),
        now_ms: NOW,
    };
    let accepts = vec![
        accept(1, "s", None, true),
        accept(2, "s", None, false),
        accept(3, "s", None, true),
        quarantine,
        Command::AddOps {
            token: 5,
            inbox: None,
            ops: smallvec::smallvec![op("x")],
            now_ms: NOW,
        },
    ];
    ask(&mut opened, accepts, 5).await;
    let end = Command::End {
        seq: InboxSeq(3),
        state: RowState::Failed,
        ops: NewOps::new(),
        now_ms: NOW,
    };
    ask(&mut opened, vec![Command::OpSent { op: OpSeq(1) }, end], 1).await;

    let look = Inspector::open(dir.path()).unwrap();
    let counts = look.counts().unwrap();
    assert_eq!(
        (counts.queued, counts.running, counts.finished, counts.quarantined),
        (1, 1, 1, 1)
    );
    let states: Vec<_> = look
        .list(Section::Unfinished, 0, 10)
        .unwrap()
        .iter()
        .map(|listed| listed.state)
        .collect();
    assert_eq!(states, ["running", "queued"]);
    let (failed, text) = look.show(Item::Message(InboxSeq(3))).unwrap();
    assert_eq!((failed.state, text), ("failed", None));
    let mut exported = Vec::new();
    look.export(Section::Quarantine, |listed, line| {
        exported.push((listed.reason, line));
        Ok::<_, InspectError>(())
    })
    .unwrap();
    assert_eq!(exported, [(Some("not json".into()), Some(b"{oops".to_vec()))]);
    drop(look);
    opened.journal.close().await.unwrap();

    Inspector::retry(dir.path(), Item::Message(InboxSeq(1)), NOW).unwrap();
    Inspector::retry(dir.path(), Item::Op(OpSeq(1)), NOW).unwrap();
    assert!(matches!(
        Inspector::retry(dir.path(), Item::Message(InboxSeq(3)), NOW),
        Err(InspectError::NotRetryable)
    ));
    Inspector::discard(dir.path(), Item::Message(InboxSeq(2)), NOW).unwrap();
    Inspector::discard(dir.path(), Item::Quarantined(1), NOW).unwrap();
    let gone = Inspector::discard(dir.path(), Item::Quarantined(1), NOW);
    assert!(matches!(gone, Err(InspectError::NoSuchItem)), "{gone:?}");
    let opened = open(dir.path());
    assert_eq!(opened.recovered.waiting, 1);
    assert!(opened.recovered.running.is_empty());
    assert_eq!(opened.recovered.ops[0].state, OpState::Pending);
}

#[test]
fn a_journal_that_could_not_be_made_leaves_nothing_unfinished() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(dir.path(), 16) else {
        return;
    };
    let failed = Journal::open(dir.path(), JournalSettings::default(), NOW);
    assert!(failed.is_err(), "there is no room for it");
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("journal.new"))
        .collect();
    assert!(names.is_empty(), "{names:?}");
}

#[tokio::test]
async fn a_full_disk_fails_accepts_and_keeps_endings_until_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path(), 1024) else {
        return;
    };
    let mut opened = open(dir.path());
    ask(&mut opened, vec![accept(1, "s", Some("first"), true)], 1).await;
    disk.fill();
    let ended = Command::End {
        seq: InboxSeq(1),
        state: RowState::Done,
        ops: smallvec::smallvec![NewOp {
            session: "s".into(),
            chat: "c".into(),
            op: vec![b'x'; 100_000],
        }],
        now_ms: NOW,
    };
    let done = ask(&mut opened, vec![accept(2, "s", Some("second"), true), ended], 1).await;
    assert!(
        matches!(&done[..], [Completion::Failed(failed)] if failed.fault.to_string().contains("full")),
        "{done:?}"
    );
    disk.free();
    let done = next(&mut opened).await;
    assert!(
        matches!(done[..], [Completion::Ended { seq: InboxSeq(1), .. }]),
        "{done:?}"
    );
    timeout(SOON, opened.health.wait_for(|health| *health == Health::Ok))
        .await
        .unwrap()
        .unwrap();
    let done = ask(&mut opened, vec![accept(3, "s", Some("second"), true)], 1).await;
    assert!(
        matches!(done[..], [Completion::Accepted { seq: InboxSeq(2), .. }]),
        "{done:?}"
    );
    opened.journal.close().await.unwrap();
}

#[test]
fn a_read_only_state_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path(), 1024) else {
        return;
    };
    disk.make_read_only();
    let error = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(&dir.path().display().to_string()) && text.contains("Read-only"),
        "{text}"
    );
}

/// The numbers of the messages that were running when a journal was last held, with at most three told at once.
async fn cut_short(dir: &Path) -> Vec<i64> {
    let settings = JournalSettings {
        recover_rows: 3,
        ..JournalSettings::default()
    };
    let mut opened = Journal::open(dir, settings, NOW).unwrap();
    let running: Vec<_> = opened.recovered.running.iter().map(|row| row.seq).collect();
    let ends = running.iter().map(|seq| Command::End {
        seq: *seq,
        state: RowState::Interrupted,
        ops: smallvec::smallvec![op("cut short")],
        now_ms: NOW,
    });
    let ends: Vec<_> = ends.collect();
    let count = ends.len();
    ask(&mut opened, ends, count).await;
    opened.journal.close().await.unwrap();
    running.into_iter().map(|seq| seq.0).collect()
}

#[tokio::test]
async fn more_interrupted_turns_than_one_start_reports_are_reported_over_several_starts_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let accepts = (0..7).map(|token| accept(token, &format!("s{token}"), None, true));
    ask(&mut opened, accepts.collect(), 7).await;
    opened.journal.close().await.unwrap();
    assert_eq!(cut_short(dir.path()).await, [1, 2, 3]);
    assert_eq!(cut_short(dir.path()).await, [4, 5, 6]);
    assert_eq!(cut_short(dir.path()).await, [7]);
    assert!(cut_short(dir.path()).await.is_empty());
    let opened = open(dir.path());
    assert_eq!(opened.recovered.ops.len(), 7);
    assert!(opened.recovered.running.is_empty());
}

#[tokio::test]
async fn the_number_of_a_message_is_not_given_again_while_something_is_pending_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    ask(&mut opened, vec![accept(0, "s", None, true)], 1).await;
    let end = Command::End {
        seq: InboxSeq(1),
        state: RowState::Done,
        ops: smallvec::smallvec![op("owed")],
        now_ms: NOW,
    };
    ask(&mut opened, vec![end], 1).await;
    opened.journal.close().await.unwrap();
    let long_ago = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    long_ago.execute("DELETE FROM done", []).unwrap();
    drop(long_ago);
    let mut opened = open(dir.path());
    let done = ask(&mut opened, vec![accept(1, "s", None, true)], 1).await;
    assert!(
        matches!(done[0], Completion::Accepted { seq: InboxSeq(2), .. }),
        "{done:?}"
    );
}
