//! The connector as the page shows it: what the platform can do, the link, and every frame as a row.

use serde_json::{Value, json};

use super::personas::ChatKind;
use super::{ECHO_HINTS, ECHO_MORE, Page};
use crate::dev::page::PageNews;
use crate::dev::presets::PlatformPreset;
use crate::dev::record::{Direction, RecordedFrame};
use crate::dev::state::{ConnectorState, Hub};
use crate::relay::command_names;

/// Frames that a new page is shown.
const SHOWN_FRAMES: u64 = 2_000;
/// Frames or happenings in one event.
const BATCH: usize = 400;
/// Longest text of a frame in an event, by which the page filters; the whole one is asked for.
const SHOWN_TEXT: usize = 600;
/// Ops and what people call them.
const ABILITIES: [(&str, &str); 10] = [
    ("edit", "edits"),
    ("draft", "drafts"),
    ("typing", "typing"),
    ("react", "reactions"),
    ("prompt", "buttons"),
    ("send_media", "files"),
    ("thread_create", "threads"),
    ("follow_up", "follow-ups"),
    ("delete", "deletes"),
    ("task_card", "cards"),
];

/// The frames and happenings that a page has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedCursor {
    frames: u64,
    happenings: u64,
}

impl FeedCursor {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (frames, happenings) = text.split_once('.')?;
        Some(Self {
            frames: frames.parse().ok()?,
            happenings: happenings.parse().ok()?,
        })
    }

    pub(super) fn of_new_page(state: &ConnectorState) -> Self {
        Self {
            frames: state.frames.pushed().saturating_sub(SHOWN_FRAMES),
            happenings: 0,
        }
    }

    pub(super) fn news(&mut self, state: &ConnectorState) -> PageNews {
        let frames = state.frames.since(self.frames).take(BATCH);
        let rows: Vec<Value> = frames.map(|frame| row(state, frame, SHOWN_TEXT)).collect();
        let happenings = state.feed.since(self.happenings, BATCH);
        self.frames = state.frames.begin(self.frames) + rows.len() as u64;
        self.happenings = state.feed.begin(self.happenings) + happenings.len() as u64;
        PageNews {
            id: Some(format!("{}.{}", self.frames, self.happenings)),
            rows,
            happenings,
        }
    }
}

pub(super) fn setup(hub: &Hub, page: &Page) -> Value {
    let (settings, preset) = (&page.settings, page.preset());
    let descriptor = preset.wire(&settings.platform);
    let label = descriptor["label"].as_str().unwrap_or(&settings.platform);
    let hints = settings.hints.iter();
    let hints = hints.map(|hint| json!({ "say": hint.say, "shows": hint.shows }));
    let more: &[&str] = if settings.hints == ECHO_HINTS {
        &ECHO_MORE
    } else {
        &[]
    };
    let commands = command_names().map(|(name, what)| json!({ "name": name, "what": what }));
    let personas = page.personas();
    let can = [
        ("faults", true),
        ("export", true),
        ("interactions", preset == PlatformPreset::Discord),
        ("jobs", hub.managed.get().is_some()),
        ("hand", settings.relay.is_some()),
    ];
    let can = can.into_iter().filter_map(|(name, does)| does.then_some(name));
    json!({
        "title": label,
        "platform": settings.platform,
        "agent": settings.agent,
        "markup": descriptor["markdown_dialect"],
        "can": can.collect::<Vec<_>>(),
        "kinds": ChatKind::names_on(preset),
        "chats": personas.chats(),
        "people": personas.people(),
        "commands": commands.collect::<Vec<_>>(),
        "hints": hints.collect::<Vec<_>>(),
        "more": more,
        "welcome": "A connector, a relay and an agent run on this machine, over a real socket. Nothing leaves it.",
        "about": about(label, &descriptor),
        "wire": {
            "title": "Wire",
            "unit": "frame",
            "server": "connector",
            "empty": "No frames yet. They show as soon as a relay dials.",
            "minor": { "label": "acks, results", "types": ["inbound_ack", "outbound_result"], "shown": true },
        },
    })
}

/// What the platform can do.
fn about(label: &str, descriptor: &Value) -> Value {
    let unit = match descriptor["len_unit"].as_str() {
        Some("utf16") => "UTF-16 units",
        _ => "characters",
    };
    let markup = descriptor["markdown_dialect"].as_str().unwrap_or("plain");
    let longest = &descriptor["max_message_length"];
    let abilities = match descriptor["supported_ops"].as_array() {
        None => vec!["ops not listed"],
        Some(ops) => {
            let known = ABILITIES
                .iter()
                .filter(|(op, _)| ops.iter().any(|able| able == op));
            known.map(|(_, word)| *word).collect()
        }
    };
    json!({
        "title": label,
        "text": format!("{longest} {unit} per message, {markup} markup"),
        "abilities": if abilities.is_empty() { vec!["text only"] } else { abilities },
    })
}

pub(super) fn status(state: &ConnectorState, relay: &Value) -> Value {
    let gateway = state.gateways.get(&state.primary);
    let live = gateway.and_then(|gateway| state.connections.get(&gateway.current?));
    let is_connected = live.is_some_and(|live| !live.identities.is_empty());
    let is_held = gateway.is_some_and(|gateway| gateway.idle_since.is_some());
    let ended = relay["ended"].as_str().map(|why| format!("relay ended: {why}"));
    let (link, text) = match &ended {
        Some(ended) => ("lost", ended.as_str()),
        None if is_connected && is_held => ("waiting", "live, deliveries held"),
        None if is_connected => ("live", "live"),
        None if state.faults.revoked => ("lost", "revoked"),
        None => ("lost", "relay away"),
    };
    let loss = relay["last_loss"].as_str();
    let loss = loss.map(|why| format!("the last connection went: {why}"));
    let number = |name: &str| relay[name].as_u64();
    let journal = number("messages_waiting").map(|waiting| waiting + number("ops_durable").unwrap_or(0));
    let fact =
        |id: &str, about: &str, value: Option<u64>| json!({ "id": id, "about": about, "value": value });
    let backlog = gateway.map_or(0, |gateway| gateway.mailbox.waiting());
    let backlog = u64::try_from(backlog).unwrap_or(u64::MAX);
    json!({
        "link": { "state": link, "text": text, "about": loss },
        "revoked": state.faults.revoked,
        "turns": relay["turns_running"],
        "facts": [
            fact("backlog", "Messages that the connector keeps until the relay acknowledges them", Some(backlog)),
            fact("journal", "Messages that wait in the relay's journal", journal),
            fact("turns", "Turns of the agent that run now", number("turns_running")),
        ],
    })
}

/// A frame as a row, with at most so many characters of its text.
pub(super) fn row(state: &ConnectorState, record: &RecordedFrame, max_chars: usize) -> Value {
    let text = record.text().trim_end_matches('\n');
    let (json, kind) = (record.json(), record.kind());
    let buffer = match &json["bufferId"] {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    };
    let request = json["requestId"].as_str();
    // What a frame asks or answers, and by which id the two are known.
    let (asks, pair) = match kind {
        "outbound" => (true, request.map(|id| format!("request {id}"))),
        "outbound_result" => (false, request.map(|id| format!("request {id}"))),
        "inbound" | "passthrough_forward" => (true, buffer.as_ref().map(|id| format!("buffer {id}"))),
        "inbound_ack" => (false, buffer.as_ref().map(|id| format!("buffer {id}"))),
        _ => (false, None),
    };
    let (action, result) = (&json["action"], &json["result"]);
    let first = |values: &[&Value]| values.iter().find_map(|value| value.as_str()).map(str::to_owned);
    let about = match kind {
        "inbound" => first(&[&json["event"]["text"]]),
        "outbound" => first(&[&action["content"], &action["emoji"], &action["chat_id"]]),
        "outbound_result" => first(&[&result["error"], &result["message_id"]]),
        "inbound_ack" => buffer,
        "hello" => first(&[&json["platform"]]),
        "descriptor" => first(&[&json["descriptor"]["platform"]]),
        "interrupt_inbound" => first(&[&json["session_key"]]),
        "" => Some(text.to_owned()),
        _ => None,
    };
    json!({
        "n": record.sequence,
        "connection": record.connection.0,
        "t": state.feed.unix_micros(record.at),
        "to": match record.direction {
            Direction::ToGateway => "relay",
            Direction::FromGateway => "connector",
        },
        "type": if kind.is_empty() { "no frame" } else { kind },
        "title": action["op"].as_str(),
        "about": about.map(|about| crate::text::truncate(&about, SHOWN_TEXT).to_owned()),
        "pair": pair,
        "asks": asks,
        "bad": kind.is_empty() || result["success"] == false,
        "bytes": text.len(),
        "text": text.chars().take(max_chars).collect::<String>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_parsed_as_it_was_written() {
        let cursor = FeedCursor {
            frames: 12,
            happenings: 7,
        };
        assert_eq!(FeedCursor::parse("12.7"), Some(cursor));
        for bad in ["", "12", "a.b", "1.-2", "99999999999999999999.1"] {
            assert_eq!(FeedCursor::parse(bad), None, "{bad}");
        }
    }
}
