//! The conformance suite of [`DataStore`]: one case per statement of the contract.
//!
//! ```no_run
//! use hermes_relay::data::conformance;
//!
//! let results = conformance::data_store(&|dir, access| {
//!     Some(Box::new(hermes_relay::SqliteDataStore::new(dir.join("data.db"), access)))
//! });
//! assert!(results.iter().all(|result| result.outcome.is_ok()), "{results:?}");
//! ```

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{
    CURATED, DataAccess, DataError, DataStore, DataWrite, DataWritten, Expiry, MAX_SUMMARY_CHARS,
    PortableData, QueryFilters,
};

/// Opens the store that belongs to a directory; with the same directory again, it holds what was written. `None`: the store
/// cannot be opened with this access.
pub type MakeDataStore<'m> = &'m dyn Fn(&Path, DataAccess) -> Option<Box<dyn DataStore>>;

/// What became of one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataStatement {
    /// The statement's name.
    pub statement: &'static str,
    /// Whether it holds; else why not.
    pub outcome: Result<(), String>,
}

/// Runs every case, each on a store of its own.
pub fn data_store(make: MakeDataStore<'_>) -> Vec<DataStatement> {
    let run = |(statement, case): &(&'static str, DataCase)| DataStatement {
        statement,
        outcome: check(make, *case),
    };
    STATEMENTS.iter().map(run).collect()
}

/// Runs one case by its name; `None` if there is none.
pub fn data_statement(statement: &str, make: MakeDataStore<'_>) -> Option<Result<(), String>> {
    let (_, case) = STATEMENTS.iter().find(|(name, _)| *name == statement)?;
    Some(check(make, *case))
}

/// The names of all statements, in the contract's order.
pub fn data_statements() -> Vec<&'static str> {
    STATEMENTS.iter().map(|(name, _)| *name).collect()
}

type DataCase = fn(&DataSuite<'_>) -> Result<(), String>;

struct DataSuite<'m> {
    make: MakeDataStore<'m>,
    dir: tempfile::TempDir,
    store: Box<dyn DataStore>,
}

fn check(make: MakeDataStore<'_>, case: DataCase) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let store = make(dir.path(), DataAccess::ReadWrite).ok_or("the store cannot be opened")?;
    case(&DataSuite { make, dir, store })
}

/// Fails the case unless this holds.
fn holds(what: &str, is_so: bool) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
fn said(error: DataError) -> String {
    let name = error.name();
    format!("{name}: {error}")
}

fn text(content: &str) -> DataWrite {
    DataWrite {
        content: content.to_owned(),
        ..DataWrite::default()
    }
}

fn words(query: &str) -> QueryFilters {
    QueryFilters {
        query: query.to_owned(),
        ..QueryFilters::default()
    }
}

fn filtered(query: &str, key: &str, value: Value) -> QueryFilters {
    QueryFilters {
        filters: Map::from_iter([(key.to_owned(), value)]),
        ..words(query)
    }
}

impl DataSuite<'_> {
    fn put(&self, write: &DataWrite) -> Result<DataWritten, String> {
        self.store.write(write).map_err(said)
    }

    fn found(&self, filters: &QueryFilters) -> Result<Vec<PortableData>, String> {
        self.store.query(filters).map_err(said)
    }

    fn ids(&self, filters: &QueryFilters) -> Result<Vec<String>, String> {
        Ok(self.found(filters)?.into_iter().map(|item| item.id).collect())
    }

    fn get(&self, id: &str) -> Result<PortableData, String> {
        let item = self.store.get(id).map_err(said)?;
        item.ok_or_else(|| "what was written is gone".to_owned())
    }
}

const STATEMENTS: &[(&str, DataCase)] = &[
    ("query_always_gives_a_list", |suite| {
        holds("of an empty store", suite.found(&words("nothing"))?.is_empty())?;
        suite.put(&text("something"))?;
        holds("without a match", suite.found(&words("nothing"))?.is_empty())?;
        // Nothing in a query is syntax, so nothing in it can fail.
        for odd in [
            "\"",
            "*",
            "a OR",
            "NEAR(",
            "content:x",
            "-x",
            "raw:x OR y",
            "()",
            "^",
            "a\0b",
            "%_",
        ] {
            suite
                .found(&words(odd))
                .map_err(|why| format!("{odd:?}: {why}"))?;
        }
        holds(
            "an operator is a word",
            suite.found(&words("nothing OR something"))?.is_empty(),
        )
    }),
    ("get_of_nothing_is_none", |suite| {
        for id in ["missing", "", "../x", "\0"] {
            holds(id, suite.store.get(id).map_err(said)?.is_none())?;
        }
        Ok(())
    }),
    ("every_item_has_an_id_and_a_summary", |suite| {
        suite.put(&text("a word"))?;
        suite.put(&text("\n\nword after empty lines"))?;
        let found = suite.found(&words("word"))?;
        let has = |item: &PortableData| !item.id.is_empty() && !item.summary.is_empty();
        holds("both do", found.len() == 2 && found.iter().all(has))
    }),
    ("write_gives_an_id_and_seconds", |suite| {
        let first = suite.put(&text("one"))?;
        let second = suite.put(&text("one"))?;
        holds("ids differ", !first.id.is_empty() && first.id != second.id)?;
        // Between 2020 and 2100.
        holds(
            "seconds",
            (1_577_836_800..4_102_444_800).contains(&first.created_at),
        )
    }),
    ("written_content_is_found_by_get", |suite| {
        let written = suite.put(&text("Ärger\r\nzwei"))?;
        let item = suite.get(&written.id)?;
        let is_so = item.id == written.id && item.created_at == Some(written.created_at);
        holds("it is", is_so && item.detail.as_deref() == Some("Ärger\r\nzwei"))
    }),
    ("the_summary_is_the_first_line_and_short", |suite| {
        let written = suite.put(&text("first line\nsecond"))?;
        holds("the first line", suite.get(&written.id)?.summary == "first line")?;
        let long = suite.put(&text(&"ä".repeat(500)))?;
        let summary = suite.get(&long.id)?.summary;
        holds(
            "cut",
            summary.chars().count() <= MAX_SUMMARY_CHARS && summary.ends_with("..."),
        )
    }),
    ("the_detail_is_the_whole_content", |suite| {
        let content = format!("word {}\n\tend  \n", "ä".repeat(500));
        let written = suite.put(&text(&content))?;
        holds(
            "of get",
            suite.get(&written.id)?.detail.as_ref() == Some(&content),
        )?;
        let found = suite.found(&words("word"))?;
        holds(
            "of query",
            found.len() == 1 && found[0].detail.as_ref() == Some(&content),
        )
    }),
    ("an_unsupported_mode_fails_clearly", |suite| {
        let mode = "no-such-mode".to_owned();
        let filters = QueryFilters { mode, ..words("x") };
        match suite.store.query(&filters) {
            Err(error @ DataError::UnsupportedMode { .. }) => {
                holds("it names the mode", error.to_string().contains("no-such-mode"))
            }
            other => Err(format!("it was {other:?}")),
        }
    }),
    ("declared_modes_work", |suite| {
        let written = suite.put(&text("the needle here"))?;
        let modes = suite.store.manifest().supported_modes;
        holds("there is one", !modes.is_empty())?;
        for mode in modes {
            let filters = QueryFilters {
                mode: mode.clone(),
                ..words("needle")
            };
            holds(&mode, suite.ids(&filters)? == [written.id.as_str()])?;
        }
        Ok(())
    }),
    (
        "an_undeclared_filter_is_an_error_that_names_it",
        |suite| match suite.store.query(&filtered("x", "no_such_filter", json!("x"))) {
            Err(DataError::UnsupportedFilter {
                unsupported_keys,
                supported_keys,
                substrate,
            }) => {
                let manifest = suite.store.manifest();
                holds("the key", unsupported_keys == ["no_such_filter"])?;
                let is_known = supported_keys == manifest.supported_filters && substrate == manifest.kind;
                holds("what there is", is_known)
            }
            other => Err(format!("it was {other:?}")),
        },
    ),
    ("permissive_filters_lets_it_pass", |suite| {
        let written = suite.put(&text("needle"))?;
        let filters = QueryFilters {
            permissive_filters: true,
            ..filtered("needle", "no_such_filter", json!("x"))
        };
        holds("it does", suite.ids(&filters)? == [written.id.as_str()])
    }),
    ("base_keys_are_never_refused", |suite| {
        for key in ["query", "limit", "mode", "permissive_filters"] {
            let found = suite.store.query(&filtered("x", key, json!("x")));
            holds(key, !matches!(found, Err(DataError::UnsupportedFilter { .. })))?;
        }
        Ok(())
    }),
    ("every_applied_filter_is_declared", |suite| {
        suite.put(&text("needle"))?;
        let declared = suite.store.manifest().supported_filters;
        for key in CURATED
            .into_iter()
            .chain(["tags", "id", "summary", "detail", "metadata"])
        {
            if !declared.iter().any(|known| known == key) {
                let refused = suite.store.query(&filtered("needle", key, json!("x")));
                holds(key, matches!(refused, Err(DataError::UnsupportedFilter { .. })))?;
            }
        }
        Ok(())
    }),
    ("no_declared_filter_is_ignored", |suite| {
        suite.put(&text("needle"))?;
        for key in suite.store.manifest().supported_filters {
            for query in ["needle", ""] {
                let found = suite.found(&filtered(query, &key, json!("no such value")))?;
                holds(&key, found.is_empty())?;
            }
        }
        Ok(())
    }),
    ("several_tags_mean_any_of_them", |suite| {
        if !suite.store.manifest().features.supports_tag_filter {
            return Ok(());
        }
        let tagged = |tags: &[&str]| DataWrite {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..text("needle")
        };
        let red = suite.put(&tagged(&["red", "warm"]))?.id;
        let blue = suite.put(&tagged(&["blue"]))?.id;
        suite.put(&tagged(&["green"]))?;
        suite.put(&tagged(&[]))?;
        let mut any = suite.ids(&filtered("needle", "tags", json!(["red", "blue", "black"])))?;
        any.sort();
        let mut expected = [red.clone(), blue];
        expected.sort();
        holds("any of them", any == expected)?;
        holds(
            "one",
            suite.ids(&filtered("needle", "tags", json!("warm")))? == [red],
        )?;
        holds(
            "exactly",
            suite.ids(&filtered("needle", "tags", json!("re")))?.is_empty(),
        )
    }),
    ("curated_fields_are_at_the_top_only", |suite| {
        let metadata = json!({
            "thread_status": "open", "pinned": true, "confidence": 0.5, "payload_type": "note",
            "knowledge_type": "fact", "agent_id": "a1", "vault": "home", "colour": "red",
        });
        let Value::Object(metadata) = metadata else {
            return Ok(());
        };
        let write = DataWrite {
            metadata,
            tags: vec!["t".to_owned()],
            recipients: vec!["r".to_owned()],
            ..text("needle")
        };
        let written = suite.put(&write)?;
        let item = suite.get(&written.id)?;
        let rest = item.metadata.clone().unwrap_or_default();
        holds(
            "none is in the metadata",
            CURATED.iter().all(|key| !rest.contains_key(*key)),
        )?;
        holds("the rest is", rest.get("colour") == Some(&json!("red")))?;
        let top = serde_json::to_value(&item).map_err(|error| error.to_string())?;
        let all = CURATED.iter().filter(|key| **key != "expires_at");
        let missing: Vec<_> = all.filter(|key| top[**key].is_null()).collect();
        holds(&format!("all are at the top: {missing:?}"), missing.is_empty())
    }),
    ("no_expiry_means_for_ever", |suite| {
        for expires_at in [Expiry::Never, Expiry::StoreDefault] {
            let written = suite.put(&DataWrite {
                expires_at,
                ..text("kept")
            })?;
            holds("it has none", suite.get(&written.id)?.expires_at.is_none())?;
        }
        let gone = suite.put(&DataWrite {
            expires_at: Expiry::At(1),
            ..text("gone")
        })?;
        holds(
            "what has expired is gone",
            suite.store.get(&gone.id).map_err(said)?.is_none(),
        )?;
        holds("and not found", suite.found(&words("gone"))?.is_empty())?;
        let later = suite.put(&DataWrite {
            expires_at: Expiry::At(4_102_444_800),
            ..text("later")
        })?;
        holds(
            "a later time is kept",
            suite.get(&later.id)?.expires_at == Some(4_102_444_800),
        )
    }),
    ("a_read_only_store_says_so_and_fails_to_write", |suite| {
        let written = suite.put(&text("needle"))?;
        let features = suite.store.manifest().features;
        holds("one that writes says so", features.supports_writes)?;
        let Some(store) = (suite.make)(suite.dir.path(), DataAccess::ReadOnly) else {
            return Ok(());
        };
        holds(
            "supports_writes is false",
            !store.manifest().features.supports_writes,
        )?;
        let refused = store.write(&text("more"));
        holds("write fails", matches!(refused, Err(DataError::ReadOnly(_))))?;
        holds("get works", store.get(&written.id).map_err(said)?.is_some())
    }),
    ("the_limit_is_respected", |suite| {
        for at in 0..5 {
            suite.put(&text(&format!("needle {at}")))?;
        }
        let page = |offset, limit| QueryFilters {
            limit,
            offset,
            ..words("needle")
        };
        let all = suite.ids(&page(0, 10))?;
        holds("all", all.len() == 5)?;
        holds("a page", suite.ids(&page(1, 2))? == all[1..3])?;
        holds("none", suite.ids(&page(0, 0))?.is_empty())?;
        holds("beyond the end", suite.ids(&page(9, 2))?.is_empty())
    }),
    ("writes_survive_a_restart", |suite| {
        let written = suite.put(&DataWrite {
            tags: vec!["t".to_owned()],
            ..text("needle")
        })?;
        let before = suite.get(&written.id)?;
        let again =
            (suite.make)(suite.dir.path(), DataAccess::ReadWrite).ok_or("the store cannot be opened")?;
        holds("get", again.get(&written.id).map_err(said)? == Some(before))?;
        holds("query", again.query(&words("needle")).map_err(said)?.len() == 1)
    }),
];
