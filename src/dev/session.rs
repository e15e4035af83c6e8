//! One socket: reads lines, answers them, drains the buffer.
//!
//! Reading and writing go on side by side, so that a gateway which does not read is still heard. Whatever is
//! ready is taken together: one look at the state for many frames, one flush for many messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::faults::Denial;
use super::hear::Heard;
use super::record::ClosedBy;
use super::state::{Ending, Hub, MAX_OUTGOING, Seat};
use crate::wire::{Line, LineFramer};

type Socket = WebSocketStream<TcpStream>;

const READ_AT_ONCE: usize = 256;
const WRITE_AT_ONCE: usize = 1_024;
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Why a session ended.
enum End {
    Told(Ending),
    ByGateway(Option<CloseFrame>),
    Lost,
    Stopped,
}

/// Serves one accepted socket to its end.
pub(super) async fn serve(
    hub: Arc<Hub>,
    socket: TcpStream,
    early: Vec<u8>,
    gateway_id: Option<String>,
    denial: Option<Denial>,
) {
    let limit = hub.settings.max_message_bytes;
    let config = WebSocketConfig::default()
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit));
    let socket = Socket::from_partially_read(socket, early, Role::Server, Some(config)).await;
    let seat = hub.change(|state| state.seat(gateway_id, denial));
    let (mut sink, mut stream) = socket.split();
    let mut told = seat.ending.clone();
    let end = tokio::select! {
        biased;
        () = hub.stop.cancelled() => End::Stopped,
        ending = told.wait_for(Option::is_some) => {
            let ending = ending.ok().and_then(|ending| ending.clone());
            End::Told(ending.unwrap_or(Ending::Abort))
        }
        end = read(&hub, &seat, &mut stream) => end,
        end = write(&hub, &seat, &mut sink) => end,
    };
    if let Ok(socket) = sink.reunite(stream) {
        finish(&hub, &seat, socket, end).await;
    }
}

async fn finish(hub: &Hub, seat: &Seat, mut socket: Socket, end: End) {
    let (by, code, reason) = match &end {
        End::Told(Ending::Close { code, reason }) => (ClosedBy::Connector, Some(*code), reason.clone()),
        End::ByGateway(frame) => (
            ClosedBy::Gateway,
            frame.as_ref().map(|frame| frame.code.into()),
            frame
                .as_ref()
                .map(|frame| frame.reason.as_str().to_owned())
                .unwrap_or_default(),
        ),
        End::Told(Ending::Abort) | End::Lost | End::Stopped => (ClosedBy::Nobody, None, String::new()),
    };
    let queued = hub.change(|state| state.unseat(seat.id, by, code, reason));
    let farewell = async {
        match end {
            End::Told(Ending::Close { code, reason }) => {
                for message in queued {
                    if socket.feed(message).await.is_err() {
                        return;
                    }
                }
                let frame = CloseFrame {
                    code: CloseCode::from(code),
                    reason: reason.into(),
                };
                if socket.close(Some(frame)).await.is_ok() {
                    while let Some(Ok(_)) = socket.next().await {}
                }
            }
            End::ByGateway(_) => while let Some(Ok(_)) = socket.next().await {},
            End::Told(Ending::Abort) => {
                // Without lingering, the close is a reset, as when a machine or a middlebox dies.
                let _ = socket.get_ref().set_zero_linger();
            }
            End::Lost | End::Stopped => {}
        }
    };
    let _ = timeout(CLOSE_TIME, farewell).await;
}

async fn read(hub: &Hub, seat: &Seat, stream: &mut SplitStream<Socket>) -> End {
    let mut framer = LineFramer::new(hub.settings.max_message_bytes);
    let mut stalled = seat.stalled.clone();
    let mut messages = stream.ready_chunks(READ_AT_ONCE);
    loop {
        if stalled.wait_for(|stalled| !stalled).await.is_err() {
            return End::Lost;
        }
        room(hub, seat).await;
        let ready = tokio::select! {
            biased;
            _ = stalled.wait_for(|stalled| *stalled) => continue,
            ready = messages.next() => ready,
        };
        let Some(ready) = ready else {
            return End::Lost;
        };
        let mut heard = Vec::with_capacity(ready.len());
        let mut end = None;
        for message in ready {
            let mut feed = |bytes: &[u8]| {
                framer.feed(bytes, |line| match line {
                    Line::Whole(line) => heard.push(Heard::read(line)),
                    Line::TooLong { .. } => heard.push(Heard::too_long()),
                });
            };
            match message {
                Ok(Message::Text(text)) => feed(text.as_bytes()),
                Ok(Message::Binary(bytes)) => feed(&bytes),
                Ok(Message::Close(frame)) => end = Some(End::ByGateway(frame)),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Err(error) => {
                    end.get_or_insert(broken(&error));
                }
            }
        }
        hub.change(|state| state.hear(seat.id, heard, hub.settings.auto_answer));
        seat.wake.notify_one();
        if let Some(end) = end {
            return end;
        }
    }
}

/// Waits until less is queued than may be.
async fn room(hub: &Hub, seat: &Seat) {
    loop {
        let changed = hub.changed.notified();
        let queued = hub
            .lock()
            .connections
            .get(&seat.id)
            .map_or(0, |live| live.outgoing.len());
        if queued < MAX_OUTGOING {
            return;
        }
        changed.await;
    }
}

fn broken(error: &Error) -> End {
    match error {
        Error::Capacity(_) => End::Told(Ending::Close {
            code: 1009,
            reason: "message too big".to_owned(),
        }),
        _ => End::Lost,
    }
}

async fn write(hub: &Hub, seat: &Seat, sink: &mut SplitSink<Socket, Message>) -> End {
    let mut stalled = seat.stalled.clone();
    let quiet = hub.settings.ping_interval.filter(|every| !every.is_zero());
    let every = quiet.unwrap_or(Duration::from_secs(3_600));
    let mut ping = interval_at(tokio::time::Instant::now() + every, every);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if stalled.wait_for(|stalled| !stalled).await.is_err() {
            return End::Lost;
        }
        let (batch, next_due) = hub.change(|state| state.outgoing(seat.id, WRITE_AT_ONCE));
        if batch.is_empty() {
            tokio::select! {
                biased;
                () = seat.wake.notified() => {}
                () = until(next_due) => {}
                _ = ping.tick(), if quiet.is_some() => {
                    if silent_for(hub, seat) > every * 2 {
                        return End::Told(Ending::Close {
                            code: 1011,
                            reason: "keepalive ping timeout".to_owned(),
                        });
                    }
                    if sink.send(Message::Ping(Vec::new().into())).await.is_err() {
                        return End::Lost;
                    }
                }
            }
            continue;
        }
        for message in batch {
            if sink.feed(message).await.is_err() {
                return End::Lost;
            }
        }
        if sink.flush().await.is_err() {
            return End::Lost;
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

fn silent_for(hub: &Hub, seat: &Seat) -> Duration {
    let state = hub.lock();
    let live = state.connections.get(&seat.id);
    live.map(|live| live.heard.elapsed()).unwrap_or_default()
}
