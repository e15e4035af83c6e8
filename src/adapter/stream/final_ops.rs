//! The text that a turn still has to deliver when it ends: everything not known to be shown.

use smallvec::{SmallVec, smallvec};

use super::pending_text::{Segment, Shown, Trail, after_prefix};
use super::strategy::{Drafts, Strategy};
use super::text_stream::TextStream;
use super::types::{DurableAction, DurableActions};
use crate::adapter::action_builder::{ActionBuilder, TextKind};
use crate::adapter::split::{first_message, reopening_after, trim_leading_space};
use crate::wire::Action;

impl TextStream {
    /// The pending notices and the rest of the answer, with the number of breaks before each op, and how many are notices.
    pub(super) fn take_durable(
        &mut self,
        builder: &ActionBuilder,
    ) -> (DurableActions, SmallVec<[u64; 2]>, usize) {
        if self.strategy == Strategy::Silent {
            return Default::default();
        }
        let notices = self.notices.drain(..);
        let notices = notices.map(|notice| builder.message(notice, TextKind::Final).into());
        let mut durable: DurableActions = notices.collect();
        let notices = durable.len();
        let mut breaks = smallvec![0; notices];
        // The draft id is that of the first segment, the only one that may be a stream.
        for segment in &mut self.pending.take_rest(self.strategies.whole) {
            let before = segment.breaks;
            let edits = self.strategies.edits;
            complete(
                segment,
                self.strategy,
                edits,
                self.draft_id,
                builder,
                &mut durable,
            );
            breaks.resize(durable.len(), before);
        }
        (durable, breaks, notices)
    }
}

/// Adds the ops that complete a segment.
fn complete(
    segment: &mut Segment,
    strategy: Strategy,
    edits: bool,
    draft_id: u64,
    builder: &ActionBuilder,
    durable: &mut DurableActions,
) {
    let edits = edits && matches!(strategy, Strategy::Edits | Strategy::Drafts(_));
    match segment.shown.clone() {
        Shown::Message {
            id: Some(id),
            text,
            trail,
        } if edits => {
            let part = segment.head(builder.limit, builder.limit).part.clone();
            let is_posted_anew = builder.needs_new_post(&part, &segment.posted);
            segment.advance();
            if is_posted_anew {
                durable.push(DurableAction {
                    then: vec![builder.delete(id.into())],
                    ..builder.reply(part, TextKind::Final).into()
                });
            } else if !(trail == Trail::Clean && text == part) {
                let fallback = match trail {
                    Trail::Unknown => vec![part.clone()],
                    Trail::Clean | Trail::Cursor => continuation(&text, &part, builder),
                };
                durable.push(DurableAction {
                    action: builder.edit(&id, part, TextKind::Final),
                    fallback: sends(fallback, builder).collect(),
                    then: Vec::new(),
                });
            }
            durable.extend(durable_sends(remainder(segment, builder), builder));
        }
        Shown::Message { text, .. } => {
            let parts = continuation(&text, &segment.body(), builder);
            durable.extend(durable_sends(parts, builder));
        }
        Shown::Stream { .. } if strategy == Strategy::Drafts(Drafts::Sealed) => {
            let part = segment.head(builder.limit, builder.limit).part.clone();
            segment.advance();
            let seal = DurableAction {
                action: builder.draft(draft_id, part.clone(), true, TextKind::Final),
                fallback: vec![builder.reply(part, TextKind::Final)],
                then: Vec::new(),
            };
            durable.push(seal);
            durable.extend(durable_sends(remainder(segment, builder), builder));
        }
        Shown::Nothing | Shown::Stream { .. } | Shown::Unsure => {
            if segment.is_whole() {
                durable.extend(durable_sends(builder.parts(segment.take_text()), builder));
            } else {
                durable.extend(durable_sends(remainder(segment, builder), builder));
            }
        }
    }
}

/// The messages of the rest of a segment.
fn remainder(segment: &Segment, builder: &ActionBuilder) -> Vec<String> {
    messages(segment.opening(), segment.rest(), builder)
}

fn messages(opening: &str, rest: &str, builder: &ActionBuilder) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut opening, mut rest) = (opening.to_owned(), rest);
    while !rest.trim().is_empty() {
        let next = first_message(&opening, rest, 0, builder.limit, builder.unit);
        rest = &rest[next.taken..];
        opening = next.opening;
        parts.push(next.part);
    }
    parts
}

/// The messages that complete `shown` to `whole`; all of `whole` when it does not begin with `shown`, ignoring white
/// space.
fn continuation(shown: &str, whole: &str, builder: &ActionBuilder) -> Vec<String> {
    let Some(rest) = after_prefix(whole, shown.chars()) else {
        return messages("", whole, builder);
    };
    let opening = reopening_after(shown, builder.limit, builder.unit);
    let rest = trim_leading_space(rest);
    // Only the end of the code block that is shown is left.
    if !opening.is_empty() && rest.trim_end() == "```" {
        return Vec::new();
    }
    messages(&opening, rest, builder)
}

fn sends(parts: impl IntoIterator<Item = String>, builder: &ActionBuilder) -> impl Iterator<Item = Action> {
    parts.into_iter().map(|part| builder.reply(part, TextKind::Final))
}

fn durable_sends(
    parts: impl IntoIterator<Item = String>,
    builder: &ActionBuilder,
) -> impl Iterator<Item = DurableAction> {
    sends(parts, builder).map(DurableAction::from)
}
