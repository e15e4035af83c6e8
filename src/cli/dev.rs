//! `hermes-relay dev`: both ends of the contract on this machine, with a chat in the terminal.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use secrecy::ExposeSecret as _;
use tokio::sync::{Notify, mpsc, watch};

use super::exit::{self, fail};
use super::run::http_client;
use super::{SharedArgs, Surround, logging, run};
use crate::config::{self, Flags, Identity, LogLevel, Settings, Sources};
use crate::dev::{Connector, ConnectorSettings, Preset, text_event};
use crate::net::connector_http;
use crate::net::proxy::ProxyRules;
use crate::relay::{Credentials, Ended, Relay, RelayHandle};
use crate::wire::{Grouping, MessageEvent, NoAliases, SessionKey};

/// Talk to an agent over a real relay link, with nothing else installed.
///
/// Starts a connector on this machine (loopback only), enrols with it, runs the relay against it over a real
/// socket, and opens a chat. Nothing is kept: the journal lives in a temporary directory.
#[derive(Args, Debug)]
#[command(
    after_help = "In the chat: Ctrl-C stops the running turn, /quit ends.\n\nExamples:\n  hermes-relay dev\n  hermes-relay dev --platform telegram\n  hermes-relay dev --connector-only --port 8788     # for another gateway to dial\n  hermes-relay dev --smoke                          # one round trip, for scripts"
)]
pub(super) struct DevArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// Who answers.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The platform to play: discord, telegram, slack, whatsapp, plain or legacy.
    #[arg(long, value_name = "NAME", default_value = "discord", value_parser = platform)]
    platform: String,
    /// The connector's port; a free one when 0.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Open no chat; serve until Ctrl-C.
    #[arg(long)]
    no_tui: bool,
    /// Start the connector alone and print the environment with which a gateway reaches it.
    #[arg(long, conflicts_with_all = ["smoke", "agent"])]
    connector_only: bool,
    /// Send one message, wait for its answer, print how long it took, and exit.
    #[arg(long, conflicts_with = "no_tui")]
    smoke: bool,
}

fn platform(name: &str) -> Result<String, String> {
    let known = Preset::ALL.map(Preset::name);
    if known.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(format!("one of: {}", known.join(", ")))
    }
}

/// The chat that the terminal plays.
const CHAT: &str = "terminal";
/// How long an answer is waited for before looking around again.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The same once there is no more input.
const QUIET: Duration = Duration::from_millis(50);
/// How long the smoke test waits for its answer.
const SMOKE: Duration = Duration::from_secs(10);

/// Runs the verb.
pub(super) fn run(args: &DevArgs, surround: &Surround<'_>) -> ExitCode {
    let env = surround.env;
    let began = Instant::now();
    let mut flags = Flags {
        agent: args.agent.clone(),
        ..args.shared.flags()
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
    logging::start(&loaded.settings.log, env);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(serve(args, loaded.settings, surround, began));
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

async fn serve(args: &DevArgs, mut settings: Settings, surround: &Surround<'_>, began: Instant) -> ExitCode {
    let token = "dev-enrolment-token".to_owned();
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
    if args.connector_only {
        return serve_connector(&connector, &args.platform).await;
    }
    settings.connector.url = Some(connector.url());
    settings.connector.identities = vec![Identity::new(args.platform.as_str(), "dev-bot")];
    // Nobody could wake what sleeps here.
    settings.sleep.enabled = false;
    let credentials = match enrol(&settings, &connector, &token).await {
        Ok(credentials) => credentials,
        Err(error) => {
            return fail(
                exit::OUR_FAULT,
                format!("cannot enrol with the embedded connector: {error}"),
                None,
            );
        }
    };
    let (_keep, watched) = watch::channel(Some(credentials));
    let agent = settings.agent.clone();
    let members = match run::staff(&settings, surround).await {
        Ok(members) => members,
        Err(code) => return code,
    };
    let builder = members
        .into_iter()
        .fold(Relay::builder(settings), |builder, (name, member)| {
            builder.member(&name, member)
        });
    let relay = match builder.credentials(watched).build() {
        Ok(relay) => relay,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let handle = relay.handle();
    let stop = Arc::new(Notify::new());
    let asked = Arc::clone(&stop);
    let running = tokio::spawn(relay.run(async move { asked.notified().await }));
    let code = if args.smoke {
        smoke(&connector, &args.platform, began).await
    } else {
        greet(&connector, &args.platform, &agent);
        if args.no_tui {
            let _ = tokio::signal::ctrl_c().await;
        } else {
            chat(&connector, &args.platform, Some(&handle)).await;
        }
        ExitCode::SUCCESS
    };
    stop.notify_one();
    match running.await {
        Ok(Ended::Asked) => code,
        Ok(ended) => fail(exit::OUR_FAULT, format!("the relay ended: {ended:?}"), None),
        Err(error) => fail(exit::OUR_FAULT, format!("the relay failed: {error}"), None),
    }
}

async fn enrol(settings: &Settings, connector: &Connector, token: &str) -> Result<Credentials, String> {
    let http = http_client(settings, &ProxyRules::none())?;
    let identity = "dev-identity".into();
    let enrolled =
        connector_http::enroll(&http, &connector.http_base(), &identity, &token.into(), "gw-dev").await;
    let enrolled = enrolled.map_err(|error| error.to_string())?;
    Ok(Credentials {
        gateway_id: enrolled.gateway_id,
        secret: enrolled.secret,
    })
}

async fn serve_connector(connector: &Connector, platform: &str) -> ExitCode {
    let Some(who) = connector.credentials() else {
        return fail(exit::OUR_FAULT, "the connector has no gateway", None);
    };
    anstream::println!("GATEWAY_RELAY_URL={}", connector.url());
    anstream::println!("GATEWAY_RELAY_ID={}", who.gateway_id);
    anstream::println!("GATEWAY_RELAY_SECRET={}", who.secret.expose_secret());
    anstream::println!("GATEWAY_RELAY_PLATFORMS={platform}");
    anstream::eprintln!("the connector serves until Ctrl-C; its secret is good for this run only");
    chat(connector, platform, None).await;
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
            anstream::println!(
                "smoke: \"{}\" after {} ms",
                sent.text,
                began.elapsed().as_millis()
            );
            ExitCode::SUCCESS
        }
        Err(error) => fail(exit::FAILED, error, None),
    }
}

fn greet(connector: &Connector, platform: &str, agent: &str) {
    anstream::println!(
        "A connector plays {platform} at {}; the relay answers with `{agent}`.",
        connector.url()
    );
    anstream::println!("Three things to try:");
    anstream::println!("  hello                      an answer over a real link");
    anstream::println!("  sleep=5000 slow            then Ctrl-C: the turn stops");
    anstream::println!("  /new                       begins a new conversation");
}

/// Lines in, answers out, until `/quit` or Ctrl-C with nothing running. At the end of input, until the relay has
/// nothing left to do; a connector without a relay of ours goes on.
async fn chat(connector: &Connector, platform: &str, relay: Option<&RelayHandle>) {
    let mut lines = typed_lines();
    let (mut said, mut seen, mut ended) = (0_usize, 0_usize, false);
    let session = session_of(platform);
    loop {
        if ended && seen >= connector.sent_messages().len() && is_quiet(connector, relay).await {
            return;
        }
        prompt();
        let shown = seen;
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => {
                if !connector.interrupt(session.as_str(), CHAT) || seen >= said {
                    return;
                }
                anstream::println!("\n(stopping)");
                said = seen;
            }
            sent = connector.until("an answer", if ended { QUIET } else { PATIENCE }, |connector| {
                let sent = connector.sent_messages();
                (sent.len() > shown).then(|| sent[shown..].to_vec())
            }) => {
                for message in sent.unwrap_or_default() {
                    anstream::println!("\r{}: {}", platform, message.text);
                    seen += 1;
                }
            }
            line = lines.recv(), if !ended => match line.as_deref().map(str::trim) {
                None => ended = true,
                Some("/quit") => return,
                Some("") => {}
                Some(text) => {
                    said += 1;
                    let event = text_event(platform, CHAT, &format!("typed-{said}"), text);
                    if let Err(error) = connector.deliver(&event) {
                        anstream::eprintln!("not taken: {error}");
                    }
                }
            }
        }
    }
}

/// Whether nothing waits at either end.
async fn is_quiet(connector: &Connector, relay: Option<&RelayHandle>) -> bool {
    match relay {
        None => false,
        Some(relay) => relay.status().await.is_none_or(|status| {
            connector.waiting() == 0 && status.sessions_active == 0 && status.ops_owed == 0
        }),
    }
}

fn session_of(platform: &str) -> SessionKey {
    let event = MessageEvent::from_value(&text_event(platform, CHAT, "", "")).unwrap_or_default();
    SessionKey::build(&event.source, Grouping::default(), None, &NoAliases)
}

fn prompt() {
    if std::io::stdin().is_terminal() {
        let mut out = std::io::stdout();
        let _ = write!(out, "> ").and_then(|()| out.flush());
    }
}

/// Reads the terminal in a thread of its own: a read there cannot be called off.
fn typed_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
