//! Text with entities: mentions, commands and links. Offsets on the wire count UTF-16 units.

use serde_json::Value;

use crate::direct::field;
use crate::direct::telegram::bot::Bot;
use crate::text::{one_line, truncate};

/// Entities that are read; Telegram sends about a hundred.
const MAX_ENTITIES: usize = 256;
/// Longest address that is shown behind the text that links to it, in characters.
const MAX_LINK: usize = 2048;

/// One entity, as a byte range of the text.
struct Entity<'m> {
    kind: &'m str,
    start: usize,
    end: usize,
    value: &'m Value,
}

/// A message's text or caption with its entities.
pub(super) struct MarkedText<'m> {
    text: &'m str,
    entities: Vec<Entity<'m>>,
}

/// The bot that a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandAddressee {
    /// The text is no command.
    None,
    /// The command names no bot.
    Anyone,
    /// The command names this bot.
    Ours,
    /// The command names another bot.
    Another,
}

impl<'m> MarkedText<'m> {
    /// The text of a message, else its caption, else nothing.
    pub(super) fn of(message: &'m Value) -> Self {
        if let Some(text) = field::text(message, "text") {
            return Self::new(text, field::list(message, "entities"));
        }
        let caption = field::text(message, "caption").unwrap_or_default();
        Self::new(caption, field::list(message, "caption_entities"))
    }

    fn new(text: &'m str, entities: &'m [Value]) -> Self {
        let offsets = Utf16Offsets::new(text);
        let mut entities: Vec<_> = entities
            .iter()
            .take(MAX_ENTITIES)
            .filter_map(|value| {
                let offset = usize::try_from(field::integer(value, "offset")?).ok()?;
                let length = usize::try_from(field::integer(value, "length")?).ok()?;
                let (start, end) = (offsets.byte(offset)?, offsets.byte(offset.checked_add(length)?)?);
                (start < end).then_some(Entity {
                    kind: field::text(value, "type")?,
                    start,
                    end,
                    value,
                })
            })
            .collect();
        entities.sort_by_key(|entity| entity.start);
        Self { text, entities }
    }

    /// The text as it was written.
    pub(super) fn as_written(&self) -> &'m str {
        self.text
    }

    /// Whether the bot is mentioned anywhere: by its name, by its account, or in a command.
    pub(super) fn mentions(&self, bot: &Bot) -> bool {
        self.entities.iter().any(|entity| {
            self.is_mention(entity, bot)
                || (entity.kind == "bot_command" && self.target(entity, bot) == CommandAddressee::Ours)
        })
    }

    /// Whether the text is a mention of the bot and nothing else.
    pub(super) fn is_only_mention(&self, bot: &Bot) -> bool {
        let all = 0..self.text.trim_end().len();
        (self.entities.iter()).any(|entity| (entity.start..entity.end) == all && self.is_mention(entity, bot))
    }

    /// The bot that the text's command is for. A command stands at the very start, or after mentions of this bot.
    pub(super) fn command(&self, bot: &Bot) -> CommandAddressee {
        let body = self.body(bot);
        let command = |start| {
            (self.entities.iter())
                .find(|entity| entity.kind == "bot_command" && entity.start == start)
                .map_or(CommandAddressee::None, |entity| self.target(entity, bot))
        };
        match command(body.0) {
            // The mention before it addresses this bot, whatever the command says.
            CommandAddressee::Another if body.0 > 0 => CommandAddressee::None,
            target => target,
        }
    }

    /// The text for the agent: without mentions at either end that only address the bot, with links' addresses, and, if
    /// `is_command`, with the command's bare name.
    pub(super) fn rendered(&self, bot: &Bot, is_command: bool) -> String {
        let (start, end) = self.body(bot);
        let mut rendered = String::with_capacity(end - start);
        let mut done = start;
        for (at, until, replacement) in self.edits(start, end, is_command) {
            if at < done || until > end {
                continue;
            }
            rendered.push_str(&self.text[done..at]);
            rendered.push_str(&replacement);
            done = until;
        }
        rendered.push_str(&self.text[done..end]);
        rendered
    }

    /// The replacements in the text between `start` and `end`, in order.
    fn edits(&self, start: usize, end: usize, is_command: bool) -> Vec<(usize, usize, String)> {
        let mut edits = Vec::new();
        for entity in &self.entities {
            let shown = &self.text[entity.start..entity.end];
            match entity.kind {
                "bot_command" if is_command && entity.start == start => {
                    let name = shown.split('@').next().unwrap_or_default();
                    edits.push((entity.start, entity.end, name.to_lowercase()));
                }
                "text_link" if entity.start >= start && entity.end <= end => {
                    let url = one_line(field::text(entity.value, "url").unwrap_or_default(), MAX_LINK);
                    if !url.is_empty() && url.trim_end_matches('/') != shown.trim_end_matches('/') {
                        edits.push((entity.end, entity.end, format!(" ({url})")));
                    }
                }
                _ => {}
            }
        }
        edits.sort_by_key(|(at, ..)| *at);
        edits
    }

    /// The text without mentions of the bot at either end, by bytes; all of it if it is nothing else.
    fn body(&self, bot: &Bot) -> (usize, usize) {
        let (mut start, mut end) = (0, self.text.len());
        for entity in &self.entities {
            if entity.start == start && self.is_mention(entity, bot) {
                let rest = self.text[entity.end..].trim_start();
                let rest = rest.strip_prefix([',', ':']).map_or(rest, str::trim_start);
                start = self.text.len() - rest.len();
            }
        }
        for entity in self.entities.iter().rev() {
            if entity.end == end && entity.start > start && self.is_mention(entity, bot) {
                end = start + self.text[start..entity.start].trim_end().len();
            }
        }
        if self.text[start..end].trim().is_empty() {
            (0, self.text.len())
        } else {
            (start, end)
        }
    }

    fn is_mention(&self, entity: &Entity<'_>, bot: &Bot) -> bool {
        match entity.kind {
            "mention" => bot.is_named(&self.text[entity.start..entity.end]),
            "text_mention" => {
                field::object(entity.value, "user").and_then(|user| field::integer(user, "id"))
                    == Some(bot.id)
            }
            _ => false,
        }
    }

    fn target(&self, command: &Entity<'_>, bot: &Bot) -> CommandAddressee {
        match self.text[command.start..command.end].split_once('@') {
            None => CommandAddressee::Anyone,
            Some((_, name)) if bot.is_named(name) => CommandAddressee::Ours,
            Some(_) => CommandAddressee::Another,
        }
    }
}

/// UTF-16 offsets of a text as byte offsets.
struct Utf16Offsets {
    bytes: usize,
    /// Where each character starts, in both units; empty for ASCII, where they are equal.
    starts: Vec<(usize, usize)>,
}

impl Utf16Offsets {
    fn new(text: &str) -> Self {
        let mut starts = Vec::new();
        if !text.is_ascii() {
            let mut unit = 0;
            for (byte, character) in text.char_indices() {
                starts.push((unit, byte));
                unit += character.len_utf16();
            }
            starts.push((unit, text.len()));
        }
        Self {
            bytes: text.len(),
            starts,
        }
    }

    /// The byte offset; `None` beyond the text or inside a character.
    fn byte(&self, offset: usize) -> Option<usize> {
        if self.starts.is_empty() {
            return (offset <= self.bytes).then_some(offset);
        }
        let at = self
            .starts
            .binary_search_by_key(&offset, |(unit, _)| *unit)
            .ok()?;
        Some(self.starts[at].1)
    }
}

/// Levels of rich blocks that are read.
const MAX_DEPTH: usize = 24;
/// Longest text of rich blocks in characters; twice Telegram's limit.
const MAX_RICH: usize = 65_536;

/// The text of a rich message: a line for each block, without its formatting.
pub(super) fn rich_text(message: &Value) -> Option<String> {
    let rich = field::object(message, "rich_message")?;
    let mut text = String::new();
    for block in field::list(rich, "blocks") {
        rich_block(block, 0, &mut text);
    }
    let text = truncate(text.trim(), MAX_RICH);
    (!text.is_empty()).then(|| text.to_owned())
}

/// Adds a block, and the blocks in it, each on a line of its own.
fn rich_block(block: &Value, depth: usize, text: &mut String) {
    if depth > MAX_DEPTH || text.len() > MAX_RICH * 4 {
        return;
    }
    match block {
        Value::Array(blocks) => blocks.iter().for_each(|block| rich_block(block, depth + 1, text)),
        Value::Object(fields) => {
            let line = text.len();
            for key in ["label", "summary", "text", "expression"] {
                if let Some(inline) = fields.get(key) {
                    if text.len() > line {
                        text.push(' ');
                    }
                    rich_inline(inline, depth + 1, text);
                }
            }
            if text.len() > line && !text.ends_with('\n') {
                text.push('\n');
            }
            for row in fields
                .get("cells")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                rich_row(row, depth + 1, text);
            }
            for key in ["blocks", "items", "caption", "credit"] {
                if let Some(inner) = fields.get(key) {
                    rich_block(inner, depth + 1, text);
                }
            }
        }
        Value::String(plain) => {
            text.push_str(plain);
            text.push('\n');
        }
        _ => {}
    }
}

/// Adds a row of a table on one line.
fn rich_row(row: &Value, depth: usize, text: &mut String) {
    for (at, cell) in row.as_array().into_iter().flatten().enumerate() {
        if at > 0 {
            text.push_str(" | ");
        }
        if let Some(inline) = cell.get("text") {
            rich_inline(inline, depth + 1, text);
        }
    }
    text.push('\n');
}

/// Adds text with formatting: a text, a list of them, or an object around one.
fn rich_inline(inline: &Value, depth: usize, text: &mut String) {
    if depth > MAX_DEPTH || text.len() > MAX_RICH * 4 {
        return;
    }
    match inline {
        Value::String(plain) => text.push_str(plain),
        Value::Array(parts) => parts.iter().for_each(|part| rich_inline(part, depth + 1, text)),
        Value::Object(fields) => {
            for key in ["text", "alternative_text", "expression"] {
                if let Some(inner) = fields.get(key) {
                    rich_inline(inner, depth + 1, text);
                    break;
                }
            }
        }
        _ => {}
    }
}
