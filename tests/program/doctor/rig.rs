//! One examination, and what is asked of it.

use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use crate::support::relay_process::Setup;

/// All probes together, and the start and end of a process on a busy machine.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// What the doctor said.
pub(crate) struct Report {
    pub(crate) code: i32,
    pub(crate) rows: Vec<Value>,
    text: String,
}

pub(crate) async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

/// Runs `doctor --json` with more arguments on a set-up.
pub(crate) async fn doctor(setup: Setup, more: &[&str]) -> Report {
    let args = [&["doctor", "--json"], more].concat();
    let mut process = setup.args(&args).start();
    let code = process.exit_code(EXIT_TIMEOUT).await;
    let text = process.stdout();
    let rows: Vec<Value> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{}", process.stderr()));
    assert_eq!(process.stderr(), "", "nothing beside the report");
    Report { code, rows, text }
}

impl Report {
    /// The rows of one probe.
    pub(crate) fn of(&self, id: &str) -> Vec<&Value> {
        let rows: Vec<&Value> = self.rows.iter().filter(|row| row["id"] == id).collect();
        assert!(!rows.is_empty(), "no {id} in {}", self.text);
        rows
    }

    /// The one row of a probe.
    pub(crate) fn row(&self, id: &str) -> &Value {
        let rows = self.of(id);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0]
    }

    /// This probe failed, and no other did, for this reason and with this remedy.
    #[track_caller]
    pub(crate) fn blames(&self, id: &str, cause: &str, remedy: &str) -> &Self {
        let failed: Vec<&Value> = self
            .rows
            .iter()
            .filter(|row| row["outcome"] == "failed")
            .collect();
        assert_eq!(failed.len(), 1, "{failed:#?}");
        assert_eq!(failed[0]["id"], id, "{failed:#?}");
        assert_eq!(self.code, 1, "something failed");
        assert_row(failed[0], cause, remedy);
        self
    }

    /// This probe warns, for this reason and with this remedy.
    #[track_caller]
    pub(crate) fn warns(&self, id: &str, cause: &str, remedy: &str) -> &Self {
        let about = |row: &&&Value| {
            row["outcome"] == "warn"
                && row["detail"]
                    .as_str()
                    .is_some_and(|detail| detail.contains(cause))
        };
        let rows = self.of(id);
        let warned = rows.iter().find(about);
        let Some(warned) = warned else {
            panic!("no warning of {id} about {cause:?} in {}", self.text)
        };
        assert_row(warned, cause, remedy);
        self
    }

    /// These were left out, and each names a probe that did not pass.
    #[track_caller]
    pub(crate) fn skips(&self, ids: &[&str]) -> &Self {
        for id in ids {
            let row = self.row(id);
            assert_eq!(row["outcome"], "skipped", "{row}");
            let blocker = row["blocked_by"].as_str().unwrap_or_else(|| panic!("{row}"));
            let title = self.of(blocker)[0]["title"].as_str().unwrap();
            assert!(row["detail"].as_str().unwrap().contains(title), "{row}");
            let bad = |row: &&Value| matches!(row["outcome"].as_str(), Some("failed" | "skipped"));
            assert!(self.of(blocker).iter().any(bad), "{blocker} passed");
        }
        self
    }

    /// These came out well.
    #[track_caller]
    pub(crate) fn passes(&self, ids: &[&str]) -> &Self {
        for id in ids {
            for row in self.of(id) {
                assert_eq!(row["outcome"], "ok", "{row}");
            }
        }
        self
    }

    /// The connector's secret is nowhere.
    pub(crate) fn keeps_secret(&self, connector: &Connector) -> &Self {
        let secret = connector.credentials().unwrap().secret;
        assert!(!self.text.contains(secret.expose_secret()));
        self
    }
}

#[track_caller]
fn assert_row(row: &Value, cause: &str, remedy: &str) {
    let detail = row["detail"].as_str().unwrap();
    assert!(detail.contains(cause), "wanted {cause:?} in {detail:?}");
    let remedy_text = row["remedy"].as_str().unwrap();
    assert!(
        remedy_text.contains(remedy),
        "wanted {remedy:?} in {remedy_text:?}"
    );
}
