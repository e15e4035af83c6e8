//! Chats, people and messages, as the server keeps them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::markup::ApiText;

/// Somebody who can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiPerson {
    /// The id, which is that of the private chat, too.
    pub id: i64,
    /// The first name.
    pub first_name: String,
    /// The name after the `@`.
    pub username: Option<String>,
    /// Whether it is another bot.
    pub is_bot: bool,
}

impl ApiPerson {
    /// A person with a name like `Ada` and the user name `ada`.
    pub fn named(id: i64, first_name: &str) -> Self {
        Self {
            id,
            first_name: first_name.to_owned(),
            username: Some(first_name.to_ascii_lowercase()),
            is_bot: false,
        }
    }

    /// The `User` object.
    pub fn user(&self) -> Value {
        let mut user = json!({ "id": self.id, "is_bot": self.is_bot, "first_name": self.first_name });
        if let Some(username) = &self.username {
            user["username"] = json!(username);
        }
        if !self.is_bot {
            user["language_code"] = json!("en");
        }
        user
    }
}

/// What kind of chat it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiChatKind {
    /// With one person.
    Private,
    /// A basic group.
    Group,
    /// A supergroup without topics.
    Supergroup,
    /// A supergroup with topics.
    Forum,
    /// A channel.
    Channel,
}

impl ApiChatKind {
    /// What people open; a private chat is there with its person.
    pub const OPENED: [Self; 4] = [Self::Group, Self::Supergroup, Self::Forum, Self::Channel];

    /// As people call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Forum => "forum",
            Self::Private => "private chat",
            Self::Group | Self::Supergroup | Self::Channel => self.name(),
        }
    }

    /// As the API names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Group => "group",
            Self::Supergroup | Self::Forum => "supergroup",
            Self::Channel => "channel",
        }
    }
}

/// What the bot is in a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BotStanding {
    /// A member; in a private chat, the person talks to it.
    Member,
    /// A member with every right.
    Administrator,
    /// A member that may not write.
    Muted,
    /// Removed, or blocked by the person.
    Kicked,
    /// Gone by itself.
    Left,
}

impl BotStanding {
    pub const ALL: [Self; 5] = [
        Self::Member,
        Self::Administrator,
        Self::Muted,
        Self::Kicked,
        Self::Left,
    ];

    /// The standing that the API names so.
    pub fn named(status: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|standing| standing.status() == status)
    }

    pub fn status(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Administrator => "administrator",
            Self::Muted => "restricted",
            Self::Kicked => "kicked",
            Self::Left => "left",
        }
    }
}

/// A topic of a forum, or of a private chat.
#[derive(Clone, Debug)]
pub struct ApiTopic {
    pub name: String,
    pub is_closed: bool,
}

/// A draft that is shown while the bot writes.
#[derive(Clone, Debug)]
pub struct ApiDraft {
    pub draft_id: i64,
    pub text: ApiText,
    pub can_stop: bool,
    pub shown_at: i64,
}

/// A message.
#[derive(Clone, Debug)]
pub struct ApiMessage {
    /// The `Message` object.
    pub object: Value,
    /// Its text or caption.
    pub text: ApiText,
    pub is_by_bot: bool,
    pub sent_at: i64,
    /// Emoji by who reacted; the bot is 0.
    pub reactions: BTreeMap<i64, Vec<String>>,
}

impl ApiMessage {
    pub fn has_media(&self) -> bool {
        [
            "photo",
            "document",
            "voice",
            "video",
            "audio",
            "animation",
            "video_note",
            "sticker",
        ]
        .iter()
        .any(|kind| self.object.get(kind).is_some())
    }
}

/// A chat.
#[derive(Clone, Debug)]
pub struct ApiChat {
    pub id: i64,
    pub kind: ApiChatKind,
    pub title: String,
    pub username: Option<String>,
    pub standing: BotStanding,
    pub migrated_to: Option<i64>,
    pub topics: BTreeMap<i64, ApiTopic>,
    /// By id, oldest first.
    pub messages: BTreeMap<i64, ApiMessage>,
    /// By topic; 0 is none.
    pub drafts: BTreeMap<i64, ApiDraft>,
    /// What the bot does, in which topic, and until when.
    pub action: Option<(String, i64, i64)>,
    pub last_message_id: i64,
    /// Changes with every change.
    pub version: u64,
}

impl ApiChat {
    pub fn new(id: i64, kind: ApiChatKind, title: &str, username: Option<String>) -> Self {
        Self {
            id,
            kind,
            title: title.to_owned(),
            username,
            standing: BotStanding::Member,
            migrated_to: None,
            topics: BTreeMap::new(),
            messages: BTreeMap::new(),
            drafts: BTreeMap::new(),
            action: None,
            // The first id of a forum is that of its General topic.
            last_message_id: i64::from(kind == ApiChatKind::Forum),
            version: 1,
        }
    }

    /// The `Chat` object.
    pub fn object(&self) -> Value {
        let mut chat = json!({ "id": self.id, "type": self.kind.name() });
        let title = if self.kind == ApiChatKind::Private {
            "first_name"
        } else {
            "title"
        };
        chat[title] = json!(self.title);
        if let Some(username) = &self.username {
            chat["username"] = json!(username);
        }
        if self.kind == ApiChatKind::Forum {
            chat["is_forum"] = json!(true);
        }
        chat
    }

    /// A message as others quote it: without what it answers itself.
    pub fn quoted(&self, message_id: i64) -> Option<Value> {
        let mut object = self.messages.get(&message_id)?.object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("reply_to_message");
        }
        Some(object)
    }

    /// Puts fields of a topic into a message; in a forum also the root that it answers.
    pub fn place_in_topic(&self, fields: &mut Map<String, Value>, thread_id: i64) {
        fields.insert("message_thread_id".to_owned(), json!(thread_id));
        fields.insert("is_topic_message".to_owned(), json!(true));
        if self.kind == ApiChatKind::Forum
            && !fields.contains_key("reply_to_message")
            && let Some(root) = self.quoted(thread_id)
        {
            fields.insert("reply_to_message".to_owned(), root);
        }
    }

    /// Takes away what a new message replaces: a draft and an action.
    pub fn settle(&mut self, thread_id: i64) {
        self.drafts.remove(&thread_id);
        self.action = None;
    }
}
