//! Ops between being asked for and being settled.
//!
//! An op waits until its lane is free and there is room in flight, is written when the driver asks for
//! something to write, and leaves exactly once: answered, out of time, taken back, or with its socket.
//! Every step costs a lookup, never a scan.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::action::{NotSent, Settled};
use super::chance::Chance;
use crate::wire::{ActionText, GatewayFrame, OpResult, Outcome};

/// An op to be asked of the connector.
#[derive(Clone, Debug)]
pub struct Op {
    /// Ops of one lane go one at a time, in order; others are independent. A chat is a lane.
    pub lane: Option<String>,
    /// An op in JSON.
    pub action: ActionText,
    /// The chat's platform, when it is known.
    pub platform: Option<String>,
    /// The bot that fronts it.
    pub bot_id: Option<String>,
    /// How long it may wait to be written, and again for its answer.
    pub timeout: Option<Duration>,
    /// The asker's name for it.
    pub token: u64,
}

/// An op that left.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) token: u64,
    pub(super) outcome: Settled,
}

/// Counts ops in the order in which they were asked for.
type Serial = u64;

#[derive(Debug, Default)]
pub(super) struct Pending {
    last: Serial,
    ops: BTreeMap<Serial, Entry>,
    sent: HashMap<u128, Serial>,
    ready: BTreeSet<Serial>,
    lanes: HashMap<Arc<str>, Lane>,
    deadlines: BTreeSet<(Duration, Serial)>,
}

#[derive(Debug)]
struct Entry {
    token: u64,
    lane: Option<Arc<str>>,
    timeout: Duration,
    deadline: Duration,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Waiting {
        action: ActionText,
        platform: Option<String>,
        bot_id: Option<String>,
    },
    Sent(u128),
}

/// One op of it is ready or sent; the rest wait behind that one.
#[derive(Debug)]
struct Lane {
    head: Serial,
    behind: BTreeSet<Serial>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Written and unanswered.
    pub(super) fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// Not written yet.
    pub(super) fn waiting(&self) -> usize {
        self.ops.len() - self.sent.len()
    }

    /// The next time at which an op runs out of time.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn push(&mut self, op: Op, default_timeout: Duration, now: Duration) {
        self.last += 1;
        let serial = self.last;
        let lane = op.lane.map(Arc::<str>::from);
        match &lane {
            None => {
                self.ready.insert(serial);
            }
            Some(name) => {
                if let Some(lane) = self.lanes.get_mut(name) {
                    lane.behind.insert(serial);
                } else {
                    let lane = Lane {
                        head: serial,
                        behind: BTreeSet::new(),
                    };
                    self.lanes.insert(Arc::clone(name), lane);
                    self.ready.insert(serial);
                }
            }
        }
        let timeout = op.timeout.unwrap_or(default_timeout);
        let deadline = now.saturating_add(timeout);
        self.deadlines.insert((deadline, serial));
        let stage = Stage::Waiting {
            action: op.action,
            platform: op.platform,
            bot_id: op.bot_id,
        };
        let entry = Entry {
            token: op.token,
            lane,
            timeout,
            deadline,
            stage,
        };
        self.ops.insert(serial, entry);
    }

    /// The next line to write, and whose it is; from here on the op counts as sent.
    pub(super) fn write_next(&mut self, chance: &mut Chance, now: Duration) -> Option<(u64, String)> {
        let serial = self.ready.pop_first()?;
        let entry = self.ops.get_mut(&serial)?;
        let mut id = chance.next_u128();
        while self.sent.contains_key(&id) {
            id = chance.next_u128();
        }
        let Stage::Waiting {
            action,
            platform,
            bot_id,
        } = std::mem::replace(&mut entry.stage, Stage::Sent(id))
        else {
            return None;
        };
        self.sent.insert(id, serial);
        self.deadlines.remove(&(entry.deadline, serial));
        entry.deadline = now.saturating_add(entry.timeout);
        self.deadlines.insert((entry.deadline, serial));
        let id = format!("{id:032x}");
        let line = GatewayFrame::outbound_line(&id, &action, platform.as_deref(), bot_id.as_deref());
        Some((entry.token, line))
    }

    /// Settles what was answered; `None` when nobody waits for it.
    pub(super) fn answer(&mut self, request_id: &str, result: Option<OpResult>) -> Option<Left> {
        let serial = *self.sent.get(&parse_id(request_id)?)?;
        let entry = self.remove(serial)?;
        Some(Left {
            token: entry.token,
            outcome: Settled::Sent(Box::new(result.map_or(Outcome::Unknown, Outcome::from))),
        })
    }

    /// Settles one op that has run out of time.
    pub(super) fn expire_next(&mut self, now: Duration) -> Option<Left> {
        let (at, serial) = *self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.remove(serial).map(|entry| entry.leave(NotSent::Expired))
    }

    /// Takes back what waits in a lane. What was written stays: it may be done already.
    pub(super) fn cancel_lane(&mut self, name: &str) -> Vec<Left> {
        let Some(lane) = self.lanes.get(name) else {
            return Vec::new();
        };
        let mut taken: Vec<Serial> = lane.behind.iter().copied().collect();
        if self.ready.contains(&lane.head) {
            taken.push(lane.head);
            taken.sort_unstable();
        }
        // From the back, so that none becomes ready on the way.
        let mut left: Vec<Left> = taken
            .into_iter()
            .rev()
            .filter_map(|serial| self.remove(serial))
            .map(|entry| entry.leave(NotSent::Cancelled))
            .collect();
        left.reverse();
        left
    }

    /// Settles everything, in the order in which it was asked for.
    pub(super) fn leave_all(&mut self, why: NotSent) -> impl Iterator<Item = Left> + use<> {
        let all = std::mem::replace(
            self,
            Self {
                last: self.last,
                ..Self::default()
            },
        );
        all.ops.into_values().map(move |entry| entry.leave(why))
    }

    fn remove(&mut self, serial: Serial) -> Option<Entry> {
        let entry = self.ops.remove(&serial)?;
        self.deadlines.remove(&(entry.deadline, serial));
        self.ready.remove(&serial);
        if let Stage::Sent(id) = entry.stage {
            self.sent.remove(&id);
        }
        if let Some(name) = &entry.lane
            && let Some(lane) = self.lanes.get_mut(name)
        {
            if lane.head != serial {
                lane.behind.remove(&serial);
            } else if let Some(next) = lane.behind.pop_first() {
                lane.head = next;
                self.ready.insert(next);
            } else {
                self.lanes.remove(name);
            }
        }
        Some(entry)
    }
}

impl Entry {
    fn leave(self, unwritten: NotSent) -> Left {
        let outcome = match self.stage {
            Stage::Waiting { .. } => Settled::NotSent(unwritten),
            Stage::Sent(_) => Settled::Sent(Box::new(Outcome::Unknown)),
        };
        Left {
            token: self.token,
            outcome,
        }
    }
}

fn parse_id(text: &str) -> Option<u128> {
    let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 32 || !text.bytes().all(lower_hex) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}
