//! The transport over the network: a handle to the task that drives the link.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument as _;

use super::connection::WriteTracker;
use super::driver::Driver;
use super::{FrameCounters, InboundSender, LinkStatus, RelayTransport, ResultSender, TransportFuture};
use crate::link::{DormancyRefused, Generation, HelloIdentity, LinkSettings, NotSent, Op, SendResult};
use crate::net::socket::Dialer;
use crate::relay::metrics::LabelCounts;
use crate::wire::OpId;

/// Commands that wait for the driver. An op that finds no room is reported as not sent; an acknowledgement is left to
/// the next delivery.
const MAX_COMMANDS: usize = 32 * 1024;

/// What this program calls itself on the wire.
pub const USER_AGENT: &str = concat!("hermes-relay/", env!("CARGO_PKG_VERSION"));

/// The gateway's credentials.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The gateway's id.
    pub gateway_id: String,
    /// The secret that signs upgrade tokens.
    pub secret: SecretString,
}

/// Where and how to dial.
#[derive(Debug)]
pub struct WebSocketSettings {
    /// The connector's WebSocket address.
    pub dial_url: String,
    /// Dial unencrypted over a network.
    pub allow_plaintext: bool,
    /// Maximum size of a WebSocket message.
    pub max_message_bytes: usize,
    /// Maximum length of a line.
    pub max_line_bytes: usize,
    /// Maximum bytes that wait to be written to the socket.
    pub max_write_buffer_bytes: usize,
    /// How the link behaves.
    pub link: LinkSettings,
    /// The identities to announce.
    pub identities: Vec<HelloIdentity>,
    /// The dialler.
    pub dialer: Dialer,
    /// The credentials; may change, and may be missing.
    pub credentials: watch::Receiver<Option<Credentials>>,
}

/// A transport over the network.
#[derive(Debug)]
pub struct WebSocketTransport {
    commands: mpsc::Sender<DriverCommand>,
    status: watch::Receiver<LinkStatus>,
    tracker: Arc<WriteTracker>,
    frames: Arc<FrameCounters>,
    /// The driver, until `connect` is called.
    driver: Mutex<Option<Driver>>,
}

/// What the transport asks of its driver.
#[derive(Debug)]
pub(super) enum DriverCommand {
    Submit(Op, ResultSender),
    Acknowledge(Generation, String),
    OfferCommands(&'static str, Vec<Value>),
    Interrupt(String, Option<String>),
    GoIdle(Duration, oneshot::Sender<bool>),
    GoDormant(oneshot::Sender<Result<(), DormancyRefused>>),
    Wake,
    Reconnect,
    Disconnect(Duration, oneshot::Sender<()>),
}

impl WebSocketTransport {
    /// A transport that dials once `connect` is called.
    pub(crate) fn new(settings: WebSocketSettings) -> Self {
        let (commands, command_queue) = mpsc::channel(MAX_COMMANDS);
        let (status_sender, status) = watch::channel(LinkStatus::starting());
        let tracker = Arc::new(WriteTracker::default());
        let frames = Arc::new(FrameCounters::default());
        let driver = Driver::new(
            settings,
            command_queue,
            status_sender,
            Arc::clone(&tracker),
            Arc::clone(&frames),
        );
        Self {
            commands,
            status,
            tracker,
            frames,
            driver: Mutex::new(Some(driver)),
        }
    }

    /// Asks the driver for something and waits for its answer; `otherwise` when the driver has no room or has ended.
    fn ask<T: Send + 'static>(
        &self,
        otherwise: T,
        command: impl FnOnce(oneshot::Sender<T>) -> DriverCommand,
    ) -> TransportFuture<'_, T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.try_send(command(reply)).is_ok();
        Box::pin(async move {
            if sent {
                answer.await.unwrap_or(otherwise)
            } else {
                otherwise
            }
        })
    }
}

impl RelayTransport for WebSocketTransport {
    fn connect(&self, inbound: InboundSender) {
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(driver) = driver {
            tokio::spawn(driver.run(inbound).instrument(tracing::info_span!("link")));
        }
    }

    fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }

    fn submit(&self, op: Op, results: ResultSender) {
        let id = op.id;
        let (command, reason) = match self.commands.try_send(DriverCommand::Submit(op, results)) {
            Ok(()) => return,
            Err(TrySendError::Full(command)) => (command, NotSent::Full),
            Err(TrySendError::Closed(command)) => (command, NotSent::Closing),
        };
        if let DriverCommand::Submit(_, results) = command {
            let _ = results.try_send((id, SendResult::NotSent(reason)));
        }
    }

    fn has_left(&self, op: OpId, _platform: Option<&str>) -> bool {
        self.tracker.has_left(op)
    }

    fn frames(&self) -> (LabelCounts, LabelCounts) {
        self.frames.counts()
    }

    fn acknowledge(&self, generation: Generation, buffer_id: String) {
        let _ = self
            .commands
            .try_send(DriverCommand::Acknowledge(generation, buffer_id));
    }

    fn send_interrupt(&self, session_key: String, reason: Option<String>) {
        let _ = self
            .commands
            .try_send(DriverCommand::Interrupt(session_key, reason));
    }

    fn offer_commands(&self, platform: &'static str, manifest: Vec<Value>) {
        let _ = self
            .commands
            .try_send(DriverCommand::OfferCommands(platform, manifest));
    }

    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool> {
        self.ask(false, |reply| DriverCommand::GoIdle(within, reply))
    }

    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        self.ask(Err(DormancyRefused::NotLive), DriverCommand::GoDormant)
    }

    fn wake(&self) {
        let _ = self.commands.try_send(DriverCommand::Wake);
    }

    fn reconnect(&self) {
        let _ = self.commands.try_send(DriverCommand::Reconnect);
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        self.ask((), |reply| DriverCommand::Disconnect(within, reply))
    }
}
