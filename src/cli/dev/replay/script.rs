//! A recording as something to do and something to compare with. Only reads; says and waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::dev::{Direction, Trace, Traced};

/// Characters of a text that are shown.
const SHOWN: usize = 160;

/// One thing to say to the relay.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// A message, and whether it waits to be acknowledged.
    Event(Value, bool),
    /// A forwarded request, and the same.
    Forward(Value, bool),
    /// A stop.
    Interrupt { session: String, chat: String },
    /// Something that is no frame.
    Raw(String),
}

/// What the recording says to the relay. A delivery that was repeated under its own name is said once.
pub(super) fn steps(trace: &Trace) -> Vec<(Duration, Step)> {
    let mut delivered = BTreeSet::new();
    let mut steps = Vec::new();
    for line in &trace.lines {
        if line.direction != Direction::ToGateway {
            continue;
        }
        let step = match &line.said {
            Traced::Raw(raw) => Some(Step::Raw(raw.clone())),
            Traced::Frame(frame) => {
                let buffer = frame.get("bufferId").map(Value::to_string);
                let repeated = buffer.as_ref().is_some_and(|id| !delivered.insert(id.clone()));
                let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
                match frame["type"].as_str() {
                    _ if repeated => None,
                    Some("inbound") if frame["event"].is_object() => {
                        Some(Step::Event(frame["event"].clone(), buffer.is_some()))
                    }
                    Some("passthrough_forward") => {
                        Some(Step::Forward(frame["forward"].clone(), buffer.is_some()))
                    }
                    Some("interrupt_inbound") => Some(Step::Interrupt {
                        session: text("session_key"),
                        chat: text("chat_id"),
                    }),
                    Some("descriptor" | "outbound_result" | "going_idle_ack") => None,
                    _ => Some(Step::Raw(format!("{frame}\n"))),
                }
            }
        };
        steps.extend(step.map(|step| (line.at, step)));
    }
    steps
}

/// The platforms that said hello; the recording's own when none did.
pub(super) fn platforms(trace: &Trace) -> Vec<String> {
    let mut platforms: Vec<String> = Vec::new();
    for line in &trace.lines {
        if let Traced::Frame(frame) = &line.said
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

/// The descriptors that were given, by platform.
pub(super) fn descriptors(trace: &Trace) -> BTreeMap<String, Value> {
    let given = trace.lines.iter().filter_map(|line| match &line.said {
        Traced::Frame(frame) if frame["type"] == "descriptor" => Some(&frame["descriptor"]),
        _ => None,
    });
    given
        .filter_map(|descriptor| Some((descriptor["platform"].as_str()?.to_owned(), descriptor.clone())))
        .collect()
}

/// The ids of the questions that were asked, in order.
pub(super) fn prompts_in<'a>(frames: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let asked = frames.filter(|frame| frame["action"]["op"] == "prompt");
    asked
        .filter_map(|frame| Some(frame["action"]["prompt_id"].as_str()?.to_owned()))
        .collect()
}

/// The question that an event or a forwarded request answers.
pub(super) fn prompt_of(said: &Value) -> Option<String> {
    if let Some(id) = said["prompt_response"]["prompt_id"].as_str() {
        return Some(id.to_owned());
    }
    let body = STANDARD.decode(said["bodyB64"].as_str()?).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let token = body["data"]["custom_id"].as_str()?.strip_prefix("hp1:")?;
    Some(token.split_once(':')?.0.to_owned())
}

/// The same with another question's id.
pub(super) fn with_prompt(mut said: Value, then: &str, now: &str) -> Value {
    if said["prompt_response"].is_object() {
        said["prompt_response"]["prompt_id"] = now.into();
    } else if let Some(body) = said["bodyB64"]
        .as_str()
        .and_then(|body| STANDARD.decode(body).ok())
    {
        let body = String::from_utf8_lossy(&body).replace(&format!("hp1:{then}:"), &format!("hp1:{now}:"));
        said["bodyB64"] = STANDARD.encode(body).into();
    }
    said
}

/// A message in a line.
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

/// A text in a line.
pub(super) fn short(text: &str) -> String {
    let flat = text.replace('\n', " ");
    let mut shown: String = flat.chars().take(SHOWN).collect();
    if shown.len() < flat.len() {
        shown.push('…');
    }
    shown
}

/// What was said to people, with every edit, in the order that it was first said.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Which message each answers, and its text.
    said: Vec<(Option<String>, String)>,
}

impl Answers {
    /// Follows the ops and their results through the frames of both directions.
    pub(super) fn of<'a>(frames: impl Iterator<Item = &'a Value>) -> Self {
        let mut asked: BTreeMap<String, &Value> = BTreeMap::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut answers = Self::default();
        for frame in frames {
            let Some(request) = frame["requestId"].as_str() else {
                continue;
            };
            if frame["type"] == "outbound" {
                asked.insert(request.to_owned(), &frame["action"]);
                continue;
            }
            let Some(action) = asked.remove(request) else {
                continue;
            };
            if frame["result"]["success"] != true {
                continue;
            }
            let content = action["content"].as_str().unwrap_or_default().to_owned();
            match action["op"].as_str() {
                Some("edit") => {
                    let place = action["message_id"].as_str().and_then(|id| places.get(id));
                    if let Some(place) = place {
                        answers.said[*place].1 = content;
                    }
                }
                Some("draft") if action["final"] != true => {}
                Some("send" | "draft" | "prompt" | "send_media" | "follow_up") => {
                    let anchor = [&action["reply_to"], &action["metadata"]["reply_to_message_id"]];
                    let anchor = anchor
                        .iter()
                        .find_map(|anchor| anchor.as_str().map(str::to_owned));
                    if let Some(id) = frame["result"]["message_id"].as_str() {
                        places.insert(id.to_owned(), answers.said.len());
                    }
                    answers.said.push((anchor, content));
                }
                _ => {}
            }
        }
        answers
    }

    pub(super) fn len(&self) -> usize {
        self.said.len()
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.said.iter().map(|(_, text)| text.as_str())
    }

    /// What is there and not in the other, both ways round; the order between chats does not count.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let mut left: Vec<_> = now.said.iter().collect();
        let mut out = Vec::new();
        for said in &self.said {
            match left.iter().position(|other| *other == said) {
                Some(index) => drop(left.remove(index)),
                None => out.push(format!("only then: {}", short(&said.1))),
            }
        }
        out.extend(
            left.into_iter()
                .map(|said| format!("only now:  {}", short(&said.1))),
        );
        out
    }
}

#[cfg(test)]
mod tests;
