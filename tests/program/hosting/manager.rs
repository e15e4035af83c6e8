//! The whole story under a real systemd: a manager of our own, started for this test and ended by it.
//!
//! It runs as a user's manager, in its own mount namespace and control group, next to whatever else is there. On a
//! machine that was booted with systemd there would be two; there the test says so and passes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::dev::{Connector, ConnectorSettings, text_event};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use crate::hosting::{BINARY, cannot_be, has, is_root, run_command};
use crate::support::relay_process::SOON;
use crate::support::skip::skip;
use crate::support::wait::eventually_blocking;

const SYSTEMD: &str = "/lib/systemd/systemd";

/// Joins control groups of its own, makes it look as if the machine was booted with systemd, and becomes a manager. When
/// nobody holds the other end of its standard input any more, everything in those groups is ended.
const START: &str = r#"
exec 3<&0 </dev/null
( cat <&3 >/dev/null
  find /sys/fs/cgroup -path "*/$GROUP*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -KILL
) 2>/dev/null &
exec 3<&-
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
            skip("this test brings a systemd of its own, where there is none running");
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
                .stdin(Stdio::piped())
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
                // What it makes when it has found everything that it needs.
                let is_begun = systemd.folder.path().join("run/systemd").exists();
                let log = systemd.log();
                cannot_be(is_begun, &format!("no systemd can be started here: {log}"));
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
        let (success, output) = run_command(command.arg("--user").args(args));
        assert!(success, "systemctl {args:?}: {output}\n{}", self.log());
        output.trim().to_owned()
    }

    fn show(&self, property: &str) -> String {
        self.systemctl(&["show", "--value", "--property", property, "hermes-relay.service"])
    }

    fn until(&self, property: &str, fits: impl Fn(&str) -> bool) -> String {
        eventually_blocking(property, || {
            let shown = self.show(property);
            if fits(&shown) {
                Ok(shown)
            } else {
                Err((shown, self.log()))
            }
        })
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
pub(crate) fn pause() {
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
    let (success, output) = run_command(install.args(["service", "install", "--user"]));
    assert!(success, "{output}");
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
    systemd.systemctl(&["kill", "--kill-who=main", "--signal=USR1", "hermes-relay.service"]);
    systemd.until("NRestarts", |count| count == "2");
    systemd.until("ActiveState", |state| state == "active");

    let began = Instant::now();
    systemd.systemctl(&["stop", "hermes-relay.service"]);
    assert!(began.elapsed() < Duration::from_secs(25), "within its own budget");
    assert_eq!(systemd.show("Result"), "success", "it ended by itself");

    // What ends to sleep sleeps until somebody starts it.
    fs::write(
        home.join("relay.yaml"),
        "connector: {wake_url: 'http://127.0.0.1:9/'}\nsleep: {enabled: true, idle_secs: 1}\n",
    )
    .unwrap();
    systemd.systemctl(&["start", "hermes-relay.service"]);
    systemd.until("ActiveState", |state| state == "inactive");
    assert_eq!(systemd.show("Result"), "success");
    assert_eq!(systemd.show("NRestarts"), "0");
    connector
        .deliver(&text_event("discord", "c", "m3", "good morning"))
        .unwrap();
    assert_eq!(connector.waiting(), 1);
    systemd.systemctl(&["start", "hermes-relay.service"]);
    connector.reply_to(SOON, "m3").await.unwrap();
    systemd.systemctl(&["stop", "hermes-relay.service"]);

    // What cannot be cured is not tried again and again.
    fs::write(home.join("relay.yaml"), "link: {backoff_min_ms: soon}\n").unwrap();
    let mut start = Command::new("systemctl");
    environment(&mut start, systemd.folder.path());
    let (success, _) = run_command(start.args(["--user", "start", "hermes-relay.service"]));
    assert!(!success);
    systemd.until("ActiveState", |state| state == "failed");
    assert_eq!(systemd.show("ExecMainStatus"), "78");
}
