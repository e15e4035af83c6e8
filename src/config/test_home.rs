//! Test support: a temporary Hermes home, an environment, and flags.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::resolve::load_from;
use super::{ConfigError, Flags, LoadedConfig, Sources};

/// A temporary Hermes home with environment and flags.
pub(super) struct TestHome {
    pub(super) dir: tempfile::TempDir,
    pub(super) env: BTreeMap<String, String>,
    pub(super) flags: Flags,
}

impl TestHome {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap().to_owned();
        Self {
            dir,
            env: BTreeMap::from([("HERMES_HOME".to_owned(), home)]),
            flags: Flags::default(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn file(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(super) fn try_load(&self) -> Result<LoadedConfig, ConfigError> {
        let env = |name: &str| self.env.get(name).cloned();
        let sources = Sources {
            flags: self.flags.clone(),
            env: &env,
        };
        load_from(&sources, &self.path("etc/config.yaml"), &self.path("etc"))
    }

    pub(super) fn load(&self) -> LoadedConfig {
        self.try_load().unwrap()
    }
}
