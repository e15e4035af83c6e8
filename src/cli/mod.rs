//! One file per verb: what was typed, what is done, what is printed, and the exit code.

pub mod enroll;
mod oracle;
pub mod prompt;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One line that says which of the many things called hermes and relay this is.
const WHICH_RELAY: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (the dial-out relay between a Hermes chat connector and any AI agent)"
);

#[derive(Parser, Debug)]
#[command(
    name = "hermes-relay",
    version = WHICH_RELAY,
    about = "Puts any AI agent behind a Hermes chat connector: Discord, Telegram, Slack, WhatsApp",
    propagate_version = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Oracle(oracle::OracleArgs),
}

/// Runs what was typed. `env` is the process environment.
pub fn main(env: &dyn Fn(&str) -> Option<String>) -> ExitCode {
    match Cli::parse().verb {
        Verb::Oracle(args) => {
            let home = env("HERMES_HOME")
                .filter(|home| !home.is_empty())
                .map(PathBuf::from);
            match oracle::run(
                &args,
                home.as_deref(),
                std::io::stdin().lock(),
                std::io::stdout().lock(),
            ) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("error: cannot read the questions on standard input: {error}");
                    ExitCode::FAILURE
                }
            }
        }
    }
}
