//! A question whose agent goes on without the relay: the next start goes on with it.

use super::restart::OVER;
use super::{BUTTONS, PLAIN, Stubborn, owner, press, question, shown, start_asking};
use crate::support::memory_relay::{Running, event};
use crate::support::wait::eventually;
use hermes_relay::access::{ByRole, Mode, PersonRule, Role};
use hermes_relay::adapter::prompt::Approvers;
use hermes_relay::agent::{
    Agent, AgentFuture, AgentInfo, Failure, FailureClass, PromptAnswer, Question, Turn, TurnEnd,
};
use hermes_relay::config::Settings;
use hermes_relay::relay::{Record, SeenOp};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Its runs go on without the relay: what it was answered, and whether it still knows them.
#[derive(Clone, Default)]
pub(crate) struct Keeper {
    pub(crate) answers: Arc<Mutex<Vec<PromptAnswer>>>,
    has_forgotten: bool,
}

impl Agent for Keeper {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            resumes: true,
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let text = turn.input.text.clone();
            let answer = if let Some(resumed) = turn.resumed {
                assert_eq!(resumed.state, format!("run of {text}"));
                if self.has_forgotten {
                    let failure = Failure::new(FailureClass::Lost, "It is gone.", "a test");
                    return TurnEnd::Failed(failure);
                }
                resumed.answer().await
            } else {
                let question = Question {
                    resume: Some(format!("run of {text}")),
                    ..question("May I?")
                };
                turn.approver.ask(question).await
            };
            self.answers.lock().unwrap().push(answer);
            turn.events.text("went on").await;
            TurnEnd::Completed
        })
    }
}

/// How a relay ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    InOrder,
}

/// Shows a question, and ends the relay once the journal knows of it.
async fn left_open(dir: &Path, agent: &Keeper, ops: &[&str], end: End, timeout_secs: u64) -> SeenOp {
    let relay = start(dir, agent, ops, timeout_secs).await;
    let before = relay.handle.status().await.unwrap().tally.ops_applied;
    relay.deliver("a", "1", "clean up").await;
    let question = shown(&relay, "a").await;
    relay
        .wait_for_status("the question shown", |status| status.tally.ops_applied > before)
        .await;
    ended(relay, end).await;
    question
}

async fn start(dir: &Path, agent: &Keeper, ops: &[&str], timeout_secs: u64) -> Running {
    start_asking(dir, agent.clone(), ops, |settings| {
        settings.prompts.timeout_secs = timeout_secs;
        settings.shutdown.drain_secs = 0;
    })
    .await
}

async fn ended(relay: Running, end: End) {
    match end {
        End::Killed => relay.crash().await,
        End::InOrder => drop(relay.stop().await),
    }
}

/// Whether the message of a question says that nobody is asked any more.
fn is_closed(seen: &Record) -> bool {
    let closes = |op: &SeenOp| op.kind() == Some("edit") && op.text().is_some_and(|text| text.contains(OVER));
    seen.ops.iter().any(closes)
}

/// The messages to the chat that are new in this process, but for the question.
fn said(seen: &Record) -> Vec<String> {
    let new = |op: &&SeenOp| op.kind() == Some("send") && op.chat() == Some("a");
    let texts = seen.ops.iter().filter(new).filter_map(|op| op.text());
    texts.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_answer_after_a_restart_reaches_the_agent_and_its_answer_the_chat_once() {
    for (ops, end, answer) in [
        (BUTTONS, End::Killed, "press"),
        (BUTTONS, End::InOrder, "press"),
        (BUTTONS, End::Killed, "/approve A1"),
        (PLAIN, End::Killed, "A1 1"),
        (PLAIN, End::InOrder, "/deny A1"),
    ] {
        let case = format!("{ops:?} {end:?} {answer}");
        let (dir, agent) = (tempfile::tempdir().unwrap(), Keeper::default());
        let question = left_open(dir.path(), &agent, ops, end, 300).await;
        // Twice, to see that it is kept as long as it is open.
        let relay = start(dir.path(), &agent, ops, 300).await;
        relay.wait_for_turns(1).await;
        ended(relay, end).await;
        let relay = start(dir.path(), &agent, ops, 300).await;
        relay.wait_for_turns(1).await;
        assert_eq!(agent.answers.lock().unwrap().len(), 0, "{case}");
        let event = match answer {
            "press" => press(&question, "o0", &owner("a")),
            typed => event("a", "typed", typed),
        };
        relay.connector.deliver_buffered("answer", event).await.unwrap();
        let seen = relay
            .seen("the rest of the answer", |seen| {
                said(seen).contains(&"went on".to_owned())
                    && seen.ops.iter().any(|op| op.kind() == Some("edit"))
            })
            .await;
        assert!(!is_closed(&seen), "{case}: {seen:?}");
        let wanted = if answer.starts_with("/deny") { "no" } else { "yes" };
        let wanted = PromptAnswer::Chosen(wanted.to_owned());
        assert_eq!(*agent.answers.lock().unwrap(), [wanted], "{case}");
        relay.wait_for_turns(0).await;
        assert_eq!(said(&relay.stop().await), ["went on"], "{case}");
        // Nothing is left of it.
        let relay = start(dir.path(), &agent, ops, 300).await;
        relay.deliver("b", "2", "/status").await;
        relay.replies("b", 1).await;
        let seen = relay.stop().await;
        assert!(said(&seen).is_empty() && !is_closed(&seen), "{case}: {seen:?}");
    }
}

#[tokio::test]
async fn a_question_whose_turn_cannot_go_on_is_closed_and_the_turn_reported() {
    let gone = Keeper {
        has_forgotten: true,
        ..Keeper::default()
    };
    for case in ["gone", "too late", "no such agent"] {
        let dir = tempfile::tempdir().unwrap();
        let timeout_secs = if case == "too late" { 1 } else { 300 };
        left_open(dir.path(), &Keeper::default(), BUTTONS, End::Killed, timeout_secs).await;
        let relay = match case {
            "gone" => start(dir.path(), &gone, BUTTONS, 300).await,
            "too late" => {
                let left = std::time::Instant::now();
                eventually("its time is over", async || left.elapsed().as_millis() > 1100).await;
                start(dir.path(), &Keeper::default(), BUTTONS, 300).await
            }
            _ => start_asking(dir.path(), Stubborn::default(), BUTTONS, |_| {}).await,
        };
        let is_over =
            |seen: &Record| is_closed(seen) && said(seen).iter().any(|text| text.contains("I was restarted"));
        let seen = relay.seen(case, is_over).await;
        assert_eq!(said(&seen).len(), 1, "{case}: {seen:?}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_turn_that_is_taken_up_counts_once_towards_the_limit_of_the_day() {
    let (dir, agent) = (tempfile::tempdir().unwrap(), Keeper::default());
    let start = async || {
        start_asking(dir.path(), agent.clone(), BUTTONS, |settings| {
            decided_by_owners(settings, &[("a", Role::Owner)]);
            settings.access.limits.turns_per_day = Some(ByRole::All(1));
        })
        .await
    };
    let relay = start().await;
    relay.deliver("a", "1", "clean up").await;
    let question = shown(&relay, "a").await;
    relay
        .wait_for_status("the question shown", |status| status.tally.ops_applied == 1)
        .await;
    relay.crash().await;
    let relay = start().await;
    relay.wait_for_turns(1).await;
    let answer = press(&question, "o0", &owner("a"));
    relay.connector.deliver_buffered("answer", answer).await.unwrap();
    relay
        .seen("the rest of the answer", |seen| {
            said(seen).contains(&"went on".to_owned())
        })
        .await;
    relay.wait_for_turns(0).await;
    for (id, text, answer) in [("2", "/usage", "1 of 1"), ("3", "again", "daily limit")] {
        relay.deliver("a", id, text).await;
        let is_answered = |seen: &Record| said(seen).iter().any(|said| said.contains(answer));
        relay.seen(answer, is_answered).await;
    }
    relay.stop().await;
}

/// A question in a group that anyone may answer, left open, and the start after it with these settings.
async fn left_open_to_anyone(
    dir: &Path,
    agent: &Keeper,
    adjust: impl FnOnce(&mut Settings),
) -> (Running, SeenOp) {
    let relay = start_asking(dir, agent.clone(), BUTTONS, |settings| {
        settings.prompts.anyone_in_group = true;
    })
    .await;
    let mut said = event("a", "1", "clean up");
    said["source"]["chat_type"] = json!("group");
    relay.connector.deliver_buffered("b1", said).await.unwrap();
    let question = shown(&relay, "a").await;
    relay
        .wait_for_status("the question shown", |status| status.tally.ops_applied == 1)
        .await;
    relay.crash().await;
    let relay = start_asking(dir, agent.clone(), BUTTONS, |settings| {
        settings.prompts.anyone_in_group = true;
        adjust(settings);
    })
    .await;
    (relay, question)
}

#[tokio::test]
async fn a_question_that_anyone_may_answer_is_closed_if_not_anyone_may_after_the_restart() {
    let stricter: [fn(&mut Settings); 2] = [
        |settings| settings.prompts.anyone_in_group = false,
        |settings| settings.prompts.approvers = Approvers::Owners,
    ];
    for adjust in stricter {
        let (dir, agent) = (tempfile::tempdir().unwrap(), Keeper::default());
        let (relay, question) = left_open_to_anyone(dir.path(), &agent, adjust).await;
        let is_over =
            |seen: &Record| is_closed(seen) && said(seen).iter().any(|text| text.contains("I was restarted"));
        relay.seen("the end of the question", is_over).await;
        let late = press(&question, "o0", "bob");
        relay.connector.deliver_buffered("late", late).await.unwrap();
        relay.seen("a press", |seen| seen.acked("late") == 1).await;
        relay.stop().await;
        assert_eq!(*agent.answers.lock().unwrap(), []);
    }
    let (dir, agent) = (tempfile::tempdir().unwrap(), Keeper::default());
    let (relay, question) = left_open_to_anyone(dir.path(), &agent, |_| {}).await;
    relay.wait_for_turns(1).await;
    let answer = press(&question, "o0", "bob");
    relay.connector.deliver_buffered("answer", answer).await.unwrap();
    relay.wait_for_turns(0).await;
    relay.stop().await;
    let allowed = PromptAnswer::Chosen("yes".to_owned());
    assert_eq!(*agent.answers.lock().unwrap(), [allowed]);
}

#[tokio::test]
async fn stop_ends_a_turn_that_was_taken_up_and_its_question() {
    let (dir, agent) = (tempfile::tempdir().unwrap(), Keeper::default());
    left_open(dir.path(), &agent, BUTTONS, End::Killed, 300).await;
    let relay = start(dir.path(), &agent, BUTTONS, 300).await;
    relay.wait_for_turns(1).await;
    relay.deliver("a", "2", "/stop").await;
    relay.seen("the end of the question", is_closed).await;
    relay.wait_for_turns(0).await;
    relay.stop().await;
}

/// Only these people may write, and owners decide what others' agents ask.
fn decided_by_owners(settings: &mut Settings, people: &[(&str, Role)]) {
    settings.shutdown.drain_secs = 0;
    settings.prompts.approvers = Approvers::Owners;
    settings.access.mode = Mode::List;
    let rule = |(chat, role): &(&str, Role)| PersonRule {
        platform: "discord".to_owned(),
        user: owner(chat),
        role: *role,
        ..PersonRule::default()
    };
    settings.access.people = people.iter().map(rule).collect();
}

#[tokio::test]
async fn a_question_is_closed_if_whoever_is_asked_may_not_decide_it_after_the_restart() {
    // An owner's own, and one that an owner decides for somebody else.
    for asker in ["a", "b"] {
        let (dir, agent) = (tempfile::tempdir().unwrap(), Keeper::default());
        let relay = start_asking(dir.path(), agent.clone(), BUTTONS, |settings| {
            decided_by_owners(settings, &[("a", Role::Owner), ("b", Role::User)]);
        })
        .await;
        relay.deliver("a", "1", "/status").await;
        relay.replies("a", 1).await;
        relay
            .wait_for_status("all is said", |status| status.ops_durable == 0)
            .await;
        let before = relay.handle.status().await.unwrap().tally.ops_applied;
        relay.deliver(asker, "2", "clean up").await;
        let is_question = |op: &SeenOp| op.kind() == Some("prompt") && op.chat() == Some("a");
        let seen = relay
            .seen("a question", |seen| seen.ops.iter().any(is_question))
            .await;
        let question = seen.ops.iter().find(|op| is_question(op)).cloned().unwrap();
        let ops = if asker == "a" { 1 } else { 2 };
        relay
            .wait_for_status("the question shown", |status| {
                status.tally.ops_applied >= before + ops
            })
            .await;
        relay.crash().await;
        let relay = start_asking(dir.path(), agent.clone(), BUTTONS, |settings| {
            decided_by_owners(settings, &[("a", Role::User), ("b", Role::User)]);
        })
        .await;
        relay.seen("the end of the question", is_closed).await;
        relay
            .wait_for_status("nothing is open", |status| {
                status.prompts_open == 0 && status.turns_running == 0
            })
            .await;
        let late = press(&question, "o0", &owner("a"));
        relay.connector.deliver_buffered("late", late).await.unwrap();
        relay.seen("a press", |seen| seen.acked("late") == 1).await;
        let seen = relay.stop().await;
        assert_eq!(*agent.answers.lock().unwrap(), [], "{asker}");
        let told = seen.texts(asker);
        assert!(
            told.iter().any(|text| text.contains("I was restarted")),
            "{asker}: {told:?}"
        );
    }
}
