//! The page of the fake Bot API: people write on it, and it shows what the bot does.

use reqwest::{Client, Method};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::accessibility::text_is_readable;
use crate::browser::{Browser, ENTER, SOON, plain_http};
use crate::support::dev::{ApiChatKind, ApiPerson, BotApi, BotApiSettings};

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
        "document.querySelectorAll('#frames .row:not([hidden])').length === 2",
    )
    .await;
    page.click("#frames .row").await;
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
async fn topics_people_files_replies_and_reactions_are_those_of_telegram() {
    let Some(page) = Browser::start().await else {
        return;
    };
    let http = plain_http();
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    api.add_chat(-5, ApiChatKind::Forum, "Project");
    let topic = api.open_topic(-5, ADA, "Releases");
    api.forget_updates();
    page.open(&api.open_page()).await;
    let update = async |what: &str, is_it: &dyn Fn(&Value) -> bool| {
        let last = |api: &BotApi| api.pending_updates().pop().filter(|update| is_it(update));
        api.until(what, SOON, last).await.unwrap()
    };
    // What only the connector can do is not there.
    page.until(
        "the parts of this server",
        "document.querySelector('#standing').checkVisibility() && !document.querySelector('.tabs, #export, .lane').checkVisibility()",
    )
    .await;
    let chats = "[...document.querySelectorAll('.chat .name')].map((n) => n.firstChild.data).join()";
    page.until(
        "private chats first, topics below their forum",
        &format!("{chats} === 'Ada,Project,Releases'"),
    )
    .await;
    page.click("#chats li:nth-child(3) button").await;
    page.keys("#input", "in the topic").await;
    page.press(ENTER).await;
    let said = update("a message", &|update| update["message"]["text"] == "in the topic").await;
    assert_eq!(said["message"]["message_thread_id"], topic);

    // Somebody new, a file and a reply.
    page.click("#add summary").await;
    page.js("document.querySelector('#add-kind').value = 'person';")
        .await;
    page.keys("#add-name", "Grace Hopper").await;
    page.click("#add-form button").await;
    page.until("her chat", &format!("{chats}.includes('Grace Hopper')"))
        .await;
    page.click("#chats li:first-child button").await;
    let body = json!({ "chat_id": ADA, "text": "Which file?" });
    let asked = call(&http, &api, "sendMessage", &body).await;
    page.until("the question", "document.querySelector('.message.bot .reply')")
        .await;
    page.click(".message.bot .reply").await;
    let picture = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("api-dot.png");
    std::fs::write(&picture, crate::chat::DOT).unwrap();
    page.js("document.querySelector('#file').hidden = false;").await;
    page.keys("#file", picture.to_str().unwrap()).await;
    page.until("the file is listed", "document.querySelector('#attached li')")
        .await;
    page.keys("#input", "this one").await;
    page.press(ENTER).await;
    let sent = update("a photo", &|update| update["message"]["photo"].is_array()).await;
    assert_eq!(sent["message"]["caption"], "this one");
    assert_eq!(
        sent["message"]["reply_to_message"]["message_id"],
        asked["message_id"]
    );
    page.until(
        "the picture, and what it answers",
        "document.querySelector('img.picture')?.naturalWidth === 1 && document.querySelector('.message.person .quoted')?.innerText.includes('Which file?')",
    )
    .await;
    page.click(".message.bot .foot button").await;
    page.until("the reaction", "document.querySelector('.message.bot .reaction')")
        .await;
    page.js("const s = document.querySelector('#standing'); s.value = 'kicked'; s.dispatchEvent(new Event('change'));")
        .await;
    update("a block", &|update| {
        update["my_chat_member"]["new_chat_member"]["status"] == "kicked"
    })
    .await;
    page.picture("bot-api-chat").await;
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
            .body(json!({ "chat": "100", "who": "100", "text": "hi" }).to_string());
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
    let standing = |standing: &str| json!({ "chat": "100", "who": "100", "standing": standing });
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
