//! Conversation history of sessions, for agents that keep none themselves.
//!
//! Bounded by turns and characters: the oldest turns go first, and only then is what is left cut. User and agent always
//! take turns, starting with the user: messages that got no answer are joined with the next one. It does no I/O;
//! `TranscriptStore` keeps it.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{EventSink, PreferenceAnswer, PreferenceOffer, PreferenceOption, PreferenceRequest, Turn};
use crate::collections::BoundedCache;
use crate::wire::SessionKey;

/// Marks an interrupted answer.
const INTERRUPTED_MARK: &str = "[the answer was interrupted here]";
/// Stands for an answer without text, so that what was asked is not asked again with the next message.
const NO_TEXT_MARK: &str = "[no text]";
/// Marks removed text.
const TRUNCATED_MARK: &str = "[…]";

/// Limits of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most turns, the current one included; at least one is kept.
    pub turns: usize,
    /// Most characters, of what was asked and answered together.
    pub chars: usize,
}

/// Author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRole {
    /// The people in the chat.
    User,
    /// The agent that answers.
    Assistant,
}

impl MessageRole {
    /// The role's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// How far an answer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerExtent {
    /// To its end.
    Whole,
    /// Not to its end.
    Interrupted,
}

/// The messages, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    exchanges: Vec<TranscriptTurn>,
    /// The model that people chose for the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TranscriptTurn {
    user: String,
    /// Empty as long as there is no answer, which only the last exchange may be.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    agent: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

impl Transcript {
    /// Reads saved state; invalid state is empty.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let read: Self = serde_json::from_slice(bytes).unwrap_or_default();
        let mut clean = Self {
            model: read.model,
            ..Self::default()
        };
        for exchange in read.exchanges {
            clean.push_user(&exchange.user);
            let extent = if exchange.interrupted || exchange.agent.is_empty() {
                AnswerExtent::Interrupted
            } else {
                AnswerExtent::Whole
            };
            clean.answer(&exchange.agent, extent);
        }
        clean
    }

    /// Serializes it; empty for an empty transcript.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.exchanges.is_empty() && self.model.is_none() {
            return Vec::new();
        }
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Appends a user message; joined with an unanswered one.
    pub fn push_user(&mut self, text: &str) {
        match self.exchanges.last_mut() {
            Some(last) if last.agent.is_empty() => {
                if !last.user.is_empty() && !text.is_empty() {
                    last.user.push_str("\n\n");
                }
                last.user.push_str(text);
            }
            _ => self.exchanges.push(TranscriptTurn {
                user: text.to_owned(),
                ..TranscriptTurn::default()
            }),
        }
    }

    /// Sets the answer to the last message; one that was interrupted before any text leaves it unanswered.
    pub fn answer(&mut self, text: &str, extent: AnswerExtent) {
        let text = match (text.trim(), extent) {
            ("", AnswerExtent::Interrupted) => return,
            ("", AnswerExtent::Whole) => NO_TEXT_MARK,
            (text, _) => text,
        };
        if let Some(last) = self.exchanges.last_mut()
            && last.agent.is_empty()
        {
            text.clone_into(&mut last.agent);
            last.interrupted = extent == AnswerExtent::Interrupted;
        }
    }

    /// Drops the oldest turns until within `bounds`; the last one stays.
    pub fn forget_oldest(&mut self, bounds: Bounds) {
        let mut room = bounds.chars;
        let mut kept = 0;
        for exchange in self.exchanges.iter().rev().take(bounds.turns.max(1)) {
            let chars = exchange.chars();
            if kept > 0 && chars > room {
                break;
            }
            room = room.saturating_sub(chars);
            kept += 1;
        }
        self.exchanges.drain(..self.exchanges.len() - kept);
    }

    /// As [`Transcript::forget_oldest`], and what the last turn has over the limit is cut out of its middle.
    pub fn fit(&mut self, bounds: Bounds) {
        self.forget_oldest(bounds);
        if let Some(last) = self.exchanges.last_mut()
            && last.chars() > bounds.chars
        {
            let user = last.user.chars().count().min(bounds.chars / 2);
            let agent = last.agent.chars().count().min(bounds.chars - user);
            shorten(&mut last.user, bounds.chars - agent);
            shorten(&mut last.agent, agent);
        }
    }

    /// All messages with their roles, alternating, starting with the user.
    pub fn messages(&self) -> impl Iterator<Item = (MessageRole, Cow<'_, str>)> {
        self.exchanges.iter().flat_map(|exchange| {
            let answer = (!exchange.agent.is_empty()).then(|| (MessageRole::Assistant, exchange.answer()));
            std::iter::once((MessageRole::User, Cow::Borrowed(exchange.user.as_str()))).chain(answer)
        })
    }

    /// Whether it is empty.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }
}

impl TranscriptTurn {
    fn chars(&self) -> usize {
        self.user.chars().count() + self.agent.chars().count()
    }

    fn answer(&self) -> Cow<'_, str> {
        if self.interrupted {
            Cow::Owned(format!("{}\n\n{INTERRUPTED_MARK}", self.agent))
        } else {
            Cow::Borrowed(&self.agent)
        }
    }
}

/// Cuts the middle out of a text of more than `max_chars` characters.
fn shorten(text: &mut String, max_chars: usize) {
    let chars = text.chars().count();
    if chars <= max_chars {
        return;
    }
    let mark = TRUNCATED_MARK.chars().count();
    let keep = max_chars.saturating_sub(mark);
    let head: String = text.chars().take(keep - keep / 2).collect();
    let tail: String = text.chars().skip(chars - keep / 2).collect();
    let mark: String = TRUNCATED_MARK.chars().take(max_chars).collect();
    *text = head + &mark + &tail;
}

/// Maximum cached transcripts; the least recently used is evicted.
const MAX_CACHED: usize = 128;

/// The transcripts of one agent's sessions.
#[derive(Debug)]
pub(super) struct TranscriptStore {
    bounds: Bounds,
    cache: Mutex<Cache>,
}

/// A transcript in use by a turn, and the generation of its session; forgetting starts a new one.
#[derive(Clone, Debug)]
pub(super) struct ActiveTranscript {
    pub(super) transcript: Transcript,
    generation: u64,
}

impl TranscriptStore {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            cache: Mutex::new(Cache {
                sessions: BoundedCache::new(MAX_CACHED),
                generations: 0,
            }),
        }
    }

    /// The session's transcript with `text` appended.
    pub(super) async fn begin(
        &self,
        session: &SessionKey,
        events: &EventSink,
        text: &str,
    ) -> ActiveTranscript {
        let mut active = self.recall(session, events).await;
        active.transcript.push_user(text);
        active.transcript.forget_oldest(self.bounds);
        active
    }

    /// The session's transcript as it is.
    pub(super) async fn recall(&self, session: &SessionKey, events: &EventSink) -> ActiveTranscript {
        let known = self.cache().sessions.get(session).cloned();
        if let Some(active) = known {
            return active;
        }
        let kept = events.load_state().await.unwrap_or_default();
        let transcript = Transcript::from_bytes(&kept);
        self.cache().begin(session, transcript)
    }

    /// Lists the models that a server has, or chooses one of them for the session; `default` answers where nobody chose.
    pub(super) async fn choose_model(
        &self,
        turn: &Turn,
        request: PreferenceRequest,
        (models, default): (Vec<PreferenceOption>, Option<&str>),
    ) -> PreferenceAnswer {
        let mut active = self.recall(&turn.session, &turn.events).await;
        let current = active.transcript.model.as_deref().or(default).map(str::to_owned);
        let Some(offer) = PreferenceOffer::new(models.into_iter(), current) else {
            return PreferenceAnswer::Unsupported;
        };
        let Some(choice) = request.choice else {
            return PreferenceAnswer::Offered(offer);
        };
        let Some(option) = offer.find(&choice).cloned() else {
            return PreferenceAnswer::NoSuchOption(offer);
        };
        active.transcript.model = Some(option.id.clone());
        self.finish(&turn.session, &turn.events, active).await;
        PreferenceAnswer::Changed(option)
    }

    /// Stores the transcript after the turn, unless the session was forgotten meanwhile.
    pub(super) async fn finish(
        &self,
        session: &SessionKey,
        events: &EventSink,
        mut active: ActiveTranscript,
    ) {
        active.transcript.fit(self.bounds);
        let kept = active.transcript.to_bytes();
        if self.cache().put_back(session, active) {
            events.save_state(kept).await;
        }
    }

    /// Forgets a session in memory; saved state is cleared by the relay.
    pub(super) fn forget(&self, session: &SessionKey) {
        // An empty one stays, so that nothing is recalled that the relay has yet to forget.
        self.cache().begin(session, Transcript::default());
    }

    /// Drops what is in memory of a session: its saved state counts.
    pub(super) fn reload(&self, session: &SessionKey) {
        self.cache().sessions.remove(session);
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Cache {
    sessions: BoundedCache<SessionKey, ActiveTranscript>,
    /// Number of generations so far.
    generations: u64,
}

impl Cache {
    /// Starts a new generation of a session.
    fn begin(&mut self, session: &SessionKey, transcript: Transcript) -> ActiveTranscript {
        self.generations += 1;
        let active = ActiveTranscript {
            transcript,
            generation: self.generations,
        };
        self.sessions.insert(session.clone(), active.clone());
        active
    }

    /// Whether it was stored. An evicted session is loaded from its saved state later.
    fn put_back(&mut self, session: &SessionKey, active: ActiveTranscript) -> bool {
        match self.sessions.get(session) {
            Some(cached) if cached.generation == active.generation => {
                self.sessions.insert(session.clone(), active);
                true
            }
            Some(_) => false,
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::event::{AgentSignal, SignalReceiver};
    use super::super::transcript::AnswerExtent;
    use super::*;

    const WIDE: Bounds = Bounds {
        turns: 100,
        chars: 10_000,
    };

    fn messages(transcript: &Transcript) -> Vec<(&'static str, String)> {
        let messages = transcript.messages();
        messages
            .map(|(role, text)| (role.as_str(), text.into_owned()))
            .collect()
    }

    #[test]
    fn unanswered_messages_are_joined_and_interrupted_answers_marked() {
        let mut transcript = Transcript::default();
        transcript.push_user("one");
        transcript.answer("  ", AnswerExtent::Interrupted);
        transcript.push_user("two");
        transcript.answer("half", AnswerExtent::Interrupted);
        transcript.push_user("three");
        transcript.answer("all", AnswerExtent::Whole);
        transcript.push_user("four");
        transcript.answer(" ", AnswerExtent::Whole);
        transcript.push_user("five");
        let want = [
            ("user", "one\n\ntwo".to_owned()),
            ("assistant", format!("half\n\n{INTERRUPTED_MARK}")),
            ("user", "three".to_owned()),
            ("assistant", "all".to_owned()),
            ("user", "four".to_owned()),
            ("assistant", NO_TEXT_MARK.to_owned()),
            ("user", "five".to_owned()),
        ];
        assert_eq!(messages(&transcript), want);
        assert_eq!(Transcript::from_bytes(&transcript.to_bytes()), transcript);
    }

    #[test]
    fn what_cannot_be_read_is_nothing() {
        assert!(Transcript::from_bytes(b"").is_empty());
        assert!(Transcript::from_bytes(b"[1,2]").is_empty());
        assert!(Transcript::default().to_bytes().is_empty());
        let holes = br#"{"exchanges":[{"user":"a"},{"user":"b","agent":"c"}]}"#;
        let want = [("user", "a\n\nb".to_owned()), ("assistant", "c".to_owned())];
        assert_eq!(messages(&Transcript::from_bytes(holes)), want);
    }

    #[test]
    fn the_oldest_turns_go_first_and_the_last_one_is_cut_only_when_it_is_kept() {
        let mut transcript = Transcript::default();
        for text in ["1", "2", "3"] {
            transcript.push_user(text);
            transcript.answer(text, AnswerExtent::Whole);
        }
        transcript.forget_oldest(Bounds { turns: 2, ..WIDE });
        assert_eq!(messages(&transcript)[0].1, "2");
        let long = "x".repeat(300);
        transcript.push_user(&long);
        let narrow = Bounds { turns: 5, chars: 50 };
        transcript.forget_oldest(narrow);
        assert_eq!(messages(&transcript), [("user", long)]);
        transcript.answer("yes", AnswerExtent::Whole);
        transcript.fit(narrow);
        let kept = messages(&transcript);
        assert_eq!(kept[0].1.chars().count(), 47);
        assert!(kept[0].1.contains(TRUNCATED_MARK));
        assert_eq!(kept[1].1, "yes");
    }

    proptest! {
        #[test]
        fn any_conversation_is_bounded_and_takes_turns(
            steps in proptest::collection::vec((0u8..3, "[a-zä€ ]{0,30}"), 0..40),
            turns in 0usize..6,
            chars in 0usize..80,
        ) {
            let bounds = Bounds { turns, chars };
            let mut transcript = Transcript::default();
            for (step, text) in steps {
                match step {
                    0 => transcript.push_user(&text),
                    1 => transcript.answer(&text, AnswerExtent::Whole),
                    _ => transcript.answer(&text, AnswerExtent::Interrupted),
                }
                transcript.fit(bounds);
                let total: usize = transcript.exchanges.iter().map(TranscriptTurn::chars).sum();
                prop_assert!(total <= chars, "{total} > {chars}");
                prop_assert!(transcript.exchanges.len() <= turns.max(1));
                for (at, (role, _)) in transcript.messages().enumerate() {
                    prop_assert_eq!(role == MessageRole::User, at % 2 == 0);
                }
                let (unanswered, len) = (transcript.exchanges.iter().position(|e| e.agent.is_empty()), transcript.exchanges.len());
                prop_assert!(unanswered.is_none_or(|at| at + 1 == len));
            }
        }
    }

    const BOUNDS: Bounds = Bounds {
        turns: 10,
        chars: 1000,
    };

    fn key(text: &str) -> SessionKey {
        SessionKey::from_text(text.to_owned())
    }

    /// Plays the relay's part: answers recalls with what was kept last, and counts them.
    async fn relay(mut signals: SignalReceiver) -> (usize, Option<Vec<u8>>) {
        let (mut recalls, mut kept) = (0, None);
        while let Some(signal) = signals.recv().await {
            match signal {
                AgentSignal::SaveState(memory) => kept = Some(memory),
                AgentSignal::LoadState(answer) => {
                    recalls += 1;
                    let _ = answer.send(kept.clone());
                }
                AgentSignal::Event(_) | AgentSignal::Question(..) => {}
            }
        }
        (recalls, kept)
    }

    async fn turn(transcripts: &TranscriptStore, events: &EventSink, session: &str, text: &str) -> usize {
        let mut active = transcripts.begin(&key(session), events, text).await;
        let count = active.transcript.messages().count();
        active.transcript.answer("yes", AnswerExtent::Whole);
        transcripts.finish(&key(session), events, active).await;
        count
    }

    #[tokio::test]
    async fn a_session_is_recalled_once_and_kept_after_every_turn() {
        let (events, signals) = EventSink::new();
        let relay = tokio::spawn(relay(signals));
        let transcripts = TranscriptStore::new(BOUNDS);
        assert_eq!(turn(&transcripts, &events, "a", "1").await, 1);
        assert_eq!(turn(&transcripts, &events, "a", "2").await, 3);
        let later = TranscriptStore::new(BOUNDS);
        assert_eq!(turn(&later, &events, "a", "3").await, 5);
        drop(events);
        let (recalls, kept) = relay.await.unwrap();
        assert_eq!(recalls, 2);
        assert_eq!(Transcript::from_bytes(&kept.unwrap()).messages().count(), 6);
    }

    #[tokio::test]
    async fn a_session_that_went_on_elsewhere_is_loaded_again() {
        let (events, signals) = EventSink::new();
        let relay = tokio::spawn(relay(signals));
        let (here, elsewhere) = (TranscriptStore::new(BOUNDS), TranscriptStore::new(BOUNDS));
        assert_eq!(turn(&here, &events, "a", "1").await, 1);
        assert_eq!(turn(&elsewhere, &events, "a", "2").await, 3);
        here.reload(&key("a"));
        assert_eq!(turn(&here, &events, "a", "3").await, 5);
        drop(events);
        let (recalls, kept) = relay.await.unwrap();
        assert_eq!(recalls, 3);
        assert_eq!(Transcript::from_bytes(&kept.unwrap()).messages().count(), 6);
    }

    #[tokio::test]
    async fn forgetting_holds_for_a_turn_that_is_running() {
        let (events, signals) = EventSink::new();
        let relay = tokio::spawn(relay(signals));
        let transcripts = TranscriptStore::new(BOUNDS);
        let mut active = transcripts.begin(&key("a"), &events, "secret").await;
        transcripts.forget(&key("a"));
        active.transcript.answer("yes", AnswerExtent::Whole);
        transcripts.finish(&key("a"), &events, active).await;
        let fresh = transcripts.begin(&key("a"), &events, "hello").await;
        assert_eq!(fresh.transcript.messages().count(), 1);
        drop(events);
        assert_eq!(relay.await.unwrap(), (1, None));
    }

    #[tokio::test]
    async fn only_so_many_are_held() {
        let (events, signals) = EventSink::new();
        let relay = tokio::spawn(relay(signals));
        let transcripts = TranscriptStore::new(BOUNDS);
        for n in 0..=MAX_CACHED {
            turn(&transcripts, &events, &n.to_string(), "x").await;
            turn(&transcripts, &events, "busy", "x").await;
        }
        assert_eq!(transcripts.cache().sessions.len(), MAX_CACHED);
        assert!(transcripts.cache().sessions.get(&key("busy")).is_some());
        assert!(transcripts.cache().sessions.get(&key("0")).is_none());
        drop(events);
        relay.await.unwrap();
    }
}
