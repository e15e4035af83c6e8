//! One process of an agent: start, handshake, supervision.
//!
//! A task owns the child; holders of a process only see that it exited, and why. Dropping it kills the process group.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::message::RpcError;
use super::rpc::{CallError, MessageHandler, RpcConnection, RpcLimits, RpcPeer};
use super::sessions::ProcessGeneration;
use super::settings::Launch;
use super::turn_queue::Routes;
use crate::agent::AgentCommand;
use crate::agent::child::{Child, Exit, PIPE_GRACE, SpawnError, StopSchedule, StopSignal};
use crate::text::truncate_bytes;

/// How a process is stopped.
const STOP_SCHEDULE: StopSchedule = StopSchedule {
    eof: Duration::from_secs(1),
    signal: StopSignal::Terminate,
    grace: Duration::from_secs(2),
};

/// Timeout for the exit report.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a process ended.
#[derive(Clone, Debug)]
pub(super) struct ExitReport {
    /// The exit status.
    pub(super) exit: Exit,
    /// The last line of standard error.
    pub(super) stderr: String,
    /// The time of the exit.
    pub(super) at: Instant,
}

impl std::fmt::Display for ExitReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the process {}", self.exit)?;
        match self.stderr.as_str() {
            "" => Ok(()),
            stderr => write!(f, "; the last line of its standard error: {stderr}"),
        }
    }
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// The program could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The handshake timed out.
    #[error("the agent did not answer the handshake within {} s; start it by hand to see why", .0.as_secs())]
    TimedOut(Duration),
    /// The agent uses another version of the protocol.
    #[error(transparent)]
    Version(#[from] UnsupportedVersion),
    /// The agent rejected the handshake.
    #[error("the agent rejected the handshake: {0}")]
    Refused(RpcError),
    /// The answer to the handshake, or what may have been it, cannot be read.
    #[error("the agent's answer to the handshake is too long to read or not valid JSON")]
    Unread,
    /// The agent exited during the handshake.
    #[error("the agent exited during the handshake: {0}")]
    Ended(ExitReport),
    /// The agent failed repeatedly and is not restarted yet.
    #[error("the agent keeps failing and is started again in {} s; last: {why}", wait.as_secs())]
    BackingOff {
        /// The time until the next start.
        wait: Duration,
        /// The reason of the last failure.
        why: String,
    },
    /// The pool is closed.
    #[error("the agent was shut down")]
    Closed,
}

/// A process after its handshake.
#[derive(Debug)]
pub(super) struct Process {
    /// The number of this start.
    pub(super) generation: ProcessGeneration,
    /// The capabilities that the agent announced.
    pub(super) capabilities: Capabilities,
    /// The routes of the agent's updates.
    pub(super) routes: Arc<Routes>,
    /// Turn permits, if limited.
    pub(super) permits: Option<Arc<Semaphore>>,
    /// When it started.
    pub(super) since: Instant,
    /// Its process group.
    pub(super) group: Option<i32>,
    connection: RpcConnection,
    stop_tokens: StopTokens,
    exit_report: watch::Receiver<Option<ExitReport>>,
    _supervisor: AbortOnDropHandle<()>,
}

/// Requests to the supervisor.
#[derive(Clone, Debug, Default)]
struct StopTokens {
    stop: CancellationToken,
    kill: CancellationToken,
}

impl Process {
    /// Starts a process and performs the handshake.
    pub(super) async fn start(
        launch: &Launch,
        generation: ProcessGeneration,
        commands: Arc<Mutex<Vec<AgentCommand>>>,
    ) -> Result<Self, StartError> {
        let mut child = Child::spawn(&launch.program)?;
        let (Some(stdout), Some(stdin)) = (child.take_stdout(), child.take_stdin()) else {
            return Err(StartError::Spawn(SpawnError::NoProgram));
        };
        let routes = Routes::new(commands);
        let handler = Arc::clone(&routes) as Arc<dyn MessageHandler>;
        let name = launch.program.agent.clone().unwrap_or_else(|| launch.name());
        let connection = RpcConnection::start(&name, stdout, stdin, handler, RpcLimits::default());
        let (group, stop_tokens) = (child.group(), StopTokens::default());
        let (exit_sender, exit_report) = watch::channel(None);
        let supervisor = tokio::spawn(supervise(
            child,
            connection.peer().clone(),
            stop_tokens.clone(),
            exit_sender,
        ));
        let mut process = Self {
            generation,
            capabilities: Capabilities::default(),
            routes,
            permits: launch.turns.map(|turns| Arc::new(Semaphore::new(turns))),
            since: Instant::now(),
            group,
            connection,
            stop_tokens,
            exit_report,
            _supervisor: AbortOnDropHandle::new(supervisor),
        };
        let greeting = Capabilities::initialize();
        let greeted = process.peer().call("initialize", &greeting);
        let answer = match timeout(launch.start_timeout, greeted).await {
            Err(_) => return Err(StartError::TimedOut(launch.start_timeout)),
            Ok(Err(CallError::Refused(error))) => return Err(StartError::Refused(error)),
            Ok(Err(CallError::Unread | CallError::MaybeUnread)) => return Err(StartError::Unread),
            Ok(Err(CallError::Gone)) => return Err(StartError::Ended(process.exit_report().await)),
            Ok(Ok(answer)) => answer,
        };
        process.capabilities = Capabilities::read(&answer)?;
        Ok(process)
    }

    /// The connection to the agent.
    pub(super) fn peer(&self) -> &RpcPeer {
        self.connection.peer()
    }

    /// Whether it exited or is unreachable.
    pub(super) fn is_gone(&self) -> bool {
        self.peer().is_gone()
    }

    /// Stops it in the background.
    pub(super) fn stop(&self) {
        self.stop_tokens.stop.cancel();
    }

    /// Kills it in the background.
    pub(super) fn kill(&self) {
        self.stop_tokens.kill.cancel();
    }

    /// How it exited, if it did.
    pub(super) fn ended(&self) -> Option<ExitReport> {
        self.exit_report.borrow().clone()
    }

    /// Waits for its exit. Cancel-safe.
    pub(super) async fn exit_report(&self) -> ExitReport {
        let mut exit_report = self.exit_report.clone();
        let report = timeout(EXIT_TIMEOUT, exit_report.wait_for(Option::is_some)).await;
        let report = report.ok().and_then(Result::ok).and_then(|report| report.clone());
        report.unwrap_or_else(|| ExitReport {
            exit: Exit::Lost,
            stderr: String::new(),
            at: Instant::now(),
        })
    }
}

/// Supervises the child until it exits, and reports how.
async fn supervise(
    mut child: Child,
    peer: RpcPeer,
    stop_tokens: StopTokens,
    exit_sender: watch::Sender<Option<ExitReport>>,
) {
    let polite = async {
        tokio::select! {
            biased;
            () = stop_tokens.stop.cancelled() => {
                peer.end();
                child.stop(STOP_SCHEDULE).await
            }
            // It closed its output.
            () = peer.gone() => child.stop(STOP_SCHEDULE).await,
            () = child.exited() => child.finish().await,
        }
    };
    let exit = tokio::select! {
        biased;
        () = stop_tokens.kill.cancelled() => None,
        // Dropped only when the kill is requested.
        exit = polite => Some(exit),
    };
    let exit = match exit {
        Some(exit) => exit,
        None => child.kill().await,
    };
    // What it wrote last is read to the end, unless someone who left the group holds the pipe.
    let _ = timeout(PIPE_GRACE, peer.gone()).await;
    peer.end();
    let stderr = child.last_words().await;
    let at = Instant::now();
    exit_sender.send_replace(Some(ExitReport { exit, stderr, at }));
}

/// The supported version of the protocol.
pub(super) const VERSION: u64 = 1;

/// Maximum sign-in methods that are shown.
const METHODS: usize = 8;

/// The capabilities of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// `session/load`: continues a session and replays it first.
    pub(super) load: bool,
    /// `session/resume`: continues a session.
    pub(super) resume: bool,
    /// `session/fork`: copies a session.
    pub(super) fork: bool,
    /// `session/close`: closes a session.
    pub(super) close: bool,
    /// `session/delete`: deletes a session.
    pub(super) delete: bool,
    /// `session/list`: lists the sessions of a directory.
    pub(super) list: bool,
    /// Prompts may have images.
    pub(super) images: bool,
    /// Ways to sign in, by name.
    pub(super) sign_in: Vec<String>,
}

/// How a session is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continue {
    /// `session/resume`.
    Resume,
    /// `session/load`.
    Load,
}

/// An agent with another version of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the agent uses version {theirs} of the protocol, but the relay supports only version {VERSION}; \
         update the agent or the relay"
)]
pub(super) struct UnsupportedVersion {
    /// The agent's version.
    pub(super) theirs: String,
}

impl Capabilities {
    /// Parameters of `initialize`. Files and terminals are not offered: agents use their own.
    pub(super) fn initialize() -> Value {
        json!({
            "protocolVersion": VERSION,
            "clientCapabilities": {
                "fs": {"readTextFile": false, "writeTextFile": false},
                "terminal": false,
            },
            "clientInfo": {"name": "hermes-relay", "version": env!("CARGO_PKG_VERSION")},
        })
    }

    /// Reads the answer.
    pub(super) fn read(answer: &Value) -> Result<Self, UnsupportedVersion> {
        match &answer["protocolVersion"] {
            version if version.as_u64() == Some(VERSION) => {}
            // Omitted by some early agents, which use the first version.
            Value::Null => {}
            other => {
                let theirs = truncate_bytes(&other.to_string(), 40).to_owned();
                return Err(UnsupportedVersion { theirs });
            }
        }
        let can = &answer["agentCapabilities"];
        let session = &can["sessionCapabilities"];
        let methods = answer["authMethods"].as_array().map_or(&[][..], Vec::as_slice);
        let named = methods.iter().filter_map(|method| {
            let name = method["name"].as_str().or(method["id"].as_str())?;
            Some(crate::text::one_line(name, 80))
        });
        Ok(Self {
            load: can["loadSession"].as_bool().unwrap_or(false),
            resume: offered(&session["resume"]),
            fork: offered(&session["fork"]),
            close: offered(&session["close"]),
            delete: offered(&session["delete"]),
            list: offered(&session["list"]),
            images: can["promptCapabilities"]["image"].as_bool().unwrap_or(false),
            sign_in: named.take(METHODS).collect(),
        })
    }

    /// How a session is continued, when it can be.
    pub(super) fn continues(&self) -> Option<Continue> {
        match self {
            Self { resume: true, .. } => Some(Continue::Resume),
            Self { load: true, .. } => Some(Continue::Load),
            _ => None,
        }
    }
}

/// A capability is an object, however empty; some agents write `true`.
fn offered(capability: &Value) -> bool {
    !matches!(capability, Value::Null | Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_it_cannot_do() {
        assert_eq!(
            Capabilities::read(&json!({"protocolVersion": 1})),
            Ok(Capabilities::default())
        );
        assert_eq!(Capabilities::read(&Value::Null), Ok(Capabilities::default()));
        let read = Capabilities::read(&json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true},
                "sessionCapabilities": {"fork": {}, "resume": {}, "close": null, "delete": false},
            },
            "authMethods": [{"id": "a", "name": "Sign\nin"}, {"id": "b"}, 7],
        }));
        let expected = Capabilities {
            load: true,
            resume: true,
            fork: true,
            images: true,
            sign_in: vec!["Sign in".to_owned(), "b".to_owned()],
            ..Capabilities::default()
        };
        assert_eq!(expected.continues(), Some(Continue::Resume));
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn another_version_is_a_clear_error() {
        for version in [json!(2), json!("1"), json!(0), json!({})] {
            let error = Capabilities::read(&json!({"protocolVersion": version})).unwrap_err();
            assert!(error.to_string().contains("only version 1"), "{error}");
        }
    }
}
