//! Targets by name, each registered once its health check has passed.

use std::time::Duration;

use super::dispatch::{Dispatched, Notice, dispatch};
use super::{AgentConnector, NamedTarget};

/// Timeout of a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a target was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// Its health check failed.
    #[error("the target `{0}` does not work: its health check failed")]
    Unhealthy(String),
    /// There is one with this name.
    #[error("there is a target `{0}` already")]
    Duplicate(String),
}

/// Targets that worked when they were registered.
#[derive(Debug, Default)]
pub struct TargetRegistry(Vec<NamedTarget>);

impl TargetRegistry {
    /// Adds a target under a name if its health check passes.
    pub async fn register(
        &mut self,
        name: &str,
        connector: Box<dyn AgentConnector>,
    ) -> Result<(), RegistrationError> {
        if self.0.iter().any(|(known, _)| known == name) {
            return Err(RegistrationError::Duplicate(name.to_owned()));
        }
        let health = tokio::time::timeout(HEALTH_TIMEOUT, connector.health_check()).await;
        if !health.unwrap_or(false) {
            return Err(RegistrationError::Unhealthy(name.to_owned()));
        }
        self.0.push((name.to_owned(), connector));
        Ok(())
    }

    /// Hands a notice to every target that has the agent ([`dispatch`]).
    pub async fn dispatch(&self, notice: &Notice) -> Dispatched {
        dispatch(&self.0, notice).await
    }
}
