//! Probes and findings, and the runner that skips what depends on a failed probe.

use std::pin::Pin;

use super::context::{CheckContext, Peer, is_workers_file};
use super::table::OF_WORKERS;

/// A check of one thing that can be wrong.
#[derive(Debug)]
pub struct Probe {
    /// Stable name for programs.
    pub id: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// The other end that it is for; `None` for both.
    pub only: Option<Peer>,
    /// Probes that must pass first, where they apply; each is listed before this one.
    pub needs: &'static [&'static str],
    /// General remedy, used when a result has none.
    pub remedy: &'static str,
    pub(super) run: ProbeFn,
}

/// The function of a probe.
pub(super) type ProbeFn = for<'a> fn(&'a mut CheckContext<'_>) -> ProbeFuture<'a>;
/// A running probe.
pub(super) type ProbeFuture<'a> = Pin<Box<dyn Future<Output = Vec<ProbeResult>> + 'a>>;

/// The outcome of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// No problem.
    Ok,
    /// It works, with a problem to look at.
    Warn,
    /// It does not work.
    Failed,
    /// Not checked.
    Skipped,
}

impl ProbeOutcome {
    /// The name for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    /// Whether people have to look at it.
    pub fn is_problem(self) -> bool {
        matches!(self, Self::Warn | Self::Failed)
    }

    fn is_passed(self) -> bool {
        match self {
            Self::Ok | Self::Warn => true,
            Self::Failed | Self::Skipped => false,
        }
    }
}

/// The result of a probe for one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeResult {
    /// The subject, where a probe checks several.
    pub subject: Option<String>,
    /// The outcome.
    pub outcome: ProbeOutcome,
    /// What was found.
    pub detail: String,
    /// A specific remedy.
    pub remedy: Option<String>,
}

impl ProbeResult {
    pub(super) fn ok(detail: impl Into<String>) -> Self {
        Self::new(ProbeOutcome::Ok, detail, None)
    }

    pub(super) fn warn(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(ProbeOutcome::Warn, detail, Some(remedy.into()))
    }

    pub(super) fn failed(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(ProbeOutcome::Failed, detail, Some(remedy.into()))
    }

    pub(super) fn skipped(detail: impl Into<String>) -> Self {
        Self::new(ProbeOutcome::Skipped, detail, None)
    }

    pub(super) fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    fn new(outcome: ProbeOutcome, detail: impl Into<String>, remedy: Option<String>) -> Self {
        Self {
            subject: None,
            outcome,
            detail: detail.into(),
            remedy,
        }
    }
}

/// A result with its probe, for printing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The probe's id.
    pub id: &'static str,
    /// The probe's title.
    pub title: &'static str,
    /// The subject, where a probe checks several.
    pub subject: Option<String>,
    /// The outcome.
    pub outcome: ProbeOutcome,
    /// What was found.
    pub detail: String,
    /// What to do, for every failure and warning.
    pub remedy: Option<String>,
    /// The probe that should have passed first.
    pub blocked_by: Option<&'static str>,
}

/// Runs all probes that apply in order and passes each finding to `report` immediately.
pub async fn run_probes(
    probes: &[Probe],
    context: &mut CheckContext<'_>,
    mut report: impl FnMut(&Finding),
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for probe in probes {
        // Known from the first probe on, which loads the settings.
        let peers: Vec<Peer> = [Peer::Connector, Peer::Telegram, Peer::Discord]
            .into_iter()
            .filter(|peer| context.has_peer(*peer))
            .collect();
        let is_worker = context.settings().is_some_and(is_workers_file);
        let applies = |probe: &Probe| {
            let is_asked = !is_worker || OF_WORKERS.contains(&probe.id);
            is_asked && probe.only.is_none_or(|only| peers.contains(&only))
        };
        if !applies(probe) {
            continue;
        }
        let is_needed = |id: &str| probes.iter().any(|other| other.id == id && applies(other));
        let results = match blocker(probe, &findings, is_needed) {
            Some(blocker) => Err(blocker),
            None if context.is_expired() => Ok(vec![ProbeResult::skipped("the probes ran out of time")]),
            None => Ok((probe.run)(context).await),
        };
        let from = findings.len();
        match results {
            Ok(results) => findings.extend(results.into_iter().map(|result| finding(probe, result))),
            Err(blocker) => {
                let title = probes.iter().find(|other| other.id == blocker);
                findings.push(blocked(
                    probe,
                    blocker,
                    title.map_or(blocker, |other| other.title),
                ));
            }
        }
        findings[from..].iter().for_each(&mut report);
    }
    findings
}

/// The first required probe that applies and did not pass.
fn blocker(probe: &Probe, findings: &[Finding], applies: impl Fn(&str) -> bool) -> Option<&'static str> {
    let passed = |id: &str| {
        let mut of_it = findings.iter().filter(|finding| finding.id == id).peekable();
        of_it.peek().is_some() && of_it.all(|finding| finding.outcome.is_passed())
    };
    probe.needs.iter().copied().find(|id| applies(id) && !passed(id))
}

fn finding(probe: &Probe, result: ProbeResult) -> Finding {
    let remedy = match result.outcome {
        ProbeOutcome::Warn | ProbeOutcome::Failed => Some(
            result
                .remedy
                .filter(|remedy| !remedy.is_empty())
                .unwrap_or_else(|| probe.remedy.to_owned()),
        ),
        ProbeOutcome::Ok | ProbeOutcome::Skipped => None,
    };
    Finding {
        id: probe.id,
        title: probe.title,
        subject: result.subject,
        outcome: result.outcome,
        detail: result.detail,
        remedy,
        blocked_by: None,
    }
}

fn blocked(probe: &Probe, blocker: &'static str, title: &str) -> Finding {
    let why = format!("skipped because `{title}` did not pass");
    Finding {
        blocked_by: Some(blocker),
        ..finding(probe, ProbeResult::skipped(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::child::BaseEnv;
    use crate::cli::doctor::{Consent, PROBES};
    use crate::config::Flags;

    fn probe(id: &'static str, needs: &'static [&'static str], probe_fn: ProbeFn) -> Probe {
        Probe {
            id,
            title: id,
            only: None,
            needs,
            remedy: "look again",
            run: probe_fn,
        }
    }

    fn run(probes: &[Probe]) -> Vec<Finding> {
        let env = |_: &str| None;
        let mut context = CheckContext::new(Flags::default(), &env, BaseEnv::new([]), Consent::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime
            .expect("a runtime")
            .block_on(run_probes(probes, &mut context, |_| {}))
    }

    fn fine<'a>(_: &'a mut CheckContext<'_>) -> ProbeFuture<'a> {
        Box::pin(std::future::ready(vec![ProbeResult::ok("fine")]))
    }

    fn mixed<'a>(_: &'a mut CheckContext<'_>) -> ProbeFuture<'a> {
        let results = vec![
            ProbeResult::ok("fine").about("one"),
            ProbeResult::failed("broken", "").about("two"),
        ];
        Box::pin(std::future::ready(results))
    }

    fn odd<'a>(_: &'a mut CheckContext<'_>) -> ProbeFuture<'a> {
        Box::pin(std::future::ready(vec![ProbeResult::warn("odd", "mend it")]))
    }

    #[test]
    fn dependents_of_a_failed_probe_are_skipped() {
        let found = run(&[
            probe("a", &[], mixed),
            probe("b", &["a"], fine),
            probe("c", &["b"], fine),
            probe("d", &[], fine),
        ]);
        let shown: Vec<_> = found
            .iter()
            .map(|finding| (finding.id, finding.outcome, finding.blocked_by))
            .collect();
        assert_eq!(
            shown,
            [
                ("a", ProbeOutcome::Ok, None),
                ("a", ProbeOutcome::Failed, None),
                ("b", ProbeOutcome::Skipped, Some("a")),
                ("c", ProbeOutcome::Skipped, Some("b")),
                ("d", ProbeOutcome::Ok, None),
            ]
        );
        assert_eq!(
            found[1].remedy.as_deref(),
            Some("look again"),
            "the general remedy"
        );
        assert_eq!(found[0].remedy, None);
    }

    #[test]
    fn a_probe_of_another_peer_is_left_out_and_blocks_nothing() {
        let of = |id, only| Probe {
            only: Some(only),
            ..probe(id, &[], odd)
        };
        let found = run(&[
            of("url", Peer::Connector),
            of("api", Peer::Telegram),
            probe("dns", &["url", "api"], fine),
        ]);
        let shown: Vec<_> = found
            .iter()
            .map(|finding| (finding.id, finding.outcome))
            .collect();
        assert_eq!(shown, [("url", ProbeOutcome::Warn), ("dns", ProbeOutcome::Ok)]);
    }

    #[test]
    fn a_warning_blocks_nothing() {
        let found = run(&[probe("a", &[], odd), probe("b", &["a"], fine)]);
        assert_eq!(found[0].remedy.as_deref(), Some("mend it"));
        assert_eq!(found[1].outcome, ProbeOutcome::Ok);
    }

    #[test]
    fn every_probe_has_a_unique_id_a_remedy_and_earlier_requirements() {
        assert!(PROBES.len() > 10);
        for (at, probe) in PROBES.iter().enumerate() {
            let before = &PROBES[..at];
            assert!(
                before.iter().all(|other| other.id != probe.id),
                "{} twice",
                probe.id
            );
            assert!(
                !probe.remedy.is_empty() && !probe.title.is_empty(),
                "{}",
                probe.id
            );
            for need in probe.needs {
                assert!(
                    before.iter().any(|other| other.id == *need),
                    "{} needs {need}",
                    probe.id
                );
            }
        }
    }
}
