//! The lines that the rig's connector says.

use hermes_relay::wire::{ConnectorFrame, Grouping, NoAliases, SessionKey};
use serde_json::{Value, json};

/// The platform that everything happens on.
pub(crate) const PLATFORM: &str = "discord";

/// A chat's name.
pub(crate) fn chat(number: usize) -> String {
    format!("c{number}")
}

/// The key of the session that a chat of the rig has.
pub(crate) fn session_key(number: usize) -> String {
    let line = inbound(number, 0, "");
    let Ok(ConnectorFrame::Inbound { event, .. }) = ConnectorFrame::decode(line.trim_end().as_bytes()) else {
        panic!("the rig's own delivery cannot be read");
    };
    let grouping = Grouping {
        group_sessions_per_user: true,
        thread_sessions_per_user: false,
    };
    SessionKey::build(&event.source, grouping, None, &NoAliases)
        .as_str()
        .to_owned()
}

fn event(chat_number: usize, message: usize, text: &str) -> Value {
    let (chat_id, message_id) = (chat(chat_number), format!("m{message}"));
    json!({
        "text": text,
        "message_type": "text",
        "message_id": message_id,
        "source": {
            "platform": PLATFORM,
            "chat_id": chat_id,
            "chat_type": "dm",
            "user_id": "u1",
            "message_id": message_id,
        },
    })
}

/// The delivery of a message.
pub(crate) fn inbound(chat_number: usize, message: usize, text: &str) -> String {
    let event = event(chat_number, message, text);
    format!("{{\"type\":\"inbound\",\"event\":{event},\"bufferId\":\"b{message}\"}}\n")
}

/// The number in a name such as `m12` or `b12`.
pub(crate) fn number(name: &str) -> Option<usize> {
    name.get(1..)?.parse().ok()
}

/// The answer to a request.
pub(crate) fn result(request_id: &str) -> String {
    format!(
        "{{\"type\":\"outbound_result\",\"requestId\":\"{request_id}\",\"result\":{{\"success\":true,\"message_id\":\"x\"}}}}\n"
    )
}

/// The answer to a hello.
pub(crate) fn descriptor(platform: &str) -> String {
    let descriptor = hermes_relay::dev::PlatformPreset::named(platform).wire(platform);
    format!("{}\n", json!({ "type": "descriptor", "descriptor": descriptor }))
}

/// The wish that a session's turn stops.
pub(crate) fn interrupt(session_key: &str, chat_id: &str) -> String {
    format!(
        "{}\n",
        json!({ "type": "interrupt_inbound", "session_key": session_key, "chat_id": chat_id })
    )
}
