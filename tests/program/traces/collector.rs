//! Collectors that are away, slow, busy, or redirect: no turn is affected, and everything stays bounded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::dev::Connector;
use tokio::time::Instant;

use crate::support::http_stub::{Stub, nobody, reply, reply_with, silent};
use crate::support::relay_process::SOON;
use crate::traces::{accepting, answered, connector, counted, deliver, exporting, received, spans, started};

/// Longest that the program may take to end because of its traces.
const END: Duration = Duration::from_secs(8);

/// Delivers a message to each of as many chats, and waits for the replies.
async fn converse(connector: &Connector, chats: usize) {
    for chat in 0..chats {
        deliver(connector, &format!("c{chat}"), &format!("m{chat}"), "hi");
    }
    for chat in 0..chats {
        connector.reply_to(SOON, &format!("m{chat}")).await.unwrap();
    }
}

/// Turns are answered, and the program ends in time.
async fn does_not_matter(base: &str) {
    let connector = connector().await;
    let relay = started(&exporting(&connector, base)).await;
    converse(&connector, 20).await;
    let asked = Instant::now();
    relay.stop().await;
    assert!(asked.elapsed() < END, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_missing_collector_does_not_matter() {
    does_not_matter(&nobody()).await;
}

#[tokio::test]
async fn a_silent_collector_does_not_matter() {
    does_not_matter(&format!("http://{}", silent().await)).await;
}

#[tokio::test]
async fn a_busy_collector_receives_the_same_again() {
    let asked = AtomicUsize::new(0);
    let collector = Stub::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => reply(503, "busy"),
        _ => reply(200, "{}"),
    })
    .await;
    let connector = connector().await;
    let relay = started(&exporting(&connector, &collector.base())).await;
    answered(&connector, "a", "1", "hi").await;
    counted(&relay, "sent", 1.0).await;
    let seen = collector.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].body, seen[1].body, "ids and all");
    assert!(counted(&relay, "refused", 0.0).await < 0.5);
    relay.stop().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_a_refusal_is_not_repeated() {
    let elsewhere = accepting().await;
    let place = format!("{}/v1/traces", elsewhere.base());
    let redirecting = Stub::start(move |_| reply_with(307, &[("location", &place)], "")).await;
    let refusing = Stub::always(400, "no").await;
    for collector in [&redirecting, &refusing] {
        let connector = connector().await;
        let relay = started(&exporting(&connector, &collector.base())).await;
        answered(&connector, "a", "1", "hi").await;
        counted(&relay, "refused", 1.0).await;
        answered(&connector, "a", "2", "hi").await;
        counted(&relay, "refused", 2.0).await;
        relay.stop().await;
        assert_eq!(collector.seen().len(), 2);
    }
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn traces_beyond_the_queue_are_dropped_and_counted() {
    const TURNS: u32 = 1500;
    let connector = connector().await;
    let relay = started(&exporting(&connector, &format!("http://{}", silent().await))).await;
    for first in (0..TURNS).step_by(100) {
        for turn in first..first + 100 {
            deliver(&connector, &format!("c{}", turn % 100), &format!("m{turn}"), "hi");
        }
        for turn in first..first + 100 {
            connector.reply_to(SOON, &format!("m{turn}")).await.unwrap();
        }
    }
    // One batch is in flight, and 1,024 traces wait behind it.
    let dropped = counted(&relay, "dropped", 100.0).await;
    assert!(dropped <= f64::from(TURNS - 1024), "{dropped}");
    assert!(counted(&relay, "sent", 0.0).await < 0.5);
    let asked = Instant::now();
    relay.stop().await;
    assert!(asked.elapsed() < END, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn traces_are_sent_in_batches() {
    let (connector, collector) = (connector().await, accepting().await);
    let relay = started(&exporting(&connector, &collector.base())).await;
    converse(&connector, 50).await;
    received(&collector, 50).await;
    relay.stop().await;
    assert_eq!(spans(&collector).len(), 150);
    // One a second, however long the turns take here.
    assert!(collector.seen().len() < 25, "{} requests", collector.seen().len());
}
