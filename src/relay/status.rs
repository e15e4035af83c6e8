//! What the relay tells about itself.

use serde::Serialize;

use super::core::Core;

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
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The link's state.
    pub link: String,
    /// Why the last connection went.
    pub last_loss: Option<String>,
    /// How far the connector's clock is ahead, in milliseconds.
    pub clock_skew_ms: Option<i64>,
    /// Platforms that the connector declared.
    pub platforms: Vec<String>,
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

impl Core {
    pub(super) fn status(&self) -> Status {
        Status {
            link: self.view.state.clone(),
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
