//! Ops of one chat, sent in order, one at a time.
//!
//! Each chat is a lane; only its first op is sent, the next one when that has completed. An op that was not sent stays
//! the first of its lane. Lanes hold op ids only. Invariant: at most one op of a lane is in flight.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::collections::{IdMap, TextMap};
use crate::wire::OpId;

/// Names a lane: platform and chat id.
pub type LaneId = Arc<str>;

#[derive(Debug)]
struct Lane {
    /// Stays here until it has completed.
    first: OpId,
    /// Whether the first one is in flight.
    is_out: bool,
    others: VecDeque<OpId>,
}

impl Lane {
    fn is_out(&self, op: OpId) -> bool {
        self.is_out && self.first == op
    }

    /// Puts the next op in the place of the first; `false` if there is none.
    fn advance(&mut self) -> bool {
        self.is_out = false;
        match self.others.pop_front() {
            Some(next) => {
                self.first = next;
                true
            }
            None => false,
        }
    }
}

/// All lanes that are not empty.
#[derive(Debug, Default)]
pub struct Lanes {
    by_chat: TextMap<LaneId, Lane>,
    lane_of: IdMap<OpId, LaneId>,
    ready: VecDeque<LaneId>,
}

impl Lanes {
    /// No lanes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an op to the end of its lane.
    pub fn push(&mut self, lane: impl Into<LaneId>, op: OpId) {
        let lane = lane.into();
        match self.by_chat.entry(Arc::clone(&lane)) {
            Entry::Occupied(mut entry) => entry.get_mut().others.push_back(op),
            Entry::Vacant(entry) => {
                entry.insert(Lane {
                    first: op,
                    is_out: false,
                    others: VecDeque::new(),
                });
                self.ready.push_back(Arc::clone(&lane));
            }
        }
        self.lane_of.insert(op, lane);
    }

    /// The next op that may be sent now. Call it until there is none.
    pub fn next_ready(&mut self) -> Option<OpId> {
        loop {
            let id = self.ready.pop_front()?;
            if let Some(lane) = self.by_chat.get_mut(&id).filter(|lane| !lane.is_out) {
                lane.is_out = true;
                return Some(lane.first);
            }
        }
    }

    /// The op has completed; its lane continues. Does nothing for an op that is not in flight.
    pub fn complete(&mut self, op: OpId) -> bool {
        let Some(id) = self.lane_of.get(&op).cloned() else {
            return false;
        };
        let Some(lane) = self.by_chat.get_mut(&id).filter(|lane| lane.is_out(op)) else {
            return false;
        };
        self.lane_of.remove(&op);
        if lane.advance() {
            self.ready.push_back(id);
        } else {
            self.by_chat.remove(&id);
        }
        true
    }

    /// The op was not sent: it stays the first of its lane, and the lane waits for
    /// [`Self::retry_all`].
    pub fn put_back(&mut self, op: OpId) {
        let lane = self.lane_of.get(&op).and_then(|id| self.by_chat.get_mut(id));
        if let Some(lane) = lane.filter(|lane| lane.is_out(op)) {
            lane.is_out = false;
        }
    }

    /// Puts another op in the place of one. If that was in flight, the lane waits for [`Self::retry`].
    pub fn replace(&mut self, op: OpId, with: OpId) {
        self.put_back(op);
        let Some(id) = self.lane_of.remove(&op) else {
            return;
        };
        if let Some(lane) = self.by_chat.get_mut(&id) {
            for waiting in std::iter::once(&mut lane.first).chain(&mut lane.others) {
                if *waiting == op {
                    *waiting = with;
                }
            }
        }
        self.lane_of.insert(with, id);
    }

    /// Removes an op that is not in flight, and its lane continues; returns whether it was there.
    pub fn remove(&mut self, op: OpId) -> bool {
        let Some(id) = self.lane_of.get(&op).cloned() else {
            return false;
        };
        let Some(lane) = self.by_chat.get_mut(&id).filter(|lane| !lane.is_out(op)) else {
            return false;
        };
        self.lane_of.remove(&op);
        if lane.first != op {
            lane.others.retain(|waiting| *waiting != op);
        } else if lane.advance() {
            // The lane may have waited because of this op.
            self.ready.push_back(id);
        } else {
            self.by_chat.remove(&id);
        }
        true
    }

    /// Makes a lane whose first op was put back ready again.
    pub fn retry(&mut self, lane: &LaneId) {
        if self.by_chat.get(lane).is_some_and(|lane| !lane.is_out) {
            self.ready.push_back(Arc::clone(lane));
        }
    }

    /// Whether ops wait in a lane.
    pub fn is_waiting(&self, lane: &LaneId) -> bool {
        self.by_chat
            .get(lane)
            .is_some_and(|lane| !lane.is_out || !lane.others.is_empty())
    }

    /// Makes every lane ready again, after a reconnect.
    pub fn retry_all(&mut self) {
        self.ready = self
            .by_chat
            .iter()
            .filter(|(_, lane)| !lane.is_out)
            .map(|(id, _)| Arc::clone(id))
            .collect();
    }
}
