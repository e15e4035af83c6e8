//! How much of a turn is shown while it runs, and how often.

use serde::{Deserialize, Serialize};

/// How an answer is shown while it grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamMode {
    /// The best that the platform offers: drafts, else edits, else one message per finished segment.
    #[default]
    Auto,
    /// As a native draft where there are drafts, else one message per finished segment.
    Draft,
    /// By editing one message where that is possible, else one message per finished segment.
    Edit,
    /// One message per finished segment.
    Segments,
    /// Not at all: the whole answer at the end.
    Off,
}

/// How a turn speaks in its chat. Times are in milliseconds, texts in characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSettings {
    /// How an answer is shown while it grows.
    pub mode: StreamMode,
    /// Visible characters before a message is begun.
    pub first_chars: usize,
    /// Least time between two ops of text.
    pub interval_ms: u64,
    /// New characters before a message that is shown already grows; fewer are shown when the agent pauses.
    pub buffer_chars: usize,
    /// Shown after a text that still grows; empty for none.
    pub cursor: String,
    /// The interval doubles when the platform asks for patience, up to this.
    pub max_interval_ms: u64,
    /// Show that an answer is being written.
    pub typing: bool,
    /// A turn that ends sooner shows no typing.
    pub typing_after_ms: u64,
    /// Time between two signs of typing.
    pub typing_every_ms: u64,
    /// A sign of typing that is not acknowledged by then is given up.
    pub typing_deadline_ms: u64,
    /// What Slack shows beside the name while the turn runs.
    pub status_text: Option<String>,
    /// Position the message that is answered while the turn runs and when it ended.
    pub reactions: bool,
    /// Show tools and plan in one message that grows, where messages can be edited.
    pub tool_progress: bool,
    /// Most lines of tools, and most lines of plan, in that message; the oldest go first.
    pub progress_lines: usize,
    /// Most characters of one such line.
    pub progress_line_chars: usize,
    /// Ask for rich blocks where the platform has them.
    pub rich_blocks: bool,
    /// Ask for Markdown blocks where the platform has them.
    pub markdown_blocks: bool,
    /// Whether Slack shows previews of links; its own choice when unset.
    pub unfurl_links: Option<bool>,
    /// Whether Slack shows previews of media; its own choice when unset.
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
    fn what_is_left_out_has_its_default_and_what_is_unknown_is_an_error() {
        let read = |text: &str| serde_json::from_str::<StreamSettings>(text);
        assert_eq!(read("{}").unwrap(), StreamSettings::default());
        let quiet = read(r#"{"mode": "off", "status_text": null, "unfurl_links": false}"#).unwrap();
        assert_eq!(quiet.mode, StreamMode::Off);
        assert_eq!((quiet.status_text, quiet.unfurl_links), (None, Some(false)));
        assert!(read(r#"{"speed": 1}"#).is_err() && read(r#"{"mode": "loud"}"#).is_err());
    }
}
