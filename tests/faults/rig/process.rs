//! The real binary, in a process of its own.

use crate::support::wait::eventually_within;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Where a relay lives between its runs: a home, settings, a state directory, logs.
pub(crate) struct Home {
    dir: TempDir,
    pub(crate) state_dir: PathBuf,
    runs: usize,
}

impl Home {
    /// A home whose settings are `extra` (YAML, whole sections) beside the connector's address.
    pub(crate) fn new(url: &str, extra: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let settings = format!(
            "connector:\n  url: {url}\n  gateway_id: gw-test\n  identities:\n    - platform: discord\n      bot_id: bot\n{extra}"
        );
        fs::write(dir.path().join("relay.yaml"), settings).expect("settings written");
        let state_dir = dir.path().join("state");
        Self {
            dir,
            state_dir,
            runs: 0,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the relay.
    pub(crate) fn start(&mut self) -> Relay {
        self.start_with(&[])
    }

    /// The same with more arguments.
    pub(crate) fn start_with(&mut self, arguments: &[&str]) -> Relay {
        self.start_as(Command::new(env!("CARGO_BIN_EXE_hermes-relay")), arguments)
    }

    /// The same under another program, which becomes the relay's process.
    pub(crate) fn start_under(&mut self, mut outer: Command) -> Relay {
        outer.arg(env!("CARGO_BIN_EXE_hermes-relay"));
        self.start_as(outer, &[])
    }

    fn start_as(&mut self, mut command: Command, arguments: &[&str]) -> Relay {
        self.runs += 1;
        let log = self.path().join(format!("log-{}", self.runs));
        let child = command
            .args(["run", "--log-format", "json", "--config"])
            .arg(self.path().join("relay.yaml"))
            .arg("--state-dir")
            .arg(&self.state_dir)
            .args(arguments)
            .env_clear()
            .env("HERMES_HOME", self.path())
            .env("GATEWAY_RELAY_SECRET", "a secret for a test")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a log file"))
            .spawn()
            .expect("the relay starts");
        Relay { child, log }
    }
}

/// A running relay. Killed when dropped.
pub(crate) struct Relay {
    child: Child,
    log: PathBuf,
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let text = self.log_text();
            let tail: Vec<&str> = text.lines().rev().take(20).collect();
            for line in tail.iter().rev() {
                eprintln!("relay: {line}");
            }
        }
    }
}

impl Relay {
    /// SIGKILL, and waits until the process is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the relay was still running");
        self.child.wait().expect("it can be waited for");
    }

    fn pid(&self) -> Pid {
        let pid = i32::try_from(self.child.id()).ok();
        pid.and_then(Pid::from_raw).expect("a process id")
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).expect("it can be told");
    }

    /// Lets its files grow without a limit.
    #[cfg(target_os = "linux")]
    pub(crate) fn unlimit_file_size(&self) {
        use rustix::process::{Resource, Rlimit, prlimit};
        let none = Rlimit {
            current: None,
            maximum: None,
        };
        prlimit(Some(self.pid()), Resource::Fsize, none).expect("a limit that can be lifted");
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it can be asked")
    }

    /// Waits for its end and gives its exit code.
    pub(crate) async fn exit_code(&mut self, within: Duration) -> Option<i32> {
        eventually_within(within, "the relay's end", async || self.ended())
            .await
            .code()
    }

    /// Everything it has written to standard error.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its log lines.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = self.log_text();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// How many log lines have this message.
    pub(crate) fn log_count(&self, message: &str) -> usize {
        self.log()
            .iter()
            .filter(|line| {
                line["message"]
                    .as_str()
                    .is_some_and(|said| said.contains(message))
            })
            .count()
    }

    /// How often its threads were switched so far; `None` while one of them has something to do.
    pub(crate) fn switches_at_rest(&self) -> Option<u64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let mut switches = 0;
        for thread in threads {
            let status = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
            for line in status.lines() {
                match line.split_once(':') {
                    Some(("State", state)) if !state.trim_start().starts_with('S') => return None,
                    Some((name, number)) if name.ends_with("ctxt_switches") => {
                        switches += number.trim().parse::<u64>().ok()?;
                    }
                    _ => {}
                }
            }
        }
        Some(switches)
    }

    /// Memory in use, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.status_number("VmRSS:")
    }

    /// Threads.
    pub(crate) fn threads(&self) -> u64 {
        self.status_number("Threads:")
    }

    /// Open files and sockets.
    pub(crate) fn descriptors(&self) -> u64 {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("its descriptors");
        open.count() as u64
    }

    fn status_number(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).expect(name)
    }
}
