//! The languages of the catalogue, and their plurals.

use serde::{Deserialize, Serialize};

/// A language that the relay speaks in chats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Language {
    /// English.
    #[default]
    En,
    /// German.
    De,
    /// French.
    Fr,
    /// Spanish.
    Es,
    /// Portuguese.
    Pt,
    /// Russian.
    Ru,
    /// Japanese.
    Ja,
    /// Chinese.
    Zh,
    /// Hindi.
    Hi,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::En,
        Self::De,
        Self::Fr,
        Self::Es,
        Self::Pt,
        Self::Ru,
        Self::Ja,
        Self::Zh,
        Self::Hi,
    ];

    /// Its code in ISO 639-1.
    pub const fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::De => "de",
            Self::Fr => "fr",
            Self::Es => "es",
            Self::Pt => "pt",
            Self::Ru => "ru",
            Self::Ja => "ja",
            Self::Zh => "zh",
            Self::Hi => "hi",
        }
    }

    /// The language of a tag such as `de`, `pt-BR` or `zh_Hans_CN`; `None` for one that the catalogue does not have.
    pub fn from_tag(tag: &str) -> Option<Self> {
        let code = tag.trim().split(['-', '_', '.']).next()?.to_ascii_lowercase();
        Self::ALL.into_iter().find(|language| language.code() == code)
    }

    /// The language of a person whose client has this tag; `otherwise` if it has none that the catalogue knows.
    pub(crate) fn of_client(tag: Option<&str>, otherwise: Self) -> Self {
        tag.and_then(Self::from_tag).unwrap_or(otherwise)
    }

    /// How many plural forms a text with a count has.
    #[cfg(test)]
    pub(super) const fn plurals(self) -> usize {
        match self {
            Self::Ru => 3,
            Self::En | Self::De | Self::Fr | Self::Es | Self::Pt | Self::Hi => 2,
            Self::Ja | Self::Zh => 1,
        }
    }

    /// Which plural form a number takes.
    pub(super) const fn plural(self, count: u64) -> usize {
        match self {
            Self::En | Self::De | Self::Es => (count != 1) as usize,
            Self::Fr | Self::Pt | Self::Hi => (count > 1) as usize,
            Self::Ru => match (count % 10, count % 100) {
                (1, tens) if tens != 11 => 0,
                (2..=4, tens) if tens < 12 || tens > 14 => 1,
                _ => 2,
            },
            Self::Ja | Self::Zh => 0,
        }
    }
}

impl From<Language> for &'static str {
    fn from(language: Language) -> Self {
        language.code()
    }
}

impl TryFrom<String> for Language {
    type Error = String;

    fn try_from(tag: String) -> Result<Self, String> {
        Self::from_tag(&tag).ok_or_else(|| {
            let codes = Self::ALL.map(Self::code).join(", ");
            format!(
                "`{}` is not one of: {codes}",
                tag.chars().take(40).collect::<String>()
            )
        })
    }
}
