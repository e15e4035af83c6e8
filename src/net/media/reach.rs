//! The way to an address: through which client, to which machine.
//!
//! For an address from a chat the name is resolved here, every answer is judged, and the connection can only go to
//! what was judged: nobody resolves again in between. A name with one private answer is refused as a whole.
//!
//! Where a proxy stands in between, the proxy resolves. Then only what can be told without resolving is refused
//! here: private numbers, and names that mean nothing outside. What else a proxy may reach is for its own rules.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, ClientBuilder, Proxy};
use url::{Host, Url};

use super::error::MediaError;
use crate::adapter::media::{AllowedHosts, is_private_url, is_public_ip};
use crate::net::connect;
use crate::net::http::{excerpt, innermost};
use crate::net::proxy::{ProxyRules, ProxyScheme, ProxyTarget};
use crate::net::tls::Tls;

/// Longest a connection may take to be made, and a server that is asked for a file may say nothing.
const IDLE: Duration = Duration::from_secs(15);
/// Addresses of one name that are judged and tried; the rest are not used.
const MAX_ADDRESSES: usize = 16;

/// What a [`Lookup`] returns.
pub type Looking<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Resolves names; the system's resolver unless a program brings its own.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of `host`, which is a name and no number.
    fn lookup<'a>(&'a self, host: &'a str, port: u16) -> Looking<'a>;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup<'a>(&'a self, host: &'a str, port: u16) -> Looking<'a> {
        Box::pin(connect::resolve(host, port))
    }
}

/// Says of an address whether files may come from it.
pub type AddressRule = fn(IpAddr) -> bool;

/// What the connector is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// For a file.
    Download,
    /// To take a file.
    Upload,
}

/// What every connection is made with.
pub(super) struct Reach {
    pub(super) tls: Tls,
    pub(super) proxies: ProxyRules,
    pub(super) user_agent: String,
    pub(super) timeout: Duration,
    pub(super) allowed: AllowedHosts,
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) rule: AddressRule,
}

impl Reach {
    pub(super) fn new(tls: Tls, proxies: ProxyRules, user_agent: String, timeout: Duration) -> Self {
        Self {
            tls,
            proxies,
            user_agent,
            timeout,
            allowed: AllowedHosts::default(),
            lookup: Arc::new(SystemLookup),
            rule: is_public_ip,
        }
    }

    /// A client for the connector itself, wherever it is.
    pub(super) fn connector(&self, url: &Url, task: Task) -> Result<Client, MediaError> {
        let builder = match task {
            Task::Download => self.builder()?.read_timeout(IDLE),
            // A server says nothing while it is being told something.
            Task::Upload => self.builder()?,
        };
        built(match self.proxies.proxy_for(url) {
            Some(proxy) => builder.proxy(through(&proxy)?),
            None => builder,
        })
    }

    /// A client for one request to an address from a chat.
    pub(super) async fn anyone(&self, url: &Url) -> Result<Client, MediaError> {
        let exempt = self.allowed.allow(url);
        let builder = self.builder()?.read_timeout(IDLE);
        let Some(proxy) = self.proxies.proxy_for(url) else {
            let pinned = Pinned::only(self.addresses(url, exempt).await?);
            return built(builder.dns_resolver(Arc::new(pinned)));
        };
        if !exempt && is_private_url(url) {
            return Err(not_public(url));
        }
        let builder = builder.proxy(through(&proxy)?);
        built(match proxy.scheme {
            ProxyScheme::Http | ProxyScheme::Https | ProxyScheme::Socks4a | ProxyScheme::Socks5h => builder,
            ProxyScheme::Socks4 | ProxyScheme::Socks5 => {
                let mut pinned = Pinned::only(self.addresses(url, exempt).await?);
                pinned.proxy = Some(proxy.host);
                builder.dns_resolver(Arc::new(pinned))
            }
        })
    }

    /// The addresses of a URL's host, all of them judged.
    async fn addresses(&self, url: &Url, exempt: bool) -> Result<Vec<SocketAddr>, MediaError> {
        let port = url.port_or_known_default().unwrap_or_default();
        let addresses = match url.host() {
            Some(Host::Ipv4(address)) => vec![SocketAddr::new(address.into(), port)],
            Some(Host::Ipv6(address)) => vec![SocketAddr::new(address.into(), port)],
            Some(Host::Domain(name)) => {
                let mut found = self
                    .lookup
                    .lookup(name, port)
                    .await
                    .map_err(|cause| MediaError::Unreachable(excerpt(&cause.to_string())))?;
                found.truncate(MAX_ADDRESSES);
                found
            }
            None => Vec::new(),
        };
        if addresses.is_empty() {
            return Err(MediaError::Unreachable("the name has no address".to_owned()));
        }
        if exempt || addresses.iter().all(|address| (self.rule)(address.ip())) {
            Ok(addresses)
        } else {
            Err(not_public(url))
        }
    }

    /// No redirects, no compression, no proxy but the one that is named, no connection kept.
    fn builder(&self) -> Result<ClientBuilder, MediaError> {
        let tls = self
            .tls
            .config()
            .map_err(|cause| MediaError::Setup(cause.to_string()))?;
        Ok(Client::builder()
            .tls_backend_preconfigured(rustls::ClientConfig::clone(&tls))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .http1_only()
            .pool_max_idle_per_host(0)
            .connect_timeout(IDLE)
            .timeout(self.timeout)
            .user_agent(&self.user_agent))
    }
}

fn built(builder: ClientBuilder) -> Result<Client, MediaError> {
    builder
        .build()
        .map_err(|cause| MediaError::Setup(innermost(&cause)))
}

fn through(proxy: &ProxyTarget) -> Result<Proxy, MediaError> {
    let url = proxy
        .url_with_credentials()
        .ok_or_else(|| MediaError::Setup("the proxy's address cannot be used".to_owned()))?;
    Proxy::all(url).map_err(|cause| MediaError::Setup(innermost(&cause.without_url())))
}

fn not_public(url: &Url) -> MediaError {
    MediaError::NotPublic {
        host: excerpt(url.host_str().unwrap_or_default()),
    }
}

/// Resolves every name to the addresses that were judged, whatever happens to the name meanwhile. Only a proxy that
/// leaves resolving to us has a name of its own, which was configured and is not judged.
struct Pinned {
    addresses: Vec<SocketAddr>,
    proxy: Option<String>,
}

impl Pinned {
    fn only(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            proxy: None,
        }
    }
}

impl Resolve for Pinned {
    fn resolve(&self, name: Name) -> Resolving {
        let is_proxy = self
            .proxy
            .as_deref()
            .is_some_and(|proxy| proxy.eq_ignore_ascii_case(name.as_str()));
        let addresses = self.addresses.clone();
        Box::pin(async move {
            let found = if is_proxy {
                connect::resolve(name.as_str(), 0).await?
            } else {
                addresses
            };
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
