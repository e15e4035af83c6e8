//! Agents that need no settings: `echo` repeats the message, so that everything can be tried without a model; `noop`
//! never answers.
//!
//! The answer to `hello` is `echo: hello`. The text may start with directives, any number of them:
//!
//! | directive | effect |
//! |---|---|
//! | `sleep=MS` | the turn takes that long; a stop ends it immediately |
//! | `stream=MS` | the answer is streamed word by word, that far apart |
//! | `title=WORD` | the conversation gets this title |
//! | `ask` | asks whether it may, first; the answer says what was answered |
//! | `tool`, `tools=N` | uses that many tools, one after the other, each as long as `stream=` says |
//! | `media=URL` | sends this; `media=NAME` sends a file out of the turn's own directory, where it has one; up to 16 times |
//! | `break` | the first word is a message of its own |
//! | `long=N` | that many more characters of text |
//! | `fail` | the turn fails, after everything but the text |
//!
//! Directives are taken off before the text is echoed: `sleep=500 hi` answers `echo: hi` after half a second.

use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use super::{
    Agent, AgentEvent, AgentFuture, AgentInfo, Choice, Failure, FailureClass, Meaning, Media, MediaLocation,
    PromptAnswer, Question, QuestionKind, StepState, ToolCall, ToolKind, Turn, TurnEnd,
};

/// Longest pause that a directive may ask for.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// Most tools that a directive may ask for.
const MAX_TOOLS: u32 = 100;
/// Files of one message.
const MAX_MEDIA: usize = 16;

/// Most characters that a directive may ask for.
const MAX_CHARS: usize = 1_000_000;

/// Characters of a long text per event.
const PIECE: usize = 1000;

/// Names of the agents that need no settings.
pub const BUILT_IN: &[&str] = &["echo", "noop"];

/// The built-in agent of that name.
pub fn built_in(name: &str) -> Result<Arc<dyn Agent>, UnknownAgent> {
    match name {
        "echo" => Ok(Arc::new(EchoAgent)),
        "noop" => Ok(Arc::new(NoopAgent)),
        _ => Err(UnknownAgent {
            name: name.to_owned(),
        }),
    }
}

/// A name that is neither a built-in agent nor a configured one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent named `{name}`; built in are: {}", BUILT_IN.join(", "))]
pub struct UnknownAgent {
    /// The name that no agent has.
    pub name: String,
}

/// An agent that repeats each message.
#[derive(Clone, Copy, Debug, Default)]
pub struct EchoAgent;

impl Agent for EchoAgent {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "echo".into(),
            kind: "echo",
            marks_start: true,
            asks: true,
            ..AgentInfo::default()
        }
    }

    fn answers_inline(&self) -> bool {
        true
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let script = Script::parse(&turn.input.text);
            if script.is_plain() {
                turn.events.text(["echo: ", script.text].concat()).await;
                return TurnEnd::Completed;
            }
            turn.events.mark_started();
            // Boxed, because it is large and most turns do without it.
            let running = Box::pin(script.run(&turn));
            tokio::select! {
                biased;
                () = turn.cancel.cancelled() => TurnEnd::Cancelled { confirmed: true },
                end = running => end,
            }
        })
    }
}

/// A text with its directives taken off.
#[derive(Debug, Default, PartialEq, Eq)]
struct Script<'a> {
    sleep: Option<Duration>,
    stream: Option<Duration>,
    title: Option<&'a str>,
    ask: bool,
    tools: u32,
    media: Vec<&'a str>,
    breaks: bool,
    long: usize,
    fail: bool,
    text: &'a str,
}

impl<'a> Script<'a> {
    fn parse(text: &'a str) -> Self {
        let mut script = Self {
            text,
            ..Self::default()
        };
        loop {
            let (word, rest) = script
                .text
                .split_once(char::is_whitespace)
                .unwrap_or((script.text, ""));
            if !script.take(word) {
                return script;
            }
            script.text = rest;
        }
    }

    /// Takes a directive; `false` when it is none.
    fn take(&mut self, word: &'a str) -> bool {
        match word {
            "fail" => self.fail = true,
            "ask" => self.ask = true,
            "tool" => self.tools = 1,
            "break" => self.breaks = true,
            _ => match word.split_once('=') {
                None | Some((_, "")) => return false,
                Some((name, value)) => return self.set(name, value).is_some(),
            },
        }
        true
    }

    fn set(&mut self, name: &str, value: &'a str) -> Option<()> {
        match name {
            "sleep" => self.sleep = Some(pause(value)?),
            "stream" => self.stream = Some(pause(value)?),
            "tools" => self.tools = value.parse::<u32>().ok()?.min(MAX_TOOLS),
            "long" => self.long = value.parse::<usize>().ok()?.min(MAX_CHARS),
            "title" => self.title = Some(value),
            "media" if self.media.len() < MAX_MEDIA => self.media.push(value),
            _ => return None,
        }
        Some(())
    }

    /// Whether nothing of it is seen before its end: cut short, it does no harm to do it again.
    fn is_plain(&self) -> bool {
        let text = self.text;
        *self
            == Self {
                text,
                ..Self::default()
            }
    }

    /// Whether it takes long: much text, or a file lookup.
    fn is_expensive(&self) -> bool {
        self.long > 0 || !self.media.is_empty()
    }

    async fn run(&self, turn: &Turn) -> TurnEnd {
        if self.is_expensive() {
            // Yields, so that an inline attempt does not wait for it.
            tokio::task::yield_now().await;
        }
        if let Some(pause) = self.sleep {
            tokio::time::sleep(pause).await;
        }
        if let Some(title) = self.title {
            turn.events.emit(AgentEvent::Title(title.to_owned())).await;
        }
        let mut answered = "";
        if self.ask {
            answered = describe_answer(&turn.approver.ask(question(self.text)).await);
        }
        for number in 1..=self.tools {
            self.tool(turn, number).await;
        }
        for &location in &self.media {
            self.send(turn, location).await;
        }
        if self.fail {
            let asked = "echo: this turn was asked to fail.";
            let failure = Failure::new(FailureClass::Reported, asked, "the text asked for it");
            return TurnEnd::Failed(failure.without_side_effects());
        }
        let reply = format!("{answered}{}", self.text);
        if self.breaks {
            let (first, rest) = reply.split_once(char::is_whitespace).unwrap_or((&reply, ""));
            self.write(turn, first).await;
            turn.events.emit(AgentEvent::Break).await;
            self.write(turn, rest).await;
        } else {
            self.write(turn, &reply).await;
        }
        TurnEnd::Completed
    }

    async fn write(&self, turn: &Turn, text: &str) {
        match self.stream {
            None => turn.events.text(format!("echo: {text}")).await,
            Some(pause) => {
                turn.events.text("echo:").await;
                for word in text.split_whitespace() {
                    tokio::time::sleep(pause).await;
                    turn.events.text(format!(" {word}")).await;
                }
            }
        }
        let mut left = self.long;
        while left > 0 {
            let piece = left.min(PIECE);
            turn.events.text(line(piece)).await;
            left -= piece;
        }
    }

    async fn tool(&self, turn: &Turn, number: u32) {
        for state in [StepState::Running, StepState::Done] {
            turn.events.progress(AgentEvent::Tool(ToolCall {
                id: format!("tool-{number}"),
                title: format!("echo tool {number}"),
                kind: ToolKind::Other,
                state,
            }));
            if state == StepState::Running {
                tokio::time::sleep(self.stream.unwrap_or_default()).await;
            }
        }
    }

    async fn send(&self, turn: &Turn, location: &str) {
        let Some(location) = media(location, turn.workdir.as_deref()) else {
            turn.events.text("echo: there is no such file to send.\n").await;
            return;
        };
        let media = Media {
            location,
            caption: String::new(),
            kind: None,
            name: None,
        };
        turn.events.emit(AgentEvent::Media(media)).await;
    }
}

/// What may be sent: an address, or a file of the turn's own directory. Anyone in the chat writes this, so no other
/// file of the machine.
fn media(location: &str, workdir: Option<&Path>) -> Option<MediaLocation> {
    if location.starts_with("https://") || location.starts_with("http://") {
        return Some(MediaLocation::Url(location.to_owned()));
    }
    let inside = Path::new(location)
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    let file = workdir.filter(|_| inside)?.join(location);
    file.is_file().then_some(MediaLocation::File(file))
}

fn question(text: &str) -> Question {
    let choice = |id: &str, label: &str, meaning| Choice {
        id: id.to_owned(),
        label: label.to_owned(),
        meaning,
    };
    Question {
        kind: QuestionKind::Approval,
        text: "May I echo this?".to_owned(),
        detail: Some(text.to_owned()).filter(|text| !text.is_empty()),
        options: vec![
            choice("once", "Allow once", Meaning::AllowOnce),
            choice("session", "Allow for this conversation", Meaning::AllowSession),
            choice("always", "Always allow", Meaning::AllowAlways),
            choice("deny", "Deny", Meaning::Deny),
        ],
        timeout: None,
        resume: None,
    }
}

fn describe_answer(answer: &PromptAnswer) -> &'static str {
    match answer {
        PromptAnswer::Chosen(id) => match id.as_str() {
            "once" => "allowed once ",
            "session" => "allowed for this conversation ",
            "always" => "allowed always ",
            _ => "denied ",
        },
        PromptAnswer::TimedOut => "nobody answered ",
        PromptAnswer::Cancelled => "the question was taken back ",
    }
}

/// So many characters of filling, with spaces to break at.
fn line(characters: usize) -> String {
    "0123456789 abcdefghijklmnopqrstuvwxyz "
        .chars()
        .cycle()
        .take(characters)
        .collect()
}

fn pause(millis: &str) -> Option<Duration> {
    Some(Duration::from_millis(millis.parse().ok()?).min(MAX_PAUSE))
}

/// An agent that says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopAgent;

impl Agent for NoopAgent {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "noop".into(),
            kind: "noop",
            repeatable: true,
            ..AgentInfo::default()
        }
    }

    fn answers_inline(&self) -> bool {
        true
    }

    fn run(&self, _turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(std::future::ready(TurnEnd::Completed))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio_util::sync::CancellationToken;

    use super::super::{EventSink, TurnInput};
    use super::*;

    #[tokio::test]
    async fn only_what_is_little_work_is_done_at_once() {
        for (text, at_once) in [
            ("hello", true),
            ("fail", true),
            ("long=10 hello", false),
            ("media=a.txt", false),
        ] {
            let (events, _signals) = EventSink::new();
            let turn = Turn::alone(
                TurnInput {
                    text: text.to_owned(),
                    ..TurnInput::default()
                },
                events,
                CancellationToken::new(),
            );
            let mut run = EchoAgent.run(turn);
            let first = run.as_mut().now_or_never();
            assert_eq!(first.is_some(), at_once, "{text}");
            if first.is_none() {
                assert!(matches!(run.await, TurnEnd::Completed), "{text}");
            }
        }
    }

    #[test]
    fn directives_are_taken_off_and_anything_else_is_text() {
        let ms = Duration::from_millis;
        assert_eq!(
            Script::parse("sleep=5 stream=2 a b"),
            Script {
                sleep: Some(ms(5)),
                stream: Some(ms(2)),
                text: "a b",
                ..Script::default()
            }
        );
        assert_eq!(
            Script::parse("fail"),
            Script {
                fail: true,
                text: "",
                ..Script::default()
            }
        );
        assert_eq!(Script::parse("sleep=soon x").text, "sleep=soon x");
        assert_eq!(Script::parse("failing x").text, "failing x");
        assert_eq!(Script::parse("").text, "");
        assert_eq!(
            Script::parse("sleep=18446744073709551615 x").sleep,
            Some(MAX_PAUSE)
        );
    }

    #[test]
    fn every_directive_is_known_and_bounded() {
        let script =
            Script::parse("ask tools=7 title=Tea media=https://example.com/a.png long=99999999 break a");
        assert!(script.ask && script.breaks);
        assert_eq!((script.tools, script.long), (7, MAX_CHARS));
        assert_eq!(script.title, Some("Tea"));
        assert_eq!(script.media, ["https://example.com/a.png"]);
        assert_eq!(script.text, "a");
        assert_eq!(Script::parse("tools=4000000000").tools, MAX_TOOLS);
        assert_eq!(Script::parse("title= x").text, "title= x");
        assert_eq!(Script::parse("novel=1 x").text, "novel=1 x");
    }

    #[test]
    fn only_files_of_the_turns_own_directory_are_sent() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "a").unwrap();
        let at = |location: &str| media(location, Some(folder.path()));
        assert_eq!(
            at("a.txt"),
            Some(MediaLocation::File(folder.path().join("a.txt")))
        );
        assert_eq!(media("a.txt", None), None);
        assert_eq!(media("/etc/passwd", None), None);
        for outside in [
            "/etc/passwd",
            "../a.txt",
            "./../../etc/passwd",
            "b.txt",
            "file:///etc/passwd",
        ] {
            assert_eq!(at(outside), None, "{outside}");
        }
    }
}
