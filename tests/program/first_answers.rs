//! Three of the four ways to a first answer, as `docs/quick-start.md` has them, typed in a terminal. The fourth, with a coding
//! agent from its registry, is in `tests/agents/real_opencode`.

use crate::newcomer::{MODEL_ANSWER, model_server, new_home};
use crate::support::dev::{ApiPerson, BotApi, BotApiSettings, Connector, ConnectorSettings, text_event};
use crate::support::http_stub::Stub;
use crate::support::quick_start::Way;
use crate::support::relay_process::SOON;
use secrecy::ExposeSecret as _;

#[tokio::test]
async fn an_own_model_answers_after_two_commands() {
    let (model, setup) = (model_server(&[]).await, new_home());
    let mut way = Way::read(
        "Your own model",
        &[("http://127.0.0.1:11434/v1", &model.url("/v1"))],
    );
    let lines = way.prepare(way.first(&setup), SOON).await;
    assert!(lines.iter().any(|line| line.contains(MODEL_ANSWER)), "{lines:#?}");
    way.chat(way.second(&setup), SOON, MODEL_ANSWER).await;
}

#[tokio::test]
async fn an_own_bot_answers_after_two_commands() {
    const ADA: i64 = 123_456_789;
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    // The fake has another address than Telegram; the settings that `init` makes keep it.
    let setup = new_home();
    let token = api.token().expose_secret().to_owned();
    let mut way = Way::read("Your own bot", &[("123456789:YOUR-TOKEN", &token)]);
    let mut init = way.first(&setup);
    init.args(["--api-base", &api.base()]);
    way.prepare(init, SOON).await;
    way.serve(way.second(&setup), async {
        api.say(ADA, ADA, "hello");
        let answered = api.wait_for_answer(ADA, "an answer", SOON, |message| message.text == "echo: hello");
        answered.await.unwrap_or_else(|error| panic!("{error}"));
    })
    .await;
}

#[tokio::test]
async fn a_connector_is_answered_after_two_commands() {
    let settings = ConnectorSettings {
        enrol_tokens: vec!["one-time".to_owned()],
        platforms: vec!["discord".to_owned()],
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let identity = Stub::always(200, r#"{"access_token":"who-i-am"}"#).await;
    let setup = new_home().env("GATEWAY_RELAY_IDP_TOKEN_URL", &identity.base());
    let mut way = Way::read(
        "A connector",
        &[
            ("https://connector.example", &connector.http_base()),
            ("YOUR-TOKEN", "one-time"),
        ],
    );
    way.prepare(way.first(&setup), SOON).await;
    way.serve(way.second(&setup), async {
        connector
            .deliver(&text_event("discord", "c1", "m1", "hello"))
            .unwrap();
        connector.reply_to(SOON, "m1").await.unwrap();
        assert_eq!(connector.messages_in("c1")[0].text, "echo: hello");
    })
    .await;
}
