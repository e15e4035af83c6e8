//! `hermes-relay enroll`: exchanges a single-use token for this gateway's credentials and stores them.
//!
//! Everything that can fail without using the token is checked first, and nothing is written unless the connector accepted
//! it. Secrets are shown only by `--print`.
//!
//! Every failure exits with 1, even an unreachable connector: scripts around `hermes gateway enroll` expect that. Only
//! invalid options exit with 2.

mod failure;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use secrecy::{ExposeSecret, SecretString};

pub use self::failure::{EnrollFailure, EnrollOutcome};

use super::access;
use super::exit::{self, fail};
use super::format::{duration, stderr, stdout};
use super::log::{self, LogHandle, Repeats};
use super::prompt::{self, SecretInput};
use super::run::http_client;
use super::{Environment, ProcessEnv, SharedArgs};
use crate::access::PersonId;
use crate::config::dotenv_edit::{EditError, EditLock};
use crate::config::env::comma_list;
use crate::config::settings::{HIDDEN, misspelt_platform, nearest_platform};
use crate::config::{self, BotIdentity, LoadedConfig, Origin, Settings, Sources, dotenv_edit};
use crate::net::connector_http::{self, Enrolled, Grant, ProvisionError, ProvisionRequest};
use crate::net::http::{HttpClient, excerpt};
use crate::net::identity::{IdentityError, IdentitySource, IdpSettings};
use crate::net::proxy::ProxyRules;
use crate::relay::{Credentials, LinkStatus, Relay, RelayTransport as _, inbound_channel, provisioning};
use crate::wire::{ConnectorUrl, Platform};

/// Timeout of the handshake of `--check`.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of the handshake that only asks for the platforms.
const LEARN_TIMEOUT: Duration = Duration::from_secs(5);
/// The variable with the platforms.
const PLATFORMS: &str = "GATEWAY_RELAY_PLATFORMS";
/// Timeout of a wait for another process that changes the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// Clock skew above which the link corrects for it.
const CORRECTED_SKEW_MS: u64 = 5_000;

/// Clock skew above which a warning is printed; tokens are valid for 300 seconds.
const MAX_SKEW_SECS: u64 = 60;

/// Exchange a single-use token for this gateway's credentials.
///
/// The connector's operator issues the token. The connector also needs your identity: the Hermes login of this machine
/// (`hermes auth add nous`), or your own identity provider (`idp` in the settings, or `GATEWAY_RELAY_IDP_TOKEN_URL`). The
/// credentials are written to the .env in Hermes' home, with the platforms of this gateway's bots: from --platform, from the
/// connector if it names them, else from you. If the exchange fails, the token is still unused.
///
/// Exit codes: 0 enrolled, 1 not enrolled, 2 invalid option, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay enroll --connector-url https://connector.example --dry-run\n  hermes-relay enroll --connector-url https://connector.example --check\n  \
                  hermes-relay enroll --connector-url https://connector.example --token - < token.txt\n  \
                  hermes-relay enroll --connector-url https://connector.example --output enrolled.env"
)]
pub(super) struct EnrollVerb {
    #[command(flatten)]
    shared: SharedArgs,
    #[command(flatten)]
    enroll: EnrollArgs,
    /// Also make this person an owner, who may do everything and approves others: see `hermes-relay access`.
    #[arg(long, value_name = "PLATFORM:ID", value_parser = |text: &str| PersonId::parse_admitted(text))]
    owner: Option<PersonId>,
}

impl EnrollVerb {
    /// Enrolls with this connector and checks the credentials, with the settings of a file.
    pub(super) fn for_connector(config: PathBuf, url: String) -> Self {
        Self {
            shared: SharedArgs {
                config: Some(config),
                ..SharedArgs::default()
            },
            enroll: EnrollArgs {
                connector_url: Some(url),
                check: true,
                ..EnrollArgs::default()
            },
            owner: None,
        }
    }
}

/// Options of `enroll`.
#[derive(Debug, Clone, Default, clap::Args)]
#[expect(
    clippy::doc_markdown,
    reason = "these comments are the help text, where backticks would show"
)]
pub struct EnrollArgs {
    /// Single-use enrollment token; - reads it from standard input [env: GATEWAY_RELAY_ENROLL_TOKEN]
    #[arg(long, value_name = "TOKEN", value_parser = |text: &str| Ok::<_, std::convert::Infallible>(SecretString::from(text)))]
    pub token: Option<SecretString>,
    /// Connector URL, http(s) or ws(s) [env: GATEWAY_RELAY_URL]
    #[arg(long, value_name = "URL")]
    pub connector_url: Option<String>,
    /// Name of this gateway [default: gw- and the host name]
    #[arg(long, value_name = "ID")]
    pub gateway_id: Option<String>,
    /// URL that the connector calls to wake this gateway
    #[arg(long, value_name = "URL")]
    pub wake_url: Option<String>,
    /// Platform of this gateway's bots, such as discord; several are separated by commas [env: GATEWAY_RELAY_PLATFORMS]
    #[arg(long = "platform", value_name = "NAME", value_delimiter = ',')]
    pub platforms: Vec<String>,
    /// Print the credentials to standard output instead of storing them
    #[arg(long, conflicts_with = "output")]
    pub print: bool,
    /// Store the credentials in this file instead of the home directory's .env
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Dial the connector once with the new credentials
    #[arg(long)]
    pub check: bool,
    /// Check everything that can be checked without the token, the connector's route included; uses no token and writes nothing
    #[arg(long, conflicts_with_all = ["check", "print"])]
    pub dry_run: bool,
}

/// The new credentials, for `--check`.
#[derive(Debug, Clone)]
pub struct NewCredentials {
    /// The connector's URL.
    pub connector: ConnectorUrl,
    /// This gateway's id.
    pub gateway_id: String,
    /// The secret that signs its tokens.
    pub secret: SecretString,
    /// The platforms to announce; those of the settings if there are none.
    pub platforms: Vec<String>,
}

/// Dials once with new credentials and returns the platforms that the connector described; the error is for people.
pub type DialOnce<'a> = dyn Fn(NewCredentials) -> Pin<Box<dyn Future<Output = DialOutcome> + 'a>> + 'a;
/// The platforms that the connector described.
pub type DialOutcome = Result<Vec<String>, String>;

/// The environment of an enrollment.
pub struct EnrollContext<'a> {
    /// The environment, `.env` included.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The home directory, `$HERMES_HOME`.
    pub home: &'a Path,
    /// `gateway.relay_url` of the configuration file.
    pub relay_url: Option<String>,
    /// `gateway.idp` of the configuration file.
    pub idp: IdpSettings,
    /// This machine's name.
    pub hostname: Option<String>,
    /// One request per identity, to register a wake URL; gateway id and wake URL are filled in.
    pub identities: Vec<ProvisionRequest>,
    /// Settings that come before the `.env`.
    pub pinned: Vec<PinnedSetting>,
    /// Sends the requests.
    pub http: &'a HttpClient,
    /// Performs `--check`.
    pub dial: &'a DialOnce<'a>,
    /// Receives the name and value of every secret for redaction.
    pub add_secret: &'a dyn Fn(&str, &SecretString),
}

/// A setting of this gateway that comes before Hermes' `.env`: there, the new one would not be used.
#[derive(Debug, Clone)]
pub struct PinnedSetting {
    /// The dotted key.
    pub key: &'static str,
    /// Its value, unless that is a secret.
    pub value: Option<String>,
    /// Where it is set.
    pub origin: String,
}

/// Input and output of an enrollment.
pub struct Streams<'a> {
    /// Input of the token.
    pub input: &'a mut dyn SecretInput,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

/// Runs the verb.
pub(super) fn run_verb(args: &EnrollVerb, process: &ProcessEnv<'_>) -> ExitCode {
    let env = process.env;
    let loaded = match config::load(&Sources {
        flags: args.shared.flags(),
        env,
    }) {
        Ok(loaded) => loaded,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let log = log::start(&loaded, process, Repeats::Unlimited);
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(enroll_with(&args.enroll, &loaded, env, &log));
            match (&args.owner, code) {
                (Some(owner), Ok(0)) if !args.enroll.dry_run => {
                    access::make_owner(owner, args.shared.config.clone(), env)
                }
                (_, Ok(code)) => code.into(),
                (_, Err(code)) => code,
            }
        }
        Err(error) => fail(exit::INTERNAL, format!("cannot start the runtime: {error}"), None),
    }
}

async fn enroll_with(
    args: &EnrollArgs,
    loaded: &LoadedConfig,
    env: Environment<'_>,
    log: &LogHandle,
) -> Result<u8, ExitCode> {
    let settings = &loaded.settings;
    let proxies = ProxyRules::from_env(env);
    let http = match http_client(settings, &proxies) {
        Ok(http) => http,
        Err(error) => return Err(fail(exit::CONFIGURATION, error, None)),
    };
    let home = settings.hermes_home.clone().unwrap_or_else(|| PathBuf::from("."));
    let dial = |new: NewCredentials| -> Pin<Box<dyn Future<Output = DialOutcome>>> {
        let (mut settings, proxies) = (settings.clone(), proxies.clone());
        settings.connector.url = Some(new.connector.dial_url().to_owned());
        if !new.platforms.is_empty() {
            let named = new.platforms.iter();
            settings.connector.identities = named.map(|name| BotIdentity::new(name, "")).collect();
        }
        Box::pin(async move { dial_once(&settings, proxies, new).await })
    };
    let context = EnrollContext {
        env,
        home: &home,
        relay_url: settings.connector.url.clone(),
        idp: provisioning::idp_settings(settings),
        hostname: hostname(),
        identities: provisioning::provision_requests(settings, ""),
        pinned: pinned(loaded),
        http: &http,
        dial: &dial,
        add_secret: &|name, value| log.add_secret(name, value),
    };
    let (mut out, mut err) = (stdout(), stderr());
    let mut streams = Streams {
        input: &mut prompt::Stdin,
        out: &mut out,
        err: &mut err,
    };
    Ok(run(args, &context, &mut streams).await.exit_code())
}

/// The settings of this gateway that come before Hermes' `.env`.
fn pinned(loaded: &LoadedConfig) -> Vec<PinnedSetting> {
    let connector = &loaded.settings.connector;
    let of = |key: &'static str, value: Option<&String>| {
        let origin = loaded.origins.of(key);
        let shown_key = match (key, origin) {
            ("connector.secret", Origin::OwnFile(_)) => "connector.secret_file",
            _ => key,
        };
        let setting = PinnedSetting {
            key: shown_key,
            value: value.cloned(),
            origin: origin.to_string(),
        };
        origin.is_before_dotenv().then_some(setting)
    };
    [
        of("connector.gateway_id", connector.gateway_id.as_ref()),
        of("connector.secret", None),
        of("connector.delivery_key", None),
        of("connector.url", connector.url.as_ref()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Dials with new credentials and waits for the handshake. The first failure counts, unless it revealed a clock skew: then
/// the next token uses the connector's clock.
async fn dial_once(settings: &Settings, proxies: ProxyRules, new: NewCredentials) -> DialOutcome {
    let credentials = Credentials {
        gateway_id: new.gateway_id,
        secret: new.secret,
    };
    let (_keep, watched) = tokio::sync::watch::channel(Some(credentials));
    let transport = Relay::dial(settings, proxies, watched).map_err(|error| error.to_string())?;
    let (inbound, _unread) = inbound_channel();
    transport.connect(inbound);
    let mut view = transport.status();
    let settled = view.wait_for(|view| view.live.is_some() || has_failed(view));
    let _ = tokio::time::timeout(CHECK_TIMEOUT, settled).await;
    let outcome = {
        let view = view.borrow();
        let why = view.last_loss.clone();
        match (&view.live, &view.ended) {
            (Some(_), _) => Ok(view
                .descriptors
                .iter()
                .map(|(platform, _)| platform.to_owned())
                .collect()),
            (None, Some(end)) => Err(end.to_string()),
            (None, None) => Err(why.unwrap_or_else(|| "the connector did not respond in time".to_owned())),
        }
    };
    transport.disconnect(Duration::ZERO).await;
    outcome
}

fn has_failed(view: &LinkStatus) -> bool {
    let clocks_differ = view
        .clock_skew_ms
        .is_some_and(|ms| ms.unsigned_abs() > CORRECTED_SKEW_MS);
    let allowed = u64::from(clocks_differ);
    view.ended.is_some() || view.counters.losses > allowed
}

/// Enrolls and reports a failure.
pub async fn run(args: &EnrollArgs, context: &EnrollContext<'_>, streams: &mut Streams<'_>) -> EnrollOutcome {
    match enroll(args, context, streams).await {
        Ok(()) if args.dry_run => EnrollOutcome::Checked,
        Ok(()) => EnrollOutcome::Enrolled,
        Err(failure) => {
            print_line(streams.err, &format!("✗ {failure}\nhint: {}", failure.hint()));
            EnrollOutcome::Failed(failure)
        }
    }
}

/// This machine's host name.
pub fn hostname() -> Option<String> {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .trim()
        .to_owned();
    (!name.is_empty()).then_some(name)
}

async fn enroll(
    args: &EnrollArgs,
    context: &EnrollContext<'_>,
    streams: &mut Streams<'_>,
) -> Result<(), EnrollFailure> {
    if is_managed(context) {
        return Err(EnrollFailure::Managed);
    }
    let token = if args.dry_run {
        None
    } else {
        let token = enrollment_token(args, context, streams)?;
        (context.add_secret)("the enrollment token", &token);
        Some(token)
    };
    let connector = connector(args, context)?;
    connector_http::check_encryption(context.http, connector.http_base()).map_err(EnrollFailure::Enroll)?;
    let gateway_id = gateway_id(args, context)?;
    let wake_url = wake_url(args)?;
    warn_of_misspelt(&args.platforms, streams.err);
    let destination = (!args.print).then(|| args.output.clone().unwrap_or_else(|| context.home.join(".env")));
    if let Some(path) = &destination {
        check_writable(path).map_err(|reason| EnrollFailure::Destination {
            path: path.clone(),
            reason,
        })?;
    }
    let unused = warn_of_pinned(args, context, &connector, &gateway_id, streams.err);
    let source = IdentitySource::choose(context.env, &context.idp, context.home).map_err(identity_failure)?;
    let Some(token) = token else {
        source.check(context.http).await.map_err(identity_failure)?;
        let file = destination.unwrap_or_default();
        return dry_run(context, &connector, &gateway_id, &file, streams).await;
    };
    let identity = source.token(context.http).await.map_err(identity_failure)?;
    (context.add_secret)("the identity token", &identity);

    let lock = match &destination {
        Some(path) => Some(lock_dotenv(path).await?),
        None => None,
    };
    let base = connector.http_base();
    let enrolled = connector_http::enroll(context.http, base, &identity, &token, &gateway_id)
        .await
        .map_err(EnrollFailure::Enroll)?;
    (context.add_secret)("the new secret", &enrolled.secret);
    if let Some(key) = &enrolled.delivery_key {
        (context.add_secret)("the new delivery key", key);
    }

    let known = known_platforms(args, context, &enrolled);
    let listed = known.to_write().join(",");
    let entries = entries(args, &enrolled, wake_url.as_deref(), &listed);
    match &lock {
        Some(lock) => lock.update(&entries).map_err(EnrollFailure::Write)?,
        None => write_all(streams.out, &dotenv_edit::render(&entries)),
    }
    let progress: &mut dyn Write = if args.print { streams.err } else { streams.out };
    report(progress, &enrolled, &entries, destination.as_deref(), !unused);
    warn_of_skew(streams.err, enrolled.date);

    let credentials = NewCredentials {
        connector: connector.clone(),
        gateway_id: enrolled.gateway_id.clone(),
        secret: enrolled.secret.clone(),
        platforms: known.to_write().to_vec(),
    };
    let dialled = match (&known, args.check) {
        (_, true) => Some((context.dial)(credentials).await),
        (KnownPlatforms::None, false) => tokio::time::timeout(LEARN_TIMEOUT, (context.dial)(credentials))
            .await
            .ok(),
        _ => None,
    };
    let mut platforms = known.to_write().to_vec();
    if matches!(known, KnownPlatforms::None) {
        let described = dialled.as_ref().and_then(|dialled| dialled.as_deref().ok());
        platforms = learn_platforms(described.unwrap_or_default(), streams)?;
        let listed = platforms.join(",");
        let entry = [(PLATFORMS, listed.as_str())];
        match &lock {
            _ if platforms.is_empty() => {}
            Some(lock) => lock.update(&entry).map_err(EnrollFailure::Write)?,
            None => write_all(streams.out, &dotenv_edit::render(&entry)),
        }
    }
    drop(lock);
    let progress: &mut dyn Write = if args.print { streams.err } else { streams.out };
    if let (true, Some(dialled)) = (args.check, dialled) {
        dialled.map_err(EnrollFailure::Check)?;
        print_line(progress, "✓ The connector accepts the new credentials");
    }
    if let Some(wake_url) = &wake_url {
        register_wake(
            context,
            base,
            &identity,
            &enrolled,
            (wake_url, &platforms),
            streams.err,
        )
        .await?;
    }
    Ok(())
}

/// Warns of settings that come before what is written to the `.env`; returns whether there are any.
fn warn_of_pinned(
    args: &EnrollArgs,
    context: &EnrollContext<'_>,
    connector: &ConnectorUrl,
    gateway_id: &str,
    err: &mut dyn Write,
) -> bool {
    if args.print || args.output.is_some() {
        return false;
    }
    let is_same = |setting: &&PinnedSetting| match (setting.key, &setting.value) {
        ("connector.gateway_id", Some(id)) => id == gateway_id,
        ("connector.url", Some(url)) => {
            let dialled = ConnectorUrl::parse(url).map(|url| url.http_base() == connector.http_base());
            non_empty(args.connector_url.as_deref()).is_none() || dialled.unwrap_or(false)
        }
        _ => false,
    };
    let other = context.pinned.iter().filter(|setting| !is_same(setting));
    let named: Vec<String> = other
        .map(|setting| format!("`{}` ({})", setting.key, setting.origin))
        .collect();
    if named.is_empty() {
        return false;
    }
    let text = format!(
        "warning: with these settings a relay does not use what is written to {}: {} is used in its place. Remove that there, or \
         enroll with --output FILE and set the new values there",
        context.home.join(".env").display(),
        named.join(", ")
    );
    print_line(err, &text);
    true
}

fn warn_of_misspelt(platforms: &[String], err: &mut dyn Write) {
    for warning in platforms.iter().filter_map(|name| misspelt_platform(name.trim())) {
        print_line(err, &format!("warning: {warning}"));
    }
}

/// Checks that the connector answers, without using the token.
async fn dry_run(
    context: &EnrollContext<'_>,
    connector: &ConnectorUrl,
    gateway_id: &str,
    file: &Path,
    streams: &mut Streams<'_>,
) -> Result<(), EnrollFailure> {
    let base = connector.http_base();
    let (status, date) = connector_http::reach(context.http, base)
        .await
        .map_err(EnrollFailure::Enroll)?;
    let found = format!(
        "✓ Gateway \"{}\" can be enrolled at {base}: the connector responds, an identity token is available, and {} can be \
         written. The enrollment token was not used.",
        excerpt(gateway_id),
        file.display()
    );
    print_line(streams.out, &found);
    match status {
        404 => print_line(
            streams.err,
            "warning: the connector has no enrollment route (HTTP 404); ask its operator for an id and a secret",
        ),
        500.. => print_line(
            streams.err,
            &format!(
                "warning: the connector responds with HTTP {status}; try again before you use the token"
            ),
        ),
        _ => {}
    }
    warn_of_skew(streams.err, date);
    Ok(())
}

/// The platforms of the new gateway, as far as they are known before the first handshake.
enum KnownPlatforms {
    /// They are in the settings already.
    Configured,
    /// From the command line or the connector, to be written.
    New(Vec<String>),
    /// Nobody named any.
    None,
}

impl KnownPlatforms {
    fn to_write(&self) -> &[String] {
        match self {
            Self::New(names) => names,
            Self::Configured | Self::None => &[],
        }
    }
}

fn known_platforms(args: &EnrollArgs, context: &EnrollContext<'_>, enrolled: &Enrolled) -> KnownPlatforms {
    let typed = args.platforms.iter().flat_map(|names| comma_list(names));
    let typed: Vec<String> = typed.collect();
    let is_configured = context
        .identities
        .iter()
        .any(|request| is_platform(&request.platform));
    match (typed.is_empty(), is_configured, enrolled.platforms.is_empty()) {
        (false, _, _) => KnownPlatforms::New(typed),
        (true, true, _) => KnownPlatforms::Configured,
        (true, false, false) => KnownPlatforms::New(enrolled.platforms.clone()),
        (true, false, true) => KnownPlatforms::None,
    }
}

/// Whether it is a platform, and not the placeholder for none.
fn is_platform(name: &str) -> bool {
    name != Platform::RELAY.as_str()
}

/// The platforms that the handshake described; else those that the person at the terminal names.
fn learn_platforms(described: &[String], streams: &mut Streams<'_>) -> Result<Vec<String>, EnrollFailure> {
    let named = described
        .iter()
        .filter(|name| is_platform(name) && !name.contains([',', '\n']));
    let mut platforms: Vec<String> = named.cloned().collect();
    if platforms.is_empty() {
        let question =
            "Platforms of this gateway's bots, separated by commas (discord, telegram, slack, whatsapp, ...)";
        let answer = streams
            .input
            .line(question)
            .map_err(EnrollFailure::PlatformInput)?;
        for name in comma_list(&answer.unwrap_or_default()) {
            platforms.push(corrected(name, streams)?);
        }
    }
    let out: &mut dyn Write = streams.err;
    if platforms.is_empty() {
        print_line(
            out,
            "warning: the platforms of this gateway's bots are not known, so the connector may refuse its answers.\n  \
             Name them: add GATEWAY_RELAY_PLATFORMS=discord,telegram (for instance) to that file. The next time, use --platform.",
        );
    } else {
        print_line(out, &format!("  {PLATFORMS}={}", excerpt(&platforms.join(","))));
    }
    Ok(platforms)
}

/// Offers the nearest name for one that looks misspelt.
fn corrected(name: String, streams: &mut Streams<'_>) -> Result<String, EnrollFailure> {
    let Some(near) = nearest_platform(&name) else {
        return Ok(name);
    };
    let question = format!(
        "`{}` is not a known platform; use `{near}`? [Y/n]",
        excerpt(&name)
    );
    let answer = streams
        .input
        .line(&question)
        .map_err(EnrollFailure::PlatformInput)?;
    let keeps = answer.is_some_and(|answer| answer.to_lowercase().starts_with('n'));
    Ok(if keeps { name } else { near.to_owned() })
}

fn is_managed(context: &EnrollContext<'_>) -> bool {
    (context.env)("HERMES_MANAGED").is_some_and(|v| !v.trim().is_empty())
        || context.home.join(".managed").exists()
}

fn enrollment_token(
    args: &EnrollArgs,
    context: &EnrollContext<'_>,
    streams: &mut Streams<'_>,
) -> Result<SecretString, EnrollFailure> {
    let question = "Enrollment token";
    let token = match args
        .token
        .as_ref()
        .map(|t| t.expose_secret().trim())
        .filter(|t| !t.is_empty())
    {
        Some("-") => Some(streams.input.piped(question).map_err(EnrollFailure::TokenInput)?),
        Some(token) => {
            print_line(
                streams.err,
                "warning: a token on the command line is visible to other users of this machine; \
                 use --token - or GATEWAY_RELAY_ENROLL_TOKEN",
            );
            Some(token.into())
        }
        None => match setting(context, "GATEWAY_RELAY_ENROLL_TOKEN") {
            Some(token) => Some(token.into()),
            None => streams.input.asked(question).map_err(EnrollFailure::TokenInput)?,
        },
    };
    token
        .filter(|token| !token.expose_secret().is_empty())
        .ok_or(EnrollFailure::NoToken)
}

fn connector(args: &EnrollArgs, context: &EnrollContext<'_>) -> Result<ConnectorUrl, EnrollFailure> {
    let configured = non_empty(args.connector_url.as_deref())
        .map(str::to_owned)
        .or_else(|| setting(context, "GATEWAY_RELAY_URL"))
        .or_else(|| non_empty(context.relay_url.as_deref()).map(str::to_owned))
        .ok_or(EnrollFailure::NoUrl)?;
    ConnectorUrl::parse(&configured).map_err(EnrollFailure::BadUrl)
}

fn gateway_id(args: &EnrollArgs, context: &EnrollContext<'_>) -> Result<String, EnrollFailure> {
    let id = match non_empty(args.gateway_id.as_deref()) {
        Some(id) => id.to_owned(),
        None => format!(
            "gw-{}",
            non_empty(context.hostname.as_deref()).unwrap_or("hermes")
        ),
    };
    if id.len() > 255 || id.contains(char::is_control) {
        return Err(EnrollFailure::BadOption {
            option: "--gateway-id",
            reason: "it is longer than 255 bytes or contains control characters",
        });
    }
    Ok(id)
}

fn wake_url(args: &EnrollArgs) -> Result<Option<String>, EnrollFailure> {
    let Some(typed) = non_empty(args.wake_url.as_deref()) else {
        return Ok(None);
    };
    match url::Url::parse(typed) {
        Ok(url) if matches!(url.scheme(), "https" | "http") => {
            Ok(Some(typed.trim_end_matches('/').to_owned()))
        }
        _ => Err(EnrollFailure::BadOption {
            option: "--wake-url",
            reason: "it is not an http(s) address",
        }),
    }
}

fn identity_failure(error: IdentityError) -> EnrollFailure {
    if error.needs_login() {
        EnrollFailure::NotLoggedIn
    } else {
        EnrollFailure::Identity(error)
    }
}

/// Checks with a temporary file whether `path` can be written.
fn check_writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let current = Path::new(".");
    let existing = real
        .ancestors()
        .skip(1)
        .map(|dir| if dir.as_os_str().is_empty() { current } else { dir });
    let directory = existing.into_iter().find(|dir| dir.exists()).unwrap_or(current);
    tempfile::tempfile_in(directory).map(drop)
}

/// Waits for another enrollment that stores its credentials in the same file, before the token is used.
async fn lock_dotenv(path: &Path) -> Result<EditLock, EnrollFailure> {
    let deadline = tokio::time::Instant::now() + LOCK_TIMEOUT;
    loop {
        match dotenv_edit::lock(path) {
            Ok(lock) => return Ok(lock),
            Err(EditError::Locked(_)) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(LOCK_INTERVAL).await;
            }
            Err(error) => return Err(EnrollFailure::Locked(error)),
        }
    }
}

fn entries<'a>(
    args: &'a EnrollArgs,
    enrolled: &'a Enrolled,
    wake_url: Option<&'a str>,
    platforms: &'a str,
) -> Vec<(&'a str, &'a str)> {
    let delivery_key = enrolled.delivery_key.as_ref().map(ExposeSecret::expose_secret);
    let url = non_empty(args.connector_url.as_deref()).map(|url| url.trim_end_matches('/'));
    [
        ("GATEWAY_RELAY_ID", Some(enrolled.gateway_id.as_str())),
        ("GATEWAY_RELAY_SECRET", Some(enrolled.secret.expose_secret())),
        ("GATEWAY_RELAY_DELIVERY_KEY", delivery_key),
        ("GATEWAY_RELAY_URL", url),
        ("GATEWAY_RELAY_WAKE_URL", wake_url),
        (PLATFORMS, Some(platforms).filter(|names| !names.is_empty())),
    ]
    .into_iter()
    .filter_map(|(key, value)| value.map(|value| (key, value)))
    .collect()
}

fn report(
    out: &mut dyn Write,
    enrolled: &Enrolled,
    entries: &[(&str, &str)],
    destination: Option<&Path>,
    is_used: bool,
) {
    let tenant = enrolled
        .tenant
        .as_deref()
        .map(|t| format!(" for tenant {}", excerpt(t)))
        .unwrap_or_default();
    print_line(
        out,
        &format!("✓ Enrolled gateway \"{}\"{tenant}", excerpt(&enrolled.gateway_id)),
    );
    let Some(path) = destination else { return };
    print_line(out, &format!("\n  Wrote to {}:", path.display()));
    for (key, value) in entries {
        let is_secret = matches!(*key, "GATEWAY_RELAY_SECRET" | "GATEWAY_RELAY_DELIVERY_KEY");
        let shown = if is_secret {
            HIDDEN.to_owned()
        } else {
            excerpt(value)
        };
        print_line(out, &format!("    {key}={shown}"));
    }
    if is_used {
        print_line(
            out,
            "\n  A relay that reads this file uses new credentials within seconds; a new URL needs a restart.",
        );
    }
}

fn warn_of_skew(err: &mut dyn Write, date: Option<SystemTime>) {
    let Some(date) = date else { return };
    let now = SystemTime::now();
    let (skew, direction) = match date.duration_since(now) {
        Ok(ahead) => (ahead, "behind"),
        Err(behind) => (behind.duration(), "ahead of"),
    };
    if skew.as_secs() > MAX_SKEW_SECS {
        let off = duration(skew.as_secs() * 1000);
        print_line(
            err,
            &format!(
                "warning: this machine's clock is {off} {direction} the connector's; tokens are valid for 300 s, so set the clock"
            ),
        );
    }
}

async fn register_wake(
    context: &EnrollContext<'_>,
    base: &str,
    identity: &SecretString,
    enrolled: &Enrolled,
    (wake_url, platforms): (&str, &[String]),
    err: &mut dyn Write,
) -> Result<(), EnrollFailure> {
    let mut requests = context.identities.clone();
    if let (Some(first), false) = (requests.first().cloned(), platforms.is_empty()) {
        let named = platforms.iter().map(|name| ProvisionRequest {
            platform: name.clone(),
            ..first.clone()
        });
        requests = named.collect();
    }
    for request in &mut requests {
        request.gateway_id.clone_from(&enrolled.gateway_id);
        request.wake_url = Some(wake_url.to_owned());
    }
    let provisioning = connector_http::provision_all(context.http, base, identity, &requests).await;
    let mut failure = None;
    for (request, result) in requests.iter().zip(provisioning.results) {
        match result {
            Err(ProvisionError::Status { status: 404, .. }) => {
                print_line(
                    err,
                    "warning: this connector does not support /relay/provision; the wake URL is not registered",
                );
                return Ok(());
            }
            Err(error) => {
                print_line(
                    err,
                    &format!(
                        "warning: wake URL not registered for {}: {error}",
                        excerpt(&request.platform)
                    ),
                );
                failure = Some(error);
            }
            Ok(provisioned) => match provisioned.grant {
                Grant::Issued { secret, .. } if secret.expose_secret() != enrolled.secret.expose_secret() => {
                    print_line(
                        err,
                        "warning: the connector issued another secret while registering the wake URL; the enrolled one is kept",
                    );
                }
                Grant::Issued { .. } | Grant::Withheld => {}
            },
        }
    }
    failure.map_or(Ok(()), |error| Err(EnrollFailure::Wake(error)))
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn setting(context: &EnrollContext<'_>, name: &str) -> Option<String> {
    non_empty((context.env)(name).as_deref()).map(str::to_owned)
}

fn print_line(to: &mut dyn Write, text: &str) {
    write_all(to, &format!("{text}\n"));
}

/// A closed stream does not fail the enrollment.
fn write_all(to: &mut dyn Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
