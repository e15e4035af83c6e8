//! The relay that runs on this state directory: whether there is one, and how it says it stands.

use serde_json::Value;

use super::case::{Case, Running};
use super::probe::Verdict;
use crate::net::http::excerpt;
use crate::serve::{ControlRequest, client};
use crate::store;

/// Asks the relay that holds the state directory how it stands.
pub(super) async fn running(case: &mut Case<'_>) -> Vec<Verdict> {
    let Some(settings) = case.settings() else {
        return Vec::new();
    };
    let dir = settings.state_dir.clone();
    let holder = match store::held_by(&dir) {
        Ok(Some(holder)) => holder.to_string(),
        Ok(None) => {
            case.running = Running::Nobody;
            return vec![Verdict::ok("none on this state directory")];
        }
        Err(error) => {
            case.running = Running::Unknown;
            let what = format!("cannot tell whether a relay is running: {error}");
            return vec![Verdict::warn(
                what,
                "run the doctor as the user that runs the relay",
            )];
        }
    };
    case.running = Running::Process(holder.clone());
    let asking = tokio::task::spawn_blocking(move || client::call(&dir, &ControlRequest::Status));
    let status = match case.within(asking).await {
        Some(Ok(Ok(status))) => status,
        Some(Ok(Err(error))) => {
            let what = format!("process {holder} runs, but cannot be asked how it stands: {error}");
            return vec![Verdict::warn(
                what,
                "look at its log; to dial all the same, add --dial",
            )];
        }
        Some(Err(_)) | None => {
            let what = format!("process {holder} runs, but does not say how it stands");
            return vec![Verdict::failed(
                what,
                "look at its log, and restart it if it stays so",
            )];
        }
    };
    if has_no_socket(&status) {
        case.running = Running::Away(holder.clone());
    }
    stands(&holder, &status)
}

/// Whether it surely has no connection to lose. One that dials, greets or says goodbye has or is about to have one, and a
/// dormant one would have its buffered messages delivered to whoever dials.
fn has_no_socket(status: &Value) -> bool {
    matches!(status["link"].as_str(), Some("waiting" | "closed" | "revoked"))
}

/// What its own account comes to.
fn stands(holder: &str, status: &Value) -> Vec<Verdict> {
    let word = |key: &str| status[key].as_str().map(excerpt);
    let link = word("link").unwrap_or_default();
    let mut verdicts = vec![match word("not_ready") {
        None => Verdict::ok(format!("process {holder}, link {link}")),
        Some(why) => Verdict::failed(
            format!("process {holder} takes no messages: {why}"),
            "it dials again by itself; where everything below is well, it has other settings than these: restart it",
        ),
    }];
    if let Some(why) = word("journal_failing") {
        let remedy = "free some space on that disk, or make it writable; the relay goes on by itself";
        verdicts.push(Verdict::failed(
            format!("it cannot write its journal: {why}"),
            remedy,
        ));
    }
    for agent in status["agents"].as_array().into_iter().flatten() {
        let word = |key: &str| agent[key].as_str().map(excerpt).unwrap_or_default();
        if word("state") != "ready" {
            let what = format!(
                "its agent `{}` is {}: {}",
                word("name"),
                word("state"),
                word("why")
            );
            let remedy = "its surroundings differ from this terminal's, its PATH above all; correct that and restart it";
            verdicts.push(Verdict::warn(what, remedy));
        }
    }
    let version = word("version").unwrap_or_default();
    if version != env!("CARGO_PKG_VERSION") {
        let what = format!("it is version {version}, this is {}", env!("CARGO_PKG_VERSION"));
        verdicts.push(Verdict::warn(what, "restart it"));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Outcome;
    use serde_json::json;

    fn told(status: &Value) -> Vec<(Outcome, String)> {
        let verdicts = stands("7", status).into_iter();
        verdicts
            .map(|verdict| (verdict.outcome, verdict.detail))
            .collect()
    }

    #[test]
    fn what_a_running_relay_says_of_itself_is_passed_on() {
        let version = env!("CARGO_PKG_VERSION");
        let well = json!({"link": "live", "version": version, "agents": [{"name": "a", "state": "ready"}]});
        assert_eq!(told(&well), [(Outcome::Ok, "process 7, link live".to_owned())]);
        let ill = json!({"link": "waiting", "version": "0.0.1", "not_ready": "the link is waiting: refused",
            "journal_failing": "full", "agents": [{"name": "a", "state": "down", "why": "gone"}]});
        let said = told(&ill);
        let outcomes: Vec<_> = said.iter().map(|(outcome, _)| *outcome).collect();
        let (failed, warn) = (Outcome::Failed, Outcome::Warn);
        assert_eq!(outcomes, [failed, failed, warn, warn]);
        for (part, (_, detail)) in ["refused", "full", "`a` is down: gone", "0.0.1"]
            .iter()
            .zip(&said)
        {
            assert!(detail.contains(part), "{said:?}");
        }
    }

    #[test]
    fn only_a_link_without_a_socket_may_be_dialled_beside() {
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
            // Whatever it says of its readiness: one that shuts down is not ready and connected all the same.
            for ready in [true, false] {
                let status = json!({"link": link, "ready": ready});
                assert_eq!(has_no_socket(&status), away, "{status}");
            }
        }
        assert!(!has_no_socket(&json!({"ready": false})));
    }
}
