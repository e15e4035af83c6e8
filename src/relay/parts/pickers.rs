//! Lists that people choose from: which command a button or a bare number means.
//!
//! A list answers a command and is no question: nobody waits for it. Its buttons work as long as this process remembers it; a bare
//! number means it only while it is the last message of its conversation: neither a person nor a question came after it. A choice
//! becomes the command that somebody could have typed, before anything else looks at the message.

use std::collections::VecDeque;

use crate::adapter::prompt::ButtonPress;
use crate::adapter::{ChatId, ListButton};
use crate::wire::{MessageEvent, SessionKey};

/// Lists whose buttons are remembered.
const MAX_LISTS: usize = 256;
/// Most buttons under a message; longer lists are chosen from by number or name.
const MAX_BUTTONS: usize = 24;

/// A list in a chat.
#[derive(Clone, Debug)]
struct Picker {
    id: String,
    session: SessionKey,
    /// The session of the chat itself, if the list is for that.
    of_chat: Option<SessionKey>,
    chat: ChatId,
    /// Who asked for it; only they choose, where it is known who writes.
    asked_by: Option<String>,
    /// The command that each entry stands for.
    commands: Vec<String>,
    /// Whether it is the last message of its conversation.
    is_last: bool,
}

impl Picker {
    fn is_in(&self, session: &SessionKey) -> bool {
        self.session == *session || self.of_chat.as_ref() == Some(session)
    }
}

/// What a message chooses from a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickedEntry {
    /// The command that the entry stands for.
    pub command: String,
    /// Whether it is for the chat, wherever it was chosen.
    pub is_for_chat: bool,
    /// Where the list was shown, if a button of it was pressed in a thread that is a chat of its own.
    pub elsewhere: Option<ListPlace>,
}

/// Where a list was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlace {
    pub chat: ChatId,
    pub session: SessionKey,
}

/// The lists that were shown last.
#[derive(Debug)]
pub struct Pickers {
    /// Tells the lists of this process from those of others.
    nonce: String,
    shown: u64,
    lists: VecDeque<Picker>,
}

impl Pickers {
    pub fn new(seed: u64) -> Self {
        Self {
            nonce: format!("list-{seed:016x}"),
            shown: 0,
            lists: VecDeque::new(),
        }
    }

    /// Notes a list that is about to be shown in a session, and is for its chat if the session of that is given; returns its id and
    /// its buttons, if it is short enough for some.
    pub fn open(
        &mut self,
        (session, of_chat): (&SessionKey, Option<SessionKey>),
        chat: &ChatId,
        asked_by: Option<String>,
        entries: Vec<(String, String)>,
    ) -> (String, Vec<ListButton>) {
        self.shown += 1;
        let id = format!("{}-{}", self.nonce, self.shown);
        self.passed(session);
        if let Some(session) = &of_chat {
            self.passed(session);
        }
        if self.lists.len() >= MAX_LISTS {
            self.lists.pop_front();
        }
        let (labels, commands): (Vec<String>, Vec<String>) = entries.into_iter().unzip();
        let buttons = (labels.into_iter().zip(0..)).map(|(label, number)| ListButton {
            id: option_id(number),
            label,
        });
        let buttons = if commands.len() > MAX_BUTTONS {
            Vec::new()
        } else {
            buttons.collect()
        };
        self.lists.push_back(Picker {
            id: id.clone(),
            session: session.clone(),
            of_chat,
            chat: chat.clone(),
            asked_by,
            commands,
            is_last: true,
        });
        (id, buttons)
    }

    /// What a message chooses, if it is a choice from a list; `is_own` says whether an id is its author's.
    pub fn choice(
        &self,
        session: &SessionKey,
        event: &MessageEvent,
        is_own: impl FnOnce(&str) -> bool,
    ) -> Option<PickedEntry> {
        let (picker, number, is_elsewhere) = if event.prompt_response.is_some() {
            let press = ButtonPress::from_event(event)?;
            let mut lists = self.lists.iter();
            let picker = lists.find(|list| list.id == press.prompt_id && press.is_in(&list.chat))?;
            let mut numbers = 0..picker.commands.len();
            let number = numbers.find(|number| option_id(*number) == press.option_id)?;
            (picker, number, picker.chat != press.chat)
        } else {
            let number: usize = event.text().trim().parse().ok()?;
            let mut lists = self.lists.iter();
            let picker = lists.find(|list| list.is_last && list.is_in(session))?;
            (picker, number.checked_sub(1)?, false)
        };
        let may_choose = picker
            .asked_by
            .as_deref()
            .is_none_or(|asked| event.source.user_id.is_none() || is_own(asked));
        let command = picker.commands.get(number).filter(|_| may_choose)?;
        Some(PickedEntry {
            command: command.clone(),
            is_for_chat: picker.of_chat.is_some(),
            elsewhere: is_elsewhere.then(|| ListPlace {
                chat: picker.chat.clone(),
                session: picker.session.clone(),
            }),
        })
    }

    /// Something else was written or asked in a conversation: a bare number does not mean a list any more.
    pub fn passed(&mut self, session: &SessionKey) {
        for list in &mut self.lists {
            if list.is_in(session) {
                list.is_last = false;
            }
        }
    }
}

fn option_id(number: usize) -> String {
    format!("o{number}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(user: &str, text: &str, press: Option<Value>) -> MessageEvent {
        let source = json!({"platform": "discord", "chat_id": "c", "user_id": user});
        let mut event = json!({"text": text, "source": source});
        if let Some(press) = press {
            event["prompt_response"] = press;
        }
        MessageEvent::from_value(&event).unwrap()
    }

    fn opened() -> (Pickers, SessionKey, String) {
        let mut pickers = Pickers::new(7);
        let session = SessionKey::from_text("s");
        let chat = ChatId {
            platform: "discord".into(),
            chat: "c".into(),
        };
        let entries = ["a", "b"].map(|name| (name.to_owned(), format!("/model {name}")));
        let (id, buttons) = pickers.open((&session, None), &chat, Some("ann".to_owned()), entries.to_vec());
        assert_eq!(buttons.len(), 2);
        (pickers, session, id)
    }

    /// The command that a message chooses for the session of a list.
    fn chosen(pickers: &Pickers, session: &SessionKey, event: &MessageEvent) -> Option<String> {
        let is_own = |id: &str| event.source.user_id.as_ref().is_some_and(|by| by.as_str() == id);
        let choice = pickers.choice(session, event, is_own)?;
        assert!(!choice.is_for_chat);
        Some(choice.command)
    }

    #[test]
    fn a_list_for_a_chat_is_chosen_from_in_its_session_and_in_that_of_the_chat_until_something_else_is_said()
    {
        let [session, of_chat, other] = ["s", "chat", "t"].map(SessionKey::from_text);
        for last in [&session, &of_chat] {
            let (mut pickers, ..) = opened();
            let chat = pickers.lists[0].chat.clone();
            let entries = vec![("a".to_owned(), "/project a".to_owned())];
            pickers.open(
                (&session, Some(of_chat.clone())),
                &chat,
                Some("ann".to_owned()),
                entries,
            );
            let chosen =
                |pickers: &Pickers, session| pickers.choice(session, &message("ann", "1", None), |_| true);
            let choice = PickedEntry {
                command: "/project a".to_owned(),
                is_for_chat: true,
                elsewhere: None,
            };
            for place in [&session, &of_chat] {
                assert_eq!(chosen(&pickers, place), Some(choice.clone()));
            }
            assert_eq!(chosen(&pickers, &other), None);
            pickers.passed(last);
            for place in [&session, &of_chat] {
                assert_eq!(chosen(&pickers, place), None);
            }
        }
    }

    #[test]
    fn a_bare_number_is_a_choice_while_the_list_is_the_last_message() {
        let (mut pickers, session, _) = opened();
        let chosen = |pickers: &Pickers, user, text| chosen(pickers, &session, &message(user, text, None));
        assert_eq!(chosen(&pickers, "ann", " 2 ").as_deref(), Some("/model b"));
        for text in ["0", "3", "two", "2.", ""] {
            assert_eq!(chosen(&pickers, "ann", text), None, "{text}");
        }
        assert_eq!(chosen(&pickers, "bob", "2"), None, "somebody else's list");
        let elsewhere = SessionKey::from_text("t");
        assert_eq!(
            pickers.choice(&elsewhere, &message("ann", "2", None), |_| true),
            None
        );
        pickers.passed(&session);
        assert_eq!(chosen(&pickers, "ann", "2"), None);
    }

    #[test]
    fn a_button_is_a_choice_of_whoever_asked_and_of_nobody_else() {
        let (mut pickers, session, id) = opened();
        pickers.passed(&session);
        let press = |id: &str, option: &str| Some(json!({"prompt_id": id, "option_id": option}));
        let chosen = |user, press| chosen(&pickers, &session, &message(user, "", press));
        assert_eq!(chosen("ann", press(&id, "o0")).as_deref(), Some("/model a"));
        assert_eq!(chosen("bob", press(&id, "o0")), None);
        assert_eq!(chosen("ann", press(&id, "o2")), None);
        assert_eq!(chosen("ann", press("other", "o0")), None);
    }

    #[test]
    fn a_button_is_known_in_a_thread_of_the_chat_of_its_list() {
        let (pickers, session, id) = opened();
        let pressed = |source: Value| {
            let press = json!({"prompt_id": id, "option_id": "o1"});
            let event = json!({"text": "", "source": source, "prompt_response": press});
            let event = MessageEvent::from_value(&event).unwrap();
            pickers.choice(&SessionKey::from_text("t"), &event, |id| id == "ann")
        };
        let in_thread = |parent: &str| json!({"platform": "discord", "chat_id": "m9", "thread_id": "m9", "chat_type": "thread", "parent_chat_id": parent});
        let choice = pressed(in_thread("c")).unwrap();
        let place = ListPlace {
            chat: pickers.lists[0].chat.clone(),
            session,
        };
        assert_eq!(
            (choice.command.as_str(), choice.elsewhere),
            ("/model b", Some(place))
        );
        assert_eq!(pressed(in_thread("d")), None);
        let in_chat = pressed(json!({"platform": "discord", "chat_id": "c"})).unwrap();
        assert_eq!(in_chat.elsewhere, None);
    }

    #[test]
    fn long_lists_have_no_buttons_and_old_ones_are_forgotten() {
        let (mut pickers, session, first) = opened();
        let chat = pickers.lists[0].chat.clone();
        let many = (0..=MAX_BUTTONS)
            .map(|n| (n.to_string(), n.to_string()))
            .collect();
        assert!(pickers.open((&session, None), &chat, None, many).1.is_empty());
        for _ in 0..MAX_LISTS {
            pickers.open((&session, None), &chat, None, Vec::new());
        }
        assert_eq!(pickers.lists.len(), MAX_LISTS);
        assert!(pickers.lists.iter().all(|list| list.id != first));
    }
}
