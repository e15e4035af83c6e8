//! Traces: one for each turn that is sampled, from the arrival of its message to the last op of its answer.
//!
//! The relay's task notes moments as it passes them; a turn's spans are made from them at its very end, and a task of
//! their own sends them in batches. Nobody waits for that: at most 4,096 turns are traced at a time and 1,024
//! finished traces wait to be sent; what is beyond is dropped and counted. A trace holds times, counts
//! and words that this program or its settings know. It never holds what anyone said, nor the id of a chat, a person, a
//! message or a session.
//!
//! The spans are written as OTLP's own JSON over the HTTP client that is there anyway: five kinds of spans of a schema that
//! does not change, and no crate more. The OpenTelemetry crates (0.33, no default features, their HTTP exporter on our
//! client) were weighed instead: 18 crates and 0.4 MB more, a second `getrandom` among them, a thread of their own that does
//! not run on our runtime, and settings that they read from the process environment by themselves, which this library
//! never does.

mod encode;
mod export;
mod recorder;
mod words;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use self::encode::{Answer, OpSpan, Run};
pub(super) use self::recorder::Seen;
use self::recorder::{Anchor, Open, Recorder, Stage, TracedOp, nanos};
use self::words::{DECLINED, class_word, known_word, op_word, state_word};
use super::boot;
use super::live::USER_AGENT;
use super::metrics::{Counts, TRACE_OUTCOMES, outcome_of};
use super::turn_task::TurnReport;
use crate::agent::TurnEnd;
use crate::config::Settings;
use crate::link::SendResult;
use crate::net::otlp::Collector;
use crate::net::proxy::ProxyRules;
use crate::net::tls::Tls;
use crate::store::TurnState;

/// Ops of one turn that become spans; more are counted.
const MOST_OPS: usize = 64;

/// Notes what happens to turns, where traces are wanted.
#[derive(Debug, Default)]
pub(super) struct Traces(Option<Box<Recorder>>);

impl Traces {
    /// As the settings say. Traces that cannot be sent are said to be, and never keep a relay from working.
    pub(super) fn of(settings: &Settings, tls: Option<&Tls>, proxies: &ProxyRules) -> Self {
        let Some(url) = settings.telemetry.traces_url() else {
            return Self(None);
        };
        let tls = tls.cloned().unwrap_or_else(|| boot::tls(settings));
        let collector = tls.config().map_err(|error| error.to_string()).and_then(|tls| {
            let headers = settings.telemetry.headers.as_ref();
            Collector::new((&tls, proxies.clone()), USER_AGENT, &url, headers)
                .map_err(|error| error.to_string())
        });
        match collector {
            Ok(collector) => {
                let service = settings.telemetry.service_name.clone();
                Self(Some(Box::new(Recorder::new(
                    collector,
                    service,
                    settings.telemetry.sample,
                ))))
            }
            Err(error) => {
                tracing::error!(error, "no traces are sent: correct `telemetry`, or take it out");
                Self(None)
            }
        }
    }

    /// Begins to send, within a runtime.
    pub(super) fn start(&mut self) {
        if let Some(recorder) = &mut self.0
            && let Some(exporter) = recorder.exporter.take()
        {
            recorder.task = Some(AbortOnDropHandle::new(tokio::spawn(exporter.run())));
        }
    }

    /// A message arrived.
    pub(super) fn arrived(&self) -> Seen {
        Seen(self.0.as_ref().map(|_| Anchor::here()))
    }

    /// It is committed in this row, and will be a turn.
    pub(super) fn accepted(&mut self, Seen(seen): Seen, row: i64) {
        if let (Some(recorder), Some(anchor)) = (&mut self.0, seen) {
            let committed = Some(anchor.now());
            recorder.begin(row, anchor, anchor.wall, committed);
        }
    }

    /// It was read back to be run: for the so-manieth time, having come then.
    pub(super) fn loaded(&mut self, row: i64, attempt: u32, received_ms: i64) {
        let Some(recorder) = &mut self.0 else { return };
        if !recorder.open.contains_key(&row) {
            let anchor = Anchor::here();
            let received = u64::try_from(received_ms)
                .unwrap_or_default()
                .saturating_mul(1_000_000);
            recorder.begin(row, anchor, received.min(anchor.wall), None);
        }
        if let Some(open) = recorder.open.get_mut(&row) {
            open.attempt = attempt;
        }
    }

    /// A running turn was handed another message.
    pub(super) fn steered(&mut self, row: impl FnOnce() -> Option<i64>) {
        if let Some(recorder) = &mut self.0
            && let Some(open) = row().and_then(|row| recorder.open.get_mut(&row))
        {
            open.steered += 1;
        }
    }

    /// Its agent is started.
    pub(super) fn began(&mut self, row: i64, platform: &str, agent: &Arc<str>) {
        if let Some(open) = self.turn(row) {
            open.stage = Stage::Running(Run {
                began: open.anchor.now(),
                platform: known_word(platform),
                agent: Arc::clone(agent),
                first_word: None,
                failure: None,
                tokens: (0, 0),
            });
        }
    }

    /// Its agent is done.
    pub(super) fn reported(&mut self, row: i64, report: &TurnReport) {
        if let Some(Open {
            stage: Stage::Running(run),
            ..
        }) = self.turn(row)
        {
            run.first_word = report
                .first_word
                .map(|after| run.began.saturating_add(nanos(after)));
            run.tokens = (report.usage.input_tokens, report.usage.output_tokens);
            run.failure = match &report.end {
                TurnEnd::Failed(failure) => Some(class_word(failure.class)),
                _ => None,
            };
        }
    }

    /// Its end is decided, and so many ops are owed for it.
    pub(super) fn ended(&mut self, row: i64, state: TurnState, owed: usize) {
        let Some(open) = self.turn(row) else { return };
        let now = open.anchor.now();
        if let Stage::Running(run) = std::mem::replace(&mut open.stage, Stage::Waiting) {
            open.stage = Stage::Owing(run, Answer::new(now, state_word(state), owed), owed);
        }
        if owed == 0 {
            self.close(row);
        }
    }

    /// The connector will not have its answer.
    pub(super) fn declined(&mut self, row: i64) {
        let Some(open) = self.turn(row) else { return };
        let now = open.anchor.now();
        match std::mem::replace(&mut open.stage, Stage::Waiting) {
            Stage::Waiting => {}
            Stage::Running(run) => open.stage = Stage::Owing(run, Answer::new(now, DECLINED, 0), 0),
            Stage::Owing(run, mut answer, _) => {
                answer.outcome = DECLINED;
                open.stage = Stage::Owing(run, answer, 0);
            }
        }
        self.close(row);
    }

    /// Its row came to an end: as no turn, or without its answer.
    pub(super) fn close(&mut self, row: i64) {
        if let Some(recorder) = &mut self.0 {
            recorder.close(row);
        }
    }

    /// The row of this number ends without having been a turn.
    pub(super) fn forget(&mut self, row: i64) {
        if let Some(recorder) = &mut self.0
            && recorder
                .open
                .get(&row)
                .is_some_and(|open| !matches!(open.stage, Stage::Owing(..)))
        {
            recorder.open.remove(&row);
        }
    }

    /// An op of its answer is committed with its end. One that was owed while it ran is none of those.
    pub(super) fn owed(&mut self, row: i64, op: i64) {
        if let Some(recorder) = &mut self.0
            && recorder.open.contains_key(&row)
        {
            recorder.ops.insert(op, TracedOp { row, out: None });
        }
    }

    /// An op goes out.
    pub(super) fn op_out(&mut self, op: i64) {
        if let Some(recorder) = &mut self.0
            && let Some(traced) = recorder.ops.get_mut(&op)
        {
            traced.out = recorder.open.get(&traced.row).map(|open| open.anchor.now());
        }
    }

    /// What became of an op that was out, for the so-manieth time.
    pub(super) fn op_settled(&mut self, op: i64, name: &str, attempts: u32, outcome: &SendResult) {
        let Some(recorder) = &mut self.0 else { return };
        let Some(traced) = recorder.ops.get_mut(&op) else {
            return;
        };
        if let (Some(out), Some(open)) = (traced.out.take(), recorder.open.get_mut(&traced.row))
            && let Stage::Owing(_, answer, _) = &mut open.stage
        {
            let span = OpSpan {
                op: op_word(name),
                outcome: outcome_of(outcome),
                attempt: attempts + 1,
                out,
                settled: open.anchor.now(),
            };
            if answer.ops.len() < MOST_OPS {
                answer.ops.push(span);
            } else {
                answer.unlisted += 1;
            }
        }
    }

    /// Nothing more is done about an op.
    pub(super) fn op_over(&mut self, op: i64) {
        let Some(recorder) = &mut self.0 else { return };
        let Some(TracedOp { row, .. }) = recorder.ops.remove(&op) else {
            return;
        };
        if let Some(Open {
            stage: Stage::Owing(_, _, left),
            ..
        }) = recorder.open.get_mut(&row)
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                recorder.close(row);
            }
        }
    }

    /// What became of traces so far.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::new(&TRACE_OUTCOMES);
        if let Some(recorder) = &self.0 {
            let meter = &recorder.meter;
            for (name, counter) in TRACE_OUTCOMES
                .iter()
                .zip([&meter.sent, &meter.dropped, &meter.refused])
            {
                counts.add(name, counter.load(Ordering::Relaxed));
            }
        }
        counts
    }

    /// Finishes every trace as far as it came, and sends what waits; gives up after `within`.
    pub(super) async fn end(&mut self, within: Duration) {
        let Some(mut recorder) = self.0.take() else { return };
        let rows: Vec<i64> = recorder.open.keys().copied().collect();
        for row in rows {
            recorder.close(row);
        }
        let Recorder {
            task,
            finished,
            closing,
            ..
        } = *recorder;
        drop(finished);
        closing.cancel();
        if let Some(task) = task
            && timeout(within, task).await.is_err()
        {
            tracing::warn!("the collector did not take the last traces in time; they are lost");
        }
    }

    fn turn(&mut self, row: i64) -> Option<&mut Open> {
        self.0.as_mut()?.open.get_mut(&row)
    }
}

#[cfg(test)]
mod tests;
