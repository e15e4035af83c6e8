//! The transport without a connector: the relay is a Discord bot, by the gateway and the REST API.
//!
//! [`crate::direct::discord`] decides what an event means, which requests an op becomes and what an answer means; this module
//! makes the requests. One task holds the gateway and forwards events; each op runs in a task of its own. Events become the
//! frames that a connector would send, so that the relay above does not differ.

mod missed;
mod receiver;
mod sender;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::Instrument as _;

use self::receiver::{GatewayCommand, GatewayReceiver};
use self::sender::{DiscordApi, DiscordSender};
use super::{FrameCounters, InboundSender, LinkStatus, RelayTransport, ResultSender, TransportFuture};
use crate::adapter::ChatSettings;
use crate::config::DiscordBotConfig;
use crate::direct::discord::interaction_of;
use crate::link::{DormancyRefused, Generation, Op};
use crate::net::discord::DiscordClient;
use crate::net::media::BotFiles;
use crate::relay::metrics::LabelCounts;
use crate::wire::OpId;

/// Commands that wait for the receiver.
const MAX_COMMANDS: usize = 4096;
/// The names of the files that record applied ops and the gateway's session, in the state directory.
const APPLIED_OPS: &str = "discord-applied";
const SESSION: &str = "discord-session";
/// Longest wait for the receiver to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A transport that is a Discord bot.
#[derive(Debug)]
pub struct DiscordTransport {
    sender: Arc<DiscordSender>,
    commands: mpsc::Sender<GatewayCommand>,
    status: watch::Receiver<LinkStatus>,
    frames: Arc<FrameCounters>,
    applied_path: std::path::PathBuf,
    /// The receiver, until `connect` is called.
    receiver: Mutex<Option<GatewayReceiver>>,
}

impl DiscordTransport {
    /// A transport that connects once `connect` is called. By then the caller holds the lock of `state_dir`.
    pub fn new(
        settings: DiscordBotConfig,
        client: Arc<DiscordClient>,
        files: Arc<BotFiles>,
        state_dir: &Path,
        chat: &ChatSettings,
    ) -> Self {
        let (commands, command_queue) = mpsc::channel(MAX_COMMANDS);
        let (status_sender, status) = watch::channel(LinkStatus::starting());
        let frames = Arc::new(FrameCounters::default());
        let sender = Arc::new(DiscordApi::sender(client, files, chat.language));
        let receiver = GatewayReceiver {
            sender: Arc::clone(&sender),
            settings,
            commands: command_queue,
            status: status_sender,
            frames: Arc::clone(&frames),
            session_path: state_dir.join(SESSION),
            group_context: chat.group_context,
        };
        Self {
            sender,
            commands,
            status,
            frames,
            applied_path: state_dir.join(APPLIED_OPS),
            receiver: Mutex::new(Some(receiver)),
        }
    }
}

impl RelayTransport for DiscordTransport {
    fn connect(&self, inbound: InboundSender) {
        let receiver = self
            .receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(receiver) = receiver {
            self.sender.load_applied(&self.applied_path);
            tokio::spawn(receiver.run(inbound).instrument(tracing::info_span!("link")));
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

    fn acknowledge(&self, _generation: Generation, buffer_id: String) {
        let _ = self.commands.try_send(GatewayCommand::Acknowledge(buffer_id));
    }

    /// Does nothing: only this relay runs turns of this bot.
    fn send_interrupt(&self, _session_key: String, _reason: Option<String>) {}

    fn offer_commands(&self, _platform: &'static str, manifest: Vec<Value>) {
        self.sender.offer_commands(&manifest);
    }

    fn leave_unanswered(&self, _platform: &str, message_id: &str) {
        if let Some(command) = interaction_of(message_id) {
            self.sender.discard(command);
        }
    }

    fn answer_privately(&self, _platform: &str, message_id: &str) {
        if let Some(command) = interaction_of(message_id) {
            self.sender.keep_private(command);
        }
    }

    /// Refuses: Discord keeps the events of a lost connection for minutes only.
    fn go_idle(&self, _within: Duration) -> TransportFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        Box::pin(std::future::ready(Err(DormancyRefused::NotBuffering)))
    }

    fn wake(&self) {}

    fn reconnect(&self) {
        let _ = self.commands.try_send(GatewayCommand::Reconnect);
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        Box::pin(async move {
            self.sender.drain(within).await;
            let (done, waiting) = oneshot::channel();
            let closing = async {
                if self.commands.send(GatewayCommand::Close(done)).await.is_ok() {
                    let _ = waiting.await;
                }
            };
            // A receiver that is stuck ends with the process.
            let _ = timeout(CLOSE_TIMEOUT, closing).await;
        })
    }
}
