//! One JSON-RPC connection over lines, over any pair of pipes.
//!
//! The reading task never waits: responses complete their request immediately, and requests and notifications go to a
//! [`MessageHandler`], which must not block either. Every waiter is settled when the connection ends, however it
//! ends. It is independent of the protocol above.
//!
//! Bounds: a line longer than [`RpcLimits::line`] is skipped with a warning, and so is a message that is not valid JSON. If its head
//! says what it is, a request is answered with an error and an answer fails its request; if not, it may have been the answer to any
//! [`RpcPeer::call`] that waits, and fails them all. The handler hears of all that are messages. Lines that wait to be written are at
//! most [`RpcLimits::outgoing`], after which a request waits and anything else fails as if the other side were gone — it does
//! not read.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::message::{AgentLine, INVALID_REQUEST, LineReader, RpcError, RpcMessage, SkippedMessage};

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct RpcLimits {
    /// Longest line that is read, in bytes.
    pub(super) line: usize,
    /// Lines that wait to be written.
    pub(super) outgoing: usize,
}

impl Default for RpcLimits {
    fn default() -> Self {
        Self {
            line: 8 * 1024 * 1024,
            outgoing: 256,
        }
    }
}

/// Handles requests and notifications. Called by the reading task: must not block.
pub(super) trait MessageHandler: Send + Sync + 'static {
    /// Handles a notification.
    fn notified(&self, method: &str, params: Value);
    /// Handles a request; `None` when it is answered later through [`RpcPeer::answer`].
    fn requested(&self, id: Value, method: &str, params: Value) -> Option<Result<Value, RpcError>>;
    /// Handles a message that cannot be read.
    fn skipped(&self, message: &SkippedMessage);
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// An error response.
    #[error(transparent)]
    Refused(#[from] RpcError),
    /// The response cannot be read.
    #[error("the answer is too long to read or not valid JSON")]
    Unread,
    /// A line that cannot be read may have been the response.
    #[error("a line that may have been the answer is too long to read or not valid JSON")]
    MaybeUnread,
    /// The connection has ended, or the other side reads nothing any more.
    #[error("the connection to the agent has ended")]
    Gone,
}

/// The two tasks of a connection; dropping it ends both, and settles every waiter.
#[derive(Debug)]
pub(super) struct RpcConnection {
    peer: RpcPeer,
    _reader: AbortOnDropHandle<()>,
    _writer: AbortOnDropHandle<()>,
}

/// The other side of the connection. Clones are cheap.
#[derive(Clone, Debug)]
pub(super) struct RpcPeer {
    outgoing: mpsc::Sender<Vec<u8>>,
    waiting: Arc<Mutex<PendingRequests>>,
    /// Notified of each line that cannot be read and may have been any answer.
    unread: Arc<Notify>,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct PendingRequests {
    next: u64,
    ended: bool,
    requests: HashMap<u64, oneshot::Sender<Result<Value, CallError>>>,
}

impl RpcConnection {
    /// Starts to read and to write; `agent` is the name in the log.
    pub(super) fn start<R, W>(
        agent: &str,
        reader: R,
        writer: W,
        handler: Arc<dyn MessageHandler>,
        limits: RpcLimits,
    ) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (outgoing, lines) = mpsc::channel(limits.outgoing);
        let peer = RpcPeer {
            outgoing,
            waiting: Arc::default(),
            unread: Arc::default(),
            ended: CancellationToken::new(),
        };
        let reading = read(agent.to_owned(), reader, limits.line, peer.clone(), handler);
        let writing = write(writer, lines, peer.clone());
        Self {
            _reader: AbortOnDropHandle::new(tokio::spawn(reading)),
            _writer: AbortOnDropHandle::new(tokio::spawn(writing)),
            peer,
        }
    }

    /// The sending half, for requests to the agent.
    pub(super) fn peer(&self) -> &RpcPeer {
        &self.peer
    }
}

impl Drop for RpcConnection {
    fn drop(&mut self) {
        self.peer.end();
    }
}

impl RpcPeer {
    /// Sends a request and waits for the response, or for a line that may have been it.
    pub(super) async fn call(&self, method: &str, params: &Value) -> Result<Value, CallError> {
        // It notices lines from here on.
        let unread = self.unread.notified();
        let answered = self.start_call(method, params).await?;
        tokio::select! {
            biased;
            answer = answered => answer,
            () = unread => Err(CallError::MaybeUnread),
        }
    }

    /// Sends a request; the returned future waits for the response. What cannot be read ends the wait only if it says that it is the
    /// response: the [`MessageHandler`] hears of the rest.
    pub(super) async fn start_call(&self, method: &str, params: &Value) -> Result<PendingRequest, CallError> {
        let place = self.outgoing.reserve().await.map_err(|_| CallError::Gone)?;
        let (settle, settled) = oneshot::channel();
        let id = {
            let mut waiting = self.waiting();
            if waiting.ended {
                return Err(CallError::Gone);
            }
            waiting.next += 1;
            let id = waiting.next;
            waiting.requests.insert(id, settle);
            id
        };
        place.send(RpcMessage::request(id, method, params));
        Ok(PendingRequest {
            id,
            waiting: Arc::clone(&self.waiting),
            settled,
        })
    }

    /// Sends a notification, without waiting.
    pub(super) fn notify(&self, method: &str, params: &Value) -> Result<(), CallError> {
        self.post(RpcMessage::notification(method, params))
    }

    /// Sends a request whose response is ignored, without waiting.
    pub(super) fn request_detached(&self, method: &str, params: &Value) -> Result<(), CallError> {
        let id = {
            let mut waiting = self.waiting();
            waiting.next += 1;
            waiting.next
        };
        self.post(RpcMessage::request(id, method, params))
    }

    /// Sends a response, without waiting.
    pub(super) fn answer(&self, id: &Value, answer: Result<Value, RpcError>) -> Result<(), CallError> {
        self.post(RpcMessage::answer(id, answer))
    }

    /// Whether the connection has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the connection has ended. Cancel-safe.
    pub(super) async fn gone(&self) {
        self.ended.cancelled().await;
    }

    /// Ends the connection: settles every waiter, and closes the other side's input.
    pub(super) fn end(&self) {
        let requests = {
            let mut waiting = self.waiting();
            waiting.ended = true;
            std::mem::take(&mut waiting.requests)
        };
        drop(requests);
        self.ended.cancel();
    }

    fn settle(&self, id: u64, answer: Result<Value, CallError>) {
        let waiter = self.waiting().requests.remove(&id);
        if let Some(waiter) = waiter {
            let _ = waiter.send(answer);
        }
    }

    fn post(&self, line: Vec<u8>) -> Result<(), CallError> {
        self.outgoing.try_send(line).map_err(|_| CallError::Gone)
    }

    fn waiting(&self) -> MutexGuard<'_, PendingRequests> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is not answered yet. Dropping it means that the answer is not wanted any more.
#[derive(Debug)]
pub(super) struct PendingRequest {
    id: u64,
    waiting: Arc<Mutex<PendingRequests>>,
    settled: oneshot::Receiver<Result<Value, CallError>>,
}

impl Future for PendingRequest {
    type Output = Result<Value, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.settled)
            .poll(context)
            .map(|settled| match settled {
                Ok(answer) => answer,
                Err(_) => Err(CallError::Gone),
            })
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.requests.remove(&self.id);
    }
}

async fn read<R: AsyncRead + Unpin>(
    agent: String,
    reader: R,
    longest: usize,
    peer: RpcPeer,
    handler: Arc<dyn MessageHandler>,
) {
    let mut lines = LineReader::new(reader, longest);
    let mut invalid = 0_u64;
    loop {
        let line = tokio::select! {
            biased;
            () = peer.gone() => break,
            // Dropped only when the connection ends.
            line = lines.next() => line,
        };
        match line {
            Ok(Some(AgentLine::Whole(line))) => match RpcMessage::read(line) {
                Some(message) => handle(message, &peer, &*handler),
                None => match SkippedMessage::read_broken(line) {
                    Some(message) => {
                        tracing::warn!(agent, what = %message, "the agent wrote a message that is not valid JSON; it was skipped");
                        skip(&message, "it is not valid JSON", &peer, &*handler);
                    }
                    None => invalid += 1,
                },
            },
            Ok(Some(AgentLine::TooLong { head, size })) => {
                let message = SkippedMessage::read(head);
                tracing::warn!(
                    agent,
                    bytes = size,
                    limit = longest,
                    what = message.as_ref().map(tracing::field::display),
                    "the agent wrote a line that is too long; it was skipped"
                );
                if let Some(message) = &message {
                    let why = format!("it is too long: a line may have {longest} bytes");
                    skip(message, &why, &peer, &*handler);
                }
            }
            Ok(None) | Err(_) => break,
        }
    }
    if invalid > 0 {
        tracing::debug!(agent, invalid, "the agent wrote lines that are not messages");
    }
    peer.end();
}

fn handle(message: RpcMessage, peer: &RpcPeer, handler: &dyn MessageHandler) {
    match message {
        RpcMessage::Answer { id, answer } => peer.settle(id, answer.map_err(CallError::Refused)),
        RpcMessage::Request { id, method, params } => {
            if let Some(answer) = handler.requested(id.clone(), &method, params) {
                let _ = peer.answer(&id, answer);
            }
        }
        RpcMessage::Notification { method, params } => handler.notified(&method, params),
    }
}

/// Nobody waits for what cannot be read.
fn skip(message: &SkippedMessage, why: &str, peer: &RpcPeer, handler: &dyn MessageHandler) {
    handler.skipped(message);
    match message {
        SkippedMessage::Answer { id } => peer.settle(*id, Err(CallError::Unread)),
        SkippedMessage::Request { id, .. } => {
            let error = RpcError {
                code: INVALID_REQUEST,
                message: format!("the request cannot be read: {why}"),
            };
            let _ = peer.answer(id, Err(error));
        }
        SkippedMessage::Notification { .. } => {}
        SkippedMessage::Unknown => peer.unread.notify_waiters(),
    }
}

async fn write<W: AsyncWrite + Unpin>(mut writer: W, mut lines: mpsc::Receiver<Vec<u8>>, peer: RpcPeer) {
    loop {
        let line = tokio::select! {
            biased;
            () = peer.gone() => break,
            line = lines.recv() => line,
        };
        let Some(line) = line else { break };
        let written = tokio::select! {
            biased;
            () = peer.gone() => break,
            // Dropped only when the connection ends.
            written = async {
                writer.write_all(&line).await?;
                writer.flush().await
            } => written,
        };
        if written.is_err() {
            break;
        }
    }
    peer.end();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::super::message::METHOD_NOT_FOUND;
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[derive(Default)]
    struct MethodLog(Mutex<Vec<String>>);

    impl MessageHandler for MethodLog {
        fn notified(&self, method: &str, _: Value) {
            self.0.lock().unwrap().push(method.to_owned());
        }

        fn skipped(&self, message: &SkippedMessage) {
            self.0.lock().unwrap().push(format!("skipped {message}"));
        }

        fn requested(&self, id: Value, method: &str, _: Value) -> Option<Result<Value, RpcError>> {
            self.0.lock().unwrap().push(format!("{id} {method}"));
            (method != "later").then(|| {
                Err(RpcError {
                    code: METHOD_NOT_FOUND,
                    message: "no".to_owned(),
                })
            })
        }
    }

    struct Other {
        reader: BufReader<DuplexStream>,
        writer: DuplexStream,
    }

    impl Other {
        async fn line(&mut self) -> Value {
            let mut line = String::new();
            timeout(SOON, self.reader.read_line(&mut line))
                .await
                .unwrap()
                .unwrap();
            serde_json::from_str(&line).unwrap()
        }

        async fn write(&mut self, text: &str) {
            timeout(SOON, self.writer.write_all(text.as_bytes()))
                .await
                .unwrap()
                .unwrap();
        }
    }

    fn connect(limits: RpcLimits) -> (RpcConnection, Other, Arc<MethodLog>) {
        let (ours, theirs) = duplex(4096);
        let (their_writer, our_reader) = duplex(4096);
        let seen = Arc::new(MethodLog::default());
        let connection = RpcConnection::start(
            "tested",
            our_reader,
            ours,
            Arc::clone(&seen) as Arc<dyn MessageHandler>,
            limits,
        );
        let other = Other {
            reader: BufReader::new(theirs),
            writer: their_writer,
        };
        (connection, other, seen)
    }

    #[tokio::test]
    async fn answers_find_their_waiters_in_any_order_among_junk() {
        let (connection, mut other, seen) = connect(RpcLimits::default());
        let peer = connection.peer();
        let first = peer.start_call("a", &Value::Null).await.unwrap();
        let second = peer.start_call("b", &Value::Null).await.unwrap();
        assert_eq!(other.line().await["id"], 1);
        assert_eq!(other.line().await["method"], "b");
        other
            .write("starting up...\n\n[]\n{\"id\":99,\"result\":1}\n")
            .await;
        other
            .write("{\"method\":\"_vendor/thing\"}\n{\"id\":\"2\",\"result\":2}\n{\"id\":1,\"result\":1}\n")
            .await;
        assert_eq!(timeout(SOON, first).await.unwrap(), Ok(json!(1)));
        assert_eq!(timeout(SOON, second).await.unwrap(), Ok(json!(2)));
        assert_eq!(*seen.0.lock().unwrap(), ["_vendor/thing"]);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_line_that_is_too_long_and_the_connection_goes_on() {
        let (connection, mut other, seen) = connect(RpcLimits {
            line: 4000,
            ..RpcLimits::default()
        });
        let peer = connection.peer();
        let first = peer.start_call("a", &Value::Null).await.unwrap();
        let second = peer.start_call("b", &Value::Null).await.unwrap();
        for _ in 0..2 {
            other.line().await;
        }
        let long = "x".repeat(5000);
        for begin in [
            r#"{"id":1,"result":""#,
            r#"{"id":"q","method":"ask","params":""#,
            r#"{"method":"tell","params":""#,
            r#"{"params":""#,
            "no message",
        ] {
            other.write(&format!("{begin}{long}\"}}\n")).await;
        }
        other.write("{\"id\":2,\"result\":2}\n").await;
        assert_eq!(timeout(SOON, first).await.unwrap(), Err(CallError::Unread));
        assert_eq!(timeout(SOON, second).await.unwrap(), Ok(json!(2)));
        let refused = other.line().await;
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!("q"), &json!(INVALID_REQUEST))
        );
        assert_eq!(
            *seen.0.lock().unwrap(),
            [
                "skipped an answer",
                "skipped a request",
                "skipped a notification",
                "skipped a notification"
            ]
        );
    }

    #[tokio::test]
    async fn a_call_does_not_wait_on_after_a_line_that_may_have_been_its_answer() {
        let long = format!(r#"{{"result":"{}"}}"#, "x".repeat(5000));
        let limits = RpcLimits {
            line: 4000,
            ..RpcLimits::default()
        };
        for (line, error) in [
            (long.as_str(), Some(CallError::MaybeUnread)),
            (
                r#"{"jsonrpc":"2.0","result":"\ud83d","id":1}"#,
                Some(CallError::MaybeUnread),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":"\ud83d"}"#,
                Some(CallError::Unread),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"session/update","params":NaN}"#,
                None,
            ),
            ("{ answers: NaN }", None),
        ] {
            let (connection, mut other, _) = connect(limits);
            let peer = connection.peer().clone();
            let call = tokio::spawn(async move { peer.call("session/new", &Value::Null).await });
            other.line().await;
            // Its caller hears of the line otherwise.
            let prompt = connection.peer().start_call("session/prompt", &Value::Null);
            let prompt = prompt.await.unwrap();
            other.line().await;
            other.write(&format!("{line}\n")).await;
            if error.is_none() {
                other.write("{\"id\":1,\"result\":1}\n").await;
            }
            let answer = timeout(SOON, call).await.unwrap().unwrap();
            assert_eq!(answer, error.map_or(Ok(json!(1)), Err), "{line}");
            other.write("{\"id\":2,\"result\":2}\n").await;
            assert_eq!(timeout(SOON, prompt).await.unwrap(), Ok(json!(2)), "{line}");
        }
    }

    #[tokio::test]
    async fn requests_with_any_id_are_answered_with_that_id() {
        let (connection, mut other, seen) = connect(RpcLimits::default());
        other
            .write("{\"id\":0,\"method\":\"m\"}\n{\"id\":\"x\",\"method\":\"later\"}\n")
            .await;
        let answer = other.line().await;
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(0), &json!(METHOD_NOT_FOUND))
        );
        // The second is answered when someone gets to it.
        let deadline = tokio::time::Instant::now() + SOON;
        while seen.0.lock().unwrap().len() < 2 {
            assert!(
                tokio::time::Instant::now() < deadline,
                "the request did not arrive"
            );
            tokio::task::yield_now().await;
        }
        connection
            .peer()
            .answer(&json!("x"), Ok(json!({"ok": true})))
            .unwrap();
        assert_eq!(
            other.line().await,
            json!({"jsonrpc": "2.0", "id": "x", "result": {"ok": true}})
        );
    }

    #[tokio::test]
    async fn every_waiter_is_settled_when_the_other_side_ends() {
        let (connection, other, _) = connect(RpcLimits::default());
        let peer = connection.peer().clone();
        let waiting: Vec<PendingRequest> = {
            let mut waiting = Vec::new();
            for _ in 0..20 {
                waiting.push(peer.start_call("never", &Value::Null).await.unwrap());
            }
            waiting
        };
        drop(other);
        for waiter in waiting {
            assert_eq!(timeout(SOON, waiter).await.unwrap(), Err(CallError::Gone));
        }
        timeout(SOON, peer.gone()).await.unwrap();
        assert_eq!(peer.call("more", &Value::Null).await, Err(CallError::Gone));
        assert!(peer.waiting().requests.is_empty());
    }

    #[tokio::test]
    async fn dropping_the_connection_settles_every_waiter_and_closes_their_input() {
        let (connection, mut other, _) = connect(RpcLimits::default());
        let waiter = connection.peer().start_call("never", &Value::Null).await.unwrap();
        drop(connection);
        assert_eq!(timeout(SOON, waiter).await.unwrap(), Err(CallError::Gone));
        let mut rest = Vec::new();
        let end = tokio::io::AsyncReadExt::read_to_end(&mut other.reader, &mut rest);
        timeout(SOON, end).await.expect("their input ends").unwrap();
    }

    #[tokio::test]
    async fn one_who_does_not_read_makes_requests_wait_and_the_rest_fail() {
        let (connection, _other, _) = connect(RpcLimits {
            outgoing: 2,
            ..RpcLimits::default()
        });
        let peer = connection.peer();
        let big = json!("x".repeat(10_000));
        while peer.notify("m", &big).is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(peer.notify("m", &big), Err(CallError::Gone));
        assert!(
            timeout(Duration::from_millis(20), peer.start_call("r", &big))
                .await
                .is_err()
        );
        assert!(
            peer.waiting().requests.is_empty(),
            "a request that was not sent does not wait"
        );
    }

    #[tokio::test]
    async fn a_cancelled_request_leaves_nothing_behind() {
        let (connection, _other, _) = connect(RpcLimits::default());
        let waiter = connection.peer().start_call("slow", &Value::Null).await.unwrap();
        assert_eq!(connection.peer().waiting().requests.len(), 1);
        drop(waiter);
        assert!(connection.peer().waiting().requests.is_empty());
    }
}
