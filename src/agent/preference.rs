//! What people can choose for a conversation: the model and the mode of its agent.

use serde::{Deserialize, Serialize};

use super::Failure;
use crate::text::one_line;
use crate::words::{ChatPhrase, Language};

/// Options of a list; more are left out.
const MAX_OPTIONS: usize = 200;
/// Options that a chat is shown; the others can be chosen by their names.
const MAX_SHOWN: usize = 40;
/// Length of a name in a list.
const MAX_NAME_CHARS: usize = 80;
/// Length of what an agent calls an option.
const MAX_ID_CHARS: usize = 200;

/// What is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preference {
    /// The model that answers.
    Model,
    /// The way the agent works: asking, planning, acting by itself.
    Mode,
}

impl Preference {
    /// Its name, which is also the name of its command.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Mode => "mode",
        }
    }
}

/// Somebody asks what there is to choose, or chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreferenceRequest {
    /// What is chosen.
    pub preference: Preference,
    /// The choice: a number of the list, an id or a name; without one, the list is asked for.
    pub choice: Option<String>,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreferenceOption {
    /// The agent's id of it.
    pub id: String,
    /// Its name for people.
    pub name: String,
}

impl PreferenceOption {
    /// An option with a name that fits in a line; `None` without a usable id.
    pub fn new(id: &str, name: Option<&str>) -> Option<Self> {
        let is_usable = !id.trim().is_empty() && id.chars().count() <= MAX_ID_CHARS;
        let name = one_line(name.unwrap_or(id), MAX_NAME_CHARS);
        is_usable.then(|| Self {
            name: if name.is_empty() {
                one_line(id, MAX_NAME_CHARS)
            } else {
                name
            },
            id: id.to_owned(),
        })
    }
}

/// What an agent offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreferenceOffer {
    /// The options, in the agent's order.
    pub options: Vec<PreferenceOption>,
    /// The id of the option in use, as far as it is known.
    pub current: Option<String>,
}

/// What an agent answers to a [`PreferenceRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreferenceAnswer {
    /// The agent lets nobody choose that.
    Unsupported,
    /// What there is to choose.
    Offered(PreferenceOffer),
    /// There is no such option; this is what there is.
    NoSuchOption(PreferenceOffer),
    /// The agent has confirmed this option.
    Changed(PreferenceOption),
    /// The agent has refused, or could not be asked.
    Failed(Failure),
}

impl PreferenceOffer {
    /// An offer of these options, unless there are none.
    pub fn new(options: impl Iterator<Item = PreferenceOption>, current: Option<String>) -> Option<Self> {
        let options: Vec<PreferenceOption> = options.take(MAX_OPTIONS).collect();
        (!options.is_empty()).then_some(Self { options, current })
    }

    /// The option that somebody means: by its id, its name, its number in the list, or a part that only one option has.
    pub fn find(&self, choice: &str) -> Option<&PreferenceOption> {
        let choice = choice.trim();
        if choice.is_empty() {
            return None;
        }
        let options = || self.options.iter();
        let exact = options().find(|option| option.id == choice);
        let named = || {
            let same = |text: &str| text.to_lowercase() == choice.to_lowercase();
            options().find(|option| same(&option.id) || same(&option.name))
        };
        let numbered = || {
            choice
                .parse()
                .ok()
                .and_then(|number: usize| self.options.get(number.checked_sub(1)?))
        };
        let partly = || {
            let part = choice.to_lowercase();
            let contains = |text: &str| text.to_lowercase().contains(&part);
            let mut found = options().filter(|option| contains(&option.id) || contains(&option.name));
            found.next().filter(|_| found.next().is_none())
        };
        exact.or_else(named).or_else(numbered).or_else(partly)
    }

    /// The options that a chat is shown, in the order of their numbers.
    pub fn shown(&self) -> &[PreferenceOption] {
        &self.options[..self.options.len().min(MAX_SHOWN)]
    }

    /// The options as a numbered list.
    pub fn list(&self, language: Language) -> String {
        let is_current = |option: &PreferenceOption| self.current.as_deref() == Some(option.id.as_str());
        let mut lines: Vec<String> = (self.shown().iter().zip(1..))
            .map(|(option, number)| {
                let name = &option.name;
                if is_current(option) {
                    format!("{number}. {}", language.say(ChatPhrase::OptionInUse { name }))
                } else {
                    format!("{number}. {name}")
                }
            })
            .collect();
        let count = (self.options.len() - self.shown().len()) as u64;
        if count > 0 {
            lines.push(language.say(ChatPhrase::OptionsLeftOut { count }));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(ids: &[&str]) -> PreferenceOffer {
        let options = ids.iter().filter_map(|id| PreferenceOption::new(id, None));
        PreferenceOffer::new(options, Some("b".to_owned())).unwrap()
    }

    #[test]
    fn an_option_is_meant_by_its_id_its_name_its_number_or_a_part_that_only_it_has() {
        let mut offer = offer(&["a", "b", "7", "provider/large", "provider/small"]);
        offer.options[0].name = "Alpha".to_owned();
        for (choice, found) in [
            ("a", Some("a")),
            ("ALPHA", Some("a")),
            ("2", Some("b")),
            ("7", Some("7")),
            ("large", Some("provider/large")),
            ("provider", None),
            ("0", None),
            ("6", None),
            (" ", None),
            ("-1", None),
        ] {
            assert_eq!(
                offer.find(choice).map(|option| option.id.as_str()),
                found,
                "{choice}"
            );
        }
    }

    #[test]
    fn a_list_is_numbered_marks_the_one_in_use_and_ends() {
        assert_eq!(offer(&["a", "b"]).list(Language::En), "1. a\n2. b (in use)");
        assert_eq!(offer(&["a", "b"]).list(Language::De), "1. a\n2. b (aktiv)");
        let many: Vec<String> = (0..300).map(|number| format!("m{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let list = offer(&many).list(Language::En);
        assert_eq!(list.lines().count(), MAX_SHOWN + 1);
        assert!(list.ends_with("... and 160 more"), "{list}");
        let list = offer(&many).list(Language::De);
        assert!(list.ends_with("... und noch 160"), "{list}");
    }

    #[test]
    fn nothing_to_choose_is_no_offer() {
        assert_eq!(PreferenceOffer::new(std::iter::empty(), None), None);
        assert_eq!(PreferenceOption::new(" ", Some("x")), None);
        assert_eq!(PreferenceOption::new(&"x".repeat(MAX_ID_CHARS + 1), None), None);
    }
}
