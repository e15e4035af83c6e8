//! What goes on beside the link: asking for credentials while there are none, and declaring the relevance policy.

use std::time::Duration;

use tokio::sync::watch;

use crate::cli::logging::LogHandle;
use crate::cli::{Environment, enroll};
use crate::config::{self, Loaded};
use crate::net::http::HttpClient;
use crate::relay::{Credentials, boot};
use crate::wire::ConnectorUrl;

/// Asks for credentials again and again as long as there are none; ends never.
pub(super) async fn provision_on(
    settings: &config::Settings,
    url: &ConnectorUrl,
    env: Environment<'_>,
    http: impl Fn() -> Result<HttpClient, String>,
    credentials: &watch::Sender<Option<Credentials>>,
    log: &LogHandle,
) {
    let mut wait = FIRST_PROVISION_RETRY;
    while credentials.borrow().is_none() {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LAST_PROVISION_RETRY);
        let Ok(http) = http() else { continue };
        if let Some(provisioned) = boot::self_provision(settings, url, env, enroll::hostname(), &http).await {
            put_in_force(credentials, Some(provisioned), log);
        }
    }
    std::future::pending::<()>().await;
}

/// Dials are signed with these from now on.
pub(super) fn put_in_force(
    credentials: &watch::Sender<Option<Credentials>>,
    provisioned: Option<Credentials>,
    log: &LogHandle,
) {
    if let Some(provisioned) = &provisioned {
        log.hide("connector.secret", &provisioned.secret);
    }
    credentials.send_replace(provisioned);
}

/// The first wait before credentials are asked for again; doubles up to the last.
const FIRST_PROVISION_RETRY: Duration = Duration::from_secs(5);
/// The longest wait before credentials are asked for again.
const LAST_PROVISION_RETRY: Duration = Duration::from_secs(300);

/// A policy declaration under way; ends when dropped.
pub(super) struct Declaration(Option<tokio::task::JoinHandle<()>>);

impl Declaration {
    pub(super) fn begin(
        loaded: &Loaded,
        url: &ConnectorUrl,
        http: impl FnOnce() -> Result<HttpClient, String>,
        credentials: &watch::Receiver<Option<Credentials>>,
    ) -> Self {
        let policies = boot::policies(loaded);
        if policies.is_empty() {
            return Self(None);
        }
        let (url, credentials) = (url.clone(), credentials.clone());
        let declared = http().map(|http| boot::declare_policies(policies, url, http, credentials));
        if let Err(error) = &declared {
            tracing::error!(error, "the relevance policy cannot be declared");
        }
        Self(declared.ok().map(tokio::spawn))
    }
}

impl Drop for Declaration {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
