//! Agents that speak ACP, the Agent Client Protocol, over their standard input and output.
//!
//! One process serves many conversations; each has a session of its own in it. What the agent says streams out as it
//! comes, what it wants to be allowed is asked, and a stop is passed on. It offers the agent no files and no terminal:
//! agents use their own. It never sends a prompt twice, unless the agent has certainly not taken it up.
//!
//! Requests are written by hand and what arrives is read as plain JSON: the protocol's own crate of types fails on
//! updates that it does not know, and switches the order of keys in every JSON object of the program.
//!
//! | file | what it is |
//! |---|---|
//! | `settings`, `presets` | what can be set; known agents |
//! | `line`, `message`, `rpc` | a connection, of any protocol |
//! | `process`, `pool`, `backoff` | processes: started on first use, watched, replaced |
//! | `capabilities`, `update`, `permission`, `content` | what is said, in both directions · *pure* but for reading pictures |
//! | `sessions`, `verdict` | what to do before a prompt and after its answer · *pure* |
//! | `mailbox`, `open`, `prompt` | a turn |
//!
//! A stop: open questions are answered "cancelled", the agent is told, and has its grace. After that its process is
//! killed when no other turn uses it. A session whose stop went wrong is tainted: the next turn works on a copy of it
//! when the agent makes copies, else in a fresh process, and never on the session as it is.

mod content;
mod mailbox;
mod message;
mod open;
mod outcome;
mod permission;
mod pool;
mod process;
mod prompt;
mod rpc;
mod sessions;
mod settings;
mod update;

pub use settings::{AcpSettings, AcpSettingsError, OptionValue};
pub use settings::{PRESETS, Preset, Quirks, preset};

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use self::content::Shape;
use self::open::Opened;
use self::outcome::OpenError;
use self::outcome::{Aftermath, Course, Trouble, Verdict, judge};
use self::pool::Pool;
use self::process::Process;
use self::prompt::{Prompt, Stop};
use self::rpc::CallError;
use self::sessions::{Bound, Sessions, Standing};
use self::settings::Launch;
use super::child::{BaseEnv, program_exists};
use super::{Agent, AgentCommand, AgentFuture, AgentHealth, AgentInfo, Failure, Turn, TurnEnd};
use crate::wire::SessionKey;

/// How long an agent may take over a small favour.
const FAVOUR: Duration = Duration::from_secs(5);

/// An agent that speaks ACP.
#[derive(Debug)]
pub struct AcpAgent {
    name: String,
    settings: AcpSettings,
    launch: Launch,
    pool: Arc<Pool>,
    sessions: Arc<Mutex<Sessions>>,
    commands: Arc<Mutex<Vec<AgentCommand>>>,
}

impl AcpAgent {
    /// An agent of that name. Nothing is started before its first turn.
    pub fn new(name: &str, settings: AcpSettings, base: &BaseEnv) -> Result<Self, AcpSettingsError> {
        let launch = settings.resolve(base)?;
        let commands = Arc::default();
        Ok(Self {
            name: name.to_owned(),
            pool: Pool::new(launch.clone(), Arc::clone(&commands)),
            settings,
            launch,
            sessions: Arc::new(Mutex::new(Sessions::new(sessions::MOST))),
            commands,
        })
    }

    async fn drive(&self, turn: Turn) -> TurnEnd {
        let stopped_early = TurnEnd::Cancelled { confirmed: true };
        let cwd = self.directory(&turn);
        let (gate, let_go) = self.sessions().gate(&turn.session);
        if let Some(bound) = let_go {
            self.close(&bound);
        }
        let inside = tokio::select! {
            biased;
            () = turn.cancel.cancelled() => return stopped_early,
            inside = gate.acquire_owned() => inside,
        };
        let mut again = false;
        loop {
            let opened = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return stopped_early,
                // Dropped, it leaves what was known as it was.
                opened = self.open(&turn, &cwd) => opened,
            };
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => return TurnEnd::Failed(self.not_opened(error)),
            };
            match self.prompt(&turn, &opened, again).await {
                Some(end) => {
                    drop(inside);
                    return end;
                }
                None => again = true,
            }
        }
    }

    /// Prompts once; `None` when the prompt was not taken up and may be sent again.
    async fn prompt(&self, turn: &Turn, opened: &Opened, again: bool) -> Option<TurnEnd> {
        let key = &turn.session;
        let process = &opened.seat.process;
        let shape = Shape {
            images: process.capabilities.images,
            image_bytes: self.settings.image_bytes,
            escape_slash: self.launch.escape_slash,
            hint: opened.fresh && self.settings.system_hint,
        };
        let blocks = content::blocks(&turn.input, shape).await;
        let prompt = Prompt {
            turn,
            process,
            id: &opened.id,
            sessions: &self.sessions,
            grace: self.launch.cancel_grace,
            patience: self.launch.patience,
            by_option_id: self.launch.quirks.choose_by_option_id,
        };
        let Some(outcome) = prompt.run(blocks).await else {
            return Some(TurnEnd::Cancelled { confirmed: true });
        };
        let course = Course {
            said: outcome.said,
            stopped: outcome.stop != Stop::No,
            after_stop: self.sessions().standing(key).1,
            again,
            refusal_is_unknown: self.launch.quirks.refusal_is_unknown,
        };
        let verdict = match &outcome.answer {
            Some(answer) => judge(answer, course),
            None => self.unstopped(key, opened).await,
        };
        let end = match verdict {
            Verdict::Again(aftermath) => {
                self.note(key, aftermath);
                return None;
            }
            Verdict::Ends(end, aftermath) => {
                self.note(key, aftermath);
                end
            }
            Verdict::Fails(trouble) => TurnEnd::Failed(self.failed(trouble, opened).await),
        };
        self.sessions().note_stopped(key, course.stopped);
        Some(match outcome.stop {
            Stop::Overrun => TurnEnd::Failed(outcome::overrun(&self.launch)),
            Stop::No | Stop::Asked => end,
        })
    }

    /// The agent was told to stop, and did not in time.
    async fn unstopped(&self, key: &SessionKey, opened: &Opened) -> Verdict {
        // First of all nobody may use it again, should the turn be dropped while the process ends.
        self.sessions().taint(key);
        let confirmed = opened.seat.kill_alone().await;
        if !confirmed && !opened.seat.process.capabilities.fork {
            // It will not be copied: let the agent give it up, if it knows how.
            close_in(&opened.seat.process, &opened.id);
        }
        Verdict::Ends(TurnEnd::Cancelled { confirmed }, Aftermath::Tainted)
    }

    fn note(&self, key: &SessionKey, aftermath: Aftermath) {
        match aftermath {
            Aftermath::Sound => {}
            Aftermath::Tainted => self.sessions().taint(key),
            Aftermath::Unknown => self.sessions().note(key, Standing::Anew),
        }
    }

    async fn failed(&self, trouble: Trouble, opened: &Opened) -> Failure {
        match trouble {
            Trouble::SignIn(error) => {
                outcome::credentials(&error, &self.launch, &opened.seat.process.capabilities.sign_in)
            }
            Trouble::Reported(error) => outcome::reported(&error, &self.launch),
            Trouble::Gone => outcome::crashed(&opened.seat.process.obituary().await, &self.launch),
        }
    }

    fn not_opened(&self, error: OpenError) -> Failure {
        let sign_in = self
            .pool
            .any()
            .map(|process| process.capabilities.sign_in.clone());
        error.failure(&self.launch, &sign_in.unwrap_or_default())
    }

    fn directory(&self, turn: &Turn) -> PathBuf {
        match &turn.workdir {
            Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
            None => self.launch.cwd.clone(),
        }
    }

    /// Lets a session go in its process, when that is there and wants to know.
    fn close(&self, bound: &Bound) {
        if let Some(process) = self.pool.alive(bound.generation) {
            close_in(&process, &bound.id);
        }
    }

    async fn drop_session(&self, key: &SessionKey) {
        let Some(bound) = self.sessions().forget(key) else {
            return;
        };
        let Some(process) = self.pool.alive(bound.generation) else {
            return;
        };
        let method = match &process.capabilities {
            can if can.delete => "session/delete",
            can if can.close => "session/close",
            _ => return,
        };
        let asked = process.peer().call(method, &json!({"sessionId": bound.id})).await;
        if let Err(error) = asked {
            tracing::debug!(agent = %self.name, %error, "the agent did not let a session go");
        }
    }

    async fn look(&self) -> AgentHealth {
        match (self.pool.any(), self.pool.last_failure()) {
            (Some(process), _) if !process.is_gone() => {
                // No agent knows it, and every agent says so at once.
                match timeout(FAVOUR, process.peer().call("ping", &Value::Null)).await {
                    Ok(Ok(_) | Err(CallError::Refused(_))) => AgentHealth::Ready,
                    Ok(Err(CallError::Gone)) => ended(),
                    Err(_) => AgentHealth::Degraded(format!(
                        "the agent has not answered for {} s",
                        FAVOUR.as_secs()
                    )),
                }
            }
            (Some(_), _) => ended(),
            (None, Some(failure)) => AgentHealth::Down(failure),
            (None, None) => self.installed(),
        }
    }

    fn installed(&self) -> AgentHealth {
        let program = &self.launch.program;
        let Some(name) = program.argv.first() else {
            return AgentHealth::Down("no program is given".to_owned());
        };
        let place = match &program.cwd {
            Some(cwd) if name.as_encoded_bytes().contains(&b'/') => cwd.join(name),
            _ => Path::new(name).to_owned(),
        };
        let path = program
            .env
            .get(std::ffi::OsStr::new("PATH"))
            .map(std::ffi::OsString::as_os_str);
        match program_exists(place.as_os_str(), path) {
            Ok(_) => AgentHealth::Ready,
            Err(error) => match self.launch.preset {
                Some(preset) => AgentHealth::Down(format!("{error}; to install it: {}", preset.install)),
                None => AgentHealth::Down(error.to_string()),
            },
        }
    }
}

/// Lets a session go, when the agent knows how; nobody waits for it.
fn close_in(process: &Process, id: &str) {
    if process.capabilities.close {
        let params = json!({"sessionId": id});
        let _ = process.peer().ask_in_passing("session/close", &params);
    }
}

fn ended() -> AgentHealth {
    AgentHealth::Degraded("the agent's process has ended; the next turn starts it again".to_owned())
}

impl Agent for AcpAgent {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: self.name.clone(),
            kind: "acp",
            repeatable: false,
            steers: false,
            asks: true,
            remembers: true,
            sees_images: true,
            parallel: self
                .launch
                .turns
                .map(|turns| turns.saturating_mul(self.launch.processes)),
        }
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        Box::pin(self.look())
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(self.drive(turn))
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        Box::pin(async move {
            let _ = timeout(FAVOUR, self.drop_session(session)).await;
        })
    }

    fn commands(&self) -> Vec<AgentCommand> {
        self.commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn shutdown(&self) -> AgentFuture<'_, ()> {
        Box::pin(self.pool.close())
    }
}
