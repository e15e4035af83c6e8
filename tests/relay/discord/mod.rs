//! The real binary as a Discord bot, against a fake Discord.

mod access;
mod changes;
mod commands;
mod files;
mod load;
mod refusals;

use std::time::{Duration, Instant};

use crate::support::dev::{ApiPerson, BotApi, BotApiSettings};
use crate::support::discord::{CHANNEL, DIRECT, FakeDiscord, TOKEN};
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::wait::eventually;

use serde_json::{Value, json};

const CONNECTED: &str = "connected to Discord";

fn setup(fake: &FakeDiscord) -> Setup {
    with_bot(Setup::new(), fake)
}

fn with_bot(setup: Setup, fake: &FakeDiscord) -> Setup {
    let bot = format!(
        "{{api_base: \"http://{}\", gateway_url: \"ws://{}\"}}",
        fake.rest, fake.gateway
    );
    setup
        .env("DISCORD_BOT_TOKEN", TOKEN)
        .setting("direct.discord", &bot)
}

async fn started(setup: &Setup) -> RelayProcess {
    let relay = setup.start();
    relay.wait_for_log(CONNECTED).await;
    relay
}

/// What the relay has stored of its session.
fn stored(setup: &Setup) -> Value {
    let bytes = std::fs::read(setup.state_dir().join("discord-session")).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

async fn answered(fake: &FakeDiscord, text: &str) {
    eventually(&format!("the answer {text}"), async || {
        fake.answers().iter().any(|answer| answer == text)
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_reached_is_not_called_lost() {
    // Nobody listens there.
    let bot = "{api_base: \"http://127.0.0.1:1\", gateway_url: \"ws://127.0.0.1:1\"}";
    let setup = Setup::new()
        .env("DISCORD_BOT_TOKEN", TOKEN)
        .setting("direct.discord", bot);
    let relay = setup.start();
    let line = relay.wait_for_log("cannot connect to Discord: ").await;
    assert!(line.contains("hermes-relay doctor"), "{line}");
}

#[tokio::test]
async fn the_binary_answers_a_direct_message() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.say("hello");
    answered(&fake, "echo: hello").await;
    assert_eq!(fake.sent()[0]["enforce_nonce"], true);
    relay.stop().await;
}

#[tokio::test]
async fn run_discord_needs_no_settings_but_the_token_and_status_shows_the_bot() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake).args(&["run", "--agent", "echo", "--discord"]);
    let relay = started(&setup).await;
    fake.say("hello");
    answered(&fake, "echo: hello").await;
    let status = setup.verb(&["status"]).output().await.unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    let row = status.lines().find(|line| line.starts_with("discord "));
    let row = row.unwrap_or_else(|| panic!("no row of the bot in {status}"));
    assert!(
        row.contains(&fake.rest.to_string()) && row.contains("without a connector"),
        "{row}"
    );
    assert!(
        !status.contains(TOKEN) && !status.contains("telegram"),
        "{status}"
    );
    relay.stop().await;
    let (exit, said) = setup.without_env("DISCORD_BOT_TOKEN").ends().await;
    assert_eq!(exit, 78, "{said}");
    assert!(said.contains("DISCORD_BOT_TOKEN"), "{said}");
}

#[tokio::test]
async fn a_kill_loses_nothing_and_runs_nothing_twice() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let mut relay = started(&setup).await;
    fake.say("one");
    answered(&fake, "echo: one").await;
    relay.kill().await;
    fake.say("two");
    let relay = started(&setup).await;
    answered(&fake, "echo: two").await;
    relay.stop().await;
    let mut answers = fake.answers();
    answers.sort();
    assert_eq!(answers, ["echo: one", "echo: two"]);
    assert_eq!(fake.sessions(), (1, 1), "the session was resumed");
}

#[tokio::test]
async fn what_was_missed_is_fetched_when_the_session_is_lost() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let mut relay = started(&setup).await;
    fake.say("one");
    answered(&fake, "echo: one").await;
    // The position is stored shortly after the commit.
    tokio::time::sleep(Duration::from_millis(600)).await;
    relay.kill().await;
    fake.forget_session();
    fake.say_unseen(DIRECT, "two");
    let relay = setup.start();
    answered(&fake, "echo: two").await;
    relay.stop().await;
    assert_eq!(fake.answers(), ["echo: one", "echo: two"]);
}

#[tokio::test]
async fn what_was_missed_in_two_outages_in_a_row_is_answered_once_and_in_order_although_a_fetch_fails() {
    for is_killed in [false, true] {
        let fake = FakeDiscord::start().await;
        let setup = setup(&fake);
        let mut relay = started(&setup).await;
        fake.say_in(CHANNEL, "<@1> one");
        answered(&fake, "echo: one").await;
        fake.fail_reads(1);
        fake.forget_session();
        fake.say_unseen(CHANNEL, "<@1> two");
        fake.cut();
        relay.wait_for_log("cannot be fetched now; trying again").await;
        // It is not for the bot, and newer than what is still to be fetched.
        let noise = fake.say_in(CHANNEL, "noise");
        eventually("the noise is read", async || {
            stored(&setup)["chats"][CHANNEL] == noise
        })
        .await;
        fake.forget_session();
        fake.say_unseen(CHANNEL, "<@1> three");
        if is_killed {
            relay.kill().await;
        } else {
            fake.cut();
        }
        eventually("the second outage", async || {
            !fake.is_connected() || fake.sessions().0 == 3
        })
        .await;
        // The next session has it before the others are fetched.
        fake.say_in(CHANNEL, "<@1> four");
        if is_killed {
            relay = setup.start();
        }
        answered(&fake, "echo: four").await;
        relay.stop().await;
        let answers = ["echo: one", "echo: two", "echo: three", "echo: four"];
        assert_eq!(fake.answers(), answers, "killed: {is_killed}");
        assert_eq!(fake.sessions().0, 3, "killed: {is_killed}");
    }
}

#[tokio::test]
async fn a_gateway_that_answers_no_heartbeat_is_kept_while_it_sends_events_and_left_when_it_sends_nothing() {
    let fake = FakeDiscord::with_heartbeats_every(1500).await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.mute(true);
    let begun = Instant::now();
    let mut said = 0;
    while begun.elapsed() < Duration::from_secs(6) {
        said += 1;
        fake.say(&format!("{said}"));
        answered(&fake, &format!("echo: {said}")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(fake.sessions(), (1, 0), "it sent events");
    eventually("another connection", async || fake.sessions().1 > 0).await;
    fake.mute(false);
    fake.say("back");
    answered(&fake, "echo: back").await;
    relay.stop().await;
}

#[tokio::test]
async fn in_a_channel_only_what_addresses_the_bot_is_answered_after_a_restart_too() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let mut relay = started(&setup).await;
    fake.say_in(CHANNEL, "<@1> one");
    answered(&fake, "echo: one").await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    relay.kill().await;
    fake.say_in(CHANNEL, "noise");
    fake.say_in(CHANNEL, "<@1> two");
    let mut relay = started(&setup).await;
    answered(&fake, "echo: two").await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    relay.kill().await;
    fake.forget_session();
    fake.say_unseen(CHANNEL, "more noise");
    fake.say_unseen(CHANNEL, "<@1> three");
    let relay = setup.start();
    answered(&fake, "echo: three").await;
    relay.stop().await;
    assert_eq!(fake.answers(), ["echo: one", "echo: two", "echo: three"]);
}

#[tokio::test]
async fn a_mention_of_the_bots_own_role_calls_it_after_a_restart_too() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let mut relay = started(&setup).await;
    let roles = json!([{"id": "500", "tags": {"bot_id": "1"}}, {"id": "501"}]);
    fake.happens("GUILD_CREATE", &json!({"id": "9", "roles": roles}));
    fake.say_in(CHANNEL, "<@&500> one");
    answered(&fake, "echo: one").await;
    // Discord sends what was committed to no session again.
    eventually("the position is stored", async || {
        stored(&setup)["session"]["seq"].as_u64() >= Some(3)
    })
    .await;
    relay.kill().await;
    fake.say_in(CHANNEL, "<@&501> noise");
    fake.say_in(CHANNEL, "<@&500> two");
    let relay = started(&setup).await;
    answered(&fake, "echo: two").await;
    relay.stop().await;
    assert_eq!(fake.answers(), ["echo: one", "echo: two"]);
    assert_eq!(fake.sessions(), (1, 1), "the session was resumed");
}

#[tokio::test]
async fn what_was_said_before_is_context_once_when_the_bot_is_called() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake)
        .setting("chat.group_context", "2")
        .setting("agents.parrot", "{kind: command, argv: [cat]}")
        .args(&["run", "--agent", "parrot"]);
    let relay = started(&setup).await;
    for text in ["one", "two", "three"] {
        fake.say_in(CHANNEL, text);
    }
    fake.say_in(CHANNEL, "<@1> what is missing?");
    eventually("the answer", async || fake.answers().len() == 1).await;
    let answer = fake.answers().remove(0);
    assert!(
        answer.contains("two") && answer.contains("three") && !answer.contains("one"),
        "{answer}"
    );
    fake.say_in(CHANNEL, "<@1> and now?");
    eventually("another answer", async || fake.answers().len() == 2).await;
    let answer = fake.answers().remove(1);
    assert!(
        answer.contains("and now?") && !answer.contains("three"),
        "{answer}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_refused_token_or_intent_ends_the_relay_and_says_what_to_do() {
    for (code, hint) in [(4004, "token"), (4014, "Message Content Intent")] {
        let fake = FakeDiscord::start().await;
        fake.refuse(code);
        let (exit, said) = setup(&fake).ends().await;
        assert_eq!(exit, 78, "{said}");
        assert!(said.contains(hint) && !said.contains(TOKEN), "{said}");
    }
}

#[tokio::test]
async fn the_token_may_be_in_a_variable_of_its_own() {
    let fake = FakeDiscord::start().await;
    let bot = format!(
        "{{api_base: \"http://{}\", gateway_url: \"ws://{}\", token_env: MY_BOT}}",
        fake.rest, fake.gateway
    );
    let setup = Setup::new().env("MY_BOT", TOKEN).setting("direct.discord", &bot);
    let relay = started(&setup).await;
    relay.stop().await;
    let (exit, said) = setup.without_env("MY_BOT").ends().await;
    assert_eq!(exit, 78, "{said}");
    assert!(said.contains("token_env"), "{said}");
}

#[tokio::test]
async fn commands_are_registered_once_and_answered_in_their_place() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    eventually("the commands", async || fake.commands().1 == 1).await;
    assert!(
        fake.commands().0.contains(&"whoami".to_owned()),
        "{:?}",
        fake.commands()
    );
    fake.interacts(2, &json!({"name": "whoami"}));
    eventually("the answer", async || fake.replaced().len() == 1).await;
    assert!(fake.replaced()[0].contains('2'), "{:?}", fake.replaced());
    fake.interacts(
        2,
        &json!({"name": "ask-me", "options": [{"type": 3, "name": "text", "value": "now"}]}),
    );
    eventually("the answer of the agent", async || fake.replaced().len() == 2).await;
    assert!(
        fake.replaced()[1].contains("/ask-me now"),
        "{:?}",
        fake.replaced()
    );
    assert_eq!(fake.callbacks(), [json!({"type": 5}), json!({"type": 5})]);
    assert!(fake.answers().is_empty(), "{:?}", fake.answers());
    relay.stop().await;
    let relay = started(&setup).await;
    fake.interacts(2, &json!({"name": "whoami"}));
    eventually("the answer", async || fake.replaced().len() == 3).await;
    relay.stop().await;
    assert_eq!(fake.commands().1, 1, "the same commands are not registered again");
}

#[tokio::test]
async fn a_button_answers_a_question_and_an_old_one_says_so() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.say("ask hello");
    let buttons = || {
        let sent = fake.sent();
        sent.into_iter()
            .find(|message| message.get("components").is_some())
    };
    eventually("the question", async || buttons().is_some()).await;
    let id = buttons().unwrap()["components"][0]["components"][0]["custom_id"].clone();
    fake.interacts(3, &json!({"custom_id": id, "component_type": 2}));
    eventually("the answer", async || {
        fake.answers()
            .iter()
            .any(|answer| answer.contains("hello") && answer.starts_with("echo"))
    })
    .await;
    fake.interacts(3, &json!({"custom_id": "old", "component_type": 2}));
    eventually("the notice", async || fake.callbacks().len() == 2).await;
    let callbacks = fake.callbacks();
    assert_eq!(callbacks[0], json!({"type": 6}));
    assert_eq!(
        (&callbacks[1]["type"], &callbacks[1]["data"]["flags"]),
        (&json!(4), &json!(64))
    );
    relay.stop().await;
}

#[tokio::test]
async fn whoever_may_not_answer_a_question_reads_that_alone() {
    const NOT_YOURS: &str = "Only the person whose message is being answered can decide this.";
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.say_in(CHANNEL, "<@1> ask hello");
    let question = || {
        let sent = fake.sent();
        sent.into_iter()
            .find(|message| message.get("components").is_some())
    };
    eventually("the question", async || question().is_some()).await;
    let id = question().unwrap()["components"][0]["components"][0]["custom_id"].clone();
    let press = json!({"custom_id": id, "component_type": 2});
    for times in [1, 2] {
        fake.bob_interacts_in(CHANNEL, 3, &press);
        eventually("what Bob reads", async || fake.follow_ups().len() == times).await;
    }
    for whispered in fake.follow_ups() {
        let flags = whispered["flags"].as_u64().unwrap();
        assert_eq!((&whispered["content"], flags & 64), (&json!(NOT_YOURS), 64));
    }
    fake.interacts_in(CHANNEL, 3, &press);
    eventually("the answer", async || {
        fake.answers().iter().any(|answer| answer.starts_with("echo"))
    })
    .await;
    relay.stop().await;
    let shown = fake.answers();
    assert!(!shown.iter().any(|text| text.contains(NOT_YOURS)), "{shown:?}");
    assert_eq!(fake.discarded(), 0, "the question itself stays");
}

#[tokio::test]
async fn a_file_of_the_agent_is_uploaded() {
    let fake = FakeDiscord::start().await;
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("notes.txt"), "some notes").unwrap();
    let agent = format!("{{kind: echo, workdir: \"{}\"}}", work.path().display());
    let setup = setup(&fake)
        .setting("agents.filer", &agent)
        .args(&["run", "--agent", "filer"]);
    let relay = started(&setup).await;
    fake.say("media=notes.txt here");
    answered(&fake, "echo: here").await;
    eventually("the file", async || !fake.uploads().is_empty()).await;
    assert_eq!(fake.uploads(), [("notes.txt".to_owned(), b"some notes".to_vec())]);
    let outgoing = setup.state_dir().join("media/outgoing");
    eventually("the copy is gone", async || {
        std::fs::read_dir(&outgoing).unwrap().count() == 0
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn an_answer_waits_for_a_limit() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.limit(2);
    fake.say("hello");
    answered(&fake, "echo: hello").await;
    relay.stop().await;
    assert_eq!(fake.answers(), ["echo: hello"]);
}

#[tokio::test]
async fn one_relay_is_a_bot_on_both_platforms_also_after_a_kill() {
    const ADA: i64 = 42;
    let fake = FakeDiscord::start().await;
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    let setup = with_bot(Setup::for_bot(&api), &fake);
    let mut relay = started(&setup).await;
    for round in ["one", "two"] {
        fake.say(&format!("{round} here"));
        api.say(ADA, ADA, &format!("{round} there"));
        answered(&fake, &format!("echo: {round} here")).await;
        let wanted = format!("echo: {round} there");
        let found = api
            .wait_for_answer(ADA, &wanted, SOON, |seen| seen.text == wanted)
            .await;
        found.unwrap();
        eventually("the acknowledgement", async || api.pending_count() == 0).await;
        // Telegram knows no nonces: an answer whose delivery is unknown would come again.
        tokio::time::sleep(Duration::from_millis(600)).await;
        relay.kill().await;
        fake.say(&format!("{round} missed"));
        relay = started(&setup).await;
        answered(&fake, &format!("echo: {round} missed")).await;
    }
    // Telegram has a layout of its own for tables, Discord has none.
    fake.say("both\n| A | B |\n|---|---|\n| 1 | 2 |");
    answered(&fake, "echo: both\n\n```\nA | B\n--+--\n1 | 2\n```").await;
    let status = setup.verb(&["status", "--json"]).output().await.unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["link"], "live", "{status}");
    relay.stop().await;
    assert_eq!(fake.answers().len(), 5, "{:?}", fake.answers());
    assert_eq!(api.answers(ADA).len(), 2);
    assert_eq!(fake.commands().1, 1);
}
