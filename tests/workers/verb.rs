//! `hermes-relay worker` as a process, and its settings.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::dev::{Connector, ConnectorSettings};
use crate::support::memory_relay::start_with;
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;
use crate::{Server, answered};

/// A worker's file.
fn worker(server: &str, pool: &str) -> Setup {
    Setup::new()
        .args(&["worker"])
        .setting("nats.url", server)
        .setting("nats.prefix", "test")
        .setting("worker.pool", pool)
        .setting("worker.agent", "echo")
        .setting("worker.slots", "2")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_verb_runs_turns_and_drains_on_sigterm() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut process = worker(&server.settings().urls[0], "p").start();
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "1", "hello").await;
    answered(&relay, "a", &["echo: hello"]).await;
    relay.deliver("b", "1", "sleep=1500 ends").await;
    relay.wait_for_turns(1).await;
    // Begun, not only queued.
    tokio::time::sleep(Duration::from_millis(500)).await;
    process.terminate();
    process.wait_for_log("no more turns are taken").await;
    assert!(!process.has_ended());
    relay.deliver("c", "1", "later").await;
    assert_eq!(process.exit_code(SOON).await, 0, "{}", process.stderr());
    answered(&relay, "b", &["echo: ends"]).await;
    let next = worker(&server.settings().urls[0], "p").start();
    answered(&relay, "c", &["echo: later"]).await;
    relay.stop().await;
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_the_pool_with_its_workers() {
    let Some(server) = Server::start() else { return };
    let url = &server.settings().urls[0];
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let setup = Setup::for_connector(&connector)
        .setting("nats.url", url)
        .setting("nats.prefix", "test")
        .setting("agents.code", "{kind: worker, pool: p}")
        .args(&["run", "--agent", "code"]);
    let relay = setup.start();
    let status = async || -> Value {
        let output = setup.verb(&["status", "--json"]).output().await.unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    let pool = eventually("a pool", async || {
        let status = status().await;
        status["pools"].get(0).cloned().ok_or(status)
    });
    assert_eq!(pool.await, json!({"name": "p", "waiting": 0, "workers": []}));
    let first = worker(url, "p").setting("worker.name", "first").start();
    let second = worker(url, "p").setting("worker.name", "second").start();
    let shown = |name: &str| {
        let version = env!("CARGO_PKG_VERSION");
        json!({"name": name, "version": version, "slots": 2, "running": 0, "draining": false})
    };
    eventually("both workers", async || {
        let pools = status().await["pools"].clone();
        let both = json!([shown("first"), shown("second")]);
        if pools[0]["workers"] == both {
            Ok(())
        } else {
            Err(pools)
        }
    })
    .await;
    let output = setup.verb(&["status"]).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("p: 2 workers, 0 of 4 slots busy, 0 waiting"),
        "{text}"
    );
    relay.stop().await;
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_its_server_keeps_trying_and_still_stops() {
    let port = crate::support::port::free_port();
    let process = worker(&format!("nats://127.0.0.1:{port}"), "p").start();
    process.wait_for_log("worker starts").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_its_section_says_what_to_add() {
    let (code, stderr) = Setup::new().args(&["worker"]).ends().await;
    assert_eq!(code, 78, "{stderr}");
    assert!(
        stderr.contains("no `worker` section") && stderr.contains("hint:"),
        "{stderr}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_check_names_a_mistake_in_a_pool() {
    let server = "nats://127.0.0.1:4222";
    let mistyped = worker(server, "a.b").args(&["config", "check"]);
    let (code, stderr) = mistyped.ends().await;
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("worker.pool"), "{stderr}");
    let unknown = worker(server, "p")
        .setting("worker.slot", "3")
        .args(&["config", "check"]);
    let (code, stderr) = unknown.ends().await;
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("slot"), "{stderr}");
}
