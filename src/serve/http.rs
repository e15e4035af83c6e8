//! The HTTP listener for monitors: health, readiness, metrics, and a knock that has the relay dial at once.
//!
//! It is off unless `serve.http` is set. On this machine it answers only to names of this machine, so that a page in
//! somebody's browser cannot reach it under a name of its own. Connections, headers and time are bounded; it reads no
//! body, keeps no connection, and tells nothing of any chat.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, X_CONTENT_TYPE_OPTIONS};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::desk::Desk;

/// Connections at once; more wait to be accepted.
const MOST_CLIENTS: usize = 64;
/// How long a client may take to send its headers.
const HEADERS: Duration = Duration::from_secs(5);
/// How long a connection may last in all.
const CONNECTION: Duration = Duration::from_secs(10);
/// Headers of one request, together.
const HEADER_BYTES: usize = 16 * 1024;
/// Before accepting is tried again after it failed.
const PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// By which names the listener may be asked for.
#[derive(Clone, Debug)]
pub(super) struct HostRules {
    /// Any name will do: it listens to other machines on purpose.
    any: bool,
    allowed: Arc<[String]>,
}

impl HostRules {
    pub(super) fn new(here: SocketAddr, allowed: &[String]) -> Self {
        Self {
            any: !here.ip().to_canonical().is_loopback(),
            allowed: allowed
                .iter()
                .map(|host| host.trim().to_ascii_lowercase())
                .collect(),
        }
    }

    /// Whether a request may be for us. One that names no host comes from no browser.
    fn admit(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let named = headers
            .get_all(HOST)
            .iter()
            .map(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let mut hosts = uri
            .authority()
            .map(|host| Some(host.clone()))
            .into_iter()
            .chain(named);
        self.any || hosts.all(|host| host.is_some_and(|host| self.knows(host.host())))
    }

    fn knows(&self, host: &str) -> bool {
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
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Answers until it is dropped.
pub(super) async fn serve(listener: TcpListener, desk: Arc<Desk>, rules: HostRules) {
    let mut clients = JoinSet::new();
    loop {
        // Cancel-safe: nothing is accepted or joined unless its branch is chosen.
        tokio::select! {
            biased;
            _ = clients.join_next(), if !clients.is_empty() => {}
            accepted = listener.accept(), if clients.len() < MOST_CLIENTS => match accepted {
                Ok((client, _)) => {
                    clients.spawn(attend(client, Arc::clone(&desk), rules.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the HTTP listener cannot accept");
                    sleep(PAUSE).await;
                }
            },
        }
    }
}

async fn attend(client: TcpStream, desk: Arc<Desk>, rules: HostRules) {
    let answer = service_fn(|request: Request<Incoming>| {
        let (desk, rules) = (Arc::clone(&desk), rules.clone());
        async move { Ok::<_, Infallible>(answer(&request, &desk, &rules).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .keep_alive(false)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(client), answer);
    // A client that is slow or talks nonsense loses its connection; that is its own affair.
    let _ = timeout(CONNECTION, connection).await;
}

async fn answer<B>(request: &Request<B>, desk: &Desk, rules: &HostRules) -> Response<String> {
    if !rules.admit(request.uri(), request.headers()) {
        let what = "this listener does not go by that name; see `serve.allowed_hosts`\n";
        return said(StatusCode::MISDIRECTED_REQUEST, TEXT, what);
    }
    let (path, method) = (request.uri().path(), request.method());
    let read = matches!(*method, Method::GET | Method::HEAD);
    match path {
        "/wake" if *method == Method::POST || *method == Method::GET => wake(request.headers(), desk).await,
        "/wake" => not_allowed("GET, POST"),
        "/healthz" | "/readyz" | "/metrics" if !read => not_allowed("GET, HEAD"),
        "/healthz" => match desk.status().await {
            Some(_) => said(StatusCode::OK, TEXT, "ok\n"),
            None => silent(),
        },
        "/readyz" => match desk.status().await.map(|status| status.readiness()) {
            Some(Ok(())) => said(StatusCode::OK, TEXT, "ready\n"),
            Some(Err(why)) => said(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
            None => silent(),
        },
        "/metrics" => match desk.metrics().await {
            Some(page) => said(StatusCode::OK, PROMETHEUS, page),
            None => silent(),
        },
        _ => said(
            StatusCode::NOT_FOUND,
            TEXT,
            "there are /healthz, /readyz, /metrics and /wake\n",
        ),
    }
}

/// Dials at once, unless it is another site's page in a browser that asks.
async fn wake(headers: &HeaderMap, desk: &Desk) -> Response<String> {
    let from = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if from.is_some_and(|from| !matches!(from, b"none" | b"same-origin")) {
        return said(StatusCode::FORBIDDEN, TEXT, "not from another site's page\n");
    }
    if desk.wake().await {
        said(StatusCode::ACCEPTED, TEXT, "dialling unless connected\n")
    } else {
        silent()
    }
}

fn silent() -> Response<String> {
    said(
        StatusCode::SERVICE_UNAVAILABLE,
        TEXT,
        "the relay's task does not answer\n",
    )
}

fn not_allowed(methods: &'static str) -> Response<String> {
    let mut response = said(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("only {methods}\n"));
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn said(status: StatusCode, kind: &'static str, body: impl Into<String>) -> Response<String> {
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

    fn admits(rules: &HostRules, uri: &str, hosts: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        rules.admit(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn a_listener_on_this_machine_goes_by_this_machines_names_only() {
        let here = HostRules::new("127.0.0.1:9464".parse().unwrap(), &["Relay.Internal".to_owned()]);
        for host in [
            "127.0.0.1:9464",
            "localhost",
            "LOCALHOST:1",
            "[::1]:9464",
            "127.9.9.9",
            "relay.internal:9464",
        ] {
            assert!(admits(&here, "/", &[host]), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9464",
            "10.0.0.1",
            "",
            "a b",
        ] {
            assert!(!admits(&here, "/", &[host]), "{host}");
        }
        assert!(admits(&here, "/", &[]));
        assert!(!admits(&here, "/", &["localhost", "evil.example"]));
        assert!(!admits(&here, "http://evil.example/", &["localhost"]));
        let abroad = HostRules::new("0.0.0.0:9464".parse().unwrap(), &[]);
        assert!(admits(&abroad, "/", &["relay.example"]));
    }
}
