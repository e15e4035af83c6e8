//! Counters and histograms.
//!
//! Plain numbers, each owned by the part that makes them; a snapshot is copied out on request. Labels have few values, all
//! known beforehand: no chat, session or person is ever one.

use std::time::Duration;

use super::parts::handed::HandedCounts;
use super::status::{CronStatus, Tally};
use crate::agent::AgentPool;
use crate::link::{Counters, Loss, SendResult};
use crate::store::Commit;
use crate::wire::{Action, Outcome};

/// Upper bounds in seconds for what takes milliseconds.
const QUICK: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];
/// Upper bounds in seconds for what a person waits for.
const SLOW: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0,
];
/// Upper bounds in seconds for a handshake.
const HANDSHAKE: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Upper bounds for how many commands one commit holds.
const BATCH: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0,
];

/// Outcomes of an op, as a label.
const OP_OUTCOMES: [&str; 6] = ["applied", "refused", "limited", "unknown", "not_sent", "shed"];

/// Measurements sorted by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last is for what is greater than all of them.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    fn observe(&mut self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place] += 1;
        self.sum += value;
    }

    fn observe_time(&mut self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    /// Each upper bound with how many measurements were no greater; the last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |below, count| {
            *below += count;
            Some(*below)
        }))
    }

    /// How many measurements there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All measurements together.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

/// Counts by a label whose values are few and known; anything else counts as the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelCounts {
    names: &'static [&'static str],
    counts: Vec<u64>,
}

impl LabelCounts {
    pub(super) fn new(names: &'static [&'static str]) -> Self {
        Self {
            names,
            counts: vec![0; names.len()],
        }
    }

    fn place(&self, name: &str) -> usize {
        let last = self.names.len().saturating_sub(1);
        self.names.iter().position(|known| *known == name).unwrap_or(last)
    }

    pub(super) fn add(&mut self, name: &str, count: u64) {
        let place = self.place(name);
        if let Some(counted) = self.counts.get_mut(place) {
            *counted += count;
        }
    }

    /// Every value of the label with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.names.iter().copied().zip(self.counts.iter().copied())
    }
}

/// What the task that owns the link measures.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkMetrics {
    /// Losses by reason.
    pub losses: LabelCounts,
    /// From the dial to the first descriptor.
    pub handshake_seconds: Histogram,
}

impl Default for LinkMetrics {
    fn default() -> Self {
        Self {
            losses: LabelCounts::new(&Loss::KINDS),
            handshake_seconds: Histogram::new(HANDSHAKE),
        }
    }
}

impl LinkMetrics {
    pub(super) fn handshake_done(&mut self, took: Duration) {
        self.handshake_seconds.observe_time(took);
    }
}

/// What the outbox measures: ops by name and outcome.
#[derive(Clone, Debug)]
pub(super) struct OpMetrics(Vec<LabelCounts>);

impl Default for OpMetrics {
    fn default() -> Self {
        Self(vec![LabelCounts::new(&OP_OUTCOMES); Action::OPS.len() + 1])
    }
}

impl OpMetrics {
    pub(super) fn finished(&mut self, op: &str, result: &SendResult) {
        self.count(op, outcome_label(result));
    }

    pub(super) fn dropped(&mut self, op: &str) {
        self.count(op, "shed");
    }

    fn count(&mut self, op: &str, outcome: &str) {
        let index = Action::OPS.iter().position(|known| *known == op);
        if let Some(counts) = self.0.get_mut(index.unwrap_or(Action::OPS.len())) {
            counts.add(outcome, 1);
        }
    }

    /// Each op's name with its outcomes.
    pub(super) fn snapshot(&self) -> Vec<(&'static str, LabelCounts)> {
        let names = Action::OPS.into_iter().chain(["other"]);
        names.zip(self.0.iter().cloned()).collect()
    }
}

/// What turns measure.
#[derive(Clone, Debug)]
pub(super) struct TurnMetrics {
    pub(super) turn_seconds: Histogram,
    pub(super) first_text_seconds: Histogram,
}

impl Default for TurnMetrics {
    fn default() -> Self {
        Self {
            turn_seconds: Histogram::new(SLOW),
            first_text_seconds: Histogram::new(SLOW),
        }
    }
}

impl TurnMetrics {
    pub(super) fn ended(&mut self, took: Duration, first_text: Option<Duration>) {
        self.turn_seconds.observe_time(took);
        if let Some(first_text) = first_text {
            self.first_text_seconds.observe_time(first_text);
        }
    }
}

/// What the journal's commits measure.
#[derive(Clone, Debug)]
pub(super) struct CommitMetrics {
    pub(super) commands: Histogram,
    pub(super) seconds: Histogram,
}

impl Default for CommitMetrics {
    fn default() -> Self {
        Self {
            commands: Histogram::new(BATCH),
            seconds: Histogram::new(QUICK),
        }
    }
}

impl CommitMetrics {
    pub(super) fn committed(&mut self, commit: Commit) {
        #[expect(clippy::cast_precision_loss, reason = "a commit holds some thousands at most")]
        self.commands.observe(commit.commands as f64);
        self.seconds.observe_time(commit.took);
    }
}

/// The outcome of an op, as a label.
pub(super) fn outcome_label(result: &SendResult) -> &'static str {
    match result {
        SendResult::NotSent(_) => "not_sent",
        SendResult::Lost => "unknown",
        SendResult::Answered(outcome) => match &**outcome {
            Outcome::Applied(_) => "applied",
            Outcome::Refused { result, .. } if result.rate_limited().is_some() => "limited",
            Outcome::Refused { .. } => "refused",
            Outcome::Unknown => "unknown",
        },
    }
}

/// Everything that is counted and measured, at one moment.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// What has happened.
    pub tally: Tally,
    /// What has happened to the link.
    pub link: Counters,
    /// What was measured of the link.
    pub link_metrics: LinkMetrics,
    /// Whether the link stands, and whether it sleeps.
    pub link_state: String,
    /// Frames that came, by type.
    pub frames_received: LabelCounts,
    /// Frames that went, by type.
    pub frames_sent: LabelCounts,
    /// Commands in one commit.
    pub commit_commands: Histogram,
    /// How long a commit took.
    pub commit_seconds: Histogram,
    /// How long turns took.
    pub turn_seconds: Histogram,
    /// How long turns took to say something.
    pub first_text_seconds: Histogram,
    /// Ops by name and outcome: each time that one was asked for.
    pub ops: Vec<(&'static str, LabelCounts)>,
    /// What waits, by where.
    pub queues: Vec<(&'static str, usize)>,
    /// Turns that run.
    pub turns_running: usize,
    /// Sessions that run or wait.
    pub sessions_active: usize,
    /// Decisions of the gate: the decision, the reason, and how often.
    pub access: Vec<(&'static str, &'static str, u64)>,
    /// Scheduled jobs.
    pub cron: CronStatus,
    /// What others handed to the agents.
    pub handed: HandedCounts,
    /// Whether the journal cannot be written.
    pub journal_failing: bool,
    /// The pools of workers that agents use.
    pub pools: Vec<AgentPool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_what_is_no_greater_than_each_bound() {
        let mut sizes = Histogram::new(&[1.0, 10.0]);
        for size in [0.5, 1.0, 1.5, 10.0, 11.0] {
            sizes.observe(size);
        }
        let buckets: Vec<_> = sizes.buckets().collect();
        assert_eq!(buckets, [(1.0, 2), (10.0, 4), (f64::INFINITY, 5)]);
        assert_eq!(sizes.count(), 5);
        assert!((sizes.sum() - 24.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_known_counts_as_the_last() {
        let mut counts = LabelCounts::new(&["a", "other"]);
        counts.add("a", 1);
        counts.add("whatever a stranger wrote", 2);
        assert_eq!(counts.iter().collect::<Vec<_>>(), [("a", 1), ("other", 2)]);
        let mut ops = OpMetrics::default();
        ops.dropped("no such op");
        let (name, counts) = ops.snapshot().pop().unwrap();
        assert_eq!((name, counts.iter().last()), ("other", Some(("shed", 1))));
    }
}
