//! Skills in a database of their own, with the texts of earlier versions.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sha2::{Digest as _, Sha256};

use super::side_file::{SideFile, SideFileError, unix_secs};
use crate::skill::{
    ApprovalMode, MAX_SKILLS, MAX_VERSIONS, SkillBody, SkillDetails, SkillError, SkillErrorReason,
    SkillFeatures, SkillFilter, SkillManifest, SkillMeta, SkillSource, SkillStatus, SkillStore, SkillVersion,
    SkillWrite, is_name,
};

/// Name of the implementation, for errors.
const NAME: &str = "SqliteSkillStore";

const MIGRATIONS: &[&str] = &["
    CREATE TABLE skills (
        name TEXT PRIMARY KEY,
        version TEXT NOT NULL,
        content_hash TEXT NOT NULL,
        status TEXT NOT NULL,
        author TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        status_changed_at INTEGER,
        details TEXT NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE versions (
        seq INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        version TEXT NOT NULL,
        content_hash TEXT NOT NULL,
        status TEXT NOT NULL,
        previous_status TEXT,
        changed_at INTEGER NOT NULL,
        changed_by TEXT,
        body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX versions_by_name ON versions (name, seq);
    CREATE TABLE revisions (last INTEGER NOT NULL) STRICT;
    INSERT INTO revisions VALUES (0);
"];

/// Skills in one SQLite file. It is opened when it is first needed and created when it is first written, for its owner only. Several
/// processes may use it.
#[derive(Debug)]
pub struct SqliteSkillStore {
    file: SideFile,
    mode: ApprovalMode,
}

impl SqliteSkillStore {
    /// The store in this file.
    pub fn new(path: impl Into<PathBuf>, mode: ApprovalMode) -> Self {
        Self {
            file: SideFile::new(path.into(), MIGRATIONS),
            mode,
        }
    }

    /// The store of a state directory.
    pub fn in_state_dir(state_dir: &Path) -> Self {
        Self::new(state_dir.join("skills.db"), ApprovalMode::Unsecured)
    }

    fn sql<T>(&self, result: rusqlite::Result<T>) -> Result<T, SkillError> {
        Ok(self.file.sql(result)?)
    }

    /// The skill in this database; fails if there is none.
    fn find(&self, db: &Connection, name: &str) -> Result<SkillMeta, SkillError> {
        let sql = format!("SELECT {COLUMNS} FROM skills WHERE name = ?1");
        let found = db.query_row(&sql, [name], meta_of).optional();
        self.sql(found)?.ok_or_else(|| not_found(name))
    }

    /// Reads about a skill; fails if there is none.
    fn about<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Connection, SkillMeta) -> Result<T, SkillError>,
    ) -> Result<T, SkillError> {
        let found = self.file.read(|db| {
            let meta = self.find(db, name)?;
            read(db, meta)
        })?;
        found.ok_or_else(|| not_found(name))
    }

    fn body(&self, db: &Connection, name: &str, hash: &str) -> Result<Option<String>, SkillError> {
        let sql = "SELECT body FROM versions WHERE name = ?1 AND content_hash = ?2 ORDER BY seq DESC LIMIT 1";
        self.sql(db.query_row(sql, [name, hash], |row| row.get(0)).optional())
    }

    /// Writes what a skill is now. A new text or status is an entry of its history.
    fn put(
        &self,
        db: &Connection,
        meta: &SkillMeta,
        before: Option<&SkillMeta>,
        body: &SkillBody,
        changed_by: Option<&str>,
    ) -> Result<SkillVersion, SkillError> {
        let version = entry(meta, before.map(|before| before.status), changed_by);
        self.sql(db.execute("UPDATE revisions SET last = last + 1", []))?;
        let details = serde_json::to_string(&meta.details).unwrap_or_default();
        self.sql(db.execute(
            "INSERT OR REPLACE INTO skills (name, version, content_hash, status, author, created_at, updated_at, \
             status_changed_at, details, revision) \
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, last FROM revisions",
            params![
                meta.name,
                meta.version,
                meta.content_hash,
                meta.status.as_str(),
                meta.author,
                meta.created_at,
                meta.updated_at,
                meta.status_changed_at,
                details
            ],
        ))?;
        if before.is_some_and(|before| before.content_hash == meta.content_hash) {
            return Ok(version);
        }
        self.sql(db.execute(
            "INSERT INTO versions (name, version, content_hash, status, previous_status, changed_at, changed_by, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                version.name,
                version.version,
                version.content_hash,
                version.status.as_str(),
                version.previous_status.map(SkillStatus::as_str),
                version.changed_at,
                version.changed_by,
                body.source
            ],
        ))?;
        self.sql(db.execute(
            "DELETE FROM versions WHERE name = ?1 AND seq NOT IN \
             (SELECT seq FROM versions WHERE name = ?1 ORDER BY seq DESC LIMIT ?2)",
            params![meta.name, i64::try_from(MAX_VERSIONS).unwrap_or(i64::MAX)],
        ))?;
        Ok(version)
    }
}

impl SkillStore for SqliteSkillStore {
    fn load(&self, name: &str, version: Option<&str>) -> Result<SkillSource, SkillError> {
        self.about(name, |db, mut metadata| {
            let wanted = version.unwrap_or(&metadata.version).to_owned();
            let sql = "SELECT content_hash, status FROM versions WHERE name = ?1 AND version = ?2 \
                       ORDER BY seq DESC LIMIT 1";
            let found = db.query_row(sql, [name, &wanted], |row| Ok((row.get(0)?, row.get(1)?)));
            let found: Option<(String, String)> = self.sql(found.optional())?;
            let missing = || {
                fail(SkillErrorReason::VersionNotFound {
                    name: name.to_owned(),
                    version: wanted.clone(),
                })
            };
            let (hash, status) = found.ok_or_else(missing)?;
            let source = self.body(db, name, &hash)?.ok_or_else(missing)?;
            if wanted != metadata.version {
                metadata.version.clone_from(&wanted);
                metadata.content_hash.clone_from(&hash);
                metadata.status = status_of(&status);
            }
            Ok(SkillSource {
                name: name.to_owned(),
                version: wanted,
                content_hash: hash,
                source,
                metadata,
            })
        })
    }

    fn query(&self, filter: &SkillFilter) -> Result<Vec<SkillMeta>, SkillError> {
        let found = self.file.read(|db| {
            let sql = format!("SELECT {COLUMNS} FROM skills");
            let mut find = self.sql(db.prepare(&sql))?;
            let rows = find.query_map([], meta_of).and_then(Iterator::collect);
            self.sql::<Vec<SkillMeta>>(rows)
        })?;
        Ok(filter.select(found.unwrap_or_default()))
    }

    fn metadata(&self, name: &str) -> Result<SkillMeta, SkillError> {
        self.about(name, |_, meta| Ok(meta))
    }

    fn versions(&self, name: &str) -> Result<Vec<SkillVersion>, SkillError> {
        self.about(name, |db, _| {
            let sql = "SELECT name, version, content_hash, status, previous_status, changed_at, changed_by \
                       FROM versions WHERE name = ?1 ORDER BY seq";
            let mut find = self.sql(db.prepare(sql))?;
            let rows = find.query_map([name], version_of).and_then(Iterator::collect);
            self.sql(rows)
        })
    }

    fn store(&self, name: &str, source: &str, write: &SkillWrite) -> Result<SkillVersion, SkillError> {
        check_name(name)?;
        let body =
            SkillBody::new(source, write, self.mode).map_err(|why| fail(SkillErrorReason::Lint(why)))?;
        self.file.change(|db| {
            let before = match self.find(db, name) {
                Ok(before) => Some(before),
                Err(error) if matches!(error.reason, SkillErrorReason::NotFound(_)) => None,
                Err(error) => return Err(error),
            };
            if before.is_none() {
                let count: i64 =
                    self.sql(db.query_row("SELECT count(*) FROM skills", [], |row| row.get(0)))?;
                if usize::try_from(count).is_ok_and(|count| count >= MAX_SKILLS) {
                    return Err(fail(full()));
                }
            }
            let meta = next_meta(NAME, name, before.as_ref(), &body, write, unix_secs())?;
            match &before {
                Some(before) if is_same(before, &meta) => Ok(unchanged(before)),
                before => self.put(db, &meta, before.as_ref(), &body, write.changed_by.as_deref()),
            }
        })
    }

    fn delete(&self, name: &str) -> Result<(), SkillError> {
        // Nothing is made for a name that does not exist.
        self.metadata(name)?;
        self.file.change(|db| {
            self.find(db, name)?;
            for table in ["skills", "versions"] {
                self.sql(db.execute(&format!("DELETE FROM {table} WHERE name = ?1"), [name]))?;
            }
            self.sql(db.execute("UPDATE revisions SET last = last + 1", []))?;
            Ok(())
        })
    }

    fn update_status(&self, name: &str, status: SkillStatus) -> Result<SkillVersion, SkillError> {
        check_approval(NAME, self.mode, name, status)?;
        self.metadata(name)?;
        self.file.change(|db| {
            let before = self.find(db, name)?;
            let source = self.body(db, name, &before.content_hash)?;
            let body = SkillBody::read(source.ok_or_else(|| not_found(name))?);
            if body.status == status {
                return Ok(unchanged(&before));
            }
            let body = body.with_status(status);
            let meta = restated(&before, &body);
            self.put(db, &meta, Some(&before), &body, None)
        })
    }

    fn manifest(&self) -> SkillManifest {
        SkillManifest {
            capabilities_version: "1.0.0".to_owned(),
            kind: "sqlite".to_owned(),
            implementation: NAME.to_owned(),
            features: SkillFeatures {
                supports_writes: true,
                supports_versioning: true,
                supports_tag_filter: true,
                supports_audit_trail: true,
                supports_atomic_status_transitions: true,
            },
        }
    }

    fn version(&self) -> Result<Option<String>, SkillError> {
        let token = self.file.read(|db| {
            let mut find =
                self.sql(db.prepare("SELECT name, status, version, revision FROM skills ORDER BY name"))?;
            let rows = find.query_map([], |row| {
                Ok(format!(
                    "{}\0{}\0{}\0{}\n",
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?
                ))
            });
            let rows: Vec<String> = self.sql(rows.and_then(Iterator::collect))?;
            Ok::<_, SkillError>(token(rows.iter().map(String::as_str)))
        })?;
        Ok(Some(token.unwrap_or_else(|| EMPTY.to_owned())))
    }
}

/// The token of a store without a file or directory.
pub(super) const EMPTY: &str = "empty";

/// 16 hex digits that stand for these lines.
pub(super) fn token<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let digest = lines.fold(Sha256::new(), Sha256::chain_update);
    let digest = digest.finalize();
    let number = (digest.iter().take(8)).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:016x}")
}

/// What a skill becomes with a new text.
pub(super) fn next_meta(
    implementation: &str,
    name: &str,
    before: Option<&SkillMeta>,
    body: &SkillBody,
    write: &SkillWrite,
    now: i64,
) -> Result<SkillMeta, SkillError> {
    let author = match (before.and_then(|before| before.author.as_ref()), &write.author) {
        (Some(locked), Some(other)) if locked != other => {
            let why = format!("skill `{name}` belongs to the author `{locked}`, not to `{other}`");
            return Err(SkillError::new(implementation, SkillErrorReason::Conflict(why)));
        }
        (Some(author), _) | (None, Some(author)) => Some(author.clone()),
        (None, None) => None,
    };
    Ok(SkillMeta {
        name: name.to_owned(),
        version: body.version(),
        content_hash: body.content_hash.clone(),
        status: body.status,
        created_at: before.map_or(now, |before| before.created_at),
        updated_at: now,
        status_changed_at: match before {
            Some(before) if before.status == body.status => before.status_changed_at,
            _ => Some(now),
        },
        author,
        details: write.details.clone().or(body.details()),
    })
}

/// Whether storing again has changed nothing.
pub(super) fn is_same(before: &SkillMeta, after: &SkillMeta) -> bool {
    before.content_hash == after.content_hash
        && before.author == after.author
        && before.details == after.details
}

/// The answer to a change that changes nothing.
pub(super) fn unchanged(meta: &SkillMeta) -> SkillVersion {
    SkillVersion {
        changed_at: meta.status_changed_at.unwrap_or(meta.updated_at),
        ..entry(meta, Some(meta.status), None)
    }
}

/// The entry of a skill's history for what it is now.
pub(super) fn entry(
    meta: &SkillMeta,
    previous_status: Option<SkillStatus>,
    changed_by: Option<&str>,
) -> SkillVersion {
    SkillVersion {
        name: meta.name.clone(),
        version: meta.version.clone(),
        content_hash: meta.content_hash.clone(),
        status: meta.status,
        previous_status,
        changed_at: meta.updated_at,
        changed_by: changed_by.map(str::to_owned),
    }
}

/// What a skill is with this text, whose status is another one.
pub(super) fn restated(meta: &SkillMeta, body: &SkillBody) -> SkillMeta {
    let now = unix_secs();
    SkillMeta {
        version: body.version(),
        content_hash: body.content_hash.clone(),
        status: body.status,
        updated_at: now,
        status_changed_at: Some(now),
        ..meta.clone()
    }
}

/// Where approvals need signatures, only a signed text approves.
pub(super) fn check_approval(
    implementation: &str,
    mode: ApprovalMode,
    name: &str,
    status: SkillStatus,
) -> Result<(), SkillError> {
    if mode == ApprovalMode::Secured && status == SkillStatus::Approved {
        let why = format!("skill `{name}` can be approved only by a signature in its text");
        return Err(SkillError::new(
            implementation,
            SkillErrorReason::ApprovalRejected(why),
        ));
    }
    Ok(())
}

/// The reason for a name that cannot be one.
pub(super) fn bad_name(name: &str) -> SkillErrorReason {
    let shown: String = name.chars().take(40).collect();
    SkillErrorReason::Lint(format!(
        "`{shown}` cannot be a name: it needs a letter or digit first, then letters, digits, `_`, `-` and `.`, at most 128"
    ))
}

/// The reason for one skill too many.
pub(super) fn full() -> SkillErrorReason {
    SkillErrorReason::Conflict(format!("there are {MAX_SKILLS} skills already; delete one"))
}

fn check_name(name: &str) -> Result<(), SkillError> {
    if is_name(name) {
        Ok(())
    } else {
        Err(fail(bad_name(name)))
    }
}

fn fail(reason: SkillErrorReason) -> SkillError {
    SkillError::new(NAME, reason)
}

fn not_found(name: &str) -> SkillError {
    fail(SkillErrorReason::NotFound(name.chars().take(200).collect()))
}

impl From<SideFileError> for SkillError {
    fn from(error: SideFileError) -> Self {
        fail(SkillErrorReason::Unavailable(error.to_string()))
    }
}

const COLUMNS: &str =
    "name, version, content_hash, status, author, created_at, updated_at, status_changed_at, details";

fn meta_of(row: &Row<'_>) -> rusqlite::Result<SkillMeta> {
    let details: String = row.get(8)?;
    Ok(SkillMeta {
        name: row.get(0)?,
        version: row.get(1)?,
        content_hash: row.get(2)?,
        status: status_of(&row.get::<_, String>(3)?),
        author: row.get(4)?,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
        status_changed_at: row.get(7)?,
        details: serde_json::from_str::<SkillDetails>(&details).unwrap_or_default(),
    })
}

fn version_of(row: &Row<'_>) -> rusqlite::Result<SkillVersion> {
    let previous: Option<String> = row.get(4)?;
    Ok(SkillVersion {
        name: row.get(0)?,
        version: row.get(1)?,
        content_hash: row.get(2)?,
        status: status_of(&row.get::<_, String>(3)?),
        previous_status: previous.map(|status| status_of(&status)),
        changed_at: row.get(5)?,
        changed_by: row.get(6)?,
    })
}

/// What cannot be read is not approved.
fn status_of(text: &str) -> SkillStatus {
    text.parse().unwrap_or(SkillStatus::Draft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_text_keeps_when_its_skill_was_created_and_when_its_status_changed() {
        let next = |before: Option<&SkillMeta>, text: &str, status, now| {
            let write = SkillWrite {
                status: Some(status),
                ..SkillWrite::default()
            };
            let body = SkillBody::new(text, &write, ApprovalMode::Unsecured).unwrap();
            next_meta(NAME, "a", before, &body, &write, now).unwrap()
        };
        let times = |meta: &SkillMeta| (meta.created_at, meta.updated_at, meta.status_changed_at);
        let first = next(None, "one", SkillStatus::Draft, 10);
        assert_eq!(times(&first), (10, 10, Some(10)));
        let edited = next(Some(&first), "two", SkillStatus::Draft, 20);
        assert_eq!(times(&edited), (10, 20, Some(10)));
        let approved = next(Some(&edited), "two", SkillStatus::Approved, 30);
        assert_eq!(times(&approved), (10, 30, Some(30)));
        let unknown = SkillMeta {
            status_changed_at: None,
            ..approved
        };
        let edited = next(Some(&unknown), "three", SkillStatus::Approved, 40);
        assert_eq!(times(&edited), (10, 40, None));
    }
}
