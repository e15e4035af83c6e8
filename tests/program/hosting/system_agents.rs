//! The unit that starts agents, under a systemd that is process 1: agents work, are kept away from the system, and are
//! gone with their turn.

use std::time::{Duration, Instant};

use crate::support::dev::{Connector, ConnectorSettings, text_event};
use secrecy::ExposeSecret as _;

use crate::hosting::machine::Machine;
use crate::hosting::system_relay::{follow_the_instructions, restarts_soon};
use crate::support::relay_process::SOON;

const UNIT: &str = "hermes-relay.service";

/// Does what a message says, as a shell; leaves a process behind.
const AGENT: &str = r"
agents:
  shell:
    kind: command
    argv: [/bin/sh, -c, 'sleep 1000 & exec /bin/sh -s']
agent: shell
";

async fn ask(connector: &Connector, machine: &Machine, id: &str, script: &str) -> String {
    connector
        .deliver(&text_event("discord", "c", id, script))
        .unwrap();
    let reply = connector.reply_to(SOON, id).await.map(|reply| reply.text);
    reply.unwrap_or_else(|error| panic!("{script}: {error:?}\n{}", machine.log()))
}

/// How many processes the unit has.
fn processes(machine: &Machine) -> usize {
    let group = format!("/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs");
    machine.does(&format!("cat {group}")).lines().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_work_in_a_home_of_their_own_and_nowhere_else() {
    let Some(machine) = Machine::boot("agents") else {
        return;
    };
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let who = connector.credentials().unwrap();
    let secret = who.secret.expose_secret();
    let config = format!(
        "connector:\n  url: {}\n  gateway_id: {}\n  identities: [{{platform: discord}}]\nlink: {{backoff_min_ms: 50}}\n\
         shutdown: {{budget_secs: 8, drain_secs: 2}}\nstreaming: {{mode: off}}\n{AGENT}",
        connector.url(),
        who.gateway_id
    );
    let output = machine.does("/opt/hermes-relay service install");
    restarts_soon(&machine, UNIT);
    follow_the_instructions(&machine, &output, secret, &config);
    machine.until(UNIT, "StatusText", "connected: discord");

    // Its home, its name, its way to programs.
    let script = "id -un; pwd; echo $HOME; echo kept > note; cat note; getent hosts localhost";
    let reply = ask(&connector, &machine, "m1", script).await;
    let home = "/var/lib/hermes-relay";
    assert!(
        reply.starts_with(&format!("hermes-relay\n{home}\n{home}\nkept\n")),
        "{reply}"
    );
    assert!(reply.contains("localhost"), "{reply}");
    assert!(machine.has("var/lib/hermes-relay/note"));
    // What it started has gone with the turn.
    machine.comes_true(&format!(
        "[ $(wc -l < /sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs) = 1 ]"
    ));

    // What it is kept from.
    let environment = ask(&connector, &machine, "m2", "env").await;
    for theirs in ["CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG", secret] {
        assert!(!environment.contains(theirs), "{environment}");
    }
    for (id, line) in [
        ("m3", "touch /etc/x"),
        ("m4", "touch /usr/x"),
        ("m5", "cat /etc/hermes-relay/secret"),
        ("m6", "kill -0 1"),
        ("m7", "ls /root"),
        ("m8", "[ -e /tmp/mine ]"),
        ("m9", "[ -e /proc/1 ]"),
    ] {
        machine.write("tmp/mine", "");
        let reply = ask(
            &connector,
            &machine,
            id,
            &format!("{line} 2>&1 && echo done || echo refused"),
        )
        .await;
        assert!(reply.trim_end().ends_with("refused"), "{line}: {reply}");
    }

    // A relay that dies takes a running agent with it, and what that left outside its group.
    let hangs = "setsid sleep 1001 & echo > began; sleep 1002";
    connector
        .deliver(&text_event("discord", "c", "n1", hangs))
        .unwrap();
    machine.comes_true("[ -e /var/lib/hermes-relay/began ]");
    assert!(processes(&machine) > 3, "{}", processes(&machine));
    machine.does(&format!("systemctl kill --kill-who=main --signal=KILL {UNIT}"));
    machine.until(UNIT, "NRestarts", "1");
    machine.until(UNIT, "StatusText", "connected: discord");
    machine.comes_true(&format!(
        "[ $(wc -l < /sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs) = 1 ]"
    ));
    assert_eq!(ask(&connector, &machine, "n2", "echo back").await.trim(), "back");

    // A stop ends an agent that does not end, in time.
    machine.does("rm /var/lib/hermes-relay/began");
    connector
        .deliver(&text_event("discord", "c", "n3", hangs))
        .unwrap();
    machine.comes_true("[ -e /var/lib/hermes-relay/began ]");
    let began = Instant::now();
    machine.does(&format!("systemctl stop {UNIT}"));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(machine.show(UNIT, "Result"), "success", "{}", machine.log());
    let left = machine.does("for process in /proc/[0-9]*; do cat $process/comm 2>/dev/null || true; done");
    assert!(left.lines().any(|name| name == "systemd"), "{left}");
    assert!(
        !left.lines().any(|name| name == "sleep"),
        "nothing is left: {left}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_runs_as_somebody_takes_that_ones_settings() {
    let Some(machine) = Machine::boot("somebody") else {
        return;
    };
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let who = connector.credentials().unwrap();
    machine.does("useradd --create-home ada");
    let env = format!(
        "GATEWAY_RELAY_URL={}\nGATEWAY_RELAY_ID={}\nGATEWAY_RELAY_SECRET={}\nGATEWAY_RELAY_PLATFORMS=discord\n",
        connector.url(),
        who.gateway_id,
        who.secret.expose_secret()
    );
    machine.write("home/ada/.hermes/.env", &env);
    machine.write(
        "home/ada/.hermes/relay.yaml",
        &format!("streaming: {{mode: off}}\n{AGENT}"),
    );
    machine.does("chown -R ada: /home/ada/.hermes && chmod 600 /home/ada/.hermes/.env");

    let output = machine.does("/opt/hermes-relay service install --run-as ada");
    follow_the_instructions(&machine, &output, "", "");
    machine.until(UNIT, "StatusText", "connected: discord");
    let reply = ask(
        &connector,
        &machine,
        "m1",
        "id -un; echo $HOME; pwd; touch $HOME/mine",
    )
    .await;
    assert_eq!(reply.trim(), "ada\n/home/ada\n/var/lib/hermes-relay");
    assert!(machine.has("home/ada/mine"));
    machine.does(&format!("systemctl stop {UNIT}"));
    assert_eq!(machine.show(UNIT, "Result"), "success");
}
