//! Resolves the settings from the layers. Each key is resolved on its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::agents::{AgentChoice, AgentEntries};
use super::direct::apply_policy;
use super::env;
use super::file::SYSTEM_PATH;
use super::layers::{Layers, non_empty};
use super::sections::{BusyMode, ServeConfig, SessionsConfig, SlackConfig, SleepConfig};
use super::settings::{BotIdentity, ConnectorConfig, IdpConfig, Settings};
use crate::access::{ANY, AccessSettings, Mode, PersonRule, Role};
use crate::wire::Platform;

use super::{ConfigError, DEFAULT_AGENT, LoadedConfig, Origin, Sources, secret};

/// Maximum length of the display name in characters.
const MAX_DISPLAY_NAME: usize = 64;

/// Name of systemd's credential.
const CREDENTIAL: &str = "relay-secret";
/// Hermes' key for the idle time.
const IDLE_MINUTES: &str = "gateway.scale_to_zero.idle_timeout_minutes";
/// Maximum idle time from Hermes' file.
const MAX_IDLE_MINUTES: f64 = 7.0 * 24.0 * 60.0;

/// Loads the settings from all layers.
pub fn load(sources: &Sources<'_>) -> Result<LoadedConfig, ConfigError> {
    load_from(sources, Path::new(SYSTEM_PATH))
}

/// [`load`] with another path of the system's file.
pub(super) fn load_from(sources: &Sources<'_>, system: &Path) -> Result<LoadedConfig, ConfigError> {
    let mut layers = Layers::open(sources, system)?;
    let mut connector = layers.connector()?;
    let direct = layers.direct(&mut connector)?;
    let idp = layers.idp()?;
    let sessions = layers.sessions();
    let slack = layers.slack();
    let sleep = layers.sleep(connector.wake_url.is_some());
    let access = layers.access();
    let telemetry = layers.telemetry();
    let cron = layers.cron();
    let (state_dir, state_dir_assigned) = layers.state_dir()?;
    let tree = layers.tree();
    let (agent, agents) = layers.agents();
    let connectors = layers.connectors();
    let mut routes = tree.routes;
    for path in routes.iter_mut().filter_map(|route| route.workdir.as_mut()) {
        *path = layers.resolve_path(path);
    }
    let mut log = tree.log;
    if let Some(level) = sources.flags.log_level {
        log.level = layers.record("log.level", Origin::Flag, level);
    }
    if let Some(format) = sources.flags.log_format {
        log.format = layers.record("log.format", Origin::Flag, format);
    }
    log.file = log.file.map(|path| layers.resolve_path(&path));
    let mut tls = tree.tls;
    for path in [&mut tls.ca_file, &mut tls.client_cert, &mut tls.client_key]
        .into_iter()
        .flatten()
    {
        *path = layers.resolve_path(path);
    }
    let mut skills = tree.skills;
    if let Some(dir) = &mut skills.dir {
        *dir = layers.resolve_path(dir);
    }
    let mut media = tree.media;
    for path in &mut media.send_from {
        *path = layers.resolve_path(path);
    }
    let serve = layers.serve();
    let allow_bots = layers.allow_bots(&connector.identities, tree.policy.keys());
    if connector.secret.is_some() && connector.gateway_id.is_none() {
        let origin = layers.origins.of("connector.secret").clone();
        layers.warnings.push(format!(
            "a gateway secret is set ({origin}), but no gateway id, so the secret is not used; set GATEWAY_RELAY_ID or \
             `connector.gateway_id`"
        ));
    }
    layers.warn_of_conflicts();
    let mut loaded = LoadedConfig {
        settings: Settings {
            connector,
            direct,
            tls,
            idp,
            link: tree.link,
            sessions,
            journal: tree.journal,
            slack,
            discord: tree.discord,
            budget: tree.budget,
            streaming: tree.streaming,
            access,
            audit: tree.audit,
            prompts: tree.prompts,
            media,
            policy: tree.policy,
            agents,
            agent,
            routes,
            connectors,
            cron,
            skills,
            serve,
            shutdown: tree.shutdown,
            sleep,
            log,
            telemetry,
            state_dir,
            state_dir_assigned,
            hermes_home: layers.home,
        },
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

impl Layers<'_> {
    fn connector(&mut self) -> Result<ConnectorConfig, ConfigError> {
        let own = self.tree().connector;
        let flag = self
            .flags
            .url
            .clone()
            .and_then(non_empty)
            .map(|url| (url, Origin::Flag));
        let url = flag.or_else(|| self.lookup(env::URL, own.url.as_ref(), Some("gateway.relay_url")));
        // A URL in our own settings is deliberate; the switch is about what Hermes itself dials.
        let is_own = matches!(url, Some((_, Origin::Flag | Origin::OwnFile(_))));
        let mut url = self.record_value("connector.url", url);
        let mut url_veto = None;
        if url.is_some() && !is_own && self.hermes.vetoes_relay() {
            let path = self.hermes.path.clone();
            url = None;
            url_veto = Some(format!(
                "`platforms.relay.enabled: false` in {} disables the relay; set it to true or remove it",
                path.display()
            ));
            self.origins
                .set("connector.url", Origin::HermesConfig(path.clone()));
            self.origins.set("connector.url_veto", Origin::HermesConfig(path));
        }
        let mut text = |key, name, own: &Option<String>, hermes| {
            let value = self.lookup(name, own.as_ref(), hermes);
            self.record_value(key, value)
        };
        let gateway_id = text(
            "connector.gateway_id",
            env::ID,
            &own.gateway_id,
            Some("gateway.relay_id"),
        );
        let instance_id = text(
            "connector.instance_id",
            env::INSTANCE_ID,
            &own.instance_id,
            Some("gateway.relay_instance_id"),
        );
        let wake_url = text(
            "connector.wake_url",
            env::WAKE_URL,
            &own.wake_url,
            Some("gateway.relay_wake_url"),
        );
        let sleep_url = text("connector.sleep_url", env::SLEEP_URL, &own.sleep_url, None);
        let display_name = text(
            "connector.display_name",
            env::DISPLAY_NAME,
            &own.display_name,
            None,
        );
        let endpoint = text(
            "connector.endpoint",
            env::ENDPOINT,
            &own.endpoint,
            Some("gateway.relay_endpoint"),
        );
        let delivery_key =
            text("connector.delivery_key", env::DELIVERY_KEY, &None, None).map(SecretString::from);
        Ok(ConnectorConfig {
            url,
            url_veto,
            gateway_id,
            secret: self.secret(own.secret_file.as_deref())?,
            delivery_key,
            allow_plaintext: own.allow_plaintext,
            identities: self.identities(own.identities),
            route_keys: self.route_keys(own.route_keys),
            instance_id,
            wake_url,
            sleep_url,
            display_name: display_name.map(|name| self.short_name(name)),
            endpoint,
        })
    }

    fn serve(&self) -> ServeConfig {
        let mut serve = self.tree().serve;
        if let Some(receiver) = &mut serve.receiver {
            let files = [&mut receiver.hmac_secret_file, &mut receiver.bearer_file];
            for path in files.into_iter().flatten() {
                *path = self.resolve_path(path);
            }
        }
        serve
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
        let Some(keys) = self.hermes.list("gateway.relay_route_keys") else {
            return Vec::new();
        };
        self.record(KEY, Origin::HermesConfig(self.hermes.path.clone()), keys)
    }

    fn sessions(&mut self) -> SessionsConfig {
        let mut sessions = self.tree().sessions;
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
            if self.own.as_ref().is_some_and(|own| own.sets(&key)) {
                continue;
            }
            if let Some(flag) = self.hermes.switch(name, &mut self.warnings) {
                *value = self.record(&key, Origin::HermesConfig(self.hermes.path.clone()), flag);
            }
        }
        let own = self.own.as_ref().filter(|own| own.sets("sessions.busy_mode"));
        let own = own.map(|_| sessions.busy_mode.as_str().to_owned());
        if let Some((text, origin)) =
            self.lookup(env::BUSY_MODE, own.as_ref(), Some("display.busy_input_mode"))
        {
            match text.parse::<BusyMode>() {
                Ok(mode) => sessions.busy_mode = self.record("sessions.busy_mode", origin, mode),
                Err(error) => self
                    .warnings
                    .push(format!("busy mode from {origin}: {error}; ignored")),
            }
        }
        sessions
    }

    /// Who may drive an agent: our own section, else Hermes' variables, else the connector decides.
    fn access(&mut self) -> AccessSettings {
        let mut access = self.tree().access;
        if self.own.as_ref().is_some_and(|own| own.sets("access")) {
            access.is_set = true;
            return access.normalized();
        }
        let find = |name: &str| self.in_process(name).or_else(|| self.in_dotenv(name));
        let (mut people, mut everybody_on, mut origin) = (Vec::new(), Vec::new(), None);
        let (mut open, mut listed) = (false, false);
        for platform in std::iter::once(ANY).chain(Platform::names().iter().copied()) {
            let [users, all] = env::allowed_users_variables(platform);
            let mut everybody = false;
            if let Some((text, from)) = find(&users) {
                (listed, origin) = (true, Some(from));
                for user in env::comma_list(&text) {
                    if user == ANY {
                        everybody = true;
                        continue;
                    }
                    people.push(PersonRule {
                        platform: platform.to_owned(),
                        user,
                        role: Role::User,
                        chats: None,
                        agents: None,
                    });
                }
            }
            if let Some((text, from)) = find(&all)
                && is_on(&text)
            {
                (everybody, origin) = (true, Some(from));
            }
            match (everybody, platform) {
                (true, ANY) => open = true,
                (true, platform) => everybody_on.push(platform.to_owned()),
                (false, _) => {}
            }
        }
        let Some(origin) = origin else { return access };
        let mode = match (open, listed || !everybody_on.is_empty()) {
            (true, _) => Mode::Open,
            (false, true) => Mode::List,
            (false, false) => Mode::Upstream,
        };
        access.mode = self.record("access.mode", origin.clone(), mode);
        access.people = self.record("access.people", origin, people);
        access.everybody_on = everybody_on;
        access.from_hermes = true;
        access.normalized()
    }

    fn slack(&mut self) -> SlackConfig {
        let mut slack = self.tree().slack;
        for (name, value) in [
            ("reply_in_thread", &mut slack.reply_in_thread),
            (
                "dm_top_level_threads_as_sessions",
                &mut slack.dm_top_level_threads_as_sessions,
            ),
        ] {
            let key = format!("slack.{name}");
            let is_set = self.own.as_ref().is_some_and(|own| own.sets(&key));
            if let Some(flag) = self.hermes.slack_switch(name).filter(|_| !is_set) {
                *value = self.record(&key, Origin::HermesConfig(self.hermes.path.clone()), flag);
            }
        }
        slack
    }

    /// The default agent and all agents; an inline agent gets a name.
    fn agents(&mut self) -> (String, AgentEntries) {
        let mut agents = self.tree().agents;
        let flag = self
            .flags
            .agent
            .clone()
            .and_then(non_empty)
            .map(|agent| (agent, Origin::Flag));
        let own = self
            .own
            .as_ref()
            .filter(|own| own.sets("agent"))
            .map(|own| own.tree.agent.clone());
        let own = own.map(|choice| match choice {
            AgentChoice::Named(name) => name,
            AgentChoice::Inline(entry) => {
                let mut name = entry.default_name();
                while agents.contains_key(&name) {
                    name.push('_');
                }
                agents.insert(name.clone(), *entry);
                name
            }
        });
        for entry in agents.values_mut() {
            let paths = entry.workdir.iter_mut().chain(entry.backend.paths_mut());
            for path in paths {
                *path = self.resolve_path(path);
            }
        }
        let value = flag.or_else(|| self.in_own(own.as_ref()));
        let name = self
            .record_value("agent", value)
            .unwrap_or_else(|| DEFAULT_AGENT.to_owned());
        (name, agents)
    }

    /// The directory, and whether the service manager made it for us.
    fn state_dir(&mut self) -> Result<(PathBuf, bool), ConfigError> {
        const KEY: &str = "state_dir";
        if let Some(path) = self.flags.state_dir.clone() {
            return Ok((self.record(KEY, Origin::Flag, path), false));
        }
        if let Some((path, origin)) = self.in_process(env::RELAY_STATE_DIR) {
            return Ok((self.record(KEY, origin, path.into()), false));
        }
        if let Some((list, origin)) = self.in_process(env::STATE_DIRECTORY)
            && let Some(first) = list.split(':').find(|path| !path.is_empty())
        {
            return Ok((self.record(KEY, origin, first.into()), true));
        }
        if let Some(path) = self.tree().state_dir.filter(|path| !path.as_os_str().is_empty()) {
            return Ok((self.resolve_path(&path), false));
        }
        self.origins.set(KEY, Origin::Default);
        self.home
            .as_ref()
            .map(|home| (home.join("relay"), false))
            .ok_or(ConfigError::NoStateDir)
    }

    fn allow_bots<'p>(
        &self,
        identities: &'p [BotIdentity],
        policies: impl Iterator<Item = &'p String>,
    ) -> BTreeMap<String, String> {
        let platforms = identities
            .iter()
            .map(|identity| &identity.platform)
            .chain(policies);
        platforms
            .filter_map(|platform| {
                let name = env::allow_bots_variable(platform);
                let (value, _) = self.in_process(&name).or_else(|| self.in_dotenv(&name))?;
                Some((platform.clone(), value))
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
        if let (Some(path), Some(file)) = (own.filter(|path| !path.as_os_str().is_empty()), &self.own) {
            let origin = Origin::OwnFile(file.path.clone());
            let path = self.resolve_path(path);
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
            .or_else(|| self.in_hermes("gateway.relay_secret"));
        Ok(self.record_value(KEY, value).map(secret::into_secret))
    }

    fn secret_in(&mut self, path: &Path) -> Result<SecretString, ConfigError> {
        self.credential_files.push(path.to_owned());
        Ok(secret::read(path)?)
    }

    /// The identity provider. A token URL in the environment overrides all files.
    fn idp(&mut self) -> Result<IdpConfig, ConfigError> {
        let own = self.tree().idp;
        let token_url = self.lookup(
            env::IDP_TOKEN_URL,
            own.token_url.as_ref(),
            Some("gateway.idp.token_url"),
        );
        let (files, hermes) = match token_url.as_ref().map(|(_, origin)| origin) {
            Some(Origin::OwnFile(_)) => (true, false),
            Some(Origin::HermesConfig(_)) | None => (true, true),
            Some(_) => (false, false),
        };
        let mut text = |key: &str, name, own: &Option<String>| {
            let dotted = format!("gateway.{key}");
            let value = self.lookup(
                name,
                own.as_ref().filter(|_| files),
                hermes.then_some(dotted.as_str()),
            );
            self.record_value(key, value)
        };
        let client_id = text("idp.client_id", env::IDP_CLIENT_ID, &own.client_id);
        let scope = text("idp.scope", env::IDP_SCOPE, &own.scope);
        let own_secret = own
            .client_secret_file
            .filter(|path| files && !path.as_os_str().is_empty());
        let client_secret = match (self.in_process(env::IDP_CLIENT_SECRET), own_secret, &self.own) {
            (None, Some(path), Some(file)) => {
                let origin = Origin::OwnFile(file.path.clone());
                let value = secret::read(&self.resolve_path(&path))?;
                Some(self.record("idp.client_secret", origin, value))
            }
            _ => self.idp_text_secret(hermes),
        };
        Ok(IdpConfig {
            token_url: self.record_value("idp.token_url", token_url),
            client_id,
            client_secret,
            scope,
        })
    }

    fn idp_text_secret(&mut self, hermes: bool) -> Option<SecretString> {
        let value = self.lookup(
            env::IDP_CLIENT_SECRET,
            None,
            hermes.then_some("gateway.idp.client_secret"),
        );
        self.record_value("idp.client_secret", value)
            .map(secret::into_secret)
    }

    fn sleep(&mut self, has_wake_url: bool) -> SleepConfig {
        let mut sleep = self.tree().sleep;
        let own = |layers: &Self, key: &str| layers.own.as_ref().is_some_and(|own| own.sets(key));
        let own_enabled = own(self, "sleep.enabled").then(|| sleep.enabled.to_string());
        if let Some((text, origin)) = self.lookup(env::SCALE_TO_ZERO, own_enabled.as_ref(), None) {
            sleep.enabled = self.record("sleep.enabled", origin, is_on(&text));
        }
        if !own(self, "sleep.idle_secs")
            && let Some(secs) = self.hermes.text(IDLE_MINUTES).as_deref().and_then(seconds)
        {
            let origin = Origin::HermesConfig(self.hermes.path.clone());
            sleep.idle_secs = self.record("sleep.idle_secs", origin, secs);
        }
        if sleep.enabled && !has_wake_url {
            self.warnings.push(
                "sleep is enabled without a wake URL, so the relay stays awake: set `connector.wake_url`"
                    .to_owned(),
            );
        }
        sleep
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
