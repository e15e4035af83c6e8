//! The settings, each declared once: the file is read into [`Settings`], and the other layers change what they set.
//!
//! They are serialized for display, so that a secret serializes as [`HIDDEN`]. The origins are in [`super::Origins`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Serialize, Serializer};

use crate::access::{AccessSettings, Mode};
use crate::adapter::prompt::PromptSettings;
use crate::adapter::stream::StreamSettings;
use crate::adapter::{ChatSettings, RateLimitSettings, SessionNames, SlackConfig};
use crate::agent::{Project, Route};
use crate::agent_connector::NotifyTarget;
use crate::net::media::MediaSettings;
use crate::net::tls::TlsSettings;
use crate::setting::{self, Field, null_is_default, own, section, shared};
use crate::wire::{Grouping, Platform};

use super::agents::{AgentChoice, AgentEntries, AgentEntry};
use super::cron::CronConfig;
use super::direct::DirectConfig;
use super::env;
use super::file::nearest;
use super::nats::{ClusterConfig, NatsConfig, WorkerConfig};
use super::notify::{self, NotifyConfig};
use super::sections::{
    AuditConfig, DiscordConfig, JournalConfig, LinkConfig, LogConfig, PolicyOverride, ServeConfig,
    SessionsConfig, ShutdownConfig, SleepConfig,
};
use super::skills::SkillsConfig;
use super::telemetry::TelemetryConfig;
use super::validate::Violation;
use super::voice::{SpeakConfig, TranscribeConfig};

/// Shown instead of a secret.
pub const HIDDEN: &str = "<hidden>";

section! {
    /// The settings: as the file has them, and when they are loaded also as every other layer has them.
    ///
    /// The defaults are those of an empty file, which names no directory for the journal: a program that embeds a relay
    /// starts with [`Settings::embedded`].
    pub struct Settings {
        /// Relevance policy per platform.
        #[serde(deserialize_with = "null_is_default")]
        pub policy: BTreeMap<String, PolicyOverride>, live;
        /// Agents by name.
        #[serde(deserialize_with = "null_is_default")]
        pub agents: AgentEntries;
        /// The default agent as the file has it; loading makes `agent` of it.
        #[serde(rename = "agent", deserialize_with = "null_is_default", skip_serializing)]
        #[doc(hidden)]
        pub agent_choice: AgentChoice, named("agent");
        /// Projects by name.
        #[serde(deserialize_with = "null_is_default")]
        pub projects: BTreeMap<String, Project>;
        /// Routes; the first match wins.
        #[serde(deserialize_with = "null_is_default")]
        pub routes: Vec<Route>;
        /// The former name of `notify.targets`.
        #[serde(deserialize_with = "notify::former_targets", skip_serializing)]
        #[doc(hidden)]
        pub connectors: Option<BTreeMap<String, NotifyTarget>>, live;
        /// Time zone of schedules, by Hermes' name for it; `cron.timezone` wins.
        #[serde(skip_serializing)]
        #[doc(hidden)]
        pub timezone: Option<String>;
        /// What `hermes-relay worker` runs; `None` if this is no worker's file.
        pub worker: Option<WorkerConfig>;
        /// One of several relays for the same gateway, of which one is active; `None` if this is the only one.
        pub cluster: Option<ClusterConfig>;
        /// Directory of the journal.
        #[serde(deserialize_with = "null_is_default")]
        pub state_dir: PathBuf, env(&[
            own(env::RELAY_STATE_DIR, "directory of the journal"),
            own(env::STATE_DIRECTORY, "the same, set by systemd: the first of a colon-separated list"),
        ]);
    } sections {
        /// The connector and this gateway's identity.
        pub connector: ConnectorConfig;
        /// Platforms that the relay talks to itself.
        pub direct: DirectConfig;
        /// TLS certificates.
        pub tls: TlsConfig;
        /// Identity provider for enrollment and provisioning.
        pub idp: IdpConfig;
        /// The connection to the connector.
        pub link: LinkConfig;
        /// Sessions.
        pub sessions: SessionsConfig;
        /// The durable inbox and outbox.
        pub journal: JournalConfig;
        /// Slack.
        pub slack: SlackConfig;
        /// Discord.
        pub discord: DiscordConfig;
        /// Rate limit per chat.
        pub budget: RateLimitSettings;
        /// Streaming of replies, and indicators.
        pub streaming: StreamSettings;
        /// Who may drive an agent.
        pub access: AccessSettings;
        /// The audit log.
        pub audit: AuditConfig;
        /// Approvals.
        pub prompts: PromptSettings;
        /// Attachments.
        pub media: MediaSettings;
        /// Transcription of voice messages.
        pub transcribe: TranscribeConfig;
        /// Spoken answers.
        pub speak: SpeakConfig;
        /// What people meet in a chat.
        pub chat: ChatSettings;
        /// Ways to hand something to an agent.
        pub notify: NotifyConfig;
        /// Scheduled jobs.
        pub cron: CronConfig;
        /// Skills.
        pub skills: SkillsConfig;
        /// The NATS server that relays and workers meet at.
        pub nats: NatsConfig;
        /// Control and monitoring.
        pub serve: ServeConfig;
        /// Shutdown.
        pub shutdown: ShutdownConfig;
        /// Scale to zero.
        pub sleep: SleepConfig;
        /// Logging.
        pub log: LogConfig;
        /// Traces.
        pub telemetry: TelemetryConfig;
    } resolved {
        /// Default agent: a name or a built-in kind; empty for the first agent of the relay's builder.
        pub agent: String;
        /// Whether the service manager made the directory of the journal for this relay (`$STATE_DIRECTORY`). Any other
        /// directory is refused while it holds something else and no journal.
        pub state_dir_assigned: bool;
        /// Hermes' home, if there is one.
        pub hermes_home: Option<PathBuf>, env(&[own(env::HERMES_HOME, "Hermes' home; default ~/.hermes")]);
    }
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
    /// How messages are named.
    pub(crate) fn session_names(&self) -> SessionNames {
        let grouping = Grouping {
            group_sessions_per_user: self.sessions.group_sessions_per_user,
            thread_sessions_per_user: self.sessions.thread_sessions_per_user,
        };
        let mut names = SessionNames::new(grouping, self.sessions.multiplex_profiles, self.slack.clone());
        for identity in self.identities() {
            names.add_platform(&identity.platform);
        }
        names
    }

    /// The bots that the relay speaks as: the connector's, and its own.
    pub fn identities(&self) -> impl Iterator<Item = Cow<'_, BotIdentity>> {
        let announced = &self.connector.identities;
        let is_new = |platform: &&str| announced.iter().all(|identity| identity.platform != *platform);
        let own = self.direct.platforms().into_iter().filter(is_new);
        let own = own.map(|platform| Cow::Owned(BotIdentity::new(platform, "")));
        // In this order: what the connector declares first counts for platforms that it does not describe.
        announced.iter().map(Cow::Borrowed).chain(own)
    }

    /// Whether there is a connector: always, but for a relay that is a bot without one.
    pub fn has_connector(&self) -> bool {
        self.connector.url.is_some() || !self.direct.is_bot()
    }

    /// Who performs the relay's ops, for people.
    pub fn peer(&self) -> &'static str {
        let direct = &self.direct;
        match (&direct.telegram, &direct.discord, self.has_connector()) {
            (Some(_), Some(_), true) => "the connector, Telegram or Discord",
            (Some(_), None, true) => "the connector or Telegram",
            (None, Some(_), true) => "the connector or Discord",
            (Some(_), Some(_), false) => "Telegram or Discord",
            (Some(_), None, false) => "Telegram",
            (None, Some(_), false) => "Discord",
            (None, None, _) => "the connector",
        }
    }

    /// Settings for a relay inside another program: all defaults, no connector URL, nothing read from files or the
    /// environment. Change what you need:
    ///
    /// ```
    /// use hermes_relay::Settings;
    ///
    /// let mut settings = Settings::embedded("/var/lib/mine");
    /// settings.connector.url = Some("wss://connector.example/relay".into());
    /// settings.sessions.max_concurrent_turns = 8;
    /// ```
    pub fn embedded(state_dir: impl Into<PathBuf>) -> Self {
        let mut settings = Self {
            state_dir: state_dir.into(),
            ..Self::default()
        };
        settings.connector.identities = vec![BotIdentity::new("relay", "")];
        settings
    }

    /// The setting of a dotted key.
    pub(super) fn field(key: &str) -> Option<&'static Field> {
        setting::path(Self::FIELDS, key).nth(key.matches('.').count())
    }

    /// Whether a change of this dotted key applies without a restart.
    pub fn is_live(key: &str) -> bool {
        setting::path(Self::FIELDS, key).any(|field| field.is_live)
    }

    /// The paths that are relative to the file's directory, except those of secret files.
    pub(super) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let tls = &mut self.tls;
        let receiver = self.serve.receiver.iter_mut();
        let agents = self.agents.values_mut().chain(self.agent_choice.inline_mut());
        let former = self.connectors.iter_mut().flat_map(BTreeMap::values_mut);
        let targets = self.notify.targets.values_mut().chain(former);
        [
            &mut tls.ca_file,
            &mut tls.client_cert,
            &mut tls.client_key,
            &mut self.log.file,
            &mut self.skills.dir,
            &mut self.transcribe.api_key_file,
            &mut self.speak.api_key_file,
        ]
        .into_iter()
        .chain(receiver.flat_map(|receiver| [&mut receiver.hmac_secret_file, &mut receiver.bearer_file]))
        .chain(self.routes.iter_mut().map(|route| &mut route.workdir))
        .chain(self.projects.values_mut().map(|project| &mut project.workdir))
        .flatten()
        .chain(&mut self.media.send_from)
        .chain(agents.flat_map(AgentEntry::paths_mut))
        .chain(targets.filter_map(|target| target.kind_mut().path_mut()))
    }

    /// The command lines, in which paths are relative to the file's directory.
    pub(super) fn argvs_mut(&mut self) -> impl Iterator<Item = &mut Vec<String>> {
        let agents = self.agents.values_mut().chain(self.agent_choice.inline_mut());
        let former = self.connectors.iter_mut().flat_map(BTreeMap::values_mut);
        let targets = self.notify.targets.values_mut().chain(former);
        (agents.filter_map(|agent| agent.backend.argv_mut()))
            .chain(targets.flat_map(|target| target.kind_mut().argvs_mut()))
            .chain([&mut self.transcribe.argv, &mut self.speak.argv])
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

    /// The agents that answer messages without being chosen, each once: the default one, and those of routes and projects.
    pub(crate) fn answering_agents(&self) -> Vec<&str> {
        // A route without an agent has its project's, or the default one.
        let of_routes = self.routes.iter().map(|route| route.agent.as_str());
        let of_projects = (self.projects.values()).filter_map(|project| project.agent.as_deref());
        let mut names = vec![self.agent.as_str()];
        for name in of_routes.chain(of_projects) {
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// What to know when everybody whom the connector lets through may drive an agent that can act on this machine, and how
    /// to narrow that.
    pub fn access_warning(&self) -> Option<String> {
        if !self.access.lets_everybody_in() {
            return None;
        }
        let commands = self.sessions.commands.iter();
        let choosable = commands.into_iter().any(|command| command == "agent");
        let answering = self.answering_agents();
        let is_reachable =
            |name: &str, entry: &AgentEntry| answering.contains(&name) || (choosable && entry.choosable);
        // Everybody finds a bot of one's own, and a model costs money even if it cannot act.
        let is_public = self.direct.is_bot();
        let mut acting: Vec<String> = (self.agents.iter())
            .filter(|(name, entry)| (is_public || entry.backend.acts()) && is_reachable(name, entry))
            .map(|(name, entry)| format!("{name} ({})", entry.backend.kind()))
            .collect();
        if is_public && acting.is_empty() {
            acting.push(self.agent.clone());
        }
        if acting.is_empty() {
            return None;
        }
        let who = match self.access.mode {
            Mode::Upstream if self.direct.is_bot() => "everybody who finds the bot",
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
        let discord_token = self.direct.discord.as_ref().map_or(&None, |bot| &bot.token);
        let held = [
            ("connector.secret", &self.connector.secret),
            ("direct.telegram.token", bot_token),
            ("direct.discord.token", discord_token),
            ("connector.delivery_key", &self.connector.delivery_key),
            ("idp.client_secret", &self.idp.client_secret),
            ("telemetry.headers", &self.telemetry.headers),
            ("nats.token", &self.nats.token),
            ("nats.credentials", &self.nats.credentials),
            ("nats.nkey", &self.nats.nkey),
        ];
        held.into_iter()
            .filter_map(|(key, secret)| Some((key, secret.as_ref()?)))
    }
}

section! {
    /// The connector and this gateway's identity.
    pub struct ConnectorConfig {
        /// The URL as written.
        pub url: Option<String>, env(&[shared("GATEWAY_RELAY_URL", "connector URL")]), hermes("gateway.relay_url");
        /// Gateway id.
        pub gateway_id: Option<String>,
            env(&[shared("GATEWAY_RELAY_ID", "gateway id")]), hermes("gateway.relay_id"), live;
        /// File with the secret, which is read when the settings are loaded.
        #[serde(skip_serializing)]
        pub secret_file: Option<PathBuf>;
        /// Allow `ws://` to another host.
        pub allow_plaintext: bool;
        /// Identities on the platforms; when they are loaded never empty, the first is the primary.
        #[serde(deserialize_with = "null_is_default")]
        pub identities: Vec<BotIdentity>, env(&[
            shared(env::PLATFORMS, "platforms, separated by commas"),
            shared(env::BOT_IDS, "JSON: platform to {botId, username}"),
        ]);
        /// Route keys.
        #[serde(deserialize_with = "null_is_default")]
        pub route_keys: Vec<String>,
            env(&[shared(env::ROUTE_KEYS, "route keys, separated by commas")]), hermes("gateway.relay_route_keys");
        /// Id of this instance, if several share one gateway id.
        pub instance_id: Option<String>,
            env(&[shared("GATEWAY_RELAY_INSTANCE_ID", "id of this instance")]), hermes("gateway.relay_instance_id");
        /// URL that the connector calls to wake the relay.
        pub wake_url: Option<String>,
            env(&[shared("GATEWAY_RELAY_WAKE_URL", "URL that the connector calls to wake the relay")]),
            hermes("gateway.relay_wake_url");
        /// URL that the relay calls to be suspended.
        pub sleep_url: Option<String>,
            env(&[shared("GATEWAY_RELAY_SLEEP_URL", "URL that the relay calls to be suspended")]);
        /// Display name, at most 64 characters.
        pub display_name: Option<String>, env(&[shared("GATEWAY_RELAY_DISPLAY_NAME", "display name")]);
        /// Inbound URL of this gateway; connectors no longer use it.
        pub endpoint: Option<String>,
            env(&[shared("GATEWAY_RELAY_ENDPOINT", "inbound URL of this gateway; connectors no longer use it")]),
            hermes("gateway.relay_endpoint");
    } resolved {
        /// Why a configured URL is not used.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub url_veto: Option<String>;
        /// The secret that signs upgrade tokens; never blank.
        #[serde(serialize_with = "hidden")]
        pub secret: Option<SecretString>, hermes("gateway.relay_secret"), live, env(&[
            shared(env::SECRET, "gateway secret"),
            own(env::SECRET_FILE, "file with the gateway secret"),
            own(env::CREDENTIALS_DIRECTORY, "systemd's credentials; `relay-secret` is the gateway secret"),
        ]);
        /// Delivery key, issued by `enroll`.
        #[serde(serialize_with = "hidden")]
        pub delivery_key: Option<SecretString>, live,
            env(&[shared("GATEWAY_RELAY_DELIVERY_KEY", "delivery key, issued by `enroll`")]);
    }
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

section! {
    /// TLS certificates.
    #[derive(PartialEq, Eq)]
    pub struct TlsConfig {
        /// Additional root certificates, PEM.
        pub ca_file: Option<PathBuf>;
        /// Client certificate, PEM.
        pub client_cert: Option<PathBuf>;
        /// Its key, PEM.
        pub client_key: Option<PathBuf>;
    }
}

impl TlsConfig {
    /// The half of the client's identity whose other half is missing.
    pub(super) fn violation(&self) -> Option<Violation> {
        match (&self.client_cert, &self.client_key) {
            (Some(_), None) => Some(("tls.client_cert", "needs `tls.client_key`".to_owned())),
            (None, Some(_)) => Some(("tls.client_key", "needs `tls.client_cert`".to_owned())),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }

    /// In the form in which connections use them.
    pub(crate) fn client(&self) -> TlsSettings {
        TlsSettings {
            ca_file: self.ca_file.clone(),
            client_cert: self.client_cert.clone(),
            client_key: self.client_key.clone(),
        }
    }

    /// What is wrong with the files.
    pub(super) fn unusable_file(&self) -> Option<Violation> {
        let error = self.client().check_files().err()?;
        Some(("tls", error.to_string()))
    }
}

section! {
    /// Identity provider; unused without a token URL.
    pub struct IdpConfig {
        /// Token endpoint.
        pub token_url: Option<String>, hermes("gateway.idp.token_url"), env(&[shared(
            "GATEWAY_RELAY_IDP_TOKEN_URL",
            "token endpoint of the IdP; overrides the IdP settings of all files",
        )]);
        /// Client id.
        pub client_id: Option<String>, hermes("gateway.idp.client_id"),
            env(&[shared("GATEWAY_RELAY_IDP_CLIENT_ID", "client id at the IdP")]);
        /// File with the client secret, which is read when the settings are loaded.
        #[serde(skip_serializing)]
        pub client_secret_file: Option<PathBuf>;
        /// Requested scope.
        pub scope: Option<String>, hermes("gateway.idp.scope"),
            env(&[shared("GATEWAY_RELAY_IDP_SCOPE", "scope requested from the IdP")]);
    } resolved {
        /// Client secret.
        #[serde(serialize_with = "hidden")]
        pub client_secret: Option<SecretString>, hermes("gateway.idp.client_secret"),
            env(&[shared(env::IDP_CLIENT_SECRET, "client secret at the IdP")]);
    }
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
        settings.nats.token = filled();
        settings.nats.credentials = filled();
        settings.nats.nkey = filled();
        settings.direct.telegram = Some(super::super::TelegramConfig::new(filled()));
        settings.direct.discord = Some(super::super::DiscordBotConfig {
            token: filled(),
            ..Default::default()
        });
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
