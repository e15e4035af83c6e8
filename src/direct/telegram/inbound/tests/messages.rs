//! Messages of private chats, field by field.

use super::*;

#[test]
fn a_text_has_every_field_that_a_connector_would_give() {
    assert_eq!(
        event(private(json!({ "text": "hello" }))),
        json!({
            "text": "hello", "message_type": "text", "message_id": "10",
            "source": {
                "platform": "telegram", "chat_id": "77", "chat_type": "dm", "chat_name": "Ann Lee",
                "user_id": "77", "user_name": "Ann Lee", "user_handle": "ann", "is_bot": false, "message_id": "10",
            },
        })
    );
    let read = decoded(private(json!({ "text": "hello" })));
    assert_eq!(read.text(), "hello");
    assert_eq!(read.source.user_name.unwrap().as_str(), "Ann Lee");
}

#[test]
fn the_chat_s_kind_and_topic_make_the_contract_s() {
    let general = |mut message: Value| {
        for key in ["message_thread_id", "is_topic_message"] {
            message.as_object_mut().unwrap().remove(key);
        }
        message
    };
    let to_us = json!({ "text": "/x" , "entities": [{ "type": "bot_command", "offset": 0, "length": 2 }] });
    for (message, chat_type, thread) in [
        (private(json!({ "text": "x" })), "dm", None),
        (
            private(json!({ "text": "x", "message_thread_id": 5, "is_topic_message": true })),
            "dm",
            Some("5"),
        ),
        // A chain of replies is no topic.
        (
            private(json!({ "text": "x", "message_thread_id": 5 })),
            "dm",
            None,
        ),
        (group(to_us.clone()), "group", None),
        (
            group(with(to_us.clone(), json!({ "message_thread_id": 5 }))),
            "group",
            None,
        ),
        (
            group(with(
                to_us.clone(),
                json!({ "chat": { "id": -5, "type": "group", "title": "T" } }),
            )),
            "group",
            None,
        ),
        (forum(to_us.clone()), "forum", Some("9")),
        (general(forum(to_us.clone())), "forum", Some("1")),
        (
            forum(with(to_us, json!({ "is_topic_message": false }))),
            "forum",
            Some("9"),
        ),
    ] {
        let event = event(message.clone());
        assert_eq!(event["source"]["chat_type"], chat_type, "{message}");
        assert_eq!(event["source"]["thread_id"].as_str(), thread, "{message}");
    }
}

#[test]
fn ids_may_be_texts_and_message_id_0_is_none() {
    let read = event(private(json!({ "text": "x", "message_id": "12" })));
    assert_eq!(read["message_id"], "12");
    let read = event(private(json!({ "text": "x", "message_id": 0 })));
    assert_eq!(
        (read.get("message_id"), read["source"].get("message_id")),
        (None, None)
    );
    let read = decoded(private(json!({ "text": "x", "message_id": 0 })));
    assert_eq!((read.message_id, read.source.message_id), (None, None));
}

#[test]
fn every_kind_of_content_has_its_type_its_file_or_its_words() {
    let file = |fields: Value| with(json!({ "file_id": "F-1_x", "file_unique_id": "U" }), fields);
    #[rustfmt::skip]
    let table = [
        (json!({ "photo": [file(json!({ "file_id": "small" })), file(json!({ "file_size": 900 }))] }),
            "photo", json!({ "url": "telegram://file/F-1_x/", "kind": "image", "mime": "image/jpeg", "size": 900 }), ""),
        (json!({ "photo": [file(json!({}))], "live_photo": file(json!({ "file_id": "live" })) }),
            "photo", json!({ "url": "telegram://file/F-1_x/", "kind": "image", "mime": "image/jpeg" }), ""),
        (json!({ "document": file(json!({ "file_name": "a b.pdf", "mime_type": "application/pdf", "file_size": 5 })) }),
            "document", json!({ "url": "telegram://file/F-1_x/a%20b.pdf", "kind": "document", "mime": "application/pdf", "size": 5,
                "filename": "a b.pdf" }), ""),
        (json!({ "document": file(json!({ "mime_type": "image/png" })) }),
            "photo", json!({ "url": "telegram://file/F-1_x/", "kind": "image", "mime": "image/png" }), ""),
        (json!({ "document": file(json!({})) }), "document", json!({ "url": "telegram://file/F-1_x/", "kind": "document" }), ""),
        (json!({ "voice": file(json!({ "duration": 3 })) }),
            "voice", json!({ "url": "telegram://file/F-1_x/", "kind": "voice", "mime": "audio/ogg" }), ""),
        (json!({ "audio": file(json!({ "performer": "P", "title": "T" })) }),
            "audio", json!({ "url": "telegram://file/F-1_x/P%20-%20T", "kind": "audio", "mime": "audio/mpeg", "filename": "P - T" }), ""),
        (json!({ "video": file(json!({ "mime_type": "video/mp4" })) }),
            "video", json!({ "url": "telegram://file/F-1_x/", "kind": "video", "mime": "video/mp4" }), ""),
        (json!({ "video_note": file(json!({ "length": 3 })) }),
            "video", json!({ "url": "telegram://file/F-1_x/", "kind": "video", "mime": "video/mp4" }), ""),
        (json!({ "animation": file(json!({})), "document": file(json!({ "file_id": "doc" })) }),
            "video", json!({ "url": "telegram://file/F-1_x/", "kind": "video", "mime": "video/mp4" }), ""),
        (json!({ "sticker": file(json!({ "emoji": "👍" })) }),
            "sticker", json!({ "url": "telegram://file/F-1_x/", "kind": "image", "mime": "image/webp" }), "[sticker 👍]"),
        (json!({ "sticker": file(json!({ "is_animated": true })) }), "sticker",
            json!({ "url": "telegram://file/F-1_x/", "kind": "document", "mime": "application/x-tgsticker" }), "[sticker]"),
        (json!({ "sticker": file(json!({ "is_video": true })) }),
            "sticker", json!({ "url": "telegram://file/F-1_x/", "kind": "video", "mime": "video/webm" }), "[sticker]"),
        (json!({ "location": { "latitude": 52.5, "longitude": 13.25 } }), "location", Value::Null, "[location 52.5, 13.25]"),
        (json!({ "venue": { "title": "Café\n", "address": "Street 1" }, "location": { "latitude": 1, "longitude": -2.5 } }),
            "location", Value::Null, "[location Café, Street 1 (1, -2.5)]"),
        (json!({ "contact": { "phone_number": "+49", "first_name": "Bo", "last_name": "Li" } }),
            "text", Value::Null, "[contact Bo Li, +49]"),
        (json!({ "poll": { "question": "Who?", "options": [{ "text": "A" }, { "text": "B" }] } }),
            "text", Value::Null, "[poll Who?: A / B]"),
        (json!({ "dice": { "emoji": "🎲", "value": 4 } }), "text", Value::Null, "[dice 🎲 4]"),
        (json!({ "checklist": { "title": "List", "tasks": [{ "id": 1, "text": "One" }] } }),
            "text", Value::Null, "[checklist List: One]"),
        (json!({ "story": { "id": 1, "chat": { "id": 5, "type": "private", "first_name": "Bo" } } }),
            "text", Value::Null, "[story of Bo]"),
        (json!({ "game": { "title": "G" } }), "text", Value::Null, "[game G]"),
        (json!({ "paid_media": { "star_count": 3, "paid_media": [] } }), "text", Value::Null, "[paid media for 3 stars]"),
        (json!({ "gift": {} }), "text", Value::Null, "[gift]"),
    ];
    for (fields, message_type, medium, text) in table {
        let event = event(private(fields.clone()));
        assert_eq!(event["message_type"], message_type, "{fields}");
        assert_eq!(event["text"], text, "{fields}");
        assert_eq!(event["media"][0], medium, "{fields}");
        assert_eq!(event["media_urls"][0], medium["url"], "{fields}");
        let read = decoded(private(fields.clone()));
        assert_eq!(
            serde_json::to_value(read.message_type).unwrap(),
            message_type,
            "{fields}"
        );
        let mimes: Vec<&str> = medium["url"]
            .as_str()
            .map(|_| medium["mime"].as_str().unwrap_or(""))
            .into_iter()
            .collect();
        assert_eq!(read.media_types, mimes, "{fields}");
    }
}

#[test]
fn a_caption_comes_with_its_file() {
    let caption = json!({ "caption": "see", "photo": [{ "file_id": "F" }] });
    let read = event(private(caption));
    assert_eq!(
        (&read["text"], &read["message_type"]),
        (&json!("see"), &json!("photo"))
    );
    assert_eq!(read["media_urls"], json!(["telegram://file/F/"]));
}

#[test]
fn a_file_beyond_the_limit_is_a_note_and_still_a_message() {
    let document = |size: u64, name: Option<&str>| json!({ "caption": "see", "document": { "file_id": "F", "file_size": size, "file_name": name } });
    let read = event(private(document(20 * 1024 * 1024, Some("r.pdf"))));
    assert_eq!(
        read["media_urls"],
        json!(["telegram://file/F/r.pdf"]),
        "the limit itself is fine"
    );
    let read = event(private(document(48 * 1024 * 1024, Some("report.pdf"))));
    let note = "[file report.pdf, 48 MB, is too large to download (limit 20 MB)]";
    assert_eq!(read["text"], format!("see\n{note}"));
    assert_eq!(
        (read.get("media_urls"), &read["message_type"]),
        (None, &json!("document"))
    );
    let read = event(private(document(20 * 1024 * 1024 + 1, None)));
    assert_eq!(
        read["text"],
        "see\n[file, 21 MB, is too large to download (limit 20 MB)]"
    );
    let video = json!({ "video": { "file_id": "F", "file_size": 30_000_000 } });
    assert_eq!(
        event(private(video))["text"],
        "[video, 29 MB, is too large to download (limit 20 MB)]"
    );
    // The largest size that fits.
    let sizes = json!([{ "file_id": "a", "file_size": 5 }, { "file_id": "b", "file_size": 99_000_000 }]);
    assert_eq!(
        event(private(json!({ "photo": sizes })))["media_urls"],
        json!(["telegram://file/a/"])
    );
}

#[test]
fn a_file_without_a_usable_id_is_a_note() {
    for id in [
        json!(""),
        json!(null),
        json!(5),
        json!("a b"),
        json!("x".repeat(600)),
    ] {
        let read = event(private(
            json!({ "document": { "file_id": id, "file_name": "x" } }),
        ));
        assert_eq!(read["text"], "[file that cannot be downloaded]", "{id}");
        assert_eq!(read.get("media_urls"), None);
    }
    let read = event(private(json!({ "photo": [] })));
    assert_eq!(read["text"], "[photo that cannot be downloaded]");
}

#[test]
fn links_are_followed_by_their_address() {
    let mut linked = marked(
        "😀 read this and that",
        &[("text_link", "this"), ("text_link", "that")],
    );
    linked["entities"][0]["url"] = json!("https://a.example/");
    linked["entities"][1]["url"] = json!("https://b.example/\u{202e}\n");
    assert_eq!(
        event(private(linked))["text"],
        "😀 read this (https://a.example/) and that (https://b.example/)"
    );
    let mut plain = marked("see https://a.example", &[("text_link", "https://a.example")]);
    plain["entities"][0]["url"] = json!("https://a.example/");
    assert_eq!(
        event(private(plain))["text"],
        "see https://a.example",
        "what is shown is not repeated"
    );
}

#[test]
fn a_reply_has_the_quote_before_the_text_before_the_content() {
    let replied = |fields: Value| private(with(json!({ "message_id": 5 }), fields));
    let ours = json!({ "id": OUR_ID, "is_bot": true, "first_name": "Our Bot" });
    #[rustfmt::skip]
    let table = [
        (json!({ "reply_to_message": replied(json!({ "text": "old" })) }), Some("5"), Some("old"), "Ann Lee", false),
        (json!({ "reply_to_message": replied(json!({ "text": "old" })), "quote": { "text": "ol", "position": 0 } }),
            Some("5"), Some("ol"), "Ann Lee", false),
        (json!({ "reply_to_message": replied(json!({ "text": "said", "from": ours })) }),
            Some("5"), Some("said"), "Our Bot", true),
        (json!({ "reply_to_message": replied(json!({ "caption": "cap", "photo": [{ "file_id": "F" }] })) }),
            Some("5"), Some("cap"), "Ann Lee", false),
        (json!({ "reply_to_message": replied(json!({ "photo": [{ "file_id": "F" }] })) }),
            Some("5"), Some("[photo]"), "Ann Lee", false),
        (json!({ "reply_to_message": replied(json!({ "rich_message": { "blocks": [{ "type": "paragraph", "text": "R" }] } })) }),
            Some("5"), Some("R"), "Ann Lee", false),
        (json!({ "reply_to_message": replied(json!({})) }), Some("5"), None, "Ann Lee", false),
        (json!({ "external_reply": { "origin": { "type": "hidden_user", "sender_user_name": "Bo" } },
                 "quote": { "text": "there" } }), None, Some("there"), "Bo", false),
        (json!({ "external_reply": { "origin": { "type": "channel", "chat": { "id": -1, "title": "News" } },
                 "document": { "file_id": "F" } } }), None, Some("[document]"), "News", false),
    ];
    for (fields, id, text, author, is_own) in table {
        let read = decoded(private(with(json!({ "text": "x" }), fields.clone())));
        let seen = |field: &Option<crate::wire::Scalar>| field.as_ref().map(|text| text.as_str().to_owned());
        assert_eq!(seen(&read.reply_to_message_id).as_deref(), id, "{fields}");
        assert_eq!(seen(&read.reply_to_text).as_deref(), text, "{fields}");
        assert_eq!(
            seen(&read.reply_to_author_name).as_deref(),
            Some(author),
            "{fields}"
        );
        assert_eq!(read.reply_to_is_own_message, is_own, "{fields}");
    }
}

#[test]
fn what_is_forwarded_is_marked_as_somebody_else_s() {
    let origins = [
        (
            json!({ "type": "user", "sender_user": { "id": 5, "first_name": "Bo" } }),
            "[forwarded from Bo]",
        ),
        (
            json!({ "type": "hidden_user", "sender_user_name": "Hid\nden" }),
            "[forwarded from Hid den]",
        ),
        (
            json!({ "type": "chat", "sender_chat": { "id": -5, "title": "Team" } }),
            "[forwarded from Team]",
        ),
        (
            json!({ "type": "channel", "chat": { "id": -6, "title": "News" } }),
            "[forwarded from News]",
        ),
        (json!({ "type": "new" }), "[forwarded]"),
    ];
    for (origin, header) in origins {
        let fields = with(
            marked("/stop now\nplease", &[("bot_command", "/stop")]),
            json!({ "forward_origin": origin }),
        );
        let read = event(private(fields));
        assert_eq!(read["text"], format!("{header}\n> /stop now\n> please"));
        assert_eq!(read["message_type"], "text", "nobody typed the command");
    }
}

#[test]
fn rich_blocks_become_lines_of_text() {
    let bold = json!({ "type": "bold", "text": ["b", { "type": "italic", "text": "i" }] });
    let rich = json!({ "rich_message": { "blocks": [
        { "type": "heading", "size": 1, "text": "Title" },
        { "type": "paragraph", "text": ["one ", bold, " two"] },
        { "type": "list", "items": [{ "label": "1.", "blocks": [{ "type": "paragraph", "text": "item" }] }] },
        { "type": "table", "cells": [[{ "text": "a" }, { "text": "b" }], [{ "text": "c" }]] },
        { "type": "details", "summary": "More", "blocks": [{ "type": "pre", "text": "code" }] },
        { "type": "divider" },
    ] } });
    assert_eq!(
        event(private(rich))["text"],
        "Title\none bi two\n1.\nitem\na | b\nc\nMore\ncode"
    );
}

#[test]
fn the_descriptor_says_what_a_direct_bot_can_do() {
    let plain = descriptor(false);
    assert_eq!(
        (plain.platform.as_str(), plain.label.as_str()),
        ("telegram", "Telegram")
    );
    assert_eq!(
        (plain.max_message_length, plain.len_unit.as_str()),
        (4096, "utf16")
    );
    assert!(plain.supports_edit && plain.supports_threads && plain.supports_code_blocks() && !plain.pii_safe);
    assert!(!plain.supports_op("draft") && descriptor(true).supports_op("draft"));
    for op in [
        "send",
        "edit",
        "typing",
        "delete",
        "send_media",
        "prompt",
        "react",
        "thread_create",
        "get_chat_info",
    ] {
        assert!(plain.supports_op(op), "{op}");
    }
    let written = serde_json::to_value(&plain).unwrap();
    assert_eq!(
        crate::wire::CapabilityDescriptor::from_value(&written).unwrap(),
        plain
    );
}

#[test]
fn get_me_is_read_leniently() {
    let read = Bot::from_value(&json!({
        "id": "5", "username": "A_bot", "can_read_all_group_messages": true, "has_topics_enabled": true,
    }))
    .unwrap();
    assert_eq!((read.id, read.name.as_str()), (5, "A_bot"));
    assert!(read.reads_all_group_messages && read.has_topics);
    assert!(read.is_named("@a_BOT") && read.is_named("a_bot") && !read.is_named("a_bot2"));
    let nameless = Bot::from_value(&json!({ "id": 5, "first_name": "N" })).unwrap();
    assert!(!nameless.is_named("") && !nameless.is_named("@") && !nameless.reads_all_group_messages);
    for wrong in [
        json!({}),
        json!(null),
        json!([1]),
        json!({ "id": 0 }),
        json!({ "id": -5, "username": "x" }),
    ] {
        assert_eq!(Bot::from_value(&wrong), None);
    }
}
