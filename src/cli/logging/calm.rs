//! Keeps one line from filling the log: the layer around [`Repeats`], and who tells what was left out.
//!
//! A line is known by where in the code it is said and by its message; its fields do not count. `debug` and `trace` are
//! never left out, and nothing is while they are on: then somebody has asked for everything. Neither are the lines in
//! [`ALWAYS`], each of which says something that no other line says.

use std::convert::Infallible;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;

use super::repeats::{Allowance, LeftOut, Repeats};
use crate::config::Log;
use crate::serve::LogCounts;

/// Modules whose lines are never left out.
const ALWAYS: &[&str] = &[
    // What somebody asked for, and what ends the program.
    "hermes_relay::cli",
    // How the link stands. The last of these is the one that holds; backing off keeps them few.
    "hermes_relay::relay::tell",
    "hermes_relay::relay::shutdown",
    "hermes_relay::relay::sleep",
    // What became of an answer.
    "hermes_relay::relay::owed",
    // What was left behind, row by row.
    "hermes_relay::relay::recovery",
    // Whether the journal can be written.
    "hermes_relay::store::writer",
];

/// The module whose errors are never left out: each is about another message, which is lost or stuck.
const ERRORS: &str = "hermes_relay::relay";

/// Of a message, so much is told again.
const MOST_TOLD: usize = 200;

/// A line's place in the code, and its message.
type Kind = (Identifier, u64);

/// What is told of lines that were left out.
#[derive(Clone, Debug)]
struct Line {
    level: Level,
    message: String,
}

struct Shared {
    repeats: Mutex<Repeats<Kind, Line>>,
    started: Instant,
    /// Something was left out that is to be told.
    owing: Notify,
    counts: Arc<LogCounts>,
}

/// Leaves repetitions out. Clones are the same.
#[derive(Clone)]
pub(super) struct Calm(Arc<Shared>);

impl Calm {
    pub(super) fn new(log: &Log, filter: &Targets, counts: Arc<LogCounts>) -> Self {
        Self(Arc::new(Shared {
            repeats: Mutex::new(Repeats::new(allowance(log, filter))),
            started: Instant::now(),
            owing: Notify::new(),
            counts,
        }))
    }

    /// Other settings hold from now on.
    pub(super) fn allow(&self, log: &Log, filter: &Targets) {
        self.repeats().allow(allowance(log, filter));
    }

    /// Tells what was left out whenever a window is over. Never ends; may be dropped at any time.
    pub(super) async fn tell(&self) -> Infallible {
        loop {
            let due = self.repeats().next_due();
            match due {
                // A permit that was left meanwhile is still there.
                None => self.0.owing.notified().await,
                Some(due) => {
                    tokio::time::sleep_until(self.0.started + due).await;
                    self.tell_due(self.0.started.elapsed());
                }
            }
        }
    }

    /// Tells what is owed, windows over or not.
    pub(super) fn tell_all(&self) {
        self.tell_due(Duration::MAX);
    }

    fn tell_due(&self, now: Duration) {
        // Telling is logging, which asks for the lock.
        let due = self.repeats().due(now);
        for left_out in due {
            told(&left_out);
        }
    }

    fn repeats(&self) -> MutexGuard<'_, Repeats<Kind, Line>> {
        self.0.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passes(&self, event: &Event<'_>) -> bool {
        let meta = event.metadata();
        if *meta.level() > Level::INFO || is_always_said(*meta.level(), meta.target()) {
            return true;
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        let mut hasher = DefaultHasher::new();
        hasher.write(message.0.as_bytes());
        let kind = (meta.callsite(), hasher.finish());
        let now = self.0.started.elapsed();
        let passes = self.repeats().passes(kind, now, || Line {
            level: *meta.level(),
            message: message.0.chars().take(MOST_TOLD).collect(),
        });
        if !passes {
            self.0.counts.left_out.fetch_add(1, Ordering::Relaxed);
            self.0.owing.notify_one();
        }
        passes
    }
}

fn told(left_out: &LeftOut<Line>) {
    let LeftOut { like, count } = left_out;
    let like_this = like.message.as_str();
    match like.level {
        Level::ERROR => tracing::error!(count, like_this, "more lines like this were left out"),
        Level::WARN => tracing::warn!(count, like_this, "more lines like this were left out"),
        _ => tracing::info!(count, like_this, "more lines like this were left out"),
    }
}

fn allowance(log: &Log, filter: &Targets) -> Allowance {
    let everything = filter.would_enable("hermes_relay", &Level::DEBUG);
    Allowance {
        burst: if everything { 0 } else { log.repeat_burst },
        window: Duration::from_secs(log.repeat_window_secs),
    }
}

fn is_always_said(level: Level, target: &str) -> bool {
    let errors = (level == Level::ERROR).then_some(&ERRORS);
    ALWAYS.iter().chain(errors).any(|module| {
        let rest = target.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

impl<S: Subscriber> Layer<S> for Calm {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.passes(event)
    }
}

/// An event's message.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Keeps the messages that reach it.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut message = Message(String::new());
            event.record(&mut message);
            self.0.lock().unwrap().push(message.0);
        }
    }

    impl Heard {
        fn count(&self, part: &str) -> usize {
            let heard = self.0.lock().unwrap();
            heard.iter().filter(|message| message.contains(part)).count()
        }
    }

    fn calm(burst: u32, level: Level) -> Calm {
        let log = Log {
            repeat_burst: burst,
            repeat_window_secs: 60,
            ..Log::default()
        };
        let filter = Targets::new().with_target("hermes_relay", level);
        Calm::new(&log, &filter, Arc::default())
    }

    fn heard(calm: &Calm, talk: impl FnOnce()) -> Heard {
        let heard = Heard::default();
        let layers = tracing_subscriber::registry()
            .with(calm.clone())
            .with(heard.clone());
        tracing::subscriber::with_default(layers, talk);
        heard
    }

    #[test]
    fn a_line_is_known_by_its_place_and_its_message() {
        let calm = calm(3, Level::INFO);
        let heard = heard(&calm, || {
            for n in 0..10 {
                tracing::warn!(target: "hermes_relay::agent", n, "the same");
                tracing::error!(target: "hermes_relay::agent", n, "the same, elsewhere");
                tracing::info!(target: "hermes_relay::agent", "number {n}");
                tracing::info!(target: "hermes_relay::relay::tell", "the link's");
                tracing::error!(target: "hermes_relay::relay::turns", row = n, "given up");
            }
            calm.tell_all();
        });
        assert_eq!(heard.count("the same, elsewhere"), 3);
        assert_eq!(heard.count("the same"), 6);
        assert_eq!(heard.count("number"), 10, "each is another message");
        assert_eq!(heard.count("the link's"), 10);
        assert_eq!(heard.count("given up"), 10, "each is another row");
        assert_eq!(heard.count("more lines like this were left out"), 2);
        assert_eq!(calm.0.counts.left_out.load(Ordering::Relaxed), 14);
    }

    #[test]
    fn nothing_is_left_out_for_who_asked_for_everything() {
        let talk = |calm: &Calm| {
            heard(calm, || {
                for _ in 0..10 {
                    tracing::warn!(target: "hermes_relay::agent", "the same");
                    tracing::debug!(target: "hermes_relay::agent", "a detail");
                }
            })
        };
        let all = talk(&calm(1, Level::DEBUG));
        assert_eq!((all.count("the same"), all.count("a detail")), (10, 10));
        let few = talk(&calm(1, Level::INFO));
        assert_eq!((few.count("the same"), few.count("a detail")), (1, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_left_out_is_told_when_the_window_is_over() {
        let calm = calm(1, Level::INFO);
        let heard = Heard::default();
        let layers = tracing_subscriber::registry()
            .with(calm.clone())
            .with(heard.clone());
        let _guard = tracing::subscriber::set_default(layers);
        let telling = async { match calm.tell().await {} };
        let talking = async {
            for _ in 0..4 {
                tracing::warn!(target: "hermes_relay::agent", "the same");
            }
            let told = async {
                while heard.count("left out") == 0 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(90), told).await
        };
        tokio::select! {
            () = telling => {}
            told = talking => told.unwrap(),
        }
        assert_eq!((heard.count("the same"), heard.count("left out")), (1, 1));
    }

    #[test]
    fn the_modules_that_are_always_heard_exist() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for module in ALWAYS.iter().chain([&ERRORS]) {
            let path = module.trim_start_matches("hermes_relay::").replace("::", "/");
            let file = sources.join(format!("{path}.rs"));
            assert!(file.exists() || sources.join(path).is_dir(), "{module}");
        }
        assert!(is_always_said(Level::INFO, "hermes_relay::cli::run::dump"));
        assert!(!is_always_said(Level::ERROR, "hermes_relay::client"));
        for module in ["turns", "arrival", "recovery"] {
            let target = format!("hermes_relay::relay::{module}");
            assert!(is_always_said(Level::ERROR, &target), "{module}");
        }
        assert!(!is_always_said(Level::WARN, "hermes_relay::relay::turns"));
    }
}
