//! The REST API.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{APPLICATION, CHANNEL, DIRECT, FakeDiscord, State, TOKEN, ada, bot, message};

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

    fn answer(&self, method: &str, path: &str, body: &Value, files: Vec<(String, Vec<u8>)>) -> (u16, Value) {
        let mut state = self.lock();
        let answer = match method {
            "GET" => self.read(&state, path),
            "PUT" if path.ends_with("/commands") => {
                state.registrations += 1;
                state.commands.clone_from(body.as_array().unwrap());
                for command in &mut state.commands {
                    command["id"] = "1".into();
                    command["application_id"] = APPLICATION.into();
                    command["version"] = "1".into();
                }
                state.commands.clone().into()
            }
            "POST" if path.contains("/callback") => {
                state.callbacks.push(body.clone());
                let id = path.split('/').rev().nth(2).unwrap();
                let ephemeral = body["data"]["flags"].as_u64().unwrap_or_default() & 64 != 0;
                let interaction = json!({"id": id, "type": 2, "response_message_ephemeral": ephemeral});
                if path.contains("with_response") {
                    json!({ "interaction": interaction })
                } else {
                    Value::Null
                }
            }
            _ if path.contains("/webhooks/") && state.has_expired => {
                return (404, json!({"code": 10_015, "message": "Unknown Webhook"}));
            }
            "POST" if path.contains("/webhooks/") => {
                state.follow_ups.push(body.clone());
                state.next_id += 1;
                message(state.next_id, DIRECT, text_of(body), &bot(), &json!([]))
            }
            "POST" | "PATCH" if state.forbids && path.contains(&format!("/channels/{CHANNEL}/messages")) => {
                return (403, json!({"code": 50_001, "message": "Missing Access"}));
            }
            "DELETE" if path.ends_with("/messages/@original") => {
                assert!(!state.callbacks.is_empty(), "there is no placeholder");
                state.discarded += 1;
                Value::Null
            }
            "PATCH" if path.ends_with("/messages/@original") => {
                if state.callbacks.is_empty() {
                    return (404, json!({"code": 10_015, "message": "Unknown Webhook"}));
                }
                state.replaced.push(text_of(body).to_owned());
                state.uploads.extend(files);
                state.next_id += 1;
                message(state.next_id, DIRECT, text_of(body), &bot(), &json!([]))
            }
            "PATCH" if path.contains("/channels/") && path.contains("/messages/") => {
                let mut ids = path.rsplit('/');
                let (edited, chat) = (ids.next().unwrap(), ids.nth(1).unwrap());
                if let Some((_, text)) = state.shown.iter_mut().find(|(id, _)| id == edited) {
                    text_of(body).clone_into(text);
                }
                message(edited.parse().unwrap(), chat, text_of(body), &bot(), &json!([]))
            }
            "POST" if path.ends_with("/messages") => {
                if state.limited > 0 {
                    state.limited -= 1;
                    return (
                        429,
                        json!({"message": "slow down", "retry_after": 0.3, "global": false}),
                    );
                }
                if files.len() > state.max_files || (body["flags"] == 8192 && !state.takes_voice) {
                    state.refused.push(body.clone());
                    return (400, json!({"code": 50_035, "message": "Invalid Form Body"}));
                }
                let nonce = body["nonce"].to_string();
                if let Some(known) = state.nonces.get(&nonce).filter(|_| body["enforce_nonce"] == true) {
                    return (200, known.clone());
                }
                state.next_id += 1;
                let chat = path.split('/').rev().nth(1).unwrap();
                let text = text_of(body).to_owned();
                let message = message(state.next_id, chat, &text, &bot(), &json!([]));
                state.nonces.insert(nonce, message.clone());
                let id = state.next_id.to_string();
                state.shown.push((id, text));
                state.sent.push(body.clone());
                state.uploads.extend(files);
                message
            }
            _ => json!({"id": "1"}),
        };
        (200, answer)
    }

    /// What is at a path.
    fn read(&self, state: &State, path: &str) -> Value {
        match path {
            _ if path.contains("/messages?after=") => {
                let after = path.split("after=").nth(1).unwrap().split('&').next().unwrap();
                let after: u64 = after.parse().unwrap();
                let id = |message: &Value| message["id"].as_str().unwrap().parse::<u64>().unwrap();
                let chat = path.split('/').rev().nth(1).unwrap();
                let listed = state.history.iter().rev();
                let listed = listed.filter(|message| message["channel_id"] == chat);
                listed.filter(|message| id(message) > after).cloned().collect()
            }
            _ if path.ends_with("/users/@me") => bot(),
            _ if path.ends_with("/applications/@me") => {
                json!({"id": APPLICATION, "name": "relay", "description": "", "icon": null, "bot_public": true,
                    "bot_require_code_grant": false, "owner": ada(), "verify_key": "", "flags": 1 << 19})
            }
            _ if path.ends_with("/gateway/bot") => {
                let limit = json!({"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1});
                json!({"url": format!("ws://{}", self.gateway), "shards": 1, "session_start_limit": limit})
            }
            _ if path.ends_with(&format!("/channels/{CHANNEL}")) => {
                json!({"id": CHANNEL, "type": 0, "name": "talk", "guild_id": "9"})
            }
            _ if path.ends_with("/guilds/9/members/2") => json!({ "roles": state.roles }),
            _ if path.ends_with("/commands") => state.commands.clone().into(),
            _ => json!({"id": "1"}),
        }
    }
}

/// The text of a message that is sent.
fn text_of(body: &Value) -> &str {
    body["content"].as_str().unwrap_or_default()
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
