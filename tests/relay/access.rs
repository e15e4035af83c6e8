//! Who may drive an agent, in a running relay: what is refused reaches nobody, and a revocation holds.

use hermes_relay::access::{AccessRequest, Denial, Mode, PersonRule, Role, Strangers};
use hermes_relay::adapter::prompt::Approvers;
use hermes_relay::agent::{AgentEvent, EchoAgent, PromptAnswer, Turn, TurnEnd, Usage};
use hermes_relay::config::Settings;
use hermes_relay::relay::{MemoryTransport, Relay, SeenOp};
use hermes_relay::store::{AccessFiles, AuditFile, Inspector, Journal, JournalSettings, Section};
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::prompts::{
    BUTTONS, Stubborn, ask, press, start as start_asking, start_asking as start_asking_with,
};
use crate::support::memory_relay::{Running, event, start_with};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::torn_disk::DiskImage;

fn rule(user: &str, role: Role) -> PersonRule {
    PersonRule {
        platform: "discord".to_owned(),
        user: user.to_owned(),
        role,
        ..PersonRule::default()
    }
}

/// Only these people may write.
fn only(settings: &mut Settings, people: Vec<PersonRule>) {
    settings.access.mode = Mode::List;
    settings.access.people = people;
    settings.streaming.typing = false;
}

fn deny(person: &str) -> AccessRequest {
    AccessRequest::Deny {
        person: person.to_owned(),
    }
}

fn allow(person: &str) -> AccessRequest {
    allow_as(person, None)
}

fn allow_as(person: &str, role: Option<Role>) -> AccessRequest {
    AccessRequest::Allow {
        person: person.to_owned(),
        role,
        agents: None,
        chats: None,
    }
}

async fn change(relay: &Running, request: AccessRequest) -> Value {
    relay
        .handle
        .access(request)
        .await
        .expect("the relay runs")
        .expect("a change")
}

/// A message in a group.
fn in_group(chat: &str, id: &str, user: &str, text: &str) -> Value {
    let mut event = event(chat, id, text);
    event["source"]["chat_type"] = json!("group");
    event["source"]["user_id"] = json!(user);
    event
}

#[tokio::test]
async fn a_refused_message_is_acknowledged_ended_as_ignored_and_its_text_kept_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        only(settings, vec![rule("user-of-a", Role::User)]);
    })
    .await;
    relay.deliver("b", "1", "the-secret-word").await;
    relay.deliver("b", "2", "/whoami").await;
    relay.deliver("a", "1", "hello").await;
    relay.replies("a", 1).await;
    let seen = relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    assert_eq!((seen.acked("b-1"), seen.acked("b-2")), (1, 1));
    assert!(
        seen.texts("b").is_empty(),
        "strangers get nothing: {:?}",
        seen.texts("b")
    );
    relay.deliver("b", "1", "the-secret-word").await;
    let status = relay
        .wait_for_status("a duplicate", |status| status.tally.duplicates == 1)
        .await;
    assert_eq!((status.access.mode, status.tally.turns_started), ("list", 1));
    relay.stop().await;
    let journal = Inspector::open(dir.path()).unwrap();
    let done = journal.latest(Section::Finished, 9).unwrap();
    let ended: Vec<&str> = done.iter().map(|entry| entry.state).collect();
    assert_eq!(
        ended.iter().filter(|state| **state == "ignored").count(),
        2,
        "{ended:?}"
    );
    assert!(journal.latest(Section::Unfinished, 9).unwrap().is_empty());
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        let found = bytes.windows(15).any(|part| part == b"the-secret-word");
        assert!(!found, "the text is in {}", path.display());
    }
}

#[tokio::test]
async fn a_revocation_stops_the_running_turn_and_what_waits_never_runs_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |settings: &mut Settings| {
        only(
            settings,
            vec![rule("user-of-a", Role::User), rule("user-of-b", Role::User)],
        );
    };
    let relay = start_with(dir.path(), EchoAgent, settings).await;
    relay.deliver("a", "1", "sleep=60000 long").await;
    relay.deliver("a", "2", "waits").await;
    relay.deliver("b", "1", "sleep=60000 other").await;
    relay.wait_for_turns(2).await;
    relay
        .wait_for_status("one waits", |status| status.messages_waiting == 1)
        .await;
    change(&relay, deny("discord:user-of-a")).await;
    let status = relay
        .wait_for_status("the turn stopped", |status| {
            status.turns_running == 1 && status.messages_waiting == 0
        })
        .await;
    assert_eq!((status.tally.turns_stopped, status.tally.turns_started), (1, 2));
    relay.crash().await;
    let relay = start_with(dir.path(), EchoAgent, settings).await;
    relay.deliver("a", "3", "still there?").await;
    relay.deliver("b", "2", "yes").await;
    let texts = relay.replies("b", 2).await;
    assert!(texts.iter().any(|text| text == "echo: yes"), "{texts:?}");
    let seen = relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    assert!(seen.texts("a").is_empty(), "{:?}", seen.texts("a"));
    change(&relay, allow("discord:user-of-a")).await;
    relay.deliver("a", "4", "back").await;
    assert_eq!(relay.replies("a", 1).await, ["echo: back"]);
    relay.stop().await;
}

#[tokio::test]
async fn a_message_that_waits_in_the_journal_is_asked_about_again_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let open = |settings: &mut Settings| {
        only(
            settings,
            vec![rule("user-of-a", Role::User), rule("user-of-b", Role::User)],
        );
    };
    let relay = start_with(dir.path(), EchoAgent, open).await;
    relay.deliver("a", "1", "sleep=60000 long").await;
    relay.deliver("a", "2", "waits").await;
    relay
        .wait_for_status("one waits", |status| status.messages_waiting == 1)
        .await;
    relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    relay.crash().await;
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        only(settings, vec![rule("user-of-b", Role::User)]);
    })
    .await;
    relay.deliver("b", "1", "hello").await;
    relay.replies("b", 1).await;
    let status = relay
        .wait_for_status("nothing waits", |status| status.sessions_active == 0)
        .await;
    assert_eq!(status.tally.turns_started, 1, "only the message of b ran");
    let seen = relay.stop().await;
    assert!(
        seen.texts("a").is_empty(),
        "not even the notice: {:?}",
        seen.texts("a")
    );
}

#[tokio::test]
async fn a_stranger_presses_types_and_commands_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        only(settings, vec![rule("user-of-a", Role::User)]);
        settings.prompts.anyone_in_group = true;
    })
    .await;
    let question = ask(&relay, "a", "1").await;
    let mut answer = press(&question, "o0", "stranger");
    answer["source"]["chat_type"] = json!("group");
    relay.connector.deliver_buffered("press", answer).await.unwrap();
    for (id, text) in [("2", "/approve"), ("3", "1"), ("4", "/stop"), ("5", "/new")] {
        let message = in_group("a", id, "stranger", text);
        relay.connector.deliver_buffered(id, message).await.unwrap();
    }
    relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    let status = relay.handle.status().await.unwrap();
    assert_eq!(
        (
            status.prompts_open,
            status.turns_running,
            status.tally.turns_started
        ),
        (1, 1, 1)
    );
    let answer = press(&question, "o0", "user-of-a");
    relay.connector.deliver_buffered("own", answer).await.unwrap();
    relay
        .wait_for_status("the turn done", |status| status.tally.turns_done == 1)
        .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_revocation_withdraws_the_persons_question() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        only(settings, vec![rule("user-of-a", Role::User)]);
    })
    .await;
    ask(&relay, "a", "1").await;
    change(&relay, deny("discord:user-of-a")).await;
    let status = relay
        .wait_for_status("nothing open", |status| {
            status.prompts_open == 0 && status.turns_running == 0
        })
        .await;
    assert_eq!(status.tally.turns_stopped, 1);
    relay.stop().await;
}

#[tokio::test]
async fn an_owner_who_is_none_any_more_allows_nothing_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        only(settings, vec![rule("user-of-a", Role::Owner)]);
    })
    .await;
    let question = ask(&relay, "a", "1").await;
    assert!(labels(&question).contains("Always"));
    change(&relay, allow_as("discord:user-of-a", Some(Role::User))).await;
    let status = relay.handle.status().await.unwrap();
    assert_eq!(status.prompts_open, 0, "it is withdrawn with the change");
    for option in ["o0", "o1", "o2"] {
        let mut late = press(&question, option, "user-of-a");
        late["message_id"] = json!(option);
        relay.connector.deliver_buffered(option, late).await.unwrap();
        relay.seen("a press", |seen| seen.acked(option) == 1).await;
    }
    let texts = relay.replies("a", 1).await;
    assert!(!texts.iter().any(|text| text.contains("allowed")), "{texts:?}");
    relay.stop().await;
}

#[tokio::test]
async fn what_an_agent_asks_for_somebody_who_became_a_guest_is_denied() {
    let dir = tempfile::tempdir().unwrap();
    let gate = CancellationToken::new();
    let agent = Stubborn {
        gate: Some(gate.clone()),
        ..Stubborn::default()
    };
    let relay = start_asking_with(dir.path(), agent.clone(), BUTTONS, |settings| {
        only(settings, vec![rule("user-of-a", Role::User)]);
        settings.prompts.timeout_secs = 0;
    })
    .await;
    relay.deliver("a", "1", "hello").await;
    relay.wait_for_turns(1).await;
    change(&relay, allow_as("discord:user-of-a", Some(Role::Guest))).await;
    gate.cancel();
    assert_eq!(relay.replies("a", 1).await, ["done"]);
    assert_eq!(agent.answers(), [PromptAnswer::Chosen("no".to_owned())]);
    relay.stop().await;
}

#[tokio::test]
async fn a_stranger_is_paired_by_a_code_in_a_direct_message_only() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |settings: &mut Settings| {
        settings.access.mode = Mode::Pair;
        settings.streaming.typing = false;
    };
    let relay = start_with(dir.path(), EchoAgent, settings).await;
    let message = in_group("g", "1", "user-of-a", "let me in");
    relay.connector.deliver_buffered("g-1", message).await.unwrap();
    relay.deliver("a", "1", "hello").await;
    relay.deliver("a", "2", "hello?").await;
    let texts = relay.replies("a", 1).await;
    let pending = change(&relay, AccessRequest::Pending).await;
    let code = pending["pending"][0]["code"].as_str().unwrap().to_owned();
    assert!(texts[0].contains(&code), "{texts:?}");
    relay.stop().await;
    let relay = start_with(dir.path(), EchoAgent, settings).await;
    relay.deliver("a", "3", "and now?").await;
    relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    let approve = |code: &str| AccessRequest::Approve {
        code: code.to_owned(),
        role: Some(Role::Guest),
    };
    assert!(relay.handle.access(approve("WRONGCDE")).await.unwrap().is_err());
    change(&relay, approve(&code)).await;
    assert!(
        relay.handle.access(approve(&code)).await.unwrap().is_err(),
        "it works once"
    );
    // What they wrote first was kept across the restart, and is answered now, once.
    relay.replies("a", 2).await;
    relay.deliver("a", "1", "hello").await;
    relay.deliver("a", "4", "/whoami").await;
    relay.replies("a", 3).await;
    relay.deliver("a", "5", "hi").await;
    let texts = relay.replies("a", 4).await;
    let want = [
        "You have access now.",
        "echo: hello",
        "You are discord:user-of-a. Your role is guest.",
        "echo: hi",
    ];
    assert_eq!(
        texts, want,
        "no further code, and what came after the first is not run"
    );
    relay.deliver("a", "6", "/stop").await;
    assert_eq!(relay.replies("a", 5).await[4], "Your role does not allow that.");
    let seen = relay.stop().await;
    assert!(seen.texts("g").is_empty());
}

#[tokio::test]
async fn a_stranger_who_deletes_or_edits_what_is_kept_is_answered_as_it_is_now() {
    for (change_of, answers) in [
        ("message_is_deleted", &["You have access now."][..]),
        ("message_is_edit", &["You have access now.", "echo: better"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let pair = |settings: &mut Settings| {
            settings.access.mode = Mode::Pair;
            settings.streaming.typing = false;
        };
        let relay = start_with(dir.path(), EchoAgent, pair).await;
        relay.deliver("a", "1", "hello").await;
        relay.replies("a", 1).await;
        let mut changed = event("a", "1", "better");
        changed[change_of] = json!(true);
        relay.connector.deliver_buffered("b2", changed).await.unwrap();
        relay.seen("a change", |seen| seen.acked("b2") == 1).await;
        relay.stop().await;
        // It is stored.
        let relay = start_with(dir.path(), EchoAgent, pair).await;
        let pending = change(&relay, AccessRequest::Pending).await;
        let code = pending["pending"][0]["code"].as_str().unwrap().to_owned();
        change(&relay, AccessRequest::Approve { code, role: None }).await;
        relay.deliver("a", "2", "/whoami").await;
        let texts = relay.replies("a", answers.len() + 1).await;
        let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        texts.retain(|text| !text.starts_with("You are "));
        assert_eq!(texts.len(), answers.len(), "{texts:?}");
        assert!(texts[0].starts_with("You have access now."), "{texts:?}");
        assert_eq!(texts[1..], answers[1..], "{change_of}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_welcome_at_the_start_and_the_end_of_its_code_are_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let pair = |settings: &mut Settings| settings.access.mode = Mode::Pair;
    let relay = start_with(dir.path(), EchoAgent, pair).await;
    relay.deliver("a", "1", "hello").await;
    relay.replies("a", 1).await;
    relay.stop().await;
    let now_ms = 1_790_000_000_000;
    let rows = |dir: &Path| AccessFiles::open(dir, false, now_ms).unwrap().rows().unwrap();
    // Somebody approved the code while no relay ran, and the settings name the person by now.
    let mut approved = rows(dir.path());
    let mut pairing: Value = serde_json::from_str(approved[0].value.as_ref().unwrap()).unwrap();
    pairing["is_approved"] = json!(true);
    approved[0].value = Some(pairing.to_string());
    let mut files = AccessFiles::open(dir.path(), false, now_ms).unwrap();
    files.write(&approved).unwrap();
    drop(files);
    let mut settings = Settings::embedded(dir.path());
    pair(&mut settings);
    settings.access.people = vec![rule("user-of-a", Role::User)];
    let (transport, _connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
    let (opened, mut steps) =
        Journal::open_stepped(dir.path(), JournalSettings::default(), now_ms, Instant::now()).unwrap();
    let relay = Relay::builder(settings)
        .agent("tested", EchoAgent)
        .transport(Arc::new(transport))
        .simulated(now_ms, 1, opened);
    let relay = tokio::spawn(relay.build().unwrap().run(std::future::pending()));
    loop {
        steps.ready().await;
        steps.step(Instant::now());
        let left = tempfile::tempdir().unwrap();
        DiskImage::of(dir.path()).write_to(left.path());
        let journal = Inspector::open(left.path()).unwrap();
        let is_welcomed = !journal.list(Section::Ops, 0, 10).unwrap().is_empty();
        drop(journal);
        assert_eq!(rows(left.path()).is_empty(), is_welcomed);
        if is_welcomed {
            break;
        }
    }
    relay.abort();
    let _ = relay.await;
}

#[tokio::test]
async fn a_flood_of_strangers_gets_few_replies_and_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        only(settings, vec![rule("user-of-a", Role::User)]);
        settings.access.strangers = Some(Strangers::Notice);
    })
    .await;
    for number in 0..600 {
        let chat = format!("x{number}");
        relay.deliver(&chat, "1", "hello").await;
        relay.deliver(&chat, "2", "hello").await;
    }
    relay.deliver("a", "1", "me too").await;
    assert_eq!(relay.replies("a", 1).await, ["echo: me too"]);
    relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    let status = relay
        .wait_for_status("all replies out", |status| status.ops_durable == 0)
        .await;
    assert_eq!(
        (status.tally.turns_started, status.chats_known),
        (1, 1),
        "strangers are not remembered"
    );
    assert_eq!(status.tally.ops_applied, 51, "fifty notices and one answer");
    relay.stop().await;
}

#[tokio::test]
async fn a_person_over_the_limit_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        only(settings, vec![rule("u", Role::User), rule("v", Role::User)]);
        settings.access.limits.per_user_per_minute = Some(hermes_relay::access::ByRole::All(2));
    })
    .await;
    for (id, chat, user) in [
        ("1", "a", "u"),
        ("2", "a", "u"),
        ("3", "a", "u"),
        ("4", "b", "u"),
        ("5", "c", "v"),
    ] {
        let mut message = event(chat, id, "hi");
        message["source"]["user_id"] = json!(user);
        relay.connector.deliver_buffered(id, message).await.unwrap();
        relay.seen("an ack", |seen| seen.acked(id) == 1).await;
    }
    assert_eq!(relay.replies("c", 1).await, ["echo: hi"]);
    let texts = relay.replies("a", 3).await;
    assert_eq!(
        texts.iter().filter(|text| text.contains("too fast")).count(),
        1,
        "{texts:?}"
    );
    let status = relay.handle.status().await.unwrap();
    assert_eq!(status.tally.turns_started, 3);
    let mut usage = event("a", "9", "/usage");
    usage["source"]["user_id"] = json!("v");
    relay.connector.deliver_buffered("9", usage).await.unwrap();
    let texts = relay.replies("a", 4).await;
    assert_eq!(texts[3], "Today you have used 1 turn and 0 tokens.");
    let seen = relay.stop().await;
    assert!(
        seen.texts("b").is_empty(),
        "told once, across chats: {:?}",
        seen.texts("b")
    );
    let rows = Inspector::open(dir.path()).unwrap().usage(0).unwrap();
    let used: Vec<(&str, i64)> = rows.iter().map(|row| (row.person.as_str(), row.turns)).collect();
    assert_eq!(used, [("u", 2), ("v", 1)]);
}

#[tokio::test]
async fn an_absurd_number_of_tokens_stops_neither_the_journal_nor_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn: Turn| async move {
        let usage = Usage {
            input_tokens: u64::MAX,
            output_tokens: u64::MAX,
        };
        turn.events.emit(AgentEvent::Usage(usage)).await;
        turn.events.text("done").await;
        TurnEnd::Completed
    });
    for run in 0..2 {
        let relay = start_with(dir.path(), agent.clone(), |settings| {
            only(settings, vec![rule("user-of-a", Role::User)]);
        })
        .await;
        for number in 0..2 {
            relay.deliver("a", &format!("{run}{number}"), "hello").await;
            assert_eq!(relay.replies("a", number + 1).await.last().unwrap(), "done");
        }
        relay.stop().await;
    }
    let rows = Inspector::open(dir.path()).unwrap().usage(0).unwrap();
    assert_eq!(rows.iter().map(|row| row.turns).sum::<i64>(), 4);
    let tokens: i64 = rows.iter().map(|row| row.tokens).sum();
    assert_eq!(tokens, 8_000_000_000_000, "each number is capped");
}

#[tokio::test]
async fn whoever_may_use_one_agent_is_answered_by_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        let mut restricted = rule("user-of-a", Role::User);
        restricted.agents = Some(vec!["other".to_owned()]);
        only(settings, vec![restricted, rule("user-of-b", Role::User)]);
    })
    .await;
    relay.deliver("a", "1", "hello").await;
    assert_eq!(relay.replies("a", 1).await, ["You may not use tested here."]);
    relay.deliver("b", "1", "hello").await;
    assert_eq!(relay.replies("b", 1).await, ["echo: hello"]);
    relay.stop().await;
}

/// Waits for a question in a chat whose text contains this.
async fn question(relay: &Running, chat: &str, part: &str) -> SeenOp {
    let is_it = |op: &SeenOp| {
        op.chat() == Some(chat)
            && op.kind() == Some("prompt")
            && op.text().is_some_and(|text| text.contains(part))
    };
    let before = relay.seen("a question", |seen| seen.ops.iter().any(is_it)).await;
    before.ops.into_iter().rev().find(is_it).unwrap()
}

fn labels(question: &SeenOp) -> String {
    question.action.to_string()
}

#[tokio::test]
async fn with_approvers_owners_the_question_goes_to_an_owners_direct_message() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        only(
            settings,
            vec![rule("user-of-boss", Role::Owner), rule("user-of-a", Role::User)],
        );
        settings.prompts.approvers = Approvers::Owners;
        settings.prompts.anyone_in_group = true;
    })
    .await;
    // Nobody can be reached yet.
    relay.deliver("a", "1", "ask one").await;
    let texts = relay.replies("a", 2).await;
    assert!(texts[0].contains("no owner can be reached"), "{texts:?}");
    assert!(texts[1].contains("denied"), "{texts:?}");
    relay.deliver("boss", "1", "hello").await;
    relay.replies("boss", 1).await;
    relay.deliver("a", "2", "ask two").await;
    let asked = question(&relay, "boss", "discord:user-of-a asks: May I").await;
    assert!(
        labels(&asked).contains("Always"),
        "an owner may say always: {asked:?}"
    );
    let texts = relay.replies("a", 3).await;
    assert_eq!(texts[2], "An owner has been asked to approve this.");
    // The asker cannot answer, from either chat.
    for (id, chat) in [("x", "boss"), ("y", "a")] {
        let mut answer = press(&asked, "o0", "user-of-a");
        answer["source"]["chat_id"] = json!(chat);
        relay.connector.deliver_buffered(id, answer).await.unwrap();
    }
    relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1);
    let answer = press(&asked, "o0", "user-of-boss");
    relay.connector.deliver_buffered("z", answer).await.unwrap();
    let texts = relay.replies("a", 4).await;
    assert!(texts[3].contains("allowed once"), "{texts:?}");
    // An owner who is one no more answers nothing.
    relay.deliver("a", "3", "ask three").await;
    question(&relay, "boss", "three").await;
    change(&relay, deny("discord:user-of-boss")).await;
    let texts = relay.replies("a", 6).await;
    assert!(!texts[5].contains("allowed"), "{texts:?}");
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 0);
    relay.stop().await;
    let mut decided = Vec::new();
    let read = AuditFile::read(dir.path(), |line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        if entry["event"] == "question" {
            let text = |key: &str| entry[key].as_str().unwrap().to_owned();
            decided.push((text("decision"), text("reason"), text("person")));
        }
    });
    read.unwrap();
    let want = [
        ("denied", "no_owner", "discord:user-of-a"),
        ("asked", "owner", "discord:user-of-a"),
        ("answered", "once", "discord:user-of-boss"),
        ("asked", "owner", "discord:user-of-a"),
    ];
    let want =
        want.map(|(decision, reason, person)| (decision.to_owned(), reason.to_owned(), person.to_owned()));
    assert_eq!(decided, want);
}

#[tokio::test]
async fn only_owners_are_offered_always() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        settings.shutdown.drain_secs = 0;
        only(
            settings,
            vec![rule("user-of-boss", Role::Owner), rule("user-of-a", Role::User)],
        );
    })
    .await;
    for (chat, offered) in [("a", false), ("boss", true)] {
        relay.deliver(chat, "1", "ask one").await;
        let asked = question(&relay, chat, "May I").await;
        assert_eq!(labels(&asked).contains("Always"), offered, "{chat}: {asked:?}");
    }
    relay.stop().await;
    // Without rules it stays as it was.
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| settings.shutdown.drain_secs = 0).await;
    relay.deliver("a", "1", "ask one").await;
    assert!(labels(&question(&relay, "a", "May I").await).contains("Always"));
    relay.stop().await;
}

#[tokio::test]
async fn a_guests_agent_asks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        only(settings, vec![rule("user-of-a", Role::Guest)]);
    })
    .await;
    relay.deliver("a", "1", "ask one").await;
    let texts = relay.replies("a", 1).await;
    assert!(texts[0].contains("denied"), "{texts:?}");
    assert_eq!(relay.handle.status().await.unwrap().tally.prompts_opened, 0);
    relay.stop().await;
}

#[tokio::test]
async fn an_owner_lets_a_stranger_in_with_a_button() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        settings.access.mode = Mode::Pair;
        settings.access.people = vec![rule("user-of-boss", Role::Owner)];
    })
    .await;
    relay.deliver("boss", "1", "hello").await;
    relay.replies("boss", 1).await;
    relay.deliver("a", "1", "let me in").await;
    let asked = question(&relay, "boss", "May discord:user-of-a talk to me?").await;
    relay.replies("a", 1).await;
    // The stranger cannot press it.
    relay
        .connector
        .deliver_buffered("x", press(&asked, "o0", "user-of-a"))
        .await
        .unwrap();
    relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    assert_eq!(
        change(&relay, AccessRequest::Pending).await["pending"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    relay
        .connector
        .deliver_buffered("y", press(&asked, "o0", "user-of-boss"))
        .await
        .unwrap();
    relay.replies("a", 3).await;
    relay.deliver("a", "2", "hi").await;
    assert_eq!(
        relay.replies("a", 4).await[1..],
        ["You have access now.", "echo: let me in", "echo: hi"]
    );
    relay.stop().await;
}

/// A stranger wrote, and an owner is asked; gives the question and the stranger's code.
async fn stranger(relay: &Running, chat: &str) -> (SeenOp, String) {
    let before = relay.handle.status().await.unwrap().tally.ops_applied;
    relay.deliver(chat, "1", "let me in").await;
    let asked = question(relay, "boss", &format!("May discord:user-of-{chat} talk to me?")).await;
    relay
        .wait_for_status("the code and the question", |status| {
            status.tally.ops_applied >= before + 2
        })
        .await;
    let pending = change(relay, AccessRequest::Pending).await;
    let entries = pending["pending"].as_array().unwrap().iter();
    let user = format!("user-of-{chat}");
    let mut codes = entries.filter(|entry| entry["user"] == user.as_str());
    let code = codes.next().unwrap()["code"].as_str().unwrap().to_owned();
    (asked, code)
}

/// An owner presses a button; gives what stands under the question then.
async fn decide(relay: &Running, asked: &SeenOp, option: &str) -> String {
    let answer = press(asked, option, "user-of-boss");
    let name = asked.action["prompt_id"].as_str().unwrap();
    relay.connector.deliver_buffered(name, answer).await.unwrap();
    end_of(relay, asked).await
}

/// What stands under a question once it has ended.
async fn end_of(relay: &Running, asked: &SeenOp) -> String {
    let head = asked.text().unwrap().lines().next().unwrap();
    let is_end =
        |op: &SeenOp| op.kind() == Some("edit") && op.text().is_some_and(|text| text.starts_with(head));
    let seen = relay.seen("the end", |seen| seen.ops.iter().any(is_end)).await;
    let end = seen.ops.iter().rev().find(|op| is_end(op)).unwrap();
    end.text().unwrap().lines().last().unwrap().to_owned()
}

fn pairing(settings: &mut Settings) {
    settings.access.mode = Mode::Pair;
    settings.access.people = vec![rule("user-of-boss", Role::Owner)];
}

/// A relay whose owner can be asked who may talk to it.
async fn start_pairing(dir: &Path) -> Running {
    let relay = start_asking(dir, BUTTONS, pairing).await;
    relay.deliver("boss", "1", "hello").await;
    relay.replies("boss", 1).await;
    relay
}

#[tokio::test]
async fn an_owner_reads_what_really_became_of_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_pairing(dir.path()).await;
    let (asked, _) = stranger(&relay, "a").await;
    let end = decide(&relay, &asked, "o0").await;
    assert_eq!(end, "✅ discord:user-of-a has access from now on");
    let over = "⏹ This code is not valid any more. Nothing was changed.";
    let (asked, _) = stranger(&relay, "b").await;
    change(&relay, deny("discord:user-of-b")).await;
    assert_eq!(end_of(&relay, &asked).await, over, "denied meanwhile");
    let (asked, code) = stranger(&relay, "c").await;
    change(&relay, AccessRequest::Approve { code, role: None }).await;
    let end = end_of(&relay, &asked).await;
    assert_eq!(
        end, "⏹ discord:user-of-c has access from now on",
        "approved elsewhere"
    );
    let late = press(&asked, "o1", "user-of-boss");
    relay.connector.deliver_buffered("late", late).await.unwrap();
    let notice = "discord:user-of-c has access from now on";
    relay
        .seen("a notice", |seen| seen.texts("boss").contains(&notice))
        .await;
    let (asked, _) = stranger(&relay, "d").await;
    assert_eq!(decide(&relay, &asked, "o1").await, "✅ Ignored");
    relay.stop().await;
}

#[tokio::test]
async fn a_button_lets_somebody_in_also_after_a_restart_if_their_code_still_waits() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_pairing(dir.path()).await;
    let (asked, _) = stranger(&relay, "a").await;
    let (_, waiting) = stranger(&relay, "b").await;
    let (gone, _) = stranger(&relay, "c").await;
    relay.crash().await;
    let relay = start_asking(dir.path(), BUTTONS, pairing).await;
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 3);
    let end = decide(&relay, &asked, "o0").await;
    assert_eq!(end, "✅ discord:user-of-a has access from now on");
    assert_eq!(
        relay.replies("a", 2).await,
        ["You have access now.", "echo: let me in"]
    );
    // Somebody is let in without their code; later, whoever is asked about the other one is no owner any more.
    change(&relay, allow("discord:user-of-c")).await;
    let end = end_of(&relay, &gone).await;
    assert_eq!(end, "⏹ discord:user-of-c has access from now on");
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1);
    relay.stop().await;
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        pairing(settings);
        settings.access.people = vec![rule("user-of-other", Role::Owner)];
    })
    .await;
    let command = format!("hermes-relay access approve {waiting}");
    let is_end =
        |op: &SeenOp| op.kind() == Some("edit") && op.text().is_some_and(|text| text.ends_with(&command));
    relay.seen("the end", |seen| seen.ops.iter().any(is_end)).await;
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 0);
    relay.stop().await;
}

#[tokio::test]
async fn what_became_of_a_code_while_no_relay_ran_is_said_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_pairing(dir.path()).await;
    let (approved, _) = stranger(&relay, "a").await;
    let (over, _) = stranger(&relay, "b").await;
    relay.stop().await;
    let mut files = AccessFiles::open(dir.path(), false, 1_790_000_000_000).unwrap();
    let mut rows = files.rows().unwrap();
    for row in &mut rows {
        let mut pairing: Value = serde_json::from_str(row.value.as_ref().unwrap()).unwrap();
        if row.person == "user-of-a" {
            pairing["is_approved"] = json!(true);
        } else {
            pairing["asked_ms"] = json!(0);
        }
        row.value = Some(pairing.to_string());
    }
    files.write(&rows).unwrap();
    drop(files);
    let relay = start_asking(dir.path(), BUTTONS, pairing).await;
    let end = end_of(&relay, &approved).await;
    assert_eq!(end, "⏹ discord:user-of-a has access from now on");
    let end = end_of(&relay, &over).await;
    assert_eq!(end, "⏹ This code is not valid any more. Nothing was changed.");
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 0);
    relay.stop().await;
}

#[tokio::test]
async fn what_was_kept_for_somebody_who_is_let_in_is_taken_once_the_journal_works() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        settings.access.mode = Mode::Pair;
        settings.streaming.typing = false;
    })
    .await;
    relay.deliver("a", "1", "let me in").await;
    relay.replies("a", 1).await;
    let pending = change(&relay, AccessRequest::Pending).await;
    let code = pending["pending"][0]["code"].as_str().unwrap().to_owned();
    let journal = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    journal.execute_batch("BEGIN IMMEDIATE").unwrap();
    let works_again = async {
        relay
            .wait_for_status("a journal that fails", |status| status.journal_failing.is_some())
            .await;
        journal.execute_batch("COMMIT").unwrap();
    };
    tokio::join!(
        change(&relay, AccessRequest::Approve { code, role: None }),
        works_again
    );
    assert_eq!(
        relay.replies("a", 3).await[1..],
        ["You have access now.", "echo: let me in"]
    );
    relay.stop().await;
    let files = AccessFiles::open(dir.path(), false, 1_790_000_000_000).unwrap();
    let kinds: Vec<String> = files.rows().unwrap().into_iter().map(|row| row.kind).collect();
    assert_eq!(kinds.len(), 1, "nothing of the code is left: {kinds:?}");
}

#[tokio::test]
async fn an_owner_who_lets_in_somebody_whom_the_settings_deny_reads_that() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_pairing(dir.path()).await;
    let (asked, _) = stranger(&relay, "a").await;
    relay.crash().await;
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        pairing(settings);
        settings.access.deny.push(Denial {
            platform: "discord".to_owned(),
            user: "user-of-a".to_owned(),
        });
    })
    .await;
    let end = decide(&relay, &asked, "o0").await;
    assert_eq!(end, "⏹ A rule denies discord:user-of-a. Nothing was changed.");
    assert!(relay.stop().await.texts("a").is_empty());
}

#[tokio::test]
async fn a_message_that_is_too_long_to_be_kept_has_to_be_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        settings.access.mode = Mode::Pair;
        settings.streaming.typing = false;
    })
    .await;
    relay.deliver("a", "1", &"x".repeat(17 << 10)).await;
    let texts = relay.replies("a", 1).await;
    assert!(texts[0].contains("then write again"), "{texts:?}");
    let pending = change(&relay, AccessRequest::Pending).await;
    let code = pending["pending"][0]["code"].as_str().unwrap().to_owned();
    change(&relay, AccessRequest::Approve { code, role: None }).await;
    assert_eq!(
        relay.replies("a", 2).await[1],
        "You have access now. Send your message again."
    );
    assert_eq!(relay.stop().await.texts("a").len(), 2);
}

#[tokio::test]
async fn an_owner_who_ignores_a_stranger_frees_the_place_for_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        settings.access.mode = Mode::Pair;
        settings.access.people = vec![rule("user-of-boss", Role::Owner)];
    })
    .await;
    relay.deliver("boss", "1", "hello").await;
    relay.replies("boss", 1).await;
    for chat in ["a", "b", "c"] {
        relay.deliver(chat, "1", "let me in").await;
        relay.replies(chat, 1).await;
    }
    relay.deliver("d", "1", "let me in").await;
    relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    let asked = question(&relay, "boss", "May discord:user-of-b talk to me?").await;
    let answer = press(&asked, "o1", "user-of-boss");
    relay.connector.deliver_buffered("x", answer).await.unwrap();
    relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    let pending = change(&relay, AccessRequest::Pending).await;
    let people: Vec<&str> = (pending["pending"].as_array().unwrap().iter())
        .map(|entry| entry["user"].as_str().unwrap())
        .collect();
    assert_eq!(people, ["user-of-a", "user-of-c"]);
    relay.deliver("d", "2", "let me in").await;
    relay.replies("d", 1).await;
    relay.deliver("b", "2", "and me?").await;
    let seen = relay.seen("acks", |seen| seen.unacknowledged == 0).await;
    assert_eq!(seen.texts("b").len(), 1, "no further code within the hour");
    relay.stop().await;
}

#[tokio::test]
async fn a_press_without_a_person_is_never_an_owners() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_asking(dir.path(), BUTTONS, |settings| {
        settings.access.mode = Mode::Open;
        settings.access.people = vec![rule("user-of-boss", Role::Owner)];
        settings.prompts.approvers = Approvers::Owners;
    })
    .await;
    relay.deliver("boss", "1", "hello").await;
    relay.replies("boss", 1).await;
    // A question of somebody else's turn, and one of the owner's own.
    for (chat, word) in [("a", "first"), ("boss", "second")] {
        let id = format!("ask-{chat}");
        relay.deliver(chat, &id, &format!("ask {word}")).await;
        let asked = question(&relay, "boss", word).await;
        let mut nobody = press(&asked, "o0", "user-of-boss");
        nobody["source"].as_object_mut().unwrap().remove("user_id");
        nobody["message_id"] = json!(format!("{id}-press"));
        relay
            .connector
            .deliver_buffered(&format!("{id}-press"), nobody)
            .await
            .unwrap();
        let mut typed = event("boss", &format!("{id}-typed"), "/approve");
        typed["source"].as_object_mut().unwrap().remove("user_id");
        relay
            .connector
            .deliver_buffered(&format!("{id}-typed"), typed)
            .await
            .unwrap();
        relay.seen("acks", |seen| seen.unacknowledged == 0).await;
        assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1, "{chat}");
        let answer = press(&asked, "o0", "user-of-boss");
        relay
            .connector
            .deliver_buffered(&format!("{id}-own"), answer)
            .await
            .unwrap();
        relay
            .wait_for_status("it is decided", |status| status.prompts_open == 0)
            .await;
    }
    relay.stop().await;
}

/// A small generator, so that a walk can be repeated by its seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Whatever happens, in whatever order: somebody who is not let in causes no turn, no answer, no command, and no reply beyond
/// one notice an hour.
#[tokio::test]
async fn walks_let_nobody_do_anything_who_is_not_let_in() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = Rng(seed);
        let settings = |settings: &mut Settings| {
            only(settings, vec![rule("user-of-p0", Role::User)]);
            settings.access.strangers = Some(Strangers::Notice);
            settings.access.limits.per_user_per_minute = None;
            settings.streaming.reactions = false;
        };
        let mut relay = start_with(dir.path(), EchoAgent, settings).await;
        let mut inside = [true, false, false];
        let (mut wanted, mut seen): ([Vec<String>; 3], [Vec<String>; 3]) = Default::default();
        for step in 0..60 {
            let who = usize::try_from(rng.below(3)).unwrap();
            let (chat, id) = (format!("p{who}"), format!("s{step}"));
            let person = format!("discord:user-of-{chat}");
            match rng.below(8) {
                0 => {
                    change(&relay, allow(&person)).await;
                    inside[who] = true;
                }
                1 => {
                    change(&relay, deny(&person)).await;
                    inside[who] = false;
                }
                2 => {
                    // A restart; what was seen is kept for the end.
                    let record = relay.stop().await;
                    for (chat, seen) in seen.iter_mut().enumerate() {
                        seen.extend(record.texts(&format!("p{chat}")).into_iter().map(str::to_owned));
                    }
                    relay = start_with(dir.path(), EchoAgent, settings).await;
                }
                3 => {
                    let mut press = event(&chat, &id, "/o0");
                    press["prompt_response"] = json!({"prompt_id": "abcdef.1", "option_id": "o0"});
                    relay.connector.deliver_buffered(&id, press).await.unwrap();
                }
                4 => {
                    relay.deliver(&chat, &id, "/whoami").await;
                    if inside[who] {
                        wanted[who].push(format!("You are {person}. Your role is user."));
                    }
                }
                _ => {
                    // A new conversation: whoever answers so quickly looks like a program.
                    relay.deliver(&chat, &format!("{id}n"), "/new").await;
                    relay.deliver(&chat, &id, &id).await;
                    if inside[who] {
                        wanted[who].push("Started a new conversation.".to_owned());
                        wanted[who].push(format!("echo: {id}"));
                    }
                }
            }
            relay.seen("acks", |seen| seen.unacknowledged == 0).await;
            relay
                .wait_for_status("everything said", |status| {
                    status.sessions_active == 0 && status.ops_durable == 0 && status.ends_uncommitted == 0
                })
                .await;
        }
        let record = relay.stop().await;
        for (chat, seen) in seen.iter_mut().enumerate() {
            seen.extend(record.texts(&format!("p{chat}")).into_iter().map(str::to_owned));
            let (notices, said): (Vec<String>, Vec<String>) = seen
                .drain(..)
                .partition(|text| text.starts_with("You do not have access"));
            assert_eq!(said, wanted[chat], "seed {seed}, p{chat}");
            // Each start may tell a stranger once more; p0 was never a stranger.
            assert!(chat != 0 || notices.is_empty(), "seed {seed}: {notices:?}");
        }
    }
}
