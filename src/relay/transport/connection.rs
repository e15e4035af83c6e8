//! One open socket: a reader task and a writer task.
//!
//! The reader cuts lines and decodes frames. Frames of the link go to the driver, interrupts to the relay past everything
//! else, frames to the relay in order. While the relay is behind, the reader keeps reading until its backlog is full, so
//! that results and interrupts still get through; then it reports that it is blocked, and the network waits. However many
//! lines one message has, few are handled before other tasks get their turn. Nothing here decides anything.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    FrameBody, FrameCounters, FrameSorter, InboundFrame, InboundSender, InterruptRequest, RelayFrame,
};
use crate::collections::IdMap;
use crate::link::{ControlFrame, Generation};
use crate::net::metered::WriteMeter;
use crate::net::socket::ConnectorSocket;
use crate::net::ws_io::{Payload, ReadEvent, SocketReader, SocketWriter, WriteFailed, frame_bytes, split};
use crate::wire::{ConnectorFrame, Line, LineFramer, OpId, Undecodable};

/// Lines handled before what they brought is handed on.
const BATCH: usize = 256;
/// Bytes handled before what they brought is handed on; the line that they end in may be longer.
const BATCH_BYTES: usize = 256 * 1024;
/// Messages that are read before the first of them is handled.
const READ_AHEAD: usize = 16;
/// Bytes that are read before the first of them is handled; the message that they end in may be longer.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// Deliveries read ahead of the relay.
const MAX_BACKLOG: usize = 1024;
/// Bytes read ahead of the relay.
const MAX_BACKLOG_BYTES: usize = 8 * 1024 * 1024;
/// Events of the reader that wait for the driver.
const MAX_READER_EVENTS: usize = 16;
/// Commands that wait for the writer.
const MAX_WRITES: usize = 1024;
/// How long the closing handshake may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What the reader reports to the driver.
#[derive(Debug)]
pub(super) enum ReaderEvent {
    /// Frames for the link; none are a sign of life.
    Control {
        /// The frames.
        frames: Vec<ControlFrame>,
        /// The reader hands on nothing more until this is dropped: one of the frames is a descriptor, which the relay has to
        /// know before messages that came after it.
        until_known: Option<oneshot::Sender<()>>,
    },
    /// The backlog is full: nothing is read until the relay catches up.
    Blocked,
    /// Reading goes on.
    Resumed,
    /// A message of so many bytes came, more than allowed.
    TooLarge(usize),
    /// The socket is closed, with the peer's code and reason when it gave any.
    Closed(Option<(u16, String)>),
}

/// What the writer is asked to write.
#[derive(Debug)]
pub(super) enum WriteCommand {
    /// One line.
    Line(String),
    /// One line that carries an op.
    Op {
        /// The op.
        id: OpId,
        /// The line.
        line: String,
    },
    /// A ping.
    Ping,
}

/// How far each op in flight has come on its way out of this process.
///
/// The driver adds an op when it hands it to a connection's writer and removes it when the op has its result. The writer
/// asks before it touches the socket: an op that was removed meanwhile is not written, so its sender may rely on that.
#[derive(Debug, Default)]
pub(super) struct WriteTracker(Mutex<IdMap<OpId, (Generation, WriteState)>>);

/// How far one op has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteState {
    /// It waits for the writer.
    Queued,
    /// It was given to the socket, which buffers. Its first byte is at this position of the connection or later.
    Begun(u64),
    /// It left this process.
    Flushed,
}

impl WriteTracker {
    /// An op is handed to the writer of this connection.
    pub(super) fn queue(&self, op: OpId, generation: Generation) {
        self.lock().insert(op, (generation, WriteState::Queued));
    }

    /// The writer is about to write an op; `false` when it must not any more, or did so already: an op that had its result while it waited
    /// may be queued again beside itself.
    fn begin(&self, op: OpId, generation: Generation, position: u64) -> bool {
        match self.lock().get_mut(&op) {
            Some((on, state)) if *on == generation && *state == WriteState::Queued => {
                *state = WriteState::Begun(position);
                true
            }
            _ => false,
        }
    }

    /// These ops of this connection are out of this process.
    fn flushed(&self, ops: impl Iterator<Item = OpId>, generation: Generation) {
        let mut tracked = self.lock();
        for op in ops {
            if let Some((on, state @ WriteState::Begun(_))) = tracked.get_mut(&op)
                && *on == generation
            {
                *state = WriteState::Flushed;
            }
        }
    }

    /// The op has its result. Returns how far it had come.
    pub(super) fn finish(&self, op: OpId) -> WriteState {
        let state = self.lock().remove(&op);
        state.map_or(WriteState::Queued, |(_, state)| state)
    }

    /// Whether the socket may buffer ops of this connection.
    fn has_buffered(&self, generation: Generation) -> bool {
        let buffered = |(on, state): &(Generation, WriteState)| {
            *on == generation && matches!(state, WriteState::Begun(_))
        };
        self.lock().values().any(buffered)
    }

    /// Whether the op's bytes have left this process.
    pub(super) fn has_left(&self, op: OpId) -> bool {
        matches!(self.lock().get(&op), Some((_, WriteState::Flushed)))
    }

    fn lock(&self) -> MutexGuard<'_, IdMap<OpId, (Generation, WriteState)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open socket.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) generation: Generation,
    pub(super) events: mpsc::Receiver<ReaderEvent>,
    pub(super) writes: mpsc::Sender<WriteCommand>,
    close: mpsc::Sender<(u16, &'static str)>,
    tracker: Arc<WriteTracker>,
    meter: WriteMeter,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Connection {
    /// Starts both tasks on a dialled socket.
    pub(super) fn open(
        socket: ConnectorSocket,
        generation: Generation,
        max_line: usize,
        inbound: InboundSender,
        tracker: Arc<WriteTracker>,
        frames: Arc<FrameCounters>,
    ) -> Self {
        let meter = socket.get_ref().meter();
        let (read_half, write_half) = split(socket);
        let (event_sender, events) = mpsc::channel(MAX_READER_EVENTS);
        let (writes, write_queue) = mpsc::channel(MAX_WRITES);
        let (close, close_request) = mpsc::channel(1);
        let (writer_alive, writer_ended) = oneshot::channel();
        let reader = Reader {
            framer: LineFramer::new(max_line),
            max_line,
            sorter: FrameSorter::new(generation),
            events: event_sender,
            inbound,
            frames,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            writer_ended,
            read_until: None,
        };
        let write_loop = Writer {
            socket: write_half,
            generation,
            tracker: Arc::clone(&tracker),
            unflushed: Vec::new(),
            position: meter.written(),
            meter: meter.clone(),
            _alive: writer_alive,
        };
        Self {
            generation,
            events,
            writes,
            close,
            tracker,
            meter,
            reader: tokio::spawn(reader.run(read_half)),
            writer: tokio::spawn(write_loop.run(write_queue, close_request)),
        }
    }

    /// The peer is gone: what the socket still buffers is not written any more, so that it is known what left.
    pub(super) fn stop_writing(&self) {
        if self.tracker.has_buffered(self.generation) {
            self.meter.stop();
        }
    }

    /// Whether an op that came so far may have left this process.
    pub(super) fn may_have_left(&self, state: WriteState) -> bool {
        match state {
            WriteState::Queued => false,
            WriteState::Begun(position) => !self.meter.is_stopped() || self.meter.written() > position,
            WriteState::Flushed => true,
        }
    }

    /// Closes the socket and ends both tasks, within a second whatever the peer does.
    pub(super) async fn close(self, code: u16, reason: &'static str) {
        let _ = self.close.try_send((code, reason));
        let mut writer = self.writer;
        if timeout(CLOSE_TIMEOUT, &mut writer).await.is_err() {
            writer.abort();
        }
        self.reader.abort();
    }
}

struct Reader {
    framer: LineFramer,
    max_line: usize,
    sorter: FrameSorter,
    events: mpsc::Sender<ReaderEvent>,
    inbound: InboundSender,
    frames: Arc<FrameCounters>,
    backlog: VecDeque<InboundFrame>,
    backlog_bytes: usize,
    /// Resolves when the writer has ended.
    writer_ended: oneshot::Receiver<()>,
    /// When to stop reading after that: the peer's close frame may still come.
    read_until: Option<Instant>,
}

/// What one slice of reading brought besides frames.
#[derive(Default)]
struct Slice {
    control: Vec<ControlFrame>,
    interrupts: Vec<InterruptRequest>,
    lines: usize,
    bytes: usize,
}

impl Slice {
    fn is_full(&self) -> bool {
        self.lines >= BATCH || self.bytes >= BATCH_BYTES
    }
}

impl Reader {
    /// Reads until the socket or the relay is gone.
    async fn run(mut self, mut socket: SocketReader) {
        // The first one may be what is left of a message with more lines than one slice.
        let mut ahead = VecDeque::with_capacity(READ_AHEAD);
        loop {
            if ahead.is_empty() {
                let Some(event) = self.next_event(&mut socket).await else {
                    return;
                };
                ahead.push_back(event);
            }
            let (mut slice, mut mid_message) = (Slice::default(), false);
            let closed = loop {
                let Some(event) = ahead.pop_front() else {
                    break None;
                };
                match event {
                    ReadEvent::Data(message) => {
                        let taken = self.handle_lines(&message, &mut slice);
                        if let Some(rest) = message.after(taken) {
                            ahead.push_front(ReadEvent::Data(rest));
                            mid_message = true;
                        }
                    }
                    ReadEvent::Alive => {}
                    ReadEvent::Closed(close) => break Some(ReaderEvent::Closed(close)),
                    ReadEvent::TooLarge(bytes) => break Some(ReaderEvent::TooLarge(bytes)),
                    ReadEvent::Failed(error) => {
                        tracing::debug!(generation = %self.sorter.generation, error, "socket read failed");
                        break Some(ReaderEvent::Closed(None));
                    }
                }
                if mid_message || slice.is_full() {
                    break None;
                }
                if ahead.is_empty() {
                    read_ahead(&mut socket, &mut ahead);
                }
            };
            if !self.forward(slice, closed.is_some(), mid_message).await {
                return;
            }
            if let Some(closed) = closed {
                let _ = self.events.send(closed).await;
                return;
            }
            if !ahead.is_empty() {
                yield_now().await;
            }
        }
    }

    /// Waits for the next thing from the socket, handing the backlog over meanwhile. `None` when the relay is gone.
    async fn next_event(&mut self, socket: &mut SocketReader) -> Option<ReadEvent> {
        loop {
            let frames = self.inbound.frames.clone();
            tokio::select! {
                biased;
                // Cancel-safe: a permit that is not used is given back, and a read that is dropped loses nothing.
                permit = frames.reserve(), if !self.backlog.is_empty() => {
                    permit.ok()?.send(self.next_batch());
                }
                event = socket.read() => return Some(event),
                () = expired(&mut self.writer_ended, &mut self.read_until) => {
                    return Some(ReadEvent::Closed(None));
                }
            }
        }
    }

    /// Hands on what a slice brought; `false` when nobody takes it any more.
    async fn forward(&mut self, mut slice: Slice, closed: bool, mid_message: bool) -> bool {
        for interrupt in slice.interrupts {
            if self.inbound.interrupt(interrupt).await.is_err() {
                return false;
            }
        }
        // What came before the connector's word that it buffers must be with the relay before that word is: otherwise
        // the relay could go to sleep over a message. What came before a close must be there before that, too.
        let is_ack = |frame: &mut ControlFrame| matches!(frame, ControlFrame::GoingIdleAck);
        let acks: Vec<_> = slice.control.extract_if(.., is_ack).collect();
        if !self.report(slice.control).await {
            return false;
        }
        if (!acks.is_empty() || closed) && !self.flush_backlog(0).await {
            return false;
        }
        if !acks.is_empty() && !self.report(acks).await {
            return false;
        }
        // Lines that cannot be decoded and need no acknowledgement are reported together.
        let only_noise = matches!(self.backlog.make_contiguous(), [only] if is_noise(only));
        (mid_message && only_noise) || self.flush_backlog(MAX_BACKLOG).await
    }

    /// Reports frames to the driver, and waits until it has made a descriptor known; `false` when nobody takes them any more.
    async fn report(&mut self, frames: Vec<ControlFrame>) -> bool {
        let is_described = (frames.iter()).any(|frame| matches!(frame, ControlFrame::Descriptor(_)));
        let (until_known, known) = is_described.then(oneshot::channel).unzip();
        let event = ReaderEvent::Control { frames, until_known };
        if self.events.send(event).await.is_err() {
            return false;
        }
        if let Some(known) = known {
            // Nothing is sent: the driver drops its end.
            let _ = known.await;
        }
        true
    }

    /// Hands the backlog over as far as the relay takes it now, and waits while there is more than `max`.
    async fn flush_backlog(&mut self, max: usize) -> bool {
        let frames = self.inbound.frames.clone();
        while !self.backlog.is_empty() {
            match frames.try_reserve() {
                Ok(permit) => permit.send(self.next_batch()),
                Err(TrySendError::Closed(())) => return false,
                Err(TrySendError::Full(()))
                    if self.backlog.len() <= max && self.backlog_bytes <= MAX_BACKLOG_BYTES =>
                {
                    return true;
                }
                Err(TrySendError::Full(())) => {
                    if self.events.send(ReaderEvent::Blocked).await.is_err() {
                        return false;
                    }
                    let Ok(permit) = frames.reserve().await else {
                        return false;
                    };
                    permit.send(self.next_batch());
                    if self.events.send(ReaderEvent::Resumed).await.is_err() {
                        return false;
                    }
                }
            }
        }
        true
    }

    fn next_batch(&mut self) -> Vec<InboundFrame> {
        let count = self.backlog.len().min(BATCH);
        let batch: Vec<InboundFrame> = self.backlog.drain(..count).collect();
        self.backlog_bytes -= batch.iter().map(|frame| frame.line.len()).sum::<usize>();
        batch
    }

    /// Handles the lines of a message while the slice has room; returns how many bytes of it those were.
    fn handle_lines(&mut self, message: &Payload, slice: &mut Slice) -> usize {
        let Self {
            framer,
            max_line,
            sorter,
            frames,
            backlog,
            backlog_bytes,
            ..
        } = self;
        let bytes = &message[..message.len().min(BATCH_BYTES.saturating_sub(slice.bytes))];
        let taken = framer.feed_places(bytes, |line, place| {
            slice.lines += 1;
            let (decoded, line) = match line {
                Line::Whole(line) => {
                    let place = place.map(|start| start..start + line.len());
                    let text = place.and_then(|place| message.text()?.get(place));
                    let decoded = match text {
                        Some(text) => ConnectorFrame::decode_text(text),
                        None => ConnectorFrame::decode(line),
                    };
                    (decoded, line)
                }
                Line::TooLong { start, end } => (Err(Undecodable::too_long(*max_line, start, end)), &[][..]),
            };
            frames.received(decoded.as_ref().ok());
            let frame = match decoded.map(ControlFrame::try_from) {
                Ok(Ok(frame)) => {
                    if let ControlFrame::Descriptor(descriptor) = &frame {
                        sorter.declare(descriptor);
                    }
                    slice.control.push(frame);
                    None
                }
                Ok(Err(frame)) => match sorter.sort(frame, line) {
                    Some(RelayFrame::Inbound(frame)) => Some(frame),
                    Some(RelayFrame::Interrupt(interrupt)) => {
                        slice.interrupts.push(interrupt);
                        None
                    }
                    None => None,
                },
                Err(error) => match backlog.back_mut().filter(|last| is_noise(last)) {
                    Some(InboundFrame {
                        body: FrameBody::Undecodable { lines, .. },
                        ..
                    }) if error.buffer_id.is_none() => {
                        *lines += 1;
                        None
                    }
                    _ => Some(sorter.undecodable(error, line)),
                },
            };
            if let Some(frame) = frame {
                *backlog_bytes += frame.line.len();
                backlog.push_back(frame);
            }
            slice.lines < BATCH
        });
        slice.bytes += taken;
        taken
    }
}

/// Reads some of what is there, which is then decoded in a row: reading and decoding together are more code than the processor's
/// first cache has room for.
fn read_ahead(socket: &mut SocketReader, ahead: &mut VecDeque<ReadEvent>) {
    let mut bytes = 0;
    while ahead.len() < READ_AHEAD
        && bytes < READ_AHEAD_BYTES
        && let Some(event) = socket.try_read()
    {
        let is_last = match &event {
            ReadEvent::Data(message) => {
                bytes += message.len();
                false
            }
            ReadEvent::Alive => false,
            ReadEvent::Closed(_) | ReadEvent::TooLarge(_) | ReadEvent::Failed(_) => true,
        };
        ahead.push_back(event);
        if is_last {
            return;
        }
    }
}

/// Waits until the writer has ended, and a while longer. Cancel-safe.
async fn expired(writer_ended: &mut oneshot::Receiver<()>, read_until: &mut Option<Instant>) {
    if read_until.is_none() {
        let _ = writer_ended.await;
    }
    sleep_until(*read_until.get_or_insert_with(|| Instant::now() + CLOSE_TIMEOUT)).await;
}

/// Whether these are lines that cannot be decoded and need no acknowledgement.
fn is_noise(frame: &InboundFrame) -> bool {
    matches!(&frame.body, FrameBody::Undecodable { first, .. } if first.buffer_id.is_none())
}

struct Writer {
    socket: SocketWriter,
    generation: Generation,
    tracker: Arc<WriteTracker>,
    /// Ops that were given to the socket and not flushed.
    unflushed: Vec<OpId>,
    /// Where the next frame begins in the connection, or before that: frames that the socket writes by itself (pongs) are
    /// not counted until everything is flushed.
    position: u64,
    meter: WriteMeter,
    /// Dropped when the writer ends, which the reader notices.
    _alive: oneshot::Sender<()>,
}

impl Writer {
    /// Writes until it is asked to close, or the socket fails.
    async fn run(
        mut self,
        mut commands: mpsc::Receiver<WriteCommand>,
        mut close: mpsc::Receiver<(u16, &'static str)>,
    ) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                biased;
                request = close.recv() => {
                    while let Ok(command) = commands.try_recv() {
                        if self.write(command).await.is_err() {
                            return;
                        }
                    }
                    if let Some((code, reason)) = request {
                        let _ = self.socket.close(code, reason).await;
                    }
                    return;
                }
                // Cancel-safe: nothing is taken out unless the branch is chosen.
                count = commands.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    for command in batch.drain(..) {
                        if self.write(command).await.is_err() {
                            return;
                        }
                    }
                    if commands.is_empty() {
                        if self.socket.flush().await.is_err() {
                            return;
                        }
                        self.tracker.flushed(self.unflushed.drain(..), self.generation);
                        self.position = self.meter.written();
                    }
                }
            }
        }
    }

    /// Writes one command. An op that has its result already is left out: its sender was notified that it was not sent.
    async fn write(&mut self, command: WriteCommand) -> Result<(), WriteFailed> {
        match command {
            WriteCommand::Line(line) => self.write_line(line).await,
            WriteCommand::Ping => {
                self.position += frame_bytes(0);
                self.socket.ping().await
            }
            WriteCommand::Op { id, line } => {
                if !self.tracker.begin(id, self.generation, self.position) {
                    return Ok(());
                }
                self.unflushed.push(id);
                self.write_line(line).await
            }
        }
    }

    async fn write_line(&mut self, line: String) -> Result<(), WriteFailed> {
        self.position += frame_bytes(line.len());
        self.socket.write_line(line).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio_util::task::AbortOnDropHandle;

    use super::super::{InboundReceiver, InterruptTarget, inbound_channel};
    use super::*;
    use crate::net::ws_io::in_memory;

    /// More lines than one slice, by far.
    const MANY: usize = 200_000;
    const DEADLINE: Duration = Duration::from_secs(60);

    /// A connection whose peer sent one message.
    struct Fixture {
        inbound: InboundReceiver,
        events: mpsc::Receiver<ReaderEvent>,
        frames: Arc<FrameCounters>,
        _tasks: [AbortOnDropHandle<()>; 2],
    }

    impl Fixture {
        fn new(message: String) -> Self {
            let (socket, peer) = in_memory();
            let peer = async move {
                let (_reader, mut writer) = split(peer);
                writer.write_line(message).await.unwrap();
                writer.flush().await.unwrap();
                std::future::pending::<()>().await;
            };
            Self::open(socket, peer)
        }

        fn open(socket: ConnectorSocket, peer: impl Future<Output = ()> + Send + 'static) -> Self {
            let (sender, inbound) = inbound_channel();
            let frames = Arc::new(FrameCounters::default());
            let tracker = Arc::default();
            let mut connection = Connection::open(
                socket,
                Generation::first(),
                1024,
                sender,
                tracker,
                Arc::clone(&frames),
            );
            let (seen, events) = mpsc::channel(1 << 16);
            let driver = async move {
                while let Some(event) = connection.events.recv().await {
                    let _ = seen.send(event).await;
                }
            };
            Self {
                inbound,
                events,
                frames,
                _tasks: [
                    AbortOnDropHandle::new(tokio::spawn(driver)),
                    AbortOnDropHandle::new(tokio::spawn(peer)),
                ],
            }
        }

        /// The descriptor that it reports first.
        async fn descriptor(&mut self) -> oneshot::Sender<()> {
            match timeout(DEADLINE, self.events.recv()).await.unwrap() {
                Some(ReaderEvent::Control {
                    until_known: Some(until_known),
                    ..
                }) => until_known,
                other => panic!("not a descriptor: {other:?}"),
            }
        }

        /// How many lines each frame of the next batch stands for.
        async fn batch(&mut self) -> Vec<u64> {
            let batch = timeout(DEADLINE, self.inbound.frames.recv())
                .await
                .unwrap()
                .unwrap();
            assert!(batch.len() <= BATCH, "{} frames in one batch", batch.len());
            let lines = |frame: &InboundFrame| match frame.body {
                FrameBody::Undecodable { lines, .. } => lines,
                _ => 1,
            };
            batch.iter().map(lines).collect()
        }

        fn lines_read(&self) -> usize {
            let all = self.frames.counts().0.iter().map(|(_, count)| count).sum::<u64>();
            usize::try_from(all).unwrap()
        }
    }

    fn interrupt(session: usize) -> String {
        format!("{{\"type\":\"interrupt_inbound\",\"session_key\":\"{session}\",\"chat_id\":\"c\"}}\n")
    }

    fn message(number: usize) -> String {
        format!("{{\"type\":\"inbound\",\"event\":{{\"text\":\"{number}\"}}}}\n")
    }

    fn descriptor() -> String {
        let descriptor = json!({
            "contract_version": 1, "platform": "x", "label": "X", "max_message_length": 2000,
            "supports_draft_streaming": false, "supports_edit": true, "supports_threads": false,
            "markdown_dialect": "plain", "len_unit": "chars",
        });
        json!({ "type": "descriptor", "descriptor": descriptor }).to_string() + "\n"
    }

    #[tokio::test]
    async fn a_message_of_many_lines_lets_other_tasks_run_and_reports_noise_together() {
        let buffered = "{\"type\":\"inbound\",\"bufferId\":\"b\",\"event\":5}\n";
        let text = [
            "x\n".repeat(MANY),
            buffered.repeat(2),
            "x\n".to_owned(),
            interrupt(7),
        ]
        .concat();
        let mut fixture = Fixture::new(text);
        let turns = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (others, frames) = (Arc::clone(&turns), Arc::clone(&fixture.frames));
        let _other = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let read: u64 = frames.counts().0.iter().map(|(_, count)| count).sum();
                if (1..MANY as u64).contains(&read) {
                    others.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                yield_now().await;
            }
        }));
        let stop = timeout(DEADLINE, fixture.inbound.interrupts.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (stop.target, stop.after),
            (InterruptTarget::Session("7".to_owned()), 4)
        );
        let mut lines = Vec::new();
        while lines.len() < 4 {
            lines.append(&mut fixture.batch().await);
        }
        assert_eq!(lines, [MANY as u64, 1, 1, 1]);
        assert_eq!(fixture.lines_read(), MANY + 4);
        let turns = turns.load(std::sync::atomic::Ordering::Relaxed);
        assert!(turns >= MANY as u64 / 256 / 2, "other tasks ran {turns} times");
    }

    #[tokio::test]
    async fn a_message_waits_until_the_descriptor_before_it_is_known() {
        let mut fixture = Fixture::new(descriptor() + &message(1));
        let until_known = fixture.descriptor().await;
        for _ in 0..1_000 {
            yield_now().await;
        }
        assert!(fixture.inbound.frames.try_recv().is_err());
        drop(until_known);
        assert_eq!(fixture.batch().await, [1]);
    }

    #[tokio::test]
    async fn a_message_waits_for_the_descriptor_also_when_the_peer_closes() {
        let (socket, peer) = in_memory();
        let (_reader, mut writer) = split(peer);
        writer.write_line(descriptor() + &message(1)).await.unwrap();
        writer.close(1001, "restart").await.unwrap();
        let mut fixture = Fixture::open(socket, std::future::pending());
        let until_known = fixture.descriptor().await;
        assert!(fixture.inbound.frames.try_recv().is_err());
        drop(until_known);
        assert_eq!(fixture.batch().await, [1]);
        let closed = timeout(DEADLINE, fixture.events.recv()).await.unwrap();
        assert!(
            matches!(closed, Some(ReaderEvent::Closed(Some((1001, _))))),
            "{closed:?}"
        );
    }

    #[tokio::test]
    async fn an_interrupt_passes_a_relay_that_is_behind() {
        let text: String = (0..600).map(message).chain([interrupt(1)]).collect();
        let mut fixture = Fixture::new(text);
        let stop = timeout(DEADLINE, fixture.inbound.interrupts.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (stop.target, stop.after),
            (InterruptTarget::Session("1".to_owned()), 600)
        );
        let mut taken = 0;
        while taken < 600 {
            taken += fixture.batch().await.len();
        }
        assert_eq!(taken, 600, "no frame was taken before the interrupt came");
    }

    #[tokio::test]
    async fn a_full_backlog_blocks_the_reader_and_is_reported() {
        const MESSAGES: usize = 10_000;
        let mut fixture = Fixture::new((0..MESSAGES).map(message).collect());
        let blocked = async { while !matches!(fixture.events.recv().await, Some(ReaderEvent::Blocked)) {} };
        timeout(DEADLINE, blocked).await.unwrap();
        for _ in 0..1_000 {
            yield_now().await;
        }
        let most = (super::super::MAX_FRAME_BATCHES + 1) * BATCH + MAX_BACKLOG;
        assert!(
            fixture.lines_read() <= most,
            "{} lines read ahead",
            fixture.lines_read()
        );
        let mut taken = 0;
        while taken < MESSAGES {
            taken += fixture.batch().await.len();
        }
        assert!(matches!(fixture.events.recv().await, Some(ReaderEvent::Resumed)));
    }

    #[test]
    fn an_op_that_has_its_result_is_never_begun() {
        let mut ids = crate::wire::OpIds::new(1);
        let (sent, unsent) = (ids.next(), ids.next());
        let (first, second) = (Generation::first(), Generation::first().next());
        let tracker = WriteTracker::default();
        tracker.queue(sent, first);
        tracker.queue(unsent, first);
        assert!(tracker.begin(sent, first, 0) && !tracker.has_left(sent));
        assert!(tracker.has_buffered(first) && !tracker.has_buffered(second));
        tracker.flushed([sent].into_iter(), first);
        assert!(tracker.has_left(sent) && !tracker.has_buffered(first));
        assert_eq!(tracker.finish(sent), WriteState::Flushed);
        assert_eq!(tracker.finish(unsent), WriteState::Queued);
        assert!(!tracker.begin(unsent, first, 0));
        tracker.queue(unsent, second);
        assert!(
            !tracker.begin(unsent, first, 0),
            "the old connection must not write it"
        );
        assert!(tracker.begin(unsent, second, 7));
        assert_eq!(tracker.finish(unsent), WriteState::Begun(7));
    }

    #[test]
    fn an_op_that_is_queued_again_while_its_first_command_waits_is_written_once() {
        let (op, generation) = (OpId(1), Generation::first());
        let tracker = WriteTracker::default();
        tracker.queue(op, generation);
        assert_eq!(tracker.finish(op), WriteState::Queued);
        tracker.queue(op, generation);
        assert!(tracker.begin(op, generation, 0));
        assert!(!tracker.begin(op, generation, 100));
        assert_eq!(tracker.finish(op), WriteState::Begun(0));
        // What is flushed is the command before: this one still has to be written.
        tracker.queue(op, generation);
        tracker.flushed([op].into_iter(), generation);
        assert!(tracker.begin(op, generation, 200));
    }
}
