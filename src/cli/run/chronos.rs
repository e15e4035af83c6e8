//! The managed scheduler, as the settings describe it: who arms jobs, and who verifies fires.

use std::sync::Arc;

use crate::config::{CronProvider, Settings};
use crate::cron::arming::Arming;
use crate::cron::fire_token::FireTokenRules;
use crate::cron::fire_verifier::FireVerifier;
use crate::cron::jwks::KeySource;
use crate::net::chronos::ChronosClient;
use crate::net::http::HttpEgress;
use crate::net::portal_login::PortalLogin;
use crate::relay::RelayHandle;
use crate::serve::{FireEndpoint, Fires};

/// The two halves of the managed scheduler.
pub(super) struct ManagedScheduler {
    /// Arms jobs.
    pub(super) arming: Arming,
    /// Verifies fires.
    pub(super) verifier: FireVerifier,
}

impl ManagedScheduler {
    /// The managed scheduler, if the settings have all of it.
    pub(super) fn new(
        settings: &Settings,
        egress: &HttpEgress,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let chronos = &settings.cron.chronos;
        let (Some(portal), Some(callback), Some(audience), Some(keys), Some(home)) = (
            &chronos.portal_url,
            &chronos.callback_url,
            &chronos.expected_audience,
            &chronos.nas_jwks_url,
            &settings.hermes_home,
        ) else {
            return Ok(None);
        };
        if settings.cron.provider != CronProvider::Chronos {
            return Ok(None);
        }
        let source =
            KeySource::parse(keys).map_err(|error| format!("`cron.chronos.nas_jwks_url` {error}"))?;
        let client = ChronosClient::new(egress, portal, callback).map_err(|error| error.to_string())?;
        let login = PortalLogin::new(home, env).trusting(portal);
        let rules = FireTokenRules::new(portal, audience);
        let verifier = FireVerifier::new(rules, source, egress).map_err(|error| error.to_string())?;
        Ok(Some(Self {
            arming: Arming::new(client, login),
            verifier,
        }))
    }
}

/// The endpoint that passes verified fires on to the relay.
pub(super) fn fires(
    verifier: FireVerifier,
    settings: &Settings,
    handle: RelayHandle,
) -> Result<Fires, String> {
    let listen = settings.cron.listen_address();
    Ok(Fires {
        endpoint: Arc::new(FireEndpoint::new(verifier, Box::new(handle))),
        listen: listen.map_err(|error| format!("`cron.listen` {error}"))?,
    })
}
