//! Entries of the journal that people run or send again, or drop, while the relay runs.

use tokio::sync::oneshot;

use crate::relay::effects::Pending;
use crate::relay::event_loop::EventLoop;
use crate::relay::handle::RepairError;
use crate::store::{Command, Item, Repair, Repaired};

impl EventLoop {
    /// Asks the journal for the repair. An op that waits is taken back first, so that it cannot go out meanwhile.
    pub fn repair(&mut self, repair: Repair, item: Item, reply: oneshot::Sender<Result<(), RepairError>>) {
        if let (Repair::Drop, Item::Op(op)) = (repair, item)
            && !self.outbox.take_back(op)
        {
            let _ = reply.send(Err(RepairError::InFlight));
            return;
        }
        self.note_activity(self.clock.now());
        let now_ms = self.clock.unix_ms();
        self.effects
            .request(Pending::Repair(reply), |token| Command::Repair {
                token,
                repair,
                item,
                now_ms,
            });
    }

    /// The repair is stored: a message waits for its turn, an op for its lane. Whoever holds the row of a dropped message learns
    /// that it is missing when it is its turn.
    pub fn repaired(&mut self, repaired: &Repaired, reply: oneshot::Sender<Result<(), RepairError>>) {
        let now = self.clock.now();
        let result = match repaired {
            Repaired::Message(row) => {
                self.turns.run_again(row, now.unix_ms, &mut self.effects);
                Ok(())
            }
            Repaired::Op(row) => {
                self.outbox.recover(row, now, &mut self.effects);
                Ok(())
            }
            Repaired::Dropped => Ok(()),
            Repaired::Refused => Err(RepairError::Refused),
        };
        let _ = reply.send(result);
    }
}
