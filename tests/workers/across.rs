//! What comes across: files, questions, state, and what is larger than one message of the server.

use std::sync::Arc;

use hermes_relay::agent::{
    Agent as _, AgentEvent, AgentSignal, Approver, Attachment, Choice, EventSink, Meaning, Media,
    MediaLocation, Permission, PromptAnswer, Question, QuestionKind, Turn, TurnEnd, TurnId, TurnInput,
};
use hermes_relay::wire::SessionKey;
use tokio_util::sync::CancellationToken;

use crate::support::memory_relay::start_with;
use crate::support::scripted_agent::ScriptedAgent;
use crate::{Server, answered};

/// Bytes that no repetition of a piece gives.
fn content(length: usize) -> Vec<u8> {
    let mut seed = 7u32;
    let byte = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    };
    (0..length).map(byte).collect()
}

/// Answers how long the message is; saves a long state, and says on the second turn whether it came back whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_larger_than_the_servers_largest_payload_travels_in_pieces() {
    const STATE: usize = 1_000_000;
    let Some(server) = Server::start_taking(8192) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn: Turn| async move {
        let whole = turn
            .events
            .load_state()
            .await
            .map(|state| state == content(STATE));
        let length = turn.input.text.len();
        turn.events.text(format!("{length} bytes, state {whole:?}")).await;
        turn.events.save_state(content(STATE)).await;
        TurnEnd::Completed
    });
    let worker = server.worker(agent, 1).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "1", &"x".repeat(30_000)).await;
    answered(&relay, "a", &["30000 bytes, state None"]).await;
    relay.deliver("a", "2", &"y".repeat(20_000)).await;
    let both = ["30000 bytes, state None", "20000 bytes, state Some(true)"];
    answered(&relay, "a", &both).await;
    relay.stop().await;
    worker.stop.cancel();
    worker.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_go_both_ways_by_content_and_a_question_is_answered() {
    // Three times what the server takes in one message.
    const FILE: usize = 3 << 20;
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    std::fs::write(&here, content(FILE)).unwrap();
    let made = Arc::new(there.clone());
    // It sends the file back under another name.
    let agent = ScriptedAgent::sharing(&made, |turn, made| async move {
        let answer = turn.approver.ask(question()).await;
        let MediaLocation::File(path) = &turn.input.attachments[0].location else {
            return TurnEnd::Refused;
        };
        std::fs::copy(path, made.as_path()).unwrap();
        let media = Media {
            location: MediaLocation::File(made.to_path_buf()),
            caption: format!("{answer:?}"),
            kind: None,
            name: None,
        };
        turn.events.emit(AgentEvent::Media(media)).await;
        turn.events.text("sent").await;
        TurnEnd::Completed
    });
    let worker = server.worker(agent, 1).await;
    let pool = server.agent(|_| {});
    let (events, mut signals) = EventSink::new();
    let turn = Turn {
        id: TurnId(1),
        session: SessionKey::from_text("session".to_owned()),
        input: TurnInput {
            text: "copy".to_owned(),
            attachments: vec![Attachment {
                location: MediaLocation::File(here),
                mime: String::new(),
                name: "report.bin".to_owned(),
            }],
            ..TurnInput::default()
        },
        approver: Approver::new(&events, Permission::Ask),
        events,
        cancel: CancellationToken::new(),
        workdir: None,
        resumed: None,
    };
    let running = tokio::spawn(async move { pool.run(turn).await });
    let (mut media, mut text) = (None, String::new());
    while let Some(signal) = signals.recv().await {
        match signal {
            AgentSignal::Question(asked, answer) => {
                assert_eq!(*asked, question());
                answer.send(PromptAnswer::Chosen("y".to_owned())).unwrap();
            }
            // Which state of the session is the latest.
            AgentSignal::LoadState(answer) => answer.send(None).unwrap(),
            AgentSignal::Event(AgentEvent::Media(sent)) => media = Some(sent),
            AgentSignal::Event(AgentEvent::Text(part)) => text.push_str(&part),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (running.await.unwrap(), text.as_str()),
        (TurnEnd::Completed, "sent")
    );
    let media = media.expect("a file");
    let MediaLocation::File(kept) = media.location else {
        panic!("{media:?}")
    };
    assert_ne!(kept, there, "it is the relay's own copy");
    assert!(std::fs::read(kept).unwrap() == content(FILE));
    assert_eq!(media.name.as_deref(), Some("there"));
    assert!(media.caption.contains("Chosen"), "{}", media.caption);
    worker.stop.cancel();
    worker.task.await.unwrap();
}

fn question() -> Question {
    Question {
        kind: QuestionKind::Approval,
        text: "May I copy it?".to_owned(),
        detail: None,
        options: vec![Choice {
            id: "y".to_owned(),
            label: "Yes".to_owned(),
            meaning: Meaning::AllowOnce,
        }],
        timeout: None,
        resume: None,
    }
}
