//! The environment variables, and the format of identities in them.
//!
//! The process environment comes in as a closure.

use serde_json::Value;

use super::settings::BotIdentity;

/// An environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Dotted key of its setting; `None` if it sets none directly.
    pub key: Option<&'static str>,
    /// Whether Hermes reads it too, so that Hermes' `.env` may contain it.
    pub shared: bool,
    /// Description.
    pub about: &'static str,
}

const fn shared(name: &'static str, key: &'static str, about: &'static str) -> Variable {
    Variable {
        name,
        key: Some(key),
        shared: true,
        about,
    }
}

const fn own(name: &'static str, key: Option<&'static str>, about: &'static str) -> Variable {
    Variable {
        name,
        key,
        shared: false,
        about,
    }
}

pub(super) const URL: &str = "GATEWAY_RELAY_URL";
pub(super) const ID: &str = "GATEWAY_RELAY_ID";
pub(super) const SECRET: &str = "GATEWAY_RELAY_SECRET";
pub(super) const SECRET_FILE: &str = "GATEWAY_RELAY_SECRET_FILE";
pub(super) const DELIVERY_KEY: &str = "GATEWAY_RELAY_DELIVERY_KEY";
pub(super) const PLATFORMS: &str = "GATEWAY_RELAY_PLATFORMS";
pub(super) const BOT_IDS: &str = "GATEWAY_RELAY_BOT_IDS";
pub(super) const ENDPOINT: &str = "GATEWAY_RELAY_ENDPOINT";
pub(super) const ROUTE_KEYS: &str = "GATEWAY_RELAY_ROUTE_KEYS";
pub(super) const INSTANCE_ID: &str = "GATEWAY_RELAY_INSTANCE_ID";
pub(super) const WAKE_URL: &str = "GATEWAY_RELAY_WAKE_URL";
pub(super) const SLEEP_URL: &str = "GATEWAY_RELAY_SLEEP_URL";
pub(super) const DISPLAY_NAME: &str = "GATEWAY_RELAY_DISPLAY_NAME";
pub(super) const IDP_TOKEN_URL: &str = "GATEWAY_RELAY_IDP_TOKEN_URL";
pub(super) const IDP_CLIENT_ID: &str = "GATEWAY_RELAY_IDP_CLIENT_ID";
pub(super) const IDP_CLIENT_SECRET: &str = "GATEWAY_RELAY_IDP_CLIENT_SECRET";
pub(super) const IDP_SCOPE: &str = "GATEWAY_RELAY_IDP_SCOPE";
pub(super) const BUSY_MODE: &str = "HERMES_GATEWAY_BUSY_INPUT_MODE";
pub(super) const SCALE_TO_ZERO: &str = "HERMES_SCALE_TO_ZERO";
/// The token of a Telegram bot; no agent sees it.
pub const TELEGRAM_BOT_TOKEN: &str = "TELEGRAM_BOT_TOKEN";
pub(super) const TIMEZONE: &str = "HERMES_TIMEZONE";
pub(super) const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
pub(super) const OTLP_TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
pub(super) const OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
pub(super) const OTLP_TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
pub(super) const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// The application of this machine, set by the hosting platform.
pub const FLY_APP_NAME: &str = "FLY_APP_NAME";
/// The id of this machine, set by the hosting platform.
pub const FLY_MACHINE_ID: &str = "FLY_MACHINE_ID";
pub(super) const HERMES_HOME: &str = "HERMES_HOME";
pub(super) const HOME: &str = "HOME";
pub(super) const CONFIG: &str = "HERMES_RELAY_CONFIG";
pub(super) const RELAY_STATE_DIR: &str = "HERMES_RELAY_STATE_DIR";
pub(super) const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
pub(super) const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// Suffix of the variable that allows messages of other bots on a platform.
const ALLOW_BOTS: &str = "_ALLOW_BOTS";

/// All variables except `<PLATFORM>_ALLOW_BOTS`.
pub const VARIABLES: &[Variable] = &[
    shared(URL, "connector.url", "connector URL"),
    shared(ID, "connector.gateway_id", "gateway id"),
    shared(SECRET, "connector.secret", "gateway secret"),
    own(
        SECRET_FILE,
        Some("connector.secret"),
        "file with the gateway secret",
    ),
    shared(
        DELIVERY_KEY,
        "connector.delivery_key",
        "delivery key, issued by `enroll`",
    ),
    shared(
        PLATFORMS,
        "connector.identities",
        "platforms, separated by commas",
    ),
    shared(
        BOT_IDS,
        "connector.identities",
        "JSON: platform to {botId, username}",
    ),
    shared(
        ENDPOINT,
        "connector.endpoint",
        "inbound URL of this gateway; connectors no longer use it",
    ),
    shared(
        ROUTE_KEYS,
        "connector.route_keys",
        "route keys, separated by commas",
    ),
    shared(INSTANCE_ID, "connector.instance_id", "id of this instance"),
    shared(
        WAKE_URL,
        "connector.wake_url",
        "URL that the connector calls to wake the relay",
    ),
    shared(
        SLEEP_URL,
        "connector.sleep_url",
        "URL that the relay calls to be suspended",
    ),
    shared(DISPLAY_NAME, "connector.display_name", "display name"),
    shared(
        IDP_TOKEN_URL,
        "idp.token_url",
        "token endpoint of the IdP; overrides the IdP settings of all files",
    ),
    shared(IDP_CLIENT_ID, "idp.client_id", "client id at the IdP"),
    shared(IDP_CLIENT_SECRET, "idp.client_secret", "client secret at the IdP"),
    shared(IDP_SCOPE, "idp.scope", "scope requested from the IdP"),
    shared(
        TELEGRAM_BOT_TOKEN,
        "direct.telegram.token",
        "token of the bot for `direct.telegram`",
    ),
    shared(BUSY_MODE, "sessions.busy_mode", "queue, interrupt or steer"),
    shared(
        SCALE_TO_ZERO,
        "sleep.enabled",
        "1, true, yes or on: sleep when idle",
    ),
    shared(
        TIMEZONE,
        "cron.timezone",
        "time zone of schedules, such as Europe/Berlin",
    ),
    own(
        FLY_APP_NAME,
        None,
        "with FLY_MACHINE_ID: the machine that `sleep.action: suspend` suspends",
    ),
    own(FLY_MACHINE_ID, None, "see FLY_APP_NAME"),
    own(
        OTLP_ENDPOINT,
        Some("telemetry.otlp_endpoint"),
        "collector URL; traces go to /v1/traces below it",
    ),
    own(
        OTLP_TRACES_ENDPOINT,
        Some("telemetry.otlp_traces_endpoint"),
        "full URL for traces",
    ),
    own(
        OTLP_HEADERS,
        Some("telemetry.headers"),
        "headers for the collector: name=value, separated by commas, percent-encoded",
    ),
    own(
        OTLP_TRACES_HEADERS,
        Some("telemetry.headers"),
        "the same for traces only; has precedence",
    ),
    own(
        OTEL_SERVICE_NAME,
        Some("telemetry.service_name"),
        "service name in traces",
    ),
    own(
        HERMES_HOME,
        Some("hermes_home"),
        "Hermes' home; default ~/.hermes",
    ),
    own(HOME, None, "home directory"),
    own(
        CONFIG,
        None,
        "settings file; default relay.yaml in Hermes' home, then /etc/hermes-relay/config.yaml",
    ),
    own(RELAY_STATE_DIR, Some("state_dir"), "directory of the journal"),
    own(
        STATE_DIRECTORY,
        Some("state_dir"),
        "the same, set by systemd: the first of a colon-separated list",
    ),
    own(
        CREDENTIALS_DIRECTORY,
        Some("connector.secret"),
        "systemd's credentials; `relay-secret` is the gateway secret",
    ),
];

/// Variables of older versions of Hermes, and their replacements.
pub(super) const RETIRED: &[(&str, &str)] = &[
    ("GATEWAY_RELAY_PLATFORM", PLATFORMS),
    ("GATEWAY_RELAY_BOT_ID", BOT_IDS),
];

/// The variable that allows messages of other bots on `platform`.
pub fn allow_bots_variable(platform: &str) -> String {
    format!("{}{ALLOW_BOTS}", platform.to_uppercase())
}

/// Hermes' variables that name the people of a platform, and that let everybody on it in; `*` for every platform.
pub fn allowed_users_variables(platform: &str) -> [String; 2] {
    let prefix = match platform {
        "*" => "GATEWAY".to_owned(),
        platform => platform.to_uppercase(),
    };
    [
        format!("{prefix}_ALLOWED_USERS"),
        format!("{prefix}_ALLOW_ALL_USERS"),
    ]
}

/// Parses a comma-separated list; drops empty items.
pub fn comma_list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Parses the identities of the two variables; never empty.
///
/// Without a platform it is the single identity `relay`. A platform that is not in `bot_ids` has an empty bot id.
pub fn identities(platforms: Option<&str>, bot_ids: Option<&str>) -> Vec<BotIdentity> {
    let known = bot_ids.and_then(bot_id_map).unwrap_or_default();
    let named: Vec<BotIdentity> = comma_list(platforms.unwrap_or_default())
        .into_iter()
        .map(|platform| {
            let entry = known.get(&platform);
            let bot_id = entry
                .and_then(|entry| entry.get("botId"))
                .map(plain)
                .unwrap_or_default();
            let username = entry
                .and_then(|entry| entry.get("username"))
                .map(plain)
                .and_then(|name| bare_name(&name));
            BotIdentity {
                platform,
                bot_id,
                username,
            }
        })
        .collect();
    if named.is_empty() {
        vec![BotIdentity::new("relay", "")]
    } else {
        named
    }
}

/// Parses `GATEWAY_RELAY_BOT_IDS`; `None` if it is not an object.
pub(super) fn bot_id_map(text: &str) -> Option<serde_json::Map<String, Value>> {
    serde_json::from_str(text).ok()
}

/// A user name without its leading `@`; `None` if it is empty.
pub(super) fn bare_name(name: &str) -> Option<String> {
    let name = name.trim().trim_start_matches('@');
    (!name.is_empty()).then(|| name.to_owned())
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn identities_match_the_vectors() {
        let vectors: Value = serde_json::from_str(include_str!("../../tests/vectors/url-env.json")).unwrap();
        let cases = vectors["identities"].as_array().unwrap();
        assert!(cases.len() >= 12);
        for case in cases {
            let read = identities(case[PLATFORMS].as_str(), case[BOT_IDS].as_str());
            let pairs: Vec<(&str, &str)> = read
                .iter()
                .map(|identity| (identity.platform.as_str(), identity.bot_id.as_str()))
                .collect();
            let wanted: Vec<(&str, &str)> = case["identities"]
                .as_array()
                .unwrap()
                .iter()
                // Python's text for a null id is a bug of the reference.
                .map(|pair| {
                    (
                        pair[0].as_str().unwrap(),
                        pair[1].as_str().filter(|id| *id != "None").unwrap_or(""),
                    )
                })
                .collect();
            assert_eq!(pairs, wanted, "{case}");
            let telegram = read.iter().find(|identity| identity.platform == "telegram");
            assert_eq!(
                telegram.and_then(|identity| identity.username.as_deref()),
                case["telegram_username"].as_str(),
                "{case}"
            );
        }
    }

    #[test]
    fn a_null_bot_id_is_an_empty_one() {
        let read = identities(
            Some("discord"),
            Some(r#"{"discord":{"botId":null,"username":null}}"#),
        );
        assert_eq!(read, [BotIdentity::new("discord", "")]);
    }

    #[test]
    fn each_variable_is_unique_and_sets_an_existing_key() {
        let names: BTreeSet<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
        assert_eq!(names.len(), VARIABLES.len());
        let file = super::super::file::known_keys();
        for key in VARIABLES.iter().filter_map(|variable| variable.key) {
            let is_not_in_file = matches!(
                key,
                "connector.secret"
                    | "connector.delivery_key"
                    | "idp.client_secret"
                    | "telemetry.headers"
                    | "direct.telegram.token"
                    | "hermes_home"
            );
            assert!(is_not_in_file || file.iter().any(|known| known == key), "{key}");
        }
    }

    #[test]
    fn the_allow_bots_variable_has_the_platform_in_capitals() {
        assert_eq!(allow_bots_variable("whatsapp_cloud"), "WHATSAPP_CLOUD_ALLOW_BOTS");
    }
}
