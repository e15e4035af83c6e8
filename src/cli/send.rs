//! `hermes-relay send`: say something in a chat, unasked.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Environment;
use super::asking::RelayArgs;
use super::exit::{self, printed};
use crate::serve::client::AskError;
use crate::serve::request::{Ask, LONGEST_REQUEST};

/// Send a message to a chat that has spoken to this relay before.
///
/// Returns once the journal has it: it goes out when the connection is up, be it after a restart.
///
/// Exit codes: 0 accepted, 1 not accepted, 69 no relay is running here, 78 the configuration cannot be used.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay send --chat 1234567890 \"The backup is done.\"\n  \
                  df -h / | hermes-relay send --chat 1234567890 --platform discord -"
)]
pub(super) struct SendArgs {
    #[command(flatten)]
    relay: RelayArgs,
    /// The chat's id on its platform.
    #[arg(long, value_name = "ID")]
    chat: String,
    /// The platform, where chats of several have the same id.
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<String>,
    /// What to say; `-` takes it from standard input.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
}

/// Runs the verb.
pub(super) fn run(args: &SendArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.relay.found(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let text = match said(&args.text) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("cannot read the text on standard input: {error}");
            return relay.fail(exit::FAILED, what, None);
        }
    };
    let ask = Ask::Send {
        chat: args.chat.clone(),
        platform: args.platform.clone(),
        text,
    };
    match relay.ask(&ask) {
        Ok(_) => {
            let mut out = anstream::stdout().lock();
            let told = if args.relay.json {
                writeln!(out, "{}", json!({"accepted": true, "chat": args.chat}))
            } else {
                writeln!(out, "accepted; it goes out when the connection is up")
            };
            printed(told.and_then(|()| out.flush()))
        }
        Err(error) => relay.tell(&error, hint(&error)),
    }
}

fn hint(error: &AskError) -> Option<&'static str> {
    match error {
        AskError::Refused(refusal) if refusal.code == "unknown_chat" => {
            Some("check the id; a chat is known once somebody has written in it while the relay ran")
        }
        AskError::TooLong(_) => Some("send it in parts"),
        _ => None,
    }
}

/// The text, from standard input where that is wanted; no more of it than can be sent.
fn said(typed: &str) -> io::Result<String> {
    if typed != "-" {
        return Ok(typed.to_owned());
    }
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(LONGEST_REQUEST as u64 + 1)
        .read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}
