//! A small real HTTP server on loopback that answers as told and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Response};
use hermes_relay::net::http::HttpClient;
use hermes_relay::net::proxy::ProxyRules;
use hermes_relay::net::tls::{TlsSettings, client_config};
use serde_json::Value;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }
}

/// An answer: status, extra headers, body.
pub(crate) type Reply = (u16, Vec<(&'static str, String)>, String);

pub(crate) fn reply(status: u16, body: impl Into<String>) -> Reply {
    (status, Vec::new(), body.into())
}

pub(crate) struct Stub {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Stub {
    /// Serves until the test's runtime ends.
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&seen));
        let app = axum::Router::new().fallback(move |request: Request| {
            let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, 1 << 20).await.unwrap();
                let one = Seen {
                    method: parts.method.to_string(),
                    uri: parts.uri.to_string(),
                    headers: parts.headers,
                    body: String::from_utf8(body.to_vec()).unwrap(),
                };
                let (status, headers, text) = answer(&one);
                log.lock().unwrap().push(one);
                let mut response = Response::builder().status(status);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                response.body(Body::from(text)).unwrap()
            }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, seen }
    }

    /// Answers every request alike.
    pub(crate) async fn always(status: u16, body: &str) -> Self {
        let body = body.to_owned();
        Self::start(move |_| reply(status, body.clone())).await
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The only request so far.
    pub(crate) fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

/// A base address on which nothing listens.
pub(crate) fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

pub(crate) fn client() -> HttpClient {
    client_with(ProxyRules::none())
}

pub(crate) fn client_with(proxies: ProxyRules) -> HttpClient {
    let tls = client_config(&TlsSettings::default()).expect("TLS settings");
    HttpClient::new(&tls, proxies, "hermes-relay/test").expect("a client")
}

/// The HTTP part of the recorded trace.
pub(crate) fn trace() -> Value {
    let text = include_str!("../vectors/wire-trace.json");
    serde_json::from_str::<Value>(text).expect("a JSON trace")["http"].clone()
}
