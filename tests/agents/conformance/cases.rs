//! What is said, asked and remembered.

use hermes_relay::agent::{AgentHealth, FailureClass, Meaning, TurnEnd};

use crate::conformance::harness::{Chat, Reply, Stop};
use crate::conformance::suite::{ANSWER, CUT, Fixture, MUCH, Outcome, WORD, cases, text};

cases!(CASES:
    sends_its_answer_in_order,
    ends_without_output,
    sends_a_long_answer,
    puts_cut_characters_together,
    takes_an_answer,
    takes_a_refusal,
    takes_a_late_answer,
    goes_on_when_nobody_answers,
    reports_a_failure,
    reports_a_crash_and_keeps_the_text_so_far,
    keeps_sessions_apart,
    reports_its_health,
    remembers_across_a_restart,
);

async fn sends_its_answer_in_order(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Say);
    let agent = fixture.agent();
    let chat = Chat::new("say");
    for _ in 0..3 {
        let record = chat.turn(&*agent, &text).await;
        assert_eq!(record.end, TurnEnd::Completed);
        assert!(record.text.ends_with(ANSWER), "{:?}", record.text);
    }
    agent.shutdown().await;
    Outcome::Passed
}

async fn ends_without_output(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Nothing);
    let record = Chat::new("nothing").turn(&*fixture.agent(), &text).await;
    assert_eq!(record.end, TurnEnd::Completed);
    assert_eq!(record.text, fixture.silence());
    Outcome::Passed
}

async fn sends_a_long_answer(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Much);
    let record = Chat::new("much").turn(&*fixture.agent(), &text).await;
    assert_eq!(record.end, TurnEnd::Completed);
    assert!(record.text.len() >= MUCH, "{}", record.text.len());
    Outcome::Passed
}

async fn puts_cut_characters_together(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Cut);
    let record = Chat::new("cut").turn(&*fixture.agent(), &text).await;
    assert_eq!(record.end, TurnEnd::Completed);
    assert!(record.text.ends_with(CUT), "{:?}", record.text);
    Outcome::Passed
}

/// Asks with an answer; tells what was said then.
async fn asked(fixture: &dyn Fixture, reply: Reply) -> Option<String> {
    let agent = fixture.agent();
    let text = fixture.text(crate::conformance::suite::Act::Ask);
    let asks = agent.info().asks;
    assert!(asks || text.is_none(), "what does not ask has no text for it");
    let record = Chat::new("ask")
        .stopped_turn(&*agent, &text?, Stop::Never, reply)
        .await;
    assert_eq!(record.asked.len(), 1, "it asks once");
    assert!(record.asked[0].choice(Meaning::Deny).is_some(), "no can be said");
    assert!(
        matches!(
            record.end,
            TurnEnd::Completed | TurnEnd::Refused | TurnEnd::Failed(_)
        ),
        "{:?}",
        record.end
    );
    agent.shutdown().await;
    Some(record.text)
}

async fn takes_an_answer(fixture: &dyn Fixture) -> Outcome {
    let Some(answer) = asked(fixture, Reply::Choose(Meaning::AllowOnce)).await else {
        return Outcome::NotApplicable;
    };
    assert!(answer.contains("once"), "{answer:?}");
    Outcome::Passed
}

async fn takes_a_refusal(fixture: &dyn Fixture) -> Outcome {
    let Some(answer) = asked(fixture, Reply::Choose(Meaning::Deny)).await else {
        return Outcome::NotApplicable;
    };
    assert!(answer.contains("den") && !answer.contains("once"), "{answer:?}");
    Outcome::Passed
}

async fn takes_a_late_answer(fixture: &dyn Fixture) -> Outcome {
    let Some(answer) = asked(fixture, Reply::Late(Meaning::AllowOnce)).await else {
        return Outcome::NotApplicable;
    };
    assert!(answer.contains("once"), "{answer:?}");
    Outcome::Passed
}

async fn goes_on_when_nobody_answers(fixture: &dyn Fixture) -> Outcome {
    for reply in [Reply::TimedOut, Reply::Void] {
        let Some(answer) = asked(fixture, reply).await else {
            return Outcome::NotApplicable;
        };
        assert!(!answer.contains("once"), "silence is not consent: {answer:?}");
    }
    Outcome::Passed
}

async fn reports_a_failure(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Fail);
    let record = Chat::new("fail").turn(&*fixture.agent(), &text).await;
    let TurnEnd::Failed(failure) = record.end else {
        panic!("wanted a failure: {:?}", record.end)
    };
    assert!(!failure.public_text.is_empty());
    // People in a chat cannot read the log or change the settings.
    for word in ["_", "`", "log", "settings", "HTTP", "operator"] {
        assert!(!failure.public_text.contains(word), "{word}: {failure:?}");
    }
    Outcome::Passed
}

async fn reports_a_crash_and_keeps_the_text_so_far(fixture: &dyn Fixture) -> Outcome {
    let crash = text!(fixture, Crash);
    let agent = fixture.agent();
    let chat = Chat::new("crash");
    let record = chat.turn(&*agent, &crash).await;
    assert!(record.text.ends_with("half"), "{:?}", record.text);
    let TurnEnd::Failed(failure) = record.end else {
        panic!("wanted a failure: {:?}", record.end)
    };
    assert_eq!(failure.class, FailureClass::Crashed, "{failure:?}");
    assert!(failure.side_effects_possible, "it may have done something");
    if let Some(text) = fixture.text(crate::conformance::suite::Act::Say) {
        let record = chat.turn(&*agent, &text).await;
        assert_eq!(record.end, TurnEnd::Completed, "the next turn is not harmed");
    }
    agent.shutdown().await;
    Outcome::Passed
}

async fn keeps_sessions_apart(fixture: &dyn Fixture) -> Outcome {
    let (hang, say) = (text!(fixture, SpeakAndHang), text!(fixture, Say));
    let agent = fixture.agent();
    let (one, other) = (Chat::new("one"), Chat::new("other"));
    let talking = async {
        let record = other.turn(&*agent, &say).await;
        assert_eq!(record.end, TurnEnd::Completed);
        assert!(record.text.ends_with(ANSWER), "{:?}", record.text);
    };
    tokio::select! {
        biased;
        record = one.stopped_turn(&*agent, &hang, Stop::Never, Reply::Open) => panic!("it hangs: {record:?}"),
        () = talking => {}
    }
    agent.shutdown().await;
    Outcome::Passed
}

async fn reports_its_health(fixture: &dyn Fixture) -> Outcome {
    let agent = fixture.agent();
    assert_eq!(agent.health().await, AgentHealth::Ready);
    if !fixture.break_down(true) {
        return Outcome::NotApplicable;
    }
    let broken = agent.health().await;
    assert!(
        matches!(&broken, AgentHealth::Down(why) | AgentHealth::NotInstalled(why) if !why.is_empty()),
        "{broken:?}"
    );
    if let Some(text) = fixture.text(crate::conformance::suite::Act::Say) {
        let record = Chat::new("broken").turn(&*agent, &text).await;
        let TurnEnd::Failed(failure) = record.end else {
            panic!("wanted a failure: {:?}", record.end)
        };
        assert_eq!(failure.class, FailureClass::Unavailable, "{failure:?}");
        assert!(!failure.side_effects_possible, "it did not start");
    }
    fixture.break_down(false);
    assert_eq!(agent.health().await, AgentHealth::Ready);
    agent.shutdown().await;
    Outcome::Passed
}

async fn remembers_across_a_restart(fixture: &dyn Fixture) -> Outcome {
    let (remember, recall) = (text!(fixture, Remember), text!(fixture, Recall));
    let chat = Chat::new("memory");
    let agent = fixture.agent();
    assert!(agent.info().remembers);
    assert_eq!(chat.turn(&*agent, &remember).await.end, TurnEnd::Completed);
    agent.shutdown().await;
    drop(agent);

    let agent = fixture.agent();
    let record = chat.turn(&*agent, &recall).await;
    assert!(record.text.contains(WORD), "{:?}", record.text);
    agent.forget(chat.session()).await;
    chat.clear();
    let record = chat.turn(&*agent, &recall).await;
    assert!(!record.text.contains(WORD), "{:?}", record.text);
    agent.shutdown().await;
    Outcome::Passed
}
