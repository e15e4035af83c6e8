//! `AgentConnector`: hand an agent something to take in or a playbook to carry out, and learn whether it was woken.
//!
//! [`contract`] has the words of the contract, among them *substrate*: what carries a delivery. A delivery is durable where the
//! substrate is and does not interrupt; a wake interrupts where there is an interrupt channel, and delivers where there is none. What
//! broke now is an error; what a substrate cannot do at all is a degraded receipt.
//!
//! To people a configured connector is a *target* (`notify.targets` in the settings) and its substrate a *kind*. A kind is one file: the
//! settings of such a [`NotifyTarget`], and the [`AgentConnector`] that they make. [`dispatch()`] routes one notice to every target that has
//! the agent: a bare address delivers, `agent@session` wakes. A [`TargetRegistry`] takes only targets that work.
//!
//! This is another thing than the chat connector that the relay dials.

mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
mod degraded;
mod dispatch;
mod file;
mod noop;
mod receipt;
mod registry;
mod relay;
mod subprocess;
mod target;
mod tmux;
mod unusable;
mod wake_turn;
mod webhook;

pub use command::{CommandConnector, CommandTarget, ProgramAgent};
pub use dispatch::{
    DispatchOutcome, DispatchRoute, Dispatched, DispatchedTo, MAX_NOTICE_BYTES, Notice, dispatch,
    new_dispatch_id,
};
pub use file::{FileConnector, FileTarget};
pub use noop::{NoopConnector, NoopTarget};
pub use registry::{RegistrationError, TargetRegistry};
pub use relay::RelayTarget;
pub use target::NotifyTarget;
pub(crate) use target::{SecretSources, TargetContext};
pub use tmux::{TmuxAgent, TmuxConnector, TmuxTarget};
pub(crate) use unusable::UnusableConnector;
pub use wake_turn::{WakeTurnError, wake_payload, wake_receipt};
pub use webhook::{AuthValue, WebhookAgent, WebhookConnector, WebhookCredentials, WebhookTarget};

use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::contract::{
    AgentActivity, AgentDescriptor, AgentResponse, CONTRACT_VERSION, ConnectorFeatures, DeliveryFailure,
    DeliveryPayload, DeliveryReceipt, StaticCapabilities, WakeOpts, WakeReceipt,
};

/// A target: its name, and the connector behind it.
pub type NamedTarget = (String, Box<dyn AgentConnector>);

/// What an [`AgentConnector`] method returns: the outcome, later.
pub type Delivering<'c, T> = Pin<Box<dyn Future<Output = Result<T, DeliveryFailure>> + Send + 'c>>;

/// A way to agents: a webhook, a terminal, a directory, this relay.
pub trait AgentConnector: std::fmt::Debug + Send + Sync {
    /// What connectors of this kind can do.
    fn capabilities(&self) -> StaticCapabilities;

    /// The agents that it reaches, without their sessions. Cheap: no network.
    fn list_agents(&self) -> Vec<AgentDescriptor>;

    /// Puts something into an agent's mailbox, without an interruption. `agent_id` may have a session (`agent@session`).
    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt>;

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

/// Why a target cannot be used as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TargetSetupError(pub String);

/// The capabilities of a bundled substrate: it delivers, knows its agents and can be checked.
const fn bundled(implementation: &'static str, wake: bool, agent_status: bool) -> StaticCapabilities {
    StaticCapabilities {
        connector_type: "agent_connector",
        implementation,
        contract_version: CONTRACT_VERSION,
        features: ConnectorFeatures {
            deliver: true,
            wake,
            list_agents: true,
            agent_status,
            health_check: true,
            request_response: false,
        },
    }
}

/// An agent of a bundled substrate.
pub(crate) fn descriptor(agent_id: &str, wakes: bool) -> AgentDescriptor {
    let all = ["deliver", "augment", "template", "wake"];
    let capabilities = all.into_iter().filter(|name| wakes || *name != "wake");
    AgentDescriptor {
        agent_id: agent_id.to_owned(),
        agent_name: None,
        capabilities: Some(capabilities.map(str::to_owned).collect()),
    }
}

/// Unix milliseconds.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
