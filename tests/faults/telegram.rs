//! A Telegram bot of one's own, whenever the process dies: nobody's message is lost, none is worked on twice; and memory stays
//! flat however much comes.
//!
//! The real binary is killed (SIGKILL) again and again at seeded random moments while people write to a fake Bot API, always on
//! the same state directory; the server is slow or fails at times. A last run works everything off. Then every message is
//! accounted for:
//!
//! - it was answered, or its chat was told that its turn was interrupted, and not both; its agent was started at most once, as
//!   the agent itself notes;
//! - an answer was shown more than once only where the journal owed it at a kill: Telegram has no idempotency, so what was under
//!   way then is sent again;
//! - whatever was confirmed to Telegram at a kill stood in the journal.
//!
//! The short form is 10 rounds. The long form: `TELEGRAM_ROUNDS=100 cargo test --all-features --test faults telegram -- --nocapture`;
//! `CRASH_SEED` chooses another course. The memory test takes 5,000 updates; its long form has `TELEGRAM_UPDATES=100000`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::dev::{ApiChatKind, ApiPerson, BotApi, BotApiAnswer, BotApiRule, BotApiSettings};
use hermes_relay::store::{InspectError, Inspector, Section};
use serde_json::Value;

use crate::rig::{Rng, env_number};
use crate::support::load::{loading, measuring};
use crate::support::relay_process::{RelayProcess, Setup};
use crate::support::wait::{eventually, eventually_within};

const FIRST_PERSON: i64 = 1_000;
const PEOPLE: usize = 20;
const GROUP: i64 = -500;
const FIRST_UPDATE: i64 = 700_000_001;
const NOTICE: &str = "I was restarted";
const CONNECTED: &str = "connected to Telegram";

/// What the agent does: it notes its message, and answers.
const AGENT: &str = "read -r line; echo \\\"$line\\\" >> \\\"NOTES\\\"; sleep 0.05; echo \\\"ran $line\\\"";

/// One message that somebody wrote.
struct Said {
    chat: i64,
    message_id: i64,
    update_id: i64,
    text: String,
}

/// The people's side.
struct Town {
    api: BotApi,
    said: Vec<Said>,
    /// Updates so far.
    updates: i64,
}

impl Town {
    async fn new() -> Self {
        let api = BotApi::start(BotApiSettings {
            first_update_id: FIRST_UPDATE,
            message_limit: 100_000,
            call_limit: 100_000,
            ..BotApiSettings::default()
        })
        .await
        .unwrap();
        for number in 0..PEOPLE {
            api.add_person(ApiPerson::named(person(number), "Somebody"));
        }
        api.add_chat(GROUP, ApiChatKind::Group, "Team");
        Self {
            api,
            said: Vec::new(),
            updates: 0,
        }
    }

    /// Somebody says something in private, and sometimes something in the group that nobody is meant to answer.
    fn say(&mut self, rng: &mut Rng) {
        let chat = person(rng.index(PEOPLE));
        let text = format!("t{}", self.said.len());
        let message_id = self.api.say(chat, chat, &text);
        self.said.push(Said {
            chat,
            message_id,
            update_id: FIRST_UPDATE + self.updates,
            text,
        });
        self.updates += 1;
        if rng.percent(30) {
            self.api.say(GROUP, chat, "chatter");
            self.updates += 1;
        }
    }
}

fn person(number: usize) -> i64 {
    FIRST_PERSON + i64::try_from(number).unwrap()
}

/// What the journal held at a kill.
#[derive(Default)]
struct Held {
    /// Update ids.
    updates: HashSet<i64>,
    /// The messages whose answers were owed.
    owed: HashSet<i64>,
}

impl Held {
    /// Reads a copy, so that the relay finds its journal exactly as it left it.
    fn read(state_dir: &Path) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for name in ["journal.db", "journal.db-wal"] {
            if state_dir.join(name).exists() {
                fs::copy(state_dir.join(name), copy.path().join(name)).unwrap();
            }
        }
        // Killed before there was a journal, or before it had its tables: it held nothing.
        let Ok(inspector) = Inspector::open(copy.path()) else {
            return Self::default();
        };
        let mut held = Self::default();
        let read: Result<(), InspectError> = inspector.export(Section::Ops, |listed, content| {
            if listed.state != "dropped" {
                let op: Value = serde_json::from_slice(&content.unwrap()).unwrap();
                let message: Option<i64> = op["action"]["reply_to"].as_str().and_then(|id| id.parse().ok());
                held.owed.extend(message);
            }
            Ok(())
        });
        let mut whole = read.is_ok();
        for section in [Section::Unfinished, Section::Finished] {
            let rows: Result<(), InspectError> = inspector.export(section, |listed, _| {
                held.updates
                    .extend(listed.name.as_deref().and_then(|id| id.parse::<i64>().ok()));
                Ok(())
            });
            whole &= rows.is_ok();
        }
        assert!(whole || inspector.counts().is_err(), "the journal can be read");
        held
    }
}

#[derive(Debug, Default)]
struct Totals {
    messages: usize,
    answered: usize,
    interrupted: usize,
    twice: usize,
    /// Those of which no call was without an answer at a kill: the answer came, and was not in the journal yet.
    twice_though_answered: usize,
    owed_at_kills: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_and_none_runs_twice_whenever_the_process_dies() {
    let _shared = loading().await;
    let rounds = env_number("TELEGRAM_ROUNDS", 10);
    let mut rng = Rng::new(env_number("CRASH_SEED", 1) as u64);
    let mut town = Town::new().await;
    let notes = tempfile::tempdir().unwrap();
    let notes = notes.path().join("runs");
    fs::write(&notes, "").unwrap();
    let script = AGENT.replace("NOTES", &notes.display().to_string());
    let setup = Setup::for_bot(&town.api)
        .args(&["run", "--agent", "mark"])
        .env("PATH", "/usr/bin:/bin")
        .setting(
            "agents.mark",
            &format!("{{kind: command, argv: [/bin/sh, -c, \"{script}\"]}}"),
        );
    // At how many kills the answer to a message was owed.
    let mut owed: HashMap<i64, usize> = HashMap::new();
    let mut under_way: HashSet<i64> = HashSet::new();
    let mut totals = Totals::default();
    for _ in 0..rounds {
        trouble(&town.api, &mut rng);
        let mut relay = setup.start();
        if rng.percent(80) {
            relay.wait_for_log(CONNECTED).await;
        }
        let end = Instant::now() + Duration::from_millis(200 + rng.below(1_800));
        while Instant::now() < end {
            town.say(&mut rng);
            tokio::time::sleep(Duration::from_millis(5 + rng.below(120))).await;
        }
        assert!(
            !relay.has_ended(),
            "the relay ended by itself: {}",
            relay.stderr()
        );
        relay.kill().await;
        under_way.extend(unanswered(&town.api));
        let held = Held::read(&setup.state_dir());
        let confirmed = town.api.confirmed_offset().unwrap_or(0);
        for said in town.said.iter().filter(|said| said.update_id < confirmed) {
            assert!(
                held.updates.contains(&said.update_id),
                "{} was confirmed and is not in the journal",
                said.text
            );
        }
        totals.owed_at_kills += held.owed.len();
        for message in held.owed {
            *owed.entry(message).or_default() += 1;
        }
    }
    town.api.clear_script();
    let relay = setup.start();
    relay.wait_for_log(CONNECTED).await;
    eventually_within(
        Duration::from_secs(180),
        "every message answered or reported",
        async || {
            let shown = shown(&town.api);
            let missing = town
                .said
                .iter()
                .filter(|said| !shown.contains_key(&said.message_id));
            let missing: Vec<&str> = missing.map(|said| said.text.as_str()).collect();
            if missing.is_empty() {
                Ok(())
            } else {
                Err(missing.join(" "))
            }
        },
    )
    .await;
    eventually("everything confirmed", async || town.api.pending_count() == 0).await;
    relay.stop().await;
    account(
        &town,
        &fs::read_to_string(&notes).unwrap(),
        &owed,
        &under_way,
        &mut totals,
    );
    println!("{rounds} rounds: {totals:?}");
    assert!(totals.messages > rounds * 5, "the load was no load: {totals:?}");
}

/// A server that is slow and fails at times, but never after it has done something.
fn trouble(api: &BotApi, rng: &mut Rng) {
    api.clear_script();
    let delay = Duration::from_millis(20 + rng.below(200));
    api.script(BotApiRule::on("sendMessage", BotApiAnswer::Delay(delay)).times(rng.index(12)));
    let poll = match rng.below(4) {
        0 => BotApiAnswer::CutAfter,
        1 => BotApiAnswer::BadGateway,
        2 => BotApiAnswer::Delay(Duration::from_millis(150)),
        _ => return,
    };
    api.script(BotApiRule::on("getUpdates", poll).once());
}

/// The messages that calls without an answer answer.
fn unanswered(api: &BotApi) -> Vec<i64> {
    let mut calls = api.calls_of("sendMessage");
    calls.retain(|call| call.status.is_none());
    let anchors = calls
        .iter()
        .filter_map(|call| call.params["reply_parameters"]["message_id"].as_i64());
    anchors.collect()
}

/// The bot's messages, by the message that they answer.
fn shown(api: &BotApi) -> BTreeMap<i64, Vec<String>> {
    let mut shown: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for number in 0..PEOPLE {
        for answer in api.answers(person(number)) {
            let anchor = answer.reply_to.unwrap_or_default();
            shown.entry(anchor).or_default().push(answer.text);
        }
    }
    shown
}

fn account(
    town: &Town,
    notes: &str,
    owed: &HashMap<i64, usize>,
    under_way: &HashSet<i64>,
    totals: &mut Totals,
) {
    let mut runs: HashMap<&str, usize> = HashMap::new();
    for line in notes.lines() {
        *runs.entry(line).or_default() += 1;
    }
    let shown = shown(&town.api);
    totals.messages = town.said.len();
    assert_eq!(
        shown.len(),
        town.said.len(),
        "every answer has its message: {shown:?}"
    );
    for said in &town.said {
        let texts = &shown[&said.message_id];
        let answers = texts
            .iter()
            .filter(|text| **text == format!("ran {}", said.text))
            .count();
        let notices = texts.iter().filter(|text| text.starts_with(NOTICE)).count();
        assert_eq!(answers + notices, texts.len(), "{}: {texts:?}", said.text);
        assert!(
            answers == 0 || notices == 0,
            "{} was run and reported as not: {texts:?}",
            said.text
        );
        let started = runs.get(said.text.as_str()).copied().unwrap_or_default();
        assert!(
            started <= 1,
            "{} in chat {} was run {started} times",
            said.text,
            said.chat
        );
        assert!(
            answers == 0 || started == 1,
            "{} was answered and never run",
            said.text
        );
        totals.answered += usize::from(answers > 0);
        totals.interrupted += usize::from(notices > 0);
        if texts.len() > 1 {
            totals.twice += 1;
            totals.twice_though_answered += usize::from(!under_way.contains(&said.message_id));
            let kills = owed.get(&said.message_id).copied().unwrap_or_default();
            assert!(
                texts.len() - 1 <= kills,
                "{} came {} times and was owed at {kills} kills",
                said.text,
                texts.len()
            );
        }
    }
    assert_eq!(totals.answered + totals.interrupted, totals.messages);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_flat_and_polling_goes_on_however_much_comes() {
    const SLICE: usize = 500;
    /// One message in so many is for the agent; the rest is chatter in groups.
    const PRIVATE: usize = 20;
    const CHATTERS: usize = 300;
    let _alone = measuring().await;
    let updates = env_number("TELEGRAM_UPDATES", 5_000).max(4 * SLICE);
    let api = BotApi::start(BotApiSettings {
        message_limit: 50,
        call_limit: 2_000,
        ..BotApiSettings::default()
    })
    .await
    .unwrap();
    for number in 0..CHATTERS {
        api.add_person(ApiPerson::named(person(number), "Somebody"));
    }
    for group in 0..10 {
        api.add_chat(GROUP - group, ApiChatKind::Group, "Team");
    }
    let setup = Setup::for_bot(&api)
        .setting("journal.durability", "process")
        .setting("streaming.typing", "false")
        .setting("streaming.reactions", "false");
    let relay = setup.start();
    relay.wait_for_log(CONNECTED).await;
    let (mut warm, mut peak, mut slowest) = (0, 0, Duration::ZERO);
    let mut pushed = 0;
    while pushed < updates {
        let begun = Instant::now();
        let mut last = None;
        for number in pushed..pushed + SLICE {
            let who = person(number / PRIVATE % CHATTERS);
            if number % PRIVATE == 0 {
                api.say(who, who, &format!("m{number}"));
                last = Some((who, format!("echo: m{number}")));
            } else {
                let group = GROUP - i64::try_from(number % 10).unwrap();
                api.say(group, who, "chatter of some length that nobody needs to answer");
            }
        }
        pushed += SLICE;
        eventually_within(Duration::from_secs(60), "every update taken", async || {
            if api.pending_count() == 0 {
                Ok(())
            } else {
                Err(api.pending_count())
            }
        })
        .await;
        slowest = slowest.max(begun.elapsed());
        if let Some((who, text)) = last {
            eventually_within(Duration::from_secs(60), "the last one answered", async || {
                api.answers(who).iter().any(|answer| answer.text == text)
            })
            .await;
        }
        let now = relay.memory_kib("VmRSS");
        peak = peak.max(now);
        if pushed <= updates / 4 {
            warm = now;
        }
    }
    let end = at_rest(&relay).await;
    println!(
        "{updates} updates: {warm} KiB after a quarter, at most {peak} KiB, {end} KiB at the end; {SLICE} updates taken within {slowest:?}"
    );
    assert!(end < warm + 15 * 1024, "grew from {warm} KiB to {end} KiB");
    // Everybody may drive this bot, which the start says.
    assert_eq!(relay.count("WARN"), 1, "{}", relay.stderr());
    assert_eq!(relay.count("everybody who finds the bot"), 1);
    relay.stop().await;
}

/// The memory in use once it no longer changes much.
async fn at_rest(relay: &RelayProcess) -> u64 {
    let mut before = 0;
    eventually_within(Duration::from_secs(10), "memory at rest", async || {
        let now = relay.memory_kib("VmRSS");
        let still = now.abs_diff(std::mem::replace(&mut before, now)) < 64;
        still.then_some(now)
    })
    .await
}
