//! Reply streams on a simulated clock, against exact ops and against a simulated chat.

mod failures;
mod hold;
mod indicators;
mod showing;
mod slack;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    FinalOps, OpOutcome, Priority, ReplyStream, StepState, StreamMode, StreamSettings, StreamTarget,
    ToolLine, TurnResult, left_indicators,
};
use crate::adapter::action_builder::ActionBuilder;
use crate::adapter::{Chat, ChatFacts, ChatId, RelayAdapter, SlackConfig};
use crate::wire::{Action, CapabilityDescriptor, OpId, OpIds};

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

/// Settings without indicators.
fn bare() -> StreamSettings {
    StreamSettings {
        typing: false,
        reactions: false,
        tool_progress: false,
        first_hold_ms: 0,
        ..StreamSettings::default()
    }
}

fn target(descriptor: CapabilityDescriptor) -> StreamTarget {
    StreamTarget {
        chat: Arc::new(Chat {
            id: ChatId {
                platform: descriptor.platform.as_str().into(),
                chat: "c".into(),
            },
            facts: ChatFacts {
                scope_id: Some("s".into()),
                user_id: Some("u".into()),
                message_id: Some("m0".into()),
                ..ChatFacts::default()
            },
        }),
        session: "agent:main:x".into(),
        descriptor: Some(Arc::new(descriptor)),
        follow_up: None,
    }
}

fn builder(settings: &StreamSettings, slack: SlackConfig, target: &StreamTarget) -> ActionBuilder {
    let (platform, settings) = (&target.chat.id.platform, Arc::new(settings.clone()));
    let descriptor = target.descriptor.clone();
    let adapter = RelayAdapter::with_slack(platform, None, descriptor, settings, Arc::new(slack));
    adapter.builder(Arc::clone(&target.chat))
}

fn tool(id: &str, title: &str, state: StepState) -> ToolLine {
    ToolLine {
        id: id.into(),
        title: title.into(),
        state,
    }
}

fn applied(id: &str) -> OpOutcome {
    OpOutcome::Applied {
        message_id: Some(id.into()),
    }
}

/// A turn on a clock that moves only when it is set.
struct Scene {
    stream: ReplyStream,
    now: Duration,
    out: Vec<(OpId, Priority)>,
}

impl Scene {
    fn new(settings: StreamSettings, target: StreamTarget) -> Self {
        Self::with_slack(settings, SlackConfig::default(), target)
    }

    fn with_slack(settings: StreamSettings, slack: SlackConfig, target: StreamTarget) -> Self {
        let builder = builder(&settings, slack, &target);
        let (settings, ids) = (Arc::new(settings), OpIds::new(1));
        Self {
            stream: ReplyStream::new(settings, builder, target, 7, ids, Duration::ZERO),
            now: Duration::ZERO,
            out: Vec::new(),
        }
    }

    fn on(platform: &str) -> Self {
        Self::new(bare(), target(descriptor(platform)))
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.now += Duration::from_millis(ms);
        self
    }

    fn push_text(&mut self, text: &str) -> &mut Self {
        self.stream.push_text(text, self.now);
        self
    }

    fn tool(&mut self, id: &str) -> &mut Self {
        self.stream.tool(&tool(id, id, StepState::Running), self.now);
        self
    }

    fn break_message(&mut self) -> &mut Self {
        self.stream.break_message(self.now);
        self
    }

    /// The one op that is due now.
    #[track_caller]
    fn op(&mut self) -> Value {
        let op = self.stream.poll(self.now).expect("an op is due");
        self.out.push((op.id, op.priority));
        serde_json::to_value(&op.action).unwrap()
    }

    #[track_caller]
    fn quiet(&mut self) -> &mut Self {
        let op = self.stream.poll(self.now);
        assert!(op.is_none(), "{op:?}");
        if let Some(next) = self.stream.poll_timeout() {
            assert!(next > self.now, "{next:?} is not after {:?}", self.now);
        }
        self
    }

    /// Settles the oldest op that is out.
    #[track_caller]
    fn settle(&mut self, outcome: &OpOutcome) -> &mut Self {
        let (id, _) = self.out.remove(0);
        self.stream.op_finished(id, outcome, self.now);
        self
    }

    fn finish(mut self) -> FinalOps {
        self.stream.finish(TurnResult::Done, self.now)
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

/// The durable ops, each with its fallback.
fn durable(final_ops: &FinalOps) -> Vec<(Value, Vec<Value>)> {
    let durable = final_ops.durable.iter();
    durable
        .map(|durable| {
            (
                values(std::slice::from_ref(&durable.action)).remove(0),
                values(&durable.fallback),
            )
        })
        .collect()
}
