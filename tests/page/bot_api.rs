//! The page of the fake Bot API: people write on it, and it shows what the bot does.

use reqwest::{Client, Method};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::accessibility::text_is_readable;
use crate::browser::{Browser, ENTER, SOON, plain_http};
use crate::support::dev::{ApiPerson, BotApi, BotApiSettings};

const ADA: i64 = 100;

async fn call(http: &Client, api: &BotApi, method: &str, body: &Value) -> Value {
    let url = format!("{}/bot{}/{method}", api.base(), api.token().expose_secret());
    let answer: Value = http
        .post(url)
        .json(body)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(answer["ok"], true, "{answer}");
    answer["result"].clone()
}

#[tokio::test]
async fn a_person_writes_presses_and_stops_and_every_call_is_shown() {
    let Some(page) = Browser::start().await else {
        return;
    };
    let http = plain_http();
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    page.open(&api.open_page()).await;
    page.until("the chat", "document.querySelector('.chat[aria-current]')")
        .await;
    page.keys("#input", "hello <b>you</b>").await;
    page.press(ENTER).await;
    let told = api.until("an update", SOON, |api| api.pending_updates().pop());
    assert_eq!(told.await.unwrap()["message"]["text"], "hello <b>you</b>");

    let keyboard =
        json!({ "inline_keyboard": [[{ "text": "Allow", "callback_data": "yes", "style": "primary" }]] });
    let text = "<b>bold</b> &lt;i&gt; <pre><code class=\"language-rust\">fn main() {}</code></pre>";
    let body = json!({ "chat_id": ADA, "text": text, "parse_mode": "HTML", "reply_markup": keyboard });
    let sent = call(&http, &api, "sendMessage", &body).await;
    let shown = page
        .until(
            "the answer",
            "document.querySelector('.message.bot .text b')?.innerText",
        )
        .await;
    assert_eq!(shown, "bold");
    let whole = page
        .js("return document.querySelector('.message.bot .text').textContent;")
        .await;
    assert_eq!(whole, "bold <i> fn main() {}");
    page.click(".message.bot .choice").await;
    let press =
        |api: &BotApi| Some(api.pending_updates().pop()?["callback_query"].take()).filter(Value::is_object);
    let pressed = api.until("a press", SOON, press).await.unwrap();
    assert_eq!(
        (&pressed["data"], &pressed["message"]["message_id"]),
        (&json!("yes"), &sent["message_id"])
    );

    call(
        &http,
        &api,
        "sendMessageDraft",
        &json!({ "chat_id": ADA, "draft_id": 5, "text": "growing", "can_stop": true }),
    )
    .await;
    page.until("the draft", "document.querySelector('.draft .stop')")
        .await;
    page.click(".draft .stop").await;
    let stopped = |api: &BotApi| {
        api.pending_updates()
            .pop()
            .filter(|update| update.get("stopped_message_generation").is_some())
    };
    api.until("a stop", SOON, stopped).await.unwrap();

    page.until(
        "both calls",
        "document.querySelectorAll('#calls .row:not([hidden])').length === 2",
    )
    .await;
    page.click("#calls .row").await;
    let detail = page
        .until(
            "the call",
            "document.querySelector('#detail:not([hidden]) pre')?.textContent",
        )
        .await;
    assert!(
        detail.as_str().unwrap().contains("\"parse_mode\": \"HTML\""),
        "{detail}"
    );
    assert!(!detail.as_str().unwrap().contains(api.token().expose_secret()));
    for theme in ["light", "dark"] {
        page.prefer(theme).await;
        text_is_readable(&page, &format!("bot api, {theme}")).await;
        page.picture(&format!("bot-api-{theme}")).await;
    }
}

#[tokio::test]
async fn only_the_holder_of_the_token_may_use_it() {
    let http = plain_http();
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    let url = api.open_page();
    assert_eq!(api.open_page(), url);
    let ask = async |method: Method, url: String, origin: Option<&str>| {
        let mut request = http
            .request(method, url)
            .body(json!({ "chat": ADA, "from": ADA, "text": "hi" }).to_string());
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        request.send().await.unwrap()
    };
    let page = ask(Method::GET, url.clone(), None).await;
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
    let guess = format!("{}/dev/{}/", api.base(), "0".repeat(32));
    assert_eq!(ask(Method::GET, guess, None).await.status(), 404);
    let say = format!("{url}say");
    assert_eq!(ask(Method::POST, say.clone(), None).await.status(), 403);
    assert_eq!(
        ask(Method::POST, say.clone(), Some("http://evil.example"))
            .await
            .status(),
        403
    );
    assert_eq!(api.pending_count(), 0);
    let base = api.base();
    assert_eq!(ask(Method::POST, say, Some(&base)).await.status(), 200);
    assert_eq!(api.pending_count(), 1);
    assert_eq!(
        ask(Method::POST, format!("{url}nonsense"), Some(&base))
            .await
            .status(),
        404
    );
    let command = async |name: &str, body: Value| {
        let request = http.post(format!("{url}{name}")).header("origin", &base);
        request
            .body(body.to_string())
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    let standing = |standing: &str| json!({ "chat": ADA, "from": ADA, "standing": standing });
    assert_eq!(command("standing", standing("sleepy")).await, 400);
    assert_eq!(command("standing", standing("kicked")).await, 200);
    let told = &api.pending_updates()[1]["my_chat_member"];
    assert_eq!(told["new_chat_member"]["status"], "kicked");
    assert_eq!(
        command("chat", json!({ "kind": "attic", "name": "x" })).await,
        400
    );
    assert_eq!(
        command("chat", json!({ "kind": "supergroup", "name": "Club" })).await,
        200
    );
    let slashless = ask(Method::GET, url.trim_end_matches('/').to_owned(), None).await;
    assert_eq!(
        (slashless.status().as_u16(), slashless.url().as_str()),
        (200, url.as_str())
    );
}
