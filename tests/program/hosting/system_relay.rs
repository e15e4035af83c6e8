//! The tight unit under a systemd that is process 1: everything in the unit is in force, and the relay does its work.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, Instant};

use crate::support::dev::{Connector, ConnectorSettings, text_event};
use secrecy::ExposeSecret as _;

use crate::hosting::machine::Machine;
use crate::hosting::names::Names;
use crate::support::relay_process::SOON;
use crate::support::tls_front::terminator;

const UNIT: &str = "hermes-relay-only.service";
/// The numbers that systemd gives to accounts that exist only meanwhile.
const PASSING_ACCOUNTS: std::ops::RangeInclusive<u32> = 61184..=65519;

/// Installs a unit in a machine as a person would: by doing what is printed.
pub(crate) fn follow_the_instructions(machine: &Machine, output: &str, secret: &str, config: &str) {
    let (_, steps) = output.split_once("Next:\n").unwrap();
    let mut done = 0;
    for step in steps.lines().filter(|line| line.starts_with("  ")) {
        let step = step.split(" #").next().unwrap().trim();
        if let Some(file) = step.strip_prefix("editor ") {
            machine.write(file, config);
        } else {
            let (success, output) = machine.run_on(step, secret);
            assert!(success, "{step}: {output}\n{}", machine.log());
        }
        done += 1;
    }
    assert!(done > 2, "{output}");
}

/// For a person who does not want to wait.
pub(crate) fn restarts_soon(machine: &Machine, unit: &str) {
    let file = format!("etc/systemd/system/{unit}.d/soon.conf");
    machine.write(&file, "[Service]\nRestartSec=100ms\n");
}

pub(crate) async fn answers(connector: &Connector, machine: &Machine, id: &str, text: &str) {
    connector.deliver(&text_event("discord", "c", id, text)).unwrap();
    let reply = connector.reply_to(SOON, id).await.map(|reply| reply.text);
    let reply = reply.unwrap_or_else(|error| panic!("{error:?}\n{}", machine.log()));
    assert_eq!(reply, format!("echo: {text}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_starts_nothing_works_locked_in() {
    let Some(machine) = Machine::boot("relay") else {
        return;
    };
    let settings = ConnectorSettings {
        hosts: vec!["connector.test".to_owned()],
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let who = connector.credentials().unwrap();
    let secret = who.secret.expose_secret();
    let names = Names::serve().await;
    match &names {
        Some(names) => machine.asks_for_names(names.at),
        None => machine.write("etc/hosts", "127.0.0.1 connector.test\n"),
    }
    let (port, authority) = terminator("connector.test", connector.addr(), 1000).await;
    machine.write("etc/hermes-relay/authority.pem", &authority);
    let config = format!(
        "connector:\n  url: wss://connector.test:{port}\n  gateway_id: {}\n  identities: [{{platform: discord}}]\n\
         tls: {{ca_file: /etc/hermes-relay/authority.pem}}\nlink: {{backoff_min_ms: 50}}\nagent: echo\n",
        who.gateway_id
    );
    let output = machine.does("/opt/hermes-relay service install --profile relay");
    restarts_soon(&machine, UNIT);
    follow_the_instructions(&machine, &output, secret, &config);

    // Names, encryption, the credential, the journal: all of it is needed for this.
    machine.until(UNIT, "StatusText", "connected: discord");
    assert!(
        names.is_none_or(|names| names.asked() > 0),
        "the name was looked up"
    );
    answers(&connector, &machine, "m1", "hello").await;
    is_locked_in(&machine, secret);
    for verb in ["status", "health", "journal list"] {
        machine.does(&format!(
            "/opt/hermes-relay {verb} --state-dir /var/lib/hermes-relay"
        ));
    }
    let output = machine.does("/opt/hermes-relay service status");
    assert!(output.contains("ActiveState=active"), "{output}");

    // It comes back after a crash, and when it is asked to.
    machine.does(&format!("systemctl kill --signal=KILL {UNIT}"));
    machine.until(UNIT, "NRestarts", "1");
    machine.until(UNIT, "ActiveState", "active");
    answers(&connector, &machine, "m2", "again").await;
    machine.does(&format!("systemctl reload {UNIT}"));
    machine.comes_true(&format!("journalctl -u {UNIT} | grep -q 'settings reloaded'"));
    machine.does(&format!("systemctl kill --kill-who=main --signal=USR1 {UNIT}"));
    machine.until(UNIT, "NRestarts", "2");
    machine.until(UNIT, "ActiveState", "active");
    answers(&connector, &machine, "m3", "once more").await;

    // One that stands still is ended and started again.
    let watched = format!("etc/systemd/system/{UNIT}.d/watched.conf");
    machine.write(&watched, "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=100ms\n");
    machine.does(&format!("systemctl daemon-reload && systemctl restart {UNIT}"));
    machine.does(&format!("systemctl kill --kill-who=main --signal=STOP {UNIT}"));
    machine.comes_true(&format!(
        "journalctl -u {UNIT} | grep -q 'Failed with result .watchdog.'"
    ));
    fs::remove_file(machine.path(&watched)).unwrap();
    machine.does(&format!("systemctl daemon-reload && systemctl restart {UNIT}"));
    answers(&connector, &machine, "m4", "wide awake").await;

    let began = Instant::now();
    machine.does(&format!("systemctl stop {UNIT}"));
    assert!(began.elapsed() < Duration::from_secs(25), "within its own budget");
    assert_eq!(machine.show(UNIT, "Result"), "success", "it ended by itself");
    assert!(
        machine.has("var/lib/private/hermes-relay/journal.db"),
        "the journal is kept"
    );

    // What ends to sleep sleeps until somebody starts it.
    let sleepy = config.replace("connector:\n", "connector:\n  wake_url: http://127.0.0.1:9/\n")
        + "sleep: {enabled: true, idle_secs: 1}\n";
    machine.write("etc/hermes-relay/config.yaml", &sleepy);
    machine.does(&format!("systemctl start {UNIT}"));
    machine.until(UNIT, "ActiveState", "inactive");
    assert_eq!(machine.show(UNIT, "Result"), "success");
    assert_eq!(machine.show(UNIT, "NRestarts"), "0");

    // What is revoked is not started again, and says why.
    machine.write("etc/hermes-relay/config.yaml", &config);
    machine.does(&format!("systemctl start {UNIT}"));
    machine.until(UNIT, "StatusText", "connected: discord");
    connector.revoke();
    machine.until(UNIT, "ActiveState", "failed");
    assert_eq!(machine.show(UNIT, "ExecMainStatus"), "77");
    assert_eq!(machine.show(UNIT, "NRestarts"), "0");
    machine.comes_true(&format!(
        "journalctl -u {UNIT} | grep -q 'has revoked this gateway'"
    ));
}

/// What the unit promises of the process.
fn is_locked_in(machine: &Machine, secret: &str) {
    let pid = machine.show(UNIT, "MainPID");
    let status = machine.does(&format!("cat /proc/{pid}/status"));
    for locked in [
        "Seccomp:\t2",
        "NoNewPrivs:\t1",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
    ] {
        assert!(status.contains(locked), "{status}");
    }
    let account = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:\t"))
        .unwrap();
    let account: u32 = account.split('\t').next().unwrap().parse().unwrap();
    assert!(PASSING_ACCOUNTS.contains(&account), "{account}");

    let state = fs::metadata(machine.path("var/lib/private/hermes-relay")).unwrap();
    assert_eq!(
        (state.uid(), state.permissions().mode() & 0o7777),
        (account, 0o700)
    );
    let journal = fs::metadata(machine.path("var/lib/private/hermes-relay/journal.db")).unwrap();
    assert_eq!(
        (journal.uid(), journal.permissions().mode() & 0o7777),
        (account, 0o600)
    );

    let environment = machine.does(&format!("tr '\\0' '\\n' < /proc/{pid}/environ"));
    assert!(
        environment.contains(&format!("CREDENTIALS_DIRECTORY=/run/credentials/{UNIT}")),
        "{environment}"
    );
    assert!(!environment.contains(secret), "the secret is in no environment");
    let kept = fs::metadata(machine.path(&format!("run/credentials/{UNIT}/relay-secret"))).unwrap();
    assert_eq!((kept.uid(), kept.permissions().mode() & 0o7777), (account, 0o400));

    // Even root cannot write where it lives, and of homes there are none.
    let inside = |line: &str| machine.run(&format!("nsenter --mount --target {pid} {line}"));
    for closed in ["/etc/x", "/usr/x", "/opt/x", "/var/x", "/home/x", "/root/x"] {
        let (success, output) = inside(&format!("touch {closed}"));
        assert!(
            !success && output.contains("Read-only file system"),
            "{closed}: {output}"
        );
    }
    machine.write("tmp/mine", "");
    let (_, output) = inside("ls /tmp /root /home");
    assert!(!output.contains("mine"), "its /tmp is its own: {output}");
}
