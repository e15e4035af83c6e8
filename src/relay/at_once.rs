//! Turns whose agent answers at once: they run to their end where they begin, without a task of their own.
//!
//! Such a turn is polled once. One that waits for something after all goes on in a task, like any other. What it wished
//! for is always taken before its end is.
//!
//! An agent that panics here, or in a task, fails its turn and no other — in a build that unwinds, which is the embedder's
//! choice. The program itself is built with `panic = "abort"`: none of its own agents runs foreign code in its process, so
//! a panic is a fault of its own, and it does not go on in a state that nobody foresaw. The process ends, whoever keeps it
//! starts it again, and the turn is told to its chat as cut short.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt as _;
use tokio::task::unconstrained;

use super::core::{Core, Ears};
use super::turn_task::TurnReport;
use crate::session::TurnId;

/// How a turn went that was over at once; one that panicked has no report.
pub(super) type EndAtOnce = Result<TurnReport, TurnId>;

impl Core {
    /// Runs a turn as far as it comes without waiting, and the rest of it in a task.
    pub(super) fn run_at_once(
        &mut self,
        turn: TurnId,
        running: impl Future<Output = TurnReport> + Send + 'static,
    ) {
        let mut running = Box::pin(running);
        // However many turns begin together, this task's budget must not make one of them wait.
        let first_look = || unconstrained(running.as_mut()).now_or_never();
        match catch_unwind(AssertUnwindSafe(first_look)) {
            Ok(Some(report)) => self.over_at_once.push(Ok(report)),
            Ok(None) => self.run_in_task(turn, running),
            Err(_) => self.over_at_once.push(Err(turn)),
        }
    }

    /// Runs a turn in a task of its own.
    pub(super) fn run_in_task(
        &mut self,
        turn: TurnId,
        running: impl Future<Output = TurnReport> + Send + 'static,
    ) {
        let task = self.tasks.spawn(running);
        self.task_turns.insert(task.id(), turn);
    }

    /// Ends the turns that were over at once.
    pub(super) fn take_ends_at_once(&mut self, ears: &mut Ears) {
        if self.over_at_once.is_empty() {
            return;
        }
        self.take_wishes(ears);
        for ended in std::mem::take(&mut self.over_at_once) {
            match ended {
                Ok(report) => self.end_turn(report),
                Err(turn) => self.end_panicked(turn),
            }
        }
    }
}
