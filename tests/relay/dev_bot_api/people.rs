//! What people do, and what the bot is told of it.

use crate::support::dev::{ApiChatKind, ApiPerson, BotApiSettings, PersonFile, PersonMessage};
use serde_json::json;

use super::{ADA, GROUP, Stage};
use crate::support::dev::MessageParts as _;

#[tokio::test]
async fn people_write_answer_and_send_files() {
    let stage = Stage::new().await;
    let first = stage.api.say(ADA, ADA, "hello @relay_dev_bot");
    let photo = PersonFile::new("photo", "a.jpg", *b"\xff\xd8");
    stage
        .api
        .send(ADA, ADA, PersonMessage::file(photo, "look").answering(first));
    let large = PersonFile {
        stated_size: Some(48 * 1024 * 1024),
        ..PersonFile::new("document", "report.pdf", *b"")
    };
    stage.api.send(ADA, ADA, PersonMessage::file(large, ""));
    let items =
        ["1.txt", "2.txt"].map(|name| PersonMessage::file(PersonFile::new("document", name, *b"x"), ""));
    stage.api.send_album(ADA, ADA, items.to_vec());
    let place = json!({ "latitude": 1.5, "longitude": 2.5 });
    stage
        .api
        .send(ADA, ADA, PersonMessage::default().with("location", place.clone()));
    let updates = stage.api.pending_updates();
    let message = |index: usize| &updates[index]["message"];
    assert_eq!(
        message(0)["entities"][0],
        json!({ "type": "mention", "offset": 6, "length": 14 })
    );
    assert_eq!(
        (
            &message(1)["caption"],
            &message(1)["reply_to_message"]["message_id"]
        ),
        (&json!("look"), &json!(first))
    );
    let large = &message(2)["document"];
    assert_eq!(
        (&large["file_name"], &large["file_size"]),
        (&json!("report.pdf"), &json!(48 * 1024 * 1024))
    );
    let refused = stage
        .refused("getFile", json!({ "file_id": large["file_id"] }))
        .await;
    assert!(refused.1.contains("file is too big"));
    assert_eq!(message(3)["media_group_id"], message(4)["media_group_id"]);
    assert_eq!(message(5)["location"], place);
    assert_eq!(stage.api.say(12_345, ADA, "nowhere"), 0);
    let poison = stage.api.push_update(json!({ "message": 7 }));
    assert_eq!(stage.api.pending_updates().last().unwrap()["update_id"], poison);
}

#[tokio::test]
async fn a_press_is_answered_once_and_in_time() {
    let stage = Stage::set(BotApiSettings {
        press_deadline: std::time::Duration::from_secs(60),
        ..BotApiSettings::default()
    })
    .await;
    let keyboard = json!({ "inline_keyboard": [[{ "text": "Allow", "callback_data": "hp1:a" }]] });
    let sent = stage
        .ok(
            "sendMessage",
            json!({ "chat_id": ADA, "text": "?", "reply_markup": keyboard }),
        )
        .await;
    let id = sent["message_id"].as_i64().unwrap();
    assert!(stage.api.press(ADA, id, ADA, "Deny").is_none());
    let query = stage.api.press(ADA, id, ADA, "Allow").unwrap();
    let update = stage.api.pending_updates().pop().unwrap();
    assert_eq!(update["callback_query"]["data"], "hp1:a");
    assert_eq!(update["callback_query"]["message"]["message_id"], id);
    for text in ["first", "second"] {
        stage
            .ok(
                "answerCallbackQuery",
                json!({ "callback_query_id": query, "text": text }),
            )
            .await;
    }
    assert_eq!(stage.api.presses()[0].answer.as_deref(), Some("first"));
    let unknown = stage
        .refused("answerCallbackQuery", json!({ "callback_query_id": "1" }))
        .await;
    assert!(unknown.1.contains("query is too old"));
    stage.api.press_forged(ADA, id, 999, "altered");
    assert_eq!(
        stage.api.pending_updates().pop().unwrap()["callback_query"]["from"]["id"],
        999
    );
}

#[tokio::test]
async fn stop_on_a_draft_names_it() {
    let stage = Stage::new().await;
    assert!(stage.api.press_stop(ADA).is_none());
    stage
        .ok(
            "sendMessageDraft",
            json!({ "chat_id": ADA, "draft_id": 42, "text": "x", "can_stop": true }),
        )
        .await;
    assert_eq!(stage.api.press_stop(ADA), Some(42));
    let update = stage.api.pending_updates().pop().unwrap();
    let stopped = &update["stopped_message_generation"];
    assert_eq!(
        (&stopped["draft_id"], &stopped["chat"]["id"]),
        (&json!("42"), &json!(ADA))
    );
    assert!(stage.api.press_stop(ADA).is_none());
}

#[tokio::test]
async fn privacy_mode_hides_what_is_not_for_the_bot() {
    let stage = Stage::set(BotApiSettings {
        reads_all_group_messages: false,
        ..BotApiSettings::default()
    })
    .await;
    let sent = stage
        .ok("sendMessage", json!({ "chat_id": GROUP, "text": "hi" }))
        .await;
    stage.api.say(GROUP, ADA, "among us");
    stage.api.say(GROUP, ADA, "/help");
    stage.api.say(GROUP, ADA, "/help@other_bot");
    stage.api.say(GROUP, ADA, "ask @Relay_Dev_Bot");
    stage.api.send(
        GROUP,
        ADA,
        PersonMessage::text("to you").answering(sent["message_id"].as_i64().unwrap()),
    );
    let texts: Vec<_> = stage
        .api
        .pending_updates()
        .iter()
        .map(|update| update["message"]["text"].clone())
        .collect();
    assert_eq!(texts, ["/help", "ask @Relay_Dev_Bot", "to you"]);
}

#[tokio::test]
async fn channels_and_groups_write_under_their_own_name() {
    let stage = Stage::new().await;
    stage.api.add_person(ApiPerson::named(101, "Grace"));
    stage.api.add_chat(-1_000_500, ApiChatKind::Channel, "News");
    stage.api.say(-1_000_500, ADA, "post");
    let anonymous = PersonMessage {
        is_anonymous: true,
        ..PersonMessage::text("as the group")
    };
    stage.api.send(GROUP, ADA, anonymous);
    let updates = stage.api.pending_updates();
    let post = &updates[0]["channel_post"];
    assert!(post.get("from").is_none() && post["sender_chat"]["id"] == -1_000_500);
    let message = &updates[1]["message"];
    assert_eq!(
        (&message["from"]["id"], &message["sender_chat"]["id"]),
        (&json!(1_087_968_824), &json!(GROUP))
    );
    // Private chats and basic groups share their message ids, channels have their own.
    assert_eq!(
        (&post["message_id"], &message["message_id"]),
        (&json!(1), &json!(1))
    );
}
