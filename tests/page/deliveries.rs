//! What is handed to an agent: a form on the page, and a row beside the frames for everything that the relay took.

use std::sync::Arc;

use hermes_relay::EchoAgent;
use hermes_relay::adapter::SessionNames;
use hermes_relay::dev::{Connector, ConnectorSettings, Hint, PageSettings, text_event};
use hermes_relay::relay::{MemoryTransport, Relay};
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::browser::plain_http;
use crate::server::Stage;

#[tokio::test]
async fn the_form_hands_something_to_the_relay_in_this_process() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let page = connector.open_page(PageSettings {
        platform: "discord".to_owned(),
        agent: "echo".to_owned(),
        hints: Hint::for_agent("echo"),
        sessions: SessionNames::default(),
        relay: None,
    });
    let http = plain_http();
    let agents = async || {
        let answer = http.get(format!("{page}agents")).send().await.unwrap();
        answer.json::<Value>().await.unwrap()
    };
    let hand = async |body: Value| {
        let request = http
            .post(format!("{page}hand"))
            .header("origin", connector.http_base())
            .header("content-type", "application/json")
            .body(body.to_string());
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let form = json!({"agent": "echo", "kind": "augment", "text": "the disk is full"});
    assert_eq!(agents().await, Value::Null, "no relay, no form");
    assert_eq!(hand(form.clone()).await.0, 409);

    let dir = tempfile::tempdir().unwrap();
    let (transport, _) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
    let relay = Relay::builder(hermes_relay::Settings::embedded(dir.path()))
        .agent("echo", EchoAgent)
        .transport(Arc::new(transport))
        .build()
        .unwrap();
    let handle = relay.handle();
    let (_keep, watched) = watch::channel(Some(handle.clone()));
    connector.show_agents_of(watched);
    let running = tokio::spawn(relay.run(std::future::pending()));
    assert_eq!(agents().await, json!(["echo"]));

    let (status, receipt) = hand(form).await;
    assert!(status == 200 && receipt["delivery_id"].is_string(), "{receipt}");
    let (status, receipt) = hand(json!({"agent": "echo", "kind": "wake", "text": "get up"})).await;
    assert_eq!((status, &receipt["woken"]), (200, &json!(true)));
    // A chat is named by its session, which it has once somebody wrote in it.
    let in_chat = json!({"agent": "echo", "kind": "template", "text": "rotate", "chat": "c1"});
    let (status, refused) = hand(in_chat.clone()).await;
    assert!(
        status == 400 && refused["error"].as_str().unwrap().contains("no session yet"),
        "{refused}"
    );
    connector
        .deliver(&text_event("discord", "c1", "m1", "hello"))
        .unwrap();
    let (status, receipt) = hand(in_chat).await;
    assert_eq!(
        (status, &receipt["session_id"]),
        (200, &json!("agent:main:discord:dm:c1"))
    );
    for (wrong, expected) in [
        (json!({"agent": "nobody", "kind": "augment", "text": "x"}), 409),
        (json!({"agent": "echo", "kind": "augment", "text": " "}), 400),
        (json!({"agent": "echo", "kind": "reminder", "text": "x"}), 400),
        (json!({}), 400),
    ] {
        assert_eq!(hand(wrong.clone()).await.0, expected, "{wrong}");
    }
    let taken = handle.handed_after(0).await.unwrap();
    let routes: Vec<Value> = taken
        .iter()
        .map(|taken| json!([taken.route, taken.text]))
        .collect();
    assert_eq!(
        routes,
        [
            json!(["deliver", "the disk is full"]),
            json!(["wake", "get up"]),
            json!(["deliver", "rotate"])
        ]
    );
    running.abort();
}

#[tokio::test]
async fn deliveries_and_wakes_are_beside_the_frames() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    stage.say("hello").await;
    stage.wait_for_reply("echo: hello").await;
    let page = &stage.browser;
    page.until("the form", "!document.querySelector('#hand').hidden")
        .await;
    page.click("#hand summary").await;
    page.keys("#hand-text", "the disk is full").await;
    page.click("#hand-form button").await;
    page.until(
        "a receipt",
        "document.querySelector('#hand-result').innerText.includes('delivered as')",
    )
    .await;
    let row = |part: &str| {
        format!(
            "[...document.querySelectorAll('.row.handed')].find((n) => n.innerText.includes({part:?}))?.innerText"
        )
    };
    let shown = page.until("its row", &row("the disk is full")).await;
    assert!(shown.as_str().unwrap().contains("augment"), "{shown}");
    page.js("document.querySelector('#hand-kind').value = 'wake';")
        .await;
    page.keys("#hand-text", "get up").await;
    page.click("#hand-form button").await;
    let reply = stage.wait_for_reply("get up").await;
    assert!(
        reply.contains("the disk is full"),
        "the context came first: {reply}"
    );
    let shown = page.until("its row", &row("get up")).await;
    assert!(shown.as_str().unwrap().contains("wake"), "{shown}");
    page.js("[...document.querySelectorAll('.row.handed')].at(-1).click();")
        .await;
    page.until(
        "it in full",
        "document.querySelector('#detail-text').innerText.includes('dispatch_id')",
    )
    .await;
    page.picture("deliveries").await;
}
