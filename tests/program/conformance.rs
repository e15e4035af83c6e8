//! `hermes-relay conformance` against the embedded connector: as it is, and with faults that it must name.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hermes_relay::wire::problems;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::dev::{Connector, ConnectorSettings, Direction, OpAnswer, ResultRule, text_event};
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;

struct Report {
    code: i32,
    out: String,
    err: String,
}

impl Report {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{}{}", self.out, self.err))
    }

    /// The checks with an outcome.
    fn with(&self, outcome: &str) -> Vec<String> {
        let report = self.json();
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().filter(|check| check["outcome"] == outcome);
        found
            .map(|check| check["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn observed(&self, name: &str) -> String {
        let report = self.json();
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == name).unwrap();
        check["observed"].as_str().unwrap_or_default().to_owned()
    }
}

async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

async fn conformance(setup: &Setup, args: &[&str]) -> Report {
    let mut command = setup.verb(&[&["conformance"], args].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = timeout(SOON, command.output())
        .await
        .expect("an end in time")
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Report {
        code: ended.status.code().expect("an exit code"),
        out: text(&ended.stdout),
        err: text(&ended.stderr),
    }
}

/// A conformance run in which `write` writes a message whenever one is needed.
async fn run(connector: &Connector, write: impl Fn(&Connector, usize)) -> Report {
    let setup = Setup::for_connector(connector);
    let bell = setup.home().join("write");
    let command = format!("touch {0}; while [ -e {0} ]; do sleep 0.05; done", bell.display());
    let url = connector.url();
    let args = [
        &url,
        "--json",
        "--timeout",
        "3",
        "--wait",
        "20",
        "--deliver",
        &command,
    ];
    tokio::select! {
        report = conformance(&setup, &args) => report,
        () = whenever(&bell, |count| write(connector, count)) => unreachable!("it never ends"),
    }
}

async fn whenever(bell: &Path, write: impl Fn(usize)) {
    let mut count = 0;
    loop {
        if bell.exists() {
            count += 1;
            write(count);
            std::fs::remove_file(bell).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn message(connector: &Connector, count: usize) {
    let event = text_event("discord", "c1", &format!("m{count}"), "hello");
    connector.deliver(&event).unwrap();
}

/// The failures that a fault leads to.
async fn faulty(fault: impl FnOnce(&Connector), failed: &[&str]) -> Report {
    let connector = connector().await;
    fault(&connector);
    let report = run(&connector, message).await;
    assert_eq!(report.with("failed"), failed, "{}", report.out);
    assert_eq!(report.code, 1, "{}", report.out);
    report
}

#[tokio::test]
async fn the_embedded_connector_passes() {
    let connector = connector().await;
    let report = run(&connector, message).await;
    assert_eq!(
        (report.with("failed"), report.with("skipped")),
        (vec![], vec![]),
        "{}",
        report.out
    );
    assert_eq!((report.code, report.err.as_str()), (0, ""), "{}", report.out);
    assert_eq!(connector.messages_in("c1").len(), 1, "posted once");
    assert!(valid_frames(&connector) > 20);
}

/// Checks every frame by the schema, in both directions; returns how many there were.
fn valid_frames(connector: &Connector) -> usize {
    let mut frames = 0;
    for frame in connector.frames() {
        let definition = match frame.direction {
            Direction::FromGateway => "from_relay",
            Direction::ToGateway => "from_connector",
        };
        let json = frame.json();
        if !json.to_string().contains("conformance_unknown") {
            frames += 1;
            assert_eq!(problems(definition, json), [""; 0], "{json}");
        }
    }
    frames
}

#[tokio::test]
async fn every_frame_of_a_real_relay_is_valid_by_the_schema() {
    const PLATFORMS: [&str; 3] = ["discord", "telegram", "slack"];
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).env("GATEWAY_RELAY_PLATFORMS", &PLATFORMS.join(","));
    let relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    let mut turns = 0;
    for platform in PLATFORMS {
        // Few enough that the log has a line for each turn.
        let texts = ["stream=50 one two three four five six", "tools=2", "long=5000"];
        for text in texts {
            turns += 1;
            let event = text_event(platform, &format!("{platform}-chat"), &turns.to_string(), text);
            connector.deliver(&event).unwrap();
            eventually(text, async || relay.count("turn ended") == turns).await;
        }
        let question = text_event(
            platform,
            &format!("{platform}-asked"),
            &format!("{platform}-ask"),
            "ask",
        );
        connector.deliver(&question).unwrap();
    }
    let ops = eventually("questions", async || {
        let frames = connector.frames();
        let frames = frames
            .iter()
            .filter(|frame| frame.direction == Direction::FromGateway);
        let ops = frames.filter_map(|frame| frame.json()["action"]["op"].as_str().map(str::to_owned));
        let ops: Vec<String> = ops.collect();
        let asked = ops.iter().filter(|op| *op == "prompt").count();
        if asked == PLATFORMS.len() {
            Ok(ops)
        } else {
            Err(ops)
        }
    })
    .await;
    for op in ["send", "edit", "typing", "draft", "prompt", "react"] {
        assert!(ops.iter().any(|sent| sent == op), "no {op}: {ops:?}");
    }
    assert!(valid_frames(&connector) > 40);
}

#[tokio::test]
async fn a_second_connection_may_be_the_one_that_is_refused() {
    let connector = connector().await;
    connector.refuse_second_connections();
    message(&connector, 0);
    let report = run(&connector, message).await;
    assert_eq!(report.with("failed"), [""; 0], "{}", report.out);
}

#[tokio::test]
async fn without_a_message_it_asks_for_one_and_skips_what_needs_it() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let report = conformance(&setup, &[&connector.url(), "--wait", "1"]).await;
    assert_eq!(report.code, 0, "{}{}", report.out, report.err);
    assert_eq!(report.err, "Write a message to the bot within 1 s.\n");
    assert!(report.out.starts_with("TAP version 14\n1.."), "{}", report.out);
    let skipped = "delivery.again: what was not acknowledged comes again on the next connection, with the same `bufferId` # SKIP no message came within 1 s";
    assert!(report.out.contains(skipped), "{}", report.out);
    assert!(
        report.out.contains(" passed, 0 failed, 6 skipped\n"),
        "{}",
        report.out
    );
}

#[tokio::test]
async fn an_acknowledgement_that_is_not_handled_is_named() {
    // It delivers one at a time, so that the next message waits for ever.
    let failed = ["delivery.acknowledged", "sleep.buffered"];
    let report = faulty(Connector::ignore_acks, &failed).await;
    let observed = report.observed("delivery.acknowledged");
    assert_eq!(observed, "`b1` came again after its `inbound_ack`");
}

#[tokio::test]
async fn a_missing_redelivery_is_named() {
    let connector = connector().await;
    let event = text_event("discord", "c1", "m1", "hello");
    let frame = json!({"type": "inbound", "event": event, "bufferId": "lost"});
    let report = run(&connector, |connector, count| match count {
        1 => assert!(connector.send_raw(&format!("{frame}\n"))),
        count => message(connector, count),
    })
    .await;
    assert_eq!(report.with("failed"), ["delivery.again"], "{}", report.out);
    assert!(report.observed("delivery.again").starts_with("it did not come"));
}

#[tokio::test]
async fn a_message_without_a_buffer_id_is_named() {
    let connector = connector().await;
    let report = run(&connector, |connector, count| match count {
        1 => assert!(connector.deliver_live(&text_event("discord", "c1", "m1", "hello"))),
        count => message(connector, count),
    })
    .await;
    assert_eq!(report.with("failed"), ["delivery.buffer_id"], "{}", report.out);
}

#[tokio::test]
async fn a_result_that_comes_twice_is_named() {
    let twice = ResultRule::on("send", OpAnswer::Twice).once();
    let report = faulty(|connector| connector.script(twice), &["results.once"]).await;
    assert_eq!(
        report.observed("results.once"),
        "`send` was requested twice and answered 3 times"
    );
}

#[tokio::test]
async fn an_unknown_op_that_succeeds_or_gets_no_result_is_named() {
    let accepted = ResultRule::on("conformance_unknown", OpAnswer::Result(json!({"success": true})));
    let report = faulty(|connector| connector.script(accepted), &["results.unknown_op"]).await;
    assert_eq!(report.observed("results.unknown_op"), r#"{"success":true}"#);
    let silent = ResultRule::on("conformance_unknown", OpAnswer::Never);
    let failed = ["results.unknown_op", "results.once"];
    faulty(|connector| connector.script(silent), &failed).await;
}

#[tokio::test]
async fn a_wrong_close_code_is_named() {
    let failed = ["auth.missing", "auth.wrong", "auth.expired"];
    let report = faulty(|connector| connector.refuse_tokens_with(1008), &failed).await;
    assert_eq!(
        report.observed("auth.wrong"),
        "the connector closed with 1008 `unauthorized`"
    );
    let section = &report.json()["checks"][1]["section"];
    assert_eq!(section, "docs/wire.md#authentication");
}

#[tokio::test]
async fn a_malformed_descriptor_is_named() {
    let descriptor = json!({"contract_version": 1, "platform": "discord", "max_message_length": "2000",
        "supports_draft_streaming": false, "supports_edit": true, "supports_threads": true,
        "markdown_dialect": "discord", "len_unit": "chars"});
    let report = faulty(
        |connector| connector.set_descriptor("discord", descriptor),
        &["handshake.fields"],
    )
    .await;
    assert_eq!(
        report.observed("handshake.fields"),
        "descriptor: descriptor.label is missing; descriptor: descriptor.max_message_length is string, not integer"
    );
}

#[tokio::test]
async fn a_missing_answer_to_going_idle_is_named() {
    faulty(
        |connector| connector.ignore_going_idle(true),
        &["sleep.acknowledged"],
    )
    .await;
}

#[tokio::test]
async fn what_cannot_be_dialled_is_told_apart() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    assert_eq!(conformance(&setup, &[]).await.code, 2);
    let report = conformance(&setup, &["connector.example"]).await;
    assert_eq!(report.code, 78, "{}", report.err);
    let bare = Setup::new();
    let report = conformance(&bare, &[&connector.url()]).await;
    assert_eq!(report.code, 78, "{}", report.err);
    assert!(
        report.err.contains("hint: set GATEWAY_RELAY_ID"),
        "{}",
        report.err
    );
    connector.take_down().await;
    let report = conformance(&setup, &[&connector.url(), "--json", "--timeout", "1"]).await;
    assert_eq!(report.code, 1, "{}", report.err);
    assert!(report.with("failed").contains(&"handshake.descriptor".to_owned()));
}
