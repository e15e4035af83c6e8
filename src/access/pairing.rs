//! Pairing: codes that strangers get and owners approve.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gate::{PAIRING, PersonId, StoredRow};

/// How long a code can be approved, and how long its person gets no other.
pub const CODE_LIFETIME_MS: i64 = 3_600_000;
/// Codes of one platform that may wait for an approval.
pub const MAX_PENDING: usize = 3;
/// Letters of a code: upper case and digits without those that look alike.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Length of a code.
const CODE_LENGTH: usize = 8;

/// A person who has a code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingPairing {
    /// The code.
    pub code: String,
    /// The direct message that they wrote in.
    pub chat: String,
    /// What is known about that chat.
    #[serde(default)]
    pub facts: Value,
    /// When they got it, in Unix milliseconds.
    pub asked_ms: i64,
}

impl PendingPairing {
    /// Whether the code can be approved.
    pub fn is_valid(&self, now_ms: i64) -> bool {
        // A clock that went back must not make a code live longer.
        (0..CODE_LIFETIME_MS).contains(&now_ms.saturating_sub(self.asked_ms))
    }
}

/// What a stranger's direct message leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairingStep {
    /// They get this code; the rows go to the journal.
    Code(String, Vec<StoredRow>),
    /// They have one, or too many others have.
    Nothing,
}

/// The codes that wait for an approval.
#[derive(Debug, Clone, Default)]
pub struct Pairings(BTreeMap<PersonId, PendingPairing>);

impl Pairings {
    pub(super) fn restore(&mut self, person: PersonId, value: &str) {
        if let Ok(pending) = serde_json::from_str(value) {
            self.0.insert(person, pending);
        }
    }

    /// A stranger wrote in a direct message. `random` must be unpredictable.
    pub fn request(
        &mut self,
        person: &PersonId,
        chat: &str,
        facts: Value,
        random: u64,
        now_ms: i64,
    ) -> PairingStep {
        let mut rows = self.expire(now_ms);
        let pending = self.0.keys().filter(|other| other.platform == person.platform);
        if self.0.contains_key(person) || pending.count() >= MAX_PENDING {
            return PairingStep::Nothing;
        }
        let code = code(random);
        let pairing = PendingPairing {
            code: code.clone(),
            chat: chat.to_owned(),
            facts,
            asked_ms: now_ms,
        };
        rows.push(row(person, Some(&pairing)));
        self.0.insert(person.clone(), pairing);
        PairingStep::Code(code, rows)
    }

    /// The codes that can be approved.
    pub fn pending(&self, now_ms: i64) -> impl Iterator<Item = (&PersonId, &PendingPairing)> {
        self.0.iter().filter(move |(_, pending)| pending.is_valid(now_ms))
    }

    /// Takes the person with this code; a code works once.
    pub fn take(&mut self, code: &str, now_ms: i64) -> Option<(PersonId, PendingPairing)> {
        let typed = code.trim().to_ascii_uppercase();
        let person = self
            .pending(now_ms)
            .find(|(_, pending)| pending.code == typed)?
            .0
            .clone();
        let pending = self.0.remove(&person)?;
        Some((person, pending))
    }

    /// Forgets a person's code; returns the row to delete when there was one.
    pub fn drop_person(&mut self, person: &PersonId) -> Option<StoredRow> {
        self.0.remove(person).map(|_| row(person, None))
    }

    fn expire(&mut self, now_ms: i64) -> Vec<StoredRow> {
        let over = self.0.iter().filter(|(_, pending)| !pending.is_valid(now_ms));
        let over: Vec<PersonId> = over.map(|(person, _)| person.clone()).collect();
        over.iter()
            .filter_map(|person| self.drop_person(person))
            .collect()
    }
}

fn row(person: &PersonId, pending: Option<&PendingPairing>) -> StoredRow {
    StoredRow {
        kind: PAIRING.to_owned(),
        person: person.clone(),
        value: pending.and_then(|pending| serde_json::to_string(pending).ok()),
    }
}

/// A code out of forty random bits.
fn code(random: u64) -> String {
    let letter = |at: usize| {
        let index = (random >> (5 * at)) & 31;
        char::from(LETTERS[usize::try_from(index).unwrap_or(0)])
    };
    (0..CODE_LENGTH).map(letter).collect()
}
