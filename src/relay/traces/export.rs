//! The task that sends finished traces: gathers for a moment, posts, and is patient with a collector that is away.
//!
//! One batch is on its way at a time. While the collector cannot take it, it is posted again after growing waits and the
//! rest waits behind it, up to the bound of the channel. It never waits for a turn and no turn waits for it. The log hears
//! when the collector stops taking traces and when it takes them again, not of every try.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::encode::{TurnTrace, request};
use super::recorder::{Meter, mixed};
use crate::net::otlp::{Collector, Verdict};

/// How long more traces are waited for before a batch goes out.
const GATHER: Duration = Duration::from_secs(1);
/// Spans at which a batch is full.
const FULL: usize = 512;
/// The first wait before a batch is posted again; doubles up to the last.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait before a batch is posted again.
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Sends traces to a collector.
#[derive(Debug)]
pub(super) struct Exporter {
    collector: Collector,
    service: String,
    waiting: mpsc::Receiver<TurnTrace>,
    /// Cancelled when nothing more comes and there is little time left.
    closing: CancellationToken,
    meter: Arc<Meter>,
    chance: u64,
    /// Whether the collector took the last batch.
    well: bool,
}

impl Exporter {
    pub(super) fn new(
        collector: Collector,
        service: String,
        (waiting, closing): (mpsc::Receiver<TurnTrace>, CancellationToken),
        meter: Arc<Meter>,
        chance: u64,
    ) -> Self {
        Self {
            collector,
            service,
            waiting,
            closing,
            meter,
            chance,
            well: true,
        }
    }

    /// Sends until nothing more comes.
    pub(super) async fn run(mut self) {
        tracing::info!(
            collector = self.collector.origin(),
            "traces of turns go to a collector"
        );
        while let Some(first) = self.waiting.recv().await {
            let batch = self.gather(first).await;
            let chance = &mut self.chance;
            let mut draw = || {
                *chance = chance.wrapping_add(1);
                mixed(*chance)
            };
            let body = request(&self.service, &batch, &mut draw);
            self.deliver(body, batch.len()).await;
        }
    }

    async fn gather(&mut self, first: TurnTrace) -> Vec<TurnTrace> {
        let mut spans = first.spans();
        let mut batch = vec![first];
        let until = Instant::now() + GATHER;
        while spans < FULL {
            // Closed ends the wait too. Cancel-safe: what is not taken stays.
            let Ok(Some(next)) = timeout_at(until, self.waiting.recv()).await else {
                break;
            };
            spans += next.spans();
            batch.push(next);
        }
        batch
    }

    async fn deliver(&mut self, body: Vec<u8>, traces: usize) {
        let mut wait = FIRST_RETRY;
        loop {
            match self.collector.post(body.clone()).await {
                Verdict::Taken => {
                    Meter::add(&self.meter.sent, traces);
                    if !std::mem::replace(&mut self.well, true) {
                        tracing::info!(
                            collector = self.collector.origin(),
                            "the collector takes traces again"
                        );
                    }
                    return;
                }
                Verdict::Refused(why) => {
                    Meter::add(&self.meter.refused, traces);
                    return self.complain(&why);
                }
                Verdict::Later(why) => self.complain(&why),
            }
            if self.closing.is_cancelled() {
                return Meter::add(&self.meter.dropped, traces);
            }
            tokio::select! {
                biased;
                // A last try.
                () = self.closing.cancelled() => {}
                () = sleep(wait) => {}
            }
            wait = (wait * 2).min(LAST_RETRY);
        }
    }

    fn complain(&mut self, why: &str) {
        if std::mem::replace(&mut self.well, false) {
            tracing::warn!(
                collector = self.collector.origin(),
                why,
                "the collector does not take traces; turns go on, and some traces will be lost. It must take OTLP over \
                 HTTP in JSON, as collectors do on port 4318"
            );
        }
    }
}
