//! The types of the data contract, with its field names. Times are Unix seconds; what is not known is absent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::DataError;

/// Longest summary, in characters.
pub const MAX_SUMMARY_CHARS: usize = 200;
/// Results of a query that names no limit.
pub const DEFAULT_LIMIT: usize = 10;
/// Most results of a query.
pub const MAX_LIMIT: usize = 1_000;

/// The curated fields: they are never in `metadata`.
pub const CURATED: [&str; 11] = [
    "thread_status",
    "pinned",
    "confidence",
    "domain_tags",
    "payload_type",
    "knowledge_type",
    "recipients",
    "expires_at",
    "created_at",
    "agent_id",
    "vault",
];

/// One item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortableData {
    /// Its id.
    pub id: String,
    /// Its first line.
    pub summary: String,
    /// The whole content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How well it matches; more is better. Comparable within one answer only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The state of the thread that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_status: Option<String>,
    /// Whether it is pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// How certain it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Its tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_tags: Option<Vec<String>>,
    /// What the content is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_type: Option<String>,
    /// What kind of knowledge it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge_type: Option<String>,
    /// Whom it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipients: Option<Vec<String>>,
    /// When it is gone; absent for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// When it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<i64>,
    /// The agent that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The vault that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vault: Option<String>,
    /// Anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// The summary of a content: its first line, cut with `...`.
pub fn summary_of(content: &str) -> String {
    let line = content.trim_start().lines().next().unwrap_or_default().trim_end();
    if line.chars().count() <= MAX_SUMMARY_CHARS {
        return line.to_owned();
    }
    let cut: String = line.chars().take(MAX_SUMMARY_CHARS - 3).collect();
    format!("{cut}...")
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryFilters {
    /// Words to search for: all of them. They are never search syntax. Blank for everything, the newest first.
    pub query: String,
    /// At most so many, after the offset.
    pub limit: usize,
    /// Leave out so many first.
    pub offset: usize,
    /// How to search, such as `fts`.
    pub mode: String,
    /// Ignore filters that the store does not apply.
    pub permissive_filters: bool,
    /// Filters by key; a list means any of its values.
    pub filters: Map<String, Value>,
}

impl Default for QueryFilters {
    fn default() -> Self {
        Self {
            query: String::new(),
            limit: DEFAULT_LIMIT,
            offset: 0,
            mode: "fts".to_owned(),
            permissive_filters: false,
            filters: Map::new(),
        }
    }
}

/// When an item is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expiry {
    /// When the store says: for the relay's own, never.
    #[default]
    StoreDefault,
    /// Never.
    Never,
    /// At this time, in Unix seconds.
    At(i64),
}

/// What is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataWrite {
    /// The content.
    pub content: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whom it is for.
    pub recipients: Vec<String>,
    /// When it is gone.
    pub expires_at: Expiry,
    /// Curated fields and anything else.
    pub metadata: Map<String, Value>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataWritten {
    /// The id of the item.
    pub id: String,
    /// When it was written.
    pub created_at: i64,
}

/// Whether a store may be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DataAccess {
    /// Reading and writing.
    #[default]
    ReadWrite,
    /// Reading only.
    ReadOnly,
}

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFeatures {
    /// It can be written.
    pub supports_writes: bool,
    /// It filters by tags.
    pub supports_tag_filter: bool,
    /// It searches by meaning.
    pub supports_semantic: bool,
    /// It ranks results again.
    pub supports_rerank: bool,
    /// It filters by the state of the thread.
    pub supports_thread_status_filter: bool,
    /// It knows pinned items.
    pub supports_pinning: bool,
    /// Its items fade with time.
    pub supports_decay_model: bool,
}

/// What a store is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataManifest {
    /// Version of the contract: `x.y.z`.
    pub capabilities_version: String,
    /// The kind of storage, such as `sqlite`.
    pub kind: String,
    /// The name of the implementation.
    pub implementation: String,
    /// How it can search.
    pub supported_modes: Vec<String>,
    /// Every filter that it applies.
    pub supported_filters: Vec<String>,
    /// What it can do.
    pub features: DataFeatures,
}

/// Keys that are part of every query and no filters.
const BASE_KEYS: [&str; 5] = ["query", "limit", "offset", "mode", "permissive_filters"];

/// Refuses filters that the store does not declare, unless the caller said that they may be ignored.
pub fn check_filters(manifest: &DataManifest, filters: &QueryFilters) -> Result<(), DataError> {
    let is_known =
        |key: &str| BASE_KEYS.contains(&key) || manifest.supported_filters.iter().any(|known| known == key);
    let unknown = filters.filters.keys().filter(|key| !is_known(key));
    let unsupported_keys: Vec<String> = unknown.cloned().collect();
    if filters.permissive_filters || unsupported_keys.is_empty() {
        return Ok(());
    }
    Err(DataError::UnsupportedFilter {
        unsupported_keys,
        supported_keys: manifest.supported_filters.clone(),
        substrate: manifest.kind.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_the_first_line_and_short() {
        assert_eq!(summary_of("one\ntwo"), "one");
        assert_eq!(summary_of("\n\n one \r\ntwo"), "one");
        let exact = "ä".repeat(200);
        assert_eq!(summary_of(&exact), exact);
        let long = summary_of(&"ä".repeat(201));
        assert_eq!((long.chars().count(), long.ends_with("ä...")), (200, true));
        assert_eq!(summary_of(""), "");
    }
}
