//! What Discord refuses: an edit of a message that is gone, what comes too fast.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{answered, setup, started};
use crate::support::discord::FakeDiscord;
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
