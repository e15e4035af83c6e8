//! Tools and plan as one message that grows.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::exchange::{Ending, PlanLine, StepState, ToolLine};
use super::settings::SpeechSettings;
use crate::wire::LenUnit;

/// Names of tools that are remembered, to tell a new use from news of an old one.
const MOST_NAMES: usize = 256;
/// Bytes of a name that are looked at.
const NAME_BYTES: usize = 128;

#[derive(Debug)]
struct Line {
    id: String,
    text: String,
    state: StepState,
}

/// The lines of progress.
#[derive(Debug)]
pub(super) struct Progress {
    tools: VecDeque<Line>,
    plan: Vec<Line>,
    names: VecDeque<String>,
    lines: usize,
    line_chars: usize,
}

impl Progress {
    pub(super) fn new(settings: &SpeechSettings) -> Self {
        Self {
            tools: VecDeque::new(),
            plan: Vec::new(),
            names: VecDeque::new(),
            lines: settings.progress_lines.max(1),
            line_chars: settings.progress_line_chars.max(1),
        }
    }

    /// Takes news of a tool; tells whether it is a new one.
    pub(super) fn tool(&mut self, line: &ToolLine) -> bool {
        let id = name(&line.id);
        let is_new = !self.names.iter().any(|known| known == id);
        if is_new {
            self.names.push_back(id.to_owned());
            if self.names.len() > MOST_NAMES {
                self.names.pop_front();
            }
        }
        let text = one_line(&line.title, self.line_chars);
        if let Some(known) = self.tools.iter_mut().find(|known| known.id == id) {
            known.state = line.state;
            if !text.is_empty() {
                known.text = text;
            }
        } else if is_new {
            self.tools.push_back(Line {
                id: id.to_owned(),
                text,
                state: line.state,
            });
            if self.tools.len() > self.lines {
                self.tools.pop_front();
            }
        }
        is_new
    }

    pub(super) fn plan(&mut self, steps: &[PlanLine]) {
        // The steps before the one under way matter least.
        let at = steps
            .iter()
            .position(|step| matches!(step.state, StepState::Pending | StepState::Running));
        let from = at
            .unwrap_or(steps.len())
            .saturating_sub(1)
            .min(steps.len().saturating_sub(self.lines));
        let line = |step: &PlanLine| Line {
            id: String::new(),
            text: one_line(&step.text, self.line_chars),
            state: step.state,
        };
        self.plan = steps.iter().skip(from).take(self.lines).map(line).collect();
    }

    /// The message; the oldest lines are left out where there is no room. `end` says what became of what was under
    /// way.
    pub(super) fn render(&self, end: Option<Ending>, limit: usize, unit: LenUnit) -> String {
        let mut kept: Vec<String> = Vec::new();
        let mut length = 0;
        for line in self.plan.iter().chain(&self.tools).rev() {
            let mut text = String::new();
            let _ = write!(text, "{} {}", mark(line.state, end), line.text);
            length += unit.measure(&text) + 1;
            if length > limit.saturating_add(1) {
                break;
            }
            kept.push(text);
        }
        kept.reverse();
        kept.join("\n")
    }
}

fn mark(state: StepState, end: Option<Ending>) -> char {
    match (state, end) {
        (StepState::Pending, _) => '\u{25cb}',
        (StepState::Running, None) => '\u{25b8}',
        (StepState::Done, _) | (StepState::Running, Some(Ending::Done)) => '\u{2713}',
        (StepState::Running, Some(Ending::Stopped)) => '\u{25a0}',
        (StepState::Failed, _) | (StepState::Running, Some(Ending::Failed)) => '\u{2717}',
    }
}

fn name(id: &str) -> &str {
    let most = NAME_BYTES.min(id.len());
    let end = (0..=most).rev().find(|at| id.is_char_boundary(*at));
    &id[..end.unwrap_or(0)]
}

/// A text as one line of at most `most` characters, without control characters.
fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut chars = 0;
    for word in text.split(|point: char| point.is_whitespace() || point.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
            chars += 1;
        }
        for point in word.chars() {
            if chars + 1 >= most {
                line.push('\u{2026}');
                return line;
            }
            line.push(point);
            chars += 1;
        }
    }
    line
}
