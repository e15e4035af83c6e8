//! Every statement of the data contract, on every data store of the relay: one test each, named after it.

use std::path::Path;

use hermes_relay::SqliteDataStore;
use hermes_relay::data::{
    DataAccess, DataError, DataManifest, DataStore, DataWrite, DataWritten, Expiry, PortableData,
    QueryFilters, conformance,
};

#[expect(clippy::unnecessary_wraps, reason = "the constructor that the suite takes")]
fn sqlite(dir: &Path, access: DataAccess) -> Option<Box<dyn DataStore>> {
    Some(Box::new(SqliteDataStore::new(dir.join("data.db"), access)))
}

statements!(conformance::data_statement, conformance::data_statements, sqlite:
    query_always_gives_a_list,
    get_of_nothing_is_none,
    every_item_has_an_id_and_a_summary,
    write_gives_an_id_and_seconds,
    written_content_is_found_by_get,
    the_summary_is_the_first_line_and_short,
    the_detail_is_the_whole_content,
    an_unsupported_mode_fails_clearly,
    declared_modes_work,
    an_undeclared_filter_is_an_error_that_names_it,
    permissive_filters_lets_it_pass,
    base_keys_are_never_refused,
    every_applied_filter_is_declared,
    no_declared_filter_is_ignored,
    several_tags_mean_any_of_them,
    curated_fields_are_at_the_top_only,
    no_expiry_means_for_ever,
    a_read_only_store_says_so_and_fails_to_write,
    the_limit_is_respected,
    writes_survive_a_restart,
);

/// A store that forgets what the suite must notice.
struct Careless {
    inner: SqliteDataStore,
}

impl DataStore for Careless {
    fn query(&self, filters: &QueryFilters) -> Result<Vec<PortableData>, DataError> {
        // Drops every filter and the mode in silence, and gives all there is.
        let filters = QueryFilters {
            query: filters.query.clone(),
            limit: 100,
            ..QueryFilters::default()
        };
        self.inner.query(&filters)
    }

    fn write(&self, write: &DataWrite) -> Result<DataWritten, DataError> {
        let write = DataWrite {
            expires_at: Expiry::At(4_102_444_800),
            ..write.clone()
        };
        self.inner.write(&write)
    }

    fn get(&self, id: &str) -> Result<Option<PortableData>, DataError> {
        match self.inner.get(id)? {
            None => Err(DataError::Invalid("no such item".to_owned())),
            found => Ok(found),
        }
    }

    fn manifest(&self) -> DataManifest {
        self.inner.manifest()
    }
}

#[test]
fn the_suite_notices_a_careless_store() {
    let results = conformance::data_store(&|dir, access| {
        let inner = SqliteDataStore::new(dir.join("data.db"), access);
        Some(Box::new(Careless { inner }))
    });
    let failed: Vec<&str> = (results.iter())
        .filter(|result| result.outcome.is_err())
        .map(|result| result.statement)
        .collect();
    for statement in [
        "get_of_nothing_is_none",
        "an_unsupported_mode_fails_clearly",
        "an_undeclared_filter_is_an_error_that_names_it",
        "no_declared_filter_is_ignored",
        "several_tags_mean_any_of_them",
        "no_expiry_means_for_ever",
        "the_limit_is_respected",
    ] {
        assert!(
            failed.contains(&statement),
            "{statement} passed; failed: {failed:?}"
        );
    }
    assert_eq!(
        (results.len(), conformance::data_statement("no such", &sqlite)),
        (20, None)
    );
}
