//! Logging: how much, in which form, and how often the same.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::tuning::{UnknownChoice, choice};

choice!(
    /// How much is logged.
    LogLevel {
        /// Only what stops us.
        Error = "error",
        /// Also what someone should look at.
        Warn = "warn",
        /// Also changes of state that a person would ask about.
        #[default]
        Info = "info",
        /// Also decisions.
        Debug = "debug",
        /// Also frames.
        Trace = "trace",
    }
);

choice!(
    /// How a log line looks.
    LogFormat {
        /// As `journald` where the system's journal reads our standard error, else as `text`.
        #[default]
        Auto = "auto",
        /// One line of text, on standard error.
        Text = "text",
        /// One JSON object, on standard error.
        Json = "json",
        /// An entry of the system's journal, with fields of its own.
        Journald = "journald",
    }
);

/// What is logged, and how it looks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// How much.
    pub level: LogLevel,
    /// In which form.
    pub format: LogFormat,
    /// The same line is said so often in a window; 0 for any number.
    pub repeat_burst: u32,
    /// How long that window is; 0 for no limit.
    pub repeat_window_secs: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: LogLevel::default(),
            format: LogFormat::default(),
            repeat_burst: 10,
            repeat_window_secs: 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_read_back_what_they_show() {
        for word in LogFormat::CHOICES {
            assert_eq!(word.parse::<LogFormat>().unwrap().as_str(), *word);
        }
        assert_eq!(" JSON ".parse::<LogFormat>().unwrap(), LogFormat::Json);
    }
}
