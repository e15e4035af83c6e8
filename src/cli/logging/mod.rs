//! Log lines: to the system's journal in its own language, or on standard error for people, or as JSON.
//!
//! Every line passes a net that hides secrets, and a line that repeats itself is left out after a few times and counted.
//! A log is never a reason not to run: what cannot be had is said, and replaced by text on standard error.

mod bearer;
mod calm;
mod complaint;
mod journald;
mod names;
mod repeats;
mod secrets;
mod veil;
mod within;

use std::convert::Infallible;
use std::io::{self, IsTerminal as _};
use std::str::FromStr as _;
use std::sync::Arc;

use secrecy::SecretString;
use tracing::Subscriber;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use self::calm::Calm;
use self::journald::Journal;
use self::veil::{Net, NettedMaker};
use super::{Environment, Surround};
use crate::config::{Loaded, Log, LogFormat};
use crate::serve::LogCounts;

pub(super) use self::bearer::{run, schemes, tokens};
pub(super) use self::complaint::Complaints;
pub(super) use self::names::{is_secret_name, words};
pub(super) use self::secrets::{known, without_settings};
pub(super) use self::veil::{Known, Veil};

/// The log of a running program.
#[derive(Clone)]
pub(super) struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    net: Net,
    calm: Option<Calm>,
}

impl LogHandle {
    /// Puts other settings in force: the level, what repeats, and what is secret now. The format stays.
    pub(super) fn reload(&self, loaded: &Loaded, surround: &Surround<'_>) {
        let log = &loaded.settings.log;
        self.learn(loaded, surround);
        let filter = targets(log, surround.env);
        if let Some(calm) = &self.calm {
            calm.allow(log, &filter);
        }
        let _ = self.filter.reload(filter);
    }

    /// Hides what is secret now.
    pub(super) fn learn(&self, loaded: &Loaded, surround: &Surround<'_>) {
        self.net.learn(known(loaded, surround));
    }

    /// Hides this from now on.
    pub(super) fn hide(&self, name: &str, value: &SecretString) {
        self.net.learn(vec![Known {
            name: name.to_owned(),
            value: value.clone(),
        }]);
    }

    /// Tells why it cannot go on, behind the same net.
    pub(super) fn complaints(&self, env: Environment<'_>) -> Complaints {
        Complaints::behind(self.net.clone(), env)
    }

    /// What became of lines so far.
    pub(super) fn counts(&self) -> Arc<LogCounts> {
        Arc::clone(self.net.counts())
    }

    /// Tells of repeated lines that were left out. Never ends; may be dropped at any time.
    pub(super) async fn tell_repeats(&self) -> Infallible {
        match &self.calm {
            Some(calm) => calm.tell().await,
            None => std::future::pending().await,
        }
    }

    /// Tells of those that are not told yet.
    pub(super) fn tell_last_repeats(&self) {
        if let Some(calm) = &self.calm {
            calm.tell_all();
        }
    }
}

/// What becomes of a line that repeats itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeating {
    /// It is said each time: somebody looks on.
    Said,
    /// It is left out after a few times; needs somebody who runs [`LogHandle::tell_repeats`].
    LeftOut,
}

/// What is logged: `RUST_LOG` where it is set and can be read, else the configured level.
fn targets(log: &Log, env: Environment<'_>) -> Targets {
    let asked = env("RUST_LOG").filter(|filter| !filter.trim().is_empty());
    let level = format!("hermes_relay={}", log.level.as_str());
    asked
        .and_then(|filter| Targets::from_str(&filter).ok())
        .or_else(|| Targets::from_str(&level).ok())
        .unwrap_or_default()
}

/// Starts logging; to be called once, by the binary.
pub(super) fn start(loaded: &Loaded, surround: &Surround<'_>, repeating: Repeating) -> LogHandle {
    let (log, env) = (&loaded.settings.log, surround.env);
    let targets = targets(log, env);
    let net = Net::over(known(loaded, surround));
    let calm = (repeating == Repeating::LeftOut).then(|| Calm::new(log, &targets, Arc::clone(net.counts())));
    let (filter, filter_handle) = reload::Layer::new(targets);
    let (into, trouble) = Output::choose(log.format, env);
    let layers = tracing_subscriber::registry()
        .with(filter)
        .with(calm.clone())
        .with(into.layer(&net, env));
    let _ = layers.try_init();
    if let Some(error) = trouble {
        tracing::warn!(
            socket = journald::SOCKET,
            %error,
            "the system's journal cannot be opened, so lines go to standard error as text; set `log.format` to \
             auto, or let this program reach the socket"
        );
    }
    LogHandle {
        filter: filter_handle,
        net,
        calm,
    }
}

/// Where lines go.
enum Output {
    Journal(Journal),
    Text,
    Json,
}

impl Output {
    /// What a format means here; and why it could not be had, where somebody asked for it by name.
    fn choose(format: LogFormat, env: Environment<'_>) -> (Self, Option<io::Error>) {
        match format {
            LogFormat::Text => (Self::Text, None),
            LogFormat::Json => (Self::Json, None),
            LogFormat::Journald => match Journal::open() {
                Ok(journal) => (Self::Journal(journal), None),
                Err(error) => (Self::Text, Some(error)),
            },
            LogFormat::Auto => {
                let read =
                    env("JOURNAL_STREAM").is_some_and(|named| journald::is_stream(&named, io::stderr()));
                let journal = read.then(Journal::open).and_then(Result::ok);
                (journal.map_or(Self::Text, Self::Journal), None)
            }
        }
    }

    fn layer<S>(self, net: &Net, env: Environment<'_>) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let into = NettedMaker {
            net: net.clone(),
            into: io::stderr,
        };
        let colour = || io::stderr().is_terminal() && env("NO_COLOR").is_none_or(|value| value.is_empty());
        match self {
            Self::Journal(journal) => journal.layer(net.clone()).boxed(),
            Self::Text => lines(into, false, colour()),
            Self::Json => lines(into, true, false),
        }
    }
}

/// Lines of text, or of JSON.
fn lines<S, W>(into: W, json: bool, colour: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(into);
    if json {
        lines.json().flatten_event(true).boxed()
    } else {
        lines.with_ansi(colour).with_target(false).boxed()
    }
}
