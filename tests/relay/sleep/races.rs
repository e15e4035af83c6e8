//! Work that turns up at the worst moment: after the question, after the answer, while the socket closes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hermes_relay::agent::EchoAgent;
use hermes_relay::config::{Durability, Settings, SleepAction};
use hermes_relay::link::{DormancyRefused, Generation, Op};
use hermes_relay::relay::{
    InboundSender, LinkStatus, MemoryConnector, MemoryTransport, Relay, RelayTransport, ResultSender,
    Suspender, TransportFuture,
};
use hermes_relay::wire::CapabilityDescriptor;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::support::memory_relay::{SOON, event, start_with};
use crate::support::wait::eventually;

fn sleeps(settings: &mut Settings, action: SleepAction) {
    settings.connector.wake_url = Some("https://wake.example".to_owned());
    settings.sleep.enabled = true;
    settings.sleep.idle_secs = 1;
    settings.sleep.action = action;
}

#[tokio::test]
async fn work_between_going_idle_and_the_ack_cancels_the_sleep() {
    let folder = tempfile::tempdir().unwrap();
    let relay = start_with(folder.path(), EchoAgent, |settings| {
        sleeps(settings, SleepAction::Exit);
    })
    .await;
    relay.connector.hold_idle();
    relay.seen("the question", |seen| seen.idles == 1).await;
    relay.deliver("c1", "m1", "sleep=2000 hello").await;
    relay.wait_for_turns(1).await;
    relay.connector.answer_idle();
    let status = relay
        .wait_for_status("no sleep", |status| status.tally.sleeps_refused == 1)
        .await;
    assert_eq!(status.tally.sleeps, 0);
    assert_eq!(relay.replies("c1", 1).await, ["echo: hello"]);
    // A connector that buffers delivers on a new connection only, so there is one.
    let seen = relay.seen("a new connection", |seen| seen.connections == 2).await;
    assert_eq!(seen.texts("c1").len(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_wake_between_going_idle_and_the_ack_cancels_the_sleep() {
    let folder = tempfile::tempdir().unwrap();
    let relay = start_with(folder.path(), EchoAgent, |settings| {
        sleeps(settings, SleepAction::Wait);
    })
    .await;
    relay.connector.hold_idle();
    relay.seen("the question", |seen| seen.idles == 1).await;
    assert!(relay.handle.wake().await.is_ok());
    relay.connector.answer_idle();
    let status = relay
        .wait_for_status("no sleep", |status| status.tally.sleeps_refused == 1)
        .await;
    assert_eq!(status.tally.sleeps, 0);
    relay
        .wait_for_status("a sleep later", |status| {
            status.tally.sleeps == 1 && status.link == "dormant"
        })
        .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_message_that_the_journal_alone_refuses_does_not_keep_the_relay_awake() {
    let folder = tempfile::tempdir().unwrap();
    let relay = start_with(folder.path(), EchoAgent, |settings| {
        sleeps(settings, SleepAction::Wait);
    })
    .await;
    let journal = rusqlite::Connection::open(folder.path().join("journal.db")).unwrap();
    journal
        .execute_batch(
            "CREATE TRIGGER poison BEFORE INSERT ON inbox WHEN NEW.session LIKE '%poison%'
             BEGIN SELECT RAISE(ABORT, 'not this one'); END;
             CREATE TRIGGER poisoned BEFORE INSERT ON log WHEN instr(NEW.batch, CAST('poison' AS BLOB)) > 0
             BEGIN SELECT RAISE(ABORT, 'not this batch'); END",
        )
        .unwrap();
    relay.deliver("poison", "m1", "hello").await;
    relay.deliver("c1", "m1", "hello").await;
    assert_eq!(relay.replies("c1", 1).await, ["echo: hello"]);
    relay
        .wait_for_status("a refusal", |status| status.tally.refused_by_journal == 1)
        .await;
    let status = relay
        .wait_for_status("a sleep", |status| {
            status.tally.sleeps > 0 && status.link == "dormant"
        })
        .await;
    assert_eq!(status.journal_failing, None);
    let seen = relay.stop().await;
    assert_eq!((seen.connections, seen.unacknowledged), (1, 1));
}

/// Passes everything on; delivers a message at the moment at which the socket is about to be closed.
struct Meddler {
    inner: MemoryTransport,
    connector: MemoryConnector,
    meddled: AtomicBool,
}

impl RelayTransport for Meddler {
    fn connect(&self, inbound: InboundSender) {
        self.inner.connect(inbound);
    }

    fn status(&self) -> watch::Receiver<LinkStatus> {
        self.inner.status()
    }

    fn submit(&self, op: Op, results: ResultSender) {
        self.inner.submit(op, results);
    }

    fn acknowledge(&self, generation: Generation, buffer_id: String) {
        self.inner.acknowledge(generation, buffer_id);
    }

    fn send_interrupt(&self, session_key: String, reason: Option<String>) {
        self.inner.send_interrupt(session_key, reason);
    }

    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool> {
        self.inner.go_idle(within)
    }

    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        Box::pin(async {
            if !self.meddled.swap(true, Ordering::SeqCst) {
                let event = event("c1", "m1", "sleep=2000 hello");
                self.connector.deliver_buffered("b1", event).await.unwrap();
                let taken = self.connector.wait_for(SOON, |seen| seen.acked("b1") == 1).await;
                taken.expect("the message is taken");
            }
            self.inner.go_dormant().await
        })
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn reconnect(&self) {
        self.inner.reconnect();
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        self.inner.disconnect(within)
    }
}

#[tokio::test]
async fn work_between_the_ack_and_the_close_ends_the_sleep_before_it_begins() {
    for action in [SleepAction::Exit, SleepAction::Wait, SleepAction::Suspend] {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::embedded(folder.path());
        settings.journal.durability = Durability::Process;
        sleeps(&mut settings, action);
        let (inner, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
        let meddler = Meddler {
            inner,
            connector: connector.clone(),
            meddled: AtomicBool::new(false),
        };
        let relay = Relay::builder(settings)
            .agent("echo", EchoAgent)
            .transport(Arc::new(meddler))
            .suspender(Suspender::new(|| std::future::ready(Err("not now".to_owned()))))
            .build()
            .unwrap();
        let handle = relay.handle();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
        let seen = connector
            .wait_for(SOON, |seen| seen.texts("c1").len() == 1 && seen.connections == 2)
            .await
            .expect("an answer on a new connection");
        assert_eq!(seen.texts("c1"), ["echo: hello"], "{action}");
        assert!(handle.status().await.is_ok(), "{action}: it has not ended");
        drop(stop);
        timeout(SOON, task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_lever_is_pulled_once_without_a_socket_and_one_that_fails_brings_the_socket_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(folder.path());
    settings.journal.durability = Durability::Process;
    sleeps(&mut settings, SleepAction::Suspend);
    let (inner, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
    let (pulls, mut pulled) = mpsc::channel::<bool>(8);
    let watched = connector.clone();
    let suspender = Suspender::new(
        move || -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
            let (pulls, connected) = (pulls.clone(), watched.record().borrow().connected);
            Box::pin(async move {
                let _ = pulls.send(connected).await;
                Err("the host has no room for it".to_owned())
            })
        },
    );
    let relay = Relay::builder(settings)
        .agent("echo", EchoAgent)
        .transport(Arc::new(inner))
        .suspender(suspender)
        .build()
        .unwrap();
    let handle = relay.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
    let connected = timeout(SOON, pulled.recv()).await.unwrap();
    assert_eq!(connected, Some(false), "the socket is closed first");
    connector
        .wait_for(SOON, |seen| seen.connections == 2)
        .await
        .expect("a new connection");
    eventually("one wake and one refused sleep", async || {
        let tally = handle.status().await.unwrap().tally;
        if (tally.wakes, tally.sleeps_refused) == (1, 1) {
            Ok(())
        } else {
            Err(tally)
        }
    })
    .await;
    drop(stop);
    timeout(SOON, task).await.unwrap().unwrap();
}
