//! A command line that cannot be parsed: the verbs of other programs lead to ours.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::exit::{self, fail, print};
use super::notify;
use super::{Cli, VERSION};
use crate::config::nearest;

/// Reports the error, or prints what was asked for: help and the version are errors of the parser, too.
pub(super) fn report(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
    {
        let above = std::env::args_os().nth(1);
        let is_first = above.as_ref().is_some_and(|first| first == word.as_str());
        if is_first && word == "version" {
            return print(format_args!("hermes-relay {}", *VERSION));
        }
        let is_service = above.is_some_and(|first| first == "service");
        let hint = meant(word, is_first, is_service).or_else(|| {
            let is_mended = error.get(ContextKind::SuggestedSubcommand).is_some();
            near_verb(word).filter(|_| is_first && !is_mended)
        });
        if let Some(hint) = hint {
            return fail(exit::USAGE, format!("there is no command `{word}`"), Some(&hint));
        }
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some((word, hint)) = mistyped_option(std::env::args().skip(1))
    {
        return fail(exit::USAGE, format!("there is no option `{word}`"), Some(&hint));
    }
    if error.use_stderr() {
        notify::report_usage(std::env::args_os().skip(1), error);
    }
    // Nothing can be done if the terminal is gone.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE))
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
