//! Hermes runs when something is wrong: lost streams, busy and absent gateways, refused keys; and its health.

use hermes_relay::agent::{AgentEvent, AgentHealth, FailureClass, HermesMode, HermesSettings, TurnEnd};
use serde_json::json;

use crate::http_agents::chat::Chat;
use crate::http_agents::hermes_runs::{accept, agent, completes, send_event, settings, start};
use crate::http_agents::server::Server;
use crate::http_agents::{KEY, soon};
use crate::support::http_stub::nobody;

#[tokio::test]
async fn a_lost_stream_is_followed_by_status_and_the_run_is_not_started_again() {
    let (mut server, chat) = start().await;
    for cut in [true, false] {
        let mut turn = chat.start("hi");
        let (_, stream) = accept(&mut server).await;
        send_event(&stream, "message.delta", json!({"delta": "ha"})).await;
        turn.expect_text("ha").await;
        if cut {
            stream.cut().await;
        } else {
            drop(stream);
        }
        for status in ["running", "waiting_for_approval"] {
            let asked = server.expect("GET", "/v1/runs/run_1").await;
            asked.reply_json(200, &json!({"object": "hermes.run", "status": status}));
        }
        // One bad look is nothing.
        server.expect("GET", "/v1/runs/run_1").await.reply(502, &[], "");
        let asked = server.expect("GET", "/v1/runs/run_1").await;
        asked.reply_json(
            200,
            &json!({"status": "completed", "output": "half of it", "usage": null}),
        );
        let over = turn.over().await;
        assert_eq!(over.completed(), "half of it");
        assert!(
            over.events
                .contains(&AgentEvent::Replace("half of it".to_owned()))
        );
    }
    assert!(server.is_quiet());
}

#[tokio::test]
async fn a_run_that_is_gone_or_fails_or_was_stopped_by_others_ends_so() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let (_, stream) = accept(&mut server).await;
    stream.cut().await;
    server.expect("GET", "/v1/runs/run_1").await.reply(404, &[], "");
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Crashed);
    assert!(over.failure().side_effects_possible && !over.failure().retryable);

    let turn = chat.start("hi");
    let (_, stream) = accept(&mut server).await;
    send_event(
        &stream,
        "run.failed",
        json!({"error": format!("model gone, key {KEY}")}),
    )
    .await;
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Reported);
    assert_eq!(over.failure().detail, "model gone, key [key]");
    assert!(over.failure().side_effects_possible);

    let turn = chat.start("hi");
    let (_, stream) = accept(&mut server).await;
    send_event(&stream, "run.cancelled", json!({})).await;
    assert_eq!(turn.over().await.end, TurnEnd::Cancelled { confirmed: true });

    // A stream that was taken by someone else.
    let turn = chat.start("hi");
    let asked = server.expect("POST", "/v1/runs").await;
    asked.reply_json(202, &json!({"run_id": "run_2"}));
    server
        .expect("GET", "/v1/runs/run_2/events")
        .await
        .reply(404, &[], "");
    let asked = server.expect("GET", "/v1/runs/run_2").await;
    asked.reply_json(200, &json!({"status": "failed", "error": "no"}));
    assert_eq!(turn.over().await.failure().class, FailureClass::Reported);
}

#[tokio::test]
async fn a_stream_of_comments_is_alive_and_a_silent_one_is_watched_instead() {
    let mut server = Server::start().await;
    let mut own = settings(&server.base());
    own.idle_timeout_secs = 2;
    let chat = Chat::new(agent(own));
    let turn = chat.start("slow but alive");
    let (_, stream) = accept(&mut server).await;
    for _ in 0..12 {
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        stream.raw(": keepalive\n\n").await;
    }
    completes(stream, "ok").await;
    assert_eq!(turn.over().await.completed(), "ok");
    assert!(server.is_quiet(), "its status was not asked for");
    let turn = chat.start("silent");
    let (_, stream) = accept(&mut server).await;
    let asked = server.expect("GET", "/v1/runs/run_1").await;
    asked.reply_json(200, &json!({"status": "completed", "output": "ok"}));
    assert_eq!(turn.over().await.completed(), "ok");
    stream.abandoned().await;
}

#[tokio::test]
async fn pages_and_refusals_that_trickle_are_no_runs() {
    let (mut server, chat) = start().await;
    let html = [("content-type", "text/html")];
    let turn = chat.start("hi");
    server.asked().await.reply(200, &html, "<html>log in</html>");
    assert_eq!(turn.over().await.failure().class, FailureClass::Protocol);
    // A page in place of the events: the status tells.
    let turn = chat.start("hi");
    let asked = server.expect("POST", "/v1/runs").await;
    asked.reply_json(202, &json!({"run_id": "run_1"}));
    let asked = server.expect("GET", "/v1/runs/run_1/events").await;
    asked.reply(200, &html, "<html>log in</html>");
    let asked = server.expect("GET", "/v1/runs/run_1").await;
    asked.reply_json(200, &json!({"status": "completed", "output": "ok"}));
    assert_eq!(turn.over().await.completed(), "ok");
    // A stop is heard while the words of a refusal are awaited.
    let turn = chat.start("hi");
    let refusal = server.asked().await.pieces(500, "text/plain");
    refusal.raw("no").await;
    turn.cancel.cancel();
    assert_eq!(turn.over().await.end, TurnEnd::Cancelled { confirmed: true });
    refusal.abandoned().await;
}

#[tokio::test]
async fn a_busy_gateway_is_waited_for_before_the_run_and_only_so_long() {
    let mut server = Server::start().await;
    let mut own = settings(&server.base());
    own.busy_wait_secs = 5;
    let chat = Chat::new(agent(own));
    let turn = chat.start("hi");
    for status in [429, 503] {
        let asked = server.expect("POST", "/v1/runs").await;
        asked.reply(
            status,
            &[("retry-after", "0")],
            r#"{"error":{"code":"rate_limit_exceeded"}}"#,
        );
    }
    let (_, stream) = accept(&mut server).await;
    completes(stream, "ok").await;
    assert_eq!(turn.over().await.completed(), "ok");
    let turn = chat.start("hi");
    server
        .asked()
        .await
        .reply(503, &[("retry-after", "60")], "draining");
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Unavailable);
    assert!(over.failure().retryable && !over.failure().side_effects_possible);
    assert!(server.is_quiet());
}

#[tokio::test]
async fn refusals_and_absence_explain_what_to_do() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let denied = json!({"error": {"message": format!("bad {KEY}"), "code": "invalid_api_key"}});
    server.asked().await.reply_json(401, &denied);
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Credentials);
    assert!(over.failure().detail.contains("API_SERVER_KEY"), "{over:?}");
    assert_eq!(
        over.failure().public_text,
        "Hermes is not set up correctly. Please tell whoever runs it."
    );
    assert!(!over.failure().retryable);
    let turn = chat.start("hi");
    server
        .asked()
        .await
        .reply_json(202, &json!({"run_id": "../../x"}));
    assert_eq!(turn.over().await.failure().class, FailureClass::Protocol);

    let chat = Chat::new(agent(settings(&nobody())));
    let over = chat.start("hi").over().await;
    assert_eq!(over.failure().class, FailureClass::Unavailable);
    assert!(over.failure().retryable && !over.failure().side_effects_possible);
    assert!(over.failure().detail.contains("hermes gateway run"), "{over:?}");
    assert!(!over.failure().public_text.contains('`'), "{over:?}");
}

#[tokio::test]
async fn health_asks_twice_and_says_what_is_missing() {
    let mut server = Server::start().await;
    let base = server.base();
    let health = |mode| {
        let own = HermesSettings {
            mode,
            ..settings(&base)
        };
        tokio::spawn(async move { Chat::new(agent(own)).agent().health().await })
    };
    let capable = |stop: bool| json!({"features": {"run_stop": stop, "run_events_sse": true}});
    for (mode, status, body, want) in [
        (HermesMode::Runs, 200, capable(true), Ok(true)),
        (HermesMode::Runs, 200, capable(false), Ok(false)),
        (HermesMode::Chat, 200, capable(false), Ok(true)),
        (HermesMode::Runs, 404, json!({}), Ok(true)),
        (
            HermesMode::Runs,
            401,
            json!({"error": KEY}),
            Err("API_SERVER_KEY"),
        ),
    ] {
        let asking = health(mode);
        let asked = server.expect("GET", "/health").await;
        assert_eq!(asked.header("authorization"), None);
        asked.reply_json(200, &json!({"status": "ok"}));
        let asked = server.expect("GET", "/v1/capabilities").await;
        assert!(asked.header("authorization").is_some());
        asked.reply_json(status, &body);
        match (soon("health", asking).await.unwrap(), want) {
            (AgentHealth::Ready, Ok(true)) | (AgentHealth::Degraded(_), Ok(false)) => {}
            (AgentHealth::Down(why), Err(expected)) => {
                assert!(why.contains(expected) && !why.contains(KEY), "{why}");
            }
            (health, want) => panic!("{health:?}, wanted {want:?}"),
        }
    }
    let AgentHealth::Down(why) = Chat::new(agent(settings(&nobody()))).agent().health().await else {
        panic!("not down");
    };
    assert!(why.contains("hermes gateway run"), "{why}");
}
