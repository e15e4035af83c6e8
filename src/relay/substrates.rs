//! The entries of `connectors` in the settings as [`AgentConnector`]s: their secrets are read here, and nowhere else.

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::parts::agents::without_keys;
use crate::agent::child::{BaseEnv, EnvPolicy};
use crate::agent_connector::{
    AgentConnector, CommandConnector, FileConnector, NoopConnector, TmuxConnector, WebhookConnector,
    WebhookConnectorSettings, WebhookCredentials,
};
use crate::config::{Settings, Substrate, secret};
use crate::net::http::HttpEgress;

/// What connectors are made with, beside their settings.
#[derive(Clone, Copy)]
pub struct SubstrateContext<'c> {
    /// The settings.
    pub settings: &'c Settings,
    /// Variables that hold credentials.
    pub env: &'c dyn Fn(&str) -> Option<String>,
    /// The environment of programs.
    pub base: &'c BaseEnv,
    /// How webhooks are reached.
    pub egress: &'c HttpEgress,
}

/// The connector of an entry, else why it cannot be used. `None` for this relay's own agents, which are reached through the relay
/// that runs.
pub fn build_connector(
    substrate: &Substrate,
    context: SubstrateContext<'_>,
) -> Result<Option<Box<dyn AgentConnector>>, String> {
    let env = || {
        let settings = context.settings;
        let variables = settings.connectors.values();
        let variables = variables.filter_map(|entry| entry.substrate.auth_variable());
        EnvPolicy::default().apply(&without_keys(settings, context.base).withhold(variables))
    };
    Ok(Some(match substrate {
        Substrate::Webhook(webhook) => {
            let credentials = credentials(webhook, context.env)?;
            let connector = WebhookConnector::through((**webhook).clone(), credentials, context.egress);
            Box::new(connector.map_err(|error| error.to_string())?)
        }
        Substrate::File(file) => Box::new(FileConnector::new(file.clone())),
        Substrate::Tmux(tmux) => Box::new(TmuxConnector::new(tmux.clone(), env())),
        Substrate::Command(command) => Box::new(CommandConnector::new(command.clone(), env())),
        Substrate::Relay => return Ok(None),
        Substrate::Noop => Box::new(NoopConnector),
    }))
}

fn credentials(
    webhook: &WebhookConnectorSettings,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<WebhookCredentials, String> {
    let auth = match &webhook.auth_env {
        None => webhook.auth.clone(),
        Some(name) => {
            let value = env(name).map(Zeroizing::new);
            let value = value.filter(|value| !value.trim().is_empty());
            let value = value.ok_or_else(|| {
                format!("the variable {name} is not set; set it to the value of `Authorization`")
            })?;
            Some(SecretString::from(value.trim()))
        }
    };
    let file = webhook.hmac_secret_file.as_deref();
    let hmac_secret = file.map(secret::read).transpose();
    Ok(WebhookCredentials {
        auth,
        hmac_secret: hmac_secret.map_err(|error| error.to_string())?,
    })
}

/// What a failed health check of an entry means.
pub fn unhealthy(substrate: &Substrate) -> &'static str {
    match substrate {
        Substrate::Webhook(_) => "a `status_url` did not answer with a 2xx status",
        Substrate::File(_) => "`dir` is no directory that this user can write to",
        Substrate::Tmux(_) => "tmux does not run here or has no pane like a `target`",
        Substrate::Command(_) => "a program is not installed or cannot be run",
        Substrate::Relay => "no relay runs with these settings; start one with `hermes-relay run`",
        Substrate::Noop => "it does not work",
    }
}
