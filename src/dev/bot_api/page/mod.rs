//! The page of the fake Bot API: chats as people see them, and every call of the bot.

mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::BotApi;
use super::chats::{ApiChat, ApiChatKind, BotStanding};
use super::people::PersonMessage;
use super::server::BotApiHub;
use crate::dev::calls::CallCursor;
use crate::dev::page::{ActionError, PageBackend, PageDoor, PageFile, PageNews, given_name};

impl BotApi {
    /// Opens the page and returns its address, token included. A second call returns the same address.
    pub fn open_page(&self) -> String {
        let door = self.hub.page.get_or_init(PageDoor::new);
        format!("{}{}", self.base(), door.path())
    }
}

/// What a page has seen.
pub struct ApiCursor {
    calls: CallCursor,
    /// Of each chat.
    versions: BTreeMap<i64, u64>,
}

impl PageBackend for BotApiHub {
    type Cursor = ApiCursor;

    fn door(&self) -> Option<&PageDoor> {
        self.page.get()
    }

    fn port(&self) -> u16 {
        self.addr.port()
    }

    fn changed(&self) -> &Notify {
        &self.changed
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    fn setup(&self) -> Value {
        let state = self.lock();
        let people = state.people.values();
        let people = people.map(|person| json!({ "id": person.id.to_string(), "name": person.first_name }));
        let commands = state.commands.values().next().and_then(Value::as_array);
        let commands = commands.into_iter().flatten();
        let commands =
            commands.map(|command| json!({ "name": command["command"], "what": command["description"] }));
        let name = format!("@{}", state.settings.username);
        json!({
            "title": "Telegram Bot API",
            "platform": "telegram",
            "agent": name,
            "can": ["reactions", "standings"],
            "kinds": ApiChatKind::OPENED.map(ApiChatKind::label),
            "standings": BotStanding::ALL.map(BotStanding::status),
            "people": people.collect::<Vec<_>>(),
            "commands": commands.collect::<Vec<_>>(),
            "welcome": "Messages go to the bot as updates. What it sends appears here, as Telegram would show it.",
            "about": { "title": name, "text": "Talks to a fake Telegram Bot API on this machine." },
            "wire": {
                "title": "Calls",
                "unit": "call",
                "server": "Bot API",
                "empty": "No calls yet. Start a bot with the token and the address that `hermes-relay dev` printed.",
                "minor": { "label": "getUpdates", "types": ["getUpdates"], "shown": false },
            },
        })
    }

    fn status(&self) -> Value {
        let state = self.lock();
        let calls = state.calls.counted();
        let (link, text) = match calls {
            _ if state.poll.is_waiting => ("live", "bot polls"),
            0 => ("waiting", "no bot yet"),
            _ => ("waiting", "bot does not poll"),
        };
        let fact = |id: &str, about: &str, value: Value| json!({ "id": id, "about": about, "value": value });
        let updates = &state.updates;
        json!({
            "link": { "state": link, "text": text },
            "facts": [
                fact("updates", "Updates that the bot has not confirmed", json!(updates.pending_count())),
                fact("offset", "The offset of the last poll that counted", json!(updates.confirmed())),
                fact("dropped", "Updates that the bot did not ask for, or did not fetch in time", json!(updates.dropped())),
                fact("calls", "Calls since the start", json!(calls)),
            ],
        })
    }

    /// A page that lost its connection gets everything again: chats and calls replace those that it shows.
    fn cursor(&self, _after: Option<&str>) -> ApiCursor {
        ApiCursor {
            calls: self.lock().calls.cursor(),
            versions: BTreeMap::new(),
        }
    }

    fn news(&self, cursor: &mut ApiCursor) -> PageNews {
        let state = self.lock();
        let rows = state.calls.news(&mut cursor.calls, "Bot API", view::about);
        let seen = &mut cursor.versions;
        let chats = state.chats.values();
        let changed = chats.filter(|chat| seen.insert(chat.id, chat.version) != Some(chat.version));
        let mut changed: Vec<&ApiChat> = changed.collect();
        // Private chats, which have positive ids, come first.
        changed.sort_by_key(|chat| (chat.id < 0, chat.id.unsigned_abs()));
        let happenings = changed
            .into_iter()
            .flat_map(|chat| view::shown_chats(&state, chat));
        PageNews {
            id: None,
            rows,
            happenings: happenings
                .map(|chat| json!({ "k": "chat", "chat": chat }).to_string().into())
                .collect(),
        }
    }

    fn row(&self, number: u64) -> Option<Value> {
        self.lock().calls.details(number)
    }

    fn file(&self, id: &str) -> Option<PageFile> {
        self.lock().files.for_page(id)
    }

    fn keep(&self, file: PageFile) -> String {
        self.change(|state| state.files.keep_from_page(file))
    }

    async fn act(self: &Arc<Self>, action: &str, body: &[u8]) -> Result<Value, ActionError> {
        let asked: ApiAction = serde_json::from_slice(body)?;
        let (chat_id, person_id, message_id) = (id(&asked.chat), id(&asked.who), id(&asked.message));
        let is_done = match action {
            "say" if asked.text.trim().is_empty() && asked.media.is_empty() => {
                return Err(ActionError::bad("there is no text"));
            }
            "say" => {
                let messages = messages(&asked).into_iter();
                messages
                    .map(|message| self.send(chat_id, person_id, message))
                    .all(|sent| sent != 0)
            }
            "press" => self
                .press(chat_id, message_id, person_id, &asked.option)
                .is_some(),
            "stop" if self.press_stop(chat_id).is_none() => {
                return Err(ActionError::bad(
                    "no draft in this chat has a Stop button; write /stop",
                ));
            }
            "stop" => true,
            "react" => {
                self.react(chat_id, message_id, person_id, &[&asked.emoji]);
                true
            }
            "person" => self.join(&given_name(&asked.name).map_err(ActionError::bad)?),
            "chat" => {
                let kind = ApiChatKind::OPENED
                    .into_iter()
                    .find(|kind| kind.label() == asked.kind)
                    .ok_or_else(|| ActionError::bad("there is no such kind of chat"))?;
                self.open_chat(kind, &given_name(&asked.name).map_err(ActionError::bad)?);
                true
            }
            "standing" => match BotStanding::named(&asked.standing) {
                Some(standing) => self.set_standing(chat_id, person_id, standing),
                None => return Err(ActionError::bad("there is no such standing")),
            },
            _ => return Err(ActionError::unknown(action)),
        };
        if is_done {
            Ok(json!({ "sessions": 1 }))
        } else {
            Err(ActionError::bad("there is no such chat, message or button"))
        }
    }
}

/// What a person asks for on the page. Ids are text there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ApiAction {
    chat: String,
    thread: Option<String>,
    who: String,
    message: String,
    option: String,
    text: String,
    media: Vec<String>,
    reply_to: Option<QuotedId>,
    emoji: String,
    kind: String,
    name: String,
    standing: String,
}

#[derive(Deserialize)]
struct QuotedId {
    id: String,
}

fn id(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}

/// The messages that a person sends: one, or one for each file; the first has the text.
fn messages(asked: &ApiAction) -> Vec<PersonMessage> {
    let message = |text: &str, file: Option<&String>| PersonMessage {
        thread_id: asked.thread.as_deref().map(id),
        reply_to: asked.reply_to.as_ref().map(|quoted| id(&quoted.id)),
        kept_file: file.cloned(),
        ..PersonMessage::text(text)
    };
    let mut messages = vec![message(&asked.text, asked.media.first())];
    messages.extend(asked.media.iter().skip(1).map(|file| message("", Some(file))));
    messages
}
