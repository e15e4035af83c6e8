//! A question as text: the head, the numbered list, and the line with the decision.
//!
//! Everything fits the platform's limit, or the question is not opened. A verbatim text that is too long loses its middle,
//! visibly, because a command's tail matters as much as its head. Text from outside is cleaned: nothing invisible,
//! nothing that breaks out of its frame.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::question::{OpenQuestion, QuestionCode};
use super::types::{Decision, Meaning, Person, PromptOption, QuestionKind};
use crate::text::{is_invisible, one_line, truncate, truncate_bytes};
use crate::wire::{CapabilityDescriptor, LenUnit};
use crate::words::{ChatPhrase, Language, PhraseKey};

/// Longest label, in code points.
pub(super) const LABEL_POINTS: usize = 75;
/// Longest question text.
const TEXT_POINTS: usize = 1000;
/// The longest question, whatever the platform allows.
const MAX_CONTENT: usize = 4096;
/// Bytes read at each end of a verbatim text; more than [`MAX_CONTENT`].
const MAX_VERBATIM: usize = 16_384;
/// Minimum length of the question's text and of its detail that must be visible.
const MIN_VISIBLE: (usize, usize) = (20, 72);
/// Room for the line with the decision.
const DECISION_ROOM: usize = 128;
/// Separates the parts of a question.
const GAP: &str = "\n\n";

/// The format of a platform's messages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct MessageFormat {
    limit: usize,
    unit: LenUnit,
    code_blocks: bool,
    language: Language,
}

/// A question's text, cleaned.
#[derive(Clone, Debug)]
pub(super) struct QuestionText {
    text: String,
    detail: Option<Detail>,
}

#[derive(Clone, Debug)]
struct Detail {
    /// The text, without its middle if it is very long.
    text: String,
    /// Bytes left out in the middle.
    left_out: usize,
}

impl QuestionText {
    pub(super) fn new(kind: QuestionKind, text: &str, detail: Option<&str>, language: Language) -> Self {
        let mut text = paragraph(text, TEXT_POINTS);
        if text.is_empty() {
            text.push_str(language.plain(match kind {
                QuestionKind::Approval => PhraseKey::MayThisBeDone,
                QuestionKind::Choice => PhraseKey::WhichOne,
            }));
        }
        let detail = detail.filter(|detail| !detail.trim().is_empty());
        let detail = detail.map(|detail| {
            let (ends, left_out) = ends_of(detail);
            Detail {
                text: verbatim(&ends),
                left_out,
            }
        });
        Self { text, detail }
    }
}

impl MessageFormat {
    pub(super) fn new(descriptor: Option<&CapabilityDescriptor>, language: Language) -> Self {
        let (limit, unit) = CapabilityDescriptor::message_limit(descriptor);
        Self {
            limit: limit.min(MAX_CONTENT),
            unit,
            code_blocks: descriptor.is_some_and(CapabilityDescriptor::supports_code_blocks),
            language,
        }
    }

    /// The question alone, with room for the decision or for what stands under the question until then.
    pub(super) fn head(self, wording: &QuestionText, footer: &str) -> Option<String> {
        let decision = DECISION_ROOM.min(self.limit / 4);
        self.head_beside(wording, decision.max(self.unit.measure(footer)))
    }

    /// What stands under a question with buttons: how to answer it by its code.
    pub(super) fn footer(self, kind: QuestionKind, code: QuestionCode) -> String {
        let code = &code.to_string();
        let how = self.language.say(match kind {
            QuestionKind::Approval => ChatPhrase::PressApproval { code },
            QuestionKind::Choice => ChatPhrase::PressChoice { code },
        });
        format!("{GAP}{how}")
    }

    /// The question with a numbered list of options.
    pub(super) fn numbered(
        self,
        wording: &QuestionText,
        kind: QuestionKind,
        code: QuestionCode,
        labels: &[&str],
    ) -> Option<String> {
        let code = &code.to_string();
        let how = self.language.say(match kind {
            QuestionKind::Approval => ChatPhrase::NumberApproval { code },
            QuestionKind::Choice => ChatPhrase::NumberChoice { code },
        });
        let list = |points: usize| {
            let mut list = String::new();
            for (at, label) in labels.iter().enumerate() {
                let label = paired_ticks(&clean_line(label, points));
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

    /// The question with its decision.
    pub(super) fn decided(self, head: &str, decision: &str) -> String {
        let whole = format!("{head}{GAP}{decision}");
        if self.unit.measure(&whole) <= self.limit {
            return whole;
        }
        self.cut(decision, self.limit)
    }

    fn head_beside(self, QuestionText { text, detail }: &QuestionText, taken: usize) -> Option<String> {
        let room = self.limit.checked_sub(taken)?;
        let text_need = self.unit.measure(text);
        let Some(detail) = detail else {
            let seen = text_need.min(room);
            return (seen >= text_need.min(MIN_VISIBLE.0)).then(|| self.text(text, seen));
        };
        let framed = self.framed(detail, usize::MAX);
        let detail_need = self.unit.measure(&framed);
        let text_room = text_need.min((room / 3).max(MIN_VISIBLE.0));
        let detail_room = detail_need.min(room.checked_sub(text_room)?);
        let text_room = text_need.min(room - detail_room);
        if detail_room < detail_need.min(MIN_VISIBLE.1) {
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
            paired_ticks(&text)
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
        let marked = |left_out: usize| {
            let number = u64::try_from(left_out).unwrap_or(u64::MAX);
            let mark = self.language.say(ChatPhrase::NotShown { number });
            format!("{line}{mark}{line}")
        };
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

    /// Number of points that fit.
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

/// The notice that words without a code decided nothing, for want of a question that they can only mean.
pub(super) fn undecided(open: &[&OpenQuestion], language: Language) -> String {
    let why = language.plain(if open.len() == 1 {
        PhraseKey::JustAsked
    } else {
        PhraseKey::SeveralOpen
    });
    let how: Vec<String> = open
        .iter()
        .take(MAX_NAMED)
        .map(|open| by_code(open, language))
        .collect();
    let more = if open.len() > MAX_NAMED { ", ..." } else { "" };
    let codes = &format!("{}{more}", how.join(", "));
    let how = language.say(ChatPhrase::AnswerByCode { codes });
    format!("{why} {how}")
}

/// Questions that a notice names.
const MAX_NAMED: usize = 4;

/// How a question is answered by its code.
fn by_code(open: &OpenQuestion, language: Language) -> String {
    let (code, or) = (open.code, language.plain(PhraseKey::HelpOr));
    match open.kind {
        QuestionKind::Approval => format!("/approve {code} {or} /deny {code}"),
        QuestionKind::Choice => format!("{code} 1"),
    }
}

/// An option's label.
pub(super) fn label(option: &PromptOption, at: usize, language: Language) -> String {
    let label = clean_line(&option.label, LABEL_POINTS);
    if !label.is_empty() {
        return label;
    }
    language.say(match option.meaning {
        Meaning::AllowOnce => ChatPhrase::AllowOnce,
        Meaning::AllowSession => ChatPhrase::AllowSession,
        Meaning::AllowAlways => ChatPhrase::AllowAlways,
        Meaning::Deny => ChatPhrase::DenyOption,
        Meaning::Plain => ChatPhrase::OptionNumber {
            number: at as u64 + 1,
        },
    })
}

/// A button's style. What is safest to allow stands out, and what lasts longer does not.
pub(super) fn style(meaning: Meaning) -> Option<&'static str> {
    match meaning {
        Meaning::AllowOnce => Some("primary"),
        Meaning::Deny => Some("danger"),
        Meaning::AllowSession | Meaning::AllowAlways | Meaning::Plain => None,
    }
}

/// The place of an option in an approval: once, for the session, always, then others, and denial last.
pub(super) fn place(meaning: Meaning) -> u8 {
    match meaning {
        Meaning::AllowOnce => 0,
        Meaning::AllowSession => 1,
        Meaning::AllowAlways => 2,
        Meaning::Plain => 3,
        Meaning::Deny => 4,
    }
}

/// The line with the decision. An approval's meaning is written in our own words, whatever the button's label.
pub(super) fn decision_line(
    kind: QuestionKind,
    decision: Decision,
    chosen: Option<(&str, Meaning)>,
    by: Option<&Person>,
    language: Language,
) -> String {
    let said = |mark: char, key: PhraseKey| marked(mark, language.plain(key));
    let line = match (decision, chosen, kind) {
        (Decision::TimedOut, _, QuestionKind::Approval) => return said('⌛', PhraseKey::NoAnswerDenied),
        (Decision::TimedOut, _, QuestionKind::Choice) => return said('⌛', PhraseKey::NoAnswerInTime),
        (Decision::Chosen(_), Some((label, meaning)), _) => match meaning {
            Meaning::AllowOnce => said('✅', PhraseKey::AllowedOnce),
            Meaning::AllowSession => said('✅', PhraseKey::AllowedSession),
            Meaning::AllowAlways => said('✅', PhraseKey::AllowedAlways),
            Meaning::Deny => said('❌', PhraseKey::Denied),
            Meaning::Plain => marked('✅', label),
        },
        (Decision::Cancelled | Decision::Chosen(_), _, _) if by.is_some() => said('❌', PhraseKey::Denied),
        (Decision::Cancelled | Decision::Chosen(_), _, _) => return said('⏹', PhraseKey::NoLongerAsked),
    };
    signed(line, by, language)
}

/// A line with a mark before it.
pub(super) fn marked(mark: char, line: &str) -> String {
    format!("{mark} {}", paired_ticks(line))
}

/// A line with whose doing it is.
pub(super) fn signed(line: String, by: Option<&Person>, language: Language) -> String {
    match by.and_then(|person| person.name.as_deref()) {
        Some(name) => {
            let (decision, person) = (&line, &person_name(name));
            language.say(ChatPhrase::DecidedBy { decision, person })
        }
        None => line,
    }
}

/// Both ends of a very long text, and the number of bytes between them. Each end is longer than a question may be, so
/// the place where they meet is never shown.
fn ends_of(text: &str) -> (Cow<'_, str>, usize) {
    if text.len() <= 2 * MAX_VERBATIM {
        return (text.into(), 0);
    }
    let head = truncate_bytes(text, MAX_VERBATIM).len();
    let tail = truncate_bytes(text, text.len() - MAX_VERBATIM).len();
    ([&text[..head], &text[tail..]].concat().into(), tail - head)
}

/// Replaces invisible characters that must not go unnoticed.
const INVISIBLE_MARK: char = '\u{fffd}';
/// A zero-width space; keeps two backticks from being read as one mark.
const ZERO_WIDTH: char = '\u{200b}';
/// Longest name of a person.
const NAME_POINTS: usize = 32;
/// Characters with a meaning of their own in some dialect.
const MARKUP: &str = "@<>`*_~|[](){}#:/\\";

/// One line of at most `max` code points: white space is folded, a cut is marked.
fn clean_line(text: &str, max: usize) -> String {
    let line = one_line(text, max + 1);
    if line.chars().count() <= max {
        return line;
    }
    format!("{}…", truncate(&line, max.saturating_sub(1)).trim_end())
}

/// A person's name: short, one line, and without mentions.
fn person_name(text: &str) -> String {
    let plain: String = text
        .chars()
        .take(NAME_POINTS * 8)
        .map(|point| if MARKUP.contains(point) { ' ' } else { point })
        .collect();
    let name = clean_line(&plain, NAME_POINTS);
    if name.is_empty() {
        "someone".to_owned()
    } else {
        name
    }
}

/// The first `max` code points as lines: nothing invisible, at most one empty line in a row.
fn paragraph(text: &str, max: usize) -> String {
    let mut kept = String::new();
    for point in text.chars().take(max) {
        match point {
            '\n' if kept.ends_with("\n\n") => {}
            '\n' => kept.push('\n'),
            _ if point.is_whitespace() => kept.push(' '),
            _ if is_invisible(point) => {}
            _ => kept.push(point),
        }
    }
    kept.trim().to_owned()
}

/// The text with its backticks only if they are single and paired; others could swallow what follows.
fn paired_ticks(text: &str) -> String {
    let paired = text.matches('`').count().is_multiple_of(2) && !text.contains("``") && !text.contains("\\`");
    if paired {
        text.to_owned()
    } else {
        text.replace('`', "'")
    }
}

/// A verbatim text: invisible characters are replaced by a mark, and no line closes a code block.
fn verbatim(text: &str) -> String {
    let mut kept = String::new();
    let mut points = text.trim_end_matches(['\n', '\r']).chars().peekable();
    let mut before = '\0';
    while let Some(point) = points.next() {
        match point {
            '\r' if points.peek() == Some(&'\n') => continue,
            '\n' | '\t' => kept.push(point),
            '`' if before == '`' => kept.extend([ZERO_WIDTH, '`']),
            _ if is_invisible(point) => kept.push(INVISIBLE_MARK),
            _ => kept.push(point),
        }
        before = point;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_mentions_nobody() {
        for (given, shown) in [
            ("Ann", "Ann"),
            ("  Ann\n\tLee ", "Ann Lee"),
            ("@everyone", "everyone"),
            ("<@123> <!here>", "123 !here"),
            ("[x](https://evil.example)", "x https evil.example"),
            ("\u{202e}nnA\u{200b}\u{7}", "nnA"),
            ("\u{3164}\n", "someone"),
            ("", "someone"),
        ] {
            assert_eq!(person_name(given), shown, "{given:?}");
        }
        let long = person_name(&"å".repeat(5_000));
        assert!(long.chars().count() == NAME_POINTS && long.ends_with('…'));
    }

    #[test]
    fn a_verbatim_text_marks_invisible_characters_and_closes_no_block() {
        for (given, shown) in [
            ("ls -la\n", "ls -la"),
            ("a\r\nb\rc", "a\nb\u{fffd}c"),
            ("safe\u{202e}live", "safe\u{fffd}live"),
            ("a``b", "a`\u{200b}`b"),
        ] {
            assert_eq!(verbatim(given), shown, "{given:?}");
        }
        for ticks in 2..9 {
            let hostile = format!("x\n{}\n@everyone", "`".repeat(ticks));
            assert!(!verbatim(&hostile).contains("``"));
        }
        assert_eq!(verbatim("`\r\n`"), "`\n`");
    }

    #[test]
    fn backticks_stay_only_where_they_are_paired() {
        for (given, shown) in [
            ("run `ls`?", "run `ls`?"),
            ("run `ls?", "run 'ls?"),
            ("```\nrun", "'''\nrun"),
            ("a \\` b `", "a \\' b '"),
        ] {
            assert_eq!(paired_ticks(given), shown);
        }
    }

    #[test]
    fn a_line_folds_white_space_and_marks_a_cut() {
        assert_eq!(clean_line(" a \n\u{2003} b\u{0} ", 75), "a b");
        assert_eq!(clean_line("abcdef", 6), "abcdef");
        assert_eq!(clean_line("abcdefg", 6), "abcde…");
        assert_eq!(clean_line("abcde   ", 5), "abcde");
        assert_eq!(paragraph("a\n\n\n\n\u{200b}b\u{2028}c", 99), "a\n\nb c");
    }
}
