//! A turn as a chat completion: Hermes keeps the conversation under the session's name.
//!
//! A turn is stopped by closing its connection; Hermes notices at its next write, so the stop is never confirmed.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::event::chat_progress;
use super::start::Posted;
use super::{FAILURES, HermesAgent, REQUEST_TIMEOUT, prompt, session_name};
use crate::agent::completion::{CompletionReader, StreamTimeouts};
use crate::agent::http::AgentRequest;
use crate::agent::{Turn, TurnEnd};
use crate::net::http::Body;
use crate::wire::SessionKey;

impl HermesAgent {
    pub(super) async fn chat_turn(&self, turn: Turn) -> TurnEnd {
        let mut messages = Vec::new();
        let instructions = self.instructions(&turn);
        if !instructions.is_empty() {
            messages.push(json!({"role": "system", "content": instructions}));
        }
        messages.push(json!({"role": "user", "content": prompt(&turn)}));
        let mut body = Map::new();
        body.insert("messages".to_owned(), Value::Array(messages));
        body.insert("stream".to_owned(), json!(true));
        let chosen = self
            .transcripts
            .recall(&turn.session, &turn.events)
            .await
            .transcript
            .model;
        if let Some(model) = chosen.as_ref().or(self.settings.model.as_ref()) {
            body.insert("model".to_owned(), json!(model));
        }
        let session = session_name(&turn.session);
        let headers = vec![
            ("x-hermes-session-id", session.as_str()),
            ("x-hermes-session-key", session.as_str()),
        ];
        let timeouts = StreamTimeouts {
            first: Duration::from_secs(self.settings.first_token_timeout_secs),
            idle: self.idle(),
        };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let post = async || {
            let request = AgentRequest {
                path: "/v1/chat/completions",
                body: Body::Json(body.clone()),
                headers: headers.clone(),
                anonymous: false,
            };
            let reply = self.http.send(request, timeouts.first).await?;
            Ok(if reply.is_success() {
                Posted::Accepted(reply)
            } else {
                Posted::Rejected(Box::new(reply))
            })
        };
        let reply = match self.post_until_accepted(&turn, post).await {
            Ok(reply) => reply,
            Err(end) => return end,
        };
        let mut reader = CompletionReader::new(&turn.events, timeouts, chat_progress);
        let end = tokio::select! {
            biased;
            // Dropping the stream closes its connection, which stops Hermes.
            () = turn.cancel.cancelled() => TurnEnd::Cancelled { confirmed: false },
            ended = reader.read(reply) => FAILURES.end(ended, &self.http),
        };
        if end == TurnEnd::Completed && reader.text.trim().is_empty() {
            turn.say_no_reply().await;
        }
        end
    }

    /// Deletes the session at Hermes; an unknown one is ignored.
    pub(super) async fn delete_session(&self, session: &SessionKey) {
        let name = session_name(session);
        let segment: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let path = format!("/api/sessions/{segment}");
        let request = AgentRequest {
            path: &path,
            body: Body::Delete,
            ..AgentRequest::default()
        };
        match self.http.send(request, REQUEST_TIMEOUT).await {
            Ok(reply) if reply.is_success() || reply.status == 404 => {}
            Ok(reply) => tracing::warn!(status = reply.status, "Hermes did not delete a session"),
            Err(error) => tracing::warn!(%error, "Hermes could not be asked to delete a session"),
        }
    }
}
