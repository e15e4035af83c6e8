//! Directories and programs as mailboxes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use hermes_relay::agent_connector::AgentConnector as _;
use hermes_relay::agent_connector::contract::CauseKind;
use serde_json::{Value, json};

use super::{augment, command, file};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_concurrent_deliveries_are_a_thousand_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    let connector = Arc::new(file(folder.path()));
    let text = "x".repeat(4_000);
    let deliveries = (0..1_000).map(|number| {
        let (connector, text) = (Arc::clone(&connector), text.clone());
        tokio::spawn(async move {
            connector
                .deliver("cc", &augment(&format!("d-{number}"), &text))
                .await
        })
    });
    for delivery in deliveries.collect::<Vec<_>>() {
        delivery.await.unwrap().unwrap();
    }
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let body: Value = serde_json::from_slice(&fs::read(entry.path()).unwrap()).unwrap();
        assert_eq!(
            (&body["agent_id"], &body["content"]),
            (&json!("cc"), &json!(text))
        );
        let id = body["meta"]["dispatch_id"].as_str().unwrap().to_owned();
        assert_eq!(entry.file_name().to_str(), Some(format!("{id}.json").as_str()));
        ids.insert(id);
    }
    assert_eq!(ids.len(), 1_000);
}

#[tokio::test]
async fn a_file_stays_in_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("drop")).unwrap();
    let connector = file(&folder.path().join("drop"));
    for id in ["../d", "/tmp/d", ".d", "a/b", ""] {
        let failure = connector.deliver("cc", &augment(id, "x")).await.unwrap_err();
        assert_eq!(failure.cause_kind, CauseKind::ClientValidation, "{id}");
    }
    let failure = connector.deliver("dd", &augment("d", "x")).await.unwrap_err();
    assert_eq!(failure.cause_kind, CauseKind::ClientValidation);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(connector.health_check().await);
    let missing = file(&folder.path().join("missing"));
    assert!(!missing.health_check().await);
    let failure = missing.deliver("cc", &augment("d", "x")).await.unwrap_err();
    assert!(failure.message.contains("mkdir -p"), "{failure}");
}

#[tokio::test]
async fn a_program_reads_the_body_and_its_exit_code_decides() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let script = format!("cat > '{}'; echo '{{\"delivery_id\": \"p-1\"}}'", kept.display());
    let payload = augment("d", "$(rm -rf /); 'x' \"y\"");
    let connector = command(&["sh", "-c", &script]);
    assert!(connector.health_check().await);
    let receipt = connector.deliver("cc@term", &payload).await.unwrap();
    assert_eq!(receipt.delivery_id.as_deref(), Some("p-1"));
    let body: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    assert_eq!(body, payload.to_body("cc@term"));

    let failing = command(&["sh", "-c", "cat >/dev/null; echo no room >&2; exit 7"]);
    let failure = failing.deliver("cc", &payload).await.unwrap_err();
    assert!(
        failure.message.contains("code 7") && failure.message.contains("no room"),
        "{failure}"
    );
    let deaf = command(&["true"]);
    deaf.deliver("cc", &augment("d", &"x".repeat(300_000)))
        .await
        .unwrap();
    let loud = command(&["sh", "-c", "head -c 1000000 /dev/zero"]);
    loud.deliver("cc", &payload).await.unwrap();
    let missing = command(&["no-such-program-here"]);
    assert!(!missing.health_check().await);
    let failure = missing.deliver("cc", &payload).await.unwrap_err();
    assert_eq!(failure.cause_kind, CauseKind::ClientValidation);
}
