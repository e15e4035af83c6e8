//! The steps of a dial one at a time, to find the one that fails.
//!
//! It sends no bearer and no request, and keeps no connection: what a step opens, it closes. It sets no deadline of its
//! own: the caller wraps each step in one, and dropping the future drops what was opened.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::proxy::{ProxyRules, ProxyTarget};
use super::socket::{DialError, DialTarget};
use super::tls::Tls;
use super::{connect, tunnel};

/// One target, and how it is reached.
pub struct Steps {
    target: DialTarget,
    tls: Tls,
    proxy: Option<ProxyTarget>,
}

impl Steps {
    /// The steps toward a `ws://` or `wss://` URL.
    pub fn toward(dial_url: &str, tls: Tls, proxies: &ProxyRules) -> Result<Self, DialError> {
        let target = DialTarget::parse(dial_url)?;
        let proxy = proxies.proxy_for(&target.url);
        Ok(Self { target, tls, proxy })
    }

    /// The proxy in between, if there is one.
    pub fn proxy(&self) -> Option<&ProxyTarget> {
        self.proxy.as_ref()
    }

    /// The target's addresses, both families, as this machine resolves them.
    pub async fn addresses(&self) -> Result<Vec<SocketAddr>, DialError> {
        let found = connect::resolve(self.target.bare_host(), self.target.port).await;
        found.map_err(|cause| DialError::Dns {
            host: self.target.host.clone(),
            cause,
        })
    }

    /// Connects to one address.
    pub async fn reach(address: SocketAddr) -> io::Result<()> {
        connect::connect(&[address]).await.map(drop)
    }

    /// Asks the proxy for a tunnel to the target. Nothing to do without one.
    pub async fn tunnel(&self) -> Result<(), DialError> {
        match &self.proxy {
            Some(proxy) => self.through(proxy).await.map(drop),
            None => Ok(()),
        }
    }

    /// Performs the TLS handshake as if the clock were `ahead`, and verifies the whole chain at that time.
    pub async fn secure(&self, ahead: Duration) -> Result<(), DialError> {
        let broken = |cause| DialError::Tls {
            host: self.target.host.clone(),
            cause,
        };
        let config = self
            .tls
            .config()
            .map_err(|error| broken(io::Error::other(error)))?;
        let mut config = ClientConfig::clone(&config);
        config.time_provider = Arc::new(Ahead(ahead));
        // A resumed handshake shows no certificate.
        config.resumption = Resumption::disabled();
        let tcp = match &self.proxy {
            Some(proxy) => self.through(proxy).await?,
            None => self.direct().await?,
        };
        let name = self.target.server_name()?;
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, tcp).await.map(drop).map_err(broken)
    }

    async fn through(&self, proxy: &ProxyTarget) -> Result<TcpStream, DialError> {
        let opened = tunnel::open(proxy, &self.target.host, self.target.port).await;
        opened.map_err(|error| DialError::Proxy {
            proxy: proxy.address(),
            status: error.status,
            reason: error.reason,
        })
    }

    async fn direct(&self) -> Result<TcpStream, DialError> {
        let addresses = self.addresses().await?;
        let connected = connect::connect(&addresses).await;
        connected.map_err(|cause| DialError::Connect {
            host: self.target.host.clone(),
            port: self.target.port,
            cause,
        })
    }
}

/// A clock that is ahead.
#[derive(Debug)]
struct Ahead(Duration);

impl TimeProvider for Ahead {
    fn current_time(&self) -> Option<UnixTime> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(UnixTime::since_unix_epoch(now.saturating_add(self.0)))
    }
}
