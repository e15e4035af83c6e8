//! Entries of the journal that people run or send again, or drop, while the relay runs.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::relay::effects::Pending;
use crate::relay::event_loop::EventLoop;
use crate::relay::handle::RepairError;
use crate::relay::ops::DurableOps;
use crate::relay::parts::access::Starter;
use crate::relay::parts::turns::decode_row;
use crate::store::{Command, InboxRow, Item, OpSeq, Repair, Repaired, RowState};
use crate::wire::SessionKey;

use super::arrival::event_kind;

impl EventLoop {
    /// Asks the journal for the repair. An op that is to be dropped cannot go out meanwhile.
    pub fn repair(&mut self, repair: Repair, item: Item, reply: oneshot::Sender<Result<(), RepairError>>) {
        let kept_back = match (repair, item) {
            (Repair::Drop, Item::Op(op)) => Some(op),
            _ => None,
        };
        if kept_back.is_some_and(|op| !self.outbox.begin_drop(op)) {
            let _ = reply.send(Err(RepairError::InFlight));
            return;
        }
        self.note_activity(self.clock.now());
        let now_ms = self.clock.unix_ms();
        self.effects
            .request(Pending::Repair(kept_back, reply), |token| Command::Repair {
                token,
                repair,
                item,
                now_ms,
            });
    }

    /// The repair is stored: a message waits for its turn, an op for its lane. A message whose author may not have it run any more
    /// is as before, so that it can be retried when they may. A dropped message does not wait any more; if it is being read for its turn, the
    /// turn ends when the row is missing.
    pub fn repaired(
        &mut self,
        repaired: &Repaired,
        kept_back: Option<OpSeq>,
        reply: oneshot::Sender<Result<(), RepairError>>,
    ) {
        let now = self.clock.now();
        let result = match repaired {
            Repaired::Message(row) => {
                if let Some(refusal) = self.refusal(row) {
                    self.end_row(row.seq, RowState::Interrupted, DurableOps::new(), None);
                    Err(RepairError::NotAllowed(refusal))
                } else {
                    self.run_again(row);
                    Ok(())
                }
            }
            Repaired::Op(row) => {
                self.outbox.recover(row, now, &mut self.effects);
                Ok(())
            }
            Repaired::DroppedMessage(row, session) => {
                self.withdraw(&SessionKey::from_text(Arc::clone(session)), *row);
                self.handed.forget(*row);
                self.messages.forget(*row);
                Ok(())
            }
            Repaired::Dropped => {
                if let Some(op) = kept_back {
                    self.outbox.end_drop(op, true);
                }
                Ok(())
            }
            Repaired::Refused => return self.repair_failed(kept_back, RepairError::Refused, reply),
        };
        let _ = reply.send(result);
    }

    /// The op that was to be dropped goes on.
    pub fn repair_failed(
        &mut self,
        kept_back: Option<OpSeq>,
        error: RepairError,
        reply: oneshot::Sender<Result<(), RepairError>>,
    ) {
        if let Some(op) = kept_back {
            self.outbox.end_drop(op, false);
        }
        let _ = reply.send(Err(error));
    }

    /// Why the message of a row may not run any more, as the operator reads it. A handed-over item is the operator's own.
    fn refusal(&mut self, row: &InboxRow) -> Option<String> {
        let mut event = decode_row(row, self.chats.labels())?;
        self.chats.name(&mut event);
        let author = self.access.author(Starter::Message(&event.source));
        let command = self.commands.of(&event);
        self.access
            .refusal(&author, event_kind(row.kind, command.as_ref()))
    }
}
