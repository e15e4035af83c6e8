//! `hermes-relay config`: what is in force and where it comes from; whether a file is sound.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::exit::{self, fail};
use super::{Environment, SharedArgs};
use crate::config::{self, Sources};

/// Show the settings in force, or check a settings file.
#[derive(Args, Debug)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Print every setting with its origin; secrets are hidden.
    Show {
        #[command(flatten)]
        shared: SharedArgs,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check a settings file; for CI. Exit code 0 when it is sound, 78 when not.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Print every option and variable with its default and meaning, as Markdown.
    Reference,
}

/// Runs the verb.
pub(super) fn run(args: &ConfigArgs, env: Environment<'_>) -> ExitCode {
    match &args.action {
        Action::Check { file } => match config::check_file(file) {
            Ok(warnings) => {
                anstream::println!("{} is sound", file.display());
                for warning in warnings {
                    anstream::eprintln!("warning: {warning}");
                }
                ExitCode::SUCCESS
            }
            Err(error) => fail(exit::CONFIGURATION, error, None),
        },
        Action::Reference => {
            // Nobody reading any more is no fault.
            let _ = write!(anstream::stdout().lock(), "{}", config::reference());
            ExitCode::SUCCESS
        }
        Action::Show { shared, json } => match config::load(&Sources {
            flags: shared.flags(),
            env,
        }) {
            Ok(loaded) => show(&loaded, *json),
            Err(error) => fail(exit::CONFIGURATION, error, None),
        },
    }
}

fn show(loaded: &config::Loaded, as_json: bool) -> ExitCode {
    let rows = loaded.describe();
    let mut out = anstream::stdout().lock();
    let written = if as_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| json!({"key": row.key, "value": row.value_shown, "origin": row.origin.to_string()}))
            .collect();
        writeln!(out, "{}", json!({"settings": rows, "warnings": loaded.warnings}))
    } else {
        let width = rows.iter().map(|row| row.key.len()).max().unwrap_or_default();
        rows.iter()
            .try_for_each(|row| writeln!(out, "{:width$}  {}  ({})", row.key, row.value_shown, row.origin))
            .and_then(|()| {
                loaded
                    .warnings
                    .iter()
                    .try_for_each(|warning| writeln!(out, "warning: {warning}"))
            })
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(exit::FAILED, format!("cannot write: {error}"), None),
    }
}
