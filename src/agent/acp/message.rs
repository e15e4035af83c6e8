//! What one line means: a request, a notification, an answer, or nothing. Reads any JSON and trusts none of it.

use std::fmt;
use std::io;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::text::truncate_bytes;

/// Longest text of an error that is kept, in bytes.
const ERROR_BYTES: usize = 2 * 1024;

/// How much of a line that is too long is kept, in bytes: its method and its id are there in what agents write.
const HEAD_BYTES: usize = 1024;

/// JSON-RPC: the request is not valid.
pub(super) const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: the method is not known.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: a fault of the one who answers.
pub(super) const INTERNAL: i64 = -32603;
/// ACP: sign in first.
pub(super) const AUTH_REQUIRED: i64 = -32000;
/// ACP: not found, usually a session.
pub(super) const NOT_FOUND: i64 = -32002;
/// ACP: the request was cancelled.
pub(super) const CANCELLED: i64 = -32800;

/// One JSON-RPC message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RpcMessage {
    /// A request that waits for an answer. Its id may be any number or text, also 0.
    Request {
        /// The id that the answer must carry.
        id: Value,
        /// The method that is called.
        method: String,
        /// The parameters of the method.
        params: Value,
    },
    /// A notification, which has no answer.
    Notification {
        /// The method that is called.
        method: String,
        /// The parameters of the method.
        params: Value,
    },
    /// The answer to one of our requests.
    Answer {
        /// The id of the request.
        id: u64,
        /// The result, or the error.
        answer: Result<Value, RpcError>,
    },
}

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub(super) struct RpcError {
    /// The error code of JSON-RPC or of the protocol.
    pub(super) code: i64,
    /// The message with details; truncated.
    pub(super) message: String,
}

impl RpcMessage {
    /// Parses a line; `None` when it is not a message, such as stray text or a batch.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let Value::Object(mut object) = serde_json::from_slice(line).ok()? else {
            return None;
        };
        let params = object.remove("params").unwrap_or(Value::Null);
        match (object.remove("method"), object.remove("id")) {
            (Some(Value::String(method)), Some(id @ (Value::Number(_) | Value::String(_)))) => {
                Some(Self::Request { id, method, params })
            }
            (Some(Value::String(method)), None | Some(Value::Null)) => {
                Some(Self::Notification { method, params })
            }
            (None, Some(id)) => Some(Self::Answer {
                id: own_id(&id)?,
                answer: answer(&mut object),
            }),
            _ => None,
        }
    }

    /// The line of a request.
    pub(super) fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
        line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    /// The line of a notification.
    pub(super) fn notification(method: &str, params: &Value) -> Vec<u8> {
        line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// The line of an answer.
    pub(super) fn answer(id: &Value, answer: Result<Value, RpcError>) -> Vec<u8> {
        line(&match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(RpcError { code, message }) => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
            }
        })
    }
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Our requests are numbered; some agents give the number back as text.
fn own_id(id: &Value) -> Option<u64> {
    match id {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// An answer without a result is one: some agents leave out what is nothing.
fn answer(object: &mut Map<String, Value>) -> Result<Value, RpcError> {
    match object.remove("error") {
        None | Some(Value::Null) => Ok(object.remove("result").unwrap_or_default()),
        Some(error) => {
            let code = error.get("code").and_then(Value::as_i64).unwrap_or(INTERNAL);
            let mut message = error
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or("no reason given")
                .to_owned();
            match error.get("data") {
                None | Some(Value::Null) => {}
                Some(Value::String(data)) => message = format!("{message}: {data}"),
                Some(data) => message = format!("{message}: {data}"),
            }
            let message = truncate_bytes(&message, ERROR_BYTES).to_owned();
            Err(RpcError { code, message })
        }
    }
}

/// What the head of a line says that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SkippedMessage {
    /// A request, which can be answered.
    Request {
        /// The id that the answer must carry.
        id: Value,
        /// What the head has of its parameters.
        params: Value,
    },
    /// A notification, or a request whose id is not in the head.
    Notification {
        /// The method that is called; empty if it is not in the head.
        method: String,
        /// What the head has of its parameters.
        params: Value,
    },
    /// The answer to one of our requests.
    Answer {
        /// The id of the request.
        id: u64,
    },
    /// The head does not say: it may be anything, also an answer.
    Unknown,
}

impl SkippedMessage {
    /// Reads the head of a line; `None` if the line is no message.
    pub(super) fn read(head: &[u8]) -> Option<Self> {
        head.trim_ascii_start()
            .starts_with(b"{")
            .then(|| Self::of(&read_head(head)))
    }

    /// Reads a line up to where it stops being JSON; `None` if it is JSON, or does not call itself a message before that, such as stray
    /// text.
    pub(super) fn read_broken(line: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Value>(line).err()?;
        let head = read_head(&line[..line.len().min(HEAD_BYTES)]);
        head.get("jsonrpc").map(|_| Self::of(&head))
    }

    fn of(head: &Value) -> Self {
        let id = head.get("id").filter(|id| id.is_number() || id.is_string());
        let (method, params) = (head.get("method"), head.get("params"));
        let is_answer = head.get("result").or(head.get("error")).is_some();
        match id {
            // An answer has neither.
            Some(id) if method.or(params).is_some() => Self::Request {
                id: id.clone(),
                params: params.cloned().unwrap_or_default(),
            },
            None if method.or(params).is_some() => Self::Notification {
                method: method.and_then(Value::as_str).unwrap_or_default().to_owned(),
                params: params.cloned().unwrap_or_default(),
            },
            Some(id) if is_answer => own_id(id).map_or(Self::Unknown, |id| Self::Answer { id }),
            Some(_) | None => Self::Unknown,
        }
    }
}

impl fmt::Display for SkippedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request { .. } => "a request",
            Self::Notification { .. } => "a notification",
            Self::Answer { .. } => "an answer",
            Self::Unknown => "unknown",
        })
    }
}

/// Reads JSON up to where it was cut; what is incomplete is null.
fn read_head(head: &[u8]) -> Value {
    // A number that was cut is another number.
    let digits = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let end = head.iter().rposition(|byte| !digits(byte)).map_or(0, |at| at + 1);
    let mut value = Value::Null;
    // The error is where it was cut.
    let _ = Incomplete(&mut value).deserialize(&mut serde_json::Deserializer::from_slice(&head[..end]));
    value
}

/// Where a value is written while it is read.
struct Incomplete<'a>(&'a mut Value);

impl<'de> DeserializeSeed<'de> for Incomplete<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Incomplete<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        *self.0 = value.into();
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        *self.0 = value.into();
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        *self.0 = value.into();
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        *self.0 = value.into();
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        *self.0 = value.into();
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut item = Value::Null;
        while seq.next_element_seed(Incomplete(&mut item))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        *self.0 = Value::Object(Map::new());
        while let Some(key) = map.next_key::<String>()? {
            if let Value::Object(object) = &mut *self.0 {
                map.next_value_seed(Incomplete(object.entry(key).or_insert(Value::Null)))?;
            }
        }
        Ok(())
    }
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AgentLine<'a> {
    /// The line without its end.
    Whole(&'a [u8]),
    /// A line that is too long.
    TooLong {
        /// What it begins with.
        head: &'a [u8],
        /// Its length in bytes.
        size: usize,
    },
}

/// Cuts what it reads into lines.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of at most `longest` bytes.
    pub(super) fn new(reader: R, longest: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(16 * 1024, reader),
            line: Vec::new(),
            longest,
        }
    }

    /// The next line; `None` at the end of input. A last line without an end is a line.
    pub(super) async fn next(&mut self) -> io::Result<Option<AgentLine<'_>>> {
        self.line.clear();
        // What a long line left behind is given back.
        self.line.shrink_to(64 * 1024);
        let mut size = 0_usize;
        loop {
            let bytes = self.reader.fill_buf().await?;
            let end = memchr::memchr(b'\n', bytes);
            let is_end = end.is_some() || bytes.is_empty();
            if bytes.is_empty() && size == 0 {
                return Ok(None);
            }
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            size += piece.len();
            if size <= self.longest {
                self.line.extend_from_slice(piece);
            } else {
                let room = HEAD_BYTES.saturating_sub(self.line.len());
                self.line.extend_from_slice(&piece[..piece.len().min(room)]);
                self.line.truncate(HEAD_BYTES);
            }
            let used = end.map_or(bytes.len(), |end| end + 1);
            self.reader.consume(used);
            if is_end {
                return Ok(Some(if size <= self.longest {
                    AgentLine::Whole(&self.line)
                } else {
                    AgentLine::TooLong {
                        head: &self.line,
                        size,
                    }
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<RpcMessage> {
        RpcMessage::read(text.as_bytes())
    }

    #[test]
    fn any_id_but_null_makes_a_request() {
        for id in ["0", "7", "-1", "1.5", "\"a\"", "\"\""] {
            let message = read(&format!(r#"{{"id":{id},"method":"m"}}"#)).unwrap();
            assert!(
                matches!(&message, RpcMessage::Request { id: seen, .. } if *seen == serde_json::from_str::<Value>(id).unwrap()),
                "{message:?}"
            );
        }
        assert!(matches!(
            read(r#"{"id":null,"method":"m","params":[]}"#),
            Some(RpcMessage::Notification { .. })
        ));
    }

    #[test]
    fn what_is_no_message_is_nothing() {
        for junk in [
            "",
            "hello",
            "{",
            "[]",
            "[{\"id\":1,\"result\":1}]",
            "null",
            "{}",
            r#"{"method":7}"#,
            r#"{"id":{},"method":"m"}"#,
            r#"{"id":"x","result":1}"#,
            r#"{"id":-4,"result":1}"#,
            "\u{1b}[31mred",
            "\u{feff}{}",
        ] {
            assert_eq!(read(junk), None, "{junk}");
        }
        assert_eq!(RpcMessage::read(&[0xff, 0xfe, b'{']), None);
        assert_eq!(read(&"[".repeat(100_000)), None);
    }

    #[test]
    fn answers_are_read_with_their_reasons() {
        let answered = |id, answer| Some(RpcMessage::Answer { id, answer });
        assert_eq!(read(r#"{"id":3,"result":null}"#), answered(3, Ok(Value::Null)));
        assert_eq!(read(r#"{"id":"3","result":{}}"#), answered(3, Ok(json!({}))));
        assert_eq!(read(r#"{"id":3}"#), answered(3, Ok(Value::Null)));
        let no = |code, message: &str| {
            Err(RpcError {
                code,
                message: message.to_owned(),
            })
        };
        assert_eq!(
            read(r#"{"id":3,"error":{"code":-32603,"message":"Internal","data":{"a":1}}}"#),
            answered(3, no(INTERNAL, "Internal: {\"a\":1}"))
        );
        assert_eq!(
            read(r#"{"id":3,"error":7}"#),
            answered(3, no(INTERNAL, "no reason given"))
        );
        let long = format!(r#"{{"id":3,"error":{{"message":"{}"}}}}"#, "é".repeat(9000));
        let Some(RpcMessage::Answer {
            answer: Err(error), ..
        }) = read(&long)
        else {
            panic!("no answer")
        };
        assert!(error.message.len() <= ERROR_BYTES);
    }

    #[test]
    fn what_is_written_is_one_line() {
        let line = RpcMessage::request(1, "m", &json!({"text": "a\nb\u{2028}"}));
        assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1));
        assert!(matches!(
            RpcMessage::read(&line),
            Some(RpcMessage::Request { .. })
        ));
        let line = RpcMessage::answer(&json!("x\n"), Ok(json!({"a": "\r\n"})));
        assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1));
    }

    async fn all(input: &[u8], longest: usize) -> Vec<String> {
        let mut lines = LineReader::new(input, longest);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            seen.push(match line {
                AgentLine::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                AgentLine::TooLong { head, size } => {
                    assert!(head.len() <= HEAD_BYTES);
                    format!("{size} bytes: {}", str::from_utf8(head).unwrap())
                }
            });
        }
        seen
    }

    #[tokio::test]
    async fn long_lines_are_reported_with_their_head_and_the_next_is_read() {
        assert_eq!(
            all(b"one\n12345678\n\ntwo", 5).await,
            ["one", "8 bytes: 12345678", "", "two"]
        );
        assert_eq!(all(b"12345\n123456\n", 5).await, ["12345", "6 bytes: 123456"]);
        assert_eq!(all(b"", 5).await, Vec::<String>::new());
        assert_eq!(all(b"123456", 5).await, ["6 bytes: 123456"]);
        let long = "x".repeat(100_000);
        let head = &long[..HEAD_BYTES];
        assert_eq!(
            all(format!("{long}\nz\n").as_bytes(), 50_000).await,
            [format!("100000 bytes: {head}"), "z".to_owned()]
        );
    }

    #[tokio::test]
    async fn a_line_longer_than_the_buffer_is_whole() {
        let long = "x".repeat(100_000);
        let seen = all(format!("{long}\n{long}y\nz\n").as_bytes(), 100_000).await;
        assert_eq!(seen.len(), 3);
        assert_eq!((&seen[0], seen[2].as_str()), (&long, "z"));
    }

    #[test]
    fn the_head_of_a_long_line_says_what_it_is() {
        for junk in ["", "xxxx", "[[[[", "\"{"] {
            assert_eq!(SkippedMessage::read(junk.as_bytes()), None, "{junk}");
        }
        let read = |head: &str| SkippedMessage::read(head.as_bytes()).unwrap();
        assert_eq!(
            read(
                r#"{"jsonrpc":"2.0","id":"q","method":"ask","params":{"sessionId":"s","options":[{"name":"lo"#
            ),
            SkippedMessage::Request {
                id: json!("q"),
                params: json!({"sessionId": "s", "options": null}),
            }
        );
        assert_eq!(
            read(r#"{"method":"m","params":{"update":{"kind":"text","content":{"text":"lo"#),
            SkippedMessage::Notification {
                method: "m".to_owned(),
                params: json!({"update": {"kind": "text", "content": {"text": null}}}),
            }
        );
        for answer in [
            r#"{"jsonrpc":"2.0","id":12,"result":{"a":"lo"#,
            r#"{"id":"12","error":"lo"#,
        ] {
            assert_eq!(read(answer), SkippedMessage::Answer { id: 12 }, "{answer}");
        }
        for (request, params) in [
            (r#"{"id":12,"params":{"a":"lo"#, json!({"a": null})),
            (r#"{"id":12,"method":"cu"#, Value::Null),
        ] {
            let id = json!(12);
            assert_eq!(read(request), SkippedMessage::Request { id, params }, "{request}");
        }
        assert_eq!(
            read(r#"{"params":{"sessionId":"s","update":{"a":"lo"#),
            SkippedMessage::Notification {
                method: String::new(),
                params: json!({"sessionId": "s", "update": {"a": null}}),
            }
        );
        for unknown in [
            r#"{"result":{"a":"lo"#,
            r#"{"result":1,"id":12"#,
            r#"{"id":"theirs","result":"lo"#,
        ] {
            assert_eq!(read(unknown), SkippedMessage::Unknown, "{unknown}");
        }
    }

    #[test]
    fn a_message_that_is_not_json_is_read_up_to_there() {
        let read = |line: &str| SkippedMessage::read_broken(line.as_bytes());
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":1,"result":{"size":NaN}}"#),
            Some(SkippedMessage::Answer { id: 1 })
        );
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","result":"\ud83d","id":1}"#),
            Some(SkippedMessage::Unknown)
        );
        for other in [
            "",
            "starting up...",
            "{ jsonrpc: '2.0', id: 1 }",
            r#"{"id":1,"result":"\ud83d"}"#,
            r#"{"jsonrpc":"2.0","method":7}"#,
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
