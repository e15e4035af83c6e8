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
    let text = String::from_utf8_lossy(&script);
    let script = match args.shell {
        Shell::Bash => with_matching_labels(&text) + BASH_NAMES,
        Shell::Zsh => text
            .replacen("_hermes-relay() {", "_hermes-relay-words() {", 1)
            .replacen(ZSH_END, &format!("{ZSH_NAMES}\n{ZSH_END}"), 1),
        Shell::Fish => text.into_owned() + FISH_NAMES,
        _ => text.into_owned(),
    };
    let mut out = std::io::stdout().lock();
    finish(out.write_all(script.as_bytes()).and_then(|()| out.flush()))
}

/// The generator names the states of a program with a hyphen in two ways, so that nothing is completed after the first word.
fn with_matching_labels(script: &str) -> String {
    script.replace("hermes__subcmd__relay", "hermes__relay")
}

/// Names of agents, jobs, sessions, skills and platforms come before the words of the script. A name may contain colons, at which
/// bash splits words.
const BASH_NAMES: &str = r#"
_hermes_relay_names() {
    local line names last before
    local -a words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    if [[ -n ${COMP_LINE-} ]]; then
        line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<< "$line"
        [[ $line == *[[:space:]] ]] && words+=("")
        words=("${words[@]:1}")
    fi
    names=$("${COMP_WORDS[0]}" complete -- "${words[@]}" 2> /dev/null)
    if [[ -z $names ]]; then
        _hermes__relay "$@"
        return
    fi
    last=${words[${#words[@]} - 1]}
    COMPREPLY=($(compgen -W "$names" -- "$last"))
    if [[ $last == *:* && ${COMP_WORDBREAKS-} == *:* ]]; then
        before=${last%"${last##*:}"}
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    fi
}

complete -F _hermes_relay_names -o bashdefault -o default hermes-relay
"#;

/// What the script for zsh ends with.
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_hermes-relay\" ]; then";

const ZSH_NAMES: &str = r#"_hermes-relay() {
    local -a names
    names=(${(f)"$(_call_program names $words[1] complete -- "${(@q)words[2,CURRENT]}" 2> /dev/null)"})
    if (( $#names )); then
        compadd -a names
    else
        _hermes-relay-words "$@"
    fi
}
"#;

const FISH_NAMES: &str = r"
function __hermes_relay_names
    set -l words (commandline -opc) (commandline -ct)
    command $words[1] complete -- $words[2..] 2> /dev/null
end
complete -c hermes-relay -n '__hermes_relay_names | string length -q' -f -a '(__hermes_relay_names)'
for option in agent job platform session skill
    complete -c hermes-relay -n '__hermes_relay_names | string length -q' -l $option -x -a '(__hermes_relay_names)'
end
";
