//! Turns that run on workers, over a real NATS server.

#[path = "../support/mod.rs"]
mod support;

mod across;
mod alone;
mod choices;
mod cost;
mod doctor;
mod moves;
mod proxy;
mod security;
mod servers;
mod standby;
mod verb;

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hermes_relay::agent::{
    Agent, AgentFuture, AgentHealth, AgentInfo, EchoAgent, PoolSettings, PreferenceAnswer, PreferenceRequest,
    Turn, TurnEnd, TurnInput, Worker, WorkerAgent, WorkerHub, WorkerSettings,
};
use hermes_relay::config::BusyMode;
use hermes_relay::net::nats::{Bus, NatsSettings};
use hermes_relay::net::tls::{Tls, TlsSettings};
use hermes_relay::relay::Record;
use hermes_relay::wire::SessionKey;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::proxy::Proxy;
use crate::support::memory_relay::{Running as Relay, start_with};
use crate::support::port::free_port;
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::skip::skip;

/// A server of the test's own.
struct Server {
    child: Child,
    port: u16,
    /// Where relays and workers reach it, if that is not its own port.
    via: Option<u16>,
    store: tempfile::TempDir,
}

/// A number from the environment, for longer runs.
fn number(name: &str, default: usize) -> usize {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What the server's own default is.
const MAX_PAYLOAD: usize = 1 << 20;

impl Server {
    fn start() -> Option<Self> {
        Self::start_taking(MAX_PAYLOAD)
    }

    /// A server that takes payloads up to so many bytes.
    fn start_taking(max_payload: usize) -> Option<Self> {
        Self::start_with(&format!(
            "max_payload: {max_payload}\nmax_pending: {}\n",
            64 << 20
        ))
    }

    /// A server with this configuration and `JetStream`.
    fn start_with(config: &str) -> Option<Self> {
        Self::start_only_with(&format!("jetstream {{}}\n{config}"))
    }

    /// A server with this configuration and nothing else.
    fn start_only_with(config: &str) -> Option<Self> {
        if Command::new("nats-server")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            skip("nats-server is not installed, so nothing runs on workers");
            return None;
        }
        let port = free_port();
        let store = tempfile::tempdir().unwrap();
        std::fs::write(store.path().join("nats.conf"), config).unwrap();
        let child = spawn(port, store.path());
        Some(Self {
            child,
            port,
            via: None,
            store,
        })
    }

    fn settings(&self) -> NatsSettings {
        NatsSettings {
            urls: vec![format!("nats://127.0.0.1:{}", self.via.unwrap_or(self.port))],
            ..NatsSettings::default()
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    fn start_again(&mut self) {
        self.child = spawn(self.port, self.store.path());
    }

    fn agent(&self, adjust: impl FnOnce(&mut PoolSettings)) -> Pool {
        let mut settings: PoolSettings = serde_json::from_str(r#"{"pool": "p"}"#).unwrap();
        adjust(&mut settings);
        let hub = WorkerHub::new(self.settings(), Tls::new(TlsSettings::default()), "test");
        let files = self.store.path().join("files");
        Pool(Arc::new(WorkerAgent::new("pool", settings, hub, files)))
    }

    async fn worker(&self, agent: impl Agent, slots: usize) -> Running {
        let tls = Tls::new(TlsSettings::default());
        let bus = Bus::connect(&self.settings(), &tls, "worker").await.unwrap();
        let settings = WorkerSettings {
            pool: "p".to_owned(),
            name: "w".to_owned(),
            slots,
            prefix: "test".to_owned(),
            workdir: None,
            drain: Duration::from_secs(10),
            grace: Duration::from_secs(2),
        };
        let stop = CancellationToken::new();
        let worker = Worker::new(settings, Arc::new(agent), bus);
        let run = worker.clone().run(stop.clone());
        Running {
            worker,
            stop,
            task: tokio::spawn(async { run.await.unwrap() }),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16, store: &Path) -> Child {
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]);
    command
        .arg(store)
        .arg("-c")
        .arg(store.join("nats.conf"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A worker in this process.
struct Running {
    worker: Worker,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The agent of a pool, as the builder of a relay wants it.
#[derive(Clone)]
struct Pool(Arc<WorkerAgent>);

impl Agent for Pool {
    fn info(&self) -> AgentInfo {
        self.0.info()
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        self.0.health()
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        self.0.run(turn)
    }

    fn steer(&self, session: &SessionKey, input: &TurnInput) -> bool {
        self.0.steer(session, input)
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        self.0.forget(session)
    }

    fn prefer(&self, turn: Turn, request: PreferenceRequest) -> AgentFuture<'_, PreferenceAnswer> {
        self.0.prefer(turn, request)
    }
}

/// How often each text was begun.
#[derive(Default)]
struct Begun(Mutex<HashMap<String, usize>>);

impl Begun {
    fn count(&self, text: &str) -> usize {
        self.0.lock().unwrap().get(text).copied().unwrap_or_default()
    }
}

/// Counts what it begins; `slow` takes long, `state` adds to what it saved before.
fn counting(begun: &Arc<Begun>) -> ScriptedAgent {
    ScriptedAgent::sharing(begun, |turn, begun| async move {
        let text = turn.input.text.clone();
        *begun.0.lock().unwrap().entry(text.clone()).or_default() += 1;
        if text.starts_with("slow") {
            tokio::select! {
                () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
                () = tokio::time::sleep(Duration::from_secs(60)) => {}
            }
        }
        if text.starts_with("state") {
            let mut state = turn.events.load_state().await.unwrap_or_default();
            state.extend_from_slice(b"+");
            turn.events.text(String::from_utf8(state.clone()).unwrap()).await;
            turn.events.save_state(state).await;
            return TurnEnd::Completed;
        }
        turn.events.text(format!("did {text}")).await;
        TurnEnd::Completed
    })
}

async fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !wanted() {
        assert!(Instant::now() < deadline, "not seen: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The messages of a chat as people see them: what was sent, with all edits.
fn shown(seen: &Record, chat: &str) -> Vec<String> {
    let mut shown: Vec<(&str, &str)> = Vec::new();
    for op in seen.ops.iter().filter(|op| op.action["chat_id"] == chat) {
        let text = op.action["content"].as_str().unwrap_or_default();
        match op.action["op"].as_str() {
            Some("send") => shown.push((&op.message_id, text)),
            Some("edit") => {
                let edited = shown.iter_mut().find(|(id, _)| op.action["message_id"] == *id);
                edited.expect("a message to edit").1 = text;
            }
            _ => {}
        }
    }
    shown.into_iter().map(|(_, text)| text.to_owned()).collect()
}

/// Waits until a chat shows exactly these messages.
async fn answered(relay: &Relay, chat: &str, texts: &[&str]) {
    let what = format!("{texts:?} in {chat}");
    relay.seen(&what, |seen| shown(seen, chat) == texts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_runs_on_a_worker_and_its_events_come_back_in_order() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let worker = server.worker(EchoAgent, 2).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "1", "hello").await;
    answered(&relay, "a", &["echo: hello"]).await;
    // An answer of many events.
    relay.deliver("b", "1", "long=3000 much").await;
    let whole = |text: String| text.starts_with("echo: much") && text.len() > 3000;
    relay
        .seen("the long answer", |seen| whole(shown(seen, "b").concat()))
        .await;
    relay.deliver("c", "1", "fail now").await;
    assert!(relay.replies("c", 1).await[0].contains("asked to fail"));
    relay.stop().await;
    worker.stop.cancel();
    worker.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reaches_the_worker_and_a_turn_that_nobody_took_is_withdrawn() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let begun: Arc<Begun> = Arc::default();
    let worker = server.worker(counting(&begun), 1).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    let rounds = number("WORKER_STOPS", 20);
    let mut times = Vec::new();
    for round in 0..rounds {
        relay
            .deliver("a", &round.to_string(), &format!("slow {round}"))
            .await;
        until("the turn", || begun.count(&format!("slow {round}")) == 1).await;
        let stopped = Instant::now();
        relay.interrupt("a").await;
        until("its end", || worker.worker.running() == 0).await;
        times.push(stopped.elapsed());
    }
    times.sort();
    let p99 = times[rounds * 99 / 100 - usize::from(rounds <= 100)];
    println!(
        "stop: median {:?}, p99 {p99:?}, longest {:?}",
        times[rounds / 2],
        times[rounds - 1]
    );
    // The tests beside this one take its processor for a while; alone it is measured.
    let most = if rounds == 20 { 150 } else { 50 };
    assert!(p99 < Duration::from_millis(most), "{times:?}");
    // The only slot is taken: the next turn waits, and is stopped there.
    relay.deliver("b", "1", "slow holder").await;
    until("the holder", || begun.count("slow holder") == 1).await;
    relay.deliver("c", "1", "slow never").await;
    relay.wait_for_turns(2).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    relay.interrupt("c").await;
    relay.wait_for_turns(1).await;
    relay.interrupt("b").await;
    relay.wait_for_turns(0).await;
    relay.deliver("d", "1", "after").await;
    answered(&relay, "d", &["did after"]).await;
    assert_eq!(begun.count("slow never"), 0);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_worker_is_reported_and_its_turn_never_runs_again() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let begun: Arc<Begun> = Arc::default();
    let first = server.worker(counting(&begun), 1).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("s", "1", "state").await;
    answered(&relay, "s", &["+"]).await;
    relay.deliver("a", "1", "slow one").await;
    until("the turn", || begun.count("slow one") == 1).await;
    relay.deliver("b", "1", "waiting").await;
    relay.wait_for_turns(2).await;
    first.task.abort();
    let second = server.worker(counting(&begun), 2).await;
    // Another worker takes it.
    answered(&relay, "b", &["did waiting"]).await;
    assert!(relay.replies("a", 1).await[0].contains("was lost"));
    // The conversation moves with its saved state.
    relay.deliver("s", "2", "state").await;
    answered(&relay, "s", &["+", "++"]).await;
    assert_eq!((begun.count("slow one"), begun.count("waiting")), (1, 1));
    relay.stop().await;
    second.stop.cancel();
    second.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_worker_the_chat_is_told_once_and_the_turn_waits() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let agent = server.agent(|settings| settings.notice_after_secs = 1);
    let relay = start_with(dir.path(), agent, |_| {}).await;
    relay.deliver("a", "1", "hello").await;
    let told = relay.replies("a", 1).await;
    assert!(told[0].contains("No worker is there"), "{told:?}");
    // The server is killed and comes back meanwhile; what is accepted stays.
    server.restart();
    let worker = server.worker(EchoAgent, 1).await;
    answered(&relay, "a", &[&told[0], "echo: hello"]).await;
    relay.stop().await;
    worker.stop.cancel();
    worker.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_worker_ends_what_it_runs_and_takes_nothing_new() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let worker = server.worker(EchoAgent, 4).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    relay.deliver("a", "1", "sleep=800 ends").await;
    until("the turn", || worker.worker.running() == 1).await;
    worker.stop.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    relay.deliver("b", "1", "later").await;
    answered(&relay, "a", &["echo: ends"]).await;
    worker.task.await.unwrap();
    let next = server.worker(EchoAgent, 1).await;
    answered(&relay, "b", &["echo: later"]).await;
    relay.stop().await;
    next.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_a_running_turn_reaches_the_worker() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let heard: Arc<tokio::sync::Notify> = Arc::default();
    let agent = ScriptedAgent::sharing(&heard, |turn, heard| async move {
        if turn.input.text == "listen" {
            heard.notified().await;
        }
        turn.events.text(format!("heard {}", turn.input.text)).await;
        TurnEnd::Completed
    });
    let notify = Arc::clone(&heard);
    let agent = agent.steered(move |input| {
        notify.notify_one();
        input.text != "refused"
    });
    let worker = server.worker(agent, 1).await;
    let pool = server.agent(|_| {});
    let relay = start_with(dir.path(), pool, |s| s.sessions.busy_mode = BusyMode::Steer).await;
    relay.deliver("a", "1", "listen").await;
    until("the turn", || worker.worker.running() == 1).await;
    // The heartbeat that says that its agent listens.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    relay.deliver("a", "2", "refused").await;
    // What was not taken is run after it.
    answered(&relay, "a", &["heard listen", "heard refused"]).await;
    relay.stop().await;
}

/// Workers die, links are cut, the server restarts: whatever was accepted is answered or reported, nothing runs twice. The long form:
/// `WORKER_SESSIONS=300 cargo test --all-features --test workers chaos`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_leaves_nothing_unanswered_and_runs_nothing_twice() {
    const MESSAGES: usize = 4;
    let sessions = number("WORKER_SESSIONS", 60);
    let Some(mut server) = Server::start() else { return };
    let proxy = Proxy::start(server.port).await;
    server.via = Some(proxy.port);
    let dir = tempfile::tempdir().unwrap();
    let begun: Arc<Begun> = Arc::default();
    let agent = || {
        ScriptedAgent::sharing(&begun, |turn, begun| async move {
            let text = turn.input.text.clone();
            *begun.0.lock().unwrap().entry(text.clone()).or_default() += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
            turn.events.text(format!("did {text}")).await;
            TurnEnd::Completed
        })
    };
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(server.worker(agent(), 4).await);
    }
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    let mut seed = 7u64;
    let cuts = proxy.cut_at_random(seed);
    for message in 0..MESSAGES {
        for session in 0..sessions {
            relay
                .deliver(
                    &format!("c{session}"),
                    &message.to_string(),
                    &format!("{session}.{message}"),
                )
                .await;
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        tokio::time::sleep(Duration::from_millis(50 + seed % 200)).await;
        let victim = usize::try_from(seed >> 33).unwrap() % workers.len();
        workers[victim].task.abort();
        workers[victim] = server.worker(agent(), 4).await;
        if message == 1 {
            server.restart();
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    cuts.abort();
    for session in 0..sessions {
        let chat = format!("c{session}");
        let all = |seen: &Record| shown(seen, &chat).len() >= MESSAGES;
        let texts = shown(&relay.seen(&chat, all).await, &chat);
        // Each message has its answer or its report, at its place.
        assert_eq!(texts.len(), MESSAGES, "{texts:?}");
        for (message, text) in texts.iter().enumerate() {
            let answer = format!("did {session}.{message}");
            assert!(
                text.starts_with(&answer) || text.contains("was lost"),
                "{texts:?}"
            );
        }
    }
    let begun = begun.0.lock().unwrap();
    assert!(begun.values().all(|count| *count == 1), "{begun:?}");
    println!(
        "{} turns began, {} links were cut",
        begun.len(),
        proxy.cut_links()
    );
}
