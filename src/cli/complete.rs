//! `hermes-relay complete`: the names that a shell offers for the last word of a command line. The scripts of `completions` call it.
//!
//! Names come from the settings, the state directory and the control socket, never from the network. Only names that are safe in
//! every shell are printed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Args, Command, CommandFactory as _};

use super::cron;
use super::exit::outln;
use super::remote::{RemoteArgs, RemoteRelay};
use super::{Cli, Environment};
use crate::agent::BUILT_IN;
use crate::serve::ControlRequest;
use crate::serve::client;
use crate::skill::SkillFilter;

/// How long a running relay may take to list its sessions.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of names.
const MAX_NAMES: usize = 500;

/// Print the names that complete a command line.
#[derive(Args, Debug)]
pub(super) struct CompleteArgs {
    /// The words after the program's name; the last one is completed.
    #[arg(last = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What sort of name is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    Agent,
    Job,
    Session,
    Skill,
    Platform,
}

/// A name that is to be completed, and of which relay.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    kind: Option<NameKind>,
    config: Option<PathBuf>,
    state_dir: Option<PathBuf>,
}

/// Runs the verb. Whatever fails, there is just nothing to offer.
pub(super) fn run(args: &CompleteArgs, env: Environment<'_>) -> ExitCode {
    let wanted = wanted(&Cli::command(), &args.words);
    if let Some(kind) = wanted.kind {
        let remote = RemoteArgs::new(wanted.config, wanted.state_dir);
        if let Ok(relay) = remote.load(env) {
            for name in names(kind, &relay).iter().take(MAX_NAMES) {
                outln!("{name}");
            }
        }
    }
    ExitCode::SUCCESS
}

/// The name that the last word is the beginning of.
fn wanted(program: &Command, words: &[String]) -> Wanted {
    let mut wanted = Wanted::default();
    let Some((last, before)) = words.split_last() else {
        return wanted;
    };
    let (mut command, mut path, mut positionals) = (program, Vec::new(), 0);
    let mut option: Option<&Arg> = None;
    for word in before {
        if let Some(option) = option.take() {
            match option.get_id().as_str() {
                "config" => wanted.config = Some(word.into()),
                "state_dir" => wanted.state_dir = Some(word.into()),
                _ => {}
            }
        } else if word.starts_with('-') {
            option = option_named(command, word).or_else(|| option_named(program, word));
        } else if positionals == 0
            && let Some(below) = command.find_subcommand(word)
        {
            path.push(below.get_name());
            command = below;
        } else {
            positionals += 1;
        }
    }
    let arg = match option {
        Some(option) => Some(option),
        None if last.starts_with('-') => None,
        None => command.get_positionals().nth(positionals),
    };
    wanted.kind = arg.and_then(|arg| kind_of(&path, arg));
    wanted
}

/// The option with this spelling, if a value follows as another word.
fn option_named<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let is_it = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word.ends_with(short)),
    };
    let mut options = command.get_opts().filter(|arg| arg.get_action().takes_values());
    options.find(is_it)
}

/// The sort of names that an argument takes.
fn kind_of(path: &[&str], arg: &Arg) -> Option<NameKind> {
    let value = arg.get_value_names().and_then(|names| names.first());
    match (
        path,
        arg.get_id().as_str(),
        value.map_or("", |name| name.as_str()),
    ) {
        (_, "agent" | "agents", _) | (["agents", "test"], "name", _) => Some(NameKind::Agent),
        (_, _, "JOB") => Some(NameKind::Job),
        (_, _, "SESSION") => Some(NameKind::Session),
        (_, "skill", _) | (["skills", "show" | "approve" | "disable" | "delete" | "versions"], "name", _) => {
            Some(NameKind::Skill)
        }
        (_, "platform", "PLATFORM") => Some(NameKind::Platform),
        _ => None,
    }
}

fn names(kind: NameKind, relay: &RemoteRelay) -> BTreeSet<String> {
    let settings = relay.settings();
    let all: Vec<String> = match kind {
        NameKind::Agent => {
            let built_in = BUILT_IN.iter().map(|name| (*name).to_owned());
            settings.agents.keys().cloned().chain(built_in).collect()
        }
        NameKind::Job => cron::job_names(relay),
        NameKind::Session => {
            let list = client::call_within(&settings.state_dir, &ControlRequest::Sessions, PATIENCE);
            let list = list.unwrap_or_default();
            let sessions = list["sessions"].as_array().into_iter().flatten();
            let keys = sessions.filter_map(|session| session["session"].as_str());
            keys.map(str::to_owned).collect()
        }
        NameKind::Skill => {
            let store = settings.skills.store_in(&settings.state_dir);
            let skills = store.query(&SkillFilter::default()).unwrap_or_default();
            skills.into_iter().map(|skill| skill.name).collect()
        }
        NameKind::Platform => {
            let identities = settings.identities();
            identities.map(|identity| identity.platform.clone()).collect()
        }
    };
    all.into_iter().filter(|name| is_safe(name)).collect()
}

/// Whether a name is one word in every shell, and nothing in it is expanded.
fn is_safe(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@+/-".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> Option<NameKind> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        wanted(&Cli::command(), &words).kind
    }

    #[test]
    fn the_last_word_says_what_is_wanted() {
        for (line, expected) in [
            ("agents test ", Some(NameKind::Agent)),
            ("run --agent c", Some(NameKind::Agent)),
            ("access allow telegram:1 --agent ", Some(NameKind::Agent)),
            ("cron run ", Some(NameKind::Job)),
            ("cron edit d", Some(NameKind::Job)),
            ("sessions stop agent:ma", Some(NameKind::Session)),
            ("--config x sessions stop ", Some(NameKind::Session)),
            ("skills show ", Some(NameKind::Skill)),
            ("cron add --skill ", Some(NameKind::Skill)),
            ("send --platform ", Some(NameKind::Platform)),
            ("agents test --", None),
            ("agents test code ", None),
            ("skills add ", None),
            ("agents ", None),
            ("", None),
        ] {
            assert_eq!(kind(line), expected, "{line}");
        }
    }

    #[test]
    fn the_relay_is_the_one_that_was_named() {
        let words = ["--state-dir", "/s", "cron", "run", "--config", "/c", ""].map(str::to_owned);
        let found = wanted(&Cli::command(), &words);
        assert_eq!(
            (found.config, found.state_dir),
            (Some("/c".into()), Some("/s".into()))
        );
    }

    #[test]
    fn a_name_that_a_shell_would_expand_is_not_offered() {
        assert!(is_safe("agent:main:discord:dm:c1") && is_safe("daily-report.2"));
        for name in ["", "a b", "$(reboot)", "`x`", "a;b", "-rf", "a'b", "ä"] {
            assert!(!is_safe(name), "{name}");
        }
    }
}
