//! What Discord refuses: an edit of a message that is gone.

use serde_json::json;

use super::{setup, started};
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
