//! What breaks under load: connections that are cut at any byte, sessions that are lost, and a flood.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

use super::{answered, setup, started};
use crate::support::discord::{CHANNEL, FakeDiscord};
use crate::support::wait::{eventually, eventually_within};

/// Connections that are cut at some byte: `DISCORD_CUTS`, else a few. `DISCORD_SEED` repeats a run.
const CUTS: &str = "DISCORD_CUTS";
const SEED: &str = "DISCORD_SEED";
/// Sessions that are lost under load.
const SESSIONS: &str = "DISCORD_SESSIONS";
/// Messages of a flood.
const FLOOD: &str = "DISCORD_FLOOD";
/// What 10,000 messages that wait may add to the memory of the process.
const GROWTH_KIB: u64 = 48 * 1024;

/// A number from the environment.
pub(super) fn number_from(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(otherwise)
}

/// Numbers below a limit, by chance; prints the seed.
pub(super) fn chance() -> impl FnMut(u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut state = number_from(SEED, u64::try_from(now.as_micros()).unwrap());
    println!("{SEED}={state}");
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    }
}

/// Every message was answered, and no answer is there twice.
fn assert_answered_once(fake: &FakeDiscord, wanted: &[String]) {
    let (mut answers, mut wanted) = (fake.answers(), wanted.to_vec());
    answers.sort();
    wanted.sort();
    assert_eq!(answers, wanted);
}

#[tokio::test]
async fn connections_that_are_cut_at_any_byte_lose_nothing() {
    let rounds = number_from(CUTS, 6);
    let mut random = chance();
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    let mut wanted = Vec::new();
    for round in 0..rounds {
        // The upgrade, hello, and what was missed; the head of an answer, and its body.
        match round % 3 {
            0 => fake.end_answer_after(usize::try_from(random(900)).unwrap()),
            1 => {
                fake.end_gateway_after(usize::try_from(random(1200)).unwrap());
                fake.cut();
            }
            _ => {
                fake.end_gateway_after(usize::try_from(random(1200)).unwrap());
                fake.ask_to_reconnect();
            }
        }
        for part in ["a", "b"] {
            fake.say(&format!("{round} {part}"));
            wanted.push(format!("echo: {round} {part}"));
        }
        answered(&fake, wanted.last().unwrap()).await;
    }
    eventually("an answer to each message", async || {
        fake.answers().len() >= wanted.len()
    })
    .await;
    relay.stop().await;
    assert_answered_once(&fake, &wanted);
    assert_eq!(fake.sessions().0, 1, "the session was always resumed");
}

#[tokio::test]
async fn sessions_that_are_lost_under_load_lose_nothing() {
    let rounds = number_from(SESSIONS, 1);
    let mut random = chance();
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    let mut wanted = Vec::new();
    let say = |text: String, wanted: &mut Vec<String>| {
        fake.say(&text);
        wanted.push(format!("echo: {text}"));
    };
    // A chat that the relay does not know has no last message.
    say("first".to_owned(), &mut wanted);
    answered(&fake, "echo: first").await;
    for round in 0..rounds {
        say(format!("{round} a"), &mut wanted);
        sleep(Duration::from_millis(random(200))).await;
        fake.forget_session();
        fake.cut();
        say(format!("{round} b"), &mut wanted);
        sleep(Duration::from_millis(random(200))).await;
        say(format!("{round} c"), &mut wanted);
        answered(&fake, &format!("echo: {round} c")).await;
        // A session must be settled before it can be lost.
        let sessions = usize::try_from(round).unwrap() + 2;
        eventually("a session", async || fake.sessions().0 == sessions).await;
    }
    eventually("an answer to each message", async || {
        fake.answers().len() >= wanted.len()
    })
    .await;
    relay.stop().await;
    assert_answered_once(&fake, &wanted);
}

/// How much of a flood of numbers is answered before a text in a chat that is otherwise quiet.
async fn answered_before(fake: &FakeDiscord, text: &str) -> u64 {
    fake.say(text);
    let answer = format!("echo: {text}");
    answered(fake, &answer).await;
    let answers = fake.answers();
    let before = answers.iter().take_while(|before| **before != answer);
    let of_flood = before.filter_map(|before| before.strip_prefix("echo: ")?.parse::<u64>().ok());
    u64::try_from(of_flood.count()).unwrap()
}

#[tokio::test]
async fn another_chat_does_not_wait_for_a_flood_in_a_channel_and_memory_stays_flat() {
    let flood = number_from(FLOOD, 10_000);
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let mut relay = started(&setup).await;
    answered_before(&fake, "before").await;
    let before = relay.memory_kib("VmRSS");
    let mut overtaken = Vec::new();
    for number in 0..flood {
        // Answers to one channel are a second apart, so that almost all of these wait.
        fake.say_in(CHANNEL, &format!("<@1> {number}"));
        if number % (flood / 5).max(1) == 0 {
            let answered = answered_before(&fake, &format!("during {number}")).await;
            overtaken.push((number + 1, answered));
        }
        if number % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    overtaken.push((flood, answered_before(&fake, "after").await));
    eventually_within(
        Duration::from_secs(120),
        "all of it is in the journal",
        async || {
            let status = setup.verb(&["status", "--json"]).output().await.unwrap();
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
            let inbound = status["tally"]["inbound"].as_u64().unwrap_or_default();
            if inbound >= flood { Ok(()) } else { Err(status) }
        },
    )
    .await;
    let after = relay.memory_kib("VmRSS");
    println!(
        "said and answered before: {overtaken:?}; {before} KiB before, {after} KiB after {flood} messages"
    );
    relay.kill().await;
    let waited = |(said, answered): &(u64, u64)| *answered > said / 2 + 1;
    assert!(!overtaken.iter().any(waited), "{overtaken:?}");
    assert!(
        after < before + GROWTH_KIB,
        "{before} KiB before, {after} KiB after"
    );
}
