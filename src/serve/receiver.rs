//! `/v1/agents`: other programs hand something to this relay's agents, with the wire of the `AgentConnector` contract.
//!
//! The exact bytes of a request are verified, in constant time, before they are parsed. A receipt means that the item is in the
//! journal; the same `dispatch_id` again gets the same receipt. The work that a stranger can cause is bounded: a rate limit of their
//! own, and no body is awaited whose headers already fail.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

use super::clients::{ClientPlace, TooBusy};
use super::endpoint::{BodyError, RateGate, bearer, read_body, reply, retry_after, too_busy};
use crate::agent_connector::contract::{
    AgentAddress, DeliveryPayload, DeliveryReceipt, MAX_ID_BYTES, TriggerKind, WakeOpts,
};
use crate::agent_connector::{WakeTurnError, descriptor, wake_payload, wake_receipt};
use crate::config::ReceiverConfig;
use crate::config::secret::{self, SecretError};
use crate::relay::{HandedItem, NotRunning, RelayHandle, SubmitError};
use crate::text::is_unprintable;
use crate::wire::sign_bytes;

/// Where the routes are.
const PATH: &str = "/v1/agents";
/// What only the body of a delivery has.
const DELIVERY_KEYS: [&str; 4] = ["kind", "content", "prompt", "meta"];
/// Largest body that is read.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Requests that may come together.
const MAX_BURST: u16 = 1000;
/// Timeout for the body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the relay to say what it knows of an agent.
const RELAY_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for the journal to store an item.
const HAND_TIMEOUT: Duration = Duration::from_secs(8);
/// Retry times that a response asks for.
const RETRY_SOON: Duration = Duration::from_secs(10);
const RETRY_FAILED: Duration = Duration::from_secs(30);

/// The response to a request that is not taken.
type Refused = Box<Response<String>>;

/// Whether a path belongs to the receiver.
pub(super) fn is_path(path: &str) -> bool {
    path.strip_prefix(PATH)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The statuses that requests are answered with.
const STATUSES: [(&str, StatusCode); 8] = [
    ("200", StatusCode::OK),
    ("400", StatusCode::BAD_REQUEST),
    ("401", StatusCode::UNAUTHORIZED),
    ("404", StatusCode::NOT_FOUND),
    ("405", StatusCode::METHOD_NOT_ALLOWED),
    ("413", StatusCode::PAYLOAD_TOO_LARGE),
    ("429", StatusCode::TOO_MANY_REQUESTS),
    ("503", StatusCode::SERVICE_UNAVAILABLE),
];

/// How many requests were answered with each of [`STATUSES`].
#[derive(Debug, Default)]
pub(super) struct AnswerCounts([AtomicU64; STATUSES.len()]);

impl AnswerCounts {
    fn count(&self, answered: StatusCode) {
        let place = STATUSES.iter().position(|(_, status)| *status == answered);
        if let Some(count) = place.and_then(|place| self.0.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts with their statuses.
    pub(super) fn by_status(&self) -> [(&'static str, u64); STATUSES.len()] {
        std::array::from_fn(|place| (STATUSES[place].0, self.0[place].load(Ordering::Relaxed)))
    }
}

/// Takes items and wakes for the relay's agents.
#[derive(Debug)]
pub(super) struct Receiver {
    handle: RelayHandle,
    hmac_secret: Option<SecretString>,
    bearer: Option<SecretString>,
    gate: RateGate,
    counts: AnswerCounts,
}

/// What is asked, and of which agent.
#[derive(Debug, PartialEq, Eq)]
enum ReceiverRoute {
    List,
    Deliver(String),
    Wake(String),
    Status(String),
}

impl ReceiverRoute {
    fn parse(path: &str) -> Option<Self> {
        let rest = path.strip_prefix(PATH)?;
        if rest.is_empty() {
            return Some(Self::List);
        }
        let (agent, what) = rest.strip_prefix('/')?.split_once('/')?;
        let agent = percent_decoded(agent).filter(|agent| !agent.is_empty())?;
        match what {
            "deliver" => Some(Self::Deliver(agent)),
            "wake" => Some(Self::Wake(agent)),
            "status" => Some(Self::Status(agent)),
            _ => None,
        }
    }

    fn method(&self) -> Method {
        match self {
            Self::List | Self::Status(_) => Method::GET,
            Self::Deliver(_) | Self::Wake(_) => Method::POST,
        }
    }
}

/// The text of a path segment; `None` if it is not encoded text.
fn percent_decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

impl Receiver {
    /// A receiver for the agents of this relay; reads its secrets.
    pub(super) fn new(settings: &ReceiverConfig, handle: RelayHandle) -> Result<Self, SecretError> {
        let read = |file: Option<&Path>| file.map(secret::read).transpose();
        Ok(Self {
            handle,
            hmac_secret: read(settings.hmac_secret_file.as_deref())?,
            bearer: read(settings.bearer_file.as_deref())?,
            gate: RateGate::new(MAX_BURST, Instant::now()),
            counts: AnswerCounts::default(),
        })
    }

    /// How requests were answered.
    pub(super) fn counts(&self) -> &AnswerCounts {
        &self.counts
    }

    pub(super) async fn respond<B: Body + Unpin>(
        &self,
        request: Request<B>,
        place: &ClientPlace,
    ) -> Response<String> {
        let answer = self.answer(request, place).await;
        let response = answer.unwrap_or_else(|refused| *refused);
        self.counts.count(response.status());
        response
    }

    async fn answer<B: Body + Unpin>(
        &self,
        request: Request<B>,
        place: &ClientPlace,
    ) -> Result<Response<String>, Refused> {
        let limited = |wait| later(StatusCode::TOO_MANY_REQUESTS, "too many requests", wait);
        let (route, body) = self.authenticated(request).await.map_err(|refused| {
            let admitted = self.gate.admit_stranger(Instant::now());
            admitted.map_or_else(limited, |()| refused)
        })?;
        self.gate.admit_known(Instant::now()).map_err(limited)?;
        place.work().map_err(|TooBusy| Box::new(too_busy()))?;
        match route {
            ReceiverRoute::List => self.list().await,
            ReceiverRoute::Status(agent) => {
                let status = self.activity(&agent).await?;
                Ok(reply(
                    StatusCode::OK,
                    &json!({"agent_id": agent, "status": status}),
                ))
            }
            ReceiverRoute::Deliver(agent) => {
                self.activity(&agent).await?;
                self.deliver(agent, &body).await
            }
            ReceiverRoute::Wake(agent) => {
                self.activity(&agent).await?;
                self.wake(agent, &body).await
            }
        }
    }

    /// The route and the body of a request that proves to come from somebody who knows all that is configured.
    async fn authenticated<B: Body + Unpin>(
        &self,
        request: Request<B>,
    ) -> Result<(ReceiverRoute, Vec<u8>), Refused> {
        let (head, body) = request.into_parts();
        let route = ReceiverRoute::parse(head.uri.path());
        let route = route.ok_or_else(|| refusal(StatusCode::NOT_FOUND, "not found"))?;
        if head.method != route.method() {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here");
            let allowed = HeaderValue::from_static(if route.method() == Method::GET {
                "GET"
            } else {
                "POST"
            });
            response.headers_mut().insert(ALLOW, allowed);
            return Err(response);
        }
        if head.method == Method::GET {
            let may_read = self.may_read(&head.headers);
            return may_read
                .then(|| (route, Vec::new()))
                .ok_or_else(|| self.unauthorised());
        }
        Ok((route, self.verified_body(&head.headers, body).await?))
    }

    async fn verified_body<B: Body + Unpin>(&self, headers: &HeaderMap, body: B) -> Result<Vec<u8>, Refused> {
        let has_key = self.bearer.is_none() || self.has_key(headers);
        let may_be_signed = self.hmac_secret.is_none() || shown_signature(headers).is_some();
        if !has_key || !may_be_signed {
            return Err(self.unauthorised());
        }
        let body = read_body(body, MAX_BODY_BYTES, BODY_TIMEOUT).await;
        let body = body.map_err(|error| match error {
            BodyError::TooLarge => {
                let what = format!("the body is larger than {MAX_BODY_BYTES} bytes");
                refusal(StatusCode::PAYLOAD_TOO_LARGE, &what)
            }
            BodyError::Broken => refusal(
                StatusCode::BAD_REQUEST,
                "the body did not arrive in full or in time",
            ),
        })?;
        if self.hmac_secret.is_some() && !self.is_signed(headers, &body) {
            return Err(self.unauthorised());
        }
        Ok(body)
    }

    /// Whether a request without a body may be answered.
    fn may_read(&self, headers: &HeaderMap) -> bool {
        if self.bearer.is_some() {
            self.has_key(headers)
        } else {
            self.is_signed(headers, b"")
        }
    }

    fn has_key(&self, headers: &HeaderMap) -> bool {
        let shown = bearer(headers).unwrap_or_default();
        self.bearer
            .as_ref()
            .is_some_and(|key| key.expose_secret().as_bytes().ct_eq(shown.as_bytes()).into())
    }

    fn is_signed(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let (Some(shown), Some(secret)) = (shown_signature(headers), &self.hmac_secret) else {
            return false;
        };
        let wanted = sign_bytes(body, secret.expose_secret());
        wanted.as_bytes().ct_eq(shown).into()
    }

    fn unauthorised(&self) -> Refused {
        tracing::warn!("refused a request for an agent: its key or its signature is wrong or missing");
        let what = match (&self.bearer, &self.hmac_secret) {
            (Some(_), Some(_)) => "the bearer key or `X-Signature` is wrong or missing",
            (Some(_), None) => "the bearer key is wrong or missing",
            _ => "`X-Signature` is wrong or missing",
        };
        let mut response = refusal(StatusCode::UNAUTHORIZED, what);
        if self.bearer.is_some() {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }

    /// All agents.
    async fn list(&self) -> Result<Response<String>, Refused> {
        let names = timeout(RELAY_TIMEOUT, self.handle.agent_names()).await;
        let names = names.ok().and_then(Result::ok).ok_or_else(not_running)?;
        let agents: Vec<_> = names.iter().map(|name| descriptor(name, true)).collect();
        Ok(reply(StatusCode::OK, &json!({"agents": agents})))
    }

    /// Whether an agent works; refused if there is no such agent.
    async fn activity(&self, agent: &str) -> Result<Value, Refused> {
        let activity = timeout(RELAY_TIMEOUT, self.handle.activity(agent)).await;
        let activity = activity.ok().and_then(Result::ok).ok_or_else(not_running)?;
        let activity = activity.ok_or_else(unknown_agent)?;
        Ok(serde_json::to_value(activity).unwrap_or_default())
    }

    async fn deliver(&self, agent: String, body: &[u8]) -> Result<Response<String>, Refused> {
        let body = object(body)?;
        let session = session(&body, &agent)?;
        let payload = DeliveryPayload::from_body(Value::Object(body));
        let payload = payload.map_err(|error| malformed(&error.to_string()))?;
        let receipt = self.hand(agent, session, payload, false).await?;
        let receipt = serde_json::to_value(receipt).unwrap_or_default();
        Ok(reply(StatusCode::OK, &receipt))
    }

    async fn wake(&self, agent: String, body: &[u8]) -> Result<Response<String>, Refused> {
        let body = object(body)?;
        if let Some(key) = DELIVERY_KEYS.into_iter().find(|key| body.contains_key(*key)) {
            // The signature does not cover the path: whoever saw a delivery could post it here.
            let what = format!("`{key}` belongs to a delivery; a wake has a `context`");
            return Err(malformed(&what));
        }
        let session = session(&body, &agent)?;
        let opts = WakeOpts {
            context: text(&body, "context")?.map(str::to_owned),
            when: when(&body)?,
            ..WakeOpts::default()
        };
        let payload = wake_payload(&opts, TriggerKind::Webhook).map_err(|error| match error {
            WakeTurnError::Later => malformed(&error.to_string()),
            WakeTurnError::NoId(_) => {
                later(StatusCode::SERVICE_UNAVAILABLE, &error.to_string(), RETRY_FAILED)
            }
        })?;
        let receipt = wake_receipt(self.hand(agent, session, payload, true).await?);
        let receipt = serde_json::to_value(receipt).unwrap_or_default();
        Ok(reply(StatusCode::OK, &receipt))
    }

    async fn hand(
        &self,
        agent: String,
        session: Option<String>,
        payload: DeliveryPayload,
        wake: bool,
    ) -> Result<DeliveryReceipt, Refused> {
        let item = HandedItem {
            agent,
            session,
            payload,
            wake,
        };
        let unavailable = |why: &str, wait| later(StatusCode::SERVICE_UNAVAILABLE, why, wait);
        let Ok(handed) = timeout(HAND_TIMEOUT, self.handle.submit(item)).await else {
            let what = "the journal has not stored it yet; send it again";
            return Err(unavailable(what, RETRY_FAILED));
        };
        handed.map_err(|refused| {
            let why = refused.to_string();
            match refused {
                SubmitError::UnknownAgent => unknown_agent(),
                SubmitError::Full => later(StatusCode::TOO_MANY_REQUESTS, &why, RETRY_SOON),
                SubmitError::OtherAgent => malformed(&why),
                SubmitError::TooLarge => refusal(StatusCode::PAYLOAD_TOO_LARGE, &why),
                SubmitError::Draining => unavailable(&why, RETRY_SOON),
                SubmitError::NotStored | SubmitError::NoAnswer => unavailable(&why, RETRY_FAILED),
                SubmitError::NotRunning(NotRunning) => not_running(),
            }
        })
    }
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Refused> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(malformed("the body is not a JSON object")),
        Err(error) => Err(malformed(&format!("the body is not JSON: {error}"))),
    }
}

/// The hex digits of the one `X-Signature` header, if it is formed like a signature.
fn shown_signature(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all("x-signature").iter();
    let digits = values.next()?.as_bytes().strip_prefix(b"sha256=")?;
    let is_hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    (values.next().is_none() && digits.len() == 64 && digits.iter().all(is_hex)).then_some(digits)
}

/// A field that is a text if it is there.
fn text<'b>(body: &'b Map<String, Value>, key: &str) -> Result<Option<&'b str>, Refused> {
    match body.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(malformed(&format!("`{key}` is not a text"))),
    }
}

/// The session that a body names for the agent in the path.
fn session(body: &Map<String, Value>, agent: &str) -> Result<Option<String>, Refused> {
    let address = AgentAddress::parse(text(body, "agent_id")?.unwrap_or(agent));
    if address.agent != agent {
        return Err(malformed("`agent_id` names another agent than the path"));
    }
    let session = address.with_session(text(body, "session_id")?).session;
    let is_valid = |session: &String| session.len() <= MAX_ID_BYTES && !session.chars().any(is_unprintable);
    if !session.as_ref().is_none_or(is_valid) {
        let what = format!("the session is longer than {MAX_ID_BYTES} bytes or has control characters");
        return Err(malformed(&what));
    }
    Ok(session)
}

/// When a wake is wanted; `None` for immediately.
fn when(body: &Map<String, Value>) -> Result<Option<i64>, Refused> {
    match body.get("when") {
        None => Ok(None),
        Some(Value::String(when)) if when == "immediate" => Ok(None),
        Some(when) => when
            .as_i64()
            .map(Some)
            .ok_or_else(|| malformed("`when` is neither `immediate` nor a time in Unix milliseconds")),
    }
}

fn refusal(status: StatusCode, error: &str) -> Refused {
    Box::new(reply(status, &json!({"error": error})))
}

fn malformed(error: &str) -> Refused {
    refusal(StatusCode::BAD_REQUEST, error)
}

fn unknown_agent() -> Refused {
    refusal(StatusCode::NOT_FOUND, "there is no such agent")
}

fn later(status: StatusCode, error: &str, wait: Duration) -> Refused {
    Box::new(retry_after(*refusal(status, error), wait))
}

fn not_running() -> Refused {
    later(
        StatusCode::SERVICE_UNAVAILABLE,
        "the relay does not respond; it is starting, shutting down or stuck",
        RETRY_SOON,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_the_bare_agent_in_encoded_text() {
        let route = ReceiverRoute::parse;
        assert_eq!(route("/v1/agents"), Some(ReceiverRoute::List));
        assert_eq!(
            route("/v1/agents/ops/deliver"),
            Some(ReceiverRoute::Deliver("ops".to_owned()))
        );
        assert_eq!(
            route("/v1/agents/a%2Fb%20%C3%BC/wake"),
            Some(ReceiverRoute::Wake("a/b ü".to_owned()))
        );
        assert_eq!(
            route("/v1/agents/ops/status"),
            Some(ReceiverRoute::Status("ops".to_owned()))
        );
        for path in [
            "/v1/agents/",
            "/v1/agents/ops",
            "/v1/agents/ops/",
            "/v1/agents//deliver",
            "/v1/agents/ops/deliver/",
            "/v1/agents/%ff/deliver",
            "/v1/agents/%4/deliver",
            "/v1/agents/%+1/deliver",
        ] {
            assert_eq!(route(path), None, "{path}");
        }
        assert!(is_path("/v1/agents") && is_path("/v1/agents/x") && !is_path("/v1/agentsx"));
    }

    #[test]
    fn the_structured_session_wins_and_another_agent_is_refused() {
        let of = |body: Value| session(body.as_object().unwrap(), "ops").map_err(|refused| refused.status());
        let found = |session: &str| Ok(Some(session.to_owned()));
        assert_eq!(of(json!({})), Ok(None));
        assert_eq!(of(json!({"agent_id": "ops"})), Ok(None));
        assert_eq!(of(json!({"agent_id": "ops@a"})), found("a"));
        assert_eq!(of(json!({"agent_id": "ops@a", "session_id": "b"})), found("b"));
        assert_eq!(of(json!({"agent_id": "ops@a", "session_id": ""})), found("a"));
        for body in [
            json!({"agent_id": "dev"}),
            json!({"agent_id": 1}),
            json!({"session_id": null}),
            json!({"session_id": "a\nb"}),
            json!({"session_id": "x".repeat(MAX_ID_BYTES + 1)}),
        ] {
            assert_eq!(of(body.clone()), Err(StatusCode::BAD_REQUEST), "{body}");
        }
    }
}
