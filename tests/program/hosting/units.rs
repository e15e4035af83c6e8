//! The units say what the program does, systemd finds no fault with them, and the verb that writes them is careful.

use std::fs;
use std::path::Path;
use std::process::Command;

use hermes_relay::config::Settings;

use crate::hosting::{BINARY, has, repository, run_command};

const UNITS: [&str; 3] = [
    "systemd/hermes-relay.service",
    "systemd/hermes-relay-only.service",
    "systemd/user/hermes-relay.service",
];

fn unit(name: &str) -> String {
    fs::read_to_string(repository(name)).unwrap()
}

fn value(unit: &str, key: &str) -> String {
    let prefix = format!("{key}=");
    let found = unit.lines().find_map(|line| line.strip_prefix(&prefix));
    found
        .unwrap_or_else(|| panic!("{key} is not in the unit file"))
        .to_owned()
}

/// Runs `hermes-relay service`.
fn service(home: &Path, args: &[&str]) -> (i32, String) {
    let output = Command::new(BINARY)
        .arg("service")
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn the_shutdown_budget_fits_into_the_time_that_the_units_give() {
    let directory = tempfile::tempdir().unwrap();
    let shutdown = Settings::embedded(directory.path()).shutdown;
    assert!(shutdown.going_idle_secs + shutdown.drain_secs < shutdown.budget_secs);
    for name in UNITS {
        let timeout: u64 = value(&unit(name), "TimeoutStopSec").parse().unwrap();
        assert!(shutdown.budget_secs + 10 <= timeout, "{name}");
    }
}

#[test]
fn every_unit_is_watched_and_not_restarted_in_vain() {
    for name in UNITS {
        let unit = unit(name);
        for (key, expected) in [
            ("Type", "notify"),
            ("NotifyAccess", "main"),
            ("WatchdogSec", "60"),
            ("Restart", "on-failure"),
            ("RestartPreventExitStatus", "77 78"),
            ("KillMode", "mixed"),
        ] {
            assert_eq!(value(&unit, key), expected, "{name}");
        }
    }
    for name in &UNITS[..2] {
        let unit = unit(name);
        assert_eq!(value(&unit, "StateDirectory"), "hermes-relay");
        assert_eq!(
            value(&unit, "LoadCredential"),
            "relay-secret:/etc/hermes-relay/secret"
        );
    }
}

#[test]
fn every_setting_of_a_unit_has_its_reason() {
    for name in UNITS {
        let unit = unit(name);
        let (_, service) = unit.split_once("[Service]\n").unwrap();
        let mut reasons = 0;
        for (line, after) in service.lines().zip(service.lines().skip(1)) {
            reasons += usize::from(line.starts_with('#'));
            let bare = line.is_empty() || line.starts_with('[');
            assert!(
                !(bare && after.contains('=') && !after.starts_with('#')),
                "{after}"
            );
        }
        assert!(reasons > 15, "{name}");
    }
}

#[test]
fn systemd_finds_no_fault_and_the_exposure_is_small() {
    if !has("systemd-analyze") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("units").display().to_string();
    for (profile, file, threshold) in [
        ("relay", "hermes-relay-only.service", "15"),
        ("agents", "hermes-relay.service", "45"),
    ] {
        let args = ["install", "--unit-dir", &dir, "--profile", profile];
        let (code, output) = service(home.path(), &args);
        assert_eq!(code, 0, "{output}");
        let file = Path::new(&dir).join(file);
        let (sound, output) = run_command(
            Command::new("systemd-analyze")
                .args(["--man=no", "verify"])
                .arg(&file),
        );
        assert!(sound && output.trim().is_empty(), "{output}");
        let threshold = format!("--threshold={threshold}");
        let (small, output) = run_command(
            Command::new("systemd-analyze")
                .args(["security", "--offline=true", "--no-pager", &threshold])
                .arg(&file),
        );
        assert!(small, "{output}");
    }
}

#[test]
fn a_unit_is_written_once_and_a_changed_one_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("units").display().to_string();
    let file = Path::new(&dir).join("hermes-relay.service");
    let run = |args: &[&str]| service(home.path(), &[args, &["--unit-dir", &dir]].concat());

    let (code, output) = run(&["install", "--dry-run"]);
    assert!(
        code == 0 && output.contains(&format!("ExecStart={BINARY} run")),
        "{output}"
    );
    assert!(!Path::new(&dir).exists(), "a dry run writes nothing");
    assert_eq!(run(&["status"]).0, 1);

    let (code, output) = run(&["install"]);
    assert_eq!(code, 0, "{output}");
    for step in [
        "useradd --system",
        "/etc/hermes-relay/secret",
        "systemctl daemon-reload",
        "systemctl enable --now hermes-relay.service",
    ] {
        assert!(output.contains(step), "{output}");
    }
    let (code, output) = run(&["install"]);
    assert!(code == 0 && output.contains("already installed"), "{output}");
    let (code, output) = run(&["status"]);
    assert!(code == 0 && output.contains("as installed"), "{output}");
    // Another version of ours may take its place.
    let (code, output) = run(&["install", "--binary", "/bin/true"]);
    assert!(code == 0 && output.contains("Wrote"), "{output}");

    let mine = fs::read_to_string(&file).unwrap() + "# mine\n";
    fs::write(&file, &mine).unwrap();
    let (code, output) = run(&["install"]);
    assert!(code == 1 && output.contains("--force"), "{output}");
    let (code, output) = run(&["uninstall"]);
    assert!(code == 1 && output.contains("--force"), "{output}");
    assert_eq!(fs::read_to_string(&file).unwrap(), mine);
    let (_, output) = run(&["status"]);
    assert!(output.contains("edited since"), "{output}");

    assert_eq!(run(&["install", "--force"]).0, 0);
    let (code, output) = run(&["uninstall", "--dry-run"]);
    assert!(code == 0 && file.exists(), "{output}");
    let (code, output) = run(&["uninstall"]);
    assert!(code == 0 && output.contains("disable --now"), "{output}");
    assert!(!file.exists());
}

#[test]
fn a_users_unit_goes_into_the_users_home() {
    let home = tempfile::tempdir().unwrap();
    let (code, output) = service(home.path(), &["install", "--user"]);
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains("systemctl --user enable --now") && output.contains("linger"),
        "{output}"
    );
    let file = home.path().join(".config/systemd/user/hermes-relay.service");
    assert!(
        fs::read_to_string(file)
            .unwrap()
            .contains("WantedBy=default.target")
    );
    let (code, output) = service(home.path(), &["install", "--user", "--profile", "relay"]);
    assert!(code == 2 && output.contains("hint: "), "{output}");
    let (code, _) = service(home.path(), &["install", "--user", "--run-as", "ada"]);
    assert_eq!(code, 2);
}

#[test]
fn what_runs_as_somebody_needs_no_secret_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let (code, output) = service(home.path(), &["install", "--dry-run", "--run-as", "root"]);
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains("\nUser=root\n") && !output.contains("LoadCredential="),
        "{output}"
    );
    let (code, _) = service(home.path(), &["install", "--dry-run", "--run-as", "a\nb"]);
    assert_eq!(code, 2);
}
