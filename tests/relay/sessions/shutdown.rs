//! The end in order, and the end without it.

use super::{HANG, Witness, start};
use crate::support::memory_relay::{SOON, event, start_on, start_with};
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::agent::{Agent, AgentFuture, AgentInfo, Turn, TurnEnd};
use hermes_relay::relay::ReplyMode;
use hermes_relay::store::{Inspector, Section};
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const NOTICE: &str = "cut short";

#[tokio::test]
async fn a_running_turn_finishes_and_the_connector_gets_going_idle() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    relay.deliver("a", "1", "sleep=1000 done").await;
    relay
        .wait_for_status("a turn", |status| status.tally.turns_started == 1)
        .await;
    let seen = relay.stop().await;
    assert_eq!(seen.texts("a"), ["echo: done"]);
    assert_eq!((seen.idles, seen.closed, seen.in_flight), (1, true, 0));
}

#[tokio::test]
async fn a_turn_that_ends_during_the_shutdown_gets_its_last_reaction() {
    let platform = CapabilityDescriptor {
        supported_ops: ["send", "react"].map(str::to_owned).to_vec(),
        ..CapabilityDescriptor::placeholder("discord")
    };
    let go_on = Arc::new(Notify::new());
    let agent = ScriptedAgent::sharing(&go_on, |turn, go_on| async move {
        go_on.notified().await;
        turn.events.text("done").await;
        TurnEnd::Completed
    });
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), agent, &platform, |_| {}).await;
    relay.deliver("a", "1", "go").await;
    relay.seen("the first reaction", |seen| seen.ops.len() == 1).await;
    relay.connector.set_reply_mode(ReplyMode::Hold);
    let ending = relay.ask_to_stop();
    let connector = ending.connector.clone();
    go_on.notify_one();
    for count in 2..=4 {
        let seen = connector.wait_for(SOON, |seen| seen.ops.len() == count).await;
        let seen = seen.unwrap_or_else(|| panic!("no op {count}"));
        assert!(connector.answer(seen.ops[count - 1].id, &json!({"success": true})));
    }
    let seen = ending.ended().await;
    let last = &seen.ops[3].action;
    assert_eq!(
        (&last["op"], &last["emoji"]),
        (&json!("react"), &json!("\u{2705}"))
    );
}

#[tokio::test]
async fn a_hanging_turn_is_reported_as_interrupted_and_queued_messages_run_next_time() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Witness::default();
    let relay = start_with(dir.path(), agent.clone(), |settings| {
        settings.shutdown.drain_secs = 0;
        settings.sessions.interrupted_notice = Some(NOTICE.into());
    })
    .await;
    relay.deliver("a", "1", HANG).await;
    relay.deliver("a", "2", "waiting").await;
    relay.seen("both acks", |seen| seen.acks.len() == 2).await;
    relay.wait_for_turns(1).await;
    assert_eq!(relay.stop().await.texts("a"), [NOTICE]);
    assert_eq!(agent.ran(), [HANG]);

    let relay = start_with(dir.path(), agent.clone(), |_| {}).await;
    assert_eq!(relay.replies("a", 1).await, ["echo: waiting"]);
    relay.stop().await;
    assert_eq!(agent.ran(), [HANG, "waiting"]);
}

#[tokio::test]
async fn what_comes_until_the_connector_buffers_is_kept_for_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    relay.connector.hold_idle();
    let ending = relay.ask_to_stop();
    let connector = ending.connector.clone();
    let asked = connector.wait_for(SOON, |seen| seen.idles == 1);
    asked.await.expect("it says that it goes");
    connector
        .deliver(event("a", "1", "just in time"))
        .await
        .expect("it still listens");
    connector.answer_idle();
    let asked_at = Instant::now();
    assert!(ending.ended().await.ops.is_empty());
    assert!(
        asked_at.elapsed() < Duration::from_secs(15),
        "nothing is left to wait for"
    );

    let relay = start(dir.path(), |_| {}).await;
    assert_eq!(relay.replies("a", 1).await, ["echo: just in time"]);
    relay.stop().await;
}

#[tokio::test]
async fn a_connector_that_never_acknowledges_going_idle_does_not_delay_the_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.shutdown.going_idle_secs = 1).await;
    relay.connector.hold_idle();
    assert_eq!(relay.stop().await.idles, 1);
}

#[tokio::test]
async fn after_a_crash_interrupted_turns_are_reported_queued_ones_run_and_nothing_happens_twice() {
    let (dir, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let agent = Witness::default();
    let relay = start_with(dir.path(), agent.clone(), |_| {}).await;
    relay.deliver("a", "1", "answered").await;
    relay.replies("a", 1).await;
    relay
        .wait_for_status("settled", |status| status.ops_durable == 0)
        .await;
    relay.deliver("a", "2", HANG).await;
    relay.deliver("b", "1", HANG).await;
    relay.wait_for_turns(2).await;
    for id in ["3", "4"] {
        relay.deliver("a", id, id).await;
    }
    relay.seen("all acks", |seen| seen.acks.len() == 5).await;
    let look = Inspector::open(dir.path()).unwrap();
    relay
        .wait_for_status("the journal is quiet", |_| {
            look.list(Section::Ops, 0, 1).unwrap().is_empty()
        })
        .await;
    copy(dir.path(), copied.path());
    relay.crash().await;

    // The same directory once its lock is free, and the copy that was made while the relay ran.
    for state in [dir.path(), copied.path()] {
        let agent = Witness::default();
        let relay = start_with(state, agent.clone(), |settings| {
            settings.sessions.interrupted_notice = Some(NOTICE.into());
        })
        .await;
        for (chat, id) in [("a", "1"), ("a", "2"), ("b", "1"), ("a", "4")] {
            relay.deliver(chat, id, "again").await;
        }
        assert_eq!(relay.replies("a", 3).await, [NOTICE, "echo: 3", "echo: 4"]);
        assert_eq!(relay.replies("b", 1).await, [NOTICE]);
        relay.seen("acks", |seen| seen.unacknowledged == 0).await;
        let status = relay
            .wait_for_status("settled", |status| status.ops_durable == 0)
            .await;
        assert_eq!((status.tally.turns_interrupted, status.tally.duplicates), (2, 4));
        assert_eq!(agent.ran(), ["3", "4"]);
        let seen = relay.stop().await;
        assert_eq!(seen.ops.len(), 4);

        let relay = start(state, |_| {}).await;
        relay.deliver("a", "5", "last").await;
        assert_eq!(relay.replies("a", 1).await, ["echo: last"]);
        assert_eq!(relay.stop().await.ops.len(), 1);
    }
    assert_eq!(agent.ran(), ["answered", HANG, HANG]);
}

fn copy(from: &Path, to: &Path) {
    for name in ["journal.db", "journal.db-wal"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// Holds on to a run, hears no stop, and notes whether it had let go when it was shut down.
#[derive(Clone, Default)]
struct Clinging {
    held: Arc<AtomicBool>,
    held_at_the_end: Arc<AtomicBool>,
}

struct Hold(Arc<AtomicBool>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Agent for Clinging {
    fn info(&self) -> AgentInfo {
        AgentInfo::default()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a turn that is at work when it is aborted goes on until it next waits"
    )]
    fn run(&self, _: Turn) -> AgentFuture<'_, TurnEnd> {
        self.held.store(true, Ordering::SeqCst);
        let hold = Hold(Arc::clone(&self.held));
        Box::pin(async move {
            let _hold = hold;
            loop {
                std::thread::sleep(Duration::from_millis(100));
                tokio::task::yield_now().await;
            }
        })
    }

    fn shutdown(&self) -> AgentFuture<'_, ()> {
        let held = self.held.load(Ordering::SeqCst);
        self.held_at_the_end.store(held, Ordering::SeqCst);
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_that_is_abandoned_lets_go_before_its_agent_is_shut_down() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Clinging::default();
    let relay = start_with(dir.path(), agent.clone(), |settings| {
        settings.shutdown.drain_secs = 0;
        settings.sessions.grace_secs = 0;
    })
    .await;
    relay.deliver("a", "1", "hold on").await;
    relay.wait_for_turns(1).await;
    relay
        .wait_for_status("a turn that holds on", |_| agent.held.load(Ordering::SeqCst))
        .await;
    relay.stop().await;
    assert!(!agent.held_at_the_end.load(Ordering::SeqCst));
}
