//! A bad connection loses nothing, doubles nothing and changes no order.
//!
//! Two thousand messages over fifty chats, while sockets are reset, closed with every kind of code and refused,
//! lines come cut and packed, deliveries come twice and results come late or with the socket gone. No process
//! dies here: what the relay knows, it keeps knowing.
//!
//! `CHAOS_MESSAGES` and `CHAOS_SEED` make it longer and different.

use std::time::{Duration, Instant};

use crate::rig::connector::Connector;
use crate::rig::process::{Home, Relay};
use crate::rig::state::{DialFate, Ending, Fate, Packing, State};
use crate::rig::{Rng, env_number};
use crate::support::load::loading;
use crate::support::wait::{SOON, eventually, eventually_within};
use hermes_relay::store::Inspector;

const CHATS: usize = 50;
/// Fewer connections than this are no storm.
const STORM: u64 = 10;
const LINK: &str = "link:\n  backoff_min_ms: 10\n  backoff_max_ms: 60\n  request_timeout_secs: 30\n";
const UNKNOWN: &str = "outcome of an op unknown; not sent again";
const NEVER: &str = "sessions:\n  resend_unknown: never\n";
/// On a busy machine the same op may be on more of the connections that break than the relay sends it on by default.
const OFTEN: &str = "sessions:\n  resend_max_attempts: 100\n";

#[derive(Debug, Default)]
struct Totals {
    messages: usize,
    connections: u64,
    answered: usize,
    /// Replies that never came; the relay must have reported each as unknown.
    missing: usize,
    /// Replies that came and whose result was never handed to the socket.
    unanswered_ops: usize,
    /// Results that were handed to a socket which went before the relay was seen to have read them.
    doubtful: usize,
    repeated: usize,
    unknown_to_the_relay: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_answered_once_and_in_order_unless_the_outcome_is_unknown() {
    let _shared = loading().await;
    let seed = env_number("CHAOS_SEED", 1) as u64;
    let (connector, relay, _home) = run(seed, NEVER).await;
    let totals = account(&connector, &relay);
    println!("not repeated, seed {seed}: {totals:?}");
    assert_eq!(totals.repeated, 0, "{totals:?}");
    let known = totals.missing + totals.unanswered_ops;
    assert!(
        totals.unknown_to_the_relay >= known,
        "something was lost and not reported: {totals:?}"
    );
    assert!(
        totals.unknown_to_the_relay <= known + totals.doubtful,
        "something was reported as unknown that was not: {totals:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_unknown_outcomes_are_repeated() {
    let _shared = loading().await;
    let first = env_number("CHAOS_SEED", 1) as u64 + 1000;
    // On a busy machine every cut may fall between two answers.
    for seed in first..first + 5 {
        let (connector, relay, _home) = run(seed, OFTEN).await;
        let totals = account(&connector, &relay);
        println!("repeated, seed {seed}: {totals:?}");
        assert_eq!(
            (totals.missing, totals.unknown_to_the_relay),
            (0, 0),
            "{totals:?}"
        );
        if totals.repeated > 0 {
            return;
        }
    }
    panic!("nothing had to be repeated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_left_the_process_goes_out_after_a_loss() {
    // More than the system takes off a process for a socket that nobody reads.
    const MESSAGES: usize = 2_000;
    let _shared = loading().await;
    let mut state = State::new(MESSAGES, 1);
    state.judge = Box::new(|_, _| Fate::Answer);
    let connector = Connector::start_with_receive_buffer(state, Some(4096));
    let mut home = Home::new(&connector.url(), &format!("{LINK}  max_in_flight: 2000\n{NEVER}"));
    let relay = home.start();
    eventually("a greeting", async || {
        (connector.state().greeted == 1).then_some(())
    })
    .await;
    connector.state().reads_paused = true;
    for chat in 0..MESSAGES {
        connector.push(chat, "語".repeat(1_900));
    }
    eventually("every answer owed", async || {
        let journal = Inspector::open(&home.state_dir).ok()?;
        (journal.counts().ok()?.finished == MESSAGES as u64).then_some(())
    })
    .await;
    connector.end_all(Ending::Reset);
    connector.state().reads_paused = false;
    let (missing, unknown) = eventually("everything answered or unknown", async || {
        let unknown = relay.log_count(UNKNOWN);
        let state = connector.state();
        let missing = state.messages.iter().filter(|m| m.replies.is_empty()).count();
        let acked = state.acked == MESSAGES;
        (acked && missing <= unknown).then_some((missing, unknown))
    })
    .await;
    println!("{MESSAGES} replies to a deaf connector: {missing} missing, {unknown} unknown");
    assert!(
        unknown < MESSAGES / 2,
        "{unknown} replies were given up that never left"
    );
    let state = connector.state();
    assert!(state.messages.iter().all(|message| message.replies.len() <= 1));
}

/// `CHAOS_SEEDS=20 CHAOS_MESSAGES=5000` is the whole of it; `CHAOS_SEED` is the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_arrives_however_often_the_link_is_cut() {
    const CUTS: usize = 20;
    let _shared = loading().await;
    let messages = env_number("CHAOS_MESSAGES", 1_000);
    let first = env_number("CHAOS_SEED", 0) as u64;
    for seed in first..first + env_number("CHAOS_SEEDS", 1) as u64 {
        let connector = Connector::start(stormy(seed));
        connector.state().judge = Box::new(|_, _| Fate::Answer);
        // The settings are the defaults: people wait for these reconnects.
        let mut home = Home::new(&connector.url(), "");
        let relay = home.start();
        let mut rng = Rng::new(seed ^ 0xC475);
        let started = Instant::now();
        let mut pushed = 0;
        for cut in 0..=CUTS {
            connected(&connector, cut as u64 + 1).await;
            let acked = connector.state().acked;
            while pushed < messages * (cut + 1) / (CUTS + 1) {
                connector.push(rng.index(CHATS), text(&mut rng, pushed));
                pushed += 1;
            }
            let work = 1 + rng.index(messages / CUTS / 2);
            eventually("some work on it", async || {
                (connector.state().acked >= (acked + work).min(pushed)).then_some(())
            })
            .await;
            if cut < CUTS {
                blow(&connector, &mut rng);
            }
        }
        eventually_within(SOON * 2, "every answer", async || {
            let state = connector.state();
            let answered =
                |message: &crate::rig::state::Message| message.acked && !message.replies.is_empty();
            state.messages.iter().all(answered).then_some(())
        })
        .await;
        let took = started.elapsed();
        relay.terminate();
        let mut relay = relay;
        assert_eq!(relay.exit_code(SOON).await, Some(0));
        connector.all_read().await;
        let totals = account(&connector, &relay);
        println!("seed {seed}: {CUTS} cuts in {took:.1?}: {totals:?}");
        assert_eq!(
            (totals.missing, totals.unknown_to_the_relay),
            (0, 0),
            "{totals:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_close_loses_nothing() {
    let _shared = loading().await;
    let closes = env_number("CHAOS_CLOSES", 15);
    let connector = Connector::start(State::new(256, 7));
    let mut home = Home::new(&connector.url(), LINK);
    let relay = home.start();
    let mut rng = Rng::new(7);
    for close in 0..closes {
        connected(&connector, close as u64 + 1).await;
        for chat in 0..300 {
            connector.push(chat, format!("t{chat}"));
        }
        eventually("some work on it", async || {
            (connector.state().acked > close * 300 + rng.index(200)).then_some(())
        })
        .await;
        connector.end_all(Ending::Close(if close % 2 == 0 { 1001 } else { 1012 }));
    }
    eventually_within(SOON * 2, "every answer", async || {
        let state = connector.state();
        let answered = |message: &crate::rig::state::Message| message.acked && !message.replies.is_empty();
        state.messages.iter().all(answered).then_some(())
    })
    .await;
    let totals = account_chats(&connector, &relay, 300);
    println!("{closes} closes with 1001 and 1012: {totals:?}");
    assert_eq!(totals.missing, 0, "{totals:?}");
}

/// Waits for the relay to connect for the nth time.
async fn connected(connector: &Connector, n: u64) {
    eventually("a connection", async || {
        (connector.state().greeted >= n).then_some(())
    })
    .await;
}

/// Lets the storm pass and gives what is left when it is quiet.
async fn run(seed: u64, settings: &str) -> (Connector, Relay, Home) {
    let messages = env_number("CHAOS_MESSAGES", 2_000);
    let connector = Connector::start(stormy(seed));
    let mut home = Home::new(&connector.url(), &format!("{LINK}{settings}"));
    let relay = home.start();
    let mut rng = Rng::new(seed ^ 0x5EED);
    let mut pushed = 0;
    let mut next_blow = Instant::now();
    let begun = Instant::now();
    // A machine that is slow to connect again gets more time for its storm.
    let too_calm = || connector.state().dialed <= STORM && begun.elapsed() < SOON;
    while pushed < messages || too_calm() {
        for _ in 0..=rng.below(8) {
            if pushed < messages {
                connector.push(rng.index(CHATS), text(&mut rng, pushed));
                pushed += 1;
            }
        }
        if Instant::now() >= next_blow {
            blow(&connector, &mut rng);
            next_blow = Instant::now() + Duration::from_millis(20 + rng.below(300));
        }
        tokio::time::sleep(Duration::from_millis(5 + rng.below(45))).await;
    }
    {
        let mut state = connector.state();
        state.dials.clear();
        state.judge = Box::new(|_, _| Fate::Answer);
    }
    // Ops whose result never comes run into their deadline; a last reset settles them sooner.
    connector.end_all(Ending::Reset);
    eventually_within(SOON * 2, "everything settled", async || {
        let unknown = relay.log_count(UNKNOWN);
        let state = connector.state();
        let settled = state.messages.iter().all(|message| message.acked);
        let missing = state.messages.iter().filter(|m| m.replies.is_empty()).count();
        let last = state.messages.iter().filter_map(|message| message.replies.last());
        let unanswered = last.filter(|reply| reply.result_line.is_none()).count();
        (settled && missing + unanswered <= unknown).then_some(())
    })
    .await;
    relay.terminate();
    let mut relay = relay;
    assert_eq!(relay.exit_code(SOON).await, Some(0));
    connector.all_read().await;
    let left = Inspector::open(&home.state_dir).unwrap().counts().unwrap();
    assert_eq!((left.queued, left.running, left.ops), (0, 0, 0), "{left:?}");
    (connector, relay, home)
}

fn text(rng: &mut Rng, number: usize) -> String {
    if rng.percent(10) {
        format!("sleep={} t{number}", 1 + rng.below(40))
    } else {
        format!("t{number}")
    }
}

fn stormy(seed: u64) -> State {
    let mut state = State::new(64, seed);
    let mut rng = Rng::new(seed ^ 0xFA7E);
    state.packing = Packing::Rough;
    state.repeat_percent = 10;
    state.judge = Box::new(move |_, _| match rng.below(100) {
        0..75 => Fate::Answer,
        75..99 => Fate::After(Duration::from_millis(1 + rng.below(50))),
        _ => Fate::Never,
    });
    state
}

/// One thing goes wrong.
fn blow(connector: &Connector, rng: &mut Rng) {
    let refusals: usize = rng.index(3);
    for _ in 0..refusals {
        let fate = match rng.below(3) {
            0 => DialFate::Reset,
            1 => DialFate::Refuse(503),
            _ => DialFate::Refuse(429),
        };
        connector.state().dials.push_back(fate);
    }
    let codes = [1000, 1001, 1006, 1008, 1011, 1012, 1013, 4000, 4008];
    connector.end_all(match rng.below(10) {
        0..4 => Ending::Reset,
        4..6 => Ending::HalfFrame,
        _ => Ending::Close(codes[rng.index(codes.len())]),
    });
}

fn account(connector: &Connector, relay: &Relay) -> Totals {
    let totals = account_chats(connector, relay, CHATS);
    assert!(totals.connections > STORM, "the storm was no storm: {totals:?}");
    totals
}

fn account_chats(connector: &Connector, relay: &Relay, chats: usize) -> Totals {
    let state = connector.state();
    let mut totals = Totals {
        messages: state.messages.len(),
        connections: state.dialed,
        unknown_to_the_relay: relay.log_count(UNKNOWN),
        ..Totals::default()
    };
    let mut last_in_chat = vec![0; chats];
    for (number, message) in state.messages.iter().enumerate() {
        let expected = format!("echo: {}", message.text.rsplit(' ').next().unwrap());
        let Some(first) = message.replies.first() else {
            totals.missing += 1;
            continue;
        };
        totals.answered += 1;
        totals.repeated += message.replies.len() - 1;
        assert!(
            first.order > last_in_chat[message.chat],
            "m{number} was answered out of order"
        );
        last_in_chat[message.chat] = first.order;
        for reply in &message.replies {
            assert_eq!(reply.content, expected, "m{number}");
            assert_eq!(reply.chat, first.chat, "m{number} was answered in another chat");
            assert_eq!(
                reply.request_id, first.request_id,
                "m{number} came twice as two ops"
            );
            match (reply.result_line, state.ended.get(&reply.connection)) {
                (None, _) => totals.unanswered_ops += 1,
                (Some(line), Some(read)) if line > *read => totals.doubtful += 1,
                _ => {}
            }
        }
    }
    assert_eq!(state.strange_ops, [""; 0], "ops that answer nothing");
    assert_eq!(totals.answered + totals.missing, totals.messages);
    totals
}
