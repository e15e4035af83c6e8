//! A supervised process: started without a shell, watched, stopped with everything it started, and reaped.
//!
//! It never signals a process that was already reaped (its number may belong to another by then), never lets a
//! flood on standard error block the child or grow memory, and never leaves its process group behind: dropping a
//! [`Child`] kills the group, `end_groups` kills all of them where nothing is dropped, and [`end_leftovers`] those of a
//! run that was killed. A process that makes a session of its own (`setsid`) leaves the group and with it our reach; only
//! the service manager's control group catches that one.
//!
//! Who takes the pipes reads them: after the leader has ended and its group was killed, wait no longer than
//! [`PIPE_GRACE`] for their end, because a process that left the group may hold them open for ever.

mod env;
mod filter;
mod groups;
mod leftovers;
mod memory;
mod stat;
#[cfg(test)]
mod tests;

pub use env::{BaseEnv, EnvPolicy, set_variable};
pub use env::{NotInstalled, program_exists};
pub use filter::FilterError;
#[cfg(feature = "nats")]
pub use groups::ending::end_groups;
#[cfg(feature = "nats")]
pub use leftovers::has_notes;
pub use leftovers::{GroupNotes, end_leftovers};
pub use memory::group_memory;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use self::groups::{LIVE_GROUPS, LiveGroups};
use crate::text::last_line;

/// Time to read pipes after the group was killed.
pub const PIPE_GRACE: Duration = Duration::from_millis(1500);

/// Timeout for reaping a killed process.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments, handed over as they are; no shell reads them.
    pub argv: Vec<OsString>,
    /// The directory that the program starts in; ours if it is not given.
    pub cwd: Option<PathBuf>,
    /// The whole environment of the program.
    pub env: BTreeMap<OsString, OsString>,
    /// The agent whose process it is, if it is one's.
    pub agent: Option<String>,
}

/// Writes as much as a pipe takes without waiting.
fn fill(mut pipe: &io::PipeWriter, input: &[u8]) -> io::Result<usize> {
    fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
    let mut fed = 0;
    while fed < input.len() {
        match pipe.write(&input[fed..]) {
            Ok(length) => fed += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(fed)
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No program is given.
    #[error("no program is given; set its name as the first word of the command")]
    NoProgram,
    /// The program is not installed.
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    /// The working directory does not exist.
    #[error("the working directory {} is not a directory; create it or name another", .0.display())]
    NoDirectory(PathBuf),
    /// The operating system did not start the program.
    #[error("{} could not be started: {source}", program.display())]
    Refused {
        /// The path of the program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl SpawnError {
    /// Whether a retry may succeed: the system was short of a resource.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory | io::ErrorKind::ExecutableFileBusy
            ),
            Self::NoProgram | Self::NotInstalled(_) | Self::NoDirectory(_) => false,
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It was killed but did not exit in time; it is reaped in the background.
    Lost,
}

/// Steps before a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSchedule {
    /// Time to exit after standard input was closed; zero to skip.
    pub eof: Duration,
    /// Signal to the whole group.
    pub signal: StopSignal,
    /// Time to exit after the signal.
    pub grace: Duration,
}

impl Default for StopSchedule {
    fn default() -> Self {
        Self {
            eof: Duration::ZERO,
            signal: StopSignal::Terminate,
            grace: Duration::from_secs(3),
        }
    }
}

/// Signal that asks a process to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Terminate,
    /// SIGINT, for programs that are usually stopped from a keyboard.
    #[cfg(test)]
    Interrupt,
}

/// A started process and its group.
#[derive(Debug)]
pub struct Child {
    state: ChildState,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: StderrTail,
}

#[derive(Debug)]
enum ChildState {
    /// Not reaped: its number is its own, so the group may be signalled.
    Unreaped {
        leader: Box<tokio::process::Child>,
        group: Pid,
        groups: &'static LiveGroups,
        watch: ExitWatch,
    },
    Ended(Exit),
}

impl Child {
    /// Starts a program in a process group of its own, with all three pipes; what it writes to standard error is read
    /// from now on. Must be called within a Tokio runtime.
    pub fn spawn(program: &Program) -> Result<Self, SpawnError> {
        Self::start(program, Stdio::piped(), Stdio::piped(), || (), &LIVE_GROUPS)
    }

    /// The same with the beginning of this input in the pipe before it starts, so that it never starts without; returns how much
    /// that is. `before` is called right before it starts.
    pub fn spawn_fed(
        program: &Program,
        input: &[u8],
        before: impl FnOnce(),
    ) -> Result<(Self, usize), SpawnError> {
        let refused = |source| SpawnError::Refused {
            program: program.argv.first().map(PathBuf::from).unwrap_or_default(),
            source,
        };
        let (reader, writer) = io::pipe().map_err(refused)?;
        let fed = fill(&writer, input).map_err(refused)?;
        let stdin = std::process::ChildStdin::from(OwnedFd::from(writer));
        let stdin = ChildStdin::from_std(stdin).map_err(refused)?;
        let mut child = Self::start(program, Stdio::from(reader), Stdio::piped(), before, &LIVE_GROUPS)?;
        child.stdin = Some(stdin);
        Ok((child, fed))
    }

    /// Starts a program without pipes: no standard input, and standard output is discarded.
    pub fn spawn_detached_output(program: &Program) -> Result<Self, SpawnError> {
        Self::start(program, Stdio::null(), Stdio::null(), || (), &LIVE_GROUPS)
    }

    fn start(
        program: &Program,
        stdin: Stdio,
        stdout: Stdio,
        before: impl FnOnce(),
        groups: &'static LiveGroups,
    ) -> Result<Self, SpawnError> {
        let file = program.find()?;
        let mut command = tokio::process::Command::new(&file);
        command
            .args(&program.argv[1..])
            .env_clear()
            .envs(&program.env)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &program.cwd {
            command.current_dir(cwd);
        }
        let refused = |source| SpawnError::Refused {
            program: file.clone(),
            source,
        };
        before();
        let number = |leader: &tokio::process::Child| {
            let id = leader.id().and_then(|id| i32::try_from(id).ok());
            id.and_then(Pid::from_raw)
        };
        let (mut leader, group) = groups
            .start(program.agent.as_deref(), || command.spawn(), number)
            .map_err(refused)?;
        Ok(Self {
            stdin: leader.stdin.take(),
            stdout: leader.stdout.take(),
            stderr: StderrTail::drain(leader.stderr.take(), group),
            state: ChildState::Unreaped {
                leader: Box::new(leader),
                group,
                groups,
                watch: ExitWatch::on(group),
            },
        })
    }

    /// Takes its standard input. Close it before [`Child::stop`]; otherwise that is done there.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Takes its standard output.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The last line that it wrote to standard error, after waiting briefly for the end: where programs say why they
    /// failed. Empty when it wrote none; all lines are in the log at debug.
    pub async fn last_words(&mut self) -> String {
        let _ = timeout(PIPE_GRACE, self.stderr.ended()).await;
        last_line(&self.stderr.text(), MAX_LINE).to_owned()
    }

    /// The last 64 KiB that it wrote to standard error.
    #[cfg(test)]
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Bytes written to standard error so far.
    #[cfg(test)]
    pub fn stderr_bytes(&self) -> u64 {
        self.stderr.total()
    }

    /// Its process group id, until it is reaped.
    pub fn group(&self) -> Option<i32> {
        match &self.state {
            ChildState::Unreaped { group, .. } => Some(group.as_raw_nonzero().get()),
            ChildState::Ended(_) => None,
        }
    }

    /// Waits until the leader has ended by itself. Does not reap it and does not touch its group: call
    /// [`Child::finish`] next. Cancel-safe.
    pub async fn exited(&self) {
        if let ChildState::Unreaped { watch, .. } = &self.state {
            watch.exited().await;
        }
    }

    /// Waits until the leader has ended by itself, kills what is left of its group, and reaps it. Cancel-safe.
    pub async fn finish(&mut self) -> Exit {
        self.exited().await;
        self.kill().await
    }

    /// Stops it in steps: closes standard input, signals the group, kills the group; reaps. What is left of the group when the
    /// leader exits is killed immediately. Cancel-safe; dropping the child kills the group.
    pub async fn stop(&mut self, schedule: StopSchedule) -> Exit {
        self.stdin = None;
        if !schedule.eof.is_zero() && timeout(schedule.eof, self.exited()).await.is_ok() {
            return self.kill().await;
        }
        self.signal(match schedule.signal {
            StopSignal::Terminate => Signal::TERM,
            #[cfg(test)]
            StopSignal::Interrupt => Signal::INT,
        });
        // Over or not: the next step is the same.
        let _ = timeout(schedule.grace, self.exited()).await;
        self.kill().await
    }

    /// Kills the group, whether its leader lives or not, and reaps the leader. Cancel-safe.
    pub async fn kill(&mut self) -> Exit {
        self.signal(Signal::KILL);
        let ChildState::Unreaped {
            leader,
            group,
            groups,
            ..
        } = &mut self.state
        else {
            return self.end();
        };
        let exit = match timeout(REAP_TIMEOUT, leader.wait()).await {
            Ok(Ok(status)) => {
                groups.reaped(*group);
                Exit::of(status)
            }
            Ok(Err(_)) | Err(_) => Exit::Lost,
        };
        // A leader that is lost is dropped here, which leaves it to the runtime to be reaped.
        self.state = ChildState::Ended(exit);
        exit
    }

    fn end(&self) -> Exit {
        match self.state {
            ChildState::Ended(exit) => exit,
            ChildState::Unreaped { .. } => Exit::Lost,
        }
    }

    fn signal(&self, signal: Signal) {
        if let ChildState::Unreaped {
            group,
            groups,
            leader,
            ..
        } = &self.state
            && leader.id().is_some()
        {
            groups.signal(*group, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Program {
    /// The file that would be started, when everything is there for it. A relative path starts at the working
    /// directory; a name is looked for in the `PATH` of its own environment.
    pub fn find(&self) -> Result<PathBuf, SpawnError> {
        let name = self.argv.first().ok_or(SpawnError::NoProgram)?;
        if let Some(cwd) = self.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            return Err(SpawnError::NoDirectory(cwd.clone()));
        }
        let path = self.env.get(OsStr::new("PATH")).map(OsString::as_os_str);
        let file = match &self.cwd {
            Some(cwd) if name.as_encoded_bytes().contains(&b'/') => cwd.join(name).into_os_string(),
            _ => name.clone(),
        };
        Ok(program_exists(&file, path)?)
    }
}

impl Exit {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Lost,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::Lost => f.write_str("was killed and has not gone yet"),
        }
    }
}

/// Maximum bytes kept; older ones are dropped.
pub(super) const MAX_STDERR: usize = 64 * 1024;

/// Bytes read at a time.
const CHUNK: usize = 8 * 1024;
/// Longest line of standard error that is logged, in bytes; of a longer one its beginning at debug, its end with a failure.
const MAX_LINE: usize = 1000;

/// Reads standard error until its end, logs it and keeps the tail. Ends its task when dropped.
#[derive(Debug)]
pub(super) struct StderrTail {
    kept: Arc<Mutex<TailBuffer>>,
    reader: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug, Default)]
struct TailBuffer {
    bytes: VecDeque<u8>,
    total: u64,
}

impl StderrTail {
    /// Starts to read.
    pub(super) fn drain(stderr: Option<ChildStderr>, process: Pid) -> Self {
        let kept = Arc::new(Mutex::new(TailBuffer::default()));
        let reader = stderr.map(|stderr| {
            let kept = Arc::clone(&kept);
            AbortOnDropHandle::new(tokio::spawn(read(stderr, kept, process)))
        });
        Self { kept, reader }
    }

    /// Waits for the end of standard error. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        if let Some(reader) = &mut self.reader {
            // The task neither panics nor is aborted elsewhere.
            let _ = reader.await;
            self.reader = None;
        }
    }

    /// The kept bytes as text.
    pub(super) fn text(&self) -> String {
        let mut ring = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(ring.bytes.make_contiguous()).into_owned()
    }

    /// Total bytes read.
    #[cfg(test)]
    pub(super) fn total(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).total
    }
}

async fn read(mut stderr: ChildStderr, kept: Arc<Mutex<TailBuffer>>, process: Pid) {
    let mut chunk = vec![0; CHUNK];
    let mut lines = LoggedLines {
        process,
        line: Vec::new(),
    };
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        kept.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(&chunk[..length]);
        if tracing::enabled!(tracing::Level::DEBUG) {
            lines.push(&chunk[..length]);
        }
    }
    lines.log();
}

/// Logs standard error line by line.
struct LoggedLines {
    process: Pid,
    /// The beginning of a line whose end was not read yet.
    line: Vec<u8>,
}

impl LoggedLines {
    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE - self.line.len();
            self.line.extend_from_slice(&piece[..room.min(piece.len())]);
            if piece.ends_with(b"\n") {
                self.log();
            }
        }
    }

    fn log(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let line = line.trim_end();
        if !line.is_empty() {
            let process = self.process.as_raw_nonzero();
            tracing::debug!(process, line, "an agent wrote to standard error");
        }
        self.line.clear();
    }
}

impl TailBuffer {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(MAX_STDERR)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(MAX_STDERR);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }
}

/// Poll interval without pidfd.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How the end of a process is noticed.
#[derive(Debug)]
pub(super) enum ExitWatch {
    /// Through a pidfd, which becomes readable.
    Pidfd(AsyncFd<OwnedFd>),
    /// By polling.
    Polling(Pid),
}

impl ExitWatch {
    /// Watches a child that is not reaped yet.
    pub(super) fn on(pid: Pid) -> Self {
        pidfd(pid).map_or(Self::Polling(pid), Self::Pidfd)
    }

    /// Waits for the end. Cancel-safe: the end stays to be seen.
    pub(super) async fn exited(&self) {
        match self {
            Self::Pidfd(descriptor) => {
                // The readiness is not cleared: a process ends once.
                if descriptor.readable().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            Self::Polling(pid) => {
                while !has_exited(*pid) {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[expect(
    deprecated,
    reason = "the other constructor is unsafe, for types that may close their descriptor; an OwnedFd keeps it"
)]
fn pidfd(pid: Pid) -> Option<AsyncFd<OwnedFd>> {
    use rustix::process::{PidfdFlags, pidfd_open};
    use tokio::io::Interest;

    let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    AsyncFd::with_interest(descriptor, Interest::READABLE).ok()
}

#[cfg(not(target_os = "linux"))]
fn pidfd(_pid: Pid) -> Option<AsyncFd<OwnedFd>> {
    None
}

fn has_exited(pid: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), look) {
        Ok(status) => status.is_some(),
        // No such child: it is gone, however that came.
        Err(_) => true,
    }
}
