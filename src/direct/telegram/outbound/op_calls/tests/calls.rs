//! Every op as the exact JSON of its calls.

use super::*;

fn text_call(chat: i64, html: &str, more: &Value) -> Value {
    let mut body = json!({
        "chat_id": chat, "text": html, "parse_mode": "HTML", "link_preview_options": {"is_disabled": true},
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    json!(["sendMessage", body])
}

#[test]
fn a_message_names_its_anchor_its_topic_and_whether_it_notifies() {
    let mut bot = TestBot::new();
    let run = bot.run(&send("**hi** <you>"), &[message(11)]);
    let anchored = json!({"reply_parameters": {"message_id": 7, "allow_sending_without_reply": true}});
    assert_eq!(run.calls, [text_call(42, "<b>hi</b> &lt;you&gt;", &anchored)]);
    assert_eq!(
        (run.message_id(), run.kinds.clone()),
        ("11", vec![CallKind::Required])
    );

    let topic = json!({"op": "send", "chat_id": CLUB, "content": "hi", "metadata": {"thread_id": "55"}});
    let run = bot.run(&topic, &[message(12)]);
    let silent = json!({"message_thread_id": 55, "disable_notification": true});
    assert_eq!(run.calls, [text_call(-1001, "hi", &silent)]);

    let general =
        json!({"op": "send", "chat_id": CLUB, "content": "hi", "metadata": {"thread_id": 1, "notify": true}});
    let run = bot.run(&general, &[message(13)]);
    assert_eq!(
        run.calls,
        [text_call(-1001, "hi", &json!({}))],
        "General is named by naming no topic"
    );

    let odd = json!({"op": "send", "chat_id": PERSON, "content": "hi", "reply_to": "4382bfdwdsb323b2d9", "metadata": {"notify": true}});
    let run = bot.run(&odd, &[message(0)]);
    assert_eq!(
        run.calls,
        [text_call(42, "hi", &json!({}))],
        "what is no message id is no anchor"
    );
    assert_eq!(
        run.applied().message_id,
        None,
        "a scheduled message has no id yet"
    );
}

#[test]
fn an_edit_is_only_for_show_unless_it_has_the_last_text() {
    let mut bot = TestBot::new();
    let body = json!({
        "chat_id": 42, "message_id": 5, "text": "<i>x</i>", "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": true},
    });
    let run = bot.run(&edit("5", "*x*", false), &[message(5)]);
    assert_eq!(run.calls, [json!(["editMessageText", body])]);
    assert_eq!(
        (run.message_id(), run.kinds.clone()),
        ("5", vec![CallKind::Droppable])
    );
    let run = bot.run(&edit("5", "*x*", true), &[]);
    assert_eq!(run.message_id(), "5", "it shows that already");
    let run = bot.run(&edit("5", "y", true), &[message(5)]);
    assert_eq!(run.kinds, [CallKind::Required]);
}

#[test]
fn a_final_edit_that_rings_nobody_must_be_shown_too() {
    let mut bot = TestBot::new();
    let mut silent = edit("5", "all of it", true);
    silent["metadata"]["notify"] = false.into();
    let gone = error(400, "Bad Request: message to edit not found");
    let run = bot.run(&silent, &[gone, message(60)]);
    assert_eq!(run.kinds, [CallKind::Required, CallKind::Required]);
    assert_eq!(
        (run.methods(), run.message_id()),
        (vec!["editMessageText", "sendMessage"], "60")
    );
    assert_eq!(run.calls[1][1]["disable_notification"], true);
}

#[test]
fn typing_names_general_too() {
    let mut bot = TestBot::new();
    let typing = |thread: Value| json!({"op": "typing", "chat_id": CLUB, "metadata": {"thread_id": thread}});
    let call = |thread: i64| json!(["sendChatAction", {"chat_id": -1001, "action": "typing", "message_thread_id": thread}]);
    let run = bot.run(&typing(json!("1")), &[done()]);
    assert_eq!((run.calls, run.kinds), (vec![call(1)], vec![CallKind::Droppable]));
    assert_eq!(bot.run(&typing(json!(9)), &[done()]).calls, [call(9)]);
    let plain = json!({"op": "typing", "chat_id": PERSON, "content": "Thinking"});
    let run = bot.run(&plain, &[done()]);
    assert_eq!(
        run.calls,
        [json!(["sendChatAction", {"chat_id": 42, "action": "typing"}])]
    );
    let clear = json!({"op": "typing", "chat_id": PERSON, "content": ""});
    bot.run(&clear, &[]).applied();
}

#[test]
fn a_draft_is_shown_in_private_chats_as_it_was_written() {
    let mut bot = TestBot::new();
    let draft = |chat: &str, content: &str, last: bool| json!({"op": "draft", "chat_id": chat, "draft_id": 77, "content": content, "final": last, "metadata": {"thread_id": "5"}});
    let run = bot.run(&draft(PERSON, "**so** far", false), &[done()]);
    let body = json!({"chat_id": 42, "draft_id": 77, "text": "**so** far", "can_stop": true, "message_thread_id": 5});
    assert_eq!(run.calls, [json!(["sendMessageDraft", body])]);
    assert_eq!(
        (run.applied().message_id.as_ref(), run.kinds.as_slice()),
        (None, &[CallKind::Droppable][..])
    );
    let long = bot.run(&draft(PERSON, &"x".repeat(5_000), false), &[done()]);
    assert_eq!(long.texts()[0].len(), 4096);
    let run = bot.run(&draft(PERSON, "**all**", true), &[message(8)]);
    assert_eq!(
        (run.methods(), run.texts(), run.message_id()),
        (vec!["sendMessage"], vec!["<b>all</b>"], "8")
    );
    assert_eq!(bot.refusal(&draft(CLUB, "x", false)), "unsupported");
    let zero = json!({"op": "draft", "chat_id": PERSON, "draft_id": 0, "content": "", "final": false});
    let run = bot.run(&zero, &[done()]);
    assert_eq!(run.calls[0][1]["draft_id"], 1);
    let huge = json!({"op": "draft", "chat_id": PERSON, "draft_id": u64::MAX, "content": "", "final": false});
    assert_eq!(bot.run(&huge, &[done()]).calls[0][1]["draft_id"], i64::MAX);
}

#[test]
fn a_message_is_deleted_with_all_its_parts() {
    let mut bot = TestBot::new();
    let delete = |id: &str| json!({"op": "delete", "chat_id": PERSON, "message_id": id});
    let run = bot.run(&delete("9"), &[done()]);
    assert_eq!(
        run.calls,
        [json!(["deleteMessage", {"chat_id": 42, "message_id": 9}])]
    );
    let sent = bot.run(&send(&long_text()), &[message(1), message(2), message(3)]);
    assert_eq!(sent.message_id(), "1");
    let run = bot.run(&delete("1"), &[done()]);
    assert_eq!(
        run.calls,
        [json!(["deleteMessages", {"chat_id": 42, "message_ids": [1, 2, 3]}])]
    );
    assert_eq!(bot.run(&delete("1"), &[done()]).methods(), ["deleteMessage"]);
}

#[test]
fn a_reaction_is_replaced_by_an_allowed_one() {
    let mut bot = TestBot::new();
    let react = |emoji: &str, remove: bool| json!({"op": "react", "chat_id": PERSON, "message_id": "3", "emoji": emoji, "remove": remove});
    let call = |reaction: Value| json!(["setMessageReaction", {"chat_id": 42, "message_id": 3, "reaction": reaction}]);
    let run = bot.run(&react("👀", false), &[done()]);
    assert_eq!(run.calls, [call(json!([{"type": "emoji", "emoji": "👀"}]))]);
    assert_eq!(run.kinds, [CallKind::Droppable]);
    let run = bot.run(&react("✅", false), &[done()]);
    assert_eq!(run.calls, [call(json!([{"type": "emoji", "emoji": "👍"}]))]);
    let run = bot.run(&react("👀", true), &[done()]);
    assert_eq!(
        (run.calls, run.kinds),
        (vec![call(json!([]))], vec![CallKind::Required])
    );
    bot.run(&react("🍕", true), &[done()]).applied();
    assert_eq!(bot.refusal(&react("🍕", false)), "reaction_not_allowed");
}

#[test]
fn a_prompt_has_its_buttons_and_loses_them_with_the_next_edit() {
    let mut bot = TestBot::new();
    let prompt = json!({
        "op": "prompt", "chat_id": PERSON, "content": "May I?\n```\nls\n```", "prompt_kind": "approval",
        "prompt_id": "a1b2c3.00000001", "reply_to": "7",
        "options": [{"id": "o0", "label": "Yes", "style": "primary"}, {"id": "o1", "label": "No", "style": "danger"}],
    });
    let data = |option: &str| bot.keys.seal("a1b2c3.00000001", option).unwrap();
    let keyboard = json!({"inline_keyboard": [[
        {"text": "Yes", "callback_data": data("o0"), "style": "primary"},
        {"text": "No", "callback_data": data("o1"), "style": "danger"},
    ]]});
    let more = json!({
        "reply_parameters": {"message_id": 7, "allow_sending_without_reply": true}, "reply_markup": keyboard,
    });
    let run = bot.run(&prompt, &[message(20)]);
    assert_eq!(run.calls, [text_call(42, "May I?\n\n<pre>ls</pre>", &more)]);
    assert_eq!(run.message_id(), "20");
    // The same text again, but without buttons; and that must arrive.
    let run = bot.run(&edit("20", "May I?\n```\nls\n```", false), &[too_many(3)]);
    assert_eq!(
        (run.refused(), run.kinds.clone()),
        ("rate_limited", vec![CallKind::Required])
    );
    let run = bot.run(&edit("20", "May I?\n```\nls\n```", false), &[message(20)]);
    assert_eq!(
        (run.methods(), run.kinds.as_slice()),
        (vec!["editMessageText"], &[CallKind::Required][..])
    );
    assert!(run.calls[0][1].get("reply_markup").is_none());
    let run = bot.run(&edit("20", "more", false), &[message(20)]);
    assert_eq!(run.kinds, [CallKind::Droppable], "the buttons are gone");
    let mut foreign = prompt;
    foreign["prompt_id"] = json!("p".repeat(60));
    assert_eq!(
        bot.refusal(&foreign),
        "unsupported",
        "the relay asks in words instead"
    );
}

#[test]
fn a_file_goes_by_its_kind_with_its_caption() {
    let mut bot = TestBot::new();
    let media = |kind: &str, caption: &str| {
        json!({
            "op": "send_media", "chat_id": PERSON, "media_kind": kind, "source_url": "https://x.y/z", "content": caption,
            "filename": "z.bin", "reply_to": "7", "metadata": {"notify": true, "thread_id": "5"},
        })
    };
    for (kind, method, field) in [
        ("image", "sendPhoto", "photo"),
        ("voice", "sendVoice", "voice"),
        ("video", "sendVideo", "video"),
        ("audio", "sendAudio", "audio"),
        ("document", "sendDocument", "document"),
        ("anything", "sendDocument", "document"),
    ] {
        let run = bot.run(&media(kind, "*c*"), &[message(30)]);
        let mut body = json!({
            "chat_id": 42, "caption": "<i>c</i>", "parse_mode": "HTML", "message_thread_id": 5,
            "reply_parameters": {"message_id": 7, "allow_sending_without_reply": true},
        });
        if field == "video" {
            body["supports_streaming"] = json!(true);
        }
        assert_eq!(
            run.calls,
            [json!([method, body, [field, "https://x.y/z", "z.bin"]])]
        );
        assert_eq!(run.message_id(), "30");
    }
    let run = bot.run(&media("image", ""), &[message(31)]);
    assert!(run.calls[0][1].get("caption").is_none() && run.calls[0][1].get("parse_mode").is_none());
    // A caption that is too long goes first, as a message; the anchor is on the first.
    let run = bot.run(&media("image", &"x".repeat(1025)), &[message(32), message(33)]);
    assert_eq!(
        (run.methods(), run.message_id()),
        (vec!["sendMessage", "sendPhoto"], "33")
    );
    assert!(
        run.calls[0][1].get("reply_parameters").is_some()
            && run.calls[1][1].get("reply_parameters").is_none()
    );
    assert_eq!(
        bot.run(&media("image", &"😀".repeat(1024)), &[message(34)])
            .methods(),
        ["sendPhoto"]
    );
}

#[test]
fn topics_are_opened_and_renamed_under_their_guard() {
    let mut bot = TestBot::new();
    let open = json!({"op": "thread_create", "chat_id": CLUB, "thread_name": " New\nplans "});
    let run = bot.run(
        &open,
        &[ApiAnswer::Ok(
            json!({"message_thread_id": 66, "name": "New plans"}),
        )],
    );
    assert_eq!(
        run.calls,
        [json!(["createForumTopic", {"chat_id": -1001, "name": "New plans"}])]
    );
    assert_eq!(run.applied().thread_id.as_ref().unwrap().as_str(), "66");

    let rename = |thread: &str, own: bool, only_if: Option<&str>| {
        let mut op =
            json!({"op": "thread_rename", "chat_id": CLUB, "message_id": thread, "thread_name": "Better"});
        if own {
            op["only_if_connector_created"] = json!(true);
        }
        if let Some(name) = only_if {
            op["only_if_current_name"] = json!(name);
        }
        op
    };
    assert_eq!(bot.refusal(&rename("70", true, None)), "not_opened_here");
    assert_eq!(bot.refusal(&rename("70", false, Some("Old"))), "unsupported");
    assert_eq!(bot.refusal(&rename("66", true, Some("Old"))), "renamed");
    let run = bot.run(&rename("66", true, Some("New plans")), &[done()]);
    assert_eq!(
        run.calls,
        [json!(["editForumTopic", {"chat_id": -1001, "message_thread_id": 66, "name": "Better"}])]
    );
    assert_eq!(bot.cache.topic_name(-1001, 66), Some("Better"));
    // Somebody renames it.
    bot.cache.topic_named(-1001, 66, "Theirs");
    assert_eq!(bot.refusal(&rename("66", true, Some("Better"))), "renamed");
    let run = bot.run(
        &rename("66", true, None),
        &[error(400, "Bad Request: TOPIC_NOT_MODIFIED")],
    );
    run.applied();
    let run = bot.run(&rename("1", false, None), &[done()]);
    assert_eq!(
        run.calls,
        [json!(["editGeneralForumTopic", {"chat_id": -1001, "name": "Better"}])]
    );
    let blank = json!({"op": "thread_create", "chat_id": CLUB, "thread_name": " \u{200b}"});
    assert_eq!(bot.refusal(&blank), "bad_name");
}

#[test]
fn a_chat_has_a_name_and_the_contracts_type() {
    let mut bot = TestBot::new();
    let ask = json!({"op": "get_chat_info", "chat_id": CLUB});
    for (chat, info) in [
        (
            json!({"type": "private", "first_name": "Ann", "last_name": "Lee"}),
            json!({"name": "Ann Lee", "type": "dm"}),
        ),
        (
            json!({"type": "private", "username": "ann"}),
            json!({"name": "ann", "type": "dm"}),
        ),
        (
            json!({"type": "group", "title": "Club"}),
            json!({"name": "Club", "type": "group"}),
        ),
        (
            json!({"type": "supergroup", "title": "Club"}),
            json!({"name": "Club", "type": "group"}),
        ),
        (
            json!({"type": "supergroup", "title": "Club", "is_forum": true}),
            json!({"name": "Club", "type": "forum"}),
        ),
        (
            json!({"type": "channel", "title": "News"}),
            json!({"name": "News", "type": "channel"}),
        ),
    ] {
        let run = bot.run(&ask, &[ApiAnswer::Ok(chat)]);
        assert_eq!(run.calls, [json!(["getChat", {"chat_id": -1001}])]);
        assert_eq!(run.applied().chat_info, Some(info));
    }
}

#[test]
fn what_telegram_cannot_do_is_refused_without_a_call() {
    let mut bot = TestBot::new();
    for (op, code) in [
        (
            json!({"op": "follow_up", "session_key": "s", "kind": "k", "content": "x"}),
            "unsupported",
        ),
        (
            json!({"op": "task_card", "chat_id": PERSON, "card_id": "c", "chunks": []}),
            "unsupported",
        ),
        (
            json!({"op": "task_card_stop", "chat_id": PERSON, "card_id": "c"}),
            "unsupported",
        ),
        (
            json!({"op": "send", "chat_id": "general", "content": "x"}),
            "bad_chat_id",
        ),
        (
            json!({"op": "send", "chat_id": PERSON, "content": " \n"}),
            "empty",
        ),
        (edit("5", "", true), "empty"),
        (edit("0", "x", true), "bad_message_id"),
        (edit("x", "x", true), "bad_message_id"),
        (edit("99999999999", "x", true), "bad_message_id"),
        (
            json!({"op": "send", "chat_id": PERSON, "content": "x", "metadata": {"thread_id": "x"}}),
            "bad_thread_id",
        ),
    ] {
        assert_eq!(bot.refusal(&op), code, "{op}");
    }
}

#[test]
fn an_album_is_one_call_and_falls_back_to_its_files() {
    let file = |name: &str| {
        json!({"media_kind": "image", "source_url": format!("telegram://outgoing/{name}/x"), "filename": name,
            "instead": format!("(could not deliver {name})")})
    };
    let op = json!({"op": "send_media", "chat_id": PERSON, "media_kind": "image", "content": "look",
        "source_url": "telegram://outgoing/a/x", "filename": "a",
        "metadata": {"notify": true, "album": [file("a"), file("b"), file("c")]}});
    let message = |id: i64| json!({ "message_id": id });
    let sent = ApiAnswer::Ok(json!([message(7), message(8), message(9)]));
    let run = TestBot::new().run(&op, &[sent]);
    assert_eq!(run.calls[0][0], "sendMediaGroup");
    assert_eq!(
        run.calls[0][1]["media"],
        json!([{"type": "photo", "caption": "look", "parse_mode": "HTML"}, {"type": "photo"}, {"type": "photo"}])
    );
    assert_eq!(run.calls[0][4], json!(["media", "telegram://outgoing/c/x", "c"]));
    assert_eq!(run.message_id(), "9");

    let error = |code, retry_after| ApiAnswer::Error {
        code,
        description: "Bad Request: wrong file".to_owned(),
        retry_after,
        migrate_to: None,
    };
    let mut bot = TestBot::new();
    let first = bot.run(
        &op,
        &[
            error(400, None),
            error(400, None),
            ApiAnswer::Ok(message(7)),
            error(429, Some(1)),
        ],
    );
    let methods = |run: &Run| -> Vec<Value> { run.calls.iter().map(|call| call[0].clone()).collect() };
    assert_eq!(
        methods(&first),
        ["sendMediaGroup", "sendPhoto", "sendMessage", "sendPhoto"]
    );
    assert_eq!(first.calls[2][1]["text"], "(could not deliver a)");
    // What was sent is not sent again.
    let second = bot.run(&op, &[ApiAnswer::Ok(message(8)), ApiAnswer::Ok(message(9))]);
    assert_eq!(methods(&second), ["sendPhoto", "sendPhoto"]);
    assert_eq!(
        (&second.calls[0][2][2], &second.calls[1][2][2]),
        (&json!("b"), &json!("c"))
    );
}
