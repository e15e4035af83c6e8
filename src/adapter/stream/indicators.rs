//! Indicators of a running turn: the reaction on the answered message, typing, and the progress message.
//!
//! Every op here may be dropped or fail without harm. At most one is in flight; what fails is not insisted on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::settings::StreamSettings;
use super::text_stream::EditPace;
use super::types::{OpOutcome, PlanLine, Priority, StepState, StreamTarget, ToolLine, TurnResult};
use crate::adapter::action_builder::{ActionBuilder, TextKind};
use crate::adapter::slack::is_slack;
use crate::wire::{Action, LenUnit, OpId, Platform};
use crate::words::Language;

/// The reaction on the answered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaction {
    Unwanted,
    Wanted,
    /// Added, or possibly added.
    Added,
}

/// The state of the message that shows progress.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProgressMessage {
    /// There is no progress message, or it is not edited any more.
    Unwanted,
    /// Not sent yet.
    Absent,
    /// Shown, as last acknowledged.
    Shown { id: String, text: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typing {
    /// No typing is shown, or not any more.
    Unwanted,
    /// Not shown yet.
    Waiting,
    /// Shown at least once.
    Shown,
}

#[derive(Debug)]
enum IndicatorOp {
    Reaction,
    Typing,
    Progress { text: String },
}

/// The indicators of a turn.
#[derive(Debug)]
pub(super) struct Indicators {
    settings: Arc<StreamSettings>,
    reaction: Reaction,
    typing: Typing,
    next_typing: Duration,
    message: ProgressMessage,
    /// What the progress message shows; nothing while there is neither a tool call nor a plan.
    progress: Option<Box<Progress>>,
    /// Whether the progress message is out of date.
    stale: bool,
    pace: EditPace,
    in_flight: Option<(OpId, IndicatorOp)>,
    /// Whether typing shows what the settings say.
    has_status: bool,
    /// Nothing before this: the platform limits the rate.
    held_until: Duration,
    /// Shows how long the turn runs.
    watch: Option<Watch>,
}

/// The time that the progress message of a long turn shows.
#[derive(Debug)]
struct Watch {
    started: Duration,
    /// When it is shown first, and from then on when it is shown next.
    next: Duration,
    is_shown: bool,
    language: Language,
}

impl Watch {
    /// How long a shown time stays: the longer the turn runs, the less each second matters.
    fn interval(elapsed: Duration) -> Duration {
        match elapsed.as_secs() {
            0..120 => Duration::from_secs(10),
            120..600 => Duration::from_secs(30),
            _ => Duration::from_secs(60),
        }
    }

    /// The line with the time, once it is shown; with the current step while there is one.
    fn line(&self, step: Option<&str>, now: Duration) -> Option<String> {
        let elapsed = now.saturating_sub(self.started);
        let time = self.is_shown.then(|| self.language.duration(elapsed))?;
        Some(match step {
            Some(step) => format!("\u{23f1} {time}: {step}"),
            None => format!("\u{23f1} {time}"),
        })
    }
}

impl Indicators {
    pub(super) fn new(
        settings: &Arc<StreamSettings>,
        target: &StreamTarget,
        edits: bool,
        now: Duration,
    ) -> Self {
        let reacts = settings.reactions && target.supports("react") && target.chat.facts.message_id.is_some();
        let soon = now + Duration::from_millis(settings.typing_after_ms);
        Self {
            reaction: if reacts {
                Reaction::Wanted
            } else {
                Reaction::Unwanted
            },
            typing: if settings.typing && target.supports("typing") {
                Typing::Waiting
            } else {
                Typing::Unwanted
            },
            next_typing: soon,
            message: if edits {
                ProgressMessage::Absent
            } else {
                ProgressMessage::Unwanted
            },
            progress: None,
            stale: false,
            pace: EditPace::new(settings.interval_ms, settings.max_interval_ms, soon),
            in_flight: None,
            has_status: settings.status_text.is_some() && is_slack(&target.chat.id),
            held_until: Duration::ZERO,
            watch: None,
            settings: Arc::clone(settings),
        }
    }

    /// The indicators of a turn that ended with its process, which may have shown any of them. Whether there was a progress message
    /// is not known.
    pub(super) fn left(settings: &Arc<StreamSettings>, target: &StreamTarget) -> Self {
        let mut left = Self::new(settings, target, false, Duration::ZERO);
        if left.reaction == Reaction::Wanted {
            left.reaction = Reaction::Added;
        }
        if left.typing == Typing::Waiting {
            left.typing = Typing::Shown;
        }
        left
    }

    /// Shows how long the turn that began `now` runs, once it runs for this long.
    pub(super) fn show_time(&mut self, after: Duration, now: Duration, language: Language) {
        self.watch = Some(Watch {
            started: now,
            next: now.saturating_add(after),
            is_shown: false,
            language,
        });
    }

    /// Updates a tool call; returns whether it is a new one.
    pub(super) fn tool(&mut self, line: &ToolLine) -> bool {
        self.stale = true;
        self.progress().tool(line)
    }

    pub(super) fn plan(&mut self, steps: &[PlanLine]) {
        self.stale = true;
        self.progress().plan(steps);
    }

    fn progress(&mut self) -> &mut Progress {
        let new = || Box::new(Progress::new(&self.settings));
        self.progress.get_or_insert_with(new)
    }

    /// Sends nothing more.
    pub(super) fn silence(&mut self) {
        self.reaction = Reaction::Unwanted;
        self.typing = Typing::Unwanted;
        self.message = ProgressMessage::Unwanted;
    }

    /// The platform limited the rate of another op.
    pub(super) fn hold(&mut self, until: Duration) {
        self.held_until = self.held_until.max(until);
    }

    fn progress_due(&self) -> Option<Duration> {
        if self.message == ProgressMessage::Unwanted {
            return None;
        }
        let shows_change =
            self.settings.tool_progress || self.watch.as_ref().is_some_and(|watch| watch.is_shown);
        let stale = (self.stale && shows_change).then_some(Duration::ZERO);
        let time = self.watch.as_ref().map(|watch| watch.next);
        let due = stale.into_iter().chain(time).min()?;
        Some(due.max(self.pace.next()))
    }

    fn typing_due(&self) -> Option<Duration> {
        (self.typing != Typing::Unwanted).then_some(self.next_typing)
    }

    pub(super) fn due(&self) -> Option<Duration> {
        if self.in_flight.is_some() {
            return None;
        }
        let reaction = (self.reaction == Reaction::Wanted).then_some(Duration::ZERO);
        let due = [reaction, self.typing_due(), self.progress_due()];
        due.into_iter()
            .flatten()
            .min()
            .map(|due| due.max(self.held_until))
    }

    /// The next op, its priority and its deadline.
    pub(super) fn poll(
        &mut self,
        id: OpId,
        builder: &ActionBuilder,
        now: Duration,
    ) -> Option<(Action, Priority, Option<Duration>)> {
        self.due().filter(|due| *due <= now)?;
        let deadline = now + Duration::from_millis(self.settings.typing_deadline_ms);
        let past = |due: Option<Duration>| due.is_some_and(|due| due <= now);
        if self.reaction == Reaction::Wanted {
            self.reaction = Reaction::Added;
            self.in_flight = Some((id, IndicatorOp::Reaction));
            let action = react(builder, RUNNING, false)?;
            return Some((action, Priority::Activity, Some(deadline)));
        }
        if past(self.typing_due()) {
            self.typing = Typing::Shown;
            self.next_typing = now + Duration::from_millis(self.settings.typing_every_ms.max(1));
            self.in_flight = Some((id, IndicatorOp::Typing));
            let status = self.settings.status_text.clone().filter(|_| self.has_status);
            let action = typing(builder, status);
            return Some((action, Priority::Activity, Some(deadline)));
        }
        if !past(self.progress_due()) {
            return None;
        }
        self.stale = false;
        if let Some(watch) = self.watch.as_mut().filter(|watch| watch.next <= now) {
            watch.is_shown = true;
            watch.next = now.saturating_add(Watch::interval(now.saturating_sub(watch.started)));
        }
        let text = self.render(None, builder, now);
        let action = match &self.message {
            ProgressMessage::Shown { text: shown, .. } if *shown == text => return None,
            ProgressMessage::Shown { id, .. } => builder.edit(id, text.clone(), TextKind::Plain),
            ProgressMessage::Absent if !text.is_empty() => builder.message(text.clone(), TextKind::Growing),
            ProgressMessage::Absent | ProgressMessage::Unwanted => return None,
        };
        self.pace.sent(now);
        self.in_flight = Some((id, IndicatorOp::Progress { text }));
        Some((action, Priority::Indicator, None))
    }

    /// The text of the progress message.
    fn render(&self, result: Option<TurnResult>, builder: &ActionBuilder, now: Duration) -> String {
        let progress = self.progress.as_deref();
        let step = progress.filter(|_| result.is_none()).and_then(Progress::current);
        let time = self.watch.as_ref().and_then(|watch| watch.line(step, now));
        let room = builder.limit
            - time
                .as_ref()
                .map_or(0, |line| builder.unit.measure(line) + 1)
                .min(builder.limit);
        let listed = progress.filter(|_| self.settings.tool_progress);
        let steps = listed.map(|progress| progress.render(result, room, builder.unit));
        let steps = steps.filter(|steps| !steps.is_empty());
        time.into_iter().chain(steps).collect::<Vec<_>>().join("\n")
    }

    /// The outcome of the op in flight; another op is ignored.
    pub(super) fn op_finished(&mut self, id: OpId, outcome: &OpOutcome, now: Duration) {
        let Some((_, purpose)) = self.in_flight.take_if(|(in_flight, _)| *in_flight == id) else {
            return;
        };
        match outcome {
            OpOutcome::Declined => return self.silence(),
            OpOutcome::RateLimited { retry_after } => {
                self.pace.slow(*retry_after, now);
                self.hold(self.pace.next());
            }
            _ => {}
        }
        match purpose {
            IndicatorOp::Reaction => {
                if !matches!(outcome, OpOutcome::Applied { .. } | OpOutcome::Unknown) {
                    self.reaction = Reaction::Unwanted;
                }
            }
            IndicatorOp::Typing => {
                if *outcome == OpOutcome::Refused {
                    self.typing = Typing::Unwanted;
                }
            }
            IndicatorOp::Progress { text } => self.progress_finished(text, outcome, now),
        }
    }

    fn progress_finished(&mut self, text: String, outcome: &OpOutcome, now: Duration) {
        match (outcome, &mut self.message) {
            (_, ProgressMessage::Unwanted) => {}
            (OpOutcome::Applied { .. }, ProgressMessage::Shown { text: shown, .. }) => *shown = text,
            (OpOutcome::Applied { message_id: Some(id) }, ProgressMessage::Absent) => {
                self.message = ProgressMessage::Shown { id: id.clone(), text };
            }
            // A second progress message beside one that may be there would confuse more than none.
            (OpOutcome::Applied { message_id: None } | OpOutcome::Unknown, ProgressMessage::Absent)
            | (OpOutcome::Refused | OpOutcome::Declined, _) => self.message = ProgressMessage::Unwanted,
            (
                OpOutcome::NotSent | OpOutcome::Dropped | OpOutcome::RateLimited { .. } | OpOutcome::Unknown,
                _,
            ) => {
                self.stale = true;
                self.pace.retry(now);
            }
        }
    }

    /// The indicators of the end.
    pub(super) fn finish(&self, result: TurnResult, builder: &ActionBuilder, now: Duration) -> Vec<Action> {
        let mut last = Vec::new();
        if self.reaction == Reaction::Added {
            last.extend(react(builder, RUNNING, true));
            let emoji = result_emoji(result, builder);
            last.extend(emoji.and_then(|emoji| react(builder, emoji, false)));
        }
        if self.typing == Typing::Shown && self.has_status {
            last.push(typing(builder, Some(String::new())));
        }
        if let ProgressMessage::Shown { id, text } = &self.message {
            let rendered = self.render(Some(result), builder, now);
            let in_flight = matches!(self.in_flight, Some((_, IndicatorOp::Progress { .. })));
            if rendered != *text || in_flight {
                last.push(builder.edit(id, rendered, TextKind::Plain));
            }
        }
        last
    }
}

/// The reaction while the turn runs.
const RUNNING: &str = "\u{1f440}";

/// The reaction at the end of a turn.
fn result_emoji(result: TurnResult, builder: &ActionBuilder) -> Option<&'static str> {
    // Telegram allows only reactions of its own list.
    let telegram = builder.chat.id.platform == Platform::TELEGRAM.as_str();
    match result {
        TurnResult::Done if telegram => Some("\u{1f44d}"),
        TurnResult::Failed if telegram => Some("\u{1f44e}"),
        TurnResult::Done => Some("\u{2705}"),
        TurnResult::Failed => Some("\u{274c}"),
        TurnResult::Stopped => None,
    }
}

fn react(builder: &ActionBuilder, emoji: &str, remove: bool) -> Option<Action> {
    Some(Action::React {
        chat_id: builder.chat.id.chat.clone(),
        message_id: builder.answered()?,
        emoji: emoji.to_owned(),
        remove,
        metadata: builder.indicator_tags(),
    })
}

fn typing(builder: &ActionBuilder, content: Option<String>) -> Action {
    Action::Typing {
        chat_id: builder.chat.id.chat.clone(),
        metadata: builder.indicator_tags(),
        content,
    }
}

/// Maximum tool call ids remembered, to distinguish a new call from an update.
const MAX_TOOL_IDS: usize = 256;
/// Compared bytes of a tool call id.
const TOOL_ID_BYTES: usize = 128;

#[derive(Debug)]
struct ProgressLine {
    id: String,
    text: String,
    state: StepState,
}

/// Tool calls and plan as the lines of one message.
#[derive(Debug)]
struct Progress {
    tools: VecDeque<ProgressLine>,
    plan: Vec<ProgressLine>,
    tool_ids: VecDeque<String>,
    lines: usize,
    line_chars: usize,
}

impl Progress {
    fn new(settings: &StreamSettings) -> Self {
        Self {
            tools: VecDeque::new(),
            plan: Vec::new(),
            tool_ids: VecDeque::new(),
            lines: settings.progress_lines.max(1),
            line_chars: settings.progress_line_chars.max(1),
        }
    }

    /// Updates a tool call; returns whether it is a new one.
    fn tool(&mut self, line: &ToolLine) -> bool {
        let id = bounded_id(&line.id);
        let is_new = !self.tool_ids.iter().any(|known| known == id);
        if is_new {
            self.tool_ids.push_back(id.to_owned());
            if self.tool_ids.len() > MAX_TOOL_IDS {
                self.tool_ids.pop_front();
            }
        }
        let text = one_line(&line.title, self.line_chars);
        if let Some(known) = self.tools.iter_mut().find(|known| known.id == id) {
            known.state = line.state;
            if !text.is_empty() {
                known.text = text;
            }
        } else if is_new {
            self.tools.push_back(ProgressLine {
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

    fn plan(&mut self, steps: &[PlanLine]) {
        // The steps before the running one matter least.
        let at = steps
            .iter()
            .position(|step| matches!(step.state, StepState::Pending | StepState::Running));
        let from = at
            .unwrap_or(steps.len())
            .saturating_sub(1)
            .min(steps.len().saturating_sub(self.lines));
        let line = |step: &PlanLine| ProgressLine {
            id: String::new(),
            text: one_line(&step.text, self.line_chars),
            state: step.state,
        };
        self.plan = steps.iter().skip(from).take(self.lines).map(line).collect();
    }

    /// The step that runs: the newest tool call, else the step of the plan.
    fn current(&self) -> Option<&str> {
        let mut newest_first = self.tools.iter().rev().chain(&self.plan);
        let running = newest_first.find(|line| line.state == StepState::Running)?;
        Some(running.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The message; the oldest lines are left out where there is no room. `result` ends what is running.
    fn render(&self, result: Option<TurnResult>, limit: usize, unit: LenUnit) -> String {
        let mut kept: Vec<String> = Vec::new();
        let mut length = 0;
        for line in self.plan.iter().chain(&self.tools).rev() {
            let text = format!("{} {}", symbol(line.state, result), line.text);
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

fn symbol(state: StepState, result: Option<TurnResult>) -> char {
    match (state, result) {
        (StepState::Pending, _) => '\u{25cb}',
        (StepState::Running, None) => '\u{25b8}',
        (StepState::Done, _) | (StepState::Running, Some(TurnResult::Done)) => '\u{2713}',
        (StepState::Running, Some(TurnResult::Stopped)) => '\u{25a0}',
        (StepState::Failed, _) | (StepState::Running, Some(TurnResult::Failed)) => '\u{2717}',
    }
}

fn bounded_id(id: &str) -> &str {
    let max = TOOL_ID_BYTES.min(id.len());
    let end = (0..=max).rev().find(|at| id.is_char_boundary(*at));
    &id[..end.unwrap_or(0)]
}

/// A text as one line of at most `max` characters, without control characters.
fn one_line(text: &str, max: usize) -> String {
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
            if chars + 1 >= max {
                line.push('\u{2026}');
                return line;
            }
            line.push(point);
            chars += 1;
        }
    }
    line
}
