//! A command line that cannot be parsed: the verbs of other programs lead to ours.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::exit::{self, fail, print};
use super::notify;
use super::{Cli, VERSION};
use crate::config::nearest;

/// What to do about a mistake that has no hint of its own.
const HELP: &str = "for more information, try `--help`";

/// Reports the error of these words, the program's name first, or prints what was asked for: help and the version are errors of
/// the parser, too.
pub(super) fn report(words: &[OsString], error: &clap::Error) -> ExitCode {
    let words: Vec<String> = (words.iter().skip(1))
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mistake = match explain(&words, error) {
        Explained::Version => return print(format_args!("hermes-relay {}", *VERSION)),
        Explained::Asked => None,
        Explained::Mistake(what, hint) => Some((what, hint)),
    };
    let code = u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
    if asks_for_json(&words) && error.use_stderr() && !notify::report_usage(&words, error) {
        let tip = tip(error);
        let (what, hint) = match &mistake {
            Some((what, hint)) => (what.clone(), Some(hint.as_str())),
            None => (message(error), Some(tip.as_deref().unwrap_or(HELP))),
        };
        exit::print_error(code, &what, hint);
    }
    if let Some((what, hint)) = mistake {
        return fail(code, what, Some(&hint));
    }
    // Nothing can be done if the terminal is gone.
    let _ = error.print();
    ExitCode::from(code)
}

/// What a command line that cannot be parsed is.
enum Explained {
    /// It asks for the version, as other programs are asked.
    Version,
    /// The parser says it all.
    Asked,
    /// What is wrong, and what was meant.
    Mistake(String, String),
}

fn explain(words: &[String], error: &clap::Error) -> Explained {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
    {
        let above = first_verb(words);
        let is_first = above.is_some_and(|first| first == word);
        if is_first && word == "version" {
            return Explained::Version;
        }
        let is_service = above.is_some_and(|first| first == "service");
        let hint = meant(word, is_first, is_service).or_else(|| {
            let is_mended = error.get(ContextKind::SuggestedSubcommand).is_some();
            near_verb(word).filter(|_| is_first && !is_mended)
        });
        if let Some(hint) = hint {
            return Explained::Mistake(format!("there is no command `{word}`"), hint);
        }
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some((word, hint)) = mistyped_option(words.iter().cloned())
    {
        return Explained::Mistake(format!("there is no option `{word}`"), hint);
    }
    Explained::Asked
}

/// The verb of a command line, after the options that every verb has.
fn first_verb(words: &[String]) -> Option<&String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--config" | "--state-dir" | "--log-level" => drop(words.next()),
            option if option.starts_with('-') => {}
            _ => return Some(word),
        }
    }
    None
}

/// Whether a command line has `--json` outside of texts.
fn asks_for_json(words: &[String]) -> bool {
    words
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--json")
}

/// An error of the parser on one line, without the usage.
pub(super) fn message(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing".to_owned();
    }
    // The usage follows an empty line.
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.is_empty());
    let what = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    what.strip_prefix("error: ").unwrap_or(&what).to_owned()
}

/// What the parser suggests instead.
fn tip(error: &clap::Error) -> Option<String> {
    let text = error.render().to_string();
    let tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    Some(tips.collect::<Vec<_>>().join("; ")).filter(|tips| !tips.is_empty())
}

/// A word that was taken for the text of a verb although it looks like one of its options, and what was meant.
fn mistyped_option(words: impl Iterator<Item = String>) -> Option<(String, String)> {
    let program = Cli::command();
    let mut command = &program;
    for word in words.take_while(|word| word != "--") {
        if let Some(below) = command.find_subcommand(&word) {
            command = below;
        }
        if !command
            .get_positionals()
            .any(clap::Arg::is_allow_hyphen_values_set)
        {
            continue;
        }
        let Some(typed) = word
            .strip_prefix("--")
            .map(|rest| rest.split('=').next().unwrap_or(rest))
        else {
            continue;
        };
        let options = command.get_arguments().chain(program.get_arguments());
        let known: Vec<&str> = options.filter_map(clap::Arg::get_long).chain(["help"]).collect();
        if let Some(near) = nearest(typed, known.iter().copied())
            && near != typed
        {
            let hint = format!(
                "did you mean `--{near}`? A text that begins with `--` goes behind a `--` of its own"
            );
            return Some((format!("--{typed}"), hint));
        }
    }
    None
}

/// What to run instead of a verb that does not exist.
fn meant(word: &str, is_first: bool, is_service: bool) -> Option<String> {
    match word {
        "start" if is_first => Some(
            "run the relay here with `hermes-relay run`, or as a service with `hermes-relay service install --user --now`"
                .to_owned(),
        ),
        "start" | "stop" | "restart" | "enable" | "disable" if is_service => Some(format!(
            "run `systemctl --user {word} hermes-relay` (a system service without `--user`)"
        )),
        _ => None,
    }
}

/// The verb that a short word with a typo is near to: the parser suggests verbs for longer ones only.
fn near_verb(word: &str) -> Option<String> {
    let program = Cli::command();
    let verbs = program.get_subcommands().filter(|verb| !verb.is_hide_set());
    let near = nearest(word, verbs.map(clap::Command::get_name))?;
    Some(format!("did you mean `hermes-relay {near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_with_a_typo_is_not_the_text() {
        let meant = |line: &str| mistyped_option(line.split(' ').map(str::to_owned));
        let (word, hint) = meant("send --chat 1 --silnt hello").unwrap();
        assert_eq!(word, "--silnt");
        assert!(hint.contains("`--silent`"), "{hint}");
        for fine in [
            "send --chat 1 --silent hello",
            "send --chat 1 -- --silnt hello",
            "send --chat 1 - x",
            "status --jsn x",
        ] {
            assert_eq!(meant(fine), None, "{fine}");
        }
    }

    #[test]
    fn an_error_is_one_line_with_the_hint_of_the_parser() {
        let line = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = Cli::command().try_get_matches_from(&words).unwrap_err();
            let is_json = asks_for_json(&words[1..]);
            (message(&error), tip(&error), is_json)
        };
        let (what, hint, is_json) = line("hermes-relay status --jsn --json");
        assert_eq!(what, "unexpected argument '--jsn' found");
        assert!(hint.unwrap().contains("'--json'") && is_json);
        let (what, hint, is_json) = line("hermes-relay --json journal show");
        assert!(what.ends_with("were not provided: <ID>"), "{what}");
        assert!(hint.is_none() && is_json);
        let (what, _, is_json) = line("hermes-relay journal --json");
        assert!(what.contains("requires a subcommand") && is_json, "{what}");
        let (what, _, is_json) = line("hermes-relay");
        assert!(what == "a command is missing" && !is_json, "{what}");
        let (_, _, is_json) = line("hermes-relay send --bogus -- --json");
        assert!(!is_json, "it is the text");
    }

    #[test]
    fn the_verb_follows_the_options_of_every_verb() {
        let first = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            first_verb(&words).cloned()
        };
        for line in [
            "dve --json",
            "--json dve",
            "--config run dve",
            "--state-dir=a --log-level info dve run",
        ] {
            assert_eq!(first(line).as_deref(), Some("dve"), "{line}");
        }
        assert_eq!(first("--json --config"), None);
    }

    #[test]
    fn a_short_verb_with_a_typo_is_found() {
        for (typed, verb) in [("dve", "dev"), ("rnu", "run"), ("sned", "send")] {
            assert_eq!(
                near_verb(typed),
                Some(format!("did you mean `hermes-relay {verb}`?"))
            );
        }
        assert_eq!(near_verb("xyz"), None);
    }

    #[test]
    fn the_hint_depends_on_where_the_word_is() {
        assert!(meant("start", true, false).unwrap().contains("hermes-relay run"));
        let service = meant("start", false, true).unwrap();
        assert!(service.contains("systemctl --user start"), "{service}");
        assert_eq!(meant("start", false, false), None, "such as `journal start`");
        assert_eq!(meant("staus", true, false), None);
    }
}
