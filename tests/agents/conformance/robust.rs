//! What an agent survives of what its peer does: floods, garbage, and processes that do not go.

use std::time::Instant;

use hermes_relay::agent::{Agent, Truncation, TurnEnd};

use crate::conformance::harness::Chat;
use crate::conformance::suite::{ANSWER, Act, Fixture, Outcome, cases, text};

cases!(CASES:
    survives_a_flood_of_log,
    survives_output_without_an_end,
    survives_bytes_that_are_no_text,
    does_not_wait_for_what_was_left_behind,
    does_not_wait_for_a_daemon,
    does_not_wait_for_one_that_closed_its_output,
);

/// Most that a turn without an end may have said, in bytes.
const BOUND: usize = 8 * 1024 * 1024;

/// The next turn of the conversation is answered.
async fn works_on(fixture: &dyn Fixture, agent: &dyn Agent, chat: &Chat) {
    if let Some(text) = fixture.text(Act::Say) {
        let record = chat.turn(agent, &text).await;
        assert_eq!(record.end, TurnEnd::Completed, "the next turn is not harmed");
        assert!(record.text.ends_with(ANSWER), "{:?}", record.text);
    }
    let shutdown = tokio::time::timeout(fixture.stop_time(), agent.shutdown());
    shutdown.await.expect("nothing is left that a shutdown waits for");
}

async fn survives_a_flood_of_log(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Flood);
    let record = Chat::new("flood").turn(&*fixture.agent(), &text).await;
    assert_eq!(record.end, TurnEnd::Completed);
    assert_eq!(record.text, "survived", "and the log is not shown");
    Outcome::Passed
}

async fn survives_output_without_an_end(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Endless);
    let agent = fixture.agent();
    let chat = Chat::new("endless");
    let record = chat.turn(&*agent, &text).await;
    assert!(
        matches!(
            record.end,
            TurnEnd::Completed | TurnEnd::Truncated(Truncation::Size) | TurnEnd::Failed(_)
        ),
        "{:?}",
        record.end
    );
    assert!(record.text.len() <= BOUND, "{}", record.text.len());
    works_on(fixture, &*agent, &chat).await;
    Outcome::Passed
}

async fn survives_bytes_that_are_no_text(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Garbled);
    let agent = fixture.agent();
    let chat = Chat::new("garbled");
    let record = chat.turn(&*agent, &text).await;
    assert_eq!(record.end, TurnEnd::Completed);
    assert!(record.text.ends_with("survived"), "{:?}", record.text);
    works_on(fixture, &*agent, &chat).await;
    Outcome::Passed
}

async fn does_not_wait_for_what_was_left_behind(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Orphan);
    let began = Instant::now();
    let record = Chat::new("orphan").turn(&*fixture.agent(), &text).await;
    assert_eq!((record.text.as_str(), record.end), ("left", TurnEnd::Completed));
    assert!(began.elapsed() < fixture.stop_time(), "{:?}", began.elapsed());
    Outcome::Passed
}

async fn does_not_wait_for_a_daemon(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Daemon);
    let agent = fixture.agent();
    let chat = Chat::new("daemon");
    let began = Instant::now();
    let record = chat.turn(&*agent, &text).await;
    assert_eq!((record.text.as_str(), record.end), ("left", TurnEnd::Completed));
    assert!(began.elapsed() < fixture.stop_time(), "{:?}", began.elapsed());
    works_on(fixture, &*agent, &chat).await;
    Outcome::Passed
}

async fn does_not_wait_for_one_that_closed_its_output(fixture: &dyn Fixture) -> Outcome {
    let text = text!(fixture, Close);
    let agent = fixture.agent();
    let chat = Chat::new("close");
    // The harness gives up on a turn that hangs.
    let record = chat.turn(&*agent, &text).await;
    assert_eq!(record.text, "left");
    assert!(
        matches!(record.end, TurnEnd::Completed | TurnEnd::Failed(_)),
        "{:?}",
        record.end
    );
    works_on(fixture, &*agent, &chat).await;
    Outcome::Passed
}
