//! The spans that follow messages and turns through the log.

use std::sync::OnceLock;

use tracing::Span;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;

/// The span of one message. It is opened at once where somebody debugs or exports traces, else when its turn takes longer than one
/// step of the event loop: a span costs more than all that an agent which answers inline does.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageSpan(OnceLock<Span>);

impl MessageSpan {
    pub(super) fn new(session: &str) -> Self {
        let span = Self::default();
        span.open_if_observed(session);
        span
    }

    /// Opens the span where somebody debugs or exports traces.
    pub(super) fn open_if_observed(&self, session: &str) {
        if is_observed() {
            self.open(session);
        }
    }

    /// The span, which is opened if it is not yet.
    pub(super) fn open(&self, session: &str) -> &Span {
        self.0.get_or_init(|| message_span(session))
    }

    /// The span if it is open, else none.
    pub(super) fn get(&self) -> Span {
        self.0.get().cloned().unwrap_or_else(Span::none)
    }
}

/// Whether somebody reads more of a turn than that it ended.
pub(super) fn is_observed() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// Opens the span of a message in this session.
pub(super) fn message_span(session: &str) -> Span {
    tracing::info_span!(
        "session",
        session,
        attempt = Empty,
        waited_ms = Empty,
        steered = Empty,
        ops = Empty,
        outcome = Empty,
    )
}
