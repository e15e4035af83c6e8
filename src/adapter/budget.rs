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

use super::speech::Weight;

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
pub struct BudgetSettings {
    /// Ops to one chat, in a minute, over time.
    pub per_minute: u32,
    /// Ops that may come at once after a quiet time.
    pub burst: u32,
    /// When text waits for it: `when_limited` or `always`.
    pub text_waits: TextWaits,
    /// The longest wait that a platform may impose at a time.
    pub max_retry_after_secs: u64,
    /// What differs on a platform.
    pub platforms: BTreeMap<String, PlatformBudget>,
}

/// What differs on one platform; what is not set is as everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlatformBudget {
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

impl Default for BudgetSettings {
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
pub enum Leave {
    /// Now; it is paid for.
    Go,
    /// Not before then.
    Wait(Duration),
    /// Not at all.
    Shed,
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

/// The budgets of all chats.
#[derive(Debug)]
pub struct Budgets {
    usual: Rate,
    by_platform: HashMap<String, Rate>,
    longest_hold: Duration,
    chats: HashMap<Arc<str>, Chat>,
}

impl Budgets {
    /// Nothing has been spent yet.
    pub fn new(settings: &BudgetSettings) -> Self {
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
    pub fn ask(&mut self, lane: &Arc<str>, weight: Weight, now: Duration) -> Leave {
        let rate = self.rate(lane);
        let chat = self.chat(lane, now);
        if now < chat.held {
            return match weight {
                Weight::Text => Leave::Wait(chat.held),
                Weight::Cosmetic => Leave::Shed,
            };
        }
        let ahead = chat.paid.saturating_sub(now);
        let by_the_budget = rate.text_waits == TextWaits::Always || now < chat.strict;
        match weight {
            // What is for show leaves half of the slack to what is not.
            Weight::Cosmetic if ahead + rate.every > rate.slack / 2 + rate.every / 2 => return Leave::Shed,
            Weight::Text if by_the_budget && ahead + rate.every > rate.slack => {
                return Leave::Wait(now + (ahead + rate.every).saturating_sub(rate.slack));
            }
            Weight::Text | Weight::Cosmetic => {}
        }
        // Text that went although nothing was left is not paid off for ever.
        chat.paid = (chat.paid.max(now) + rate.every).min(now + rate.slack);
        Leave::Go
    }

    /// The platform said that it was too much; nothing goes there before the time that is returned. How long it asks
    /// for is not trusted beyond a bound.
    pub fn limited(&mut self, lane: &Arc<str>, retry_after: Option<Duration>, now: Duration) -> Duration {
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

    fn count(budgets: &mut Budgets, lane: &Arc<str>, weight: Weight, from: Duration, seconds: u64) -> usize {
        let tick = Duration::from_millis(10);
        let ticks = u32::try_from(seconds * 100).unwrap();
        let goes = |tick_no| budgets.ask(lane, weight, from + tick * tick_no) == Leave::Go;
        (0..ticks).map(goes).filter(|went| *went).count()
    }

    #[test]
    fn what_is_for_show_keeps_the_pace_and_leaves_room_for_text() {
        let mut budgets = Budgets::new(&BudgetSettings::default());
        let chat = lane("discord:c");
        let shown = count(&mut budgets, &chat, Weight::Cosmetic, NOW, 60);
        assert!((60..=66).contains(&shown), "{shown}");
        let now = NOW + Duration::from_secs(60);
        assert_eq!(budgets.ask(&chat, Weight::Cosmetic, now), Leave::Shed);
        assert_eq!(budgets.ask(&chat, Weight::Text, now), Leave::Go);
        assert_eq!(budgets.ask(&lane("discord:d"), Weight::Cosmetic, now), Leave::Go);
    }

    #[test]
    fn text_goes_until_the_platform_says_it_was_too_much_and_then_waits() {
        let mut budgets = Budgets::new(&BudgetSettings::default());
        let chat = lane("telegram:c");
        assert_eq!(count(&mut budgets, &chat, Weight::Text, NOW, 5), 500);
        let later = NOW + Duration::from_secs(5);
        let until = budgets.limited(&chat, Some(Duration::from_secs(4)), later);
        assert_eq!(until, later + Duration::from_secs(4));
        assert_eq!(budgets.ask(&chat, Weight::Text, later), Leave::Wait(until));
        assert_eq!(budgets.ask(&chat, Weight::Cosmetic, later), Leave::Shed);
        let went = count(&mut budgets, &chat, Weight::Text, until, 60);
        assert!((60..=71).contains(&went), "{went}");
        assert_eq!(budgets.ask(&lane("telegram:d"), Weight::Text, later), Leave::Go);
    }

    #[test]
    fn an_endless_hold_is_cut_and_a_wait_is_never_longer_than_the_pace() {
        let settings = BudgetSettings {
            text_waits: TextWaits::Always,
            ..BudgetSettings::default()
        };
        let mut budgets = Budgets::new(&settings);
        let chat = lane("slack:c");
        assert_eq!(count(&mut budgets, &chat, Weight::Text, NOW, 1), 10);
        let now = NOW + Duration::from_secs(1);
        assert!(matches!(
            budgets.ask(&chat, Weight::Text, now),
            Leave::Go | Leave::Wait(_)
        ));
        let until = budgets.limited(&chat, Some(Duration::from_secs(7740)), now);
        assert_eq!(until, now + Duration::from_secs(30));
    }

    #[test]
    fn a_platform_has_its_own_pace_and_the_memory_is_bounded() {
        let own = PlatformBudget {
            per_minute: Some(20),
            burst: Some(3),
            text_waits: Some(TextWaits::Always),
        };
        let settings = BudgetSettings {
            platforms: BTreeMap::from([("telegram".to_owned(), own)]),
            ..BudgetSettings::default()
        };
        let mut budgets = Budgets::new(&settings);
        let went = count(&mut budgets, &lane("telegram:c"), Weight::Text, NOW, 60);
        assert!((20..=23).contains(&went), "{went}");
        for chat in 0..MOST_CHATS * 2 {
            budgets.limited(&lane(&format!("x:{chat}")), None, NOW);
        }
        assert!(budgets.chats.len() <= MOST_CHATS);
    }
}
