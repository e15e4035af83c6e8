//! Slack: where replies go, and how their links are previewed.

use super::*;
use crate::adapter::SlackReplyMode;
use crate::adapter::media::{MediaKind, OutgoingAttachment};

/// A message in a chat of this type, perhaps in a thread.
fn message_in(chat: &str, chat_type: &str, thread: Option<&str>, ops: &[&str]) -> StreamTarget {
    let mut able = descriptor("slack");
    able.supported_ops.extend(ops.iter().map(|op| (*op).to_owned()));
    let mut target = target(able);
    let known = Arc::make_mut(&mut target.chat);
    known.id.chat = chat.into();
    known.facts.chat_type = Some(chat_type.into());
    known.facts.thread_id = thread.map(Into::into);
    target
}

/// Every anchor of an op.
fn anchors(op: &Value) -> [Option<&str>; 2] {
    let metadata = &op["metadata"];
    assert!(metadata["thread_ts"].is_null() && metadata["reply_to_message_id"].is_null());
    [op["reply_to"].as_str(), metadata["thread_id"].as_str()]
}

fn slack(reply_in_thread: bool) -> SlackConfig {
    SlackConfig {
        reply_in_thread,
        channel_reply_modes: [
            ("C_FLAT".to_owned(), SlackReplyMode::Channel),
            ("D_THREAD".to_owned(), SlackReplyMode::Thread),
        ]
        .into(),
        ..SlackConfig::default()
    }
}

#[test]
fn replies_of_every_form_are_anchored_as_the_chat_wants_it() {
    let (flat, threaded) = ([None, None], [Some("m0"), Some("m0")]);
    for (switch, chat, chat_type, thread, wanted) in [
        (true, "D1", "dm", None, threaded),
        (true, "C1", "channel", None, threaded),
        (true, "C_FLAT", "channel", None, flat),
        (false, "D1", "dm", None, flat),
        (false, "D1", "dm", Some("t1"), [Some("m0"), Some("t1")]),
        (false, "C1", "channel", None, threaded),
        (false, "C_FLAT", "channel", Some("t1"), [Some("m0"), Some("t1")]),
        (false, "D_THREAD", "dm", None, threaded),
    ] {
        let what = format!("{switch} {chat} {thread:?}");
        for (mode, first) in [(StreamMode::Auto, "draft"), (StreamMode::Edit, "send")] {
            let settings = StreamSettings { mode, ..bare() };
            let target = message_in(chat, chat_type, thread, &[]);
            let mut scene = Scene::with_slack(settings, slack(switch), target);
            scene.push_text("It is");
            let op = scene.op();
            assert_eq!(op["op"], first);
            let reply_to = wanted[0].filter(|_| first == "send");
            assert_eq!(anchors(&op), [reply_to, wanted[1]], "{what}: {op}");
            scene.settle(&applied("m1")).push_text(" five.");
            for (op, fallback) in durable(&scene.finish()) {
                assert_eq!(anchors(&op)[1], wanted[1], "{what}: {op}");
                for op in fallback {
                    assert_eq!(anchors(&op), wanted, "{what}: {op}");
                }
            }
        }
        let target = message_in(chat, chat_type, thread, &["send_media"]);
        let adapter = RelayAdapter::with_slack(
            "slack",
            None,
            target.descriptor.clone(),
            Arc::default(),
            Arc::new(slack(switch)),
        );
        let file = OutgoingAttachment::File {
            kind: MediaKind::Image,
            source_url: "https://c.example/1.png".into(),
            caption: "look".into(),
            name: None,
            is_public: true,
            instead: None,
        };
        let media = adapter.attachment(&file, &target.chat.id, &target.chat.facts);
        let text = adapter.reply("hi", &target.chat.id, &target.chat.facts);
        for op in media.iter().chain(&text) {
            let ops = std::iter::once(&op.action).chain(&op.fallback);
            for op in ops {
                let op = serde_json::to_value(op).unwrap();
                assert_eq!(anchors(&op), wanted, "{what}: {op}");
            }
        }
        assert_eq!(media[0].action.op(), "send_media");
    }
}

#[test]
fn elsewhere_a_direct_message_keeps_its_anchor() {
    let mut elsewhere = target(descriptor("discord"));
    Arc::make_mut(&mut elsewhere.chat).facts.chat_type = Some("dm".into());
    let mut scene = Scene::with_slack(bare(), slack(false), elsewhere);
    scene.push_text("Five.");
    assert_eq!(anchors(&scene.op()), [Some("m0"), None]);
}

#[test]
fn typing_and_reactions_belong_to_the_message_in_both_modes() {
    for switch in [true, false] {
        let settings = StreamSettings {
            typing: true,
            reactions: true,
            ..bare()
        };
        let target = message_in("D1", "dm", None, &[]);
        let mut scene = Scene::with_slack(settings, slack(switch), target);
        let reaction = scene.op();
        assert_eq!(
            (&reaction["op"], &reaction["message_id"]),
            (&json!("react"), &json!("m0"))
        );
        scene.settle(&applied("m0")).after(500);
        let typing = scene.op();
        assert_eq!(
            (&typing["op"], &typing["metadata"]["thread_id"]),
            (&json!("typing"), &json!("m0")),
            "{switch}"
        );
    }
}

fn previewing(unfurl_links: Option<bool>, unfurl_media: Option<bool>) -> StreamSettings {
    StreamSettings {
        unfurl_links,
        unfurl_media,
        ..bare()
    }
}

#[test]
fn previews_are_asked_for_on_new_messages_only_and_on_slack_only() {
    let settings = previewing(Some(false), Some(true));
    let target = message_in("D1", "dm", None, &["send_media", "delete"]);
    let hints = |op: &Value| {
        let metadata = &op["metadata"];
        [&metadata["unfurl_links"], &metadata["unfurl_media"]].map(Value::as_bool)
    };
    let mut scene = Scene::new(settings.clone(), target.clone());
    scene.push_text("Five.");
    let first = scene.op();
    assert_eq!(
        (&first["op"], hints(&first)),
        (&json!("send"), [Some(false), Some(true)])
    );
    scene
        .settle(&applied("m1"))
        .push_text(" And that is all there is.");
    let edit = scene.after(800).op();
    assert_eq!((&edit["op"], hints(&edit)), (&json!("edit"), [None, None]));
    let file = OutgoingAttachment::File {
        kind: MediaKind::Image,
        source_url: "https://c.example/1.png".into(),
        caption: String::new(),
        name: None,
        is_public: true,
        instead: None,
    };
    for (platform, wanted) in [("slack", [Some(false), Some(true)]), ("discord", [None, None])] {
        let chat = ChatId {
            platform: platform.into(),
            chat: "c".into(),
        };
        let (descriptor, settings) = (target.descriptor.clone(), Arc::new(settings.clone()));
        let adapter = RelayAdapter::new(platform, None, descriptor, settings);
        let media = adapter.attachment(&file, &chat, &target.chat.facts);
        let media = serde_json::to_value(&media[0].action).unwrap();
        assert_eq!((&media["op"], hints(&media)), (&json!("send_media"), wanted));
    }
}

/// A message that was posted with the first text and edited to both; then the turn ends.
fn posted_and_completed(settings: StreamSettings, first: &str, then: &str) -> Vec<(Value, Vec<Value>)> {
    let target = message_in("D1", "dm", None, &["delete"]);
    let mut scene = Scene::new(settings, target);
    scene.push_text(first);
    assert_eq!(scene.op()["op"], "send");
    scene.settle(&applied("m1")).push_text(then);
    assert_eq!(scene.after(800).op()["op"], "edit");
    scene.settle(&applied("m1"));
    let last = scene.finish();
    let then: Vec<_> = last.durable.iter().map(|op| values(&op.then)).collect();
    let actions = durable(&last).into_iter().map(|(action, _)| action);
    actions.zip(then).collect()
}

#[test]
fn a_link_that_came_late_is_posted_anew_where_previews_are_forced_on() {
    let late = " https://example.com/a/rather/long/one and nothing more";
    for settings in [previewing(Some(true), None), previewing(None, Some(true))] {
        let last = posted_and_completed(settings, "See this:", late);
        let [(action, then)] = &last[..] else {
            panic!("{last:?}")
        };
        assert_eq!(action["op"], "send");
        assert_eq!(action["content"], format!("See this:{late}"));
        assert_eq!(
            (&action["reply_to"], &action["metadata"]["notify"]),
            (&json!("m0"), &json!(true))
        );
        assert_eq!(then.len(), 1);
        assert_eq!(
            (&then[0]["op"], &then[0]["message_id"]),
            (&json!("delete"), &json!("m1"))
        );
    }
    for (settings, first, then) in [
        (previewing(Some(false), None), "See this:", late),
        (
            previewing(Some(true), None),
            "See https://example.com/a first:",
            " that was all that there is.",
        ),
        (
            previewing(Some(true), None),
            "No link at all,",
            " not even at the end of the text.",
        ),
    ] {
        let last = posted_and_completed(settings, first, then);
        assert!(
            last.iter().all(|(action, _)| action["op"] == "edit"),
            "{first}: {last:?}"
        );
    }
}

#[test]
fn where_nothing_can_be_deleted_previews_wait_for_the_whole_text() {
    let target = message_in("D1", "dm", None, &[]);
    let mut scene = Scene::new(previewing(Some(true), None), target);
    scene.push_text("See this, please:").after(5000).quiet();
    scene.push_text(" https://example.com");
    let last = durable(&scene.finish());
    assert_eq!(last.len(), 1);
    assert_eq!(
        (&last[0].0["op"], &last[0].0["content"]),
        (&json!("send"), &json!("See this, please: https://example.com"))
    );
}
