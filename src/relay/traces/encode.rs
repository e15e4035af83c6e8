//! A turn's trace, and how OTLP writes it in JSON. It takes moments and chance, and asks nobody.
//!
//! | span | from | to |
//! |---|---|---|
//! | `turn` | the message arrived | the last op of its answer is settled |
//! | `commit` | the message arrived | the journal has it, and it is acknowledged |
//! | `wait` | the journal has it | its agent is started |
//! | `agent` | it is started | it is done; an event marks its first word |
//! | `op` | an op was handed to the link | its outcome is known |

use std::sync::Arc;

use serde_json::{Value, json};

/// What one turn went through. Every moment is in nanoseconds since 1970.
#[derive(Debug)]
pub(super) struct TurnTrace {
    pub(super) arrived: u64,
    /// Not known of a message that an earlier run committed.
    pub(super) committed: Option<u64>,
    pub(super) over: u64,
    pub(super) attempt: u32,
    /// Messages that it was handed while it ran.
    pub(super) steered: u32,
    pub(super) run: Run,
    pub(super) answer: Answer,
}

/// What its agent did.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) began: u64,
    pub(super) platform: String,
    pub(super) agent: Arc<str>,
    pub(super) first_word: Option<u64>,
    pub(super) failure: Option<&'static str>,
    /// Read and written, as far as it says.
    pub(super) tokens: (u64, u64),
}

/// How it ended, and what became of its answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) ended: u64,
    pub(super) outcome: &'static str,
    /// Ops that the answer is made of.
    pub(super) owed: usize,
    /// Each time one of them was out.
    pub(super) ops: Vec<OpSpan>,
    /// More of those than are listed.
    pub(super) unlisted: u32,
}

impl Answer {
    pub(super) fn new(ended: u64, outcome: &'static str, owed: usize) -> Self {
        Self {
            ended,
            outcome,
            owed,
            ops: Vec::new(),
            unlisted: 0,
        }
    }
}

/// An op that was out.
#[derive(Debug)]
pub(super) struct OpSpan {
    pub(super) op: &'static str,
    pub(super) outcome: &'static str,
    pub(super) attempt: u32,
    pub(super) out: u64,
    pub(super) settled: u64,
}

impl TurnTrace {
    /// How many spans it is written as.
    pub(super) fn spans(&self) -> usize {
        3 + usize::from(self.committed.is_some()) + self.answer.ops.len()
    }
}

/// The kinds of spans, as the protocol numbers them.
const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;
const CONSUMER: u8 = 5;
/// A status, as the protocol numbers it.
const ERROR: u8 = 2;

/// The body of one request. `draw` gives chance for the ids.
pub(super) fn request(service: &str, traces: &[TurnTrace], draw: &mut impl FnMut() -> u64) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<Value> = traces.iter().flat_map(|trace| spans_of(trace, draw)).collect();
    let body = json!({
        "resourceSpans": [{
            "resource": {"attributes": [text("service.name", service), text("service.version", version)]},
            "scopeSpans": [{"scope": {"name": "hermes_relay", "version": version}, "spans": spans}],
        }],
    });
    body.to_string().into_bytes()
}

fn spans_of(trace: &TurnTrace, draw: &mut impl FnMut() -> u64) -> Vec<Value> {
    let TurnTrace { run, answer, .. } = trace;
    // An id of nothing but zeros is none.
    let trace_id = format!("{:016x}{:016x}", draw(), draw().max(1));
    let root = format!("{:016x}", draw().max(1));
    let mut draw_id = || format!("{:016x}", draw().max(1));
    let mut span =
        |parent: Option<&str>, name: &str, kind: u8, (from, to): (u64, u64), attributes: Vec<Value>| {
            let mut span = json!({
                "traceId": trace_id,
                "name": name,
                "kind": kind,
                // The clocks of one process do not run backwards, but what it is told by another may.
                "startTimeUnixNano": from.to_string(),
                "endTimeUnixNano": to.max(from).to_string(),
                "attributes": attributes,
            });
            match parent {
                Some(parent) => {
                    span["spanId"] = draw_id().into();
                    span["parentSpanId"] = parent.into();
                }
                None => span["spanId"] = root.clone().into(),
            }
            span
        };
    let waiting_since = trace.committed.unwrap_or(trace.arrived);
    let queued_ms = run.began.saturating_sub(waiting_since) / 1_000_000;
    let mut about = vec![
        text("relay.platform", &run.platform),
        text("relay.agent", &run.agent),
        text("relay.outcome", answer.outcome),
        number("relay.attempt", trace.attempt.into()),
        number("relay.queued_ms", queued_ms),
        number("relay.steered", trace.steered.into()),
        number("relay.ops", answer.owed as u64),
    ];
    if answer.unlisted > 0 {
        about.push(number("relay.ops_unlisted", answer.unlisted.into()));
    }
    let failed = answer.outcome == "failed";
    let mut turn = span(None, "turn", CONSUMER, (trace.arrived, trace.over), about);
    let mut spans = Vec::with_capacity(trace.spans());
    if let Some(committed) = trace.committed {
        let times = (trace.arrived, committed);
        spans.push(span(Some(&root), "commit", INTERNAL, times, Vec::new()));
    }
    let times = (waiting_since, run.began);
    spans.push(span(Some(&root), "wait", INTERNAL, times, Vec::new()));

    let mut about = vec![text("relay.agent", &run.agent)];
    if run.tokens != (0, 0) {
        about.push(number("gen_ai.usage.input_tokens", run.tokens.0));
        about.push(number("gen_ai.usage.output_tokens", run.tokens.1));
    }
    about.extend(run.failure.map(|class| text("error.type", class)));
    let mut agent = span(Some(&root), "agent", CLIENT, (run.began, answer.ended), about);
    if let Some(first) = run.first_word {
        let at = first.min(answer.ended).to_string();
        agent["events"] = json!([{"timeUnixNano": at, "name": "first_token"}]);
    }
    if failed {
        turn["status"] = json!({"code": ERROR});
        agent["status"] = json!({"code": ERROR});
    }
    spans.push(agent);
    for op in &answer.ops {
        let about = vec![
            text("relay.op", op.op),
            text("relay.outcome", op.outcome),
            number("relay.attempt", op.attempt.into()),
        ];
        let mut made = span(Some(&root), "op", CLIENT, (op.out, op.settled), about);
        if matches!(op.outcome, "refused" | "unknown") {
            made["status"] = json!({"code": ERROR});
        }
        spans.push(made);
    }
    spans.insert(0, turn);
    spans
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Whole numbers are written as text: JSON's own are not exact.
fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}
