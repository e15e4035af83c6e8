//! The task that owns the link: performs the link's actions, reports events to it, sleeps until its deadline.
//!
//! It decides nothing and never waits for anyone but the clock, the socket's tasks and its commands; a dial runs beside it.
//! Invariant: the old socket's tasks have ended before a new dial begins.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::connection::{Connection, ReaderEvent, WriteCommand, WriteState, WriteTracker};
use super::websocket::{Credentials, DriverCommand, USER_AGENT, WebSocketSettings};
use super::{FrameCounters, InboundSender, LinkStatus, ResultSender};
use crate::collections::IdMap;
use crate::link::{
    DialFailure, End, Generation, Keyring, Link, LinkAction, LinkEvent, LinkState, Loss, Moment, NotSent,
    SendResult,
};
use crate::net::socket::{DialError, DialRequest, Dialed};
use crate::relay::clock::{Clock, unix_ms};
use crate::text::duration;
use crate::wire::{OpId, Outcome, TOKEN_TTL_SECS, UpgradeToken};

/// Commands taken together.
const BATCH: usize = 512;

type DialResult = (Generation, Result<Dialed, DialError>);

/// The driver of one transport.
#[derive(Debug)]
pub(super) struct Driver {
    settings: WebSocketSettings,
    commands: mpsc::Receiver<DriverCommand>,
    status: watch::Sender<LinkStatus>,
    tracker: Arc<WriteTracker>,
    frames: Arc<FrameCounters>,
}

/// What woke the driver.
enum DriverWakeup {
    Reader(Option<ReaderEvent>),
    Dialed(Option<Box<DialResult>>),
    RoomToWrite(mpsc::OwnedPermit<WriteCommand>),
    Commands(usize),
    Credentials(bool),
    Deadline,
}

impl Driver {
    pub(super) fn new(
        settings: WebSocketSettings,
        commands: mpsc::Receiver<DriverCommand>,
        status: watch::Sender<LinkStatus>,
        tracker: Arc<WriteTracker>,
        frames: Arc<FrameCounters>,
    ) -> Self {
        Self {
            settings,
            commands,
            status,
            tracker,
            frames,
        }
    }

    /// Connects and stays connected until it is asked to disconnect.
    pub(super) async fn run(mut self, inbound: InboundSender) {
        let clock = Clock::start();
        let identities = std::mem::take(&mut self.settings.identities);
        let link = Link::new(self.settings.link.clone(), identities, clock.seed(), clock.now());
        let credentials = self.settings.credentials.borrow_and_update().clone();
        let mut driving = Driving {
            link,
            keys: Keyring::new(credentials),
            clock,
            settings: self.settings,
            status: self.status,
            tracker: self.tracker,
            frames: self.frames,
            dialing_since: Duration::ZERO,
            inbound,
            connection: None,
            closing: None,
            dialing: None,
            unwritten: VecDeque::new(),
            waiting: IdMap::default(),
            idle_waiters: Vec::new(),
            disconnect_waiters: Vec::new(),
        };
        driving.run(&mut self.commands).await;
    }
}

/// The driver at work.
struct Driving {
    link: Link,
    keys: Keyring<Credentials>,
    clock: Clock,
    settings: WebSocketSettings,
    status: watch::Sender<LinkStatus>,
    tracker: Arc<WriteTracker>,
    frames: Arc<FrameCounters>,
    /// When the current dial began.
    dialing_since: Duration,
    inbound: InboundSender,
    connection: Option<Connection>,
    closing: Option<JoinHandle<()>>,
    dialing: Option<JoinHandle<DialResult>>,
    unwritten: VecDeque<WriteCommand>,
    /// Who waits for the result of each op.
    waiting: IdMap<OpId, ResultSender>,
    idle_waiters: Vec<oneshot::Sender<bool>>,
    disconnect_waiters: Vec<oneshot::Sender<()>>,
}

impl Driving {
    async fn run(&mut self, commands: &mut mpsc::Receiver<DriverCommand>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut credentials = self.settings.credentials.clone();
        let mut watch_credentials = true;
        loop {
            self.perform();
            if !self.disconnect_waiters.is_empty() && self.link.poll_timeout().is_none() {
                return self.finish().await;
            }
            let deadline = self
                .link
                .poll_timeout()
                .map(|timer| self.clock.instant(timer.wake_at));
            let crowded = self.connection.as_ref().filter(|_| !self.unwritten.is_empty());
            let writer = crowded.map(|connection| connection.writes.clone());
            let wakeup = tokio::select! {
                biased;
                event = next_event(&mut self.connection) => DriverWakeup::Reader(event),
                dialed = finished(&mut self.dialing) => DriverWakeup::Dialed(dialed.map(Box::new)),
                // Cancel-safe: a permit that is not used is given back.
                permit = room(writer) => DriverWakeup::RoomToWrite(permit),
                count = commands.recv_many(&mut batch, BATCH) => DriverWakeup::Commands(count),
                changed = credentials.changed(), if watch_credentials => DriverWakeup::Credentials(changed.is_ok()),
                () = until(deadline) => DriverWakeup::Deadline,
            };
            match wakeup {
                DriverWakeup::Reader(event) => self.handle_reader(event),
                DriverWakeup::Dialed(dialed) => self.handle_dialed(dialed.map(|dialed| *dialed)),
                DriverWakeup::RoomToWrite(permit) => {
                    if let Some(command) = self.unwritten.pop_front() {
                        permit.send(command);
                        self.write_queued();
                    }
                }
                DriverWakeup::Commands(0) => {
                    self.link.close(Duration::ZERO, self.clock.now());
                    self.perform();
                    return self.finish().await;
                }
                DriverWakeup::Commands(_) => {
                    let now = self.clock.now();
                    batch
                        .drain(..)
                        .for_each(|command| self.handle_command(command, now));
                }
                DriverWakeup::Credentials(true) => {
                    self.keys.rotate(credentials.borrow_and_update().clone());
                    self.link.note_secret_rotated(self.clock.now());
                }
                DriverWakeup::Credentials(false) => watch_credentials = false,
                DriverWakeup::Deadline => self.link.handle_timeout(self.clock.now()),
            }
        }
    }

    async fn finish(&mut self) {
        if let Some(closing) = self.closing.take() {
            let _ = closing.await;
        }
        for waiter in self.disconnect_waiters.drain(..) {
            let _ = waiter.send(());
        }
    }

    fn handle_reader(&mut self, event: Option<ReaderEvent>) {
        let Some(connection) = &self.connection else {
            return;
        };
        if let None | Some(ReaderEvent::Closed(_)) = &event {
            connection.stop_writing();
        }
        let generation = connection.generation;
        let now = self.clock.now();
        match event {
            Some(ReaderEvent::Control { frames, until_known }) => {
                self.link.handle_traffic(generation, now);
                for frame in frames {
                    self.link.handle_frame(generation, frame, now);
                }
                if let Some(until_known) = until_known {
                    self.perform();
                    drop(until_known);
                }
            }
            Some(ReaderEvent::Blocked) => self.link.handle_reader_blocked(generation, now),
            Some(ReaderEvent::Resumed) => self.link.handle_reader_resumed(generation, now),
            Some(ReaderEvent::TooLarge(bytes)) => self.link.handle_too_large(generation, bytes, now),
            Some(ReaderEvent::Closed(close)) => {
                let close = close.as_ref().map(|(code, reason)| (*code, reason.as_str()));
                self.link.handle_closed(generation, close, now);
            }
            None => self.link.handle_closed(generation, None, now),
        }
    }

    fn handle_dialed(&mut self, dialed: Option<DialResult>) {
        let now = self.clock.now();
        let Some((generation, result)) = dialed else {
            return;
        };
        match result {
            Ok(Dialed { socket, server_date }) => {
                if self.link.generation() != Some(generation) {
                    return;
                }
                self.connection = Some(Connection::open(
                    socket,
                    generation,
                    self.settings.max_line_bytes,
                    self.inbound.clone(),
                    Arc::clone(&self.tracker),
                    Arc::clone(&self.frames),
                ));
                self.link.handle_dialed(generation, server_date.map(unix_ms), now);
            }
            Err(error) => {
                tracing::debug!(%generation, %error, "dial failed");
                let server_date = error.server_date().map(unix_ms);
                self.status
                    .send_modify(|status| status.last_loss = Some(error.to_string()));
                self.link
                    .handle_dial_failed(generation, dial_failure(&error), server_date, now);
            }
        }
    }

    fn handle_command(&mut self, command: DriverCommand, now: Moment) {
        match command {
            DriverCommand::Submit(op, results) if self.waiting.contains_key(&op.id) => {
                let refused = SendResult::NotSent(NotSent::AlreadyInFlight);
                let _ = results.try_send((op.id, refused));
            }
            DriverCommand::Submit(op, results) => {
                self.waiting.insert(op.id, results);
                self.link.request(op, now);
            }
            DriverCommand::Acknowledge(generation, buffer_id) => {
                self.link.acknowledge(generation, buffer_id);
            }
            DriverCommand::Interrupt(session_key, reason) => {
                self.link.interrupt(session_key, reason);
            }
            DriverCommand::OfferCommands(platform, manifest) => self.link.offer_commands(platform, &manifest),
            DriverCommand::GoIdle(within, reply) => {
                self.idle_waiters.push(reply);
                self.link.go_idle(within, now);
            }
            DriverCommand::GoDormant(reply) => {
                self.link.hold_redial(now);
                let result = self.link.go_dormant(now);
                if result.is_err() {
                    self.link.release_redial(now);
                }
                let _ = reply.send(result);
            }
            DriverCommand::Wake => {
                self.link.wake(now);
                self.publish_retry();
            }
            DriverCommand::Reconnect => self.link.renew(now),
            DriverCommand::Disconnect(within, reply) => {
                self.disconnect_waiters.push(reply);
                self.link.close(within, now);
            }
        }
    }

    /// Does everything that the link wants done, and tells it what of that is still to be written.
    fn perform(&mut self) {
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
                    let command = match op {
                        Some(id) => WriteCommand::Op { id, line },
                        None => WriteCommand::Line(line),
                    };
                    self.write(generation, command);
                }
                LinkAction::Ping { generation } => self.write(generation, WriteCommand::Ping),
                LinkAction::CloseSocket {
                    generation,
                    code,
                    reason,
                } => self.close_socket(generation, code, reason),
                LinkAction::Completed { id, result } => self.complete(id, result),
                LinkAction::Event(event) => self.publish(&event),
            }
        }
        self.link.note_unwritten(self.unwritten.len());
    }

    /// Reports an op's result. The link counts an op as sent when it hands out its line; only the connection knows
    /// whether that has left.
    fn complete(&mut self, id: OpId, result: SendResult) {
        let state = self.tracker.finish(id);
        let Some(results) = self.waiting.remove(&id) else {
            return;
        };
        let may_have_left = match &self.connection {
            Some(connection) => connection.may_have_left(state),
            None => state != WriteState::Queued,
        };
        let result = if is_unknown(&result) && !may_have_left {
            SendResult::NotSent(NotSent::Lost)
        } else {
            result
        };
        let _ = results.try_send((id, result));
    }

    fn dial(&mut self, generation: Generation, mint_at_unix: i64) {
        let bearer = self.keys.sign().map(|credentials| {
            UpgradeToken::mint(
                &credentials.gateway_id,
                &credentials.secret,
                TOKEN_TTL_SECS,
                mint_at_unix,
            )
        });
        let (dialer, url) = (self.settings.dialer.clone(), self.settings.dial_url.clone());
        let (allow_plaintext, max_message_bytes, max_write_buffer_bytes) = (
            self.settings.allow_plaintext,
            self.settings.max_message_bytes,
            self.settings.max_write_buffer_bytes,
        );
        let closing = self.closing.take();
        self.dialing = Some(tokio::spawn(async move {
            if let Some(closing) = closing {
                let _ = closing.await;
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

    fn write(&mut self, generation: Generation, command: WriteCommand) {
        let current = self.connection.as_ref();
        if current.is_some_and(|connection| connection.generation == generation) {
            if let WriteCommand::Op { id, .. } = &command {
                self.tracker.queue(*id, generation);
            }
            self.unwritten.push_back(command);
            self.write_queued();
        }
    }

    fn write_queued(&mut self) {
        let Some(connection) = &self.connection else {
            return;
        };
        while let Some(command) = self.unwritten.pop_front() {
            match connection.writes.try_send(command) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(command)) => return self.unwritten.push_front(command),
                // The writer has ended. The reader reports the end of the connection, with the peer's close code if it
                // gave one.
                Err(mpsc::error::TrySendError::Closed(_)) => return self.unwritten.clear(),
            }
        }
    }

    fn close_socket(&mut self, generation: Generation, code: u16, reason: &'static str) {
        if let Some(dialing) = self.dialing.take() {
            dialing.abort();
        }
        let other = |connection: &Connection| connection.generation != generation;
        if self.connection.as_ref().is_none_or(other) {
            return;
        }
        self.unwritten.clear();
        if let Some(connection) = self.connection.take() {
            self.closing = Some(tokio::spawn(connection.close(code, reason)));
        }
    }

    /// Logs what the link reports, and shows it to whoever watches.
    fn publish(&mut self, event: &LinkEvent) {
        if self.tries_another_secret(event) {
            return;
        }
        let now = self.clock.mono();
        if let LinkEvent::Dialing { .. } = event {
            self.dialing_since = now;
        }
        self.log(event);
        match event {
            LinkEvent::IdleAcked { .. } => self.answer_idle(true),
            LinkEvent::IdleUnanswered => self.answer_idle(false),
            _ => {}
        }
        let state = state_name(self.link.state());
        let handshake_took = now.saturating_sub(self.dialing_since);
        let retry_at_ms = self.retry_at_ms();
        self.status.send_modify(|status| {
            status.retry_at_ms = retry_at_ms;
            status.live = self.link.is_live().then(|| self.link.generation()).flatten();
            status.descriptors = self.link.descriptors().clone();
            state.clone_into(&mut status.state);
            status.clock_skew_ms = self.link.clock_skew_ms();
            status.counters = *self.link.counters();
            match event {
                LinkEvent::Lost { loss, .. } => {
                    status.metrics.losses.add(loss.kind(), 1);
                    if !matches!(loss, Loss::DialFailed) || status.last_loss.is_none() {
                        status.last_loss = Some(loss.to_string());
                    }
                }
                LinkEvent::Ended(end) => {
                    if let End::Revoked { .. } = end {
                        status.metrics.losses.add("revoked", 1);
                    }
                    status.ended = Some(end.clone());
                }
                LinkEvent::Live { .. } => {
                    status.metrics.handshake_done(handshake_took);
                    status.ended = None;
                }
                LinkEvent::Dialing { .. } => status.ended = None,
                _ => {}
            }
        });
    }

    fn log(&self, event: &LinkEvent) {
        match event {
            LinkEvent::Dialing { generation } => tracing::debug!(%generation, "dialing the connector"),
            LinkEvent::Live { generation, primary } => {
                tracing::info!(%generation, platform = primary.platform, "connected to the connector");
            }
            LinkEvent::Described { generation } => tracing::debug!(%generation, "descriptors changed"),
            LinkEvent::Lost { loss, retry_in } => {
                let retry_ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
                let detail = self.status.borrow().last_loss.clone().unwrap_or_default();
                log_loss(loss, &detail, retry_ms);
            }
            LinkEvent::SkewWarning { ms } => tracing::warn!(
                skew_ms = ms,
                clock = clock_words(*ms),
                "this machine's clock differs from the connector's; tokens are corrected, but set the clock"
            ),
            LinkEvent::Thawed => tracing::info!("the machine was suspended; checking the connection"),
            LinkEvent::IdleAcked { .. } | LinkEvent::IdleUnanswered => {}
            LinkEvent::Dormant => tracing::info!("dormant: the connector buffers until the next dial"),
            LinkEvent::Ended(End::Closed) => tracing::info!("the link is closed"),
            LinkEvent::Ended(End::Revoked { reason }) => tracing::error!(
                reason,
                "the connector has revoked this gateway; enroll again with `hermes-relay enroll`"
            ),
        }
    }

    /// Shows when the next dial is due, where that has changed.
    fn publish_retry(&mut self) {
        let retry_at_ms = self.retry_at_ms();
        self.status.send_if_modified(|status| {
            let before = std::mem::replace(&mut status.retry_at_ms, retry_at_ms);
            before != retry_at_ms
        });
    }

    fn retry_at_ms(&self) -> Option<i64> {
        self.link.next_dial().map(|dial| dial.unix_ms)
    }

    /// Learns from a refusal or a handshake which secret is good. `true` when another one is tried now, so that the
    /// refusal means nothing yet.
    fn tries_another_secret(&mut self, event: &LinkEvent) -> bool {
        let refused = match event {
            LinkEvent::Live { .. } => {
                if self.keys.accepted() {
                    tracing::info!("the connector accepts the new secret; the previous one is dropped");
                }
                false
            }
            LinkEvent::Lost { loss, .. } => matches!(
                loss,
                Loss::Unauthorized { .. } | Loss::UnauthorizedHttp { .. } | Loss::Doubted { .. }
            ),
            LinkEvent::Ended(End::Revoked { .. }) => true,
            _ => false,
        };
        let another = refused && self.keys.refused();
        if another {
            tracing::warn!("the connector does not accept the new secret yet; trying the previous one once");
            self.status.send_modify(|status| {
                status.last_loss = Some("the connector refused the new secret".to_owned());
            });
            self.link.note_secret_rotated(self.clock.now());
        }
        another
    }

    fn answer_idle(&mut self, buffers: bool) {
        for waiter in self.idle_waiters.drain(..) {
            let _ = waiter.send(buffers);
        }
    }
}

fn is_unknown(result: &SendResult) -> bool {
    match result {
        SendResult::Answered(outcome) => matches!(**outcome, Outcome::Unknown),
        SendResult::Lost => true,
        SendResult::NotSent(_) => false,
    }
}

/// How this machine's clock differs from the connector's, which is `ms` ahead.
fn clock_words(ms: i64) -> String {
    let side = if ms > 0 { "behind" } else { "ahead" };
    format!("{} {side}", duration(ms.unsigned_abs()))
}

fn dial_failure(error: &DialError) -> DialFailure {
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

fn log_loss(loss: &Loss, detail: &str, retry_ms: u64) {
    match loss {
        Loss::DialFailed => tracing::warn!(error = detail, retry_ms, "cannot reach the connector"),
        Loss::UnauthorizedHttp { .. } | Loss::Unauthorized { .. } => tracing::warn!(
            error = %loss,
            retry_ms,
            "the connector does not accept our credentials; check the gateway id and secret, or enroll again with `hermes-relay enroll`"
        ),
        // There was no connection yet that could be lost.
        Loss::Refused { .. } | Loss::DialTimeout => tracing::warn!(
            error = %loss,
            retry_ms,
            "cannot reach the connector; run `hermes-relay doctor` to find the cause"
        ),
        other => tracing::warn!(error = %other, retry_ms, "lost the connector"),
    }
}

fn state_name(state: &LinkState) -> &'static str {
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

async fn next_event(connection: &mut Option<Connection>) -> Option<ReaderEvent> {
    match connection {
        Some(connection) => connection.events.recv().await,
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

async fn room(writer: Option<mpsc::Sender<WriteCommand>>) -> mpsc::OwnedPermit<WriteCommand> {
    if let Some(writer) = writer
        && let Ok(permit) = writer.reserve_owned().await
    {
        return permit;
    }
    // Nothing waits, or the writer has ended and the reader will report it.
    std::future::pending().await
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
