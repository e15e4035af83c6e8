//! The HTTP routes: enrolment, provisioning, policy, and the media that the connector stores for its gateways.
//!
//! A caller proves who it is before its body is read, and nothing is answered under a foreign `Host`.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{self, Request};
use axum::middleware::{Next, from_fn_with_state, map_response_with_state};
use axum::response::Response;
use axum::routing::{any, get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use url::Url;

use super::connector::random_token;
use super::record::TokenCheck;
use super::state::{Hub, MAX_GATEWAYS};
use super::{page, socket};
use crate::wire::is_loopback_host;

const MAX_JSON_BYTES: usize = 1024 * 1024;
/// Bytes that are read of the body of a caller who is refused.
const MAX_UNKNOWN_BYTES: usize = 16 * 1024;

/// Every route, under its own names only, with the connector's date on every answer.
pub(super) fn router(hub: &Arc<Hub>) -> Router {
    let on = |route: HttpRoute| {
        move |extract::State(hub): extract::State<Arc<Hub>>, request: Request| handle(hub, route, request)
    };
    Router::new()
        .route("/relay", any(socket::dial))
        .route("/relay/enroll", post(on(HttpRoute::Enroll)))
        .route("/relay/provision", post(on(HttpRoute::Provision)))
        .route("/relay/policy", post(on(HttpRoute::Policy)))
        .route("/relay/media", post(on(HttpRoute::MediaUpload)))
        .route("/relay/media/{id}", get(on(HttpRoute::MediaDownload)))
        .route("/identity/{key}", get(identity))
        .merge(page::routes())
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "there is no such route") })
        .layer(from_fn_with_state(Arc::clone(hub), addressed))
        .layer(map_response_with_state(Arc::clone(hub), dated))
        .with_state(Arc::clone(hub))
}

async fn dated(extract::State(hub): extract::State<Arc<Hub>>, mut response: Response) -> Response {
    if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date((hub.settings.clock)())) {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}

/// Refuses a request whose `Host` is not this connector: a name that somebody else pointed at loopback.
async fn addressed(extract::State(hub): extract::State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok().map(host_name),
        _ => None,
    };
    let is_ours = |name: &str| {
        let known = &hub.settings.hosts;
        is_loopback_host(name) || known.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    if host.is_some_and(is_ours) {
        next.run(request).await
    } else {
        plain(StatusCode::FORBIDDEN, "the request is addressed to another host")
    }
}

/// The name in a `Host` header, without the port.
pub(super) fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The HTTP routes of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpRoute {
    Enroll,
    Provision,
    Policy,
    MediaUpload,
    MediaDownload,
}

/// What a request carries.
struct HttpCall {
    route: HttpRoute,
    path: String,
    headers: HeaderMap,
    /// The gateway whose upgrade token the bearer is.
    gateway_id: Option<String>,
    body: Bytes,
    json: Value,
}

async fn handle(hub: Arc<Hub>, route: HttpRoute, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bearer = bearer(&parts.headers);
    let (verdict, owner) = hub.verify(bearer.as_deref());
    let gateway_id = owner.filter(|_| verdict == TokenCheck::Valid);
    let refusal = refuse_unknown_caller(&hub, route, bearer.as_deref(), gateway_id.as_deref());
    let limit = match route {
        _ if refusal.is_some() => MAX_UNKNOWN_BYTES,
        HttpRoute::MediaUpload => MAX_MEDIA_BYTES,
        HttpRoute::Enroll | HttpRoute::Provision | HttpRoute::Policy | HttpRoute::MediaDownload => {
            MAX_JSON_BYTES
        }
    };
    let body = to_bytes(body, limit).await;
    if let Some(refusal) = refusal {
        return refusal;
    }
    let Ok(body) = body else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
    };
    let call = HttpCall {
        route,
        path: parts.uri.path().to_owned(),
        gateway_id,
        json: serde_json::from_slice(&body).unwrap_or_default(),
        headers: parts.headers,
        body,
    };
    let response = answer(&hub, &call);
    hub.changed.notify_waiters();
    response
}

fn answer(hub: &Hub, call: &HttpCall) -> Response {
    match call.route {
        HttpRoute::Enroll => enroll(hub, call),
        HttpRoute::Provision => provision(hub, call),
        HttpRoute::Policy => policy(call),
        HttpRoute::MediaUpload => upload(hub, call),
        HttpRoute::MediaDownload => download(hub, call),
    }
}

fn enroll(hub: &Hub, call: &HttpCall) -> Response {
    let token = call.json["enrollmentToken"].as_str().unwrap_or_default();
    let mut state = hub.lock();
    if !state.enrol_tokens.contains(token) {
        return plain(
            StatusCode::FORBIDDEN,
            "the enrollment token is unknown or was used already",
        );
    }
    let gateway_id = match call.json["gatewayId"].as_str() {
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => format!("gw-{}", state.gateways.len() + 1),
    };
    if state.gateways.len() >= MAX_GATEWAYS && !state.gateways.contains_key(&gateway_id) {
        return plain(StatusCode::INSUFFICIENT_STORAGE, "too many gateways are enrolled");
    }
    state.enrol_tokens.remove(token);
    let secret = random_token();
    state.add_secret(&gateway_id, secret.clone().into());
    state.primary.clone_from(&gateway_id);
    let mut answer = json!({
        "secret": secret,
        "deliveryKey": random_token(),
        "tenant": hub.settings.tenant,
        "gatewayId": gateway_id,
    });
    if !hub.settings.platforms.is_empty() {
        answer["platforms"] = json!(hub.settings.platforms);
    }
    reply(&answer)
}

fn provision(hub: &Hub, call: &HttpCall) -> Response {
    let Some(gateway_id) = call.json["gatewayId"].as_str().filter(|id| !id.is_empty()) else {
        return plain(StatusCode::BAD_REQUEST, "there is no gatewayId");
    };
    let mut state = hub.lock();
    let known = state.gateways.contains_key(gateway_id);
    if !known && state.gateways.len() >= MAX_GATEWAYS {
        return plain(StatusCode::INSUFFICIENT_STORAGE, "too many gateways are enrolled");
    }
    let mut answer = json!({
        "tenant": hub.settings.tenant,
        "gatewayId": gateway_id,
        "routeKeys": call.json["routeKeys"].as_array().cloned().unwrap_or_default(),
    });
    if known {
        answer["secretIssued"] = json!(false);
    } else {
        let secret = random_token();
        state.add_secret(gateway_id, secret.clone().into());
        gateway_id.clone_into(&mut state.primary);
        answer["secretIssued"] = json!(true);
        answer["secret"] = json!(secret);
        answer["deliveryKey"] = json!(random_token());
    }
    let wake_url = call.json["wakeUrl"].as_str().and_then(|url| Url::parse(url).ok());
    if let Some(gateway) = state.gateways.get_mut(gateway_id)
        && wake_url.is_some()
    {
        gateway.wake_url = wake_url;
    }
    reply(&answer)
}

/// The identity provider.
async fn identity(
    extract::State(hub): extract::State<Arc<Hub>>,
    extract::Path(key): extract::Path<String>,
) -> Response {
    let settings = &hub.settings;
    let is_known = settings
        .identity_key
        .as_ref()
        .is_some_and(|known| is_token(known, &key));
    let token = settings.identity_tokens.iter().flatten().next();
    match token.filter(|_| is_known) {
        Some(token) => reply(&json!({ "access_token": token, "token_type": "Bearer" })),
        None => plain(StatusCode::NOT_FOUND, "there is no such route"),
    }
}

/// The refusal of a caller who may not use the route: a new gateway needs an identity token, a known one its upgrade
/// token.
fn refuse_unknown_caller(
    hub: &Hub,
    route: HttpRoute,
    bearer: Option<&str>,
    gateway_id: Option<&str>,
) -> Option<Response> {
    let (known, why) = match route {
        HttpRoute::Enroll | HttpRoute::Provision => {
            let bearer = bearer.unwrap_or_default();
            let known = match &hub.settings.identity_tokens {
                None => !bearer.is_empty(),
                Some(accepted) => accepted.iter().any(|token| is_token(token, bearer)),
            };
            (known, "the caller's identity is not accepted")
        }
        HttpRoute::Policy | HttpRoute::MediaUpload | HttpRoute::MediaDownload => (
            gateway_id.is_some(),
            "the bearer is not an upgrade token of a known gateway",
        ),
    };
    (!known).then(|| plain(StatusCode::UNAUTHORIZED, why))
}

/// Compares tokens in constant time.
pub(super) fn is_token(ours: &str, shown: &str) -> bool {
    ours.as_bytes().ct_eq(shown.as_bytes()).into()
}

fn policy(call: &HttpCall) -> Response {
    if call.json["platform"].is_string() {
        reply(&json!({ "ok": true }))
    } else {
        plain(StatusCode::BAD_REQUEST, "there is no platform")
    }
}

fn upload(hub: &Hub, call: &HttpCall) -> Response {
    let owner = call.gateway_id.as_deref().unwrap_or_default();
    if call.body.is_empty() {
        return plain(StatusCode::BAD_REQUEST, "the file is empty");
    }
    let text = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok());
    let mime = text("content-type").unwrap_or("application/octet-stream");
    let filename = text("x-media-filename");
    let id = hub.lock().media.put(owner, mime, filename, call.body.clone());
    reply(&json!({ "id": id }))
}

fn download(hub: &Hub, call: &HttpCall) -> Response {
    let caller = call.gateway_id.as_deref().unwrap_or_default();
    let id = call.path.rsplit('/').next().unwrap_or_default();
    let state = hub.lock();
    // The answer does not reveal that a file of another gateway exists.
    let Some(medium) = state.media.find(id).filter(|medium| medium.owner == caller) else {
        return plain(StatusCode::NOT_FOUND, "there is no such file");
    };
    let mut response = Response::builder().header(header::CONTENT_TYPE, &medium.mime);
    if let Some(filename) = &medium.filename {
        let quoted = filename.replace(['"', '\\'], "_");
        response = response.header(
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{quoted}\""),
        );
    }
    response
        .body(Body::from(medium.bytes.clone()))
        .unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "the file has a bad name"))
}

/// An answer of JSON.
pub(super) fn reply(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// An error answer.
pub(super) fn plain(status: StatusCode, error: &str) -> Response {
    let mut response = reply(&json!({ "error": error }));
    *response.status_mut() = status;
    response
}

/// The bearer of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

/// Bytes of the largest file.
pub(super) const MAX_MEDIA_BYTES: usize = 25 * 1024 * 1024;
const MAX_STORED_BYTES: usize = 8 * MAX_MEDIA_BYTES;

/// One file.
#[derive(Clone)]
pub(super) struct StoredMedia {
    pub(super) id: String,
    /// The only gateway that may fetch it.
    pub(super) owner: String,
    pub(super) mime: String,
    pub(super) filename: Option<String>,
    pub(super) bytes: Bytes,
}

/// Every file that is kept.
#[derive(Default)]
pub struct MediaStore {
    media: VecDeque<StoredMedia>,
    held: usize,
    named: u64,
}

impl MediaStore {
    /// Keeps a file and names it.
    pub fn put(&mut self, owner: &str, mime: &str, filename: Option<&str>, bytes: Bytes) -> String {
        self.named += 1;
        let id = format!("{:032x}", self.named);
        self.held += bytes.len();
        self.media.push_back(StoredMedia {
            id: id.clone(),
            owner: owner.to_owned(),
            mime: mime.to_owned(),
            filename: filename.map(str::to_owned),
            bytes,
        });
        while self.held > MAX_STORED_BYTES
            && let Some(oldest) = self.media.pop_front()
        {
            self.held -= oldest.bytes.len();
        }
        id
    }

    /// The file of this name.
    pub(super) fn find(&self, id: &str) -> Option<&StoredMedia> {
        self.media.iter().find(|medium| medium.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_with_or_without_a_port() {
        for (host, name) in [
            ("127.0.0.1:80", "127.0.0.1"),
            ("localhost", "localhost"),
            ("[::1]:8788", "[::1]"),
            ("[::1]", "[::1]"),
            ("evil.example:80", "evil.example"),
            ("127.0.0.1:80@evil.example", "127.0.0.1:80@evil.example"),
        ] {
            assert_eq!(host_name(host), name);
        }
    }

    #[test]
    fn tokens_are_equal_or_not() {
        assert!(is_token("abc", "abc"));
        assert!(!is_token("abc", "abd") && !is_token("abc", "ab") && !is_token("abc", ""));
    }
}
