//! The text of a skill: what may be stored, its hash, and its header.
//!
//! The header is the lines `# Key: value` at the top, or YAML front matter (`---`), in which they are comments. Only its first
//! lines are read.

use sha2::{Digest as _, Sha256};

use super::types::{ApprovalMode, SkillDetails, SkillStatus, SkillType, SkillWrite};
use crate::text::hex;

/// Longest text of a skill, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest name of an author, in characters.
pub const MAX_AUTHOR_CHARS: usize = 128;
/// Most tags, and most entries of every other list.
pub const MAX_LIST: usize = 32;
/// Longest entry of a list, in characters.
pub const MAX_LIST_CHARS: usize = 64;
/// Largest `metadata_bag`, in bytes of JSON.
pub const MAX_BAG_BYTES: usize = 16 << 10;
/// Longest description, in characters; one in a header is cut.
const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// Lines in which the header is looked for.
const MAX_HEADER_LINES: usize = 64;

/// Whether this can be the name of a skill: a letter or digit, then letters, digits, `_`, `-` and `.`. It is a safe file name.
pub fn is_name(text: &str) -> bool {
    let is_first = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    is_first && text.len() <= MAX_NAME_BYTES && text.bytes().all(plain)
}

/// A text as it is persisted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillBody {
    /// The text.
    pub source: String,
    /// The status that it names.
    pub status: SkillStatus,
    /// SHA-256 of its bytes.
    pub content_hash: String,
}

impl SkillBody {
    /// Reads a persisted text. A status that does not exist is Draft.
    pub fn read(source: String) -> Self {
        let status = match status_line(&source) {
            Some(line) => line.status.unwrap_or(SkillStatus::Draft),
            None => SkillStatus::Draft,
        };
        let content_hash = hex_sha256(&source);
        Self {
            source,
            status,
            content_hash,
        }
    }

    /// The text as it will be persisted, with what is written beside it; else why it cannot be.
    pub fn new(source: &str, write: &SkillWrite, mode: ApprovalMode) -> Result<Self, String> {
        check_text(source)?;
        check_write(write)?;
        let line = status_line(source);
        if let Some(StatusLine {
            status: None, text, ..
        }) = &line
        {
            let shown: String = text.chars().take(40).collect();
            return Err(format!(
                "`{shown}` in its header is not a status; write Draft, Approved or Disabled"
            ));
        }
        let named = line.as_ref().and_then(|line| line.status);
        let is_signed = line.as_ref().is_some_and(|line| line.is_signed);
        let mut status = write.status.or(named).unwrap_or(SkillStatus::Draft);
        if mode == ApprovalMode::Secured && status == SkillStatus::Approved && !is_signed {
            status = SkillStatus::Draft;
        }
        let is_named = named.unwrap_or(SkillStatus::Draft) == status;
        let body = if is_named {
            source.to_owned()
        } else {
            with_status(source, status)
        };
        check_text(&body)?;
        Ok(Self::read(body))
    }

    /// The same text with another status.
    #[must_use]
    pub fn with_status(&self, status: SkillStatus) -> Self {
        Self::read(with_status(&self.source, status))
    }

    /// The version: the start of the hash.
    pub fn version(&self) -> String {
        self.content_hash.chars().take(12).collect()
    }

    /// The word that receivers route by, which the header may name (`# Event-type: alert`).
    pub fn event_type(&self) -> Option<String> {
        let named = header(&self.source).into_iter().find_map(|line| {
            let (key, value) = key_value(line.text)?;
            key.eq_ignore_ascii_case("event-type").then(|| unquoted(value))
        })?;
        let word: String = named.chars().take(MAX_LIST_CHARS).collect();
        Some(word).filter(|word| !word.is_empty())
    }

    /// What the header says.
    pub fn details(&self) -> SkillDetails {
        let mut details = SkillDetails::default();
        for line in header(&self.source) {
            let Some((key, value)) = key_value(line.text) else {
                continue;
            };
            let list = || list_of(value);
            match key.to_ascii_lowercase().as_str() {
                "description" if details.description.is_none() => {
                    let text: String = unquoted(value).chars().take(MAX_DESCRIPTION_CHARS).collect();
                    details.description = Some(text).filter(|text| !text.is_empty());
                }
                "tags" => details.tags = details.tags.or_else(list),
                "vars" => details.vars = details.vars.or_else(list),
                "returns" => details.returns = details.returns.or_else(list),
                "requires" => details.requires = details.requires.or_else(list),
                "triggers" => details.triggers = details.triggers.or_else(list),
                "output" | "outputs" => details.outputs = details.outputs.or_else(list),
                "type" => {
                    details.skill_type = match value.to_ascii_lowercase().as_str() {
                        "procedural" => Some(SkillType::Procedural),
                        "data" => Some(SkillType::Data),
                        _ => details.skill_type,
                    }
                }
                _ => {}
            }
        }
        details
    }
}

fn check_text(source: &str) -> Result<(), String> {
    if source.trim().is_empty() {
        return Err("the text is empty".to_owned());
    }
    if source.len() > MAX_BODY_BYTES {
        return Err(format!("the text is longer than {} KiB", MAX_BODY_BYTES >> 10));
    }
    if source.contains('\0') {
        return Err("the text contains a NUL character".to_owned());
    }
    Ok(())
}

fn check_write(write: &SkillWrite) -> Result<(), String> {
    for (what, who) in [("author", &write.author), ("changer", &write.changed_by)] {
        let Some(who) = who else { continue };
        if who.trim().is_empty() || who.chars().count() > MAX_AUTHOR_CHARS {
            return Err(format!("the {what} must have 1 to {MAX_AUTHOR_CHARS} characters"));
        }
    }
    let details = &write.details;
    if (details.description.as_ref()).is_some_and(|text| text.chars().count() > MAX_DESCRIPTION_CHARS) {
        return Err(format!(
            "the description is longer than {MAX_DESCRIPTION_CHARS} characters"
        ));
    }
    for (what, list) in [
        ("tags", &details.tags),
        ("vars", &details.vars),
        ("returns", &details.returns),
        ("requires", &details.requires),
        ("triggers", &details.triggers),
        ("outputs", &details.outputs),
    ] {
        let list = list.as_deref().unwrap_or_default();
        let is_long = |entry: &String| entry.is_empty() || entry.chars().count() > MAX_LIST_CHARS;
        if list.len() > MAX_LIST || list.iter().any(is_long) {
            return Err(format!(
                "there may be {MAX_LIST} {what} of 1 to {MAX_LIST_CHARS} characters"
            ));
        }
    }
    let bag = details.metadata_bag.as_ref().map(serde_json::to_string);
    if bag.is_some_and(|bag| bag.is_ok_and(|bag| bag.len() > MAX_BAG_BYTES)) {
        return Err(format!("the metadata is larger than {} KiB", MAX_BAG_BYTES >> 10));
    }
    Ok(())
}

/// A line of the header: where it is, and what it says.
struct HeaderLine<'s> {
    start: usize,
    text: &'s str,
}

/// The status line: where its text is, and what it names.
struct StatusLine<'s> {
    start: usize,
    end: usize,
    text: &'s str,
    status: Option<SkillStatus>,
    is_signed: bool,
}

/// The lines of the header, without the marks of front matter.
fn header(source: &str) -> Vec<HeaderLine<'_>> {
    let mut start = if source.starts_with('\u{feff}') { 3 } else { 0 };
    let mut lines = Vec::new();
    let mut is_front_matter = false;
    for (at, line) in source[start..]
        .split_inclusive('\n')
        .take(MAX_HEADER_LINES)
        .enumerate()
    {
        let text = line.trim_end_matches(['\n', '\r']);
        let is_mark = text.trim_end() == "---";
        if at == 0 && is_mark {
            is_front_matter = true;
        } else if (is_front_matter && is_mark) || (!is_front_matter && !is_header_text(text)) {
            break;
        } else {
            lines.push(HeaderLine { start, text });
        }
        start += line.len();
    }
    lines
}

fn is_header_text(text: &str) -> bool {
    text.trim().is_empty() || text.starts_with('#')
}

/// `# Key: value`, and in front matter also `key: value`. A smaller heading (`##`) is text.
fn key_value(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.strip_prefix('#').unwrap_or(text).split_once(':')?;
    (!key.starts_with('#')).then(|| (key.trim(), value.trim()))
}

/// The first status line of the header. In front matter, only a comment is one.
fn status_line(source: &str) -> Option<StatusLine<'_>> {
    header(source).into_iter().find_map(|line| {
        let (key, value) = key_value(line.text).filter(|_| line.text.starts_with('#'))?;
        if !key.eq_ignore_ascii_case("status") {
            return None;
        }
        let (word, signature) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
        let is_signed = signature.trim().starts_with("v3:") && signature.trim().len() > 3;
        let is_plain = signature.trim().is_empty() || is_signed;
        Some(StatusLine {
            start: line.start,
            end: line.start + line.text.len(),
            text: value,
            status: word.parse().ok().filter(|_| is_plain),
            is_signed,
        })
    })
}

/// The text with this status in its header: in place of the old line, else as the first line that keeps the header one.
fn with_status(source: &str, status: SkillStatus) -> String {
    let line = format!("# Status: {status}");
    if let Some(old) = status_line(source) {
        return format!("{}{line}{}", &source[..old.start], &source[old.end..]);
    }
    let mark = if source.starts_with('\u{feff}') { 3 } else { 0 };
    let first = source[mark..].split_inclusive('\n').next().unwrap_or_default();
    let end = if first.ends_with("\r\n") { "\r\n" } else { "\n" };
    let is_kept_first = first.trim_end() == "---" || first.starts_with("# Skill:");
    let at = if is_kept_first && first.ends_with('\n') {
        mark + first.len()
    } else {
        mark
    };
    format!("{}{line}{end}{}", &source[..at], &source[at..])
}

fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// The entries between commas; none if there are none.
fn list_of(value: &str) -> Option<Vec<String>> {
    let inner = (value.strip_prefix('[').and_then(|value| value.strip_suffix(']'))).unwrap_or(value);
    let entries = inner.split(',').map(|entry| unquoted(entry.trim()));
    let entries: Vec<String> = entries
        .filter(|entry| !entry.is_empty())
        .map(|entry| entry.chars().take(MAX_LIST_CHARS).collect())
        .take(MAX_LIST)
        .collect();
    (!entries.is_empty()).then_some(entries)
}

/// The SHA-256 of a text, in lower-case hex.
pub(super) fn hex_sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(source: &str) -> SkillBody {
        SkillBody::new(source, &SkillWrite::default(), ApprovalMode::Unsecured).unwrap()
    }

    #[test]
    fn names_are_safe_file_names() {
        for name in ["a", "9-lives", "A.b_c-d", "x.skill.md", &"n".repeat(128)] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "../a",
            "a/b",
            "-a",
            ".a",
            "a b",
            "a\0",
            "ä",
            "a\n",
            &"n".repeat(129),
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    #[test]
    fn the_status_is_a_line_of_the_header() {
        for (source, status) in [
            ("Do it.", SkillStatus::Draft),
            ("# Status: Approved\nDo it.", SkillStatus::Approved),
            ("# Skill: x\n#status : disabled\r\nDo it.", SkillStatus::Disabled),
            ("Do it.\n# Status: Approved\n", SkillStatus::Draft),
            (
                "---\nname: x\n# Status: Approved\n---\nDo it.",
                SkillStatus::Approved,
            ),
            (
                "---\nstatus: Approved\n---\n# Status: Approved\n",
                SkillStatus::Draft,
            ),
            ("# Mail\n\n## Status: unread first\n", SkillStatus::Draft),
            ("# Status: Approved v3:abc\nDo it.", SkillStatus::Approved),
            ("\u{feff}# Status: Approved\nDo it.", SkillStatus::Approved),
        ] {
            let body = stored(source);
            assert_eq!((body.status, body.source.as_str()), (status, source));
        }
        let long = format!("{}# Status: Approved\n", "#\n".repeat(MAX_HEADER_LINES));
        assert_eq!(stored(&long).status, SkillStatus::Draft);
    }

    #[test]
    fn a_new_status_replaces_the_line_or_adds_one() {
        for (before, after) in [
            ("Do it.\n", "# Status: Approved\nDo it.\n"),
            ("# Status: Draft\r\nDo it.", "# Status: Approved\r\nDo it."),
            (
                "# Skill: x\r\nDo it.",
                "# Skill: x\r\n# Status: Approved\r\nDo it.",
            ),
            (
                "---\nname: x\n---\nDo it.",
                "---\n# Status: Approved\nname: x\n---\nDo it.",
            ),
            (
                "# Status: Disabled\n# Status: Draft\n",
                "# Status: Approved\n# Status: Draft\n",
            ),
            ("# Status: Draft", "# Status: Approved"),
            ("---", "# Status: Approved\n---"),
            ("\u{feff}x", "\u{feff}# Status: Approved\nx"),
        ] {
            let body = stored(before).with_status(SkillStatus::Approved);
            assert_eq!(
                (body.source.as_str(), body.status),
                (after, SkillStatus::Approved)
            );
            let back = body
                .with_status(SkillStatus::Draft)
                .with_status(SkillStatus::Approved);
            assert_eq!(back, body);
        }
    }

    proptest::proptest! {
        #[test]
        fn every_text_that_is_stored_takes_every_status(
            source in "(\u{feff})?(---|# Skill: x|# Status: (Draft|Approved|Disabled)|#|## Status: x|[a-z: ]{0,9}|\r?\n){1,9}"
        ) {
            let Ok(body) = SkillBody::new(&source, &SkillWrite::default(), ApprovalMode::Unsecured) else {
                return Ok(());
            };
            proptest::prop_assert_eq!(&body.source, &source);
            for status in [SkillStatus::Approved, SkillStatus::Disabled, SkillStatus::Draft] {
                let changed = body.with_status(status);
                proptest::prop_assert_eq!(changed.status, status);
                let rest = |text: &str| {
                    let lines = text.trim_start_matches('\u{feff}').lines();
                    lines.filter(|line| !line.contains("Status:")).count()
                };
                proptest::prop_assert!(rest(&changed.source) >= rest(&source));
                proptest::prop_assert_eq!(changed.with_status(status), changed);
            }
        }
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        let refused = |source: &str| {
            SkillBody::new(source, &SkillWrite::default(), ApprovalMode::Unsecured).unwrap_err()
        };
        assert!(refused(" \n").contains("empty"));
        assert!(refused("a\0b").contains("NUL"));
        assert!(refused(&"x".repeat(MAX_BODY_BYTES + 1)).contains("1024 KiB"));
        assert!(refused("# Status: Published\nx").contains("Published"));
        assert!(refused("# Status: Approved really\nx").contains("Approved really"));
        let write = SkillWrite {
            status: Some(SkillStatus::Approved),
            ..SkillWrite::default()
        };
        let full = "x".repeat(MAX_BODY_BYTES);
        assert!(
            SkillBody::new(&full, &write, ApprovalMode::Unsecured).is_err(),
            "the line has no room"
        );
        let tags = SkillWrite {
            details: SkillDetails {
                tags: Some(vec!["t".to_owned(); MAX_LIST + 1]),
                ..SkillDetails::default()
            },
            ..SkillWrite::default()
        };
        assert!(SkillBody::new("x", &tags, ApprovalMode::Unsecured).is_err());
    }

    #[test]
    fn the_header_says_what_the_skill_is() {
        let body = stored(
            "# Skill: x\n# Description: Sort the mail\n# Tags: mail, daily\n# Type: procedural\n\nDo it.",
        );
        let details = body.details();
        assert_eq!(details.description.as_deref(), Some("Sort the mail"));
        assert_eq!(
            details.tags.as_deref(),
            Some(&["mail".to_owned(), "daily".to_owned()][..])
        );
        assert_eq!(details.skill_type, Some(SkillType::Procedural));
        assert_eq!((details.vars, details.outputs), (None, None), "absent, not empty");
        let yaml = stored("---\nname: x\ndescription: \"Sort: it\"\ntags: [a, 'b']\n---\n").details();
        assert_eq!(yaml.description.as_deref(), Some("Sort: it"));
        assert_eq!(yaml.tags.as_deref(), Some(&["a".to_owned(), "b".to_owned()][..]));
        assert_eq!(stored("# Tags: ,\nx").details().tags, None);
    }

    #[test]
    fn the_hash_is_that_of_the_bytes() {
        let body = stored("abc");
        assert_eq!(
            body.content_hash,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(body.version(), "ba7816bf8f01");
    }
}
