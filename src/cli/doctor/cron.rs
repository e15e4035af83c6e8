//! The probe of scheduled jobs: what starts them, and whether the managed scheduler and this relay reach each other.

use std::time::SystemTime;

use super::context::{CheckContext, RunningRelay, timed_out};
use super::network;
use super::probe::ProbeResult;
use crate::config::{ChronosConfig, CronProvider};
use crate::cron::fire_token::LEEWAY_SECS;
use crate::cron::jwks::{KeySet, KeySource, MAX_JWKS_BYTES};
use crate::net::chronos::ChronosClient;
use crate::net::http::{Body, HttpClient, HttpEgress, HttpError, HttpPolicy, HttpResponse, Request};
use crate::net::portal_login::{PortalError, PortalLogin};
use crate::serve::FIRE_PATH;

/// Checks what starts jobs.
pub(super) async fn cron(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(known) = &context.loaded else {
        return Vec::new();
    };
    let settings = &known.loaded.settings.cron;
    match settings.provider {
        CronProvider::Off => return vec![ProbeResult::ok("off: jobs are kept and not started")],
        CronProvider::Builtin => return vec![ProbeResult::ok("the relay's own timer starts jobs")],
        CronProvider::Chronos => {}
    }
    let missing = settings.chronos.missing();
    if !missing.is_empty() {
        let detail = "the managed scheduler is not set up, so the relay's own timer starts jobs";
        return vec![ProbeResult::warn(detail, format!("set {}", missing.join(", ")))];
    }
    let Some(egress) = network::egress(context) else {
        return Vec::new();
    };
    let chronos = &settings.chronos;
    let (portal, keys, callback) = tokio::join!(
        portal(context, chronos, &egress),
        keys(context, chronos, &egress),
        callback(context, chronos, &egress),
    );
    [portal, keys, callback].concat()
}

/// The portal, with the login that is stored; nothing is refreshed.
async fn portal(
    context: &CheckContext<'_>,
    chronos: &ChronosConfig,
    egress: &HttpEgress,
) -> Vec<ProbeResult> {
    let url = text(chronos.portal_url.as_ref());
    let login = login(context, url);
    let token = match login.check().and_then(|()| login.current_token()) {
        Ok(token) => token,
        Err(error) => {
            let remedy = match &error {
                PortalError::Store(_) => "make the file readable for the user that runs the relay",
                _ => "log in with `hermes auth add nous`; until then the relay's own timer starts jobs",
            };
            return vec![ProbeResult::failed(error.to_string(), remedy).about("login")];
        }
    };
    let Some(token) = token else {
        let detail = "the stored token is about to end; the relay refreshes it";
        return vec![ProbeResult::ok(detail).about("login")];
    };
    let client = match ChronosClient::new(egress, url, text(chronos.callback_url.as_ref())) {
        Ok(client) => client,
        Err(error) => return vec![ProbeResult::failed(error.to_string(), CHECK_PORTAL).about("portal")],
    };
    let result = match context.step(client.list(&token)).await {
        None => ProbeResult::failed(timed_out(url), CHECK_PORTAL),
        Some(Ok(armed)) => ProbeResult::ok(format!(
            "{url} answers; it has {} jobs of this agent",
            armed.len()
        )),
        Some(Err(error)) if error.is_identity_rejected() => ProbeResult::failed(
            format!("the portal does not know this login: {error}"),
            "ask whoever hosts this agent to provision it again; a new login does not help",
        ),
        Some(Err(error)) if error.is_unauthorized() => ProbeResult::warn(
            format!("the portal does not accept the stored token: {error}"),
            "the relay refreshes it once; log in with `hermes auth add nous` if that does not help",
        ),
        Some(Err(error)) => ProbeResult::failed(error.to_string(), CHECK_PORTAL),
    };
    vec![result.about("portal")]
}

const CHECK_PORTAL: &str = "check `cron.chronos.portal_url`, and that this machine may reach it";
const CHECK_KEYS: &str = "check `cron.chronos.nas_jwks_url`, and that this machine may reach it";

/// The keys that fires are verified with, and the clock.
async fn keys(context: &CheckContext<'_>, chronos: &ChronosConfig, egress: &HttpEgress) -> Vec<ProbeResult> {
    let setting = text(chronos.nas_jwks_url.as_ref());
    let url = match KeySource::parse(setting) {
        Ok(KeySource::Pinned(_)) => return vec![ProbeResult::ok("one pinned key").about("keys")],
        Ok(KeySource::Url(url)) => url,
        Err(error) => {
            let detail = format!("`cron.chronos.nas_jwks_url` {error}");
            return vec![ProbeResult::failed(detail, CHECK_KEYS).about("keys")];
        }
    };
    let policy = HttpPolicy {
        max_body: MAX_JWKS_BYTES,
        ..HttpPolicy::default()
    };
    let fetched = async {
        let http = HttpClient::new(egress, policy)?;
        let request = Request::new(url.as_str(), Body::Get).accept("application/json");
        http.send(request).await
    };
    let response = match context.step(fetched).await {
        None => return vec![ProbeResult::failed(timed_out(url.as_str()), CHECK_KEYS).about("keys")],
        Some(Err(error)) => return vec![ProbeResult::failed(error.to_string(), CHECK_KEYS).about("keys")],
        Some(Ok(response)) => response,
    };
    let keys = match KeySet::parse(&response.body) {
        _ if response.status != 200 => {
            ProbeResult::failed(format!("{url} returned HTTP {}", response.status), CHECK_KEYS)
        }
        Err(error) => ProbeResult::failed(format!("{url}: {error}"), CHECK_KEYS),
        Ok(set) if set.is_empty() => ProbeResult::failed(format!("{url} holds no usable key"), CHECK_KEYS),
        Ok(set) => ProbeResult::ok(format!("{url} holds {} usable keys", set.len())),
    };
    let mut results = vec![keys.about("keys")];
    results.extend(clock(&response));
    results
}

/// Fires are refused when the clocks differ by more than the leeway of their tokens.
fn clock(response: &HttpResponse) -> Option<ProbeResult> {
    let ahead = response.clock_skew_secs(SystemTime::now())?;
    let off = ahead.unsigned_abs();
    let side = if ahead > 0 { "behind" } else { "ahead of" };
    let result = if off > LEEWAY_SECS.unsigned_abs() {
        ProbeResult::failed(
            format!("this machine's clock is {off} s {side} the managed scheduler's: fires may be refused"),
            "set this machine's clock, for instance with `timedatectl set-ntp true`",
        )
    } else {
        ProbeResult::ok(format!("within {LEEWAY_SECS} s of the managed scheduler's"))
    };
    Some(result.about("clock"))
}

/// Whether this relay's fire path answers at the address that the scheduler calls.
async fn callback(
    context: &CheckContext<'_>,
    chronos: &ChronosConfig,
    egress: &HttpEgress,
) -> Vec<ProbeResult> {
    if context.running == RunningRelay::None {
        let detail = "the callback URL is checked while a relay runs";
        return vec![ProbeResult::skipped(detail).about("callback")];
    }
    let url = format!(
        "{}{FIRE_PATH}",
        text(chronos.callback_url.as_ref()).trim_end_matches('/')
    );
    let asked = async {
        let http = HttpClient::new(egress, HttpPolicy::default())?;
        http.send(Request::new(&url, Body::Json(b"{}".to_vec()))).await
    };
    let remedy =
        "set `cron.listen` or `serve.http`, and make `cron.chronos.callback_url` the public address of it";
    let result = match context.step(asked).await {
        None => ProbeResult::failed(timed_out(&url), remedy),
        Some(Err(error)) => ProbeResult::failed(explain(&error), remedy),
        Some(Ok(response)) => match (response.status, response.error_text().as_deref()) {
            (401, Some("invalid fire token")) => ProbeResult::ok(format!("{url} answers")),
            (status, _) => ProbeResult::failed(
                format!("{url} returned HTTP {status}: something else answers there"),
                remedy,
            ),
        },
    };
    vec![result.about("callback")]
}

fn explain(error: &HttpError) -> String {
    format!("the callback URL does not answer: {error}")
}

fn login(context: &CheckContext<'_>, portal_url: &str) -> PortalLogin {
    let home = context
        .settings()
        .and_then(|settings| settings.hermes_home.clone());
    PortalLogin::new(&home.unwrap_or_else(|| ".".into()), context.env).trusting(portal_url)
}

fn text(setting: Option<&String>) -> &str {
    setting.map_or("", String::as_str)
}
