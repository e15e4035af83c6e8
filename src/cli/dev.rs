//! `hermes-relay dev`: both ends of the contract on this machine, with a chat page and a chat in the terminal.

mod chat;
mod half;
mod replay;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::sync::watch;

use super::exit::{self, fail, note, say};
use super::logging::{self, Repeating};
use super::{SharedArgs, Surround, run as run_verb};
use crate::config::{self, Flags, LogLevel, Settings, Sources};
use crate::dev::{
    Connector, ConnectorSettings, HINTS, PageSettings, Preset, Recording, random_token, text_event,
};
use crate::wire::Grouping;
use chat::{CHAT, chat};
use half::{Half, Plan};

/// Talk to an agent over a real relay link, with nothing else installed.
///
/// Starts a connector on this machine (loopback only), enrols with it, runs the relay against it over a real
/// socket, and serves a chat page; the terminal is a chat, too. Nothing is kept: the journal lives in a temporary
/// directory.
///
/// Exit codes: 0 ended, 1 --smoke got no good answer or --record is incomplete, 78 the settings, the port or the file
/// cannot be used.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "In the chat: Ctrl-C stops the running turn, /quit ends.\n\nExamples:\n  hermes-relay dev\n  hermes-relay dev --platform telegram\n  hermes-relay dev --record wire.jsonl               # every frame, one JSON object per line\n  hermes-relay dev replay wire.jsonl --agent echo    # the same messages again\n  hermes-relay dev --connector-only --port 8788      # for another gateway to dial\n  hermes-relay dev --smoke                           # one round trip, for scripts"
)]
pub(super) struct DevArgs {
    #[command(subcommand)]
    verb: Option<DevVerb>,
    #[command(flatten)]
    shared: SharedArgs,
    /// Who answers: an agent from the settings, or a built-in one [default: as for `run`].
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The platform to play.
    #[arg(long, value_name = "NAME", default_value = "discord", value_parser = PossibleValuesParser::new(Preset::ALL.map(Preset::name)))]
    platform: String,
    /// The connector's port; a free one when 0.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Open no chat in the terminal; serve the page until Ctrl-C.
    #[arg(long)]
    no_tui: bool,
    /// Start the connector alone and print the environment with which a gateway reaches it.
    #[arg(long, conflicts_with_all = ["smoke", "agent"])]
    connector_only: bool,
    /// Send one message, wait for its answer, print how long that took from a cold start, and exit.
    #[arg(long, conflicts_with = "no_tui")]
    smoke: bool,
    /// Write every frame to a new file, one JSON object per line, without any secret.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum DevVerb {
    Replay(replay::ReplayArgs),
}

/// How long the smoke test waits for its answer.
const SMOKE: Duration = Duration::from_secs(10);

/// Runs the verb.
pub(super) fn run(args: &DevArgs, surround: &Surround<'_>) -> ExitCode {
    match &args.verb {
        None => {
            let began = Instant::now();
            on_this_machine(&args.shared, args.agent.as_deref(), surround, |settings| {
                serve(args, settings, surround, began)
            })
        }
        Some(DevVerb::Replay(replay)) => replay::run(replay, surround),
    }
}

/// Reads the settings, with a journal that is thrown away, and runs something with them.
fn on_this_machine<F: Future<Output = ExitCode>>(
    shared: &SharedArgs,
    agent: Option<&str>,
    surround: &Surround<'_>,
    work: impl FnOnce(Settings) -> F,
) -> ExitCode {
    let env = surround.env;
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
                format!("cannot make a temporary directory: {error}"),
                None,
            );
        }
    };
    flags.state_dir = Some(state.path().join("state"));
    let loaded = match config::load(&Sources { flags, env }) {
        Ok(loaded) => loaded,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    logging::start(&loaded, surround, Repeating::Said);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(work(loaded.settings));
            // The thread that reads the terminal may be waiting for a line that never comes.
            runtime.shutdown_background();
            code
        }
        Err(error) => fail(
            exit::OUR_FAULT,
            format!("cannot start the runtime: {error}"),
            None,
        ),
    }
}

async fn serve(args: &DevArgs, settings: Settings, surround: &Surround<'_>, began: Instant) -> ExitCode {
    let token = random_token();
    let mut connector_settings = ConnectorSettings {
        port: args.port,
        ..ConnectorSettings::default()
    };
    if !args.connector_only {
        connector_settings.gateways.clear();
        connector_settings.enrol_tokens.push(token.clone());
    }
    let connector = match Connector::start(connector_settings).await {
        Ok(connector) => Arc::new(connector),
        Err(error) => {
            let what = format!("cannot listen on 127.0.0.1:{}: {error}", args.port);
            return fail(
                exit::CONFIGURATION,
                what,
                Some("choose another --port, or leave it out for a free one"),
            );
        }
    };
    let recording = match record(args, &connector).await {
        Ok(recording) => recording,
        Err(code) => return code,
    };
    let code = if args.connector_only {
        serve_connector(args, &connector).await
    } else {
        match run_verb::staff(&settings, surround).await {
            Ok(members) => {
                let plan = Plan {
                    platforms: vec![args.platform.clone()],
                    settings,
                    members,
                };
                serve_both(args, plan, &connector, &token, began).await
            }
            Err(none) => fail(exit::CONFIGURATION, none.what, none.hint),
        }
    };
    if let (Some(recording), Some(file)) = (recording, &args.record) {
        match recording.finish().await {
            Ok(frames) => note!("{frames} frames are in {}", file.display()),
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

async fn record(args: &DevArgs, connector: &Connector) -> Result<Option<Recording>, ExitCode> {
    let Some(file) = &args.record else {
        return Ok(None);
    };
    let recording = connector.record(file, &args.platform).await;
    recording.map(Some).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                "choose a name that is not taken: a recording never overwrites anything"
            }
            _ => "choose a file in a directory that you may write to",
        };
        let what = format!("cannot record to {}: {error}", file.display());
        fail(exit::CONFIGURATION, what, Some(hint))
    })
}

async fn serve_both(
    args: &DevArgs,
    plan: Plan,
    connector: &Arc<Connector>,
    token: &str,
    began: Instant,
) -> ExitCode {
    let agent = plan.settings.agent.clone();
    let grouping = plan.grouping();
    let (told, status) = watch::channel(Value::Null);
    // Before the relay dials, so that the page shows that, too.
    let url = (!args.smoke).then(|| open_page(connector, args, agent.clone(), grouping, Some(status)));
    let half = match Half::start(connector, plan, token, told).await {
        Ok(half) => half,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let code = match url {
        None => {
            let code = smoke(connector, &args.platform, began).await;
            if code == ExitCode::SUCCESS && half.has_failed().await {
                let what = format!("the agent `{agent}` failed; that is what the answer tells");
                let hint = format!("`hermes-relay agents test {agent}` tells more");
                fail(exit::FAILED, what, Some(&hint))
            } else {
                code
            }
        }
        Some(url) => {
            greet(&url, &args.platform, &agent);
            if args.no_tui {
                let _ = tokio::signal::ctrl_c().await;
            } else {
                chat(connector, &args.platform, Some(&half)).await;
            }
            ExitCode::SUCCESS
        }
    };
    half.stop(code).await
}

fn open_page(
    connector: &Connector,
    args: &DevArgs,
    agent: String,
    grouping: Grouping,
    relay: Option<watch::Receiver<Value>>,
) -> String {
    connector.open_page(PageSettings {
        platform: args.platform.clone(),
        agent,
        grouping,
        relay,
    })
}

async fn serve_connector(args: &DevArgs, connector: &Connector) -> ExitCode {
    let Some(who) = connector.credentials() else {
        return fail(exit::OUR_FAULT, "the connector has no gateway", None);
    };
    let url = open_page(connector, args, "gateway".to_owned(), Grouping::default(), None);
    say!("GATEWAY_RELAY_URL={}", connector.url());
    say!("GATEWAY_RELAY_ID={}", who.gateway_id);
    say!("GATEWAY_RELAY_SECRET={}", who.secret.expose_secret());
    say!("GATEWAY_RELAY_PLATFORMS={}", args.platform);
    note!("the connector serves until Ctrl-C; its secret is good for this run only");
    note!("its chat page: {url}");
    if args.no_tui {
        let _ = tokio::signal::ctrl_c().await;
    } else {
        chat(connector, &args.platform, None).await;
    }
    ExitCode::SUCCESS
}

async fn smoke(connector: &Connector, platform: &str, began: Instant) -> ExitCode {
    if connector
        .deliver(&text_event(platform, CHAT, "smoke-1", "hello"))
        .is_err()
    {
        return fail(exit::OUR_FAULT, "the connector takes no message", None);
    }
    match connector.reply_to(SMOKE, "smoke-1").await {
        Ok(sent) => {
            say!(
                "smoke: \"{}\" after {} ms",
                sent.text,
                began.elapsed().as_millis()
            );
            ExitCode::SUCCESS
        }
        Err(error) => fail(exit::FAILED, error, None),
    }
}

fn greet(url: &str, platform: &str, agent: &str) {
    say!("A connector plays {platform}, a relay dials it, and `{agent}` answers. The chat page:");
    say!("\n  {url}\n");
    say!("Three things to try, there or here:");
    let width = HINTS.iter().map(|hint| hint.say.len()).max().unwrap_or_default();
    for hint in HINTS {
        say!("  {:width$}   {}", hint.say, hint.shows);
    }
}
