//! What is bounded: chats, quarantine, formats; and that the hot questions use their indexes.

use std::ops::RangeInclusive;

use super::*;

#[test]
fn chats_are_bounded_by_use() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        chat_memory: 10,
        ..JournalSettings::default()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        let chat = |n: i64, at: i64| {
            Command::RememberChat(ChatRow {
                platform: "discord".into(),
                chat_id: n.to_string().into(),
                memory: b"{}".to_vec(),
                last_used: at,
            })
        };
        let mut batch: Vec<_> = (0..50).map(|n| chat(n, NOW + n)).collect();
        batch.push(chat(0, NOW + 100));
        journal_db.transact(&batch, NOW).unwrap();
        journal_db.materialise().unwrap();
        let mut upkeep = Upkeep::default();
        while journal_db
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
        {}
        assert_eq!(count(journal_db.db, "chats"), 10);
        let (recovered, _) = reads::recover(journal_db.db, &settings).unwrap();
        let ids: Vec<&str> = recovered.chats.iter().map(|chat| &*chat.chat_id).collect();
        assert_eq!(ids, ["0", "49", "48", "47", "46", "45", "44", "43", "42", "41"]);
    });
}

#[test]
fn quarantine_is_bounded_by_count_and_by_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        quarantine_rows: 5,
        quarantine_bytes: 1000,
        ..JournalSettings::default()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        let put = |token, size| Command::Quarantine {
            token,
            reason: "not json".into(),
            buffer_id: None,
            line: vec![b'x'; size],
            now_ms: NOW,
        };
        journal_db
            .transact(&(0..9).map(|n| put(n, 10)).collect::<Vec<_>>(), NOW)
            .unwrap();
        assert_eq!(count(journal_db.db, "quarantine"), 5);
        journal_db.transact(&[put(10, 985)], NOW).unwrap();
        assert_eq!(count(journal_db.db, "quarantine"), 2);
        journal_db.transact(&[put(11, 5000)], NOW).unwrap();
        assert_eq!(count(journal_db.db, "quarantine WHERE length(line) = 1000"), 1);
        assert_eq!(count(journal_db.db, "quarantine"), 1);
    });
}

#[test]
fn quarantine_is_counted_right_after_a_rollback() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        quarantine_rows: 5,
        ..JournalSettings::default()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        let put = |reason: &str| Command::Quarantine {
            token: 1,
            reason: reason.into(),
            buffer_id: None,
            line: b"x".to_vec(),
            now_ms: NOW,
        };
        journal_db
            .db
            .execute_batch(
                "CREATE TRIGGER no BEFORE INSERT ON quarantine WHEN new.reason = 'bad'
                 BEGIN SELECT raise(ABORT, 'no'); END",
            )
            .unwrap();
        for _ in 0..4 {
            journal_db.transact(&[put("good")], NOW).unwrap();
        }
        assert!(journal_db.transact(&[put("good"), put("bad")], NOW).is_err());
        assert_eq!(count(journal_db.db, "quarantine"), 4);
        for _ in 0..3 {
            journal_db.transact(&[put("good")], NOW).unwrap();
            assert_eq!(count(journal_db.db, "quarantine"), 5);
        }
    });
}

#[test]
fn upkeep_goes_on_while_there_are_too_many_chats() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        chat_memory: 10,
        ..JournalSettings::default()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        let chat = |n: i64| {
            Command::RememberChat(ChatRow {
                platform: "discord".into(),
                chat_id: n.to_string().into(),
                memory: b"{}".to_vec(),
                last_used: NOW + n,
            })
        };
        let chats: Vec<_> = (0..5000).map(chat).collect();
        journal_db.transact(&chats, NOW).unwrap();
        journal_db.materialise().unwrap();
        Days::new(&settings).tidy(journal_db);
        assert_eq!(count(journal_db.db, "chats"), 10);
    });
}

#[test]
fn upkeep_notes_a_new_day_at_once_and_writes_nothing_when_there_is_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    with_ledger(dir.path(), &settings, |journal_db| {
        let mut days = Days::new(&settings);
        days.tidy(journal_db);
        for day in 1..4 {
            days.pass(journal_db, 1);
            let noted = "SELECT value FROM meta WHERE name = 'day'";
            let noted: i64 = journal_db.db.query_row(noted, [], |row| row.get(0)).unwrap();
            assert_eq!(noted, NOW / DAY_MS + day);
            days.tidy(journal_db);
            let before = journal_db.db.total_changes();
            days.tidy(journal_db);
            assert_eq!(journal_db.db.total_changes(), before);
        }
    });
}

#[test]
fn running_messages_beyond_what_an_answer_holds_come_without_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    with_ledger(dir.path(), &settings, |journal_db| {
        let long = |token| Command::Accept {
            token,
            kind: InboxKind::Inbound,
            session: "s".into(),
            dedupe: None,
            buffer_id: None,
            line: vec![b'x'; 1 << 20].into(),
            start: true,
            repeatable: false,
            now_ms: NOW,
        };
        for token in 0..6 {
            journal_db.transact(&[long(token)], NOW).unwrap();
        }
        journal_db.materialise().unwrap();
        let running = reads::running(journal_db.db, 10).unwrap();
        let with_line: Vec<bool> = running.iter().map(|row| row.line.is_some()).collect();
        assert_eq!(with_line, [true, true, true, true, false, false]);
        assert_eq!(reads::running(journal_db.db, 3).unwrap().len(), 3);
    });
}

#[test]
fn a_checkpoint_brings_the_write_ahead_log_into_the_database() {
    let dir = tempfile::tempdir().unwrap();
    with_ledger(dir.path(), &JournalSettings::default(), |journal_db| {
        let waiting = |db: &Connection| -> (i64, i64) {
            let log = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
            db.query_row("PRAGMA wal_checkpoint(NOOP)", [], log).unwrap()
        };
        journal_db.transact(&[accept(1, "s", Some("a"))], NOW).unwrap();
        let (pages, checkpointed) = waiting(journal_db.db);
        assert!(pages > checkpointed, "{checkpointed} of {pages}");
        writer::checkpoint_now(journal_db.db);
        let (pages, checkpointed) = waiting(journal_db.db);
        assert_eq!(checkpointed, pages);
    });
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    with_ledger(dir.path(), &JournalSettings::default(), |journal_db| {
        journal_db.db.execute_batch("PRAGMA user_version = 99").unwrap();
    });
    let error = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    assert!(matches!(
        Inspector::open(dir.path()),
        Err(InspectError::Open(OpenError::Newer { .. }))
    ));
}

#[test]
fn the_hot_questions_use_their_indexes() {
    let dir = tempfile::tempdir().unwrap();
    with_ledger(dir.path(), &JournalSettings::default(), |journal_db| {
        let plan = |sql: &str| -> String {
            let mut explain = journal_db
                .db
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .unwrap();
            let rows = explain.query_map([], |row| row.get::<_, String>(3)).unwrap();
            rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
        };
        let queued =
            plan("SELECT line FROM inbox WHERE state = 0 AND session = 'a' AND seq > 1 ORDER BY seq");
        assert!(queued.contains("inbox_queued (session=? AND seq>?)"), "{queued}");
        let chats = plan("SELECT memory FROM chats ORDER BY last_used DESC LIMIT 1");
        assert!(chats.contains("chats_by_use"), "{chats}");
        let sweep =
            plan("DELETE FROM dedupe WHERE key > x'00' AND (NULL IS NULL OR key <= NULL) AND day < 1");
        assert!(sweep.contains("PRIMARY KEY (key>?"), "{sweep}");
    });
}

#[test]
fn a_clock_that_jumps_neither_empties_nor_freezes_the_dedupe_index() {
    const YEARS: i64 = 5 * 365 * DAY_MS;
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    with_ledger(dir.path(), &settings, |journal_db| {
        let mut days = Days::new(&settings);
        let mut next = 0;
        let mut arrive = |journal_db: &mut JournalDb<'_>| {
            let batch: Vec<_> = (next..next + 2000)
                .map(|n| accept(n, "s", Some(&n.to_string())))
                .collect();
            next += 2000;
            journal_db.transact(&batch, NOW).unwrap();
        };
        arrive(journal_db);
        days.tidy(journal_db);
        assert_eq!(count(journal_db.db, "dedupe"), 2000);
        for jump in [YEARS, -YEARS, YEARS, YEARS, -YEARS, -2 * YEARS, YEARS] {
            days.wall_ms += jump;
            days.tidy(journal_db);
            assert_eq!(count(journal_db.db, "dedupe"), 2000, "after a jump by {jump} ms");
        }
        // What came before the jumps and what came since grow old as ever.
        arrive(journal_db);
        days.pass(journal_db, 4);
        assert_eq!(count(journal_db.db, "dedupe"), 4000);
        days.pass(journal_db, 6);
        assert_eq!(count(journal_db.db, "dedupe"), 0);
    });
}

/// An interrupted message, an op that was dropped, an item that was handed over, and the newest record.
fn keep_one_of_each(journal_db: &mut JournalDb<'_>, now_ms: i64) {
    let interrupted = Command::End {
        seq: InboxSeq(1),
        state: RowState::Interrupted,
        ops: NewOps::new(),
        now_ms,
    };
    let dropped = Command::OpDropped {
        op: OpSeq(1),
        body: b"{}".to_vec(),
        reason: "why".to_owned(),
        now_ms,
    };
    // As many as move to the index.
    let messages: Vec<_> = (1..=3000).map(|n| accept(n, "s", Some(&n.to_string()))).collect();
    let newest = end(3000, now_ms);
    let others = [interrupted, end_with_op(2), dropped, newest, handed("X", now_ms)];
    journal_db.transact(&messages, now_ms).unwrap();
    for command in others {
        journal_db.transact(&[command], now_ms).unwrap();
    }
    journal_db.materialise().unwrap();
}

fn handed(dispatch_id: &str, now_ms: i64) -> Command {
    Command::Handed {
        token: 1,
        command: Box::new(HandedCommand::Take(NewHandedItem {
            dispatch_id: dispatch_id.to_owned(),
            agent: "a".to_owned(),
            session: "s".to_owned(),
            has_session: true,
            body: HandedBody::Turn(b"line".to_vec()),
            now_ms,
        })),
    }
}

/// The texts of interrupted messages, dropped ops, and items that are recognised.
fn kept(db: &Connection) -> [i64; 3] {
    ["inbox WHERE state = 5", "dropped", "deliveries"].map(|from| count(db, from))
}

#[test]
fn a_clock_that_jumps_deletes_nothing_that_may_be_retried_and_keeps_nothing_for_ever() {
    const YEARS: i64 = 5 * 365 * DAY_MS;
    assert_eq!(RowState::Interrupted.code(), 5);
    let settings = JournalSettings::default();
    // Written under a right clock, one that is ahead, and one that is behind.
    for error in [0, YEARS, -YEARS] {
        let dir = tempfile::tempdir().unwrap();
        with_ledger(dir.path(), &settings, |journal_db| {
            let mut days = Days::new(&settings);
            days.tidy(journal_db);
            keep_one_of_each(journal_db, NOW + error);
            for jump in [0, YEARS, -YEARS, -YEARS, YEARS, 9 * DAY_MS, -9 * DAY_MS] {
                days.wall_ms += jump;
                days.tidy(journal_db);
                assert_eq!(kept(journal_db.db), [1; 3], "after a jump by {jump} ms");
            }
            let again = journal_db.transact(&[handed("Y", NOW), handed("X", NOW)], NOW);
            let known = |outcome: &CommandOutcome| {
                let text = format!("{outcome:?}");
                (text.contains("Stored"), text.contains("Known"))
            };
            let again: Vec<_> = again.unwrap().iter().map(known).collect();
            assert_eq!(again, [(true, false), (false, true)], "it acts once");
        });
        // A restart far from there.
        with_ledger(dir.path(), &settings, |journal_db| {
            let mut days = Days::new(&settings);
            days.wall_ms += 2 * YEARS;
            days.tidy(journal_db);
            days.pass(journal_db, 5);
            assert_eq!(kept(journal_db.db), [1, 1, 2]);
            days.pass(journal_db, 4);
            assert_eq!(kept(journal_db.db), [0; 3]);
        });
    }
}

#[test]
fn an_index_that_a_clock_ahead_left_behind_is_swept_again() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    with_ledger(dir.path(), &settings, |journal_db| {
        let future = NOW / DAY_MS + 4000;
        journal_db
            .db
            .execute_batch(&format!(
                "INSERT INTO meta (name, value) VALUES ('swept_before', {future});
                 INSERT INTO dedupe (key, seq, day) VALUES (x'00', 1, {future}), (x'01', 2, {});",
                NOW / DAY_MS
            ))
            .unwrap();
        let mut days = Days::new(&settings);
        days.pass(journal_db, 6);
        assert_eq!(count(journal_db.db, "dedupe"), 2);
        days.pass(journal_db, 4);
        assert_eq!(count(journal_db.db, "dedupe"), 0);
    });
}

fn remember(session: &str, bytes: usize, now_ms: i64) -> Command {
    Command::SetResume {
        session: session.into(),
        blob: vec![b'x'; bytes],
        now_ms,
    }
}

#[test]
fn those_who_have_quiet_hours_are_listed_unless_they_are_too_many() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    with_ledger(dir.path(), &settings, |journal_db| {
        let listed = |journal_db: &mut JournalDb<'_>| {
            let (recovered, _) = reads::recover(journal_db.db, &settings).unwrap();
            let mut people = recovered.quiet_people?;
            people.sort();
            Some(people.join(" "))
        };
        assert_eq!(listed(journal_db).as_deref(), Some(""));
        let kept = [
            "s1",
            "discord:2#quiet",
            "discord:#quiet:3",
            "discord:1#quiet",
            "discord:3\0[*]?#quiet",
            "discord:4#quiet\0",
            "quiet",
            "s2",
        ];
        let kept: Vec<_> = kept.iter().map(|name| remember(name, 1, NOW)).collect();
        journal_db.transact(&kept, NOW).unwrap();
        assert_eq!(
            listed(journal_db).as_deref(),
            Some("discord:1#quiet discord:2#quiet discord:3\0[*]?#quiet")
        );
        let many: Vec<_> = (0..9)
            .map(|user| remember(&format!("slack:{user}#quiet"), 1, NOW))
            .collect();
        journal_db.transact(&many, NOW).unwrap();
        assert_eq!(listed(journal_db), None);
    });
}

#[test]
fn a_slice_of_free_pages_is_given_back_at_once() {
    let dir = tempfile::tempdir().unwrap();
    with_ledger(dir.path(), &JournalSettings::default(), |journal_db| {
        journal_db
            .transact(&[remember("s", 100 * 4096, NOW)], NOW)
            .unwrap();
        let forget = Command::DropResume { session: "s".into() };
        journal_db.transact(&[forget], NOW).unwrap();
        assert!((100..128).contains(&free_pages(journal_db.db).unwrap()));
        vacuum(journal_db.db).unwrap();
        assert_eq!(free_pages(journal_db.db).unwrap(), 0);
    });
}

#[test]
fn remembered_conversations_are_bounded_by_bytes_the_least_recent_go_first() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        max_bytes: 4 << 20,
        ..JournalSettings::default()
    };
    let sessions = |db: &Connection| -> Vec<String> {
        let mut all = db
            .prepare("SELECT session FROM resume ORDER BY updated_at")
            .unwrap();
        let all = all.query_map([], |row| row.get(0)).unwrap();
        all.map(Result::unwrap).collect()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        for n in 0..1000 {
            let conversation = remember(&format!("s{n}"), 10_000, NOW + n);
            journal_db.transact(&[conversation], NOW).unwrap();
        }
        // Half of what the journal may hold: it does not come under pressure from them.
        assert_eq!(count(journal_db.db, "resume"), 209);
        assert!(used_bytes(journal_db.db).unwrap() < settings.max_bytes);
        // One that goes on stays.
        let oldest = sessions(journal_db.db)[0].clone();
        journal_db
            .transact(&[remember(&oldest, 10_000, NOW + 2000)], NOW)
            .unwrap();
        journal_db
            .transact(&[remember("large", 1 << 20, NOW + 2001)], NOW)
            .unwrap();
        let left = sessions(journal_db.db);
        assert!(
            left.contains(&oldest) && left.contains(&"large".to_owned()),
            "{left:?}"
        );
        assert!((90..120).contains(&left.len()), "{}", left.len());
        // A rollback is counted back, and what is dropped makes room.
        let refused = Command::Start {
            seq: InboxSeq(i64::MAX),
            repeatable: false,
            now_ms: NOW,
        };
        let _ = journal_db.transact(&[refused], NOW);
        for session in &left {
            let session = session.as_str().into();
            journal_db
                .transact(&[Command::DropResume { session }], NOW)
                .unwrap();
        }
        let conversations: Vec<_> = (0..209)
            .map(|n| remember(&format!("t{n}"), 10_000, NOW))
            .collect();
        journal_db.transact(&conversations, NOW).unwrap();
        assert_eq!(count(journal_db.db, "resume"), 209);
    });
    // Counted again when the journal is opened.
    with_ledger(dir.path(), &settings, |journal_db| {
        journal_db
            .transact(&[remember("one more", 10_000, NOW + 1)], NOW)
            .unwrap();
        assert_eq!(count(journal_db.db, "resume"), 209);
    });
}

#[test]
fn a_conversation_that_nobody_continues_is_forgotten_after_its_days() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        resume_days: 3,
        ..JournalSettings::default()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        let mut days = Days::new(&settings);
        let both = [remember("left", 10, NOW), remember("continued", 10, NOW)];
        journal_db.transact(&both, NOW).unwrap();
        days.wall_ms += 400 * DAY_MS;
        days.tidy(journal_db);
        days.wall_ms -= 400 * DAY_MS;
        assert_eq!(
            count(journal_db.db, "resume"),
            2,
            "the clock was wrong for a moment"
        );
        days.pass(journal_db, 2);
        let now = days.wall_ms;
        journal_db
            .transact(&[remember("continued", 10, now)], now)
            .unwrap();
        days.pass(journal_db, 2);
        assert_eq!(count(journal_db.db, "resume"), 1);
        days.pass(journal_db, 3);
        assert_eq!(count(journal_db.db, "resume"), 0);
    });
}

#[test]
fn a_full_journal_without_finished_records_forgets_keys_a_day_earlier_each_round() {
    // So many are moved to the index together.
    const KEYS: i64 = 1024;
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings {
        dedupe_days: 5,
        ..JournalSettings::default()
    };
    let full = JournalSettings {
        max_bytes: 0,
        ..settings.clone()
    };
    with_ledger(dir.path(), &settings, |journal_db| {
        let days_with_keys = |db: &Connection| count(db, "dedupe") / KEYS;
        let finish = |journal_db: &mut JournalDb<'_>, rows: RangeInclusive<i64>, now_ms| {
            let ends: Vec<_> = rows.map(|seq| end(seq, now_ms)).collect();
            journal_db.transact(&ends, now_ms).unwrap();
            journal_db.materialise().unwrap();
        };
        let mut days = Days::new(&settings);
        for day in 0..8 {
            let messages = (0..KEYS).map(|n| accept(1, "s", Some(&format!("{day}-{n}"))));
            let messages: Vec<_> = messages.collect();
            journal_db.transact(&messages, days.wall_ms).unwrap();
            days.pass(journal_db, 1);
        }
        assert_eq!(
            days_with_keys(journal_db.db),
            6,
            "today and the five days before it"
        );
        finish(journal_db, 1..=4, days.wall_ms);

        days.settings = &full;
        assert!(days.slice(journal_db), "there is more to do");
        assert_eq!(
            (count(journal_db.db, "done"), days_with_keys(journal_db.db)),
            (1, 6),
            "finished records go first"
        );
        for left in [5, 4, 3] {
            days.tidy(journal_db);
            assert_eq!(days_with_keys(journal_db.db), left);
        }
        days.settings = &settings;
        days.pass(journal_db, 1);
        assert_eq!(days_with_keys(journal_db.db), 3, "there is room again");
        days.settings = &full;
        for left in [3, 3, 2] {
            days.tidy(journal_db);
            assert_eq!(days_with_keys(journal_db.db), left);
        }
        finish(journal_db, 5..=8, days.wall_ms);
        for left in [1, 1] {
            days.tidy(journal_db);
            assert_eq!(days_with_keys(journal_db.db), left, "it goes on where it was");
        }
    });
}
