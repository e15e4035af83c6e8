//! Messages in groups that start threads.

use super::{platform, terse};
use crate::support::memory_relay::{Running, event, start_answering, start_on};
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::access::{ByRole, Mode};
use hermes_relay::agent::{AgentInfo, Turn, TurnEnd};
use hermes_relay::config::Settings;
use hermes_relay::relay::{Record, ReplyMode};
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};
use std::path::Path;

/// Says which session it is asked in.
async fn answer(turn: Turn) -> TurnEnd {
    let session = turn.session.as_str().to_owned();
    turn.events.text(format!("{}: {session}", turn.input.text)).await;
    TurnEnd::Completed
}

/// A platform with threads.
fn threaded(name: &str) -> CapabilityDescriptor {
    CapabilityDescriptor {
        platform: name.to_owned(),
        supports_threads: true,
        ..platform(&["send", "thread_create"])
    }
}

async fn start(dir: &Path, platform: &CapabilityDescriptor, is_on: bool) -> Running {
    start_on(dir, ScriptedAgent::new(answer), platform, |settings| {
        terse(settings);
        settings.chat.group_threads = is_on;
    })
    .await
}

/// A message in a group.
fn in_group(platform: &str, id: &str, text: &str) -> Value {
    let mut event = event("c", id, text);
    event["source"]["platform"] = json!(platform);
    event["source"]["chat_type"] = json!("group");
    event
}

/// Delivers an event, and waits until it is acknowledged.
async fn deliver(relay: &Running, buffer_id: &str, event: Value) {
    relay.connector.deliver_buffered(buffer_id, event).await.unwrap();
    relay
        .seen("an acknowledgement", |seen| seen.acked(buffer_id) > 0)
        .await;
}

/// The threads that were opened: name and message.
fn opened(seen: &Record) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    seen.ops
        .iter()
        .filter(|op| op.kind() == Some("thread_create"))
        .map(|op| {
            assert_eq!(op.action["chat_id"], "c");
            assert_eq!(op.action["metadata"].get("message_id"), None);
            (text(&op.action["thread_name"]), text(&op.action["message_id"]))
        })
        .collect()
}

#[tokio::test]
async fn a_message_in_a_group_starts_a_thread_and_the_conversation_goes_on_there() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), &threaded("discord"), true).await;
    deliver(&relay, "b1", in_group("discord", "1", "why does\nit fail?")).await;
    let session = "agent:main:discord:thread:thread-1:thread-1";
    let first = format!("why does\nit fail?: {session}");
    assert_eq!(relay.replies("thread-1", 1).await, [first.as_str()]);
    // The same message again starts nothing.
    deliver(&relay, "b2", in_group("discord", "1", "why does\nit fail?")).await;
    let mut more = in_group("discord", "2", "fix it");
    for (key, value) in [
        ("chat_id", "thread-1"),
        ("thread_id", "thread-1"),
        ("chat_type", "thread"),
        ("parent_chat_id", "c"),
    ] {
        more["source"][key] = json!(value);
    }
    deliver(&relay, "b3", more).await;
    let both = relay.replies("thread-1", 2).await;
    assert_eq!(both, [first, format!("fix it: {session}")]);
    let seen = relay.stop().await;
    assert_eq!(opened(&seen), [("why does it fail?".to_owned(), "1".to_owned())]);
    assert!(seen.texts("c").is_empty());
}

#[tokio::test]
async fn elsewhere_a_thread_is_a_part_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), &threaded("matrix"), true).await;
    deliver(&relay, "b1", in_group("matrix", "1", "hi")).await;
    let answers = relay.replies("c", 1).await;
    assert_eq!(answers, ["hi: agent:main:matrix:group:c:thread-1"]);
    let seen = relay.stop().await;
    let sent = seen.ops.iter().find(|op| op.kind() == Some("send")).unwrap();
    assert_eq!(sent.action["metadata"]["thread_id"], "thread-1");
}

#[tokio::test]
async fn everything_else_stays_where_it_is_written() {
    let plain = CapabilityDescriptor {
        supports_threads: false,
        ..threaded("discord")
    };
    for (platform, is_on) in [
        (threaded("discord"), false),
        (plain, true),
        (threaded("telegram"), true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start(dir.path(), &platform, is_on).await;
        deliver(&relay, "b1", in_group(&platform.platform, "1", "hi")).await;
        relay.replies("c", 1).await;
        assert!(opened(&relay.stop().await).is_empty(), "{}", platform.platform);
    }
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), &threaded("discord"), true).await;
    deliver(&relay, "b1", in_group("discord", "1", "/status")).await;
    relay.replies("c", 1).await;
    deliver(&relay, "b2", event("d", "2", "a direct message")).await;
    relay.replies("d", 1).await;
    let mut inside = in_group("discord", "3", "in a thread");
    inside["source"]["thread_id"] = json!("t");
    deliver(&relay, "b3", inside).await;
    relay.replies("c", 2).await;
    assert!(opened(&relay.stop().await).is_empty());
}

#[tokio::test]
async fn bots_and_people_over_their_limits_start_no_threads() {
    for is_bot in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let agent = ScriptedAgent::new(answer);
        let relay = start_on(dir.path(), agent, &threaded("discord"), |settings| {
            terse(settings);
            settings.chat.group_threads = true;
            settings.access.mode = Mode::Open;
            settings.access.is_set = true;
            if is_bot {
                settings.access.max_turns_without_human = 1;
            } else {
                settings.access.limits.per_user_per_minute = Some(ByRole::All(1));
            }
        })
        .await;
        let said = |id: &str| {
            let mut event = in_group("discord", id, "hi");
            event["source"]["is_bot"] = json!(is_bot);
            event
        };
        deliver(&relay, "b1", said("1")).await;
        relay.replies("thread-1", 1).await;
        deliver(&relay, "b2", said("2")).await;
        let why = relay.replies("c", 1).await;
        let status = relay
            .wait_for_status("quiet", |status| status.sessions_active == 0)
            .await;
        assert_eq!(status.tally.turns_started, 1, "{why:?}");
        assert_eq!(opened(&relay.stop().await).len(), 1, "{why:?}");
    }
}

#[tokio::test]
async fn without_a_thread_the_answer_comes_in_the_group() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = ReplyMode::Refuse("no permission".to_owned());
    let relay = start_answering(
        dir.path(),
        ScriptedAgent::new(answer),
        &threaded("discord"),
        refuse,
        |settings| {
            terse(settings);
            settings.chat.group_threads = true;
        },
    )
    .await;
    let group = in_group("discord", "1", "hi");
    relay.connector.deliver_buffered("b1", group).await.unwrap();
    relay.seen("a thread", |seen| !opened(seen).is_empty()).await;
    relay.connector.set_reply_mode(ReplyMode::Apply);
    let answers = relay.replies("c", 1).await;
    assert!(
        answers[0].starts_with("hi: agent:main:discord:group:c"),
        "{answers:?}"
    );
    relay.stop().await;
}

/// An agent that says where it works, and remembers.
fn at_work() -> ScriptedAgent {
    let agent = ScriptedAgent::new(|turn: Turn| async move {
        let place = turn.workdir.as_deref().map(|place| place.display().to_string());
        let text = format!("{} in {}", turn.input.text, place.unwrap_or_default());
        turn.events.text(text).await;
        TurnEnd::Completed
    });
    agent.with_info(AgentInfo {
        name: "scripted".into(),
        remembers: true,
        ..AgentInfo::default()
    })
}

/// Two projects, and threads for groups.
fn with_projects(settings: &mut Settings) {
    terse(settings);
    settings.chat.group_threads = true;
    let projects = json!({"site": {"workdir": "/"}, "docs": {"workdir": "/tmp"}});
    settings.projects = serde_json::from_value(projects).unwrap();
}

#[tokio::test]
async fn a_thread_has_the_project_of_its_group_in_its_name_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), at_work(), &threaded("discord"), with_projects).await;
    deliver(&relay, "b1", in_group("discord", "1", "/project site")).await;
    relay.replies("c", 1).await;
    deliver(&relay, "b2", in_group("discord", "2", "fix it")).await;
    relay
        .seen("an answer", |seen| {
            seen.ops.iter().any(|op| op.text() == Some("fix it in /"))
        })
        .await;
    relay.stop().await;
    // The project of the group has to be read first.
    let relay = start_on(dir.path(), at_work(), &threaded("discord"), with_projects).await;
    deliver(&relay, "b3", in_group("discord", "3", "and this")).await;
    let names = |seen: &Record| opened(seen).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let seen = relay.seen("a thread", |seen| !opened(seen).is_empty()).await;
    assert_eq!(names(&seen), ["site: and this"]);
    relay
        .seen("an answer", |seen| {
            seen.ops.iter().any(|op| op.text() == Some("and this in /"))
        })
        .await;
    // Another project in one thread is not the one of the group.
    let thread = |id: &str, text: &str| {
        let mut event = in_group("discord", id, text);
        for (key, value) in [("chat_id", "t7"), ("thread_id", "t7"), ("chat_type", "thread")] {
            event["source"][key] = json!(value);
        }
        event
    };
    deliver(&relay, "b4", thread("4", "/project docs")).await;
    relay.replies("t7", 1).await;
    deliver(&relay, "b5", thread("5", "here")).await;
    assert_eq!(relay.replies("t7", 2).await[1], "[docs]\nhere in /tmp");
    deliver(&relay, "b6", in_group("discord", "6", "again")).await;
    relay
        .seen("an answer", |seen| {
            seen.ops.iter().any(|op| op.text() == Some("again in /"))
        })
        .await;
    relay.stop().await;
}

#[tokio::test]
async fn an_edit_while_the_thread_opens_is_what_the_agent_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(answer).with_info(AgentInfo {
        name: "tested".into(),
        remembers: true,
        ..AgentInfo::default()
    });
    let relay = start_on(dir.path(), agent, &threaded("discord"), |settings| {
        terse(settings);
        settings.chat.group_threads = true;
    })
    .await;
    let mut edited = in_group("discord", "1", "second");
    edited["message_is_edit"] = json!(true);
    for (buffer_id, event) in [("b1", in_group("discord", "1", "first")), ("b2", edited)] {
        relay.connector.deliver_buffered(buffer_id, event).await.unwrap();
    }
    let answers = relay.replies("thread-1", 1).await;
    assert!(answers[0].starts_with("second: "), "{answers:?}");
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    assert_eq!(relay.stop().await.texts("thread-1").len(), 1);
}
