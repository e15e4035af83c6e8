//! Commands of people that wait for their answer. Discord shows a placeholder for each, which the next message to that person in
//! that chat replaces while the command's token lives.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::wire::OpId;

/// Commands that may wait; the oldest loses its placeholder first.
const MAX_WAITING: usize = 256;
/// How long a placeholder can be replaced: a little less than Discord's 15 minutes.
const TOKEN_MS: i64 = 14 * 60 * 1000 + 30_000;

/// A command that waits for its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeferredCommand {
    /// The id of the interaction.
    pub id: String,
    /// The token that answers it.
    pub token: String,
    /// The application that it belongs to.
    pub application: String,
    /// The chat.
    pub chat: String,
    /// Who gave the command.
    pub user: String,
    /// When it came, in Unix milliseconds.
    pub at_ms: i64,
    /// The op that answers it.
    #[serde(skip)]
    pub(super) op: Option<OpId>,
    /// Whether Discord has not said yet that it shows the placeholder.
    #[serde(skip)]
    pub(super) is_new: bool,
}

/// The commands that wait for their answers, the oldest first.
#[derive(Debug, Default)]
pub struct DeferredAnswers(VecDeque<DeferredCommand>);

impl DeferredAnswers {
    /// The commands of an earlier run.
    pub fn stored(commands: Vec<DeferredCommand>) -> Self {
        let skip = commands.len().saturating_sub(MAX_WAITING);
        Self(commands.into_iter().skip(skip).collect())
    }

    /// The commands to store.
    pub fn waiting(&self) -> impl Iterator<Item = &DeferredCommand> {
        self.0.iter()
    }

    /// A command came; one that waits already came again.
    pub fn came(&mut self, command: DeferredCommand) {
        if self.0.iter().any(|known| known.id == command.id) {
            return;
        }
        if self.0.len() == MAX_WAITING {
            self.0.pop_front();
        }
        self.0.push_back(DeferredCommand {
            is_new: true,
            ..command
        });
    }

    /// Discord shows the placeholder of a command, or does not.
    pub fn acknowledged(&mut self, id: &str, is_shown: bool) {
        if !is_shown {
            return self.over(id);
        }
        if let Some(command) = self.0.iter_mut().find(|command| command.id == id) {
            command.is_new = false;
        }
    }

    /// Whether Discord has not said yet that it shows the placeholder of a command.
    pub fn is_new(&self, id: &str) -> bool {
        self.0.iter().any(|command| command.id == id && command.is_new)
    }

    /// The command that an op to a person in a chat answers. A repeat of the op gets the same one.
    pub fn claim(&mut self, op: OpId, chat: &str, user: &str, now_ms: i64) -> Option<DeferredCommand> {
        self.0
            .retain(|command| now_ms.saturating_sub(command.at_ms) < TOKEN_MS);
        let mine = |command: &&mut DeferredCommand| {
            command.op == Some(op) || (command.op.is_none() && command.chat == chat && command.user == user)
        };
        let command = self.0.iter_mut().find(mine)?;
        command.op = Some(op);
        Some(command.clone())
    }

    /// A command is answered, or cannot be any more.
    pub fn over(&mut self, id: &str) {
        self.0.retain(|command| command.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(id: &str, chat: &str, user: &str) -> DeferredCommand {
        DeferredCommand {
            id: id.to_owned(),
            chat: chat.to_owned(),
            user: user.to_owned(),
            ..DeferredCommand::default()
        }
    }

    fn claimed(
        answers: &mut DeferredAnswers,
        op: u128,
        chat: &str,
        user: &str,
        now_ms: i64,
    ) -> Option<String> {
        answers
            .claim(OpId(op), chat, user, now_ms)
            .map(|command| command.id)
    }

    #[test]
    fn the_next_message_to_the_person_in_the_chat_answers_a_command() {
        let mut answers = DeferredAnswers::default();
        answers.came(command("1", "c", "ada"));
        answers.came(command("1", "c", "ada"));
        answers.came(command("2", "c", "ada"));
        assert_eq!(claimed(&mut answers, 1, "c", "bob", 0), None);
        assert_eq!(claimed(&mut answers, 1, "d", "ada", 0), None);
        assert_eq!(claimed(&mut answers, 1, "c", "ada", 0).as_deref(), Some("1"));
        assert_eq!(
            claimed(&mut answers, 1, "c", "ada", 0).as_deref(),
            Some("1"),
            "a repeat"
        );
        assert_eq!(claimed(&mut answers, 2, "c", "ada", 0).as_deref(), Some("2"));
        answers.over("1");
        answers.over("2");
        assert_eq!(claimed(&mut answers, 4, "c", "ada", 0), None);
    }

    #[test]
    fn a_token_lives_fifteen_minutes_and_only_what_is_shown_is_replaced() {
        let mut answers = DeferredAnswers::default();
        answers.came(command("1", "c", "ada"));
        assert!(answers.is_new("1"));
        answers.acknowledged("1", true);
        assert!(!answers.is_new("1"));
        answers.came(command("2", "c", "bob"));
        answers.acknowledged("2", false);
        assert_eq!(claimed(&mut answers, 1, "c", "bob", 0), None);
        assert_eq!(claimed(&mut answers, 2, "c", "ada", 15 * 60 * 1000), None);
        for number in 0..300 {
            answers.came(command(&format!("n{number}"), "c", "ada"));
        }
        assert_eq!(answers.waiting().count(), MAX_WAITING);
    }

    #[test]
    fn a_restart_knows_what_waits() {
        let mut answers = DeferredAnswers::default();
        answers.came(command("1", "c", "ada"));
        let stored = serde_json::to_value(answers.waiting().collect::<Vec<_>>()).unwrap();
        let mut answers = DeferredAnswers::stored(serde_json::from_value(stored).unwrap());
        assert!(!answers.is_new("1"));
        assert_eq!(claimed(&mut answers, 1, "c", "ada", 0).as_deref(), Some("1"));
    }
}
