//! Pairing: codes that strangers get and owners approve.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gate::{PAIRING, StoredRow};
use super::identity::{PersonId, canonical_platform};

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
    /// Their name, as the platform shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What they wrote; it is answered after the approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<KeptMessage>,
    /// When they got it, in Unix milliseconds.
    pub asked_ms: i64,
    /// An owner does not want to be asked: the code waits no more, and its person gets no other before its time is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ignored: bool,
    /// Approved while no relay ran: the next start welcomes its person, and answers what they wrote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_approved: bool,
}

/// A stranger's message, as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMessage {
    /// The line of the wire.
    pub line: String,
    /// Whether it is a forwarded request.
    #[serde(default)]
    pub is_forward: bool,
    /// Its id in its chat. Earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

impl KeptMessage {
    /// Maximum length of a line that is kept.
    pub const MAX_BYTES: usize = 16 << 10;
}

/// What a stranger wrote that leads to a code.
#[derive(Debug, Clone, Default)]
pub struct PairingRequest {
    /// The direct message that they wrote in.
    pub chat: String,
    /// What is known about that chat.
    pub facts: Value,
    /// Their name, as the platform shows it.
    pub name: Option<String>,
    /// The message, if it is short enough to be kept.
    pub message: Option<KeptMessage>,
}

impl PendingPairing {
    /// Whether the time of the code is not over.
    fn is_valid(&self, now_ms: i64) -> bool {
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
        request: PairingRequest,
        random: u64,
        now_ms: i64,
    ) -> PairingStep {
        let mut rows = self.expire(now_ms);
        let pending = self.pending(now_ms);
        let pending = pending.filter(|(other, _)| other.platform() == person.platform());
        if pending.count() >= MAX_PENDING || self.0.contains_key(person) {
            return PairingStep::Nothing;
        }
        let code = code(random);
        let pairing = PendingPairing {
            code: code.clone(),
            chat: request.chat,
            facts: request.facts,
            name: request.name,
            message: request.message,
            asked_ms: now_ms,
            is_ignored: false,
            is_approved: false,
        };
        rows.push(row(person, Some(&pairing)));
        self.0.insert(person.clone(), pairing);
        PairingStep::Code(code, rows)
    }

    /// A message in a direct message, by its platform and its chat, was edited or deleted. If it is kept, this is kept in its place;
    /// returns the row to store.
    pub fn change_kept(
        &mut self,
        (platform, chat): (&str, &str),
        message_id: &str,
        message: Option<KeptMessage>,
    ) -> Option<StoredRow> {
        let platform = canonical_platform(platform);
        let is_it = |person: &PersonId, pending: &PendingPairing| {
            let kept = pending.message.as_ref();
            let kept_id = kept.and_then(|kept| kept.message_id.as_deref());
            person.platform() == platform && pending.chat == chat && kept_id == Some(message_id)
        };
        let mut pending = self.0.iter_mut();
        let (person, pending) = pending.find(|(person, pending)| is_it(person, pending))?;
        pending.message = message;
        Some(row(person, Some(pending)))
    }

    /// The codes that can be approved.
    pub fn pending(&self, now_ms: i64) -> impl Iterator<Item = (&PersonId, &PendingPairing)> {
        let waits = move |pending: &PendingPairing| {
            !pending.is_ignored && !pending.is_approved && pending.is_valid(now_ms)
        };
        self.0.iter().filter(move |(_, pending)| waits(pending))
    }

    /// Takes the person with this code; a code works once.
    pub fn take(&mut self, code: &str, now_ms: i64) -> Option<(PersonId, PendingPairing)> {
        let person = self.find(code, now_ms)?;
        let pending = self.0.remove(&person)?;
        Some((person, pending))
    }

    /// The people whose codes were approved while no relay ran.
    pub fn approved(&self) -> impl Iterator<Item = (&PersonId, &PendingPairing)> {
        self.0.iter().filter(|(_, pending)| pending.is_approved)
    }

    /// A code was approved, and its person has yet to be answered; returns the row to store.
    pub fn keep_approved(&mut self, person: &PersonId, mut pending: PendingPairing) -> StoredRow {
        pending.is_approved = true;
        let row = row(person, Some(&pending));
        self.0.insert(person.clone(), pending);
        row
    }

    /// An owner ignores this code, so that another may wait in its place; returns the row to store.
    pub fn ignore(&mut self, code: &str, now_ms: i64) -> Option<(PersonId, StoredRow)> {
        let person = self.find(code, now_ms)?;
        let pending = self.0.get_mut(&person)?;
        pending.is_ignored = true;
        pending.message = None;
        let row = row(&person, Some(pending));
        Some((person, row))
    }

    /// Whose code this is, if it can be approved.
    pub(super) fn find(&self, code: &str, now_ms: i64) -> Option<PersonId> {
        let typed = code.trim().to_ascii_uppercase();
        let (person, _) = self.pending(now_ms).find(|(_, pending)| pending.code == typed)?;
        Some(person.clone())
    }

    /// What is stored about a person who has a code.
    pub(super) fn row(&self, person: &PersonId) -> Option<StoredRow> {
        Some(row(person, Some(self.0.get(person)?)))
    }

    /// Forgets a person's code; returns the row to delete when there was one.
    pub fn drop_person(&mut self, person: &PersonId) -> Option<StoredRow> {
        self.0.remove(person).map(|_| row(person, None))
    }

    /// Forgets the codes whose time is over; returns the rows to delete.
    pub(super) fn expire(&mut self, now_ms: i64) -> Vec<StoredRow> {
        let is_over = |pending: &PendingPairing| !pending.is_approved && !pending.is_valid(now_ms);
        let over = self.0.iter().filter(|(_, pending)| is_over(pending));
        let over: Vec<PersonId> = over.map(|(person, _)| person.clone()).collect();
        over.iter()
            .filter_map(|person| self.drop_person(person))
            .collect()
    }
}

/// What is stored about a person who has a code, or had one.
pub(super) fn row(person: &PersonId, pending: Option<&PendingPairing>) -> StoredRow {
    let value = pending.and_then(|pending| serde_json::to_string(pending).ok());
    StoredRow::new(PAIRING, person, value)
}

/// The command that approves a code.
pub fn approve_command(code: &str) -> String {
    format!("hermes-relay access approve {code}")
}

/// Whether this could be a code.
pub(crate) fn has_code_form(text: &str) -> bool {
    text.len() == CODE_LENGTH && text.bytes().all(|byte| LETTERS.contains(&byte))
}

/// A code out of forty random bits.
fn code(random: u64) -> String {
    let letter = |at: usize| {
        let index = (random >> (5 * at)) & 31;
        char::from(LETTERS[usize::try_from(index).unwrap_or(0)])
    };
    (0..CODE_LENGTH).map(letter).collect()
}
