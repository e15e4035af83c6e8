//! A run of Hermes that an earlier process left with an open approval: the answer reaches it, and its answer the chat.

use hermes_relay::agent::{AgentEvent, FailureClass, PromptAnswer};
use serde_json::{Value, json};

use crate::http_agents::chat::Chat;
use crate::http_agents::hermes_approvals::{asks, handed_after_looks, waiting};
use crate::http_agents::hermes_runs::{accept, agent, send_event, settings, start};
use crate::http_agents::server::Server;
use crate::http_agents::soon;

const STATUS: &str = "/v1/runs/run_1";

/// A run that waits, what it is taken up from, and a new process.
async fn left_waiting() -> (Server, Chat, String) {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("clean up");
    let (_, stream) = accept(&mut server).await;
    send_event(&stream, "message.delta", json!({"delta": "Let me see."})).await;
    asks(&stream, "rm -r a", 100.0).await;
    let (question, _reply) = turn.question().await;
    let state = question.resume.expect("a question that outlives the relay");
    turn.give_up();
    stream.abandoned().await;
    let chat = Chat::new(agent(settings(&server.base())));
    (server, chat, state)
}

/// The run is looked at, and says this.
async fn looked_at(server: &mut Server, status: &Value) {
    server.expect("GET", STATUS).await.reply_json(200, status);
}

#[tokio::test]
async fn an_answer_is_handed_over_and_the_rest_is_said_once() {
    for (output, is_unseen, said) in [
        ("Done.", false, "Done."),
        ("Let me see. Done.", false, "Done."),
        ("Done.", true, "Let me see.\n\nDone."),
        ("Let me see.", false, ""),
    ] {
        let (mut server, chat, state) = left_waiting().await;
        let (turn, answer) = chat.resume(&state, is_unseen);
        looked_at(&mut server, &waiting(100.0)).await;
        answer.send(PromptAnswer::Chosen("once".to_owned())).unwrap();
        handed_after_looks(&mut server, json!({"choice": "once"}), &waiting(100.0)).await;
        looked_at(&mut server, &json!({"status": "completed", "output": output})).await;
        assert_eq!(turn.over().await.completed(), said, "{output:?}");
        // What is asked next has the whole conversation.
        let _turn = chat.start("thanks");
        let (body, _stream) = accept(&mut server).await;
        assert_eq!(body["conversation_history"][0]["content"], "clean up");
    }
}

#[tokio::test]
async fn what_hermes_asked_since_is_denied_with_it() {
    let (mut server, chat, state) = left_waiting().await;
    let (mut turn, answer) = chat.resume(&state, false);
    answer.send(PromptAnswer::Chosen("session".to_owned())).unwrap();
    let all = json!({"choice": "deny", "all": true});
    handed_after_looks(&mut server, all, &waiting(140.0)).await;
    let notice = turn.event().await;
    assert!(
        matches!(&notice, AgentEvent::Notice(text) if text.contains("denied")),
        "{notice:?}"
    );
    looked_at(
        &mut server,
        &json!({"status": "completed", "output": "Denied, then."}),
    )
    .await;
    assert_eq!(turn.over().await.completed(), "Denied, then.");
}

#[tokio::test]
async fn a_question_that_hermes_waits_for_no_more_is_taken_back() {
    let (mut server, chat, state) = left_waiting().await;
    let (turn, mut answer) = chat.resume(&state, false);
    looked_at(&mut server, &json!({"status": "running", "updated_at": 160.0})).await;
    soon("the question is taken back", answer.closed()).await;
    looked_at(
        &mut server,
        &json!({"status": "completed", "output": "Done without."}),
    )
    .await;
    assert_eq!(turn.over().await.completed(), "Done without.");
}

#[tokio::test]
async fn a_run_that_is_gone_is_lost() {
    let (mut server, chat, state) = left_waiting().await;
    let (turn, _answer) = chat.resume(&state, false);
    server.expect("GET", STATUS).await.reply(404, &[], "");
    assert_eq!(turn.over().await.failure().class, FailureClass::Lost);
    for state in ["", "{}", r#"{"run":"../x","prompt":"p","said":""}"#] {
        let (turn, _answer) = chat.resume(state, false);
        assert_eq!(turn.over().await.failure().class, FailureClass::Lost);
    }
    assert!(server.is_quiet());
}
