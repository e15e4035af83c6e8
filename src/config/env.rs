//! The environment variables, and the format of identities in them.
//!
//! The process environment comes in as a closure.

use serde_json::Value;

use super::settings::{BotIdentity, Settings};
use crate::setting::{self, Variable, own};

pub(super) const SECRET: &str = "GATEWAY_RELAY_SECRET";
pub(super) const SECRET_FILE: &str = "GATEWAY_RELAY_SECRET_FILE";
/// How the upgrade is authenticated: `token`, or `raw`, which is not supported.
pub(super) const AUTH_MODE: &str = "GATEWAY_RELAY_AUTH_MODE";
pub(super) const PLATFORMS: &str = "GATEWAY_RELAY_PLATFORMS";
pub(super) const BOT_IDS: &str = "GATEWAY_RELAY_BOT_IDS";
pub(super) const ROUTE_KEYS: &str = "GATEWAY_RELAY_ROUTE_KEYS";
pub(super) const IDP_CLIENT_SECRET: &str = "GATEWAY_RELAY_IDP_CLIENT_SECRET";
/// The token of a Telegram bot; no agent sees it.
pub const TELEGRAM_BOT_TOKEN: &str = "TELEGRAM_BOT_TOKEN";
/// The token of a Discord bot; no agent sees it.
pub const DISCORD_BOT_TOKEN: &str = "DISCORD_BOT_TOKEN";
/// The application of this machine, set by the hosting platform.
pub const FLY_APP_NAME: &str = "FLY_APP_NAME";
/// The id of this machine, set by the hosting platform.
pub const FLY_MACHINE_ID: &str = "FLY_MACHINE_ID";
pub(super) const HERMES_HOME: &str = "HERMES_HOME";
pub(super) const HOME: &str = "HOME";
pub(super) const CONFIG: &str = "HERMES_RELAY_CONFIG";
pub(super) const RELAY_STATE_DIR: &str = "HERMES_RELAY_STATE_DIR";
/// What a relay tells its children: where its journal is, and its settings file. Nothing of it is secret.
pub const PARENT_STATE_DIR: &str = "RELAY_STATE_DIR";
/// See [`PARENT_STATE_DIR`].
pub const PARENT_CONFIG: &str = "RELAY_CONFIG";
pub(super) const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
pub(super) const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// Suffix of the variable that allows messages of other bots on a platform.
const ALLOW_BOTS: &str = "_ALLOW_BOTS";
/// Suffix of the variable with the people of a platform.
const ALLOWED_USERS: &str = "_ALLOWED_USERS";
/// Suffix of the variable that lets everybody on a platform in.
const ALLOW_ALL_USERS: &str = "_ALLOW_ALL_USERS";

/// The variables that set no setting directly.
const OTHERS: [Variable; 13] = [
    own(
        FLY_APP_NAME,
        "with FLY_MACHINE_ID: the machine that `sleep.action: suspend` suspends",
    ),
    own(FLY_MACHINE_ID, "see FLY_APP_NAME"),
    own(HOME, "home directory"),
    own(
        CONFIG,
        "settings file; default relay.yaml in Hermes' home, then /etc/hermes-relay/config.yaml",
    ),
    own(
        PARENT_STATE_DIR,
        "set by the relay for its agents' processes: its state directory, by which commands in their shells find it",
    ),
    own(PARENT_CONFIG, "the same for its settings file"),
    own(
        "GATEWAY_RELAY_ENROLL_TOKEN",
        "one-time token for `enroll`, instead of --token",
    ),
    own(
        "HTTPS_PROXY",
        "proxy for https and wss addresses; never for this machine's own; as https_proxy, too",
    ),
    own(
        "HTTP_PROXY",
        "the same for http and ws addresses; as http_proxy, too",
    ),
    own(
        "ALL_PROXY",
        "proxy where the two before name none; as all_proxy, too",
    ),
    own(
        "NO_PROXY",
        "hosts without a proxy, separated by commas; as no_proxy, too",
    ),
    own("RUST_LOG", "filter of the log; overrides `log.level`"),
    own("NO_COLOR", "no colours in a terminal, if it is set to anything"),
];

/// All variables except those of platforms, such as `<PLATFORM>_ALLOW_BOTS`, each with the dotted key of its setting.
pub(super) fn variables() -> Vec<(Option<String>, Variable)> {
    let mut variables = Vec::new();
    setting::walk(Settings::FIELDS, "", &mut |key, field| {
        variables.extend(
            field
                .variables
                .iter()
                .map(|variable| (Some(key.to_owned()), *variable)),
        );
    });
    variables.extend(OTHERS.map(|variable| (None, variable)));
    variables
}

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
    [ALLOWED_USERS, ALLOW_ALL_USERS].map(|suffix| format!("{prefix}{suffix}"))
}

/// Whether a text names a variable that says who may write.
pub(super) fn names_rule(text: &str) -> bool {
    [ALLOWED_USERS, ALLOW_ALL_USERS, ALLOW_BOTS]
        .iter()
        .any(|suffix| text.contains(suffix))
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
    fn each_variable_is_declared_once() {
        let variables = variables();
        let names: BTreeSet<&str> = variables.iter().map(|(_, variable)| variable.name).collect();
        assert_eq!(names.len(), variables.len());
        assert!(names.len() > 30, "{names:?}");
    }

    #[test]
    fn the_allow_bots_variable_has_the_platform_in_capitals() {
        assert_eq!(allow_bots_variable("whatsapp_cloud"), "WHATSAPP_CLOUD_ALLOW_BOTS");
    }
}
