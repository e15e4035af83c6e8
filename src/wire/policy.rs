//! The relevance policy: which messages are delivered to the agent, derived from settings.

use serde::Serialize;
use serde_json::Value;

use super::scalar::{is_truthy, text_of};

/// The body of `POST /relay/policy`; the four fields and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelevancePolicy {
    /// The platform it is for.
    pub platform: String,
    /// Messages must mention or answer the bot.
    pub require_address: bool,
    /// Chats where they need not.
    pub free_response_scopes: Vec<String>,
    /// Messages of other bots count.
    pub allow_other_bots: bool,
}

impl RelevancePolicy {
    /// Derives the policy of one platform from Hermes' settings; `None` if nothing is set, so that the connector's default
    /// applies. An explicit `require_mention: false` is declared.
    ///
    /// The first of `<platform>:`, `gateway.platforms.<platform>:` and `platforms.<platform>:` that is a
    /// mapping is used whole. `allow_bots` is the value of `<PLATFORM>_ALLOW_BOTS`.
    pub fn project(config: &Value, platform: &str, allow_bots: Option<&str>) -> Option<Self> {
        if platform.is_empty() || platform == "relay" {
            return None;
        }
        let block = [
            config.get(platform),
            config
                .get("gateway")
                .and_then(|g| g.get("platforms")?.get(platform)),
            config.get("platforms").and_then(|p| p.get(platform)),
        ]
        .into_iter()
        .flatten()
        .find_map(Value::as_object);
        let in_block = |key: &str| block.and_then(|block| block.get(key));
        let top = |key: &str| config.get(key).filter(|value| !value.is_null());

        let require_mention = in_block("require_mention")
            .or_else(|| top("require_mention"))
            .filter(|value| !value.is_null());
        let free_response = in_block("free_response_channels")
            .filter(|value| !value.is_null())
            .or_else(|| top("free_response_channels"));
        let free_response_scopes = free_response.map(scopes).unwrap_or_default();
        let allow_other_bots = allow_bots
            .is_some_and(|value| matches!(value.trim().to_lowercase().as_str(), "mentions" | "all"));
        if require_mention.is_none() && free_response_scopes.is_empty() && !allow_other_bots {
            return None;
        }
        Some(Self {
            platform: platform.to_owned(),
            require_address: require_mention.is_some_and(is_truthy),
            free_response_scopes,
            allow_other_bots,
        })
    }

    /// The environment variable that admits other bots on a platform.
    pub fn allow_bots_variable(platform: &str) -> String {
        format!("{}_ALLOW_BOTS", platform.to_uppercase())
    }
}

fn scopes(value: &Value) -> Vec<String> {
    let pieces: Vec<String> = match value {
        Value::Array(items) => items.iter().map(text_of).collect(),
        Value::String(list) => list.split(',').map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    pieces
        .iter()
        .map(|piece| piece.trim().to_owned())
        .filter(|piece| !piece.is_empty())
        .collect()
}
