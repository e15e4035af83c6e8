//! A long and ordinary life: messages come at a steady rate, connections are lost now and then, and nothing grows.
//!
//! The short form is 20 seconds. The long form, half an hour: `SOAK_SECONDS=1800 cargo test --test faults soak -- --nocapture`;
//! `SOAK_CHATS` and `SOAK_RATE` (messages a second) are settings, too. What is measured in the last third is held against the
//! second third; the first one is the way to a steady state.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::rig::connector::Connector;
use crate::rig::env_number;
use crate::rig::process::{Home, Relay};
use crate::rig::state::{Ending, State};
use crate::support::load::measuring;
use crate::support::wait::eventually_within;

/// Samples in all; a third of them each make a comparison.
const SAMPLES: usize = 30;
/// Bytes that a finished message may leave in the journal.
const BYTES_A_MESSAGE: u64 = 600;

/// What a relay is at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    messages: u64,
    rss_kib: u64,
    descriptors: u64,
    threads: u64,
    journal: u64,
    latency: Duration,
}

fn journal_bytes(state_dir: &Path) -> u64 {
    // The write-ahead log is as long as it once was; what it holds is in the database after a checkpoint.
    std::fs::metadata(state_dir.join("journal.db")).map_or(0, |file| file.len())
}

/// The middle of some numbers.
fn median<T: Copy + Ord>(samples: &[Sample], number: impl Fn(&Sample) -> T) -> T {
    let mut numbers: Vec<T> = samples.iter().map(number).collect();
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Pushes one message to each of some chats, and waits for the answers; returns the median of the times.
async fn round(connector: &Connector, chats: std::ops::Range<usize>) -> Duration {
    let pushed = Instant::now();
    let messages: Vec<usize> = chats.map(|chat| connector.push(chat, "hello")).collect();
    let mut times = eventually_within(Duration::from_secs(60), "every answer", async || {
        let state = connector.state();
        let reply = |message: &usize| state.messages[*message].replies.first().map(|reply| reply.at);
        messages.iter().map(reply).collect::<Option<Vec<Instant>>>()
    })
    .await;
    times.sort_unstable();
    times[times.len() / 2].saturating_duration_since(pushed)
}

/// Fails if the last samples are above those before them by more than noise.
fn check_trend(before: &[Sample], after: &[Sample]) {
    let rss = |samples| median(samples, |sample| sample.rss_kib);
    assert!(
        rss(after) <= rss(before) + rss(before) / 10 + 2048,
        "memory grows: {} KiB, then {} KiB",
        rss(before),
        rss(after)
    );
    let descriptors = |samples| median(samples, |sample| sample.descriptors);
    assert!(
        descriptors(after) <= descriptors(before) + 2,
        "descriptors are left open: {} and {}",
        descriptors(before),
        descriptors(after)
    );
    let threads = |samples| median(samples, |sample| sample.threads);
    assert!(
        threads(after) <= threads(before) + 1,
        "threads are left over: {} and {}",
        threads(before),
        threads(after)
    );
    let latency = |samples| median(samples, |sample| sample.latency);
    assert!(
        latency(after) <= 3 * latency(before) + Duration::from_millis(50),
        "answers take longer and longer: {:?}, then {:?}",
        latency(before),
        latency(after)
    );
    let (first, last) = (before[0], after[after.len() - 1]);
    let (bytes, messages) = (
        last.journal.saturating_sub(first.journal),
        last.messages - first.messages,
    );
    // It grows in steps: a checkpoint brings what was written since the last one.
    assert!(
        bytes <= messages * BYTES_A_MESSAGE + (1 << 20),
        "the journal grows by {bytes} bytes for {messages} messages"
    );
}

fn sample(relay: &Relay, state_dir: &Path, messages: u64, latency: Duration) -> Sample {
    Sample {
        messages,
        rss_kib: relay.resident_kib(),
        descriptors: relay.descriptors(),
        threads: relay.threads(),
        journal: journal_bytes(state_dir),
        latency,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_life_grows_nothing() {
    let _alone = measuring().await;
    let seconds = Duration::from_secs(env_number("SOAK_SECONDS", 20) as u64);
    let (chats, rate) = (env_number("SOAK_CHATS", 64), env_number("SOAK_RATE", 200));
    let connector = Connector::start(State::new(4096, 1));
    let mut home = Home::new(
        &connector.url(),
        "link:\n  backoff_min_ms: 10\n  backoff_max_ms: 50\n",
    );
    let relay = home.start();
    let state_dir = home.state_dir.clone();
    let (began, mut messages, mut next) = (Instant::now(), 0, 0);
    let mut samples: Vec<Sample> = Vec::new();
    let (mut latencies, batch) = (Vec::new(), 20.min(chats));
    while samples.len() < SAMPLES {
        let due = began + Duration::from_micros(messages * 1_000_000 / rate as u64);
        tokio::time::sleep_until(due.into()).await;
        let from = next % (chats - batch + 1);
        latencies.push(round(&connector, from..from + batch).await);
        (messages, next) = (messages + batch as u64, next + batch);
        let taken = u32::try_from(samples.len() + 1).unwrap_or(1);
        if began.elapsed() >= seconds * taken / u32::try_from(SAMPLES).unwrap_or(1) {
            latencies.sort_unstable();
            let latency = latencies[latencies.len() / 2];
            latencies.clear();
            samples.push(sample(&relay, &state_dir, messages, latency));
            if samples.len().is_multiple_of(5) {
                println!("{:?}: {:?}", began.elapsed(), samples[samples.len() - 1]);
                connector.end_all(Ending::Reset);
            }
        }
    }
    let third = SAMPLES / 3;
    check_trend(&samples[third..2 * third], &samples[2 * third..]);
}

#[test]
fn every_trend_is_noticed() {
    let usual = Sample {
        messages: 0,
        rss_kib: 20_000,
        descriptors: 20,
        threads: 5,
        journal: 1 << 20,
        latency: Duration::from_millis(5),
    };
    let later = Sample {
        messages: 1000,
        ..usual
    };
    check_trend(&[usual; 3], &[later; 3]);
    let grown = [
        Sample {
            rss_kib: 25_000,
            ..later
        },
        Sample {
            descriptors: 25,
            ..later
        },
        Sample { threads: 8, ..later },
        Sample {
            journal: 4 << 20,
            ..later
        },
        Sample {
            latency: Duration::from_millis(90),
            ..later
        },
    ];
    for grown in grown {
        let checked = std::panic::catch_unwind(|| check_trend(&[usual; 3], &[grown; 3]));
        assert!(checked.is_err(), "{grown:?}");
    }
}
