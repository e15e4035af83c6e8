//! English.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "Done after {time}: {gist}",
        Key::DoneAfterSilently => "Done after {time}.",
        Key::FailedAfter => "Failed after {time}: {gist}",
        Key::Seconds => "{count} s|{count} s",
        Key::Minutes => "{count} min|{count} min",
        Key::MinutesAndSeconds => "{minutes} min {seconds} s",
        Key::HoursAndMinutes => "{hours} h {minutes} min",
        Key::QuestionWaits => "This question still waits for your answer, for another {time}.",
        Key::QuietSet => "Quiet hours {hours} ({zone}): nothing rings for you then. /quiet off ends them.",
        Key::QuietOff => "Messages ring for you at any time from now on.",
        Key::QuietForEverybody => "Quiet hours for everybody: {hours} ({zone}). Write /quiet 22:00-07:00 for hours of your own, or /quiet off.",
        Key::QuietNever => "Messages ring for you at any time. Write /quiet 22:00-07:00 for hours in which nothing rings.",
        Key::QuietUsage => "I cannot read these hours. Write /quiet 22:00-07:00, or /quiet off.",
        Key::NothingToRetry => "I do not have your last message any more. Please send it again.",
        Key::NothingWaits => "Nothing waits.",
        Key::MessagesWait => "{count} message waits. Which one do I drop?|{count} messages wait. Which one do I drop?",
        Key::DropMessage => "Drop {number}: {text}",
    }
}
