//! People without access: what they get to read, their codes, and what an owner does about them.
//!
//! They get what the settings say, in direct messages only, each once an hour, and at most [`MAX_NOTICES`] an hour in all.

use super::{AccessControl, HOUR_MS, write_rows};
use crate::access::{Author, PairingRequest, PairingStep, PersonId, Strangers, approve_command};
use crate::relay::effects::Effects;
use crate::text::printable;
use crate::words::{ChatPhrase, Language, PhraseKey};

/// Replies to strangers in an hour, all of them together.
const MAX_NOTICES: usize = 50;
/// Length of a stranger's name in the log.
const MAX_NAME_CHARS: usize = 60;

/// What a stranger gets to read.
pub struct StrangerReply {
    pub text: String,
    /// Their code, when they got one.
    pub code: Option<String>,
}

impl AccessControl {
    /// Whether what this stranger writes is kept until they are approved.
    pub fn keeps_message(&self, author: &Author) -> bool {
        author.direct && self.gate.strangers() == Strangers::Pair
    }

    /// A stranger's message is committed as ignored: what they get to read, if anything.
    pub fn answer_stranger(
        &mut self,
        author: &Author,
        request: PairingRequest,
        language: Language,
        (random, now_ms): (u64, i64),
        effects: &mut Effects,
    ) -> Option<StrangerReply> {
        // Whoever else is in a group must not learn of it, nor get in by it.
        let person = author.person().filter(|_| author.direct)?;
        let strangers = self.gate.strangers();
        if strangers == Strangers::Silent {
            return None;
        }
        self.forget_notices(now_ms);
        if self.notices.len() >= MAX_NOTICES || self.answered.contains_key(person) {
            return None;
        }
        let reply = match strangers {
            Strangers::Silent => return None,
            Strangers::Notice => StrangerReply {
                text: language.plain(PhraseKey::NoAccess).to_owned(),
                code: None,
            },
            Strangers::Pair => {
                let asking = (person, author.chat(), language);
                self.offer_code(asking, request, random, now_ms, effects)?
            }
        };
        self.notices.push_back(now_ms);
        self.answered.insert(person.clone(), now_ms);
        Some(reply)
    }

    fn offer_code(
        &mut self,
        (person, chat, language): (&PersonId, &str, Language),
        request: PairingRequest,
        random: u64,
        now_ms: i64,
        effects: &mut Effects,
    ) -> Option<StrangerReply> {
        let has_owner = self.gate.has_owner();
        let name = request.name.as_deref().unwrap_or_default();
        let name = printable(name, MAX_NAME_CHARS);
        let is_kept = request.message.is_some();
        let pairings = self.gate.pairings();
        let step = pairings.request(person, request, random, now_ms);
        let PairingStep::Code(code, rows) = step else {
            return None;
        };
        write_rows(rows, effects);
        self.write(person, chat, None, "pairing", "code", now_ms);
        let role = if has_owner { "" } else { " --role owner" };
        let command = format!("{}{role}", approve_command(&code));
        tracing::info!(person = %person, name, "somebody asks for access; to let them in: {command}");
        let (command, said) = (&command, &code);
        let text = language.say(match (has_owner, is_kept) {
            (true, true) => ChatPhrase::PairKept { code: said, command },
            (true, false) => ChatPhrase::PairAgain { code: said, command },
            (false, true) => ChatPhrase::PairFirstKept { code: said, command },
            (false, false) => ChatPhrase::PairFirstAgain { code: said, command },
        });
        Some(StrangerReply {
            text,
            code: Some(code),
        })
    }

    fn forget_notices(&mut self, now_ms: i64) {
        let is_recent = |at: &i64| (0..HOUR_MS).contains(&now_ms.saturating_sub(*at));
        self.notices.retain(is_recent);
        self.answered.retain(|_, at| is_recent(at));
    }

    /// An owner does not want to be asked about somebody's code; `false` if it waits no more.
    pub fn ignore(&mut self, code: &str, now_ms: i64, effects: &mut Effects) -> bool {
        let Some((person, row)) = self.gate.pairings().ignore(code, now_ms) else {
            return false;
        };
        write_rows(vec![row], effects);
        self.write(&person, "", None, "ignore", "command", now_ms);
        true
    }

    /// Whose code waits for an approval.
    pub fn person_with(&self, code: &str, now_ms: i64) -> Option<PersonId> {
        self.gate.person_with(code, now_ms)
    }
}
