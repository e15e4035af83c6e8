//! The text of a turn on its way to the chat: at most one op out, every op a state of what was said.
//!
//! It never repeats a send whose fate is not known before the end, and never counts a message as delivered before
//! the connector acknowledged exactly its text.

use std::collections::VecDeque;
use std::time::Duration;

use super::exchange::Ticket;
use super::manner::{Drafts, Manner, Means};
use super::pace::Pace;
use super::segment::{Shown, Trail};
use super::settings::SpeechSettings;
use super::story::{Boundary, Story};
use crate::adapter::envelope::{Envelope, Note};
use crate::adapter::speech::Speech;
use crate::adapter::split::{closing_room, split_continuation};
use crate::wire::Action;

/// Notices that wait; at the bound, new ones are added to the last.
const MOST_NOTICES: usize = 16;

/// Which op shows more of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A new message.
    Send(Extent),
    /// New text for the message that is shown.
    Edit(Extent),
    /// New text for the draft; a complete one is sealed.
    Draft(Extent),
}

/// How much of a message an op shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// What is said so far; more will follow.
    Growing,
    /// All of it.
    Complete,
}

/// Whether the agent is speaking just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// It is: little text waits for more.
    Going,
    /// It is not.
    Paused,
}

/// What an op is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Errand {
    /// It shows more of the story.
    Step {
        /// Which way.
        step: Step,
        /// How much of it is new.
        fresh: usize,
    },
    /// It is a notice.
    Notice,
}

/// An op that is out.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) ticket: Ticket,
    pub(super) errand: Errand,
    pub(super) text: String,
}

/// The text of a turn.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) story: Story,
    pub(super) manner: Manner,
    pub(super) means: Means,
    pub(super) notices: VecDeque<String>,
    pub(super) draft_id: u64,
    last_draft_id: u64,
    pub(super) pace: Pace,
    pub(super) out: Option<Out>,
    pub(super) cursor: String,
    /// When the agent was heard last, and how long it is silent when it pauses.
    heard: Duration,
    pause: Duration,
    /// The longest text that leaves room for the cursor, and for the end of a fence.
    room: usize,
    first_chars: usize,
    buffer_chars: usize,
}

impl Talk {
    pub(super) fn new(
        settings: &SpeechSettings,
        envelope: &Envelope,
        means: Means,
        draft_id: u64,
        now: Duration,
    ) -> Self {
        // A cursor that takes half of a message is worse than none.
        let width = envelope.unit.measure(&settings.cursor);
        let (cursor, width) = match envelope.limit / 2 {
            most if width > most => ("", 0),
            _ => (settings.cursor.as_str(), width),
        };
        Self {
            story: Story::new(envelope.unit),
            manner: means.manner,
            means,
            notices: VecDeque::new(),
            draft_id,
            last_draft_id: draft_id.saturating_add(Speech::DRAFT_IDS - 1),
            pace: Pace::new(settings.interval_ms, settings.max_interval_ms, now),
            out: None,
            cursor: cursor.to_owned(),
            heard: now,
            pause: Duration::from_millis(settings.interval_ms.saturating_mul(2)),
            room: envelope.limit - width.max(closing_room(envelope.limit)),
            first_chars: settings.first_chars.max(1),
            buffer_chars: settings.buffer_chars.max(1),
        }
    }

    pub(super) fn say(&mut self, text: &str) {
        if self.manner != Manner::Silent {
            self.story.say(text);
        }
    }

    pub(super) fn replace(&mut self, text: &str) {
        if self.manner != Manner::Silent {
            self.story.replace(text);
        }
    }

    pub(super) fn close(&mut self, boundary: Boundary) {
        self.story.close(boundary);
    }

    pub(super) fn notice(&mut self, text: &str, envelope: &Envelope) {
        if self.manner == Manner::Silent || text.trim().is_empty() {
            return;
        }
        let full = self.notices.len() >= MOST_NOTICES;
        for piece in split_continuation(text, envelope.limit, envelope.unit) {
            match self.notices.back_mut() {
                Some(last) if full && fits(last, &piece, envelope) => {
                    last.push('\n');
                    last.push_str(&piece);
                }
                _ => self.notices.push_back(piece),
            }
        }
    }

    /// Whether an op is out.
    pub(super) fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// The agent was heard.
    pub(super) fn heard(&mut self, now: Duration) {
        self.heard = self.heard.max(now);
    }

    /// When the next op is due; nothing while one is out or none is wanted.
    pub(super) fn due(&self) -> Option<Duration> {
        if self.out.is_some() || matches!(self.manner, Manner::Silent | Manner::Held) {
            return None;
        }
        let next = self.pace.next();
        if !self.notices.is_empty() || self.step(Flow::Going).is_some() {
            return Some(next);
        }
        let step = self.step(Flow::Paused);
        step.map(|_| next.max(self.heard.saturating_add(self.pause)))
    }

    /// The next op, when it is due.
    pub(super) fn poll(&mut self, ticket: Ticket, envelope: &Envelope, now: Duration) -> Option<Action> {
        self.due().filter(|due| *due <= now)?;
        let paused = self.heard.saturating_add(self.pause) <= now;
        let flow = if paused { Flow::Paused } else { Flow::Going };
        let (errand, text, action) = self.next_op(flow, envelope)?;
        self.pace.went(now);
        self.out = Some(Out { ticket, errand, text });
        Some(action)
    }

    fn next_op(&mut self, flow: Flow, envelope: &Envelope) -> Option<(Errand, String, Action)> {
        if let Some(notice) = self.notices.pop_front() {
            let action = envelope.aside(notice.clone(), Note::Plain);
            return Some((Errand::Notice, notice, action));
        }
        loop {
            let step = self.step(flow)?;
            let (Step::Send(extent) | Step::Edit(extent) | Step::Draft(extent)) = step;
            let front = self.story.front_mut()?;
            let text = match extent {
                Extent::Complete => front.head(self.room, envelope.limit).part.clone(),
                Extent::Growing => front.body(),
            };
            if is_shown(&front.shown, &text, extent, &self.cursor)
                || (front.shown == Shown::Nothing && text.trim().is_empty())
            {
                match extent {
                    Extent::Complete => self.advance(),
                    Extent::Growing => front.fresh = 0,
                }
                continue;
            }
            let action = self.action(step, &text, envelope)?;
            let front = self.story.front_mut()?;
            let fresh = std::mem::take(&mut front.fresh);
            front.touched = true;
            return Some((Errand::Step { step, fresh }, text, action));
        }
    }

    /// The step that would show more, whenever it may be taken. Costs the same however long the text is.
    fn step(&self, flow: Flow) -> Option<Step> {
        let front = self.story.front()?;
        let complete = front.is_complete(match self.manner {
            Manner::Segments => usize::MAX,
            _ => self.room,
        });
        let extent = |enough: bool| match (complete, enough) {
            (true, _) => Some(Extent::Complete),
            (false, true) => Some(Extent::Growing),
            (false, false) => None,
        };
        let begins = front.visible() >= self.first_chars;
        let grows = front.fresh
            >= match flow {
                Flow::Going => self.buffer_chars,
                Flow::Paused => 1,
            };
        match (self.manner, &front.shown) {
            (Manner::Segments, Shown::Nothing) => extent(false).map(Step::Send),
            (Manner::Edits, Shown::Nothing | Shown::Stream { .. }) => extent(begins).map(Step::Send),
            (Manner::Edits | Manner::Drafts(_), Shown::Message { id: Some(_), .. }) if self.means.edits => {
                extent(grows).map(Step::Edit)
            }
            (Manner::Drafts(drafts), Shown::Stream { .. }) if drafts == Drafts::Sealed || !complete => {
                extent(grows).map(Step::Draft)
            }
            (Manner::Drafts(_), Shown::Nothing) if !complete => extent(begins).map(Step::Draft),
            (Manner::Drafts(_), Shown::Nothing | Shown::Stream { .. }) => Some(Step::Send(Extent::Complete)),
            (Manner::Silent | Manner::Held | Manner::Segments, _)
            | (_, Shown::Unsure | Shown::Message { .. }) => None,
        }
    }

    fn action(&self, step: Step, text: &str, envelope: &Envelope) -> Option<Action> {
        let with_cursor = || [text, &self.cursor].concat();
        Some(match step {
            Step::Send(Extent::Growing) => envelope.send(with_cursor(), Note::Growing),
            Step::Send(Extent::Complete) => envelope.send(text.to_owned(), Note::Plain),
            Step::Edit(extent) => {
                let Shown::Message { id: Some(id), .. } = &self.story.front()?.shown else {
                    return None;
                };
                let content = match extent {
                    Extent::Growing => with_cursor(),
                    Extent::Complete => text.to_owned(),
                };
                envelope.edit(id, content, Note::Plain)
            }
            Step::Draft(extent) => {
                let sealed = extent == Extent::Complete;
                envelope.draft(self.draft_id, text.to_owned(), sealed, Note::Plain)
            }
        })
    }

    /// The first message is delivered; the next draft is another.
    pub(super) fn advance(&mut self) {
        self.story.advance();
        if self.draft_id < self.last_draft_id {
            self.draft_id += 1;
        } else if matches!(self.manner, Manner::Drafts(_)) {
            self.manner = self.means.without_drafts;
        }
    }
}

/// Whether a line can be added to a message.
fn fits(message: &str, line: &str, envelope: &Envelope) -> bool {
    envelope.unit.measure(message) + envelope.unit.measure(line) < envelope.limit
}

/// Whether the chat shows just this already.
fn is_shown(shown: &Shown, text: &str, extent: Extent, cursor: &str) -> bool {
    let Shown::Message {
        text: seen, trail, ..
    } = shown
    else {
        return false;
    };
    let wanted = match extent {
        Extent::Growing if !cursor.is_empty() => Trail::Cursor,
        _ => Trail::Clean,
    };
    *trail == wanted && seen == text
}
