//! Rich messages: Markdown that the server parses itself. Kept and shown as it came, once it is within the limits.

use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::{Value, json};

use super::send::Destination;
use crate::dev::bot_api::markup::ApiText;
use crate::dev::bot_api::params::ApiParams;
use crate::dev::bot_api::refusal::{ApiRefusal, ApiResult};
use crate::dev::bot_api::state::{BotApiState, MessageSender};

/// Characters, blocks and columns of a rich message.
const MAX_CHARS: usize = 32_768;
const MAX_BLOCKS: usize = 500;
const MAX_COLUMNS: usize = 20;

/// A rich message, checked.
pub(super) struct RichContent {
    /// The `rich_message` of a message. `fetched` has the addresses of images, which the server would fetch.
    pub(super) object: Value,
    /// Its Markdown.
    pub(super) text: ApiText,
}

impl RichContent {
    /// Reads the parameter `rich_message`; `None` if there is none.
    pub(super) fn read(params: &ApiParams) -> Result<Option<Self>, ApiRefusal> {
        let given = params.json("rich_message");
        if given.is_null() {
            return Ok(None);
        }
        let kinds = ["markdown", "html", "blocks"].into_iter();
        if kinds.filter(|kind| given.get(kind).is_some()).count() != 1 {
            return Err(ApiRefusal::bad(
                "exactly one of the fields markdown, html and blocks must be specified",
            ));
        }
        let Some(markdown) = given["markdown"].as_str() else {
            return Err(ApiRefusal::bad("only Markdown is understood here"));
        };
        if markdown.trim().is_empty() {
            return Err(ApiRefusal::bad("message text is empty"));
        }
        let (mut blocks, mut columns, mut fetched) = (0, 0, Vec::new());
        for event in Parser::new_ext(markdown, Options::all()) {
            match event {
                Event::Start(Tag::Table(cells)) => {
                    blocks += 1;
                    columns = cells.len().max(columns);
                }
                Event::Start(Tag::Image { dest_url, .. }) => fetched.push(json!(&*dest_url)),
                Event::Start(
                    Tag::Paragraph
                    | Tag::Heading { .. }
                    | Tag::BlockQuote(_)
                    | Tag::CodeBlock(_)
                    | Tag::List(_)
                    | Tag::Item
                    | Tag::TableRow,
                )
                | Event::Rule => blocks += 1,
                _ => {}
            }
        }
        if markdown.chars().count() > MAX_CHARS || blocks > MAX_BLOCKS || columns > MAX_COLUMNS {
            return Err(ApiRefusal::bad("rich message is too long"));
        }
        Ok(Some(Self {
            object: json!({ "markdown": markdown, "fetched": fetched }),
            text: ApiText::plain(markdown),
        }))
    }
}

pub(super) fn send(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let content = RichContent::read(params)?;
    let mut to = Destination::read(state, params)?;
    let Some(RichContent { object, text }) = content else {
        return Err(ApiRefusal::bad("rich message is empty"));
    };
    to.fields.insert("rich_message".to_owned(), object);
    Ok(state.add_message(to.chat_id, &MessageSender::Bot, text, to.fields, now))
}
