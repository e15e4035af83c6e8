//! A turn that takes long shows that it lives, and its end rings.

use super::{notify, platform, terse, text};
use crate::support::memory_relay::start_on;
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::agent::{
    AgentEvent, Failure, FailureClass, FileChange, StepState, ToolCall, ToolKind, Turn, TurnEnd,
};
use hermes_relay::relay::Record;
use serde_json::json;
use std::time::Duration;

/// Uses a tool for so many milliseconds, and says two things.
async fn work(turn: Turn, millis: u64) -> TurnEnd {
    turn.events.text("I will look at it.").await;
    let call = |state| {
        AgentEvent::Tool(ToolCall {
            id: "t1".to_owned(),
            title: "Run the tests".to_owned(),
            kind: ToolKind::Execute,
            state,
        })
    };
    turn.events.emit(call(StepState::Running)).await;
    tokio::time::sleep(Duration::from_millis(millis)).await;
    turn.events.emit(call(StepState::Done)).await;
    turn.events.text("All tests pass.").await;
    TurnEnd::Completed
}

fn is_summary(seen: &Record) -> bool {
    seen.ops.iter().any(|op| text(op).starts_with("Done after"))
}

#[tokio::test]
async fn a_long_turn_shows_its_time_and_step_and_its_end_rings() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| work(turn, 2500));
    let relay = start_on(dir.path(), agent, &platform(&["send", "edit"]), |settings| {
        settings.streaming.reactions = false;
        settings.chat.progress_after_secs = 1;
        settings.chat.notify_after_secs = 1;
    })
    .await;
    relay.deliver("a", "1", "go").await;
    let seen = relay.seen("the end of a long turn", is_summary).await;
    let shows_time = |op| text(op).starts_with("\u{23f1} 1 s: Run the tests");
    assert!(seen.ops.iter().any(shows_time), "{:?}", seen.ops);
    let last = seen.ops.iter().rfind(|op| op.kind() == Some("send")).unwrap();
    assert_eq!(text(last), "Done after 2 s: All tests pass.");
    assert_eq!(
        (notify(last), &last.action["reply_to"]),
        (&json!(true), &json!("1"))
    );
    let seen = relay.stop().await;
    let progress = seen.ops.iter().rfind(|op| text(op).contains('\u{23f1}')).unwrap();
    assert_eq!(text(progress), "\u{23f1} 2 s\n\u{2713} Run the tests");
}

#[tokio::test]
async fn the_time_is_shown_where_tool_calls_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| work(turn, 1800));
    let relay = start_on(dir.path(), agent, &platform(&["send", "edit"]), |settings| {
        settings.streaming.tool_progress = false;
        settings.chat.progress_after_secs = 1;
    })
    .await;
    relay.deliver("a", "1", "go").await;
    relay
        .seen("the time", |seen| {
            seen.ops
                .iter()
                .any(|op| text(op) == "\u{23f1} 1 s: Run the tests")
        })
        .await;
    relay.wait_for_turns(0).await;
    let seen = relay.stop().await;
    assert!(!seen.ops.iter().any(|op| text(op).contains('\u{2713}')));
}

#[tokio::test]
async fn a_short_turn_ends_with_its_answer_alone() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| work(turn, 0));
    let relay = start_on(dir.path(), agent, &platform(&["send", "edit"]), terse).await;
    relay.deliver("a", "1", "go").await;
    relay.replies("a", 1).await;
    relay.wait_for_turns(0).await;
    let seen = relay.stop().await;
    let seen: Vec<&str> = seen.ops.iter().map(text).collect();
    assert_eq!(seen, ["I will look at it.\n\nAll tests pass."]);
}

#[tokio::test]
async fn a_long_turn_sends_no_summary_where_it_is_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| work(turn, 1200));
    let relay = start_on(dir.path(), agent, &platform(&["send", "edit"]), |settings| {
        terse(settings);
        (settings.chat.notify_after_secs, settings.chat.progress_after_secs) = (0, 0);
        settings.streaming.tool_progress = false;
    })
    .await;
    relay.deliver("a", "1", "go").await;
    relay.replies("a", 1).await;
    relay.wait_for_turns(0).await;
    assert_eq!(relay.stop().await.ops.len(), 1);
}

#[tokio::test]
async fn the_end_of_a_long_turn_rings_once_although_its_answer_is_a_new_message() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| work(turn, 1200));
    let relay = start_on(dir.path(), agent, &platform(&["send", "edit"]), |settings| {
        terse(settings);
        settings.streaming.tool_progress = false;
        (settings.chat.notify_after_secs, settings.chat.progress_after_secs) = (1, 0);
    })
    .await;
    relay.deliver("a", "1", "go").await;
    relay.seen("the end of a long turn", is_summary).await;
    let seen = relay.stop().await;
    let rings: Vec<_> = seen.ops.iter().map(|op| (text(op), notify(op))).collect();
    assert_eq!(
        rings,
        [
            ("I will look at it.\n\nAll tests pass.", &json!(false)),
            ("Done after 1 s: All tests pass.", &json!(true)),
        ]
    );
}

#[tokio::test]
async fn a_failure_below_a_text_that_is_shown_rings_whenever_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn: Turn| async move {
        turn.events.text("I begin with something long enough.").await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        TurnEnd::Failed(Failure::new(FailureClass::Internal, "The disk is full.", "x"))
    });
    let relay = start_on(dir.path(), agent, &platform(&["send", "edit"]), |settings| {
        settings.streaming.reactions = false;
        settings.streaming.typing = false;
    })
    .await;
    relay.deliver("a", "1", "go").await;
    let seen = relay
        .seen("the failure", |seen| {
            seen.ops.iter().any(|op| text(op).starts_with("Failed after"))
        })
        .await;
    let last = seen.ops.back().unwrap();
    assert_eq!(text(last), "Failed after 0 s: The disk is full.");
    assert_eq!((last.kind(), notify(last)), (Some("send"), &json!(true)));
    relay.stop().await;
}

#[tokio::test]
async fn changes_come_as_text_where_there_are_no_files_and_an_agent_without_reports_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn: Turn| async move {
        if turn.input.text == "edit" {
            let change = FileChange {
                path: "a.txt".to_owned(),
                old: None,
                new: Some("one\n".to_owned()),
            };
            turn.events.emit(AgentEvent::Changed(change)).await;
        }
        turn.events.text("done").await;
        TurnEnd::Completed
    });
    let relay = start_on(dir.path(), agent, &platform(&["send", "edit"]), |settings| {
        terse(settings);
        let people = r#"{"people": [{"platform": "discord", "user": "user-of-a", "role": "user"},
            {"platform": "discord", "user": "user-of-b", "role": "guest"}]}"#;
        settings.access = serde_json::from_str(people).unwrap();
    })
    .await;
    relay.deliver("b", "1", "/diff").await;
    let told = relay.replies("b", 1).await;
    assert_eq!(told, ["Your role does not allow that."]);
    relay.deliver("a", "1", "hi").await;
    relay.replies("a", 1).await;
    relay.deliver("a", "2", "/diff").await;
    let told = relay.replies("a", 2).await;
    assert!(told[1].ends_with("does not report what it changes."), "{told:?}");
    relay.deliver("a", "3", "edit").await;
    relay.replies("a", 3).await;
    relay.deliver("a", "4", "/diff").await;
    let told = relay.replies("a", 4).await;
    assert_eq!(
        told[3],
        "~~~diff\n--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,1 @@\n+one\n~~~"
    );
    relay.stop().await;
}
