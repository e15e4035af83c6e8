//! A relay that runs in another process: how verbs find it, call it and report errors.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::Environment;
use super::caller::{self, Refusal, TurnVariables};
use super::exit::{self, ErrorFormat, errln};
use crate::config::{self, ConfigError, Flags, LoadedConfig, Settings, Sources};
use crate::serve::ControlRequest;
use crate::serve::client::{self, ClientError};
use crate::store::{Holder, InspectError, Inspector, OpenError, held_by};

/// Which relay to call.
#[derive(Args, Debug, Clone)]
pub(super) struct RemoteArgs {
    /// Settings file, which may name the state directory.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// State directory of the relay [default: as for `run`].
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
    /// Print JSON on one line, errors included.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// A relay that can be called while it runs.
pub(super) struct RemoteRelay {
    loaded: LoadedConfig,
    errors: ErrorFormat,
    turn: TurnVariables,
    /// Why its settings cannot be loaded; then `loaded` has only its state directory.
    unloadable: Option<ConfigError>,
}

impl RemoteArgs {
    /// The relay with this settings file and this state directory.
    pub(super) fn new(config: Option<PathBuf>, state_dir: Option<PathBuf>) -> Self {
        Self {
            config,
            state_dir,
            json: false,
        }
    }

    /// The relay with this settings file.
    pub(super) fn with_config(config: Option<PathBuf>) -> Self {
        Self::new(config, None)
    }

    /// Finds the relay with the same settings as `run`; in an agent's shell, the one that started it.
    pub(super) fn load(&self, env: Environment<'_>) -> Result<RemoteRelay, ConfigError> {
        let flags = Flags::of_relay(self.config.clone(), self.state_dir.clone());
        let loaded = config::load(&Sources { flags, env })?;
        let errors = ErrorFormat::new(self.json);
        Ok(RemoteRelay::new(loaded, errors, env))
    }

    /// The same for a verb that only asks the relay: one that runs is also found when its settings cannot be loaded any more, which
    /// is a warning then.
    pub(super) fn load_running(&self, env: Environment<'_>) -> Result<RemoteRelay, ConfigError> {
        let error = match self.load(env) {
            Ok(relay) => return Ok(relay),
            Err(error) => error,
        };
        let flags = Flags::of_relay(self.config.clone(), self.state_dir.clone());
        let Ok(place) = config::load_place(&Sources { flags, env }) else {
            return Err(error);
        };
        let mut relay = RemoteRelay::new(place, ErrorFormat::new(self.json), env);
        if !caller::is_served(&relay) {
            return Err(error);
        }
        errln!("warning: {error}");
        errln!("hint: the relay runs with the settings that it has; correct these before its next start");
        relay.unloadable = Some(error);
        Ok(relay)
    }

    /// Finds the relay; reports an error and returns its exit code.
    pub(super) fn relay(&self, env: Environment<'_>) -> Result<RemoteRelay, ExitCode> {
        self.load(env).map_err(|error| self.refuse(error))
    }

    /// [`Self::load_running`]; reports an error and returns its exit code.
    pub(super) fn running(&self, env: Environment<'_>) -> Result<RemoteRelay, ExitCode> {
        self.load_running(env).map_err(|error| self.refuse(error))
    }

    fn refuse(&self, error: ConfigError) -> ExitCode {
        ErrorFormat::new(self.json).fail(exit::CONFIGURATION, error, None)
    }

    /// Finds and calls the relay; reports an error and returns its exit code.
    pub(super) fn call(&self, env: Environment<'_>, request: &ControlRequest) -> Result<Value, ExitCode> {
        let relay = self.running(env)?;
        relay.call(request).map_err(|error| relay.report(&error, None))
    }

    /// Prints a result as JSON or as text.
    pub(super) fn print(&self, json: &Value, text: impl Display) -> ExitCode {
        if self.json {
            exit::print(json)
        } else {
            exit::print(text)
        }
    }
}

impl RemoteRelay {
    /// The relay with these settings.
    pub(super) fn new(loaded: LoadedConfig, errors: ErrorFormat, env: Environment<'_>) -> Self {
        Self {
            loaded,
            errors,
            turn: TurnVariables::read(env),
            unloadable: None,
        }
    }

    /// Why its settings cannot be loaded, although it runs.
    pub(super) fn unloadable(&self) -> Option<&ConfigError> {
        self.unloadable.as_ref()
    }

    /// Its settings and where they come from.
    pub(super) fn loaded(&self) -> &LoadedConfig {
        &self.loaded
    }

    /// Its settings.
    pub(super) fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// Whether there is a journal. Where there is none, whoever looks something up, or changes what must be there already, finds
    /// nothing and makes no files.
    pub(super) fn has_journal(&self) -> bool {
        let opened = Inspector::open(&self.loaded.settings.state_dir);
        !matches!(opened, Err(InspectError::NoJournal(_)))
    }

    /// What the environment says of the turn that started this process.
    pub(super) fn turn_variables(&self) -> &TurnVariables {
        &self.turn
    }

    /// Makes a request, if whoever runs this may.
    pub(super) fn call(&self, request: &ControlRequest) -> Result<Value, ClientError> {
        caller::permit(self, request)?;
        client::call(&self.loaded.settings.state_dir, request)
    }

    /// Prints the error and the hint; returns the exit code.
    pub(super) fn fail(&self, code: u8, error: impl Display, hint: Option<&str>) -> ExitCode {
        self.errors.fail(code, error, hint)
    }

    /// The process that holds the state directory.
    fn holder(&self) -> Option<u32> {
        let holder = held_by(&self.loaded.settings.state_dir).ok().flatten();
        holder.and_then(Holder::pid)
    }

    /// Reports that a process holds the state directory, and does not listen on its control socket.
    fn not_ready(&self, code: u8, pid: u32) -> ExitCode {
        let what = format!("no relay answers here, but process {pid} holds the state directory");
        let hint = "it is starting or ending, so try again in a moment; its log says what it waits for, such as credentials";
        self.fail(code, what, Some(hint))
    }

    /// Reports that another process uses the files that a verb would change; `hint` is for a relay without a control socket, or that
    /// does not know the request.
    pub(super) fn in_use(&self, error: &OpenError, hint: &str) -> ExitCode {
        match self.holder() {
            Some(pid) if self.loaded.settings.serve.control && !caller::is_served(self) => {
                self.not_ready(exit::TRY_AGAIN, pid)
            }
            _ => self.fail(exit::TRY_AGAIN, error, Some(hint)),
        }
    }

    /// Reports a failed call; `hint` is for a request that the relay refused.
    pub(super) fn report(&self, error: &ClientError, hint: Option<&str>) -> ExitCode {
        match error {
            ClientError::NotRunning(_) if !self.loaded.settings.serve.control => self.fail(
                exit::UNAVAILABLE,
                "the control socket is disabled (`serve.control: false`)",
                Some("set `serve.control: true` and restart the relay"),
            ),
            ClientError::NotRunning(_) => {
                if let Some(pid) = self.holder() {
                    return self.not_ready(exit::UNAVAILABLE, pid);
                }
                let dir = self.loaded.settings.state_dir.display();
                let origin = self.loaded.origins.of("state_dir");
                let hint = format!(
                    "start one with `hermes-relay run`; if one runs with another state directory than {dir} ({origin}), \
                     name it with --state-dir DIR"
                );
                self.fail(exit::UNAVAILABLE, error, Some(&hint))
            }
            ClientError::Denied { .. } => self.fail(
                exit::CONFIGURATION,
                error,
                Some("run this as the user that runs the relay"),
            ),
            ClientError::Silent { .. } => {
                let stopped = self.holder().map(|pid| {
                    format!("if process {pid} is stopped, `kill -CONT {pid}` lets it go on; otherwise ")
                });
                let hint = format!(
                    "{}check its log, and restart it if it stays silent",
                    stopped.unwrap_or_default()
                );
                self.fail(exit::UNAVAILABLE, error, Some(&hint))
            }
            ClientError::NoResponse { .. } => self.fail(
                exit::UNAVAILABLE,
                error,
                Some("it may be starting or shutting down; check its log and try again"),
            ),
            ClientError::Refused(refused) if refused.code == "silent" => {
                self.fail(exit::UNAVAILABLE, error, Some("check its log and try again"))
            }
            ClientError::Refused(refused) if Refusal::of(refused).is_some() => {
                self.fail(exit::FAILED, error, Refusal::of(refused).map(Refusal::hint))
            }
            ClientError::InvalidResponse(_) | ClientError::TooLong(..) | ClientError::Refused(_) => {
                self.fail(exit::FAILED, error, hint)
            }
        }
    }
}
