//! The files that credentials come from: a new secret in one of them is noticed without a signal.
//!
//! A file that cannot be used leaves the old credentials in force.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::reread::rotate;
use crate::cli::Surround;
use crate::cli::logging::LogHandle;
use crate::config::{self, Flags, Sources};
use crate::relay::Credentials;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What tells one state of a file from another; nothing for a file that is not there.
type Stamp = Option<(u64, u64, (i64, i64), (i64, i64))>;

/// The files that credentials come from, looked at every few seconds.
pub(super) struct CredentialFiles {
    seen: Vec<(PathBuf, Stamp)>,
    /// Something changed at the last look, and may still be changing.
    restless: bool,
    looks: Interval,
}

impl CredentialFiles {
    /// Takes them as they are now.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let mut looks = interval_at(Instant::now() + LOOK, LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            seen: paths.iter().map(|path| (path.clone(), stamp(path))).collect(),
            restless: false,
            looks,
        }
    }

    /// Waits until a file has changed and then stayed the same from one look to the next, so that one that is being
    /// written is not read half. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        loop {
            self.looks.tick().await;
            if self.has_settled() {
                return;
            }
        }
    }

    fn has_settled(&mut self) -> bool {
        let mut moving = false;
        for (path, before) in &mut self.seen {
            let now = stamp(path);
            moving |= std::mem::replace(before, now) != now;
        }
        std::mem::replace(&mut self.restless, moving) && !moving
    }

    /// Reads the credentials again.
    pub(super) fn rotate(
        &mut self,
        flags: Flags,
        surround: &Surround<'_>,
        credentials: &watch::Sender<Option<Credentials>>,
        log: &LogHandle,
    ) {
        let env = surround.env;
        match config::load(&Sources { flags, env }) {
            Ok(loaded) => {
                // Before anything is said or done with it.
                log.learn(&loaded, surround);
                if rotate(credentials, &loaded) {
                    tracing::info!(
                        "new credentials were found in their file; the next dial is signed with them"
                    );
                }
                self.follow(&loaded.credential_files);
            }
            Err(error) => {
                tracing::warn!(%error, "a file with credentials changed and cannot be used; going on with the old ones");
            }
        }
    }

    /// The secret may have moved to another file.
    fn follow(&mut self, paths: &[PathBuf]) {
        self.seen.retain(|(path, _)| paths.contains(path));
        for path in paths {
            if !self.seen.iter().any(|(known, _)| known == path) {
                self.seen.push((path.clone(), stamp(path)));
            }
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let file = std::fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        (file.mtime(), file.mtime_nsec()),
        // Also moves when only the permissions change, which may be what made it unusable.
        (file.ctime(), file.ctime_nsec()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_counts_as_changed_once_it_has_come_to_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let mut files = CredentialFiles::new(std::slice::from_ref(&path));
        assert!(!files.has_settled());
        std::fs::write(&path, "ab").unwrap();
        assert!(!files.has_settled(), "it may still be written");
        std::fs::write(&path, "abc").unwrap();
        assert!(!files.has_settled());
        assert!(files.has_settled());
        assert!(!files.has_settled(), "told once");
        let next = folder.path().join("next");
        std::fs::write(&next, "xyz").unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert!(!files.has_settled());
        assert!(files.has_settled(), "a file in its place, of the same size");
        std::fs::remove_file(&path).unwrap();
        assert!(!files.has_settled());
        assert!(files.has_settled(), "gone is a change too");
    }
}
