//! Watches the files that credentials come from, so that a new secret is used without a signal.
//!
//! If a file becomes unusable, the old credentials stay in use.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::reload::rotate;
use crate::cli::ProcessEnv;
use crate::cli::log::LogHandle;
use crate::config::{self, Flags, LoadedConfig, Sources};
use crate::relay::Credentials;

/// Interval of checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Device, inode and times of a file; `None` for a missing file.
type Stamp = Option<(u64, u64, (i64, i64), (i64, i64))>;

/// The watched files.
pub(super) struct CredentialFiles {
    seen: Vec<(PathBuf, Stamp)>,
    /// A file changed at the last check and may still be changing.
    is_changing: bool,
    checks: Interval,
}

impl CredentialFiles {
    /// Watches the files for changes from now on.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let mut checks = interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            seen: paths.iter().map(|path| (path.clone(), stamp(path))).collect(),
            is_changing: false,
            checks,
        }
    }

    /// Waits until a file has changed and then stayed the same for one interval, so that a half-written file is not read.
    /// Cancel-safe.
    pub(super) async fn changed(&mut self) {
        loop {
            self.checks.tick().await;
            if self.has_settled() {
                return;
            }
        }
    }

    fn has_settled(&mut self) -> bool {
        let mut is_changing = false;
        for (path, before) in &mut self.seen {
            let now = stamp(path);
            is_changing |= std::mem::replace(before, now) != now;
        }
        std::mem::replace(&mut self.is_changing, is_changing) && !is_changing
    }

    /// Reloads the credentials.
    pub(super) fn rotate(
        &mut self,
        flags: Flags,
        process: &ProcessEnv<'_>,
        credentials: &watch::Sender<Option<Credentials>>,
        log: &LogHandle,
    ) {
        let env = process.env;
        match config::load(&Sources { flags, env }) {
            Ok(loaded) => {
                // Before anything is logged about it.
                log.add_secrets(&loaded, process);
                if self.follow(&loaded, credentials) {
                    tracing::info!("found new credentials; using them from the next dial on");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a credential file changed but cannot be used; keeping the old credentials");
            }
        }
    }

    /// Uses the credentials of these settings, and watches their files from now on; returns whether they are new.
    pub(super) fn follow(
        &mut self,
        loaded: &LoadedConfig,
        credentials: &watch::Sender<Option<Credentials>>,
    ) -> bool {
        self.watch(&loaded.credential_files);
        rotate(credentials, loaded)
    }

    /// Watches these files from now on: the secret may have moved.
    fn watch(&mut self, paths: &[PathBuf]) {
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
        // Also changes with the permissions, which may have made it unusable.
        (file.ctime(), file.ctime_nsec()),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use secrecy::ExposeSecret as _;

    use super::*;

    #[tokio::test]
    async fn a_file_that_reloaded_settings_name_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        let home = folder.path().to_str().unwrap().to_owned();
        let env = |name: &str| (name == "HERMES_HOME").then(|| home.clone());
        let load = |file: &str| {
            let text = format!("connector: {{gateway_id: gw, secret_file: {file}}}\n");
            write("relay.yaml", &text);
            let flags = Flags::default();
            config::load(&Sources { flags, env: &env }).unwrap()
        };
        write("one", "1\n");
        write("two", "2\n");
        let (credentials, watched) = watch::channel(None);
        let mut files = CredentialFiles::new(&load("one").credential_files);
        assert!(files.follow(&load("two"), &credentials));
        assert_eq!(watched.borrow().as_ref().unwrap().secret.expose_secret(), "2");
        write("two", "new\n");
        assert!(!files.has_settled());
        assert!(files.has_settled());
        write("one", "gone\n");
        assert!(!files.has_settled());
        assert!(!files.has_settled(), "nobody uses it any more");
    }

    #[tokio::test]
    async fn a_change_counts_once_the_file_is_stable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let mut files = CredentialFiles::new(std::slice::from_ref(&path));
        assert!(!files.has_settled());
        std::fs::write(&path, "ab").unwrap();
        assert!(!files.has_settled(), "it may still be written");
        std::fs::write(&path, "abc").unwrap();
        assert!(!files.has_settled());
        assert!(files.has_settled());
        assert!(!files.has_settled(), "reported once");
        let next = folder.path().join("next");
        std::fs::write(&next, "xyz").unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert!(!files.has_settled());
        assert!(files.has_settled(), "a file in its place, of the same size");
        std::fs::remove_file(&path).unwrap();
        assert!(!files.has_settled());
        assert!(files.has_settled(), "removed");
    }
}
