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
const DISCORD: &str = "discord";
/// Telegram's own Bot API.
const API_BASE: &str = "https://api.telegram.org";
/// Discord's own REST API.
const DISCORD_API: &str = "https://discord.com/api/v10";
/// Longest poll that the Bot API serves.
const MAX_POLL_SECS: u64 = 50;
/// Longest token of a Discord bot.
const MAX_DISCORD_TOKEN: usize = 200;
/// Longest bot token.
const MAX_TOKEN: usize = 80;

section! {
    /// Platforms that the relay talks to itself.
    pub struct DirectConfig {
        /// A Telegram bot of one's own; `None` when it is not configured.
        pub telegram: Option<TelegramConfig>, fields(TelegramConfig::FIELDS);
        /// A Discord bot of one's own; `None` when it is not configured.
        pub discord: Option<DiscordBotConfig>, fields(DiscordBotConfig::FIELDS);
    }
}

impl DirectConfig {
    /// The platforms of the bots that the relay is.
    pub fn platforms(&self) -> Vec<&'static str> {
        let telegram = self.telegram.as_ref().map(|_| TELEGRAM);
        let discord = self.discord.as_ref().map(|_| DISCORD);
        telegram.into_iter().chain(discord).collect()
    }

    /// Whether the relay is a bot itself.
    pub fn is_bot(&self) -> bool {
        !self.platforms().is_empty()
    }

    /// The number of the Telegram bot that the relay is; 0 if it is none.
    pub fn telegram_bot(&self) -> i64 {
        let bot = self.telegram.as_ref().and_then(TelegramConfig::bot_id);
        bot.unwrap_or_default()
    }

    /// The first violated rule.
    pub(super) fn violation(&self) -> Option<Violation> {
        if let Some(discord) = &self.discord {
            if discord.token_env.is_some() && discord.token_file.is_some() {
                let rule = "excludes `direct.discord.token_file`: set one of them";
                return Some(("direct.discord.token_env", rule.to_owned()));
            }
            if let Err(rule) = check_api_base(&discord.api_base) {
                return Some(("direct.discord.api_base", rule.to_owned()));
            }
            if let Some(Err(rule)) = discord.gateway_url.as_deref().map(check_gateway_url) {
                return Some(("direct.discord.gateway_url", rule.to_owned()));
            }
        }
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

section! {
    /// A Discord bot of one's own.
    pub struct DiscordBotConfig {
        /// File with the bot's token, which is read when the settings are loaded.
        #[serde(skip_serializing)]
        pub token_file: Option<PathBuf>;
        /// Environment variable with the bot's token, instead of a file.
        #[serde(skip_serializing)]
        pub token_env: Option<String>;
        /// Base URL of the REST API.
        pub api_base: String = DISCORD_API.to_owned();
        /// Address of the gateway, also for resuming; Discord names it if it is not set.
        pub gateway_url: Option<String>;
    } resolved {
        /// The bot's token.
        #[serde(serialize_with = "hidden")]
        pub token: Option<SecretString>,
            env(&[shared(env::DISCORD_BOT_TOKEN, "token of the bot for `direct.discord`")]);
        /// Whether messages in channels must mention or answer the bot.
        #[serde(skip_serializing)]
        pub require_mention: bool = true;
        /// Channels where they need not.
        #[serde(skip_serializing)]
        pub free_chats: Vec<String>;
        /// Whether messages of other bots count.
        #[serde(skip_serializing)]
        pub allow_bots: bool;
        /// Whether a rule of `access` names a role of a server.
        #[serde(skip_serializing)]
        pub needs_roles: bool;
    }
}

/// Why a text cannot be the token of a Discord bot; the text itself is never quoted.
pub fn check_discord_token(token: &SecretString) -> Result<(), &'static str> {
    let text = token.expose_secret();
    if text.starts_with("Bot ") {
        return Err("it starts with `Bot `; write the token alone");
    }
    if text.matches('.').count() != 2 {
        return Err("a token of Discord has three parts with dots between them");
    }
    if text.len() > MAX_DISCORD_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("it has characters that a token does not have, or too many");
    }
    Ok(())
}

/// Why an address cannot be that of the gateway.
fn check_gateway_url(text: &str) -> Result<(), &'static str> {
    let wrong = "must be a wss URL, such as wss://gateway.discord.gg";
    let url = Url::parse(text).map_err(|_| wrong)?;
    match (url.scheme(), url.host()) {
        ("wss", Some(_)) => Ok(()),
        ("ws", Some(host)) if is_loopback(&host) => Ok(()),
        ("ws", Some(_)) => Err("must be wss: ws is allowed for loopback addresses only"),
        _ => Err(wrong),
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

/// Why an address cannot be the base of a platform's API.
pub(super) fn check_api_base(base: &str) -> Result<(), &'static str> {
    let url = Url::parse(base).map_err(|_| "must be an https URL; omit it to use the platform's own")?;
    let Some(host) = url.host() else {
        return Err("must name a host; omit it to use the platform's own");
    };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err("must not contain a user name, a password or a query");
    }
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(&host) => Ok(()),
        "http" => Err("must be https: http is allowed for loopback addresses only"),
        _ => Err("must be an https URL; omit it to use the platform's own"),
    }
}

/// Applies the relevance policy of the platform: no connector does. In groups a message must mention or answer the bot unless
/// the settings say otherwise.
pub(super) fn apply_policy(loaded: &mut LoadedConfig) {
    if let Some(policy) = platform_policy(loaded, TELEGRAM)
        && let Some(bot) = &mut loaded.settings.direct.telegram
    {
        bot.require_mention = policy.require_address;
        bot.free_chats = policy.free_response_scopes;
        bot.allow_bots = policy.allow_other_bots;
    }
    let needs_roles = loaded.settings.access.names_guild_roles();
    if let Some(bot) = &mut loaded.settings.direct.discord {
        bot.needs_roles = needs_roles;
    }
    if let Some(policy) = platform_policy(loaded, DISCORD)
        && let Some(bot) = &mut loaded.settings.direct.discord
    {
        bot.require_mention = policy.require_address;
        bot.free_chats = policy.free_response_scopes;
        bot.allow_bots = policy.allow_other_bots;
    }
}

fn platform_policy(loaded: &LoadedConfig, platform: &str) -> Option<RelevancePolicy> {
    let mut yaml = loaded.policy_yaml(platform);
    if let Value::Object(top) = &mut yaml
        && top.get("require_mention").is_none_or(Value::is_null)
    {
        top.insert("require_mention".to_owned(), true.into());
    }
    let allow_bots = loaded.allow_bots(platform);
    RelevancePolicy::project(&yaml, platform, allow_bots.as_deref())
}

impl Layers<'_> {
    /// The platforms that the relay talks to itself: those that the file or the command line names. Beside a connector, those
    /// that it does not have.
    pub(super) fn direct(&mut self, settings: &mut Settings) -> Result<(), ConfigError> {
        let mut identities = Vec::new();
        for (platform, bot, flag) in [
            (TELEGRAM, "direct.telegram", self.flags.telegram),
            (DISCORD, "direct.discord", self.flags.discord),
        ] {
            let Some(origin) = self.bot_origin(flag, bot) else {
                continue;
            };
            let mut announced = settings.connector.identities.iter();
            if settings.connector.url.is_some() && announced.any(|identity| identity.platform == platform) {
                return Err(ConfigError::Exclusive {
                    url: self.origins.of("connector.url").clone(),
                    platform,
                    origin,
                });
            }
            identities.push(BotIdentity::new(platform, ""));
            self.origins.set(bot, origin);
            if platform == DISCORD {
                let bot = settings.direct.discord.get_or_insert_default();
                let (file, variable) = (bot.token_file.as_deref(), bot.token_env.as_deref());
                bot.token = self.bot_token("direct.discord.token", file, variable)?;
            } else {
                let bot = settings.direct.telegram.get_or_insert_default();
                bot.token = self.bot_token("direct.telegram.token", bot.token_file.as_deref(), None)?;
            }
        }
        if !identities.is_empty() && settings.connector.url.is_none() {
            settings.connector.identities = identities;
        }
        Ok(())
    }

    /// Where a bot is switched on, if it is.
    fn bot_origin(&self, flag: bool, key: &str) -> Option<Origin> {
        if flag {
            return Some(Origin::Flag);
        }
        let own = self.own.as_ref().filter(|own| own.names(key))?;
        Some(Origin::OwnFile(own.path.clone()))
    }

    /// The token from its file, else from the environment: from the variable that the file names, or from the usual one.
    fn bot_token(
        &mut self,
        key: &'static str,
        file: Option<&Path>,
        variable: Option<&str>,
    ) -> Result<Option<SecretString>, ConfigError> {
        if let Some((path, _)) = self.path_in_own(file) {
            let token = super::secret::read(&path)?;
            return Ok(Some(self.record(key, Origin::OwnFile(path), token)));
        }
        let value = match variable {
            Some(name) => self.in_process(name).or_else(|| self.in_dotenv(name)),
            None => self.lookup(key, None),
        };
        Ok(self.record_value(key, value).map(super::secret::into_secret))
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
    fn tokens_of_discord_are_checked_without_being_quoted() {
        let check = |text: &str| check_discord_token(&SecretString::from(text.to_owned()));
        assert_eq!(check("MTIz.abc.def-9_"), Ok(()));
        for wrong in ["", "hunter2", "Bot MTIz.abc.def", "a.b", "a.b.c d", "a.b.c.d"] {
            let why = check(wrong).unwrap_err();
            assert!(wrong.is_empty() || !why.contains(wrong), "{wrong}: {why}");
        }
        assert!(check(&format!("a.b.{}", "c".repeat(200))).is_err());
        assert_eq!(check_gateway_url("wss://gateway.discord.gg"), Ok(()));
        assert_eq!(check_gateway_url("ws://127.0.0.1:1"), Ok(()));
        for wrong in ["ws://gateway.discord.gg", "https://discord.com", "gateway"] {
            assert!(check_gateway_url(wrong).is_err(), "{wrong}");
        }
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
