//! The settings out of the layers: for every key, which layers have it and what their words mean.
//!
//! Each key is settled by itself: an id from one layer goes with a secret from another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::agents::{AgentChoice, AgentEntries};
use super::env;
use super::file::SYSTEM_PATH;
use super::layers::{Layers, filled};
use super::settings::{Connector, Identity, Settings};
use super::tuning::{BusyMode, Sessions, Slack};
use super::{ConfigError, DEFAULT_AGENT, Loaded, Origin, Sources};

/// The longest display name that the connector takes, in characters.
const MAX_DISPLAY_NAME: usize = 64;

/// Asks every layer and gives the settings, or says what to correct.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, ConfigError> {
    load_from(sources, Path::new(SYSTEM_PATH))
}

/// The same with another place for the system's file.
pub(super) fn load_from(sources: &Sources<'_>, system: &Path) -> Result<Loaded, ConfigError> {
    let mut layers = Layers::open(sources, system)?;
    let connector = layers.connector()?;
    let idp = layers.idp()?;
    let sessions = layers.sessions();
    let slack = layers.slack();
    let sleep = layers.sleep(connector.wake_url.is_some());
    let telemetry = layers.telemetry();
    let state_dir = layers.state_dir()?;
    let tree = layers.tree();
    let (agent, agents) = layers.agents();
    let mut routes = tree.routes;
    for path in routes.iter_mut().filter_map(|route| route.workdir.as_mut()) {
        *path = layers.anchored(path);
    }
    let mut log = tree.log;
    if let Some(level) = sources.flags.log_level {
        log.level = layers.noted("log.level", Origin::Flag, level);
    }
    if let Some(format) = sources.flags.log_format {
        log.format = layers.noted("log.format", Origin::Flag, format);
    }
    let mut tls = tree.tls;
    for path in [&mut tls.ca_file, &mut tls.client_cert, &mut tls.client_key]
        .into_iter()
        .flatten()
    {
        *path = layers.anchored(path);
    }
    let mut media = tree.media;
    for path in &mut media.send_from {
        *path = layers.anchored(path);
    }
    let allow_bots = layers.allow_bots(&connector.identities, tree.policy.keys());
    layers.warn_of_disagreement();
    Ok(Loaded {
        settings: Settings {
            connector,
            tls,
            idp,
            link: tree.link,
            sessions,
            journal: tree.journal,
            slack,
            discord: tree.discord,
            budget: tree.budget,
            streaming: tree.streaming,
            prompts: tree.prompts,
            media,
            policy: tree.policy,
            agents,
            agent,
            routes,
            serve: tree.serve,
            shutdown: tree.shutdown,
            sleep,
            log,
            telemetry,
            state_dir,
            hermes_home: layers.home,
        },
        origins: layers.origins,
        warnings: layers.warnings,
        hermes_yaml: layers.hermes.relevance(),
        own_file: layers.own.map(|own| own.path),
        credential_files: layers.credential_files,
        allow_bots,
    })
}

impl Layers<'_> {
    fn connector(&mut self) -> Result<Connector, ConfigError> {
        let own = self.tree().connector;
        let flag = self
            .flags
            .url
            .clone()
            .and_then(filled)
            .map(|url| (url, Origin::Flag));
        let url = flag.or_else(|| self.ask(env::URL, own.url.as_ref(), Some("gateway.relay_url")));
        // Who names the URL to this program means it; the switch is about what Hermes itself would dial.
        let named_to_us = matches!(url, Some((_, Origin::Flag | Origin::OwnFile(_))));
        let mut url = self.settle("connector.url", url);
        let mut url_veto = None;
        if url.is_some() && !named_to_us && self.hermes.vetoes_relay() {
            let path = self.hermes.path.clone();
            url = None;
            url_veto = Some(format!(
                "`platforms.relay.enabled: false` in {} switches the relay off; set it to true or remove it",
                path.display()
            ));
            self.origins
                .set("connector.url", Origin::HermesConfig(path.clone()));
            self.origins.set("connector.url_veto", Origin::HermesConfig(path));
        }
        let mut text = |key, name, own: &Option<String>, hermes| {
            let answer = self.ask(name, own.as_ref(), hermes);
            self.settle(key, answer)
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
        Ok(Connector {
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

    fn short_name(&mut self, name: String) -> String {
        if name.chars().count() <= MAX_DISPLAY_NAME {
            return name;
        }
        self.warnings.push(format!(
            "the display name is longer than {MAX_DISPLAY_NAME} characters, and is cut"
        ));
        name.chars().take(MAX_DISPLAY_NAME).collect()
    }

    fn identities(&mut self, own: Vec<Identity>) -> Vec<Identity> {
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
                .map(|identity| Identity {
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
            self.warnings.push(format!(
                "{} is not a JSON object, and counts as empty",
                env::BOT_IDS
            ));
        }
        let platforms = self.settle("connector.identities", platforms);
        env::identities(
            platforms.as_deref(),
            bot_ids.as_ref().map(|(text, _)| text.as_str()),
        )
    }

    fn route_keys(&mut self, own: Vec<String>) -> Vec<String> {
        const KEY: &str = "connector.route_keys";
        if let Some((text, origin)) = self.in_process(env::ROUTE_KEYS) {
            return self.noted(KEY, origin, env::comma_list(&text));
        }
        let own: Vec<String> = own.into_iter().filter_map(filled).collect();
        if !own.is_empty() {
            return own;
        }
        if let Some((text, origin)) = self.in_dotenv(env::ROUTE_KEYS) {
            return self.noted(KEY, origin, env::comma_list(&text));
        }
        let Some(keys) = self.hermes.list("gateway.relay_route_keys") else {
            return Vec::new();
        };
        self.noted(KEY, Origin::HermesConfig(self.hermes.path.clone()), keys)
    }

    fn sessions(&mut self) -> Sessions {
        let mut sessions = self.tree().sessions;
        for notice in [&mut sessions.interrupted_notice, &mut sessions.overflow_notice] {
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
                *value = self.noted(&key, Origin::HermesConfig(self.hermes.path.clone()), flag);
            }
        }
        let own = self.own.as_ref().filter(|own| own.sets("sessions.busy_mode"));
        let own = own.map(|_| sessions.busy_mode.as_str().to_owned());
        if let Some((word, origin)) = self.ask(env::BUSY_MODE, own.as_ref(), Some("display.busy_input_mode"))
        {
            match word.parse::<BusyMode>() {
                Ok(mode) => sessions.busy_mode = self.noted("sessions.busy_mode", origin, mode),
                Err(error) => self
                    .warnings
                    .push(format!("busy mode from {origin}: {error}; it is left out")),
            }
        }
        sessions
    }

    fn slack(&mut self) -> Slack {
        let mut slack = self.tree().slack;
        for (name, value) in [
            ("reply_in_thread", &mut slack.reply_in_thread),
            (
                "dm_top_level_threads_as_sessions",
                &mut slack.dm_top_level_threads_as_sessions,
            ),
        ] {
            let key = format!("slack.{name}");
            let said = self.own.as_ref().is_some_and(|own| own.sets(&key));
            if let Some(flag) = self.hermes.slack_switch(name).filter(|_| !said) {
                *value = self.noted(&key, Origin::HermesConfig(self.hermes.path.clone()), flag);
            }
        }
        slack
    }

    /// Who answers, and all agents; one that is written on the spot gets a name of its own.
    fn agents(&mut self) -> (String, AgentEntries) {
        let mut agents = self.tree().agents;
        let flag = self
            .flags
            .agent
            .clone()
            .and_then(filled)
            .map(|agent| (agent, Origin::Flag));
        let own = self
            .own
            .as_ref()
            .filter(|own| own.sets("agent"))
            .and_then(|own| own.tree.agent.clone());
        let own = own.map(|choice| match choice {
            AgentChoice::Named(name) => name,
            AgentChoice::Inline(entry) => {
                let mut name = entry.usual_name();
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
                *path = self.anchored(path);
            }
        }
        let answer = flag.or_else(|| self.in_own(own.as_ref()));
        let name = self
            .settle("agent", answer)
            .unwrap_or_else(|| DEFAULT_AGENT.to_owned());
        (name, agents)
    }

    fn state_dir(&mut self) -> Result<PathBuf, ConfigError> {
        const KEY: &str = "state_dir";
        if let Some(path) = self.flags.state_dir.clone() {
            return Ok(self.noted(KEY, Origin::Flag, path));
        }
        if let Some((path, origin)) = self.in_process(env::RELAY_STATE_DIR) {
            return Ok(self.noted(KEY, origin, path.into()));
        }
        if let Some((list, origin)) = self.in_process(env::STATE_DIRECTORY)
            && let Some(first) = list.split(':').find(|path| !path.is_empty())
        {
            return Ok(self.noted(KEY, origin, first.into()));
        }
        if let Some(path) = self.tree().state_dir.filter(|path| !path.as_os_str().is_empty()) {
            return Ok(self.anchored(&path));
        }
        self.origins.set(KEY, Origin::Default);
        self.home
            .as_ref()
            .map(|home| home.join("relay"))
            .ok_or(ConfigError::NoStateDir)
    }

    fn allow_bots<'p>(
        &self,
        identities: &'p [Identity],
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
}

#[cfg(test)]
mod tests;
