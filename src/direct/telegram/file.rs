//! The addresses of files: files of messages on Telegram's servers, and files of agents that are kept on this machine until
//! they are uploaded. No address holds the bot's token.

use std::fmt::{self, Write as _};

use url::Url;

use crate::text::{percent_decode, percent_encode};

/// The scheme of these addresses.
const SCHEME: &str = "telegram";
/// Longest id of a file.
const MAX_ID: usize = 512;

/// The address of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAddress {
    /// The place that holds the file.
    pub place: FilePlace,
    /// The file's id in that place.
    pub id: String,
    /// The file name to show; may be empty.
    pub name: String,
}

/// The place that holds a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// On Telegram's servers, under its file id.
    Server,
    /// On this machine, until it is uploaded.
    Outgoing,
}

impl FileAddress {
    /// Reads what [`fmt::Display`] writes; `None` for everything else.
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok().filter(|url| url.scheme() == SCHEME)?;
        let place = match url.host_str()? {
            "file" => FilePlace::Server,
            "outgoing" => FilePlace::Outgoing,
            _ => return None,
        };
        let mut segments = url.path_segments()?;
        let id = percent_decode(segments.next()?);
        let name = segments.next().map(percent_decode).unwrap_or_default();
        let is_usable = match place {
            FilePlace::Server => is_id(&id),
            // It names a file in a directory of ours.
            FilePlace::Outgoing => !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        };
        is_usable.then_some(Self { place, id, name })
    }

    /// Whether a text has the scheme of these addresses.
    pub fn is_address(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| scheme == SCHEME)
    }
}

impl fmt::Display for FileAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            FilePlace::Server => "file",
            FilePlace::Outgoing => "outgoing",
        };
        write!(f, "{SCHEME}://{place}/")?;
        write_segment(f, &self.id)?;
        f.write_str("/")?;
        write_segment(f, &self.name)
    }
}

/// Writes a text as one segment of a path. Dots alone would be a step in it, also encoded.
fn write_segment(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    if text.bytes().all(|byte| byte == b'.') {
        return Ok(());
    }
    percent_encode(text).try_for_each(|letter| f.write_char(letter))
}

/// Whether a text can be the id of a file on Telegram's servers.
pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_ID && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_back() {
        for name in ["", "report.pdf", "a b/c?d#e.txt", "Übersicht.png", "..a", "%2e"] {
            for (place, id) in [
                (FilePlace::Server, "AgACAgIAAx-_9=./x"),
                (FilePlace::Outgoing, "a1B2"),
            ] {
                let (id, name) = (id.to_owned(), name.to_owned());
                let address = FileAddress { place, id, name };
                let text = address.to_string();
                assert_eq!(FileAddress::parse(&text), Some(address), "{text}");
            }
        }
    }

    #[test]
    fn other_texts_are_no_addresses() {
        for text in [
            "",
            "telegram:abc",
            "telegram://file/",
            "telegram://outgoing/..",
            "telegram://outgoing/..%2Fx",
            "telegram://outgoing/.hidden/x",
            "telegram://file/a%20b/c",
            "telegram://elsewhere/a/b",
            "https://file/abc/name",
        ] {
            assert_eq!(FileAddress::parse(text), None, "{text}");
        }
    }
}
