//! `cluster.without_server: continue`: the active relay goes on without the server, and nobody else is active meanwhile.

use std::time::Duration;

use serde_json::Value;

use crate::Server;
use crate::proxy::Proxy;
use crate::standby::{answers, connector, member_at, pair_of, status, wait_for_role, wait_for_standby};
use crate::support::dev::Connector;
use crate::support::memory_relay::event;
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;

fn member(url: &str, connector: &Connector, name: &str) -> Setup {
    member_at(url, connector, name).setting("cluster.without_server", "continue")
}

async fn answered(connector: &Connector, chat: &str, id: &str) {
    connector.deliver(&event(chat, id, "hi")).unwrap();
    connector.reply_to(SOON, id).await.unwrap();
}

async fn wait_until_alone(setup: &Setup) {
    eventually("it is alone", async || {
        let status = status(setup).await;
        let is_alone = status["cluster"]["alone"]["commits"].as_u64() > Some(0);
        if is_alone { Ok(()) } else { Err(status) }
    })
    .await;
}

async fn wait_until_in_sync(setup: &Setup) {
    eventually("it is in sync again", async || {
        let status = status(setup).await;
        let is_alone = !status["cluster"]["alone"].is_null();
        if status["role"] == "active" && !is_alone {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
}

async fn verb(setup: &Setup, args: &[&str]) -> (Option<i32>, String) {
    let output = setup.verb(args).output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_active_relay_goes_on_alone_and_its_standby_gets_everything_when_the_server_is_back() {
    let Some(mut server) = Server::start() else { return };
    let connector = connector().await;
    let url = server.settings().urls[0].clone();
    let [mut active, standby] = pair_of(member(&url, &connector, "a"), member(&url, &connector, "b")).await;
    answered(&connector, "c1", "before").await;
    server.kill();
    for number in 0..5 {
        answered(&connector, "c1", &format!("alone-{number}")).await;
    }
    wait_until_alone(&active.0).await;
    // A restart goes on alone, too.
    active.1.kill().await;
    active.1 = active.0.start();
    answered(&connector, "c1", "restarted").await;
    let (code, text) = verb(&active.0, &["handover"]).await;
    assert!(
        code == Some(75) && text.contains("without the NATS server"),
        "{text}"
    );
    let (_, text) = verb(&active.0, &["status"]).await;
    assert!(text.contains("without the NATS server since record"), "{text}");
    assert_eq!(status(&standby.0).await["role"], "standby");
    server.start_again();
    wait_until_in_sync(&active.0).await;
    wait_for_standby(&standby.0).await;
    answered(&connector, "c1", "together").await;
    let before = connector.accepted();
    active.1.terminate();
    wait_for_role(&standby.0, "active").await;
    eventually("the standby dials", async || connector.accepted() > before).await;
    // What the other one answered alone is known here.
    let ids = ["before", "alone-0", "alone-4", "restarted", "together"];
    for id in ids {
        connector.deliver(&event("c1", id, "hi")).unwrap();
    }
    answered(&connector, "c1", "after").await;
    for id in ids {
        assert_eq!(answers(&connector, id).len(), 1, "{id}");
    }
    standby.1.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_from_a_silent_relay_by_a_persons_word_only() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let url = server.settings().urls[0].clone();
    let [mut active, standby] = pair_of(member(&url, &connector, "a"), member(&url, &connector, "b")).await;
    answered(&connector, "c1", "before").await;
    // As long as it is there, it is asked itself.
    let (code, text) = verb(&standby.0, &["handover", "--take", "--yes"]).await;
    assert!(code == Some(75) && text.contains("still renews"), "{text}");
    active.1.kill().await;
    let before = connector.accepted();
    eventually("the silence shows", async || {
        let (_, text) = verb(&standby.0, &["status"]).await;
        if text.contains("has not renewed its lease") && text.contains("handover --take") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(status(&standby.0).await["role"], "standby");
    assert_eq!(connector.accepted(), before, "nobody dials");
    let (code, text) = verb(&standby.0, &["handover", "--take"]).await;
    assert!(code == Some(2) && text.contains("--yes"), "{text}");
    let (code, text) = verb(&standby.0, &["handover", "--take", "--yes"]).await;
    assert!(code == Some(0) && text.contains("active now"), "{text}");
    answered(&connector, "c1", "after").await;
    active.1 = active.0.start();
    wait_for_standby(&active.0).await;
    active.1.stop().await;
    standby.1.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_was_replaced_while_it_was_alone_stops_and_keeps_its_journal_beside() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let proxy = Proxy::start(server.port).await;
    let url = server.settings().urls[0].clone();
    let [active, standby] = pair_of(
        member(&proxy.url(), &connector, "a"),
        member(&url, &connector, "b"),
    )
    .await;
    proxy.close();
    answered(&connector, "c1", "alone").await;
    wait_until_alone(&active.0).await;
    eventually("its lease is gone", async || {
        let silent = status(&standby.0).await["cluster"]["holder"]["silent_secs"].clone();
        if silent.as_u64() > Some(0) {
            Ok(())
        } else {
            Err(silent)
        }
    })
    .await;
    let (code, text) = verb(&standby.0, &["handover", "--take", "--yes"]).await;
    assert_eq!(code, Some(0), "{text}");
    proxy.open();
    wait_for_standby(&active.0).await;
    assert!(active.1.count("not the active member any more") >= 1);
    assert!(active.1.count("journal.stale") >= 1);
    let stale = std::fs::read_dir(active.0.state_dir())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.starts_with("journal.stale-"))
        .count();
    assert!(stale >= 1);
    let status: Value = status(&standby.0).await;
    assert_eq!(status["role"], "active");
    answered(&connector, "c1", "after").await;
    active.1.stop().await;
    standby.1.stop().await;
}
