//! What is measured: a fresh process with a fresh state directory on the real disk, up to its answered hello.

use std::fs;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::frames::{Platform, Wire, push_frame};

/// How long anything may take before it counts as broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Contender {
    /// The bare client.
    Floor,
    /// The bare client, which also writes 4 KiB and waits for the disk before it acknowledges.
    Synced,
    /// The relay as it is shipped: acknowledges after the disk has it.
    Full,
    /// The relay with `durability: process`.
    Process,
}

/// What it does with messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Agent {
    Echo,
    Noop,
}

/// A connected process.
pub(crate) struct Subject {
    child: Child,
    home: TempDir,
    pub(crate) wire: Wire,
    /// From the exec to the answered hello.
    pub(crate) start: Duration,
}

impl Subject {
    pub(crate) fn start(contender: Contender, agent: Agent) -> Self {
        Self::start_on(Platform::Plain, contender, agent)
    }

    pub(crate) fn start_on(platform: Platform, contender: Contender, agent: Agent) -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut command = command(contender, agent, &address, home.path());
        let begun = Instant::now();
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", command.get_program().display()));
        let stream = accept(&listener, &mut child, home.path());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let socket = tokio_tungstenite::tungstenite::accept(stream).expect("the client upgrades");
        let mut wire = Wire::new(socket.get_ref().try_clone().unwrap());
        let mut greeted = false;
        while !greeted {
            wire.read(|frame| greeted |= memchr::memmem::find(frame, b"\"hello\"").is_some());
        }
        let mut out = Vec::new();
        push_frame(&mut out, platform.descriptor().as_bytes());
        wire.write(&mut out);
        Self {
            child,
            home,
            wire,
            start: begun.elapsed(),
        }
    }

    /// Resident memory in MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        self.mib("Rss:")
    }

    /// The part of it in MiB that no other process could share: what is not a file's.
    pub(crate) fn private_mib(&self) -> f64 {
        self.mib("Anonymous:")
    }

    /// Resident memory in MiB, once it no longer changes much.
    pub(crate) fn settled_mib(&self) -> f64 {
        let mut before = 0.0;
        for _ in 0..20 {
            let now = self.resident_mib();
            if (now - before).abs() < 0.1 {
                break;
            }
            before = now;
            std::thread::sleep(Duration::from_millis(250));
        }
        before
    }

    /// Asks the process to end, which is when one that was built to write a profile does so, and kills it if it does not. Without a
    /// connection there is nobody to wait for.
    fn stop(&mut self) {
        let _ = self.wire.stream.shutdown(Shutdown::Both);
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            eprintln!("the relay did not end within {PATIENCE:?}, and is killed");
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }

    fn mib(&self, field: &str) -> f64 {
        let text = self.read("smaps_rollup");
        let line = text.lines().find(|line| line.starts_with(field)).unwrap();
        let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024.0
    }

    /// Seconds of processor time so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = self.read("stat");
        let after_name = stat.rsplit_once(')').unwrap().1;
        let ticks = after_name.split_whitespace().skip(11).take(2);
        ticks.map(|field| field.parse::<f64>().unwrap()).sum::<f64>() / TICKS_PER_SECOND
    }

    /// Nanoseconds of processor time so far, by thread.
    pub(crate) fn threads(&self) -> Threads {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let mut threads = Threads::default();
        for task in tasks {
            let task = task.unwrap().file_name().into_string().unwrap();
            let schedstat = self.read(&format!("task/{task}/schedstat"));
            let nanos: f64 = schedstat.split_whitespace().next().unwrap().parse().unwrap();
            threads.all += nanos;
            if self.read(&format!("task/{task}/comm")).trim() == JOURNAL_THREAD {
                threads.journal += nanos;
            }
        }
        threads
    }

    /// Bytes of the journal, with the part that is not yet in its tables.
    pub(crate) fn journal_bytes(&self) -> u64 {
        let file =
            |name| fs::metadata(self.home.path().join("state").join(name)).map_or(0, |file| file.len());
        file("journal.db") + file("journal.db-wal")
    }

    /// Bytes that the process made the system write to a disk so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        let io = self.read("io");
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        line.unwrap().parse().unwrap()
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }
}

/// The name of the thread that writes the journal.
const JOURNAL_THREAD: &str = "journal";

/// Nanoseconds of processor time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Threads {
    /// Of all threads: beside the journal's there is the event loop's, and little else.
    pub(crate) all: f64,
    pub(crate) journal: f64,
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("{}", stderr_text(self.home.path()));
        }
    }
}

/// The relay that is measured.
pub(crate) fn binary() -> PathBuf {
    let named = std::env::var_os("RELAY_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_hermes-relay").into());
    named.into()
}

fn command(contender: Contender, agent: Agent, address: &str, home: &Path) -> Command {
    let agent = match agent {
        Agent::Echo => "echo",
        Agent::Noop => "noop",
    };
    let is_relay = matches!(contender, Contender::Full | Contender::Process);
    let mut command = if is_relay {
        Command::new(binary())
    } else {
        let mode = if contender == Contender::Synced {
            "sync"
        } else {
            agent
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--floor-client", address, mode]).current_dir(home);
        command
    };
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(home.join("stderr")).unwrap());
    if is_relay {
        if contender == Contender::Process {
            let settings = "journal:\n  durability: process\n";
            fs::write(home.join("relay.yaml"), settings).unwrap();
        }
        command
            .args(["run", "--agent", agent])
            .env("GATEWAY_RELAY_URL", format!("ws://{address}"))
            .env("GATEWAY_RELAY_ID", "gw-bench")
            .env("GATEWAY_RELAY_SECRET", "00112233445566778899aabbccddeeff")
            .env("GATEWAY_RELAY_PLATFORMS", "discord")
            .env("GATEWAY_RELAY_BOT_IDS", "bot")
            .env("HERMES_HOME", home)
            .env("HERMES_RELAY_STATE_DIR", home.join("state"));
    }
    command
}

fn accept(listener: &TcpListener, child: &mut Child, home: &Path) -> TcpStream {
    let begun = Instant::now();
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            stream.set_nodelay(true).unwrap();
            return stream;
        }
        let ended = child.try_wait().unwrap();
        assert!(
            ended.is_none() && begun.elapsed() < PATIENCE,
            "the client did not dial: {ended:?}\n{}",
            stderr_text(home)
        );
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn stderr_text(home: &Path) -> String {
    fs::read_to_string(home.join("stderr")).unwrap_or_default()
}
