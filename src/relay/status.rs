//! What the relay reports about itself: its status, its sessions and the health of its agents.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::agent::{Agent, AgentHealth, AgentPool, AgentProcess};

/// What has happened since the relay started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Messages that arrived, duplicates included.
    pub inbound: u64,
    /// Forwarded requests that arrived.
    pub forwards: u64,
    /// Interrupts that arrived.
    pub interrupts: u64,
    /// Lines that could not be decoded.
    pub undecodable: u64,
    /// Lines that were quarantined.
    pub quarantined: u64,
    /// Deliveries that had been seen before.
    pub duplicates: u64,
    /// Messages without text or anything else to act on.
    pub empty: u64,
    /// Deliveries acknowledged.
    pub acks: u64,
    /// Deliveries that the journal could not take.
    pub refused_by_journal: u64,
    /// Messages handed to a running turn.
    pub steered: u64,
    /// Turns started.
    pub turns_started: u64,
    /// Turns that completed.
    pub turns_done: u64,
    /// Turns that were stopped.
    pub turns_stopped: u64,
    /// Turns that failed.
    pub turns_failed: u64,
    /// Turns that the end of an earlier run interrupted.
    pub turns_interrupted: u64,
    /// Questions put to people.
    pub prompts_opened: u64,
    /// Questions that people answered.
    pub prompts_answered: u64,
    /// Questions that nobody answered in time.
    pub prompts_expired: u64,
    /// Tokens that agents report to have read.
    pub input_tokens: u64,
    /// Tokens that agents report to have written.
    pub output_tokens: u64,
    /// Sessions whose queue overflowed into the journal.
    pub overflows: u64,
    /// Ops that the connector applied.
    pub ops_applied: u64,
    /// Ops that the connector refused.
    pub ops_refused: u64,
    /// Ops whose outcome is unknown and that were not sent again.
    pub ops_unknown: u64,
    /// Ops that were put off by a platform's rate limit.
    pub ops_limited: u64,
    /// Ops of unknown outcome that were sent again.
    pub ops_resent: u64,
    /// Ops that could not be delivered.
    pub ops_dropped: u64,
    /// Indicators (typing, reactions) that were dropped for lack of room.
    pub indicators_dropped: u64,
    /// Indicators that failed.
    pub indicators_failed: u64,
    /// Ops that an earlier run left and that were sent.
    pub ops_recovered: u64,
    /// Times that the socket was closed to sleep.
    pub sleeps: u64,
    /// Times that a sleep ended with a new connection.
    pub wakes: u64,
    /// Sleeps that were called off: no acknowledgement, work after all, or a machine that stayed up.
    pub sleeps_refused: u64,
}

/// Scheduled jobs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CronStatus {
    /// What starts them now: `builtin`, `chronos` or `off`.
    pub provider: &'static str,
    /// Why the managed scheduler is not used although it is configured.
    pub unavailable: Option<String>,
    /// The time zone of jobs without their own.
    pub timezone: String,
    /// Jobs that will run.
    pub jobs: usize,
    /// Jobs that the managed scheduler has; none without it.
    pub armed: Option<usize>,
    /// Jobs that run now.
    pub running: usize,
    /// Claimed runs that wait for a slot.
    pub waiting: usize,
    /// When the next one runs.
    pub next_run_at: Option<String>,
    /// Runs of this process that completed.
    pub completed: u64,
    /// Runs of this process that failed.
    pub failed: u64,
    /// Runs that the relay started because the managed scheduler did not.
    pub misfires: u64,
    /// The last failure: the job's id, and why.
    pub last_failure: Option<(String, String)>,
}

/// The state of the relay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// The link's state.
    pub link: String,
    /// Since when, in Unix milliseconds.
    pub link_since_ms: i64,
    /// When the next dial is due, in Unix milliseconds, while there is no connection.
    pub link_retry_at_ms: Option<i64>,
    /// Why the last connection was lost.
    pub last_loss: Option<String>,
    /// How far the connector's clock is ahead, in milliseconds.
    pub clock_skew_ms: Option<i64>,
    /// Platforms that the connector declared.
    pub platforms: Vec<String>,
    /// What the connector declared for each.
    pub descriptors: Vec<DescriptorStatus>,
    /// Platforms that messages came from, but that this relay did not announce: their answers are refused.
    pub undeclared_platforms: Vec<String>,
    /// The op that the connector refused last.
    pub last_refusal: Option<RefusedOp>,
    /// Whether it is shutting down.
    pub shutting_down: bool,
    /// Turns that run.
    pub turns_running: usize,
    /// Sessions that run or wait.
    pub sessions_active: usize,
    /// Messages that wait in memory.
    pub messages_waiting: usize,
    /// Scheduled jobs.
    pub cron: CronStatus,
    /// Questions that wait for people.
    pub prompts_open: usize,
    /// Durable ops that are not settled.
    pub ops_durable: usize,
    /// Ends of turns on their way into the journal, and marks of messages that running turns take.
    pub ends_uncommitted: usize,
    /// Ephemeral ops that wait or are in flight.
    pub ops_ephemeral: usize,
    /// Chats remembered.
    pub chats_known: usize,
    /// From the last wake to the first acknowledgement after it, in milliseconds.
    pub last_wake_ms: Option<u64>,
    /// Why the journal cannot be written.
    pub journal_failing: Option<String>,
    /// Who may drive an agent.
    pub access: AccessStatus,
    /// What has happened so far.
    pub tally: Tally,
}

/// Who may drive an agent.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AccessStatus {
    /// `upstream`, `list`, `pair` or `open`.
    pub mode: &'static str,
    /// Whether somebody may do everything and approve others.
    pub has_owner: bool,
    /// What to know when everybody may drive an agent that can act, or when nobody can approve those who ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl Status {
    /// Whether messages come in or are buffered by the connector; else why not.
    pub fn readiness(&self) -> Result<(), String> {
        if self.shutting_down {
            return Err("shutting down".to_owned());
        }
        match (self.link.as_str(), &self.last_loss) {
            ("live" | "dormant", _) => Ok(()),
            (state, None) => Err(format!("the link is {state}")),
            (state, Some(loss)) => Err(format!("the link is {state}: {loss}")),
        }
    }
}

/// An op that the connector refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedOp {
    /// The op's name.
    pub op: String,
    /// The connector's reason, printable and truncated.
    pub error: String,
    /// When, in Unix milliseconds.
    pub at_ms: i64,
}

/// What the connector declared for a platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescriptorStatus {
    /// The platform.
    pub platform: String,
    /// Its name for people.
    pub label: String,
    /// The ops it supports.
    pub ops: Vec<String>,
}

/// Sessions, and how many there are in all.
#[derive(Clone, Debug, Serialize)]
pub struct SessionList {
    /// Sessions that run or wait, listed or not.
    pub total: usize,
    /// Those that are listed; the running ones come first.
    pub sessions: Vec<SessionStatus>,
}

/// The state of one session.
#[derive(Clone, Debug, Serialize)]
pub struct SessionStatus {
    /// Its key.
    pub session: String,
    /// `running`, `stopping`, `starting` (its message is being read or written) or `waiting`.
    pub state: &'static str,
    /// The agent that runs its turn.
    pub agent: Option<String>,
    /// How long its turn has run, in milliseconds.
    pub running_ms: Option<u64>,
    /// Messages of it that wait, in memory or in the journal.
    pub waiting: usize,
    /// Since when the first of them has waited, in Unix milliseconds, where the journal was asked.
    pub waiting_since_ms: Option<i64>,
}

/// The health of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentStatus {
    /// Its name in the settings.
    pub name: String,
    /// What sort of backend it is.
    pub kind: &'static str,
    /// `ready`, `degraded`, `down`, or `silent` when it did not answer in time.
    pub state: &'static str,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The processes that it keeps between turns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<AgentProcess>,
    /// The workers that its turns run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<AgentPool>,
}

/// The agents whose health is to be checked.
pub(super) struct HealthCheck(Vec<(Arc<str>, Arc<dyn Agent>)>);

impl fmt::Debug for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl HealthCheck {
    pub(super) fn new<'a>(agents: impl Iterator<Item = (&'a Arc<str>, &'a Arc<dyn Agent>)>) -> Self {
        Self(
            agents
                .map(|(name, agent)| (Arc::clone(name), Arc::clone(agent)))
                .collect(),
        )
    }

    /// The names of the agents.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.to_string()).collect()
    }

    /// Checks all agents together; one that takes longer than `within` is silent.
    pub(super) async fn run(self, within: Duration) -> Vec<AgentStatus> {
        let check = |(name, agent): (Arc<str>, Arc<dyn Agent>)| async move {
            let (state, why) = match tokio::time::timeout(within, agent.health()).await {
                Ok(AgentHealth::Ready) => ("ready", None),
                Ok(AgentHealth::Degraded(why)) => ("degraded", Some(why)),
                Ok(AgentHealth::Down(why)) => ("down", Some(why)),
                Ok(AgentHealth::NotInstalled(why)) => ("not installed", Some(why)),
                Err(_) => ("silent", Some("the health check timed out".to_owned())),
            };
            AgentStatus {
                name: name.to_string(),
                kind: agent.info().kind,
                state,
                why,
                processes: agent.processes(),
                pool: agent.pool(),
            }
        };
        futures_util::future::join_all(self.0.into_iter().map(check)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_ready_while_messages_come_in_or_are_buffered() {
        let ready = |link: &str, shutting_down| {
            let status = Status {
                link: link.to_owned(),
                last_loss: Some("no traffic".to_owned()),
                shutting_down,
                ..Status::default()
            };
            status.readiness()
        };
        assert_eq!((ready("live", false), ready("dormant", false)), (Ok(()), Ok(())));
        for state in [
            "starting", "waiting", "dialing", "greeting", "closing", "closed", "revoked",
        ] {
            let error = ready(state, false).unwrap_err();
            assert_eq!(error, format!("the link is {state}: no traffic"));
        }
        assert_eq!(ready("live", true).unwrap_err(), "shutting down");
    }
}
