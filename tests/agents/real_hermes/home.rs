//! A home for Hermes: a folder with its settings, the place where it works, and the environment that keeps it from the
//! network.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::relay_process::Setup;

/// Hermes' own home, which is the relay's too, as on the machines of people.
pub(crate) struct Home {
    home: PathBuf,
    work: PathBuf,
}

/// How much of a log is shown.
const LOG_LINES: usize = 200;

/// Everything but loopback goes to a proxy that is not there.
pub(crate) const OFFLINE: [(&str, &str); 5] = [
    ("HTTP_PROXY", "http://127.0.0.1:9"),
    ("HTTPS_PROXY", "http://127.0.0.1:9"),
    ("http_proxy", "http://127.0.0.1:9"),
    ("https_proxy", "http://127.0.0.1:9"),
    ("NO_PROXY", "127.0.0.1,localhost"),
];

impl Home {
    /// Settles Hermes in a relay's home, with a model at this address, asking before it does anything dangerous.
    pub(crate) fn settle(setup: &Setup, model: &str) -> Self {
        let home = setup.home();
        let work = home.with_file_name("work");
        fs::create_dir(&work).unwrap();
        setup.write(
            "config.yaml",
            &format!(
                "model:\n  provider: custom\n  default: made-up\n  base_url: {model}/v1\n  api_key: not-a-secret\n  \
                   context_length: 131072\n\
                 approvals:\n  mode: manual\n  timeout: 60\n\
                 terminal:\n  backend: local\n  cwd: {}\n\
                 security:\n  tirith_enabled: false\n\
                 model_catalog:\n  enabled: false\n\
                 auxiliary:\n  title_generation:\n    enabled: false\n\
                 kanban:\n  dispatch_in_gateway: false\n\
                 curator:\n  enabled: false\n",
                work.display()
            ),
        );
        Self { home, work }
    }

    /// Where Hermes works.
    pub(crate) fn work(&self) -> &Path {
        &self.work
    }

    /// What every process of the test names.
    pub(crate) fn folder(&self) -> &Path {
        self.home.parent().expect("the folder of the test")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.home
    }
}

/// What Hermes wrote down is shown when the test fails, as long as the setup has not been dropped before.
impl Drop for Home {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let logs = fs::read_dir(self.home.join("logs"))
            .into_iter()
            .flatten()
            .flatten();
        for log in logs.filter(|entry| entry.path().is_file()) {
            let text = fs::read(log.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            eprintln!("--- Hermes wrote to {}:\n{tail}\n--- end", log.path().display());
        }
    }
}
