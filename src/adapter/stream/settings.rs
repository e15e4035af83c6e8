//! Settings of reply streams: how much of a turn is shown while it runs, and how often.

use serde::{Deserialize, Serialize};

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

/// How a reply is streamed to its chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSettings {
    /// How an answer is shown while it grows.
    pub mode: StreamMode,
    /// Visible characters before the first message is sent.
    pub first_chars: usize,
    /// Minimum time between two ops of text.
    pub interval_ms: u64,
    /// New characters before a message is edited; fewer when the agent pauses.
    pub buffer_chars: usize,
    /// Shown after a text that is still growing; empty for none.
    pub cursor: String,
    /// Maximum interval; the interval doubles whenever the platform limits the rate.
    pub max_interval_ms: u64,
    /// Show a typing indicator.
    pub typing: bool,
    /// Delay before typing is shown; a turn that ends sooner shows none.
    pub typing_after_ms: u64,
    /// Time between two typing ops.
    pub typing_every_ms: u64,
    /// Timeout of typing ops and reactions.
    pub typing_deadline_ms: u64,
    /// Status that Slack shows beside the bot's name while the turn runs.
    pub status_text: Option<String>,
    /// React to the answered message while the turn runs and when it ends.
    pub reactions: bool,
    /// Show tool calls and plan in one progress message, where messages can be edited.
    pub tool_progress: bool,
    /// Maximum lines of tool calls, and of the plan, in the progress message; the oldest are dropped first.
    pub progress_lines: usize,
    /// Maximum characters of a progress line.
    pub progress_line_chars: usize,
    /// Request rich blocks where supported.
    pub rich_blocks: bool,
    /// Request Markdown blocks where supported.
    pub markdown_blocks: bool,
    /// Whether Slack previews links; Slack decides when unset.
    pub unfurl_links: Option<bool>,
    /// Whether Slack previews media; Slack decides when unset.
    pub unfurl_media: Option<bool>,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            mode: StreamMode::Auto,
            first_chars: 4,
            interval_ms: 800,
            buffer_chars: 24,
            cursor: " \u{2589}".to_owned(),
            max_interval_ms: 10_000,
            typing: true,
            typing_after_ms: 400,
            typing_every_ms: 2_000,
            typing_deadline_ms: 1_500,
            status_text: Some("is thinking\u{2026}".to_owned()),
            reactions: true,
            tool_progress: true,
            progress_lines: 8,
            progress_line_chars: 120,
            rich_blocks: false,
            markdown_blocks: false,
            unfurl_links: None,
            unfurl_media: None,
        }
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
