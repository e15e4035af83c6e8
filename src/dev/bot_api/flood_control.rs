//! Limits on how often a bot may call, and who exceeded them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Violations that are kept.
const MAX_VIOLATIONS: usize = 1_000;
/// Chats that are watched.
const MAX_CHATS: usize = 20_000;

/// Limits per chat, as calls in a time. A real server states no exact numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodLimits {
    /// Whether a call beyond a limit is refused with 429. It is recorded either way.
    pub is_enforced: bool,
    /// Messages and edits in one private chat within ten seconds.
    pub private_per_ten_seconds: usize,
    /// Messages and edits in one group within a minute.
    pub group_per_minute: usize,
    /// Drafts and chat actions in one chat within five seconds.
    pub shows_per_five_seconds: usize,
    /// Drafts and chat actions in one chat within thirty seconds.
    pub shows_per_thirty_seconds: usize,
    /// Messages and edits in all chats within a second.
    pub all_per_second: usize,
}

impl Default for FloodLimits {
    fn default() -> Self {
        Self {
            is_enforced: true,
            private_per_ten_seconds: 15,
            group_per_minute: 20,
            shows_per_five_seconds: 20,
            shows_per_thirty_seconds: 40,
            all_per_second: 30,
        }
    }
}

/// A call that came too soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloodViolation {
    /// The method.
    pub method: String,
    /// The chat.
    pub chat_id: i64,
    /// What was exceeded.
    pub limit: &'static str,
    /// How long the bot should have waited, in seconds.
    pub retry_after: u64,
}

/// Times of the latest calls.
#[derive(Default)]
struct CallTimes(VecDeque<Instant>);

impl CallTimes {
    /// How long to wait before one more call in `window`; `None` is not at all.
    fn wait(&self, count: usize, window: Duration, now: Instant) -> Option<Duration> {
        let since = |at: &Instant| now.saturating_duration_since(*at);
        let recent = self.0.iter().filter(|at| since(at) < window).count();
        let oldest = self.0.iter().find(|at| since(at) < window);
        (recent >= count).then(|| oldest.map_or(window, |at| window.saturating_sub(since(at))))
    }

    fn push(&mut self, now: Instant) {
        self.0.push_back(now);
        while self.0.len() > 64 {
            self.0.pop_front();
        }
    }
}

/// The watch over calls.
pub(super) struct FloodControl {
    limits: Option<FloodLimits>,
    /// Messages and edits, and what is only for show, by chat.
    chats: BTreeMap<(i64, bool), CallTimes>,
    all: CallTimes,
    /// Until when a chat is refused.
    banned: BTreeMap<i64, Instant>,
    violations: VecDeque<FloodViolation>,
}

impl FloodControl {
    pub(super) fn new(limits: Option<FloodLimits>) -> Self {
        Self {
            limits,
            chats: BTreeMap::new(),
            all: CallTimes::default(),
            banned: BTreeMap::new(),
            violations: VecDeque::new(),
        }
    }

    pub(super) fn set(&mut self, limits: Option<FloodLimits>) {
        self.limits = limits;
    }

    /// Counts a call. Returns the seconds to wait if it is refused.
    pub(super) fn admit(&mut self, method: &str, chat_id: i64, now: Instant) -> Option<u64> {
        let limits = self.limits?;
        let is_show = matches!(method, "sendChatAction" | "sendMessageDraft");
        let is_counted = is_show
            || method.starts_with("send")
            || method.starts_with("editMessage")
            || method.starts_with("deleteMessage");
        if !is_counted {
            return None;
        }
        if self.chats.len() >= MAX_CHATS {
            self.chats.clear();
            self.banned.clear();
        }
        let times = self.chats.entry((chat_id, is_show)).or_default();
        let seconds = Duration::from_secs;
        let checks = [
            (
                is_show,
                times.wait(limits.shows_per_five_seconds, seconds(5), now),
                "show calls in 5 s",
            ),
            (
                is_show,
                times.wait(limits.shows_per_thirty_seconds, seconds(30), now),
                "show calls in 30 s",
            ),
            (
                !is_show && chat_id > 0,
                times.wait(limits.private_per_ten_seconds, seconds(10), now),
                "messages in a private chat",
            ),
            (
                !is_show && chat_id < 0,
                times.wait(limits.group_per_minute, seconds(60), now),
                "messages in a group",
            ),
            (
                !is_show,
                self.all.wait(limits.all_per_second, seconds(1), now),
                "messages in all chats",
            ),
        ];
        let banned = self
            .banned
            .get(&chat_id)
            .map(|until| until.saturating_duration_since(now));
        let banned = banned
            .filter(|left| !left.is_zero())
            .map(|left| (left, "a call during a 429"));
        let exceeded = checks
            .into_iter()
            .filter(|(applies, _, _)| *applies)
            .find_map(|(_, wait, limit)| Some((wait?, limit)));
        let Some((wait, limit)) = banned.or(exceeded) else {
            times.push(now);
            if !is_show {
                self.all.push(now);
            }
            return None;
        };
        let retry_after = wait.as_secs() + 1;
        if self.violations.len() >= MAX_VIOLATIONS {
            self.violations.pop_front();
        }
        self.violations.push_back(FloodViolation {
            method: method.to_owned(),
            chat_id,
            limit,
            retry_after,
        });
        if !limits.is_enforced {
            times.push(now);
            return None;
        }
        self.banned
            .insert(chat_id, now + Duration::from_secs(retry_after));
        Some(retry_after)
    }

    pub(super) fn violations(&self) -> impl Iterator<Item = &FloodViolation> {
        self.violations.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_beyond_a_limit_are_recorded_and_refused_until_the_time_is_over() {
        let mut flood = FloodControl::new(Some(FloodLimits::default()));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..20 {
            assert_eq!(flood.admit("sendMessage", -5, at(0)), None);
        }
        assert_eq!(flood.admit("editMessageText", -5, at(1)), Some(60));
        assert_eq!(
            flood.admit("sendMessage", -5, at(30)),
            Some(32),
            "calls during a 429 make it longer"
        );
        assert_eq!(flood.admit("getMe", -5, at(30)), None);
        assert_eq!(flood.admit("sendMessage", 5, at(30)), None, "another chat");
        assert_eq!(flood.admit("sendMessage", -5, at(63)), None);
        assert_eq!(flood.violations().count(), 2);
        let mut watched = FloodControl::new(Some(FloodLimits {
            is_enforced: false,
            ..FloodLimits::default()
        }));
        for _ in 0..21 {
            assert_eq!(watched.admit("sendChatAction", 5, at(0)), None);
        }
        assert_eq!(watched.violations().next().unwrap().limit, "show calls in 5 s");
    }
}
