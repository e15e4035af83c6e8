//! What follows from each error.

use super::*;

#[test]
fn markup_that_the_server_cannot_read_is_sent_as_rendered_text() {
    let mut bot = TestBot::new();
    let cannot = error(400, "Bad Request: can't parse entities: x at byte offset 3");
    let run = bot.run(&send("**a** [b](http://c.d) `e`"), &[cannot.clone(), message(1)]);
    assert_eq!(run.texts()[1], "a b (http://c.d) e");
    assert!(run.calls[1][1].get("parse_mode").is_none());
    assert_eq!(
        (run.observations.as_slice(), run.message_id()),
        (&[Observation::MarkupRefused][..], "1")
    );
    let run = bot.run(&send("*a*"), &[cannot.clone(), cannot.clone()]);
    assert_eq!(run.refused(), "bad_markup", "once");
    let run = bot.run(&edit("3", "*a*", true), &[cannot, message(3)]);
    assert_eq!(run.texts()[1], "a");
    // It is not known to show the styles now.
    assert_eq!(bot.run(&edit("3", "*a*", true), &[message(3)]).methods().len(), 1);
}

#[test]
fn a_topic_that_is_not_found_is_tried_once_more_and_never_left() {
    let mut bot = TestBot::new();
    let gone = error(400, "Bad Request: message thread not found");
    let op = |op: &str, thread: &str| json!({"op": op, "chat_id": CLUB, "content": "x", "metadata": {"thread_id": thread}});
    let run = bot.run(&op("send", "55"), &[gone.clone(), message(4)]);
    assert_eq!(run.calls[1][1]["message_thread_id"], 55);
    let run = bot.run(&op("send", "55"), &[gone.clone(), gone.clone()]);
    assert_eq!(run.refused(), "topic_not_found");
    let run = bot.run(&op("typing", "1"), &[gone.clone(), done()]);
    assert!(run.calls[1][1].get("message_thread_id").is_none());
    let run = bot.run(&op("send", "1"), &[gone.clone(), gone]);
    assert_eq!(run.refused(), "topic_not_found");
    for closed in ["TOPIC_CLOSED", "TOPIC_DELETED"] {
        let run = bot.run(
            &op("send", "55"),
            &[error(400, &format!("Bad Request: {closed}"))],
        );
        assert_eq!(run.refused(), closed.to_lowercase());
    }
}

#[test]
fn an_anchor_that_is_gone_is_left_out() {
    let mut bot = TestBot::new();
    let gone = error(400, "Bad Request: message to be replied not found");
    let run = bot.run(&send("x"), &[gone.clone(), message(5)]);
    assert!(
        run.calls[0][1].get("reply_parameters").is_some()
            && run.calls[1][1].get("reply_parameters").is_none()
    );
    let run = bot.run(&send("x"), &[gone.clone(), gone]);
    assert_eq!(run.refused(), "reply_not_found");
}

#[test]
fn a_group_that_moved_is_followed_once_and_from_then_on() {
    let mut bot = TestBot::new();
    let moved = |to: i64| ApiAnswer::Error {
        code: 400,
        description: "Bad Request: group chat was upgraded to a supergroup chat".to_owned(),
        retry_after: None,
        migrate_to: Some(to),
    };
    let op = json!({"op": "send", "chat_id": "-77", "content": "x"});
    let run = bot.run(&op, &[moved(-10_077), message(6)]);
    assert_eq!(
        (
            run.calls[0][1]["chat_id"].clone(),
            run.calls[1][1]["chat_id"].clone()
        ),
        (json!(-77), json!(-10_077))
    );
    assert_eq!(
        run.observations,
        [Observation::Migrated {
            from: -77,
            to: -10_077
        }]
    );
    assert_eq!(run.message_id(), "6");
    let run = bot.run(&op, &[message(7)]);
    assert_eq!(run.calls[0][1]["chat_id"], -10_077);
    let run = bot.run(
        &json!({"op": "send", "chat_id": "-5", "content": "x"}),
        &[moved(-6), moved(-5)],
    );
    assert_eq!(run.refused(), "chat_moved", "no circles");
    bot.cache.chat_moved(-8, -10_008);
    let run = bot.run(
        &json!({"op": "get_chat_info", "chat_id": "-8"}),
        &[ApiAnswer::Ok(json!({}))],
    );
    assert_eq!(run.calls[0][1]["chat_id"], -10_008);
}

#[test]
fn a_picture_that_is_refused_goes_as_a_document() {
    let mut bot = TestBot::new();
    let media = |kind: &str| json!({"op": "send_media", "chat_id": PERSON, "media_kind": kind, "source_url": "u", "content": "c"});
    for (kind, reason) in [
        ("image", "PHOTO_INVALID_DIMENSIONS"),
        ("image", "IMAGE_PROCESS_FAILED"),
        ("voice", "VOICE_MESSAGES_FORBIDDEN"),
    ] {
        let refused = error(400, &format!("Bad Request: {reason}"));
        let run = bot.run(&media(kind), &[refused.clone(), message(8)]);
        assert_eq!(run.methods()[1], "sendDocument");
        assert_eq!(run.calls[1][2][0], "document");
        let run = bot.run(&media(kind), &[refused.clone(), refused]);
        assert_eq!(run.refused(), "bad_file");
    }
    let run = bot.run(&media("image"), &[error(413, "Request Entity Too Large")]);
    assert_eq!(run.refused(), "too_large");
    let long = error(400, "Bad Request: message caption is too long");
    let run = bot.run(&media("image"), &[long, message(1), message(2)]);
    assert_eq!(run.methods(), ["sendPhoto", "sendMessage", "sendPhoto"]);
    assert!(run.calls[2][1].get("caption").is_none());
}

#[test]
fn the_text_of_a_picture_is_its_caption() {
    let mut bot = TestBot::new();
    let no_text = error(400, "Bad Request: there is no text in the message to edit");
    let run = bot.run(&edit("9", "**x**", true), &[no_text.clone(), message(9)]);
    let body = json!({"chat_id": 42, "message_id": 9, "caption": "<b>x</b>", "parse_mode": "HTML"});
    assert_eq!(run.calls[1], json!(["editMessageCaption", body]));
    assert_eq!(run.message_id(), "9");
    let long = format!("{}\n\n{}", "a".repeat(900), "b".repeat(900));
    let run = bot.run(
        &edit("10", &long, true),
        &[no_text.clone(), message(10), message(11)],
    );
    assert_eq!(
        run.methods(),
        ["editMessageText", "editMessageCaption", "sendMessage"]
    );
    let run = bot.run(&edit("12", "x", true), &[no_text.clone(), no_text]);
    assert_eq!(run.refused(), "message_gone");
}

#[test]
fn nothing_left_to_do_counts_as_done() {
    let mut bot = TestBot::new();
    let same = error(
        400,
        "Bad Request: message is not modified: specified new message content is exactly the same",
    );
    assert_eq!(bot.run(&edit("5", "x", true), &[same]).message_id(), "5");
    let gone = error(400, "Bad Request: message to delete not found");
    let delete = json!({"op": "delete", "chat_id": PERSON, "message_id": "5"});
    bot.run(&delete, &[gone]).applied();
}

#[test]
fn a_final_text_whose_message_is_gone_is_a_new_message() {
    let mut bot = TestBot::new();
    for reason in [
        "message to edit not found",
        "MESSAGE_ID_INVALID",
        "message can't be edited",
    ] {
        let gone = error(400, &format!("Bad Request: {reason}"));
        let run = bot.run(&edit("5", "all of it", true), &[gone.clone(), message(60)]);
        assert_eq!(
            (run.methods(), run.message_id()),
            (vec!["editMessageText", "sendMessage"], "60")
        );
        assert_eq!(run.texts()[1], "all of it");
        assert!(run.calls[1][1].get("disable_notification").is_none());
        let run = bot.run(&edit("5", "some of it", false), &[gone]);
        assert_eq!(run.refused(), "message_gone", "{reason}");
    }
}

#[test]
fn a_limit_is_passed_on_with_its_time() {
    let mut bot = TestBot::new();
    for op in [
        send("x"),
        edit("5", "x", true),
        json!({"op": "typing", "chat_id": PERSON}),
    ] {
        let run = bot.run(&op, &[too_many(34)]);
        let OpStep::Done(Outcome::Refused { result, .. }) = &run.end else {
            panic!("{:?}", run.end);
        };
        assert_eq!(result.rate_limited(), Some(Some(Duration::from_secs(34))));
        assert_eq!(result.code.as_ref().unwrap().as_str(), "rate_limited");
        let retry_after = Duration::from_secs(34);
        assert_eq!(
            run.observations,
            [Observation::Limited {
                chat: 42,
                retry_after
            }]
        );
    }
}

#[test]
fn what_the_budget_holds_back_is_not_lost() {
    let mut bot = TestBot::new();
    let mut calls = bot.begin(&send("x")).unwrap();
    calls.limited(Duration::from_millis(2_500), &mut bot.cache);
    let OpStep::Done(Outcome::Refused { result, .. }) = calls.step() else {
        panic!("refused");
    };
    assert_eq!(result.rate_limited(), Some(Some(Duration::from_secs(3))));
    // A growing text that is not shown must not count as shown; typing may.
    let mut calls = bot.begin(&edit("5", "x", false)).unwrap();
    calls.dropped(&mut bot.cache);
    assert_eq!(calls.step(), OpStep::NotSent);
    for op in [
        json!({"op": "typing", "chat_id": PERSON}),
        json!({"op": "draft", "chat_id": PERSON, "draft_id": 3, "content": "x", "final": false}),
        json!({"op": "react", "chat_id": PERSON, "message_id": "3", "emoji": "👀", "remove": false}),
    ] {
        let mut calls = bot.begin(&op).unwrap();
        calls.dropped(&mut bot.cache);
        assert!(matches!(calls.step(), OpStep::Done(Outcome::Applied(_))), "{op}");
    }
}

#[test]
fn drafts_are_given_up_where_the_server_has_none() {
    let mut bot = TestBot::new();
    let draft =
        |chat: &str| json!({"op": "draft", "chat_id": chat, "draft_id": 3, "content": "x", "final": false});
    let run = bot.run(&draft("42"), &[error(400, "Bad Request: TEXTDRAFT_PEER_INVALID")]);
    assert_eq!(run.refused(), "unsupported");
    assert_eq!(bot.refusal(&draft("42")), "unsupported");
    bot.run(&draft("43"), &[done()]).applied();
    let run = bot.run(&draft("43"), &[error(404, "Not Found: method not found")]);
    assert_eq!(run.refused(), "unsupported");
    assert_eq!(bot.refusal(&draft("44")), "unsupported");
    assert!(!bot.cache.has_drafts(44));
    // A draft that a limit or a cut stops says nothing about drafts.
    let mut bot = TestBot::new();
    bot.run(&draft("42"), &[too_many(1)]);
    assert_eq!(
        bot.run(&draft("42"), &[ApiAnswer::Unknown]).end,
        OpStep::Done(Outcome::Unknown)
    );
    assert!(bot.cache.has_drafts(42));
}

#[test]
fn a_closed_chat_is_reported_with_its_reason() {
    let mut bot = TestBot::new();
    for (code, description, reason) in [
        (403, "Forbidden: bot was blocked by the user", "blocked"),
        (403, "Forbidden: bot was kicked from the group chat", "kicked"),
        (
            400,
            "Bad Request: not enough rights to send text messages to the chat",
            "no_rights",
        ),
        (400, "Bad Request: chat not found", "chat_not_found"),
    ] {
        let run = bot.run(&send("x"), &[error(code, description)]);
        assert_eq!(run.refused(), reason);
        assert_eq!(run.observations, [Observation::Closed { chat: 42, reason }]);
        let OpStep::Done(Outcome::Refused { result, .. }) = run.end else {
            unreachable!();
        };
        assert_eq!(result.is_permanent, reason != "no_rights", "{reason}");
        assert_eq!(result.error.unwrap().as_str(), description);
        let again = bot.run(&send("x"), &[error(code, description)]);
        assert_eq!(again.observations, [], "{reason} is reported once");
    }
    let blocked = error(403, "Forbidden: bot was blocked by the user");
    bot.run(&send("x"), std::slice::from_ref(&blocked));
    bot.run(&send("x"), &[done()]).applied();
    let run = bot.run(&send("x"), &[blocked]);
    assert_eq!(run.observations.len(), 1, "after it was open, it is news again");
    let hostile = format!("Bad Request: \u{1b}[2J{}", "x".repeat(1_000));
    let run = bot.run(&send("x"), &[error(400, &hostile)]);
    let OpStep::Done(Outcome::Refused { result, .. }) = run.end else {
        unreachable!();
    };
    let shown = result.error.unwrap().into_string();
    assert!(shown.len() <= 200 && !shown.contains('\u{1b}'));
}

#[test]
fn what_never_left_is_not_sent_and_what_left_is_unknown() {
    let mut bot = TestBot::new();
    let run = bot.run(&send("x"), &[ApiAnswer::NotSent("no route".to_owned())]);
    assert_eq!(run.end, OpStep::NotSent);
    for answer in [ApiAnswer::Unknown, error(502, "Bad Gateway")] {
        assert_eq!(bot.run(&send("x"), &[answer]).end, OpStep::Done(Outcome::Unknown));
    }
    let misdirected = error(421, "Misdirected Request");
    bot.run(&send("x"), &[misdirected.clone(), message(1)]).applied();
    let run = bot.run(&send("x"), &[misdirected.clone(), misdirected]);
    assert_eq!(run.end, OpStep::NotSent);
    let later = error(
        400,
        "Bad Request: wrong file_id or the file is temporarily unavailable",
    );
    assert_eq!(bot.run(&send("x"), &[later]).refused(), "unavailable");
}

#[test]
fn after_an_unknown_edit_the_same_text_is_shown_again() {
    let mut bot = TestBot::new();
    assert_eq!(bot.run(&send("one"), &[message(5)]).message_id(), "5");
    bot.run(&edit("5", "two", true), &[ApiAnswer::Unknown]);
    let run = bot.run(&edit("5", "one", true), &[message(5)]);
    assert_eq!(run.methods(), ["editMessageText"]);
    bot.run(&edit("5", "one", true), &[]).applied();
}
