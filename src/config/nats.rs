//! The `nats` and `worker` sections: turns that run on other machines.

use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serialize};
use url::Url;

use super::ConfigError;
use super::agents::Backend;
use super::layers::Layers;
use super::secret;
use super::settings::{Settings, hidden};
use super::validate::Violation;
use crate::setting::section;

/// Longest name of a pool or prefix: it becomes a part of subjects and names of streams.
const MAX_NAME: usize = 48;
/// Most turns at once on one worker.
const MAX_SLOTS: usize = 1024;
/// Most servers in the list.
const MAX_SERVERS: usize = 16;

section! {
    /// The NATS server that relays and workers meet at.
    pub struct NatsConfig {
        /// Address, or a list of the addresses of a cluster.
        pub url: ServerList;
        /// File with the token, which is read when the settings are loaded.
        #[serde(skip_serializing)]
        pub token_file: Option<PathBuf>;
        /// File with the credentials (JWT and seed), which is read when the settings are loaded.
        #[serde(skip_serializing)]
        pub creds_file: Option<PathBuf>;
        /// File with the seed of an `NKey`, which is read when the settings are loaded.
        #[serde(skip_serializing)]
        pub nkey_file: Option<PathBuf>;
        /// Subjects and streams begin with it.
        pub prefix: String = "hermes".to_owned();
        /// Allow an unencrypted connection to another machine.
        pub allow_plaintext: bool;
    } resolved {
        /// The token.
        #[serde(serialize_with = "hidden")]
        pub token: Option<SecretString>;
        /// The credentials.
        #[serde(serialize_with = "hidden")]
        pub credentials: Option<SecretString>;
        /// The seed.
        #[serde(serialize_with = "hidden")]
        pub nkey: Option<SecretString>;
    }
}

/// A worker: what `hermes-relay worker` runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    /// The pool whose turns it takes.
    pub pool: String,
    /// The agent that runs them: one of `agents`, or a built-in one.
    pub agent: String,
    /// Maximum concurrent turns.
    #[serde(default = "one")]
    pub slots: usize,
    /// Name in logs; the host's name if it is not set.
    #[serde(default)]
    pub name: Option<String>,
}

fn one() -> usize {
    1
}

/// A cluster: several relays for the same gateway, of which one is active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name, the same for all members.
    pub name: String,
    /// This member's name; the host's name if it is not set.
    #[serde(default)]
    pub member: Option<String>,
    /// Copies of the stream and the lease in a cluster of servers.
    #[serde(default = "one")]
    pub replicas: usize,
    /// What the active member does when it cannot reach the server.
    #[serde(default)]
    pub without_server: ServerAbsence,
    /// Commits in the stream at which a snapshot is made and the stream is shortened.
    #[serde(default = "snapshot_every")]
    pub snapshot_every: u64,
}

/// What the active member of a cluster does when it cannot reach the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerAbsence {
    /// It stops; another member may become active.
    #[default]
    Stop,
    /// It goes on alone; no other member becomes active but by `handover --take`.
    Continue,
}

fn snapshot_every() -> u64 {
    10_000
}

/// The first violated rule about the `cluster` section.
pub(super) fn cluster_violation(settings: &Settings) -> Option<Violation> {
    let cluster = settings.cluster.as_ref()?;
    if let Some(rule) = name_error(&cluster.name) {
        return Some(("cluster.name", rule));
    }
    if let Some(Some(rule)) = cluster.member.as_deref().map(name_error) {
        return Some(("cluster.member", rule));
    }
    if !matches!(cluster.replicas, 1 | 3 | 5) {
        let rule = format!("must be 1, 3 or 5, not {}", cluster.replicas);
        return Some(("cluster.replicas", rule));
    }
    if cluster.snapshot_every < 100 {
        let rule = format!("must be at least 100, not {}", cluster.snapshot_every);
        return Some(("cluster.snapshot_every", rule));
    }
    if settings.nats.url.0.is_empty() {
        let rule = "needs `nats.url`, the server that the members meet at".to_owned();
        return Some(("cluster", rule));
    }
    let bot = settings.direct.platforms().into_iter().next()?;
    let rule = format!("needs a connector; with `direct.{bot}` one relay has to be enough");
    Some(("cluster", rule))
}

/// Addresses of servers: one, or a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ServerList(pub Vec<String>);

impl<'de> Deserialize<'de> for ServerList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "an address such as nats://127.0.0.1:4222, or a list of them"
        )]
        enum Written {
            One(String),
            List(Vec<String>),
            None(()),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::One(url) if url.trim().is_empty() => Vec::new(),
            Written::One(url) => vec![url],
            Written::List(urls) => urls,
            Written::None(()) => Vec::new(),
        }))
    }
}

/// Why a text cannot be the name of a pool or a prefix.
fn name_error(name: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let valid = !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_plain);
    (!valid).then(|| format!("must be 1 to {MAX_NAME} letters, digits, `-` or `_`"))
}

/// Why an address is invalid. It is not quoted: it may contain a password.
fn url_error(address: &str, allow_plaintext: bool) -> Option<String> {
    let example = "such as nats://127.0.0.1:4222 or tls://nats.example:4222";
    let invalid = || Some(format!("must be a nats:// or tls:// address, {example}"));
    let Ok(url) = Url::parse(address) else {
        return invalid();
    };
    let (true, Some(host)) = (matches!(url.scheme(), "nats" | "tls"), url.host_str()) else {
        return invalid();
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Some(
            "must not contain a user or password; use `nats.token_file`, `creds_file` or `nkey_file`"
                .to_owned(),
        );
    }
    let loopback = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback());
    (url.scheme() == "nats" && !loopback && !allow_plaintext).then(|| {
        "has an unencrypted address of another machine; use tls:// or set `nats.allow_plaintext: true`"
            .to_owned()
    })
}

impl NatsConfig {
    /// The first violated rule.
    pub(super) fn violation(&self) -> Option<Violation> {
        if let Some(rule) = name_error(&self.prefix) {
            return Some(("nats.prefix", rule));
        }
        if self.url.0.len() > MAX_SERVERS {
            return Some(("nats.url", format!("must have at most {MAX_SERVERS} addresses")));
        }
        let mut urls = self.url.0.iter();
        if let Some(rule) = urls.find_map(|url| url_error(url, self.allow_plaintext)) {
            return Some(("nats.url", rule));
        }
        let files = [&self.token_file, &self.creds_file, &self.nkey_file];
        (files.into_iter().flatten().count() > 1).then(|| {
            let rule = "excludes the others: set one of `token_file`, `creds_file` and `nkey_file`";
            ("nats.token_file", rule.to_owned())
        })
    }
}

/// The first violated rule about workers: of the `worker` section, or of an agent of kind `worker`.
pub(super) fn worker_violation(settings: &Settings) -> Option<Violation> {
    let has_server = !settings.nats.url.0.is_empty();
    let needs_server = || "needs `nats.url`, the server that relays and workers meet at".to_owned();
    for (name, entry) in &settings.agents {
        let Backend::Worker(worker) = &entry.backend else {
            continue;
        };
        if let Some(rule) = name_error(&worker.pool) {
            return Some(("agents", format!("`{name}`: `pool` {rule}")));
        }
        if !has_server {
            return Some(("agents", format!("`{name}` {}", needs_server())));
        }
    }
    let worker = settings.worker.as_ref()?;
    if let Some(rule) = name_error(&worker.pool) {
        return Some(("worker.pool", rule));
    }
    if !(1..=MAX_SLOTS).contains(&worker.slots) {
        return Some((
            "worker.slots",
            format!("must be between 1 and {MAX_SLOTS}, not {}", worker.slots),
        ));
    }
    if let Some(Some(rule)) = worker.name.as_deref().map(name_error) {
        return Some(("worker.name", rule));
    }
    if !has_server {
        return Some(("worker", needs_server()));
    }
    match settings.agents.get(&worker.agent).map(|entry| &entry.backend) {
        Some(Backend::Worker(_)) => {
            let rule = "must be an agent that runs here, not one of kind `worker`".to_owned();
            Some(("worker.agent", rule))
        }
        None if !crate::agent::BUILT_IN.contains(&worker.agent.as_str()) => {
            let rule = format!(
                "names `{}`, which is neither in `agents` nor built in",
                worker.agent
            );
            Some(("worker.agent", rule))
        }
        Some(_) | None => None,
    }
}

impl Layers<'_> {
    /// Reads the secret files of the server.
    pub(super) fn nats(&mut self, nats: &mut NatsConfig) -> Result<(), ConfigError> {
        for (key, file, secret) in [
            ("nats.token", &nats.token_file, &mut nats.token),
            ("nats.credentials", &nats.creds_file, &mut nats.credentials),
            ("nats.nkey", &nats.nkey_file, &mut nats.nkey),
        ] {
            if let Some((path, origin)) = self.path_in_own(file.as_deref()) {
                *secret = Some(self.record(key, origin, secret::read(&path)?));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::test_home::TestHome;

    fn error(file: &str) -> String {
        let loaded = TestHome::new().file("relay.yaml", file).try_load();
        loaded.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_relay_and_a_worker_are_read() {
        let relay =
            "nats: {url: 'nats://127.0.0.1:4222', prefix: team}\nagents: {code: {kind: worker, pool: code}}";
        let settings = TestHome::new().file("relay.yaml", relay).load().settings;
        assert_eq!(
            (settings.nats.url.0.len(), settings.nats.prefix.as_str()),
            (1, "team")
        );
        assert_eq!(settings.agents["code"].backend.kind(), "worker");
        let worker = "nats: {url: ['tls://a.example:4222', 'tls://b.example']}\n\
                      worker: {pool: code, agent: echo, slots: 4}";
        let settings = TestHome::new().file("relay.yaml", worker).load().settings;
        assert_eq!(settings.nats.url.0.len(), 2);
        assert_eq!(settings.worker.map(|worker| worker.slots), Some(4));
    }

    #[test]
    fn mistakes_are_named_without_secrets() {
        let server = "nats: {url: 'nats://127.0.0.1:4222'}";
        for (file, part) in [
            (
                "agents: {c: {kind: worker, pool: p}}".to_owned(),
                "`c` needs `nats.url`",
            ),
            (
                format!("{server}\nagents: {{c: {{kind: worker, pool: 'a.b'}}}}"),
                "`c`: `pool` must be",
            ),
            (
                format!("{server}\nworker: {{pool: p, agent: nobody}}"),
                "names `nobody`",
            ),
            (
                format!("{server}\ncluster: {{name: home}}\ndirect: {{discord: {{}}}}"),
                "with `direct.discord` one relay has to be enough",
            ),
            (
                format!("{server}\ncluster: {{name: home}}\ndirect: {{telegram: {{}}}}"),
                "with `direct.telegram` one relay has to be enough",
            ),
            ("worker: {pool: p, agent: echo}".to_owned(), "`nats.url`"),
            (
                "nats: {url: 'nats://me:hunter2@127.0.0.1'}".to_owned(),
                "must not contain a user",
            ),
            ("nats: {url: 'nats://far.example'}".to_owned(), "allow_plaintext"),
            ("nats: {url: 'http://127.0.0.1'}".to_owned(), "nats:// or tls://"),
            ("nats: {prefix: 'a b'}".to_owned(), "`nats.prefix` must be"),
        ] {
            let error = error(&file);
            assert!(error.contains(part), "{file}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
