//! Any program as an agent: one process per turn, the message on its standard input, the answer on its standard
//! output.
//!
//! It never puts what people write among the arguments and never uses a shell. Standard error goes to a bounded tail
//! for the log and never into the chat. The process runs in a group of its own and is stopped with it.
//!
//! # Input
//!
//! `text`: the message, then the end of input. `json`: one object in one line, `{"type":"prompt","text":..}` with
//! `session`, `turn`, `author`, `context`, `reply_to`, `attachments`, `notes`, `place` and `memory`. Where the message
//! came from is also in `RELAY_SESSION_KEY`, `RELAY_TURN_ID`, `RELAY_PLATFORM`, `RELAY_CHAT_ID`, `RELAY_CHAT_TYPE`,
//! `RELAY_THREAD_ID`, `RELAY_USER_ID`, `RELAY_USER_NAME` and `RELAY_MESSAGE_ID`. `RELAY_STATE_DIR` and `RELAY_CONFIG` name the
//! relay itself.
//!
//! # Output
//!
//! `text`: the answer as it comes, without terminal colours. `jsonl`: one object per line; what is not understood is
//! counted and left out.
//!
//! | `type` | fields | effect |
//! |---|---|---|
//! | `delta` | `text` | more of the answer |
//! | `replace` | `text` | the answer since the last break is this instead |
//! | `break` | | what follows is a message of its own |
//! | `status`, `thought` | `text` | shown while it works |
//! | `tool` | `id`, `title`, `kind`, `state` | a tool is `running`, `done` or `failed` |
//! | `plan` | `steps` of `text`, `state` | the plan |
//! | `usage` | `input_tokens`, `output_tokens` | what the turn cost |
//! | `title` | `text` | what the conversation is about |
//! | `media` | `path` or `url`, `caption`, `kind`, `name` | a file for the chat |
//! | `ask` | `id`, `text`, `detail`, `options` | asks; answered on standard input, with `json` input |
//! | `keep` | `memory` | given back as `memory` in the next prompt of this session |
//! | `final` | `text` | the answer is complete, and is this when given |
//! | `error` | `message`, `retryable` | the turn failed; the message is shown |
//!
//! An option of `ask` is a word or `id`, `label`, `meaning`; `once`, `session`, `always` and `deny` mean what they say.
//! The answer is `{"type":"answer","id":..,"choice":..}`; without a choice, `reason` is `timed_out` or `cancelled`.
//!
//! # End
//!
//! | the process | the turn |
//! |---|---|
//! | code 0 | is completed; without output, with `(no reply)`, unless a scheduled job runs it |
//! | code 75 | runs the command again, twice at most: it promises that it did nothing. Failed after that, or if it has shown, asked or reported anything |
//! | any other code, or a signal | failed; earlier output stays |
//! | `final` or `error` first | ends with that, whatever the code |
//! | lives on although it closed its output | is completed a few seconds later, and the process stopped |
//! | more than `max_output_bytes` | is cut there, and the process stopped |

mod exchange;
mod lines;
mod prompt;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::exchange::{Exchange, OutputEnd};
use super::child::{BaseEnv, Child, Exit, Program, SpawnError};
use super::{
    Agent, AgentFuture, AgentHealth, AgentInfo, Failure, FailureClass, TELL_OPERATOR, Truncation, Turn,
    TurnEnd,
};
use crate::agent::child::{EnvPolicy, PIPE_GRACE, StopSchedule, StopSignal};
use crate::agent::guard::{Guards, TimeLimits};
use crate::backoff::Backoff;
use crate::text::truncate_bytes;

/// The exit code that asks to be run again.
const EXIT_TEMPORARY_FAILURE: i32 = 75;
/// How often a command is run again that asks for it.
const RETRIES: u32 = 2;
/// Delay before the first retry; doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// How much of a command's own message is shown.
const MAX_MESSAGE: usize = 1000;

/// Settings that name no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command has no program; set `argv` to the program and its arguments")]
pub struct NoProgram;

impl CommandSettings {
    /// Whether an agent can be made of the settings.
    pub(crate) fn check(&self) -> Result<(), NoProgram> {
        let has_program = self.argv.first().is_some_and(|program| !program.is_empty());
        has_program.then_some(()).ok_or(NoProgram)
    }
}

/// A program that answers, one process per turn. Times and numbers are limited by the guards around
/// it; [`CommandAgent::guarded`] puts them there.
#[derive(Debug)]
pub struct CommandAgent {
    name: String,
    settings: CommandSettings,
    base: Arc<BaseEnv>,
    closing: CancellationToken,
    running: TaskTracker,
}

impl CommandAgent {
    /// An agent of that name; its processes inherit from `base` what the settings let through.
    pub fn new(
        name: impl Into<String>,
        settings: CommandSettings,
        base: Arc<BaseEnv>,
    ) -> Result<Self, NoProgram> {
        settings.check()?;
        Ok(Self {
            name: name.into(),
            settings,
            base,
            closing: CancellationToken::new(),
            running: TaskTracker::new(),
        })
    }

    /// The same with its limits of time and number around it.
    pub fn guarded(
        name: impl Into<String>,
        settings: CommandSettings,
        base: Arc<BaseEnv>,
    ) -> Result<Arc<dyn Agent>, NoProgram> {
        let guards = settings.guards();
        Ok(guards.wrap(Arc::new(Self::new(name, settings, base)?)))
    }

    fn program(&self, turn: &Turn) -> Program {
        let mut env = self.settings.environment().apply(&self.base);
        prompt::add_metadata(&mut env, turn);
        Program {
            argv: self.settings.argv.iter().map(OsString::from).collect(),
            cwd: turn.workdir.clone().or_else(|| self.settings.cwd.clone()),
            env,
            agent: Some(self.name.clone()),
        }
    }

    /// Whether a process could be started now.
    fn check(&self) -> Result<(), SpawnError> {
        let program = Program {
            argv: self.settings.argv.iter().map(OsString::from).collect(),
            cwd: self.settings.cwd.clone(),
            env: self.settings.environment().apply(&self.base),
            agent: None,
        };
        program.find().map(drop)
    }

    async fn turn(&self, turn: Turn) -> TurnEnd {
        let _running = self.running.token();
        let mut backoff = Backoff::new(FIRST_WAIT, FIRST_WAIT * 2);
        let mut tries_left = RETRIES;
        loop {
            let mut is_asked_again = false;
            let end = self.run_once(&turn, &mut is_asked_again).await;
            if !is_asked_again || tries_left == 0 {
                return end;
            }
            tries_left -= 1;
            tracing::debug!(agent = self.name, "the command asks to be run again");
            tokio::select! {
                biased;
                () = self.stopped(&turn) => return TurnEnd::Cancelled { confirmed: true },
                () = tokio::time::sleep(backoff.next_delay()) => {}
            }
        }
    }

    /// Waits until the turn is to stop.
    async fn stopped(&self, turn: &Turn) {
        tokio::select! {
            () = turn.cancel.cancelled() => {}
            () = self.closing.cancelled() => {}
        }
    }

    /// Runs the command for a turn, and notes whether it asked to be run again.
    async fn run_once(&self, turn: &Turn, is_asked_again: &mut bool) -> TurnEnd {
        let stopped = self.stopped(turn);
        tokio::pin!(stopped);
        let memory = if self.settings.is_interactive() {
            tokio::select! {
                biased;
                () = &mut stopped => return TurnEnd::Cancelled { confirmed: true },
                memory = turn.events.load_state() => memory,
            }
        } else {
            None
        };
        if turn.cancel.is_cancelled() || self.closing.is_cancelled() {
            return TurnEnd::Cancelled { confirmed: true };
        }
        let mut prompt = prompt::prompt(turn, self.settings.input, memory.as_deref());
        let started = Child::spawn_fed(&self.program(turn), &prompt, || turn.events.mark_started());
        let mut child = match started {
            Ok((child, fed)) => {
                prompt.drain(..fed);
                child
            }
            Err(error) => return TurnEnd::Failed(not_started(&error)),
        };
        let mut exchange = Exchange::new(turn, self.settings.output);
        // Dropping the exchange closes the pipes; the process is stopped right after.
        let talked = tokio::select! {
            biased;
            () = &mut stopped => None,
            talked = exchange.run(&mut child, &self.settings, prompt) => Some(talked),
        };
        let (is_mute, has_acted) = (!exchange.spoke, exchange.has_acted);
        drop(exchange);
        match talked {
            None => {
                let exit = child.stop(self.settings.schedule()).await;
                TurnEnd::Cancelled {
                    confirmed: exit != Exit::Lost,
                }
            }
            Some(OutputEnd::Exited(Exit::Code(0))) => {
                if is_mute {
                    turn.say_no_reply().await;
                }
                TurnEnd::Completed
            }
            Some(OutputEnd::Exited(exit)) => {
                *is_asked_again = exit == Exit::Code(EXIT_TEMPORARY_FAILURE) && !has_acted;
                TurnEnd::Failed(ended(exit, &mut child).await)
            }
            Some(ended @ (OutputEnd::Done | OutputEnd::Closed)) => {
                let schedule = match ended {
                    OutputEnd::Done => self.settings.finish_schedule(),
                    _ => self.settings.schedule(),
                };
                child.stop(schedule).await;
                if is_mute {
                    turn.say_no_reply().await;
                }
                TurnEnd::Completed
            }
            Some(OutputEnd::Failed(message, retryable)) => {
                child.stop(self.settings.finish_schedule()).await;
                let detail = tail("the command reported a failure", &mut child).await;
                let shown = truncate_bytes(&message, MAX_MESSAGE);
                let failure = Failure::new(FailureClass::Reported, shown, detail);
                TurnEnd::Failed(if retryable { failure.retryable() } else { failure })
            }
            Some(OutputEnd::TooMuch) => {
                child.stop(self.settings.schedule()).await;
                TurnEnd::Truncated(Truncation::Size)
            }
        }
    }
}

impl Agent for CommandAgent {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: self.name.clone().into(),
            kind: "command",
            repeatable: self.settings.repeatable,
            marks_start: true,
            steers: false,
            asks: self.settings.is_interactive(),
            resumes: false,
            remembers: self.settings.is_interactive(),
            sees_images: false,
            parallel: Some(self.settings.max_parallel.max(1)),
        }
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        Box::pin(std::future::ready(match self.check() {
            Ok(()) => AgentHealth::Ready,
            Err(SpawnError::NotInstalled(why)) => AgentHealth::NotInstalled(why.to_string()),
            Err(why) => AgentHealth::Down(why.to_string()),
        }))
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(self.turn(turn))
    }

    fn shutdown(&self) -> AgentFuture<'_, ()> {
        self.closing.cancel();
        self.running.close();
        Box::pin(self.running.wait())
    }
}

fn not_started(error: &SpawnError) -> Failure {
    let public = match error {
        SpawnError::NotInstalled(_) => "The agent is not installed.",
        _ => "The agent could not be started.",
    };
    let public = format!("{public} {TELL_OPERATOR}");
    let failure = Failure::new(FailureClass::Unavailable, public, error.to_string()).without_side_effects();
    if error.is_transient() {
        failure.retryable()
    } else {
        failure
    }
}

async fn ended(exit: Exit, child: &mut Child) -> Failure {
    let detail = tail(&format!("the command {exit}"), child).await;
    match exit {
        Exit::Code(EXIT_TEMPORARY_FAILURE) => Failure::new(
            FailureClass::Reported,
            "The agent cannot answer right now. Try again in a moment.",
            detail,
        )
        .retryable()
        .without_side_effects(),
        Exit::Code(code) => Failure::new(
            FailureClass::Reported,
            format!("The agent failed (code {code})."),
            detail,
        ),
        Exit::Signal(_) | Exit::Lost => Failure::new(
            FailureClass::Crashed,
            "The agent ended before its answer did.",
            detail,
        ),
    }
}

/// What happened, and the last line of standard error.
async fn tail(what: &str, child: &mut Child) -> String {
    match child.last_words().await.as_str() {
        "" => what.to_owned(),
        line => format!("{what}; the last line of its standard error: {line}"),
    }
}

/// A command that answers one turn per process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandSettings {
    /// The program and its arguments; no shell reads them, and nothing that people write is put among them.
    pub argv: Vec<String>,
    /// The directory it starts in; a route's directory wins.
    pub cwd: Option<PathBuf>,
    /// Variables that are set for it.
    pub env: EnvAdditions,
    /// Whether it inherits no variables but those of `env_pass`.
    pub env_clear: bool,
    /// Names of variables that it inherits although they sound like secrets, or although `env_clear` is set; a `*` at
    /// the end stands for any rest.
    pub env_pass: Vec<String>,
    /// What it reads from standard input.
    pub input: CommandInput,
    /// What it writes to standard output.
    pub output: CommandOutput,
    /// Timeout of a turn in seconds; 0 for none. Waiting for a person's answer does not count.
    pub timeout_secs: u64,
    /// Idle timeout in seconds; 0 for none. Waiting for a person's answer does not count.
    pub idle_timeout_secs: u64,
    /// Maximum bytes on standard output per turn; beyond, it is stopped and the answer ends.
    pub max_output_bytes: usize,
    /// Seconds between asking it to stop and killing it.
    pub kill_grace_secs: u64,
    /// Maximum concurrent processes, over all sessions; further turns wait.
    pub max_parallel: usize,
    /// Whether a turn can be run again after a crash without repeating side effects.
    pub repeatable: bool,
}

impl Default for CommandSettings {
    fn default() -> Self {
        Self {
            argv: Vec::new(),
            cwd: None,
            env: EnvAdditions::default(),
            env_clear: false,
            env_pass: Vec::new(),
            input: CommandInput::Text,
            output: CommandOutput::Text,
            timeout_secs: 900,
            idle_timeout_secs: 0,
            max_output_bytes: 1024 * 1024,
            kill_grace_secs: 3,
            max_parallel: 4,
            repeatable: false,
        }
    }
}

/// What a command reads from standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandInput {
    /// The message as text, then the end of input.
    #[default]
    Text,
    /// One JSON object in one line; then the end of input, unless the output is `jsonl`.
    Json,
}

/// The format of a command's standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandOutput {
    /// The text of the answer.
    #[default]
    Text,
    /// One JSON object per line.
    Jsonl,
}

/// Variables and their values. Values are neither printed nor serialised: they may be secrets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct EnvAdditions(pub BTreeMap<String, String>);

impl fmt::Debug for EnvAdditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Serialize for EnvAdditions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.keys().map(|name| (name, "<hidden>")))
    }
}

impl CommandSettings {
    /// Whether the command can be answered while it runs.
    pub(super) fn is_interactive(&self) -> bool {
        self.input == CommandInput::Json && self.output == CommandOutput::Jsonl
    }

    pub(super) fn environment(&self) -> EnvPolicy {
        EnvPolicy {
            clear: self.env_clear,
            pass: self.env_pass.clone(),
            add: self.env.0.clone(),
        }
    }

    /// The limits that are kept around it.
    fn guards(&self) -> Guards {
        let seconds = |limit: u64| (limit > 0).then(|| Duration::from_secs(limit));
        let spare = Duration::from_secs(2) + PIPE_GRACE;
        Guards {
            parallel: Some(self.max_parallel),
            time: Some(TimeLimits {
                wall: seconds(self.timeout_secs),
                idle: seconds(self.idle_timeout_secs),
                grace: Duration::from_secs(self.kill_grace_secs) + spare,
            }),
            ..Guards::default()
        }
    }

    /// How it is stopped during a turn.
    pub(super) fn schedule(&self) -> StopSchedule {
        StopSchedule {
            eof: Duration::ZERO,
            signal: StopSignal::Terminate,
            grace: Duration::from_secs(self.kill_grace_secs),
        }
    }

    /// How it is stopped after it reported its end: it may exit by itself first.
    pub(super) fn finish_schedule(&self) -> StopSchedule {
        StopSchedule {
            eof: Duration::from_secs(self.kill_grace_secs),
            ..self.schedule()
        }
    }
}
