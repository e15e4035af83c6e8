//! The metrics page in Prometheus' text format 0.0.4.
//!
//! Every label has few, fixed values. docs/metrics.md describes each metric; a test compares the two. The crates for it
//! (`prometheus-client`, `prometheus`, `metrics`) keep a registry of shared counters; here a page is written from one
//! snapshot of plain numbers, which is [`MetricsPage`] alone. `prometheus-client` would also change the page: it writes
//! `OpenMetrics`, with counters described under another name and bounds such as `1.0`.

use std::fmt::{Display, Write as _};

use serde_json::Value;

use crate::agent::AgentPool;
use crate::relay::{Histogram, LabelCounts, Metrics};

/// Numbers of the process itself.
pub(super) struct ProcessInfo {
    pub(super) started_at_ms: i64,
    pub(super) resident_bytes: Option<u64>,
    pub(super) log_suppressed: u64,
    pub(super) log_redacted: u64,
    pub(super) log_lost: u64,
    /// Exported traces by outcome.
    pub(super) traces: [(&'static str, u64); 3],
    /// Fires of the managed scheduler by outcome.
    pub(super) fires: [(&'static str, u64); 7],
    /// How often its keys were fetched.
    pub(super) key_fetches: u64,
    /// Requests to the receiver of deliveries by status.
    pub(super) received: [(&'static str, u64); 8],
    /// The cluster that the relay is a member of.
    pub(super) cluster: Option<Value>,
}

/// All states of a link.
const LINK_STATES: [&str; 9] = [
    "starting", "waiting", "dialing", "greeting", "live", "dormant", "closing", "closed", "revoked",
];

/// All roles of a member of a cluster: as it is reported, and as a label.
const ROLES: [(&str, &str); 3] = [
    ("active", "active"),
    ("standby", "standby"),
    ("taking over", "taking_over"),
];

/// The whole page.
pub(super) fn page(metrics: &Metrics, process: &ProcessInfo) -> String {
    let mut page = MetricsPage(String::with_capacity(32 * 1024));
    write_process(&mut page, process);
    write_link(&mut page, metrics);
    write_messages(&mut page, metrics);
    write_turns(&mut page, metrics);
    write_ops(&mut page, metrics);
    write_jobs(&mut page, metrics, process);
    write_deliveries(&mut page, metrics, process);
    write_cluster(&mut page, process.cluster.as_ref());
    write_traces(&mut page, process);
    page.0
}

fn write_process(page: &mut MetricsPage, process: &ProcessInfo) {
    page.family("build_info", "gauge", "Always 1; the version is the label.");
    page.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge(
        "start_time_seconds",
        "When the relay started, in Unix seconds.",
        process.started_at_ms / 1000,
    );
    page.family("resident_memory_bytes", "gauge", "Memory in use.");
    if let Some(bytes) = process.resident_bytes {
        page.sample("resident_memory_bytes", &[], bytes);
    }
    page.counter(
        "log_lines_left_out_total",
        "Repeated log lines that were suppressed.",
        process.log_suppressed,
    );
    page.counter(
        "log_secrets_hidden_total",
        "Log lines in which a secret was redacted.",
        process.log_redacted,
    );
    page.counter(
        "log_lines_lost_total",
        "Log lines lost because journald, standard error or the log file could not be written.",
        process.log_lost,
    );
}

fn write_link(page: &mut MetricsPage, metrics: &Metrics) {
    let (link, measures) = (&metrics.link, &metrics.link_metrics);
    page.gauge(
        "link_up",
        "1 while connected to the connector.",
        u8::from(metrics.link_state == "live"),
    );
    page.family("link_state", "gauge", "1 for the current state of the link.");
    for state in LINK_STATES {
        page.sample(
            "link_state",
            &[("state", state)],
            u8::from(metrics.link_state == state),
        );
    }
    page.counter("dials_total", "Dials started.", link.dials);
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

fn write_messages(page: &mut MetricsPage, metrics: &Metrics) {
    let tally = &metrics.tally;
    page.counter(
        "messages_total",
        "Messages received, duplicates included.",
        tally.inbound,
    );
    page.counter("interrupts_total", "Interrupts received.", tally.interrupts);
    page.counter(
        "decode_errors_total",
        "Frames that could not be decoded.",
        tally.undecodable,
    );
    page.family(
        "access_total",
        "counter",
        "Decisions about who may drive an agent.",
    );
    let nothing = ("allowed", "upstream", 0);
    let counts = if metrics.access.is_empty() {
        &[nothing][..]
    } else {
        &metrics.access
    };
    for (decision, reason, count) in counts {
        page.sample(
            "access_total",
            &[("decision", decision), ("reason", reason)],
            count,
        );
    }
    page.counter("acks_total", "Deliveries acknowledged.", tally.acks);
    page.counter(
        "duplicates_total",
        "Deliveries received before.",
        tally.duplicates,
    );
    page.counter(
        "empty_messages_total",
        "Messages without text or anything else to act on.",
        tally.empty,
    );
    page.counter("quarantined_total", "Frames quarantined.", tally.quarantined);
    page.counter(
        "journal_refusals_total",
        "Deliveries that the journal could not store.",
        tally.refused_by_journal,
    );
    page.counter(
        "overflows_total",
        "Queues that overflowed into the journal.",
        tally.overflows,
    );
    page.gauge(
        "journal_failing",
        "1 while the journal cannot be written.",
        u8::from(metrics.journal_failing),
    );
    page.histogram(
        "commit_commands",
        "Commands in one commit.",
        &metrics.commit_commands,
    );
    page.histogram("commit_seconds", "Duration of commits.", &metrics.commit_seconds);
}

fn write_turns(page: &mut MetricsPage, metrics: &Metrics) {
    let tally = &metrics.tally;
    page.counter("turns_started_total", "Turns started.", tally.turns_started);
    page.family("turns_total", "counter", "Turns ended, by outcome.");
    for (outcome, count) in [
        ("done", tally.turns_done),
        ("stopped", tally.turns_stopped),
        ("failed", tally.turns_failed),
        ("interrupted", tally.turns_interrupted),
    ] {
        page.sample("turns_total", &[("outcome", outcome)], count);
    }
    page.histogram("turn_seconds", "Duration of turns.", &metrics.turn_seconds);
    page.histogram(
        "first_token_seconds",
        "Time until the first output of turns.",
        &metrics.first_text_seconds,
    );
    page.family("tokens_total", "counter", "Tokens that agents report.");
    page.sample("tokens_total", &[("direction", "input")], tally.input_tokens);
    page.sample("tokens_total", &[("direction", "output")], tally.output_tokens);
    page.gauge("turns_running", "Turns running.", metrics.turns_running);
    page.gauge(
        "sessions_active",
        "Sessions running or waiting.",
        metrics.sessions_active,
    );
    page.family("queue_depth", "gauge", "Entries waiting in memory, by queue.");
    for (queue, depth) in &metrics.queues {
        page.sample("queue_depth", &[("queue", queue)], depth);
    }
    write_pools(page, &metrics.pools);
}

fn write_pools(page: &mut MetricsPage, pools: &[AgentPool]) {
    let families = [
        ("pool_workers", "Workers that are there, by pool."),
        ("pool_slots", "Turns that the workers can run at once, by pool."),
        (
            "pool_turns_running",
            "Turns that the workers run, for any relay, by pool.",
        ),
        (
            "pool_turns_waiting",
            "Turns of this relay that wait for a worker, by pool.",
        ),
    ];
    for (name, help) in families {
        page.family(name, "gauge", help);
        for pool in pools {
            let workers = pool.workers.iter();
            let value: usize = match name {
                "pool_workers" => workers.count(),
                "pool_slots" => workers.map(|worker| worker.slots).sum(),
                "pool_turns_running" => workers.map(|worker| worker.running).sum(),
                _ => pool.waiting,
            };
            page.sample(name, &[("pool", &pool.name)], value);
        }
    }
}

fn write_ops(page: &mut MetricsPage, metrics: &Metrics) {
    let tally = &metrics.tally;
    page.family("ops_total", "counter", "Ops requested, by outcome.");
    for (op, outcomes) in &metrics.ops {
        for (outcome, count) in outcomes.iter() {
            page.sample("ops_total", &[("op", op), ("outcome", outcome)], count);
        }
    }
    page.counter(
        "ops_unknown_total",
        "Durable ops dropped because their outcome is unknown.",
        tally.ops_unknown,
    );
    page.counter(
        "ops_shed_total",
        "Ephemeral ops dropped because a queue was full.",
        tally.indicators_dropped,
    );
    page.counter(
        "ops_resent_total",
        "Ops of unknown outcome that were sent again.",
        tally.ops_resent,
    );
    page.counter(
        "ops_dropped_total",
        "Ops that could not be delivered.",
        tally.ops_dropped,
    );
    page.counter(
        "ops_recovered_total",
        "Durable ops recovered from an earlier run.",
        tally.ops_recovered,
    );
}

fn write_jobs(page: &mut MetricsPage, metrics: &Metrics, process: &ProcessInfo) {
    let cron = &metrics.cron;
    page.gauge("cron_jobs", "Scheduled jobs that will run.", cron.jobs);
    page.gauge(
        "cron_jobs_armed",
        "Scheduled jobs that the managed scheduler has.",
        cron.armed.unwrap_or(0),
    );
    page.gauge("cron_jobs_running", "Scheduled jobs that run now.", cron.running);
    page.family(
        "cron_runs_total",
        "counter",
        "Runs of scheduled jobs, by outcome.",
    );
    page.sample("cron_runs_total", &[("outcome", "completed")], cron.completed);
    page.sample("cron_runs_total", &[("outcome", "failed")], cron.failed);
    page.counter(
        "cron_misfires_total",
        "Runs that the relay started because the managed scheduler did not.",
        cron.misfires,
    );
    page.family(
        "cron_fires_total",
        "counter",
        "Requests to the fire endpoint, by outcome.",
    );
    for (outcome, count) in process.fires {
        page.sample("cron_fires_total", &[("outcome", outcome)], count);
    }
    page.counter(
        "cron_key_fetches_total",
        "Fetches of the managed scheduler's keys.",
        process.key_fetches,
    );
}

fn write_deliveries(page: &mut MetricsPage, metrics: &Metrics, process: &ProcessInfo) {
    let counts = metrics.handed;
    page.family(
        "deliveries_total",
        "counter",
        "What others handed to the agents, by route.",
    );
    for (route, count) in [
        ("deliver", counts.delivered),
        ("wake", counts.woken),
        ("request_response", counts.requested),
    ] {
        page.sample("deliveries_total", &[("route", route)], count);
    }
    page.counter(
        "delivery_duplicates_total",
        "Deliveries that came before under the same dispatch_id.",
        counts.duplicates,
    );
    page.family(
        "receiver_requests_total",
        "counter",
        "Requests to the receiver of deliveries, by the status of the response.",
    );
    for (status, count) in process.received {
        page.sample("receiver_requests_total", &[("status", status)], count);
    }
}

fn write_cluster(page: &mut MetricsPage, cluster: Option<&Value>) {
    let members = cluster.and_then(|cluster| cluster["members"].as_array());
    let members: Vec<&Value> = members.into_iter().flatten().collect();
    page.family("cluster_role", "gauge", "1 for this relay's role in its cluster.");
    for (role, label) in cluster.iter().flat_map(|_| ROLES) {
        let is_own = cluster.is_some_and(|cluster| cluster["role"] == role);
        page.sample("cluster_role", &[("role", label)], u8::from(is_own));
    }
    page.family("cluster_members", "gauge", "Members of the cluster, by role.");
    for (role, label) in cluster.iter().flat_map(|_| ROLES) {
        let count = members.iter().filter(|member| member["role"] == role).count();
        page.sample("cluster_members", &[("role", label)], count);
    }
    page.family(
        "cluster_standbys_in_sync",
        "gauge",
        "Standbys that could take over.",
    );
    let standbys = members.iter().filter(|member| member["role"] == "standby");
    let positions: Vec<u64> = standbys
        .filter_map(|member| member["position"].as_u64())
        .collect();
    if cluster.is_some() {
        page.sample("cluster_standbys_in_sync", &[], positions.len());
    }
    let last = cluster.and_then(|cluster| cluster["last"].as_u64());
    page.family(
        "cluster_last_record",
        "gauge",
        "Number of the last record in the cluster's stream.",
    );
    if let Some(last) = last {
        page.sample("cluster_last_record", &[], last);
    }
    page.family(
        "cluster_standby_lag_records",
        "gauge",
        "Records that the best standby did not have when it was last heard of.",
    );
    if let (Some(last), Some(best)) = (last, positions.iter().max()) {
        page.sample("cluster_standby_lag_records", &[], last.saturating_sub(*best));
    }
    page.family(
        "cluster_commits_total",
        "counter",
        "Commits of this process that the cluster's stream took.",
    );
    if let Some(commits) = cluster.and_then(|cluster| cluster["commits"].as_u64()) {
        page.sample("cluster_commits_total", &[], commits);
    }
    page.family(
        "cluster_alone",
        "gauge",
        "1 while this relay goes on without the NATS server.",
    );
    if let Some(cluster) = cluster {
        page.sample("cluster_alone", &[], u8::from(!cluster["alone"].is_null()));
    }
}

fn write_traces(page: &mut MetricsPage, process: &ProcessInfo) {
    page.family(
        "traces_total",
        "counter",
        "Traces of turns sent to a collector, by outcome.",
    );
    for (outcome, count) in process.traces {
        page.sample("traces_total", &[("outcome", outcome)], count);
    }
}

/// Writes a page. Names are given without [`PREFIX`].
struct MetricsPage(String);

/// Prefix of every metric's name.
const PREFIX: &str = "hermes_relay_";

impl MetricsPage {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(
            self.0,
            "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}"
        );
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "{PREFIX}{name}");
        for (index, (label, text)) in labels.iter().enumerate() {
            let opening = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{opening}{label}=\"{}\"", escaped(text));
        }
        let closing = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{closing} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, count: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], count);
    }

    fn counts(&mut self, name: &str, help: &str, label: &str, counts: &LabelCounts) {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_is_measured_and_a_relay_alone_has_no_samples_of_one() {
        let written = |cluster: Option<&Value>| {
            let mut page = MetricsPage(String::new());
            write_cluster(&mut page, cluster);
            let lines = page.0.lines().filter(|line| !line.starts_with('#'));
            lines
                .map(|line| line.replace("hermes_relay_cluster_", ""))
                .collect::<Vec<_>>()
        };
        assert!(written(None).is_empty());
        let cluster = json!({"role": "active", "last": 12, "commits": 5, "members": [
            {"role": "active", "position": 12}, {"role": "standby", "position": 10},
            {"role": "standby", "position": 3}, {"role": "standby", "position": null},
        ]});
        assert_eq!(
            written(Some(&cluster)),
            [
                "role{role=\"active\"} 1",
                "role{role=\"standby\"} 0",
                "role{role=\"taking_over\"} 0",
                "members{role=\"active\"} 1",
                "members{role=\"standby\"} 3",
                "members{role=\"taking_over\"} 0",
                "standbys_in_sync 2",
                "last_record 12",
                "standby_lag_records 2",
                "commits_total 5",
                "alone 0",
            ]
        );
    }

    #[test]
    fn labels_are_escaped_in_order() {
        let mut page = MetricsPage(String::new());
        page.sample("x", &[("a", "1"), ("b", "q\"\\\n")], 2.5);
        page.sample("y", &[], 3);
        assert_eq!(
            page.0,
            "hermes_relay_x{a=\"1\",b=\"q\\\"\\\\\\n\"} 2.5\nhermes_relay_y 3\n"
        );
    }
}
