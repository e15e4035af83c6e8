//! The settings: everything the relay was told, after every layer has been asked.
//!
//! Serialising it is how it is shown, so a secret serialises as a mark that it is there. It never holds
//! where a value came from; that is [`super::Origins`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Serialize, Serializer};

use crate::adapter::RateLimitSettings;
use crate::adapter::prompt::PromptSettings;
use crate::adapter::stream::StreamSettings;
use crate::agent::Route;
use crate::net::media::MediaSettings;

use super::agents::AgentEntries;
use super::log::Log;
use super::serving::Serve;
use super::telemetry::Telemetry;
use super::tuning::{Discord, Journal, Link, PolicyOverride, Sessions, Shutdown, Slack, Sleep};

/// What is shown in place of a secret.
pub const HIDDEN: &str = "<hidden>";

/// Everything the relay was told.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    /// The other end, and who we are to it.
    pub connector: Connector,
    /// Whom we trust, and what we show.
    pub tls: Tls,
    /// Where an identity token for enrolment and provisioning comes from.
    pub idp: Idp,
    /// The connection.
    pub link: Link,
    /// Conversations.
    pub sessions: Sessions,
    /// The durable inbox and outbox.
    pub journal: Journal,
    /// What is particular to Slack.
    pub slack: Slack,
    /// What is particular to Discord.
    pub discord: Discord,
    /// How fast each chat may be spoken to.
    pub budget: RateLimitSettings,
    /// How answers grow in the chat, and what shows that one is coming.
    pub streaming: StreamSettings,
    /// Questions to people: how long they wait, and who may answer.
    pub prompts: PromptSettings,
    /// How attachments come in and go out.
    pub media: MediaSettings,
    /// Relevance by platform, where our own file says something.
    pub policy: BTreeMap<String, PolicyOverride>,
    /// The agents, by name.
    pub agents: AgentEntries,
    /// Who answers: a name, or a built-in kind; empty for the first agent that the relay's builder is given.
    pub agent: String,
    /// Which agent answers which message; the first that fits.
    pub routes: Vec<Route>,
    /// Who may ask a running relay.
    pub serve: Serve,
    /// The end of the process.
    pub shutdown: Shutdown,
    /// Scale to zero.
    pub sleep: Sleep,
    /// Logging.
    pub log: Log,
    /// Traces.
    pub telemetry: Telemetry,
    /// Where the journal lives.
    pub state_dir: PathBuf,
    /// Hermes' home, where there is one.
    pub hermes_home: Option<PathBuf>,
}

impl Settings {
    /// Settings for a relay inside another program: every default, the agent that the builder is given, no
    /// connector URL, and no file or environment asked. Change what should differ:
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
            connector: Connector {
                identities: vec![Identity::new("relay", "")],
                ..Connector::default()
            },
            tls: Tls::default(),
            idp: Idp::default(),
            link: Link::default(),
            sessions: Sessions::default(),
            journal: Journal::default(),
            slack: Slack::default(),
            discord: Discord::default(),
            budget: RateLimitSettings::default(),
            streaming: StreamSettings::default(),
            prompts: PromptSettings::default(),
            media: MediaSettings::default(),
            policy: BTreeMap::new(),
            agents: AgentEntries::new(),
            agent: String::new(),
            routes: Vec::new(),
            serve: Serve::default(),
            shutdown: Shutdown::default(),
            sleep: Sleep::default(),
            log: Log::default(),
            telemetry: Telemetry::default(),
            state_dir: state_dir.into(),
            hermes_home: None,
        }
    }
}

impl Settings {
    /// Every secret that the settings hold, by its dotted key. Agents' keys are not among them: those are read where
    /// agents are built.
    pub fn secrets(&self) -> impl Iterator<Item = (&'static str, &SecretString)> {
        let held = [
            ("connector.secret", &self.connector.secret),
            ("connector.delivery_key", &self.connector.delivery_key),
            ("idp.client_secret", &self.idp.client_secret),
            ("telemetry.headers", &self.telemetry.headers),
        ];
        held.into_iter()
            .filter_map(|(key, secret)| Some((key, secret.as_ref()?)))
    }
}

/// The other end, and who we are to it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Connector {
    /// The URL as written.
    pub url: Option<String>,
    /// Why there is no URL although one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_veto: Option<String>,
    /// The gateway's id.
    pub gateway_id: Option<String>,
    /// The secret that upgrade tokens are signed with; never blank.
    #[serde(serialize_with = "hidden")]
    pub secret: Option<SecretString>,
    /// The delivery key that enrolment gave.
    #[serde(serialize_with = "hidden")]
    pub delivery_key: Option<SecretString>,
    /// Dial `ws://` to another host.
    pub allow_plaintext: bool,
    /// Who we are on the platforms; never empty, the first is the primary.
    pub identities: Vec<Identity>,
    /// What the connector routes to us by.
    pub route_keys: Vec<String>,
    /// This instance among several with one gateway id.
    pub instance_id: Option<String>,
    /// Where the connector wakes us.
    pub wake_url: Option<String>,
    /// Where we ask to be put to sleep.
    pub sleep_url: Option<String>,
    /// The name people see, at most 64 characters.
    pub display_name: Option<String>,
    /// Our own inbound URL, which connectors no longer use.
    pub endpoint: Option<String>,
}

/// One bot on one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The platform's name, in the spelling of the connector.
    pub platform: String,
    /// The bot's id there; empty where the connector knows it.
    #[serde(default)]
    pub bot_id: String,
    /// The bot's user name, without `@`.
    #[serde(default)]
    pub username: Option<String>,
}

impl Identity {
    /// An identity without a user name.
    pub fn new(platform: impl Into<String>, bot_id: impl Into<String>) -> Self {
        Self {
            platform: platform.into(),
            bot_id: bot_id.into(),
            username: None,
        }
    }
}

/// Whom we trust, and what we show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// More roots, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Our certificate, in PEM.
    pub client_cert: Option<PathBuf>,
    /// Its key, in PEM.
    pub client_key: Option<PathBuf>,
}

/// Where an identity token comes from; without a token URL, from nowhere.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Idp {
    /// The token endpoint.
    pub token_url: Option<String>,
    /// The client's id.
    pub client_id: Option<String>,
    /// The client's secret.
    #[serde(serialize_with = "hidden")]
    pub client_secret: Option<SecretString>,
    /// The scope asked for.
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
    fn every_field_that_is_shown_as_hidden_is_among_the_secrets() {
        let mut settings = Settings::embedded("/nowhere");
        let filled = || Some(SecretString::from("filled"));
        settings.connector.secret = filled();
        settings.connector.delivery_key = filled();
        settings.idp.client_secret = filled();
        settings.telemetry.headers = filled();
        let shown = serde_json::to_value(&settings).unwrap();
        let mut hidden = Vec::new();
        for (section, keys) in shown.as_object().unwrap() {
            let keys = keys.as_object().into_iter().flatten();
            let keys = keys.filter(|(_, value)| *value == HIDDEN);
            hidden.extend(keys.map(|(key, _)| format!("{section}.{key}")));
        }
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
