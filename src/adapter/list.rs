//! A list that people choose from: buttons where the platform has them, and numbers everywhere.

use super::RelayAdapter;
use super::chats::Chat;
use super::stream::DurableAction;
use crate::wire::{Action, PromptButton};

/// A button of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListButton {
    /// Its id on the wire.
    pub id: String,
    /// Its text.
    pub label: String,
}

/// A list to show.
#[derive(Clone, Debug)]
pub struct ListMessage<'t> {
    /// The id that a press names.
    pub id: String,
    /// The list as a text, with the numbers of its entries.
    pub text: &'t str,
    /// The buttons; none for a list that is too long for them.
    pub buttons: Vec<ListButton>,
}

impl RelayAdapter {
    /// The ops that show a list. Where the platform refuses the buttons, the text alone is sent.
    pub(crate) fn list(&self, list: ListMessage<'_>, chat: &Chat) -> Vec<DurableAction> {
        let text = self.reply(list.text, &chat.id, &chat.facts);
        let builder = self.builder_of(&chat.id, &chat.facts);
        let fits = builder.unit.measure(list.text) <= builder.limit;
        if list.buttons.is_empty() || !fits || !self.supports("prompt") {
            return text;
        }
        let option = |button: ListButton| PromptButton {
            id: button.id,
            label: button.label,
            style: None,
        };
        let prompt = Action::Prompt {
            chat_id: chat.id.chat.clone(),
            content: list.text.to_owned(),
            prompt_kind: "choice".to_owned(),
            prompt_id: list.id,
            options: list.buttons.into_iter().map(option).collect(),
            reply_to: builder.anchor(),
            metadata: builder.tags(),
            timeout_s: None,
        };
        vec![DurableAction {
            action: prompt,
            fallback: text.into_iter().map(|op| op.action).collect(),
            then: Vec::new(),
        }]
    }
}
