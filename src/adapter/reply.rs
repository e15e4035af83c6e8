//! An answer as ops: split to the platform's limit, tagged, and anchored to the message it answers.

use std::sync::Arc;

use crate::adapter::chats::{ChatFacts, ChatId};
use crate::adapter::envelope::{Envelope, Note};
use crate::wire::{Action, CapabilityDescriptor};

/// Plans the sends that deliver `text`; none for a text without content. Every part answers the same
/// message, because a send that answers nothing is read as progress.
pub fn reply(
    text: &str,
    chat: &ChatId,
    facts: &ChatFacts,
    descriptor: Option<&CapabilityDescriptor>,
) -> Vec<Action> {
    let envelope = Envelope::new(Arc::new(chat.clone()), Arc::new(facts.clone()), descriptor);
    let parts = envelope.parts(text).into_iter();
    parts.map(|part| envelope.send(part, Note::Final)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_fits_and_answers_the_same_message() {
        let chat = ChatId {
            platform: "discord".into(),
            chat: "c".into(),
        };
        let facts = ChatFacts {
            message_id: Some("m".into()),
            ..ChatFacts::default()
        };
        let mut descriptor = CapabilityDescriptor::placeholder("discord");
        descriptor.max_message_length = 50;
        let ops = reply(&"word ".repeat(40), &chat, &facts, Some(&descriptor));
        assert!(ops.len() > 1);
        for op in ops {
            let Action::Send {
                content, reply_to, ..
            } = op
            else {
                panic!()
            };
            assert!(content.chars().count() <= 50 && reply_to.as_deref() == Some("m"));
        }
        assert!(reply(" \n", &chat, &facts, None).is_empty());
    }
}
