//! Hours in which nothing rings, and questions that ring.

use super::{notify, platform, terse, text};
use crate::support::memory_relay::{Running, event, start_on};
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::agent::{EchoAgent, TurnEnd};
use hermes_relay::config::Settings;
use hermes_relay::relay::SeenOp;
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Hours around now, in UTC.
fn hours_around_now() -> String {
    let secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let hour = secs / 3600 % 24;
    format!("{:02}:00-{:02}:00", (hour + 23) % 24, (hour + 2) % 24)
}

async fn start(dir: &Path, adjust: impl FnOnce(&mut Settings)) -> Running {
    start_on(
        dir,
        EchoAgent,
        &platform(&["send", "edit", "prompt"]),
        |settings| {
            terse(settings);
            settings.cron.timezone = Some("UTC".to_owned());
            adjust(settings);
        },
    )
    .await
}

/// Writes, and gives whether the answer rings.
async fn rings(relay: &Running, id: &str) -> bool {
    let before = relay.connector.record().borrow().ops.len();
    relay.deliver("a", id, "hi").await;
    let seen = relay.seen("an answer", |seen| seen.ops.len() > before).await;
    let answer = seen.ops.back().unwrap();
    assert_eq!(text(answer), "echo: hi");
    notify(answer) == &json!(true)
}

/// Writes a command, and gives what it answers.
async fn command(relay: &Running, id: &str, written: &str) -> String {
    let before = relay.connector.record().borrow().ops.len();
    relay.deliver("a", id, written).await;
    let seen = relay.seen("an answer", |seen| seen.ops.len() > before).await;
    text(seen.ops.back().unwrap()).to_owned()
}

#[tokio::test]
async fn nothing_rings_in_quiet_hours_unless_a_person_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let hours = hours_around_now();
    let adjust = |settings: &mut Settings| settings.chat.quiet_hours = Some(hours.parse().unwrap());
    let relay = start(dir.path(), adjust).await;
    assert!(!rings(&relay, "1").await);
    assert!(command(&relay, "2", "/quiet").await.contains(&hours));
    let off = command(&relay, "3", "/quiet off").await;
    assert_eq!(off, "Messages ring for you at any time from now on.");
    assert!(rings(&relay, "4").await);
    relay.stop().await;
    // What somebody chose is known after a restart.
    let relay = start(dir.path(), adjust).await;
    assert!(rings(&relay, "5").await);
    assert!(command(&relay, "6", "/quiet").await.starts_with("Messages ring"));
    relay.stop().await;
}

#[tokio::test]
async fn an_answer_that_grows_rings_nobody_in_quiet_hours() {
    for (name, grows_by) in [("discord", "edit"), ("slack", "draft")] {
        for is_quiet in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let is_shown = Arc::new(Notify::new());
            let agent = ScriptedAgent::sharing(&is_shown, async |turn, is_shown| {
                turn.events.text("Once upon ").await;
                is_shown.notified().await;
                turn.events.text("a time").await;
                TurnEnd::Completed
            });
            let platform = CapabilityDescriptor {
                platform: name.into(),
                supports_draft_streaming: grows_by == "draft",
                ..platform(&["send", grows_by])
            };
            let relay = start_on(dir.path(), agent, &platform, |settings| {
                settings.streaming.typing = false;
                settings.streaming.reactions = false;
                settings.cron.timezone = Some("UTC".to_owned());
                settings.chat.quiet_hours = is_quiet.then(|| hours_around_now().parse().unwrap());
            })
            .await;
            let mut message = event("a", "1", "hi");
            message["source"]["platform"] = json!(name);
            relay.connector.deliver_buffered("1", message).await.unwrap();
            relay.seen("the beginning", |seen| !seen.ops.is_empty()).await;
            is_shown.notify_one();
            let is_whole = |op: &SeenOp| text(op) == "Once upon a time";
            let seen = relay
                .seen("the whole answer", |seen| seen.ops.iter().any(is_whole))
                .await;
            let whole = seen.ops.iter().find(|op| is_whole(op)).unwrap();
            assert_eq!((whole.kind(), notify(whole)), (Some(grows_by), &json!(!is_quiet)));
            relay.stop().await;
        }
    }
}

#[tokio::test]
async fn a_person_has_quiet_hours_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    assert!(rings(&relay, "1").await);
    let set = command(&relay, "2", &format!("/quiet {}", hours_around_now())).await;
    assert!(set.starts_with("Quiet hours "), "{set}");
    assert!(!rings(&relay, "3").await);
    let unreadable = command(&relay, "4", "/quiet tonight").await;
    assert!(unreadable.contains("/quiet 22:00-07:00"), "{unreadable}");
    assert!(!rings(&relay, "5").await, "what cannot be read changes nothing");
    // Somebody else hears what comes.
    relay.deliver("b", "1", "hi").await;
    let seen = relay
        .seen("another answer", |seen| seen.texts("b").len() == 1)
        .await;
    assert_eq!(notify(seen.ops.back().unwrap()), &json!(true));
    relay.stop().await;
}

#[tokio::test]
async fn a_question_rings_reminds_once_at_half_of_its_time_and_is_silent_in_quiet_hours() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.prompts.timeout_secs = 4).await;
    relay.deliver("a", "1", "ask hi").await;
    let seen = relay
        .seen("a reminder", |seen| {
            seen.ops.iter().any(|op| text(op).contains("still waits"))
        })
        .await;
    let question = seen.ops.iter().find(|op| op.kind() == Some("prompt")).unwrap();
    let reminder = seen.ops.back().unwrap();
    assert_eq!(notify(question), &json!(true));
    assert_eq!(notify(reminder), &json!(true));
    assert_eq!(reminder.action["reply_to"], json!(question.message_id));
    let seen = relay
        .seen("the end", |seen| {
            seen.ops.iter().any(|op| text(op).contains("nobody answered"))
        })
        .await;
    let reminders = seen.ops.iter().filter(|op| text(op).contains("still waits"));
    assert_eq!(reminders.count(), 1);
    relay
        .deliver("a", "2", &format!("/quiet {}", hours_around_now()))
        .await;
    relay.deliver("a", "3", "ask again").await;
    let seen = relay
        .seen("a second question", |seen| {
            let is_prompt = |op: &&SeenOp| op.kind() == Some("prompt");
            seen.ops.iter().filter(is_prompt).count() == 2
        })
        .await;
    let question = seen.ops.iter().rfind(|op| op.kind() == Some("prompt")).unwrap();
    assert_eq!(notify(question), &json!(false));
    relay.stop().await;
}

#[tokio::test]
async fn a_question_may_wait_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| {
        settings.prompts.timeout_secs = 0;
        settings.shutdown.drain_secs = 0;
    })
    .await;
    relay.deliver("a", "1", "ask hi").await;
    let seen = relay
        .seen("a question", |seen| {
            seen.ops.iter().any(|op| op.kind() == Some("prompt"))
        })
        .await;
    assert_eq!(seen.ops[0].action.get("timeout_s"), None);
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1);
    relay.stop().await;
}
