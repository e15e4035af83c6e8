//! The `direct` section: platforms that the relay talks to itself, without a connector.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use super::layers::Layers;
use super::settings::{BotIdentity, Settings, hidden};
use super::validate::Violation;
use super::{ConfigError, LoadedConfig, Origin, env};
use crate::direct::telegram::{ALLOWED_UPDATES, RichMessages};
use crate::net::proxy::is_loopback;
use crate::setting::{section, shared};
use crate::wire::RelevancePolicy;

/// The platform's name.
const TELEGRAM: &str = "telegram";
/// Telegram's own Bot API.
const API_BASE: &str = "https://api.telegram.org";
/// Longest poll that the Bot API serves.
const MAX_POLL_SECS: u64 = 50;
/// Longest bot token.
const MAX_TOKEN: usize = 80;

section! {
    /// Platforms that the relay talks to itself.
    pub struct DirectConfig {
        /// A Telegram bot of one's own; `None` when it is not configured.
        pub telegram: Option<TelegramConfig>, fields(TelegramConfig::FIELDS);
    }
}

impl DirectConfig {
    /// Who performs the relay's ops, for people.
    pub fn peer(&self) -> &'static str {
        match self.telegram {
            Some(_) => "Telegram",
            None => "the connector",
        }
    }

    /// The first violated rule.
    pub(super) fn violation(&self) -> Option<Violation> {
        let telegram = self.telegram.as_ref()?;
        if telegram.allowed_updates.is_empty() {
            return Some(("direct.telegram.allowed_updates", "must not be empty".to_owned()));
        }
        let base = check_api_base(&telegram.api_base).err();
        base.map(|rule| ("direct.telegram.api_base", rule.to_owned()))
    }
}

section! {
    /// A Telegram bot of one's own.
    pub struct TelegramConfig {
        /// File with the bot's token, which is read when the settings are loaded.
        #[serde(skip_serializing)]
        pub token_file: Option<PathBuf>;
        /// Base URL of the Bot API.
        pub api_base: String = API_BASE.to_owned();
        /// How long one poll waits for updates, in seconds.
        pub poll_timeout_secs: u64 = 30, range(1..=MAX_POLL_SECS);
        /// The kinds of updates to ask for.
        pub allowed_updates: Vec<String> = ALLOWED_UPDATES.iter().map(|kind| (*kind).to_owned()).collect();
        /// When answers are sent as rich messages.
        pub rich_messages: RichMessages = RichMessages::Never;
    } resolved {
        /// The bot's token.
        #[serde(serialize_with = "hidden")]
        pub token: Option<SecretString>,
            env(&[shared(env::TELEGRAM_BOT_TOKEN, "token of the bot for `direct.telegram`")]);
        /// Whether messages in groups must mention or answer the bot.
        #[serde(skip_serializing)]
        pub require_mention: bool = true;
        /// Chats (`CHAT` or `CHAT:TOPIC`) where they need not.
        #[serde(skip_serializing)]
        pub free_chats: Vec<String>;
        /// Whether messages of other bots count.
        #[serde(skip_serializing)]
        pub allow_bots: bool;
    }
}

impl TelegramConfig {
    /// A bot with this token, and defaults for the rest.
    pub fn new(token: Option<SecretString>) -> Self {
        Self {
            token,
            ..Self::default()
        }
    }

    /// The bot's number, which its token starts with.
    pub fn bot_id(&self) -> Option<i64> {
        let token = self.token.as_ref()?.expose_secret();
        token.split_once(':')?.0.parse().ok()
    }
}

/// Why a text cannot be a bot's token; the text itself is never quoted.
pub fn check_bot_token(token: &SecretString) -> Result<(), &'static str> {
    let text = token.expose_secret();
    let Some((number, secret)) = text.split_once(':') else {
        return Err("it has no colon; a token looks like 123456789:AbC...");
    };
    if number.is_empty() || number.starts_with('0') || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("it does not start with the bot's number");
    }
    // It becomes a part of a path.
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/\\?#%".contains(&byte);
    if secret.is_empty() || text.len() > MAX_TOKEN || !secret.bytes().all(is_plain) {
        return Err("what follows the colon is not a token's secret");
    }
    Ok(())
}

/// Why an address cannot be the base of the Bot API.
pub(super) fn check_api_base(base: &str) -> Result<(), &'static str> {
    let url = Url::parse(base).map_err(|_| "must be an https URL, such as https://api.telegram.org")?;
    let Some(host) = url.host() else {
        return Err("must name a host, such as https://api.telegram.org");
    };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err("must not contain a user name, a password or a query");
    }
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(&host) => Ok(()),
        "http" => Err("must be https: http is allowed for loopback addresses only"),
        _ => Err("must be an https URL, such as https://api.telegram.org"),
    }
}

/// Applies the relevance policy of the platform: no connector does. In groups a message must mention or answer the bot unless
/// the settings say otherwise.
pub(super) fn apply_policy(loaded: &mut LoadedConfig) {
    let platform = TELEGRAM;
    let mut yaml = loaded.policy_yaml(platform);
    if let Value::Object(top) = &mut yaml
        && top.get("require_mention").is_none_or(Value::is_null)
    {
        top.insert("require_mention".to_owned(), true.into());
    }
    let allow_bots = loaded.allow_bots(platform);
    let policy = RelevancePolicy::project(&yaml, platform, allow_bots.as_deref());
    if let (Some(bot), Some(policy)) = (&mut loaded.settings.direct.telegram, policy) {
        bot.require_mention = policy.require_address;
        bot.free_chats = policy.free_response_scopes;
        bot.allow_bots = policy.allow_other_bots;
    }
}

impl Layers<'_> {
    /// The platforms that the relay talks to itself: those that the file or the command line names. Not beside a connector.
    pub(super) fn direct(&mut self, settings: &mut Settings) -> Result<(), ConfigError> {
        let in_file = self.own.as_ref().filter(|own| own.names("direct.telegram"));
        let origin = match (self.flags.telegram, in_file) {
            (true, _) => Origin::Flag,
            (false, Some(own)) => Origin::OwnFile(own.path.clone()),
            (false, None) => return Ok(()),
        };
        if settings.connector.url.is_some() {
            return Err(ConfigError::Exclusive {
                url: self.origins.of("connector.url").clone(),
                telegram: origin,
            });
        }
        settings.connector.identities = vec![BotIdentity::new(TELEGRAM, "")];
        self.origins.set("direct.telegram", origin);
        let bot = settings.direct.telegram.get_or_insert_default();
        bot.token = self.bot_token(bot.token_file.as_deref())?;
        Ok(())
    }

    /// The token from its file, else from the environment.
    fn bot_token(&mut self, file: Option<&Path>) -> Result<Option<SecretString>, ConfigError> {
        const KEY: &str = "direct.telegram.token";
        if let Some((path, _)) = self.path_in_own(file) {
            let token = super::secret::read(&path)?;
            return Ok(Some(self.record(KEY, Origin::OwnFile(path), token)));
        }
        let value = self.lookup(KEY, None);
        Ok(self.record_value(KEY, value).map(super::secret::into_secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_checked_without_being_quoted() {
        let check = |text: &str| check_bot_token(&SecretString::from(text.to_owned()));
        assert_eq!(check("123456:AbC_-9"), Ok(()));
        for wrong in [
            "", "secret", "123456:", ":abc", "0123:abc", "12a:abc", "123:a b", "123:a/b",
        ] {
            let why = check(wrong).unwrap_err();
            assert!(wrong.is_empty() || !why.contains(wrong), "{wrong}: {why}");
        }
        assert!(check(&format!("1:{}", "a".repeat(80))).is_err());
    }

    #[test]
    fn the_token_crosses_no_network_unencrypted() {
        for good in [
            API_BASE,
            "http://127.0.0.1:8081",
            "http://localhost:1/",
            "https://b.example/api",
        ] {
            assert_eq!(check_api_base(good), Ok(()), "{good}");
        }
        for bad in [
            "http://b.example",
            "ftp://b.example",
            "b.example",
            "https://u:p@b.example",
            "https://b.example/?x",
        ] {
            assert!(check_api_base(bad).is_err(), "{bad}");
        }
    }
}
