//! In front of the connector's routes: what came, and what goes wrong.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hermes_relay::dev::{Hub, TokenCheck};
use hermes_relay::wire::UpgradeToken;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use secrecy::SecretString;
use serde_json::Value;

use super::rules::Rules;

/// More than any route takes.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// How a dial is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DialRule {
    /// With an upgrade.
    #[default]
    Accept,
    /// With a status.
    Refuse {
        status: StatusCode,
        /// Seconds for a `Retry-After` header.
        retry_after: Option<u64>,
    },
    /// With a redirect.
    Redirect { location: String },
    /// Not at all: the request is taken and nothing comes.
    Hang,
}

/// An HTTP route of the connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpRoute {
    Enroll,
    Provision,
    Policy,
    MediaUpload,
    MediaDownload,
}

impl HttpRoute {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enroll => "enroll",
            Self::Provision => "provision",
            Self::Policy => "policy",
            Self::MediaUpload => "upload",
            Self::MediaDownload => "download",
        }
    }

    fn at(method: &Method, path: &str) -> Option<Self> {
        let route = match path.strip_prefix("/relay/")? {
            "enroll" => Self::Enroll,
            "provision" => Self::Provision,
            "policy" => Self::Policy,
            "media" => Self::MediaUpload,
            other => {
                other.strip_prefix("media/")?;
                return (method == Method::GET).then_some(Self::MediaDownload);
            }
        };
        (method == Method::POST).then_some(route)
    }
}

/// How a route fails.
#[derive(Clone, Debug)]
pub(crate) struct HttpRouteFault {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// A `Location` header.
    pub(crate) location: Option<String>,
    /// A `Retry-After` header, in seconds.
    pub(crate) retry_after: Option<u64>,
    /// How long the answer takes.
    pub(crate) delay: Duration,
    /// After how many requests the route works again; `None` is never.
    pub(crate) times: Option<usize>,
}

impl HttpRouteFault {
    /// A fault that answers `status` and `body` to every request.
    pub(crate) fn answering(status: StatusCode, body: impl Into<String>) -> Self {
        Self {
            status,
            body: body.into(),
            location: None,
            retry_after: None,
            delay: Duration::ZERO,
            times: None,
        }
    }

    /// The fault is over after one request.
    pub(crate) fn once(self) -> Self {
        Self {
            times: Some(1),
            ..self
        }
    }
}

/// A dial: a request for an upgrade.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) at: Instant,
    /// Whose token it showed, when that is genuine.
    pub(crate) gateway_id: Option<String>,
    /// What the token was found to be.
    pub(crate) token: TokenCheck,
    pub(crate) bearer: Option<SecretString>,
    /// When the token stops being valid.
    pub(crate) expires_at: Option<i64>,
    /// Every header but `Authorization`.
    pub(crate) headers: HeaderMap,
    /// The answer; `None` when the dial was left hanging.
    pub(crate) answered: Option<StatusCode>,
}

/// A request to one of the HTTP routes.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Every header but `Authorization`.
    pub(crate) headers: HeaderMap,
    pub(crate) bearer: Option<SecretString>,
    /// The gateway whose upgrade token the bearer is.
    pub(crate) gateway_id: Option<String>,
    /// The body, when it is JSON.
    pub(crate) json: Value,
    pub(crate) body_bytes: usize,
    pub(crate) answered: StatusCode,
}

/// The script of one connector's routes, and what came.
#[derive(Default)]
pub(crate) struct HttpScript {
    pub(crate) dial_rule: DialRule,
    pub(crate) next_dials: Rules<DialRule>,
    pub(crate) routes: Rules<HttpRouteFault>,
    pub(crate) dials: Vec<Dial>,
    pub(crate) requests: Vec<RecordedRequest>,
}

/// What stands in front of the routes.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) hub: Arc<Hub>,
    pub(crate) script: Arc<Mutex<HttpScript>>,
}

impl Front {
    /// Changes the script and notifies those who wait.
    fn change<T>(&self, change: impl FnOnce(&mut HttpScript) -> T) -> T {
        let out = change(&mut self.script.lock().unwrap_or_else(PoisonError::into_inner));
        self.hub.changed.notify_waiters();
        out
    }
}

/// Answers a request: by a rule, else as the connector does.
pub(crate) async fn handle(State(front): State<Front>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if path == "/relay" {
        return dial(&front, request, next).await;
    }
    match HttpRoute::at(request.method(), &path) {
        Some(route) => on_route(&front, route, path, request, next).await,
        None => next.run(request).await,
    }
}

async fn dial(front: &Front, request: Request, next: Next) -> Response {
    let shown = bearer(request.headers());
    let (token, gateway_id) = front.hub.verify(shown.as_deref());
    let mut headers = request.headers().clone();
    headers.remove(header::AUTHORIZATION);
    let mut dial = Dial {
        at: Instant::now(),
        gateway_id,
        token,
        expires_at: shown.as_deref().and_then(UpgradeToken::expiry),
        bearer: shown.map(SecretString::from),
        headers,
        answered: None,
    };
    let rule = front.change(|script| {
        let next = script.next_dials.take("dial", None);
        next.unwrap_or_else(|| script.dial_rule.clone())
    });
    let mut response = match rule {
        DialRule::Accept => next.run(request).await,
        DialRule::Refuse { status, retry_after } => answer(
            status,
            "{\"error\":\"dials are refused\"}",
            header::RETRY_AFTER,
            retry_after.map(|seconds| seconds.to_string()),
        ),
        DialRule::Redirect { location } => answer(
            StatusCode::FOUND,
            "{\"error\":\"elsewhere\"}",
            header::LOCATION,
            Some(location),
        ),
        DialRule::Hang => {
            front.change(|script| script.dials.push(dial));
            front.hub.stop.cancelled().await;
            return Response::default();
        }
    };
    let date = httpdate::fmt_http_date((front.hub.settings.clock)());
    response
        .headers_mut()
        .insert(header::DATE, HeaderValue::try_from(date).unwrap());
    dial.answered = Some(response.status());
    front.change(|script| script.dials.push(dial));
    response
}

fn answer(
    status: StatusCode,
    body: &'static str,
    name: header::HeaderName,
    value: Option<String>,
) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    if let Some(value) = value {
        response
            .headers_mut()
            .insert(name, HeaderValue::try_from(value).unwrap());
    }
    response
}

async fn on_route(front: &Front, route: HttpRoute, path: String, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let bearer = bearer(&parts.headers);
    let (verdict, owner) = front.hub.verify(bearer.as_deref());
    let bytes = to_bytes(body, MAX_BODY_BYTES).await.unwrap_or_default();
    let mut headers = parts.headers.clone();
    headers.remove(header::AUTHORIZATION);
    let mut recorded = RecordedRequest {
        at: Instant::now(),
        method: parts.method.clone(),
        path,
        headers,
        bearer: bearer.map(SecretString::from),
        gateway_id: owner.filter(|_| verdict == TokenCheck::Valid),
        json: serde_json::from_slice(&bytes).unwrap_or_default(),
        body_bytes: bytes.len(),
        answered: StatusCode::OK,
    };
    let fault = front.change(|script| script.routes.take(route.name(), None));
    let response = match fault {
        None => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Some(fault) => {
            tokio::time::sleep(fault.delay).await;
            let mut response = Response::builder()
                .status(fault.status)
                .header(header::CONTENT_TYPE, "application/json");
            if let Some(location) = fault.location {
                response = response.header(header::LOCATION, location);
            }
            if let Some(seconds) = fault.retry_after {
                response = response.header(header::RETRY_AFTER, seconds);
            }
            response.body(Body::from(fault.body)).unwrap()
        }
    };
    recorded.answered = response.status();
    front.change(|script| script.requests.push(recorded));
    response
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}
