//! Speech on a made-up clock, against exact ops and against a made-up chat.

mod decoration;
mod failures;
mod showing;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Ending, Farewell, Fate, Place, Speech, SpeechSettings, StepState, Ticket, ToolLine, Weight};
use crate::adapter::{ChatFacts, ChatId};
use crate::wire::{Action, CapabilityDescriptor};

/// A platform's descriptor, as its connectors declare it.
fn descriptor(platform: &str) -> CapabilityDescriptor {
    let ops = |ops: &[&str]| ops.iter().map(|op| (*op).to_owned()).collect();
    let mut descriptor = CapabilityDescriptor::placeholder(platform);
    match platform {
        "discord" => {
            descriptor.max_message_length = 2000;
            descriptor.supported_ops = ops(&["send", "edit", "typing", "react", "follow_up"]);
        }
        "telegram" => {
            descriptor.len_unit = "utf16".to_owned();
            descriptor.supports_draft_streaming = true;
            descriptor.supported_ops = ops(&["send", "edit", "typing", "react", "draft"]);
        }
        "slack" => {
            descriptor.max_message_length = 12_000;
            descriptor.supports_draft_streaming = true;
            descriptor.supports_block_formatting = true;
            descriptor.supported_ops = ops(&["send", "edit", "typing", "react", "draft"]);
        }
        "whatsapp" => {
            descriptor.supports_edit = false;
            descriptor.supported_ops = ops(&["send", "typing", "react"]);
        }
        // One that declares nothing but its flags.
        _ => {}
    }
    descriptor
}

/// Settings that leave decoration out.
fn bare() -> SpeechSettings {
    SpeechSettings {
        typing: false,
        reactions: false,
        tool_progress: false,
        ..SpeechSettings::default()
    }
}

fn place(descriptor: CapabilityDescriptor) -> Place {
    Place {
        chat: Arc::new(ChatId {
            platform: descriptor.platform.clone(),
            chat: "c".into(),
        }),
        facts: Arc::new(ChatFacts {
            scope_id: Some("s".into()),
            user_id: Some("u".into()),
            message_id: Some("m0".into()),
            ..ChatFacts::default()
        }),
        session: "agent:main:x".into(),
        descriptor: Some(Arc::new(descriptor)),
        follow_up: None,
    }
}

fn tool(id: &str, title: &str, state: StepState) -> ToolLine {
    ToolLine {
        id: id.into(),
        title: title.into(),
        state,
    }
}

fn applied(id: &str) -> Fate {
    Fate::Applied {
        message_id: Some(id.into()),
    }
}

/// A turn on a clock that moves only when told.
struct Scene {
    speech: Speech,
    now: Duration,
    out: Vec<(Ticket, Weight)>,
}

impl Scene {
    fn new(settings: SpeechSettings, place: Place) -> Self {
        Self {
            speech: Speech::new(Arc::new(settings), place, 7, Duration::ZERO),
            now: Duration::ZERO,
            out: Vec::new(),
        }
    }

    fn on(platform: &str) -> Self {
        Self::new(bare(), place(descriptor(platform)))
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.now += Duration::from_millis(ms);
        self
    }

    fn say(&mut self, text: &str) -> &mut Self {
        self.speech.say(text, self.now);
        self
    }

    fn tool(&mut self, id: &str) -> &mut Self {
        self.speech.tool(&tool(id, id, StepState::Running), self.now);
        self
    }

    fn break_off(&mut self) -> &mut Self {
        self.speech.break_off(self.now);
        self
    }

    /// The one op that is due now.
    #[track_caller]
    fn op(&mut self) -> Value {
        let utterance = self.speech.poll(self.now).expect("an op is due");
        self.out.push((utterance.ticket, utterance.weight));
        serde_json::to_value(&utterance.action).unwrap()
    }

    #[track_caller]
    fn quiet(&mut self) -> &mut Self {
        let utterance = self.speech.poll(self.now);
        assert!(utterance.is_none(), "{utterance:?}");
        if let Some(next) = self.speech.poll_timeout() {
            assert!(next > self.now, "{next:?} is not after {:?}", self.now);
        }
        self
    }

    /// Settles the oldest op that is out.
    #[track_caller]
    fn settle(&mut self, fate: &Fate) -> &mut Self {
        let (ticket, _) = self.out.remove(0);
        self.speech.settled(ticket, fate, self.now);
        self
    }

    fn finish(self) -> Farewell {
        self.speech.finish(Ending::Done, self.now)
    }
}

/// What a text op is tagged with, and `more`.
fn tags(more: Value) -> Value {
    let mut tags = json!({"scope_id": "s", "user_id": "u"});
    let Value::Object(more) = more else { panic!() };
    tags.as_object_mut().unwrap().extend(more);
    tags
}

fn send(content: &str, more: Value) -> Value {
    json!({"op": "send", "chat_id": "c", "content": content, "reply_to": "m0", "metadata": tags(more)})
}

fn edit(id: &str, content: &str, more: Value) -> Value {
    json!({"op": "edit", "chat_id": "c", "message_id": id, "content": content, "metadata": tags(more)})
}

fn draft(id: u64, content: &str, sealed: bool, more: Value) -> Value {
    json!({"op": "draft", "chat_id": "c", "draft_id": id, "content": content, "final": sealed,
        "metadata": tags(more)})
}

fn growing() -> Value {
    json!({"expect_edits": true})
}

fn last() -> Value {
    json!({"notify": true})
}

fn none() -> Value {
    json!({})
}

fn values(actions: &[Action]) -> Vec<Value> {
    actions
        .iter()
        .map(|action| serde_json::to_value(action).unwrap())
        .collect()
}

/// What is owed, each with what is sent otherwise.
fn owed(farewell: &Farewell) -> Vec<(Value, Vec<Value>)> {
    let owed = farewell.owed.iter();
    owed.map(|owed| {
        (
            values(std::slice::from_ref(&owed.action)).remove(0),
            values(&owed.otherwise),
        )
    })
    .collect()
}
