//! The session of each conversation, and the next step before its prompt. Pure.
//!
//! Bounded: at the limit the conversation idle longest is evicted; its saved state restores it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::preferences::Chosen;
use super::process::Capabilities;
use crate::wire::SessionKey;

/// Maximum conversations.
pub(super) const MAX_SESSIONS: usize = 4096;

/// Maximum length of an agent's session id, in bytes.
pub(super) const ID_BYTES: usize = 1024;

/// Which start of a process something belongs to; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProcessGeneration(pub(super) u64);

/// A session in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionRef {
    /// The process that has the session open.
    pub(super) generation: ProcessGeneration,
    /// The agent's name for the session.
    pub(super) id: String,
    /// The working directory of the session.
    pub(super) cwd: PathBuf,
}

/// Status of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum AgentSessionStatus {
    /// Unknown: load the saved state.
    #[default]
    Unknown,
    /// The conversation starts anew, whatever was saved.
    New,
    /// The session is open in a process.
    Open(SessionRef),
    /// The session is open in a process but must not be used as it is.
    Tainted(SessionRef),
    /// Not open; the agent may have it in storage.
    Detached {
        /// The agent's name for it.
        id: String,
        /// The working directory of the session.
        cwd: PathBuf,
    },
}

impl AgentSessionStatus {
    /// The session that is open in a process.
    fn open(self) -> Option<SessionRef> {
        match self {
            Self::Open(session) | Self::Tainted(session) => Some(session),
            Self::Unknown | Self::New | Self::Detached { .. } => None,
        }
    }
}

/// Next step before a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenStep {
    /// Load the saved state and decide again.
    LoadState,
    /// Create a session.
    New,
    /// Use the session as it is.
    Use(SessionRef),
    /// Fork the session and use the copy.
    Fork(SessionRef),
    /// Retire the process and resume the session in another.
    Replace(SessionRef),
    /// Resume the session.
    Resume(String),
}

/// Decides the next step. `alive`: capabilities of the session's process, if it runs.
pub(super) fn next_step(status: &AgentSessionStatus, cwd: &Path, alive: Option<&Capabilities>) -> OpenStep {
    let same_place = |session: &&SessionRef| session.cwd == cwd;
    match status {
        AgentSessionStatus::Unknown => OpenStep::LoadState,
        AgentSessionStatus::Open(session) if same_place(&session) => match alive {
            Some(_) => OpenStep::Use(session.clone()),
            None => OpenStep::Resume(session.id.clone()),
        },
        AgentSessionStatus::Tainted(session) if same_place(&session) => match alive {
            Some(Capabilities { fork: true, .. }) => OpenStep::Fork(session.clone()),
            Some(_) => OpenStep::Replace(session.clone()),
            None => OpenStep::Resume(session.id.clone()),
        },
        AgentSessionStatus::Detached { id, cwd: place } if place == cwd => OpenStep::Resume(id.clone()),
        AgentSessionStatus::New
        | AgentSessionStatus::Open(_)
        | AgentSessionStatus::Tainted(_)
        | AgentSessionStatus::Detached { .. } => OpenStep::New,
    }
}

/// Saved state of a conversation.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedSession {
    /// The backend's name, so that another one does not take it for its own.
    pub(super) backend: String,
    /// The agent's name for the session.
    pub(super) session_id: String,
    /// The working directory of the session.
    pub(super) cwd: PathBuf,
    /// What people chose in it.
    #[serde(default, skip_serializing_if = "Chosen::is_empty")]
    pub(super) chosen: Chosen,
}

impl SavedSession {
    /// Reads saved state, if it is this backend's.
    pub(super) fn read(bytes: &[u8], backend: &str) -> (AgentSessionStatus, Chosen) {
        match serde_json::from_slice::<Self>(bytes) {
            Ok(kept) if kept.backend == backend && is_id(&kept.session_id) => (
                AgentSessionStatus::Detached {
                    id: kept.session_id,
                    cwd: kept.cwd,
                },
                kept.chosen,
            ),
            _ => (AgentSessionStatus::New, Chosen::default()),
        }
    }

    /// As bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        // A path that is not UTF-8 is not saved; the session starts anew.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Whether this can be a session's name.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= ID_BYTES
}

/// The conversations.
#[derive(Debug)]
pub(super) struct AgentSessions {
    entries: HashMap<SessionKey, AgentSession>,
    uses: u64,
    capacity: usize,
}

#[derive(Debug)]
struct AgentSession {
    status: AgentSessionStatus,
    /// Whether the last turn was cancelled; the agent may apply that to the next one.
    stopped: bool,
    /// Whether the session is new, and got nothing but commands yet.
    fresh: bool,
    /// Whether the agent did not continue the session in time, the last time that it was asked to.
    slow: bool,
    chosen: Chosen,
    used: u64,
    gate: Arc<Semaphore>,
}

impl AgentSession {
    /// Whether the gate is held by the entry alone: no turn is inside or waiting.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.gate) == 1
    }
}

impl AgentSessions {
    /// Knows at most so many.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            uses: 0,
            capacity,
        }
    }

    /// The gate that admits one turn of a conversation at a time, and the session evicted for it.
    pub(super) fn gate(&mut self, key: &SessionKey) -> (Arc<Semaphore>, Option<SessionRef>) {
        let room = self.entries.contains_key(key) || self.entries.len() < self.capacity;
        let evicted = if room { None } else { self.evict() };
        self.uses += 1;
        let entry = self.entries.entry(key.clone()).or_insert_with(|| AgentSession {
            status: AgentSessionStatus::Unknown,
            stopped: false,
            fresh: false,
            slow: false,
            chosen: Chosen::default(),
            used: 0,
            gate: Arc::new(Semaphore::new(1)),
        });
        entry.used = self.uses;
        (Arc::clone(&entry.gate), evicted)
    }

    /// The status, and whether the last turn was cancelled.
    pub(super) fn status(&self, key: &SessionKey) -> (AgentSessionStatus, bool) {
        let entry = self.entries.get(key);
        entry.map_or_else(Default::default, |entry| (entry.status.clone(), entry.stopped))
    }

    /// Sets the status.
    pub(super) fn set_status(&mut self, key: &SessionKey, status: AgentSessionStatus) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.status = status;
        }
    }

    /// Records whether the session is new, and got nothing but commands yet.
    pub(super) fn set_fresh(&mut self, key: &SessionKey, fresh: bool) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.fresh = fresh;
        }
    }

    /// Whether the session is new, and got nothing but commands yet.
    pub(super) fn is_fresh(&self, key: &SessionKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.fresh)
    }

    /// Records whether the agent did not continue the session in time; returns what was recorded before.
    pub(super) fn set_slow(&mut self, key: &SessionKey, slow: bool) -> bool {
        self.entries
            .get_mut(key)
            .is_some_and(|entry| std::mem::replace(&mut entry.slow, slow))
    }

    /// What people chose.
    pub(super) fn chosen(&self, key: &SessionKey) -> Chosen {
        self.entries
            .get(key)
            .map(|entry| entry.chosen.clone())
            .unwrap_or_default()
    }

    /// Records what people chose.
    pub(super) fn set_chosen(&mut self, key: &SessionKey, chosen: Chosen) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.chosen = chosen;
        }
    }

    /// Records whether the last turn was cancelled.
    pub(super) fn set_stopped(&mut self, key: &SessionKey, stopped: bool) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.stopped = stopped;
        }
    }

    /// Marks the session as unusable.
    pub(super) fn taint(&mut self, key: &SessionKey) {
        if let Some(entry) = self.entries.get_mut(key)
            && let AgentSessionStatus::Open(session) = &entry.status
        {
            entry.status = AgentSessionStatus::Tainted(session.clone());
        }
    }

    /// Starts anew next time; returns the session there was.
    pub(super) fn forget(&mut self, key: &SessionKey) -> Option<SessionRef> {
        // Also for an unknown conversation, so that saved state does not restore it.
        self.gate(key);
        let entry = self.entries.get_mut(key)?;
        entry.stopped = false;
        entry.fresh = false;
        entry.slow = false;
        entry.chosen = Chosen::default();
        std::mem::replace(&mut entry.status, AgentSessionStatus::New).open()
    }

    /// Loads the saved state next time; returns the session there was, if no turn uses it.
    pub(super) fn reload(&mut self, key: &SessionKey) -> Option<SessionRef> {
        let entry = self.entries.get_mut(key)?;
        entry.fresh = false;
        let open = std::mem::take(&mut entry.status).open();
        open.filter(|_| entry.is_idle())
    }

    /// Removes the conversation idle longest, if one is idle.
    fn evict(&mut self) -> Option<SessionRef> {
        let idle = self.entries.iter().filter(|(_, entry)| entry.is_idle());
        let oldest = idle.min_by_key(|(_, entry)| entry.used)?.0.clone();
        self.entries.remove(&oldest)?.status.open()
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

    fn session(id: &str) -> SessionRef {
        SessionRef {
            generation: ProcessGeneration(1),
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
        let open = AgentSessionStatus::Open(session("s"));
        let tainted = AgentSessionStatus::Tainted(session("s"));
        let resting = AgentSessionStatus::Detached {
            id: "s".to_owned(),
            cwd: "/w".into(),
        };
        let resumed = OpenStep::Resume("s".to_owned());
        for (status, alive, expected) in [
            (&AgentSessionStatus::Unknown, None, OpenStep::LoadState),
            (&AgentSessionStatus::New, Some(&plain), OpenStep::New),
            (&open, Some(&plain), OpenStep::Use(session("s"))),
            (&open, None, resumed.clone()),
            (&tainted, Some(&forks), OpenStep::Fork(session("s"))),
            (&tainted, Some(&plain), OpenStep::Replace(session("s"))),
            (&tainted, None, resumed.clone()),
            (&resting, None, resumed),
        ] {
            assert_eq!(next_step(status, there, alive), expected, "{status:?}");
        }
        for moved in [open, tainted, resting] {
            assert_eq!(
                next_step(&moved, Path::new("/elsewhere"), Some(&forks)),
                OpenStep::New
            );
        }
    }

    #[test]
    fn what_was_kept_comes_back_only_to_its_own_backend() {
        let kept = SavedSession {
            backend: "a".to_owned(),
            session_id: "s".to_owned(),
            cwd: "/w".into(),
            chosen: Chosen::default(),
        };
        let bytes = kept.write();
        let (status, chosen) = SavedSession::read(&bytes, "a");
        assert!(matches!(status, AgentSessionStatus::Detached { id, .. } if id == "s"));
        assert_eq!(chosen, Chosen::default());
        assert_eq!(SavedSession::read(&bytes, "b").0, AgentSessionStatus::New);
        for junk in [
            &b""[..],
            b"{}",
            b"\xff",
            br#"{"backend":"a","session_id":"","cwd":"/"}"#,
        ] {
            assert_eq!(SavedSession::read(junk, "a").0, AgentSessionStatus::New);
        }
    }

    #[test]
    fn the_one_idle_longest_is_let_go_at_the_limit() {
        let mut sessions = AgentSessions::new(3);
        let busy = sessions.gate(&key("busy")).0;
        for chat in ["a", "b"] {
            sessions.gate(&key(chat));
            sessions.set_status(&key(chat), AgentSessionStatus::Open(session(chat)));
        }
        sessions.gate(&key("a"));
        assert_eq!(sessions.gate(&key("c")).1, Some(session("b")));
        assert_eq!(sessions.gate(&key("d")).1, Some(session("a")));
        assert_eq!(sessions.entries.len(), 3);
        assert_eq!(sessions.status(&key("a")).0, AgentSessionStatus::Unknown);
        drop(busy);
        sessions.gate(&key("e"));
        assert!(!sessions.entries.contains_key(&key("busy")));
    }

    #[test]
    fn a_session_that_went_on_elsewhere_is_loaded_again() {
        let mut sessions = AgentSessions::new(3);
        assert_eq!(sessions.reload(&key("x")), None);
        let inside = sessions.gate(&key("x")).0;
        let mut reload = || {
            sessions.set_status(&key("x"), AgentSessionStatus::Open(session("s")));
            let open = sessions.reload(&key("x"));
            assert_eq!(sessions.status(&key("x")).0, AgentSessionStatus::Unknown);
            open
        };
        assert_eq!(reload(), None, "a turn uses it");
        drop(inside);
        assert_eq!(reload(), Some(session("s")));
    }

    #[test]
    fn forgetting_outlives_what_was_kept() {
        let mut sessions = AgentSessions::new(3);
        assert_eq!(sessions.forget(&key("x")), None);
        assert_eq!(sessions.status(&key("x")).0, AgentSessionStatus::New);
        sessions.set_status(&key("x"), AgentSessionStatus::Open(session("s")));
        sessions.taint(&key("x"));
        assert_eq!(
            sessions.status(&key("x")).0,
            AgentSessionStatus::Tainted(session("s"))
        );
        assert_eq!(sessions.forget(&key("x")), Some(session("s")));
    }
}
