//! A Telegram bot of one's own: its token, checked with Telegram and kept in a file that only its owner can read.

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
use crate::config::{LoadedConfig, TelegramConfig, check_bot_token, secret};
use crate::direct::telegram::{ApiAnswer, Bot};
use crate::net::proxy::ProxyRules;
use crate::relay::{bot_client, provisioning};

/// The token's file, beside the settings.
const TOKEN_FILE: &str = "telegram-token";
/// The variable that may hold the token.
const TOKEN: &str = "TELEGRAM_BOT_TOKEN";
/// Timeout of Telegram's answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);
/// Where to get a token.
const BOT_FATHER: &str =
    "@BotFather on Telegram gives you a token: /newbot makes a bot, /mybots shows those that you have";

/// The bot that answers.
pub(super) struct ChosenBot {
    /// Where its token is, or will be.
    pub(super) token_file: PathBuf,
    /// The token, while it is not stored there.
    unstored: Option<SecretString>,
    api_base: Option<String>,
    /// Its name after the `@`, as Telegram says; `None` if Telegram was not asked.
    pub(super) username: Option<String>,
}

impl ChosenBot {
    /// Its section of the settings file, with or without the token's file.
    pub(super) fn settings(&self, with_token: bool) -> String {
        // Text in double quotes is YAML as it is JSON.
        let line = |key: &str, text: &str| format!("    {key}: {}\n", Value::from(text));
        let file = match &self.unstored {
            // Beside the settings, wherever those are.
            Some(_) => TOKEN_FILE.into(),
            None => self.token_file.to_string_lossy(),
        };
        let mut text =
            "direct:\n  # A Telegram bot of your own, without a connector: docs/telegram.md.\n  telegram:\n"
                .to_owned();
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
        match &self.username {
            Some(name) => format!("@{}", printable(name)),
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
            .prefix(".telegram-")
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
    /// It is none, or Telegram does not accept it.
    Invalid(String),
    /// Telegram cannot be asked.
    Unreachable(String),
}

/// The bot of the options, or of the person in front of the terminal. `config` is the settings file, `loaded` what it will say
/// without the bot.
pub(super) async fn choose(
    args: &InitArgs,
    asks: bool,
    config: &Path,
    loaded: &LoadedConfig,
    env: Environment<'_>,
) -> Result<ChosenBot, InitFailure> {
    let own_file = std::path::absolute(super::folder_of(config).join(TOKEN_FILE));
    let own_file = own_file.unwrap_or_else(|_| PathBuf::from(TOKEN_FILE));
    let found = given(args, &own_file, asks, env)?;
    let is_asked = found.is_none();
    if is_asked {
        if !asks {
            let hint = format!("pass --token-file FILE or set {TOKEN}; {BOT_FATHER}");
            return Err(InitFailure::new(exit::USAGE, "the bot's token is missing", hint));
        }
        outln!("{BOT_FATHER}.");
    }
    let mut attempts_left = if is_asked { ATTEMPTS } else { 1 };
    loop {
        attempts_left -= 1;
        let (token, stored_in) = match &found {
            Some(found) => found.clone(),
            None => (ask_secret("Token (it is not shown)", "--token-file FILE")?, None),
        };
        let username = match check(&token, args, loaded, env).await {
            Ok(username) => username,
            Err(BotTokenRefusal::Invalid(why)) if attempts_left > 0 => {
                outln!("That token cannot be used: {}", printable(&why));
                continue;
            }
            Err(BotTokenRefusal::Invalid(why)) => {
                let what = format!("the bot's token cannot be used: {why}");
                return Err(InitFailure::new(exit::FAILED, what, BOT_FATHER));
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
            token_file: stored_in.unwrap_or(own_file),
            unstored: (!is_stored).then_some(token),
            api_base: args.api_base.clone(),
            username,
        });
    }
}

/// A token that need not be asked for, and the file that has it.
fn given(
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
    if let Some(token) = env(TOKEN).as_deref().and_then(secret::parse) {
        return Ok(Some((token, None)));
    }
    if asks && own_file.exists() && agrees(&format!("Use the token in {}?", own_file.display())) {
        let token = secret::read(own_file).map_err(|error| unreadable(&error))?;
        return Ok(Some((token, Some(own_file.to_owned()))));
    }
    Ok(None)
}

/// Asks Telegram whose token it is; nothing with `--no-test`.
async fn check(
    token: &SecretString,
    args: &InitArgs,
    loaded: &LoadedConfig,
    env: Environment<'_>,
) -> Result<Option<String>, BotTokenRefusal> {
    check_bot_token(token).map_err(|why| BotTokenRefusal::Invalid(why.to_owned()))?;
    if args.no_test {
        return Ok(None);
    }
    let mut bot = TelegramConfig::new(Some(token.clone()));
    if let Some(base) = &args.api_base {
        bot.api_base.clone_from(base);
    }
    let tls = provisioning::tls(&loaded.settings);
    let client = bot_client(&bot, tls, ProxyRules::from_env(env));
    let client = client.map_err(|error| BotTokenRefusal::Unreachable(error.to_string()))?;
    let unreachable = |why: String| Err(BotTokenRefusal::Unreachable(why));
    match timeout(CHECK_TIMEOUT, client.call("getMe", &Map::new())).await {
        Ok(ApiAnswer::Ok(value)) => match Bot::from_value(&value) {
            Some(bot) => Ok(Some(bot.username)),
            None => unreachable(format!("{} did not describe the bot", client.host())),
        },
        Ok(ApiAnswer::Error {
            code: 401 | 404,
            description,
            ..
        }) => Err(BotTokenRefusal::Invalid(format!(
            "Telegram does not accept it ({description})"
        ))),
        Ok(ApiAnswer::Error { description, .. }) => unreachable(format!("{}: {description}", client.host())),
        Ok(ApiAnswer::NotSent(why)) => unreachable(why),
        Ok(ApiAnswer::Unknown) => unreachable(format!("{} gave no usable answer", client.host())),
        Err(_) => unreachable(format!("{} did not answer in time", client.host())),
    }
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
