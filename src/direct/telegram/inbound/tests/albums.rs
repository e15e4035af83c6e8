//! Albums: several messages, one event.

use std::time::Duration;

use super::offsets::ms;
use super::*;

/// An item of an album in a private chat.
fn item(id: i64, album: &str, caption: &str) -> Value {
    let message = private(json!({
        "message_id": 100 + id, "media_group_id": album, "caption": caption, "photo": [{ "file_id": format!("F{id}") }],
    }));
    json!({ "update_id": id, "message": message })
}

fn text(id: i64, user: i64) -> Value {
    let message = private(json!({ "message_id": 100 + id, "text": "x", "from": { "id": user } }));
    json!({ "update_id": id, "message": message })
}

struct Polls {
    received: ReceivedUpdates,
    relevance: Relevance,
}

impl Polls {
    fn new() -> Self {
        Self {
            received: ReceivedUpdates::new(),
            relevance: Relevance::default(),
        }
    }

    /// One poll that brings these updates at once.
    fn poll(&mut self, at: Duration, updates: &[Value]) -> Vec<Incoming> {
        self.received.begin_poll(at);
        let batch = read_with(&self.relevance, &mut TopicNames::new(), &json!(updates));
        self.received.receive(batch, at)
    }
}

fn events(incoming: &[Incoming]) -> Vec<(i64, &Value)> {
    incoming
        .iter()
        .map(|one| match &one.meaning {
            UpdateMeaning::Message(message) => (one.update_id, &message.event),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn items_are_held_unconfirmed_until_no_further_one_comes() {
    let mut polls = Polls::new();
    let all = [item(5, "a", ""), item(6, "a", "see"), item(7, "a", "")];
    assert!(polls.poll(ms(0), &all[..1]).is_empty());
    assert_eq!(polls.received.offset(), Some(5));
    assert_eq!(polls.received.next_poll(ms(10)), NextPoll::At(ms(600)));
    assert_eq!(polls.received.deadline(), Some(ms(12_000)));
    assert!(polls.poll(ms(600), &all[..2]).is_empty());
    assert!(polls.poll(ms(1200), &all).is_empty());
    assert!(polls.poll(ms(1800), &all).is_empty());
    assert!(polls.received.due(ms(2390)).is_empty());
    let forwarded = polls.poll(ms(2400), &all);
    let [(id, event)] = events(&forwarded)[..] else {
        panic!("{forwarded:?}")
    };
    assert_eq!((id, &event["text"]), (5, &json!("see")));
    assert_eq!(
        event["media_urls"],
        json!([
            "telegram://file/F5/",
            "telegram://file/F6/",
            "telegram://file/F7/"
        ])
    );
    assert_eq!(event["media"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&event["message_id"], &event["source"]["message_id"]),
        (&json!("105-107"), &json!("105"))
    );
    assert_eq!(
        (polls.received.offset(), polls.received.next_poll(ms(2400))),
        (Some(5), NextPoll::Wait)
    );
    polls.received.acknowledge(5);
    assert_eq!(
        (polls.received.offset(), polls.received.deadline()),
        (Some(8), None)
    );
}

#[test]
fn an_item_a_second_later_belongs_to_it_even_if_a_poll_just_missed_it() {
    let mut polls = Polls::new();
    polls.poll(ms(0), &[item(5, "a", "")]);
    // Began at 1 s, was answered at 1.5 s, without the item that came at 1.1 s.
    polls.received.begin_poll(ms(1100));
    assert!(
        polls
            .received
            .receive(read(&json!([item(5, "a", "")])), ms(1500))
            .is_empty()
    );
    let forwarded = polls.poll(ms(1700), &[item(5, "a", ""), item(6, "a", "")]);
    assert!(forwarded.is_empty());
    let forwarded = polls.poll(ms(2900), &[item(5, "a", ""), item(6, "a", "")]);
    assert_eq!(events(&forwarded)[0].1["media_urls"].as_array().unwrap().len(), 2);
}

#[test]
fn an_answer_that_was_cut_short_closes_nothing() {
    let mut polls = Polls::new();
    let all = [item(5, "a", ""), item(6, "a", "")];
    polls.poll(ms(0), &all);
    assert!(
        polls.poll(ms(1200), &all[..1]).is_empty(),
        "polled too fast, the server sends one"
    );
    assert_eq!(polls.poll(ms(1800), &all).len(), 1);
}

#[test]
fn an_album_closes_when_its_author_writes_on_and_not_when_others_do() {
    let mut polls = Polls::new();
    let batch = [item(5, "a", ""), item(6, "a", ""), text(7, 5), text(8, 77)];
    let forwarded = polls.poll(ms(0), &batch);
    let ids: Vec<i64> = forwarded.iter().map(|one| one.update_id).collect();
    assert_eq!(ids, [7, 5, 8], "the album comes before what follows it");
    for id in [7, 5, 8] {
        polls.received.acknowledge(id);
    }
    assert_eq!(polls.received.offset(), Some(9));
    // The next album of the same person, too.
    let forwarded = polls.poll(ms(700), &[item(9, "b", ""), item(10, "c", "")]);
    assert_eq!(events(&forwarded)[0].0, 9);
}

#[test]
fn an_edit_of_another_message_does_not_end_an_album_and_one_of_its_own_does() {
    let edit = |id: i64, message_id: i64| {
        let message = private(json!({ "message_id": message_id, "text": "x" }));
        json!({ "update_id": id, "edited_message": message })
    };
    let mut polls = Polls::new();
    let all = [item(5, "a", ""), edit(6, 50), item(7, "a", "")];
    let forwarded = polls.poll(ms(0), &all);
    let ids: Vec<i64> = forwarded.iter().map(|one| one.update_id).collect();
    assert_eq!(ids, [6], "the edit passes the album");
    let forwarded = polls.poll(ms(1200), &all);
    assert_eq!(events(&forwarded)[0].1["message_id"], "105-107");
    assert_eq!(forwarded.len(), 1);
    let mut polls = Polls::new();
    let forwarded = polls.poll(ms(0), &[item(5, "a", ""), item(6, "a", ""), edit(7, 106)]);
    let ids: Vec<i64> = forwarded.iter().map(|one| one.update_id).collect();
    assert_eq!(ids, [5, 7], "the edit follows its album");
}

#[test]
fn a_late_item_is_a_message_of_its_own_and_the_cap_holds() {
    let mut polls = Polls::new();
    polls.poll(ms(0), &[item(5, "a", ""), item(6, "a", "")]);
    assert_eq!(
        polls.poll(ms(1200), &[item(5, "a", ""), item(6, "a", "")]).len(),
        1
    );
    polls.received.acknowledge(5);
    let forwarded = polls.poll(ms(5000), &[item(7, "a", "late")]);
    assert_eq!(events(&forwarded)[0].1["message_id"], "107");
    polls.received.acknowledge(7);
    // Polls fail for long.
    polls.poll(ms(60_000), &[item(8, "b", "")]);
    assert!(polls.received.due(ms(71_999)).is_empty());
    assert_eq!(polls.received.due(ms(72_000)).len(), 1);
    // After half a minute it is not known any more.
    assert!(polls.poll(ms(102_001), &[item(9, "b", "")]).is_empty());
}

#[test]
fn ten_items_close_an_album_and_too_many_albums_the_oldest() {
    let mut polls = Polls::new();
    let ten: Vec<Value> = (1..=10).map(|id| item(id, "a", "")).collect();
    let forwarded = polls.poll(ms(0), &ten);
    assert_eq!(events(&forwarded)[0].1["media"].as_array().unwrap().len(), 10);
    let mut polls = Polls::new();
    let of = |id: i64| {
        let mut item = item(id, &format!("a{id}"), "");
        item["message"]["chat"]["id"] = json!(id);
        item
    };
    let many: Vec<Value> = (1..=70).map(of).collect();
    let forwarded = polls.poll(ms(0), &many);
    let ids: Vec<i64> = forwarded.iter().map(|one| one.update_id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn captions_are_joined_once_each_and_a_command_comes_first() {
    let caption = |captions: &[&str]| {
        let mut polls = Polls::new();
        let items: Vec<Value> = captions
            .iter()
            .zip(5..)
            .map(|(caption, id)| {
                let mut item = item(id, "a", caption);
                if caption.starts_with('/') {
                    item["message"]["caption_entities"] =
                        json!([{ "type": "bot_command", "offset": 0, "length": 4 }]);
                }
                item
            })
            .collect();
        polls.poll(ms(0), &items);
        let forwarded = polls.poll(ms(1200), &items);
        let event = events(&forwarded)[0].1.clone();
        (
            event["text"].as_str().unwrap().to_owned(),
            event["message_type"].as_str().unwrap().to_owned(),
        )
    };
    let photo = |text: &str| (text.to_owned(), "photo".to_owned());
    assert_eq!(caption(&["", "", ""]), photo(""));
    assert_eq!(caption(&["", "two", ""]), photo("two"));
    assert_eq!(caption(&["one", "two", "one"]), photo("one\ntwo"));
    assert_eq!(
        caption(&["one", "/new x"]),
        ("/new x\none".to_owned(), "command".to_owned())
    );
    assert_eq!(caption(&["alone"]), photo("alone"));
}

#[test]
fn in_a_group_one_item_that_addresses_us_brings_all() {
    let of = |id: i64, album: &str, caption: &str| {
        let mut fields = json!({
            "message_id": 100 + id, "media_group_id": album, "photo": [{ "file_id": format!("F{id}") }],
            "caption": caption,
        });
        if caption.starts_with('@') {
            fields["caption_entities"] = json!([{ "type": "mention", "offset": 0, "length": 7 }]);
        }
        json!({ "update_id": id, "message": group(fields) })
    };
    let mut polls = Polls::new();
    let ours = [of(5, "a", ""), of(6, "a", "@OurBot see")];
    polls.poll(ms(0), &ours);
    let forwarded = polls.poll(ms(1200), &ours);
    let (_, event) = events(&forwarded)[0];
    assert_eq!(
        (&event["text"], &event["media_urls"]),
        (
            &json!("see"),
            &json!(["telegram://file/F5/", "telegram://file/F6/"])
        )
    );
    polls.received.acknowledge(5);
    let forwarded = polls.poll(ms(2000), &[of(7, "a", "")]);
    assert_eq!(
        events(&forwarded).len(),
        1,
        "a late item of an album that is for us"
    );
    polls.received.acknowledge(7);
    let others = [of(8, "b", "look"), of(9, "b", "")];
    polls.poll(ms(3000), &others);
    let forwarded = polls.poll(ms(4200), &others);
    assert!(matches!(
        &forwarded[..],
        [Incoming {
            meaning: UpdateMeaning::Ignored(_),
            ..
        }]
    ));
    assert_eq!(polls.received.offset(), Some(10));
    let forwarded = polls.poll(ms(5000), &[of(10, "b", ""), of(11, "b", "@OurBot and this")]);
    assert!(matches!(forwarded[0].meaning, UpdateMeaning::Ignored(_)));
    assert!(forwarded[1].needs_acknowledgement());
}

#[test]
fn a_poll_confirms_all_of_an_album_or_nothing() {
    let mut polls = Polls::new();
    let batch = [item(5, "a", ""), text(6, 5), item(7, "a", "")];
    assert_eq!(polls.poll(ms(0), &batch).len(), 1);
    assert_eq!(polls.poll(ms(1200), &batch).len(), 1);
    polls.received.acknowledge(5);
    assert_eq!(
        polls.received.offset(),
        Some(5),
        "6 is not committed, and 7 would come alone after a crash"
    );
    polls.received.acknowledge(6);
    assert_eq!(polls.received.offset(), Some(8));
}

#[test]
fn a_single_photo_is_not_held() {
    let mut polls = Polls::new();
    let photo = json!({ "update_id": 5, "message": private(json!({ "photo": [{ "file_id": "F" }] })) });
    assert_eq!(polls.poll(ms(0), &[photo]).len(), 1);
}

#[test]
fn what_was_said_before_an_album_comes_with_it_whichever_item_calls_the_bot() {
    let said = |id: i64, fields: Value| {
        let message = with(json!({ "message_id": 100 + id }), fields);
        json!({ "update_id": id, "message": group(message) })
    };
    let photo = |id: i64| json!({ "media_group_id": "a", "photo": [{ "file_id": format!("F{id}") }] });
    let called = json!({ "caption": "@OurBot see", "caption_entities": [{ "type": "mention", "offset": 0, "length": 7 }] });
    let updates = [
        said(5, json!({ "text": "look at these" })),
        said(6, photo(6)),
        said(7, with(photo(7), called)),
    ];
    let mut reader = BatchReader {
        bot: &bot(),
        relevance: &Relevance::default(),
        open_callback: &open,
        topics: &mut TopicNames::new(),
        recent: &mut RecentInTopics::new(5),
        taken: &mut TakenMessages::default(),
    };
    let mut received = ReceivedUpdates::new();
    received.begin_poll(ms(0));
    received.receive(read_batch(&json!(updates), &mut reader), ms(0));
    let forwarded = received.due(ms(60_000));
    let [(6, event)] = events(&forwarded)[..] else {
        panic!("{forwarded:?}")
    };
    assert_eq!(event["context"][0]["text"], "look at these", "{event}");
}
