//! Telegram's limits of a text, and the Markdown of a rich message.

mod rich;

pub use rich::{RichMessages, rich_markdown};

/// Longest message, in code points without markup.
pub const MESSAGE_CHARS: usize = 4096;
/// Longest caption, in code points without markup.
pub const CAPTION_CHARS: usize = 1024;
