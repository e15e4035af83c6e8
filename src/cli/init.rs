//! `hermes-relay init`: the first run. Chooses an agent, writes the settings file, tests one turn, and offers to enroll and to
//! install the service.
//!
//! Everything is asked first, in a terminal, or given by options. The file is written once and only if `run` would accept it;
//! an existing one is replaced only on request.

mod agent_choice;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use self::agent_choice::{ChosenAgent, choose};
use super::agents::{self, TEST_MESSAGE};
use super::enroll::{self, EnrollVerb};
use super::exit::{self, ErrorFormat, outln, print};
use super::format::stdout;
use super::prompt::{SecretInput as _, Stdin};
use super::{Environment, ProcessEnv, service};
use crate::agent::Permission;
use crate::config::{self, Flags, Sources};

/// Choose an agent, write the settings file, and test one turn.
///
/// In a terminal it asks: which of the installed agents answers, in which directory it works, and whether to enroll with a
/// connector and to install the service. In a script, pass --agent. An existing settings file is kept unless you agree or pass
/// --force. For an agent that can act on this machine, the file contains `access.mode: pair`: you approve who may write.
///
/// Exit codes: 0 written and tested, 1 not written or the test failed, 2 nobody to ask or an invalid option, 78 a file or
/// directory cannot be used.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay init\n  hermes-relay init --agent claude --workdir ~/project --yes\n  \
                  hermes-relay init --agent openai --model llama3.2 --config relay.yaml --yes --json"
)]
pub(super) struct InitArgs {
    #[arg(
        long,
        value_name = "FILE",
        help = "Settings file to write [default: $HERMES_RELAY_CONFIG, $HERMES_HOME/relay.yaml]"
    )]
    config: Option<PathBuf>,
    /// Agent: a preset such as claude, openai for a model server such as Ollama, or echo.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Directory that the agent works in [default: the current one].
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// Model, for --agent openai.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// URL of the model server, for --agent openai [default: Ollama on this machine].
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Ask nothing: take the defaults.
    #[arg(long, short)]
    yes: bool,
    /// Replace an existing settings file.
    #[arg(long)]
    force: bool,
    /// Do not test a turn.
    #[arg(long)]
    no_test: bool,
    /// Then enroll with this connector, as `enroll` does.
    #[arg(long, value_name = "URL")]
    connector_url: Option<String>,
    /// Then install the service for your own user and start it, as `service install --user --now` does.
    #[arg(long)]
    service: bool,
    /// Ask nothing, and print a JSON object on one line, errors included.
    #[arg(long, conflicts_with_all = ["connector_url", "service"])]
    json: bool,
}

/// Why it did not work.
struct InitFailure {
    code: u8,
    what: String,
    hint: Option<String>,
}

impl InitFailure {
    fn new(code: u8, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            hint: Some(hint.into()),
        }
    }
}

/// Runs the verb.
pub(super) fn run(args: &InitArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let errors = ErrorFormat::new(args.json);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return errors.fail(exit::INTERNAL, "cannot start the runtime", None);
    };
    let prepared = match runtime.block_on(prepare(args, process)) {
        Ok(prepared) => prepared,
        Err(failure) => return errors.fail(failure.code, failure.what, failure.hint.as_deref()),
    };
    drop(runtime);
    if args.json {
        let report = json!({
            "config": prepared.file.display().to_string(),
            "agent": prepared.agent.name(),
            "access": if prepared.agent.acts() { "pair" } else { "upstream" },
            "tested": !args.no_test,
        });
        return print(report);
    }
    go_on(args, &prepared, process)
}

/// The written settings.
struct Prepared {
    file: PathBuf,
    agent: ChosenAgent,
    /// Whether questions may be asked.
    asks: bool,
    /// Whether `run` finds the file by itself.
    is_default: bool,
}

async fn prepare(args: &InitArgs, process: &ProcessEnv<'_>) -> Result<Prepared, InitFailure> {
    let asks = !args.yes && !args.json && io::stdin().is_terminal();
    let default = default_file(process.env);
    let file = args.config.clone().or_else(|| default.clone()).ok_or_else(|| {
        InitFailure::new(
            exit::CONFIGURATION,
            "there is no home directory to write the settings to",
            "set HOME, or name a file with --config",
        )
    })?;
    let is_default = default.as_ref().is_some_and(|default| *default == file);
    if args.service && !is_default {
        let what = format!("the service does not read {}", file.display());
        return Err(InitFailure::new(exit::USAGE, what, "omit --config or --service"));
    }
    if file.exists() && !args.force && !(asks && agrees(&format!("{} exists. Replace it?", file.display()))) {
        return Err(InitFailure::new(
            exit::FAILED,
            format!("{} exists and is kept", file.display()),
            "replace it with --force, or write another file with --config",
        ));
    }
    let agent = choose(args, asks, process).await?;
    let text = agent.settings();
    write(&file, &text, process.env)?;
    if !args.json {
        outln!("Wrote {}.", file.display());
        if agent.acts() {
            outln!(
                "{} can act on this machine, so `access.mode` is `pair`: you approve who may write.",
                agent.name()
            );
        }
    }
    if !args.no_test {
        test(&file, &agent, args.json, process).await?;
    }
    Ok(Prepared {
        file,
        agent,
        asks,
        is_default,
    })
}

/// The file that `run` would read.
fn default_file(env: Environment<'_>) -> Option<PathBuf> {
    let var = |name: &str| {
        let value = env(name)?.trim().to_owned();
        (!value.is_empty()).then(|| PathBuf::from(value))
    };
    let home = || var("HERMES_HOME").or_else(|| Some(var("HOME")?.join(".hermes")));
    var("HERMES_RELAY_CONFIG").or_else(|| Some(home()?.join("relay.yaml")))
}

/// Asks at the terminal; an empty answer, or none, is no.
fn agrees(question: &str) -> bool {
    let answer = Stdin.line(&format!("{question} [y/N]")).ok().flatten();
    answer.is_some_and(|answer| matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Writes the file atomically, once it is known that it can be loaded.
fn write(file: &Path, text: &str, env: Environment<'_>) -> Result<(), InitFailure> {
    let failed = |error: io::Error| InitFailure {
        code: exit::CONFIGURATION,
        what: format!("cannot write {}: {error}", file.display()),
        hint: Some("write another file with --config".to_owned()),
    };
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    // Readable by its owner only, because people add to it.
    let mut new = tempfile::Builder::new()
        .prefix(".relay-")
        .suffix(".yaml")
        .tempfile_in(folder)
        .map_err(failed)?;
    new.write_all(text.as_bytes())
        .and_then(|()| new.as_file().sync_all())
        .map_err(failed)?;
    let flags = Flags {
        config: Some(new.path().to_owned()),
        ..Flags::default()
    };
    config::load(&Sources { flags, env }).map_err(|error| InitFailure {
        code: exit::CONFIGURATION,
        what: format!("the settings would not be accepted: {error}"),
        hint: None,
    })?;
    new.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Runs one turn as `agents test` does, with the new settings.
async fn test(
    file: &Path,
    agent: &ChosenAgent,
    json: bool,
    process: &ProcessEnv<'_>,
) -> Result<(), InitFailure> {
    let failed = |what: String| {
        let retry = format!(
            "the settings are written; try again with `hermes-relay agents test {} --config {}`",
            agent.name(),
            file.display()
        );
        InitFailure::new(
            exit::FAILED,
            format!("{} does not answer: {what}", agent.name()),
            retry,
        )
    };
    let flags = Flags {
        config: Some(file.to_owned()),
        ..Flags::default()
    };
    let loaded = config::load(&Sources {
        flags,
        env: process.env,
    });
    let loaded = loaded.map_err(|error| failed(error.to_string()))?;
    if !json {
        outln!(
            "Testing {} with one message, without permission to act:",
            agent.name()
        );
    }
    let mut show = |text: &str| {
        let mut out = stdout();
        if !json {
            // Ignore a closed pipe: the turn goes on.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    };
    let tested = agents::test_turn(
        &loaded.settings,
        process,
        agent.name(),
        TEST_MESSAGE,
        Permission::Deny,
        &mut show,
    );
    let tested = tested.await.map_err(failed)?;
    if let Some(problem) = tested.problem() {
        return Err(failed(problem));
    }
    if !json {
        outln!("\nIt answered after {} ms.", tested.took_ms);
    }
    Ok(())
}

/// Offers what comes next, or does what the options say, and lists the rest.
fn go_on(args: &InitArgs, prepared: &Prepared, process: &ProcessEnv<'_>) -> ExitCode {
    let url = args.connector_url.clone().or_else(|| {
        let question =
            "Enroll with a connector now? You need its URL and a one-time token from its operator.";
        let url = (prepared.asks && agrees(question)).then(|| Stdin.line("Connector URL").ok().flatten());
        url.flatten().filter(|url| !url.is_empty())
    });
    if let Some(url) = &url {
        let verb = EnrollVerb::for_connector(prepared.file.clone(), url.clone());
        let code = enroll::run_verb(&verb, process);
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    let can_serve = prepared.is_default && service::has_systemd();
    let serves = args.service
        || (prepared.asks
            && can_serve
            && agrees("Run the relay as a service of your user, started with the session?"));
    if serves {
        let code = service::install_for_user(process.env);
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    let file = if prepared.is_default {
        String::new()
    } else {
        format!(" --config {}", prepared.file.display())
    };
    outln!("Next:");
    outln!(
        "  hermes-relay dev --config {}    # a chat with it on this machine",
        prepared.file.display()
    );
    if url.is_none() {
        outln!("  hermes-relay enroll --connector-url URL    # credentials from a connector");
    }
    if prepared.agent.acts() {
        outln!("  hermes-relay access owner PLATFORM:ID    # yourself; you approve others");
    }
    if !serves {
        outln!("  hermes-relay run{file}    # serve");
    }
    outln!("  hermes-relay doctor{file}    # if it does not answer");
    ExitCode::SUCCESS
}
