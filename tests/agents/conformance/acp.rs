//! Agents that speak ACP. The peer is a scripted one.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_relay::agent::{AcpAgent, AcpSettings, Agent, BaseEnv};

use crate::conformance::suite::{ANSWER, Act, CUT, Fixture, WORD, conform};

use crate::acp::PEER;

struct AcpFixture {
    folder: tempfile::TempDir,
    words: &'static str,
}

impl AcpFixture {
    fn new(words: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(PEER, folder.path().join("peer")).unwrap();
        Self { folder, words }
    }

    fn peer(&self) -> PathBuf {
        self.folder.path().join("peer")
    }
}

impl Fixture for AcpFixture {
    fn agent(&self) -> Arc<dyn Agent> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let mut settings = AcpSettings {
            argv: vec![text(&self.peer())],
            cancel_grace_secs: 3,
            ..AcpSettings::default()
        };
        let store = self.folder.path().join("store");
        std::fs::create_dir_all(&store).unwrap();
        settings
            .env
            .0
            .insert("ACP_AGENT".to_owned(), self.words.to_owned());
        settings.env.0.insert("ACP_AGENT_STORE".to_owned(), text(&store));
        Arc::new(AcpAgent::new("peer", settings, &BaseEnv::default()).unwrap())
    }

    fn text(&self, act: Act) -> Option<String> {
        Some(match act {
            Act::Say => ANSWER.to_owned(),
            Act::Nothing => "nothing".to_owned(),
            Act::Much => "much".to_owned(),
            Act::Cut => format!("cut {CUT}"),
            Act::Hang => "silent".to_owned(),
            Act::SpeakAndHang => "hang".to_owned(),
            Act::Deaf => "ignore".to_owned(),
            Act::Ask => "ask".to_owned(),
            Act::Crash => "crash".to_owned(),
            Act::Fail => "stop error".to_owned(),
            Act::Flood => "flood".to_owned(),
            Act::Orphan => "orphan".to_owned(),
            Act::Endless => "long".to_owned(),
            Act::Garbled => "garbled".to_owned(),
            Act::Close => "close".to_owned(),
            Act::Daemon => "daemon".to_owned(),
            Act::Remember => format!("note {WORD}"),
            Act::Recall => "recall".to_owned(),
        })
    }

    fn break_down(&self, broken: bool) -> bool {
        if broken {
            std::fs::remove_file(self.peer()).unwrap();
        } else {
            symlink(PEER, self.peer()).unwrap();
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acp_agent_conforms() {
    conform("acp", &AcpFixture::new("load fork close"), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acp_agent_that_cannot_copy_sessions_conforms() {
    conform("acp (resume)", &AcpFixture::new("resume hermes"), &[]).await;
}
