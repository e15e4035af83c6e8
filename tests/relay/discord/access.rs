//! Who may write: roles of a server.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{answered, setup, started};
use crate::support::discord::{CHANNEL, FakeDiscord};
use crate::support::wait::eventually;

#[tokio::test]
async fn a_role_of_the_server_lets_people_in() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake).setting("access.mode", "list").setting(
        "access.people",
        "[{platform: discord, guild_role: 700}, {platform: discord, guild_role: '701', chats: ['1']}]",
    );
    let mut relay = started(&setup).await;
    fake.say_in(CHANNEL, "<@1> without a role");
    fake.give_roles(&["699", "701"]);
    fake.say_in(CHANNEL, "<@1> with another role");
    fake.interacts_in(CHANNEL, 2, &json!({"name": "ask-me"}));
    eventually("the placeholder is gone", async || fake.discarded() == 1).await;
    fake.give_roles(&["701", "700"]);
    fake.say_in(CHANNEL, "<@1> one");
    answered(&fake, "echo: one").await;
    fake.interacts_in(CHANNEL, 2, &json!({"name": "ask-me"}));
    eventually("the answer to the command", async || fake.replaced().len() == 1).await;
    // A direct message names no roles.
    fake.say("in a direct message");
    // What is fetched after an outage does not name the author's roles either: they are asked for.
    sleep(Duration::from_millis(600)).await;
    relay.kill().await;
    fake.forget_session();
    fake.say_unseen(CHANNEL, "<@1> two");
    let relay = setup.start();
    answered(&fake, "echo: two").await;
    let list = setup.verb(&["access", "list"]).output().await.unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("user    role 700 on discord  (file)"), "{list}");
    relay.stop().await;
    assert_eq!(fake.answers(), ["echo: one", "echo: two"]);
}
