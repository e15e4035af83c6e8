//! `/sessions`, `/resume` and `/new TITLE`: earlier conversations go on, and never in the hands of somebody else.

use super::{Scripted, list, press, say, start, start_plain};
use crate::prompts::{BUTTONS, PLAIN};
use crate::support::memory_relay::{Running, event};
use hermes_relay::agent::EchoAgent;
use hermes_relay::config::Settings;
use serde_json::json;

const NEW: &str = "Started a new conversation.";

#[tokio::test]
async fn an_earlier_conversation_goes_on_also_after_a_restart() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start_plain(&dir, &store, "load").await;
    assert_eq!(
        say(&relay, "c1", "/sessions").await,
        "There are no conversations with tested yet."
    );
    assert_eq!(say(&relay, "c1", "apples").await, "heard: apples");
    assert_eq!(say(&relay, "c1", "/new").await, NEW);
    assert_eq!(say(&relay, "c1", "recall").await, "recall");
    assert_eq!(
        say(&relay, "c1", "/new Release notes").await,
        "Started a new conversation: Release notes."
    );
    assert_eq!(say(&relay, "c1", "pears").await, "heard: pears");
    relay.stop().await;
    let relay = start_plain(&dir, &store, "load").await;
    let sessions = say(&relay, "c1", "/sessions").await;
    assert_eq!(
        sessions,
        "Your conversations with tested:\n1. Release notes, just now, discord dm, here now\n2. recall, just now, discord dm\n\
         3. apples, just now, discord dm\nGo on with one here: /resume NUMBER, or the number alone."
    );
    assert_eq!(
        say(&relay, "c1", "/resume 3").await,
        "This chat goes on with: apples."
    );
    assert_eq!(say(&relay, "c1", "recall").await, "apples, recall");
    assert_eq!(
        say(&relay, "c1", "/resume 9").await,
        "There is no such conversation. /sessions lists them."
    );
    assert_eq!(
        say(&relay, "c1", "/resume release notes").await,
        "This chat goes on with: Release notes."
    );
    assert_eq!(say(&relay, "c1", "recall").await, "pears, recall");
    relay.stop().await;
}

#[tokio::test]
async fn a_conversation_moves_to_another_chat_of_the_same_person_and_to_nobody_else() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start_plain(&dir, &store, "load").await;
    assert_eq!(say(&relay, "c1", "apples").await, "heard: apples");
    // Somebody else sees and gets nothing of it.
    assert_eq!(
        say(&relay, "c2", "/sessions").await,
        "There are no conversations with tested yet."
    );
    assert_eq!(
        say(&relay, "c2", "/resume 1").await,
        "There are no conversations with tested yet."
    );
    assert_eq!(say(&relay, "c2", "recall").await, "recall");
    // The same person in another direct message.
    let from_elsewhere = |id: &str, text: &str| {
        let mut event = event("c3", id, text);
        event["source"]["user_id"] = json!("user-of-c1");
        event
    };
    let resume = from_elsewhere("r1", "/resume 1");
    relay.connector.deliver_buffered("r1", resume).await.unwrap();
    assert_eq!(relay.replies("c3", 1).await, ["This chat goes on with: apples."]);
    let recall = from_elsewhere("r2", "recall");
    relay.connector.deliver_buffered("r2", recall).await.unwrap();
    assert_eq!(relay.replies("c3", 2).await[1], "apples, recall");
    // The chat that it left begins anew.
    assert_eq!(say(&relay, "c1", "recall").await, "recall");
    relay.stop().await;
}

/// Lists the conversations, and presses the button of the first one, which has this title.
async fn press_first(relay: &Running, title: &str) {
    relay.deliver("c1", "l1", "/sessions").await;
    let shown = list(relay, "c1").await;
    assert_eq!(shown.action["options"][0]["label"], title);
    let pressed = press(&shown, "o0", "user-of-c1", "p1");
    relay.connector.deliver_buffered("p1", pressed).await.unwrap();
    let goes_on = format!("This chat goes on with: {title}.");
    relay
        .seen("it goes on", |seen| seen.texts("c1").contains(&goes_on.as_str()))
        .await;
}

#[tokio::test]
async fn a_button_resumes_and_the_agent_names_conversations() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(dir.path(), Scripted::new(store.path(), ""), BUTTONS, |_| {}).await;
    assert_eq!(say(&relay, "c1", "think hard").await, "thought about it");
    assert_eq!(say(&relay, "c1", "/new").await, NEW);
    press_first(&relay, "Of mice").await;
    assert_eq!(say(&relay, "c1", "recall").await, "think hard, recall");
    relay.stop().await;
}

#[tokio::test]
async fn an_agent_that_keeps_none_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), EchoAgent, PLAIN, |_| {}).await;
    assert_eq!(
        say(&relay, "c1", "/sessions").await,
        "tested keeps no conversations."
    );
    assert_eq!(
        say(&relay, "c1", "/resume 1").await,
        "tested keeps no conversations."
    );
    assert_eq!(say(&relay, "c1", "/new").await, NEW);
    relay.stop().await;
}

/// `user-of-c1` is an owner, `user-of-c2` a user.
fn people(settings: &mut Settings) {
    let rule = |user: &str, role: &str| json!({"platform": "discord", "user": user, "role": role});
    let people = json!({"people": [rule("user-of-c1", "owner"), rule("user-of-c2", "user")]});
    settings.access = serde_json::from_value(people).unwrap();
}

#[tokio::test]
async fn an_owner_goes_on_with_what_was_begun_in_a_terminal_and_nobody_else_does() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (id, said) in [("t-1", "plant trees"), ("t-2", "water them"), ("t-3", "prune")] {
        std::fs::write(store.path().join(id), said).unwrap();
    }
    let relay = start(
        dir.path(),
        Scripted::new(store.path(), "load list"),
        PLAIN,
        people,
    )
    .await;
    assert_eq!(say(&relay, "c2", "secret").await, "heard: secret");
    assert_eq!(say(&relay, "c1", "apples").await, "heard: apples");
    // A user sees and gets nothing of it, and an owner nothing of a user's.
    let own = "Your conversations with tested:\n1. secret, just now, discord dm, here now\nGo on with one here: /resume NUMBER, or the number alone.";
    assert_eq!(say(&relay, "c2", "/sessions").await, own);
    for choice in ["2", "=t-1", "plant trees"] {
        assert_eq!(
            say(&relay, "c2", &format!("/resume {choice}")).await,
            "There is no such conversation. /sessions lists them."
        );
    }
    let all = say(&relay, "c1", "/sessions").await;
    assert_eq!(
        all,
        "Your conversations with tested:\n1. apples, just now, discord dm, here now\n2. plant trees, terminal\n\
         3. water them, terminal\n4. prune, terminal\nGo on with one here: /resume NUMBER, or the number alone."
    );
    assert_eq!(
        say(&relay, "c1", "3").await,
        "This chat goes on with: water them."
    );
    assert_eq!(say(&relay, "c1", "recall").await, "water them, recall");
    // From now on it is a conversation as any other.
    relay.stop().await;
    let relay = start(
        dir.path(),
        Scripted::new(store.path(), "load list"),
        PLAIN,
        people,
    )
    .await;
    assert_eq!(
        say(&relay, "c1", "/sessions").await,
        "Your conversations with tested:\n1. water them, just now, discord dm, here now\n2. apples, just now, discord dm\n\
         3. plant trees, terminal\n4. prune, terminal\nGo on with one here: /resume NUMBER, or the number alone."
    );
    assert_eq!(
        say(&relay, "c1", "/resume prune").await,
        "This chat goes on with: prune."
    );
    assert_eq!(say(&relay, "c1", "recall").await, "prune, recall");
    assert_eq!(
        say(&relay, "c1", "/resume =t-9").await,
        "There is no such conversation. /sessions lists them."
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_button_continues_what_was_begun_in_a_terminal() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(store.path().join("t-1"), "plant trees").unwrap();
    let relay = start(
        dir.path(),
        Scripted::new(store.path(), "load list"),
        BUTTONS,
        people,
    )
    .await;
    press_first(&relay, "plant trees").await;
    assert_eq!(say(&relay, "c1", "recall").await, "plant trees, recall");
    relay.stop().await;
}
