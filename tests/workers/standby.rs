//! Several relays for one gateway: one is active, whatever is killed, stopped or away.
//!
//! The short form has a few rounds. The long form: `STANDBY_ROUNDS=50 cargo test --all-features --test workers standby`.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use hermes_relay::dev::ConnectorSettings;
use rustix::process::Signal;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Server;
use crate::doctor::doctor;
use crate::support::dev::{Connector, FrameKinds as _};
use crate::support::memory_relay::event;
use crate::support::port::free_port;
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::small_disk::SmallDisk;
use crate::support::wait::eventually;

/// How long it takes at most until another relay has the link.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// A relay of the cluster, with a state directory of its own.
fn member(server: &Server, connector: &Connector, name: &str) -> Setup {
    member_at(&server.settings().urls[0], connector, name)
}

/// The same, which reaches the server at another address.
pub(super) fn member_at(url: &str, connector: &Connector, name: &str) -> Setup {
    in_cluster(Setup::for_connector(connector), url, name)
}

/// This relay, as a member.
fn in_cluster(setup: Setup, url: &str, name: &str) -> Setup {
    setup
        .setting("nats.url", url)
        .setting("nats.prefix", "test")
        .setting("cluster.name", "home")
        .setting("cluster.member", name)
}

pub(super) async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

pub(super) async fn status(setup: &Setup) -> Value {
    let output = setup.verb(&["status", "--json"]).output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

pub(super) async fn wait_for_role(setup: &Setup, role: &str) -> Value {
    eventually(&format!("the relay is {role}"), async || {
        let status = status(setup).await;
        if status["role"] == role {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await
}

/// A standby that has everything.
pub(super) async fn wait_for_standby(setup: &Setup) {
    eventually("a standby in sync", async || {
        let status = status(setup).await;
        let cluster = &status["cluster"];
        let is_in_sync = cluster["position"].is_u64() && cluster["position"] == cluster["last"];
        if status["role"] == "standby" && is_in_sync {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
}

/// Two relays, of which the first is active.
async fn pair(server: &Server, connector: &Connector) -> [(Setup, RelayProcess); 2] {
    pair_with(server, connector, |first| first).await
}

/// Two relays, of which the first is active and has more settings.
async fn pair_with(
    server: &Server,
    connector: &Connector,
    adjust: impl FnOnce(Setup) -> Setup,
) -> [(Setup, RelayProcess); 2] {
    let first = adjust(member(server, connector, "a"));
    pair_of(first, member(server, connector, "b")).await
}

/// These two relays, `a` and `b`, of which the first is active.
pub(super) async fn pair_of(first: Setup, second: Setup) -> [(Setup, RelayProcess); 2] {
    let active = first.start();
    wait_for_role(&first, "active").await;
    let standby = second.start();
    wait_for_standby(&second).await;
    eventually("the active relay knows its standby", async || {
        let status = status(&first).await;
        let members = status["cluster"]["members"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_known = |member: &Value| member["name"] == "b" && member["position"].is_u64();
        if members.iter().any(is_known) {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    [(first, active), (second, standby)]
}

/// Waits for a connection that was not there before, and returns how long it took.
async fn taken_over(connector: &Connector, before: u64, since: Instant) -> Duration {
    eventually("another relay dials", async || connector.accepted() > before).await;
    since.elapsed()
}

pub(super) fn answers(connector: &Connector, id: &str) -> Vec<String> {
    let mut sent = connector.sent_messages();
    sent.retain(|sent| sent.reply_to.as_deref() == Some(id));
    sent.into_iter().map(|sent| sent.text).collect()
}

/// Every message is answered once or reported as interrupted.
async fn all_answered(connector: &Connector, ids: &[String]) {
    for id in ids {
        connector.reply_to(SOON, id).await.unwrap();
    }
    let mut echoes: HashMap<String, usize> = HashMap::new();
    for sent in connector.sent_messages() {
        if let (Some(id), true) = (sent.reply_to, sent.text.starts_with("echo: ")) {
            *echoes.entry(id).or_default() += 1;
        }
    }
    // What was sent twice was sent under the same id.
    let mut requests: HashMap<String, Vec<String>> = HashMap::new();
    for frame in connector.frames().iter().filter(|frame| frame.asks_for("send")) {
        let (action, text) = (&frame.json()["action"], |value: &Value| {
            value.as_str().unwrap_or_default().to_owned()
        });
        if text(&action["content"]).starts_with("echo: ") {
            let sent = requests.entry(text(&action["reply_to"])).or_default();
            sent.push(text(&frame.json()["requestId"]));
        }
    }
    assert!(ids.iter().any(|id| requests.contains_key(id)));
    for (id, sent) in &requests {
        assert!(sent.iter().all(|request| *request == sent[0]), "{id}: {sent:?}");
    }
    for id in ids {
        assert!(
            echoes.get(id).copied().unwrap_or_default() <= 1,
            "{id}: {:?}",
            answers(connector, id)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_when_the_active_relay_is_killed_and_again() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let [mut active, mut standby] = pair(&server, &connector).await;
    let rounds = std::env::var("STANDBY_ROUNDS")
        .ok()
        .and_then(|number| number.parse().ok());
    let mut ids = Vec::new();
    for round in 0..rounds.unwrap_or(2) {
        for number in 0..20 {
            let id = format!("k{round}-{number}");
            let text = if number % 5 == 0 { "sleep=300 hi" } else { "hi" };
            connector
                .deliver(&event(&format!("c{}", number % 7), &id, text))
                .unwrap();
            ids.push(id);
        }
        connector.reply_to(SOON, &format!("k{round}-3")).await.unwrap();
        let (before, since) = (connector.accepted(), Instant::now());
        active.1.kill().await;
        let took = taken_over(&connector, before, since).await;
        assert!(took < TAKE_OVER, "it took {took:?}");
        wait_for_role(&standby.0, "active").await;
        active.1 = active.0.start();
        wait_for_standby(&active.0).await;
        (active, standby) = (standby, active);
    }
    all_answered(&connector, &ids).await;
    active.1.stop().await;
    standby.1.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_was_stopped_for_a_while_sends_nothing_more_and_becomes_a_standby() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let [mut active, mut standby] = pair(&server, &connector).await;
    let rounds = std::env::var("STANDBY_ROUNDS")
        .ok()
        .and_then(|number| number.parse().ok());
    let mut ids = Vec::new();
    for round in 0..rounds.unwrap_or(1) {
        for number in 0..10 {
            let id = format!("s{round}-{number}");
            connector
                .deliver(&event(&format!("c{number}"), &id, "sleep=100 hi"))
                .unwrap();
            ids.push(id);
        }
        let (before, since) = (connector.accepted(), Instant::now());
        active.1.freeze().await;
        let took = taken_over(&connector, before, since).await;
        assert!(took < TAKE_OVER, "it took {took:?}");
        wait_for_role(&standby.0, "active").await;
        let accepted = connector.accepted();
        active.1.signal(Signal::CONT);
        wait_for_standby(&active.0).await;
        assert_eq!(connector.accepted(), accepted, "only one of them dials");
        (active, standby) = (standby, active);
    }
    all_answered(&connector, &ids).await;
    assert!(standby.1.count("starts over as a standby") >= 1);
    active.1.stop().await;
    standby.1.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_journal_that_a_killed_relay_left_is_removed_at_the_next_start() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let setup = member(&server, &connector, "a");
    let mut relay = setup.start();
    wait_for_role(&setup, "active").await;
    relay.kill().await;
    let left = ["journal.snapshot", "journal.snapshot-journal"].map(|name| setup.state_dir().join(name));
    for file in &left {
        std::fs::write(file, "half of it").unwrap();
    }
    let relay = setup.start();
    wait_for_role(&setup, "active").await;
    assert!(!left.iter().any(|file| file.exists()));
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_disk_has_no_room_for_a_copy_of_its_journal_lets_others_be_active_and_tries_again() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let Some(disk) = SmallDisk::mount(&setup.state_dir(), 12 << 10) else {
        return;
    };
    // The stream begins with a copy of what it has from before.
    let relay = setup.start();
    eventually("it dials", async || connector.accepted() > 0).await;
    connector.deliver(&event("c1", "before", "hi")).unwrap();
    connector.reply_to(SOON, "before").await.unwrap();
    relay.stop().await;
    let setup = in_cluster(setup, &server.settings().urls[0], "a");
    let relay = setup.start();
    relay.wait_for_log("not enough room").await;
    eventually("it stands by", async || {
        let status = status(&setup).await;
        if status["role"] == "standby" {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    let names = std::fs::read_dir(setup.state_dir()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.into_iter().any(|name| name.contains("snapshot")));
    disk.resize(64 << 10);
    wait_for_role(&setup, "active").await;
    connector.deliver(&event("c1", "after", "hi")).unwrap();
    connector.reply_to(SOON, "after").await.unwrap();
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_logs_its_state_and_reloads_its_settings() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let [(_, active), (setup, standby)] = pair(&server, &connector).await;
    standby.signal(Signal::USR2);
    standby
        .wait_for_log("dump: standby `b` of the cluster `home`")
        .await;
    standby.wait_for_log("dump: member `a` active").await;
    let setup = setup.setting("log.level", "debug");
    standby.signal(Signal::HUP);
    standby.wait_for_log("settings reloaded: log level").await;
    let setup = setup.setting("sessions.max_queue", "3");
    let reload = setup.verb(&["reload", "--json"]).output().await.unwrap();
    let reloaded: Value = serde_json::from_slice(&reload.stdout).unwrap();
    assert_eq!(reloaded["needs_restart"][0], "sessions.max_queue", "{reloaded}");
    assert_eq!(status(&setup).await["role"], "standby");
    standby.stop().await;
    active.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_changed_while_a_relay_stood_by_is_found_when_it_is_active() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let second = member(&server, &connector, "b").without_env("GATEWAY_RELAY_SECRET");
    let file = second.home().join("secret");
    let secret = connector.credentials().unwrap().secret;
    std::fs::write(&file, secret.expose_secret()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let second = second.env("GATEWAY_RELAY_SECRET_FILE", file.to_str().unwrap());
    let [(_, active), (_, standby)] = pair_of(member(&server, &connector, "a"), second).await;
    std::fs::write(&file, "a newer secret of the gateway").unwrap();
    active.stop().await;
    standby.wait_for_log("found new credentials").await;
    standby.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_waits_for_running_turns_and_is_quick_without_any() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let [active, standby] = pair(&server, &connector).await;
    connector
        .deliver(&event("c1", "slow", "sleep=1500 done"))
        .unwrap();
    eventually("the turn runs", async || {
        status(&active.0).await["turns_running"] == 1
    })
    .await;
    let output = active.0.verb(&["handover"]).output().await.unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("b is active now"),
        "{text}"
    );
    assert_eq!(answers(&connector, "slow"), ["echo: done"]);
    wait_for_role(&standby.0, "active").await;
    wait_for_standby(&active.0).await;
    connector.deliver(&event("c1", "next", "there")).unwrap();
    connector.reply_to(SOON, "next").await.unwrap();
    // Back again, by SIGTERM, with nothing to do.
    let (before, since) = (connector.accepted(), Instant::now());
    standby.1.terminate();
    let took = taken_over(&connector, before, since).await;
    println!("hand-over: {took:?}");
    assert!(took < Duration::from_secs(1), "it took {took:?}");
    let alone = active.0.verb(&["handover"]).output().await.unwrap();
    let text = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(
        alone.status.code() == Some(75) || !alone.status.success(),
        "{text}"
    );
    active.1.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_server_nothing_is_acknowledged_and_nothing_is_lost() {
    let Some(mut server) = Server::start() else { return };
    let connector = connector().await;
    let [active, standby] = pair(&server, &connector).await;
    connector.deliver(&event("c1", "before", "hi")).unwrap();
    connector.reply_to(SOON, "before").await.unwrap();
    server.kill();
    eventually("the active relay closes its connection", async || {
        connector.open_connections().is_empty()
    })
    .await;
    connector.deliver(&event("c1", "meanwhile", "hi")).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(answers(&connector, "meanwhile").is_empty());
    server.start_again();
    connector.reply_to(SOON, "meanwhile").await.unwrap();
    assert_eq!(answers(&connector, "before").len(), 1);
    let actives = async || {
        let roles = [
            status(&active.0).await["role"].clone(),
            status(&standby.0).await["role"].clone(),
        ];
        roles.iter().filter(|role| **role == "active").count()
    };
    eventually("one of them is active", async || actives().await == 1).await;
    active.1.stop().await;
    standby.1.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_joins_late_begins_with_the_snapshot() {
    let Some(server) = Server::start_taking(16 << 10) else {
        return;
    };
    let connector = connector().await;
    // It worked alone before there was a cluster.
    let alone = Setup::for_connector(&connector);
    let process = alone.start();
    connector.deliver(&event("c1", "alone", "hi")).unwrap();
    connector.reply_to(SOON, "alone").await.unwrap();
    process.stop().await;
    let first = alone
        .setting("nats.url", &server.settings().urls[0])
        .setting("nats.prefix", "test")
        .setting("cluster.name", "home")
        .setting("cluster.member", "a")
        .setting("cluster.snapshot_every", "100");
    let mut active = first.start();
    for number in 0..120 {
        // Longer than a record of this server.
        let text = if number == 0 {
            "long ".repeat(8000)
        } else {
            "hi".to_owned()
        };
        connector
            .deliver(&event("c1", &format!("m{number}"), &text))
            .unwrap();
    }
    connector.reply_to(SOON, "m119").await.unwrap();
    active.wait_for_log("made a snapshot of the journal").await;
    let second = member(&server, &connector, "b");
    let standby = second.start();
    wait_for_standby(&second).await;
    standby.wait_for_log("began with the cluster's snapshot").await;
    active.kill().await;
    wait_for_role(&second, "active").await;
    // What others answered is known here.
    for id in ["alone", "m0", "m119"] {
        connector.deliver(&event("c1", id, "hi")).unwrap();
    }
    connector.deliver(&event("c1", "new", "hi")).unwrap();
    connector.reply_to(SOON, "new").await.unwrap();
    for id in ["alone", "m1", "m119"] {
        assert_eq!(answers(&connector, id).len(), 1, "{id}");
    }
    standby.stop().await;
}

/// The metrics page of a relay.
async fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_show_the_cluster_and_the_doctor_takes_a_standby_for_healthy() {
    let Some(server) = Server::start() else { return };
    let connector = connector().await;
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let [active, standby] =
        pair_with(&server, &connector, |first| first.setting("serve.http", &address)).await;
    connector.deliver(&event("c1", "m1", "hi")).unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    let page = eventually("a standby in the metrics", async || {
        let page = metrics(port).await;
        let is_behind = !page.contains("\nhermes_relay_cluster_standby_lag_records 0\n");
        if is_behind { Err(page) } else { Ok(page) }
    })
    .await;
    for line in [
        "role{role=\"active\"} 1",
        "role{role=\"standby\"} 0",
        "members{role=\"active\"} 1",
        "members{role=\"standby\"} 1",
        "standbys_in_sync 1",
    ] {
        let line = format!("\nhermes_relay_cluster_{line}\n");
        assert!(page.contains(&line), "{line} in {page}");
    }
    let value = |name: &str| {
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
        lines.find_map(|value| value.trim().parse::<u64>().ok())
    };
    let commits = value("hermes_relay_cluster_commits_total ");
    assert!(commits > Some(0), "{page}");
    assert!(value("hermes_relay_cluster_last_record ") >= commits, "{page}");
    let examined = doctor(&standby.0).await;
    assert_eq!(examined.row("lock", None)["outcome"], "ok");
    assert!(examined.detail("lock", None).contains("a standby"));
    assert_eq!(examined.code, Some(0), "{:?}", examined.rows);
    active.1.stop().await;
    standby.1.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_in_the_settings_are_named() {
    let nowhere = Setup::new()
        .setting("cluster.name", "home")
        .args(&["config", "check"]);
    let (code, stderr) = nowhere.ends().await;
    assert!(code == 78 && stderr.contains("nats.url"), "{stderr}");
    let mistyped = Setup::new()
        .setting("nats.url", "nats://127.0.0.1:4222")
        .setting("cluster.name", "a.b")
        .args(&["config", "check"]);
    let (code, stderr) = mistyped.ends().await;
    assert!(code == 78 && stderr.contains("cluster.name"), "{stderr}");
    let wrong = Setup::new()
        .setting("nats.url", "nats://127.0.0.1:4222")
        .setting("cluster.name", "home")
        .setting("cluster.without_server", "wait")
        .args(&["config", "check"]);
    let (code, stderr) = wrong.ends().await;
    assert!(code == 78 && stderr.contains("stop, continue"), "{stderr}");
}
