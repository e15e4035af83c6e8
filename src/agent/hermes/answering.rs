//! Handing answers over to Hermes, so that a yes meets nothing but what people said it to.
//!
//! A yes is handed over only when the run's status says that Hermes waits, and that the stream was read as far as the
//! run has come: what it asked meanwhile is read first. A stream without times cannot say how far that is; there it has
//! to do that Hermes waits. Where it is not known any more which approvals Hermes waits for,
//! all are denied.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::SHORT;
use super::approvals::{Consent, Due};
use super::event::{Standing, standing_of};
use super::run::Run;
use crate::agent::AgentEvent;
use crate::agent::http::AgentRequest;

/// How much later than the event itself Hermes may note it in a run's status, in seconds.
const NOTED_WITHIN: f64 = 1.0;
/// How long the stream is read before the status is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

const TOO_LATE: &str = "Hermes no longer waits for this approval; it has denied it by itself.";
const NOT_HANDED_OVER: &str = "The answer could not be handed to Hermes, which denies what is not answered.";
const STRICTEST: &str = "Hermes asked for several approvals at once and cannot tell the answers apart, so none allows \
     more than the strictest of them.";
const ALL_DENIED: &str = "Hermes may have mistaken one approval for another, so everything it waited for was denied. \
     Please ask again for what is still wanted.";

/// What the status says about handing a yes over.
enum Outlook {
    /// Hermes waits, for nothing that was not read.
    Clear,
    /// The run has come further than its stream was read.
    Behind,
    /// Hermes does not wait for an approval.
    Void,
    /// Nothing could be seen.
    Blind,
}

impl Run<'_> {
    /// Hands over the answer that is due. Dropping this leaves it due, or unknown to the stop that follows.
    pub(super) async fn hand_over(&mut self, due: Due) {
        let mut consent = due.consent;
        if consent != Consent::Deny {
            match self.outlook(due).await {
                Outlook::Clear => {}
                Outlook::Behind => {
                    self.look_again = Some(Instant::now() + LOOK_AGAIN);
                    return;
                }
                // It is told all the same: Hermes and we have to agree on what is answered.
                Outlook::Void => consent = Consent::Deny,
                Outlook::Blind => return self.lose_step(due).await,
            }
        }
        let body = json!({"choice": consent.name()}).to_string();
        let posted = self.control("approval", body).await;
        let taken = matches!(posted, Ok(200..=299));
        if !taken && !matches!(posted, Ok(409)) {
            return self.lose_step(due).await;
        }
        self.approvals.handed_over(taken);
        if due.meant == Consent::Deny {
            return;
        }
        if !taken || due.is_late || consent != due.consent {
            self.tell(TOO_LATE).await;
        } else if consent < due.meant {
            self.tell(STRICTEST).await;
        }
    }

    /// Denies everything that Hermes waits for.
    pub(super) async fn deny_all(&mut self) {
        let body = json!({"choice": "deny", "all": true}).to_string();
        let posted = self.control("approval", body).await;
        let taken = matches!(posted, Ok(200..=299));
        // While Hermes cannot be told, nobody is asked: an answer might meet something else.
        self.out_of_step = !taken && !matches!(posted, Ok(409));
        if !self.out_of_step {
            self.approvals.denied_all(taken);
            if taken {
                self.tell(ALL_DENIED).await;
            }
        }
    }

    /// Whether the answer arrived is not known, so neither is what Hermes waits for.
    async fn lose_step(&mut self, due: Due) {
        tracing::debug!("an approval's answer was not taken; all are denied");
        if due.meant != Consent::Deny {
            self.tell(NOT_HANDED_OVER).await;
        }
        self.deny_all().await;
    }

    async fn outlook(&self, due: Due) -> Outlook {
        let path = format!("/v1/runs/{}", self.leash.id);
        let request = AgentRequest {
            path: &path,
            ..AgentRequest::default()
        };
        let body = match self.hermes.http.send(request, SHORT).await {
            Ok(reply) if reply.status == 404 => return Outlook::Void,
            Ok(reply) if reply.is_success() => reply.short_body(SHORT).await,
            Ok(_) | Err(_) => return Outlook::Blind,
        };
        let Some(standing) = body.ok().and_then(|body| standing_of(&body)) else {
            return Outlook::Blind;
        };
        match standing {
            Standing::Over => Outlook::Void,
            Standing::Running { .. } if due.is_told => Outlook::Void,
            Standing::Running { updated_at } | Standing::Waiting { updated_at } => {
                let is_behind = match (self.read_up_to, updated_at) {
                    (_, None) => false,
                    (None, Some(_)) => !matches!(standing, Standing::Waiting { .. }),
                    (Some(read), Some(updated_at)) => updated_at > read + NOTED_WITHIN,
                };
                if is_behind {
                    Outlook::Behind
                } else {
                    Outlook::Clear
                }
            }
        }
    }

    async fn tell(&self, words: &str) {
        self.turn.events.emit(AgentEvent::Notice(words.to_owned())).await;
    }
}
