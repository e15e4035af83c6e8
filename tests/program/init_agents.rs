//! The ways to an own agent: adapters that `init` installs, model servers that it finds, and `dev` without a settings file.

use std::fs;

use crate::newcomer::{MODEL_ANSWER, model_server, new_home};
use crate::support::executable::write_script;
use crate::support::http_stub::Stub;
use crate::support::relay_process::Setup;
use crate::support::terminal::{ENTER, Terminal, has};

/// A home without settings, with these servers in the places of Ollama and LM Studio.
fn home_with(servers: &[&Stub]) -> Setup {
    let ports: Vec<String> = servers.iter().map(|server| server.port().to_string()).collect();
    let ports = [ports, vec!["1".to_owned(); 3 - servers.len()]].concat();
    new_home().env("HERMES_RELAY_MODEL_PORTS", &ports.join(","))
}

/// The exit code, and what was printed.
async fn dev(setup: &Setup, args: &[&str]) -> (i32, String) {
    let output = setup.verb(&[&["dev"], args].concat()).output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let printed = text(&output.stdout) + &text(&output.stderr);
    (output.status.code().unwrap(), printed)
}

#[tokio::test]
async fn models_of_running_servers_are_listed_chosen_and_tested() {
    let (ollama, studio) = (
        model_server(&["llama3.2:latest", "nomic-embed-text"]).await,
        model_server(&["qwen3"]).await,
    );
    let setup = home_with(&[&ollama, &studio]);
    let file = setup.home().join("mine.yaml");
    let args = ["init", "--config", file.to_str().unwrap()];
    let mut terminal = Terminal::start(setup.verb(&args));
    let lines = terminal.shows("Which one answers? [1]:").await;
    assert!(
        has(
            &lines,
            "a model of a server that runs here: Ollama (1 model), LM Studio (1 model)"
        ),
        "{lines:#?}"
    );
    terminal.keys("openai");
    terminal.keys(ENTER);
    let lines = terminal.shows("Which one? [1]:").await;
    for line in [
        "  1) llama3.2:latest Ollama",
        "  2) qwen3      LM Studio",
        "  3) other      another server, by its URL",
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {lines:#?}");
    }
    terminal.keys("2");
    terminal.keys(ENTER);
    terminal.reply("How do people reach it?", "later").await;
    let lines = terminal.shows("hermes-relay doctor --config").await;
    assert!(
        has(&lines, MODEL_ANSWER) && has(&lines, "It answered after 0."),
        "{lines:#?}"
    );
    assert_eq!(terminal.ends().await, (Some(0), true));
    let text = fs::read_to_string(file).unwrap();
    assert!(
        text.contains("model: \"qwen3\"") && text.contains(&studio.url("/v1")),
        "{text}"
    );
}

#[tokio::test]
async fn an_adapter_is_installed_only_after_a_yes() {
    let setup = home_with(&[]);
    let (programs, ran) = (setup.home().join("bin"), setup.home().join("ran"));
    fs::create_dir(&programs).unwrap();
    write_script(&programs.join("claude"), "#!/bin/sh\n");
    // It installs an adapter that cannot start, which is enough to be found.
    let adapter = programs.join("claude-agent-acp");
    let npm = format!(
        "#!/bin/sh\necho \"$*\" >'{}'\nprintf '#!/bin/sh\\n' >'{adapter}'\n/bin/chmod +x '{adapter}'\n",
        ran.display(),
        adapter = adapter.display()
    );
    write_script(&programs.join("npm"), &npm);
    let setup = setup.env("PATH", programs.to_str().unwrap());
    let file = setup.home().join("mine.yaml");
    let args = ["init", "--config", file.to_str().unwrap()];
    for (answer, expected) in [("no", 1), ("yes", 1)] {
        let mut terminal = Terminal::start(setup.verb(&args));
        let lines = terminal.shows("Which one answers? [1]:").await;
        assert!(
            has(
                &lines,
                "1) claude     Claude Code is installed; its adapter is offered"
            ),
            "{lines:#?}"
        );
        terminal.keys(ENTER);
        let install = "Install it now with `npm install -g @agentclientprotocol/claude-agent-acp`? [y/N]";
        terminal.reply(install, answer).await;
        if answer == "no" {
            terminal.shows("claude cannot be used without its adapter").await;
            assert!(!ran.exists(), "nothing ran");
        } else {
            terminal.reply("Directory that it works in [", "").await;
            terminal.reply("Which one? [1]:", "later").await;
            terminal.shows("claude does not answer").await;
        }
        assert_eq!(terminal.ends().await, (Some(expected), true), "{answer}");
    }
    let ran = fs::read_to_string(ran).unwrap();
    assert_eq!(ran, "install -g @agentclientprotocol/claude-agent-acp\n");
    assert!(fs::read_to_string(file).unwrap().contains("preset: claude"));
}

#[tokio::test]
async fn a_script_gets_the_only_model_of_the_running_server() {
    let ollama = model_server(&["llama3.2:latest"]).await;
    let setup = home_with(&[&ollama]);
    let file = setup.home().join("mine.yaml");
    let args = [
        "init",
        "--agent",
        "openai",
        "--yes",
        "--config",
        file.to_str().unwrap(),
    ];
    let output = setup.verb(&args).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = fs::read_to_string(file).unwrap();
    assert!(
        text.contains("llama3.2:latest") && text.contains(&ollama.url("/v1")),
        "{text}"
    );
}

#[tokio::test]
async fn a_model_answers_in_dev_without_a_settings_file() {
    let ollama = model_server(&["llama3.2:latest", "qwen3"]).await;
    let setup = home_with(&[&ollama]);
    let (code, printed) = dev(&setup, &["--model", "llama3.2", "--smoke"]).await;
    assert!(code == 0 && printed.contains(MODEL_ANSWER), "{printed}");
    let url = ollama.url("/v1");
    let (code, printed) = dev(&setup, &["--base-url", &url, "--model", "qwen3", "--smoke"]).await;
    assert!(code == 0 && printed.contains(MODEL_ANSWER), "{printed}");
    let single = model_server(&["only"]).await;
    let (code, printed) = dev(&setup, &["--base-url", &single.url("/v1"), "--smoke"]).await;
    assert!(code == 0 && printed.contains(MODEL_ANSWER), "{printed}");
    for (args, expected, parts) in [
        (
            &["--model", "lama3", "--smoke"][..],
            78,
            &["Ollama has no model `lama3`", "llama3.2:latest, qwen3"][..],
        ),
        (
            &["--base-url", &url, "--smoke"],
            2,
            &["has several models", "--model"],
        ),
        (
            &["--base-url", "http://127.0.0.1:1/v1", "--smoke"],
            78,
            &["cannot ask the server", "start the server"],
        ),
        (
            &["--agent", "claude", "--model", "x", "--smoke"],
            2,
            &["--agent is claude"],
        ),
    ] {
        let (code, printed) = dev(&setup, args).await;
        assert_eq!(code, expected, "{args:?}: {printed}");
        for part in parts {
            assert!(printed.contains(part), "{part}: {printed}");
        }
    }
    let nobody = home_with(&[]);
    let (code, printed) = dev(&nobody, &["--model", "llama3.2", "--smoke"]).await;
    assert!(
        code == 78
            && printed.contains("no model server runs on this machine")
            && printed.contains("--base-url"),
        "{printed}"
    );
}

#[tokio::test]
async fn a_preset_needs_no_settings_file_in_dev() {
    let setup = home_with(&[]).env("PATH", "/nowhere");
    let (code, printed) = dev(&setup, &["--agent", "claude", "--smoke"]).await;
    assert!(
        code == 78 && printed.contains("npm install -g @agentclientprotocol/claude-agent-acp"),
        "{printed}"
    );
    let (code, printed) = dev(&setup, &["--agent", "cluade", "--smoke"]).await;
    assert!(
        code == 78
            && printed.contains("no agent named `cluade`")
            && printed.contains("did you mean `claude`?"),
        "{printed}"
    );
}
