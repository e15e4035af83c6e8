//! A question as text: the head, the numbered list, and the line that tells how it ended.
//!
//! Everything fits the platform's limit or is not asked at all. What is shown verbatim is never cut at its end
//! alone: the middle goes, and says so, because a command's tail matters as much as its head.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::ask::{Decision, Meaning, Person, PromptOption, QuestionKind};
use super::clean;
use crate::wire::{CapabilityDescriptor, FALLBACK_MESSAGE_LENGTH, LenUnit};

/// Longest label, in code points.
pub(super) const LABEL_POINTS: usize = 75;
/// Longest question text.
const TEXT_POINTS: usize = 1000;
/// The most of a platform's limit that a question uses.
const MOST_CONTENT: u64 = 4096;
/// What is looked at of a text that is shown verbatim, at each end; more than [`MOST_CONTENT`].
const MOST_VERBATIM: usize = 16_384;
/// The least of a text, and of what it is about, that must be seen.
const LEAST_SEEN: (usize, usize) = (20, 72);
/// Room that is kept for the line that tells the end.
const ENDING_ROOM: usize = 128;
/// Between the parts of a question.
const GAP: &str = "\n\n";

/// What a question is written on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paper {
    limit: usize,
    unit: LenUnit,
    code_blocks: bool,
}

/// What is asked, made fit to be shown.
#[derive(Clone, Debug)]
pub(super) struct Wording {
    text: String,
    detail: Option<Detail>,
}

#[derive(Clone, Debug)]
struct Detail {
    /// What can be shown of it.
    text: String,
    /// What is missing in its middle already.
    left_out: usize,
}

impl Wording {
    pub(super) fn new(kind: QuestionKind, text: &str, detail: Option<&str>) -> Self {
        let mut text = clean::paragraph(text, TEXT_POINTS);
        if text.is_empty() {
            text.push_str(match kind {
                QuestionKind::Approval => "May this be done?",
                QuestionKind::Choice => "Which one?",
            });
        }
        let detail = detail.filter(|detail| !detail.trim().is_empty());
        let detail = detail.map(|detail| {
            let (ends, left_out) = ends_of(detail);
            Detail {
                text: clean::verbatim(&ends),
                left_out,
            }
        });
        Self { text, detail }
    }
}

impl Paper {
    pub(super) fn of(descriptor: Option<&CapabilityDescriptor>) -> Self {
        let limit = descriptor.map_or(FALLBACK_MESSAGE_LENGTH, |descriptor| {
            descriptor.max_message_length
        });
        Self {
            limit: usize::try_from(limit.min(MOST_CONTENT)).unwrap_or(usize::MAX),
            unit: descriptor.map_or(LenUnit::Chars, CapabilityDescriptor::length_unit),
            code_blocks: descriptor.is_some_and(CapabilityDescriptor::supports_code_blocks),
        }
    }

    /// The question alone, with room for the line that will tell its end.
    pub(super) fn head(self, wording: &Wording) -> Option<String> {
        self.head_beside(wording, ENDING_ROOM.min(self.limit / 4))
    }

    /// The question with a list to choose from by number.
    pub(super) fn numbered(self, wording: &Wording, kind: QuestionKind, labels: &[&str]) -> Option<String> {
        let how = match kind {
            QuestionKind::Approval => "Reply with a number, /approve or /deny.",
            QuestionKind::Choice => "Reply with a number.",
        };
        let list = |points: usize| {
            let mut list = String::new();
            for (at, label) in labels.iter().enumerate() {
                let label = clean::paired_ticks(&clean::line(label, points));
                let _ = writeln!(list, "{}. {label}", at + 1);
            }
            format!("{GAP}{list}\n{how}")
        };
        let lists = [LABEL_POINTS, 40, 20, 10].map(list);
        let fitting = lists
            .iter()
            .find(|list| self.unit.measure(list) <= self.limit / 2);
        let list = fitting.unwrap_or(&lists[3]);
        let head = self.head_beside(wording, self.unit.measure(list))?;
        Some(head + list)
    }

    /// The question once it has ended.
    pub(super) fn ended(self, head: &str, ending: &str) -> String {
        let whole = format!("{head}{GAP}{ending}");
        if self.unit.measure(&whole) <= self.limit {
            return whole;
        }
        self.cut(ending, self.limit)
    }

    fn head_beside(self, Wording { text, detail }: &Wording, taken: usize) -> Option<String> {
        let room = self.limit.checked_sub(taken)?;
        let text_need = self.unit.measure(text);
        let Some(detail) = detail else {
            let seen = text_need.min(room);
            return (seen >= text_need.min(LEAST_SEEN.0)).then(|| self.text(text, seen));
        };
        let framed = self.framed(detail, usize::MAX);
        let detail_need = self.unit.measure(&framed);
        let text_room = text_need.min((room / 3).max(LEAST_SEEN.0));
        let detail_room = detail_need.min(room.checked_sub(text_room)?);
        let text_room = text_need.min(room - detail_room);
        if detail_room < detail_need.min(LEAST_SEEN.1) {
            return None;
        }
        let framed = if detail_room < detail_need {
            self.framed(detail, detail_room)
        } else {
            framed
        };
        Some(self.text(text, text_room) + &framed)
    }

    fn text(self, text: &str, room: usize) -> String {
        let text = self.cut(text, room);
        if self.code_blocks {
            clean::paired_ticks(&text)
        } else {
            text
        }
    }

    /// A verbatim text in a block of its own, the gap before it included, in at most `room`.
    fn framed(self, detail: &Detail, room: usize) -> String {
        let (open, line, close) = if self.code_blocks {
            ("\n```\n", "\n", "\n```")
        } else {
            ("\n| ", "\n| ", "")
        };
        let lines = detail.text.replace('\n', line);
        let room = room.saturating_sub(open.len() + close.len());
        let shown = self.without_middle(&lines, room, line, detail.left_out);
        format!("{open}{shown}{close}")
    }

    fn without_middle(self, lines: &str, room: usize, line: &str, before: usize) -> String {
        if self.unit.measure(lines) <= room {
            return lines.to_owned();
        }
        let marked = |left_out: usize| format!("{line}[… {left_out} characters are not shown …]{line}");
        let room = room.saturating_sub(self.unit.measure(&marked(before + lines.len())));
        let tail_room = room / 3;
        let head = self.fitting(lines.chars(), room - tail_room);
        let head: String = lines.chars().take(head).collect();
        let tail = self.fitting(lines.chars().rev(), tail_room);
        let points = lines.chars().count();
        let tail: String = lines.chars().skip(points - tail).collect();
        let left_out = before + points - head.chars().count() - tail.chars().count();
        format!("{head}{}{tail}", marked(left_out))
    }

    /// How many of the points fit.
    fn fitting(self, points: impl Iterator<Item = char>, room: usize) -> usize {
        let mut left = room;
        points
            .take_while(|point| {
                let after = left.checked_sub(self.unit.width(*point));
                left = after.unwrap_or(0);
                after.is_some()
            })
            .count()
    }

    fn cut(self, text: &str, room: usize) -> String {
        if self.unit.measure(text) <= room {
            return text.to_owned();
        }
        let kept = self.fitting(text.chars(), room.saturating_sub(1));
        let kept: String = text.chars().take(kept).collect();
        format!("{}…", kept.trim_end())
    }
}

/// What an option is called.
pub(super) fn label(option: &PromptOption, at: usize) -> String {
    let label = clean::line(&option.label, LABEL_POINTS);
    if !label.is_empty() {
        return label;
    }
    match option.meaning {
        Meaning::AllowOnce => "Allow once".to_owned(),
        Meaning::AllowSession => "Allow for this conversation".to_owned(),
        Meaning::AllowAlways => "Always allow".to_owned(),
        Meaning::Deny => "Deny".to_owned(),
        Meaning::Plain => format!("Option {}", at + 1),
    }
}

/// How a button of that meaning looks.
pub(super) fn style(meaning: Meaning) -> Option<&'static str> {
    match meaning {
        Meaning::AllowOnce => Some("success"),
        Meaning::AllowSession | Meaning::AllowAlways => Some("primary"),
        Meaning::Deny => Some("danger"),
        Meaning::Plain => None,
    }
}

/// The line that tells how a question ended. What an approval means is told in our words, whatever its button said.
pub(super) fn ending(
    kind: QuestionKind,
    decision: Decision,
    chosen: Option<(&str, Meaning)>,
    by: Option<&Person>,
) -> String {
    let told = match (decision, chosen, kind) {
        (Decision::TimedOut, _, QuestionKind::Approval) => return "⌛ No answer: denied".to_owned(),
        (Decision::TimedOut, _, QuestionKind::Choice) => return "⌛ No answer in time".to_owned(),
        (Decision::Chosen(_), Some((label, meaning)), _) => match meaning {
            Meaning::AllowOnce => "✅ Allowed once".to_owned(),
            Meaning::AllowSession => "✅ Allowed for this conversation".to_owned(),
            Meaning::AllowAlways => "✅ Allowed from now on".to_owned(),
            Meaning::Deny => "❌ Denied".to_owned(),
            Meaning::Plain => format!("✅ {}", clean::paired_ticks(label)),
        },
        (Decision::Cancelled | Decision::Chosen(_), _, _) if by.is_some() => "❌ Denied".to_owned(),
        (Decision::Cancelled | Decision::Chosen(_), _, _) => return "⏹ No longer asked".to_owned(),
    };
    match by.and_then(|person| person.name.as_deref()) {
        Some(name) => format!("{told} — by {}", clean::name(name)),
        None => told,
    }
}

/// Both ends of a text that is too long to be looked at, and how many bytes are between them. Each end is longer
/// than a question may be, so the place where they meet is never shown.
fn ends_of(text: &str) -> (Cow<'_, str>, usize) {
    if text.len() <= 2 * MOST_VERBATIM {
        return (text.into(), 0);
    }
    let boundary = |at: usize| (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (head, tail) = (boundary(MOST_VERBATIM), boundary(text.len() - MOST_VERBATIM));
    ([&text[..head], &text[tail..]].concat().into(), tail - head)
}
