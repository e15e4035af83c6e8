//! Limits per person, and the guard against bots that answer each other.
//!
//! Only people with an id are limited. At most [`MAX_PEOPLE`] are remembered, the least recently seen are forgotten first: who
//! is forgotten starts anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use smol_str::SmolStr;

use super::author::Author;
use super::gate::{EventKind, Reason};
use super::identity::PersonId;
use super::settings::{ByRole, LimitSettings, Role};
use crate::collections::BoundedCache;
use crate::words::PhraseKey;

/// People whose use is remembered.
const MAX_PEOPLE: usize = 10_000;
const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// Who says that a message is older than this is not believed: it counts when it comes.
const MAX_LATE_MS: i64 = 7 * DAY_MS;
/// Messages that arrive this soon after an answer look as if a program wrote them.
const QUICK_MS: i64 = 10_000;
/// This many of them from one author, within [`LOOP_MS`], are a loop.
const MAX_QUICK: usize = 6;
const LOOP_MS: i64 = 90_000;
/// How long somebody is paused who looks like a program.
const PAUSE_MS: i64 = 15 * MINUTE_MS;
/// What they read, by whether they may send `/new`.
const PAUSED: [&str; 2] = [
    PhraseKey::LoopPaused.english(),
    PhraseKey::LoopPausedNew.english(),
];

/// Chats whose bots are counted.
const MAX_CHATS: usize = 10_000;
/// Chats of a person in which their reactions are remembered, and in which they read that they are paused.
const MAX_CHATS_OF_PERSON: usize = 32;

/// A chat by its platform and its id.
type BotChat = (String, String);

/// What bots did in a chat and its threads since a person wrote there.
#[derive(Debug, Default)]
struct BotTurns {
    count: u64,
    notified: bool,
}

/// What a person has used, and how they write.
#[derive(Debug, Default)]
struct PersonState {
    minute: Minute,
    /// The minute of what waited while nobody took it: it leaves the one that runs as it is.
    late_minute: Minute,
    day: i64,
    turns: u64,
    tokens: u64,
    day_notified: bool,
    /// How they react to answers, by chat: what they write in one chat is no reaction to an answer in another.
    reactions: BTreeMap<String, Reactions>,
    /// They answer like a program: nothing runs before then, unless they send `/new`.
    paused_until: Option<i64>,
    /// The chats in which they read that.
    pause_notified: BTreeSet<String>,
}

/// What was written in a minute.
#[derive(Debug, Default)]
struct Minute {
    /// When it begins.
    start_ms: i64,
    count: u64,
    notified: bool,
}

impl Minute {
    /// Begins anew when this is in another one.
    fn roll(&mut self, at_ms: i64) {
        if !(0..MINUTE_MS).contains(&at_ms.saturating_sub(self.start_ms)) {
            *self = Self {
                start_ms: at_ms,
                ..Self::default()
            };
        }
    }

    /// Adds what was counted under another id.
    fn absorb(&mut self, other: &Self) {
        match other.start_ms.saturating_sub(self.start_ms) {
            MINUTE_MS.. => (self.start_ms, self.count) = (other.start_ms, other.count),
            apart if apart > -MINUTE_MS => self.count += other.count,
            _ => {}
        }
    }
}

/// How a person reacts to answers in a chat.
#[derive(Debug, Default)]
struct Reactions {
    /// When our last answer went out that they have not reacted to.
    answered_ms: Option<i64>,
    /// When they reacted to an answer at once.
    quick: VecDeque<i64>,
}

impl Reactions {
    /// The last time that counts.
    fn last_ms(&self) -> i64 {
        let last = self.answered_ms.into_iter().chain(self.quick.back().copied());
        last.max().unwrap_or(i64::MIN)
    }
}

/// When a message came, and when it was written.
#[derive(Debug, Clone, Copy)]
pub struct MessageTime {
    /// Unix milliseconds.
    pub now_ms: i64,
    /// Unix milliseconds, where that is known.
    pub written_ms: Option<i64>,
}

impl MessageTime {
    /// When it was written, if it waited while nobody took it: then it counts in the minute of that time.
    fn late_ms(self) -> Option<i64> {
        let is_late = |written_ms: &i64| {
            let waited_ms = self.now_ms.saturating_sub(*written_ms);
            waited_ms > MINUTE_MS && waited_ms <= MAX_LATE_MS
        };
        self.written_ms.filter(is_late)
    }
}

impl From<i64> for MessageTime {
    fn from(now_ms: i64) -> Self {
        let written_ms = None;
        Self { now_ms, written_ms }
    }
}

/// Why somebody must wait, and what to write to them, once per window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit, or the guard.
    pub reason: Reason,
    /// What they get to read; nothing when they were notified before.
    pub notice: Option<&'static str>,
}

/// What people have used.
#[derive(Debug)]
pub struct Limits {
    settings: LimitSettings,
    people: BoundedCache<PersonId, PersonState>,
    /// Further ids of people, and the one that their use is counted under.
    other_ids: BoundedCache<PersonId, PersonId>,
    max_bot_turns: u64,
    bot_turns: BoundedCache<BotChat, BotTurns>,
}

impl Limits {
    /// Nothing is used yet.
    pub fn new(settings: LimitSettings, max_bot_turns: u64) -> Self {
        Self {
            settings,
            people: BoundedCache::new(MAX_PEOPLE),
            other_ids: BoundedCache::new(MAX_PEOPLE),
            max_bot_turns,
            bot_turns: BoundedCache::new(MAX_CHATS),
        }
    }

    /// Whom the use of an author is counted under: one id, whichever of theirs they write with. What was counted under another one
    /// before it was known to be theirs is added.
    pub fn person(&mut self, author: &Author) -> Option<PersonId> {
        let ids = &author.people;
        let counted = |id: &PersonId| self.people.peek(id).is_some();
        let known = ids.iter().find_map(|id| {
            let id = self.other_ids.peek(id).unwrap_or(id);
            counted(id).then(|| id.clone())
        });
        let person = known.or_else(|| ids.first().cloned())?;
        for id in ids.iter().filter(|id| **id != person) {
            let other = self.other_ids.insert(id.clone(), person.clone());
            let other = other
                .filter(|other| *other != person)
                .unwrap_or_else(|| id.clone());
            if let Some(used) = self.people.remove(&other) {
                self.state(&person).absorb(used);
            }
        }
        Some(person)
    }

    /// An earlier run left this: what a person used on a day.
    pub fn restore(&mut self, person: &PersonId, day: i64, turns: u64, tokens: u64) {
        let state = self.state(person);
        if state.day == day {
            state.turns = state.turns.saturating_add(turns);
            state.tokens = state.tokens.saturating_add(tokens);
        } else {
            (state.day, state.turns, state.tokens) = (day, turns, tokens);
        }
    }

    /// Something came in a chat from a person whom the gate let through.
    pub fn check(
        &mut self,
        person: &PersonId,
        role: Role,
        (kind, chat): (EventKind, &str),
        time: impl Into<MessageTime>,
    ) -> Option<Exceeded> {
        let time: MessageTime = time.into();
        let now_ms = time.now_ms;
        let limit = |limit: &Option<ByRole>| limit.as_ref().and_then(|limit| limit.of(role));
        let per_minute = limit(&self.settings.per_user_per_minute);
        let state = self.state(person);
        state.roll(now_ms);
        match kind {
            // Whoever has written too much can still stop it, and answer what is asked.
            EventKind::Stop | EventKind::Press | EventKind::TypedAnswer => return None,
            EventKind::Command | EventKind::Inquiry => {
                state.minute_of(time).count += 1;
            }
            EventKind::Message | EventKind::Interaction => {
                state.minute_of(time).count += 1;
                if let Some(exceeded) = state.guard(role, chat, now_ms) {
                    return Some(exceeded);
                }
            }
        }
        let minute = state.minute_of(time);
        if per_minute.is_some_and(|most| minute.count > most) {
            let first = !std::mem::replace(&mut minute.notified, true);
            return Some(Exceeded {
                reason: Reason::Limit,
                notice: first.then_some(PhraseKey::TooFast.english()),
            });
        }
        match kind {
            EventKind::Message | EventKind::Interaction => {
                let used_up = self.is_day_used_up(person, role, now_ms);
                used_up.then(|| Exceeded {
                    reason: Reason::Limit,
                    notice: self.day_notice(person),
                })
            }
            EventKind::Press
            | EventKind::TypedAnswer
            | EventKind::Stop
            | EventKind::Command
            | EventKind::Inquiry => None,
        }
    }

    /// A turn of theirs is about to begin: whether they have used up a limit of the day.
    pub fn is_day_used_up(&mut self, person: &PersonId, role: Role, now_ms: i64) -> bool {
        let limit = |limit: &Option<ByRole>| limit.as_ref().and_then(|limit| limit.of(role));
        let (turns, tokens) = (
            limit(&self.settings.turns_per_day),
            limit(&self.settings.tokens_per_day),
        );
        let state = self.state(person);
        state.roll(now_ms);
        turns.is_some_and(|most| state.turns >= most) || tokens.is_some_and(|most| state.tokens >= most)
    }

    /// What somebody who has used up a limit of the day gets to read; nothing when they were notified before.
    pub fn day_notice(&mut self, person: &PersonId) -> Option<&'static str> {
        let first = !std::mem::replace(&mut self.state(person).day_notified, true);
        first.then_some(PhraseKey::DailyLimit.english())
    }

    /// Somebody wrote in a chat: a person, or a bot that may do so only so often without one.
    pub fn check_bot(&mut self, author: &Author) -> Option<Exceeded> {
        if !author.is_bot && self.bot_turns.is_empty() {
            return None;
        }
        let chats = bot_chats(author);
        if !author.is_bot {
            for chat in &chats {
                self.bot_turns.remove(chat);
            }
            return None;
        }
        for chat in &chats {
            if self.bot_turns.peek(chat).is_none() {
                self.bot_turns.insert(chat.clone(), BotTurns::default());
            }
        }
        if let Some(full) = chats.iter().find(|chat| self.is_full_of_bots(chat, 0)) {
            let turns = self.bot_turns.get_mut(full)?;
            let first = !std::mem::replace(&mut turns.notified, true);
            return Some(Exceeded {
                reason: Reason::Loop,
                notice: first.then_some(PhraseKey::OnlyBots.english()),
            });
        }
        for chat in &chats {
            self.bot_turns.get_mut(chat)?.count += 1;
        }
        None
    }

    /// Whether bots may do nothing more in a chat until a person writes there, if they did so much else before.
    fn is_full_of_bots(&self, chat: &BotChat, others: u64) -> bool {
        let count = self.bot_turns.peek(chat).map_or(0, |turns| turns.count);
        count.saturating_add(others) >= self.max_bot_turns
    }

    /// Whether [`Self::check`] or [`Self::check_bot`] would refuse one more message, if so many others came before it. Nothing is
    /// counted.
    pub fn would_exceed(
        &mut self,
        author: &Author,
        role: Role,
        others: u64,
        time: impl Into<MessageTime>,
    ) -> bool {
        let time: MessageTime = time.into();
        let mut chats = bot_chats(author).into_iter();
        if author.is_bot && chats.any(|chat| self.is_full_of_bots(&chat, others)) {
            return true;
        }
        let Some(person) = self.person(author) else {
            return false;
        };
        let per_minute = self.settings.per_user_per_minute.as_ref();
        let per_minute = per_minute.and_then(|limit| limit.of(role));
        let state = self.state(&person);
        let minute = state.minute_of(time).count.saturating_add(others);
        let is_paused = state.is_paused(time.now_ms);
        is_paused
            || per_minute.is_some_and(|most| minute >= most)
            || self.is_day_used_up(&person, role, time.now_ms)
    }

    /// A turn of theirs begins.
    pub fn turn_started(&mut self, person: &PersonId, now_ms: i64) {
        let state = self.state(person);
        state.roll(now_ms);
        state.turns = state.turns.saturating_add(1);
    }

    /// A turn of theirs has ended, with so many tokens. Only what follows the answer to a message, in the chat of that answer, may be an
    /// answer to it.
    pub fn turn_ended(&mut self, person: &PersonId, tokens: u64, replied_in: Option<&str>, now_ms: i64) {
        let state = self.state(person);
        state.roll(now_ms);
        state.tokens = state.tokens.saturating_add(tokens);
        if let Some(chat) = replied_in {
            state.answered(chat, now_ms);
        }
    }

    /// They start a new conversation: whoever was paused goes on.
    pub fn resume(&mut self, person: &PersonId) {
        let state = self.state(person);
        state.end_pause();
        for reactions in state.reactions.values_mut() {
            reactions.quick.clear();
        }
    }

    /// Turns and tokens of a person today.
    pub fn today(&mut self, person: &PersonId, now_ms: i64) -> (u64, u64) {
        let state = self.state(person);
        state.roll(now_ms);
        (state.turns, state.tokens)
    }

    fn state(&mut self, person: &PersonId) -> &mut PersonState {
        if self.people.peek(person).is_none() {
            self.people.insert(person.clone(), PersonState::default());
        }
        self.people.get_mut(person).expect("it was inserted")
    }
}

/// Where a bot's turn counts: in its chat, and in the one that it is a thread of. Each message may start a thread.
fn bot_chats(author: &Author) -> Vec<BotChat> {
    let parents = author.chats.iter().skip(1).map(SmolStr::as_str);
    std::iter::once(author.chat())
        .chain(parents)
        .map(|chat| (author.platform.to_string(), chat.to_owned()))
        .collect()
}

impl PersonState {
    /// Adds what was counted under another id.
    fn absorb(&mut self, other: Self) {
        self.minute.absorb(&other.minute);
        self.late_minute.absorb(&other.late_minute);
        if other.day == self.day {
            self.turns = self.turns.saturating_add(other.turns);
            self.tokens = self.tokens.saturating_add(other.tokens);
        } else if other.day > self.day {
            (self.day, self.turns, self.tokens) = (other.day, other.turns, other.tokens);
        }
        for (chat, reactions) in other.reactions {
            let own = self.reactions.entry(chat).or_default();
            own.answered_ms = own.answered_ms.max(reactions.answered_ms);
        }
        self.limit_reactions();
        self.paused_until = self.paused_until.max(other.paused_until);
        self.pause_notified.extend(other.pause_notified);
    }

    /// An answer to them went out in a chat.
    fn answered(&mut self, chat: &str, now_ms: i64) {
        self.reactions.entry(chat.to_owned()).or_default().answered_ms = Some(now_ms);
        self.limit_reactions();
    }

    /// Forgets the chats that they have not been answered in for the longest time.
    fn limit_reactions(&mut self) {
        while self.reactions.len() > MAX_CHATS_OF_PERSON {
            let oldest = (self.reactions.iter()).min_by_key(|(_, reactions)| reactions.last_ms());
            let Some(oldest) = oldest.map(|(chat, _)| chat.clone()) else {
                return;
            };
            self.reactions.remove(&oldest);
        }
    }

    fn end_pause(&mut self) {
        self.paused_until = None;
        self.pause_notified.clear();
    }

    /// What they read about their pause in a chat; nothing when they read it there before.
    fn pause_notice(&mut self, role: Role, chat: &str) -> Option<&'static str> {
        let is_new =
            self.pause_notified.len() < MAX_CHATS_OF_PERSON && self.pause_notified.insert(chat.to_owned());
        is_new.then_some(PAUSED[usize::from(role != Role::Guest)])
    }

    /// The minute that a message counts in.
    fn minute_of(&mut self, time: MessageTime) -> &mut Minute {
        let (minute, at_ms) = match time.late_ms() {
            Some(written_ms) => (&mut self.late_minute, written_ms),
            None => (&mut self.minute, time.now_ms),
        };
        minute.roll(at_ms);
        minute
    }

    /// Begins a new day when the last is over.
    fn roll(&mut self, now_ms: i64) {
        let day = now_ms.div_euclid(DAY_MS);
        if self.day != day {
            (self.day, self.turns, self.tokens, self.day_notified) = (day, 0, 0, false);
        }
    }

    fn is_paused(&self, now_ms: i64) -> bool {
        // A clock that went back must not make it longer.
        self.paused_until
            .is_some_and(|until| (until - PAUSE_MS..until).contains(&now_ms))
    }

    fn guard(&mut self, role: Role, chat: &str, now_ms: i64) -> Option<Exceeded> {
        if self.paused_until.is_some() && !self.is_paused(now_ms) {
            self.end_pause();
            self.reactions.clear();
        }
        if self.paused_until.is_none() && self.reacts_like_a_program(chat, now_ms) {
            self.paused_until = Some(now_ms.saturating_add(PAUSE_MS));
        }
        self.paused_until.map(|_| Exceeded {
            reason: Reason::Loop,
            notice: self.pause_notice(role, chat),
        })
    }

    /// Whether a message is one of many reactions to answers in its chat, each at once.
    fn reacts_like_a_program(&mut self, chat: &str, now_ms: i64) -> bool {
        let Some(reactions) = self.reactions.get_mut(chat) else {
            return false;
        };
        // Only what comes after an answer counts; a person who writes several messages at a time is no program.
        let Some(answered) = reactions.answered_ms.take() else {
            return false;
        };
        if now_ms.saturating_sub(answered) > QUICK_MS {
            self.reactions.remove(chat);
            return false;
        }
        let quick = &mut reactions.quick;
        quick.push_back(now_ms);
        quick.retain(|at| now_ms.saturating_sub(*at) <= LOOP_MS);
        quick.len() >= MAX_QUICK
    }
}
