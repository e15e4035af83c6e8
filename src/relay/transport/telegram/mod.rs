//! The transport without a connector: the relay is a Telegram bot, by long polling.
//!
//! [`crate::direct::telegram`] decides what an update means, which calls an op becomes and what an answer means; this module
//! makes the requests. One task polls and forwards updates; each op runs in a task of its own. Updates become the frames that
//! a connector would send, so that the relay above does not differ.

mod poller;
mod sender;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::Instrument as _;

use self::poller::{Poller, PollerCommand};
use self::sender::{OpSender, TelegramApi};
use super::{FrameCounters, InboundSender, LinkStatus, RelayTransport, ResultSender, TransportFuture};
use crate::adapter::ChatSettings;
use crate::config::TelegramConfig;
use crate::link::{DormancyRefused, Generation, Op};
use crate::net::media::BotFiles;
use crate::net::telegram::BotClient;
use crate::relay::metrics::LabelCounts;
use crate::wire::OpId;

/// Commands that wait for the poller: more than one batch of acknowledgements.
const MAX_COMMANDS: usize = 1024;

/// The name of the file that records applied ops, in the state directory.
const APPLIED_OPS: &str = "telegram-applied";
/// Longest wait for the poller to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A transport that is a Telegram bot.
#[derive(Debug)]
pub struct TelegramTransport {
    sender: Arc<OpSender>,
    commands: mpsc::Sender<PollerCommand>,
    status: watch::Receiver<LinkStatus>,
    frames: Arc<FrameCounters>,
    /// The file that records applied ops.
    applied_path: PathBuf,
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
        chat: &ChatSettings,
    ) -> Self {
        let (commands, command_queue) = mpsc::channel(MAX_COMMANDS);
        let (status_sender, status) = watch::channel(LinkStatus::starting());
        let frames = Arc::new(FrameCounters::default());
        let sender = Arc::new(TelegramApi::sender(
            client,
            files,
            settings.rich_messages,
            chat.language,
        ));
        let poller = Poller {
            sender: Arc::clone(&sender),
            settings,
            group_context: chat.group_context,
            commands: command_queue,
            status: status_sender,
            frames: Arc::clone(&frames),
        };
        Self {
            sender,
            commands,
            status,
            frames,
            applied_path: state_dir.join(APPLIED_OPS),
            poller: Mutex::new(Some(poller)),
        }
    }

    /// Sends a command to the poller and waits until it is done; `false` if the poller has ended.
    async fn ask(&self, command: impl FnOnce(oneshot::Sender<()>) -> PollerCommand) -> bool {
        let (done, waiting) = oneshot::channel();
        self.commands.send(command(done)).await.is_ok() && waiting.await.is_ok()
    }
}

impl RelayTransport for TelegramTransport {
    fn connect(&self, inbound: InboundSender) {
        let poller = self.poller.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(poller) = poller {
            self.sender.load_applied(&self.applied_path);
            tokio::spawn(poller.run(inbound).instrument(tracing::info_span!("link")));
        }
    }

    fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }

    fn submit(&self, op: Op, results: ResultSender) {
        self.frames.sent("outbound");
        self.sender.submit(&op, results);
    }

    fn has_left(&self, op: OpId, _platform: Option<&str>) -> bool {
        self.sender.has_left(op)
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

    /// Does nothing: only this relay runs turns of this bot.
    fn send_interrupt(&self, _session_key: String, _reason: Option<String>) {}

    fn offer_commands(&self, _platform: &'static str, manifest: Vec<Value>) {
        self.sender.offer_commands(&manifest);
    }

    fn expect_press(&self, _platform: &str, prompt_id: &str) {
        self.sender.expect_press(prompt_id);
    }

    /// Stops polling: Telegram keeps updates while nobody polls.
    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool> {
        Box::pin(async move {
            let paused = timeout(within, self.ask(PollerCommand::Pause)).await;
            paused.unwrap_or(false)
        })
    }

    /// Refuses: Telegram keeps messages, but cannot wake the relay.
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
            self.sender.drain(within).await;
            // A poller that is stuck ends with the process.
            let _ = timeout(CLOSE_TIMEOUT, self.ask(PollerCommand::Close)).await;
        })
    }
}
