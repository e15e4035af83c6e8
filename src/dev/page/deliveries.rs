//! The page's form that hands something to an agent of the relay in this process, as any other program can.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::to_bytes;
use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::agent_connector::contract::{
    DeliveryKind, DeliveryMeta, DeliveryOrigin, DeliveryPayload, TriggerKind, WakeOpts,
};
use crate::agent_connector::{new_dispatch_id, wake_payload, wake_receipt};
use crate::dev::http::{plain, reply};
use crate::dev::state::Hub;
use crate::relay::{HandedItem, RelayHandle};

const MAX_BODY_BYTES: usize = 256 * 1024;

/// What the form says.
#[derive(Deserialize)]
struct HandCommand {
    agent: String,
    kind: FormKind,
    text: String,
    /// The chat whose session gets it; without one the agent's own session for deliveries.
    #[serde(default)]
    chat: Option<String>,
    #[serde(default)]
    thread: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FormKind {
    Augment,
    Template,
    Wake,
}

/// The relay in this process, while it runs.
fn relay(hub: &Hub) -> Option<RelayHandle> {
    hub.relay.get()?.borrow().clone()
}

/// Answers `GET agents`; `null` without a relay in this process.
pub(super) async fn agents(hub: &Hub) -> Response {
    let names = match relay(hub) {
        Some(relay) => relay.agent_names().await.ok(),
        None => None,
    };
    reply(&json!(names))
}

/// Answers `POST hand` with the receipt.
pub(super) async fn hand(hub: &Hub, request: Request) -> Response {
    let body = to_bytes(request.into_body(), MAX_BODY_BYTES)
        .await
        .unwrap_or_default();
    let command: HandCommand = match serde_json::from_slice(&body) {
        Ok(command) => command,
        Err(error) => {
            return plain(
                StatusCode::BAD_REQUEST,
                &format!("the form cannot be read: {error}"),
            );
        }
    };
    let Some(relay) = relay(hub) else {
        return plain(StatusCode::CONFLICT, "no relay runs in this process");
    };
    let delivery = match delivery(hub, command) {
        Ok(delivery) => delivery,
        Err(error) => return plain(StatusCode::BAD_REQUEST, &error),
    };
    let is_wake = delivery.wake;
    match relay.submit(delivery).await {
        Err(refusal) => plain(StatusCode::CONFLICT, &refusal.to_string()),
        Ok(receipt) if is_wake => reply(&json!(wake_receipt(receipt))),
        Ok(receipt) => reply(&json!(receipt)),
    }
}

fn delivery(hub: &Hub, command: HandCommand) -> Result<HandedItem, String> {
    let session = match &command.chat {
        None => None,
        Some(chat) => {
            let thread = command.thread.as_deref().unwrap_or_default();
            let known = hub.lock().feed.sessions_in(chat, thread).pop();
            Some(known.ok_or("this chat has no session yet; write a message in it first")?)
        }
    };
    let wake = command.kind == FormKind::Wake;
    let payload = if wake {
        let opts = WakeOpts {
            context: Some(command.text),
            ..WakeOpts::default()
        };
        wake_payload(&opts, TriggerKind::Dashboard).map_err(|error| error.to_string())?
    } else if command.text.trim().is_empty() {
        return Err("the text is empty".to_owned());
    } else {
        let origin = DeliveryOrigin {
            trigger: TriggerKind::Dashboard,
            ..DeliveryOrigin::default()
        };
        let id = new_dispatch_id().map_err(|error| error.to_string())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        DeliveryPayload {
            kind: match command.kind {
                FormKind::Augment => DeliveryKind::Augment,
                FormKind::Template | FormKind::Wake => DeliveryKind::Template,
            },
            text: command.text,
            meta: DeliveryMeta::new(&id, now, &origin),
        }
    };
    Ok(HandedItem {
        agent: command.agent,
        session,
        payload,
        wake,
    })
}
