//! What suspends this machine: a command, the machine's own socket, or a URL.
//!
//! Pulling it asks once and says whether the machine is going to freeze. It never dials the connector, and what it
//! starts inherits no secret of ours.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::agent::child::{BaseEnv, Child, EnvPolicy, Exit, Program, StopSchedule};
use crate::config::{Settings, env};
use crate::net::http::{Body, HttpClient, Request, excerpt};
use crate::net::machine::suspend;

/// How long it may take until it is known whether the machine is going to freeze.
const PATIENCE: Duration = Duration::from_secs(40);
/// Where a machine's own socket is.
const MACHINE_SOCKET: &str = "/.fly/api";

type Pull = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Something that suspends this machine.
#[derive(Clone)]
pub struct Lever(Arc<dyn Fn() -> Pull + Send + Sync>);

impl fmt::Debug for Lever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lever")
    }
}

impl Lever {
    /// A lever of an embedder's own; the error says to a person why the machine stays up.
    pub fn new<F>(pull: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(pull())))
    }

    /// The lever that the settings and the machine offer: `sleep.command`, else the machine's own socket, else
    /// `connector.sleep_url`.
    pub fn of(
        settings: &Settings,
        environment: &dyn Fn(&str) -> Option<String>,
        base: &BaseEnv,
        http: impl FnOnce() -> Result<HttpClient, String>,
    ) -> Result<Option<Self>, String> {
        Self::beside(Path::new(MACHINE_SOCKET), settings, environment, base, http)
    }

    /// The same with the machine's socket elsewhere.
    fn beside(
        socket: &Path,
        settings: &Settings,
        environment: &dyn Fn(&str) -> Option<String>,
        base: &BaseEnv,
        http: impl FnOnce() -> Result<HttpClient, String>,
    ) -> Result<Option<Self>, String> {
        if !settings.sleep.command.is_empty() {
            return Ok(Some(Self::command(&settings.sleep.command, base)));
        }
        let named = |name| environment(name).filter(|value| is_name(value));
        if let (Some(app), Some(machine), true) = (
            named(env::FLY_APP_NAME),
            named(env::FLY_MACHINE_ID),
            socket.exists(),
        ) {
            return Ok(Some(Self::machine(socket.to_owned(), app, machine)));
        }
        match &settings.connector.sleep_url {
            Some(url) => Ok(Some(Self::url(http()?, url.clone()))),
            None => Ok(None),
        }
    }

    /// Runs a program, without a shell; it ends with code 0 when the machine is going to freeze.
    pub fn command(argv: &[String], base: &BaseEnv) -> Self {
        let program = Program {
            argv: argv.iter().map(OsString::from).collect(),
            cwd: None,
            env: EnvPolicy::default().apply(base),
        };
        Self::new(move || run(program.clone()))
    }

    fn machine(socket: PathBuf, app: String, machine: String) -> Self {
        Self::new(move || {
            let (socket, app, machine) = (socket.clone(), app.clone(), machine.clone());
            async move {
                match timeout(PATIENCE, suspend(&socket, &app, &machine)).await {
                    Ok(asked) => asked.map_err(|error| error.to_string()),
                    Err(_) => Err(late("the machine's socket")),
                }
            }
        })
    }

    /// Asks a URL with an empty POST.
    pub fn url(http: HttpClient, url: String) -> Self {
        let http = http.with_timeout(PATIENCE + Duration::from_secs(1));
        Self::new(move || {
            let (http, url) = (http.clone(), url.clone());
            async move {
                let request = Request {
                    url: &url,
                    accept: "*/*",
                    bearer: None,
                    secret_header: None,
                    body: Body::Json(b"{}".to_vec()),
                };
                match timeout(PATIENCE, http.send(request)).await {
                    Ok(Ok(answer)) if answer.is_success() => Ok(()),
                    Ok(Ok(answer)) => Err(format!(
                        "the sleep URL answered with HTTP status {}",
                        answer.status
                    )),
                    Ok(Err(error)) => Err(format!("the sleep URL could not be asked: {error}")),
                    Err(_) => Err(late("the sleep URL")),
                }
            }
        })
    }

    /// Asks once.
    pub(super) fn pull(&self) -> Pull {
        (self.0)()
    }
}

async fn run(program: Program) -> Result<(), String> {
    let mut child =
        Child::spawn_detached_output(&program).map_err(|error| format!("the sleep command: {error}"))?;
    match timeout(PATIENCE, child.finish()).await {
        Ok(Exit::Code(0)) => Ok(()),
        Ok(exit) => {
            let said = excerpt(child.stderr_rest().await.trim());
            let said = if said.is_empty() {
                said
            } else {
                format!(": {said}")
            };
            Err(format!("the sleep command {exit}{said}"))
        }
        Err(_) => {
            child.stop(StopSchedule::default()).await;
            Err(late("the sleep command"))
        }
    }
}

fn late(who: &str) -> String {
    format!("{who} has not answered within {} seconds", PATIENCE.as_secs())
}

/// Whether it can stand in a path as it is.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests;
