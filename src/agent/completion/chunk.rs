//! One piece of a chat completion, as servers really write it: every field may be missing, null or of another type.
//!
//! Pure: text in, meaning out. It never fails on something it does not know.

use serde_json::Value;

use crate::agent::Usage;
use crate::net::http::excerpt;

/// What one piece, or a whole answer, says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// More of the answer.
    pub(crate) text: String,
    /// Whether the model thinks; what it thinks is not kept.
    pub(crate) thinks: bool,
    /// Whether the model calls a tool.
    pub(crate) calls_tools: bool,
    /// Why the answer ends here.
    pub(crate) finish: Option<Finish>,
    /// What it has cost.
    pub(crate) usage: Option<Usage>,
    /// What went wrong, shortened.
    pub(crate) error: Option<String>,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// It is complete, or a word that we do not know.
    Stop,
    /// The model's longest answer.
    Length,
    /// The provider's filter.
    Filter,
    /// The model wants a tool to be called.
    Tools,
    /// It failed.
    Error,
}

impl Chunk {
    /// Reads one piece or one whole answer; `None` when it is no JSON object.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(data).ok()?;
        let object = value.as_object()?;
        let mut chunk = Self {
            usage: object.get("usage").and_then(usage_of),
            error: object.get("error").and_then(error_of),
            ..Self::default()
        };
        if let Some(choice) = object.get("choices").and_then(|choices| choices.get(0)) {
            chunk.take_choice(choice);
        }
        if chunk.finish == Some(Finish::Error) && chunk.error.is_none() {
            chunk.error = Some("no reason given".to_owned());
        }
        Some(chunk)
    }

    fn take_choice(&mut self, choice: &Value) {
        let said = [choice.get("delta"), choice.get("message")]
            .into_iter()
            .flatten()
            .find(|said| said.is_object());
        if let Some(said) = said {
            self.text = text_of(said.get("content"));
            if self.text.is_empty() {
                self.text = text_of(said.get("refusal"));
            }
            let some = |name| !text_of(said.get(name)).is_empty();
            self.thinks = some("reasoning") || some("reasoning_content");
            let calls = said.get("tool_calls").and_then(Value::as_array);
            self.calls_tools = calls.is_some_and(|calls| !calls.is_empty());
        }
        self.finish = choice
            .get("finish_reason")
            .and_then(Value::as_str)
            .filter(|word| !word.is_empty())
            .map(|word| match word {
                "length" | "max_tokens" => Finish::Length,
                "content_filter" => Finish::Filter,
                "tool_calls" | "function_call" => Finish::Tools,
                "error" => Finish::Error,
                _ => Finish::Stop,
            });
    }
}

/// What an answer with an error status says, shortened: `error.message`, `error`, `message`, `detail`, or plain text.
pub(crate) fn error_text(body: &[u8]) -> String {
    let said = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(object)) => ["error", "message", "detail"]
            .iter()
            .find_map(|name| object.get(*name).and_then(error_of)),
        Ok(Value::String(text)) => Some(excerpt(&text)),
        Ok(_) => None,
        Err(_) => Some(excerpt(&String::from_utf8_lossy(&body[..body.len().min(4096)]))),
    };
    said.filter(|said| !said.is_empty())
        .unwrap_or_else(|| "no reason given".to_owned())
}

/// What an `error` field says; `None` when there is none.
pub(crate) fn error_of(error: &Value) -> Option<String> {
    match error {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(excerpt(text)),
        Value::Object(object) => {
            let field = |name: &str| object.get(name).and_then(Value::as_str).map(excerpt);
            let said = field("message").or_else(|| field("type"));
            Some(said.unwrap_or_else(|| "no reason given".to_owned()))
        }
        other => Some(excerpt(&other.to_string())),
    }
}

/// Tokens, under either of the names they go by; `None` when neither is told.
pub(crate) fn usage_of(usage: &Value) -> Option<Usage> {
    let count = |names: [&str; 2]| names.iter().find_map(|name| usage.get(*name)?.as_u64());
    let input = count(["prompt_tokens", "input_tokens"]);
    let output = count(["completion_tokens", "output_tokens"]);
    (input.is_some() || output.is_some()).then(|| Usage {
        input_tokens: input.unwrap_or_default(),
        output_tokens: output.unwrap_or_default(),
    })
}

/// Text, or the text parts of a list.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text").and_then(Value::as_str))
            .collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str) -> Chunk {
        Chunk::decode(text.as_bytes()).unwrap()
    }

    #[test]
    fn pieces_are_read_whatever_is_missing() {
        let plain =
            chunk(r#"{"choices":[{"delta":{"role":"assistant","content":"hi"},"finish_reason":null}]}"#);
        assert_eq!(plain.text, "hi");
        assert_eq!(plain.finish, None);
        for nothing in [
            r#"{"choices":[]}"#,
            r#"{"choices":[{"delta":{"content":null}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":""}],"error":null,"usage":null}"#,
            r#"{"choices":[{"delta":null}]}"#,
            r#"{"choices":7}"#,
            "{}",
        ] {
            assert_eq!(chunk(nothing), Chunk::default(), "{nothing}");
        }
        assert_eq!(Chunk::decode(b"[DONE]"), None);
        assert_eq!(Chunk::decode(b"[1]"), None);
    }

    #[test]
    fn whole_answers_parts_and_thoughts_are_read() {
        let whole = chunk(r#"{"choices":[{"message":{"content":"all"},"finish_reason":"length"}]}"#);
        assert_eq!((whole.text.as_str(), whole.finish), ("all", Some(Finish::Length)));
        let parts = chunk(r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"text":"b"}]}}]}"#);
        assert_eq!(parts.text, "ab");
        for name in ["reasoning", "reasoning_content"] {
            let thought = chunk(&format!(r#"{{"choices":[{{"delta":{{"{name}":"hm"}}}}]}}"#));
            assert!(thought.thinks && thought.text.is_empty());
        }
        let tools = chunk(r#"{"choices":[{"delta":{"tool_calls":[{}]},"finish_reason":"tool_calls"}]}"#);
        assert!(tools.calls_tools);
        assert_eq!(tools.finish, Some(Finish::Tools));
    }

    #[test]
    fn usage_and_errors_are_read() {
        let usage = chunk(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#).usage;
        let want = Usage {
            input_tokens: 3,
            output_tokens: 4,
        };
        assert_eq!(usage, Some(want));
        assert_eq!(
            chunk(r#"{"error":{"message":"no","code":1}}"#).error.as_deref(),
            Some("no")
        );
        assert_eq!(chunk(r#"{"error":"no"}"#).error.as_deref(), Some("no"));
        let finished = chunk(r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#);
        assert!(finished.error.is_some());
    }

    #[test]
    fn errors_come_in_several_shapes() {
        for (body, want) in [
            (r#"{"error":{"message":"bad model","type":"x"}}"#, "bad model"),
            (r#"{"error":"bad model"}"#, "bad model"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (r#"{"message":"nope"}"#, "nope"),
            ("upstream\n gone", "upstream  gone"),
            ("{}", "no reason given"),
            ("", "no reason given"),
        ] {
            assert_eq!(error_text(body.as_bytes()), want, "{body}");
        }
    }
}
