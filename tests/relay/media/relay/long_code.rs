//! Code of an answer that is too long for its chat goes as a file.

use std::sync::Arc;
use std::time::Duration;

use crate::support::dev::{HttpRoute, HttpRouteFault, OpAnswer, ResultRule};
use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::agent::{Agent, AgentEvent, Turn, TurnEnd};
use hermes_relay::config::Settings;
use hermes_relay::wire::Action;
use http::StatusCode;
use tokio::sync::Notify;

use super::{Running, Scripted};

fn code(lines: usize) -> String {
    let lines: Vec<String> = (1..=lines)
        .map(|line| format!("let x{line} = {line};\n"))
        .collect();
    lines.concat()
}

/// An answer with a block of so many lines.
fn answer(lines: usize) -> String {
    format!("Here:\n```rust\n{}```\nThat is it.", code(lines))
}

/// What the chat is shown of it where the block is too long.
fn shown() -> String {
    format!(
        "Here:\n```rust\n{}```\nThe whole code is in code-1.rs.\nThat is it.",
        code(10)
    )
}

/// Writes an answer with as many lines of code as the message says, in small pieces.
fn writer() -> impl Agent {
    Scripted(|turn: Turn| async move {
        let text = answer(turn.input.text.parse().unwrap());
        for piece in text.as_bytes().chunks(100) {
            turn.events.text(std::str::from_utf8(piece).unwrap()).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        TurnEnd::Completed
    })
}

fn in_mode(mode: StreamMode) -> impl FnOnce(&mut Settings) {
    move |settings: &mut Settings| {
        settings.streaming.mode = mode;
        settings.chat.code_file_lines = 20;
    }
}

#[tokio::test]
async fn long_code_goes_as_a_file_after_its_message() {
    for mode in [StreamMode::Auto, StreamMode::Segments, StreamMode::Off] {
        let relay = Running::start("discord", writer(), in_mode(mode)).await;
        relay.deliver("a", "1", "21", &[]);
        let replies = relay.replies("a", 2).await;
        let expected = [("send", shown()), ("send_media", String::new())];
        assert_eq!(replies, expected, "{mode:?}");
        let sent = relay.connector.sent_messages().pop().unwrap();
        let Action::SendMedia {
            media_kind,
            source_url,
            filename,
            ..
        } = sent.action
        else {
            panic!("{sent:?}")
        };
        assert_eq!(
            (media_kind.as_str(), filename.as_deref()),
            ("document", Some("code-1.rs"))
        );
        assert_eq!(relay.uploaded(&source_url).await, code(21).into_bytes());

        // Exactly as much as is allowed.
        relay.deliver("b", "2", "20", &[]);
        super::eventually("the whole answer", async || {
            relay.replies("b", 1).await == [("send", answer(20))]
        })
        .await;
        relay.stop().await;
    }
}

#[tokio::test]
async fn code_stays_in_the_text_where_no_files_can_be_sent_and_where_it_is_switched_off() {
    for (platform, lines) in [("plain", 20), ("discord", 0)] {
        let relay = Running::start(platform, writer(), |settings| {
            settings.streaming.mode = StreamMode::Off;
            settings.chat.code_file_lines = lines;
        })
        .await;
        relay.deliver("a", "1", "85", &[]);
        let replies = relay.replies("a", 1).await;
        assert!(replies.iter().all(|(op, _)| *op == "send"), "{replies:?}");
        if platform == "plain" {
            assert_eq!(replies, [("send", answer(85))]);
        }
        relay.stop().await;
    }
}

#[tokio::test]
async fn code_that_cannot_be_delivered_as_a_file_comes_as_text() {
    let relay = Running::start("discord", writer(), in_mode(StreamMode::Off)).await;
    let expected = [("send", shown()), ("send", format!("```rust\n{}```", code(21)))];
    let fault = HttpRouteFault::answering(StatusCode::INTERNAL_SERVER_ERROR, "");
    relay.connector.fail_route(HttpRoute::MediaUpload, fault.once());
    relay.deliver("a", "1", "21", &[]);
    assert_eq!(relay.replies("a", 2).await, expected);

    let refusal = OpAnswer::Refuse {
        error: "no".into(),
        code: None,
    };
    relay
        .connector
        .script(ResultRule::on("send_media", refusal).once());
    relay.deliver("b", "2", "21", &[]);
    assert_eq!(relay.replies("b", 2).await, expected);
    relay.stop().await;
}

#[tokio::test]
async fn the_code_of_a_stopped_turn_comes_as_text() {
    let written = Arc::new(Notify::new());
    let writes = Arc::clone(&written);
    let agent = Scripted(move |turn: Turn| {
        let writes = Arc::clone(&writes);
        async move {
            turn.events.text(answer(21)).await;
            turn.events.emit(AgentEvent::Break).await;
            writes.notify_one();
            turn.cancel.cancelled().await;
            TurnEnd::Cancelled { confirmed: true }
        }
    });
    let relay = Running::start("discord", agent, in_mode(StreamMode::Off)).await;
    let fault = HttpRouteFault {
        delay: super::SOON,
        ..HttpRouteFault::answering(StatusCode::INTERNAL_SERVER_ERROR, "")
    };
    relay.connector.fail_route(HttpRoute::MediaUpload, fault);
    relay.deliver("a", "1", "go", &[]);
    written.notified().await;
    relay.connector.interrupt("agent:main:discord:dm:a", "a");
    let replies = relay.replies("a", 2).await;
    assert_eq!(replies[0].1, shown());
    assert_eq!(replies[1].1, format!("```rust\n{}```", code(21)));
    relay.stop().await;
}

#[tokio::test]
async fn a_replaced_answer_sends_its_own_code_only() {
    let agent = Scripted(|turn: Turn| async move {
        turn.events.text(answer(30)).await;
        turn.events.emit(AgentEvent::Replace(answer(21))).await;
        turn.events.emit(AgentEvent::Break).await;
        turn.events.text(answer(22)).await;
        TurnEnd::Completed
    });
    let relay = Running::start("discord", agent, in_mode(StreamMode::Off)).await;
    relay.deliver("a", "1", "go", &[]);
    let expected = [
        ("send", shown()),
        ("send_media", String::new()),
        ("send", shown().replace("code-1", "code-2")),
        ("send_media", String::new()),
    ];
    assert_eq!(relay.replies("a", 4).await, expected);
    relay.stop().await;
}
