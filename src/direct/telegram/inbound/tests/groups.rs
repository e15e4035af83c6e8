//! Groups and channels: who is spoken to, and who speaks.

use super::*;

/// What a group message is under these rules: its text, or why it is ignored.
fn judged(relevance: &Relevance, message: &Value) -> Result<String, &'static str> {
    let updates = json!([{ "update_id": 1, "message": message }]);
    match read_with(relevance, &mut TopicNames::new(), &updates)
        .remove(0)
        .meaning
    {
        UpdateMeaning::Message(message) => Ok(message.event["text"].as_str().unwrap().to_owned()),
        UpdateMeaning::Ignored(why) => Err(why),
        other => panic!("{other:?}"),
    }
}

const UNADDRESSED: &str = "a group message that does not address the bot";

#[test]
fn commands_lose_our_name_and_those_for_others_are_ignored() {
    #[rustfmt::skip]
    let table = [
        ("/new", "/new", Some("/new")),
        ("/new x", "/new", Some("/new x")),
        ("/new@OurBot x", "/new@OurBot", Some("/new x")),
        ("/NEW@ourBOT x", "/NEW@ourBOT", Some("/new x")),
        ("/new@OtherBot x", "/new@OtherBot", None),
        ("/new@OurBot2", "/new@OurBot2", None),
        ("/new@", "/new@", None),
    ];
    for (text, part, expected) in table {
        for of in [
            private(marked(text, &[("bot_command", part)])),
            group(marked(text, &[("bot_command", part)])),
        ] {
            match expected {
                Some(expected) => {
                    let read = event(of);
                    assert_eq!(
                        (&read["text"], &read["message_type"]),
                        (&json!(expected), &json!("command")),
                        "{text}"
                    );
                }
                None => assert_eq!(ignored(of), "a command for another bot", "{text}"),
            }
        }
    }
    // A caption can be one, too.
    let read = event(private(json!({
        "caption": "/see@OurBot it", "caption_entities": [{ "type": "bot_command", "offset": 0, "length": 11 }],
        "photo": [{ "file_id": "F" }],
    })));
    assert_eq!(
        (&read["text"], &read["message_type"]),
        (&json!("/see it"), &json!("command"))
    );
    assert_eq!(read["media_urls"], json!(["telegram://file/F/"]));
    // Elsewhere in the text it is none, and neither is a path that is not marked.
    for text in ["do /new@OtherBot", "/usr/bin is a path"] {
        let read = event(private(json!({ "text": text })));
        assert_eq!(
            (&read["text"], &read["message_type"]),
            (&json!(text), &json!("text"))
        );
    }
    // What another bot wrote for the author was not typed.
    let via = with(
        marked("/new", &[("bot_command", "/new")]),
        json!({ "via_bot": { "id": 9 } }),
    );
    assert_eq!(event(private(via))["message_type"], "text");
}

#[test]
fn entities_decide_what_a_mention_is() {
    let default = Relevance::default();
    let ours = |text: &str, part: &str| group(marked(text, &[("mention", part)]));
    #[rustfmt::skip]
    let table = [
        (ours("@OurBot hi", "@OurBot"), Ok("hi")),
        (ours("@ourbot, hi", "@ourbot"), Ok("hi")),
        (ours("😀😀 @OurBot: hi", "@OurBot"), Ok("😀😀 @OurBot: hi")),
        (ours("hi @OURBOT", "@OURBOT"), Ok("hi")),
        (ours("hi, what says @OurBot to that", "@OurBot"), Ok("hi, what says @OurBot to that")),
        (ours("@OurBot", "@OurBot"), Ok("@OurBot")),
        (group(marked("@OurBot /stop", &[("mention", "@OurBot"), ("bot_command", "/stop")])), Ok("/stop")),
        (ours("@OtherBot hi", "@OtherBot"), Err(UNADDRESSED)),
        (ours("@OurBotX hi", "@OurBotX"), Err(UNADDRESSED)),
        (group(json!({ "text": "@OurBot hi" })), Err(UNADDRESSED)),
        (group(marked("code @OurBot", &[("code", "code @OurBot")])), Err(UNADDRESSED)),
        (group(json!({ "text": "hi" })), Err(UNADDRESSED)),
    ];
    for (message, expected) in table {
        assert_eq!(
            judged(&default, &message),
            expected.map(str::to_owned),
            "{message}"
        );
    }
    let named = |id: i64| {
        let mut message = group(marked("Our Bot, hi", &[("text_mention", "Our Bot")]));
        message["entities"][0]["user"] = json!({ "id": id, "is_bot": true, "first_name": "Our Bot" });
        message
    };
    assert_eq!(judged(&default, &named(OUR_ID)), Ok("hi".to_owned()));
    assert_eq!(judged(&default, &named(5)), Err(UNADDRESSED));
    // The type of a command behind a mention.
    let command = event(group(marked(
        "@OurBot /stop",
        &[("mention", "@OurBot"), ("bot_command", "/stop")],
    )));
    assert_eq!(command["message_type"], "command");
    // A caption that is only a mention says nothing.
    let captioned = group(json!({
        "caption": "@OurBot", "caption_entities": [{ "type": "mention", "offset": 0, "length": 7 }],
        "photo": [{ "file_id": "F" }],
    }));
    assert_eq!(event(captioned)["text"], "");
}

#[test]
fn offsets_count_utf16_units_and_wrong_ones_are_no_entities() {
    let text = "a😀 @OurBot hi";
    assert!(
        judged(
            &Relevance::default(),
            &group(marked(text, &[("mention", "@OurBot")]))
        )
        .is_ok()
    );
    for (offset, length) in [
        (4, 8),
        (5, 7),
        (2, 7),
        (4, 99),
        (-1, 7),
        (4, 0),
        (i64::MAX, i64::MAX),
    ] {
        let entity = json!({ "type": "mention", "offset": offset, "length": length });
        let message = group(json!({ "text": text, "entities": [entity] }));
        assert_eq!(
            judged(&Relevance::default(), &message),
            Err(UNADDRESSED),
            "{offset} {length}"
        );
    }
}

#[test]
fn a_reply_to_us_addresses_us_and_a_topic_that_we_opened_does_not() {
    let ours = json!({ "message_id": 9, "from": { "id": OUR_ID, "is_bot": true }, "text": "said" });
    let default = Relevance::default();
    let reply = json!({ "text": "why?", "reply_to_message": ours });
    assert_eq!(judged(&default, &group(reply.clone())), Ok("why?".to_owned()));
    let other = json!({ "text": "why?", "reply_to_message": { "message_id": 9, "from": { "id": 5 }, "text": "said" } });
    assert_eq!(judged(&default, &group(other)), Err(UNADDRESSED));
    // Every message of a topic carries its first one, which is ours if we opened it.
    let root = with(
        ours.clone(),
        json!({ "forum_topic_created": { "name": "Plans" } }),
    );
    let plain = forum(json!({ "text": "hi", "reply_to_message": root }));
    assert_eq!(judged(&default, &plain), Err(UNADDRESSED));
    let plain = forum(json!({ "text": "hi", "reply_to_message": ours }));
    assert_eq!(
        judged(&default, &plain),
        Err(UNADDRESSED),
        "known by its id alone"
    );
    let free = Relevance {
        require_mention: false,
        ..default
    };
    let updates =
        json!([{ "update_id": 1, "message": forum(json!({ "text": "hi", "reply_to_message": root })) }]);
    let UpdateMeaning::Message(message) = read_with(&free, &mut TopicNames::new(), &updates)
        .remove(0)
        .meaning
    else {
        panic!("all messages count")
    };
    assert_eq!(
        (
            message.event.get("reply_to"),
            message.event.get("reply_to_message_id")
        ),
        (None, None)
    );
    assert_eq!(
        message.event["source"]["chat_topic"], "Plans",
        "the first message has the name"
    );
}

#[test]
fn free_chats_and_topics_need_no_mention() {
    let rules = |free: &[&str], require_mention| Relevance {
        require_mention,
        free_chats: free.iter().map(|chat| (*chat).to_owned()).collect(),
        allow_bots: false,
    };
    let (plain, topic) = (group(json!({ "text": "hi" })), forum(json!({ "text": "hi" })));
    for (free, in_group, in_topic) in [
        (&["-1001"][..], true, true),
        (&[" -1001 "], true, true),
        (&["-1001:9"], false, true),
        (&["-1001:8"], false, false),
        (&["5", "-1001:9", ""], false, true),
        (&["-10011", "x", ":9", "-1001:", "-1001:x"], false, false),
        (&[], false, false),
    ] {
        assert_eq!(judged(&rules(free, true), &plain).is_ok(), in_group, "{free:?}");
        assert_eq!(judged(&rules(free, true), &topic).is_ok(), in_topic, "{free:?}");
    }
    assert!(judged(&rules(&[], false), &plain).is_ok(), "every message counts");
    let mut general = forum(json!({ "text": "hi" }));
    for key in ["message_thread_id", "is_topic_message"] {
        general.as_object_mut().unwrap().remove(key);
    }
    assert!(
        judged(&rules(&["-1001:1"], true), &general).is_ok(),
        "General is topic 1"
    );
}

#[test]
fn bots_count_where_they_are_allowed_and_mention_us() {
    let by_bot = |fields: Value| {
        group(with(
            json!({ "from": { "id": 9, "is_bot": true, "first_name": "B" } }),
            fields,
        ))
    };
    let mention = by_bot(marked("@OurBot hi", &[("mention", "@OurBot")]));
    let command = by_bot(marked("/x@OurBot", &[("bot_command", "/x@OurBot")]));
    let reply =
        by_bot(json!({ "text": "x", "reply_to_message": { "message_id": 1, "from": { "id": OUR_ID } } }));
    let closed = Relevance::default();
    let open = Relevance {
        require_mention: false,
        free_chats: vec!["-1001".to_owned()],
        allow_bots: true,
    };
    for message in [&mention, &command, &reply] {
        assert_eq!(judged(&closed, message), Err("a message of another bot"));
    }
    assert!(judged(&open, &mention).is_ok() && judged(&open, &command).is_ok());
    assert!(
        judged(&open, &reply).is_err(),
        "two bots would answer each other for ever"
    );
    assert_eq!(decoded_with(&open, &mention)["source"]["is_bot"], true);
    let ours = group(json!({ "text": "x", "from": { "id": OUR_ID, "is_bot": true } }));
    assert_eq!(judged(&open, &ours), Err("a message of the bot itself"));
}

fn decoded_with(relevance: &Relevance, message: &Value) -> Value {
    let updates = json!([{ "update_id": 1, "message": message }]);
    match read_with(relevance, &mut TopicNames::new(), &updates)
        .remove(0)
        .meaning
    {
        UpdateMeaning::Message(message) => message.event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_writes_as_a_chat_is_that_chat_and_no_person() {
    let open = Relevance {
        require_mention: false,
        ..Relevance::default()
    };
    let source =
        |fields: Value| decoded_with(&open, &group(with(json!({ "text": "x" }), fields)))["source"].clone();
    let anonymous = json!({ "from": { "id": 1_087_968_824, "is_bot": true, "first_name": "Group", "username": "GroupAnonymousBot" },
        "sender_chat": { "id": -1001, "type": "supergroup", "title": "Team" } });
    let read = source(anonymous.clone());
    assert_eq!(
        (&read["user_id"], &read["user_name"]),
        (&json!("-1001"), &json!("Team"))
    );
    assert_eq!((&read["is_bot"], read.get("user_handle")), (&json!(false), None));
    let read = source(with(anonymous, json!({ "author_signature": "Chief" })));
    assert_eq!(
        (&read["user_id"], &read["user_name"]),
        (&json!("-1001"), &json!("Chief"))
    );
    let read = source(
        json!({ "from": { "id": 136_817_688, "is_bot": true, "first_name": "Channel" },
        "sender_chat": { "id": -1009, "type": "channel", "title": "News", "username": "news" } }),
    );
    assert_eq!(
        (&read["user_id"], &read["user_name"], &read["user_handle"]),
        (&json!("-1009"), &json!("News"), &json!("news"))
    );
    assert_eq!(read["is_bot"], false);
    let copied = group(
        json!({ "text": "x", "is_automatic_forward": true, "from": { "id": 777_000 },
        "sender_chat": { "id": -1009, "type": "channel" }, "forward_origin": { "type": "channel" } }),
    );
    assert!(judged(&open, &copied).unwrap_err().contains("linked channel"));
}

#[test]
fn a_forwarded_mention_addresses_nobody() {
    let fields = with(
        marked("@OurBot hi", &[("mention", "@OurBot")]),
        json!({ "forward_origin": { "type": "hidden_user", "sender_user_name": "Bo" } }),
    );
    assert_eq!(judged(&Relevance::default(), &group(fields)), Err(UNADDRESSED));
}

#[test]
fn posts_of_a_channel_count_where_it_is_free() {
    let post = json!([{ "update_id": 1, "channel_post": {
        "message_id": 3, "chat": { "id": -1009, "type": "channel", "title": "News" }, "text": "post",
        "sender_chat": { "id": -1009, "type": "channel", "title": "News" }, "author_signature": "Bo",
    } }]);
    let rules = |free: &[&str]| Relevance {
        require_mention: false,
        free_chats: free.iter().map(|chat| (*chat).to_owned()).collect(),
        allow_bots: false,
    };
    let read = |relevance: &Relevance| {
        read_with(relevance, &mut TopicNames::new(), &post)
            .remove(0)
            .meaning
    };
    assert!(matches!(read(&rules(&[])), UpdateMeaning::Ignored(_)));
    let UpdateMeaning::Message(message) = read(&rules(&["-1009"])) else {
        panic!("a free channel")
    };
    let source = &message.event["source"];
    assert_eq!(
        (&source["chat_type"], &source["user_id"]),
        (&json!("channel"), &json!("-1009"))
    );
    assert_eq!(
        (&source["user_name"], &source["is_bot"]),
        (&json!("Bo"), &json!(false))
    );
}
