//! The resolved settings.
//!
//! They are serialized for display, so that a secret serializes as [`HIDDEN`]. The origins are in [`super::Origins`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Serialize, Serializer};

use crate::access::{AccessSettings, Mode};
use crate::adapter::RateLimitSettings;
use crate::adapter::prompt::PromptSettings;
use crate::adapter::stream::StreamSettings;
use crate::agent::Route;
use crate::net::media::MediaSettings;
use crate::wire::Platform;

use super::agents::{AgentEntries, AgentEntry};
use super::connectors::ConnectorEntries;
use super::cron::CronConfig;
use super::direct::DirectConfig;
use super::file::nearest;
use super::sections::LogConfig;
use super::sections::ServeConfig;
use super::sections::{
    AuditConfig, DiscordConfig, JournalConfig, LinkConfig, PolicyOverride, SessionsConfig, ShutdownConfig,
    SlackConfig, SleepConfig,
};
use super::skills::SkillsConfig;
use super::telemetry::TelemetryConfig;

/// Shown instead of a secret.
pub const HIDDEN: &str = "<hidden>";

/// The resolved settings.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    /// The connector and this gateway's identity.
    pub connector: ConnectorConfig,
    /// Platforms that the relay talks to itself.
    pub direct: DirectConfig,
    /// TLS certificates.
    pub tls: TlsConfig,
    /// Identity provider for enrollment and provisioning.
    pub idp: IdpConfig,
    /// The connection to the connector.
    pub link: LinkConfig,
    /// Sessions.
    pub sessions: SessionsConfig,
    /// The durable inbox and outbox.
    pub journal: JournalConfig,
    /// Slack.
    pub slack: SlackConfig,
    /// Discord.
    pub discord: DiscordConfig,
    /// Rate limit per chat.
    pub budget: RateLimitSettings,
    /// Streaming of replies, and indicators.
    pub streaming: StreamSettings,
    /// Who may drive an agent.
    pub access: AccessSettings,
    /// The audit log.
    pub audit: AuditConfig,
    /// Approvals.
    pub prompts: PromptSettings,
    /// Attachments.
    pub media: MediaSettings,
    /// Relevance policy per platform.
    pub policy: BTreeMap<String, PolicyOverride>,
    /// Agents by name.
    pub agents: AgentEntries,
    /// Default agent: a name or a built-in kind; empty for the first agent of the relay's builder.
    pub agent: String,
    /// Routes; the first match wins.
    pub routes: Vec<Route>,
    /// Ways to hand something to an agent, by name.
    pub connectors: ConnectorEntries,
    /// Scheduled jobs.
    pub cron: CronConfig,
    /// Skills.
    pub skills: SkillsConfig,
    /// Control and monitoring.
    pub serve: ServeConfig,
    /// Shutdown.
    pub shutdown: ShutdownConfig,
    /// Scale to zero.
    pub sleep: SleepConfig,
    /// Logging.
    pub log: LogConfig,
    /// Traces.
    pub telemetry: TelemetryConfig,
    /// Directory of the journal.
    pub state_dir: PathBuf,
    /// Whether the service manager made that directory for this relay (`$STATE_DIRECTORY`). Any other directory is refused
    /// while it holds something else and no journal.
    pub state_dir_assigned: bool,
    /// Hermes' home, if there is one.
    pub hermes_home: Option<PathBuf>,
}

/// The known platform that a name looks like; `None` for a known one. Other unknown names are a connector's own platforms.
pub fn nearest_platform(name: &str) -> Option<&'static str> {
    if Platform::names().contains(&name) {
        return None;
    }
    nearest(&name.to_lowercase(), Platform::names().iter().copied())
}

/// Why a platform's name looks misspelt.
pub fn misspelt_platform(name: &str) -> Option<String> {
    let near = nearest_platform(name)?;
    Some(format!(
        "`{name}` is not a known platform; did you mean `{near}`?"
    ))
}

impl Settings {
    /// Settings for a relay inside another program: all defaults, no connector URL, nothing read from files or the
    /// environment. Change what you need:
    ///
    /// ```
    /// use hermes_relay::config::Settings;
    ///
    /// let mut settings = Settings::embedded("/var/lib/mine");
    /// settings.connector.url = Some("wss://connector.example/relay".into());
    /// settings.sessions.max_concurrent_turns = 8;
    /// ```
    pub fn embedded(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            connector: ConnectorConfig {
                identities: vec![BotIdentity::new("relay", "")],
                ..ConnectorConfig::default()
            },
            direct: DirectConfig::default(),
            tls: TlsConfig::default(),
            idp: IdpConfig::default(),
            link: LinkConfig::default(),
            sessions: SessionsConfig::default(),
            journal: JournalConfig::default(),
            slack: SlackConfig::default(),
            discord: DiscordConfig::default(),
            budget: RateLimitSettings::default(),
            streaming: StreamSettings::default(),
            access: AccessSettings::default(),
            audit: AuditConfig::default(),
            prompts: PromptSettings::default(),
            media: MediaSettings::default(),
            policy: BTreeMap::new(),
            agents: AgentEntries::new(),
            agent: String::new(),
            routes: Vec::new(),
            connectors: ConnectorEntries::new(),
            cron: CronConfig::default(),
            skills: SkillsConfig::default(),
            serve: ServeConfig::default(),
            shutdown: ShutdownConfig::default(),
            sleep: SleepConfig::default(),
            log: LogConfig::default(),
            telemetry: TelemetryConfig::default(),
            state_dir: state_dir.into(),
            state_dir_assigned: false,
            hermes_home: None,
        }
    }

    /// Whether no platform is configured: the relay then announces itself as `relay`.
    pub fn announces_no_platform(&self) -> bool {
        let mut identities = self.connector.identities.iter();
        identities.all(|identity| identity.platform == Platform::RELAY.as_str())
    }

    /// What is wrong with the platforms that the relay announces: none, or a name that looks misspelt.
    pub fn platform_warnings(&self) -> Vec<String> {
        if self.announces_no_platform() {
            let why = "no platform is configured, so the relay announces itself as `relay`, and the connector may refuse its answers; \
                       set GATEWAY_RELAY_PLATFORMS or `connector.identities`";
            return vec![why.to_owned()];
        }
        let identities = self.connector.identities.iter();
        let misspelt = identities.filter_map(|identity| misspelt_platform(&identity.platform));
        misspelt.collect()
    }

    /// What to know when everybody whom the connector lets through may drive an agent that can act on this machine, and how
    /// to narrow that.
    pub fn access_warning(&self) -> Option<String> {
        if !self.access.lets_everybody_in() {
            return None;
        }
        let commands = self.sessions.commands.iter();
        let choosable = commands.into_iter().any(|command| command == "agent");
        let is_reachable = |name: &str, entry: &AgentEntry| {
            name == self.agent
                || self.routes.iter().any(|route| route.agent == name)
                || (choosable && entry.choosable)
        };
        let acting: Vec<String> = (self.agents.iter())
            .filter(|(name, entry)| entry.backend.acts() && is_reachable(name, entry))
            .map(|(name, entry)| format!("{name} ({})", entry.backend.kind()))
            .collect();
        if acting.is_empty() {
            return None;
        }
        let who = match self.access.mode {
            Mode::Upstream if self.direct.telegram.is_some() => "everybody who finds the bot",
            Mode::Upstream => "everybody whom the connector lets through",
            Mode::List | Mode::Pair | Mode::Open => "everybody",
        };
        Some(format!(
            "{who} may drive {}; to narrow that, set `access.mode: pair` and approve people with `hermes-relay access`, \
             or list them with `access.mode: list`",
            acting.join(", ")
        ))
    }

    /// All secrets by dotted key, except the agents' keys, which are read when agents are built.
    pub fn secrets(&self) -> impl Iterator<Item = (&'static str, &SecretString)> {
        let bot_token = self.direct.telegram.as_ref().map_or(&None, |bot| &bot.token);
        let held = [
            ("connector.secret", &self.connector.secret),
            ("direct.telegram.token", bot_token),
            ("connector.delivery_key", &self.connector.delivery_key),
            ("idp.client_secret", &self.idp.client_secret),
            ("telemetry.headers", &self.telemetry.headers),
        ];
        held.into_iter()
            .filter_map(|(key, secret)| Some((key, secret.as_ref()?)))
    }
}

/// The connector and this gateway's identity.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ConnectorConfig {
    /// The URL as written.
    pub url: Option<String>,
    /// Why a configured URL is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_veto: Option<String>,
    /// Gateway id.
    pub gateway_id: Option<String>,
    /// The secret that signs upgrade tokens; never blank.
    #[serde(serialize_with = "hidden")]
    pub secret: Option<SecretString>,
    /// Delivery key, issued by `enroll`.
    #[serde(serialize_with = "hidden")]
    pub delivery_key: Option<SecretString>,
    /// Allow `ws://` to another host.
    pub allow_plaintext: bool,
    /// Identities on the platforms; never empty, the first is the primary.
    pub identities: Vec<BotIdentity>,
    /// Route keys.
    pub route_keys: Vec<String>,
    /// Id of this instance, if several share one gateway id.
    pub instance_id: Option<String>,
    /// URL that the connector calls to wake the relay.
    pub wake_url: Option<String>,
    /// URL that the relay calls to be suspended.
    pub sleep_url: Option<String>,
    /// Display name, at most 64 characters.
    pub display_name: Option<String>,
    /// Inbound URL of this gateway; connectors no longer use it.
    pub endpoint: Option<String>,
}

/// One bot on one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BotIdentity {
    /// The platform's name, in the spelling of the connector.
    pub platform: String,
    /// The bot's id; empty if the connector knows it.
    #[serde(default)]
    pub bot_id: String,
    /// The bot's user name, without `@`.
    #[serde(default)]
    pub username: Option<String>,
}

impl BotIdentity {
    /// An identity without a user name.
    pub fn new(platform: impl Into<String>, bot_id: impl Into<String>) -> Self {
        Self {
            platform: platform.into(),
            bot_id: bot_id.into(),
            username: None,
        }
    }
}

/// TLS certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Additional root certificates, PEM.
    pub ca_file: Option<PathBuf>,
    /// Client certificate, PEM.
    pub client_cert: Option<PathBuf>,
    /// Its key, PEM.
    pub client_key: Option<PathBuf>,
}

/// Identity provider; unused without a token URL.
#[derive(Debug, Clone, Default, Serialize)]
pub struct IdpConfig {
    /// Token endpoint.
    pub token_url: Option<String>,
    /// Client id.
    pub client_id: Option<String>,
    /// Client secret.
    #[serde(serialize_with = "hidden")]
    pub client_secret: Option<SecretString>,
    /// Requested scope.
    pub scope: Option<String>,
}

#[expect(clippy::ref_option, reason = "the signature is serde's")]
pub(super) fn hidden<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(_) => serializer.serialize_str(HIDDEN),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_hidden_field_is_a_secret() {
        let mut settings = Settings::embedded("/nowhere");
        let filled = || Some(SecretString::from("filled"));
        settings.connector.secret = filled();
        settings.connector.delivery_key = filled();
        settings.idp.client_secret = filled();
        settings.telemetry.headers = filled();
        settings.direct.telegram = Some(super::super::TelegramConfig::new(filled()));
        let shown = serde_json::to_value(&settings).unwrap();
        let mut hidden = Vec::new();
        super::super::file::walk(&shown, "", &mut |key, value| {
            if value == HIDDEN {
                hidden.push(key.to_owned());
            }
        });
        let mut secrets: Vec<_> = settings.secrets().map(|(key, _)| key.to_owned()).collect();
        secrets.sort_unstable();
        assert_eq!(secrets, hidden);
        // A field that this test does not fill would be missing on both sides.
        let mark = concat!("serialize_with = ", "\"hidden\"");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config");
        let sources = fs::read_dir(folder).unwrap();
        let sources = sources.filter_map(|file| fs::read_to_string(file.unwrap().path()).ok());
        let marked: usize = sources.map(|source| source.matches(mark).count()).sum();
        assert_eq!(marked, secrets.len());
    }
}
