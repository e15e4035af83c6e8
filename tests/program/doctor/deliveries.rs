//! What is wrong with the ways to hand something to an agent.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::doctor::rig::{Report, connector, doctor};
use crate::support::http_stub::Stub;
use crate::support::port::free_port;
use crate::support::relay_process::Setup;

/// The row of a probe about this subject.
#[track_caller]
fn says(report: &Report, id: &str, subject: &str, outcome: &str, parts: [&str; 2]) {
    let rows = report.of(id);
    let row = rows.iter().find(|row| row["subject"] == subject);
    let row = row.unwrap_or_else(|| panic!("nothing about {subject} in {rows:?}"));
    assert_eq!(row["outcome"], outcome, "{row}");
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    assert!(text("detail").contains(parts[0]), "{row}");
    assert!(text("remedy").contains(parts[1]), "{row}");
}

fn secret(setup: &Setup, name: &str, mode: u32) {
    setup.write(name, "hush-hush\n");
    let file = setup.home().join(name);
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn every_target_is_checked_and_gets_nothing() {
    let connector = connector().await;
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.passes(&["notify", "receiver"]);

    let hooks = Stub::always(200, "{}").await;
    let setup = Setup::for_connector(&connector)
        .setting(
            "notify.targets.hooks",
            &format!(
                "{{kind: webhook, agents: {{cc: {{url: {:?}, status_url: {:?}}}}}, hmac_secret_file: hook.secret}}",
                hooks.url("/cc"),
                hooks.url("/status")
            ),
        )
        .setting("notify.targets.plain", "{kind: webhook, agents: {cc: {url: \"http://127.0.0.1:9/\"}}}")
        .setting("notify.targets.drop", "{kind: file, dir: inbox, agents: [cc]}")
        .setting("notify.targets.programs", "{kind: command, agents: {cc: {argv: [cat]}}}")
        .setting("notify.targets.here", "{kind: relay}")
        .setting("notify.targets.nowhere", "{kind: noop}");
    secret(&setup, "hook.secret", 0o600);
    fs::create_dir(setup.home().join("inbox")).unwrap();
    let report = doctor(setup, &[]).await;
    for name in ["hooks", "drop", "programs", "nowhere"] {
        says(&report, "notify", name, "ok", ["it works", ""]);
    }
    says(
        &report,
        "notify",
        "plain",
        "ok",
        ["no agent has a `status_url`", ""],
    );
    says(&report, "notify", "here", "skipped", ["while it runs", ""]);
    assert_eq!(report.code, 0);
    assert_eq!(hooks.only().method, "GET", "nothing was handed over");
}

#[tokio::test]
async fn each_fault_of_a_target_has_a_remedy() {
    let connector = connector().await;
    let hook = |more: &str| {
        format!(
            "{{kind: webhook, agents: {{cc: {{url: \"http://127.0.0.1:9/\", status_url: \"http://127.0.0.1:9/\"}}}}{more}}}"
        )
    };
    let setup = Setup::for_connector(&connector)
        .setting("notify.targets.away", &hook(""))
        .setting("notify.targets.open", &hook(", hmac_secret_file: open.secret"))
        .setting("notify.targets.unset", &hook(", auth_env: NO_SUCH_VARIABLE_HERE"))
        .setting("notify.targets.drop", "{kind: file, dir: nowhere, agents: [cc]}")
        .setting(
            "notify.targets.pane",
            "{kind: tmux, agents: {cc: {target: \"no-such:0\"}}}",
        )
        .setting(
            "notify.targets.programs",
            "{kind: command, agents: {cc: {argv: [no-such-program]}}}",
        );
    secret(&setup, "open.secret", 0o644);
    let report = doctor(setup, &[]).await;
    for (name, parts) in [
        ("away", ["did not answer", "check that the receiver runs"]),
        ("open", ["chmod 600", "notify --test"]),
        ("unset", ["NO_SUCH_VARIABLE_HERE is not set", "notify --test"]),
        ("drop", ["cannot write to the directory", "mkdir -p"]),
        ("pane", ["tmux", "tmux list-panes -a"]),
        ("programs", ["not installed", "install the program"]),
    ] {
        says(&report, "notify", name, "failed", parts);
    }
    assert_eq!(report.code, 1);
    let all = serde_json::to_string(&report.rows).unwrap();
    assert!(!all.contains("hush-hush"));
}

#[tokio::test]
async fn the_receiver_is_checked_with_its_secrets_its_listener_and_its_target() {
    let connector = connector().await;
    let address = format!("127.0.0.1:{}", free_port());
    let setup = |deliver: &str| {
        let setup = Setup::for_connector(&connector)
            .setting("serve.http", &format!("\"{address}\""))
            .setting(
                "serve.receiver",
                &format!("{{bearer_file: hook.key, deliver: {deliver:?}}}"),
            );
        secret(&setup, "hook.key", 0o600);
        setup
    };
    let running = setup("discord:c1");
    let relay = running.start();
    relay.wait_for_log("connected to the connector").await;
    let report = doctor(running, &[]).await;
    says(&report, "receiver", "secrets", "ok", ["can be used", ""]);
    says(&report, "receiver", "listener", "ok", ["/v1/agents answers", ""]);
    says(&report, "receiver", "deliver", "ok", ["discord:c1", ""]);
    relay.stop().await;

    let report = doctor(setup("telegram"), &[]).await;
    says(
        &report,
        "receiver",
        "listener",
        "skipped",
        ["while a relay runs", ""],
    );
    says(
        &report,
        "receiver",
        "deliver",
        "warn",
        ["no home channel", "serve.receiver.deliver"],
    );
    let open = setup("local");
    secret(&open, "hook.key", 0o644);
    let report = doctor(open, &[]).await;
    let rows: Vec<&Value> = report.of("receiver");
    assert_eq!(rows.len(), 1, "{rows:?}");
    says(
        &report,
        "receiver",
        "secrets",
        "failed",
        ["every user", "chmod 600"],
    );
}
