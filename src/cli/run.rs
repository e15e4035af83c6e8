//! `hermes-relay run`: serve until told to stop.

mod beside;
mod credential_files;
mod dump;
mod failures;
mod reread;
mod signals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use self::beside::{Declaration, provision_on};
use self::credential_files::CredentialFiles;
use self::dump::dump;
pub(super) use self::failures::Unstaffed;
use self::failures::{NO_URL, Unbuilt, serve_failure};
use self::reread::{Reread, Started, reread, rotate};
use self::signals::{Signals, Told};
use super::exit;
use super::logging::{self, Complaints, LogHandle, Repeating};
use super::notify::{Manager, Notice};
use super::{SharedArgs, Surround, enroll};
use crate::agent::AgentHealth;
use crate::config::{self, Backend, Flags, Loaded, SleepAction, Sources};
use crate::net::http::HttpClient;
use crate::net::proxy::ProxyRules;
use crate::net::tls::Tls;
use crate::relay::hiring::without_keys;
use crate::relay::{Credentials, Ended, Lever, Member, Relay, USER_AGENT, boot};
use crate::serve::{Desk, Reload, Serving};
use crate::wire::ConnectorUrl;

/// Dial the connector and answer messages with an agent, until told to stop.
///
/// Settings come from flags, the environment (`GATEWAY_RELAY_*`), relay.yaml, and Hermes' own files, in that
/// order; `hermes-relay config show` prints each with its origin. SIGTERM or Ctrl-C finishes running turns and
/// ends; a second one ends at once. SIGHUP reads the settings again; a new secret in its file is noticed without it.
/// SIGUSR1 finishes and ends with 75, so that a supervisor starts it again. SIGUSR2 tells the log how the link, the
/// sessions and the queues stand.
///
/// The log goes to standard error, or to the system's journal where that reads it; secrets are not in it, nor what
/// people say. `hermes-relay logs redact` makes it fit to be shown to others.
///
/// Exit codes: 0 asked to stop or gone to sleep, 1 told to stop a second time, 70 a fault of ours, 75 the state directory
/// or the port is in use or a restart was asked for, 77 revoked (enrol again), 78 the configuration cannot be used.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay run --agent echo\n  GATEWAY_RELAY_URL=wss://connector.example GATEWAY_RELAY_ID=gw-1 \\\n    GATEWAY_RELAY_SECRET_FILE=/etc/hermes-relay/secret hermes-relay run"
)]
pub(super) struct RunArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// Who answers what no route takes: an agent from the settings, or a built-in one (`echo` says back what it hears,
    /// `noop` says nothing). `hermes-relay agents list` shows them.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The connector's URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Where the journal lives.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Move a damaged journal aside and start a fresh one. What it held is lost to the relay.
    #[arg(long)]
    fresh_journal_if_corrupt: bool,
}

impl RunArgs {
    fn flags(&self) -> Flags {
        Flags {
            agent: self.agent.clone(),
            url: self.url.clone(),
            state_dir: self.state_dir.clone(),
            ..self.shared.flags()
        }
    }
}

/// Runs the verb.
pub(super) fn run(args: &RunArgs, surround: &Surround<'_>) -> ExitCode {
    let env = surround.env;
    let loaded = match config::load(&Sources {
        flags: args.flags(),
        env,
    }) {
        Ok(loaded) => loaded,
        Err(error) => return Complaints::early(surround).fail(exit::CONFIGURATION, error, None),
    };
    let log = logging::start(&loaded, surround, Repeating::LeftOut);
    let complaints = log.complaints(env);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let Some(configured) = loaded.settings.connector.url.clone() else {
        let veto = loaded.settings.connector.url_veto.clone();
        let what = veto.unwrap_or_else(|| "no connector URL is configured".to_owned());
        return complaints.fail(exit::CONFIGURATION, what, Some(NO_URL));
    };
    let url = match ConnectorUrl::parse(&configured) {
        Ok(url) => url,
        Err(error) => return complaints.fail(exit::CONFIGURATION, error, None),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(serve(args, loaded, url, surround, &log));
            log.tell_last_repeats();
            code
        }
        Err(error) => complaints.fail(
            exit::OUR_FAULT,
            format!("cannot start the runtime: {error}"),
            None,
        ),
    }
}

/// How long an agent may take to say how it stands.
const HEALTH: Duration = Duration::from_secs(5);

/// Tells whoever asked for it what became of reading the settings again.
fn again_told(again: Result<Reread, config::ConfigError>, asker: Option<Reload>) {
    if let Some(asker) = asker {
        let told = again.map(|again| again.needs_restart);
        let _ = asker.send(told.map_err(|error| error.to_string()));
    }
}

async fn serve(
    args: &RunArgs,
    loaded: Loaded,
    url: ConnectorUrl,
    surround: &Surround<'_>,
    log: &LogHandle,
) -> ExitCode {
    let env = surround.env;
    let complaints = log.complaints(env);
    let started = Started::with(loaded.settings.clone());
    let settings = started.settings.clone();
    let members = match staff(&settings, surround).await {
        Ok(members) => members,
        Err(none) => return complaints.fail(exit::CONFIGURATION, none.what, none.hint),
    };
    let Ok(mut signals) = Signals::listen() else {
        return complaints.fail(exit::OUR_FAULT, "cannot listen for signals", None);
    };
    let proxies = ProxyRules::from_env(env);
    let tls = boot::tls(&settings);
    let (credentials, watched) = watch::channel(boot::pinned_credentials(&settings));
    let relay = match build(args, &settings, surround, members, (&tls, &proxies), &watched) {
        Ok(relay) => relay,
        Err(unbuilt) => return unbuilt.told(&complaints),
    };
    let manager = Manager::of(env, std::process::id());
    manager.tell(&Notice::Ready).await;
    let http = || http_on(&tls, &settings, &proxies);
    if credentials.borrow().is_none() {
        let http = match http() {
            Ok(http) => http,
            Err(error) => return complaints.fail(exit::CONFIGURATION, error, None),
        };
        let asked = boot::self_provision(&settings, &url, env, enroll::hostname(), &http);
        match before_serving(asked, &mut signals, &manager).await {
            Ok(provisioned) => beside::put_in_force(&credentials, provisioned, log),
            Err(code) => return code,
        }
    }
    let mut provisioning = std::pin::pin!(provision_on(&settings, &url, env, http, &credentials, log));
    let mut policy = Declaration::begin(&loaded, &url, http, &watched);
    let (reloads, mut reload_ears) = mpsc::channel::<Reload>(RELOADS);
    let handle = relay.handle();
    let desk = Desk::new(handle.clone(), &settings.state_dir)
        .reloads_to(reloads)
        .dials(&url, watched.clone())
        .log(log.counts());
    let serving = match Serving::start(&settings.serve, desk) {
        Ok(serving) => serving,
        Err(error) => return serve_failure(&error, &complaints),
    };
    let mut dumps = JoinSet::new();
    let mut following = std::pin::pin!(manager.follow(relay.link()));
    let mut watching = std::pin::pin!(manager.watch(|| async { handle.status().await.is_some() }));
    let mut telling = std::pin::pin!(log.tell_repeats());
    let shutdown = Arc::new(Notify::new());
    let asked = Arc::clone(&shutdown);
    let mut running = std::pin::pin!(relay.run(async move { asked.notified().await }));
    let mut files = CredentialFiles::new(&loaded.credential_files);
    let mut leaving: Option<Told> = None;
    let ended = loop {
        let mut reload: Option<Option<Reload>> = None;
        tokio::select! {
            biased;
            ended = &mut running => break ended,
            () = &mut provisioning => {}
            never = &mut following => match never {},
            never = &mut watching => match never {},
            never = &mut telling => match never {},
            told = signals.next() => match told {
                Told::Stop if leaving == Some(Told::Stop) => {
                    tracing::warn!("told to stop a second time; ending at once");
                    return ExitCode::from(exit::FAILED);
                }
                Told::Restart if leaving.is_some() => {}
                Told::Stop | Told::Restart => {
                    leaving = Some(told);
                    shutdown.notify_one();
                    manager.tell(&Notice::Stopping).await;
                }
                Told::Reload => reload = Some(None),
                Told::Dump => {
                    while dumps.try_join_next().is_some() {}
                    if dumps.is_empty() {
                        dumps.spawn(dump(handle.clone()));
                    }
                }
            },
            Some(answer) = reload_ears.recv() => reload = Some(Some(answer)),
            // Cancel-safe: what was seen so far is kept.
            () = files.changed() => files.rotate(args.flags(), surround, &credentials, log),
        }
        if let Some(answer) = reload {
            manager.tell(&Notice::Reloading).await;
            let again = reread(args.flags(), &started, surround, log);
            if let Ok(again) = &again {
                rotate(&credentials, &again.loaded);
                policy = Declaration::begin(&again.loaded, &url, http, &watched);
            }
            again_told(again, answer);
            manager.tell(&Notice::Ready).await;
        }
    };
    drop((policy, serving));
    manager.tell(&Notice::Stopping).await;
    end(ended, leaving, &complaints)
}

/// Puts the relay together and opens its journal.
fn build(
    args: &RunArgs,
    settings: &config::Settings,
    surround: &Surround<'_>,
    members: Vec<(String, Member)>,
    (tls, proxies): (&Tls, &ProxyRules),
    watched: &watch::Receiver<Option<Credentials>>,
) -> Result<Relay, Unbuilt> {
    let builder = Relay::builder(settings.clone())
        .proxies(proxies.clone())
        .tls(tls.clone())
        .credentials(watched.clone())
        .fresh_on_corruption(args.fresh_journal_if_corrupt)
        .members(members);
    let builder = match lever(settings, surround, || http_on(tls, settings, proxies)) {
        Ok(Some(lever)) => builder.lever(lever),
        Ok(None) => builder,
        Err(error) => return Err(Unbuilt::Lever(error)),
    };
    builder.build().map_err(Unbuilt::Relay)
}

/// Does something before the relay runs, unless it is told to end first.
async fn before_serving<T>(
    work: impl Future<Output = T>,
    signals: &mut Signals,
    manager: &Manager,
) -> Result<T, ExitCode> {
    tokio::select! {
        biased;
        told = signals.next_end() => {
            manager.tell(&Notice::Stopping).await;
            Err(asked_to_end(told))
        }
        // Nothing runs yet that could be asked; every request in here has its own deadline.
        never = manager.watch(|| std::future::ready(true)) => match never {},
        done = work => Ok(done),
    }
}

/// The exit code of an end, told where somebody has to do something.
fn end(ended: Ended, leaving: Option<Told>, complaints: &Complaints) -> ExitCode {
    match ended {
        Ended::Asked => asked_to_end(leaving.unwrap_or(Told::Stop)),
        Ended::Slept => ExitCode::SUCCESS,
        Ended::Revoked { reason } => {
            let what = format!("the connector has revoked this gateway ({reason})");
            complaints.fail(
                exit::REFUSED,
                what,
                Some("enrol again with `hermes-relay enroll`, then start the relay"),
            )
        }
        Ended::JournalLost => {
            complaints.fail(exit::OUR_FAULT, "the journal's writer ended unexpectedly", None)
        }
    }
}

/// Those who want the settings read again at the same time; more wait.
const RELOADS: usize = 4;

/// The exit code of an end that was asked for.
fn asked_to_end(told: Told) -> ExitCode {
    match told {
        Told::Restart => {
            tracing::info!("ending so that the supervisor starts this relay again");
            ExitCode::from(exit::TRY_AGAIN)
        }
        Told::Stop | Told::Reload | Told::Dump => ExitCode::SUCCESS,
    }
}

/// What suspends this machine, for a relay that may ask for it.
fn lever(
    settings: &config::Settings,
    surround: &Surround<'_>,
    http: impl FnOnce() -> Result<HttpClient, String>,
) -> Result<Option<Lever>, String> {
    if !settings.sleep.enabled || settings.sleep.action != SleepAction::Suspend {
        return Ok(None);
    }
    let base = without_keys(settings, &surround.base);
    Lever::of(settings, surround.env, &base, http)
}

/// The agents that the settings name. One that answers and whose program is not there ends everything now, not at
/// each message.
pub(super) async fn staff(
    settings: &config::Settings,
    surround: &Surround<'_>,
) -> Result<Vec<(String, Member)>, Unstaffed> {
    let members = surround.hire(settings).map_err(|error| Unstaffed {
        what: error.to_string(),
        hint: None,
    })?;
    let answers =
        |name: &str| name == settings.agent || settings.routes.iter().any(|route| route.agent == name);
    for (name, member) in &members {
        let Ok(AgentHealth::Down(why)) = tokio::time::timeout(HEALTH, member.agent.health()).await else {
            continue;
        };
        let program = matches!(
            settings.agents.get(name).map(|entry| &entry.backend),
            Some(Backend::Acp(_) | Backend::Command(_))
        );
        if program && answers(name) {
            let what = format!("the agent `{name}` cannot be used: {why}");
            let hint = Some("`hermes-relay agents list` shows which agents can be used");
            return Err(Unstaffed { what, hint });
        }
        tracing::warn!(agent = name, why, "an agent cannot be used now");
    }
    Ok(members)
}

pub(super) fn http_client(settings: &config::Settings, proxies: &ProxyRules) -> Result<HttpClient, String> {
    http_on(&boot::tls(settings), settings, proxies)
}

fn http_on(tls: &Tls, settings: &config::Settings, proxies: &ProxyRules) -> Result<HttpClient, String> {
    let tls = tls.config().map_err(|error| error.to_string())?;
    HttpClient::new(&tls, proxies.clone(), USER_AGENT)
        .map(|http| http.with_plaintext(settings.connector.allow_plaintext))
        .map_err(|error| error.to_string())
}
