//! Chat completions as they arrive: what OpenAI-style servers and Hermes' chat mode have in common.
//!
//! A [`Listener`] reads one answer to its end and says its text as it comes. It never sends, never retries, and never
//! says a thought; what it heard stays with it when reading is given up.

mod chunk;
mod think;

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

pub(super) use chunk::{error_of, error_text, usage_of};

use self::chunk::{Chunk, Finish};
use self::think::ThinkFilter;
use super::{AgentEvent, EventSink};
use crate::net::http::{HttpError, ResponseStream};
use crate::wire::SseEvent;

/// Longest answer that is read, in bytes; a longer one ends there.
const MOST_TEXT: usize = 4 * 1024 * 1024;
/// How long the rest of a stream is waited for, altogether, once the answer has ended.
const AFTER_END: Duration = Duration::from_secs(5);

/// How long a server may say nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Before the first word: models load, prompts are read.
    pub(super) first: Duration,
    /// From then on.
    pub(super) idle: Duration,
}

/// How an answer ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It is complete.
    Complete,
    /// At the model's longest answer, or ours.
    Length,
    /// By the provider's filter.
    Filtered,
    /// The model wants a tool to be called, and there is none.
    WantsTool,
    /// The server says that it failed.
    Reported(String),
    /// The stream ended before the answer did.
    CutShort,
    /// Something came that is no chat completion.
    Unreadable(&'static str),
    /// The network failed.
    Lost(HttpError),
}

/// Hears one answer.
pub(super) struct Listener<'a> {
    /// What was said so far.
    pub(super) text: String,
    events: &'a EventSink,
    patience: Patience,
    named: fn(&SseEvent) -> Option<AgentEvent>,
    think: ThinkFilter,
    started: bool,
    finish: Option<Finish>,
    calls_tools: bool,
}

impl<'a> Listener<'a> {
    /// Says what it hears into `events`; events with a name of their own mean what `named` says, or nothing.
    pub(super) fn new(
        events: &'a EventSink,
        patience: Patience,
        named: fn(&SseEvent) -> Option<AgentEvent>,
    ) -> Self {
        Self {
            text: String::new(),
            events,
            patience,
            named,
            think: ThinkFilter::default(),
            started: false,
            finish: None,
            calls_tools: false,
        }
    }

    /// Reads the answer to its end. Dropping the future keeps what was heard.
    pub(super) async fn listen(&mut self, mut reply: ResponseStream) -> Ended {
        let ended = if reply.is_json() {
            self.read_whole(reply).await
        } else {
            self.read_events(&mut reply).await
        };
        let rest = self.think.finish();
        self.say(rest).await;
        ended
    }

    async fn read_whole(&mut self, reply: ResponseStream) -> Ended {
        let body = match reply.body(self.patience.first).await {
            Ok(body) => body,
            Err(error) => return Ended::Lost(error),
        };
        let Some(chunk) = Chunk::decode(&body) else {
            return Ended::Unreadable("the answer is not a JSON object");
        };
        if let Some(ended) = self.take(chunk).await {
            return ended;
        }
        // A whole answer is over whether it says why or not.
        if self.text.is_empty() && self.finish.is_none() && !self.started {
            return Ended::Unreadable("the answer holds no message");
        }
        self.ended(Ended::Complete)
    }

    async fn read_events(&mut self, reply: &mut ResponseStream) -> Ended {
        // A server may forget to say that it streams; one that then says nothing does not.
        let mut streams = reply.content_type == "text/event-stream";
        let mut over: Option<Instant> = None;
        loop {
            let patience = if self.started {
                self.patience.idle
            } else {
                self.patience.first
            };
            // Once the answer has ended, whatever else is sent keeps nobody waiting.
            let next = if self.finish.is_none() {
                reply.next_event(patience).await
            } else {
                let over = *over.get_or_insert_with(|| Instant::now() + AFTER_END);
                let next = timeout_at(over, reply.next_event(AFTER_END)).await;
                next.unwrap_or(Err(HttpError::TimedOut(AFTER_END)))
            };
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) if !streams => return Ended::Unreadable("the answer is no stream of events"),
                Ok(None) => return self.ended(Ended::CutShort),
                Err(error) => return self.ended(Ended::Lost(error)),
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
                return self.ended(Ended::Unreadable("an event is not a JSON object"));
            };
            if let Some(ended) = self.take(chunk).await {
                return ended;
            }
        }
    }

    /// Takes one piece; says how the answer ended when it ends here.
    async fn take(&mut self, chunk: Chunk) -> Option<Ended> {
        self.started |= chunk.thinks || !chunk.text.is_empty();
        self.calls_tools |= chunk.calls_tools;
        if !chunk.text.is_empty() {
            let text = self.think.push(&chunk.text);
            self.say(text).await;
        }
        if let Some(usage) = chunk.usage {
            self.events.emit(AgentEvent::Usage(usage)).await;
        }
        if let Some(error) = chunk.error {
            return Some(Ended::Reported(error));
        }
        self.finish = self.finish.or(chunk.finish);
        (self.text.len() > MOST_TEXT).then_some(Ended::Length)
    }

    /// How the answer ended, when it had ended before `otherwise` happened.
    fn ended(&self, otherwise: Ended) -> Ended {
        match (self.finish, otherwise) {
            (Some(Finish::Length), _) => Ended::Length,
            (Some(Finish::Filter), _) => Ended::Filtered,
            (Some(Finish::Tools), _) => Ended::WantsTool,
            (None, Ended::Complete) if self.calls_tools => Ended::WantsTool,
            (Some(Finish::Stop | Finish::Error), _) => Ended::Complete,
            (None, otherwise) => otherwise,
        }
    }

    async fn say(&mut self, text: String) {
        if !text.is_empty() {
            self.text.push_str(&text);
            self.events.text(text).await;
        }
    }
}
