//! The end, in stages that share one budget: finish turns, stop turns, flush, close.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::core::{Core, Ears};
use crate::link::SendResult;
use crate::session::{Interrupt, StopReason};

/// How long the last writes may wait for room in the journal.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// How long turns that were given up may take to let go of what they hold.
const LETTING_GO: Duration = Duration::from_millis(500);

/// Where the relay stands on its way to the end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// Not on its way.
    Serving,
    /// No new turns; running ones may finish until then.
    Draining {
        /// When they are stopped.
        until: Instant,
        /// When everything is over.
        over: Instant,
    },
    /// Running turns were told to stop.
    Stopping {
        /// When they are given up.
        until: Instant,
        /// When everything is over.
        over: Instant,
    },
    /// What is owed goes out.
    Flushing {
        /// When everything is over.
        over: Instant,
    },
    /// Nothing is left to do.
    Over,
}

impl Phase {
    /// When the phase ends by itself.
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Serving | Self::Over => None,
            Self::Draining { until, .. } | Self::Stopping { until, .. } => Some(until),
            Self::Flushing { over } => Some(over),
        }
    }
}

impl Core {
    pub(super) fn begin_shutdown(&mut self) {
        self.sessions.pause();
        let now = Instant::now();
        let over = now
            + self
                .settings
                .shutdown_budget
                .saturating_sub(self.settings.goodbye);
        let until = (now + self.settings.drain).min(over);
        tracing::info!(
            running = self.sessions.running(),
            owed = self.owed.len(),
            "shutting down"
        );
        self.phase = Phase::Draining { until, over };
    }

    /// Moves on to the next phase when this one is through.
    pub(super) fn step_phase(&mut self) {
        let now = Instant::now();
        loop {
            self.phase = match self.phase {
                Phase::Draining { over, .. } if self.turns.is_empty() => Phase::Flushing { over },
                Phase::Draining { until, over } if now >= until => {
                    self.stop_all_turns();
                    Phase::Stopping {
                        until: (now + self.settings.grace * 2).min(over),
                        over,
                    }
                }
                Phase::Stopping { over, .. } if self.turns.is_empty() => Phase::Flushing { over },
                Phase::Stopping { until, over } if now >= until => Phase::Flushing { over },
                Phase::Flushing { over } if now >= over || self.is_flushed() => Phase::Over,
                Phase::Serving
                | Phase::Draining { .. }
                | Phase::Stopping { .. }
                | Phase::Flushing { .. }
                | Phase::Over => return,
            };
        }
    }

    /// Nothing comes in any more, nothing is on its way into the journal, and nothing owed can still go out.
    fn is_flushed(&self) -> bool {
        if self.incoming.idle_unanswered || self.incoming.untaken {
            return false;
        }
        let committed = self.arrivals.is_empty() && self.ending.is_empty() && self.adding.is_empty();
        // What has no completion is written while everything winds up.
        committed && (self.owed.is_empty() || !self.is_live())
    }

    fn stop_all_turns(&mut self) {
        let running: Vec<_> = self.turns.values().map(|turn| turn.key.clone()).collect();
        for key in running {
            if let Interrupt::Cancel(turn) = self.sessions.interrupt(&key) {
                self.cancel_turn(turn, StopReason::Shutdown);
            }
        }
    }

    /// Says goodbye to everyone, in order: the connector, the agent, the journal.
    pub(super) async fn wind_up(&mut self, ears: &mut Ears, settled: &mut mpsc::Receiver<(u64, SendResult)>) {
        self.tasks.abort_all();
        self.transport.disconnect(self.settings.goodbye).await;
        while let Ok((op, outcome)) = settled.try_recv() {
            self.take_outcome(op, outcome);
        }
        // Aborting only asks. A turn that lets go of a run has it stopped, for which its agent has to be there yet.
        let gone = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(LETTING_GO, gone).await.is_err() {
            tracing::debug!(
                left = self.tasks.len(),
                "turns that were given up have not let go"
            );
        }
        let agents = futures_util::future::join_all(self.crew.agents().map(|(_, agent)| agent.shutdown()));
        if timeout(self.settings.goodbye, agents).await.is_err() {
            tracing::warn!("the agents did not shut down in time");
        }
        self.tell_journal_of_ops(Instant::now(), Duration::ZERO);
        let (before, last) = (self.submission.take(), std::mem::take(&mut self.writes));
        let journal = self.journal.clone();
        let closing = async {
            // A journal that cannot write takes nothing more; closing it says what was lost.
            let _ = timeout(LAST_WRITES, async {
                if let Some(before) = before {
                    let _ = before.await;
                }
                let _ = journal.submit(last).await;
            })
            .await;
            journal.close().await
        };
        let mut closing = std::pin::pin!(closing);
        let closed = loop {
            tokio::select! {
                closed = &mut closing => break closed,
                batch = ears.batches.recv() => if batch.is_none() { break closing.await },
            }
        };
        // What turns downloaded goes with them.
        if timeout(self.settings.goodbye, self.tasks.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("some turns did not end in time");
        }
        self.traces.end(self.settings.goodbye).await;
        if let Err(error) = closed {
            tracing::error!(%error, "the journal was not closed cleanly");
        }
    }
}
