//! How fast may be spoken to each chat: one budget for everything that goes there.
//!
//! Sends, edits, typing and reactions all draw on it. What is only for show is dropped when it is used up; text is
//! never dropped, it waits. Text waits for the budget itself only where that is set, or in a chat whose platform has
//! said that it was too much; otherwise it is charged and goes. Each chat has its own, so that none delays another.
//! Holds no texts and never decides what is said.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stream::Priority;

/// Chats whose budget is in use at most; beyond it, the ones longest quiet are taken as fresh.
const MOST_CHATS: usize = 16 * 1024;
/// How long a chat is spoken to strictly by the budget after its platform said that it was too much.
const STRICT: Duration = Duration::from_secs(600);
/// What is waited when the platform says that it was too much, and not for how long.
const UNSAID_WAIT: Duration = Duration::from_secs(2);

/// When text waits for the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextWaits {
    /// Only in a chat whose platform has lately said that it was too much.
    #[default]
    WhenLimited,
    /// Always.
    Always,
}

/// How fast may be spoken to a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitSettings {
    /// Ops to one chat, in a minute, over time.
    pub per_minute: u32,
    /// Ops that may come at once after a quiet time.
    pub burst: u32,
    /// When text waits for it: `when_limited` or `always`.
    pub text_waits: TextWaits,
    /// The longest wait that a platform may impose at a time.
    pub max_retry_after_secs: u64,
    /// What differs on a platform.
    pub platforms: BTreeMap<String, PlatformRateLimit>,
}

/// What differs on one platform; what is not set is as everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlatformRateLimit {
    /// Ops to one chat, in a minute, over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// Ops that may come at once after a quiet time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// When text waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_waits: Option<TextWaits>,
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        Self {
            per_minute: 60,
            burst: 10,
            text_waits: TextWaits::WhenLimited,
            max_retry_after_secs: 30,
            platforms: BTreeMap::new(),
        }
    }
}

/// Whether an op may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Now; it is paid for.
    Now,
    /// Not before then.
    At(Duration),
    /// Not at all.
    Drop,
}

/// A rate: one op each `every`, and `slack` ahead of that.
#[derive(Clone, Copy, Debug)]
struct Rate {
    every: Duration,
    slack: Duration,
    text_waits: TextWaits,
}

#[derive(Clone, Copy, Debug, Default)]
struct Chat {
    /// When everything that went would have been due at the even pace.
    paid: Duration,
    /// Nothing goes before then: the platform said so.
    held: Duration,
    /// Until then text waits for the budget too.
    strict: Duration,
}

/// The limiter of all chats.
#[derive(Debug)]
pub struct RateLimiter {
    usual: Rate,
    by_platform: HashMap<String, Rate>,
    longest_hold: Duration,
    chats: HashMap<Arc<str>, Chat>,
}

impl RateLimiter {
    /// Nothing has been spent yet.
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
            usual: rate(settings.per_minute, settings.burst, settings.text_waits),
            by_platform: by_platform.collect(),
            longest_hold: Duration::from_secs(settings.max_retry_after_secs),
            chats: HashMap::new(),
        }
    }

    /// Whether an op to a chat may go now; if so, it is charged.
    pub fn acquire(&mut self, lane: &Arc<str>, priority: Priority, now: Duration) -> Permit {
        let rate = self.rate(lane);
        let chat = self.chat(lane, now);
        if now < chat.held {
            return match priority {
                Priority::Text => Permit::At(chat.held),
                Priority::Indicator => Permit::Drop,
            };
        }
        let ahead = chat.paid.saturating_sub(now);
        let by_the_budget = rate.text_waits == TextWaits::Always || now < chat.strict;
        match priority {
            // What is for show leaves half of the slack to what is not.
            Priority::Indicator if ahead + rate.every > rate.slack / 2 + rate.every / 2 => {
                return Permit::Drop;
            }
            Priority::Text if by_the_budget && ahead + rate.every > rate.slack => {
                return Permit::At(now + (ahead + rate.every).saturating_sub(rate.slack));
            }
            Priority::Text | Priority::Indicator => {}
        }
        // Text that went although nothing was left is not paid off for ever.
        chat.paid = (chat.paid.max(now) + rate.every).min(now + rate.slack);
        Permit::Now
    }

    /// The platform said that it was too much; nothing goes there before the time that is returned. How long it asks
    /// for is not trusted beyond a bound.
    pub fn on_rate_limited(
        &mut self,
        lane: &Arc<str>,
        retry_after: Option<Duration>,
        now: Duration,
    ) -> Duration {
        let wait = retry_after.unwrap_or(UNSAID_WAIT).min(self.longest_hold);
        let chat = self.chat(lane, now);
        chat.held = chat.held.max(now + wait);
        chat.strict = now + wait + STRICT;
        chat.held
    }

    fn rate(&self, lane: &str) -> Rate {
        if self.by_platform.is_empty() {
            return self.usual;
        }
        let platform = lane.split(':').next().unwrap_or_default();
        self.by_platform.get(platform).copied().unwrap_or(self.usual)
    }

    fn chat(&mut self, lane: &Arc<str>, now: Duration) -> &mut Chat {
        if self.chats.len() >= MOST_CHATS && !self.chats.contains_key(lane) {
            self.chats
                .retain(|_, chat| chat.paid > now || chat.held > now || chat.strict > now);
            if self.chats.len() >= MOST_CHATS {
                self.chats.retain(|_, chat| chat.held > now);
            }
            if self.chats.len() >= MOST_CHATS {
                self.chats.clear();
            }
        }
        self.chats.entry(Arc::clone(lane)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn lane(name: &str) -> Arc<str> {
        name.into()
    }

    fn count(
        limiter: &mut RateLimiter,
        lane: &Arc<str>,
        priority: Priority,
        from: Duration,
        seconds: u64,
    ) -> usize {
        let tick = Duration::from_millis(10);
        let ticks = u32::try_from(seconds * 100).unwrap();
        let goes = |tick_no| limiter.acquire(lane, priority, from + tick * tick_no) == Permit::Now;
        (0..ticks).map(goes).filter(|went| *went).count()
    }

    #[test]
    fn what_is_for_show_keeps_the_pace_and_leaves_room_for_text() {
        let mut limiter = RateLimiter::new(&RateLimitSettings::default());
        let chat = lane("discord:c");
        let shown = count(&mut limiter, &chat, Priority::Indicator, NOW, 60);
        assert!((60..=66).contains(&shown), "{shown}");
        let now = NOW + Duration::from_secs(60);
        assert_eq!(limiter.acquire(&chat, Priority::Indicator, now), Permit::Drop);
        assert_eq!(limiter.acquire(&chat, Priority::Text, now), Permit::Now);
        assert_eq!(
            limiter.acquire(&lane("discord:d"), Priority::Indicator, now),
            Permit::Now
        );
    }

    #[test]
    fn text_goes_until_the_platform_says_it_was_too_much_and_then_waits() {
        let mut limiter = RateLimiter::new(&RateLimitSettings::default());
        let chat = lane("telegram:c");
        assert_eq!(count(&mut limiter, &chat, Priority::Text, NOW, 5), 500);
        let later = NOW + Duration::from_secs(5);
        let until = limiter.on_rate_limited(&chat, Some(Duration::from_secs(4)), later);
        assert_eq!(until, later + Duration::from_secs(4));
        assert_eq!(limiter.acquire(&chat, Priority::Text, later), Permit::At(until));
        assert_eq!(limiter.acquire(&chat, Priority::Indicator, later), Permit::Drop);
        let went = count(&mut limiter, &chat, Priority::Text, until, 60);
        assert!((60..=71).contains(&went), "{went}");
        assert_eq!(
            limiter.acquire(&lane("telegram:d"), Priority::Text, later),
            Permit::Now
        );
    }

    #[test]
    fn an_endless_hold_is_cut_and_a_wait_is_never_longer_than_the_pace() {
        let settings = RateLimitSettings {
            text_waits: TextWaits::Always,
            ..RateLimitSettings::default()
        };
        let mut limiter = RateLimiter::new(&settings);
        let chat = lane("slack:c");
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
    fn a_platform_has_its_own_pace_and_the_memory_is_bounded() {
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
        let went = count(&mut limiter, &lane("telegram:c"), Priority::Text, NOW, 60);
        assert!((20..=23).contains(&went), "{went}");
        for chat in 0..MOST_CHATS * 2 {
            limiter.on_rate_limited(&lane(&format!("x:{chat}")), None, NOW);
        }
        assert!(limiter.chats.len() <= MOST_CHATS);
    }
}
