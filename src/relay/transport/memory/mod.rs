//! A transport without a network: two parts of one process, for tests and embedders.
//!
//! [`MemoryTransport`] is the relay's half and keeps the contract's promises: acknowledgements go back on the connection
//! that brought the frame, an op whose connection is lost has an unknown outcome, and a new connection brings again what
//! was not acknowledged. [`MemoryConnector`] is the other half: it delivers, drops and restores the connection, answers ops,
//! and records what it saw. Nothing here looks into a message.

mod connector;

pub use connector::{DeliverError, MemoryConnector, Record, ReplyMode, SeenOp};

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use smol_str::SmolStr;

use super::{
    FrameSorter, InboundFrame, InboundSender, LinkStatus, RelayFrame, RelayTransport, ResultSender,
    TransportFuture,
};
use crate::collections::IdMap;
use crate::link::{DormancyRefused, Generation, NotSent, Op, SendResult};
use crate::wire::{CapabilityDescriptor, ConnectorFrame, OpId, Outcome};

/// Frames that wait for the relay on one connection.
const MAX_FRAMES: usize = 1024;
/// Deliveries that may be unacknowledged.
const MAX_UNACKNOWLEDGED: usize = 65_536;
/// Ops that may be in flight.
const MAX_IN_FLIGHT: usize = 65_536;
/// Deliveries handed over together.
const BATCH: usize = 256;

/// The relay's half of a connection inside one process.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use hermes_relay::{MemoryTransport, Relay, Settings, chat::CapabilityDescriptor};
/// use serde_json::json;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let state = tempfile::tempdir()?;
/// let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
/// let relay = Relay::builder(Settings::embedded(state.path()))
///     .transport(Arc::new(transport))
///     .build()?;
/// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
/// let running = tokio::spawn(relay.run(async { drop(stopped.await) }));
///
/// let event = json!({
///     "text": "hello",
///     "message_id": "m1",
///     "source": {"platform": "discord", "chat_id": "c1", "chat_type": "dm", "user_id": "u1"},
/// });
/// connector.deliver_buffered("b1", event).await?;
/// let within = Duration::from_secs(10);
/// let seen = connector.wait_for(within, |seen| !seen.ops.is_empty()).await.expect("an answer");
/// assert_eq!(seen.ops[0].text(), Some("echo: hello"));
/// assert_eq!(seen.acks, ["b1"]);
///
/// drop(stop);
/// running.await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryTransport(Arc<Pipe>);

impl MemoryTransport {
    /// Both halves. The connector declares these descriptors at every handshake; the first is the primary.
    pub fn pair(
        descriptors: impl IntoIterator<Item = CapabilityDescriptor>,
    ) -> (MemoryTransport, MemoryConnector) {
        let pipe = Arc::new(Pipe::new(descriptors.into_iter().collect()));
        (Self(Arc::clone(&pipe)), MemoryConnector::new(pipe))
    }
}

impl RelayTransport for MemoryTransport {
    fn connect(&self, inbound: InboundSender) {
        let mut state = self.0.lock();
        if state.relay.is_none() {
            state.relay = Some((Handle::current(), inbound));
            self.0.establish(&mut state);
        }
    }

    fn status(&self) -> watch::Receiver<LinkStatus> {
        self.0.status.subscribe()
    }

    fn submit(&self, op: Op, results: ResultSender) {
        self.0.submit(&op, results);
    }

    fn acknowledge(&self, generation: Generation, buffer_id: String) {
        self.0.acknowledge(generation, buffer_id);
    }

    fn send_interrupt(&self, session_key: String, _reason: Option<String>) {
        self.0.record_interrupt(session_key);
    }

    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool> {
        let answer = self.0.request_idle();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => timeout(within, self.0.idle_answered()).await.unwrap_or(false),
            }
        })
    }

    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        Box::pin(std::future::ready(self.0.go_dormant()))
    }

    fn wake(&self) {
        self.0
            .reopen(|connection| matches!(connection, MemoryConnection::Asleep));
    }

    fn reconnect(&self) {
        let mut state = self.0.lock();
        if matches!(state.connection, MemoryConnection::Live(_)) {
            self.0.end(&mut state, MemoryConnection::Open, "waiting");
            self.0.establish(&mut state);
        }
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        Box::pin(async move {
            // After the timeout, what is still in flight ends with an unknown outcome below.
            let _ = timeout(within, self.0.drained()).await;
            self.0.close();
        })
    }
}

/// Whether a frame outlives its connection.
#[derive(Debug)]
enum Keep {
    /// It does not.
    No,
    /// It does, until this buffer id is acknowledged.
    Until(String),
}

/// What lies between the halves: the connection, what is in flight on it, and what is kept for the next one.
///
/// One lock guards it, held for moments and never across an await. The record and the status are published under it, so
/// that they are in order; nobody who reads them takes the lock meanwhile.
#[derive(Debug)]
struct Pipe {
    descriptors: Vec<CapabilityDescriptor>,
    state: Mutex<MemoryState>,
    status: watch::Sender<LinkStatus>,
    record: watch::Sender<Record>,
}

#[derive(Debug)]
struct MemoryState {
    /// The relay's end, once it has asked for a connection.
    relay: Option<(Handle, InboundSender)>,
    connection: MemoryConnection,
    last_generation: Option<Generation>,
    reply_mode: ReplyMode,
    replies: u64,
    in_flight: IdMap<OpId, ResultSender>,
    /// Ops in flight, oldest first.
    order: VecDeque<OpId>,
    unacknowledged: VecDeque<(String, Vec<u8>)>,
    hold_idle: bool,
    buffering: bool,
}

/// The state of the connection.
#[derive(Debug)]
enum MemoryConnection {
    /// It is made when the relay asks.
    Open,
    /// It is live.
    Live(LiveConnection),
    /// The connector accepts none.
    Down,
    /// The relay closed it to sleep.
    Asleep,
    /// It is over for good.
    Closed,
}

#[derive(Debug)]
struct LiveConnection {
    sorter: FrameSorter,
    frames: mpsc::Sender<RelayFrame>,
    pump: AbortHandle,
}

impl LiveConnection {
    /// A line as the relay gets it; `None` for frames that are the transport's business.
    fn decode(&mut self, line: &[u8]) -> Option<RelayFrame> {
        decode(&mut self.sorter, line)
    }
}

fn decode(sorter: &mut FrameSorter, line: &[u8]) -> Option<RelayFrame> {
    match ConnectorFrame::decode(line) {
        Ok(frame) => sorter.sort(frame, line),
        Err(error) => Some(RelayFrame::Inbound(sorter.undecodable(error, line))),
    }
}

/// Hands frames to the relay: interrupts past frames, frames in batches at the relay's pace.
async fn pump(mut frames: mpsc::Receiver<RelayFrame>, inbound: InboundSender) {
    let mut batch: Vec<InboundFrame> = Vec::new();
    loop {
        let frame = if batch.is_empty() {
            frames.recv().await
        } else {
            tokio::select! {
                biased;
                frame = frames.recv(), if batch.len() < BATCH => frame,
                permit = inbound.frames.reserve() => {
                    let Ok(permit) = permit else { return };
                    permit.send(std::mem::take(&mut batch));
                    continue;
                }
            }
        };
        match frame {
            Some(RelayFrame::Inbound(frame)) => batch.push(frame),
            Some(RelayFrame::Interrupt(interrupt)) => {
                if inbound.interrupt(interrupt).await.is_err() {
                    return;
                }
            }
            None => {
                let _ = inbound.forward(batch).await;
                return;
            }
        }
    }
}

impl Pipe {
    fn new(descriptors: Vec<CapabilityDescriptor>) -> Self {
        Self {
            descriptors,
            state: Mutex::new(MemoryState {
                relay: None,
                connection: MemoryConnection::Open,
                last_generation: None,
                reply_mode: ReplyMode::default(),
                replies: 0,
                in_flight: IdMap::default(),
                order: VecDeque::new(),
                unacknowledged: VecDeque::new(),
                hold_idle: false,
                buffering: false,
            }),
            status: watch::Sender::new(LinkStatus::starting()),
            record: watch::Sender::new(Record::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects again, where the connection is of this kind.
    fn reopen(&self, which: impl FnOnce(&MemoryConnection) -> bool) {
        let mut state = self.lock();
        if which(&state.connection) {
            state.connection = MemoryConnection::Open;
            self.establish(&mut state);
        }
    }

    fn drop_connection(&self) {
        let mut state = self.lock();
        match state.connection {
            MemoryConnection::Live(_) => self.end(&mut state, MemoryConnection::Down, "waiting"),
            MemoryConnection::Open | MemoryConnection::Asleep => state.connection = MemoryConnection::Down,
            MemoryConnection::Down | MemoryConnection::Closed => {}
        }
    }

    fn close(&self) {
        let mut state = self.lock();
        self.end(&mut state, MemoryConnection::Closed, "closed");
        state.relay = None;
        self.status.send_modify(LinkStatus::closed);
        self.record.send_modify(|record| record.closed = true);
    }

    /// Waits until nothing is in flight.
    async fn drained(&self) {
        // We hold the sender ourselves, so waiting cannot fail.
        let _ = self
            .record
            .subscribe()
            .wait_for(|record| record.in_flight == 0)
            .await;
    }

    fn go_dormant(&self) -> Result<(), DormancyRefused> {
        let mut state = self.lock();
        if !matches!(state.connection, MemoryConnection::Live(_)) {
            return Err(DormancyRefused::NotLive);
        }
        if !state.buffering {
            return Err(DormancyRefused::NotBuffering);
        }
        if !state.in_flight.is_empty() {
            return Err(DormancyRefused::Busy);
        }
        self.end(&mut state, MemoryConnection::Asleep, "dormant");
        Ok(())
    }

    /// Whether the connector buffers; `None` while it has not answered.
    fn request_idle(&self) -> Option<bool> {
        let mut state = self.lock();
        if !matches!(state.connection, MemoryConnection::Live(_)) {
            return Some(false);
        }
        state.buffering |= !state.hold_idle;
        self.record.send_modify(|record| {
            record.idles += 1;
            record.buffering = state.buffering;
        });
        state.buffering.then_some(true)
    }

    /// Waits until the connector confirms that it buffers; `false` when its connection is lost first.
    async fn idle_answered(&self) -> bool {
        let mut record = self.record.subscribe();
        let answered = record
            .wait_for(|record| record.buffering || !record.connected)
            .await;
        answered.is_ok_and(|record| record.buffering)
    }

    fn hold_idle(&self, hold: bool) {
        let mut state = self.lock();
        state.hold_idle = hold;
        if matches!(state.connection, MemoryConnection::Live(_)) {
            self.record.send_modify(|record| {
                state.buffering |= !hold && record.idles > 0;
                record.buffering = state.buffering;
            });
        }
    }

    fn submit(&self, op: &Op, results: ResultSender) {
        let mut state = self.lock();
        let refusal = match state.connection {
            MemoryConnection::Live(_) if state.in_flight.contains_key(&op.id) => {
                Some(NotSent::AlreadyInFlight)
            }
            MemoryConnection::Live(_) if state.in_flight.len() >= MAX_IN_FLIGHT => Some(NotSent::Full),
            MemoryConnection::Live(_) => None,
            MemoryConnection::Closed => Some(NotSent::Closing),
            MemoryConnection::Open | MemoryConnection::Down | MemoryConnection::Asleep => {
                Some(NotSent::NotLive)
            }
        };
        if let Some(reason) = refusal {
            // The sender keeps no more ops in flight than its channel holds.
            let _ = results.try_send((op.id, SendResult::NotSent(reason)));
            return;
        }
        state.replies += 1;
        let message_id = format!("out-{}", state.replies);
        let action: Value = serde_json::from_str(op.action.as_str()).unwrap_or(Value::Null);
        let result = match &state.reply_mode {
            ReplyMode::Apply if action["op"] == "thread_create" => {
                let thread_id = format!("thread-{}", state.replies);
                Some(json!({"success": true, "thread_id": thread_id}))
            }
            ReplyMode::Apply => Some(json!({"success": true, "message_id": message_id})),
            ReplyMode::Refuse(error) => Some(json!({"success": false, "error": error})),
            ReplyMode::Hold => None,
        };
        state.in_flight.insert(op.id, results);
        state.order.push_back(op.id);
        let seen = SeenOp {
            id: op.id,
            message_id,
            platform: op.platform.as_ref().map(SmolStr::to_string),
            bot_id: op.bot_id.as_ref().map(SmolStr::to_string),
            action,
        };
        self.record.send_modify(|record| {
            Record::keep(&mut record.ops, seen);
            record.in_flight = state.in_flight.len();
        });
        if let Some(result) = result {
            self.complete(&mut state, op.id, answered(op.id, &result));
        }
    }

    fn answer(&self, op: OpId, result: &Value) -> bool {
        self.complete(&mut self.lock(), op, answered(op, result))
    }

    fn acknowledge(&self, generation: Generation, buffer_id: String) {
        let mut state = self.lock();
        if matches!(&state.connection, MemoryConnection::Live(live) if live.sorter.generation == generation) {
            state.unacknowledged.retain(|(kept, _)| *kept != buffer_id);
            self.record.send_modify(|record| {
                record.unacknowledged = state.unacknowledged.len();
                Record::keep(&mut record.acks, buffer_id);
            });
        }
    }

    fn record_interrupt(&self, session_key: String) {
        let state = self.lock();
        if matches!(state.connection, MemoryConnection::Live(_)) {
            self.record
                .send_modify(|record| Record::keep(&mut record.interrupts, session_key));
        }
    }

    async fn deliver(&self, line: Vec<u8>, keep: Keep) -> Result<(), DeliverError> {
        let (queue, frame, outlives) = {
            let mut state = self.lock();
            let outlives = matches!(keep, Keep::Until(_));
            if matches!(state.connection, MemoryConnection::Closed) {
                return Err(DeliverError::Closed);
            }
            if let Keep::Until(buffer_id) = keep {
                if state.unacknowledged.len() >= MAX_UNACKNOWLEDGED {
                    return Err(DeliverError::Full);
                }
                state.unacknowledged.push_back((buffer_id, line.clone()));
                self.record
                    .send_modify(|record| record.unacknowledged = state.unacknowledged.len());
            }
            let MemoryConnection::Live(current) = &mut state.connection else {
                return if outlives {
                    Ok(())
                } else {
                    Err(DeliverError::NotConnected)
                };
            };
            (current.frames.clone(), current.decode(&line), outlives)
        };
        let Some(frame) = frame else { return Ok(()) };
        match queue.send(frame).await {
            Err(_) if !outlives => Err(DeliverError::NotConnected),
            _ => Ok(()),
        }
    }

    /// Makes the connection, when both sides want it, and delivers again what is not acknowledged.
    fn establish(&self, state: &mut MemoryState) {
        let (MemoryConnection::Open, Some((runtime, inbound))) = (&state.connection, &state.relay) else {
            return;
        };
        let generation = state
            .last_generation
            .map_or(Generation::first(), Generation::next);
        let (frames, queue) = mpsc::channel(MAX_FRAMES.max(state.unacknowledged.len()));
        let mut sorter = FrameSorter::new(generation);
        for (_, line) in &state.unacknowledged {
            if let Some(frame) = decode(&mut sorter, line) {
                // There is room for all of them.
                let _ = frames.try_send(frame);
            }
        }
        state.last_generation = Some(generation);
        state.buffering = false;
        self.record.send_modify(|record| {
            record.connections += 1;
            (record.connected, record.buffering) = (true, false);
        });
        self.status.send_modify(|status| {
            status.counters.dials += 1;
            status.went_live(generation, self.descriptors.iter().cloned());
        });
        let pump = runtime.spawn(pump(queue, inbound.clone())).abort_handle();
        state.connection = MemoryConnection::Live(LiveConnection { sorter, frames, pump });
    }

    /// Ends the connection; the outcome of what was in flight on it is unknown.
    fn end(&self, state: &mut MemoryState, into: MemoryConnection, name: &str) {
        if let MemoryConnection::Live(live) = std::mem::replace(&mut state.connection, into) {
            live.pump.abort();
        }
        state.buffering = false;
        while let Some(op) = state.order.pop_front() {
            self.complete(state, op, SendResult::Lost);
        }
        self.status.send_modify(|status| {
            status.disconnected(name);
            status.last_loss = Some("the connection broke".to_owned());
        });
        self.record.send_modify(|record| {
            (record.connected, record.buffering) = (false, false);
        });
    }

    fn complete(&self, state: &mut MemoryState, op: OpId, result: SendResult) -> bool {
        let Some(results) = state.in_flight.remove(&op) else {
            return false;
        };
        while state
            .order
            .front()
            .is_some_and(|first| !state.in_flight.contains_key(first))
        {
            state.order.pop_front();
        }
        self.record
            .send_modify(|record| record.in_flight = state.in_flight.len());
        let _ = results.try_send((op, result));
        true
    }
}

/// What a result on the wire means; an unreadable one means nothing.
fn answered(op: OpId, result: &Value) -> SendResult {
    let frame = json!({"type": "outbound_result", "requestId": op.to_string(), "result": result});
    let outcome = match ConnectorFrame::decode(frame.to_string().as_bytes()) {
        Ok(ConnectorFrame::OutboundResult {
            result: Some(result), ..
        }) => Outcome::from(*result),
        _ => Outcome::Unknown,
    };
    SendResult::Answered(Box::new(outcome))
}
