//! A recording as a list of steps to send and replies to compare.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::dev::{Direction, Trace, Traced};

/// Maximum length of a text that is shown, in characters.
const MAX_SHOWN: usize = 160;

/// Something to send to the relay.
#[derive(Debug, PartialEq)]
pub(super) enum ReplayStep {
    /// A message, and whether it must be acknowledged.
    Event(Value, bool),
    /// A forwarded request, and whether it must be acknowledged.
    Forward(Value, bool),
    /// An interrupt.
    Interrupt { session: String, chat: String },
    /// An invalid frame.
    Raw(String),
}

/// The steps of a recording. A repeated delivery is sent once.
pub(super) fn steps(trace: &Trace) -> Vec<(Duration, ReplayStep)> {
    let mut delivered = BTreeSet::new();
    let mut steps = Vec::new();
    for line in &trace.lines {
        if line.direction != Direction::ToGateway {
            continue;
        }
        let step = match &line.content {
            Traced::Raw(raw) => Some(ReplayStep::Raw(raw.clone())),
            Traced::Frame(frame) => {
                let buffer = frame.get("bufferId").map(Value::to_string);
                let repeated = buffer.as_ref().is_some_and(|id| !delivered.insert(id.clone()));
                let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
                match frame["type"].as_str() {
                    _ if repeated => None,
                    Some("inbound") if frame["event"].is_object() => {
                        Some(ReplayStep::Event(frame["event"].clone(), buffer.is_some()))
                    }
                    Some("passthrough_forward") => {
                        Some(ReplayStep::Forward(frame["forward"].clone(), buffer.is_some()))
                    }
                    Some("interrupt_inbound") => Some(ReplayStep::Interrupt {
                        session: text("session_key"),
                        chat: text("chat_id"),
                    }),
                    Some("descriptor" | "outbound_result" | "going_idle_ack") => None,
                    _ => Some(ReplayStep::Raw(format!("{frame}\n"))),
                }
            }
        };
        steps.extend(step.map(|step| (line.at, step)));
    }
    steps
}

/// The platforms of the hellos; without any, the recording's own.
pub(super) fn platforms(trace: &Trace) -> Vec<String> {
    let mut platforms: Vec<String> = Vec::new();
    for line in &trace.lines {
        if let Traced::Frame(frame) = &line.content
            && line.direction == Direction::FromGateway
            && frame["type"] == "hello"
            && let Some(platform) = frame["platform"].as_str()
            && !platforms.iter().any(|known| known == platform)
        {
            platforms.push(platform.to_owned());
        }
    }
    if platforms.is_empty() {
        platforms.push(trace.platform.clone());
    }
    platforms
}

/// The recorded descriptors, by platform.
pub(super) fn descriptors(trace: &Trace) -> BTreeMap<String, Value> {
    let recorded = trace.lines.iter().filter_map(|line| match &line.content {
        Traced::Frame(frame) if frame["type"] == "descriptor" => Some(&frame["descriptor"]),
        _ => None,
    });
    recorded
        .filter_map(|descriptor| Some((descriptor["platform"].as_str()?.to_owned(), descriptor.clone())))
        .collect()
}

/// The ids of all prompts, in order.
pub(super) fn prompts_in<'a>(frames: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let prompts = frames.filter(|frame| frame["action"]["op"] == "prompt");
    prompts
        .filter_map(|frame| Some(frame["action"]["prompt_id"].as_str()?.to_owned()))
        .collect()
}

/// The prompt that an event or a forwarded request answers.
pub(super) fn prompt_of(message: &Value) -> Option<String> {
    if let Some(id) = message["prompt_response"]["prompt_id"].as_str() {
        return Some(id.to_owned());
    }
    let body = STANDARD.decode(message["bodyB64"].as_str()?).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let token = body["data"]["custom_id"].as_str()?.strip_prefix("hp1:")?;
    Some(token.split_once(':')?.0.to_owned())
}

/// The message with another prompt's id.
pub(super) fn with_prompt(mut message: Value, old: &str, new: &str) -> Value {
    if message["prompt_response"].is_object() {
        message["prompt_response"]["prompt_id"] = new.into();
    } else if let Some(body) = message["bodyB64"]
        .as_str()
        .and_then(|body| STANDARD.decode(body).ok())
    {
        let body = String::from_utf8_lossy(&body).replace(&format!("hp1:{old}:"), &format!("hp1:{new}:"));
        message["bodyB64"] = STANDARD.encode(body).into();
    }
    message
}

/// A message on one line.
pub(super) fn line(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let source = &event["source"];
    format!(
        "{} {}: {}",
        text(&source["chat_id"]),
        text(&source["user_name"]),
        short(event["text"].as_str().unwrap_or_default())
    )
}

/// A text on one line.
pub(super) fn short(text: &str) -> String {
    let flat = text.replace('\n', " ");
    let mut shown: String = flat.chars().take(MAX_SHOWN).collect();
    if shown.len() < flat.len() {
        shown.push('…');
    }
    shown
}

/// Replies with all edits applied, in the order of their first message.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// The message that each replies to, and its text.
    list: Vec<(Option<String>, String)>,
}

impl Replies {
    /// Collects the ops and their results from the frames of both directions.
    pub(super) fn from_frames<'a>(frames: impl Iterator<Item = &'a Value>) -> Self {
        let mut pending: BTreeMap<String, &Value> = BTreeMap::new();
        let mut indexes: BTreeMap<String, usize> = BTreeMap::new();
        let mut replies = Self::default();
        for frame in frames {
            let Some(request) = frame["requestId"].as_str() else {
                continue;
            };
            if frame["type"] == "outbound" {
                pending.insert(request.to_owned(), &frame["action"]);
                continue;
            }
            let Some(action) = pending.remove(request) else {
                continue;
            };
            if frame["result"]["success"] != true {
                continue;
            }
            let content = action["content"].as_str().unwrap_or_default().to_owned();
            match action["op"].as_str() {
                Some("edit") => {
                    let index = action["message_id"].as_str().and_then(|id| indexes.get(id));
                    if let Some(index) = index {
                        replies.list[*index].1 = content;
                    }
                }
                Some("draft") if action["final"] != true => {}
                Some("send" | "draft" | "prompt" | "send_media" | "follow_up") => {
                    let anchor = [&action["reply_to"], &action["metadata"]["reply_to_message_id"]];
                    let anchor = anchor
                        .iter()
                        .find_map(|anchor| anchor.as_str().map(str::to_owned));
                    if let Some(id) = frame["result"]["message_id"].as_str() {
                        indexes.insert(id.to_owned(), replies.list.len());
                    }
                    replies.list.push((anchor, content));
                }
                _ => {}
            }
        }
        replies
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|(_, text)| text.as_str())
    }

    /// Replies that only one of both has; their order does not count.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let mut left: Vec<_> = now.list.iter().collect();
        let mut out = Vec::new();
        for reply in &self.list {
            match left.iter().position(|other| *other == reply) {
                Some(index) => drop(left.remove(index)),
                None => out.push(format!("only recorded: {}", short(&reply.1))),
            }
        }
        out.extend(
            left.into_iter()
                .map(|reply| format!("only now:      {}", short(&reply.1))),
        );
        out
    }
}

#[cfg(test)]
mod tests;
