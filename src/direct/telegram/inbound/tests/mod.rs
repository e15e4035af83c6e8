//! Tables of updates and the events that they become, random walks, hostile input.

mod albums;
mod groups;
mod hostile;
mod messages;
mod offsets;
mod updates;
mod walk;

use serde_json::{Value, json};

use super::*;
use crate::direct::telegram::{Bot, PressedButton, TopicNames, descriptor};
use crate::wire::{ConnectorFrame, MessageEvent};

const OUR_ID: i64 = 4242;

fn bot() -> Bot {
    Bot::from_value(&json!({ "id": OUR_ID, "is_bot": true, "first_name": "Our Bot", "username": "OurBot" }))
        .unwrap()
}

/// Opens what [`sealed`] made.
fn open(data: &str) -> Option<PressedButton> {
    let (prompt, option) = data.strip_prefix("ok:")?.split_once(':')?;
    Some(PressedButton {
        prompt_id: prompt.to_owned(),
        option_id: option.to_owned(),
    })
}

fn sealed(prompt: &str, option: &str) -> String {
    format!("ok:{prompt}:{option}")
}

/// Reads a batch with these rules.
fn read_with(relevance: &Relevance, topics: &mut TopicNames, updates: &Value) -> Vec<Incoming> {
    let mut reader = BatchReader {
        bot: &bot(),
        relevance,
        open_callback: &open,
        topics,
        recent: &mut RecentInTopics::new(0),
        taken: &mut TakenMessages::default(),
    };
    read_batch(updates, &mut reader)
}

/// Reads a batch with the default rules.
fn read(updates: &Value) -> Vec<Incoming> {
    read_with(&Relevance::default(), &mut TopicNames::new(), updates)
}

/// What one update means.
fn meaning(update: Value) -> UpdateMeaning {
    let mut update = update;
    update["update_id"] = json!(1);
    let mut incoming = read(&json!([update]));
    assert_eq!(incoming.len(), 1);
    incoming.remove(0).meaning
}

/// Fields on top of a message in a private chat.
fn private(fields: Value) -> Value {
    let base = json!({
        "message_id": 10, "date": 1_790_000_000,
        "chat": { "id": 77, "type": "private", "first_name": "Ann", "last_name": "Lee", "username": "ann" },
        "from": { "id": 77, "is_bot": false, "first_name": "Ann", "last_name": "Lee", "username": "ann" },
    });
    with(base, fields)
}

/// Fields on top of a message in a supergroup.
fn group(fields: Value) -> Value {
    let base = json!({
        "message_id": 10, "date": 1_790_000_000,
        "chat": { "id": -1001, "type": "supergroup", "title": "Team" },
        "from": { "id": 77, "is_bot": false, "first_name": "Ann" },
    });
    with(base, fields)
}

/// Fields on top of a message in a topic of a forum.
fn forum(fields: Value) -> Value {
    let base = json!({
        "chat": { "id": -1001, "type": "supergroup", "title": "Team", "is_forum": true },
        "message_thread_id": 9, "is_topic_message": true,
    });
    group(with(base, fields))
}

fn with(mut base: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else {
        panic!("fields are an object")
    };
    for (key, value) in fields {
        base[key] = value;
    }
    base
}

fn message(message: Value) -> UpdateMeaning {
    let mut update = json!({});
    update["message"] = message;
    meaning(update)
}

/// The event of a message that is for the agent.
#[track_caller]
fn event(of: Value) -> Value {
    match message(of) {
        UpdateMeaning::Message(message) => message.event,
        other => panic!("no message: {other:?}"),
    }
}

/// The same, as the relay reads it.
#[track_caller]
fn decoded(of: Value) -> MessageEvent {
    let line = json!({ "type": "inbound", "event": event(of), "bufferId": "1" }).to_string();
    match ConnectorFrame::decode(line.as_bytes()) {
        Ok(ConnectorFrame::Inbound { event, .. }) => *event,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn ignored(of: Value) -> &'static str {
    match message(of) {
        UpdateMeaning::Ignored(why) => why,
        other => panic!("not ignored: {other:?}"),
    }
}

/// The entity of this type around the first `part` of the text, counted in UTF-16 units.
fn entity(kind: &str, text: &str, part: &str) -> Value {
    let at = text.find(part).unwrap();
    let units = |text: &str| text.encode_utf16().count();
    json!({ "type": kind, "offset": units(&text[..at]), "length": units(part) })
}

/// A text with entities of these types around these parts.
fn marked(text: &str, entities: &[(&str, &str)]) -> Value {
    let entities: Vec<Value> = entities
        .iter()
        .map(|(kind, part)| entity(kind, text, part))
        .collect();
    json!({ "text": text, "entities": entities })
}

/// A small seeded generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}
