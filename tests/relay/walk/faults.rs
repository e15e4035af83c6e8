//! What goes wrong in a walk: connections are lost, ops are not answered, the journal stalls or fails, the relay ends.

use std::time::Duration;

use hermes_relay::relay::{ExitReason, MemoryConnector, ReplyMode};
use serde_json::json;
use tokio::time::timeout;

use super::agent::Tick;
use super::course::{Live, QUICK, SOON, Walk};

/// Something that keeps the journal from being written.
pub(super) enum Fault {
    /// Another connection holds the lock, since then.
    Stalled(rusqlite::Connection, Tick),
    /// Every write of a message fails.
    Failing,
}

/// Makes every commit of a message or of a turn's start fail.
const BROKEN: &str = "
    CREATE TRIGGER walk_log BEFORE INSERT ON log BEGIN SELECT walk_fault(); END;
    CREATE TRIGGER walk_insert BEFORE INSERT ON inbox BEGIN SELECT walk_fault(); END;
    CREATE TRIGGER walk_update BEFORE UPDATE ON inbox BEGIN SELECT walk_fault(); END;";
const MENDED: &str = "DROP TRIGGER walk_log; DROP TRIGGER walk_insert; DROP TRIGGER walk_update;";

impl Walk {
    pub(super) fn lose_connection(&mut self) {
        if self.down.is_some() {
            return;
        }
        self.note(format!("{}: the connection is lost", self.log.tick()));
        self.losses += 1;
        self.live().connector.drop_connection();
        self.down = Some(1 + self.rng.below(6));
    }

    pub(super) fn restore(&mut self) {
        self.note(format!("{}: the connection is back", self.log.tick()));
        for index in 0..self.sent.len() {
            if !self.is_acked(index) {
                self.count(index);
            }
        }
        self.live().connector.restore();
        self.down = None;
    }

    /// The connector takes ops and does not say what became of them.
    pub(super) fn hold_ops(&mut self) {
        if self.holding.is_none() {
            self.note(format!("{}: ops are not answered", self.log.tick()));
            self.live().connector.set_reply_mode(ReplyMode::Hold);
            self.holding = Some(1 + self.rng.below(6));
        }
    }

    pub(super) fn answer_ops(&mut self) {
        let connector = &self.live().connector;
        connector.set_reply_mode(ReplyMode::Apply);
        let ops: Vec<_> = connector.record().borrow().ops.iter().cloned().collect();
        for op in ops {
            let result = json!({"success": true, "message_id": op.message_id});
            connector.answer(op.id, &result);
        }
        self.note(format!("{}: ops are answered", self.log.tick()));
        self.holding = None;
    }

    pub(super) fn database(&self) -> rusqlite::Connection {
        let db = rusqlite::Connection::open(self.dir.path().join("journal.db")).unwrap();
        db.busy_timeout(Duration::from_secs(20)).unwrap();
        db
    }

    /// Another program holds the journal's lock for a moment.
    pub(super) fn stall_journal(&mut self) {
        // A simulated disk is slow by itself.
        if self.fault.is_some() || self.sim.is_some() {
            return;
        }
        let db = self.database();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        let since = self.log.tick();
        self.note(format!("{since}: the journal is locked"));
        self.fault = Some((Fault::Stalled(db, since), 1 + self.rng.below(6)));
    }

    /// The journal cannot store messages for a moment: what it calls for that does not exist.
    pub(super) fn fail_journal(&mut self) {
        if self.fault.is_some() {
            return;
        }
        self.note(format!("{}: the journal fails", self.log.tick()));
        self.database().execute_batch(BROKEN).unwrap();
        self.fault = Some((Fault::Failing, 1 + self.rng.below(4)));
    }

    pub(super) async fn heal_journal(&mut self) {
        // What was said while nobody could write it down.
        self.look().await;
        match self.fault.take() {
            Some((Fault::Stalled(db, since), _)) => {
                for sent in &self.sent {
                    let is_acked = self.seen.acked.contains(&sent.name);
                    assert!(
                        !is_acked || sent.at < since,
                        "{} was acknowledged while the journal could not be written",
                        sent.name
                    );
                }
                db.execute_batch("COMMIT").unwrap();
            }
            Some((Fault::Failing, _)) => {
                self.database().execute_batch(MENDED).unwrap();
                // The relay asks for what it rejected, now or in a second.
                for index in 0..self.sent.len() {
                    if !self.is_acked(index) {
                        self.quick[self.sent[index].who] += QUICK;
                        self.doubt(self.sent[index].who);
                    }
                }
            }
            None => return,
        }
        self.note(format!("{}: the journal is well", self.log.tick()));
    }

    /// Whatever is wrong ends after a few steps.
    pub(super) async fn heal_in_time(&mut self) {
        let is_over = |left: &mut usize| {
            *left = left.saturating_sub(1);
            *left == 0
        };
        if self.down.as_mut().is_some_and(is_over) {
            self.restore();
        }
        if self.holding.as_mut().is_some_and(is_over) {
            self.answer_ops();
        }
        if self.fault.as_mut().is_some_and(|(_, left)| is_over(left)) {
            self.heal_journal().await;
        }
    }

    /// Stops the relay in order, and starts it again.
    pub(super) async fn restart(&mut self) {
        self.heal_journal().await;
        if self.holding.is_some() {
            self.answer_ops();
        }
        self.note(format!("{}: the relay restarts", self.log.tick()));
        self.stop().await;
        self.open().await;
        self.look().await;
    }

    pub(super) async fn stop(&mut self) {
        self.restarts.push(self.log.tick());
        let Live {
            connector,
            stop,
            task,
            ..
        } = self.live.take().expect("the relay runs");
        drop(stop);
        let ended = timeout(SOON, task).await.expect("an end in time").unwrap();
        assert_eq!(ended, ExitReason::Shutdown);
        self.ended(&connector).await;
    }

    /// Ends the relay in the middle of whatever it does, and starts it again.
    pub(super) async fn crash(&mut self) {
        self.look().await;
        self.note(format!("{}: the relay is killed", self.log.tick()));
        self.restarts.push(self.log.tick());
        self.losses += 1;
        if self.sim.is_some() {
            return self.lose_power().await;
        }
        let Live { connector, task, .. } = self.live.take().expect("the relay runs");
        task.abort();
        let _ = task.await;
        // Its turns are dropped when the runtime comes to them.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        // A lock and a failure end with it; what the journal's writer has taken by now it may still write.
        self.drop_fault();
        self.ended(&connector).await;
        self.open().await;
        self.look().await;
    }

    pub(super) fn drop_fault(&mut self) {
        if let Some((Fault::Failing, _)) = self.fault.take() {
            self.database().execute_batch(MENDED).unwrap();
        }
    }

    pub(super) async fn ended(&mut self, connector: &MemoryConnector) {
        let record = connector.record().borrow().clone();
        self.seen.take(&record, self.process());
        self.seen.restarted();
        (self.down, self.holding) = (None, None);
        self.settle_waiters().await;
        *self.log.process.lock().unwrap() += 1;
    }
}
