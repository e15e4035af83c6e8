//! Media that the connector keeps for its gateways; the oldest goes when the shelf is full.

use std::collections::VecDeque;

use axum::body::Bytes;

/// Bytes of the largest file.
pub(super) const MAX_MEDIA_BYTES: usize = 25 * 1024 * 1024;
const SHELF_BYTES: usize = 8 * MAX_MEDIA_BYTES;

/// One file.
#[derive(Clone)]
pub(super) struct Medium {
    pub(super) id: String,
    /// The only gateway that may fetch it.
    pub(super) owner: String,
    pub(super) mime: String,
    pub(super) filename: Option<String>,
    pub(super) bytes: Bytes,
}

/// Every file that is kept.
#[derive(Default)]
pub(super) struct Shelf {
    media: VecDeque<Medium>,
    held: usize,
    named: u64,
}

impl Shelf {
    /// Keeps a file and names it.
    pub(super) fn put(&mut self, owner: &str, mime: &str, filename: Option<&str>, bytes: Bytes) -> String {
        self.named += 1;
        let id = format!("{:032x}", self.named);
        self.held += bytes.len();
        self.media.push_back(Medium {
            id: id.clone(),
            owner: owner.to_owned(),
            mime: mime.to_owned(),
            filename: filename.map(str::to_owned),
            bytes,
        });
        while self.held > SHELF_BYTES
            && let Some(oldest) = self.media.pop_front()
        {
            self.held -= oldest.bytes.len();
        }
        id
    }

    /// The file of this name.
    pub(super) fn find(&self, id: &str) -> Option<&Medium> {
        self.media.iter().find(|medium| medium.id == id)
    }
}
