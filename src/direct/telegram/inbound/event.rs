//! A message as the contract's event.

use serde_json::{Map, Value, json};

use super::content::MessageContent;
use super::entity::{CommandAddressee, MarkedText, rich_text};
use super::relevance::Addressing;
use super::sender::{Sender, origin_name};
use crate::direct::field;
use crate::direct::telegram::bot::Bot;
use crate::direct::telegram::callback::PressedButton;
use crate::direct::telegram::chat::{ChatPlace, chat_name, chat_type};
use crate::direct::telegram::topics::{GENERAL_TOPIC, TopicNames};
use crate::text::truncate;

/// Longest quoted text of a message that is replied to, in characters.
const MAX_QUOTED: usize = 4096;

/// The parts of a message.
pub(super) struct MessageReading<'m> {
    message: &'m Value,
    chat: &'m Value,
    bot: &'m Bot,
    pub(super) chat_id: i64,
    pub(super) message_id: i64,
    pub(super) thread_id: Option<i64>,
    pub(super) place: ChatPlace,
    pub(super) sender: Sender,
    /// The bot that the command in the text is for, if the text is one.
    pub(super) command: CommandAddressee,
    text: MarkedText<'m>,
    content: Option<MessageContent>,
    reply: Option<Reply>,
}

/// The message that is replied to.
struct Reply {
    message_id: Option<i64>,
    text: Option<String>,
    author: String,
    is_own: bool,
}

impl<'m> MessageReading<'m> {
    /// Reads a message; `None` if it names no chat.
    pub(super) fn new(message: &'m Value, bot: &'m Bot) -> Option<Self> {
        let chat = field::object(message, "chat")?;
        let text = MarkedText::of(message);
        let command = if is_typed(message) {
            text.command(bot)
        } else {
            CommandAddressee::None
        };
        Some(Self {
            message,
            chat,
            bot,
            chat_id: field::integer(chat, "id")?,
            message_id: field::integer(message, "message_id").unwrap_or_default(),
            thread_id: thread_of(message, chat),
            place: ChatPlace::of(chat),
            sender: Sender::of(message),
            command,
            content: MessageContent::of(message),
            reply: reply_of(message, bot),
            text,
        })
    }

    /// Whether the message has no text and no content, as service messages have.
    pub(super) fn is_empty(&self) -> bool {
        self.text.as_written().is_empty() && self.content.is_none() && rich_text(self.message).is_none()
    }

    /// The facts that its relevance depends on. A forwarded text addresses nobody.
    pub(super) fn addressing(&self) -> Addressing {
        let own_words = !field::has(self.message, "forward_origin");
        Addressing {
            place: self.place,
            chat_id: self.chat_id,
            thread_id: self.thread_id,
            by_bot: self.sender.is_bot,
            is_mention: own_words && self.text.mentions(self.bot),
            is_reply: self.reply.as_ref().is_some_and(|reply| reply.is_own),
            is_command: self.command == CommandAddressee::Anyone,
        }
    }

    /// The message as the contract's event.
    pub(super) fn event(&self, topics: &TopicNames) -> Value {
        let mut event = Map::new();
        let message_type = match &self.content {
            _ if self.is_command() => "command",
            Some(content) => content.message_type,
            None => "text",
        };
        event.insert("text".to_owned(), self.event_text().into());
        event.insert("message_type".to_owned(), message_type.into());
        event.insert("source".to_owned(), self.source(topics).into());
        if let Some(id) = id_text(self.message_id) {
            event.insert("message_id".to_owned(), id.into());
        }
        if let Some(reply) = &self.reply {
            if let Some(id) = reply.message_id.and_then(id_text) {
                event.insert("reply_to_message_id".to_owned(), id.into());
            }
            event.insert(
                "reply_to".to_owned(),
                json!({ "text": reply.text, "author": reply.author, "is_own": reply.is_own }),
            );
        }
        if let Some(medium) = self.content.as_ref().and_then(|content| content.medium.as_ref()) {
            event.insert("media_urls".to_owned(), json!([medium["url"]]));
            event.insert("media".to_owned(), json!([medium]));
        }
        event.into()
    }

    fn is_command(&self) -> bool {
        self.command != CommandAddressee::None
    }

    /// The text for the agent.
    pub(super) fn event_text(&self) -> String {
        let mut text = match &self.content {
            // A caption that only mentions the bot has no text for the agent.
            Some(_) if self.text.is_only_mention(self.bot) => String::new(),
            _ => self.text.rendered(self.bot, self.is_command()),
        };
        if text.is_empty() {
            text = rich_text(self.message).unwrap_or_default();
        }
        let description = (self.content.as_ref()).and_then(|content| content.description.as_deref());
        if let Some(description) = description {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(description);
        }
        match field::object(self.message, "forward_origin") {
            Some(origin) => forwarded(&text, &origin_name(origin)),
            None => text,
        }
    }

    /// The chat, the topic and the author of the message.
    fn source(&self, topics: &TopicNames) -> Map<String, Value> {
        let mut source = place_source(self.chat, self.chat_id, self.thread_id, topics);
        add_person(&mut source, &self.sender);
        if let Some(id) = id_text(self.message_id) {
            source.insert("message_id".to_owned(), id.into());
        }
        source
    }
}

/// The press of a button as the contract's event; `None` if the message with the button names no chat.
pub(super) fn press_event(
    query: &Value,
    query_id: &str,
    pressed: &PressedButton,
    topics: &TopicNames,
) -> Option<Value> {
    let message = field::object(query, "message")?;
    let chat = field::object(message, "chat")?;
    let chat_id = field::integer(chat, "id")?;
    let message_id = field::integer(message, "message_id").and_then(id_text);
    // Telegram gives a message that is too old a date of 0, and does not name its topic.
    let thread_id = if field::integer(message, "date") == Some(0) {
        None
    } else {
        thread_of(message, chat)
    };
    let mut source = place_source(chat, chat_id, thread_id, topics);
    add_person(&mut source, &Sender::person(field::object(query, "from")?));
    let mut response = json!({ "prompt_id": pressed.prompt_id, "option_id": pressed.option_id });
    if let Some(id) = message_id {
        source.insert("message_id".to_owned(), id.as_str().into());
        response["prompt_message_id"] = id.into();
    }
    if let Some(label) = pressed_label(message, query) {
        response["label"] = label.into();
    }
    Some(json!({
        "text": format!("/{}", pressed.option_id),
        "message_type": "command",
        "message_id": query_id,
        "source": source,
        "prompt_response": response,
    }))
}

/// The text on the button that was pressed.
fn pressed_label<'v>(message: &'v Value, query: &Value) -> Option<&'v str> {
    let data = field::text(query, "data")?;
    field::list(field::object(message, "reply_markup")?, "inline_keyboard")
        .iter()
        .filter_map(Value::as_array)
        .flatten()
        .find(|button| field::text(button, "callback_data") == Some(data))
        .and_then(|button| field::text(button, "text"))
}

fn place_source(
    chat: &Value,
    chat_id: i64,
    thread_id: Option<i64>,
    topics: &TopicNames,
) -> Map<String, Value> {
    let mut source = Map::new();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            source.insert(key.to_owned(), value.into());
        }
    };
    add("platform", "telegram");
    add("chat_id", &chat_id.to_string());
    add("chat_type", chat_type(chat));
    add("chat_name", &chat_name(chat));
    if let Some(thread_id) = thread_id {
        add("thread_id", &thread_id.to_string());
        add(
            "chat_topic",
            topics.name_of(chat_id, thread_id).unwrap_or_default(),
        );
    }
    source
}

fn add_person(source: &mut Map<String, Value>, sender: &Sender) {
    if let Some(id) = sender.id {
        source.insert("user_id".to_owned(), id.to_string().into());
    }
    if !sender.name.is_empty() {
        source.insert("user_name".to_owned(), sender.name.as_str().into());
    }
    if let Some(handle) = &sender.handle {
        source.insert("user_handle".to_owned(), handle.as_str().into());
    }
    if let Some(language) = &sender.language {
        source.insert("language_code".to_owned(), language.as_str().into());
    }
    source.insert("is_bot".to_owned(), sender.is_bot.into());
}

/// The topic of a message. A thread that is no topic is a chain of replies.
fn thread_of(message: &Value, chat: &Value) -> Option<i64> {
    let thread = field::integer(message, "message_thread_id").filter(|id| *id > 0);
    let is_forum = field::flag(chat, "is_forum") && ChatPlace::of(chat) == ChatPlace::Group;
    match thread {
        Some(thread) if is_forum || field::flag(message, "is_topic_message") => Some(thread),
        _ => is_forum.then_some(GENERAL_TOPIC),
    }
}

/// Whether `replied` is the root message of a topic: Telegram presents every message of the topic as a reply to it.
fn is_topic_root(replied: &Value, message: &Value) -> bool {
    field::has(replied, "forum_topic_created")
        || (field::flag(message, "is_topic_message")
            && field::integer(message, "message_thread_id").is_some()
            && field::integer(replied, "message_id") == field::integer(message, "message_thread_id"))
}

/// The name of the message's topic, from the topic's root message.
pub(super) fn root_name(message: &Value) -> Option<&str> {
    let root = field::object(message, "reply_to_message")?;
    field::text(field::object(root, "forum_topic_created")?, "name")
}

/// Whether the author typed the text: it is neither forwarded nor the inline result of another bot.
fn is_typed(message: &Value) -> bool {
    !field::has(message, "via_bot") && !field::has(message, "forward_origin")
}

fn reply_of(message: &Value, bot: &Bot) -> Option<Reply> {
    let quote = field::object(message, "quote").and_then(|quote| field::text(quote, "text"));
    let quoted = |text: &str| truncate(text, MAX_QUOTED).to_owned();
    let replied =
        field::object(message, "reply_to_message").filter(|replied| !is_topic_root(replied, message));
    if let Some(replied) = replied {
        return Some(Reply {
            message_id: field::integer(replied, "message_id"),
            text: quote.map(quoted).or_else(|| replied_text(replied)),
            author: Sender::of(replied).name,
            is_own: Sender::is_own(replied, bot),
        });
    }
    let external = field::object(message, "external_reply")?;
    Some(Reply {
        message_id: None,
        text: quote.map(quoted).or_else(|| replied_text(external)),
        author: field::object(external, "origin")
            .map(origin_name)
            .unwrap_or_default(),
        is_own: false,
    })
}

/// The text of a message that is replied to, else a description of its content.
fn replied_text(replied: &Value) -> Option<String> {
    let written = MarkedText::of(replied).as_written();
    let text = if written.is_empty() {
        rich_text(replied).or_else(|| {
            let content = MessageContent::of(replied)?;
            Some(
                content
                    .description
                    .unwrap_or_else(|| format!("[{}]", content.message_type)),
            )
        })?
    } else {
        written.to_owned()
    };
    Some(truncate(&text, MAX_QUOTED).to_owned())
}

/// A forwarded text as a quote that names its author.
fn forwarded(text: &str, from: &str) -> String {
    let mut marked = if from.is_empty() {
        "[forwarded]".to_owned()
    } else {
        format!("[forwarded from {from}]")
    };
    for line in text.lines() {
        marked.push_str("\n> ");
        marked.push_str(line);
    }
    marked
}

/// A message id as text; 0 stands for no id.
fn id_text(id: i64) -> Option<String> {
    (id != 0).then(|| id.to_string())
}
