//! A local Hermes, through its gateway's API server.
//!
//! In `mode: runs` a turn is a run: it streams, asks for approvals, and is really stopped; the conversation is kept here
//! and told with every run, because runs do not load it. In `mode: chat` a turn is a chat completion: Hermes keeps the
//! conversation under the session's name and refuses whatever needs an approval. A run that was accepted is never
//! started again.

mod answering;
mod approvals;
mod chat;
mod event;
mod name;
mod run;
mod said;
mod settings;
mod start;

use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

pub use settings::{HermesMode, HermesSettings};

use self::name::session_name;
use self::run::Run;
use self::said::Said;
use self::start::{Errands, Leash, Posted};
use super::briefing::{self, Reach};
use super::http::{AgentHttp, AgentRequest, Endpoint, EndpointError, FailureTexts};
use super::transcript::{Bounds, Extent, Transcript};
use super::transcripts::Transcripts;
use super::{Agent, AgentFuture, AgentHealth, AgentInfo, Failure, FailureClass, Turn, TurnEnd};
use crate::net::http::{HttpEgress, HttpError};
use crate::wire::SessionKey;

/// How long a short request may take.
const SHORT: Duration = Duration::from_secs(10);
/// What the conversation says of a turn that was stopped before a word. Joined with the next message instead, what was to
/// be done would be asked for again.
const STOPPED: &str = "[stopped by the user before it was answered]";
/// The wait before the next try of a busy gateway that does not say how long.
const BUSY_WAIT: Duration = Duration::from_secs(1);

const FAILURES: FailureTexts = FailureTexts {
    who: "Hermes",
    unreachable: "Start it with `hermes gateway run`, and try again.",
    credentials: "Give the relay the gateway's API_SERVER_KEY (api_key_env or api_key_file).",
    missing: "Check base_url and profile; an older Hermes without runs needs `mode: chat`.",
};

/// Why the settings make no agent.
#[derive(Debug, thiserror::Error)]
pub enum HermesError {
    /// There is no key.
    #[error("hermes: no key; set API_SERVER_KEY to the gateway's own, or name its file in api_key_file")]
    NoKey,
    /// The profile cannot stand in a path.
    #[error("hermes: the profile may only contain letters, digits, `-` and `_`")]
    Profile,
    /// The address or the key cannot be used.
    #[error("hermes: {0}")]
    Http(#[from] EndpointError),
}

/// The agent.
#[derive(Debug)]
pub struct HermesAgent {
    settings: HermesSettings,
    http: AgentHttp,
    transcripts: Transcripts,
    errands: Errands,
}

impl HermesAgent {
    /// An agent on `settings`, whose key the caller has read from where they say. Dials nothing yet.
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
            errands: Errands::new(http.clone()),
            http,
            transcripts: Transcripts::new(Bounds {
                turns: settings.max_turns_kept,
                chars: settings.max_chars_kept,
            }),
            settings,
        })
    }

    async fn run_turn(&self, turn: Turn) -> TurnEnd {
        let prompt = prompt(&turn);
        let mut loan = tokio::select! {
            biased;
            // Nothing was asked yet, and what was recalled is recalled again.
            () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
            loan = self.transcripts.hear(&turn.session, &turn.events, &prompt) => loan,
        };
        let mut said = Said::default();
        let end = match self.start_run(&turn, &loan.transcript).await {
            Ok(leash) => Run::new(self, &turn, leash, &mut said).drive().await,
            Err(end) => end,
        };
        let mut text = said.text();
        let extent = match &end {
            TurnEnd::Completed => Extent::Whole,
            // What got no answer at all is not remembered, so that trying again does not ask twice.
            TurnEnd::Failed(_) if text.trim().is_empty() => return end,
            TurnEnd::Cancelled { .. } if text.trim().is_empty() => {
                STOPPED.clone_into(&mut text);
                Extent::Whole
            }
            _ => Extent::Interrupted,
        };
        loan.transcript.answer(&text, extent);
        self.transcripts.settle(&turn.session, &turn.events, loan).await;
        end
    }

    /// Has a run accepted.
    async fn start_run(&self, turn: &Turn, transcript: &Transcript) -> Result<Leash, TurnEnd> {
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
        if let Some(model) = &self.settings.model {
            body.insert("model".to_owned(), json!(model));
        }
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let start = || self.errands.start(body.clone(), session.clone());
        self.until_taken(turn, start).await?.map_err(|detail| {
            let public = "Hermes accepted the message in a way that cannot be understood. Check base_url.";
            TurnEnd::Failed(Failure::new(FailureClass::Protocol, public, detail))
        })
    }

    /// Posts until Hermes takes it. A busy or draining gateway is waited for; a cancelled turn still waits a moment for
    /// the answer to what was posted, so that what was accepted can be stopped.
    async fn until_taken<T, P>(&self, turn: &Turn, mut post: impl FnMut() -> P) -> Result<T, TurnEnd>
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
                        Ok(Ok(Posted::Taken(taken))) => return Ok(taken),
                        Ok(Ok(Posted::Refused(_)) | Err(HttpError::Connect { .. })) => {
                            return Err(TurnEnd::Cancelled { confirmed: true });
                        }
                        Ok(Err(_)) | Err(_) => return Err(TurnEnd::Cancelled { confirmed: false }),
                    }
                }
                posted = &mut posting => posted,
            };
            let reply = match posted {
                Ok(Posted::Taken(taken)) => return Ok(taken),
                Ok(Posted::Refused(reply)) => reply,
                Err(error) => return Err(TurnEnd::Failed(FAILURES.transport(&error))),
            };
            let (status, wait) = (reply.status, reply.retry_after.unwrap_or(BUSY_WAIT));
            let refused = async {
                let failure = FAILURES.status(&self.http, *reply).await;
                if !matches!(status, 429 | 503) || Instant::now() + wait > give_up {
                    return Err(TurnEnd::Failed(failure));
                }
                tracing::debug!(status, "hermes is busy; the message is posted again");
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
        briefing::briefing(own, &turn.input.origin)
    }

    fn stop_grace(&self) -> Duration {
        Duration::from_secs(self.settings.stop_grace_secs)
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(self.settings.idle_timeout_secs)
    }

    async fn look(&self) -> AgentHealth {
        let alive = AgentRequest {
            path: "/health",
            anonymous: true,
            ..AgentRequest::default()
        };
        match self.http.send(alive, SHORT).await {
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
        let reply = match self.http.send(capable, SHORT).await {
            Ok(reply) => reply,
            Err(error) => return AgentHealth::Down(error.to_string()),
        };
        match reply.status {
            404 | 405 => AgentHealth::Ready,
            status if !reply.is_success() => {
                let failure = FAILURES.status(&self.http, reply).await;
                AgentHealth::Down(format!("{} (HTTP {status})", failure.public_text))
            }
            _ => match reply.short_body(SHORT).await {
                Ok(body) => self.judge(&body),
                Err(error) => AgentHealth::Down(error.to_string()),
            },
        }
    }

    /// Whether the gateway can do what the mode needs, as far as it says.
    fn judge(&self, capabilities: &[u8]) -> AgentHealth {
        let said: Value = serde_json::from_slice(capabilities).unwrap_or_default();
        let features = said.get("features").unwrap_or(&said);
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
            name: "hermes".to_owned(),
            kind: "hermes",
            asks: self.settings.mode == HermesMode::Runs,
            remembers: true,
            ..AgentInfo::default()
        }
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        Box::pin(async {
            let looked = tokio::time::timeout(SHORT, self.look()).await;
            looked.unwrap_or_else(|_| AgentHealth::Down("Hermes does not answer in time".to_owned()))
        })
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        match self.settings.mode {
            HermesMode::Runs => Box::pin(self.run_turn(turn)),
            HermesMode::Chat => Box::pin(self.chat_turn(turn)),
        }
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        self.transcripts.forget(session);
        match self.settings.mode {
            HermesMode::Runs => Box::pin(async {}),
            HermesMode::Chat => Box::pin(self.delete_session(session)),
        }
    }

    fn shutdown(&self) -> AgentFuture<'_, ()> {
        Box::pin(self.errands.end())
    }
}

fn prompt(turn: &Turn) -> String {
    turn.input.as_prompt() + &briefing::attachments(turn.input.attachments.iter(), Reach::Files)
}
