//! Deliveries that the connector will not have: nothing else of them is tried, whatever part it was.
//!
//! A delivery is everything that answers one message: what the turn shows while it runs, the files that it sends, and
//! what is owed at its end. It is remembered as declined until that end is written down; what is owed names its
//! delivery in the journal, so that this holds after a restart too. The message of a turn that still runs is written down
//! as one that gets no answer, so that a process killed before that turn's end has nothing to tell of it either; the end
//! finds it ended. A question to people is not part of it.

use super::core::Core;
use super::egress::{Listener, lane_op};
use super::turns::LiveTurn;
use crate::adapter::stream::OpOutcome;
use crate::store::{Command, InboxSeq, TurnState};

impl Core {
    /// Takes back what has not gone out of a delivery, and keeps the rest of it from going.
    pub(super) fn end_delivery(&mut self, delivery: i64) {
        if delivery == 0 {
            return;
        }
        let owed = self.owed.iter().filter(|(_, op)| op.delivery == delivery);
        let owed: Vec<i64> = owed.map(|(seq, _)| *seq).collect();
        for seq in owed {
            if self.lanes.remove(lane_op(seq)) {
                self.settle(seq);
            }
        }
        let turn = self.turns.iter().find(|(_, live)| live.seq == Some(delivery));
        let turn = turn.map(|(turn, _)| *turn);
        if turn.is_none() && !self.ending.contains_key(&delivery) {
            return;
        }
        if self.declined.insert(delivery) && turn.is_some() {
            self.writes.push(Command::End {
                seq: InboxSeq(delivery),
                state: TurnState::Ignored,
                ops: Vec::new(),
                now_ms: self.now_ms(),
            });
        }
        let of_it = |listener: &Listener| matches!(listener, Listener::Turn(own, ..) if Some(*own) == turn);
        let passing = self.egress.passing.iter().filter(|(_, op)| of_it(&op.listener));
        let passing: Vec<i64> = passing.map(|(number, _)| *number).collect();
        for number in passing {
            if self.lanes.remove(lane_op(number))
                && let Some(op) = self.egress.passing.remove(&number)
            {
                op.listener.hear(OpOutcome::Declined);
            }
        }
    }

    /// Whether the connector will not have what a turn says.
    pub(super) fn is_declined(&self, live: &LiveTurn) -> bool {
        live.seq.is_some_and(|seq| self.declined.contains(&seq))
    }
}
