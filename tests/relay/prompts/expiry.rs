//! What ends a question that nobody answered, and what does not wait for one.

use super::{BUTTONS, PLAIN, Stubborn, ask, owner, press, shown, start, start_asking};
use crate::support::memory_relay::event;
use crate::support::small_disk::SmallDisk;
use hermes_relay::agent::PromptAnswer;
use hermes_relay::config::BusyMode;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Longest until an agent that waits for an answer is released.
const RELEASED: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_question_that_nobody_answers_in_time_is_denied_and_reports_it() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |settings| settings.prompts.timeout_secs = 1).await;
    let question = ask(&relay, "a", "1").await;
    assert_eq!(question.action["timeout_s"], json!(1));
    let replies = relay.replies("a", 3).await;
    assert_eq!(replies[2], "echo: nobody answered hi");
    let status = relay.wait_for_turns(0).await;
    assert_eq!((status.prompts_open, status.tally.prompts_expired), (0, 1));
    let late = press(&question, "o0", &owner("a"));
    relay.connector.deliver_buffered("late", late).await.unwrap();
    let replies = relay.replies("a", 4).await;
    assert_eq!(replies[3], "That question is no longer open.");
    let seen = relay.stop().await;
    let edit = seen.ops.iter().find(|op| op.kind() == Some("edit")).unwrap();
    assert_eq!(edit.action["message_id"], json!("out-1"));
    assert_eq!((seen.acked("late"), seen.texts("a").len()), (1, 4));
}

#[tokio::test]
async fn an_interrupt_releases_an_agent_that_waits_for_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Stubborn::default();
    let relay = start_asking(dir.path(), agent.clone(), BUTTONS, |settings| {
        settings.sessions.grace_secs = 600;
    })
    .await;
    ask(&relay, "a", "1").await;
    relay.interrupt("a").await;
    let status = relay.wait_for_turns(0).await;
    assert_eq!((status.prompts_open, status.tally.turns_stopped), (0, 1));
    assert_eq!(agent.answers(), [PromptAnswer::Cancelled]);
    let replies = relay.replies("a", 2).await;
    assert!(replies[1].ends_with("⏹ No longer asked"), "{replies:?}");
    relay.stop().await;
}

#[tokio::test]
async fn a_newer_message_takes_the_question_back_where_messages_interrupt() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), PLAIN, |settings| {
        settings.sessions.busy_mode = BusyMode::Interrupt;
    })
    .await;
    ask(&relay, "a", "1").await;
    relay.deliver("a", "2", "never mind").await;
    let replies = relay.replies("a", 3).await;
    assert!(replies[1].ends_with("⏹ No longer asked"), "{replies:?}");
    assert_eq!(replies[2], "echo: never mind");
    assert_eq!(relay.wait_for_turns(0).await.prompts_open, 0);
    relay.stop().await;
}

#[tokio::test]
async fn an_agent_that_gave_up_takes_its_question_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Stubborn {
        question_timeout: Some(Duration::from_secs(1)),
        ..Stubborn::default()
    };
    let relay = start_asking(dir.path(), agent, BUTTONS, |settings| {
        settings.shutdown.drain_secs = 0;
    })
    .await;
    shown_and_taken_back(&relay).await;
    assert_eq!(relay.handle.status().await.unwrap().turns_running, 1);
    relay.stop().await;
}

async fn shown_and_taken_back(relay: &crate::support::memory_relay::Running) {
    relay.deliver("a", "1", "x").await;
    shown(relay, "a").await;
    let replies = relay.replies("a", 2).await;
    assert!(replies[1].ends_with("⏹ No longer asked"), "{replies:?}");
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 0);
}

#[tokio::test]
async fn the_end_of_the_relay_takes_questions_back() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Stubborn::default();
    let relay = start_asking(dir.path(), agent.clone(), BUTTONS, |settings| {
        settings.shutdown.drain_secs = 0;
        settings.sessions.interrupted_notice = None;
    })
    .await;
    ask(&relay, "a", "1").await;
    let began = Instant::now();
    let seen = relay.stop().await;
    assert!(began.elapsed() < RELEASED, "{:?}", began.elapsed());
    assert_eq!(agent.answers(), [PromptAnswer::Cancelled]);
    assert!(seen.texts("a")[1].ends_with("⏹ No longer asked"), "{seen:?}");
}

#[tokio::test]
async fn nothing_waits_for_a_question_but_the_turn_that_asks_it() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = ask(&relay, "a", "1").await;
    relay.deliver("a", "2", "next").await;
    for chat in ["b", "c"] {
        relay.deliver(chat, "1", "hello").await;
        assert_eq!(relay.replies(chat, 1).await, ["echo: hello"]);
    }
    relay.handle.send("a", "by the way").await.unwrap();
    let other = ask(&relay, "d", "1").await;
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 2);
    let answer = press(&other, "o0", &owner("d"));
    relay.connector.deliver(answer).await.unwrap();
    assert_eq!(relay.replies("d", 3).await[2], "echo: allowed once hi");
    let answer = press(&question, "o0", &owner("a"));
    relay.connector.deliver(answer).await.unwrap();
    let replies = relay.replies("a", 5).await;
    assert_eq!(replies[1], "by the way");
    assert_eq!(replies[3..], ["echo: allowed once hi", "echo: next"]);
    relay.stop().await;
}

#[tokio::test]
async fn one_question_too_many_is_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |settings| settings.prompts.max_open = 1).await;
    ask(&relay, "a", "1").await;
    relay.deliver("b", "1", "ask hi").await;
    assert_eq!(
        relay.replies("b", 1).await,
        ["echo: the question was taken back hi"]
    );
    assert_eq!(relay.handle.status().await.unwrap().tally.prompts_opened, 1);
    relay.interrupt("a").await;
    relay.wait_for_turns(0).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_the_journal_cannot_hold_counts_once_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path(), 2048) else {
        return;
    };
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = ask(&relay, "a", "1").await;
    disk.fill();
    let mut answer = press(&question, "o0", &owner("a"));
    answer["prompt_response"]["label"] = json!("x".repeat(200_000));
    relay.connector.deliver_buffered("p1", answer).await.unwrap();
    let status = relay
        .wait_for_status("a refusal", |status| status.tally.refused_by_journal >= 1)
        .await;
    assert_eq!((status.prompts_open, status.turns_running), (1, 1));
    disk.free();
    relay.seen("an ack", |seen| seen.acked("p1") == 1).await;
    assert_eq!(relay.replies("a", 3).await[2], "echo: allowed once hi");
    relay.connector.deliver(event("a", "2", "on")).await.unwrap();
    relay.replies("a", 4).await;
    relay.stop().await;
    drop(disk);
}
