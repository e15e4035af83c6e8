//! What a journal comes to, entry by entry, for whoever looks into it, whether it is still in the log or in the tables.

use super::*;
use crate::store::reads;

/// A journal with one entry of each sort.
fn commands() -> Vec<Command> {
    let queued = |token: u64, session: &str| {
        let mut command = accept(token, session, None);
        if let Command::Accept { start, now_ms, .. } = &mut command {
            *start = false;
            *now_ms = NOW + i64::try_from(token).unwrap();
        }
        command
    };
    let op = |name: &str| NewOp {
        session: "s".into(),
        chat: "chat".into(),
        op: name.as_bytes().to_vec(),
    };
    let interrupted = Command::End {
        seq: InboxSeq(4),
        state: RowState::Interrupted,
        ops: NewOps::new(),
        now_ms: NOW + 50,
    };
    let answered = Command::End {
        seq: InboxSeq(5),
        state: RowState::Done,
        ops: [op("one"), op("two"), op("three")].into_iter().collect(),
        now_ms: NOW + 60,
    };
    let start = |now_ms| Command::Start {
        seq: InboxSeq(3),
        repeatable: false,
        now_ms,
    };
    vec![
        accept(1, "s", Some("a")),
        queued(2, "s"),
        queued(3, "t"),
        accept(4, "s", None),
        accept(5, "s", None),
        start(NOW + 10),
        start(NOW + 20),
        interrupted,
        answered,
        Command::OpSent { op: OpSeq(2) },
        Command::OpDropped {
            op: OpSeq(3),
            body: b"last".to_vec(),
            reason: "refused".to_owned(),
            now_ms: NOW + 70,
        },
        Command::Quarantine {
            token: 9,
            reason: "not json".to_owned(),
            buffer_id: None,
            line: b"{".to_vec(),
            now_ms: NOW + 80,
        },
    ]
}

/// Makes the journal, with its entries in the log or in the tables.
fn journal(is_materialised: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    with_ledger(dir.path(), &JournalSettings::default(), |journal_db| {
        for command in commands() {
            journal_db.transact(&[command], NOW).unwrap();
        }
        if is_materialised {
            journal_db.materialise().unwrap();
        }
    });
    dir
}

fn states(listed: &[Listed]) -> Vec<(i64, &str, u32)> {
    let state = |one: &Listed| (one.item.number(), one.state, one.attempt);
    listed.iter().map(state).collect()
}

#[test]
fn every_entry_is_listed_with_its_state() {
    for is_materialised in [false, true] {
        let dir = journal(is_materialised);
        let inspector = Inspector::open(dir.path()).unwrap();
        let list = |section| inspector.list(section, 0, 100).unwrap();
        let unfinished = list(Section::Unfinished);
        assert_eq!(
            states(&unfinished),
            [(1, "running", 1), (2, "queued", 0), (3, "running", 2)]
        );
        assert_eq!((unfinished[1].at, unfinished[1].bytes), (NOW + 2, 400));
        assert_eq!(unfinished[1].name.as_deref(), Some("buffer-2"));
        let finished = list(Section::Finished);
        assert_eq!(states(&finished), [(4, "interrupted", 1), (5, "done", 1)]);
        assert_eq!(
            (finished[0].ended_at, finished[0].bytes, finished[1].bytes),
            (Some(NOW + 50), 400, 0),
            "the line of what was interrupted is kept"
        );
        let ops = list(Section::Ops);
        assert_eq!(
            states(&ops),
            [(1, "pending", 0), (2, "sent", 0), (3, "dropped", 0)]
        );
        assert_eq!(
            (ops[2].reason.as_deref(), ops[2].ended_at),
            (Some("refused"), Some(NOW + 70))
        );
        assert_eq!(states(&list(Section::Quarantine)), [(1, "quarantined", 0)]);
        assert_eq!(
            states(&inspector.list(Section::Ops, 1, 1).unwrap()),
            [(2, "sent", 0)]
        );
        let latest = inspector.latest(Section::Unfinished, 2).unwrap();
        assert_eq!(states(&latest), [(3, "running", 2), (2, "queued", 0)]);
        let counts = Counts {
            queued: 1,
            running: 2,
            finished: 2,
            ops: 2,
            dropped: 1,
            quarantined: 1,
            chats: 0,
        };
        assert_eq!(inspector.counts().unwrap(), counts);
        let depth = Depth {
            waiting: 1,
            running: 2,
            owed: 2,
            oldest_message: Some(NOW),
            oldest_op: Some(NOW + 60),
        };
        assert_eq!(inspector.depth().unwrap(), depth);
        assert_eq!(inspector.waiting_since("s").unwrap(), Some(NOW + 2));
        assert_eq!(inspector.waiting_since("t").unwrap(), None);
        let content = |item| inspector.show(item).unwrap().1;
        assert_eq!(content(Item::Op(OpSeq(3))).as_deref(), Some(&b"last"[..]));
        assert_eq!(content(Item::Quarantined(1)).as_deref(), Some(&b"{"[..]));
        assert_eq!(
            content(Item::Message(InboxSeq(1))).map(|line| line.len()),
            Some(400)
        );
        assert_eq!(content(Item::Message(InboxSeq(5))), None);
        let missing = inspector.show(Item::Message(InboxSeq(6)));
        assert!(matches!(missing, Err(InspectError::NoSuchItem)), "{missing:?}");
    }
}

#[test]
fn a_start_finds_what_is_unfinished() {
    for is_materialised in [false, true] {
        let dir = journal(is_materialised);
        let db = open_held(dir.path(), &JournalSettings::default());
        let (recovered, _) = reads::recover(&db, &JournalSettings::default()).unwrap();
        let running: Vec<_> = (recovered.running.iter())
            .map(|row| (row.seq.0, row.attempt, row.started_at))
            .collect();
        assert_eq!(running, [(1, 1, Some(NOW)), (3, 2, Some(NOW + 20))]);
    }
}

#[test]
fn an_entry_is_retried_or_dropped_if_its_state_allows_it() {
    for is_materialised in [false, true] {
        let dir = journal(is_materialised);
        let path = dir.path();
        let message = |seq| Item::Message(InboxSeq(seq));
        let op = |seq| Item::Op(OpSeq(seq));
        for item in [message(2), message(5), op(1), Item::Quarantined(1)] {
            let retried = Inspector::retry(path, item, NOW);
            assert!(
                matches!(retried, Err(InspectError::NotRetryable)),
                "{item:?} {retried:?}"
            );
        }
        let unknown = Inspector::retry(path, op(9), NOW);
        assert!(matches!(unknown, Err(InspectError::NoSuchItem)), "{unknown:?}");
        for item in [message(1), message(4), op(2), op(3)] {
            Inspector::retry(path, item, NOW + 99).unwrap();
        }
        let inspector = Inspector::open(path).unwrap();
        let listed = inspector.list(Section::Unfinished, 0, 100).unwrap();
        let waiting: Vec<i64> = (listed.iter().filter(|one| one.state == "queued"))
            .map(|one| one.item.number())
            .collect();
        assert_eq!(waiting, [1, 2, 4]);
        let ops = inspector.list(Section::Ops, 0, 100).unwrap();
        assert!(ops.iter().all(|op| op.state == "pending"), "{ops:?}");
        assert_eq!((ops.len(), ops[2].at), (3, NOW + 99));
        drop(inspector);
        for item in [message(2), message(3), op(1), Item::Quarantined(1)] {
            Inspector::discard(path, item, NOW + 99).unwrap();
        }
        let ended = Inspector::discard(path, message(5), NOW);
        assert!(matches!(ended, Err(InspectError::NotDroppable)), "{ended:?}");
        let inspector = Inspector::open(path).unwrap();
        let counts = inspector.counts().unwrap();
        assert_eq!((counts.queued, counts.running, counts.finished), (2, 0, 3));
        assert_eq!((counts.ops, counts.dropped, counts.quarantined), (2, 0, 0));
        let (dropped, _) = inspector.show(message(2)).unwrap();
        assert_eq!((dropped.state, dropped.ended_at), ("ignored", Some(NOW + 99)));
    }
}

#[test]
fn what_people_use_is_added_up_by_the_day_and_forgotten_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let used = |day: i64, person: &str, turns: i64| {
        let row = UsageRow {
            day,
            platform: "slack".to_owned(),
            person: person.to_owned(),
            chat: "C1".to_owned(),
            agent: "llm".to_owned(),
            turns,
            tokens: turns * 10,
        };
        Command::AddUsage(row)
    };
    let set = |kind: &str, person: &str, value: Option<&str>| AccessRow {
        kind: kind.to_owned(),
        platform: "slack".to_owned(),
        person: person.to_owned(),
        value: value.map(str::to_owned),
    };
    let chat = |id: &str, memory: &str| {
        Command::RememberChat(ChatRow {
            platform: "slack".into(),
            chat_id: id.into(),
            memory: memory.as_bytes().to_vec(),
            last_used: NOW,
        })
    };
    with_ledger(dir.path(), &JournalSettings::default(), |journal_db| {
        let commands = [
            used(10, "ann", 1),
            used(10, "ann", 2),
            used(11, "ann", 5),
            used(11, "bob", 7),
            Command::SetAccess(set("rule", "ann", Some("{}"))),
            Command::SetAccess(set("rule", "bob", Some("{}"))),
            Command::SetAccess(set("rule", "bob", None)),
            chat("c1", r#"{"user_id":"a\u0000b"}"#),
            chat("c2", r#"{"user_id":"bob"}"#),
            chat("c3", "{"),
        ];
        for command in commands {
            journal_db.transact(&[command], NOW).unwrap();
        }
        journal_db.materialise().unwrap();
    });
    let used = |since: i64| -> Vec<(i64, String, i64, i64)> {
        let rows = Inspector::open(dir.path()).unwrap().usage(since).unwrap();
        let short = |row: UsageRow| (row.day, row.person, row.turns, row.tokens);
        rows.into_iter().map(short).collect()
    };
    let bob = (11, "bob".to_owned(), 7, 70);
    let ann = |day, turns| (day, "ann".to_owned(), turns, turns * 10);
    assert_eq!(used(0), [ann(10, 3), ann(11, 5), bob.clone()]);
    assert_eq!(used(11), [ann(11, 5), bob.clone()]);
    let inspector = Inspector::open(dir.path()).unwrap();
    assert_eq!(inspector.access().unwrap(), [set("rule", "ann", Some("{}"))]);
    drop(inspector);
    let mut files = AccessFiles::open(dir.path(), false, NOW).unwrap();
    let people = ["a\0b", "ann", "bob"].map(|person| ("slack".to_owned(), person.to_owned()));
    assert_eq!(files.people().unwrap(), people);
    files
        .write(&[set("usage", "ann", None), set("rule", "eve", Some("{}"))])
        .unwrap();
    assert_eq!(files.rows().unwrap().len(), 2);
    drop(files);
    assert_eq!(used(0), [bob]);
}
