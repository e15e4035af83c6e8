//! Drives one turn of an agent as the relay does: reads its signals, answers its questions, keeps its memory, stops it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hermes_relay::agent::{
    Agent, AgentEvent, AgentSignal, Approver, EventSink, Meaning, Permission, PromptAnswer, Question, Turn,
    TurnEnd, TurnInput,
};
use hermes_relay::session::TurnId;
use hermes_relay::wire::SessionKey;
use tokio_util::sync::CancellationToken;

/// A turn that takes longer has hung.
pub(crate) const TURN_TIMEOUT: Duration = Duration::from_secs(30);

static TURNS: AtomicU64 = AtomicU64::new(1);

/// When a turn is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Never,
    /// Before it runs.
    Before,
    /// As soon as it has begun.
    Begun,
    /// After so long.
    After(Duration),
    /// When it has said something.
    Speaking,
    /// When it has asked.
    Asking,
}

/// How a question is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// With the choice that means this.
    Choose(Meaning),
    /// The same, after a while.
    Late(Meaning),
    /// Nobody answered.
    TimedOut,
    /// There is no way to ask.
    Void,
    /// Not at all: the question stays open.
    Open,
}

/// What a turn did.
#[derive(Debug)]
pub(crate) struct TurnRecord {
    /// The answer, with what was replaced replaced.
    pub(crate) text: String,
    pub(crate) events: Vec<AgentEvent>,
    pub(crate) asked: Vec<Question>,
    pub(crate) end: TurnEnd,
    /// How long it took after it was told to stop.
    pub(crate) stopping: Option<Duration>,
}

/// One conversation with an agent, with what the agent keeps in it.
#[derive(Clone)]
pub(crate) struct Chat {
    session: SessionKey,
    kept: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

impl Chat {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            session: SessionKey::from_text(format!("agent:main:test:dm:{name}")),
            kept: Arc::default(),
        }
    }

    pub(crate) fn session(&self) -> &SessionKey {
        &self.session
    }

    /// Forgets what was kept, as the relay does with what an agent has to forget.
    pub(crate) fn clear(&self) {
        self.kept.lock().unwrap().clear();
    }

    /// A turn that nobody stops; questions are allowed once.
    pub(crate) async fn turn(&self, agent: &dyn Agent, text: &str) -> TurnRecord {
        self.stopped_turn(agent, text, Stop::Never, Reply::Choose(Meaning::AllowOnce))
            .await
    }

    pub(crate) async fn stopped_turn(
        &self,
        agent: &dyn Agent,
        text: &str,
        stop: Stop,
        reply: Reply,
    ) -> TurnRecord {
        let (events, mut signals) = EventSink::new();
        let cancel = CancellationToken::new();
        let turn = Turn {
            id: TurnId(TURNS.fetch_add(1, Ordering::Relaxed)),
            session: self.session.clone(),
            input: TurnInput {
                text: text.to_owned(),
                author: Some("someone".into()),
                ..TurnInput::default()
            },
            approver: Approver::new(&events, Permission::Ask),
            events,
            cancel: cancel.clone(),
            workdir: None,
            resumed: None,
        };
        let mut recorder = SignalRecorder {
            text: String::new(),
            events: Vec::new(),
            asked: Vec::new(),
            open: Vec::new(),
            stopped: None,
        };
        if stop == Stop::Before {
            recorder.stop(&cancel);
        }
        let later = match stop {
            Stop::After(pause) => pause,
            _ => TURN_TIMEOUT * 2,
        };
        let run = agent.run(turn);
        let hung = tokio::time::sleep(TURN_TIMEOUT);
        let late = tokio::time::sleep(later);
        tokio::pin!(run, hung, late);
        if stop == Stop::Begun {
            assert_pending_once(&mut run).await;
            recorder.stop(&cancel);
        }
        let end = loop {
            tokio::select! {
                biased;
                () = &mut hung => panic!("the turn {text:?} has hung after {:?} {:?}", recorder.text, recorder.events),
                () = &mut late, if recorder.stopped.is_none() && later < TURN_TIMEOUT => recorder.stop(&cancel),
                Some(signal) = signals.recv() => self.record(&mut recorder, signal, stop, reply, &cancel),
                end = &mut run => break end,
            }
        };
        while let Ok(signal) = signals.try_recv() {
            self.record(&mut recorder, signal, stop, reply, &cancel);
        }
        TurnRecord {
            text: recorder.text,
            events: recorder.events,
            asked: recorder.asked,
            end,
            stopping: recorder.stopped.map(|at| at.elapsed()),
        }
    }

    fn record(
        &self,
        recorder: &mut SignalRecorder,
        signal: AgentSignal,
        stop: Stop,
        reply: Reply,
        cancel: &CancellationToken,
    ) {
        match signal {
            AgentSignal::Event(event) => {
                match event {
                    AgentEvent::Text(text) => recorder.text.push_str(&text),
                    AgentEvent::Replace(text) => recorder.text = text,
                    other => recorder.events.push(other),
                }
                if stop == Stop::Speaking && !recorder.text.is_empty() {
                    recorder.stop(cancel);
                }
            }
            AgentSignal::Question(question, answer) => {
                let chosen = |meaning| {
                    let choice = question.choice(meaning).expect("the choice is offered");
                    PromptAnswer::Chosen(choice.id.clone())
                };
                match reply {
                    Reply::Choose(meaning) => drop(answer.send(chosen(meaning))),
                    Reply::TimedOut => drop(answer.send(PromptAnswer::TimedOut)),
                    Reply::Void => drop(answer),
                    Reply::Open => recorder.open.push(answer),
                    Reply::Late(meaning) => {
                        let late = chosen(meaning);
                        tokio::spawn(async move {
                            tokio::time::sleep(Duration::from_millis(300)).await;
                            let _ = answer.send(late);
                        });
                    }
                }
                recorder.asked.push(*question);
                if stop == Stop::Asking {
                    recorder.stop(cancel);
                }
            }
            AgentSignal::SaveState(memory) => {
                let mut kept = self.kept.lock().unwrap();
                kept.insert(self.session.to_string(), memory);
            }
            AgentSignal::LoadState(answer) => {
                let kept = self.kept.lock().unwrap();
                let _ = answer.send(kept.get(self.session.as_str()).cloned());
            }
        }
    }
}

struct SignalRecorder {
    text: String,
    events: Vec<AgentEvent>,
    asked: Vec<Question>,
    open: Vec<tokio::sync::oneshot::Sender<PromptAnswer>>,
    stopped: Option<Instant>,
}

impl SignalRecorder {
    fn stop(&mut self, cancel: &CancellationToken) {
        cancel.cancel();
        self.stopped.get_or_insert_with(Instant::now);
    }
}

/// Lets a future begin.
async fn assert_pending_once<F: Future + Unpin>(future: &mut F) {
    std::future::poll_fn(|context| {
        let begun = std::pin::Pin::new(&mut *future).poll(context);
        assert!(begun.is_pending(), "it ended at once");
        std::task::Poll::Ready(())
    })
    .await;
}
