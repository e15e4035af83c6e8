//! Markdown becomes Telegram's formatting: styled text that is split into messages, or the Markdown of a rich message.

mod markdown;
mod rich;
mod split;
mod styled;
mod table;

pub use markdown::render;
pub use rich::{RichMessages, rich_markdown};
pub use split::{CAPTION_CHARS, MAX_ENTITIES, MESSAGE_CHARS};
pub use styled::{Styled, TextSpan, TextStyle};
