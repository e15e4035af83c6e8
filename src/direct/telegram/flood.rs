//! One budget per chat over all calls, and one over all chats.
//!
//! The server counts every call that names a chat: messages, edits, typing, drafts, reactions. Separate limits would add
//! up, and calls during a penalty make it longer. So what is only for show is dropped when there is no room, leaving the
//! last room to what says something. That is counted and sent: the server allows bursts, of a length that it does not
//! name. Once it has limited a chat, what is said there waits for the budget for a while, for seconds at most. While the server limits a chat, nothing is sent
//! to it: the relay holds what must arrive. When the server limits several chats at once, it means the bot.

use std::collections::VecDeque;
use std::time::Duration;

use super::call::CallKind;
use crate::collections::BoundedCache;

/// Chats that are tracked; beyond it, the one that was used least recently starts afresh.
const MAX_CHATS: usize = 16 * 1024;
/// A private chat: a call per second, three at once.
const PRIVATE: FloodRate = FloodRate::new(1_000, 3);
/// A group: a call every three seconds, five at once.
const GROUP: FloodRate = FloodRate::new(3_000, 5);
/// All chats together: 25 calls per second.
const GLOBAL: FloodRate = FloodRate::new(40, 25);
/// Added to every wait that the server names.
const MARGIN: Duration = Duration::from_secs(1);
/// Longest wait that is believed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);
/// How long speech waits for the budget after the server limited the chat, or the bot.
const STRICT_PERIOD: Duration = Duration::from_secs(600);
/// This many chats limited within this time mean that the bot is limited.
const WIDEN_CHATS: usize = 3;
const WIDEN_WITHIN: Duration = Duration::from_secs(10);

/// Whether a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodPermit {
    /// Now; it is counted.
    Now,
    /// Not before this time; ask again then. It is not counted yet.
    At(Duration),
    /// Not at all: it is for show, and there is no room.
    Drop,
    /// Not now: the server limits the chat.
    Limited {
        /// For how much longer.
        retry_after: Duration,
    },
}

/// One call per `every`, and up to `slack` ahead of that.
#[derive(Clone, Copy, Debug)]
struct FloodRate {
    every: Duration,
    slack: Duration,
}

impl FloodRate {
    const fn new(every_ms: u64, burst: u64) -> Self {
        Self {
            every: Duration::from_millis(every_ms),
            slack: Duration::from_millis(every_ms * burst),
        }
    }

    /// When everything is paid off after one more call. A burst owes no more than the budget holds.
    fn paid_off(self, due: Duration, now: Duration) -> Duration {
        (due.max(now) + self.every).min(now + self.slack)
    }

    /// How long a call must wait when everything before it is paid off at `due`. A call for show leaves room for another.
    fn wait(self, due: Duration, kind: CallKind, now: Duration) -> Duration {
        let calls = match kind {
            CallKind::Show => 2,
            CallKind::Speak => 1,
        };
        (due.saturating_sub(now) + self.every * calls).saturating_sub(self.slack)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct ChatFlood {
    /// When everything that was sent would have been due at the average rate.
    due: Duration,
    /// Nothing is sent before this time: the server limits the chat.
    limited_until: Duration,
}

/// The budgets of all chats.
#[derive(Debug)]
pub struct Flood {
    chats: BoundedCache<i64, ChatFlood>,
    due: Duration,
    /// Nothing is sent before this time: the server limits the bot.
    limited_until: Duration,
    /// Chats that were limited lately, and when.
    limits: VecDeque<(Duration, i64)>,
}

impl Default for Flood {
    fn default() -> Self {
        Self::new()
    }
}

impl Flood {
    /// Nothing was sent yet.
    pub fn new() -> Self {
        Self {
            chats: BoundedCache::new(MAX_CHATS),
            due: Duration::ZERO,
            limited_until: Duration::ZERO,
            limits: VecDeque::new(),
        }
    }

    /// Whether a call to a chat may be made.
    pub fn admit(&mut self, chat: i64, kind: CallKind, now: Duration) -> FloodPermit {
        let rate = if chat < 0 { GROUP } else { PRIVATE };
        let entry = self.chats.get(&chat).copied().unwrap_or_default();
        let until = entry.limited_until.max(self.limited_until);
        if until > now {
            return match kind {
                CallKind::Show => FloodPermit::Drop,
                CallKind::Speak => FloodPermit::Limited {
                    retry_after: until.saturating_sub(now),
                },
            };
        }
        let wait = rate
            .wait(entry.due, kind, now)
            .max(GLOBAL.wait(self.due, kind, now));
        let is_strict = !until.is_zero() && now < until + STRICT_PERIOD;
        match kind {
            CallKind::Show if !wait.is_zero() => return FloodPermit::Drop,
            CallKind::Speak if !wait.is_zero() && is_strict => return FloodPermit::At(now + wait),
            CallKind::Show | CallKind::Speak => {}
        }
        self.due = GLOBAL.paid_off(self.due, now);
        let due = rate.paid_off(entry.due, now);
        self.chats.insert(chat, ChatFlood { due, ..entry });
        FloodPermit::Now
    }

    /// The server limits a chat. Returns when it may be spoken to again.
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
