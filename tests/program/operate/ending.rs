//! `stop`, `restart` and `logs` for the relay itself, and `run` in a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::operate::{answered, connected, connector, status_until, verb};
use crate::support::dev::text_event;
use crate::support::relay_process::{SOON, Setup};
use crate::support::terminal::Terminal;
use crate::support::wait::eventually;

#[tokio::test]
async fn stop_lets_running_turns_finish_and_waits_until_the_relay_is_gone() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let mut relay = connected(&setup).await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "sleep=1500 x"))
        .unwrap();
    status_until(&setup, "a turn", |status| status["turns_running"] == 1).await;
    let stopped = verb(&setup, &["stop", "--json"]).await;
    assert_eq!(stopped.code, 0, "{stopped:?}");
    assert_eq!(stopped.json()["stopped"], true);
    assert!(stopped.err.contains("for 1 running turn"), "{stopped:?}");
    assert!(!setup.state_dir().join("control.sock").exists(), "it is gone");
    assert_eq!(relay.exit_code(SOON).await, 0, "{}", relay.stderr());
    assert_eq!(connector.sent_messages().len(), 1, "the turn was let finish");
    assert_eq!(verb(&setup, &["stop"]).await.code, 69);
}

#[tokio::test]
async fn restart_goes_through_the_service_manager_or_says_what_to_do() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let idle = verb(&setup, &["restart"]).await;
    assert_eq!(idle.code, 69, "{idle:?}");
    let relay = connected(&setup).await;
    let plain = verb(&setup, &["restart"]).await;
    assert_eq!(plain.code, 1, "{plain:?}");
    for part in ["does not run as a service", "hermes-relay stop", "hint:"] {
        assert!(plain.err.contains(part), "{part}: {plain:?}");
    }
    // A service manager that knows this process as a unit of the user.
    let status = verb(&setup, &["status", "--json"]).await.json();
    let calls = setup.home().join("calls");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\ncase \"$*\" in *--user*show*hermes-relay.service*) echo {};; esac\n",
        calls.display(),
        status["pid"]
    );
    let bin = setup.home().join("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["systemctl", "journalctl"] {
        fs::write(bin.join(name), &script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let managed = setup.env("PATH", &format!("{}:/usr/bin:/bin", bin.display()));
    let restarted = verb(&managed, &["restart"]).await;
    assert_eq!(restarted.code, 0, "{restarted:?}");
    let called = || fs::read_to_string(&calls).unwrap();
    assert!(
        called().contains("--user restart hermes-relay.service"),
        "{}",
        called()
    );
    let logs = verb(&managed, &["logs", "-n", "7", "-f"]).await;
    assert_eq!(logs.code, 0, "{logs:?}");
    assert!(
        called().contains("--user --no-pager --unit hermes-relay.service --lines 7 --follow"),
        "{}",
        called()
    );
    relay.stop().await;
}

#[tokio::test]
async fn logs_shows_the_end_of_the_log_file_and_follows_it() {
    let connector = connector().await;
    let bare = Setup::for_connector(&connector);
    let none = verb(&bare, &["logs"]).await;
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.err.contains("log.file"), "{none:?}");
    let setup = bare.setting("log.file", "relay.log");
    let early = verb(&setup, &["logs"]).await;
    assert!(early.code == 1 && early.err.contains("hint:"), "{early:?}");
    let relay = connected(&setup).await;
    let shown = || async { verb(&setup, &["logs", "-n", "100"]).await.out };
    eventually("the log", async || {
        shown().await.contains("connected to the connector")
    })
    .await;
    let last = verb(&setup, &["logs", "-n", "1"]).await.out;
    assert_eq!(last.lines().count(), 1, "{last}");
    let followed = setup.home().join("followed");
    let mut following = setup
        .verb(&["logs", "-f", "-n", "1"])
        .stdout(fs::File::create(&followed).unwrap())
        .spawn()
        .unwrap();
    eventually("the last line", async || {
        !fs::read_to_string(&followed).unwrap().is_empty()
    })
    .await;
    answered(&connector, "m1", "hello").await;
    eventually("the new line", async || {
        fs::read_to_string(&followed).unwrap().contains("turn ended")
    })
    .await;
    following.kill().await.unwrap();
    let seen = fs::read_to_string(&followed).unwrap();
    assert!(!seen.contains("hermes-relay starts"), "{seen}");
    relay.stop().await;
}

#[tokio::test]
async fn run_in_a_terminal_is_for_people_and_its_file_for_programs() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("log.file", "relay.log")
        .setting("access.mode", "open")
        .setting("cron.timezone", "Asia/Kolkata");
    let terminal = Terminal::start(setup.verb(&["run", "--agent", "echo"]));
    let has = |lines: &[String], part: &str| lines.join(" ").contains(part);
    let lines = terminal
        .until("the connection", |lines| has(lines, "connected to the connector"))
        .await;
    for part in [
        "Chats",
        "discord through the connector",
        "Agents",
        "echo",
        "everybody",
        "Ctrl-C stops",
    ] {
        assert!(has(&lines, part), "{part}: {lines:?}");
    }
    assert!(
        !has(&lines, "hermes-relay starts") && !has(&lines, "INFO"),
        "{lines:?}"
    );
    answered(&connector, "m1", "hello").await;
    let lines = terminal.until("a turn", |lines| has(lines, "turn ended")).await;
    let line = lines.iter().find(|line| line.contains("turn ended")).unwrap();
    let time = line.split("  ").next().unwrap();
    assert!(time.len() == 8 && time.matches(':').count() == 2, "{line}");
    let file = fs::read_to_string(setup.home().join("relay.log")).unwrap();
    for part in [
        "INFO hermes-relay starts",
        "INFO configured agents=",
        "turn ended",
    ] {
        assert!(file.contains(part), "{part}: {file}");
    }
    assert!(file.starts_with("20") && !file.contains('\x1b'), "{file}");
    assert_eq!(verb(&setup, &["stop"]).await.code, 0);
    assert_eq!(terminal.ends().await.0, Some(0));
    // Whoever names a format gets it.
    let terminal = Terminal::start(setup.verb(&["run", "--agent", "echo", "--log-format", "text"]));
    let lines = terminal
        .until("the connection", |lines| has(lines, "connected to the connector"))
        .await;
    assert!(
        has(&lines, "INFO") && has(&lines, "hermes-relay starts") && !has(&lines, "Ctrl-C stops"),
        "{lines:?}"
    );
    assert_eq!(verb(&setup, &["stop"]).await.code, 0);
    assert_eq!(terminal.ends().await.0, Some(0));
}
