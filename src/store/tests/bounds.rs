//! What is bounded: chats, quarantine, formats; and that the hot questions use their indexes.

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
        let mut upkeep = Upkeep::default();
        while journal_db
            .upkeep(|journal_db| {
                upkeep.slice(
                    journal_db,
                    &settings,
                    SliceContext {
                        now_ms: NOW,
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
