//! The server's memory, behind one lock that is held briefly and never across an await.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::chats::{ApiChat, ApiChatKind, ApiMessage, ApiPerson, BotStanding};
use super::files::ApiFiles;
use super::markup::ApiText;
use super::params::ApiParams;
use super::refusal::ApiRefusal;
use super::settings::BotApiSettings;
use super::updates::ApiUpdates;
use crate::dev::calls::CallLog;

/// Chats that are known at most.
const MAX_CHATS: usize = 20_000;
/// Presses that are remembered.
const MAX_PRESSES: usize = 10_000;

/// A press of a button.
#[derive(Clone, Debug)]
pub struct ApiPress {
    pub query_id: String,
    pub chat_id: i64,
    pub pressed_at: Instant,
    /// The text of the answer, when there was one.
    pub answer: Option<String>,
}

/// The polls.
#[derive(Default)]
pub struct PollState {
    /// Counts polls; the one with the last number may wait.
    pub number: u64,
    /// Why the poll with this number has to end.
    pub ended: Option<(u64, String)>,
    pub is_waiting: bool,
    /// The offset of the last poll, and when it came.
    pub previous: Option<(i64, Instant)>,
    /// Before this a conflict is answered late.
    pub next_conflict: Option<Instant>,
}

/// Everything.
pub struct BotApiState {
    pub settings: BotApiSettings,
    pub bot: ApiPerson,
    pub people: BTreeMap<i64, ApiPerson>,
    pub chats: BTreeMap<i64, ApiChat>,
    pub updates: ApiUpdates,
    pub files: ApiFiles,
    pub presses: VecDeque<ApiPress>,
    /// Commands by scope and language.
    pub commands: BTreeMap<(String, String), Value>,
    pub webhook: Option<String>,
    pub calls: CallLog,
    pub poll: PollState,
    /// The last message of private chats and basic groups, which share their ids.
    shared_message_id: i64,
    numbered: u64,
}

/// Who a message is from.
pub enum MessageSender {
    Bot,
    Person(i64),
    /// The chat itself: a channel's post, or an anonymous administrator.
    Chat,
}

impl BotApiState {
    pub fn new(settings: BotApiSettings) -> Self {
        let bot = ApiPerson {
            id: settings.bot_id(),
            first_name: settings.first_name.clone(),
            username: Some(settings.username.clone()),
            is_bot: true,
        };
        Self {
            bot,
            people: BTreeMap::new(),
            chats: BTreeMap::new(),
            updates: ApiUpdates::new(settings.first_update_id),
            files: ApiFiles::default(),
            presses: VecDeque::new(),
            commands: BTreeMap::new(),
            webhook: None,
            calls: CallLog::new(settings.call_limit),
            poll: PollState::default(),
            shared_message_id: 0,
            numbered: 0,
            settings,
        }
    }

    /// A number that is never given twice.
    pub fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// Adds a chat; the oldest id goes when there are too many.
    pub fn add_chat(&mut self, chat: ApiChat) {
        if self.chats.len() >= MAX_CHATS {
            self.chats.pop_first();
        }
        self.chats.insert(chat.id, chat);
    }

    pub fn remember_press(&mut self, press: ApiPress) {
        if self.presses.len() >= MAX_PRESSES {
            self.presses.pop_front();
        }
        self.presses.push_back(press);
    }

    /// The chat that a call names, if the bot can know it.
    pub fn chat_id(&self, params: &ApiParams) -> Result<i64, ApiRefusal> {
        let Some(named) = params.text("chat_id") else {
            return Err(ApiRefusal::bad("chat_id is empty"));
        };
        let found = match named.strip_prefix('@') {
            Some(name) => self.chats.values().find(|chat| {
                chat.kind != ApiChatKind::Private
                    && chat
                        .username
                        .as_deref()
                        .is_some_and(|known| known.eq_ignore_ascii_case(name))
            }),
            None => named.trim().parse().ok().and_then(|id: i64| self.chats.get(&id)),
        };
        let chat = found.ok_or_else(|| ApiRefusal::bad("chat not found"))?;
        match chat.migrated_to {
            Some(to) => Err(ApiRefusal::migrated(to)),
            None => Ok(chat.id),
        }
    }

    /// The same, if the bot is there.
    pub fn joined_chat(&self, params: &ApiParams) -> Result<i64, ApiRefusal> {
        let id = self.chat_id(params)?;
        let chat = &self.chats[&id];
        let place = match chat.kind {
            ApiChatKind::Private => {
                return match chat.standing {
                    BotStanding::Kicked => Err(ApiRefusal::forbidden("bot was blocked by the user")),
                    BotStanding::Left => Err(ApiRefusal::forbidden("user is deactivated")),
                    _ => Ok(id),
                };
            }
            ApiChatKind::Group => "group",
            ApiChatKind::Supergroup | ApiChatKind::Forum => "supergroup",
            ApiChatKind::Channel => "channel",
        };
        match chat.standing {
            BotStanding::Kicked => Err(ApiRefusal::forbidden(&format!(
                "bot was kicked from the {place} chat"
            ))),
            BotStanding::Left => Err(ApiRefusal::forbidden(&format!(
                "bot is not a member of the {place} chat"
            ))),
            _ => Ok(id),
        }
    }

    /// The same, if the bot may write there.
    pub fn writable_chat(&self, params: &ApiParams) -> Result<i64, ApiRefusal> {
        let id = self.joined_chat(params)?;
        let chat = &self.chats[&id];
        match chat.standing {
            BotStanding::Muted => Err(ApiRefusal::bad(
                "not enough rights to send text messages to the chat",
            )),
            BotStanding::Member if chat.kind == ApiChatKind::Channel => {
                Err(ApiRefusal::bad("need administrator rights in the channel chat"))
            }
            _ => Ok(id),
        }
    }

    /// The topic that a message goes to; 0 is none.
    pub fn topic(&self, chat_id: i64, params: &ApiParams) -> Result<i64, ApiRefusal> {
        let thread_id = params.integer("message_thread_id").unwrap_or(0);
        let chat = &self.chats[&chat_id];
        match chat.kind {
            _ if thread_id == 0 => Ok(0),
            ApiChatKind::Supergroup | ApiChatKind::Channel => Ok(0),
            _ => match chat.topics.get(&thread_id) {
                Some(topic) if topic.is_closed && chat.standing != BotStanding::Administrator => {
                    Err(ApiRefusal::bad("TOPIC_CLOSED"))
                }
                Some(_) => Ok(thread_id),
                None => Err(ApiRefusal::bad("message thread not found")),
            },
        }
    }

    /// Keeps a message and returns its object.
    pub fn add_message(
        &mut self,
        chat_id: i64,
        author: &MessageSender,
        text: ApiText,
        mut fields: Map<String, Value>,
        now: i64,
    ) -> Value {
        let message_limit = self.settings.message_limit;
        let (bot, people) = (self.bot.user(), &self.people);
        let Some(chat) = self.chats.get_mut(&chat_id) else {
            return Value::Null;
        };
        let message_id = if matches!(chat.kind, ApiChatKind::Private | ApiChatKind::Group) {
            self.shared_message_id += 1;
            self.shared_message_id
        } else {
            chat.last_message_id + 1
        };
        chat.last_message_id = message_id;
        let mut object = Map::new();
        object.insert("message_id".to_owned(), json!(message_id));
        match author {
            MessageSender::Bot if chat.kind == ApiChatKind::Channel => {
                object.insert("sender_chat".to_owned(), chat.object());
            }
            MessageSender::Bot => {
                object.insert("from".to_owned(), bot);
            }
            MessageSender::Person(id) => {
                let known = people.get(id).map(ApiPerson::user);
                let user = known.unwrap_or_else(|| ApiPerson::named(*id, "Somebody").user());
                object.insert("from".to_owned(), user);
            }
            MessageSender::Chat => {
                object.insert("sender_chat".to_owned(), chat.object());
                if chat.kind != ApiChatKind::Channel {
                    let anonymous = json!({
                        "id": 1_087_968_824,
                        "is_bot": true,
                        "first_name": "Group",
                        "username": "GroupAnonymousBot",
                    });
                    object.insert("from".to_owned(), anonymous);
                }
            }
        }
        object.insert("chat".to_owned(), chat.object());
        object.insert("date".to_owned(), json!(now));
        object.append(&mut fields);
        let thread_id = object
            .get("message_thread_id")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        let object = Value::Object(object);
        let is_by_bot = matches!(author, MessageSender::Bot);
        if is_by_bot {
            chat.settle(thread_id);
        }
        chat.messages.insert(
            message_id,
            ApiMessage {
                object: object.clone(),
                text,
                is_by_bot,
                sent_at: now,
                reactions: BTreeMap::new(),
            },
        );
        while chat.messages.len() > message_limit.max(1) {
            chat.messages.pop_first();
        }
        chat.version += 1;
        object
    }

    /// Changes a chat, so that pages notice.
    pub fn touch(&mut self, chat_id: i64) -> Option<&mut ApiChat> {
        let chat = self.chats.get_mut(&chat_id)?;
        chat.version += 1;
        Some(chat)
    }

    /// Whether the bot gets to read a message of a group.
    pub fn is_visible_to_bot(&self, chat_id: i64, message: &Value) -> bool {
        let Some(chat) = self.chats.get(&chat_id) else {
            return false;
        };
        if matches!(chat.standing, BotStanding::Kicked | BotStanding::Left) {
            return false;
        }
        let sees_all = self.settings.reads_all_group_messages || chat.standing == BotStanding::Administrator;
        if sees_all || matches!(chat.kind, ApiChatKind::Private | ApiChatKind::Channel) {
            return true;
        }
        let answers_us = message["reply_to_message"]["from"]["id"] == self.bot.id;
        let entities = ["entities", "caption_entities"].map(|name| message[name].as_array());
        let mut entities = entities.into_iter().flatten().flatten();
        let text = message["text"]
            .as_str()
            .or(message["caption"].as_str())
            .unwrap_or_default();
        let name = format!("@{}", self.settings.username).to_lowercase();
        answers_us
            || text.to_lowercase().contains(&name)
            || entities.any(|entity| entity["type"] == "bot_command" && !text.contains('@'))
    }
}

/// The answer to a poll that another one ended.
pub const OTHER_POLL: &str =
    "terminated by other getUpdates request; make sure that only one bot instance is running";
/// How soon after a conflict another one is answered late, and by how much.
const CONFLICT_PAUSE: Duration = Duration::from_secs(3);

impl BotApiState {
    /// Ends the poll that waits. Returns whether there was one.
    pub fn end_poll(&mut self, why: &str) -> bool {
        let is_waiting = self.poll.is_waiting;
        if is_waiting {
            self.poll.ended = Some((self.poll.number, why.to_owned()));
            self.poll.is_waiting = false;
        }
        is_waiting
    }

    /// How late a conflict is answered.
    pub fn conflict_delay(&mut self, now: Instant) -> Duration {
        match self.poll.next_conflict {
            Some(next) if now < next => CONFLICT_PAUSE,
            _ => {
                self.poll.next_conflict = Some(now + CONFLICT_PAUSE);
                Duration::ZERO
            }
        }
    }
}
