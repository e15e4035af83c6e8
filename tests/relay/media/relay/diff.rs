//! `/diff`: what an agent changed in its last turn, as a file.

use hermes_relay::agent::{AgentEvent, FileChange, Turn, TurnEnd};
use hermes_relay::wire::Action;

use super::{Running, Scripted};

/// Changes a file when it is told to.
async fn edit(turn: Turn) -> TurnEnd {
    if turn.input.text.starts_with("edit") {
        let path = turn.workdir.as_ref().unwrap().join("src/a.rs");
        let change = FileChange {
            path: path.display().to_string(),
            old: Some("one\ntwo\n".to_owned()),
            new: Some("one\nthree\n".to_owned()),
        };
        turn.events.emit(AgentEvent::Changed(change)).await;
    }
    turn.events.text("done").await;
    TurnEnd::Completed
}

/// What the last message of the chat says, once there are so many.
async fn last(relay: &Running, count: usize) -> String {
    let mut told = relay.replies("a", count).await;
    assert_eq!(told.len(), count, "{told:?}");
    told.pop().unwrap().1
}

#[tokio::test]
async fn what_the_last_turn_changed_comes_as_a_file() {
    let relay = Running::start("discord", Scripted(edit), |_| {}).await;
    relay.deliver("a", "1", "/diff", &[]);
    assert_eq!(
        last(&relay, 1).await,
        "I remember no answer in this conversation since I was started."
    );
    relay.deliver("a", "2", "edit it", &[]);
    last(&relay, 2).await;
    for (id, count) in [("3", 3), ("4", 4)] {
        relay.deliver("a", id, "/diff", &[]);
        last(&relay, count).await;
        let sent = relay.connector.messages_in("a");
        let Some(Action::SendMedia {
            source_url, filename, ..
        }) = sent.last().map(|sent| &sent.action)
        else {
            panic!("{sent:?}");
        };
        assert_eq!(filename.as_deref(), Some("changes.diff"));
        assert_eq!(
            String::from_utf8(relay.uploaded(source_url).await).unwrap(),
            "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
        );
    }
    relay.deliver("a", "5", "hi", &[]);
    last(&relay, 5).await;
    relay.deliver("a", "6", "/diff", &[]);
    assert_eq!(
        last(&relay, 6).await,
        "Nothing was changed: tested reported no changes in its last turn."
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_diff_belongs_to_its_conversation_and_waits_for_the_turn() {
    let relay = Running::start("discord", Scripted(edit), |_| {}).await;
    relay.deliver("a", "1", "edit it", &[]);
    relay.deliver("a", "2", "/diff", &[]);
    last(&relay, 2).await;
    assert_eq!(relay.connector.messages_in("a")[1].op, "send_media");
    relay.deliver("b", "3", "/diff", &[]);
    let told = relay.replies("b", 1).await;
    assert!(told[0].1.starts_with("I remember no answer"), "{told:?}");
    relay.stop().await;
}
