//! The system's journal: a real journald of our own, in a mount namespace, and the real program beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::dev::{Connector, ConnectorSettings};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::hosting::{BINARY, has, is_root, tied};
use crate::support::relay_process::SOON;
use crate::support::skip::skip;

const JOURNALD: &str = "/lib/systemd/systemd-journald";
/// The exit code of a script that can have no journal.
const CANNOT_BE: i32 = 3;

/// A journal of our own where the system has its journal; 3 where that cannot be. `await` waits for a condition, up to a
/// deadline. The script is process 1 of its namespace: whatever it leaves behind ends with it.
const JOURNAL: &str = r#"
mkdir -p /run/systemd /run/log || exit 3
mount -t tmpfs tmpfs /run/systemd && mount -t tmpfs tmpfs /run/log || exit 3
mkdir -p /run/log/journal
await() {
  tries=400
  while ! eval "$1"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "this did not come: $1" >&2; exit ${2:-4}; }
    sleep 0.05
  done
}
entries() { journalctl --no-pager --quiet -o json SYSLOG_IDENTIFIER=hermes-relay; }
journald() {
  rm -f /run/systemd/journal/socket /run/systemd/journal/stdout
  /lib/systemd/systemd-journald 2>/dev/null & journald=$!
  await '[ -S /run/systemd/journal/socket ] && [ -S /run/systemd/journal/stdout ]' 3
}
ends() { kill -TERM "$1"; wait "$1" || exit 5; }
"#;

struct Stage {
    folder: TempDir,
    connector: Connector,
}

impl Stage {
    /// `None`, loudly, where there is no journald to be had.
    async fn new() -> Option<Self> {
        if !is_root() || !has("unshare") || !has("journalctl") || !has("systemd-cat") || !has("stat") {
            return None;
        }
        if !Path::new(JOURNALD).exists() {
            skip(&format!("{JOURNALD} is not installed"));
            return None;
        }
        Some(Self {
            folder: tempfile::tempdir_in("/run").unwrap(),
            connector: Connector::start(ConnectorSettings::default()).await.unwrap(),
        })
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// Runs a script beside a journal of its own. `None`, loudly, where there can be none.
    async fn runs(&self, script: &str) -> Option<()> {
        let who = self.connector.credentials().unwrap();
        let folder = self.folder.path();
        let mut command = Command::from(tied("unshare"));
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", &[JOURNAL, script].concat()])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("RELAY", BINARY)
            .env("HOME", folder)
            .env("HERMES_RELAY_STATE_DIR", folder.join("state"))
            .env("GATEWAY_RELAY_URL", self.connector.url())
            .env("GATEWAY_RELAY_ID", &who.gateway_id)
            .env("GATEWAY_RELAY_SECRET", who.secret.expose_secret())
            .env("GATEWAY_RELAY_PLATFORMS", "discord")
            .current_dir(folder)
            .kill_on_drop(true);
        let ended = tokio::time::timeout(SOON * 4, command.output()).await;
        let ended = ended.expect("an end in time").unwrap();
        let output = String::from_utf8_lossy(&ended.stderr);
        if ended.status.code() == Some(CANNOT_BE) {
            skip(&format!("no journald can be started here: {output}"));
            return None;
        }
        assert!(ended.status.success(), "{output}\n{}", self.file("stderr"));
        Some(())
    }

    /// The entries that the script kept.
    fn entries(&self) -> Vec<BTreeMap<String, Value>> {
        let kept = self.file("entries");
        kept.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_journal_reads_standard_error_it_gets_entries_with_fields() {
    let Some(stage) = Stage::new().await else { return };
    let ran = stage.runs(
        r#"
journald
# As systemd starts a service: standard error is the journal's stream, and the variable names it.
systemd-cat -t stream sh -c \
  'echo $$ > pid; export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2); exec "$RELAY" run --agent echo' &
relay=$!
await 'entries | grep -q "connected to the connector"'
kill -USR2 "$(cat pid)"
await 'entries | grep -q "dump: counts"'
kill -TERM "$(cat pid)"; wait $relay || exit 5
entries > entries
journalctl --no-pager --quiet -o cat -t stream > stream
journalctl --no-pager --quiet -o cat HERMES_PLATFORM=discord > found
"#,
    );
    if ran.await.is_none() {
        return;
    }
    let entries = stage.entries();
    let connected = entries.iter().find(|entry| {
        let message = entry["MESSAGE"].as_str().unwrap_or_default();
        message.starts_with("connected to the connector")
    });
    let connected = connected.expect("the entry");
    for (field, wanted) in [
        ("PRIORITY", "6"),
        ("SYSLOG_IDENTIFIER", "hermes-relay"),
        ("_TRANSPORT", "journal"),
        ("HERMES_PLATFORM", "discord"),
        ("HERMES_TARGET", "hermes_relay::relay::transport::driver"),
    ] {
        assert_eq!(connected[field], wanted, "{field}: {connected:?}");
    }
    assert!(
        connected["MESSAGE"]
            .as_str()
            .unwrap()
            .contains("platform=\"discord\"")
    );
    assert!(stage.file("found").contains("connected to the connector"));
    assert_eq!(stage.file("stream"), "", "nothing twice");
    let secret = stage.connector.credentials().unwrap().secret;
    assert!(!stage.file("entries").contains(secret.expose_secret()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inherited_variable_does_not_lead_lines_away_from_standard_error() {
    let Some(stage) = Stage::new().await else { return };
    let ran = stage.runs(
        r#"
journald
systemd-cat -t stream sh -c \
  'echo $$ > pid; export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2); exec "$RELAY" run --agent echo 2>stderr' &
relay=$!
await 'grep -q "connected to the connector" stderr'
kill -TERM "$(cat pid)"; wait $relay || exit 5
entries > entries
"#,
    );
    if ran.await.is_none() {
        return;
    }
    assert!(
        stage.file("stderr").contains("INFO"),
        "text: {}",
        stage.file("stderr")
    );
    assert_eq!(stage.file("entries"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_journal_it_reports_it_and_runs_and_a_journal_that_goes_loses_no_line() {
    let Some(stage) = Stage::new().await else { return };
    let ran = stage.runs(
        r#"
"$RELAY" run --agent echo --log-format journald 2>without & relay=$!
await 'grep -q "connected to the connector" without'
ends $relay
journald
"$RELAY" run --agent echo --log-format journald 2>stderr & relay=$!
await 'entries | grep -q "connected to the connector"'
kill -KILL $journald; wait $journald
kill -USR2 $relay
await 'grep -q "dump: counts" stderr'
journald
kill -USR2 $relay
await 'entries | grep -q "dump: counts"'
ends $relay
"#,
    );
    if ran.await.is_none() {
        return;
    }
    let without = stage.file("without");
    let line = without.lines().find(|line| line.contains("cannot open journald"));
    let line = line.unwrap_or_else(|| panic!("{without}"));
    for part in ["/run/systemd/journal/socket", "No such file", "log.format"] {
        assert!(line.contains(part), "{line}");
    }
    let stderr = stage.file("stderr");
    assert!(stderr.contains("INFO dump: link"), "{stderr}");
    assert!(
        !stderr.contains("connected to the connector"),
        "the journal has it: {stderr}"
    );
}
