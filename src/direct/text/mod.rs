//! Markdown becomes styled text, which is split into messages by what readers see. Each platform writes the parts in its own
//! markup.

mod markdown;
mod split;
mod styled;
mod table;

pub use markdown::render;
pub(in crate::direct) use markdown::{DIALECT, is_web_address, language, nests_too_deep};
pub use split::MAX_ENTITIES;
pub(in crate::direct) use styled::clean_into;
pub use styled::{Styled, TextSpan, TextStyle};
