//! The settings for people: every key, what it is, where it came from.
//!
//! Secrets are shown as [`HIDDEN`], and so are passwords and queries in URLs.

use serde_json::Value;

use super::settings::HIDDEN;
use super::{Loaded, Origin};

/// One setting as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The dotted key.
    pub key: String,
    /// The value in words; empty when unset.
    pub value_shown: String,
    /// Where it came from.
    pub origin: Origin,
}

impl Loaded {
    /// Every setting, ordered by key.
    pub fn describe(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let tree = serde_json::to_value(&self.settings).unwrap_or_default();
        self.leaves(&tree, String::new(), &mut rows);
        rows
    }

    fn leaves(&self, value: &Value, key: String, rows: &mut Vec<Row>) {
        if let Value::Object(map) = value
            && !map.is_empty()
        {
            for (name, inner) in map {
                let below = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                self.leaves(inner, below, rows);
            }
            return;
        }
        let value_shown = shown(&key, value);
        let origin = self.origins.of(&key).clone();
        rows.push(Row {
            key,
            value_shown,
            origin,
        });
    }
}

fn shown(key: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if key.ends_with("url") || key.ends_with("endpoint") => without_secrets(text),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A URL without user name, password, query and fragment.
pub(super) fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .map_or(("", url), |(scheme, rest)| (scheme, rest));
    let cut = rest.find(['?', '#']).unwrap_or(rest.len());
    let (plain, tail) = rest.split_at(cut);
    let authority_end = plain.find('/').unwrap_or(plain.len());
    let (authority, path) = plain.split_at(authority_end);
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_owned(),
    };
    let separator = if scheme.is_empty() { "" } else { "://" };
    let tail = tail
        .chars()
        .next()
        .map(|mark| format!("{mark}{HIDDEN}"))
        .unwrap_or_default();
    format!("{scheme}{separator}{host}{path}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_what_may_be_secret() {
        for (url, wanted) in [
            ("https://c.example/relay", "https://c.example/relay"),
            ("wss://user:pass@c.example:1/x", "wss://<hidden>@c.example:1/x"),
            (
                "https://c.example/wake?token=abc",
                "https://c.example/wake?<hidden>",
            ),
            ("https://c.example/a@b#x", "https://c.example/a@b#<hidden>"),
            ("c.example", "c.example"),
        ] {
            assert_eq!(without_secrets(url), wanted);
        }
    }
}
