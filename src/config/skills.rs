//! The `skills` section: where skills are kept.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::sections::{UnknownChoice, choice};
use super::validate::Violation;
use crate::setting::{null_is_default, section};
use crate::skill::SkillStore;
use crate::store::{FileSkillStore, SqliteSkillStore};

choice!(
    /// How skills are kept.
    SkillStoreKind {
        /// In one database of the state directory, with the texts of earlier versions.
        #[default]
        Sqlite = "sqlite",
        /// As files that people may edit.
        Filesystem = "filesystem",
    }
);

section! {
    /// Where skills are kept.
    #[derive(PartialEq, Eq)]
    pub struct SkillsConfig {
        /// How.
        #[serde(deserialize_with = "null_is_default")]
        pub store: SkillStoreKind;
        /// Directory of the files; `skills` in the state directory if unset.
        pub dir: Option<PathBuf>;
    }
}

impl SkillsConfig {
    /// The store. It touches no file before it is used.
    pub fn store_in(&self, state_dir: &Path) -> Box<dyn SkillStore> {
        match self.store {
            SkillStoreKind::Sqlite => Box::new(SqliteSkillStore::in_state_dir(state_dir)),
            SkillStoreKind::Filesystem => {
                let dir = self.dir.clone().unwrap_or_else(|| state_dir.join("skills"));
                Box::new(FileSkillStore::new(dir, crate::skill::ApprovalMode::Unsecured))
            }
        }
    }

    /// Whether the store is in the state directory.
    pub fn is_in_state_dir(&self) -> bool {
        self.store == SkillStoreKind::Sqlite || self.dir.is_none()
    }

    /// The first violated rule of the file's section.
    pub(super) fn violation(&self) -> Option<Violation> {
        let is_unused = self.dir.is_some() && self.store == SkillStoreKind::Sqlite;
        is_unused.then(|| {
            let rule = "is used only with `store: filesystem`".to_owned();
            ("skills.dir", rule)
        })
    }
}
