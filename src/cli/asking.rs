//! Asking a relay that runs in another process: where it is, and what is said when there is none.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::Environment;
use super::exit::{self, Voice};
use crate::config::{self, ConfigError, Flags, Loaded, Sources};
use crate::serve::client::{self, AskError};
use crate::serve::request::Ask;

/// Which relay is asked.
#[derive(Args, Debug, Clone)]
pub(super) struct RelayArgs {
    /// Our settings file, which may name the state directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The state directory of the relay to ask [default: as for `run`].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// As JSON, on one line; an error too.
    #[arg(long)]
    pub(super) json: bool,
}

/// A relay that can be asked, if it runs.
pub(super) struct Relay {
    loaded: Loaded,
    voice: Voice,
}

impl RelayArgs {
    /// Finds it, by the same settings as `run`.
    pub(super) fn find(&self, env: Environment<'_>) -> Result<Relay, ConfigError> {
        let flags = Flags {
            config: self.config.clone(),
            state_dir: self.state_dir.clone(),
            ..Flags::default()
        };
        let loaded = config::load(&Sources { flags, env })?;
        let voice = Voice::of(self.json);
        Ok(Relay { loaded, voice })
    }

    /// Finds it; else the exit code of who has been told why not.
    pub(super) fn found(&self, env: Environment<'_>) -> Result<Relay, ExitCode> {
        let voice = Voice::of(self.json);
        self.find(env)
            .map_err(|error| voice.fail(exit::CONFIGURATION, error, None))
    }

    /// Finds it and asks it once; else the exit code of who has been told why not.
    pub(super) fn ask(&self, env: Environment<'_>, ask: &Ask) -> Result<Value, ExitCode> {
        let relay = self.found(env)?;
        relay.ask(ask).map_err(|error| relay.tell(&error, None))
    }
}

impl Relay {
    /// Asks it.
    pub(super) fn ask(&self, ask: &Ask) -> Result<Value, AskError> {
        client::ask(&self.loaded.settings.state_dir, ask)
    }

    /// Tells what failed and what to do, and gives the exit code back.
    pub(super) fn fail(&self, code: u8, what: impl std::fmt::Display, hint: Option<&str>) -> ExitCode {
        self.voice.fail(code, what, hint)
    }

    /// Tells why there is no answer; `hint` is for a relay that answers no.
    pub(super) fn tell(&self, error: &AskError, hint: Option<&str>) -> ExitCode {
        match error {
            AskError::NotRunning(_) if !self.loaded.settings.serve.control => self.fail(
                exit::UNAVAILABLE,
                "the relay cannot be asked: `serve.control: false` switches its control socket off",
                Some("set `serve.control: true` and restart the relay"),
            ),
            AskError::NotRunning(_) => {
                let dir = self.loaded.settings.state_dir.display();
                let origin = self.loaded.origins.of("state_dir");
                let hint = format!(
                    "start one with `hermes-relay run`; or, if one runs with another state directory than {dir} \
                     ({origin}), name that with --state-dir DIR"
                );
                self.fail(exit::UNAVAILABLE, error, Some(&hint))
            }
            AskError::Denied { .. } => self.fail(
                exit::CONFIGURATION,
                error,
                Some("run this as the user that runs the relay"),
            ),
            AskError::Silent { .. } => self.fail(
                exit::UNAVAILABLE,
                error,
                Some("it may be starting or ending; look at its log, and try again"),
            ),
            AskError::Refused(refusal) if refusal.code == "silent" => {
                self.fail(exit::UNAVAILABLE, error, Some("look at its log, and try again"))
            }
            AskError::Garbled(_) | AskError::TooLong(_) | AskError::Refused(_) => {
                self.fail(exit::FAILED, error, hint)
            }
        }
    }
}
