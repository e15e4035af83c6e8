//! The live transport: a handle to the task that drives the link over the network.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::drive::Driver;
use super::frames::FrameMeter;
use super::metrics::Counts;
use super::transport::{Answer, Delivery, LinkView, RelayTransport, Settlements, TransportFuture, token_of};
use crate::link::{DormancyRefused, Generation, HelloIdentity, LinkSettings, NotSent, Op, SendResult};
use crate::net::socket::Dialer;

/// Commands that wait for the driver; an op that finds no room is told so, an acknowledgement is left to the
/// next delivery.
const COMMANDS: usize = 32 * 1024;

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
    pub identities: Vec<HelloIdentity>,
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
    frames: Arc<FrameMeter>,
    idle: Mutex<Option<Driver>>,
}

#[derive(Debug)]
pub(super) enum Command {
    Submit(Op, Settlements),
    Acknowledge(Generation, String),
    Offer(&'static str, Vec<Value>),
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
        let frames = Arc::new(FrameMeter::default());
        let driver = Driver {
            settings,
            inbox,
            view: view_sender,
            written: Arc::clone(&written),
            frames: Arc::clone(&frames),
        };
        Self {
            commands,
            view,
            written,
            frames,
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
        let token = token_of(op.id);
        let refused = match self.commands.try_send(Command::Submit(op, settlements)) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(command)) => (command, NotSent::Full),
            Err(mpsc::error::TrySendError::Closed(command)) => (command, NotSent::Closing),
        };
        if let (Command::Submit(_, settlements), why) = refused {
            let _ = settlements.try_send((token, SendResult::NotSent(why)));
        }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn frames(&self) -> (Counts, Counts) {
        self.frames.counts()
    }

    fn acknowledge(&self, generation: Generation, buffer_id: String) {
        let _ = self
            .commands
            .try_send(Command::Acknowledge(generation, buffer_id));
    }

    fn send_interrupt(&self, session_key: String, reason: Option<String>) {
        let _ = self.commands.try_send(Command::Interrupt(session_key, reason));
    }

    fn offer_commands(&self, platform: &'static str, manifest: Vec<Value>) {
        let _ = self.commands.try_send(Command::Offer(platform, manifest));
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
