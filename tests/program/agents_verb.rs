//! `hermes-relay agents`, and what `run` says about agents that cannot be used: the real binary, as a person runs it.

use std::path::Path;
use std::process::{Command, Output};

fn relay(dir: &Path, args: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    relay_with(dir, args, &path)
}

fn relay_with(dir: &Path, args: &[&str], path: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", path)
        .env("HERMES_HOME", dir)
        .env("HERMES_RELAY_STATE_DIR", dir.join("state"))
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn config(dir: &Path, text: &str) {
    std::fs::write(dir.join("relay.yaml"), text).unwrap();
}

/// A directory without programs, so that no preset is installed.
fn bare() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("bin");
    std::fs::create_dir(&empty).unwrap();
    let path = empty.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn the_list_shows_what_can_be_used_and_how_to_install_the_rest() {
    let (dir, path) = bare();
    config(
        dir.path(),
        "agents: {script: {kind: command, argv: [/bin/cat]}}\nagent: script\n",
    );
    let listed = relay_with(dir.path(), &["agents", "list"], &path);
    assert!(listed.status.success(), "{}", err(&listed));
    let text = out(&listed);
    let line = |name: &str| {
        let found = text.lines().find(|line| line[2..].starts_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    };
    assert!(line("script").starts_with('*') && line("script").contains("ready"));
    assert!(line("echo").contains("built in"));
    assert!(
        line("gemini").contains("  not installed  npm install"),
        "{}",
        line("gemini")
    );
    let json = relay_with(dir.path(), &["agents", "list", "--json"], &path);
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).unwrap();
    let answering: Vec<_> = rows.iter().filter(|row| row["answers"] == true).collect();
    assert_eq!((answering.len(), &answering[0]["name"]), (1, &"script".into()));
}

#[test]
fn one_turn_is_run_and_its_end_is_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    config(
        dir.path(),
        "agents:\n  cat: {kind: command, argv: [/bin/cat]}\n  broken: {kind: command, argv: [/bin/false]}\n",
    );
    let echo = relay(dir.path(), &["agents", "test", "echo", "hello"]);
    assert_eq!(
        (echo.status.code(), out(&echo).as_str()),
        (Some(0), "echo: hello\n"),
        "{}",
        err(&echo)
    );
    let cat = relay(dir.path(), &["agents", "test", "cat", "meow"]);
    assert_eq!(
        (cat.status.code(), out(&cat).as_str()),
        (Some(0), "meow\n"),
        "{}",
        err(&cat)
    );
    let broken = relay(dir.path(), &["agents", "test", "broken"]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(err(&broken).contains("the turn failed"), "{}", err(&broken));
    let typo = relay(dir.path(), &["agents", "test", "cta"]);
    assert_eq!(typo.status.code(), Some(78));
    assert!(
        err(&typo).contains("`cta`") && err(&typo).contains("did you mean `cat`?"),
        "{}",
        err(&typo)
    );
}

#[test]
fn an_agent_is_told_the_settings_file_and_the_state_directory_of_whoever_started_it() {
    let dir = tempfile::tempdir().unwrap();
    let told = "cat > /dev/null; echo \"$RELAY_CONFIG $RELAY_STATE_DIR\"";
    let agent = format!("{{kind: command, argv: [/bin/sh, -c, '{told}']}}");
    let file = dir.path().join("other.yaml");
    std::fs::write(&file, format!("agents: {{shell: {agent}}}\nagent: shell\n")).unwrap();
    let tested = relay(dir.path(), &["agents", "test", "shell", "--config", "other.yaml"]);
    let state = dir.path().join("state");
    let expected = format!("{} {}\n", file.display(), state.display());
    assert_eq!(out(&tested), expected, "{}", err(&tested));
    let tried = relay(
        dir.path(),
        &["dev", "--smoke", "--json", "--config", "other.yaml"],
    );
    let tried: serde_json::Value = serde_json::from_slice(&tried.stdout).unwrap();
    let reply = tried["reply"].as_str().unwrap();
    assert!(reply.starts_with(&format!("{} /", file.display())), "{reply}");
}

#[test]
fn an_agent_that_is_not_installed_ends_the_run_at_its_start_with_the_command_that_installs_it() {
    for written in [
        "agent: {kind: acp, preset: gemini}",
        "agents: {g: {preset: gemini}}\nagent: g",
    ] {
        let (dir, path) = bare();
        config(dir.path(), written);
        let url = ["--url", "ws://127.0.0.1:9"];
        let run = relay_with(dir.path(), &[&["run"], &url[..]].concat(), &path);
        assert_eq!(run.status.code(), Some(78), "{}", err(&run));
        let message = err(&run);
        assert!(
            message.contains("gemini") && message.contains("npm install"),
            "{message}"
        );
        assert!(message.contains("hint:"), "{message}");
    }
}

#[test]
fn wrong_settings_are_reported_with_the_right_ones() {
    let dir = tempfile::tempdir().unwrap();
    for (written, wanted) in [
        ("agents: {x: {kind: comand, argv: [a]}}\n", "expected one of"),
        (
            "agents: {x: {kind: command, args: [a]}}\n",
            "unknown key `args`; did you mean `argv`?",
        ),
        ("agents: {x: {kind: command}}\nagent: x\n", "argv"),
        ("agents: {x: {preset: gemni}}\nagent: x\n", "known are:"),
        (
            "agents: {x: {kind: openai, model: m, api_key_env: NO_SUCH_KEY}}\nagent: x\n",
            "NO_SUCH_KEY is not set",
        ),
        ("agents: {x: {kind: openai}}\nagent: x\n", "model"),
        ("agent: nobody\n", "there is no agent named `nobody`"),
    ] {
        config(dir.path(), written);
        let run = relay(dir.path(), &["run", "--url", "ws://127.0.0.1:9"]);
        assert_eq!(run.status.code(), Some(78), "{written}: {}", err(&run));
        assert!(err(&run).contains(wanted), "{written}: {}", err(&run));
    }
}
