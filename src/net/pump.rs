//! A dialled socket as two halves: one that hears, one that speaks.
//!
//! Neither half judges what travels. Pongs are answered by the hearing half as long as it is asked for more.

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::socket::Socket;

/// What came from the other end.
#[derive(Debug)]
pub enum Heard {
    /// A message's bytes, text or binary alike.
    Data(Bytes),
    /// A ping or pong.
    Sign,
    /// The other end closed, with its code and reason when it gave any.
    Closed(Option<(u16, String)>),
    /// A message of this many bytes is on its way, more than allowed; nothing after it can be read.
    TooLarge(usize),
    /// The socket broke.
    Broken(String),
}

/// The hearing half.
#[derive(Debug)]
pub struct SocketReader(SplitStream<Socket>);

/// The speaking half.
#[derive(Debug)]
pub struct SocketWriter(SplitSink<Socket, Message>);

/// The socket can no longer be written to.
#[derive(Debug, thiserror::Error)]
#[error("the socket cannot be written to: {0}")]
pub struct WriteFailed(String);

/// Takes a socket apart.
pub fn halves(socket: Socket) -> (SocketReader, SocketWriter) {
    let (writer, reader) = socket.split();
    (SocketReader(reader), SocketWriter(writer))
}

impl SocketReader {
    /// The next thing that comes. Dropping the future loses nothing.
    pub async fn hear(&mut self) -> Heard {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => Heard::Data(text.into()),
            Some(Ok(Message::Binary(bytes))) => Heard::Data(bytes),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Heard::Sign,
            Some(Ok(Message::Close(frame))) => {
                Heard::Closed(frame.map(|frame| (frame.code.into(), frame.reason.as_str().to_owned())))
            }
            Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) | None => Heard::Closed(None),
            Some(Err(Error::Capacity(CapacityError::MessageTooLong { size, .. }))) => Heard::TooLarge(size),
            Some(Err(error)) => Heard::Broken(error.to_string()),
        }
    }

    /// What has come already, without waiting.
    pub fn heard_already(&mut self) -> Option<Heard> {
        self.hear().now_or_never()
    }
}

impl SocketWriter {
    /// Queues one line as one text message.
    pub async fn line(&mut self, line: String) -> Result<(), WriteFailed> {
        self.0.feed(Message::text(line)).await.map_err(failed)
    }

    /// Queues a ping.
    pub async fn ping(&mut self) -> Result<(), WriteFailed> {
        self.0.feed(Message::Ping(Bytes::new())).await.map_err(failed)
    }

    /// Puts everything queued on the wire.
    pub async fn flush(&mut self) -> Result<(), WriteFailed> {
        self.0.flush().await.map_err(failed)
    }

    /// Says goodbye.
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

/// Both ends of a socket that never leaves this process.
#[cfg(test)]
pub(crate) fn in_memory() -> (Socket, Socket) {
    use super::socket::BoxedStream;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let end = |stream, role| {
        let stream: BoxedStream = Box::new(stream);
        let socket = WebSocketStream::from_raw_socket(stream, role, None).now_or_never();
        socket.expect("it waits for nothing")
    };
    (end(ours, Role::Client), end(theirs, Role::Server))
}
