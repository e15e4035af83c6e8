//! One file per verb: what was typed, what is done, what is printed, and the exit code.

mod agents;
mod asking;
mod completions;
mod config;
#[cfg(feature = "dev")]
mod dev;
mod doctor;
pub mod enroll;
mod enroll_verb;
mod exit;
mod health;
mod init;
mod journal;
mod logging;
mod logs;
mod man;
mod notify;
mod oracle;
pub mod prompt;
mod reload;
mod run;
mod send;
mod service;
mod sessions;
mod status;
mod stop;
mod unenroll;
mod wake;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand};

use crate::agent::child::BaseEnv;
use crate::config::{Flags, LogFormat, LogLevel, Settings};
use crate::net::proxy::ProxyRules;
use crate::relay::hiring::{HireError, Surroundings, hire_those};
use crate::relay::{Member, boot};

/// The process environment, as it is handed down.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One line that says which of the many things called hermes and relay this is.
const WHICH_RELAY: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (the dial-out relay between a Hermes chat connector and any AI agent)"
);

/// What to type first, and when something is wrong.
const START: &str = "To begin:
  hermes-relay dev                          # a chat on this machine, nothing else needed
  hermes-relay enroll --connector-url URL   # credentials from a connector, once
  hermes-relay run                          # serve

When something is wrong:
  hermes-relay doctor                       # finds out what, and says what to do
  hermes-relay status                       # how the running relay stands";

#[derive(Parser, Debug)]
#[command(
    name = "hermes-relay",
    version = WHICH_RELAY,
    about = "Puts any AI agent behind a Hermes chat connector: Discord, Telegram, Slack, WhatsApp",
    after_long_help = format!("{START}\n\n{}", exit::codes()),
    after_help = START,
    propagate_version = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Run(run::RunArgs),
    Enroll(enroll_verb::EnrollVerb),
    Unenroll(unenroll::UnenrollArgs),
    /// The same verbs under the name that Hermes' own command line uses.
    #[command(hide = true)]
    Gateway {
        #[command(subcommand)]
        verb: GatewayVerb,
    },
    #[cfg(feature = "dev")]
    Dev(dev::DevArgs),
    Agents(agents::AgentsArgs),
    Config(config::ConfigArgs),
    Doctor(doctor::DoctorArgs),
    Journal(journal::JournalArgs),
    Logs(logs::LogsArgs),
    Status(status::StatusArgs),
    Sessions(sessions::SessionsArgs),
    Stop(stop::StopArgs),
    Send(send::SendArgs),
    Reload(reload::ReloadArgs),
    Wake(wake::WakeArgs),
    Health(health::HealthArgs),
    Oracle(oracle::OracleArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    Service(service::ServiceArgs),
}

impl Verb {
    /// Whether it runs until told to stop and starts other programs meanwhile.
    fn stays(&self) -> bool {
        match self {
            Self::Run(_)
            | Self::Gateway {
                verb: GatewayVerb::Run(_),
            } => true,
            #[cfg(feature = "dev")]
            Self::Dev(_) => true,
            Self::Gateway {
                verb: GatewayVerb::Enroll(_) | GatewayVerb::Unenroll(_),
            }
            | Self::Enroll(_)
            | Self::Unenroll(_)
            | Self::Agents(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Journal(_)
            | Self::Logs(_)
            | Self::Oracle(_)
            | Self::Status(_)
            | Self::Sessions(_)
            | Self::Stop(_)
            | Self::Send(_)
            | Self::Reload(_)
            | Self::Wake(_)
            | Self::Health(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Service(_) => false,
        }
    }
}

#[derive(Subcommand, Debug)]
enum GatewayVerb {
    Enroll(enroll_verb::EnrollVerb),
    Unenroll(unenroll::UnenrollArgs),
    Run(run::RunArgs),
}

/// Options that every verb with settings has.
#[derive(Args, Debug, Clone, Default)]
struct SharedArgs {
    #[arg(
        long,
        value_name = "FILE",
        help = "Our settings file [default: $HERMES_RELAY_CONFIG, $HERMES_HOME/relay.yaml, /etc/hermes-relay/config.yaml]"
    )]
    config: Option<PathBuf>,
    /// How much is logged.
    #[arg(long, value_name = "LEVEL", ignore_case = true, value_parser = PossibleValuesParser::new(LogLevel::CHOICES).try_map(|word| word.parse::<LogLevel>()))]
    log_level: Option<LogLevel>,
    /// How log lines look.
    #[arg(long, value_name = "FORMAT", ignore_case = true, value_parser = PossibleValuesParser::new(LogFormat::CHOICES).try_map(|word| word.parse::<LogFormat>()))]
    log_format: Option<LogFormat>,
}

impl SharedArgs {
    fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            log_level: self.log_level,
            log_format: self.log_format,
            ..Flags::default()
        }
    }
}

/// What a verb finds around it.
struct Surround<'a> {
    env: Environment<'a>,
    /// What child processes inherit from.
    base: BaseEnv,
}

impl Surround<'_> {
    /// Builds the agents that the settings name.
    fn hire(&self, settings: &Settings) -> Result<Vec<(String, Member)>, HireError> {
        self.hire_those(settings, |_| true)
    }

    /// Builds those of them that are wanted.
    fn hire_those(
        &self,
        settings: &Settings,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, Member)>, HireError> {
        let around = Surroundings {
            env: self.env,
            base: self.base.clone(),
            tls: boot::tls(settings),
            proxies: ProxyRules::from_env(self.env),
        };
        hire_those(settings, &around, wanted)
    }
}

/// Runs what was typed. `env` is the process environment, one variable at a time, and `vars` all of it.
pub fn main(env: Environment<'_>, vars: impl IntoIterator<Item = (OsString, OsString)>) -> ExitCode {
    let vars: Vec<_> = vars.into_iter().collect();
    let verb = Cli::parse().verb;
    if verb.stays()
        && init::is_first()
        && let Some(code) = init::run(&vars)
    {
        return code;
    }
    let surround = Surround {
        env,
        base: BaseEnv::new(vars),
    };
    match verb {
        Verb::Run(args)
        | Verb::Gateway {
            verb: GatewayVerb::Run(args),
        } => run::run(&args, &surround),
        Verb::Enroll(args)
        | Verb::Gateway {
            verb: GatewayVerb::Enroll(args),
        } => enroll_verb::run(&args, &surround),
        Verb::Unenroll(args)
        | Verb::Gateway {
            verb: GatewayVerb::Unenroll(args),
        } => unenroll::run(&args, env),
        #[cfg(feature = "dev")]
        Verb::Dev(args) => dev::run(&args, &surround),
        Verb::Agents(args) => agents::run(&args, &surround),
        Verb::Config(args) => config::run(&args, env),
        Verb::Doctor(args) => doctor::run(&args, &surround),
        Verb::Journal(args) => journal::run(&args, env),
        Verb::Logs(args) => logs::run(&args, &surround),
        Verb::Status(args) => status::run(&args, env),
        Verb::Sessions(args) => sessions::run(&args, env),
        Verb::Stop(args) => stop::run(&args, env),
        Verb::Send(args) => send::run(&args, env),
        Verb::Reload(args) => reload::run(&args, env),
        Verb::Wake(args) => wake::run(&args, env),
        Verb::Health(args) => health::run(&args, env),
        Verb::Oracle(args) => ask_oracle(&args, env),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man(args) => man::run(&args),
        Verb::Service(args) => service::run(&args, env),
    }
}

fn ask_oracle(args: &oracle::OracleArgs, env: Environment<'_>) -> ExitCode {
    let home = env("HERMES_HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from);
    match oracle::run(
        args,
        home.as_deref(),
        std::io::stdin().lock(),
        std::io::stdout().lock(),
    ) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let what = format!("cannot read the questions on standard input: {error}");
            exit::fail(exit::FAILED, what, None)
        }
    }
}
