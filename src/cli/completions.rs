//! `hermes-relay completions`: shell completions.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;
use super::exit::finish;

/// Print completions for a shell.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay completions bash > /etc/bash_completion.d/hermes-relay\n  \
                  hermes-relay completions zsh > ~/.zfunc/_hermes-relay              # with ~/.zfunc in $fpath\n  \
                  hermes-relay completions fish > ~/.config/fish/completions/hermes-relay.fish"
)]
pub(super) struct CompletionsArgs {
    /// Shell.
    shell: Shell,
}

/// Runs the verb.
pub(super) fn run(args: &CompletionsArgs) -> ExitCode {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    // Into memory first: the generator panics if the reader goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    if args.shell == Shell::Bash {
        script = with_matching_labels(&script);
    }
    let mut out = std::io::stdout().lock();
    finish(out.write_all(&script).and_then(|()| out.flush()))
}

/// The generator names the states of a program with a hyphen in two ways, so that nothing is completed after the first word.
fn with_matching_labels(script: &[u8]) -> Vec<u8> {
    let script = String::from_utf8_lossy(script);
    script
        .replace("hermes__subcmd__relay", "hermes__relay")
        .into_bytes()
}
