//! What a probe is, in which order probes run, and what comes out. Which of them ran is decided here alone.

use std::pin::Pin;

use super::case::Case;

/// One thing that can be wrong.
#[derive(Debug)]
pub struct Probe {
    /// Its name for programs; never changes.
    pub id: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// The probes that must not have failed before this one makes sense; each stands before it.
    pub needs: &'static [&'static str],
    /// What to do when it fails and knows no better.
    pub remedy: &'static str,
    /// Looks.
    pub(super) look: Look,
}

/// A probe's work.
pub(super) type Look = for<'a> fn(&'a mut Case<'_>) -> Looking<'a>;
/// The work under way.
pub(super) type Looking<'a> = Pin<Box<dyn Future<Output = Vec<Verdict>> + 'a>>;

/// How a probe came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// It works, and someone should look.
    Warn,
    /// It does not work.
    Failed,
    /// Not looked at.
    Skipped,
}

impl Outcome {
    /// The outcome in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    fn lets_others_look(self) -> bool {
        match self {
            Self::Ok | Self::Warn => true,
            Self::Failed | Self::Skipped => false,
        }
    }
}

/// What a probe says of one thing it looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which one, where a probe looks at several.
    pub subject: Option<String>,
    /// How it came out.
    pub outcome: Outcome,
    /// What was seen.
    pub detail: String,
    /// What to do, where the probe knows better than its general remedy.
    pub remedy: Option<String>,
}

impl Verdict {
    pub(super) fn ok(detail: impl Into<String>) -> Self {
        Self::new(Outcome::Ok, detail, None)
    }

    pub(super) fn warn(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Outcome::Warn, detail, Some(remedy.into()))
    }

    pub(super) fn failed(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Outcome::Failed, detail, Some(remedy.into()))
    }

    pub(super) fn skipped(detail: impl Into<String>) -> Self {
        Self::new(Outcome::Skipped, detail, None)
    }

    pub(super) fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    fn new(outcome: Outcome, detail: impl Into<String>, remedy: Option<String>) -> Self {
        Self {
            subject: None,
            outcome,
            detail: detail.into(),
            remedy,
        }
    }
}

/// What came out of a probe, for printing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The probe's id.
    pub id: &'static str,
    /// The probe's title.
    pub title: &'static str,
    /// Which one, where a probe looks at several.
    pub subject: Option<String>,
    /// How it came out.
    pub outcome: Outcome,
    /// What was seen.
    pub detail: String,
    /// What to do; for every failure and every warning.
    pub remedy: Option<String>,
    /// The probe that had to pass first and did not.
    pub blocked_by: Option<&'static str>,
}

/// Goes through all probes in order and hands each finding to `tell` as it comes.
pub async fn examine(probes: &[Probe], case: &mut Case<'_>, mut tell: impl FnMut(&Finding)) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for probe in probes {
        let verdicts = match blocker(probe, &findings) {
            Some(blocker) => Err(blocker),
            None if case.is_over() => Ok(vec![Verdict::skipped("the time for all probes together is over")]),
            None => Ok((probe.look)(case).await),
        };
        let from = findings.len();
        match verdicts {
            Ok(verdicts) => findings.extend(verdicts.into_iter().map(|verdict| found(probe, verdict))),
            Err(blocker) => {
                let title = probes.iter().find(|other| other.id == blocker);
                findings.push(blocked(
                    probe,
                    blocker,
                    title.map_or(blocker, |other| other.title),
                ));
            }
        }
        findings[from..].iter().for_each(&mut tell);
    }
    findings
}

/// The first probe that this one needs and that did not pass.
fn blocker(probe: &Probe, findings: &[Finding]) -> Option<&'static str> {
    let passed = |id: &str| {
        let mut of_it = findings.iter().filter(|finding| finding.id == id).peekable();
        of_it.peek().is_some() && of_it.all(|finding| finding.outcome.lets_others_look())
    };
    probe.needs.iter().copied().find(|id| !passed(id))
}

fn found(probe: &Probe, verdict: Verdict) -> Finding {
    let remedy = match verdict.outcome {
        Outcome::Warn | Outcome::Failed => Some(
            verdict
                .remedy
                .filter(|remedy| !remedy.is_empty())
                .unwrap_or_else(|| probe.remedy.to_owned()),
        ),
        Outcome::Ok | Outcome::Skipped => None,
    };
    Finding {
        id: probe.id,
        title: probe.title,
        subject: verdict.subject,
        outcome: verdict.outcome,
        detail: verdict.detail,
        remedy,
        blocked_by: None,
    }
}

fn blocked(probe: &Probe, blocker: &'static str, title: &str) -> Finding {
    let why = format!("not looked at, because \"{title}\" did not pass");
    Finding {
        blocked_by: Some(blocker),
        ..found(probe, Verdict::skipped(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::child::BaseEnv;
    use crate::check::{Consent, PROBES};
    use crate::config::Flags;

    fn probe(id: &'static str, needs: &'static [&'static str], look: Look) -> Probe {
        Probe {
            id,
            title: id,
            needs,
            remedy: "look again",
            look,
        }
    }

    fn run(probes: &[Probe]) -> Vec<Finding> {
        let env = |_: &str| None;
        let mut case = Case::new(Flags::default(), &env, BaseEnv::new([]), Consent::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime
            .expect("a runtime")
            .block_on(examine(probes, &mut case, |_| {}))
    }

    fn fine<'a>(_: &'a mut Case<'_>) -> Looking<'a> {
        Box::pin(std::future::ready(vec![Verdict::ok("fine")]))
    }

    fn mixed<'a>(_: &'a mut Case<'_>) -> Looking<'a> {
        let verdicts = vec![
            Verdict::ok("fine").of("one"),
            Verdict::failed("broken", "").of("two"),
        ];
        Box::pin(std::future::ready(verdicts))
    }

    fn odd<'a>(_: &'a mut Case<'_>) -> Looking<'a> {
        Box::pin(std::future::ready(vec![Verdict::warn("odd", "mend it")]))
    }

    #[test]
    fn what_hangs_on_a_failure_is_skipped_and_names_it_all_the_way_down() {
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
                ("a", Outcome::Ok, None),
                ("a", Outcome::Failed, None),
                ("b", Outcome::Skipped, Some("a")),
                ("c", Outcome::Skipped, Some("b")),
                ("d", Outcome::Ok, None),
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
    fn a_warning_blocks_nothing() {
        let found = run(&[probe("a", &[], odd), probe("b", &["a"], fine)]);
        assert_eq!(found[0].remedy.as_deref(), Some("mend it"));
        assert_eq!(found[1].outcome, Outcome::Ok);
    }

    #[test]
    fn every_probe_has_an_id_of_its_own_a_remedy_and_needs_that_come_before_it() {
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
