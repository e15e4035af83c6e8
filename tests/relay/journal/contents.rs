//! What is held, in which order, and what survives a crash.

use super::{NOW, accept, ask, chat, copy, next, op, open};
use crate::support::wait::eventually;
use hermes_relay::store::{
    Command, Completion, Depth, InboxSeq, Inspector, Journal, JournalSettings, NewOps, OpSeq, OpState,
    QueueError, RowState,
};
use smallvec::smallvec;
use std::fs;

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
        Completion::Accepted {
            token: 1,
            seq,
            receipt,
        },
        Completion::Duplicate {
            token: 2,
            receipt: again,
        },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(seq, &InboxSeq(1));
    assert_eq!(
        (receipt.buffer_id(), again.ack_id()),
        (Some("buffer-1"), Some("buffer-2"))
    );
    let end = Command::End {
        seq: *seq,
        state: RowState::Stopped,
        ops: NewOps::new(),
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
        matches!(done[0], Completion::Duplicate { token: 3, .. }),
        "{done:?}"
    );
    assert!(
        matches!(done[1], Completion::Accepted { seq: InboxSeq(2), .. }),
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
            .try_submit(&mut vec![accept(token, "s", Some(&token.to_string()), false)])
            .unwrap();
    }
    let (mut batches, mut tokens, mut seqs) = (0, Vec::new(), Vec::new());
    while tokens.len() < 5000 {
        batches += 1;
        for done in next(&mut opened).await {
            let Completion::Accepted { token, seq, .. } = done else {
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
    let end = |ops| Command::End {
        seq: InboxSeq(1),
        state: RowState::Done,
        ops,
        now_ms: NOW,
    };
    let done = ask(
        &mut opened,
        vec![end(smallvec![op("a"), op("b")]), end(smallvec![op("again")])],
        2,
    )
    .await;
    let [
        Completion::Ended {
            seq: InboxSeq(1),
            ops,
        },
        Completion::Missing { .. },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(ops.iter().collect::<Vec<_>>(), [OpSeq(1), OpSeq(2)]);
    let asked = vec![
        Command::Load { seq: InboxSeq(1) },
        Command::Load { seq: InboxSeq(2) },
        Command::Start {
            seq: InboxSeq(3),
            repeatable: false,
            now_ms: NOW + 5,
        },
        Command::NextOps {
            token: 9,
            after: OpSeq(0),
            limit: 10,
        },
    ];
    let done = ask(&mut opened, asked, 4).await;
    let [
        Completion::Missing { .. },
        Completion::Loaded(row),
        Completion::Started { attempt: 1, .. },
        Completion::Ops { ops, .. },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(
        (row.state, row.attempt, row.line.as_deref()),
        (RowState::Queued, 0, Some(&b"line 2"[..]))
    );
    assert_eq!(
        ops.iter().map(|op| op.op.clone()).collect::<Vec<_>>(),
        [b"a", b"b"]
    );
}

#[tokio::test]
async fn a_crash_leaves_waiting_running_and_pending_work_to_the_next_run() {
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
        Command::RememberChat(chat.clone()),
        Command::SetResume {
            session: "a".into(),
            blob: b"resume".to_vec(),
            now_ms: NOW,
        },
        Command::End {
            seq: InboxSeq(2),
            state: RowState::Done,
            ops: smallvec![op("one"), op("two"), op("three")],
            now_ms: NOW,
        },
    ];
    ask(&mut opened, asked, 1).await;
    let settle = vec![
        Command::OpSent { op: OpSeq(2) },
        Command::OpSent { op: OpSeq(1) },
        Command::OpSettled { op: OpSeq(1) },
    ];
    ask(
        &mut opened,
        [settle, vec![Command::Load { seq: InboxSeq(1) }]].concat(),
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
    assert_eq!(running, [(InboxSeq(1), b"line 1"[..].into())]);
    assert_eq!(recovered.waiting, 5);
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
        Command::NextQueued {
            token: 1,
            session: "b".into(),
            after: InboxSeq(3),
            limit: 1,
            behind: 100,
        },
        Command::NextWaiting {
            token: 2,
            after: InboxSeq(3),
            limit: 3,
        },
        Command::LoadResume {
            token: 3,
            session: "a".into(),
        },
        accept(21, "a", None, true),
    ];
    let done = ask(&mut after, asked, 5).await;
    let [
        Completion::Duplicate { .. },
        Completion::Queued { rows, .. },
        Completion::Waiting { rows: waiting, .. },
        Completion::Resume { blob: Some(blob), .. },
        Completion::Accepted { seq: InboxSeq(8), .. },
    ] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!((rows.len(), rows[0].seq), (1, InboxSeq(5)));
    let waiting: Vec<_> = waiting.iter().map(|row| (row.seq.0, &*row.session)).collect();
    assert_eq!(waiting, [(4, "a"), (5, "b"), (6, "a")]);
    assert_eq!(blob, b"resume");
}

#[tokio::test]
async fn lazy_commands_are_held_soon_without_company() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    ask(
        &mut opened,
        vec![Command::AddOps {
            token: 1,
            inbox: None,
            ops: smallvec![op("x")],
            now_ms: NOW,
        }],
        1,
    )
    .await;
    opened
        .journal
        .submit(vec![Command::OpSettled { op: OpSeq(1) }])
        .await
        .unwrap();
    let inspector = Inspector::open(dir.path()).unwrap();
    eventually("the op is settled", async || inspector.counts().unwrap().ops == 0).await;
}

#[tokio::test]
async fn the_depth_counts_what_is_not_through_and_each_commit_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let inspector = Inspector::open(dir.path()).unwrap();
    assert_eq!(inspector.depth().unwrap(), Depth::default());
    let later = |mut write: Command| {
        if let Command::Accept { now_ms, .. } = &mut write {
            *now_ms = NOW + 5;
        }
        write
    };
    let writes = vec![
        accept(1, "a", None, true),
        later(accept(2, "b", None, false)),
        Command::AddOps {
            token: 3,
            inbox: None,
            ops: smallvec![op("x"), op("y")],
            now_ms: NOW + 7,
        },
    ];
    opened.journal.submit(writes).await.unwrap();
    let (mut done, mut commits) = (0, Vec::new());
    while done < 3 {
        let batch = opened.batches.recv().await.unwrap();
        done += batch.completions.len();
        commits.extend(batch.commits);
    }
    assert_eq!(commits.iter().map(|commit| commit.commands).sum::<usize>(), 3);
    assert!(commits.iter().all(|commit| !commit.took.is_zero()));
    let depth = inspector.depth().unwrap();
    let wanted = Depth {
        waiting: 1,
        running: 1,
        owed: 2,
        oldest_message: Some(NOW),
        oldest_op: Some(NOW + 7),
    };
    assert_eq!(depth, wanted);
    let since = |session| inspector.waiting_since(session).unwrap();
    assert_eq!((since("a"), since("b"), since("c")), (None, Some(NOW + 5), None));
}

#[tokio::test]
async fn submitters_wait_for_room_and_a_closed_journal_reports_it() {
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
    let mut back: Vec<_> = (0..9).map(|token| accept(token, "s", None, true)).collect();
    let why = opened.journal.try_submit(&mut back).unwrap_err();
    assert_eq!((why, back.len()), (QueueError::Full, 9));
    opened.journal.close().await.unwrap();
    assert_eq!(opened.journal.submit(back).await, Err(QueueError::Closed));
    assert!(opened.batches.recv().await.is_none());
    assert_eq!(
        fs::metadata(dir.path().join("journal.db-wal")).map_or(0, |data| data.len()),
        0
    );
}
