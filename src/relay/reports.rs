//! What a running relay reports about itself: its state, its sessions, its metrics. It asks every part and changes none.

use std::time::Duration;

use super::event_loop::EventLoop;
use super::metrics::Metrics;
use super::parts::sleep::Sleeper;
use super::status::{DescriptorStatus, SessionList, SessionStatus, Status, Tally};

/// Sessions that run or wait.
pub(super) fn sessions(parts: &EventLoop, limit: usize) -> SessionList {
    let millis = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let turns = parts.turns.snapshot(parts.clock.mono());
    let sessions = turns.take(limit).map(|session| SessionStatus {
        session: session.session.as_str().to_owned(),
        state: session.state,
        agent: session.agent.map(str::to_owned),
        running_ms: session.running_for.map(millis),
        waiting: session.waiting,
        waiting_since_ms: None,
    });
    SessionList {
        total: parts.turns.sessions().active(),
        sessions: sessions.collect(),
    }
}

/// What has happened so far.
fn tally(parts: &EventLoop) -> Tally {
    let (inbound, turns) = (parts.inbound.counters(), parts.turns.counters());
    let (ops, questions) = (parts.outbox.counters(), parts.approvals.counters());
    let sleep = parts.sleeper.as_ref().map(Sleeper::counters).unwrap_or_default();
    Tally {
        inbound: inbound.messages,
        forwards: inbound.forwards,
        interrupts: inbound.interrupts,
        undecodable: inbound.undecodable,
        quarantined: inbound.quarantined,
        duplicates: inbound.duplicates,
        empty: inbound.empty,
        acks: inbound.acks,
        refused_by_journal: inbound.rejected,
        steered: turns.steered,
        turns_started: turns.started,
        turns_done: turns.done,
        turns_stopped: turns.stopped,
        turns_failed: turns.failed,
        turns_interrupted: turns.interrupted,
        prompts_opened: questions.opened,
        prompts_answered: questions.answered,
        prompts_expired: questions.expired,
        input_tokens: turns.input_tokens,
        output_tokens: turns.output_tokens,
        overflows: turns.overflows,
        ops_applied: ops.applied,
        ops_refused: ops.refused,
        ops_unknown: ops.unknown,
        ops_resent: ops.resent,
        ops_dropped: ops.dropped,
        ops_limited: ops.rate_limited,
        indicators_dropped: ops.indicators_dropped,
        indicators_failed: ops.indicators_failed,
        ops_recovered: ops.recovered,
        sleeps: sleep.sleeps,
        wakes: sleep.wakes,
        sleeps_refused: sleep.refused,
    }
}

/// Everything that is counted and measured.
pub(super) fn metrics(parts: &EventLoop) -> Metrics {
    let sessions = parts.turns.sessions();
    let (link, commits) = (parts.link.status(), parts.journal.metrics());
    let (frames_received, frames_sent) = parts.link.transport().frames();
    Metrics {
        tally: tally(parts),
        link: link.counters,
        link_metrics: link.metrics.clone(),
        link_state: link.state.clone(),
        frames_received,
        frames_sent,
        commit_commands: commits.commands.clone(),
        commit_seconds: commits.seconds.clone(),
        turn_seconds: parts.turns.metrics().turn_seconds.clone(),
        first_text_seconds: parts.turns.metrics().first_text_seconds.clone(),
        ops: parts.outbox.metrics().snapshot(),
        queues: vec![
            ("arriving", parts.journal.accepting()),
            ("waiting", sessions.queued()),
            ("ending", parts.turns.uncommitted()),
            ("owed", parts.outbox.durable()),
            ("passing", parts.outbox.ephemeral()),
            ("out", parts.outbox.in_flight()),
        ],
        turns_running: sessions.running(),
        sessions_active: sessions.active(),
        journal_failing: parts.journal.failing().is_some(),
        access: parts.access.counts(),
        cron: parts.scheduler.status(parts.clock.now()),
        handed: parts.handed.counts(),
        pools: parts.agents.pools(),
    }
}

/// The state of the relay.
pub(super) fn status(parts: &EventLoop) -> Status {
    let sessions = parts.turns.sessions();
    let link = parts.link.status();
    let declared = link.descriptors.iter();
    let wake = parts.sleeper.as_ref().and_then(Sleeper::last_wake);
    Status {
        link: link.state.clone(),
        link_since_ms: parts.link.since_ms(),
        link_retry_at_ms: link.retry_at_ms,
        last_loss: link.last_loss.clone(),
        clock_skew_ms: link.clock_skew_ms,
        platforms: declared.map(|(platform, _)| platform.to_owned()).collect(),
        descriptors: link
            .descriptors
            .iter()
            .map(|(platform, descriptor)| DescriptorStatus {
                platform: platform.to_owned(),
                label: descriptor.label.clone(),
                ops: descriptor.supported_ops.clone(),
            })
            .collect(),
        undeclared_platforms: parts
            .inbound
            .undeclared()
            .filter(|platform| link.descriptors.iter().all(|(known, _)| known != *platform))
            .map(str::to_owned)
            .collect(),
        last_refusal: parts.outbox.last_refusal().cloned(),
        shutting_down: !parts.lifecycle.is_serving(),
        turns_running: sessions.running(),
        sessions_active: sessions.active(),
        messages_waiting: sessions.queued(),
        cron: parts.scheduler.status(parts.clock.now()),
        prompts_open: parts.approvals.count(),
        ops_durable: parts.outbox.durable(),
        ends_uncommitted: parts.turns.uncommitted(),
        ops_ephemeral: parts.outbox.ephemeral(),
        chats_known: parts.chats.len(),
        last_wake_ms: wake.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        journal_failing: parts.journal.failing().cloned(),
        access: parts.access.status(),
        tally: tally(parts),
    }
}
