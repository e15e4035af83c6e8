//! Messages that are edited or deleted after they came, `/retry` and `/queue`.

use super::{platform, terse, text};
use crate::deliveries::template;
use crate::sessions::pending_ops::repair;
use crate::support::memory_relay::{Running, event, session, start_on};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;
use hermes_relay::access::{ByRole, Mode, PersonRule, Role};
use hermes_relay::agent::{AgentInfo, Turn, TurnEnd};
use hermes_relay::config::{BusyMode, ServeConfig, Settings};
use hermes_relay::relay::{HandedItem, SeenOp, SubmitError};
use hermes_relay::serve::{ControlService, Serving};
use hermes_relay::store::{InboxSeq, Item, Repair};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What it was asked, and what lets its first turn go on.
#[derive(Default)]
struct Asked {
    texts: Mutex<Vec<String>>,
    go_on: Notify,
}

impl Asked {
    fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap().clone()
    }
}

/// Notes what it is asked, holds at `hold` until it may go on, and echoes.
fn agent(asked: &Arc<Asked>) -> ScriptedAgent {
    let agent = ScriptedAgent::sharing(asked, |turn: Turn, asked| async move {
        asked.texts.lock().unwrap().push(turn.input.text.clone());
        if turn.input.text == "hold" {
            tokio::select! {
                () = asked.go_on.notified() => {}
                () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
            }
        }
        turn.events.text(format!("echo: {}", turn.input.text)).await;
        TurnEnd::Completed
    });
    let asked = Arc::clone(asked);
    agent.steered(move |input| {
        asked
            .texts
            .lock()
            .unwrap()
            .push(format!("steered: {}", input.text));
        true
    })
}

async fn start(dir: &Path, asked: &Arc<Asked>, adjust: impl FnOnce(&mut Settings)) -> Running {
    let platform = platform(&["send", "edit", "prompt"]);
    start_on(dir, agent(asked), &platform, |settings| {
        terse(settings);
        adjust(settings);
    })
    .await
}

/// Whoever writes in the chat "a" may write so often in a minute.
fn limit(settings: &mut Settings, per_minute: u64) {
    settings.access.mode = Mode::List;
    settings.access.people = vec![PersonRule {
        platform: "discord".to_owned(),
        user: "user-of-a".to_owned(),
        role: Role::User,
        ..PersonRule::default()
    }];
    settings.access.limits.per_user_per_minute = Some(ByRole::All(per_minute));
}

/// Delivers a further event about a message.
async fn change(relay: &Running, buffer_id: &str, id: &str, text: &str, mark: &str) {
    let mut event = event("a", id, text);
    event[mark] = json!(true);
    relay.connector.deliver_buffered(buffer_id, event).await.unwrap();
    relay
        .seen("an acknowledgement", |seen| seen.acked(buffer_id) == 1)
        .await;
}

/// One message runs, and these wait.
async fn hold(relay: &Running, asked: &Asked, waiting: &[(&str, &str)]) {
    hold_next(relay, asked, 0, waiting).await;
}

/// The same after so many others.
async fn hold_next(relay: &Running, asked: &Asked, others: usize, waiting: &[(&str, &str)]) {
    relay.deliver("a", "1", "hold").await;
    eventually("the agent is asked", async || asked.texts().len() > others).await;
    for (id, text) in waiting {
        relay.deliver("a", id, text).await;
    }
    let acks = others + waiting.len() + 1;
    relay
        .seen("acknowledgements", |seen| seen.acks.len() == acks)
        .await;
}

#[tokio::test]
async fn a_message_that_waits_is_replaced_by_its_edit_and_keeps_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[("2", "secnod"), ("3", "third")]).await;
    change(&relay, "e1", "2", "sec", "message_is_edit").await;
    change(&relay, "e2", "2", "second", "message_is_edit").await;
    asked.go_on.notify_one();
    relay.replies("a", 3).await;
    assert_eq!(asked.texts(), ["hold", "second", "third"]);
    // Afterwards it is too late, and the same edit once more is none.
    change(&relay, "e3", "2", "other", "message_is_edit").await;
    change(&relay, "e4", "99", "never seen", "message_is_edit").await;
    relay.wait_for_turns(0).await;
    relay.stop().await;
    assert_eq!(asked.texts().len(), 3);
}

#[tokio::test]
async fn messages_that_wait_only_in_the_journal_are_counted_edited_and_deleted_as_all_that_wait() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |settings| {
        settings.sessions.max_queue = 2;
        settings.sessions.overflow_notice = None;
    })
    .await;
    let waiting = [
        ("2", "secnod"),
        ("3", "third"),
        ("4", "fuorth"),
        ("5", "fifth"),
        ("6", "sixth"),
    ];
    hold(&relay, &asked, &waiting).await;
    change(&relay, "e2", "2", "second", "message_is_edit").await;
    change(&relay, "e4", "4", "four", "message_is_edit").await;
    change(&relay, "e4+", "4", "fourth", "message_is_edit").await;
    change(&relay, "d5", "5", "", "message_is_deleted").await;
    // The deletion comes again.
    change(&relay, "d5+", "5", "", "message_is_deleted").await;
    let sessions = relay.handle.sessions(1).await.unwrap();
    assert_eq!(sessions.sessions[0].waiting, 4);
    relay.deliver("a", "7", "/status").await;
    relay.deliver("a", "8", "/queue").await;
    let seen = relay
        .seen("what waits", |seen| {
            seen.ops.iter().any(|op| op.kind() == Some("prompt"))
        })
        .await;
    assert!(seen.texts("a")[0].contains("4 messages"), "{:?}", seen.texts("a"));
    let shown = seen.ops.iter().find(|op| op.kind() == Some("prompt")).unwrap();
    assert!(text(shown).starts_with("4 messages wait."), "{}", text(shown));
    asked.go_on.notify_one();
    let status = relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    assert_eq!(status.messages_waiting, 0);
    assert_eq!(asked.texts(), ["hold", "second", "third", "fourth", "sixth"]);
}

#[tokio::test]
async fn a_message_that_is_deleted_while_it_waits_never_runs() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[("2", "second"), ("3", "third")]).await;
    change(&relay, "d2", "2", "", "message_is_deleted").await;
    // One that runs is not stopped by that.
    change(&relay, "d1", "1", "", "message_is_deleted").await;
    asked.go_on.notify_one();
    assert_eq!(relay.replies("a", 2).await, ["echo: hold", "echo: third"]);
    let status = relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    assert_eq!(status.tally.turns_started, 2);
    relay.stop().await;
}

#[tokio::test]
async fn an_edit_of_the_message_that_is_being_answered_goes_as_busy_mode_says() {
    for (mode, expected) in [
        (BusyMode::Queue, vec!["hold", "hold on"]),
        (BusyMode::Interrupt, vec!["hold", "hold on"]),
        (
            BusyMode::Steer,
            vec!["hold", "steered: hold on", "steered: hold on now"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let asked: Arc<Asked> = Arc::default();
        let relay = start(dir.path(), &asked, |settings| settings.sessions.busy_mode = mode).await;
        hold(&relay, &asked, &[]).await;
        change(&relay, "e1", "1", "hold on", "message_is_edit").await;
        // Telegram reports changes that nobody sees.
        change(&relay, "e2", "1", "hold on", "message_is_edit").await;
        if mode == BusyMode::Steer {
            let has_steered = async |count| {
                let what = format!("{count} edits handed over");
                relay
                    .wait_for_status(&what, |status| status.tally.steered == count)
                    .await;
            };
            has_steered(1).await;
            change(&relay, "e3", "1", "hold on now", "message_is_edit").await;
            has_steered(2).await;
        }
        if mode != BusyMode::Interrupt {
            asked.go_on.notify_one();
        }
        relay
            .wait_for_status("quiet", |status| status.sessions_active == 0)
            .await;
        let seen = relay.stop().await;
        assert_eq!(asked.texts(), expected, "{mode}");
        let answers: Vec<&str> = seen.ops.iter().map(text).collect();
        let answered = match mode {
            BusyMode::Queue => vec!["echo: hold", "echo: hold on"],
            BusyMode::Interrupt => vec!["echo: hold on"],
            BusyMode::Steer => vec!["echo: hold"],
        };
        assert_eq!(answers, answered, "{mode}");
    }
}

#[tokio::test]
async fn an_edit_is_neither_a_command_nor_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[("2", "second")]).await;
    change(&relay, "e1", "2", "/stop", "message_is_edit").await;
    assert_eq!(relay.handle.status().await.unwrap().turns_running, 1);
    asked.go_on.notify_one();
    assert_eq!(relay.replies("a", 2).await, ["echo: hold", "echo: /stop"]);
    relay.stop().await;
}

#[tokio::test]
async fn a_guest_who_edits_a_message_to_a_command_asks_the_agent_with_that_text() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |settings| {
        settings.access.mode = Mode::List;
        settings.access.people = vec![PersonRule {
            platform: "discord".to_owned(),
            user: "user-of-a".to_owned(),
            role: Role::Guest,
            ..PersonRule::default()
        }];
    })
    .await;
    let commands = ["/model big", "/mode free", "/diff", "/new"];
    hold(
        &relay,
        &asked,
        &[("2", "two"), ("3", "three"), ("4", "four"), ("5", "five")],
    )
    .await;
    for (id, command) in (2..).zip(commands) {
        change(
            &relay,
            &format!("e{id}"),
            &id.to_string(),
            command,
            "message_is_edit",
        )
        .await;
    }
    asked.go_on.notify_one();
    relay.replies("a", 5).await;
    relay.stop().await;
    assert_eq!(asked.texts()[1..], commands);
}

#[tokio::test]
async fn retry_of_an_edited_message_is_no_command_either() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    relay.deliver("a", "1", "one").await;
    relay.replies("a", 1).await;
    change(&relay, "e1", "1", "/status", "message_is_edit").await;
    relay.deliver("a", "2", "/retry").await;
    assert_eq!(relay.replies("a", 2).await[1], "echo: /status");
    relay.stop().await;
}

/// The same with an agent that remembers conversations: its first turn in a session waits until they are read.
async fn start_remembering(dir: &Path, asked: &Arc<Asked>) -> Running {
    let agent = agent(asked).with_info(AgentInfo {
        name: "tested".into(),
        remembers: true,
        ..AgentInfo::default()
    });
    start_on(dir, agent, &platform(&["send"]), terse).await
}

/// Delivers events that are committed together.
async fn at_once(relay: &Running, events: impl IntoIterator<Item = (&str, Value)>) {
    let mut ids = Vec::new();
    for (buffer_id, event) in events {
        relay.connector.deliver_buffered(buffer_id, event).await.unwrap();
        ids.push(buffer_id);
    }
    relay
        .seen("acknowledgements", |seen| {
            ids.iter().all(|buffer_id| seen.acked(buffer_id) == 1)
        })
        .await;
}

#[tokio::test]
async fn a_message_whose_agent_does_not_run_yet_is_replaced_by_its_edit() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start_remembering(dir.path(), &asked).await;
    let [mut second, mut third] = ["second", "third"].map(|text| event("a", "1", text));
    second["message_is_edit"] = json!(true);
    third["message_is_edit"] = json!(true);
    at_once(
        &relay,
        [("m", event("a", "1", "first")), ("e1", second), ("e2", third)],
    )
    .await;
    assert_eq!(relay.replies("a", 1).await, ["echo: third"]);
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.deliver("a", "2", "/retry").await;
    assert_eq!(relay.replies("a", 2).await[1], "echo: third");
    relay.stop().await;
    assert_eq!(asked.texts(), ["third", "third"]);
}

#[tokio::test]
async fn messages_in_known_chats_that_come_with_their_edit_run_once_and_with_their_deletion_never() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    let chats = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    for chat in chats {
        relay.deliver(chat, "1", "known").await;
        relay.replies(chat, 1).await;
    }
    let events = |ids: [&str; 2], texts: [&str; 2], mark: Option<&str>| {
        let mut events = Vec::new();
        for chat in chats {
            for (id, text) in ids.iter().zip(texts) {
                let mut event = event(chat, id, text);
                if let Some(mark) = mark {
                    event[mark] = json!(true);
                }
                events.push((format!("{chat}{id}{mark:?}{text}"), event));
            }
        }
        events
    };
    let mut all = events(["2", "3"], ["secnod", "thrid"], None);
    all.extend(events(["2", "3"], ["second", "third"], Some("message_is_edit")));
    all.extend(events(["4", "5"], ["fourth", "fifth"], None));
    all.extend(events(["4", "5"], ["", ""], Some("message_is_deleted")));
    at_once(&relay, all.iter().map(|(id, event)| (id.as_str(), event.clone()))).await;
    for chat in chats {
        assert_eq!(relay.replies(chat, 3).await[1..], ["echo: second", "echo: third"]);
    }
    let mut gone = event("a", "7", "");
    gone["message_is_deleted"] = json!(true);
    at_once(&relay, [("m7", event("a", "7", "seventh")), ("d7", gone)]).await;
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    assert_eq!(asked.texts().len(), 3 * chats.len(), "{:?}", asked.texts());
}

#[tokio::test]
async fn an_edit_that_exceeds_a_limit_does_not_let_its_message_pass_a_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |settings| limit(settings, 1)).await;
    let mut edited = event("a", "1", "edited");
    edited["message_is_edit"] = json!(true);
    let mut gone = event("a", "1", "");
    gone["message_is_deleted"] = json!(true);
    at_once(
        &relay,
        [("m", event("a", "1", "first")), ("e", edited), ("d", gone)],
    )
    .await;
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    assert_eq!(asked.texts(), [""; 0]);
}

#[tokio::test]
async fn messages_that_come_together_interrupt_none_of_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let interrupt = |settings: &mut Settings| settings.sessions.busy_mode = BusyMode::Interrupt;
    let relay = start(dir.path(), &asked, interrupt).await;
    for (id, texts) in [("a", ["one", "two", "three"]), ("b", ["four", "five", "six"])] {
        let ids = texts.map(|text| format!("{id}{text}"));
        let events = texts.map(|text| event("a", text, text));
        at_once(&relay, ids.iter().map(String::as_str).zip(events)).await;
        relay
            .wait_for_status("quiet", |status| status.sessions_active == 0)
            .await;
    }
    relay.stop().await;
    assert_eq!(asked.texts(), ["one", "two", "three", "four", "five", "six"]);
}

#[tokio::test]
async fn a_message_that_is_deleted_before_its_agent_runs_never_runs() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start_remembering(dir.path(), &asked).await;
    let mut deleted = event("a", "1", "");
    deleted["message_is_deleted"] = json!(true);
    at_once(
        &relay,
        [
            ("m", event("a", "1", "first")),
            ("d", deleted),
            ("n", event("a", "2", "next")),
        ],
    )
    .await;
    assert_eq!(relay.replies("a", 1).await, ["echo: next"]);
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["next"]);
}

#[tokio::test]
async fn retry_runs_the_last_message_again() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    relay.deliver("a", "1", "/retry").await;
    let none = relay.replies("a", 1).await;
    assert!(none[0].contains("send it again"), "{none:?}");
    relay.deliver("a", "2", "one").await;
    relay.replies("a", 2).await;
    relay.deliver("a", "3", "/retry").await;
    relay.replies("a", 3).await;
    relay.deliver("a", "4", "/retry").await;
    relay.replies("a", 4).await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["one", "one", "one"]);
}

#[tokio::test]
async fn retry_runs_the_last_message_that_had_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    relay.deliver("a", "0", "first").await;
    relay.replies("a", 1).await;
    hold_next(&relay, &asked, 1, &[("2", "second")]).await;
    change(&relay, "d2", "2", "", "message_is_deleted").await;
    let again = event("a", "0", "first");
    relay.connector.deliver_buffered("again", again).await.unwrap();
    relay
        .seen("an acknowledgement", |seen| seen.acked("again") == 1)
        .await;
    change(&relay, "e0", "0", "first of all", "message_is_edit").await;
    asked.go_on.notify_one();
    relay.replies("a", 2).await;
    relay.deliver("a", "3", "/retry").await;
    eventually("it is asked again", async || asked.texts().len() == 3).await;
    asked.go_on.notify_one();
    relay.replies("a", 3).await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["first", "hold", "hold"]);
}

#[tokio::test]
async fn a_message_that_is_retried_counts_in_the_minute_of_the_retry() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |settings| limit(settings, 3)).await;
    // Its id says that it was written an hour ago.
    let written_ms = jiff::Timestamp::now().as_millisecond() - 3_600_000;
    let id = ((written_ms - 1_420_070_400_000) << 22).to_string();
    relay.deliver("a", &id, "one").await;
    relay.replies("a", 1).await;
    relay.deliver("a", "2", "/retry").await;
    relay.replies("a", 2).await;
    relay.deliver("a", "3", "/retry").await;
    let texts = relay.replies("a", 3).await;
    assert!(texts[2].contains("too fast"), "{texts:?}");
    relay.stop().await;
    assert_eq!(asked.texts(), ["one", "one"]);
}

#[tokio::test]
async fn retry_does_not_run_what_the_operator_ran_again() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[]).await;
    relay.crash().await;
    let relay = start(dir.path(), &asked, |_| {}).await;
    relay.replies("a", 1).await;
    relay.deliver("a", "2", "second").await;
    relay.replies("a", 2).await;
    let service = ControlService::new(relay.handle.clone(), dir.path());
    let _serving = Serving::start(&ServeConfig::default(), service, None).unwrap();
    let item = Item::Message(InboxSeq(1));
    repair(dir.path(), Repair::Retry, item).await.unwrap();
    eventually("it is asked again", async || asked.texts().len() == 3).await;
    // A turn of the relay before may still be there.
    asked.go_on.notify_waiters();
    relay.replies("a", 3).await;
    relay.deliver("a", "3", "/retry").await;
    assert_eq!(relay.replies("a", 4).await[3], "echo: second");
    relay.stop().await;
    assert_eq!(asked.texts(), ["hold", "second", "hold", "second"]);
}

#[tokio::test]
async fn what_the_last_stop_interrupted_can_be_retried_and_nothing_older() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let stop_at_once = |settings: &mut Settings| settings.shutdown.drain_secs = 0;
    let relay = start(dir.path(), &asked, stop_at_once).await;
    hold(&relay, &asked, &[]).await;
    relay.stop().await;
    let relay = start(dir.path(), &asked, stop_at_once).await;
    relay.deliver("a", "2", "/retry").await;
    eventually("it is asked again", async || asked.texts().len() == 2).await;
    asked.go_on.notify_one();
    assert_eq!(relay.replies("a", 1).await, ["echo: hold"]);
    relay.stop().await;
    let relay = start(dir.path(), &asked, stop_at_once).await;
    relay.deliver("a", "3", "/retry").await;
    let none = relay.replies("a", 1).await;
    assert!(none[0].contains("send it again"), "{none:?}");
    relay.stop().await;
    assert_eq!(asked.texts(), ["hold", "hold"]);
}

#[tokio::test]
async fn after_a_restart_what_was_interrupted_can_be_retried_and_what_runs_then_be_edited() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[]).await;
    relay.crash().await;
    let relay = start(dir.path(), &asked, |_| {}).await;
    let told = relay.replies("a", 1).await;
    assert!(told[0].starts_with("I was restarted"), "{told:?}");
    // An edit of what was interrupted runs nothing by itself.
    change(&relay, "e1", "1", "again", "message_is_edit").await;
    relay.deliver("a", "2", "/retry").await;
    assert_eq!(relay.replies("a", 2).await[1], "echo: again");
    relay.deliver("a", "3", "hold").await;
    eventually("it is asked", async || asked.texts().len() == 3).await;
    // It waits behind what runs, and is still there after the next restart.
    relay.deliver("a", "4", "hold").await;
    relay
        .seen("an acknowledgement", |seen| seen.acked("a-4") == 1)
        .await;
    relay.crash().await;
    let relay = start(dir.path(), &asked, |_| {}).await;
    eventually("what waited runs", async || asked.texts().len() == 4).await;
    change(&relay, "e2", "4", "and hold", "message_is_edit").await;
    // Turns of the relays before may still be there.
    asked.go_on.notify_waiters();
    relay
        .seen("both answers", |seen| {
            let texts = seen.texts("a");
            texts.contains(&"echo: hold") && texts.contains(&"echo: and hold")
        })
        .await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["hold", "again", "hold", "hold", "and hold"]);
}

#[tokio::test]
async fn what_waited_while_the_relay_restarted_is_edited_and_deleted_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let few = |settings: &mut Settings| {
        settings.sessions.max_queue = 2;
        settings.sessions.overflow_notice = None;
    };
    let relay = start(dir.path(), &asked, few).await;
    // More than the relay reads at once.
    let ids: Vec<String> = (2..=70).map(|id| id.to_string()).collect();
    let text = |id: &str| match id {
        "2" => "hold".to_owned(),
        id => format!("text {id}"),
    };
    let waiting: Vec<(&str, String)> = ids.iter().map(|id| (id.as_str(), text(id))).collect();
    let waiting: Vec<(&str, &str)> = waiting.iter().map(|(id, text)| (*id, text.as_str())).collect();
    hold(&relay, &asked, &waiting).await;
    relay.crash().await;
    let relay = start(dir.path(), &asked, few).await;
    for (id, text, mark) in [
        ("3", "third", "message_is_edit"),
        ("4", "", "message_is_deleted"),
        ("68", "last but two", "message_is_edit"),
        ("69", "", "message_is_deleted"),
        ("1", "not any more", "message_is_edit"),
        ("99", "never seen", "message_is_edit"),
    ] {
        change(&relay, &format!("change {id}"), id, text, mark).await;
    }
    eventually("what waited runs", async || asked.texts().len() == 2).await;
    eventually("what waits", async || {
        let sessions = relay.handle.sessions(1).await.unwrap();
        sessions.sessions[0].waiting == 66
    })
    .await;
    change(&relay, "change 70", "70", "last", "message_is_edit").await;
    // The turn of the relay before may still be there.
    asked.go_on.notify_waiters();
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    let mut expected = vec!["hold".to_owned(), "hold".to_owned(), "third".to_owned()];
    expected.extend((5..=67).map(|id| format!("text {id}")));
    expected.extend(["last but two", "last"].map(str::to_owned));
    assert_eq!(asked.texts(), expected);
}

/// The message that a button sends.
fn press(question: &Value, option: &str) -> Value {
    let mut event = event("a", "the question's own id", &format!("/{option}"));
    event["prompt_response"] = json!({"prompt_id": question["prompt_id"], "option_id": option});
    event
}

#[tokio::test]
async fn queue_shows_what_waits_with_a_button_to_drop_each() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    relay.deliver("a", "0", "/queue").await;
    assert_eq!(relay.replies("a", 1).await, ["Nothing waits."]);
    relay.deliver("a", "1", "hold").await;
    relay.wait_for_turns(1).await;
    relay.deliver("a", "2", "second").await;
    relay.deliver("a", "3", "third").await;
    relay.deliver("a", "4", "/queue").await;
    let seen = relay
        .seen("what waits", |seen| {
            seen.ops.iter().any(|op| op.kind() == Some("prompt"))
        })
        .await;
    let shown = seen.ops.iter().find(|op| op.kind() == Some("prompt")).unwrap();
    assert!(text(shown).starts_with("2 messages wait."), "{}", text(shown));
    let labels: Vec<&str> = (shown.action["options"].as_array().unwrap().iter())
        .map(|option| option["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["Drop 1: second", "Drop 2: third"]);
    let press = press(&shown.action, "o0");
    relay.connector.deliver_buffered("press", press).await.unwrap();
    relay.seen("a press", |seen| seen.acked("press") == 1).await;
    relay
        .wait_for_status("one waits", |status| status.messages_waiting == 1)
        .await;
    asked.go_on.notify_one();
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["hold", "third"]);
}

/// Shows what waits, and gives the op that shows it and its labels.
async fn queue(relay: &Running, id: &str) -> (Value, Vec<String>) {
    relay.deliver("a", id, "/queue").await;
    let is_list = |op: &SeenOp| op.kind() == Some("prompt") && text(op).contains("Which one");
    let seen = relay
        .seen("what waits", |seen| seen.ops.iter().any(is_list))
        .await;
    relay
        .wait_for_status("it is shown", |status| {
            status.tally.ops_applied >= seen.ops.len() as u64
        })
        .await;
    let list = seen.ops.iter().rev().find(|op| is_list(op)).unwrap();
    let labels = list.action["options"].as_array().unwrap().iter();
    let labels = labels.map(|option| option["label"].as_str().unwrap().to_owned());
    (list.action.clone(), labels.collect())
}

async fn deliver_press(relay: &Running, list: &Value, option: &str) {
    let press = press(list, option);
    relay.connector.deliver_buffered(option, press).await.unwrap();
    relay.seen("a press", |seen| seen.acked(option) == 1).await;
}

/// Waits until something is said, and gives how.
async fn said(relay: &Running, what: &str) -> String {
    let says = |op: &SeenOp| text(op).contains(what);
    let seen = relay.seen(what, |seen| seen.ops.iter().any(says)).await;
    let op = seen.ops.iter().rev().find(|op| says(op)).unwrap();
    op.kind().unwrap().to_owned()
}

const OVER: &str = "This list is over. /queue shows what waits.";

#[tokio::test]
async fn a_list_ends_when_its_messages_have_run_and_a_number_is_a_message_again() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[("2", "second")]).await;
    let (list, labels) = queue(&relay, "3").await;
    assert_eq!(labels, ["Drop 1: second"]);
    asked.go_on.notify_one();
    assert_eq!(said(&relay, OVER).await, "edit");
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 0);
    deliver_press(&relay, &list, "o0").await;
    relay
        .seen("a notice", |seen| {
            let notices = seen.ops.iter().filter(|op| text(op) == OVER);
            notices.count() == 1
        })
        .await;
    relay.deliver("a", "4", "1").await;
    eventually("it is a message", async || {
        asked.texts() == ["hold", "second", "1"]
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_press_for_a_message_that_runs_drops_nothing_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[("2", "hold"), ("3", "third")]).await;
    let (list, labels) = queue(&relay, "4").await;
    assert_eq!(labels, ["Drop 1: hold", "Drop 2: third"]);
    asked.go_on.notify_one();
    eventually("the second one runs", async || asked.texts().len() == 2).await;
    deliver_press(&relay, &list, "o0").await;
    let nothing = "This message does not wait any more. Nothing was dropped.";
    assert_eq!(said(&relay, nothing).await, "edit");
    asked.go_on.notify_one();
    eventually("the third one runs", async || asked.texts().len() == 3).await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["hold", "hold", "third"]);
}

#[tokio::test]
async fn a_message_that_was_edited_since_it_was_listed_can_be_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[("2", "second")]).await;
    let (list, _) = queue(&relay, "3").await;
    change(&relay, "e1", "2", "the second", "message_is_edit").await;
    deliver_press(&relay, &list, "o0").await;
    assert_eq!(said(&relay, "Dropped 1: second").await, "edit");
    relay
        .wait_for_status("nothing waits", |status| status.messages_waiting == 0)
        .await;
    asked.go_on.notify_one();
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["hold"]);
}

#[tokio::test]
async fn a_message_that_the_operator_drops_waits_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    let service = ControlService::new(relay.handle.clone(), dir.path());
    let _serving = Serving::start(&ServeConfig::default(), service, None).unwrap();
    hold(&relay, &asked, &[("2", "second"), ("3", "third")]).await;
    let drop_row = async |row| {
        let item = Item::Message(InboxSeq(row));
        repair(dir.path(), Repair::Drop, item).await.unwrap();
        relay.handle.status().await.unwrap().messages_waiting
    };
    assert_eq!(drop_row(2).await, 1);
    let (_, labels) = queue(&relay, "4").await;
    assert_eq!(labels, ["Drop 1: third"]);
    assert_eq!(drop_row(3).await, 0);
    assert_eq!(said(&relay, OVER).await, "edit");
    relay.deliver("a", "5", "/queue").await;
    said(&relay, "Nothing waits.").await;
    // A program does not wait for the answer to what was dropped.
    let (handle, item) = (relay.handle.clone(), template("d1", &session("a"), "review it"));
    let request = tokio::spawn(async move { handle.request(item).await });
    relay
        .wait_for_status("the item waits", |status| status.messages_waiting == 1)
        .await;
    assert_eq!(drop_row(6).await, 0);
    assert_eq!(request.await.unwrap(), Err(SubmitError::NoAnswer));
    asked.go_on.notify_one();
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["hold"]);
}

#[tokio::test]
async fn queue_shows_a_wake_before_the_messages_that_it_passes() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let one = |settings: &mut Settings| settings.sessions.max_concurrent_turns = 1;
    let relay = start(dir.path(), &asked, one).await;
    relay.deliver("b", "1", "hold").await;
    eventually("the agent is asked", async || asked.texts().len() == 1).await;
    relay.deliver("a", "2", "second").await;
    relay
        .wait_for_status("it waits", |status| status.messages_waiting == 1)
        .await;
    let wake = HandedItem {
        wake: true,
        ..template("d1", &session("a"), "look at this")
    };
    relay.handle.submit(wake).await.unwrap();
    let (_, labels) = queue(&relay, "4").await;
    assert_eq!(labels, ["Drop 1: look at this", "Drop 2: second"]);
    asked.go_on.notify_one();
    relay
        .wait_for_status("quiet", |status| status.sessions_active == 0)
        .await;
    relay.stop().await;
    assert_eq!(asked.texts(), ["hold", "look at this", "second"]);
}

#[tokio::test]
async fn an_item_of_a_program_and_a_message_of_an_earlier_process_are_listed_with_their_texts() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Asked> = Arc::default();
    let relay = start(dir.path(), &asked, |_| {}).await;
    hold(&relay, &asked, &[("2", "hold"), ("3", "third")]).await;
    let item = template("d1", &session("a"), "review it");
    relay.handle.submit(item).await.unwrap();
    let (_, labels) = queue(&relay, "4").await;
    let listed = ["Drop 1: hold", "Drop 2: third", "Drop 3: review it"];
    assert_eq!(labels, listed);
    relay.crash().await;
    let relay = start(dir.path(), &asked, |_| {}).await;
    eventually("what waited runs", async || asked.texts().len() == 2).await;
    let (_, labels) = queue(&relay, "5").await;
    assert_eq!(labels, ["Drop 1: third", "Drop 2: review it"]);
    relay.stop().await;
}
