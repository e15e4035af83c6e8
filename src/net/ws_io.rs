//! A WebSocket split into a reader and a writer.
//!
//! Neither half interprets messages. Pings are answered while the reader is being polled.

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

use super::socket::ConnectorSocket;

/// An event of the reading half.
#[derive(Debug)]
pub enum ReadEvent {
    /// A text or binary message.
    Data(Payload),
    /// A ping or pong.
    Alive,
    /// The peer closed the connection, with code and reason if it sent any.
    Closed(Option<(u16, String)>),
    /// A message of this size exceeds the limit; nothing after it can be read.
    TooLarge(usize),
    /// The connection failed with this error.
    Failed(String),
}

/// What is in a message: bytes, which are known to be text in a text message.
#[derive(Debug)]
pub enum Payload {
    /// Of a text message.
    Text(Utf8Bytes),
    /// Of a binary message, or the rest of any.
    Binary(Bytes),
}

impl Payload {
    /// The text, where it is known to be that.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Binary(_) => None,
        }
    }

    /// All but the first bytes, if there are more.
    pub fn after(self, taken: usize) -> Option<Self> {
        let mut bytes = match self {
            Self::Text(text) => Bytes::from(text),
            Self::Binary(bytes) => bytes,
        };
        (taken < bytes.len()).then(|| Self::Binary(bytes.split_off(taken)))
    }
}

impl std::ops::Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// Reading half.
#[derive(Debug)]
pub struct SocketReader(SplitStream<ConnectorSocket>);

/// Writing half.
#[derive(Debug)]
pub struct SocketWriter(SplitSink<ConnectorSocket, Message>);

/// The size of a client's frame with a payload of so many bytes.
pub fn frame_bytes(payload: usize) -> u64 {
    let length = match payload {
        0..=125 => 0,
        126..=0xffff => 2,
        _ => 8,
    };
    (2 + length + 4 + payload) as u64
}

/// Writing to the socket failed.
#[derive(Debug, thiserror::Error)]
#[error("writing to the socket failed: {0}")]
pub struct WriteFailed(String);

/// Splits a socket.
pub fn split(socket: ConnectorSocket) -> (SocketReader, SocketWriter) {
    let (writer, reader) = socket.split();
    (SocketReader(reader), SocketWriter(writer))
}

impl SocketReader {
    /// Reads the next event. Cancel-safe.
    pub async fn read(&mut self) -> ReadEvent {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => ReadEvent::Data(Payload::Text(text)),
            Some(Ok(Message::Binary(bytes))) => ReadEvent::Data(Payload::Binary(bytes)),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => ReadEvent::Alive,
            Some(Ok(Message::Close(frame))) => {
                ReadEvent::Closed(frame.map(|frame| (frame.code.into(), frame.reason.as_str().to_owned())))
            }
            Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) | None => ReadEvent::Closed(None),
            Some(Err(Error::Capacity(CapacityError::MessageTooLong { size, .. }))) => {
                ReadEvent::TooLarge(size)
            }
            Some(Err(error)) => ReadEvent::Failed(error.to_string()),
        }
    }

    /// Reads what is already available, without waiting.
    pub fn try_read(&mut self) -> Option<ReadEvent> {
        self.read().now_or_never()
    }
}

impl SocketWriter {
    /// Queues one line as one text message.
    pub async fn write_line(&mut self, line: String) -> Result<(), WriteFailed> {
        self.0.feed(Message::text(line)).await.map_err(failed)
    }

    /// Queues a ping.
    pub async fn ping(&mut self) -> Result<(), WriteFailed> {
        self.0.feed(Message::Ping(Bytes::new())).await.map_err(failed)
    }

    /// Flushes everything queued.
    pub async fn flush(&mut self) -> Result<(), WriteFailed> {
        self.0.flush().await.map_err(failed)
    }

    /// Sends a close frame.
    pub async fn close(&mut self, code: u16, reason: &'static str) -> Result<(), WriteFailed> {
        let frame = CloseFrame {
            code: CloseCode::from(code),
            reason: reason.into(),
        };
        self.0.send(Message::Close(Some(frame))).await.map_err(failed)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "shaped for map_err")]
fn failed(error: Error) -> WriteFailed {
    WriteFailed(error.to_string())
}

/// Both ends of an in-memory socket.
#[cfg(test)]
pub(crate) fn in_memory() -> (ConnectorSocket, ConnectorSocket) {
    use super::metered::MeteredStream;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let end = |stream, role| {
        let stream = MeteredStream::new(Box::new(stream), None);
        let socket = WebSocketStream::from_raw_socket(stream, role, None).now_or_never();
        socket.expect("it waits for nothing")
    };
    (end(ours, Role::Client), end(theirs, Role::Server))
}
