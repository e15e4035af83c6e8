//! Command lines for people: what looks like a secret in them is hidden.

use super::describe::without_secrets as without_credentials;
use super::settings::HIDDEN;

/// How names of options and variables end that take a secret.
const SECRET_NAMES: [&str; 9] = [
    "key",
    "token",
    "password",
    "passwd",
    "passphrase",
    "pass",
    "secret",
    "credential",
    "credentials",
];

const QUOTES: [char; 2] = ['\'', '"'];

/// What follows in the next word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Plain,
    Secret,
    Header,
}

/// The words of a command line without secrets: values of options such as `--api-key`, of headers and of variables, and what follows
/// `Bearer`.
pub(super) fn without_secrets<'w>(words: impl Iterator<Item = &'w str>) -> Vec<String> {
    let mut next = Next::Plain;
    let mut shown = Vec::new();
    for word in words {
        let is_script = next == Next::Plain && word.contains(char::is_whitespace) && !begins_header(word);
        shown.push(if is_script {
            script(word)
        } else {
            one(word, &mut next)
        });
    }
    shown
}

/// A word that is a command line itself, as for `sh -c`. Nothing is shown of it after the name of a header.
fn script(text: &str) -> String {
    let mut next = Next::Plain;
    let mut shown = Vec::new();
    for word in text.split_whitespace() {
        shown.push(one(word, &mut next));
        if begins_header(word) {
            shown.push(HIDDEN.to_owned());
            break;
        }
    }
    shown.join(" ")
}

/// Whether a word names a header, or is the option before one.
fn begins_header(word: &str) -> bool {
    let bare = word.trim_matches(QUOTES);
    let name = bare.split_once(':').map_or("", |(name, _)| name);
    bare.starts_with("-H") || bare.starts_with("--header") || is_authorization(name)
}

/// One word, and what it says of the next one.
fn one(word: &str, next: &mut Next) -> String {
    match std::mem::replace(next, Next::Plain) {
        Next::Secret => return HIDDEN.to_owned(),
        Next::Header => return header(word),
        Next::Plain => {}
    }
    let bare = word.trim_matches(QUOTES);
    if bare.eq_ignore_ascii_case("bearer") {
        *next = Next::Secret;
        return word.to_owned();
    }
    if bare == "-H" || bare == "--header" {
        *next = Next::Header;
        return word.to_owned();
    }
    if let Some(value) = bare.strip_prefix("-H").filter(|value| value.contains(':')) {
        return format!("-H{}", header(value));
    }
    match bare.split_once(['=', ':']) {
        Some(("--header", value)) => format!("--header={}", header(value)),
        Some((name, "")) if is_secret_name(name) || is_authorization(name) => {
            *next = Next::Secret;
            word.to_owned()
        }
        Some((name, _)) if is_secret_name(name) || is_authorization(name) => {
            format!("{name}{}{HIDDEN}", &bare[name.len()..=name.len()])
        }
        None if bare.starts_with('-') && is_secret_name(bare) => {
            *next = Next::Secret;
            word.to_owned()
        }
        Some(_) if bare.contains("://") => without_credentials(bare),
        Some(_) | None => word.to_owned(),
    }
}

/// A header with its name alone.
fn header(text: &str) -> String {
    match text.split_once(':') {
        Some((name, _)) => format!("{name}: {HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}

fn is_authorization(name: &str) -> bool {
    !name.contains(char::is_whitespace) && name.to_ascii_lowercase().ends_with("authorization")
}

/// Whether an option or a variable of this name takes a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    SECRET_NAMES.contains(&last) || last == "apikey"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> String {
        without_secrets(words.iter().copied()).join("|")
    }

    #[test]
    fn values_of_secrets_are_hidden_and_nothing_else() {
        for (words, wanted) in [
            (
                &["agent", "--api-key", "hush", "-v"][..],
                "agent|--api-key|<hidden>|-v",
            ),
            (&["agent", "--api-key=hush"], "agent|--api-key=<hidden>"),
            (&["agent", "--token", "hush"], "agent|--token|<hidden>"),
            (&["agent", "--db_password=hush"], "agent|--db_password=<hidden>"),
            (
                &["env", "OPENAI_API_KEY=hush", "agent"],
                "env|OPENAI_API_KEY=<hidden>|agent",
            ),
            (
                &["curl", "-H", "X-Key: hush", "https://h.example"],
                "curl|-H|X-Key: <hidden>|https://h.example",
            ),
            (&["curl", "-HX-Key: hush"], "curl|-HX-Key: <hidden>"),
            (&["curl", "--header=X-Key: hush"], "curl|--header=X-Key: <hidden>"),
            (
                &["tool", "Authorization: Bearer hush"],
                "tool|Authorization:<hidden>",
            ),
            (&["tool", "Bearer hush"], "tool|Bearer <hidden>"),
            (
                &["sh", "-c", "curl -s -H 'X-Key: hush' h; agent --secret hush"],
                "sh|-c|curl -s -H <hidden>",
            ),
            (
                &["sh", "-c", "tool \"Authorization: Bearer hush\" x"],
                "sh|-c|tool \"Authorization: <hidden>",
            ),
            (
                &["tool", "https://me:hush@h.example/x?key=hush"],
                "tool|https://<hidden>@h.example/x?<hidden>",
            ),
            (
                &["sh", "-c", "agent --secret  hush --port 80"],
                "sh|-c|agent --secret <hidden> --port 80",
            ),
            (
                &["llm", "--max-tokens", "100", "--keyboard", "de", "a:b", "x=y"],
                "llm|--max-tokens|100|--keyboard|de|a:b|x=y",
            ),
        ] {
            assert_eq!(shown(words), wanted);
        }
    }
}
