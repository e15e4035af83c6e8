//! Background tasks of `run`: provisioning credentials while there are none, and declaring the relevance policy.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

use crate::backoff::Backoff;
use crate::cli::enroll;
use crate::cli::log::LogHandle;
use crate::config::{LoadedConfig, Settings};
use crate::net::http::HttpClient;
use crate::net::identity::{IdentityError, IdentitySource};
use crate::relay::{Credentials, provisioning};
use crate::wire::ConnectorUrl;

/// First delay before another attempt; doubles up to the maximum.
const PROVISION_BACKOFF: Duration = Duration::from_secs(5);
/// Maximum delay between attempts.
const MAX_PROVISION_BACKOFF: Duration = Duration::from_secs(300);

/// Requests credentials until there are some, then never returns. Those of a reload come first.
pub(super) async fn provision(
    settings: &Settings,
    url: &ConnectorUrl,
    identity: &Result<IdentitySource, IdentityError>,
    http: impl Fn() -> Result<HttpClient, String>,
    credentials: &watch::Sender<Option<Credentials>>,
    log: &LogHandle,
) {
    let asking = async {
        let mut backoff = Backoff::new(PROVISION_BACKOFF, MAX_PROVISION_BACKOFF);
        loop {
            tokio::time::sleep(backoff.next_delay()).await;
            let Ok(http) = http() else { continue };
            let asked = provisioning::self_provision(settings, url, identity, enroll::hostname(), &http);
            if let Some(provisioned) = asked.await {
                return provisioned;
            }
        }
    };
    let provisioned = unless_some(credentials, asking).await;
    if provisioned.is_some() {
        use_credentials(credentials, provisioned, log);
    }
    std::future::pending::<()>().await;
}

/// What `asking` returns; nothing when there are credentials before it does.
async fn unless_some<C, T>(
    credentials: &watch::Sender<Option<C>>,
    asking: impl Future<Output = T>,
) -> Option<T> {
    let mut watched = credentials.subscribe();
    tokio::select! {
        biased;
        _ = watched.wait_for(Option::is_some) => None,
        asked = asking => credentials.borrow().is_none().then_some(asked),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn credentials_of_a_reload_are_not_overwritten() {
        let credentials = watch::Sender::new(None);
        assert_eq!(unless_some(&credentials, async { "asked" }).await, Some("asked"));
        let late = async {
            tokio::task::yield_now().await;
            credentials.send_replace(Some("reloaded"));
            tokio::task::yield_now().await;
            "asked"
        };
        assert_eq!(unless_some(&credentials, late).await, None);
        let never = std::future::pending::<&str>();
        assert_eq!(unless_some(&credentials, never).await, None);
    }
}
