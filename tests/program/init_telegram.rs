//! `hermes-relay init --telegram`: the token is checked, stored where only its owner can read it, and never shown.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::newcomer::decline_service;
use crate::support::executable::write_script;
use crate::support::http_stub::{Seen, Stub, json_reply, nobody};
use crate::support::relay_process::Setup;
use crate::support::terminal::{ENTER, Terminal, has};

const TOKEN: &str = "123456:AAbb_cc-DD";

/// A Bot API that knows one token.
async fn api() -> Stub {
    Stub::start(|seen: &Seen| -> Response<Body> {
        if seen.path() == format!("/bot{TOKEN}/getMe") {
            let bot =
                json!({"id": 123_456, "is_bot": true, "first_name": "Helper", "username": "helper_bot"});
            json_reply(200, &json!({"ok": true, "result": bot}))
        } else {
            json_reply(
                401,
                &json!({"ok": false, "error_code": 401, "description": "Unauthorized"}),
            )
        }
    })
    .await
}

/// A home without settings.
struct NewHome {
    setup: Setup,
}

impl NewHome {
    fn new() -> Self {
        let setup = Setup::new();
        fs::remove_file(setup.home().join("relay.yaml")).unwrap();
        Self { setup }
    }

    fn settings(&self) -> PathBuf {
        self.setup.home().join("relay.yaml")
    }

    fn token(&self) -> PathBuf {
        self.setup.home().join("telegram-token")
    }

    /// Runs `init` with the token piped in: exit code, standard output and standard error.
    async fn init(&self, piped: &str, args: &[&str]) -> (i32, String, String) {
        let args = [&["init", "--agent", "echo", "--yes", "--telegram"], args].concat();
        self.run(piped, &args).await
    }

    async fn run(&self, piped: &str, args: &[&str]) -> (i32, String, String) {
        let mut command = self.setup.verb(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // It may not want it.
        let _ = stdin.write_all(piped.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    async fn verb(&self, args: &[&str]) -> Value {
        let output = self.setup.verb(args).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

#[tokio::test]
async fn the_owner_is_made_although_the_agent_does_not_answer() {
    let (api, server) = (api().await, Stub::always(500, "{}").await);
    let home = NewHome::new();
    let (token, model) = (api.base(), server.base());
    let agent = ["init", "--agent", "openai", "--model", "m", "--base-url", &model];
    let bot = [
        "--yes",
        "--telegram",
        "--token-file",
        "-",
        "--api-base",
        &token,
        "--owner",
        "777",
    ];
    let (code, out, err) = home.run(TOKEN, &[&agent[..], &bot].concat()).await;
    assert_eq!(code, 1, "{out}{err}");
    for part in ["telegram:777 is an owner.", "Next:", "https://t.me/helper_bot"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let rules = home.verb(&["access", "list", "--json"]).await.to_string();
    assert!(rules.contains("telegram:777"), "{rules}");
}

#[tokio::test]
async fn a_script_makes_a_bot_with_an_owner() {
    let api = api().await;
    let home = NewHome::new();
    let (code, out, err) = home
        .init(
            &format!("{TOKEN}\n"),
            &["--token-file", "-", "--api-base", &api.base(), "--owner", "777"],
        )
        .await;
    assert_eq!(code, 0, "{out}{err}");
    for part in [
        "Your bot is @helper_bot.",
        "telegram:777 is an owner.",
        "https://t.me/helper_bot",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!format!("{out}{err}").contains("AAbb"), "{out}{err}");
    assert_eq!(fs::read_to_string(home.token()).unwrap(), format!("{TOKEN}\n"));
    let mode = fs::metadata(home.token()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let text = fs::read_to_string(home.settings()).unwrap();
    let section = format!(
        "  telegram:\n    token_file: \"telegram-token\"\n    api_base: \"{}\"\n",
        api.base()
    );
    assert!(text.ends_with(&section), "{text}");
    assert!(!text.contains("AAbb"), "{text}");
    let rules = home.verb(&["access", "list", "--json"]).await.to_string();
    assert!(
        rules.contains("telegram:777") && rules.contains("owner"),
        "{rules}"
    );
    let shown = home.verb(&["config", "show", "--json"]).await.to_string();
    assert!(
        shown.contains("direct.telegram") && !shown.contains("AAbb"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_file_with_another_token_is_kept_and_a_named_one_is_used_where_it_is() {
    let api = api().await;
    let home = NewHome::new();
    fs::write(home.token(), "9:other\n").unwrap();
    fs::set_permissions(home.token(), fs::Permissions::from_mode(0o600)).unwrap();
    let base = ["--api-base", &api.base()];
    let piped = [&base[..], &["--token-file", "-"]].concat();
    let (code, _, err) = home.init(TOKEN, &piped).await;
    assert!(
        code == 1 && err.contains("is kept") && err.contains("--force"),
        "{err}"
    );
    assert_eq!(fs::read_to_string(home.token()).unwrap(), "9:other\n");
    assert!(!home.settings().exists(), "nothing else is written either");

    let mine = home.setup.home().join("my token");
    fs::write(&mine, TOKEN).unwrap();
    fs::set_permissions(&mine, fs::Permissions::from_mode(0o644)).unwrap();
    let named = [&base[..], &["--token-file", mine.to_str().unwrap(), "--json"]].concat();
    let (code, _, err) = home.init("", &named).await;
    assert!(code == 78 && err.contains("chmod 600"), "{err}");
    fs::set_permissions(&mine, fs::Permissions::from_mode(0o600)).unwrap();
    let (code, out, err) = home.init("", &named).await;
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!(
        report["telegram"],
        json!({"bot": "helper_bot", "token_file": mine.display().to_string(), "owner": null})
    );
    assert_eq!(report["access"], "upstream");
    assert_eq!(fs::read_to_string(home.token()).unwrap(), "9:other\n");

    let forced = [&piped[..], &["--force"]].concat();
    let (code, out, err) = home.init(TOKEN, &forced).await;
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read_to_string(home.token()).unwrap(), format!("{TOKEN}\n"));
}

#[tokio::test]
async fn a_bot_is_added_to_a_file_without_its_agents_being_asked_for() {
    let api = api().await;
    let home = NewHome::new();
    let mine = "agents:\n  llm: {kind: echo}\nagent: llm\n";
    fs::create_dir_all(home.settings().parent().unwrap()).unwrap();
    fs::write(home.settings(), mine).unwrap();
    let args = [
        "init",
        "--telegram",
        "--add",
        "--yes",
        "--token-file",
        "-",
        "--api-base",
        &api.base(),
    ];
    let (code, out, err) = home.run(TOKEN, &args).await;
    assert_eq!(code, 0, "{out}{err}");
    let text = fs::read_to_string(home.settings()).unwrap();
    assert!(text.starts_with(mine), "{text}");
    assert!(
        text.contains("mode: pair") && text.contains("token_file: \"telegram-token\""),
        "{text}"
    );
    let shown = home.verb(&["config", "show", "--json"]).await.to_string();
    assert!(shown.contains("direct.telegram"), "{shown}");
}

#[tokio::test]
async fn nothing_is_written_without_a_token_that_telegram_accepts() {
    let api = api().await;
    let home = NewHome::new();
    let base = api.base();
    let nowhere = nobody();
    for (piped, args, expected, parts) in [
        (
            TOKEN,
            &["--api-base", &base][..],
            2,
            &["token is missing", "@BotFather"][..],
        ),
        ("", &["--token-file", "-"], 1, &["cannot be used", "@BotFather"]),
        ("not a token", &["--token-file", "-"], 1, &["no colon"]),
        (
            "9:wrong-one",
            &["--token-file", "-", "--api-base", &base],
            1,
            &["does not accept it", "@BotFather"],
        ),
        (
            TOKEN,
            &["--token-file", "-", "--api-base", &nowhere],
            1,
            &["cannot check", "--no-test"],
        ),
        (TOKEN, &["--token-file", "-", "--owner", "@me"], 2, &["123456"]),
        (
            TOKEN,
            &["--token-file", "-", "--api-base", "http://b.example", "--no-test"],
            78,
            &["loopback"],
        ),
    ] {
        let (code, out, err) = home.init(piped, args).await;
        assert_eq!(code, expected, "{args:?}: {out}{err}");
        for part in parts {
            assert!(err.contains(part), "{args:?}: {part}: {err}");
        }
        assert!(!err.contains("wrong-one") && !err.contains("AAbb"), "{err}");
        assert!(!home.settings().exists(), "{args:?}");
    }
    let known = NewHome {
        setup: home
            .setup
            .env("GATEWAY_RELAY_URL", "wss://connector.example")
            .env("GATEWAY_RELAY_PLATFORMS", "telegram"),
    };
    let (code, _, err) = known.init(TOKEN, &["--token-file", "-"]).await;
    assert!(code == 78 && err.contains("GATEWAY_RELAY_PLATFORMS"), "{err}");
    assert!(!known.token().exists() && !known.settings().exists());
}

#[tokio::test]
async fn a_person_types_the_token_and_nobody_sees_it() {
    let api = api().await;
    let home = NewHome::new();
    let args = ["init", "--agent", "echo", "--telegram", "--api-base", &api.base()];
    let mut terminal = Terminal::start(home.setup.verb(&args));
    terminal.reply("Token (it is not shown):", "9:wrong-one").await;
    let again = |lines: &[String]| {
        let asks = lines
            .iter()
            .filter(|line| line.contains("Token (it is not shown):"));
        has(lines, "does not accept it") && asks.count() == 2
    };
    terminal.until("another chance", again).await;
    terminal.keys(TOKEN);
    terminal.keys(ENTER);
    decline_service(&mut terminal).await;
    let lines = terminal.shows("Write to @helper_bot on Telegram").await;
    assert!(!has(&lines, "AAbb") && !has(&lines, "wrong-one"), "{lines:#?}");
    assert_eq!(terminal.ends().await, (Some(0), true));
    assert_eq!(fs::read_to_string(home.token()).unwrap(), format!("{TOKEN}\n"));
}

#[tokio::test]
async fn telegram_is_offered_first_and_an_agent_that_acts_gets_pairing() {
    let home = NewHome::new();
    let programs = home.setup.home().join("bin");
    fs::create_dir(&programs).unwrap();
    write_script(&programs.join("gemini"), "#!/bin/sh\n");
    let file = home.setup.home().join("mine.yaml");
    let setup = home.setup.env("PATH", programs.to_str().unwrap());
    let args = ["init", "--no-test", "--config", file.to_str().unwrap()];
    let mut terminal = Terminal::start(setup.verb(&args));
    terminal.reply("Which one answers? [1]:", "").await;
    terminal.reply("Directory that it works in [", "").await;
    let lines = terminal.shows("Which one? [1]:").await;
    assert!(
        has(&lines, "1) telegram   a Telegram bot of your own"),
        "{lines:#?}"
    );
    terminal.keys(ENTER);
    terminal.reply("Token (it is not shown):", TOKEN).await;
    let lines = terminal.shows("hermes-relay doctor --config").await;
    assert!(
        has(&lines, "hermes-relay access approve CODE --role owner"),
        "{lines:#?}"
    );
    assert_eq!(terminal.ends().await, (Some(0), true));
    let text = fs::read_to_string(file).unwrap();
    assert!(
        text.contains("  mode: pair\n") && text.contains("token_file: \"telegram-token\"\n"),
        "{text}"
    );
}
