//! What decorates a turn: the mark on the message that is answered, typing, and progress.
//!
//! Every op here may be shed or fail without harm. At most one is out; what fails is not insisted on.

use std::sync::Arc;
use std::time::Duration;

use super::exchange::{Ending, Fate, Place, PlanLine, SpeechCounters, Ticket, ToolLine};
use super::pace::Pace;
use super::progress::Progress;
use super::settings::SpeechSettings;
use crate::adapter::envelope::{Envelope, Note, is_slack};
use crate::wire::{Action, Platform};

/// The mark on the message that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eyes {
    /// There will be none.
    Unwanted,
    /// To be made.
    Wanted,
    /// Made, or perhaps made.
    Made,
}

/// The message of progress.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Card {
    /// There will be none, or no more of it.
    Unwanted,
    /// Not begun.
    Absent,
    /// Shown, as it was acknowledged last.
    Shown {
        /// The message.
        id: String,
        /// Its text.
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typing {
    /// There will be none, or no more.
    Unwanted,
    /// Not shown yet.
    Waiting,
    /// Shown at least once.
    Shown,
}

#[derive(Debug)]
enum Errand {
    Eyes,
    Typing,
    Card { text: String },
}

/// What decorates a turn.
#[derive(Debug)]
pub(super) struct Decor {
    settings: Arc<SpeechSettings>,
    eyes: Eyes,
    typing: Typing,
    next_typing: Duration,
    card: Card,
    progress: Progress,
    /// Whether the message of progress is behind.
    stale: bool,
    pace: Pace,
    out: Option<(Ticket, Errand)>,
    status: Option<String>,
    /// Nothing before this: the platform asked for patience.
    quiet_until: Duration,
}

impl Decor {
    pub(super) fn new(settings: &Arc<SpeechSettings>, place: &Place, edits: bool, now: Duration) -> Self {
        let can = |op: &str| {
            place
                .descriptor
                .as_ref()
                .is_some_and(|descriptor| descriptor.supports_op(op))
        };
        let eyes = settings.reactions && can("react") && place.facts.message_id.is_some();
        let soon = now + Duration::from_millis(settings.typing_after_ms);
        let status = settings.status_text.as_ref().filter(|_| is_slack(&place.chat));
        Self {
            eyes: if eyes { Eyes::Wanted } else { Eyes::Unwanted },
            typing: if settings.typing && can("typing") {
                Typing::Waiting
            } else {
                Typing::Unwanted
            },
            next_typing: soon,
            card: if settings.tool_progress && edits {
                Card::Absent
            } else {
                Card::Unwanted
            },
            progress: Progress::new(settings),
            stale: false,
            pace: Pace::new(settings.interval_ms, settings.max_interval_ms, soon),
            out: None,
            status: status.cloned(),
            quiet_until: Duration::ZERO,
            settings: Arc::clone(settings),
        }
    }

    /// Takes news of a tool; tells whether it is a new one.
    pub(super) fn tool(&mut self, line: &ToolLine) -> bool {
        self.stale = true;
        self.progress.tool(line)
    }

    pub(super) fn plan(&mut self, steps: &[PlanLine]) {
        self.stale = true;
        self.progress.plan(steps);
    }

    /// No more of it.
    pub(super) fn silence(&mut self) {
        self.eyes = Eyes::Unwanted;
        self.typing = Typing::Unwanted;
        self.card = Card::Unwanted;
    }

    /// The platform asked for patience with another op.
    pub(super) fn hush(&mut self, until: Duration) {
        self.quiet_until = self.quiet_until.max(until);
    }

    fn card_due(&self) -> Option<Duration> {
        (self.stale && self.card != Card::Unwanted).then(|| self.pace.next())
    }

    fn typing_due(&self) -> Option<Duration> {
        (self.typing != Typing::Unwanted).then_some(self.next_typing)
    }

    pub(super) fn due(&self) -> Option<Duration> {
        if self.out.is_some() {
            return None;
        }
        let eyes = (self.eyes == Eyes::Wanted).then_some(Duration::ZERO);
        let due = [eyes, self.typing_due(), self.card_due()];
        due.into_iter()
            .flatten()
            .min()
            .map(|due| due.max(self.quiet_until))
    }

    /// The next op, and how long its result is waited for.
    pub(super) fn poll(
        &mut self,
        ticket: Ticket,
        envelope: &Envelope,
        now: Duration,
    ) -> Option<(Action, Option<Duration>)> {
        self.due().filter(|due| *due <= now)?;
        let patience = Duration::from_millis(self.settings.typing_deadline_ms);
        let past = |due: Option<Duration>| due.is_some_and(|due| due <= now);
        if self.eyes == Eyes::Wanted {
            self.eyes = Eyes::Made;
            self.out = Some((ticket, Errand::Eyes));
            let action = react(envelope, Marks::of(envelope).eyes, false)?;
            return Some((action, Some(now + patience)));
        }
        if past(self.typing_due()) {
            self.typing = Typing::Shown;
            self.next_typing = now + Duration::from_millis(self.settings.typing_every_ms.max(1));
            self.out = Some((ticket, Errand::Typing));
            let action = typing(envelope, self.status.clone());
            return Some((action, Some(now + patience)));
        }
        if !past(self.card_due()) {
            return None;
        }
        self.stale = false;
        let text = self.progress.render(None, envelope.limit, envelope.unit);
        let action = match &self.card {
            Card::Shown { text: shown, .. } if *shown == text => return None,
            Card::Shown { id, .. } => envelope.edit(id, text.clone(), Note::Plain),
            Card::Absent if !text.is_empty() => envelope.aside(text.clone(), Note::Growing),
            Card::Absent | Card::Unwanted => return None,
        };
        self.pace.went(now);
        self.out = Some((ticket, Errand::Card { text }));
        Some((action, None))
    }

    /// What became of the op that is out; another ticket is ignored.
    pub(super) fn settled(
        &mut self,
        ticket: Ticket,
        fate: &Fate,
        counters: &mut SpeechCounters,
        now: Duration,
    ) {
        let Some((_, errand)) = self.out.take_if(|(out, _)| *out == ticket) else {
            return;
        };
        match fate {
            Fate::Applied { .. } => {}
            Fate::NotSent | Fate::Shed => counters.cosmetic_shed += 1,
            Fate::Declined | Fate::RateLimited { .. } | Fate::Refused | Fate::Unknown => {
                counters.cosmetic_failed += 1;
            }
        }
        match fate {
            Fate::Declined => return self.silence(),
            Fate::RateLimited { retry_after } => {
                self.pace.slow(*retry_after, now);
                self.hush(self.pace.next());
            }
            _ => {}
        }
        match errand {
            Errand::Eyes => {
                if !matches!(fate, Fate::Applied { .. } | Fate::Unknown) {
                    self.eyes = Eyes::Unwanted;
                }
            }
            Errand::Typing => {
                if *fate == Fate::Refused {
                    self.typing = Typing::Unwanted;
                }
            }
            Errand::Card { text } => self.card_settled(text, fate, now),
        }
    }

    fn card_settled(&mut self, text: String, fate: &Fate, now: Duration) {
        match (fate, &mut self.card) {
            (_, Card::Unwanted) => {}
            (Fate::Applied { .. }, Card::Shown { text: shown, .. }) => *shown = text,
            (Fate::Applied { message_id: Some(id) }, Card::Absent) => {
                self.card = Card::Shown { id: id.clone(), text };
            }
            // Another message of progress beside one that may be there would confuse more than none.
            (Fate::Applied { message_id: None } | Fate::Unknown, Card::Absent)
            | (Fate::Refused | Fate::Declined, _) => self.card = Card::Unwanted,
            (Fate::NotSent | Fate::Shed | Fate::RateLimited { .. } | Fate::Unknown, _) => {
                self.stale = true;
                self.pace.again(now);
            }
        }
    }

    /// What decorates the end.
    pub(super) fn finish(self, end: Ending, envelope: &Envelope) -> Vec<Action> {
        let mut after = Vec::new();
        if self.eyes == Eyes::Made {
            let marks = Marks::of(envelope);
            after.extend(react(envelope, marks.eyes, true));
            let outcome = match end {
                Ending::Done => Some(marks.done),
                Ending::Failed => Some(marks.failed),
                Ending::Stopped => None,
            };
            after.extend(outcome.and_then(|emoji| react(envelope, emoji, false)));
        }
        if self.typing == Typing::Shown && self.status.is_some() {
            after.push(typing(envelope, Some(String::new())));
        }
        if let Card::Shown { id, text } = &self.card {
            let last = self.progress.render(Some(end), envelope.limit, envelope.unit);
            let out = matches!(self.out, Some((_, Errand::Card { .. })));
            if last != *text || out {
                after.push(envelope.edit(id, last, Note::Plain));
            }
        }
        after
    }
}

/// A platform's reactions.
struct Marks {
    eyes: &'static str,
    done: &'static str,
    failed: &'static str,
}

impl Marks {
    fn of(envelope: &Envelope) -> Self {
        // Telegram allows only reactions of a list of its own.
        let (done, failed) = if envelope.chat.platform == Platform::TELEGRAM.as_str() {
            ("\u{1f44d}", "\u{1f44e}")
        } else {
            ("\u{2705}", "\u{274c}")
        };
        Self {
            eyes: "\u{1f440}",
            done,
            failed,
        }
    }
}

fn react(envelope: &Envelope, emoji: &str, remove: bool) -> Option<Action> {
    Some(Action::React {
        chat_id: envelope.chat.chat.clone(),
        message_id: envelope.anchor()?,
        emoji: emoji.to_owned(),
        remove,
        metadata: envelope.tags(),
    })
}

fn typing(envelope: &Envelope, content: Option<String>) -> Action {
    Action::Typing {
        chat_id: envelope.chat.chat.clone(),
        metadata: envelope.tags(),
        content,
    }
}
