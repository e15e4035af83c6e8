//! `hermes-relay notify`: what it prints, what arrives, what it refuses. No relay runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use hermes_relay::wire::sign;
use serde_json::{Value, json};

use crate::operate::{VerbOutput, verb, verb_with};
use crate::support::http_stub::{Stub, json_reply, nobody};
use crate::support::relay_process::Setup;

/// With these targets in the settings, one or more in each line.
fn setup(targets: &str) -> Setup {
    let setup = Setup::new();
    setup.write("relay.yaml", &format!("notify:\n targets:\n{targets}"));
    setup
}

/// A webhook under the name `hooks`, for the agent `cc`.
fn hooks(receiver: &Stub, rest: &str) -> String {
    let url = receiver.url("/cc");
    format!("  hooks: {{kind: webhook, agents: {{cc: {{url: '{url}'}}}}{rest}}}\n")
}

fn printed(output: &VerbOutput) -> Value {
    assert_eq!(output.out.lines().count(), 1, "one line: {output:?}");
    serde_json::from_str(&output.out).unwrap()
}

#[tokio::test]
async fn a_notice_is_signed_authorised_and_delivered_to_all_that_have_the_agent() {
    let receiver = Stub::start(|_| json_reply(200, &json!({"delivery_id": "x-1", "session_id": "s"}))).await;
    let settings = hooks(&receiver, ", auth_env: HOOK_AUTH, hmac_secret_file: hook.secret")
        + "  drop: {kind: file, dir: inbox, agents: [cc, dd]}\n  other: {kind: file, dir: inbox, agents: [dd]}\n";
    let setup = setup(&settings).env("HOOK_AUTH", "Token abc");
    setup.write("hook.secret", "  the key\n\n");
    let secret = setup.home().join("hook.secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(setup.home().join("inbox")).unwrap();
    let args = [
        "notify",
        "cc",
        "-",
        "--event-type",
        "alert",
        "--kind",
        "template",
        "--json",
    ];
    let output = verb_with(&setup, &args, Some("Grüße\n")).await;
    let seen = receiver.only();
    let body = seen.json();
    let id = body["meta"]["dispatch_id"].as_str().unwrap();
    let dropped = setup.home().join("inbox").join(format!("{id}.json"));
    let shown = output.json();
    let at = |index: usize| shown["dispatched"][index]["receipt"]["delivered_at"].clone();
    assert_eq!(
        shown,
        json!({"agent": "cc", "dispatched": [
            {"connector": "drop", "ok": true, "route": "deliver",
                "receipt": {"delivered_at": at(0), "delivery_id": dropped.to_str().unwrap()}},
            {"connector": "hooks", "ok": true, "route": "deliver",
                "receipt": {"delivered_at": at(1), "delivery_id": "x-1", "session_id": "s"}}]})
    );
    assert_eq!(
        (
            &body["prompt"],
            &body["meta"]["event_type"],
            &body["meta"]["origin"]
        ),
        (
            &json!("Grüße"),
            &json!("alert"),
            &json!({"skill_name": "(unnamed)", "trigger_kind": "cli"})
        )
    );
    assert_eq!(seen.header("authorization"), Some("Token abc"));
    let signature = format!("sha256={}", sign(&seen.body, "the key"));
    assert_eq!(seen.header("x-signature"), Some(signature.as_str()));
    let dropped: Value = serde_json::from_slice(&fs::read(dropped).unwrap()).unwrap();
    assert_eq!(dropped, body);
}

#[tokio::test]
async fn an_address_with_a_session_wakes() {
    let receiver = Stub::always(200, "").await;
    let setup = setup(&hooks(&receiver, ""));
    let output = verb(&setup, &["notify", "cc@term", "get up"]).await;
    assert_eq!(
        (output.code, output.out.as_str()),
        (0, "hooks: delivered, not woken, session term\n")
    );
    assert_eq!(receiver.only().json()["agent_id"], "cc@term");
    let wake = receiver.url("/wake");
    let url = receiver.url("/cc");
    setup.write(
        "relay.yaml",
        &format!(
            "notify: {{targets: {{w: {{kind: webhook, agents: {{cc: {{url: '{url}', wake_url: '{wake}'}}}}}}}}}}\n"
        ),
    );
    let shown = verb(&setup, &["notify", "cc@term", "get up", "--json"])
        .await
        .json();
    let to = &shown["dispatched"][0];
    assert_eq!(
        (
            &to["route"],
            &to["receipt"]["woken"],
            &to["receipt"]["session_id"]
        ),
        (&json!("wake"), &json!(true), &json!("term"))
    );
}

#[tokio::test]
async fn one_that_refuses_is_a_failure_with_the_whole_object() {
    let (well, ill) = (
        Stub::always(200, "").await,
        Stub::always(403, "{\"error\": \"no\"}").await,
    );
    let settings = hooks(&well, "") + &hooks(&ill, "").replace("hooks", "ill");
    let setup = setup(&settings);
    let output = verb(&setup, &["notify", "cc", "x", "--json"]).await;
    assert_eq!(output.code, 1);
    let shown = printed(&output);
    assert_eq!(
        (&shown["dispatched"][0]["ok"], &shown["dispatched"][1]),
        (
            &json!(true),
            &json!({"connector": "ill", "ok": false, "route": "deliver", "error":
                {"cause_kind": "http_status", "http_status": 403, "message": "the receiver answered 403: no"}})
        )
    );
    let output = verb(&setup, &["notify", "cc", "x"]).await;
    assert_eq!((output.code, output.out.as_str()), (1, "hooks: delivered\n"));
    assert!(
        output.err.contains("error: ill: the receiver answered 403: no"),
        "{output:?}"
    );
}

#[tokio::test]
async fn nobody_has_the_agent() {
    let receiver = Stub::always(200, "").await;
    let setup = setup(&hooks(&receiver, ""));
    for args in [["notify", "ccc", "x", "--json"], ["notify", "", "x", "--json"]] {
        let output = verb(&setup, &args).await;
        assert_eq!(output.code, 1);
        let shown = printed(&output);
        assert_eq!(
            (&shown["agent"], &shown["dispatched"]),
            (&json!(args[1]), &json!([]))
        );
        assert_eq!(shown["error"]["cause_kind"], "client_validation");
    }
    let output = verb(&setup, &["notify", "cc", " ", "--json"]).await;
    assert_eq!(output.code, 1);
    assert_eq!(printed(&output)["error"]["message"], "the text is empty");
    let long = "x".repeat(1024 * 1024 + 1);
    let output = verb_with(&setup, &["notify", "cc", "-", "--json"], Some(&long)).await;
    assert_eq!(output.code, 1);
    assert_eq!(printed(&output)["error"]["cause_kind"], "client_validation");
    let script = r#"printf '\377' | "$0" notify cc - --json"#;
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_hermes-relay")]);
    let ended = shell.env("HERMES_HOME", setup.home()).output().await.unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let shown: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(shown["error"]["cause_kind"], "client_validation", "{shown}");
    let output = verb(&setup, &["notify", "ccc", "x"]).await;
    assert_eq!(output.code, 1);
    assert!(output.err.contains("did you mean `cc`?"), "{output:?}");
    let output = verb(&Setup::new(), &["notify", "cc", "x"]).await;
    assert!(output.err.contains("docs/notify.md"), "{output:?}");
    assert_eq!(receiver.seen().len(), 0);
}

#[tokio::test]
async fn waiting_is_for_those_that_can() {
    let receiver = Stub::always(200, "").await;
    let setup = setup(&hooks(&receiver, ""));
    let output = verb(&setup, &["notify", "cc", "x", "--wait", "60", "--json"]).await;
    assert_eq!(output.code, 1);
    let to = &printed(&output)["dispatched"][0];
    assert_eq!(
        (&to["route"], &to["error"]["cause_kind"]),
        (&json!("request_response"), &json!("not_implemented"))
    );
}

#[tokio::test]
async fn secrets_that_are_missing_or_open_to_all_are_said_without_them() {
    let receiver = Stub::always(200, "").await;
    let without = setup(&hooks(&receiver, ", auth_env: HOOK_AUTH"));
    let output = verb(&without, &["notify", "cc", "x", "--json"]).await;
    let error = &printed(&output)["dispatched"][0]["error"];
    assert_eq!(error["cause_kind"], "client_validation");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("HOOK_AUTH is not set"),
        "{error}"
    );
    let open = setup(&hooks(&receiver, ", hmac_secret_file: hook.secret"));
    open.write("hook.secret", "the-key-of-the-hook");
    let file = open.home().join("hook.secret");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let output = verb(&open, &["notify", "cc", "x"]).await;
    assert_eq!(output.code, 1);
    assert!(
        output.err.contains("chmod 600") && !output.err.contains("the-key"),
        "{output:?}"
    );
    assert_eq!(receiver.seen().len(), 0);
}

#[tokio::test]
async fn the_check_of_a_file_refuses_what_notify_refuses() {
    for (targets, wanted) in [
        ("  a: {kind: webhok}\n", "did you mean `webhook`?"),
        (
            "  a: {kind: webhook, agents: {cc: {url: 'http://h.example/'}}}\n",
            "loopback",
        ),
        ("  a: {kind: file, dir: d, agents: [a@b]}\n", "an id has no `@`"),
        (
            "  a: {kind: command, agents: {cc: {argv: []}}}\n",
            "must start with a program",
        ),
        ("  a: {kind: tmux, agents: {}}\n", "`agents` is empty"),
        ("  a: {kind: noop, agents: [x]}\n", "no options"),
    ] {
        let setup = setup(targets);
        let file = setup.home().join("relay.yaml");
        for args in [["config", "check", file.to_str().unwrap()], ["notify", "cc", "x"]] {
            let output = verb(&setup, &args).await;
            assert_eq!(output.code, 78, "{args:?}: {output:?}");
            assert!(output.err.contains(wanted), "{args:?}: {output:?}");
        }
    }
}

#[tokio::test]
async fn targets_are_listed_and_checked() {
    let receiver = Stub::always(200, "").await;
    let (url, away) = (receiver.url("/"), nobody());
    let setup = setup(&format!(
        "  a: {{kind: webhook, agents: {{cc: {{url: '{url}hook', status_url: '{url}'}}}}, auth: Bearer hunter2}}\n  \
         b: {{kind: webhook, agents: {{cc: {{url: '{url}', status_url: '{away}'}}}}}}\n  c: {{kind: file, dir: none, agents: [dd]}}\n  \
         d: {{kind: relay}}\n  e: {{kind: noop}}\n"
    ));
    let listed = verb(&setup, &["notify", "--list", "--json"]).await.json();
    let rows = listed.as_array().unwrap();
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (&row["name"], &row["kind"], &row["agents"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("a"), &json!("webhook"), &json!(["cc"])),
            (&json!("b"), &json!("webhook"), &json!(["cc"])),
            (&json!("c"), &json!("file"), &json!(["dd"])),
            (&json!("d"), &json!("relay"), &json!(["echo"])),
            (&json!("e"), &json!("noop"), &json!([])),
        ]
    );
    assert_eq!(
        rows[2]["capabilities"],
        json!({"connector_type": "agent_connector", "implementation": "file", "contract_version": "1.0.0", "features":
            {"deliver": true, "wake": false, "list_agents": true, "agent_status": false, "health_check": true,
             "request_response": false}})
    );
    let text = verb(&setup, &["notify", "--list"]).await;
    assert!(text.out.contains("webhook  deliver, wake"), "{text:?}");
    for (name, code) in [("a", 0), ("b", 1), ("c", 1), ("e", 0), ("f", 78)] {
        let output = verb(&setup, &["notify", "--test", name]).await;
        assert_eq!(output.code, code, "{name}: {output:?}");
    }
    let tested = verb(&setup, &["notify", "--test", "a", "--json"]).await.json();
    assert_eq!(tested, json!({"name": "a", "kind": "webhook", "healthy": true}));
    let shown = verb(&setup, &["config", "show"]).await;
    assert!(
        shown.out.contains("notify.targets.a.auth") && !shown.out.contains("hunter2"),
        "{shown:?}"
    );
    for args in [&["config", "show"][..], &["config", "show", "--json"]] {
        let shown = verb(&setup, args).await.out;
        assert!(shown.contains("/<hidden>") && !shown.contains("/hook"), "{shown}");
    }
}

#[tokio::test]
async fn the_former_section_and_the_former_verb_still_work() {
    let targets = "  a: {kind: noop}\n  b: {kind: file, dir: none, agents: [dd]}\n";
    let (setup, former) = (setup(targets), Setup::new());
    former.write("relay.yaml", &format!("connectors:\n{targets}"));
    for (old, new) in [
        (&["connectors", "list"][..], &["notify", "--list"][..]),
        (&["connectors", "list", "--json"], &["notify", "--list", "--json"]),
        (
            &["connectors", "test", "a", "--json"],
            &["notify", "--test", "a", "--json"],
        ),
        (&["connectors", "test", "b"], &["notify", "--test", "b"]),
        (&["connectors", "test", "c"], &["notify", "--test", "c"]),
    ] {
        let (old, new) = (verb(&former, old).await, verb(&setup, new).await);
        assert_eq!((old.code, &old.out), (new.code, &new.out), "{old:?} {new:?}");
        let (note, rest) = old.err.split_once('\n').unwrap();
        assert!(
            note.starts_with("note: ") && note.contains("hermes-relay notify --"),
            "{old:?}"
        );
        // The directory of `b` is another one.
        assert_eq!(rest.lines().next(), new.err.lines().next());
    }
    let help = verb(&setup, &["help", "--all"]).await;
    assert!(
        help.out.contains("  notify ") && !help.out.contains("  connectors "),
        "{help:?}"
    );

    let shown = verb(&former, &["config", "show"]).await;
    assert!(shown.out.contains("notify.targets.b.dir"), "{shown:?}");
    assert!(
        shown
            .out
            .contains("warning: `connectors` is now called `notify.targets`"),
        "{shown:?}"
    );
    let file = former.home().join("relay.yaml");
    let args = ["config", "check", file.to_str().unwrap()];
    let checked = verb(&former, &args).await;
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(checked.err.contains("`notify.targets`"), "{checked:?}");

    former.write(
        "relay.yaml",
        &format!("connectors:\n{targets}notify: {{targets: {{x: {{kind: noop}}}}}}\n"),
    );
    let checked = verb(&former, &args).await;
    assert_eq!(checked.code, 78);
    assert!(
        checked
            .err
            .contains("`connectors` and `notify.targets` are both set"),
        "{checked:?}"
    );
}

#[tokio::test]
async fn a_list_and_a_test_take_no_notice() {
    let setup = setup("  a: {kind: noop}\n");
    for args in [
        &["notify", "--list", "cc"][..],
        &["notify", "--test", "a", "cc", "x"],
        &["notify", "--list", "--wait", "1"],
        &["notify", "--list", "--test", "a"],
    ] {
        let output = verb(&setup, args).await;
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{args:?} {output:?}");
        assert!(output.err.contains("cannot be used with"), "{output:?}");
    }
}

#[tokio::test]
async fn the_object_is_printed_for_every_refusal() {
    let receiver = Stub::always(200, "").await;
    let good = setup(&hooks(&receiver, ""));
    let bad = setup("  a: {kind: webhok}\n");
    let cases: [(&Setup, &[&str], u8); 8] = [
        (&bad, &["notify", "cc", "x", "--json"], 78),
        (
            &good,
            &["notify", "cc", "x", "--json", "--config", "/none/relay.yaml"],
            78,
        ),
        (&good, &["notify", "cc", "--json"], 2),
        (&good, &["notify", "cc", "x", "--kind", "binary", "--json"], 2),
        (&good, &["notify", "--json", "--wait", "0", "cc", "x"], 2),
        (&good, &["notify", "cc", "x", "--skill", "s", "--json"], 2),
        (&good, &["notify", "cc", "x", "y", "--json"], 2),
        (&good, &["notify", "cc", "--skill", "s", "--json"], 1),
    ];
    for (setup, args, code) in cases {
        let output = verb(setup, args).await;
        assert_eq!(output.code, i32::from(code), "{args:?} {output:?}");
        let shown = printed(&output);
        assert_eq!(
            (
                &shown["agent"],
                &shown["dispatched"],
                &shown["error"]["cause_kind"]
            ),
            (&json!("cc"), &json!([]), &json!("client_validation")),
            "{args:?}"
        );
        assert!(
            shown["error"]["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
        assert!(output.err.starts_with("error: "), "{output:?}");
    }
    let shown = printed(&verb(&good, &["notify", "cc", "--json"]).await);
    assert_eq!(
        shown["error"]["message"],
        "the following required arguments were not provided: <TEXT>"
    );
    let output = verb(&good, &["notify", "cc"]).await;
    assert_eq!((output.code, output.out.as_str()), (2, ""));
    assert_eq!(receiver.seen().len(), 0);
}
