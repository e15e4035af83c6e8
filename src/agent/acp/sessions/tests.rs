//! Decisions about sessions, and the bound on them.

use super::*;
use crate::wire::{Grouping, NoAliases, SessionSource};

fn key(chat: &str) -> SessionKey {
    let source = serde_json::json!({"platform": "discord", "chat_id": chat, "chat_type": "dm"});
    let source = SessionSource::from_value(&source).unwrap();
    SessionKey::build(&source, Grouping::default(), None, &NoAliases)
}

fn bound(id: &str) -> Bound {
    Bound {
        generation: Generation(1),
        id: id.to_owned(),
        cwd: "/w".into(),
    }
}

#[test]
fn what_is_done_before_a_prompt() {
    let plain = Capabilities::default();
    let forks = Capabilities {
        fork: true,
        ..Capabilities::default()
    };
    let there = Path::new("/w");
    let open = Standing::Open(bound("s"));
    let tainted = Standing::Tainted(bound("s"));
    let resting = Standing::Resting {
        id: "s".to_owned(),
        cwd: "/w".into(),
    };
    let resumed = Step::Continue("s".to_owned());
    for (standing, alive, expected) in [
        (&Standing::Unknown, None, Step::Recall),
        (&Standing::Anew, Some(&plain), Step::Begin),
        (&open, Some(&plain), Step::Use(bound("s"))),
        (&open, None, resumed.clone()),
        (&tainted, Some(&forks), Step::Fork(bound("s"))),
        (&tainted, Some(&plain), Step::Replace(bound("s"))),
        (&tainted, None, resumed.clone()),
        (&resting, None, resumed),
    ] {
        assert_eq!(step(standing, there, alive), expected, "{standing:?}");
    }
    for moved in [open, tainted, resting] {
        assert_eq!(step(&moved, Path::new("/elsewhere"), Some(&forks)), Step::Begin);
    }
}

#[test]
fn what_was_kept_comes_back_only_to_its_own_backend() {
    let kept = Kept {
        backend: "a".to_owned(),
        session_id: "s".to_owned(),
        cwd: "/w".into(),
    };
    let bytes = kept.write();
    assert!(matches!(Kept::read(&bytes, "a"), Standing::Resting { id, .. } if id == "s"));
    assert_eq!(Kept::read(&bytes, "b"), Standing::Anew);
    for junk in [
        &b""[..],
        b"{}",
        b"\xff",
        br#"{"backend":"a","session_id":"","cwd":"/"}"#,
    ] {
        assert_eq!(Kept::read(junk, "a"), Standing::Anew);
    }
}

#[test]
fn the_one_idle_longest_is_let_go_at_the_limit() {
    let mut sessions = Sessions::new(3);
    let busy = sessions.gate(&key("busy")).0;
    for chat in ["a", "b"] {
        sessions.gate(&key(chat));
        sessions.note(&key(chat), Standing::Open(bound(chat)));
    }
    sessions.gate(&key("a"));
    assert_eq!(sessions.gate(&key("c")).1, Some(bound("b")));
    assert_eq!(sessions.gate(&key("d")).1, Some(bound("a")));
    assert_eq!(sessions.entries.len(), 3);
    assert_eq!(sessions.standing(&key("a")).0, Standing::Unknown);
    drop(busy);
    sessions.gate(&key("e"));
    assert!(!sessions.entries.contains_key(&key("busy")));
}

#[test]
fn forgetting_outlives_what_was_kept() {
    let mut sessions = Sessions::new(3);
    assert_eq!(sessions.forget(&key("x")), None);
    assert_eq!(sessions.standing(&key("x")).0, Standing::Anew);
    sessions.note(&key("x"), Standing::Open(bound("s")));
    sessions.taint(&key("x"));
    assert_eq!(sessions.standing(&key("x")).0, Standing::Tainted(bound("s")));
    assert_eq!(sessions.forget(&key("x")), Some(bound("s")));
}
