//! The HTTP listeners: a status page, health, readiness, metrics and a wake request for monitoring, fires of the managed
//! scheduler, and items handed to agents.
//!
//! Each is off unless its address is set (`serve.http`, `cron.listen`). On loopback, monitoring accepts only the host names
//! of this machine, so that a web page cannot reach it by DNS rebinding; a fire has a token and a handed-over item a key or a signature
//! instead, which no page has.
//! Connections, headers and time are bounded ([`super::clients`]); they keep no connection alive and expose nothing of any chat.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::ACCEPT_RETRY;
use super::clients::{ClientPlace, Clients};
use super::endpoint::too_busy;
use super::fire::{FIRE_PATH, FireEndpoint};
use super::protocol::ControlRequest;
use super::receiver::{self, Receiver};
use super::service::ControlService;
use super::{status_page, status_rows};

/// Timeout for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a connection; longer than a fire or a handed-over item takes at most.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(28);
/// Connections that the system keeps until they are accepted: one that it drops comes again a second later at the earliest.
const BACKLOG: u32 = 1024;
/// Maximum size of the headers.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// How much of what nobody reads is taken from a client before its connection is closed: one that writes everything before it
/// reads would not see the response.
const MAX_DRAIN_BYTES: usize = 64 * 1024 * 1024;
/// How long the next part of that is waited for.
const DRAIN_PAUSE: Duration = Duration::from_secs(1);

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The host names that a request may use.
#[derive(Clone, Debug)]
pub(super) struct HostRules {
    /// Any name: it listens for other machines on purpose.
    any: bool,
    allowed: Arc<[String]>,
}

impl HostRules {
    pub(super) fn new(address: SocketAddr, allowed: &[String]) -> Self {
        Self {
            any: !address.ip().to_canonical().is_loopback(),
            allowed: allowed
                .iter()
                .map(|host| host.trim().to_ascii_lowercase())
                .collect(),
        }
    }

    /// Whether a request is allowed. One without a host does not come from a browser.
    fn allows(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let named = headers
            .get_all(HOST)
            .iter()
            .map(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let mut hosts = uri
            .authority()
            .map(|host| Some(host.clone()))
            .into_iter()
            .chain(named);
        self.any || hosts.all(|host| host.is_some_and(|host| self.is_known(host.host())))
    }

    fn is_known(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let address = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        host == "localhost"
            || address.is_ok_and(|address| address.to_canonical().is_loopback())
            || self.allowed.contains(&host)
    }
}

pub(super) fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As the standard library does, so that a restart finds its address free.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What a listener serves.
#[derive(Clone, Debug)]
pub(super) struct Site {
    service: Arc<ControlService>,
    fires: Option<Arc<FireEndpoint>>,
    receiver: Option<Arc<Receiver>>,
    /// Whose monitoring requests are answered; only `/healthz`, and to anyone, where there are no rules.
    monitoring: Option<HostRules>,
}

impl Site {
    /// Monitoring, fires where jobs are managed, and what is handed over where there is a receiver.
    pub(super) fn new(
        service: Arc<ControlService>,
        fires: Option<Arc<FireEndpoint>>,
        receiver: Option<Arc<Receiver>>,
        rules: HostRules,
    ) -> Self {
        Self {
            service,
            fires,
            receiver,
            monitoring: Some(rules),
        }
    }

    /// Fires and `/healthz` alone.
    pub(super) fn fires(service: Arc<ControlService>, fires: Arc<FireEndpoint>) -> Self {
        Self {
            service,
            fires: Some(fires),
            receiver: None,
            monitoring: None,
        }
    }
}

/// Serves until dropped. At most so many connections of one address may be stalled.
pub(super) async fn serve(listener: TcpListener, site: Site, per_address: usize) {
    let places = Clients::new(per_address);
    let mut clients = JoinSet::new();
    loop {
        let has_room = places.has_room();
        // Cancel-safe: nothing is accepted or joined unless its branch is chosen.
        tokio::select! {
            biased;
            _ = clients.join_next(), if !clients.is_empty() => {}
            () = sleep(Clients::RECHECK), if !has_room => {}
            accepted = listener.accept(), if has_room => match accepted {
                Ok((client, address)) => {
                    let place = places.admit(address.ip());
                    clients.spawn(serve_client(client, site.clone(), place));
                }
                Err(error) => {
                    tracing::warn!(%error, "the HTTP listener cannot accept a connection");
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}

async fn serve_client(client: TcpStream, site: Site, place: ClientPlace) {
    let place = Arc::new(place);
    let respond = service_fn(|request: Request<Incoming>| {
        let (site, place) = (site.clone(), Arc::clone(&place));
        Box::pin(async move {
            let response = respond(request, &site, &place).await;
            place.wait();
            Ok::<_, Infallible>(response)
        })
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(client), respond);
    let served = async {
        if let Ok(parts) = connection.without_shutdown().await {
            drain(parts.io.into_inner()).await;
        }
    };
    // A slow or invalid client loses its connection; nobody else is affected.
    tokio::select! {
        biased;
        () = place.closed() => {}
        _ = timeout(CONNECTION_TIMEOUT, served) => {}
    }
}

/// Ends a connection so that its client reads the response even if it is still writing: closing on unread bytes can lose it.
async fn drain(mut client: TcpStream) {
    let mut left = MAX_DRAIN_BYTES;
    let mut unread = vec![0; MAX_HEADER_BYTES];
    if client.shutdown().await.is_err() {
        return;
    }
    while left > 0 {
        match timeout(DRAIN_PAUSE, client.read(&mut unread)).await {
            Ok(Ok(read)) if read > 0 => left = left.saturating_sub(read),
            _ => return,
        }
    }
}

async fn respond(request: Request<Incoming>, site: &Site, place: &ClientPlace) -> Response<String> {
    if let Some(fires) = site.fires.as_ref().filter(|_| request.uri().path() == FIRE_PATH) {
        return fires.respond(request, place).await;
    }
    let receiver = site.receiver.as_ref();
    if let Some(receiver) = receiver.filter(|_| receiver::is_path(request.uri().path())) {
        return receiver.respond(request, place).await;
    }
    let service = &site.service;
    let path = request.uri().path();
    // A health check is answered however much is under way.
    if place.work().is_err() && !matches!(path, "/healthz" | "/readyz") {
        return too_busy();
    }
    let Some(rules) = &site.monitoring else {
        return match path {
            "/healthz" => health(request.method(), service).await,
            _ => response(StatusCode::NOT_FOUND, TEXT, "not found\n"),
        };
    };
    if !rules.allows(request.uri(), request.headers()) {
        let what = "this host name is not allowed; see `serve.allowed_hosts`\n";
        return response(StatusCode::MISDIRECTED_REQUEST, TEXT, what);
    }
    let method = request.method();
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    match path {
        "/wake" if *method == Method::POST || *method == Method::GET => {
            wake(request.headers(), service).await
        }
        "/wake" => not_allowed("GET, POST"),
        "/healthz" => health(method, service).await,
        "/" | "/readyz" | "/metrics" if !is_read => not_allowed("GET, HEAD"),
        "/" => status(service).await,
        "/readyz" => match service.status().await.map(|status| status.readiness()) {
            Some(Ok(())) => response(StatusCode::OK, TEXT, "ready\n"),
            Some(Err(why)) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
            None => no_response(),
        },
        "/metrics" => match service.metrics().await {
            Some(page) => response(StatusCode::OK, PROMETHEUS, page),
            None => no_response(),
        },
        _ => response(
            StatusCode::NOT_FOUND,
            TEXT,
            "not found; try /, /healthz, /readyz, /metrics or /wake\n",
        ),
    }
}

/// The status for people.
async fn status(service: &ControlService) -> Response<String> {
    let Ok(status) = service.handle(ControlRequest::Status).await else {
        return no_response();
    };
    let mut response = response(StatusCode::OK, HTML, status_page::page(&status_rows(&status)));
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::try_from(status_page::content_security_policy()) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

async fn health(method: &Method, service: &ControlService) -> Response<String> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return not_allowed("GET, HEAD");
    }
    match service.status().await {
        Some(_) => response(StatusCode::OK, TEXT, "ok\n"),
        None => no_response(),
    }
}

/// Makes the relay dial now, unless the request comes from another site's page in a browser.
async fn wake(headers: &HeaderMap, service: &ControlService) -> Response<String> {
    let from = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if from.is_some_and(|from| !matches!(from, b"none" | b"same-origin")) {
        return response(
            StatusCode::FORBIDDEN,
            TEXT,
            "not allowed from another site's page\n",
        );
    }
    if service.wake().await {
        response(StatusCode::ACCEPTED, TEXT, "dialling unless connected\n")
    } else {
        no_response()
    }
}

fn no_response() -> Response<String> {
    response(
        StatusCode::SERVICE_UNAVAILABLE,
        TEXT,
        "the relay does not respond\n",
    )
}

fn not_allowed(methods: &'static str) -> Response<String> {
    let mut response = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("use {methods}\n"));
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn response(status: StatusCode, kind: &'static str, body: impl Into<String>) -> Response<String> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(rules: &HostRules, uri: &str, hosts: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        rules.allows(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn a_loopback_listener_allows_names_of_this_machine_only() {
        let local = HostRules::new("127.0.0.1:9464".parse().unwrap(), &["Relay.Internal".to_owned()]);
        for host in [
            "127.0.0.1:9464",
            "localhost",
            "LOCALHOST:1",
            "[::1]:9464",
            "127.9.9.9",
            "relay.internal:9464",
        ] {
            assert!(is_allowed(&local, "/", &[host]), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9464",
            "10.0.0.1",
            "",
            "a b",
        ] {
            assert!(!is_allowed(&local, "/", &[host]), "{host}");
        }
        assert!(is_allowed(&local, "/", &[]));
        assert!(!is_allowed(&local, "/", &["localhost", "evil.example"]));
        assert!(!is_allowed(&local, "http://evil.example/", &["localhost"]));
        let remote = HostRules::new("0.0.0.0:9464".parse().unwrap(), &[]);
        assert!(is_allowed(&remote, "/", &["relay.example"]));
    }
}
