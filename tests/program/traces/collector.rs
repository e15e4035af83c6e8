//! Collectors that are away, slow, overworked, or point elsewhere: no turn notices, and everything stays bounded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hermes_relay::agent::EchoAgent;
use tokio::time::Instant;

use crate::support::http_stub::{Stub, nobody, reply, reply_with, silent};
use crate::support::memory_relay::start_with;
use crate::traces::{counts, spans, to, traced, willing};

/// Longest a relay may take to end because of its traces.
const END: Duration = Duration::from_secs(5);

/// Turns are answered, and the relay ends in time.
async fn unaffected(base: &str) {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, to(base)).await;
    for id in 0..20 {
        relay.hears("a", &id.to_string(), "hi").await;
    }
    relay.told("a", 20).await;
    relay.stands("all settled", |status| status.ops_owed == 0).await;
    let asked = Instant::now();
    relay.stop().await;
    assert!(asked.elapsed() < END, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn one_that_is_not_there_is_not_missed() {
    unaffected(&nobody()).await;
}

#[tokio::test]
async fn one_that_never_answers_holds_nothing_up() {
    unaffected(&format!("http://{}", silent().await)).await;
}

#[tokio::test]
async fn one_that_has_no_time_is_asked_again_and_gets_the_same_once() {
    let asked = AtomicUsize::new(0);
    let collector = Stub::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => reply(503, "busy"),
        _ => reply(200, "{}"),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, to(&collector.base())).await;
    relay.hears("a", "1", "hi").await;
    counts(&relay, "sent", 1).await;
    let seen = collector.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].body, seen[1].body, "ids and all");
    assert_eq!(counts(&relay, "refused", 0).await, 0);
    relay.stop().await;
}

#[tokio::test]
async fn one_that_points_elsewhere_is_not_followed_and_one_that_refuses_is_not_asked_again() {
    let elsewhere = willing().await;
    let place = format!("{}/v1/traces", elsewhere.base());
    let collector = Stub::start(move |_| reply_with(307, &[("location", &place)], "")).await;
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, to(&collector.base())).await;
    relay.hears("a", "1", "hi").await;
    counts(&relay, "refused", 1).await;
    relay.hears("a", "2", "hi").await;
    counts(&relay, "refused", 2).await;
    assert_eq!(relay.stop().await.texts("a").len(), 2);
    assert_eq!((elsewhere.seen().len(), collector.seen().len()), (0, 2));

    let collector = Stub::always(400, "no").await;
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, to(&collector.base())).await;
    relay.hears("a", "1", "hi").await;
    counts(&relay, "refused", 1).await;
    relay.stop().await;
    assert_eq!(collector.seen().len(), 1);
}

#[tokio::test]
async fn what_finds_no_room_is_dropped_and_counted() {
    const TURNS: u64 = 1500;
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, to(&format!("http://{}", silent().await))).await;
    for turn in 0..TURNS {
        relay
            .hears(&format!("c{}", turn % 100), &turn.to_string(), "hi")
            .await;
    }
    relay
        .stands("all done", |status| status.tally.ops_applied == TURNS)
        .await;
    let dropped = counts(&relay, "dropped", 1).await;
    // One batch is on its way, and 1,024 wait behind it.
    assert!((100..=TURNS - 1024).contains(&dropped), "{dropped}");
    assert_eq!(counts(&relay, "sent", 0).await, 0);
    let asked = Instant::now();
    relay.stop().await;
    assert!(asked.elapsed() < END, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn many_go_out_together() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), EchoAgent, to(&collector.base())).await;
    for chat in 0..50 {
        relay.hears(&format!("c{chat}"), "1", "hi").await;
    }
    traced(&collector, 50).await;
    relay.stop().await;
    assert_eq!(spans(&collector).len(), 250);
    assert!(collector.seen().len() <= 5, "{} requests", collector.seen().len());
}
