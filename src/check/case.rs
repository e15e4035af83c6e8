//! What the probes look at, and what they have learned on the way.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::agent::child::BaseEnv;
use crate::config::{Flags, Loaded, Settings};
use crate::net::proxy::ProxyRules;
use crate::net::socket::Socket;
use crate::net::steps::Steps;
use crate::net::tls::Tls;
use crate::wire::{CapabilityDescriptor, ConnectorUrl};

/// The longest that all probes take together.
pub const BUDGET: Duration = Duration::from_secs(30);
/// The longest that one step takes.
pub(super) const STEP: Duration = Duration::from_secs(5);

/// What the person allows beyond looking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consent {
    /// Dial as this gateway although a relay runs: the connector may drop that relay's connection for ours.
    pub dial: bool,
    /// Declare the relevance policy.
    pub declare: bool,
}

/// One examination.
pub struct Case<'e> {
    pub(super) flags: Flags,
    pub(super) env: &'e dyn Fn(&str) -> Option<String>,
    pub(super) base: BaseEnv,
    pub(super) consent: Consent,
    pub(super) proxies: ProxyRules,
    until: Instant,
    pub(super) known: Option<Known>,
    pub(super) place: Option<Place>,
    pub(super) running: Running,
    pub(super) addresses: Vec<SocketAddr>,
    /// How far the connector's clock is ahead, in seconds.
    pub(super) ahead_secs: i64,
    pub(super) socket: Option<Socket>,
    pub(super) descriptors: Vec<CapabilityDescriptor>,
}

/// The settings, once they could be read.
pub(super) struct Known {
    pub(super) loaded: Loaded,
    pub(super) tls: Tls,
}

/// The connector's address, once it could be read.
pub(super) struct Place {
    pub(super) url: ConnectorUrl,
    pub(super) steps: Steps,
}

/// Whether a relay holds the state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Running {
    /// Nobody does.
    Nobody,
    /// This process does, and is connected for all that is known.
    Process(String),
    /// This process does, and is not connected.
    Away(String),
    /// It cannot be told.
    Unknown,
}

impl fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("consent", &self.consent)
            .finish_non_exhaustive()
    }
}

impl<'e> Case<'e> {
    /// Begins an examination; its time runs from here.
    pub fn new(
        flags: Flags,
        env: &'e dyn Fn(&str) -> Option<String>,
        base: BaseEnv,
        consent: Consent,
    ) -> Self {
        Self {
            flags,
            env,
            base,
            consent,
            proxies: ProxyRules::from_env(env),
            until: Instant::now() + BUDGET,
            known: None,
            place: None,
            running: Running::Unknown,
            addresses: Vec::new(),
            ahead_secs: 0,
            socket: None,
            descriptors: Vec::new(),
        }
    }

    /// The settings; there once the probe of that name has passed.
    pub(super) fn settings(&self) -> Option<&Settings> {
        self.known.as_ref().map(|known| &known.loaded.settings)
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// When a step that starts now has to be done.
    pub(super) fn deadline(&self) -> Instant {
        self.until.min(Instant::now() + STEP)
    }

    /// Does a step within its time; `None` when that was not enough.
    pub(super) async fn within<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        timeout_at(self.deadline(), step).await.ok()
    }
}

/// The words for a step that took too long.
pub(super) fn too_slow(what: &str) -> String {
    format!("{what}: no answer within {} s", STEP.as_secs())
}
