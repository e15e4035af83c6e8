//! Redaction: finds secrets and ids in text and replaces them.
//!
//! One engine serves the live log and `logs redact`. The log uses [`Redactor::exact`], which knows values and formats and
//! guesses nothing; `logs redact` uses [`Redactor::thorough`], which also finds what looks like a secret or an id. The
//! first line of defence is elsewhere: secrets are types that do not print themselves.

mod ids;
mod names;
mod pairs;
mod patterns;
mod secrets;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use memchr::memmem;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use self::ids::Pseudonyms;
use crate::config::settings::HIDDEN;
use crate::text::escape;

pub(crate) use self::secrets::{known_secrets, known_without_settings};

/// Shorter values are not searched for: they would match ordinary words.
const MIN_SECRET: usize = 8;
/// Shorter lines of a multi-line secret are not searched for on their own.
const MIN_SECRET_LINE: usize = 16;
/// Maximum number of secrets; the oldest are dropped first.
const MAX_SECRETS: usize = 256;

/// A secret of this installation.
#[derive(Clone, Debug)]
pub(crate) struct KnownSecret {
    /// Where it comes from: a setting, a variable, an agent's key.
    pub(crate) name: String,
    pub(crate) value: SecretString,
}

impl KnownSecret {
    pub(crate) fn new(name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

/// What was found. Where matches overlap, the first kind in this order is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MatchKind {
    /// A known secret, by its index in [`Redactor::secrets`].
    Known(usize),
    /// A token in the relay's own format.
    Token,
    /// The value after `Bearer` or `Basic`.
    Bearer,
    /// The value of a name that sounds like a secret.
    Named,
    /// The login in a URL.
    Login,
    /// A value in the query of a URL.
    Query,
    /// A key in a well-known format.
    KeyFormat,
    /// A pairing code.
    Code,
    /// The id or the name of a chat or a person.
    Id,
}

/// One finding in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) range: Range<usize>,
    pub(crate) kind: MatchKind,
}

/// Finds and replaces secrets.
#[derive(Default)]
pub(crate) struct Redactor {
    secrets: Vec<KnownSecret>,
    /// Every spelling of every secret, with the index of the secret.
    spellings: Vec<(Zeroizing<Vec<u8>>, usize)>,
    heuristics: bool,
    /// Replacement names of ids; none where ids are kept.
    ids: Option<Mutex<Pseudonyms>>,
}

impl Redactor {
    /// Finds these secrets, tokens and bearers. Ignores values that are too short; keeps the last ones at the maximum.
    pub(crate) fn exact(secrets: Vec<KnownSecret>) -> Self {
        let mut kept: Vec<KnownSecret> = Vec::new();
        for secret in secrets.into_iter().rev() {
            let value = secret.value.expose_secret();
            let is_same = |other: &KnownSecret| other.value.expose_secret() == value;
            if value.len() >= MIN_SECRET && kept.len() < MAX_SECRETS && !kept.iter().any(is_same) {
                kept.push(secret);
            }
        }
        kept.reverse();
        let mut spellings = Vec::new();
        for (index, secret) in kept.iter().enumerate() {
            let forms = spellings_of(secret.value.expose_secret());
            spellings.extend(forms.into_iter().map(|form| (form, index)));
        }
        Self {
            secrets: kept,
            spellings,
            heuristics: false,
            ids: None,
        }
    }

    /// Also finds what looks like a secret and, unless they are kept, the ids and names of chats and people.
    pub(crate) fn thorough(secrets: Vec<KnownSecret>, keep_ids: bool) -> Self {
        Self {
            heuristics: true,
            ids: (!keep_ids).then(Mutex::default),
            ..Self::exact(secrets)
        }
    }

    /// The secrets that are searched for.
    pub(crate) fn secrets(&self) -> &[KnownSecret] {
        &self.secrets
    }

    /// The length of the longest spelling.
    pub(crate) fn longest(&self) -> usize {
        let lengths = self.spellings.iter().map(|(spelling, _)| spelling.len());
        lengths.max().unwrap_or_default()
    }

    /// All matches in order, overlapping ones merged.
    pub(crate) fn find(&self, text: &[u8]) -> Vec<Match> {
        let mut found = Vec::new();
        for (spelling, index) in &self.spellings {
            found.extend(memmem::find_iter(text, spelling.as_slice()).map(|start| Match {
                range: start..start + spelling.len(),
                kind: MatchKind::Known(*index),
            }));
        }
        patterns::credentials(text, &mut found);
        if self.heuristics {
            patterns::likely_secrets(text, &mut found);
        }
        if let Some(ids) = &self.ids {
            let ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
            found.extend(ids.find(text).into_iter().map(|range| Match {
                range,
                kind: MatchKind::Id,
            }));
        }
        merge(found)
    }

    /// Replaces the matches that [`Redactor::find`] returned for this text.
    pub(crate) fn replace(&self, text: &[u8], matches: &[Match]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(text.len());
        let mut from = 0;
        for found in matches {
            shown.extend_from_slice(&text[from..found.range.start]);
            match (found.kind, &self.ids) {
                (MatchKind::Id, Some(ids)) => {
                    let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
                    shown.extend_from_slice(ids.name(&text[found.range.clone()]).as_bytes());
                }
                _ => shown.extend_from_slice(HIDDEN.as_bytes()),
            }
            from = found.range.end;
        }
        shown.extend_from_slice(&text[from..]);
        shown
    }

    /// The text with every match replaced; borrowed if there was none.
    pub(crate) fn redact<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let matches = self.find(text);
        if matches.is_empty() {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(self.replace(text, &matches))
        }
    }

    /// [`Redactor::redact`] for a string.
    pub(crate) fn redact_str<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.redact(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(shown) => Cow::Owned(String::from_utf8_lossy(&shown).into_owned()),
        }
    }
}

fn merge(mut found: Vec<Match>) -> Vec<Match> {
    found.sort_by_key(|found| (found.range.start, found.kind));
    let mut merged: Vec<Match> = Vec::with_capacity(found.len());
    for next in found {
        match merged.last_mut() {
            Some(last) if next.range.start < last.range.end => {
                last.range.end = last.range.end.max(next.range.end);
                last.kind = last.kind.min(next.kind);
            }
            _ => merged.push(next),
        }
    }
    merged
}

/// Every form in which a line may contain a secret: plain, escaped for a terminal, as a Rust or JSON string or both, in a
/// URL, and each of its lines alone.
fn spellings_of(secret: &str) -> Vec<Zeroizing<Vec<u8>>> {
    let quoted = Zeroizing::new(format!("{secret:?}"));
    let json = Zeroizing::new(json_escaped(secret));
    let both = Zeroizing::new(json_escaped(unquoted(&quoted)));
    let url: Zeroizing<String> =
        Zeroizing::new(url::form_urlencoded::byte_serialize(secret.as_bytes()).collect());
    let percent = Zeroizing::new(percent_encoded(secret));
    let escaped = Zeroizing::new(escape(secret).into_owned());
    let whole = [secret, &escaped, unquoted(&quoted), &json, &both, &url, &percent];
    let lines = secret
        .lines()
        .map(str::trim)
        .filter(|line| line.len() >= MIN_SECRET_LINE);
    let mut forms: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    for form in whole.into_iter().chain(lines) {
        if !forms.iter().any(|known| known.as_slice() == form.as_bytes()) {
            forms.push(Zeroizing::new(form.as_bytes().to_vec()));
        }
    }
    forms
}

/// Percent-encoded, with a space as `%20` and not as `+`.
fn percent_encoded(text: &str) -> String {
    let mut url = String::with_capacity(3 * text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

/// The contents of a JSON string, without its quotes.
fn json_escaped(text: &str) -> String {
    let quoted = Zeroizing::new(serde_json::to_string(text).unwrap_or_default());
    unquoted(&quoted).to_owned()
}

fn unquoted(quoted: &str) -> &str {
    let bare = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    bare.unwrap_or(quoted)
}

/// The longest run of matching bytes from a position on.
fn run(line: &[u8], from: usize, fits: impl Fn(u8) -> bool) -> Range<usize> {
    let length = line[from..].iter().take_while(|byte| fits(**byte)).count();
    from..from + length
}

#[cfg(test)]
mod tests;
