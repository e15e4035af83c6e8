//! The agent of a walk: does what the text of its turn says, and notes every run, question and steered message.
//!
//! The last paragraph of a turn's text is a name and a word, such as `m12 ask`; what stands before it is context.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hermes_relay::agent::{
    Agent, AgentFuture, AgentInfo, Choice, Failure, FailureClass, Meaning, PromptAnswer, Question,
    QuestionKind, Turn, TurnEnd, TurnInput,
};
use hermes_relay::wire::SessionKey;
use tokio_util::sync::CancellationToken;

/// Counts what happens in a walk, so that two things that different parties saw have an order.
pub(super) type Tick = u64;

/// How a run of the agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Answered,
    Failed,
    Panicked,
    Stopped,
    /// The relay dropped it: it ended abruptly, or did not wait any longer.
    Dropped,
}

/// One run of the agent.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// The name of what it answers: a message, a job, something handed over.
    pub(super) name: String,
    pub(super) word: String,
    pub(super) agent: &'static str,
    pub(super) session: String,
    pub(super) platform: String,
    pub(super) chat: String,
    pub(super) author: Option<String>,
    pub(super) contexts: Vec<String>,
    /// The relay that ran it, counted from the first start.
    pub(super) process: usize,
    pub(super) began: Tick,
    pub(super) ended: Option<(Tick, How)>,
    /// What it asked, and the answer.
    pub(super) question: Asking,
    /// Lets a run go on that waits.
    pub(super) release: CancellationToken,
}

/// What became of the question of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Nothing,
    Open,
    Answered(Tick, PromptAnswer),
}

impl Run {
    /// What a chat is shown of its answer.
    pub(super) fn answer(&self, number: usize) -> String {
        format!("re {} run {number}.", self.name)
    }

    /// What a chat is shown of its question.
    pub(super) fn question(name: &str, number: usize) -> String {
        format!("May I {name} run {number}?")
    }
}

/// What the agents of a walk have seen, over all starts of its relay.
#[derive(Debug, Default)]
pub(super) struct Log {
    tick: AtomicU64,
    pub(super) runs: Mutex<Vec<Run>>,
    /// Messages that a running turn was handed.
    pub(super) steered: Mutex<Vec<(Tick, String)>>,
    pub(super) process: Mutex<usize>,
    /// For whoever reads of a failure.
    steps: super::Steps,
}

impl Log {
    pub(super) fn new(steps: super::Steps) -> Self {
        Self {
            steps,
            ..Self::default()
        }
    }

    pub(super) fn tick(&self) -> Tick {
        self.tick.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    pub(super) fn note(&self, step: String) {
        self.steps.lock().unwrap().push(step);
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut Run)) {
        change(&mut self.runs.lock().unwrap()[number]);
    }
}

/// Ends a run in the log, also when its future is dropped.
struct Ending<'l>(&'l Log, usize);

impl Ending<'_> {
    fn how(&self, how: How) {
        let tick = self.0.tick();
        self.0.change(self.1, |run| {
            if run.ended.is_none() {
                run.ended = Some((tick, how));
                self.0
                    .note(format!("{tick}: run {} for {} ends: {how:?}", self.1, run.name));
            }
        });
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.how(How::Dropped);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Scripted {
    pub(super) name: &'static str,
    pub(super) inline: bool,
    pub(super) repeatable: bool,
    pub(super) steers: bool,
    pub(super) log: Arc<Log>,
}

/// The name of what a turn answers, the word that says how, and the context before it.
fn read(input: &TurnInput) -> (String, String, Vec<String>) {
    let mut parts: Vec<String> = input.text.split("\n\n").map(str::to_owned).collect();
    let script = parts.pop().unwrap_or_default();
    let (name, word) = script.split_once(' ').unwrap_or((&script, ""));
    // An answer that came too late is a message without a name in its text.
    let name = match &input.origin.message_id {
        Some(id) => id.to_string(),
        None => name.to_owned(),
    };
    (name, word.to_owned(), parts)
}

impl Scripted {
    async fn act(&self, turn: &Turn, number: usize, name: &str, word: &str) -> (How, TurnEnd) {
        let answer = self.log.runs.lock().unwrap()[number].answer(number);
        match word {
            "hold" => {
                let release = self.log.runs.lock().unwrap()[number].release.clone();
                release.cancelled().await;
            }
            "ask" => {
                let choice = |id: &str, meaning| Choice {
                    id: id.to_owned(),
                    label: id.to_owned(),
                    meaning,
                };
                self.log.change(number, |run| run.question = Asking::Open);
                let question = Question {
                    kind: QuestionKind::Approval,
                    text: Run::question(name, number),
                    detail: None,
                    options: vec![choice("yes", Meaning::AllowOnce), choice("no", Meaning::Deny)],
                    timeout: None,
                    resume: None,
                };
                let answer = turn.approver.ask(question).await;
                let tick = self.log.tick();
                self.log
                    .note(format!("{tick}: run {number} is answered: {answer:?}"));
                self.log
                    .change(number, |run| run.question = Asking::Answered(tick, answer));
            }
            "memo" => {
                let known = turn.events.load_state().await.unwrap_or_default();
                let more = [known.as_slice(), b"+"].concat();
                turn.events.save_state(more).await;
            }
            "stream" => {
                for part in ["slowly ", "and ", "in pieces: "] {
                    turn.events.text(part).await;
                    tokio::task::yield_now().await;
                }
            }
            "fail" => {
                let text = format!("failed {name} run {number}.");
                return (
                    How::Failed,
                    TurnEnd::Failed(Failure::new(FailureClass::Reported, text, "asked to")),
                );
            }
            "panic" => {
                Ending(&self.log, number).how(How::Panicked);
                // Without the message that a panic prints.
                resume_unwind(Box::new("asked to"));
            }
            "silent" => {
                turn.events.text("[SILENT]").await;
                return (How::Answered, TurnEnd::Completed);
            }
            _ => {}
        }
        turn.events.text(answer).await;
        (How::Answered, TurnEnd::Completed)
    }
}

impl Agent for Scripted {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: self.name.into(),
            kind: "scripted",
            repeatable: self.repeatable,
            steers: self.steers,
            asks: true,
            ..AgentInfo::default()
        }
    }

    fn answers_inline(&self) -> bool {
        self.inline
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let (name, word, contexts) = read(&turn.input);
            let number = {
                let began = self.log.tick();
                let mut runs = self.log.runs.lock().unwrap();
                runs.push(Run {
                    name: name.clone(),
                    word: word.clone(),
                    agent: self.name,
                    session: turn.session.as_str().to_owned(),
                    platform: turn.input.origin.platform.to_string(),
                    chat: turn.input.origin.chat_id.to_string(),
                    author: turn.input.author_id.as_ref().map(ToString::to_string),
                    contexts,
                    process: *self.log.process.lock().unwrap(),
                    began,
                    ended: None,
                    question: Asking::Nothing,
                    release: CancellationToken::new(),
                });
                runs.len() - 1
            };
            let (agent, session) = (self.name, turn.session.as_str());
            self.log.note(format!(
                "   run {number} of {agent} for {name} begins in {session}"
            ));
            let ending = Ending(&self.log, number);
            tokio::select! {
                biased;
                () = turn.cancel.cancelled() => {
                    ending.how(How::Stopped);
                    TurnEnd::Cancelled { confirmed: true }
                }
                (how, end) = self.act(&turn, number, &name, &word) => {
                    ending.how(how);
                    end
                }
            }
        })
    }

    fn steer(&self, _session: &SessionKey, input: &TurnInput) -> bool {
        let (name, ..) = read(input);
        let tick = self.log.tick();
        self.log.steered.lock().unwrap().push((tick, name));
        true
    }
}
