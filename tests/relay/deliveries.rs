//! What others hand to the agents of a running relay: context for the next turn, turns of their own, once each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hermes_relay::agent::{
    Agent as _, AgentEvent, AgentInfo, EchoAgent, Media, MediaLocation, Permission, Route, Truncation,
    TurnEnd,
};
use hermes_relay::agent_connector::contract::{
    AgentActivity, DeliveryKind, DeliveryMeta, DeliveryOrigin, DeliveryPayload,
};
use hermes_relay::config::{ReceiverConfig, Settings};
use hermes_relay::relay::{HandedItem, SubmitError};
use serde_json::json;

use crate::support::memory_relay::{Running, event, session, start_with};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;

fn handed(id: &str, kind: DeliveryKind, session: Option<&str>, text: &str) -> HandedItem {
    HandedItem {
        agent: "tested".to_owned(),
        session: session.map(str::to_owned),
        payload: DeliveryPayload {
            kind,
            text: text.to_owned(),
            meta: DeliveryMeta::new(id, 1_700_000_000_000, &DeliveryOrigin::default()),
        },
        wake: false,
    }
}

fn augment(id: &str, session: &str, text: &str) -> HandedItem {
    handed(id, DeliveryKind::Augment, Some(session), text)
}

pub(crate) fn template(id: &str, session: &str, text: &str) -> HandedItem {
    handed(id, DeliveryKind::Template, Some(session), text)
}

async fn start(dir: &std::path::Path) -> Running {
    start_with(dir, EchoAgent, |settings| settings.streaming.typing = false).await
}

#[tokio::test]
async fn context_waits_for_the_sessions_next_turn_and_starts_none() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let key = session("c1");
    let first = relay.handle.submit(augment("d1", &key, "the build is red")).await;
    let first = first.unwrap();
    assert_eq!(first.delivery_id.as_deref(), Some("d1"));
    assert_eq!(first.session_id.as_deref(), Some(&*key));
    let again = relay.handle.submit(augment("d1", &key, "the build is red")).await;
    assert_eq!(again.unwrap(), first, "the same receipt");
    let status = relay.handle.status().await.unwrap();
    assert_eq!(status.tally.turns_started, 0);
    relay.stop().await;

    // It survives a restart, and is for that session only.
    let relay = start(dir.path()).await;
    relay.deliver("other", "m0", "hi").await;
    assert_eq!(relay.replies("other", 1).await, ["echo: hi"]);
    relay.deliver("c1", "m1", "what is new?").await;
    assert_eq!(
        relay.replies("c1", 1).await,
        ["echo: the build is red\n\nwhat is new?"]
    );
    relay.deliver("c1", "m2", "and now?").await;
    assert_eq!(relay.replies("c1", 2).await[1], "echo: and now?");
    relay.stop().await;

    let relay = start(dir.path()).await;
    let late = relay.handle.submit(augment("d1", &key, "the build is red")).await;
    assert_eq!(late.unwrap(), first, "also after it was taken");
    relay.deliver("c1", "m3", "still?").await;
    assert_eq!(relay.replies("c1", 1).await, ["echo: still?"]);
    relay.stop().await;
}

#[tokio::test]
async fn a_command_that_asks_the_agent_nothing_leaves_context_for_the_next_message() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let taken = relay
        .handle
        .submit(augment("d1", &session("c1"), "the build is red"))
        .await;
    taken.unwrap();
    for (count, command) in ["/diff", "/model", "/mode"].into_iter().enumerate() {
        relay.deliver("c1", command, command).await;
        let answer = relay.replies("c1", count + 1).await.pop().unwrap();
        assert!(!answer.contains("the build is red"), "{answer}");
    }
    relay.deliver("c1", "m1", "what is new?").await;
    assert_eq!(
        relay.replies("c1", 4).await[3],
        "echo: the build is red\n\nwhat is new?"
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_playbook_is_a_turn_whose_answer_goes_to_the_sessions_chat_once() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    relay.deliver("c1", "m1", "hello").await;
    relay.replies("c1", 1).await;
    let key = session("c1");
    for _ in 0..2 {
        let receipt = relay
            .handle
            .submit(template("d1", &key, "review the pull request"))
            .await;
        assert!(receipt.is_ok());
    }
    assert_eq!(relay.replies("c1", 2).await[1], "echo: review the pull request");
    relay.deliver("c1", "m2", "thanks").await;
    assert_eq!(relay.replies("c1", 3).await[2], "echo: thanks");
    let status = relay.handle.status().await.unwrap();
    assert_eq!(status.tally.turns_started, 3, "the second delivery did nothing");
    relay.stop().await;
}

#[tokio::test]
async fn an_item_is_answered_in_the_thread_of_its_session_wherever_somebody_wrote_last() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    for thread in ["t1", "t2"] {
        let mut said = event("c1", thread, "hello");
        said["source"]["thread_id"] = json!(thread);
        relay.connector.deliver_buffered(thread, said).await.unwrap();
    }
    relay.replies("c1", 2).await;
    let key = format!("{}:t1", session("c1"));
    assert!(relay.handle.submit(template("d1", &key, "review")).await.is_ok());
    relay.replies("c1", 3).await;
    let seen = relay.stop().await;
    let answer = seen.ops.iter().find(|op| op.text() == Some("echo: review"));
    assert_eq!(answer.unwrap().action["metadata"]["thread_id"], "t1");
}

#[tokio::test]
async fn a_playbook_goes_on_in_the_conversation_of_its_chat() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| async move {
        let conversation = turn.session.as_str().to_owned();
        turn.events
            .text(format!("{} in {conversation}", turn.input.text))
            .await;
        TurnEnd::Completed
    });
    let agent = agent.with_info(AgentInfo {
        name: "scripted".into(),
        remembers: true,
        ..AgentInfo::default()
    });
    let relay = start_with(dir.path(), agent, |settings| settings.streaming.typing = false).await;
    let key = session("c1");
    for (id, text) in [("1", "hi"), ("2", "/new"), ("3", "hi")] {
        relay.deliver("c1", id, text).await;
        relay.replies("c1", id.parse().unwrap()).await;
    }
    let receipt = relay.handle.submit(template("d1", &key, "review")).await;
    assert!(receipt.is_ok());
    let texts = relay.replies("c1", 4).await;
    assert_eq!(texts[2], format!("hi in {key}#2"));
    assert_eq!(texts[3], format!("review in {key}#2"));
    relay.stop().await;
}

/// A turn counts as running before its agent has it, so the agent's activity is waited for.
async fn wait_for_activity(relay: &Running, wanted: AgentActivity) {
    eventually("the agent's activity", async || {
        let activity = relay.handle.activity("tested").await;
        if activity == Ok(Some(wanted)) {
            Ok(())
        } else {
            Err(activity)
        }
    })
    .await;
}

#[tokio::test]
async fn a_wake_interrupts_the_turn_and_runs() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    relay.deliver("c1", "m1", "sleep=60000 slow").await;
    wait_for_activity(&relay, AgentActivity::Active).await;
    assert!(
        relay
            .handle
            .submit(wake("d1", "look at this first"))
            .await
            .is_ok()
    );
    relay
        .seen("the answer of the wake", |seen| {
            seen.texts("c1").contains(&"echo: look at this first")
        })
        .await;
    relay
        .wait_for_status("the turn was stopped", |status| status.tally.turns_stopped == 1)
        .await;
    wait_for_activity(&relay, AgentActivity::Idle).await;
    assert_eq!(relay.handle.activity("nobody").await, Ok(None));
    relay.stop().await;
}

fn wake(id: &str, text: &str) -> HandedItem {
    HandedItem {
        wake: true,
        ..template(id, &session("c1"), text)
    }
}

#[tokio::test]
async fn a_wake_runs_before_what_waits_and_stops_nothing_but_the_turn_that_it_met() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    relay.deliver("c1", "m1", "sleep=60000 slow").await;
    wait_for_activity(&relay, AgentActivity::Active).await;
    for (id, text) in [("m2", "second"), ("m3", "third")] {
        relay.deliver("c1", id, text).await;
    }
    relay
        .wait_for_status("two wait", |status| status.messages_waiting == 2)
        .await;
    let (first, next) = tokio::join!(
        relay.handle.submit(wake("d1", "look at this first")),
        relay.handle.submit(wake("d2", "then at this")),
    );
    assert!(first.is_ok() && next.is_ok());
    assert_eq!(
        relay.replies("c1", 5).await,
        [
            "[stopped]",
            "echo: look at this first",
            "echo: then at this",
            "echo: second",
            "echo: third"
        ]
    );
    let status = relay.handle.status().await.unwrap();
    assert_eq!((status.tally.turns_stopped, status.tally.turns_done), (1, 4));
    relay.stop().await;
}

#[tokio::test]
async fn a_wake_that_waits_runs_before_messages_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let one = |settings: &mut Settings| settings.sessions.max_concurrent_turns = 1;
    let turns = Arc::default();
    let relay = start_with(dir.path(), hanging(&turns, 1, false), one).await;
    relay.deliver("busy", "m0", "slow").await;
    hang(&turns, 1).await;
    relay.deliver("c1", "m1", "first").await;
    relay.deliver("c1", "m2", "second").await;
    relay
        .wait_for_status("two wait", |status| status.messages_waiting == 2)
        .await;
    assert!(
        relay
            .handle
            .submit(wake("d1", "look at this first"))
            .await
            .is_ok()
    );
    relay.crash().await;

    let relay = start(dir.path()).await;
    assert_eq!(
        relay.replies("c1", 3).await,
        ["echo: look at this first", "echo: first", "echo: second"]
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_request_gets_the_agents_answer_also_without_a_chat() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let request = handed("d1", DeliveryKind::Template, None, "count to three");
    let response = relay.handle.request(request).await.unwrap();
    assert_eq!(
        (response.content.as_str(), response.agent_id.as_str()),
        ("echo: count to three", "tested")
    );
    assert_eq!(response.correlation_id, "d1");
    let mut unknown = handed("d2", DeliveryKind::Template, None, "hi");
    unknown.agent = "nobody".to_owned();
    assert_eq!(relay.handle.submit(unknown).await, Err(SubmitError::UnknownAgent));
    let record = relay.stop().await;
    assert!(record.texts("").is_empty(), "nobody else gets it");
}

#[tokio::test]
async fn an_awaited_answer_has_a_line_for_each_file() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| async move {
        let chart = Media {
            location: MediaLocation::File("chart.png".into()),
            caption: String::new(),
            kind: None,
            name: None,
        };
        turn.events.text("Here it is:").await;
        turn.events.emit(AgentEvent::Media(chart)).await;
        turn.events.text("and half of the rest").await;
        TurnEnd::Truncated(Truncation::Steps)
    });
    let relay = start_with(dir.path(), agent, |settings| settings.streaming.typing = false).await;
    relay.deliver("c1", "m1", "hello").await;
    let before = relay.replies("c1", 3).await.len();
    let request = template("d1", &session("c1"), "the chart");
    let response = relay.handle.request(request).await.unwrap();
    let answer = "Here it is:\n\n(could not deliver chart.png)\n\nand half of the rest";
    assert_eq!(response.content, answer);
    let texts = relay.replies("c1", before + 1).await;
    assert_eq!(
        texts[before],
        format!("{answer}\n\n[stopped: the turn reached its step limit]")
    );
    relay.stop().await;
}

#[tokio::test]
async fn whoever_waits_for_an_agent_that_declines_learns_that() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| async move {
        if turn.input.text.contains("explain") {
            turn.events.text("Not this.").await;
        }
        TurnEnd::Refused
    });
    let relay = start_with(dir.path(), agent, |settings| settings.streaming.typing = false).await;
    for (id, prompt, answer) in [
        ("d1", "do it", "The agent declined to answer."),
        ("d2", "explain", "Not this."),
    ] {
        let request = handed(id, DeliveryKind::Template, None, prompt);
        let response = relay.handle.request(request).await.unwrap();
        assert_eq!(response.content, answer);
    }
    relay.stop().await;
}

#[tokio::test]
async fn a_mailbox_that_is_full_refuses_and_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let key = session("c1");
    let large = "x".repeat(200 << 10);
    assert!(relay.handle.submit(augment("d1", &key, &large)).await.is_ok());
    let refused = relay.handle.submit(augment("d2", &key, &large)).await;
    assert_eq!(refused, Err(SubmitError::Full));
    let endless = "x".repeat(300 << 10);
    let refused = relay.handle.submit(augment("d4", &key, &endless)).await;
    assert_eq!(refused, Err(SubmitError::TooLarge), "it never fits");
    assert!(relay.handle.submit(augment("d3", &key, "small")).await.is_ok());
    relay.deliver("c1", "m1", "go").await;
    relay
        .seen("what was kept", |seen| {
            seen.texts("c1").iter().any(|text| text.contains("small"))
        })
        .await;
    assert!(relay.handle.submit(augment("d2", &key, &large)).await.is_ok());
    relay.stop().await;
}

#[tokio::test]
async fn a_playbook_that_waits_survives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    relay.deliver("c1", "m1", "sleep=60000 slow").await;
    relay.wait_for_turns(1).await;
    let key = session("c1");
    let receipt = relay.handle.submit(template("d1", &key, "afterwards")).await;
    assert!(receipt.is_ok());
    relay.crash().await;
    let relay = start(dir.path()).await;
    relay
        .seen("the playbook's answer", |seen| {
            seen.texts("c1").contains(&"echo: afterwards")
        })
        .await;
    relay.stop().await;
}

#[tokio::test]
async fn what_waits_in_all_sessions_together_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let large = "x".repeat(250 << 10);
    let mut taken = 0;
    while taken < 100 {
        let (id, session) = (format!("d{taken}"), format!("s{taken}"));
        match relay.handle.submit(augment(&id, &session, &large)).await {
            Ok(_) => taken += 1,
            Err(refusal) => {
                assert_eq!(refusal, SubmitError::Full);
                break;
            }
        }
    }
    assert_eq!(taken, (16 << 20) / (250 << 10), "16 MiB");
    relay.stop().await;
}

#[tokio::test]
async fn an_item_for_the_session_of_a_job_is_a_turn_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let mut item = template("j", "cron:0123456789ab", "hi");
    item.payload.kind = DeliveryKind::Template;
    let response = relay.handle.request(item).await.unwrap();
    assert_eq!(response.content, "echo: hi");
    relay.stop().await;
}

/// The echo, whose `first` turns hang until they are stopped; counts its turns.
fn hanging(turns: &Arc<AtomicUsize>, first: usize, marks_start: bool) -> ScriptedAgent {
    let agent = ScriptedAgent::sharing(turns, move |turn, turns| async move {
        if turns.fetch_add(1, Ordering::SeqCst) >= first {
            return EchoAgent.run(turn).await;
        }
        turn.cancel.cancelled().await;
        TurnEnd::Cancelled { confirmed: true }
    });
    agent.with_info(AgentInfo {
        marks_start,
        ..EchoAgent.info()
    })
}

/// Waits until so many turns hang: one that counts as running may not have reached the agent, and then another is its first.
async fn hang(turns: &AtomicUsize, count: usize) {
    eventually("the turns that hang", async || {
        turns.load(Ordering::SeqCst) == count
    })
    .await;
}

#[tokio::test]
async fn context_of_a_turn_that_was_stopped_waits_for_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let turns = Arc::default();
    let relay = start_with(dir.path(), hanging(&turns, 1, false), |settings| {
        settings.streaming.typing = false;
    })
    .await;
    let key = session("c1");
    let taken = relay.handle.submit(augment("d1", &key, "the build is red")).await;
    taken.unwrap();
    relay.deliver("c1", "m1", "what is new?").await;
    hang(&turns, 1).await;
    relay.interrupt("c1").await;
    relay.wait_for_turns(0).await;
    relay.deliver("c1", "m2", "and now?").await;
    assert_eq!(
        relay.replies("c1", 1).await,
        ["echo: the build is red\n\nand now?"]
    );
    relay.deliver("c1", "m3", "still?").await;
    assert_eq!(relay.replies("c1", 2).await[1], "echo: still?");
    relay.stop().await;
}

#[tokio::test]
async fn context_of_a_turn_that_a_crash_cut_short_waits_for_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let turns = Arc::default();
    let relay = start_with(dir.path(), hanging(&turns, 1, false), |_| {}).await;
    let key = session("c1");
    let taken = relay.handle.submit(augment("d1", &key, "the build is red")).await;
    taken.unwrap();
    relay.deliver("c1", "m1", "what is new?").await;
    hang(&turns, 1).await;
    relay.crash().await;
    let relay = start(dir.path()).await;
    assert!(relay.replies("c1", 1).await[0].contains("restarted"));
    relay.deliver("c1", "m2", "and now?").await;
    assert_eq!(
        relay.replies("c1", 2).await[1],
        "echo: the build is red\n\nand now?"
    );
    relay.stop().await;
}

#[tokio::test]
async fn the_target_for_answers_without_a_chat_is_kept_with_the_delivery() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = ReceiverConfig {
        deliver: Some("discord:c9".to_owned()),
        ..ReceiverConfig::default()
    };
    let turns = Arc::default();
    let relay = start_with(dir.path(), hanging(&turns, 1, false), |settings| {
        settings.serve.receiver = Some(receiver);
    })
    .await;
    for (id, text) in [("d1", "slow"), ("d2", "next")] {
        let taken = relay.handle.submit(template(id, "hook", text)).await;
        taken.unwrap();
    }
    hang(&turns, 1).await;
    relay.crash().await;
    // The settings have changed meanwhile.
    let relay = start(dir.path()).await;
    let texts = relay.replies("c9", 2).await;
    assert!(texts[0].contains("restarted"), "{texts:?}");
    assert_eq!(texts[1], "echo: next");
    relay.stop().await;
}

#[tokio::test]
async fn a_playbook_that_a_crash_cut_short_runs_again_only_if_no_agent_had_it_or_that_does_no_harm() {
    let info = |marks_start, repeatable| AgentInfo {
        marks_start,
        repeatable,
        ..EchoAgent.info()
    };
    for (info, is_given, runs_again) in [
        (info(true, false), false, true),
        (info(true, false), true, false),
        (info(false, false), false, false),
        (info(false, true), true, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let receiver = ReceiverConfig {
            deliver: Some("discord:c9".to_owned()),
            ..ReceiverConfig::default()
        };
        let turns = Arc::<AtomicUsize>::default();
        // The first turn hangs: before it hands the text over, or after.
        let agent = ScriptedAgent::sharing(&turns, move |turn, turns| async move {
            if is_given {
                turn.events.mark_started();
            }
            if turns.fetch_add(1, Ordering::SeqCst) > 0 {
                return EchoAgent.run(turn).await;
            }
            std::future::pending().await
        });
        let agent = agent.with_info(info.clone());
        let relay = start_with(dir.path(), agent.clone(), |settings| {
            settings.serve.receiver = Some(receiver);
        })
        .await;
        for (id, text) in [("d1", "first"), ("d2", "second")] {
            let taken = relay.handle.submit(template(id, "hook", text)).await;
            taken.unwrap();
        }
        eventually("its turn has begun", async || {
            (turns.load(Ordering::SeqCst) == 1).then_some(())
        })
        .await;
        relay.crash().await;
        let relay = start_with(dir.path(), agent, |_| {}).await;
        let texts = relay.replies("c9", 2).await;
        if runs_again {
            assert_eq!(texts[..2], ["echo: first", "echo: second"], "{info:?}");
        } else {
            assert!(texts[0].contains("restarted"), "{info:?} {texts:?}");
            assert_eq!(texts[1], "echo: second", "{info:?}");
        }
        let known = relay.handle.submit(template("d1", "hook", "first")).await;
        assert!(known.is_ok());
        relay.stop().await;
        assert_eq!(
            turns.load(Ordering::SeqCst),
            if runs_again { 3 } else { 2 },
            "{info:?}"
        );
    }
}

#[tokio::test]
async fn a_playbook_that_has_not_begun_when_the_relay_stops_runs_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let turns = Arc::default();
    // They wait for a place, and are not handed over.
    let agent = hanging(&turns, 2, true);
    let relay = start_with(dir.path(), agent.clone(), |settings| {
        settings.shutdown.drain_secs = 0;
        settings.serve.receiver = Some(ReceiverConfig {
            deliver: Some("discord:c9".to_owned()),
            ..ReceiverConfig::default()
        });
    })
    .await;
    for (id, session) in [("d1", "one"), ("d2", "two")] {
        let taken = relay.handle.submit(template(id, session, id)).await;
        taken.unwrap();
    }
    hang(&turns, 2).await;
    relay.stop().await;
    let relay = start_with(dir.path(), agent, |_| {}).await;
    let mut texts = relay.replies("c9", 2).await;
    texts.sort();
    assert_eq!(texts, ["echo: d1", "echo: d2"]);
    relay.stop().await;
}

#[tokio::test]
async fn an_item_runs_on_the_terms_of_its_sessions_chat_also_first_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let adjust = |settings: &mut Settings| {
        settings.streaming.typing = false;
        settings.projects = serde_json::from_str(r#"{"site": {"permission": "deny"}}"#).unwrap();
        settings.routes = ["routed", "elsewhere"]
            .map(|chat| Route {
                user: Some(format!("user-of-{chat}")),
                agent: if chat == "routed" { "tested" } else { "echo" }.to_owned(),
                permission: Some(Permission::Deny),
                ..Route::default()
            })
            .to_vec();
    };
    let relay = start_with(dir.path(), EchoAgent, adjust).await;
    relay.deliver("c1", "m1", "/project site").await;
    for chat in ["routed", "elsewhere", "plain"] {
        relay.deliver(chat, "m1", "hello").await;
        relay.replies(chat, 1).await;
    }
    relay.replies("c1", 1).await;
    relay.stop().await;
    let relay = start_with(dir.path(), EchoAgent, adjust).await;
    for chat in ["c1", "routed"] {
        let item = template(chat, &session(chat), "ask hi");
        assert!(relay.handle.submit(item).await.is_ok());
        assert_eq!(relay.replies(chat, 1).await, ["echo: denied hi"], "{chat}");
    }
    // The agent's own terms: somebody is asked.
    for chat in ["elsewhere", "plain"] {
        let item = template(chat, &session(chat), "ask hi");
        assert!(relay.handle.submit(item).await.is_ok());
        relay
            .seen("a question", |seen| {
                let asks = |text: &str| text.contains("May I echo this?");
                seen.ops
                    .iter()
                    .any(|op| op.chat() == Some(chat) && op.text().is_some_and(asks))
            })
            .await;
    }
    relay.stop().await;
}
