//! What an agent may ask people, and who answers when nobody is asked.
//!
//! An agent puts a [`Question`] to its turn's [`Asker`] and waits. How it is shown, who may answer and how long is
//! waited is decided around the agent; that nobody is asked at all is the [`Permission`] policy.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::event::{EventSink, Signal};
pub use crate::adapter::prompt::{Meaning, QuestionKind};

/// Something that people decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Whether something is to be allowed, or one of several things chosen.
    pub kind: QuestionKind,
    /// What is asked, in a line or two.
    pub text: String,
    /// What it is about, verbatim: a command, a path.
    pub detail: Option<String>,
    /// What may be answered.
    pub options: Vec<Choice>,
    /// How long the agent itself waits, when it says.
    pub patience: Option<Duration>,
}

/// One possible answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The agent's name for it; any text.
    pub id: String,
    /// What people read.
    pub label: String,
    /// What it means.
    pub meaning: Meaning,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This choice, by the agent's name for it.
    Chosen(String),
    /// Nobody answered in time.
    TimedOut,
    /// The question is void: the turn was stopped, or there was no way to ask.
    Cancelled,
}

/// Who decides what an agent asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// People in the chat.
    #[default]
    Ask,
    /// Nobody: approvals are denied.
    Deny,
    /// Nobody: approvals are given, once at a time.
    Allow,
}

/// How an agent asks.
#[derive(Clone, Debug)]
pub struct Asker {
    sender: mpsc::Sender<Signal>,
    permission: Permission,
}

impl Asker {
    /// Asks through the sink of the same turn.
    pub fn new(sink: &EventSink, permission: Permission) -> Self {
        Self {
            sender: sink.0.clone(),
            permission,
        }
    }

    /// The same asker through another sink.
    #[must_use]
    pub fn through(&self, sink: &EventSink) -> Self {
        Self::new(sink, self.permission)
    }

    /// Asks and waits for the answer. Dropping the future takes the question back.
    pub async fn ask(&self, question: Question) -> Answer {
        if let Some(answer) = self.permission.settles(&question) {
            return answer;
        }
        let (answer, answered) = oneshot::channel();
        if self
            .sender
            .send(Signal::Asked(Box::new(question), answer))
            .await
            .is_err()
        {
            return Answer::Cancelled;
        }
        answered.await.unwrap_or(Answer::Cancelled)
    }
}

impl Permission {
    /// The answer when people are not asked. Without a fitting choice the question is void.
    fn settles(self, question: &Question) -> Option<Answer> {
        let wanted = match (self, question.kind) {
            (Self::Ask, _) => return None,
            (Self::Allow, QuestionKind::Approval) => Meaning::AllowOnce,
            (Self::Deny, _) | (Self::Allow, QuestionKind::Choice) => Meaning::Deny,
        };
        Some(
            question
                .choice(wanted)
                .map_or(Answer::Cancelled, |choice| Answer::Chosen(choice.id.clone())),
        )
    }
}

impl Question {
    /// The first choice that means this.
    pub fn choice(&self, meaning: Meaning) -> Option<&Choice> {
        self.options.iter().find(|choice| choice.meaning == meaning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        let choice = |id: &str, meaning| Choice {
            id: id.to_owned(),
            label: id.to_owned(),
            meaning,
        };
        Question {
            kind: QuestionKind::Approval,
            text: "Run it?".to_owned(),
            detail: None,
            options: vec![
                choice("always", Meaning::AllowAlways),
                choice("once", Meaning::AllowOnce),
                choice("no", Meaning::Deny),
            ],
            patience: None,
        }
    }

    #[tokio::test]
    async fn a_policy_answers_without_asking_and_never_more_than_once_at_a_time() {
        let (sink, mut signals) = EventSink::new();
        let denied = Asker::new(&sink, Permission::Deny).ask(question()).await;
        assert_eq!(denied, Answer::Chosen("no".to_owned()));
        let allowed = Asker::new(&sink, Permission::Allow).ask(question()).await;
        assert_eq!(allowed, Answer::Chosen("once".to_owned()));
        let mut none = question();
        none.options.pop();
        assert_eq!(
            Asker::new(&sink, Permission::Deny).ask(none).await,
            Answer::Cancelled
        );
        assert!(signals.try_recv().is_err());
    }
}
