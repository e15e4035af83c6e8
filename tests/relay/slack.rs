//! Slack in a running relay: where replies go, and what is said outside threads where each such message is a session of its own.

use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::adapter::{SlackConfig, SlackReplyMode};
use hermes_relay::agent::{AgentEvent, EchoAgent, Media, MediaLocation, TurnEnd};
use hermes_relay::config::Settings;
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};

use crate::sessions::HANG;
use crate::support::memory_relay::{Running, event, start_on};
use crate::support::scripted_agent::ScriptedAgent;

fn platform(ops: &[&str]) -> CapabilityDescriptor {
    CapabilityDescriptor {
        supports_edit: ops.contains(&"edit"),
        supported_ops: ops.iter().map(|&op| op.to_owned()).collect(),
        ..CapabilityDescriptor::placeholder("slack")
    }
}

fn written(chat: &str, chat_type: &str, id: &str, user: &str, text: &str) -> Value {
    let mut said = event(chat, id, text);
    said["source"]["platform"] = json!("slack");
    said["source"]["chat_type"] = json!(chat_type);
    said["source"]["user_id"] = json!(user);
    said
}

async fn say(relay: &Running, chat: &str, chat_type: &str, id: &str, user: &str, text: &str) {
    let said = written(chat, chat_type, id, user, text);
    let buffer_id = format!("{chat}-{id}");
    relay.connector.deliver_buffered(&buffer_id, said).await.unwrap();
}

/// Answers with a picture and a text.
fn painter() -> ScriptedAgent {
    ScriptedAgent::new(|turn| async move {
        let picture = AgentEvent::Media(Media {
            location: MediaLocation::Url("https://files.example/cat.png".to_owned()),
            caption: String::new(),
            kind: None,
            name: None,
        });
        turn.events.emit(picture).await;
        turn.events.text("a cat").await;
        TurnEnd::Completed
    })
}

fn quiet(settings: &mut Settings) {
    settings.streaming.mode = StreamMode::Off;
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
}

#[tokio::test]
async fn text_and_files_go_into_the_chat_or_into_a_thread_as_the_settings_say() {
    let modes = [
        ("C_FLAT".to_owned(), SlackReplyMode::Channel),
        ("D_THREAD".to_owned(), SlackReplyMode::Thread),
    ];
    for (reply_in_thread, chat, chat_type, anchored) in [
        (true, "D1", "dm", true),
        (false, "D1", "dm", false),
        (false, "C1", "channel", true),
        (true, "C_FLAT", "channel", false),
        (false, "D_THREAD", "dm", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start_on(
            dir.path(),
            painter(),
            &platform(&["send", "send_media"]),
            |settings| {
                quiet(settings);
                settings.slack = SlackConfig {
                    reply_in_thread,
                    channel_reply_modes: modes.clone().into(),
                    ..SlackConfig::default()
                };
            },
        )
        .await;
        say(&relay, chat, chat_type, "17.1", "u1", "a cat, please").await;
        relay.seen("both", |seen| seen.ops.len() == 2).await;
        let seen = relay.stop().await;
        for (op, kind) in seen.ops.iter().zip(["send_media", "send"]) {
            assert_eq!(op.kind(), Some(kind));
            let wanted = if anchored { json!("17.1") } else { Value::Null };
            let what = format!("{reply_in_thread} {chat}: {op:?}");
            assert_eq!(op.action["reply_to"], wanted, "{what}");
            assert_eq!(op.metadata()["thread_id"], wanted, "{what}");
        }
    }
}

#[tokio::test]
async fn a_link_that_came_late_is_posted_anew_and_the_message_that_grew_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| async move {
        turn.events.text("See this: ").await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        turn.events.text("https://example.com/x").await;
        TurnEnd::Completed
    });
    let ops = ["send", "edit", "delete"];
    let relay = start_on(dir.path(), agent, &platform(&ops), |settings| {
        quiet(settings);
        settings.streaming.mode = StreamMode::Edit;
        settings.streaming.interval_ms = 10;
        settings.streaming.unfurl_links = Some(true);
    })
    .await;
    say(&relay, "D1", "dm", "17.1", "u1", "a link, please").await;
    let removed = |op: &hermes_relay::relay::SeenOp| op.kind() == Some("delete");
    let seen = relay.seen("a removal", |seen| seen.ops.iter().any(removed)).await;
    let kinds: Vec<_> = seen.ops.iter().filter_map(|op| op.kind()).collect();
    let ops: Vec<_> = seen.ops.iter().collect();
    let [first, .., last, delete] = ops[..] else {
        panic!("{kinds:?}")
    };
    assert_eq!(
        (first.kind(), last.kind()),
        (Some("send"), Some("send")),
        "{kinds:?}"
    );
    assert_eq!(last.text(), Some("See this: https://example.com/x"));
    assert_eq!(delete.action["message_id"], json!(first.message_id));
    assert!(
        kinds.iter().filter(|kind| **kind == "send").count() == 2,
        "{kinds:?}"
    );
    relay.wait_for_turns(0).await;
    relay.stop().await;
}

#[tokio::test]
async fn stop_stops_the_turns_of_whoever_asks_in_that_chat_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), EchoAgent, &platform(&["send"]), |settings| {
        quiet(settings);
        settings.shutdown.drain_secs = 0;
    })
    .await;
    for (chat, chat_type, id, user) in [
        ("D1", "dm", "1", "u1"),
        ("D1", "dm", "2", "u1"),
        ("C1", "channel", "3", "u1"),
        ("C1", "channel", "4", "u2"),
    ] {
        say(&relay, chat, chat_type, id, user, HANG).await;
    }
    relay.wait_for_turns(4).await;
    say(&relay, "D1", "dm", "5", "u1", "/stop").await;
    relay
        .seen("an answer", |seen| seen.texts("D1").contains(&"Stopped."))
        .await;
    let status = relay.wait_for_turns(2).await;
    assert_eq!(status.tally.turns_stopped, 2);
    // As Slack's own command.
    say(&relay, "C1", "channel", "6", "u2", "/hermes stop").await;
    relay.wait_for_turns(1).await;
    let sessions = relay.handle.sessions(10).await.unwrap().sessions;
    let left: Vec<_> = sessions.iter().map(|session| session.session.as_str()).collect();
    assert_eq!(left, ["agent:main:slack:channel:guild:C1:3"]);
    // A command without a message.
    say(&relay, "D1", "dm", "8", "u1", HANG).await;
    relay.wait_for_turns(2).await;
    let mut nameless = written("D1", "dm", "", "u1", "/stop");
    nameless.as_object_mut().unwrap().remove("message_id");
    nameless["source"].as_object_mut().unwrap().remove("message_id");
    relay.connector.deliver_buffered("b9", nameless).await.unwrap();
    assert_eq!(relay.wait_for_turns(1).await.tally.turns_stopped, 4);
    // Nothing of theirs runs there any more.
    say(&relay, "D1", "dm", "7", "u1", "/stop").await;
    let nothing = |text: &&str| text.starts_with("Nothing is running");
    relay
        .seen("an answer", |seen| seen.texts("D1").iter().any(nothing))
        .await;
    assert_eq!(relay.wait_for_turns(1).await.tally.turns_stopped, 4);
    relay.stop().await;
}

/// Says where it works and what it was asked, and hangs when told to.
fn worker() -> ScriptedAgent {
    ScriptedAgent::new(|turn| async move {
        if turn.input.text == HANG {
            turn.cancel.cancelled().await;
            return TurnEnd::Cancelled { confirmed: true };
        }
        let workdir = turn.workdir.as_deref().and_then(std::path::Path::file_name);
        let workdir = workdir.and_then(std::ffi::OsStr::to_str).unwrap_or("nowhere");
        turn.events
            .text(format!("{} in {workdir}", turn.input.text))
            .await;
        TurnEnd::Completed
    })
}

/// Writes in a channel as `u1`, in a thread or outside, and waits for the answer; returns its thread and its text.
async fn ask(relay: &Running, id: &str, thread: Option<&str>, text: &str) -> (String, String) {
    let before = relay.connector.record().borrow().ops.len();
    let mut said = written("C1", "channel", id, "u1", text);
    if let Some(thread) = thread {
        said["source"]["thread_id"] = json!(thread);
    }
    let buffer_id = format!("C1-{id}");
    relay.connector.deliver_buffered(&buffer_id, said).await.unwrap();
    let seen = relay.seen(text, |seen| seen.ops.len() > before).await;
    let op = &seen.ops[before];
    let thread = op.metadata()["thread_id"].as_str().unwrap_or_default();
    (thread.to_owned(), op.text().unwrap_or_default().to_owned())
}

fn answer(thread: &str, text: &str) -> (String, String) {
    (thread.to_owned(), text.to_owned())
}

#[tokio::test]
async fn a_project_that_is_set_outside_threads_is_the_chats_and_nobody_is_asked_about_each_message() {
    let (dir, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let adjust = |settings: &mut Settings| {
        quiet(settings);
        let project = |name: &str| {
            let workdir = work.path().join(name);
            std::fs::create_dir_all(&workdir).unwrap();
            json!({"workdir": workdir})
        };
        let all = json!({"pa": project("pa"), "pb": project("pb")});
        settings.projects = serde_json::from_value(all).unwrap();
    };
    let relay = start_on(dir.path(), worker(), &platform(&["send"]), adjust).await;
    assert_eq!(ask(&relay, "1", None, "a").await, answer("1", "a in nowhere"));
    assert_eq!(
        ask(&relay, "2", Some("1"), "b").await,
        answer("1", "b in nowhere")
    );
    let set = "The project is pb from now on: tested answers, in a new conversation.";
    assert_eq!(ask(&relay, "3", None, "/project pb").await, answer("3", set));
    assert_eq!(ask(&relay, "4", None, "c").await, answer("4", "c in pb"));
    assert_eq!(ask(&relay, "5", Some("3"), "d").await, answer("3", "d in pb"));
    // A thread keeps the project that it began with, and may have another.
    let set = "The project is pa from now on: tested answers, in a new conversation.";
    assert_eq!(ask(&relay, "6", None, "/project pa").await, answer("6", set));
    assert_eq!(ask(&relay, "7", Some("4"), "e").await, answer("4", "e in pb"));
    let unset = "No project is set from now on: tested answers, in a new conversation.";
    assert_eq!(
        ask(&relay, "8", Some("9"), "/project off").await,
        answer("9", unset)
    );
    // From the list, in its thread or outside.
    for (id, thread) in [("10", Some("10")), ("20", None)] {
        let (_, shown) = ask(&relay, id, None, "/project").await;
        assert!(shown.ends_with("1. pa\n2. pb"), "{shown}");
        let number = if thread.is_some() { "2" } else { "1" };
        let (_, set) = ask(&relay, &format!("{id}1"), thread, number).await;
        assert!(set.starts_with("The project is p"), "{set}");
        let (_, said) = ask(&relay, &format!("{id}2"), None, "f").await;
        let project = if thread.is_some() { "pb" } else { "pa" };
        assert_eq!(said, format!("f in {project}"));
    }
    relay.stop().await;
    let relay = start_on(dir.path(), worker(), &platform(&["send"]), adjust).await;
    assert_eq!(ask(&relay, "30", None, "g").await, answer("30", "g in pa"));
    assert_eq!(ask(&relay, "31", Some("4"), "h").await, answer("4", "h in pb"));
    relay.stop().await;
}

#[tokio::test]
async fn retry_and_status_outside_threads_are_about_what_their_author_has_in_the_chat() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), worker(), &platform(&["send"]), |settings| {
        quiet(settings);
        settings.shutdown.drain_secs = 0;
    })
    .await;
    assert_eq!(ask(&relay, "1", None, "a").await, answer("1", "a in nowhere"));
    say(&relay, "C1", "channel", "2", "u2", "of another").await;
    relay.replies("C1", 2).await;
    assert_eq!(
        ask(&relay, "3", None, "/retry").await,
        answer("1", "a in nowhere")
    );
    assert_eq!(
        ask(&relay, "4", None, "/status").await,
        answer("4", "Agent tested is idle.")
    );
    say(&relay, "C1", "channel", "5", "u1", HANG).await;
    relay.wait_for_turns(1).await;
    assert_eq!(
        ask(&relay, "6", None, "/status").await,
        answer("6", "Agent tested is working on a message.")
    );
    let before = relay.connector.record().borrow().ops.len();
    say(&relay, "C1", "channel", "7", "u2", "/status").await;
    let seen = relay.seen("an answer", |seen| seen.ops.len() > before).await;
    assert_eq!(
        seen.ops[before].text(),
        Some("Agent tested is idle."),
        "of another"
    );
    relay.stop().await;
}

#[tokio::test]
async fn outside_threads_a_command_about_a_conversation_says_where_to_write_it() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), worker(), &platform(&["send"]), quiet).await;
    assert_eq!(ask(&relay, "1", None, "a").await, answer("1", "a in nowhere"));
    let hint = |command: &str| {
        format!(
            "Outside threads, each message begins a conversation of its own. Write {command} in the thread that it is for."
        )
    };
    for (id, command, name) in [
        ("2", "/new", "/new"),
        ("3", "/model opus", "/model"),
        ("4", "/mode", "/mode"),
        ("5", "/diff", "/diff"),
    ] {
        assert_eq!(ask(&relay, id, None, command).await, answer(id, &hint(name)));
        let (thread, said) = ask(&relay, &format!("{id}1"), Some("1"), command).await;
        assert!(thread == "1" && said != hint(name), "{said}");
    }
    // Who goes on with an earlier conversation does so in the thread of the command.
    for (id, command) in [("6", "/sessions"), ("7", "/resume 1")] {
        let (thread, said) = ask(&relay, id, None, command).await;
        assert!(thread == id && !said.starts_with("Outside"), "{said}");
        let before = relay.connector.record().borrow().ops.len();
        let mut nameless = written("C1", "channel", "", "u1", command);
        nameless.as_object_mut().unwrap().remove("message_id");
        nameless["source"].as_object_mut().unwrap().remove("message_id");
        let buffer_id = format!("own {id}");
        relay
            .connector
            .deliver_buffered(&buffer_id, nameless)
            .await
            .unwrap();
        let seen = relay.seen(command, |seen| seen.ops.len() > before).await;
        let name = command.split(' ').next().unwrap();
        assert_eq!(
            seen.ops[before].text(),
            Some(&*hint(name)),
            "a command without a message"
        );
    }
    relay.stop().await;
}

#[tokio::test]
async fn queue_outside_threads_is_about_what_waits_behind_its_authors_turns_in_the_chat() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), worker(), &platform(&["send", "prompt"]), |settings| {
        quiet(settings);
        settings.shutdown.drain_secs = 0;
    })
    .await;
    let in_thread = async |id: &str, thread: &str, user: &str, text: &str| {
        let mut said = written("C1", "channel", id, user, text);
        said["source"]["thread_id"] = json!(thread);
        let buffer_id = format!("C1-{id}");
        relay.connector.deliver_buffered(&buffer_id, said).await.unwrap();
    };
    for (id, user) in [("1", "u1"), ("2", "u1"), ("3", "u2")] {
        say(&relay, "C1", "channel", id, user, HANG).await;
    }
    relay.wait_for_turns(3).await;
    in_thread("4", "2", "u1", "of the second").await;
    in_thread("5", "3", "u2", "of another").await;
    in_thread("6", "1", "u1", "of the first").await;
    relay
        .wait_for_status("three wait", |status| status.messages_waiting == 3)
        .await;
    say(&relay, "C1", "channel", "7", "u1", "/queue").await;
    let prompts = |seen: &hermes_relay::relay::Record| -> Vec<Value> {
        let prompts = seen.ops.iter().filter(|op| op.kind() == Some("prompt"));
        prompts.map(|op| op.action.clone()).collect()
    };
    let seen = relay.seen("what waits", |seen| prompts(seen).len() == 1).await;
    let shown = prompts(&seen)[0].to_string();
    let at = ["of the second", "of the first", "of another"].map(|text| shown.find(text));
    assert!(at[0].is_some() && at[0] < at[1] && at[2].is_none(), "{shown}");
    // The second of the list waits in another conversation than the first.
    let mut press = written("C1", "channel", "the question's own id", "u1", "/o1");
    press["source"]["thread_id"] = json!("7");
    press["prompt_response"] = json!({"prompt_id": prompts(&seen)[0]["prompt_id"], "option_id": "o1"});
    relay.connector.deliver_buffered("press", press).await.unwrap();
    relay
        .wait_for_status("two wait", |status| status.messages_waiting == 2)
        .await;
    let sessions = relay.handle.sessions(10).await.unwrap().sessions;
    let waits = |thread: &str| {
        let session = format!("agent:main:slack:channel:guild:C1:{thread}");
        let found = sessions.iter().find(|known| known.session.as_str() == session);
        found.map(|known| known.waiting)
    };
    assert_eq!((waits("1"), waits("2"), waits("3")), (Some(0), Some(1), Some(1)));
    relay.stop().await;
}

#[tokio::test]
async fn queue_and_status_outside_threads_know_what_waits_for_a_free_slot_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let start = async || {
        start_on(dir.path(), worker(), &platform(&["send", "prompt"]), |settings| {
            quiet(settings);
            settings.sessions.max_concurrent_turns = 1;
            settings.shutdown.drain_secs = 0;
        })
        .await
    };
    let relay = start().await;
    say(&relay, "C2", "channel", "1", "u3", HANG).await;
    relay.wait_for_turns(1).await;
    for (chat, id, user, text) in [
        ("C1", "2", "u2", "of another"),
        ("C1", "3", "u1", HANG),
        ("C2", "4", "u1", "elsewhere"),
        ("C1", "5", "u1", "the second"),
    ] {
        say(&relay, chat, "channel", id, user, text).await;
    }
    relay
        .wait_for_status("four wait", |status| status.messages_waiting == 4)
        .await;
    let waiting = "Agent tested is idle, 2 waiting.";
    assert_eq!(ask(&relay, "6", None, "/status").await, answer("6", waiting));
    say(&relay, "C1", "channel", "7", "u1", "/queue").await;
    let is_list = |op: &hermes_relay::relay::SeenOp| op.kind() == Some("prompt");
    let seen = relay
        .seen("what waits", |seen| seen.ops.iter().any(is_list))
        .await;
    let list = seen.ops.iter().find(|op| is_list(op)).unwrap().action.to_string();
    let is_listed = [HANG, "the second", "of another", "elsewhere"].map(|text| list.contains(text));
    assert_eq!(is_listed, [true, true, false, false], "{list}");
    relay.crash().await;
    // The turn that ran is not run again, and the message of another is answered: now the first of the two runs.
    let relay = start().await;
    relay
        .seen("an answer", |seen| {
            seen.texts("C1").contains(&"of another in nowhere")
        })
        .await;
    relay
        .wait_for_status("one runs and two wait", |status| {
            (status.turns_running, status.messages_waiting) == (1, 2)
        })
        .await;
    say(&relay, "C1", "channel", "8", "u1", "/status").await;
    let is_answer = |op: &hermes_relay::relay::SeenOp| op.metadata()["thread_id"] == "8";
    let seen = relay
        .seen("the status", |seen| seen.ops.iter().any(is_answer))
        .await;
    let status = seen.ops.iter().find(|op| is_answer(op)).unwrap();
    assert_eq!(
        status.text(),
        Some("Agent tested is working on a message, 1 waiting.")
    );
    relay.stop().await;
}

#[tokio::test]
async fn what_is_sent_to_a_chat_goes_to_no_thread_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), worker(), &platform(&["send"]), quiet).await;
    for (id, thread) in [("1", None), ("2", Some("1"))] {
        ask(&relay, id, thread, "a").await;
        let before = relay.connector.record().borrow().ops.len();
        relay.handle.send("C1", "hello").await.unwrap();
        let seen = relay.seen("it", |seen| seen.ops.len() > before).await;
        assert_eq!(seen.ops[before].metadata()["thread_id"], Value::Null);
        assert_eq!(seen.ops[before].metadata()["scope_id"], "guild");
    }
    relay.stop().await;
}
