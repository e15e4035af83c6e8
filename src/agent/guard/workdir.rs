//! Refuses turns whose working directory does not exist: an agent that is started there fails in a way that hides the cause.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::delegate;
use crate::agent::{Agent, AgentFuture, AgentHealth, Failure, FailureClass, TELL_OPERATOR, Turn, TurnEnd};

/// Why an agent cannot work in a directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkdirError {
    /// It does not exist.
    #[error("the working directory {} does not exist; create it with `mkdir -p`, or correct `workdir`", .0.display())]
    Missing(PathBuf),
    /// It is a file.
    #[error("the working directory {} is not a directory; correct `workdir`", .0.display())]
    NotDirectory(PathBuf),
    /// This user cannot look at it.
    #[error("the working directory {} cannot be used: {why}; check its permissions, or correct `workdir`", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The reason of the operating system.
        why: String,
    },
}

/// Whether an agent can be started in a directory.
pub fn check_workdir(path: &Path) -> Result<(), WorkdirError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(WorkdirError::NotDirectory(path.to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(WorkdirError::Missing(path.to_owned()))
        }
        Err(error) => Err(WorkdirError::Unusable {
            path: path.to_owned(),
            why: error.to_string(),
        }),
    }
}

/// Checks the working directory of each turn before its agent gets it, and that of the settings with the agent's health.
pub struct WorkdirCheck {
    inner: Arc<dyn Agent>,
    workdir: Option<PathBuf>,
}

impl WorkdirCheck {
    /// Guards `inner`, whose turns work in `workdir` unless they name another directory.
    pub fn new(inner: Arc<dyn Agent>, workdir: Option<PathBuf>) -> Self {
        Self { inner, workdir }
    }
}

impl Agent for WorkdirCheck {
    delegate!(inner: info, rest);

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        match self.workdir.as_deref().map(check_workdir) {
            Some(Err(error)) => Box::pin(async move { AgentHealth::Down(error.to_string()) }),
            Some(Ok(())) | None => self.inner.health(),
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        let workdir = turn.workdir.as_deref().or(self.workdir.as_deref());
        match workdir.map(check_workdir) {
            Some(Err(error)) => {
                let public = format!("My working directory is missing. {TELL_OPERATOR}");
                let failure = Failure::new(FailureClass::Unavailable, public, error.to_string());
                Box::pin(async move { TurnEnd::Failed(failure.without_side_effects()) })
            }
            Some(Ok(())) | None => self.inner.run(turn),
        }
    }
}
