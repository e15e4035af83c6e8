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
use crate::serve::{FireEndpoint, FireListener, Fires, ServeError};

/// The two halves of the managed scheduler.
pub(in crate::cli) struct ManagedScheduler {
    /// Arms jobs.
    pub(in crate::cli) arming: Arming,
    /// Verifies fires.
    pub(in crate::cli) verifier: FireVerifier,
}

impl ManagedScheduler {
    /// The managed scheduler, if the settings have all of it.
    pub(in crate::cli) fn new(
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

/// The endpoint that passes verified fires on to the relay, and its own listener where the settings have one. A scheduler that is
/// not or only half set up has an endpoint that refuses, so that it retries, and a container has its health check.
pub(super) fn fires(
    verifier: Option<FireVerifier>,
    settings: &Settings,
    handle: RelayHandle,
) -> Result<Option<Fires>, ServeError> {
    let is_wanted = settings.cron.provider == CronProvider::Chronos || settings.cron.listen.is_some();
    if verifier.is_none() && !is_wanted {
        return Ok(None);
    }
    let key = "cron.listen";
    let address = settings.cron.listen_address();
    let address = address.map_err(|why| ServeError::Address { key, why })?;
    Ok(Some(Fires {
        endpoint: Arc::new(FireEndpoint::new(verifier, Box::new(handle))),
        listener: address.map(FireListener::bind).transpose()?,
    }))
}
