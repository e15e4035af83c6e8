//! The help of the program: first what a newcomer needs, and all commands in groups, by what a person wants to do.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::builder::styling::Style;
use clap::{Command, CommandFactory as _};

use super::exit::{self, finish};
use super::{Cli, START};

/// A heading and the commands below it.
type Group = (&'static str, &'static [&'static str]);

/// What a newcomer needs.
const FIRST: [Group; 1] = [(
    "Commands",
    &[
        "init", "dev", "run", "access", "cron", "send", "status", "doctor", "service",
    ],
)];

/// The verbs by group, in the order of the full help.
const GROUPS: [Group; 4] = [
    (
        "Start",
        &["init", "dev", "enroll", "unenroll", "run", "worker", "service"],
    ),
    (
        "Operate",
        &[
            "status", "sessions", "stop", "restart", "reload", "handover", "wake", "send", "notify", "cron",
            "skills", "data", "access",
        ],
    ),
    (
        "Diagnose",
        &["doctor", "logs", "health", "config", "agents", "journal"],
    ),
    (
        "Tooling",
        &["conformance", "oracle", "completions", "man", "help"],
    ),
];

/// Widest line, and the width of a terminal that does not know its own.
const MAX_WIDTH: usize = 100;

/// The program's command line, with the help for a newcomer.
pub(super) fn command() -> Command {
    with_groups(&FIRST)
}

/// Whether these arguments ask for the help with all commands.
pub(super) fn is_full_help(words: impl Iterator<Item = OsString>) -> bool {
    let mut words: Vec<OsString> = words.take(3).collect();
    words.sort();
    words == ["--all", "help"] || words == ["--all", "--help"]
}

/// Prints the help with all commands and the exit codes.
pub(super) fn print_all() -> ExitCode {
    let after = format!("{START}\n\n{}", exit::codes());
    let help = with_groups(&GROUPS).after_help(after).render_help();
    let mut out = anstream::stdout();
    finish(write!(out, "{}", help.ansi()).and_then(|()| out.flush()))
}

fn with_groups(shown: &[Group]) -> Command {
    let mut command = Cli::command();
    // Adds `help` to the verbs.
    command.build();
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let verbs = groups(&command, shown, (header, literal), width());
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{verbs}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    Cli::command().help_template(template)
}

fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 {
        MAX_WIDTH
    } else {
        columns.min(MAX_WIDTH)
    }
}

/// The groups as text.
fn groups(command: &Command, shown: &[Group], (header, literal): (Style, Style), width: usize) -> String {
    let known = |name: &&&str| command.find_subcommand(name).is_some();
    let names = shown.iter().flat_map(|(_, verbs)| verbs.iter().filter(known));
    let column = names.map(|name| name.len()).max().unwrap_or(0) + 4;
    let mut text = String::new();
    for (heading, verbs) in shown {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{header}{heading}:{header:#}");
        for verb in verbs.iter().filter_map(|name| command.find_subcommand(name)) {
            let name = verb.get_name();
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let space = " ".repeat(column - 2 - name.len());
            // The rest is in the help of the verb.
            let about = about.split(". ").next().unwrap_or_default();
            let about = wrapped(about, width.saturating_sub(column), column);
            let _ = writeln!(text, "  {literal}{name}{literal:#}{space}{about}");
        }
        text.push('\n');
    }
    text
}

/// The text in lines of at most so many columns; further lines begin at `indent`.
fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > columns {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            used = 0;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group() {
        let mut command = Cli::command();
        command.build();
        let mut grouped: Vec<_> = GROUPS
            .iter()
            .flat_map(|(_, verbs)| verbs.iter().copied())
            .collect();
        grouped.retain(|name| command.find_subcommand(name).is_some());
        grouped.sort_unstable();
        let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut verbs: Vec<_> = shown.map(|verb| verb.get_name().to_owned()).collect();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
        let newcomers = FIRST.iter().flat_map(|(_, verbs)| verbs.iter());
        assert!(
            newcomers
                .clone()
                .all(|name| GROUPS.iter().any(|(_, verbs)| verbs.contains(name)))
        );
        let position = |name: &str| GROUPS.iter().position(|(_, verbs)| verbs.contains(&name));
        assert_eq!(position("oracle"), Some(3), "under tooling");
    }

    #[test]
    fn the_options_of_every_command_are_taken_behind_every_command() {
        fn check(command: &Command, above: &str) {
            let name = format!("{above} {}", command.get_name());
            for below in command
                .get_subcommands()
                .filter(|below| below.get_name() != "help")
            {
                check(below, &name);
            }
            for option in ["config", "state_dir", "json", "log_level"] {
                let is_known = command.get_arguments().any(|arg| arg.get_id() == option);
                assert!(is_known, "{name} has no {option}");
            }
        }
        let mut program = Cli::command();
        program.build();
        check(&program, "");
    }

    #[test]
    fn the_full_help_is_asked_for_in_two_ways() {
        let asks = |words: &[&str]| is_full_help(words.iter().map(OsString::from));
        assert!(asks(&["help", "--all"]) && asks(&["--help", "--all"]));
        assert!(!asks(&["help"]) && !asks(&["--all"]) && !asks(&["help", "--all", "run"]));
    }

    #[test]
    fn long_descriptions_are_wrapped_and_indented() {
        assert_eq!(wrapped("one two three", 8, 4), "one two\n    three");
        assert_eq!(wrapped("incomprehensibilities", 8, 4), "incomprehensibilities");
        let text = groups(&Cli::command(), &GROUPS, (Style::new(), Style::new()), 60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }
}
