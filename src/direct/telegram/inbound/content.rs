//! The content of a message besides its text: a file, or content that is described in words.

use serde_json::{Map, Value, json};

use crate::direct::field;
use crate::direct::telegram::chat::{chat_name, person_name};
use crate::direct::telegram::file::{FileAddress, FilePlace, is_id};
use crate::text::{one_line, printable};

/// Largest file that a bot can download from Telegram's own server.
pub const MAX_DOWNLOAD_BYTES: u64 = 20 * MEBIBYTE;

const MEBIBYTE: u64 = 1024 * 1024;
/// Longest piece of a description, in characters.
const MAX_PIECE: usize = 200;
/// Answers of a poll and tasks of a list that are described.
const MAX_CHOICES: usize = 30;

/// The content of a message besides its text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MessageContent {
    /// The contract's message type.
    pub(super) message_type: &'static str,
    /// The file, as the contract describes it.
    pub(super) medium: Option<Map<String, Value>>,
    /// The content in words, where there is no file or the file does not say it.
    pub(super) description: Option<String>,
}

/// A kind of file that a message can have.
struct FileKind {
    field: &'static str,
    message_type: &'static str,
    kind: &'static str,
    mime: &'static str,
    label: &'static str,
}

/// The kinds of files by field. An animation comes first because it has a document too.
const FILES: &[FileKind] = &[
    file("animation", "video", "video", "video/mp4", "animation"),
    file("video", "video", "video", "video/mp4", "video"),
    file("video_note", "video", "video", "video/mp4", "video"),
    file("voice", "voice", "voice", "audio/ogg", "voice message"),
    file("audio", "audio", "audio", "audio/mpeg", "audio"),
    file("document", "document", "document", "", "file"),
];

const fn file(
    field: &'static str,
    message_type: &'static str,
    kind: &'static str,
    mime: &'static str,
    label: &'static str,
) -> FileKind {
    FileKind {
        field,
        message_type,
        kind,
        mime,
        label,
    }
}

impl MessageContent {
    /// The content of a message; `None` if it has nothing but text.
    pub(super) fn of(message: &Value) -> Option<Self> {
        // A live photo has a photo too.
        if field::has(message, "photo") || field::has(message, "live_photo") {
            return Some(photo(message));
        }
        if let Some((kind, value)) = FILES
            .iter()
            .find_map(|kind| Some((kind, field::object(message, kind.field)?)))
        {
            return Some(single_file(kind, value));
        }
        if let Some(value) = field::object(message, "sticker") {
            return Some(sticker(value));
        }
        place(message).or_else(|| {
            let description = described(message)?;
            Some(Self {
                message_type: "text",
                description: Some(format!("[{description}]")),
                ..Self::default()
            })
        })
    }
}

/// The largest size of a photo that can be downloaded.
fn photo(message: &Value) -> MessageContent {
    let live = field::object(message, "live_photo");
    let sizes = match field::list(message, "photo") {
        [] => live.map_or(&[][..], |live| field::list(live, "photo")),
        sizes => sizes,
    };
    let largest = sizes
        .iter()
        .rev()
        .find(|size| file_size(size).is_none_or(|bytes| bytes <= MAX_DOWNLOAD_BYTES))
        .or(sizes.last());
    let kind = file("photo", "photo", "image", "image/jpeg", "photo");
    match (largest, live) {
        (Some(size), _) => single_file(&kind, size),
        (None, Some(live)) => single_file(&FILES[1], live),
        (None, None) => unavailable(&kind),
    }
}

fn sticker(value: &Value) -> MessageContent {
    let (kind, mime) = if field::flag(value, "is_animated") {
        ("document", "application/x-tgsticker")
    } else if field::flag(value, "is_video") {
        ("video", "video/webm")
    } else {
        ("image", "image/webp")
    };
    let emoji = piece(value, "emoji");
    let content = single_file(&file("sticker", "sticker", kind, mime, "sticker"), value);
    MessageContent {
        description: Some(content.description.unwrap_or_else(|| match emoji.as_str() {
            "" => "[sticker]".to_owned(),
            emoji => format!("[sticker {emoji}]"),
        })),
        ..content
    }
}

/// A file by its id, or a description that says why it cannot be downloaded.
fn single_file(kind: &FileKind, value: &Value) -> MessageContent {
    let Some(id) = field::text(value, "file_id").filter(|id| is_id(id)) else {
        return unavailable(kind);
    };
    let name = file_name(value);
    let size = file_size(value);
    let mime =
        field::text(value, "mime_type").map_or_else(|| kind.mime.to_owned(), |mime| printable(mime, 127));
    let is_image = kind.field == "document" && mime.starts_with("image/");
    let (message_type, media_kind) = if is_image {
        ("photo", "image")
    } else {
        (kind.message_type, kind.kind)
    };
    if let Some(bytes) = size.filter(|bytes| *bytes > MAX_DOWNLOAD_BYTES) {
        let shown = name.map_or_else(|| kind.label.to_owned(), |name| format!("file {name}"));
        return MessageContent {
            message_type,
            medium: None,
            description: Some(format!(
                "[{shown}, {} MB, is too large to download (limit {} MB)]",
                bytes.div_ceil(MEBIBYTE),
                MAX_DOWNLOAD_BYTES / MEBIBYTE
            )),
        };
    }
    let mut medium = Map::new();
    let address = FileAddress {
        place: FilePlace::Server,
        id: id.to_owned(),
        name: name.clone().unwrap_or_default(),
    };
    medium.insert("url".to_owned(), address.to_string().into());
    medium.insert("kind".to_owned(), media_kind.into());
    for (key, value) in [
        ("mime", (!mime.is_empty()).then(|| json!(mime))),
        ("size", size.map(Value::from)),
        ("filename", name.map(Value::from)),
    ] {
        if let Some(value) = value {
            medium.insert(key.to_owned(), value);
        }
    }
    MessageContent {
        message_type,
        medium: Some(medium),
        description: None,
    }
}

fn unavailable(kind: &FileKind) -> MessageContent {
    MessageContent {
        message_type: kind.message_type,
        medium: None,
        description: Some(format!("[{} that cannot be downloaded]", kind.label)),
    }
}

fn file_size(value: &Value) -> Option<u64> {
    u64::try_from(field::integer(value, "file_size")?).ok()
}

/// The file's name; music without one is named after its performer and title.
fn file_name(value: &Value) -> Option<String> {
    let name = piece(value, "file_name");
    if !name.is_empty() {
        return Some(name);
    }
    let titles: Vec<String> = ["performer", "title"]
        .map(|key| piece(value, key))
        .into_iter()
        .filter(|title| !title.is_empty())
        .collect();
    (!titles.is_empty()).then(|| titles.join(" - "))
}

/// A location, or a venue, which has a location too.
fn place(message: &Value) -> Option<MessageContent> {
    let venue = field::object(message, "venue");
    let location = venue
        .and_then(|venue| field::object(venue, "location"))
        .or_else(|| field::object(message, "location"));
    let position = location.and_then(|location| {
        let [latitude, longitude] = ["latitude", "longitude"].map(|key| location.get(key)?.as_f64());
        Some(format!("{}, {}", latitude?, longitude?))
    });
    let named = venue.map(|venue| joined([piece(venue, "title"), piece(venue, "address")], ", "));
    if location.is_none() && venue.is_none() {
        return None;
    }
    let description = match (named.filter(|named| !named.is_empty()), position) {
        (Some(named), Some(position)) => format!("[location {named} ({position})]"),
        (Some(only), None) | (None, Some(only)) => format!("[location {only}]"),
        (None, None) => "[location]".to_owned(),
    };
    Some(MessageContent {
        message_type: "location",
        medium: None,
        description: Some(description),
    })
}

/// Everything else that people send, in a few words.
fn described(message: &Value) -> Option<String> {
    let part = |key| field::object(message, key);
    if let Some(contact) = part("contact") {
        let who = joined([person_name(contact), piece(contact, "phone_number")], ", ");
        return Some(format!("contact {who}"));
    }
    if let Some(poll) = part("poll") {
        let answers = choices(field::list(poll, "options"));
        return Some(format!("poll {}: {answers}", piece(poll, "question")));
    }
    if let Some(dice) = part("dice") {
        let value = field::integer(dice, "value").map(|value| value.to_string());
        return Some(joined(
            ["dice".to_owned(), piece(dice, "emoji"), value.unwrap_or_default()],
            " ",
        ));
    }
    if let Some(list) = part("checklist") {
        let tasks = choices(field::list(list, "tasks"));
        return Some(format!("checklist {}: {tasks}", piece(list, "title")));
    }
    if let Some(story) = part("story") {
        let from = field::object(story, "chat").map(chat_name).unwrap_or_default();
        return Some(joined(["story".to_owned(), from], " of "));
    }
    if let Some(game) = part("game") {
        return Some(joined(["game".to_owned(), piece(game, "title")], " "));
    }
    if let Some(paid) = part("paid_media") {
        let stars = field::integer(paid, "star_count").unwrap_or_default();
        return Some(format!("paid media for {stars} stars"));
    }
    ["gift", "unique_gift"]
        .iter()
        .any(|key| part(key).is_some())
        .then(|| "gift".to_owned())
}

fn choices(options: &[Value]) -> String {
    let shown: Vec<String> = options
        .iter()
        .take(MAX_CHOICES)
        .map(|option| piece(option, "text"))
        .filter(|text| !text.is_empty())
        .collect();
    shown.join(" / ")
}

fn piece(value: &Value, key: &str) -> String {
    one_line(field::text(value, key).unwrap_or_default(), MAX_PIECE)
}

fn joined<const N: usize>(parts: [String; N], separator: &str) -> String {
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(separator)
}
