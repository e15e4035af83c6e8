//! Discord's interactions in a running relay: what they say, who may send them, and what their answers belong to.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use hermes_relay::access::{ChatRule, Mode, Role};
use hermes_relay::agent::{EchoAgent, TurnEnd};
use hermes_relay::config::{BusyMode, Settings};
use hermes_relay::relay::SeenOp;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::chat::{Scripted, list, start as start_agent};
use crate::prompts::{BUTTONS, PLAIN, ask, owner, platform, shown, start as start_asking, terse};
use crate::support::memory_relay::{Running, event, start_on};
use crate::support::scripted_agent::ScriptedAgent;

/// Delivers an interaction under a buffer id, and waits until it is acknowledged.
async fn forwarded(relay: &Running, buffer_id: &str, interaction: &Value) {
    let body = base64::engine::general_purpose::STANDARD.encode(interaction.to_string());
    let line = json!({
        "type": "passthrough_forward",
        "bufferId": buffer_id,
        "forward": {"platform": "discord", "method": "POST", "path": "/", "headers": [], "bodyB64": body},
    });
    let delivered = relay.connector.deliver_line_buffered(buffer_id, line.to_string());
    delivered.await.unwrap();
    relay
        .seen("an acknowledgement", |seen| seen.acked(buffer_id) == 1)
        .await;
}

/// A component of a message in somebody's direct chat.
fn component(id: &str, chat: &str, data: &Value) -> Value {
    json!({"type": 3, "id": id, "channel_id": chat, "user": {"id": owner(chat), "username": "ann"},
        "message": {"id": "pm1"}, "data": data})
}

/// A slash command in a channel of a guild.
fn slash(id: &str, channel: &Value) -> Value {
    json!({"type": 2, "id": id, "guild_id": "g1", "channel_id": channel["id"], "channel": channel,
        "member": {"user": {"id": "u1", "username": "ann"}}, "data": {"name": "hello"}})
}

/// The same as a message.
fn message(id: &str, channel: &Value, parent: &str) -> Value {
    let mut said = event(channel["id"].as_str().unwrap(), id, "hello");
    let kind = if channel["type"] == 11 { "thread" } else { "group" };
    said["source"]["chat_type"] = json!(kind);
    said["source"]["user_id"] = json!("u1");
    said["source"]["parent_chat_id"] = json!(parent);
    if kind == "thread" {
        said["source"]["thread_id"] = channel["id"].clone();
    }
    said
}

#[tokio::test]
async fn what_is_selected_in_a_menu_answers_the_question_or_reaches_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |_| {}).await;
    let question = ask(&relay, "a", "1").await;
    let id = question.action["prompt_id"].as_str().unwrap();
    let data = json!({"custom_id": "a menu", "component_type": 3, "values": [format!("hp1:{id}:o1")]});
    forwarded(&relay, "f1", &component("i1", "a", &data)).await;
    let replies = relay.replies("a", 3).await;
    assert_eq!(replies[2], "echo: allowed for this conversation hi");
    let data = json!({"custom_id": "priority", "component_type": 3, "values": ["high", "now"]});
    forwarded(&relay, "f2", &component("i2", "a", &data)).await;
    assert_eq!(relay.replies("a", 4).await[3], "echo: priority high now");
    relay.stop().await;
}

#[tokio::test]
async fn a_press_in_a_thread_answers_the_question_in_the_channel_of_the_thread() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |_| {}).await;
    let mut said = event("c1", "m1", "ask hi");
    said["source"]["chat_type"] = json!("thread");
    said["source"]["thread_id"] = json!("m9");
    said["source"]["scope_id"] = json!("g1");
    said["source"]["user_id"] = json!("u1");
    relay.connector.deliver_buffered("b1", said).await.unwrap();
    let question = shown(&relay, "c1").await;
    let id = question.action["prompt_id"].as_str().unwrap();
    let press = json!({"type": 3, "id": "i1", "guild_id": "g1", "channel_id": "m9",
        "channel": {"id": "m9", "type": 11, "parent_id": "c1"},
        "member": {"user": {"id": "u1", "username": "ann"}}, "message": {"id": "pm1"},
        "data": {"custom_id": format!("hp1:{id}:o0")}});
    forwarded(&relay, "f1", &press).await;
    relay
        .seen("the answer", |seen| {
            seen.texts("c1")
                .iter()
                .any(|text| text.starts_with("echo: allowed"))
        })
        .await;
    relay.stop().await;
}

/// A press of a button of this list in the thread `m9` of the channel `c1`, by somebody.
fn press_in_thread(id: &str, list: &SeenOp, option: &str, by: &str) -> Value {
    let prompt = list.action["prompt_id"].as_str().unwrap();
    json!({"type": 3, "id": id, "guild_id": "g1", "channel_id": "m9",
        "channel": {"id": "m9", "type": 11, "parent_id": "c1"},
        "member": {"user": {"id": by, "username": by}, "roles": ["700"]}, "message": {"id": "pm1"},
        "data": {"custom_id": format!("hp1:{prompt}:{option}")}})
}

#[tokio::test]
async fn a_forwarded_press_chooses_from_a_list_also_while_a_turn_runs() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let agent = Scripted::new(store.path(), "models");
    let relay = start_agent(dir.path(), agent, BUTTONS, |_| {}).await;
    relay.deliver("a", "1", "/mode").await;
    let shown = list(&relay, "a").await;
    let press = |id: &str, option: &str| {
        let prompt = shown.action["prompt_id"].as_str().unwrap();
        component(id, "a", &json!({"custom_id": format!("hp1:{prompt}:{option}")}))
    };
    forwarded(&relay, "f1", &press("i1", "o1")).await;
    let plan = "The mode is Plan from now on, in this conversation.";
    relay
        .seen("the change", |seen| seen.texts("a").contains(&plan))
        .await;
    // What waits is read from the journal.
    relay.deliver("a", "2", "hang").await;
    relay.wait_for_turns(1).await;
    forwarded(&relay, "f2", &press("i2", "o0")).await;
    relay.deliver("a", "3", "/stop").await;
    let ask = "The mode is Ask from now on, in this conversation.";
    relay
        .seen("the next change", |seen| seen.texts("a").contains(&ask))
        .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_press_in_a_thread_chooses_from_a_list_in_the_channel_of_the_thread_for_its_conversation() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let agent = Scripted::new(store.path(), "models");
    let relay = start_agent(dir.path(), agent, BUTTONS, |_| {}).await;
    let mut said = event("c1", "m9", "/mode");
    said["source"]["chat_type"] = json!("group");
    said["source"]["prospective_thread_id"] = json!("m9");
    said["source"]["scope_id"] = json!("g1");
    said["source"]["user_id"] = json!("u1");
    relay
        .connector
        .deliver_buffered("b1", said.clone())
        .await
        .unwrap();
    let shown = list(&relay, "c1").await;
    forwarded(&relay, "f1", &press_in_thread("i1", &shown, "o1", "u2")).await;
    forwarded(&relay, "f2", &press_in_thread("i2", &shown, "o1", "u1")).await;
    let plan = "The mode is Plan from now on, in this conversation.";
    relay
        .seen("the change", |seen| seen.texts("c1").contains(&plan))
        .await;
    // In the thread, as the connector writes it from now on.
    said["source"]["chat_type"] = json!("thread");
    said["source"]["thread_id"] = json!("m9");
    said["source"]["prospective_thread_id"] = Value::Null;
    said["message_id"] = json!("m10");
    said["text"] = json!("mode");
    relay.connector.deliver_buffered("b2", said).await.unwrap();
    relay
        .seen("the mode of the thread", |seen| {
            seen.texts("c1").iter().any(|text| text.starts_with("plan "))
        })
        .await;

    // A list of the channel itself is not one of the thread.
    let mut said = event("c1", "m11", "/mode");
    said["source"]["chat_type"] = json!("group");
    said["source"]["user_id"] = json!("u1");
    relay.connector.deliver_buffered("b3", said).await.unwrap();
    relay
        .seen("another list", |seen| {
            let lists = seen.ops.iter().filter(|op| op.kind() == Some("prompt"));
            lists.count() == 2
        })
        .await;
    let shown = list(&relay, "c1").await;
    forwarded(&relay, "f3", &press_in_thread("i3", &shown, "o0", "u1")).await;
    let seen = relay.stop().await;
    let changes = seen
        .texts("c1")
        .into_iter()
        .filter(|text| text.contains("from now on"));
    assert_eq!(changes.count(), 1, "{seen:?}");
}

#[tokio::test]
async fn an_interaction_without_words_starts_no_turn() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), EchoAgent, &platform(PLAIN), terse).await;
    let said = |kind: u8, data: &Value| {
        json!({"type": kind, "id": format!("i{kind}"), "channel_id": "a",
            "user": {"id": owner("a"), "username": "ann"}, "data": data})
    };
    let typing = json!({"name": "hello", "options": [{"name": "to", "value": "b", "focused": true}]});
    for (kind, data) in [(1, json!({})), (2, json!({})), (3, json!({})), (4, typing)] {
        forwarded(&relay, &format!("f{kind}"), &said(kind, &data)).await;
    }
    let field = json!({"type": 4, "custom_id": "note", "value": ""});
    let modal = json!({"custom_id": "form", "components": [{"type": 1, "components": [field]}]});
    forwarded(&relay, "f5", &said(5, &modal)).await;
    assert_eq!(relay.replies("a", 1).await, ["echo: note="]);
    let status = relay.handle.status().await.unwrap();
    assert_eq!((status.tally.turns_started, status.tally.empty), (1, 4));
    relay.stop().await;
}

#[tokio::test]
async fn a_rule_about_a_chat_holds_for_messages_and_commands_alike() {
    let channel = json!({"id": "c1", "type": 0, "parent_id": "category"});
    let thread = json!({"id": "t1", "type": 11, "parent_id": "c1"});
    for (ruled, allowed) in [("category", None), ("c1", Some(["c1", "t1"]))] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start_on(
            dir.path(),
            EchoAgent,
            &platform(PLAIN),
            |settings: &mut Settings| {
                terse(settings);
                settings.access.mode = Mode::List;
                settings.access.chats = vec![ChatRule {
                    platform: "discord".to_owned(),
                    chat: ruled.to_owned(),
                    role: Role::User,
                    agents: None,
                }];
            },
        )
        .await;
        for (channel, parent) in [(&channel, "category"), (&thread, "c1")] {
            let id = channel["id"].as_str().unwrap();
            forwarded(&relay, &format!("f-{id}"), &slash(&format!("i-{id}"), channel)).await;
            let said = message(&format!("m-{id}"), channel, parent);
            let buffer_id = format!("b-{id}");
            relay.connector.deliver_buffered(&buffer_id, said).await.unwrap();
            relay.seen("its ack", |seen| seen.acked(&buffer_id) == 1).await;
        }
        for chat in allowed.into_iter().flatten() {
            let mut replies = relay.replies(chat, 2).await;
            replies.sort();
            assert_eq!(replies, ["echo: /hello", "echo: hello"], "{ruled}: {chat}");
        }
        let seen = relay.stop().await;
        let answered = seen.ops.len();
        assert_eq!(
            answered,
            if allowed.is_some() { 4 } else { 0 },
            "{ruled}: {seen:?}"
        );
    }
}

#[tokio::test]
async fn answers_and_reactions_belong_to_the_attached_message_and_never_to_the_interaction() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), EchoAgent, &platform(&["send", "react"]), |_| {}).await;
    let command =
        json!({"type": 2, "id": "i1", "channel_id": "a", "user": {"id": "u"}, "data": {"name": "hello"}});
    forwarded(&relay, "f1", &command).await;
    relay.replies("a", 1).await;
    let press = component("i2", "a", &json!({"custom_id": "again"}));
    forwarded(&relay, "f2", &press).await;
    relay.replies("a", 2).await;
    relay.wait_for_turns(0).await;
    let seen = relay.stop().await;
    let of = |kind: &str| -> Vec<&SeenOp> {
        let ops = seen.ops.iter();
        ops.filter(|op| op.kind() == Some(kind)).collect()
    };
    let anchors: Vec<_> = of("send")
        .iter()
        .map(|op| op.action["reply_to"].clone())
        .collect();
    assert_eq!(anchors, [Value::Null, json!("pm1")]);
    let reactions = of("react");
    assert!(!reactions.is_empty());
    assert!(
        reactions.iter().all(|op| op.action["message_id"] == "pm1"),
        "{reactions:?}"
    );
}

#[tokio::test]
async fn presses_while_a_turn_runs_are_turns_of_their_own_once_each_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Notify::new());
    let agent = ScriptedAgent::sharing(&gate, |turn, gate| async move {
        if turn.input.text == "hang" {
            gate.notified().await;
        }
        turn.events.text(turn.input.text.clone()).await;
        TurnEnd::Completed
    });
    // It would take whatever it is handed.
    let relay = start_on(
        dir.path(),
        agent.steered(|_| true),
        &platform(PLAIN),
        |settings| {
            terse(settings);
            settings.sessions.busy_mode = BusyMode::Steer;
        },
    )
    .await;
    relay.deliver("a", "1", "hang").await;
    relay.wait_for_turns(1).await;
    for press in ["one", "two", "three"] {
        let data = json!({"custom_id": press});
        forwarded(&relay, press, &component(&format!("i-{press}"), "a", &data)).await;
    }
    // The connector delivers one of them again.
    let again = component("i-two", "a", &json!({"custom_id": "two"}));
    forwarded(&relay, "two again", &again).await;
    relay.deliver("a", "2", "some text").await;
    gate.notify_one();
    let replies = relay.replies("a", 5).await;
    assert_eq!(replies, ["hang", "one", "two", "three", "some text"]);
    let status = relay
        .wait_for_status("five turns", |status| status.tally.turns_done == 5)
        .await;
    assert_eq!((status.tally.steered, status.tally.duplicates), (0, 1));
    relay.stop().await;
}

#[tokio::test]
async fn a_command_without_a_nickname_has_the_name_that_messages_had() {
    let dir = tempfile::tempdir().unwrap();
    let names = Arc::new(Mutex::new(Vec::new()));
    let agent = ScriptedAgent::sharing(&names, |turn, names| async move {
        let author = turn.input.author.clone().unwrap_or_default();
        names.lock().unwrap().push(author);
        turn.events.text("ok").await;
        TurnEnd::Completed
    });
    let relay = start_on(dir.path(), agent, &platform(PLAIN), terse).await;
    let channel = json!({"id": "c1", "type": 0});
    let mut said = message("m1", &channel, "");
    said["source"]["scope_id"] = json!("g1");
    said["source"]["user_name"] = json!("Nicky");
    relay.connector.deliver_buffered("b1", said).await.unwrap();
    relay.replies("c1", 1).await;
    forwarded(&relay, "f1", &slash("i1", &channel)).await;
    relay.replies("c1", 2).await;
    let mut taken_off = slash("i2", &channel);
    taken_off["member"]["nick"] = Value::Null;
    forwarded(&relay, "f2", &taken_off).await;
    relay.replies("c1", 3).await;
    forwarded(&relay, "f3", &slash("i3", &channel)).await;
    relay.replies("c1", 4).await;
    assert_eq!(*names.lock().unwrap(), ["Nicky", "Nicky", "ann", "ann"]);
    relay.stop().await;
}
