//! The same answer on every platform, as each of them can show it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::rig::{Rig, start, streams};
use crate::support::dev::{FrameKinds as _, OpAnswer, ResultRule};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;
use hermes_relay::adapter::OfferedCommand;
use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::agent::{AgentEvent, StepState, ToolCall, ToolKind, TurnEnd};

const WORDS: usize = 40;

fn speech() -> (Vec<String>, String) {
    let pieces: Vec<String> = (0..WORDS).map(|word| format!("word{word} ")).collect();
    let whole = pieces.concat().trim_end().to_owned();
    (pieces, whole)
}

async fn reply_on(platform: &str) -> (Rig, String) {
    let (pieces, whole) = speech();
    let rig = start(platform, streams(pieces, Duration::from_millis(10)), |_| {}).await;
    rig.deliver("c1", "m1", "speak");
    rig.is_quiet(1).await;
    (rig, whole)
}

fn names(rig: &Rig) -> Vec<String> {
    rig.asked_for().into_iter().map(|(op, _)| op).collect()
}

fn emoji(rig: &Rig) -> Vec<(String, bool)> {
    let reacts = rig.ops("react");
    reacts
        .iter()
        .map(|react| {
            (
                react["emoji"].as_str().unwrap().to_owned(),
                react["remove"] == true,
            )
        })
        .collect()
}

#[tokio::test]
async fn discord_sees_one_message_grow_by_edits_between_typing_and_reactions() {
    let (rig, whole) = reply_on("discord").await;
    let shown = rig.shown("c1");
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].text.trim_end(), whole);
    assert_eq!(shown[0].reply_to.as_deref(), Some("m1"));
    assert!(shown[0].edits >= 2, "{}", shown[0].edits);
    let sends = rig.ops("send");
    assert!(sends[0]["content"].as_str().unwrap().ends_with('\u{2589}'));
    assert_eq!(sends[0]["metadata"]["expect_edits"], true);
    assert!(!rig.ops("typing").is_empty());
    let eyes = "\u{1f440}".to_owned();
    assert_eq!(
        emoji(&rig),
        [
            (eyes.clone(), false),
            (eyes, true),
            ("\u{2705}".to_owned(), false)
        ]
    );
    let names = names(&rig);
    let last_edit = names.iter().rposition(|op| op == "edit").unwrap();
    let last_react = names.iter().rposition(|op| op == "react").unwrap();
    assert!(
        last_react > last_edit,
        "the turn's end is shown after its text: {names:?}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn telegram_sees_a_preview_and_then_a_real_message_and_its_own_reactions() {
    let (rig, whole) = reply_on("telegram").await;
    let drafts = rig.ops("draft");
    assert!(
        drafts.len() >= 2 && drafts.iter().all(|draft| draft["final"] == false),
        "{drafts:?}"
    );
    assert_eq!(
        rig.texts("c1")
            .iter()
            .map(|text| text.trim_end())
            .collect::<Vec<_>>(),
        [whole]
    );
    assert_eq!(rig.ops("edit").len(), 0);
    let done = emoji(&rig).last().cloned();
    assert_eq!(done, Some(("\u{1f44d}".to_owned(), false)));
    rig.stop().await;
}

#[tokio::test]
async fn slack_sees_a_stream_that_is_sealed_and_a_status_that_is_cleared() {
    let (rig, whole) = reply_on("slack").await;
    let drafts = rig.ops("draft");
    let sealed: Vec<&Value> = drafts.iter().filter(|draft| draft["final"] == true).collect();
    assert_eq!(sealed.len(), 1);
    assert_eq!(sealed[0]["content"].as_str().unwrap().trim_end(), whole);
    assert_eq!(rig.texts("c1").len(), 1);
    assert_eq!(rig.ops("send").len(), 0);
    let typing = rig.ops("typing");
    assert!(!typing[0]["content"].as_str().unwrap().is_empty());
    assert_eq!(typing.last().unwrap()["content"], "");
    rig.stop().await;
}

#[tokio::test]
async fn a_platform_without_edits_gets_the_whole_answer_once() {
    for platform in ["whatsapp", "plain"] {
        let (rig, whole) = reply_on(platform).await;
        assert_eq!(
            rig.texts("c1")
                .iter()
                .map(|text| text.trim_end())
                .collect::<Vec<_>>(),
            [whole.as_str()],
            "{platform}"
        );
        assert!(rig.ops("edit").is_empty() && rig.ops("draft").is_empty());
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_connector_from_before_the_list_of_ops_is_asked_only_for_what_it_always_knew() {
    let (rig, whole) = reply_on("legacy").await;
    assert_eq!(
        rig.texts("c1")
            .iter()
            .map(|text| text.trim_end())
            .collect::<Vec<_>>(),
        [whole]
    );
    for op in names(&rig) {
        assert!(
            ["send", "edit", "typing", "follow_up"].contains(&op.as_str()),
            "{op}"
        );
    }
    rig.stop().await;
}

#[tokio::test]
async fn every_op_names_tenant_author_profile_thread_platform_and_bot() {
    let (pieces, _) = speech();
    let rig = start("discord", streams(pieces, Duration::from_millis(5)), |_| {}).await;
    rig.deliver_event(&json!({
        "text": "hi", "message_type": "text", "message_id": "m1",
        "source": {"platform": "discord", "chat_id": "c1", "chat_type": "thread", "thread_id": "t1",
                   "user_id": "u1", "scope_id": "g1", "profile": "coder"},
    }));
    rig.is_quiet(1).await;
    let frames = rig.connector.frames();
    let outbound: Vec<_> = frames
        .iter()
        .filter(|frame| frame.is_from_gateway("outbound"))
        .collect();
    assert!(outbound.len() > 5);
    for frame in outbound {
        let frame = frame.json();
        assert_eq!(
            (&frame["platform"], &frame["botId"]),
            (&json!("discord"), &json!("bot-1"))
        );
        let tags = &frame["action"]["metadata"];
        for (tag, value) in [
            ("scope_id", "g1"),
            ("user_id", "u1"),
            ("profile", "coder"),
            ("thread_id", "t1"),
        ] {
            assert_eq!(tags[tag], value, "{tag} of {frame}");
        }
    }
    rig.stop().await;
}

#[tokio::test]
async fn tools_are_one_message_of_progress_that_answers_nothing() {
    let player = ScriptedAgent::new(|turn| async move {
        for round in 0..3 {
            for state in [StepState::Running, StepState::Done] {
                turn.events.progress(AgentEvent::Tool(ToolCall {
                    id: format!("t{round}"),
                    title: format!("step {round}"),
                    kind: ToolKind::Execute,
                    state,
                }));
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
        }
        turn.events.text("all done").await;
        TurnEnd::Completed
    });
    let rig = start("discord", player.clone(), |_| {}).await;
    rig.deliver("c1", "m1", "work");
    rig.is_quiet(1).await;
    let shown = rig.shown("c1");
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(
        shown[0].reply_to.is_none() && shown[0].text.contains("step 2"),
        "{}",
        shown[0].text
    );
    assert_eq!(
        (shown[1].text.as_str(), shown[1].reply_to.as_deref()),
        ("all done", Some("m1"))
    );
    rig.stop().await;
    let rig = start("discord", player, |settings| {
        settings.streaming.tool_progress = false;
    })
    .await;
    rig.deliver("c1", "m1", "work");
    rig.is_quiet(1).await;
    assert_eq!(rig.texts("c1"), ["all done"]);
    rig.stop().await;
}

#[tokio::test]
async fn a_title_renames_a_thread_that_the_connector_opened_and_no_other() {
    let player = ScriptedAgent::new(|turn| async move {
        turn.events
            .progress(AgentEvent::Title("Plans for May".to_owned()));
        turn.events.text("ok").await;
        TurnEnd::Completed
    });
    let rig = start("discord", player, |_| {}).await;
    let event = |thread: &str, own: bool| {
        json!({
            "text": "hi", "message_id": format!("m-{thread}"),
            "source": {"platform": "discord", "chat_id": thread, "chat_type": "thread", "thread_id": thread,
                       "parent_chat_id": "c1", "user_id": "u1", "auto_thread_created": own,
                       "auto_thread_initial_name": "hi"},
        })
    };
    rig.deliver_event(&event("t1", true));
    rig.deliver_event(&event("t2", false));
    rig.is_quiet(2).await;
    let renames = rig.ops("thread_rename");
    assert_eq!(renames.len(), 1);
    assert_eq!(renames[0]["message_id"], "t1");
    assert_eq!(renames[0]["chat_id"], "c1");
    assert_eq!(renames[0]["thread_name"], "Plans for May");
    assert_eq!(renames[0]["only_if_current_name"], "hi");
    rig.stop().await;
}

#[tokio::test]
async fn a_title_renames_the_thread_that_the_connector_opens_for_the_answer_and_no_sibling() {
    let may_answer = Arc::new(Notify::new());
    let player = ScriptedAgent::sharing(&may_answer, |turn, may_answer| async move {
        let title = turn.input.text.clone();
        turn.events.progress(AgentEvent::Title(title.clone()));
        if title == "Notes" {
            may_answer.notified().await;
        }
        turn.events.text("ok").await;
        TurnEnd::Completed
    });
    let rig = start("discord", player, |settings| {
        settings.streaming.mode = StreamMode::Off;
    })
    .await;
    let ask = |message: &str, title: &str| {
        rig.deliver_event(&json!({
            "text": title, "message_id": message,
            "source": {"platform": "discord", "chat_id": "c1", "chat_type": "group", "user_id": "u1",
                       "prospective_thread_id": message},
        }));
    };
    let opens = |thread: &str| {
        let opened = json!({"success": true, "message_id": "a", "thread_id": thread});
        rig.connector
            .script(ResultRule::on("send", OpAnswer::Result(opened)).once());
    };
    ask("m8", "Notes");
    opens("m9");
    ask("m9", "Plans");
    let is_titled = || {
        (rig.ops("thread_rename").len() == 1)
            .then_some(())
            .ok_or("no rename")
    };
    eventually("the first thread has its title", async || is_titled()).await;
    opens("m8");
    may_answer.notify_one();
    rig.is_quiet(2).await;
    let renames = rig.ops("thread_rename");
    let titles: Vec<_> = renames
        .iter()
        .map(|op| {
            (
                op["message_id"].as_str().unwrap(),
                op["thread_name"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(titles, [("m9", "Plans"), ("m8", "Notes")]);
    for rename in &renames {
        assert_eq!(rename["chat_id"], "c1");
        assert_eq!(rename["only_if_connector_created"], true);
    }
    let names = names(&rig);
    let ops = names
        .iter()
        .filter(|name| ["send", "thread_rename"].contains(&name.as_str()));
    let ops: Vec<_> = ops.collect();
    assert_eq!(ops, ["send", "thread_rename", "send", "thread_rename"]);
    rig.stop().await;
}

#[tokio::test]
async fn discord_is_offered_the_relays_commands_the_configured_and_the_agents() {
    for (platform, offered) in [("discord", true), ("telegram", false)] {
        let player = streams(vec!["ok".to_owned()], Duration::ZERO);
        let rig = start(platform, player, |settings| {
            settings.sessions.commands = vec!["stop".to_owned()];
            settings.discord.commands = vec![OfferedCommand {
                name: "standup".to_owned(),
                description: "news".to_owned(),
                options: None,
            }];
        })
        .await;
        let frames = rig.connector.frames();
        let hello = frames
            .iter()
            .find(|frame| frame.is_from_gateway("hello"))
            .unwrap();
        let names: Vec<_> = hello.json()["command_manifest"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect();
        let wanted: &[&str] = if offered {
            &["stop", "standup", "play"]
        } else {
            &[]
        };
        assert_eq!(names, wanted, "{platform}");
        rig.stop().await;
    }
}
