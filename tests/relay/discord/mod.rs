//! The real binary as a Discord bot, against a fake Discord.

mod fake;

use self::fake::{CHANNEL, DIRECT, FakeDiscord, TOKEN};
use crate::support::relay_process::{RelayProcess, Setup};
use crate::support::wait::eventually;

const CONNECTED: &str = "connected to Discord";

fn setup(fake: &FakeDiscord) -> Setup {
    let bot = format!(
        "{{api_base: \"http://{}\", gateway_url: \"ws://{}\"}}",
        fake.rest, fake.gateway
    );
    Setup::new()
        .env("DISCORD_BOT_TOKEN", TOKEN)
        .setting("direct.discord", &bot)
}

async fn started(setup: &Setup) -> RelayProcess {
    let relay = setup.start();
    relay.wait_for_log(CONNECTED).await;
    relay
}

async fn answered(fake: &FakeDiscord, text: &str) {
    eventually(&format!("the answer {text}"), async || {
        fake.answers().iter().any(|answer| answer == text)
    })
    .await;
}

#[tokio::test]
async fn the_binary_answers_a_direct_message() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.say("hello");
    answered(&fake, "echo: hello").await;
    relay.stop().await;
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
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    relay.kill().await;
    fake.forget_session();
    fake.say_unseen(DIRECT, "two");
    let relay = setup.start();
    answered(&fake, "echo: two").await;
    relay.stop().await;
    assert_eq!(fake.answers(), ["echo: one", "echo: two"]);
}

#[tokio::test]
async fn in_a_channel_only_what_addresses_the_bot_is_answered_after_a_restart_too() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let mut relay = started(&setup).await;
    fake.say_in(CHANNEL, "<@1> one");
    answered(&fake, "echo: one").await;
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    relay.kill().await;
    fake.say_in(CHANNEL, "noise");
    fake.say_in(CHANNEL, "<@1> two");
    let mut relay = started(&setup).await;
    answered(&fake, "echo: two").await;
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
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
async fn a_refused_token_or_intent_ends_the_relay_and_says_what_to_do() {
    for (code, hint) in [(4004, "token"), (4014, "Message Content Intent")] {
        let fake = FakeDiscord::start().await;
        fake.refuse(code);
        let (exit, said) = setup(&fake).ends().await;
        assert_eq!(exit, 78, "{said}");
        assert!(said.contains(hint) && !said.contains(TOKEN), "{said}");
    }
}
