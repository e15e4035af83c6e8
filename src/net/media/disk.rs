//! How much of the disk attachments may take: a total over all turns, and space that is left free for the journal.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::MediaError;

/// Bytes between two looks at the free space.
const LOOK_EVERY: u64 = 1024 * 1024;

/// The budget of all turns.
#[derive(Debug)]
pub(super) struct DiskBudget {
    /// A directory on the disk.
    dir: PathBuf,
    /// Maximum bytes of all files.
    total: u64,
    /// Bytes that stay free.
    min_free: u64,
    used: AtomicU64,
}

impl DiskBudget {
    pub(super) fn new(dir: PathBuf, total: u64, min_free: u64) -> Arc<Self> {
        Arc::new(Self {
            dir,
            total,
            min_free,
            used: AtomicU64::new(0),
        })
    }

    /// An empty share of it.
    pub(super) fn share(self: &Arc<Self>) -> DiskShare {
        DiskShare {
            budget: Arc::clone(self),
            bytes: AtomicU64::new(0),
        }
    }

    fn check_free(&self) -> Result<(), MediaError> {
        let Ok(disk) = rustix::fs::statvfs(&self.dir) else {
            return Ok(());
        };
        if disk.f_bavail.saturating_mul(disk.f_frsize) < self.min_free {
            return Err(MediaError::LowDisk { min: self.min_free });
        }
        Ok(())
    }
}

/// What one turn's files take; given back on drop.
#[derive(Debug)]
pub(super) struct DiskShare {
    budget: Arc<DiskBudget>,
    bytes: AtomicU64,
}

impl DiskShare {
    /// Takes the next bytes of a file of which `before` were taken so far.
    pub(super) fn take(&self, before: u64, bytes: u64) -> Result<(), MediaError> {
        if before == 0 || before / LOOK_EVERY != before.saturating_add(bytes) / LOOK_EVERY {
            self.budget.check_free()?;
        }
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.budget.total);
        self.budget
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .map_err(|_| MediaError::NoRoom {
                total: self.budget.total,
            })?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives bytes of a removed file back.
    pub(super) fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for DiskShare {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_share_one_budget_and_give_back_what_they_took() {
        let dir = tempfile::tempdir().unwrap();
        let budget = DiskBudget::new(dir.path().to_owned(), 100, 0);
        let (one, two) = (budget.share(), budget.share());
        one.take(0, 60).unwrap();
        two.take(0, 40).unwrap();
        assert!(matches!(two.take(40, 1), Err(MediaError::NoRoom { total: 100 })));
        two.give_back(40);
        two.take(0, 30).unwrap();
        assert!(one.take(60, u64::MAX).is_err());
        drop(one);
        two.take(30, 70).unwrap();
        drop(two);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_is_written_when_the_disk_has_too_little_left() {
        let dir = tempfile::tempdir().unwrap();
        let budget = DiskBudget::new(dir.path().to_owned(), u64::MAX, u64::MAX);
        let refused = budget.share().take(0, 1).unwrap_err();
        assert!(matches!(refused, MediaError::LowDisk { .. }), "{refused}");
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
