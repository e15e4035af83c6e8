//! Keeps tests that measure time or memory apart from tests that load the machine.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests that measure hold this for writing, tests that load the machine for reading.
static MACHINE: RwLock<()> = RwLock::const_new(());

/// Waits until no test that loads the machine runs, and keeps them waiting until dropped.
pub(crate) async fn measuring() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}

/// Waits until no test measures.
pub(crate) async fn loading() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}

/// [`measuring`] for tests without a runtime.
pub(crate) fn measuring_blocking() -> RwLockWriteGuard<'static, ()> {
    MACHINE.blocking_write()
}

/// [`loading`] for tests without a runtime.
pub(crate) fn loading_blocking() -> RwLockReadGuard<'static, ()> {
    MACHINE.blocking_read()
}
