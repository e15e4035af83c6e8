//! A real HTTP server whose answers the test gives, one request at a time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Response};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use crate::http_agents::soon;

/// The server; requests are answered in the order in which the test takes them.
pub(crate) struct Server {
    address: SocketAddr,
    requests: mpsc::Receiver<Asked>,
}

/// One request, waiting for its answer. Dropping it closes the connection without one.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    answer: oneshot::Sender<Response<Body>>,
}

/// The body of an answer under way. Dropping it ends the answer well.
pub(crate) struct Stream(mpsc::Sender<Result<Bytes, io::Error>>);

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::channel(16);
        let app = axum::Router::new().fallback(move |request: Request| {
            let sender = sender.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, 64 << 20).await.unwrap();
                let (answer, answered) = oneshot::channel();
                let asked = Asked {
                    method: parts.method.to_string(),
                    path: parts.uri.to_string(),
                    headers: parts.headers,
                    body: String::from_utf8(body.to_vec()).unwrap(),
                    answer,
                };
                sender.send(asked).await.expect("the test takes requests");
                let answer = answered.await.unwrap_or_else(|_| panic!("no answer"));
                Ok::<_, Infallible>(answer)
            }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, requests }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request.
    pub(crate) async fn asked(&mut self) -> Asked {
        soon("a request", self.requests.recv()).await.unwrap()
    }

    /// The next request, which must be this one.
    pub(crate) async fn expect(&mut self, method: &str, path: &str) -> Asked {
        let asked = self.asked().await;
        assert_eq!((asked.method.as_str(), asked.path.as_str()), (method, path));
        asked
    }

    /// Whether nothing was asked that the test has not taken.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }

    pub(crate) fn reply(self, status: u16, headers: &[(&str, &str)], body: impl Into<Body>) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        // The client may have gone.
        let _ = self.answer.send(response.body(body.into()).unwrap());
    }

    pub(crate) fn reply_json(self, status: u16, body: &Value) {
        self.reply(status, &[("content-type", "application/json")], body.to_string());
    }

    /// Begins a stream of events.
    pub(crate) fn stream(self) -> Stream {
        self.pieces(200, "text/event-stream; charset=utf-8")
    }

    /// Begins an answer that comes in pieces.
    pub(crate) fn pieces(self, status: u16, kind: &str) -> Stream {
        let (sender, receiver) = mpsc::channel(64);
        let pieces = futures_util::stream::unfold(receiver, async |mut receiver: mpsc::Receiver<_>| {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        self.reply(status, &[("content-type", kind)], Body::from_stream(pieces));
        Stream(sender)
    }

    /// Answers with these events, and ends well.
    pub(crate) async fn events(self, events: &[&str]) {
        let stream = self.stream();
        for event in events {
            stream.data(event).await;
        }
    }
}

impl Stream {
    /// Sends these bytes as they are.
    pub(crate) async fn raw(&self, bytes: impl Into<Bytes>) {
        soon("room for a piece", self.0.send(Ok(bytes.into())))
            .await
            .unwrap();
    }

    /// Sends one event.
    pub(crate) async fn data(&self, data: &str) {
        self.raw(format!("data: {data}\n\n")).await;
    }

    /// Sends one piece of a chat completion.
    pub(crate) async fn delta(&self, text: &str) {
        self.data(&delta(text)).await;
    }

    /// Breaks the connection in the middle of the answer.
    pub(crate) async fn cut(self) {
        let _ = self.0.send(Err(io::Error::other("cut"))).await;
    }

    /// Waits until the client has gone.
    pub(crate) async fn abandoned(&self) {
        soon("the client closes the connection", self.0.closed()).await;
    }
}

/// One piece of a chat completion.
pub(crate) fn delta(text: &str) -> String {
    serde_json::json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]})
        .to_string()
}

/// The last piece of a chat completion.
pub(crate) fn finish(reason: &str) -> String {
    serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).to_string()
}

/// An address at which every request is answered with these bytes, whatever they are.
pub(crate) async fn verbatim(bytes: &'static [u8]) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(bytes).await;
            // Until the client has gone.
            while let Ok(1..) = socket.read(&mut request).await {}
        }
    });
    format!("http://{address}")
}

/// An address on which nothing listens.
pub(crate) fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
