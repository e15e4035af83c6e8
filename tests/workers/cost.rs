//! What workers and a standby cost. Prints figures:
//! `cargo test --release --all-features --test workers cost -- --ignored --nocapture --test-threads 1`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_relay::agent::{Agent, EchoAgent};
use hermes_relay::cluster::WithoutServer;
use hermes_relay::net::tls::{Tls, TlsSettings};
use hermes_relay::relay::cluster::{ClusterMember, MemberSettings};
use hermes_relay::store::{Command, InboxKind, Journal, JournalSettings, KeyHash, Opened};

use crate::support::memory_relay::start_with;
use crate::{Server, number};

/// Conversations at once.
const CHATS: usize = 64;
const NOW: i64 = 1_790_000_000_000;
/// A worker has at least this part of the turns of an agent in the relay.
const LEAST_PART: f64 = 0.2;
/// A replicated commit takes at most so much longer than a local one.
const MOST: Duration = Duration::from_millis(2);

/// Turns in a second, with a message under way in every chat.
async fn turns_per_second(agent: impl Agent + Clone) -> f64 {
    let (chats, turns) = (number("COST_CHATS", CHATS), number("COST_TURNS", 20));
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), agent, |_| {}).await;
    // Connections are made, and the workers are known.
    relay.deliver("first", "1", "hi").await;
    relay.replies("first", 1).await;
    let began = Instant::now();
    for turn in 0..turns {
        for chat in 0..chats {
            relay.deliver(&format!("c{chat}"), &turn.to_string(), "hi").await;
        }
    }
    for chat in 0..chats {
        relay.replies(&format!("c{chat}"), turns).await;
    }
    let took = began.elapsed();
    relay.stop().await;
    f64::from(u32::try_from(turns * chats).unwrap()) / took.as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it alone"]
async fn cost_of_a_worker() {
    let Some(server) = Server::start() else { return };
    let inside = turns_per_second(EchoAgent).await;
    let worker = server.worker(EchoAgent, number("COST_CHATS", CHATS)).await;
    let outside = turns_per_second(server.agent(|_| {})).await;
    let part = outside / inside;
    println!("echo turns: {inside:.0}/s in the relay, {outside:.0}/s through a worker ({part:.2})");
    worker.stop.cancel();
    worker.task.await.unwrap();
    assert!(part >= LEAST_PART, "{part}");
}

/// How long commits take, one after the other: the median.
async fn median_commit(mut opened: Opened) -> Duration {
    let commits = number("COST_COMMITS", 500);
    let session: Arc<str> = "agent:main:discord:dm:c1".into();
    let mut times = Vec::new();
    for commit in 0..commits {
        let accept = Command::Accept {
            token: commit as u64,
            kind: InboxKind::Inbound,
            session: Arc::clone(&session),
            dedupe: Some(KeyHash::Blake2s.key(&["discord", &commit.to_string()])),
            buffer_id: Some(format!("buffer-{commit}")),
            line: vec![b'x'; 400].into(),
            start: false,
            repeatable: false,
            now_ms: NOW,
        };
        let began = Instant::now();
        opened.journal.submit(vec![accept]).await.unwrap();
        opened.batches.recv().await.expect("a commit");
        times.push(began.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it alone"]
async fn cost_of_a_standby() {
    let Some(server) = Server::start() else { return };
    let parent = std::env::var("JOURNAL_DIR").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").into());
    let dir = tempfile::tempdir_in(parent).unwrap();
    let journal = JournalSettings::default();
    let local = Journal::open(&dir.path().join("local"), journal.clone(), NOW).unwrap();
    let local = median_commit(local).await;
    let state_dir = dir.path().join("member");
    std::fs::create_dir(&state_dir).unwrap();
    let settings = MemberSettings {
        nats: server.settings(),
        tls: Tls::new(TlsSettings::default()),
        prefix: "test".to_owned(),
        cluster: "home".to_owned(),
        name: "a".to_owned(),
        replicas: 1,
        snapshot_every: 10_000,
        without_server: WithoutServer::Stop,
        state_dir: state_dir.clone(),
        journal: JournalSettings {
            lock_wait: Duration::from_secs(3),
            ..journal.clone()
        },
    };
    let member = ClusterMember::start(settings, Box::new(|| {})).unwrap();
    member.active().await.unwrap();
    let replicated = Journal::open_replicated(&state_dir, journal, NOW, member.stream()).unwrap();
    let replicated = median_commit(replicated).await;
    let more = replicated.saturating_sub(local);
    println!("commit at p50: {local:?} local, {replicated:?} replicated ({more:?} more)");
    assert!(more <= MOST, "{more:?}");
}
