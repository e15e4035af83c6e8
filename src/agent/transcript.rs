//! What was said in a session, for agents that do not remember it themselves.
//!
//! Bounded by turns and characters: the oldest turns go first, and only then is what is left cut. User and agent always
//! take turns, starting with the user: messages that got no answer are joined with the next one. It does no I/O;
//! `transcripts` keeps it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// What is added to an answer that was not finished.
const CUT_MARK: &str = "[the answer was interrupted here]";
/// What stands for the part of a text that was not kept.
const SHORTENED: &str = "[…]";

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most turns, the current one included; at least one is kept.
    pub turns: usize,
    /// Most characters, of what was asked and answered together.
    pub chars: usize,
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The people in the chat.
    User,
    /// The agent.
    Assistant,
}

impl Role {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// How far an answer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// To its end.
    Whole,
    /// Not to its end.
    Interrupted,
}

/// What was said, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    exchanges: Vec<Exchange>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Exchange {
    user: String,
    /// Empty as long as there is no answer, which only the last exchange may be.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    agent: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

impl Transcript {
    /// Takes what was kept; something that cannot be read, or breaks the rules, is nothing.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let read: Self = serde_json::from_slice(bytes).unwrap_or_default();
        let mut clean = Self::default();
        for exchange in read.exchanges {
            clean.hear(&exchange.user);
            let extent = if exchange.interrupted {
                Extent::Interrupted
            } else {
                Extent::Whole
            };
            clean.answer(&exchange.agent, extent);
        }
        clean
    }

    /// What to keep; empty for nothing.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.exchanges.is_empty() {
            return Vec::new();
        }
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Takes what a user says; joined with what is still unanswered.
    pub fn hear(&mut self, text: &str) {
        match self.exchanges.last_mut() {
            Some(last) if last.agent.is_empty() => {
                if !last.user.is_empty() && !text.is_empty() {
                    last.user.push_str("\n\n");
                }
                last.user.push_str(text);
            }
            _ => self.exchanges.push(Exchange {
                user: text.to_owned(),
                ..Exchange::default()
            }),
        }
    }

    /// Takes the answer to what was heard last; an empty one leaves it unanswered.
    pub fn answer(&mut self, text: &str, extent: Extent) {
        if let Some(last) = self.exchanges.last_mut()
            && last.agent.is_empty()
            && !text.trim().is_empty()
        {
            text.trim().clone_into(&mut last.agent);
            last.interrupted = extent == Extent::Interrupted;
        }
    }

    /// Lets the oldest turns go until it is within `bounds`; the last one stays, however long it is.
    pub fn forget_oldest(&mut self, bounds: Bounds) {
        let mut room = bounds.chars;
        let mut kept = 0;
        for exchange in self.exchanges.iter().rev().take(bounds.turns.max(1)) {
            let chars = exchange.chars();
            if kept > 0 && chars > room {
                break;
            }
            room = room.saturating_sub(chars);
            kept += 1;
        }
        self.exchanges.drain(..self.exchanges.len() - kept);
    }

    /// As [`Transcript::forget_oldest`], and what the last turn has over the limit is cut out of its middle.
    pub fn fit(&mut self, bounds: Bounds) {
        self.forget_oldest(bounds);
        if let Some(last) = self.exchanges.last_mut()
            && last.chars() > bounds.chars
        {
            let user = last.user.chars().count().min(bounds.chars / 2);
            let agent = last.agent.chars().count().min(bounds.chars - user);
            shorten(&mut last.user, bounds.chars - agent);
            shorten(&mut last.agent, agent);
        }
    }

    /// Everything that was said, with who said it; starts with the user, and they take turns.
    pub fn messages(&self) -> impl Iterator<Item = (Role, Cow<'_, str>)> {
        self.exchanges.iter().flat_map(|exchange| {
            let answer = (!exchange.agent.is_empty()).then(|| (Role::Assistant, exchange.answer()));
            std::iter::once((Role::User, Cow::Borrowed(exchange.user.as_str()))).chain(answer)
        })
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }
}

impl Exchange {
    fn chars(&self) -> usize {
        self.user.chars().count() + self.agent.chars().count()
    }

    fn answer(&self) -> Cow<'_, str> {
        if self.interrupted {
            Cow::Owned(format!("{}\n\n{CUT_MARK}", self.agent))
        } else {
            Cow::Borrowed(&self.agent)
        }
    }
}

/// Cuts the middle out of a text of more than `most` characters.
fn shorten(text: &mut String, most: usize) {
    let chars = text.chars().count();
    if chars <= most {
        return;
    }
    let mark = SHORTENED.chars().count();
    let keep = most.saturating_sub(mark);
    let head: String = text.chars().take(keep - keep / 2).collect();
    let tail: String = text.chars().skip(chars - keep / 2).collect();
    let mark: String = SHORTENED.chars().take(most).collect();
    *text = head + &mark + &tail;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE: Bounds = Bounds {
        turns: 100,
        chars: 10_000,
    };

    fn said(transcript: &Transcript) -> Vec<(&'static str, String)> {
        let messages = transcript.messages();
        messages
            .map(|(role, text)| (role.as_str(), text.into_owned()))
            .collect()
    }

    #[test]
    fn unanswered_messages_are_joined_and_interrupted_answers_marked() {
        let mut transcript = Transcript::default();
        transcript.hear("one");
        transcript.answer("  ", Extent::Interrupted);
        transcript.hear("two");
        transcript.answer("half", Extent::Interrupted);
        transcript.hear("three");
        transcript.answer("all", Extent::Whole);
        let want = [
            ("user", "one\n\ntwo".to_owned()),
            ("assistant", format!("half\n\n{CUT_MARK}")),
            ("user", "three".to_owned()),
            ("assistant", "all".to_owned()),
        ];
        assert_eq!(said(&transcript), want);
        assert_eq!(Transcript::from_bytes(&transcript.to_bytes()), transcript);
    }

    #[test]
    fn what_cannot_be_read_is_nothing() {
        assert!(Transcript::from_bytes(b"").is_empty());
        assert!(Transcript::from_bytes(b"[1,2]").is_empty());
        assert!(Transcript::default().to_bytes().is_empty());
        let holes = br#"{"exchanges":[{"user":"a"},{"user":"b","agent":"c"}]}"#;
        let want = [("user", "a\n\nb".to_owned()), ("assistant", "c".to_owned())];
        assert_eq!(said(&Transcript::from_bytes(holes)), want);
    }

    #[test]
    fn the_oldest_turns_go_first_and_the_last_one_is_cut_only_when_it_is_kept() {
        let mut transcript = Transcript::default();
        for text in ["1", "2", "3"] {
            transcript.hear(text);
            transcript.answer(text, Extent::Whole);
        }
        transcript.forget_oldest(Bounds { turns: 2, ..WIDE });
        assert_eq!(said(&transcript)[0].1, "2");
        let long = "x".repeat(300);
        transcript.hear(&long);
        let narrow = Bounds { turns: 5, chars: 50 };
        transcript.forget_oldest(narrow);
        assert_eq!(said(&transcript), [("user", long)]);
        transcript.answer("yes", Extent::Whole);
        transcript.fit(narrow);
        let kept = said(&transcript);
        assert_eq!(kept[0].1.chars().count(), 47);
        assert!(kept[0].1.contains(SHORTENED));
        assert_eq!(kept[1].1, "yes");
    }

    proptest! {
        #[test]
        fn any_conversation_is_bounded_and_takes_turns(
            steps in proptest::collection::vec((0u8..3, "[a-zä€ ]{0,30}"), 0..40),
            turns in 0usize..6,
            chars in 0usize..80,
        ) {
            let bounds = Bounds { turns, chars };
            let mut transcript = Transcript::default();
            for (step, text) in steps {
                match step {
                    0 => transcript.hear(&text),
                    1 => transcript.answer(&text, Extent::Whole),
                    _ => transcript.answer(&text, Extent::Interrupted),
                }
                transcript.fit(bounds);
                let total: usize = transcript.exchanges.iter().map(Exchange::chars).sum();
                prop_assert!(total <= chars, "{total} > {chars}");
                prop_assert!(transcript.exchanges.len() <= turns.max(1));
                for (at, (role, _)) in transcript.messages().enumerate() {
                    prop_assert_eq!(role == Role::User, at % 2 == 0);
                }
                let (unanswered, len) = (transcript.exchanges.iter().position(|e| e.agent.is_empty()), transcript.exchanges.len());
                prop_assert!(unanswered.is_none_or(|at| at + 1 == len));
            }
        }
    }
}
