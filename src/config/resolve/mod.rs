//! Changes the settings of the file by what the other layers say. Each key is resolved on its own.

use std::collections::BTreeMap;
use std::path::Path;

use secrecy::SecretString;
use serde_json::Value;

use super::agents::AgentChoice;
use super::direct::apply_policy;
use super::env;
use super::file::{OwnFile, SYSTEM_PATH};
use super::layers::{Layers, Sourced, non_empty, own_path};
use super::sections::{BusyMode, SessionsConfig, SleepConfig};
use super::settings::{BotIdentity, ConnectorConfig, IdpConfig, Settings};
use crate::access::{ANY, AccessSettings, Mode, PersonRule, Role};
use crate::adapter::SlackConfig;
use crate::wire::Platform;

use super::{ConfigError, DEFAULT_AGENT, LoadedConfig, Origin, Sources, secret};

/// Maximum length of the display name in characters.
const MAX_DISPLAY_NAME: usize = 64;

/// Name of systemd's credential.
const CREDENTIAL: &str = "relay-secret";
/// The key of the directory of the journal.
const STATE_DIR: &str = "state_dir";
/// Hermes' key for the idle time.
const IDLE_MINUTES: &str = "gateway.scale_to_zero.idle_timeout_minutes";
/// Maximum idle time from Hermes' file.
const MAX_IDLE_MINUTES: f64 = 7.0 * 24.0 * 60.0;

/// Who may drive an agent, as Hermes' variables say it.
struct HermesAccess {
    mode: Mode,
    people: Vec<PersonRule>,
    everybody_on: Vec<String>,
    /// One of the variables.
    variable: String,
    origin: Origin,
}

/// Loads the settings from all layers.
pub fn load(sources: &Sources<'_>) -> Result<LoadedConfig, ConfigError> {
    load_from(sources, Path::new(SYSTEM_PATH), Path::new("/etc"))
}

/// [`load`] with another path of the system's file, and of the directory with its time zone.
pub(super) fn load_from(
    sources: &Sources<'_>,
    system: &Path,
    etc: &Path,
) -> Result<LoadedConfig, ConfigError> {
    let mut layers = Layers::open(sources, system, etc)?;
    let mut settings = layers.file_settings();
    layers.connector(&mut settings.connector)?;
    layers.direct(&mut settings)?;
    layers.idp(&mut settings.idp)?;
    layers.sessions(&mut settings.sessions);
    layers.slack(&mut settings.slack);
    layers.sleep(&mut settings.sleep, settings.connector.wake_url.is_some());
    layers.access(&mut settings.access)?;
    layers.telemetry(&mut settings.telemetry);
    layers.nats(&mut settings.nats)?;
    layers.notify(&mut settings);
    layers.cron(&mut settings);
    layers.state_dir(&mut settings)?;
    layers.agent(&mut settings);
    if let Some(level) = sources.flags.log_level {
        settings.log.level = layers.record("log.level", Origin::Flag, level);
    }
    if let Some(format) = sources.flags.log_format {
        settings.log.format = layers.record("log.format", Origin::Flag, format);
    }
    settings.hermes_home.clone_from(&layers.home);
    let platforms = settings.identities().map(|identity| identity.platform.clone());
    let allow_bots = layers.allow_bots(platforms.chain(settings.policy.keys().cloned()));
    if settings.connector.secret.is_some() && settings.connector.gateway_id.is_none() {
        let origin = layers.origins.of("connector.secret").clone();
        layers.warnings.push(format!(
            "a gateway secret is set ({origin}), but no gateway id, so the secret is not used; set GATEWAY_RELAY_ID or \
             `connector.gateway_id`"
        ));
    }
    layers.warn_of_conflicts();
    let mut loaded = LoadedConfig {
        settings,
        origins: layers.origins,
        warnings: layers.warnings,
        hermes_yaml: layers.hermes.relevance(),
        own_file: layers.own.map(|own| own.path),
        credential_files: layers.credential_files,
        allow_bots,
    };
    apply_policy(&mut loaded);
    Ok(loaded)
}

/// The defaults, with the state directory of these sources: for whoever asks a relay that runs, although its settings cannot be
/// loaded any more. Fails if what cannot be loaded may name another directory.
pub fn load_place(sources: &Sources<'_>) -> Result<LoadedConfig, ConfigError> {
    place_from(sources, Path::new(SYSTEM_PATH))
}

/// [`load_place`] with another path of the system's file.
pub(super) fn place_from(sources: &Sources<'_>, system: &Path) -> Result<LoadedConfig, ConfigError> {
    let mut layers = Layers::without_files(sources, Path::new("/etc"));
    let mut settings = Settings::default();
    if !layers.named_state_dir(&mut settings) {
        let path = own_path(sources, layers.home.as_deref(), system)?;
        layers.own = path.map(|path| OwnFile::read_place(&path)).transpose()?;
        if let Some(own) = &layers.own {
            settings.state_dir.clone_from(&own.settings.state_dir);
            layers.origins.set(STATE_DIR, Origin::OwnFile(own.path.clone()));
        }
        layers.state_dir(&mut settings)?;
    }
    settings.hermes_home.clone_from(&layers.home);
    Ok(LoadedConfig {
        settings,
        origins: layers.origins,
        warnings: Vec::new(),
        hermes_yaml: Value::Null,
        own_file: layers.own.map(|own| own.path),
        credential_files: Vec::new(),
        allow_bots: BTreeMap::new(),
    })
}

impl Layers<'_> {
    fn connector(&mut self, connector: &mut ConnectorConfig) -> Result<(), ConfigError> {
        let flag = self.flags.url.clone().and_then(non_empty);
        let flag = flag.map(|url| (url, Origin::Flag));
        let url = flag.or_else(|| self.lookup("connector.url", connector.url.as_ref()));
        // A URL in our own settings is deliberate; the switch is about what Hermes itself dials.
        let is_own = matches!(url, Some((_, Origin::Flag | Origin::OwnFile(_))));
        connector.url = self.record_value("connector.url", url);
        if connector.url.is_some() && !is_own && self.hermes.vetoes_relay() {
            let path = self.hermes.path.clone();
            connector.url = None;
            connector.url_veto = Some(format!(
                "`platforms.relay.enabled: false` in {} disables the relay; set it to true or remove it",
                path.display()
            ));
            self.origins
                .set("connector.url", Origin::HermesConfig(path.clone()));
            self.origins.set("connector.url_veto", Origin::HermesConfig(path));
        }
        for (key, text) in [
            ("connector.gateway_id", &mut connector.gateway_id),
            ("connector.instance_id", &mut connector.instance_id),
            ("connector.wake_url", &mut connector.wake_url),
            ("connector.sleep_url", &mut connector.sleep_url),
            ("connector.display_name", &mut connector.display_name),
            ("connector.endpoint", &mut connector.endpoint),
        ] {
            self.resolve_text(key, text);
        }
        connector.display_name = connector.display_name.take().map(|name| self.short_name(name));
        let mut delivery_key = None;
        self.resolve_text("connector.delivery_key", &mut delivery_key);
        connector.delivery_key = delivery_key.map(SecretString::from);
        connector.secret = self.secret(connector.secret_file.as_deref())?;
        connector.identities = self.identities(std::mem::take(&mut connector.identities));
        connector.route_keys = self.route_keys(std::mem::take(&mut connector.route_keys));
        Ok(())
    }

    fn short_name(&mut self, name: String) -> String {
        if name.chars().count() <= MAX_DISPLAY_NAME {
            return name;
        }
        self.warnings.push(format!(
            "the display name is truncated to {MAX_DISPLAY_NAME} characters"
        ));
        name.chars().take(MAX_DISPLAY_NAME).collect()
    }

    fn identities(&mut self, own: Vec<BotIdentity>) -> Vec<BotIdentity> {
        let platforms = self.in_process(env::PLATFORMS).or_else(|| {
            if own.is_empty() {
                self.in_dotenv(env::PLATFORMS)
            } else {
                None
            }
        });
        if platforms.is_none() && !own.is_empty() {
            return own
                .into_iter()
                .map(|identity| BotIdentity {
                    platform: identity.platform.trim().to_owned(),
                    bot_id: identity.bot_id.trim().to_owned(),
                    username: identity.username.as_deref().and_then(env::bare_name),
                })
                .collect();
        }
        let bot_ids = self
            .in_process(env::BOT_IDS)
            .or_else(|| self.in_dotenv(env::BOT_IDS));
        if bot_ids
            .as_ref()
            .is_some_and(|(text, _)| env::bot_id_map(text).is_none())
        {
            self.warnings
                .push(format!("{} is not a JSON object; ignored", env::BOT_IDS));
        }
        let platforms = self.record_value("connector.identities", platforms);
        env::identities(
            platforms.as_deref(),
            bot_ids.as_ref().map(|(text, _)| text.as_str()),
        )
    }

    fn route_keys(&mut self, own: Vec<String>) -> Vec<String> {
        const KEY: &str = "connector.route_keys";
        if let Some((text, origin)) = self.in_process(env::ROUTE_KEYS) {
            return self.record(KEY, origin, env::comma_list(&text));
        }
        let own: Vec<String> = own.into_iter().filter_map(non_empty).collect();
        if !own.is_empty() {
            return own;
        }
        if let Some((text, origin)) = self.in_dotenv(env::ROUTE_KEYS) {
            return self.record(KEY, origin, env::comma_list(&text));
        }
        let key = Settings::field(KEY).and_then(|field| field.hermes);
        let Some(keys) = key.and_then(|key| self.hermes.list(key)) else {
            return Vec::new();
        };
        self.record(KEY, Origin::HermesConfig(self.hermes.path.clone()), keys)
    }

    /// What a variable that switches a setting on or off says. A word that means neither leaves it to the settings.
    fn switch_variable(&self, key: &str, is_set: bool) -> Option<(bool, Origin)> {
        let variable = Settings::field(key)?.variables.first()?;
        let switch = |(text, origin): Sourced| {
            let is_off = ["0", "false", "no", "off"]
                .iter()
                .any(|off| text.eq_ignore_ascii_case(off));
            (is_off || is_on(&text)).then_some((!is_off, origin))
        };
        let in_process = self.in_process(variable.name).and_then(switch);
        in_process.or_else(|| self.in_dotenv(variable.name).filter(|_| !is_set).and_then(switch))
    }

    fn sessions(&mut self, sessions: &mut SessionsConfig) {
        const BUSY_MODE: &str = "sessions.busy_mode";
        for notice in [
            &mut sessions.interrupted_notice,
            &mut sessions.overflow_notice,
            &mut sessions.undelivered_notice,
        ] {
            *notice = notice.take().filter(|text| !text.trim().is_empty());
        }
        for (name, value) in [
            ("group_sessions_per_user", &mut sessions.group_sessions_per_user),
            ("thread_sessions_per_user", &mut sessions.thread_sessions_per_user),
            ("multiplex_profiles", &mut sessions.multiplex_profiles),
        ] {
            let key = format!("sessions.{name}");
            let is_set = self.own_sets(&key);
            if let Some((flag, origin)) = self.switch_variable(&key, is_set) {
                *value = self.record(&key, origin, flag);
                continue;
            }
            if is_set {
                continue;
            }
            if let Some(flag) = self.hermes.switch(name, &mut self.warnings) {
                *value = self.record(&key, Origin::HermesConfig(self.hermes.path.clone()), flag);
            }
        }
        let own = self
            .own_sets(BUSY_MODE)
            .then(|| sessions.busy_mode.as_str().to_owned());
        if let Some((text, origin)) = self.lookup(BUSY_MODE, own.as_ref()) {
            match text.parse::<BusyMode>() {
                Ok(mode) => sessions.busy_mode = self.record(BUSY_MODE, origin, mode),
                Err(error) => self
                    .warnings
                    .push(format!("busy mode from {origin}: {error}; ignored")),
            }
        }
    }

    /// Who may drive an agent: our own section, else Hermes' variables, else the connector decides. A section without a mode
    /// would let everybody in whom the variables keep out.
    fn access(&mut self, access: &mut AccessSettings) -> Result<(), ConfigError> {
        let hermes = self.hermes_access();
        if let Some(own) = self.own.as_ref().filter(|own| own.sets("access")) {
            access.is_set = true;
            let narrower = hermes.filter(|rules| rules.mode == Mode::List && !own.sets("access.mode"));
            if let Some(rules) = narrower {
                return Err(ConfigError::NoAccessMode {
                    path: own.path.clone(),
                    variable: rules.variable,
                });
            }
        } else if let Some(rules) = hermes {
            access.mode = self.record("access.mode", rules.origin.clone(), rules.mode);
            access.people = self.record("access.people", rules.origin, rules.people);
            access.everybody_on = rules.everybody_on;
            access.from_hermes = true;
        }
        *access = std::mem::take(access).normalized();
        self.warnings.extend(access.name_warnings());
        Ok(())
    }

    /// What Hermes' variables say.
    fn hermes_access(&self) -> Option<HermesAccess> {
        let find = |name: &str| self.in_process(name).or_else(|| self.in_dotenv(name));
        let (mut people, mut everybody_on, mut last) = (Vec::new(), Vec::new(), None);
        let (mut open, mut listed) = (false, false);
        for platform in std::iter::once(ANY).chain(Platform::names().iter().copied()) {
            let [users, all] = env::allowed_users_variables(platform);
            let mut everybody = false;
            if let Some((text, from)) = find(&users) {
                listed = true;
                last = Some((users, from));
                for user in env::comma_list(&text) {
                    if user == ANY {
                        everybody = true;
                        continue;
                    }
                    people.push(PersonRule {
                        platform: platform.to_owned(),
                        user,
                        role: Role::User,
                        ..PersonRule::default()
                    });
                }
            }
            if let Some((text, from)) = find(&all)
                && is_on(&text)
            {
                everybody = true;
                last = Some((all, from));
            }
            match (everybody, platform) {
                (true, ANY) => open = true,
                (true, platform) => everybody_on.push(platform.to_owned()),
                (false, _) => {}
            }
        }
        let (variable, origin) = last?;
        let mode = match (open, listed || !everybody_on.is_empty()) {
            (true, _) => Mode::Open,
            (false, true) => Mode::List,
            (false, false) => Mode::Upstream,
        };
        Some(HermesAccess {
            mode,
            people,
            everybody_on,
            variable,
            origin,
        })
    }

    fn slack(&mut self, slack: &mut SlackConfig) {
        for (name, value) in [
            ("reply_in_thread", &mut slack.reply_in_thread),
            (
                "dm_top_level_threads_as_sessions",
                &mut slack.dm_top_level_threads_as_sessions,
            ),
        ] {
            let key = format!("slack.{name}");
            let is_set = self.own_sets(&key);
            if let Some(flag) = self.hermes.slack_switch(name).filter(|_| !is_set) {
                *value = self.record(&key, Origin::HermesConfig(self.hermes.path.clone()), flag);
            }
        }
        let key = "slack.channel_reply_modes";
        let is_set = self.own_sets(key);
        if let Some(modes) = self.hermes.slack_reply_modes().filter(|_| !is_set) {
            let origin = Origin::HermesConfig(self.hermes.path.clone());
            slack.channel_reply_modes = self.record(key, origin, modes);
        }
    }

    /// The default agent; an inline one gets a name and joins the others.
    fn agent(&mut self, settings: &mut Settings) {
        let own = match std::mem::take(&mut settings.agent_choice) {
            AgentChoice::Named(name) => name,
            AgentChoice::Inline(entry) => {
                let mut name = entry.default_name();
                while settings.agents.contains_key(&name) {
                    name.push('_');
                }
                settings.agents.insert(name.clone(), *entry);
                name
            }
        };
        let own = self.own_sets("agent").then_some(own);
        let flag = self.flags.agent.clone().and_then(non_empty);
        let flag = flag.map(|agent| (agent, Origin::Flag));
        let value = flag.or_else(|| self.in_own(own.as_ref()));
        settings.agent = self
            .record_value("agent", value)
            .unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    }

    /// The directory of the journal, and whether the service manager made it for us.
    fn state_dir(&mut self, settings: &mut Settings) -> Result<(), ConfigError> {
        if self.named_state_dir(settings) {
            return Ok(());
        }
        if let Some((path, _)) = self.path_in_own(Some(&settings.state_dir)) {
            settings.state_dir = path;
        } else {
            let home = self.home.as_ref().ok_or(ConfigError::NoStateDir)?;
            settings.state_dir = home.join("relay");
            self.origins.set(STATE_DIR, Origin::Default);
        }
        Ok(())
    }

    /// Sets the state directory that the command line or the process environment names; returns whether one does.
    fn named_state_dir(&mut self, settings: &mut Settings) -> bool {
        let named = if let Some(path) = self.flags.state_dir.clone() {
            Some((path, Origin::Flag))
        } else if let Some(path) = self.flags.in_parent(self.process, env::PARENT_STATE_DIR) {
            Some((path, Origin::Env(env::PARENT_STATE_DIR.to_owned())))
        } else if let Some((path, origin)) = self.in_process(env::RELAY_STATE_DIR) {
            Some((path.into(), origin))
        } else if let Some((list, origin)) = self.in_process(env::STATE_DIRECTORY)
            && let Some(first) = list.split(':').find(|path| !path.is_empty())
        {
            settings.state_dir_assigned = true;
            Some((first.into(), origin))
        } else {
            None
        };
        let is_named = named.is_some();
        if let Some((path, origin)) = named {
            settings.state_dir = self.record(STATE_DIR, origin, path);
        }
        is_named
    }

    fn allow_bots(&self, platforms: impl Iterator<Item = String>) -> BTreeMap<String, String> {
        platforms
            .filter_map(|platform| {
                let name = env::allow_bots_variable(&platform);
                let (value, _) = self.in_process(&name).or_else(|| self.in_dotenv(&name))?;
                Some((platform, value))
            })
            .collect()
    }

    /// The gateway's secret from the first layer that has it.
    fn secret(&mut self, own: Option<&Path>) -> Result<Option<SecretString>, ConfigError> {
        const KEY: &str = "connector.secret";
        if let Some((value, origin)) = self.in_process(env::SECRET) {
            return Ok(Some(self.record(KEY, origin, secret::into_secret(value))));
        }
        if let Some((path, origin)) = self.in_process(env::SECRET_FILE) {
            let value = self.secret_in(Path::new(&path))?;
            return Ok(Some(self.record(KEY, origin, value)));
        }
        if let Some((path, origin)) = self.path_in_own(own) {
            let value = self.secret_in(&path)?;
            return Ok(Some(self.record(KEY, origin, value)));
        }
        if let Some((directory, _)) = self.in_process(env::CREDENTIALS_DIRECTORY) {
            let path = Path::new(&directory).join(CREDENTIAL);
            if path.exists() {
                let value = self.secret_in(&path)?;
                return Ok(Some(self.record(KEY, Origin::Credential(path), value)));
            }
        }
        if self.in_dotenv(env::SECRET).is_none()
            && let Some((path, origin)) = self.in_dotenv(env::SECRET_FILE)
        {
            let value = self.secret_in(Path::new(&path))?;
            return Ok(Some(self.record(KEY, origin, value)));
        }
        let value = self
            .in_dotenv(env::SECRET)
            .or_else(|| self.in_hermes(Settings::field(KEY)?.hermes?));
        Ok(self.record_value(KEY, value).map(secret::into_secret))
    }

    fn secret_in(&mut self, path: &Path) -> Result<SecretString, ConfigError> {
        self.credential_files.push(path.to_owned());
        Ok(secret::read(path)?)
    }

    /// The identity provider. A token URL in the environment overrides all files.
    fn idp(&mut self, idp: &mut IdpConfig) -> Result<(), ConfigError> {
        const SECRET: &str = "idp.client_secret";
        let token_url = self.lookup("idp.token_url", idp.token_url.as_ref());
        let (own, hermes) = match token_url.as_ref().map(|(_, origin)| origin) {
            Some(Origin::OwnFile(_)) => (true, false),
            Some(Origin::HermesConfig(_)) | None => (true, true),
            Some(_) => (false, false),
        };
        let is_read = |value: &Sourced| hermes || !matches!(value.1, Origin::HermesConfig(_));
        idp.token_url = self.record_value("idp.token_url", token_url);
        for (key, text) in [
            ("idp.client_id", &mut idp.client_id),
            ("idp.scope", &mut idp.scope),
        ] {
            let value = self.lookup(key, text.as_ref().filter(|_| own)).filter(is_read);
            *text = self.record_value(key, value);
        }
        let file = self.path_in_own(idp.client_secret_file.as_deref().filter(|_| own));
        let variable = self.in_process(env::IDP_CLIENT_SECRET);
        idp.client_secret = if let (None, Some((path, origin))) = (&variable, file) {
            let value = secret::read(&path)?;
            Some(self.record(SECRET, origin, value))
        } else {
            let value = if hermes {
                self.lookup(SECRET, None)
            } else {
                variable.or_else(|| self.in_dotenv(env::IDP_CLIENT_SECRET))
            };
            self.record_value(SECRET, value).map(secret::into_secret)
        };
        Ok(())
    }

    fn sleep(&mut self, sleep: &mut SleepConfig, has_wake_url: bool) {
        const ENABLED: &str = "sleep.enabled";
        const IDLE_SECS: &str = "sleep.idle_secs";
        let own = self.own_sets(ENABLED).then(|| sleep.enabled.to_string());
        if let Some((text, origin)) = self.lookup(ENABLED, own.as_ref()) {
            sleep.enabled = self.record(ENABLED, origin, is_on(&text));
        }
        if !self.own_sets(IDLE_SECS)
            && let Some(secs) = self.hermes.text(IDLE_MINUTES).as_deref().and_then(seconds)
        {
            let origin = Origin::HermesConfig(self.hermes.path.clone());
            sleep.idle_secs = self.record(IDLE_SECS, origin, secs);
        }
        if sleep.enabled && !has_wake_url {
            self.warnings.push(
                "sleep is enabled without a wake URL, so the relay stays awake: set `connector.wake_url`"
                    .to_owned(),
            );
        }
    }
}

/// Whether Hermes takes this text as true.
fn is_on(text: &str) -> bool {
    ["1", "true", "yes", "on"]
        .iter()
        .any(|on| text.eq_ignore_ascii_case(on))
}

/// Positive minutes in seconds; else `None`.
fn seconds(minutes: &str) -> Option<u64> {
    let minutes = minutes.parse::<f64>().ok()?;
    (minutes > 0.0).then(|| {
        std::time::Duration::from_secs_f64(minutes.min(MAX_IDLE_MINUTES) * 60.0)
            .as_secs()
            .max(1)
    })
}

#[cfg(test)]
mod tests;
