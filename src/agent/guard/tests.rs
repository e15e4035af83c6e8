//! Guards around an agent that does what its text says.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::agent::{
    AgentEvent, AgentFuture, AgentHealth, AgentInfo, AgentSignal, Choice, EventSink, Failure, FailureClass,
    Meaning, PromptAnswer, Question, QuestionKind, Turn, TurnEnd, TurnInput,
};

/// What it does next, one word per turn; the last for ever.
struct Scripted {
    script: Mutex<VecDeque<&'static str>>,
    health: Mutex<AgentHealth>,
    running: AtomicUsize,
    most_running: AtomicUsize,
    runs: AtomicUsize,
    held: Mutex<Vec<EventSink>>,
}

fn scripted(script: &[&'static str]) -> Arc<Scripted> {
    Arc::new(Scripted {
        script: Mutex::new(script.iter().copied().collect()),
        health: Mutex::new(AgentHealth::Ready),
        running: AtomicUsize::new(0),
        most_running: AtomicUsize::new(0),
        runs: AtomicUsize::new(0),
        held: Mutex::new(Vec::new()),
    })
}

impl Scripted {
    fn word(&self) -> &'static str {
        let mut script = self.script.lock().unwrap();
        if script.len() > 1 {
            script.pop_front().unwrap()
        } else {
            script[0]
        }
    }

    async fn act(&self, turn: &Turn) -> TurnEnd {
        let failed = |class| Failure::new(class, "failed", "");
        match self.word() {
            "hang" => std::future::pending().await,
            "wait" => tokio::time::sleep(Duration::from_secs(5)).await,
            "talk" => {
                for _ in 0..10 {
                    tokio::time::sleep(Duration::from_secs(8)).await;
                    turn.events.text("0123456789").await;
                }
            }
            "ask" => {
                let answer = turn.approver.ask(question()).await;
                turn.events.text(format!("{answer:?}")).await;
            }
            "ask twice" => {
                for _ in 0..2 {
                    tokio::time::sleep(Duration::from_secs(4)).await;
                    let later = async {
                        tokio::time::sleep(Duration::from_secs(30)).await;
                        turn.approver.ask(question()).await
                    };
                    // Both are open for half a minute.
                    let (first, second) = tokio::join!(turn.approver.ask(question()), later);
                    turn.events.text(format!("{first:?} {second:?}")).await;
                    tokio::time::sleep(Duration::from_secs(4)).await;
                }
            }
            "hold" => {
                self.held.lock().unwrap().push(turn.events.clone());
                for _ in 0..50 {
                    turn.events.text("x").await;
                }
            }
            "crash later" => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                return TurnEnd::Failed(failed(FailureClass::Crashed));
            }
            "crash" => return TurnEnd::Failed(failed(FailureClass::Crashed)),
            _ => turn.events.text("fine").await,
        }
        TurnEnd::Completed
    }
}

fn question() -> Question {
    Question {
        kind: QuestionKind::Approval,
        text: "May I?".to_owned(),
        detail: None,
        options: vec![Choice {
            id: "yes".to_owned(),
            label: "Yes".to_owned(),
            meaning: Meaning::AllowOnce,
        }],
        timeout: None,
        resume: None,
    }
}

impl Agent for Scripted {
    fn info(&self) -> AgentInfo {
        AgentInfo::default()
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        let health = self.health.lock().unwrap().clone();
        Box::pin(std::future::ready(health))
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_running.fetch_max(running, Ordering::SeqCst);
            self.runs.fetch_add(1, Ordering::SeqCst);
            let end = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => TurnEnd::Cancelled { confirmed: true },
                end = self.act(&turn) => end,
            };
            self.running.fetch_sub(1, Ordering::SeqCst);
            end
        })
    }
}

/// Runs a turn; questions are answered after a minute.
async fn drive(agent: &dyn Agent, cancel: CancellationToken) -> (String, TurnEnd) {
    let (events, mut signals) = EventSink::new();
    let turn = Turn::alone(TurnInput::default(), events, cancel);
    let mut reply = String::new();
    let run = agent.run(turn);
    tokio::pin!(run);
    let end = loop {
        tokio::select! {
            biased;
            Some(signal) = signals.recv() => match signal {
                AgentSignal::Event(AgentEvent::Text(text)) => reply.push_str(&text),
                AgentSignal::Question(question, answer) => {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(60)).await;
                        let _ = answer.send(PromptAnswer::Chosen(question.options[0].id.clone()));
                    });
                }
                _ => {}
            },
            end = &mut run => break end,
        }
    };
    while let Ok(signal) = signals.try_recv() {
        if let AgentSignal::Event(AgentEvent::Text(text)) = signal {
            reply.push_str(&text);
        }
    }
    (reply, end)
}

async fn run(agent: &dyn Agent) -> (String, TurnEnd) {
    drive(agent, CancellationToken::new()).await
}

fn class(end: &TurnEnd) -> Option<FailureClass> {
    match end {
        TurnEnd::Failed(failure) => Some(failure.class),
        _ => None,
    }
}

fn timed(agent: Arc<Scripted>, wall: Option<u64>, idle: Option<u64>) -> TurnTimeout {
    let limits = TimeLimits {
        wall: wall.map(Duration::from_secs),
        idle: idle.map(Duration::from_secs),
        ..TimeLimits::default()
    };
    TurnTimeout::new(agent, limits)
}

#[tokio::test(start_paused = true)]
async fn only_so_many_run_at_a_time_and_a_stop_ends_the_wait() {
    let agent = scripted(&["wait"]);
    let limited = ConcurrencyLimit::new(agent.clone(), 2);
    let turns = (0..7).map(|_| run(&limited));
    for (_, end) in futures_util::future::join_all(turns).await {
        assert_eq!(end, TurnEnd::Completed);
    }
    assert_eq!(agent.most_running.load(Ordering::SeqCst), 2);
    assert_eq!(limited.info().parallel, Some(2));

    let one = ConcurrencyLimit::new(scripted(&["hang"]), 1);
    let (running, waiting) = (CancellationToken::new(), CancellationToken::new());
    let first = drive(&one, running.clone());
    let second = drive(&one, waiting.clone());
    let stops = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        waiting.cancel();
        tokio::time::sleep(Duration::from_secs(1)).await;
        running.cancel();
    };
    let ((_, first), (_, second), ()) = tokio::join!(first, second, stops);
    assert_eq!(first, second);
    assert_eq!(first, TurnEnd::Cancelled { confirmed: true });
}

#[tokio::test(start_paused = true)]
async fn time_ends_a_turn_that_hangs_and_one_that_goes_on() {
    let (_, end) = run(&timed(scripted(&["hang"]), None, Some(10))).await;
    assert_eq!(class(&end), Some(FailureClass::Timeout), "{end:?}");
    let (reply, end) = run(&timed(scripted(&["talk"]), Some(30), Some(10))).await;
    assert_eq!(class(&end), Some(FailureClass::Timeout), "{end:?}");
    assert_eq!(reply.len(), 30, "the text so far stays");
    let (reply, end) = run(&timed(scripted(&["talk"]), None, Some(10))).await;
    assert_eq!((reply.len(), end), (100, TurnEnd::Completed));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let (_, end) = drive(&timed(scripted(&["hang"]), Some(30), None), cancel).await;
    assert_eq!(end, TurnEnd::Cancelled { confirmed: true });
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_answer_is_not_silence() {
    let (reply, end) = run(&timed(scripted(&["ask"]), None, Some(10))).await;
    assert_eq!((reply.as_str(), end), ("Chosen(\"yes\")", TurnEnd::Completed));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_answer_is_not_the_agents_time() {
    for (wall, is_enough) in [(17, true), (15, false), (u64::MAX, true)] {
        for idle in [None, Some(10)] {
            let start = tokio::time::Instant::now();
            let (reply, end) = run(&timed(scripted(&["ask twice"]), Some(wall), idle)).await;
            assert_eq!(reply.matches("yes").count(), 4, "{wall} s");
            assert_eq!(end == TurnEnd::Completed, is_enough, "{wall} s: {end:?}");
            // It works for 16 s and waits for three minutes.
            let took = start.elapsed().as_secs();
            assert_eq!(took, 180 + wall.min(16), "{wall} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_held_after_the_end_holds_nobody_up_and_loses_nothing() {
    let agent = scripted(&["hold"]);
    let guards = Guards {
        time: Some(TimeLimits::default()),
        ..Guards::default()
    };
    let guarded = guards.wrap(agent.clone());
    let (reply, end) = tokio::time::timeout(Duration::from_secs(5), run(&*guarded))
        .await
        .expect("it ends");
    assert_eq!((reply.len(), end), (50, TurnEnd::Completed));
}

#[tokio::test(start_paused = true)]
async fn one_that_keeps_failing_rests_longer_each_time_until_it_is_well() {
    let agent = scripted(&["crash", "crash", "crash", "crash", "fine"]);
    let breaker = CircuitBreaker::new(agent.clone(), BreakerSettings::default());
    let runs = || agent.runs.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(class(&run(&breaker).await.1), Some(FailureClass::Crashed));
    }
    let (_, refused) = run(&breaker).await;
    assert_eq!(class(&refused), Some(FailureClass::Unavailable));
    assert_eq!(runs(), 3, "it rests");
    let AgentHealth::Down(why) = breaker.health().await else {
        panic!("it rests")
    };
    assert!(why.contains("paused for another"), "{why}");

    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(class(&run(&breaker).await.1), Some(FailureClass::Crashed));
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(class(&run(&breaker).await.1), Some(FailureClass::Unavailable));
    assert_eq!(runs(), 4, "the second rest is longer");

    tokio::time::advance(Duration::from_secs(10)).await;
    *agent.health.lock().unwrap() = AgentHealth::Down("gone".to_owned());
    assert_eq!(class(&run(&breaker).await.1), Some(FailureClass::Unavailable));
    assert_eq!(runs(), 4, "it is not started while it says that it is down");

    *agent.health.lock().unwrap() = AgentHealth::Ready;
    tokio::time::advance(Duration::from_secs(41)).await;
    assert_eq!(run(&breaker).await.1, TurnEnd::Completed);
    assert_eq!(breaker.health().await, AgentHealth::Ready);
    assert_eq!(run(&breaker).await.1, TurnEnd::Completed);
}

#[tokio::test(start_paused = true)]
async fn turns_that_fail_together_count_as_one_failure() {
    let agent = scripted(&["crash later"]);
    let breaker = CircuitBreaker::new(agent.clone(), BreakerSettings::default());
    for failures in 1..=3 {
        assert_eq!(
            breaker.health().await,
            AgentHealth::Ready,
            "before failure {failures}"
        );
        let turns = (0..3).map(|_| run(&breaker));
        for (_, end) in futures_util::future::join_all(turns).await {
            assert_eq!(class(&end), Some(FailureClass::Crashed));
        }
    }
    assert!(matches!(breaker.health().await, AgentHealth::Down(_)), "it rests");
    assert_eq!(agent.runs.load(Ordering::SeqCst), 9);
}

#[tokio::test(start_paused = true)]
async fn a_turn_from_before_the_cooldown_does_not_count_after_it() {
    let agent = scripted(&["crash later", "crash", "fine", "crash"]);
    let settings = BreakerSettings {
        failures: 1,
        cooldown: Duration::from_secs(1),
        ..BreakerSettings::default()
    };
    let breaker = CircuitBreaker::new(agent, settings);
    let others = async {
        assert_eq!(class(&run(&breaker).await.1), Some(FailureClass::Crashed));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(run(&breaker).await.1, TurnEnd::Completed);
    };
    let ((_, early), ()) = tokio::join!(run(&breaker), others);
    assert_eq!(class(&early), Some(FailureClass::Crashed));
    assert_eq!(breaker.health().await, AgentHealth::Ready);
    run(&breaker).await;
    assert!(
        matches!(breaker.health().await, AgentHealth::Down(_)),
        "it began later"
    );
}

#[tokio::test(start_paused = true)]
async fn one_turn_probes_at_a_time_and_a_dropped_one_frees_the_next() {
    let agent = scripted(&["crash", "hang", "fine"]);
    let settings = BreakerSettings {
        failures: 1,
        ..BreakerSettings::default()
    };
    let breaker = CircuitBreaker::new(agent.clone(), settings);
    run(&breaker).await;
    tokio::time::advance(Duration::from_secs(11)).await;
    let given_up = tokio::time::timeout(Duration::from_secs(1), run(&breaker));
    let (given_up, (_, meanwhile)) = tokio::join!(given_up, run(&breaker));
    assert!(given_up.is_err());
    assert_eq!(class(&meanwhile), Some(FailureClass::Unavailable));
    assert_eq!(agent.runs.load(Ordering::SeqCst), 2);
    assert_eq!(run(&breaker).await.1, TurnEnd::Completed);
}

#[tokio::test]
async fn a_turn_without_its_working_directory_says_so_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (gone, file) = (dir.path().join("gone"), dir.path().join("file"));
    std::fs::write(&file, "").unwrap();
    for (workdir, wanted) in [(&gone, "does not exist"), (&file, "is not a directory")] {
        let inner = scripted(&["fine"]);
        let agent = WorkdirCheck::new(inner.clone(), Some(workdir.clone()));
        let (reply, end) = drive(&agent, CancellationToken::new()).await;
        let TurnEnd::Failed(failure) = end else {
            panic!("{end:?}");
        };
        assert!(failure.detail.contains(wanted), "{failure:?}");
        assert!(
            failure.detail.contains(&*workdir.to_string_lossy()),
            "{failure:?}"
        );
        assert!(!failure.side_effects_possible && reply.is_empty());
        assert_eq!(inner.runs.load(Ordering::SeqCst), 0);
        let health = agent.health().await;
        assert!(
            matches!(&health, AgentHealth::Down(why) if why.contains(wanted)),
            "{health:?}"
        );
    }
    std::fs::create_dir(&gone).unwrap();
    let agent = WorkdirCheck::new(scripted(&["fine"]), Some(gone));
    let (reply, end) = drive(&agent, CancellationToken::new()).await;
    assert_eq!((reply.as_str(), end), ("fine", TurnEnd::Completed));
}
