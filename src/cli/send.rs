//! `hermes-relay send`: sends a message to a chat.

use std::io::{self, Read as _};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Environment;
use super::caller::Caller;
use super::exit;
use super::remote::RemoteArgs;
use crate::config::settings::nearest_platform;
use crate::serve::client::ClientError;
use crate::serve::{ControlRequest, MAX_REQUEST_BYTES};

/// Send a message to a chat that has written to this relay before.
///
/// Returns once the message is stored in the journal. It is sent when the relay is connected, even after a restart.
/// While access rules hold, an agent that works for somebody who is no owner sends to the chat of its turn only.
///
/// Exit codes: 0 accepted, 1 not accepted, 69 no relay is running here, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay send --chat 1234567890 \"The backup is done.\"\n  \
                  df -h / | hermes-relay send --chat 1234567890 --platform discord -"
)]
pub(super) struct SendArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Id of the chat on its platform.
    #[arg(long, value_name = "ID")]
    chat: String,
    /// Platform, where several have a chat with this id.
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<String>,
    /// Ring nobody: the message arrives without a sound where the platform has that.
    #[arg(long)]
    silent: bool,
    /// Text to send; `-` reads it from standard input.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
}

/// Runs the verb.
pub(super) fn run(args: &SendArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.remote.running(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let platform = match Caller::find(&relay) {
        Ok(caller) => caller.platform_of(&args.chat, args.platform.as_deref()),
        Err(code) => return code,
    };
    let text = match read_text(&args.text) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("cannot read the text from standard input: {error}");
            return relay.fail(exit::FAILED, what, None);
        }
    };
    let request = ControlRequest::Send {
        chat: args.chat.clone(),
        platform,
        text,
        silent: args.silent,
    };
    match relay.call(&request) {
        Ok(answer) => {
            let (state, text) = match answer["connected"].as_bool() {
                Some(true) => ("sent", "sent"),
                _ => ("queued", "queued; it goes out as soon as the relay is connected"),
            };
            let json = json!({"accepted": true, "state": state, "chat": args.chat});
            args.remote.print(&json, text)
        }
        Err(error) => relay.report(&error, hint(&error, args.platform.as_deref()).as_deref()),
    }
}

fn hint(error: &ClientError, platform: Option<&str>) -> Option<String> {
    match error {
        ClientError::Refused(refused) if refused.code == "unknown_chat" => {
            Some(match platform.and_then(nearest_platform) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    "check --chat and --platform; a chat is known once somebody has written in it".to_owned()
                }
            })
        }
        ClientError::TooLong(..) => Some("send it in parts".to_owned()),
        _ => None,
    }
}

/// The text, or standard input up to the maximum length of a request.
fn read_text(text: &str) -> io::Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(MAX_REQUEST_BYTES as u64 + 1)
        .read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}
