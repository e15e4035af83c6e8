//! The parts of a relay, put together from its settings.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::{EventLoop, MAX_TURN_REQUESTS};
use crate::adapter::stream::StreamSettings;
use crate::adapter::{Adapters, ChatSettings, RateLimiter, SlackConfig};
use crate::agent::child::GroupNotes;
use crate::config::{BusyMode, Settings};
use crate::link::SendResult;
use crate::net::media::MediaClient;
use crate::relay::clock::{Clock, LoopClock};
use crate::relay::effects::Effects;
use crate::relay::handle::HandleRequest;
use crate::relay::parts::access::AccessControl;
use crate::relay::parts::agents::AgentRegistry;
use crate::relay::parts::approvals::Approvals;
use crate::relay::parts::changes::Changes;
use crate::relay::parts::chats::Chats;
use crate::relay::parts::conversations::Conversations;
use crate::relay::parts::group_threads::GroupThreads;
use crate::relay::parts::handed::Handed;
use crate::relay::parts::inbound::Inbound;
use crate::relay::parts::job_files::JobFiles;
use crate::relay::parts::journal_io::JournalIo;
use crate::relay::parts::lifecycle::Lifecycle;
use crate::relay::parts::link::RelayLink;
use crate::relay::parts::listings::Listings;
use crate::relay::parts::messages::Messages;
use crate::relay::parts::outbox::{MAX_IN_FLIGHT, Outbox, RetrySettings};
use crate::relay::parts::pickers::Pickers;
use crate::relay::parts::quiet::Quiet;
use crate::relay::parts::scheduler::{Arms, Scheduler};
use crate::relay::parts::slash_commands::SlashCommands;
use crate::relay::parts::sleep::Sleeper;
use crate::relay::parts::suspend::Suspender;
use crate::relay::parts::turns::Turns;
use crate::relay::transport::{LinkStatus, RelayTransport};
use crate::relay::voice::Voice;
use crate::session::SessionLimits;
use crate::store::{Batch, Health, OpSeq, Opened, START_MARKS, StartMarks};
use crate::wire::{OpId, OpIds};

/// Maximum length of one turn's answer, in bytes.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// The settings that the walk itself needs.
pub(in crate::relay) struct LoopSettings {
    pub(in crate::relay) busy_mode: BusyMode,
    pub(in crate::relay) grace: Duration,
    pub(in crate::relay) max_output: usize,
    pub(in crate::relay) interrupted_notice: Option<String>,
    pub(in crate::relay) overflow_notice: Option<String>,
    pub(in crate::relay) undelivered_notice: Option<String>,
    /// Where the answers of handed-over items go whose session has no chat.
    pub(in crate::relay) deliver: Option<String>,
    /// The identities that are announced: platform and bot id.
    pub(in crate::relay) identities: Vec<(String, String)>,
    pub(in crate::relay) stream: Arc<StreamSettings>,
    pub(in crate::relay) slack: Arc<SlackConfig>,
    pub(in crate::relay) chat: Arc<ChatSettings>,
}

impl LoopSettings {
    fn new(settings: &Settings) -> Self {
        let sessions = &settings.sessions;
        let notice = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        Self {
            busy_mode: sessions.busy_mode,
            grace: Duration::from_secs(sessions.grace_secs),
            max_output: MAX_OUTPUT_BYTES,
            interrupted_notice: notice(&sessions.interrupted_notice),
            overflow_notice: notice(&sessions.overflow_notice),
            undelivered_notice: notice(&sessions.undelivered_notice),
            deliver: (settings.serve.receiver.as_ref()).and_then(|receiver| receiver.deliver.clone()),
            identities: settings
                .identities()
                .map(|identity| (identity.platform.clone(), identity.bot_id.clone()))
                .collect(),
            stream: Arc::new(settings.streaming.clone()),
            slack: Arc::new(settings.slack.clone()),
            chat: Arc::new(settings.chat.clone()),
        }
    }
}

/// What a relay is built from, beside its settings.
pub(in crate::relay) struct Assembly {
    pub(in crate::relay) agents: AgentRegistry,
    pub(in crate::relay) transport: Arc<dyn RelayTransport>,
    pub(in crate::relay) media: Option<Arc<MediaClient>>,
    pub(in crate::relay) voice: Voice,
    pub(in crate::relay) suspender: Option<Suspender>,
    /// The connection to the managed scheduler.
    pub(in crate::relay) arms: Option<Arms>,
    pub(in crate::relay) journal: Opened,
    /// None in a simulation.
    pub(in crate::relay) group_notes: Option<GroupNotes>,
    /// Commands that are enough for a commit.
    pub(in crate::relay) enough_commands: usize,
    pub(in crate::relay) clock: Clock,
    pub(in crate::relay) requests: mpsc::Receiver<HandleRequest>,
}

/// The channels that the loop reads.
pub(in crate::relay) struct Channels {
    pub(in crate::relay) batches: mpsc::Receiver<Batch>,
    pub(in crate::relay) health: watch::Receiver<Health>,
    pub(in crate::relay) requests: mpsc::Receiver<HandleRequest>,
    pub(in crate::relay) results: mpsc::Receiver<(OpId, SendResult)>,
    /// From where on what an earlier run left is to be read.
    pub(in crate::relay) recovery: Cursor,
}

/// How far what an earlier run left has been read; each kind is done when it is empty.
#[derive(Debug, Default)]
pub(in crate::relay) struct Cursor {
    pub(in crate::relay) last_op: Option<OpSeq>,
    /// Messages that wait.
    pub(in crate::relay) waiting: u64,
}

impl EventLoop {
    /// The parts, and the channels that they are reached by.
    pub(in crate::relay) fn new(settings: &Settings, assembly: Assembly) -> (Self, Channels) {
        let Assembly {
            agents,
            transport,
            media,
            voice,
            suspender,
            arms,
            journal: opened,
            group_notes,
            enough_commands,
            clock,
            requests,
        } = assembly;
        let (result_sender, results) = mpsc::channel(MAX_IN_FLIGHT);
        let (turn_sender, turn_requests) = mpsc::channel(MAX_TURN_REQUESTS);
        let mut ids = OpIds::new(clock.seed());
        let limits = SessionLimits {
            running: settings.sessions.max_concurrent_turns,
            queued: settings.sessions.max_queue,
            waiting: settings.sessions.max_waiting,
        };
        let loop_settings = LoopSettings::new(settings);
        let mut commands = settings.sessions.commands.clone();
        // Where nothing speaks, or there are no projects, it is the agent's to understand.
        commands.retain(|name| name != "voice" || voice.speaker.is_some());
        commands.retain(|name| name != "project" || !settings.projects.is_empty());
        let platforms = settings.connector.identities.iter();
        let (peer, recovered) = (settings.peer(), opened.recovered);
        let bots = settings.direct.platforms();
        let mut event_loop = Self {
            adapters: adapters(&loop_settings, &LinkStatus::default()),
            chats: Chats::new(settings),
            access: AccessControl::new(settings, &recovered.access, &recovered.usage, clock.unix_ms()),
            inbound: Inbound::new(settings, recovered.key_hash, recovered.telegram_bot),
            turns: Turns::new(
                limits,
                turn_sender,
                loop_settings.interrupted_notice.clone(),
                agents.are_repeatable(),
            ),
            turn_requests,
            messages: Messages::new(),
            quiet: Quiet::new(settings.chat.quiet_hours, recovered.quiet_people.as_deref()),
            changes: Changes::new(),
            approvals: Approvals::new(&settings.prompts, clock.seed(), ids.split(), peer),
            outbox: Outbox::new(
                RateLimiter::new(&settings.budget),
                ids,
                RetrySettings::new(&settings.sessions),
                peer,
            ),
            commands: SlashCommands::new(
                commands,
                settings.discord.commands.clone(),
                platforms.map(|identity| identity.platform.as_str()),
                bots,
                settings.chat.language,
            ),
            pickers: Pickers::new(clock.seed()),
            conversations: Conversations::new(),
            listings: Listings::new(),
            group_threads: GroupThreads::new(settings.chat.group_threads),
            agents,
            scheduler: Scheduler::new(&settings.cron, arms, clock.seed()),
            job_files: JobFiles::new(settings, clock.is_simulated()),
            handed: Handed::new(StartMarks::open(&settings.state_dir.join(START_MARKS))),
            group_notes,
            journal: JournalIo::new(opened.journal, opened.health.clone(), enough_commands),
            lifecycle: Lifecycle::new(settings),
            sleeper: Sleeper::new(settings, suspender, clock.now()),
            settings: loop_settings,
            link: RelayLink::new(transport, result_sender, settings, clock.unix_ms()),
            clock: LoopClock::new(clock),
            media,
            voice,
            effects: Effects::default(),
        };
        // Before the turns of an earlier process begin again.
        Self::read_contexts(&mut event_loop.effects);
        let recovery = event_loop.recover(&recovered);
        let channels = Channels {
            batches: opened.batches,
            health: opened.health,
            requests,
            results,
            recovery,
        };
        (event_loop, channels)
    }
}

/// The adapters of the identities, as the connector described their platforms.
pub(in crate::relay) fn adapters(settings: &LoopSettings, link: &LinkStatus) -> Adapters {
    let owned = |(platform, descriptor): (&str, &Arc<_>)| (platform.to_owned(), Arc::clone(descriptor));
    let primary = link.descriptors.primary();
    let primary = primary.map(|descriptor| (descriptor.platform.as_str(), descriptor));
    let descriptors = primary.into_iter().chain(link.descriptors.iter()).map(owned);
    let identities = settings.identities.iter().cloned();
    let (stream, slack) = (Arc::clone(&settings.stream), Arc::clone(&settings.slack));
    Adapters::new(identities, descriptors, stream, slack, Arc::clone(&settings.chat))
}
