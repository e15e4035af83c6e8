//! The bundled substrates of `AgentConnector`: the statements of the contract's checklist, each where it can be seen.

mod local;
mod real_receivers;
mod statements;
mod suite;
mod terminal;
mod webhook;

use std::collections::BTreeMap;
use std::ffi::OsString;

use hermes_relay::agent_connector::contract::{
    DeliveryKind, DeliveryMeta, DeliveryOrigin, DeliveryPayload, WakeOpts,
};
use hermes_relay::agent_connector::{
    CommandConnector, FileConnector, TmuxConnector, WebhookConnector, WebhookCredentials,
};
use serde_json::{Value, json};

use crate::support::http_stub::Stub;

const SECRET: &str = "s3cret of the tests";

fn credentials(auth: Option<&str>, secret: Option<&str>) -> WebhookCredentials {
    WebhookCredentials {
        auth: auth.map(Into::into),
        hmac_secret: secret.map(Into::into),
    }
}

/// A webhook for the agent `cc`, with a short timeout.
fn webhook(agent: &Value, credentials: WebhookCredentials) -> WebhookConnector {
    let settings = json!({"agents": {"cc": agent}, "timeout_ms": 2_000});
    WebhookConnector::new(serde_json::from_value(settings).unwrap(), credentials).unwrap()
}

/// The same with a receiver's addresses and no credentials.
fn hook(receiver: &Stub) -> WebhookConnector {
    webhook(&json!({"url": receiver.url("/cc")}), credentials(None, None))
}

fn file(dir: &std::path::Path) -> FileConnector {
    let settings = json!({"dir": dir, "agents": ["cc"]});
    FileConnector::new(serde_json::from_value(settings).unwrap())
}

/// The environment of programs: what finds them.
fn environment() -> BTreeMap<OsString, OsString> {
    let inherited = ["PATH", "HOME"].map(OsString::from);
    let inherited = inherited.into_iter().filter_map(|name| {
        let value = std::env::var_os(&name)?;
        Some((name, value))
    });
    inherited.collect()
}

fn command(argv: &[&str]) -> CommandConnector {
    let settings = json!({"agents": {"cc": {"argv": argv}}});
    CommandConnector::new(serde_json::from_value(settings).unwrap(), environment())
}

fn tmux(target: &str, env: BTreeMap<OsString, OsString>) -> TmuxConnector {
    let settings = json!({"agents": {"cc": {"target": target}}});
    TmuxConnector::new(serde_json::from_value(settings).unwrap(), env)
}

fn augment(id: &str, text: &str) -> DeliveryPayload {
    payload(DeliveryKind::Augment, id, text)
}

fn payload(kind: DeliveryKind, id: &str, text: &str) -> DeliveryPayload {
    DeliveryPayload {
        kind,
        text: text.to_owned(),
        meta: DeliveryMeta::new(id, 1_700_000_000_000, &DeliveryOrigin::default()),
    }
}

fn context(text: &str) -> WakeOpts {
    WakeOpts {
        context: Some(text.to_owned()),
        ..WakeOpts::default()
    }
}
