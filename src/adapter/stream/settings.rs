//! Settings of reply streams: how much of a turn is shown while it runs, and how often.

use serde::{Deserialize, Serialize};

use crate::setting::section;

/// How an answer is shown while it grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamMode {
    /// The best that the platform supports: drafts, else edits, else one message per finished segment.
    #[default]
    Auto,
    /// Native drafts where supported, else one message per finished segment.
    Draft,
    /// Edits of one message where supported, else one message per finished segment.
    Edit,
    /// One message per finished segment.
    Segments,
    /// The whole answer at the end.
    Off,
}

section! {
    /// How a reply is streamed to its chat.
    #[derive(PartialEq, Eq)]
    pub struct StreamSettings {
        /// How an answer is shown while it grows.
        pub mode: StreamMode = StreamMode::Auto;
        /// Visible characters before the first message is sent.
        pub first_chars: usize = 4;
        /// How long the first text is held back: an answer that is complete by then is one message. 0 shows it at once.
        pub first_hold_ms: u64 = 250;
        /// Minimum time between two ops of text.
        pub interval_ms: u64 = 800;
        /// New characters before a message is edited; fewer when the agent pauses.
        pub buffer_chars: usize = 24;
        /// Shown after a text that is still growing; empty for none.
        pub cursor: String = " \u{2589}".to_owned();
        /// Maximum interval; the interval doubles whenever the platform limits the rate.
        pub max_interval_ms: u64 = 10_000;
        /// Show a typing indicator.
        pub typing: bool = true;
        /// Delay before typing is shown; a turn that ends sooner shows none.
        pub typing_after_ms: u64 = 400;
        /// Time between two typing ops.
        pub typing_every_ms: u64 = 2_000;
        /// Timeout of typing ops and reactions.
        pub typing_deadline_ms: u64 = 1_500;
        /// Status that Slack shows beside the bot's name while the turn runs.
        pub status_text: Option<String> = Some("is thinking\u{2026}".to_owned());
        /// React to the answered message while the turn runs and when it ends.
        pub reactions: bool = true;
        /// Show tool calls and plan in one progress message, where messages can be edited.
        pub tool_progress: bool = true;
        /// Maximum lines of tool calls, and of the plan, in the progress message; the oldest are dropped first.
        pub progress_lines: usize = 8;
        /// Maximum characters of a progress line.
        pub progress_line_chars: usize = 120;
        /// Request rich blocks where supported.
        pub rich_blocks: bool;
        /// Request Markdown blocks where supported.
        pub markdown_blocks: bool;
        /// Whether Slack previews links; Slack decides when unset.
        pub unfurl_links: Option<bool>;
        /// Whether Slack previews media; Slack decides when unset.
        pub unfurl_media: Option<bool>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_have_defaults_and_unknown_keys_are_errors() {
        let read = |text: &str| serde_json::from_str::<StreamSettings>(text);
        assert_eq!(read("{}").unwrap(), StreamSettings::default());
        let quiet = read(r#"{"mode": "off", "status_text": null, "unfurl_links": false}"#).unwrap();
        assert_eq!(quiet.mode, StreamMode::Off);
        assert_eq!((quiet.status_text, quiet.unfurl_links), (None, Some(false)));
        assert!(read(r#"{"speed": 1}"#).is_err() && read(r#"{"mode": "loud"}"#).is_err());
    }
}
