//! Chat completions as they arrive: what OpenAI-style servers and Hermes' chat mode have in common.
//!
//! A [`CompletionReader`] reads one response to its end and emits its text. It never sends or retries, and emits no
//! thoughts; its text survives cancellation.

mod think;

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use self::think::ThinkFilter;
use super::{AgentEvent, EventSink};
use crate::agent::Usage;
use crate::net::http::{HttpError, ResponseStream, excerpt};
use crate::wire::SseEvent;

/// Maximum length of an answer, in bytes.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// Timeout for data after the end of the answer.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeouts of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamTimeouts {
    /// Timeout of the first text: models load, prompts are read.
    pub(super) first: Duration,
    /// Timeout of each later read.
    pub(super) idle: Duration,
}

/// How a response ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The answer is complete.
    Complete,
    /// The answer reached the longest length of the model, or ours.
    Length,
    /// The provider's filter ended the answer.
    Filtered,
    /// The model called a tool, and there is none.
    ToolCall,
    /// The server reported an error.
    Reported(String),
    /// The stream ended before the answer did.
    Interrupted,
    /// The response is not a chat completion.
    Invalid(&'static str),
    /// The connection failed.
    Transport(HttpError),
}

/// Reads one response.
pub(super) struct CompletionReader<'a> {
    /// Text so far.
    pub(super) text: String,
    events: &'a EventSink,
    timeouts: StreamTimeouts,
    named: fn(&SseEvent) -> Option<AgentEvent>,
    think: ThinkFilter,
    started: bool,
    finish: Option<Finish>,
    calls_tools: bool,
}

impl<'a> CompletionReader<'a> {
    /// Emits into `events`; named events are mapped by `named`.
    pub(super) fn new(
        events: &'a EventSink,
        timeouts: StreamTimeouts,
        named: fn(&SseEvent) -> Option<AgentEvent>,
    ) -> Self {
        Self {
            text: String::new(),
            events,
            timeouts,
            named,
            think: ThinkFilter::default(),
            started: false,
            finish: None,
            calls_tools: false,
        }
    }

    /// Reads the response to its end. Cancel-safe: `text` is kept.
    pub(super) async fn read(&mut self, mut reply: ResponseStream) -> Ended {
        let ended = if reply.is_json() {
            self.read_whole(reply).await
        } else {
            self.read_events(&mut reply).await
        };
        let rest = self.think.finish();
        self.emit(rest).await;
        ended
    }

    async fn read_whole(&mut self, reply: ResponseStream) -> Ended {
        let body = match reply.body(self.timeouts.first).await {
            Ok(body) => body,
            Err(error) => return Ended::Transport(error),
        };
        let Some(chunk) = Chunk::decode(&body) else {
            return Ended::Invalid("the answer is not a JSON object");
        };
        if let Some(ended) = self.take(chunk).await {
            return ended;
        }
        // A whole response is complete even without a finish reason.
        if self.text.is_empty() && self.finish.is_none() && !self.started {
            return Ended::Invalid("the answer holds no message");
        }
        self.ended(Ended::Complete)
    }

    async fn read_events(&mut self, reply: &mut ResponseStream) -> Ended {
        // Some servers omit the content type; without any event it is not a stream.
        let mut streams = reply.content_type == "text/event-stream";
        let mut over: Option<Instant> = None;
        loop {
            let timeouts = if self.started {
                self.timeouts.idle
            } else {
                self.timeouts.first
            };
            // After the answer has ended, trailing data gets a short timeout.
            let next = if self.finish.is_none() {
                reply.next_event(timeouts).await
            } else {
                let over = *over.get_or_insert_with(|| Instant::now() + TRAILER_TIMEOUT);
                let next = timeout_at(over, reply.next_event(TRAILER_TIMEOUT)).await;
                next.unwrap_or(Err(HttpError::TimedOut(TRAILER_TIMEOUT)))
            };
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) if !streams => return Ended::Invalid("the answer is not a stream of events"),
                Ok(None) => return self.ended(Ended::Interrupted),
                Err(error) => return self.ended(Ended::Transport(error)),
            };
            streams = true;
            if !matches!(event.name.as_str(), "" | "message" | "error") {
                if let Some(progress) = (self.named)(&event) {
                    self.events.progress(progress);
                }
                continue;
            }
            let data = event.data.trim();
            if data == "[DONE]" {
                return self.ended(Ended::Complete);
            }
            if data.is_empty() {
                continue;
            }
            let Some(chunk) = Chunk::decode(data.as_bytes()) else {
                return self.ended(Ended::Invalid("an event is not a JSON object"));
            };
            if let Some(ended) = self.take(chunk).await {
                return ended;
            }
        }
    }

    /// Handles one chunk; returns how the answer ended if it did.
    async fn take(&mut self, chunk: Chunk) -> Option<Ended> {
        self.started |= chunk.thinks || !chunk.text.is_empty();
        self.calls_tools |= chunk.calls_tools;
        if !chunk.text.is_empty() {
            let text = self.think.push(&chunk.text);
            self.emit(text).await;
        }
        if let Some(usage) = chunk.usage {
            self.events.emit(AgentEvent::Usage(usage)).await;
        }
        if let Some(error) = chunk.error {
            return Some(Ended::Reported(error));
        }
        self.finish = self.finish.or(chunk.finish);
        (self.text.len() > MAX_TEXT).then_some(Ended::Length)
    }

    /// How the answer ended if it had before `otherwise`.
    fn ended(&self, otherwise: Ended) -> Ended {
        match (self.finish, otherwise) {
            (Some(Finish::Length), _) => Ended::Length,
            (Some(Finish::Filter), _) => Ended::Filtered,
            (Some(Finish::Tools), _) => Ended::ToolCall,
            (None, Ended::Complete) if self.calls_tools => Ended::ToolCall,
            (Some(Finish::Stop | Finish::Error), _) => Ended::Complete,
            (None, otherwise) => otherwise,
        }
    }

    async fn emit(&mut self, text: String) {
        if !text.is_empty() {
            self.text.push_str(&text);
            self.events.text(text).await;
        }
    }
}

/// Content of one chunk or whole response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// More of the answer.
    pub(crate) text: String,
    /// Whether the model thinks; its thoughts are not kept.
    pub(crate) thinks: bool,
    /// Whether the model calls a tool.
    pub(crate) calls_tools: bool,
    /// The reason, if the answer ends with this chunk.
    pub(crate) finish: Option<Finish>,
    /// The tokens used so far.
    pub(crate) usage: Option<Usage>,
    /// The server's error, truncated.
    pub(crate) error: Option<String>,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// Complete, or an unknown reason.
    Stop,
    /// The model's longest answer.
    Length,
    /// The provider's filter.
    Filter,
    /// A tool call.
    Tools,
    /// The server failed.
    Error,
}

impl Chunk {
    /// Decodes a chunk or whole response; `None` when it is not a JSON object.
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
        let delta = [choice.get("delta"), choice.get("message")]
            .into_iter()
            .flatten()
            .find(|delta| delta.is_object());
        if let Some(delta) = delta {
            self.text = text_of(delta.get("content"));
            if self.text.is_empty() {
                self.text = text_of(delta.get("refusal"));
            }
            let some = |name| !text_of(delta.get(name)).is_empty();
            self.thinks = some("reasoning") || some("reasoning_content");
            let calls = delta.get("tool_calls").and_then(Value::as_array);
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

/// The error text of a response: `error.message`, `error`, `message`, `detail`, or plain text; shortened.
pub(crate) fn error_text(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(object)) => ["error", "message", "detail"]
            .iter()
            .find_map(|name| object.get(*name).and_then(error_of)),
        Ok(Value::String(text)) => Some(excerpt(&text)),
        Ok(_) => None,
        Err(_) => Some(excerpt(&String::from_utf8_lossy(&body[..body.len().min(4096)]))),
    };
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| "no reason given".to_owned())
}

/// Text of an `error` field; `None` without an error.
pub(crate) fn error_of(error: &Value) -> Option<String> {
    match error {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(excerpt(text)),
        Value::Object(object) => {
            let field = |name: &str| object.get(name).and_then(Value::as_str).map(excerpt);
            let text = field("message").or_else(|| field("type"));
            Some(text.unwrap_or_else(|| "no reason given".to_owned()))
        }
        other => Some(excerpt(&other.to_string())),
    }
}

/// Token counts under either naming; `None` without any.
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
