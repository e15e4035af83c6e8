//! Probes of notify targets, and of what other programs hand to this relay.

use futures_util::future::join_all;

use super::context::{CheckContext, RunningRelay, timed_out};
use super::network;
use super::probe::ProbeResult;
use crate::agent_connector::NotifyTarget;
use crate::config::secret::{self, SecretError};
use crate::config::{ReceiverConfig, Settings};
use crate::cron::target;
use crate::net::http::{Body, HttpClient, HttpPolicy, Request};
use crate::serve::targets::Targets;

/// Checks every target of `notify`. Nothing is handed over.
pub(super) async fn targets(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    if settings.notify.targets.is_empty() {
        return vec![ProbeResult::ok("none")];
    }
    let targets = Targets::new(settings, context.env, &context.base);
    let checks = settings.notify.targets.iter().map(|(name, target)| async {
        let result = check_target(context, &targets, target).await;
        result.about(name.as_str())
    });
    join_all(checks).await
}

async fn check_target(
    context: &CheckContext<'_>,
    targets: &Targets<'_>,
    target: &NotifyTarget,
) -> ProbeResult {
    let kind = target.kind();
    if kind.needs_running_relay() && context.running == RunningRelay::None {
        return ProbeResult::skipped("the agents of this relay are reached while it runs");
    }
    let connector = match targets.connect(target) {
        Ok(connector) => connector,
        Err(error) => return ProbeResult::failed(error.to_string(), ""),
    };
    let name = kind.capabilities().implementation;
    match context.step(connector.health_check()).await {
        Some(true) => ProbeResult::ok(format!("{name}: {}", kind.health())),
        Some(false) => {
            let fault = kind.fault();
            ProbeResult::failed(fault.what, fault.remedy)
        }
        None => ProbeResult::failed(timed_out(name), kind.fault().remedy),
    }
}

/// Checks what other programs need to hand something to this relay: the secrets, the listener, the target of answers.
pub(super) async fn receiver(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    let Some(receiver) = &settings.serve.receiver else {
        return vec![ProbeResult::ok(
            "off: other programs hand nothing to this relay over HTTP",
        )];
    };
    let files = [&receiver.hmac_secret_file, &receiver.bearer_file];
    for file in files.into_iter().flatten() {
        if let Err(error) = secret::read(file) {
            let remedy = match &error {
                SecretError::Open { path, .. } => format!("chmod 600 {}", path.display()),
                _ => format!(
                    "write a secret into {}, readable for the user that runs the relay only",
                    file.display()
                ),
            };
            return vec![ProbeResult::failed(error.to_string(), remedy).about("secrets")];
        }
    }
    let mut results = vec![ProbeResult::ok("they can be used").about("secrets")];
    results.push(listener(context, settings).await.about("listener"));
    results.extend(target(settings, receiver).map(|result| result.about("deliver")));
    results
}

/// Whether the receiver answers where it should.
async fn listener(context: &CheckContext<'_>, settings: &Settings) -> ProbeResult {
    let address = settings.serve.http_address().ok().flatten();
    let Some(address) = address.filter(|address| address.port() != 0) else {
        return ProbeResult::skipped("`serve.http` names no port");
    };
    if context.running == RunningRelay::None {
        return ProbeResult::skipped("it is checked while a relay runs");
    }
    let Some(egress) = network::egress(context) else {
        return ProbeResult::skipped("the settings are not loaded");
    };
    let url = format!("http://{address}/v1/agents");
    let asked = async {
        let http = HttpClient::new(&egress, HttpPolicy::default())?;
        http.send(Request::new(&url, Body::Get)).await
    };
    let remedy =
        "restart the relay so that it uses these settings, and check that nothing else listens there";
    match context.step(asked).await {
        None => ProbeResult::failed(timed_out(&url), remedy),
        Some(Err(error)) => ProbeResult::failed(error.to_string(), remedy),
        // Without a key there is nothing to see.
        Some(Ok(response)) if response.status == 401 => ProbeResult::ok(format!("{url} answers")),
        Some(Ok(response)) => {
            let detail = format!(
                "{url} returned HTTP {}: something else answers there",
                response.status
            );
            ProbeResult::failed(detail, remedy)
        }
    }
}

/// Whether answers without a chat can be sent.
fn target(settings: &Settings, receiver: &ReceiverConfig) -> Option<ProbeResult> {
    let deliver = receiver.deliver.as_deref()?;
    let (targets, error) = target::targets(deliver, None, &settings.cron.home_channels);
    let unknown = targets.iter().find(|target| {
        let mut known = settings.identities().peekable();
        known.peek().is_some() && known.all(|identity| identity.platform != target.platform)
    });
    let problem = error.or_else(|| {
        let platform = &unknown?.platform;
        Some(format!("this relay has no identity on {platform}"))
    });
    let remedy = "correct `serve.receiver.deliver`, such as `discord:1234`";
    Some(match problem {
        Some(problem) => ProbeResult::warn(problem, remedy),
        None => ProbeResult::ok(format!("answers without a chat go to {deliver}")),
    })
}
