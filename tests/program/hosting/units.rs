//! The units say what the program does, systemd finds no fault with them, and the verb that writes them is careful.

use std::fs;
use std::path::Path;
use std::process::Command;

use hermes_relay::config::Settings;
use serde_json::{Value, json};

use crate::hosting::{BINARY, has, repository, run_command};
use crate::support::executable::write_script;

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
    service_with(home, args, &[("PATH", "/usr/bin:/bin")])
}

fn service_with(home: &Path, args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    let output = Command::new(BINARY)
        .arg("service")
        .args(args)
        .env_clear()
        .env("HOME", home)
        .envs(env.iter().copied())
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
    let (code, output) = run(&["status", "--json"]);
    assert_eq!((code, output.trim()), (1, r#"{"units":[],"valid":false}"#));

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
    let (code, output) = run(&["status", "--json"]);
    let status: Value = serde_json::from_str(&output).unwrap();
    let unit = &status["units"][0];
    assert!(code == 0 && status["valid"] == true, "{status}");
    assert_eq!(unit["file"], file.display().to_string());
    assert_eq!(
        (&unit["state"], &unit["binary"]),
        (&json!("as installed"), &json!(BINARY))
    );
    assert_eq!(unit["problems"], json!([]));
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
    assert!(code == 0 && output.contains("Removed"), "{output}");
    assert!(!file.exists());
}

/// A `systemctl` that writes down what it is asked, and whether the unit exists then; it fails where `fails` says so.
fn recording_systemctl(home: &Path, fails: &str) -> String {
    let folder = home.join("bin");
    fs::create_dir_all(&folder).unwrap();
    let unit = home.join(".config/systemd/user/hermes-relay.service");
    let script = format!(
        "#!/bin/sh\n[ -e '{unit}' ] && unit=yes || unit=no\necho \"$* unit=$unit\" >>'{log}'\n\
         case \"$*\" in {fails}) echo 'no such thing' >&2; exit 1;; esac\n",
        unit = unit.display(),
        log = home.join("asked").display()
    );
    let program = folder.join("systemctl");
    write_script(&program, &script);
    format!("{}:/usr/bin:/bin", folder.display())
}

#[test]
fn it_is_started_on_request_and_disabled_before_it_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let path = recording_systemctl(home.path(), "nothing");
    let asked = || fs::read_to_string(home.path().join("asked")).unwrap_or_default();
    let run = |args: &[&str]| service_with(home.path(), args, &[("PATH", &path)]);
    let (code, output) = run(&["install", "--user"]);
    assert!(
        code == 0 && asked().is_empty(),
        "nothing unasked: {}{output}",
        asked()
    );
    let (code, output) = run(&["install", "--user", "--now"]);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("enabled and started"), "{output}");
    let started = "--user daemon-reload unit=yes\n--user enable hermes-relay.service unit=yes\n\
                   --user restart hermes-relay.service unit=yes\n";
    assert_eq!(asked(), started);
    let (code, output) = run(&["uninstall", "--user", "--dry-run"]);
    assert!(code == 0 && asked() == started, "{output}");
    let (code, output) = run(&["uninstall", "--user"]);
    assert_eq!(code, 0, "{output}");
    let removed = "--user disable --now hermes-relay.service unit=yes\n--user daemon-reload unit=no\n";
    assert_eq!(asked().strip_prefix(started), Some(removed));
    assert_eq!(
        service(home.path(), &["install", "--now", "--unit-dir", "/tmp/units"]).0,
        2
    );
}

#[test]
fn a_service_that_does_not_start_is_a_failure() {
    let home = tempfile::tempdir().unwrap();
    let path = recording_systemctl(home.path(), "*restart*");
    let (code, output) = service_with(home.path(), &["install", "--user", "--now"], &[("PATH", &path)]);
    assert_eq!(code, 1, "{output}");
    for part in [
        "systemctl --user restart hermes-relay.service",
        "no such thing",
        "journalctl --user",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

#[test]
fn a_program_in_a_build_folder_is_warned_about() {
    let home = tempfile::tempdir().unwrap();
    let (code, output) = service(home.path(), &["install", "--user", "--dry-run"]);
    assert!(code == 0 && output.contains("build folder"), "{output}");
    let (code, output) = service(
        home.path(),
        &["install", "--user", "--dry-run", "--binary", "/bin/true"],
    );
    assert!(code == 0 && !output.contains("build folder"), "{output}");
}

#[test]
fn the_hermes_home_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let install = |args: &[&str], hermes: &str| {
        let env = [("PATH", "/usr/bin:/bin"), ("HERMES_HOME", hermes)];
        service_with(home.path(), &[&["install", "--dry-run"], args].concat(), &env)
    };
    let line = "\nEnvironment=\"HERMES_HOME=/srv/hermes\"\n";
    for args in [&["--user"][..], &["--run-as", "root"]] {
        let (code, output) = install(args, "/srv/hermes");
        assert!(code == 0 && output.contains(line), "{output}");
    }
    let (_, output) = install(&[], "/srv/hermes");
    assert!(
        !output.contains("HERMES_HOME="),
        "another account has its own: {output}"
    );
    let own = home.path().join(".hermes").display().to_string();
    let (_, output) = install(&["--user"], &own);
    assert!(!output.contains("HERMES_HOME="), "it is found there: {output}");
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
