//! Plays the relay around an agent: runs its turns, keeps its memory, collects what it says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hermes_relay::agent::{
    Agent, AgentEvent, AgentSignal, Approver, EventSink, Failure, Permission, Preference, PreferenceAnswer,
    PreferenceRequest, PromptAnswer, Question, ResumedTurn, Turn, TurnEnd, TurnInput,
};
use hermes_relay::session::TurnId;
use hermes_relay::wire::SessionKey;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::http_agents::{KEY, soon};

type Kept = Arc<Mutex<HashMap<String, Vec<u8>>>>;

type Events = mpsc::Receiver<AgentEvent>;
type Questions = mpsc::Receiver<(Question, oneshot::Sender<PromptAnswer>)>;

/// An agent with what is kept for its sessions.
pub(crate) struct Chat {
    agent: Arc<dyn Agent>,
    pub(crate) kept: Kept,
}

/// A turn under way.
pub(crate) struct Running {
    pub(crate) cancel: CancellationToken,
    task: JoinHandle<TurnEnd>,
    events: Events,
    questions: Questions,
    seen: Vec<AgentEvent>,
}

/// A turn that is over.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) end: TurnEnd,
    pub(crate) text: String,
    pub(crate) events: Vec<AgentEvent>,
}

impl Chat {
    pub(crate) fn new(agent: impl Agent) -> Self {
        assert!(!format!("{:?}", agent.info()).contains(KEY));
        Self {
            agent: Arc::new(agent),
            kept: Arc::default(),
        }
    }

    /// The same memory with another agent, as after a restart.
    pub(crate) fn restarted(&self, agent: impl Agent) -> Self {
        Self {
            agent: Arc::new(agent),
            kept: Arc::clone(&self.kept),
        }
    }

    pub(crate) fn agent(&self) -> &dyn Agent {
        &*self.agent
    }

    pub(crate) fn start(&self, text: &str) -> Running {
        self.start_with(
            "agent:main:discord:dm:1",
            TurnInput {
                text: text.to_owned(),
                ..TurnInput::default()
            },
        )
    }

    /// Asks the agent about its model.
    pub(crate) fn choose_model(&self, choice: Option<&str>) -> JoinHandle<PreferenceAnswer> {
        let request = PreferenceRequest {
            preference: Preference::Model,
            choice: choice.map(str::to_owned),
        };
        let (turn, ..) = self.turn("agent:main:discord:dm:1", TurnInput::default());
        let agent = Arc::clone(&self.agent);
        tokio::spawn(async move { agent.prefer(turn, request).await })
    }

    pub(crate) fn start_with(&self, session: &str, input: TurnInput) -> Running {
        self.run(self.turn(session, input))
    }

    /// Takes a turn up that an earlier process left with an open question.
    pub(crate) fn resume(&self, state: &str, is_unseen: bool) -> (Running, oneshot::Sender<PromptAnswer>) {
        let (resumed, answer) = ResumedTurn::new(state.to_owned(), is_unseen);
        let mut turn = self.turn("agent:main:discord:dm:1", TurnInput::default());
        turn.0.resumed = Some(resumed);
        (self.run(turn), answer)
    }

    fn run(&self, (turn, events, questions): (Turn, Events, Questions)) -> Running {
        let (agent, cancel) = (Arc::clone(&self.agent), turn.cancel.clone());
        Running {
            cancel,
            task: tokio::spawn(async move { agent.run(turn).await }),
            events,
            questions,
            seen: Vec::new(),
        }
    }

    fn turn(&self, session: &str, input: TurnInput) -> (Turn, Events, Questions) {
        let (sink, mut signals) = EventSink::new();
        // More than any test's turn says.
        let (event, events) = mpsc::channel(1024);
        let (question, questions) = mpsc::channel(16);
        let (kept, key) = (Arc::clone(&self.kept), session.to_owned());
        tokio::spawn(async move {
            while let Some(signal) = signals.recv().await {
                match signal {
                    AgentSignal::Event(events) => drop(event.send(events).await),
                    AgentSignal::Question(asked, answer) => drop(question.send((*asked, answer)).await),
                    AgentSignal::SaveState(memory) => drop(kept.lock().unwrap().insert(key.clone(), memory)),
                    AgentSignal::LoadState(answer) => {
                        drop(answer.send(kept.lock().unwrap().get(&key).cloned()));
                    }
                }
            }
        });
        let turn = Turn {
            id: TurnId(1),
            session: SessionKey::from_text(session.to_owned()),
            input,
            approver: Approver::new(&sink, Permission::Ask),
            events: sink,
            cancel: CancellationToken::new(),
            workdir: None,
            resumed: None,
        };
        (turn, events, questions)
    }
}

impl Running {
    /// The next thing that the agent says.
    pub(crate) async fn event(&mut self) -> AgentEvent {
        let event = soon("the agent says something", self.events.recv()).await;
        let event = event.expect("the turn is not over");
        self.seen.push(event.clone());
        event
    }

    /// Waits until the agent has said this text.
    pub(crate) async fn expect_text(&mut self, text: &str) {
        while assembled(&self.seen) != text {
            self.event().await;
        }
    }

    /// The next question.
    pub(crate) async fn question(&mut self) -> (Question, oneshot::Sender<PromptAnswer>) {
        soon("a question", self.questions.recv())
            .await
            .expect("a question")
    }

    /// Gives the turn up, as the relay does with one that does not stop.
    pub(crate) fn give_up(self) {
        self.task.abort();
    }

    /// How it ends. The key is in nothing that comes out of it.
    pub(crate) async fn over(mut self) -> Over {
        let end = soon("the turn ends", self.task).await.expect("no panic");
        while let Some(event) = soon("the events end", self.events.recv()).await {
            self.seen.push(event);
        }
        let over = Over {
            end,
            text: assembled(&self.seen),
            events: self.seen,
        };
        assert!(!format!("{over:?}").contains(KEY), "{over:?}");
        over
    }
}

impl Over {
    #[track_caller]
    pub(crate) fn failure(&self) -> &Failure {
        match &self.end {
            TurnEnd::Failed(failure) => failure,
            end => panic!("no failure: {end:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn completed(&self) -> &str {
        assert_eq!(self.end, TurnEnd::Completed, "{self:?}");
        &self.text
    }
}

/// The answer as a chat would show it; messages apart by a blank line.
fn assembled(events: &[AgentEvent]) -> String {
    let mut messages = vec![String::new()];
    for event in events {
        let last = messages.last_mut().unwrap();
        match event {
            AgentEvent::Text(text) => last.push_str(text),
            AgentEvent::Replace(text) => last.clone_from(text),
            AgentEvent::Break => messages.push(String::new()),
            _ => {}
        }
    }
    messages.join("\n\n")
}
