//! Agents that speak ACP, the Agent Client Protocol, over their standard input and output.
//!
//! One process serves many conversations, each in a session of its own. Output streams out, permission requests go to
//! people, and stops are forwarded. The agent gets no file or terminal access from the client: agents use their own. A
//! prompt is never sent twice unless the agent has certainly not processed it.
//!
//! Requests are written by hand and what arrives is read as plain JSON: the protocol's own crate of types fails on
//! updates that it does not know, and switches the order of keys in every JSON object of the program.
//!
//! | file | what it is |
//! |---|---|
//! | `settings` | settings; presets of known agents |
//! | `message`, `rpc` | a JSON-RPC connection |
//! | `process`, `pool` | processes: started on demand, supervised, restarted with backoff |
//! | `update`, `permission`, `content` | mapping in both directions · *pure* but for reading images |
//! | `preferences` | what people can choose in a session · *pure* |
//! | `sessions`, `outcome` | decisions before a prompt and after its response · *pure* |
//! | `open`, `prompt`, `turn_queue` | a turn |
//! | `listing` | the sessions that the agent keeps |
//!
//! A stop: open questions are answered "cancelled", the agent gets `session/cancel` and a grace period. Then its process is
//! killed when no other turn uses it. A session whose stop went wrong is tainted: the next turn works on a copy of it
//! when the agent makes copies, else in a fresh process, and never on the session as it is.

mod content;
mod listing;
mod message;
mod open;
mod outcome;
mod permission;
mod pool;
mod preferences;
mod process;
mod prompt;
mod rpc;
mod sessions;
mod settings;
mod turn_queue;
mod update;

pub use settings::{AcpSettings, AcpSettingsError, OptionValue, PRESETS};

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use self::content::Shape;
use self::open::OpenedSession;
use self::outcome::SessionError;
use self::outcome::{PromptContext, PromptError, PromptOutcome, SessionEffect, evaluate};
use self::pool::{LastFailure, Pool};
use self::process::Process;
use self::prompt::{Prompt, StopCause};
use self::rpc::CallError;
use self::sessions::{AgentSessionStatus, AgentSessions, SessionRef};
use self::settings::Launch;
use super::child::{BaseEnv, program_exists};
use super::{
    Agent, AgentCommand, AgentFuture, AgentHealth, AgentInfo, AgentProcess, Failure, FailureClass,
    ListedSession, PreferenceAnswer, PreferenceRequest, Truncation, Turn, TurnEnd,
};
use crate::wire::SessionKey;

/// Timeout of a small request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// An agent that speaks ACP.
#[derive(Debug)]
pub struct AcpAgent {
    name: String,
    settings: AcpSettings,
    launch: Launch,
    pool: Arc<Pool>,
    sessions: Arc<Mutex<AgentSessions>>,
    commands: Arc<Mutex<Vec<AgentCommand>>>,
}

impl AcpAgent {
    /// An agent of that name. Nothing is started before its first turn.
    pub fn new(name: &str, settings: AcpSettings, base: &BaseEnv) -> Result<Self, AcpSettingsError> {
        let mut launch = settings.resolve(base)?;
        launch.program.agent = Some(name.to_owned());
        let commands = Arc::default();
        Ok(Self {
            name: name.to_owned(),
            pool: Pool::new(launch.clone(), Arc::clone(&commands)),
            settings,
            launch,
            sessions: Arc::new(Mutex::new(AgentSessions::new(sessions::MAX_SESSIONS))),
            commands,
        })
    }

    async fn drive(&self, turn: Turn) -> TurnEnd {
        let stopped_early = TurnEnd::Cancelled { confirmed: true };
        let cwd = self.directory(turn.workdir.as_deref());
        let (gate, evicted) = self.sessions().gate(&turn.session);
        if let Some(session) = evicted {
            self.close(&session);
        }
        let inside = tokio::select! {
            biased;
            () = turn.cancel.cancelled() => return stopped_early,
            inside = gate.acquire_owned() => inside,
        };
        let mut retried = false;
        loop {
            let opened = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return stopped_early,
                // Cancel-safe.
                opened = self.open(&turn, &cwd) => opened,
            };
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => return TurnEnd::Failed(self.not_opened(error)),
            };
            match self.prompt(&turn, &opened, retried).await {
                Some(end) => {
                    drop(inside);
                    return end;
                }
                None => retried = true,
            }
        }
    }

    /// Lists what can be chosen in the turn's session, or chooses.
    async fn choose(&self, turn: Turn, request: PreferenceRequest) -> PreferenceAnswer {
        let cwd = self.directory(turn.workdir.as_deref());
        let (gate, evicted) = self.sessions().gate(&turn.session);
        if let Some(session) = evicted {
            self.close(&session);
        }
        // Fails only when the semaphore is closed, which never happens.
        let inside = gate.acquire_owned().await;
        let opened = match self.open(&turn, &cwd).await {
            Ok(opened) => opened,
            Err(error) => return PreferenceAnswer::Failed(self.not_opened(error)),
        };
        let (routes, preference) = (&opened.lease.process.routes, request.preference);
        let mut options = routes.options(&opened.id);
        let Some(selector) = options.selector(preference) else {
            return PreferenceAnswer::Unsupported;
        };
        let Some(choice) = request.choice else {
            return PreferenceAnswer::Offered(selector.offer);
        };
        let Some(option) = selector.offer.find(&choice).cloned() else {
            return PreferenceAnswer::NoSuchOption(selector.offer);
        };
        let (method, params) = selector.request(&opened.id, &option.id);
        let answer = match self.set_up(&opened.lease.process, method, &params).await {
            Ok(answer) => answer,
            Err(SessionError::Refused(error)) => {
                let public = format!("The agent refused to switch its {}.", preference.name());
                return PreferenceAnswer::Failed(
                    Failure::new(FailureClass::Reported, public, error.to_string()).without_side_effects(),
                );
            }
            Err(error) => return PreferenceAnswer::Failed(self.not_opened(error)),
        };
        let is_confirmed = options.confirm(&selector, &answer, &option.id);
        routes.set_options(&opened.id, options);
        if !is_confirmed {
            let public = format!("The agent kept its {}.", preference.name());
            let detail = format!("it answered {method} with another value than the one chosen");
            return PreferenceAnswer::Failed(
                Failure::new(FailureClass::Reported, public, detail).without_side_effects(),
            );
        }
        let mut chosen = self.sessions().chosen(&turn.session);
        chosen.set(preference, Some(option.id.clone()));
        self.sessions().set_chosen(&turn.session, chosen);
        self.save(&turn, &opened.id, &cwd).await;
        drop(inside);
        PreferenceAnswer::Changed(option)
    }

    /// Prompts once; `None` when the prompt was not processed and may be sent again.
    async fn prompt(&self, turn: &Turn, opened: &OpenedSession, retried: bool) -> Option<TurnEnd> {
        let key = &turn.session;
        let process = &opened.lease.process;
        let is_command = self.is_own_command(&turn.input.text);
        // A command goes alone: the message after it has the hint.
        let is_first = !is_command && self.sessions().is_fresh(key);
        let shape = Shape {
            images: process.capabilities.images,
            image_bytes: self.settings.image_bytes,
            is_command,
            escape_slash: self.launch.escape_slash,
            hint: is_first && self.settings.system_hint,
        };
        let blocks = content::blocks(&turn.input, shape).await;
        let prompt = Prompt {
            turn,
            process,
            id: &opened.id,
            sessions: &self.sessions,
            grace: self.launch.cancel_grace,
            question_timeout: self.launch.question_timeout,
            by_option_id: self.launch.quirks.choose_by_option_id,
        };
        let Some(outcome) = prompt.run(blocks).await else {
            return Some(TurnEnd::Cancelled { confirmed: true });
        };
        let context = PromptContext {
            responded: outcome.responded,
            stopped: outcome.stop != StopCause::None,
            after_stop: self.sessions().status(key).1,
            retried,
            refusal_is_unknown: self.launch.quirks.refusal_is_unknown,
        };
        let result = match &outcome.answer {
            Some(answer) => evaluate(answer, context),
            None => self.stop_timed_out(key, opened).await,
        };
        let end = match result {
            PromptOutcome::Retry(effect) => {
                self.apply(key, effect);
                return None;
            }
            PromptOutcome::Ended(end, effect) => {
                self.apply(key, effect);
                end
            }
            PromptOutcome::Failed(error) => TurnEnd::Failed(self.failed(error, opened).await),
        };
        self.sessions().set_stopped(key, context.stopped);
        if is_first {
            self.sessions().set_fresh(key, false);
        }
        Some(match outcome.stop {
            StopCause::Overflow => TurnEnd::Failed(outcome::overflow(&self.launch)),
            StopCause::Unread => TurnEnd::Failed(outcome::unread(&self.launch)),
            StopCause::None | StopCause::Requested => match end {
                TurnEnd::Completed if outcome.has_lost_text => TurnEnd::Truncated(Truncation::Size),
                end => end,
            },
        })
    }

    /// Whether a text begins with a command that the agent offers.
    fn is_own_command(&self, text: &str) -> bool {
        let Some(command) = text.trim_start().strip_prefix('/') else {
            return false;
        };
        let name = command.split_whitespace().next().unwrap_or_default();
        self.commands().iter().any(|known| known.name == name)
    }

    /// The agent did not stop within its grace period.
    async fn stop_timed_out(&self, key: &SessionKey, opened: &OpenedSession) -> PromptOutcome {
        // Before anything else, in case the turn is dropped while the process exits.
        self.sessions().taint(key);
        let confirmed = opened.lease.kill_if_unused().await;
        if !confirmed && !opened.lease.process.capabilities.fork {
            // It will not be forked: let the agent close it.
            close_in(&opened.lease.process, &opened.id);
        }
        PromptOutcome::Ended(TurnEnd::Cancelled { confirmed }, SessionEffect::Tainted)
    }

    fn apply(&self, key: &SessionKey, effect: SessionEffect) {
        match effect {
            SessionEffect::Usable => {}
            SessionEffect::Tainted => self.sessions().taint(key),
            SessionEffect::Unknown => self.sessions().set_status(key, AgentSessionStatus::New),
        }
    }

    async fn failed(&self, error: PromptError, opened: &OpenedSession) -> Failure {
        match error {
            PromptError::SignIn(error) => {
                outcome::credentials(&error, &self.launch, &opened.lease.process.capabilities.sign_in)
            }
            PromptError::Reported(error) => outcome::reported(&error, &self.launch),
            PromptError::Unread => outcome::unread(&self.launch),
            PromptError::Exited => outcome::crashed(&opened.lease.process.exit_report().await, &self.launch),
        }
    }

    fn not_opened(&self, error: SessionError) -> Failure {
        let sign_in = self
            .pool
            .any()
            .map(|process| process.capabilities.sign_in.clone());
        error.failure(&self.launch, &sign_in.unwrap_or_default())
    }

    fn directory(&self, workdir: Option<&Path>) -> PathBuf {
        match workdir {
            Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()),
            None => self.launch.cwd.clone(),
        }
    }

    /// Closes a session in its process, if it runs.
    fn close(&self, session: &SessionRef) {
        if let Some(process) = self.pool.alive(session.generation) {
            close_in(&process, &session.id);
        }
    }

    async fn drop_session(&self, key: &SessionKey) {
        let Some(session) = self.sessions().forget(key) else {
            return;
        };
        let Some(process) = self.pool.alive(session.generation) else {
            return;
        };
        let method = match &process.capabilities {
            can if can.delete => "session/delete",
            can if can.close => "session/close",
            _ => return,
        };
        let asked = process
            .peer()
            .call(method, &json!({"sessionId": session.id}))
            .await;
        if let Err(error) = asked {
            tracing::debug!(agent = %self.name, %error, "the agent did not close a session");
        }
    }

    async fn check_health(&self) -> AgentHealth {
        match (self.pool.any(), self.pool.last_failure()) {
            (Some(process), _) if !process.is_gone() => {
                // No agent knows this method; all reject it immediately.
                match timeout(REQUEST_TIMEOUT, process.peer().call("ping", &Value::Null)).await {
                    Ok(Ok(_) | Err(CallError::Refused(_) | CallError::Unread | CallError::MaybeUnread)) => {
                        AgentHealth::Ready
                    }
                    Ok(Err(CallError::Gone)) => exited_health(),
                    Err(_) => AgentHealth::Degraded(format!(
                        "the agent has not answered for {} s",
                        REQUEST_TIMEOUT.as_secs()
                    )),
                }
            }
            (Some(_), _) => exited_health(),
            (None, failure) => without_process(self.installed(), failure),
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
                Some(preset) => {
                    AgentHealth::NotInstalled(format!("{error}; to install it: {}", preset.install))
                }
                None => AgentHealth::NotInstalled(error.to_string()),
            },
        }
    }
}

/// Closes a session, if the agent supports it, without waiting.
fn close_in(process: &Process, id: &str) {
    if process.capabilities.close {
        let params = json!({"sessionId": id});
        let _ = process.peer().request_detached("session/close", &params);
    }
}

/// The health of an agent without a process: only a turn starts one, so what failed before must not keep turns away for ever.
fn without_process(installed: AgentHealth, failure: Option<LastFailure>) -> AgentHealth {
    match (installed, failure) {
        (AgentHealth::Ready, Some(failure)) if failure.is_pausing => AgentHealth::Down(failure.why),
        (AgentHealth::Ready, Some(failure)) => {
            AgentHealth::Degraded(format!("{}; the next turn starts it again", failure.why))
        }
        (installed, _) => installed,
    }
}

fn exited_health() -> AgentHealth {
    AgentHealth::Degraded("the agent's process has ended; the next turn starts it again".to_owned())
}

impl Agent for AcpAgent {
    fn reports_changes(&self) -> bool {
        true
    }

    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: self.name.clone().into(),
            kind: "acp",
            repeatable: false,
            marks_start: true,
            steers: false,
            asks: true,
            resumes: false,
            remembers: true,
            sees_images: true,
            parallel: self
                .launch
                .turns
                .map(|turns| turns.saturating_mul(self.launch.processes)),
        }
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        Box::pin(self.check_health())
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(self.drive(turn))
    }

    fn prefer(&self, turn: Turn, request: PreferenceRequest) -> AgentFuture<'_, PreferenceAnswer> {
        Box::pin(self.choose(turn, request))
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        Box::pin(async move {
            let _ = timeout(REQUEST_TIMEOUT, self.drop_session(session)).await;
        })
    }

    fn reload(&self, session: &SessionKey) {
        let open = self.sessions().reload(session);
        if let Some(open) = open {
            self.close(&open);
        }
    }

    fn list_sessions<'a>(&'a self, workdir: Option<&'a Path>) -> AgentFuture<'a, Vec<ListedSession>> {
        Box::pin(self.listed(self.directory(workdir)))
    }

    fn commands(&self) -> Vec<AgentCommand> {
        if self.launch.escape_slash {
            return Vec::new();
        }
        self.commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn processes(&self) -> Vec<AgentProcess> {
        self.pool.processes()
    }

    fn shutdown(&self) -> AgentFuture<'_, ()> {
        Box::pin(self.pool.close())
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::preferences::Chosen;
    use super::sessions::SavedSession;
    use super::*;
    use crate::agent::guard::{BreakerSettings, CircuitBreaker};
    use crate::agent::{AgentEvent, AgentSignal, EventSink, TurnInput};

    /// An agent that ends when a prompt says `crash`.
    const AGENT: &str = r#"
        while read -r line; do
            id=${line#*'"id":'}
            id=${id%%[,\}]*}
            case $line in
                *'"initialize"'*) result='{"protocolVersion":1}';;
                *'"session/new"'*) result='{"sessionId":"s1"}';;
                *crash*) exit 3;;
                *) result='{"stopReason":"end_turn"}';;
            esac
            echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
        done
    "#;

    /// An agent that writes a line of more than 8 MiB when a prompt says `long`, and one that is not JSON when it says `broken`. It
    /// never answers `session/load`, or in a line that does not say so if `LOADS` is `lost`.
    const LONG_WINDED: &str = r#"
        long() { printf '%s' "$1"; head -c 9000000 /dev/zero | tr '\0' x; printf '%s\n' "$2"; }
        update='{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'
        while read -r line; do
            id=${line#*'"id":'}
            id=${id%%[,\}]*}
            answer='{"jsonrpc":"2.0","id":'"$id"',"result":'
            case $line in
                *'"initialize"'*) echo "$answer"'{"protocolVersion":1,"agentCapabilities":{"loadSession":'"${LOADS%lost}"'}}}';;
                *'"session/new"'*) echo "$answer"'{"sessionId":"s1"}}';;
                *'"session/load"'*)
                    case $LOADS in *lost) echo '{"jsonrpc":"2.0","result":NaN,"id":'"$id"'}';; esac;;
                *'"session/cancel"'*) ;;
                *'broken answer'*) echo "$answer"'{"stopReason":NaN}}';;
                *'broken text'*) echo "$update"'\ud83d"}}}}'; echo "$answer"'{"stopReason":"end_turn"}}';;
                *'long answer'*) long "$answer"'{"stopReason":"' '"}}';;
                *'long junk'*) long "" ""; echo "$answer"'{"stopReason":"end_turn"}}';;
                *'long text'*) long "$update" '"}}}}'; echo "$answer"'{"stopReason":"end_turn"}}';;
                *'long question'*)
                    long '{"id":"q","method":"session/request_permission","params":{"sessionId":"s1","options":"' '"}}'
                    read -r refused
                    case $refused in *error*) echo "$update"'refused"}}}}';; esac
                    echo "$answer"'{"stopReason":"end_turn"}}';;
                *) echo "$answer"'{"stopReason":"end_turn"}}';;
            esac
        done
    "#;

    fn long_winded(loads: &str, start_timeout_secs: u64) -> AcpAgent {
        let mut settings = AcpSettings {
            argv: ["/bin/sh", "-c", LONG_WINDED].map(str::to_owned).to_vec(),
            start_timeout_secs,
            cancel_grace_secs: 1,
            ..AcpSettings::default()
        };
        settings.env.0.insert("LOADS".to_owned(), loads.to_owned());
        let path = ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into());
        AcpAgent::new("tested", settings, &BaseEnv::new([path])).unwrap()
    }

    #[tokio::test]
    async fn a_turn_with_a_line_that_cannot_be_read_ends_and_is_not_complete() {
        let agent = long_winded("false", 60);
        for text in ["long text", "broken text"] {
            assert_eq!(
                turn(&agent, text).await,
                TurnEnd::Truncated(Truncation::Size),
                "{text}"
            );
        }
        assert_eq!(turn(&agent, "long question").await, TurnEnd::Completed);
        for text in ["long answer", "broken answer"] {
            assert_unread(&turn(&agent, text).await);
        }
        assert_eq!(turn(&agent, "long junk").await, TurnEnd::Completed);
        assert_eq!(turn(&agent, "hello").await, TurnEnd::Completed);
    }

    fn assert_unread(end: &TurnEnd) {
        assert!(
            matches!(end, TurnEnd::Failed(failure) if failure.public_text.contains("cannot be read")),
            "{end:?}"
        );
    }

    #[tokio::test]
    async fn a_session_that_is_twice_not_loaded_in_time_begins_anew_and_reports_it() {
        let agent = long_winded("true", 3);
        let (end, notices) = continued_turn(&agent).await;
        assert!(
            matches!(&end, TurnEnd::Failed(failure) if failure.class == FailureClass::Timeout),
            "{end:?}"
        );
        assert_eq!(notices, [""; 0]);
        begins_anew(&agent).await;
    }

    #[tokio::test]
    async fn a_session_whose_loading_may_have_been_answered_unreadably_fails_at_once_and_the_second_time_begins_anew()
     {
        let agent = long_winded("truelost", 3600);
        let (end, notices) = continued_turn(&agent).await;
        assert_unread(&end);
        assert_eq!(notices, [""; 0]);
        begins_anew(&agent).await;
    }

    async fn begins_anew(agent: &AcpAgent) {
        let (end, notices) = continued_turn(agent).await;
        assert_eq!(end, TurnEnd::Completed);
        assert_eq!(
            notices,
            ["The agent no longer has this conversation; it starts a new one."]
        );
    }

    /// Runs a turn of a conversation that has a session; returns the notices, too.
    async fn continued_turn(agent: &AcpAgent) -> (TurnEnd, Vec<String>) {
        let (events, mut signals) = EventSink::new();
        let listening = tokio::spawn(async move {
            let mut notices = Vec::new();
            while let Some(signal) = signals.recv().await {
                match signal {
                    AgentSignal::LoadState(answer) => {
                        let saved = SavedSession {
                            backend: "tested".to_owned(),
                            session_id: "s0".to_owned(),
                            cwd: std::path::absolute(".").unwrap(),
                            chosen: Chosen::default(),
                        };
                        let _ = answer.send(Some(saved.write()));
                    }
                    AgentSignal::Event(AgentEvent::Notice(notice)) => notices.push(notice),
                    AgentSignal::Event(_) | AgentSignal::SaveState(_) | AgentSignal::Question(..) => {}
                }
            }
            notices
        });
        let started = Turn::alone(TurnInput::default(), events, CancellationToken::new());
        let end = timeout(Duration::from_secs(60), agent.run(started)).await;
        let end = end.expect("it ends");
        (end, listening.await.unwrap())
    }

    async fn turn(agent: &dyn Agent, text: &str) -> TurnEnd {
        let (events, mut signals) = EventSink::new();
        tokio::spawn(async move { while signals.recv().await.is_some() {} });
        let input = TurnInput {
            text: text.to_owned(),
            ..TurnInput::default()
        };
        let run = agent.run(Turn::alone(input, events, CancellationToken::new()));
        timeout(Duration::from_secs(60), run).await.expect("it ends")
    }

    #[tokio::test]
    async fn one_that_ended_three_times_is_started_again_after_its_cooldown() {
        let settings = AcpSettings {
            argv: ["/bin/sh", "-c", AGENT].map(str::to_owned).to_vec(),
            ..AcpSettings::default()
        };
        let agent = AcpAgent::new("tested", settings, &BaseEnv::default()).unwrap();
        let settings = BreakerSettings {
            cooldown: Duration::ZERO,
            ..BreakerSettings::default()
        };
        let breaker = CircuitBreaker::new(Arc::new(agent), settings);
        for _ in 0..settings.failures {
            let end = turn(&breaker, "crash").await;
            assert!(
                matches!(&end, TurnEnd::Failed(failure) if failure.class == FailureClass::Crashed),
                "{end:?}"
            );
        }
        assert_eq!(turn(&breaker, "hello").await, TurnEnd::Completed);
    }

    #[test]
    fn without_a_process_a_turn_may_start_one_unless_a_failed_start_is_recent() {
        let failure = |is_pausing| {
            let why = "the process ended with code 3".to_owned();
            Some(LastFailure { why, is_pausing })
        };
        let degraded = "the process ended with code 3; the next turn starts it again".to_owned();
        let missing = || AgentHealth::NotInstalled("it is not there".to_owned());
        for (installed, failure, wanted) in [
            (AgentHealth::Ready, None, AgentHealth::Ready),
            (
                AgentHealth::Ready,
                failure(false),
                AgentHealth::Degraded(degraded),
            ),
            (
                AgentHealth::Ready,
                failure(true),
                AgentHealth::Down("the process ended with code 3".to_owned()),
            ),
            (missing(), failure(false), missing()),
        ] {
            assert_eq!(without_process(installed, failure), wanted);
        }
    }
}
