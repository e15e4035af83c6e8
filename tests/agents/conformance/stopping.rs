//! A stop in every phase of a turn: it ends in time, and the session works on.

use std::time::Duration;

use hermes_relay::agent::{Agent, Meaning, TurnEnd};

use crate::conformance::harness::{Chat, Reply, Stop, TurnRecord};
use crate::conformance::suite::{ANSWER, Act, Fixture, Outcome, cases, text};

cases!(CASES:
    stops_before_it_begins,
    stops_when_it_has_just_begun,
    stops_while_it_is_silent,
    stops_while_it_streams,
    stops_while_it_asks,
    stops_when_it_does_not_listen,
    takes_a_stop_after_the_end,
    gives_everything_up_when_dropped,
);

async fn stopped(fixture: &dyn Fixture, act: Act, stop: Stop) -> Option<TurnRecord> {
    let text = fixture.text(act)?;
    let agent = fixture.agent();
    let chat = Chat::new("stop");
    let record = chat.stopped_turn(&*agent, &text, stop, Reply::Open).await;
    let took = record.stopping.expect("it was stopped");
    assert!(took < fixture.stop_time(), "stopping took {took:?}");
    works_on(fixture, &*agent, &chat).await;
    agent.shutdown().await;
    Some(record)
}

/// After a stop, the next turn of the session is answered.
async fn works_on(fixture: &dyn Fixture, agent: &dyn Agent, chat: &Chat) {
    if let Some(text) = fixture.text(Act::Say) {
        let record = chat.turn(agent, &text).await;
        assert_eq!(record.end, TurnEnd::Completed, "the turn after the stop");
        assert!(record.text.ends_with(ANSWER), "{:?}", record.text);
    }
}

fn cancelled(record: Option<TurnRecord>) -> Outcome {
    let Some(record) = record else {
        return Outcome::NotApplicable;
    };
    assert_eq!(record.end, TurnEnd::Cancelled { confirmed: true });
    Outcome::Passed
}

async fn stops_before_it_begins(fixture: &dyn Fixture) -> Outcome {
    let record = stopped(fixture, Act::Say, Stop::Before).await;
    if let Some(record) = &record {
        assert_eq!(record.text, "", "it must not speak");
    }
    cancelled(record)
}

async fn stops_when_it_has_just_begun(fixture: &dyn Fixture) -> Outcome {
    cancelled(stopped(fixture, Act::Hang, Stop::Begun).await)
}

async fn stops_while_it_is_silent(fixture: &dyn Fixture) -> Outcome {
    cancelled(stopped(fixture, Act::Hang, Stop::After(Duration::from_millis(300))).await)
}

async fn stops_while_it_streams(fixture: &dyn Fixture) -> Outcome {
    cancelled(stopped(fixture, Act::SpeakAndHang, Stop::Speaking).await)
}

async fn stops_while_it_asks(fixture: &dyn Fixture) -> Outcome {
    cancelled(stopped(fixture, Act::Ask, Stop::Asking).await)
}

async fn stops_when_it_does_not_listen(fixture: &dyn Fixture) -> Outcome {
    match stopped(fixture, Act::Deaf, Stop::Speaking).await {
        None => Outcome::NotApplicable,
        Some(record) => {
            assert!(
                matches!(record.end, TurnEnd::Cancelled { .. }),
                "{:?}",
                record.end
            );
            Outcome::Passed
        }
    }
}

async fn takes_a_stop_after_the_end(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Say);
    let agent = fixture.agent();
    let chat = Chat::new("after");
    // The stop comes with the last words: the turn may end either way, and the next is not harmed.
    let record = chat
        .stopped_turn(&*agent, &text, Stop::Speaking, Reply::Choose(Meaning::AllowOnce))
        .await;
    assert!(
        matches!(record.end, TurnEnd::Completed | TurnEnd::Cancelled { .. }),
        "{:?}",
        record.end
    );
    works_on(fixture, &*agent, &chat).await;
    agent.shutdown().await;
    Outcome::Passed
}

async fn gives_everything_up_when_dropped(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, SpeakAndHang);
    let agent = fixture.agent();
    let chat = Chat::new("dropped");
    let turn = chat.stopped_turn(&*agent, &text, Stop::Never, Reply::Open);
    assert!(
        tokio::time::timeout(Duration::from_millis(300), turn)
            .await
            .is_err(),
        "it hangs"
    );
    works_on(fixture, &*agent, &chat).await;
    tokio::time::timeout(fixture.stop_time(), agent.shutdown())
        .await
        .expect("nothing is left that a shutdown waits for");
    Outcome::Passed
}
