//! The task that owns the link: performs what it decides, reports what happens, sleeps until the deadline.
//!
//! It has no opinions and never waits for anyone but the clock, the socket's own tasks and its commands; a dial
//! runs beside it. Invariant: the old socket's tasks have ended before a new dial begins.

mod socket;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::clock::{Clock, unix_ms};
use super::connection::{Connection, News, Say};
use super::frames::FrameMeter;
use super::live::{Command, Credentials, LiveSettings, USER_AGENT};
use super::transport::{Answer, Delivery, LinkView, Settlements, token_of};
use crate::collections::IdMap;
use crate::link::{DialFailure, Generation, Keyring, Link, LinkAction, NotSent, SendResult};
use crate::net::socket::{DialError, Dialed};
use crate::wire::{OpId, Outcome};

/// Commands taken together.
const BATCH: usize = 512;
/// Lines that wait for a slow connector; acknowledgements beyond it are left to the next delivery.
const UNWRITTEN: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Driver {
    pub(super) settings: LiveSettings,
    pub(super) inbox: mpsc::Receiver<Command>,
    pub(super) view: watch::Sender<LinkView>,
    pub(super) written: Arc<AtomicU64>,
    pub(super) frames: Arc<FrameMeter>,
}

/// What woke the driver.
enum Happened {
    News(Option<News>),
    Dialed(Option<Box<DialResult>>),
    Room(mpsc::OwnedPermit<Say>),
    Commands(usize),
    Credentials(bool),
    Deadline,
}

type DialResult = (Generation, Result<Dialed, DialError>);

/// The driver at work.
pub(super) struct Drive {
    pub(super) link: Link,
    pub(super) keys: Keyring<Credentials>,
    pub(super) clock: Clock,
    settings: LiveSettings,
    pub(super) view: watch::Sender<LinkView>,
    written: Arc<AtomicU64>,
    frames: Arc<FrameMeter>,
    /// When the present dial began.
    pub(super) dial_began: Duration,
    deliveries: mpsc::Sender<Vec<Delivery>>,
    connection: Option<Connection>,
    closing: Option<JoinHandle<()>>,
    dialing: Option<JoinHandle<DialResult>>,
    unwritten: VecDeque<Say>,
    /// By op: the number of its submission, and who wants its result.
    askers: IdMap<OpId, (u64, Settlements)>,
    last_number: u64,
    pub(super) idle_askers: Vec<Answer<bool>>,
    disconnecting: Vec<Answer<()>>,
}

impl Driver {
    pub(super) async fn drive(mut self, deliveries: mpsc::Sender<Vec<Delivery>>) {
        let clock = Clock::start();
        let identities = std::mem::take(&mut self.settings.identities);
        let link = Link::new(self.settings.link.clone(), identities, clock.seed(), clock.now());
        let credentials = self.settings.credentials.borrow_and_update().clone();
        let mut drive = Drive {
            link,
            keys: Keyring::new(credentials),
            clock,
            settings: self.settings,
            view: self.view,
            written: self.written,
            frames: self.frames,
            dial_began: Duration::ZERO,
            deliveries,
            connection: None,
            closing: None,
            dialing: None,
            unwritten: VecDeque::new(),
            askers: IdMap::default(),
            last_number: 0,
            idle_askers: Vec::new(),
            disconnecting: Vec::new(),
        };
        drive.run(&mut self.inbox).await;
    }
}

impl Drive {
    async fn run(&mut self, inbox: &mut mpsc::Receiver<Command>) {
        let mut commands = Vec::with_capacity(BATCH);
        let mut credentials = self.settings.credentials.clone();
        let mut watching = true;
        loop {
            self.perform();
            if !self.disconnecting.is_empty() && self.link.poll_timeout().is_none() {
                return self.finish().await;
            }
            let deadline = self
                .link
                .poll_timeout()
                .map(|timer| self.clock.instant(timer.wake_at));
            let crowded = self.connection.as_ref().filter(|_| !self.unwritten.is_empty());
            let writer = crowded.map(|connection| connection.say.clone());
            let happened = tokio::select! {
                biased;
                news = next_news(&mut self.connection) => Happened::News(news),
                dialed = finished(&mut self.dialing) => Happened::Dialed(dialed.map(Box::new)),
                // Cancel-safe: a permit that is not used is given back.
                permit = room(writer) => Happened::Room(permit),
                count = inbox.recv_many(&mut commands, BATCH) => Happened::Commands(count),
                changed = credentials.changed(), if watching => Happened::Credentials(changed.is_ok()),
                () = until(deadline) => Happened::Deadline,
            };
            match happened {
                Happened::News(news) => self.take_news(news),
                Happened::Dialed(dialed) => self.take_dial(dialed.map(|dialed| *dialed)),
                Happened::Room(permit) => {
                    if let Some(word) = self.unwritten.pop_front() {
                        permit.send(word);
                        self.write_on();
                    }
                }
                Happened::Commands(0) => {
                    self.link.close(Duration::ZERO, self.clock.now());
                    self.perform();
                    return self.finish().await;
                }
                Happened::Commands(_) => commands.drain(..).for_each(|command| self.take_command(command)),
                Happened::Credentials(true) => {
                    self.keys.rotate(credentials.borrow_and_update().clone());
                    self.link.note_secret_rotated(self.clock.now());
                }
                Happened::Credentials(false) => watching = false,
                Happened::Deadline => self.link.handle_timeout(self.clock.now()),
            }
        }
    }

    async fn finish(&mut self) {
        if let Some(closing) = self.closing.take() {
            let _ = closing.await;
        }
        for answer in self.disconnecting.drain(..) {
            let _ = answer.send(());
        }
    }

    fn take_news(&mut self, news: Option<News>) {
        let Some(generation) = self.connection.as_ref().map(|connection| connection.generation) else {
            return;
        };
        let now = self.clock.now();
        match news {
            Some(News::Control(frames)) => {
                self.link.handle_traffic(generation, now);
                for frame in frames {
                    self.link.handle_frame(generation, frame, now);
                }
            }
            Some(News::TooLarge(bytes)) => self.link.handle_too_large(generation, bytes, now),
            Some(News::Gone(close)) => {
                let close = close.as_ref().map(|(code, reason)| (*code, reason.as_str()));
                self.link.handle_closed(generation, close, now);
            }
            None => self.link.handle_closed(generation, None, now),
        }
    }

    fn take_dial(&mut self, dialed: Option<DialResult>) {
        let now = self.clock.now();
        let Some((generation, result)) = dialed else {
            return;
        };
        match result {
            Ok(Dialed { socket, server_date }) => {
                if self.link.generation() != Some(generation) {
                    return;
                }
                let deliveries = self.deliveries.clone();
                self.connection = Some(Connection::open(
                    socket,
                    generation,
                    self.settings.max_line_bytes,
                    deliveries,
                    Arc::clone(&self.written),
                    Arc::clone(&self.frames),
                ));
                self.link.handle_dialed(generation, server_date.map(unix_ms), now);
            }
            Err(error) => {
                tracing::debug!(%generation, %error, "the dial failed");
                let server_date = error.server_date().map(unix_ms);
                self.view
                    .send_modify(|view| view.last_loss = Some(error.to_string()));
                self.link
                    .handle_dial_failed(generation, failure(&error), server_date, now);
            }
        }
    }

    fn take_command(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Submit(op, settlements) => {
                self.last_number += 1;
                self.askers.insert(op.id, (self.last_number, settlements));
                self.link.request(op, now);
            }
            Command::Acknowledge(generation, buffer_id) => {
                if self.unwritten.len() < UNWRITTEN {
                    self.link.acknowledge(generation, buffer_id);
                }
            }
            Command::Interrupt(session_key, reason) => {
                self.link.interrupt(session_key, reason);
            }
            Command::Offer(platform, manifest) => self.link.offer_commands(platform, &manifest),
            Command::GoIdle(within, answer) => {
                self.idle_askers.push(answer);
                self.link.go_idle(within, now);
            }
            Command::GoDormant(answer) => {
                self.link.hold_redial(now);
                let outcome = self.link.go_dormant(now);
                if outcome.is_err() {
                    self.link.release_redial(now);
                }
                let _ = answer.send(outcome);
            }
            Command::Wake => {
                self.link.wake(now);
                self.show_retry();
            }
            Command::Renew => self.link.renew(now),
            Command::Disconnect(within, answer) => {
                self.disconnecting.push(answer);
                self.link.close(within, now);
            }
        }
    }

    /// Does everything that the link wants done.
    fn perform(&mut self) {
        let generation = self.link.generation();
        let gone = self.connection.as_ref();
        let gone = gone.filter(|connection| generation != Some(connection.generation));
        let begun = gone.map(|connection| connection.progress.shut());
        while let Some(action) = self.link.poll_action() {
            match action {
                LinkAction::Dial {
                    generation,
                    mint_at_unix,
                } => self.dial(generation, mint_at_unix),
                LinkAction::Write {
                    generation,
                    line,
                    kind,
                    op,
                } => {
                    self.frames.sent(kind);
                    let asker = op.and_then(|id| Some((self.askers.get(&id)?.0, token_of(id))));
                    let word = match asker {
                        Some((number, token)) => Say::Op { number, token, line },
                        None => Say::Line(line),
                    };
                    self.write(generation, word);
                }
                LinkAction::Ping { generation } => self.write(generation, Say::Ping),
                LinkAction::CloseSocket {
                    generation,
                    code,
                    reason,
                } => self.close_socket(generation, code, reason),
                LinkAction::Completed { id, result } => {
                    if let Some((number, settlements)) = self.askers.remove(&id) {
                        // The link counts an op as sent when it hands out its line; this one never left.
                        let unsent = begun.is_some_and(|begun| number > begun) && is_unknown(&result);
                        let result = if unsent {
                            SendResult::NotSent(NotSent::Lost)
                        } else {
                            result
                        };
                        let _ = settlements.try_send((token_of(id), result));
                    }
                }
                LinkAction::Event(report) => self.tell(&report),
            }
        }
    }
}

fn is_unknown(outcome: &SendResult) -> bool {
    matches!(outcome, SendResult::Answered(known) if matches!(**known, Outcome::Unknown))
}

fn failure(error: &DialError) -> DialFailure {
    match error {
        DialError::Refused {
            status, retry_after, ..
        } => DialFailure::Http {
            status: *status,
            retry_after: *retry_after,
        },
        DialError::Redirected { status, .. } => DialFailure::Http {
            status: *status,
            retry_after: None,
        },
        _ => DialFailure::Network,
    }
}

async fn next_news(connection: &mut Option<Connection>) -> Option<News> {
    match connection {
        Some(connection) => connection.news.recv().await,
        None => std::future::pending().await,
    }
}

async fn finished(dialing: &mut Option<JoinHandle<DialResult>>) -> Option<DialResult> {
    match dialing {
        Some(handle) => {
            let result = handle.await.ok();
            *dialing = None;
            result
        }
        None => std::future::pending().await,
    }
}

async fn room(writer: Option<mpsc::Sender<Say>>) -> mpsc::OwnedPermit<Say> {
    if let Some(writer) = writer
        && let Ok(permit) = writer.reserve_owned().await
    {
        return permit;
    }
    // Nothing waits, or the writer has ended and the reader will say so.
    std::future::pending().await
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
