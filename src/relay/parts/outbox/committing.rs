//! Durable ops on their way into the journal: planned, held until they are committed, read back after a restart.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::{FinalIndicators, OpKind, OpPhase, OpsCommit, Outbox, QueuedOp, Uncommitted, queued_id};
use crate::adapter::stream::DurableAction;
use crate::adapter::{ChatId, RelayAdapter};
use crate::link::Moment;
use crate::relay::effects::Effects;
use crate::relay::ops::{DurableOp, DurableOps, OpBody, OpGroup};
use crate::store::{Command, OpRow, OpSeq, OpSeqs, OpState};

impl Outbox {
    /// Durable ops for a chat, to be journaled by the caller and meanwhile [held](Self::hold_uncommitted).
    pub fn plan(
        &mut self,
        adapter: &RelayAdapter,
        session: &Arc<str>,
        chat: &ChatId,
        actions: &[DurableAction],
        group: OpGroup,
        span: &tracing::Span,
    ) -> DurableOps {
        if actions.is_empty() {
            return DurableOps::new();
        }
        let lane: Arc<str> = chat.key().into();
        let mut plan = |action: &DurableAction| {
            let body = OpBody::new(adapter, Arc::clone(&lane), &action.action);
            Box::new(DurableOp::new(
                self.ids.next(),
                Arc::clone(session),
                body,
                action,
                group,
                span.clone(),
            ))
        };
        actions.iter().map(&mut plan).collect()
    }

    /// Keeps ops until they are committed, and the indicators that follow them.
    pub fn hold_uncommitted(
        &mut self,
        commit: OpsCommit,
        ops: DurableOps,
        indicators: Option<FinalIndicators>,
    ) {
        if !ops.is_empty() {
            let uncommitted = Uncommitted {
                ops,
                indicators,
                declined: false,
            };
            self.uncommitted.insert(commit, uncommitted);
        }
    }

    /// Ops are committed: they take their places, or are settled if their group was declined. Returns the indicators that
    /// follow them.
    pub fn committed(
        &mut self,
        commit: OpsCommit,
        rows: OpSeqs,
        effects: &mut Effects,
    ) -> Option<FinalIndicators> {
        let held = self.uncommitted.remove(&commit)?;
        self.enqueue(rows.iter(), held.ops, held.declined, effects);
        held.indicators.filter(|_| !held.declined)
    }

    /// The journal refused ops for good.
    pub fn not_committed(&mut self, commit: OpsCommit) {
        self.uncommitted.remove(&commit);
    }

    /// Committed ops take their place in their chats' lanes. Ops of a declined group are settled instead.
    pub(super) fn enqueue(
        &mut self,
        rows: impl Iterator<Item = OpSeq>,
        ops: DurableOps,
        declined: bool,
        effects: &mut Effects,
    ) {
        for (row, op) in rows.zip(ops) {
            if declined {
                effects.write(Command::OpSettled { op: row });
                continue;
            }
            self.lanes.push(Arc::clone(&op.body.lane), op.id);
            self.durable += 1;
            let queued = QueuedOp {
                state: OpPhase::Waiting,
                kind: OpKind::Durable(row, op),
            };
            self.ops.insert(queued_id(&queued.kind), queued);
        }
    }

    /// An op that an earlier run left in the journal.
    pub fn recover(&mut self, row: &OpRow, now: Moment, effects: &mut Effects) {
        let fresh = self.ids.next();
        let Some(mut op) = DurableOp::from_row(row, fresh) else {
            tracing::error!(op = row.seq.0, "dropped a journaled op that cannot be read back");
            return effects.write(Command::OpSettled { op: row.seq });
        };
        let age = Duration::from_millis(u64::try_from(now.unix_ms - row.created_at).unwrap_or_default());
        op.resend_until = Some(now.mono + self.retry.max_age.saturating_sub(age));
        if row.state == OpState::Pending {
            self.counters.recovered += 1;
            return self.enqueue(std::iter::once(row.seq), smallvec![Box::new(op)], false, effects);
        }
        op.attempts += 1;
        let (name, id) = (op.body.name.clone(), op.id);
        self.enqueue(std::iter::once(row.seq), smallvec![Box::new(op)], false, effects);
        tracing::warn!(
            op = row.seq.0,
            kind = &*name,
            "outcome of an op unknown: it was sent before the restart"
        );
        if self.unknown_outcome(id, now, effects) {
            self.counters.recovered += 1;
        }
    }
}
