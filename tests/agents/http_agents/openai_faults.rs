//! An OpenAI-style model that does not answer as it should.

use hermes_relay::agent::{FailureClass, OpenAiSettings, TurnEnd};
use serde_json::json;

use crate::http_agents::KEY;
use crate::http_agents::chat::Chat;
use crate::http_agents::openai::{CHAT, agent, settings, start};
use crate::http_agents::server::{Server, delta, finish};
use crate::support::http_stub::{nobody, verbatim};

async fn start_with(change: impl FnOnce(&mut OpenAiSettings)) -> (Server, Chat) {
    let server = Server::start().await;
    let mut settings = settings(&server.base());
    change(&mut settings);
    (server, Chat::new(agent(settings)))
}

#[tokio::test]
async fn an_answer_that_breaks_off_fails_with_its_text_kept() {
    let (mut server, chat) = start().await;
    // A clean end without an end of the answer.
    let turn = chat.start("hi");
    server.asked().await.events(&[&delta("half")]).await;
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Crashed);
    assert!(!over.failure().retryable);
    assert_eq!(over.text, "half");
    // A connection that breaks.
    let mut turn = chat.start("hi");
    let stream = server.asked().await.stream();
    stream.delta("half").await;
    turn.expect_text("half").await;
    stream.cut().await;
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Crashed);
    assert_eq!(over.text, "half");
    // One that breaks after the end of the answer has harmed nothing.
    let mut turn = chat.start("hi");
    let stream = server.asked().await.stream();
    stream.delta("whole").await;
    stream.data(&finish("stop")).await;
    turn.expect_text("whole").await;
    stream.cut().await;
    assert_eq!(turn.over().await.completed(), "whole");
}

#[tokio::test]
async fn an_error_in_the_stream_ends_it() {
    let (mut server, chat) = start().await;
    for error in [
        json!({"error": {"message": format!("out of memory {KEY}"), "code": 500}}).to_string(),
        json!({"error": "out of memory"}).to_string(),
        json!({"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"message": "out of memory"}})
            .to_string(),
    ] {
        let turn = chat.start("hi");
        server.asked().await.events(&[&delta("half"), &error]).await;
        let over = turn.over().await;
        assert_eq!(over.failure().class, FailureClass::Reported);
        assert!(over.failure().detail.contains("out of memory"), "{over:?}");
        assert!(!over.failure().public_text.contains("out of memory"), "{over:?}");
        assert_eq!(over.text, "half");
    }
}

#[tokio::test]
async fn nonsense_is_an_error_and_no_panic() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    server.asked().await.events(&[&delta("a"), "{not json"]).await;
    assert_eq!(turn.over().await.failure().class, FailureClass::Protocol);
    let turn = chat.start("hi");
    let html = [("content-type", "text/html")];
    server.asked().await.reply(200, &html, "<html>log in</html>");
    assert_eq!(turn.over().await.failure().class, FailureClass::Protocol);
    let turn = chat.start("hi");
    server.asked().await.reply_json(200, &json!({"hello": "you"}));
    assert_eq!(turn.over().await.failure().class, FailureClass::Protocol);
    let turn = chat.start("hi");
    let stream = server.asked().await.stream();
    stream.raw(format!("data: {}", "x".repeat(1 << 20))).await;
    assert_eq!(turn.over().await.failure().class, FailureClass::Protocol);
    let turn = chat.start("hi");
    let elsewhere = [("location", "https://evil.example/v1?x=1")];
    server.asked().await.reply(307, &elsewhere, "");
    let over = turn.over().await;
    assert!(over.failure().detail.contains("https://evil.example"), "{over:?}");
    assert!(server.is_quiet());
}

#[tokio::test]
async fn refusals_are_classified_and_their_text_kept_out_of_the_chat() {
    let (mut server, chat) = start().await;
    let shapes = [
        json!({"error": {"message": format!("bad key {KEY}"), "type": "x"}}).to_string(),
        json!({"error": format!("bad key {KEY}")}).to_string(),
        format!("bad key {KEY}"),
    ];
    for (status, class) in [
        (401, FailureClass::Credentials),
        (403, FailureClass::Credentials),
        (404, FailureClass::Reported),
        (413, FailureClass::Reported),
        (500, FailureClass::Unavailable),
    ] {
        for shape in &shapes {
            let turn = chat.start("hi");
            server.asked().await.reply(status, &[], shape.clone());
            let over = turn.over().await;
            let failure = over.failure();
            assert_eq!(failure.class, class, "{status}");
            let detail = format!("HTTP {status}: bad key [key]");
            assert!(failure.detail.starts_with(&detail), "{failure:?}");
            let is_setup = matches!(status, 401 | 403 | 404);
            assert_eq!(
                failure.detail.contains("base_url") || failure.detail.contains("api_key"),
                is_setup
            );
            for word in ["bad key", "HTTP", "_", "log"] {
                assert!(!failure.public_text.contains(word), "{failure:?}");
            }
            assert!(!failure.retryable && !failure.side_effects_possible);
        }
    }
    assert!(server.is_quiet());
}

#[tokio::test]
async fn stream_options_are_abandoned_when_they_are_refused() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let first = server.asked().await;
    assert!(first.json().get("stream_options").is_some());
    first.reply(400, &[], "unknown field stream_options");
    let second = server.asked().await;
    assert!(second.json().get("stream_options").is_none());
    second.events(&[&delta("yes"), &finish("stop")]).await;
    assert_eq!(turn.over().await.completed(), "yes");
    // It is remembered.
    let turn = chat.start("hi");
    let third = server.asked().await;
    assert!(third.json().get("stream_options").is_none());
    third.reply(400, &[], "no");
    assert_eq!(turn.over().await.failure().class, FailureClass::Reported);
    assert!(server.is_quiet());
}

#[tokio::test]
async fn a_400_for_another_reason_is_asked_twice_and_not_remembered() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    for _ in 0..2 {
        server.asked().await.reply(400, &[], "context too long");
    }
    assert!(turn.over().await.failure().detail.contains("context too long"));
    let turn = chat.start("hi");
    let asked = server.asked().await;
    assert!(asked.json().get("stream_options").is_some());
    asked.events(&[&finish("stop")]).await;
    turn.over().await.completed();
}

#[tokio::test]
async fn a_busy_server_is_tried_again_as_it_asks() {
    let (mut server, chat) = start_with(|settings| settings.retries = 5).await;
    let turn = chat.start("hi");
    for status in [408, 429, 502, 503, 504] {
        let asked = server.expect("POST", CHAT).await;
        asked.reply(status, &[("retry-after", "0")], "busy");
    }
    server
        .asked()
        .await
        .events(&[&delta("yes"), &finish("stop")])
        .await;
    assert_eq!(turn.over().await.completed(), "yes");

    // A date that has passed is no wait either.
    let turn = chat.start("hi");
    let date = [("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")];
    server.asked().await.reply(429, &date, "busy");
    server.asked().await.events(&[&finish("stop")]).await;
    turn.over().await.completed();
}

#[tokio::test]
async fn retries_of_a_busy_server_end() {
    let (mut server, chat) = start_with(|settings| settings.retries = 1).await;
    let turn = chat.start("hi");
    for _ in 0..2 {
        server.asked().await.reply(503, &[("retry-after", "0")], "busy");
    }
    let over = turn.over().await;
    assert!(over.failure().retryable && !over.failure().side_effects_possible);
    assert_eq!(over.failure().class, FailureClass::Unavailable);
    // One that asks for an hour is not kept waiting for.
    let turn = chat.start("hi");
    server
        .asked()
        .await
        .reply(429, &[("retry-after", "3600")], "busy");
    let over = turn.over().await;
    assert!(over.failure().public_text.contains("60 minutes"), "{over:?}");
    assert!(server.is_quiet());
}

#[tokio::test]
async fn nothing_is_retried_after_the_first_delta() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("hi");
    let stream = server.asked().await.stream();
    stream.delta("one").await;
    turn.expect_text("one").await;
    stream.cut().await;
    turn.over().await.failure();
    assert!(server.is_quiet());
}

#[tokio::test]
async fn an_unreachable_server_is_retried_and_reported() {
    let mut settings = settings(&nobody());
    settings.retries = 1;
    let chat = Chat::new(agent(settings));
    let began = std::time::Instant::now();
    let over = chat.start("hi").over().await;
    assert!(began.elapsed().as_millis() >= 500, "there was no second try");
    let failure = over.failure();
    assert_eq!(failure.class, FailureClass::Unavailable);
    assert!(failure.retryable && !failure.side_effects_possible);
    assert!(
        failure.detail.contains("base_url") && !failure.public_text.contains("base_url"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_stop_is_noticed_while_waiting_for_the_next_try() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    server.asked().await.reply(503, &[("retry-after", "25")], "busy");
    turn.cancel.cancel();
    assert_eq!(turn.over().await.end, TurnEnd::Cancelled { confirmed: true });
}

#[tokio::test]
async fn silence_ends_a_turn_and_comments_are_no_silence() {
    let short = |settings: &mut OpenAiSettings| {
        settings.first_token_timeout_secs = 2;
        settings.idle_timeout_secs = 2;
    };
    let (mut server, chat) = start_with(short).await;
    let turn = chat.start("before the answer begins");
    let asked = server.asked().await;
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Timeout);
    drop(asked);
    let mut turn = chat.start("in the middle");
    let stream = server.asked().await.stream();
    stream.delta("one").await;
    turn.expect_text("one").await;
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Timeout);
    assert_eq!(over.text, "one");
    stream.abandoned().await;
    let turn = chat.start("slow but alive");
    let stream = server.asked().await.stream();
    for _ in 0..12 {
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        stream.raw(": keepalive\n\n").await;
    }
    stream.data("[DONE]").await;
    turn.over().await.completed();
}

#[tokio::test]
async fn an_answer_that_stalls_in_the_middle_of_its_body_is_abandoned() {
    let (mut server, chat) = start_with(|settings| settings.first_token_timeout_secs = 1).await;
    let turn = chat.start("hi");
    let whole = server.asked().await.pieces(200, "application/json");
    whole.raw(r#"{"choices":[{"message":"#).await;
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Timeout);
    whole.abandoned().await;
    // The words of a refusal are waited for too, and a stop is heard meanwhile.
    let turn = chat.start("hi");
    let refusal = server.asked().await.pieces(500, "text/plain");
    refusal.raw("no").await;
    turn.cancel.cancel();
    assert_eq!(turn.over().await.end, TurnEnd::Cancelled { confirmed: true });
}

#[tokio::test]
async fn what_comes_after_the_end_keeps_nobody_waiting() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let stream = server.asked().await.stream();
    stream.delta("whole").await;
    stream.data(&finish("stop")).await;
    let chatter = async {
        loop {
            stream.raw(": keepalive\n\n").await;
            stream.data("").await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let over = tokio::select! {
        over = turn.over() => over,
        () = chatter => unreachable!(),
    };
    assert_eq!(over.completed(), "whole");
}

#[tokio::test]
async fn chunks_that_are_none_break_the_answer_off() {
    const HEAD: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\nnonsense";
    for (bytes, class) in [
        (HEAD, FailureClass::Crashed),
        (b"\xff\xfe nonsense\r\n\r\n", FailureClass::Crashed),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            FailureClass::Crashed,
        ),
    ] {
        let mut settings = settings(&format!("http://{}", verbatim(bytes).await));
        settings.retries = 0;
        let over = Chat::new(agent(settings)).start("hi").over().await;
        assert_eq!(over.failure().class, class, "{over:?}");
    }
}

/// A log that can be read afterwards.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_key_and_the_message_are_in_no_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // The test's runtime has one thread, so everything that is logged is caught.
    let _guard = tracing::subscriber::set_default(subscriber);
    let (mut server, chat) = start().await;
    let turn = chat.start("private words");
    let echoed = format!("busy, your key was {KEY}");
    server
        .asked()
        .await
        .reply(503, &[("retry-after", "0")], echoed.clone());
    server.asked().await.reply(401, &[], echoed);
    turn.over().await.failure();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("retrying the model server"), "{log}");
    assert!(!log.contains(KEY) && !log.contains("private words"), "{log}");
}
