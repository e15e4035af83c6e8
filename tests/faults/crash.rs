//! Nothing is lost and nothing is doubled, whenever the process dies.
//!
//! The real binary is killed (SIGKILL) again and again at seeded random moments under load, always on the same
//! state directory, and a last run works everything off. Then every message is accounted for:
//!
//! - every message is acknowledged and answered, by its echo or by the notice that its turn was cut short,
//!   never by both, and no turn was begun twice;
//! - a reply that the journal held as *sent* at a kill had really reached the connector: it is sent again with its
//!   requestId, or, where that is not wanted, not repeated, and the relay reports exactly these as unknown;
//! - another reply comes a second time only where the journal held it as *pending* at a kill: written to the socket,
//!   and killed before that or its result was on disk. The relay reports exactly these, with those that never
//!   went out, as unsent; they too have the same requestId.
//!
//! The short form is 50 rounds. The long form: `CRASH_ROUNDS=500 cargo test --test faults crash -- --nocapture`;
//! `CRASH_SEED` chooses another course.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::rig::connector::Connector;
use crate::rig::process::{Home, Relay};
use crate::rig::state::{Fate, State};
use crate::rig::{Rng, env_number, line};
use crate::support::load::loading;
use crate::support::wait::{SOON, eventually, eventually_within};
use hermes_relay::store::{InspectError, Inspector, Section};
use serde_json::Value;

const CHATS: usize = 40;
const NOTICE: &str = "I was restarted";
const SETTINGS: &str = "link:\n  backoff_min_ms: 10\n  backoff_max_ms: 50\n  max_in_flight: 24\n\
                        log:\n  level: info\n";
/// A busy machine fills the queue of a chat, and nothing is to be said about that here.
const NEVER: &str = "sessions:\n  overflow_notice: ''\n  resend_unknown: never\n";
/// However often the process dies while an answer is under way.
const ALWAYS: &str = "sessions:\n  overflow_notice: ''\n  resend_max_attempts: 1000\n";

/// The unsettled ops in a journal, by the message that they answer.
#[derive(Debug, Default)]
struct Unfinished {
    pending: BTreeSet<usize>,
    sent: BTreeSet<usize>,
}

impl Unfinished {
    /// Reads a copy, so that the relay finds its journal exactly as it left it.
    fn read(state_dir: &Path) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for name in ["journal.db", "journal.db-wal"] {
            if state_dir.join(name).exists() {
                std::fs::copy(state_dir.join(name), copy.path().join(name)).unwrap();
            }
        }
        // Killed before there was a journal, or before it had its tables: it held nothing.
        Inspector::open(copy.path()).map_or_else(|_| Self::default(), |inspector| Self::of(&inspector))
    }

    fn of(inspector: &Inspector) -> Self {
        let mut unfinished = Self::default();
        let read: Result<(), InspectError> = inspector.export(Section::Ops, |listed, content| {
            if listed.state == "dropped" {
                return Ok(());
            }
            let op: Value = serde_json::from_slice(&content.unwrap()).unwrap();
            let message = line::number(op["action"]["reply_to"].as_str().unwrap()).unwrap();
            let set = if listed.state == "sent" {
                &mut unfinished.sent
            } else {
                &mut unfinished.pending
            };
            assert!(set.insert(message), "one op for each message");
            Ok(())
        });
        if let Err(error) = read {
            assert_eq!(inspector.counts().ok(), None, "{error}");
        }
        unfinished
    }
}

/// One life of the process.
struct Run {
    first_connection: u64,
    /// What the journal held when it began.
    unfinished: Unfinished,
}

#[derive(Debug, Default)]
struct Totals {
    rounds: usize,
    messages: usize,
    acked: usize,
    answered: usize,
    interrupted: usize,
    duplicates: usize,
    unfinished: usize,
    unknown: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_is_doubled_whenever_the_process_dies() {
    // On a busy machine every kill may fall between two answers.
    for _ in 0..4 {
        let totals = die_again_and_again(NEVER, env_number("CRASH_ROUNDS", 50)).await;
        if totals.unknown > 0 {
            return;
        }
    }
    panic!("no outcome was unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_arrives_whenever_the_process_dies() {
    let totals = die_again_and_again(ALWAYS, env_number("CRASH_ROUNDS", 25)).await;
    assert_eq!(totals.unknown, 0, "{totals:?}");
}

async fn die_again_and_again(settings: &str, rounds: usize) -> Totals {
    let _shared = loading().await;
    let seed = env_number("CRASH_SEED", 1) as u64;
    let mut rng = Rng::new(seed);
    let connector = Connector::start(State::new(256, seed));
    connector.answer_with(moody(seed));
    let mut home = Home::new(&connector.url(), &format!("{SETTINGS}{settings}"));
    let mut history = History {
        resends: settings == ALWAYS,
        ..History::default()
    };
    // On a busy machine kills may miss the moment between a reply and its result: more follow then.
    for round in 0..rounds * 4 {
        if round >= rounds && (history.resends || history.totals.unknown > 0) {
            break;
        }
        let mut relay = history.begin(&connector, &mut home);
        let greeted = connector.state().greeted;
        if rng.percent(12) {
            let end = Instant::now() + Duration::from_millis(rng.below(60));
            send_messages(&connector, &mut rng, end).await;
        } else {
            eventually("a greeting", async || {
                assert!(relay.ended().is_none(), "the relay ended by itself");
                (connector.state().greeted > greeted).then_some(())
            })
            .await;
            let end = Instant::now() + Duration::from_millis(rng.below(150));
            send_messages(&connector, &mut rng, end).await;
        }
        relay.kill();
        connector.all_read().await;
        history.end(&relay);
        history.check_sent_was_received(&connector, &Unfinished::read(&home.state_dir).sent);
    }

    connector.answer_with(Box::new(|_, _| Fate::Answer));
    let mut relay = history.begin(&connector, &mut home);
    connector.wake();
    // After many rounds there is much to do: what counts is that it goes on.
    let (mut answered, total) = (0, connector.state().messages.len());
    while answered < total {
        answered = eventually_within(
            SOON * 2,
            "another message acknowledged and answered",
            async || {
                let state = connector.state();
                let done =
                    |message: &&crate::rig::state::Message| message.acked && !message.replies.is_empty();
                let now = state.messages.iter().filter(done).count();
                (now > answered).then_some(now)
            },
        )
        .await;
    }
    relay.terminate();
    assert_eq!(relay.exit_code(SOON).await, Some(0));
    connector.all_read().await;
    history.end(&relay);

    let totals = history.account(&connector, rounds);
    println!("seed {seed}: {totals:?}");
    check_journal_at_rest(&home.state_dir, totals.messages);
    assert!(totals.messages > rounds * 10, "the load was no load: {totals:?}");
    assert!(totals.interrupted > 0 && totals.unfinished > 0, "{totals:?}");
    totals
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_waits_for_its_turn_on_the_wire_is_not_taken_for_sent() {
    let _shared = loading().await;
    let connector = Connector::start(State::new(256, 1));
    connector.answer_with(Box::new(|_, _| Fate::Never));
    let mut home = Home::new(&connector.url(), &format!("link:\n  max_in_flight: 8\n{NEVER}"));
    let mut relay = home.start();
    let numbers: Vec<usize> = (0..CHATS)
        .map(|chat| connector.push(chat, format!("t{chat}")))
        .collect();
    let held = eventually("eight ops held as sent", async || {
        let held = Unfinished::of(&Inspector::open(&home.state_dir).ok()?);
        (held.sent.len() + held.pending.len() == CHATS && held.sent.len() >= 8).then_some(held)
    })
    .await;
    relay.kill();
    connector.all_read().await;
    let received = |connector: &Connector| -> Vec<usize> {
        let state = connector.state();
        numbers
            .iter()
            .map(|number| state.messages[*number].replies.len())
            .collect()
    };
    assert_eq!(received(&connector).iter().sum::<usize>(), 8);
    assert_eq!(held.sent.len(), 8, "{held:?}");

    connector.answer_with(Box::new(|_, _| Fate::Answer));
    let relay = home.start();
    eventually("the other replies", async || {
        (received(&connector).iter().sum::<usize>() >= CHATS).then_some(())
    })
    .await;
    assert_eq!(received(&connector), [1; CHATS], "each exactly once");
    assert_eq!(relay.log_count("it was sent before the restart"), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_interrupted_turn_is_reported_however_long_their_messages_are() {
    const TURNS: usize = 500;
    let _shared = loading().await;
    let connector = Connector::start(State::new(TURNS, 1));
    let mut home = Home::new(&connector.url(), "sessions:\n  max_concurrent_turns: 500\n");
    let mut relay = home.start();
    let long = "word ".repeat(2_000);
    for chat in 0..TURNS {
        connector.push(chat, format!("sleep=600000 {long}"));
    }
    eventually("every message accepted", async || {
        (connector.state().acked == TURNS).then_some(())
    })
    .await;
    relay.kill();
    connector.all_read().await;
    let relay = home.start();
    let reported = |state: &State| {
        let reported = state
            .messages
            .iter()
            .filter(|message| message.replies.len() == 1 && message.replies[0].content.starts_with(NOTICE));
        reported.count()
    };
    eventually("every chat told", async || {
        (reported(&connector.state()) == TURNS).then_some(())
    })
    .await;
    assert_eq!(relay.log_count("interrupted by the end of the last run"), TURNS);
}

/// Answers most ops at once, some late, a few never.
fn moody(seed: u64) -> crate::rig::state::Judge {
    let mut rng = Rng::new(seed ^ 0xABCD);
    Box::new(move |_, _| match rng.below(100) {
        0..70 => Fate::Answer,
        70..92 => Fate::After(Duration::from_millis(1 + rng.below(90))),
        _ => Fate::Never,
    })
}

/// Delivers messages until then.
async fn send_messages(connector: &Connector, rng: &mut Rng, end: Instant) {
    while Instant::now() < end {
        for _ in 0..=rng.below(5) {
            let chat = rng.index(CHATS);
            let number = connector.state().messages.len();
            let text = if rng.percent(15) {
                format!("sleep={} t{number}", 1 + rng.below(60))
            } else {
                format!("t{number}")
            };
            connector.push(chat, text);
        }
        let pause = Duration::from_micros(300 + rng.below(3000));
        tokio::time::sleep(pause.min(end.saturating_duration_since(Instant::now()))).await;
    }
}

#[derive(Default)]
struct History {
    /// Replies of unknown outcome are sent again.
    resends: bool,
    runs: Vec<Run>,
    /// Rows that the relay reported as cut short.
    cut_short: HashSet<i64>,
    totals: Totals,
}

impl History {
    fn begin(&mut self, connector: &Connector, home: &mut Home) -> Relay {
        self.runs.push(Run {
            first_connection: connector.state().dialed + 1,
            unfinished: Unfinished::read(&home.state_dir),
        });
        home.start()
    }

    /// Compares what the relay told of its start with what its journal held.
    fn end(&mut self, relay: &Relay) {
        let unfinished = &self.runs.last().unwrap().unfinished;
        let log = relay.log();
        for line in &log {
            if line["message"] == "a turn was interrupted by the end of the last run" {
                self.cut_short.insert(line["row"].as_i64().unwrap());
            }
        }
        let going_on = log
            .iter()
            .find(|line| line["message"] == "resuming where the last run ended");
        if let Some(reported) = going_on {
            let (unsent, unknown) = match (self.resends, unfinished.pending.len(), unfinished.sent.len()) {
                (true, pending, sent) => (pending + sent, 0),
                (false, pending, sent) => (pending, sent),
            };
            assert_eq!(reported["unsent"], unsent, "{reported}");
            assert_eq!(reported["unknown"], unknown, "{reported}");
            self.totals.unfinished += unsent;
            self.totals.unknown += unknown;
        } else if log
            .iter()
            .any(|line| line["message"] == "connected to the connector")
        {
            assert!(
                unfinished.pending.is_empty() && unfinished.sent.is_empty(),
                "not reported: {unfinished:?}"
            );
        }
    }

    /// What is not repeated must have arrived.
    fn check_sent_was_received(&self, connector: &Connector, sent: &BTreeSet<usize>) {
        let state = connector.state();
        for message in sent {
            assert!(
                !state.messages[*message].replies.is_empty(),
                "round {}: the reply to m{message} is held as sent and never came",
                self.runs.len()
            );
        }
    }

    fn account(&mut self, connector: &Connector, rounds: usize) -> Totals {
        let state = connector.state();
        let mut totals = std::mem::take(&mut self.totals);
        let mut twice: HashMap<usize, usize> = HashMap::new();
        totals.rounds = rounds;
        totals.messages = state.messages.len();
        for (number, message) in state.messages.iter().enumerate() {
            let text = message.text.rsplit(' ').next().unwrap();
            let echoes = message
                .replies
                .iter()
                .filter(|reply| reply.content == format!("echo: {text}"))
                .count();
            let notices = message
                .replies
                .iter()
                .filter(|reply| reply.content.starts_with(NOTICE))
                .count();
            assert_eq!(echoes + notices, message.replies.len(), "m{number}: {message:?}");
            assert!(
                echoes == 0 || notices == 0,
                "m{number} was run and reported as not: {message:?}"
            );
            totals.acked += usize::from(message.acked);
            totals.answered += usize::from(echoes > 0);
            totals.interrupted += usize::from(notices > 0);
            for again in &message.replies[1..] {
                totals.duplicates += 1;
                let run = self.run_of(again.connection);
                assert!(
                    run.unfinished.pending.contains(&number)
                        || (self.resends && run.unfinished.sent.contains(&number)),
                    "the reply to m{number} came again though nothing was owed: {message:?}"
                );
                assert_eq!(again.request_id, message.replies[0].request_id, "{message:?}");
                let same_run = twice.insert(number, run_number(&self.runs, again.connection));
                assert_ne!(
                    same_run,
                    Some(run_number(&self.runs, again.connection)),
                    "{message:?}"
                );
            }
        }
        assert_eq!(state.strange_ops, [""; 0], "ops that answer nothing");
        assert_eq!(totals.acked, totals.messages);
        assert_eq!(
            totals.answered + totals.interrupted,
            totals.messages,
            "{totals:?}"
        );
        assert_eq!(
            totals.interrupted,
            self.cut_short.len(),
            "told to the chats and to the log"
        );
        totals
    }

    fn run_of(&self, connection: u64) -> &Run {
        &self.runs[run_number(&self.runs, connection)]
    }
}

fn run_number(runs: &[Run], connection: u64) -> usize {
    runs.partition_point(|run| run.first_connection <= connection) - 1
}

/// Nothing is left over, and no turn was begun twice.
fn check_journal_at_rest(state_dir: &Path, messages: usize) {
    let inspector = Inspector::open(state_dir).unwrap();
    let counts = inspector.counts().unwrap();
    assert_eq!(
        (counts.queued, counts.running, counts.ops),
        (0, 0, 0),
        "{counts:?}"
    );
    assert_eq!(counts.finished, messages as u64);
    let each: Result<(), InspectError> = inspector.export(Section::Finished, |listed, _| {
        assert!(listed.attempt <= 1, "a turn was begun twice: {listed:?}");
        Ok(())
    });
    each.unwrap();
}
