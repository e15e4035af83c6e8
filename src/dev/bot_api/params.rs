//! The parameters of a call, from its query, a form, JSON or multipart, under one set of names.

use std::collections::BTreeMap;

use axum::body::Bytes;
use memchr::memmem;
use serde_json::{Map, Value, json};

/// Bytes of one text parameter that are recorded.
const RECORDED_BYTES: usize = 16 * 1024;
/// Bytes of all parameters together, files aside.
const MAX_PARAM_BYTES: usize = 1024 * 1024;
/// Files of one call.
const MAX_FILES: usize = 50;

/// A file in the body of a call.
#[derive(Clone, Debug)]
pub struct UploadedFile {
    pub name: String,
    pub mime: Option<String>,
    pub bytes: Bytes,
}

/// What a call carries.
#[derive(Clone, Debug, Default)]
pub struct ApiParams {
    values: BTreeMap<String, Value>,
    files: BTreeMap<String, UploadedFile>,
}

impl ApiParams {
    /// Reads query and body. A body that cannot be read counts as none; `None` is one with too much in it.
    pub fn read(query: &str, content_type: &str, body: &Bytes) -> Option<Self> {
        let mut params = Self::default();
        params.form(query.as_bytes());
        let (kind, rest) = content_type.split_once(';').unwrap_or((content_type, ""));
        match kind.trim().to_ascii_lowercase().as_str() {
            "application/json" => {
                if let Ok(Value::Object(object)) = serde_json::from_slice(body) {
                    params
                        .values
                        .extend(object.into_iter().filter(|(_, value)| !value.is_null()));
                }
            }
            "application/x-www-form-urlencoded" => params.form(body),
            "multipart/form-data" => {
                let boundary = rest.split(';').find_map(|part| {
                    let (name, value) = part.trim().split_once('=')?;
                    name.eq_ignore_ascii_case("boundary")
                        .then(|| value.trim_matches('"').to_owned())
                });
                params.multipart(body, &boundary.unwrap_or_default());
            }
            _ => {}
        }
        let bytes: usize = params
            .values
            .iter()
            .map(|(name, value)| {
                name.len()
                    + match value {
                        Value::String(text) => text.len(),
                        other => other.to_string().len(),
                    }
            })
            .sum();
        (bytes <= MAX_PARAM_BYTES && params.files.len() <= MAX_FILES).then_some(params)
    }

    fn form(&mut self, bytes: &[u8]) {
        for (name, value) in url::form_urlencoded::parse(bytes) {
            self.values
                .insert(name.into_owned(), Value::String(value.into_owned()));
        }
    }

    fn multipart(&mut self, body: &Bytes, boundary: &str) {
        if boundary.is_empty() {
            return;
        }
        let delimiter = format!("--{boundary}");
        let edges: Vec<usize> = memmem::find_iter(body, delimiter.as_bytes()).collect();
        for pair in edges.windows(2) {
            let part = body.slice(pair[0] + delimiter.len()..pair[1]);
            // A part begins and ends with a line break of the delimiter.
            let Some(head_end) = memmem::find(&part, b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&part[..head_end]).into_owned();
            let content_end = part.len().saturating_sub(2).max(head_end + 4);
            let content = part.slice((head_end + 4).min(part.len())..content_end.min(part.len()));
            let Some(field) = PartHead::read(&head) else {
                continue;
            };
            if let Some(name) = field.filename {
                let file = UploadedFile {
                    name,
                    mime: field.mime,
                    bytes: content,
                };
                self.files.insert(field.name, file);
            } else {
                let text = String::from_utf8_lossy(&content).into_owned();
                self.values.insert(field.name, Value::String(text));
            }
        }
    }

    /// The parameter as text; empty counts as missing.
    pub fn text(&self, name: &str) -> Option<String> {
        let text = match self.values.get(name)? {
            Value::String(text) => text.clone(),
            Value::Null => return None,
            other => other.to_string(),
        };
        (!text.is_empty()).then_some(text)
    }

    /// The parameter as a number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.values.get(name)? {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// Whether the parameter says yes.
    pub fn flag(&self, name: &str) -> bool {
        match self.values.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => matches!(text.to_ascii_lowercase().as_str(), "true" | "yes" | "1"),
            Some(Value::Number(number)) => number.as_i64() == Some(1),
            _ => false,
        }
    }

    /// The parameter as JSON, also when it came as text. `null` is none, or broken.
    pub fn json(&self, name: &str) -> Value {
        match self.values.get(name) {
            Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
            Some(value) => value.clone(),
            None => Value::Null,
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The file of this field.
    pub fn file(&self, field: &str) -> Option<&UploadedFile> {
        self.files.get(field)
    }

    /// The parameters for the record: long texts are cut, files are named.
    pub fn recorded(&self) -> Value {
        let mut out = Map::new();
        for (name, value) in &self.values {
            let kept = match value {
                Value::String(text) => json!(crate::text::truncate_bytes(text, RECORDED_BYTES)),
                other => {
                    let text = other.to_string();
                    if text.len() <= RECORDED_BYTES {
                        other.clone()
                    } else {
                        json!(crate::text::truncate_bytes(&text, RECORDED_BYTES))
                    }
                }
            };
            out.insert(name.clone(), kept);
        }
        for (field, file) in &self.files {
            out.insert(
                field.clone(),
                json!({ "file": file.name, "bytes": file.bytes.len(), "mime": file.mime }),
            );
        }
        Value::Object(out)
    }
}

/// The head of one part of a multipart body.
struct PartHead {
    name: String,
    filename: Option<String>,
    mime: Option<String>,
}

impl PartHead {
    fn read(head: &str) -> Option<Self> {
        let mut found = Self {
            name: String::new(),
            filename: None,
            mime: None,
        };
        for line in head.lines() {
            let Some((header, value)) = line.split_once(':') else {
                continue;
            };
            match header.trim().to_ascii_lowercase().as_str() {
                "content-type" => found.mime = Some(value.trim().to_owned()),
                "content-disposition" => {
                    found.name = quoted(value, "name")?;
                    found.filename = quoted(value, "filename");
                }
                _ => {}
            }
        }
        (!found.name.is_empty()).then_some(found)
    }
}

/// The value of `name="value"` in a header, with `%22` and `\"` as quotes.
fn quoted(header: &str, name: &str) -> Option<String> {
    let mut rest = header;
    loop {
        let (_, after) = rest.split_once(';')?;
        rest = after;
        let Some(value) = after
            .trim_start()
            .strip_prefix(name)
            .and_then(|value| value.strip_prefix('='))
        else {
            continue;
        };
        let Some(value) = value.strip_prefix('"') else {
            return value.split(';').next().map(|value| value.trim().to_owned());
        };
        let mut text = String::new();
        let mut chars = value.chars();
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => text.extend(chars.next()),
                _ => text.push(c),
            }
        }
        return Some(text.replace("%22", "\""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_send_parameters_is_read() {
        let json = Bytes::from_static(br#"{"chat_id":5,"flag":true,"list":["a"],"gone":null}"#);
        let params = ApiParams::read("q=1&text=a%20b", "application/json; charset=utf-8", &json).unwrap();
        assert_eq!(params.integer("q"), Some(1));
        assert_eq!(params.integer("chat_id"), Some(5));
        assert_eq!(params.text("text").as_deref(), Some("a b"));
        assert!(params.flag("flag") && !params.has("gone"));
        assert_eq!(params.json("list"), json!(["a"]));
        let form = Bytes::from_static(b"chat_id=-7&flag=True&list=%5B1%5D&empty=");
        let params = ApiParams::read("", "application/x-www-form-urlencoded", &form).unwrap();
        assert_eq!(params.integer("chat_id"), Some(-7));
        assert!(params.flag("flag"));
        assert_eq!((params.json("list"), params.text("empty")), (json!([1]), None));
        let broken = Bytes::from_static(b"{broken");
        assert!(
            !ApiParams::read("", "application/json", &broken)
                .unwrap()
                .has("chat_id")
        );
        let large = Bytes::from(format!(r#"{{"text":"{}"}}"#, "x".repeat(MAX_PARAM_BYTES)));
        assert!(ApiParams::read("", "application/json", &large).is_none());
    }

    #[test]
    fn multipart_has_texts_and_files() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n5\r\n\
                    --b\r\nContent-Disposition: form-data; name=\"document\"; filename=\"a \\\"b\\\".txt\"\r\n\
                    Content-Type: text/plain\r\n\r\nline\r\n\r\nend\r\n--b--\r\n";
        let body = Bytes::from_static(body.as_bytes());
        let params = ApiParams::read("", "multipart/form-data; boundary=b", &body).unwrap();
        assert_eq!(params.integer("chat_id"), Some(5));
        let file = params.file("document").unwrap();
        assert_eq!(
            (file.name.as_str(), file.mime.as_deref()),
            ("a \"b\".txt", Some("text/plain"))
        );
        assert_eq!(&file.bytes[..], b"line\r\n\r\nend");
        assert_eq!(params.recorded()["document"]["bytes"], 11);
        for broken in [
            "",
            "--b",
            "--b\r\n--b",
            "--b\r\n\r\n--b--",
            "--b\r\nx: y\r\n\r\n--b--",
        ] {
            let body = Bytes::copy_from_slice(broken.as_bytes());
            let params = ApiParams::read("", "multipart/form-data; boundary=b", &body).unwrap();
            assert!(params.values.is_empty() && params.files.is_empty(), "{broken:?}");
        }
    }
}
