//! Skills as files that somebody else has touched, and two writers at the same time.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use hermes_relay::skill::{
    ApprovalMode, MAX_BODY_BYTES, MAX_SKILLS, MAX_VERSIONS, SkillError, SkillErrorReason, SkillFilter,
    SkillStatus, SkillStore, SkillWrite,
};
use hermes_relay::{FileSkillStore, SqliteSkillStore};

type MakeStore = fn(&Path) -> Box<dyn SkillStore>;

fn files(dir: &Path) -> FileSkillStore {
    FileSkillStore::new(dir, ApprovalMode::Unsecured)
}

fn write() -> SkillWrite {
    SkillWrite::default()
}

fn is_unavailable<T>(result: &Result<T, SkillError>) -> bool {
    matches!(result, Err(error) if matches!(error.reason, SkillErrorReason::Unavailable(_)))
}

fn names(store: &dyn SkillStore) -> Vec<String> {
    let found = store.query(&SkillFilter::default()).unwrap();
    found.into_iter().map(|skill| skill.name).collect()
}

#[test]
fn a_name_never_leaves_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    let database = dir.path().join("x.db");
    let stores: [Box<dyn SkillStore>; 2] = [
        Box::new(files(&inner)),
        Box::new(SqliteSkillStore::new(database, ApprovalMode::Unsecured)),
    ];
    for store in &stores {
        for name in [
            "../out",
            "/etc/x",
            "a/b",
            ".hidden",
            "..",
            "",
            "a\0b",
            "a\nb",
            &"n".repeat(129),
        ] {
            let refused = store.store(name, "x", &write()).unwrap_err();
            assert!(
                matches!(refused.reason, SkillErrorReason::Lint(_)),
                "{name:?}: {refused}"
            );
        }
    }
    assert!(!inner.exists() && !dir.path().join("out.skill.md").exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let store = files(&dir.path().join("skills"));
    store.store("a", "mine", &write()).unwrap();
    let target = dir.path().join("target");
    fs::write(&target, "theirs").unwrap();
    let text = dir.path().join("skills/b.skill.md");
    symlink(&target, &text).unwrap();
    assert_eq!(names(&store), ["a"], "a link is no skill");
    assert!(is_unavailable(&store.load("b", None)));
    assert!(is_unavailable(&store.store("b", "x", &write())));
    let history = dir.path().join("skills/a.versions.jsonl");
    fs::remove_file(&history).unwrap();
    symlink(&target, &history).unwrap();
    assert!(is_unavailable(&store.store("a", "new", &write())));
    assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
}

#[test]
fn what_is_no_text_is_not_listed_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let store = files(dir.path());
    store.store("good", "x", &write()).unwrap();
    fs::write(dir.path().join("bytes.skill.md"), b"\xff\xfe").unwrap();
    fs::write(dir.path().join("huge.skill.md"), "x".repeat(MAX_BODY_BYTES + 1)).unwrap();
    fs::create_dir(dir.path().join("folder.skill.md")).unwrap();
    fs::write(dir.path().join("bad name.skill.md"), "x").unwrap();
    assert_eq!(names(&store), ["good"]);
    for (name, why) in [
        ("bytes", "UTF-8"),
        ("huge", "1024 KiB"),
        ("folder", "regular file"),
    ] {
        let error = store.load(name, None).unwrap_err();
        assert!(is_unavailable(&Err::<(), _>(error.clone())), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn torn_lines_of_the_history_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = files(dir.path());
    let author = SkillWrite {
        author: Some("ada".to_owned()),
        ..write()
    };
    store.store("a", "one", &author).unwrap();
    let path = dir.path().join("a.versions.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("rubbish\n\u{0}\n{whole}{{\"name\":\"a\",\"ver")).unwrap();
    assert_eq!(store.versions("a").unwrap().len(), 1);
    store.store("a", "two", &write()).unwrap();
    let history = store.versions("a").unwrap();
    assert_eq!(
        history.len(),
        2,
        "the torn line did not swallow the next: {history:?}"
    );
    assert_eq!(store.metadata("a").unwrap().author.as_deref(), Some("ada"));
    fs::remove_file(&path).unwrap();
    assert_eq!(
        store.versions("a").unwrap().len(),
        1,
        "the text itself is a version"
    );
}

#[test]
fn an_edit_by_hand_is_a_new_version() {
    let dir = tempfile::tempdir().unwrap();
    let store = files(dir.path());
    store.store("a", "# Status: Approved\none", &write()).unwrap();
    let (before, token) = (store.metadata("a").unwrap(), store.version().unwrap());
    fs::write(dir.path().join("a.skill.md"), "# Tags: t\ntwo").unwrap();
    let after = store.metadata("a").unwrap();
    assert_ne!(
        (&after.version, &store.version().unwrap()),
        (&before.version, &token)
    );
    assert_eq!(after.status, SkillStatus::Draft, "no status is no approval");
    assert_eq!(after.details.tags.as_deref(), Some(&["t".to_owned()][..]));
    let last = store.versions("a").unwrap().pop().unwrap();
    assert_eq!(
        (last.version, last.previous_status),
        (after.version, Some(SkillStatus::Approved))
    );
}

#[test]
fn files_are_for_their_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("skills");
    files(&inner).store("a", "x", &write()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&inner), 0o700);
    for entry in fs::read_dir(&inner).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn what_a_killed_writer_left_is_no_skill_and_goes_with_the_next_change() {
    let dir = tempfile::tempdir().unwrap();
    let store = files(dir.path());
    store.store("a", "x", &write()).unwrap();
    let left = dir.path().join(".new-abc123");
    fs::write(&left, "half a te").unwrap();
    assert_eq!((names(&store), left.exists()), (vec!["a".to_owned()], true));
    store.update_status("a", SkillStatus::Approved).unwrap();
    assert!(!left.exists());
}

#[test]
fn two_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let make: [MakeStore; 2] = [
        |dir| Box::new(files(&dir.join("skills"))),
        |dir| Box::new(SqliteSkillStore::in_state_dir(dir)),
    ];
    for make in make {
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let dir = dir.path();
                scope.spawn(move || {
                    let store = make(dir);
                    for round in 0..5 {
                        store
                            .store("shared", &format!("{writer} {round}"), &write())
                            .unwrap();
                        store
                            .store(&format!("own-{writer}-{round}"), "x", &write())
                            .unwrap();
                    }
                });
            }
        });
        let store = make(dir.path());
        assert_eq!(names(&*store).len(), 21);
        let history = store.versions("shared").unwrap();
        assert_eq!(history.len(), 20);
        let current = store.load("shared", None).unwrap();
        assert_eq!(history[19].content_hash, current.content_hash);
    }
}

#[test]
fn the_history_and_the_number_of_skills_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let database = SqliteSkillStore::in_state_dir(dir.path());
    let store = files(&dir.path().join("skills"));
    for store in [&database as &dyn SkillStore, &store] {
        for round in 0..MAX_VERSIONS + 5 {
            store.store("a", &format!("text {round}"), &write()).unwrap();
        }
        let history = store.versions("a").unwrap();
        assert_eq!(history.len(), MAX_VERSIONS);
        assert_eq!(
            history[MAX_VERSIONS - 1].version,
            store.metadata("a").unwrap().version
        );
    }
    for number in 1..MAX_SKILLS {
        fs::write(dir.path().join(format!("skills/n{number}.skill.md")), "x").unwrap();
    }
    let refused = store.store("one-more", "x", &write()).unwrap_err();
    assert!(
        matches!(refused.reason, SkillErrorReason::Conflict(_)),
        "{refused}"
    );
    store.store("a", "still works", &write()).unwrap();
}

#[test]
fn earlier_texts_come_back_from_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteSkillStore::in_state_dir(dir.path());
    let first = store.store("a", "one", &write()).unwrap();
    store.store("a", "two", &write()).unwrap();
    assert_eq!(store.load("a", Some(&first.version)).unwrap().source, "one");
    let kept = files(&dir.path().join("skills"));
    kept.store("a", "one", &write()).unwrap();
    kept.store("a", "two", &write()).unwrap();
    assert!(
        kept.load("a", Some(&first.version)).is_err(),
        "files keep the current text only"
    );
}
