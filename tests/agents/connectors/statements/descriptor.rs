//! Statements 1 to 13: what a connector says of itself, and its registration.

use hermes_relay::agent_connector::contract::StaticCapabilities;
use hermes_relay::agent_connector::{
    AgentConnector, CommandConnector, FileConnector, NoopConnector, RegistrationError, TargetRegistry,
    TmuxConnector, WebhookConnector,
};
use serde_json::{Value, json};

use super::{Bundled, notice};
use crate::connectors::{credentials, environment, file, webhook};
use crate::support::http_stub::{Stub, nobody};

/// Constants: there is no instance, and nothing can be asked.
const CAPABILITIES: [StaticCapabilities; 5] = [
    CommandConnector::CAPABILITIES,
    FileConnector::CAPABILITIES,
    NoopConnector::CAPABILITIES,
    TmuxConnector::CAPABILITIES,
    WebhookConnector::CAPABILITIES,
];

fn ids(connector: &dyn AgentConnector) -> Vec<String> {
    let agents = connector.list_agents().into_iter();
    agents.map(|agent| agent.agent_id).collect()
}

#[tokio::test]
async fn statement_1_capabilities_are_readable_without_an_instance() {
    let all = Bundled::new().await.all();
    for connector in all {
        let own = connector.capabilities();
        assert!(CAPABILITIES.contains(&own), "an instance says the same: {own:?}");
    }
}

#[test]
fn statement_2_connector_type_is_agent_connector() {
    for capabilities in CAPABILITIES {
        assert_eq!(
            serde_json::to_value(capabilities).unwrap()["connector_type"],
            "agent_connector"
        );
    }
}

#[test]
fn statement_3_implementation_is_not_empty() {
    let names = CAPABILITIES.map(|capabilities| capabilities.implementation);
    assert_eq!(names, ["command", "file", "noop", "tmux", "webhook"]);
}

#[test]
fn statement_4_contract_version_is_three_numbers() {
    for capabilities in CAPABILITIES {
        let parts: Vec<u32> = capabilities
            .contract_version
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect();
        assert_eq!(parts, [1, 0, 0]);
    }
}

#[test]
fn statement_5_features_are_booleans_under_the_six_known_names() {
    let flags = [
        "agent_status",
        "deliver",
        "health_check",
        "list_agents",
        "request_response",
        "wake",
    ];
    for capabilities in CAPABILITIES {
        let shown = serde_json::to_value(capabilities.features).unwrap();
        let features = shown.as_object().unwrap();
        assert_eq!(features.keys().collect::<Vec<_>>(), flags);
        assert!(features.values().all(Value::is_boolean));
    }
}

#[tokio::test]
async fn statement_6_list_agents_is_an_array_also_when_it_is_empty() {
    for connector in Bundled::new().await.all() {
        assert!(serde_json::to_value(connector.list_agents()).unwrap().is_array());
    }
    assert_eq!(
        serde_json::to_value(NoopConnector.list_agents()).unwrap(),
        json!([])
    );
}

#[test]
fn statement_7_list_agents_needs_no_network() {
    // No runtime runs here, and nobody listens at the addresses.
    let agent = json!({"url": nobody(), "wake_url": nobody()});
    let listed = webhook(&agent, credentials(None, None)).list_agents();
    assert_eq!(
        serde_json::to_value(listed).unwrap(),
        json!([{"agent_id": "cc", "capabilities": ["deliver", "augment", "template", "wake"]}])
    );
}

#[tokio::test]
async fn statement_8_every_descriptor_has_an_id() {
    for connector in Bundled::new().await.all() {
        assert!(ids(&*connector).iter().all(|id| !id.is_empty()), "{connector:?}");
    }
    let settings = json!({"agents": {" ": {"url": "https://hooks.example/"}}});
    let settings = serde_json::from_value(settings).unwrap();
    let refused = WebhookConnector::new(settings, credentials(None, None)).unwrap_err();
    assert!(refused.to_string().contains("empty id"), "{refused}");
}

#[test]
fn statement_9_one_agent_is_one_id_and_a_registry_lists_all() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(ids(&file(folder.path())), ["cc"]);
    let settings =
        json!({"agents": {"a": {"argv": ["cat"]}, "b": {"argv": ["cat"]}, "c": {"argv": ["cat"]}}});
    let registry = CommandConnector::new(serde_json::from_value(settings).unwrap(), environment());
    assert_eq!(ids(&registry), ["a", "b", "c"]);
}

#[test]
fn statement_10_ids_have_no_session() {
    let settings = json!({"agents": {"cc@term": {"url": "https://hooks.example/"}}});
    let settings = serde_json::from_value(settings).unwrap();
    let refused = WebhookConnector::new(settings, credentials(None, None)).unwrap_err();
    assert!(refused.to_string().contains("no `@`"), "{refused}");
}

#[tokio::test]
async fn statement_11_health_check_is_a_boolean_also_for_the_unreachable() {
    let away = json!({"url": nobody(), "status_url": nobody()});
    assert!(!webhook(&away, credentials(None, None)).health_check().await);
    let ill = Stub::always(503, "").await;
    let ill = json!({"url": ill.url("/"), "status_url": ill.url("/status")});
    assert!(!webhook(&ill, credentials(None, None)).health_check().await);
    let folder = tempfile::tempdir().unwrap();
    assert!(!file(&folder.path().join("missing")).health_check().await);
    for connector in Bundled::new().await.all() {
        assert!(connector.health_check().await, "{connector:?}");
    }
}

#[tokio::test]
async fn statement_12_a_failed_health_check_prevents_registration_and_names_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = TargetRegistry::default();
    let missing = Box::new(file(&folder.path().join("missing")));
    let refused = registry.register("drop-box", missing).await.unwrap_err();
    assert_eq!(refused, RegistrationError::Unhealthy("drop-box".to_owned()));
    assert!(refused.to_string().contains("`drop-box`"), "{refused}");
    let dispatched = registry.dispatch(&notice("cc")).await;
    assert!(!dispatched.is_accepted() && dispatched.dispatched.is_empty());
}

#[tokio::test]
async fn statement_13_a_passed_health_check_completes_registration() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = TargetRegistry::default();
    let drop_box = || Box::new(file(folder.path()));
    registry.register("drop-box", drop_box()).await.unwrap();
    let dispatched = registry.dispatch(&notice("cc")).await;
    assert!(dispatched.is_accepted(), "{dispatched:?}");
    assert_eq!(dispatched.dispatched[0].target, "drop-box");
    let again = registry.register("drop-box", drop_box()).await;
    assert_eq!(again, Err(RegistrationError::Duplicate("drop-box".to_owned())));
}
