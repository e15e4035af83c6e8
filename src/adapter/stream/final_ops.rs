//! The text that a turn still has to deliver when it ends: everything not known to be shown.

use super::pending_text::{Segment, Shown, Trail, after_words};
use super::strategy::{Drafts, Strategy};
use super::text_stream::TextStream;
use super::types::DurableAction;
use crate::adapter::envelope::{Envelope, Note};
use crate::adapter::split::{reopening_after, roll, without_leading_space};
use crate::wire::Action;

impl TextStream {
    /// The pending notices, and the rest of the answer, each op with the number of breaks before it.
    pub(super) fn into_durable(self, envelope: &Envelope) -> (Vec<DurableAction>, Vec<(u64, DurableAction)>) {
        if self.strategy == Strategy::Silent {
            return (Vec::new(), Vec::new());
        }
        let notices = self.notices.into_iter();
        let notices = notices.map(|notice| envelope.aside(notice, Note::Final).into());
        // The draft id is that of the first segment, the only one that may be a stream.
        let rest = self.pending.into_rest(self.strategies.whole).into_iter();
        let rest = rest.flat_map(|segment| {
            let breaks = segment.breaks;
            let edits = self.strategies.edits;
            let actions = complete(segment, self.strategy, edits, self.draft_id, envelope);
            actions.into_iter().map(move |action| (breaks, action))
        });
        (notices.collect(), rest.collect())
    }
}

/// The ops that complete a segment.
fn complete(
    mut segment: Segment,
    strategy: Strategy,
    edits: bool,
    draft_id: u64,
    envelope: &Envelope,
) -> Vec<DurableAction> {
    let edits = edits && matches!(strategy, Strategy::Edits | Strategy::Drafts(_));
    match segment.shown.clone() {
        Shown::Message {
            id: Some(id),
            text,
            trail,
        } if edits => {
            let part = segment.head(envelope.limit, envelope.limit).part.clone();
            segment.advance();
            let mut durable = Vec::new();
            if !(trail == Trail::Clean && text == part) {
                let fallback = match trail {
                    Trail::Unknown => vec![part.clone()],
                    Trail::Clean | Trail::Cursor => continuation(&text, &part, envelope),
                };
                durable.push(DurableAction {
                    action: envelope.edit(&id, part, Note::Final),
                    fallback: sends(fallback, envelope).collect(),
                });
            }
            durable.extend(durable_sends(remainder(&segment, envelope), envelope));
            durable
        }
        Shown::Message { text, .. } => {
            durable_sends(continuation(&text, &segment.body(), envelope), envelope).collect()
        }
        Shown::Stream { .. } if strategy == Strategy::Drafts(Drafts::Sealed) => {
            let part = segment.head(envelope.limit, envelope.limit).part.clone();
            segment.advance();
            let seal = DurableAction {
                action: envelope.draft(draft_id, part.clone(), true, Note::Final),
                fallback: vec![envelope.send(part, Note::Final)],
            };
            let rest = durable_sends(remainder(&segment, envelope), envelope);
            std::iter::once(seal).chain(rest).collect()
        }
        Shown::Nothing | Shown::Stream { .. } | Shown::Unsure => {
            let parts = if segment.is_whole() {
                envelope.parts(segment.rest())
            } else {
                remainder(&segment, envelope)
            };
            durable_sends(parts, envelope).collect()
        }
    }
}

/// The messages of the rest of a segment.
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

/// The messages that complete `shown` to `whole`; all of `whole` when it does not begin with `shown`, ignoring white
/// space.
fn continuation(shown: &str, whole: &str, envelope: &Envelope) -> Vec<String> {
    let Some(rest) = after_words(whole, shown.chars()) else {
        return rolled("", whole, envelope);
    };
    let opening = reopening_after(shown, envelope.limit, envelope.unit);
    let rest = without_leading_space(rest);
    // Only the end of the code block that is shown is left.
    if !opening.is_empty() && rest.trim_end() == "```" {
        return Vec::new();
    }
    rolled(&opening, rest, envelope)
}

fn sends(parts: Vec<String>, envelope: &Envelope) -> impl Iterator<Item = Action> {
    parts.into_iter().map(|part| envelope.send(part, Note::Final))
}

fn durable_sends(parts: Vec<String>, envelope: &Envelope) -> impl Iterator<Item = DurableAction> {
    sends(parts, envelope).map(DurableAction::from)
}
