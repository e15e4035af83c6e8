//! Agents that speak far faster than anybody reads: the chats are not flooded, and the end is prompt and exact.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hermes_relay::agent::TurnEnd;

use super::rig::start;
use crate::support::dev::FrameKinds as _;
use crate::support::load::loading;
use crate::support::scripted_agent::ScriptedAgent;

/// The whole hundred in an optimised build; a build for debugging cannot produce a million tokens a second.
const CHATS: usize = if cfg!(debug_assertions) { 10 } else { 100 };
/// From the last token to the last op, of 99 in a hundred chats; of the fastest one in a build for debugging, which shares the
/// machine with other tests.
const PROMPT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 100 });
const TOKENS_PER_SECOND: usize = 10_000;
const SECONDS: usize = 2;
const INTERVAL: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tokens_a_second_in_each_of_many_chats() {
    let _loading = loading().await;
    let ends: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let noted = Arc::clone(&ends);
    let player = ScriptedAgent::new(move |turn| {
        let noted = Arc::clone(&noted);
        async move {
            const TICK: Duration = Duration::from_millis(20);
            let per_tick = TOKENS_PER_SECOND / 50;
            let mut tick = tokio::time::interval(TICK);
            for _ in 0..SECONDS * 50 {
                tick.tick().await;
                for _ in 0..per_tick {
                    turn.events.text("a ").await;
                }
            }
            noted
                .lock()
                .unwrap()
                .insert(turn.input.origin.chat_id.to_string(), Instant::now());
            TurnEnd::Completed
        }
    });
    let rig = start("discord", player, |settings| {
        settings.streaming.interval_ms = u64::try_from(INTERVAL.as_millis()).unwrap();
        settings.streaming.typing = false;
        settings.streaming.reactions = false;
    })
    .await;
    let began = Instant::now();
    for chat in 0..CHATS {
        rig.deliver(&format!("c{chat}"), &format!("m{chat}"), "speak");
    }
    rig.is_quiet(CHATS as u64).await;
    let took = began.elapsed();
    let whole = "a ".repeat(TOKENS_PER_SECOND * SECONDS);
    let mut ops: HashMap<String, (usize, Instant)> = HashMap::new();
    for frame in rig
        .connector
        .frames()
        .iter()
        .filter(|frame| frame.is_from_gateway("outbound"))
    {
        let chat = frame.json()["action"]["chat_id"].as_str().unwrap().to_owned();
        let entry = ops.entry(chat).or_insert((0, frame.at));
        *entry = (entry.0 + 1, frame.at);
    }
    let ends = ends.lock().unwrap().clone();
    let mut lags = Vec::new();
    for (chat, ended) in &ends {
        let text: String = rig.texts(chat).join(" ");
        let words = text.split_whitespace().filter(|word| *word == "a").count();
        assert_eq!(
            words,
            TOKENS_PER_SECOND * SECONDS,
            "{chat} has other text than was said"
        );
        let (count, last) = ops[chat];
        // Each message of 2,000 characters is made and finished; between, no more than one change per interval.
        let messages = whole.len().div_ceil(1800);
        let changes = usize::try_from(took.as_millis() / INTERVAL.as_millis()).unwrap() + 2;
        assert!(count <= 2 * messages + changes, "{chat}: {count} ops in {took:?}");
        lags.push(last.saturating_duration_since(*ended));
    }
    lags.sort();
    let p99 = lags[(CHATS * 99).div_ceil(100) - 1];
    println!(
        "{CHATS} chats, {took:?}, lag p50 {:?} p99 {p99:?}",
        lags[CHATS / 2]
    );
    let judged = if cfg!(debug_assertions) { lags[0] } else { p99 };
    assert!(judged < PROMPT, "from the last token to the last op: {lags:?}");
    rig.stop().await;
}
