//! The fields of a line of text and of its spans, as `name=value`.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FormatFields, FormattedFields};

use crate::text::escape;

/// Formats the fields that a span begins with. Fields that are recorded later are for traces: formatting them again with
/// every change costs a tenth of a turn. Layers of the same type share what they have formatted, which a file with one in
/// colour must not.
pub(super) struct InitialFields<F, const COLOUR: bool>(pub(super) F);

impl<'writer, F: FormatFields<'writer>, const COLOUR: bool> FormatFields<'writer>
    for InitialFields<F, COLOUR>
{
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        self.0.format_fields(writer, fields)
    }

    fn add_fields(
        &self,
        _current: &'writer mut FormattedFields<Self>,
        _fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        Ok(())
    }
}

/// Writes the fields of a line of text, with everything escaped that came from outside. Every turn has spans whether or not
/// somebody reads a line of it, so what needs no escapes is written without a copy.
pub(super) struct TextFields {
    /// The field that is left out.
    hidden: Option<&'static str>,
}

impl TextFields {
    pub(super) const ALL: Self = Self { hidden: None };
    /// For people, who know their session.
    pub(super) const WITHOUT_SESSION: Self = Self {
        hidden: Some("session"),
    };
}

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        // A field that logs while it is formatted finds the text taken, and begins another.
        let mut visitor = TextVisitor {
            text: FIELDS.take(),
            is_coloured: writer.has_ansi_escapes(),
            hidden: self.hidden,
        };
        visitor.text.clear();
        fields.record(&mut visitor);
        let written = writer.write_str(&visitor.text);
        if visitor.text.capacity() <= KEPT {
            FIELDS.set(visitor.text);
        }
        written
    }
}

/// Most bytes of a text that is kept for the next fields.
const KEPT: usize = 4096;

thread_local! {
    /// The text that fields are collected in.
    static FIELDS: Cell<String> = const { Cell::new(String::new()) };
}

/// Collects the fields: a writer that is given piece after piece grows as often.
struct TextVisitor {
    text: String,
    is_coloured: bool,
    hidden: Option<&'static str>,
}

impl TextVisitor {
    /// Begins a field; `false` for one that is left out.
    fn begin(&mut self, field: &Field) -> bool {
        if self.hidden == Some(field.name()) {
            return false;
        }
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        match field.name() {
            "message" => {}
            name if self.is_coloured => {
                let _ = write!(self.text, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m");
            }
            name => {
                self.text.push_str(name);
                self.text.push('=');
            }
        }
        true
    }
}

/// Writing to a String does not fail.
impl Visit for TextVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if !value.bytes().all(is_plain) {
            return self.record_debug(field, &value);
        }
        if self.begin(field) {
            self.text.push('"');
            self.text.push_str(value);
            self.text.push('"');
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if self.begin(field) {
            let _ = write!(self.text, "{value}");
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.begin(field) {
            let value = format!("{value:?}");
            self.text.push_str(&escape(&value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::fmt::format::DefaultFields;
    use tracing_subscriber::layer::{Context, SubscriberExt as _};

    use super::*;

    /// Formats the fields of every event.
    struct Formatter<F>(F, Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber, F: for<'a> FormatFields<'a> + 'static> Layer<S> for Formatter<F> {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let mut text = String::new();
            self.0.format_fields(Writer::new(&mut text), event).unwrap();
            self.1.lock().unwrap().push(text);
        }
    }

    fn formatted<F: for<'a> FormatFields<'a> + Send + Sync + 'static>(fields: F, log: fn()) -> Vec<String> {
        let lines = Arc::default();
        let layers = tracing_subscriber::registry().with(Formatter(fields, Arc::clone(&lines)));
        tracing::subscriber::with_default(layers, log);
        let lines = lines.lock().unwrap();
        lines.clone()
    }

    #[test]
    fn plain_and_other_values_are_written_as_their_debug_form() {
        let log = || {
            let name = "someone";
            tracing::info!(name, n = 7, ok = true, of = ?Some("a b"), "turn {}", 1);
            tracing::info!(text = "say \"hi\" \\ there", shown = %"as is", "quoted");
            tracing::info!(empty = "", umlaut = "ü");
        };
        let lines = formatted(TextFields::ALL, log);
        assert_eq!(
            lines,
            formatted(DefaultFields::new(), log),
            "what the library writes"
        );
        assert_eq!(lines[0], r#"turn 1 name="someone" n=7 ok=true of=Some("a b")"#);
    }

    #[test]
    fn people_read_no_session() {
        let log = || tracing::info!(session = "agent:main", agent = "echo", "turn ended");
        assert_eq!(
            formatted(TextFields::ALL, log),
            [r#"turn ended session="agent:main" agent="echo""#]
        );
        assert_eq!(
            formatted(TextFields::WITHOUT_SESSION, log),
            [r#"turn ended agent="echo""#]
        );
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped() {
        let lines = formatted(TextFields::ALL, || {
            tracing::info!(text = "a\u{1b}[2Jb\nc", shown = %"d\u{202e}e");
        });
        assert!(
            !lines[0].chars().any(|c| c.is_control() || c == '\u{202e}'),
            "{lines:?}"
        );
        assert!(lines[0].contains("[2Jb") && lines[0].contains("shown=d"));
    }
}
