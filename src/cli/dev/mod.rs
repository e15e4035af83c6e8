//! `hermes-relay dev`: connector and relay on this machine, with a chat page and a chat in the terminal.

mod bot_api;
mod chat;
mod line_editor;
mod markdown;
mod own_model;
mod owners;
mod relay;
mod replay;
mod scheduler;
mod screen;
mod transcript;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::agents::add_known;
use super::exit::{self, ErrorFormat, errln, fail, outln};
use super::log::{self, Repeats};
use super::run::build_agents;
use super::{ProcessEnv, SharedArgs};
use crate::adapter::SessionNames;
use crate::agent::BUILT_IN;
use crate::config::{self, CronProvider, Flags, LogLevel, Settings, Sources};
use crate::dev::{
    Connector, ConnectorSettings, Hint, MAX_PAGE_PEOPLE, PageSettings, PlatformPreset, Recording,
    SentMessage, text_event,
};
use chat::{CHAT, chat};
use relay::{DevRelay, RelayPlan, RunSecrets};
use scheduler::DevScheduler;

/// Chat with an agent over a real relay link, with nothing else installed.
///
/// Starts a connector on this machine (loopback only), enrolls with it, runs the relay against it over a real
/// socket, and serves a chat page; you can also chat in the terminal. You and the people on the page are owners, whatever
/// access rules the settings have. Nothing is kept: the journal is in a temporary directory, which is removed at the end.
///
/// Exit codes: 0 ended, 1 --smoke failed or --record is incomplete, 2 --bot-api with another platform than telegram or discord, 78 the settings, the port or the file cannot be used.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "In the chat: Ctrl-C stops the running turn, and pressed twice at an empty prompt it exits; Ctrl-D or /quit exits, Tab completes commands, a number answers a question, and /help lists the keys.\n\nExamples:\n  hermes-relay dev\n  hermes-relay dev --agent claude                    # your own coding agent\n  hermes-relay dev --model llama3.2                  # a model of the server on this machine\n  hermes-relay dev --platform telegram\n  hermes-relay dev --config relay.yaml --access      # your access rules, with strangers on the page\n  hermes-relay dev --record wire.jsonl               # every frame, one JSON object per line\n  hermes-relay dev replay wire.jsonl --agent echo    # the same messages again\n  hermes-relay dev --connector-only --port 8788      # for another gateway to dial\n  hermes-relay dev --platform telegram --bot-api     # a fake Telegram, without a connector\n  hermes-relay dev --platform discord --bot-api      # a fake Discord\n  hermes-relay dev --platform telegram --bot-api --connector-only    # the same for any bot\n  hermes-relay dev --smoke --json                    # one round trip, for scripts"
)]
pub(super) struct DevArgs {
    #[command(subcommand)]
    verb: Option<DevVerb>,
    #[command(flatten)]
    shared: SharedArgs,
    /// Agent from the settings, a built-in one, or a preset such as claude, which needs no settings [default: as for `run`].
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Model of a model server as the agent; without --base-url that of Ollama, LM Studio or llama.cpp on this machine.
    #[arg(long, value_name = "NAME", conflicts_with = "connector_only")]
    model: Option<String>,
    /// URL of a model server with an OpenAI-compatible API as the agent; without --model it must have one only.
    #[arg(long, value_name = "URL", conflicts_with = "connector_only")]
    base_url: Option<String>,
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
    /// Simulate Telegram's Bot API, or Discord, instead of a connector, with the relay as the bot; print its token and address. With
    /// --connector-only, without the relay: for a bot of another program.
    #[arg(long, conflicts_with = "record")]
    bot_api: bool,
    /// Try the access rules of the settings: people on the page are strangers to them, and you are an owner at the keyboard.
    #[arg(long, conflicts_with_all = ["smoke", "connector_only"])]
    access: bool,
    /// Send one message, wait until the agent has finished its answer, print the time since the start, and exit.
    #[arg(long)]
    smoke: bool,
    /// Print the result of --smoke as one JSON object: `ok`, `reply`, `connected_ms`, `reply_ms`, `total_ms`; on failure `ok`, `error`, `hint`, `total_ms`.
    #[arg(long, requires = "smoke")]
    json: bool,
    /// Record every frame to a new file, one JSON object per line, without secrets.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl DevArgs {
    fn errors(&self) -> ErrorFormat {
        ErrorFormat::new(self.json)
    }
}

#[derive(Subcommand, Debug)]
enum DevVerb {
    Replay(replay::ReplayArgs),
}

/// Timeout of the smoke test's connection, and of its finished answer.
const SMOKE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the end may take after a signal.
const SIGNAL_GRACE: Duration = Duration::from_secs(10);
/// Attempts to remove the temporary state, and the pause between them: a task that is being stopped may still write to it.
const REMOVALS: usize = 20;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the verb.
pub(super) fn run(args: &DevArgs, process: &ProcessEnv<'_>) -> ExitCode {
    match &args.verb {
        None if args.bot_api && !bot_api::PLATFORMS.contains(&args.platform.as_str()) => args.errors().fail(
            exit::USAGE,
            format!(
                "--bot-api simulates Telegram or Discord, and --platform is {}",
                args.platform
            ),
            Some("add --platform telegram or --platform discord"),
        ),
        None => {
            let began = Instant::now();
            let (flags, env) = (args.shared.flags(), process.env);
            // An error is reported when the settings are loaded.
            let file = config::settings_file(&Sources { flags, env }).ok().flatten();
            let process = &process.with_config(file.as_deref());
            run_locally(
                &args.shared,
                args.agent.as_deref(),
                (process, args.errors()),
                |settings, ending| serve(args, settings, process, (began, ending)),
            )
        }
        Some(DevVerb::Replay(replay)) => replay::run(replay, process),
    }
}

/// Loads the settings with a temporary journal and runs `work`, which ends soon after the token is cancelled: a signal came.
fn run_locally<F: Future<Output = ExitCode>>(
    shared: &SharedArgs,
    agent: Option<&str>,
    (process, errors): (&ProcessEnv<'_>, ErrorFormat),
    work: impl FnOnce(Settings, CancellationToken) -> F,
) -> ExitCode {
    if shared.state_dir.is_some() {
        let what = "`dev` keeps its state in a temporary directory and removes it at the end";
        return errors.fail(exit::USAGE, what, Some("leave out --state-dir"));
    }
    let env = process.env;
    let mut flags = Flags {
        agent: agent.map(str::to_owned),
        ..shared.flags()
    };
    flags.log_level = flags.log_level.or(Some(LogLevel::Warn));
    let state = match tempfile::tempdir() {
        Ok(state) => state,
        Err(error) => {
            return errors.fail(
                exit::CONFIGURATION,
                format!("cannot create a temporary directory: {error}"),
                None,
            );
        }
    };
    flags.state_dir = Some(state.path().join("state"));
    let mut loaded = match config::load(&Sources { flags, env }) {
        Ok(loaded) => loaded,
        Err(error) => return errors.fail(exit::CONFIGURATION, error, None),
    };
    if let Some(agent) = agent.filter(|agent| !BUILT_IN.contains(agent))
        && let Err(code) = add_known(&mut loaded.settings, agent, errors)
    {
        return code;
    }
    let log = log::start(&loaded, process, Repeats::Unlimited);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let settings = loaded.settings.clone();
            let ending = CancellationToken::new();
            let working = until_signals(work(loaded.settings, ending.clone()), ending);
            let code = runtime.block_on(log.export_traces(&settings, env, working));
            runtime.block_on(remove(state.path()));
            // The thread that reads the terminal may block for ever.
            runtime.shutdown_background();
            code
        }
        Err(error) => errors.fail(exit::INTERNAL, format!("cannot start the runtime: {error}"), None),
    }
}

/// Runs `work`. The first signal that ends a program cancels `ending`; the second one, or a while, ends `work` at once.
async fn until_signals(work: impl Future<Output = ExitCode>, ending: CancellationToken) -> ExitCode {
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let mut signals: Vec<Signal> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    let mut signalled = async || {
        let next = |context: &mut Context<'_>| {
            let is_ready = |signal: &mut Signal| signal.poll_recv(context).is_ready();
            if signals.iter_mut().any(is_ready) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        };
        std::future::poll_fn(next).await;
    };
    let ended = async {
        signalled().await;
        ending.cancel();
        let _ = tokio::time::timeout(SIGNAL_GRACE, signalled()).await;
    };
    tokio::select! {
        biased;
        code = work => code,
        () = ended => ExitCode::from(exit::FAILED),
    }
}

/// Waits for Ctrl-C or another signal that ends the program.
async fn ended(ending: &CancellationToken) {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = ending.cancelled() => {}
    }
}

/// Removes the temporary state.
async fn remove(state: &Path) {
    for _ in 0..REMOVALS {
        if std::fs::remove_dir_all(state).is_ok() || !state.exists() {
            return;
        }
        tokio::time::sleep(REMOVAL_INTERVAL).await;
    }
}

async fn serve(
    args: &DevArgs,
    mut settings: Settings,
    process: &ProcessEnv<'_>,
    (began, ending): (Instant, CancellationToken),
) -> ExitCode {
    if let Err(code) = own_model::choose(args, &mut settings, process.env).await {
        return code;
    }
    if args.bot_api {
        return bot_api::serve(args, settings, process, (began, &ending)).await;
    }
    let ids = (1..=MAX_PAGE_PEOPLE).map(|number| format!("u{number}"));
    let access = owners::admit(&mut settings, &args.platform, ids, args.access);
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
        Err(error) => return port_in_use(args, &error),
    };
    let recording = match record(args, &connector).await {
        Ok(recording) => recording,
        Err(code) => return code,
    };
    let code = if args.connector_only {
        serve_connector(args, &connector, &secrets, &ending).await
    } else {
        match build_agents(&settings, process).await {
            Ok((agents, voice)) => {
                let plan = RelayPlan {
                    platforms: vec![args.platform.clone()],
                    settings,
                    agents,
                    voice,
                };
                serve_both(args, plan, (&connector, &secrets), access, (began, &ending)).await
            }
            Err(error) => args.errors().fail(exit::CONFIGURATION, error.message, error.hint),
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
fn port_in_use(args: &DevArgs, error: &std::io::Error) -> ExitCode {
    args.errors().fail(
        exit::CONFIGURATION,
        format!("cannot listen on 127.0.0.1:{}: {error}", args.port),
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
        args.errors().fail(exit::CONFIGURATION, what, Some(hint))
    })
}

async fn serve_both(
    args: &DevArgs,
    plan: RelayPlan,
    (connector, secrets): (&Arc<Connector>, &RunSecrets),
    access: Option<String>,
    (began, ending): (Instant, &CancellationToken),
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
            Err(error) => return args.errors().fail(exit::CONFIGURATION, error, None),
        },
    };
    if let Some(scheduler) = &scheduler {
        connector.show_jobs_of(scheduler.managed());
    }
    let relay = match DevRelay::start(connector, plan, secrets, scheduler, status_sender).await {
        Ok(relay) => relay,
        Err(error) => return args.errors().fail(exit::CONFIGURATION, error, None),
    };
    let code = match url {
        None => {
            let sent = send(&args.platform, connector, began).await;
            smoke(args, sent, (&relay, &agent), began, || answer(connector)).await
        }
        Some(url) => {
            print_welcome(&url, &args.platform, &agent, hints);
            if let Some(access) = access {
                outln!("\n{access}");
            }
            if args.no_tui {
                ended(ending).await;
            } else {
                outln!("\nCtrl-C stops the running turn, Ctrl-D or /quit exits.\n");
                chat(
                    connector,
                    (&args.platform, &agent),
                    sessions,
                    Some(&relay),
                    ending,
                )
                .await;
            }
            ExitCode::SUCCESS
        }
    };
    relay.stop(code).await
}

async fn serve_connector(
    args: &DevArgs,
    connector: &Connector,
    secrets: &RunSecrets,
    ending: &CancellationToken,
) -> ExitCode {
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
        ended(ending).await;
    } else {
        chat(
            connector,
            (&args.platform, "gateway"),
            SessionNames::default(),
            None,
            ending,
        )
        .await;
    }
    ExitCode::SUCCESS
}

/// Why a smoke test failed, and what to do next.
type SmokeFailure = (String, Option<String>);

/// Waits until the one turn is over, and reports what the chat shows then. `sent` says when its message was sent.
async fn smoke(
    args: &DevArgs,
    sent: Result<u64, SmokeFailure>,
    (relay, agent): (&DevRelay, &str),
    began: Instant,
    answer: impl Fn() -> String,
) -> ExitCode {
    let trip = match sent {
        Err(failure) => Err(failure),
        Ok(connected_ms) => {
            let is_done = relay.first_turn(SMOKE_TIMEOUT).await;
            let total_ms = millis(began);
            judge(is_done, agent, answer()).map(|reply| RoundTrip {
                reply,
                connected_ms,
                reply_ms: total_ms - connected_ms,
                total_ms,
            })
        }
    };
    let (error, hint) = match trip {
        Ok(trip) => {
            if args.json {
                outln!("{}", trip.to_json());
            } else {
                outln!("smoke: \"{}\" after {} ms", trip.reply, trip.total_ms);
            }
            return ExitCode::SUCCESS;
        }
        Err(failure) => failure,
    };
    if args.json {
        let total_ms = millis(began);
        let failed = json!({ "ok": false, "error": error, "hint": hint, "total_ms": total_ms });
        outln!("{failed}");
    }
    fail(exit::FAILED, error, hint.as_deref())
}

/// Only a finished answer of the agent counts.
fn judge(is_done: Option<bool>, agent: &str, shown: String) -> Result<String, SmokeFailure> {
    let within = SMOKE_TIMEOUT.as_secs();
    let error = match is_done {
        Some(true) if !shown.is_empty() => return Ok(shown),
        Some(true) => format!("the agent `{agent}` ended its turn without an answer"),
        Some(false) => format!("the agent `{agent}` failed: {shown}"),
        None if shown.is_empty() => format!("the agent `{agent}` did not answer within {within} s"),
        None => format!("the agent `{agent}` did not finish within {within} s; the chat shows: {shown}"),
    };
    Err((
        error,
        Some(format!("`hermes-relay agents test {agent}` shows more")),
    ))
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

/// The message of the smoke test.
const SMOKE_MESSAGE: &str = "smoke-1";

/// Sends a message as soon as the relay is connected; returns when that was.
async fn send(platform: &str, connector: &Connector, began: Instant) -> Result<u64, SmokeFailure> {
    let connected = connector.wait_connected(SMOKE_TIMEOUT).await;
    connected.map_err(|error| (error.to_string(), None))?;
    let connected_ms = millis(began);
    let event = text_event(platform, CHAT, SMOKE_MESSAGE, "hello");
    connector
        .deliver(&event)
        .map_err(|error| (error.to_string(), None))?;
    Ok(connected_ms)
}

/// What the chat shows: answers to the message, else whatever there is.
fn answer(connector: &Connector) -> String {
    let mut messages = connector.messages_in(CHAT);
    messages.retain(|sent| !sent.deleted);
    let is_answer = |sent: &SentMessage| sent.reply_to.as_deref() == Some(SMOKE_MESSAGE);
    if messages.iter().any(is_answer) {
        messages.retain(is_answer);
    }
    let texts: Vec<String> = messages.into_iter().map(|sent| sent.text).collect();
    texts.join("\n")
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
