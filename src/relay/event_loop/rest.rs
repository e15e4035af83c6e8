//! Coming to rest: what is still to be done, sleep, shutdown, and why the loop ends.

use std::time::Duration;

use tokio::time::timeout;

use super::{Channels, Event, EventLoop, ExitReason};
use crate::relay::parts::lifecycle::{ABORT_TIMEOUT, CLOSE_TIMEOUT, LAST_WRITES_TIMEOUT, Step, Unsent};
use crate::relay::parts::sleep::{SleepEvent, SleepStep, Sleeper};
use crate::session::{OutstandingWork, StopReason};

impl EventLoop {
    pub(super) fn step_lifecycle(&mut self, now: Duration) {
        // Counting what is uncommitted costs a look at each entry, which only a shutdown needs.
        if self.lifecycle.is_serving() {
            return;
        }
        let committed = self.journal.uncommitted() == 0
            && self.turns.uncommitted() == 0
            && !self.turns.has_unread_edit()
            && !self.scheduler.has_unsaved();
        let live = self.link.is_live();
        let unsent = if !committed || self.inbound.has_waiting() || (live && self.outbox.is_busy()) {
            Unsent::Work
        } else if live && self.outbox.has_final_indicators() {
            Unsent::Indicators
        } else {
            Unsent::Nothing
        };
        if self.lifecycle.step(now, self.turns.is_empty(), unsent) == Step::StopTurns {
            for turn in self.approvals.leave() {
                self.turns.leave(turn);
            }
            for row in self.approvals.restored_rows() {
                self.turns.leave_row(row);
            }
            for turn in self.turns.stop_all(StopReason::Shutdown) {
                self.approvals.withdraw_turn(turn, &mut self.effects);
            }
        }
    }

    pub(super) fn step_sleep(&mut self) {
        if self.sleeper.is_none() || !self.lifecycle.is_serving() {
            return;
        }
        let (now, live, work) = (self.clock.now(), self.link.is_live(), self.outstanding());
        if let Some(sleeper) = &mut self.sleeper
            && sleeper.step(now, live, &work) == SleepStep::Wake
        {
            self.link.wake();
        }
    }

    pub(super) fn handle_sleep(&mut self, event: SleepEvent) {
        let (now, work) = (self.clock.now(), self.outstanding());
        let Some(sleeper) = self.sleeper.as_mut().filter(|_| self.lifecycle.is_serving()) else {
            return;
        };
        match sleeper.task_ended(event, now, &work) {
            SleepStep::Wake => self.link.wake(),
            SleepStep::CallOff if self.link.is_live() => self.lifecycle.reconnect_now(now.mono),
            SleepStep::CallOff | SleepStep::Nothing => {}
        }
    }

    /// Everything that is still to be done, in whichever part it is: what sleep and drain go by. Every field is named, so
    /// that a new part cannot be forgotten.
    pub(super) fn outstanding(&mut self) -> OutstandingWork {
        let Self {
            turns,
            turn_requests: _,
            outbox,
            approvals,
            agents,
            scheduler,
            job_files,
            journal,
            lifecycle,
            inbound,
            group_threads,
            listings,
            clock,
            effects,
            access: _,
            commands: _,
            pickers: _,
            conversations: _,
            chats: _,
            adapters: _,
            media: _,
            voice: _,
            changes: _,
            quiet: _,
            messages: _,
            sleeper: _,
            handed: _,
            group_notes: _,
            settings: _,
            link: _,
        } = self;
        OutstandingWork {
            turns: turns.outstanding() + scheduler.outstanding() + job_files.outstanding(),
            queued: turns.sessions().active() + usize::from(turns.sessions().has_elsewhere()),
            ops: outbox.outstanding(),
            uncommitted: journal.outstanding()
                + agents.forgetting()
                + effects.commands()
                + group_threads.outstanding()
                + listings.outstanding()
                + usize::from(inbound.has_waiting()),
            prompts: approvals.count(),
            unseen: journal.is_unwell() || lifecycle.is_reconnecting(),
            next_due: scheduler.next_due(clock.now()),
        }
    }

    pub(super) fn exit_reason(&self) -> Option<ExitReason> {
        if self.journal.is_lost() {
            return Some(ExitReason::JournalLost);
        }
        if self.lifecycle.is_over() {
            return Some(ExitReason::Shutdown);
        }
        if self.sleeper.as_ref().is_some_and(Sleeper::is_over) {
            return Some(ExitReason::Slept);
        }
        let revoked = self
            .link
            .revoked()
            .filter(|_| self.lifecycle.exits_when_revoked())?;
        Some(ExitReason::Revoked {
            reason: revoked.to_owned(),
        })
    }

    /// Shutdown begins; returns how long the connector may take to confirm that it buffers.
    pub(super) fn begin_shutdown(&mut self) -> Duration {
        self.turns.set_paused(true);
        tracing::info!(
            running = self.turns.sessions().running(),
            unsent = self.outbox.durable(),
            "shutting down"
        );
        self.lifecycle.begin_shutdown(self.clock.mono())
    }

    /// Closes everything, in order: the connection, the turns, the agents, the journal.
    pub(super) async fn shut_down(&mut self, channels: &mut Channels) {
        self.turns.abort_all(Duration::ZERO).await;
        self.link.disconnect(CLOSE_TIMEOUT).await;
        while let Ok((op, result)) = channels.results.try_recv() {
            self.handle(Event::Result(op, result));
        }
        // Aborting only asks: a turn that releases a run has it stopped, for which its agent must still be there.
        self.turns.abort_all(ABORT_TIMEOUT).await;
        if timeout(CLOSE_TIMEOUT, self.agents.shutdown()).await.is_err() {
            tracing::warn!("the agents did not shut down in time");
        }
        // The journal releases the state directory.
        self.group_notes = None;
        self.clock.advance();
        let transport = self.link.transport();
        let now = self.clock.mono();
        let has_left = |op, platform: Option<&str>| transport.has_left(op, platform);
        self.outbox.mark_sent(now, true, has_left, &mut self.effects);
        let mut closing = std::pin::pin!(self.journal.close(&mut self.effects, LAST_WRITES_TIMEOUT));
        let closed = loop {
            tokio::select! {
                biased;
                closed = &mut closing => break closed,
                batch = channels.batches.recv() => if batch.is_none() { break closing.await },
            }
        };
        self.turns.abort_all(CLOSE_TIMEOUT).await;
        self.job_files.flush(CLOSE_TIMEOUT).await;
        if let Err(error) = closed {
            tracing::error!(%error, "the journal was not closed cleanly");
        }
    }
}
