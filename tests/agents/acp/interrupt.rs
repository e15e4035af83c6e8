//! Stops that are heard, ignored, answered with errors or too late.

use hermes_relay::agent::TurnEnd;

use crate::acp::rig::{Rig, TurnRecord};

const STOPPED: TurnEnd = TurnEnd::Cancelled { confirmed: true };

/// Starts a turn, waits until the agent is at work, and stops it.
async fn stopped(rig: &Rig, chat: &str, text: &str) -> (TurnEnd, TurnRecord) {
    let mut running = rig.start(chat, text);
    running
        .wait_for_text(if text == "late" { "done" } else { "working" })
        .await;
    running.stop().await
}

/// How many prompts the session has seen, and its name.
async fn history(rig: &Rig, chat: &str) -> (usize, String) {
    let answer = rig.ask(chat, "history").await;
    let (count, id) = answer
        .split_once(" in ")
        .unwrap_or_else(|| panic!("unexpected answer {answer}"));
    (count.parse().unwrap(), id.to_owned())
}

fn process(id: &str) -> &str {
    id.split('-').nth(1).unwrap()
}

#[tokio::test]
async fn a_stop_that_is_obeyed_leaves_the_session_as_it_was() {
    let rig = Rig::new("");
    let (_, before) = history(&rig, "a").await;
    let (end, reply) = stopped(&rig, "a", "hang").await;
    assert_eq!((end, reply.text.as_str()), (STOPPED, "working, stopped"));
    assert_eq!(history(&rig, "a").await, (3, before));
}

#[tokio::test]
async fn an_agent_that_ignores_a_stop_is_killed_and_its_session_goes_on() {
    let rig = Rig::new("load");
    let (_, before) = history(&rig, "a").await;
    let (end, reply) = stopped(&rig, "a", "ignore").await;
    assert_eq!((end, reply.text.as_str()), (STOPPED, "working"));
    let (count, after) = history(&rig, "a").await;
    assert_eq!(
        (count, &after),
        (3, &before),
        "the session goes on, and the prompt was not sent again"
    );
    assert_eq!(rig.log().matches("prompt ignore").count(), 1);
}

#[tokio::test]
async fn others_in_the_process_are_spared() {
    for flags in ["load fork", "load"] {
        let rig = Rig::new(flags);
        let (_, before) = history(&rig, "a").await;
        let mut other = rig.start("b", "hang");
        other.wait_for_text("working").await;
        let (end, _) = stopped(&rig, "a", "ignore").await;
        assert_eq!(end, TurnEnd::Cancelled { confirmed: false }, "{flags}");
        let (count, after) = history(&rig, "a").await;
        assert_eq!(count, 3, "{flags}");
        assert_eq!(process(&before), process(&after), "named where it was made");
        assert_eq!(
            before != after,
            flags.contains("fork"),
            "a copy, or the same in another process"
        );
        let (end, reply) = other.stop().await;
        assert_eq!(
            (end, reply.text.as_str()),
            (STOPPED, "working, stopped"),
            "{flags}"
        );
    }
}

#[tokio::test]
async fn a_session_whose_stop_failed_is_never_used_again() {
    let rig = Rig::new("load fork");
    let (_, before) = history(&rig, "a").await;
    assert_eq!(stopped(&rig, "a", "wedge").await.0, STOPPED);
    let (count, copy) = history(&rig, "a").await;
    assert!(
        count == 3 && copy != before && process(&copy) == process(&before),
        "{count} {copy}"
    );

    let rig = Rig::new("resume");
    let (_, before) = history(&rig, "a").await;
    assert_eq!(stopped(&rig, "a", "wedge").await.0, STOPPED);
    assert_eq!(
        history(&rig, "a").await,
        (3, before),
        "the same session in a fresh process"
    );

    let rig = Rig::new("");
    history(&rig, "a").await;
    assert_eq!(stopped(&rig, "a", "wedge").await.0, STOPPED);
    let (end, reply) = rig.turn("a", "history").await;
    assert_eq!(end, TurnEnd::Completed);
    assert!(
        reply.text.starts_with("1 in ") && reply.notices()[0].contains("starts a new one"),
        "{reply:?}"
    );
}

#[tokio::test]
async fn a_stop_that_comes_too_late_does_not_poison_the_next_turn() {
    let rig = Rig::new("load fork");
    let (end, reply) = stopped(&rig, "a", "late").await;
    assert_eq!((end, reply.text.as_str()), (STOPPED, "done"));
    let (count, _) = history(&rig, "a").await;
    assert_eq!(count, 2, "the prompt was sent again to a copy");
    // Without a stop before it, the same error is an error.
    let failure = rig.fails("a", "stop error").await;
    assert!(failure.detail.contains("-32603"), "{failure:?}");
}

#[tokio::test]
async fn an_agent_gets_a_stop_only_while_it_works() {
    let rig = Rig::new("hermes load");
    let running = rig.start("a", "hello");
    let cancel = running.cancel.clone();
    let (end, _) = running.end().await;
    cancel.cancel();
    assert_eq!(end, TurnEnd::Completed);
    let running = rig.start("a", "never");
    running.cancel.cancel();
    assert_eq!(running.end().await.0, STOPPED);
    assert_eq!(
        history(&rig, "a").await.0,
        2,
        "no prompt was poisoned, and the stopped one was not sent"
    );
}

#[tokio::test]
async fn a_turn_that_is_dropped_stops_the_agent_and_taints_the_session() {
    let rig = Rig::new("load fork");
    let (_, before) = history(&rig, "a").await;
    let mut running = rig.start("a", "wedge");
    running.wait_for_text("working").await;
    running.task.abort();
    let (count, copy) = history(&rig, "a").await;
    assert!(
        count == 3 && copy != before,
        "a copy, not the session itself: {count} in {copy}"
    );
}
