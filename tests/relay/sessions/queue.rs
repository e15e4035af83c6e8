//! Who is answered when: in order within a chat, side by side between chats, fairly at the limit.

use super::{HANG, start};
use crate::support::memory_relay::start_with;
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::agent::{Agent as _, AgentInfo, EchoAgent};
use hermes_relay::config::{BusyMode, Durability};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_chat_is_answered_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.sessions.max_queue = 4).await;
    let chats = ["a", "b", "c", "d", "e"];
    for id in 0..60 {
        for chat in chats {
            relay.deliver(chat, &id.to_string(), &id.to_string()).await;
        }
        // Now and then the queue runs dry, so that a message may meet a turn that has just ended.
        if id % 7 == 0 {
            relay
                .wait_for_status("quiet", |status| status.sessions_active < 3)
                .await;
        }
    }
    let notice = |text: &String| text.starts_with("Many messages");
    for chat in chats {
        let answers = |texts: Vec<String>| texts.into_iter().filter(|text| !notice(text)).collect::<Vec<_>>();
        relay
            .seen("all answers", |seen| {
                answers(seen.texts(chat).into_iter().map(str::to_owned).collect()).len() == 60
            })
            .await;
        let expected: Vec<String> = (0..60).map(|id| format!("echo: {id}")).collect();
        assert_eq!(answers(relay.replies(chat, 60).await), expected, "{chat}");
    }
    assert_eq!(relay.stop().await.acks.len(), 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_does_not_overtake_one_that_is_still_being_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| {
        // Every commit waits for the disk, so that turns end while the next message is on its way into it.
        settings.journal.durability = Durability::Full;
        settings.sessions.overflow_notice = None;
    })
    .await;
    for id in 0..300 {
        relay.deliver("a", &id.to_string(), &id.to_string()).await;
        // As fast as the relay takes them, one at a time.
        let taken = id + 1;
        relay
            .wait_for_status("taken", |status| status.tally.inbound == taken)
            .await;
    }
    let expected: Vec<String> = (0..300).map(|id| format!("echo: {id}")).collect();
    assert_eq!(relay.replies("a", 300).await, expected);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_chats_that_hang_do_not_hold_up_the_other_ninety() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.shutdown.drain_secs = 0).await;
    for chat in 0..100 {
        let text = if chat % 10 == 0 { HANG } else { "quick" };
        relay.deliver(&format!("c{chat}"), "1", text).await;
    }
    for chat in (0..100).filter(|chat| chat % 10 != 0) {
        assert_eq!(relay.replies(&format!("c{chat}"), 1).await, ["echo: quick"]);
    }
    let status = relay.wait_for_turns(10).await;
    assert_eq!((status.tally.turns_started, status.tally.turns_done), (100, 90));
    let seen = relay.stop().await;
    assert_eq!(seen.texts("c10").len(), 1, "notified of the interruption");
}

#[tokio::test]
async fn an_overflowing_queue_is_reported_once_and_everything_is_answered_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| {
        settings.sessions.max_queue = 2;
        settings.sessions.overflow_notice = Some("crowded".into());
    })
    .await;
    relay.deliver("a", "0", HANG).await;
    relay.wait_for_turns(1).await;
    for id in 1..=50 {
        relay.deliver("a", &id.to_string(), &id.to_string()).await;
    }
    relay.seen("all acks", |seen| seen.acks.len() == 51).await;
    let status = relay.wait_for_turns(1).await;
    assert!(status.messages_waiting <= 2, "the rest waits in the journal only");
    relay.interrupt("a").await;
    let expected: Vec<String> = std::iter::once("crowded".to_owned())
        .chain((1..=50).map(|id| format!("echo: {id}")))
        .collect();
    assert_eq!(relay.replies("a", 51).await, expected);
    let status = relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    assert_eq!((status.tally.overflows, status.ops_durable), (1, 0));
    assert_eq!(relay.stop().await.texts("a").len(), 51);
}

#[tokio::test]
async fn at_a_limit_of_one_nobody_goes_twice_before_all_have_gone_once() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.sessions.max_concurrent_turns = 1).await;
    relay.deliver("a", "0", HANG).await;
    relay.wait_for_turns(1).await;
    for (chat, id) in [
        ("a", "1"),
        ("a", "2"),
        ("a", "3"),
        ("b", "1"),
        ("c", "1"),
        ("b", "2"),
    ] {
        relay.deliver(chat, id, &format!("{chat}{id}")).await;
    }
    relay.seen("all acks", |seen| seen.acks.len() == 7).await;
    relay.interrupt("a").await;
    let seen = relay.seen("six answers", |seen| seen.ops.len() == 6).await;
    let order: Vec<_> = seen.ops.iter().filter_map(|op| op.text()).collect();
    assert_eq!(
        order,
        [
            "echo: b1", "echo: c1", "echo: a1", "echo: b2", "echo: a2", "echo: a3"
        ]
    );
    relay.stop().await;
}

#[tokio::test]
async fn in_busy_mode_interrupt_a_newer_message_takes_the_turn() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| {
        settings.sessions.busy_mode = BusyMode::Interrupt;
        settings.shutdown.drain_secs = 0;
    })
    .await;
    relay.deliver("a", "1", HANG).await;
    relay.deliver("b", "1", HANG).await;
    relay.wait_for_turns(2).await;
    // What comes before they are committed comes together with them.
    relay
        .seen("both are committed", |seen| seen.acks.len() == 2)
        .await;
    relay.deliver("a", "2", "newer").await;
    assert_eq!(relay.replies("a", 1).await, ["echo: newer"]);
    let status = relay.wait_for_turns(1).await;
    assert_eq!((status.tally.turns_stopped, status.tally.turns_done), (1, 1));
    relay.stop().await;
}

/// The echo, but nothing that an earlier run began is run again.
fn once() -> ScriptedAgent {
    ScriptedAgent::new(|turn| EchoAgent.run(turn)).with_info(AgentInfo {
        repeatable: false,
        ..EchoAgent.info()
    })
}

/// Texts of the answers to `count` messages.
fn answers(count: usize) -> Vec<String> {
    (0..count).map(|id| format!("echo: {id}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chats_beyond_the_limit_wait_in_the_journal_and_lose_neither_order_nor_messages() {
    const CHATS: usize = 60;
    let dir = tempfile::tempdir().unwrap();
    let few = |settings: &mut hermes_relay::config::Settings| {
        settings.sessions.max_concurrent_turns = 1;
        settings.sessions.max_waiting = 5;
        settings.sessions.interrupted_notice = None;
    };
    let relay = start_with(dir.path(), once(), few).await;
    relay.deliver("busy", "m", HANG).await;
    relay.wait_for_turns(1).await;
    for id in 0..3 {
        for chat in 0..CHATS {
            let chat = format!("chat-{chat}");
            relay.deliver(&chat, &id.to_string(), &id.to_string()).await;
        }
    }
    relay
        .seen("all acknowledged", |seen| seen.acks.len() == 3 * CHATS + 1)
        .await;
    let status = relay
        .wait_for_status("taken", |status| status.tally.inbound == 181)
        .await;
    assert!(status.sessions_active <= 6, "{status:?}");

    // A crash finds them all again, and memory stays as small.
    relay.crash().await;
    let relay = start_with(dir.path(), once(), few).await;
    relay.deliver("chat-0", "last", "3").await;
    for chat in 0..CHATS {
        let chat = format!("chat-{chat}");
        let count = if chat == "chat-0" { 4 } else { 3 };
        assert_eq!(relay.replies(&chat, count).await, answers(count), "{chat}");
    }
    let status = relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    assert_eq!(status.tally.turns_done, 3 * CHATS as u64 + 1);
    // Nothing waits elsewhere any more: a message starts at once.
    relay.deliver("new", "m", "hello").await;
    assert_eq!(relay.replies("new", 1).await, ["echo: hello"]);
    relay.stop().await;
}
