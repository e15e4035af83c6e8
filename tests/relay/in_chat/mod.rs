//! What people meet in a chat: long turns, quiet hours, reminders, edited messages, languages.

mod edits;
mod group_threads;
mod language;
mod long_turns;
mod quiet_hours;
mod tables;

use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::config::Settings;
use hermes_relay::relay::SeenOp;
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::Value;

/// A platform with these ops, on which messages can be edited.
fn platform(ops: &[&str]) -> CapabilityDescriptor {
    CapabilityDescriptor {
        supports_edit: true,
        supported_ops: ops.iter().map(|&op| op.to_owned()).collect(),
        ..CapabilityDescriptor::placeholder("discord")
    }
}

/// Nothing but answers is said, each as one message.
fn terse(settings: &mut Settings) {
    settings.streaming.mode = StreamMode::Off;
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
}

/// Whether an op says whether it rings.
fn notify(op: &SeenOp) -> &Value {
    &op.action["metadata"]["notify"]
}

/// The text of an op.
fn text(op: &SeenOp) -> &str {
    op.text().unwrap_or_default()
}
