//! A real HTTP server whose answers the test gives, one request at a time.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;

use axum::body::{Body, Bytes};
use axum::http::Response;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::http_agents::soon;
use crate::support::http_stub::{Pieces, Seen, json_reply, reply_with, serve, streamed_reply};

/// The server; requests are answered in the order in which the test takes them.
pub(crate) struct Server {
    address: SocketAddr,
    requests: mpsc::Receiver<Asked>,
}

/// One request, waiting for its answer. Dropping it closes the connection without one.
pub(crate) struct Asked {
    seen: Seen,
    answer: oneshot::Sender<Response<Body>>,
}

/// The body of an answer under way. Dropping it ends the answer well.
pub(crate) struct Stream(Pieces);

impl Server {
    pub(crate) async fn start() -> Self {
        let (sender, requests) = mpsc::channel(16);
        let address = serve("127.0.0.1:0", move |seen| {
            let sender = sender.clone();
            async move {
                let (answer, answered) = oneshot::channel();
                let asked = Asked { seen, answer };
                sender.send(asked).await.expect("the test takes requests");
                answered.await.unwrap_or_else(|_| panic!("no answer"))
            }
        });
        Self {
            address: address.await,
            requests,
        }
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
        assert_eq!((asked.method.as_str(), asked.uri.as_str()), (method, path));
        asked
    }

    /// Whether nothing was asked that the test has not taken.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }
}

impl Deref for Asked {
    type Target = Seen;

    fn deref(&self) -> &Seen {
        &self.seen
    }
}

impl Asked {
    pub(crate) fn reply(self, status: u16, headers: &[(&str, &str)], body: impl Into<Body>) {
        // The client may have gone.
        let _ = self.answer.send(reply_with(status, headers, body));
    }

    pub(crate) fn reply_json(self, status: u16, body: &Value) {
        let _ = self.answer.send(json_reply(status, body));
    }

    /// Begins a stream of events.
    pub(crate) fn stream(self) -> Stream {
        self.pieces(200, "text/event-stream; charset=utf-8")
    }

    /// Begins an answer that comes in pieces.
    pub(crate) fn pieces(self, status: u16, kind: &str) -> Stream {
        let (pieces, response) = streamed_reply(status, kind);
        let _ = self.answer.send(response);
        Stream(pieces)
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
