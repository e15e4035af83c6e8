//! Under pressure: what hangs delays nobody else, a stop stops at once, and memory stays bounded.
//!
//! How long things take is judged by what they take elsewhere in the same run: a machine that is slow for everything fails
//! nothing here, a relay that stands still does.
//!
//! The memory test pushes 60,000 messages over 2,000 sessions. Its long form:
//! `MEMORY_MESSAGES=1000000 cargo test --test faults pressure::memory -- --nocapture`.

use std::time::{Duration, Instant};

use crate::rig::connector::Connector;
use crate::rig::process::{Home, Relay};
use crate::rig::state::{Fate, State};
use crate::rig::{env_number, line};
use crate::support::load::measuring;
use crate::support::wait::eventually_within;

/// Messages that were answered.
fn answered(connector: &Connector) -> usize {
    let state = connector.state();
    state
        .messages
        .iter()
        .filter(|message| !message.replies.is_empty())
        .count()
}

/// Waits until so many messages are answered, however long that takes, as long as it goes on.
async fn all_answered(connector: &Connector, wanted: usize, mut meanwhile: impl FnMut()) {
    const STANDSTILL: Duration = Duration::from_secs(60);
    let (mut before, mut since) = (0, Instant::now());
    loop {
        meanwhile();
        let now = answered(connector);
        if now == wanted {
            return;
        }
        if now > before {
            (before, since) = (now, Instant::now());
        }
        assert!(
            since.elapsed() < STANDSTILL,
            "{now} of {wanted} answered, and none for a while"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How long a message of a chat that nothing holds up takes here and now.
async fn round_trip(connector: &Connector, chat: usize) -> Duration {
    let pushed = Instant::now();
    let message = connector.push(chat, "hello");
    let at = eventually_within(Duration::from_secs(60), "an ordinary answer", async || {
        reply_at(connector, message)
    });
    at.await - pushed
}

fn reply_at(connector: &Connector, message: usize) -> Option<Instant> {
    connector.state().messages[message]
        .replies
        .first()
        .map(|reply| reply.at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_hang_delay_nobody_and_a_stop_silences_one_immediately() {
    const CHATS: usize = 1_000;
    const HANGING: usize = 10;
    const SAMPLES: usize = 5;
    const STOPPED: usize = 5;
    let _alone = measuring().await;
    let connector = Connector::start(State::new(4096, 1));
    let mut home = Home::new(&connector.url(), "");
    let _relay = home.start();
    for chat in 0..HANGING {
        connector.push(chat, "sleep=600000 never");
    }
    let behind: Vec<usize> = (0..STOPPED)
        .map(|chat| connector.push(chat, "after the stop"))
        .collect();
    let begun = Instant::now();
    for chat in HANGING..CHATS {
        connector.push(chat, "hello");
    }
    all_answered(&connector, CHATS - HANGING, || ()).await;
    println!(
        "{} chats answered in {:?} beside {HANGING} that hang",
        CHATS - HANGING,
        begun.elapsed()
    );
    assert!(
        behind
            .iter()
            .all(|message| reply_at(&connector, *message).is_none())
    );

    // What this machine takes for a message that waits for nobody, before and after.
    let mut ordinary = Duration::ZERO;
    for chat in 0..SAMPLES {
        ordinary = ordinary.max(round_trip(&connector, CHATS + chat).await);
    }
    // The fastest of several: a busy machine holds up one or the other.
    let mut took = Duration::MAX;
    for (chat, message) in behind.into_iter().enumerate() {
        let asked = Instant::now();
        connector.interrupt(chat);
        let at = eventually_within(
            Duration::from_secs(60),
            "the queued message of the stopped chat",
            async || reply_at(&connector, message),
        )
        .await;
        took = took.min(at - asked);
    }
    for chat in 0..SAMPLES {
        ordinary = ordinary.max(round_trip(&connector, CHATS + chat).await);
    }
    println!("stopped, and the next message answered, within {took:?}; an ordinary one within {ordinary:?}");
    let limit = (4 * ordinary).max(Duration::from_millis(500));
    assert!(took < limit, "a stop took {took:?}, and {limit:?} would do");
    assert_eq!(
        answered(&connector),
        CHATS - HANGING + STOPPED + 2 * SAMPLES,
        "the others hang on"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_whose_ops_are_never_answered_delays_no_other() {
    const CHATS: usize = 100;
    const EACH: usize = 10;
    let _alone = measuring().await;
    let connector = Connector::start(State::new(4096, 1));
    connector.answer_with(Box::new(|_, _| Fate::Answer));
    let mut home = Home::new(&connector.url(), "");
    let _relay = home.start();
    let push_all = || {
        for round in 0..EACH {
            for chat in 0..CHATS {
                connector.push(chat, format!("round {round}"));
            }
        }
    };
    let begun = Instant::now();
    push_all();
    all_answered(&connector, CHATS * EACH, || ()).await;
    let ordinary = begun.elapsed();

    let mute = line::chat(0);
    connector.answer_with(Box::new(
        move |chat, _| if chat == mute { Fate::Never } else { Fate::Answer },
    ));
    let begun = Instant::now();
    push_all();
    all_answered(&connector, CHATS * EACH + (CHATS - 1) * EACH + 1, || ()).await;
    let took = begun.elapsed();
    println!("{CHATS} chats: {took:?} beside one that hangs, {ordinary:?} without");
    // Whoever waits for the one that hangs waits until its op times out, which takes longer.
    let bound = (4 * ordinary).max(Duration::from_secs(10));
    assert!(took < bound, "took {took:?}, more than {bound:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_bounded_while_messages_are_pushed_as_fast_as_possible() {
    const MESSAGES: usize = 50_000;
    let _alone = measuring().await;
    let connector = Connector::start(State::new(4096, 1));
    let mut home = Home::new(&connector.url(), "journal:\n  durability: process\n");
    let relay = home.start();
    {
        let mut state = connector.state();
        for number in 0..MESSAGES {
            state.push(number % 5_000, format!("message {number}"));
        }
    }
    connector.wake();
    let begun = Instant::now();
    let mut peak = 0;
    all_answered(&connector, MESSAGES, || peak = peak.max(relay.resident_kib())).await;
    println!(
        "{MESSAGES} messages pushed at once, answered in {:?}, at most {} MiB resident",
        begun.elapsed(),
        peak / 1024
    );
    assert!(peak < 200 * 1024, "{} MiB resident", peak / 1024);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_not_grow_with_the_number_of_messages() {
    const SESSIONS: usize = 2_000;
    const WARM: usize = 15_000;
    let _alone = measuring().await;
    let messages = env_number("MEMORY_MESSAGES", 60_000).max(2 * WARM);
    let connector = Connector::start(State::new(1024, 1));
    let mut home = Home::new(&connector.url(), "journal:\n  durability: process\n");
    let relay = home.start();
    let mut warm = 0;
    let mut pushed = 0;
    while pushed < messages {
        let until_then = (pushed + WARM).min(messages);
        serve(&connector, pushed, until_then, SESSIONS).await;
        pushed = until_then;
        let now = relay.resident_kib();
        println!("{pushed} messages: {now} KiB resident");
        if pushed == WARM {
            warm = now;
        }
    }
    let end = at_rest(&relay).await;
    println!("{messages} messages over {SESSIONS} sessions: {warm} KiB after {WARM}, {end} KiB at the end");
    assert!(end < warm + 15 * 1024, "grew from {warm} KiB to {end} KiB");
}

/// Pushes messages a few thousand at a time, and waits for the answers.
async fn serve(connector: &Connector, from: usize, to: usize, sessions: usize) {
    for number in from..to {
        connector.push(number % sessions, "hello");
        if number % 2_000 == 1_999 || number + 1 == to {
            eventually_within(Duration::from_secs(60), "what was pushed answered", async || {
                let state = connector.state();
                let last = &state.messages[number + 1 - (number + 1 - from).min(sessions)..];
                last.iter()
                    .all(|message| !message.replies.is_empty())
                    .then_some(())
            })
            .await;
        }
    }
}

/// The memory in use once it no longer changes much.
async fn at_rest(relay: &Relay) -> u64 {
    let mut before = 0;
    eventually_within(Duration::from_secs(10), "memory at rest", async || {
        let now = relay.resident_kib();
        let still = now.abs_diff(std::mem::replace(&mut before, now)) < 64;
        still.then_some(now)
    })
    .await
}
