//! What a model is told again: the transcript of its session.

use hermes_relay::agent::{PreferenceAnswer, TurnEnd, TurnInput};
use hermes_relay::wire::SessionKey;
use serde_json::{Value, json};

use crate::http_agents::chat::Chat;
use crate::http_agents::openai::{agent, settings, start};
use crate::http_agents::server::{Server, delta, finish};

async fn run_turn(server: &mut Server, chat: &Chat, session: &str, text: &str, answer: &str) -> Value {
    let input = TurnInput {
        text: text.to_owned(),
        ..TurnInput::default()
    };
    let turn = chat.start_with(session, input);
    let asked = server.asked().await;
    let messages = asked.json()["messages"].clone();
    asked.events(&[&delta(answer), &finish("stop")]).await;
    assert_eq!(turn.over().await.completed(), answer);
    messages
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

#[tokio::test]
async fn a_session_is_sent_again_also_after_a_restart_and_others_are_not() {
    let (mut server, chat) = start().await;
    run_turn(&mut server, &chat, "a", "I am Bo", "Hi Bo").await;
    assert_eq!(
        run_turn(&mut server, &chat, "b", "hello", "hello").await,
        json!([user("hello")])
    );
    let second = run_turn(&mut server, &chat, "a", "who am I?", "Bo").await;
    let want = [user("I am Bo"), assistant("Hi Bo"), user("who am I?")];
    assert_eq!(second, json!(want));
    let chat = chat.restarted(agent(settings(&server.base())));
    let third = run_turn(&mut server, &chat, "a", "sure?", "Yes").await;
    assert_eq!(third.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_forgotten_session_starts_again() {
    let (mut server, chat) = start().await;
    assert!(chat.agent().info().remembers);
    run_turn(&mut server, &chat, "a", "one", "1").await;
    chat.agent().forget(&SessionKey::from_text("a".to_owned())).await;
    assert_eq!(
        run_turn(&mut server, &chat, "a", "two", "2").await,
        json!([user("two")])
    );
}

#[tokio::test]
async fn old_turns_are_let_go() {
    let mut server = Server::start().await;
    let mut bounded = settings(&server.base());
    bounded.max_turns_kept = 2;
    let chat = Chat::new(agent(bounded));
    for n in ["1", "2", "3"] {
        run_turn(&mut server, &chat, "a", n, n).await;
    }
    let last = run_turn(&mut server, &chat, "a", "4", "4").await;
    assert_eq!(last, json!([user("3"), assistant("3"), user("4")]));
    let mut bounded = settings(&server.base());
    bounded.max_chars_kept = 20;
    let chat = Chat::new(agent(bounded));
    let long = "x".repeat(100);
    run_turn(&mut server, &chat, "a", "short", "ok").await;
    // What is asked now is told whole, however long it is.
    assert_eq!(
        run_turn(&mut server, &chat, "a", &long, "ok").await,
        json!([user(&long)])
    );
    let kept = chat.kept.lock().unwrap()["a"].clone();
    assert!(kept.len() < 100, "{}", String::from_utf8_lossy(&kept));
}

#[tokio::test]
async fn stopped_and_failed_turns_are_marked_in_the_history() {
    let (mut server, chat) = start().await;
    let session = |text: &str| {
        let input = TurnInput {
            text: text.to_owned(),
            ..TurnInput::default()
        };
        chat.start_with("a", input)
    };
    // Stopped before a word: joined with the next message.
    let turn = session("first");
    let asked = server.asked().await;
    turn.cancel.cancel();
    assert!(matches!(turn.over().await.end, TurnEnd::Cancelled { .. }));
    drop(asked);
    // Stopped in the middle: marked.
    let mut turn = session("second");
    let stream = server.asked().await.stream();
    stream.delta("half").await;
    turn.expect_text("half").await;
    turn.cancel.cancel();
    turn.over().await;
    // Failed before a word: as if it was never asked.
    let turn = session("lost");
    server.asked().await.reply(500, &[], "no");
    turn.over().await.failure();
    let messages = run_turn(&mut server, &chat, "a", "third", "ok").await;
    assert_eq!(messages[0], user("first\n\nsecond"));
    let half = messages[1]["content"].as_str().unwrap();
    assert!(
        half.starts_with("half\n\n[") && half.contains("interrupted"),
        "{half}"
    );
    assert_eq!(messages[2], user("third"));
    assert_eq!(messages.as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_model_that_the_server_lists_is_chosen_for_a_conversation_also_after_a_restart() {
    let (mut server, chat) = start().await;
    let list = json!({"data": [{"id": "test-model"}, {"id": "other"}]});
    let chosen = chat.choose_model(Some("2"));
    server.expect("GET", "/v1/models").await.reply_json(200, &list);
    assert!(matches!(chosen.await.unwrap(), PreferenceAnswer::Changed(option) if option.id == "other"));
    let refused = chat.choose_model(Some("a third"));
    server.expect("GET", "/v1/models").await.reply_json(200, &list);
    assert!(
        matches!(refused.await.unwrap(), PreferenceAnswer::NoSuchOption(offer) if offer.current.as_deref() == Some("other"))
    );
    let unlisted = chat.choose_model(None);
    server
        .expect("GET", "/v1/models")
        .await
        .reply_json(404, &json!({}));
    assert_eq!(unlisted.await.unwrap(), PreferenceAnswer::Unsupported);
    let chat = chat.restarted(agent(settings(&server.base())));
    let turn = chat.start("hello");
    let asked = server.asked().await;
    assert_eq!(asked.json()["model"], "other");
    asked.events(&[&delta("hi"), &finish("stop")]).await;
    assert_eq!(turn.over().await.completed(), "hi");
}
