//! The rate limit of each chat, shared by everything that is sent to it.
//!
//! Sends, edits, typing and reactions all count. Indicators are dropped when the limit is reached; text is never dropped.
//! Text waits for the limit only where that is configured, or in a chat whose platform has limited it lately; otherwise
//! it is counted and sent. Each chat has its own limit, so that none delays another.
//!
//! The signs that a turn runs (the first reaction, typing) have a reserve that nothing else uses, so that a lively chat
//! keeps them: half of the rate and of the burst. Where text waits for the limit there is no reserve: text has all of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stream::Priority;
use crate::collections::TextMap;
use crate::setting::{MAX_SECS, section};

/// Maximum chats tracked; beyond it, idle ones start afresh.
const MAX_CHATS: usize = 16 * 1024;
/// How long text waits for the limit after the platform limited the chat.
const STRICT_PERIOD: Duration = Duration::from_secs(600);
/// The wait when the platform limits the rate without a retry time.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(2);

/// When text waits for the rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextWaits {
    /// Only in a chat that its platform has limited lately.
    #[default]
    WhenLimited,
    /// In every chat.
    Always,
}

section! {
    /// The rate limit of each chat.
    #[derive(PartialEq, Eq)]
    pub struct RateLimitSettings {
        /// Ops per minute to one chat, on average.
        pub per_minute: u32 = 60, range(1..=60_000);
        /// Ops that may be sent together after an idle time.
        pub burst: u32 = 10, range(1..=60_000);
        /// When text waits for the limit: `when_limited` or `always`.
        pub text_waits: TextWaits = TextWaits::WhenLimited;
        /// Longest retry time accepted from a platform, in seconds.
        pub max_retry_after_secs: u64 = 30, range(0..=MAX_SECS);
        /// Overrides by platform.
        pub platforms: BTreeMap<String, PlatformRateLimit>;
    }
}

/// Overrides for one platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlatformRateLimit {
    /// Ops per minute to one chat, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// Ops that may be sent together after an idle time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// When text waits for the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_waits: Option<TextWaits>,
}

/// Whether an op may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Now; it is counted.
    Now,
    /// Not before this time.
    At(Duration),
    /// Not at all: it is an indicator, and there is no room.
    Drop,
}

/// How many times slower the reserve fills than the limit itself.
const RESERVE_DIVISOR: u32 = 2;

/// One op per `every`, and up to `slack` ahead of that.
#[derive(Clone, Copy, Debug)]
struct Rate {
    every: Duration,
    slack: Duration,
    text_waits: TextWaits,
}

#[derive(Clone, Copy, Debug, Default)]
struct ChatRate {
    /// When everything that was sent would have been due at the average rate.
    due: Duration,
    /// The same for what was sent from the reserve.
    reserve_due: Duration,
    /// Nothing is sent before this time: the platform limited the chat.
    blocked_until: Duration,
    /// Text waits for the limit until this time.
    strict_until: Duration,
}

impl ChatRate {
    /// From when on it is as if nothing had been sent.
    fn last_use(&self) -> Duration {
        let limited = self.blocked_until.max(self.strict_until);
        self.due.max(self.reserve_due).max(limited)
    }
}

/// The rate limits of all chats.
#[derive(Debug)]
pub struct RateLimiter {
    default: Rate,
    by_platform: TextMap<String, Rate>,
    max_retry_after: Duration,
    chats: TextMap<Arc<str>, ChatRate>,
}

impl RateLimiter {
    /// A limiter that has counted nothing yet.
    pub fn new(settings: &RateLimitSettings) -> Self {
        let rate = |per_minute: u32, burst: u32, text_waits| {
            let every = Duration::from_secs(60) / per_minute.max(1);
            Rate {
                every,
                slack: every * burst.max(1),
                text_waits,
            }
        };
        let by_platform = settings.platforms.iter().map(|(platform, own)| {
            let own = rate(
                own.per_minute.unwrap_or(settings.per_minute),
                own.burst.unwrap_or(settings.burst),
                own.text_waits.unwrap_or(settings.text_waits),
            );
            (platform.clone(), own)
        });
        Self {
            default: rate(settings.per_minute, settings.burst, settings.text_waits),
            by_platform: by_platform.collect(),
            max_retry_after: Duration::from_secs(settings.max_retry_after_secs),
            chats: TextMap::default(),
        }
    }

    /// Whether an op to a chat may be sent now; if so, it is counted.
    pub fn acquire(&mut self, chat: &Arc<str>, priority: Priority, now: Duration) -> Permit {
        let rate = self.rate(chat);
        let chat = self.chat(chat, now);
        if now < chat.blocked_until {
            return match priority {
                Priority::Text => Permit::At(chat.blocked_until),
                Priority::Activity | Priority::Indicator => Permit::Drop,
            };
        }
        let ahead = chat.due.saturating_sub(now);
        let strict = rate.text_waits == TextWaits::Always || now < chat.strict_until;
        // Indicators leave half of the slack to text.
        let is_crowded = ahead + rate.every > rate.slack / 2 + rate.every / 2;
        match priority {
            Priority::Indicator if is_crowded => return Permit::Drop,
            Priority::Activity if is_crowded => {
                let every = rate.every * RESERVE_DIVISOR;
                let spent = chat.reserve_due.saturating_sub(now);
                if strict || spent + every > rate.slack.max(every) {
                    return Permit::Drop;
                }
                chat.reserve_due = chat.reserve_due.max(now) + every;
                return Permit::Now;
            }
            Priority::Text if strict && ahead + rate.every > rate.slack => {
                return Permit::At(now + (ahead + rate.every).saturating_sub(rate.slack));
            }
            Priority::Text | Priority::Activity | Priority::Indicator => {}
        }
        // Text that was sent beyond the limit is not counted for ever.
        chat.due = (chat.due.max(now) + rate.every).min(now + rate.slack);
        Permit::Now
    }

    /// The platform limited a chat. Nothing is sent to it before the returned time; the platform's own retry time counts
    /// up to a bound.
    pub fn on_rate_limited(
        &mut self,
        chat: &Arc<str>,
        retry_after: Option<Duration>,
        now: Duration,
    ) -> Duration {
        let wait = retry_after
            .unwrap_or(DEFAULT_RETRY_AFTER)
            .min(self.max_retry_after);
        let chat = self.chat(chat, now);
        chat.blocked_until = chat.blocked_until.max(now + wait);
        chat.strict_until = now + wait + STRICT_PERIOD;
        chat.blocked_until
    }

    fn rate(&self, chat: &str) -> Rate {
        if self.by_platform.is_empty() {
            return self.default;
        }
        let platform = chat.split(':').next().unwrap_or_default();
        self.by_platform.get(platform).copied().unwrap_or(self.default)
    }

    fn chat(&mut self, key: &Arc<str>, now: Duration) -> &mut ChatRate {
        if self.chats.len() >= MAX_CHATS && !self.chats.contains_key(key) {
            self.chats.retain(|_, chat| chat.last_use() > now);
            if self.chats.len() >= MAX_CHATS {
                self.chats.retain(|_, chat| chat.blocked_until > now);
            }
            if self.chats.len() >= MAX_CHATS {
                self.chats.clear();
            }
        }
        self.chats.entry(Arc::clone(key)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn key(name: &str) -> Arc<str> {
        name.into()
    }

    fn count(
        limiter: &mut RateLimiter,
        chat: &Arc<str>,
        priority: Priority,
        from: Duration,
        seconds: u64,
    ) -> usize {
        let tick = Duration::from_millis(10);
        let ticks = u32::try_from(seconds * 100).unwrap();
        let goes = |tick_no| limiter.acquire(chat, priority, from + tick * tick_no) == Permit::Now;
        (0..ticks).map(goes).filter(|went| *went).count()
    }

    #[test]
    fn indicators_keep_the_rate_and_leave_room_for_text() {
        let mut limiter = RateLimiter::new(&RateLimitSettings::default());
        let chat = key("discord:c");
        let shown = count(&mut limiter, &chat, Priority::Indicator, NOW, 60);
        assert!((60..=66).contains(&shown), "{shown}");
        let now = NOW + Duration::from_secs(60);
        assert_eq!(limiter.acquire(&chat, Priority::Indicator, now), Permit::Drop);
        assert_eq!(limiter.acquire(&chat, Priority::Text, now), Permit::Now);
        assert_eq!(
            limiter.acquire(&key("discord:d"), Priority::Indicator, now),
            Permit::Now
        );
    }

    #[test]
    fn text_is_sent_until_the_platform_limits_it_and_then_waits() {
        let mut limiter = RateLimiter::new(&RateLimitSettings::default());
        let chat = key("telegram:c");
        assert_eq!(count(&mut limiter, &chat, Priority::Text, NOW, 5), 500);
        let later = NOW + Duration::from_secs(5);
        let until = limiter.on_rate_limited(&chat, Some(Duration::from_secs(4)), later);
        assert_eq!(until, later + Duration::from_secs(4));
        assert_eq!(limiter.acquire(&chat, Priority::Text, later), Permit::At(until));
        assert_eq!(limiter.acquire(&chat, Priority::Indicator, later), Permit::Drop);
        let went = count(&mut limiter, &chat, Priority::Text, until, 60);
        assert!((60..=71).contains(&went), "{went}");
        assert_eq!(
            limiter.acquire(&key("telegram:d"), Priority::Text, later),
            Permit::Now
        );
    }

    #[test]
    fn a_lively_chat_keeps_its_signs_of_activity() {
        let mut limiter = RateLimiter::new(&RateLimitSettings::default());
        let chat = key("discord:c");
        // A person writes every two seconds; each answer is a text and two reactions in its order.
        for turn in 0..40 {
            let now = NOW + Duration::from_secs(2) * turn;
            let first = limiter.acquire(&chat, Priority::Activity, now);
            assert_eq!(first, Permit::Now, "turn {turn}");
            for _ in 0..3 {
                assert_eq!(limiter.acquire(&chat, Priority::Text, now), Permit::Now);
            }
            if turn > 3 {
                assert_eq!(limiter.acquire(&chat, Priority::Indicator, now), Permit::Drop);
            }
        }
        // They are limited themselves, however much text there is.
        let began = NOW + Duration::from_mins(10);
        assert_eq!(count(&mut limiter, &chat, Priority::Text, began, 1), 100);
        let shown = count(
            &mut limiter,
            &chat,
            Priority::Activity,
            began + Duration::from_secs(1),
            4,
        );
        assert!((5..=7).contains(&shown), "{shown}");
    }

    #[test]
    fn text_that_waits_has_all_of_the_limit() {
        let settings = RateLimitSettings {
            text_waits: TextWaits::Always,
            ..RateLimitSettings::default()
        };
        let went = |with_signs: bool| {
            let mut limiter = RateLimiter::new(&settings);
            let chat = key("discord:c");
            let (mut texts, mut signs) = (0, 0);
            for tick in 0..600 {
                let now = NOW + Duration::from_millis(100) * tick;
                texts += u32::from(limiter.acquire(&chat, Priority::Text, now) == Permit::Now);
                if with_signs {
                    signs += u32::from(limiter.acquire(&chat, Priority::Activity, now) == Permit::Now);
                }
            }
            (texts, signs)
        };
        let ((alone, _), (beside, signs)) = (went(false), went(true));
        assert!(signs <= 5, "{signs}");
        assert!(alone - beside <= signs, "{alone} and {beside}, {signs} signs");
        // A chat that its platform limits is the same.
        let mut limiter = RateLimiter::new(&RateLimitSettings::default());
        let chat = key("discord:c");
        let until = limiter.on_rate_limited(&chat, None, NOW);
        assert_eq!(limiter.acquire(&chat, Priority::Activity, NOW), Permit::Drop);
        assert_eq!(count(&mut limiter, &chat, Priority::Text, until, 1), 10);
        let now = until + Duration::from_secs(1);
        assert_eq!(limiter.acquire(&chat, Priority::Activity, now), Permit::Drop);
    }

    #[test]
    fn a_long_retry_time_is_bounded() {
        let settings = RateLimitSettings {
            text_waits: TextWaits::Always,
            ..RateLimitSettings::default()
        };
        let mut limiter = RateLimiter::new(&settings);
        let chat = key("slack:c");
        assert_eq!(count(&mut limiter, &chat, Priority::Text, NOW, 1), 10);
        let now = NOW + Duration::from_secs(1);
        assert!(matches!(
            limiter.acquire(&chat, Priority::Text, now),
            Permit::Now | Permit::At(_)
        ));
        let until = limiter.on_rate_limited(&chat, Some(Duration::from_secs(7740)), now);
        assert_eq!(until, now + Duration::from_secs(30));
    }

    #[test]
    fn a_platform_has_its_own_rate_and_memory_is_bounded() {
        let own = PlatformRateLimit {
            per_minute: Some(20),
            burst: Some(3),
            text_waits: Some(TextWaits::Always),
        };
        let settings = RateLimitSettings {
            platforms: BTreeMap::from([("telegram".to_owned(), own)]),
            ..RateLimitSettings::default()
        };
        let mut limiter = RateLimiter::new(&settings);
        let went = count(&mut limiter, &key("telegram:c"), Priority::Text, NOW, 60);
        assert!((20..=23).contains(&went), "{went}");
        for chat in 0..MAX_CHATS * 2 {
            limiter.on_rate_limited(&key(&format!("x:{chat}")), None, NOW);
        }
        assert!(limiter.chats.len() <= MAX_CHATS);
    }
}
