//! The real binary against the embedded connector: a button and a word, from end to end.

use crate::support::dev::{Connector, ConnectorSettings, PlatformPreset, text_event};
use crate::support::relay_process::{SOON, Setup};
use hermes_relay::wire::Action;

#[tokio::test]
async fn a_pressed_button_and_typed_text_answer_the_question() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    connector.set_descriptor("discord", PlatformPreset::Discord.wire("discord"));
    let relay = Setup::for_connector(&connector).start();
    connector.wait_connected(SOON).await.unwrap();
    for (chat, button) in [("c1", true), ("c2", false)] {
        let event = text_event("discord", chat, &format!("ask-{chat}"), "ask hi");
        connector.deliver(&event).unwrap();
        let question = connector
            .wait_for_sent("a question", SOON, |sent| {
                sent.op == "prompt" && sent.chat_id == chat
            })
            .await
            .unwrap();
        let Action::Prompt { prompt_id, .. } = &question.action else {
            panic!("{question:?}");
        };
        if button {
            connector.press(prompt_id, "o0").expect("a button").unwrap();
        } else {
            let mut typed = text_event("discord", chat, "typed", "/approve");
            typed["reply_to_message_id"] = question.message_id.clone().into();
            connector.deliver(&typed).unwrap();
        }
        connector
            .wait_for_sent("the answer", SOON, |sent| {
                sent.chat_id == chat && sent.text == "echo: allowed once hi"
            })
            .await
            .unwrap();
        connector
            .wait_for_sent("what was decided", SOON, |sent| {
                sent.message_id == question.message_id && sent.text.contains("✅")
            })
            .await
            .unwrap();
    }
    relay.stop().await;
}
