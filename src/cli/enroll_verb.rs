//! `hermes-relay enroll`: puts the surroundings together for [`super::enroll`].

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::enroll::{self, EnrollArgs, NewCredentials, Streams, Surroundings};
use super::exit::{self, fail};
use super::logging::{self, LogHandle, Repeating};
use super::run::http_client;
use super::{Environment, SharedArgs, Surround, prompt};
use crate::config::{self, Settings, Sources};
use crate::net::proxy::ProxyRules;
use crate::relay::{Credentials, LinkView, Relay, RelayTransport as _, boot};

/// How long `--check` waits for the handshake.
const CHECK: Duration = Duration::from_secs(15);
/// A difference of clocks that the link corrects for.
const NOTABLE_SKEW_MS: u64 = 5_000;

/// Trade a one-time token for this gateway's credentials.
///
/// The connector's operator issues the token. The connector also wants to know who asks: the login of Hermes on this
/// machine (`hermes auth add nous`), or an identity provider of your own (`idp` in the settings, or
/// `GATEWAY_RELAY_IDP_TOKEN_URL`). The credentials go into the .env in Hermes' home. A token that could not be traded is
/// still unused.
///
/// Exit codes: 0 enrolled, 1 not, 2 an option cannot be used, 78 the configuration cannot be used.
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
}

/// Runs the verb.
pub(super) fn run(args: &EnrollVerb, surround: &Surround<'_>) -> ExitCode {
    let env = surround.env;
    let loaded = match config::load(&Sources {
        flags: args.shared.flags(),
        env,
    }) {
        Ok(loaded) => loaded,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let log = logging::start(&loaded, surround, Repeating::Said);
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(enroll(&args.enroll, &loaded.settings, env, &log)),
        Err(error) => fail(
            exit::OUR_FAULT,
            format!("cannot start the runtime: {error}"),
            None,
        ),
    }
}

async fn enroll(args: &EnrollArgs, settings: &Settings, env: Environment<'_>, log: &LogHandle) -> ExitCode {
    let proxies = ProxyRules::from_env(env);
    let http = match http_client(settings, &proxies) {
        Ok(http) => http,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let home = settings.hermes_home.clone().unwrap_or_else(|| PathBuf::from("."));
    let dial = |new: NewCredentials| -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>>>> {
        let (mut settings, proxies) = (settings.clone(), proxies.clone());
        settings.connector.url = Some(new.connector.dial_url().to_owned());
        Box::pin(async move { dial_once(&settings, proxies, new).await })
    };
    let around = Surroundings {
        env,
        home: &home,
        relay_url: settings.connector.url.clone(),
        idp: boot::idp_settings(settings),
        hostname: enroll::hostname(),
        identities: boot::provision_requests(settings, ""),
        http: &http,
        dial: &dial,
        hide: &|name, value| log.hide(name, value),
    };
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let mut streams = Streams {
        input: &mut prompt::Stdin,
        out: &mut out,
        err: &mut err,
    };
    enroll::run(args, &around, &mut streams).await.exit_code().into()
}

/// Dials with new credentials and waits for a handshake. The first failure counts, unless it has just shown that
/// the clocks differ: then the next token is minted by the connector's.
async fn dial_once(settings: &Settings, proxies: ProxyRules, new: NewCredentials) -> Result<(), String> {
    let credentials = Credentials {
        gateway_id: new.gateway_id,
        secret: new.secret,
    };
    let (_keep, watched) = tokio::sync::watch::channel(Some(credentials));
    let transport = Relay::dial(settings, proxies, watched).map_err(|error| error.to_string())?;
    let (deliveries, _unread) = tokio::sync::mpsc::channel(1);
    transport.connect(deliveries);
    let mut view = transport.view();
    let known = view.wait_for(|view| view.live.is_some() || has_failed(view));
    let _ = tokio::time::timeout(CHECK, known).await;
    let outcome = {
        let view = view.borrow();
        let why = view.last_loss.clone();
        match (&view.live, &view.ended) {
            (Some(_), _) => Ok(()),
            (None, Some(end)) => Err(end.to_string()),
            (None, None) => Err(why.unwrap_or_else(|| "the connector did not answer in time".to_owned())),
        }
    };
    transport.disconnect(Duration::ZERO).await;
    outcome
}

fn has_failed(view: &LinkView) -> bool {
    let clocks_differ = view
        .clock_skew_ms
        .is_some_and(|ms| ms.unsigned_abs() > NOTABLE_SKEW_MS);
    let allowed = u64::from(clocks_differ);
    view.ended.is_some() || view.counters.losses > allowed
}
