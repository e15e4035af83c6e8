//! The end, in stages that share one budget: finish turns, stop turns, flush, close.

use tokio::time::Instant;

use super::core::Core;
use crate::session::{Interrupt, Stop};

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
        let over = now + self.settings.budget.saturating_sub(self.settings.goodbye);
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
        committed && self.writes.is_empty() && (self.owed.is_empty() || !self.is_live())
    }

    fn stop_all_turns(&mut self) {
        let running: Vec<_> = self.turns.values().map(|turn| turn.key.clone()).collect();
        for key in running {
            if let Interrupt::Cancel(turn) = self.sessions.interrupt(&key) {
                self.cancel_turn(turn, Stop::Shutdown);
            }
        }
    }
}
