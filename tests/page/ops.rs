//! Every op that a relay can ask for, seen on the page; a bare client asks, so that each comes exactly as written.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::dev::{Connector, ConnectorSettings, Hint, PageSettings};
use futures_util::{SinkExt as _, StreamExt as _};
use hermes_relay::adapter::SessionNames;
use hermes_relay::wire::UpgradeToken;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::browser::{Browser, ENTER, SOON};

struct Scene {
    page: Browser,
    connector: Connector,
    socket: WebSocketStream<TcpStream>,
    asked: u32,
}

impl Scene {
    async fn on(platform: &str) -> Option<Self> {
        let page = Browser::start().await?;
        let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
        let url = connector.open_page(PageSettings {
            platform: platform.to_owned(),
            agent: "helper".to_owned(),
            hints: Hint::for_agent("echo"),
            sessions: SessionNames::default(),
            relay: None,
        });
        let who = connector.credentials().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let token = UpgradeToken::mint(&who.gateway_id, &who.secret, 300, now.try_into().unwrap());
        let mut request = format!("{}/relay", connector.url())
            .into_client_request()
            .unwrap();
        let bearer = format!("Bearer {}", token.expose()).try_into().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let socket = TcpStream::connect(connector.addr()).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(request, socket).await.unwrap();
        let mut scene = Self {
            page,
            connector,
            socket,
            asked: 0,
        };
        scene
            .send(&json!({ "type": "hello", "platform": platform, "botId": "b" }))
            .await;
        scene.next("descriptor").await;
        scene.page.open(&url).await;
        scene.see("live", "#link", "live").await;
        Some(scene)
    }

    async fn send(&mut self, frame: &Value) {
        self.socket
            .send(Message::text(format!("{frame}\n")))
            .await
            .unwrap();
    }

    /// The next frame of a type.
    async fn next(&mut self, kind: &str) -> Value {
        loop {
            let message = timeout(SOON, self.socket.next())
                .await
                .expect(kind)
                .unwrap()
                .unwrap();
            let frame: Value = serde_json::from_str(message.to_text().unwrap()).unwrap_or_default();
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// Asks for an op, and gives its result.
    async fn op(&mut self, action: Value) -> Value {
        self.asked += 1;
        let request = format!("r{}", self.asked);
        self.send(&json!({ "type": "outbound", "requestId": request, "action": action }))
            .await;
        loop {
            let answer = self.next("outbound_result").await;
            if answer["requestId"] == request {
                return answer["result"].clone();
            }
        }
    }

    /// A person says something; gives the event as it came.
    async fn wait_for_text(&mut self, text: &str) -> Value {
        self.page.keys("#input", text).await;
        self.page.press(ENTER).await;
        let frame = self.next("inbound").await;
        self.send(&json!({ "type": "inbound_ack", "bufferId": frame["bufferId"] }))
            .await;
        frame["event"].clone()
    }

    /// Waits until some element that matches contains a text.
    async fn see(&self, what: &str, css: &str, text: &str) {
        let text = serde_json::to_string(text).unwrap();
        let look =
            format!("[...document.querySelectorAll('{css}')].some((n) => n.innerText.includes({text}))");
        self.page.until(what, &look).await;
    }

    async fn gone(&self, what: &str, css: &str) {
        self.page
            .until(what, &format!("!document.querySelector('{css}')"))
            .await;
    }
}

#[tokio::test]
async fn a_discord_chat_shows_edits_typing_reactions_files_and_refusals() {
    let Some(mut scene) = Scene::on("discord").await else {
        return;
    };
    let event = scene.wait_for_text("hello").await;
    let (chat, message_id) = (event["source"]["chat_id"].clone(), event["message_id"].clone());
    scene.op(json!({ "op": "typing", "chat_id": chat })).await;
    scene.see("typing", "#typing.on", "helper is typing").await;
    scene
        .op(json!({ "op": "react", "chat_id": chat, "message_id": message_id, "emoji": "👀", "remove": false }))
        .await;
    scene.see("a reaction", ".message.person .reaction", "👀").await;
    let first = scene
        .op(json!({ "op": "send", "chat_id": chat, "content": "wri ▉", "reply_to": message_id, "metadata": { "expect_edits": true } }))
        .await;
    scene.see("the beginning", ".message.bot .text", "wri ▉").await;
    scene.gone("typing is over", "#typing.on").await;
    let id = first["message_id"].clone();
    for text in ["writing ▉", "writing **words**"] {
        scene
            .op(json!({ "op": "edit", "chat_id": chat, "message_id": id, "content": text }))
            .await;
    }
    scene.see("the whole", ".message.bot .text strong", "words").await;
    scene
        .see("that it was edited", ".message.bot .edited", "edited 2 times")
        .await;
    let count = scene
        .page
        .js("return document.querySelectorAll('.message.bot').length;")
        .await;
    assert_eq!(count, 1, "edits make no messages");
    scene
        .op(json!({ "op": "react", "chat_id": chat, "message_id": message_id, "emoji": "👀", "remove": true }))
        .await;
    scene
        .gone("the reaction is gone", ".message.person .reaction")
        .await;

    let url = scene
        .connector
        .put_media("image/png", Some("dot.png"), crate::chat::DOT.to_vec());
    scene
        .op(json!({ "op": "send_media", "chat_id": chat, "media_kind": "image", "source_url": url, "content": "a picture", "filename": "dot.png" }))
        .await;
    scene
        .page
        .until(
            "the picture",
            "document.querySelector('img.picture')?.naturalWidth === 1",
        )
        .await;
    let outside = "https://example.invalid/cat.png";
    scene
        .op(json!({ "op": "send_media", "chat_id": chat, "media_kind": "image", "source_url": outside, "content": "" }))
        .await;
    scene
        .see("an outside picture is only named", ".file", outside)
        .await;

    scene
        .op(json!({ "op": "delete", "chat_id": chat, "message_id": id }))
        .await;
    scene.see("the deleted message", ".gone-text", "deleted").await;
    let long = scene
        .op(json!({ "op": "send", "chat_id": chat, "content": "x".repeat(2001) }))
        .await;
    assert_eq!(long["success"], false);
    scene
        .see("the refusal", ".note", "message too long: 2001 of 2000")
        .await;
}

#[tokio::test]
async fn threads_that_the_relay_opens_can_be_talked_in_and_follow_ups_are_shown() {
    let Some(mut scene) = Scene::on("discord").await else {
        return;
    };
    let event = scene.wait_for_text("hello").await;
    let chat = event["source"]["chat_id"].clone();
    let thread = scene
        .op(json!({ "op": "thread_create", "chat_id": chat, "thread_name": "plans" }))
        .await;
    scene.see("the thread", ".chat .name", "plans").await;
    let thread = thread["thread_id"].clone();
    scene
        .op(json!({ "op": "thread_rename", "chat_id": chat, "message_id": thread, "thread_name": "big plans" }))
        .await;
    scene.see("its new name", ".chat .name", "big plans").await;
    scene.op(json!({ "op": "send", "chat_id": thread, "content": "in the thread", "metadata": { "thread_id": thread } })).await;
    scene.see("an unread message there", ".chat .unread", "1").await;
    scene.page.click("#chats li:last-child button").await;
    let inside = scene.wait_for_text("and I answer there").await;
    let source = &inside["source"];
    assert_eq!(
        (&source["chat_id"], &source["chat_type"]),
        (&thread, &json!("thread"))
    );
    assert_eq!(source["parent_chat_id"], chat);
    scene.page.click("#chats li:first-child button").await;

    scene
        .page
        .js("document.querySelector('#lane').value = 'interaction';")
        .await;
    scene.page.keys("#input", "/status now").await;
    scene.page.press(ENTER).await;
    scene.next("passthrough_forward").await;
    let followed = scene
        .op(json!({ "op": "follow_up", "session_key": "agent:main:discord:dm:dm-1", "kind": "discord.interaction_token", "content": "through the slot" }))
        .await;
    assert_eq!(followed["success"], true, "{followed}");
    scene
        .see("the follow-up", ".message.bot .text", "through the slot")
        .await;
    scene.page.picture("ops-discord").await;
}

#[tokio::test]
async fn a_pressed_button_reaches_the_relay_on_either_lane_and_only_once() {
    let Some(mut scene) = Scene::on("discord").await else {
        return;
    };
    let event = scene.wait_for_text("deploy").await;
    let chat = event["source"]["chat_id"].clone();
    for lane in ["message", "interaction"] {
        let prompt = format!("abc123.{lane}");
        scene
            .op(json!({
                "op": "prompt", "chat_id": chat, "content": "Deploy now?", "prompt_kind": "approval", "prompt_id": prompt,
                "options": [{ "id": "once", "label": "Once", "style": "primary" }, { "id": "deny", "label": "Deny", "style": "danger" }],
            }))
            .await;
        scene
            .page
            .until(
                "buttons",
                "document.querySelectorAll('.choice:not(:disabled)').length === 2",
            )
            .await;
        scene.page.picture("prompt").await;
        scene
            .page
            .js(&format!("document.querySelector('#lane').value = '{lane}';"))
            .await;
        scene
            .page
            .click(".choice[data-option='once']:not(:disabled)")
            .await;
        if lane == "message" {
            let pressed = scene.next("inbound").await;
            let answer = &pressed["event"]["prompt_response"];
            assert_eq!(
                (&answer["prompt_id"], &answer["option_id"]),
                (&json!(prompt), &json!("once"))
            );
            assert_eq!(pressed["event"]["source"]["user_id"], "u1");
            scene
                .send(&json!({ "type": "inbound_ack", "bufferId": pressed["bufferId"] }))
                .await;
        } else {
            let pressed = scene.next("passthrough_forward").await;
            let forward = hermes_relay::wire::PassthroughForward::from_value(&pressed["forward"]).unwrap();
            let event = hermes_relay::adapter::interaction_event(&forward).unwrap();
            assert_eq!(event.prompt_response.unwrap()["prompt_id"], prompt);
            scene
                .send(&json!({ "type": "inbound_ack", "bufferId": pressed["bufferId"] }))
                .await;
        }
        scene.see("who chose", ".note", "Ada chose “Once”").await;
        scene
            .page
            .until(
                "no second press",
                "!document.querySelector('.choice:not(:disabled)')",
            )
            .await;
    }
}

#[tokio::test]
async fn drafts_are_previews_on_telegram_and_become_the_message_on_slack() {
    let Some(mut scene) = Scene::on("telegram").await else {
        return;
    };
    let chat = scene.wait_for_text("hello").await["source"]["chat_id"].clone();
    for text in ["one", "one two"] {
        scene
            .op(json!({ "op": "draft", "chat_id": chat, "draft_id": 1, "content": text, "final": false }))
            .await;
        scene.see("the preview", ".message.draft .text", text).await;
    }
    scene
        .op(json!({ "op": "send", "chat_id": chat, "content": "one two *three*" }))
        .await;
    scene.gone("the preview is gone", ".message.draft").await;
    scene
        .see("the message", ".message.bot .text strong", "three")
        .await;
    drop(scene);

    let Some(mut scene) = Scene::on("slack").await else {
        return;
    };
    let chat = scene.wait_for_text("hello").await["source"]["chat_id"].clone();
    scene
        .op(json!({ "op": "typing", "chat_id": chat, "content": "is reading the manual" }))
        .await;
    scene
        .see("a status", "#typing.on", "helper is reading the manual")
        .await;
    scene.op(json!({ "op": "task_card", "chat_id": chat, "card_id": "k", "chunks": [{ "title": "Searching" }] })).await;
    scene.see("a card", ".card", "Searching").await;
    scene
        .op(json!({ "op": "task_card_stop", "chat_id": chat, "card_id": "k" }))
        .await;
    scene.gone("the card is gone", ".card").await;
    scene
        .op(json!({ "op": "draft", "chat_id": chat, "draft_id": 7, "content": "sea", "final": false }))
        .await;
    scene.see("the stream", ".message.draft .text", "sea").await;
    scene
        .op(json!({ "op": "draft", "chat_id": chat, "draft_id": 7, "content": "sealed", "final": true }))
        .await;
    scene.gone("the stream has ended", ".message.draft").await;
    scene
        .see("its message", ".message.bot:not(.passing) .text", "sealed")
        .await;
    let late = scene
        .op(json!({ "op": "draft", "chat_id": chat, "draft_id": 7, "content": "late", "final": false }))
        .await;
    assert_eq!(late["success"], false, "sealed is sealed");
}

#[tokio::test]
async fn what_is_exported_holds_no_secret() {
    let Some(mut scene) = Scene::on("discord").await else {
        return;
    };
    let secret = scene.connector.credentials().unwrap().secret;
    let secret = secret.expose_secret();
    scene.wait_for_text(&format!("my secret is {secret}")).await;
    let exported = scene
        .page
        .js("return fetch('export').then((r) => Promise.all([r.text(), r.headers.get('content-disposition')]));")
        .await;
    let text = exported[0].as_str().unwrap();
    assert!(text.contains("my secret is [redacted]"), "{text}");
    assert!(!text.contains(secret));
    assert!(exported[1].as_str().unwrap().starts_with("attachment"));
}
