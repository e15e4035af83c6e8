//! Operating a relay: the real binary asked by the real verbs, by strangers on its control socket, by monitors over
//! HTTP, and by signals.

mod access;
mod access_turns;
mod bundle;
mod completions;
mod control;
mod cron;
mod cron_relay;
mod data;
mod dev;
mod dev_chat;
mod dev_people;
mod documents;
mod ending;
mod first_run;
mod http;
mod leftovers;
mod log_file;
mod logs;
pub(crate) mod metrics;
mod notify;
mod receiver;
mod signals;
mod skills;
mod verbs;
mod without;

use std::process::Stdio;

use crate::support::dev::{Connector, ConnectorSettings, text_event};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::wait::eventually;

async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

/// A relay that is connected.
async fn connected(setup: &Setup) -> RelayProcess {
    let relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    relay
}

/// What a verb said, and how it ended.
#[derive(Debug)]
struct VerbOutput {
    code: i32,
    out: String,
    err: String,
}

impl VerbOutput {
    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        assert_eq!(self.out.lines().count(), 1, "one line: {self:?}");
        serde_json::from_str(&self.out).unwrap()
    }

    /// It printed nothing but why it failed.
    #[track_caller]
    fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "{part}: {self:?}");
        }
    }
}

/// Runs a verb beside a relay.
async fn verb(setup: &Setup, args: &[&str]) -> VerbOutput {
    verb_with(setup, args, None).await
}

/// The same, with something on its standard input.
async fn verb_with(setup: &Setup, args: &[&str], stdin: Option<&str>) -> VerbOutput {
    let mut command = setup.verb(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if stdin.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), stdin) {
        // It may end without reading it.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
    let ended = timeout(SOON, child.wait_with_output())
        .await
        .expect("an end in time");
    let ended = ended.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let output = VerbOutput {
        code: ended.status.code().expect("an exit code"),
        out: text(ended.stdout),
        err: text(ended.stderr),
    };
    assert!(!output.err.contains("panicked"), "{output:?}");
    output
}

async fn status(setup: &Setup) -> Value {
    verb(setup, &["status", "--json"]).await.json()
}

/// Waits until the status is as wanted, and gives it.
async fn status_until(setup: &Setup, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let status = status(setup).await;
        if wanted(&status) { Ok(status) } else { Err(status) }
    })
    .await
}

/// Says something in the chat `c1` and waits for the answer.
async fn answered(connector: &Connector, id: &str, text: &str) {
    connector.deliver(&text_event("discord", "c1", id, text)).unwrap();
    connector.reply_to(SOON, id).await.unwrap();
}
