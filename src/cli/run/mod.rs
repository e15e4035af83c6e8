//! `hermes-relay run`: serves until it is stopped.

mod background;
pub(super) mod chronos;
#[cfg(feature = "nats")]
mod cluster;
mod credential_files;
mod greeting;
#[cfg(not(feature = "nats"))]
mod no_cluster;
mod reload;
pub(super) mod signals;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use self::background::{PolicyDeclaration, provision, use_credentials};
use self::chronos::{ManagedScheduler, fires};
#[cfg(feature = "nats")]
use self::cluster::Membership;
use self::credential_files::CredentialFiles;
#[cfg(not(feature = "nats"))]
use self::no_cluster::NoMembership as Membership;
use self::reload::{Reloaded, StartSettings, reload_for};
use self::signals::{SignalRequest, Signals, announce_wait, dump};
use super::exit::{self, errln};
use super::log::{self, FatalErrors, LogHandle, Repeats};
use super::sd_notify::{Notification, ServiceManager};
use super::{BUILD, ProcessEnv, SharedArgs, enroll};
use crate::agent::AgentHealth;
use crate::config::{self, ConfigError, Flags, LoadedConfig, Settings, SleepAction, Sources};
use crate::cron::arming::Arming;
use crate::net::http::{HttpClient, HttpEgress, HttpPolicy};
use crate::net::identity::{IdentityError, IdentitySource};
use crate::net::proxy::ProxyRules;
use crate::net::tls::Tls;
use crate::relay::without_keys;
use crate::relay::{
    AgentSlot, BuildError, Credentials, ExitReason, Relay, Suspender, USER_AGENT, Voice, provisioning,
};
use crate::serve::{ControlService, HandOver, Reload, ServeError, Serving};
use crate::store::OpenError;
use crate::wire::ConnectorUrl;

/// Timeout of an agent's health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of pending reload requests.
const MAX_RELOADS: usize = 4;
/// How long another process may still hold the state directory: a command, or a relay that was just killed.
const LOCK_WAIT: Duration = Duration::from_secs(3);
/// The hint without a connector URL.
pub(super) const NO_URL: &str = "make a bot of your own with `hermes-relay init --telegram` or `--discord` (with --add if you have a \
                                 settings file), enroll with `hermes-relay enroll --connector-url URL` or set GATEWAY_RELAY_URL, or try everything on this \
                                 machine with `hermes-relay dev`";

/// Dial the connector and answer messages with an agent until stopped.
///
/// Settings come from flags, the environment (`GATEWAY_RELAY_*`), relay.yaml, and Hermes' own files, in that
/// order; `hermes-relay config show` prints each with its origin. SIGTERM or Ctrl-C finishes running turns and
/// exits; a second one exits immediately. SIGHUP reloads the settings, or
/// exits as SIGTERM does if the relay runs in a terminal: that was closed. A new secret in its file is noticed without it.
/// SIGUSR1 finishes and exits with 75, so that a supervisor restarts the relay. SIGUSR2 logs the state of the link, the
/// sessions and the queues; of a standby, that of the cluster.
///
/// The log goes to standard error, or to journald where that reads it. It contains no secrets and no message text.
/// `hermes-relay logs redact` prepares it for sharing.
///
/// Exit codes: 0 stopped or gone to sleep, 1 stopped twice, 70 an internal error, 75 the state directory
/// or the port is in use or a restart was requested, 77 revoked (enroll again) or Telegram does not accept the bot's token, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay run --agent echo\n  GATEWAY_RELAY_URL=wss://connector.example GATEWAY_RELAY_ID=gw-1 \\\n    GATEWAY_RELAY_SECRET_FILE=/etc/hermes-relay/secret hermes-relay run"
)]
pub(super) struct RunArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// Default agent: one from the settings, or a built-in one (`echo` repeats each message, `noop` does not answer).
    /// `hermes-relay agents list` lists them.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Talk to Telegram without a connector, as the bot whose token is in `TELEGRAM_BOT_TOKEN` or in `direct.telegram`.
    #[arg(long)]
    telegram: bool,
    /// Talk to Discord without a connector, as the bot whose token is in `DISCORD_BOT_TOKEN` or in `direct.discord`.
    #[arg(long)]
    discord: bool,
    /// Connector URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Directory of the journal.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Move a corrupt journal aside and start a new one. The relay does not use its contents any more.
    #[arg(long)]
    fresh_journal_if_corrupt: bool,
}

impl RunArgs {
    fn flags(&self) -> Flags {
        Flags {
            agent: self.agent.clone(),
            url: self.url.clone(),
            telegram: self.telegram,
            discord: self.discord,
            state_dir: self.state_dir.clone().or_else(|| self.shared.state_dir.clone()),
            ..self.shared.flags()
        }
    }
}

/// Runs the verb.
pub(super) fn run(args: &RunArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let env = process.env;
    let loaded = match config::load(&Sources {
        flags: args.flags(),
        env,
    }) {
        Ok(loaded) => loaded,
        Err(error) => return FatalErrors::without_settings(process).fail(exit::CONFIGURATION, error, None),
    };
    let log = log::start(&loaded, process, Repeats::RateLimited);
    let fatal = log.fatal_errors(env);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let settings = &loaded.settings;
    for warning in settings
        .platform_warnings()
        .into_iter()
        .chain(settings.access_warning())
    {
        tracing::warn!("{warning}");
    }
    if log.is_for_people() {
        errln!("{}", greeting::text(settings, env!("CARGO_PKG_VERSION")));
    }
    log_start(&loaded);
    let url = match connector_url(&loaded.settings) {
        Ok(url) => url,
        Err((error, hint)) => return fatal.fail(exit::CONFIGURATION, error, hint),
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let settings = loaded.settings.clone();
            let membership = match Membership::start(&settings) {
                Ok(membership) => membership,
                Err(error) => {
                    let what = format!("cannot be a member of the cluster: {error}");
                    return fatal.fail(exit::CONFIGURATION, what, None);
                }
            };
            // Boxed, so that it is not moved from one future into the next.
            let serving = Box::pin(serve(args, loaded, url, process, &log, membership.as_ref()));
            let code = runtime.block_on(log.export_traces(&settings, env, serving));
            log.flush_suppressed();
            code
        }
        Err(error) => {
            let what = format!("cannot start the runtime: {error}");
            fatal.fail(exit::INTERNAL, what, None)
        }
    }
}

/// The connector to dial; none when the relay is a bot of its own.
fn connector_url(settings: &Settings) -> Result<Option<ConnectorUrl>, (String, Option<&'static str>)> {
    let connector = &settings.connector;
    match (&connector.url, settings.direct.is_bot()) {
        (None, true) => Ok(None),
        (None, false) => {
            let veto = connector.url_veto.clone();
            let what = veto.unwrap_or_else(|| "no connector URL is configured".to_owned());
            Err((what, Some(NO_URL)))
        }
        (Some(url), _) => {
            let url = ConnectorUrl::parse(url);
            url.map(Some).map_err(|error| (error.to_string(), None))
        }
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "one select over everything that happens to a running relay"
)]
async fn serve(
    args: &RunArgs,
    mut loaded: LoadedConfig,
    url: Option<ConnectorUrl>,
    process: &ProcessEnv<'_>,
    log: &LogHandle,
    membership: Option<&Membership>,
) -> ExitCode {
    let env = process.env;
    let fatal = log.fatal_errors(env);
    let started = StartSettings::new(loaded.settings.clone());
    let settings = started.settings.clone();
    let process = &process.with_config(loaded.own_file.as_deref());
    let agents = match build_agents(&settings, process).await {
        Ok(agents) => agents,
        Err(error) => return fatal.fail(exit::CONFIGURATION, error.message, error.hint),
    };
    let reload = || reload::reload(args.flags(), &started, process, log);
    let mut credential_files = CredentialFiles::new(&loaded.credential_files);
    // The agents are checked before, so that nothing delays a relay that becomes active.
    if let Some(membership) = membership {
        match Box::pin(membership.stand_by(&settings, process, log, reload)).await {
            Ok(reloaded) => loaded = reloaded.unwrap_or(loaded),
            Err(code) => return code,
        }
    }
    let (stops, stop_verbs) = mpsc::channel(1);
    let Ok(mut signals) = Signals::listen(stop_verbs) else {
        return fatal.fail(exit::INTERNAL, "cannot listen for signals", None);
    };
    let proxies = ProxyRules::from_env(env);
    let tls = provisioning::tls(&settings);
    let (credentials, watched) = watch::channel(provisioning::pinned_credentials(&settings));
    credential_files.follow(&loaded, &credentials);
    let egress = HttpEgress {
        lease: membership.map(Membership::lease),
        ..egress(&tls, &proxies)
    };
    let (arming, verifier) = match ManagedScheduler::new(&settings, &egress, env) {
        Ok(managed) => managed.map(|managed| (managed.arming, managed.verifier)).unzip(),
        Err(error) => return fatal.fail(exit::CONFIGURATION, error, None),
    };
    let relay = match build_relay(
        args,
        &settings,
        process,
        (agents, arming),
        (&tls, &proxies),
        (&watched, membership),
        &fatal,
    ) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let manager = ServiceManager::from_env(env, std::process::id());
    manager.notify(&Notification::Ready).await;
    let http = || http_client_with(&tls, &settings, &proxies);
    let has_credentials = credentials.borrow().is_some();
    let identity = provisioning::identity_source(&settings, env);
    if let Some(url) = url.as_ref().filter(|_| !has_credentials) {
        let http = match http() {
            Ok(http) => http,
            Err(error) => return fatal.fail(exit::CONFIGURATION, error, None),
        };
        let provisioned = provisioning::self_provision(&settings, url, &identity, enroll::hostname(), &http);
        let apply = |reloaded: LoadedConfig| {
            credential_files.follow(&reloaded, &credentials);
            loaded = reloaded;
            credentials.borrow().is_some()
        };
        match before_serving(Box::pin(provisioned), &mut signals, &manager, reload, apply).await {
            Ok(Some(provisioned)) => use_credentials(&credentials, provisioned, log),
            Ok(None) => {}
            Err(code) => {
                refreshed(&identity).await;
                return code;
            }
        }
    }
    let mut provisioning = std::pin::pin!(async {
        match &url {
            Some(url) => provision(&settings, url, &identity, http, &credentials, log).await,
            None => std::future::pending().await,
        }
    });
    let declare = |loaded: &LoadedConfig| {
        let url = url.as_ref();
        url.map(|url| PolicyDeclaration::start(loaded, url, http, &watched))
    };
    let mut policy = declare(&loaded);
    let (reloads, mut reload_requests) = mpsc::channel::<Reload>(MAX_RELOADS);
    let handle = relay.handle();
    let service = ControlService::new(handle.clone(), &settings.state_dir);
    let (handovers, mut handover_requests) = mpsc::channel::<HandOver>(1);
    let service = service.cluster(membership.map(Membership::report), handovers);
    let mut service = service
        .reloads(reloads)
        .stops(stops)
        .shutdown_budget(Duration::from_secs(settings.shutdown.budget_secs));
    if let Some(url) = &url {
        service = service.connector(url, watched.clone());
    }
    if let Some(bot) = &settings.direct.telegram {
        service = service.telegram(bot);
    }
    if let Some(bot) = &settings.direct.discord {
        service = service.discord(bot);
    }
    let service = service.log_counts(log.counts()).trace_counts(log.trace_counts());
    let serving = fires(verifier, &settings, handle.clone())
        .and_then(|fires| Serving::start(&settings.serve, service, fires));
    let serving = match serving {
        Ok(serving) => serving,
        Err(error) => return serve_failure(&error, &fatal),
    };
    let mut dumps = JoinSet::new();
    let mut reporting_status = std::pin::pin!(manager.report_link(relay.link()));
    let mut watchdog = std::pin::pin!(manager.watchdog(|| async { handle.status().await.is_ok() }));
    let mut reporting_suppressed = std::pin::pin!(log.report_suppressed());
    let shutdown = Arc::new(Notify::new());
    let requested = Arc::clone(&shutdown);
    let mut running = std::pin::pin!(relay.run(async move { requested.notified().await }));
    let mut exit_request: Option<SignalRequest> = None;
    let mut is_handing_over = false;
    let ended = loop {
        let mut asked: Option<Option<Reload>> = None;
        tokio::select! {
            biased;
            ended = &mut running => break ended,
            () = &mut provisioning => {}
            never = &mut reporting_status => match never {},
            never = &mut watchdog => match never {},
            never = &mut reporting_suppressed => match never {},
            request = signals.next() => match request {
                SignalRequest::Stop if exit_request.is_some_and(|begun| begun != SignalRequest::Restart) => {
                    tracing::warn!("second stop signal; exiting immediately");
                    return ExitCode::from(exit::FAILED);
                }
                SignalRequest::StopVerb | SignalRequest::Restart if exit_request.is_some() => {}
                SignalRequest::Stop | SignalRequest::StopVerb | SignalRequest::Restart => {
                    exit_request = Some(request);
                    if request != SignalRequest::Restart {
                        let drain = Duration::from_secs(settings.shutdown.drain_secs);
                        dumps.spawn(announce_wait(handle.clone(), drain));
                    }
                    shutdown.notify_one();
                    manager.notify(&Notification::Stopping).await;
                }
                SignalRequest::Reload => asked = Some(None),
                SignalRequest::Dump => {
                    while dumps.try_join_next().is_some() {}
                    if dumps.is_empty() {
                        dumps.spawn(dump(handle.clone()));
                    }
                }
            },
            Some(reply) = reload_requests.recv() => asked = Some(Some(reply)),
            Some(reply) = handover_requests.recv() => {
                let successor = membership.map_or_else(|| Err(String::new()), Membership::successor);
                if successor.is_ok() && exit_request.is_none() {
                    // A signal to stop still counts.
                    (is_handing_over, exit_request) = (true, Some(SignalRequest::Restart));
                    shutdown.notify_one();
                }
                let _ = reply.send(successor);
            }
            // Cancel-safe: what was seen so far is kept.
            () = credential_files.changed() => credential_files.rotate(args.flags(), process, &credentials, log),
        }
        if let Some(asker) = asked {
            let apply = |loaded: LoadedConfig| {
                credential_files.follow(&loaded, &credentials);
                policy = declare(&loaded);
            };
            reload_for(asker, &manager, reload, apply).await;
        }
    };
    drop(policy);
    if let Some(membership) = membership {
        membership.release().await;
        if is_handing_over && exit_request == Some(SignalRequest::Restart) {
            refreshed(&identity).await;
            drop(serving);
            match membership.step_back().await {}
        }
    }
    refreshed(&identity).await;
    drop(serving);
    manager.notify(&Notification::Stopping).await;
    exit_code(ended, exit_request, &settings, &fatal)
}

/// Waits for the new refresh token of a login whose old one is spent.
async fn refreshed(identity: &Result<IdentitySource, IdentityError>) {
    if let Ok(source) = identity {
        source.refreshed().await;
    }
}

/// What this run uses, in the first lines of the log.
fn log_start(loaded: &LoadedConfig) {
    let settings = &loaded.settings;
    let file = loaded.own_file.as_ref().map(|path| path.display().to_string());
    tracing::info!(
        target: log::BESIDE_PEOPLE,
        version = env!("CARGO_PKG_VERSION"),
        build = BUILD.as_str(),
        settings = file.as_deref().unwrap_or("none"),
        state_dir = %settings.state_dir.display(),
        "hermes-relay starts"
    );
    let identities = settings.identities();
    let platforms: Vec<String> = identities.map(|identity| identity.platform.clone()).collect();
    tracing::info!(
        target: log::BESIDE_PEOPLE,
        agents = greeting::agents(settings).join(", "),
        platforms = platforms.join(", "),
        connector = settings.connector.url.as_deref().map(greeting::shown_url),
        telegram = settings.direct.telegram.as_ref().map(|bot| &*bot.api_base),
        discord = settings.direct.discord.as_ref().map(|bot| &*bot.api_base),
        "configured"
    );
}

/// Builds the relay and opens its journal; reports an error and returns its exit code.
fn build_relay(
    args: &RunArgs,
    settings: &Settings,
    process: &ProcessEnv<'_>,
    ((agents, voice), arming): (BuiltAgents, Option<Arming>),
    (tls, proxies): (&Tls, &ProxyRules),
    (watched, membership): (&watch::Receiver<Option<Credentials>>, Option<&Membership>),
    fatal: &FatalErrors,
) -> Result<Relay, ExitCode> {
    let mut builder = Relay::builder(settings.clone())
        .proxies(proxies.clone())
        .tls(tls.clone())
        .credentials(watched.clone())
        .fresh_on_corruption(args.fresh_journal_if_corrupt)
        .lock_wait(LOCK_WAIT)
        .voice(voice)
        .agents(agents);
    if settings.sleep.enabled && settings.sleep.action == SleepAction::Suspend {
        let base = without_keys(settings, &process.base);
        let http = || http_client_with(tls, settings, proxies);
        let suspender = Suspender::from_settings(settings, process.env, &base, http)
            .map_err(|error| fatal.fail(exit::CONFIGURATION, error, None))?;
        if let Some(suspender) = suspender {
            builder = builder.suspender(suspender);
        }
    }
    if let Some(arming) = arming {
        builder = builder.arming(arming);
    }
    if let Some(membership) = membership {
        builder = membership.apply(builder);
    }
    builder.build().map_err(|error| build_failure(&error, fatal))
}

/// Asks for credentials before the relay runs, and returns what is answered; the exit code when a signal requests the exit first. A reload
/// goes through `apply`. When that returns `true`, the new settings have the credentials: nothing is asked any more, and nothing returned.
async fn before_serving<T>(
    asking: impl Future<Output = T>,
    signals: &mut Signals,
    manager: &ServiceManager,
    reload: impl Fn() -> Result<Reloaded, ConfigError>,
    mut apply: impl FnMut(LoadedConfig) -> bool,
) -> Result<Option<T>, ExitCode> {
    let mut asking = std::pin::pin!(asking);
    // Nothing runs yet that could hang; every request in here has its own timeout.
    let mut watchdog = std::pin::pin!(manager.watchdog(|| std::future::ready(true)));
    let mut has_all = false;
    while !has_all {
        tokio::select! {
            biased;
            request = signals.next() => match request {
                SignalRequest::Stop | SignalRequest::StopVerb | SignalRequest::Restart => {
                    manager.notify(&Notification::Stopping).await;
                    return Err(requested_exit(request));
                }
                SignalRequest::Reload => {
                    reload_for(None, manager, &reload, |reloaded| has_all = apply(reloaded)).await;
                }
                SignalRequest::Dump => {
                    tracing::info!("dump: link not dialled yet: the connector is asked for credentials first");
                }
            },
            never = &mut watchdog => match never {},
            done = &mut asking => return Ok(Some(done)),
        }
    }
    Ok(None)
}

/// The exit code of a relay that ended; reports what the user must fix.
fn exit_code(
    ended: ExitReason,
    request: Option<SignalRequest>,
    settings: &Settings,
    fatal: &FatalErrors,
) -> ExitCode {
    let (bots, has_connector) = (settings.direct.platforms(), settings.has_connector());
    match ended {
        ExitReason::Shutdown => requested_exit(request.unwrap_or(SignalRequest::Stop)),
        ExitReason::Slept => ExitCode::SUCCESS,
        ExitReason::Revoked { reason } if has_connector && !bots.is_empty() => fatal.fail(
            exit::CONFIGURATION,
            reason,
            Some("correct the token of that bot (docs/telegram.md and docs/discord.md show where it is); if it is the connector, enroll \
                  again with `hermes-relay enroll`"),
        ),
        ExitReason::Revoked { reason } if bots.len() > 1 => fatal.fail(
            exit::CONFIGURATION,
            reason,
            Some("correct the token of that bot; docs/telegram.md and docs/discord.md show where it is"),
        ),
        ExitReason::Revoked { reason } if bots == ["discord"] => fatal.fail(
            exit::CONFIGURATION,
            reason,
            Some("docs/discord.md shows the pages of the developer portal"),
        ),
        ExitReason::Revoked { reason } if bots == ["telegram"] => fatal.fail(
            exit::REFUSED,
            reason,
            Some("get the bot's current token from @BotFather (/mybots, API Token) and store it in `token_file` or TELEGRAM_BOT_TOKEN"),
        ),
        ExitReason::Revoked { reason } => fatal.fail(
            exit::REFUSED,
            format!("the connector has revoked this gateway ({reason})"),
            Some("enroll again with `hermes-relay enroll`, then start the relay"),
        ),
        ExitReason::JournalLost => {
            fatal.fail(exit::INTERNAL, "the journal's writer ended unexpectedly", None)
        }
    }
}

fn requested_exit(request: SignalRequest) -> ExitCode {
    match request {
        SignalRequest::Restart => {
            tracing::info!("exiting for a restart by the supervisor");
            ExitCode::from(exit::TRY_AGAIN)
        }
        SignalRequest::Stop | SignalRequest::StopVerb | SignalRequest::Reload | SignalRequest::Dump => {
            ExitCode::SUCCESS
        }
    }
}

/// Why there is no usable agent.
pub(super) struct AgentsError {
    pub(super) message: String,
    pub(super) hint: Option<&'static str>,
}

/// The configured agents by name, and what transcribes and speaks for them.
pub(super) type BuiltAgents = (Vec<(String, AgentSlot)>, Voice);

/// Builds the configured agents. A missing program of an agent that receives messages is an error now, not at each
/// message.
pub(super) async fn build_agents(
    settings: &Settings,
    process: &ProcessEnv<'_>,
) -> Result<BuiltAgents, AgentsError> {
    let unusable = |message| AgentsError { message, hint: None };
    let agents = process
        .build_agents(settings, |_| true)
        .map_err(|error| unusable(error.to_string()))?;
    let voice = process.voice(settings).map_err(unusable)?;
    let answering = settings.answering_agents();
    for (name, slot) in &agents {
        let why = match tokio::time::timeout(HEALTH_TIMEOUT, slot.agent.health()).await {
            Ok(AgentHealth::NotInstalled(why)) if answering.contains(&name.as_str()) => {
                return Err(AgentsError {
                    message: format!("the agent `{name}` cannot be used: {why}"),
                    hint: Some("`hermes-relay agents list` shows which agents can be used"),
                });
            }
            // A server may be started later, and a directory mounted.
            Ok(AgentHealth::Down(why) | AgentHealth::NotInstalled(why)) => why,
            Ok(AgentHealth::Ready | AgentHealth::Degraded(_)) | Err(_) => continue,
        };
        tracing::warn!(agent = name, why, "an agent is not usable at the moment");
    }
    Ok((agents, voice))
}

pub(super) fn http_client(settings: &Settings, proxies: &ProxyRules) -> Result<HttpClient, String> {
    http_client_with(&provisioning::tls(settings), settings, proxies)
}

pub(super) fn egress(tls: &Tls, proxies: &ProxyRules) -> HttpEgress {
    HttpEgress {
        tls: tls.clone(),
        proxies: proxies.clone(),
        user_agent: USER_AGENT.to_owned(),
        lease: None,
    }
}

fn http_client_with(tls: &Tls, settings: &Settings, proxies: &ProxyRules) -> Result<HttpClient, String> {
    let egress = egress(tls, proxies);
    let policy = HttpPolicy {
        allow_plaintext: settings.connector.allow_plaintext,
        ..HttpPolicy::default()
    };
    HttpClient::new(&egress, policy).map_err(|error| error.to_string())
}

fn build_failure(error: &BuildError, fatal: &FatalErrors) -> ExitCode {
    match error {
        BuildError::NoUrl => fatal.fail(exit::CONFIGURATION, error, Some(NO_URL)),
        BuildError::NoBotToken | BuildError::BotToken(_) => fatal.fail(
            exit::CONFIGURATION,
            error,
            Some("get a token from @BotFather on Telegram; docs/telegram.md shows how"),
        ),
        BuildError::NoDiscordToken(_) | BuildError::DiscordToken(_) => fatal.fail(
            exit::CONFIGURATION,
            error,
            Some("copy the token from the page Bot of the developer portal; docs/discord.md shows how"),
        ),
        BuildError::Journal(OpenError::InUse { .. }) => fatal.fail(
            exit::TRY_AGAIN,
            error,
            Some("stop the other relay, or use another --state-dir"),
        ),
        BuildError::Journal(OpenError::Corrupt { .. }) => fatal.fail(
            exit::CONFIGURATION,
            error,
            Some("copy the file, then start once with --fresh-journal-if-corrupt"),
        ),
        BuildError::Journal(OpenError::Directory { source, .. })
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            fatal.fail(exit::INTERNAL, error, Some("free some space on that disk"))
        }
        BuildError::Journal(OpenError::Directory { .. }) => {
            let uid = rustix::process::geteuid().as_raw();
            let hint = format!(
                "give the state directory, or a container's volume for it, to the account that runs this \
                 (`chown -R {uid}`), or name another with --state-dir or HERMES_RELAY_STATE_DIR"
            );
            fatal.fail(exit::CONFIGURATION, error, Some(&hint))
        }
        BuildError::Journal(OpenError::OtherUser { .. } | OpenError::NotOurs { .. }) => fatal.fail(
            exit::CONFIGURATION,
            error,
            Some("name an empty directory of this account with --state-dir or HERMES_RELAY_STATE_DIR"),
        ),
        // The disk may have space again, or the lock be released, at the next start.
        BuildError::Journal(OpenError::Database { .. } | OpenError::Thread(_)) => {
            fatal.fail(exit::INTERNAL, error, None)
        }
        BuildError::Agent(_)
        | BuildError::Url(_)
        | BuildError::Plaintext(_)
        | BuildError::Tls(_)
        | BuildError::Telegram(_)
        | BuildError::Voice(_)
        | BuildError::Discord(_)
        | BuildError::Journal(_) => fatal.fail(exit::CONFIGURATION, error, None),
    }
}

fn serve_failure(error: &ServeError, fatal: &FatalErrors) -> ExitCode {
    match error {
        ServeError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => fatal.fail(
            exit::TRY_AGAIN,
            error,
            Some("stop the program that listens there, or use another port"),
        ),
        ServeError::Listen { .. } | ServeError::Address { .. } | ServeError::Receiver(_) => {
            fatal.fail(exit::CONFIGURATION, error, None)
        }
    }
}
