//! In front of the fake Bot API: the record of calls, limits on how often a bot may call, and what goes wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hermes_relay::dev::{ApiParams, BotApiHub, method_named};
use http::{HeaderValue, StatusCode, header};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::flood_control::FloodControl;
use super::rules::{Rule, Rules};
use super::server::cut;

/// More than a call may have.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// What becomes of a call that a rule matches.
#[derive(Clone, Debug)]
pub(crate) enum BotApiAnswer {
    /// Performed, answered after this long.
    Delay(Duration),
    /// Not performed: refused with a code and a description.
    Refuse {
        /// The code, which is the HTTP status, too.
        code: u16,
        /// The description, with its prefix.
        description: String,
        /// Seconds to wait, as a 429 names them.
        retry_after: Option<u64>,
    },
    /// Not performed: a page of HTML with status 502, as a front end answers.
    BadGateway,
    /// Performed, answered with something that is not JSON.
    Garbage,
    /// Not performed: the connection is closed before the body is read.
    CutBefore,
    /// Performed, and the connection is closed instead of an answer.
    CutAfter,
    /// Not performed and never answered.
    HangBefore,
    /// Performed and never answered.
    HangAfter,
}

impl BotApiAnswer {
    /// A refusal with code and description.
    pub(crate) fn refuse(code: u16, description: &str) -> Self {
        Self::Refuse {
            code,
            description: description.to_owned(),
            retry_after: None,
        }
    }

    /// A 429.
    pub(crate) fn too_many(retry_after: u64) -> Self {
        Self::Refuse {
            code: 429,
            description: format!("Too Many Requests: retry after {retry_after}"),
            retry_after: Some(retry_after),
        }
    }
}

/// A rule for calls; `file` is the download of a file.
pub(crate) type BotApiRule = Rule<BotApiAnswer>;

/// One call of the bot.
#[derive(Clone, Debug)]
pub(crate) struct BotApiCall {
    /// Its place among all calls since the start.
    pub(crate) sequence: u64,
    pub(crate) at: Instant,
    /// The method, as the documentation writes it; as it was written when there is none of this name.
    pub(crate) method: String,
    /// Its parameters. Files are objects with `file`, `bytes` and `mime`.
    pub(crate) params: Value,
    /// The status of the answer; `None` while there is none.
    pub(crate) status: Option<u16>,
    /// The answer, without the updates of `getUpdates`; `null` while there is none.
    pub(crate) answer: Value,
}

impl BotApiCall {
    /// The chat that it names.
    pub(crate) fn chat_id(&self) -> Option<i64> {
        match &self.params["chat_id"] {
            Value::Number(id) => id.as_i64(),
            Value::String(id) => id.parse().ok(),
            _ => None,
        }
    }

    /// A text parameter, or `""`.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.params[name].as_str().unwrap_or_default()
    }

    /// Whether it was answered with success.
    pub(crate) fn is_ok(&self) -> bool {
        self.status == Some(200) && self.answer["ok"] == true
    }
}

/// The script of one fake, and what came.
#[derive(Default)]
pub(crate) struct CallScript {
    pub(crate) rules: Rules<BotApiAnswer>,
    pub(crate) flood: FloodControl,
    pub(crate) is_revoked: bool,
    pub(crate) calls: Vec<BotApiCall>,
    pub(crate) counted: u64,
    /// Updates that were given to the bot, with their ids.
    delivered: VecDeque<(i64, Value)>,
    /// So many of them come again with the next answer.
    pub(crate) repeat: usize,
    /// So many answers with several updates are turned around.
    pub(crate) reverse: usize,
}

impl CallScript {
    fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.counted += 1;
        self.calls.push(BotApiCall {
            sequence: self.counted,
            at: Instant::now(),
            method: method.to_owned(),
            params,
            status: None,
            answer: Value::Null,
        });
        self.counted
    }

    fn end(&mut self, sequence: u64, status: u16, answer: Value) {
        let found = self.calls.iter_mut().rev().find(|call| call.sequence == sequence);
        if let Some(call) = found {
            call.status = Some(status);
            call.answer = answer;
        }
    }

    /// Updates that come again, if any are to.
    fn repeated(&self, batch: &[Value]) -> Vec<Value> {
        let known = self.delivered.len().saturating_sub(self.repeat);
        let again = self.delivered.range(known..);
        again
            .filter(|(id, _)| batch.iter().all(|update| update["update_id"] != *id))
            .map(|(_, update)| update.clone())
            .collect()
    }

    /// An answer with updates, as the script changes it.
    fn changed(&mut self, batch: Vec<Value>) -> Vec<Value> {
        let mut answer = self.repeated(&batch);
        self.repeat = 0;
        for update in batch {
            let id = update["update_id"].as_i64().unwrap_or(0);
            if self.delivered.iter().all(|(known, _)| *known != id) {
                self.delivered.push_back((id, update.clone()));
            }
            answer.push(update);
        }
        if answer.len() > 1 && self.reverse > 0 {
            self.reverse -= 1;
            answer.reverse();
        }
        answer
    }
}

/// What stands in front of the fake.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) hub: Arc<BotApiHub>,
    pub(crate) script: Arc<Mutex<CallScript>>,
    pub(crate) repeat_set: Arc<Notify>,
}

impl Front {
    pub(crate) fn lock(&self) -> MutexGuard<'_, CallScript> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the script and notifies those who wait.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut CallScript) -> T) -> T {
        let out = change(&mut self.lock());
        self.hub.changed.notify_waiters();
        out
    }

    /// Never answers; the server's end ends it.
    async fn hang(&self) -> Response {
        self.hub.stop.cancelled().await;
        cut()
    }
}

/// Answers a request: by a rule, else as the fake does.
pub(crate) async fn handle(State(front): State<Front>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let (token, method, file) = if let Some(rest) = path.strip_prefix("/file/bot") {
        let (token, file) = rest.split_once('/').unwrap_or((rest, ""));
        (token, "file", Some(file))
    } else if let Some((token, name)) = path.strip_prefix("/bot").and_then(|rest| rest.split_once('/')) {
        (token, name, None)
    } else {
        return next.run(request).await;
    };
    let (is_bots, known) = {
        let state = front.hub.lock();
        let is_bots = token.replace("%3A", ":").replace("%3a", ":") == state.settings.token.expose_secret();
        (is_bots, method_named(method, &state))
    };
    let method = known.unwrap_or(method);
    if front.lock().is_revoked {
        return front.change(|script| {
            let sequence = script.begin(method, json!({}));
            refuse(script, sequence, 401, "Unauthorized", None)
        });
    }
    if !is_bots {
        let sequence = front.change(|script| script.begin(method, json!({})));
        let response = next.run(request).await;
        return finish(&front, sequence, method, None, response).await;
    }
    let cuts = |answer: &BotApiAnswer| matches!(answer, BotApiAnswer::CutBefore);
    if front.lock().rules.take_early(method, cuts).is_some() {
        front.change(|script| script.begin(method, Value::Null));
        return cut();
    }
    let (head, body) = request.into_parts();
    let body = to_bytes(body, MAX_BODY_BYTES).await.unwrap_or_default();
    let (params, chat_id) = match file {
        Some(path) => (json!({ "file_path": path }), None),
        None => parameters(&head, &body),
    };
    let (sequence, rule) = front.change(|script| {
        let sequence = script.begin(method, params);
        (sequence, script.rules.take(method, chat_id))
    });
    match &rule {
        Some(BotApiAnswer::CutBefore) => return cut(),
        Some(BotApiAnswer::HangBefore) => return front.hang().await,
        Some(BotApiAnswer::BadGateway) => {
            front.change(|script| script.end(sequence, 502, Value::Null));
            return bad_gateway();
        }
        Some(BotApiAnswer::Refuse {
            code,
            description,
            retry_after,
        }) => return front.change(|script| refuse(script, sequence, *code, description, *retry_after)),
        _ => {}
    }
    let limited = chat_id.filter(|_| known.is_some()).and_then(|chat_id| {
        let now = Instant::now();
        front.lock().flood.admit(method, chat_id, now)
    });
    if let Some(seconds) = limited {
        let description = format!("Too Many Requests: retry after {seconds}");
        return front.change(|script| refuse(script, sequence, 429, &description, Some(seconds)));
    }
    let request = Request::from_parts(head, Body::from(body));
    let response = if method == "getUpdates" {
        updates(&front, request, next).await
    } else {
        next.run(request).await
    };
    finish(&front, sequence, method, rule, response).await
}

fn parameters(head: &http::request::Parts, body: &Bytes) -> (Value, Option<i64>) {
    let kind = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let params = ApiParams::read(head.uri.query().unwrap_or_default(), kind, body);
    let params = params.as_ref();
    (
        params.map(ApiParams::recorded).unwrap_or_default(),
        params.and_then(|params| params.integer("chat_id")),
    )
}

/// Polls; updates that are to come again end the wait.
async fn updates(front: &Front, request: Request, next: Next) -> Response {
    let again = async {
        loop {
            let set = front.repeat_set.notified();
            if !front.lock().repeated(&[]).is_empty() {
                return;
            }
            set.await;
        }
    };
    // What waits comes at once, with what comes again.
    let response = tokio::select! {
        biased;
        response = next.run(request) => Some(response),
        () = again => None,
    };
    let batch = match response {
        None => Vec::new(),
        Some(response) if !response.status().is_success() => return response,
        Some(response) => {
            let (head, mut json, body) = read(response).await;
            match json["result"].take() {
                Value::Array(batch) => batch,
                // A test may queue what this reader does not read.
                _ => return Response::from_parts(head, Body::from(body)),
            }
        }
    };
    let batch = front.lock().changed(batch);
    reply(StatusCode::OK, &json!({ "ok": true, "result": batch }))
}

async fn read(response: Response) -> (http::response::Parts, Value, Bytes) {
    let (head, body) = response.into_parts();
    let body = to_bytes(body, MAX_BODY_BYTES).await.unwrap_or_default();
    (head, serde_json::from_slice(&body).unwrap_or_default(), body)
}

/// Answers a call that the fake answered, as the rule says.
async fn finish(
    front: &Front,
    sequence: u64,
    method: &str,
    rule: Option<BotApiAnswer>,
    response: Response,
) -> Response {
    match rule {
        Some(BotApiAnswer::CutAfter) => return cut(),
        Some(BotApiAnswer::HangAfter) => return front.hang().await,
        Some(BotApiAnswer::Delay(delay)) => tokio::time::sleep(delay).await,
        _ => {}
    }
    let (head, json, body) = read(response).await;
    let recorded = match &json["result"] {
        _ if method == "file" && head.status.is_success() => json!({ "ok": true, "bytes": body.len() }),
        Value::Array(updates) if method == "getUpdates" => json!({ "ok": true, "updates": updates.len() }),
        _ => json,
    };
    front.change(|script| script.end(sequence, head.status.as_u16(), recorded));
    match rule {
        Some(BotApiAnswer::Garbage) => Response::new(Body::from("{\"ok\":tru")),
        _ => Response::from_parts(head, Body::from(body)),
    }
}

fn refuse(
    script: &mut CallScript,
    sequence: u64,
    code: u16,
    description: &str,
    retry_after: Option<u64>,
) -> Response {
    let mut body = json!({ "ok": false, "error_code": code, "description": description });
    if let Some(seconds) = retry_after {
        body["parameters"]["retry_after"] = json!(seconds);
    }
    script.end(sequence, code, body.clone());
    let mut response = reply(StatusCode::from_u16(code).unwrap(), &body);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn reply(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn bad_gateway() -> Response {
    let page = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1>\
                </center>\r\n<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>\r\n";
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let html = HeaderValue::from_static("text/html");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}
