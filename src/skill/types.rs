//! The types of the skill contract, with its field names. Times are Unix seconds; what is not known is absent, never null or empty.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Whether a skill may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SkillStatus {
    /// Not reviewed yet.
    Draft,
    /// May be run.
    Approved,
    /// Must not be run.
    Disabled,
}

impl SkillStatus {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "Draft",
            Self::Approved => "Approved",
            Self::Disabled => "Disabled",
        }
    }
}

impl fmt::Display for SkillStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A status that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a status; write Draft, Approved or Disabled")]
pub struct UnknownStatus(pub String);

impl FromStr for SkillStatus {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, UnknownStatus> {
        let all = [Self::Draft, Self::Approved, Self::Disabled];
        let found = (all.into_iter()).find(|status| status.as_str().eq_ignore_ascii_case(text.trim()));
        found.ok_or_else(|| UnknownStatus(text.trim().chars().take(40).collect()))
    }
}

/// What a skill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillType {
    /// Steps to carry out.
    Procedural,
    /// Something to know.
    Data,
}

/// Whether an approval needs a signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApprovalMode {
    /// A bare `# Status: Approved` is enough.
    #[default]
    Unsecured,
    /// An approval without a signature (`# Status: Approved v3:<signature>`) is stored as Draft. Stores do not check signatures.
    Secured,
}

/// What a skill says about itself, in its header or where it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SkillDetails {
    /// One line for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Words to find it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Its inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vars: Option<Vec<String>>,
    /// What it gives back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<Vec<String>>,
    /// What it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires: Option<Vec<String>>,
    /// What starts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggers: Option<Vec<String>>,
    /// Where its output goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<String>>,
    /// What it is.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub skill_type: Option<SkillType>,
    /// Anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_bag: Option<Map<String, Value>>,
}

impl SkillDetails {
    /// These, and what only the others have.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            description: self.description.or(other.description),
            tags: self.tags.or(other.tags),
            vars: self.vars.or(other.vars),
            returns: self.returns.or(other.returns),
            requires: self.requires.or(other.requires),
            triggers: self.triggers.or(other.triggers),
            outputs: self.outputs.or(other.outputs),
            skill_type: self.skill_type.or(other.skill_type),
            metadata_bag: self.metadata_bag.or(other.metadata_bag),
        }
    }
}

/// What is known of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillMeta {
    /// Its name.
    pub name: String,
    /// Its current version; compare for equality only.
    pub version: String,
    /// SHA-256 of the persisted text.
    pub content_hash: String,
    /// Whether it may be run.
    pub status: SkillStatus,
    /// When it was first stored.
    pub created_at: i64,
    /// When it was last stored.
    pub updated_at: i64,
    /// When its status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_changed_at: Option<i64>,
    /// Who wrote it, if somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// What it says about itself.
    #[serde(flatten)]
    pub details: SkillDetails,
}

/// A skill with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillSource {
    /// Its name.
    pub name: String,
    /// The version of this text.
    pub version: String,
    /// SHA-256 of this text.
    pub content_hash: String,
    /// The text as it is persisted.
    pub source: String,
    /// What is known of the skill.
    pub metadata: SkillMeta,
}

/// An entry of a skill's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillVersion {
    /// The skill.
    pub name: String,
    /// The version.
    pub version: String,
    /// SHA-256 of its text.
    pub content_hash: String,
    /// The status from then on.
    pub status: SkillStatus,
    /// The status before; none for the first entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_status: Option<SkillStatus>,
    /// When.
    pub changed_at: i64,
    /// Who changed it, if somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
}

/// What is stored with a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillWrite {
    /// The status; none for the one that the text names, else Draft.
    pub status: Option<SkillStatus>,
    /// Who wrote the skill; none keeps the author.
    pub author: Option<String>,
    /// Who makes this change.
    pub changed_by: Option<String>,
    /// What is said about the skill, in place of what its header says.
    pub details: SkillDetails,
}

/// Which skills are wanted: those that pass everything that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillFilter {
    /// One of these; empty for any.
    pub status: Vec<SkillStatus>,
    /// This type.
    pub skill_type: Option<SkillType>,
    /// All of these tags.
    pub tags: Vec<String>,
    /// This author. A skill without one does not match.
    pub author: Option<String>,
    /// Stored at this time or later.
    pub since: Option<i64>,
    /// This name; `*` stands for any text, `?` for any character.
    pub name_pattern: Option<String>,
    /// At most so many, after the offset.
    pub limit: Option<usize>,
    /// Leave out so many first.
    pub offset: usize,
}

impl SkillFilter {
    /// Whether a skill passes, whatever limit and offset are.
    pub fn accepts(&self, skill: &SkillMeta) -> bool {
        let tags = skill.details.tags.as_deref().unwrap_or_default();
        (self.status.is_empty() || self.status.contains(&skill.status))
            && (self.skill_type.is_none() || self.skill_type == skill.details.skill_type)
            && self.tags.iter().all(|tag| tags.contains(tag))
            && (self.author.is_none() || self.author == skill.author)
            && self.since.is_none_or(|since| skill.updated_at >= since)
            && (self.name_pattern.as_deref()).is_none_or(|pattern| is_match(pattern, &skill.name))
    }

    /// Those that pass: sorted by name, then without the offset, then up to the limit.
    pub fn select(&self, skills: impl IntoIterator<Item = SkillMeta>) -> Vec<SkillMeta> {
        let mut found: Vec<SkillMeta> = (skills.into_iter()).filter(|skill| self.accepts(skill)).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let limit = self.limit.unwrap_or(usize::MAX);
        found.into_iter().skip(self.offset).take(limit).collect()
    }
}

/// Whether the pattern with `*` and `?` is the whole text. Takes at most the product of their lengths.
fn is_match(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut seen, mut star) = (0, 0, None);
    while seen < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(c) if *c == '?' || *c == text[seen] => {
                at += 1;
                seen += 1;
            }
            _ => match star {
                Some((back, skipped)) => {
                    star = Some((back, skipped + 1));
                    at = back + 1;
                    seen = skipped + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillFeatures {
    /// It can be written.
    pub supports_writes: bool,
    /// It gives back the texts of earlier versions.
    pub supports_versioning: bool,
    /// It filters by tags.
    pub supports_tag_filter: bool,
    /// Its history names the status before each change.
    pub supports_audit_trail: bool,
    /// A change of the status happens completely or not at all.
    pub supports_atomic_status_transitions: bool,
}

/// What a store is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillManifest {
    /// Version of the contract: `x.y.z`.
    pub capabilities_version: String,
    /// The kind of storage, such as `sqlite`.
    pub kind: String,
    /// The name of the implementation.
    pub implementation: String,
    /// What it can do.
    pub features: SkillFeatures,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, is) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a?c", "abc", true),
            ("*b*b", "abab", true),
            ("*b*b", "aba", false),
            ("a", "ab", false),
            ("", "a", false),
            ("a**", "a", true),
        ] {
            assert_eq!(is_match(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn a_status_is_one_of_three_words() {
        assert_eq!("approved".parse(), Ok(SkillStatus::Approved));
        assert!("Approved!".parse::<SkillStatus>().is_err());
        assert!("".parse::<SkillStatus>().is_err());
    }
}
