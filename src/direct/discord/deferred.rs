//! Commands of people that wait for their answer. Discord shows a placeholder for each, which the first message that answers the
//! command replaces while the command's token lives. A command has no message, so answers name it by an id of its own. What is for
//! its author alone does not replace the placeholder, which everybody sees: it follows once the placeholder is gone. A press of a
//! button has no placeholder and needs no answer; what is said to it is for that person alone.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::collections::BoundedCache;
use crate::wire::OpId;

/// Commands that may wait; the oldest loses its placeholder first.
const MAX_WAITING: usize = 256;
/// How long a placeholder can be replaced: a little less than Discord's 15 minutes.
const TOKEN_MS: i64 = 14 * 60 * 1000 + 30_000;

/// Marks the id of a command where otherwise the id of a message is.
const COMMAND_MARK: &str = "interaction-";
/// Marks the id of a press of a button there.
const PRESS_MARK: &str = "press-";

/// The command that this id names, if it is not the id of a message.
pub fn interaction_of(message_id: &str) -> Option<&str> {
    message_id.strip_prefix(COMMAND_MARK)
}

/// The press that this id names.
pub(super) fn press_of(message_id: &str) -> Option<&str> {
    message_id.strip_prefix(PRESS_MARK)
}

/// What waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DeferredKind {
    /// A command, which has a placeholder.
    #[default]
    Command,
    /// The press of a button, which has none.
    Press,
}

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
    /// When it came, in Unix milliseconds.
    pub at_ms: i64,
    /// Whether an answer has taken the place of the placeholder; the token lives on.
    #[serde(default)]
    pub(super) is_answered: bool,
    /// Whether the answer is for the author alone.
    #[serde(default)]
    pub(super) is_private: bool,
    /// What it is.
    #[serde(skip)]
    pub(super) kind: DeferredKind,
    /// The op that answers it.
    #[serde(skip)]
    pub(super) op: Option<OpId>,
    /// Whether that op has ended without an effect: another one may answer it, such as its repeat under another id.
    #[serde(skip)]
    pub(super) is_released: bool,
    /// Whether Discord has not said yet that it shows the placeholder.
    #[serde(skip)]
    pub(super) is_new: bool,
}

impl DeferredCommand {
    /// The id by which answers name it.
    pub fn message_id(&self) -> String {
        let mark = match self.kind {
            DeferredKind::Command => COMMAND_MARK,
            DeferredKind::Press => PRESS_MARK,
        };
        format!("{mark}{}", self.id)
    }

    /// Whether it is the press of a button.
    pub(super) fn is_press(&self) -> bool {
        self.kind == DeferredKind::Press
    }

    /// Whether an op may claim it.
    fn is_free(&self) -> bool {
        !self.is_answered && (self.op.is_none() || self.is_released)
    }

    /// Whether its token still answers.
    pub(super) fn is_alive(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.at_ms) < TOKEN_MS
    }
}

/// The commands that wait for their answers, the oldest first.
#[derive(Debug)]
pub struct DeferredAnswers {
    commands: VecDeque<DeferredCommand>,
    /// What is for one person alone, also when its token has died.
    for_one: BoundedCache<String, ()>,
    /// Commands of an earlier run that get no answer, until it is known which commands it left.
    left_unanswered: Option<Vec<String>>,
}

impl Default for DeferredAnswers {
    fn default() -> Self {
        Self {
            commands: VecDeque::new(),
            for_one: BoundedCache::new(MAX_WAITING),
            left_unanswered: Some(Vec::new()),
        }
    }
}

impl DeferredAnswers {
    /// Takes the commands of an earlier run; returns those that get no answer, as was said before.
    pub fn restore(&mut self, commands: Vec<DeferredCommand>) -> Vec<String> {
        let skip = commands.len().saturating_sub(MAX_WAITING);
        self.commands = commands.into_iter().skip(skip).collect();
        for command in self.commands.iter().filter(|command| command.is_private) {
            self.for_one.insert(command.id.clone(), ());
        }
        self.left_unanswered.take().unwrap_or_default()
    }

    /// A command gets no answer. Returns it if it has a placeholder; before the commands of an earlier run are known, its turn to lose it
    /// comes with them.
    pub fn leave_unanswered(&mut self, id: &str) -> Option<DeferredCommand> {
        if let Some(left) = &mut self.left_unanswered {
            if left.len() < MAX_WAITING {
                left.push(id.to_owned());
            }
            return None;
        }
        self.unanswered(id)
    }

    /// The commands to store.
    pub fn waiting(&self) -> impl Iterator<Item = &DeferredCommand> {
        self.commands.iter().filter(|command| !command.is_press())
    }

    /// A command came; one that waits already came again.
    pub fn came(&mut self, command: DeferredCommand) {
        if self.commands.iter().any(|known| known.id == command.id) {
            return;
        }
        if self.commands.len() == MAX_WAITING {
            let press = self.commands.iter().position(DeferredCommand::is_press);
            let answered = || self.commands.iter().position(|known| known.is_answered);
            let least = press.or_else(answered);
            self.commands.remove(least.unwrap_or_default());
        }
        self.commands.push_back(DeferredCommand {
            is_new: true,
            ..command
        });
    }

    /// Discord shows the placeholder of a command, or does not.
    pub fn acknowledged(&mut self, id: &str, is_shown: bool) {
        if !is_shown {
            return self.forget(id);
        }
        if let Some(command) = self.commands.iter_mut().find(|command| command.id == id) {
            command.is_new = false;
        }
    }

    /// Whether Discord has not said yet that it shows the placeholder of a command.
    pub fn is_new(&self, id: &str) -> bool {
        self.commands
            .iter()
            .any(|command| command.id == id && command.is_new)
    }

    /// The command that an op answers first. A repeat of the op gets the same one.
    pub fn claim(&mut self, op: OpId, reply_to: &str, now_ms: i64) -> Option<DeferredCommand> {
        interaction_of(reply_to).or_else(|| press_of(reply_to))?;
        self.commands.retain(|command| command.is_alive(now_ms));
        let mine = |command: &&mut DeferredCommand| {
            command.op == Some(op) || (command.is_free() && command.message_id() == reply_to)
        };
        let command = self.commands.iter_mut().find(mine)?;
        (command.op, command.is_released) = (Some(op), false);
        Some(command.clone())
    }

    /// The op that claimed a command has ended without an effect.
    pub fn release(&mut self, id: &str) {
        if let Some(command) = self.commands.iter_mut().find(|command| command.id == id) {
            command.is_released = true;
        }
    }

    /// Whether only the person who did it may read what answers it.
    pub(super) fn is_for_one(&self, reply_to: &str) -> bool {
        let is_kept = |id| self.for_one.peek(id).is_some();
        press_of(reply_to).is_some() || interaction_of(reply_to).is_some_and(is_kept)
    }

    /// The command that a message answers, whether it is the first or not, while its token lives.
    pub(super) fn alive(&self, reply_to: &str, now_ms: i64) -> Option<DeferredCommand> {
        let id = interaction_of(reply_to)?;
        let mut alive = self.commands.iter().filter(|command| command.is_alive(now_ms));
        alive.find(|command| command.id == id).cloned()
    }

    /// A command that waits and that no op has answered so far.
    pub fn unanswered(&self, id: &str) -> Option<DeferredCommand> {
        let mut waiting = self.commands.iter();
        waiting
            .find(|command| command.id == id && command.op.is_none() && !command.is_answered)
            .filter(|command| !command.is_press())
            .cloned()
    }

    /// What answers a command is for its author alone.
    pub fn keep_private(&mut self, id: &str) {
        self.for_one.insert(id.to_owned(), ());
        if let Some(command) = self.commands.iter_mut().find(|command| command.id == id) {
            command.is_private = true;
        }
    }

    /// An answer has taken the place of a command's placeholder.
    pub fn over(&mut self, id: &str) {
        if let Some(command) = self.commands.iter_mut().find(|command| command.id == id) {
            command.is_answered = true;
        }
    }

    /// A command has no placeholder, and can be answered by messages only.
    pub fn forget(&mut self, id: &str) {
        self.commands.retain(|command| command.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(id: &str) -> DeferredCommand {
        DeferredCommand {
            id: id.to_owned(),
            ..DeferredCommand::default()
        }
    }

    fn claimed(answers: &mut DeferredAnswers, op: u128, reply_to: &str, now_ms: i64) -> Option<String> {
        answers
            .claim(OpId(op), reply_to, now_ms)
            .map(|command| command.id)
    }

    #[test]
    fn the_first_message_that_answers_a_command_takes_its_place() {
        let mut answers = DeferredAnswers::default();
        for id in ["1", "1", "2"] {
            answers.came(command(id));
        }
        let (first, second) = (command("1").message_id(), command("2").message_id());
        assert_eq!(claimed(&mut answers, 1, "1", 0), None, "an answer to a message");
        assert_eq!(claimed(&mut answers, 1, "interaction-3", 0), None);
        assert_eq!(claimed(&mut answers, 1, &second, 0).as_deref(), Some("2"));
        assert_eq!(
            claimed(&mut answers, 1, &second, 0).as_deref(),
            Some("2"),
            "a repeat"
        );
        assert_eq!(
            claimed(&mut answers, 2, &second, 0),
            None,
            "another part of the answer"
        );
        assert!(answers.unanswered("1").is_some() && answers.unanswered("2").is_none());
        assert_eq!(claimed(&mut answers, 3, &first, 0).as_deref(), Some("1"));
        answers.over("1");
        answers.forget("2");
        assert_eq!(claimed(&mut answers, 4, &first, 0), None);
        assert!(answers.alive(&first, 0).is_some() && answers.alive(&second, 0).is_none());
        assert_eq!(answers.alive(&first, TOKEN_MS), None);
    }

    #[test]
    fn an_op_that_ends_without_an_effect_leaves_the_command_to_another() {
        let mut answers = DeferredAnswers::default();
        answers.came(command("1"));
        let reply_to = command("1").message_id();
        assert_eq!(claimed(&mut answers, 1, &reply_to, 0).as_deref(), Some("1"));
        answers.release("1");
        assert_eq!(answers.unanswered("1"), None, "it will be answered");
        assert_eq!(claimed(&mut answers, 2, &reply_to, 0).as_deref(), Some("1"));
        assert_eq!(claimed(&mut answers, 3, &reply_to, 0), None);
        answers.over("1");
        answers.release("1");
        assert_eq!(claimed(&mut answers, 3, &reply_to, 0), None, "it was answered");
    }

    #[test]
    fn what_is_for_one_person_stays_so_when_its_token_has_died() {
        let mut answers = DeferredAnswers::default();
        answers.came(command("1"));
        answers.came(command("2"));
        answers.keep_private("1");
        let [first, second] = ["1", "2"].map(|id| command(id).message_id());
        assert_eq!(claimed(&mut answers, 1, &first, TOKEN_MS), None);
        assert!(answers.is_for_one(&first) && answers.is_for_one("press-1"));
        assert!(!answers.is_for_one(&second) && !answers.is_for_one("1"));
    }

    #[test]
    fn a_token_lives_fifteen_minutes_and_only_what_is_shown_is_replaced() {
        let mut answers = DeferredAnswers::default();
        answers.came(command("1"));
        assert!(answers.is_new("1"));
        answers.acknowledged("1", true);
        assert!(!answers.is_new("1"));
        answers.came(command("2"));
        answers.acknowledged("2", false);
        assert_eq!(claimed(&mut answers, 1, "interaction-2", 0), None);
        assert_eq!(claimed(&mut answers, 2, "interaction-1", 15 * 60 * 1000), None);
        for number in 0..300 {
            answers.came(command(&format!("n{number}")));
        }
        assert_eq!(answers.waiting().count(), MAX_WAITING);
    }

    #[test]
    fn a_press_takes_no_place_of_a_command_and_has_nothing_to_take_away() {
        let press = |id: &str| DeferredCommand {
            kind: DeferredKind::Press,
            ..command(id)
        };
        let mut answers = DeferredAnswers::default();
        answers.came(command("1"));
        for number in 0..300 {
            answers.came(press(&format!("p{number}")));
        }
        assert_eq!(answers.waiting().count(), 1, "presses are not stored");
        assert_eq!(
            claimed(&mut answers, 1, "interaction-p299", 0),
            None,
            "not as a command"
        );
        assert!(answers.unanswered("p299").is_none());
        let whispered = answers.claim(OpId(2), "press-p299", 0).unwrap();
        assert!(whispered.is_press());
        assert_eq!(claimed(&mut answers, 3, "press-p0", 0), None, "long gone");
        assert_eq!(claimed(&mut answers, 4, "interaction-1", 0).as_deref(), Some("1"));
    }

    #[test]
    fn a_restart_knows_what_waits() {
        let mut answers = DeferredAnswers::default();
        answers.came(command("1"));
        let stored = serde_json::to_value(answers.waiting().collect::<Vec<_>>()).unwrap();
        let mut answers = DeferredAnswers::default();
        assert!(
            answers
                .restore(serde_json::from_value(stored).unwrap())
                .is_empty()
        );
        assert!(!answers.is_new("1"));
        assert_eq!(claimed(&mut answers, 1, "interaction-1", 0).as_deref(), Some("1"));
    }

    #[test]
    fn a_command_of_an_earlier_run_that_gets_no_answer_loses_its_placeholder_once_it_is_known() {
        let mut answers = DeferredAnswers::default();
        assert_eq!(answers.leave_unanswered("1"), None);
        let left = answers.restore(vec![command("1"), command("2")]);
        assert_eq!(left, ["1"]);
        for id in ["1", "2"] {
            assert_eq!(answers.leave_unanswered(id), Some(command(id)));
        }
        assert_eq!(answers.leave_unanswered("3"), None);
        assert_eq!(claimed(&mut answers, 1, "interaction-2", 0).as_deref(), Some("2"));
        assert_eq!(answers.leave_unanswered("2"), None, "it is being answered");
    }
}
