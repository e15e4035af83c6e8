//! Ops between request and result.
//!
//! An op waits until there is room in flight, is written when the driver polls for actions, and completes exactly once:
//! answered, timed out, or with its socket. Every step is a lookup, never a scan.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use smol_str::SmolStr;

use super::action::{NotSent, SendResult};
use crate::collections::IdMap;
use crate::wire::{ActionText, GatewayFrame, OpId, OpResult, Outcome};

/// An op to send to the connector.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its id, which is the `requestId` on the wire.
    pub id: OpId,
    /// The action in JSON.
    pub action: ActionText,
    /// The chat's platform, if known.
    pub platform: Option<SmolStr>,
    /// The bot on that platform.
    pub bot_id: Option<SmolStr>,
    /// How long it may wait to be written, and again for its result.
    pub timeout: Option<Duration>,
}

/// An op that completed.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) id: OpId,
    pub(super) result: SendResult,
}

/// Ops that ended and may stay in the queue, beside as many as wait.
const MAX_ENDED: usize = 64;

/// Counts ops in request order.
type Serial = u64;

#[derive(Debug, Default)]
pub(super) struct PendingOps {
    last: Serial,
    ops: IdMap<OpId, Entry>,
    /// Those that are not written yet, in order. One that ended before that is left out when it is first, or when most have ended.
    queue: VecDeque<(Serial, OpId)>,
    waiting: usize,
    /// When each op is looked at, at the latest: one that was written meanwhile has more time, and is put back then.
    deadlines: BTreeSet<(Duration, Serial, OpId)>,
}

#[derive(Debug)]
struct Entry {
    serial: Serial,
    timeout: Duration,
    deadline: Duration,
    /// Where it is among the deadlines.
    checked_at: Duration,
    state: SendState,
}

#[derive(Debug)]
enum SendState {
    Waiting {
        action: ActionText,
        platform: Option<SmolStr>,
        bot_id: Option<SmolStr>,
    },
    InFlight,
}

impl PendingOps {
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Written and not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.ops.len() - self.waiting
    }

    /// Not written yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn contains(&self, id: OpId) -> bool {
        self.ops.contains_key(&id)
    }

    /// When the next op times out.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, ..)| *at)
    }

    /// Adds an op whose id is not pending.
    pub(super) fn push(&mut self, op: Op, default_timeout: Duration, now: Duration) {
        self.last += 1;
        let serial = self.last;
        let timeout = op.timeout.unwrap_or(default_timeout);
        let deadline = now.saturating_add(timeout);
        self.queue.push_back((serial, op.id));
        self.waiting += 1;
        self.deadlines.insert((deadline, serial, op.id));
        let state = SendState::Waiting {
            action: op.action,
            platform: op.platform,
            bot_id: op.bot_id,
        };
        let entry = Entry {
            serial,
            timeout,
            deadline,
            checked_at: deadline,
            state,
        };
        self.ops.insert(op.id, entry);
    }

    /// The next line to write, and its op; from now on the op is in flight.
    pub(super) fn write_next(&mut self, now: Duration) -> Option<(OpId, String)> {
        let (_, id) = self.queue.pop_front()?;
        let entry = self.ops.get_mut(&id)?;
        let SendState::Waiting {
            action,
            platform,
            bot_id,
        } = std::mem::replace(&mut entry.state, SendState::InFlight)
        else {
            return None;
        };
        self.waiting -= 1;
        entry.deadline = now.saturating_add(entry.timeout);
        let line = GatewayFrame::outbound_line(
            id.encode_lower(&mut [0; 32]),
            &action,
            platform.as_deref(),
            bot_id.as_deref(),
        );
        self.skip_ended();
        Some((id, line))
    }

    /// Completes the op that was answered; `None` when it is not in flight.
    pub(super) fn answer(&mut self, request_id: &str, result: Option<OpResult>) -> Option<Completed> {
        let id = OpId::parse(request_id)?;
        match self.ops.get(&id)?.state {
            SendState::Waiting { .. } => return None,
            SendState::InFlight => self.remove(id)?,
        };
        Some(Completed {
            id,
            result: SendResult::Answered(Box::new(result.map_or(Outcome::Unknown, Outcome::from))),
        })
    }

    /// Completes one op that has timed out.
    pub(super) fn expire_next(&mut self, now: Duration) -> Option<Completed> {
        loop {
            let (at, serial, id) = *self.deadlines.first()?;
            if at > now {
                return None;
            }
            let entry = self.ops.get_mut(&id)?;
            if entry.deadline <= now {
                let unknown = SendResult::Answered(Box::new(Outcome::Unknown));
                return Some(self.remove(id)?.end(id, NotSent::Expired, unknown));
            }
            entry.checked_at = entry.deadline;
            self.deadlines.pop_first();
            self.deadlines.insert((entry.checked_at, serial, id));
        }
    }

    /// Completes everything, in request order.
    pub(super) fn fail_all(&mut self, why: NotSent) -> Vec<Completed> {
        self.queue.clear();
        self.waiting = 0;
        self.deadlines.clear();
        let mut all: Vec<_> = self.ops.drain().collect();
        all.sort_unstable_by_key(|(_, entry)| entry.serial);
        all.into_iter()
            .map(|(id, entry)| entry.end(id, why, SendResult::Lost))
            .collect()
    }

    fn remove(&mut self, id: OpId) -> Option<Entry> {
        let entry = self.ops.remove(&id)?;
        self.deadlines.remove(&(entry.checked_at, entry.serial, id));
        if matches!(entry.state, SendState::Waiting { .. }) {
            self.waiting -= 1;
            self.skip_ended();
        }
        Some(entry)
    }

    /// Makes the first of the queue one that waits, and keeps the queue about as long as what waits.
    fn skip_ended(&mut self) {
        let waits = |(serial, id): &(Serial, OpId)| self.ops.get(id).is_some_and(|op| op.serial == *serial);
        while self.queue.pop_front_if(|first| !waits(first)).is_some() {}
        if self.queue.len() > 2 * self.waiting + MAX_ENDED {
            self.queue.retain(waits);
        }
    }
}

impl Entry {
    /// Ends without an answer: `why` is for an op that was not written, `in_flight` for one that was.
    fn end(self, id: OpId, why: NotSent, in_flight: SendResult) -> Completed {
        let result = match self.state {
            SendState::Waiting { .. } => SendResult::NotSent(why),
            SendState::InFlight => in_flight,
        };
        Completed { id, result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Action, OpIds};

    #[test]
    fn an_op_that_expires_among_those_that_wait_leaves_the_rest_in_order() {
        let (mut pending, mut ids) = (PendingOps::default(), OpIds::new(1));
        let secs = Duration::from_secs;
        let chat_id = "c".into();
        let action = ActionText::from(&Action::GetChatInfo { chat_id });
        let ops = [9, 1, 9, 1].map(|timeout| {
            let (id, action) = (ids.next(), action.clone());
            let op = Op {
                id,
                action,
                platform: None,
                bot_id: None,
                timeout: Some(secs(timeout)),
            };
            pending.push(op, secs(9), Duration::ZERO);
            id
        });
        for expired in [ops[1], ops[3]] {
            assert_eq!(pending.expire_next(secs(1)).map(|op| op.id), Some(expired));
        }
        assert_eq!((pending.waiting(), pending.in_flight()), (2, 0));
        for written in [ops[0], ops[2]] {
            assert_eq!(pending.write_next(secs(1)).map(|(id, _)| id), Some(written));
        }
        assert_eq!((pending.waiting(), pending.in_flight()), (0, 2));
        assert!(pending.write_next(secs(1)).is_none() && pending.queue.is_empty());
    }

    #[test]
    fn ops_that_expire_behind_one_that_waits_do_not_stay_in_the_queue() {
        let (mut pending, mut ids) = (PendingOps::default(), OpIds::new(1));
        let chat_id = "c".into();
        let action = ActionText::from(&Action::GetChatInfo { chat_id });
        let mut push = |pending: &mut PendingOps, secs, now| {
            let op = Op {
                id: ids.next(),
                action: action.clone(),
                platform: None,
                bot_id: None,
                timeout: Some(Duration::from_secs(secs)),
            };
            let id = op.id;
            pending.push(op, Duration::ZERO, now);
            id
        };
        let first = push(&mut pending, 60, Duration::ZERO);
        for second in 0..50 {
            let now = Duration::from_secs(second);
            for _ in 0..100 {
                push(&mut pending, 1, now);
            }
            while pending.expire_next(now + Duration::from_secs(1)).is_some() {}
            assert!(pending.queue.len() <= MAX_ENDED + 2, "{}", pending.queue.len());
        }
        let last = push(&mut pending, 60, Duration::ZERO);
        let written = [(); 2].map(|()| pending.write_next(Duration::from_secs(50)).unwrap().0);
        assert_eq!(written, [first, last]);
        assert!(pending.write_next(Duration::from_secs(50)).is_none());
    }
}
