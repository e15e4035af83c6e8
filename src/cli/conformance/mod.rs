//! `hermes-relay conformance`: drives a connector through the contract, and reports what differs.

mod checks;
mod driver;
mod report;
mod seen;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::checks::CHECKS;
use self::driver::{Plan, drive};
use super::exit::{self, ErrorFormat, errln, finish};
use super::format::stdout;
use super::{ProcessEnv, SharedArgs};
use crate::config::{self, Flags, Sources};
use crate::net::proxy::ProxyRules;
use crate::net::socket::Dialer;
use crate::relay::provisioning;
use crate::wire::ConnectorUrl;

/// Check whether a connector keeps to the contract.
///
/// Dials URL as a gateway and checks authentication, the handshake, results of ops, delivery, acknowledgement, redelivery, sleep
/// and close codes. docs/wire.md describes the contract; what differs is reported with its section there.
///
/// The credentials are the usual ones: `GATEWAY_RELAY_ID`, `GATEWAY_RELAY_SECRET` (or `GATEWAY_RELAY_SECRET_FILE`) and
/// `GATEWAY_RELAY_PLATFORMS`. Use those of a gateway for tests, and stop a relay that uses them: messages that wait for
/// it are taken, one of them is acknowledged, and its chat gets a line of text.
///
/// Some checks need a message. You are asked to write one to the bot; --deliver names a command that does it.
///
/// Exit codes: 0 nothing failed, 1 a check failed, 2 invalid command line, 78 the URL or the credentials cannot be used.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay conformance ws://127.0.0.1:8788\n  hermes-relay conformance wss://connector.example --wait 120 --json\n  hermes-relay conformance ws://127.0.0.1:8788 --deliver ./write-a-message"
)]
pub(super) struct ConformanceArgs {
    /// The connector.
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    shared: SharedArgs,
    /// Print one JSON document instead of TAP.
    #[arg(long)]
    json: bool,
    /// Seconds to wait for a message; without one, the checks that need it are skipped.
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
    wait: u64,
    /// Seconds to wait for whatever the connector answers by itself.
    #[arg(long, value_name = "SECS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=120))]
    timeout: u64,
    /// Shell command that makes somebody write a message to the bot.
    #[arg(long, value_name = "COMMAND")]
    deliver: Option<String>,
}

/// Runs the verb.
pub(super) fn run(args: &ConformanceArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let errors = ErrorFormat::new(args.json);
    let url = match ConnectorUrl::parse(&args.url) {
        Ok(url) => url,
        Err(error) => return errors.fail(exit::CONFIGURATION, error, None),
    };
    let flags = Flags {
        url: Some(args.url.clone()),
        ..args.shared.relay_flags()
    };
    let env = process.env;
    let loaded = match config::load(&Sources { flags, env }) {
        Ok(loaded) => loaded,
        Err(error) => return errors.fail(exit::CONFIGURATION, error, None),
    };
    let settings = &loaded.settings;
    let Some(credentials) = provisioning::pinned_credentials(settings) else {
        let hint = "set GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET, or enroll a gateway for tests";
        return errors.fail(
            exit::CONFIGURATION,
            "there are no credentials to dial with",
            Some(hint),
        );
    };
    let timeout = Duration::from_secs(args.timeout);
    let plan = Plan {
        url: &url,
        credentials: &credentials,
        settings,
        dialer: Dialer::new(provisioning::tls(settings), ProxyRules::from_env(env), timeout),
        timeout,
        wait: Duration::from_secs(args.wait),
        deliver: args.deliver.as_deref(),
        env: process
            .base
            .vars()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return errors.fail(exit::INTERNAL, "cannot start the runtime", None);
    };
    let seen = runtime.block_on(drive(&plan, |line| errln!("{line}")));
    // Do not wait for a resolver that never answers.
    runtime.shutdown_background();
    let findings: Vec<_> = CHECKS.iter().map(|check| (check, (check.judge)(&seen))).collect();
    let mut out = stdout();
    let written = if args.json {
        writeln!(out, "{}", report::document(&url.to_string(), &findings))
    } else {
        write!(out, "{}", report::tap(&findings))
    };
    let code = finish(written.and_then(|()| out.flush()));
    if report::counts(&findings).1 > 0 {
        return ExitCode::from(exit::FAILED);
    }
    code
}
