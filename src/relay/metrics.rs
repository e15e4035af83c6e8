//! What is counted and measured while the relay works.
//!
//! Plain numbers, each owned by the task that makes them; a snapshot is copied out when somebody asks. Labels have few
//! values, all known beforehand: no chat, session or person is ever one. It never shows anything itself.

use std::time::Duration;

use super::status::Tally;
use super::transport::LinkView;
use crate::link::{Counters, Loss, SendResult};
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

/// What became of an op, as a label.
const OP_OUTCOMES: [&str; 6] = ["applied", "refused", "limited", "unknown", "not_sent", "shed"];

/// What became of a trace, as a label.
pub(super) const TRACE_OUTCOMES: [&str; 3] = ["sent", "dropped", "refused"];

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
pub struct Counts {
    names: &'static [&'static str],
    counts: Vec<u64>,
}

impl Counts {
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
pub struct LinkMeasures {
    /// Losses by reason.
    pub losses: Counts,
    /// From the dial to the first descriptor.
    pub handshake_seconds: Histogram,
}

impl Default for LinkMeasures {
    fn default() -> Self {
        Self {
            losses: Counts::new(&Loss::KINDS),
            handshake_seconds: Histogram::new(HANDSHAKE),
        }
    }
}

impl LinkMeasures {
    pub(super) fn handshaken(&mut self, took: Duration) {
        self.handshake_seconds.observe_time(took);
    }
}

/// What the relay's own task measures.
#[derive(Clone, Debug)]
pub(super) struct Measures {
    commit_commands: Histogram,
    commit_seconds: Histogram,
    turn_seconds: Histogram,
    first_word_seconds: Histogram,
    /// By op; each with its outcomes.
    ops: Vec<Counts>,
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            commit_commands: Histogram::new(BATCH),
            commit_seconds: Histogram::new(QUICK),
            turn_seconds: Histogram::new(SLOW),
            first_word_seconds: Histogram::new(SLOW),
            ops: vec![Counts::new(&OP_OUTCOMES); Action::OPS.len() + 1],
        }
    }
}

impl Measures {
    pub(super) fn committed(&mut self, commands: usize, took: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "a commit holds some thousands at most")]
        self.commit_commands.observe(commands as f64);
        self.commit_seconds.observe_time(took);
    }

    pub(super) fn turn_ended(&mut self, took: Duration, first_word: Option<Duration>) {
        self.turn_seconds.observe_time(took);
        if let Some(first_word) = first_word {
            self.first_word_seconds.observe_time(first_word);
        }
    }

    pub(super) fn op_settled(&mut self, op: &str, outcome: &SendResult) {
        self.count_op(op, outcome_of(outcome));
    }

    pub(super) fn op_shed(&mut self, op: &str) {
        self.count_op(op, "shed");
    }

    fn count_op(&mut self, op: &str, outcome: &str) {
        let place = Action::OPS.iter().position(|known| *known == op);
        if let Some(counts) = self.ops.get_mut(place.unwrap_or(Action::OPS.len())) {
            counts.add(outcome, 1);
        }
    }
}

/// What became of an op, in one word.
pub(super) fn outcome_of(outcome: &SendResult) -> &'static str {
    match outcome {
        SendResult::NotSent(_) => "not_sent",
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
    pub link_measures: LinkMeasures,
    /// Whether the link stands, and whether it sleeps.
    pub link_state: String,
    /// Frames that came, by type.
    pub frames_received: Counts,
    /// Frames that went, by type.
    pub frames_sent: Counts,
    /// Commands in one commit.
    pub commit_commands: Histogram,
    /// How long a commit took.
    pub commit_seconds: Histogram,
    /// How long turns took.
    pub turn_seconds: Histogram,
    /// How long turns took to say something.
    pub first_word_seconds: Histogram,
    /// Ops by name and outcome: each time that one was asked for.
    pub ops: Vec<(&'static str, Counts)>,
    /// What waits, by where.
    pub queues: Vec<(&'static str, usize)>,
    /// Turns that run.
    pub turns_running: usize,
    /// Sessions that run or wait.
    pub sessions_active: usize,
    /// Whether the journal cannot be written.
    pub journal_failing: bool,
    /// Traces of turns, by what became of them.
    pub traces: Counts,
}

impl Measures {
    /// A copy, with what others counted.
    pub(super) fn snapshot(&self, tally: Tally, view: &LinkView, frames: (Counts, Counts)) -> Metrics {
        let names = Action::OPS.into_iter().chain(["other"]);
        Metrics {
            tally,
            link: view.counters,
            link_measures: view.measures.clone(),
            link_state: view.state.clone(),
            frames_received: frames.0,
            frames_sent: frames.1,
            commit_commands: self.commit_commands.clone(),
            commit_seconds: self.commit_seconds.clone(),
            turn_seconds: self.turn_seconds.clone(),
            first_word_seconds: self.first_word_seconds.clone(),
            ops: names.zip(self.ops.iter().cloned()).collect(),
            queues: Vec::new(),
            turns_running: 0,
            sessions_active: 0,
            journal_failing: false,
            traces: Counts::new(&TRACE_OUTCOMES),
        }
    }
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
        let mut counts = Counts::new(&["a", "other"]);
        counts.add("a", 1);
        counts.add("whatever a stranger wrote", 2);
        assert_eq!(counts.iter().collect::<Vec<_>>(), [("a", 1), ("other", 2)]);
        let mut measures = Measures::default();
        measures.op_shed("no such op");
        let (_, last) = (Action::OPS.len(), measures.ops.last().unwrap());
        assert_eq!(last.iter().last(), Some(("shed", 1)));
    }
}
