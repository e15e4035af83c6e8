//! `dev --platform discord --bot-api`: the relay is the bot of a fake Discord, and people write on its page.

use reqwest::Client;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::http_stub::plain_http;
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::wait::eventually;

const DEV: [&str; 4] = ["dev", "--platform", "discord", "--bot-api"];

fn setup(more: &[&str]) -> Setup {
    Setup::new().args(&[&DEV[..], more].concat())
}

/// What is printed after these words.
async fn printed(dev: &RelayProcess, start: &str) -> String {
    eventually(&format!("a line with {start}"), async || {
        let text = dev.stdout() + &dev.stderr();
        let mut lines = text.lines().map(str::trim);
        let line = lines.find_map(|line| line.strip_prefix(start));
        line.map(str::to_owned)
    })
    .await
}

/// A page that somebody has opened.
struct Page {
    http: Client,
    url: String,
}

impl Page {
    async fn open(dev: &RelayProcess) -> Self {
        let url = format!("http://{}", printed(dev, "http://").await);
        Self {
            http: plain_http(),
            url,
        }
    }

    async fn acts(&self, action: &str, body: &Value) -> u16 {
        let origin = self.url.split("/dev/").next().unwrap();
        let request = self.http.post(format!("{}{action}", self.url));
        let request = request.header("origin", origin).json(body);
        request.send().await.unwrap().status().as_u16()
    }

    /// The rooms, as a page that is opened now shows them.
    async fn shown(&self) -> String {
        let mut events = self.http.get(format!("{}events", self.url)).send().await.unwrap();
        let mut text = String::new();
        let wait = std::time::Duration::from_millis(500);
        while let Ok(Ok(Some(part))) = timeout(wait, events.chunk()).await {
            text += &String::from_utf8_lossy(&part);
        }
        text
    }

    async fn shows(&self, wanted: &str) -> String {
        eventually(&format!("{wanted} on the page"), async || {
            let shown = self.shown().await;
            shown.contains(wanted).then_some(shown)
        })
        .await
    }
}

#[tokio::test]
async fn one_round_trip_for_scripts() {
    let smoke = setup(&["--agent", "echo", "--smoke", "--json"]);
    let args = [&DEV[..], &["--agent", "echo", "--smoke", "--json"]].concat();
    let ended = timeout(SOON, smoke.verb(&args).output()).await;
    let ended = ended.expect("an end in time").unwrap();
    let (text, log) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    let trip: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{log}"));
    assert_eq!(
        (&trip["ok"], &trip["reply"]),
        (&json!(true), &json!("echo: hello"))
    );
}

#[tokio::test]
async fn people_write_press_and_use_commands_on_the_page() {
    let dev = setup(&["--agent", "echo"]).start();
    let token = printed(&dev, "DISCORD_BOT_TOKEN=").await;
    let page = Page::open(&dev).await;
    let say = |chat: &str, text: &str| json!({ "chat": chat, "who": "2", "text": text });
    assert_eq!(page.acts("say", &say("72", "from the page")).await, 200);
    page.shows("echo: from the page").await;
    // In a channel, what mentions the bot is for it.
    assert_eq!(page.acts("say", &say("88", "noise")).await, 200);
    assert_eq!(page.acts("say", &say("88", "<@1> loud")).await, 200);
    let shown = page.shows("echo: loud").await;
    assert!(!shown.contains("echo: noise"), "{shown}");
    // A command takes its placeholder's place.
    page.shows("whoami").await;
    assert_eq!(page.acts("say", &say("72", "/whoami")).await, 200);
    page.shows("Your role is").await;
    let shown = page.shown().await;
    assert!(!shown.contains("thinking..."), "{shown}");
    // A button.
    assert_eq!(page.acts("say", &say("72", "ask may I")).await, 200);
    let shown = page.shows("\"prompt\":{").await;
    let question = shown.split("\"prompt\":{").next().unwrap();
    let id = question.rsplit("\"id\":\"").next().unwrap();
    let id = id.split('"').next().unwrap().to_owned();
    let press = |option: &str| json!({ "chat": "72", "who": "2", "message": id, "option": option });
    assert_eq!(page.acts("press", &press("9.9")).await, 400);
    assert_eq!(page.acts("press", &press("0.0")).await, 200);
    let shown = page.shows("echo: allowed once may I").await;
    for wrong in [
        say("1", "nowhere"),
        json!({ "chat": "72", "who": "99", "text": "nobody" }),
    ] {
        assert_eq!(page.acts("say", &wrong).await, 400);
    }
    assert!(!shown.contains(&token), "the page never shows the token");
    dev.terminate();
}

#[tokio::test]
async fn only_two_platforms_can_be_simulated_so() {
    let slack = Setup::new().args(&["dev", "--platform", "slack", "--bot-api"]);
    let (code, text) = slack.ends().await;
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("--platform discord"), "{text}");
    // For a bot of another program.
    let dev = setup(&["--connector-only"]).start();
    let token = printed(&dev, "DISCORD_BOT_TOKEN=").await;
    let base = printed(&dev, "DISCORD_API_BASE=").await;
    let gateway = printed(&dev, "DISCORD_GATEWAY_URL=").await;
    let ask = async |token: &str| {
        let request = plain_http().get(format!("{base}/gateway/bot"));
        let request = request.header("authorization", format!("Bot {token}"));
        request.send().await.unwrap()
    };
    assert_eq!(ask("guess").await.status(), 401);
    let named: Value = ask(&token).await.json().await.unwrap();
    assert_eq!(named["url"], gateway);
}
