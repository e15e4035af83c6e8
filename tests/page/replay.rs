//! `dev --record` and `dev replay`, with the real binary.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn relay(args: &[&str], typed: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
        .args(args)
        .env_remove("HERMES_RELAY_CONFIG")
        .env("HERMES_HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without reading it.
    let _ = child.stdin.take().unwrap().write_all(typed.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_was_recorded_is_sent_again_and_answered_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire.jsonl");
    let file = file.to_str().unwrap();
    let recorded = relay(
        &["dev", "--platform", "telegram", "--record", file],
        "hello\nsecond\n/new\n",
    );
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    assert!(text(&recorded.stderr).contains("frames to"));
    let wire = std::fs::read_to_string(file).unwrap();
    assert!(
        wire.contains("\"inbound\"") && wire.contains("outbound_result") && wire.contains("echo: second")
    );
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let replayed = relay(&["dev", "replay", file, "--agent", "echo"], "");
        let output = text(&replayed.stdout);
        assert!(replayed.status.success(), "{output}{}", text(&replayed.stderr));
        assert!(
            output.contains("3 messages") && output.contains("< echo: second"),
            "{output}"
        );
        assert!(
            output.contains("the replies are the same as recorded"),
            "{output}"
        );
        outputs.push(
            output
                .lines()
                .filter(|line| !line.contains("replayed in"))
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(outputs[0], outputs[1], "twice the same");
    let other = relay(&["dev", "replay", file, "--agent", "noop"], "");
    assert!(other.status.success());
    assert!(
        text(&other.stdout).contains("only recorded: echo: hello"),
        "{}",
        text(&other.stdout)
    );
}

#[test]
fn a_bad_file_or_a_taken_name_explains_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "dear diary\n").unwrap();
    let file = file.to_str().unwrap();
    let replayed = relay(&["dev", "replay", file], "");
    assert_eq!(replayed.status.code(), Some(78));
    let output = text(&replayed.stderr);
    assert!(
        output.contains("not a recording") && output.contains("hint: record one with"),
        "{output}"
    );
    let missing = relay(&["dev", "replay", "/nonexistent/x"], "");
    assert!(text(&missing.stderr).contains("hint:"));
    let recorded = relay(&["dev", "--smoke", "--record", file], "");
    assert_eq!(recorded.status.code(), Some(78));
    assert!(text(&recorded.stderr).contains("does not overwrite a file"));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "dear diary\n");
}

#[test]
fn a_chat_from_a_pipe_shows_every_answer_before_it_ends() {
    for _ in 0..6 {
        let talked = relay(&["dev"], "hello\nsleep=150 slowly\n");
        let output = text(&talked.stdout);
        assert!(talked.status.success(), "{output}{}", text(&talked.stderr));
        assert!(
            output.contains("echo: hello") && output.contains("echo: slowly"),
            "{output}"
        );
    }
}
