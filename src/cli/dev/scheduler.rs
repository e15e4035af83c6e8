//! The managed scheduler of `dev`, which has and fires the jobs of this run.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::run::chronos::ManagedScheduler;
use crate::cli::run::egress;
use crate::config::{ChronosConfig, CronProvider, Settings};
use crate::dev::{EmbeddedScheduler, SchedulerSettings};
use crate::net::proxy::ProxyRules;
use crate::relay::provisioning;
use crate::serve::FireListener;

/// The managed scheduler, the login for it, and where the relay listens for its fires.
pub(super) struct DevScheduler {
    managed: Arc<EmbeddedScheduler>,
    home: PathBuf,
    callback: SocketAddr,
}

impl DevScheduler {
    /// Starts a managed scheduler. Its login is written below the state directory, which is this run's own.
    pub(super) async fn start(settings: &Settings) -> Result<Self, String> {
        let managed = EmbeddedScheduler::start(SchedulerSettings::default()).await;
        let managed = managed.map_err(|error| format!("cannot start the embedded scheduler: {error}"))?;
        let home = settings.state_dir.with_file_name("scheduler-login");
        let written = managed.write_login(&home);
        written.map_err(|error| format!("cannot write {}: {error}", home.display()))?;
        Ok(Self {
            managed: Arc::new(managed),
            home,
            callback: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        })
    }

    /// The managed scheduler, for the page.
    pub(super) fn managed(&self) -> Arc<EmbeddedScheduler> {
        Arc::clone(&self.managed)
    }

    /// Makes a relay with these settings use it: who arms and verifies, and the listener for its fires.
    pub(super) fn attach(
        &mut self,
        settings: &mut Settings,
    ) -> Result<(ManagedScheduler, FireListener), String> {
        let listener = FireListener::bind(self.callback).map_err(|error| error.to_string())?;
        self.callback = listener.local_addr();
        settings.cron.provider = CronProvider::Chronos;
        settings.cron.chronos = ChronosConfig {
            portal_url: Some(self.managed.portal_url()),
            callback_url: Some(format!("http://{}", self.callback)),
            expected_audience: Some(self.managed.audience().to_owned()),
            nas_jwks_url: Some(self.managed.jwks_url()),
        };
        let mut login = settings.clone();
        login.hermes_home = Some(self.home.clone());
        let egress = egress(&provisioning::tls(settings), &ProxyRules::none());
        let managed = ManagedScheduler::new(&login, &egress, &|_| None)?;
        let managed = managed.ok_or("the embedded scheduler is not set up")?;
        Ok((managed, listener))
    }
}
