//! Which saved state the agent of a worker has in memory of each session. No I/O.
//!
//! A session may go on at another worker, or from the state of another relay, and come back. Only the relay knows which state is the
//! latest, and says it with every turn.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use crate::collections::BoundedCache;
use crate::wire::SessionKey;

/// Sessions that are known; what an agent has of others is not used.
const MAX_SESSIONS: usize = 10_000;

/// Names a saved state; nothing that was saved is empty.
pub fn digest(state: &[u8]) -> String {
    BASE64_STANDARD.encode(Sha256::digest(state))
}

/// The states that the agent has saved or loaded last.
#[derive(Debug)]
pub struct StatesInMemory(BoundedCache<SessionKey, String>);

impl Default for StatesInMemory {
    fn default() -> Self {
        Self(BoundedCache::new(MAX_SESSIONS))
    }
}

impl StatesInMemory {
    /// The agent has saved or loaded this state.
    pub fn set(&mut self, session: &SessionKey, state: &[u8]) {
        self.0.insert(session.clone(), digest(state));
    }

    /// Whether the agent has what the relay calls the latest state. An older relay says nothing.
    pub fn has(&mut self, session: &SessionKey, latest: Option<&str>) -> bool {
        let Some(latest) = latest else { return true };
        self.0.get(session).is_some_and(|state| state == latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_state_is_used_from_memory() {
        let session = SessionKey::from_text("s".to_owned());
        let mut states = StatesInMemory::default();
        assert!(!states.has(&session, Some(&digest(b""))), "nothing is known");
        states.set(&session, b"");
        states.set(&session, b"one");
        assert!(states.has(&session, Some(&digest(b"one"))));
        // Another worker went on with it; people began anew; another worker had the same state.
        for latest in [&*digest(b"two"), &*digest(b""), ""] {
            assert!(!states.has(&session, Some(latest)), "{latest}");
        }
        assert!(states.has(&session, None), "an older relay");
    }
}
