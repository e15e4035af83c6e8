//! `hermes-relay dev`: connector and relay on this machine, with a chat page and a chat in the terminal.

mod bot_api;
mod chat;
mod line_editor;
mod relay;
mod replay;
mod scheduler;
mod screen;
mod transcript;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::exit::{self, errln, fail, outln};
use super::log::{self, Repeats};
use super::run::build_agents;
use super::{ProcessEnv, SharedArgs};
use crate::adapter::SessionNames;
use crate::config::{self, CronProvider, Flags, LogLevel, Settings, Sources};
use crate::dev::{Connector, ConnectorSettings, Hint, PageSettings, PlatformPreset, Recording, text_event};
use chat::{CHAT, chat};
use relay::{DevRelay, RelayPlan, RunSecrets};
use scheduler::DevScheduler;

/// Chat with an agent over a real relay link, with nothing else installed.
///
/// Starts a connector on this machine (loopback only), enrolls with it, runs the relay against it over a real
/// socket, and serves a chat page; you can also chat in the terminal. Nothing is kept: the journal is in a temporary
/// directory.
///
/// Exit codes: 0 ended, 1 --smoke failed or --record is incomplete, 2 --bot-api without --platform telegram, 78 the settings, the port or the file cannot be used.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "In the chat: Ctrl-C stops the running turn, Ctrl-D or /quit exits, Tab completes commands, and a number answers a question.\n\nExamples:\n  hermes-relay dev\n  hermes-relay dev --platform telegram\n  hermes-relay dev --record wire.jsonl               # every frame, one JSON object per line\n  hermes-relay dev replay wire.jsonl --agent echo    # the same messages again\n  hermes-relay dev --connector-only --port 8788      # for another gateway to dial\n  hermes-relay dev --platform telegram --bot-api     # a fake Telegram, without a connector\n  hermes-relay dev --platform telegram --bot-api --connector-only    # the same for any bot\n  hermes-relay dev --smoke --json                    # one round trip, for scripts"
)]
pub(super) struct DevArgs {
    #[command(subcommand)]
    verb: Option<DevVerb>,
    #[command(flatten)]
    shared: SharedArgs,
    /// Agent from the settings, or a built-in one [default: as for `run`].
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Platform to simulate.
    #[arg(long, value_name = "NAME", default_value = "discord", value_parser = PossibleValuesParser::new(PlatformPreset::ALL.map(PlatformPreset::name)))]
    platform: String,
    /// Port of the connector; 0 chooses a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// No chat in the terminal; serve the page until Ctrl-C.
    #[arg(long)]
    no_tui: bool,
    /// Start only the connector, and print the environment for a gateway and how to enroll one.
    #[arg(long, conflicts_with_all = ["smoke", "agent"])]
    connector_only: bool,
    /// Simulate Telegram's Bot API instead of a connector, with the relay as the bot; print its token and address. With
    /// --connector-only, without the relay: for a bot of another program.
    #[arg(long, conflicts_with = "record")]
    bot_api: bool,
    /// Send one message, wait for the reply, print the time since the start, and exit.
    #[arg(long)]
    smoke: bool,
    /// Print the result of --smoke as one JSON object: `ok`, `reply`, `connected_ms`, `reply_ms`, `total_ms`.
    #[arg(long, requires = "smoke")]
    json: bool,
    /// Record every frame to a new file, one JSON object per line, without secrets.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum DevVerb {
    Replay(replay::ReplayArgs),
}

/// Timeout of the smoke test's reply.
const SMOKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the verb.
pub(super) fn run(args: &DevArgs, process: &ProcessEnv<'_>) -> ExitCode {
    match &args.verb {
        None if args.bot_api && args.platform != bot_api::PLATFORM => fail(
            exit::USAGE,
            format!(
                "--bot-api simulates Telegram, and --platform is {}",
                args.platform
            ),
            Some("add --platform telegram"),
        ),
        None => {
            let began = Instant::now();
            run_locally(&args.shared, args.agent.as_deref(), process, |settings| {
                serve(args, settings, process, began)
            })
        }
        Some(DevVerb::Replay(replay)) => replay::run(replay, process),
    }
}

/// Loads the settings with a temporary journal and runs `work`.
fn run_locally<F: Future<Output = ExitCode>>(
    shared: &SharedArgs,
    agent: Option<&str>,
    process: &ProcessEnv<'_>,
    work: impl FnOnce(Settings) -> F,
) -> ExitCode {
    let env = process.env;
    let mut flags = Flags {
        agent: agent.map(str::to_owned),
        ..shared.flags()
    };
    flags.log_level = flags.log_level.or(Some(LogLevel::Warn));
    let state = match tempfile::tempdir() {
        Ok(state) => state,
        Err(error) => {
            return fail(
                exit::CONFIGURATION,
                format!("cannot create a temporary directory: {error}"),
                None,
            );
        }
    };
    flags.state_dir = Some(state.path().join("state"));
    let loaded = match config::load(&Sources { flags, env }) {
        Ok(loaded) => loaded,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let log = log::start(&loaded, process, Repeats::Unlimited);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let settings = loaded.settings.clone();
            let working = work(loaded.settings);
            let code = runtime.block_on(log.export_traces(&settings, env, working));
            // The thread that reads the terminal may block for ever.
            runtime.shutdown_background();
            code
        }
        Err(error) => fail(exit::INTERNAL, format!("cannot start the runtime: {error}"), None),
    }
}

async fn serve(args: &DevArgs, settings: Settings, process: &ProcessEnv<'_>, began: Instant) -> ExitCode {
    if args.bot_api {
        return bot_api::serve(args, settings, process, began).await;
    }
    let secrets = RunSecrets::new();
    let mut connector_settings = secrets.connector_settings();
    connector_settings.port = args.port;
    connector_settings.platforms = vec![args.platform.clone()];
    if args.connector_only {
        connector_settings.gateways = ConnectorSettings::default().gateways;
        connector_settings.platforms = vec![args.platform.clone()];
    }
    let connector = match Connector::start(connector_settings).await {
        Ok(connector) => Arc::new(connector),
        Err(error) => return port_in_use(args.port, &error),
    };
    let recording = match record(args, &connector).await {
        Ok(recording) => recording,
        Err(code) => return code,
    };
    let code = if args.connector_only {
        serve_connector(args, &connector, &secrets).await
    } else {
        match build_agents(&settings, process).await {
            Ok(agents) => {
                let plan = RelayPlan {
                    platforms: vec![args.platform.clone()],
                    settings,
                    agents,
                };
                serve_both(args, plan, &connector, &secrets, began).await
            }
            Err(error) => fail(exit::CONFIGURATION, error.message, error.hint),
        }
    };
    if let (Some(recording), Some(file)) = (recording, &args.record) {
        match recording.finish().await {
            Ok(frames) => errln!("recorded {frames} frames to {}", file.display()),
            Err(error) => {
                return fail(
                    exit::FAILED,
                    format!("the recording is incomplete: {error}"),
                    None,
                );
            }
        }
    }
    code
}

/// The failure to open the port.
fn port_in_use(port: u16, error: &std::io::Error) -> ExitCode {
    fail(
        exit::CONFIGURATION,
        format!("cannot listen on 127.0.0.1:{port}: {error}"),
        Some("choose another --port, or leave it out for a free one"),
    )
}

async fn record(args: &DevArgs, connector: &Connector) -> Result<Option<Recording>, ExitCode> {
    let Some(file) = &args.record else {
        return Ok(None);
    };
    let recording = connector.record(file, &args.platform).await;
    recording.map(Some).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "choose another name: a recording does not overwrite a file",
            _ => "choose a writable directory",
        };
        let what = format!("cannot record to {}: {error}", file.display());
        fail(exit::CONFIGURATION, what, Some(hint))
    })
}

async fn serve_both(
    args: &DevArgs,
    plan: RelayPlan,
    connector: &Arc<Connector>,
    secrets: &RunSecrets,
    began: Instant,
) -> ExitCode {
    let agent = plan.settings.agent.clone();
    let page = PageSettings {
        platform: args.platform.clone(),
        agent: agent.clone(),
        hints: Hint::for_agent(plan.agent_kind()),
        sessions: plan.settings.session_names(),
        relay: None,
    };
    let (hints, sessions) = (page.hints, page.sessions.clone());
    let (status_sender, status) = watch::channel(Value::Null);
    // Before the relay dials, so that the page shows the dial, too.
    let url = (!args.smoke).then(|| {
        connector.open_page(PageSettings {
            relay: Some(status),
            ..page
        })
    });
    let scheduler = match (&url, plan.settings.cron.provider) {
        (None, _) | (_, CronProvider::Off) => None,
        (Some(_), _) => match DevScheduler::start(&plan.settings).await {
            Ok(scheduler) => Some(scheduler),
            Err(error) => return fail(exit::CONFIGURATION, error, None),
        },
    };
    if let Some(scheduler) = &scheduler {
        connector.show_jobs_of(scheduler.nas());
    }
    let relay = match DevRelay::start(connector, plan, secrets, scheduler, status_sender).await {
        Ok(relay) => relay,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let code = match url {
        None => {
            let trip = round_trip(&args.platform, connector, began).await;
            smoke(args, trip, &relay, &agent, began).await
        }
        Some(url) => {
            print_welcome(&url, &args.platform, &agent, hints);
            if args.no_tui {
                let _ = tokio::signal::ctrl_c().await;
            } else {
                outln!("\nCtrl-C stops the running turn, Ctrl-D or /quit exits.\n");
                chat(connector, &args.platform, sessions, Some(&relay)).await;
            }
            ExitCode::SUCCESS
        }
    };
    relay.stop(code).await
}

async fn serve_connector(args: &DevArgs, connector: &Connector, secrets: &RunSecrets) -> ExitCode {
    let Some(credentials) = connector.credentials() else {
        return fail(exit::INTERNAL, "the connector has no gateway", None);
    };
    let url = connector.open_page(PageSettings {
        platform: args.platform.clone(),
        agent: "gateway".to_owned(),
        hints: Hint::for_agent(""),
        sessions: SessionNames::default(),
        relay: None,
    });
    outln!("GATEWAY_RELAY_URL={}", connector.url());
    outln!("GATEWAY_RELAY_ID={}", credentials.gateway_id);
    outln!("GATEWAY_RELAY_SECRET={}", credentials.secret.expose_secret());
    outln!("GATEWAY_RELAY_PLATFORMS={}", args.platform);
    errln!("\nThe connector serves until it ends, and its secrets are valid for this run only. Chat page:");
    errln!("\n  {url}\n");
    errln!("A gateway with the environment above can dial it. To enroll one instead, in another shell:\n");
    errln!(
        "  export GATEWAY_RELAY_IDP_TOKEN_URL={}",
        connector.identity_url().unwrap_or_default()
    );
    errln!(
        "  hermes-relay enroll --connector-url {} --token {}",
        connector.http_base(),
        secrets.enrol_token()
    );
    errln!("  hermes-relay run\n");
    errln!("identity token for /relay/provision: {}", secrets.identity());
    if args.no_tui {
        let _ = tokio::signal::ctrl_c().await;
    } else {
        chat(connector, &args.platform, SessionNames::default(), None).await;
    }
    ExitCode::SUCCESS
}

/// Reports one message and its reply.
async fn smoke(
    args: &DevArgs,
    trip: Result<RoundTrip, String>,
    relay: &DevRelay,
    agent: &str,
    began: Instant,
) -> ExitCode {
    let (error, hint) = match trip {
        Ok(trip) if !relay.has_failed().await => {
            if args.json {
                outln!("{}", trip.to_json());
            } else {
                outln!("smoke: \"{}\" after {} ms", trip.reply, trip.total_ms);
            }
            return ExitCode::SUCCESS;
        }
        Ok(trip) => {
            if !args.json {
                outln!("smoke: \"{}\" after {} ms", trip.reply, trip.total_ms);
            }
            let error = format!("the agent `{agent}` failed: {}", trip.reply);
            (
                error,
                Some(format!("`hermes-relay agents test {agent}` shows more")),
            )
        }
        Err(error) => (error, None),
    };
    if args.json {
        let total_ms = millis(began);
        let failed = json!({ "ok": false, "error": error, "hint": hint, "total_ms": total_ms });
        outln!("{failed}");
    }
    fail(exit::FAILED, error, hint.as_deref())
}

/// A reply, and how long everything took.
struct RoundTrip {
    reply: String,
    connected_ms: u64,
    reply_ms: u64,
    total_ms: u64,
}

impl RoundTrip {
    fn to_json(&self) -> Value {
        json!({
            "ok": true,
            "reply": self.reply,
            "connected_ms": self.connected_ms,
            "reply_ms": self.reply_ms,
            "total_ms": self.total_ms,
        })
    }
}

async fn round_trip(platform: &str, connector: &Connector, began: Instant) -> Result<RoundTrip, String> {
    let connected = connector.wait_connected(SMOKE_TIMEOUT).await;
    connected.map_err(|error| error.to_string())?;
    let connected_ms = millis(began);
    let sent = Instant::now();
    let event = text_event(platform, CHAT, "smoke-1", "hello");
    connector.deliver(&event).map_err(|error| error.to_string())?;
    let reply = connector.reply_to(SMOKE_TIMEOUT, "smoke-1").await;
    Ok(RoundTrip {
        reply: reply.map_err(|error| error.to_string())?.text,
        connected_ms,
        reply_ms: millis(sent),
        total_ms: millis(began),
    })
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn print_welcome(url: &str, platform: &str, agent: &str, hints: &[Hint]) {
    outln!("A connector simulates {platform}, a relay is connected to it, and `{agent}` answers. Chat page:");
    outln!("\n  {url}\n");
    outln!("Three things to try, on the page or here:");
    let width = hints.iter().map(|hint| hint.say.len()).max().unwrap_or_default();
    for hint in hints {
        outln!("  {:width$}   {}", hint.say, hint.shows);
    }
}
