//! How one turn speaks in its chat: which ops show its text while it grows, and what is owed when it ends.
//!
//! It never sends anything and reads no clock: `now` is the time since some start that the caller chose.
//!
//! What the agent says is a row of segments, ended by tools and breaks; a segment is cut into messages as they fill up.
//! Text goes out by drafts, by edits, or by finished segments, whichever the platform offers and the settings want, and
//! with at most one op of text and one that decorates out at a time. What holds whatever happens:
//!
//! - A message is delivered when the connector acknowledged exactly its text; everything else is owed at the end.
//! - What is known to be on the screen is not said again; what may or may not be is said again at the end, in whole.
//! - A refusal as a matter of permission ends the turn's speech: no further op, and nothing is owed.
//! - Ops of text are an interval apart, however fast the agent speaks.

mod decor;
mod exchange;
mod farewell;
mod manner;
mod outcome;
mod pace;
mod progress;
mod segment;
mod settings;
mod story;
mod talk;
#[cfg(test)]
mod tests;

pub use exchange::{
    Ending, Farewell, Fate, Mark, OwedAction, Place, PlanLine, SpeechCounters, StepState, Ticket, ToolLine,
    Utterance, Weight,
};
pub use settings::{SpeechSettings, StreamMode};

use std::sync::Arc;
use std::time::Duration;

use self::decor::Decor;
use self::manner::{Manner, Means, follows_up};
use self::story::Boundary;
use self::talk::Talk;
use crate::adapter::envelope::Envelope;
use crate::wire::Action;

/// One turn's speech.
///
/// Tell it what the agent says; call [`poll`](Self::poll) until it has nothing, after everything that was told or
/// settled and at [`poll_timeout`](Self::poll_timeout); settle every ticket; then [`finish`](Self::finish).
#[derive(Debug)]
pub struct Speech {
    place: Place,
    envelope: Envelope,
    talk: Talk,
    decor: Decor,
    tickets: u64,
    counters: SpeechCounters,
}

impl Speech {
    /// Ids of drafts that one speech may use, from the one it is given on.
    pub const DRAFT_IDS: u64 = 1024;

    /// A turn that begins `now`. It may use [`Self::DRAFT_IDS`] ids of drafts from `draft_id` on.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the settings are shared with what decorates the turn"
    )]
    pub fn new(settings: Arc<SpeechSettings>, place: Place, draft_id: u64, now: Duration) -> Self {
        let descriptor = place.descriptor.as_deref();
        let (chat, facts) = (Arc::clone(&place.chat), Arc::clone(&place.facts));
        let envelope = Envelope::new(chat, facts, descriptor).hinted(&settings, descriptor);
        let means = Means::of(&settings, &place);
        Self {
            talk: Talk::new(&settings, &envelope, means, draft_id, now),
            decor: Decor::new(&settings, &place, means.edits, now),
            place,
            envelope,
            tickets: 0,
            counters: SpeechCounters::default(),
        }
    }

    /// More of the answer. Costs what is added.
    pub fn say(&mut self, text: &str, now: Duration) {
        self.talk.heard(now);
        self.talk.say(text);
    }

    /// The answer since the last [`Self::break_off`] is this instead. What was said in messages that are complete
    /// stays; it is not said again when `text` begins with it.
    pub fn replace(&mut self, text: &str, now: Duration) {
        self.talk.heard(now);
        self.talk.replace(text);
    }

    /// What follows is a message of its own.
    pub fn break_off(&mut self, now: Duration) {
        self.talk.heard(now);
        self.talk.close(Boundary::Break);
    }

    /// Breaks off and marks the point, for something that comes between what was said and what will be.
    pub fn mark(&mut self, now: Duration) -> Mark {
        self.break_off(now);
        Mark(self.talk.story.stretch())
    }

    /// Whether the chat has been shown everything that was said before the mark. What is only shown at the end is
    /// never shown before it.
    pub fn is_shown(&self, mark: Mark) -> bool {
        let front = self.talk.story.front();
        front.is_none_or(|front| front.stretch >= mark.0)
    }

    /// A tool begins, goes on or ends. One that begins ends the segment of text before it.
    pub fn tool(&mut self, line: &ToolLine, now: Duration) {
        self.talk.heard(now);
        if self.decor.tool(line) {
            self.talk.close(Boundary::Tool);
        }
    }

    /// The agent's plan, as a whole.
    pub fn plan(&mut self, steps: &[PlanLine], now: Duration) {
        self.talk.heard(now);
        self.decor.plan(steps);
    }

    /// Something people should know that is not part of the answer: a message of its own that answers nothing.
    pub fn notice(&mut self, text: &str, now: Duration) {
        self.talk.heard(now);
        self.talk.notice(text, &self.envelope);
    }

    /// The next op to send, if there is one.
    pub fn poll(&mut self, now: Duration) -> Option<Utterance> {
        let ticket = Ticket(self.tickets);
        let (action, weight, deadline) = if let Some(action) = self.talk.poll(ticket, &self.envelope, now) {
            self.counters.text_ops += 1;
            (action, Weight::Text, None)
        } else {
            let (action, deadline) = self.decor.poll(ticket, &self.envelope, now)?;
            self.counters.cosmetic_ops += 1;
            (action, Weight::Cosmetic, deadline)
        };
        self.tickets += 1;
        Some(Utterance {
            ticket,
            action,
            weight,
            deadline,
        })
    }

    /// When to poll again although nothing was told or settled. May be in the past: then at once.
    pub fn poll_timeout(&self) -> Option<Duration> {
        [self.talk.due(), self.decor.due()].into_iter().flatten().min()
    }

    /// What became of an op. A ticket that is not out any more is ignored.
    pub fn settled(&mut self, ticket: Ticket, fate: &Fate, now: Duration) {
        let nameless = Fate::Applied { message_id: None };
        let fate = match fate {
            Fate::Applied { message_id: Some(id) } if id.is_empty() => &nameless,
            fate => fate,
        };
        if !self.talk.settled(ticket, fate, &mut self.counters, now) {
            return self.decor.settled(ticket, fate, &mut self.counters, now);
        }
        if self.talk.manner == Manner::Silent {
            self.decor.silence();
        }
        if matches!(fate, Fate::RateLimited { .. }) {
            self.decor.hush(self.talk.pace.next());
        }
    }

    /// Whether [`Self::finish`] should wait, for a bounded time, because an op of text is out: its message id
    /// decides how the end is told, and an edit that lands after the last one would undo it.
    pub fn awaits_id(&self) -> bool {
        self.talk.is_out()
    }

    /// What became of the ops so far.
    pub fn counters(&self) -> SpeechCounters {
        self.counters
    }

    /// The end of the turn. An op that is still out counts as one whose fate is not known.
    pub fn finish(mut self, end: Ending, now: Duration) -> Farewell {
        self.talk.abandon(now);
        let (mut owed, mut answer) = self.talk.into_owed(&self.envelope);
        if let Some((_, first)) = answer.first_mut().filter(|_| follows_up(&self.place)) {
            follow_up(first, &self.place);
        }
        let mut stretches = vec![0; owed.len()];
        for (stretch, action) in answer {
            stretches.push(stretch);
            owed.push(action);
        }
        Farewell {
            owed,
            stretches,
            after: self.decor.finish(end, &self.envelope),
        }
    }
}

/// Makes a follow-up of a send, and keeps the send in case that is refused.
fn follow_up(owed: &mut OwedAction, place: &Place) {
    let (
        Action::Send {
            content, metadata, ..
        },
        Some(kind),
    ) = (&owed.action, &place.follow_up)
    else {
        return;
    };
    let follow_up = Action::FollowUp {
        session_key: place.session.as_ref().to_owned(),
        kind: kind.clone(),
        content: content.clone(),
        metadata: metadata.clone(),
    };
    let send = std::mem::replace(&mut owed.action, follow_up);
    owed.otherwise.insert(0, send);
}
