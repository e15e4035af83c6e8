//! Asking a running relay: the owner's control socket, and an HTTP listener that is off unless it is wanted.
//!
//! Both hand what they are asked to one [`Desk`], which asks the relay's own task and waits for nobody longer than
//! [`PATIENCE`](desk::PATIENCE). The control socket is a file in the state directory that only its owner (and root) may
//! use; it is never on a network. Neither ever shows what was said in a chat, or a secret.

pub mod client;
mod control;
pub mod desk;
mod exposition;
mod http;
mod place;
mod process;
pub mod request;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;

use self::control::ControlSocket;
use crate::config::Serve;
pub use desk::{Desk, LogCounts, Reload};

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be used.
    #[error("`serve.http` {0}")]
    Address(String),
    /// Something else listens there, or it is not ours to listen on.
    #[error("cannot listen on {address} (`serve.http`): {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

/// What is served; ends when dropped, and the socket's file with it.
#[derive(Debug)]
pub struct Serving {
    /// Ends the tasks when dropped.
    _tasks: JoinSet<()>,
    http: Option<SocketAddr>,
    control: Option<ControlSocket>,
}

impl Serving {
    /// Starts what the settings want. A control socket that cannot be made is logged and done without; an HTTP
    /// address that cannot be listened on is an error. Must be called inside a runtime, and by whoever holds the
    /// state directory: a socket that an earlier run left there is replaced.
    pub fn start(wanted: &Serve, desk: Desk) -> Result<Self, ServeError> {
        let desk = Arc::new(desk);
        let mut tasks = JoinSet::new();
        let mut http = None;
        if let Some(address) = wanted.http_address().map_err(ServeError::Address)? {
            let refused = |source| ServeError::Listen { address, source };
            let listener = http::listen(address).map_err(refused)?;
            let here = listener.local_addr().map_err(refused)?;
            let rules = http::HostRules::new(here, &wanted.allowed_hosts);
            tracing::info!(address = %here, "serving health and metrics over HTTP");
            tasks.spawn(http::serve(listener, Arc::clone(&desk), rules));
            http = Some(here);
        }
        let mut control = None;
        if wanted.control {
            match ControlSocket::bind(desk.state_dir()) {
                Ok((socket, listener)) => {
                    tasks.spawn(control::serve(listener, desk));
                    control = Some(socket);
                }
                Err(error) => {
                    let directory = desk.state_dir().display();
                    tracing::warn!(%directory, %error, "no control socket: `hermes-relay status` and its siblings cannot ask");
                }
            }
        }
        Ok(Self {
            _tasks: tasks,
            http,
            control,
        })
    }

    /// Where HTTP is served.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The control socket's file.
    pub fn control(&self) -> Option<PathBuf> {
        self.control.as_ref().map(|socket| socket.path().to_owned())
    }
}
