//! Events of the gateway become the contract's events.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::bot::DiscordBot;
use super::deferred::{DeferredCommand, DeferredKind};
use crate::collections::BoundedCache;
use crate::direct::{RecentMessages, field};
use crate::text::truncate;
use crate::wire::{PRIVATE_REPLY, PROMPT_TOKEN, PassthroughForward};

/// Longest quoted text of a message that is replied to, in characters.
const MAX_QUOTED: usize = 4096;
/// Channels whose type, parent and name, and channels whose last message are remembered.
const MAX_CHANNELS: usize = 20_000;
/// Longest names, in characters.
const MAX_NAME: usize = 200;
/// Messages whose authors are remembered: Discord does not say whose message was deleted.
const MAX_AUTHORS: usize = 10_000;
/// Messages that are deleted at once, and the longest time of an edit, in characters.
const MAX_DELETED: usize = 100;
const MAX_TIME: usize = 64;

/// Why a message of a channel is not for the agent.
const NOT_ADDRESSED: &str = "a message that does not address the bot";

/// Which messages of a channel are for the agent.
#[derive(Clone, Debug, Default)]
pub struct DiscordRelevance {
    /// Whether messages in channels must mention or answer the bot.
    pub require_mention: bool,
    /// Channels where they need not; threads count with their channel.
    pub free_chats: Vec<String>,
    /// Whether messages of other bots count.
    pub allow_bots: bool,
}

/// What a person did, to be acknowledged within three seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interaction {
    /// What Discord knows of it.
    pub command: DeferredCommand,
    /// What it is.
    pub kind: InteractionKind,
    /// The language of the person's client.
    pub locale: Option<String>,
}

/// The kind of an interaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InteractionKind {
    /// A slash command or a form: it waits for an answer.
    Command,
    /// An answer to a question of this bot.
    Press,
    /// A press of a button that is not in use.
    Stray,
    /// A command that is being typed: Discord asks for completions.
    Completion,
}

/// The meaning of an event to the relay.
#[derive(Clone, Debug, PartialEq)]
pub enum DiscordMeaning {
    /// A message for the agent.
    Message {
        /// The contract's event.
        event: Value,
        /// The name under which it is acknowledged.
        buffer_id: String,
        /// The chat.
        chat: String,
        /// The id of the message; 0 for an edit or a deletion of one that came before.
        message: u64,
    },
    /// What a person did by other means than a message, with what the relay gets of it, if it does.
    Interaction(Box<Interaction>, Option<Box<PassthroughForward>>),
    /// A message that is not for the agent, for this reason.
    Passed {
        /// The chat.
        chat: String,
        /// The id of the message.
        message: u64,
        /// Why it is not for the agent.
        why: &'static str,
    },
    /// Nothing to forward.
    Nothing,
}

/// What is known of a channel.
#[derive(Clone, Debug, Default)]
struct KnownChannel {
    kind: i64,
    parent: Option<String>,
    name: String,
    owner: Option<String>,
}

impl KnownChannel {
    fn is_thread(&self) -> bool {
        matches!(self.kind, 10..=12)
    }
}

/// Who wrote a message, and their roles at that time.
#[derive(Clone, Debug)]
struct KnownAuthor {
    id: String,
    roles: Value,
}

/// Reads events.
#[derive(Debug)]
pub struct EventReader {
    /// The bot's own account.
    pub bot: DiscordBot,
    /// Which messages are for the agent.
    pub relevance: DiscordRelevance,
    channels: HashMap<String, KnownChannel>,
    /// The authors of the messages for the agent.
    authors: BoundedCache<String, KnownAuthor>,
    /// The last messages of channels that were not for the agent.
    recent: RecentMessages<String>,
    /// The last message that was read in each channel.
    last: BoundedCache<String, i64>,
}

impl EventReader {
    /// A reader for these rules. Only a new session describes the bot, so a session that goes on needs the one of its start.
    pub fn new(bot: DiscordBot, relevance: DiscordRelevance, group_context: usize) -> Self {
        Self {
            bot,
            relevance,
            channels: HashMap::new(),
            authors: BoundedCache::new(MAX_AUTHORS),
            recent: RecentMessages::new(group_context),
            last: BoundedCache::new(MAX_CHANNELS),
        }
    }

    /// The meaning of an event.
    pub fn read(&mut self, kind: &str, data: &Value, now_ms: i64) -> DiscordMeaning {
        match kind {
            "READY" => {
                let bot = field::object(data, "user").and_then(DiscordBot::from_user);
                self.bot = bot.unwrap_or_default();
                let application = field::object(data, "application");
                let application = application.and_then(|application| field::text(application, "id"));
                application
                    .unwrap_or(&self.bot.id)
                    .clone_into(&mut self.bot.application);
            }
            "GUILD_CREATE" => {
                for channel in field::list(data, "channels")
                    .iter()
                    .chain(field::list(data, "threads"))
                {
                    self.learn(channel);
                }
                for role in field::list(data, "roles") {
                    self.bot.learn_role(role);
                }
            }
            "GUILD_ROLE_CREATE" | "GUILD_ROLE_UPDATE" => self.bot.learn_role(&data["role"]),
            "GUILD_ROLE_DELETE" => {
                if let Some(id) = field::text(data, "role_id") {
                    self.bot.roles.remove(id);
                }
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => self.learn(data),
            "THREAD_LIST_SYNC" => field::list(data, "threads")
                .iter()
                .for_each(|thread| self.learn(thread)),
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                field::text(data, "id").and_then(|id| self.channels.remove(id));
            }
            "MESSAGE_CREATE" => return self.new_message(data, true),
            "MESSAGE_UPDATE" => {
                self.change_context(data);
                return self.edit(data).unwrap_or(DiscordMeaning::Nothing);
            }
            "MESSAGE_DELETE" => {
                if let Some((chat, id)) = place_of(data) {
                    self.recent.deleted(&chat, id);
                }
                return self.deletion(data).unwrap_or(DiscordMeaning::Nothing);
            }
            "INTERACTION_CREATE" => return self.interaction(data, now_ms).unwrap_or(DiscordMeaning::Nothing),
            _ => {}
        }
        DiscordMeaning::Nothing
    }

    /// The meaning of a message that was fetched. One that is not above the last of its channel may have been read before: it is no
    /// context of later messages, and takes none from them.
    pub fn read_fetched(&mut self, message: &Value) -> DiscordMeaning {
        let last = |chat: &String| self.last.peek(chat).copied().unwrap_or_default();
        let is_last = place_of(message).is_some_and(|(chat, id)| id > last(&chat));
        self.new_message(message, is_last)
    }

    fn new_message(&mut self, message: &Value, has_context: bool) -> DiscordMeaning {
        let mut meaning = self.message(message, false).unwrap_or(DiscordMeaning::Nothing);
        self.remember_author(&meaning);
        if has_context {
            self.put_context(&mut meaning, message);
        }
        if let Some((chat, id)) = place_of(message) {
            let last = self.last.get(&chat).copied().unwrap_or_default();
            self.last.insert(chat, last.max(id));
        }
        meaning
    }

    /// Whether a channel of a server is not known: threads that were archived are not announced.
    pub fn wants_channel<'m>(&self, kind: &str, data: &'m Value) -> Option<&'m str> {
        let id = field::text(data, "channel_id")?;
        let is_content = match kind {
            "MESSAGE_CREATE" => true,
            "MESSAGE_UPDATE" => field::has(data, "edited_timestamp"),
            _ => false,
        };
        (is_content && field::has(data, "guild_id") && !self.channels.contains_key(id)).then_some(id)
    }

    /// Learns of a channel or thread.
    pub fn learn(&mut self, channel: &Value) {
        let Some(id) = field::text(channel, "id") else {
            return;
        };
        if self.channels.len() >= MAX_CHANNELS && !self.channels.contains_key(id) {
            return;
        }
        let owned = |key| field::text(channel, key).map(|text| truncate(text, MAX_NAME).to_owned());
        self.channels.insert(
            id.to_owned(),
            KnownChannel {
                kind: field::integer(channel, "type").unwrap_or_default(),
                parent: owned("parent_id"),
                name: owned("name").unwrap_or_default(),
                owner: owned("owner_id"),
            },
        );
    }

    /// A message; one that is `taken` already need not address the bot any more.
    fn message(&self, message: &Value, taken: bool) -> Option<DiscordMeaning> {
        let (id, chat) = (field::text(message, "id")?, field::text(message, "channel_id")?);
        let number: u64 = id.parse().ok()?;
        let passed = |why| {
            Some(DiscordMeaning::Passed {
                chat: chat.to_owned(),
                message: number,
                why,
            })
        };
        let author = field::object(message, "author")?;
        let author_id = field::text(author, "id")?;
        if author_id == self.bot.id {
            return passed("a message of the bot itself");
        }
        if !matches!(field::integer(message, "type").unwrap_or_default(), 0 | 19) {
            return passed("a system message");
        }
        if field::integer(message, "flags").unwrap_or_default() & 64 != 0 {
            return passed("a message that only one person sees");
        }
        let is_bot = field::flag(author, "bot") || field::has(message, "webhook_id");
        if is_bot && !self.relevance.allow_bots {
            return passed("a message of another bot");
        }
        let replied = field::object(message, "referenced_message");
        let is_reply_to_us = replied
            .and_then(|replied| field::text(field::object(replied, "author")?, "id"))
            .is_some_and(|id| id == self.bot.id);
        let is_mention = field::list(message, "mentions")
            .iter()
            .any(|user| field::text(user, "id") == Some(&self.bot.id))
            || self.own_roles(message).next().is_some();
        let channel = self.channels.get(chat).cloned().unwrap_or_default();
        let in_guild = field::has(message, "guild_id");
        let is_own_thread = channel.is_thread() && channel.owner.as_deref() == Some(&self.bot.id);
        let is_free = self.relevance.free_chats.iter().any(|free| {
            let free = free.trim();
            free == chat || channel.parent.as_deref() == Some(free)
        });
        let required = in_guild && self.relevance.require_mention && !taken;
        if required && !is_mention && !is_reply_to_us && !is_own_thread && !is_free {
            return passed(NOT_ADDRESSED);
        }
        let mut text = self.text(message);
        let media = media(message);
        if text.is_empty() && media.is_empty() {
            if field::text(message, "content").is_none_or(|content| content.trim().is_empty()) {
                return passed("a message without content; is Message Content Intent on?");
            }
            // Whoever says nothing else calls the bot to what was said before.
            text = format!("@{}", self.bot.name);
        }
        let mut event = Map::new();
        event.insert("text".to_owned(), text.as_str().into());
        let message_type = if text.starts_with('/') {
            "command"
        } else {
            media
                .first()
                .and_then(|medium| medium["kind"].as_str())
                .unwrap_or("text")
        };
        event.insert("message_type".to_owned(), message_type.into());
        event.insert("message_id".to_owned(), id.into());
        let source = self.source(
            chat,
            in_guild,
            message,
            author,
            field::object(message, "member"),
            id,
        );
        event.insert("source".to_owned(), source.into());
        if let Some(replied) = replied {
            let reply_text = field::text(replied, "content").map(|text| truncate(text, MAX_QUOTED));
            let by = field::object(replied, "author").map_or("", |author| name_of(author, None));
            event.insert("reply_to_message_id".to_owned(), replied["id"].clone());
            event.insert(
                "reply_to".to_owned(),
                json!({ "text": reply_text, "author": by, "is_own": is_reply_to_us }),
            );
        }
        if !media.is_empty() {
            let urls: Vec<&Value> = media.iter().map(|medium| &medium["url"]).collect();
            event.insert("media_urls".to_owned(), json!(urls));
            event.insert("media".to_owned(), media.into());
        }
        Some(DiscordMeaning::Message {
            event: event.into(),
            buffer_id: id.to_owned(),
            chat: chat.to_owned(),
            message: number,
        })
    }

    /// Changes what is remembered of a message that was edited.
    fn change_context(&mut self, message: &Value) {
        if field::has(message, "edited_timestamp")
            && let Some((chat, id)) = place_of(message)
        {
            let text = self.text(message);
            self.recent.edited(&chat, id, &text);
        }
    }

    /// Remembers what was said in a channel, for the message that calls the bot.
    fn put_context(&mut self, meaning: &mut DiscordMeaning, message: &Value) {
        match meaning {
            DiscordMeaning::Passed {
                chat,
                message: id,
                why,
            } if *why == NOT_ADDRESSED => {
                let author = field::object(message, "author");
                let name = author.map_or("", |author| name_of(author, field::object(message, "member")));
                let id = i64::try_from(*id).unwrap_or_default();
                let text = self.text(message);
                self.recent.note(chat, id, truncate(name, MAX_NAME), &text);
            }
            DiscordMeaning::Message { event, chat, .. } => {
                if let Some(context) = self.recent.take(chat) {
                    event["context"] = context;
                }
            }
            _ => {}
        }
    }

    fn remember_author(&mut self, meaning: &DiscordMeaning) {
        if let DiscordMeaning::Message { event, buffer_id, .. } = meaning
            && let Some(author) = field::text(&event["source"], "user_id")
        {
            let author = KnownAuthor {
                id: author.to_owned(),
                roles: event["source"]["user_roles"].clone(),
            };
            self.authors.insert(buffer_id.clone(), author);
        }
    }

    /// A message that was edited: the same event under the same id, marked. Discord reports previews, pins and threads of a
    /// message in the same way, but those give it no time of an edit.
    fn edit(&self, message: &Value) -> Option<DiscordMeaning> {
        let at = truncate(field::text(message, "edited_timestamp")?, MAX_TIME);
        let taken = field::text(message, "id").is_some_and(|id| self.authors.peek(id).is_some());
        let DiscordMeaning::Message {
            mut event,
            buffer_id,
            chat,
            ..
        } = self.message(message, taken)?
        else {
            return None;
        };
        event["message_is_edit"] = true.into();
        Some(DiscordMeaning::Message {
            event,
            buffer_id: format!("{buffer_id} edited {at}"),
            chat,
            message: 0,
        })
    }

    /// A message for the agent that was deleted.
    fn deletion(&self, deleted: &Value) -> Option<DiscordMeaning> {
        let (id, chat) = (field::text(deleted, "id")?, field::text(deleted, "channel_id")?);
        let known = self.authors.peek(id)?;
        let author = json!({ "id": known.id });
        let member = json!({ "roles": known.roles });
        let in_guild = field::has(deleted, "guild_id");
        let source = self.source(chat, in_guild, deleted, &author, Some(&member), id);
        Some(DiscordMeaning::Message {
            event: json!({ "text": "", "message_type": "text", "message_id": id, "source": source, "message_is_deleted": true }),
            buffer_id: format!("{id} deleted"),
            chat: chat.to_owned(),
            message: 0,
        })
    }

    /// The bot's own roles that a message mentions.
    fn own_roles<'m>(&'m self, message: &'m Value) -> impl Iterator<Item = &'m str> {
        let mentioned = field::list(message, "mention_roles").iter();
        let mentioned = mentioned.filter_map(Value::as_str);
        mentioned.filter(|role| self.bot.roles.contains(*role))
    }

    /// The text for the agent: without mentions of the bot at its start and its end, with what a forward, a sticker or an embed says.
    fn text(&self, message: &Value) -> String {
        let content = field::text(message, "content").unwrap_or_default();
        let by_role = self.own_roles(message).map(|role| format!("<@&{role}>"));
        let mentions: Vec<String> = [format!("<@{}>", self.bot.id), format!("<@!{}>", self.bot.id)]
            .into_iter()
            .chain(by_role)
            .collect();
        let mut text = content.trim();
        while let Some(rest) = mentions.iter().find_map(|mention| {
            let rest = text.strip_prefix(&**mention);
            rest.or_else(|| text.strip_suffix(&**mention))
        }) {
            text = rest.trim();
        }
        let mut lines = said(text, message);
        for forwarded in forwards(message) {
            let content = field::text(forwarded, "content").unwrap_or_default();
            let quoted = said(content, forwarded);
            let quoted: Vec<String> = quoted
                .iter()
                .flat_map(|text| text.lines())
                .map(|line| format!("> {line}"))
                .collect();
            if !quoted.is_empty() || !field::list(forwarded, "attachments").is_empty() {
                lines.push("[forwarded]".to_owned());
                lines.extend(quoted);
            }
        }
        lines.join("\n")
    }

    fn source(
        &self,
        chat: &str,
        in_guild: bool,
        holder: &Value,
        user: &Value,
        member: Option<&Value>,
        message_id: &str,
    ) -> Map<String, Value> {
        let channel = self.channels.get(chat).cloned().unwrap_or_default();
        let mut source = Map::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                source.insert(key.to_owned(), value.into());
            }
        };
        add("platform", "discord");
        add("chat_id", chat);
        let chat_type = match (in_guild, channel.is_thread()) {
            (false, _) => "dm",
            (true, true) => "thread",
            (true, false) => "group",
        };
        add("chat_type", chat_type);
        add("chat_name", &channel.name);
        if chat_type == "thread" {
            add("thread_id", chat);
            add("parent_chat_id", channel.parent.as_deref().unwrap_or_default());
        }
        add("scope_id", field::text(holder, "guild_id").unwrap_or_default());
        add("user_id", field::text(user, "id").unwrap_or_default());
        add("user_name", name_of(user, member));
        add("user_handle", field::text(user, "username").unwrap_or_default());
        add("message_id", message_id);
        let is_bot = field::flag(user, "bot") || field::has(holder, "webhook_id");
        source.insert("is_bot".to_owned(), is_bot.into());
        let roles = member.map_or(&[][..], |member| field::list(member, "roles"));
        if !roles.is_empty() {
            source.insert("user_roles".to_owned(), roles.into());
        }
        source
    }

    /// What a person did by other means than a message. The relay reads it as it reads what a connector forwards, without its
    /// token.
    fn interaction(&self, interaction: &Value, now_ms: i64) -> Option<DiscordMeaning> {
        let user = field::object(interaction, "member").and_then(|member| field::object(member, "user"));
        let user = user.or_else(|| field::object(interaction, "user"))?;
        field::text(user, "id")?;
        let owned = |object: &Value, key: &str| field::text(object, key).map(str::to_owned);
        let mut command = DeferredCommand {
            id: owned(interaction, "id")?,
            token: owned(interaction, "token")?,
            application: owned(interaction, "application_id").unwrap_or_else(|| self.bot.application.clone()),
            chat: owned(interaction, "channel_id")?,
            at_ms: now_ms,
            ..DeferredCommand::default()
        };
        // They become parts of paths.
        let is_plain = |text: &String| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if ![&command.id, &command.token, &command.application]
            .into_iter()
            .all(is_plain)
        {
            return None;
        }
        let custom = || field::text(field::object(interaction, "data")?, "custom_id");
        let kind = match field::integer(interaction, "type")? {
            2 | 5 => InteractionKind::Command,
            3 if custom().is_some_and(|custom| custom.starts_with(PROMPT_TOKEN)) => InteractionKind::Press,
            3 => InteractionKind::Stray,
            4 => InteractionKind::Completion,
            _ => return None,
        };
        if kind == InteractionKind::Press {
            command.kind = DeferredKind::Press;
        }
        let is_for_relay = matches!(kind, InteractionKind::Command | InteractionKind::Press);
        let forward = is_for_relay.then(|| {
            let mut body = interaction.clone();
            body["token"] = Value::Null;
            if kind == InteractionKind::Command {
                // It has no message. What answers it names it by this id.
                body["message"] = json!({ "id": command.message_id() });
            } else {
                // What is said to whoever pressed, and to nobody else, names it by this id.
                body[PRIVATE_REPLY] = command.message_id().into();
            }
            Box::new(PassthroughForward {
                platform: "discord".to_owned(),
                bot_id: self.bot.id.clone(),
                method: "POST".to_owned(),
                path: "/interactions".to_owned(),
                body: body.to_string().into_bytes(),
                ..PassthroughForward::default()
            })
        });
        Some(DiscordMeaning::Interaction(
            Box::new(Interaction {
                command,
                kind,
                locale: owned(interaction, "locale"),
            }),
            forward,
        ))
    }
}

/// The deletions of messages that were deleted at once, each as `MESSAGE_DELETE` would report it.
pub fn deletions(deleted: &Value) -> impl Iterator<Item = Value> + use<'_> {
    let ids = field::list(deleted, "ids").iter().take(MAX_DELETED);
    ids.map(|id| json!({ "id": id, "channel_id": deleted["channel_id"], "guild_id": deleted["guild_id"] }))
}

/// The chat and the number of a message.
fn place_of(message: &Value) -> Option<(String, i64)> {
    let (chat, id) = (field::text(message, "channel_id")?, field::text(message, "id")?);
    Some((chat.to_owned(), id.parse().ok()?))
}

fn name_of<'v>(user: &'v Value, member: Option<&'v Value>) -> &'v str {
    member
        .and_then(|member| field::text(member, "nick"))
        .or_else(|| field::text(user, "global_name"))
        .or_else(|| field::text(user, "username"))
        .unwrap_or_default()
}

/// The messages that a message forwards.
fn forwards(message: &Value) -> impl Iterator<Item = &Value> {
    let snapshots = field::list(message, "message_snapshots").iter();
    snapshots.filter_map(|snapshot| field::object(snapshot, "message"))
}

/// What a message says with this text, or by an embed without one, and by its stickers.
fn said(text: &str, message: &Value) -> Vec<String> {
    let mut lines = vec![text.to_owned()];
    for sticker in field::list(message, "sticker_items") {
        let name = field::text(sticker, "name").unwrap_or("unnamed");
        lines.push(format!("[sticker: {name}]"));
    }
    if text.is_empty() {
        for embed in field::list(message, "embeds") {
            let parts = ["title", "description"];
            let parts = parts.into_iter().filter_map(|key| field::text(embed, key));
            lines.extend(parts.map(str::to_owned));
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// The attachments of a message, and of those that it forwards.
fn media(message: &Value) -> Vec<Value> {
    let messages = std::iter::once(message).chain(forwards(message));
    messages
        .flat_map(|message| field::list(message, "attachments"))
        .filter_map(|attachment| {
            let url = field::text(attachment, "url")?;
            let mime = field::text(attachment, "content_type").unwrap_or("application/octet-stream");
            let is_voice = field::integer(attachment, "flags").unwrap_or_default() & (1 << 13) != 0;
            let kind = match mime.split('/').next() {
                Some("image") => "photo",
                Some("video") => "video",
                Some("audio") if is_voice => "voice",
                Some("audio") => "audio",
                _ => "document",
            };
            Some(json!({
                "url": url,
                "kind": kind,
                "mime": mime.split(';').next(),
                "filename": field::text(attachment, "filename"),
                "size": field::integer(attachment, "size"),
            }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ConnectorFrame;

    fn reader() -> EventReader {
        let relevance = DiscordRelevance {
            require_mention: true,
            free_chats: vec!["50".to_owned()],
            allow_bots: false,
        };
        let mut reader = EventReader::new(DiscordBot::default(), relevance, 0);
        reader.read("READY", &json!({"user": {"id": "1", "username": "relay"}}), 0);
        let guild = json!({"id": "9", "channels": [{"id": "5", "type": 0, "name": "talk"}, {"id": "50", "type": 15, "name": "forum"}],
            "roles": [{"id": "80", "tags": {"bot_id": "1"}}, {"id": "81"}, {"id": "82", "tags": {"bot_id": "4"}}],
            "threads": [{"id": "6", "type": 11, "parent_id": "5", "name": "t"}, {"id": "51", "type": 11, "parent_id": "50", "name": "post"},
                {"id": "7", "type": 11, "parent_id": "5", "name": "mine", "owner_id": "1"}]});
        reader.read("GUILD_CREATE", &guild, 0);
        reader
    }

    fn message(more: &Value) -> Value {
        let mut message = json!({"id": "100", "channel_id": "3", "type": 0, "content": "hi", "author": {"id": "2", "username": "ada"}});
        for (key, value) in more.as_object().unwrap() {
            message[key] = value.clone();
        }
        message
    }

    fn event(more: &Value) -> Option<Value> {
        match reader().read("MESSAGE_CREATE", &message(more), 0) {
            DiscordMeaning::Message { event, .. } => Some(event),
            _ => None,
        }
    }

    #[test]
    fn a_direct_message_is_for_the_agent() {
        let event = event(&json!({})).unwrap();
        assert_eq!(event["text"], "hi");
        assert_eq!(event["source"]["chat_type"], "dm");
        let line = json!({"type": "inbound", "event": event, "bufferId": "100"}).to_string();
        assert!(matches!(
            ConnectorFrame::decode(line.as_bytes()),
            Ok(ConnectorFrame::Inbound { .. })
        ));
    }

    #[test]
    fn an_edit_is_the_message_once_more_and_a_preview_is_nothing() {
        let mut reader = reader();
        let edited = json!({"content": "ho", "edited_timestamp": "2026-01-01T00:00:00+00:00"});
        let DiscordMeaning::Message {
            event,
            buffer_id,
            message: number,
            ..
        } = reader.read("MESSAGE_UPDATE", &message(&edited), 0)
        else {
            panic!("an edit is for the agent");
        };
        assert_eq!(
            (&event["text"], &event["message_is_edit"]),
            (&json!("ho"), &json!(true))
        );
        assert_eq!((&event["message_id"], number), (&json!("100"), 0));
        assert_eq!(buffer_id, "100 edited 2026-01-01T00:00:00+00:00");
        for more in [
            json!({"content": "ho"}),
            json!({"content": "ho", "edited_timestamp": null}),
            json!({"content": "ho", "edited_timestamp": "2026", "guild_id": "9", "channel_id": "5"}),
            json!({"content": "ho", "edited_timestamp": "2026", "author": {"id": "1", "username": "relay"}}),
        ] {
            let meaning = reader.read("MESSAGE_UPDATE", &message(&more), 0);
            assert_eq!(meaning, DiscordMeaning::Nothing, "{more}");
        }
        let unknown = json!({"guild_id": "9", "channel_id": "99", "edited_timestamp": "2026"});
        assert_eq!(reader.wants_channel("MESSAGE_UPDATE", &unknown), Some("99"));
        assert_eq!(reader.wants_channel("MESSAGE_DELETE", &unknown), None);
    }

    #[test]
    fn an_edit_of_a_message_that_was_taken_need_not_mention_the_bot() {
        let mut reader = reader();
        let in_channel =
            json!({"guild_id": "9", "channel_id": "5", "content": "<@1> hi", "mentions": [{"id": "1"}]});
        reader.read("MESSAGE_CREATE", &message(&in_channel), 0);
        for (id, text) in [("100", Some("ho")), ("101", None)] {
            let edited = json!({"id": id, "guild_id": "9", "channel_id": "5", "content": "ho", "edited_timestamp": "2026"});
            let found = match reader.read("MESSAGE_UPDATE", &message(&edited), 0) {
                DiscordMeaning::Message { event, .. } => Some(event["text"].clone()),
                _ => None,
            };
            assert_eq!(found, text.map(Value::from), "{id}");
        }
    }

    #[test]
    fn what_was_said_in_a_channel_is_given_as_it_says_now() {
        let mut reader = reader();
        reader.recent = RecentMessages::new(5);
        let said = |id: &str, more: Value| {
            let mut said = message(&more);
            (said["id"], said["guild_id"], said["channel_id"]) = (id.into(), "9".into(), "5".into());
            said
        };
        for (id, text) in [("90", "a"), ("91", "b"), ("92", "c")] {
            reader.read("MESSAGE_CREATE", &said(id, json!({"content": text})), 0);
        }
        let edited = said("90", json!({"content": "A", "edited_timestamp": "2026"}));
        reader.read("MESSAGE_UPDATE", &edited, 0);
        // A preview has no time of an edit.
        reader.read(
            "MESSAGE_UPDATE",
            &json!({"id": "92", "channel_id": "5", "embeds": []}),
            0,
        );
        reader.read(
            "MESSAGE_DELETE",
            &json!({"id": "91", "channel_id": "5", "guild_id": "9"}),
            0,
        );
        let call = said("93", json!({"content": "<@1> hi", "mentions": [{"id": "1"}]}));
        let DiscordMeaning::Message { event, .. } = reader.read("MESSAGE_CREATE", &call, 0) else {
            panic!("it is for the agent");
        };
        let texts: Vec<&Value> = event["context"]
            .as_array()
            .unwrap()
            .iter()
            .map(|said| &said["text"])
            .collect();
        assert_eq!(texts, ["A", "c"]);
    }

    #[test]
    fn a_fetched_message_that_was_read_before_is_no_context_and_takes_none() {
        let mut reader = reader();
        reader.recent = RecentMessages::new(5);
        let said = |id: u64, text: &str| {
            let mut said = message(&json!({"content": text, "guild_id": "9", "channel_id": "5"}));
            said["id"] = id.to_string().into();
            if text == "call" {
                said["mentions"] = json!([{"id": "1"}]);
            }
            said
        };
        let texts = |meaning| match meaning {
            DiscordMeaning::Message { event, .. } => {
                let context = event["context"].as_array().cloned().unwrap_or_default();
                let texts: Vec<Value> = context.iter().map(|said| said["text"].clone()).collect();
                Some(texts)
            }
            _ => None,
        };
        let live =
            |reader: &mut EventReader, id, text| texts(reader.read("MESSAGE_CREATE", &said(id, text), 0));
        assert_eq!(live(&mut reader, 90, "a"), None);
        assert_eq!(live(&mut reader, 91, "call").unwrap(), ["a"]);
        assert_eq!(live(&mut reader, 92, "b"), None);
        for (id, text) in [(90, "a"), (91, "call"), (92, "b")] {
            let meaning = reader.read_fetched(&said(id, text));
            assert!(texts(meaning).is_none_or(|context| context.is_empty()), "{id}");
        }
        reader.read_fetched(&said(93, "c"));
        assert_eq!(texts(reader.read_fetched(&said(94, "call"))).unwrap(), ["b", "c"]);
    }

    #[test]
    fn a_deletion_names_the_author_of_a_message_for_the_agent() {
        let mut reader = reader();
        let of = |id: &str| json!({"id": id, "channel_id": "51", "guild_id": "9"});
        let said = message(&json!({"channel_id": "51", "guild_id": "9"}));
        reader.read("MESSAGE_CREATE", &said, 0);
        let DiscordMeaning::Message { event, buffer_id, .. } = reader.read("MESSAGE_DELETE", &of("100"), 0)
        else {
            panic!("a deletion is for the relay");
        };
        let source = &event["source"];
        assert_eq!(
            (&source["user_id"], &source["thread_id"]),
            (&json!("2"), &json!("51"))
        );
        assert_eq!(
            (&event["message_is_deleted"], &event["message_id"]),
            (&json!(true), &json!("100"))
        );
        assert_eq!(buffer_id, "100 deleted");
        assert_eq!(
            reader.read("MESSAGE_DELETE", &of("101"), 0),
            DiscordMeaning::Nothing
        );
        let many = json!({"ids": ["100", "101"], "channel_id": "51", "guild_id": "9"});
        assert_eq!(deletions(&many).collect::<Vec<_>>(), [of("100"), of("101")]);
    }

    #[test]
    fn in_a_channel_a_message_must_address_the_bot() {
        let mention = json!([{"id": "1"}]);
        let own = json!({"id": "90", "content": "yes?", "author": {"id": "1", "username": "relay"}});
        for (more, text) in [
            (json!({"guild_id": "9", "channel_id": "5"}), None),
            (
                json!({"guild_id": "9", "channel_id": "5", "content": "<@1> hi", "mentions": mention}),
                Some("hi"),
            ),
            (
                json!({"guild_id": "9", "channel_id": "5", "content": "hi <@!1>", "mentions": mention}),
                Some("hi"),
            ),
            (
                json!({"guild_id": "9", "channel_id": "5", "content": "<@&80> <@1> hi <@1>", "mention_roles": ["80"]}),
                Some("hi"),
            ),
            (
                json!({"guild_id": "9", "channel_id": "5", "content": "<@&81> hi <@&82>", "mention_roles": ["81", "82"]}),
                None,
            ),
            (
                json!({"guild_id": "9", "channel_id": "5", "content": "<@&80>", "mention_roles": ["80"]}),
                Some("@relay"),
            ),
            (
                json!({"guild_id": "9", "channel_id": "5", "type": 19, "content": "<@1>", "mentions": mention,
                    "referenced_message": {"id": "91", "content": "look", "author": {"id": "3", "username": "bob"}}}),
                Some("@relay"),
            ),
            (
                json!({"guild_id": "9", "channel_id": "5", "content": "", "mentions": mention}),
                None,
            ),
            (
                json!({"guild_id": "9", "channel_id": "5", "type": 19, "referenced_message": own}),
                Some("hi"),
            ),
            (json!({"guild_id": "9", "channel_id": "6"}), None),
            (json!({"guild_id": "9", "channel_id": "7"}), Some("hi")),
            (json!({"guild_id": "9", "channel_id": "51"}), Some("hi")),
            (json!({"author": {"id": "4", "username": "b", "bot": true}}), None),
            (
                json!({"author": {"id": "1", "username": "relay", "bot": true}}),
                None,
            ),
            (json!({"webhook_id": "8"}), None),
            (json!({"type": 18}), None),
            (json!({"flags": 64}), None),
            (json!({"content": ""}), None),
        ] {
            let event = event(&more);
            assert_eq!(
                event.as_ref().map(|event| event["text"].as_str().unwrap()),
                text,
                "{more}"
            );
        }
    }

    #[test]
    fn a_role_is_the_bots_own_as_long_as_its_server_has_it() {
        let mut reader = reader();
        let role = json!({"id": "83", "tags": {"bot_id": "1"}});
        for (kind, data, own) in [
            (
                "GUILD_ROLE_CREATE",
                json!({"guild_id": "8", "role": role}),
                &["80", "83"][..],
            ),
            (
                "GUILD_ROLE_UPDATE",
                json!({"guild_id": "8", "role": role}),
                &["80", "83"],
            ),
            (
                "GUILD_ROLE_DELETE",
                json!({"guild_id": "9", "role_id": "80"}),
                &["83"],
            ),
        ] {
            reader.read(kind, &data, 0);
            for role in ["80", "83"] {
                let called = json!({"guild_id": "9", "channel_id": "5", "mention_roles": [role]});
                let meaning = reader.read("MESSAGE_CREATE", &message(&called), 0);
                let is_called = matches!(meaning, DiscordMeaning::Message { .. });
                assert_eq!(is_called, own.contains(&role), "{kind}: {role}");
            }
        }
    }

    #[test]
    fn a_thread_names_itself_and_its_parent() {
        let event =
            event(&json!({"guild_id": "9", "channel_id": "51", "member": {"nick": "Ada L."}})).unwrap();
        let source = &event["source"];
        assert_eq!(
            (&source["chat_type"], &source["thread_id"]),
            (&json!("thread"), &json!("51"))
        );
        assert_eq!(
            (&source["parent_chat_id"], &source["user_name"]),
            (&json!("50"), &json!("Ada L."))
        );
        assert_eq!(source["scope_id"], "9");
    }

    #[test]
    fn attachments_forwards_and_stickers_are_content() {
        let file = json!([{"url": "https://cdn/x.png", "content_type": "image/png", "filename": "x.png", "size": 5}]);
        let event_of = |more: Value| event(&more).unwrap();
        let with_file = event_of(json!({"content": "", "attachments": file}));
        assert_eq!(
            (&with_file["message_type"], &with_file["media_urls"]),
            (&json!("photo"), &json!(["https://cdn/x.png"]))
        );
        assert_eq!(with_file["media"][0]["mime"], "image/png");
        let forward =
            event_of(json!({"content": "", "message_snapshots": [{"message": {"content": "a\nb"}}]}));
        assert_eq!(forward["text"], "[forwarded]\n> a\n> b");
        let forwarded = json!([{"message": {"content": "", "attachments": file}}]);
        let forward = event_of(json!({"content": "", "message_snapshots": forwarded}));
        assert_eq!(
            (&forward["text"], &forward["message_type"], &forward["media_urls"]),
            (&json!("[forwarded]"), &json!("photo"), &with_file["media_urls"])
        );
        let shown = json!({"content": "", "sticker_items": [{"name": "wave"}], "embeds": [{"title": "t", "description": "d\ne"}]});
        let forward = event_of(json!({"content": "", "message_snapshots": [{"message": shown}]}));
        assert_eq!(forward["text"], "[forwarded]\n> [sticker: wave]\n> t\n> d\n> e");
        let empty = json!({"content": "", "message_snapshots": [{"message": {"content": ""}}]});
        assert_eq!(event(&empty), None);
        let sticker = event_of(json!({"content": "", "sticker_items": [{"name": "wave"}]}));
        assert_eq!(sticker["text"], "[sticker: wave]");
    }

    fn interaction(more: &Value) -> (Interaction, Option<PassthroughForward>) {
        let mut body = json!({"id": "70", "type": 2, "token": "tok", "application_id": "8", "channel_id": "3",
            "user": {"id": "2", "username": "ada"}, "data": {"name": "new"}});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        match reader().read("INTERACTION_CREATE", &body, 5) {
            DiscordMeaning::Interaction(interaction, forward) => {
                (*interaction, forward.map(|forward| *forward))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_relay_reads_interactions_as_a_connector_forwards_them_without_the_token() {
        let (command, forward) = interaction(&json!({}));
        assert_eq!(command.kind, InteractionKind::Command);
        assert_eq!(command.command.at_ms, 5);
        let body: Value = serde_json::from_slice(&forward.unwrap().body).unwrap();
        assert_eq!(body["message"]["id"], "interaction-70");
        assert_eq!(
            (&body["data"]["name"], &body["token"]),
            (&json!("new"), &Value::Null)
        );
        let (_, press) =
            interaction(&json!({"type": 3, "data": {"custom_id": "hp1:abc:yes"}, "message": {"id": "4"}}));
        let body: Value = serde_json::from_slice(&press.unwrap().body).unwrap();
        assert_eq!(
            (&body["message"]["id"], &body["private_reply"]),
            (&json!("4"), &json!("press-70"))
        );
        for (more, kind, is_forwarded) in [
            (json!({"type": 5}), InteractionKind::Command, true),
            (
                json!({"type": 3, "data": {"custom_id": "hp1:abc:yes"}}),
                InteractionKind::Press,
                true,
            ),
            (
                json!({"type": 3, "data": {"custom_id": "other"}}),
                InteractionKind::Stray,
                false,
            ),
            (json!({"type": 4}), InteractionKind::Completion, false),
        ] {
            let (found, forward) = interaction(&more);
            assert_eq!((found.kind, forward.is_some()), (kind, is_forwarded), "{more}");
        }
        let hostile = json!({"id": "70", "type": 2, "token": "../../x", "channel_id": "3", "user": {"id": "2"}, "data": {}});
        assert_eq!(
            reader().read("INTERACTION_CREATE", &hostile, 0),
            DiscordMeaning::Nothing
        );
    }
}
