//! The sessions that run or wait, as people are shown them.

use serde::Serialize;

use super::core::Core;

/// Sessions, and how many there are in all.
#[derive(Clone, Debug, Serialize)]
pub struct SessionList {
    /// Sessions that run or wait, listed or not.
    pub total: usize,
    /// Those that are listed; the ones that run come first.
    pub sessions: Vec<SessionStatus>,
}

/// How one session stands.
#[derive(Clone, Debug, Serialize)]
pub struct SessionStatus {
    /// Its key.
    pub session: String,
    /// `running`, `stopping`, `starting` (its message is being read or written) or `waiting`.
    pub state: &'static str,
    /// Who answers its turn.
    pub agent: Option<String>,
    /// How long its turn has run, in milliseconds.
    pub running_ms: Option<u64>,
    /// Messages of it that wait in memory; more may wait in the journal.
    pub waiting: usize,
    /// Since when the first of them has waited, in Unix milliseconds, where the journal was asked.
    pub waiting_since_ms: Option<i64>,
}

impl Core {
    /// At most so many sessions; those with a turn before those that wait.
    pub(super) fn session_list(&self, limit: usize) -> SessionList {
        let mut running: Vec<_> = self.turns.values().collect();
        // A turn without a beginning has only just come: it is the youngest.
        running.sort_by_key(|live| (live.began.is_none(), live.began));
        let turns = running.into_iter().map(|live| SessionStatus {
            session: live.key.as_str().to_owned(),
            state: match (live.stop, live.began) {
                (Some(_), _) => "stopping",
                (None, Some(_)) => "running",
                (None, None) => "starting",
            },
            agent: live.agent.as_ref().map(|(name, _)| name.to_string()),
            running_ms: live
                .began
                .map(|began| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)),
            waiting: self.sessions.waiting(&live.key),
            waiting_since_ms: None,
        });
        let waiting = self.sessions.idle().map(|(key, waiting)| SessionStatus {
            session: key.as_str().to_owned(),
            state: "waiting",
            agent: None,
            running_ms: None,
            waiting,
            waiting_since_ms: None,
        });
        SessionList {
            total: self.sessions.active(),
            sessions: turns.chain(waiting).take(limit).collect(),
        }
    }
}
