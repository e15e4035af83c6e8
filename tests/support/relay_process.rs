//! The real binary as a child process: its own home, its own state, its own environment, killed on drop.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::dev::{BotApi, Connector};
use rustix::process::{Pid, Signal, kill_process};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

pub(crate) use super::wait::SOON;
use super::wait::eventually;

/// Timeouts short enough for a test; those that decide that a connection is dead stay long unless a test sets them.
const SHORT_TIMEOUTS: [(&str, &str); 5] = [
    ("link.backoff_min_ms", "50"),
    ("link.backoff_max_ms", "400"),
    ("link.handshake_timeout_secs", "10"),
    ("link.connect_timeout_secs", "10"),
    ("link.refused_retry_secs", "1"),
];

/// What a relay is started with. Several relays started from one setup share its home and state.
pub(crate) struct Setup {
    folder: Arc<TempDir>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
}

impl Setup {
    /// A fresh home and the echo agent, without a connector or credentials.
    pub(crate) fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        fs::create_dir(folder.path().join("home")).expect("a home");
        let mut setup = Self {
            args: ["run", "--agent", "echo"].map(str::to_owned).to_vec(),
            env: BTreeMap::new(),
            settings: BTreeMap::new(),
            folder,
        };
        for name in ["HERMES_HOME", "HOME"] {
            let home = setup.home().display().to_string();
            setup.env.insert(name.to_owned(), home);
        }
        let state = setup.state_dir().display().to_string();
        setup.env.insert("HERMES_RELAY_STATE_DIR".to_owned(), state);
        for (key, value) in SHORT_TIMEOUTS {
            setup = setup.setting(key, value);
        }
        setup
    }

    /// With a connector URL and no credentials.
    pub(crate) fn with_url(url: &str) -> Self {
        Self::new().env("GATEWAY_RELAY_URL", url)
    }

    /// With the URL and the credentials of a connector's first gateway, as a Discord bot without an id.
    pub(crate) fn for_connector(connector: &Connector) -> Self {
        Self::with_url(&connector.url()).enrolled_with(connector)
    }

    /// Adds the credentials of a connector's first gateway.
    pub(crate) fn enrolled_with(self, connector: &Connector) -> Self {
        let credentials = connector.credentials().expect("a gateway that may dial");
        self.env("GATEWAY_RELAY_ID", &credentials.gateway_id)
            .env("GATEWAY_RELAY_SECRET", credentials.secret.expose_secret())
            .env("GATEWAY_RELAY_PLATFORMS", "discord")
    }

    /// With the token of a Telegram bot and the address of its API, and no connector.
    pub(crate) fn for_bot(api: &BotApi) -> Self {
        Self::new()
            .env("TELEGRAM_BOT_TOKEN", api.token().expose_secret())
            .setting("direct.telegram", &format!("{{api_base: \"{}\"}}", api.base()))
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    /// Replaces the command line.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    /// One line of relay.yaml, by its dotted key.
    pub(crate) fn setting(mut self, key: &str, value: &str) -> Self {
        self.settings.insert(key.to_owned(), value.to_owned());
        self.write("relay.yaml", &self.yaml());
        self
    }

    /// Writes a file into the home.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.home().join(name), text).expect("a file in the home");
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The same home, state and environment, with another command line.
    pub(crate) fn verb(&self, args: &[&str]) -> Command {
        let mut command = self.command();
        command.args(args);
        command
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermes-relay"));
        command
            .env_clear()
            .env("TZ", "UTC")
            // Nobody's model server: nothing listens there.
            .env("HERMES_RELAY_MODEL_PORTS", "1,1,1")
            .envs(&self.env)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Starts it.
    pub(crate) fn start(&self) -> RelayProcess {
        let log = tempfile::Builder::new()
            .prefix("stderr-")
            .tempfile_in(self.folder.path())
            .and_then(|file| Ok(file.keep()?))
            .expect("a log file");
        let (stderr, log) = log;
        let out = log.with_extension("out");
        let stdout = File::create(&out).expect("an output file");
        let started = Instant::now();
        let child = self
            .command()
            .args(&self.args)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("the binary starts");
        let pid = child
            .id()
            .and_then(|id| id.try_into().ok())
            .and_then(Pid::from_raw);
        RelayProcess {
            child,
            pid: pid.expect("a process id"),
            log,
            out,
            started,
            _folder: Arc::clone(&self.folder),
        }
    }

    /// Starts it and waits for its end: the exit code and standard error.
    pub(crate) async fn ends(&self) -> (i32, String) {
        let mut relay = self.start();
        let code = relay.exit_code(SOON).await;
        (code, relay.stderr())
    }

    fn yaml(&self) -> String {
        let (mut text, mut open) = (String::new(), Vec::new());
        for (key, value) in &self.settings {
            let (sections, name) = key.rsplit_once('.').expect("a section and a key");
            let sections: Vec<&str> = sections.split('.').collect();
            let shared = open
                .iter()
                .zip(&sections)
                .take_while(|(open, section)| open == section);
            let shared = shared.count();
            for (depth, section) in sections.iter().enumerate().skip(shared) {
                text.extend([&"  ".repeat(depth), *section, ":\n"]);
            }
            text.extend([&"  ".repeat(sections.len()), name, ": ", value, "\n"]);
            open = sections;
        }
        text
    }
}

/// A running relay.
pub(crate) struct RelayProcess {
    child: Child,
    pid: Pid,
    log: PathBuf,
    out: PathBuf,
    pub(crate) started: Instant,
    /// The home and the state outlive the setup.
    _folder: Arc<TempDir>,
}

impl RelayProcess {
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("the relay runs");
    }

    /// Kills it, and waits until the kernel has cleared it away: only then is its state directory free.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.exited(SOON).await;
    }

    /// Freezes it, and waits until it stands still: a signal that was sent has not arrived yet.
    pub(crate) async fn freeze(&self) {
        self.signal(Signal::STOP);
        eventually("the relay stands still", async || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("procfs");
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        })
        .await;
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// How it ended.
    pub(crate) async fn exited(&mut self, deadline: Duration) -> ExitStatus {
        let ended = timeout(deadline, self.child.wait()).await;
        ended.expect("an end in time").expect("a child of ours")
    }

    /// The exit code with which it ended of its own.
    pub(crate) async fn exit_code(&mut self, deadline: Duration) -> i32 {
        let status = self.exited(deadline).await;
        status.code().unwrap_or_else(|| panic!("ended by {status}"))
    }

    /// Asks it to stop and expects that it does, cleanly.
    pub(crate) async fn stop(mut self) {
        self.terminate();
        assert_eq!(self.exit_code(SOON).await, 0, "{}", self.stderr());
    }

    /// Everything on standard error so far.
    pub(crate) fn stderr(&self) -> String {
        read(&self.log)
    }

    /// Everything on standard output so far.
    pub(crate) fn stdout(&self) -> String {
        read(&self.out)
    }

    /// How many lines of standard error hold this.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.stderr().lines().filter(|line| line.contains(part)).count()
    }

    /// Waits until standard error contains this, and returns the line.
    pub(crate) async fn wait_for_log(&self, part: &str) -> String {
        eventually(&format!("the relay logs {part:?}"), async || {
            let log = self.stderr();
            log.lines().find(|line| line.contains(part)).map(str::to_owned)
        })
        .await
    }

    /// A number of kilobytes from the kernel's account of the process.
    pub(crate) fn memory_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("procfs");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("a number of kilobytes")
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- stderr of the relay (pid {}):\n{}--- end",
                self.pid(),
                self.stderr()
            );
        }
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
