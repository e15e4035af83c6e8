//! Finds what code wrote in English again, and says it in another language.

use std::borrow::Cow;

use super::sentences::SENTENCES;
use super::{Language, PhraseKey, PhraseSlot, en, fill};

/// Longest text that is looked at; the relay itself says nothing longer.
const MAX_BYTES: usize = 8192;
/// Longest text in a placeholder.
const MAX_SLOT: usize = 1000;

impl Language {
    /// A text of the catalogue that was written in English, in this language; any other text as it is. Texts that are passed on
    /// before their reader is known are written with [`PhraseKey::english`], or consist of [`SENTENCES`]. A line is said in
    /// another language as a whole or not at all.
    pub(crate) fn reword(self, english: &str) -> Cow<'_, str> {
        if self == Self::En || english.len() > MAX_BYTES {
            return english.into();
        }
        let known = PhraseKey::ALL
            .iter()
            .find(|(key, slots)| slots.is_empty() && en::text(*key) == english);
        if let Some((key, _)) = known {
            return self.text(*key).into();
        }
        let lines: Vec<Option<String>> = english.split('\n').map(|line| self.reword_line(line)).collect();
        if lines.iter().all(Option::is_none) {
            return english.into();
        }
        let reworded = lines.into_iter().zip(english.split('\n'));
        let reworded: Vec<String> = reworded
            .map(|(reworded, line)| reworded.unwrap_or_else(|| line.to_owned()))
            .collect();
        reworded.join("\n").into()
    }

    /// A line in this language, if all of it is known.
    pub(super) fn reword_line(self, line: &str) -> Option<String> {
        if let Some(whole) = self.sentence(line) {
            return Some(whole);
        }
        let sentences = line
            .split_inclusive(". ")
            .map(|sentence| self.sentence(sentence.trim_end()));
        let sentences: Vec<String> = sentences.collect::<Option<_>>()?;
        let gap = if matches!(self, Self::Ja | Self::Zh) {
            ""
        } else {
            " "
        };
        Some(sentences.join(gap))
    }

    fn sentence(self, english: &str) -> Option<String> {
        let (row, slots) = SENTENCES
            .iter()
            .find_map(|row| Some((row, captured(row[0], english)?)))?;
        let position = Self::ALL.iter().position(|language| *language == self)?;
        let slots: Vec<(&str, String)> = slots
            .into_iter()
            .map(|(name, value)| {
                let reworded = self.reword_line(value);
                (name, reworded.unwrap_or_else(|| value.to_owned()))
            })
            .collect();
        let slots: Vec<(&str, PhraseSlot<'_>)> = slots
            .iter()
            .map(|(name, value)| (*name, PhraseSlot::from(value.as_str())))
            .collect();
        Some(fill(row[position], &slots))
    }
}

/// What stands in the placeholders of a template; `None` if it does not fit. Placeholders have text between them.
fn captured<'t>(template: &'t str, text: &'t str) -> Option<Vec<(&'t str, &'t str)>> {
    let Some((before, mut rest)) = template.split_once('{') else {
        return (template == text).then(Vec::new);
    };
    let mut text = text.strip_prefix(before)?;
    let mut slots = Vec::new();
    loop {
        let (name, after) = rest.split_once('}')?;
        let (literal, next) = match after.split_once('{') {
            Some((literal, next)) => (literal, Some(next)),
            None => (after, None),
        };
        let (value, left) = match next {
            Some(_) => text.split_once(literal)?,
            None => (text.strip_suffix(literal)?, ""),
        };
        if value.trim().is_empty() || value.len() > MAX_SLOT {
            return None;
        }
        slots.push((name, value));
        match next {
            Some(next) => (rest, text) = (next, left),
            None => return Some(slots),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_found_again_and_reworded_too() {
        let german = |text: &str| Language::De.reword(text).into_owned();
        assert_eq!(
            german("The model server cannot be reached right now. Please try again later."),
            "Der Modellserver ist gerade nicht erreichbar. Bitte versuch es später noch einmal."
        );
        assert_eq!(
            german("I could not transcribe this recording: the recording is longer than 600 s."),
            "Ich konnte diese Aufnahme nicht in Text umwandeln: die Aufnahme ist länger als 600 s."
        );
        assert_eq!(
            german("look\n(could not deliver a file)"),
            "look\n(eine Datei konnte nicht zugestellt werden)"
        );
        for other in [
            "",
            "\n",
            "I tried it. Please try again.",
            "{who} is busy",
            "The scheduled job",
            "The agent failed (code ).",
        ] {
            assert_eq!(german(other), other);
            assert_eq!(Language::En.reword(other), other);
        }
        assert_eq!(
            Language::Ja.reword("The agent is busy. Please try again."),
            "エージェント は混み合っています。もう一度お試しください。"
        );
    }
}
