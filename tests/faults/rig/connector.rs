//! A connector reduced to the wire: one gateway, no authentication, everything on request.
//!
//! It hears a connection to its very end even when it can no longer speak on it, so that nothing that a dying
//! gateway managed to say goes unnoticed.

use crate::support::wait::eventually;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hermes_relay::wire::{Action, GatewayFrame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::line;
use super::state::{DialFate, Ending, Judge, State};

/// How long a close may take.
const GOODBYE: Duration = Duration::from_millis(300);

#[derive(Clone)]
pub(crate) struct Connector {
    hub: Arc<Hub>,
    pub(crate) addr: SocketAddr,
}

struct Hub {
    state: Mutex<State>,
    /// Something is to be said, or a connection is to end.
    wake: Notify,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(task) = self.accepting.get_mut().expect("no panic while held").take() {
            task.abort();
        }
    }
}

impl Connector {
    /// A connector on a free port; to be called in a runtime.
    pub(crate) fn start(state: State) -> Self {
        Self::start_with_receive_buffer(state, None)
    }

    /// The same with a receive buffer of so many bytes, so that a gateway soon finds it full.
    pub(crate) fn start_with_receive_buffer(state: State, receive_buffer: Option<u32>) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes).expect("a smaller buffer");
        }
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let listener = socket.listen(64).expect("a listener");
        let addr = listener.local_addr().expect("its address");
        let hub = Arc::new(Hub {
            state: Mutex::new(state),
            wake: Notify::new(),
            accepting: Mutex::new(None),
        });
        let task = tokio::spawn(accept(listener, Arc::downgrade(&hub)));
        *hub.accepting.lock().expect("no panic while held") = Some(task);
        Self { hub, addr }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.addr)
    }

    /// The state, to look at or to change.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.hub.state.lock().expect("no panic while held")
    }

    /// Says what is to be said.
    pub(crate) fn wake(&self) {
        self.hub.wake.notify_waiters();
    }

    pub(crate) fn push(&self, chat: usize, text: impl Into<String>) -> usize {
        let number = self.state().push(chat, text.into());
        self.wake();
        number
    }

    pub(crate) fn answer_with(&self, judge: Judge) {
        self.state().judge = judge;
    }

    pub(crate) fn interrupt(&self, chat: usize) {
        let interrupt = line::interrupt(&line::session_key(chat), &line::chat(chat));
        let mut state = self.state();
        let open: Vec<u64> = state.open.keys().copied().collect();
        for connection in open {
            state.say(connection, interrupt.clone());
        }
        drop(state);
        self.wake();
    }

    pub(crate) fn end_all(&self, ending: Ending) {
        for live in self.state().open.values_mut() {
            live.ending = Some(ending);
        }
        self.wake();
    }

    /// Waits until every connection was heard to its end.
    pub(crate) async fn all_read(&self) {
        eventually("every connection read to its end", async || {
            self.state().open.is_empty().then_some(())
        })
        .await;
    }
}

async fn accept(listener: TcpListener, hub: std::sync::Weak<Hub>) {
    while let Ok((socket, _)) = listener.accept().await {
        let Some(hub) = hub.upgrade() else { return };
        let fate = {
            let mut state = hub.state.lock().expect("no panic while held");
            state.dials.pop_front().unwrap_or(DialFate::Accept)
        };
        tokio::spawn(async move {
            match fate {
                DialFate::Accept => serve(hub, socket).await,
                DialFate::Reset => {
                    let _ = socket.set_zero_linger();
                }
                DialFate::Refuse(status) => refuse(socket, status).await,
            }
        });
    }
}

async fn refuse(mut socket: TcpStream, status: u16) {
    let mut request = [0; 4096];
    let _ = socket.read(&mut request).await;
    let answer = format!("HTTP/1.1 {status} Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let _ = socket.write_all(answer.as_bytes()).await;
}

async fn serve(hub: Arc<Hub>, socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let Ok(socket) = tokio_tungstenite::accept_async(socket).await else {
        return;
    };
    let connection = lock(&hub).open_connection();
    let (mut sink, mut stream) = socket.split();
    let ending = {
        let reading = async {
            let mut kept = Vec::new();
            while let Some(Ok(message)) = next_message(&hub, &mut stream).await {
                match message {
                    Message::Text(text) => take_bytes(&hub, connection, &mut kept, text.as_bytes()),
                    Message::Binary(bytes) => take_bytes(&hub, connection, &mut kept, &bytes),
                    _ => {}
                }
            }
            None
        };
        tokio::select! {
            biased;
            ending = wait_for_end(&hub, connection) => Some(ending),
            ending = reading => ending,
            // Does not end: a connection that cannot be written to is still read.
            () = write_frames(&hub, connection, &mut sink) => None,
        }
    };
    if let (Some(ending), Ok(socket)) = (ending, sink.reunite(stream)) {
        close_socket(socket, ending).await;
    }
    lock(&hub).close_connection(connection);
}

async fn close_socket(mut socket: WebSocketStream<TcpStream>, ending: Ending) {
    match ending {
        Ending::Reset => {
            let _ = socket.get_ref().set_zero_linger();
        }
        Ending::Close(code) => {
            let frame = CloseFrame {
                code: code.into(),
                reason: "on request".into(),
            };
            let closing = async {
                if socket.close(Some(frame)).await.is_ok() {
                    while let Some(Ok(_)) = socket.next().await {}
                }
            };
            let _ = tokio::time::timeout(GOODBYE, closing).await;
        }
        // The header of a long text frame, and the beginning of the text.
        Ending::HalfFrame => {
            let _ = socket.get_mut().write_all(b"\x81\x7e\x10\x00{\"type\":").await;
        }
    }
}

/// The next message, once reading is enabled.
async fn next_message(
    hub: &Hub,
    stream: &mut SplitStream<WebSocketStream<TcpStream>>,
) -> Option<Result<Message, Error>> {
    loop {
        let woken = hub.wake.notified();
        if !lock(hub).reads_paused {
            return stream.next().await;
        }
        woken.await;
    }
}

async fn wait_for_end(hub: &Hub, connection: u64) -> Ending {
    loop {
        let woken = hub.wake.notified();
        if let Some(ending) = lock(hub).open.get(&connection).and_then(|live| live.ending) {
            return ending;
        }
        woken.await;
    }
}

fn take_bytes(hub: &Arc<Hub>, connection: u64, kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.extend_from_slice(bytes);
    let Some(end) = kept.iter().rposition(|byte| *byte == b'\n') else {
        return;
    };
    let lines: Vec<u8> = kept.drain(..=end).collect();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match GatewayFrame::decode(line) {
            Ok(GatewayFrame::Hello { platform, .. }) => lock(hub).hello(connection, &platform),
            Ok(GatewayFrame::InboundAck { buffer_id }) => lock(hub).ack(connection, &buffer_id),
            Ok(GatewayFrame::GoingIdle) => {
                lock(hub).say(connection, "{\"type\":\"going_idle_ack\"}\n".to_owned());
            }
            Ok(GatewayFrame::Outbound {
                request_id, action, ..
            }) => outbound(hub, connection, &request_id, action.get()),
            Ok(GatewayFrame::Interrupt { .. } | GatewayFrame::LinkResult { .. }) => {}
            Err(error) => panic!("a gateway said something that is no frame: {error}"),
        }
    }
    hub.wake.notify_waiters();
}

fn outbound(hub: &Arc<Hub>, connection: u64, request_id: &str, action: &str) {
    let (chat_id, content, reply_to) = match serde_json::from_str(action) {
        Ok(Action::Send {
            chat_id,
            content,
            reply_to,
            ..
        }) => (chat_id, content, reply_to),
        // Only for show: done, and not counted.
        Ok(Action::React { .. } | Action::Typing { .. }) => {
            return lock(hub).say(connection, line::result(request_id));
        }
        _ => panic!("only whole answers are expected here, not {action}"),
    };
    let fate = lock(hub).op(connection, request_id, &chat_id, reply_to.as_deref(), &content);
    let Some((delay, answers)) = fate else { return };
    let result = line::result(request_id);
    if delay.is_zero() {
        return lock(hub).answer(connection, result, answers);
    }
    let hub = Arc::clone(hub);
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        lock(&hub).answer(connection, result, answers);
        hub.wake.notify_waiters();
    });
}

async fn write_frames(hub: &Hub, connection: u64, sink: &mut SplitSink<WebSocketStream<TcpStream>, Message>) {
    loop {
        let woken = hub.wake.notified();
        let texts = lock(hub).outgoing(connection);
        if texts.is_empty() {
            woken.await;
            continue;
        }
        for text in texts {
            if sink.feed(Message::text(text)).await.is_err() {
                return std::future::pending().await;
            }
        }
        if sink.flush().await.is_err() {
            return std::future::pending().await;
        }
    }
}

fn lock(hub: &Hub) -> MutexGuard<'_, State> {
    hub.state.lock().expect("no panic while held")
}
