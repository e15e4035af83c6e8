//! `/model` and `/mode`: what the agent offers, how it is chosen, and that only what the agent confirmed is confirmed.

use super::{Scripted, list, press, say, start, start_plain};
use crate::prompts::{BUTTONS, PLAIN};
use hermes_relay::agent::EchoAgent;
use hermes_relay::config::Settings;

const MODELS: &str = "The models of tested:\n1. Small (in use)\n2. Large\nChoose with /model NUMBER, /model NAME, or the number alone.";
const LARGE: &str = "The model is Large from now on, in this conversation.";

#[tokio::test]
async fn a_model_is_chosen_by_number_by_name_and_by_a_bare_number() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start_plain(&dir, &store, "models").await;
    assert_eq!(say(&relay, "c1", "/model").await, MODELS);
    assert_eq!(say(&relay, "c1", "/model 2").await, LARGE);
    assert_eq!(say(&relay, "c1", "model").await, "I am large");
    assert_eq!(
        say(&relay, "c1", "/model small").await,
        "The model is Small from now on, in this conversation."
    );
    let list = say(&relay, "c1", "/model").await;
    assert_eq!(list, MODELS);
    assert_eq!(say(&relay, "c1", "2").await, LARGE);
    // The list is no longer the last message.
    assert_eq!(say(&relay, "c1", "2").await, "heard: 2");
    let unknown = say(&relay, "c1", "/model huge").await;
    assert!(
        unknown.starts_with("There is no such model. The models of tested:\n1. Small\n2. Large (in use)"),
        "{unknown}"
    );
    // Another conversation has its own.
    assert_eq!(say(&relay, "c2", "model").await, "I am small");
    relay.stop().await;
}

#[tokio::test]
async fn a_command_that_is_answered_in_place_of_the_agent_is_no_turn_of_the_day() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rules =
        r#"{"people": [{"platform": "discord", "user": "user-of-c1"}], "limits": {"turns_per_day": 1}}"#;
    let adjust = |settings: &mut Settings| settings.access = serde_json::from_str(rules).unwrap();
    let relay = start(dir.path(), Scripted::new(store.path(), "models"), PLAIN, adjust).await;
    assert_eq!(say(&relay, "c1", "/model").await, MODELS);
    assert_eq!(say(&relay, "c1", "/model 2").await, LARGE);
    let diff = say(&relay, "c1", "/diff").await;
    assert_eq!(say(&relay, "c1", "model").await, "I am large", "{diff}");
    assert!(say(&relay, "c1", "/usage").await.contains("1 of 1"));
    assert_eq!(
        say(&relay, "c1", "/model small").await,
        "The model is Small from now on, in this conversation."
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_button_chooses_for_whoever_asked() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(dir.path(), Scripted::new(store.path(), "models"), BUTTONS, |_| {}).await;
    relay.deliver("c1", "m0", "/mode").await;
    let shown = list(&relay, "c1").await;
    let options = shown.action["options"].as_array().unwrap();
    let labels: Vec<_> = options
        .iter()
        .map(|option| option["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["Ask", "Plan"]);
    let other = press(&shown, "o1", "somebody-else", "p1");
    relay.connector.deliver_buffered("p1", other).await.unwrap();
    let own = press(&shown, "o1", "user-of-c1", "p2");
    relay.connector.deliver_buffered("p2", own).await.unwrap();
    relay
        .seen("the change", |seen| {
            seen.texts("c1")
                .contains(&"The mode is Plan from now on, in this conversation.")
        })
        .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_choice_outlives_the_relay_and_ends_with_the_conversation() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start_plain(&dir, &store, "models load").await;
    assert_eq!(say(&relay, "c1", "/model large").await, LARGE);
    assert_eq!(
        say(&relay, "c1", "/mode plan").await,
        "The mode is Plan from now on, in this conversation."
    );
    assert_eq!(say(&relay, "c1", "hello").await, "heard: hello");
    relay.stop().await;
    let relay = start_plain(&dir, &store, "models load").await;
    assert_eq!(say(&relay, "c1", "model").await, "I am large");
    assert!(say(&relay, "c1", "mode").await.starts_with("plan"));
    assert_eq!(say(&relay, "c1", "/new").await, "Started a new conversation.");
    assert_eq!(say(&relay, "c1", "model").await, "I am small");
    relay.stop().await;
}

#[tokio::test]
async fn only_what_the_agent_confirmed_is_confirmed() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start_plain(&dir, &store, "models stubborn").await;
    assert_eq!(
        say(&relay, "c1", "/model large").await,
        "The agent kept its model."
    );
    assert_eq!(say(&relay, "c1", "model").await, "I am small");
    relay.stop().await;
}

#[tokio::test]
async fn an_agent_that_cannot_says_so_and_guests_may_not() {
    let dir = tempfile::tempdir().unwrap();
    let guests = |settings: &mut Settings| {
        let access = r#"{"people": [{"platform": "discord", "user": "user-of-c1", "role": "owner"}, {"platform": "discord", "user": "user-of-c2", "role": "guest"}]}"#;
        settings.access = serde_json::from_str(access).unwrap();
    };
    let relay = start(dir.path(), EchoAgent, PLAIN, guests).await;
    assert_eq!(
        say(&relay, "c1", "/model").await,
        "tested offers no models to choose from."
    );
    assert_eq!(
        say(&relay, "c1", "/mode plan").await,
        "tested offers no modes to choose from."
    );
    assert_eq!(
        say(&relay, "c2", "/model 1").await,
        "Your role does not allow that."
    );
    relay.stop().await;
}

#[tokio::test]
async fn commands_of_the_agent_are_listed_and_reach_it_as_they_are() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start_plain(&dir, &store, "").await;
    assert_eq!(say(&relay, "c1", "hello").await, "heard: hello");
    let help = say(&relay, "c1", "/help").await;
    assert!(
        help.contains("Commands of tested:\n/compact: Shortens the conversation"),
        "{help}"
    );
    assert_eq!(say(&relay, "c1", "/compact now").await, "heard: /compact now");
    relay.stop().await;
}
