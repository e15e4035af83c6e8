//! The conformance suite, on every bundled substrate and on one that breaks its rules.

#![cfg(feature = "conformance")]

use std::pin::Pin;

use hermes_relay::agent_connector::conformance::{ConnectorCheck, check_connector};
use hermes_relay::agent_connector::contract::{
    AgentDescriptor, DeliveryPayload, DeliveryReceipt, StaticCapabilities, WakeOpts, WakeReceipt,
};
use hermes_relay::agent_connector::{AgentConnector, Delivering, NoopConnector};
use serde_json::json;

use super::{command, credentials, file, hook, webhook};
use crate::support::http_stub::Stub;

fn broken(checks: &[ConnectorCheck]) -> Vec<u8> {
    let broken = checks.iter().filter(|check| check.outcome.is_err());
    broken.map(|check| check.statement).collect()
}

#[tokio::test]
async fn every_bundled_substrate_conforms() {
    let receiver = Stub::always(200, "{}").await;
    let folder = tempfile::tempdir().unwrap();
    let ringing = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    let connectors: [Box<dyn AgentConnector>; 5] = [
        Box::new(hook(&receiver)),
        Box::new(webhook(&ringing, credentials(None, Some("secret")))),
        Box::new(file(folder.path())),
        Box::new(command(&["cat"])),
        Box::new(NoopConnector),
    ];
    for connector in connectors {
        let checks = check_connector(connector.as_ref()).await;
        assert_eq!(broken(&checks), [] as [u8; 0], "{connector:?}: {checks:#?}");
        assert!(checks.len() >= 6, "{checks:?}");
    }
}

/// Claims to have woken, lists a session, delivers to anybody, in seconds.
#[derive(Debug)]
struct Liar;

impl AgentConnector for Liar {
    fn capabilities(&self) -> StaticCapabilities {
        StaticCapabilities {
            contract_version: "1.0",
            ..NoopConnector::CAPABILITIES
        }
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        vec![AgentDescriptor {
            agent_id: "cc@term".to_owned(),
            agent_name: None,
            capabilities: None,
        }]
    }

    fn deliver<'c>(&'c self, _: &'c str, _: &'c DeliveryPayload) -> Delivering<'c, DeliveryReceipt> {
        Box::pin(async {
            Ok(DeliveryReceipt {
                delivered_at: 1_700_000_000,
                delivery_skipped: Some(false),
                ..DeliveryReceipt::default()
            })
        })
    }

    fn wake<'c>(&'c self, _: &'c str, _: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        Box::pin(async {
            Ok(WakeReceipt {
                woken_at: 1_700_000_000,
                woken: true,
                session_id: Some("wrong".to_owned()),
                warnings: Vec::new(),
            })
        })
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async { true })
    }
}

#[tokio::test]
async fn the_suite_finds_what_is_broken() {
    let mut found = broken(&check_connector(&Liar).await);
    found.dedup();
    assert_eq!(found, [4, 10, 17, 30, 17, 30, 25, 35, 39, 46, 45, 40]);
}
