//! Nobody as a target: everything is accepted, and nothing is pushed.

use std::pin::Pin;

use serde::{Deserialize, Serialize};

use super::contract::{
    AgentDescriptor, DeliveryPayload, DeliveryReceipt, StaticCapabilities, WakeOpts, WakeReceipt,
};
use super::degraded::deliver_instead;
use super::target::{TargetContext, TargetFault, TargetKind};
use super::{AgentConnector, Delivering, TargetSetupError, bundled, now_ms};

/// `{kind: noop}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoopTarget {}

impl TargetKind for NoopTarget {
    fn capabilities(&self) -> StaticCapabilities {
        NoopConnector::CAPABILITIES
    }

    fn agents(&self, _own: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn connect(&self, _with: &TargetContext<'_>) -> Result<Box<dyn AgentConnector>, TargetSetupError> {
        Ok(Box::new(NoopConnector))
    }

    fn fault(&self) -> TargetFault {
        TargetFault {
            what: "it does not work",
            remedy: String::new(),
        }
    }
}

/// Accepts everything and does nothing. It has no agents, so no notice is routed to it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopConnector;

impl NoopConnector {
    /// What it can do.
    pub const CAPABILITIES: StaticCapabilities = bundled("noop", false, false);
}

impl AgentConnector for NoopConnector {
    fn capabilities(&self) -> StaticCapabilities {
        Self::CAPABILITIES
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        Vec::new()
    }

    fn deliver<'c>(
        &'c self,
        _agent_id: &'c str,
        _payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        Box::pin(async {
            Ok(DeliveryReceipt {
                delivered_at: now_ms(),
                delivery_skipped: Some(true),
                ..DeliveryReceipt::default()
            })
        })
    }

    fn wake<'c>(&'c self, agent_id: &'c str, opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        Box::pin(deliver_instead(self, agent_id, opts))
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async { true })
    }
}
