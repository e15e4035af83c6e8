//! What is noted of the turns that are being traced, until each is finished. It sends nothing itself and asks nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::encode::{Answer, Run, TurnTrace};
use super::export::Exporter;
use crate::collections::IdMap;
use crate::net::otlp::Collector;
use crate::relay::clock::Clock;

/// Turns that are traced at a time, waiting ones included.
pub(super) const MOST_OPEN: usize = 4096;
/// Finished traces that wait to be sent.
pub(super) const MOST_FINISHED: usize = 1024;

/// What becomes of traces, counted by those who do it.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) sent: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Meter {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// A moment by both clocks, from which the others of its trace are counted: the clock on the wall may be set meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) wall: u64,
    pub(super) mono: Instant,
}

impl Anchor {
    pub(super) fn here() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            wall: nanos(since),
            mono: Instant::now(),
        }
    }

    /// Nanoseconds since 1970, now.
    pub(super) fn now(self) -> u64 {
        self.wall.saturating_add(nanos(self.mono.elapsed()))
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// When a message was seen first, where anybody wants to know.
#[derive(Clone, Copy, Debug)]
pub(in crate::relay) struct Seen(pub(super) Option<Anchor>);

/// A turn that is being traced.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) anchor: Anchor,
    pub(super) arrived: u64,
    /// Not known of a message that an earlier run committed.
    pub(super) committed: Option<u64>,
    pub(super) attempt: u32,
    pub(super) steered: u32,
    pub(super) stage: Stage,
}

/// How far a traced turn is.
#[derive(Debug)]
pub(super) enum Stage {
    Waiting,
    Running(Run),
    /// The agent is done; so many of the answer's ops are not.
    Owing(Run, Answer, usize),
}

/// An op of a traced turn's answer.
#[derive(Debug)]
pub(super) struct TracedOp {
    pub(super) row: i64,
    /// When it was handed to the link, while it is out.
    pub(super) out: Option<u64>,
}

/// Turns that are being traced, and the way to those who send them.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Of 2^64, how many are sampled.
    pub(super) share: u128,
    pub(super) seed: u64,
    /// By the number of the message's row.
    pub(super) open: IdMap<i64, Open>,
    /// By their own number.
    pub(super) ops: IdMap<i64, TracedOp>,
    pub(super) finished: mpsc::Sender<TurnTrace>,
    pub(super) meter: Arc<Meter>,
    pub(super) exporter: Option<Exporter>,
    pub(super) task: Option<AbortOnDropHandle<()>>,
    pub(super) closing: CancellationToken,
}

impl Recorder {
    pub(super) fn new(collector: Collector, service: String, sample: f64) -> Self {
        let (finished, waiting) = mpsc::channel(MOST_FINISHED);
        let (meter, closing) = (Arc::new(Meter::default()), CancellationToken::new());
        let seed = Clock::start().seed();
        Self {
            share: share_of(sample),
            seed,
            open: IdMap::default(),
            ops: IdMap::default(),
            finished,
            exporter: Some(Exporter::new(
                collector,
                service,
                (waiting, closing.clone()),
                Arc::clone(&meter),
                seed,
            )),
            meter,
            task: None,
            closing,
        }
    }

    /// Traces a row from here on, where it is sampled. The row alone decides, so that one that is read back is judged as
    /// it was when it came.
    pub(super) fn begin(&mut self, row: i64, anchor: Anchor, arrived: u64, committed: Option<u64>) {
        if u128::from(mixed(self.seed ^ row.unsigned_abs())) >= self.share {
            return;
        }
        if self.open.len() >= MOST_OPEN {
            return Meter::add(&self.meter.dropped, 1);
        }
        let open = Open {
            anchor,
            arrived,
            committed,
            attempt: 1,
            steered: 0,
            stage: Stage::Waiting,
        };
        self.open.insert(row, open);
    }

    /// Finishes a trace as far as it came; one that never ran is none.
    pub(super) fn close(&mut self, row: i64) {
        let Some(open) = self.open.remove(&row) else {
            return;
        };
        let now = open.anchor.now();
        let (run, answer) = match open.stage {
            Stage::Waiting => return,
            Stage::Running(run) => (run, Answer::new(now, "cut_short", 0)),
            Stage::Owing(run, answer, _) => (run, answer),
        };
        let trace = TurnTrace {
            arrived: open.arrived,
            committed: open.committed,
            over: now,
            attempt: open.attempt,
            steered: open.steered,
            run,
            answer,
        };
        if self.finished.try_send(trace).is_err() {
            Meter::add(&self.meter.dropped, 1);
        }
    }
}

/// Of 2^64, as many as this part of one.
pub(super) fn share_of(sample: f64) -> u128 {
    const ALL: u128 = 1 << 64;
    if sample >= 1.0 {
        return ALL;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 0 and 2^64, and nobody counts the last bits"
    )]
    let share = (sample.max(0.0) * ALL as f64) as u128;
    share
}

/// A number in which every bit of the other counts.
pub(super) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
