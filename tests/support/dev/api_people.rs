//! What people do to the fake Bot API beyond what its page lets them do.

use hermes_relay::dev::{ApiChat, ApiChatKind, ApiText, BotStanding, MessageSender, PersonMessage, unix_now};
use serde_json::{Map, Value, json};

use super::bot_api::BotApi;
use super::seen::SeenPress;

/// Further parts of a message.
pub(crate) trait MessageParts {
    /// The same as an answer.
    fn answering(self, message_id: i64) -> Self;
    /// The same in a topic.
    fn in_topic(self, thread_id: i64) -> Self;
    /// The same with a further field of the `Message`.
    fn with(self, name: &str, value: Value) -> Self;
}

impl MessageParts for PersonMessage {
    fn answering(self, message_id: i64) -> Self {
        Self {
            reply_to: Some(message_id),
            ..self
        }
    }

    fn in_topic(self, thread_id: i64) -> Self {
        Self {
            thread_id: Some(thread_id),
            ..self
        }
    }

    fn with(mut self, name: &str, value: Value) -> Self {
        self.extra.insert(name.to_owned(), value);
        self
    }
}

impl BotApi {
    /// A message; returns its id, or 0 when there is no such chat.
    pub(crate) fn send(&self, chat_id: i64, person_id: i64, message: PersonMessage) -> i64 {
        self.hub.send(chat_id, person_id, message)
    }

    /// Several files as an album; returns their message ids.
    pub(crate) fn send_album(&self, chat_id: i64, person_id: i64, items: Vec<PersonMessage>) -> Vec<i64> {
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the state has no public name"
        )]
        let number = self.hub.change(|state| state.number());
        let group_id = format!("{}", 14_000_000_000_000_000 + number);
        let items = items
            .into_iter()
            .map(|item| item.with("media_group_id", json!(group_id)));
        items.map(|item| self.send(chat_id, person_id, item)).collect()
    }

    /// Replaces the text of a person's message.
    pub(crate) fn edit(&self, chat_id: i64, message_id: i64, text: &str) {
        self.hub.edit(chat_id, message_id, text);
    }

    /// Presses the button with this label or data. Returns the id of the query, if there is such a button.
    pub(crate) fn press(
        &self,
        chat_id: i64,
        message_id: i64,
        person_id: i64,
        button: &str,
    ) -> Option<String> {
        let message = self
            .messages(chat_id)
            .into_iter()
            .find(|message| message.message_id == message_id)?;
        let mut buttons = message.buttons.into_iter().flatten();
        let found = buttons.find(|found| found.data.as_deref() == Some(button) || found.text == button)?;
        let query_id = self.hub.press(chat_id, message_id, person_id, button)?;
        self.note_press(&query_id, chat_id, message_id, &found.data.unwrap_or_default());
        Some(query_id)
    }

    /// Presses a button whose data was made up, as a hostile client can.
    pub(crate) fn press_forged(&self, chat_id: i64, message_id: i64, person_id: i64, data: &str) -> String {
        let query_id = self
            .hub
            .change(|state| state.press(chat_id, message_id, person_id, data));
        self.note_press(&query_id, chat_id, message_id, data);
        query_id
    }

    fn note_press(&self, query_id: &str, chat_id: i64, message_id: i64, data: &str) {
        self.presses.lock().unwrap().push(SeenPress {
            query_id: query_id.to_owned(),
            chat_id,
            message_id,
            data: data.to_owned(),
            answer: None,
        });
    }

    /// Reacts to a message, instead of what the person reacted with before.
    pub(crate) fn react(&self, chat_id: i64, message_id: i64, person_id: i64, emoji: &[&str]) {
        self.hub.react(chat_id, message_id, person_id, emoji);
    }

    /// Presses Stop on the draft that is shown. Returns its id, if one is that can be stopped.
    pub(crate) fn press_stop(&self, chat_id: i64) -> Option<i64> {
        self.hub.press_stop(chat_id)
    }

    /// The person blocks the bot.
    pub(crate) fn block(&self, person_id: i64) {
        self.set_standing(person_id, person_id, BotStanding::Kicked);
    }

    /// The person unblocks the bot.
    pub(crate) fn unblock(&self, person_id: i64) {
        self.set_standing(person_id, person_id, BotStanding::Member);
    }

    /// The group becomes a supergroup with another id.
    pub(crate) fn migrate(&self, chat_id: i64, to: i64, person_id: i64) {
        self.hub.change(|state| {
            let now = unix_now();
            let Some(chat) = state.touch(chat_id) else {
                return;
            };
            let mut successor = ApiChat::new(to, ApiChatKind::Supergroup, &chat.title, chat.username.clone());
            successor.standing = chat.standing;
            state.add_chat(successor);
            for (chat_id, field, other) in [
                (chat_id, "migrate_to_chat_id", to),
                (to, "migrate_from_chat_id", chat_id),
            ] {
                let fields = Map::from_iter([(field.to_owned(), json!(other))]);
                let author = MessageSender::Person(person_id);
                let message = state.add_message(chat_id, &author, ApiText::default(), fields, now);
                state.updates.push("message", message, now);
            }
            if let Some(chat) = state.touch(chat_id) {
                chat.migrated_to = Some(to);
            }
        });
    }

    /// Closes a topic for everybody but administrators, or deletes it.
    pub(crate) fn end_topic(&self, chat_id: i64, thread_id: i64, is_deleted: bool) {
        self.hub.change(|state| {
            let Some(chat) = state.touch(chat_id) else {
                return;
            };
            if is_deleted {
                chat.topics.remove(&thread_id);
            } else if let Some(topic) = chat.topics.get_mut(&thread_id) {
                topic.is_closed = true;
            }
        });
    }
}
