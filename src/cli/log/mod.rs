//! The log: to journald in its native protocol, or to standard error as text or JSON; and to a file if one is configured.
//!
//! Every line is redacted, text from outside is escaped, and repeated lines are rate limited. An unusable log never stops
//! the program: it is reported and replaced by text on standard error.

#[cfg(feature = "dev")]
mod divert;
mod fatal;
mod fields;
mod file;
mod journald;
mod people;
mod rate_limit;
pub(super) mod redact;
mod redacting;
#[cfg(feature = "otlp")]
mod telemetry;

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::str::FromStr as _;
use std::sync::Arc;
#[cfg(feature = "otlp")]
use std::sync::{Mutex, PoisonError};

use jiff::tz::TimeZone;
use secrecy::SecretString;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt as _, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use self::fields::{InitialFields, TextFields};
use self::file::LogFile;
use self::journald::Journald;
use self::people::PeopleFormat;
use self::rate_limit::RateLimit;
use self::redact::{KnownSecret, known_secrets};
use self::redacting::{LogRedactor, MakeRedactingWriter};
#[cfg(feature = "otlp")]
use self::telemetry::FinishedTraces;
use super::format::Escaped;
use super::{Environment, ProcessEnv};
use crate::config::{LoadedConfig, LogConfig, LogFormat, Settings};
use crate::serve::{LogCounts, TraceCounts};

#[cfg(feature = "dev")]
pub(super) use self::divert::{divert, next_line};
pub(super) use self::fatal::FatalErrors;
pub(super) use self::people::BESIDE_PEOPLE;

/// The log of a running program.
#[derive(Clone)]
pub(super) struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    redactor: LogRedactor,
    rate_limit: Option<RateLimit>,
    file: Option<LogFile>,
    is_for_people: bool,
    trace_counts: Arc<TraceCounts>,
    #[cfg(feature = "otlp")]
    traces: Arc<Mutex<Option<FinishedTraces>>>,
}

impl LogHandle {
    /// Applies new settings: the level, the rate limit and the secrets. The format and the file's name stay; the file is
    /// opened again.
    pub(super) fn reload(&self, loaded: &LoadedConfig, process: &ProcessEnv<'_>) {
        let log = &loaded.settings.log;
        self.add_secrets(loaded, process);
        let filter = targets(log, process.env);
        if let Some(rate_limit) = &self.rate_limit {
            rate_limit.reload(log, &filter);
        }
        let _ = self.filter.reload(filter);
        if let Some(file) = &self.file {
            file.reopen();
        }
    }

    /// Redacts the secrets of new settings too.
    pub(super) fn add_secrets(&self, loaded: &LoadedConfig, process: &ProcessEnv<'_>) {
        self.redactor.add(known_secrets(loaded, process));
    }

    /// Redacts one more secret.
    pub(super) fn add_secret(&self, name: &str, value: &SecretString) {
        self.redactor.add(vec![KnownSecret::new(name, value.clone())]);
    }

    /// Reports fatal errors with the same redaction.
    pub(super) fn fatal_errors(&self, env: Environment<'_>) -> FatalErrors {
        FatalErrors::new(self.redactor.clone(), env)
    }

    /// Whether a person reads the lines in a terminal.
    pub(super) fn is_for_people(&self) -> bool {
        self.is_for_people
    }

    pub(super) fn counts(&self) -> Arc<LogCounts> {
        Arc::clone(self.redactor.counts())
    }

    pub(super) fn trace_counts(&self) -> Arc<TraceCounts> {
        Arc::clone(&self.trace_counts)
    }

    /// Exports traces of turns, if that is configured, while `work` runs.
    pub(super) async fn export_traces<T>(
        &self,
        settings: &Settings,
        env: Environment<'_>,
        work: impl Future<Output = T>,
    ) -> T {
        #[cfg(feature = "otlp")]
        {
            let traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(traces) = traces {
                return telemetry::export(traces, settings, env, work).await;
            }
        }
        #[cfg(not(feature = "otlp"))]
        let _ = (settings, env);
        work.await
    }

    /// Reports suppressed lines at the end of each window. Never returns; cancel-safe.
    pub(super) async fn report_suppressed(&self) -> Infallible {
        match &self.rate_limit {
            Some(rate_limit) => rate_limit.report().await,
            None => std::future::pending().await,
        }
    }

    /// Reports all suppressed lines now.
    pub(super) fn flush_suppressed(&self) {
        if let Some(rate_limit) = &self.rate_limit {
            rate_limit.report_all();
        }
    }
}

/// Whether repeated lines are rate limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    /// For a verb that a person watches.
    Unlimited,
    /// Needs a task that runs [`LogHandle::report_suppressed`].
    RateLimited,
}

/// The filter: `RUST_LOG` if it is set and valid, else the configured level.
fn targets(log: &LogConfig, env: Environment<'_>) -> Targets {
    let requested = env("RUST_LOG").filter(|filter| !filter.trim().is_empty());
    let level = format!("hermes_relay={}", log.level.as_str());
    requested
        .and_then(|filter| Targets::from_str(&filter).ok())
        .or_else(|| Targets::from_str(&level).ok())
        .unwrap_or_default()
}

/// Starts logging. Call it once.
pub(super) fn start(loaded: &LoadedConfig, process: &ProcessEnv<'_>, repeats: Repeats) -> LogHandle {
    let (log, env) = (&loaded.settings.log, process.env);
    let targets = targets(log, env);
    let redactor = LogRedactor::new(known_secrets(loaded, process));
    let rate_limit = (repeats == Repeats::RateLimited)
        .then(|| RateLimit::new(log, &targets, Arc::clone(redactor.counts())));
    let (filter, filter_handle) = reload::Layer::new(targets);
    let (mut output, error) = Output::choose(log.format, env);
    let is_for_people = repeats == Repeats::RateLimited
        && log.format == LogFormat::Auto
        && matches!(output, Output::Text)
        && io::stderr().is_terminal();
    if is_for_people {
        let zone = loaded.settings.cron.timezone.as_deref();
        output = Output::People(
            zone.and_then(|name| TimeZone::get(name).ok())
                .unwrap_or(TimeZone::UTC),
        );
    }
    // Only for what runs in the background: two programs with one file would rotate it under each other.
    let (file, file_error) = match repeats {
        Repeats::Unlimited => (None, None),
        Repeats::RateLimited => match LogFile::open(log, redactor.counts()) {
            Ok(file) => (file, None),
            Err(error) => (None, Some(error)),
        },
    };
    let filter = filter.and(rate_limit.clone());
    let mut output = output.layer(&redactor, env);
    if let Some(file) = file.clone() {
        let writer = MakeRedactingWriter {
            redactor: redactor.clone(),
            inner: move || file.clone(),
        };
        output = output
            .and_then(line_layer(writer, log.format == LogFormat::Json, false))
            .boxed();
    }
    // The filter is the log's own: traces take spans that it does not print.
    let layers = tracing_subscriber::registry().with(output.with_filter(filter));
    let trace_counts = Arc::<TraceCounts>::default();
    #[cfg(feature = "otlp")]
    let (layers, traces) = {
        let (layer, traces) = telemetry::layer(&loaded.settings.telemetry, &trace_counts).unzip();
        (layers.with(layer), Arc::new(Mutex::new(traces)))
    };
    let _ = layers.try_init();
    if let Some(error) = error {
        tracing::warn!(
            socket = journald::SOCKET,
            %error,
            "cannot open journald; logging as text to standard error (set `log.format` to auto, or give this \
             program access to the socket)"
        );
    }
    if let (Some(error), Some(file)) = (file_error, &log.file) {
        tracing::warn!(
            file = %file.display(),
            %error,
            "cannot open the log file; logging without it (create its directory, or change `log.file`, and restart)"
        );
    }
    LogHandle {
        filter: filter_handle,
        redactor,
        rate_limit,
        file,
        is_for_people,
        trace_counts,
        #[cfg(feature = "otlp")]
        traces,
    }
}

/// Where lines go.
enum Output {
    Journald(Journald),
    Text,
    Json,
    /// For a person in a terminal, with times in this zone.
    People(TimeZone),
}

impl Output {
    /// The output for a format, and why journald could not be opened if it was requested explicitly.
    fn choose(format: LogFormat, env: Environment<'_>) -> (Self, Option<io::Error>) {
        match format {
            LogFormat::Text => (Self::Text, None),
            LogFormat::Json => (Self::Json, None),
            LogFormat::Journald => match Journald::open() {
                Ok(journald) => (Self::Journald(journald), None),
                Err(error) => (Self::Text, Some(error)),
            },
            LogFormat::Auto => {
                let is_journal = env("JOURNAL_STREAM")
                    .is_some_and(|stream| journald::is_journal_stream(&stream, io::stderr()));
                let journald = is_journal.then(Journald::open).and_then(Result::ok);
                (journald.map_or(Self::Text, Self::Journald), None)
            }
        }
    }

    fn layer<S>(self, redactor: &LogRedactor, env: Environment<'_>) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let writer = MakeRedactingWriter {
            redactor: redactor.clone(),
            #[cfg(feature = "dev")]
            inner: divert::LogOutput::new,
            #[cfg(not(feature = "dev"))]
            inner: io::stderr,
        };
        let colour = || io::stderr().is_terminal() && env("NO_COLOR").is_none_or(|value| value.is_empty());
        match self {
            Self::Journald(journald) => journald.layer(redactor.clone()).boxed(),
            Self::Text => line_layer(writer, false, colour()),
            Self::Json => line_layer(writer, true, false),
            Self::People(zone) => people_layer(writer, zone, colour()),
        }
    }
}

/// The layer that writes lines for people, without those that they read elsewhere.
fn people_layer<S, W>(writer: W, zone: TimeZone, colour: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let fields = InitialFields::<_, true>(TextFields::WITHOUT_SESSION);
    tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .fmt_fields(fields)
        .with_ansi(colour)
        .event_format(PeopleFormat { zone, colour })
        .boxed()
}

/// The layer that writes lines of text or JSON.
fn line_layer<S, W>(writer: W, json: bool, colour: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    if json {
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(MakeEscapedWriter(writer))
            .json()
            .flatten_event(true);
        lines
            .fmt_fields(InitialFields::<_, false>(JsonFields::new()))
            .boxed()
    } else if colour {
        text_layer::<S, W, true>(writer)
    } else {
        text_layer::<S, W, false>(writer)
    }
}

/// The layer that writes lines of text.
fn text_layer<S, W, const COLOUR: bool>(writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let fields = InitialFields::<_, COLOUR>(TextFields::ALL);
    tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .fmt_fields(fields)
        .with_ansi(COLOUR)
        .with_target(false)
        .boxed()
}

/// Makes writers of JSON lines that a terminal can show.
struct MakeEscapedWriter<M>(M);

impl<'w, M: MakeWriter<'w>> MakeWriter<'w> for MakeEscapedWriter<M> {
    type Writer = Escaped<M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        Escaped(self.0.make_writer())
    }
}
