//! Log lines on standard error: for people on a terminal, as JSON where asked.

use std::io::IsTerminal as _;
use std::str::FromStr as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

use crate::config::{Log, LogFormat};

/// Changes what is logged while running.
pub(super) type LogHandle = reload::Handle<Targets, Registry>;

/// What is logged: `RUST_LOG` where it is set and can be read, else the configured level.
pub(super) fn targets(log: &Log, env: &dyn Fn(&str) -> Option<String>) -> Targets {
    let asked = env("RUST_LOG").filter(|filter| !filter.trim().is_empty());
    let level = format!("hermes_relay={}", log.level.as_str());
    asked
        .and_then(|filter| Targets::from_str(&filter).ok())
        .or_else(|| Targets::from_str(&level).ok())
        .unwrap_or_default()
}

/// Starts logging; to be called once, by the binary.
pub(super) fn start(log: &Log, env: &dyn Fn(&str) -> Option<String>) -> Option<LogHandle> {
    let (filter, handle) = reload::Layer::new(targets(log, env));
    let terminal = std::io::stderr().is_terminal();
    let colour = terminal && env("NO_COLOR").is_none_or(|value| value.is_empty());
    let json = log.format == LogFormat::Json;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let started = if json {
        tracing_subscriber::registry()
            .with(filter)
            .with(lines.json().flatten_event(true).boxed())
            .try_init()
    } else {
        tracing_subscriber::registry()
            .with(filter)
            .with(lines.with_ansi(colour).with_target(false).boxed())
            .try_init()
    };
    started.is_ok().then_some(handle)
}
