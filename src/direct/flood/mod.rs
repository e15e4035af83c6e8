//! Flood control: one budget per chat over all calls, and one over all chats.
//!
//! The server counts every call that names a chat: messages, edits, typing, drafts, reactions. Separate limits would add
//! up, and calls during a penalty make it longer. So droppable calls are dropped when there is no room, and leave the last
//! room to required calls. Required calls are counted and sent even beyond the budget: the server allows bursts, of a length
//! that it does not name. Once it has limited a chat, required calls wait for the budget for a while, for seconds at most.
//! While the server limits a chat, nothing is sent to it: the relay holds ops that must arrive. When the server limits
//! several chats at once, it means the bot.
//!
//! Knows no platform: each has its own rates.

use std::collections::VecDeque;
use std::time::Duration;

use crate::collections::BoundedCache;

/// Chats that are tracked; beyond it, the least recently used chat starts afresh.
const MAX_CHATS: usize = 16 * 1024;
/// Extra time on top of every wait that the server names.
const MARGIN: Duration = Duration::from_secs(1);
/// Longest wait of the server that is respected.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);
/// How long required calls wait for the budget after the server limited the chat, or the bot.
const STRICT_PERIOD: Duration = Duration::from_secs(600);
/// This many chats limited within this time mean that the bot is limited.
const WIDEN_CHATS: usize = 3;
const WIDEN_WITHIN: Duration = Duration::from_secs(10);

/// Whether a call must arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Dropped rather than delayed: typing, drafts, intermediate edits.
    Droppable,
    /// Waits until it may go out.
    Required,
}

/// Whether a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodPermit {
    /// Now; the call is counted.
    Now,
    /// Not before this time; ask again then. The call is not counted yet.
    At(Duration),
    /// Not at all: the call is droppable, and there is no room.
    Drop,
    /// Not now: the server limits the chat.
    Limited {
        /// The rest of the limit.
        retry_after: Duration,
    },
}

/// One call per `every`, and up to `slack` ahead of that.
#[derive(Clone, Copy, Debug)]
pub struct FloodRate {
    every: Duration,
    slack: Duration,
}

impl FloodRate {
    /// A call every so many milliseconds, and this many at once.
    pub const fn new(every_ms: u64, burst: u64) -> Self {
        Self {
            every: Duration::from_millis(every_ms),
            slack: Duration::from_millis(every_ms * burst),
        }
    }

    /// When the budget is balanced after one more call. A burst owes no more than the budget holds.
    fn balanced_at(self, due: Duration, now: Duration) -> Duration {
        (due.max(now) + self.every).min(now + self.slack)
    }

    /// How long a call must wait when the budget is balanced at `due`. A droppable call leaves room for another call.
    fn wait(self, due: Duration, kind: CallKind, now: Duration) -> Duration {
        let calls = match kind {
            CallKind::Droppable => 2,
            CallKind::Required => 1,
        };
        (due.saturating_sub(now) + self.every * calls).saturating_sub(self.slack)
    }
}

/// The rates of a platform.
#[derive(Clone, Copy, Debug)]
pub struct FloodRates {
    /// The rate of a chat.
    pub of_chat: fn(i64) -> FloodRate,
    /// The rate of all chats together.
    pub of_all: FloodRate,
}

#[derive(Clone, Copy, Debug, Default)]
struct ChatBudget {
    /// When the calls that were made would all have been due at the average rate.
    due: Duration,
    /// Nothing is sent before this time: the server limits the chat.
    limited_until: Duration,
}

/// The flood budgets of all chats.
#[derive(Debug)]
pub struct FloodBudget {
    rates: FloodRates,
    chats: BoundedCache<i64, ChatBudget>,
    due: Duration,
    /// Nothing is sent before this time: the server limits the bot.
    limited_until: Duration,
    /// Chats that were limited lately, with the time.
    limits: VecDeque<(Duration, i64)>,
}

impl FloodBudget {
    /// Nothing was sent yet.
    pub fn new(rates: FloodRates) -> Self {
        Self {
            rates,
            chats: BoundedCache::new(MAX_CHATS),
            due: Duration::ZERO,
            limited_until: Duration::ZERO,
            limits: VecDeque::new(),
        }
    }

    /// Whether a call to a chat may be made now.
    pub fn admit(&mut self, chat: i64, kind: CallKind, now: Duration) -> FloodPermit {
        let (rate, all) = ((self.rates.of_chat)(chat), self.rates.of_all);
        let entry = self.chats.get(&chat).copied().unwrap_or_default();
        let until = entry.limited_until.max(self.limited_until);
        if until > now {
            return match kind {
                CallKind::Droppable => FloodPermit::Drop,
                CallKind::Required => FloodPermit::Limited {
                    retry_after: until.saturating_sub(now),
                },
            };
        }
        let wait = rate.wait(entry.due, kind, now).max(all.wait(self.due, kind, now));
        let is_strict = !until.is_zero() && now < until + STRICT_PERIOD;
        match kind {
            CallKind::Droppable if !wait.is_zero() => return FloodPermit::Drop,
            CallKind::Required if !wait.is_zero() && is_strict => return FloodPermit::At(now + wait),
            CallKind::Droppable | CallKind::Required => {}
        }
        self.due = all.balanced_at(self.due, now);
        let due = rate.balanced_at(entry.due, now);
        self.chats.insert(chat, ChatBudget { due, ..entry });
        FloodPermit::Now
    }

    /// The server limits a chat. Returns when calls to it may be made again.
    pub fn limited(&mut self, chat: i64, retry_after: Duration, now: Duration) -> Duration {
        let until = now + retry_after.min(MAX_RETRY_AFTER) + MARGIN;
        let mut entry = self.chats.get(&chat).copied().unwrap_or_default();
        entry.limited_until = entry.limited_until.max(until);
        let until = entry.limited_until;
        self.chats.insert(chat, entry);
        let recent = |at: Duration| now.saturating_sub(at) <= WIDEN_WITHIN;
        self.limits.retain(|(at, other)| recent(*at) && *other != chat);
        self.limits.push_back((now, chat));
        if self.limits.len() >= WIDEN_CHATS {
            self.limited_until = self.limited_until.max(until);
            self.limits.clear();
        }
        until.max(self.limited_until)
    }
}

#[cfg(test)]
mod tests;
