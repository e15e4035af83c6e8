//! A question whose relay ends: nobody waits for its answer any more, and its message says so.

use super::{BUTTONS, PLAIN, Stubborn, ask, owner, press, shown, start_asking};
use crate::support::memory_relay::Running;
use crate::support::wait::eventually;
use hermes_relay::agent::PromptAnswer;
use hermes_relay::config::Settings;
use hermes_relay::relay::SeenOp;
use std::path::Path;

/// What stands under a question that nobody is asked any more.
pub(super) const OVER: &str = "No longer asked";

/// A relay whose agent asks, and whose turns are not run again.
async fn start(dir: &Path, ops: &[&str]) -> Running {
    start_asking(dir, Stubborn::default(), ops, |_| {}).await
}

#[tokio::test]
async fn a_question_that_was_open_is_closed_by_the_next_start() {
    for ops in [BUTTONS, PLAIN] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start(dir.path(), ops).await;
        let question = ask(&relay, "a", "1").await;
        relay.crash().await;
        let relay = start(dir.path(), ops).await;
        let seen = relay
            .seen("the end of the question", |seen| {
                seen.ops
                    .iter()
                    .any(|op| op.kind() == Some("edit") && op.text().is_some_and(|text| text.contains(OVER)))
            })
            .await;
        let edit = seen.ops.iter().find(|op| op.kind() == Some("edit")).unwrap();
        assert_eq!(edit.chat(), Some("a"));
        assert_eq!(edit.action["message_id"], question.message_id);
        assert!(edit.text().unwrap().starts_with("May I"), "{edit:?}");
        // A press that comes all the same does nothing.
        let late = press(&question, "o0", &owner("a"));
        relay.connector.deliver_buffered("late", late).await.unwrap();
        relay.seen("a press", |seen| seen.acked("late") == 1).await;
        relay.stop().await;
        // It is closed once.
        assert_eq!(edits_of_a_start(dir.path(), ops).await, 0);
    }
}

#[tokio::test]
async fn a_late_answer_after_a_restart_decides_nothing_and_reaches_no_agent() {
    for is_killed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let adjust = |settings: &mut Settings| settings.shutdown.drain_secs = 0;
        let relay = start_asking(dir.path(), Stubborn::default(), PLAIN, adjust).await;
        ask(&relay, "a", "1").await;
        relay.deliver("a", "2", "ask more").await;
        relay
            .seen("a second message", |seen| seen.acked("a-2") == 1)
            .await;
        if is_killed {
            relay.crash().await;
        } else {
            relay.stop().await;
        }
        let agent = Stubborn::default();
        let relay = start_asking(dir.path(), agent.clone(), PLAIN, adjust).await;
        let second = shown(&relay, "a").await;
        assert!(second.text().unwrap().contains("/approve A2"), "{second:?}");
        for (id, late) in [("3", "/approve A1"), ("4", "A1 1")] {
            relay.deliver("a", id, late).await;
        }
        let late = "That question is no longer open.";
        relay
            .seen("two notices", |seen| {
                seen.texts("a").iter().filter(|text| **text == late).count() == 2
            })
            .await;
        assert_eq!(agent.answers(), []);
        relay.deliver("a", "5", "/approve A2").await;
        relay
            .seen("an answer", |seen| seen.texts("a").contains(&"done"))
            .await;
        relay
            .wait_for_status("nothing else runs", |status| status.sessions_active == 0)
            .await;
        assert_eq!(agent.answers(), [PromptAnswer::Chosen("yes".to_owned())]);
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_question_that_was_answered_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS).await;
    let question = ask(&relay, "a", "1").await;
    let answer = press(&question, "o0", &owner("a"));
    relay.connector.deliver_buffered("p", answer).await.unwrap();
    relay
        .seen("an answer", |seen| seen.texts("a").contains(&"done"))
        .await;
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.crash().await;
    assert_eq!(edits_of_a_start(dir.path(), BUTTONS).await, 0);
}

#[tokio::test]
async fn a_question_that_ends_while_the_chat_is_out_of_reach_is_closed_later() {
    for is_restarted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let agent = Stubborn::default();
        let adjust = |settings: &mut Settings| settings.prompts.timeout_secs = 1;
        let mut relay = start_asking(dir.path(), agent.clone(), BUTTONS, adjust).await;
        let question = ask(&relay, "a", "1").await;
        relay.connector.drop_connection();
        eventually("the question is over", async || {
            (agent.answers() == [PromptAnswer::TimedOut]).then_some(())
        })
        .await;
        relay
            .wait_for_status("the turn is over", |status| status.turns_running == 0)
            .await;
        if is_restarted {
            relay.crash().await;
            relay = start(dir.path(), BUTTONS).await;
        } else {
            relay.connector.restore();
        }
        let ends = |op: &SeenOp| op.kind() == Some("edit") && op.action["message_id"] == question.message_id;
        relay
            .seen("the end of the question", |seen| seen.ops.iter().any(ends))
            .await;
        relay.replies("a", 1).await;
        relay.stop().await;
        assert_eq!(edits_of_a_start(dir.path(), BUTTONS).await, 0);
    }
}

/// How many messages a relay edits that is started and answers a command.
async fn edits_of_a_start(dir: &Path, ops: &[&str]) -> usize {
    let relay = start(dir, ops).await;
    relay.deliver("b", "2", "/status").await;
    relay.replies("b", 1).await;
    let seen = relay.stop().await;
    seen.ops.iter().filter(|op| op.kind() == Some("edit")).count()
}
