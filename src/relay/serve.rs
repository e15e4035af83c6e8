//! The relay's loop: waits for whatever happens next, and takes it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::core::{Core, Ears, Ended, MOST_OUT, MOST_WISHES};
use super::handle::{COMMANDS, Command};
use super::shutdown::Phase;
use super::sleep::{Done, Errand};
use super::transport::Delivery;
use super::turn_task::{TurnReport, Wish};
use crate::link::SendResult;
use crate::session::TurnId;
use crate::store::{Batch, SubmitError};

/// Batches of deliveries that wait for this task.
const DELIVERY_BATCHES: usize = 4;

/// What woke the relay.
enum Happened {
    Shutdown,
    IdleAnswered,
    Errand(Done),
    Committed(Option<Batch>),
    Submitted(Result<(), SubmitError>),
    SendResult,
    Wished(Option<(TurnId, Wish)>),
    TurnEnded(Option<Result<(tokio::task::Id, TurnReport), tokio::task::JoinError>>),
    Link,
    Health,
    Command(Option<Command>),
    Delivered(Option<Vec<Delivery>>),
    Deadline,
}

impl Core {
    /// Serves until `shutdown` resolves, the gateway is revoked, or the journal is lost.
    pub(super) async fn run(
        mut self,
        mut ears: Ears,
        mut settled: mpsc::Receiver<(u64, SendResult)>,
        shutdown: impl Future<Output = ()>,
    ) -> Ended {
        let mut link = self.transport.view();
        let (delivery_sender, mut deliveries) = mpsc::channel(DELIVERY_BATCHES);
        self.traces.start();
        self.finish_recovery(&mut ears).await;
        self.offer_commands();
        self.transport.connect(delivery_sender);
        let mut shutdown = std::pin::pin!(shutdown);
        let transport = Arc::clone(&self.transport);
        let mut idle: Option<Pin<Box<dyn Future<Output = bool> + Send + '_>>> = None;
        let mut errand: Option<Errand<'_>> = None;
        let mut outcomes = Vec::with_capacity(256);
        let ended = loop {
            self.take_ends_at_once(&mut ears);
            self.incoming.untaken = !deliveries.is_empty();
            self.advance();
            self.submit();
            if let Some(ended) = self.ended() {
                break ended;
            }
            if let Some(next) = self
                .sleeper
                .as_mut()
                .and_then(|sleeper| sleeper.errand(&*transport))
            {
                errand = Some(next);
            }
            let deadline = self.next_deadline();
            let serving = matches!(self.phase, Phase::Serving);
            let takes_deliveries = self.takes_deliveries();
            let happened = tokio::select! {
                biased;
                () = &mut shutdown, if serving => Happened::Shutdown,
                _ = maybe(&mut idle) => Happened::IdleAnswered,
                done = maybe(&mut errand) => Happened::Errand(done),
                batch = ears.batches.recv() => Happened::Committed(batch),
                done = maybe(&mut self.submission) => Happened::Submitted(done),
                // Cancel-safe: recv_many, recv, changed and join_next take nothing unless chosen.
                count = settled.recv_many(&mut outcomes, 256) => {
                    debug_assert!(count > 0, "we hold a sender ourselves");
                    Happened::SendResult
                }
                wish = ears.wishes.recv() => Happened::Wished(wish),
                ended = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => Happened::TurnEnded(ended),
                Ok(()) = link.changed() => Happened::Link,
                Ok(()) = ears.health.changed() => Happened::Health,
                command = ears.commands.recv() => Happened::Command(command),
                batch = deliveries.recv(), if takes_deliveries => Happened::Delivered(batch),
                () = tokio::time::sleep_until(deadline) => Happened::Deadline,
            };
            match happened {
                Happened::Shutdown => {
                    // Whether it would have slept no longer matters.
                    errand = None;
                    self.begin_shutdown();
                    self.incoming.idle_unanswered = true;
                    idle = Some(transport.go_idle(self.settings.going_idle));
                }
                Happened::IdleAnswered => {
                    self.incoming.idle_unanswered = false;
                    idle = None;
                }
                Happened::Errand(done) => {
                    errand = None;
                    self.incoming.untaken = !deliveries.is_empty();
                    self.take_errand(done);
                }
                Happened::Committed(Some(batch)) => self.take_batch(batch),
                Happened::Committed(None) => self.journal_lost = true,
                Happened::Submitted(done) => {
                    self.submission = None;
                    self.journal_lost |= done.is_err();
                }
                Happened::SendResult => {
                    for (op, outcome) in outcomes.drain(..) {
                        self.take_outcome(op, outcome);
                    }
                }
                Happened::Wished(Some((turn, wish))) => self.take_wish(turn, wish),
                Happened::TurnEnded(ended) => {
                    self.take_wishes(&mut ears);
                    self.take_turn_end(ended);
                }
                Happened::Link => {
                    let now = link.borrow_and_update().clone();
                    self.take_link(now);
                }
                Happened::Health => {
                    let now = ears.health.borrow_and_update().clone();
                    self.take_health(now);
                }
                Happened::Command(Some(command)) => self.take_command(command),
                Happened::Delivered(Some(batch)) => self.take_deliveries(batch),
                Happened::Delivered(None) => self.incoming.over = true,
                Happened::Wished(None) | Happened::Command(None) | Happened::Deadline => {}
            }
            self.take_whatever_waits(&mut ears, &mut settled, &mut deliveries);
        };
        self.wind_up(&mut ears, &mut settled).await;
        ended
    }

    /// Takes what turns wish for. A turn wishes before it ends, so that this is done before an end is taken.
    pub(super) fn take_wishes(&mut self, ears: &mut Ears) {
        for _ in 0..2 * MOST_WISHES {
            let Ok((turn, wish)) = ears.wishes.try_recv() else {
                return;
            };
            self.take_wish(turn, wish);
        }
    }

    /// Takes what has come beside that which woke us, so that one round of writes serves all of it. Each
    /// channel is bounded, and so is what a round takes.
    fn take_whatever_waits(
        &mut self,
        ears: &mut Ears,
        settled: &mut mpsc::Receiver<(u64, SendResult)>,
        deliveries: &mut mpsc::Receiver<Vec<Delivery>>,
    ) {
        while let Ok(batch) = ears.batches.try_recv() {
            self.take_batch(batch);
        }
        for _ in 0..MOST_OUT {
            let Ok((op, outcome)) = settled.try_recv() else {
                break;
            };
            self.take_outcome(op, outcome);
        }
        self.take_wishes(ears);
        // However much comes and goes, whoever asks how the relay stands is answered.
        for _ in 0..COMMANDS {
            let Ok(command) = ears.commands.try_recv() else {
                break;
            };
            self.take_command(command);
        }
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.take_wishes(ears);
            self.take_turn_end(Some(ended));
        }
        while self.takes_deliveries()
            && let Ok(batch) = deliveries.try_recv()
        {
            self.take_deliveries(batch);
        }
    }
}

async fn maybe<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
