//! Which session of which process a conversation has, and what to do before its next prompt. Pure.
//!
//! Bounded: at the limit the conversation that was idle longest is let go; what was kept of it brings it back.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::process::Capabilities;
use crate::wire::SessionKey;

/// Most conversations that are known at once.
pub(super) const MOST: usize = 4096;

/// Longest name of a session that is taken from an agent, in bytes.
pub(super) const ID_BYTES: usize = 1024;

/// Which start of a process something belongs to; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Generation(pub(super) u64);

/// A session in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// The process.
    pub(super) generation: Generation,
    /// The agent's name for the session.
    pub(super) id: String,
    /// The directory that it works in.
    pub(super) cwd: PathBuf,
}

/// What is known of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: ask what was kept.
    #[default]
    Unknown,
    /// It begins anew, whatever was kept.
    Anew,
    /// It is open in a process.
    Open(Bound),
    /// It is open in a process but must not be used as it is.
    Tainted(Bound),
    /// It is open nowhere; the agent may have it in its own memory.
    Resting {
        /// The agent's name for it.
        id: String,
        /// The directory that it works in.
        cwd: PathBuf,
    },
}

/// What to do before the next prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask what was kept, and look again.
    Recall,
    /// Begin a new session.
    Begin,
    /// Use the session as it is.
    Use(Bound),
    /// Make a copy of the session and use that.
    Fork(Bound),
    /// Give up the process, and have the session continued by another.
    Replace(Bound),
    /// Have the session continued.
    Continue(String),
}

/// Decides what to do. `alive` is what the session's process can do, when it is still there.
pub(super) fn step(standing: &Standing, cwd: &Path, alive: Option<&Capabilities>) -> Step {
    let same_place = |bound: &&Bound| bound.cwd == cwd;
    match standing {
        Standing::Unknown => Step::Recall,
        Standing::Open(bound) if same_place(&bound) => match alive {
            Some(_) => Step::Use(bound.clone()),
            None => Step::Continue(bound.id.clone()),
        },
        Standing::Tainted(bound) if same_place(&bound) => match alive {
            Some(Capabilities { fork: true, .. }) => Step::Fork(bound.clone()),
            Some(_) => Step::Replace(bound.clone()),
            None => Step::Continue(bound.id.clone()),
        },
        Standing::Resting { id, cwd: place } if place == cwd => Step::Continue(id.clone()),
        Standing::Anew | Standing::Open(_) | Standing::Tainted(_) | Standing::Resting { .. } => Step::Begin,
    }
}

/// What is kept of a conversation for the time after a restart.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The backend's name, so that another one does not take it for its own.
    pub(super) backend: String,
    /// The agent's name for the session.
    pub(super) session_id: String,
    /// The directory that it works in.
    pub(super) cwd: PathBuf,
}

impl Kept {
    /// What stands in the bytes, if it is ours.
    pub(super) fn read(bytes: &[u8], backend: &str) -> Standing {
        match serde_json::from_slice::<Self>(bytes) {
            Ok(kept) if kept.backend == backend && is_id(&kept.session_id) => Standing::Resting {
                id: kept.session_id,
                cwd: kept.cwd,
            },
            _ => Standing::Anew,
        }
    }

    /// As bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        // A path that is no text is not kept: the session begins anew then.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Whether this can be a session's name.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= ID_BYTES
}

/// The conversations.
#[derive(Debug)]
pub(super) struct Sessions {
    entries: HashMap<SessionKey, Entry>,
    uses: u64,
    most: usize,
}

#[derive(Debug)]
struct Entry {
    standing: Standing,
    /// The last turn was told to stop; the agent may take that for the next one.
    stopped: bool,
    used: u64,
    gate: Arc<Semaphore>,
}

impl Sessions {
    /// Knows at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: HashMap::new(),
            uses: 0,
            most,
        }
    }

    /// The gate that lets one turn of a conversation through at a time, and the session that was let go for it.
    pub(super) fn gate(&mut self, key: &SessionKey) -> (Arc<Semaphore>, Option<Bound>) {
        let room = self.entries.contains_key(key) || self.entries.len() < self.most;
        let let_go = if room { None } else { self.let_go() };
        self.uses += 1;
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            standing: Standing::Unknown,
            stopped: false,
            used: 0,
            gate: Arc::new(Semaphore::new(1)),
        });
        entry.used = self.uses;
        (Arc::clone(&entry.gate), let_go)
    }

    /// What is known, and whether the last turn was told to stop.
    pub(super) fn standing(&self, key: &SessionKey) -> (Standing, bool) {
        let entry = self.entries.get(key);
        entry.map_or_else(Default::default, |entry| (entry.standing.clone(), entry.stopped))
    }

    /// Notes what is known now.
    pub(super) fn note(&mut self, key: &SessionKey, standing: Standing) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.standing = standing;
        }
    }

    /// Notes whether the last turn was told to stop.
    pub(super) fn note_stopped(&mut self, key: &SessionKey, stopped: bool) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.stopped = stopped;
        }
    }

    /// The session must not be used as it is any more.
    pub(super) fn taint(&mut self, key: &SessionKey) {
        if let Some(entry) = self.entries.get_mut(key)
            && let Standing::Open(bound) = &entry.standing
        {
            entry.standing = Standing::Tainted(bound.clone());
        }
    }

    /// Begins anew next time; the session that there was.
    pub(super) fn forget(&mut self, key: &SessionKey) -> Option<Bound> {
        // Known also when it was not: what was kept must not bring it back.
        self.gate(key);
        let entry = self.entries.get_mut(key)?;
        entry.stopped = false;
        match std::mem::replace(&mut entry.standing, Standing::Anew) {
            Standing::Open(bound) | Standing::Tainted(bound) => Some(bound),
            Standing::Unknown | Standing::Anew | Standing::Resting { .. } => None,
        }
    }

    /// Takes out the one that was idle longest. When none is idle, none is: turns at once bound the number then.
    fn let_go(&mut self) -> Option<Bound> {
        let idle = self.entries.iter().filter(|(_, entry)| {
            // Only the entry itself holds its gate: nobody is inside, and nobody waits.
            Arc::strong_count(&entry.gate) == 1
        });
        let oldest = idle.min_by_key(|(_, entry)| entry.used)?.0.clone();
        match self.entries.remove(&oldest)?.standing {
            Standing::Open(bound) | Standing::Tainted(bound) => Some(bound),
            Standing::Unknown | Standing::Anew | Standing::Resting { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
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
}
