//! A kill between Telegram's answer and the journal's commit: the op is not sent again.

use std::sync::Arc;
use std::time::Duration;

use crate::support::dev::{ApiPerson, BotApi, BotApiAnswer, BotApiRule, BotApiSettings};
use hermes_relay::adapter::ChatSettings;
use hermes_relay::config::TelegramConfig;
use hermes_relay::link::{Op, SendResult};
use hermes_relay::net::media::BotFiles;
use hermes_relay::net::telegram::BotClient;
use hermes_relay::relay::{RelayTransport, TelegramTransport, inbound_channel};
use hermes_relay::wire::{Action, ActionText, Metadata, OpId, Outcome};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::http_stub::egress;
use crate::support::wait::SOON;

const ADA: i64 = 100;

fn transport(api: &BotApi, state: &std::path::Path) -> TelegramTransport {
    let mut settings = TelegramConfig::new(Some(api.token()));
    settings.api_base = api.base();
    let client = Arc::new(BotClient::new(&settings.api_base, api.token(), egress()).unwrap());
    let files = Arc::new(BotFiles::new(
        Some(Arc::clone(&client)),
        vec!["telegram"],
        &state.join("media"),
    ));
    TelegramTransport::new(settings, client, files, state, &ChatSettings::default())
}

async fn send(transport: &TelegramTransport, id: OpId, text: &str) -> SendResult {
    let action = Action::Send {
        chat_id: ADA.to_string().into(),
        content: text.to_owned(),
        reply_to: None,
        metadata: Metadata::new(),
    };
    let op = Op {
        id,
        action: ActionText::from(&action),
        platform: None,
        bot_id: None,
        timeout: None,
    };
    let (results, mut result) = mpsc::channel(1);
    transport.submit(op, results);
    timeout(SOON, result.recv()).await.unwrap().unwrap().1
}

fn message_of(result: &SendResult) -> Option<String> {
    let SendResult::Answered(outcome) = result else {
        return None;
    };
    match &**outcome {
        Outcome::Applied(result) => result.message_id.as_ref().map(|id| id.as_str().to_owned()),
        Outcome::Refused { .. } | Outcome::Unknown => None,
    }
}

#[tokio::test]
async fn an_op_that_telegram_applied_before_a_kill_is_not_sent_again() {
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    let state = tempfile::tempdir().unwrap();
    let first = transport(&api, state.path());
    first.connect(inbound_channel().0);
    api.wait_polled(SOON).await.unwrap();
    api.say(ADA, ADA, "hello");
    let sent = message_of(&send(&first, OpId(1), "an answer").await);
    assert!(sent.is_some());
    api.script(BotApiRule::on("sendMessage", BotApiAnswer::BadGateway).once());
    assert_eq!(send(&first, OpId(2), "another").await, SendResult::Lost);
    drop(first);

    // The next run knows the one and sends the other: its outcome was never known.
    let second = transport(&api, state.path());
    second.connect(inbound_channel().0);
    assert_eq!(message_of(&send(&second, OpId(1), "an answer").await), sent);
    assert!(message_of(&send(&second, OpId(2), "another").await).is_some());
    let answers: Vec<String> = api.answers(ADA).into_iter().map(|answer| answer.text).collect();
    assert_eq!(answers, ["an answer", "another"]);
    second.disconnect(Duration::from_secs(1)).await;
}
