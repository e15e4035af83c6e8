//! `docs/wire.md` and `docs/wire.schema.json` name what the types have: every frame, field, op, header, close code and
//! endpoint, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use hermes_relay::net::connector_http::ProvisionRequest;
use hermes_relay::wire::{
    Action, CapabilityDescriptor, ConnectorFrame, GatewayFrame, MessageEvent, OpResult, PassthroughForward,
    PromptButton, RelevancePolicy, problems,
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

type Names = BTreeSet<String>;

fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The page: headings with the first cells of their tables, and headings below headings.
struct Page {
    rows: BTreeMap<String, Names>,
    below: BTreeMap<String, Names>,
}

impl Page {
    fn read() -> Self {
        let mut page = Self {
            rows: BTreeMap::new(),
            below: BTreeMap::new(),
        };
        let (mut heading, mut section) = (String::new(), String::new());
        for line in read("docs/wire.md").lines() {
            if let Some(name) = line.strip_prefix("### ") {
                name.clone_into(&mut heading);
                let below = page.below.entry(section.clone()).or_default();
                assert!(below.insert(heading.clone()), "{line} twice");
            } else if let Some(name) = line.strip_prefix("## ") {
                name.clone_into(&mut heading);
                name.clone_into(&mut section);
            } else if let Some(row) = line.strip_prefix("| `") {
                let (name, _) = row.split_once('`').unwrap();
                let rows = page.rows.entry(heading.clone()).or_default();
                assert!(rows.insert(name.to_owned()), "{heading}: {name} twice");
                continue;
            } else {
                continue;
            }
            assert!(!page.rows.contains_key(&heading), "{line} twice");
            page.rows.insert(heading.clone(), Names::new());
        }
        page
    }

    fn rows(&self, heading: &str) -> Names {
        let rows = self.rows.get(heading);
        rows.unwrap_or_else(|| panic!("the page has no {heading}"))
            .clone()
    }
}

fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> Names {
    names.into_iter().map(str::to_owned).collect()
}

/// The fields of a value, without the one that names it.
fn fields(value: &impl Serialize, name: &str) -> Names {
    let value = serde_json::to_value(value).unwrap();
    let object = value.as_object().unwrap();
    names(object.keys().map(String::as_str).filter(|key| *key != name))
}

fn gateway_frames() -> Vec<GatewayFrame> {
    let action = RawValue::from_string(r#"{"op":"get_chat_info","chat_id":"c"}"#.to_owned()).unwrap();
    let some = || Some("x".to_owned());
    vec![
        GatewayFrame::Hello {
            platform: "discord".to_owned(),
            bot_id: String::new(),
            command_manifest: Some(vec![json!({"name": "new", "description": "d"})]),
        },
        GatewayFrame::Outbound {
            request_id: "0".repeat(32),
            action,
            platform: some(),
            bot_id: some(),
        },
        GatewayFrame::Interrupt {
            session_key: String::new(),
            reason: None,
        },
        GatewayFrame::GoingIdle,
        GatewayFrame::InboundAck {
            buffer_id: "b1".to_owned(),
        },
        GatewayFrame::LinkResult {
            request_id: "l1".to_owned(),
            ok: false,
            body: json!({"error": "e"}),
        },
    ]
}

fn connector_frames() -> Vec<ConnectorFrame> {
    vec![
        ConnectorFrame::Descriptor(Box::new(CapabilityDescriptor::placeholder("discord"))),
        ConnectorFrame::Inbound {
            event: Box::new(MessageEvent {
                written_at: Some(1),
                ..MessageEvent::default()
            }),
            buffer_id: Some("b1".to_owned()),
        },
        ConnectorFrame::OutboundResult {
            request_id: "1".to_owned(),
            result: Some(Box::new(result())),
        },
        ConnectorFrame::InterruptInbound {
            session_key: String::new(),
            chat_id: String::new(),
        },
        ConnectorFrame::PassthroughForward {
            forward: Box::new(forward()),
            buffer_id: None,
        },
        ConnectorFrame::GoingIdleAck,
        ConnectorFrame::LinkRequest {
            request_id: "l1".to_owned(),
        },
    ]
}

fn result() -> OpResult {
    let some = || Some("x".into());
    OpResult {
        success: true,
        message_id: some(),
        error: some(),
        code: some(),
        retry_after: some(),
        thread_id: some(),
        auto_thread_name: some(),
        chat_info: Some(json!({"name": "n", "type": "dm"})),
        name: some(),
        chat_type: some(),
        is_permanent: false,
    }
}

fn forward() -> PassthroughForward {
    PassthroughForward {
        profile: Some("p".to_owned()),
        headers: vec![("a".to_owned(), "b".to_owned())],
        ..PassthroughForward::default()
    }
}

/// Every op with every field, as the type writes it.
fn actions() -> Vec<Value> {
    let vectors: Value = serde_json::from_str(&read("tests/vectors/actions.json")).unwrap();
    let full = vectors["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["full"].clone());
    full.map(|action| {
        let action: Action = serde_json::from_value(action).unwrap();
        serde_json::to_value(action).unwrap()
    })
    .collect()
}

/// The keys of an `object_parts!` struct: what the decoder reads.
fn decoded(file: &str, name: &str) -> Names {
    let source = read(file);
    let from = source.split_once(&format!("struct {name} {{")).unwrap().1;
    let body = from.split_once("\n    }").unwrap().0;
    let keys = body.lines().filter_map(|line| line.split('"').nth(1));
    names(keys)
}

/// The objects of the wire: heading on the page, definition in the schema, fields in the code.
fn objects() -> Vec<(String, String, Names)> {
    let mut objects: Vec<(String, String, Names)> = Vec::new();
    let mut add = |heading: &str, definition: &str, fields: Names| {
        objects.push((heading.to_owned(), definition.to_owned(), fields));
    };
    for frame in gateway_frames() {
        add(frame.kind(), frame.kind(), fields(&frame, "type"));
    }
    for frame in connector_frames() {
        add(frame.kind(), frame.kind(), fields(&frame, "type"));
    }
    for action in actions() {
        let op = action["op"].as_str().unwrap();
        add(op, &format!("op_{op}"), fields(&action, "op"));
    }
    let placeholder = CapabilityDescriptor::placeholder("discord");
    add("Capabilities", "capabilities", fields(&placeholder, ""));
    add("Event", "event", decoded("src/wire/event.rs", "EventParts"));
    add("Source", "source", decoded("src/wire/source.rs", "SourceParts"));
    add("reply_to", "reply_to", decoded("src/wire/event.rs", "ReplyParts"));
    add("Forward", "forward", fields(&forward(), ""));
    add("Results", "result", fields(&result(), ""));
    let button = PromptButton {
        id: String::new(),
        label: String::new(),
        style: Some(String::new()),
    };
    add("Button", "button", fields(&button, ""));
    // What the decoder keeps as JSON.
    add("media", "media", names(["url", "mime"]));
    add("context_entry", "context_entry", names(["text", "source"]));
    let response = names(["prompt_id", "option_id", "label", "prompt_message_id"]);
    add("prompt_response", "prompt_response", response);
    objects
}

#[test]
fn every_field_of_every_type_is_on_the_page_and_in_the_schema() {
    let page = Page::read();
    let schema: Value = serde_json::from_str(&read("docs/wire.schema.json")).unwrap();
    let mut definitions = names(["from_relay", "from_connector", "action", "command"]);
    for (heading, definition, fields) in objects() {
        assert_eq!(page.rows(&heading), fields, "docs/wire.md: {heading}");
        let properties = schema["$defs"][&definition]["properties"].as_object();
        let properties = properties.unwrap_or_else(|| panic!("no {definition} in the schema"));
        let described = properties
            .iter()
            .filter(|(_, schema)| schema.get("const").is_none());
        let described = names(described.map(|(key, _)| key.as_str()));
        assert_eq!(described, fields, "docs/wire.schema.json: {definition}");
        definitions.insert(definition);
    }
    let defined = schema["$defs"].as_object().unwrap().keys();
    assert_eq!(names(defined.map(String::as_str)), definitions);
}

#[test]
fn every_frame_and_op_has_a_heading_and_no_other_has_one() {
    let page = Page::read();
    let kinds = names(gateway_frames().iter().map(GatewayFrame::kind));
    assert_eq!(kinds, names(GatewayFrame::KINDS));
    assert_eq!(page.below["Frames from the relay"], kinds);
    let kinds = names(connector_frames().iter().map(ConnectorFrame::kind));
    assert_eq!(page.below["Frames from the connector"], kinds);
    let read = decoded("src/wire/frame.rs", "FrameParts");
    let known: Names = connector_frames()
        .iter()
        .flat_map(|frame| fields(frame, ""))
        .collect();
    assert_eq!(known, read, "the decoder reads these fields");
    assert_eq!(page.below["Ops"], names(Action::OPS));
}

#[test]
fn the_bodies_of_requests_are_on_the_page() {
    let page = Page::read();
    let some = || Some(String::new());
    let provision = ProvisionRequest {
        instance_id: some(),
        wake_url: some(),
        display_name: some(),
        ..ProvisionRequest::default()
    };
    assert_eq!(page.rows("Body of provision"), fields(&provision, ""));
    let policy = RelevancePolicy {
        platform: String::new(),
        require_address: true,
        free_response_scopes: Vec::new(),
        allow_other_bots: false,
    };
    assert_eq!(page.rows("Body of policy"), fields(&policy, ""));
    let source: String = read("src/net/connector_http.rs").split_whitespace().collect();
    for name in page.rows("Body of enroll") {
        let snake: String = name
            .chars()
            .flat_map(|c| {
                if c.is_uppercase() {
                    vec!['_', c.to_ascii_lowercase()]
                } else {
                    vec![c]
                }
            })
            .collect();
        assert!(source.contains(&format!("{snake}:&'astr")), "{name}");
    }
    let mut answered = Names::new();
    for call in ["_field(&object,\"", "object.get(\""] {
        answered.extend(
            source
                .split(call)
                .skip(1)
                .map(|rest| rest.split('"').next().unwrap().to_owned()),
        );
    }
    assert_eq!(page.rows("Answer of enroll and provision"), answered);
}

#[test]
fn every_close_code_is_on_the_page() {
    let source = read("src/wire/close_code.rs");
    let codes = source
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split_once(" = "));
    let codes = names(codes.map(|(_, code)| code.trim_end_matches(';')));
    assert!(codes.contains("4401"), "{codes:?}");
    assert_eq!(Page::read().rows("Close codes"), codes);
}

#[test]
fn every_endpoint_is_on_the_page() {
    let source = read("src/dev/http.rs");
    let routes = source
        .split(".route(\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap());
    let served = names(routes.filter(|route| route.starts_with("/relay")));
    assert_eq!(Page::read().rows("Endpoints"), served);
    let mut requested = 0;
    for file in [
        "src/net/connector_http.rs",
        "src/wire/url.rs",
        "src/adapter/media/url.rs",
    ] {
        let source = read(file);
        let code = source.split("#[cfg(test)]").next().unwrap();
        for literal in code
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|literal| literal.starts_with("/relay"))
        {
            requested += 1;
            let is_served = served.contains(literal.trim_end_matches('/'));
            assert!(is_served, "{file}: {literal}");
        }
    }
    assert!(requested > 4, "{requested}");
}

/// Headers that belong to HTTP and WebSocket themselves, or that are never followed.
const PLUMBING: [&str; 8] = [
    "CONNECTION",
    "CONTENT_LENGTH",
    "HOST",
    "LOCATION",
    "SEC_WEBSOCKET_EXTENSIONS",
    "SEC_WEBSOCKET_KEY",
    "SEC_WEBSOCKET_VERSION",
    "UPGRADE",
];

#[test]
fn every_header_is_on_the_page() {
    let mut used = names(["x-media-filename"]);
    for file in [
        "src/net/socket.rs",
        "src/net/http.rs",
        "src/net/media/transfer.rs",
    ] {
        let source = read(file);
        let import = source
            .split_once("header::{")
            .unwrap()
            .1
            .split_once('}')
            .unwrap()
            .0;
        let constants = import.split(',').map(str::trim).filter(|name| {
            let is_constant = |c: char| c.is_ascii_uppercase() || c == '_';
            !name.is_empty() && name.chars().all(is_constant) && !PLUMBING.contains(name)
        });
        used.extend(constants.map(|name| name.to_lowercase().replace('_', "-")));
    }
    let written = Page::read().rows("Headers");
    let written: Names = written.iter().map(|name| name.to_lowercase()).collect();
    assert_eq!(written, used);
    assert!(read("src/net/media/transfer.rs").contains("\"X-Media-Filename\""));
}

#[test]
fn golden_frames_are_valid_by_the_schema() {
    let trace: Value = serde_json::from_str(&read("tests/vectors/wire-trace.json")).unwrap();
    let recorded = trace["gateway_to_connector"].as_array().unwrap().iter();
    let mut frames: Vec<Value> = recorded
        .map(|line| serde_json::from_str(line.as_str().unwrap()).unwrap())
        .collect();
    let vectors: Value = serde_json::from_str(&read("tests/vectors/actions.json")).unwrap();
    for entry in vectors["actions"].as_array().unwrap() {
        for action in [&entry["full"], &entry["bare"]] {
            frames.push(json!({"type": "outbound", "requestId": "0a", "action": action}));
        }
    }
    frames.extend(
        gateway_frames()
            .iter()
            .map(|frame| serde_json::to_value(frame).unwrap()),
    );
    for frame in &frames {
        assert_eq!(problems("from_relay", frame), [""; 0], "{frame}");
        assert_ne!(problems("from_connector", frame), [""; 0], "{frame}");
    }
    for frame in connector_frames()
        .iter()
        .filter(|frame| frame.kind() != "inbound")
    {
        let frame = serde_json::to_value(frame).unwrap();
        assert_eq!(problems("from_connector", &frame), [""; 0], "{frame}");
    }
}

/// The vectors have inputs of peers that do not keep to the contract, too.
#[test]
fn what_the_schema_accepts_can_be_decoded() {
    for (file, kind, least) in [("event", "inbound", 25), ("descriptor", "descriptor", 5)] {
        let vectors: Value = serde_json::from_str(&read(&format!("tests/vectors/{file}.json"))).unwrap();
        let mut accepted = 0;
        for vector in vectors["vectors"].as_array().unwrap() {
            let frame = json!({"type": kind, file: vector["wire"]});
            if problems("from_connector", &frame).is_empty() {
                accepted += 1;
                let decoded = ConnectorFrame::decode(frame.to_string().as_bytes());
                assert!(decoded.is_ok_and(|frame| frame.kind() == kind), "{frame}");
            }
        }
        assert!(accepted >= least, "{file}: {accepted}");
    }
}
