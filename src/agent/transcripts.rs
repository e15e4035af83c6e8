//! The transcripts of all sessions: a bounded cache in front of what the relay keeps for each session.
//!
//! A session's transcript is recalled once and then held here; the least recently used ones make room and are recalled
//! again when needed. No lock is held while anything is waited for.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::EventSink;
use super::transcript::{Bounds, Transcript};
use crate::wire::SessionKey;

/// Most transcripts held in memory; the least recently used one makes room.
const MOST_HELD: usize = 128;

/// The transcripts of one agent's sessions.
#[derive(Debug)]
pub(super) struct Transcripts {
    bounds: Bounds,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    entries: HashMap<SessionKey, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    transcript: Transcript,
    /// When it was last used.
    used: u64,
    /// Which life of the session it belongs to: forgetting begins a new one.
    life: u64,
}

/// A transcript that a turn works with, and the life of the session that it belongs to.
#[derive(Debug)]
pub(super) struct Loan {
    pub(super) transcript: Transcript,
    life: u64,
}

impl Transcripts {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            held: Mutex::default(),
        }
    }

    /// The session's transcript, with what is asked now as its last message.
    pub(super) async fn hear(&self, session: &SessionKey, events: &EventSink, text: &str) -> Loan {
        let known = self.held().lend(session);
        let mut loan = if let Some(loan) = known {
            loan
        } else {
            let kept = events.load_state().await.unwrap_or_default();
            let transcript = Transcript::from_bytes(&kept);
            self.held().begin(session, transcript)
        };
        loan.transcript.hear(text);
        loan.transcript.forget_oldest(self.bounds);
        loan
    }

    /// Takes the transcript back after the turn, unless the session was forgotten meanwhile.
    pub(super) async fn settle(&self, session: &SessionKey, events: &EventSink, mut loan: Loan) {
        loan.transcript.fit(self.bounds);
        let kept = loan.transcript.to_bytes();
        if self.held().take_back(session, loan) {
            events.save_state(kept).await;
        }
    }

    /// Forgets a session. What the relay keeps of it is the relay's to forget.
    pub(super) fn forget(&self, session: &SessionKey) {
        // An empty one stays, so that nothing is recalled that the relay has yet to forget.
        self.held().begin(session, Transcript::default());
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn lend(&mut self, session: &SessionKey) -> Option<Loan> {
        let now = self.tick();
        let entry = self.entries.get_mut(session)?;
        entry.used = now;
        Some(Loan {
            transcript: entry.transcript.clone(),
            life: entry.life,
        })
    }

    fn begin(&mut self, session: &SessionKey, transcript: Transcript) -> Loan {
        let now = self.tick();
        if self.entries.len() >= MOST_HELD && !self.entries.contains_key(session) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(session, _)| session.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let entry = Entry {
            transcript: transcript.clone(),
            used: now,
            life: now,
        };
        self.entries.insert(session.clone(), entry);
        Loan {
            transcript,
            life: now,
        }
    }

    /// Whether it was taken. One that made room meanwhile is recalled from what is kept now.
    fn take_back(&mut self, session: &SessionKey, loan: Loan) -> bool {
        match self.entries.get_mut(session) {
            Some(entry) if entry.life == loan.life => entry.transcript = loan.transcript,
            Some(_) => return false,
            None => {}
        }
        true
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{AgentSignal, SignalReceiver};
    use super::super::transcript::Extent;
    use super::*;

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

    async fn turn(transcripts: &Transcripts, events: &EventSink, session: &str, text: &str) -> usize {
        let mut loan = transcripts.hear(&key(session), events, text).await;
        let heard = loan.transcript.messages().count();
        loan.transcript.answer("yes", Extent::Whole);
        transcripts.settle(&key(session), events, loan).await;
        heard
    }

    #[tokio::test]
    async fn a_session_is_recalled_once_and_kept_after_every_turn() {
        let (events, signals) = EventSink::new();
        let relay = tokio::spawn(relay(signals));
        let transcripts = Transcripts::new(BOUNDS);
        assert_eq!(turn(&transcripts, &events, "a", "1").await, 1);
        assert_eq!(turn(&transcripts, &events, "a", "2").await, 3);
        let later = Transcripts::new(BOUNDS);
        assert_eq!(turn(&later, &events, "a", "3").await, 5);
        drop(events);
        let (recalls, kept) = relay.await.unwrap();
        assert_eq!(recalls, 2);
        assert_eq!(Transcript::from_bytes(&kept.unwrap()).messages().count(), 6);
    }

    #[tokio::test]
    async fn forgetting_holds_for_a_turn_that_is_running() {
        let (events, signals) = EventSink::new();
        let relay = tokio::spawn(relay(signals));
        let transcripts = Transcripts::new(BOUNDS);
        let mut loan = transcripts.hear(&key("a"), &events, "secret").await;
        transcripts.forget(&key("a"));
        loan.transcript.answer("yes", Extent::Whole);
        transcripts.settle(&key("a"), &events, loan).await;
        let fresh = transcripts.hear(&key("a"), &events, "hello").await;
        assert_eq!(fresh.transcript.messages().count(), 1);
        drop(events);
        assert_eq!(relay.await.unwrap(), (1, None));
    }

    #[tokio::test]
    async fn only_so_many_are_held() {
        let (events, signals) = EventSink::new();
        let relay = tokio::spawn(relay(signals));
        let transcripts = Transcripts::new(BOUNDS);
        for n in 0..=MOST_HELD {
            turn(&transcripts, &events, &n.to_string(), "x").await;
            turn(&transcripts, &events, "busy", "x").await;
        }
        assert_eq!(transcripts.held().entries.len(), MOST_HELD);
        assert!(transcripts.held().entries.contains_key(&key("busy")));
        assert!(!transcripts.held().entries.contains_key(&key("0")));
        drop(events);
        relay.await.unwrap();
    }
}
