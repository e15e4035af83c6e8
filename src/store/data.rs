//! Data in a database of its own, with a full-text index.
//!
//! What people search for is quoted word by word, so that nothing in it is search syntax. An item whose expiry has passed is not
//! shown, and is deleted with the next write.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::{Map, Value};

use super::side_file::{SideFile, SideFileError, unix_secs};
use crate::data::{
    CURATED, DataAccess, DataError, DataFeatures, DataManifest, DataStore, DataWrite, DataWritten, Expiry,
    MAX_CONTENT_BYTES, MAX_ITEMS, MAX_LIMIT, MAX_METADATA_BYTES, MAX_NAME_CHARS, MAX_NAMES, MAX_QUERY_CHARS,
    MAX_QUERY_WORDS, PortableData, QueryFilters, check_filters, summary_of,
};

/// Name of the implementation.
const NAME: &str = "SqliteDataStore";
const KIND: &str = "sqlite";
const MODE: &str = "fts";

/// Filters that are applied. `tags` is another name of `domain_tags`.
const FILTERS: [&str; 9] = [
    "tags",
    "domain_tags",
    "recipients",
    "agent_id",
    "vault",
    "thread_status",
    "payload_type",
    "knowledge_type",
    "pinned",
];

const MIGRATIONS: &[&str] = &["
    CREATE TABLE items (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        content TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        fields TEXT NOT NULL
    ) STRICT;
    CREATE INDEX items_by_expiry ON items (expires_at) WHERE expires_at IS NOT NULL;
    CREATE VIRTUAL TABLE words USING fts5 (content, content = 'items', content_rowid = 'seq');
    CREATE TRIGGER items_added AFTER INSERT ON items BEGIN
        INSERT INTO words (rowid, content) VALUES (new.seq, new.content);
    END;
    CREATE TRIGGER items_deleted AFTER DELETE ON items BEGIN
        INSERT INTO words (words, rowid, content) VALUES ('delete', old.seq, old.content);
    END;
"];

/// Data in one SQLite file. It is opened when it is first needed and created when it is first written, for its owner only. Several
/// processes may use it.
#[derive(Debug)]
pub struct SqliteDataStore {
    file: SideFile,
    access: DataAccess,
}

impl SqliteDataStore {
    /// The store in this file.
    pub fn new(path: impl Into<PathBuf>, access: DataAccess) -> Self {
        Self {
            file: SideFile::new(path.into(), MIGRATIONS),
            access,
        }
    }

    /// The store of a state directory.
    pub fn in_state_dir(state_dir: &Path) -> Self {
        Self::new(state_dir.join("data.db"), DataAccess::ReadWrite)
    }

    /// Deletes an item by its id; `false` if there is none.
    pub fn delete(&self, id: &str) -> Result<bool, DataError> {
        if self.access == DataAccess::ReadOnly {
            return Err(DataError::ReadOnly(KIND.to_owned()));
        }
        let deleted = self
            .file
            .change(|db| self.sql(db.execute("DELETE FROM items WHERE id = ?1", [id])))?;
        Ok(deleted > 0)
    }

    fn sql<T>(&self, result: rusqlite::Result<T>) -> Result<T, DataError> {
        Ok(self.file.sql(result)?)
    }

    /// Items that pass, from rows in their order.
    fn select(
        &self,
        db: &Connection,
        words: &str,
        filters: &QueryFilters,
    ) -> Result<Vec<PortableData>, DataError> {
        const COLUMNS: &str = "items.id, items.content, items.created_at, items.expires_at, items.fields";
        const FRESH: &str = "(items.expires_at IS NULL OR items.expires_at > ?1)";
        let now = unix_secs();
        let sql = if words.is_empty() {
            format!("SELECT {COLUMNS}, NULL FROM items WHERE {FRESH} AND ?2 = '' ORDER BY seq DESC")
        } else {
            format!(
                "SELECT {COLUMNS}, -words.rank FROM words JOIN items ON items.seq = words.rowid \
                 WHERE {FRESH} AND words MATCH ?2 ORDER BY words.rank, items.seq DESC"
            )
        };
        let mut find = self.sql(db.prepare(&sql))?;
        let mut rows = self.sql(find.query(params![now, words]))?;
        let (mut left_out, mut found) = (0, Vec::new());
        while found.len() < filters.limit.min(MAX_LIMIT)
            && let Some(row) = self.sql(rows.next())?
        {
            let item = self.sql(item_of(row))?;
            if !accepts(&filters.filters, &item) {
            } else if left_out < filters.offset {
                left_out += 1;
            } else {
                found.push(item);
            }
        }
        Ok(found)
    }
}

impl DataStore for SqliteDataStore {
    fn query(&self, filters: &QueryFilters) -> Result<Vec<PortableData>, DataError> {
        check_filters(&self.manifest(), filters)?;
        if filters.mode != MODE {
            return Err(DataError::UnsupportedMode {
                mode: filters.mode.chars().take(40).collect(),
                supported_modes: vec![MODE.to_owned()],
                substrate: KIND.to_owned(),
            });
        }
        let words = quoted_words(&filters.query)?;
        let found = self.file.read(|db| self.select(db, &words, filters))?;
        Ok(found.unwrap_or_default())
    }

    fn write(&self, write: &DataWrite) -> Result<DataWritten, DataError> {
        if self.access == DataAccess::ReadOnly {
            return Err(DataError::ReadOnly(KIND.to_owned()));
        }
        let (fields, expires_at) = checked_fields(write)?;
        let fields = serde_json::to_string(&fields).unwrap_or_default();
        let id = new_id()?;
        self.file.change(|db| {
            let created_at = unix_secs();
            self.sql(db.execute("DELETE FROM items WHERE expires_at <= ?1", [created_at]))?;
            let count: i64 = self.sql(db.query_row("SELECT count(*) FROM items", [], |row| row.get(0)))?;
            if usize::try_from(count).is_ok_and(|count| count >= MAX_ITEMS) {
                return Err(DataError::Full(format!("there are {MAX_ITEMS} items already")));
            }
            self.sql(db.execute(
                "INSERT INTO items (id, content, created_at, expires_at, fields) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![id, write.content, created_at, expires_at, fields],
            ))?;
            Ok(DataWritten {
                id: id.clone(),
                created_at,
            })
        })
    }

    fn get(&self, id: &str) -> Result<Option<PortableData>, DataError> {
        let found = self.file.read(|db| {
            let sql = "SELECT id, content, created_at, expires_at, fields, NULL FROM items \
                       WHERE id = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
            let found = db.query_row(sql, params![id, unix_secs()], item_of).optional();
            self.sql(found)
        })?;
        Ok(found.flatten())
    }

    fn manifest(&self) -> DataManifest {
        DataManifest {
            capabilities_version: "1.0.0".to_owned(),
            kind: KIND.to_owned(),
            implementation: NAME.to_owned(),
            supported_modes: vec![MODE.to_owned()],
            supported_filters: FILTERS.map(str::to_owned).to_vec(),
            features: DataFeatures {
                supports_writes: self.access == DataAccess::ReadWrite,
                supports_tag_filter: true,
                supports_semantic: false,
                supports_rerank: false,
                supports_thread_status_filter: true,
                supports_pinning: true,
                supports_decay_model: false,
            },
        }
    }
}

/// The words of a query, each quoted, so that none of them is an operator; empty for a blank query.
fn quoted_words(query: &str) -> Result<String, DataError> {
    if query.chars().count() > MAX_QUERY_CHARS {
        let why = format!("the query is longer than {MAX_QUERY_CHARS} characters");
        return Err(DataError::Invalid(why));
    }
    let words: Vec<&str> = query
        .split(|c: char| c.is_whitespace() || c == '\0')
        .filter(|word| !word.is_empty())
        .collect();
    if words.len() > MAX_QUERY_WORDS {
        let why = format!("the query has more than {MAX_QUERY_WORDS} words");
        return Err(DataError::Invalid(why));
    }
    let quoted = words
        .iter()
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"")));
    Ok(quoted.collect::<Vec<_>>().join(" "))
}

/// Whether an item passes every filter that is applied.
fn accepts(filters: &Map<String, Value>, item: &PortableData) -> bool {
    filters.iter().all(|(key, wanted)| {
        let values: Vec<&str> = match key.as_str() {
            "tags" | "domain_tags" => texts(item.domain_tags.as_deref()),
            "recipients" => texts(item.recipients.as_deref()),
            "agent_id" => item.agent_id.as_deref().into_iter().collect(),
            "vault" => item.vault.as_deref().into_iter().collect(),
            "thread_status" => item.thread_status.as_deref().into_iter().collect(),
            "payload_type" => item.payload_type.as_deref().into_iter().collect(),
            "knowledge_type" => item.knowledge_type.as_deref().into_iter().collect(),
            "pinned" if item.pinned.unwrap_or(false) => vec!["true"],
            "pinned" => vec!["false"],
            // Refused before, unless the caller said that it may be ignored.
            _ => return true,
        };
        let is_value = |wanted: &Value| match wanted {
            Value::String(text) => values.contains(&text.as_str()),
            Value::Bool(flag) => values.contains(&if *flag { "true" } else { "false" }),
            _ => false,
        };
        match wanted {
            Value::Array(any) => any.iter().any(is_value),
            one => is_value(one),
        }
    })
}

fn texts(list: Option<&[String]>) -> Vec<&str> {
    list.unwrap_or_default().iter().map(String::as_str).collect()
}

/// What is stored beside the content, and the expiry; else why it cannot be.
fn checked_fields(write: &DataWrite) -> Result<(PortableData, Option<i64>), DataError> {
    let invalid = |why: String| Err(DataError::Invalid(why));
    if write.content.trim().is_empty() {
        return invalid("the content is empty".to_owned());
    }
    if write.content.len() > MAX_CONTENT_BYTES {
        return invalid(format!(
            "the content is larger than {} KiB",
            MAX_CONTENT_BYTES >> 10
        ));
    }
    if write.content.contains('\0') {
        return invalid("the content contains a NUL character".to_owned());
    }
    let size = serde_json::to_string(&write.metadata).map_or(usize::MAX, |text| text.len());
    if size > MAX_METADATA_BYTES {
        return invalid(format!(
            "the metadata is larger than {} KiB",
            MAX_METADATA_BYTES >> 10
        ));
    }
    let mut curated = Map::new();
    let mut rest = Map::new();
    for (key, value) in &write.metadata {
        let target = if CURATED.contains(&key.as_str()) {
            &mut curated
        } else {
            &mut rest
        };
        target.insert(key.clone(), value.clone());
    }
    for (key, is_set) in [
        ("created_at", true),
        ("domain_tags", !write.tags.is_empty()),
        ("recipients", !write.recipients.is_empty()),
        ("expires_at", write.expires_at != Expiry::StoreDefault),
    ] {
        if is_set && curated.contains_key(key) {
            return invalid(format!("`{key}` is set twice: it cannot be in the metadata, too"));
        }
    }
    let mut fields: PortableData = serde_json::from_value(Value::Object(curated)).map_err(|error| {
        DataError::Invalid(format!("the metadata has a field of the wrong type: {error}"))
    })?;
    if !write.tags.is_empty() {
        fields.domain_tags = Some(write.tags.clone());
    }
    if !write.recipients.is_empty() {
        fields.recipients = Some(write.recipients.clone());
    }
    for (what, list) in [("tags", &fields.domain_tags), ("recipients", &fields.recipients)] {
        let list = list.as_deref().unwrap_or_default();
        if list.len() > MAX_NAMES || list.iter().any(|name| !is_short(name)) {
            return invalid(format!(
                "there may be {MAX_NAMES} {what} of 1 to {MAX_NAME_CHARS} characters"
            ));
        }
    }
    for (what, text) in [
        ("thread_status", &fields.thread_status),
        ("payload_type", &fields.payload_type),
        ("knowledge_type", &fields.knowledge_type),
        ("agent_id", &fields.agent_id),
        ("vault", &fields.vault),
    ] {
        if text.as_deref().is_some_and(|text| !is_short(text)) {
            return invalid(format!("`{what}` must have 1 to {MAX_NAME_CHARS} characters"));
        }
    }
    let expires_at = match write.expires_at {
        Expiry::StoreDefault => fields.expires_at.take(),
        Expiry::Never => None,
        Expiry::At(secs) => Some(secs),
    };
    fields.metadata = (!rest.is_empty()).then_some(rest);
    Ok((fields, expires_at))
}

fn is_short(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MAX_NAME_CHARS
}

/// Columns: id, content, `created_at`, `expires_at`, fields, score.
fn item_of(row: &Row<'_>) -> rusqlite::Result<PortableData> {
    let content: String = row.get(1)?;
    let fields: String = row.get(4)?;
    Ok(PortableData {
        id: row.get(0)?,
        summary: summary_of(&content),
        detail: Some(content),
        score: row.get(5)?,
        created_at: Some(row.get(2)?),
        expires_at: row.get(3)?,
        ..serde_json::from_str(&fields).unwrap_or_default()
    })
}

/// A new id: 32 hexadecimal digits.
fn new_id() -> Result<String, DataError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| DataError::Unavailable(format!("the system has no randomness: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

impl From<SideFileError> for DataError {
    fn from(error: SideFileError) -> Self {
        Self::Unavailable(error.to_string())
    }
}
