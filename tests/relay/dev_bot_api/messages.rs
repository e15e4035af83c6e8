//! Calls and what becomes of them in the chats.

use hermes_relay::dev::ApiText;
use serde_json::{Value, json};

use super::{ADA, FORUM, GROUP, Stage};
use crate::support::dev::{ApiPerson, BotApiSettings, BotStanding, MessageParts as _, to_html};

#[tokio::test]
async fn a_call_needs_the_token_and_a_method_that_exists() {
    let stage = Stage::new().await;
    let base = stage.api.base();
    let status = async |path: &str| {
        let answer = stage.http.get(format!("{base}{path}")).send().await.unwrap();
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error_code"], status, "{path}");
        status
    };
    assert_eq!(status("/bot7000000001:wrong/getMe").await, 401);
    for malformed in [
        "/botnonsense/getMe",
        "/bot:x/getMe",
        "/bot0:x/getMe",
        "/bot1:/getMe",
        "/other",
    ] {
        assert_eq!(status(malformed).await, 404, "{malformed}");
    }
    assert_eq!(
        stage.refused("noSuchMethod", json!({})).await,
        (404, "Not Found: method not found".to_owned())
    );
    let me = stage.ok("GETME", json!({})).await;
    assert_eq!(
        (&me["is_bot"], &me["username"]),
        (&json!(true), &json!("relay_dev_bot"))
    );
    stage.api.set_revoked(true);
    assert_eq!(stage.refused("getMe", json!({})).await.0, 401);
    stage.api.set_revoked(false);
    // Nothing on record shows the token.
    let token = stage.url.rsplit("/bot").next().unwrap();
    assert!(!format!("{:?}", stage.api.calls()).contains(token));
    let elsewhere = stage
        .http
        .get(format!("{}/getMe", stage.url))
        .header("host", "evil.example");
    assert_eq!(elsewhere.send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn parameters_come_in_every_way() {
    let stage = Stage::new().await;
    let url = format!("{}/sendMessage", stage.url);
    let query = format!("{url}?chat_id={ADA}&text=by%20query");
    assert!(stage.http.get(query).send().await.unwrap().status().is_success());
    let form = [("chat_id", ADA.to_string()), ("text", "by form".to_owned())];
    assert!(
        stage
            .http
            .post(&url)
            .form(&form)
            .send()
            .await
            .unwrap()
            .status()
            .is_success()
    );
    stage
        .ok("sendMessage", json!({ "chat_id": ADA, "text": "by JSON" }))
        .await;
    let broken = stage
        .http
        .post(&url)
        .header("content-type", "application/json")
        .body("{broken");
    let body: Value = broken.send().await.unwrap().json().await.unwrap();
    assert_eq!(body["description"], "Bad Request: message text is empty");
    let texts: Vec<_> = stage
        .api
        .answers(ADA)
        .into_iter()
        .map(|message| message.text)
        .collect();
    assert_eq!(texts, ["by query", "by form", "by JSON"]);
    let calls = stage.api.calls_of("sendmessage");
    assert_eq!(calls.len(), 4);
    assert_eq!(
        (calls[1].text("text"), calls[1].chat_id()),
        ("by form", Some(ADA))
    );
    assert!(calls[2].is_ok() && !calls[3].is_ok());
}

#[tokio::test]
async fn texts_are_parsed_measured_and_refused() {
    let stage = Stage::new().await;
    let html = |text: &str| json!({ "chat_id": ADA, "text": text, "parse_mode": "HTML" });
    let sent = stage
        .ok("sendMessage", html("<b>bold</b> &amp; <code>x</code> /go"))
        .await;
    assert_eq!(sent["text"], "bold & x /go");
    let kinds: Vec<_> = sent["entities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entity| entity["type"].clone())
        .collect();
    assert_eq!(kinds, ["bold", "code", "bot_command"]);
    assert_eq!(
        stage.api.answers(ADA)[0].html,
        "<b>bold</b> &amp; <code>x</code> /go"
    );
    let long = "😀".repeat(4096);
    stage.ok("sendMessage", html(&format!("<b>{long}</b>"))).await;
    for (body, says) in [
        (html("<b>x"), "can't parse entities: Can't find end tag"),
        (
            html("<table>"),
            "can't parse entities: Unsupported start tag \"table\" at byte offset 0",
        ),
        (html(&format!("{long}x")), "message is too long"),
        (html("<b> </b>"), "message text is empty"),
        (
            json!({ "chat_id": ADA, "text": "x", "parse_mode": "Word" }),
            "unsupported parse_mode",
        ),
        (json!({ "text": "x" }), "chat_id is empty"),
        (json!({ "chat_id": 5, "text": "x" }), "chat not found"),
        (
            json!({ "chat_id": ADA, "text": "x", "message_thread_id": 7 }),
            "message thread not found",
        ),
        (
            json!({ "chat_id": FORUM, "text": "x", "message_thread_id": 1 }),
            "message thread not found",
        ),
        (
            json!({ "chat_id": ADA, "text": "x", "reply_parameters": { "message_id": 999 } }),
            "message to be replied not found",
        ),
        (
            json!({ "chat_id": ADA, "text": "x", "reply_markup": { "inline_keyboard": [[{ "text": "a", "callback_data": "x".repeat(65) }]] } }),
            "BUTTON_DATA_INVALID",
        ),
    ] {
        let (code, description) = stage.refused("sendMessage", body).await;
        assert_eq!(code, 400);
        assert!(description.contains(says), "{description}");
    }
    let reply = json!({ "message_id": 999, "allow_sending_without_reply": true });
    stage
        .ok(
            "sendMessage",
            json!({ "chat_id": ADA, "text": "x", "reply_parameters": reply }),
        )
        .await;
    let reply = json!({ "message_id": sent["message_id"], "quote": "& x" });
    let answer = stage
        .ok(
            "sendMessage",
            json!({ "chat_id": ADA, "text": "y", "reply_parameters": reply }),
        )
        .await;
    assert_eq!(
        answer["quote"],
        json!({ "text": "& x", "position": 5, "is_manual": true })
    );
    assert_eq!(answer["reply_to_message"]["message_id"], sent["message_id"]);
}

#[tokio::test]
async fn messages_are_edited_and_deleted() {
    let stage = Stage::new().await;
    let theirs = stage.api.say(ADA, ADA, "hello");
    let buttons =
        json!({ "inline_keyboard": [[{ "text": "Yes", "callback_data": "y", "style": "primary" }]] });
    let body = json!({ "chat_id": ADA, "text": "one", "reply_markup": buttons });
    let id = stage.ok("sendMessage", body).await["message_id"]
        .as_i64()
        .unwrap();
    assert_eq!(stage.api.answers(ADA)[0].buttons[0][0].data.as_deref(), Some("y"));
    let edit = |text: &str| json!({ "chat_id": ADA, "message_id": id, "text": text });
    let edited = stage.ok("editMessageText", edit("two")).await;
    assert!(
        edited["edit_date"].is_i64() && edited.get("reply_markup").is_none(),
        "a keyboard is given again or gone"
    );
    for (method, body, says) in [
        ("editMessageText", edit("two"), "message is not modified"),
        ("editMessageText", edit(&"x".repeat(4097)), "MESSAGE_TOO_LONG"),
        (
            "editMessageText",
            json!({ "chat_id": ADA, "message_id": theirs, "text": "x" }),
            "message can't be edited",
        ),
        (
            "editMessageText",
            json!({ "chat_id": ADA, "message_id": 99, "text": "x" }),
            "message to edit not found",
        ),
        (
            "editMessageCaption",
            json!({ "chat_id": ADA, "message_id": id, "caption": "x" }),
            "there is no caption",
        ),
        (
            "deleteMessage",
            json!({ "chat_id": ADA, "message_id": 99 }),
            "message to delete not found",
        ),
    ] {
        let (code, description) = stage.refused(method, body).await;
        assert!(
            code == 400 && description.contains(says),
            "{method}: {description}"
        );
    }
    stage
        .ok(
            "editMessageReplyMarkup",
            json!({ "chat_id": ADA, "message_id": id, "reply_markup": buttons }),
        )
        .await;
    assert_eq!(stage.api.answers(ADA)[0].buttons.len(), 1);
    stage
        .ok(
            "deleteMessages",
            json!({ "chat_id": ADA, "message_ids": [theirs, 98, 99] }),
        )
        .await;
    stage.api.age(std::time::Duration::from_secs(49 * 60 * 60));
    let old = stage
        .refused("deleteMessage", json!({ "chat_id": ADA, "message_id": id }))
        .await;
    assert!(old.1.contains("can't be deleted"));
    assert_eq!(stage.api.messages(ADA).len(), 1);
}

#[tokio::test]
async fn drafts_are_for_private_chats_and_vanish_with_the_message() {
    let stage = Stage::new().await;
    let draft =
        |chat: i64, text: &str| json!({ "chat_id": chat, "draft_id": 7, "text": text, "can_stop": true });
    stage.ok("sendMessageDraft", draft(ADA, "")).await;
    stage.ok("sendMessageDraft", draft(ADA, "grow")).await;
    let shown = stage.api.drafts(ADA);
    assert_eq!(
        (shown.len(), shown[0].text.as_str(), shown[0].can_stop),
        (1, "grow", true)
    );
    let group = stage.refused("sendMessageDraft", draft(GROUP, "x")).await;
    assert_eq!(group, (400, "Bad Request: TEXTDRAFT_PEER_INVALID".to_owned()));
    assert_eq!(
        stage
            .refused("sendMessageDraft", json!({ "chat_id": ADA, "text": "x" }))
            .await
            .0,
        400
    );
    stage
        .ok("sendChatAction", json!({ "chat_id": ADA, "action": "typing" }))
        .await;
    assert_eq!(stage.api.action(ADA).as_deref(), Some("typing"));
    stage
        .ok("sendMessage", json!({ "chat_id": ADA, "text": "grown" }))
        .await;
    assert!(stage.api.drafts(ADA).is_empty() && stage.api.action(ADA).is_none());
    let older = Stage::set(BotApiSettings {
        drafts: false,
        ..BotApiSettings::default()
    })
    .await;
    let refused = older.refused("sendMessageDraft", draft(ADA, "x")).await;
    assert_eq!(refused, (404, "Not Found: method not found".to_owned()));
}

#[tokio::test]
async fn rich_messages_are_markdown_within_limits() {
    let stage = Stage::new().await;
    let rich = |markdown: &str| json!({ "chat_id": ADA, "rich_message": { "markdown": markdown } });
    let sent = stage.ok("sendRichMessage", rich("| a |\n|---|\n| 1 |")).await;
    assert!(sent.get("text").is_none() && sent["rich_message"]["markdown"].is_string());
    assert!(stage.api.answers(ADA)[0].is_rich);
    let id = sent["message_id"].as_i64().unwrap();
    let mut edit = rich("![x](https://a.example/b.png)");
    edit["message_id"] = json!(id);
    let edited = stage.ok("editMessageText", edit.clone()).await;
    assert_eq!(
        edited["rich_message"]["fetched"],
        json!(["https://a.example/b.png"])
    );
    let again = stage.refused("editMessageText", edit).await;
    assert!(again.1.contains("not modified"), "{}", again.1);
    let text = json!({ "chat_id": ADA, "message_id": id, "text": "plain" });
    let edited = stage.ok("editMessageText", text).await;
    assert!(edited.get("rich_message").is_none() && edited["text"] == "plain");
    for (body, why) in [
        (json!({ "chat_id": ADA }), "empty"),
        (rich(" "), "empty"),
        (rich(&"x".repeat(32_769)), "too long"),
        (rich(&"x\n\n".repeat(501)), "too long"),
        (
            rich(&format!("{}|\n{}|", "| x ".repeat(21), "|---".repeat(21))),
            "too long",
        ),
        (
            json!({ "chat_id": ADA, "rich_message": { "markdown": "x", "html": "x" } }),
            "exactly one",
        ),
    ] {
        let refused = stage.refused("sendRichMessage", body).await;
        assert!(refused.0 == 400 && refused.1.contains(why), "{refused:?}");
    }
    let older = Stage::set(BotApiSettings {
        rich_messages: false,
        ..BotApiSettings::default()
    })
    .await;
    let refused = older.refused("sendRichMessage", rich("x")).await;
    assert_eq!(refused, (404, "Not Found: method not found".to_owned()));
    let sent = older
        .ok("sendMessage", json!({ "chat_id": ADA, "text": "x" }))
        .await;
    let edit =
        json!({ "chat_id": ADA, "message_id": sent["message_id"], "rich_message": { "markdown": "y" } });
    assert_eq!(older.refused("editMessageText", edit).await.0, 400);
}

#[tokio::test]
async fn topics_have_their_own_rules() {
    let stage = Stage::new().await;
    let topic = stage
        .ok("createForumTopic", json!({ "chat_id": FORUM, "name": "Deploy" }))
        .await;
    let thread = topic["message_thread_id"].as_i64().unwrap();
    let sent = stage
        .ok(
            "sendMessage",
            json!({ "chat_id": FORUM, "text": "x", "message_thread_id": thread }),
        )
        .await;
    assert_eq!(
        (&sent["message_thread_id"], &sent["is_topic_message"]),
        (&json!(thread), &json!(true))
    );
    let id = stage.api.send(
        FORUM,
        ADA,
        crate::support::dev::PersonMessage::text("hi").in_topic(thread),
    );
    let updates = stage.api.pending_updates();
    assert_eq!(
        updates[0]["message"]["forum_topic_created"]["name"], "Deploy",
        "the bot's own service messages come, too"
    );
    let hi = &updates[1]["message"];
    assert_eq!(hi["message_id"], id);
    assert_eq!(
        hi["reply_to_message"]["message_id"], thread,
        "the root of the topic is answered implicitly"
    );
    let edit = |name: &str| json!({ "chat_id": FORUM, "message_thread_id": thread, "name": name });
    stage.ok("editForumTopic", edit("Release")).await;
    assert_eq!(stage.api.topic_name(FORUM, thread).as_deref(), Some("Release"));
    assert!(
        stage
            .refused("editForumTopic", edit("Release"))
            .await
            .1
            .contains("TOPIC_NOT_MODIFIED")
    );
    let unknown = json!({ "chat_id": FORUM, "message_thread_id": 9_999, "name": "x" });
    assert!(
        stage
            .refused("editForumTopic", unknown)
            .await
            .1
            .contains("TOPIC_ID_INVALID")
    );
    let group = stage
        .refused("createForumTopic", json!({ "chat_id": GROUP, "name": "x" }))
        .await;
    assert!(group.1.contains("the chat is not a forum"));
    stage.api.set_standing(FORUM, ADA, BotStanding::Member);
    let member = stage
        .refused("createForumTopic", json!({ "chat_id": FORUM, "name": "x" }))
        .await;
    assert!(member.1.contains("not enough rights to create a topic"));
    stage.api.end_topic(FORUM, thread, false);
    let closed = json!({ "chat_id": FORUM, "text": "x", "message_thread_id": thread });
    assert!(
        stage
            .refused("sendMessage", closed.clone())
            .await
            .1
            .contains("TOPIC_CLOSED")
    );
    stage.api.end_topic(FORUM, thread, true);
    assert!(
        stage
            .refused("sendMessage", closed)
            .await
            .1
            .contains("message thread not found")
    );
    // An action in the General topic names it; a message must not.
    stage
        .ok(
            "sendChatAction",
            json!({ "chat_id": FORUM, "action": "typing", "message_thread_id": 1 }),
        )
        .await;
}

#[tokio::test]
async fn whoever_removed_the_bot_is_not_written_to() {
    let stage = Stage::new().await;
    let send = |chat: i64| json!({ "chat_id": chat, "text": "x" });
    stage.api.block(ADA);
    let blocked = stage.refused("sendMessage", send(ADA)).await;
    assert_eq!(
        blocked,
        (403, "Forbidden: bot was blocked by the user".to_owned())
    );
    stage.api.unblock(ADA);
    stage.ok("sendMessage", send(ADA)).await;
    for (standing, code, says) in [
        (BotStanding::Kicked, 403, "bot was kicked from the group chat"),
        (BotStanding::Left, 403, "bot is not a member of the group chat"),
        (BotStanding::Muted, 400, "not enough rights"),
    ] {
        stage.api.set_standing(GROUP, ADA, standing);
        let refused = stage.refused("sendMessage", send(GROUP)).await;
        assert!(refused.0 == code && refused.1.contains(says), "{refused:?}");
    }
    let statuses: Vec<_> = stage
        .api
        .pending_updates()
        .iter()
        .map(|update| update["my_chat_member"]["new_chat_member"]["status"].clone())
        .collect();
    assert_eq!(statuses, ["kicked", "member", "kicked", "left", "restricted"]);
    stage.api.set_standing(GROUP, ADA, BotStanding::Member);
    stage.api.migrate(GROUP, -1_000_777, ADA);
    let (status, body) = stage.call("sendMessage", send(GROUP)).await;
    assert_eq!(
        (status, &body["parameters"]["migrate_to_chat_id"]),
        (400, &json!(-1_000_777))
    );
    stage.ok("sendMessage", send(-1_000_777)).await;
}

#[tokio::test]
async fn reactions_commands_and_chats_can_be_asked_for() {
    let stage = Stage::new().await;
    let id = stage.api.say(ADA, ADA, "hello");
    let react = |emoji: &str| json!({ "chat_id": ADA, "message_id": id, "reaction": [{ "type": "emoji", "emoji": emoji }] });
    stage.ok("setMessageReaction", react("👀")).await;
    assert_eq!(stage.api.messages(ADA)[0].reactions, ["👀"]);
    assert!(
        stage
            .refused("setMessageReaction", react("✅"))
            .await
            .1
            .contains("REACTION_INVALID")
    );
    stage
        .ok(
            "setMessageReaction",
            json!({ "chat_id": ADA, "message_id": id, "reaction": [] }),
        )
        .await;
    assert!(stage.api.messages(ADA)[0].reactions.is_empty());
    let gone = json!({ "chat_id": ADA, "message_id": 99, "reaction": [] });
    assert!(
        stage
            .refused("setMessageReaction", gone)
            .await
            .1
            .contains("message to react not found")
    );

    let commands = json!([{ "command": "new", "description": "begin anew" }]);
    let scope = json!({ "type": "all_group_chats" });
    stage
        .ok("setMyCommands", json!({ "commands": commands, "scope": scope }))
        .await;
    assert_eq!(
        stage.ok("getMyCommands", json!({ "scope": scope })).await,
        commands
    );
    assert_eq!(stage.ok("getMyCommands", json!({})).await, json!([]));
    stage.ok("deleteMyCommands", json!({ "scope": scope })).await;
    assert_eq!(
        stage.ok("getMyCommands", json!({ "scope": scope })).await,
        json!([])
    );
    let bad = json!({ "commands": [{ "command": "New!", "description": "x" }] });
    assert!(
        stage
            .refused("setMyCommands", bad)
            .await
            .1
            .contains("BOT_COMMAND_INVALID")
    );

    let chat = stage.ok("getChat", json!({ "chat_id": FORUM })).await;
    assert_eq!(
        (&chat["type"], &chat["is_forum"]),
        (&json!("supergroup"), &json!(true))
    );
    stage.api.add_person(ApiPerson::named(101, "Grace"));
    let member = stage
        .ok("getChatMember", json!({ "chat_id": GROUP, "user_id": 101 }))
        .await;
    assert_eq!(member["status"], "member");
    let us = json!({ "chat_id": FORUM, "user_id": stage.api.bot_id() });
    assert_eq!(stage.ok("getChatMember", us).await["can_manage_topics"], true);
    stage.ok("leaveChat", json!({ "chat_id": GROUP })).await;
    assert_eq!(stage.refused("getChat", json!({ "chat_id": GROUP })).await.0, 403);
}

/// A picture of one by one.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

impl Stage {
    async fn upload(
        &self,
        method: &str,
        fields: &[(&str, &str)],
        files: &[(&str, &str, &[u8])],
    ) -> (u16, Value) {
        let mut body = Vec::new();
        for (name, value) in fields {
            body.extend(
                format!("--BB\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes(),
            );
        }
        for (name, filename, bytes) in files {
            let head = format!(
                "--BB\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\nContent-Type: application/x-test\r\n\r\n"
            );
            body.extend(head.bytes());
            body.extend(*bytes);
            body.extend(b"\r\n");
        }
        body.extend(b"--BB--\r\n");
        let request = self.http.post(format!("{}/{method}", self.url));
        let request = request
            .header("content-type", "multipart/form-data; boundary=BB")
            .body(body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

#[tokio::test]
async fn files_go_both_ways() {
    let stage = Stage::new().await;
    let chat = ADA.to_string();
    let fields = [
        ("chat_id", chat.as_str()),
        ("caption", "<i>look</i>"),
        ("parse_mode", "HTML"),
    ];
    let (_, sent) = stage
        .upload("sendPhoto", &fields, &[("photo", "a.png", PNG)])
        .await;
    assert_eq!(
        (
            &sent["result"]["caption"],
            sent["result"]["photo"][0]["width"].as_i64()
        ),
        (&json!("look"), Some(1)),
        "{sent}"
    );
    let photo = sent["result"]["photo"][0]["file_id"].as_str().unwrap();
    // By id, by URL, and what cannot be.
    stage
        .ok("sendPhoto", json!({ "chat_id": ADA, "photo": photo }))
        .await;
    stage
        .ok(
            "sendDocument",
            json!({ "chat_id": ADA, "document": "https://files.example/a.pdf" }),
        )
        .await;
    for (method, body, says) in [
        (
            "sendDocument",
            json!({ "chat_id": ADA, "document": photo }),
            "can't use file of type photo",
        ),
        (
            "sendVoice",
            json!({ "chat_id": ADA, "voice": "nonsense" }),
            "wrong file identifier/HTTP URL specified",
        ),
        ("sendVoice", json!({ "chat_id": ADA }), "there is no voice"),
        (
            "sendPhoto",
            json!({ "chat_id": ADA, "photo": photo, "caption": "x".repeat(1025) }),
            "message caption is too long",
        ),
        ("getFile", json!({ "file_id": "x" }), "invalid file_id"),
        (
            "editMessageText",
            json!({ "chat_id": ADA, "message_id": sent["result"]["message_id"], "text": "x" }),
            "there is no text in the message to edit",
        ),
    ] {
        let refused = stage.refused(method, body).await;
        assert!(refused.1.contains(says), "{method}: {refused:?}");
    }
    let (status, no_photo) = stage
        .upload(
            "sendPhoto",
            &[("chat_id", &chat)],
            &[("photo", "a.png", b"no picture")],
        )
        .await;
    assert_eq!(
        (status, &no_photo["description"]),
        (400, &json!("Bad Request: IMAGE_PROCESS_FAILED"))
    );
    let media = json!([{ "type": "document", "media": "attach://one", "caption": "first" }, { "type": "document", "media": "attach://two" }]).to_string();
    let files: [(&str, &str, &[u8]); 2] = [("one", "1.txt", b"1"), ("two", "2.txt", b"2")];
    let (_, album) = stage
        .upload("sendMediaGroup", &[("chat_id", &chat), ("media", &media)], &files)
        .await;
    assert_eq!(album["result"].as_array().unwrap().len(), 2, "{album}");
    assert_eq!(
        album["result"][0]["media_group_id"],
        album["result"][1]["media_group_id"]
    );
    let last = stage.api.answers(ADA).pop().unwrap().file.unwrap();
    assert_eq!(
        (last.name.as_deref(), &last.bytes[..]),
        (Some("2.txt"), &b"2"[..])
    );

    // A download, only after it was asked for.
    let document = album["result"][0]["document"]["file_id"].as_str().unwrap();
    let offered = stage.ok("getFile", json!({ "file_id": document })).await;
    let path = offered["file_path"].as_str().unwrap();
    let url = stage.url.replace("/bot", "/file/bot");
    let answer = stage.http.get(format!("{url}/{path}")).send().await.unwrap();
    assert_eq!(&answer.bytes().await.unwrap()[..], b"1");
    assert_eq!(
        stage
            .http
            .get(format!("{url}/documents/none"))
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
    let stranger = stage.api.base() + "/file/bot1:x/" + path;
    assert_eq!(stage.http.get(stranger).send().await.unwrap().status(), 401);
}

#[test]
fn text_is_shown_in_html_as_it_was_read() {
    for html in [
        "<pre><code class=\"language-rust\">fn a() {}</code></pre>",
        "<a href=\"https://a.example/?x=1&amp;y=%22\">here</a>",
    ] {
        assert_eq!(to_html(&ApiText::html(html).unwrap()), html);
    }
    let given = json!([{ "type": "bold", "offset": 2, "length": 2 }]);
    assert_eq!(to_html(&ApiText::with_entities("😀ab", &given)), "😀<b>ab</b>");
}
