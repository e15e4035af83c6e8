//! Which agent was chosen for which conversation, as far as it is known in memory; the journal knows the rest.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::commands::choice_key;
use super::core::Core;
use crate::session::TurnId;
use crate::store::Command;
use crate::wire::{MessageEvent, SessionKey};

/// Conversations whose choice is kept in memory; beyond it, the one learnt first is read again.
const MOST_KNOWN: usize = 4096;

/// What is known of choices.
#[derive(Debug, Default)]
pub(super) struct Choices {
    known: HashMap<SessionKey, Option<Arc<str>>>,
    order: VecDeque<SessionKey>,
}

impl Choices {
    pub(super) fn learn(&mut self, key: &SessionKey, choice: Option<Arc<str>>) {
        if self.known.insert(key.clone(), choice).is_none() {
            self.order.push_back(key.clone());
        }
        while self.order.len() > MOST_KNOWN {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    fn find(&self, key: &SessionKey) -> Option<&Option<Arc<str>>> {
        self.known.get(key)
    }
}

/// A turn that waits to learn who answers it.
#[derive(Debug)]
pub(super) struct Undecided {
    turn: TurnId,
    seq: i64,
    key: SessionKey,
    event: Box<MessageEvent>,
}

impl Core {
    /// Who was chosen for a session, as far as it is known.
    pub(super) fn chosen(&self, key: &SessionKey) -> Option<Arc<str>> {
        self.choices.find(key).cloned().flatten()
    }

    /// Whether it is not known who was chosen for a session, and that matters.
    pub(super) fn is_undecided(&self, key: &SessionKey) -> bool {
        self.crew.is_several() && self.choices.find(key).is_none()
    }

    /// Starts a turn once it is known who was chosen for its session; at once where there is nothing to choose.
    pub(super) fn start_turn(&mut self, turn: TurnId, seq: i64, event: MessageEvent) {
        let Some(live) = self.turns.get(&turn) else { return };
        if !self.is_undecided(&live.key) {
            return self.begin_turn(turn, seq, event);
        }
        let key = live.key.clone();
        let token = self.token();
        self.writes.push(Command::LoadResume {
            token,
            session: choice_key(&key),
        });
        let event = Box::new(event);
        self.undecided.insert(
            token,
            Undecided {
                turn,
                seq,
                key,
                event,
            },
        );
    }

    /// The journal's answer: to a turn that waits to learn who answers it, or to one that wants what it kept. What
    /// cannot be read is as if nothing had been written.
    pub(super) fn take_resume(&mut self, token: u64, blob: Option<Vec<u8>>) {
        let Some(Undecided {
            turn,
            seq,
            key,
            event,
        }) = self.undecided.remove(&token)
        else {
            return self.take_recalled(token, blob);
        };
        // What was chosen meanwhile is newer than what was read.
        if self.choices.find(&key).is_none() {
            let name = blob.and_then(|name| String::from_utf8(name).ok());
            let choice = name.and_then(|name| self.crew.find(&name).cloned());
            self.choices.learn(&key, choice);
        }
        self.begin_turn(turn, seq, *event);
    }
}
