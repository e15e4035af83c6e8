//! This relay's own agents as a target. The connector comes from above: it calls the relay that runs.

use serde::{Deserialize, Serialize};

use super::contract::{ConnectorFeatures, StaticCapabilities};
use super::target::{TargetContext, TargetFault, TargetKind};
use super::{AgentConnector, TargetSetupError, bundled};

/// `{kind: relay}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayTarget {}

impl RelayTarget {
    /// What it can do.
    pub(crate) const CAPABILITIES: StaticCapabilities = {
        let bundled = bundled("relay", true, true);
        StaticCapabilities {
            features: ConnectorFeatures {
                request_response: true,
                ..bundled.features
            },
            ..bundled
        }
    };
}

impl TargetKind for RelayTarget {
    fn capabilities(&self) -> StaticCapabilities {
        Self::CAPABILITIES
    }

    fn agents(&self, own: &[String]) -> Vec<String> {
        own.to_vec()
    }

    fn connect(&self, with: &TargetContext<'_>) -> Result<Box<dyn AgentConnector>, TargetSetupError> {
        Ok((with.relay)())
    }

    fn fault(&self) -> TargetFault {
        TargetFault {
            what: "no relay runs with these settings",
            remedy: "start one with `hermes-relay run`".to_owned(),
        }
    }

    fn needs_running_relay(&self) -> bool {
        true
    }
}
