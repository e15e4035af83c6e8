//! Every statement of the skill contract, on every skill store of the relay: one test each, named after it.

use std::path::Path;

use hermes_relay::skill::{
    ApprovalMode, SkillError, SkillFilter, SkillManifest, SkillMeta, SkillSource, SkillStatus, SkillStore,
    SkillVersion, SkillWrite, conformance,
};
use hermes_relay::{FileSkillStore, SqliteSkillStore};

#[expect(clippy::unnecessary_wraps, reason = "the constructor that the suite takes")]
fn sqlite(dir: &Path, mode: ApprovalMode) -> Option<Box<dyn SkillStore>> {
    Some(Box::new(SqliteSkillStore::new(dir.join("skills.db"), mode)))
}

#[expect(clippy::unnecessary_wraps, reason = "the constructor that the suite takes")]
fn filesystem(dir: &Path, mode: ApprovalMode) -> Option<Box<dyn SkillStore>> {
    Some(Box::new(FileSkillStore::new(dir.join("skills"), mode)))
}

macro_rules! every_statement {
    ($store:ident) => {
        statements!(conformance::skill_statement, conformance::skill_statements, $store:
            eight_required_methods_exist,
            query_on_an_empty_store_gives_an_empty_list,
            query_never_fails_for_none,
            a_missing_name_is_skill_not_found,
            an_unknown_version_of_a_skill_is_version_not_found,
            the_bytes_of_a_draft_come_back,
            content_hash_is_the_sha256_of_the_persisted_bytes,
            version_is_the_first_12_hex_digits,
            the_same_body_in_two_stores_has_the_same_hash,
            changed_at_is_in_seconds,
            update_status_fills_previous_status,
            the_status_filter_takes_one_or_many,
            an_invalid_status_is_refused_before_any_write,
            store_neither_grants_nor_checks_approval,
            secured_mode_never_approves_without_a_signature,
            the_author_is_locked_at_first_write,
            an_absent_author_stays_absent,
            the_author_filter_narrows_further,
            delete_removes_a_skill_from_every_view,
            a_deleted_name_is_free_with_a_clean_history,
            the_catalog_version_changes_with_every_change,
            the_catalog_version_stays_when_nothing_changes,
            the_catalog_version_loads_no_texts,
            errors_name_the_contract_and_the_store,
            tags_must_all_match,
            the_offset_comes_before_the_limit,
            writes_survive_a_restart,
        );
    };
}

every_statement!(sqlite);
every_statement!(filesystem);

/// A store that forgets what the suite must notice.
struct Careless {
    inner: SqliteSkillStore,
}

impl SkillStore for Careless {
    fn load(&self, name: &str, _: Option<&str>) -> Result<SkillSource, SkillError> {
        let mut skill = self.inner.load(name, None)?;
        skill.source = skill.source.trim().to_owned();
        Ok(skill)
    }

    fn query(&self, filter: &SkillFilter) -> Result<Vec<SkillMeta>, SkillError> {
        let filter = SkillFilter {
            author: None,
            offset: 0,
            ..filter.clone()
        };
        self.inner.query(&filter)
    }

    fn metadata(&self, name: &str) -> Result<SkillMeta, SkillError> {
        let mut meta = self.inner.metadata(name)?;
        meta.author.get_or_insert_with(|| "root".to_owned());
        Ok(meta)
    }

    fn versions(&self, name: &str) -> Result<Vec<SkillVersion>, SkillError> {
        self.inner.versions(name)
    }

    fn store(&self, name: &str, source: &str, write: &SkillWrite) -> Result<SkillVersion, SkillError> {
        self.inner.store(name, source, write)
    }

    fn delete(&self, name: &str) -> Result<(), SkillError> {
        self.inner.update_status(name, SkillStatus::Disabled).map(drop)
    }

    fn update_status(&self, name: &str, status: SkillStatus) -> Result<SkillVersion, SkillError> {
        let mut changed = self.inner.update_status(name, status)?;
        changed.previous_status = None;
        Ok(changed)
    }

    fn manifest(&self) -> SkillManifest {
        self.inner.manifest()
    }

    fn version(&self) -> Result<Option<String>, SkillError> {
        // The trap that the contract names: names and statuses alone.
        let skills = self.inner.query(&SkillFilter::default())?;
        let parts: Vec<String> = skills
            .iter()
            .map(|skill| format!("{}{}", skill.name, skill.status))
            .collect();
        Ok(Some(parts.join(",")))
    }
}

#[test]
fn the_suite_notices_a_careless_store() {
    let results = conformance::skill_store(&|dir, mode| {
        let inner = SqliteSkillStore::new(dir.join("skills.db"), mode);
        Some(Box::new(Careless { inner }))
    });
    let failed: Vec<&str> = (results.iter())
        .filter(|result| result.outcome.is_err())
        .map(|result| result.statement)
        .collect();
    for statement in [
        "an_unknown_version_of_a_skill_is_version_not_found",
        "the_bytes_of_a_draft_come_back",
        "update_status_fills_previous_status",
        "an_absent_author_stays_absent",
        "the_author_filter_narrows_further",
        "delete_removes_a_skill_from_every_view",
        "a_deleted_name_is_free_with_a_clean_history",
        "the_catalog_version_changes_with_every_change",
        "the_offset_comes_before_the_limit",
    ] {
        assert!(
            failed.contains(&statement),
            "{statement} passed; failed: {failed:?}"
        );
    }
    assert_eq!(
        (results.len(), conformance::skill_statement("no such", &sqlite)),
        (27, None)
    );
}
