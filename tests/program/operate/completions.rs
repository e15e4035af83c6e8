//! Completions as a shell gives them: the script is sourced, and words are completed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::relay_process::Setup;
use crate::support::skip::skip;
use crate::support::terminal::{ENTER, Terminal};

/// The script for a shell, in a folder of its own.
fn script(folder: &Path, shell: &str) -> PathBuf {
    let printed = Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
        .args(["completions", shell])
        .output()
        .unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let path = folder.join(format!("hermes-relay.{shell}"));
    std::fs::write(&path, printed.stdout).unwrap();
    path
}

fn run(shell: &str, args: &[&str]) -> Option<Output> {
    let output = Command::new(shell).args(args).output().ok()?;
    assert!(output.status.success(), "{shell}: {output:?}");
    Some(output)
}

fn words(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().map(str::to_owned).collect()
}

/// What bash offers for the last word of a line.
fn in_bash(script: &Path, line: &str) -> Vec<String> {
    let typed: Vec<&str> = line.split(' ').collect();
    let (last, before) = (typed.len() - 1, typed[typed.len() - 2]);
    let quoted: Vec<String> = typed.iter().map(|word| format!("'{word}'")).collect();
    let program = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={last}; \
         \"$(complete -p hermes-relay | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\" hermes-relay '{}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        quoted.join(" "),
        typed[last],
    );
    let output = run("bash", &["--norc", "-c", &program]).expect("bash is installed");
    words(&output)
}

#[test]
fn bash_completes_every_word() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path(), "bash");
    for (line, expected) in [
        ("hermes-relay enr", &["enroll"][..]),
        ("hermes-relay enroll --plat", &["--platform"]),
        ("hermes-relay access ap", &["approve"]),
        ("hermes-relay cron res", &["resume"]),
        ("hermes-relay cron add --time", &["--timeout", "--timezone"]),
        ("hermes-relay journal list --sec", &["--section"]),
        ("hermes-relay journal list --section q", &["quarantine"]),
        ("hermes-relay service install --us", &["--user"]),
        (
            "hermes-relay completions ",
            &["bash", "elvish", "fish", "powershell", "zsh"],
        ),
    ] {
        let mut offered = in_bash(&script, line);
        offered.retain(|word| !word.starts_with('-') || line.ends_with(|c: char| c.is_alphanumeric()));
        offered.sort();
        assert_eq!(offered, expected, "{line}");
    }
}

#[test]
fn bash_completes_the_options_of_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path(), "bash");
    let verbs = in_bash(&script, "hermes-relay ");
    assert!(verbs.len() > 20, "{verbs:?}");
    for verb in verbs
        .iter()
        .filter(|verb| !verb.starts_with('-') && *verb != "help")
    {
        let offered = in_bash(&script, &format!("hermes-relay {verb} --h"));
        assert_eq!(offered, ["--help"], "{verb}");
    }
}

#[test]
fn fish_completes_every_word() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path(), "fish");
    for (line, expected) in [
        ("hermes-relay enr", "enroll"),
        ("hermes-relay enroll --plat", "--platform"),
        ("hermes-relay access ap", "approve"),
        ("hermes-relay journal list --section q", "quarantine"),
    ] {
        let program = format!("source {}; complete -C '{line}'", script.display());
        let Some(output) = run("fish", &["--no-config", "-c", &program]) else {
            return skip("fish is not installed");
        };
        assert!(
            words(&output).contains(&expected.to_owned()),
            "{line}: {output:?}"
        );
    }
}

#[tokio::test]
async fn zsh_completes_every_word() {
    if Command::new("zsh").arg("--version").output().is_err() {
        return skip("zsh is not installed");
    }
    let cases = [
        ("hermes-relay unenr", "unenroll"),
        ("hermes-relay enroll --plat", "--platform"),
        ("hermes-relay access ap", "approve"),
        ("hermes-relay journal list --section q", "quarantine"),
    ];
    in_zsh(&cases, &[("PATH", "/usr/local/bin:/usr/bin:/bin")]).await;
}

/// What people do: a terminal, a line, and Tab, which completes the last word. The script is where zsh looks for it.
async fn in_zsh(cases: &[(&str, &str)], variables: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let printed = script(folder.path(), "zsh");
    std::fs::rename(printed, folder.path().join("_hermes-relay")).unwrap();
    let start = "PROMPT='> '; unset zle_bracketed_paste; setopt no_beep no_prompt_sp; autoload -Uz compinit; \
                 compinit -u -D; clear\n";
    std::fs::write(folder.path().join(".zshrc"), start).unwrap();
    let mut shell = tokio::process::Command::new("zsh");
    shell
        .arg("-i")
        .current_dir(folder.path())
        .env_clear()
        .envs(variables.iter().copied())
        .env("ZDOTDIR", folder.path())
        .env("FPATH", zsh_functions(folder.path()));
    let mut terminal = Terminal::start(shell);
    let last = |lines: &[String]| lines.last().cloned().unwrap_or_default();
    for (typed, word) in cases {
        let (before, _) = typed.rsplit_once(' ').unwrap();
        let completed = &format!("> {before} {word}");
        terminal.until("a prompt", |lines| last(lines) == ">").await;
        terminal.keys(typed);
        let shown = format!("> {typed}");
        terminal.until(&shown, |lines| last(lines) == shown).await;
        terminal.keys("\t");
        terminal
            .until(completed, |lines| last(lines).starts_with(completed))
            .await;
        // Clears the line.
        terminal.keys("\x15");
    }
    terminal.keys("exit");
    terminal.keys(ENTER);
    terminal.ends().await;
}

/// The path of zsh's own functions, behind a folder.
fn zsh_functions(folder: &Path) -> String {
    let printed = run("zsh", &["-f", "-c", "print -r -- ${(j.:.)fpath}"]).expect("zsh is installed");
    let known = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    format!("{}:{known}", folder.display())
}

/// A command line of bash with a program that is found, and settings and state of its own.
fn names_in_bash(setup: &Setup, script: &Path, line: &str) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_hermes-relay"));
    let typed = format!(
        "source {}; COMP_LINE='{line}'; COMP_POINT={}; COMP_WORDS=({line}); \
         [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=(''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         _hermes_relay_names hermes-relay \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        line.len()
    );
    let output = Command::new("bash")
        .args(["--norc", "-c", &typed])
        .env_clear()
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", program.parent().unwrap().display()),
        )
        .env("HERMES_HOME", setup.home())
        .env("HERMES_RELAY_STATE_DIR", setup.state_dir())
        .output()
        .unwrap();
    words(&output)
}

#[tokio::test]
async fn names_are_completed_from_settings_and_state() {
    let folder = tempfile::tempdir().unwrap();
    let bash = script(folder.path(), "bash");
    let setup = Setup::new()
        .setting("agents.coder", "{kind: echo}")
        .setting("agents.writer", "{kind: noop}");
    setup.write("SKILL.md", "Sort the mail.");
    let skill = setup.home().join("SKILL.md").display().to_string();
    for args in [
        &["skills", "add", "inbox", &skill][..],
        &["cron", "add", "every 2h", "Look around", "--name", "look-around"],
        &["cron", "add", "every 2h", "Trick", "--name", "$(touch hacked)"],
    ] {
        let output = setup.verb(args).output().await.unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let offered = |line: &str| names_in_bash(&setup, &bash, line);
    assert_eq!(
        offered("hermes-relay agents test "),
        ["coder", "echo", "noop", "writer"]
    );
    assert_eq!(offered("hermes-relay agents test c"), ["coder"]);
    assert_eq!(offered("hermes-relay run --agent w"), ["writer"]);
    assert_eq!(offered("hermes-relay skills show "), ["inbox"]);
    assert_eq!(offered("hermes-relay cron run look"), ["look-around"]);
    let jobs = offered("hermes-relay cron run ");
    assert_eq!(jobs.len(), 3, "two ids and the name that is safe: {jobs:?}");
    assert!(!jobs.iter().any(|job| job.contains("hacked")), "{jobs:?}");
    assert_eq!(offered("hermes-relay enr"), ["enroll"], "other words as before");
    let program = Path::new(env!("CARGO_BIN_EXE_hermes-relay"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let (home, state) = (
        setup.home().display().to_string(),
        setup.state_dir().display().to_string(),
    );
    let variables = [
        ("PATH", path.as_str()),
        ("HERMES_HOME", &home),
        ("HERMES_RELAY_STATE_DIR", &state),
    ];
    let cases = [
        ("hermes-relay agents test cod", "coder"),
        ("hermes-relay run --agent wri", "writer"),
        ("hermes-relay cron run look", "look-around"),
        ("hermes-relay skills show in", "inbox"),
    ];
    if Command::new("fish").arg("--version").output().is_ok() {
        let fish = script(folder.path(), "fish");
        for (typed, word) in cases {
            let typed = format!("source {}; complete -C '{typed}'", fish.display());
            let output = Command::new("fish")
                .args(["--no-config", "-c", &typed])
                .envs(variables)
                .output()
                .unwrap();
            assert_eq!(words(&output), [word], "{output:?}");
        }
    }
    if Command::new("zsh").arg("--version").output().is_ok() {
        in_zsh(&cases, &variables).await;
    }
}
