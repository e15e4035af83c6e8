//! Questions from agents to people, and the policy that answers them without people.
//!
//! An agent puts a [`Question`] to its turn's [`Approver`] and waits. How it is shown, who may answer and how long is
//! waited is decided around the agent; that nobody is asked at all is the [`Permission`] policy.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::event::{AgentSignal, EventSink};
pub use crate::adapter::prompt::{Meaning, QuestionKind};

/// A question to people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Whether something is to be allowed, or one of several things chosen.
    pub kind: QuestionKind,
    /// The question, in a line or two.
    pub text: String,
    /// Its subject verbatim: a command, a path.
    pub detail: Option<String>,
    /// Possible answers.
    pub options: Vec<Choice>,
    /// Timeout of the agent itself, if known.
    pub timeout: Option<Duration>,
    /// What the agent takes the turn up from when the relay ends while the question is open; see [`AgentInfo::resumes`]. `None`
    /// when the question ends with the relay.
    ///
    /// [`AgentInfo::resumes`]: super::AgentInfo::resumes
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// A turn that an earlier process of the relay left waiting for an answer.
#[derive(Debug)]
pub struct ResumedTurn {
    /// The [`Question::resume`] of its question.
    pub state: String,
    /// Whether the chat has seen nothing of what the turn said before it asked.
    pub is_unseen: bool,
    pub(crate) answer: oneshot::Receiver<PromptAnswer>,
}

impl ResumedTurn {
    /// A turn whose question had this [`Question::resume`], and the sender of the answer to it.
    pub fn new(state: String, is_unseen: bool) -> (Self, oneshot::Sender<PromptAnswer>) {
        let (sender, answer) = oneshot::channel();
        let resumed = Self {
            state,
            is_unseen,
            answer,
        };
        (resumed, sender)
    }

    /// Waits for the answer to its question. Dropping the future takes the question back.
    pub async fn answer(self) -> PromptAnswer {
        self.answer.await.unwrap_or(PromptAnswer::Cancelled)
    }
}

/// One possible answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The agent's id; any text.
    pub id: String,
    /// Text for people.
    pub label: String,
    /// What choosing it decides.
    pub meaning: Meaning,
}

/// Outcome of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptAnswer {
    /// The id of the choice that was picked.
    Chosen(String),
    /// Nobody answered in time.
    TimedOut,
    /// The turn was stopped, or the question could not be shown.
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

/// Asks people on behalf of an agent, or answers by policy.
#[derive(Clone, Debug)]
pub struct Approver {
    sender: mpsc::Sender<Box<AgentSignal>>,
    permission: Permission,
}

impl Approver {
    /// Asks through the sink of the same turn.
    pub fn new(sink: &EventSink, permission: Permission) -> Self {
        Self {
            sender: sink.signals.clone(),
            permission,
        }
    }

    /// The same approver through another sink.
    #[must_use]
    pub fn through(&self, sink: &EventSink) -> Self {
        Self::new(sink, self.permission)
    }

    /// Who decides.
    #[cfg(feature = "nats")]
    pub(crate) fn permission(&self) -> Permission {
        self.permission
    }

    /// Asks and waits for the answer. Dropping the future takes the question back.
    pub async fn ask(&self, question: Question) -> PromptAnswer {
        if let Some(answer) = self.permission.settles(&question) {
            return answer;
        }
        let (answer, answered) = oneshot::channel();
        if self
            .sender
            .send(Box::new(AgentSignal::Question(Box::new(question), answer)))
            .await
            .is_err()
        {
            return PromptAnswer::Cancelled;
        }
        answered.await.unwrap_or(PromptAnswer::Cancelled)
    }
}

impl Permission {
    /// The answer when people are not asked. Without a fitting choice the question is void.
    fn settles(self, question: &Question) -> Option<PromptAnswer> {
        let wanted = match (self, question.kind) {
            (Self::Ask, _) => return None,
            (Self::Allow, QuestionKind::Approval) => Meaning::AllowOnce,
            (Self::Deny, _) | (Self::Allow, QuestionKind::Choice) => Meaning::Deny,
        };
        Some(question.choice(wanted).map_or(PromptAnswer::Cancelled, |choice| {
            PromptAnswer::Chosen(choice.id.clone())
        }))
    }
}

impl Question {
    /// The first choice that means this.
    pub fn choice(&self, meaning: Meaning) -> Option<&Choice> {
        self.options.iter().find(|choice| choice.meaning == meaning)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A question that tests ask.
    pub(crate) fn question() -> Question {
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
                choice("once", Meaning::AllowOnce),
                choice("always", Meaning::AllowAlways),
                choice("no", Meaning::Deny),
            ],
            timeout: None,
            resume: None,
        }
    }

    #[tokio::test]
    async fn a_policy_answers_without_asking_and_never_more_than_once_at_a_time() {
        let (sink, mut signals) = EventSink::new();
        let denied = Approver::new(&sink, Permission::Deny).ask(question()).await;
        assert_eq!(denied, PromptAnswer::Chosen("no".to_owned()));
        let allowed = Approver::new(&sink, Permission::Allow).ask(question()).await;
        assert_eq!(allowed, PromptAnswer::Chosen("once".to_owned()));
        let mut none = question();
        none.options.pop();
        assert_eq!(
            Approver::new(&sink, Permission::Deny).ask(none).await,
            PromptAnswer::Cancelled
        );
        assert!(signals.try_recv().is_err());
    }
}
