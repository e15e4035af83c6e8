//! The known secrets of this installation: from the settings, the agents' environments, and the process environment, Hermes'
//! `.env` and its stored login where a name sounds like a secret.
//!
//! They are collected for redaction only. Files that cannot be read are skipped.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use zeroize::Zeroizing;

use super::KnownSecret;
use super::names::is_secret_name;
use crate::cli::{Environment, ProcessEnv};
use crate::config::dotenv::Dotenv;
use crate::config::{Backend, LoadedConfig, secret};
use crate::relay;
use crate::serve::targets::secret_sources;

/// Minimum length of a value whose name sounds like a secret: shorter ones would match ordinary words.
const MIN_GUESSED: usize = 12;
/// First folders of absolute paths.
const ROOTS: &[&str] = &[
    "app", "bin", "boot", "data", "dev", "etc", "home", "lib", "media", "mnt", "opt", "private", "proc",
    "root", "run", "sbin", "secrets", "srv", "sys", "tmp", "usr", "var", "Library", "Users", "Volumes",
];
/// Hermes' stored login.
const LOGIN_FILE: &str = "auth.json";
/// Maximum size of the login file.
const MAX_LOGIN_BYTES: u64 = 1024 * 1024;
/// Maximum nesting that is searched in the login file.
const MAX_DEPTH: usize = 16;
/// Headers whose values are no secret.
const PUBLIC_HEADERS: &[&str] = &["accept", "content-type", "user-agent"];

/// All known secrets.
pub(crate) fn known_secrets(loaded: &LoadedConfig, process: &ProcessEnv<'_>) -> Vec<KnownSecret> {
    let settings = &loaded.settings;
    let mut found = from_environment(process);
    if let Some(home) = &settings.hermes_home {
        found.extend(from_hermes(home, process.env));
    }
    for (name, entry) in &settings.agents {
        let env = match &entry.backend {
            Backend::Command(command) => &command.env.0,
            Backend::Acp(acp) => &acp.env.0,
            Backend::Echo | Backend::Noop | Backend::OpenAi(_) | Backend::Hermes(_) | Backend::Worker(_) => {
                continue;
            }
        };
        let named = |variable: &str| format!("agents.{name}.env.{variable}");
        found.extend(
            env.iter()
                .filter_map(|(variable, value)| guess(named(variable), variable, value)),
        );
    }
    let keys = relay::agent_keys(settings, process.env);
    found.extend(keys.map(|(name, value)| KnownSecret::new(format!("agents.{name} (its key)"), value)));
    let keys = relay::voice_keys(settings, process.env);
    found.extend(keys.map(|(section, value)| KnownSecret::new(format!("{section} (its key)"), value)));
    for (name, target) in &settings.notify.targets {
        for (what, value) in target.kind().secrets(secret_sources(process.env)) {
            let label = format!("notify.targets.{name} ({what})");
            let whole = KnownSecret::new(label, value.expose_secret().trim());
            found.extend(after_scheme(&whole));
            found.push(whole);
        }
    }
    if let Some(receiver) = &settings.serve.receiver {
        let files = [
            ("serve.receiver.hmac_secret_file", &receiver.hmac_secret_file),
            ("serve.receiver.bearer_file", &receiver.bearer_file),
        ];
        let read = files.into_iter();
        found.extend(read.filter_map(|(key, file)| {
            let value = secret::read(file.as_deref()?).ok()?;
            Some(KnownSecret::new(key, value))
        }));
    }
    if let Some(list) = &settings.telemetry.headers {
        found.extend(headers("telemetry.headers", list));
    }
    if let Some(url) = &settings.connector.url {
        found.extend(url_password("connector.url", url));
    }
    // Last, because the last of two names for one value is reported.
    let own = settings.secrets();
    found.extend(own.map(|(name, value)| KnownSecret::new(name, value.clone())));
    found
}

/// The secrets that are known without settings: from the environment and from Hermes' home.
pub(crate) fn known_without_settings(process: &ProcessEnv<'_>) -> Vec<KnownSecret> {
    let non_empty = |name: &str| (process.env)(name).filter(|value| !value.trim().is_empty());
    let home = non_empty("HERMES_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&non_empty("HOME")?).join(".hermes")));
    let mut found = from_environment(process);
    found.extend(home.into_iter().flat_map(|home| from_hermes(&home, process.env)));
    found
}

fn from_environment(process: &ProcessEnv<'_>) -> Vec<KnownSecret> {
    let mut found = Vec::new();
    for (variable, value) in process.base.vars() {
        let (Some(variable), Some(value)) = (variable.to_str(), value.to_str()) else {
            continue;
        };
        found.extend(guess(variable.to_owned(), variable, value));
        let upper = variable.to_ascii_uppercase();
        if ["_PROXY", "RELAY_URL"].iter().any(|end| upper.ends_with(end)) {
            found.extend(url_password(variable, value));
        }
        if upper.starts_with("OTEL_") && upper.ends_with("_HEADERS") {
            found.extend(headers(variable, &value.into()));
        }
    }
    found
}

fn from_hermes(home: &Path, env: Environment<'_>) -> Vec<KnownSecret> {
    let mut found = Vec::new();
    let dotenv = Dotenv::read(&home.join(".env"), env)
        .ok()
        .flatten()
        .unwrap_or_default();
    for name in dotenv.keys() {
        let value = dotenv.value(name).unwrap_or_default();
        found.extend(guess(format!("{name} in .env"), name, value));
    }
    if let Some(login) = login(&home.join(LOGIN_FILE)) {
        from_login("", &login, MAX_DEPTH, &mut found);
    }
    found
}

fn login(path: &Path) -> Option<Value> {
    let mut text = Zeroizing::new(Vec::new());
    let file = File::open(path).ok()?;
    file.take(MAX_LOGIN_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn from_login(name: &str, value: &Value, depth: usize, found: &mut Vec<KnownSecret>) {
    match value {
        Value::String(text) => found.extend(guess(format!("{name} in {LOGIN_FILE}"), name, text)),
        Value::Object(fields) if depth > 0 => {
            for (name, value) in fields {
                from_login(name, value, depth - 1, found);
            }
        }
        Value::Array(list) if depth > 0 => {
            for value in list {
                from_login(name, value, depth - 1, found);
            }
        }
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether this is a path: of an existing file, or in the form of one. A key in base64 may also start with a slash and
/// contain another.
fn is_path(value: &str) -> bool {
    if value.starts_with("~/") || value.starts_with("./") || value.starts_with("../") {
        return true;
    }
    let Some(rest) = value.strip_prefix('/') else {
        return false;
    };
    let first = rest.split('/').next().unwrap_or_default();
    (ROOTS.contains(&first) && first != rest) || Path::new(value).exists()
}

/// The value of a name that sounds like a secret, unless it is a path or too short.
fn guess(label: String, name: &str, value: &str) -> Option<KnownSecret> {
    let value = value.trim();
    let is_secret = value.len() >= MIN_GUESSED && is_secret_name(name) && !is_path(value);
    is_secret.then(|| KnownSecret::new(label, value))
}

/// The password in a URL, as written and decoded.
fn url_password(label: &str, url: &str) -> Vec<KnownSecret> {
    let password = || {
        let (_, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        // A password that should have been encoded may contain what ends an authority.
        let (login, _) = authority.rsplit_once('@').or_else(|| rest.rsplit_once('@'))?;
        login.split_once(':').map(|(_, password)| password)
    };
    let label = format!("{label} (its password)");
    password().map_or_else(Vec::new, |password| with_decoded(&label, password))
}

/// The value of each header in `name=value,name=value`, and the part after its authentication scheme.
fn headers(label: &str, list: &SecretString) -> Vec<KnownSecret> {
    let pairs = list.expose_secret().split(',');
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    let mut found = Vec::new();
    for (name, value) in pairs.map(|(name, value)| (name.trim(), value.trim())) {
        if PUBLIC_HEADERS
            .iter()
            .any(|public| name.eq_ignore_ascii_case(public))
        {
            continue;
        }
        for whole in with_decoded(&format!("{label} ({name})"), value) {
            found.extend(after_scheme(&whole));
            found.push(whole);
        }
    }
    found
}

fn after_scheme(header: &KnownSecret) -> Option<KnownSecret> {
    let (scheme, rest) = header.value.expose_secret().split_once(' ')?;
    let is_scheme = ["bearer", "basic"].contains(&scheme.to_ascii_lowercase().as_str());
    is_scheme.then(|| KnownSecret::new(header.name.clone(), rest.trim()))
}

/// A value as written, and decoded if that differs: a line may contain either.
fn with_decoded(label: &str, written: &str) -> Vec<KnownSecret> {
    let plain = percent_decoded(written);
    let mut forms = vec![KnownSecret::new(label, written)];
    forms.extend((*plain != written).then(|| KnownSecret::new(label, plain.as_str())));
    forms
}

/// The text without percent-encoding; invalid escapes stay as they are.
fn percent_decoded(written: &str) -> Zeroizing<String> {
    let bytes = written.as_bytes();
    let mut plain = Zeroizing::new(Vec::with_capacity(bytes.len()));
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    Zeroizing::new(String::from_utf8_lossy(&plain).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::agent::child::BaseEnv;
    use crate::config::{self, Flags, Sources};

    fn private(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn every_source_is_read() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        private(&at("secret"), "gateway-secret\n");
        private(&at("key"), "key-of-the-file\n");
        private(&at("hook"), "key-of-the-hook\n");
        private(&at("receiver.hmac"), "key-of-the-receiver\n");
        private(&at("receiver.key"), "bearer-of-the-receiver\n");
        private(
            &at("relay.yaml"),
            "connector: {secret_file: secret, url: 'wss://me:pass-of-url@c.example/relay'}\ntelemetry: {otlp_endpoint: \
             'http://127.0.0.1:4318'}\nagent: a\nagents:\n  a: {kind: openai, base_url: 'http://h/v1', model: m, \
             api_key_file: key}\n  b: {kind: hermes, api_key_env: MODEL}\n  c: {kind: command, argv: [cat], env: \
             {MY_TOKEN: token-of-command, LANG: not-a-secret-at-all}}\nnotify: {targets: {h: {kind: webhook, agents: {cc: {url: \
             'https://h.example/'}}, auth: Bearer auth-of-hook, hmac_secret_file: hook}}}\nserve: {http: '127.0.0.1:0', receiver: \
             {hmac_secret_file: receiver.hmac, bearer_file: receiver.key}}\n",
        );
        private(
            &at(".env"),
            "GATEWAY_RELAY_DELIVERY_KEY=delivery-key\nSOME_API_KEY=other-programs-key\nSOME_KEY_FILE=/etc/key-of-some\n",
        );
        private(
            &at("auth.json"),
            r#"{"providers": [{"nous": {"access_token": "the-portals-token", "token_type": "not-a-secret-at-all"}}]}"#,
        );
        let vars = BTreeMap::from([
            ("HERMES_HOME", home.path().to_str().unwrap()),
            ("MODEL", "key-of-variable"),
            ("GATEWAY_RELAY_ENROLL_TOKEN", "token-of-enrolment"),
            ("GATEWAY_RELAY_IDP_CLIENT_SECRET", "secret-of-client"),
            ("HTTPS_PROXY", "http://me:pass-of-proxy@proxy:3128"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20bearer-of-collector,x-key=key-of-collector",
            ),
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "x-key=key-of-logs"),
            ("SLASHED_TOKEN", "/q83vEjRWeJq83vEjRWeJ/8="),
            ("PLACE_TOKEN", "/etc/key-of-some"),
            ("SHORT_TOKEN", "disabled"),
            ("GREETING", "not-a-secret-at-all"),
        ]);
        let env = |name: &str| vars.get(name).map(|value| (*value).to_owned());
        let loaded = config::load(&Sources {
            flags: Flags::default(),
            env: &env,
        });
        let process = ProcessEnv {
            env: &env,
            base: BaseEnv::new(vars.iter().map(|(name, value)| (name.into(), value.into()))),
        };
        let early = known_without_settings(&process);
        let early: Vec<_> = early.iter().map(|known| known.value.expose_secret()).collect();
        for secret in [
            "delivery-key",
            "secret-of-client",
            "the-portals-token",
            "pass-of-proxy",
        ] {
            assert!(early.contains(&secret), "{secret}");
        }
        let found = known_secrets(&loaded.unwrap(), &process);
        let values: Vec<_> = found.iter().map(|known| known.value.expose_secret()).collect();
        for secret in [
            "gateway-secret",
            "delivery-key",
            "secret-of-client",
            "key-of-the-file",
            "key-of-variable",
            "token-of-command",
            "other-programs-key",
            "the-portals-token",
            "token-of-enrolment",
            "pass-of-proxy",
            "pass-of-url",
            "authorization=Bearer%20bearer-of-collector,x-key=key-of-collector",
            "bearer-of-collector",
            "key-of-collector",
            "key-of-logs",
            "Bearer auth-of-hook",
            "auth-of-hook",
            "key-of-the-hook",
            "key-of-the-receiver",
            "bearer-of-the-receiver",
            "/q83vEjRWeJq83vEjRWeJ/8=",
        ] {
            assert!(values.contains(&secret), "{secret}");
        }
        for open in ["not-a-secret-at-all", "disabled", "/etc/key-of-some"] {
            assert!(!values.contains(&open), "{open}");
        }
        let shown = format!("{found:?}");
        assert!(!values.iter().any(|value| shown.contains(value)), "{shown}");
    }

    fn values(found: &[KnownSecret]) -> Vec<&str> {
        found.iter().map(|known| known.value.expose_secret()).collect()
    }

    #[test]
    fn the_password_of_a_url_is_found_as_written_and_decoded() {
        let found = |url: &str| url_password("X", url);
        assert_eq!(values(&found("http://me:p%40ss@h:1/x")), ["p%40ss", "p@ss"]);
        assert_eq!(values(&found("http://me:pass@h/?mail=a@b")), ["pass"]);
        assert_eq!(values(&found("http://me:pa/ss@h")), ["pa/ss"]);
        assert_eq!(values(&found("http://me:50%@h")), ["50%"]);
        for none in ["", "h:1", "http://h:1/x", "http://me@h"] {
            assert!(found(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn each_header_is_found_with_and_without_its_scheme() {
        let list = "authorization=Bearer%20abc%3Ddef, x-key=hunter2=,content-type=application/json".into();
        let found = headers("telemetry.headers", &list);
        assert_eq!(
            values(&found),
            ["Bearer%20abc%3Ddef", "abc=def", "Bearer abc=def", "hunter2="]
        );
        assert_eq!(found[0].name, "telemetry.headers (authorization)");
        assert!(headers("h", &"no pairs, at all".into()).is_empty());
    }
}
