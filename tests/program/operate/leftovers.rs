//! Processes of agents when the relay is killed: the next start ends them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::dev::{Connector, text_event};
use rustix::process::{Pid, Signal, kill_process};

use crate::operate::{connected, connector};
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::wait::eventually;

/// An agent that writes its number and that of a process that it has started, and does not end.
fn setup(connector: &Connector) -> (Setup, PathBuf) {
    let setup = Setup::for_connector(connector).args(&["run", "--agent", "slow"]);
    let numbers = setup.home().join("numbers");
    let script = format!("sleep 600 & echo $$ $! > {}; wait", numbers.display());
    let agent = format!("{{kind: command, argv: [/bin/sh, -c, \"{script}\"]}}");
    (setup.setting("agents.slow", &agent), numbers)
}

/// A relay in the middle of a turn, and the processes of its agent.
async fn busy(connector: &Connector, setup: &Setup, numbers: &Path) -> (RelayProcess, Vec<i32>) {
    let relay = connected(setup).await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "work"))
        .unwrap();
    let processes = eventually("the agent runs and is noted", async || {
        let text = fs::read_to_string(numbers).unwrap_or_default();
        let processes: Vec<i32> = text.split_whitespace().flat_map(str::parse).collect();
        let leader = *processes.first().filter(|_| text.ends_with('\n'))?;
        let is_noted = notes(setup).lines().any(|line| is_of(line, leader));
        is_noted.then_some(processes)
    });
    (relay, processes.await)
}

/// The file in which the relay notes the processes of its agents.
fn notes(setup: &Setup) -> String {
    fs::read_to_string(setup.state_dir().join("process-groups")).unwrap_or_default()
}

/// Whether a line of it is about this process.
fn is_of(line: &str, process: i32) -> bool {
    line.split(' ').next() == Some(&process.to_string())
}

/// How many of these processes live; a zombie that waits for its parent does not.
fn living(processes: &[i32]) -> usize {
    let lives = |process: &&i32| {
        fs::read_to_string(format!("/proc/{process}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
    };
    processes.iter().filter(lives).count()
}

/// The turn is reported as interrupted.
async fn reported(connector: &Connector) {
    let sent = connector.reply_to(SOON, "m1").await.unwrap();
    assert!(sent.text.contains("restarted"), "{}", sent.text);
}

#[tokio::test]
async fn what_an_agent_of_a_killed_relay_started_is_gone_before_its_turn_is_reported() {
    let connector = connector().await;
    let (setup, numbers) = setup(&connector);
    let (mut relay, processes) = busy(&connector, &setup, &numbers).await;
    // A second relay on the same state directory ends nothing.
    let (code, log) = setup.ends().await;
    assert_eq!(code, 75, "{log}");
    assert_eq!(living(&processes), 2, "{log}");

    relay.kill().await;
    assert_eq!(living(&processes), 2, "nobody ends them but a relay");
    let relay = setup.start();
    reported(&connector).await;
    assert_eq!(living(&processes), 0, "{}", relay.stderr());
    let line = relay
        .wait_for_log("killed processes that an earlier run left")
        .await;
    for part in ["agent=\"slow\"", &format!("process={}", processes[0]), "count=2"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    relay.stop().await;
    assert!(!setup.state_dir().join("process-groups").exists());
}

#[tokio::test]
async fn a_process_that_has_the_number_of_an_agents_by_chance_is_left_alone() {
    let connector = connector().await;
    let (setup, numbers) = setup(&connector);
    let (mut relay, processes) = busy(&connector, &setup, &numbers).await;
    relay.kill().await;
    let notes = notes(&setup);
    let group = notes.lines().find(|line| is_of(line, processes[0])).unwrap();
    let start = group.split(' ').nth(1).unwrap();
    let earlier = (start.parse::<u64>().unwrap() - 1).to_string();
    let earlier = format!("{earlier:0>width$}", width = start.len());
    let forged = group.replacen(start, &earlier, 1);
    let file = setup.state_dir().join("process-groups");
    fs::write(file, notes.replace(group, &forged)).unwrap();

    let relay = setup.start();
    reported(&connector).await;
    assert_eq!(living(&processes), 2, "{}", relay.stderr());
    assert_eq!(relay.count("an earlier run left"), 0, "{}", relay.stderr());
    relay.stop().await;
    for process in processes {
        kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    }
}

#[cfg(feature = "nats")]
#[tokio::test]
async fn a_member_of_a_cluster_ends_what_it_left_before_it_reaches_its_server() {
    let connector = connector().await;
    let (setup, numbers) = setup(&connector);
    let (mut relay, processes) = busy(&connector, &setup, &numbers).await;
    relay.kill().await;
    let member = setup
        .setting("nats.url", "nats://127.0.0.1:1")
        .setting("cluster.name", "home");
    let mut relay = member.start();
    relay
        .wait_for_log("killed processes that an earlier run left")
        .await;
    assert_eq!(living(&processes), 0, "{}", relay.stderr());
    assert_eq!(connector.sent_messages().len(), 0, "it is not active");
    relay.kill().await;
}
