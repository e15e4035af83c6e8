//! Files that are shown together. The contract has no op for them: bots of one's own find them in the metadata of `send_media`.

use serde::{Deserialize, Serialize};

use super::action::Action;
use super::metadata::Metadata;

/// The most files of an album, on every platform that has them.
pub const MAX_ALBUM: usize = 10;
/// What the descriptor of a bot of one's own names if it shows albums. It is no op.
pub const ALBUMS: &str = "send_media.album";

/// Where the metadata have the files.
const KEY: &str = "album";

/// One file of an album.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlbumFile {
    /// `image`, `video`, `audio` or `document`.
    pub media_kind: String,
    /// Where its bytes are.
    pub source_url: String,
    /// The name to show.
    pub filename: Option<String>,
    /// The text that replaces it.
    pub instead: String,
}

impl AlbumFile {
    /// Makes an op show these files; its own is the first of them.
    pub fn put(files: &[Self], metadata: &mut Metadata) {
        // It has no map whose keys are not text.
        if let Ok(files) = serde_json::to_value(files) {
            metadata.insert(KEY.to_owned(), files);
        }
    }

    /// The files that an op shows together; none if it shows one.
    pub fn of(action: &Action) -> Vec<Self> {
        let Action::SendMedia { metadata, .. } = action else {
            return Vec::new();
        };
        let files = metadata.get(KEY).cloned().unwrap_or_default();
        let files: Vec<Self> = serde_json::from_value(files).unwrap_or_default();
        if (2..=MAX_ALBUM).contains(&files.len()) {
            files
        } else {
            Vec::new()
        }
    }
}
