//! SIGUSR1, after which a supervisor starts the relay again, and SIGUSR2, which has it tell how it stands.

use crate::support::dev::text_event;
use rustix::process::Signal;

use crate::operate::{answered, connected, connector, status, status_until};
use crate::support::relay_process::{SOON, Setup};

#[tokio::test]
async fn usr1_lets_a_running_turn_finish_and_asks_to_be_started_again() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let mut relay = connected(&setup).await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "sleep=3000 x"))
        .unwrap();
    status_until(&setup, "a turn", |status| status["tally"]["turns_started"] == 1).await;
    relay.signal(Signal::USR1);
    assert_eq!(relay.exit_code(SOON).await, 75, "{}", relay.stderr());
    let sent = connector.sent_messages();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0].text, "echo: x");
    let again = connected(&setup).await;
    assert_eq!(status(&setup).await["tally"]["turns_interrupted"], 0);
    again.stop().await;
}

#[tokio::test]
async fn a_stop_during_a_restart_is_a_stop() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let mut relay = connected(&setup).await;
    connector
        // Time for two looks from other processes, and less than a turn is given to finish.
        .deliver(&text_event("discord", "c1", "m1", "sleep=7000 x"))
        .unwrap();
    status_until(&setup, "a turn", |status| status["turns_running"] == 1).await;
    relay.signal(Signal::USR1);
    let leaving = status_until(&setup, "the end", |status| status["shutting_down"] == true).await;
    assert_eq!(leaving["ready"], false);
    relay.signal(Signal::USR1);
    relay.terminate();
    assert_eq!(relay.exit_code(SOON).await, 0, "{}", relay.stderr());
    assert_eq!(connector.sent_messages().len(), 1, "the turn was let finish");
}

#[tokio::test]
async fn the_first_lines_name_what_is_used_and_every_turn_has_one() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let log = relay.stderr();
    let first: Vec<&str> = log.lines().take(2).collect();
    let settings = setup.home().join("relay.yaml").display().to_string();
    let state = setup.state_dir().display().to_string();
    for part in [
        "hermes-relay starts",
        env!("CARGO_PKG_VERSION"),
        &settings,
        &state,
    ] {
        assert!(first[0].contains(part), "{part}: {log}");
    }
    for part in ["agents=\"echo", "platforms=\"discord\""] {
        assert!(first[1].contains(part), "{part}: {log}");
    }
    answered(&connector, "m1", "hush now").await;
    let line = relay.wait_for_log("turn ended").await;
    for part in [
        "session=\"agent:main:discord",
        "agent=\"echo\"",
        "platform=\"discord\"",
        "outcome=\"done\"",
        "ms=",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!relay.stderr().contains("hush"), "not what was said");
    relay.stop().await;
}

#[tokio::test]
async fn an_interrupt_says_what_it_waits_for_and_how_to_quit_now() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let mut relay = connected(&setup).await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "sleep=60000 hush"))
        .unwrap();
    status_until(&setup, "a turn", |status| status["turns_running"] == 1).await;
    relay.signal(Signal::INT);
    relay
        .wait_for_log("waiting up to 10 s for 1 turn; press Ctrl-C again to quit now")
        .await;
    relay.signal(Signal::INT);
    assert_eq!(relay.exit_code(SOON).await, 1, "{}", relay.stderr());
}

#[tokio::test]
async fn usr2_logs_link_sessions_and_queues() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "sleep=60000 hush"))
        .unwrap();
    status_until(&setup, "a turn", |status| status["tally"]["turns_started"] == 1).await;
    relay.signal(Signal::USR2);
    assert!(relay.wait_for_log("dump: link").await.contains("live"));
    let session = relay.wait_for_log("dump: session").await;
    assert!(
        session.contains("running") && session.contains("echo"),
        "{session}"
    );
    let queues = relay.wait_for_log("dump: queues").await;
    assert!(
        queues.contains("owed") && queues.contains("1 turns running"),
        "{queues}"
    );
    let counts = relay.wait_for_log("dump: counts").await;
    assert!(counts.contains("1 messages in"), "{counts}");
    assert!(!relay.stderr().contains("hush"), "not what was said");
    relay.signal(Signal::TERM);
}

#[tokio::test]
async fn a_relay_waits_a_moment_for_a_process_that_holds_its_state_directory() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    std::fs::create_dir_all(setup.state_dir()).unwrap();
    let lock = std::fs::File::create(setup.state_dir().join("lock")).unwrap();
    lock.try_lock().unwrap();
    let mut relay = setup.start();
    relay.wait_for_log("waiting a moment").await;
    assert!(!relay.has_ended());
    lock.unlock().unwrap();
    relay.wait_for_log("connected to the connector").await;
    relay.stop().await;
}
