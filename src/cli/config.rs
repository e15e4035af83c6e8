//! `hermes-relay config`: shows the effective settings with their origin, checks a file, prints the reference.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::exit::{self, ErrorFormat, errln, fail, finish, outln};
use super::format::stdout;
use super::{Environment, SharedArgs};
use crate::config::{self, ConfigError, Flags, Origin, Sources};
use crate::relay::check_bot_tokens;

/// Show the effective settings, or check a settings file.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay config show --changed\n  hermes-relay config check")]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    action: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Print every setting with its origin; secrets are redacted.
    ///
    /// Exit codes: 0 shown, 78 invalid configuration.
    #[command(after_help = "Examples:\n  hermes-relay config show --changed\n  \
                      hermes-relay config show --json | jq -r '.settings[] | select(.key == \"connector.url\") | .origin'")]
    Show {
        #[command(flatten)]
        shared: SharedArgs,
        /// Print JSON on one line, errors included.
        #[arg(long)]
        json: bool,
        /// Omit defaults.
        #[arg(long)]
        changed: bool,
    },
    /// Check a settings file on its own; for CI.
    ///
    /// Checks keys, values, limits, the connector URL, and that every named agent exists, and reports all mistakes at once. Warns
    /// of working directories and certificates that cannot be used here. Without FILE, the variables of this machine count: a bot needs
    /// its token, and the certificates of `tls` must be usable. Use `hermes-relay doctor` to check programs, secrets and the connector.
    ///
    /// Exit codes: 0 valid, 78 invalid, or there is no settings file.
    #[command(after_help = "Examples:\n  hermes-relay config check\n  hermes-relay config check relay.yaml")]
    Check {
        #[arg(
            help = "File to check [default: $HERMES_RELAY_CONFIG, $HERMES_HOME/relay.yaml, /etc/hermes-relay/config.yaml]"
        )]
        file: Option<PathBuf>,
        #[arg(from_global)]
        config: Option<PathBuf>,
    },
    /// Print every option and variable with its default and description, as Markdown.
    #[command(after_help = "Example:\n  hermes-relay config reference > configuration.md")]
    Reference,
}

/// Runs the verb.
pub(super) fn run(args: &ConfigArgs, env: Environment<'_>) -> ExitCode {
    match &args.action {
        ConfigCommand::Check { file, config } => check(file.as_deref().or(config.as_deref()), env),
        ConfigCommand::Reference => {
            let mut out = stdout();
            finish(write!(out, "{}", config::reference()).and_then(|()| out.flush()))
        }
        ConfigCommand::Show {
            shared,
            json,
            changed,
        } => match config::load(&Sources {
            flags: shared.relay_flags(),
            env,
        }) {
            Ok(loaded) => show(&loaded, *json, *changed),
            Err(error) => ErrorFormat::new(*json).fail(exit::CONFIGURATION, error, None),
        },
    }
}

fn check(file: Option<&Path>, env: Environment<'_>) -> ExitCode {
    let flags = Flags::of_relay(file.map(Path::to_owned), None);
    let sources = Sources { flags, env };
    let found = match config::settings_file(&sources) {
        Ok(Some(found)) => found,
        Ok(None) => {
            let hint = "name one, or write one with `hermes-relay init`";
            return fail(exit::CONFIGURATION, "there is no settings file", Some(hint));
        }
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let user_home = env("HOME").map(PathBuf::from);
    match config::check_file(&found, user_home.as_deref()) {
        Ok(warnings) => {
            // The file of this machine is checked beside its variables.
            if file.is_none()
                && let Err(mistake) = check_with_variables(&sources)
            {
                return fail(exit::CONFIGURATION, mistake, None);
            }
            outln!("{} is valid", found.display());
            for warning in warnings {
                errln!("warning: {warning}");
            }
            ExitCode::SUCCESS
        }
        Err(mistakes) => {
            for mistake in &mistakes {
                errln!("error: {mistake}");
            }
            ExitCode::from(exit::CONFIGURATION)
        }
    }
}

/// What a file lacks that the variables of this machine could have given it.
fn check_with_variables(sources: &Sources<'_>) -> Result<(), String> {
    match config::load(sources) {
        Ok(loaded) => {
            check_bot_tokens(&loaded.settings).map_err(|error| error.to_string())?;
            loaded.check_names().map_err(|error| error.to_string())
        }
        Err(
            error @ (ConfigError::NoAccessMode { .. }
            | ConfigError::UnreadableRules { .. }
            | ConfigError::UnreadRule { .. }
            | ConfigError::Exclusive { .. }),
        ) => Err(error.to_string()),
        Err(_) => Ok(()),
    }
}

fn show(loaded: &config::LoadedConfig, as_json: bool, changed: bool) -> ExitCode {
    let mut rows = loaded.describe();
    rows.retain(|row| !changed || row.origin != Origin::Default);
    let mut out = stdout();
    let written = if as_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| json!({"key": row.key, "value": row.value_shown, "origin": row.origin.to_string()}))
            .collect();
        writeln!(out, "{}", json!({"settings": rows, "warnings": loaded.warnings}))
    } else {
        let width = rows.iter().map(|row| row.key.len()).max().unwrap_or_default();
        rows.iter()
            .try_for_each(|row| {
                let value = Some(row.value_shown.as_str()).filter(|value| !value.is_empty());
                writeln!(
                    out,
                    "{:width$}  {}  ({})",
                    row.key,
                    value.unwrap_or("-"),
                    row.origin
                )
            })
            .and_then(|()| {
                loaded
                    .warnings
                    .iter()
                    .try_for_each(|warning| writeln!(out, "warning: {warning}"))
            })
    };
    finish(written.and_then(|()| out.flush()))
}
