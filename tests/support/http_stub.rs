//! Small real HTTP servers on loopback.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Response};
use hermes_relay::net::http::{HttpClient, HttpEgress, HttpPolicy};
use hermes_relay::net::proxy::ProxyRules;
use hermes_relay::net::tls::{Tls, TlsSettings};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::mpsc;

use super::port::free_port;

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

    /// The address without its query.
    pub(crate) fn path(&self) -> &str {
        self.uri.split('?').next().unwrap_or_default()
    }

    /// The body; null where there is none.
    pub(crate) fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&self.body).expect("a JSON body")
    }
}

/// Serves until the test's runtime ends, and returns the address.
pub(crate) async fn serve<F, R>(address: impl ToSocketAddrs, answer: F) -> SocketAddr
where
    F: Fn(Seen) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().fallback(move |request: Request| {
        let answer = answer.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, 64 << 20).await.unwrap_or_default();
            let seen = Seen {
                method: parts.method.to_string(),
                uri: parts.uri.to_string(),
                headers: parts.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            };
            answer(seen).await
        }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

pub(crate) fn reply(status: u16, body: impl Into<Body>) -> Response<Body> {
    reply_with(status, &[], body)
}

pub(crate) fn reply_with(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

pub(crate) fn json_reply(status: u16, body: &Value) -> Response<Body> {
    reply_with(status, &[("content-type", "application/json")], body.to_string())
}

/// Where the pieces of a body go. Dropping it ends the body, an error breaks the connection.
pub(crate) type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// A response whose body is sent piece by piece.
pub(crate) fn streamed_reply(status: u16, content_type: &str) -> (Pieces, Response<Body>) {
    let (sender, receiver) = mpsc::channel(64);
    let pieces = futures_util::stream::unfold(receiver, async |mut receiver: mpsc::Receiver<_>| {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let response = reply_with(
        status,
        &[("content-type", content_type)],
        Body::from_stream(pieces),
    );
    (sender, response)
}

/// A server that answers with a function and records what it was asked.
pub(crate) struct Stub {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    max_concurrent: Arc<AtomicUsize>,
}

impl Stub {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", Duration::ZERO, answer).await
    }

    /// Listens at an address of the test's own, and answers after a delay.
    pub(crate) async fn at(
        address: impl ToSocketAddrs,
        delay: Duration,
        answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let max_concurrent = Arc::new(AtomicUsize::new(0));
        let (answer, log, max) = (Arc::new(answer), Arc::clone(&seen), Arc::clone(&max_concurrent));
        let concurrent = Arc::new(AtomicUsize::new(0));
        let address = serve(address, move |one: Seen| {
            let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
            let (concurrent, max) = (Arc::clone(&concurrent), Arc::clone(&max));
            async move {
                max.fetch_max(concurrent.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let response = answer(&one);
                log.lock().unwrap().push(one);
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                concurrent.fetch_sub(1, Ordering::SeqCst);
                response
            }
        });
        Self {
            address: address.await,
            seen,
            max_concurrent,
        }
    }

    /// Gives every request the same answer.
    pub(crate) async fn always(status: u16, body: &str) -> Self {
        let body = body.to_owned();
        Self::start(move |_| reply(status, body.clone())).await
    }

    pub(crate) fn base(&self) -> String {
        self.url("")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
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

    /// The most requests that were answered at the same time.
    pub(crate) fn max_concurrent(&self) -> usize {
        self.max_concurrent.load(Ordering::SeqCst)
    }
}

/// The address of a server that sends these bytes after the first ones it reads, whatever they are, and nothing else.
pub(crate) async fn verbatim(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 64 * 1024];
                let _ = socket.read(&mut request).await;
                let _ = socket.write_all(bytes).await;
                // Until the client has gone.
                while let Ok(1..) = socket.read(&mut request).await {}
            });
        }
    });
    address
}

/// The address of a server that accepts connections and never answers.
pub(crate) async fn silent() -> SocketAddr {
    verbatim(b"").await
}

/// A base address on which nothing listens.
pub(crate) fn nobody() -> String {
    format!("http://127.0.0.1:{}", free_port())
}

pub(crate) fn client() -> HttpClient {
    client_on(ProxyRules::none(), HttpPolicy::default())
}

pub(crate) fn client_on(proxies: ProxyRules, policy: HttpPolicy) -> HttpClient {
    HttpClient::new(&HttpEgress { proxies, ..egress() }, policy).expect("a client")
}

/// The way out without a proxy.
pub(crate) fn egress() -> HttpEgress {
    HttpEgress {
        tls: Tls::new(TlsSettings::default()),
        proxies: ProxyRules::none(),
        user_agent: "hermes-relay/test".to_owned(),
        lease: None,
    }
}

/// The HTTP part of the recorded trace.
pub(crate) fn trace() -> Value {
    let text = include_str!("../vectors/wire-trace.json");
    serde_json::from_str::<Value>(text).expect("a JSON trace")["http"].clone()
}

/// A client for loopback. It never meets TLS, but is not built without someone to do it; nothing is installed for the whole
/// process, which another test checks.
pub(crate) fn plain_http() -> reqwest::Client {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that the provider knows")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls);
    builder.no_proxy().build().expect("a client")
}
