//! What the relay's own task goes by.

use std::sync::Arc;
use std::time::Duration;

use crate::adapter::prompt::PromptSettings;
use crate::adapter::stream::StreamSettings;
use crate::adapter::{OfferedCommand, RateLimitSettings};
use crate::config::{AliasFiles, BusyMode, OnRevoked, Settings};
use crate::link::HelloIdentity;
use crate::wire::{CommandMap, Grouping};

/// Longest answer of one turn; the rest is cut and said to be.
const MOST_OUTPUT_BYTES: usize = 1024 * 1024;

/// Settings in the form in which the relay's task uses them.
#[derive(Debug, Clone)]
pub(super) struct CoreSettings {
    pub(super) grouping: Grouping,
    pub(super) multiplex_profiles: bool,
    pub(super) busy_mode: BusyMode,
    pub(super) max_queue: usize,
    pub(super) max_concurrent_turns: usize,
    pub(super) grace: Duration,
    pub(super) interrupted_notice: Option<String>,
    pub(super) overflow_notice: Option<String>,
    pub(super) resend_unknown: bool,
    pub(super) max_output_bytes: usize,
    /// Slash commands to offer beside the relay's and the agents'.
    pub(super) offered_commands: Vec<OfferedCommand>,
    /// The relay's own slash commands that are on.
    pub(super) relay_commands: Vec<String>,
    /// How turns speak in their chats.
    pub(super) speech: Arc<StreamSettings>,
    /// How fast each chat may be spoken to.
    pub(super) budget: RateLimitSettings,
    /// Questions to people.
    pub(super) prompts: PromptSettings,
    pub(super) chat_memory: usize,
    pub(super) commands: CommandMap,
    /// A top-level Slack message is a conversation of its own.
    pub(super) slack_threads: bool,
    pub(super) identities: Vec<HelloIdentity>,
    pub(super) exit_when_revoked: bool,
    pub(super) shutdown_budget: Duration,
    pub(super) going_idle: Duration,
    pub(super) drain: Duration,
    pub(super) goodbye: Duration,
    /// Who is who on WhatsApp.
    pub(super) aliases: Option<Arc<AliasFiles>>,
}

impl CoreSettings {
    pub(super) fn of(settings: &Settings) -> Self {
        let sessions = &settings.sessions;
        let said = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        Self {
            grouping: Grouping {
                group_sessions_per_user: sessions.group_sessions_per_user,
                thread_sessions_per_user: sessions.thread_sessions_per_user,
            },
            multiplex_profiles: sessions.multiplex_profiles,
            busy_mode: sessions.busy_mode,
            max_queue: sessions.max_queue,
            max_concurrent_turns: sessions.max_concurrent_turns,
            grace: Duration::from_secs(sessions.grace_secs),
            interrupted_notice: said(&sessions.interrupted_notice),
            overflow_notice: said(&sessions.overflow_notice),
            resend_unknown: sessions.resend_unknown,
            offered_commands: settings.discord.commands.clone(),
            relay_commands: sessions.commands.clone(),
            speech: Arc::new(settings.streaming.clone()),
            budget: settings.budget.clone(),
            prompts: settings.prompts.clone(),
            max_output_bytes: MOST_OUTPUT_BYTES,
            chat_memory: settings.journal.chat_memory,
            commands: CommandMap::default().with(settings.slack.command_map.clone()),
            slack_threads: settings.slack.reply_in_thread && settings.slack.dm_top_level_threads_as_sessions,
            identities: identities(settings),
            exit_when_revoked: settings.link.on_revoked == OnRevoked::Exit,
            shutdown_budget: Duration::from_secs(settings.shutdown.budget_secs),
            going_idle: Duration::from_secs(settings.shutdown.going_idle_secs),
            drain: Duration::from_secs(settings.shutdown.drain_secs),
            goodbye: Duration::from_secs(1),
            aliases: settings
                .hermes_home
                .as_deref()
                .map(|home| Arc::new(AliasFiles::below(home))),
        }
    }

    /// The bot that fronts a platform, when it has an id.
    pub(super) fn bot_on(&self, platform: &str) -> Option<String> {
        let front = self
            .identities
            .iter()
            .find(|identity| identity.platform == platform)?;
        Some(front.bot_id.clone()).filter(|bot| !bot.is_empty())
    }
}

/// The identities to announce, in order.
pub(super) fn identities(settings: &Settings) -> Vec<HelloIdentity> {
    let announced = settings.connector.identities.iter();
    announced
        .map(|identity| HelloIdentity {
            platform: identity.platform.clone(),
            bot_id: identity.bot_id.clone(),
            command_manifest: None,
        })
        .collect()
}
