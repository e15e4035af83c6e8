//! From the wire into the journal: acknowledged only then, once, and never twice run.

use super::{Witness, start};
use crate::support::memory_relay::{event, start_with};
use crate::support::small_disk::SmallDisk;
use hermes_relay::store::Inspector;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_while_the_journal_cannot_hold_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path(), 2048) else {
        return;
    };
    let agent = Witness::default();
    let relay = start_with(dir.path(), agent.clone(), |_| {}).await;
    relay.deliver("a", "1", "before").await;
    relay.seen("an ack", |seen| seen.acked("a-1") == 1).await;
    relay.replies("a", 1).await;
    disk.fill();
    let long = "x".repeat(200_000);
    relay.deliver("a", "2", &long).await;
    relay.deliver("b", "1", &long).await;
    let status = relay
        .wait_for_status("two refusals", |status| {
            status.tally.refused_by_journal >= 2 && status.journal_failing.is_some()
        })
        .await;
    assert_eq!(status.tally.acks, 1);
    let seen = relay.connector.record().borrow().clone();
    assert_eq!(
        (seen.acks.len(), seen.unacknowledged, seen.connections),
        (1, 2, 1)
    );
    assert_eq!(agent.ran(), ["before"]);

    disk.free();
    let seen = relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    assert!(
        seen.connections >= 2,
        "what was not acknowledged was asked for again"
    );
    let status = relay
        .wait_for_status("both turns", |status| status.tally.turns_done == 3)
        .await;
    assert_eq!(status.journal_failing, None);
    let seen = relay.stop().await;
    assert_eq!((seen.acked("a-2"), seen.acked("b-1")), (1, 1));
    assert_eq!(agent.ran().len(), 3);
    drop(disk);
}

#[tokio::test]
async fn a_duplicate_is_acknowledged_again_and_not_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Witness::default();
    let relay = start_with(dir.path(), agent.clone(), |_| {}).await;
    for buffer_id in ["first", "second"] {
        let hi = event("a", "1", "hi");
        relay.connector.deliver_buffered(buffer_id, hi).await.unwrap();
    }
    relay
        .seen("both acks", |seen| {
            (seen.acked("first"), seen.acked("second")) == (1, 1)
        })
        .await;
    assert_eq!(relay.replies("a", 1).await, ["echo: hi"]);
    let status = relay.handle.status().await.unwrap();
    assert_eq!((status.tally.duplicates, status.tally.turns_started), (1, 1));
    relay.stop().await;

    let relay = start_with(dir.path(), agent.clone(), |_| {}).await;
    let hi = event("a", "1", "hi");
    relay.connector.deliver_buffered("third", hi).await.unwrap();
    relay.seen("its ack", |seen| seen.acked("third") == 1).await;
    relay.deliver("a", "2", "more").await;
    assert_eq!(relay.replies("a", 1).await, ["echo: more"]);
    assert_eq!(agent.ran(), ["hi", "more"]);
    assert_eq!(relay.stop().await.texts("a"), ["echo: more"]);
}

#[tokio::test]
async fn a_message_that_comes_again_with_another_text_keeps_its_first() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Witness::default();
    let relay = start_with(dir.path(), agent.clone(), |_| {}).await;
    relay.deliver("a", "1", super::HANG).await;
    relay.wait_for_turns(1).await;
    for text in ["first", "second"] {
        let hi = event("a", "2", text);
        relay.connector.deliver_buffered(text, hi).await.unwrap();
        relay.seen("its ack", |seen| seen.acked(text) == 1).await;
    }
    relay.interrupt("a").await;
    assert_eq!(relay.replies("a", 1).await, ["echo: first"]);
    relay.stop().await;
    assert_eq!(agent.ran(), [super::HANG, "first"]);
}

#[tokio::test]
async fn a_message_without_a_buffer_id_is_answered_and_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    relay.connector.deliver(event("a", "1", "live")).await.unwrap();
    assert_eq!(relay.replies("a", 1).await, ["echo: live"]);
    assert!(relay.stop().await.acks.is_empty());
}

#[tokio::test]
async fn poison_is_quarantined_acknowledged_and_does_not_stop_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    let poison = [
        ("p1", r#"{"type":"inbound","bufferId":"p1","event":[1]}"#),
        ("p2", r#"{"type":"inbound","bufferId":"p2","event":{"text":"#),
        (
            "p3",
            r#"{"type":"passthrough_forward","bufferId":"p3","forward":{"platform":"none"}}"#,
        ),
    ];
    for (buffer_id, line) in poison {
        let delivered = relay.connector.deliver_line_buffered(buffer_id, line).await;
        delivered.unwrap();
    }
    relay.connector.deliver_line("not even json").await.unwrap();
    relay.deliver("a", "1", "well").await;
    assert_eq!(relay.replies("a", 1).await, ["echo: well"]);
    let seen = relay.seen("all acks", |seen| seen.acks.len() == 4).await;
    assert_eq!(seen.acks, ["p1", "p2", "p3", "a-1"]);
    let status = relay.handle.status().await.unwrap();
    assert_eq!((status.tally.undecodable, status.tally.quarantined), (3, 3));
    assert_eq!(
        Inspector::open(dir.path()).unwrap().counts().unwrap().quarantined,
        3
    );
    relay.stop().await;
}

#[tokio::test]
async fn an_acknowledgement_goes_to_the_connection_that_brought_the_message() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    relay.connector.drop_connection();
    relay.deliver("a", "1", "kept").await;
    assert!(relay.connector.deliver(event("a", "2", "lost")).await.is_err());
    relay.connector.restore();
    relay.seen("its ack", |seen| seen.acked("a-1") == 1).await;
    assert_eq!(relay.replies("a", 1).await, ["echo: kept"]);
    let seen = relay.stop().await;
    assert_eq!((seen.connections, seen.unacknowledged), (2, 0));
}
