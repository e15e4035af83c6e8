//! The body of one request: instructions, transcript, pictures.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;

use super::OpenAiSettings;
use crate::agent::transcript::Transcript;
use crate::agent::{Attachment, MediaLocation};

/// Most pictures of one message that the model is shown.
const MOST_PICTURES: usize = 8;
/// Most bytes of one message's pictures; those that do not fit are left out.
const MOST_PICTURE_BYTES: usize = 12 * 1024 * 1024;

/// A picture as models take it.
pub(super) struct Picture(String);

/// Whether an attachment is a picture that can be read and shown.
pub(super) fn is_picture(attachment: &Attachment) -> bool {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp"];
    matches!(attachment.location, MediaLocation::File(_)) && known.contains(&attachment.mime.as_str())
}

/// Reads the pictures among the attachments; one that cannot be read, or is too large, is left out.
pub(super) async fn pictures(attachments: &[Attachment]) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let mut room = MOST_PICTURE_BYTES;
    for attachment in attachments.iter().filter(|a| is_picture(a)).take(MOST_PICTURES) {
        let MediaLocation::File(path) = &attachment.location else {
            continue;
        };
        let Ok(file) = tokio::fs::File::open(path).await else {
            continue;
        };
        let mut bytes = Vec::new();
        let limit = u64::try_from(room).unwrap_or(u64::MAX).saturating_add(1);
        let read = file.take(limit).read_to_end(&mut bytes).await;
        if read.is_err() || bytes.len() > room || bytes.is_empty() {
            continue;
        }
        room -= bytes.len();
        let encoded = STANDARD.encode(&bytes);
        pictures.push(Picture(format!("data:{};base64,{encoded}", attachment.mime)));
    }
    pictures
}

/// The request without `stream_options`. The last message of `transcript` is the one to answer.
pub(super) fn body(
    settings: &OpenAiSettings,
    instructions: &str,
    transcript: &Transcript,
    pictures: Vec<Picture>,
) -> Map<String, Value> {
    let mut messages = Vec::new();
    if !instructions.is_empty() {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    for (role, text) in transcript.messages() {
        messages.push(json!({"role": role.as_str(), "content": text}));
    }
    if let Some(last) = messages.last_mut().filter(|_| !pictures.is_empty()) {
        let text = last["content"].take();
        let shown = pictures
            .into_iter()
            .map(|Picture(url)| json!({"type": "image_url", "image_url": {"url": url}}));
        let parts: Vec<Value> = std::iter::once(json!({"type": "text", "text": text}))
            .chain(shown)
            .collect();
        last["content"] = Value::Array(parts);
    }
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(settings.model));
    body.insert("messages".to_owned(), Value::Array(messages));
    body.insert("stream".to_owned(), json!(true));
    if let Some(temperature) = settings.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    if let Some(most) = settings.max_tokens {
        body.insert("max_tokens".to_owned(), json!(most));
    }
    body
}
