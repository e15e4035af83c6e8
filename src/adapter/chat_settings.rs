//! Settings of what people meet in a chat: language, long turns, quiet hours.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::setting::{MAX_SECS, section};
use crate::words::Language;

section! {
    /// What people meet in a chat.
    #[derive(PartialEq, Eq)]
    pub struct ChatSettings {
        /// Language of the relay's own words, for people whose client does not name theirs.
        pub language: Language = Language::En;
        /// How long a turn runs before the chat shows its time and its current step; 0 shows neither.
        pub progress_after_secs: u64 = 30, range(0..=MAX_SECS);
        /// A turn that took longer ends with a short message that rings; 0 sends none.
        pub notify_after_secs: u64 = 60, range(0..=MAX_SECS);
        /// Hours in which nothing rings, such as 22:00-07:00.
        pub quiet_hours: Option<QuietHours>;
        /// Widest table that is shown as an aligned code block, where the platform has no tables; 0 leaves tables as they are.
        pub table_width: usize = 80, range(0..=500);
        /// Longest code block of an answer that stays in its text, in lines; a longer one goes as a file; 0 leaves all of them there.
        pub code_file_lines: usize = 80, range(0..=10_000);
        /// Last messages of a group that the agent gets when it is called, with a bot of one's own.
        pub group_context: usize = 0, range(0..=100);
        /// A message to the bot in a group starts a thread, where the platform has them; the answer goes there.
        pub group_threads: bool = false;
    }
}

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// A part of each day, by the clock of a time zone that its owner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QuietHours {
    from: u16,
    to: u16,
}

impl QuietHours {
    /// Whether a minute of the day is one of them.
    pub fn contains(self, minute: u16) -> bool {
        if self.from <= self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from, self.to);
        write!(
            f,
            "{:02}:{:02}-{:02}:{:02}",
            from / 60,
            from % 60,
            to / 60,
            to % 60
        )
    }
}

/// Why a text names no hours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no hours; write two different times of day, such as 22:00-07:00")]
pub struct NoHours(String);

impl FromStr for QuietHours {
    type Err = NoHours;

    fn from_str(text: &str) -> Result<Self, NoHours> {
        let error = || NoHours(text.chars().take(40).collect());
        let (from, to) = text.split_once(['-', '\u{2013}']).ok_or_else(error)?;
        let hours = Self {
            from: minute_of_day(from).ok_or_else(error)?,
            to: minute_of_day(to).ok_or_else(error)? % DAY,
        };
        // The same time twice could mean all day or never.
        (hours.from != hours.to && hours.from < DAY)
            .then_some(hours)
            .ok_or_else(error)
    }
}

/// `22:00`, `7:30`, `22` or `24:00`.
fn minute_of_day(text: &str) -> Option<u16> {
    let text = text.trim();
    let (hour, minute) = text.split_once(':').unwrap_or((text, "00"));
    let number = |digits: &str, lengths: std::ops::RangeInclusive<usize>| {
        let is_number = lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<u16>().ok()).flatten()
    };
    let (hour, minute) = (number(hour, 1..=2)?, number(minute, 2..=2)?);
    let at = hour * 60 + minute;
    (minute < 60 && at <= DAY).then_some(at)
}

impl TryFrom<String> for QuietHours {
    type Error = NoHours;

    fn try_from(text: String) -> Result<Self, NoHours> {
        text.parse()
    }
}

impl From<QuietHours> for String {
    fn from(hours: QuietHours) -> Self {
        hours.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(text: &str) -> QuietHours {
        text.parse().unwrap()
    }

    #[test]
    fn hours_may_pass_midnight() {
        let night = hours("22:00-07:00");
        for (minute, is_quiet) in [
            (21 * 60 + 59, false),
            (22 * 60, true),
            (0, true),
            (7 * 60 - 1, true),
            (7 * 60, false),
        ] {
            assert_eq!(night.contains(minute), is_quiet, "{minute}");
        }
        let noon = hours("12:00 - 13:30");
        assert!(noon.contains(12 * 60) && !noon.contains(13 * 60 + 30) && !noon.contains(0));
        assert!(hours("20-24:00").contains(23 * 60 + 59) && !hours("20-24:00").contains(0));
    }

    #[test]
    fn hours_are_written_as_they_are_read() {
        assert_eq!(hours("7:05\u{2013}9").to_string(), "07:05-09:00");
        for text in [
            "",
            "22:00",
            "22:00-",
            "22:00-22:00",
            "25:00-07:00",
            "22:60-07:00",
            "-1:00-7:00",
            "a-b",
            "24:00-7:00",
            "0:00-24:00",
        ] {
            assert!(text.parse::<QuietHours>().is_err(), "{text}");
        }
    }
}
