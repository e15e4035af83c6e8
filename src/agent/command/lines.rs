//! Output of a command: `jsonl` lines and plain text.

use std::path::PathBuf;

use anstream::adapter::StripBytes;
use serde::Deserialize;

use crate::agent::{
    AgentEvent, Choice, Meaning, Media, MediaLocation, PlanStep, Question, QuestionKind, StepState, ToolCall,
    ToolKind, Usage,
};

/// A decoded line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputLine {
    /// An event that must not be dropped.
    Event(AgentEvent),
    /// An event that may be dropped.
    Progress(AgentEvent),
    /// A question, by the command's name for it.
    Ask(String, Question),
    /// State for the next turn of this session.
    SaveState(String),
    /// The answer is complete, with this text if given.
    Final(Option<String>),
    /// The turn failed, and whether it is retryable.
    Error(String, bool),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireLine {
    Delta {
        text: String,
    },
    Replace {
        text: String,
    },
    Break,
    Thought {
        text: String,
    },
    Status {
        text: String,
    },
    Title {
        text: String,
    },
    Tool {
        id: String,
        #[serde(default)]
        title: String,
        #[serde(default)]
        kind: String,
        #[serde(default)]
        state: String,
    },
    Plan {
        steps: Vec<WireStep>,
    },
    Usage {
        #[serde(default)]
        input_tokens: u64,
        #[serde(default)]
        output_tokens: u64,
    },
    Media {
        path: Option<PathBuf>,
        url: Option<String>,
        #[serde(default)]
        caption: String,
        kind: Option<String>,
        name: Option<String>,
    },
    Ask {
        id: String,
        text: String,
        detail: Option<String>,
        options: Vec<WireOption>,
    },
    Keep {
        memory: String,
    },
    Final {
        text: Option<String>,
    },
    Error {
        message: String,
        #[serde(default)]
        retryable: bool,
    },
}

#[derive(Deserialize)]
struct WireStep {
    text: String,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireOption {
    Plain(String),
    Full {
        id: String,
        label: Option<String>,
        #[serde(default)]
        meaning: String,
    },
}

impl OutputLine {
    /// Whether a command that wrote this has done something that it must not do twice.
    pub(super) fn is_act(&self) -> bool {
        match self {
            Self::Event(AgentEvent::Text(text) | AgentEvent::Replace(text)) => !text.trim().is_empty(),
            Self::Event(AgentEvent::Break) | Self::Progress(AgentEvent::Thought(_)) => false,
            Self::Event(_)
            | Self::Progress(_)
            | Self::SaveState(_)
            | Self::Ask(..)
            | Self::Final(_)
            | Self::Error(..) => true,
        }
    }

    /// Reads a line; nothing when it is not one of ours.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let written: WireLine = serde_json::from_slice(line).ok()?;
        Some(match written {
            WireLine::Delta { text } => Self::Event(AgentEvent::Text(text)),
            WireLine::Replace { text } => Self::Event(AgentEvent::Replace(text)),
            WireLine::Break => Self::Event(AgentEvent::Break),
            WireLine::Thought { text } => Self::Progress(AgentEvent::Thought(text)),
            WireLine::Status { text } => Self::Progress(AgentEvent::Notice(text)),
            WireLine::Title { text } => Self::Event(AgentEvent::Title(text)),
            WireLine::Tool {
                id,
                title,
                kind,
                state,
            } => Self::Progress(AgentEvent::Tool(ToolCall {
                title: if title.is_empty() { id.clone() } else { title },
                id,
                kind: tool_kind(&kind),
                state: step_state(&state),
            })),
            WireLine::Plan { steps } => Self::Progress(AgentEvent::Plan(
                steps
                    .into_iter()
                    .map(|step| PlanStep {
                        state: step_state(&step.state),
                        text: step.text,
                    })
                    .collect(),
            )),
            WireLine::Usage {
                input_tokens,
                output_tokens,
            } => Self::Event(AgentEvent::Usage(Usage {
                input_tokens,
                output_tokens,
            })),
            WireLine::Media {
                path,
                url,
                caption,
                kind,
                name,
            } => Self::Event(AgentEvent::Media(Media {
                location: match (path, url) {
                    (Some(path), _) => MediaLocation::File(path),
                    (None, Some(url)) => MediaLocation::Url(url),
                    (None, None) => return None,
                },
                caption,
                kind,
                name,
            })),
            WireLine::Ask {
                id,
                text,
                detail,
                options,
            } => Self::Ask(id, question(text, detail, options)),
            WireLine::Keep { memory } => Self::SaveState(memory),
            WireLine::Final { text } => Self::Final(text),
            WireLine::Error { message, retryable } => Self::Error(message, retryable),
        })
    }
}

/// An approval when one of the answers allows or denies something, else a choice.
fn question(text: String, detail: Option<String>, options: Vec<WireOption>) -> Question {
    let options: Vec<Choice> = options
        .into_iter()
        .map(|option| {
            let (id, label, word) = match option {
                WireOption::Plain(id) => (id.clone(), None, id),
                WireOption::Full { id, label, meaning } => {
                    let word = if meaning.is_empty() { id.clone() } else { meaning };
                    (id, label, word)
                }
            };
            Choice {
                label: label.unwrap_or_else(|| id.clone()),
                id,
                meaning: meaning(&word),
            }
        })
        .collect();
    let plain = options.iter().all(|option| option.meaning == Meaning::Plain);
    Question {
        kind: if plain {
            QuestionKind::Choice
        } else {
            QuestionKind::Approval
        },
        text,
        detail,
        options,
        timeout: None,
        resume: None,
    }
}

fn meaning(word: &str) -> Meaning {
    match word {
        "once" | "allow" | "allow_once" | "yes" => Meaning::AllowOnce,
        "session" | "allow_session" => Meaning::AllowSession,
        "always" | "allow_always" => Meaning::AllowAlways,
        "deny" | "reject" | "no" => Meaning::Deny,
        _ => Meaning::Plain,
    }
}

fn tool_kind(word: &str) -> ToolKind {
    match word {
        "read" => ToolKind::Read,
        "edit" => ToolKind::Edit,
        "delete" => ToolKind::Delete,
        "search" => ToolKind::Search,
        "execute" => ToolKind::Execute,
        "fetch" => ToolKind::Fetch,
        _ => ToolKind::Other,
    }
}

fn step_state(word: &str) -> StepState {
    match word {
        "running" => StepState::Running,
        "done" => StepState::Done,
        "failed" => StepState::Failed,
        _ => StepState::Pending,
    }
}

/// Reads standard output as text, chunk by chunk. Invalid bytes become U+FFFD; carriage returns and the newlines at
/// the very end are left out.
#[derive(Debug, Default)]
pub(super) struct TextReader {
    strip: StripBytes,
    /// The start of a character whose rest has not come: at most three bytes.
    cut: Vec<u8>,
    /// Newlines that count only when something follows.
    newlines: usize,
}

impl TextReader {
    /// The text that a chunk completes; may be empty.
    pub(super) fn push(&mut self, chunk: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.cut);
        bytes.extend_from_slice(chunk);
        let mut decoded = String::with_capacity(bytes.len());
        let mut left = bytes.len();
        for piece in bytes.utf8_chunks() {
            left -= piece.valid().len() + piece.invalid().len();
            decoded.push_str(piece.valid());
            match piece.invalid() {
                [] => {}
                invalid if left == 0 && is_cut(invalid) => self.cut = invalid.to_vec(),
                _ => decoded.push(char::REPLACEMENT_CHARACTER),
            }
        }
        self.plain(&decoded)
    }

    /// What is left when nothing more comes.
    pub(super) fn end(&mut self) -> String {
        if std::mem::take(&mut self.cut).is_empty() {
            String::new()
        } else {
            self.plain("\u{FFFD}")
        }
    }

    /// Strips terminal sequences. Decoding comes first: the stripper drops invalid bytes.
    fn plain(&mut self, decoded: &str) -> String {
        let plain: Vec<u8> = self
            .strip
            .strip_next(decoded.as_bytes())
            .flatten()
            .copied()
            .collect();
        let mut text = String::with_capacity(plain.len());
        self.put(&String::from_utf8_lossy(&plain), &mut text);
        text
    }

    fn put(&mut self, piece: &str, text: &mut String) {
        for character in piece.chars() {
            match character {
                '\r' => {}
                '\n' => self.newlines += 1,
                _ => {
                    text.extend(std::iter::repeat_n('\n', std::mem::take(&mut self.newlines)));
                    text.push(character);
                }
            }
        }
    }
}

/// Whether these bytes are the start of a character, rather than wrong.
fn is_cut(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_or_left_out() {
        let line = |text: &str| OutputLine::parse(text.as_bytes());
        assert_eq!(
            line(r#"{"type":"delta","text":"hi","more":1}"#),
            Some(OutputLine::Event(AgentEvent::Text("hi".to_owned())))
        );
        assert_eq!(line(r#"{"type":"final"}"#), Some(OutputLine::Final(None)));
        assert_eq!(
            line(r#"{"type":"error","message":"no"}"#),
            Some(OutputLine::Error("no".to_owned(), false))
        );
        for wrong in [
            "",
            "hello",
            "[]",
            "{}",
            r#"{"type":"novel"}"#,
            r#"{"type":"media"}"#,
            r#"{"type":"delta"}"#,
        ] {
            assert_eq!(line(wrong), None, "{wrong}");
        }
        assert_eq!(OutputLine::parse(b"\xff\xfe"), None);
        let deep = "[".repeat(100_000);
        assert_eq!(line(&deep), None);
    }

    #[test]
    fn a_question_with_an_answer_that_allows_is_an_approval() {
        let Some(OutputLine::Ask(id, question)) = OutputLine::parse(
            br#"{"type":"ask","id":"q","text":"Run?","options":["once",{"id":"x","label":"Never","meaning":"deny"}]}"#,
        ) else {
            panic!("no question");
        };
        assert_eq!((id.as_str(), question.kind), ("q", QuestionKind::Approval));
        assert_eq!(question.choice(Meaning::Deny).unwrap().label, "Never");
        let Some(OutputLine::Ask(_, choice)) =
            OutputLine::parse(br#"{"type":"ask","id":"q","text":"Which?","options":["tea","coffee"]}"#)
        else {
            panic!("no question");
        };
        assert_eq!(choice.kind, QuestionKind::Choice);
    }

    fn read(chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
        let mut reader = TextReader::default();
        let mut text: String = chunks
            .into_iter()
            .map(|chunk| reader.push(chunk.as_ref()))
            .collect();
        text.push_str(&reader.end());
        text
    }

    #[test]
    fn however_it_is_cut_it_reads_the_same() {
        let output = "grüße \u{1b}[1;31m日本\u{1b}[0m\n\n\u{1b}]0;title\u{7}🎉 end\r\n\n".as_bytes();
        let whole = read([output]);
        assert_eq!(whole, "grüße 日本\n\n🎉 end");
        for size in 1..output.len() {
            assert_eq!(read(output.chunks(size)), whole, "in chunks of {size}");
        }
    }

    #[test]
    fn wrong_bytes_are_replaced_and_nothing_is_lost_around_them() {
        assert_eq!(
            read([&b"a\xffb"[..], b"\xe6\x97", b"c", b"\xf0\x9f"]),
            "a\u{FFFD}b\u{FFFD}c\u{FFFD}"
        );
        assert_eq!(read([b"\n\n"]), "");
        assert_eq!(read([&b""[..]]), "");
        assert_eq!(read([&b"\n"[..], b"x\n"]), "\nx");
    }
}
