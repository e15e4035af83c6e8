//! YAML parsing; the only module that names the YAML crate.
//!
//! [`lenient`] parses Hermes' files as Hermes does: YAML 1.1 booleans, `<<` merges, the last of two equal keys. [`strict`]
//! parses our own file into a type and reports the line of an error. Neither quotes the text in an error, and both limit
//! the expansion of aliases.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Budget, Error, Options};

/// Maximum size of a text.
pub const MAX_BYTES: usize = 1024 * 1024;

/// An error and its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct YamlError {
    /// The line, from 1, if known.
    pub line: Option<u64>,
    /// The error.
    pub problem: YamlProblem,
}

/// Kinds of errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlProblem {
    /// An unknown key.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The valid keys.
        known: Vec<&'static str>,
    },
    /// An invalid choice.
    #[error("`{value}` is not one of: {}", known.join(", "))]
    UnknownChoice {
        /// The value as written.
        value: String,
        /// The choices.
        known: Vec<&'static str>,
    },
    /// A key that appears twice in one mapping.
    #[error("the key {} appears twice", key.as_deref().map_or("here".to_owned(), |key| format!("`{key}`")))]
    DuplicateKey {
        /// The key, if it is a plain text.
        key: Option<String>,
    },
    /// A value of the wrong type, or text that is not YAML.
    #[error("{0}")]
    Malformed(String),
    /// The text is too large.
    #[error("larger than {MAX_BYTES} bytes")]
    TooLarge,
}

/// Parses a file of Hermes into plain JSON values.
pub fn lenient(text: &str) -> Result<Value, YamlError> {
    let mut options = bounded();
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    options.non_finite_float_policy = NonFiniteFloatPolicy::AsString;
    options.legacy_octal_numbers = true;
    let mut value = read(text, options.clone())?;
    options.strict_booleans = true;
    if let Ok(texts) = read(text, options) {
        restore_letters(&mut value, texts);
    }
    Ok(value)
}

/// Hermes takes `y` and `n` for texts, the YAML crate for booleans, unless it takes every YAML 1.1 boolean for a text.
fn restore_letters(value: &mut Value, texts: Value) {
    match (value, texts) {
        (value @ Value::Bool(_), Value::String(text)) if text.trim().len() == 1 => *value = text.into(),
        (Value::Array(values), Value::Array(texts)) => {
            for (value, text) in values.iter_mut().zip(texts) {
                restore_letters(value, text);
            }
        }
        (Value::Object(values), Value::Object(texts)) => {
            for (key, text) in texts {
                if let Some(value) = values.get_mut(&key) {
                    restore_letters(value, text);
                }
            }
        }
        _ => {}
    }
}

/// Parses a file of ours into a type; an empty text is the default.
pub fn strict<T: DeserializeOwned + Default>(text: &str) -> Result<T, YamlError> {
    let mut options = bounded();
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    read::<Option<T>>(text, options).map(Option::unwrap_or_default)
}

fn read<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError {
            line: None,
            problem: YamlProblem::TooLarge,
        });
    }
    serde_saphyr::from_str_with_options(text.trim_start_matches('\u{feff}'), options)
        .map_err(|error| describe(&error))
}

fn bounded() -> Options {
    let mut budget = Budget::default();
    budget.max_depth = 64;
    budget.max_nodes = 100_000;
    budget.max_aliases = 1_000;
    budget.max_anchors = 1_000;
    budget.max_merge_keys = 1_000;
    let mut aliases = AliasLimits::default();
    aliases.max_total_replayed_events = 50_000;
    aliases.max_replay_stack_depth = 16;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.alias_limits = aliases;
    options.with_snippet = false;
    options
}

fn describe(error: &Error) -> YamlError {
    let error = error.without_snippet();
    let line = error.location().map(|at| at.line()).filter(|line| *line > 0);
    let problem = match error {
        Error::SerdeUnknownField { field, expected, .. } => YamlProblem::UnknownKey {
            key: shorten(field),
            known: expected.clone(),
        },
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => YamlProblem::UnknownChoice {
            value: shorten(variant),
            known: expected.clone(),
        },
        Error::DuplicateMappingKey { key, .. } => YamlProblem::DuplicateKey {
            key: key.as_deref().map(shorten),
        },
        Error::InvalidScalar { ty, .. } => YamlProblem::Malformed(format!("expected {}", expected_kind(ty))),
        Error::Unexpected { expected, .. } => {
            YamlProblem::Malformed(format!("expected {}", expected_kind(expected)))
        }
        Error::SerdeMissingField { field, .. } => YamlProblem::Malformed(format!("`{field}` is missing")),
        other => {
            let text = other.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            YamlProblem::Malformed(shorten(what))
        }
    };
    YamlError { line, problem }
}

/// The YAML crate's name for a kind of value, in plain words.
fn expected_kind(kind: &str) -> &str {
    match kind {
        "boolean" => "true or false",
        "mapping start" => "keys with values",
        "sequence start" => "a list",
        "string scalar" | "scalar" => "a single value",
        kind if kind.starts_with(['u', 'i']) && kind[1..].parse::<u8>().is_ok() => {
            "a whole number, 0 or more"
        }
        other => other,
    }
}

/// One line of at most 200 characters without control characters.
fn shorten(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[test]
    fn hermes_files_are_parsed_as_hermes_does() {
        let text = "\
a: yes\nb: No\nc: on\nd: OFF\ne: \"yes\"\nf: 010\ng: 1.5\nh: ~\nj: 12345678901234567890\n\
base: &base\n  require_mention: true\n  free: [1]\nuser:\n  <<: *base\n  free: [2]\n\
twice: 1\ntwice: 2\n1: one\ninf: .inf\ndate: 2026-01-02\n\
letters: [n, Y, \"y\", {n: N}]\n";
        let read = lenient(text).unwrap();
        for (key, wanted) in [
            ("a", json!(true)),
            ("b", json!(false)),
            ("c", json!(true)),
            ("d", json!(false)),
            ("e", json!("yes")),
            ("f", json!(8)),
            ("g", json!(1.5)),
            ("h", json!(null)),
            ("j", json!(12_345_678_901_234_567_890_u64)),
            ("user", json!({"require_mention": true, "free": [2]})),
            ("twice", json!(2)),
            ("1", json!("one")),
            ("inf", json!(".inf")),
            ("date", json!("2026-01-02")),
            ("letters", json!(["n", "Y", "y", {"n": "N"}])),
        ] {
            assert_eq!(read[key], wanted, "{key}");
        }
    }

    #[test]
    fn merges_of_a_list_let_the_first_win() {
        let text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\n";
        assert_eq!(lenient(text).unwrap()["c"], json!({"x": 3, "y": 1, "z": 2}));
    }

    #[test]
    fn policy_files_of_the_vectors_are_readable_where_they_are_yaml() {
        let vectors: Value = serde_json::from_str(include_str!("../../tests/vectors/policy.json")).unwrap();
        let mut seen = 0;
        for case in vectors["vectors"].as_array().unwrap() {
            let Some(text) = case["config_yaml"].as_str() else {
                continue;
            };
            seen += 1;
            let malformed = case["name"] == "malformed yaml";
            assert_eq!(lenient(text).is_err(), malformed, "{}", case["name"]);
        }
        assert!(seen > 15);
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..12 {
            use std::fmt::Write as _;
            let alias = format!("*a{}", n - 1);
            writeln!(text, "a{n}: &a{n} [{}]", [alias.as_str(); 10].join(", ")).unwrap();
        }
        assert!(lenient(&text).is_err());
        assert!(lenient(&"[".repeat(100_000)).is_err());
        assert_eq!(
            lenient(&" ".repeat(MAX_BYTES + 1)).unwrap_err().problem,
            YamlProblem::TooLarge
        );
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Sample {
        count: u32,
        mode: Mode,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        #[default]
        Queue,
        Steer,
    }

    #[test]
    fn our_own_file_is_strict_and_names_the_line() {
        assert_eq!(strict::<Sample>("# nothing\n").unwrap(), Sample::default());
        assert_eq!(strict::<Sample>("mode: steer\n").unwrap().mode, Mode::Steer);

        let unknown = strict::<Sample>("count: 1\n\ncuont: 2\n").unwrap_err();
        assert_eq!(unknown.line, Some(3));
        assert!(matches!(unknown.problem, YamlProblem::UnknownKey { ref key, .. } if key == "cuont"));

        let choice = strict::<Sample>("mode: stear\n").unwrap_err();
        assert_eq!(choice.line, Some(1));
        assert!(
            matches!(choice.problem, YamlProblem::UnknownChoice { ref known, .. } if known.contains(&"steer"))
        );

        let twice = strict::<Sample>("count: 1\ncount: 2\n").unwrap_err();
        assert_eq!(twice.line, Some(2));
        assert!(matches!(twice.problem, YamlProblem::DuplicateKey { .. }));

        let typed = strict::<Sample>("\ncount: many\n").unwrap_err();
        assert_eq!(typed.line, Some(2));
        assert!(matches!(typed.problem, YamlProblem::Malformed(_)));
    }
}
