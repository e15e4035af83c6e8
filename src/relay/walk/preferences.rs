//! Lists in a chat, and the model and mode of a conversation: what people read, and how a choice becomes a command.

use std::sync::Arc;

use serde_json::{Value, json};

use smol_str::SmolStr;

use crate::adapter::stream::DurableAction;
use crate::adapter::{Chat, ListMessage};
use crate::agent::{Preference, PreferenceAnswer, PreferenceOffer};
use crate::link::Moment;
use crate::relay::effects::{CommandCall, NewMessage};
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::OpGroup;
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::access::Starter;
use crate::relay::parts::pickers::PickedEntry;
use crate::store::{InboxKind, RowState};
use crate::wire::{MessageEvent, Scalar, SessionKey, SessionSource};
use crate::words::ChatPhrase;

impl EventLoop {
    /// A button of a list, or a number under it, becomes the command that it stands for, also in the journal. Anything else that
    /// is said ends the time of bare numbers.
    pub fn take_choice(
        &mut self,
        session: &mut SessionKey,
        event: &mut MessageEvent,
        message: &mut NewMessage,
        now: Moment,
    ) {
        let is_interaction = message.kind == InboxKind::Forward;
        if event.is_edit || event.is_deleted || is_interaction && event.is_empty() {
            return;
        }
        let chat = self
            .chats
            .is_separate(event)
            .then(|| Chat::from_source(&event.source));
        let of_chat = chat.and_then(|chat| self.chats.session_of_chat(&chat));
        // Few messages need it.
        let author = || self.access.author(Starter::Message(&event.source));
        // A question in a thread of the chat comes first.
        let is_typed = of_chat.is_some() && event.prompt_response.is_none();
        if is_typed && self.response(session, (event, &author()), now).is_some() {
            return;
        }
        let asked_in = of_chat.unwrap_or_else(|| session.clone());
        let is_choice = !is_interaction || event.prompt_response.is_some();
        let picked = is_choice
            .then(|| self.pickers.choice(&asked_in, event, |id| author().has_id(id)))
            .flatten();
        if let Some(picked) = picked {
            self.choose(picked, session, event, message);
        }
        if event.prompt_response.is_none() {
            self.pickers.passed(&asked_in);
        }
    }

    /// Makes a message the command that it chose. A press stays one if it does not belong to the conversation of the list.
    fn choose(
        &mut self,
        picked: PickedEntry,
        session: &mut SessionKey,
        event: &mut MessageEvent,
        message: &mut NewMessage,
    ) {
        let (mut chosen, mut chosen_in) = (event.clone(), session.clone());
        chosen.text = Some(Scalar::from(picked.command));
        chosen.prompt_response = None;
        // What is chosen for the chat is said where the thread of the list starts.
        let start = event.source.thread_id.clone().filter(|_| picked.is_for_chat);
        if start.is_some() {
            chosen.source.message_id.clone_from(&start);
            chosen.message_id = start;
        }
        if let Some(place) = picked.elsewhere {
            // What is typed there names the chat of the list, and the thread.
            let source = &mut chosen.source;
            source.chat_id = Some(place.chat.chat.as_str().into());
            (source.chat_name, source.parent_chat_id) = (None, None);
            chosen_in = self.chats.name(&mut chosen);
            if chosen_in != place.session {
                return;
            }
        }
        if let Some(line) = frame_with(&chosen, message) {
            (message.kind, message.line) = (InboxKind::Inbound, line.into());
            (*session, *event) = (chosen_in, chosen);
        }
    }

    /// What a chat is shown of an agent's answer about its model or its mode.
    pub fn show_preference(
        &mut self,
        preference: Preference,
        answer: &PreferenceAnswer,
        agent: &str,
        origin: &TurnOrigin,
    ) -> Vec<DurableAction> {
        let chat = &*origin.chat;
        let (phrase, offer) = match (answer, preference) {
            (PreferenceAnswer::Changed(option), Preference::Model) => {
                (ChatPhrase::ModelChanged { name: &option.name }, None)
            }
            (PreferenceAnswer::Changed(option), Preference::Mode) => {
                (ChatPhrase::ModeChanged { name: &option.name }, None)
            }
            (PreferenceAnswer::Unsupported | PreferenceAnswer::Failed(_), Preference::Model) => {
                (ChatPhrase::NoModels { agent }, None)
            }
            (PreferenceAnswer::Unsupported | PreferenceAnswer::Failed(_), Preference::Mode) => {
                (ChatPhrase::NoModes { agent }, None)
            }
            (PreferenceAnswer::Offered(offer), Preference::Model) => {
                (ChatPhrase::ModelsOf { agent }, Some(offer))
            }
            (PreferenceAnswer::Offered(offer), Preference::Mode) => {
                (ChatPhrase::ModesOf { agent }, Some(offer))
            }
            (PreferenceAnswer::NoSuchOption(offer), Preference::Model) => {
                (ChatPhrase::ModelUnknown { agent }, Some(offer))
            }
            (PreferenceAnswer::NoSuchOption(offer), Preference::Mode) => {
                (ChatPhrase::ModeUnknown { agent }, Some(offer))
            }
        };
        let text = self.language(chat).say(phrase);
        match offer {
            Some(offer) => self.show_offer(preference.name(), &text, offer, origin),
            None => self
                .adapters
                .get(&chat.id.platform)
                .reply(&text, &chat.id, &chat.facts),
        }
    }

    fn show_offer(
        &mut self,
        name: &str,
        head: &str,
        offer: &PreferenceOffer,
        origin: &TurnOrigin,
    ) -> Vec<DurableAction> {
        let chat = &*origin.chat;
        let entries = offer.shown().iter();
        let entries = entries.map(|option| (option.name.clone(), format!("/{name} {}", option.id)));
        let language = self.language(chat);
        let how = language.say(ChatPhrase::ChooseByNumber {
            command: &format!("/{name}"),
        });
        let text = format!("{head}\n{}\n{how}", offer.list(language));
        let asked_by = chat.facts.user_id.as_ref().map(SmolStr::to_string);
        self.show_list(&text, entries.collect(), asked_by, None, origin)
    }

    /// `/agent`: the agents that somebody may choose from.
    pub fn show_agents(&mut self, current: &str, names: &[Arc<str>], call: &CommandCall) {
        let chat = &*call.origin.chat;
        let language = self.language(chat);
        let head = language.say(ChatPhrase::AgentHere { agent: current });
        let lines = names.iter().zip(1..);
        let lines: Vec<String> = lines.map(|(name, number)| format!("{number}. {name}")).collect();
        let how = language.say(ChatPhrase::ChooseByNumber { command: "/agent" });
        let text = format!("{head}\n{}\n{how}", lines.join("\n"));
        let entries = names
            .iter()
            .map(|name| (name.to_string(), format!("/agent {name}")));
        let of_chat = self.chats.session_of_chat(chat);
        self.answer_with_list(&text, entries.collect(), of_chat, call);
    }

    /// Answers a command with a list that whoever wrote it chooses from.
    pub fn answer_with_list(
        &mut self,
        text: &str,
        entries: Vec<(String, String)>,
        of_chat: Option<SessionKey>,
        CommandCall { row, origin, .. }: &CommandCall,
    ) {
        let TurnOrigin { session, chat, .. } = &**origin;
        let asked_by = chat.facts.user_id.as_ref().map(SmolStr::to_string);
        let actions = self.show_list(text, entries, asked_by, of_chat, origin);
        let ops = self.plan_actions(&actions, session, &chat.id, OpGroup::Message(*row));
        self.end_row(*row, RowState::Done, ops, None);
    }

    /// A numbered list that people choose from; each entry has a label and the command that it stands for. Only whoever asked for
    /// it chooses, if that is given; whether they may is decided as for the command. A list that is for the chat names the session
    /// of that.
    pub fn show_list(
        &mut self,
        text: &str,
        entries: Vec<(String, String)>,
        asked_by: Option<String>,
        of_chat: Option<SessionKey>,
        TurnOrigin { session, chat, .. }: &TurnOrigin,
    ) -> Vec<DurableAction> {
        let (id, buttons) = (self.pickers).open((session, of_chat), &chat.id, asked_by, entries);
        let list = ListMessage { id, text, buttons };
        self.adapters.get(&chat.id.platform).list(list, chat)
    }
}

/// The frame of a message that became a command. That of an interaction is made anew.
fn frame_with(chosen: &MessageEvent, message: &NewMessage) -> Option<Vec<u8>> {
    let mut wire = serde_json::to_value(chosen).ok()?;
    if message.kind == InboxKind::Forward {
        let SessionSource {
            user_roles,
            language_code,
            is_bot,
            ..
        } = &chosen.source;
        // What the contract's form leaves out, or says in its own way.
        let source = wire.get_mut("source")?.as_object_mut()?;
        source.insert("user_roles".to_owned(), json!(user_roles));
        source.insert("language_code".to_owned(), json!(language_code));
        source.insert("is_bot".to_owned(), json!(is_bot));
        return serde_json::to_vec(&json!({ "type": "inbound", "event": wire })).ok();
    }
    let mut frame: Value = serde_json::from_slice(&message.line).ok()?;
    let event = frame.get_mut("event")?.as_object_mut()?;
    event.remove("prompt_response");
    for key in ["text", "message_id"] {
        event.insert(key.to_owned(), wire[key].take());
    }
    let source = event.get_mut("source")?.as_object_mut()?;
    for key in ["message_id", "chat_id", "chat_name", "parent_chat_id"] {
        source.insert(key.to_owned(), wire["source"][key].take());
    }
    serde_json::to_vec(&frame).ok()
}
