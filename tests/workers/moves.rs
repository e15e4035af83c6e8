//! Which worker has a conversation, and what becomes of running turns when the server or the relay goes away.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_relay::agent::{EchoAgent, OpenAiAgent, OpenAiSettings, Turn, TurnEnd};
use hermes_relay::relay::Record;
use serde_json::Value;
use tokio::sync::Notify;

use crate::support::http_stub::{egress, reply_with, serve};
use crate::support::memory_relay::start_with;
use crate::support::scripted_agent::ScriptedAgent;
use crate::{Begun, Server, answered, counting, shown, until};

/// Answers with a name.
fn named(name: &'static str) -> ScriptedAgent {
    ScriptedAgent::new(move |turn: Turn| async move {
        turn.events.text(name).await;
        TurnEnd::Completed
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_prefers_the_worker_that_had_it_and_moves_when_that_one_is_gone() {
    const TURNS: usize = 12;
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let workers = [
        ("one", server.worker(named("one"), 4).await),
        ("two", server.worker(named("two"), 4).await),
    ];
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "0", "first").await;
    let named = |seen: &Record| {
        ["one", "two"]
            .into_iter()
            .find(|name| shown(seen, "a") == [*name])
    };
    let seen = relay.seen("an answer", |seen| named(seen).is_some()).await;
    let first = named(&seen).unwrap();
    // Until the relay has heard both.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for turn in 1..TURNS {
        relay.deliver("a", &turn.to_string(), "again").await;
        answered(&relay, "a", &vec![first; turn + 1]).await;
    }
    let [one, two] = workers;
    let (gone, left) = if one.0 == first { (one, two) } else { (two, one) };
    gone.1.stop.cancel();
    gone.1.task.await.unwrap();
    relay.deliver("a", "last", "elsewhere").await;
    let mut all = vec![first; TURNS];
    all.push(left.0);
    answered(&relay, "a", &all).await;
    relay.stop().await;
}

/// An agent of its own, with a memory of its own, of a model that says `ok`; what begins with `hold` waits to be let go.
fn of_model(base_url: &str) -> OpenAiAgent {
    let settings = OpenAiSettings {
        base_url: base_url.to_owned(),
        model: "m".to_owned(),
        ..OpenAiSettings::default()
    };
    OpenAiAgent::new(settings, None, &egress()).unwrap()
}

/// A model server: what it was asked, and what lets one held request go.
async fn model() -> (String, Arc<Mutex<Vec<Value>>>, Arc<Notify>) {
    const ANSWER: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let (asked, let_go): (Arc<Mutex<Vec<Value>>>, Arc<Notify>) = Default::default();
    let (asks, goes) = (Arc::clone(&asked), Arc::clone(&let_go));
    let address = serve("127.0.0.1:0", move |seen| {
        let (asked, let_go) = (Arc::clone(&asks), Arc::clone(&goes));
        async move {
            let messages = seen.json()["messages"].clone();
            let text = messages.as_array().and_then(|all| all.last()).cloned();
            asked.lock().unwrap().push(messages);
            let text = text.unwrap_or_default()["content"].to_string();
            if text.contains("hold") {
                let_go.notified().await;
            }
            reply_with(200, &[("content-type", "text/event-stream")], ANSWER)
        }
    })
    .await;
    (format!("http://{address}/v1"), asked, let_go)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_that_returns_to_an_earlier_worker_has_what_was_said_elsewhere() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (url, asked, let_go) = model().await;
    let first = server.worker(of_model(&url), 1).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "1", "apples").await;
    answered(&relay, "a", &["ok"]).await;
    relay.deliver("b", "1", "hold the first worker").await;
    until("the held turn", || first.worker.running() == 1).await;
    until("its request", || asked.lock().unwrap().len() == 2).await;
    let second = server.worker(of_model(&url), 1).await;
    relay.deliver("a", "2", "bananas").await;
    answered(&relay, "a", &["ok", "ok"]).await;
    let_go.notify_one();
    answered(&relay, "b", &["ok"]).await;
    second.stop.cancel();
    second.task.await.unwrap();
    relay.deliver("a", "3", "cherries").await;
    answered(&relay, "a", &["ok", "ok", "ok"]).await;
    // Another relay of the same journal goes by the saved state alone.
    relay.deliver("b", "2", "hold the first worker").await;
    until("the held turn", || first.worker.running() == 1).await;
    until("its request", || asked.lock().unwrap().len() == 5).await;
    let third = server.worker(of_model(&url), 1).await;
    relay.deliver("a", "4", "dates").await;
    answered(&relay, "a", &["ok"; 4]).await;
    let_go.notify_one();
    answered(&relay, "b", &["ok"; 2]).await;
    third.stop.cancel();
    third.task.await.unwrap();
    relay.stop().await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "5", "elderberries").await;
    answered(&relay, "a", &["ok"]).await;
    let said = |messages: &Value| -> Vec<String> {
        let all = messages.as_array().unwrap().iter();
        let by_user = all.filter(|message| message["role"] == "user");
        by_user
            .map(|message| message["content"].as_str().unwrap().to_owned())
            .collect()
    };
    let asked: Vec<Vec<String>> = asked.lock().unwrap().iter().map(said).collect();
    let fruits = ["apples", "bananas", "cherries", "dates", "elderberries"];
    for (request, count) in [(2, 2), (3, 3), (5, 4), (6, 5)] {
        assert_eq!(asked[request], fruits[..count], "{asked:?}");
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_turn_survives_a_restart_of_the_server() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let worker = server.worker(EchoAgent, 1).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "1", "sleep=1500 survives").await;
    until("the turn", || worker.worker.running() == 1).await;
    // Begun, not only asked for.
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.restart();
    answered(&relay, "a", &["echo: survives"]).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_stops_the_turns_of_a_relay_that_is_gone() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let begun: Arc<Begun> = Arc::default();
    let worker = server.worker(counting(&begun), 1).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "1", "slow one").await;
    until("the turn", || begun.count("slow one") == 1).await;
    relay.crash().await;
    until("its end", || worker.worker.running() == 0).await;
    // The same journal again: what had begun is reported, and not run again.
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.replies("a", 1).await;
    relay.deliver("b", "1", "after").await;
    answered(&relay, "b", &["did after"]).await;
    assert_eq!(begun.count("slow one"), 1);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_server_running_turns_are_reported_and_new_ones_wait() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let begun: Arc<Begun> = Arc::default();
    let worker = server.worker(counting(&begun), 2).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "1", "slow one").await;
    until("the turn", || begun.count("slow one") == 1).await;
    server.kill();
    relay.deliver("b", "1", "waits").await;
    assert!(relay.replies("a", 1).await[0].contains("was lost"));
    until("its end on the worker", || worker.worker.running() == 0).await;
    assert_eq!(begun.count("waits"), 0);
    server.start_again();
    let done = |seen: &Record| shown(seen, "b").last().is_some_and(|text| text == "did waits");
    relay.seen("the answer after the restart", done).await;
    assert_eq!((begun.count("slow one"), begun.count("waits")), (1, 1));
    relay.stop().await;
}
