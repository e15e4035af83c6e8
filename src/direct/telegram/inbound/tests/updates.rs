//! Kinds of updates, presses, service messages, and updates that cannot be read.

use super::*;

#[test]
fn an_edit_is_the_message_once_more_and_marked() {
    let message = || private(json!({ "text": "x" }));
    let UpdateMeaning::Message(new) = meaning(json!({ "message": message() })) else {
        panic!("a message")
    };
    let UpdateMeaning::Message(mut edited) = meaning(json!({ "edited_message": message() })) else {
        panic!("an edit")
    };
    assert_eq!(edited.event["message_is_edit"], true);
    let event = edited.event.as_object_mut().unwrap();
    event.remove("message_is_edit");
    assert_eq!(edited, new);
}

#[test]
fn every_kind_has_its_meaning() {
    let message = || private(json!({ "text": "x" }));
    let ignored = [
        json!({ "edited_channel_post": message() }),
        json!({ "message_reaction": { "chat": { "id": 1 }, "message_id": 5, "new_reaction": [] } }),
        json!({ "guest_message": message() }),
        json!({ "inline_query": { "id": "1" } }),
        json!({ "something_of_tomorrow": { "a": [1, 2] } }),
        json!({ "message": null }),
        json!({}),
    ];
    for update in ignored {
        assert!(
            matches!(meaning(update.clone()), UpdateMeaning::Ignored(_)),
            "{update}"
        );
    }
    #[rustfmt::skip]
    let members = [
        ("private", "kicked", json!({}), false),
        ("private", "member", json!({}), true),
        ("supergroup", "left", json!({}), false),
        ("supergroup", "administrator", json!({}), true),
        ("supergroup", "restricted", json!({ "can_send_messages": true }), true),
        ("supergroup", "restricted", json!({}), false),
    ];
    for (kind, status, fields, can_write) in members {
        let change = json!({ "my_chat_member": {
            "chat": { "id": 5, "type": kind }, "new_chat_member": with(json!({ "status": status }), fields),
        } });
        assert_eq!(
            meaning(change),
            UpdateMeaning::Member {
                chat_id: 5,
                can_write
            },
            "{kind} {status}"
        );
    }
    for draft in [json!(31), json!("31")] {
        let stop = json!({ "stopped_message_generation": {
            "chat": { "id": 5, "type": "private" }, "message_thread_id": 7, "draft_id": draft,
        } });
        let expected = UpdateMeaning::Stop {
            chat_id: 5,
            draft_id: 31,
        };
        assert_eq!(meaning(stop), expected);
    }
}

#[test]
fn service_messages_are_ignored_except_migrations_and_names() {
    let migrated = |fields: Value| message(group(fields));
    let expected = UpdateMeaning::Migrated {
        from: -1001,
        to: -1002,
    };
    assert_eq!(migrated(json!({ "migrate_to_chat_id": -1002 })), expected);
    let expected = UpdateMeaning::Migrated { from: -7, to: -1001 };
    assert_eq!(migrated(json!({ "migrate_from_chat_id": -7 })), expected);
    let topic = |name: &str| UpdateMeaning::Topic {
        chat_id: -1001,
        thread_id: 9,
        name: name.to_owned(),
    };
    let ours = json!({ "id": OUR_ID, "is_bot": true });
    let created = forum(json!({ "forum_topic_created": { "name": "Pla\nns" }, "from": ours }));
    assert_eq!(message(created), topic("Pla ns"), "also when the bot made it");
    assert_eq!(
        message(forum(json!({ "forum_topic_edited": { "name": "New" } }))),
        topic("New")
    );
    for service in [
        json!({ "forum_topic_edited": {} }),
        json!({ "forum_topic_closed": {} }),
        json!({ "new_chat_members": [{ "id": OUR_ID }] }),
        json!({ "left_chat_member": { "id": 5 } }),
        json!({ "pinned_message": group(json!({ "text": "pinned" })) }),
        json!({ "new_chat_title": "x" }),
        json!({ "group_chat_created": true }),
        json!({ "video_chat_started": {} }),
    ] {
        assert_eq!(ignored(forum(service.clone())), "a service message", "{service}");
    }
}

#[test]
fn names_of_topics_are_kept_from_within_a_batch() {
    let rules = Relevance {
        require_mention: false,
        ..Relevance::default()
    };
    let mut topics = TopicNames::new();
    let update = |id: i64, message: Value| json!({ "update_id": id, "message": message });
    let text = || forum(json!({ "text": "x" }));
    let topic_of = |incoming: &Incoming| match &incoming.meaning {
        UpdateMeaning::Message(message) => message.event["source"]["chat_topic"].as_str().map(str::to_owned),
        other => panic!("{other:?}"),
    };
    let batch = json!([
        update(1, text()),
        update(2, forum(json!({ "forum_topic_created": { "name": "Plans" } }))),
        update(3, text()),
        update(4, forum(json!({ "forum_topic_edited": { "name": "Old plans" } }))),
        update(
            5,
            forum(
                json!({ "text": "x", "reply_to_message": { "message_id": 9, "forum_topic_created": { "name": "Plans" } } })
            )
        ),
    ]);
    let read = read_with(&rules, &mut topics, &batch);
    assert_eq!(topic_of(&read[0]), None);
    assert_eq!(topic_of(&read[2]).as_deref(), Some("Plans"));
    assert_eq!(
        topic_of(&read[4]).as_deref(),
        Some("Old plans"),
        "the first name is not the newest"
    );
    let later = read_with(&rules, &mut topics, &json!([update(6, text())]));
    assert_eq!(topic_of(&later[0]).as_deref(), Some("Old plans"));
    assert_eq!(topics.name_of(-1001, 9), Some("Old plans"));
    assert_eq!(topics.name_of(-1001, 8), None);
}

fn press(fields: Value) -> UpdateMeaning {
    let button = json!({ "text": "Allow", "callback_data": sealed("p1", "o2") });
    let base = json!({
        "id": "q5", "from": { "id": 88, "is_bot": false, "first_name": "Bo" }, "chat_instance": "1",
        "data": sealed("p1", "o2"),
        "message": forum(json!({ "message_id": 40, "from": { "id": OUR_ID, "is_bot": true },
            "reply_markup": { "inline_keyboard": [[{ "text": "x", "url": "u" }], [button]] } })),
    });
    meaning(json!({ "callback_query": with(base, fields) }))
}

#[test]
fn a_press_is_the_answer_to_a_prompt_by_whoever_pressed() {
    let UpdateMeaning::Press {
        query_id,
        event: Some(event),
        chat_id,
        message_id,
        language: None,
    } = press(json!({}))
    else {
        panic!("a press")
    };
    assert_eq!(
        (query_id.as_str(), chat_id, message_id),
        ("q5", Some(-1001), Some(40))
    );
    assert_eq!(
        event,
        json!({
            "text": "/o2", "message_type": "command", "message_id": "q5",
            "source": {
                "platform": "telegram", "chat_id": "-1001", "chat_type": "forum", "chat_name": "Team", "thread_id": "9",
                "user_id": "88", "user_name": "Bo", "is_bot": false, "message_id": "40",
            },
            "prompt_response": { "prompt_id": "p1", "option_id": "o2", "label": "Allow", "prompt_message_id": "40" },
        })
    );
    // A message that is too old to be seen has a chat and an id.
    let old = json!({ "message": { "chat": { "id": -1001, "type": "supergroup", "is_forum": true }, "message_id": 40, "date": 0 } });
    let UpdateMeaning::Press {
        event: Some(event), ..
    } = press(old)
    else {
        panic!("a press")
    };
    assert_eq!(
        event["prompt_response"],
        json!({ "prompt_id": "p1", "option_id": "o2", "prompt_message_id": "40" })
    );
    assert_eq!(event["source"].get("thread_id"), None);
}

#[test]
fn an_altered_or_foreign_press_is_answered_and_nothing_else() {
    for fields in [
        json!({ "data": "bad:p1:o2" }),
        json!({ "data": null }),
        json!({ "data": 5 }),
        json!({ "message": null, "inline_message_id": "x" }),
        json!({ "message": { "message_id": 1 } }),
        json!({ "from": null }),
    ] {
        let UpdateMeaning::Press {
            query_id,
            event: None,
            ..
        } = press(fields.clone())
        else {
            panic!("{fields}")
        };
        assert_eq!(query_id, "q5");
    }
    assert!(matches!(
        press(json!({ "id": null })),
        UpdateMeaning::Poison { .. }
    ));
}

#[test]
fn one_update_that_cannot_be_read_does_not_hurt_its_neighbours() {
    let text = |text: &str| private(json!({ "text": text }));
    let batch = json!([
        { "update_id": 1, "message": text("one") },
        { "update_id": 2, "message": { "text": "no chat" } },
        { "update_id": 3, "message": "not even an object" },
        { "update_id": 4, "tomorrow": [] },
        { "update_id": 5, "message": text("two") },
    ]);
    let read = read(&batch);
    let lines: Vec<Option<String>> = read.iter().map(Incoming::to_line).collect();
    assert_eq!(
        read.iter().map(|one| one.update_id).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    for (at, said) in [(0, "one"), (4, "two")] {
        let Ok(ConnectorFrame::Inbound { event, buffer_id }) =
            ConnectorFrame::decode(lines[at].as_ref().unwrap().as_bytes())
        else {
            panic!("{:?}", lines[at])
        };
        assert_eq!(
            (event.text(), buffer_id),
            (said, Some(read[at].update_id.to_string()))
        );
    }
    for at in [1, 2] {
        let line = lines[at].as_ref().unwrap();
        let refused = ConnectorFrame::decode(line.as_bytes()).unwrap_err();
        assert_eq!(
            refused.buffer_id,
            Some(read[at].update_id.to_string()),
            "it can be acknowledged"
        );
        assert_eq!(refused.kind.as_deref(), Some("inbound"));
        assert!(read[at].needs_acknowledgement());
    }
    assert!(
        lines[1].as_ref().unwrap().contains("no chat"),
        "people can look at it"
    );
    assert_eq!((&lines[3], read[3].needs_acknowledgement()), (&None, false));
    let mut received = ReceivedUpdates::new();
    received.begin_poll(std::time::Duration::ZERO);
    assert_eq!(received.receive(read.clone(), std::time::Duration::ZERO), read);
    for (id, offset) in [(1, 2), (5, 2), (2, 3), (3, 6)] {
        received.acknowledge(id);
        assert_eq!(received.offset(), Some(offset), "after {id}");
    }
}

#[test]
fn a_frame_says_when_its_message_was_written() {
    let dated = private(json!({ "text": "a", "date": 1_700_000_000, "edit_date": 1_700_000_100 }));
    for (update, written) in [
        (
            json!({ "update_id": 1, "message": dated }),
            Some(1_700_000_000_000),
        ),
        (
            json!({ "update_id": 1, "edited_message": dated }),
            Some(1_700_000_000_000),
        ),
        (
            json!({ "update_id": 1, "message": private(json!({ "text": "a", "date": "x" })) }),
            None,
        ),
    ] {
        let line = read(&json!([update]))[0].to_line().unwrap();
        let Ok(ConnectorFrame::Inbound { event, .. }) = ConnectorFrame::decode(line.as_bytes()) else {
            panic!("{line}")
        };
        assert_eq!(event.written_ms(), written, "{line}");
    }
}

#[test]
fn what_is_kept_of_an_unreadable_update_is_bounded() {
    let update = json!([{ "update_id": 1, "message": { "text": "ä".repeat(200_000) } }]);
    let line = read(&update)[0].to_line().unwrap();
    assert!(line.len() < 70_000 && ConnectorFrame::decode(line.as_bytes()).is_err());
}

#[test]
fn a_batch_is_sorted_and_what_has_no_id_is_dropped() {
    let batch = json!([
        { "update_id": 9, "message": private(json!({ "text": "b" })) },
        { "message": private(json!({ "text": "no id" })) },
        { "update_id": "3", "message": private(json!({ "text": "a" })) },
        { "update_id": -4 }, { "update_id": i64::MAX }, { "update_id": 1.5 }, { "update_id": null },
        5, null, "x", [],
    ]);
    let ids: Vec<i64> = read(&batch).iter().map(|one| one.update_id).collect();
    assert_eq!(ids, [3, 9]);
    for wrong in [json!(null), json!({}), json!("x"), json!([])] {
        assert!(read(&wrong).is_empty());
    }
}

/// Reads updates one after the other, with so many messages of groups as context.
fn read_in_turn(context: usize, updates: &[Value]) -> Vec<UpdateMeaning> {
    let mut reader = BatchReader {
        bot: &bot(),
        relevance: &Relevance::default(),
        open_callback: &open,
        topics: &mut TopicNames::new(),
        recent: &mut RecentInTopics::new(context),
        taken: &mut TakenMessages::default(),
    };
    let read = read_batch(&json!(updates), &mut reader);
    read.into_iter().map(|incoming| incoming.meaning).collect()
}

fn event_of(meaning: &UpdateMeaning) -> &Value {
    match meaning {
        UpdateMeaning::Message(message) => &message.event,
        other => panic!("{other:?}"),
    }
}

/// A message of a group with this id, as written or as edited.
fn said(update_id: i64, key: &str, id: i64, mut message: Value) -> Value {
    message["message_id"] = json!(id);
    json!({ "update_id": update_id, key: group(message) })
}

#[test]
fn an_edit_of_a_message_that_was_taken_need_not_mention_the_bot() {
    let mention = || marked("@OurBot hi", &[("mention", "@OurBot")]);
    let read = read_in_turn(
        0,
        &[
            said(1, "message", 7, mention()),
            said(2, "edited_message", 7, json!({ "text": "ho" })),
            said(3, "edited_message", 8, json!({ "text": "ho" })),
        ],
    );
    assert_eq!(event_of(&read[1])["text"], "ho");
    assert_eq!(event_of(&read[1])["message_is_edit"], true);
    assert!(matches!(read[2], UpdateMeaning::Ignored(_)), "{:?}", read[2]);
}

#[test]
fn what_was_said_in_a_group_is_given_as_it_says_now_and_not_to_an_edit() {
    let mention = || marked("@OurBot hi", &[("mention", "@OurBot")]);
    let read = read_in_turn(
        5,
        &[
            said(1, "message", 6, mention()),
            said(2, "message", 7, json!({ "text": "a" })),
            said(3, "message", 8, json!({ "text": "b" })),
            said(4, "edited_message", 7, json!({ "text": "A" })),
            said(5, "edited_message", 3, json!({ "text": "from before" })),
            said(6, "edited_message", 6, mention()),
            said(7, "message", 9, mention()),
        ],
    );
    assert_eq!(event_of(&read[5]).get("context"), None);
    let context = event_of(&read[6])["context"].as_array().unwrap();
    let texts: Vec<&Value> = context.iter().map(|said| &said["text"]).collect();
    assert_eq!(texts, ["A", "b"]);
}

#[test]
fn what_was_said_in_a_group_is_given_as_it_says_now_whomever_the_edit_addresses() {
    let mention = |text: &str| marked(text, &[("mention", "@OurBot")]);
    let read = read_in_turn(
        5,
        &[
            said(1, "message", 7, json!({ "text": "a" })),
            said(2, "message", 8, json!({ "text": "b" })),
            said(3, "edited_message", 7, mention("@OurBot A")),
            said(
                4,
                "edited_message",
                8,
                marked("/b@AnotherBot B", &[("bot_command", "/b@AnotherBot")]),
            ),
            said(5, "message", 9, mention("@OurBot hi")),
        ],
    );
    assert_eq!(event_of(&read[2])["message_is_edit"], true);
    assert!(matches!(read[3], UpdateMeaning::Ignored(_)), "{:?}", read[3]);
    let context = event_of(&read[4])["context"].as_array().unwrap();
    let texts: Vec<&Value> = context.iter().map(|said| &said["text"]).collect();
    assert_eq!(texts, ["A", "/b B"]);
}

#[test]
fn an_edit_of_an_item_is_one_of_the_whole_album() {
    let item = |update_id: i64, key: &str, id: i64, caption: &str| {
        let message = private(json!({
            "message_id": id, "media_group_id": "a", "caption": caption, "photo": [{ "file_id": format!("F{id}") }],
        }));
        json!({ "update_id": update_id, key: message })
    };
    let read = read_in_turn(
        0,
        &[
            item(1, "message", 101, "old"),
            item(2, "message", 102, ""),
            item(3, "edited_message", 101, "new"),
        ],
    );
    let event = event_of(&read[2]);
    assert_eq!(
        (&event["text"], &event["message_id"], &event["message_is_edit"]),
        (&json!("new"), &json!("101-102"), &json!(true))
    );
    assert_eq!(event["media_urls"].as_array().unwrap().len(), 2);
    let UpdateMeaning::Message(edited) = &read[2] else {
        panic!("an edit")
    };
    assert_eq!(edited.album, None, "it is not collected again");
}
