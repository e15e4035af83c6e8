//! Gets a conversation its session: the one it has, a mended one, the one that was kept, or a new one.

use std::path::Path;
use std::sync::PoisonError;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::AcpAgent;
use super::outcome::OpenError;
use super::pool::Seat;
use super::process::Process;
use super::process::{Capabilities, Continue};
use super::rpc::CallError;
use super::sessions::{Bound, Kept, Standing, Step, is_id, step};
use super::settings::OptionValue;
use crate::agent::{AgentEvent, Turn};

/// A session that can be prompted.
#[derive(Debug)]
pub(super) struct Opened {
    /// The place in its process.
    pub(super) seat: Seat,
    /// The agent's name for it.
    pub(super) id: String,
    /// Whether it has just begun.
    pub(super) fresh: bool,
}

/// What became of a session that was to be continued.
#[derive(Debug, PartialEq, Eq)]
enum Continued {
    /// It goes on.
    Restored,
    /// The agent has made a new one instead, of this name.
    Other(String),
    /// The agent does not know it.
    Lost,
}

impl AcpAgent {
    /// Opens the turn's session. Dropping the future leaves what was known as it was.
    pub(super) async fn open(&self, turn: &Turn, cwd: &Path) -> Result<Opened, OpenError> {
        let mut standing = self.sessions().standing(&turn.session).0;
        loop {
            let alive: Option<Capabilities> = match &standing {
                Standing::Open(bound) | Standing::Tainted(bound) => self.pool.capabilities(bound.generation),
                Standing::Unknown | Standing::Anew | Standing::Resting { .. } => None,
            };
            let rest = |bound: Bound| Standing::Resting {
                id: bound.id,
                cwd: bound.cwd,
            };
            match step(&standing, cwd, alive.as_ref()) {
                Step::Recall => {
                    let kept = turn.events.load_state().await.unwrap_or_default();
                    standing = Kept::read(&kept, &self.name);
                }
                Step::Use(bound) => {
                    let seat = self.seat(Some(&bound)).await?;
                    if seat.process.generation == bound.generation {
                        return Ok(Opened {
                            seat,
                            id: bound.id,
                            fresh: false,
                        });
                    }
                    standing = rest(bound);
                }
                Step::Fork(bound) => {
                    let seat = self.seat(Some(&bound)).await?;
                    if seat.process.generation == bound.generation {
                        let params = json!({"sessionId": bound.id, "cwd": cwd, "mcpServers": []});
                        if let Ok(answer) = self.set_up(&seat.process, "session/fork", &params).await
                            && let Some(id) = session_id(&answer)
                        {
                            self.close(&bound);
                            return self.opened(turn, cwd, seat, id, &answer).await;
                        }
                        self.pool.retire(bound.generation);
                    }
                    standing = rest(bound);
                }
                Step::Replace(bound) => {
                    self.pool.retire(bound.generation);
                    standing = rest(bound);
                }
                Step::Continue(id) => return self.resume(turn, cwd, id).await,
                Step::Begin => {
                    let seat = self.seat(None).await?;
                    return self.begin(turn, cwd, seat).await;
                }
            }
        }
    }

    async fn seat(&self, wanted: Option<&Bound>) -> Result<Seat, OpenError> {
        let wanted = wanted.map(|bound| bound.generation);
        self.pool.seat(wanted).await.map_err(OpenError::Start)
    }

    /// Has a session continued; begins a new one when the agent cannot, and says so.
    async fn resume(&self, turn: &Turn, cwd: &Path, id: String) -> Result<Opened, OpenError> {
        let seat = self.seat(None).await?;
        if let Some(how) = seat.process.capabilities.continues() {
            let params = json!({"sessionId": id, "cwd": cwd, "mcpServers": []});
            let method = match how {
                Continue::Resume => "session/resume",
                Continue::Load => "session/load",
            };
            let replay = seat.process.routes.replay(&id);
            let answer = match self.set_up(&seat.process, method, &params).await {
                Ok(answer) => Some(answer),
                Err(OpenError::Refused(error)) if error.code != super::message::AUTH_REQUIRED => {
                    tracing::info!(agent = %self.name, %error, "the agent could not continue a session");
                    None
                }
                Err(error) => return Err(error),
            };
            let replayed = replay.replayed();
            drop(replay);
            if let Some(answer) = answer {
                match continued(&answer, &id, replayed, self.launch.quirks.doubtful_restore) {
                    Continued::Restored => return self.opened(turn, cwd, seat, id, &answer).await,
                    Continued::Other(other) => {
                        tell_lost(turn).await;
                        let mut opened = self.opened(turn, cwd, seat, other, &answer).await?;
                        opened.fresh = true;
                        return Ok(opened);
                    }
                    Continued::Lost => {}
                }
            }
        }
        tell_lost(turn).await;
        self.begin(turn, cwd, seat).await
    }

    async fn begin(&self, turn: &Turn, cwd: &Path, seat: Seat) -> Result<Opened, OpenError> {
        let params = json!({"cwd": cwd, "mcpServers": []});
        let answer = self.set_up(&seat.process, "session/new", &params).await?;
        let id = session_id(&answer).ok_or(OpenError::Nonsense("a new session has no usable name"))?;
        let mut opened = self.opened(turn, cwd, seat, id, &answer).await?;
        opened.fresh = true;
        Ok(opened)
    }

    /// Sets what is to be set, notes the session and keeps its name.
    async fn opened(
        &self,
        turn: &Turn,
        cwd: &Path,
        seat: Seat,
        id: String,
        answer: &Value,
    ) -> Result<Opened, OpenError> {
        if let Some(mode) = &self.settings.mode
            && answer["modes"]["currentModeId"].as_str() != Some(mode)
        {
            let params = json!({"sessionId": id, "modeId": mode});
            self.configure(
                &seat.process,
                "session/set_mode",
                &params,
                &format!("mode \"{mode}\""),
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
            let what = format!("option \"{option}\"");
            self.configure(&seat.process, "session/set_config_option", &params, &what)
                .await?;
        }
        let bound = Bound {
            generation: seat.process.generation,
            id: id.clone(),
            cwd: cwd.to_owned(),
        };
        self.sessions().note(&turn.session, Standing::Open(bound));
        let kept = Kept {
            backend: self.name.clone(),
            session_id: id.clone(),
            cwd: cwd.to_owned(),
        };
        turn.events.save_state(kept.write()).await;
        Ok(Opened {
            seat,
            id,
            fresh: false,
        })
    }

    async fn configure(
        &self,
        process: &Process,
        method: &str,
        params: &Value,
        what: &str,
    ) -> Result<(), OpenError> {
        match self.set_up(process, method, params).await {
            Ok(_) => Ok(()),
            Err(OpenError::Refused(error)) => Err(OpenError::Unsettable(format!(
                "the {what} cannot be set: {error}; correct the agent's settings"
            ))),
            Err(error) => Err(error),
        }
    }

    /// Asks for something that a session needs before its first prompt.
    async fn set_up(&self, process: &Process, method: &str, params: &Value) -> Result<Value, OpenError> {
        let limit = self.launch.start_timeout;
        match timeout(limit, process.peer().call(method, params)).await {
            Err(_) => {
                // One that does not do even that gets no other turn.
                self.pool.retire(process.generation);
                Err(OpenError::Slow(limit))
            }
            Ok(Err(CallError::Refused(error))) => Err(OpenError::Refused(error)),
            Ok(Err(CallError::Gone)) => Err(OpenError::Ended(process.obituary().await)),
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    pub(super) fn sessions(&self) -> std::sync::MutexGuard<'_, super::sessions::Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn tell_lost(turn: &Turn) {
    let told = "The agent no longer has this conversation; it begins anew.";
    turn.events.emit(AgentEvent::Notice(told.to_owned())).await;
}

fn session_id(answer: &Value) -> Option<String> {
    answer["sessionId"]
        .as_str()
        .filter(|id| is_id(id))
        .map(str::to_owned)
}

/// Whether a session really goes on. Some agents answer as if it did when they do not know it: then nothing was
/// replayed and nothing is said about it, or another session's name stands in the answer.
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
