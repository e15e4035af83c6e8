//! A turn's input as the blocks of a prompt.
//!
//! Text comes first, then what came with it: images as such when the agent looks at images and they are small
//! enough, anything else as a link. It reads only files that the turn names.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use url::Url;

use crate::agent::{Attachment, MediaLocation, TurnInput};

/// Pictures of one prompt that are handed over as such; more are links.
const MAX_IMAGES: usize = 8;

/// Attachments of one prompt; more are left out.
const MAX_ATTACHMENTS: usize = 32;

/// Invisible and not whitespace: programs do not strip it before looking for a slash.
const ZERO_WIDTH_SPACE: char = '\u{200B}';

/// How the blocks are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The agent looks at images.
    pub(super) images: bool,
    /// Largest image that is handed over as such.
    pub(super) image_bytes: u64,
    /// Whether the text is a command of the agent, which gets nothing else then; none is where a slash is escaped.
    pub(super) is_command: bool,
    /// Whether a leading slash is escaped.
    pub(super) escape_slash: bool,
    /// Whether the platform hint is included.
    pub(super) hint: bool,
}

/// The content blocks of a prompt: the text first, then the attachments.
pub(super) async fn blocks(input: &TurnInput, shape: Shape) -> Vec<Value> {
    let mut blocks = vec![json!({"type": "text", "text": text(input, shape)})];
    let mut images = 0;
    for attachment in input.attachments.iter().take(MAX_ATTACHMENTS) {
        let image = if shape.images && images < MAX_IMAGES {
            image(attachment, shape.image_bytes).await
        } else {
            None
        };
        images += usize::from(image.is_some());
        blocks.extend(image.or_else(|| link(attachment)));
    }
    blocks
}

fn text(input: &TurnInput, shape: Shape) -> String {
    if shape.is_command {
        return input.text.trim().to_owned();
    }
    let mut text = input.as_prompt();
    if text.trim().is_empty() && !input.attachments.is_empty() {
        "(no text, see what is attached)".clone_into(&mut text);
    }
    let hint = input.origin.hint.trim();
    if shape.hint && !hint.is_empty() {
        text = format!("About the chat that you answer in: {hint}\n\n{text}");
    }
    if shape.escape_slash && text.trim_start().starts_with('/') {
        text.insert(0, ZERO_WIDTH_SPACE);
    }
    text
}

async fn image(attachment: &Attachment, max_bytes: u64) -> Option<Value> {
    let MediaLocation::File(path) = &attachment.location else {
        return None;
    };
    if !attachment.mime.starts_with("image/") {
        return None;
    }
    let size = tokio::fs::metadata(path)
        .await
        .ok()
        .filter(std::fs::Metadata::is_file)?
        .len();
    if size > max_bytes {
        return None;
    }
    let bytes = tokio::fs::read(path)
        .await
        .ok()
        .filter(|bytes| bytes.len() as u64 <= max_bytes)?;
    Some(json!({"type": "image", "mimeType": attachment.mime, "data": STANDARD.encode(bytes)}))
}

fn link(attachment: &Attachment) -> Option<Value> {
    let uri = match &attachment.location {
        MediaLocation::File(path) => {
            let path = std::path::absolute(path).ok()?;
            Url::from_file_path(path).ok()?.to_string()
        }
        MediaLocation::Url(address) => address.clone(),
    };
    let mut link = json!({"type": "resource_link", "name": name(attachment, &uri), "uri": uri});
    if !attachment.mime.is_empty() {
        link["mimeType"] = json!(attachment.mime);
    }
    Some(link)
}

fn name(attachment: &Attachment, uri: &str) -> String {
    if !attachment.name.is_empty() {
        return attachment.name.clone();
    }
    let last = uri
        .split(['?', '#'])
        .next()
        .and_then(|uri| Path::new(uri).file_name());
    last.map_or_else(
        || "attachment".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        images: true,
        image_bytes: 10,
        is_command: false,
        escape_slash: true,
        hint: true,
    };

    fn input(text: &str) -> TurnInput {
        TurnInput {
            text: text.to_owned(),
            ..TurnInput::default()
        }
    }

    #[tokio::test]
    async fn small_images_are_embedded_and_the_rest_is_linked() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, mime: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            Attachment {
                location: MediaLocation::File(path),
                mime: mime.to_owned(),
                name: name.to_owned(),
            }
        };
        let mut message = input("");
        message.attachments = vec![
            file("small.png", "image/png", b"abc"),
            file("big image.png", "image/png", b"0123456789x"),
            file("notes.txt", "text/plain", b"abc"),
            Attachment {
                location: MediaLocation::Url("https://host/p/a.png?token=1".to_owned()),
                mime: String::new(),
                name: String::new(),
            },
        ];
        let made = blocks(&message, SHAPE).await;
        let kinds: Vec<_> = made.iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            ["text", "image", "resource_link", "resource_link", "resource_link"]
        );
        assert_eq!(
            made[1],
            json!({"type": "image", "mimeType": "image/png", "data": "YWJj"})
        );
        assert!(
            made[2]["uri"].as_str().unwrap().ends_with("/big%20image.png"),
            "{}",
            made[2]
        );
        assert_eq!(
            (&made[3]["mimeType"], &made[4]["name"]),
            (&json!("text/plain"), &json!("a.png"))
        );
        assert!(made[4].get("mimeType").is_none() && !made[0]["text"].as_str().unwrap().is_empty());
        let blind = blocks(
            &message,
            Shape {
                images: false,
                ..SHAPE
            },
        )
        .await;
        assert_eq!(blind[1]["type"], "resource_link");
    }

    #[test]
    fn a_slash_commands_nobody_unless_it_may() {
        for command in ["/steer x", " \n/reset"] {
            let made = text(&input(command), SHAPE);
            assert!(
                made.starts_with('\u{200B}') && made.ends_with(command),
                "{made:?}"
            );
        }
        assert_eq!(text(&input("a/b"), SHAPE), "a/b");
        assert_eq!(
            text(
                &input("/help"),
                Shape {
                    is_command: false,
                    escape_slash: false,
                    ..SHAPE
                }
            ),
            "/help"
        );
    }

    #[test]
    fn the_platform_hint_is_sent_once_per_session() {
        let mut message = input("/x");
        message.origin.hint = "Short answers.".into();
        let prompt = text(&message, SHAPE);
        assert!(prompt.contains("Short answers.") && prompt.ends_with("\n\n/x"));
        assert!(!text(&message, Shape { hint: false, ..SHAPE }).contains("Short"));
    }
}
