//! The journal's names for things: row numbers, the dedupe key, and the receipt of a commit.
//!
//! A receipt is never made here without the writer; its fields are private to the store.

use sha2::{Digest, Sha256};
use std::fmt;

/// A message's place in the journal. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InboxSeq(pub i64);

/// An op's place in the outbox. Grows while the journal is open; a settled number may return after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpSeq(pub i64);

impl fmt::Display for InboxSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for OpSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The consecutive numbers given to the ops of one command, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpSeqs {
    first: i64,
    count: u32,
}

impl OpSeqs {
    pub(super) fn new(first: i64, count: u32) -> Self {
        Self { first, count }
    }

    /// How many ops were written.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there was no op.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of each op, in the order they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OpSeq> + Clone + use<> {
        let first = self.first;
        (0..self.count).map(move |offset| OpSeq(first + i64::from(offset)))
    }
}

/// What makes two deliveries the same message: 16 bytes of SHA-256 over length-prefixed parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DedupeKey([u8; 16]);

impl DedupeKey {
    /// The key of these parts. `["ab", "c"]` and `["a", "bc"]` differ.
    pub fn of(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        Self(key)
    }

    /// The bytes as they are stored.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for DedupeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DedupeKey(")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// Proof that a commit succeeded. Only the store makes one, so only what is safely held can be acknowledged.
#[derive(Debug, PartialEq, Eq)]
pub struct Committed {
    buffer_id: Option<String>,
}

impl Committed {
    pub(super) fn new(buffer_id: Option<String>) -> Self {
        Self { buffer_id }
    }

    /// The connector's name for the delivery, if it carried one.
    pub fn buffer_id(&self) -> Option<&str> {
        self.buffer_id.as_deref()
    }

    /// The id to acknowledge, taken.
    pub fn into_ack_id(self) -> Option<String> {
        self.buffer_id.filter(|id| !id.is_empty())
    }

    /// The id to acknowledge: the buffer id when there is one to acknowledge, an empty one being none.
    pub fn ack_id(&self) -> Option<&str> {
        self.buffer_id.as_deref().filter(|id| !id.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_knows_where_its_parts_end() {
        assert_ne!(DedupeKey::of(&["ab", "c"]), DedupeKey::of(&["a", "bc"]));
        assert_ne!(DedupeKey::of(&["a"]), DedupeKey::of(&["a", ""]));
        assert_eq!(
            DedupeKey::of(&["discord", "1", "2"]),
            DedupeKey::of(&["discord", "1", "2"])
        );
    }

    #[test]
    fn an_empty_buffer_id_is_nothing_to_acknowledge() {
        assert_eq!(Committed::new(Some(String::new())).ack_id(), None);
        assert_eq!(Committed::new(Some("b".into())).ack_id(), Some("b"));
        assert_eq!(Committed::new(None).buffer_id(), None);
    }

    #[test]
    fn op_numbers_run_in_order() {
        let ops = OpSeqs::new(7, 3);
        assert_eq!(ops.iter().collect::<Vec<_>>(), [OpSeq(7), OpSeq(8), OpSeq(9)]);
        assert!(OpSeqs::new(7, 0).is_empty());
    }
}
