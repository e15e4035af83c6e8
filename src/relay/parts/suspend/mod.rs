//! Suspends this machine: through a command, the machine's own socket, or a URL.
//!
//! A request is made once and reports whether the machine is going to freeze. The connector is never dialled, and a child
//! inherits none of our secrets.

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
use crate::net::machine;

/// How long it may take until it is known whether the machine is going to freeze.
const SUSPEND_TIMEOUT: Duration = Duration::from_secs(40);
/// Where a machine's own socket is.
const DEFAULT_SOCKET: &str = "/.fly/api";

type Suspending = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Something that suspends this machine.
#[derive(Clone)]
pub struct Suspender(Arc<dyn Fn() -> Suspending + Send + Sync>);

impl fmt::Debug for Suspender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Suspender")
    }
}

impl Suspender {
    /// A way of the embedder's own; its error tells people why the machine stays up.
    pub fn new<F>(suspend: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(suspend())))
    }

    /// The way that the settings and the machine offer: `sleep.command`, else the machine's own socket, else
    /// `connector.sleep_url`.
    pub(crate) fn from_settings(
        settings: &Settings,
        environment: &dyn Fn(&str) -> Option<String>,
        base: &BaseEnv,
        http: impl FnOnce() -> Result<HttpClient, String>,
    ) -> Result<Option<Self>, String> {
        Self::with_socket(Path::new(DEFAULT_SOCKET), settings, environment, base, http)
    }

    /// The same with the machine's socket elsewhere.
    fn with_socket(
        socket: &Path,
        settings: &Settings,
        environment: &dyn Fn(&str) -> Option<String>,
        base: &BaseEnv,
        http: impl FnOnce() -> Result<HttpClient, String>,
    ) -> Result<Option<Self>, String> {
        if !settings.sleep.command.is_empty() {
            return Ok(Some(Self::command(&settings.sleep.command, base)));
        }
        let named = |name| environment(name).filter(|value| is_path_segment(value));
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
    pub(crate) fn command(argv: &[String], base: &BaseEnv) -> Self {
        let program = Program {
            argv: argv.iter().map(OsString::from).collect(),
            cwd: None,
            env: EnvPolicy::default().apply(base),
            agent: None,
        };
        Self::new(move || run(program.clone()))
    }

    fn machine(socket: PathBuf, app: String, machine: String) -> Self {
        Self::new(move || {
            let (socket, app, machine) = (socket.clone(), app.clone(), machine.clone());
            async move {
                match timeout(SUSPEND_TIMEOUT, machine::suspend(&socket, &app, &machine)).await {
                    Ok(asked) => asked.map_err(|error| error.to_string()),
                    Err(_) => Err(timed_out("the machine's socket")),
                }
            }
        })
    }

    /// Asks a URL with an empty POST.
    pub(crate) fn url(http: HttpClient, url: String) -> Self {
        let http = http.with_timeout(SUSPEND_TIMEOUT + Duration::from_secs(1));
        Self::new(move || {
            let (http, url) = (http.clone(), url.clone());
            async move {
                let request = Request::new(&url, Body::Json(b"{}".to_vec()));
                match timeout(SUSPEND_TIMEOUT, http.send(request)).await {
                    Ok(Ok(answer)) if answer.is_success() => Ok(()),
                    Ok(Ok(answer)) => Err(format!(
                        "the sleep URL answered with HTTP status {}",
                        answer.status
                    )),
                    Ok(Err(error)) => Err(format!("the sleep URL could not be asked: {error}")),
                    Err(_) => Err(timed_out("the sleep URL")),
                }
            }
        })
    }

    /// Asks once for the machine to be suspended.
    pub fn suspend(&self) -> Suspending {
        (self.0)()
    }
}

async fn run(program: Program) -> Result<(), String> {
    let mut child =
        Child::spawn_detached_output(&program).map_err(|error| format!("the sleep command: {error}"))?;
    match timeout(SUSPEND_TIMEOUT, child.finish()).await {
        Ok(Exit::Code(0)) => Ok(()),
        Ok(exit) => {
            let output = excerpt(&child.last_words().await);
            let separator = if output.is_empty() { "" } else { ": " };
            Err(format!("the sleep command {exit}{separator}{output}"))
        }
        Err(_) => {
            child.stop(StopSchedule::default()).await;
            Err(timed_out("the sleep command"))
        }
    }
}

fn timed_out(who: &str) -> String {
    format!(
        "{who} has not answered within {} seconds",
        SUSPEND_TIMEOUT.as_secs()
    )
}

/// Whether it can be part of a path.
fn is_path_segment(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests;
