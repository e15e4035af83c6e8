//! The whole story under a real systemd: a manager of our own, started for this test and ended by it.
//!
//! It runs as a user's manager, in its own mount namespace and control group, next to whatever else is there. On a
//! machine that was booted with systemd there would be two; there the test says so and passes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hermes_relay::dev::{Connector, ConnectorSettings, text_event};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use crate::relay_process::SOON;
use crate::{BINARY, has, is_root, said};

const SYSTEMD: &str = "/lib/systemd/systemd";

/// Joins control groups of its own, makes it look as if the machine was booted with systemd, and becomes a manager.
const START: &str = r#"
for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
  if [ -e "$hierarchy/cgroup.procs" ]; then
    mkdir -p "$hierarchy/$GROUP" && echo $$ > "$hierarchy/$GROUP/cgroup.procs" || exit 3
  fi
done
mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system || exit 3
exec /lib/systemd/systemd --user
"#;

struct Systemd {
    process: Child,
    group: String,
    folder: TempDir,
}

impl Systemd {
    /// `None`, loudly, where it cannot be started.
    fn start(name: &str) -> Option<Self> {
        if !is_root() || !has("unshare") || !has("systemctl") || !has("setsid") {
            return None;
        }
        if Path::new("/run/systemd/system").exists() || !Path::new(SYSTEMD).exists() {
            eprintln!("SKIPPED: this test brings a systemd of its own, where there is none running");
            return None;
        }
        // Not in /tmp, which units take away.
        let folder = tempfile::tempdir_in("/run").unwrap();
        let units = folder.path().join("config/systemd/user");
        fs::create_dir_all(&units).unwrap();
        fs::create_dir_all(folder.path().join("run")).unwrap();
        fs::write(units.join("default.target"), "[Unit]\nDescription=Nothing more\n").unwrap();
        let group = format!("hermes-relay-test-{}-{name}", std::process::id());
        let mut systemd = Self {
            process: environment(&mut Command::new("setsid"), folder.path())
                .args(["unshare", "--mount", "sh", "-c", START])
                .env("GROUP", &group)
                .env("SYSTEMD_LOG_TARGET", "console")
                .stdin(Stdio::null())
                .stderr(fs::File::create(folder.path().join("log")).unwrap())
                .spawn()
                .unwrap(),
            group,
            folder,
        };
        let socket = systemd.folder.path().join("run/systemd/private");
        let end = Instant::now() + SOON;
        while !socket.exists() {
            if Instant::now() > end || systemd.process.try_wait().unwrap().is_some() {
                eprintln!("SKIPPED: no systemd can be started here: {}", systemd.log());
                return None;
            }
            pause();
        }
        Some(systemd)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn units(&self) -> PathBuf {
        self.folder.path().join("config/systemd/user")
    }

    fn systemctl(&self, args: &[&str]) -> String {
        let mut command = Command::new("systemctl");
        environment(&mut command, self.folder.path());
        let (well, told) = said(command.arg("--user").args(args));
        assert!(well, "systemctl {args:?}: {told}\n{}", self.log());
        told.trim().to_owned()
    }

    fn show(&self, property: &str) -> String {
        self.show_of("hermes-relay.service", property)
    }

    fn show_of(&self, unit: &str, property: &str) -> String {
        self.systemctl(&["show", "--value", "--property", property, unit])
    }

    fn until(&self, property: &str, fits: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + SOON;
        loop {
            let shown = self.show(property);
            if fits(&shown) {
                return shown;
            }
            assert!(Instant::now() < end, "{property} is {shown}\n{}", self.log());
            pause();
        }
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let mut exit = Command::new("systemctl");
        environment(&mut exit, self.folder.path());
        let _ = exit.args(["--user", "exit"]).output();
        let end = Instant::now() + SOON;
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < end {
            pause();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        for hierarchy in [
            "/sys/fs/cgroup/systemd",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup",
        ] {
            let group = Path::new(hierarchy).join(&self.group);
            let _ = Command::new("find")
                .arg(group)
                .args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"])
                .output();
        }
    }
}

/// Between two looks, each of which has a deadline.
#[expect(
    clippy::disallowed_methods,
    reason = "the loops around it wait for a condition"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

fn environment<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", folder)
        .env("XDG_RUNTIME_DIR", folder.join("run"))
        .env("XDG_CONFIG_HOME", folder.join("config"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installed_started_ready_killed_restarted_and_stopped_in_time() {
    let Some(systemd) = Systemd::start("story") else {
        return;
    };
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let who = connector.credentials().unwrap();
    let home = systemd.folder.path().join(".hermes");
    fs::create_dir(&home).unwrap();
    let env = format!(
        "GATEWAY_RELAY_URL={}\nGATEWAY_RELAY_ID={}\nGATEWAY_RELAY_SECRET={}\nGATEWAY_RELAY_PLATFORMS=discord\n",
        connector.url(),
        who.gateway_id,
        who.secret.expose_secret()
    );
    fs::write(home.join(".env"), env).unwrap();
    let mut install = Command::new(BINARY);
    environment(&mut install, systemd.folder.path());
    let (well, told) = said(install.args(["service", "install", "--user"]));
    assert!(well, "{told}");
    // What a person would do who does not want to wait.
    let drop_in = systemd.units().join("hermes-relay.service.d");
    fs::create_dir(&drop_in).unwrap();
    fs::write(drop_in.join("soon.conf"), "[Service]\nRestartSec=100ms\n").unwrap();

    systemd.systemctl(&["daemon-reload"]);
    systemd.systemctl(&["start", "hermes-relay.service"]);
    assert_eq!(systemd.show("ActiveState"), "active");
    systemd.until("StatusText", |text| text == "connected: discord");
    connector
        .deliver(&text_event("discord", "c", "m1", "hello"))
        .unwrap();
    assert_eq!(connector.reply_to(SOON, "m1").await.unwrap().text, "echo: hello");

    let before = systemd.show("MainPID");
    systemd.systemctl(&["kill", "--signal=KILL", "hermes-relay.service"]);
    systemd.until("NRestarts", |count| count == "1");
    systemd.until("ActiveState", |state| state == "active");
    assert_ne!(systemd.show("MainPID"), before);
    connector
        .deliver(&text_event("discord", "c", "m2", "again"))
        .unwrap();
    assert_eq!(connector.reply_to(SOON, "m2").await.unwrap().text, "echo: again");

    systemd.systemctl(&["reload", "hermes-relay.service"]);
    systemd.until("ActiveState", |state| state == "active");

    let began = Instant::now();
    systemd.systemctl(&["stop", "hermes-relay.service"]);
    assert!(began.elapsed() < Duration::from_secs(25), "within its own budget");
    assert_eq!(systemd.show("Result"), "success", "it ended by itself");

    // What cannot be cured is not tried again and again.
    fs::write(home.join("relay.yaml"), "link: {backoff_min_ms: soon}\n").unwrap();
    let mut start = Command::new("systemctl");
    environment(&mut start, systemd.folder.path());
    let (well, _) = said(start.args(["--user", "start", "hermes-relay.service"]));
    assert!(!well);
    systemd.until("ActiveState", |state| state == "failed");
    assert_eq!(systemd.show("ExecMainStatus"), "78");
}

/// The exit status with which systemd says that it could not set up namespaces.
const NO_NAMESPACES: &str = "226";
const WITHOUT_NAMESPACES: &str = "[Service]\nPrivateTmp=no\nProtectSystem=no\nProtectHome=no\nPrivateDevices=no\n\
    PrivateUsers=no\nPrivateMounts=no\nProtectProc=default\nProcSubset=all\nProtectKernelTunables=no\n\
    ProtectKernelModules=no\nProtectKernelLogs=no\nProtectControlGroups=no\nProtectHostname=no\nProtectClock=no\n";

/// Everything that a manager of ours can do of the tight unit: system calls, memory, file systems, namespaces. An
/// account that exists only meanwhile and credentials are for the machine's own manager.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tight_unit_lets_the_relay_work() {
    const UNIT: &str = "hermes-relay-only.service";
    let Some(systemd) = Systemd::start("tight") else {
        return;
    };
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let who = connector.credentials().unwrap();
    let units = systemd.units().display().to_string();
    let mut install = Command::new(BINARY);
    environment(&mut install, systemd.folder.path());
    let (well, told) = said(install.args(["service", "install", "--profile", "relay", "--unit-dir", &units]));
    assert!(well, "{told}");
    let drop_in = systemd.units().join(format!("{UNIT}.d"));
    fs::create_dir(&drop_in).unwrap();
    let ours = format!(
        "[Service]\nDynamicUser=no\nLoadCredential=\nEnvironment=GATEWAY_RELAY_URL={} GATEWAY_RELAY_ID={} \
         GATEWAY_RELAY_SECRET={} GATEWAY_RELAY_PLATFORMS=discord\nStandardError=append:{}\n",
        connector.url(),
        who.gateway_id,
        who.secret.expose_secret(),
        systemd.folder.path().join("log").display()
    );
    fs::write(drop_in.join("here.conf"), ours).unwrap();
    let start = || {
        systemd.systemctl(&["daemon-reload"]);
        let mut start = Command::new("systemctl");
        environment(&mut start, systemd.folder.path());
        let (_, told) = said(start.args(["--user", "start", UNIT]));
        (systemd.show_of(UNIT, "ExecMainStatus"), told)
    };
    let (mut status, mut told) = start();
    if status == NO_NAMESPACES {
        eprintln!("SKIPPED in part: this machine lets no service have file systems of its own");
        systemd.systemctl(&["stop", UNIT]);
        fs::write(drop_in.join("without.conf"), WITHOUT_NAMESPACES).unwrap();
        (status, told) = start();
    }
    assert_eq!(status, "0", "{told}\n{}", systemd.log());
    connector
        .deliver(&text_event("discord", "c", "m1", "hello"))
        .unwrap();
    let reply = connector.reply_to(SOON, "m1").await;
    let text = reply.map(|reply| reply.text).unwrap_or_default();
    assert_eq!(text, "echo: hello", "{}", systemd.log());
    let pid = systemd.show_of(UNIT, "MainPID");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for locked in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
        assert!(status.contains(locked), "{status}");
    }
    systemd.systemctl(&["stop", UNIT]);
    assert_eq!(systemd.show_of(UNIT, "Result"), "success");
}
