//! The log for people who watch a terminal: one line per event, with the time of day.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The target of lines whose content a person reads elsewhere.
pub(in crate::cli) const BESIDE_PEOPLE: &str = "hermes_relay::start";

/// Writes the time in a zone, what is wrong about the event, and its message and fields.
pub(super) struct PeopleFormat {
    pub(super) zone: TimeZone,
    pub(super) colour: bool,
}

impl<S, N> FormatEvent<S, N> for PeopleFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if event.metadata().target() == BESIDE_PEOPLE {
            return Ok(());
        }
        let time = time_of_day(Timestamp::now(), &self.zone);
        let (mark, colour) = mark(*event.metadata().level());
        if self.colour {
            write!(writer, "\x1b[2m{time}\x1b[0m  {colour}{mark}\x1b[0m")?;
        } else {
            write!(writer, "{time}  {mark}")?;
        }
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn time_of_day(now: Timestamp, zone: &TimeZone) -> String {
    let at = zone.to_datetime(now);
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

fn mark(level: Level) -> (&'static str, &'static str) {
    match level {
        Level::ERROR => ("error: ", "\x1b[31m"),
        Level::WARN => ("warning: ", "\x1b[33m"),
        _ => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_zone() {
        let noon: Timestamp = "2026-07-01T12:00:05Z".parse().unwrap();
        assert_eq!(time_of_day(noon, &TimeZone::UTC), "12:00:05");
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(time_of_day(noon, &berlin), "14:00:05");
    }

    #[test]
    fn only_what_is_wrong_has_a_mark() {
        assert_eq!(mark(Level::INFO).0, "");
        assert_eq!(mark(Level::WARN).0, "warning: ");
    }
}
