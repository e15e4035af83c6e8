//! Stopping a Hermes run: at every stage, and how sure the answer is.

use hermes_relay::agent::{FailureClass, TurnEnd};
use serde_json::json;

use crate::http_agents::chat::Chat;
use crate::http_agents::hermes_runs::{accept, agent, send_event, settings, start};
use crate::http_agents::server::Server;
use crate::http_agents::soon;

const SURE: TurnEnd = TurnEnd::Cancelled { confirmed: true };
const UNSURE: TurnEnd = TurnEnd::Cancelled { confirmed: false };
const STOP: &str = "/v1/runs/run_1/stop";

/// As [`start`], with a short grace period for stops.
async fn start_with_short_grace() -> (Server, Chat) {
    let server = Server::start().await;
    let mut own = settings(&server.base());
    own.stop_grace_secs = 1;
    (server, Chat::new(agent(own)))
}

#[tokio::test]
async fn a_run_is_stopped_and_its_end_awaited() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("count");
    let (_, stream) = accept(&mut server).await;
    send_event(&stream, "message.delta", json!({"delta": "one "})).await;
    turn.expect_text("one ").await;
    turn.cancel.cancel();
    server
        .expect("POST", STOP)
        .await
        .reply_json(200, &json!({"status": "stopping"}));
    send_event(&stream, "message.delta", json!({"delta": "two "})).await;
    send_event(&stream, "run.cancelled", json!({})).await;
    let over = turn.over().await;
    assert_eq!(over.end, SURE);
    assert_eq!(over.text, "one ");
    // What was said is told with the next run, and marked.
    let turn = chat.start("go on");
    let (body, stream) = accept(&mut server).await;
    let half = body["conversation_history"][1]["content"].as_str().unwrap();
    assert!(half.starts_with("one") && half.contains("interrupted"), "{half}");
    send_event(&stream, "run.completed", json!({"output": "ok"})).await;
    turn.over().await.completed();
}

#[tokio::test]
async fn a_run_that_is_not_known_any_more_has_stopped() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let (_, _stream) = accept(&mut server).await;
    turn.cancel.cancel();
    server.expect("POST", STOP).await.reply(404, &[], "");
    assert_eq!(turn.over().await.end, SURE);
}

#[tokio::test]
async fn a_run_that_does_not_stop_in_time_is_not_known_to_have_stopped() {
    let (mut server, chat) = start_with_short_grace().await;
    let mut turn = chat.start("hi");
    let (_, stream) = accept(&mut server).await;
    send_event(&stream, "message.delta", json!({"delta": "one"})).await;
    // The stream is open: its end is awaited there.
    turn.expect_text("one").await;
    turn.cancel.cancel();
    server
        .expect("POST", STOP)
        .await
        .reply_json(200, &json!({"status": "stopping"}));
    assert_eq!(turn.over().await.end, UNSURE);
    // Nor is one whose stop gets no answer.
    let turn = chat.start("hi");
    let (_, _stream) = accept(&mut server).await;
    turn.cancel.cancel();
    let asked = server.expect("POST", STOP).await;
    assert_eq!(turn.over().await.end, UNSURE);
    drop(asked);
}

#[tokio::test]
async fn without_a_stream_the_status_reports_that_it_stopped() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let (_, stream) = accept(&mut server).await;
    stream.cut().await;
    let asked = server.expect("GET", "/v1/runs/run_1").await;
    turn.cancel.cancel();
    server
        .expect("POST", STOP)
        .await
        .reply_json(200, &json!({"status": "stopping"}));
    drop(asked);
    let asked = server.expect("GET", "/v1/runs/run_1").await;
    asked.reply_json(200, &json!({"status": "stopping"}));
    let asked = server.expect("GET", "/v1/runs/run_1").await;
    asked.reply_json(200, &json!({"status": "cancelled"}));
    assert_eq!(turn.over().await.end, SURE);
}

#[tokio::test]
async fn a_run_that_is_accepted_while_the_turn_is_stopped_is_stopped_too() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let asked = server.expect("POST", "/v1/runs").await;
    turn.cancel.cancel();
    asked.reply_json(202, &json!({"run_id": "run_1"}));
    server.expect("POST", STOP).await.reply(404, &[], "");
    assert_eq!(turn.over().await.end, SURE);
}

#[tokio::test]
async fn a_run_that_is_named_after_its_turn_was_stopped_or_abandoned_is_stopped() {
    let (mut server, chat) = start_with_short_grace().await;
    for gives_up in [false, true] {
        let turn = chat.start("hi");
        let asked = server.expect("POST", "/v1/runs").await;
        if gives_up {
            turn.give_up();
        } else {
            turn.cancel.cancel();
            assert_eq!(turn.over().await.end, UNSURE);
        }
        asked.reply_json(202, &json!({"run_id": "run_1"}));
        server.expect("POST", STOP).await.reply(200, &[], "{}");
    }
    assert!(server.is_quiet());
}

#[tokio::test]
async fn a_run_that_is_named_after_its_turn_has_failed_is_stopped() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let asked = server.expect("POST", "/v1/runs").await;
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Timeout);
    assert!(over.failure().side_effects_possible && !over.failure().retryable);
    asked.reply_json(202, &json!({"run_id": "run_1"}));
    server.expect("POST", STOP).await.reply(200, &[], "{}");
}

#[tokio::test]
async fn a_shutdown_waits_for_starts_that_were_abandoned_and_ends_them_with_itself() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let asked = server.expect("POST", "/v1/runs").await;
    turn.give_up();
    {
        let shutdown = chat.agent().shutdown();
        tokio::pin!(shutdown);
        let short = std::time::Duration::from_millis(100);
        let waits = tokio::time::timeout(short, &mut shutdown).await;
        assert!(waits.is_err(), "it waits for the start");
        asked.reply_json(202, &json!({"run_id": "run_1"}));
        let asked = server.expect("POST", STOP).await;
        let waits = tokio::time::timeout(short, &mut shutdown).await;
        assert!(waits.is_err(), "it waits for the stop");
        asked.reply(200, &[], "{}");
        soon("the shutdown ends", shutdown).await;
    }
    // One that is itself given up leaves nothing behind.
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let asked = server.expect("POST", "/v1/runs").await;
    turn.give_up();
    let waits = tokio::time::timeout(std::time::Duration::from_millis(100), chat.agent().shutdown()).await;
    assert!(waits.is_err(), "it waits for the start");
    soon("nothing is left under way", chat.agent().shutdown()).await;
    drop(asked);
    assert!(server.is_quiet());
}

#[tokio::test]
async fn a_stop_while_the_gateway_is_busy_starts_nothing() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    server.asked().await.reply(429, &[("retry-after", "30")], "");
    turn.cancel.cancel();
    assert_eq!(turn.over().await.end, SURE);
    // When it refuses what was posted, too.
    let turn = chat.start("hi");
    let asked = server.asked().await;
    turn.cancel.cancel();
    asked.reply(503, &[("retry-after", "0")], "");
    assert_eq!(turn.over().await.end, SURE);
    // When it never says whether it took it, nobody knows.
    let (mut server, chat) = start_with_short_grace().await;
    let turn = chat.start("hi");
    let asked = server.asked().await;
    turn.cancel.cancel();
    assert_eq!(turn.over().await.end, UNSURE);
    drop(asked);
    assert!(server.is_quiet());
}

#[tokio::test]
async fn a_stop_takes_an_open_question_back() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    send_event(&stream, "approval.request", json!({"command": "rm"})).await;
    let (_, mut reply) = turn.question().await;
    turn.cancel.cancel();
    // No answer is posted: the next request is the stop.
    server.expect("POST", STOP).await.reply(200, &[], "{}");
    soon("the question is taken back", reply.closed()).await;
    send_event(&stream, "run.cancelled", json!({})).await;
    assert_eq!(turn.over().await.end, SURE);
}

#[tokio::test]
async fn a_run_whose_turn_is_abandoned_is_stopped_all_the_same() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("hi");
    let (_, stream) = accept(&mut server).await;
    send_event(&stream, "message.delta", json!({"delta": "one"})).await;
    turn.expect_text("one").await;
    turn.give_up();
    let asked = server.expect("POST", STOP).await;
    stream.abandoned().await;
    // A shutdown waits for the stop to be out.
    let shutdown = chat.agent().shutdown();
    tokio::pin!(shutdown);
    tokio::select! {
        biased;
        () = &mut shutdown => panic!("it does not wait"),
        () = std::future::ready(()) => {}
    }
    asked.reply(200, &[], "{}");
    soon("the shutdown ends", shutdown).await;
}
