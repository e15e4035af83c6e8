//! Every byte from outside is hostile: what the decoder does with bytes, values and frames that nobody would send.

mod actions;
mod hostile;

use hermes_relay::wire::{
    CapabilityDescriptor, ConnectorFrame, GatewayFrame, MessageEvent, PassthroughForward, SessionSource,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Real frames: every golden event and descriptor that the contract accepts, and one frame of each other type.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (file, list, kind, field) in [
        (
            include_str!("../../vectors/event.json"),
            "vectors",
            "inbound",
            "event",
        ),
        (
            include_str!("../../vectors/descriptor.json"),
            "vectors",
            "descriptor",
            "descriptor",
        ),
    ] {
        let file: Value = serde_json::from_str(file).unwrap();
        let vectors = file[list].as_array().unwrap().iter();
        for vector in vectors.filter(|vector| vector["error"].is_null() && vector["error_newest"].is_null()) {
            frames.push(json!({"type": kind, field: vector["wire"], "bufferId": "b1"}));
        }
    }
    frames.push(
        json!({"type": "outbound_result", "requestId": "r", "result": {"success": true, "message_id": "m"}}),
    );
    frames
        .push(json!({"type": "interrupt_inbound", "session_key": "agent:main:discord:dm:c", "chat_id": "c"}));
    frames.push(json!({"type": "going_idle_ack"}));
    frames.push(json!({"type": "passthrough_forward", "bufferId": 5, "forward": {
        "platform": "discord", "botId": "app", "method": "POST", "path": "/interactions",
        "headers": [["content-type", "application/json"]], "bodyB64": "e30=", "profile": "work"}}));
    assert!(frames.len() > 50);
    frames
        .iter()
        .map(|frame| frame.to_string().into_bytes())
        .collect()
}

/// Decodes as both ends do. What decodes can be written, and what was written decodes to the same; returns whether
/// either end decodes it.
fn survives(line: &[u8]) -> bool {
    let inbound = ConnectorFrame::decode(line);
    if let Ok(frame) = &inbound {
        let written = serde_json::to_vec(frame).expect("a decoded frame can be written");
        let again = ConnectorFrame::decode(&written).expect("what we wrote, we read");
        assert_eq!(again.kind(), frame.kind());
        if matches!(frame, ConnectorFrame::Inbound { .. }) {
            assert_same_message(frame, &again);
        }
    }
    let outbound = GatewayFrame::decode(line);
    if let Ok(frame) = &outbound {
        let written = frame.to_line();
        assert_eq!(written.matches('\n').count(), 1, "one frame, one line");
        let again = GatewayFrame::decode(written.as_bytes()).expect("what we wrote, we read");
        assert_eq!(again.to_line(), written);
    }
    inbound.is_ok() || outbound.is_ok()
}

/// The message that a turn is made of is the same after another hop.
fn assert_same_message(frame: &ConnectorFrame, again: &ConnectorFrame) {
    let (
        ConnectorFrame::Inbound { event, buffer_id },
        ConnectorFrame::Inbound {
            event: event_again,
            buffer_id: id_again,
        },
    ) = (frame, again)
    else {
        panic!("both are inbound");
    };
    assert_eq!(buffer_id, id_again);
    assert_eq!(event.text, event_again.text);
    assert_eq!(event.source, event_again.source);
    assert_eq!(event.message_id, event_again.message_id);
}

/// Any JSON value, with the contract's own keys among its keys.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        let key = prop_oneof![4 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => ".{0,8}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

const WORDS: &[&str] = &[
    "type",
    "inbound",
    "event",
    "bufferId",
    "text",
    "source",
    "platform",
    "chat_id",
    "chat_type",
    "user_id",
    "message_id",
    "media_urls",
    "media",
    "url",
    "mime",
    "context",
    "reply_to",
    "prompt_response",
    "descriptor",
    "outbound_result",
    "requestId",
    "result",
    "success",
    "error",
    "interrupt_inbound",
    "session_key",
    "passthrough_forward",
    "forward",
    "headers",
    "bodyB64",
    "going_idle_ack",
    "discord",
    "dm",
    "thread",
    "scope_id",
    "guild_id",
    "profile",
    "hello",
    "outbound",
    "action",
    "inbound_ack",
    "",
    "0",
];

/// One change to a line.
#[derive(Clone, Debug)]
enum Change {
    Flip(usize, u8),
    Cut(usize, usize),
    Repeat(usize, usize),
    Put(usize, &'static [u8]),
}

const PIECES: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"NaN",
    b"1e999",
    b"\\ud83d",
    b"\\u0000",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\n",
    b"-0",
    b"{}",
    b"[]",
    b"\"bufferId\":",
    b"\"type\":",
];

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, to)| Change::Flip(at, to)),
        (any::<usize>(), 1..20usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (any::<usize>(), 1..40usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        (any::<usize>(), prop::sample::select(PIECES)).prop_map(|(at, piece)| Change::Put(at, piece)),
    ]
}

fn change(line: &mut Vec<u8>, change: &Change) {
    let place = |at: usize| at % (line.len() + 1);
    let span = |at: usize, length: usize| place(at)..(place(at) + length).min(line.len());
    match *change {
        Change::Flip(at, to) => {
            let at = place(at);
            if let Some(byte) = line.get_mut(at) {
                *byte = to;
            }
        }
        Change::Cut(at, length) => {
            let span = span(at, length);
            line.drain(span);
        }
        Change::Repeat(at, length) => {
            let span = span(at, length);
            let piece = line[span.clone()].to_vec();
            line.splice(span.start..span.start, piece);
        }
        Change::Put(at, piece) => {
            let at = place(at);
            line.splice(at..at, piece.iter().copied());
        }
    }
}

#[test]
fn real_frames_survive_a_hop() {
    for frame in frames() {
        assert!(survives(&frame), "{}", String::from_utf8_lossy(&frame));
    }
}

#[test]
fn an_id_that_is_a_fraction_is_the_same_after_a_hop() {
    let line = br#"{"type":"inbound","event":{"message_id":-1.8427863338658136e-165}}"#;
    assert!(survives(line));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_decoded_or_refused(line in prop::collection::vec(any::<u8>(), 0..300)) {
        survives(&line);
    }

    #[test]
    fn any_value_is_decoded_or_refused(value in any_value()) {
        survives(value.to_string().as_bytes());
        let _ = MessageEvent::from_value(&value);
        let _ = SessionSource::from_value(&value);
        let _ = CapabilityDescriptor::from_value(&value);
        let _ = PassthroughForward::from_value(&value);
    }

    #[test]
    fn any_frame_of_a_known_type_is_decoded_or_refused(
        kind in prop::sample::select(&[
            ("inbound", "event"), ("descriptor", "descriptor"), ("outbound_result", "result"),
            ("passthrough_forward", "forward"), ("interrupt_inbound", "session_key"),
        ][..]),
        body in any_value(),
        buffer_id in "[a-z0-9-]{1,12}",
    ) {
        let line = json!({"type": kind.0, kind.1: body, "bufferId": buffer_id}).to_string();
        survives(line.as_bytes());
        match ConnectorFrame::decode(line.as_bytes()) {
            Err(refused) => {
                prop_assert_eq!(refused.kind.as_deref(), Some(kind.0));
                prop_assert_eq!(refused.buffer_id, Some(buffer_id));
            }
            Ok(ConnectorFrame::Inbound { buffer_id: received_id, .. }
                | ConnectorFrame::PassthroughForward { buffer_id: received_id, .. }) => {
                prop_assert_eq!(received_id, Some(buffer_id));
            }
            Ok(_) => {}
        }
    }

    #[test]
    fn a_mangled_real_frame_is_decoded_or_refused(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec(any_change(), 1..6),
    ) {
        let frames = FRAMES.with(Clone::clone);
        let mut line = frames[which.index(frames.len())].clone();
        for one in &changes {
            change(&mut line, one);
        }
        survives(&line);
    }
}

thread_local! {
    static FRAMES: std::rc::Rc<Vec<Vec<u8>>> = std::rc::Rc::new(frames());
}
