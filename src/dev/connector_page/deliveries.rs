//! The page's form that hands something to an agent of the relay in this process, as any other program can.

use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent_connector::contract::{
    DeliveryKind, DeliveryMeta, DeliveryOrigin, DeliveryPayload, TriggerKind, WakeOpts,
};
use crate::agent_connector::{new_dispatch_id, wake_payload, wake_receipt};
use crate::dev::http::reply;
use crate::dev::page::ActionError;
use crate::dev::state::Hub;
use crate::relay::{HandedItem, RelayHandle, now_ms};

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

/// Hands over what the form says, and gives the receipt.
pub(super) async fn hand(hub: &Hub, body: &[u8]) -> Result<Value, ActionError> {
    let command: HandCommand = serde_json::from_slice(body)?;
    let conflict = |why: String| ActionError::new(StatusCode::CONFLICT, why);
    let relay = relay(hub).ok_or_else(|| conflict("no relay runs in this process".to_owned()))?;
    let delivery = delivery(hub, command).map_err(ActionError::bad)?;
    let is_wake = delivery.wake;
    let submitted = relay.submit(delivery).await;
    let receipt = submitted.map_err(|refusal| conflict(refusal.to_string()))?;
    Ok(if is_wake {
        json!(wake_receipt(receipt))
    } else {
        json!(receipt)
    })
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
        DeliveryPayload {
            kind: match command.kind {
                FormKind::Augment => DeliveryKind::Augment,
                FormKind::Template | FormKind::Wake => DeliveryKind::Template,
            },
            text: command.text,
            meta: DeliveryMeta::new(&id, now_ms(), &origin),
        }
    };
    Ok(HandedItem {
        agent: command.agent,
        session,
        payload,
        wake,
    })
}
