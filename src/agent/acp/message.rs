//! What one line means: a request, a notification, an answer, or nothing. Reads any JSON and trusts none of it.

use std::io;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::text::truncate_bytes;

/// Longest text of an error that is kept, in bytes.
const ERROR_BYTES: usize = 2 * 1024;

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

/// Cuts what it reads into lines.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    skipped: u64,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of at most `longest` bytes.
    pub(super) fn new(reader: R, longest: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(16 * 1024, reader),
            line: Vec::new(),
            longest,
            skipped: 0,
        }
    }

    /// Lines that were too long so far.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next line without its end; `None` at the end of input. A last line without an end is a line.
    pub(super) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        // What a long line left behind is given back.
        self.line.shrink_to(64 * 1024);
        let mut too_long = false;
        loop {
            let bytes = self.reader.fill_buf().await?;
            if bytes.is_empty() {
                return Ok((!too_long && !self.line.is_empty()).then_some(self.line.as_slice()));
            }
            let end = memchr::memchr(b'\n', bytes);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            too_long |= self.line.len() + piece.len() > self.longest;
            if too_long {
                self.line.clear();
            } else {
                self.line.extend_from_slice(piece);
            }
            let used = end.map_or(bytes.len(), |end| end + 1);
            self.reader.consume(used);
            match end {
                Some(_) if too_long => {
                    self.skipped += 1;
                    too_long = false;
                }
                Some(_) => return Ok(Some(&self.line)),
                None => {}
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

    async fn all(input: &[u8], longest: usize) -> (Vec<String>, u64) {
        let mut lines = LineReader::new(input, longest);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            seen.push(String::from_utf8(line.to_vec()).unwrap());
        }
        (seen, lines.skipped())
    }

    #[tokio::test]
    async fn long_lines_are_skipped_and_the_next_is_read() {
        let (seen, skipped) = all(b"one\n12345678\n\ntwo", 5).await;
        assert_eq!(
            (seen, skipped),
            (vec!["one".into(), String::new(), "two".into()], 1)
        );
        assert_eq!(all(b"12345\n123456\n", 5).await, (vec!["12345".to_owned()], 1));
        assert_eq!(all(b"", 5).await.0, Vec::<String>::new());
        assert_eq!(all(b"123456", 5).await.0, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_line_longer_than_the_buffer_is_whole() {
        let long = "x".repeat(100_000);
        let (seen, _) = all(format!("{long}\n{long}y\nz\n").as_bytes(), 100_000).await;
        assert_eq!(seen, [long, "z".to_owned()]);
    }
}
