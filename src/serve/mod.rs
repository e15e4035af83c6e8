//! Control and monitoring of a running relay: the owner's control socket, and an HTTP listener that is off by default.
//!
//! Both use one [`ControlService`], which asks the relay's event loop with a timeout. The control socket is a file in the
//! state directory that only its owner and root may use; it is never on a network. Neither exposes secrets, nor message text beyond the
//! answer that a caller of the socket waits for.
//!
//! [`targets`] is the other direction: what this program hands to agents, here or elsewhere.

pub mod client;
mod clients;
mod control;
mod endpoint;
mod fire;
mod http;
mod prometheus;
mod protocol;
mod receiver;
mod relay_connector;
mod service;
mod status_page;
mod status_rows;
pub mod targets;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use self::control::ControlSocket;
use self::receiver::Receiver;
use crate::config::ServeConfig;
use crate::config::secret::SecretError;

pub use self::fire::{FIRE_PATH, FireCounts, FireEndpoint};
pub use self::protocol::{ControlError, ControlRequest, MAX_REQUEST_BYTES, Need};
#[cfg(feature = "nats")]
pub use self::service::TakeOverReply;
pub use self::service::{ClusterReport, ControlService, HandOver, LogCounts, Reload, TraceCounts};
pub use self::status_rows::{StatusRow, Tone, status_rows};

/// Pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Why serving cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is invalid.
    #[error("`{key}` {why}")]
    Address {
        /// The setting.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The address is in use, or not permitted.
    #[error("cannot listen on {address} (`{key}`): {source}")]
    Listen {
        /// The setting.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// A secret of the receiver cannot be used.
    #[error("cannot receive anything for agents (`serve.receiver`): {0}")]
    Receiver(#[from] SecretError),
}

/// Fires of the managed scheduler: who admits them, and their own listener.
#[derive(Debug)]
pub struct Fires {
    /// Verifies and passes on.
    pub endpoint: Arc<FireEndpoint>,
    /// `cron.listen`.
    pub listener: Option<FireListener>,
}

/// A listener for fires alone.
#[derive(Debug)]
pub struct FireListener {
    listener: tokio::net::TcpListener,
    local: SocketAddr,
}

impl FireListener {
    /// Listens on this address. Call it inside a runtime.
    pub fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let (listener, local) = listen("cron.listen", address)?;
        Ok(Self { listener, local })
    }

    /// Where it listens.
    #[cfg_attr(
        not(feature = "dev"),
        allow(dead_code, reason = "only `dev` listens on any free port")
    )]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// The running listeners; they end when dropped.
#[derive(Debug)]
pub struct Serving {
    _tasks: JoinSet<()>,
    _control: Option<ControlSocket>,
}

impl Serving {
    /// Starts what the settings enable. A control socket that cannot be created is logged; an HTTP address that cannot be
    /// used is an error. Fires are served on `serve.http` and on their own listener, the receiver on `serve.http`. Call it inside a runtime, as the owner
    /// of the state directory: a socket that an earlier run left there is replaced.
    pub fn start(
        settings: &ServeConfig,
        mut service: ControlService,
        fires: Option<Fires>,
    ) -> Result<Self, ServeError> {
        if let Some(fires) = &fires {
            service.set_fires(Arc::clone(&fires.endpoint));
        }
        let mut receiver = None;
        if let Some(settings) = settings.receiver.as_ref().filter(|_| settings.http.is_some()) {
            let new = Arc::new(Receiver::new(settings, service.relay_handle())?);
            service.set_receiver(Arc::clone(&new));
            receiver = Some(new);
        }
        let service = Arc::new(service);
        let per_address = settings.max_per_address;
        let mut tasks = JoinSet::new();
        if let Some(address) = settings.http_address().map_err(|why| ServeError::Address {
            key: "serve.http",
            why,
        })? {
            let (listener, local) = listen("serve.http", address)?;
            let rules = http::HostRules::new(local, &settings.allowed_hosts);
            let endpoint = fires.as_ref().map(|fires| Arc::clone(&fires.endpoint));
            tracing::info!(address = %local, "serving health and metrics over HTTP");
            tasks.spawn(http::serve(
                listener,
                http::Site::new(Arc::clone(&service), endpoint, receiver, rules),
                per_address,
            ));
        }
        if let Some((endpoint, own)) = fires.and_then(|fires| Some((fires.endpoint, fires.listener?))) {
            tracing::info!(address = %own.local, "serving fires of the managed scheduler over HTTP");
            tasks.spawn(http::serve(
                own.listener,
                http::Site::fires(Arc::clone(&service), endpoint),
                per_address,
            ));
        }
        let mut control = None;
        if settings.control {
            match ControlSocket::bind(service.state_dir()) {
                Ok((socket, listener)) => {
                    tasks.spawn(control::serve(listener, service));
                    control = Some(socket);
                }
                Err(error) => {
                    let directory = service.state_dir().display();
                    tracing::warn!(
                        %directory,
                        %error,
                        "cannot create the control socket; `hermes-relay status` and similar commands will not work"
                    );
                }
            }
        }
        Ok(Self {
            _tasks: tasks,
            _control: control,
        })
    }
}

fn listen(
    key: &'static str,
    address: SocketAddr,
) -> Result<(tokio::net::TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Listen { key, address, source };
    let listener = http::listen(address).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}
