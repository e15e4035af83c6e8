//! An OpenAI-style model that answers as it should, in all the ways that count as such.

use hermes_relay::agent::{
    AgentEvent, AgentHealth, Attachment, ChatOrigin, MediaLocation, OpenAiAgent, OpenAiSettings, Truncation,
    TurnEnd, TurnInput, Usage,
};
use secrecy::SecretString;
use serde_json::json;

use crate::http_agents::chat::Chat;
use crate::http_agents::server::{Server, delta, finish};
use crate::http_agents::{KEY, egress, soon};
use crate::support::http_stub::nobody;

pub(crate) const CHAT: &str = "/v1/chat/completions";

pub(crate) fn settings(base: &str) -> OpenAiSettings {
    OpenAiSettings {
        base_url: format!("{base}/v1"),
        model: "llama".to_owned(),
        ..OpenAiSettings::default()
    }
}

pub(crate) fn agent(settings: OpenAiSettings) -> OpenAiAgent {
    let agent = OpenAiAgent::new(settings, Some(SecretString::from(KEY)), &egress()).unwrap();
    assert!(!format!("{agent:?}").contains(KEY));
    agent
}

pub(crate) async fn start() -> (Server, Chat) {
    let server = Server::start().await;
    let chat = Chat::new(agent(settings(&server.base())));
    (server, chat)
}

#[tokio::test]
async fn a_turn_streams_as_it_comes_and_reports_its_cost() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("hello");
    let asked = server.expect("POST", CHAT).await;
    assert_eq!(
        asked.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    assert_eq!(asked.header("origin"), None);
    let body = asked.json();
    assert_eq!(body["model"], "llama");
    assert_eq!(body["stream"], true);
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["messages"], json!([{"role": "user", "content": "hello"}]));
    assert!(body.get("temperature").is_none() && body.get("max_tokens").is_none());
    let stream = asked.stream();
    stream.delta("Hel").await;
    // Before the rest is sent.
    turn.expect_text("Hel").await;
    stream.delta("lo").await;
    stream.data(&finish("stop")).await;
    stream
        .data(r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#)
        .await;
    stream.data("[DONE]").await;
    let over = turn.over().await;
    assert_eq!(over.completed(), "Hello");
    let cost = Usage {
        input_tokens: 5,
        output_tokens: 2,
    };
    assert!(over.events.contains(&AgentEvent::Usage(cost)));
    // The answer was over at [DONE], whatever the server still meant to send.
    stream.abandoned().await;
}

#[tokio::test]
async fn either_a_finish_reason_or_done_completes_an_answer() {
    let (mut server, chat) = start().await;
    for ending in [
        vec![finish("stop")],
        vec!["[DONE]".to_owned()],
        vec![finish("stop"), "[DONE]".to_owned()],
        vec![finish("eos_token_of_a_vendor")],
    ] {
        let turn = chat.start("hi");
        let mut events = vec![delta("yes")];
        events.extend(ending);
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        server.asked().await.events(&events).await;
        assert_eq!(turn.over().await.completed(), "yes");
    }
    // The last event without its blank line.
    let turn = chat.start("hi");
    let stream = server.asked().await.stream();
    stream
        .raw(format!("data: {}\n\ndata: [DONE]", delta("yes")))
        .await;
    drop(stream);
    assert_eq!(turn.over().await.completed(), "yes");
}

#[tokio::test]
async fn bytes_may_be_cut_anywhere() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let stream = server.asked().await.stream();
    let body = format!(
        "\u{FEFF}: hello\r\n\r\nevent: vendor.news\r\ndata: nothing\r\n\r\ndata:{}\r\rdata: {}\n\n",
        delta("grüße €"),
        finish("stop")
    );
    for byte in body.bytes() {
        stream.raw(vec![byte]).await;
    }
    drop(stream);
    assert_eq!(turn.over().await.completed(), "grüße €");
}

#[tokio::test]
async fn thoughts_are_no_part_of_the_answer() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    server
        .asked()
        .await
        .events(&[
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"hm","content":null}}]}"#,
            &delta("<th"),
            &delta("ink>let me see</thi"),
            &delta("nk>\n\nYes"),
            &finish("stop"),
        ])
        .await;
    let over = turn.over().await;
    assert_eq!(over.completed(), "Yes");
    assert!(!format!("{:?}", over.events).contains("let me see"));
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    server.asked().await.reply_json(
        200,
        &json!({
            "choices": [{"message": {"role": "assistant", "content": "<think>x</think>whole"}, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        }),
    );
    let over = turn.over().await;
    assert_eq!(over.end, TurnEnd::Truncated(Truncation::Tokens));
    assert_eq!(over.text, "whole");
    assert!(
        over.events
            .iter()
            .any(|event| matches!(event, AgentEvent::Usage(_)))
    );
}

#[tokio::test]
async fn the_reason_for_the_end_is_reported() {
    let (mut server, chat) = start().await;
    for (text, reason, want) in [
        ("a", "length", TurnEnd::Truncated(Truncation::Tokens)),
        ("a", "content_filter", TurnEnd::Truncated(Truncation::Filter)),
        ("", "content_filter", TurnEnd::Refused),
        ("", "stop", TurnEnd::Completed),
    ] {
        let turn = chat.start("hi");
        let events = [delta(text), finish(reason)];
        server
            .asked()
            .await
            .events(&events.each_ref().map(String::as_str))
            .await;
        assert_eq!(turn.over().await.end, want, "{reason}");
    }
    let turn = chat.start("hi");
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"x"}}]}}]}"#;
    server.asked().await.events(&[call, &finish("tool_calls")]).await;
    let over = turn.over().await;
    over.completed();
    assert!(
        over.events
            .iter()
            .any(|event| matches!(event, AgentEvent::Notice(_)))
    );
}

#[tokio::test]
async fn what_is_set_is_sent() {
    let mut server = Server::start().await;
    let prompt = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(prompt.path(), "You are Bo.\n").unwrap();
    let mut settings = settings(&server.base());
    settings.system_prompt_file = Some(prompt.path().to_owned());
    settings.temperature = Some(0.7);
    settings.max_tokens = Some(99);
    settings
        .extra_headers
        .insert("x-title".to_owned(), "relay".to_owned());
    let agent = OpenAiAgent::new(settings, None, &egress()).unwrap();
    let chat = Chat::new(agent);
    let input = TurnInput {
        text: "hello".to_owned(),
        author: Some("Ann".into()),
        origin: ChatOrigin {
            chat_type: "group".into(),
            hint: "This is Telegram.".into(),
            markdown: "plain".into(),
            ..ChatOrigin::default()
        },
        ..TurnInput::default()
    };
    let turn = chat.start_with("s", input);
    let asked = server.asked().await;
    // Some servers want a key although they look at none.
    assert_eq!(asked.header("authorization"), Some("Bearer none"));
    assert_eq!(asked.header("x-title"), Some("relay"));
    let body = asked.json();
    assert_eq!(body["temperature"], 0.7);
    assert_eq!(body["max_tokens"], 99);
    assert_eq!(body["messages"][0]["role"], "system");
    let system = body["messages"][0]["content"].as_str().unwrap();
    assert!(
        system.starts_with("You are Bo.\n\nThis is Telegram.\n\n"),
        "{system}"
    );
    assert!(system.ends_with("use no markdown."), "{system}");
    assert_eq!(body["messages"][1]["content"], "[Ann] hello");
    asked.events(&[&finish("stop")]).await;
    turn.over().await.completed();
}

#[tokio::test]
async fn pictures_are_shown_only_when_asked_for() {
    let mut server = Server::start().await;
    let picture = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(picture.path(), b"\x89PNG").unwrap();
    let attachment = |at, mime: &str, name: &str| Attachment {
        location: at,
        mime: mime.to_owned(),
        name: name.to_owned(),
    };
    let secret_url = "https://files.example/bot1:token/x.png".to_owned();
    let input = TurnInput {
        text: "look".to_owned(),
        attachments: vec![
            attachment(
                MediaLocation::File(picture.path().to_owned()),
                "image/png",
                "a.png",
            ),
            attachment(MediaLocation::File("/nowhere/b.png".into()), "image/png", "b.png"),
            attachment(MediaLocation::Url(secret_url), "image/png", "c.png"),
            attachment(
                MediaLocation::File("/nowhere/d.pdf".into()),
                "application/pdf",
                "d.pdf",
            ),
        ],
        ..TurnInput::default()
    };
    for images in [true, false] {
        let mut settings = settings(&server.base());
        settings.images = images;
        let chat = Chat::new(agent(settings));
        assert_eq!(chat.agent().info().sees_images, images);
        let turn = chat.start_with("s", input.clone());
        let asked = server.asked().await;
        let content = asked.json()["messages"][0]["content"].clone();
        assert!(!asked.body.contains("token"), "{content}");
        if images {
            let want = json!([
                {"type": "text", "text": "look\n[attached: c.png (image/png)]\n[attached: d.pdf (application/pdf)]"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            ]);
            assert_eq!(content, want);
        } else {
            assert!(
                content
                    .as_str()
                    .unwrap()
                    .contains("[attached: a.png (image/png)]")
            );
        }
        asked.events(&[&finish("stop")]).await;
        turn.over().await.completed();
    }
}

#[tokio::test]
async fn a_stopped_turn_closes_its_connection() {
    let (mut server, chat) = start().await;
    // While text comes, and before the answer begins.
    let mut turn = chat.start("hi");
    let stream = server.asked().await.stream();
    stream.delta("one ").await;
    turn.expect_text("one ").await;
    turn.cancel.cancel();
    let over = turn.over().await;
    assert_eq!(over.end, TurnEnd::Cancelled { confirmed: true });
    assert_eq!(over.text, "one ");
    stream.abandoned().await;

    let turn = chat.start("again");
    let asked = server.asked().await;
    turn.cancel.cancel();
    assert_eq!(turn.over().await.end, TurnEnd::Cancelled { confirmed: true });
    drop(asked);
}

#[tokio::test]
async fn health_reports_a_missing_model_a_wrong_key_and_nobody() {
    let (mut server, chat) = start().await;
    let chat = std::sync::Arc::new(chat);
    let ask = || {
        let chat = std::sync::Arc::clone(&chat);
        tokio::spawn(async move { chat.agent().health().await })
    };
    let health = ask();
    let listed = json!({"data": [{"id": "other"}, {"id": "llama:latest"}]});
    server.expect("GET", "/v1/models").await.reply_json(200, &listed);
    assert_eq!(soon("health", health).await.unwrap(), AgentHealth::Ready);
    let health = ask();
    server
        .asked()
        .await
        .reply_json(200, &json!({"data": [{"id": "other"}]}));
    let AgentHealth::Degraded(why) = soon("health", health).await.unwrap() else {
        panic!("not degraded");
    };
    assert!(why.contains("llama"), "{why}");
    let health = ask();
    server.asked().await.reply(404, &[], "");
    assert_eq!(soon("health", health).await.unwrap(), AgentHealth::Ready);
    let health = ask();
    server.asked().await.reply(401, &[], KEY);
    let AgentHealth::Down(why) = soon("health", health).await.unwrap() else {
        panic!("not down");
    };
    assert!(why.contains("api_key_env") && !why.contains(KEY), "{why}");
    let nobody = Chat::new(agent(settings(&nobody())));
    assert!(matches!(nobody.agent().health().await, AgentHealth::Down(_)));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refuse = |change: fn(&mut OpenAiSettings), expected: &str| {
        let mut settings = settings("http://127.0.0.1:1");
        change(&mut settings);
        let error = OpenAiAgent::new(settings, Some(SecretString::from(KEY)), &egress()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    refuse(|s| s.model.clear(), "model");
    refuse(
        |s| s.base_url = "http://10.0.0.7:8000/v1".to_owned(),
        "allow_plaintext",
    );
    refuse(|s| s.base_url = "nonsense".to_owned(), "parse");
    refuse(
        |s| drop(s.extra_headers.insert("Authorization".to_owned(), "x".to_owned())),
        "api_key_env",
    );
    refuse(|s| s.system_prompt_file = Some("/nowhere".into()), "/nowhere");
    let key = Some(SecretString::from("sk-a\nb"));
    let error = OpenAiAgent::new(settings("http://127.0.0.1:1"), key, &egress()).unwrap_err();
    assert!(!error.to_string().contains("sk-a"), "{error}");
    let unknown = serde_json::from_value::<OpenAiSettings>(json!({"api_key": "x"}));
    assert!(unknown.is_err());
}
