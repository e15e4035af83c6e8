//! What the end of a turn owes its chat: whatever was said and is not known to be read.

use super::exchange::OwedAction;
use super::manner::{Drafts, Manner};
use super::segment::{Segment, Shown, Trail};
use super::story::after_words;
use super::talk::Talk;
use crate::adapter::envelope::{Envelope, Note};
use crate::adapter::split::{reopening_after, roll, without_leading_space};
use crate::wire::Action;

impl Talk {
    /// The notices that are owed, and then what is owed of the answer, each with the stretch it belongs to.
    pub(super) fn into_owed(self, envelope: &Envelope) -> (Vec<OwedAction>, Vec<(u64, OwedAction)>) {
        if self.manner == Manner::Silent {
            return (Vec::new(), Vec::new());
        }
        let notices = self.notices.into_iter();
        let notices = notices.map(|notice| envelope.aside(notice, Note::Final).into());
        // The draft's id is that of the first segment, the only one that may be a stream.
        let rest = self.story.into_rest(self.means.whole).into_iter();
        let rest = rest.flat_map(|segment| {
            let stretch = segment.stretch;
            let owed = rest_of(segment, self.manner, self.means.edits, self.draft_id, envelope);
            owed.into_iter().map(move |action| (stretch, action))
        });
        (notices.collect(), rest.collect())
    }
}

fn rest_of(
    mut segment: Segment,
    manner: Manner,
    edits: bool,
    draft_id: u64,
    envelope: &Envelope,
) -> Vec<OwedAction> {
    let edits = edits && matches!(manner, Manner::Edits | Manner::Drafts(_));
    match segment.shown.clone() {
        Shown::Message {
            id: Some(id),
            text,
            trail,
        } if edits => {
            let part = segment.head(envelope.limit, envelope.limit).part.clone();
            segment.advance();
            let mut owed = Vec::new();
            if !(trail == Trail::Clean && text == part) {
                let otherwise = match trail {
                    Trail::Blurred => vec![part.clone()],
                    Trail::Clean | Trail::Cursor => continuation(&text, &part, envelope),
                };
                owed.push(OwedAction {
                    action: envelope.edit(&id, part, Note::Final),
                    otherwise: sends(otherwise, envelope).collect(),
                });
            }
            owed.extend(owed_sends(remainder(&segment, envelope), envelope));
            owed
        }
        Shown::Message { text, .. } => {
            owed_sends(continuation(&text, &segment.body(), envelope), envelope).collect()
        }
        Shown::Stream { .. } if manner == Manner::Drafts(Drafts::Sealed) => {
            let part = segment.head(envelope.limit, envelope.limit).part.clone();
            segment.advance();
            let seal = OwedAction {
                action: envelope.draft(draft_id, part.clone(), true, Note::Final),
                otherwise: vec![envelope.send(part, Note::Final)],
            };
            let rest = owed_sends(remainder(&segment, envelope), envelope);
            std::iter::once(seal).chain(rest).collect()
        }
        Shown::Nothing | Shown::Stream { .. } | Shown::Unsure => {
            let parts = if segment.is_whole() {
                envelope.parts(segment.rest())
            } else {
                remainder(&segment, envelope)
            };
            owed_sends(parts, envelope).collect()
        }
    }
}

/// The messages of what is left of a segment.
fn remainder(segment: &Segment, envelope: &Envelope) -> Vec<String> {
    rolled(segment.opening(), segment.rest(), envelope)
}

fn rolled(opening: &str, rest: &str, envelope: &Envelope) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut opening, mut rest) = (opening.to_owned(), rest);
    while !rest.trim().is_empty() {
        let next = roll(&opening, rest, 0, envelope.limit, envelope.unit);
        rest = &rest[next.taken..];
        opening = next.opening;
        parts.push(next.part);
    }
    parts
}

/// The messages that follow `shown` to make it `whole`; all of `whole` when it does not begin with `shown`, white
/// space aside.
fn continuation(shown: &str, whole: &str, envelope: &Envelope) -> Vec<String> {
    let Some(rest) = after_words(whole, shown.chars()) else {
        return rolled("", whole, envelope);
    };
    let opening = reopening_after(shown, envelope.limit, envelope.unit);
    let rest = without_leading_space(rest);
    // Nothing is left but the end of the code that is shown.
    if !opening.is_empty() && rest.trim_end() == "```" {
        return Vec::new();
    }
    rolled(&opening, rest, envelope)
}

fn sends(parts: Vec<String>, envelope: &Envelope) -> impl Iterator<Item = Action> {
    parts.into_iter().map(|part| envelope.send(part, Note::Final))
}

fn owed_sends(parts: Vec<String>, envelope: &Envelope) -> impl Iterator<Item = OwedAction> {
    sends(parts, envelope).map(OwedAction::from)
}
