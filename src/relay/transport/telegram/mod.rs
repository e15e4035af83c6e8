//! The transport without a connector: a Telegram bot of one's own, by long polling.
//!
//! What an update means, what an op becomes and what an answer says is decided in [`crate::direct::telegram`]; here requests
//! are made. One task polls and hands on what comes; each op runs in a task of its own. Updates become the frames that a
//! connector would send, so that everything above is the same.

mod poller;
mod speaker;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::Instrument as _;

use self::poller::{Poller, PollerCommand};
use self::speaker::Speaker;
use super::{FrameCounters, InboundSender, LinkStatus, RelayTransport, ResultSender, TransportFuture};
use crate::config::TelegramConfig;
use crate::link::{DormancyRefused, Generation, Op};
use crate::net::media::BotFiles;
use crate::net::telegram::BotClient;
use crate::relay::metrics::LabelCounts;
use crate::wire::OpId;

/// Commands that wait for the poller: more than one batch of acknowledgements.
const MAX_COMMANDS: usize = 1024;

/// The file of applied ops, in the state directory.
const APPLIED: &str = "telegram-applied";
/// How long the poller may take to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A transport that is a Telegram bot.
#[derive(Debug)]
pub struct TelegramTransport {
    speaker: Arc<Speaker>,
    commands: mpsc::Sender<PollerCommand>,
    status: watch::Receiver<LinkStatus>,
    frames: Arc<FrameCounters>,
    /// Where applied ops are noted.
    applied: PathBuf,
    /// The poller, until `connect` is called.
    poller: Mutex<Option<Poller>>,
}

impl TelegramTransport {
    /// A transport that polls once `connect` is called. By then the caller holds the lock of `state_dir`.
    pub fn new(
        settings: TelegramConfig,
        client: Arc<BotClient>,
        files: Arc<BotFiles>,
        state_dir: &Path,
    ) -> Self {
        let (commands, command_queue) = mpsc::channel(MAX_COMMANDS);
        let (status_sender, status) = watch::channel(LinkStatus::starting());
        let frames = Arc::new(FrameCounters::default());
        let speaker = Arc::new(Speaker::new(client, files, settings.rich_messages));
        let poller = Poller {
            speaker: Arc::clone(&speaker),
            settings,
            commands: command_queue,
            status: status_sender,
            frames: Arc::clone(&frames),
        };
        Self {
            speaker,
            commands,
            status,
            frames,
            applied: state_dir.join(APPLIED),
            poller: Mutex::new(Some(poller)),
        }
    }

    /// Asks the poller for something and waits until it is done; not at all when the poller has ended.
    async fn ask(&self, command: impl FnOnce(oneshot::Sender<()>) -> PollerCommand) -> bool {
        let (done, waiting) = oneshot::channel();
        self.commands.send(command(done)).await.is_ok() && waiting.await.is_ok()
    }
}

impl RelayTransport for TelegramTransport {
    fn connect(&self, inbound: InboundSender) {
        let poller = self.poller.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(poller) = poller {
            self.speaker.recall(&self.applied);
            tokio::spawn(poller.run(inbound).instrument(tracing::info_span!("link")));
        }
    }

    fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }

    fn submit(&self, op: Op, results: ResultSender) {
        self.frames.sent("outbound");
        self.speaker.submit(&op, results);
    }

    fn has_left(&self, op: OpId) -> bool {
        self.speaker.has_left(op)
    }

    fn frames(&self) -> (LabelCounts, LabelCounts) {
        self.frames.counts()
    }

    fn acknowledge(&self, generation: Generation, buffer_id: String) {
        if let Ok(update) = buffer_id.parse() {
            let _ = self
                .commands
                .try_send(PollerCommand::Acknowledge(generation, update));
        }
    }

    /// Only this relay runs turns of this bot: there is nobody to ask.
    fn send_interrupt(&self, _session_key: String, _reason: Option<String>) {}

    fn offer_commands(&self, _platform: &'static str, manifest: Vec<Value>) {
        self.speaker.offer_commands(&manifest);
    }

    /// Telegram keeps what comes while nobody polls.
    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool> {
        Box::pin(async move {
            let paused = timeout(within, self.ask(PollerCommand::Pause)).await;
            paused.unwrap_or(false)
        })
    }

    /// Telegram keeps messages, but wakes nobody.
    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        Box::pin(std::future::ready(Err(DormancyRefused::NotBuffering)))
    }

    fn wake(&self) {
        let _ = self.commands.try_send(PollerCommand::Resume);
    }

    fn reconnect(&self) {
        let _ = self.commands.try_send(PollerCommand::Reconnect);
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        Box::pin(async move {
            self.speaker.drain(within).await;
            // A poller that is stuck ends with the process.
            let _ = timeout(CLOSE_TIMEOUT, self.ask(PollerCommand::Close)).await;
        })
    }
}
