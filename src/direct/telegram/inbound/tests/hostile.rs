//! Input that no server would send: nothing panics, and what is forwarded can be read.

use std::time::Duration;

use super::*;

/// A few updates that together have every field that is read.
pub(super) fn samples() -> Vec<Value> {
    let rich = json!({ "blocks": [{ "type": "table", "cells": [[{ "text": ["a", { "text": "b" }] }]] }, { "text": "x" }] });
    let mut everything = forum(marked(
        "@OurBot /new@OurBot see 😀",
        &[
            ("mention", "@OurBot"),
            ("bot_command", "/new@OurBot"),
            ("text_link", "see"),
            ("text_mention", "😀"),
        ],
    ));
    everything["entities"][2]["url"] = json!("https://a.example");
    everything["entities"][3]["user"] = json!({ "id": OUR_ID });
    vec![
        everything,
        private(json!({ "text": "x", "quote": { "text": "q" }, "rich_message": rich.clone(),
            "reply_to_message": { "message_id": 5, "from": { "id": OUR_ID }, "rich_message": rich } })),
        private(json!({ "caption": "c", "media_group_id": "g", "photo": [{ "file_id": "F", "file_size": 5 }],
            "external_reply": { "origin": { "sender_user": { "first_name": "B" } } } })),
        private(json!({ "document": { "file_id": "F", "file_name": "n", "mime_type": "image/png", "file_size": 99_000_000 } })),
        group(json!({ "sticker": { "file_id": "F", "emoji": "x" }, "sender_chat": { "id": -1001, "title": "T" },
            "forward_origin": { "chat": { "title": "N" } }, "author_signature": "s" })),
        private(json!({ "venue": { "title": "t", "location": { "latitude": 1.5, "longitude": 2 } } })),
        private(json!({ "poll": { "question": "q", "options": [{ "text": "a" }] } })),
        forum(json!({ "forum_topic_created": { "name": "n" } })),
        group(json!({ "migrate_to_chat_id": -5 })),
    ]
    .into_iter()
    .map(|message| json!({ "update_id": 5, "message": message }))
    .chain([
        json!({ "update_id": 6, "channel_post": { "message_id": 1, "chat": { "id": -5, "type": "channel" }, "text": "x" } }),
        json!({ "update_id": 7, "callback_query": { "id": "q", "from": { "id": 5 }, "data": sealed("p", "o"),
            "message": { "message_id": 5, "date": 1, "chat": { "id": 5, "type": "private" },
                "reply_markup": { "inline_keyboard": [[{ "text": "A", "callback_data": sealed("p", "o") }]] } } } }),
        json!({ "update_id": 8, "my_chat_member": { "chat": { "id": 5 }, "new_chat_member": { "status": "kicked" } } }),
        json!({ "update_id": 9, "stopped_message_generation": { "chat": { "id": 5 }, "draft_id": "7" } }),
    ])
    .collect()
}

/// Every node of a value, in a fixed order.
fn nodes(value: &mut Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter_mut().map(nodes).sum::<usize>(),
        Value::Object(fields) => fields.values_mut().map(nodes).sum(),
        _ => 0,
    }
}

fn replace(value: &mut Value, at: &mut usize, new: &Value) -> bool {
    if *at == 0 {
        *value = new.clone();
        return true;
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| replace(item, at, new)),
        Value::Object(fields) => fields.values_mut().any(|field| replace(field, at, new)),
        _ => false,
    }
}

fn junk() -> Vec<Value> {
    let deep = (0..100).fold(json!("x"), |inner, at| match at % 3 {
        0 => json!([inner]),
        1 => json!({ "text": inner, "type": "bold" }),
        _ => json!({ "blocks": inner }),
    });
    let deep_list = (0..100).fold(json!([]), |inner, _| json!([inner]));
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1.5e300),
        json!(""),
        json!("\u{202e}\0\n/x@OurBot"),
        json!("1"),
        json!("😀".repeat(200)),
        json!([]),
        json!({}),
        json!([null, 1, "x", [], {}]),
        json!({ "id": "x", "type": 5, "text": [], "file_id": {} }),
        deep_list,
        deep,
    ]
}

/// Everything that is forwarded is a frame that the relay reads, or one that it quarantines and can acknowledge.
pub(super) fn check(updates: &Value) {
    let rules = Relevance {
        require_mention: false,
        free_chats: vec!["-5".to_owned()],
        allow_bots: true,
    };
    let batch = read_with(&rules, &mut TopicNames::new(), updates);
    let mut received = ReceivedUpdates::new();
    received.begin_poll(Duration::ZERO);
    let mut forwarded = received.receive(batch, Duration::ZERO);
    forwarded.extend(received.due(Duration::from_secs(12)));
    for incoming in &forwarded {
        let is_poison = matches!(incoming.meaning, UpdateMeaning::Poison { .. });
        let Some(line) = incoming.to_line() else {
            assert!(!incoming.needs_acknowledgement());
            continue;
        };
        assert!(incoming.needs_acknowledgement() && !line.contains('\n'));
        let id = Some(incoming.update_id.to_string());
        match ConnectorFrame::decode(line.as_bytes()) {
            Ok(ConnectorFrame::Inbound { event, buffer_id }) => {
                assert_eq!((buffer_id, event.source.platform.as_str()), (id, "telegram"));
                assert!(!is_poison);
            }
            Err(refused) => assert!(is_poison && refused.buffer_id == id, "{line}"),
            other => panic!("{other:?}"),
        }
        received.acknowledge(incoming.update_id);
    }
    let offset = received.offset();
    assert!(
        offset
            .is_none_or(|offset| received.next_poll(Duration::from_secs(60)) == NextPoll::Now && offset > 0)
    );
}

#[test]
fn the_samples_themselves_are_read() {
    for sample in samples() {
        check(&json!([sample]));
        assert!(
            !matches!(read(&json!([sample]))[0].meaning, UpdateMeaning::Poison { .. }),
            "{sample}"
        );
    }
    check(&json!(samples()));
}

#[test]
fn any_field_may_be_anything() {
    for sample in samples() {
        let count = nodes(&mut sample.clone());
        for at in 0..count {
            for new in junk() {
                let mut update = sample.clone();
                replace(&mut update, &mut at.clone(), &new);
                check(&json!([update]));
            }
        }
    }
}

#[test]
fn several_fields_may_be_anything_at_once() {
    let (samples, junk) = (samples(), junk());
    let mut rng = Rng(7);
    for _ in 0..1500 {
        let mut batch = Vec::new();
        for _ in 0..=rng.below(4) {
            let mut update = samples[rng.below(samples.len())].clone();
            for _ in 0..rng.below(6) {
                let mut at = rng.below(nodes(&mut update));
                replace(&mut update, &mut at, &junk[rng.below(junk.len())]);
            }
            batch.push(update);
        }
        check(&json!(batch));
    }
}

#[test]
fn long_and_deep_input_is_read_in_no_time() {
    let started = std::time::Instant::now();
    let text = "😀@OurBot ".repeat(20_000);
    let entities: Vec<Value> = (0..20_000)
        .map(|at| json!({ "type": "text_link", "offset": at * 10, "length": 9, "url": "https://a.example" }))
        .collect();
    check(&json!([{ "update_id": 1, "message": private(json!({ "text": text, "entities": entities })) }]));
    let wide: Vec<Value> = (0..20_000)
        .map(|_| json!({ "text": ["x", { "text": "y" }] }))
        .collect();
    check(&json!([{ "update_id": 1, "message": private(json!({ "rich_message": { "blocks": wide } })) }]));
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}
