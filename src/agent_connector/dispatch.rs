//! One notice to every target that has the agent: who gets it, by which method, under one id, and what came of it.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;

use super::contract::{
    AgentAddress, AgentResponse, CauseKind, DeliveryFailure, DeliveryKind, DeliveryMeta, DeliveryOrigin,
    DeliveryPayload, DeliveryReceipt, MAX_ID_BYTES, WakeOpts, WakeReceipt,
};
use super::{AgentConnector, NamedTarget, now_ms};
use crate::text::is_unprintable;

/// Maximum length of a notice's text in bytes.
pub const MAX_NOTICE_BYTES: usize = 1024 * 1024;

/// What is handed to an agent.
#[derive(Debug, Clone)]
pub struct Notice {
    /// `agent` or `agent@session`; an `@` asks for attention.
    pub address: String,
    /// What the notice is for; a wake has no kind.
    pub kind: DeliveryKind,
    /// The text; the context of a wake.
    pub text: String,
    /// Where it comes from.
    pub origin: DeliveryOrigin,
    /// Wait this long for the agent's answer, instead of a receipt.
    pub wait: Option<Duration>,
}

/// The method that was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DispatchRoute {
    /// [`AgentConnector::deliver`].
    Deliver,
    /// [`AgentConnector::wake`].
    Wake,
    /// [`AgentConnector::request_response`].
    RequestResponse,
}

/// What came of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum DispatchOutcome {
    /// It was delivered.
    #[serde(rename = "receipt")]
    Delivered(DeliveryReceipt),
    /// The agent was woken, or got it without an interruption.
    #[serde(rename = "receipt")]
    Woken(WakeReceipt),
    /// The agent answered.
    #[serde(rename = "response")]
    Answered(AgentResponse),
    /// It failed.
    #[serde(rename = "error")]
    Failed(DeliveryFailure),
}

/// One target that has the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DispatchedTo {
    /// Its name in the settings.
    #[serde(rename = "connector")]
    pub target: String,
    /// Whether the substrate accepted it.
    pub ok: bool,
    /// The method that was called.
    pub route: DispatchRoute,
    /// The receipt, the answer or the error.
    #[serde(flatten)]
    pub outcome: DispatchOutcome,
}

/// What came of a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dispatched {
    /// The address as it was given.
    pub agent: String,
    /// The targets that have the agent.
    pub dispatched: Vec<DispatchedTo>,
    /// Why nothing was dispatched at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<DeliveryFailure>,
}

impl Dispatched {
    /// Whether there was a target and every one accepted.
    pub fn is_accepted(&self) -> bool {
        self.error.is_none() && self.dispatched.iter().all(|to| to.ok)
    }

    fn refused(notice: &Notice, why: String) -> Self {
        let error = DeliveryFailure::new(CauseKind::ClientValidation, &notice.address, why);
        Self {
            agent: notice.address.clone(),
            dispatched: Vec::new(),
            error: Some(error),
        }
    }
}

/// A new random id (UUID, version 4).
pub fn new_dispatch_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(format!("the system has no randomness: {error}")))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let number = u128::from_be_bytes(bytes);
    let hex = format!("{number:032x}");
    let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(groups.join("-"))
}

/// Hands the notice to every target that has the agent, at the same time and under one `dispatch_id`.
pub async fn dispatch(targets: &[NamedTarget], notice: &Notice) -> Dispatched {
    let agent = AgentAddress::parse(&notice.address).agent;
    let is_valid = !agent.trim().is_empty()
        && notice.address.len() <= 2 * MAX_ID_BYTES
        && !notice.address.chars().any(is_unprintable);
    if !is_valid {
        let why = "the address does not name an agent: write `agent` or `agent@session`, without control characters";
        return Dispatched::refused(notice, why.to_owned());
    }
    if notice.text.len() > MAX_NOTICE_BYTES {
        let why = format!(
            "the text is longer than {MAX_NOTICE_BYTES} bytes; hand over a path or a link to it instead"
        );
        return Dispatched::refused(notice, why);
    }
    let is_ring = notice.wait.is_none() && AgentAddress::is_wake(&notice.address);
    if notice.text.trim().is_empty() && !is_ring {
        return Dispatched::refused(notice, "the text is empty".to_owned());
    }
    let owners = targets.iter().filter(|(_, connector)| {
        let agents = connector.list_agents();
        agents
            .iter()
            .any(|known| known.agent_id == notice.address || known.agent_id == agent)
    });
    let owners: Vec<_> = owners.collect();
    if owners.is_empty() {
        let shown = crate::text::printable(&agent, 80);
        return Dispatched::refused(notice, format!("no target has an agent `{shown}`"));
    }
    let envelope = match envelope(notice) {
        Ok(envelope) => envelope,
        Err(error) => return Dispatched::refused(notice, error.to_string()),
    };
    let sent = owners.iter().map(async |(name, connector)| {
        let (route, outcome) = send(connector.as_ref(), notice, &envelope).await;
        DispatchedTo {
            target: name.clone(),
            ok: !matches!(outcome, DispatchOutcome::Failed(_)),
            route,
            outcome,
        }
    });
    Dispatched {
        agent: notice.address.clone(),
        dispatched: join_all(sent).await,
        error: None,
    }
}

/// The envelope under which all targets get the notice.
fn envelope(notice: &Notice) -> io::Result<DeliveryMeta> {
    let mut origin = notice.origin.clone();
    if notice.wait.is_some() && origin.correlation_id.is_none() {
        origin.correlation_id = Some(new_dispatch_id()?);
    }
    Ok(DeliveryMeta::new(&new_dispatch_id()?, now_ms(), &origin))
}

async fn send(
    connector: &dyn AgentConnector,
    notice: &Notice,
    envelope: &DeliveryMeta,
) -> (DispatchRoute, DispatchOutcome) {
    let payload = DeliveryPayload {
        kind: notice.kind,
        text: notice.text.clone(),
        meta: envelope.clone(),
    };
    let address = notice.address.as_str();
    if let Some(wait) = notice.wait {
        let answer = connector.request_response(address, &payload, wait).await;
        let outcome = answer.map_or_else(DispatchOutcome::Failed, DispatchOutcome::Answered);
        return (DispatchRoute::RequestResponse, outcome);
    }
    if AgentAddress::is_wake(address) {
        let opts = WakeOpts {
            context: Some(notice.text.clone()).filter(|text| !text.is_empty()),
            envelope: Some(payload.meta),
            ..WakeOpts::default()
        };
        let receipt = connector.wake(address, &opts).await;
        let outcome = receipt.map_or_else(DispatchOutcome::Failed, DispatchOutcome::Woken);
        return (DispatchRoute::Wake, outcome);
    }
    let receipt = connector.deliver(address, &payload).await;
    let outcome = receipt.map_or_else(DispatchOutcome::Failed, DispatchOutcome::Delivered);
    (DispatchRoute::Deliver, outcome)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_random_and_of_version_4() {
        let ids: BTreeSet<String> = (0..100).map(|_| new_dispatch_id().unwrap()).collect();
        assert_eq!(ids.len(), 100);
        for id in ids {
            let groups: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
            assert!(id.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{id}");
            assert_eq!(id.as_bytes()[14], b'4', "{id}");
            assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
    }
}
