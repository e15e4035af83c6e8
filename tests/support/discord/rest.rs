//! The REST API, with what goes wrong.

use hermes_relay::dev::UploadedFile;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{CHANNEL, FakeDiscord, TOKEN};

impl FakeDiscord {
    pub(super) async fn http(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        loop {
            let (end, length) = loop {
                let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
                if let Some(end) = head {
                    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                    let length = head
                        .lines()
                        .find_map(|line| line.strip_prefix("content-length: "));
                    let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
                    if bytes.len() >= end + 4 + length {
                        break (end, length);
                    }
                }
                let mut buffer = [0; 8192];
                match stream.read(&mut buffer).await {
                    Ok(read) if read > 0 => bytes.extend_from_slice(&buffer[..read]),
                    _ => return,
                }
            };
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let raw: Vec<u8> = bytes[end + 4..end + 4 + length].to_vec();
            bytes.drain(..end + 4 + length);
            let (body, files) = content(&raw);
            let mut words = head.split_whitespace();
            let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
            // The token in the path is enough.
            let is_open = path.contains("/interactions/") || path.contains("/webhooks/");
            assert!(is_open || head.contains(&format!("Bot {TOKEN}")), "{head}");
            let (status, answer) = self.answer(&method, &path, &body, files);
            let answer = answer.to_string();
            let limits =
                "x-ratelimit-limit: 5\r\nx-ratelimit-remaining: 4\r\nx-ratelimit-reset-after: 1.0\r\n";
            let answer = format!(
                "HTTP/1.1 {status} X\r\n{limits}content-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            );
            let is_message = method == "POST" && path.ends_with("/messages");
            let ends_after = is_message.then(|| self.lock().answer_ends_after.take()).flatten();
            let sent = &answer.as_bytes()[..ends_after.unwrap_or(usize::MAX).min(answer.len())];
            if stream.write_all(sent).await.is_err() || ends_after.is_some() {
                return;
            }
        }
    }

    /// Refuses a request, or lets it through and notes what it was.
    fn answer(&self, method: &str, path: &str, body: &Value, files: Vec<(String, Vec<u8>)>) -> (u16, Value) {
        if let Some(refused) = self.refusal(method, path, body, files.len()) {
            return refused;
        }
        let uploaded = files.iter().map(|(name, bytes)| UploadedFile {
            name: name.clone(),
            mime: None,
            bytes: bytes.clone().into(),
        });
        let uploaded = uploaded.collect();
        let (status, answer) = self
            .inner
            .hub
            .change(|state| state.rest(method, path, body, uploaded));
        if status == 200 {
            self.note(method, path, body, files, &answer);
        }
        (status, answer)
    }

    fn refusal(&self, method: &str, path: &str, body: &Value, files: usize) -> Option<(u16, Value)> {
        let mut front = self.lock();
        if path.contains("/webhooks/") && front.has_expired {
            return Some((404, json!({"code": 10_015, "message": "Unknown Webhook"})));
        }
        let meant = front
            .refusals
            .iter_mut()
            .find(|refusal| refusal.left > 0 && refusal.method == method && path.contains(&refusal.path));
        if let Some(refusal) = meant {
            refusal.left -= 1;
            return Some((refusal.status, refusal.answer.clone()));
        }
        let is_written = matches!(method, "POST" | "PATCH");
        if is_written && front.forbids && path.contains(&format!("/channels/{CHANNEL}/messages")) {
            return Some((403, json!({"code": 50_001, "message": "Missing Access"})));
        }
        if method == "GET" && path.contains("/messages?") && front.unreadable > 0 {
            front.unreadable -= 1;
            return Some((403, json!({"message": "a proxy refuses this"})));
        }
        if method != "POST" || !path.ends_with("/messages") {
            return None;
        }
        if front.limited > 0 {
            front.limited -= 1;
            let body = json!({"message": "slow down", "retry_after": 0.3, "global": false});
            return Some((429, body));
        }
        if files > front.max_files || (body["flags"] == 8192 && !front.takes_voice) {
            front.refused.push(body.clone());
            return Some((400, json!({"code": 50_035, "message": "Invalid Form Body"})));
        }
        None
    }

    fn note(&self, method: &str, path: &str, body: &Value, files: Vec<(String, Vec<u8>)>, answer: &Value) {
        let mut front = self.lock();
        let text = body["content"].as_str().unwrap_or_default().to_owned();
        match method {
            "POST" if path.ends_with("/threads") => {
                front
                    .threads
                    .push(body["name"].as_str().unwrap_or_default().to_owned());
            }
            "POST" if path.contains("/callback") => front.callbacks.push(body.clone()),
            "POST" if path.contains("/webhooks/") => front.follow_ups.push(body.clone()),
            "DELETE" if path.ends_with("/messages/@original") => front.discarded += 1,
            "PATCH" if path.ends_with("/messages/@original") => {
                front.replaced.push(text);
                front.buttons.push(body["components"].clone());
                front.uploads.extend(files);
            }
            "POST" if path.ends_with("/messages") => {
                let id = answer["id"].as_str().unwrap().parse().unwrap();
                if front.ids.insert(id) {
                    front.sent.push(body.clone());
                    front.uploads.extend(files);
                }
            }
            _ => {}
        }
    }
}

/// The JSON of a request, and the files that it uploads.
fn content(raw: &[u8]) -> (Value, Vec<(String, Vec<u8>)>) {
    if let Ok(json) = serde_json::from_slice(raw) {
        return (json, Vec::new());
    }
    let text = String::from_utf8_lossy(raw);
    let part = |name: &str| {
        let at = text.find(&format!("name=\"{name}\""))?;
        let start = at + text[at..].find("\r\n\r\n")? + 4;
        Some((at, start, start + text[start..].find("\r\n--")?))
    };
    let Some((_, start, end)) = part("payload_json") else {
        return (Value::Null, Vec::new());
    };
    let json = serde_json::from_str(&text[start..end]).unwrap();
    let files = (0..).map_while(|number| part(&format!("files[{number}]")));
    let files = files.map(|(at, start, end)| {
        let name = text[at..].split("filename=\"").nth(1).unwrap().split('"').next();
        (name.unwrap().to_owned(), text[start..end].as_bytes().to_vec())
    });
    (json, files.collect())
}
