//! Who talks where on the page: people, chats, and what their messages look like on each platform.

use serde_json::{Value, json};

use crate::dev::page::{MAX_PAGE_PEOPLE, given_name};
use crate::dev::presets::PlatformPreset;

/// Chats that may be there.
const MAX_CHATS: usize = 64;
/// The workspace or guild that shared chats belong to.
const SCOPE: &str = "dev-space";

/// What sort of chat it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatKind {
    /// One person and the agent.
    Dm,
    /// Several people.
    Group,
    /// A thread of a group.
    Thread,
    /// A topic of a forum.
    Topic,
}

impl ChatKind {
    const ALL: [Self; 4] = [Self::Dm, Self::Group, Self::Thread, Self::Topic];

    fn name(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Group => "group",
            Self::Thread => "thread",
            Self::Topic => "topic",
        }
    }

    /// The kind of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kinds that the platform has.
    pub(super) fn names_on(preset: PlatformPreset) -> Vec<&'static str> {
        let kinds = Self::ALL.into_iter().filter(|kind| kind.exists_on(preset));
        kinds.map(Self::name).collect()
    }

    /// Whether the platform has such chats.
    fn exists_on(self, preset: PlatformPreset) -> bool {
        match self {
            Self::Dm | Self::Group => true,
            Self::Thread => matches!(preset, PlatformPreset::Discord | PlatformPreset::Slack),
            Self::Topic => matches!(preset, PlatformPreset::Discord | PlatformPreset::Telegram),
        }
    }
}

/// One chat.
#[derive(Clone, Debug)]
pub(super) struct PersonaChat {
    kind: ChatKind,
    name: String,
    id: String,
    thread: Option<String>,
    parent: Option<String>,
}

/// Someone who talks.
#[derive(Clone, Debug)]
pub(super) struct Persona {
    id: String,
    name: String,
}

/// Everyone and everywhere.
pub(super) struct Personas {
    preset: PlatformPreset,
    platform: String,
    people: Vec<Persona>,
    chats: Vec<PersonaChat>,
}

impl Personas {
    /// Three people, and one chat of each kind that the platform has.
    pub(super) fn new(preset: PlatformPreset, platform: &str) -> Self {
        let people = [("u1", "Ada"), ("u2", "Ben"), ("u3", "Chen")];
        let mut personas = Self {
            preset,
            platform: platform.to_owned(),
            people: people
                .map(|(id, name)| Persona {
                    id: id.to_owned(),
                    name: name.to_owned(),
                })
                .into(),
            chats: Vec::new(),
        };
        for (kind, name) in [
            (ChatKind::Dm, "Ada"),
            (ChatKind::Group, "kitchen"),
            (ChatKind::Thread, "release plan"),
            (ChatKind::Topic, "ideas"),
        ] {
            if kind.exists_on(preset) {
                let _ = personas.open(kind, name);
            }
        }
        personas
    }

    /// Opens a chat, and returns it as the page shows it.
    pub(super) fn open(&mut self, kind: ChatKind, name: &str) -> Result<Value, &'static str> {
        if !kind.exists_on(self.preset) {
            return Err("this platform has no such chats");
        }
        let name = given_name(name)?;
        if self.chats.len() >= MAX_CHATS {
            return Err("there are enough chats already");
        }
        let number = self.chats.len() + 1;
        let chat = match kind {
            ChatKind::Dm => PersonaChat::new(kind, name, format!("dm-{number}")),
            ChatKind::Group => PersonaChat::new(kind, name, format!("group-{number}")),
            // Discord's threads are chats of their own; elsewhere they are a part of their chat.
            ChatKind::Thread | ChatKind::Topic if self.preset == PlatformPreset::Discord => PersonaChat {
                thread: Some(format!("thread-{number}")),
                parent: Some("group-2".to_owned()),
                ..PersonaChat::new(kind, name, format!("thread-{number}"))
            },
            ChatKind::Thread => PersonaChat {
                thread: Some(format!("1700000000.{number:06}")),
                ..PersonaChat::new(kind, name, "group-2".to_owned())
            },
            ChatKind::Topic => PersonaChat {
                thread: Some(number.to_string()),
                ..PersonaChat::new(kind, name, "forum-1".to_owned())
            },
        };
        let shown = chat.shown();
        self.chats.push(chat);
        Ok(shown)
    }

    /// Adds a person, and returns them as the page shows them.
    pub(super) fn join(&mut self, name: &str) -> Result<Value, &'static str> {
        let name = given_name(name)?;
        if self.people.len() >= MAX_PAGE_PEOPLE {
            return Err("there are enough people already");
        }
        let person = Persona {
            id: format!("u{}", self.people.len() + 1),
            name,
        };
        let shown = person.shown();
        self.people.push(person);
        Ok(shown)
    }

    pub(super) fn chats(&self) -> Vec<Value> {
        self.chats.iter().map(PersonaChat::shown).collect()
    }

    pub(super) fn people(&self) -> Vec<Value> {
        self.people.iter().map(Persona::shown).collect()
    }

    /// The chat of this id and thread.
    pub(super) fn chat(&self, chat_id: &str, thread_id: Option<&str>) -> Option<&PersonaChat> {
        self.chats
            .iter()
            .find(|chat| chat.id == chat_id && chat.thread.as_deref() == thread_id)
    }

    /// The person of this id.
    pub(super) fn person(&self, id: &str) -> Option<&Persona> {
        self.people.iter().find(|person| person.id == id)
    }

    /// Where a message comes from and whose it is, as in an event.
    pub(super) fn source(&self, chat: &PersonaChat, person: &Persona, message_id: Option<&str>) -> Value {
        let chat_type = match chat.kind {
            ChatKind::Dm => "dm",
            ChatKind::Group => "group",
            ChatKind::Thread => "thread",
            // A Discord forum's posts are threads.
            ChatKind::Topic if self.preset == PlatformPreset::Discord => "thread",
            ChatKind::Topic => "forum",
        };
        let mut source = json!({
            "platform": self.platform,
            "chat_id": chat.id,
            "chat_type": chat_type,
            "chat_name": chat.name,
            "user_id": person.id,
            "user_name": person.name,
        });
        let scoped = matches!(self.preset, PlatformPreset::Discord | PlatformPreset::Slack);
        for (key, value) in [
            ("thread_id", chat.thread.as_deref()),
            ("parent_chat_id", chat.parent.as_deref()),
            ("message_id", message_id),
            (
                "scope_id",
                Some(SCOPE).filter(|_| scoped && chat.kind != ChatKind::Dm),
            ),
        ] {
            if let Some(value) = value {
                source[key] = value.into();
            }
        }
        source
    }
}

impl PersonaChat {
    /// A Discord interaction as it is forwarded: the same person in the same place.
    pub(super) fn interaction(
        &self,
        person: &Persona,
        id: &str,
        kind: u64,
        data: &Value,
        message: Option<&str>,
    ) -> Value {
        let user = json!({ "id": person.id, "username": person.name, "global_name": person.name });
        let mut body = json!({ "id": id, "type": kind, "data": data, "channel_id": self.id });
        match self.kind {
            ChatKind::Dm => body["user"] = user,
            ChatKind::Group | ChatKind::Thread | ChatKind::Topic => {
                body["guild_id"] = SCOPE.into();
                body["member"] = json!({ "user": user });
            }
        }
        if let Some(parent) = &self.parent {
            body["channel"] = json!({ "id": self.id, "type": 11, "parent_id": parent });
        }
        if let Some(message) = message {
            body["message"] = json!({ "id": message });
        }
        body
    }

    /// A chat that was opened elsewhere: by the gateway, or by whoever else delivers messages.
    pub(super) fn elsewhere(
        kind: ChatKind,
        name: &str,
        id: &str,
        thread: Option<&str>,
        parent: Option<&str>,
    ) -> Self {
        Self {
            thread: thread.map(str::to_owned),
            parent: parent.map(str::to_owned),
            ..Self::new(kind, name.to_owned(), id.to_owned())
        }
    }

    fn new(kind: ChatKind, name: String, id: String) -> Self {
        Self {
            kind,
            name,
            id,
            thread: None,
            parent: None,
        }
    }

    fn shown(&self) -> Value {
        json!({
            "kind": self.kind.name(),
            "name": self.name,
            "chat": self.id,
            "thread": self.thread,
        })
    }
}

impl Persona {
    fn shown(&self) -> Value {
        json!({ "id": self.id, "name": self.name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::interaction_event;
    use crate::wire::{Grouping, MessageEvent, NoAliases, PassthroughForward, SessionKey};
    use base64::Engine as _;

    fn key(source: &crate::wire::SessionSource) -> String {
        SessionKey::build(source, Grouping::default(), None, &NoAliases)
            .as_str()
            .to_owned()
    }

    #[test]
    fn an_interaction_lands_in_the_session_of_the_same_persons_messages() {
        let personas = Personas::new(PlatformPreset::Discord, "discord");
        assert_eq!(personas.chats.len(), 4);
        for chat in &personas.chats {
            let ben = personas.person("u2").unwrap();
            let typed = json!({ "text": "x", "source": personas.source(chat, ben, Some("m")) });
            let typed = MessageEvent::from_value(&typed).unwrap();
            let body = chat.interaction(ben, "i1", 2, &json!({ "name": "new" }), None);
            let encoded = base64::engine::general_purpose::STANDARD.encode(body.to_string());
            let forward = json!({ "platform": "discord", "bodyB64": encoded });
            let forward = PassthroughForward::from_value(&forward).unwrap();
            let pressed = interaction_event(&forward).unwrap();
            assert_eq!(key(&typed.source), key(&pressed.source), "{chat:?}");
            assert_eq!(
                pressed.text.as_ref().map(crate::wire::Scalar::as_str),
                Some("/new")
            );
        }
    }

    #[test]
    fn names_and_numbers_are_bounded() {
        let mut personas = Personas::new(PlatformPreset::WhatsApp, "whatsapp");
        assert_eq!(personas.chats.len(), 2);
        assert!(personas.open(ChatKind::Topic, "x").is_err(), "no topics there");
        assert!(personas.open(ChatKind::Group, " \n ").is_err());
        assert!(personas.join(&"n".repeat(61)).is_err());
        while personas.open(ChatKind::Group, "one more").is_ok() {}
        while personas.join("one more").is_ok() {}
        assert_eq!(
            (personas.chats.len(), personas.people.len()),
            (MAX_CHATS, MAX_PAGE_PEOPLE)
        );
    }
}
