//! Deliveries to agents, whenever the process dies: nothing that has a receipt is lost silently, nothing runs twice.
//!
//! The real binary is killed (SIGKILL) again and again at seeded random moments while playbooks are posted to its receiver. Whoever
//! got no receipt posts the same delivery again, as senders do. A last run works everything off. Then every delivery was started
//! once, as the agent itself notes, or its turn was cut short and reported.
//!
//! The short form is 20 rounds. The long form: `DELIVERY_ROUNDS=100 cargo test --all-features --test faults deliveries -- --nocapture`;
//! `CRASH_SEED` chooses another course.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings};
use serde_json::json;

use crate::rig::{Rng, env_number};
use crate::support::http_stub::plain_http;
use crate::support::load::loading;
use crate::support::port::free_port;
use crate::support::relay_process::Setup;
use crate::support::wait::eventually_within;

/// Deliveries per round.
const DELIVERIES: usize = 4;
const KEY: &str = "the-bearer-key";

/// What the agent does: it notes its message, and answers.
const AGENT: &str = "read -r line; echo \\\"$line\\\" >> \\\"NOTES\\\"; sleep 0.1; echo ran";

fn setup(connector: &Connector, notes: &Path, port: u16) -> Setup {
    let script = AGENT.replace("NOTES", &notes.display().to_string());
    let setup = Setup::for_connector(connector)
        .args(&["run", "--agent", "mark"])
        .env("PATH", "/usr/bin:/bin")
        .setting(
            "agents.mark",
            &format!("{{kind: command, argv: [/bin/sh, -c, \"{script}\"]}}"),
        )
        .setting("serve.http", &format!("\"127.0.0.1:{port}\""))
        .setting("serve.receiver", "{bearer_file: hook.key}");
    setup.write("hook.key", KEY);
    let file = setup.home().join("hook.key");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    setup
}

/// Posts a playbook; whether there was a receipt.
async fn post(client: &reqwest::Client, port: u16, number: usize) -> bool {
    let body = json!({
        "agent_id": "mark",
        "kind": "template",
        "prompt": format!("delivery-{number}"),
        // Sessions of their own, so that one does not wait for another.
        "session_id": format!("hook-{}", number % 7),
        "meta": {"dispatch_id": format!("d-{number}"), "sent_at": 1, "origin": {"skill_name": "t", "trigger_kind": "event"}},
    });
    let request = client
        .post(format!("http://127.0.0.1:{port}/v1/agents/mark/deliver"))
        .header("authorization", format!("Bearer {KEY}"))
        .timeout(Duration::from_secs(5))
        .body(body.to_string());
    let answer = request.send().await;
    answer.is_ok_and(|answer| answer.status() == 200)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_delivery_is_lost_silently_and_none_runs_twice_whenever_the_process_dies() {
    let _shared = loading().await;
    let rounds = env_number("DELIVERY_ROUNDS", 20);
    let mut rng = Rng::new(env_number("CRASH_SEED", 1) as u64);
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let notes = tempfile::tempdir().unwrap();
    let notes = notes.path().join("runs");
    fs::write(&notes, "").unwrap();
    let port = free_port();
    let setup = setup(&connector, &notes, port);
    let client = plain_http();
    let (mut unconfirmed, mut interrupted, mut confirmed) = (Vec::new(), 0, 0);
    for round in 0..rounds {
        let mut relay = setup.start();
        let first = round * DELIVERIES;
        unconfirmed.extend(first..first + DELIVERIES);
        let lives = tokio::time::sleep(Duration::from_millis(100 + rng.below(700)));
        let posting = async {
            loop {
                let mut left = Vec::new();
                for number in std::mem::take(&mut unconfirmed) {
                    if post(&client, port, number).await {
                        confirmed += 1;
                    } else {
                        left.push(number);
                    }
                }
                unconfirmed = left;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = lives => {}
            () = posting => {}
        }
        relay.kill().await;
        interrupted += relay.count("a turn was interrupted");
        // The select dropped what was being posted: everything is posted again, and what is known is not done again.
        unconfirmed = (0..first + DELIVERIES).collect();
    }
    let relay = setup.start();
    let all = rounds * DELIVERIES;
    eventually_within(
        Duration::from_secs(60),
        "every delivery has a receipt",
        async || {
            for number in 0..all {
                if !post(&client, port, number).await {
                    return None;
                }
            }
            Some(())
        },
    )
    .await;
    let counts = || -> Vec<usize> {
        let text = fs::read_to_string(&notes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        (0..all)
            .map(|number| {
                let name = format!("delivery-{number}");
                lines.iter().filter(|line| **line == name).count()
            })
            .collect()
    };
    let started = eventually_within(
        Duration::from_secs(60),
        "every delivery ran or was reported",
        async || {
            let started = counts();
            let missing = started.iter().filter(|count| **count == 0).count();
            let reported = interrupted + relay.count("a turn was interrupted");
            if missing <= reported {
                Ok(started)
            } else {
                Err((missing, reported))
            }
        },
    )
    .await;
    assert!(started.iter().all(|count| *count <= 1), "{started:?}");
    let ran = started.iter().filter(|count| **count == 1).count();
    eprintln!(
        "{rounds} rounds, {all} deliveries: {ran} started, {interrupted} cut short, {confirmed} receipts"
    );
    relay.stop().await;
}

/// Between its receipt and its agent's start a delivery is neither lost nor run twice: the turns wait for a process, and the relay is
/// killed before there is one for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_agent_was_given_yet_runs_once_after_a_kill() {
    let _shared = loading().await;
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("runs");
    fs::write(&notes, "").unwrap();
    let port = free_port();
    // The first turn holds the only process until it is killed.
    let script = "read -r line; echo \\\"$line\\\" >> \\\"NOTES\\\"; case $line in *-0) exec sleep 30;; esac";
    let script = script.replace("NOTES", &notes.display().to_string());
    let setup = setup(&connector, &notes, port).setting(
        "agents.mark",
        &format!("{{kind: command, argv: [/bin/sh, -c, \"{script}\"], max_parallel: 1}}"),
    );
    let client = plain_http();
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(&notes).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let mut relay = setup.start();
    for number in 0..5 {
        eventually_within(Duration::from_secs(30), "a receipt", async || {
            post(&client, port, number).await.then_some(())
        })
        .await;
        eventually_within(Duration::from_secs(30), "the first turn runs", async || {
            (lines() == ["delivery-0"]).then_some(())
        })
        .await;
    }
    relay.kill().await;
    let relay = setup.start();
    let mut ran = eventually_within(Duration::from_secs(60), "the others run", async || {
        let ran = lines();
        if ran.len() >= 5 { Ok(ran) } else { Err(ran) }
    })
    .await;
    for number in 0..5 {
        assert!(post(&client, port, number).await, "the same receipt again");
    }
    assert_eq!(relay.count("a turn was interrupted"), 1, "the one that had begun");
    ran.sort();
    let wanted: Vec<String> = (0..5).map(|number| format!("delivery-{number}")).collect();
    assert_eq!(ran, wanted);
    relay.stop().await;
    assert_eq!(lines().len(), 5);
}
