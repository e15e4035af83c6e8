//! What is said, asked and remembered.

use hermes_relay::agent::{AgentHealth, FailureClass, Meaning, TurnEnd};

use crate::conformance::harness::{Chat, Reply, Stop};
use crate::conformance::suite::{CUT, Fixture, MUCH, Outcome, SAID, WORD, cases, text};

cases!(CASES:
    says_its_answer_in_order,
    ends_without_a_word,
    says_a_great_deal,
    puts_cut_characters_together,
    takes_an_answer,
    takes_a_refusal,
    takes_a_late_answer,
    goes_on_when_nobody_answers,
    tells_a_failure,
    tells_a_crash_and_keeps_what_was_said,
    keeps_sessions_apart,
    says_how_it_stands,
    remembers_across_a_restart,
);

async fn says_its_answer_in_order(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Say);
    let agent = fixture.agent();
    let chat = Chat::new("say");
    for _ in 0..3 {
        let heard = chat.turn(&*agent, &text).await;
        assert_eq!(heard.end, TurnEnd::Completed);
        assert!(heard.text.ends_with(SAID), "{:?}", heard.text);
    }
    agent.shutdown().await;
    Outcome::Passed
}

async fn ends_without_a_word(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Nothing);
    let heard = Chat::new("nothing").turn(&*fixture.agent(), &text).await;
    assert_eq!(heard.end, TurnEnd::Completed);
    assert_eq!(heard.text, fixture.silence());
    Outcome::Passed
}

async fn says_a_great_deal(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Much);
    let heard = Chat::new("much").turn(&*fixture.agent(), &text).await;
    assert_eq!(heard.end, TurnEnd::Completed);
    assert!(heard.text.len() >= MUCH, "{}", heard.text.len());
    Outcome::Passed
}

async fn puts_cut_characters_together(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Cut);
    let heard = Chat::new("cut").turn(&*fixture.agent(), &text).await;
    assert_eq!(heard.end, TurnEnd::Completed);
    assert!(heard.text.ends_with(CUT), "{:?}", heard.text);
    Outcome::Passed
}

/// Asks with an answer; tells what was said then.
async fn asked(fixture: &dyn Fixture, reply: Reply) -> Option<String> {
    let agent = fixture.agent();
    let text = fixture.text(crate::conformance::suite::Act::Ask);
    let asks = agent.info().asks;
    assert!(asks || text.is_none(), "what does not ask has no text for it");
    let heard = Chat::new("ask")
        .stopped_turn(&*agent, &text?, Stop::Never, reply)
        .await;
    assert_eq!(heard.asked.len(), 1, "it asks once");
    assert!(heard.asked[0].choice(Meaning::Deny).is_some(), "no can be said");
    assert!(
        matches!(
            heard.end,
            TurnEnd::Completed | TurnEnd::Refused | TurnEnd::Failed(_)
        ),
        "{:?}",
        heard.end
    );
    agent.shutdown().await;
    Some(heard.text)
}

async fn takes_an_answer(fixture: &dyn Fixture) -> Outcome {
    let Some(said) = asked(fixture, Reply::Choose(Meaning::AllowOnce)).await else {
        return Outcome::NotApplicable;
    };
    assert!(said.contains("once"), "{said:?}");
    Outcome::Passed
}

async fn takes_a_refusal(fixture: &dyn Fixture) -> Outcome {
    let Some(said) = asked(fixture, Reply::Choose(Meaning::Deny)).await else {
        return Outcome::NotApplicable;
    };
    assert!(said.contains("den") && !said.contains("once"), "{said:?}");
    Outcome::Passed
}

async fn takes_a_late_answer(fixture: &dyn Fixture) -> Outcome {
    let Some(said) = asked(fixture, Reply::Late(Meaning::AllowOnce)).await else {
        return Outcome::NotApplicable;
    };
    assert!(said.contains("once"), "{said:?}");
    Outcome::Passed
}

async fn goes_on_when_nobody_answers(fixture: &dyn Fixture) -> Outcome {
    for reply in [Reply::TimedOut, Reply::Void] {
        let Some(said) = asked(fixture, reply).await else {
            return Outcome::NotApplicable;
        };
        assert!(!said.contains("once"), "silence is not consent: {said:?}");
    }
    Outcome::Passed
}

async fn tells_a_failure(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Fail);
    let heard = Chat::new("fail").turn(&*fixture.agent(), &text).await;
    let TurnEnd::Failed(failure) = heard.end else {
        panic!("wanted a failure: {:?}", heard.end)
    };
    assert!(!failure.public_text.is_empty());
    Outcome::Passed
}

async fn tells_a_crash_and_keeps_what_was_said(fixture: &dyn Fixture) -> Outcome {
    let crash = text!(fixture, Crash);
    let agent = fixture.agent();
    let chat = Chat::new("crash");
    let heard = chat.turn(&*agent, &crash).await;
    assert!(heard.text.ends_with("half"), "{:?}", heard.text);
    let TurnEnd::Failed(failure) = heard.end else {
        panic!("wanted a failure: {:?}", heard.end)
    };
    assert_eq!(failure.class, FailureClass::Crashed, "{failure:?}");
    assert!(failure.side_effects_possible, "it may have done something");
    if let Some(text) = fixture.text(crate::conformance::suite::Act::Say) {
        let heard = chat.turn(&*agent, &text).await;
        assert_eq!(heard.end, TurnEnd::Completed, "the next turn is not harmed");
    }
    agent.shutdown().await;
    Outcome::Passed
}

async fn keeps_sessions_apart(fixture: &dyn Fixture) -> Outcome {
    let (hang, say) = (text!(fixture, SpeakAndHang), text!(fixture, Say));
    let agent = fixture.agent();
    let (one, other) = (Chat::new("one"), Chat::new("other"));
    let talking = async {
        let heard = other.turn(&*agent, &say).await;
        assert_eq!(heard.end, TurnEnd::Completed);
        assert!(heard.text.ends_with(SAID), "{:?}", heard.text);
    };
    tokio::select! {
        biased;
        heard = one.stopped_turn(&*agent, &hang, Stop::Never, Reply::Open) => panic!("it hangs: {heard:?}"),
        () = talking => {}
    }
    agent.shutdown().await;
    Outcome::Passed
}

async fn says_how_it_stands(fixture: &dyn Fixture) -> Outcome {
    let agent = fixture.agent();
    assert_eq!(agent.health().await, AgentHealth::Ready);
    if !fixture.break_down(true) {
        return Outcome::NotApplicable;
    }
    let broken = agent.health().await;
    assert!(
        matches!(&broken, AgentHealth::Down(why) if !why.is_empty()),
        "{broken:?}"
    );
    if let Some(text) = fixture.text(crate::conformance::suite::Act::Say) {
        let heard = Chat::new("broken").turn(&*agent, &text).await;
        let TurnEnd::Failed(failure) = heard.end else {
            panic!("wanted a failure: {:?}", heard.end)
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
    let heard = chat.turn(&*agent, &recall).await;
    assert!(heard.text.contains(WORD), "{:?}", heard.text);
    agent.forget(chat.session()).await;
    chat.clear();
    let heard = chat.turn(&*agent, &recall).await;
    assert!(!heard.text.contains(WORD), "{:?}", heard.text);
    agent.shutdown().await;
    Outcome::Passed
}
