//! Dedupe keys, and those of recent messages that are not in the index yet.
//!
//! New keys are looked up in memory; their rows hold them durably. Once there are enough, they are sorted and moved into
//! the index in slices, so that neighbours share pages. A key is never dropped before it is in the index.

use super::completion::InboxSeq;
use super::varint;
use crate::collections::TextMap;
use blake2s_simd::blake2s;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;
use std::fmt;

/// What a journal notes its [`KeyHash`] under.
pub(super) const KEY_HASH: &str = "key_hash";

/// What a journal notes under this name: see [`Recovered::telegram_bot`](super::Recovered::telegram_bot).
pub(super) const TELEGRAM_BOT: &str = "telegram_bot";

/// How a journal makes its keys. It stays with the way that it began with, so that it knows its keys again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyHash {
    /// Journals from before there was a choice.
    #[default]
    Sha256,
    /// New journals: cheaper where the processor has no instructions for SHA-256.
    Blake2s,
}

impl KeyHash {
    /// The key of these parts. `["ab", "c"]` and `["a", "bc"]` differ.
    pub fn key(self, parts: &[&str]) -> DedupeKey {
        match self {
            Self::Sha256 => {
                let mut hash = Sha256::new();
                for part in parts {
                    hash.update((part.len() as u64).to_le_bytes());
                    hash.update(part.as_bytes());
                }
                DedupeKey::truncated(&hash.finalize())
            }
            Self::Blake2s => {
                // In one piece, which is one block for the ids of most messages.
                let mut text = SmallVec::<[u8; 128]>::new();
                for part in parts {
                    varint::put(&mut text, part.len() as u64);
                    text.extend_from_slice(part.as_bytes());
                }
                DedupeKey::truncated(blake2s(&text).as_bytes())
            }
        }
    }
}

impl ToSql for KeyHash {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let code = match self {
            Self::Sha256 => 1_i64,
            Self::Blake2s => 2,
        };
        Ok(code.into())
    }
}

impl FromSql for KeyHash {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_i64()? {
            1 => Ok(Self::Sha256),
            2 => Ok(Self::Blake2s),
            other => Err(FromSqlError::OutOfRange(other)),
        }
    }
}

/// Identifies a message across deliveries: 16 bytes of a hash over its parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DedupeKey([u8; 16]);

impl DedupeKey {
    fn truncated(hash: &[u8]) -> Self {
        let mut key = [0; 16];
        key.copy_from_slice(&hash[..16]);
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

/// Keys in memory at which they are moved. A table of 32,768 slots holds 28,672, so there is room for the last commit.
pub(super) const MOVE_AT_KEYS: usize = 24_576;
/// Keys in memory at which they are moved when the writer is idle.
const MOVE_AT_KEYS_IDLE: usize = 1024;

/// Keys that are not in the index yet.
#[derive(Debug, Default)]
pub(super) struct RecentKeys {
    recent: TextMap<DedupeKey, InboxSeq>,
    /// The keys of a round, sorted.
    moving: Vec<(DedupeKey, InboxSeq)>,
    moved: usize,
    uncommitted: Vec<DedupeKey>,
    moved_uncommitted: usize,
}

impl RecentKeys {
    pub(super) fn contains(&self, key: &DedupeKey) -> bool {
        self.recent.contains_key(key) || self.moving.binary_search_by_key(key, |(key, _)| *key).is_ok()
    }

    /// Adds a key of the current transaction.
    pub(super) fn add(&mut self, key: DedupeKey, seq: InboxSeq) {
        self.recent.insert(key, seq);
        self.uncommitted.push(key);
    }

    /// Adds a key that a row already holds.
    pub(super) fn restore(&mut self, key: DedupeKey, seq: InboxSeq) {
        self.recent.insert(key, seq);
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (DedupeKey, InboxSeq)> {
        let recent = self.recent.iter().map(|(key, seq)| (*key, *seq));
        recent.chain(self.moving.iter().copied())
    }

    /// The next keys to move, in key order: `limit` of them and those that begin with the same byte as the last. Counted as moved if the
    /// transaction commits.
    pub(super) fn slice(&mut self, limit: usize) -> &[(DedupeKey, InboxSeq)] {
        let start = self.moved + self.moved_uncommitted;
        let mut end = self.moving.len().min(start + limit);
        while end > start
            && let Some((next, _)) = self.moving.get(end)
            && next.0[0] == self.moving[end - 1].0.0[0]
        {
            end += 1;
        }
        self.moved_uncommitted += end - start;
        &self.moving[start..end]
    }

    /// The row id up to which every key will be in the index, if this transaction moves the last of a round.
    pub(super) fn completes(&self) -> Option<InboxSeq> {
        let complete = self.moved_uncommitted > 0 && self.moved + self.moved_uncommitted == self.moving.len();
        complete.then(|| self.moving.iter().map(|(_, seq)| *seq).max())?
    }

    pub(super) fn committed(&mut self) {
        self.uncommitted.clear();
        self.moved += std::mem::take(&mut self.moved_uncommitted);
        if !self.moving.is_empty() && self.moved == self.moving.len() {
            self.moving = Vec::new();
            self.moved = 0;
        }
        if self.recent.len() >= MOVE_AT_KEYS {
            self.begin_round();
        }
    }

    pub(super) fn rolled_back(&mut self) {
        for key in self.uncommitted.drain(..) {
            self.recent.remove(&key);
        }
        self.moved_uncommitted = 0;
    }

    /// Starts a round while idle if it is worth it; whether there is something to move.
    pub(super) fn idle_round(&mut self) -> bool {
        if self.recent.len() >= MOVE_AT_KEYS_IDLE {
            self.begin_round();
        }
        self.is_moving()
    }

    /// Whether keys are being moved.
    pub(super) fn is_moving(&self) -> bool {
        !self.moving.is_empty()
    }

    fn begin_round(&mut self) {
        if self.is_moving() {
            return;
        }
        self.moving = self.recent.drain().collect();
        self.moving.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> DedupeKey {
        KeyHash::Blake2s.key(&[&n.to_string()])
    }

    fn seq(n: usize) -> InboxSeq {
        InboxSeq(i64::try_from(n).unwrap())
    }

    #[test]
    fn a_key_is_found_until_it_is_in_the_index_and_a_rollback_forgets_it() {
        let mut recent = RecentKeys::default();
        recent.add(key(0), seq(1));
        recent.rolled_back();
        assert!(!recent.contains(&key(0)));
        for n in 0..MOVE_AT_KEYS {
            recent.add(key(n), seq(n + 1));
        }
        recent.committed();
        assert!(recent.is_moving());
        recent.add(key(MOVE_AT_KEYS), seq(MOVE_AT_KEYS + 1));
        recent.committed();

        assert!((1000..1200).contains(&recent.slice(1000).len()));
        recent.rolled_back();
        let mut moved = Vec::new();
        while recent.is_moving() {
            moved.extend_from_slice(recent.slice(1000));
            assert!(recent.contains(&moved[0].0));
            if recent.completes().is_some() {
                assert_eq!(recent.completes(), Some(seq(MOVE_AT_KEYS)));
            }
            recent.committed();
        }
        assert_eq!(moved.len(), MOVE_AT_KEYS);
        assert!(moved.is_sorted());
        assert!(!recent.contains(&key(3)));
        assert!(recent.contains(&key(MOVE_AT_KEYS)));
    }

    #[test]
    fn a_key_knows_where_its_parts_end() {
        for hash in [KeyHash::Sha256, KeyHash::Blake2s] {
            assert_ne!(hash.key(&["ab", "c"]), hash.key(&["a", "bc"]));
            assert_ne!(hash.key(&["a"]), hash.key(&["a", ""]));
            let long = "a".repeat(200);
            assert_ne!(hash.key(&[&long, "b"]), hash.key(&[&long, "c"]));
            assert_eq!(hash.key(&["discord", "1", "2"]), hash.key(&["discord", "1", "2"]));
        }
    }

    /// Another version of the program knows the messages of this one again.
    #[test]
    fn keys_stay_as_they_are() {
        let parts = ["message", "discord", "1000000000000000001", "1000000000000000002"];
        let text = |hash: KeyHash| format!("{:?}", hash.key(&parts));
        assert_eq!(
            text(KeyHash::Sha256),
            "DedupeKey(449ec81a721e7d28b3d1cd3a46f715b7)"
        );
        assert_eq!(
            text(KeyHash::Blake2s),
            "DedupeKey(24a4ce4bd324403828fe42654e9d5fda)"
        );
    }
}
