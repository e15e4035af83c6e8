//! The unit file says what the program does.

use hermes_relay::config::Settings;

fn unit() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/hermes-relay.service");
    std::fs::read_to_string(path).unwrap()
}

fn value(unit: &str, key: &str) -> String {
    let prefix = format!("{key}=");
    let found = unit.lines().find_map(|line| line.strip_prefix(&prefix));
    found
        .unwrap_or_else(|| panic!("{key} is not in the unit file"))
        .to_owned()
}

#[test]
fn the_shutdown_budget_fits_into_the_time_that_the_unit_gives() {
    let timeout: u64 = value(&unit(), "TimeoutStopSec").parse().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let shutdown = Settings::embedded(directory.path()).shutdown;
    assert!(shutdown.budget_secs + 10 <= timeout);
    assert!(shutdown.going_idle_secs + shutdown.drain_secs < shutdown.budget_secs);
}

#[test]
fn a_revoked_or_misconfigured_relay_is_not_started_again() {
    assert_eq!(value(&unit(), "RestartPreventExitStatus"), "77 78");
}
