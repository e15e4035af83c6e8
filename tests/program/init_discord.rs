//! `hermes-relay init --discord`: the token is checked and stored, and the invitation is printed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::http_stub::{Seen, Stub, json_reply};
use crate::support::relay_process::Setup;

const TOKEN: &str = "MTIz.abc.def-secret";

/// A Discord that knows one token; the application may read messages or not.
async fn api(flags: u64) -> Stub {
    Stub::start(move |seen: &Seen| -> Response<Body> {
        let is_known = seen.header("authorization") == Some(&*format!("Bot {TOKEN}"));
        match seen.path() {
            _ if !is_known => json_reply(401, &json!({"message": "401: Unauthorized", "code": 0})),
            "/users/@me" => json_reply(200, &json!({"id": "500", "username": "helper"})),
            "/applications/@me" => json_reply(200, &json!({"id": "501", "flags": flags})),
            _ => json_reply(404, &json!({"message": "unknown", "code": 0})),
        }
    })
    .await
}

/// Runs `init` in a home without settings, with a token piped in: exit code, output, errors.
async fn init(setup: &Setup, token: &str, args: &[&str]) -> (i32, String, String) {
    let args = [
        &[
            "init",
            "--agent",
            "echo",
            "--yes",
            "--discord",
            "--token-file",
            "-",
        ],
        args,
    ]
    .concat();
    let mut command = setup.verb(&args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may not want it.
    let _ = stdin.write_all(token.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn new_home() -> Setup {
    let setup = Setup::new();
    fs::remove_file(setup.home().join("relay.yaml")).unwrap();
    setup
}

#[tokio::test]
async fn a_script_makes_a_bot_and_gets_its_invitation() {
    let api = api(0).await;
    let setup = new_home();
    let args = ["--api-base", &api.base(), "--owner", "777"];
    let (code, out, err) = init(&setup, TOKEN, &args).await;
    assert_eq!(code, 0, "{out}{err}");
    for part in [
        "Your bot is @helper.",
        "Message Content Intent",
        "discord:777 is an owner.",
        "client_id=501&scope=bot+applications.commands&permissions=309237763136",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!format!("{out}{err}").contains("secret"), "{out}{err}");
    let token = setup.home().join("discord-token");
    assert_eq!(fs::read_to_string(&token).unwrap(), format!("{TOKEN}\n"));
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(setup.home().join("relay.yaml")).unwrap();
    assert!(
        text.contains("  discord:\n    token_file: \"discord-token\"\n") && !text.contains("secret"),
        "{text}"
    );
}

#[tokio::test]
async fn a_script_reads_the_invitation_as_json() {
    let api = api(1 << 19).await;
    let setup = new_home();
    let (code, out, err) = init(&setup, TOKEN, &["--api-base", &api.base(), "--json"]).await;
    assert_eq!(code, 0, "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&report["telegram"], &report["discord"]["bot"]),
        (&Value::Null, &json!("helper"))
    );
    assert_eq!(report["discord"]["reads_content"], true);
    assert!(
        report["discord"]["invite"]
            .as_str()
            .unwrap()
            .contains("client_id=501"),
        "{report}"
    );
}

#[tokio::test]
async fn a_token_that_discord_refuses_writes_nothing() {
    let api = api(0).await;
    for (token, why) in [("MTIz.abc.other", "does not accept"), ("hunter2", "three parts")] {
        let setup = new_home();
        let (code, out, err) = init(&setup, token, &["--api-base", &api.base()]).await;
        assert_eq!(code, 1, "{out}{err}");
        assert!(
            err.contains(why) && err.contains("discord.com/developers"),
            "{err}"
        );
        assert!(!err.contains(token), "{err}");
        assert!(!setup.home().join("relay.yaml").exists());
        assert!(!setup.home().join("discord-token").exists());
    }
}
