//! What Discord refuses: an edit of a message that is gone, what comes too fast, a question about a channel, an old address.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{answered, setup, started, stored};
use crate::support::discord::{CHANNEL, FakeDiscord, TOKEN};
use crate::support::relay_process::Setup;
use crate::support::wait::eventually;

#[tokio::test]
async fn an_answer_goes_on_in_a_new_message_when_the_growing_one_is_deleted() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    let words = "word ".repeat(20);
    fake.say(&format!("stream=100 {words}end"));
    eventually("the growing message", async || !fake.answers().is_empty()).await;
    let gone = json!({"code": 10_008, "message": "Unknown Message"});
    fake.refuse_requests(usize::MAX, "PATCH", "/messages/", 404, &gone);
    eventually("the end of the answer", async || {
        fake.answers().iter().any(|answer| answer.ends_with("end"))
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_limit_of_reactions_does_not_delay_messages() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    let limit = json!({"message": "slow down", "retry_after": 20.0, "global": false});
    fake.refuse_requests(100, "PUT", "/reactions/", 429, &limit);
    fake.refuse_requests(100, "DELETE", "/reactions/", 429, &limit);
    let begun = Instant::now();
    for text in ["one", "two", "three"] {
        fake.say(text);
        answered(&fake, &format!("echo: {text}")).await;
    }
    assert!(fake.refusals_left() < 200, "there were reactions");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(18), "{took:?}");
    relay.stop().await;
}

#[tokio::test]
async fn a_message_of_a_channel_that_cannot_be_described_at_once_is_not_taken_for_one_for_others() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake)
        .setting("chat.group_threads", "true")
        .setting("policy.discord.free_response_channels", &format!("['{CHANNEL}']"));
    let relay = started(&setup).await;
    // It begins a thread, where messages are for the bot because they are in its channel.
    let thread = fake.say_in(CHANNEL, "one").to_string();
    answered(&fake, "echo: one").await;
    relay.stop().await;
    fake.refuse_requests(2, "GET", &format!("/channels/{thread}"), 503, &Value::Null);
    let relay = started(&setup).await;
    fake.say_in(&thread, "two");
    answered(&fake, "echo: two").await;
    relay.stop().await;
    assert_eq!(fake.answers(), ["echo: one", "echo: two"]);
    assert_eq!(
        (fake.sessions().0, fake.refusals_left()),
        (1, 0),
        "the session was resumed"
    );
}

#[tokio::test]
async fn a_limit_that_is_not_discords_own_silences_the_whole_bot() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let mut relay = started(&setup).await;
    fake.refuse_requests(1, "POST", "/messages", 429, &json!("banned"));
    fake.say("one");
    eventually("the ban", async || fake.refusals_left() == 0).await;
    relay.wait_for_log("takes no requests").await;
    // The bot would have to ask about this channel.
    fake.refuse_requests(1, "GET", "/channels/", 503, &Value::Null);
    fake.say_in(CHANNEL, "<@1> two");
    relay.wait_for_log("does not describe the channel").await;
    assert_eq!(fake.refusals_left(), 1, "it did not ask");
    assert!(fake.answers().is_empty(), "{:?}", fake.answers());
    relay.kill().await;
}

#[tokio::test]
async fn a_session_goes_on_where_discord_names_when_its_own_address_is_gone() {
    let fake = FakeDiscord::start().await;
    // Discord names the gateway.
    let setup = Setup::new().env("DISCORD_BOT_TOKEN", TOKEN).setting(
        "direct.discord",
        &format!("{{api_base: \"http://{}\"}}", fake.rest),
    );
    let mut relay = started(&setup).await;
    fake.say("one");
    answered(&fake, "echo: one").await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    relay.kill().await;
    let mut state = stored(&setup);
    assert!(state["session"]["resume_url"].is_string(), "{state}");
    // Nobody listens there.
    state["session"]["resume_url"] = "ws://127.0.0.1:1".into();
    std::fs::write(setup.state_dir().join("discord-session"), state.to_string()).unwrap();
    fake.say("two");
    let relay = setup.start();
    answered(&fake, "echo: two").await;
    relay.stop().await;
    assert_eq!(fake.sessions(), (1, 1), "the session was resumed");
}
