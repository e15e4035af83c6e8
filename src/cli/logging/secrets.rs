//! The secrets of this set-up, as far as they can be known: what the settings hold, what agents are given, and what the
//! environment, Hermes' `.env` and its stored login hold under the name of a secret.
//!
//! They are gathered to be hidden and for nothing else. What cannot be read is left out: then there is less to hide.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde_json::Value;
use zeroize::Zeroizing;

use super::names::is_secret_name;
use super::veil::Known;
use super::within;
use crate::cli::{Environment, Surround};
use crate::config::dotenv::Dotenv;
use crate::config::{Backend, Loaded};
use crate::relay::hiring;

/// Shorter values of names that only sound like a secret are left: they would hide ordinary words.
const MIN_GUESSED: usize = 12;
/// Folders that an absolute path begins with, on the systems that this runs on.
const ROOTS: &[&str] = &[
    "app", "bin", "boot", "data", "dev", "etc", "home", "lib", "media", "mnt", "opt", "private", "proc",
    "root", "run", "sbin", "secrets", "srv", "sys", "tmp", "usr", "var", "Library", "Users", "Volumes",
];
/// Where Hermes keeps its login.
const LOGIN: &str = "auth.json";
/// The largest login that is read.
const MAX_LOGIN: u64 = 1024 * 1024;
/// How deep a login is looked into.
const MAX_DEPTH: usize = 16;

/// Every secret of this set-up that can be known.
pub(in crate::cli) fn known(loaded: &Loaded, surround: &Surround<'_>) -> Vec<Known> {
    let settings = &loaded.settings;
    let mut found = around(surround);
    if let Some(home) = &settings.hermes_home {
        found.extend(of_hermes(home, surround.env));
    }
    for (name, entry) in &settings.agents {
        let env = match &entry.backend {
            Backend::Command(command) => &command.env.0,
            Backend::Acp(acp) => &acp.env.0,
            Backend::Echo | Backend::Noop | Backend::OpenAi(_) | Backend::Hermes(_) => continue,
        };
        let named = |variable: &str| format!("agents.{name}.env.{variable}");
        found.extend(
            env.iter()
                .filter_map(|(variable, value)| guessed(named(variable), variable, value)),
        );
    }
    found.extend(hiring::keys(settings, surround.env).map(|(name, value)| Known {
        name: format!("agents.{name} (its key)"),
        value,
    }));
    if let Some(headers) = &settings.telemetry.headers {
        found.extend(within::headers("telemetry.headers", headers));
    }
    if let Some(url) = &settings.connector.url {
        found.extend(within::password("connector.url", url));
    }
    // Last, because of two names for one value the last one is told.
    found.extend(settings.secrets().map(|(name, value)| Known {
        name: name.to_owned(),
        value: value.clone(),
    }));
    found
}

/// What can be known without settings: from the environment, and from Hermes' home where that says it is.
pub(in crate::cli) fn without_settings(surround: &Surround<'_>) -> Vec<Known> {
    let filled = |name: &str| (surround.env)(name).filter(|value| !value.trim().is_empty());
    let home = filled("HERMES_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&filled("HOME")?).join(".hermes")));
    let mut found = around(surround);
    found.extend(home.into_iter().flat_map(|home| of_hermes(&home, surround.env)));
    found
}

fn around(surround: &Surround<'_>) -> Vec<Known> {
    let mut found = Vec::new();
    for (variable, value) in surround.base.vars() {
        let (Some(variable), Some(value)) = (variable.to_str(), value.to_str()) else {
            continue;
        };
        found.extend(guessed(variable.to_owned(), variable, value));
        let upper = variable.to_ascii_uppercase();
        if ["_PROXY", "RELAY_URL"].iter().any(|end| upper.ends_with(end)) {
            found.extend(within::password(variable, value));
        }
        if upper.starts_with("OTEL_") && upper.ends_with("_HEADERS") {
            found.extend(within::headers(variable, &value.into()));
        }
    }
    found
}

fn of_hermes(home: &Path, env: Environment<'_>) -> Vec<Known> {
    let mut found = Vec::new();
    let dotenv = Dotenv::read(&home.join(".env"), env)
        .ok()
        .flatten()
        .unwrap_or_default();
    for name in dotenv.keys() {
        let value = dotenv.value(name).unwrap_or_default();
        found.extend(guessed(format!("{name} in .env"), name, value));
    }
    if let Some(login) = login(&home.join(LOGIN)) {
        of_login("", &login, MAX_DEPTH, &mut found);
    }
    found
}

fn login(path: &Path) -> Option<Value> {
    let mut text = Zeroizing::new(Vec::new());
    let file = File::open(path).ok()?;
    file.take(MAX_LOGIN).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn of_login(name: &str, value: &Value, depth: usize, found: &mut Vec<Known>) {
    match value {
        Value::String(text) => found.extend(guessed(format!("{name} in {LOGIN}"), name, text)),
        Value::Object(fields) if depth > 0 => {
            for (name, value) in fields {
                of_login(name, value, depth - 1, found);
            }
        }
        Value::Array(list) if depth > 0 => {
            for value in list {
                of_login(name, value, depth - 1, found);
            }
        }
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether this is the place of a file: one that is there, or something that is written as one. A key in base64 may
/// begin with a slash as well, and hold another one further on.
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

/// A value whose name sounds like a secret, unless it is a path or too short to be one.
fn guessed(called: String, name: &str, value: &str) -> Option<Known> {
    let value = value.trim();
    let fits = value.len() >= MIN_GUESSED && is_secret_name(name) && !is_path(value);
    fits.then(|| Known {
        name: called,
        value: SecretString::from(value),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::agent::child::BaseEnv;
    use crate::config::{self, Flags, Sources};

    fn private(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn every_source_of_secrets_is_known() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        private(&at("secret"), "gateway-secret\n");
        private(&at("key"), "key-of-the-file\n");
        private(
            &at("relay.yaml"),
            "connector: {secret_file: secret, url: 'wss://me:pass-of-url@c.example/relay'}\ntelemetry: {otlp_endpoint: \
             'http://127.0.0.1:4318'}\nagent: a\nagents:\n  a: {kind: openai, base_url: 'http://h/v1', model: m, \
             api_key_file: key}\n  b: {kind: hermes, api_key_env: MODEL}\n  c: {kind: command, argv: [cat], env: \
             {MY_TOKEN: token-of-command, LANG: not-a-secret-at-all}}\n",
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
        let surround = Surround {
            env: &env,
            base: BaseEnv::new(vars.iter().map(|(name, value)| (name.into(), value.into()))),
        };
        let early = without_settings(&surround);
        let early: Vec<_> = early.iter().map(|known| known.value.expose_secret()).collect();
        for secret in [
            "delivery-key",
            "secret-of-client",
            "the-portals-token",
            "pass-of-proxy",
        ] {
            assert!(early.contains(&secret), "{secret}");
        }
        let found = known(&loaded.unwrap(), &surround);
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
}
