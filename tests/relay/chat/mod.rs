//! What people do in a chat beside talking: models, modes, conversations and projects, with an agent that speaks ACP.

mod conversations;
mod preferences;
mod projects;
#[cfg(feature = "dev")]
mod transcripts;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::prompts::PLAIN;
pub(crate) use crate::prompts::start_asking as start;
use crate::support::memory_relay::{Running, event};
use hermes_relay::agent::{
    AcpAgent, AcpSettings, Agent, AgentCommand, AgentFuture, AgentInfo, BaseEnv, ListedSession,
    PreferenceAnswer, PreferenceRequest, Turn, TurnEnd,
};
use hermes_relay::relay::SeenOp;
use hermes_relay::wire::SessionKey;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Messages so far: an id is never used twice, also after a restart.
static MESSAGES: AtomicU64 = AtomicU64::new(1);

/// The scripted agent of the ACP tests.
const PEER: &str = env!("CARGO_BIN_EXE_acp_peer");

/// An agent that a relay can be started with again.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<AcpAgent>);

impl Scripted {
    /// An agent that can do these things and keeps its sessions there.
    pub(crate) fn new(store: &Path, flags: &str) -> Self {
        let mut settings = AcpSettings {
            argv: vec![PEER.to_owned()],
            ..AcpSettings::default()
        };
        let env = &mut settings.env.0;
        env.insert("ACP_AGENT".to_owned(), flags.to_owned());
        let store = store.to_str().unwrap().to_owned();
        env.insert("ACP_AGENT_STORE".to_owned(), store);
        let base = BaseEnv::new(std::iter::empty());
        Self(Arc::new(AcpAgent::new("tested", settings, &base).unwrap()))
    }
}

impl Agent for Scripted {
    fn info(&self) -> AgentInfo {
        self.0.info()
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        self.0.run(turn)
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        self.0.forget(session)
    }

    fn prefer(&self, turn: Turn, request: PreferenceRequest) -> AgentFuture<'_, PreferenceAnswer> {
        self.0.prefer(turn, request)
    }

    fn list_sessions<'a>(&'a self, workdir: Option<&'a Path>) -> AgentFuture<'a, Vec<ListedSession>> {
        self.0.list_sessions(workdir)
    }

    fn commands(&self) -> Vec<AgentCommand> {
        self.0.commands()
    }

    fn shutdown(&self) -> AgentFuture<'_, ()> {
        self.0.shutdown()
    }
}

/// A relay with the scripted agent, which keeps its files in `store`, on a platform without buttons.
pub(crate) async fn start_plain(dir: &TempDir, store: &TempDir, flags: &str) -> Running {
    start(dir.path(), Scripted::new(store.path(), flags), PLAIN, |_| {}).await
}

/// Writes something and waits for the answer, which is the last message then.
pub(crate) async fn say(relay: &Running, chat: &str, text: &str) -> String {
    let before = relay.connector.record().borrow().texts(chat).len();
    let number = MESSAGES.fetch_add(1, Ordering::Relaxed);
    relay.deliver(chat, &format!("m{number}"), text).await;
    relay.replies(chat, before + 1).await.pop().unwrap()
}

/// The op that shows the last list.
pub(crate) async fn list(relay: &Running, chat: &str) -> SeenOp {
    let is_list = |op: &SeenOp| op.kind() == Some("prompt") && op.chat() == Some(chat);
    let seen = relay.seen("a list", |seen| seen.ops.iter().any(is_list)).await;
    seen.ops.into_iter().rev().find(is_list).unwrap()
}

/// The message that a button of a list sends.
pub(crate) fn press(list: &SeenOp, option: &str, by: &str, id: &str) -> Value {
    let mut event = event(list.chat().unwrap(), id, "");
    event["source"]["user_id"] = json!(by);
    event["prompt_response"] = json!({"prompt_id": list.action["prompt_id"], "option_id": option});
    event
}
