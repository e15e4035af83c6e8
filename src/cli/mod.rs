//! The command line: one file per verb, from arguments to output and exit code.

mod access;
mod agents;
mod caller;
mod complete;
mod completions;
mod config;
mod conformance;
mod cron;
mod data;
#[cfg(feature = "dev")]
mod dev;
mod doctor;
pub mod enroll;
mod exit;
mod format;
#[cfg(feature = "nats")]
mod handover;
mod health;
mod help;
mod init;
mod journal;
mod log;
mod logs;
mod man;
mod model_server;
mod notify;
mod oracle;
mod pid1;
pub mod prompt;
mod reload;
mod remote;
mod restart;
mod run;
mod run_alone;
mod sd_notify;
mod send;
mod service;
mod sessions;
mod skills;
mod status;
mod stop;
mod unenroll;
mod unknown_verb;
mod usage;
mod wake;
#[cfg(feature = "nats")]
mod worker;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::agent::child::BaseEnv;
use crate::config::env::PARENT_CONFIG;
use crate::config::{Flags, LogFormat, LogLevel, Settings};
use crate::net::proxy::ProxyRules;
use crate::relay::{AgentBuildError, AgentEnvironment, build_agents};
use crate::relay::{AgentSlot, Voice, VoiceEnvironment, provisioning};
use crate::text::instant;

/// Looks up a variable of the process environment.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The commit and its date.
static BUILD: LazyLock<String> = LazyLock::new(|| {
    let commit = env!("HERMES_RELAY_COMMIT");
    match env!("HERMES_RELAY_COMMIT_SECONDS").parse().map(instant) {
        Ok(date) => format!("{commit} {}", &date[..10]).trim_start().to_owned(),
        Err(_) => commit.to_owned(),
    }
});

/// The version with the commit and its date, and a description: several programs are called hermes or relay.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} ({}; the dial-out relay between a Hermes chat connector and any AI agent)",
        env!("CARGO_PKG_VERSION"),
        *BUILD
    )
});

/// Commands for a start.
const START: &str = "To begin:
  hermes-relay dev                          # a chat on this machine, nothing else needed
  hermes-relay init                         # choose an agent and write the settings
  hermes-relay run                          # serve

If something is wrong:
  hermes-relay doctor                       # find out what, and what to do
  hermes-relay logs -f                      # follow the log of the running relay

With every command, before or after it:
  --config FILE       settings file
  --state-dir DIR     directory of the journal
  --json              print JSON, for programs
  --log-level LEVEL   log level

All commands: hermes-relay help --all. About one: hermes-relay help COMMAND.";

#[derive(Parser, Debug)]
#[command(
    name = "hermes-relay",
    version = VERSION.as_str(),
    about = "Connects any AI agent to a Hermes chat connector: Discord, Telegram, Slack, WhatsApp",
    after_help = START,
    propagate_version = true
)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    verb: Verb,
}

/// Options that work with every command, before and after it. Commands that use one describe it in their help.
#[derive(Args, Debug)]
struct GlobalArgs {
    /// Settings file.
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the journal.
    #[arg(long, global = true, hide = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true, hide = true)]
    json: bool,
    /// Log level.
    #[arg(long, global = true, hide = true, value_name = "LEVEL", ignore_case = true, value_parser = level_parser())]
    log_level: Option<LogLevel>,
}

fn level_parser() -> impl clap::builder::TypedValueParser<Value = LogLevel> {
    PossibleValuesParser::new(LogLevel::CHOICES).try_map(|level| level.parse::<LogLevel>())
}

#[derive(Subcommand, Debug)]
enum Verb {
    // Other programs' names for the same lead there, too.
    #[command(alias = "setup")]
    Init(init::InitArgs),
    Run(run::RunArgs),
    #[command(alias = "login")]
    Enroll(enroll::EnrollVerb),
    Unenroll(unenroll::UnenrollArgs),
    /// Aliases with the names of Hermes' own command line.
    #[command(hide = true)]
    Gateway {
        #[command(subcommand)]
        verb: GatewayVerb,
    },
    /// The former name of `notify --list` and `notify --test`.
    #[command(hide = true)]
    Connectors(notify::ConnectorsArgs),
    #[cfg(feature = "dev")]
    Dev(dev::DevArgs),
    Access(access::AccessArgs),
    Agents(agents::AgentsArgs),
    Config(config::ConfigArgs),
    Cron(cron::CronArgs),
    Data(data::DataArgs),
    Doctor(doctor::DoctorArgs),
    Journal(journal::JournalArgs),
    Logs(logs::LogsArgs),
    Notify(notify::NotifyArgs),
    Status(status::StatusArgs),
    Sessions(sessions::SessionsArgs),
    Skills(skills::SkillsArgs),
    Stop(stop::StopArgs),
    Restart(restart::RestartArgs),
    Send(send::SendArgs),
    /// The former name of `access usage`.
    #[command(hide = true)]
    Usage(usage::UsageArgs),
    Reload(reload::ReloadArgs),
    #[cfg(feature = "nats")]
    Handover(handover::HandoverArgs),
    Wake(wake::WakeArgs),
    #[cfg(feature = "nats")]
    Worker(worker::WorkerArgs),
    Health(health::HealthArgs),
    Oracle(oracle::OracleArgs),
    Conformance(conformance::ConformanceArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Complete(complete::CompleteArgs),
    Man(man::ManArgs),
    Service(service::ServiceArgs),
}

impl Verb {
    /// Whether it is a server that starts other programs.
    fn is_server(&self) -> bool {
        match self {
            Self::Run(_)
            | Self::Gateway {
                verb: GatewayVerb::Run(_),
            } => true,
            #[cfg(feature = "dev")]
            Self::Dev(_) => true,
            #[cfg(feature = "nats")]
            Self::Worker(_) => true,
            #[cfg(feature = "nats")]
            Self::Handover(_) => false,
            Self::Gateway {
                verb: GatewayVerb::Enroll(_) | GatewayVerb::Unenroll(_),
            }
            | Self::Init(_)
            | Self::Enroll(_)
            | Self::Unenroll(_)
            | Self::Access(_)
            | Self::Usage(_)
            | Self::Agents(_)
            | Self::Config(_)
            | Self::Connectors(_)
            | Self::Cron(_)
            | Self::Data(_)
            | Self::Doctor(_)
            | Self::Journal(_)
            | Self::Logs(_)
            | Self::Notify(_)
            | Self::Oracle(_)
            | Self::Conformance(_)
            | Self::Status(_)
            | Self::Sessions(_)
            | Self::Skills(_)
            | Self::Stop(_)
            | Self::Restart(_)
            | Self::Send(_)
            | Self::Reload(_)
            | Self::Wake(_)
            | Self::Health(_)
            | Self::Completions(_)
            | Self::Complete(_)
            | Self::Man(_)
            | Self::Service(_) => false,
        }
    }
}

#[derive(Subcommand, Debug)]
enum GatewayVerb {
    Enroll(enroll::EnrollVerb),
    Unenroll(unenroll::UnenrollArgs),
    Run(run::RunArgs),
}

/// Options of every verb with settings.
#[derive(Args, Debug, Clone, Default)]
struct SharedArgs {
    #[arg(
        long,
        value_name = "FILE",
        help = "Settings file [default: $HERMES_RELAY_CONFIG, $HERMES_HOME/relay.yaml, /etc/hermes-relay/config.yaml]"
    )]
    config: Option<PathBuf>,
    /// Log level.
    #[arg(long, value_name = "LEVEL", ignore_case = true, value_parser = level_parser())]
    log_level: Option<LogLevel>,
    /// Log format.
    #[arg(long, value_name = "FORMAT", ignore_case = true, value_parser = PossibleValuesParser::new(LogFormat::CHOICES).try_map(|format| format.parse::<LogFormat>()))]
    log_format: Option<LogFormat>,
    #[arg(from_global)]
    state_dir: Option<PathBuf>,
}

impl SharedArgs {
    fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            log_level: self.log_level,
            log_format: self.log_format,
            state_dir: self.state_dir.clone(),
            ..Flags::default()
        }
    }

    /// The same for verbs about a relay that is there already.
    fn relay_flags(&self) -> Flags {
        Flags {
            finds_relay: true,
            ..self.flags()
        }
    }
}

/// The environment of the process.
struct ProcessEnv<'a> {
    env: Environment<'a>,
    /// What child processes inherit.
    base: BaseEnv,
}

impl ProcessEnv<'_> {
    /// The same for the children of a relay with this settings file.
    fn with_config(&self, file: Option<&Path>) -> Self {
        let base = self.base.clone();
        Self {
            env: self.env,
            base: match file.map(std::path::absolute) {
                Some(Ok(file)) => base.provide(PARENT_CONFIG, file),
                _ => base,
            },
        }
    }

    /// Builds the configured agents that `wanted` selects.
    fn build_agents(
        &self,
        settings: &Settings,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, AgentSlot)>, AgentBuildError> {
        let around = AgentEnvironment {
            env: self.env,
            base: self.base.clone().withhold(settings.notify.auth_variables()),
            tls: provisioning::tls(settings),
            proxies: ProxyRules::from_env(self.env),
        };
        build_agents(settings, &around, wanted)
    }

    /// What transcribes recordings and speaks answers.
    fn voice(&self, settings: &Settings) -> Result<Voice, String> {
        let (tls, proxies) = (provisioning::tls(settings), ProxyRules::from_env(self.env));
        let around = VoiceEnvironment {
            env: self.env,
            base: &self.base.clone().withhold(settings.notify.auth_variables()),
            egress: &run::egress(&tls, &proxies),
        };
        Voice::from_settings(settings, &around).map_err(|error| error.to_string())
    }
}

/// The command that was typed with `--json`, unless it prints JSON: its help has the option then, or that of a command above, for
/// all below.
fn words_without_json(typed: &ArgMatches) -> Option<String> {
    let program = Cli::command();
    let (mut command, mut below, mut words) = (&program, typed, Vec::new());
    let asks = |typed: &ArgMatches| matches!(typed.try_get_one::<bool>("json"), Ok(Some(true)));
    let mut is_asked = asks(typed);
    while let Some((name, matches)) = below.subcommand() {
        command = command.find_subcommand(name)?;
        words.push(name);
        below = matches;
        is_asked |= asks(below);
        let is_last = below.subcommand().is_none();
        let mut options = command.get_arguments().filter(|arg| arg.get_id() == "json");
        if options.any(|arg| !arg.is_hide_set() && (is_last || arg.is_global_set())) {
            return None;
        }
    }
    is_asked.then(|| words.join(" "))
}

/// The verb of these words, the program's name first; or the exit code, with what there is to say printed.
fn parse(words: &[OsString]) -> Result<Verb, ExitCode> {
    if help::is_full_help(words.iter().skip(1).cloned()) {
        return Err(help::print_all());
    }
    // The help is made only when it is needed.
    let matches = Cli::command()
        .try_get_matches_from(words)
        .or_else(|_| help::command().try_get_matches_from(words));
    let parsed = matches.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (Cli { verb, .. }, matches) = parsed.map_err(|error| unknown_verb::report(words, &error))?;
    if let Some(words) = words_without_json(&matches) {
        return Err(exit::fail(
            exit::USAGE,
            format!("`hermes-relay {words}` prints nothing as JSON"),
            Some("leave out --json"),
        ));
    }
    Ok(verb)
}

/// Runs the program. `env` looks up a variable of the process environment; `vars` is all of it.
pub fn main(env: Environment<'_>, vars: impl IntoIterator<Item = (OsString, OsString)>) -> ExitCode {
    let vars: Vec<_> = vars.into_iter().collect();
    let words: Vec<OsString> = std::env::args_os().collect();
    let verb = match run_alone::parse(&words) {
        Some(args) => Verb::Run(args),
        None => match parse(&words) {
            Ok(verb) => verb,
            Err(code) => return code,
        },
    };
    if verb.is_server()
        && pid1::is_first()
        && let Some(code) = pid1::run(&vars)
    {
        return code;
    }
    let process = ProcessEnv {
        env,
        base: BaseEnv::new(vars),
    };
    match verb {
        Verb::Run(args)
        | Verb::Gateway {
            verb: GatewayVerb::Run(args),
        } => run::run(&args, &process),
        Verb::Init(args) => init::run(&args, &process),
        Verb::Enroll(args)
        | Verb::Gateway {
            verb: GatewayVerb::Enroll(args),
        } => enroll::run_verb(&args, &process),
        Verb::Unenroll(args)
        | Verb::Gateway {
            verb: GatewayVerb::Unenroll(args),
        } => unenroll::run(&args, env),
        #[cfg(feature = "dev")]
        Verb::Dev(args) => dev::run(&args, &process),
        Verb::Access(args) => access::run(&args, env),
        Verb::Usage(args) => usage::run_former(&args, env),
        Verb::Agents(args) => agents::run(&args, &process),
        Verb::Config(args) => config::run(&args, env),
        Verb::Connectors(args) => notify::run_former(&args, &process),
        Verb::Cron(args) => cron::run(&args, env),
        Verb::Data(args) => data::run(&args, env),
        Verb::Doctor(args) => doctor::run(&args, &process),
        Verb::Journal(args) => journal::run(&args, env),
        Verb::Logs(args) => logs::run(&args, &process),
        Verb::Notify(args) => notify::run(&args, &process),
        Verb::Status(args) => status::run(&args, env),
        Verb::Sessions(args) => sessions::run(&args, env),
        Verb::Skills(args) => skills::run(&args, env),
        Verb::Stop(args) => stop::run(&args, env),
        Verb::Restart(args) => restart::run(&args, env),
        Verb::Send(args) => send::run(&args, env),
        Verb::Reload(args) => reload::run(&args, env),
        #[cfg(feature = "nats")]
        Verb::Handover(args) => handover::run(&args, env),
        Verb::Wake(args) => wake::run(&args, env),
        #[cfg(feature = "nats")]
        Verb::Worker(args) => worker::run(&args, &process),
        Verb::Health(args) => health::run(&args, env),
        Verb::Oracle(args) => oracle::run(&args, env),
        Verb::Conformance(args) => conformance::run(&args, &process),
        Verb::Completions(args) => completions::run(&args),
        Verb::Complete(args) => complete::run(&args, env),
        Verb::Man(args) => man::run(&args),
        Verb::Service(args) => service::run(&args, env),
    }
}
