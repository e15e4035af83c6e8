//! A connector that will not have one part of an answer gets no other part of it, before or after a restart.

use crate::support::memory_relay::{Running, start_answering};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;
use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::agent::{AgentEvent, Media, MediaLocation, TurnEnd};
use hermes_relay::config::ResendUnknown;
use hermes_relay::config::{BusyMode, Settings};
use hermes_relay::relay::{Record, ReplyMode, SeenOp};
use hermes_relay::store::{Inspector, Section};
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Notify;

/// Says or sends what each word of the message names, one after the other: `picture`, a text, or `wait` for the word. Takes
/// what it is told meanwhile, and says nothing of it.
fn painter(go_on: &Arc<Notify>) -> ScriptedAgent {
    let agent = ScriptedAgent::sharing(go_on, |turn, go_on| async move {
        for word in turn.input.text.split_whitespace() {
            match word {
                "wait" => go_on.notified().await,
                "picture" => turn.events.emit(picture()).await,
                text => turn.events.text(text).await,
            }
        }
        TurnEnd::Completed
    });
    agent.steered(|_| true)
}

fn picture() -> AgentEvent {
    AgentEvent::Media(Media {
        location: MediaLocation::Url("https://files.example/cat.png".to_owned()),
        caption: String::new(),
        kind: None,
        name: None,
    })
}

fn platform() -> CapabilityDescriptor {
    CapabilityDescriptor {
        supported_ops: ["send", "edit", "send_media"].map(str::to_owned).to_vec(),
        max_message_length: 600,
        ..CapabilityDescriptor::placeholder("discord")
    }
}

fn declined() -> Value {
    json!({"success": false, "code": "egress_declined", "error": "not in this chat"})
}

fn declining() -> ReplyMode {
    ReplyMode::Refuse("egress declined: not in this chat".to_owned())
}

async fn start(dir: &Path, go_on: &Arc<Notify>, answering: ReplyMode, mode: StreamMode) -> Running {
    let adjust = |settings: &mut Settings| {
        settings.streaming.mode = mode;
        settings.sessions.resend_unknown = ResendUnknown::All;
    };
    start_answering(dir, painter(go_on), &platform(), answering, adjust).await
}

fn ops(seen: &Record) -> Vec<&str> {
    let ops = seen.ops.iter().filter(|op| op.chat() == Some("a"));
    ops.filter_map(SeenOp::kind).collect()
}

/// Waits for the first op of the chat and declines it; from then on everything is done.
async fn decline_first(relay: &Running) {
    let seen = relay.seen("the first op", |seen| !ops(seen).is_empty()).await;
    relay.connector.set_reply_mode(ReplyMode::Apply);
    assert!(relay.connector.answer(seen.ops[0].id, &declined()));
    relay
        .wait_for_status("a refusal", |status| status.tally.ops_refused == 1)
        .await;
}

/// Whatever else there was to say has had its chance when a later message is answered.
async fn received_later(relay: Running, expected: &[&str]) {
    relay
        .wait_for_status("nothing pending", |status| {
            status.turns_running == 0 && status.ops_durable == 0
        })
        .await;
    relay.deliver("a", "later", "later").await;
    relay
        .seen("the later answer", |seen| seen.texts("a").contains(&"later"))
        .await;
    let seen = relay.stop().await;
    let before = |op: &&SeenOp| !op.text().is_some_and(|text| text.starts_with("later"));
    let kinds = seen.ops.iter().filter(before).filter_map(SeenOp::kind);
    assert_eq!(kinds.collect::<Vec<_>>(), expected, "{:?}", seen.texts("a"));
}

#[tokio::test]
async fn a_declined_file_silences_the_turn_that_goes_on() {
    for mode in [StreamMode::Auto, StreamMode::Off] {
        let dir = tempfile::tempdir().unwrap();
        let go_on = Arc::default();
        let relay = start(dir.path(), &go_on, ReplyMode::Hold, mode).await;
        relay.deliver("a", "1", "picture wait words picture more").await;
        decline_first(&relay).await;
        go_on.notify_one();
        received_later(relay, &["send_media"]).await;
    }
}

#[tokio::test]
async fn a_message_that_meets_a_declined_turn_is_answered_by_a_turn_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = Arc::default();
    let steering = |settings: &mut Settings| settings.sessions.busy_mode = BusyMode::Steer;
    let relay = start_answering(
        dir.path(),
        painter(&go_on),
        &platform(),
        ReplyMode::Hold,
        steering,
    )
    .await;
    relay.deliver("a", "1", "picture wait words").await;
    relay.seen("the file", |seen| ops(seen) == ["send_media"]).await;
    relay.deliver("a", "2", "joins").await;
    relay
        .wait_for_status("a steered message", |status| status.tally.steered == 1)
        .await;
    decline_first(&relay).await;
    relay.deliver("a", "3", "own").await;
    relay
        .seen("three acknowledgements", |seen| seen.acks.len() == 3)
        .await;
    go_on.notify_one();
    assert_eq!(
        relay.replies("a", 2).await,
        ["", "own"],
        "the file, and a turn of its own"
    );
    let tally = relay.handle.status().await.unwrap().tally;
    assert_eq!((tally.steered, tally.turns_done), (1, 2));
    relay.stop().await;
}

#[tokio::test]
async fn a_declined_text_keeps_the_files_of_its_turn_back() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = Arc::default();
    let relay = start(dir.path(), &go_on, ReplyMode::Hold, StreamMode::Auto).await;
    relay
        .deliver("a", "1", "some-words-to-show wait picture more")
        .await;
    decline_first(&relay).await;
    go_on.notify_one();
    received_later(relay, &["send"]).await;
}

#[tokio::test]
async fn what_waits_behind_a_declined_file_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = Arc::default();
    let relay = start(dir.path(), &go_on, ReplyMode::Hold, StreamMode::Auto).await;
    relay.deliver("a", "1", "picture words picture more").await;
    relay
        .wait_for_status("the end", |status| status.tally.turns_done == 1)
        .await;
    decline_first(&relay).await;
    received_later(relay, &["send_media"]).await;
}

#[tokio::test]
async fn a_part_that_is_declined_after_a_restart_takes_the_others_along() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = Arc::default();
    let relay = start(dir.path(), &go_on, ReplyMode::Hold, StreamMode::Off).await;
    relay.deliver("a", "1", "picture words picture more").await;
    relay
        .wait_for_status("four pending", |status| {
            status.tally.turns_done == 1 && status.ops_durable == 4
        })
        .await;
    relay.crash().await;
    let relay = start(dir.path(), &go_on, declining(), StreamMode::Off).await;
    let status = relay
        .wait_for_status("nothing pending", |status| status.ops_durable == 0)
        .await;
    assert_eq!((status.tally.ops_recovered, status.tally.ops_refused), (4, 1));
    relay.connector.set_reply_mode(ReplyMode::Apply);
    received_later(relay, &["send_media"]).await;
}

#[tokio::test]
async fn a_file_declined_after_a_restart_drops_the_notice_of_the_interrupted_turn_too() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = Arc::default();
    let relay = start(dir.path(), &go_on, ReplyMode::Hold, StreamMode::Off).await;
    relay.deliver("a", "1", "picture wait words").await;
    relay.seen("the file", |seen| ops(seen) == ["send_media"]).await;
    relay.crash().await;
    let relay = start(dir.path(), &go_on, declining(), StreamMode::Off).await;
    let status = relay
        .wait_for_status("nothing pending", |status| status.ops_durable == 0)
        .await;
    assert_eq!(status.tally.turns_interrupted, 1);
    relay.connector.set_reply_mode(ReplyMode::Apply);
    received_later(relay, &["send_media"]).await;
}

#[tokio::test]
async fn a_turn_that_was_declined_before_a_restart_is_not_reported_as_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = Arc::default();
    let relay = start(dir.path(), &go_on, ReplyMode::Hold, StreamMode::Off).await;
    relay.deliver("a", "1", "picture wait words").await;
    decline_first(&relay).await;
    written_off(dir.path()).await;
    relay.crash().await;
    let relay = start(dir.path(), &go_on, ReplyMode::Apply, StreamMode::Off).await;
    let status = relay
        .wait_for_status("nothing pending", |status| status.ops_durable == 0)
        .await;
    assert_eq!(status.tally.turns_interrupted, 0);
    received_later(relay, &[]).await;
}

/// Waits until no message is unfinished in the journal.
async fn written_off(dir: &Path) {
    let inspector = Inspector::open(dir).unwrap();
    eventually("nothing is unfinished", async || {
        inspector.list(Section::Unfinished, 0, 1).unwrap().is_empty()
    })
    .await;
}

#[tokio::test]
async fn what_is_sent_unasked_is_one_delivery_too() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = Arc::default();
    let relay = start(dir.path(), &go_on, ReplyMode::Apply, StreamMode::Off).await;
    relay.deliver("a", "1", "words").await;
    relay.replies("a", 1).await;
    relay
        .wait_for_status("settled", |status| status.ops_durable == 0)
        .await;
    relay.connector.drop_connection();
    relay.handle.send("a", &"many words ".repeat(200)).await.unwrap();
    relay
        .wait_for_status("some pending", |status| status.ops_durable > 2)
        .await;
    relay.stop().await;
    let relay = start(dir.path(), &go_on, declining(), StreamMode::Off).await;
    relay
        .wait_for_status("nothing pending", |status| status.ops_durable == 0)
        .await;
    relay.connector.set_reply_mode(ReplyMode::Apply);
    relay.handle.send("a", "another").await.unwrap();
    received_later(relay, &["send", "send"]).await;
}
