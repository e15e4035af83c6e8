//! Projects: set by an owner or by a route, for a chat or a thread, also after a restart.

use super::{Scripted, list, press, say, start};
use crate::prompts::{BUTTONS, PLAIN};
use crate::support::memory_relay::{Running, event};
use hermes_relay::agent::Route;
use hermes_relay::config::Settings;
use serde_json::{Value, json};
use std::path::Path;

/// Projects `site` and `docs` in directories of their own, and people with roles.
fn projects(settings: &mut Settings, dir: &Path) {
    let project = |name: &str| {
        let workdir = dir.join(name);
        std::fs::create_dir_all(&workdir).unwrap();
        json!({"workdir": workdir})
    };
    let all = json!({"site": project("site"), "docs": project("docs")});
    settings.projects = serde_json::from_value(all).unwrap();
    let rule = |user: &str, role: &str| json!({"platform": "discord", "user": user, "role": role});
    let people = json!({"people": [rule("user-of-c1", "owner"), rule("user-of-c2", "user")]});
    settings.access = serde_json::from_value(people).unwrap();
}

fn in_thread(id: &str, thread: &str, text: &str) -> Value {
    let mut event = event("c1", id, text);
    event["source"]["chat_type"] = json!("group");
    event["source"]["thread_id"] = json!(thread);
    event
}

/// Writes in a thread and waits until the chat has so many messages; returns the last.
async fn say_in_thread(relay: &Running, thread: &str, text: &str, count: usize) -> String {
    let id = format!("{thread}-{count}");
    relay
        .connector
        .deliver_buffered(&id, in_thread(&id, thread, text))
        .await
        .unwrap();
    relay.replies("c1", count).await.pop().unwrap()
}

#[tokio::test]
async fn an_owner_sets_the_project_of_a_chat_and_others_do_not() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let adjust = |settings: &mut Settings| projects(settings, store.path());
    let relay = start(dir.path(), Scripted::new(store.path(), "load"), PLAIN, adjust).await;
    assert_eq!(
        say(&relay, "c2", "/project site").await,
        "Only an owner sets the project of a chat."
    );
    let list = say(&relay, "c1", "/project").await;
    assert_eq!(
        list,
        "None is set here. Choose with /project NAME, or /project off.\n1. docs\n2. site"
    );
    let set = "The project is site from now on: tested answers, in a new conversation.";
    assert_eq!(say(&relay, "c1", "2").await, set);
    let site = store.path().join("site").display().to_string();
    let first = say(&relay, "c1", "where").await;
    assert_eq!(
        first,
        format!("[site]\n{site}"),
        "the first answer says the project"
    );
    assert_eq!(say(&relay, "c1", "where").await, site);
    assert_eq!(say(&relay, "c1", "/new").await, "Started a new conversation.");
    assert_eq!(say(&relay, "c1", "where").await, format!("[site]\n{site}"));
    assert_eq!(
        say(&relay, "c1", "/project nowhere").await,
        "There is no project named nowhere. Projects: docs, site."
    );
    relay.stop().await;
    let adjust = |settings: &mut Settings| projects(settings, store.path());
    let relay = start(dir.path(), Scripted::new(store.path(), "load"), PLAIN, adjust).await;
    assert_eq!(
        say(&relay, "c1", "/status").await,
        "Agent tested is idle. The project is site.",
        "after a restart"
    );
    assert_eq!(say(&relay, "c1", "where").await, site);
    assert_ne!(say(&relay, "c2", "where").await, site, "another chat");
    assert_eq!(
        say(&relay, "c1", "/project off").await,
        "No project is set from now on: tested answers, in a new conversation."
    );
    assert_ne!(say(&relay, "c1", "where").await, site);
    relay.stop().await;
}

#[tokio::test]
async fn a_thread_has_the_project_of_its_route() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let adjust = |settings: &mut Settings| {
        projects(settings, store.path());
        settings.routes = vec![Route {
            thread: Some("t1".to_owned()),
            project: Some("docs".to_owned()),
            ..Route::default()
        }];
    };
    let relay = start(dir.path(), Scripted::new(store.path(), ""), PLAIN, adjust).await;
    let docs = store.path().join("docs").display().to_string();
    let headed = format!("[docs]\n{docs}");
    assert_eq!(say_in_thread(&relay, "t1", "where", 1).await, headed);
    assert_eq!(
        say_in_thread(&relay, "t1", "/project site", 2).await,
        "A route sets the agent here, so no project can be set."
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_new_thread_asks_an_owner_once() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let adjust = |settings: &mut Settings| projects(settings, store.path());
    let relay = start(dir.path(), Scripted::new(store.path(), ""), BUTTONS, adjust).await;
    let first = in_thread("1", "t9", "hello");
    relay.connector.deliver_buffered("1", first).await.unwrap();
    let asked = list(&relay, "c1").await;
    let text = asked.text().unwrap();
    assert!(text.starts_with("Which project is this topic for?"), "{text}");
    let mut pressed = press(&asked, "o1", "user-of-c1", "p1");
    pressed["source"]["chat_type"] = json!("group");
    pressed["source"]["thread_id"] = json!("t9");
    relay
        .seen("the answer", |seen| seen.texts("c1").contains(&"heard: hello"))
        .await;
    relay.connector.deliver_buffered("p1", pressed).await.unwrap();
    let set = "The project is site from now on: tested answers, in a new conversation.";
    relay
        .seen("the project", |seen| seen.texts("c1").contains(&set))
        .await;
    let before = relay.connector.record().borrow().texts("c1").len();
    let site = store.path().join("site").display().to_string();
    let headed = format!("[site]\n{site}");
    assert_eq!(say_in_thread(&relay, "t9", "where", before + 1).await, headed);
    relay.stop().await;
}

#[tokio::test]
async fn a_command_in_a_new_thread_asks_nobody_and_the_first_message_does() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let adjust = |settings: &mut Settings| projects(settings, store.path());
    let relay = start(dir.path(), Scripted::new(store.path(), ""), PLAIN, adjust).await;
    let status = say_in_thread(&relay, "t9", "/status", 1).await;
    assert_eq!(status, "Agent tested is idle.");
    say_in_thread(&relay, "t9", "hello", 3).await;
    let texts = relay.replies("c1", 3).await;
    assert!(texts[1..].iter().any(|text| text == "heard: hello"), "{texts:?}");
    assert!(
        texts[1..]
            .iter()
            .any(|text| text.starts_with("Which project is this topic for?")),
        "{texts:?}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn one_project_alone_needs_no_name() {
    let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let adjust = |settings: &mut Settings| {
        projects(settings, store.path());
        settings.projects.remove("docs");
    };
    let relay = start(dir.path(), Scripted::new(store.path(), ""), PLAIN, adjust).await;
    say(&relay, "c1", "/project site").await;
    let site = store.path().join("site").display().to_string();
    assert_eq!(say(&relay, "c1", "where").await, site);
    relay.stop().await;
}
