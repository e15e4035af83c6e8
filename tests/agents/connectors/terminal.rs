//! A real tmux: what arrives in a pane.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use hermes_relay::agent_connector::AgentConnector as _;
use hermes_relay::agent_connector::contract::CauseKind;
use tempfile::TempDir;

use super::{augment, context, environment, tmux};
use crate::support::skip::skip;
use crate::support::wait::eventually;

/// Records what it is typed, after it has asked for bracketed pastes; ends at `q` outside of a paste.
const RECORDER: &str = "printf '\\033[?2004h'; stty raw -echo; touch ready; cat > typed";

/// A tmux server of the test's own, which ends with it.
struct Server {
    folder: TempDir,
    env: BTreeMap<OsString, OsString>,
}

impl Server {
    /// With a session `work` that runs a script; `None` without a tmux, which has been said then.
    fn start(script: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut env = environment();
        env.insert("TMUX_TMPDIR".into(), folder.path().into());
        env.insert("TERM".into(), "xterm".into());
        env.insert("LC_ALL".into(), "C.UTF-8".into());
        let server = Self { folder, env };
        let Ok(started) = server
            .tmux()
            .args([
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-s",
                "work",
                "-x",
                "200",
                "-y",
                "50",
            ])
            .args(["sh", "-c", script])
            .current_dir(server.folder.path())
            .status()
        else {
            skip("tmux is not installed, so nothing was pasted into a real one (apt-get install tmux)");
            return None;
        };
        assert!(started.success());
        Some(server)
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.env_clear().envs(&self.env);
        command
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    async fn typed(&self, end: &str) -> String {
        eventually("the text in the pane", async || {
            let typed = fs::read_to_string(self.folder().join("typed")).unwrap_or_default();
            if typed.ends_with(end) {
                Ok(typed)
            } else {
                Err(typed)
            }
        })
        .await
    }

    async fn is_ready(&self) {
        eventually("a program in the pane", async || {
            self.folder().join("ready").exists()
        })
        .await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.tmux().arg("kill-server").status();
    }
}

#[tokio::test]
async fn a_delivery_is_one_bracketed_paste_and_one_enter() {
    let Some(server) = Server::start(RECORDER) else {
        return;
    };
    server.is_ready().await;
    let connector = tmux("work:0.0", server.env.clone());
    assert!(connector.health_check().await);
    let text = "first\r\nsecond\u{1b}[201~ \u{3}$(id); 'x' ü\n\tthird\n\n";
    let receipt = connector.deliver("cc", &augment("d-1", text)).await.unwrap();
    assert!(receipt.delivery_id.unwrap().starts_with("tmux:work:0.0:"));
    let typed = server.typed("\u{1b}[201~\r").await;
    let paste = typed
        .strip_prefix("\u{1b}[200~")
        .and_then(|rest| rest.strip_suffix("\u{1b}[201~\r"));
    let paste = paste.unwrap_or_else(|| panic!("one paste and one Enter: {typed:?}"));
    let lines: Vec<&str> = paste.split(['\r', '\n']).collect();
    assert_eq!(
        lines,
        [
            "[dispatch_id=d-1 kind=augment to=cc]",
            "first",
            "second[201~ $(id); 'x' ü",
            "    third"
        ]
    );
    let buffers = server.tmux().arg("list-buffers").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&buffers.stdout),
        "",
        "no text stays in tmux"
    );
}

#[tokio::test]
async fn a_wake_is_a_delivery_that_says_so() {
    let Some(server) = Server::start(RECORDER) else {
        return;
    };
    server.is_ready().await;
    let connector = tmux("work", server.env.clone());
    let receipt = connector.wake("cc@term", &context("wake up")).await.unwrap();
    assert!(!receipt.woken);
    assert_eq!(receipt.session_id.as_deref(), Some("term"));
    let typed = server.typed("\u{1b}[201~\r").await;
    assert!(
        typed.contains("to=cc@term") && typed.contains("wake up"),
        "{typed:?}"
    );
}

#[tokio::test]
async fn a_pane_that_somebody_scrolls_gets_the_same() {
    let Some(server) = Server::start(RECORDER) else {
        return;
    };
    server.is_ready().await;
    assert!(
        server
            .tmux()
            .args(["copy-mode", "-t", "work"])
            .status()
            .unwrap()
            .success()
    );
    let connector = tmux("work", server.env.clone());
    connector
        .deliver("cc", &augment("d-1", "one\ntwo"))
        .await
        .unwrap();
    let typed = server.typed("\u{1b}[201~\r").await;
    assert_eq!(typed.matches("\u{1b}[200~").count(), 1, "{typed:?}");
    assert!(typed.contains("one\rtwo\u{1b}[201~"), "{typed:?}");
}

#[tokio::test]
async fn a_program_that_has_ended_gets_nothing() {
    let Some(server) = Server::start("touch ready; read x; exit 3") else {
        return;
    };
    server.is_ready().await;
    for command in [
        &["set-option", "-t", "work", "remain-on-exit", "on"][..],
        &["send-keys", "-t", "work", "Enter"],
    ] {
        assert!(server.tmux().args(command).status().unwrap().success());
    }
    let connector = tmux("work", server.env.clone());
    eventually("the end of the program", async || !connector.health_check().await).await;
    let failure = connector.deliver("cc", &augment("d-1", "x")).await.unwrap_err();
    assert!(failure.message.contains("has ended"), "{failure}");
}

#[tokio::test]
async fn a_pane_that_is_gone_is_a_fault() {
    let Some(server) = Server::start(RECORDER) else {
        return;
    };
    server.is_ready().await;
    let connector = tmux("elsewhere:0.0", server.env.clone());
    assert!(!connector.health_check().await);
    let failure = connector.deliver("cc", &augment("d-1", "x")).await.unwrap_err();
    assert_eq!(failure.cause_kind, CauseKind::Network);
    assert!(failure.message.contains("elsewhere"), "{failure}");
    let buffers = server.tmux().arg("list-buffers").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&buffers.stdout),
        "",
        "no text stays in tmux"
    );
}

#[cfg(feature = "conformance")]
#[tokio::test]
async fn it_conforms() {
    let Some(server) = Server::start(RECORDER) else {
        return;
    };
    server.is_ready().await;
    let connector = tmux("work", server.env.clone());
    let checks = hermes_relay::agent_connector::conformance::check_connector(&connector).await;
    let broken: Vec<_> = checks.iter().filter(|check| check.outcome.is_err()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
