//! Metrics as Prometheus reads them: text, format 0.0.4. It takes numbers and gives a page, and asks nobody.
//!
//! Every label's values are few and fixed. docs/metrics.md explains each metric; a test compares the two.

use std::fmt::{Display, Write as _};

use crate::relay::{Counts, Histogram, Metrics};

/// What is said of the process.
pub(super) struct Process {
    pub(super) started_at_ms: i64,
    pub(super) resident_bytes: Option<u64>,
    pub(super) log_left_out: u64,
    pub(super) log_hidden: u64,
    pub(super) log_lost: u64,
}

/// The states that a link may be in.
const LINK_STATES: [&str; 9] = [
    "starting", "waiting", "dialing", "greeting", "live", "dormant", "closing", "closed", "revoked",
];

/// Everything on one page.
pub(super) fn page(metrics: &Metrics, process: &Process) -> String {
    let mut page = Page(String::with_capacity(32 * 1024));
    about_process(&mut page, process);
    about_link(&mut page, metrics);
    about_messages(&mut page, metrics);
    about_turns(&mut page, metrics);
    about_ops(&mut page, metrics);
    page.0
}

fn about_process(page: &mut Page, process: &Process) {
    page.family("build_info", "gauge", "Always 1; the version is the label.");
    page.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family(
        "start_time_seconds",
        "gauge",
        "When the relay started, in Unix seconds.",
    );
    page.sample("start_time_seconds", &[], process.started_at_ms / 1000);
    page.family("resident_memory_bytes", "gauge", "Memory in use.");
    if let Some(bytes) = process.resident_bytes {
        page.sample("resident_memory_bytes", &[], bytes);
    }
    page.family(
        "log_lines_left_out_total",
        "counter",
        "Log lines that repeated themselves and were left out.",
    );
    page.sample("log_lines_left_out_total", &[], process.log_left_out);
    page.family(
        "log_secrets_hidden_total",
        "counter",
        "Log lines in which a secret had to be hidden.",
    );
    page.sample("log_secrets_hidden_total", &[], process.log_hidden);
    page.family(
        "log_lines_lost_total",
        "counter",
        "Log lines that neither the system's journal nor standard error took.",
    );
    page.sample("log_lines_lost_total", &[], process.log_lost);
}

fn about_link(page: &mut Page, metrics: &Metrics) {
    let (link, measures) = (&metrics.link, &metrics.link_measures);
    page.family(
        "link_up",
        "gauge",
        "1 while the connection to the connector stands.",
    );
    page.sample("link_up", &[], u8::from(metrics.link_state == "live"));
    page.family("link_state", "gauge", "1 for the state that the link is in.");
    for state in LINK_STATES {
        page.sample(
            "link_state",
            &[("state", state)],
            u8::from(metrics.link_state == state),
        );
    }
    page.counter("dials_total", "Dials begun.", link.dials);
    page.counter("handshakes_total", "Handshakes completed.", link.handshakes);
    page.counts(
        "losses_total",
        "Connections and dials lost.",
        "reason",
        &measures.losses,
    );
    page.histogram(
        "handshake_seconds",
        "From the dial to the first descriptor.",
        &measures.handshake_seconds,
    );
    page.counts(
        "frames_received_total",
        "Frames received.",
        "type",
        &metrics.frames_received,
    );
    page.counts("frames_sent_total", "Frames sent.", "type", &metrics.frames_sent);
}

fn about_messages(page: &mut Page, metrics: &Metrics) {
    let tally = &metrics.tally;
    page.counter(
        "messages_total",
        "Messages that arrived, duplicates included.",
        tally.inbound,
    );
    page.counter("interrupts_total", "Interrupts that arrived.", tally.interrupts);
    page.counter(
        "decode_errors_total",
        "Lines that could not be used.",
        tally.undecodable,
    );
    page.counter("acks_total", "Deliveries acknowledged.", tally.acks);
    page.counter("duplicates_total", "Deliveries seen before.", tally.duplicates);
    page.counter("quarantined_total", "Lines set aside.", tally.quarantined);
    page.counter(
        "journal_refusals_total",
        "Deliveries that the journal could not take.",
        tally.refused_by_journal,
    );
    page.counter(
        "overflows_total",
        "Queues that overflowed into the journal.",
        tally.overflows,
    );
    page.family(
        "journal_failing",
        "gauge",
        "1 while the journal cannot be written.",
    );
    page.sample("journal_failing", &[], u8::from(metrics.journal_failing));
    page.histogram(
        "commit_commands",
        "Commands in one commit.",
        &metrics.commit_commands,
    );
    page.histogram(
        "commit_seconds",
        "How long a commit took.",
        &metrics.commit_seconds,
    );
}

fn about_turns(page: &mut Page, metrics: &Metrics) {
    let tally = &metrics.tally;
    page.counter("turns_started_total", "Turns started.", tally.turns_started);
    page.family("turns_total", "counter", "Turns ended, by how.");
    for (outcome, count) in [
        ("done", tally.turns_done),
        ("stopped", tally.turns_stopped),
        ("failed", tally.turns_failed),
        ("interrupted", tally.turns_interrupted),
    ] {
        page.sample("turns_total", &[("outcome", outcome)], count);
    }
    page.histogram("turn_seconds", "How long turns took.", &metrics.turn_seconds);
    page.histogram(
        "first_token_seconds",
        "How long turns took to say something.",
        &metrics.first_word_seconds,
    );
    page.family(
        "tokens_total",
        "counter",
        "Tokens that agents say they read and wrote.",
    );
    page.sample("tokens_total", &[("direction", "input")], tally.input_tokens);
    page.sample("tokens_total", &[("direction", "output")], tally.output_tokens);
    page.family("turns_running", "gauge", "Turns that run.");
    page.sample("turns_running", &[], metrics.turns_running);
    page.family("sessions_active", "gauge", "Sessions that run or wait.");
    page.sample("sessions_active", &[], metrics.sessions_active);
    page.family("queue_depth", "gauge", "What waits in memory, by where.");
    for (queue, depth) in &metrics.queues {
        page.sample("queue_depth", &[("queue", queue)], depth);
    }
}

fn about_ops(page: &mut Page, metrics: &Metrics) {
    let tally = &metrics.tally;
    page.family("ops_total", "counter", "Ops, each time one was asked for.");
    for (op, outcomes) in &metrics.ops {
        for (outcome, count) in outcomes.iter() {
            page.sample("ops_total", &[("op", op), ("outcome", outcome)], count);
        }
    }
    page.counter(
        "ops_unknown_total",
        "Owed ops given up because nobody knows whether they were done.",
        tally.ops_unknown,
    );
    page.counter(
        "ops_shed_total",
        "Ops for show dropped for want of room.",
        tally.cosmetics_shed,
    );
    page.counter(
        "ops_recovered_total",
        "Owed ops taken over from an earlier run.",
        tally.ops_recovered,
    );
    page.counts(
        "traces_total",
        "Traces of turns, where they are sent to a collector.",
        "outcome",
        &metrics.traces,
    );
}

/// A page that is being written. Names are given without their common beginning.
struct Page(String);

/// What every metric's name begins with.
const PREFIX: &str = "hermes_relay_";

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(
            self.0,
            "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}"
        );
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "{PREFIX}{name}");
        for (place, (label, text)) in labels.iter().enumerate() {
            let opening = if place == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{opening}{label}=\"{}\"", escaped(text));
        }
        let closing = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{closing} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, count: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], count);
    }

    fn counts(&mut self, name: &str, help: &str, label: &str, counts: &Counts) {
        self.family(name, "counter", help);
        for (value, count) in counts.iter() {
            self.sample(name, &[(label, value)], count);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        for (bound, count) in histogram.buckets() {
            let bound = if bound.is_finite() {
                bound.to_string()
            } else {
                "+Inf".to_owned()
            };
            self.sample(&format!("{name}_bucket"), &[("le", &bound)], count);
        }
        self.sample(&format!("{name}_sum"), &[], histogram.sum());
        self.sample(&format!("{name}_count"), &[], histogram.count());
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_ordered_as_given() {
        let mut page = Page(String::new());
        page.sample("x", &[("a", "1"), ("b", "q\"\\\n")], 2.5);
        page.sample("y", &[], 3);
        assert_eq!(
            page.0,
            "hermes_relay_x{a=\"1\",b=\"q\\\"\\\\\\n\"} 2.5\nhermes_relay_y 3\n"
        );
    }
}
