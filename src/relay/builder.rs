//! Builds a relay from settings and agents.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::clock::Clock;
use super::event_loop::{Assembly, Channels, EventLoop, ExitReason};
use super::handle::{MAX_REQUESTS, RelayHandle};
use super::parts::agents::{AgentRegistry, AgentSlot};
use super::parts::attachments::{media_dir, open_client};
use super::parts::journal_io::ENOUGH_COMMANDS;
use super::parts::scheduler::Arms;
use super::parts::suspend::Suspender;
use super::provisioning::{pinned_credentials, tls};
use super::transport::{
    Credentials, DiscordTransport, LinkStatus, MemberKind, RelayTransport, TelegramTransport, TransportGroup,
    USER_AGENT, WebSocketSettings, WebSocketTransport,
};
use super::voice::{Voice, VoiceEnvironment};
use crate::agent::child::{BaseEnv, GroupNotes, end_leftovers};
use crate::agent::{Agent, UnknownAgent};
use crate::config::{
    DiscordBotConfig, Durability, Settings, SleepAction, SleepConfig, TelegramConfig, check_bot_token,
    check_discord_token,
};
use crate::cron::arming::{Arming, DesiredArms};
use crate::cron::chronos::ArmReport;
use crate::link::{HelloIdentity, LinkSettings};
use crate::net::discord::DiscordClient;
use crate::net::http::HttpEgress;
use crate::net::media::BotFiles;
use crate::net::proxy::ProxyRules;
use crate::net::send_lease::SendLease;
use crate::net::socket::Dialer;
use crate::net::telegram::BotClient;
use crate::net::tls::{Tls, TlsError};
use crate::store::{self, CommitStream, Journal, JournalSettings, OpenError, Opened};
use crate::wire::{ConnectorUrl, UrlError};

/// Why a relay cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No connector is configured.
    #[error("no connector URL is configured")]
    NoUrl,
    /// The connector's URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The connector is not on this machine and the URL is not encrypted.
    #[error("the connector URL {0} is not encrypted; use wss:// or set `connector.allow_plaintext: true`")]
    Plaintext(ConnectorUrl),
    /// No token is configured for the bot.
    #[error(
        "no token is configured for the Telegram bot: set TELEGRAM_BOT_TOKEN or `direct.telegram.token_file`"
    )]
    NoBotToken,
    /// The bot's token cannot be one.
    #[error("the Telegram bot's token cannot be used: {0}")]
    BotToken(&'static str),
    /// The client of the Bot API cannot be set up.
    #[error("cannot set up the client of the Bot API: {0}")]
    Telegram(String),
    /// No token is configured for the Discord bot.
    #[error("no token is configured for the Discord bot: {0}")]
    NoDiscordToken(String),
    /// The Discord bot's token cannot be one.
    #[error("the Discord bot's token cannot be used: {0}")]
    DiscordToken(&'static str),
    /// The client of Discord's API cannot be set up.
    #[error("cannot set up the client of Discord's API: {0}")]
    Discord(String),
    /// The agent is unknown.
    #[error(transparent)]
    Agent(#[from] UnknownAgent),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What the settings name to transcribe or to speak with cannot be used.
    #[error("{0}")]
    Voice(String),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
}

/// Builds a relay.
pub struct RelayBuilder {
    settings: Settings,
    agents: Vec<(String, AgentSlot)>,
    transport: Option<Arc<dyn RelayTransport>>,
    proxies: ProxyRules,
    tls: Option<Tls>,
    credentials: Option<watch::Receiver<Option<Credentials>>>,
    fresh_on_corruption: bool,
    lock_wait: Duration,
    suspender: Option<Suspender>,
    voice: Option<Voice>,
    arming: Option<Arming>,
    clock: Clock,
    enough_commands: usize,
    journal: Option<Opened>,
    stream: Option<Box<dyn CommitStream>>,
    lease: Option<SendLease>,
}

/// A relay, ready to run. Any number of them run in one process, each with a state directory of its own.
///
/// ```no_run
/// use hermes_relay::{EchoAgent, Relay, Settings};
///
/// # async fn serve(stop: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut settings = Settings::embedded("/var/lib/mine");
/// settings.connector.url = Some("wss://connector.example/relay".into());
/// let relay = Relay::builder(settings).agent("mine", EchoAgent).build()?;
/// let handle = relay.handle();
/// tokio::spawn(async move {
///     // Reaches a chat that wrote before, also before the last restart.
///     handle.send("chat-1", "I am back.").await
/// });
/// relay.run(stop).await;
/// # Ok(())
/// # }
/// ```
pub struct Relay {
    /// Boxed, so that the future that runs it stays small.
    event_loop: Box<EventLoop>,
    channels: Channels,
    handle: RelayHandle,
    arming: Option<ArmingTask>,
}

type ArmingTask = (Arming, watch::Receiver<DesiredArms>, watch::Sender<ArmReport>);

impl RelayBuilder {
    /// Adds an agent under a name. `settings.agent` names the one that answers by default; the first that was added when
    /// it is empty.
    #[must_use]
    pub fn agent(self, name: &str, agent: impl Agent) -> Self {
        self.agents([(name.to_owned(), AgentSlot::new(Arc::new(agent)))])
    }

    /// Adds agents, each with who decides what it asks and where it works.
    #[must_use]
    pub fn agents(mut self, agents: impl IntoIterator<Item = (String, AgentSlot)>) -> Self {
        self.agents.extend(agents);
        self
    }

    /// Uses this transport instead of dialling the configured connector.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn RelayTransport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Dials through these proxies.
    #[must_use]
    pub fn proxies(mut self, proxies: ProxyRules) -> Self {
        self.proxies = proxies;
        self
    }

    /// Dials with this TLS configuration, instead of one of its own from the settings.
    #[must_use]
    pub(crate) fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Takes the credentials from here, and new ones when they change.
    #[must_use]
    pub fn credentials(mut self, credentials: watch::Receiver<Option<Credentials>>) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Moves a corrupt journal aside and starts a fresh one, instead of refusing to start.
    #[must_use]
    pub fn fresh_on_corruption(mut self, fresh: bool) -> Self {
        self.fresh_on_corruption = fresh;
        self
    }

    /// Waits so long for another process that holds the state directory, instead of refusing to start at once.
    #[must_use]
    pub fn lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// Suspends the machine with this, when `sleep.action` says so.
    #[must_use]
    pub fn suspender(mut self, suspender: Suspender) -> Self {
        self.suspender = Some(suspender);
        self
    }

    /// Transcribes and speaks with this, instead of with what knows nothing of this process's environment.
    #[must_use]
    pub(crate) fn voice(mut self, voice: Voice) -> Self {
        self.voice = Some(voice);
        self
    }

    /// Arms scheduled jobs with the managed scheduler through this, when `cron.provider` says so.
    #[must_use]
    pub(crate) fn arming(mut self, arming: Arming) -> Self {
        self.arming = Some(arming);
        self
    }

    /// Sends every commit to the stream of a cluster, and writes to the connector only while the lease holds.
    #[cfg(feature = "nats")]
    #[must_use]
    pub(crate) fn cluster(mut self, stream: Box<dyn CommitStream>, lease: SendLease) -> Self {
        (self.stream, self.lease) = (Some(stream), Some(lease));
        self
    }

    /// Runs in a simulation: by the runtime's clock, which may be paused, from this time of day on, with this seed for chance, and
    /// on a journal that the simulation has opened.
    #[cfg(feature = "internals")]
    #[must_use]
    pub fn simulated(mut self, unix_ms: i64, seed: u64, journal: Opened) -> Self {
        (self.clock, self.journal) = (Clock::simulated(unix_ms, seed), Some(journal));
        // Rounds of a simulation have few commands.
        self.enough_commands = 2;
        self
    }

    /// Checks everything and opens the journal. Nothing is dialled yet.
    pub fn build(self) -> Result<Relay, BuildError> {
        let agents = AgentRegistry::new(&self.settings, self.agents)?;
        let credentials = self
            .credentials
            .unwrap_or_else(|| watch::channel(pinned_credentials(&self.settings)).1);
        let mut bot_files = None;
        let voice = match self.voice {
            Some(voice) => voice,
            None => voice_alone(&self.settings, self.tls.as_ref(), &self.proxies)?,
        };
        let (transport, tls) = if let Some(transport) = self.transport {
            (transport, None)
        } else {
            let tls = self.tls.unwrap_or_else(|| tls(&self.settings));
            let (proxies, credentials) = (self.proxies.clone(), credentials.clone());
            let mut members = Members::new();
            // First: what it describes first counts for platforms that nobody describes.
            if self.settings.has_connector() {
                let announced = self.settings.connector.identities.iter();
                let announced = announced.map(|identity| identity.platform.clone());
                let websocket = websocket_transport(
                    &self.settings,
                    tls.clone(),
                    proxies.clone(),
                    credentials,
                    self.lease.clone(),
                )?;
                members.push((MemberKind::Connector(announced.collect()), Arc::new(websocket)));
            }
            if self.settings.direct.is_bot() {
                let (bots, files) = bots(&self.settings, &tls, &proxies)?;
                bot_files = Some(files);
                members.extend(bots);
            }
            (alone_or_grouped(members), Some(tls))
        };
        let journal = JournalSettings {
            fresh_on_corruption: self.fresh_on_corruption,
            lock_wait: self.lock_wait,
            ..journal_settings(&self.settings)
        };
        let (opened, group_notes) = if let Some(opened) = self.journal {
            (opened, None)
        } else {
            let (dir, now_ms) = (&self.settings.state_dir, self.clock.unix_ms());
            let opened = match self.stream {
                Some(stream) => Journal::open_replicated(dir, journal, now_ms, stream)?,
                None => Journal::open(dir, journal, now_ms)?,
            };
            // The journal holds the state directory's lock from here on.
            end_leftovers(dir);
            (opened, Some(GroupNotes::keep_in(dir)))
        };
        let link = transport.status();
        let media = tls.and_then(|tls| {
            open_client(
                &self.settings,
                tls,
                self.proxies,
                credentials,
                link,
                bot_files,
                self.lease,
            )
        });
        let (requests, request_queue) = mpsc::channel(MAX_REQUESTS);
        let (arms, arming) = match self.arming {
            None => (None, None),
            Some(arming) => {
                let (arms, desired, report) = Arms::channel();
                (Some(arms), Some((arming, desired, report)))
            }
        };
        let assembly = Assembly {
            agents,
            transport,
            media,
            voice,
            suspender: self.suspender,
            arms,
            journal: opened,
            group_notes,
            enough_commands: self.enough_commands,
            clock: self.clock,
            requests: request_queue,
        };
        let (event_loop, channels) = EventLoop::new(&self.settings, assembly);
        Ok(Relay {
            event_loop: Box::new(event_loop),
            channels,
            handle: RelayHandle(requests),
            arming,
        })
    }
}

impl Relay {
    /// Begins to build a relay.
    pub fn builder(settings: Settings) -> RelayBuilder {
        RelayBuilder {
            settings,
            agents: Vec::new(),
            transport: None,
            proxies: ProxyRules::none(),
            tls: None,
            credentials: None,
            fresh_on_corruption: false,
            lock_wait: Duration::ZERO,
            suspender: None,
            voice: None,
            arming: None,
            clock: Clock::start(),
            enough_commands: ENOUGH_COMMANDS,
            journal: None,
            stream: None,
            lease: None,
        }
    }

    /// A transport to the configured connector, without a relay around it.
    pub fn dial(
        settings: &Settings,
        proxies: ProxyRules,
        credentials: watch::Receiver<Option<Credentials>>,
    ) -> Result<WebSocketTransport, BuildError> {
        websocket_transport(settings, tls(settings), proxies, credentials, None)
    }

    /// A handle to the relay, for while it runs.
    pub fn handle(&self) -> RelayHandle {
        self.handle.clone()
    }

    /// The state of the connection; watchers are notified of changes.
    pub fn link(&self) -> watch::Receiver<LinkStatus> {
        self.event_loop.link.watch()
    }

    /// Serves until `shutdown` resolves, then ends in order within the shutdown budget; a refresh of the portal login that is under
    /// way then ends first, after 15 seconds at most. Dropped while it runs, it ends like a crash: the next run reports the turns
    /// that were interrupted and goes on with the rest.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> ExitReason {
        // Our own handle keeps the channel of requests open for as long as the relay runs.
        let Self {
            event_loop,
            channels,
            handle: _handle,
            arming,
        } = self;
        // It ends with this future: the relay's shutdown does not wait for the managed scheduler, but for the new refresh token
        // of a login whose old one is spent.
        let mut tasks = JoinSet::new();
        let login = arming.as_ref().map(|(arming, ..)| arming.login());
        if let Some((arming, desired, report)) = arming {
            tasks.spawn(arming.run(desired, report));
        }
        let ended = event_loop.run(channels, shutdown).await;
        tasks.shutdown().await;
        if let Some(login) = login {
            login.refreshed().await;
        }
        ended
    }
}

/// The journal's settings.
pub(crate) fn journal_settings(settings: &Settings) -> JournalSettings {
    let journal = &settings.journal;
    JournalSettings {
        durability: match journal.durability {
            Durability::Full => store::Durability::Full,
            Durability::Process => store::Durability::Process,
        },
        dedupe_days: small(journal.dedupe_days),
        keep_days: small(journal.keep_days),
        max_bytes: journal.max_bytes,
        resume_days: small(journal.resume_days),
        resume_bytes: journal.resume_bytes,
        chat_memory: small(journal.chat_memory as u64),
        assigned_dir: settings.state_dir_assigned,
        telegram_bot: settings.direct.telegram_bot(),
        ..JournalSettings::default()
    }
}

/// What the settings name to hear and speak with, without this process's environment.
fn voice_alone(settings: &Settings, given: Option<&Tls>, proxies: &ProxyRules) -> Result<Voice, BuildError> {
    if !settings.transcribe.is_on() && !settings.speak.is_on() {
        return Ok(Voice::default());
    }
    let around = VoiceEnvironment {
        env: &|_| None,
        base: &BaseEnv::default(),
        egress: &HttpEgress {
            tls: given.cloned().unwrap_or_else(|| tls(settings)),
            proxies: proxies.clone(),
            user_agent: USER_AGENT.to_owned(),
            lease: None,
        },
    };
    Voice::from_settings(settings, &around).map_err(|error| BuildError::Voice(error.to_string()))
}

/// Why a bot of these settings cannot log in, as far as its token alone tells.
pub fn check_bot_tokens(settings: &Settings) -> Result<(), BuildError> {
    settings
        .direct
        .telegram
        .as_ref()
        .map(telegram_token)
        .transpose()?;
    settings.direct.discord.as_ref().map(discord_token).transpose()?;
    Ok(())
}

fn telegram_token(bot: &TelegramConfig) -> Result<SecretString, BuildError> {
    let token = bot.token.clone().ok_or(BuildError::NoBotToken)?;
    check_bot_token(&token).map_err(BuildError::BotToken)?;
    Ok(token)
}

fn discord_token(bot: &DiscordBotConfig) -> Result<SecretString, BuildError> {
    let token = bot.token.clone().ok_or_else(|| {
        BuildError::NoDiscordToken(match &bot.token_env {
            Some(variable) => {
                format!(
                    "the environment variable {variable}, which `direct.discord.token_env` names, is not set"
                )
            }
            None => {
                "set DISCORD_BOT_TOKEN, `direct.discord.token_file` or `direct.discord.token_env`".to_owned()
            }
        })
    })?;
    check_discord_token(&token).map_err(BuildError::DiscordToken)?;
    Ok(token)
}

/// A client of the Bot API for the configured bot.
pub fn bot_client(bot: &TelegramConfig, tls: Tls, proxies: ProxyRules) -> Result<BotClient, BuildError> {
    let token = telegram_token(bot)?;
    let egress = HttpEgress {
        tls,
        proxies,
        user_agent: USER_AGENT.to_owned(),
        lease: None,
    };
    BotClient::new(&bot.api_base, token, egress).map_err(|error| BuildError::Telegram(error.to_string()))
}

/// Transports of a relay, each with what it is.
type Members = Vec<(MemberKind, Arc<dyn RelayTransport>)>;

/// One transport as it is, several as one.
fn alone_or_grouped(mut members: Members) -> Arc<dyn RelayTransport> {
    match members.pop() {
        Some((_, only)) if members.is_empty() => only,
        last => {
            members.extend(last);
            Arc::new(TransportGroup::new(members))
        }
    }
}

/// The transports of the bots that the relay is, and their files.
fn bots(
    settings: &Settings,
    tls: &Tls,
    proxies: &ProxyRules,
) -> Result<(Members, Arc<BotFiles>), BuildError> {
    let state_dir = &settings.state_dir;
    let telegram = match &settings.direct.telegram {
        Some(bot) => Some((bot, Arc::new(bot_client(bot, tls.clone(), proxies.clone())?))),
        None => None,
    };
    // Discord's files have public addresses.
    let server = telegram.as_ref().map(|(_, client)| Arc::clone(client));
    let platforms = settings.direct.platforms();
    let files = Arc::new(BotFiles::new(server, platforms, &media_dir(settings)));
    let mut bots = Members::new();
    let chat = &settings.chat;
    if let Some((bot, client)) = telegram {
        let transport = TelegramTransport::new(bot.clone(), client, Arc::clone(&files), state_dir, chat);
        bots.push((MemberKind::Bot("telegram"), Arc::new(transport)));
    }
    if let Some(bot) = &settings.direct.discord {
        let client = Arc::new(discord_client(bot, tls.clone(), proxies.clone())?);
        let transport = DiscordTransport::new(bot.clone(), client, Arc::clone(&files), state_dir, chat);
        bots.push((MemberKind::Bot("discord"), Arc::new(transport)));
    }
    Ok((bots, files))
}

/// A client of Discord's API for the configured bot.
pub fn discord_client(
    bot: &DiscordBotConfig,
    tls: Tls,
    proxies: ProxyRules,
) -> Result<DiscordClient, BuildError> {
    let token = discord_token(bot)?;
    let egress = HttpEgress {
        tls,
        proxies,
        user_agent: discord_user_agent(),
        lease: None,
    };
    DiscordClient::new(&bot.api_base, token, egress).map_err(|error| BuildError::Discord(error.to_string()))
}

/// Discord wants `DiscordBot (ADDRESS, VERSION)`. A package without an address names itself.
fn discord_user_agent() -> String {
    let addresses = [env!("CARGO_PKG_HOMEPAGE"), env!("CARGO_PKG_REPOSITORY")];
    let address = addresses.into_iter().find(|address| !address.is_empty());
    let address = address.unwrap_or(env!("CARGO_PKG_NAME"));
    format!("DiscordBot ({address}, {})", env!("CARGO_PKG_VERSION"))
}

fn websocket_transport(
    settings: &Settings,
    tls: Tls,
    proxies: ProxyRules,
    credentials: watch::Receiver<Option<Credentials>>,
    lease: Option<SendLease>,
) -> Result<WebSocketTransport, BuildError> {
    let url = ConnectorUrl::parse(settings.connector.url.as_deref().ok_or(BuildError::NoUrl)?)?;
    if url.is_plaintext() && !url.is_loopback() && !settings.connector.allow_plaintext {
        return Err(BuildError::Plaintext(url));
    }
    if url.is_plaintext() {
        tls.check()?;
    } else {
        tls.config()?;
    }
    let link = &settings.link;
    let dialer = Dialer::new(tls, proxies, Duration::from_secs(link.connect_timeout_secs)).leased(lease);
    Ok(WebSocketTransport::new(WebSocketSettings {
        dial_url: url.dial_url().to_owned(),
        allow_plaintext: settings.connector.allow_plaintext,
        max_message_bytes: link.max_message_bytes,
        max_line_bytes: link.max_line_bytes,
        max_write_buffer_bytes: link.max_write_buffer_bytes,
        link: link_settings(link, &settings.sleep),
        identities: settings.connector.identities.iter().map(hello).collect(),
        dialer,
        credentials,
    }))
}

fn hello(identity: &crate::config::BotIdentity) -> HelloIdentity {
    HelloIdentity {
        platform: identity.platform.clone(),
        bot_id: identity.bot_id.clone(),
        command_manifest: None,
    }
}

fn link_settings(link: &crate::config::LinkConfig, sleep: &SleepConfig) -> LinkSettings {
    let usual = LinkSettings::default();
    LinkSettings {
        hold_ceiling: match sleep.action {
            SleepAction::Wait => Duration::from_secs(sleep.max_secs),
            SleepAction::Exit | SleepAction::Suspend => usual.hold_ceiling,
        },
        backoff_min: Duration::from_millis(link.backoff_min_ms),
        backoff_max: Duration::from_millis(link.backoff_max_ms),
        stable: Duration::from_secs(link.stable_secs),
        refused_retry: Duration::from_secs(link.refused_retry_secs),
        handshake_timeout: Duration::from_secs(link.handshake_timeout_secs),
        request_timeout: Duration::from_secs(link.request_timeout_secs),
        ping_interval: Duration::from_secs(link.ping_interval_secs),
        dead_after: Duration::from_secs(link.dead_after_secs),
        max_in_flight: link.max_in_flight,
        ..usual
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
