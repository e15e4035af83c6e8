//! `enroll`: trade a single-use token for this gateway's own credentials, and keep them.
//!
//! Everything that can fail without spending the token is checked before it is spent, and nothing is
//! written unless the connector accepted it. Secrets are shown only by `--print`.
//!
//! Every failure exits with 1, also an unreachable connector: scripts around `hermes gateway enroll`
//! expect that. Only options that cannot be used exit with 2.

mod outcome;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::SystemTime;

use secrecy::{ExposeSecret, SecretString};

pub use self::outcome::{EnrollFailure, EnrollOutcome};

use super::prompt::SecretInput;
use crate::config::dotenv_write;
use crate::net::connector_http::{self, Enrolled, Grant, ProvisionError, ProvisionRequest};
use crate::net::http::{HttpClient, excerpt};
use crate::net::identity::{IdentityError, IdentitySource, IdpSettings};
use crate::wire::ConnectorUrl;

/// Clocks further apart than this are mentioned; tokens live 300 seconds.
const NOTABLE_SKEW_SECS: u64 = 60;

/// Trade a one-time token for this gateway's credentials, and store them.
#[derive(Debug, Clone, Default, clap::Args)]
#[expect(
    clippy::doc_markdown,
    reason = "these comments are the help text, where backticks would show"
)]
pub struct EnrollArgs {
    /// Single-use enrollment token; - reads it from standard input [env: GATEWAY_RELAY_ENROLL_TOKEN]
    #[arg(long, value_name = "TOKEN", value_parser = |text: &str| Ok::<_, std::convert::Infallible>(SecretString::from(text)))]
    pub token: Option<SecretString>,
    /// The connector's address, http(s) or ws(s) [env: GATEWAY_RELAY_URL]
    #[arg(long, value_name = "URL")]
    pub connector_url: Option<String>,
    /// Name of this gateway [default: gw- and the host name]
    #[arg(long, value_name = "ID")]
    pub gateway_id: Option<String>,
    /// Address that the connector calls to wake this gateway
    #[arg(long, value_name = "URL")]
    pub wake_url: Option<String>,
    /// Print the credentials to standard output instead of storing them
    #[arg(long, conflicts_with = "output")]
    pub print: bool,
    /// Store the credentials in this file instead of the home directory's .env
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Dial the connector once with the new credentials
    #[arg(long)]
    pub check: bool,
    /// Check everything that can be checked without spending the token; needs no token, writes nothing
    #[arg(long, conflicts_with_all = ["check", "print", "token"])]
    pub dry_run: bool,
}

/// What the new credentials are, for the dial of `--check`.
#[derive(Debug, Clone)]
pub struct NewCredentials {
    /// The connector.
    pub connector: ConnectorUrl,
    /// This gateway.
    pub gateway_id: String,
    /// Signs its tokens.
    pub secret: SecretString,
}

/// Dials once with new credentials; the error says why it failed, to a person.
pub type DialOnce<'a> = dyn Fn(NewCredentials) -> Pin<Box<dyn Future<Output = Result<(), String>> + 'a>> + 'a;

/// What the verb finds around it.
pub struct Surroundings<'a> {
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
    /// One request per identity, to register a wake URL with; gateway id and wake URL are filled in here.
    pub identities: Vec<ProvisionRequest>,
    /// Sends the requests.
    pub http: &'a HttpClient,
    /// Performs `--check`.
    pub dial: &'a DialOnce<'a>,
    /// Is told of every secret, with what it is called, as soon as it is known: the log is to hide it.
    pub hide: &'a dyn Fn(&str, &SecretString),
}

/// Where the verb reads and writes.
pub struct Streams<'a> {
    /// Where a token can be asked for.
    pub input: &'a mut dyn SecretInput,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

/// Runs the verb and tells how it went.
pub async fn run(args: &EnrollArgs, around: &Surroundings<'_>, streams: &mut Streams<'_>) -> EnrollOutcome {
    match enroll(args, around, streams).await {
        Ok(()) if args.dry_run => EnrollOutcome::Checked,
        Ok(()) => EnrollOutcome::Enrolled,
        Err(failure) => {
            say(streams.err, &format!("✗ {failure}\nhint: {}", failure.hint()));
            EnrollOutcome::Failed(failure)
        }
    }
}

/// This machine's name as the kernel knows it.
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
    around: &Surroundings<'_>,
    streams: &mut Streams<'_>,
) -> Result<(), EnrollFailure> {
    if is_managed(around) {
        return Err(EnrollFailure::Managed);
    }
    let token = if args.dry_run {
        None
    } else {
        let token = enrollment_token(args, around, streams)?;
        (around.hide)("the enrollment token", &token);
        Some(token)
    };
    let connector = connector(args, around)?;
    let gateway_id = gateway_id(args, around)?;
    let wake_url = wake_url(args)?;
    let destination = (!args.print).then(|| args.output.clone().unwrap_or_else(|| around.home.join(".env")));
    if let Some(path) = &destination {
        writable(path).map_err(|reason| EnrollFailure::Destination {
            path: path.clone(),
            reason,
        })?;
    }
    let source = IdentitySource::choose(around.env, &around.idp, around.home).map_err(identity_failure)?;
    let Some(token) = token else {
        source.rehearse(around.http).await.map_err(identity_failure)?;
        let place = destination.unwrap_or_default();
        let found = format!(
            "✓ Gateway \"{}\" can be enrolled at {}: the connector will be told who asks, and {} can be written.\n  \
             Nothing was asked of the connector; `hermes-relay doctor --url URL` tells whether it can be reached.",
            excerpt(&gateway_id),
            connector.http_base(),
            place.display()
        );
        say(streams.out, &found);
        return Ok(());
    };
    let identity = source.token(around.http).await.map_err(identity_failure)?;
    (around.hide)("the identity token", &identity);

    let base = connector.http_base();
    let enrolled = connector_http::enroll(around.http, base, &identity, &token, &gateway_id)
        .await
        .map_err(EnrollFailure::Enroll)?;
    (around.hide)("the new secret", &enrolled.secret);
    if let Some(key) = &enrolled.delivery_key {
        (around.hide)("the new delivery key", key);
    }

    let entries = entries(args, &enrolled, wake_url.as_deref());
    match &destination {
        Some(path) => dotenv_write::update(path, &entries).map_err(EnrollFailure::Write)?,
        None => write_all(streams.out, &dotenv_write::render(&entries)),
    }
    let talk: &mut dyn Write = if args.print { streams.err } else { streams.out };
    report(talk, &enrolled, &entries, destination.as_deref());
    mention_skew(streams.err, &enrolled);

    if let Some(wake_url) = &wake_url {
        register_wake(around, base, &identity, &enrolled, wake_url, streams.err).await?;
    }
    if args.check {
        let credentials = NewCredentials {
            connector,
            gateway_id: enrolled.gateway_id,
            secret: enrolled.secret,
        };
        (around.dial)(credentials).await.map_err(EnrollFailure::Check)?;
        say(
            if args.print { streams.err } else { streams.out },
            "✓ The connector accepts the new credentials",
        );
    }
    Ok(())
}

fn is_managed(around: &Surroundings<'_>) -> bool {
    (around.env)("HERMES_MANAGED").is_some_and(|v| !v.trim().is_empty())
        || around.home.join(".managed").exists()
}

fn enrollment_token(
    args: &EnrollArgs,
    around: &Surroundings<'_>,
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
            say(
                streams.err,
                "warning: a token on the command line is visible to other users of this machine; \
                 prefer --token - or GATEWAY_RELAY_ENROLL_TOKEN",
            );
            Some(token.into())
        }
        None => match setting(around, "GATEWAY_RELAY_ENROLL_TOKEN") {
            Some(token) => Some(token.into()),
            None => streams.input.asked(question).map_err(EnrollFailure::TokenInput)?,
        },
    };
    token
        .filter(|token| !token.expose_secret().is_empty())
        .ok_or(EnrollFailure::NoToken)
}

fn connector(args: &EnrollArgs, around: &Surroundings<'_>) -> Result<ConnectorUrl, EnrollFailure> {
    let configured = given(args.connector_url.as_deref())
        .map(str::to_owned)
        .or_else(|| setting(around, "GATEWAY_RELAY_URL"))
        .or_else(|| given(around.relay_url.as_deref()).map(str::to_owned))
        .ok_or(EnrollFailure::NoUrl)?;
    ConnectorUrl::parse(&configured).map_err(EnrollFailure::BadUrl)
}

fn gateway_id(args: &EnrollArgs, around: &Surroundings<'_>) -> Result<String, EnrollFailure> {
    let id = match given(args.gateway_id.as_deref()) {
        Some(id) => id.to_owned(),
        None => format!("gw-{}", given(around.hostname.as_deref()).unwrap_or("hermes")),
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
    let Some(typed) = given(args.wake_url.as_deref()) else {
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

/// Proves, without leaving a trace, that a file can be made where `path` is to be.
fn writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let here = Path::new(".");
    let existing = real
        .ancestors()
        .skip(1)
        .map(|dir| if dir.as_os_str().is_empty() { here } else { dir });
    let directory = existing.into_iter().find(|dir| dir.exists()).unwrap_or(here);
    tempfile::tempfile_in(directory).map(drop)
}

fn entries<'a>(
    args: &'a EnrollArgs,
    enrolled: &'a Enrolled,
    wake_url: Option<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let delivery_key = enrolled.delivery_key.as_ref().map(ExposeSecret::expose_secret);
    let url = given(args.connector_url.as_deref()).map(|url| url.trim_end_matches('/'));
    [
        ("GATEWAY_RELAY_ID", Some(enrolled.gateway_id.as_str())),
        ("GATEWAY_RELAY_SECRET", Some(enrolled.secret.expose_secret())),
        ("GATEWAY_RELAY_DELIVERY_KEY", delivery_key),
        ("GATEWAY_RELAY_URL", url),
        ("GATEWAY_RELAY_WAKE_URL", wake_url),
    ]
    .into_iter()
    .filter_map(|(key, value)| value.map(|value| (key, value)))
    .collect()
}

fn report(talk: &mut dyn Write, enrolled: &Enrolled, entries: &[(&str, &str)], destination: Option<&Path>) {
    let tenant = enrolled
        .tenant
        .as_deref()
        .map(|t| format!(" for tenant {}", excerpt(t)))
        .unwrap_or_default();
    say(
        talk,
        &format!("✓ Enrolled gateway \"{}\"{tenant}", excerpt(&enrolled.gateway_id)),
    );
    let Some(path) = destination else { return };
    say(talk, &format!("\n  Wrote to {}:", path.display()));
    for (key, value) in entries {
        let hidden = matches!(*key, "GATEWAY_RELAY_SECRET" | "GATEWAY_RELAY_DELIVERY_KEY");
        let shown = if hidden {
            "<hidden>".to_owned()
        } else {
            excerpt(value)
        };
        say(talk, &format!("    {key}={shown}"));
    }
    say(
        talk,
        "\n  A relay that reads this file takes new credentials within seconds; a new URL needs a restart.",
    );
}

fn mention_skew(err: &mut dyn Write, enrolled: &Enrolled) {
    let Some(date) = enrolled.date else { return };
    let now = SystemTime::now();
    let (apart, direction) = match date.duration_since(now) {
        Ok(ahead) => (ahead, "behind"),
        Err(behind) => (behind.duration(), "ahead of"),
    };
    if apart.as_secs() > NOTABLE_SKEW_SECS {
        let seconds = apart.as_secs();
        say(
            err,
            &format!(
                "warning: this machine's clock is {seconds} s {direction} the connector's; tokens are valid for 300 s, so set the clock"
            ),
        );
    }
}

async fn register_wake(
    around: &Surroundings<'_>,
    base: &str,
    identity: &SecretString,
    enrolled: &Enrolled,
    wake_url: &str,
    err: &mut dyn Write,
) -> Result<(), EnrollFailure> {
    let mut requests = around.identities.clone();
    for request in &mut requests {
        request.gateway_id.clone_from(&enrolled.gateway_id);
        request.wake_url = Some(wake_url.to_owned());
    }
    let provisioning = connector_http::provision_all(around.http, base, identity, &requests).await;
    let mut failure = None;
    for (request, result) in requests.iter().zip(provisioning.results) {
        match result {
            Err(ProvisionError::Status { status: 404, .. }) => {
                say(
                    err,
                    "warning: this connector offers no /relay/provision, so it was not told the wake URL",
                );
                return Ok(());
            }
            Err(error) => {
                say(
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
                    say(
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

fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn setting(around: &Surroundings<'_>, name: &str) -> Option<String> {
    given((around.env)(name).as_deref()).map(str::to_owned)
}

fn say(to: &mut dyn Write, text: &str) {
    write_all(to, &format!("{text}\n"));
}

/// A reader that went away does not change what was done.
fn write_all(to: &mut dyn Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
