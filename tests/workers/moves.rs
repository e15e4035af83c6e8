//! Which worker has a conversation, and what becomes of running turns when the server or the relay goes away.

use std::sync::Arc;
use std::time::Duration;

use hermes_relay::agent::{EchoAgent, Turn, TurnEnd};
use hermes_relay::relay::Record;

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
