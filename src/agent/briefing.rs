//! What an agent is told besides the message: where it speaks, how that place shows text, and what was attached.
//!
//! Pure text. What comes from the connector is shortened and put on its own lines.

use std::fmt::Write as _;

use super::{Attachment, ChatOrigin, MediaLocation};
use crate::net::http::excerpt;

/// Longest hint of a platform that is passed on, in characters.
const MOST_HINT: usize = 4000;
/// Most attachments that are named.
const MOST_NAMED: usize = 16;

/// The instructions for a turn: the operator's own first, then what the platform says about itself.
pub(super) fn briefing(own: &str, origin: &ChatOrigin) -> String {
    let hint: String = origin.hint.trim().chars().take(MOST_HINT).collect();
    let dialect = match origin.markdown.trim() {
        "" => String::new(),
        "plain" | "none" => "Answers are shown as plain text: use no markdown.".to_owned(),
        dialect => format!("Answers may use this markdown dialect: {}.", excerpt(dialect)),
    };
    let parts = [own.trim(), &hint, &dialect];
    let told: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    told.join("\n\n")
}

/// Whether an agent can open a file by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It runs on this machine, so far as we know.
    Files,
    /// It sees nothing but what it is sent.
    Nothing,
}

/// A line for each attachment that the agent is not sent itself; starts with a line end, empty for none.
pub(super) fn attachments<'a>(attached: impl Iterator<Item = &'a Attachment>, reach: Reach) -> String {
    let mut lines = String::new();
    for attachment in attached.take(MOST_NAMED) {
        let kind = match attachment.mime.as_str() {
            "" => String::new(),
            mime => format!(" ({})", excerpt(mime)),
        };
        let at = match (&attachment.location, reach) {
            (MediaLocation::File(path), Reach::Files) => excerpt(&path.display().to_string()),
            _ if attachment.name.is_empty() => "a file".to_owned(),
            _ => excerpt(&attachment.name),
        };
        // Writing to a string cannot fail.
        let _ = write!(lines, "\n[attached: {at}{kind}]");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_words_come_first_and_nothing_is_made_up() {
        let mut origin = ChatOrigin {
            hint: " Discord: be short. ".to_owned(),
            markdown: "discord".to_owned(),
            ..ChatOrigin::default()
        };
        assert_eq!(
            briefing("You are Bo.\n", &origin),
            "You are Bo.\n\nDiscord: be short.\n\nAnswers may use this markdown dialect: discord."
        );
        origin.hint = "x".repeat(MOST_HINT * 2);
        origin.markdown = "plain".to_owned();
        let told = briefing("", &origin);
        assert!(told.starts_with('x') && told.ends_with("use no markdown."));
        assert!(told.chars().count() < MOST_HINT + 100);
        assert_eq!(briefing(" ", &ChatOrigin::default()), "");
    }

    #[test]
    fn attachments_are_named_without_their_addresses() {
        let attached = |location, name: &str| Attachment {
            location,
            mime: "image/png".to_owned(),
            name: name.to_owned(),
        };
        let file = attached(MediaLocation::File("/tmp/a.png".into()), "a.png");
        let url = attached(
            MediaLocation::Url("https://files.example/bot123:token/x".to_owned()),
            "",
        );
        let both = [file, url];
        let told = attachments(both.iter(), Reach::Files);
        assert_eq!(
            told,
            "\n[attached: /tmp/a.png (image/png)]\n[attached: a file (image/png)]"
        );
        let told = attachments(both.iter(), Reach::Nothing);
        assert_eq!(
            told,
            "\n[attached: a.png (image/png)]\n[attached: a file (image/png)]"
        );
    }
}
