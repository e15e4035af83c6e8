//! Traces of turns: the log's spans `session`, `turn` and `op`, exported to an OpenTelemetry collector.
//!
//! A layer turns those spans into OpenTelemetry's. [`TraceBuffer`] collects them until their message is done, and one task
//! sends finished traces in batches as OTLP's JSON over our own HTTP client. Nobody waits for it: every queue is bounded, and
//! what does not fit is dropped and counted.
//!
//! A trace contains only what [`ATTRIBUTES`] lists: no text, and no id of a chat, a person, a message or a session. Only
//! the settings configure it; everything that the SDK would read from the environment is set here.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::trace::{Event, SpanId, SpanKind, Status, TraceId, TracerProvider as _};
use opentelemetry::{Context, InstrumentationScope, KeyValue, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanLimits, SpanProcessor};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::backoff::Backoff;
use crate::cli::Environment;
use crate::config::{Settings, TelemetryConfig};
use crate::net::http::HttpEgress;
use crate::net::otlp::{Collector, CollectorError, ExportOutcome};
use crate::net::proxy::ProxyRules;
use crate::relay::{USER_AGENT, provisioning};
use crate::serve::TraceCounts;
use crate::wire::Action;

/// Our spans: one message with everything done for it, its agent's run, and one sent op.
const SESSION: &str = "session";
const TURN: &str = "turn";
const OP: &str = "op";

/// Traces that are collected at a time.
const MAX_OPEN: usize = 4096;
/// Ops of one trace that become spans; more are counted.
const MAX_OPS: usize = 64;
/// Finished traces that wait to be sent.
const MAX_FINISHED: usize = 1024;
/// How long a batch waits for more traces.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Spans at which a batch is full.
const MAX_BATCH_SPANS: usize = 512;
/// The first delay before a batch is sent again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest delay before a batch is sent again.
const MAX_RETRY: Duration = Duration::from_secs(60);
/// How long the end of the program waits for the last traces.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest name of a platform that is exported; names come from the connector.
const MAX_PLATFORM: usize = 32;

/// What the value of an attribute may be.
#[derive(Clone, Copy)]
enum ValueKind {
    Number,
    /// One of our own words, or a name from the settings.
    Word,
    Platform,
    Op,
}

/// The fields that are exported, and as what; no other is.
const ATTRIBUTES: [(&str, &str, ValueKind); 10] = [
    ("platform", "relay.platform", ValueKind::Platform),
    ("agent", "relay.agent", ValueKind::Word),
    ("kind", "relay.op", ValueKind::Op),
    ("outcome", "relay.outcome", ValueKind::Word),
    ("attempt", "relay.attempt", ValueKind::Number),
    ("steered", "relay.steered", ValueKind::Number),
    ("ops", "relay.ops", ValueKind::Number),
    ("failure", "error.type", ValueKind::Word),
    ("input_tokens", "gen_ai.usage.input_tokens", ValueKind::Number),
    ("output_tokens", "gen_ai.usage.output_tokens", ValueKind::Number),
];

/// A layer that collects traces, and the queue of finished ones; `None` when no traces are wanted.
pub(super) fn layer<S>(
    settings: &TelemetryConfig,
    counts: &Arc<TraceCounts>,
) -> Option<(impl Layer<S> + Send + Sync + use<S>, FinishedTraces)>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    settings.traces_url()?;
    let (sender, queue) = mpsc::channel(MAX_FINISHED);
    let buffer = TraceBuffer {
        open: Mutex::default(),
        finished: sender,
        counts: Arc::clone(counts),
    };
    let ratio = Sampler::TraceIdRatioBased(settings.sample);
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(ratio)))
        .with_span_limits(SpanLimits::default())
        .with_resource(Resource::builder_empty().build())
        .with_span_processor(buffer)
        .build();
    let scope = InstrumentationScope::builder("hermes_relay")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build();
    let filter = filter_fn(is_traced).with_max_level_hint(LevelFilter::DEBUG);
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer_with_scope(scope))
        .with_context_activation(false)
        .with_tracked_inactivity(false)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_filter(filter);
    let counts = Arc::clone(counts);
    Some((layer, FinishedTraces { queue, counts }))
}

fn is_traced(meta: &Metadata<'_>) -> bool {
    meta.is_span()
        && meta.target().starts_with("hermes_relay::relay::")
        && [SESSION, TURN, OP].contains(&meta.name())
}

/// Collects the spans of each trace until its root ends.
#[derive(Debug)]
struct TraceBuffer {
    open: Mutex<HashMap<TraceId, OpenTrace>>,
    finished: mpsc::Sender<TurnTrace>,
    counts: Arc<TraceCounts>,
}

/// The spans of a trace that have ended, without its root.
#[derive(Debug, Default)]
struct OpenTrace {
    turn: Option<SpanData>,
    ops: Vec<SpanData>,
    unlisted_ops: i64,
}

/// A finished trace.
#[derive(Debug)]
struct TurnTrace {
    root: SpanData,
    turn: SpanData,
    ops: Vec<SpanData>,
    unlisted_ops: i64,
}

impl TraceBuffer {
    fn add(&self, span: SpanData) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let id = span.span_context.trace_id();
        if open.len() >= MAX_OPEN && !open.contains_key(&id) {
            return;
        }
        let trace = open.entry(id).or_default();
        if span.name == TURN {
            trace.turn = Some(span);
        } else if trace.ops.len() < MAX_OPS {
            trace.ops.push(span);
        } else {
            trace.unlisted_ops += 1;
        }
    }

    /// A message is done. Without a turn it is no trace: a command, say, or one that is read back later.
    fn finish(&self, root: SpanData) {
        let id = root.span_context.trace_id();
        let open = self
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        let dropped = match open {
            Some(OpenTrace {
                turn: Some(turn),
                ops,
                unlisted_ops,
            }) => {
                let trace = TurnTrace {
                    root,
                    turn,
                    ops,
                    unlisted_ops,
                };
                matches!(
                    self.finished.try_send(trace),
                    Err(mpsc::error::TrySendError::Full(_))
                )
            }
            // There was no room for its turn.
            Some(_) | None => field(&root, "outcome").is_some(),
        };
        if dropped {
            count(&self.counts.dropped, 1);
        }
    }
}

impl SpanProcessor for TraceBuffer {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.parent_span_id != SpanId::INVALID {
            self.add(span);
        } else if span.name == SESSION {
            self.finish(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl TurnTrace {
    fn len(&self) -> usize {
        2 + self.ops.len()
    }

    /// Its spans as they are exported, the root first.
    fn into_spans(self) -> impl Iterator<Item = SpanData> {
        let Self {
            mut root,
            mut turn,
            mut ops,
            unlisted_ops,
        } = self;
        // A message that was read back has a span from then on; its trace begins when it arrived.
        if let Some(waited) = millis(&root, "waited_ms")
            && let Some(arrived) = root.start_time.checked_sub(waited)
        {
            root.start_time = arrived;
        }
        if let Some(after) = millis(&turn, "first_text_ms") {
            let at = (turn.start_time + after).min(turn.end_time);
            let event = Event::new("first_token", at, Vec::new(), 0);
            turn.events.events.push(event);
        }
        for op in &mut ops {
            let failed =
                field(op, "outcome").is_some_and(|outcome| ["refused", "unknown"].contains(&&*outcome));
            op.span_kind = SpanKind::Client;
            op.status = status(failed);
            export_attributes(op);
        }
        // A turn that was running when the program ended has no outcome of its own.
        let outcome = field(&root, "outcome").unwrap_or(Cow::Borrowed("interrupted"));
        let failed = outcome == "failed";
        if field(&root, "outcome").is_none() {
            root.attributes.push(KeyValue::new("outcome", "interrupted"));
        }
        if field(&root, "attempt").is_none() {
            root.attributes.push(KeyValue::new("attempt", 1));
        }
        export_attributes(&mut root);
        export_attributes(&mut turn);
        let names = turn.attributes.iter();
        let names = names.filter(|pair| ["relay.platform", "relay.agent"].contains(&pair.key.as_str()));
        root.attributes.extend(names.cloned());
        let queued = turn
            .start_time
            .duration_since(root.start_time)
            .unwrap_or_default();
        let queued_ms = i64::try_from(queued.as_millis()).unwrap_or(i64::MAX);
        root.attributes.push(KeyValue::new("relay.queued_ms", queued_ms));
        if unlisted_ops > 0 {
            root.attributes
                .push(KeyValue::new("relay.ops_unlisted", unlisted_ops));
        }
        root.span_kind = SpanKind::Consumer;
        turn.span_kind = SpanKind::Client;
        root.status = status(failed);
        turn.status = status(failed);
        [root, turn].into_iter().chain(ops)
    }
}

/// The last value of a field, as text.
fn field<'s>(span: &'s SpanData, name: &str) -> Option<Cow<'s, str>> {
    let mut pairs = span.attributes.iter().rev();
    Some(pairs.find(|pair| pair.key.as_str() == name)?.value.as_str())
}

fn millis(span: &SpanData, name: &str) -> Option<Duration> {
    field(span, name)?.parse().ok().map(Duration::from_millis)
}

fn status(failed: bool) -> Status {
    if failed { Status::error("") } else { Status::Unset }
}

/// Replaces the fields of a span with the attributes that may be exported.
fn export_attributes(span: &mut SpanData) {
    let mut attributes = Vec::new();
    for (name, attribute, kind) in ATTRIBUTES {
        let Some(value) = field(span, name) else { continue };
        let value = match kind {
            ValueKind::Number => match value.parse::<i64>() {
                Ok(number) => Value::from(number),
                Err(_) => continue,
            },
            ValueKind::Word => value.into_owned().into(),
            ValueKind::Platform => platform(&value).to_owned().into(),
            ValueKind::Op => op(&value).into(),
        };
        attributes.push(KeyValue::new(attribute, value));
    }
    span.attributes = attributes;
}

/// A platform's name, unless it does not look like one.
fn platform(name: &str) -> &str {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte == b'-';
    let is_name = !name.is_empty() && name.len() <= MAX_PLATFORM && name.bytes().all(plain);
    if is_name { name } else { "other" }
}

fn op(name: &str) -> &'static str {
    let mut known = Action::OPS.into_iter();
    known.find(|known| *known == name).unwrap_or("other")
}

fn count(counter: &AtomicU64, traces: usize) {
    counter.fetch_add(traces as u64, Ordering::Relaxed);
}

/// Finished traces that wait to be sent.
pub(super) struct FinishedTraces {
    queue: mpsc::Receiver<TurnTrace>,
    counts: Arc<TraceCounts>,
}

/// Exports traces while `work` runs, and then what is left, for a moment. A collector that cannot be used is reported and stops
/// nothing.
pub(super) async fn export<T>(
    traces: FinishedTraces,
    settings: &Settings,
    env: Environment<'_>,
    work: impl Future<Output = T>,
) -> T {
    let collector = match collector(settings, env) {
        Ok(collector) => collector,
        Err(error) => {
            tracing::error!(%error, "no traces are sent: correct `telemetry`, or remove it");
            drop(traces);
            return work.await;
        }
    };
    let closing = CancellationToken::new();
    let resource = Resource::builder_empty()
        .with_service_name(settings.telemetry.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let exporter = Exporter {
        collector,
        resource: ResourceAttributesWithSchema::from(&resource),
        traces,
        closing: closing.clone(),
        failing: false,
    };
    let task = AbortOnDropHandle::new(tokio::spawn(exporter.run()));
    let done = work.await;
    closing.cancel();
    if timeout(SHUTDOWN_TIMEOUT, task).await.is_err() {
        tracing::warn!("the collector did not accept the last traces in time; they are lost");
    }
    done
}

fn collector(settings: &Settings, env: Environment<'_>) -> Result<Collector, CollectorError> {
    let telemetry = &settings.telemetry;
    let url = telemetry.traces_url().unwrap_or_default();
    let egress = HttpEgress {
        tls: provisioning::tls(settings),
        proxies: ProxyRules::from_env(env),
        user_agent: USER_AGENT.to_owned(),
        lease: None,
    };
    Collector::new(&egress, &url, telemetry.headers.as_ref())
}

/// Sends traces to a collector: one batch at a time, the same one again while the collector is away.
struct Exporter {
    collector: Collector,
    resource: ResourceAttributesWithSchema,
    traces: FinishedTraces,
    /// Cancelled when the program ends.
    closing: CancellationToken,
    /// Whether the collector did not accept the last batch, which is logged once.
    failing: bool,
}

impl Exporter {
    /// Sends until the program ends, and then what waits.
    async fn run(mut self) {
        tracing::info!(
            collector = self.collector.origin(),
            "exporting traces to the collector"
        );
        while let Some(first) = self.next(None).await {
            let until = Instant::now() + BATCH_DELAY;
            let (mut spans, mut batch) = (first.len(), vec![first]);
            while spans < MAX_BATCH_SPANS
                && let Some(next) = self.next(Some(until)).await
            {
                spans += next.len();
                batch.push(next);
            }
            self.send(batch).await;
        }
    }

    /// The next trace; none after `until`, or when the program ends and none waits.
    async fn next(&mut self, until: Option<Instant>) -> Option<TurnTrace> {
        let timer = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        // Cancel-safe: a trace that is not taken stays in the queue.
        tokio::select! {
            biased;
            trace = self.traces.queue.recv() => trace,
            () = self.closing.cancelled() => None,
            () = timer => None,
        }
    }

    async fn send(&mut self, batch: Vec<TurnTrace>) {
        let traces = batch.len();
        let spans = batch.into_iter().flat_map(TurnTrace::into_spans).collect();
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(spans, &self.resource),
        };
        let counts = Arc::clone(&self.traces.counts);
        let Ok(body) = serde_json::to_vec(&request) else {
            return count(&counts.dropped, traces);
        };
        let mut backoff = Backoff::new(FIRST_RETRY, MAX_RETRY);
        loop {
            // The last try, if the program ends meanwhile.
            let last = self.closing.is_cancelled();
            match self.collector.post(body.clone()).await {
                ExportOutcome::Accepted => {
                    count(&counts.sent, traces);
                    return self.recovered();
                }
                ExportOutcome::Rejected(why) => {
                    count(&counts.refused, traces);
                    return self.failed(&why);
                }
                ExportOutcome::RetryLater(why) => self.failed(&why),
            }
            if last {
                return count(&counts.dropped, traces);
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => {}
                () = sleep(backoff.next_delay()) => {}
            }
        }
    }

    fn recovered(&mut self) {
        if std::mem::take(&mut self.failing) {
            let collector = self.collector.origin();
            tracing::info!(collector, "the collector accepts traces again");
        }
    }

    fn failed(&mut self, why: &str) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                collector = self.collector.origin(),
                why,
                "the collector does not accept traces; turns go on, and some traces will be lost. It must accept OTLP over \
                 HTTP in JSON, as collectors do on port 4318"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::field::Empty;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Runs `work` with a layer, and returns the finished traces.
    fn traced(sample: f64, work: impl FnOnce()) -> FinishedTraces {
        let settings = TelemetryConfig {
            otlp_endpoint: Some("http://127.0.0.1:4318".to_owned()),
            sample,
            ..TelemetryConfig::default()
        };
        let (layer, traces) = layer(&settings, &Arc::default()).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, work);
        traces
    }

    fn message(platform: &str, ops: usize) {
        let session = tracing::info_span!(
            target: "hermes_relay::relay::turns",
            "session",
            session = "private-session",
            outcome = Empty,
        );
        let turn = tracing::info_span!(
            target: "hermes_relay::relay::turns",
            parent: &session,
            "turn",
            turn = 7,
            agent = "echo",
            platform,
        );
        drop(turn);
        session.record("outcome", "done");
        for _ in 0..ops {
            tracing::debug_span!(
                target: "hermes_relay::relay::outbox",
                parent: &session,
                "op",
                kind = "private-op",
                text = "private-text",
            );
        }
        session.record("outcome", "declined");
    }

    fn attribute(span: &SpanData, name: &str) -> Option<String> {
        field(span, name).map(Cow::into_owned)
    }

    #[test]
    fn only_listed_fields_are_exported_and_names_from_outside_are_checked() {
        let mut traces = traced(1.0, || {
            message("discord", 0);
            message("private platform", 1);
            tracing::info_span!(target: "hermes_relay::relay::turns", "session", session = "no turn");
            tracing::info_span!(target: "hermes_relay::relay::turns", "link", outcome = "none");
            tracing::info_span!(target: "elsewhere", "session", outcome = "none");
        });
        let first: Vec<_> = traces.queue.try_recv().unwrap().into_spans().collect();
        let second: Vec<_> = traces.queue.try_recv().unwrap().into_spans().collect();
        assert!(traces.queue.try_recv().is_err());
        assert_eq!((first.len(), second.len()), (2, 3));
        assert_eq!(attribute(&first[0], "relay.platform").unwrap(), "discord");
        assert_eq!(attribute(&first[0], "relay.outcome").unwrap(), "declined");
        assert_eq!(attribute(&second[0], "relay.platform").unwrap(), "other");
        assert_eq!(attribute(&second[2], "relay.op").unwrap(), "other");
        for span in first.iter().chain(&second) {
            assert!(!format!("{span:?}").contains("private"), "{span:?}");
        }
    }

    #[test]
    fn ops_and_finished_traces_are_bounded() {
        let mut traces = traced(1.0, || {
            message("discord", MAX_OPS + 2);
            for _ in 0..MAX_FINISHED + 4 {
                message("discord", 0);
            }
        });
        assert_eq!(traces.counts.dropped.load(Ordering::Relaxed), 5);
        let spans: Vec<_> = traces.queue.try_recv().unwrap().into_spans().collect();
        assert_eq!(spans.len(), 2 + MAX_OPS);
        assert_eq!(attribute(&spans[0], "relay.ops_unlisted").unwrap(), "2");
    }

    #[test]
    fn unsampled_messages_leave_nothing() {
        let mut traces = traced(f64::MIN_POSITIVE, || message("discord", 1));
        assert!(traces.queue.try_recv().is_err());
        assert_eq!(traces.counts.dropped.load(Ordering::Relaxed), 0);
    }
}
