//! Process 1 of a process namespace, as in a container without an init.

use std::fs;
use std::process::Stdio;

use crate::support::dev::{Connector, ConnectorSettings, text_event};
use rustix::process::{Pid, Signal, kill_process};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::hosting::{BINARY, has, is_root, tied};
use crate::support::relay_process::SOON;
use crate::support::wait::eventually;

/// An agent that leaves a process behind, outside its own group, which ends a little later.
const AGENT: &str = r#"
agents:
  leaver:
    kind: command
    argv:
      - /bin/sh
      - -c
      - |
        cat > /dev/null
        setsid sh -c 'touch "$HOME/left"; sleep 0.2; touch "$HOME/ended"' > /dev/null 2>&1 < /dev/null &
        while [ ! -e "$HOME/left" ]; do sleep 0.01; done
        echo done
agent: leaver
streaming: {mode: off}
"#;

struct Namespace {
    outer: Child,
    home: TempDir,
}

impl Namespace {
    fn start(connector: &Connector) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("relay.yaml"), AGENT).unwrap();
        let who = connector.credentials().unwrap();
        let log = fs::File::create(home.path().join("log")).unwrap();
        let outer = Command::from(tied("unshare"))
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", BINARY, "run"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home.path())
            .env("HERMES_HOME", home.path())
            .env("GATEWAY_RELAY_URL", connector.url())
            .env("GATEWAY_RELAY_ID", &who.gateway_id)
            .env("GATEWAY_RELAY_SECRET", who.secret.expose_secret())
            .env("GATEWAY_RELAY_PLATFORMS", "discord")
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { outer, home }
    }

    /// Process 1 as it is called outside.
    async fn first(&self) -> i32 {
        let outer = i32::try_from(self.outer.id().unwrap()).unwrap();
        eventually("process 1", async || children(outer).first().map(|(pid, _)| *pid)).await
    }

    fn has(&self, file: &str) -> bool {
        self.home.path().join(file).exists()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap()
    }

    async fn ended(&mut self) -> i32 {
        let status = timeout(SOON, self.outer.wait()).await;
        status.expect("an end").unwrap().code().unwrap()
    }
}

/// The children of a process with their states.
pub(crate) fn children(parent: i32) -> Vec<(i32, char)> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut found: Vec<_> = processes
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(") ")?;
            let mut fields = rest.split(' ');
            let state = fields.next()?.chars().next()?;
            (fields.next()?.parse() == Ok(parent)).then_some((pid, state))
        })
        .collect();
    found.sort_unstable();
    found
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn it_reaps_what_agents_leave_behind_and_passes_signals_on() {
    if !is_root() || !has("unshare") {
        return;
    }
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let mut namespace = Namespace::start(&connector);
    connector.wait_connected(SOON).await.unwrap();
    let first = namespace.first().await;
    connector
        .deliver(&text_event("discord", "c", "m1", "go"))
        .unwrap();
    // It may be shown while it grows; only once the agent's own exit reached the relay is it whole.
    let whole = connector.wait_for_sent("the whole answer", SOON, |sent| {
        sent.reply_to.as_deref() == Some("m1") && sent.text == "done"
    });
    whole.await.unwrap();

    eventually("the end of the orphan", async || {
        namespace.has("ended").then_some(())
    })
    .await;
    eventually("a process 1 with the relay as its only child", async || {
        matches!(children(first)[..], [(_, state)] if state != 'Z').then_some(())
    })
    .await;

    signal(first, Signal::HUP);
    eventually("the settings read again", async || {
        namespace.log().contains("settings reloaded").then_some(())
    })
    .await;
    signal(first, Signal::TERM);
    assert_eq!(namespace.ended().await, 0, "{}", namespace.log());
    assert!(
        !namespace.log().contains("second stop signal"),
        "{}",
        namespace.log()
    );
}

#[tokio::test]
async fn it_ends_as_the_relay_ends() {
    if !is_root() || !has("unshare") {
        return;
    }
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let mut namespace = Namespace::start(&connector);
    connector.wait_connected(SOON).await.unwrap();
    let first = namespace.first().await;
    signal(children(first)[0].0, Signal::KILL);
    assert_eq!(namespace.ended().await, 128 + 9);
}
