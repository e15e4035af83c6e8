//! The journal from outside: what is held, in which order, and what survives.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use hermes_relay::store::{
    ChatMemory, DedupeKey, Done, Health, InboxSeq, InspectError, Inspector, Item, Journal, JournalSettings,
    Kind, NewOp, OpSeq, OpState, OpenError, Opened, Section, SubmitError, TurnState, Write,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const NOW: i64 = 1_790_000_000_000;

fn accept(token: u64, session: &str, key: Option<&str>, start: bool) -> Write {
    Write::Accept {
        token,
        kind: Kind::Inbound,
        session: session.into(),
        dedupe: key.map(|key| DedupeKey::of(&["discord", "chat", key])),
        buffer_id: Some(format!("buffer-{token}")),
        line: format!("line {token}").into_bytes(),
        start,
        now_ms: NOW,
    }
}

fn op(text: &str) -> NewOp {
    NewOp {
        session: "s".into(),
        chat: "c".into(),
        op: text.as_bytes().to_vec(),
    }
}

fn chat() -> ChatMemory {
    ChatMemory {
        platform: "discord".into(),
        chat_id: "c".into(),
        memory: b"{\"scope\":1}".to_vec(),
        last_used: NOW,
    }
}

fn open(dir: &Path) -> Opened {
    Journal::open(dir, JournalSettings::default(), NOW).unwrap()
}

async fn next(opened: &mut Opened) -> Vec<Done> {
    timeout(Duration::from_secs(20), opened.batches.recv())
        .await
        .expect("a batch in time")
        .unwrap()
        .done
}

/// Asks and waits for as many completions as there are commands that have one.
async fn ask(opened: &mut Opened, writes: Vec<Write>, completions: usize) -> Vec<Done> {
    opened.journal.submit(writes).await.unwrap();
    let mut done = Vec::new();
    while done.len() < completions {
        done.extend(next(opened).await);
    }
    assert_eq!(done.len(), completions, "{done:?}");
    done
}

fn copy(from: &Path, to: &Path) {
    for name in ["journal.db", "journal.db-wal"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_message_is_held_once_and_recognised_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let done = ask(
        &mut opened,
        vec![accept(1, "s", Some("a"), true), accept(2, "s", Some("a"), true)],
        2,
    )
    .await;
    let [
        Done::Accepted {
            token: 1,
            seq,
            receipt,
        },
        Done::Duplicate {
            token: 2,
            of,
            of_state,
            receipt: again,
        },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(
        (seq, of, of_state),
        (&InboxSeq(1), &InboxSeq(1), &TurnState::Running)
    );
    assert_eq!(
        (receipt.buffer_id(), again.ack_id()),
        (Some("buffer-1"), Some("buffer-2"))
    );
    let end = Write::End {
        seq: *seq,
        state: TurnState::Stopped,
        ops: vec![],
        start_next: None,
        now_ms: NOW,
    };
    ask(&mut opened, vec![end], 1).await;
    opened.journal.close().await.unwrap();

    let mut opened = open(dir.path());
    let done = ask(
        &mut opened,
        vec![accept(3, "s", Some("a"), true), accept(4, "s", None, true)],
        2,
    )
    .await;
    assert!(
        matches!(
            done[0],
            Done::Duplicate {
                of: InboxSeq(1),
                of_state: TurnState::Stopped,
                ..
            }
        ),
        "{done:?}"
    );
    assert!(
        matches!(done[1], Done::Accepted { seq: InboxSeq(2), .. }),
        "{done:?}"
    );
}

#[tokio::test]
async fn many_submissions_share_few_commits_and_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        queue: 50_000,
        ..JournalSettings::default()
    };
    let mut opened = Journal::open(dir.path(), settings, NOW).unwrap();
    for token in 0..5000 {
        opened
            .journal
            .try_submit(vec![accept(token, "s", Some(&token.to_string()), false)])
            .unwrap();
    }
    let (mut batches, mut tokens, mut seqs) = (0, Vec::new(), Vec::new());
    while tokens.len() < 5000 {
        batches += 1;
        for done in next(&mut opened).await {
            let Done::Accepted { token, seq, .. } = done else {
                panic!("{done:?}")
            };
            tokens.push(token);
            seqs.push(seq);
        }
    }
    assert!(tokens.is_sorted() && seqs.is_sorted());
    assert!(batches < 2000, "{batches} commits for 5000 submissions");
}

#[tokio::test]
async fn an_end_is_all_or_nothing_and_happens_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let accepts = vec![
        accept(1, "s", None, true),
        accept(2, "s", None, false),
        accept(3, "t", None, false),
    ];
    ask(&mut opened, accepts, 3).await;
    let end = |ops| Write::End {
        seq: InboxSeq(1),
        state: TurnState::Done,
        ops,
        start_next: Some(InboxSeq(2)),
        now_ms: NOW,
    };
    let done = ask(
        &mut opened,
        vec![end(vec![op("a"), op("b")]), end(vec![op("again")])],
        2,
    )
    .await;
    let [
        Done::Ended {
            seq: InboxSeq(1),
            ops,
            started_next: Some(InboxSeq(2)),
        },
        Done::Missing { .. },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(ops.iter().collect::<Vec<_>>(), [OpSeq(1), OpSeq(2)]);
    let asked = vec![
        Write::Load { seq: InboxSeq(1) },
        Write::Load { seq: InboxSeq(2) },
        Write::Start {
            seq: InboxSeq(3),
            now_ms: NOW + 5,
        },
        Write::NextOps {
            token: 9,
            after: OpSeq(0),
            limit: 10,
        },
    ];
    let done = ask(&mut opened, asked, 4).await;
    let [
        Done::Missing { .. },
        Done::Loaded(row),
        Done::Started { attempt: 1, .. },
        Done::Ops { ops, .. },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(
        (row.state, row.attempt, row.line.as_deref()),
        (TurnState::Running, 1, Some(&b"line 2"[..]))
    );
    assert_eq!(
        ops.iter().map(|op| op.op.clone()).collect::<Vec<_>>(),
        [b"a", b"b"]
    );
}

#[tokio::test]
async fn a_crash_leaves_waiting_running_and_owed_work_to_the_next_run() {
    let (dir, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut opened = open(dir.path());
    let mut accepts = vec![
        accept(1, "a", Some("1"), true),
        accept(2, "ended", Some("2"), true),
    ];
    accepts.extend((3..8).map(|token| accept(token, if token % 2 == 0 { "a" } else { "b" }, None, false)));
    ask(&mut opened, accepts, 7).await;
    let chat = chat();
    let asked = vec![
        Write::RememberChat(chat.clone()),
        Write::SetResume {
            session: "a".into(),
            blob: b"resume".to_vec(),
            now_ms: NOW,
        },
        Write::End {
            seq: InboxSeq(2),
            state: TurnState::Done,
            ops: vec![op("one"), op("two"), op("three")],
            start_next: None,
            now_ms: NOW,
        },
    ];
    ask(&mut opened, asked, 1).await;
    let settle = vec![
        Write::OpSent { op: OpSeq(2) },
        Write::OpSent { op: OpSeq(1) },
        Write::OpSettled { op: OpSeq(1) },
    ];
    ask(
        &mut opened,
        [settle, vec![Write::Load { seq: InboxSeq(1) }]].concat(),
        1,
    )
    .await;
    copy(dir.path(), crashed.path());

    let mut after = open(crashed.path());
    let recovered = std::mem::take(&mut after.recovered);
    let running: Vec<_> = recovered
        .running
        .iter()
        .map(|row| (row.seq, row.line.clone().unwrap()))
        .collect();
    assert_eq!(running, [(InboxSeq(1), b"line 1".to_vec())]);
    let waiting: Vec<_> = recovered
        .waiting
        .iter()
        .map(|waiting| (&*waiting.session, waiting.first, waiting.count))
        .collect();
    assert_eq!(waiting, [("a", InboxSeq(4), 2), ("b", InboxSeq(3), 3)]);
    let ops: Vec<_> = recovered
        .ops
        .iter()
        .map(|op| (op.seq, op.state, op.inbox))
        .collect();
    let owner = Some(InboxSeq(2));
    assert_eq!(
        ops,
        [
            (OpSeq(2), OpState::Sent, owner),
            (OpSeq(3), OpState::Pending, owner)
        ]
    );
    assert_eq!(recovered.chats, [chat]);
    let asked = vec![
        accept(20, "a", Some("1"), true),
        Write::NextQueued {
            token: 1,
            session: "b".into(),
            after: InboxSeq(3),
            limit: 1,
        },
        Write::NextWaiting {
            token: 2,
            after: "a".into(),
            limit: 5,
        },
        Write::LoadResume {
            token: 3,
            session: "a".into(),
        },
        accept(21, "a", None, true),
    ];
    let done = ask(&mut after, asked, 5).await;
    let [
        Done::Duplicate { of: InboxSeq(1), .. },
        Done::Queued { rows, .. },
        Done::Waiting { sessions, .. },
        Done::Resume { blob: Some(blob), .. },
        Done::Accepted { seq: InboxSeq(8), .. },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!((rows.len(), rows[0].seq), (1, InboxSeq(5)));
    assert_eq!((sessions.len(), &*sessions[0].session), (1, "b"));
    assert_eq!(blob, b"resume");
}

#[tokio::test]
async fn lazy_commands_are_held_soon_without_company() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    ask(
        &mut opened,
        vec![Write::AddOps {
            token: 1,
            inbox: None,
            ops: vec![op("x")],
            now_ms: NOW,
        }],
        1,
    )
    .await;
    opened
        .journal
        .submit(vec![Write::OpSettled { op: OpSeq(1) }])
        .await
        .unwrap();
    let inspector = Inspector::open(dir.path()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while inspector.counts().unwrap().ops > 0 {
        assert!(Instant::now() < deadline, "the op is settled in time");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn submitters_wait_for_room_and_a_closed_journal_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        queue: 8,
        batches: 1,
        ..JournalSettings::default()
    };
    let mut opened = Journal::open(dir.path(), settings, NOW).unwrap();
    let journal = opened.journal.clone();
    let submitter = tokio::spawn(async move {
        for token in 0..200 {
            journal
                .submit(vec![accept(token, "s", None, true)])
                .await
                .unwrap();
        }
    });
    let mut held = 0;
    while held < 200 {
        held += next(&mut opened).await.len();
    }
    submitter.await.unwrap();
    let many: Vec<_> = (0..9).map(|token| accept(token, "s", None, true)).collect();
    let (why, back) = opened.journal.try_submit(many).unwrap_err();
    assert_eq!((why, back.len()), (SubmitError::Full, 9));
    opened.journal.close().await.unwrap();
    assert_eq!(opened.journal.submit(back).await, Err(SubmitError::Closed));
    assert!(opened.batches.recv().await.is_none());
    assert_eq!(
        fs::metadata(dir.path().join("journal.db-wal")).map_or(0, |data| data.len()),
        0
    );
}

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
    let quarantine = Write::Quarantine {
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
        Write::AddOps {
            token: 5,
            inbox: None,
            ops: vec![op("x")],
            now_ms: NOW,
        },
    ];
    ask(&mut opened, accepts, 5).await;
    let end = Write::End {
        seq: InboxSeq(3),
        state: TurnState::Failed,
        ops: vec![],
        start_next: None,
        now_ms: NOW,
    };
    ask(&mut opened, vec![Write::OpSent { op: OpSeq(1) }, end], 1).await;

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
    assert_eq!(opened.recovered.waiting[0].first, InboxSeq(1));
    assert!(opened.recovered.running.is_empty());
    assert_eq!(opened.recovered.ops[0].state, OpState::Pending);
}

/// Takes the small file system away again.
struct Unmount<'a>(&'a Path);
impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0)
            .status();
    }
}

#[tokio::test]
async fn a_full_disk_fails_accepts_and_keeps_endings_until_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"])
        .arg(dir.path())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        eprintln!("SKIPPED: mounting a small tmpfs needs root; the busy test covers the same path");
        return;
    }
    let _unmount = Unmount(dir.path());
    let mut opened = open(dir.path());
    ask(&mut opened, vec![accept(1, "s", Some("first"), true)], 1).await;
    let filler = dir.path().join("filler");
    let mut size = 1 << 20;
    while size > 0 {
        let have = fs::metadata(&filler).map_or(0, |data| data.len());
        let more = vec![0; size];
        let mut file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&filler)
            .unwrap();
        if std::io::Write::write_all(&mut file, &more).is_err() {
            size /= 2;
        }
        assert!(have <= 1 << 20);
    }
    let ended = Write::End {
        seq: InboxSeq(1),
        state: TurnState::Done,
        ops: vec![NewOp {
            session: "s".into(),
            chat: "c".into(),
            op: vec![b'x'; 100_000],
        }],
        start_next: None,
        now_ms: NOW,
    };
    let done = ask(&mut opened, vec![accept(2, "s", Some("second"), true), ended], 1).await;
    assert!(
        matches!(&done[..], [Done::Failed(failed)] if failed.fault.to_string().contains("full")),
        "{done:?}"
    );
    fs::remove_file(&filler).unwrap();
    let done = next(&mut opened).await;
    assert!(
        matches!(done[..], [Done::Ended { seq: InboxSeq(1), .. }]),
        "{done:?}"
    );
    timeout(
        Duration::from_secs(5),
        opened.health.wait_for(|health| *health == Health::Ok),
    )
    .await
    .unwrap()
    .unwrap();
    let done = ask(&mut opened, vec![accept(3, "s", Some("second"), true)], 1).await;
    assert!(
        matches!(done[..], [Done::Accepted { seq: InboxSeq(2), .. }]),
        "{done:?}"
    );
    opened.journal.close().await.unwrap();
}
