//! Ops that are taken back before they went out.

use super::{OpKind, OpPhase, Outbox, QueuedOp, report};
use crate::adapter::stream::OpOutcome;
use crate::relay::effects::Effects;
use crate::relay::ops::{EphemeralOp, OpGroup, OpOwner, OutcomeSender};
use crate::session::TurnId;
use crate::store::{Command, OpSeq};
use crate::wire::OpId;

impl Outbox {
    /// Ephemeral ops of a turn that have not gone out are dropped.
    pub fn drop_turn(&mut self, turn: TurnId, outcome: &OpOutcome) {
        self.drop_waiting(
            outcome,
            |op| matches!(&op.owner, OpOwner::Turn(own, _) if *own == turn),
        );
    }

    /// The same for the ops whose outcome goes to this channel.
    pub fn drop_reported_to(&mut self, outcomes: &OutcomeSender) {
        self.drop_waiting(
            &OpOutcome::NotSent,
            |op| matches!(&op.owner, OpOwner::Turn(_, own) if own.same_channel(outcomes)),
        );
    }

    pub(super) fn drop_waiting(&mut self, outcome: &OpOutcome, which: impl Fn(&EphemeralOp) -> bool) {
        let of_it = |queued: &QueuedOp| matches!(&queued.kind, OpKind::Ephemeral { op, .. } if which(op));
        let ops: Vec<OpId> = self
            .ops
            .iter()
            .filter(|(_, queued)| of_it(queued))
            .map(|(id, _)| *id)
            .collect();
        for id in ops {
            if let Some(OpKind::Ephemeral { op, .. }) = self.take_waiting(id) {
                report(*op, outcome.clone());
            }
        }
    }

    /// Takes an op back, unless it is in flight.
    pub fn withdraw(&mut self, id: OpId) {
        self.take_waiting(id);
    }

    /// Keeps a durable op where it is while the journal is asked to drop its row; `false` if it is in flight. One that is not here can be
    /// dropped as well.
    pub fn begin_drop(&mut self, row: OpSeq) -> bool {
        let Some((id, queued)) = self.of_row(row) else {
            return true;
        };
        match queued.state {
            OpPhase::InFlight(_) => return false,
            OpPhase::Held(until) => drop(self.held.remove(&(until, id))),
            OpPhase::Waiting | OpPhase::BeingDropped => {}
        }
        if let Some(queued) = self.ops.get_mut(&id) {
            queued.state = OpPhase::BeingDropped;
        }
        true
    }

    /// The journal has dropped the row of an op; or it has not, and the op goes on at once.
    pub fn end_drop(&mut self, row: OpSeq, is_dropped: bool) {
        let Some((id, queued)) = self.of_row(row) else {
            return;
        };
        let waits_for_this = matches!(queued.state, OpPhase::BeingDropped);
        if is_dropped {
            self.durable -= usize::from(self.take_waiting(id).is_some());
        } else if let Some(queued) = self.ops.get_mut(&id).filter(|_| waits_for_this) {
            queued.state = OpPhase::Waiting;
            self.lanes.retry(&queued.kind.body().lane);
        }
    }

    fn of_row(&self, row: OpSeq) -> Option<(OpId, &QueuedOp)> {
        let is_it = |queued: &QueuedOp| matches!(&queued.kind, OpKind::Durable(own, _) if *own == row);
        let mut ops = self.ops.iter().map(|(id, queued)| (*id, queued));
        ops.find(|(_, queued)| is_it(queued))
    }

    /// Durable ops of a group that have not gone out are settled, those that are being committed as soon as they are.
    pub fn drop_group(&mut self, group: OpGroup, effects: &mut Effects) {
        for held in self.uncommitted.values_mut() {
            held.declined |= held.ops.iter().any(|op| op.group == group);
        }
        for id in self.waiting_ops_of(group) {
            if let Some(OpKind::Durable(row, _)) = self.take_waiting(id) {
                self.durable -= 1;
                effects.write(Command::OpSettled { op: row });
            }
        }
    }

    /// Durable ops of a group that are not in flight.
    pub(super) fn waiting_ops_of(&self, group: OpGroup) -> Vec<OpId> {
        let of_it = |queued: &QueuedOp| {
            !matches!(queued.state, OpPhase::InFlight(_))
                && matches!(&queued.kind, OpKind::Durable(_, op) if op.group == group)
        };
        let ops = self.ops.iter().filter(|(_, queued)| of_it(queued));
        ops.map(|(id, _)| *id).collect()
    }

    /// Removes an op that is not in flight; its lane goes on.
    pub(super) fn take_waiting(&mut self, id: OpId) -> Option<OpKind> {
        if !self.lanes.remove(id) {
            return None;
        }
        let queued = self.ops.remove(&id)?;
        if let OpPhase::Held(until) = queued.state {
            self.held.remove(&(until, id));
        }
        Some(queued.kind)
    }
}
