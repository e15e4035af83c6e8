//! Limits on how often a bot may call, and who exceeded them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Violations that are kept.
const MAX_VIOLATIONS: usize = 1_000;
/// Chats that are watched.
const MAX_CHATS: usize = 20_000;

/// Limits per chat, as calls in a time. A real server states no exact numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloodLimits {
    /// Whether a call beyond a limit is refused with 429. It is recorded either way.
    pub(crate) is_enforced: bool,
    /// Messages and edits in one private chat within ten seconds.
    pub(crate) private_per_ten_seconds: usize,
    /// Messages and edits in one group within a minute.
    pub(crate) group_per_minute: usize,
    /// Drafts and chat actions in one chat within five seconds.
    pub(crate) shows_per_five_seconds: usize,
    /// Drafts and chat actions in one chat within thirty seconds.
    pub(crate) shows_per_thirty_seconds: usize,
    /// Messages and edits in all chats within a second.
    pub(crate) all_per_second: usize,
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
pub(crate) struct FloodViolation {
    /// The method.
    pub(crate) method: String,
    /// The chat.
    pub(crate) chat_id: i64,
    /// What was exceeded.
    pub(crate) limit: &'static str,
    /// How long the bot should have waited, in seconds.
    pub(crate) retry_after: u64,
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
#[derive(Default)]
pub(crate) struct FloodControl {
    limits: Option<FloodLimits>,
    /// Messages and edits, and what is only for show, by chat.
    chats: BTreeMap<(i64, bool), CallTimes>,
    all: CallTimes,
    /// Until when a chat is refused.
    banned: BTreeMap<i64, Instant>,
    violations: VecDeque<FloodViolation>,
}

impl FloodControl {
    pub(crate) fn with(limits: FloodLimits) -> Self {
        Self {
            limits: Some(limits),
            ..Self::default()
        }
    }

    pub(crate) fn set(&mut self, limits: Option<FloodLimits>) {
        self.limits = limits;
    }

    /// Counts a call. Returns the seconds to wait if it is refused.
    pub(crate) fn admit(&mut self, method: &str, chat_id: i64, now: Instant) -> Option<u64> {
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

    pub(crate) fn violations(&self) -> impl Iterator<Item = &FloodViolation> {
        self.violations.iter()
    }
}
