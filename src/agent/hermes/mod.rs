//! A local Hermes, through its gateway's API server.
//!
//! In `mode: runs` a turn is a run: it streams, asks for approvals and can be stopped; the conversation is kept here and
//! sent with every run. In `mode: chat` a turn is a chat completion: Hermes keeps the conversation under the session's name
//! and denies whatever needs an approval. An accepted run is never started again.

mod approvals;
mod chat;
mod event;
mod run;
mod start;

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use self::run::{Run, RunText, SavedRun};
use self::start::{BackgroundRequests, Posted, RunHandle};
use super::http::{AgentHttp, AgentRequest, Endpoint, EndpointError, FailureTexts, listed_models};
use super::prompt_text::{FileAccess, attachment_lines, turn_instructions};
use super::transcript::{AnswerExtent, Bounds, Transcript, TranscriptStore};
use super::{
    Agent, AgentFuture, AgentHealth, AgentInfo, Failure, FailureClass, Preference, PreferenceAnswer,
    PreferenceRequest, TELL_OPERATOR, Turn, TurnEnd,
};
use crate::net::http::{HttpEgress, HttpError};
use crate::text::hex;
use crate::wire::SessionKey;

/// Timeout of a short request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Transcript entry of a turn that was stopped before any text, so that its request is not repeated.
const STOPPED: &str = "[stopped by the user before it was answered]";
/// Delay before retrying a busy gateway that sends no `Retry-After`.
const BUSY_WAIT: Duration = Duration::from_secs(1);

const FAILURES: FailureTexts = FailureTexts {
    who: "Hermes",
    unreachable: "start it with `hermes gateway run`",
    credentials: "give the relay the gateway's API_SERVER_KEY (api_key_env or api_key_file)",
    missing: "check base_url and profile; an older Hermes without runs needs `mode: chat`",
};

/// Why the settings make no agent.
#[derive(Debug, thiserror::Error)]
pub enum HermesError {
    /// No key is configured.
    #[error("hermes: no key; set API_SERVER_KEY to the gateway's own, or name its file in api_key_file")]
    NoKey,
    /// The profile cannot be used in a path.
    #[error("hermes: the profile may only contain letters, digits, `-` and `_`")]
    Profile,
    /// The address or the key cannot be used.
    #[error("hermes: {0}")]
    Http(#[from] EndpointError),
}

/// An agent that is a Hermes server.
#[derive(Debug)]
pub struct HermesAgent {
    settings: HermesSettings,
    http: AgentHttp,
    transcripts: TranscriptStore,
    background: BackgroundRequests,
}

impl HermesAgent {
    /// Creates an agent; the caller has read the key. Connects to nothing.
    pub fn new(
        settings: HermesSettings,
        key: Option<SecretString>,
        egress: &HttpEgress,
    ) -> Result<Self, HermesError> {
        let key = key.ok_or(HermesError::NoKey)?;
        let mut base_url = settings.base_url.trim_end_matches('/').to_owned();
        if let Some(profile) = &settings.profile {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if !(1..=64).contains(&profile.len()) || !profile.chars().all(plain) {
                return Err(HermesError::Profile);
            }
            base_url.push_str("/p/");
            base_url.push_str(profile);
        }
        let endpoint = Endpoint {
            base_url,
            key: Some(key),
            allow_plaintext: settings.allow_plaintext,
        };
        let http = AgentHttp::new(endpoint, egress)?;
        Ok(Self {
            background: BackgroundRequests::new(http.clone()),
            http,
            transcripts: TranscriptStore::new(Bounds {
                turns: settings.max_turns_kept,
                chars: settings.max_chars_kept,
            }),
            settings,
        })
    }

    async fn run_turn(&self, mut turn: Turn) -> TurnEnd {
        let left = match turn.resumed.take() {
            None => None,
            Some(resumed) => {
                let Some(saved) = SavedRun::read(&resumed.state) else {
                    let public = format!("Hermes cannot go on with this. {TELL_OPERATOR}");
                    let detail = "what was kept of the run cannot be read";
                    return TurnEnd::Failed(Failure::new(FailureClass::Lost, public, detail));
                };
                Some((saved, resumed))
            }
        };
        let prompt = match &left {
            Some((saved, _)) => saved.prompt.clone(),
            None => prompt(&turn),
        };
        let mut active = tokio::select! {
            biased;
            // Nothing was asked yet, and what was recalled is recalled again.
            () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
            active = self.transcripts.begin(&turn.session, &turn.events, &prompt) => active,
        };
        let mut reply = RunText::default();
        let end = if let Some((saved, resumed)) = left {
            let handle = self.background.take_up(saved.run.clone());
            let run = Run::new(self, &turn, handle, &mut reply);
            run.resume(&saved, resumed).await
        } else {
            match self.start_run(&turn, &active.transcript).await {
                Ok(handle) => Run::new(self, &turn, handle, &mut reply).drive().await,
                Err(end) => end,
            }
        };
        let mut text = reply.text();
        let extent = match &end {
            TurnEnd::Completed => {
                if text.trim().is_empty() {
                    turn.say_no_reply().await;
                }
                AnswerExtent::Whole
            }
            // What got no answer at all is not remembered, so that trying again does not ask twice.
            TurnEnd::Failed(_) if text.trim().is_empty() => return end,
            TurnEnd::Cancelled { .. } if text.trim().is_empty() => {
                STOPPED.clone_into(&mut text);
                AnswerExtent::Whole
            }
            _ => AnswerExtent::Interrupted,
        };
        active.transcript.answer(&text, extent);
        self.transcripts.finish(&turn.session, &turn.events, active).await;
        end
    }

    /// Starts a run.
    async fn start_run(&self, turn: &Turn, transcript: &Transcript) -> Result<RunHandle, TurnEnd> {
        let mut history: Vec<Value> = transcript
            .messages()
            .map(|(role, text)| json!({"role": role.as_str(), "content": text}))
            .collect();
        let input = history.pop().map(|mut last| last["content"].take());
        let session = session_name(&turn.session);
        let mut body = Map::new();
        body.insert("input".to_owned(), input.unwrap_or_default());
        body.insert("session_id".to_owned(), json!(session));
        if !history.is_empty() {
            body.insert("conversation_history".to_owned(), Value::Array(history));
        }
        let instructions = self.instructions(turn);
        if !instructions.is_empty() {
            body.insert("instructions".to_owned(), json!(instructions));
        }
        if let Some(model) = transcript.model.as_ref().or(self.settings.model.as_ref()) {
            body.insert("model".to_owned(), json!(model));
        }
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let start = || self.background.start(body.clone(), session.clone());
        self.post_until_accepted(turn, start).await?.map_err(|detail| {
            let public = format!("Hermes sent an unexpected response. {TELL_OPERATOR}");
            let detail = format!("{detail}; check base_url");
            TurnEnd::Failed(Failure::new(FailureClass::Protocol, public, detail))
        })
    }

    /// Posts until Hermes accepts. A busy or draining gateway is retried; a cancelled turn still waits a moment for the
    /// response, so that an accepted run can be stopped.
    async fn post_until_accepted<T, P>(&self, turn: &Turn, mut post: impl FnMut() -> P) -> Result<T, TurnEnd>
    where
        P: Future<Output = Result<Posted<T>, HttpError>>,
    {
        let give_up = Instant::now() + Duration::from_secs(self.settings.busy_wait_secs);
        loop {
            let posting = post();
            tokio::pin!(posting);
            let posted = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => {
                    match tokio::time::timeout(self.stop_grace(), posting).await {
                        Ok(Ok(Posted::Accepted(taken))) => return Ok(taken),
                        Ok(Ok(Posted::Rejected(_)) | Err(HttpError::Connect { .. })) => {
                            return Err(TurnEnd::Cancelled { confirmed: true });
                        }
                        Ok(Err(_)) | Err(_) => return Err(TurnEnd::Cancelled { confirmed: false }),
                    }
                }
                posted = &mut posting => posted,
            };
            let reply = match posted {
                Ok(Posted::Accepted(taken)) => return Ok(taken),
                Ok(Posted::Rejected(reply)) => reply,
                Err(error) => return Err(TurnEnd::Failed(FAILURES.transport(&error))),
            };
            let (status, wait) = (reply.status, reply.retry_after.unwrap_or(BUSY_WAIT));
            let refused = async {
                let failure = FAILURES.status(&self.http, *reply).await;
                if !matches!(status, 429 | 503) || Instant::now() + wait > give_up {
                    return Err(TurnEnd::Failed(failure));
                }
                tracing::debug!(status, "Hermes is busy; retrying");
                // A moment at least, so that a gateway that asks for none is not flooded.
                tokio::time::sleep(wait.max(Duration::from_millis(50))).await;
                Ok(())
            };
            tokio::select! {
                biased;
                // What was refused was not begun.
                () = turn.cancel.cancelled() => return Err(TurnEnd::Cancelled { confirmed: true }),
                waited = refused => waited?,
            }
        }
    }

    fn instructions(&self, turn: &Turn) -> String {
        let own = self.settings.instructions.as_deref().unwrap_or_default();
        turn_instructions(own, &turn.input.origin)
    }

    fn stop_grace(&self) -> Duration {
        Duration::from_secs(self.settings.stop_grace_secs)
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(self.settings.idle_timeout_secs)
    }

    /// Lists the models that the gateway serves, or chooses one.
    async fn choose(&self, turn: Turn, request: PreferenceRequest) -> PreferenceAnswer {
        if request.preference != Preference::Model {
            return PreferenceAnswer::Unsupported;
        }
        let asked = AgentRequest {
            path: "/v1/models",
            ..AgentRequest::default()
        };
        let reply = match self.http.send(asked, REQUEST_TIMEOUT).await {
            Ok(reply) => reply,
            Err(error) => return PreferenceAnswer::Failed(FAILURES.transport(&error)),
        };
        let body = match reply.status {
            404 | 405 => return PreferenceAnswer::Unsupported,
            _ if !reply.is_success() => {
                return PreferenceAnswer::Failed(FAILURES.status(&self.http, reply).await);
            }
            _ => reply.body(REQUEST_TIMEOUT).await,
        };
        let models = match body {
            Ok(body) => listed_models(&body),
            Err(error) => return PreferenceAnswer::Failed(FAILURES.transport(&error)),
        };
        let default = self.settings.model.as_deref();
        self.transcripts
            .choose_model(&turn, request, (models, default))
            .await
    }

    async fn check_status(&self) -> AgentHealth {
        let alive = AgentRequest {
            path: "/health",
            anonymous: true,
            ..AgentRequest::default()
        };
        match self.http.send(alive, REQUEST_TIMEOUT).await {
            Ok(reply) if reply.is_success() => {}
            Ok(reply) => return AgentHealth::Down(format!("its /health answers HTTP {}", reply.status)),
            Err(error @ HttpError::Connect { .. }) => {
                return AgentHealth::Down(format!("{error}; start it with `hermes gateway run`"));
            }
            Err(error) => return AgentHealth::Down(error.to_string()),
        }
        let capable = AgentRequest {
            path: "/v1/capabilities",
            ..AgentRequest::default()
        };
        let reply = match self.http.send(capable, REQUEST_TIMEOUT).await {
            Ok(reply) => reply,
            Err(error) => return AgentHealth::Down(error.to_string()),
        };
        match reply.status {
            404 | 405 => AgentHealth::Ready,
            _ if !reply.is_success() => AgentHealth::Down(FAILURES.status(&self.http, reply).await.detail),
            _ => match reply.short_body(REQUEST_TIMEOUT).await {
                Ok(body) => self.judge(&body),
                Err(error) => AgentHealth::Down(error.to_string()),
            },
        }
    }

    /// Whether the gateway supports the mode, according to its capabilities.
    fn judge(&self, capabilities: &[u8]) -> AgentHealth {
        let reply: Value = serde_json::from_slice(capabilities).unwrap_or_default();
        let features = reply.get("features").unwrap_or(&reply);
        let lacks = |name: &&str| features.get(*name) == Some(&Value::Bool(false));
        let needed = ["run_events_sse", "run_stop", "run_approval_response"];
        match needed.iter().find(|name| lacks(name)) {
            Some(name) if self.settings.mode == HermesMode::Runs => AgentHealth::Degraded(format!(
                "this Hermes lacks {name}; update it, or set `mode: chat`"
            )),
            _ => AgentHealth::Ready,
        }
    }
}

impl Agent for HermesAgent {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "hermes".into(),
            kind: "hermes",
            asks: self.settings.mode == HermesMode::Runs,
            resumes: self.settings.mode == HermesMode::Runs,
            remembers: true,
            ..AgentInfo::default()
        }
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        Box::pin(async {
            let checked = tokio::time::timeout(REQUEST_TIMEOUT, self.check_status()).await;
            checked.unwrap_or_else(|_| AgentHealth::Down("Hermes does not answer in time".to_owned()))
        })
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        match self.settings.mode {
            HermesMode::Runs => Box::pin(self.run_turn(turn)),
            HermesMode::Chat => Box::pin(self.chat_turn(turn)),
        }
    }

    fn prefer(&self, turn: Turn, request: PreferenceRequest) -> AgentFuture<'_, PreferenceAnswer> {
        Box::pin(self.choose(turn, request))
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        self.transcripts.forget(session);
        match self.settings.mode {
            HermesMode::Runs => Box::pin(async {}),
            HermesMode::Chat => Box::pin(self.delete_session(session)),
        }
    }

    fn reload(&self, session: &SessionKey) {
        self.transcripts.reload(session);
    }

    fn shutdown(&self) -> AgentFuture<'_, ()> {
        Box::pin(self.background.end())
    }
}

fn prompt(turn: &Turn) -> String {
    turn.input.as_prompt() + &attachment_lines(turn.input.attachments.iter(), FileAccess::Local)
}

/// Settings of an agent that is a Hermes gateway's API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HermesSettings {
    /// Address of the API server.
    pub base_url: String,
    /// Name of the variable that holds the key: the server's own `API_SERVER_KEY`.
    pub api_key_env: Option<String>,
    /// File that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// Let the conversation and the key cross the network unencrypted, to another machine.
    pub allow_plaintext: bool,
    /// How turns are run.
    pub mode: HermesMode,
    /// The Hermes profile that answers, where the gateway serves several.
    pub profile: Option<String>,
    /// The model's name; the gateway's own choice when not given.
    pub model: Option<String>,
    /// Instructions added to the agent's own.
    pub instructions: Option<String>,
    /// Maximum turns of a session that are sent again (`mode: runs`); older ones are dropped.
    pub max_turns_kept: usize,
    /// Maximum characters of a session that are sent again (`mode: runs`); older turns are dropped first.
    pub max_chars_kept: usize,
    /// Timeout for the first text in `mode: chat`.
    pub first_token_timeout_secs: u64,
    /// Idle timeout of a stream; Hermes sends something every 30 seconds.
    pub idle_timeout_secs: u64,
    /// How long a busy or restarting gateway is waited for before a turn fails.
    pub busy_wait_secs: u64,
    /// How long a stopped run may take to end; after that it counts as not known to have stopped.
    pub stop_grace_secs: u64,
    /// How long people may take over an approval: less than the gateway's own `approvals.timeout`. Where that is shorter,
    /// the gateway has denied by itself what is answered too late.
    pub approval_patience_secs: u64,
    /// How long a run is watched by asking for its status after its stream was lost.
    pub lost_stream_wait_secs: u64,
}

/// How turns are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HermesMode {
    /// As runs: with approvals, tool progress and a real stop; the conversation is kept here.
    #[default]
    Runs,
    /// As chat completions: Hermes keeps the conversation, and refuses whatever needs an approval.
    Chat,
}

impl Default for HermesSettings {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:8642".to_owned(),
            api_key_env: Some("API_SERVER_KEY".to_owned()),
            api_key_file: None,
            allow_plaintext: false,
            mode: HermesMode::Runs,
            profile: None,
            model: None,
            instructions: None,
            max_turns_kept: 40,
            max_chars_kept: 96_000,
            first_token_timeout_secs: 300,
            idle_timeout_secs: 120,
            busy_wait_secs: 60,
            stop_grace_secs: 5,
            approval_patience_secs: 55,
            lost_stream_wait_secs: 1800,
        }
    }
}

/// Longest name that Hermes takes.
const MAX_NAME: usize = 256;

/// The session's name at Hermes: its key where Hermes takes it, else a digest of it.
pub(super) fn session_name(key: &SessionKey) -> String {
    let key = key.as_str();
    if is_taken(key) {
        return key.to_owned();
    }
    format!("relay-{}", hex(&Sha256::digest(key.as_bytes())))
}

fn is_taken(key: &str) -> bool {
    let drive = matches!(key.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    // Visible ASCII only: a header carries nothing else safely.
    let plain = key.bytes().all(|byte| byte.is_ascii_graphic());
    !key.is_empty()
        && key.len() <= MAX_NAME
        && plain
        && !drive
        && !key.contains("..")
        && !key.contains(['/', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_hermes_refuses_become_digests() {
        let name = |key: &str| session_name(&SessionKey::from_text(key.to_owned()));
        assert_eq!(name("agent:main:discord:dm:42"), "agent:main:discord:dm:42");
        for odd in [
            "",
            "a/b",
            "a\\b",
            "a..b",
            "c:x",
            "a b",
            "a\r\nX: y",
            "grüße",
            &"x".repeat(257),
        ] {
            let named = name(odd);
            assert!(
                named.starts_with("relay-") && named.len() == 70,
                "{odd:?}: {named}"
            );
        }
        assert_ne!(name("a/b"), name("a/c"));
        assert_eq!(name("a/b"), name("a/b"));
    }
}
