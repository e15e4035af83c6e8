//! `hermes-relay init`, by options and in a terminal: what it writes, what it keeps, and what it tests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::dev::{Connector, ConnectorSettings, text_event};

use crate::support::executable::write_script;
use crate::support::http_stub::Stub;
use crate::support::relay_process::{SOON, Setup};
use crate::support::terminal::{ENTER, Terminal, has};

/// Puts a shell script into a directory of programs.
fn install(folder: &Path, name: &str, script: &str) {
    fs::create_dir_all(folder).unwrap();
    let program = folder.join(name);
    write_script(&program, &format!("#!/bin/sh\n{script}\n"));
}

/// A home without a settings file, and a directory of programs.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        Self { folder }
    }

    /// Installs a program that does nothing.
    fn install(&self, name: &str) {
        install(&self.folder.path().join("bin"), name, "");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(".hermes/relay.yaml")
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
            .args(args)
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", self.folder.path().join("bin"))
            .env("HERMES_RELAY_MODEL_PORTS", "1,1,1")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn init(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.run(&[&["init"], args].concat());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (
            output.status.code().unwrap(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    #[track_caller]
    fn is_valid(&self, file: &Path) {
        let output = self.run(&["config", "check", file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn options_write_a_file_that_is_accepted_and_tested_and_never_replaced_unasked() {
    let home = Home::new();
    let (code, out, err) = home.init(&["--agent", "echo", "--yes"]);
    assert_eq!(code, 0, "{out}{err}");
    for part in [
        "Wrote ",
        "echo: Say hello",
        "It answered after",
        "hermes-relay run",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    home.is_valid(&home.file());
    assert_eq!(
        fs::metadata(home.file()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mine = fs::read_to_string(home.file()).unwrap() + "# mine\n";
    fs::write(home.file(), &mine).unwrap();
    for args in [&["--agent", "echo", "--yes"][..], &["--agent", "echo", "--json"]] {
        let (code, _, err) = home.init(args);
        assert!(
            code == 1 && err.contains("is kept") && err.contains("--force"),
            "{err}"
        );
    }
    assert_eq!(fs::read_to_string(home.file()).unwrap(), mine);
    let (code, out, err) = home.init(&["--agent", "echo", "--json", "--force"]);
    assert_eq!(code, 0, "{err}");
    let copy = home.file().with_extension("yaml.bak");
    assert_eq!(fs::read_to_string(copy).unwrap(), mine, "a copy stays");
    let report: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!(report["config"], home.file().display().to_string());
    assert_eq!(
        (&report["agent"], &report["access"]),
        (&"echo".into(), &"upstream".into())
    );
    assert_eq!(report["tested"], true);
    assert!(!fs::read_to_string(home.file()).unwrap().contains("# mine"));
}

#[test]
fn an_agent_is_added_to_a_file_and_nothing_else_changes() {
    let home = Home::new();
    home.install("claude-agent-acp");
    fs::create_dir_all(home.folder.path().join(".hermes")).unwrap();
    let mine = "# Mine.\nagents:\n  llm: {kind: echo}   # for now\nagent: llm\nlog:\n  level: debug\n";
    fs::write(home.file(), mine).unwrap();
    let add = [
        "--agent",
        "claude",
        "--workdir",
        "/",
        "--add",
        "--no-test",
        "--yes",
    ];
    let (code, out, err) = home.init(&add);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("The file from before is "), "{out}");
    let text = fs::read_to_string(home.file()).unwrap();
    for part in mine.lines() {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("  claude:\n    preset: claude\n"), "{text}");
    assert!(
        text.contains("mode: pair"),
        "an agent that acts gets pairing: {text}"
    );
    home.is_valid(&home.file());
    assert_eq!(
        fs::read_to_string(home.file().with_extension("yaml.bak")).unwrap(),
        mine
    );
    // Twice is refused, with what to add by hand, and destroys nothing.
    let (code, _, err) = home.init(&add);
    assert!(
        code == 1 && err.contains("it has `agents.claude` already"),
        "{err}"
    );
    assert_eq!(fs::read_to_string(home.file()).unwrap(), text);
    // What would not be accepted is not written.
    fs::write(home.file(), "lgo: {}\n").unwrap();
    let (code, _, err) = home.init(&add);
    assert!(code == 78 && err.contains("unknown key `lgo`"), "{err}");
    assert_eq!(fs::read_to_string(home.file()).unwrap(), "lgo: {}\n");
}

#[test]
fn an_agent_that_can_act_gets_pairing_and_its_directory() {
    let home = Home::new();
    home.install("gemini");
    fs::create_dir(home.folder.path().join("work: it's")).unwrap();
    let file = home.folder.path().join("mine.yaml");
    let (code, out, err) = home.init(&[
        "--config",
        "mine.yaml",
        "--workdir",
        "work: it's",
        "--yes",
        "--no-test",
    ]);
    assert_eq!(code, 0, "the only installed agent is taken: {out}{err}");
    assert!(out.contains("`access.mode` is `pair`"), "{out}");
    home.is_valid(&file);
    let text = fs::read_to_string(&file).unwrap();
    for part in [
        "preset: gemini",
        "/work: it's\"\n",
        "agent: gemini\n",
        "mode: pair\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    home.install("goose");
    let (code, _, err) = home.init(&["--yes", "--no-test"]);
    assert!(
        code == 2 && err.contains("gemini, goose") && err.contains("--agent"),
        "{err}"
    );
}

#[test]
fn nothing_is_written_when_nobody_can_be_asked_or_the_agent_is_not_there() {
    let home = Home::new();
    for (args, expected, parts) in [
        (&[][..], 2, &["not a terminal", "--agent"][..]),
        (&["--agent", "gmini"], 2, &["did you mean `gemini`?"]),
        (&["--agent", "gemini"], 1, &["npm install", "--no-test"]),
        (&["--yes"], 1, &["no known agent is installed"]),
        (&["--agent", "openai", "--yes"], 2, &["--model"]),
        (
            &["--agent", "gemini", "--no-test", "--workdir", "missing"],
            78,
            &["--workdir"],
        ),
    ] {
        let (code, _, err) = home.init(args);
        assert_eq!(code, expected, "{args:?}: {err}");
        for part in parts {
            assert!(err.contains(part), "{args:?}: {part}: {err}");
        }
    }
    assert!(!home.file().exists());
}

#[tokio::test]
async fn an_agent_that_does_not_answer_is_a_failure_and_the_file_stays() {
    let home = Home::new();
    let server = Stub::always(500, "{}").await;
    let url = server.base();
    let (code, out, err) = tokio::task::spawn_blocking(move || {
        let output = home.init(&["--agent", "openai", "--model", "m", "--base-url", &url, "--yes"]);
        assert!(home.file().exists());
        output
    })
    .await
    .unwrap();
    assert_eq!(code, 1, "{out}{err}");
    assert!(
        err.contains("openai does not answer") && err.contains("agents test openai"),
        "{err}"
    );
    assert!(!err.contains("not done yet"), "nothing else was asked for: {err}");
}

#[tokio::test]
async fn what_was_asked_for_besides_an_agent_that_does_not_answer_is_done_or_named() {
    let server = Stub::always(500, "{}").await;
    let url = server.base();
    tokio::task::spawn_blocking(move || {
        let agent = ["--agent", "openai", "--model", "m", "--base-url", &url, "--yes"];
        let home = Home::new();
        let connector = ["--connector-url", "https://connector.invalid", "--service"];
        let (code, out, err) = home.init(&[&agent[..], &connector].concat());
        assert_eq!(code, 1, "{out}{err}");
        let open = "not done yet: `hermes-relay enroll --connector-url https://connector.invalid`, \
                    `hermes-relay service install --user --now`";
        assert!(err.contains(open), "{err}");
        assert!(
            out.contains("Next:\n") && out.contains("hermes-relay doctor"),
            "{out}"
        );
        let home = Home::new();
        let (code, out, _) = home.init(&[&agent[..], &["--json"]].concat());
        let report: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
        assert_eq!((code, &report["error"]["exit_code"]), (1, &1.into()), "{out}");
    })
    .await
    .unwrap();
}

#[test]
fn a_service_needs_somebody_to_talk_to() {
    let home = Home::new();
    let (code, _, err) = home.init(&["--agent", "echo", "--yes", "--service"]);
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("hint: add --telegram, --discord or --connector-url URL"),
        "{err}"
    );
    assert!(!home.file().exists());
}

#[tokio::test]
async fn a_person_chooses_in_the_terminal() {
    let setup = Setup::new();
    let file = setup.home().join("relay.yaml");
    let mut terminal = Terminal::start(setup.verb(&["init"]));
    terminal.reply("What now? [1]:", "replace").await;
    let lines = terminal.shows("Which one answers? [1]:").await;
    assert!(
        lines.iter().any(|line| line.starts_with("  2) echo ")),
        "{lines:#?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("Not installed: claude, ")),
        "{lines:#?}"
    );
    terminal.keys("9");
    terminal.keys(ENTER);
    terminal.reply("Type a number from 1 to 2.", "echo").await;
    terminal.reply("Which one? [1]:", "later").await;
    terminal.shows("It answered after").await;
    let lines = terminal.shows("Next:").await;
    assert!(
        !has(&lines, "service of your user"),
        "it would reach nobody: {lines:#?}"
    );
    assert_eq!(terminal.ends().await, (Some(0), true));
    let text = fs::read_to_string(file).unwrap();
    assert!(text.ends_with("agent: echo\n"), "{text}");
}

#[tokio::test]
async fn a_person_who_names_no_model_is_asked_again() {
    let setup = Setup::new();
    let file = setup.home().join("mine.yaml");
    let args = [
        "init",
        "--agent",
        "openai",
        "--no-test",
        "--config",
        file.to_str().unwrap(),
    ];
    let mut terminal = Terminal::start(setup.verb(&args));
    let asked = |part: &'static str, times: usize| {
        move |lines: &[String]| lines.iter().filter(|line| line.contains(part)).count() == times
    };
    terminal
        .until(
            "the server",
            asked("URL of the model server [http://127.0.0.1:11434/v1]", 1),
        )
        .await;
    terminal.keys("http://127.0.0.1:1/v1");
    terminal.keys(ENTER);
    terminal.until("the model", asked("Model, such as", 1)).await;
    terminal.keys(ENTER);
    terminal
        .until("the model again", asked("Model, such as", 2))
        .await;
    terminal.keys("llama3.2");
    terminal.keys(ENTER);
    terminal
        .until("how people reach it", asked("Which one? [1]:", 1))
        .await;
    terminal.keys("later");
    terminal.keys(ENTER);
    assert_eq!(terminal.ends().await, (Some(0), true));
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("llama3.2"), "{text}");
}

#[tokio::test]
async fn a_person_chooses_an_installed_agent_and_its_directory() {
    let setup = Setup::new();
    let programs = setup.home().join("bin");
    install(&programs, "gemini", "");
    let setup = setup.env("PATH", programs.to_str().unwrap());
    let file = setup.home().join("mine.yaml");
    let args = ["init", "--no-test", "--config", file.to_str().unwrap()];
    let mut terminal = Terminal::start(setup.verb(&args));
    let lines = terminal.shows("Which one answers? [1]:").await;
    assert!(
        lines.iter().any(|line| line == "  1) gemini     installed"),
        "{lines:#?}"
    );
    terminal.keys(ENTER);
    terminal.reply("Directory that it works in [", "~/bin").await;
    terminal.reply("Which one? [1]:", "later").await;
    let lines = terminal.shows("hermes-relay doctor --config").await;
    assert!(has(&lines, "hermes-relay access owner PLATFORM:ID"), "{lines:#?}");
    assert!(
        !has(&lines, "service of your user"),
        "it would not read that file: {lines:#?}"
    );
    assert_eq!(terminal.ends().await, (Some(0), true));
    let text = fs::read_to_string(file).unwrap();
    let workdir = programs.canonicalize().unwrap();
    assert!(
        text.contains(&format!("    workdir: \"{}\"\n", workdir.display())),
        "{text}"
    );
    assert!(
        text.contains("preset: gemini") && text.ends_with("  mode: pair\n"),
        "{text}"
    );
}

#[tokio::test]
async fn one_command_writes_the_settings_enrolls_and_installs_the_service() {
    let connector = Connector::start(ConnectorSettings {
        enrol_tokens: vec!["one-time".to_owned()],
        platforms: vec!["discord".to_owned()],
        ..ConnectorSettings::default()
    })
    .await
    .unwrap();
    let idp = Stub::always(200, r#"{"access_token":"who-i-am"}"#).await;
    let setup = Setup::new()
        .env("GATEWAY_RELAY_IDP_TOKEN_URL", &idp.base())
        .env("GATEWAY_RELAY_ENROLL_TOKEN", "one-time");
    let (programs, asked) = (setup.home().join("bin"), setup.home().join("asked"));
    install(
        &programs,
        "systemctl",
        &format!("echo \"$*\" >>'{}'", asked.display()),
    );
    let setup = setup.env("PATH", programs.to_str().unwrap());
    let url = connector.http_base();
    let args = [
        "init",
        "--agent",
        "echo",
        "--yes",
        "--force",
        "--connector-url",
        &url,
        "--service",
    ];
    let output = setup.verb(&args).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let credentials = fs::read_to_string(setup.home().join(".env")).unwrap();
    assert!(credentials.contains("GATEWAY_RELAY_SECRET="), "{credentials}");
    let unit = setup.home().join(".config/systemd/user/hermes-relay.service");
    let unit = fs::read_to_string(unit).unwrap();
    let home = format!("Environment=\"HERMES_HOME={}\"", setup.home().display());
    assert!(unit.contains(&home), "{unit}");
    let asked = fs::read_to_string(asked).unwrap();
    assert!(
        asked.ends_with("--user restart hermes-relay.service\n"),
        "{asked}"
    );

    let relay = setup.args(&["run"]).start();
    relay.wait_for_log("connected to the connector").await;
    let event = text_event("discord", "c1", "m1", "hello");
    connector.deliver(&event).unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.stop().await;
}
