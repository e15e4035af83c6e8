//! A message that a killed relay leaves half-written: the next start closes it.

use crate::support::memory_relay::{Running, start_on};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;
use hermes_relay::access::Mode;
use hermes_relay::agent::{AgentInfo, TurnEnd};
use hermes_relay::relay::SeenOp;
use hermes_relay::wire::CapabilityDescriptor;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const NOTICE: &str = "cut short";
const HALF: &str = "Half of an answer";

/// An agent that writes half of its answer and hangs; from its second turn on it answers at once.
fn agent(repeatable: bool) -> ScriptedAgent {
    let turns = Arc::new(AtomicUsize::new(0));
    let agent = ScriptedAgent::sharing(&turns, |turn, turns| async move {
        turn.events.text(HALF).await;
        if turns.fetch_add(1, Ordering::SeqCst) == 0 {
            turn.cancel.cancelled().await;
            return TurnEnd::Cancelled { confirmed: true };
        }
        turn.events.text(", and the rest").await;
        TurnEnd::Completed
    });
    agent.with_info(AgentInfo {
        name: "writer".into(),
        repeatable,
        ..AgentInfo::default()
    })
}

async fn start(dir: &Path, agent: &ScriptedAgent, notice: Option<&str>) -> Running {
    start_as(dir, agent, notice, Mode::default()).await
}

/// The same where nobody may write.
async fn start_denying(dir: &Path, agent: &ScriptedAgent, notice: Option<&str>) -> Running {
    start_as(dir, agent, notice, Mode::List).await
}

async fn start_as(dir: &Path, agent: &ScriptedAgent, notice: Option<&str>, mode: Mode) -> Running {
    let platform = CapabilityDescriptor {
        supports_edit: true,
        supported_ops: ["send", "edit"].map(str::to_owned).to_vec(),
        ..CapabilityDescriptor::placeholder("discord")
    };
    start_on(dir, agent.clone(), &platform, |settings| {
        settings.streaming.interval_ms = 10;
        settings.streaming.typing = false;
        settings.streaming.reactions = false;
        settings.sessions.interrupted_notice = notice.map(str::to_owned);
        settings.access.mode = mode;
    })
    .await
}

/// Lets the agent show half of its answer, and kills the relay once the journal knows; returns the message.
async fn crash(dir: &Path, agent: &ScriptedAgent) -> SeenOp {
    let relay = start(dir, agent, None).await;
    relay.deliver("a", "1", "write").await;
    let seen = relay.seen("half of it", |seen| !seen.ops.is_empty()).await;
    eventually("the journal knows what is shown", async || {
        let log = fs::read(dir.join("journal.db-wal")).unwrap_or_default();
        log.windows(HALF.len()).any(|bytes| bytes == HALF.as_bytes())
    })
    .await;
    relay.crash().await;
    let message = seen.ops[0].clone();
    let text = message.text().unwrap_or_default();
    assert!(
        text.starts_with(HALF) && text.len() > HALF.len(),
        "a text and a cursor: {text}"
    );
    message
}

#[tokio::test]
async fn a_half_written_message_loses_its_cursor_and_gets_the_notice() {
    for (notice, closed) in [
        (Some(NOTICE), format!("{HALF}\n\n{NOTICE}")),
        (None, HALF.to_owned()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let agent = agent(false);
        let message = crash(dir.path(), &agent).await;
        let relay = start(dir.path(), &agent, notice).await;
        let seen = relay.seen("an edit", |seen| !seen.ops.is_empty()).await;
        let edit = &seen.ops[0];
        assert_eq!((edit.kind(), edit.text()), (Some("edit"), Some(&*closed)));
        assert_eq!(edit.action["message_id"], *message.message_id);
        relay
            .wait_for_status("settled", |status| status.ops_durable == 0)
            .await;
        assert_eq!(relay.stop().await.ops.len(), 1);
        // Nothing of it is left for a third run.
        let relay = start(dir.path(), &agent, notice).await;
        assert_eq!(relay.stop().await.ops.len(), 0);
    }
}

#[tokio::test]
async fn a_half_written_message_gives_way_to_an_answer_that_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(true);
    let message = crash(dir.path(), &agent).await;
    let relay = start(dir.path(), &agent, Some(NOTICE)).await;
    let whole = format!("{HALF}, and the rest");
    let last = |seen: &hermes_relay::relay::Record| seen.texts("a").last() == Some(&whole.as_str());
    let seen = relay.seen("the whole answer", last).await;
    let edit = &seen.ops[0];
    assert_eq!(edit.kind(), Some("edit"));
    assert_eq!(edit.text(), Some("[interrupted, answering again]"));
    assert_eq!(edit.action["message_id"], *message.message_id);
    assert_eq!(
        seen.ops[1].kind(),
        Some("send"),
        "the answer is a message of its own"
    );
    relay.wait_for_turns(0).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_half_written_message_of_somebody_who_was_denied_is_closed_without_the_notice() {
    for repeatable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let agent = agent(repeatable);
        let message = crash(dir.path(), &agent).await;
        let relay = start_denying(dir.path(), &agent, Some(NOTICE)).await;
        let seen = relay.seen("an edit", |seen| !seen.ops.is_empty()).await;
        let edit = &seen.ops[0];
        assert_eq!((edit.kind(), edit.text()), (Some("edit"), Some(HALF)));
        assert_eq!(edit.action["message_id"], *message.message_id);
        relay
            .wait_for_status("settled", |status| status.ops_durable == 0)
            .await;
        assert_eq!(relay.stop().await.ops.len(), 1);
    }
}
