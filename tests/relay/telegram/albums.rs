//! Albums: several updates, one message.

use std::time::Duration;

use crate::support::dev::{PersonFile, PersonMessage};
use serde_json::json;

use super::{ADA, GROUP, Noting, World};
use crate::support::dev::MessageParts as _;

fn photo(name: &str, caption: &str) -> PersonMessage {
    let bytes = [b"\xff\xd8\xff\xe0".as_slice(), name.as_bytes()].concat();
    PersonMessage::file(PersonFile::new("photo", name, bytes), caption)
}

#[tokio::test]
async fn the_items_of_an_album_are_one_message_with_its_caption() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    let items = vec![
        photo("a.jpg", ""),
        photo("b.jpg", "three of them"),
        photo("c.jpg", ""),
    ];
    let ids = world.api.send_album(ADA, ADA, items);
    let answer = world.answer(ADA, "echo: three of them").await;
    assert_eq!(answer.reply_to, Some(ids[0]));
    world.confirmed().await;
    world.settle("after").await;
    let inputs = agent.inputs();
    assert_eq!(inputs.len(), 2, "{:?}", agent.texts());
    let ends: Vec<&[u8]> = inputs[0].1.iter().map(|bytes| &bytes[4..]).collect();
    assert_eq!(ends, [b"a.jpg", b"b.jpg", b"c.jpg"]);
    relay.stop().await;
}

#[tokio::test]
async fn items_that_come_one_by_one_are_still_one_message() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    for name in ["a.jpg", "b.jpg", "c.jpg"] {
        let caption = if name == "c.jpg" { "slowly" } else { "" };
        let item = photo(name, caption).with("media_group_id", json!("777"));
        world.api.send(ADA, ADA, item);
        // Half of the time for which an album is waited for, so that a busy machine does not break it up.
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    world.answer(ADA, "echo: slowly").await;
    world.settle("after").await;
    let inputs = agent.inputs();
    assert_eq!(inputs.len(), 2, "{:?}", agent.texts());
    assert_eq!(inputs[0].1.len(), 3);
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn an_album_that_was_held_back_when_the_relay_died_is_one_message_after_it() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.settle("before").await;
    world.confirmed().await;
    world.api.forget_calls();
    world
        .api
        .send_album(ADA, ADA, vec![photo("a.jpg", "both"), photo("b.jpg", "")]);
    world
        .until("a poll that brought the album", |api| {
            let polls = api.calls_of("getUpdates");
            polls.iter().any(|poll| poll.answer["updates"] == 2).then_some(())
        })
        .await;
    relay.crash().await;
    assert_eq!(world.api.pending_count(), 2, "nothing is confirmed");
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.answer(ADA, "echo: both").await;
    world.confirmed().await;
    let inputs = agent.inputs();
    assert_eq!(inputs.len(), 2, "{:?}", agent.texts());
    assert_eq!(inputs[1].1.len(), 2);
    relay.stop().await;
}

#[tokio::test]
async fn in_a_group_an_album_counts_if_one_of_its_items_does() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world
        .api
        .send_album(GROUP, ADA, vec![photo("x.jpg", "nobody"), photo("y.jpg", "")]);
    let asked = vec![photo("a.jpg", ""), photo("b.jpg", "@relay_dev_bot look")];
    world.api.send_album(GROUP, ADA, asked);
    world
        .until("an answer", |api| api.answers(GROUP).into_iter().next())
        .await;
    world.settle("after").await;
    let inputs = agent.inputs();
    assert_eq!(inputs.len(), 2, "{:?}", agent.texts());
    assert_eq!(inputs[0].1.len(), 2);
    world.confirmed().await;
    relay.stop().await;
}
