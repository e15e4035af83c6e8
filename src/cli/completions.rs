//! `hermes-relay completions`: what a shell needs to complete our verbs and options.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;
use super::exit::printed;

/// Print completions for a shell.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay completions bash > /etc/bash_completion.d/hermes-relay\n  \
                  hermes-relay completions zsh > ~/.zfunc/_hermes-relay              # with ~/.zfunc in $fpath\n  \
                  hermes-relay completions fish > ~/.config/fish/completions/hermes-relay.fish"
)]
pub(super) struct CompletionsArgs {
    /// Which shell.
    shell: Shell,
}

/// Runs the verb.
pub(super) fn run(args: &CompletionsArgs) -> ExitCode {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    // Into memory first: the generator has no patience with a reader that goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    let mut out = std::io::stdout().lock();
    printed(out.write_all(&script).and_then(|()| out.flush()))
}
