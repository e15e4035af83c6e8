//! Polls for updates, forwards them to the relay, and confirms the updates that the relay has committed.
//!
//! Telegram keeps an update until a poll asks for later ones, so no offset is stored here: after a crash the server sends
//! unconfirmed updates again, and the journal recognises those that it has.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use smol_str::ToSmolStr as _;

use super::sender::OpSender;
use crate::adapter::ChatId;
use crate::adapter::stream::ShownDraft;
use crate::config::TelegramConfig;
use crate::direct::telegram::{
    ApiAnswer, BatchReader, Bot, Incoming, NextPoll, PollRetry, PollStep, PollTrouble, Polling,
    ReceivedUpdates, RecentInTopics, Relevance, TakenMessages, TopicNames, UpdateMeaning, descriptor,
    read_batch,
};
use crate::link::Generation;
use crate::net::telegram::BotClient;
use crate::relay::clock::Clock;
use crate::relay::not_running::NotRunning;
use crate::relay::transport::{
    FrameCounters, FrameSorter, InboundFrame, InboundSender, InterruptTarget, LinkStatus,
};
use crate::wire::Platform;

/// Updates per poll.
const BATCH: u64 = 100;
/// How long the relay may take to commit forwarded updates, before they are forwarded again.
const MAX_COMMIT_TIME: Duration = Duration::from_secs(60);
/// Timeout of the last call, which confirms committed updates.
const LAST_CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the bot's own name is read again, and how long a poll waits for that.
const IDENTIFY_EVERY: Duration = Duration::from_secs(300);
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(3);

/// A command of the transport to its poller.
#[derive(Debug)]
pub(super) enum PollerCommand {
    /// The relay has committed an update.
    Acknowledge(Generation, i64),
    /// Fetch all unconfirmed updates again.
    Reconnect,
    /// Stop polling; Telegram keeps further updates.
    Pause(oneshot::Sender<()>),
    /// Poll again.
    Resume,
    /// Stop for good, and confirm committed updates.
    Close(oneshot::Sender<()>),
}

/// The poller of one bot.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) sender: Arc<OpSender>,
    pub(super) settings: TelegramConfig,
    /// Messages of a group that an agent gets as context.
    pub(super) group_context: usize,
    pub(super) commands: mpsc::Receiver<PollerCommand>,
    pub(super) status: watch::Sender<LinkStatus>,
    pub(super) frames: Arc<FrameCounters>,
}

impl Poller {
    /// Runs until the transport closes.
    pub(super) async fn run(mut self, inbound: InboundSender) {
        let clock = Clock::start();
        let mut receiving = PollLoop {
            relevance: Relevance {
                require_mention: self.settings.require_mention,
                free_chats: self.settings.free_chats.clone(),
                allow_bots: self.settings.allow_bots,
            },
            sender: Arc::clone(&self.sender),
            settings: self.settings,
            status: self.status,
            frames: self.frames,
            inbound,
            clock,
            bot: None,
            identified_at: Duration::ZERO,
            has_drafts: true,
            has_webhook: false,
            topics: TopicNames::new(),
            recent: RecentInTopics::new(self.group_context),
            taken: TakenMessages::default(),
            polling: Polling::default(),
            received: ReceivedUpdates::new(),
            sorter: FrameSorter::new(Generation::first()),
            generation: Generation::first(),
            forwarded_at: Duration::ZERO,
            not_before: Duration::ZERO,
            paused: false,
        };
        receiving.run(&mut self.commands).await;
    }
}

struct PollLoop {
    sender: Arc<OpSender>,
    settings: TelegramConfig,
    status: watch::Sender<LinkStatus>,
    frames: Arc<FrameCounters>,
    inbound: InboundSender,
    clock: Clock,
    relevance: Relevance,
    /// The bot, once Telegram has described it.
    bot: Option<Bot>,
    identified_at: Duration,
    /// Whether the server streams drafts.
    has_drafts: bool,
    /// Whether a webhook must be removed before the next poll.
    has_webhook: bool,
    topics: TopicNames,
    recent: RecentInTopics,
    taken: TakenMessages,
    polling: Polling,
    received: ReceivedUpdates,
    sorter: FrameSorter,
    generation: Generation,
    /// When updates were forwarded last.
    forwarded_at: Duration,
    /// The earliest time of the next poll.
    not_before: Duration,
    paused: bool,
}

/// The event that ended a wait.
enum PollerWakeup {
    Answered(PollAnswer),
    Command(Option<PollerCommand>),
    Deadline,
}

/// The answer to a request of the poller.
enum PollAnswer {
    /// The bot's identity and the server's features, at the start.
    Introduced(Introduction),
    /// Updates, and the bot's identity if it was asked for again.
    Updates(ApiAnswer, Option<Value>),
}

/// The bot's identity and the server's features.
struct Introduction {
    /// The answer to `getMe`.
    identity: ApiAnswer,
    /// Whether a webhook was set, which has been removed.
    had_webhook: bool,
    /// Whether the server streams drafts.
    has_drafts: bool,
    /// Whether the server has rich messages; `true` if it was not asked.
    has_rich: bool,
}

type PollFuture = std::pin::Pin<Box<dyn Future<Output = PollAnswer> + Send>>;

impl PollLoop {
    async fn run(&mut self, commands: &mut mpsc::Receiver<PollerCommand>) {
        let mut request: Option<PollFuture> = None;
        loop {
            let now = self.clock.mono();
            if self.forward_due(now).await.is_err() {
                return;
            }
            if self.paused {
                // Dropping a poll closes its connection: the server keeps what it would have brought.
                request = None;
            } else if request.is_none() {
                request = self.next_request(now);
            }
            let deadline = self.deadline(request.is_some(), now);
            let wakeup = tokio::select! {
                biased;
                command = commands.recv() => PollerWakeup::Command(command),
                answer = pending(&mut request) => PollerWakeup::Answered(answer),
                () = sleep_until(deadline) => PollerWakeup::Deadline,
            };
            match wakeup {
                PollerWakeup::Command(Some(PollerCommand::Close(done))) => {
                    drop(request);
                    self.close().await;
                    let _ = done.send(());
                    return;
                }
                PollerWakeup::Command(Some(command)) => self.handle_command(command, &mut request),
                PollerWakeup::Command(None) => return,
                PollerWakeup::Answered(answer) => {
                    request = None;
                    if self.handle_answer(answer).await.is_err() {
                        return;
                    }
                }
                PollerWakeup::Deadline => {}
            }
        }
    }

    fn handle_command(&mut self, command: PollerCommand, request: &mut Option<PollFuture>) {
        match command {
            PollerCommand::Acknowledge(generation, update) => {
                if generation == self.generation {
                    self.received.acknowledge(update);
                    self.status.send_modify(|status| status.counters.acks_sent += 1);
                }
            }
            PollerCommand::Reconnect => {
                *request = None;
                self.paused = false;
                self.start_over();
            }
            PollerCommand::Pause(done) => {
                self.paused = true;
                *request = None;
                let _ = done.send(());
            }
            PollerCommand::Resume => {
                self.paused = false;
                self.not_before = Duration::ZERO;
            }
            // Handled by the loop.
            PollerCommand::Close(_) => {}
        }
    }

    /// Fetches unconfirmed updates again, on a new connection.
    fn start_over(&mut self) {
        self.generation = self.generation.next();
        self.sorter = FrameSorter::new(self.generation);
        self.received.forget();
        self.not_before = Duration::ZERO;
        self.sender.api.client.renew_polls();
        if self.status.borrow().live.is_some() {
            self.publish_live();
        }
    }

    /// The next request, when one is due.
    fn next_request(&mut self, now: Duration) -> Option<PollFuture> {
        if now < self.not_before {
            return None;
        }
        let sender = Arc::clone(&self.sender);
        if self.bot.is_none() {
            self.status.send_modify(|status| status.counters.dials += 1);
            return Some(Box::pin(async move {
                PollAnswer::Introduced(introduce(&sender.api.client, sender.api.has_rich()).await)
            }));
        }
        match self.received.next_poll(now) {
            NextPoll::Now => {}
            NextPoll::Wait if now.saturating_sub(self.forwarded_at) > MAX_COMMIT_TIME => {
                tracing::warn!("updates were not committed in time; asking Telegram for them again");
                self.start_over();
            }
            NextPoll::At(_) | NextPoll::Wait => return None,
        }
        // The first poll of a connection returns at once: only a poll that returned proves that updates come.
        let is_live = self.status.borrow().live.is_some();
        let wait = if is_live {
            self.settings.poll_timeout_secs
        } else {
            0
        };
        let mut body = Map::from_iter([
            ("limit".to_owned(), BATCH.into()),
            ("timeout".to_owned(), wait.into()),
            ("allowed_updates".to_owned(), json!(self.settings.allowed_updates)),
        ]);
        if let Some(offset) = self.received.begin_poll(now) {
            body.insert("offset".to_owned(), offset.into());
        }
        let is_rename_due = now.saturating_sub(self.identified_at) > IDENTIFY_EVERY;
        if is_rename_due {
            self.identified_at = now;
        }
        let has_webhook = std::mem::take(&mut self.has_webhook);
        Some(Box::pin(async move {
            let client = &sender.api.client;
            if has_webhook {
                delete_webhook(client).await;
            }
            let bot = if is_rename_due {
                identity(client).await
            } else {
                None
            };
            PollAnswer::Updates(client.poll(&body, Duration::from_secs(wait)).await, bot)
        }))
    }

    /// When the next poll or album is due.
    fn deadline(&self, requested: bool, now: Duration) -> Instant {
        let next_poll = match self.received.next_poll(now) {
            _ if requested || self.paused => None,
            NextPoll::Now => Some(now),
            NextPoll::At(at) => Some(at),
            NextPoll::Wait => Some(self.forwarded_at + MAX_COMMIT_TIME + Duration::from_millis(1)),
        };
        let next_poll = next_poll.map(|at| at.max(self.not_before));
        let due = [next_poll, self.received.deadline()].into_iter().flatten().min();
        self.clock.instant(due.unwrap_or(now + IDENTIFY_EVERY))
    }

    async fn handle_answer(&mut self, answer: PollAnswer) -> Result<(), NotRunning> {
        let answer = match answer {
            // Only a poll that returned ends an outage of polls.
            PollAnswer::Introduced(Introduction {
                identity: ApiAnswer::Ok(bot),
                had_webhook,
                has_drafts,
                has_rich,
            }) => {
                if !has_rich {
                    self.sender.api.no_rich();
                }
                self.introduced(&bot, had_webhook, has_drafts);
                return Ok(());
            }
            PollAnswer::Introduced(introduction) => introduction.identity,
            PollAnswer::Updates(answer, bot) => {
                // The bot's name may have changed; without a usable answer, the old one stays.
                self.bot = bot.as_ref().and_then(Bot::from_value).or(self.bot.take());
                answer
            }
        };
        match self.polling.answered(answer, self.clock.seed()) {
            PollStep::Updates(updates) => {
                if self.status.borrow().live.is_none() {
                    self.connected();
                }
                // A conflict is over: nothing is retried any more.
                self.status
                    .send_if_modified(|status| status.retry_at_ms.take().is_some());
                self.handle_updates(&updates).await
            }
            PollStep::Retry(retry) => {
                self.troubled(retry);
                Ok(())
            }
        }
    }

    /// Telegram described the bot.
    fn introduced(&mut self, bot: &Value, had_webhook: bool, has_drafts: bool) {
        self.identified_at = self.clock.mono();
        self.bot = Bot::from_value(bot);
        if self.bot.is_none() {
            tracing::warn!("Telegram did not describe the bot");
            self.not_before = self.clock.mono() + Duration::from_secs(5);
        }
        if had_webhook {
            tracing::warn!("{}", PollTrouble::Webhook);
        }
        self.has_drafts = has_drafts;
        if !has_drafts {
            self.sender.api.no_drafts();
        }
    }

    /// A poll returned: from now on messages come, and answers can be sent.
    fn connected(&mut self) {
        if self.status.borrow().counters.handshakes > 0 {
            self.generation = self.generation.next();
            self.sorter = FrameSorter::new(self.generation);
            self.received.forget();
        }
        self.publish_live();
        let bot = self.bot.as_ref().map_or("", |bot| bot.username.as_str());
        tracing::info!(bot, api = self.sender.api.client.host(), "connected to Telegram");
        self.sender.announce_commands(true);
    }

    fn publish_live(&mut self) {
        let mut descriptor = descriptor(self.has_drafts);
        if let Some(bot) = self.bot.as_ref().filter(|bot| !bot.username.is_empty()) {
            descriptor.label = format!("{}, @{}", descriptor.label, bot.username);
        }
        self.sorter.declare(&descriptor);
        let generation = self.generation;
        self.status
            .send_modify(|status| status.went_live(generation, [descriptor]));
    }

    /// A poll failed.
    fn troubled(&mut self, retry: PollRetry) {
        let PollRetry {
            after,
            trouble,
            is_news,
            is_offline,
        } = retry;
        let retry_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        if is_news {
            tracing::warn!(retry_ms, "{trouble}; run `hermes-relay doctor` to find the cause");
        }
        self.not_before = self.clock.mono() + after;
        self.sender.api.client.renew_polls();
        self.has_webhook |= trouble == PollTrouble::Webhook;
        let retry_at_ms = self.clock.unix_ms() + i64::try_from(after.as_millis()).unwrap_or_default();
        self.status.send_modify(|status| {
            if !is_offline {
                return status.failed(trouble.to_string(), retry_at_ms);
            }
            status.lost(trouble.to_string(), retry_at_ms);
            if let PollTrouble::Refused(_) = &trouble {
                status.revoked(trouble.to_string());
            }
        });
    }

    /// A poll brought updates.
    async fn handle_updates(&mut self, updates: &Value) -> Result<(), NotRunning> {
        let batch = self.read(updates);
        let now = self.clock.mono();
        // Presses are answered first: the person who pressed waits for that.
        for incoming in &batch {
            if let UpdateMeaning::Press {
                query_id,
                event,
                chat_id,
                message_id,
                language,
            } = &incoming.meaning
            {
                let button = chat_id.zip(*message_id);
                let language = language.as_deref();
                self.sender
                    .answer_press(query_id, event.as_ref(), button, language);
            }
        }
        let ready = self.received.receive(batch, now);
        self.forward(ready).await
    }

    fn read(&mut self, updates: &Value) -> Vec<Incoming> {
        let Some(bot) = &self.bot else {
            return Vec::new();
        };
        let callbacks = &self.sender.api.callbacks;
        let mut reader = BatchReader {
            bot,
            relevance: &self.relevance,
            open_callback: &|data| callbacks.open(data),
            topics: &mut self.topics,
            recent: &mut self.recent,
            taken: &mut self.taken,
        };
        read_batch(updates, &mut reader)
    }

    /// Forwards the albums whose time is up.
    async fn forward_due(&mut self, now: Duration) -> Result<(), NotRunning> {
        let due = self.received.due(now);
        self.forward(due).await
    }

    async fn forward(&mut self, ready: Vec<Incoming>) -> Result<(), NotRunning> {
        let mut deliveries: Vec<InboundFrame> = Vec::new();
        for incoming in ready {
            if let Some(line) = incoming.to_line() {
                deliveries.extend(self.sorter.delivery(line.as_bytes(), &self.frames));
                continue;
            }
            match incoming.meaning {
                UpdateMeaning::Stop { chat_id, draft_id } => {
                    let chat = ChatId {
                        platform: Platform::TELEGRAM.as_str().into(),
                        chat: chat_id.to_smolstr(),
                    };
                    let target = InterruptTarget::Draft(ShownDraft { chat, draft_id });
                    self.inbound.interrupt(self.sorter.interrupt(target)).await?;
                }
                UpdateMeaning::Migrated { from, to } => self.sender.api.migrated(from, to),
                UpdateMeaning::Member { chat_id, can_write } => {
                    tracing::info!(
                        chat = chat_id,
                        can_write,
                        "what the bot may do in a chat has changed"
                    );
                }
                UpdateMeaning::Ignored(why) => {
                    tracing::debug!(update = incoming.update_id, why, "ignored an update");
                }
                UpdateMeaning::Message(_)
                | UpdateMeaning::Press { .. }
                | UpdateMeaning::Topic { .. }
                | UpdateMeaning::Poison { .. } => {}
            }
        }
        if deliveries.is_empty() {
            return Ok(());
        }
        self.forwarded_at = self.clock.mono();
        self.inbound.forward(deliveries).await
    }

    /// Confirms committed updates, so that the next start does not fetch them again.
    async fn close(&mut self) {
        if let Some(offset) = self.received.left_to_confirm() {
            let body = Map::from_iter([
                ("offset".to_owned(), offset.into()),
                ("limit".to_owned(), 1.into()),
                ("timeout".to_owned(), 0.into()),
            ]);
            let _ = timeout(
                LAST_CALL_TIMEOUT,
                self.sender.api.client.poll(&body, Duration::ZERO),
            )
            .await;
        }
        self.status.send_modify(LinkStatus::closed);
    }
}

/// Asks for the bot's identity and the server's features before the first poll.
async fn introduce(client: &BotClient, uses_rich: bool) -> Introduction {
    let identity = client.call("getMe", &Map::new()).await;
    let mut introduction = Introduction {
        identity,
        had_webhook: false,
        has_drafts: true,
        has_rich: true,
    };
    if !matches!(introduction.identity, ApiAnswer::Ok(_)) {
        return introduction;
    }
    if let ApiAnswer::Ok(info) = client.call("getWebhookInfo", &Map::new()).await {
        let url = info.get("url").and_then(Value::as_str);
        introduction.had_webhook = url.is_some_and(|url| !url.is_empty());
    }
    if introduction.had_webhook {
        delete_webhook(client).await;
    }
    // Without parameters nothing is sent: a server that knows the method says what is missing.
    let probed = client.call("sendMessageDraft", &Map::new()).await;
    introduction.has_drafts = !probed.lacks_method();
    if uses_rich {
        let probed = client.call("sendRichMessage", &Map::new()).await;
        introduction.has_rich = !probed.lacks_method();
    }
    introduction
}

/// The bot's identity, if Telegram answers in time.
async fn identity(client: &BotClient) -> Option<Value> {
    let answer = timeout(IDENTIFY_TIMEOUT, client.call("getMe", &Map::new())).await;
    match answer.ok()? {
        ApiAnswer::Ok(bot) => Some(bot),
        ApiAnswer::Error { .. } | ApiAnswer::NotSent(_) | ApiAnswer::Unknown => None,
    }
}

/// Removes a webhook; updates that wait for it stay.
async fn delete_webhook(client: &BotClient) {
    let body = Map::from_iter([("drop_pending_updates".to_owned(), false.into())]);
    let _ = client.call("deleteWebhook", &body).await;
}

async fn pending(request: &mut Option<PollFuture>) -> PollAnswer {
    match request {
        Some(request) => request.await,
        None => std::future::pending().await,
    }
}
