//! What turns want while they run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::core::Core;
use super::egress::Listener;
use super::turn_task::Wish;
use crate::adapter::stream::{OpOutcome, Priority};
use crate::session::TurnId;
use crate::store::Command;

/// The most that an agent may keep for a session.
const MOST_KEPT: usize = 1024 * 1024;

impl Core {
    pub(super) fn take_wish(&mut self, turn: TurnId, wish: Wish) {
        let Some(live) = self.turns.get(&turn) else {
            // The turn is over; whoever waits is told by being let go.
            return;
        };
        match wish {
            Wish::Utter(utterance, fates) => {
                let (chat, lane) = (Arc::clone(&live.chat), Arc::clone(&live.lane));
                let now = self.clock.mono();
                let timeout = utterance.deadline.map(|at| at.saturating_sub(now).max(SOON));
                let listener = Listener::Turn(turn, utterance.id, fates);
                if self.is_declined(live) {
                    return listener.hear(OpOutcome::Declined);
                }
                self.pass(
                    &chat,
                    &lane,
                    &utterance.action,
                    utterance.priority,
                    timeout,
                    listener,
                );
            }
            Wish::Ask(question, answer) => self.ask(turn, *question, answer),
            Wish::Withdraw(fates) => self.withdraw_passing(&fates),
            Wish::Keep(memory) => self.keep(turn, memory),
            Wish::Recall(answer) => {
                let Some(session) = live.memory_key() else { return };
                let token = self.token();
                self.recalling.insert(token, answer);
                self.writes.push(Command::LoadResume { token, session });
            }
            Wish::Title(title) => self.name_thread(turn, &title),
            Wish::Media(parcel, asker) => self.post(turn, &parcel, asker),
        }
    }

    fn keep(&mut self, turn: TurnId, blob: Vec<u8>) {
        let Some(live) = self.turns.get(&turn).filter(|live| !live.forgotten) else {
            return;
        };
        let Some(session) = live.memory_key() else { return };
        let now_ms = self.now_ms();
        if blob.len() > MOST_KEPT {
            tracing::warn!(
                turn = turn.0,
                bytes = blob.len(),
                "the agent wants more kept than may be"
            );
        } else if blob.is_empty() {
            self.writes.push(Command::DropResume { session });
        } else {
            self.writes.push(Command::SetResume {
                session,
                blob,
                now_ms,
            });
        }
    }

    /// Gives the conversation's thread its name, where that is ours to give.
    fn name_thread(&mut self, turn: TurnId, title: &str) {
        let Some(live) = self.turns.get(&turn) else { return };
        let (chat, lane) = (Arc::clone(&live.chat), Arc::clone(&live.lane));
        let (facts, adapter) = (Arc::clone(&live.facts), self.adapter(&chat.platform));
        if let Some(action) = adapter.rename_thread(&mut self.own_threads, &chat, &facts, title) {
            self.pass(&chat, &lane, &action, Priority::Indicator, None, Listener::Nobody);
        }
    }

    /// The journal's answer to a turn that wanted what it kept.
    pub(super) fn take_recalled(&mut self, token: u64, blob: Option<Vec<u8>>) {
        if let Some(answer) = self.recalling.remove(&token) {
            let _: Result<(), _> = oneshot::Sender::send(answer, blob);
        }
    }
}

/// The least time that the answer to an op is waited for.
const SOON: Duration = Duration::from_millis(50);
