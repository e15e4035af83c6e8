//! A target whose settings or secrets cannot be used.

use std::pin::Pin;
use std::time::Duration;

use super::contract::{
    AgentDescriptor, AgentResponse, CauseKind, DeliveryFailure, DeliveryPayload, DeliveryReceipt,
    StaticCapabilities, WakeOpts, WakeReceipt,
};
use super::{AgentConnector, Delivering};

/// Refuses everything, and says why.
#[derive(Debug)]
pub(crate) struct UnusableConnector {
    /// What its kind could do.
    pub capabilities: StaticCapabilities,
    /// The agents that it does not reach.
    pub agents: Vec<String>,
    /// Why not.
    pub reason: String,
}

impl UnusableConnector {
    fn refuse<T: Send + 'static>(&self, agent_id: &str) -> Delivering<'_, T> {
        let reason = self.reason.clone();
        let failure = DeliveryFailure::new(CauseKind::ClientValidation, agent_id, reason);
        Box::pin(std::future::ready(Err(failure)))
    }
}

impl AgentConnector for UnusableConnector {
    fn capabilities(&self) -> StaticCapabilities {
        self.capabilities
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        let ids = self.agents.iter();
        ids.map(|id| AgentDescriptor {
            agent_id: id.clone(),
            agent_name: None,
            capabilities: None,
        })
        .collect()
    }

    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        _payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        self.refuse(agent_id)
    }

    fn wake<'c>(&'c self, agent_id: &'c str, _opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        self.refuse(agent_id)
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(std::future::ready(false))
    }

    fn request_response<'c>(
        &'c self,
        agent_id: &'c str,
        _payload: &'c DeliveryPayload,
        _timeout: Duration,
    ) -> Delivering<'c, AgentResponse> {
        self.refuse(agent_id)
    }
}
