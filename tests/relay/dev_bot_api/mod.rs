//! The fake Bot API, called as any bot calls the real one.

mod faults;
mod limits;
mod messages;
mod people;
mod polling;

use crate::support::dev::{ApiChatKind, ApiPerson, BotApi, BotApiSettings, BotStanding};
use reqwest::Client;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::support::http_stub::plain_http;
use crate::support::wait::SOON;

const ADA: i64 = 100;
const GROUP: i64 = -200;
const FORUM: i64 = -1_000_300;

/// A fake with a person, a group and a forum, and a client that calls it.
struct Stage {
    api: BotApi,
    http: Client,
    url: String,
}

impl Stage {
    async fn set(settings: BotApiSettings) -> Self {
        let api = BotApi::start(settings).await.unwrap();
        api.add_person(ApiPerson::named(ADA, "Ada"));
        api.add_chat(GROUP, ApiChatKind::Group, "Team");
        api.add_chat(FORUM, ApiChatKind::Forum, "Project");
        api.set_standing(FORUM, ADA, BotStanding::Administrator);
        api.forget_updates();
        let url = format!("{}/bot{}", api.base(), api.token().expose_secret());
        Self {
            api,
            http: plain_http(),
            url,
        }
    }

    async fn new() -> Self {
        Self::set(BotApiSettings::default()).await
    }

    /// Calls with JSON; the status and the whole body.
    async fn call(&self, method: &str, body: Value) -> (u16, Value) {
        let request = self.http.post(format!("{}/{method}", self.url)).json(&body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// The result of a call that succeeds.
    async fn ok(&self, method: &str, body: Value) -> Value {
        let (status, mut answer) = self.call(method, body).await;
        assert_eq!((status, &answer["ok"]), (200, &json!(true)), "{method}: {answer}");
        answer["result"].take()
    }

    /// The code and the description of a call that is refused.
    async fn refused(&self, method: &str, body: Value) -> (u16, String) {
        let (status, answer) = self.call(method, body).await;
        assert_eq!(answer["ok"], false, "{method}: {answer}");
        assert_eq!(answer["error_code"], status);
        (status, answer["description"].as_str().unwrap().to_owned())
    }
}
