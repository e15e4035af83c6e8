//! What a killed relay leaves shown of a running turn: the next start puts it away.

use crate::support::memory_relay::{Running, event, start_answering};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;
use hermes_relay::access::Mode;
use hermes_relay::agent::{AgentInfo, TurnEnd};
use hermes_relay::relay::{Record, ReplyMode};
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const NOTICE: &str = "cut short";
const HALF: &str = "Half of an answer";

/// An agent whose first turn writes this and hangs; the others answer at once.
fn agent(first: &'static str, repeatable: bool) -> ScriptedAgent {
    let turns = Arc::new(AtomicUsize::new(0));
    let agent = ScriptedAgent::sharing(&turns, move |turn, turns| async move {
        if turns.fetch_add(1, Ordering::SeqCst) == 0 {
            turn.events.text(first).await;
            turn.cancel.cancelled().await;
            return TurnEnd::Cancelled { confirmed: true };
        }
        turn.events.text("the answer").await;
        TurnEnd::Completed
    });
    agent.with_info(AgentInfo {
        name: "writer".into(),
        repeatable,
        ..AgentInfo::default()
    })
}

async fn start(dir: &Path, agent: &ScriptedAgent, platform: &str, ops: &[&str], mode: Mode) -> Running {
    start_with_answers(dir, agent, platform, ops, (mode, ReplyMode::Apply)).await
}

async fn start_with_answers(
    dir: &Path,
    agent: &ScriptedAgent,
    platform: &str,
    ops: &[&str],
    (mode, answers): (Mode, ReplyMode),
) -> Running {
    let platform = CapabilityDescriptor {
        supports_draft_streaming: ops.contains(&"draft"),
        supported_ops: ops.iter().map(|op| (*op).to_owned()).collect(),
        ..CapabilityDescriptor::placeholder(platform)
    };
    start_answering(dir, agent.clone(), &platform, answers, |settings| {
        settings.streaming.interval_ms = 10;
        settings.streaming.typing_after_ms = 0;
        settings.sessions.interrupted_notice = Some(NOTICE.to_owned());
        settings.access.mode = mode;
    })
    .await
}

/// The reactions that the chat got: added or removed.
fn reactions(seen: &Record) -> Vec<(bool, String)> {
    let reactions = seen.ops.iter().filter(|op| op.kind() == Some("react"));
    let shown = reactions.map(|op| {
        let emoji = op.action["emoji"].as_str().unwrap_or_default().to_owned();
        (op.action["remove"] == true, emoji)
    });
    shown.collect()
}

#[tokio::test]
async fn the_reaction_of_a_turn_that_a_kill_ended_is_removed() {
    const OPS: [&str; 2] = ["send", "react"];
    for (repeatable, mode, text) in [
        (false, Mode::default(), Some(NOTICE)),
        (true, Mode::default(), Some("the answer")),
        (false, Mode::List, None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let agent = agent("", repeatable);
        let relay = start(dir.path(), &agent, "discord", &OPS, Mode::default()).await;
        relay.deliver("a", "1", "write").await;
        let seen = relay.seen("a reaction", |seen| !seen.ops.is_empty()).await;
        assert_eq!(reactions(&seen), [(false, "\u{1f440}".to_owned())]);
        relay.crash().await;
        let relay = start(dir.path(), &agent, "discord", &OPS, mode).await;
        let removed = (true, "\u{1f440}".to_owned());
        let seen = relay
            .seen("the reaction is removed", |seen| {
                reactions(seen).contains(&removed)
            })
            .await;
        let first = &reactions(&seen)[0];
        assert_eq!(*first, removed);
        if let Some(text) = text {
            assert_eq!(relay.replies("a", 1).await, [text]);
        }
        let seen = relay.stop().await;
        let left = reactions(&seen)
            .iter()
            .fold(0, |left, (is_removed, emoji)| match emoji.as_str() {
                "\u{1f440}" if *is_removed => 0,
                "\u{1f440}" => 1,
                _ => left,
            });
        assert_eq!(left, 0, "{:?}", reactions(&seen));
    }
}

#[tokio::test]
async fn the_reaction_of_a_turn_that_a_kill_ended_is_removed_although_the_connection_ends_before_that_is_confirmed()
 {
    const OPS: [&str; 2] = ["send", "react"];
    let dir = tempfile::tempdir().unwrap();
    let agent = agent("", false);
    let relay = start(dir.path(), &agent, "discord", &OPS, Mode::default()).await;
    relay.deliver("a", "1", "write").await;
    relay.seen("a reaction", |seen| !seen.ops.is_empty()).await;
    relay.crash().await;
    let answers = (Mode::default(), ReplyMode::Hold);
    let relay = start_with_answers(dir.path(), &agent, "discord", &OPS, answers).await;
    for sent in 1..=2 {
        relay
            .seen("the reaction is removed", |seen| reactions(seen).len() == sent)
            .await;
        relay.connector.drop_connection();
        relay.seen("no connection", |seen| !seen.connected).await;
        relay.connector.restore();
    }
    let seen = relay
        .seen("the reaction is removed", |seen| reactions(seen).len() == 3)
        .await;
    assert_eq!(reactions(&seen), vec![(true, "\u{1f440}".to_owned()); 3]);
    relay.connector.set_reply_mode(ReplyMode::Apply);
    let last = seen.ops.iter().rfind(|op| op.kind() == Some("react")).unwrap();
    assert!(relay.connector.answer(last.id, &json!({ "success": true })));
    assert_eq!(relay.replies("a", 1).await, [NOTICE]);
    let seen = relay.stop().await;
    assert_eq!(reactions(&seen).len(), 3, "it is confirmed");
}

#[tokio::test]
async fn the_draft_and_the_status_of_a_turn_that_a_kill_ended_are_put_away_on_slack() {
    const OPS: [&str; 3] = ["send", "draft", "typing"];
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(HALF, false);
    let relay = start(dir.path(), &agent, "slack", &OPS, Mode::default()).await;
    let mut message = event("a", "1", "write");
    message["source"]["platform"] = "slack".into();
    relay.connector.deliver_buffered("a-1", message).await.unwrap();
    let kinds = |seen: &Record| -> Vec<String> {
        let kinds = seen.ops.iter().filter_map(|op| op.kind());
        kinds.map(str::to_owned).collect()
    };
    let seen = relay
        .seen("a draft and a status", |seen| {
            ["draft", "typing"]
                .iter()
                .all(|kind| kinds(seen).iter().any(|seen| seen == kind))
        })
        .await;
    let draft = seen.ops.iter().find(|op| op.kind() == Some("draft")).unwrap();
    eventually("the journal knows the draft", async || {
        let log = fs::read(dir.path().join("journal.db-wal")).unwrap_or_default();
        log.windows(HALF.len()).any(|bytes| bytes == HALF.as_bytes())
    })
    .await;
    relay.crash().await;
    let relay = start(dir.path(), &agent, "slack", &OPS, Mode::default()).await;
    let seen = relay.seen("both ends", |seen| seen.ops.len() == 2).await;
    let sealed = seen.ops.iter().find(|op| op.kind() == Some("draft")).unwrap();
    assert_eq!(sealed.action["draft_id"], draft.action["draft_id"]);
    assert_eq!(sealed.action["final"], true);
    assert_eq!(sealed.text(), Some(&*format!("{HALF}\n\n{NOTICE}")));
    let status = seen.ops.iter().find(|op| op.kind() == Some("typing")).unwrap();
    assert_eq!(status.action["content"], "");
    relay.stop().await;
}
