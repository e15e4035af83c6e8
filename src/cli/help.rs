//! The help of the program: its verbs in groups, by what a person wants to do.

use std::fmt::Write as _;

use clap::builder::styling::Style;
use clap::{Command, CommandFactory as _};

use super::Cli;

/// The verbs by group, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Start", &["init", "dev", "enroll", "unenroll", "run", "service"]),
    (
        "Operate",
        &[
            "status", "sessions", "stop", "send", "notify", "cron", "skills", "data", "access", "usage",
            "reload", "wake",
        ],
    ),
    (
        "Diagnose",
        &["doctor", "health", "config", "agents", "journal", "logs"],
    ),
    (
        "Tooling",
        &["conformance", "oracle", "completions", "man", "help"],
    ),
];

/// Widest line, and the width of a terminal that does not know its own.
const MAX_WIDTH: usize = 100;

/// The program's command line, with help in groups.
pub(super) fn command() -> Command {
    let mut command = Cli::command();
    // Adds `help` to the verbs.
    command.build();
    let header = *command.get_styles().get_header();
    let verbs = groups(&command, header, *command.get_styles().get_literal(), width());
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
fn groups(command: &Command, header: Style, literal: Style, width: usize) -> String {
    let known = |name: &&&str| command.find_subcommand(name).is_some();
    let names = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().filter(known));
    let column = names.map(|name| name.len()).max().unwrap_or(0) + 4;
    let mut text = String::new();
    for (heading, verbs) in GROUPS {
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
        let position = |name: &str| GROUPS.iter().position(|(_, verbs)| verbs.contains(&name));
        assert_eq!(position("oracle"), Some(3), "under tooling");
    }

    #[test]
    fn long_descriptions_are_wrapped_and_indented() {
        assert_eq!(wrapped("one two three", 8, 4), "one two\n    three");
        assert_eq!(wrapped("incomprehensibilities", 8, 4), "incomprehensibilities");
        let text = groups(&Cli::command(), Style::new(), Style::new(), 60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }
}
