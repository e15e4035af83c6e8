//! Kinds of files, by MIME type and name. No file is read.

/// Longest MIME type that is accepted, in bytes.
const MAX_MIME: usize = 100;

/// Extensions and their MIME types; the first extension of a type is its default.
const TYPES: &[(&str, &str)] = &[
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("png", "image/png"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("bmp", "image/bmp"),
    ("tiff", "image/tiff"),
    ("tif", "image/tiff"),
    ("heic", "image/heic"),
    ("avif", "image/avif"),
    ("svg", "image/svg+xml"),
    ("ogg", "audio/ogg"),
    ("oga", "audio/ogg"),
    ("opus", "audio/opus"),
    ("mp3", "audio/mpeg"),
    ("m4a", "audio/mp4"),
    ("wav", "audio/wav"),
    ("wav", "audio/x-wav"),
    ("flac", "audio/flac"),
    ("aac", "audio/aac"),
    ("amr", "audio/amr"),
    ("mp4", "video/mp4"),
    ("m4v", "video/mp4"),
    ("mov", "video/quicktime"),
    ("webm", "video/webm"),
    ("mkv", "video/x-matroska"),
    ("avi", "video/x-msvideo"),
    ("3gp", "video/3gpp"),
    ("pdf", "application/pdf"),
    ("txt", "text/plain"),
    ("log", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("xml", "application/xml"),
    ("json", "application/json"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tar", "application/x-tar"),
    ("7z", "application/x-7z-compressed"),
    ("rtf", "application/rtf"),
    ("epub", "application/epub+zip"),
    ("doc", "application/msword"),
    ("xls", "application/vnd.ms-excel"),
    ("ppt", "application/vnd.ms-powerpoint"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("bin", UNKNOWN_MIME),
];

/// The MIME type of unknown bytes.
pub const UNKNOWN_MIME: &str = "application/octet-stream";

/// How a platform shows an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A voice note.
    Voice,
    /// A video.
    Video,
    /// Music and other sound.
    Audio,
    /// Any other file.
    Document,
}

impl MediaKind {
    /// The kind's name in the contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Voice => "voice",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Document => "document",
        }
    }

    /// Reads a name, in any letter case.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Image, Self::Voice, Self::Video, Self::Audio, Self::Document]
            .into_iter()
            .find(|kind| kind.as_str().eq_ignore_ascii_case(name.trim()))
    }
}

/// The kind for a MIME type, else for the name's extension. Speech formats are voice notes; SVG is a document, because no
/// platform shows it.
pub fn media_kind(mime: &str, name: &str) -> MediaKind {
    let mime = match clean_mime(mime).filter(|mime| mime != UNKNOWN_MIME) {
        Some(mime) => mime,
        None => mime_for(name).to_owned(),
    };
    match mime.split_once('/') {
        Some(("image", "svg+xml")) => MediaKind::Document,
        Some(("image", _)) => MediaKind::Image,
        Some(("video", _)) => MediaKind::Video,
        Some(("audio", "ogg" | "opus" | "amr")) => MediaKind::Voice,
        Some(("audio", _)) => MediaKind::Audio,
        _ => MediaKind::Document,
    }
}

/// The MIME type for a file's extension; [`UNKNOWN_MIME`] if unknown.
pub fn mime_for(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    TYPES
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(extension))
        .map_or(UNKNOWN_MIME, |(_, mime)| mime)
}

/// The extension for a MIME type, without its dot.
pub(super) fn extension_for(mime: &str) -> Option<&'static str> {
    let mime = clean_mime(mime)?;
    TYPES
        .iter()
        .find(|(_, known)| *known == mime)
        .map(|(extension, _)| *extension)
}

/// `type/subtype` in lower case, without parameters; `None` when it is not a MIME type.
pub fn clean_mime(mime: &str) -> Option<String> {
    let essence = mime.split(';').next()?.trim();
    let (kind, subtype) = essence.split_once('/')?;
    let part = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    (essence.len() <= MAX_MIME && part(kind) && part(subtype)).then(|| essence.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_from_the_type_and_then_from_the_name() {
        for (mime, name, kind) in [
            ("image/png", "", MediaKind::Image),
            ("IMAGE/JPEG; q=1", "x.pdf", MediaKind::Image),
            ("image/svg+xml", "", MediaKind::Document),
            ("audio/ogg; codecs=opus", "", MediaKind::Voice),
            ("audio/mpeg", "", MediaKind::Audio),
            ("video/mp4", "", MediaKind::Video),
            ("", "a.b.OGA", MediaKind::Voice),
            ("application/octet-stream", "x.webm", MediaKind::Video),
            ("nonsense", "photo.JPG", MediaKind::Image),
            ("", "noext", MediaKind::Document),
            ("text/html", "x.png", MediaKind::Document),
        ] {
            assert_eq!(media_kind(mime, name), kind, "{mime} {name}");
        }
        assert_eq!(MediaKind::from_name(" Voice"), Some(MediaKind::Voice));
        assert_eq!(MediaKind::from_name("picture"), None);
    }

    #[test]
    fn only_valid_types_are_accepted() {
        assert_eq!(clean_mime(" Text/HTML ; charset=x").as_deref(), Some("text/html"));
        for wrong in ["", "text", "/", "a/", "a/b c", "a/b\r\nX: y", "a/b/c", "é/x"] {
            assert_eq!(clean_mime(wrong), None, "{wrong:?}");
        }
        assert_eq!(clean_mime(&format!("a/{}", "b".repeat(MAX_MIME))), None);
    }

    #[test]
    fn extensions_and_types_find_each_other() {
        for (extension, mime) in TYPES {
            let name = format!("x.{extension}");
            assert_eq!(
                extension_for(mime_for(&name)).map(mime_of_extension),
                Some(mime_for(&name))
            );
            assert!(clean_mime(mime).is_some_and(|clean| clean == *mime));
        }
        assert_eq!(extension_for("application/x-unheard-of"), None);
    }

    fn mime_of_extension(extension: &str) -> &'static str {
        mime_for(&format!(".{extension}"))
    }
}
