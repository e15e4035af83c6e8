//! Reads the command line of `run` without the other verbs: what all of them define takes more memory than an idle relay.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use super::GlobalArgs;
use super::run::RunArgs;

#[derive(Parser, Debug)]
#[command(name = "hermes-relay")]
struct RunCli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    verb: RunVerb,
}

#[derive(Subcommand, Debug)]
enum RunVerb {
    Run(RunArgs),
}

/// What these words, the program's name first, ask of `run`, if they do that and nothing is wrong with them. Anything else, mistakes
/// and help too, is for the definition of all verbs.
pub(super) fn parse(words: &[OsString]) -> Option<RunArgs> {
    if !words.iter().any(|word| word == "run") {
        return None;
    }
    let RunCli { global, verb } = RunCli::try_parse_from(words).ok()?;
    let RunVerb::Run(args) = verb;
    (!global.json).then_some(args)
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Verb};
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn it_reads_what_the_definition_of_all_verbs_reads() {
        for line in [
            "hermes-relay run",
            "hermes-relay run --agent echo --log-format json",
            "hermes-relay --config run run --log-level DEBUG",
            "hermes-relay --state-dir a --log-level info run --config=b --fresh-journal-if-corrupt",
            "hermes-relay run --state-dir a --url ws://127.0.0.1:1 --agent=run",
        ] {
            let Verb::Run(args) = Cli::try_parse_from(words(line)).unwrap().verb else {
                panic!("{line} is another verb");
            };
            assert_eq!(
                format!("{:?}", parse(&words(line)).unwrap()),
                format!("{args:?}"),
                "{line}"
            );
        }
    }

    #[test]
    fn it_leaves_everything_else_to_the_definition_of_all_verbs() {
        for line in [
            "hermes-relay",
            "hermes-relay --version",
            "hermes-relay status",
            "hermes-relay gateway run",
            "hermes-relay help run",
            "hermes-relay run --help",
            "hermes-relay run --version",
            "hermes-relay run --json",
            "hermes-relay run --agnet echo",
            "hermes-relay run run",
            "hermes-relay --config run status",
        ] {
            assert!(parse(&words(line)).is_none(), "{line}");
        }
    }
}
