//! What people type instead of pressing a button.
//!
//! It only reads; whether somebody may answer is decided in the registry.

use super::ask::{Decision, Meaning, PromptId};

/// An answer that a message would give, if it is taken: which question it met, and what it says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedAnswer {
    pub(super) prompt: PromptId,
    pub(super) decision: Decision,
}

impl TypedAnswer {
    /// The question that it met.
    pub fn prompt(&self) -> &PromptId {
        &self.prompt
    }
}

/// Words that may be an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// `/approve`, `/approve once`, `/approve session`, `/approve always`.
    Approve(Meaning),
    /// `/deny`.
    Deny,
    /// A number as in the list, from 1.
    Number(usize),
}

impl Words {
    /// Reads a message that consists of an answer and nothing else, but for a leading mention.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut words = text
            .split_whitespace()
            .skip_while(|word| word.starts_with('@') || word.starts_with("<@"));
        let (first, second, none) = (words.next()?, words.next(), words.next());
        if none.is_some() {
            return None;
        }
        let Some(command) = first.strip_prefix('/') else {
            let digits = first.trim_end_matches(['.', ')']);
            let is_number = (1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            return (second.is_none() && is_number && first.len() - digits.len() <= 1)
                .then(|| digits.parse().ok().map(Self::Number))
                .flatten();
        };
        let command = command.split('@').next().unwrap_or_default();
        match (
            command.to_ascii_lowercase().as_str(),
            second.map(str::to_ascii_lowercase).as_deref(),
        ) {
            ("approve", None | Some("once")) => Some(Self::Approve(Meaning::AllowOnce)),
            ("approve", Some("session")) => Some(Self::Approve(Meaning::AllowSession)),
            ("approve", Some("always")) => Some(Self::Approve(Meaning::AllowAlways)),
            ("deny", None) => Some(Self::Deny),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_that_is_nothing_else_is_an_answer() {
        use Meaning::{AllowAlways, AllowOnce, AllowSession};
        for (text, read) in [
            ("/approve", Some(Words::Approve(AllowOnce))),
            (" /Approve@my_bot once ", Some(Words::Approve(AllowOnce))),
            ("/approve session", Some(Words::Approve(AllowSession))),
            ("<@42> /approve ALWAYS", Some(Words::Approve(AllowAlways))),
            ("/deny", Some(Words::Deny)),
            ("@bot 2", Some(Words::Number(2))),
            ("2.", Some(Words::Number(2))),
            ("12)", Some(Words::Number(12))),
            ("0", Some(Words::Number(0))),
            ("2..", None),
            ("2 please", None),
            ("+2", None),
            ("٢", None),
            ("99999999999999999999", None),
            ("approve", None),
            ("/approve of this", None),
            ("/approve it", None),
            ("/approved", None),
            ("/deny it", None),
            ("/", None),
            ("@bot", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(Words::read(text), read, "{text:?}");
        }
    }
}
