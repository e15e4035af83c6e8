//! The probe of the NATS server that workers and the members of a cluster meet at.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::context::CheckContext;
use super::probe::ProbeResult;
use crate::config::{Backend, Settings};
use crate::net::http::{excerpt, unix_secs};
use crate::net::nats::{Bus, NatsError};
use crate::relay::nats_settings;
use crate::text::{duration, parse_instant};

/// How long the server has to accept the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long it has to answer a question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The oldest version that is supported.
const OLDEST: (u64, u64) = (2, 9);
/// Clock skew above which a warning is reported.
const MAX_SKEW_SECS: u64 = 5;
/// Asks for the account's part of `JetStream`.
const JETSTREAM_INFO: &str = "$JS.API.INFO";
/// Asks for statistics of the account; the answer has the server's time.
const ACCOUNT_STATISTICS: &str = "$SYS.REQ.ACCOUNT.PING.STATZ";

/// Checks the server, if the settings need one: whether it can be reached, its version, `JetStream` and its clock.
pub(super) async fn server(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(known) = &context.loaded else {
        return Vec::new();
    };
    let settings = &known.loaded.settings;
    if !needs_server(settings) {
        return Vec::new();
    }
    let bus = match Bus::connect(&nats_settings(settings), &known.tls, "hermes-relay doctor").await {
        Ok(bus) => bus,
        Err(error) => return vec![ProbeResult::failed(error.to_string(), "")],
    };
    let urls = settings.nats.url.0.join(", ");
    let connected = context.step(bus.connected(CONNECT_TIMEOUT)).await;
    if !matches!(connected, Some(Ok(()))) {
        let (why, remedy) = bus.trouble().split_once("; ").unwrap_or((bus.trouble(), ""));
        return vec![ProbeResult::failed(format!("{urls}: {why}"), remedy).about("connection")];
    }
    let version = bus
        .server()
        .map(|(version, _)| excerpt(&version))
        .unwrap_or_default();
    vec![
        ProbeResult::ok(urls).about("connection"),
        check_version(&version).about("version"),
        jetstream(&bus).await.about("JetStream"),
        clock(&bus).await.about("clock"),
    ]
}

fn needs_server(settings: &Settings) -> bool {
    let mut agents = settings.agents.values();
    let uses_pool = agents.any(|entry| matches!(entry.backend, Backend::Worker(_)));
    uses_pool || settings.worker.is_some() || settings.cluster.is_some()
}

fn check_version(version: &str) -> ProbeResult {
    let mut numbers = version.split('.').map(|part| part.parse::<u64>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else {
        let detail = format!("the server's version `{version}` cannot be read");
        return ProbeResult::warn(detail, "check that `nats.url` is the address of a NATS server");
    };
    if (major, minor) < OLDEST {
        let detail = format!(
            "{version} is too old; at least {}.{} is needed",
            OLDEST.0, OLDEST.1
        );
        return ProbeResult::failed(detail, "update nats-server");
    }
    ProbeResult::ok(version)
}

/// Whether the account may use `JetStream`.
async fn jetstream(bus: &Bus) -> ProbeResult {
    let answer = ask(bus, JETSTREAM_INFO).await;
    match answer.as_ref().map(|info| info["error"]["description"].as_str()) {
        Ok(None) => ProbeResult::ok("on"),
        Ok(Some(why)) => ProbeResult::failed(
            format!("the server refuses it: {}", excerpt(why)),
            "enable JetStream for the account that these credentials belong to",
        ),
        Err(NatsError::NoResponders) => ProbeResult::failed(
            "the server runs without JetStream",
            "start it with `nats-server -js`, or add `jetstream {}` to its configuration",
        ),
        Err(error) => ProbeResult::failed(
            format!("it does not answer: {error}"),
            "let these credentials use `$JS.API.>` and `_INBOX.>`; docs/scaling.md lists all subjects",
        ),
    }
}

/// Compares this machine's clock with the server's.
async fn clock(bus: &Bus) -> ProbeResult {
    let asked = unix_secs(SystemTime::now());
    let answer = ask(bus, ACCOUNT_STATISTICS).await.ok();
    let answered = unix_secs(SystemTime::now());
    let theirs = answer.and_then(|answer| parse_instant(answer["server"]["time"].as_str()?));
    match theirs {
        Some(theirs) => check_clock(asked, answered, theirs),
        None => ProbeResult::skipped(format!(
            "the server does not tell its time; these credentials may not use `{ACCOUNT_STATISTICS}`"
        )),
    }
}

/// Evaluates the server's time, which it told between two moments of this machine's clock; in Unix seconds.
fn check_clock(asked: i64, answered: i64, theirs: i64) -> ProbeResult {
    let (behind, ahead) = (theirs.saturating_sub(answered), asked.saturating_sub(theirs));
    let (off, side) = if behind > ahead {
        (behind, "behind")
    } else {
        (ahead, "ahead of")
    };
    let off = u64::try_from(off).unwrap_or_default();
    if off <= MAX_SKEW_SECS {
        return ProbeResult::ok(format!("within {MAX_SKEW_SECS} s of the server's"));
    }
    let detail = format!(
        "this machine's clock is {} {side} the server's",
        duration(off * 1000)
    );
    let remedy = "set the clocks of both machines, for instance with `timedatectl set-ntp true`";
    ProbeResult::warn(detail, remedy)
}

/// Asks the server something; its answer is JSON.
async fn ask(bus: &Bus, subject: &str) -> Result<Value, NatsError> {
    let answer = bus
        .request(subject.to_owned(), Vec::new(), ANSWER_TIMEOUT)
        .await?;
    serde_json::from_slice(&answer).map_err(|error| NatsError::Server(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::ProbeOutcome;

    #[test]
    fn versions_before_2_9_are_too_old() {
        for (version, outcome) in [
            ("2.9.0", ProbeOutcome::Ok),
            ("2.10.22-RC.1", ProbeOutcome::Ok),
            ("3.0.0", ProbeOutcome::Ok),
            ("2.8.4", ProbeOutcome::Failed),
            ("1.4.1", ProbeOutcome::Failed),
            ("", ProbeOutcome::Warn),
            ("two", ProbeOutcome::Warn),
        ] {
            assert_eq!(check_version(version).outcome, outcome, "{version}");
        }
    }

    #[test]
    fn a_slow_answer_is_no_skew() {
        let ok = ProbeOutcome::Ok;
        for theirs in [95, 100, 101, 102, 107] {
            assert_eq!(check_clock(100, 102, theirs).outcome, ok, "{theirs}");
        }
        for (theirs, side) in [(94, "6 s ahead of"), (108, "6 s behind")] {
            let result = check_clock(100, 102, theirs);
            assert_eq!(result.outcome, ProbeOutcome::Warn);
            assert!(result.detail.contains(side), "{}", result.detail);
        }
    }
}
