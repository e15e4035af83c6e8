//! Skills: playbooks that an agent runs, and the contract of the stores that keep them.
//!
//! A skill is a text with a name and a status. Only an Approved one is run. [`SkillStore`] is the contract; the relay's own stores
//! are [`SqliteSkillStore`](crate::SqliteSkillStore) and [`FileSkillStore`](crate::FileSkillStore). Whoever writes another one runs
//! the `conformance` suite (cargo feature `conformance`) on it. This module does no I/O and reads no clock.
//!
//! # Conventions
//!
//! - The persisted body always names its status: a line `# Status: Approved` in its header; no such line means Draft. A change of
//!   the status rewrites that line, and so changes body, hash and version.
//! - `content_hash` is the SHA-256 of the persisted bytes, in lower-case hex; `version` is its first 12 digits. The same body has
//!   the same hash in every store.
//! - `store` keeps the body as it is, unless a status is passed that the body does not name. It neither grants nor checks approval.
//! - Nothing expires.

mod body;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod types;

pub use body::{
    MAX_AUTHOR_CHARS, MAX_BAG_BYTES, MAX_BODY_BYTES, MAX_LIST, MAX_LIST_CHARS, MAX_NAME_BYTES, SkillBody,
    is_name,
};
pub use error::{SkillError, SkillErrorReason};
pub use types::{
    ApprovalMode, SkillDetails, SkillFeatures, SkillFilter, SkillManifest, SkillMeta, SkillSource,
    SkillStatus, SkillType, SkillVersion, SkillWrite, UnknownStatus,
};

/// Most skills in one of the relay's own stores; another one is refused.
pub const MAX_SKILLS: usize = 1_000;
/// Most entries of a skill's history that the relay's own stores keep; the oldest are dropped.
pub const MAX_VERSIONS: usize = 50;

/// Where skills are kept. The methods block: call them where a short wait is allowed.
pub trait SkillStore: Send + Sync {
    /// The text of a skill: the current one, or that of a version. Fails with
    /// [`NotFound`](SkillErrorReason::NotFound) or [`VersionNotFound`](SkillErrorReason::VersionNotFound).
    fn load(&self, name: &str, version: Option<&str>) -> Result<SkillSource, SkillError>;

    /// The skills that pass the filter, by name; none is an empty list.
    fn query(&self, filter: &SkillFilter) -> Result<Vec<SkillMeta>, SkillError>;

    /// What is known of a skill, without its text.
    fn metadata(&self, name: &str) -> Result<SkillMeta, SkillError>;

    /// The history of a skill, the oldest entry first.
    fn versions(&self, name: &str) -> Result<Vec<SkillVersion>, SkillError>;

    /// Adds a skill, or a new version of it. An author that was named once stays; another one is a
    /// [`Conflict`](SkillErrorReason::Conflict).
    fn store(&self, name: &str, source: &str, write: &SkillWrite) -> Result<SkillVersion, SkillError>;

    /// Deletes a skill with its history, for good. The name is free at once.
    fn delete(&self, name: &str) -> Result<(), SkillError>;

    /// Changes the status of a skill.
    fn update_status(&self, name: &str, status: SkillStatus) -> Result<SkillVersion, SkillError>;

    /// What the store is and can do.
    fn manifest(&self) -> SkillManifest;

    /// A token that changes whenever anything that [`Self::query`] shows changes, also a text whose status stays. It loads no
    /// texts. None: the store has no such token.
    fn version(&self) -> Result<Option<String>, SkillError> {
        Ok(None)
    }
}
