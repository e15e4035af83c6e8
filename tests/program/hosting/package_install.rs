//! The Debian package in a machine with a systemd of its own: put in, started, put in again, taken out, purged.

use std::fs;

use crate::support::dev::{Connector, ConnectorSettings};
use secrecy::ExposeSecret as _;

use crate::hosting::has;
use crate::hosting::machine::Machine;
use crate::hosting::packages::build_deb;
use crate::hosting::system_relay::answers;
use crate::support::skip::skip;

const UNIT: &str = "hermes-relay.service";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_lives_and_goes_as_packages_do() {
    if !has("dpkg-deb") || !has("strip") {
        return;
    }
    let Some(machine) = Machine::boot("package") else {
        return;
    };
    if !machine.run("touch /usr/x && rm /usr/x").0 {
        skip("nothing can be laid over /usr in here, so no package can be put in");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    fs::copy(build_deb(out.path()), machine.path("root/relay.deb")).unwrap();
    machine.does("dpkg --install /root/relay.deb");
    machine.does("getent passwd hermes-relay");
    assert_eq!(machine.show(UNIT, "UnitFileState"), "disabled");
    assert_eq!(machine.show(UNIT, "ActiveState"), "inactive", "it starts nothing");

    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let who = connector.credentials().unwrap();
    let (success, output) = machine.run_on(
        "install -m 600 /dev/stdin /etc/hermes-relay/secret",
        who.secret.expose_secret(),
    );
    assert!(success, "{output}");
    let config = format!(
        "connector:\n  url: {}\n  gateway_id: {}\n  identities: [{{platform: discord}}]\nagent: echo\n",
        connector.url(),
        who.gateway_id
    );
    machine.write("etc/hermes-relay/config.yaml", &config);
    machine.does(&format!("systemctl enable --now {UNIT}"));
    answers(&connector, &machine, "m1", "hello").await;
    let before = machine.show(UNIT, "MainPID");

    // An update restarts what runs, and leaves the settings alone.
    machine.does("dpkg --install /root/relay.deb");
    assert_eq!(machine.show(UNIT, "ActiveState"), "active");
    assert_ne!(machine.show(UNIT, "MainPID"), before);
    assert_eq!(
        fs::read_to_string(machine.path("etc/hermes-relay/config.yaml")).unwrap(),
        config
    );
    answers(&connector, &machine, "m2", "again").await;
    let output = machine
        .does("hermes-relay doctor --verbose --state-dir /var/lib/hermes-relay | grep -A1 'Service unit'");
    assert!(
        output.contains("/usr/lib/systemd/system/hermes-relay.service waits 40 s"),
        "{output}"
    );

    // Taken out, it has stopped, and what is the owner's stays.
    machine.does("dpkg --remove hermes-relay");
    assert_eq!(machine.show(UNIT, "ActiveState"), "inactive");
    assert!(!machine.has("etc/systemd/system/multi-user.target.wants/hermes-relay.service"));
    assert!(
        !machine.has("usr/bin/hermes-relay") && !machine.has("usr/lib/systemd/system/hermes-relay.service")
    );
    for kept in [
        "var/lib/hermes-relay/journal.db",
        "etc/hermes-relay/config.yaml",
        "etc/hermes-relay/secret",
    ] {
        assert!(machine.has(kept), "{kept}");
    }
    machine.does("dpkg --purge hermes-relay");
    for gone in ["var/lib/hermes-relay", "etc/hermes-relay"] {
        assert!(!machine.has(gone), "{gone}");
    }
    machine.does("getent passwd hermes-relay");
}
