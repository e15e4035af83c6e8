//! Background tasks of `run`: provisioning credentials while there are none, and declaring the relevance policy.

use std::time::Duration;

use tokio::sync::watch;

use crate::cli::log::LogHandle;
use crate::cli::{Environment, enroll};
use crate::config::{LoadedConfig, Settings};
use crate::net::http::HttpClient;
use crate::relay::{Credentials, provisioning};
use crate::wire::ConnectorUrl;

/// First delay before another attempt; doubles up to the maximum.
const PROVISION_BACKOFF: Duration = Duration::from_secs(5);
/// Maximum delay between attempts.
const MAX_PROVISION_BACKOFF: Duration = Duration::from_secs(300);

/// Requests credentials until there are some, then never returns.
pub(super) async fn provision(
    settings: &Settings,
    url: &ConnectorUrl,
    env: Environment<'_>,
    http: impl Fn() -> Result<HttpClient, String>,
    credentials: &watch::Sender<Option<Credentials>>,
    log: &LogHandle,
) {
    let mut delay = PROVISION_BACKOFF;
    while credentials.borrow().is_none() {
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_PROVISION_BACKOFF);
        let Ok(http) = http() else { continue };
        let provisioned = provisioning::self_provision(settings, url, env, enroll::hostname(), &http).await;
        if provisioned.is_some() {
            use_credentials(credentials, provisioned, log);
        }
    }
    std::future::pending::<()>().await;
}

/// Signs further dials with these credentials.
pub(super) fn use_credentials(
    credentials: &watch::Sender<Option<Credentials>>,
    provisioned: Option<Credentials>,
    log: &LogHandle,
) {
    if let Some(provisioned) = &provisioned {
        log.add_secret("connector.secret", &provisioned.secret);
    }
    credentials.send_replace(provisioned);
}

/// The task that declares the relevance policy; aborted when dropped.
pub(super) struct PolicyDeclaration(Option<tokio::task::JoinHandle<()>>);

impl PolicyDeclaration {
    pub(super) fn start(
        loaded: &LoadedConfig,
        url: &ConnectorUrl,
        http: impl FnOnce() -> Result<HttpClient, String>,
        credentials: &watch::Receiver<Option<Credentials>>,
    ) -> Self {
        let policies = provisioning::policies(loaded);
        if policies.is_empty() {
            return Self(None);
        }
        let (url, credentials) = (url.clone(), credentials.clone());
        let declaration = http().map(|http| provisioning::declare_policies(policies, url, http, credentials));
        if let Err(error) = &declaration {
            tracing::error!(error, "cannot declare the relevance policy");
        }
        Self(declaration.ok().map(tokio::spawn))
    }
}

impl Drop for PolicyDeclaration {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
