//! Processes that crash, do not start, are too few, or are ended.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use hermes_relay::agent::{Agent, AgentHealth, FailureClass, TurnEnd};

use crate::acp::rig::Rig;
use crate::support::wait::eventually;

#[tokio::test]
async fn a_crash_fails_the_turn_and_the_next_one_goes_on() {
    let rig = Rig::new("load");
    rig.ask("a", "one").await;
    let (end, reply) = rig.turn("a", "crash").await;
    let TurnEnd::Failed(failure) = end else {
        panic!("ended as {end:?}")
    };
    assert_eq!(
        (failure.class, reply.text.as_str()),
        (FailureClass::Crashed, "half")
    );
    assert!(
        failure.detail.contains("code 3") && failure.detail.contains("Traceback"),
        "{failure:?}"
    );
    assert!(!failure.public_text.contains("hunter2") && failure.side_effects_possible && !failure.retryable);
    assert!(matches!(
        rig.agent.health().await,
        AgentHealth::Degraded(_) | AgentHealth::Down(_)
    ));
    assert!(rig.ask("a", "history").await.starts_with("3 in "));
    assert_eq!(rig.log().matches("prompt crash").count(), 1, "never sent again");
    assert_eq!(rig.agent.health().await, AgentHealth::Ready);
}

#[tokio::test]
async fn others_in_a_crashed_process_fail_too_and_nobody_hangs() {
    let rig = Rig::new("load");
    let mut other = rig.start("b", "hang");
    other.wait_for_text("working").await;
    rig.fails("a", "crash").await;
    assert!(
        matches!(other.end().await.0, TurnEnd::Failed(failure) if failure.class == FailureClass::Crashed)
    );
}

#[tokio::test]
async fn turns_spread_over_processes_and_wait_for_a_place() {
    let rig = Rig::with("", |settings| {
        settings.turns_per_process = Some(1);
        settings.max_processes = Some(2);
    });
    assert_eq!(rig.agent.info().parallel, Some(2));
    let turns = ["a", "b", "c", "d", "e"].map(|chat| rig.start(chat, "count 200"));
    let ended = join_all(turns.map(crate::acp::rig::Running::end)).await;
    let answers: BTreeSet<String> = ended.into_iter().map(|(_, reply)| reply.text).collect();
    assert!(
        answers.len() == 2 && answers.iter().all(|answer| answer.starts_with("1 of ")),
        "{answers:?}"
    );
}

#[tokio::test]
async fn an_idle_process_ends_and_its_conversation_goes_on_in_the_next() {
    let rig = Rig::with("load", |settings| settings.idle_close_secs = Some(1));
    rig.ask("a", "one").await;
    let [process] = rig.agent.processes()[..] else {
        panic!("{:?}", rig.agent.processes());
    };
    assert_eq!(process.turns, 0);
    assert!(
        process.memory_bytes.is_some_and(|bytes| bytes > 100_000),
        "{process:?}"
    );
    eventually("the idle process to end", async || {
        rig.agent.processes().is_empty()
    })
    .await;
    assert_eq!(rig.agent.health().await, AgentHealth::Ready);
    assert!(rig.ask("a", "history").await.starts_with("2 in "));
    let mut busy = rig.start("b", "hang");
    busy.wait_for_text("working").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(rig.agent.processes().len(), 1, "one with a turn stays");
    busy.stop().await;
}

#[tokio::test]
async fn a_process_whose_conversations_would_be_lost_stays() {
    let rig = Rig::with("", |settings| settings.idle_close_secs = Some(1));
    rig.ask("a", "one").await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(rig.ask("a", "history").await.starts_with("2 in "));
}

#[tokio::test]
async fn a_stop_reaches_a_turn_that_waits_for_a_place() {
    let rig = Rig::with("", |settings| settings.turns_per_process = Some(1));
    let mut first = rig.start("a", "hang");
    first.wait_for_text("working").await;
    let second = rig.start("b", "never");
    assert_eq!(second.stop().await.0, TurnEnd::Cancelled { confirmed: true });
    first.stop().await;
    assert!(!rig.log().contains("never"));
}

#[tokio::test]
async fn a_missing_login_explains_how_to_sign_in() {
    let rig = Rig::with("auth", |settings| settings.preset = Some("claude".to_owned()));
    let failure = rig.fails("a", "hello").await;
    assert_eq!(failure.class, FailureClass::Credentials);
    assert!(
        failure.detail.contains("run `claude`") && failure.detail.contains("A key"),
        "{failure:?}"
    );
    let failure = Rig::new("").fails("a", "stop auth").await;
    assert_eq!(failure.class, FailureClass::Credentials);
    assert!(failure.detail.contains("by hand"), "{failure:?}");
}

#[tokio::test]
async fn an_agent_with_another_protocol_is_reported() {
    let failure = Rig::new("version2").fails("a", "hello").await;
    assert_eq!(
        (failure.class, failure.side_effects_possible),
        (FailureClass::Protocol, false)
    );
    assert!(failure.detail.contains("version 2"), "{failure:?}");
    let mute = Rig::with("mute", |settings| settings.start_timeout_secs = 1);
    assert_eq!(mute.fails("a", "hello").await.class, FailureClass::Timeout);
    let gone = Rig::with("", |settings| settings.argv = vec!["/bin/false".to_owned()]);
    let failure = gone.fails("a", "hello").await;
    assert!(
        failure.class == FailureClass::Unavailable && failure.detail.contains("code 1"),
        "{failure:?}"
    );
    // Degraded once the pause before the next start is over.
    assert!(matches!(
        gone.agent.health().await,
        AgentHealth::Down(why) | AgentHealth::Degraded(why) if why.contains("code 1")
    ));
}

#[tokio::test]
async fn one_that_keeps_failing_rests() {
    let rig = Rig::with("", |settings| {
        settings.argv = vec!["/bin/false".to_owned()];
        settings.start_timeout_secs = 3;
    });
    // A rest that is shorter than this is waited for. They grow, so that one of the next is longer, however slow this machine is.
    let mut starts = 0;
    let failure = loop {
        let failure = rig.fails("a", "hello").await;
        if !failure.detail.contains("code 1") || failure.detail.contains("started again in") {
            break failure;
        }
        starts += 1;
        assert!(starts < 6, "it does not rest: {failure:?}");
    };
    assert!(starts > 1, "it is tried again");
    assert!(
        failure.detail.contains("started again in") && failure.retryable,
        "{failure:?}"
    );
}

#[tokio::test]
async fn what_is_not_installed_explains_how_to_get_it() {
    let rig = Rig::with("", |settings| {
        settings.argv.clear();
        settings.preset = Some("gemini".to_owned());
        settings.env.0.insert("PATH".to_owned(), "/nowhere".to_owned());
    });
    assert!(
        matches!(rig.agent.health().await, AgentHealth::NotInstalled(why) if why.contains("npm install"))
    );
    let failure = rig.fails("a", "hello").await;
    assert!(
        failure.detail.contains("npm install") && !failure.retryable,
        "{failure:?}"
    );
    assert_eq!(
        Rig::new("").agent.health().await,
        AgentHealth::Ready,
        "there, and not started"
    );
}

#[tokio::test]
async fn a_shutdown_ends_every_process_and_every_turn() {
    let rig = Rig::new("");
    let mut running = rig.start("a", "hang");
    running.wait_for_text("working").await;
    rig.agent.shutdown().await;
    assert!(matches!(running.end().await.0, TurnEnd::Failed(_)));
    assert!(rig.fails("a", "hello").await.detail.contains("shut down"));
}
