//! `hermes-relay man`: the manual page of the program or of one verb.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};

use super::exit::{self, CODES, fail, finish};
use super::{Cli, START};
use crate::config::file::nearest;

/// Print the manual page, in roff.
///
/// Exit codes: 0 printed, 2 there is no such command.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay man | man -l -\n  hermes-relay man run > hermes-relay-run.1"
)]
pub(super) struct ManArgs {
    /// Command, for its own page.
    #[arg(value_name = "COMMAND")]
    verb: Option<String>,
}

/// Runs the verb.
pub(super) fn run(args: &ManArgs) -> ExitCode {
    let mut command = Cli::command();
    command.build();
    if let Some(verb) = &args.verb {
        let Some(found) = command.find_subcommand(verb).cloned() else {
            let verbs = command.get_subcommands().map(clap::Command::get_name);
            let hint = nearest(verb, verbs).map(|near| format!("did you mean `{near}`?"));
            let what = format!("there is no command `{}`", verb.escape_debug());
            return fail(exit::USAGE, what, hint.as_deref());
        };
        command = found;
    }
    let is_full = args.verb.is_none();
    if is_full {
        // The exit codes get their own section.
        command = command.after_long_help(START);
    }
    let mut page = Vec::new();
    let mut rendered = clap_mangen::Man::new(command).render(&mut page);
    if is_full {
        rendered = rendered.and_then(|()| exit_codes(&mut page));
    }
    let mut out = std::io::stdout().lock();
    finish(
        rendered
            .and_then(|()| out.write_all(&page))
            .and_then(|()| out.flush()),
    )
}

fn exit_codes(page: &mut Vec<u8>) -> std::io::Result<()> {
    writeln!(page, ".SH \"EXIT STATUS\"")?;
    CODES
        .iter()
        .try_for_each(|(code, meaning)| writeln!(page, ".TP\n{code}\n{meaning}"))
}
