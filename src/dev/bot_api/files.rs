//! Files: what people and the bot sent, by id, and where the bot downloads them.

use std::collections::VecDeque;

use axum::body::Bytes;
use serde_json::{Value, json};

use super::params::{ApiParams, UploadedFile};
use super::refusal::ApiRefusal;
use crate::dev::page::PageFile;

/// The largest file that a bot may download.
pub const MAX_DOWNLOAD_BYTES: u64 = 20 * 1024 * 1024;
/// The largest file that a bot may upload.
pub const MAX_UPLOAD_BYTES: usize = 50 * 1024 * 1024;
const MAX_PHOTO_BYTES: usize = 10 * 1024 * 1024;
/// Bytes that are kept; the oldest files lose their content first.
const MAX_HELD_BYTES: usize = 256 * 1024 * 1024;
/// Files that are known.
const MAX_FILES: usize = 20_000;

/// One file.
#[derive(Clone, Debug)]
pub struct ApiFile {
    pub id: String,
    unique_id: String,
    /// `photo`, `document` and so on.
    pub kind: String,
    pub name: Option<String>,
    pub mime: Option<String>,
    /// The size that the server states, which tests may make up.
    pub size: u64,
    pub bytes: Bytes,
    path: String,
    /// Whether its path was asked for.
    is_offered: bool,
}

impl ApiFile {
    /// The object of a message, with what every kind of file has.
    pub fn object(&self) -> Value {
        let mut object =
            json!({ "file_id": self.id, "file_unique_id": self.unique_id, "file_size": self.size });
        if let Some(name) = &self.name
            && !matches!(self.kind.as_str(), "photo" | "voice")
        {
            object["file_name"] = json!(name);
        }
        if let Some(mime) = &self.mime
            && self.kind != "photo"
        {
            object["mime_type"] = json!(mime);
        }
        object
    }

    /// The fields that it has in a message.
    pub fn message_fields(&self, params: &ApiParams) -> serde_json::Map<String, Value> {
        let mut object = self.object();
        let number = |name: &str| params.integer(name).unwrap_or(0);
        let mut fields = serde_json::Map::new();
        match self.kind.as_str() {
            "photo" => {
                let (width, height) = dimensions(&self.bytes).unwrap_or((640, 480));
                let mut sizes = Vec::new();
                if width > 90 || height > 90 {
                    let mut small = object.clone();
                    small["file_id"] = json!(format!("{}-s", self.id));
                    small["file_unique_id"] = json!(format!("{}s", self.unique_id));
                    small["file_size"] = json!(self.size.min(1_500));
                    small["width"] = json!(90);
                    small["height"] = json!(90);
                    sizes.push(small);
                }
                object["width"] = json!(width);
                object["height"] = json!(height);
                sizes.push(object);
                fields.insert("photo".to_owned(), Value::Array(sizes));
                return fields;
            }
            "voice" => object["duration"] = json!(number("duration")),
            "audio" => {
                object["duration"] = json!(number("duration"));
                for name in ["performer", "title"] {
                    if let Some(text) = params.text(name) {
                        object[name] = json!(text);
                    }
                }
            }
            "video" | "animation" => {
                object["duration"] = json!(number("duration"));
                object["width"] = json!(params.integer("width").unwrap_or(320));
                object["height"] = json!(params.integer("height").unwrap_or(240));
            }
            "video_note" => {
                object["duration"] = json!(number("duration"));
                object["length"] = json!(params.integer("length").unwrap_or(240));
            }
            "sticker" => {
                object["type"] = json!("regular");
                object["width"] = json!(512);
                object["height"] = json!(512);
                object["is_animated"] = json!(false);
                object["is_video"] = json!(false);
            }
            _ => {}
        }
        if self.kind == "animation" {
            fields.insert("document".to_owned(), self.object());
        }
        fields.insert(self.kind.clone(), object);
        fields
    }
}

/// Every file that is known, oldest first.
#[derive(Default)]
pub struct ApiFiles {
    files: VecDeque<ApiFile>,
    held: usize,
    named: u64,
}

impl ApiFiles {
    /// Keeps a file; `size` may claim more than there are bytes.
    pub fn put(&mut self, kind: &str, file: UploadedFile, size: Option<u64>) -> ApiFile {
        self.named += 1;
        let number = self.named;
        let (folder, usual) = match kind {
            "photo" => ("photos", "jpg"),
            "voice" => ("voice", "oga"),
            "video" => ("videos", "mp4"),
            "video_note" => ("video_notes", "mp4"),
            "audio" => ("music", "mp3"),
            "animation" => ("animations", "mp4"),
            "sticker" => ("stickers", "webp"),
            _ => ("documents", "bin"),
        };
        let ending = file
            .name
            .rsplit_once('.')
            .map_or(usual, |(_, ending)| ending)
            .to_owned();
        let is_short =
            (1..=8).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let ending = if kind == "photo" || !is_short {
            usual.to_owned()
        } else {
            ending
        };
        let mime = file.mime.or_else(|| usual_mime(kind).map(str::to_owned));
        let kept = ApiFile {
            id: format!("AgAC{number:08}{kind}"),
            unique_id: format!("AQAD{number:08}"),
            kind: kind.to_owned(),
            name: (!file.name.is_empty()).then_some(file.name),
            mime,
            size: size.unwrap_or(file.bytes.len() as u64),
            path: format!("{folder}/file_{number}.{ending}"),
            bytes: file.bytes,
            is_offered: false,
        };
        self.held += kept.bytes.len();
        self.files.push_back(kept.clone());
        while self.held > MAX_HELD_BYTES || self.files.len() > MAX_FILES {
            let Some(oldest) = self.files.pop_front() else {
                break;
            };
            self.held -= oldest.bytes.len();
        }
        kept
    }

    pub fn find(&self, id: &str) -> Option<&ApiFile> {
        let id = id.strip_suffix("-s").unwrap_or(id);
        self.files.iter().find(|file| file.id == id)
    }

    /// A file as a page shows it. The bot may call its files what it likes: what it is follows from its bytes.
    pub(in crate::dev) fn for_page(&self, id: &str) -> Option<PageFile> {
        let file = self.find(id)?.clone();
        let mime = match &file.bytes[..] {
            [0x89, b'P', b'N', b'G', ..] => "image/png",
            [0xff, 0xd8, ..] => "image/jpeg",
            _ => "application/octet-stream",
        };
        Some(PageFile {
            mime: mime.to_owned(),
            name: file.name,
            bytes: file.bytes,
        })
    }

    /// Keeps a file that a person chose on a page; returns its id.
    pub(in crate::dev) fn keep_from_page(&mut self, file: PageFile) -> String {
        let is_picture = matches!(file.mime.as_str(), "image/png" | "image/jpeg");
        let kind = if is_picture { "photo" } else { "document" };
        let file = UploadedFile {
            name: file.name.unwrap_or_default(),
            mime: Some(file.mime),
            bytes: file.bytes,
        };
        self.put(kind, file, None).id
    }

    /// What `getFile` answers.
    pub fn offer(&mut self, id: &str) -> Result<Value, ApiRefusal> {
        let id = id.strip_suffix("-s").unwrap_or(id);
        if !id.starts_with("AgAC") {
            return Err(ApiRefusal::bad("invalid file_id"));
        }
        let Some(file) = self.files.iter_mut().find(|file| file.id == id) else {
            return Err(ApiRefusal::bad(
                "wrong file_id or the file is temporarily unavailable",
            ));
        };
        if file.size > MAX_DOWNLOAD_BYTES {
            return Err(ApiRefusal::bad("file is too big"));
        }
        file.is_offered = true;
        Ok(json!({
            "file_id": file.id,
            "file_unique_id": file.unique_id,
            "file_size": file.size,
            "file_path": file.path,
        }))
    }

    /// The file at a path that was asked for.
    pub fn at(&self, path: &str) -> Option<&ApiFile> {
        self.files
            .iter()
            .find(|file| file.path == path && file.is_offered)
    }

    /// The file that a parameter names: an upload, `attach://`, an id or a URL.
    pub fn resolve(
        &mut self,
        kind: &str,
        params: &ApiParams,
        field: &str,
        value: Option<&str>,
    ) -> Result<ApiFile, ApiRefusal> {
        let attached = value.and_then(|value| value.strip_prefix("attach://"));
        if let Some(file) = params.file(attached.unwrap_or(field)) {
            check_upload(kind, file)?;
            return Ok(self.put(kind, file.clone(), None));
        }
        let Some(value) = value.filter(|_| attached.is_none()) else {
            return Err(ApiRefusal::bad(format!(
                "there is no {} in the request",
                kind.replace('_', " ")
            )));
        };
        if let Ok(address) = url::Url::parse(value)
            && matches!(address.scheme(), "http" | "https")
        {
            // Nothing is fetched: the content is a placeholder.
            let name = address
                .path_segments()
                .and_then(|mut parts| parts.next_back())
                .unwrap_or_default();
            let file = UploadedFile {
                name: name.to_owned(),
                mime: None,
                bytes: Bytes::copy_from_slice(value.as_bytes()),
            };
            return Ok(self.put(kind, file, None));
        }
        match self.find(value) {
            Some(file) if file.kind == kind => Ok(file.clone()),
            Some(file) => Err(ApiRefusal::bad(format!(
                "can't use file of type {} as {kind}",
                file.kind
            ))),
            None => Err(ApiRefusal::bad("wrong file identifier/HTTP URL specified")),
        }
    }
}

fn usual_mime(kind: &str) -> Option<&'static str> {
    match kind {
        "voice" => Some("audio/ogg"),
        "audio" => Some("audio/mpeg"),
        "video" | "video_note" | "animation" => Some("video/mp4"),
        _ => None,
    }
}

fn check_upload(kind: &str, file: &UploadedFile) -> Result<(), ApiRefusal> {
    let size = file.bytes.len();
    if size == 0 {
        return Err(ApiRefusal::bad("file must be non-empty"));
    }
    if size > MAX_UPLOAD_BYTES {
        return Err(ApiRefusal::new(413, "Request Entity Too Large"));
    }
    if kind != "photo" {
        return Ok(());
    }
    if size > MAX_PHOTO_BYTES {
        return Err(ApiRefusal::bad(format!(
            "file of size {size} bytes is too big for a photo; the maximum size is {MAX_PHOTO_BYTES} bytes"
        )));
    }
    let Some((width, height)) = dimensions(&file.bytes) else {
        return Err(ApiRefusal::bad("IMAGE_PROCESS_FAILED"));
    };
    let (long, short) = (width.max(height), width.min(height).max(1));
    if width + height > 10_000 || long / short > 20 {
        return Err(ApiRefusal::bad("PHOTO_INVALID_DIMENSIONS"));
    }
    Ok(())
}

/// Width and height of a PNG, GIF, JPEG or WebP.
fn dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    let two = |at: usize| {
        bytes
            .get(at..at + 2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
    };
    let little = |at: usize| {
        bytes
            .get(at..at + 2)
            .map(|pair| u32::from(pair[1]) << 8 | u32::from(pair[0]))
    };
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Some((two(16)? << 16 | two(18)?, two(20)? << 16 | two(22)?));
    }
    if bytes.starts_with(b"GIF8") {
        return Some((little(6)?, little(8)?));
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some((512, 512));
    }
    if !bytes.starts_with(&[0xff, 0xd8]) {
        return None;
    }
    let mut at = 2;
    loop {
        let marker = two(at)?;
        if marker < 0xffc0 {
            return None;
        }
        let is_frame = matches!(marker, 0xffc0..=0xffcf) && !matches!(marker, 0xffc4 | 0xffc8 | 0xffcc);
        if is_frame {
            return Some((two(at + 7)?, two(at + 5)?));
        }
        at += 2 + usize::try_from(two(at + 2)?).ok()?.max(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Bytes {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.into()
    }

    fn upload(bytes: Bytes) -> UploadedFile {
        UploadedFile {
            name: "a.png".to_owned(),
            mime: None,
            bytes,
        }
    }

    #[test]
    fn photos_have_limits() {
        assert_eq!(dimensions(&png(640, 70_000)), Some((640, 70_000)));
        let jpeg = [
            0xff, 0xd8, 0xff, 0xe0, 0, 4, 0, 0, 0xff, 0xc0, 0, 11, 8, 0, 20, 0, 30,
        ];
        assert_eq!(dimensions(&jpeg), Some((30, 20)));
        assert!(check_upload("photo", &upload(png(5_000, 5_000))).is_ok());
        for (width, height) in [(5_001, 5_000), (2_100, 100)] {
            let refusal = check_upload("photo", &upload(png(width, height))).unwrap_err();
            assert!(refusal.description.ends_with("PHOTO_INVALID_DIMENSIONS"));
        }
        let text = upload(Bytes::from_static(b"no picture"));
        assert!(
            check_upload("photo", &text)
                .unwrap_err()
                .description
                .ends_with("IMAGE_PROCESS_FAILED")
        );
        assert!(check_upload("document", &text).is_ok());
        for cut in 0..jpeg.len() - 1 {
            assert_eq!(dimensions(&jpeg[..cut]), None);
        }
    }

    #[test]
    fn a_file_can_be_downloaded_after_it_was_asked_for() {
        let mut files = ApiFiles::default();
        let file = files.put("document", upload(Bytes::from_static(b"x")), None);
        let path = file.path.clone();
        assert!(files.at(&path).is_none());
        assert_eq!(files.offer(&file.id).unwrap()["file_path"], path);
        assert_eq!(&files.at(&path).unwrap().bytes[..], b"x");
        let large = files.put("document", upload(Bytes::new()), Some(MAX_DOWNLOAD_BYTES + 1));
        assert!(
            files
                .offer(&large.id)
                .unwrap_err()
                .description
                .ends_with("file is too big")
        );
        assert!(files.offer("nonsense").is_err() && files.offer("AgAC9").is_err());
    }
}
