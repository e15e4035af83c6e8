//! The state directory fails: full, read-only, damaged. The relay says so, loses nothing and comes back.
//!
//! Two tests mount a small file system of their own; where that is not allowed they say so and pass.

use std::fs::{self};
#[cfg(target_os = "linux")]
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::rig::connector::Connector;
use crate::rig::process::Home;
use crate::rig::state::State;
use crate::support::load::loading;
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::small_disk::SmallDisk;
use crate::support::wait::{SOON, eventually, eventually_within};
use hermes_relay::agent::TurnEnd;
use hermes_relay::config::{self, Flags, Sources};
use hermes_relay::relay::Relay;
use hermes_relay::store::Inspector;
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_acknowledgements_and_nothing_else_and_space_brings_them_back() {
    let _shared = loading().await;
    let connector = Connector::start(State::new(64, 1));
    let mut home = Home::new(&connector.url(), "");
    let Some(disk) = SmallDisk::mount(&home.state_dir, 2048) else {
        return;
    };
    let mut relay = home.start();
    connector.push(0, "before");
    let all_answered = |count: usize| {
        let state = connector.state();
        let done = |message: &crate::rig::state::Message| message.acked && !message.replies.is_empty();
        (state.messages.len() == count && state.messages.iter().all(done)).then_some(())
    };
    eventually("the first message answered", async || all_answered(1)).await;

    disk.fill();
    eventually("the relay to notice", async || {
        connector.push(1, "into the full disk");
        (relay.log_count("nothing is acknowledged until that works") > 0).then_some(())
    })
    .await;
    let log = relay.log_text();
    assert!(
        log.contains("disk of the state directory is full, free some space"),
        "{log}"
    );
    let held_back = connector.state().messages.len();
    for chat in 0..20 {
        connector.push(chat, "held back");
    }
    let watched = Instant::now();
    eventually("a while without acknowledgements", async || {
        let state = connector.state();
        let mut held_back = state.messages[held_back..].iter();
        assert!(
            held_back.all(|message| !message.acked),
            "acknowledged on a full disk"
        );
        assert_eq!((state.dialed, state.open.len()), (1, 1), "the link was given up");
        (watched.elapsed() > Duration::from_secs(1)).then_some(())
    })
    .await;
    assert!(relay.ended().is_none());

    disk.free();
    let messages = connector.state().messages.len();
    eventually("everything acknowledged and answered", async || {
        all_answered(messages)
    })
    .await;
    let state = connector.state();
    assert!(
        state.messages.iter().all(|message| message.replies.len() == 1),
        "each once"
    );
    println!(
        "{messages} messages, {} connections, all answered {:?} after space returned",
        state.dialed,
        watched.elapsed()
    );
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_the_file_size_stops_acknowledgements_and_not_the_relay() {
    let _shared = loading().await;
    let connector = Connector::start(State::new(64, 1));
    let mut home = Home::new(&connector.url(), "");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", r#"ulimit -S -f 512; exec "$0" "$@""#]);
    let mut relay = home.start_under(shell);
    let is_acked = |number: usize| connector.state().messages[number].acked.then_some(());
    let small = connector.push(0, "small");
    eventually("a small message acknowledged", async || is_acked(small)).await;
    let large = connector.push(1, "x".repeat(600 << 10));
    eventually("the relay to notice", async || {
        assert_eq!(relay.ended(), None);
        (relay.log_count("nothing is acknowledged until that works") > 0).then_some(())
    })
    .await;
    assert_eq!(is_acked(large), None);
    relay.unlimit_file_size();
    eventually("the large message acknowledged", async || is_acked(large)).await;
    assert_eq!(relay.ended(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_disk_is_not_used_up_by_the_journals_own_log() {
    const MESSAGES: usize = 1_500;
    let _shared = loading().await;
    let connector = Connector::start(State::new(1, 1));
    let mut home = Home::new(
        &connector.url(),
        "link:\n  backoff_min_ms: 10\n  backoff_max_ms: 20\n",
    );
    let Some(_disk) = SmallDisk::mount(&home.state_dir, 8192) else {
        return;
    };
    let relay = home.start();
    for number in 0..MESSAGES {
        connector.push(number % 7, "hello");
    }
    eventually_within(SOON * 3, "every message acknowledged and answered", async || {
        let state = connector.state();
        let done = |message: &crate::rig::state::Message| message.acked && message.replies.len() == 1;
        state.messages.iter().all(done).then_some(())
    })
    .await;
    println!(
        "{MESSAGES} messages through 8 MiB, {} times full",
        relay.log_count("journal cannot be written, retrying")
    );
}

/// Turns that began, and what lets the one that says `hold` go on.
#[derive(Default)]
struct Began {
    texts: Mutex<Vec<String>>,
    release: Notify,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_begins_before_the_disk_has_taken_that_it_does() {
    let _shared = loading().await;
    let connector = Connector::start(State::new(64, 1));
    let home = Home::new(&connector.url(), "");
    let Some(disk) = SmallDisk::mount(&home.state_dir, 2048) else {
        return;
    };
    let flags = Flags {
        config: Some(home.path().join("relay.yaml")),
        state_dir: Some(home.state_dir.clone()),
        agent: Some("scripted".to_owned()),
        ..Flags::default()
    };
    let secret = |name: &str| (name == "GATEWAY_RELAY_SECRET").then(|| "a secret for a test".to_owned());
    let loaded = config::load(&Sources { flags, env: &secret }).unwrap();
    let began = Arc::<Began>::default();
    let agent = ScriptedAgent::sharing(&began, |turn, began| async move {
        let text = turn.input.text;
        began.texts.lock().unwrap().push(text.clone());
        if text == "hold" {
            began.release.notified().await;
        }
        turn.events.text(format!("ran {text}")).await;
        TurnEnd::Completed
    });
    let relay = Relay::builder(loaded.settings)
        .agent("scripted", agent)
        .build()
        .unwrap();
    let handle = relay.handle();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let running = tokio::spawn(relay.run(async move { stopped.notified().await }));

    connector.push(0, "hold");
    connector.push(0, "second");
    eventually("both accepted", async || {
        (connector.state().acked == 2).then_some(())
    })
    .await;
    disk.fill();
    began.release.notify_one();
    eventually("the full disk noticed", async || {
        handle.status().await.unwrap().journal_failing.is_some()
    })
    .await;
    let journal = Inspector::open(&home.state_dir).unwrap();
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_millis(300) {
        handle.status().await.unwrap();
        let ran = began.texts.lock().unwrap().len() as u64;
        // The journal's file may have room for one more commit when its disk has none, so the second turn may run.
        let started = 2 - journal.counts().unwrap().queued;
        assert!(ran <= started, "a turn began that the journal does not know of");
    }
    disk.free();
    eventually("both answered", async || {
        let state = connector.state();
        state
            .messages
            .iter()
            .all(|message| message.replies.len() == 1)
            .then_some(())
    })
    .await;
    assert_eq!(*began.texts.lock().unwrap(), ["hold", "second"]);
    stop.notify_one();
    tokio::time::timeout(SOON, running).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_read_only_state_directory_is_a_clear_error() {
    let _shared = loading().await;
    let mut home = Home::new("ws://127.0.0.1:9", "");
    let Some(disk) = SmallDisk::mount(&home.state_dir, 2048) else {
        return;
    };
    disk.make_read_only();
    let mut relay = home.start();
    assert_eq!(relay.exit_code(SOON).await, Some(78));
    let log = relay.log_text();
    assert!(log.contains("\nerror: ") && log.contains("ead-only"), "{log}");
    assert!(log.contains(&*home.state_dir.to_string_lossy()), "{log}");
}

#[tokio::test]
async fn a_disk_that_is_full_at_the_start_may_have_room_later_and_is_no_fault_of_the_settings() {
    let _shared = loading().await;
    let mut home = Home::new("ws://127.0.0.1:9", "");
    let Some(disk) = SmallDisk::mount(&home.state_dir, 2048) else {
        return;
    };
    disk.fill();
    let mut relay = home.start();
    assert_eq!(relay.exit_code(SOON).await, Some(70));
    let log = relay.log_text();
    assert!(
        log.contains("\nerror: ") && log.contains("free some space"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_journal_is_refused_with_a_hint_and_moved_aside_when_asked() {
    let _shared = loading().await;
    let connector = Connector::start(State::new(64, 1));
    let mut home = Home::new(&connector.url(), "");
    fs::create_dir_all(&home.state_dir).unwrap();
    fs::write(
        home.state_dir.join("journal.db"),
        "no database at all ".repeat(500),
    )
    .unwrap();
    let mut relay = home.start();
    assert_eq!(relay.exit_code(SOON).await, Some(78));
    let log = relay.log_text();
    assert!(
        log.contains("error: ") && log.contains("hint: ") && log.contains("--fresh-journal-if-corrupt"),
        "{log}"
    );

    let relay = home.start_with(&["--fresh-journal-if-corrupt"]);
    let message = connector.push(0, "hello");
    eventually("an answer", async || {
        (connector.state().messages[message].replies.len() == 1).then_some(())
    })
    .await;
    assert_eq!(relay.log_count("it was moved aside"), 1);
    let names: Vec<String> = fs::read_dir(&home.state_dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(
        names.iter().any(|name| name.starts_with("journal.corrupt-")),
        "{names:?}"
    );
}
