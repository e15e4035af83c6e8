//! The live transport: performs what the link decides, reports what happens, sleeps until the deadline.
//!
//! One task owns the link. It has no opinions and never waits for anyone but the clock, the socket's own
//! tasks and its commands; a dial runs beside it. Invariant: the old socket's tasks have ended before a new
//! dial begins.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::clock::{Clock, unix_ms};
use super::connection::{Connection, News, Say};
use super::transport::{Answer, Delivery, LinkView, RelayTransport, Settlements, TransportFuture};
use crate::link::{
    Action, DialFailure, DormancyRefused, End, Generation, Identity, Link, LinkSettings, Loss, NotSent, Op,
    Report, Settled,
};
use crate::net::socket::{DialError, DialRequest, Dialed, Dialer};
use crate::wire::{Outcome, TOKEN_TTL_SECS, UpgradeToken};

/// Commands that wait for the driver; an op that finds no room is told so, an acknowledgement is left to the
/// next delivery.
const COMMANDS: usize = 32 * 1024;
/// Commands taken together.
const BATCH: usize = 512;
/// Lines that wait for a slow connector; acknowledgements beyond it are left to the next delivery.
const UNWRITTEN: usize = 16 * 1024;

/// Who we are to the connector.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The gateway's id.
    pub gateway_id: String,
    /// What upgrade tokens are signed with.
    pub secret: SecretString,
}

/// Where and how to dial.
#[derive(Debug)]
pub struct LiveSettings {
    /// The connector's WebSocket address.
    pub dial_url: String,
    /// Dial unencrypted over a network.
    pub allow_plaintext: bool,
    /// Largest WebSocket message.
    pub max_message_bytes: usize,
    /// Longest line.
    pub max_line_bytes: usize,
    /// Most that waits to be written to the socket.
    pub max_write_buffer_bytes: usize,
    /// How the link behaves.
    pub link: LinkSettings,
    /// As whom.
    pub identities: Vec<Identity>,
    /// The dialler.
    pub dialer: Dialer,
    /// The credentials; may change, and may be missing.
    pub credentials: watch::Receiver<Option<Credentials>>,
}

/// What the relay calls itself on the wire.
pub const USER_AGENT: &str = concat!("hermes-relay/", env!("CARGO_PKG_VERSION"));

/// A transport over the network.
#[derive(Debug)]
pub struct LiveTransport {
    commands: mpsc::Sender<Command>,
    view: watch::Receiver<LinkView>,
    written: Arc<AtomicU64>,
    idle: Mutex<Option<Driver>>,
}

#[derive(Debug)]
enum Command {
    Submit(Op, Settlements),
    Acknowledge(Generation, String),
    Interrupt(String, Option<String>),
    GoIdle(Duration, Answer<bool>),
    GoDormant(Answer<Result<(), DormancyRefused>>),
    Wake,
    Renew,
    Disconnect(Duration, Answer<()>),
}

impl LiveTransport {
    /// A transport that dials once it is told to connect.
    pub fn new(settings: LiveSettings) -> Self {
        let (commands, inbox) = mpsc::channel(COMMANDS);
        let (view_sender, view) = watch::channel(LinkView {
            state: "starting".to_owned(),
            ..LinkView::default()
        });
        let written = Arc::new(AtomicU64::new(0));
        let driver = Driver {
            settings,
            inbox,
            view: view_sender,
            written: Arc::clone(&written),
        };
        Self {
            commands,
            view,
            written,
            idle: Mutex::new(Some(driver)),
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        otherwise: T,
        command: impl FnOnce(Answer<T>) -> Command + Send + 'static,
    ) -> TransportFuture<'_, T> {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.try_send(command(answer)).is_ok();
        Box::pin(async move {
            if sent {
                answered.await.unwrap_or(otherwise)
            } else {
                otherwise
            }
        })
    }
}

impl RelayTransport for LiveTransport {
    fn connect(&self, deliveries: mpsc::Sender<Vec<Delivery>>) {
        let driver = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(driver) = driver {
            tokio::spawn(driver.drive(deliveries));
        }
    }

    fn view(&self) -> watch::Receiver<LinkView> {
        self.view.clone()
    }

    fn submit(&self, op: Op, settlements: Settlements) {
        let token = op.token;
        let refused = match self.commands.try_send(Command::Submit(op, settlements)) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(command)) => (command, NotSent::Full),
            Err(mpsc::error::TrySendError::Closed(command)) => (command, NotSent::Closing),
        };
        if let (Command::Submit(_, settlements), why) = refused {
            let _ = settlements.try_send((token, Settled::NotSent(why)));
        }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn acknowledge(&self, generation: Generation, buffer_id: String) {
        let _ = self
            .commands
            .try_send(Command::Acknowledge(generation, buffer_id));
    }

    fn send_interrupt(&self, session_key: String, reason: Option<String>) {
        let _ = self.commands.try_send(Command::Interrupt(session_key, reason));
    }

    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool> {
        self.ask(false, move |answer| Command::GoIdle(within, answer))
    }

    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        self.ask(Err(DormancyRefused::NotLive), Command::GoDormant)
    }

    fn wake(&self) {
        let _ = self.commands.try_send(Command::Wake);
    }

    fn renew(&self) {
        let _ = self.commands.try_send(Command::Renew);
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        self.ask((), move |answer| Command::Disconnect(within, answer))
    }
}

#[derive(Debug)]
struct Driver {
    settings: LiveSettings,
    inbox: mpsc::Receiver<Command>,
    view: watch::Sender<LinkView>,
    written: Arc<AtomicU64>,
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
struct Drive {
    link: Link,
    clock: Clock,
    settings: LiveSettings,
    view: watch::Sender<LinkView>,
    written: Arc<AtomicU64>,
    deliveries: mpsc::Sender<Vec<Delivery>>,
    connection: Option<Connection>,
    closing: Option<JoinHandle<()>>,
    dialing: Option<JoinHandle<DialResult>>,
    unwritten: VecDeque<Say>,
    askers: HashMap<u64, (u64, Settlements)>,
    next_token: u64,
    idle_askers: Vec<Answer<bool>>,
    disconnecting: Vec<Answer<()>>,
}

impl Driver {
    async fn drive(mut self, deliveries: mpsc::Sender<Vec<Delivery>>) {
        let clock = Clock::start();
        let identities = std::mem::take(&mut self.settings.identities);
        let mut seed = [0; 8];
        if getrandom::fill(&mut seed).is_err() {
            seed = clock.now().unix_ms.to_le_bytes();
        }
        let link = Link::new(
            self.settings.link.clone(),
            identities,
            u64::from_le_bytes(seed),
            clock.now(),
        );
        let mut drive = Drive {
            link,
            clock,
            settings: self.settings,
            view: self.view,
            written: self.written,
            deliveries,
            connection: None,
            closing: None,
            dialing: None,
            unwritten: VecDeque::new(),
            askers: HashMap::new(),
            next_token: 0,
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
        credentials.mark_unchanged();
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
                Happened::Credentials(true) => self.link.note_secret_rotated(self.clock.now()),
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
            Command::Submit(mut op, settlements) => {
                self.next_token += 1;
                self.askers.insert(self.next_token, (op.token, settlements));
                op.token = self.next_token;
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
            Command::Wake => self.link.wake(now),
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
                Action::Dial {
                    generation,
                    mint_at_unix,
                } => self.dial(generation, mint_at_unix),
                Action::Write { generation, line, op } => {
                    let asker = op.and_then(|number| Some((number, self.askers.get(&number)?.0)));
                    let word = match asker {
                        Some((number, token)) => Say::Op { number, token, line },
                        None => Say::Line(line),
                    };
                    self.write(generation, word);
                }
                Action::Ping { generation } => self.write(generation, Say::Ping),
                Action::CloseSocket {
                    generation,
                    code,
                    reason,
                } => self.close_socket(generation, code, reason),
                Action::Settled {
                    token: number,
                    outcome,
                } => {
                    if let Some((token, settlements)) = self.askers.remove(&number) {
                        // The link counts an op as sent when it hands out its line; this one never left.
                        let unsent = begun.is_some_and(|begun| number > begun) && is_unknown(&outcome);
                        let outcome = if unsent {
                            Settled::NotSent(NotSent::Lost)
                        } else {
                            outcome
                        };
                        let _ = settlements.try_send((token, outcome));
                    }
                }
                Action::Report(report) => self.tell(&report),
            }
        }
    }

    fn dial(&mut self, generation: Generation, mint_at_unix: i64) {
        let credentials = self.settings.credentials.borrow().clone();
        let bearer = credentials
            .map(|who| UpgradeToken::mint(&who.gateway_id, &who.secret, TOKEN_TTL_SECS, mint_at_unix));
        let (dialer, url) = (self.settings.dialer.clone(), self.settings.dial_url.clone());
        let (allow_plaintext, max_message_bytes, max_write_buffer_bytes) = (
            self.settings.allow_plaintext,
            self.settings.max_message_bytes,
            self.settings.max_write_buffer_bytes,
        );
        let before = self.closing.take();
        self.dialing = Some(tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let request = DialRequest {
                url: &url,
                bearer: bearer.as_ref().map(UpgradeToken::as_secret),
                user_agent: USER_AGENT,
                allow_plaintext,
                max_message_bytes,
                max_write_buffer_bytes,
            };
            (generation, dialer.dial(request).await)
        }));
    }

    fn write(&mut self, generation: Generation, word: Say) {
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.generation == generation)
        {
            self.unwritten.push_back(word);
            self.write_on();
        }
    }

    fn write_on(&mut self) {
        let Some(connection) = &self.connection else {
            return;
        };
        while let Some(word) = self.unwritten.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(word) | mpsc::error::TrySendError::Closed(word)) =
                connection.say.try_send(word)
            {
                return self.unwritten.push_front(word);
            }
        }
    }

    fn close_socket(&mut self, generation: Generation, code: u16, reason: &'static str) {
        if let Some(dialing) = self.dialing.take() {
            dialing.abort();
        }
        if self
            .connection
            .as_ref()
            .is_none_or(|connection| connection.generation != generation)
        {
            return;
        }
        self.unwritten.clear();
        if let Some(connection) = self.connection.take() {
            self.closing = Some(tokio::spawn(connection.close(code, reason)));
        }
    }

    fn tell(&mut self, report: &Report) {
        let loss_told = |loss: &Loss| loss.to_string();
        match report {
            Report::Dialing { generation } => tracing::debug!(%generation, "dialling the connector"),
            Report::Live { generation, primary } => {
                tracing::info!(%generation, platform = primary.platform, "connected to the connector");
            }
            Report::Described { generation } => tracing::debug!(%generation, "descriptors changed"),
            Report::Lost { loss, retry_in } => {
                let retry_ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
                let detail = self.view.borrow().last_loss.clone().unwrap_or_default();
                tell_loss(loss, &detail, retry_ms);
            }
            Report::SkewWarning { ms } => {
                tracing::warn!(
                    skew_ms = ms,
                    "this machine's clock and the connector's differ; correcting for it, but set the clock"
                );
            }
            Report::Thawed => tracing::info!("the machine slept; looking after the connection"),
            Report::IdleAcked { .. } => self.answer_idle(true),
            Report::IdleUnanswered => self.answer_idle(false),
            Report::Dormant => tracing::info!("dormant: the connector buffers until the next dial"),
            Report::Ended(End::Closed) => tracing::info!("the link is closed"),
            Report::Ended(End::Revoked { reason }) => {
                tracing::error!(
                    reason,
                    "the connector has revoked this gateway; enrol again with `hermes-relay enroll`"
                );
            }
        }
        let state = state_name(self.link.state());
        self.view.send_modify(|view| {
            view.live = self.link.is_live().then(|| self.link.generation()).flatten();
            view.descriptors = self.link.descriptors().clone();
            state.clone_into(&mut view.state);
            view.clock_skew_ms = self.link.clock_skew_ms();
            view.counters = *self.link.counters();
            match report {
                Report::Lost { loss, .. }
                    if (!matches!(loss, Loss::DialFailed) || view.last_loss.is_none()) =>
                {
                    view.last_loss = Some(loss_told(loss));
                }
                Report::Ended(end) => view.ended = Some(end.clone()),
                Report::Live { .. } | Report::Dialing { .. } => view.ended = None,
                _ => {}
            }
        });
    }

    fn answer_idle(&mut self, buffers: bool) {
        for answer in self.idle_askers.drain(..) {
            let _ = answer.send(buffers);
        }
    }
}

fn tell_loss(loss: &Loss, detail: &str, retry_ms: u64) {
    match loss {
        Loss::DialFailed => tracing::warn!(why = detail, retry_ms, "cannot reach the connector"),
        Loss::UnauthorizedHttp { .. } | Loss::Unauthorized { .. } => {
            tracing::warn!(why = %loss, retry_ms, "the connector does not accept our credentials; check the gateway id and secret, or enrol again with `hermes-relay enroll`");
        }
        other => tracing::warn!(why = %other, retry_ms, "lost the connector"),
    }
}

fn is_unknown(outcome: &Settled) -> bool {
    matches!(outcome, Settled::Sent(known) if matches!(**known, Outcome::Unknown))
}

fn state_name(state: &crate::link::LinkState) -> &'static str {
    use crate::link::LinkState;
    match state {
        LinkState::Waiting { .. } => "waiting",
        LinkState::Dialing { .. } => "dialing",
        LinkState::Greeting { .. } => "greeting",
        LinkState::Live(_) => "live",
        LinkState::Dormant { .. } => "dormant",
        LinkState::Closing { .. } => "closing",
        LinkState::Ended(End::Closed) => "closed",
        LinkState::Ended(End::Revoked { .. }) => "revoked",
    }
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
