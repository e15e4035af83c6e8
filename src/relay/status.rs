//! What the relay tells about itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::core::Core;
use super::metrics::Metrics;
use super::shutdown::Phase;
use crate::agent::{Agent, AgentHealth};

/// What has happened since the relay started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Messages that arrived, duplicates included.
    pub inbound: u64,
    /// Forwarded requests that arrived.
    pub forwards: u64,
    /// Interrupts that arrived.
    pub interrupts: u64,
    /// Lines that could not be used.
    pub undecodable: u64,
    /// Lines set aside.
    pub quarantined: u64,
    /// Deliveries that had been seen before.
    pub duplicates: u64,
    /// Deliveries acknowledged.
    pub acks: u64,
    /// Deliveries that the journal could not take.
    pub refused_by_journal: u64,
    /// Messages handed to a running turn.
    pub steered: u64,
    /// Turns started.
    pub turns_started: u64,
    /// Turns that ended well.
    pub turns_done: u64,
    /// Turns that were stopped.
    pub turns_stopped: u64,
    /// Turns that failed.
    pub turns_failed: u64,
    /// Turns that the end of an earlier run cut short.
    pub turns_interrupted: u64,
    /// Questions put to people.
    pub prompts_opened: u64,
    /// Questions that people answered.
    pub prompts_answered: u64,
    /// Questions that nobody answered in time.
    pub prompts_expired: u64,
    /// Tokens that agents say they read.
    pub input_tokens: u64,
    /// Tokens that agents say they wrote.
    pub output_tokens: u64,
    /// Sessions whose queue overflowed into the journal.
    pub overflows: u64,
    /// Ops that the connector did.
    pub ops_applied: u64,
    /// Ops that the connector refused.
    pub ops_refused: u64,
    /// Ops of which it is not known whether they were done, and which were not repeated.
    pub ops_unknown: u64,
    /// Owed ops that a platform put off because it was too much.
    pub ops_limited: u64,
    /// Ops for show (typing, reactions) that were dropped for want of room.
    pub cosmetics_shed: u64,
    /// Ops for show that did not succeed.
    pub cosmetics_failed: u64,
    /// Ops that were taken over from an earlier run and sent.
    pub ops_recovered: u64,
    /// Times that the socket was closed to sleep.
    pub sleeps: u64,
    /// Times that a sleep ended with a new connection.
    pub wakes: u64,
    /// Sleeps that did not come about: no acknowledgement, work after all, or a machine that stayed up.
    pub sleeps_refused: u64,
}

/// How the relay stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// The link's state.
    pub link: String,
    /// Since when it has stood so, in Unix milliseconds.
    pub link_since_ms: i64,
    /// When the next dial is due, in Unix milliseconds, while there is no connection.
    pub link_retry_at_ms: Option<i64>,
    /// Why the last connection went.
    pub last_loss: Option<String>,
    /// How far the connector's clock is ahead, in milliseconds.
    pub clock_skew_ms: Option<i64>,
    /// Platforms that the connector declared.
    pub platforms: Vec<String>,
    /// What the connector declared for each.
    pub descriptors: Vec<DescriptorStatus>,
    /// Whether it is on its way to the end.
    pub shutting_down: bool,
    /// Turns that run.
    pub turns_running: usize,
    /// Sessions that run or wait.
    pub sessions_active: usize,
    /// Messages that wait in memory.
    pub messages_waiting: usize,
    /// Questions that wait for people.
    pub prompts_open: usize,
    /// Ops that are owed.
    pub ops_owed: usize,
    /// Turns' ends on their way into the journal.
    pub ends_uncommitted: usize,
    /// Ops on their way that are not owed.
    pub ops_passing: usize,
    /// Chats remembered.
    pub chats_known: usize,
    /// From the last wake to the first acknowledgement after it, in milliseconds.
    pub last_wake_ms: Option<u64>,
    /// Why the journal cannot be written.
    pub journal_failing: Option<String>,
    /// What has happened so far.
    pub tally: Tally,
}

impl Status {
    /// Whether messages come in or are kept for us by the connector; else why not.
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

/// What the connector declared for a platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescriptorStatus {
    /// The platform.
    pub platform: String,
    /// Its name for people.
    pub label: String,
    /// What can be done there.
    pub ops: Vec<String>,
}

/// How an agent stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentStatus {
    /// Its name in the settings.
    pub name: String,
    /// What sort of backend it is.
    pub kind: &'static str,
    /// `ready`, `degraded`, `down`, or `silent` when it did not say in time.
    pub state: &'static str,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The agents, to be asked how they stand.
pub(super) struct Staff(Vec<(Arc<str>, Arc<dyn Agent>)>);

impl fmt::Debug for Staff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl Staff {
    /// Asks all of them at once; who takes longer than `within` is silent.
    pub(super) async fn health(self, within: Duration) -> Vec<AgentStatus> {
        let ask = |(name, agent): (Arc<str>, Arc<dyn Agent>)| async move {
            let (state, why) = match tokio::time::timeout(within, agent.health()).await {
                Ok(AgentHealth::Ready) => ("ready", None),
                Ok(AgentHealth::Degraded(why)) => ("degraded", Some(why)),
                Ok(AgentHealth::Down(why)) => ("down", Some(why)),
                Err(_) => ("silent", Some("it did not say how it stands in time".to_owned())),
            };
            AgentStatus {
                name: name.to_string(),
                kind: agent.info().kind,
                state,
                why,
            }
        };
        futures_util::future::join_all(self.0.into_iter().map(ask)).await
    }
}

impl Core {
    pub(super) fn staff(&self) -> Staff {
        let agents = self.crew.agents();
        Staff(
            agents
                .map(|(name, agent)| (Arc::clone(name), Arc::clone(agent)))
                .collect(),
        )
    }

    pub(super) fn metrics(&self) -> Metrics {
        let waits = vec![
            ("arriving", self.arrivals.len()),
            ("waiting", self.sessions.queued()),
            ("ending", self.ending.len()),
            ("owed", self.owed.len()),
            ("passing", self.egress.passing.len()),
            ("out", self.out.len()),
        ];
        let frames = self.transport.frames();
        Metrics {
            queues: waits,
            turns_running: self.sessions.running(),
            sessions_active: self.sessions.active(),
            journal_failing: self.journal_failing.is_some(),
            traces: self.traces.counts(),
            ..self.measures.snapshot(self.tally, &self.view, frames)
        }
    }

    pub(super) fn status(&self) -> Status {
        let declared = self.view.descriptors.iter();
        Status {
            link: self.view.state.clone(),
            link_since_ms: self.link_since_ms,
            link_retry_at_ms: self.view.retry_at_ms,
            descriptors: declared
                .map(|(platform, descriptor)| DescriptorStatus {
                    platform: platform.to_owned(),
                    label: descriptor.label.clone(),
                    ops: descriptor.supported_ops.clone(),
                })
                .collect(),
            shutting_down: !matches!(self.phase, Phase::Serving),
            last_loss: self.view.last_loss.clone(),
            clock_skew_ms: self.view.clock_skew_ms,
            platforms: self
                .view
                .descriptors
                .iter()
                .map(|(platform, _)| platform.to_owned())
                .collect(),
            turns_running: self.sessions.running(),
            sessions_active: self.sessions.active(),
            messages_waiting: self.sessions.queued(),
            prompts_open: self.questions.open(),
            ops_owed: self.owed.len(),
            ends_uncommitted: self.ending.len(),
            ops_passing: self.egress.passing.len(),
            chats_known: self.chats.len(),
            last_wake_ms: self
                .sleeper
                .as_ref()
                .and_then(|sleeper| sleeper.last_wake)
                .map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            journal_failing: self.journal_failing.clone(),
            tally: self.tally,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_ready_while_messages_come_in_or_are_kept_for_it() {
        let ready = |link: &str, shutting_down| {
            let status = Status {
                link: link.to_owned(),
                last_loss: Some("it fell silent".to_owned()),
                shutting_down,
                ..Status::default()
            };
            status.readiness()
        };
        assert_eq!((ready("live", false), ready("dormant", false)), (Ok(()), Ok(())));
        for state in [
            "starting", "waiting", "dialing", "greeting", "closing", "closed", "revoked",
        ] {
            let why = ready(state, false).unwrap_err();
            assert_eq!(why, format!("the link is {state}: it fell silent"));
        }
        assert_eq!(ready("live", true).unwrap_err(), "shutting down");
    }
}
