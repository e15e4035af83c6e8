//! What the fate of an op means for the text of a turn.
//!
//! Only what the connector acknowledged counts as shown. A refusal never loses text: what cannot be shown now is owed
//! at the end, unless it was a matter of permission.

use std::time::Duration;

use super::exchange::{Fate, SpeechCounters, Ticket};
use super::manner::{Drafts, Manner};
use super::segment::{Shown, Trail};
use super::talk::{Errand, Extent, Out, Step, Talk};

impl Talk {
    /// What became of the op that is out; another ticket is ignored.
    pub(super) fn settled(
        &mut self,
        ticket: Ticket,
        fate: &Fate,
        counters: &mut SpeechCounters,
        now: Duration,
    ) -> bool {
        let Some(Out { errand, text, .. }) = self.out.take_if(|out| out.ticket == ticket) else {
            return false;
        };
        match fate {
            Fate::Applied { message_id } => self.applied(errand, text, message_id.as_deref()),
            Fate::Declined => {
                counters.refused += 1;
                self.silence();
            }
            Fate::RateLimited { retry_after } => {
                counters.rate_limited += 1;
                self.pace.slow(*retry_after, now);
                self.put_back(errand, text);
            }
            Fate::Refused => {
                counters.refused += 1;
                self.refused(errand);
            }
            Fate::Unknown => {
                counters.unknown += 1;
                self.pace.again(now);
                self.unknown(errand, text);
            }
            Fate::NotSent | Fate::Shed => {
                self.pace.again(now);
                self.put_back(errand, text);
            }
        }
        true
    }

    /// The turn ends while an op is out.
    pub(super) fn abandon(&mut self, now: Duration) {
        if let Some(ticket) = self.out.as_ref().map(|out| out.ticket) {
            self.settled(ticket, &Fate::Unknown, &mut SpeechCounters::default(), now);
        }
    }

    /// Says nothing more.
    fn silence(&mut self) {
        self.manner = Manner::Silent;
        self.story.silence();
        self.notices.clear();
    }

    fn applied(&mut self, errand: Errand, text: String, message_id: Option<&str>) {
        let (Errand::Step { step, .. }, Some(front)) = (errand, self.story.front_mut()) else {
            return;
        };
        let trail = |extent: Extent| match extent {
            Extent::Growing if !self.cursor.is_empty() => Trail::Cursor,
            _ => Trail::Clean,
        };
        let (extent, id) = match (step, &front.shown) {
            (Step::Draft(Extent::Growing), _) => {
                front.shown = Shown::Stream { text };
                return;
            }
            (Step::Edit(extent), Shown::Message { id, .. }) => (extent, id.clone()),
            (Step::Send(extent) | Step::Edit(extent) | Step::Draft(extent), _) => {
                (extent, message_id.map(str::to_owned))
            }
        };
        let complete = extent == Extent::Complete && front.is_head(&text);
        // Where messages have no names, edits have no object: one that is incomplete goes on at the end.
        if id.is_none() && self.manner == Manner::Edits {
            self.manner = Manner::Segments;
        }
        front.shown = Shown::Message {
            id,
            text,
            trail: trail(extent),
        };
        if complete {
            self.advance();
        }
    }

    fn refused(&mut self, errand: Errand) {
        let (Errand::Step { step, .. }, Some(front)) = (errand, self.story.front_mut()) else {
            return;
        };
        self.manner = match (step, &front.shown) {
            // A stream that stands half written is followed by the whole text, and by nothing before it.
            (Step::Draft(_), Shown::Stream { .. }) if self.manner == Manner::Drafts(Drafts::Sealed) => {
                Manner::Held
            }
            (Step::Draft(_), _) => self.means.without_drafts,
            (Step::Send(_) | Step::Edit(_), _) => Manner::Held,
        };
        if matches!(front.shown, Shown::Stream { .. }) {
            front.shown = Shown::Nothing;
        }
    }

    fn unknown(&mut self, errand: Errand, text: String) {
        let (Errand::Step { step, .. }, Some(front)) = (errand, self.story.front_mut()) else {
            return;
        };
        match step {
            Step::Send(_) => {
                front.shown = Shown::Unsure;
                self.manner = Manner::Held;
            }
            Step::Edit(_) => {
                if let Shown::Message { trail, .. } = &mut front.shown {
                    *trail = Trail::Blurred;
                }
                self.put_back(errand, text);
            }
            Step::Draft(_) => {
                front.shown = Shown::Stream { text: text.clone() };
                self.put_back(errand, text);
            }
        }
    }

    /// What the op would have shown is to be shown by another.
    fn put_back(&mut self, errand: Errand, text: String) {
        match errand {
            Errand::Notice => self.notices.push_front(text),
            Errand::Step { fresh, .. } => {
                if let Some(front) = self.story.front_mut() {
                    front.fresh = front.fresh.saturating_add(fresh);
                }
            }
        }
    }
}
