//! The reference gateway's own transport against our connector: what it says is understood, and the other way round.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::real_hermes::install;

const SOON: Duration = Duration::from_secs(60);
const DRIVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/agents/real_hermes/reference_gateway.py"
);

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_transport_connects_to_the_dev_connector_and_echoes() {
    let Some(hermes) = install::hermes().await else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    // The verb prints what any gateway needs to connect to it, line by line.
    let mut dev = Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
        .args(["dev", "--connector-only", "--platform", "discord"])
        .env("HERMES_HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let mut variables = Vec::new();
    while variables.len() < 4 {
        let line = timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
        if let Some((name, value)) = line
            .split_once('=')
            .filter(|(name, _)| name.starts_with("GATEWAY_"))
        {
            variables.push((name.to_owned(), value.to_owned()));
        }
    }
    let mut gateway = Command::new(hermes.program("python"))
        .args([DRIVER, "discord"])
        .envs(variables)
        .env("HERMES_HOME", home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut gateway_lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    let first = timeout(SOON, gateway_lines.next_line()).await.unwrap().unwrap();
    assert_eq!(
        first.as_deref(),
        Some("descriptor discord 2000"),
        "{}",
        complaint(&mut gateway).await
    );
    // What is typed at the connector is a message from the chat.
    dev.stdin
        .as_mut()
        .unwrap()
        .write_all(b"hello there\n")
        .await
        .unwrap();
    let answered = timeout(SOON, async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line.contains("reference: hello there") {
                return true;
            }
        }
        false
    });
    assert!(answered.await.unwrap(), "{}", complaint(&mut gateway).await);
    let result = timeout(SOON, gateway_lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap_or_default();
    assert!(result.starts_with("result True "), "{result}");
    assert!(timeout(SOON, gateway.wait()).await.unwrap().unwrap().success());
}

async fn complaint(gateway: &mut Child) -> String {
    let mut text = String::new();
    let _ = gateway.start_kill();
    if let Some(mut stderr) = gateway.stderr.take() {
        let _ = timeout(Duration::from_secs(5), stderr.read_to_string(&mut text)).await;
    }
    text
}
