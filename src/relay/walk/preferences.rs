//! Lists in a chat, and the model and mode of a conversation: what people read, and how a choice becomes a command.

use serde_json::Value;

use crate::adapter::ChatId;
use crate::adapter::stream::DurableAction;
use crate::adapter::{ChatFacts, ListMessage};
use crate::agent::{Preference, PreferenceAnswer, PreferenceOffer};
use crate::relay::event_loop::EventLoop;
use crate::relay::parts::inbound::NewMessage;
use crate::store::InboxKind;
use crate::wire::{MessageEvent, Scalar, SessionKey};

impl EventLoop {
    /// A button of a list, or a number under it, becomes the command that it stands for, also in the journal. Anything else that
    /// is written ends the time of bare numbers.
    pub fn take_choice(&mut self, session: &SessionKey, event: &mut MessageEvent, message: &mut NewMessage) {
        if message.kind != InboxKind::Inbound {
            return;
        }
        let command = self.pickers.command(session, event);
        if let Some(command) = command
            && let Some(line) = with_text(&message.line, &command)
        {
            event.text = Some(Scalar::from(command));
            event.prompt_response = None;
            message.line = line;
        }
        if event.prompt_response.is_none() {
            self.pickers.passed(session);
        }
    }

    /// What a chat is shown of an agent's answer about its model or its mode.
    pub fn show_preference(
        &mut self,
        preference: Preference,
        answer: PreferenceAnswer,
        agent: &str,
        session: &SessionKey,
        (chat, facts): (&ChatId, &ChatFacts),
    ) -> Vec<DurableAction> {
        let name = preference.name();
        let (head, offer) = match answer {
            PreferenceAnswer::Changed(option) => {
                let text = format!("The {name} is {} from now on, in this conversation.", option.name);
                return self.adapters.get(&chat.platform).reply(&text, chat, facts);
            }
            PreferenceAnswer::Unsupported | PreferenceAnswer::Failed(_) => {
                let text = format!("{agent} offers no {name}s to choose from.");
                return self.adapters.get(&chat.platform).reply(&text, chat, facts);
            }
            PreferenceAnswer::Offered(offer) => (format!("The {name}s of {agent}:"), offer),
            PreferenceAnswer::NoSuchOption(offer) => {
                (format!("There is no such {name}. The {name}s of {agent}:"), offer)
            }
        };
        self.show_offer(name, &head, &offer, session, (chat, facts))
    }

    fn show_offer(
        &mut self,
        name: &str,
        head: &str,
        offer: &PreferenceOffer,
        session: &SessionKey,
        place: (&ChatId, &ChatFacts),
    ) -> Vec<DurableAction> {
        let entries = offer.shown().iter();
        let entries = entries.map(|option| (option.name.clone(), format!("/{name} {}", option.id)));
        let text = format!(
            "{head}\n{}\nChoose with /{name} NUMBER, /{name} NAME, or the number alone.",
            offer.list()
        );
        let asked_by = place.1.user_id.clone();
        self.show_list(&text, entries.collect(), asked_by, session, place)
    }

    /// A numbered list that people choose from; each entry has a label and the command that it stands for. Only whoever asked for
    /// it chooses, if that is given; whether they may is decided as for the command.
    pub fn show_list(
        &mut self,
        text: &str,
        entries: Vec<(String, String)>,
        asked_by: Option<String>,
        session: &SessionKey,
        (chat, facts): (&ChatId, &ChatFacts),
    ) -> Vec<DurableAction> {
        let (id, buttons) = self.pickers.open(session, chat, asked_by, entries);
        let list = ListMessage { id, text, buttons };
        self.adapters.get(&chat.platform).list(list, chat, facts)
    }
}

/// The same frame with another text and no button.
fn with_text(line: &[u8], text: &str) -> Option<Vec<u8>> {
    let mut frame: Value = serde_json::from_slice(line).ok()?;
    let event = frame.get_mut("event")?.as_object_mut()?;
    event.insert("text".to_owned(), text.into());
    event.remove("prompt_response");
    serde_json::to_vec(&frame).ok()
}
