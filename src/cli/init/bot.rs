//! A bot of one's own: its token, checked with the platform and kept in a file that only its owner can read.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::menu::{ATTEMPTS, agrees, ask_secret};
use super::{InitArgs, InitFailure};
use crate::cli::Environment;
use crate::cli::exit::{self, outln};
use crate::cli::format::printable;
use crate::cli::prompt::{SecretInput as _, Stdin};
use crate::config::{
    DiscordBotConfig, LoadedConfig, TelegramConfig, check_bot_token, check_discord_token, secret,
};
use crate::direct::discord::{DiscordBot, RestAnswer, RestRequest, invite_link, reads_content};
use crate::direct::telegram::{ApiAnswer, Bot};
use crate::net::proxy::ProxyRules;
use crate::relay::{bot_client, discord_client, provisioning};

/// Timeout of the platform's answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// The platform of a bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BotPlatform {
    Telegram,
    Discord,
}

impl BotPlatform {
    /// The platform that the options name.
    pub(super) fn of(args: &InitArgs) -> Option<Self> {
        match (args.telegram, args.discord) {
            (true, _) => Some(Self::Telegram),
            (false, true) => Some(Self::Discord),
            (false, false) => None,
        }
    }

    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Telegram => "Telegram",
            Self::Discord => "Discord",
        }
    }

    /// Its name in settings and ids.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Discord => "discord",
        }
    }

    /// The token's file, beside the settings.
    fn token_file(self) -> &'static str {
        match self {
            Self::Telegram => "telegram-token",
            Self::Discord => "discord-token",
        }
    }

    /// The variable that may hold the token.
    fn variable(self) -> &'static str {
        match self {
            Self::Telegram => "TELEGRAM_BOT_TOKEN",
            Self::Discord => "DISCORD_BOT_TOKEN",
        }
    }

    /// Where to get a token.
    fn source(self) -> &'static str {
        match self {
            Self::Telegram => {
                "@BotFather on Telegram gives you a token: /newbot makes a bot, /mybots shows those that you have"
            }
            Self::Discord => {
                "https://discord.com/developers/applications gives you a token: make an application, open its page Bot, turn on \
                 Message Content Intent there, and reset the token"
            }
        }
    }
}

/// The bot that answers.
pub(super) struct ChosenBot {
    pub(super) platform: BotPlatform,
    /// Where its token is, or will be.
    pub(super) token_file: PathBuf,
    /// The token, while it is not stored there.
    unstored: Option<SecretString>,
    api_base: Option<String>,
    /// What the platform says about it; `None` if it was not asked.
    pub(super) described: Option<DescribedBot>,
}

/// What a platform says about a bot.
pub(super) struct DescribedBot {
    /// Its name; on Telegram the one after the `@`.
    pub(super) username: String,
    /// Where people find it, or invite it to a server.
    pub(super) link: String,
    /// Whether it may not read what people write in channels.
    pub(super) is_blind: bool,
}

impl ChosenBot {
    /// Its section of the settings file, with or without the token's file.
    pub(super) fn settings(&self, with_token: bool) -> String {
        // Text in double quotes is YAML as it is JSON.
        let line = |key: &str, text: &str| format!("    {key}: {}\n", Value::from(text));
        let file = match &self.unstored {
            // Beside the settings, wherever those are.
            Some(_) => self.platform.token_file().into(),
            None => self.token_file.to_string_lossy(),
        };
        let (name, key) = (self.platform.name(), self.platform.key());
        let mut text =
            format!("direct:\n  # A {name} bot of your own, without a connector: docs/{key}.md.\n  {key}:\n");
        if with_token {
            text += &line("token_file", &file);
        }
        if let Some(base) = &self.api_base {
            text += &line("api_base", base);
        }
        text
    }

    /// Its name for people.
    pub(super) fn name(&self) -> String {
        match &self.described {
            Some(bot) => format!("@{}", printable(&bot.username)),
            None => "the bot".to_owned(),
        }
    }

    /// Stores the token if it is not stored yet; returns whether it did.
    pub(super) fn store(&self) -> Result<bool, InitFailure> {
        let (Some(token), file) = (&self.unstored, &self.token_file) else {
            return Ok(false);
        };
        let failed = |error: std::io::Error| {
            InitFailure::new(
                exit::CONFIGURATION,
                format!("cannot write {}: {error}", file.display()),
                "store the token yourself and name its file with --token-file",
            )
        };
        // A temporary file is readable by its owner only.
        let mut new = tempfile::Builder::new()
            .prefix(".token-")
            .tempfile_in(super::folder_of(file))
            .map_err(failed)?;
        let text = token.expose_secret().as_bytes();
        new.write_all(text)
            .and_then(|()| new.write_all(b"\n"))
            .and_then(|()| new.as_file().sync_all())
            .map_err(failed)?;
        new.persist(file).map_err(|error| failed(error.error))?;
        Ok(true)
    }
}

/// Why a token cannot be used.
enum BotTokenRefusal {
    /// It is none, or the platform does not accept it.
    Invalid(String),
    /// The platform cannot be asked.
    Unreachable(String),
}

/// The bot of the options, or of the person in front of the terminal. `config` is the settings file, `loaded` what it will say
/// without the bot.
pub(super) async fn choose(
    platform: BotPlatform,
    args: &InitArgs,
    asks: bool,
    config: &Path,
    loaded: &LoadedConfig,
    env: Environment<'_>,
) -> Result<ChosenBot, InitFailure> {
    let (file_name, source) = (platform.token_file(), platform.source());
    let own_file = std::path::absolute(super::folder_of(config).join(file_name));
    let own_file = own_file.unwrap_or_else(|_| PathBuf::from(file_name));
    let found = given(platform, args, &own_file, asks, env)?;
    let is_asked = found.is_none();
    if is_asked {
        if !asks {
            let hint = format!("pass --token-file FILE or set {}; {source}", platform.variable());
            return Err(InitFailure::new(exit::USAGE, "the bot's token is missing", hint));
        }
        outln!("{source}.");
    }
    let mut attempts_left = if is_asked { ATTEMPTS } else { 1 };
    loop {
        attempts_left -= 1;
        let (token, stored_in) = match &found {
            Some(found) => found.clone(),
            None => (ask_secret("Token (it is not shown)", "--token-file FILE")?, None),
        };
        let described = match check(platform, &token, args, loaded, env).await {
            Ok(described) => described,
            Err(BotTokenRefusal::Invalid(why)) if attempts_left > 0 => {
                outln!("That token cannot be used: {}", printable(&why));
                continue;
            }
            Err(BotTokenRefusal::Invalid(why)) => {
                let what = format!("the bot's token cannot be used: {why}");
                return Err(InitFailure::new(exit::FAILED, what, source));
            }
            Err(BotTokenRefusal::Unreachable(why)) => {
                let what = format!("cannot check the bot's token: {why}");
                if !(asks && agrees(&format!("{}. Go on without the check?", printable(&what)))) {
                    let hint = "check the network and HTTPS_PROXY, or write the settings without any test with --no-test";
                    return Err(InitFailure::new(exit::FAILED, what, hint));
                }
                None
            }
        };
        let is_stored = stored_in.is_some();
        if !is_stored {
            may_replace(&own_file, &token, args, asks)?;
        }
        return Ok(ChosenBot {
            platform,
            token_file: stored_in.unwrap_or(own_file),
            unstored: (!is_stored).then_some(token),
            api_base: args.api_base.clone(),
            described,
        });
    }
}

/// A token that need not be asked for, and the file that has it.
fn given(
    platform: BotPlatform,
    args: &InitArgs,
    own_file: &Path,
    asks: bool,
    env: Environment<'_>,
) -> Result<Option<(SecretString, Option<PathBuf>)>, InitFailure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let hint = "write the token into a file that only you can read (chmod 600), or pass --token-file - and pipe it in";
        InitFailure::new(exit::CONFIGURATION, error.to_string(), hint)
    };
    if let Some(file) = &args.token_file {
        if file.as_os_str() == "-" {
            let token = Stdin.piped("Token").map_err(|error| unreadable(&error))?;
            return Ok(Some((token, None)));
        }
        let token = secret::read(file).map_err(|error| unreadable(&error))?;
        let file = std::path::absolute(file).map_err(|error| unreadable(&error))?;
        return Ok(Some((token, Some(file))));
    }
    if let Some(token) = env(platform.variable()).as_deref().and_then(secret::parse) {
        return Ok(Some((token, None)));
    }
    if asks && own_file.exists() && agrees(&format!("Use the token in {}?", own_file.display())) {
        let token = secret::read(own_file).map_err(|error| unreadable(&error))?;
        return Ok(Some((token, Some(own_file.to_owned()))));
    }
    Ok(None)
}

/// Asks the platform whose token it is; nothing with `--no-test`.
async fn check(
    platform: BotPlatform,
    token: &SecretString,
    args: &InitArgs,
    loaded: &LoadedConfig,
    env: Environment<'_>,
) -> Result<Option<DescribedBot>, BotTokenRefusal> {
    let checked = match platform {
        BotPlatform::Telegram => check_bot_token(token),
        BotPlatform::Discord => check_discord_token(token),
    };
    checked.map_err(|why| BotTokenRefusal::Invalid(why.to_owned()))?;
    if args.no_test {
        return Ok(None);
    }
    let asking = async {
        match platform {
            BotPlatform::Telegram => telegram_bot(token, args, loaded, env).await,
            BotPlatform::Discord => discord_bot(token, args, loaded, env).await,
        }
    };
    let described = timeout(CHECK_TIMEOUT, asking).await;
    let described = described.unwrap_or_else(|_| {
        let why = format!("{} did not answer in time", platform.name());
        Err(BotTokenRefusal::Unreachable(why))
    });
    described.map(Some)
}

async fn telegram_bot(
    token: &SecretString,
    args: &InitArgs,
    loaded: &LoadedConfig,
    env: Environment<'_>,
) -> Result<DescribedBot, BotTokenRefusal> {
    let mut bot = TelegramConfig::new(Some(token.clone()));
    if let Some(base) = &args.api_base {
        bot.api_base.clone_from(base);
    }
    let tls = provisioning::tls(&loaded.settings);
    let client = bot_client(&bot, tls, ProxyRules::from_env(env));
    let client = client.map_err(|error| BotTokenRefusal::Unreachable(error.to_string()))?;
    let unreachable = |why: String| Err(BotTokenRefusal::Unreachable(why));
    match client.call("getMe", &Map::new()).await {
        ApiAnswer::Ok(value) => match Bot::from_value(&value) {
            Some(bot) => Ok(DescribedBot {
                link: format!("https://t.me/{}", bot.username),
                username: bot.username,
                is_blind: false,
            }),
            None => unreachable(format!("{} did not describe the bot", client.host())),
        },
        ApiAnswer::Error {
            code: 401 | 404,
            description,
            ..
        } => Err(BotTokenRefusal::Invalid(format!(
            "Telegram does not accept it ({description})"
        ))),
        ApiAnswer::Error { description, .. } => unreachable(format!("{}: {description}", client.host())),
        ApiAnswer::NotSent(why) => unreachable(why),
        ApiAnswer::Unknown => unreachable(format!("{} gave no usable answer", client.host())),
    }
}

async fn discord_bot(
    token: &SecretString,
    args: &InitArgs,
    loaded: &LoadedConfig,
    env: Environment<'_>,
) -> Result<DescribedBot, BotTokenRefusal> {
    let mut bot = DiscordBotConfig {
        token: Some(token.clone()),
        ..DiscordBotConfig::default()
    };
    if let Some(base) = &args.api_base {
        bot.api_base.clone_from(base);
    }
    let tls = provisioning::tls(&loaded.settings);
    let client = discord_client(&bot, tls, ProxyRules::from_env(env));
    let client = client.map_err(|error| BotTokenRefusal::Unreachable(error.to_string()))?;
    let asked = async |path: &str| {
        let unreachable = |why: String| Err(BotTokenRefusal::Unreachable(why));
        match client.request(&RestRequest::get(path, path)).await.0 {
            RestAnswer::Ok(found) => Ok(found),
            RestAnswer::Error {
                status: 401, message, ..
            } => Err(BotTokenRefusal::Invalid(format!(
                "Discord does not accept it ({message})"
            ))),
            RestAnswer::Error { message, .. } => unreachable(format!("{}: {message}", client.host())),
            RestAnswer::NotSent(why) => unreachable(why),
            RestAnswer::Unknown => unreachable(format!("{} gave no usable answer", client.host())),
        }
    };
    let user = asked("users/@me").await?;
    let application = asked("applications/@me").await?;
    let (Some(bot), Some(id)) = (DiscordBot::from_user(&user), application["id"].as_str()) else {
        let why = format!("{} did not describe the bot", client.host());
        return Err(BotTokenRefusal::Unreachable(why));
    };
    Ok(DescribedBot {
        username: bot.name,
        link: invite_link(id),
        is_blind: reads_content(&application) == Some(false),
    })
}

/// A file with another token is replaced only on request.
fn may_replace(file: &Path, token: &SecretString, args: &InitArgs, asks: bool) -> Result<(), InitFailure> {
    if !file.exists() || args.force {
        return Ok(());
    }
    let known = secret::read(file).ok();
    let is_same = known.is_some_and(|known| known.expose_secret() == token.expose_secret());
    if is_same || (asks && agrees(&format!("{} exists. Replace it?", file.display()))) {
        return Ok(());
    }
    Err(InitFailure::new(
        exit::FAILED,
        format!("{} exists and is kept", file.display()),
        format!(
            "use it with --token-file {}, or replace it with --force",
            file.display()
        ),
    ))
}
