//! Holds the connection to the gateway, forwards events to the relay, and stores how far they are committed.
//!
//! The session and its position are stored shortly after each commit, in a file beside the journal. That is as safe as the journal
//! itself: the position only counts events that the journal has, so a file that lags behind, or is lost, never skips a message.
//! Discord sends the events after it again, or they are fetched, and the journal recognises the messages that it has. A lost session is
//! stored with the chats whose messages are still to be fetched, so that a restart, or the next loss, fetches them too.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::missed::{Fetched, MissedMessages};
use super::sender::DiscordSender;
use crate::backoff::Backoff;
use crate::config::DiscordBotConfig;
use crate::direct::discord::{
    DeferredCommand, DiscordBot, DiscordGateway, DiscordMeaning, DiscordRelevance, EventReader, GatewayEnd,
    GatewayStep, HeldEvent, RestAnswer, StoredSession, TakenEvents, deletions, descriptor,
};
use crate::link::{Descriptors, Generation};
use crate::net::ws_io::{ReadEvent, SocketReader, SocketWriter, split};
use crate::relay::clock::Clock;
use crate::relay::not_running::NotRunning;
use crate::relay::transport::{FrameCounters, FrameSorter, InboundFrame, InboundSender, LinkStatus};
use crate::store::{read_bot_state, write_bot_state};

/// Longest delay of storing what was committed.
const STORE_AFTER: Duration = Duration::from_millis(200);
/// How long the bot waits after an error that somebody has to mend.
const ENDED_RETRY: Duration = Duration::from_secs(300);
/// Timeout of a question about an unknown channel.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(3);
/// The first and the longest wait before it is asked again.
const CHANNEL_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Events that are forwarded at once: the journal commits them together.
const MAX_BATCH: usize = 64;
/// Fetched messages that wait to be forwarded.
const MAX_FETCHED: usize = 16;
/// A close that keeps the session.
const KEEP_SESSION: u16 = 4000;

/// A command of the transport to its receiver.
#[derive(Debug)]
pub(super) enum GatewayCommand {
    /// The relay has committed an event.
    Acknowledge(String),
    /// Connect again, and take again what was not committed.
    Reconnect,
    /// Stop for good.
    Close(oneshot::Sender<()>),
}

/// The receiver of one bot.
#[derive(Debug)]
pub(super) struct GatewayReceiver {
    pub(super) sender: Arc<DiscordSender>,
    pub(super) settings: DiscordBotConfig,
    pub(super) commands: mpsc::Receiver<GatewayCommand>,
    pub(super) status: watch::Sender<LinkStatus>,
    pub(super) frames: Arc<FrameCounters>,
    pub(super) session_path: PathBuf,
    /// Messages of a channel that the agent gets when it is called.
    pub(super) group_context: usize,
}

/// Why a connection is over.
enum GatewayOver {
    /// It ended, with this close code if it was closed.
    Lost(Option<u16>, String),
    /// The transport closes.
    Close(oneshot::Sender<()>),
    /// The relay is gone.
    Gone,
}

impl From<NotRunning> for GatewayOver {
    fn from(_: NotRunning) -> Self {
        Self::Gone
    }
}

impl GatewayReceiver {
    /// Runs until the transport closes.
    pub(super) async fn run(self, inbound: InboundSender) {
        let Self {
            sender,
            settings,
            mut commands,
            status,
            frames,
            session_path,
            group_context,
        } = self;
        let stored = read_bot_state(&session_path);
        let bot: Option<DiscordBot> = serde_json::from_value(stored["bot"].clone())
            .ok()
            .filter(|bot: &DiscordBot| !bot.id.is_empty());
        // Without the bot's account mentions of it are not recognised, and only a new session names it.
        let session: Option<StoredSession> = serde_json::from_value(stored["session"].clone())
            .ok()
            .filter(|_| bot.is_some());
        let chats: std::collections::BTreeMap<String, u64> =
            serde_json::from_value(stored["chats"].clone()).unwrap_or_default();
        // Files of earlier versions have none.
        let missed_chats: std::collections::BTreeMap<String, u64> =
            serde_json::from_value(stored["missed"].clone()).unwrap_or_default();
        let identified: Vec<i64> =
            serde_json::from_value(stored["identified_ms"].clone()).unwrap_or_default();
        let deferred: Vec<DeferredCommand> =
            serde_json::from_value(stored["commands"].clone()).unwrap_or_default();
        sender.restore(deferred);
        let seq = session.as_ref().map_or(0, |session| session.seq);
        let token = sender.api.client.token().clone();
        let relevance = DiscordRelevance {
            require_mention: settings.require_mention,
            free_chats: settings.free_chats.clone(),
            allow_bots: settings.allow_bots,
        };
        let mut sorter = FrameSorter::new(Generation::first());
        // A session that goes on sends what was missed before it is ready again.
        let descriptor = descriptor();
        sorter.declare(&descriptor);
        status.send_modify(|status| {
            status.descriptors = Descriptors::new(Generation::first(), [descriptor]);
        });
        let mut receiving = GatewayLoop {
            reader: EventReader::new(bot.unwrap_or_default(), relevance, group_context),
            gateway: DiscordGateway::new(token, session, identified),
            taken: TakenEvents::new(seq, chats, missed_chats),
            sender,
            settings,
            status,
            frames,
            session_path,
            inbound,
            clock: Clock::start(),
            sorter,
            generation: Generation::first(),
            store_at: None,
            batch: Vec::new(),
            fetch_results: no_results(),
            fetching: None,
            channel_retry: None,
        };
        receiving.run(&mut commands).await;
    }
}

struct GatewayLoop {
    sender: Arc<DiscordSender>,
    settings: DiscordBotConfig,
    status: watch::Sender<LinkStatus>,
    frames: Arc<FrameCounters>,
    session_path: PathBuf,
    inbound: InboundSender,
    clock: Clock,
    gateway: DiscordGateway,
    taken: TakenEvents,
    reader: EventReader,
    sorter: FrameSorter,
    generation: Generation,
    /// When what was committed is stored.
    store_at: Option<Duration>,
    /// What was read and is not forwarded yet: more may be there already.
    batch: Vec<InboundFrame>,
    /// What was fetched; closed while nothing is.
    fetch_results: mpsc::Receiver<Fetched>,
    /// Fetches what was missed.
    fetching: Option<AbortOnDropHandle<()>>,
    /// When a question about an unknown channel may be asked again, and the waits after further failures.
    channel_retry: Option<(Duration, Backoff)>,
}

impl GatewayLoop {
    async fn run(&mut self, commands: &mut mpsc::Receiver<GatewayCommand>) {
        let mut not_before = self.gateway_wait();
        loop {
            let over = match self.wait(not_before, commands).await {
                Some(over) => over,
                None => self.connection(commands).await,
            };
            match over {
                GatewayOver::Lost(code, why) => {
                    let channel_retry = self.channel_retry.as_ref().map(|(at, _)| *at);
                    not_before = self.lost(code, &why).max(channel_retry.unwrap_or_default());
                }
                GatewayOver::Close(done) => {
                    self.store();
                    self.status.send_modify(LinkStatus::closed);
                    let _ = done.send(());
                    return;
                }
                GatewayOver::Gone => return,
            }
        }
    }

    fn gateway_wait(&self) -> Duration {
        let wait = self.gateway.identify_wait(self.clock.unix_ms());
        let is_new = self.gateway.resume_url().is_none();
        self.clock.mono() + if is_new { wait } else { Duration::ZERO }
    }

    /// Waits for the time of the next connection, and takes commands meanwhile.
    async fn wait(
        &mut self,
        until: Duration,
        commands: &mut mpsc::Receiver<GatewayCommand>,
    ) -> Option<GatewayOver> {
        let mut until = until;
        loop {
            let now = self.clock.mono();
            self.store_if_due(now);
            if now >= until {
                return None;
            }
            let deadline = self.store_at.map_or(until, |at| at.min(until));
            tokio::select! {
                command = commands.recv() => match command {
                    Some(GatewayCommand::Acknowledge(id)) => self.acknowledge(&id),
                    Some(GatewayCommand::Reconnect) => until = self.gateway_wait(),
                    Some(GatewayCommand::Close(done)) => return Some(GatewayOver::Close(done)),
                    None => return Some(GatewayOver::Gone),
                },
                () = sleep_until(self.clock.instant(deadline)) => {}
            }
        }
    }

    /// One connection, from its dial to its end.
    async fn connection(&mut self, commands: &mut mpsc::Receiver<GatewayCommand>) -> GatewayOver {
        self.status.send_modify(|status| status.counters.dials += 1);
        let url = match self.address().await {
            Ok(url) => url,
            Err(over) => return over,
        };
        let client = Arc::clone(&self.sender.api.client);
        let dialed = tokio::select! {
            dialed = client.dial(&url) => dialed,
            command = closing(commands) => return command,
        };
        let (mut reader, mut writer) = match dialed {
            Ok(dialed) => split(dialed.socket),
            Err(error) => return GatewayOver::Lost(None, error.to_string()),
        };
        self.taken.forget();
        self.gateway.connected(self.taken.committed(), self.clock.mono());
        let Err(over) = self.serve(&mut reader, &mut writer, commands).await;
        self.stop_fetching();
        // Without a relay there is nobody to tell.
        let _ = self.flush().await;
        // A normal close would end the session.
        if !matches!(over, GatewayOver::Lost(Some(_), _)) {
            let _ = timeout(Duration::from_secs(1), writer.close(KEEP_SESSION, "")).await;
        }
        over
    }

    /// The address of the gateway.
    async fn address(&mut self) -> Result<String, GatewayOver> {
        let configured = self.settings.gateway_url.clone();
        let known = configured.or_else(|| self.gateway.resume_url().map(str::to_owned));
        let base = match known.filter(|url| !url.is_empty()) {
            Some(url) => url,
            None => match self.sender.api.get("gateway/bot", "gateway").await {
                RestAnswer::Ok(found) => found["url"].as_str().unwrap_or_default().to_owned(),
                RestAnswer::Error { status: 401, .. } => {
                    return Err(GatewayOver::Lost(Some(4004), String::new()));
                }
                RestAnswer::Error { message, .. } => return Err(GatewayOver::Lost(None, message)),
                RestAnswer::NotSent(why) => return Err(GatewayOver::Lost(None, why)),
                RestAnswer::Unknown => return Err(GatewayOver::Lost(None, "no usable answer".to_owned())),
            },
        };
        let mut url = url::Url::parse(&base)
            .map_err(|_| GatewayOver::Lost(None, "the gateway's address is not a URL".to_owned()))?;
        url.set_query(Some("v=10&encoding=json"));
        Ok(url.into())
    }

    async fn serve(
        &mut self,
        reader: &mut SocketReader,
        writer: &mut SocketWriter,
        commands: &mut mpsc::Receiver<GatewayCommand>,
    ) -> Result<Infallible, GatewayOver> {
        let mut run = 0;
        loop {
            let now = self.clock.mono();
            self.store_if_due(now);
            // One at a time: each may ask about its channel, and heartbeats must go on meanwhile.
            if let Some(event) = self.taken.next_free(now) {
                let taken = self.event(Some(event.seq), &event.kind, &event.data).await;
                if let Err(over) = taken {
                    self.taken.put_back(event);
                    return Err(over);
                }
            }
            let now = self.clock.mono();
            let goes_on = self.taken.has_free();
            let due = [self.gateway.deadline(), self.store_at, self.taken.hold_deadline()];
            let due = due.into_iter().flatten().chain(goes_on.then_some(now)).min();
            let deadline: Instant = self.clock.instant(due.unwrap_or(now + ENDED_RETRY));
            while let Ok(command) = commands.try_recv() {
                self.obey(command)?;
            }
            // What is there already is forwarded together, but does not keep everything else waiting.
            let may_go_on = run < MAX_BATCH && (goes_on || !self.batch.is_empty());
            let is_timer_due = self.gateway.deadline().is_some_and(|at| now >= at);
            // It is not silent if this process had no time to read.
            let looks_first = self.gateway.gives_up(now) && run < MAX_BATCH;
            let may_read = looks_first || may_go_on && !is_timer_due;
            let at_once = may_read.then(|| reader.read().now_or_never()).flatten();
            let steps = if let Some(read) = at_once {
                run += 1;
                self.steps(read)?
            } else if is_timer_due {
                self.gateway.timer(now)
            } else if may_go_on && goes_on {
                run += 1;
                continue;
            } else {
                run = 0;
                self.flush().await?;
                tokio::select! {
                    command = commands.recv() => {
                        self.obey(command.ok_or(GatewayOver::Gone)?)?;
                        continue;
                    }
                    read = reader.read() => self.steps(read)?,
                    Some(fetched) = self.fetch_results.recv() => {
                        self.fetched(fetched).await?;
                        continue;
                    }
                    () = sleep_until(deadline) => self.gateway.timer(self.clock.mono()),
                }
            };
            for step in steps {
                match step {
                    GatewayStep::Send(payload) => {
                        let written = writer.write_line(payload.to_string()).await;
                        let written = written.and(writer.flush().await);
                        written.map_err(|error| GatewayOver::Lost(None, error.to_string()))?;
                    }
                    GatewayStep::Event { seq, kind, data } => {
                        let event = HeldEvent { seq, kind, data };
                        if let Some(event) = self.taken.hold(event, self.clock.mono()) {
                            self.event(Some(event.seq), &event.kind, &event.data).await?;
                        }
                    }
                    GatewayStep::Ready(is_new) => {
                        self.flush().await?;
                        self.ready(is_new);
                    }
                    GatewayStep::Drop => {
                        let why = "the gateway asked for a new connection, or was silent";
                        return Err(GatewayOver::Lost(None, why.to_owned()));
                    }
                }
            }
        }
    }

    /// Does what the transport asks for.
    fn obey(&mut self, command: GatewayCommand) -> Result<(), GatewayOver> {
        match command {
            GatewayCommand::Acknowledge(id) => {
                self.acknowledge(&id);
                Ok(())
            }
            GatewayCommand::Reconnect => Err(GatewayOver::Lost(None, "connecting anew".to_owned())),
            GatewayCommand::Close(done) => Err(GatewayOver::Close(done)),
        }
    }

    /// What follows from what was read.
    fn steps(&mut self, read: ReadEvent) -> Result<Vec<GatewayStep>, GatewayOver> {
        match read {
            ReadEvent::Data(bytes) => {
                let payload: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let (now_ms, seed) = (self.clock.unix_ms(), self.clock.seed());
                Ok(self.gateway.received(&payload, self.clock.mono(), now_ms, seed))
            }
            ReadEvent::Alive => Ok(Vec::new()),
            ReadEvent::Closed(close) => {
                let code = close.as_ref().map(|(code, _)| *code);
                let why = close.map(|(_, reason)| reason).unwrap_or_default();
                Err(GatewayOver::Lost(code, why))
            }
            ReadEvent::TooLarge(bytes) => {
                Err(GatewayOver::Lost(None, format!("a payload has {bytes} bytes")))
            }
            ReadEvent::Failed(why) => Err(GatewayOver::Lost(None, why)),
        }
    }

    /// The session works: from now on messages come.
    fn ready(&mut self, is_new: bool) {
        if is_new {
            self.taken
                .begin(self.gateway.session().map_or(0, |session| session.seq));
        }
        self.fetch_missed();
        if self.status.borrow().counters.handshakes > 0 {
            self.generation = self.generation.next();
            self.sorter = FrameSorter::new(self.generation);
        }
        let descriptor = descriptor();
        self.sorter.declare(&descriptor);
        let generation = self.generation;
        self.status
            .send_modify(|status| status.went_live(generation, [descriptor]));
        tracing::info!(
            resumed = !is_new,
            api = self.sender.api.client.host(),
            "connected to Discord"
        );
        self.sender.register_commands(Some(&self.reader.bot.application));
        self.store();
    }

    async fn event(&mut self, seq: Option<u64>, kind: &str, data: &Value) -> Result<(), GatewayOver> {
        if kind == "MESSAGE_DELETE_BULK" {
            for deleted in deletions(data) {
                self.take(seq, "MESSAGE_DELETE", &deleted).await?;
            }
        } else {
            self.take(seq, kind, data).await?;
        }
        if let Some(seq) = seq {
            self.taken.read(seq);
            self.store_soon();
        }
        Ok(())
    }

    async fn take(&mut self, seq: Option<u64>, kind: &str, data: &Value) -> Result<(), GatewayOver> {
        if seq.is_none() {
            self.reader.learn(&data["channel"]);
        }
        if let Some(channel) = self.reader.wants_channel(kind, data)
            && channel.bytes().all(|byte| byte.is_ascii_digit())
        {
            self.ask_about(channel).await?;
        }
        let meaning = match seq {
            Some(_) => self.reader.read(kind, data, self.clock.unix_ms()),
            None => self.reader.read_fetched(data),
        };
        match meaning {
            DiscordMeaning::Message {
                event,
                buffer_id,
                chat,
                message,
            } => {
                let line = json!({ "type": "inbound", "event": event, "bufferId": buffer_id }).to_string();
                self.taken.forwarded(&buffer_id, seq, &chat, message);
                self.forward(&line).await?;
            }
            DiscordMeaning::Interaction(interaction, forward) => {
                let (id, chat) = (interaction.command.id.clone(), interaction.command.chat.clone());
                self.sender.acknowledge(*interaction);
                if let Some(forward) = forward {
                    let line = json!({ "type": "passthrough_forward", "forward": forward, "bufferId": id });
                    self.taken.forwarded(&id, seq, &chat, 0);
                    self.forward(&line.to_string()).await?;
                }
            }
            DiscordMeaning::Passed { chat, message, why } => {
                tracing::debug!(why, "ignored a message");
                self.taken.passed(&chat, message);
            }
            DiscordMeaning::Nothing => {}
        }
        Ok(())
    }

    /// Asks about an unknown channel, without which a message may seem to be for others. If there is no answer now, the connection
    /// ends, and its events come again from those that are not committed.
    async fn ask_about(&mut self, channel: &str) -> Result<(), GatewayOver> {
        let path = format!("channels/{channel}");
        match timeout(CHANNEL_TIMEOUT, self.sender.api.get(&path, "channel")).await {
            Ok(RestAnswer::Ok(found)) => self.reader.learn(&found),
            // Discord knows no such channel, or does not let the bot see it.
            Ok(RestAnswer::Error {
                code: 10_000..20_000 | 50_000..100_000,
                ..
            }) => {}
            Ok(_) | Err(_) => {
                let retry = self.channel_retry.take().map(|(_, backoff)| backoff);
                let mut retry = retry.unwrap_or_else(|| Backoff::new(CHANNEL_RETRY.0, CHANNEL_RETRY.1));
                let at = self.clock.mono() + retry.next_delay();
                self.channel_retry = Some((at, retry));
                let why = format!("Discord does not describe the channel {channel} now");
                return Err(GatewayOver::Lost(None, why));
            }
        }
        self.channel_retry = None;
        Ok(())
    }

    async fn forward(&mut self, line: &str) -> Result<(), GatewayOver> {
        self.batch
            .extend(self.sorter.delivery(line.as_bytes(), &self.frames));
        if self.batch.len() >= MAX_BATCH {
            self.flush().await?;
        }
        Ok(())
    }

    /// Forwards what was read.
    async fn flush(&mut self) -> Result<(), GatewayOver> {
        if !self.batch.is_empty() {
            self.inbound.forward(std::mem::take(&mut self.batch)).await?;
        }
        Ok(())
    }

    /// Fetches the messages that the gateway will not send, because their session was lost.
    fn fetch_missed(&mut self) {
        self.stop_fetching();
        let chats = self.taken.missed();
        if chats.is_empty() {
            return;
        }
        let (results, fetch_results) = mpsc::channel(MAX_FETCHED);
        let missed = MissedMessages {
            source: Arc::clone(&self.sender),
            results,
            clock: self.clock,
            needs_roles: self.settings.needs_roles,
        };
        self.fetch_results = fetch_results;
        self.fetching = Some(AbortOnDropHandle::new(tokio::spawn(missed.fetch(chats))));
    }

    /// Fetches no more, and drops what was not forwarded: the next connection fetches it again.
    fn stop_fetching(&mut self) {
        self.fetching = None;
        self.fetch_results = no_results();
    }

    /// Takes what was fetched.
    async fn fetched(&mut self, fetched: Fetched) -> Result<(), GatewayOver> {
        match fetched {
            Fetched::Message(message) => return self.event(None, "MESSAGE_CREATE", &message).await,
            Fetched::All(chat) => self.taken.fetched(&chat),
            Fetched::Failed(chat, failure) => self.taken.not_fetched(&chat, failure),
        }
        self.store_soon();
        Ok(())
    }

    fn acknowledge(&mut self, buffer_id: &str) {
        if self.taken.acknowledged(buffer_id) {
            self.status.send_modify(|status| status.counters.acks_sent += 1);
            self.store_soon();
        }
    }

    fn store_soon(&mut self) {
        let at = self.clock.mono() + STORE_AFTER;
        self.store_at.get_or_insert(at);
    }

    fn store_if_due(&mut self, now: Duration) {
        if self.store_at.is_some_and(|at| now >= at) {
            self.store();
        }
    }

    fn store(&mut self) {
        self.store_at = None;
        let session = self.gateway.session().map(|session| {
            let mut session = session.clone();
            session.seq = self.taken.committed();
            session
        });
        let state = json!({
            "session": session,
            "bot": self.reader.bot,
            "chats": self.taken.chats(),
            "missed": self.taken.missed(),
            "identified_ms": self.gateway.identified_ms(),
            "commands": self.sender.api.deferred(),
        });
        if let Err(error) = write_bot_state(&self.session_path, &state) {
            tracing::warn!(%error, "the session with Discord cannot be stored; a restart begins a new one");
        }
    }

    /// A connection has ended: returns when the next one is due.
    fn lost(&mut self, code: Option<u16>, why: &str) -> Duration {
        let (now_ms, seed) = (self.clock.unix_ms(), self.clock.seed());
        let closed = self.gateway.closed(code, now_ms, seed);
        let after = closed.unwrap_or(ENDED_RETRY);
        let was_live = self.status.borrow().live.is_some();
        let why = match (&closed, code) {
            (Err(end), _) => end.to_string(),
            (Ok(_), Some(code)) => format!("Discord closed the connection ({code} {why})"),
            (Ok(_), None) if was_live => format!("the connection to Discord was lost: {why}"),
            (Ok(_), None) => format!("cannot connect to Discord: {why} (`hermes-relay doctor` tells more)"),
        };
        let retry_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(retry_ms, "{why}");
        let retry_at_ms = now_ms + i64::try_from(retry_ms).unwrap_or_default();
        self.status.send_modify(|status| {
            status.lost(why.clone(), retry_at_ms);
            if let Err(GatewayEnd::Token | GatewayEnd::Sharding | GatewayEnd::Version | GatewayEnd::Intents) =
                closed
            {
                status.revoked(why);
            }
        });
        self.clock.mono() + after
    }
}

/// The results of fetching nothing.
fn no_results() -> mpsc::Receiver<Fetched> {
    mpsc::channel(1).1
}

/// Waits for the command to close; others are of no use while a connection is opened.
async fn closing(commands: &mut mpsc::Receiver<GatewayCommand>) -> GatewayOver {
    loop {
        match commands.recv().await {
            Some(GatewayCommand::Close(done)) => return GatewayOver::Close(done),
            Some(GatewayCommand::Acknowledge(_) | GatewayCommand::Reconnect) => {}
            None => return GatewayOver::Gone,
        }
    }
}
