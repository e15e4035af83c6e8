//! The `journal` verb of the real binary: what it prints, what it refuses, and with which exit code.

use crate::support::dev::{Connector, ConnectorSettings, text_event};
use hermes_relay::store::{
    self, InboxKind, InboxSeq, Journal, JournalSettings, NewOp, NewOps, OpSeq, Opened, RowState,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio::time::timeout;

use crate::support::relay_process::{RelayProcess, Setup};
use crate::support::wait::eventually;

const NOW: i64 = 1_790_000_000_000;
const SECRET: &str = "what was said";

fn verb(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hermes-relay"));
    command
        .env_clear()
        .env("HERMES_HOME", dir)
        .stdin(Stdio::null())
        .arg("journal")
        .args(args)
        .arg("--state-dir")
        .arg(dir.join("state"));
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    verb(dir, args).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn good(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert_eq!(code(&output), 0, "{args:?}: {}", err(&output));
    out(&output)
}

fn accept(token: u64, start: bool) -> store::Command {
    let event = json!({"text": SECRET, "message_id": token.to_string()});
    let line = json!({"type": "inbound", "bufferId": format!("b{token}"), "event": event});
    store::Command::Accept {
        token,
        kind: InboxKind::Inbound,
        session: "agent:main:discord:dm:c1".into(),
        dedupe: None,
        buffer_id: Some(format!("b{token}")),
        line: line.to_string().into_bytes().into(),
        start,
        repeatable: false,
        now_ms: NOW,
    }
}

/// Two messages running, one waiting, one done, an op that was sent, a quarantined line.
async fn filled(dir: &Path) -> Opened {
    let mut opened = Journal::open(&dir.join("state"), JournalSettings::default(), NOW).unwrap();
    let op = json!({"platform": "discord", "op": "send", "action": {"op": "send", "content": SECRET}});
    let writes = vec![
        accept(1, true),
        accept(2, false),
        accept(3, true),
        accept(4, true),
        store::Command::Quarantine {
            token: 5,
            reason: "not \u{1b}[2Jjson".into(),
            buffer_id: Some("q".into()),
            line: vec![0xff, b'{'],
            now_ms: NOW,
        },
        store::Command::AddOps {
            token: 6,
            inbox: None,
            ops: smallvec::smallvec![NewOp {
                session: "s".into(),
                chat: "discord:c1".into(),
                op: op.to_string().into_bytes(),
            }],
            now_ms: NOW,
        },
        store::Command::OpSent { op: OpSeq(1) },
        store::Command::End {
            seq: InboxSeq(3),
            state: RowState::Failed,
            ops: NewOps::new(),
            now_ms: NOW,
        },
    ];
    opened.journal.submit(writes).await.unwrap();
    let mut done = 0;
    while done < 7 {
        let batch = timeout(Duration::from_secs(20), opened.batches.recv()).await;
        done += batch.expect("in time").unwrap().completions.len();
    }
    opened
}

#[tokio::test]
async fn everything_can_be_looked_at_while_a_relay_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let opened = filled(dir.path()).await;
    let listed = good(dir.path(), &["list"]);
    for expected in [
        "inbox: 1 waiting, 2 running",
        "outbox: 1 without an outcome",
        "done: 1",
        "quarantine: 1",
        "message:1 ",
        "op:1 ",
        "quarantine:1 ",
        "agent:main:discord:dm:c1",
        "failed",
    ] {
        assert!(listed.contains(expected), "{expected} in {listed}");
    }
    assert!(!listed.contains(SECRET) && !listed.contains('\u{1b}'), "{listed}");
    let few = good(dir.path(), &["list", "--section", "inbox", "--limit", "1"]);
    assert!(few.contains("and 2 more") && !few.contains("outbox"), "{few}");

    let all: Value = serde_json::from_str(&good(dir.path(), &["list", "--json"])).unwrap();
    assert_eq!(
        all["counts"],
        json!({"waiting": 1, "running": 2, "outbox": 1, "dropped": 0, "done": 1, "quarantine": 1, "chats": 0})
    );
    let ids: Vec<_> = all["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["id"])
        .collect();
    assert_eq!(
        ids,
        [
            "message:1",
            "message:2",
            "message:4",
            "op:1",
            "message:3",
            "quarantine:1"
        ]
    );

    for id in ["message:1", "op:1"] {
        let quiet = good(dir.path(), &["show", id]);
        assert!(quiet.contains(id) && !quiet.contains(SECRET), "{quiet}");
        assert!(good(dir.path(), &["show", id, "--text"]).contains(SECRET));
        let quiet = good(dir.path(), &["show", id, "--json"]);
        assert!(!quiet.contains(SECRET), "{quiet}");
        let shown: Value =
            serde_json::from_str(&good(dir.path(), &["show", id, "--text", "--json"])).unwrap();
        assert_eq!(shown["text"], json!(SECRET));
    }
    assert!(good(dir.path(), &["show", "op:1"]).contains("send"));
    let done = good(dir.path(), &["show", "message:3", "--text"]);
    assert!(done.contains("failed") && done.contains("2026-09-"), "{done}");
    let poison = good(dir.path(), &["show", "quarantine:1", "--text"]);
    assert!(
        poison.contains("\\u001b[2J") && !poison.contains('\u{1b}'),
        "{poison}"
    );

    for args in [&["retry", "message:1"][..], &["drop", "message:1", "--yes"]] {
        let refused = run(dir.path(), args);
        assert_eq!(code(&refused), 75, "{}", err(&refused));
        let pid = std::process::id().to_string();
        assert!(
            err(&refused).contains(&format!("in use by process {pid}")) && err(&refused).contains("hint:"),
            "{}",
            err(&refused)
        );
    }
    opened.journal.close().await.unwrap();
}

#[tokio::test]
async fn entries_can_be_mended_when_no_relay_runs() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await.journal.close().await.unwrap();
    assert!(good(dir.path(), &["retry", "message:1"]).contains("message:1 is retried"));
    let report: Value = serde_json::from_str(&good(dir.path(), &["retry", "op:1", "--json"])).unwrap();
    assert_eq!(report, json!({"id": "op:1", "done": "retry"}));
    for (id, printed) in [
        ("message:2", "queued"),
        ("message:3", "failed"),
        ("op:1", "pending"),
    ] {
        let refused = run(dir.path(), &["retry", id]);
        assert_eq!(code(&refused), 1);
        assert!(
            err(&refused).contains(printed) && err(&refused).contains("hint:"),
            "{}",
            err(&refused)
        );
    }
    assert!(good(dir.path(), &["drop", "message:2", "--yes"]).contains("message:2 is dropped"));
    let refused = run(dir.path(), &["drop", "quarantine:1"]);
    assert_eq!(code(&refused), 1, "there is nobody to ask");
    assert!(
        err(&refused).contains("quarantine:1 is kept") && err(&refused).contains("--yes"),
        "{}",
        err(&refused)
    );
    assert!(good(dir.path(), &["drop", "quarantine:1", "--yes"]).contains("dropped"));
    let again = run(dir.path(), &["drop", "quarantine:1", "-y"]);
    assert_eq!(code(&again), 1);
    assert!(
        err(&again).contains("there is no quarantine:1"),
        "{}",
        err(&again)
    );
    let ended = run(dir.path(), &["drop", "message:2", "-y"]);
    assert_eq!(code(&ended), 1);
    assert!(err(&ended).contains("has ended (ignored)"), "{}", err(&ended));
    let counts = &serde_json::from_str::<Value>(&good(dir.path(), &["list", "--json"])).unwrap()["counts"];
    assert_eq!(
        (&counts["waiting"], &counts["running"], &counts["quarantine"]),
        (&json!(1), &json!(1), &json!(0))
    );
}

/// The agent waits for ever the first time, and answers the second time.
#[tokio::test]
async fn an_interrupted_message_is_run_again_on_request() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let script = "if [ -e began ]; then echo second time; else touch began; exec sleep 600; fi";
    let setup = Setup::for_connector(&connector).args(&["run", "--agent", "slow"]);
    let home = setup.home();
    let agent = json!({"kind": "command", "argv": ["/bin/sh", "-c", script], "workdir": home});
    let setup = setup.setting("agents.slow", &agent.to_string());
    let mut relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    let event = text_event("discord", "c1", "m1", "hello");
    connector.deliver(&event).unwrap();
    eventually("a turn", async || home.join("began").exists()).await;
    relay.kill().await;
    let relay = setup.start();
    relay.wait_for_log("a turn was interrupted").await;
    let journal = async |args: &[&str]| {
        let output = setup.verb(&[&["journal"], args].concat()).output().await.unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        output
    };
    eventually("its end in the journal", async || {
        out(&journal(&["list", "--section", "done"]).await).contains("interrupted")
    })
    .await;
    relay.stop().await;
    let shown = out(&journal(&["show", "message:1", "--text"]).await);
    assert!(
        shown.contains("interrupted") && shown.contains("hello"),
        "{shown}"
    );
    let retried = journal(&["retry", "message:1"]).await;
    assert!(
        err(&retried).contains("warning: the agent may have acted"),
        "{}",
        err(&retried)
    );
    let again = setup
        .verb(&["journal", "retry", "message:1"])
        .output()
        .await
        .unwrap();
    assert_eq!(code(&again), 1, "it waits already: {}", out(&again));
    let relay = setup.start();
    eventually("the answer", async || {
        let sent = connector.sent_messages();
        sent.iter().any(|sent| sent.text.contains("second time"))
    })
    .await;
    relay.stop().await;
}

/// A relay that was killed in the turn of a message, and started again. Its agent holds every turn while its home has the file `hold`.
async fn crashed_in_a_turn() -> (Connector, Setup, RelayProcess) {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let script = "if [ -e hold ]; then exec sleep 600; else echo answered; fi";
    let setup = Setup::for_connector(&connector).args(&["run", "--agent", "slow"]);
    let agent = json!({"kind": "command", "argv": ["/bin/sh", "-c", script], "workdir": setup.home()});
    let setup = setup.setting("agents.slow", &agent.to_string());
    setup.write("hold", "");
    let mut relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    let listed = async |section: &str| {
        let list = setup.verb(&["journal", "list", "--section", section]).output();
        out(&list.await.unwrap())
    };
    connector
        .deliver(&text_event("discord", "c1", "m1", "hello"))
        .unwrap();
    eventually("a turn", async || listed("inbox").await.contains("1 running")).await;
    relay.kill().await;
    let relay = setup.start();
    eventually("its end in the journal", async || {
        listed("done").await.contains("interrupted")
    })
    .await;
    (connector, setup, relay)
}

#[tokio::test]
async fn a_running_relay_runs_an_interrupted_message_again_and_drops_one_that_waits() {
    let (connector, setup, relay) = crashed_in_a_turn().await;
    let journal = async |args: &[&str]| setup.verb(&[&["journal"], args].concat()).output().await.unwrap();
    for id in ["m2", "m3"] {
        connector
            .deliver(&text_event("discord", "c1", id, "hello"))
            .unwrap();
    }
    eventually("one that waits", async || {
        out(&journal(&["list", "--section", "inbox"]).await).contains("1 waiting, 1 running")
    })
    .await;
    let busy = journal(&["drop", "message:2", "--yes"]).await;
    assert_eq!(code(&busy), 1, "{}", out(&busy));
    assert!(
        err(&busy).contains("hermes-relay sessions stop "),
        "{}",
        err(&busy)
    );
    let dropped = journal(&["drop", "message:3", "--yes"]).await;
    assert_eq!(code(&dropped), 0, "{}", err(&dropped));
    fs::remove_file(setup.home().join("hold")).unwrap();
    let retried = journal(&["retry", "message:1"]).await;
    assert_eq!(code(&retried), 0, "{}", err(&retried));
    assert!(
        out(&retried).contains("message:1 runs again"),
        "{}",
        out(&retried)
    );
    let sessions = setup.verb(&["sessions", "--json"]).output().await.unwrap();
    let sessions: Value = serde_json::from_str(&out(&sessions)).unwrap();
    let key = sessions["sessions"][0]["session"].as_str().unwrap();
    let stopped = setup.verb(&["sessions", "stop", key]).output().await.unwrap();
    assert_eq!(code(&stopped), 0, "{}", err(&stopped));
    eventually("the answer", async || {
        let sent = connector.sent_messages();
        sent.iter().any(|sent| sent.text.contains("answered"))
    })
    .await;
    let done = out(&journal(&["list", "--section", "done"]).await);
    assert!(done.contains("ignored"), "{done}");
    let answers = connector.sent_messages();
    let answers = answers.iter().filter(|sent| sent.text.contains("answered"));
    assert_eq!(answers.count(), 1, "what was dropped is not answered");
    relay.stop().await;
}

#[tokio::test]
async fn a_message_of_somebody_who_is_denied_by_now_is_kept_until_they_are_let_in() {
    let (connector, setup, relay) = crashed_in_a_turn().await;
    let verb = async |args: &[&str]| setup.verb(args).output().await.unwrap();
    let ended = async || out(&verb(&["journal", "list", "--section", "done"]).await);
    fs::remove_file(setup.home().join("hold")).unwrap();
    let denied = verb(&["access", "deny", "discord:u1"]).await;
    assert_eq!(code(&denied), 0, "{}", err(&denied));
    let retry = async || verb(&["journal", "retry", "message:1"]).await;
    let check_kept = async || {
        let refused = retry().await;
        assert_eq!(code(&refused), 1, "{}", out(&refused));
        let said = err(&refused);
        assert!(
            said.contains("message:1 does not run again: discord:u1 is denied"),
            "{said}"
        );
        assert!(
            said.contains("access allow") && !said.contains("warning"),
            "{said}"
        );
        eventually("it is as before", async || ended().await.contains("interrupted")).await;
        let shown = out(&verb(&["journal", "show", "message:1", "--text"]).await);
        assert!(shown.contains("hello"), "{shown}");
    };
    check_kept().await;
    relay.stop().await;
    check_kept().await;
    let allowed = verb(&["access", "allow", "discord:u1"]).await;
    assert_eq!(code(&allowed), 0, "{}", err(&allowed));
    let retried = retry().await;
    assert_eq!(code(&retried), 0, "{}", err(&retried));
    let relay = setup.start();
    eventually("the answer", async || {
        let sent = connector.sent_messages();
        sent.iter().any(|sent| sent.text.contains("answered"))
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn an_export_is_lines_of_json_and_a_private_file() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await.journal.close().await.unwrap();
    let quiet = good(dir.path(), &["export"]);
    assert!(!quiet.contains(SECRET));
    let entries: Vec<Value> = quiet
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(entries.len(), 6);
    let file = dir.path().join("export.jsonl");
    let name = file.to_str().unwrap();
    let printed = good(dir.path(), &["export", "--text", "--output", name]);
    assert!(printed.contains("6 entries"), "{printed}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&file).unwrap();
    let entries: Vec<Value> = written
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        entries
            .iter()
            .filter(|entry| entry["text"] == json!(SECRET))
            .count(),
        4
    );
    assert_eq!(entries.last().unwrap()["line_base64"], json!("/3s="));
    let again = run(dir.path(), &["export", "--output", name]);
    assert_eq!(code(&again), 1);
    assert!(err(&again).contains("hint:"), "{}", err(&again));
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    assert_eq!(
        good(dir.path(), &["export", "--section", "quarantine"])
            .lines()
            .count(),
        1
    );
}

#[test]
fn what_is_not_there_is_named_with_the_option_that_changes_it() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["list"][..],
        &["show", "op:1"],
        &["retry", "op:1"],
        &["drop", "op:1"],
        &["export"],
    ] {
        let output = run(dir.path(), args);
        assert_eq!(code(&output), 1, "{args:?}");
        let report = err(&output);
        let state = dir.path().join("state");
        assert!(
            report.contains(state.to_str().unwrap()) && report.contains("--state-dir"),
            "{report}"
        );
        assert!(!state.exists(), "looking makes nothing");
    }
    let missing = run(dir.path(), &["list", "--config", "/nowhere/relay.yaml"]);
    assert_eq!(code(&missing), 78, "{}", err(&missing));
    fs::create_dir(dir.path().join("state")).unwrap();
    fs::write(dir.path().join("state/journal.db"), vec![b'!'; 8192]).unwrap();
    let damaged = run(dir.path(), &["list"]);
    assert_eq!(code(&damaged), 78, "{}", err(&damaged));
}

#[test]
fn a_wrong_command_line_gets_a_suggestion() {
    let dir = tempfile::tempdir().unwrap();
    for (args, hint) in [
        (&["show", "mesage:1"][..], "did you mean message:1?"),
        (&["show", "12"], "message:12"),
        (&["lst"], "list"),
        (&["list", "--section", "outbx"], "outbox"),
        (&["list", "--limit", "0"], "1.."),
        (&["show"], "<ID>"),
    ] {
        let output = run(dir.path(), args);
        assert_eq!(code(&output), 2, "{args:?}: {}", err(&output));
        assert!(err(&output).contains(hint), "{args:?}: {}", err(&output));
    }
    let help = Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
        .args(["journal", "--help"])
        .output()
        .unwrap();
    assert!(code(&help) == 0 && out(&help).contains("Examples:"));
}

#[tokio::test]
async fn a_closed_pipe_ends_it_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = filled(dir.path()).await;
    let many = (10..2000).map(|token| accept(token, false)).collect();
    opened.journal.submit(many).await.unwrap();
    let mut held = 0;
    while held < 1990 {
        held += opened.batches.recv().await.unwrap().completions.len();
    }
    opened.journal.close().await.unwrap();
    for args in [
        &["export", "--text"][..],
        &["list", "--limit", "5000"],
        &["list", "--json", "--limit", "5000"],
    ] {
        let mut child = verb(dir.path(), args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((code(&output), err(&output)), (0, String::new()), "{args:?}");
    }
    let mut child = verb(dir.path(), &["show", "op:99"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(code(&child.wait_with_output().unwrap()), 1);
}
