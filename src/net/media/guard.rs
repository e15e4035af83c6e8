//! Which addresses downloads may reach.
//!
//! A name from a chat is resolved here, every address is checked, and the connection can only go to a checked address:
//! nothing resolves the name again. A name with one private address is refused as a whole.
//!
//! Behind a proxy that resolves names itself, only private IP addresses and names without a public meaning are refused
//! here; the rest is up to the proxy's rules.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::error::MediaError;
use crate::adapter::media::{AllowedHosts, is_private_url, is_public_ip};
use crate::net::connect;
use crate::net::http::{HttpClient, HttpEgress, HttpPolicy, excerpt};
use crate::net::proxy::ProxyScheme;

/// Timeout for connecting, and for a download that sends nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum addresses of one name that are checked and tried.
const MAX_ADDRESSES: usize = 16;

/// What a [`Lookup`] returns.
pub type Looking<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Resolves names.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of `host`, which is a name.
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

/// Whether files may be downloaded from an address.
pub type AddressRule = fn(IpAddr) -> bool;

/// Direction of a transfer with the connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferDirection {
    Download,
    Upload,
}

/// Makes the HTTP clients for transfers.
pub(super) struct AddressGuard {
    pub(super) egress: HttpEgress,
    pub(super) timeout: Duration,
    pub(super) allowed: AllowedHosts,
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) rule: AddressRule,
}

impl AddressGuard {
    pub(super) fn new(egress: HttpEgress, timeout: Duration, allowed: AllowedHosts) -> Self {
        Self {
            egress,
            timeout,
            allowed,
            lookup: Arc::new(SystemLookup),
            rule: is_public_ip,
        }
    }

    /// A client for the connector itself, wherever it is.
    pub(super) fn connector(&self, direction: TransferDirection) -> Result<HttpClient, MediaError> {
        Ok(HttpClient::new(&self.egress, self.policy(direction))?)
    }

    /// A client for one request to an address from a chat.
    pub(super) async fn anyone(&self, url: &Url) -> Result<HttpClient, MediaError> {
        let policy = self.policy(TransferDirection::Download);
        let exempt = self.allowed.allow(url);
        let proxy = self.egress.proxies.proxy_for(url);
        if proxy.is_some() && !exempt && is_private_url(url) {
            return Err(not_public(url));
        }
        let proxy = match proxy {
            None => None,
            Some(proxy) => match proxy.scheme {
                ProxyScheme::Http | ProxyScheme::Https | ProxyScheme::Socks4a | ProxyScheme::Socks5h => {
                    return Ok(HttpClient::new(&self.egress, policy)?);
                }
                ProxyScheme::Socks4 | ProxyScheme::Socks5 => Some(proxy.host),
            },
        };
        let addresses = self.addresses(url, exempt).await?;
        let pinned = Arc::new(Pinned { addresses, proxy });
        Ok(HttpClient::with_resolver(&self.egress, policy, pinned)?)
    }

    /// Whether an address from a chat is passed on as it is: its host is public by its name or number, or allowed.
    pub(super) fn passes_on(&self, url: &Url) -> bool {
        let is_public = match url.host() {
            Some(Host::Ipv4(address)) => (self.rule)(address.into()),
            Some(Host::Ipv6(address)) => (self.rule)(address.into()),
            Some(Host::Domain(_)) => !is_private_url(url),
            None => false,
        };
        is_public || self.allowed.allow(url)
    }

    /// No reused connections, and a read timeout except for uploads, during which the server sends nothing.
    fn policy(&self, direction: TransferDirection) -> HttpPolicy {
        HttpPolicy {
            connect_timeout: Some(IDLE_TIMEOUT),
            read_timeout: (direction == TransferDirection::Download).then_some(IDLE_TIMEOUT),
            timeout: Some(self.timeout),
            reuse_connections: false,
            ..HttpPolicy::default()
        }
    }

    /// The addresses of a URL's host, all checked.
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
}

fn not_public(url: &Url) -> MediaError {
    MediaError::NotPublic {
        host: excerpt(url.host_str().unwrap_or_default()),
    }
}

/// Resolves every name to the checked addresses. Only a SOCKS proxy that leaves resolving to us is looked up itself; its
/// name is configured and not checked.
struct Pinned {
    addresses: Vec<SocketAddr>,
    proxy: Option<String>,
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
