//! AgentConnector: hand an agent something to take in or a playbook to carry out, and learn whether it was woken.
//!
//! [`contract`] has the words of the contract; every substrate is a file of its own that implements [`AgentConnector`]. A delivery is
//! durable where the substrate is and does not interrupt; a wake interrupts where there is an interrupt channel, and delivers where
//! there is none. What broke now is an error; what a substrate cannot do at all is a degraded receipt.

pub mod contract;

use std::pin::Pin;
use std::time::Duration;

use self::contract::{
    AgentActivity, AgentDescriptor, AgentResponse, DeliveryFailure, DeliveryPayload, DeliveryReceipt,
    StaticCapabilities, WakeOpts, WakeReceipt,
};

/// What an [`AgentConnector`] method returns: the outcome, later.
pub type Delivering<'c, T> = Pin<Box<dyn Future<Output = Result<T, DeliveryFailure>> + Send + 'c>>;

/// A way to agents: a webhook, a terminal, a directory, this relay.
pub trait AgentConnector: std::fmt::Debug + Send + Sync {
    /// What this kind of connector can do.
    fn capabilities(&self) -> StaticCapabilities;

    /// The agents that it reaches, without their sessions. Cheap: no network.
    fn list_agents(&self) -> Vec<AgentDescriptor>;

    /// Puts something into an agent's mailbox, without an interruption. `agent_id` may have a session (`agent@session`).
    fn deliver<'c>(&'c self, agent_id: &'c str, payload: &'c DeliveryPayload)
    -> Delivering<'c, DeliveryReceipt>;

    /// Asks for an agent's attention. Without an interrupt channel the context is delivered, with `woken: false`.
    fn wake<'c>(&'c self, agent_id: &'c str, opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt>;

    /// Whether the substrate works; an unreachable one is `false`.
    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;

    /// Delivers and waits for the agent's answer.
    fn request_response<'c>(
        &'c self,
        agent_id: &'c str,
        _payload: &'c DeliveryPayload,
        _timeout: Duration,
    ) -> Delivering<'c, AgentResponse> {
        let implementation = self.capabilities().implementation;
        Box::pin(async move { Err(DeliveryFailure::not_implemented(agent_id, implementation)) })
    }

    /// Whether an agent works.
    fn agent_status<'c>(
        &'c self,
        _agent_id: &'c str,
    ) -> Pin<Box<dyn Future<Output = AgentActivity> + Send + 'c>> {
        Box::pin(async { AgentActivity::Unknown })
    }
}
