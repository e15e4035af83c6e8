//! The context of the probes: their input, and what earlier probes found.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::agent::child::BaseEnv;
use crate::config::{Flags, LoadedConfig, Settings};
use crate::net::proxy::ProxyRules;
use crate::net::socket::ConnectorSocket;
use crate::net::steps::Steps;
use crate::net::tls::Tls;
use crate::wire::{CapabilityDescriptor, ConnectorUrl};

/// Timeout of all probes together.
pub const BUDGET: Duration = Duration::from_secs(30);
/// Timeout of one step.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// Probes with side effects that the user allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consent {
    /// Dial as this gateway while a relay runs: the connector may close that relay's connection.
    pub dial: bool,
    /// Declare the relevance policy.
    pub declare: bool,
}

/// Input and intermediate results of the probes.
pub struct CheckContext<'e> {
    pub(super) flags: Flags,
    pub(super) env: &'e dyn Fn(&str) -> Option<String>,
    pub(super) base: BaseEnv,
    pub(super) consent: Consent,
    pub(super) proxies: ProxyRules,
    deadline: Instant,
    pub(super) loaded: Option<LoadedSettings>,
    /// The connector, once its URL is known to be valid.
    pub(super) connector: Option<ConnectorUrl>,
    pub(super) target: Option<PeerTarget>,
    pub(super) running: RunningRelay,
    /// Why the running relay does not receive, in its words.
    pub(super) running_trouble: Option<String>,
    pub(super) addresses: Vec<SocketAddr>,
    /// How far the connector's clock is ahead.
    pub(super) clock_skew_secs: i64,
    pub(super) socket: Option<ConnectorSocket>,
    pub(super) descriptors: Vec<CapabilityDescriptor>,
}

/// The settings, once loaded.
pub(super) struct LoadedSettings {
    pub(super) loaded: LoadedConfig,
    pub(super) tls: Tls,
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A connector.
    Connector,
    /// Telegram's Bot API, without a connector.
    Telegram,
    /// Discord's REST API and gateway, without a connector.
    Discord,
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connector => "the connector",
            Self::Telegram => "the Bot API",
            Self::Discord => "Discord's API",
        }
    }

    /// Where its address is set.
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Connector => "the connector URL",
            Self::Telegram => "`direct.telegram.api_base`",
            Self::Discord => "`direct.discord.api_base`",
        }
    }

    /// What to do when it cannot be connected to.
    pub(super) fn connect_remedy(self) -> &'static str {
        match self {
            Self::Connector => {
                "check that the connector runs at that address and port, and that no firewall is in between"
            }
            Self::Telegram => {
                "check this machine's network and firewall; where Telegram is blocked, set HTTPS_PROXY to a proxy that reaches it"
            }
            Self::Discord => {
                "check this machine's network and firewall; where Discord is blocked, set HTTPS_PROXY to a proxy that reaches it"
            }
        }
    }
}

/// The other end, once its address is known to be valid.
pub(super) struct PeerTarget {
    pub(super) peer: Peer,
    pub(super) host: String,
    pub(super) is_loopback: bool,
    pub(super) is_plaintext: bool,
    /// Base URL of its HTTP routes; never ends in a slash.
    pub(super) http_base: String,
    pub(super) steps: Steps,
}

/// The relay that uses the state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RunningRelay {
    /// There is none.
    None,
    /// This process, which is or may be connected.
    Connected(String),
    /// This process, which is not connected.
    Disconnected(String),
    /// Not known.
    Unknown,
}

impl fmt::Debug for CheckContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckContext")
            .field("consent", &self.consent)
            .finish_non_exhaustive()
    }
}

impl<'e> CheckContext<'e> {
    /// Creates a context; the budget starts now.
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
            deadline: Instant::now() + BUDGET,
            loaded: None,
            connector: None,
            target: None,
            running: RunningRelay::Unknown,
            running_trouble: None,
            addresses: Vec::new(),
            clock_skew_secs: 0,
            socket: None,
            descriptors: Vec::new(),
        }
    }

    /// The settings, once loaded.
    pub(super) fn settings(&self) -> Option<&Settings> {
        self.loaded.as_ref().map(|known| &known.loaded.settings)
    }

    /// Whether this one is at the other end, by the settings.
    pub(super) fn has_peer(&self, peer: Peer) -> bool {
        let direct = self.settings().map(|settings| &settings.direct);
        match peer {
            Peer::Connector => self.settings().is_none_or(Settings::has_connector),
            Peer::Telegram => direct.is_some_and(|direct| direct.telegram.is_some()),
            Peer::Discord => direct.is_some_and(|direct| direct.discord.is_some()),
        }
    }

    pub(super) fn is_expired(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The deadline of a step that starts now.
    pub(super) fn step_deadline(&self) -> Instant {
        self.deadline.min(Instant::now() + STEP_TIMEOUT)
    }

    /// Runs a step; `None` on a timeout.
    pub(super) async fn step<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        timeout_at(self.step_deadline(), step).await.ok()
    }

    /// Runs a step that waits for `wait` by itself; `None` on a timeout.
    pub(super) async fn waiting_step<T>(&self, wait: Duration, step: impl Future<Output = T>) -> Option<T> {
        let deadline = self.deadline.min(self.step_deadline() + wait);
        timeout_at(deadline, step).await.ok()
    }
}

/// Whether the settings are those of a worker, which has neither a connector nor a bot.
pub(super) fn is_workers_file(settings: &Settings) -> bool {
    settings.worker.is_some() && settings.connector.url.is_none() && !settings.direct.is_bot()
}

/// The message for a step that timed out.
pub(super) fn timed_out(what: &str) -> String {
    format!("{what}: no response within {} s", STEP_TIMEOUT.as_secs())
}
