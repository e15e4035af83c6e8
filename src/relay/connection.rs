//! One open socket: a task that hears and a task that speaks.
//!
//! The hearing task cuts lines and decodes frames. What is the link's own business goes to the link's driver
//! at once; messages, forwards and interrupts go to the relay in the order in which they came, and when the
//! relay is behind, this task waits and the network with it. However many lines one message has, few are looked at
//! before others have their turn. Nothing here decides anything.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

use super::frames::FrameMeter;
use super::progress::Progress;
use super::transport::{Cargo, Delivery};
use crate::link::{ControlFrame, Generation};
use crate::net::socket::Socket;
use crate::net::ws_io::{ReadEvent, SocketReader, SocketWriter, WriteFailed, split};
use crate::wire::{ConnectorFrame, Line, LineFramer, Undecodable};

/// Lines that are looked at before what they brought is handed on.
const BATCH: usize = 256;
/// Bytes that are looked at before what they brought is handed on; the line that they end in may be longer.
const BATCH_BYTES: usize = 256 * 1024;
/// Batches of control frames that wait for the driver.
const CONTROL_BATCHES: usize = 16;
/// Lines that wait for the writer.
const LINES: usize = 1024;
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// What the hearing task tells the driver.
#[derive(Debug)]
pub(super) enum News {
    /// Frames for the link; an empty batch is a mere sign of life.
    Control(Vec<ControlFrame>),
    /// A message of so many bytes came, which is more than may be.
    TooLarge(usize),
    /// The socket is gone.
    Gone(Option<(u16, String)>),
}

/// What the speaking task is told.
#[derive(Debug)]
pub(super) enum Say {
    /// One line.
    Line(String),
    /// One line that asks for an op.
    Op {
        /// The driver's number for it; numbers grow.
        number: u64,
        /// The asker's name for it.
        token: u64,
        /// The line.
        line: String,
    },
    /// A ping.
    Ping,
}

/// An open socket.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) generation: Generation,
    pub(super) news: mpsc::Receiver<News>,
    pub(super) say: mpsc::Sender<Say>,
    pub(super) progress: Arc<Progress>,
    goodbye: mpsc::Sender<(u16, &'static str)>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Connection {
    /// Starts both tasks on a dialled socket.
    pub(super) fn open(
        socket: Socket,
        generation: Generation,
        max_line: usize,
        deliveries: mpsc::Sender<Vec<Delivery>>,
        written: Arc<AtomicU64>,
        frames: Arc<FrameMeter>,
    ) -> Self {
        let (hearing, speaking) = split(socket);
        let progress = Arc::new(Progress::new(written));
        let (news_sender, news) = mpsc::channel(CONTROL_BATCHES);
        let (say, said) = mpsc::channel(LINES);
        let (goodbye, farewell) = mpsc::channel(1);
        let ear = Ear {
            generation,
            framer: LineFramer::new(max_line),
            max_line,
            news: news_sender,
            deliveries,
            frames,
        };
        Self {
            generation,
            news,
            say,
            goodbye,
            reader: tokio::spawn(ear.listen(hearing)),
            writer: tokio::spawn(speak(speaking, said, farewell, Arc::clone(&progress))),
            progress,
        }
    }

    /// Says goodbye and ends both tasks, within a second whatever the other end does.
    pub(super) async fn close(self, code: u16, reason: &'static str) {
        let _ = self.goodbye.try_send((code, reason));
        let mut writer = self.writer;
        if timeout(GOODBYE, &mut writer).await.is_err() {
            writer.abort();
        }
        self.reader.abort();
    }
}

struct Ear {
    generation: Generation,
    framer: LineFramer,
    max_line: usize,
    news: mpsc::Sender<News>,
    deliveries: mpsc::Sender<Vec<Delivery>>,
    frames: Arc<FrameMeter>,
}

impl Ear {
    async fn listen(mut self, mut socket: SocketReader) {
        let mut control = Vec::new();
        let mut cargo = Vec::new();
        // Of a message with more lines than are looked at together.
        let mut rest = None;
        loop {
            let mut room = Room::default();
            let mut heard = match rest.take() {
                Some(rest) => Some(rest),
                None => Some(socket.read().await),
            };
            let mut gone = None;
            while let Some(next) = heard {
                match next {
                    ReadEvent::Data(mut bytes) => {
                        let taken = self.sort(&bytes, &mut room, &mut control, &mut cargo);
                        rest = (taken < bytes.len()).then(|| ReadEvent::Data(bytes.split_off(taken)));
                    }
                    ReadEvent::Alive => {}
                    ReadEvent::Closed(close) => gone = Some(News::Gone(close)),
                    ReadEvent::TooLarge(bytes) => gone = Some(News::TooLarge(bytes)),
                    ReadEvent::Failed(why) => {
                        tracing::debug!(generation = %self.generation, why, "the socket broke");
                        gone = Some(News::Gone(None));
                    }
                }
                heard = if gone.is_some() || rest.is_some() || room.is_taken() {
                    None
                } else {
                    socket.try_read()
                };
            }
            // What came before the word that the connector buffers is in the relay's hands before that word is: otherwise
            // it could go to sleep over a message.
            let buffers = control
                .iter()
                .any(|frame| matches!(frame, ControlFrame::GoingIdleAck));
            if buffers && !cargo.is_empty() && self.deliveries.send(std::mem::take(&mut cargo)).await.is_err()
            {
                return;
            }
            if self
                .news
                .send(News::Control(std::mem::take(&mut control)))
                .await
                .is_err()
            {
                return;
            }
            // Nothing but lines without a use waits for what comes after them, and is told together.
            let is_told = rest.is_none() || !matches!(cargo[..], [ref only] if is_nameless(only));
            if is_told && !cargo.is_empty() && self.deliveries.send(std::mem::take(&mut cargo)).await.is_err()
            {
                return;
            }
            if rest.is_some() {
                yield_now().await;
            }
            if let Some(gone) = gone {
                let _ = self.news.send(gone).await;
                return;
            }
        }
    }

    /// Looks at the lines of a message while there is room, and says how many bytes of it those were.
    fn sort(
        &mut self,
        bytes: &[u8],
        room: &mut Room,
        control: &mut Vec<ControlFrame>,
        cargo: &mut Vec<Delivery>,
    ) -> usize {
        let (generation, limit, frames) = (self.generation, self.max_line, &self.frames);
        let bytes = &bytes[..bytes.len().min(room.bytes)];
        let taken = self.framer.feed_while(bytes, |line| {
            room.lines = room.lines.saturating_sub(1);
            let (decoded, line) = match line {
                Line::Whole(line) => (ConnectorFrame::decode(line), line),
                Line::TooLong { start, end } => (Err(Undecodable::too_long(limit, start, end)), &[][..]),
            };
            frames.received(decoded.as_ref().ok());
            let carried = match decoded.map(ControlFrame::try_from) {
                Ok(Ok(frame)) => {
                    control.push(frame);
                    None
                }
                Ok(Err(frame)) => Cargo::of(frame),
                Err(unusable) => {
                    let last = cargo.last_mut().map(|last| &mut last.cargo);
                    let counted = last.is_some_and(|last| last.takes_in(&unusable));
                    (!counted).then_some(Cargo::Unusable { unusable, lines: 1 })
                }
            };
            if let Some(carried) = carried {
                let line = if carried.is_kept() {
                    line.to_vec()
                } else {
                    Vec::new()
                };
                cargo.push(Delivery {
                    generation,
                    cargo: carried,
                    line,
                });
            }
            room.lines > 0
        });
        room.bytes -= taken;
        taken
    }
}

/// What may still be looked at before it is handed on.
struct Room {
    lines: usize,
    bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            lines: BATCH,
            bytes: BATCH_BYTES,
        }
    }
}

impl Room {
    fn is_taken(&self) -> bool {
        self.lines == 0 || self.bytes == 0
    }
}

/// Whether these are lines that nobody can use and nobody waits for.
fn is_nameless(delivery: &Delivery) -> bool {
    matches!(&delivery.cargo, Cargo::Unusable { unusable, .. } if unusable.buffer_id.is_none())
}

async fn speak(
    mut socket: SocketWriter,
    mut said: mpsc::Receiver<Say>,
    mut farewell: mpsc::Receiver<(u16, &'static str)>,
    progress: Arc<Progress>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut last_op = None;
    loop {
        tokio::select! {
            biased;
            goodbye = farewell.recv() => {
                while let Ok(word) = said.try_recv() {
                    if utter(&mut socket, word, &progress).await.is_err() {
                        return;
                    }
                }
                if let Some((code, reason)) = goodbye {
                    let _ = socket.close(code, reason).await;
                }
                return;
            }
            // Cancel-safe: nothing is taken out unless the branch is chosen.
            count = said.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    return;
                }
                for word in batch.drain(..) {
                    match utter(&mut socket, word, &progress).await {
                        Ok(op) => last_op = op.or(last_op),
                        Err(_) => return,
                    }
                }
                if said.is_empty() {
                    if socket.flush().await.is_err() {
                        return;
                    }
                    last_op.take().into_iter().for_each(|token| progress.flushed(token));
                }
            }
        }
    }
}

/// Says one word, and gives the name of the op that it asked for. An op is left out once the connection was
/// given up: its asker was told that it was not sent.
async fn utter(
    socket: &mut SocketWriter,
    word: Say,
    progress: &Progress,
) -> Result<Option<u64>, WriteFailed> {
    match word {
        Say::Line(line) => socket.write_line(line).await?,
        Say::Ping => socket.ping().await?,
        Say::Op { number, token, line } => {
            if progress.begin(number) {
                socket.write_line(line).await?;
                return Ok(Some(token));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
