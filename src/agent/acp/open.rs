//! Opens a conversation's session: the existing, a repaired, the saved, or a new one.

use std::path::Path;
use std::sync::PoisonError;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::AcpAgent;
use super::outcome::SessionError;
use super::pool::ProcessLease;
use super::preferences::SessionOptions;
use super::process::Process;
use super::process::{Capabilities, Continue};
use super::rpc::CallError;
use super::sessions::{AgentSessionStatus, OpenStep, SavedSession, SessionRef, is_id, next_step};
use super::settings::OptionValue;
use crate::agent::{AgentEvent, Preference, Turn};
use crate::text::one_line;

/// A session that can be prompted.
#[derive(Debug)]
pub(super) struct OpenedSession {
    /// The lease of its process.
    pub(super) lease: ProcessLease,
    /// The agent's name for it.
    pub(super) id: String,
}

/// The result of continuing a session.
#[derive(Debug, PartialEq, Eq)]
enum Continued {
    /// The session continues.
    Restored,
    /// The agent created a new session with this id.
    Other(String),
    /// The agent does not know the session.
    Lost,
}

impl AcpAgent {
    /// Opens the turn's session. Cancel-safe: what was known stays.
    pub(super) async fn open(&self, turn: &Turn, cwd: &Path) -> Result<OpenedSession, SessionError> {
        let mut status = self.sessions().status(&turn.session).0;
        loop {
            let alive: Option<Capabilities> = match &status {
                AgentSessionStatus::Open(session) | AgentSessionStatus::Tainted(session) => {
                    self.pool.capabilities(session.generation)
                }
                AgentSessionStatus::Unknown
                | AgentSessionStatus::New
                | AgentSessionStatus::Detached { .. } => None,
            };
            let rest = |session: SessionRef| AgentSessionStatus::Detached {
                id: session.id,
                cwd: session.cwd,
            };
            match next_step(&status, cwd, alive.as_ref()) {
                OpenStep::LoadState => {
                    let kept = turn.events.load_state().await.unwrap_or_default();
                    let chosen;
                    (status, chosen) = SavedSession::read(&kept, &self.name);
                    self.sessions().set_chosen(&turn.session, chosen);
                }
                OpenStep::Use(session) => {
                    let lease = self.acquire(Some(&session)).await?;
                    if lease.process.generation == session.generation {
                        return Ok(OpenedSession {
                            lease,
                            id: session.id,
                        });
                    }
                    status = rest(session);
                }
                OpenStep::Fork(session) => {
                    let lease = self.acquire(Some(&session)).await?;
                    if lease.process.generation == session.generation {
                        let params = json!({"sessionId": session.id, "cwd": cwd, "mcpServers": []});
                        if let Ok(answer) = self.set_up(&lease.process, "session/fork", &params).await
                            && let Some(id) = session_id(&answer)
                        {
                            self.close(&session);
                            return self.opened(turn, cwd, lease, id, &answer).await;
                        }
                        self.pool.retire(session.generation);
                    }
                    status = rest(session);
                }
                OpenStep::Replace(session) => {
                    self.pool.retire(session.generation);
                    status = rest(session);
                }
                OpenStep::Resume(id) => return self.resume(turn, cwd, id).await,
                OpenStep::New => {
                    let lease = self.acquire(None).await?;
                    return self.begin(turn, cwd, lease).await;
                }
            }
        }
    }

    pub(super) async fn acquire(&self, wanted: Option<&SessionRef>) -> Result<ProcessLease, SessionError> {
        let wanted = wanted.map(|session| session.generation);
        self.pool.acquire(wanted).await.map_err(SessionError::Start)
    }

    /// Resumes a session; starts a new one with a notice when the agent cannot.
    async fn resume(&self, turn: &Turn, cwd: &Path, id: String) -> Result<OpenedSession, SessionError> {
        let lease = self.acquire(None).await?;
        if let Some(how) = lease.process.capabilities.continues() {
            let params = json!({"sessionId": id, "cwd": cwd, "mcpServers": []});
            let method = match how {
                Continue::Resume => "session/resume",
                Continue::Load => "session/load",
            };
            let replay = lease.process.routes.replay(&id);
            let was_slow = self.sessions().set_slow(&turn.session, false);
            let answer = match self.set_up(&lease.process, method, &params).await {
                Ok(answer) => Some(answer),
                Err(error) if error.is_lost_session(was_slow) => {
                    tracing::info!(agent = %self.name, ?error, "the agent could not resume a session");
                    None
                }
                Err(error) => {
                    // It is asked once more, with the next turn.
                    let is_slow = matches!(error, SessionError::TimedOut(_) | SessionError::MaybeUnread);
                    self.sessions().set_slow(&turn.session, is_slow);
                    return Err(error);
                }
            };
            let replayed = replay.replayed();
            drop(replay);
            if let Some(answer) = answer {
                match continued(&answer, &id, replayed, self.launch.quirks.doubtful_restore) {
                    Continued::Restored => return self.opened(turn, cwd, lease, id, &answer).await,
                    Continued::Other(other) => {
                        notify_lost(turn).await;
                        let opened = self.opened(turn, cwd, lease, other, &answer).await?;
                        self.sessions().set_fresh(&turn.session, true);
                        return Ok(opened);
                    }
                    Continued::Lost => {}
                }
            }
        }
        let lease = if self.pool.alive(lease.process.generation).is_some() {
            lease
        } else {
            // A process that did not answer was retired.
            drop(lease);
            self.acquire(None).await?
        };
        let opened = self.begin(turn, cwd, lease).await?;
        notify_lost(turn).await;
        Ok(opened)
    }

    async fn begin(
        &self,
        turn: &Turn,
        cwd: &Path,
        lease: ProcessLease,
    ) -> Result<OpenedSession, SessionError> {
        let params = json!({"cwd": cwd, "mcpServers": []});
        let answer = self.set_up(&lease.process, "session/new", &params).await?;
        let id =
            session_id(&answer).ok_or(SessionError::InvalidResponse("a new session has no usable name"))?;
        let opened = self.opened(turn, cwd, lease, id, &answer).await?;
        self.sessions().set_fresh(&turn.session, true);
        Ok(opened)
    }

    /// Applies mode and options, records the session and saves its id.
    async fn opened(
        &self,
        turn: &Turn,
        cwd: &Path,
        lease: ProcessLease,
        id: String,
        answer: &Value,
    ) -> Result<OpenedSession, SessionError> {
        if let Some(mode) = &self.settings.mode
            && answer["modes"]["currentModeId"].as_str() != Some(mode)
        {
            let params = json!({"sessionId": id, "modeId": mode});
            self.configure(
                &lease.process,
                "session/set_mode",
                &params,
                &format!("mode `{mode}`"),
            )
            .await?;
        }
        for (option, value) in &self.settings.options {
            let mut params = json!({"sessionId": id, "configId": option});
            match value {
                OptionValue::Flag(flag) => {
                    params["type"] = json!("boolean");
                    params["value"] = json!(flag);
                }
                OptionValue::Value(value) => params["value"] = json!(value),
            }
            let what = format!("option `{option}`");
            self.configure(&lease.process, "session/set_config_option", &params, &what)
                .await?;
        }
        lease
            .process
            .routes
            .set_options(&id, SessionOptions::read(answer));
        self.choose_again(turn, &lease.process, &id).await;
        let session = SessionRef {
            generation: lease.process.generation,
            id: id.clone(),
            cwd: cwd.to_owned(),
        };
        self.sessions()
            .set_status(&turn.session, AgentSessionStatus::Open(session));
        self.save(turn, &id, cwd).await;
        Ok(OpenedSession { lease, id })
    }

    /// Saves which session a conversation has, and what was chosen in it.
    pub(super) async fn save(&self, turn: &Turn, id: &str, cwd: &Path) {
        let kept = SavedSession {
            backend: self.name.clone(),
            session_id: id.to_owned(),
            cwd: cwd.to_owned(),
            chosen: self.sessions().chosen(&turn.session),
        };
        turn.events.save_state(kept.write()).await;
    }

    /// Sets what people chose in the conversation: the agent may not have kept it. What it does not offer any more is
    /// forgotten, with a notice.
    async fn choose_again(&self, turn: &Turn, process: &Process, id: &str) {
        for preference in [Preference::Model, Preference::Mode] {
            let mut chosen = self.sessions().chosen(&turn.session);
            let Some(choice) = chosen.get(preference).map(str::to_owned) else {
                continue;
            };
            let mut options = process.routes.options(id);
            let selector = options.selector(preference);
            if selector
                .as_ref()
                .is_some_and(|selector| selector.offer.current.as_ref() == Some(&choice))
            {
                continue;
            }
            let mut is_set = false;
            if let Some(selector) = selector {
                let (method, params) = selector.request(id, &choice);
                if let Ok(answer) = self.set_up(process, method, &params).await {
                    is_set = options.confirm(&selector, &answer, &choice);
                    process.routes.set_options(id, options);
                }
            }
            if !is_set {
                chosen.set(preference, None);
                self.sessions().set_chosen(&turn.session, chosen);
                let name = preference.name();
                let notice = format!("The agent no longer offers the {name} {}.", one_line(&choice, 80));
                turn.events.emit(AgentEvent::Notice(notice)).await;
            }
        }
    }

    async fn configure(
        &self,
        process: &Process,
        method: &str,
        params: &Value,
        what: &str,
    ) -> Result<(), SessionError> {
        match self.set_up(process, method, params).await {
            Ok(_) => Ok(()),
            Err(SessionError::Refused(error)) => Err(SessionError::Configuration(format!(
                "the {what} cannot be set: {error}; correct the agent's settings"
            ))),
            Err(error) => Err(error),
        }
    }

    /// Sends a setup request.
    pub(super) async fn set_up(
        &self,
        process: &Process,
        method: &str,
        params: &Value,
    ) -> Result<Value, SessionError> {
        let limit = self.launch.start_timeout;
        match timeout(limit, process.peer().call(method, params)).await {
            Err(_) => {
                // A process that does not respond gets no further turn.
                self.pool.retire(process.generation);
                Err(SessionError::TimedOut(limit))
            }
            Ok(Err(CallError::Refused(error))) => Err(SessionError::Refused(error)),
            Ok(Err(CallError::Unread)) => Err(SessionError::Unread),
            Ok(Err(CallError::MaybeUnread)) => Err(SessionError::MaybeUnread),
            Ok(Err(CallError::Gone)) => Err(SessionError::Ended(process.exit_report().await)),
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    pub(super) fn sessions(&self) -> std::sync::MutexGuard<'_, super::sessions::AgentSessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn notify_lost(turn: &Turn) {
    let notice = "The agent no longer has this conversation; it starts a new one.";
    turn.events.emit(AgentEvent::Notice(notice.to_owned())).await;
}

fn session_id(answer: &Value) -> Option<String> {
    answer["sessionId"]
        .as_str()
        .filter(|id| is_id(id))
        .map(str::to_owned)
}

/// Whether a session was really resumed. Some agents report success for an unknown session: then nothing is replayed, no
/// modes or options are returned, or another id is.
fn continued(answer: &Value, asked: &str, replayed: u64, doubtful: bool) -> Continued {
    let provenance = &answer["_meta"]["hermes"]["sessionProvenance"]["acpSessionId"];
    let named = session_id(answer).or_else(|| provenance.as_str().filter(|id| is_id(id)).map(str::to_owned));
    match named {
        Some(other) if other != asked => Continued::Other(other),
        _ if !doubtful => Continued::Restored,
        _ if replayed > 0 || !answer["modes"].is_null() || !answer["configOptions"].is_null() => {
            Continued::Restored
        }
        _ => Continued::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_goes_on_only_when_something_shows_it() {
        let empty = json!({});
        assert_eq!(continued(&empty, "a", 0, false), Continued::Restored);
        assert_eq!(continued(&Value::Null, "a", 0, false), Continued::Restored);
        assert_eq!(continued(&empty, "a", 0, true), Continued::Lost);
        assert_eq!(continued(&empty, "a", 1, true), Continued::Restored);
        assert_eq!(
            continued(&json!({"modes": {}}), "a", 0, true),
            Continued::Restored
        );
        let other = json!({"modes": {}, "_meta": {"hermes": {"sessionProvenance": {"acpSessionId": "b"}}}});
        assert_eq!(continued(&other, "a", 3, true), Continued::Other("b".to_owned()));
        assert_eq!(continued(&other, "b", 3, true), Continued::Restored);
        assert_eq!(
            continued(&json!({"sessionId": "b"}), "a", 1, false),
            Continued::Other("b".to_owned())
        );
    }
}
