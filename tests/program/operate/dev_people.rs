//! `dev` and its people: who may write, what counts as an answer, and how it ends.

use std::io;
use std::path::Path;

use axum::body::Bytes;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::operate::dev_chat::{model, write};
use crate::operate::verb;
use crate::support::dev::{Connector, ConnectorSettings};
use crate::support::http_stub::plain_http;
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::terminal::{CTRL_C, CTRL_D, Terminal};
use crate::support::wait::eventually;

/// The settings that `init` writes: nobody may write until an owner lets them in.
fn paired() -> (Setup, String) {
    let setup = Setup::new().setting("access.mode", "pair");
    let config = setup.home().join("relay.yaml").display().to_string();
    (setup, config)
}

async fn page_of(dev: &RelayProcess) -> String {
    eventually("the page's address", async || {
        let out = dev.stdout();
        let line = out.lines().find(|line| line.trim().starts_with("http://"));
        line.map(|line| line.trim().to_owned())
    })
    .await
}

#[tokio::test]
async fn whoever_uses_dev_is_an_owner_whatever_the_rules_say() {
    let (setup, config) = paired();
    let mut terminal = Terminal::start(setup.verb(&["dev", "--agent", "echo", "--config", &config]));
    terminal.enter("hello").await;
    let lines = terminal.answered("echo: echo: hello").await;
    let said = |line: &String| line.starts_with("You and the people on the page are owners here");
    assert!(lines.iter().any(said), "{lines:#?}");
    terminal.enter("/whoami").await;
    terminal
        .until("the role", |lines| {
            lines.iter().any(|line| line.contains("Your role is owner."))
        })
        .await;
    let smoke = verb(
        &setup,
        &["dev", "--agent", "echo", "--config", &config, "--smoke"],
    )
    .await;
    assert_eq!(smoke.code, 0, "{smoke:?}");
}

#[tokio::test]
async fn a_stranger_on_the_page_is_let_in_by_the_printed_command() {
    let (setup, config) = paired();
    let args = [
        "dev", "--access", "--no-tui", "--agent", "echo", "--config", &config,
    ];
    let setup = setup.args(&args);
    let dev = setup.start();
    let page = page_of(&dev).await;
    let origin = page.split("/dev/").next().unwrap().to_owned();
    let http = plain_http();
    let say = async |text: &str| {
        let body = json!({ "chat": "dm-1", "who": "u1", "text": text });
        let request = http.post(format!("{page}say")).header("origin", &origin);
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    };
    // What the page gets to see, from the beginning.
    let shows = async |part: &str| {
        let seen = async {
            let mut events = http.get(format!("{page}events")).send().await.unwrap();
            let mut seen = String::new();
            while !seen.contains(part) {
                let chunk = events.chunk().await.unwrap().expect("more events");
                seen.push_str(&String::from_utf8_lossy(&chunk));
            }
            seen
        };
        timeout(SOON, seen)
            .await
            .unwrap_or_else(|_| panic!("{part} is not shown"))
    };
    say("hello").await;
    let seen = shows("Your pairing code is ").await;
    assert!(!seen.contains("echo: hello"), "{seen}");
    let (_, rest) = seen.split_once("Your pairing code is ").unwrap();
    let code: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    let out = dev.stdout();
    let command = out
        .lines()
        .find_map(|line| line.trim().strip_prefix("hermes-relay "));
    let command = command.expect("the command").replace("CODE", &code);
    let args: Vec<&str> = command.split_whitespace().collect();
    let approved = verb(&setup, &args).await;
    assert_eq!(approved.code, 0, "{approved:?}");
    say("hello again").await;
    shows("echo: hello again").await;
    dev.stop().await;
}

#[tokio::test]
async fn a_smoke_test_that_cannot_begin_prints_its_error_as_json() {
    let setup = Setup::new();
    setup.write("wrong.yaml", "lgo: {}\n");
    let wrong = setup.home().join("wrong.yaml").display().to_string();
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, part) in [
        (["--config", &wrong], "unknown key"),
        (["--agent", "no-such-agent"], "no agent named"),
        (["--port", &port], "cannot listen"),
    ] {
        let smoke = verb(&setup, &[&["dev", "--smoke", "--json"], &args[..]].concat()).await;
        let shown: Value = serde_json::from_str(&smoke.out).expect("one JSON document");
        assert_eq!(
            (smoke.code, &shown["error"]["exit_code"]),
            (78, &json!(78)),
            "{smoke:?}"
        );
        assert!(
            shown["error"]["message"].as_str().unwrap().contains(part),
            "{smoke:?}"
        );
    }
}

#[tokio::test]
async fn only_a_finished_answer_passes_the_smoke_test() {
    let (stub, pieces) = model().await;
    let setup = Setup::new().setting(
        "agents.llm",
        &format!("{{kind: openai, base_url: \"{}\", model: m}}", stub.url("/v1")),
    );
    let setup = setup.setting("access.mode", "open");
    let config = setup.home().join("relay.yaml").display().to_string();
    let args = ["dev", "--smoke", "--json", "--agent", "llm", "--config", &config];
    let (wire, cut_wire) = (setup.home().join("wire.jsonl"), setup.home().join("cut.jsonl"));
    let recorded = [&args[..], &["--record", wire.to_str().unwrap()]].concat();
    let cut_recorded = [&args[..], &["--record", cut_wire.to_str().unwrap()]].concat();
    // The chat shows the beginning, with its cursor.
    let is_shown = async |beginning: &str, wire: &Path| {
        eventually("a half answer on the wire", async || {
            std::fs::read_to_string(wire).is_ok_and(|frames| frames.contains(beginning))
        })
        .await;
    };
    let whole = async {
        write(&pieces, "The first half of it, ").await;
        is_shown("The first half", &wire).await;
        write(&pieces, "and the second.").await;
        let sender = pieces.lock().unwrap().take().unwrap();
        sender.send(Ok(Bytes::from("data: [DONE]\n\n"))).await.unwrap();
    };
    let (smoke, ()) = tokio::join!(verb(&setup, &recorded), whole);
    let shown: Value = serde_json::from_str(&smoke.out).unwrap();
    assert_eq!(
        (smoke.code, &shown["reply"]),
        (0, &json!("The first half of it, and the second.")),
        "{smoke:?}"
    );
    let broken = async {
        write(&pieces, "Only the first half, ").await;
        // A connection that breaks before its response has begun is one to try again.
        is_shown("Only the first half", &cut_wire).await;
        let sender = pieces.lock().unwrap().take().unwrap();
        sender.send(Err(io::Error::other("cut"))).await.unwrap();
    };
    let (smoke, ()) = tokio::join!(verb(&setup, &cut_recorded), broken);
    assert_eq!(smoke.code, 1, "{smoke:?}");
    let failed: Value = serde_json::from_str(&smoke.out).unwrap();
    assert!(
        failed["error"].as_str().unwrap().contains("`llm` failed"),
        "{failed}"
    );
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[tokio::test]
async fn dev_removes_its_temporary_state_on_every_signal() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup::new().env("TMPDIR", folder.path().to_str().unwrap());
        let mut dev = setup.args(&["dev", "--no-tui", "--agent", "echo"]).start();
        page_of(&dev).await;
        assert!(!is_empty(folder.path()));
        dev.signal(signal);
        assert_eq!(dev.exit_code(SOON).await, 0, "{signal:?}");
        assert!(is_empty(folder.path()), "{signal:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new().env("TMPDIR", folder.path().to_str().unwrap());
    let mut terminal = Terminal::start(setup.verb(&["dev", "--agent", "echo"]));
    terminal.enter("hello").await;
    terminal.answered("echo: echo: hello").await;
    terminal.signal(Signal::HUP);
    assert_eq!(terminal.ends().await, (Some(0), true));
    assert!(is_empty(folder.path()));
}

#[tokio::test]
async fn closing_the_terminal_of_a_relay_ends_it() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let setup = Setup::for_connector(&connector);
    let terminal = Terminal::start(setup.verb(&["run", "--agent", "echo"]));
    connector.wait_connected(SOON).await.unwrap();
    terminal.signal(Signal::HUP);
    assert_eq!(terminal.ends().await.0, Some(0));
}

#[tokio::test]
async fn the_keys_of_the_chat_exit_when_it_is_meant() {
    let mut terminal = Terminal::start(Setup::new().verb(&["dev"]));
    let warned = |count: usize| {
        move |lines: &[String]| {
            let warnings = lines
                .iter()
                .filter(|line| *line == "(press Ctrl-C again to exit)");
            warnings.count() == count && lines.last().is_some_and(|line| line == ">")
        }
    };
    terminal.until("a prompt", warned(0)).await;
    terminal.keys(CTRL_C);
    terminal.until("a warning", warned(1)).await;
    terminal.enter("/help").await;
    terminal
        .until("the keys", |lines| {
            lines
                .iter()
                .any(|line| line.starts_with("Keys: Ctrl-C stops the running turn"))
        })
        .await;
    terminal.enter("a **bold** word").await;
    terminal.answered("echo: echo: a bold word").await;
    assert!(terminal.written().contains("\x1b[1mbold\x1b[22m"));
    // What came between makes it the first one again.
    terminal.keys(CTRL_C);
    terminal.until("another warning", warned(2)).await;
    terminal.keys(CTRL_C);
    assert_eq!(terminal.ends().await, (Some(0), true));

    let mut terminal = Terminal::start(Setup::new().verb(&["dev"]));
    terminal.enter("sleep=3000 slow").await;
    terminal
        .until("activity", |lines| {
            lines.iter().any(|line| line.starts_with("echo: \u{2026}"))
        })
        .await;
    terminal.keys(CTRL_D);
    let shown = |wanted: &'static str| move |lines: &[String]| lines.iter().any(|line| line == wanted);
    let waits = "(waiting for the running turn to end; Ctrl-C stops it)";
    terminal.until(waits, shown(waits)).await;
    terminal.until("the answer", shown("echo: echo: slow")).await;
    assert_eq!(terminal.ends().await, (Some(0), true));
}
