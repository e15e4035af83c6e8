//! Rate limit of the log: of each kind of line the first few in a window pass, the rest is counted and reported once.
//!
//! The kind of a line is its place in the code and its message; fields do not count. `debug` and `trace` lines are never
//! suppressed, nothing is suppressed while those levels are on, and neither are the lines in [`UNLIMITED`], each of which
//! reports something that no other line reports.

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Filter};

use crate::collections::TextMap;
use crate::config::LogConfig;
use crate::serve::LogCounts;

/// Modules whose lines are never suppressed.
const UNLIMITED: &[&str] = &[
    // Answers to requests, and why the program ends.
    "hermes_relay::cli",
    // State changes of the link. Only the last one holds; backoff keeps them few.
    "hermes_relay::relay::transport::driver",
    "hermes_relay::relay::event_loop",
    "hermes_relay::relay::parts::sleep",
    // Outcomes of replies.
    "hermes_relay::relay::parts::outbox",
    // What an earlier run left, row by row.
    "hermes_relay::relay::walk::recovery",
    "hermes_relay::relay::walk::turn",
    // Whether the journal can be written.
    "hermes_relay::store::writer",
];

/// The module whose errors are never suppressed: each is about another message that is lost or stuck.
const UNLIMITED_ERRORS: &str = "hermes_relay::relay";

/// Maximum length of a message in a report, in characters.
const MAX_EXAMPLE: usize = 200;

/// Maximum number of kinds that are counted; at the maximum, lines of a new kind pass uncounted.
const MAX_KINDS: usize = 256;

/// How many lines of one kind pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RepeatLimit {
    /// Lines per window; 0 for no limit.
    burst: u32,
    /// Length of a window; zero for no limit.
    window: Duration,
}

impl RepeatLimit {
    fn new(log: &LogConfig, filter: &Targets) -> Self {
        let is_verbose = filter.would_enable("hermes_relay", &Level::DEBUG);
        Self {
            burst: if is_verbose { 0 } else { log.repeat_burst },
            window: Duration::from_secs(log.repeat_window_secs),
        }
    }

    fn is_unlimited(self) -> bool {
        self.burst == 0 || self.window.is_zero()
    }
}

/// Lines that were suppressed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suppressed<D> {
    example: D,
    count: u64,
}

/// The window of one kind of line.
struct RepeatWindow<D> {
    since: Duration,
    passed: u32,
    /// Suppressed lines that are not reported yet, and when to report them.
    suppressed: Option<(Suppressed<D>, Duration)>,
}

/// Decides which lines pass. Kinds are identified by `K` and described by `D`; time is an argument.
struct Limiter<K, D> {
    rate: RepeatLimit,
    windows: TextMap<K, RepeatWindow<D>>,
}

impl<K: Eq + Hash, D> Limiter<K, D> {
    fn new(rate: RepeatLimit) -> Self {
        Self {
            rate,
            windows: TextMap::default(),
        }
    }

    /// Whether a line of this kind passes at `now`; described only if it is the first to be suppressed.
    fn passes(&mut self, kind: K, now: Duration, describe: impl FnOnce() -> D) -> bool {
        let RepeatLimit {
            burst,
            window: length,
        } = self.rate;
        if self.rate.is_unlimited() {
            return true;
        }
        if self.windows.len() >= MAX_KINDS && !self.windows.contains_key(&kind) {
            self.windows
                .retain(|_, window| window.suppressed.is_some() || now < window.since.saturating_add(length));
            if self.windows.len() >= MAX_KINDS {
                return true;
            }
        }
        let window = self.windows.entry(kind).or_insert(RepeatWindow {
            since: now,
            passed: 0,
            suppressed: None,
        });
        if now >= window.since.saturating_add(length) {
            (window.since, window.passed) = (now, 0);
        }
        if window.passed < burst {
            window.passed += 1;
            return true;
        }
        let due = window.since.saturating_add(length);
        let (suppressed, _) = window.suppressed.get_or_insert_with(|| {
            let example = describe();
            (Suppressed { example, count: 0 }, due)
        });
        suppressed.count = suppressed.count.saturating_add(1);
        false
    }

    /// When the next report is due.
    fn next_due(&self) -> Option<Duration> {
        let windows = self.windows.values();
        let suppressed = windows.filter_map(|window| window.suppressed.as_ref());
        suppressed.map(|(_, due)| *due).min()
    }

    /// Takes the reports that are due at `now`.
    fn take_due(&mut self, now: Duration) -> Vec<Suppressed<D>> {
        let windows = self.windows.values_mut();
        windows
            .filter_map(|window| window.suppressed.take_if(|(_, due)| *due <= now))
            .map(|(suppressed, _)| suppressed)
            .collect()
    }
}

/// Place in the code, and hash of the message.
type Kind = (Identifier, u64);

#[derive(Clone, Debug)]
struct SuppressedLine {
    level: Level,
    message: String,
}

struct RateLimitState {
    limiter: Mutex<Limiter<Kind, SuppressedLine>>,
    hashes: foldhash::fast::RandomState,
    started: Instant,
    /// A line was suppressed, the first of its kind in a window.
    suppressed: Notify,
    counts: Arc<LogCounts>,
}

/// The filter that suppresses repeated lines. Clones share their state.
#[derive(Clone)]
pub(super) struct RateLimit(Arc<RateLimitState>);

impl RateLimit {
    pub(super) fn new(log: &LogConfig, filter: &Targets, counts: Arc<LogCounts>) -> Self {
        Self(Arc::new(RateLimitState {
            limiter: Mutex::new(Limiter::new(RepeatLimit::new(log, filter))),
            hashes: foldhash::fast::RandomState::default(),
            started: Instant::now(),
            suppressed: Notify::new(),
            counts,
        }))
    }

    /// Applies new settings. Lines that were suppressed before are still reported.
    pub(super) fn reload(&self, log: &LogConfig, filter: &Targets) {
        self.limiter().rate = RepeatLimit::new(log, filter);
    }

    /// Reports suppressed lines at the end of each window. Never returns; cancel-safe.
    pub(super) async fn report(&self) -> Infallible {
        loop {
            let due = self.limiter().next_due();
            match due {
                // A permit that was stored meanwhile wakes it immediately.
                None => self.0.suppressed.notified().await,
                Some(due) => {
                    tokio::time::sleep_until(self.0.started + due).await;
                    self.report_due(self.0.started.elapsed());
                }
            }
        }
    }

    /// Reports all suppressed lines now.
    pub(super) fn report_all(&self) {
        self.report_due(Duration::MAX);
    }

    fn report_due(&self, now: Duration) {
        // Logging takes the lock, so release it first.
        let due = self.limiter().take_due(now);
        for Suppressed { example, count } in due {
            let (level, example) = (example.level, example.message);
            match level {
                Level::ERROR => tracing::error!(count, example, "repeated log lines were suppressed"),
                Level::WARN => tracing::warn!(count, example, "repeated log lines were suppressed"),
                _ => tracing::info!(count, example, "repeated log lines were suppressed"),
            }
        }
    }

    fn limiter(&self) -> MutexGuard<'_, Limiter<Kind, SuppressedLine>> {
        self.0.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passes(&self, event: &Event<'_>) -> bool {
        let meta = event.metadata();
        if *meta.level() > Level::INFO || is_unlimited(*meta.level(), meta.target()) {
            return true;
        }
        let mut message = MessageVisitor(MessageHash(self.0.hashes.build_hasher()));
        event.record(&mut message);
        let kind = (meta.callsite(), message.0.0.finish());
        let now = self.0.started.elapsed();
        let mut is_first = false;
        let passes = self.limiter().passes(kind, now, || {
            is_first = true;
            let mut message = MessageVisitor(String::new());
            event.record(&mut message);
            SuppressedLine {
                level: *meta.level(),
                message: message.0.chars().take(MAX_EXAMPLE).collect(),
            }
        });
        if !passes {
            self.0.counts.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        if is_first {
            self.0.suppressed.notify_one();
        }
        passes
    }
}

fn is_unlimited(level: Level, target: &str) -> bool {
    let errors = (level == Level::ERROR).then_some(&UNLIMITED_ERRORS);
    UNLIMITED.iter().chain(errors).any(|module| {
        let rest = target.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

impl<S> Filter<S> for RateLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn callsite_enabled(&self, meta: &'static Metadata<'static>) -> Interest {
        if meta.is_event() {
            Interest::sometimes()
        } else {
            Interest::always()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.passes(event)
    }
}

/// Writes an event's message.
struct MessageVisitor<W>(W);

impl<W: fmt::Write> Visit for MessageVisitor<W> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

/// The hash of what is written.
struct MessageHash<'s>(foldhash::fast::FoldHasher<'s>);

impl fmt::Write for MessageHash<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tracing::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn limiter(burst: u32) -> Limiter<u32, u32> {
        Limiter::new(RepeatLimit {
            burst,
            window: WINDOW,
        })
    }

    fn log(limiter: &mut Limiter<u32, u32>, kind: u32, secs: u64, times: usize) -> usize {
        (0..times)
            .filter(|_| limiter.passes(kind, at(secs), || kind))
            .count()
    }

    #[test]
    fn the_first_few_pass_and_the_rest_is_reported_once_after_the_window() {
        let mut limiter = limiter(5);
        assert_eq!(log(&mut limiter, 1, 10, 5), 5);
        assert_eq!(limiter.next_due(), None);
        assert_eq!(log(&mut limiter, 1, 30, 7), 0);
        assert_eq!(limiter.next_due(), Some(at(70)));
        assert_eq!(limiter.take_due(at(69)), []);
        assert_eq!(limiter.take_due(at(70)), [Suppressed { example: 1, count: 7 }]);
        assert_eq!((limiter.take_due(at(500)), limiter.next_due()), (vec![], None));
        assert_eq!(log(&mut limiter, 1, 70, 6), 5, "a new window");
        assert_eq!(limiter.next_due(), Some(at(130)));
    }

    #[test]
    fn kinds_are_counted_separately() {
        let mut limiter = limiter(2);
        assert_eq!((log(&mut limiter, 1, 0, 9), log(&mut limiter, 2, 0, 2)), (2, 2));
        assert_eq!(limiter.take_due(at(60)).len(), 1);
    }

    #[test]
    fn an_unreported_count_goes_on_in_the_next_window() {
        let mut limiter = limiter(1);
        assert_eq!(log(&mut limiter, 1, 0, 3), 1);
        assert_eq!(log(&mut limiter, 1, 60, 3), 1);
        assert_eq!(limiter.take_due(at(61)), [Suppressed { example: 1, count: 4 }]);
    }

    #[test]
    fn zero_is_no_limit_and_a_new_rate_applies_immediately() {
        for (burst, window) in [(0, WINDOW), (3, Duration::ZERO)] {
            let mut limiter: Limiter<u32, u32> = Limiter::new(RepeatLimit { burst, window });
            assert_eq!(log(&mut limiter, 1, 0, 100), 100);
            assert_eq!(limiter.next_due(), None);
        }
        let mut limiter = limiter(1);
        assert_eq!(log(&mut limiter, 1, 0, 3), 1);
        limiter.rate.burst = 0;
        assert_eq!(log(&mut limiter, 1, 1, 3), 3);
        assert_eq!(limiter.take_due(at(60)), [Suppressed { example: 1, count: 2 }]);
    }

    #[test]
    fn at_the_maximum_a_new_kind_passes_and_idle_kinds_make_room() {
        let mut limiter = limiter(1);
        let max = u32::try_from(MAX_KINDS).unwrap();
        for kind in 0..max {
            assert_eq!(log(&mut limiter, kind, 0, 2), 1);
        }
        assert_eq!(log(&mut limiter, max, 1, 50), 50, "uncounted");
        assert_eq!(limiter.windows.len(), MAX_KINDS);
        let reports = limiter.take_due(at(60));
        let reported: u64 = reports.iter().map(|suppressed| suppressed.count).sum();
        assert_eq!(reported, u64::from(max), "no count is lost");
        assert_eq!(log(&mut limiter, max, 61, 50), 1, "there is room again");
        assert_eq!(limiter.windows.len(), 1);
    }

    /// Keeps the messages that reach it.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Recorder {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut message = MessageVisitor(String::new());
            event.record(&mut message);
            self.0.lock().unwrap().push(message.0);
        }
    }

    impl Recorder {
        fn count(&self, part: &str) -> usize {
            let messages = self.0.lock().unwrap();
            messages.iter().filter(|message| message.contains(part)).count()
        }
    }

    fn layer(burst: u32, level: Level) -> RateLimit {
        let log = LogConfig {
            repeat_burst: burst,
            repeat_window_secs: 60,
            ..LogConfig::default()
        };
        let filter = Targets::new().with_target("hermes_relay", level);
        RateLimit::new(&log, &filter, Arc::default())
    }

    fn record(limit: &RateLimit, log: impl FnOnce()) -> Recorder {
        let recorder = Recorder::default();
        let layers = tracing_subscriber::registry().with(recorder.clone().with_filter(limit.clone()));
        tracing::subscriber::with_default(layers, log);
        recorder
    }

    #[test]
    fn a_kind_is_a_place_and_a_message() {
        let limit = layer(3, Level::INFO);
        let recorded = record(&limit, || {
            for n in 0..10 {
                tracing::warn!(target: "hermes_relay::agent", n, "the same");
                tracing::error!(target: "hermes_relay::agent", n, "the same, elsewhere");
                tracing::info!(target: "hermes_relay::agent", "number {n}");
                tracing::info!(target: UNLIMITED[1], "the link's");
                tracing::error!(target: "hermes_relay::relay::turns", row = n, "dropped");
            }
            limit.report_all();
        });
        assert_eq!(recorded.count("the same, elsewhere"), 3);
        assert_eq!(recorded.count("the same"), 6);
        assert_eq!(recorded.count("number"), 10, "each is another message");
        assert_eq!(recorded.count("the link's"), 10);
        assert_eq!(recorded.count("dropped"), 10, "each is another row");
        assert_eq!(recorded.count("repeated log lines were suppressed"), 2);
        assert_eq!(limit.0.counts.suppressed.load(Ordering::Relaxed), 14);
    }

    #[test]
    fn nothing_is_suppressed_at_debug_level() {
        let log = |limit: &RateLimit| {
            record(limit, || {
                for _ in 0..10 {
                    tracing::warn!(target: "hermes_relay::agent", "the same");
                    tracing::debug!(target: "hermes_relay::agent", "a detail");
                }
            })
        };
        let all = log(&layer(1, Level::DEBUG));
        assert_eq!((all.count("the same"), all.count("a detail")), (10, 10));
        let few = log(&layer(1, Level::INFO));
        assert_eq!((few.count("the same"), few.count("a detail")), (1, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn suppressed_lines_are_reported_after_the_window() {
        let limit = layer(1, Level::INFO);
        let recorder = Recorder::default();
        let layers = tracing_subscriber::registry().with(recorder.clone().with_filter(limit.clone()));
        let _guard = tracing::subscriber::set_default(layers);
        let reporting = async { match limit.report().await {} };
        let logging = async {
            for _ in 0..4 {
                tracing::warn!(target: "hermes_relay::agent", "the same");
            }
            let reported = async {
                while recorder.count("suppressed") == 0 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(90), reported).await
        };
        tokio::select! {
            () = reporting => {}
            reported = logging => reported.unwrap(),
        }
        assert_eq!((recorder.count("the same"), recorder.count("suppressed")), (1, 1));
    }

    #[test]
    fn the_unlimited_modules_exist() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for module in UNLIMITED.iter().chain([&UNLIMITED_ERRORS]) {
            let path = module.trim_start_matches("hermes_relay::").replace("::", "/");
            let file = sources.join(format!("{path}.rs"));
            assert!(file.exists() || sources.join(path).is_dir(), "{module}");
        }
        assert!(is_unlimited(Level::INFO, "hermes_relay::cli::run::dump"));
        assert!(!is_unlimited(Level::ERROR, "hermes_relay::client"));
        assert!(is_unlimited(Level::ERROR, "hermes_relay::relay::turns"));
        assert!(!is_unlimited(Level::WARN, "hermes_relay::relay::inbound"));
    }
}
