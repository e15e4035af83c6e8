//! The relay that runs on this state directory and its status.

use serde_json::Value;

use super::context::{CheckContext, RunningRelay};
use super::probe::ProbeResult;
use crate::net::http::excerpt;
use crate::serve::{ControlRequest, client};
use crate::store;

/// Asks the relay that uses the state directory for its status.
pub(super) async fn running(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    let dir = settings.state_dir.clone();
    let holder = match store::held_by(&dir) {
        Ok(Some(holder)) => holder.to_string(),
        Ok(None) => {
            context.running = RunningRelay::None;
            return vec![ProbeResult::ok("none on this state directory")];
        }
        Err(error) => {
            context.running = RunningRelay::Unknown;
            let what = format!("cannot find out whether a relay is running: {error}");
            return vec![ProbeResult::warn(
                what,
                "run the doctor as the user that runs the relay",
            )];
        }
    };
    context.running = RunningRelay::Connected(holder.clone());
    let call = tokio::task::spawn_blocking(move || client::call(&dir, &ControlRequest::Status));
    let status = match context.step(call).await {
        Some(Ok(Ok(status))) => status,
        Some(Ok(Err(error))) => {
            let what = format!("process {holder} runs, but its status is not available: {error}");
            return vec![ProbeResult::warn(
                what,
                "check its log; to dial anyway, pass --dial",
            )];
        }
        Some(Err(_)) | None => {
            let what = format!("process {holder} runs, but does not respond");
            return vec![ProbeResult::failed(
                what,
                "check its log, and restart it if it stays unresponsive",
            )];
        }
    };
    // While it retries; what is over is history.
    let is_retrying = status["link_retry_at_ms"].is_i64();
    context.running_trouble = status["last_loss"].as_str().filter(|_| is_retrying).map(excerpt);
    if has_no_socket(&status) {
        context.running = RunningRelay::Disconnected(holder.clone());
    }
    evaluate(&holder, &status)
}

/// Whether it certainly has no connection. A relay that dials, shakes hands or closes has one or will have one, and the
/// buffered messages of a dormant one would be delivered to whoever dials.
fn has_no_socket(status: &Value) -> bool {
    matches!(status["link"].as_str(), Some("waiting" | "closed" | "revoked"))
}

/// The findings in a status.
fn evaluate(holder: &str, status: &Value) -> Vec<ProbeResult> {
    let text = |key: &str| status[key].as_str().map(excerpt);
    let link = text("link").unwrap_or_default();
    let problem = status["cluster"]["problem"].as_str().map(excerpt);
    let mut results = vec![match text("not_ready") {
        // It has no link until it takes over.
        Some(_) if link == "standby" => match problem {
            None => ProbeResult::ok(format!("process {holder}, a standby")),
            Some(why) => ProbeResult::failed(
                format!("process {holder} is a standby that cannot take over: {why}"),
                "see `NATS server` below, and the table of failures in docs/scaling.md",
            ),
        },
        None => ProbeResult::ok(format!("process {holder}, link {link}")),
        Some(why) => ProbeResult::failed(
            format!("process {holder} does not receive messages: {why}"),
            "it retries; if every probe below passes, it uses other settings than these: restart it",
        ),
    }];
    if let Some(why) = text("journal_failing") {
        let remedy = "free some space on that disk, or make it writable; the relay then continues";
        results.push(ProbeResult::failed(
            format!("it cannot write its journal: {why}"),
            remedy,
        ));
    }
    results.extend(refusals(status));
    results.extend(jobs(status));
    for agent in status["agents"].as_array().into_iter().flatten() {
        let text = |key: &str| agent[key].as_str().map(excerpt).unwrap_or_default();
        if text("state") != "ready" {
            let what = format!(
                "its agent `{}` is {}: {}",
                text("name"),
                text("state"),
                text("why")
            );
            let remedy =
                "its environment differs from this terminal's, usually its PATH; correct that and restart it";
            results.push(ProbeResult::warn(what, remedy));
        }
    }
    let version = text("version").unwrap_or_default();
    if version != env!("CARGO_PKG_VERSION") {
        let what = format!("it is version {version}, this is {}", env!("CARGO_PKG_VERSION"));
        results.push(ProbeResult::warn(what, "restart it"));
    }
    results
}

/// The managed scheduler, if the running relay does not use it.
fn jobs(status: &Value) -> Option<ProbeResult> {
    let why = status["cron"]["unavailable"].as_str().map(excerpt)?;
    let remedy = if why.contains("invalid_client") {
        "ask who runs the scheduler whether it knows this agent, then restart the relay"
    } else {
        "correct that, then restart the relay"
    };
    let what = format!("it does not use the managed scheduler, and its own timer starts jobs: {why}");
    Some(ProbeResult::warn(what, remedy))
}

/// Messages from platforms that it does not announce, and the op that the connector refused last.
fn refusals(status: &Value) -> Vec<ProbeResult> {
    let remedy = "add the platform to GATEWAY_RELAY_PLATFORMS in the .env of Hermes' home, or to `connector.identities`, then restart \
                  the relay";
    let mut results = Vec::new();
    let undeclared = status["undeclared_platforms"].as_array().into_iter().flatten();
    for platform in undeclared.filter_map(Value::as_str).map(excerpt) {
        results.push(ProbeResult::failed(
            format!("messages come from `{platform}`, which it does not announce: the connector may refuse the answers"),
            remedy,
        ));
    }
    let refusal = &status["last_refusal"];
    if let Some(op) = refusal["op"].as_str() {
        let error = refusal["error"].as_str().map(excerpt).unwrap_or_default();
        let peer = if status["telegram"].is_object() {
            "Telegram"
        } else if status["discord"].is_object() {
            "Discord"
        } else {
            "the connector"
        };
        let what = format!(
            "{peer} has refused {} ops, `{}` last: {error}",
            status["tally"]["ops_refused"].as_u64().unwrap_or(1),
            excerpt(op)
        );
        let is_platform = error.contains("not fronted");
        results.push(ProbeResult::warn(
            what,
            if is_platform {
                remedy
            } else if peer == "Telegram" {
                "`hermes-relay journal list` shows what was not delivered; docs/telegram.md says what the reason means"
            } else if peer == "Discord" {
                "`hermes-relay journal list` shows what was not delivered; docs/discord.md says what the bot may do"
            } else {
                "`hermes-relay journal list` shows what was not delivered; ask the connector's operator about the reason"
            },
        ));
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::ProbeOutcome;
    use serde_json::json;

    fn evaluated(status: &Value) -> Vec<(ProbeOutcome, String)> {
        let results = evaluate("7", status).into_iter();
        results.map(|result| (result.outcome, result.detail)).collect()
    }

    #[test]
    fn problems_in_a_status_become_findings() {
        let version = env!("CARGO_PKG_VERSION");
        let healthy =
            json!({"link": "live", "version": version, "agents": [{"name": "a", "state": "ready"}]});
        assert_eq!(
            evaluated(&healthy),
            [(ProbeOutcome::Ok, "process 7, link live".to_owned())]
        );
        let standby = json!({"link": "standby", "version": version, "not_ready": "this relay is a standby"});
        assert_eq!(
            evaluated(&standby),
            [(ProbeOutcome::Ok, "process 7, a standby".to_owned())]
        );
        let mut behind = standby;
        behind["cluster"] = json!({"problem": "the stream is shorter"});
        assert_eq!(evaluated(&behind)[0].0, ProbeOutcome::Failed);
        let failing = json!({"link": "waiting", "version": "0.0.1", "not_ready": "the link is waiting: refused",
            "journal_failing": "full", "agents": [{"name": "a", "state": "down", "why": "gone"}]});
        let found = evaluated(&failing);
        let outcomes: Vec<_> = found.iter().map(|(outcome, _)| *outcome).collect();
        let (failed, warn) = (ProbeOutcome::Failed, ProbeOutcome::Warn);
        assert_eq!(outcomes, [failed, failed, warn, warn]);
        for (part, (_, detail)) in ["refused", "full", "`a` is down: gone", "0.0.1"]
            .iter()
            .zip(&found)
        {
            assert!(detail.contains(part), "{found:?}");
        }
    }

    #[test]
    fn refused_answers_become_findings() {
        let status = json!({"link": "live", "version": env!("CARGO_PKG_VERSION"), "undeclared_platforms": ["discord"],
            "last_refusal": {"op": "send", "error": "platform not fronted", "at_ms": 1}, "tally": {"ops_refused": 4}});
        let found = evaluated(&status);
        assert_eq!(found[1].0, ProbeOutcome::Failed);
        assert!(found[1].1.contains("`discord`"), "{found:?}");
        assert_eq!(found[2].0, ProbeOutcome::Warn);
        assert!(
            found[2]
                .1
                .contains("refused 4 ops, `send` last: platform not fronted"),
            "{found:?}"
        );
    }

    #[test]
    fn a_scheduler_that_is_not_used_becomes_a_finding() {
        let why = "POST /api/agent-cron/provision: HTTP 403: {\"error\": \"invalid_client\"}";
        let status =
            json!({"link": "live", "version": env!("CARGO_PKG_VERSION"), "cron": {"unavailable": why}});
        let found = evaluated(&status);
        assert_eq!(found[1].0, ProbeOutcome::Warn);
        assert!(
            found[1].1.contains("own timer starts jobs") && found[1].1.contains("invalid_client"),
            "{found:?}"
        );
    }

    #[test]
    fn only_a_link_without_a_socket_may_be_dialled() {
        for (link, away) in [
            ("starting", false),
            ("waiting", true),
            ("dialing", false),
            ("greeting", false),
            ("live", false),
            ("dormant", false),
            ("closing", false),
            ("closed", true),
            ("revoked", true),
        ] {
            // Readiness does not matter: a relay that shuts down is not ready, but connected.
            for ready in [true, false] {
                let status = json!({"link": link, "ready": ready});
                assert_eq!(has_no_socket(&status), away, "{status}");
            }
        }
        assert!(!has_no_socket(&json!({"ready": false})));
    }
}
