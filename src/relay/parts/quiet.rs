//! Hours in which nothing rings: those of everybody, and those that people chose for themselves.

use std::collections::HashSet;
use std::sync::Arc;

use smol_str::{SmolStr, SmolStrBuilder};

use crate::adapter::{ChatFacts, ChatId, QuietHours};
use crate::collections::BoundedCache;
use crate::store::QUIET_HOURS;

/// People whose hours are remembered; those of others are read again.
const MAX_PEOPLE: usize = 10_000;

/// What a person chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuietChoice {
    /// What holds for everybody.
    Everybodys,
    /// These hours.
    Hours(QuietHours),
    /// To be rung at any time.
    Off,
}

impl QuietChoice {
    /// As the journal has it; `None` if there is nothing to store.
    pub fn to_blob(self) -> Option<Vec<u8>> {
        match self {
            Self::Everybodys => None,
            Self::Hours(hours) => Some(hours.to_string().into_bytes()),
            Self::Off => Some(b"off".to_vec()),
        }
    }

    fn from_blob(blob: Option<&[u8]>) -> Self {
        let text = blob.and_then(|blob| std::str::from_utf8(blob).ok());
        match text {
            Some("off") => Self::Off,
            text => text
                .and_then(|text| text.parse().ok())
                .map_or(Self::Everybodys, Self::Hours),
        }
    }
}

/// A person as far as their quiet hours matter: the key under which the journal has them.
pub type QuietPerson = Arc<str>;

/// The author of a chat's last message, as a [`QuietPerson`]; `None` for nobody.
pub fn quiet_person(chat: &ChatId, facts: &ChatFacts) -> Option<SmolStr> {
    let mut person = SmolStrBuilder::new();
    for part in [&chat.platform, ":", facts.user_id.as_deref()?, QUIET_HOURS] {
        person.push_str(part);
    }
    Some(person.finish())
}

/// Who is not rung when.
#[derive(Debug)]
pub struct Quiet {
    everybodys: Option<QuietHours>,
    people: BoundedCache<QuietPerson, QuietChoice>,
    /// Those of whom the journal may have hours; `None` if they are too many to know them.
    kept: Option<HashSet<QuietPerson>>,
    /// Whether anybody chose hours since the start.
    is_chosen: bool,
    /// People whose hours are being read.
    asked: HashSet<QuietPerson>,
}

impl Quiet {
    /// With the people of whom the journal has hours, unless they are too many.
    pub fn new(everybodys: Option<QuietHours>, kept: Option<&[QuietPerson]>) -> Self {
        Self {
            everybodys,
            people: BoundedCache::new(MAX_PEOPLE),
            kept: kept.map(|kept| kept.iter().cloned().collect()),
            is_chosen: false,
            asked: HashSet::new(),
        }
    }

    /// The hours of everybody.
    pub fn everybodys(&self) -> Option<QuietHours> {
        self.everybodys
    }

    /// Whether there are any hours in which nothing rings for somebody.
    pub fn has_hours(&self) -> bool {
        self.everybodys.is_some() || self.is_chosen
    }

    /// What a person chose; `None` while that is not known.
    pub fn choice(&self, person: &str) -> Option<QuietChoice> {
        match &self.kept {
            Some(kept) if !kept.contains(person) => Some(QuietChoice::Everybodys),
            _ => self.people.peek(person).copied(),
        }
    }

    /// The author of a chat's last message, if it is not known what they chose.
    pub fn unknown(&self, chat: &ChatId, facts: &ChatFacts) -> Option<QuietPerson> {
        if self.kept.as_ref().is_some_and(HashSet::is_empty) {
            return None;
        }
        let person = quiet_person(chat, facts).filter(|person| self.choice(person).is_none())?;
        Some(person.into())
    }

    /// The same, once for each person.
    pub fn ask(&mut self, chat: &ChatId, facts: &ChatFacts) -> Option<QuietPerson> {
        let unknown = self.unknown(chat, facts);
        unknown.filter(|person| self.asked.insert(Arc::clone(person)))
    }

    /// A person chose.
    pub fn choose(&mut self, person: QuietPerson, choice: QuietChoice) {
        self.is_chosen |= matches!(choice, QuietChoice::Hours(_));
        if let Some(kept) = &mut self.kept
            && choice != QuietChoice::Everybodys
        {
            kept.insert(Arc::clone(&person));
        }
        self.kept.take_if(|kept| kept.len() > MAX_PEOPLE);
        self.people.insert(person, choice);
    }

    /// The journal knows what a person chose, unless they chose something else since.
    pub fn learn(&mut self, person: QuietPerson, blob: Option<&[u8]>) -> QuietChoice {
        self.asked.remove(&person);
        if let Some(known) = self.people.get(&person) {
            return *known;
        }
        let choice = QuietChoice::from_blob(blob);
        self.choose(person, choice);
        choice
    }

    /// The hours in which nothing rings for a person.
    pub fn hours(&self, person: Option<&str>) -> Option<QuietHours> {
        let choice = person.and_then(|person| self.choice(person));
        match choice.unwrap_or(QuietChoice::Everybodys) {
            QuietChoice::Everybodys => self.everybodys,
            QuietChoice::Hours(hours) => Some(hours),
            QuietChoice::Off => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_chose_wins_over_the_hours_of_everybody() {
        let night: QuietHours = "22:00-07:00".parse().unwrap();
        let mut quiet = Quiet::new(Some(night), None);
        let person: QuietPerson = "discord:u1#quiet".into();
        assert_eq!([quiet.hours(None), quiet.hours(Some(&person))], [Some(night); 2]);
        quiet.choose(Arc::clone(&person), QuietChoice::Off);
        assert_eq!(quiet.hours(Some(&person)), None);
        let noon: QuietHours = "12:00-13:00".parse().unwrap();
        quiet.choose(Arc::clone(&person), QuietChoice::Hours(noon));
        assert_eq!(quiet.hours(Some(&person)), Some(noon));
        // What the journal had before is older.
        assert_eq!(quiet.learn(person, Some(b"off")), QuietChoice::Hours(noon));
    }

    /// The author of a chat's last message, and the chat.
    fn written_by(user: &str) -> (ChatId, ChatFacts) {
        let chat = ChatId {
            platform: "discord".into(),
            chat: "c".into(),
        };
        let facts = ChatFacts {
            user_id: Some(user.into()),
            ..ChatFacts::default()
        };
        (chat, facts)
    }

    #[test]
    fn only_those_are_read_of_whom_the_journal_may_have_hours() {
        let person = |user: &str| QuietPerson::from(format!("discord:{user}#quiet"));
        let asks = |quiet: &Quiet, user: &str| {
            let (chat, facts) = written_by(user);
            quiet.unknown(&chat, &facts).is_some()
        };
        let mut quiet = Quiet::new(None, Some(&[]));
        assert!(!asks(&quiet, "ann"), "there are none");
        assert_eq!(quiet.choice(&person("ann")), Some(QuietChoice::Everybodys));
        quiet.choose(person("bob"), QuietChoice::Off);
        assert!(!asks(&quiet, "ann") && !asks(&quiet, "bob"));
        // Those of bob are still read again when they are no longer in memory.
        for user in 0..MAX_PEOPLE {
            quiet
                .people
                .insert(user.to_string().into(), QuietChoice::Everybodys);
        }
        assert!(!asks(&quiet, "ann") && asks(&quiet, "bob"));

        let mut quiet = Quiet::new(None, Some(&[person("ann")]));
        assert!(asks(&quiet, "ann") && !asks(&quiet, "bob"));
        assert_eq!(quiet.choice(&person("ann")), None, "it has to be read");
        assert_eq!(quiet.learn(person("ann"), Some(b"off")), QuietChoice::Off);
        assert_eq!(quiet.choice(&person("ann")), Some(QuietChoice::Off));
    }

    #[test]
    fn everybodys_hours_are_read_when_those_who_have_some_are_too_many_to_know() {
        let (chat, facts) = written_by("ann");
        assert!(Quiet::new(None, None).unknown(&chat, &facts).is_some());
        let mut quiet = Quiet::new(None, Some(&[]));
        for user in 0..=MAX_PEOPLE {
            assert!(quiet.unknown(&chat, &facts).is_none());
            quiet.choose(user.to_string().into(), QuietChoice::Off);
        }
        assert!(quiet.unknown(&chat, &facts).is_some());
    }

    #[test]
    fn a_choice_survives_the_journal() {
        let night: QuietHours = "22:00-07:00".parse().unwrap();
        for choice in [
            QuietChoice::Everybodys,
            QuietChoice::Hours(night),
            QuietChoice::Off,
        ] {
            let blob = choice.to_blob();
            assert_eq!(QuietChoice::from_blob(blob.as_deref()), choice);
        }
        assert_eq!(QuietChoice::from_blob(Some(b"\xff")), QuietChoice::Everybodys);
    }
}
