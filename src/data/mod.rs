//! Data: pieces of text that skills and agents keep, and the contract of the stores that hold them.
//!
//! [`DataStore`] is the contract; the relay's own store is [`SqliteDataStore`](crate::SqliteDataStore). Whoever writes another one
//! runs the `conformance` suite (cargo feature `conformance`) on it. This module does no I/O and reads no clock.
//!
//! # Conventions
//!
//! - The summary is the first line, at most [`MAX_SUMMARY_CHARS`] characters; the detail is the whole content.
//! - Nothing found is `None` or an empty list, never an error.
//! - The curated fields are fields of [`PortableData`] and never also in its `metadata`.
//! - A filter that the manifest does not declare is an error ([`check_filters`]), because a filter that is silently dropped widens
//!   what its caller sees. `permissive_filters` says that the caller knows.
//! - Without an expiry, content is kept for ever.

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod types;

pub use error::DataError;
pub use types::{
    CURATED, DEFAULT_LIMIT, DataAccess, DataFeatures, DataManifest, DataWrite, DataWritten, Expiry,
    MAX_LIMIT, MAX_SUMMARY_CHARS, PortableData, QueryFilters, check_filters, summary_of,
};

/// Largest content, in bytes.
pub const MAX_CONTENT_BYTES: usize = 1 << 20;
/// Most items in one of the relay's own stores; another one is refused.
pub const MAX_ITEMS: usize = 100_000;
/// Most tags, and most recipients.
pub const MAX_NAMES: usize = 32;
/// Longest tag, recipient, or other curated text, in characters.
pub const MAX_NAME_CHARS: usize = 128;
/// Largest metadata, in bytes of JSON.
pub const MAX_METADATA_BYTES: usize = 16 << 10;
/// Longest query, in characters.
pub const MAX_QUERY_CHARS: usize = 1_024;
/// Most words of a query.
pub const MAX_QUERY_WORDS: usize = 64;

/// Where data is kept. The methods block: call them where a short wait is allowed.
pub trait DataStore: Send + Sync {
    /// The items that match, the best first; none is an empty list.
    fn query(&self, filters: &QueryFilters) -> Result<Vec<PortableData>, DataError>;

    /// Keeps a piece of text. Fails with [`DataError::ReadOnly`] where the manifest says so.
    fn write(&self, write: &DataWrite) -> Result<DataWritten, DataError>;

    /// An item by its id; `None` if there is none.
    fn get(&self, id: &str) -> Result<Option<PortableData>, DataError>;

    /// What the store is and can do.
    fn manifest(&self) -> DataManifest;
}
