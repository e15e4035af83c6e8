//! Ops of one chat, sent in order, one at a time.
//!
//! Each chat is a lane; only its first op is sent, the next one when that has completed. An op that was not sent returns to
//! the front of its lane. Lanes hold op ids only. Invariant: at most one op of a lane is in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::collections::{IdMap, TextMap};
use crate::wire::OpId;

/// Names a lane: platform and chat id.
pub type LaneId = Arc<str>;

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<OpId>,
    out: Option<OpId>,
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
        let entry = self.by_chat.entry(Arc::clone(&lane)).or_default();
        entry.waiting.push_back(op);
        if entry.out.is_none() && entry.waiting.len() == 1 {
            self.ready.push_back(Arc::clone(&lane));
        }
        self.lane_of.insert(op, lane);
    }

    /// The next op that may be sent now. Call it until there is none.
    pub fn next_ready(&mut self) -> Option<OpId> {
        loop {
            let id = self.ready.pop_front()?;
            let Some(lane) = self.by_chat.get_mut(&id) else {
                continue;
            };
            if lane.out.is_some() {
                continue;
            }
            if let Some(op) = lane.waiting.pop_front() {
                lane.out = Some(op);
                return Some(op);
            }
        }
    }

    /// The op has completed; its lane continues. Does nothing for an op that is not in flight.
    pub fn complete(&mut self, op: OpId) -> bool {
        let Some(id) = self.lane_of.get(&op).cloned() else {
            return false;
        };
        let Some(lane) = self.by_chat.get_mut(&id).filter(|lane| lane.out == Some(op)) else {
            return false;
        };
        lane.out = None;
        self.lane_of.remove(&op);
        if lane.waiting.is_empty() {
            self.by_chat.remove(&id);
        } else {
            self.ready.push_back(id);
        }
        true
    }

    /// The op was not sent: it goes back to the front of its lane, and the lane waits for
    /// [`Self::retry_all`].
    pub fn put_back(&mut self, op: OpId) {
        let Some(lane) = self.lane_of.get(&op).and_then(|id| self.by_chat.get_mut(id)) else {
            return;
        };
        if lane.out == Some(op) {
            lane.out = None;
            lane.waiting.push_front(op);
        }
    }

    /// Puts another op in the place of one. If that was in flight, the lane waits for [`Self::retry`].
    pub fn replace(&mut self, op: OpId, with: OpId) {
        self.put_back(op);
        let Some(id) = self.lane_of.remove(&op) else {
            return;
        };
        if let Some(lane) = self.by_chat.get_mut(&id) {
            for waiting in &mut lane.waiting {
                if *waiting == op {
                    *waiting = with;
                }
            }
        }
        self.lane_of.insert(with, id);
    }

    /// Removes an op that is not in flight; returns whether it was there.
    pub fn remove(&mut self, op: OpId) -> bool {
        let Some(id) = self.lane_of.get(&op).cloned() else {
            return false;
        };
        let Some(lane) = self.by_chat.get_mut(&id).filter(|lane| lane.out != Some(op)) else {
            return false;
        };
        lane.waiting.retain(|waiting| *waiting != op);
        self.lane_of.remove(&op);
        if lane.waiting.is_empty() && lane.out.is_none() {
            self.by_chat.remove(&id);
        }
        true
    }

    /// Makes a lane whose first op was put back ready again.
    pub fn retry(&mut self, lane: &LaneId) {
        if self.by_chat.get(lane).is_some_and(|lane| lane.out.is_none()) {
            self.ready.push_back(Arc::clone(lane));
        }
    }

    /// Whether ops wait in a lane.
    pub fn is_waiting(&self, lane: &LaneId) -> bool {
        self.by_chat
            .get(lane)
            .is_some_and(|lane| !lane.waiting.is_empty())
    }

    /// Makes every lane ready again, after a reconnect.
    pub fn retry_all(&mut self) {
        self.ready = self
            .by_chat
            .iter()
            .filter(|(_, lane)| lane.out.is_none())
            .map(|(id, _)| Arc::clone(id))
            .collect();
    }
}
