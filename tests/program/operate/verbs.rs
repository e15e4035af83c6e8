//! Each verb beside a running relay.

use std::process::Stdio;

use crate::support::dev::{Connector, ConnectorSettings, GatewayCredentials, text_event};
use http::StatusCode;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use crate::operate::{answered, connected, connector, status, status_until, verb, verb_with};
use crate::support::relay_process::{SOON, Setup};
use crate::support::terminal::{CTRL_C, Terminal};
use crate::support::wait::eventually;

#[tokio::test]
async fn status_reports_everything() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    answered(&connector, "m1", "hello").await;
    let status = status_until(&setup, "a settled answer", |status| {
        status["tally"]["ops_applied"].as_u64() >= Some(1) && status["journal"]["owed"] == 0
    })
    .await;
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["pid"], relay.pid());
    assert_eq!(status["link"], "live");
    assert_eq!(status["ready"], true);
    let since = status["link_since_ms"].as_i64().unwrap();
    let (started, now) = (
        status["started_at_ms"].as_i64().unwrap(),
        status["now_ms"].as_i64().unwrap(),
    );
    assert!((started - 1000..=now).contains(&since), "{status}");
    assert!(status["link_retry_at_ms"].is_null());
    assert_eq!(status["descriptors"][0]["platform"], "discord");
    let ops = status["descriptors"][0]["ops"].as_array().unwrap();
    assert!(ops.contains(&"send".into()), "{ops:?}");
    assert_eq!(status["agents"][0]["name"], "echo");
    assert_eq!(status["agents"][0]["state"], "ready");
    assert_eq!(status["tally"]["turns_done"], 1);
    assert_eq!(status["journal"]["waiting"], 0);
    assert!(status["rss_bytes"].as_u64().unwrap() > 1_000_000);
    let shown = verb(&setup, &["status"]).await;
    assert_eq!(shown.code, 0);
    for part in [
        "link      live for",
        "platform  discord",
        "agent     echo (echo) ready",
        "1 done",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    assert!(
        !shown.out.contains('\x1b'),
        "no colour into a pipe: {:?}",
        shown.out
    );
    relay.stop().await;
}

#[tokio::test]
async fn sessions_are_listed_and_one_of_them_is_stopped() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let none = verb(&setup, &["sessions"]).await;
    assert_eq!((none.code, none.out.as_str()), (0, "no session runs or waits\n"));
    for (chat, id, text) in [
        ("c1", "m1", "sleep=60000 long"),
        ("c1", "m2", "next"),
        ("c2", "m3", "sleep=60000 other"),
    ] {
        connector.deliver(&text_event("discord", chat, id, text)).unwrap();
    }
    status_until(&setup, "two turns and one that waits", |status| {
        status["turns_running"] == 2 && status["journal"]["waiting"] == 1
    })
    .await;
    let list = verb(&setup, &["sessions", "--json"]).await.json();
    assert_eq!(list["total"], 2);
    let sessions = list["sessions"].as_array().unwrap();
    let busy = sessions.iter().find(|one| one["waiting"] == 1).unwrap();
    assert_eq!(
        (&busy["state"], &busy["agent"]),
        (&"running".into(), &"echo".into())
    );
    assert!(
        busy["running_ms"].is_u64() && busy["waiting_since_ms"].is_i64(),
        "{busy}"
    );
    let key = busy["session"].as_str().unwrap();
    let shown = verb(&setup, &["sessions"]).await.out;
    assert!(
        shown.contains(key) && shown.contains("1 waiting since"),
        "{shown}"
    );

    let completed = verb(&setup, &["complete", "--", "sessions", "stop", "agent:"])
        .await
        .out;
    assert_eq!(completed.lines().count(), 2, "{completed}");
    assert!(completed.lines().any(|name| name == key), "{completed}");

    let slip = format!("{}x", &key[..key.len() - 1]);
    let typo = verb(&setup, &["sessions", "stop", &slip]).await;
    assert_eq!(typo.code, 1);
    assert!(typo.err.contains("did you mean"), "{typo:?}");
    let nobody = verb(&setup, &["sessions", "stop", "no such session at all"]).await;
    assert_eq!(nobody.code, 1);
    assert!(nobody.err.contains("hermes-relay sessions"), "{nobody:?}");

    let stopped = verb(&setup, &["sessions", "stop", key]).await;
    assert_eq!((stopped.code, stopped.err.as_str()), (0, ""), "{stopped:?}");
    // What waited runs next; the other chat's turn goes on.
    connector.reply_to(SOON, "m2").await.unwrap();
    let status = status(&setup).await;
    assert_eq!(
        (&status["tally"]["turns_stopped"], &status["turns_running"]),
        (&1.into(), &1.into())
    );
    relay.terminate();
}

#[tokio::test]
async fn a_turn_of_another_instance_is_stopped_through_the_connector() {
    let gateway = |id: &str| GatewayCredentials {
        gateway_id: id.to_owned(),
        secret: format!("secret of {id}").into(),
    };
    let connector = Connector::start(ConnectorSettings {
        gateways: vec![gateway("gw-1"), gateway("gw-2")],
        ..ConnectorSettings::default()
    })
    .await
    .unwrap();
    let first = Setup::for_connector(&connector);
    let one = connected(&first).await;
    let sleeping = text_event("discord", "c1", "m1", "sleep=60000 long");
    connector.deliver(&sleeping).unwrap();
    status_until(&first, "a turn", |status| status["turns_running"] == 1).await;
    let list = verb(&first, &["sessions", "--json"]).await.json();
    let key = list["sessions"][0]["session"].as_str().unwrap().to_owned();
    // From here on, messages go to the second one.
    let second = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_ID", "gw-2")
        .env("GATEWAY_RELAY_SECRET", "secret of gw-2");
    let other = connected(&second).await;
    let stopped = verb(&second, &["stop", &key]).await;
    assert!(
        stopped.err.contains("note:") && stopped.err.contains("sessions stop"),
        "the former way: {stopped:?}"
    );
    assert_eq!(stopped.code, 1, "it is not known what becomes of it: {stopped:?}");
    assert!(stopped.err.contains("asked to stop it elsewhere"), "{stopped:?}");
    status_until(&first, "no turn", |status| {
        status["turns_running"] == 0 && status["tally"]["turns_stopped"] == 1
    })
    .await;
    for relay in [&one, &other] {
        relay.terminate();
    }
}

#[tokio::test]
async fn a_message_is_sent_unasked_from_the_command_line_and_from_a_pipe() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let unknown = verb(&setup, &["send", "--chat", "c1", "hi"]).await;
    assert_eq!(unknown.code, 1);
    assert!(
        unknown.err.contains("this relay knows no such chat") && unknown.err.contains("hint: check --chat"),
        "{unknown:?}"
    );
    let misspelt = verb(&setup, &["send", "--chat", "c1", "--platform", "discrod", "hi"]).await;
    assert_eq!(misspelt.code, 1);
    assert!(
        misspelt.err.contains("hint: did you mean `discord`?"),
        "{misspelt:?}"
    );
    answered(&connector, "m1", "hello").await;
    let sent = verb(
        &setup,
        &["send", "--chat", "c1", "--platform", "discord", "by argument"],
    )
    .await;
    assert_eq!((sent.code, sent.out.trim()), (0, "sent"), "{sent:?}");
    let sent = verb_with(
        &setup,
        &["send", "--chat", "c1", "--json", "-"],
        Some("by pipe\n"),
    )
    .await;
    assert_eq!(sent.json()["accepted"], true);
    assert_eq!(sent.json()["state"], "sent");
    for text in ["by argument", "by pipe"] {
        let seen = connector.until(text, SOON, |connector| {
            let sent = connector.sent_messages();
            sent.into_iter()
                .find(|sent| sent.text == text && sent.chat_id == "c1")
        });
        seen.await.unwrap();
    }
    let elsewhere = verb(&setup, &["send", "--chat", "c1", "--platform", "slack", "hi"]).await;
    assert_eq!(elsewhere.code, 1, "{elsewhere:?}");
    let empty = verb(&setup, &["send", "--chat", "c1", " "]).await;
    assert!(empty.code == 1 && empty.err.contains("empty"), "{empty:?}");
    let long = verb_with(&setup, &["send", "--chat", "c1", "-"], Some(&"x".repeat(70_000))).await;
    assert!(long.code == 1 && long.err.contains("too long"), "{long:?}");
    relay.stop().await;
}

#[tokio::test]
async fn reload_lists_what_needs_a_restart_and_what_is_wrong() {
    let connector = connector().await;
    let mut setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let same = verb(&setup, &["reload"]).await;
    assert_eq!((same.code, same.out.as_str()), (0, "settings reloaded\n"));
    setup = setup
        .setting("sessions.max_queue", "5")
        .setting("serve.http", "127.0.0.1:0");
    let changed = verb(&setup, &["reload", "--json"]).await.json();
    assert_eq!(
        changed["needs_restart"],
        serde_json::json!(["serve.http", "sessions.max_queue"])
    );
    relay.wait_for_log("need a restart").await;
    setup.write("relay.yaml", "link:\n  backof_min_ms: 5\n");
    // The asker finds the relay by another file: it is the relay that is told of the mistake.
    setup.write("asker.yaml", "log:\n  level: info\n");
    let (file, dir) = (setup.home().join("asker.yaml"), setup.state_dir());
    let (file, dir) = (file.to_str().unwrap(), dir.to_str().unwrap());
    let broken = verb(&setup, &["reload", "--config", file, "--state-dir", dir]).await;
    assert_eq!(broken.code, 78);
    assert!(
        broken.err.contains("backoff_min_ms") && broken.err.contains("old settings"),
        "{broken:?}"
    );
    relay.wait_for_log("cannot reload the settings").await;
    // With such a file no relay starts.
    setup.write("relay.yaml", "routes:\n  - platform: slack\n    agent: nope\n");
    let unknown = verb(&setup, &["reload", "--config", file, "--state-dir", dir]).await;
    assert_eq!(unknown.code, 78);
    assert!(
        unknown.err.contains("nope") && unknown.err.contains("old settings"),
        "{unknown:?}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_waits_reports_it_and_wakes_immediately() {
    let connector = connector().await;
    connector.refuse_dials(StatusCode::SERVICE_UNAVAILABLE, Some(600));
    let setup = Setup::for_connector(&connector);
    let relay = setup.start();
    relay.wait_for_log("cannot reach the connector").await;
    let status = status_until(&setup, "a wait", |status| status["link"] == "waiting").await;
    let wait = status["link_retry_at_ms"].as_i64().unwrap() - status["now_ms"].as_i64().unwrap();
    assert!(
        wait > 2 * i64::try_from(SOON.as_millis()).unwrap(),
        "waits too little to tell: {wait} ms"
    );
    assert!(status["last_loss"].as_str().unwrap().contains("503"), "{status}");
    assert_eq!(status["ready"], false);
    let ill = verb(&setup, &["health"]).await;
    assert_eq!(ill.code, 1);
    assert!(
        ill.out.contains("not ready") && ill.out.contains("503") && ill.out.lines().count() == 1,
        "{ill:?}"
    );
    let shown = verb(&setup, &["status"]).await.out;
    assert!(shown.contains("next dial in"), "{shown}");
    connector.accept_dials();
    let woken = verb(&setup, &["wake"]).await;
    assert_eq!(woken.code, 0, "{woken:?}");
    connector.wait_connected(SOON).await.unwrap();
    relay.wait_for_log("connected to the connector").await;
    let well = verb(&setup, &["health"]).await;
    assert_eq!((well.code, well.out.as_str()), (0, "live\n"));
    relay.stop().await;
}

#[tokio::test]
async fn a_connector_that_is_down_harms_no_verb() {
    let connector = connector().await;
    connector.take_down().await;
    let setup = Setup::for_connector(&connector);
    let relay = setup.start();
    relay.wait_for_log("cannot reach the connector").await;
    for args in [&["status"][..], &["sessions"], &["reload"], &["wake"]] {
        let output = verb(&setup, args).await;
        assert_eq!(output.code, 0, "{args:?}: {output:?}");
    }
    let ill = verb(&setup, &["health", "--json"]).await;
    assert_eq!(ill.code, 1);
    assert!(ill.out.contains(r#""ready":false"#), "{ill:?}");
    relay.stop().await;
}

#[tokio::test]
async fn who_watches_sees_line_after_line_until_the_reader_goes() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let mut watching = setup.verb(&["status", "--watch", "--json"]);
    let mut watching = watching
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert!(line.contains(r#""link":"live""#), "{line}");
    }
    drop(lines);
    let ended = timeout(SOON, watching.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    relay.stop().await;
}

#[tokio::test]
async fn in_a_terminal_the_top_of_the_status_stays_until_q_or_ctrl_c() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    for quit in ["q", CTRL_C] {
        let mut terminal = Terminal::start(setup.verb(&["status", "--watch"]));
        let is_whole = |lines: &[String]| {
            lines.first().is_some_and(|line| line.starts_with("relay "))
                && lines.last().is_some_and(|line| line == "every 2 s; q quits")
        };
        let first = terminal.until("the status", is_whole).await;
        eventually("two more pages", async || {
            terminal.written().matches("\x1b[H").count() >= 3
        })
        .await;
        let later = terminal.until("the status", is_whole).await;
        assert_eq!(later.len(), first.len(), "{later:#?}");
        // Other keys do nothing.
        terminal.keys("x");
        terminal.keys(quit);
        eventually("the first screen", async || {
            terminal.written().ends_with("\x1b[?1049l")
        })
        .await;
        assert!(terminal.lines().is_empty(), "{:#?}", terminal.lines());
        assert_eq!(terminal.ends().await, (Some(0), true));
    }
    relay.stop().await;
}

#[tokio::test]
async fn a_reader_that_has_gone_is_no_panic() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["sessions"],
        &["health"],
        &["wake"],
        &["reload"],
        &["completions", "bash"],
        &["man"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = setup
            .verb(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let ended = timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{args:?}");
    }
    relay.stop().await;
}
