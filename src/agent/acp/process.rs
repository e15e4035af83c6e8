//! One process of an agent: started, greeted, watched until its end.
//!
//! A task of its own keeps the child: whoever holds the process only sees that it is gone, and why. Dropping it kills
//! the process with everything it started.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::mailbox::Routes;
use super::message::RpcError;
use super::rpc::{CallError, Connection, Limits, Listener, Peer};
use super::sessions::Generation;
use super::settings::Launch;
use crate::agent::AgentCommand;
use crate::agent::child::{Child, Exit, PIPE_GRACE, SpawnError, StopSchedule, StopSignal};

/// How a process is asked to end: its input is closed first.
const LADDER: StopSchedule = StopSchedule {
    eof: Duration::from_secs(1),
    signal: StopSignal::Terminate,
    grace: Duration::from_secs(2),
};

/// How long the end of a process may take to be known, at most.
const OBITUARY: Duration = Duration::from_secs(10);

/// How much of standard error goes into a report, in bytes.
const STDERR_BYTES: usize = 2 * 1024;

/// How a process ended.
#[derive(Clone, Debug)]
pub(super) struct Obituary {
    /// How.
    pub(super) exit: Exit,
    /// The last of what it wrote to standard error.
    pub(super) stderr: String,
    /// When.
    pub(super) at: Instant,
}

impl std::fmt::Display for Obituary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the process {}", self.exit)?;
        match self.stderr.trim() {
            "" => Ok(()),
            said => write!(f, "; it last wrote: {said}"),
        }
    }
}

/// Why there is no process.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// It did not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It started and does not answer.
    #[error("the agent did not say who it is within {} s; start it by hand to see what it waits for", .0.as_secs())]
    Silent(Duration),
    /// It speaks another version.
    #[error(transparent)]
    Version(#[from] OtherVersion),
    /// It does not want to.
    #[error("the agent refused to begin: {0}")]
    Refused(RpcError),
    /// It ended at once.
    #[error("the agent ended before it said who it is: {0}")]
    Ended(Obituary),
    /// It failed so often that it rests.
    #[error("the agent keeps failing and is started again in {} s; last: {why}", wait.as_secs())]
    Resting {
        /// How long.
        wait: Duration,
        /// Why it failed last.
        why: String,
    },
    /// Everything was ended.
    #[error("the agent was shut down")]
    Closed,
}

/// A process that has said what it can do.
#[derive(Debug)]
pub(super) struct Process {
    /// Which start it is.
    pub(super) generation: Generation,
    /// What it can do.
    pub(super) capabilities: Capabilities,
    /// Where its updates go.
    pub(super) routes: Arc<Routes>,
    /// Places for turns, when they are limited.
    pub(super) seats: Option<Arc<Semaphore>>,
    /// Since when it is there.
    pub(super) since: Instant,
    connection: Connection,
    orders: Orders,
    obituary: watch::Receiver<Option<Obituary>>,
    _keeper: AbortOnDropHandle<()>,
}

/// What the keeper of a process is told.
#[derive(Clone, Debug, Default)]
struct Orders {
    stop: CancellationToken,
    kill: CancellationToken,
}

impl Process {
    /// Starts one and greets it.
    pub(super) async fn start(
        launch: &Launch,
        generation: Generation,
        commands: Arc<Mutex<Vec<AgentCommand>>>,
    ) -> Result<Self, StartError> {
        let mut child = Child::spawn(&launch.program)?;
        let (Some(stdout), Some(stdin)) = (child.take_stdout(), child.take_stdin()) else {
            return Err(StartError::Spawn(SpawnError::Nothing));
        };
        let routes = Routes::new(commands);
        let listener = Arc::clone(&routes) as Arc<dyn Listener>;
        let connection = Connection::start(stdout, stdin, listener, Limits::default());
        let orders = Orders::default();
        let (tell, obituary) = watch::channel(None);
        let keeper = tokio::spawn(keep(child, connection.peer().clone(), orders.clone(), tell));
        let mut process = Self {
            generation,
            capabilities: Capabilities::default(),
            routes,
            seats: launch.turns.map(|turns| Arc::new(Semaphore::new(turns))),
            since: Instant::now(),
            connection,
            orders,
            obituary,
            _keeper: AbortOnDropHandle::new(keeper),
        };
        let greeting = Capabilities::initialize();
        let greeted = process.peer().call("initialize", &greeting);
        let answer = match timeout(launch.start_timeout, greeted).await {
            Err(_) => return Err(StartError::Silent(launch.start_timeout)),
            Ok(Err(CallError::Refused(error))) => return Err(StartError::Refused(error)),
            Ok(Err(CallError::Gone)) => return Err(StartError::Ended(process.obituary().await)),
            Ok(Ok(answer)) => answer,
        };
        process.capabilities = Capabilities::read(&answer)?;
        Ok(process)
    }

    /// The agent, to be spoken to.
    pub(super) fn peer(&self) -> &Peer {
        self.connection.peer()
    }

    /// Whether it has ended, or can be spoken to no more.
    pub(super) fn is_gone(&self) -> bool {
        self.peer().is_gone()
    }

    /// Asks it to end; done in the background.
    pub(super) fn stop(&self) {
        self.orders.stop.cancel();
    }

    /// Kills it; done in the background.
    pub(super) fn kill(&self) {
        self.orders.kill.cancel();
    }

    /// How it ended, when it has.
    pub(super) fn ended(&self) -> Option<Obituary> {
        self.obituary.borrow().clone()
    }

    /// Waits for its end. Cancel-safe.
    pub(super) async fn obituary(&self) -> Obituary {
        let mut obituary = self.obituary.clone();
        let told = timeout(OBITUARY, obituary.wait_for(Option::is_some)).await;
        let told = told.ok().and_then(Result::ok).and_then(|told| told.clone());
        told.unwrap_or_else(|| Obituary {
            exit: Exit::Lost,
            stderr: String::new(),
            at: Instant::now(),
        })
    }
}

/// Keeps the child until its end, and tells of it.
async fn keep(mut child: Child, peer: Peer, orders: Orders, tell: watch::Sender<Option<Obituary>>) {
    let polite = async {
        tokio::select! {
            biased;
            () = orders.stop.cancelled() => {
                peer.end();
                child.stop(LADDER).await
            }
            // It closed its output: nobody hears it any more.
            () = peer.gone() => child.stop(LADDER).await,
            () = child.exited() => child.finish().await,
        }
    };
    let exit = tokio::select! {
        biased;
        () = orders.kill.cancelled() => None,
        // Dropped only to be killed at once instead.
        exit = polite => Some(exit),
    };
    let exit = match exit {
        Some(exit) => exit,
        None => child.kill().await,
    };
    // What it wrote last is read to the end, unless someone who left the group holds the pipe.
    let _ = timeout(PIPE_GRACE, peer.gone()).await;
    peer.end();
    let mut stderr = child.stderr_tail();
    let start = stderr.len().saturating_sub(STDERR_BYTES);
    let start = (start..=stderr.len())
        .find(|at| stderr.is_char_boundary(*at))
        .unwrap_or(0);
    stderr.drain(..start);
    let at = Instant::now();
    tell.send_replace(Some(Obituary { exit, stderr, at }));
}

/// The version of the protocol that is spoken here.
pub(super) const VERSION: u64 = 1;

/// Most ways to sign in that are told to people.
const METHODS: usize = 8;

/// What an agent can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// It continues a session and replays it first.
    pub(super) load: bool,
    /// It continues a session.
    pub(super) resume: bool,
    /// It makes a copy of a session.
    pub(super) fork: bool,
    /// It lets go of a session.
    pub(super) close: bool,
    /// It deletes a session.
    pub(super) delete: bool,
    /// It looks at pictures.
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

/// An agent that speaks another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the agent speaks version {theirs} of the protocol, and only version {VERSION} is spoken here; \
         update the agent, or this program, to one that speaks the same"
)]
pub(super) struct OtherVersion {
    /// What it speaks.
    pub(super) theirs: String,
}

impl Capabilities {
    /// What to say to an agent first. Files and terminals are not offered: the agent uses its own.
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
    pub(super) fn read(answer: &Value) -> Result<Self, OtherVersion> {
        match &answer["protocolVersion"] {
            version if version.as_u64() == Some(VERSION) => {}
            // Left out by some early agents, which speak the first version.
            Value::Null => {}
            other => {
                let mut theirs = other.to_string();
                super::message::cut(&mut theirs, 40);
                return Err(OtherVersion { theirs });
            }
        }
        let can = &answer["agentCapabilities"];
        let session = &can["sessionCapabilities"];
        let methods = answer["authMethods"].as_array().map_or(&[][..], Vec::as_slice);
        let named = methods.iter().filter_map(|method| {
            let name = method["name"].as_str().or(method["id"].as_str())?;
            Some(super::update::one_line(name, 80))
        });
        Ok(Self {
            load: can["loadSession"].as_bool().unwrap_or(false),
            resume: offered(&session["resume"]),
            fork: offered(&session["fork"]),
            close: offered(&session["close"]),
            delete: offered(&session["delete"]),
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
    fn another_version_is_said_clearly() {
        for version in [json!(2), json!("1"), json!(0), json!({})] {
            let error = Capabilities::read(&json!({"protocolVersion": version})).unwrap_err();
            assert!(error.to_string().contains("only version 1"), "{error}");
        }
    }
}
