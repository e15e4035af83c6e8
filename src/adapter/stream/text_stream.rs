//! The text of a turn on its way to the chat: at most one op in flight, every op a state of the text so far.
//!
//! A send whose outcome is unknown is not repeated before the end, and a message counts as delivered only once the
//! connector acknowledged exactly its text. A refusal never loses text: what cannot be shown now is sent at the end,
//! unless it was refused for lack of permission.

use std::collections::VecDeque;
use std::time::Duration;

use smol_str::SmolStr;

use super::draft_ids::DRAFT_IDS;
use super::pending_text::{Boundary, PendingText, Shown, Trail};
use super::settings::StreamSettings;
use super::strategy::{Drafts, Strategies, Strategy};
use super::types::OpOutcome;
use crate::adapter::action_builder::{ActionBuilder, TextKind};
use crate::adapter::split::{closing_room, split_continuation};
use crate::wire::{Action, OpId};

/// Maximum pending notices; further ones are appended to the last.
const MAX_NOTICES: usize = 16;

/// Which op shows more of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextOp {
    /// A new message.
    Send(TextExtent),
    /// New text for the message that is shown.
    Edit(TextExtent),
    /// New text for the draft; a complete one is sealed.
    Draft(TextExtent),
}

/// How much of a message an op shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextExtent {
    /// The text so far; more will follow.
    Growing,
    /// The complete text.
    Complete,
}

/// Whether the agent is writing just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// The agent writes: a little text waits for more.
    Writing,
    /// The agent has paused.
    Paused,
}

/// What an op in flight shows.
#[derive(Debug, Clone, Copy)]
enum OpContent {
    Text {
        op: TextOp,
        /// The length of the new text.
        fresh: usize,
    },
    Notice,
}

#[derive(Debug)]
pub(super) struct TextInFlight {
    id: OpId,
    purpose: OpContent,
    text: String,
}

/// The growing text of a turn's answer.
#[derive(Debug)]
pub(super) struct TextStream {
    pub(super) pending: PendingText,
    pub(super) strategy: Strategy,
    pub(super) strategies: Strategies,
    pub(super) notices: VecDeque<String>,
    pub(super) draft_id: u64,
    last_draft_id: u64,
    pub(super) pace: EditPace,
    /// Boxed: a short answer has none, and is smaller without the room for it.
    pub(super) in_flight: Option<Box<TextInFlight>>,
    cursor: SmolStr,
    /// When the agent last did something, and how long it is idle when it pauses.
    active_at: Duration,
    pause: Duration,
    /// The longest text that leaves room for the cursor, and for the end of a fence.
    room: usize,
    buffer_chars: usize,
    hold: FirstHold,
}

/// Whether the first text of the turn waits for an end that may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstHold {
    /// There is no text yet; it will wait so long.
    Armed(Duration),
    /// It waits until then.
    Until(Duration),
    /// Nothing waits any more.
    Over,
}

impl TextStream {
    pub(super) fn new(
        settings: &StreamSettings,
        builder: &ActionBuilder,
        strategies: Strategies,
        draft_id: u64,
        now: Duration,
    ) -> Self {
        // A cursor that takes half of a message is worse than none.
        let width = builder.unit.measure(&settings.cursor);
        let (cursor, width) = match builder.limit / 2 {
            max if width > max => ("", 0),
            _ => (settings.cursor.as_str(), width),
        };
        Self {
            pending: PendingText::new(settings.first_chars, builder.unit),
            strategy: strategies.initial,
            strategies,
            notices: VecDeque::new(),
            draft_id,
            last_draft_id: draft_id.saturating_add(DRAFT_IDS - 1),
            pace: EditPace::new(settings.interval_ms, settings.max_interval_ms, now),
            in_flight: None,
            cursor: cursor.into(),
            active_at: now,
            pause: Duration::from_millis(settings.interval_ms.saturating_mul(2)),
            room: builder.limit - width.max(closing_room(builder.limit)),
            buffer_chars: settings.buffer_chars.max(1),
            hold: match settings.first_hold_ms {
                0 => FirstHold::Over,
                millis => FirstHold::Armed(Duration::from_millis(millis)),
            },
        }
    }

    pub(super) fn push(&mut self, text: &str) {
        if self.strategy != Strategy::Silent {
            self.pending.push(text);
            self.begin_hold();
        }
    }

    pub(super) fn replace(&mut self, text: &str) {
        if self.strategy != Strategy::Silent {
            self.pending.replace(text);
            self.begin_hold();
        }
    }

    pub(super) fn close(&mut self, boundary: Boundary) {
        self.release();
        self.pending.close(boundary);
    }

    /// The first text begins its wait. The caller has noted the time.
    fn begin_hold(&mut self) {
        if let FirstHold::Armed(hold) = self.hold {
            self.hold = FirstHold::Until(self.active_at.saturating_add(hold));
        }
    }

    /// The agent does something else: it is not about to end.
    pub(super) fn release(&mut self) {
        self.hold = FirstHold::Over;
    }

    /// When an op may go as far as the first text waits. A message that is complete does not wait.
    fn held_until(&self, op: TextOp) -> Duration {
        let (TextOp::Send(extent) | TextOp::Edit(extent) | TextOp::Draft(extent)) = op;
        match (self.hold, extent) {
            (FirstHold::Until(end), TextExtent::Growing) => end,
            _ => Duration::ZERO,
        }
    }

    pub(super) fn notice(&mut self, text: &str, builder: &ActionBuilder) {
        if self.strategy == Strategy::Silent || text.trim().is_empty() {
            return;
        }
        let full = self.notices.len() >= MAX_NOTICES;
        for piece in split_continuation(text, builder.limit, builder.unit) {
            match self.notices.back_mut() {
                Some(last) if full && fits(last, &piece, builder) => {
                    last.push('\n');
                    last.push_str(&piece);
                }
                _ => self.notices.push_back(piece),
            }
        }
    }

    /// The agent did something.
    pub(super) fn touch(&mut self, now: Duration) {
        self.active_at = self.active_at.max(now);
    }

    /// When the next op is due; nothing while one is in flight or none is wanted.
    pub(super) fn due(&self) -> Option<Duration> {
        if self.in_flight.is_some() || matches!(self.strategy, Strategy::Silent | Strategy::Held) {
            return None;
        }
        let next = self.pace.next();
        if !self.notices.is_empty() {
            return Some(next);
        }
        if let Some(op) = self.next_op(Flow::Writing) {
            return Some(next.max(self.held_until(op)));
        }
        let op = self.next_op(Flow::Paused)?;
        let paused = self.active_at.saturating_add(self.pause);
        Some(next.max(paused).max(self.held_until(op)))
    }

    /// The next op, when it is due.
    pub(super) fn poll(&mut self, id: OpId, builder: &ActionBuilder, now: Duration) -> Option<Action> {
        self.due().filter(|due| *due <= now)?;
        let paused = self.active_at.saturating_add(self.pause) <= now;
        let flow = if paused { Flow::Paused } else { Flow::Writing };
        let (purpose, text, action) = self.take_next(flow, builder)?;
        self.pace.sent(now);
        self.release();
        self.in_flight = Some(Box::new(TextInFlight { id, purpose, text }));
        Some(action)
    }

    fn take_next(&mut self, flow: Flow, builder: &ActionBuilder) -> Option<(OpContent, String, Action)> {
        if let Some(notice) = self.notices.pop_front() {
            let action = builder.message(notice.clone(), TextKind::Plain);
            return Some((OpContent::Notice, notice, action));
        }
        loop {
            let op = self.next_op(flow)?;
            let (TextOp::Send(extent) | TextOp::Edit(extent) | TextOp::Draft(extent)) = op;
            let front = self.pending.front_mut()?;
            let text = match extent {
                TextExtent::Complete => front.head(self.room, builder.limit).part.clone(),
                TextExtent::Growing => front.body(),
            };
            if is_shown(&front.shown, &text, extent, &self.cursor)
                || (front.shown == Shown::Nothing && text.trim().is_empty())
            {
                match extent {
                    TextExtent::Complete => self.advance(),
                    TextExtent::Growing => front.fresh = 0,
                }
                continue;
            }
            let action = self.action(op, &text, builder)?;
            let front = self.pending.front_mut()?;
            let fresh = std::mem::take(&mut front.fresh);
            front.touched = true;
            if matches!(op, TextOp::Send(_)) && builder.forces_previews() {
                front.posted.clone_from(&text);
            }
            return Some((OpContent::Text { op, fresh }, text, action));
        }
    }

    /// The op that would show more, whenever it may go. Costs the same however long the text is.
    fn next_op(&self, flow: Flow) -> Option<TextOp> {
        let front = self.pending.front()?;
        let complete = front.is_complete(match self.strategy {
            Strategy::Segments => usize::MAX,
            _ => self.room,
        });
        let extent = |enough: bool| match (complete, enough) {
            (true, _) => Some(TextExtent::Complete),
            (false, true) => Some(TextExtent::Growing),
            (false, false) => None,
        };
        let begins = front.begins();
        let grows = front.fresh
            >= match flow {
                Flow::Writing => self.buffer_chars,
                Flow::Paused => 1,
            };
        match (self.strategy, &front.shown) {
            (Strategy::Segments, Shown::Nothing) => extent(false).map(TextOp::Send),
            (Strategy::Edits, Shown::Nothing | Shown::Stream { .. }) => extent(begins).map(TextOp::Send),
            (Strategy::Edits | Strategy::Drafts(_), Shown::Message { id: Some(_), .. })
                if self.strategies.edits =>
            {
                extent(grows).map(TextOp::Edit)
            }
            (Strategy::Drafts(drafts), Shown::Stream { .. }) if drafts == Drafts::Sealed || !complete => {
                extent(grows).map(TextOp::Draft)
            }
            (Strategy::Drafts(_), Shown::Nothing) if !complete => extent(begins).map(TextOp::Draft),
            (Strategy::Drafts(_), Shown::Nothing | Shown::Stream { .. }) => {
                Some(TextOp::Send(TextExtent::Complete))
            }
            (Strategy::Silent | Strategy::Held | Strategy::Segments, _)
            | (_, Shown::Unsure | Shown::Message { .. }) => None,
        }
    }

    fn action(&self, op: TextOp, text: &str, builder: &ActionBuilder) -> Option<Action> {
        let with_cursor = || [text, &self.cursor].concat();
        Some(match op {
            TextOp::Send(TextExtent::Growing) => builder.reply(with_cursor(), TextKind::Growing),
            TextOp::Send(TextExtent::Complete) => builder.reply(text.to_owned(), TextKind::Plain),
            TextOp::Edit(extent) => {
                let Shown::Message { id: Some(id), .. } = &self.pending.front()?.shown else {
                    return None;
                };
                let content = match extent {
                    TextExtent::Growing => with_cursor(),
                    TextExtent::Complete => text.to_owned(),
                };
                builder.edit(id, content, TextKind::Plain)
            }
            TextOp::Draft(extent) => {
                let sealed = extent == TextExtent::Complete;
                builder.draft(self.draft_id, text.to_owned(), sealed, TextKind::Plain)
            }
        })
    }

    /// The first message is delivered; the next draft is a new one.
    fn advance(&mut self) {
        self.pending.advance();
        if self.draft_id < self.last_draft_id {
            self.draft_id += 1;
        } else if matches!(self.strategy, Strategy::Drafts(_)) {
            self.strategy = self.strategies.without_drafts;
        }
    }

    /// The outcome of the op in flight; `false` when that is another op.
    pub(super) fn op_finished(&mut self, id: OpId, outcome: &OpOutcome, now: Duration) -> bool {
        let Some(TextInFlight { purpose, text, .. }) = self.in_flight.take_if(|op| op.id == id).map(|op| *op)
        else {
            return false;
        };
        match outcome {
            OpOutcome::Applied { message_id } => self.applied(purpose, text, message_id.as_deref()),
            OpOutcome::Declined => self.silence(),
            OpOutcome::RateLimited { retry_after } => {
                self.pace.slow(*retry_after, now);
                self.put_back(purpose, text);
            }
            OpOutcome::Refused => self.refused(purpose),
            OpOutcome::Unknown => {
                self.pace.retry(now);
                self.unknown(purpose, text);
            }
            OpOutcome::NotSent | OpOutcome::Dropped => {
                self.pace.retry(now);
                self.put_back(purpose, text);
            }
        }
        true
    }

    /// The turn ends while an op may be in flight.
    pub(super) fn abandon(&mut self, now: Duration) {
        if let Some(id) = self.in_flight.as_ref().map(|op| op.id) {
            self.op_finished(id, &OpOutcome::Unknown, now);
        }
    }

    /// Sends nothing more.
    fn silence(&mut self) {
        self.strategy = Strategy::Silent;
        self.pending.clear();
        self.notices.clear();
    }

    fn applied(&mut self, purpose: OpContent, text: String, message_id: Option<&str>) {
        let (OpContent::Text { op, .. }, Some(front)) = (purpose, self.pending.front_mut()) else {
            return;
        };
        let (extent, id) = match (op, &front.shown) {
            (TextOp::Draft(TextExtent::Growing), _) => {
                front.shown = Shown::Stream { text };
                return;
            }
            (TextOp::Edit(extent), Shown::Message { id, .. }) => (extent, id.clone()),
            (TextOp::Send(extent) | TextOp::Edit(extent) | TextOp::Draft(extent), _) => {
                (extent, message_id.map(str::to_owned))
            }
        };
        let complete = extent == TextExtent::Complete && front.is_head(&text);
        // A message without an id cannot be edited: one that is incomplete continues at the end.
        if id.is_none() && self.strategy == Strategy::Edits {
            self.strategy = Strategy::Segments;
        }
        front.shown = Shown::Message {
            id,
            text,
            trail: trail(extent, &self.cursor),
        };
        if complete {
            self.advance();
        }
    }

    fn refused(&mut self, purpose: OpContent) {
        let (OpContent::Text { op, .. }, Some(front)) = (purpose, self.pending.front_mut()) else {
            return;
        };
        self.strategy = match (op, &front.shown) {
            // A half-written stream is followed by the whole text, and by nothing before it.
            (TextOp::Draft(_), Shown::Stream { .. }) if self.strategy == Strategy::Drafts(Drafts::Sealed) => {
                Strategy::Held
            }
            (TextOp::Draft(_), _) => self.strategies.without_drafts,
            (TextOp::Send(_) | TextOp::Edit(_), _) => Strategy::Held,
        };
        if matches!(front.shown, Shown::Stream { .. }) {
            front.shown = Shown::Nothing;
        }
    }

    fn unknown(&mut self, purpose: OpContent, text: String) {
        let (OpContent::Text { op, .. }, Some(front)) = (purpose, self.pending.front_mut()) else {
            return;
        };
        match op {
            TextOp::Send(_) => {
                front.shown = Shown::Unsure;
                self.strategy = Strategy::Held;
            }
            TextOp::Edit(_) => {
                if let Shown::Message { trail, .. } = &mut front.shown {
                    *trail = Trail::Unknown;
                }
                self.put_back(purpose, text);
            }
            TextOp::Draft(_) => {
                front.shown = Shown::Stream { text: text.clone() };
                self.put_back(purpose, text);
            }
        }
    }

    /// Another op will show what this one would have shown.
    fn put_back(&mut self, purpose: OpContent, text: String) {
        match purpose {
            OpContent::Notice => self.notices.push_front(text),
            OpContent::Text { fresh, .. } => {
                if let Some(front) = self.pending.front_mut() {
                    front.fresh = front.fresh.saturating_add(fresh);
                }
            }
        }
    }
}

/// Whether a line can be added to a message.
fn fits(message: &str, line: &str, builder: &ActionBuilder) -> bool {
    builder.unit.measure(message) + builder.unit.measure(line) < builder.limit
}

/// What an op shows after its text.
fn trail(extent: TextExtent, cursor: &str) -> Trail {
    match extent {
        TextExtent::Growing if !cursor.is_empty() => Trail::Cursor,
        TextExtent::Growing | TextExtent::Complete => Trail::Clean,
    }
}

/// Whether the chat shows exactly this already.
fn is_shown(shown: &Shown, text: &str, extent: TextExtent, cursor: &str) -> bool {
    matches!(shown, Shown::Message { text: seen, trail: after, .. } if *after == trail(extent, cursor) && seen == text)
}

/// The time between two ops; it grows when the platform limits the rate, and never shrinks within a turn.
#[derive(Debug)]
pub(super) struct EditPace {
    interval: Duration,
    max: Duration,
    next: Duration,
}

impl EditPace {
    pub(super) fn new(interval_ms: u64, max_ms: u64, first: Duration) -> Self {
        let interval = Duration::from_millis(interval_ms);
        Self {
            interval,
            max: Duration::from_millis(max_ms).max(interval),
            next: first,
        }
    }

    /// When the next op may go.
    pub(super) fn next(&self) -> Duration {
        self.next
    }

    /// An op was sent.
    pub(super) fn sent(&mut self, now: Duration) {
        self.next = now.saturating_add(self.interval);
    }

    /// An op has to be retried.
    pub(super) fn retry(&mut self, now: Duration) {
        self.next = self.next.max(now.saturating_add(self.interval));
    }

    /// The platform limits the rate.
    pub(super) fn slow(&mut self, retry_after: Option<Duration>, now: Duration) {
        // Doubling nothing would never get slower.
        let floor = Duration::from_millis(100);
        self.interval = (self.interval.max(floor) * 2).min(self.max);
        let wait = self.interval.max(retry_after.unwrap_or_default());
        self.next = self.next.max(now.saturating_add(wait));
    }
}
