//! Approvals of a Hermes run: who is asked, and that a yes meets nothing but what it was said to.

use std::time::Duration;

use hermes_relay::agent::{AgentEvent, FailureClass, Meaning, PromptAnswer, Question};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::http_agents::chat::Running;
use crate::http_agents::hermes_runs::{accept, completes, send_event, start};
use crate::http_agents::server::{Server, Stream};
use crate::http_agents::soon;

const STATUS: &str = "/v1/runs/run_1";
const APPROVAL: &str = "/v1/runs/run_1/approval";
const STOP: &str = "/v1/runs/run_1/stop";

/// Hermes asks, at this second of its clock.
pub(crate) async fn asks(stream: &Stream, command: &str, at: f64) {
    let request = json!({
        "command": command, "description": "deletes files", "allow_permanent": false, "timestamp": at,
        "choices": ["once", "session", "always", "deny"],
    });
    send_event(stream, "approval.request", request).await;
}

/// The run is looked at before a yes, and says this.
async fn looked_at(server: &mut Server, status: &str, updated_at: f64) {
    let status = json!({"status": status, "updated_at": updated_at});
    server.expect("GET", STATUS).await.reply_json(200, &status);
}

/// Hermes is handed this answer, and takes it or not.
async fn handed(server: &mut Server, answer: Value, status: u16) {
    let asked = server.expect("POST", APPROVAL).await;
    assert_eq!(asked.json(), answer);
    asked.reply_json(status, &json!({"resolved": 1}));
}

/// The status of a run that waits for an approval.
pub(crate) fn waiting(updated_at: f64) -> Value {
    json!({"status": "waiting_for_approval", "updated_at": updated_at})
}

/// Hermes is handed this answer, and takes it; whoever looks before that reads this status.
pub(crate) async fn handed_after_looks(server: &mut Server, answer: Value, status: &Value) {
    loop {
        let asked = server.asked().await;
        if asked.method == "POST" {
            assert_eq!((asked.uri.as_str(), asked.json()), (APPROVAL, answer));
            return asked.reply_json(200, &json!({"resolved": 1}));
        }
        asked.reply_json(200, status);
    }
}

/// The next question; whoever looks before that reads this status.
async fn asked_after_looks(
    server: &mut Server,
    turn: &mut Running,
    status: &Value,
) -> (Question, oneshot::Sender<PromptAnswer>) {
    loop {
        tokio::select! {
            asked = server.expect("GET", STATUS) => asked.reply_json(200, status),
            question = turn.question() => break question,
        }
    }
}

/// The run is looked at, and is completed.
async fn looks_completed(server: &mut Server, turn: Running) {
    let status = json!({"status": "completed", "output": "done"});
    server.expect("GET", STATUS).await.reply_json(200, &status);
    assert_eq!(turn.over().await.completed(), "done");
    assert!(server.is_quiet());
}

async fn answers(turn: &mut Running, about: &str, answer: PromptAnswer) {
    let (question, reply) = turn.question().await;
    assert_eq!(question.detail.as_deref(), Some(about));
    reply.send(answer).unwrap();
}

async fn notices(turn: &mut Running, part: &str) {
    let notice = turn.event().await;
    assert!(
        matches!(&notice, AgentEvent::Notice(text) if text.contains(part)),
        "{notice:?}"
    );
}

fn yes(choice: &str) -> PromptAnswer {
    PromptAnswer::Chosen(choice.to_owned())
}

async fn ends_well(stream: Stream, turn: Running, mut server: Server) {
    completes(stream, "done").await;
    assert_eq!(turn.over().await.completed(), "done");
    assert!(server.is_quiet());
}

#[tokio::test]
async fn approvals_are_asked_and_answered_one_after_the_other() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    for (command, at, answer, choice) in [
        ("rm -r a", 100.0, yes("session"), "session"),
        ("rm -r b", 200.0, PromptAnswer::TimedOut, "deny"),
        ("rm -r c", 300.0, yes("once"), "once"),
    ] {
        asks(&stream, command, at).await;
        let (question, reply) = turn.question().await;
        assert_eq!(question.detail.as_deref(), Some(command));
        assert!(question.text.contains("deletes files"), "{question:?}");
        // Less than Hermes itself waits, counted from when it asked.
        let (least, most) = (Duration::from_secs(30), Duration::from_secs(55));
        assert!(
            question
                .timeout
                .is_some_and(|timeout| (least..=most).contains(&timeout)),
            "{question:?}"
        );
        let meanings: Vec<Meaning> = question.options.iter().map(|option| option.meaning).collect();
        assert_eq!(
            meanings,
            [Meaning::AllowOnce, Meaning::AllowSession, Meaning::Deny]
        );
        reply.send(answer).unwrap();
        if choice != "deny" {
            looked_at(&mut server, "waiting_for_approval", at).await;
        }
        handed(&mut server, json!({"choice": choice}), 200).await;
        // Our own answer comes back; it must not take the next question away.
        let echo = json!({"choice": choice, "resolved": 1, "timestamp": at + 50.0});
        send_event(&stream, "approval.responded", echo).await;
    }
    ends_well(stream, turn, server).await;
}

#[tokio::test]
async fn of_several_open_approvals_none_is_answered_before_all_are_and_the_strictest_counts() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    asks(&stream, "rm -r a", 100.0).await;
    asks(&stream, "rm -r b", 100.1).await;
    answers(&mut turn, "rm -r a", yes("session")).await;
    answers(&mut turn, "rm -r b", yes("once")).await;
    looked_at(&mut server, "waiting_for_approval", 100.1).await;
    handed(&mut server, json!({"choice": "once"}), 200).await;
    notices(&mut turn, "strictest").await;
    // After the first answer the status says `running`, although Hermes waits for the second.
    looked_at(&mut server, "running", 100.5).await;
    handed(&mut server, json!({"choice": "once"}), 200).await;
    for _ in 0..2 {
        send_event(&stream, "approval.responded", json!({"resolved": 1})).await;
    }
    asks(&stream, "rm -r c", 200.0).await;
    asks(&stream, "rm -r d", 200.0).await;
    answers(&mut turn, "rm -r c", yes("once")).await;
    answers(&mut turn, "rm -r d", PromptAnswer::TimedOut).await;
    handed(&mut server, json!({"choice": "deny"}), 200).await;
    notices(&mut turn, "strictest").await;
    handed(&mut server, json!({"choice": "deny"}), 200).await;
    ends_well(stream, turn, server).await;
}

#[tokio::test]
async fn an_approval_does_not_answer_a_later_question_of_hermes() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    asks(&stream, "ls", 100.0).await;
    answers(&mut turn, "ls", yes("once")).await;
    // Hermes waited for ten seconds only, and has asked something else, which is still on its way.
    let newer = waiting(112.0);
    server.expect("GET", STATUS).await.reply_json(200, &newer);
    server.expect("GET", STATUS).await.reply_json(200, &newer);
    asks(&stream, "rm -rf /", 112.0).await;
    let (question, reply) = asked_after_looks(&mut server, &mut turn, &newer).await;
    assert_eq!(question.detail.as_deref(), Some("rm -rf /"));
    reply.send(yes("deny")).unwrap();
    handed(&mut server, json!({"choice": "deny"}), 200).await;
    notices(&mut turn, "strictest").await;
    handed(&mut server, json!({"choice": "deny"}), 409).await;
    ends_well(stream, turn, server).await;
}

#[tokio::test]
async fn without_times_in_the_stream_an_approval_is_sent_when_hermes_waits() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    let request = json!({"command": "rm -r a", "choices": ["once", "deny"], "timestamp": null});
    send_event(&stream, "approval.request", request).await;
    answers(&mut turn, "rm -r a", yes("once")).await;
    looked_at(&mut server, "waiting_for_approval", 1_790_000_000.0).await;
    handed(&mut server, json!({"choice": "once"}), 200).await;
    ends_well(stream, turn, server).await;
}

#[tokio::test]
async fn no_approval_is_sent_when_hermes_waits_for_none() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    for status in ["running", "stopping", "completed"] {
        asks(&stream, "rm -r a", 100.0).await;
        answers(&mut turn, "rm -r a", yes("always")).await;
        looked_at(&mut server, status, 100.0).await;
        handed(&mut server, json!({"choice": "deny"}), 409).await;
        notices(&mut turn, "no longer waits").await;
    }
    ends_well(stream, turn, server).await;
}

#[tokio::test]
async fn an_approval_that_others_gave_or_that_came_too_late_is_reported() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    asks(&stream, "rm -r a", 100.0).await;
    let (_, mut reply) = turn.question().await;
    send_event(
        &stream,
        "approval.responded",
        json!({"choice": "once", "resolved": 1}),
    )
    .await;
    // The question is taken back.
    soon("the question is taken back", reply.closed()).await;
    asks(&stream, "rm -r b", 110.0).await;
    answers(&mut turn, "rm -r b", yes("once")).await;
    looked_at(&mut server, "waiting_for_approval", 110.0).await;
    handed(&mut server, json!({"choice": "once"}), 409).await;
    notices(&mut turn, "no longer waits").await;
    ends_well(stream, turn, server).await;
}

#[tokio::test]
async fn when_an_answer_is_lost_everything_is_denied_before_anybody_is_asked_again() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    let all = json!({"choice": "deny", "all": true});
    asks(&stream, "rm -r a", 100.0).await;
    answers(&mut turn, "rm -r a", yes("once")).await;
    looked_at(&mut server, "waiting_for_approval", 100.0).await;
    handed(&mut server, json!({"choice": "once"}), 502).await;
    notices(&mut turn, "could not be handed").await;
    handed(&mut server, all.clone(), 502).await;
    // Nobody is asked about the next: an answer to it might meet the one before.
    asks(&stream, "rm -r b", 110.0).await;
    handed(&mut server, all, 200).await;
    notices(&mut turn, "everything").await;
    send_event(&stream, "approval.responded", json!({"resolved": 2})).await;
    asks(&stream, "rm -r c", 120.0).await;
    answers(&mut turn, "rm -r c", yes("once")).await;
    looked_at(&mut server, "waiting_for_approval", 120.0).await;
    handed(&mut server, json!({"choice": "once"}), 200).await;
    ends_well(stream, turn, server).await;
}

#[tokio::test]
async fn a_flood_of_approvals_is_denied_as_a_whole() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    for _ in 0..17 {
        asks(&stream, "rm", 100.0).await;
    }
    let (_, mut reply) = turn.question().await;
    handed(&mut server, json!({"choice": "deny", "all": true}), 200).await;
    soon("the question is taken back", reply.closed()).await;
    notices(&mut turn, "everything").await;
    ends_well(stream, turn, server).await;
}

#[tokio::test]
async fn a_question_outlives_the_stream_that_it_came_with() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    asks(&stream, "rm -r a", 100.0).await;
    let (_, reply) = turn.question().await;
    stream.cut().await;
    looked_at(&mut server, "waiting_for_approval", 100.0).await;
    reply.send(yes("once")).unwrap();
    handed_after_looks(&mut server, json!({"choice": "once"}), &waiting(100.0)).await;
    looks_completed(&mut server, turn).await;
}

#[tokio::test]
async fn after_a_lost_stream_every_open_approval_is_asked_and_the_strictest_counts() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    asks(&stream, "rm -r a", 100.0).await;
    asks(&stream, "rm -r b", 100.1).await;
    let (_, reply) = turn.question().await;
    stream.cut().await;
    looked_at(&mut server, "waiting_for_approval", 100.1).await;
    reply.send(yes("session")).unwrap();
    let (question, reply) = asked_after_looks(&mut server, &mut turn, &waiting(100.1)).await;
    assert_eq!(question.detail.as_deref(), Some("rm -r b"));
    reply.send(yes("once")).unwrap();
    handed_after_looks(&mut server, json!({"choice": "once"}), &waiting(100.1)).await;
    notices(&mut turn, "strictest").await;
    let running = json!({"status": "running", "updated_at": 130.0});
    handed_after_looks(&mut server, json!({"choice": "once"}), &running).await;
    looks_completed(&mut server, turn).await;
}

#[tokio::test]
async fn after_a_lost_stream_the_next_approval_is_asked_when_one_was_denied() {
    let (mut server, chat) = start().await;
    for (status, answer) in [
        (
            json!({"status": "running", "updated_at": 130.0}),
            json!({"choice": "once"}),
        ),
        // Hermes has asked something else since.
        (waiting(150.0), json!({"choice": "deny", "all": true})),
    ] {
        let mut turn = chat.start("clean up");
        let (_, stream) = accept(&mut server).await;
        asks(&stream, "rm -r a", 100.0).await;
        asks(&stream, "rm -r b", 100.1).await;
        let (_, reply) = turn.question().await;
        stream.cut().await;
        looked_at(&mut server, "waiting_for_approval", 100.1).await;
        reply.send(yes("deny")).unwrap();
        handed_after_looks(&mut server, json!({"choice": "deny"}), &waiting(100.1)).await;
        let (question, reply) = asked_after_looks(&mut server, &mut turn, &status).await;
        assert_eq!(question.detail.as_deref(), Some("rm -r b"));
        reply.send(yes("once")).unwrap();
        handed_after_looks(&mut server, answer, &status).await;
        looks_completed(&mut server, turn).await;
    }
}

#[tokio::test]
async fn an_answer_that_waited_for_the_stream_is_denied_when_the_stream_is_lost() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    asks(&stream, "ls", 100.0).await;
    answers(&mut turn, "ls", yes("once")).await;
    // Hermes has asked something else, which is not read.
    looked_at(&mut server, "waiting_for_approval", 112.0).await;
    stream.cut().await;
    let all = json!({"choice": "deny", "all": true});
    handed_after_looks(&mut server, all, &waiting(112.0)).await;
    notices(&mut turn, "everything").await;
    looks_completed(&mut server, turn).await;
}

#[tokio::test]
async fn a_run_that_is_gone_while_people_are_asked_has_crashed() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    asks(&stream, "rm -r a", 100.0).await;
    let (_, _reply) = turn.question().await;
    stream.cut().await;
    server.expect("GET", STATUS).await.reply(404, &[], "");
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Crashed);
    assert!(over.failure().public_text.contains("ask again"), "{over:?}");
    assert!(server.is_quiet());
}

#[tokio::test]
async fn an_abandoned_run_goes_on_only_with_a_question_that_the_next_process_can_take_up() {
    for is_second in [false, true] {
        let (mut server, chat) = start().await;
        let mut turn = chat.start("clean up");
        let (_, stream) = accept(&mut server).await;
        asks(&stream, "rm -r a", 100.0).await;
        let (mut question, mut reply) = turn.question().await;
        if is_second {
            asks(&stream, "rm -r b", 100.1).await;
            // Both are read before the first is answered.
            send_event(&stream, "message.delta", json!({"delta": "And b."})).await;
            turn.expect_text("And b.").await;
            reply.send(yes("once")).unwrap();
            (question, reply) = turn.question().await;
        }
        assert_eq!(question.resume.is_some(), !is_second);
        stream.cut().await;
        looked_at(&mut server, "waiting_for_approval", 100.1).await;
        turn.give_up();
        soon("the turn is dropped", reply.closed()).await;
        let shutdown = tokio::spawn(async move { chat.agent().shutdown().await });
        let mut stops = 0;
        while !shutdown.is_finished() {
            tokio::select! {
                asked = server.asked() => {
                    stops += usize::from(asked.uri == STOP);
                    asked.reply(200, &[], "{}");
                }
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(stops, usize::from(is_second));
    }
}
