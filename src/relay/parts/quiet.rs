//! Hours in which nothing rings: those of everybody, and those that people chose for themselves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::{SmolStr, SmolStrBuilder};

use crate::access::{Author, PersonId};
use crate::adapter::QuietHours;
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

/// The key under which the journal has the quiet hours of a person, by one of their ids.
pub type QuietKey = Arc<str>;

/// A person as far as their quiet hours matter: what their key may be, by each of their ids. What they choose is kept under the first.
#[derive(Clone, Debug, Default)]
pub struct QuietPerson(SmallVec<[SmolStr; 2]>);

impl QuietPerson {
    /// Somebody by every id that they are known by; at last by the first in the platform's spelling, as earlier versions had it.
    pub fn new(author: &Author) -> Self {
        let mut keys: SmallVec<[SmolStr; 2]> = author.people().iter().map(key_of).collect();
        if let Some(id) = author.ids.first() {
            let own = key(&author.platform, id);
            if !keys.contains(&own) {
                keys.push(own);
            }
        }
        Self(keys)
    }

    /// Whether it is nobody.
    pub fn is_nobody(&self) -> bool {
        self.0.is_empty()
    }
}

fn key(platform: &str, id: &str) -> SmolStr {
    let mut key = SmolStrBuilder::new();
    for part in [platform, ":", id, QUIET_HOURS] {
        key.push_str(part);
    }
    key.finish()
}

fn key_of(person: &PersonId) -> SmolStr {
    key(person.platform(), person.user())
}

/// The key in the form that ids are compared in.
fn canonical(kept: &str) -> Option<SmolStr> {
    let (platform, id) = kept.strip_suffix(QUIET_HOURS)?.split_once(':')?;
    Some(key_of(&PersonId::new(platform, id)))
}

/// The quiet hours of people.
#[derive(Debug)]
pub struct Quiet {
    everybodys: Option<QuietHours>,
    people: BoundedCache<QuietKey, QuietChoice>,
    /// Those of whom the journal may have hours; `None` if they are too many to know them.
    kept: Option<HashSet<QuietKey>>,
    /// The key that the journal has for a person who chose their hours under an id in another form.
    spellings: HashMap<QuietKey, QuietKey>,
    /// Whether anybody chose hours since the start.
    is_chosen: bool,
    /// Whose hours are being read.
    asked: HashSet<QuietKey>,
}

impl Quiet {
    /// With the people of whom the journal has hours, unless they are too many.
    pub fn new(everybodys: Option<QuietHours>, kept: Option<&[QuietKey]>) -> Self {
        let mut keys: Option<HashSet<QuietKey>> = kept.map(|kept| kept.iter().cloned().collect());
        let mut spellings = HashMap::new();
        for spelled in kept.unwrap_or_default() {
            let canonical = canonical(spelled).map(QuietKey::from);
            if let (Some(keys), Some(canonical)) = (&mut keys, canonical)
                && canonical != *spelled
            {
                keys.remove(spelled);
                if keys.insert(Arc::clone(&canonical)) {
                    spellings.insert(canonical, Arc::clone(spelled));
                }
            }
        }
        Self {
            everybodys,
            people: BoundedCache::new(MAX_PEOPLE),
            kept: keys,
            spellings,
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

    /// Whether the journal has no quiet hours.
    pub fn is_empty(&self) -> bool {
        self.kept.as_ref().is_some_and(HashSet::is_empty)
    }

    /// What a person chose; `None` while that is not known.
    pub fn choice(&self, person: &QuietPerson) -> Option<QuietChoice> {
        for key in &person.0 {
            match self.kept_choice(key)? {
                QuietChoice::Everybodys => {}
                chosen => return Some(chosen),
            }
        }
        Some(QuietChoice::Everybodys)
    }

    fn kept_choice(&self, key: &str) -> Option<QuietChoice> {
        match &self.kept {
            Some(kept) if !kept.contains(key) => Some(QuietChoice::Everybodys),
            _ => self.people.peek(key).copied(),
        }
    }

    /// The keys of a person under which the journal may have hours that are not known.
    pub fn unknown(&self, person: &QuietPerson) -> impl Iterator<Item = QuietKey> {
        let keys = person.0.iter().filter(|_| !self.is_empty());
        let unknown = keys.filter(|key| self.kept_choice(key).is_none());
        unknown.map(|key| QuietKey::from(key.as_str()))
    }

    /// The first of those of an author.
    pub fn first_unknown(&self, author: &Author) -> Option<QuietKey> {
        if self.is_empty() {
            return None;
        }
        self.unknown(&QuietPerson::new(author)).next()
    }

    /// The same for a person, each once.
    pub fn ask(&mut self, person: &QuietPerson) -> Vec<QuietKey> {
        let mut unknown: Vec<QuietKey> = self.unknown(person).collect();
        unknown.retain(|key| self.asked.insert(Arc::clone(key)));
        unknown
    }

    /// Under what the journal has the hours of this key.
    pub fn stored(&self, key: &QuietKey) -> QuietKey {
        Arc::clone(self.spellings.get(key).unwrap_or(key))
    }

    /// The hours of this key are written again, under the key itself; returns what to delete.
    pub fn rewrite(&mut self, key: &str) -> Option<QuietKey> {
        self.spellings.remove(key)
    }

    /// A person chose; returns the key to keep it under, and those under which nothing is kept any more.
    pub fn choose(&mut self, person: &QuietPerson, choice: QuietChoice) -> Option<(QuietKey, Vec<QuietKey>)> {
        let (first, rest) = person.0.split_first()?;
        let mut dropped = Vec::new();
        for key in rest {
            if self.kept.as_mut().is_none_or(|kept| kept.remove(key.as_str())) {
                let key = QuietKey::from(key.as_str());
                self.people.insert(Arc::clone(&key), QuietChoice::Everybodys);
                dropped.push(key);
            }
        }
        let key = QuietKey::from(first.as_str());
        self.set(Arc::clone(&key), choice);
        Some((key, dropped))
    }

    fn set(&mut self, person: QuietKey, choice: QuietChoice) {
        self.is_chosen |= matches!(choice, QuietChoice::Hours(_));
        if let Some(kept) = &mut self.kept
            && choice != QuietChoice::Everybodys
        {
            kept.insert(Arc::clone(&person));
        }
        self.kept.take_if(|kept| kept.len() > MAX_PEOPLE);
        self.people.insert(person, choice);
    }

    /// The journal knows what is kept under a key, unless its person chose something else since.
    pub fn learn(&mut self, person: QuietKey, blob: Option<&[u8]>) -> QuietChoice {
        self.asked.remove(&person);
        if let Some(known) = self.people.get(&person) {
            return *known;
        }
        let choice = QuietChoice::from_blob(blob);
        self.set(person, choice);
        choice
    }

    /// The hours in which nothing rings for a person.
    pub fn hours(&self, person: &QuietPerson) -> Option<QuietHours> {
        match self.choice(person).unwrap_or(QuietChoice::Everybodys) {
            QuietChoice::Everybodys => self.everybodys,
            QuietChoice::Hours(hours) => Some(hours),
            QuietChoice::Off => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Ann;
    use crate::wire::{NoAliases, OwnPlatforms, Platform, WhatsAppAliases};

    /// Somebody on a platform, with another id that they are known by.
    fn person(platform: &str, id: &str, aliases: &dyn WhatsAppAliases) -> QuietPerson {
        let platform = Platform::named(platform, &OwnPlatforms::default());
        QuietPerson::new(&Author::new(&platform, [id.into()], [], false, aliases))
    }

    fn on_discord(id: &str) -> QuietPerson {
        person("discord", id, &NoAliases)
    }

    #[test]
    fn what_a_person_chose_wins_over_the_hours_of_everybody() {
        let night: QuietHours = "22:00-07:00".parse().unwrap();
        let mut quiet = Quiet::new(Some(night), None);
        let person = on_discord("u1");
        let hours = [&QuietPerson::default(), &person].map(|person| quiet.hours(person));
        assert_eq!(hours, [Some(night); 2]);
        quiet.choose(&person, QuietChoice::Off);
        assert_eq!(quiet.hours(&person), None);
        let noon: QuietHours = "12:00-13:00".parse().unwrap();
        let (key, _) = quiet.choose(&person, QuietChoice::Hours(noon)).unwrap();
        assert_eq!((&*key, quiet.hours(&person)), ("discord:u1#quiet", Some(noon)));
        // What the journal had before is older.
        assert_eq!(quiet.learn(key, Some(b"off")), QuietChoice::Hours(noon));
    }

    #[test]
    fn only_those_are_read_of_whom_the_journal_may_have_hours() {
        let asks = |quiet: &Quiet, user: &str| quiet.unknown(&on_discord(user)).count() > 0;
        let mut quiet = Quiet::new(None, Some(&[]));
        assert!(!asks(&quiet, "ann"), "there are none");
        assert_eq!(quiet.choice(&on_discord("ann")), Some(QuietChoice::Everybodys));
        quiet.choose(&on_discord("bob"), QuietChoice::Off);
        assert!(!asks(&quiet, "ann") && !asks(&quiet, "bob"));
        // Those of bob are still read again when they are no longer in memory.
        for user in 0..MAX_PEOPLE {
            quiet
                .people
                .insert(user.to_string().into(), QuietChoice::Everybodys);
        }
        assert!(!asks(&quiet, "ann") && asks(&quiet, "bob"));

        let ann: QuietKey = "discord:ann#quiet".into();
        let mut quiet = Quiet::new(None, Some(&[Arc::clone(&ann)]));
        assert!(asks(&quiet, "ann") && !asks(&quiet, "bob"));
        assert_eq!(quiet.choice(&on_discord("ann")), None, "it has to be read");
        assert_eq!(quiet.learn(ann, Some(b"off")), QuietChoice::Off);
        assert_eq!(quiet.choice(&on_discord("ann")), Some(QuietChoice::Off));
    }

    #[test]
    fn everybodys_hours_are_read_when_those_who_have_some_are_too_many_to_know() {
        let ann = on_discord("ann");
        assert_eq!(Quiet::new(None, None).unknown(&ann).count(), 1);
        let mut quiet = Quiet::new(None, Some(&[]));
        for user in 0..=MAX_PEOPLE {
            assert_eq!(quiet.unknown(&ann).count(), 0);
            quiet.choose(&on_discord(&user.to_string()), QuietChoice::Off);
        }
        assert_eq!(quiet.unknown(&ann).count(), 1);
    }

    #[test]
    fn hours_hold_for_every_spelling_of_a_person_and_the_last_choice_wins() {
        for kept in [Some(&[][..]), None] {
            let mut quiet = Quiet::new(None, kept);
            for chosen in Ann::SPELLINGS {
                let hours: QuietHours = "22:00-07:00".parse().unwrap();
                for choice in [QuietChoice::Off, QuietChoice::Hours(hours)] {
                    let (key, dropped) = quiet.choose(&person("whatsapp", chosen, &Ann), choice).unwrap();
                    assert!(!dropped.contains(&key));
                    for read in Ann::SPELLINGS {
                        let person = person("whatsapp", read, &Ann);
                        for unknown in quiet.unknown(&person).collect::<Vec<_>>() {
                            quiet.learn(unknown, None);
                        }
                        assert_eq!(quiet.choice(&person), Some(choice), "{chosen} {read}");
                    }
                }
            }
            let other = person("whatsapp", "491702222", &Ann);
            assert!(matches!(
                quiet.choice(&other),
                None | Some(QuietChoice::Everybodys)
            ));
        }
    }

    #[test]
    fn hours_that_were_kept_under_a_spelling_are_found_by_every_other() {
        for spelled in Ann::SPELLINGS {
            let stored: QuietKey = format!("whatsapp:{spelled}#quiet").into();
            let mut quiet = Quiet::new(None, Some(&[Arc::clone(&stored)]));
            for read in Ann::SPELLINGS {
                let person = person("whatsapp", read, &Ann);
                let unknown: Vec<QuietKey> = quiet.unknown(&person).collect();
                let keys: Vec<QuietKey> = unknown.iter().map(|key| quiet.stored(key)).collect();
                assert_eq!(keys, [Arc::clone(&stored)], "{spelled} {read}");
            }
            let reader = person("whatsapp", "491701111", &Ann);
            let key = quiet.unknown(&reader).next().unwrap();
            quiet.learn(Arc::clone(&key), Some(b"off"));
            let is_moved = key != stored;
            assert_eq!(quiet.rewrite(&key), is_moved.then_some(stored));
            assert_eq!(quiet.choice(&reader), Some(QuietChoice::Off), "{spelled}");
        }
        // With too many to know them, their own spelling is still read.
        let quiet = Quiet::new(None, None);
        let reader = person("whatsapp", Ann::SPELLINGS[1], &NoAliases);
        let keys: Vec<QuietKey> = quiet.unknown(&reader).collect();
        let expected = [
            "whatsapp:491701111#quiet",
            "whatsapp:491701111:12@s.whatsapp.net#quiet",
        ];
        assert_eq!(keys, expected.map(QuietKey::from));
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
