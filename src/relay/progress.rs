//! How far ops have come on one connection: which may be on the wire, and which surely are.
//!
//! The driver numbers ops in the order in which it hands them over. The speaking task asks here before it
//! touches the socket with an op, and tells after a flush. When the connection is given up, what was not begun
//! is known not to have been sent. It never looks at a line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One connection's progress.
#[derive(Debug)]
pub(super) struct Progress {
    gate: Mutex<Gate>,
    written: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Gate {
    begun: u64,
    shut: bool,
}

impl Progress {
    /// Nothing has been said yet. `written` outlives the connection.
    pub(super) fn new(written: Arc<AtomicU64>) -> Self {
        Self {
            gate: Mutex::default(),
            written,
        }
    }

    /// This op is about to be written; `false` when it must not be any more.
    pub(super) fn begin(&self, number: u64) -> bool {
        let mut gate = self.gate();
        if !gate.shut {
            gate.begun = number;
        }
        !gate.shut
    }

    /// Everything begun so far is out of this process; the asker's name for the last op among it.
    pub(super) fn flushed(&self, token: u64) {
        self.written.fetch_max(token, Ordering::Release);
    }

    /// The connection is given up: the number of the last op that may be on the wire.
    pub(super) fn shut(&self) -> u64 {
        let mut gate = self.gate();
        gate.shut = true;
        gate.begun
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_begun_when_the_connection_went_is_never_begun() {
        let written = Arc::new(AtomicU64::new(0));
        let progress = Progress::new(Arc::clone(&written));
        assert!(progress.begin(3));
        progress.flushed(30);
        assert!(progress.begin(5));
        assert_eq!(written.load(Ordering::Acquire), 30);
        assert_eq!(progress.shut(), 5);
        assert!(!progress.begin(6));
        assert_eq!(progress.shut(), 5);
    }
}
