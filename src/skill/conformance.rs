//! The conformance suite of [`SkillStore`]: one case per statement of the contract.
//!
//! ```no_run
//! use hermes_relay::skill::{ApprovalMode, conformance};
//!
//! let results = conformance::skill_store(&|dir, mode| {
//!     Some(Box::new(hermes_relay::SqliteSkillStore::new(dir.join("skills.db"), mode)))
//! });
//! for result in &results {
//!     println!("{} {:?}", result.statement, result.outcome);
//! }
//! assert!(results.iter().all(|result| result.outcome.is_ok()));
//! ```

use std::path::Path;

use super::body::hex_sha256;
use super::{
    ApprovalMode, SkillDetails, SkillError, SkillErrorReason, SkillFilter, SkillStatus, SkillStore,
    SkillVersion, SkillWrite,
};

/// Opens the store that belongs to a directory; with the same directory again, it holds what was written. `None`: the store
/// cannot be opened in this mode.
pub type MakeSkillStore<'m> = &'m dyn Fn(&Path, ApprovalMode) -> Option<Box<dyn SkillStore>>;

/// What became of one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillStatement {
    /// The statement's name.
    pub statement: &'static str,
    /// Whether it holds; else why not.
    pub outcome: Result<(), String>,
}

/// Runs every case, each on a store of its own.
pub fn skill_store(make: MakeSkillStore<'_>) -> Vec<SkillStatement> {
    let run = |(statement, case): &(&'static str, SkillCase)| SkillStatement {
        statement,
        outcome: check(make, *case),
    };
    STATEMENTS.iter().map(run).collect()
}

/// Runs one case by its name; `None` if there is none.
pub fn skill_statement(statement: &str, make: MakeSkillStore<'_>) -> Option<Result<(), String>> {
    let (_, case) = STATEMENTS.iter().find(|(name, _)| *name == statement)?;
    Some(check(make, *case))
}

/// The names of all statements, in the contract's order.
pub fn skill_statements() -> Vec<&'static str> {
    STATEMENTS.iter().map(|(name, _)| *name).collect()
}

type SkillCase = fn(&SkillSuite<'_>) -> Result<(), String>;

struct SkillSuite<'m> {
    make: MakeSkillStore<'m>,
    dir: tempfile::TempDir,
    store: Box<dyn SkillStore>,
}

fn check(make: MakeSkillStore<'_>, case: SkillCase) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let store = make(dir.path(), ApprovalMode::Unsecured).ok_or("the store cannot be opened")?;
    case(&SkillSuite { make, dir, store })
}

/// Fails the case unless this holds.
fn holds(what: &str, is_so: bool) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
fn said(error: SkillError) -> String {
    let name = error.name();
    format!("{name}: {error}")
}

fn is_missing<T>(result: Result<T, SkillError>) -> bool {
    matches!(result, Err(error) if matches!(error.reason, SkillErrorReason::NotFound(_)))
}

fn by(author: &str) -> SkillWrite {
    SkillWrite {
        author: Some(author.to_owned()),
        ..SkillWrite::default()
    }
}

fn tagged(tags: &[&str]) -> SkillWrite {
    SkillWrite {
        details: SkillDetails {
            tags: Some(tags.iter().map(|tag| (*tag).to_owned()).collect()),
            ..SkillDetails::default()
        },
        ..SkillWrite::default()
    }
}

const BODY: &str = "# Status: Draft\n# Description: Sort the mail\n\nRead it, then sort it. Ärger\r\n";

impl SkillSuite<'_> {
    fn add(&self, name: &str, source: &str) -> Result<SkillVersion, String> {
        self.put(name, source, &SkillWrite::default())
    }

    fn put(&self, name: &str, source: &str, write: &SkillWrite) -> Result<SkillVersion, String> {
        self.store.store(name, source, write).map_err(said)
    }

    fn names(&self, filter: &SkillFilter) -> Result<Vec<String>, String> {
        let found = self.store.query(filter).map_err(said)?;
        Ok(found.into_iter().map(|skill| skill.name).collect())
    }

    fn token(&self) -> Result<Option<String>, String> {
        self.store.version().map_err(said)
    }
}

const STATEMENTS: &[(&str, SkillCase)] = &[
    ("eight_required_methods_exist", |suite| {
        // The trait has them; here each is called once.
        let store = &suite.store;
        suite.add("a", BODY)?;
        store.load("a", None).map_err(said)?;
        store.query(&SkillFilter::default()).map_err(said)?;
        store.metadata("a").map_err(said)?;
        store.versions("a").map_err(said)?;
        store.update_status("a", SkillStatus::Disabled).map_err(said)?;
        store.delete("a").map_err(said)?;
        let manifest = store.manifest();
        let parts: Vec<&str> = manifest.capabilities_version.split('.').collect();
        let is_version = parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok());
        holds(
            "the manifest names kind and version",
            is_version && !manifest.kind.is_empty(),
        )
    }),
    ("query_on_an_empty_store_gives_an_empty_list", |suite| {
        holds("it is empty", suite.names(&SkillFilter::default())?.is_empty())
    }),
    ("query_never_fails_for_none", |suite| {
        suite.add("a", BODY)?;
        let filter = SkillFilter {
            name_pattern: Some("no-such-*".to_owned()),
            ..SkillFilter::default()
        };
        holds("nothing is found", suite.names(&filter)?.is_empty())
    }),
    ("a_missing_name_is_skill_not_found", |suite| {
        let store = &suite.store;
        for name in ["missing", "../missing", ""] {
            holds("load", is_missing(store.load(name, None)))?;
            holds(
                "load of a version",
                is_missing(store.load(name, Some("0123456789ab"))),
            )?;
            holds("metadata", is_missing(store.metadata(name)))?;
            holds("versions", is_missing(store.versions(name)))?;
            holds(
                "update_status",
                is_missing(store.update_status(name, SkillStatus::Disabled)),
            )?;
            holds("delete", is_missing(store.delete(name)))?;
        }
        Ok(())
    }),
    ("an_unknown_version_of_a_skill_is_version_not_found", |suite| {
        suite.add("a", BODY)?;
        let refused = suite.store.load("a", Some("000000000000"));
        let is_so =
            matches!(refused, Err(error) if matches!(error.reason, SkillErrorReason::VersionNotFound { .. }));
        holds("it is VersionNotFoundError", is_so)
    }),
    ("the_bytes_of_a_draft_come_back", |suite| {
        for (name, body) in [
            ("a", BODY),
            ("b", "no header"),
            ("c", "---\nname: c\n---\n\ttext\n\n"),
        ] {
            suite.add(name, body)?;
            let skill = suite.store.load(name, None).map_err(said)?;
            holds(
                name,
                skill.source == body && skill.metadata.status == SkillStatus::Draft,
            )?;
        }
        Ok(())
    }),
    ("content_hash_is_the_sha256_of_the_persisted_bytes", |suite| {
        let stored = suite.add("a", BODY)?;
        holds("of a new text", stored.content_hash == hex_sha256(BODY))?;
        suite
            .store
            .update_status("a", SkillStatus::Approved)
            .map_err(said)?;
        let skill = suite.store.load("a", None).map_err(said)?;
        let is_so =
            skill.content_hash == hex_sha256(&skill.source) && skill.content_hash != stored.content_hash;
        holds("of a text with a new status line", is_so)
    }),
    ("version_is_the_first_12_hex_digits", |suite| {
        let stored = suite.add("a", BODY)?;
        let meta = suite.store.metadata("a").map_err(said)?;
        let is_so = stored.version == stored.content_hash[..12] && meta.version == stored.version;
        holds("it is", is_so)
    }),
    ("the_same_body_in_two_stores_has_the_same_hash", |suite| {
        let other = suite.dir.path().join("other");
        let other = (suite.make)(&other, ApprovalMode::Unsecured).ok_or("the store cannot be opened")?;
        let first = suite.add("a", BODY)?;
        let second = other.store("b", BODY, &SkillWrite::default()).map_err(said)?;
        holds("a text", first.content_hash == second.content_hash)?;
        // The reference: what every store persists for this text and status.
        let approved = suite
            .store
            .update_status("a", SkillStatus::Approved)
            .map_err(said)?;
        let expected = BODY.replace("# Status: Draft", "# Status: Approved");
        holds(
            "with another status",
            approved.content_hash == hex_sha256(&expected),
        )
    }),
    ("changed_at_is_in_seconds", |suite| {
        let stored = suite.add("a", BODY)?;
        let meta = suite.store.metadata("a").map_err(said)?;
        // Between 2020 and 2100.
        let plausible = 1_577_836_800..4_102_444_800;
        let times = [stored.changed_at, meta.created_at, meta.updated_at];
        holds("all times are", times.iter().all(|time| plausible.contains(time)))
    }),
    ("update_status_fills_previous_status", |suite| {
        if !suite.store.manifest().features.supports_audit_trail {
            return Ok(());
        }
        suite.add("a", BODY)?;
        let changed = suite
            .store
            .update_status("a", SkillStatus::Approved)
            .map_err(said)?;
        holds(
            "in the answer",
            changed.previous_status == Some(SkillStatus::Draft),
        )?;
        holds("and the new one", changed.status == SkillStatus::Approved)?;
        let history = suite.store.versions("a").map_err(said)?;
        let pairs: Vec<_> = history
            .iter()
            .map(|entry| (entry.previous_status, entry.status))
            .collect();
        let expected = [
            (None, SkillStatus::Draft),
            (Some(SkillStatus::Draft), SkillStatus::Approved),
        ];
        holds("in the history", pairs == expected)
    }),
    ("the_status_filter_takes_one_or_many", |suite| {
        for (name, status) in [
            ("a", SkillStatus::Draft),
            ("b", SkillStatus::Approved),
            ("c", SkillStatus::Disabled),
        ] {
            suite.add(name, &format!("# Status: {status}\nx"))?;
        }
        let only = |status: &[SkillStatus]| SkillFilter {
            status: status.to_vec(),
            ..SkillFilter::default()
        };
        holds("one", suite.names(&only(&[SkillStatus::Approved]))? == ["b"])?;
        let many = only(&[SkillStatus::Draft, SkillStatus::Disabled]);
        holds("many", suite.names(&many)? == ["a", "c"])
    }),
    ("an_invalid_status_is_refused_before_any_write", |suite| {
        let refused = suite
            .store
            .store("a", "# Status: Published\nx", &SkillWrite::default());
        holds("it is refused", refused.is_err())?;
        holds("nothing was written", is_missing(suite.store.metadata("a")))?;
        holds("the word is none", "Published".parse::<SkillStatus>().is_err())?;
        suite.add("b", BODY)?;
        let again = suite.store.store("b", "# Status: yes\nx", &SkillWrite::default());
        let kept = suite.store.load("b", None).map_err(said)?.source == BODY;
        holds("an existing text stays", again.is_err() && kept)
    }),
    ("store_neither_grants_nor_checks_approval", |suite| {
        let draft = suite.add("a", "no status")?;
        holds(
            "a text without a status is a Draft",
            draft.status == SkillStatus::Draft,
        )?;
        let approved = "# Status: Approved\nx";
        let stored = suite.add("a", approved)?;
        holds("a bare Approved is kept", stored.status == SkillStatus::Approved)?;
        let kept = suite.store.load("a", None).map_err(said)?;
        holds("as it was written", kept.source == approved)?;
        let again = suite.add("a", "another text")?;
        holds(
            "a new text does not inherit it",
            again.status == SkillStatus::Draft,
        )
    }),
    ("secured_mode_never_approves_without_a_signature", |suite| {
        let dir = suite.dir.path().join("secured");
        let Some(store) = (suite.make)(&dir, ApprovalMode::Secured) else {
            return Ok(());
        };
        let stored = store
            .store("a", "# Status: Approved\nx", &SkillWrite::default())
            .map_err(said)?;
        holds(
            "a bare Approved becomes a Draft",
            stored.status == SkillStatus::Draft,
        )?;
        let write = SkillWrite {
            status: Some(SkillStatus::Approved),
            ..SkillWrite::default()
        };
        let stored = store.store("b", "x", &write).map_err(said)?;
        holds("so does one beside the text", stored.status == SkillStatus::Draft)?;
        let refused = store.update_status("a", SkillStatus::Approved);
        holds("a change of the status is refused", refused.is_err())?;
        let status = store.metadata("a").map_err(said)?.status;
        holds("and changes nothing", status == SkillStatus::Draft)
    }),
    ("the_author_is_locked_at_first_write", |suite| {
        suite.put("a", BODY, &by("ada"))?;
        let refused = suite.store.store("a", "other", &by("bob"));
        let is_conflict =
            matches!(refused, Err(error) if matches!(error.reason, SkillErrorReason::Conflict(_)));
        holds("another author is a StorageConflictError", is_conflict)?;
        let kept = suite.store.load("a", None).map_err(said)?;
        holds("and nothing is written", kept.source == BODY)?;
        suite.put("a", "mine", &by("ada"))?;
        suite.add("a", "no name")?;
        let author = suite.store.metadata("a").map_err(said)?.author;
        holds("the author stays", author.as_deref() == Some("ada"))
    }),
    ("an_absent_author_stays_absent", |suite| {
        suite.add("a", BODY)?;
        holds(
            "it is none",
            suite.store.metadata("a").map_err(said)?.author.is_none(),
        )
    }),
    ("the_author_filter_narrows_further", |suite| {
        suite.put("a", "# Status: Approved\nx", &by("ada"))?;
        suite.put("b", "x", &by("ada"))?;
        suite.put("c", "# Status: Approved\nx", &by("bob"))?;
        suite.add("d", "# Status: Approved\nx")?;
        let filter = |author: &str, status: Vec<SkillStatus>| SkillFilter {
            author: Some(author.to_owned()),
            status,
            ..SkillFilter::default()
        };
        let approved = vec![SkillStatus::Approved];
        holds("both hold", suite.names(&filter("ada", approved))? == ["a"])?;
        holds(
            "no match is empty",
            suite.names(&filter("eve", Vec::new()))?.is_empty(),
        )
    }),
    ("delete_removes_a_skill_from_every_view", |suite| {
        suite.add("a", BODY)?;
        suite
            .store
            .update_status("a", SkillStatus::Approved)
            .map_err(said)?;
        suite.store.delete("a").map_err(said)?;
        let store = &suite.store;
        holds("query", suite.names(&SkillFilter::default())?.is_empty())?;
        holds("load", is_missing(store.load("a", None)))?;
        holds("metadata", is_missing(store.metadata("a")))?;
        holds("versions", is_missing(store.versions("a")))
    }),
    ("a_deleted_name_is_free_with_a_clean_history", |suite| {
        suite.put("a", BODY, &by("ada"))?;
        suite.store.delete("a").map_err(said)?;
        suite.put("a", "new", &by("bob"))?;
        let history = suite.store.versions("a").map_err(said)?;
        holds(
            "one entry",
            history.len() == 1 && history[0].previous_status.is_none(),
        )?;
        let author = suite.store.metadata("a").map_err(said)?.author;
        holds("and another author", author.as_deref() == Some("bob"))
    }),
    ("the_catalog_version_changes_with_every_change", |suite| {
        let Some(first) = suite.token()? else {
            return Ok(());
        };
        let mut seen = vec![first];
        let mut moved = |what: &str| {
            let token = suite.token()?.unwrap_or_default();
            let is_new = !seen.contains(&token);
            seen.push(token);
            holds(what, is_new)
        };
        suite.add("a", "one")?;
        moved("a new skill")?;
        suite.add("b", "two")?;
        moved("another one")?;
        suite.add("a", "ONE")?;
        moved("a text of the same length and status")?;
        suite
            .store
            .update_status("a", SkillStatus::Approved)
            .map_err(said)?;
        moved("a status")?;
        suite.add("a", "# Status: Approved\nAgain")?;
        moved("a text with the same status")?;
        suite.put("b", "two", &tagged(&["x"]))?;
        moved("a tag")?;
        suite.store.delete("b").map_err(said)?;
        moved("a deletion")
    }),
    ("the_catalog_version_stays_when_nothing_changes", |suite| {
        let Some(empty) = suite.token()? else {
            return Ok(());
        };
        holds("of an empty store", suite.token()? == Some(empty))?;
        suite.add("a", BODY)?;
        let token = suite.token()?;
        suite.store.load("a", None).map_err(said)?;
        suite.names(&SkillFilter::default())?;
        suite.store.versions("a").map_err(said)?;
        holds("after reading", suite.token()? == token)?;
        suite.add("a", BODY)?;
        holds("after storing the same", suite.token()? == token)
    }),
    ("the_catalog_version_loads_no_texts", |suite| {
        // From outside only its cost can be seen: a token of large texts takes a small part of the time of reading them.
        let body = "x".repeat(super::MAX_BODY_BYTES);
        for at in 0..8 {
            suite.add(&format!("a{at}"), &body)?;
        }
        let Some(_) = suite.token()? else { return Ok(()) };
        let fastest = |read: &dyn Fn() -> Result<(), String>| {
            let mut best = std::time::Duration::MAX;
            for _ in 0..5 {
                let since = std::time::Instant::now();
                read()?;
                best = best.min(since.elapsed());
            }
            Ok::<_, String>(best)
        };
        let token = fastest(&|| suite.token().map(drop))?;
        let texts = fastest(&|| {
            let load = |at| suite.store.load(&format!("a{at}"), None);
            (0..8).try_for_each(|at| load(at).map(drop).map_err(said))
        })?;
        holds("it is cheaper than the texts", token * 2 < texts)
    }),
    ("errors_name_the_contract_and_the_store", |suite| {
        let Err(error) = suite.store.load("missing", None) else {
            return Err("a missing skill was loaded".to_owned());
        };
        let is_named = error.implementation == suite.store.manifest().implementation;
        let has_type = error.connector_type() == "skill_store" && error.name() == "SkillNotFoundError";
        holds(
            "they do",
            is_named && has_type && !error.implementation.is_empty(),
        )
    }),
    ("tags_must_all_match", |suite| {
        if !suite.store.manifest().features.supports_tag_filter {
            return Ok(());
        }
        suite.put("a", "x", &tagged(&["red", "blue"]))?;
        suite.put("b", "x", &tagged(&["red"]))?;
        suite.add("c", "# Tags: red, blue\nx")?;
        suite.add("d", "x")?;
        let filter = |tags: &[&str]| SkillFilter {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..SkillFilter::default()
        };
        holds("one", suite.names(&filter(&["red"]))? == ["a", "b", "c"])?;
        holds("two", suite.names(&filter(&["blue", "red"]))? == ["a", "c"])
    }),
    ("the_offset_comes_before_the_limit", |suite| {
        for name in ["a", "b", "c", "d"] {
            suite.add(name, "x")?;
        }
        let page = |offset, limit| SkillFilter {
            limit,
            offset,
            ..SkillFilter::default()
        };
        holds("a page", suite.names(&page(1, Some(2)))? == ["b", "c"])?;
        holds("the rest", suite.names(&page(3, None))? == ["d"])?;
        holds("beyond the end", suite.names(&page(9, Some(2)))?.is_empty())?;
        holds("a limit of none", suite.names(&page(0, Some(0)))?.is_empty())
    }),
    ("writes_survive_a_restart", |suite| {
        suite.put("a", BODY, &by("ada"))?;
        suite
            .store
            .update_status("a", SkillStatus::Approved)
            .map_err(said)?;
        let before = suite.store.load("a", None).map_err(said)?;
        let again =
            (suite.make)(suite.dir.path(), ApprovalMode::Unsecured).ok_or("the store cannot be opened")?;
        let after = again.load("a", None).map_err(said)?;
        let history = again.versions("a").map_err(said)?;
        holds("the skill", before == after)?;
        let token = again.version().map_err(said)?;
        holds(
            "its history and the token",
            history.len() == 2 && token == suite.token()?,
        )
    }),
];
