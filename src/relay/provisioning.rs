//! Beside the first dial: asks for credentials where none are pinned, and declares the relevance policy.
//!
//! Both fail soft. Without credentials the relay dials unauthenticated; a policy that is not accepted is declared again until
//! it is, and delays nothing.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::clock::{now_ms, unix_ms};
use super::transport::Credentials;
use crate::backoff::Backoff;
use crate::config::{LoadedConfig, Settings};
use crate::net::connector_http::{
    PolicyError, ProvisionOutcome, ProvisionRequest, declare_policy, provision_all,
};
use crate::net::http::HttpClient;
use crate::net::identity::{IdentityError, IdentitySource, IdpSettings};
use crate::net::tls::Tls;
use crate::wire::{ConnectorUrl, RelevancePolicy, TOKEN_TTL_SECS, UpgradeToken};

/// The first wait before a policy is declared again; it doubles from there.
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// The longest such wait.
const MAX_RETRY: Duration = Duration::from_secs(300);

/// The credentials that the settings themselves hold; both parts or none.
pub fn pinned_credentials(settings: &Settings) -> Option<Credentials> {
    let connector = &settings.connector;
    let (gateway_id, secret) = (connector.gateway_id.clone()?, connector.secret.clone()?);
    Some(Credentials { gateway_id, secret })
}

/// The TLS settings in the form in which connections use them.
pub fn tls(settings: &Settings) -> Tls {
    Tls::new(settings.tls.client())
}

/// One provision request for each identity.
pub fn provision_requests(settings: &Settings, gateway_id: &str) -> Vec<ProvisionRequest> {
    let connector = &settings.connector;
    let request = |identity: &crate::config::BotIdentity| ProvisionRequest {
        gateway_id: gateway_id.to_owned(),
        platform: identity.platform.clone(),
        bot_id: identity.bot_id.clone(),
        gateway_endpoint: connector.endpoint.clone().unwrap_or_default(),
        route_keys: connector.route_keys.clone(),
        instance_id: connector.instance_id.clone(),
        wake_url: connector.wake_url.clone(),
        display_name: connector.display_name.clone(),
    };
    connector.identities.iter().map(request).collect()
}

/// Where an identity token comes from, as the settings say.
pub fn idp_settings(settings: &Settings) -> IdpSettings {
    IdpSettings {
        token_url: settings.idp.token_url.clone(),
        client_id: settings.idp.client_id.clone(),
        client_secret: settings.idp.client_secret.clone(),
        scope: settings.idp.scope.clone(),
    }
}

/// The source of identity tokens that the environment and the settings ask for.
pub fn identity_source(
    settings: &Settings,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<IdentitySource, IdentityError> {
    let home = settings.hermes_home.clone().unwrap_or_else(|| PathBuf::from("."));
    IdentitySource::choose(env, &idp_settings(settings), &home)
}

/// Asks the connector for credentials, in memory only. Nothing when they are pinned already, or when the
/// connector gives none; then the log says why.
pub async fn self_provision(
    settings: &Settings,
    url: &ConnectorUrl,
    identity: &Result<IdentitySource, IdentityError>,
    hostname: Option<String>,
    http: &HttpClient,
) -> Option<Credentials> {
    let gateway_id = settings
        .connector
        .gateway_id
        .clone()
        .unwrap_or_else(|| format!("gw-{}", hostname.unwrap_or_else(|| "hermes".to_owned())));
    let refused = |error: &IdentityError| {
        tracing::warn!(%error, "no secret is set, and there is no identity to request one with; dialing without credentials");
    };
    let source = identity.as_ref().map_err(refused).ok()?;
    let token = source.token(http).await.map_err(|error| refused(&error)).ok()?;
    let requests = provision_requests(settings, &gateway_id);
    let provisioning = provision_all(http, url.http_base(), &token, &requests).await;
    for (request, result) in requests.iter().zip(&provisioning.results) {
        if let Err(error) = result {
            tracing::warn!(platform = request.platform, %error, "the connector did not provision this identity");
        }
    }
    match provisioning.outcome() {
        ProvisionOutcome::Issued {
            gateway_id, secret, ..
        } => {
            tracing::info!(gateway_id, "provisioned by the connector");
            Some(Credentials {
                gateway_id: gateway_id.to_owned(),
                secret: secret.clone(),
            })
        }
        ProvisionOutcome::Withheld => {
            tracing::warn!(
                "the connector holds a binding for this gateway id and gave no secret; rotate it at the connector, or set GATEWAY_RELAY_SECRET"
            );
            None
        }
        ProvisionOutcome::Failed => {
            tracing::warn!("the connector provisioned no identity; dialing without credentials");
            None
        }
    }
}

/// What is to be declared, by platform; nothing for platforms whose settings say nothing.
pub fn policies(loaded: &LoadedConfig) -> Vec<RelevancePolicy> {
    let mut policies: Vec<RelevancePolicy> = Vec::new();
    for identity in &loaded.settings.connector.identities {
        let platform = &identity.platform;
        if policies.iter().any(|known| known.platform == *platform) {
            continue;
        }
        let config = loaded.policy_yaml(platform);
        let bots = loaded.allow_bots(platform);
        policies.extend(RelevancePolicy::project(&config, platform, bots.as_deref()));
    }
    policies
}

/// Declares policies until every one is accepted. Runs beside the link; waits for credentials first.
pub async fn declare_policies(
    policies: Vec<RelevancePolicy>,
    url: ConnectorUrl,
    http: HttpClient,
    mut credentials: watch::Receiver<Option<Credentials>>,
) {
    let Ok(_) = credentials.wait_for(Option::is_some).await else {
        return;
    };
    let mut left = policies;
    let mut backoff = Backoff::new(FIRST_RETRY, MAX_RETRY);
    let mut ahead_ms = 0;
    while !left.is_empty() {
        let mut refused = Vec::new();
        for policy in left {
            let Some(who) = credentials.borrow().clone() else {
                return;
            };
            let now_ms = now_ms().saturating_add(ahead_ms);
            let token = UpgradeToken::mint(&who.gateway_id, &who.secret, TOKEN_TTL_SECS, now_ms / 1000);
            let body = serde_json::to_value(&policy).unwrap_or(Value::Null);
            match declare_policy(&http, url.http_base(), &token, &body).await {
                Ok(()) => tracing::info!(
                    platform = policy.platform,
                    "the connector accepted the relevance policy"
                ),
                Err(error) => {
                    tracing::warn!(platform = policy.platform, %error, "the connector did not accept the relevance policy");
                    ahead_ms = connector_ahead_ms(&error).unwrap_or(ahead_ms);
                    refused.push(policy);
                }
            }
        }
        left = refused;
        if !left.is_empty() {
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }
}

/// How far the clock of a connector that refused our token is ahead of ours.
fn connector_ahead_ms(error: &PolicyError) -> Option<i64> {
    match error {
        PolicyError::Status {
            status: 401 | 403,
            date: Some(date),
            ..
        } => Some(unix_ms(*date).saturating_sub(now_ms())),
        PolicyError::Status { .. } | PolicyError::Unreachable(_) => None,
    }
}
