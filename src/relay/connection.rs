//! One open socket: a task that hears and a task that speaks.
//!
//! The hearing task cuts lines and decodes frames. What is the link's own business goes to the link's driver
//! at once; messages, forwards and interrupts go to the relay in the order in which they came, and when the
//! relay is behind, this task waits and the network with it. Nothing here decides anything.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::frames::FrameMeter;
use super::progress::Progress;
use super::transport::{Cargo, Delivery};
use crate::link::{ControlFrame, Generation};
use crate::net::pump::{Heard, SocketReader, SocketWriter, WriteFailed, halves};
use crate::net::socket::Socket;
use crate::wire::{ConnectorFrame, Line, LineFramer, Undecodable};

/// Frames that are handed on together.
const BATCH: usize = 256;
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
        let (hearing, speaking) = halves(socket);
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
        loop {
            let mut heard = Some(socket.hear().await);
            let mut gone = None;
            while let Some(next) = heard {
                match next {
                    Heard::Data(bytes) => self.sort(&bytes, &mut control, &mut cargo),
                    Heard::Sign => {}
                    Heard::Closed(close) => gone = Some(News::Gone(close)),
                    Heard::TooLarge(bytes) => gone = Some(News::TooLarge(bytes)),
                    Heard::Broken(why) => {
                        tracing::debug!(generation = %self.generation, why, "the socket broke");
                        gone = Some(News::Gone(None));
                    }
                }
                let full = control.len() + cargo.len() >= BATCH;
                heard = if gone.is_some() || full {
                    None
                } else {
                    socket.heard_already()
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
            if !cargo.is_empty() && self.deliveries.send(std::mem::take(&mut cargo)).await.is_err() {
                return;
            }
            if let Some(gone) = gone {
                let _ = self.news.send(gone).await;
                return;
            }
        }
    }

    fn sort(&mut self, bytes: &[u8], control: &mut Vec<ControlFrame>, cargo: &mut Vec<Delivery>) {
        let (generation, limit, frames) = (self.generation, self.max_line, &self.frames);
        self.framer.feed(bytes, |line| {
            let line = match line {
                Line::Whole(line) => line,
                Line::TooLong { start, end } => {
                    frames.received(None);
                    let unusable = Undecodable::too_long(limit, start, end);
                    return cargo.push(Delivery {
                        generation,
                        cargo: Cargo::Unusable(unusable),
                        line: Vec::new(),
                    });
                }
            };
            let decoded = ConnectorFrame::decode(line);
            frames.received(decoded.as_ref().ok());
            let carried = match decoded.map(ControlFrame::try_from) {
                Ok(Ok(frame)) => return control.push(frame),
                Ok(Err(frame)) => match Cargo::of(frame) {
                    Some(carried) => carried,
                    None => return,
                },
                Err(unusable) => Cargo::Unusable(unusable),
            };
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
        });
    }
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
        Say::Line(line) => socket.line(line).await?,
        Say::Ping => socket.ping().await?,
        Say::Op { number, token, line } => {
            if progress.begin(number) {
                socket.line(line).await?;
                return Ok(Some(token));
            }
        }
    }
    Ok(None)
}
