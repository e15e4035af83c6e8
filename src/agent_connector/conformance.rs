//! The contract's checklist, for any [`AgentConnector`]: what can be seen from outside of one connector.
//!
//! It really delivers to and wakes the connector's first agent, so run it on a substrate that is made for the test. What a receiver
//! sees (the bytes, the signature, what stays unchanged) is up to the substrate's own tests.

use std::time::Duration;

use super::contract::{
    AgentActivity, CauseKind, DeliveryFailure, DeliveryKind, DeliveryMeta, DeliveryOrigin, DeliveryPayload,
    WakeOpts, WakeReceipt,
};
use super::{AgentConnector, new_dispatch_id, now_ms};

/// One statement of the checklist, and whether it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorCheck {
    /// Its number in the checklist.
    pub statement: u8,
    /// What it says.
    pub rule: &'static str,
    /// What was seen instead.
    pub outcome: Result<(), String>,
}

/// Times before this are no Unix milliseconds: September 2001.
const FIRST_MS: i64 = 1_000_000_000_000;
/// An id that no substrate has.
const NOBODY: &str = "nobody-of-the-conformance-suite";
const SESSION: &str = "conformance-session";

/// The checks so far.
struct Checklist(Vec<ConnectorCheck>);

impl Checklist {
    fn holds(&mut self, statement: u8, rule: &'static str, holds: bool, seen: impl FnOnce() -> String) {
        let outcome = if holds { Ok(()) } else { Err(seen()) };
        self.0.push(ConnectorCheck {
            statement,
            rule,
            outcome,
        });
    }
}

/// Runs the checklist. A connector without agents, like `noop`, is checked as far as that goes.
pub async fn check_connector(connector: &dyn AgentConnector) -> Vec<ConnectorCheck> {
    let mut list = Checklist(Vec::new());
    check_descriptors(connector, &mut list);
    list.holds(
        11,
        "health_check says whether the substrate works and does not fail",
        tokio::time::timeout(Duration::from_secs(60), connector.health_check())
            .await
            .is_ok(),
        || "no result within a minute".to_owned(),
    );
    let agents = connector.list_agents();
    if let Some(agent) = agents.first() {
        check_deliveries(connector, &agent.agent_id, &mut list).await;
        check_wakes(connector, &agent.agent_id, &mut list).await;
        check_requests(connector, &agent.agent_id, &mut list).await;
    }
    list.0
}

fn check_descriptors(connector: &dyn AgentConnector, list: &mut Checklist) {
    let capabilities = connector.capabilities();
    list.holds(
        2,
        "connector_type is agent_connector",
        capabilities.connector_type == "agent_connector",
        || capabilities.connector_type.to_owned(),
    );
    list.holds(
        3,
        "implementation is not empty",
        !capabilities.implementation.trim().is_empty(),
        String::new,
    );
    let parts: Vec<&str> = capabilities.contract_version.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    list.holds(
        4,
        "contract_version is digits.digits.digits",
        parts.len() == 3 && parts.iter().all(is_number),
        || capabilities.contract_version.to_owned(),
    );
    let agents = connector.list_agents();
    let ids = || agents.iter().map(|agent| agent.agent_id.as_str());
    list.holds(
        8,
        "every descriptor has an id",
        ids().all(|id| !id.trim().is_empty()),
        || format!("{agents:?}"),
    );
    list.holds(
        10,
        "ids are listed without a session",
        ids().all(|id| !id.contains('@')),
        || format!("{agents:?}"),
    );
}

/// A payload under a new id, or under a given one.
fn payload(kind: DeliveryKind, id: Option<&str>) -> DeliveryPayload {
    let id = id.map_or_else(|| new_dispatch_id().unwrap_or_default(), str::to_owned);
    DeliveryPayload {
        kind,
        text: "This is a check of the conformance suite.".to_owned(),
        meta: DeliveryMeta::new(&id, now_ms(), &DeliveryOrigin::default()),
    }
}

async fn check_deliveries(connector: &dyn AgentConnector, agent: &str, list: &mut Checklist) {
    for kind in [DeliveryKind::Augment, DeliveryKind::Template] {
        let payload = payload(kind, None);
        let receipt = connector.deliver(agent, &payload).await;
        list.holds(14, "both kinds are delivered", receipt.is_ok(), || {
            format!("{receipt:?}")
        });
        let Ok(receipt) = receipt else { continue };
        list.holds(
            17,
            "delivered_at is in Unix milliseconds",
            receipt.delivered_at >= FIRST_MS,
            || receipt.delivered_at.to_string(),
        );
        list.holds(
            30,
            "delivery_skipped is present only if it is true",
            receipt.delivery_skipped != Some(false),
            || format!("{receipt:?}"),
        );
        let again = connector.deliver(agent, &payload).await;
        list.holds(
            22,
            "the same dispatch_id again is a success",
            again.is_ok(),
            || format!("{again:?}"),
        );
    }
    let unknown = connector
        .deliver(NOBODY, &payload(DeliveryKind::Augment, None))
        .await;
    list.holds(
        25,
        "a delivery to an unknown agent fails with client_validation and no status",
        unknown.as_ref().err().is_some_and(is_validation),
        || format!("{unknown:?}"),
    );
}

fn is_validation(failure: &DeliveryFailure) -> bool {
    failure.cause_kind == CauseKind::ClientValidation && failure.http_status.is_none()
}

async fn check_wakes(connector: &dyn AgentConnector, agent: &str, list: &mut Checklist) {
    let context = || Some("This is a check of the conformance suite.".to_owned());
    let has_channel = connector.capabilities().features.wake;
    let is_fine = |receipt: &Result<WakeReceipt, DeliveryFailure>, session: Option<&str>| match receipt {
        // A substrate without sessions leaves it out.
        Ok(receipt) => receipt.session_id.is_none() || receipt.session_id.as_deref() == session,
        Err(_) => false,
    };
    let opts = WakeOpts {
        context: context(),
        ..WakeOpts::default()
    };
    let bare = connector.wake(agent, &opts).await;
    list.holds(
        36,
        "a wake without an interrupt channel does not fail",
        bare.is_ok(),
        || format!("{bare:?}"),
    );
    if let Ok(receipt) = &bare {
        list.holds(
            35,
            "woken_at is in Unix milliseconds",
            receipt.woken_at >= FIRST_MS,
            || receipt.woken_at.to_string(),
        );
        list.holds(
            39,
            "woken is true only where there is an interrupt channel",
            has_channel || !receipt.woken,
            || format!("{receipt:?}"),
        );
    }
    let composite = format!("{agent}@{SESSION}");
    let embedded = connector.wake(&composite, &opts).await;
    list.holds(
        48,
        "an address with a session is accepted",
        embedded.is_ok(),
        || format!("{embedded:?}"),
    );
    list.holds(
        46,
        "the resolved session is echoed",
        is_fine(&embedded, Some(SESSION)),
        || format!("{embedded:?}"),
    );
    let structured = WakeOpts {
        session_id: Some("conformance-other".to_owned()),
        context: context(),
        ..WakeOpts::default()
    };
    let structured = connector.wake(&composite, &structured).await;
    list.holds(
        45,
        "the structured session wins over the one in the address",
        is_fine(&structured, Some("conformance-other")),
        || format!("{structured:?}"),
    );
    let unknown = connector.wake(NOBODY, &opts).await;
    list.holds(40, "a wake of an unknown agent fails", unknown.is_err(), || {
        format!("{unknown:?}")
    });
}

async fn check_requests(connector: &dyn AgentConnector, agent: &str, list: &mut Checklist) {
    let origin = DeliveryOrigin {
        correlation_id: Some("conformance-correlation".to_owned()),
        ..DeliveryOrigin::default()
    };
    let request = DeliveryPayload {
        meta: DeliveryMeta::new(&new_dispatch_id().unwrap_or_default(), now_ms(), &origin),
        ..payload(DeliveryKind::Augment, None)
    };
    let wait = Duration::from_secs(30);
    let answer = connector.request_response(agent, &request, wait).await;
    let is_fine = match &answer {
        Ok(answer) => answer.correlation_id == "conformance-correlation",
        Err(failure) if connector.capabilities().features.request_response => {
            failure.cause_kind == CauseKind::Timeout
        }
        Err(failure) => failure.cause_kind == CauseKind::NotImplemented,
    };
    list.holds(
        56,
        "request_response honours the correlation id, or says that it is not implemented",
        is_fine,
        || format!("{answer:?}"),
    );
    let status = connector.agent_status(agent).await;
    let knows = connector.capabilities().features.agent_status;
    list.holds(
        57,
        "agent_status is unknown where the substrate does not know it",
        knows || status == AgentActivity::Unknown,
        || format!("{status:?}"),
    );
}
