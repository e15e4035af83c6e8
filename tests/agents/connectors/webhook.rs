//! Deliveries to a webhook beyond the contract's checklist.

use hermes_relay::agent_connector::contract::CauseKind;
use hermes_relay::agent_connector::{AgentConnector as _, NoopConnector, dispatch};
use serde_json::json;

use super::statements::{named, notice, shown};
use super::{SECRET, augment, credentials, webhook};
use crate::support::http_stub::{Stub, reply_with};

#[tokio::test]
async fn credentials_do_not_follow_a_redirect() {
    let elsewhere = Stub::always(200, "").await;
    let target = elsewhere.url("/taken");
    let receiver = Stub::start(move |_| reply_with(307, &[("location", &target)], "")).await;
    let connector = webhook(
        &json!({"url": receiver.url("/")}),
        credentials(Some("Bearer abc"), Some(SECRET)),
    );
    let failure = connector.deliver("cc", &augment("d", "x")).await.unwrap_err();
    assert_eq!(
        (failure.cause_kind, failure.http_status),
        (CauseKind::HttpStatus, Some(307))
    );
    receiver.only();
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test]
async fn nobody_has_the_agent() {
    let targets = named(vec![Box::new(NoopConnector)]);
    for address in ["cc", "cc@term", "", "@term", "c\nc"] {
        let dispatched = dispatch(&targets, &notice(address)).await;
        assert!(!dispatched.is_accepted());
        let shown = shown(&dispatched);
        assert_eq!(
            (
                &shown["agent"],
                &shown["dispatched"],
                &shown["error"]["cause_kind"]
            ),
            (&json!(address), &json!([]), &json!("client_validation"))
        );
    }
}
