//! One dial of the connector's WebSocket: from a URL to an upgraded, bounded socket.
//!
//! A dial tries once and has one deadline for all its stages. It never follows a redirect, never sends
//! the bearer anywhere but to the host of the URL, never uses plaintext over a network unless allowed
//! to, and offers neither a subprotocol nor compression.
//!
//! The WebSocket crate writes the whole upgrade request, bearer included, to the `log` facade at trace
//! level: whoever installs a `log` logger must not let `tungstenite` through below debug.

use std::time::{Duration, SystemTime};
use std::{fmt, io};

use http::header::{
    AUTHORIZATION, CONNECTION, HOST, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE, USER_AGENT,
};
use http::{HeaderValue, Request, Response};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config, tungstenite};
use url::{Host, Url};

use super::metered::MeteredStream;
use super::proxy::{ProxyRules, is_loopback};
use super::self_signed::is_self_signed;
use super::send_lease::SendLease;
use super::tls::Tls;
use super::{connect, http as client, tunnel};

/// Bytes buffered before a write.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// Bytes that the WebSocket crate takes at a time: it clears that much before it reads. Reads from the network are larger.
const READ_BUFFER_BYTES: usize = 2 * 1024;

/// A connection that carries a WebSocket: plain TCP, or TLS over it.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl fmt::Debug for dyn Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

/// Any connection that carries a WebSocket.
pub type BoxedStream = Box<dyn Stream>;

/// The connector's WebSocket.
pub type ConnectorSocket = WebSocketStream<MeteredStream>;

/// A request to dial: the URL and its bounds.
#[derive(Clone, Copy)]
pub struct DialRequest<'a> {
    /// A `ws://` or `wss://` URL; user and password in it are ignored.
    pub url: &'a str,
    /// The upgrade token; without it the dial is unauthenticated.
    pub bearer: Option<&'a SecretString>,
    /// The `User-Agent` value.
    pub user_agent: &'a str,
    /// Whether `ws://` may go to a host other than this machine.
    pub allow_plaintext: bool,
    /// The largest message, and the largest frame, that is accepted.
    pub max_message_bytes: usize,
    /// The most that may wait to be written; a write beyond it fails.
    pub max_write_buffer_bytes: usize,
}

/// Dials the connector: the settings that stay the same from dial to dial.
#[derive(Debug, Clone)]
pub struct Dialer {
    tls: Tls,
    proxies: ProxyRules,
    connect_timeout: Duration,
    lease: Option<SendLease>,
}

/// A dial that succeeded.
#[derive(Debug)]
pub struct Dialed {
    /// The upgraded socket.
    pub socket: ConnectorSocket,
    /// The connector's clock when it answered, where the answer gave it.
    pub server_date: Option<SystemTime>,
}

impl Dialer {
    /// A dialler with these settings; `connect_timeout` bounds the whole dial.
    pub fn new(tls: impl Into<Tls>, proxies: ProxyRules, connect_timeout: Duration) -> Self {
        Self {
            tls: tls.into(),
            proxies,
            connect_timeout,
            lease: None,
        }
    }

    /// Its sockets take nothing once this lease has ended.
    #[must_use]
    pub fn leased(mut self, lease: Option<SendLease>) -> Self {
        self.lease = lease;
        self
    }

    /// Dials once. Cancel-safe: dropping the future closes what was opened.
    pub async fn dial(&self, request: DialRequest<'_>) -> Result<Dialed, DialError> {
        let target = DialTarget::parse(request.url)?;
        if !target.secure && !target.is_loopback() && !request.allow_plaintext {
            return Err(DialError::Plaintext { host: target.host });
        }
        let upgrade = upgrade_request(&target, &request)?;
        let deadline = DialDeadline::after(self.connect_timeout);

        let tcp = self.reach(&target, &deadline).await?;
        let stream: BoxedStream = if target.secure {
            let config = self.tls.config().map_err(|error| DialError::Tls {
                host: target.host.clone(),
                cause: io::Error::other(error),
            })?;
            let handshake = TlsConnector::from(config).connect(target.server_name()?, tcp);
            let outcome = deadline.within(Stage::Tls, handshake).await?;
            Box::new(outcome.map_err(|cause| DialError::Tls {
                host: target.host.clone(),
                cause,
            })?)
        } else {
            Box::new(tcp)
        };

        let bounds = bounds(request.max_message_bytes, request.max_write_buffer_bytes);
        let handshake = client_async_with_config(
            upgrade,
            MeteredStream::new(stream, self.lease.clone()),
            Some(bounds),
        );
        let (socket, answer) = deadline
            .within(Stage::Upgrade, handshake)
            .await?
            .map_err(|error| refusal(&target, error))?;
        if answer.headers().contains_key(SEC_WEBSOCKET_EXTENSIONS) {
            let reason = "the connector chose an extension that was not offered".to_owned();
            return Err(DialError::Upgrade {
                host: target.host,
                reason,
            });
        }
        let server_date = client::server_date(answer.headers());
        Ok(Dialed { socket, server_date })
    }

    async fn reach(&self, target: &DialTarget, deadline: &DialDeadline) -> Result<TcpStream, DialError> {
        if let Some(proxy) = self.proxies.proxy_for(&target.url) {
            let tunnel = tunnel::open(&proxy, &target.host, target.port);
            return deadline
                .within(Stage::Proxy, tunnel)
                .await?
                .map_err(|error| DialError::Proxy {
                    proxy: proxy.address(),
                    status: error.status,
                    reason: error.reason,
                });
        }
        let found = connect::resolve(target.bare_host(), target.port);
        let addresses = deadline
            .within(Stage::Dns, found)
            .await?
            .map_err(|cause| DialError::Dns {
                host: target.host.clone(),
                cause,
            })?;
        deadline
            .within(Stage::Connect, connect::connect(&addresses))
            .await?
            .map_err(|cause| DialError::Connect {
                host: target.host.clone(),
                port: target.port,
                cause,
            })
    }
}

/// The dial URL, taken apart. Its user and password are gone.
pub(super) struct DialTarget {
    pub(super) url: Url,
    secure: bool,
    /// As in the URL: an IPv6 address is in brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl DialTarget {
    pub(super) fn parse(text: &str) -> Result<Self, DialError> {
        let bad = |reason: &str| DialError::Url {
            reason: reason.to_owned(),
        };
        let mut url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        let secure = match url.scheme() {
            "wss" => true,
            "ws" => false,
            _ => return Err(bad("its scheme is neither wss nor ws")),
        };
        let host = url.host_str().ok_or_else(|| bad("it has no host"))?.to_owned();
        let port = url.port_or_known_default().ok_or_else(|| bad("it has no port"))?;
        if port == 0 {
            return Err(bad("port 0 cannot be dialled"));
        }
        url.set_fragment(None);
        let cleared = url.set_username("").and_then(|()| url.set_password(None));
        cleared.map_err(|()| bad("it has no host"))?;
        Ok(Self {
            url,
            secure,
            host,
            port,
        })
    }

    fn is_loopback(&self) -> bool {
        self.url.host().is_some_and(|host| is_loopback(&host))
    }

    pub(super) fn bare_host(&self) -> &str {
        self.host.trim_matches(['[', ']'])
    }

    fn authority(&self) -> String {
        match self.url.port() {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    pub(super) fn server_name(&self) -> Result<ServerName<'static>, DialError> {
        let name = match self.url.host() {
            Some(Host::Ipv4(address)) => return Ok(ServerName::from(std::net::IpAddr::V4(address))),
            Some(Host::Ipv6(address)) => return Ok(ServerName::from(std::net::IpAddr::V6(address))),
            Some(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
            None => String::new(),
        };
        ServerName::try_from(name).map_err(|_| DialError::Url {
            reason: "its host is not a name that a certificate can carry".to_owned(),
        })
    }
}

/// The one deadline of a dial, named at each stage for the person who hits it.
struct DialDeadline {
    at: Instant,
    after: Duration,
}

impl DialDeadline {
    fn after(after: Duration) -> Self {
        const LONGEST: Duration = Duration::from_secs(60 * 60);
        Self {
            at: Instant::now() + after.min(LONGEST),
            after,
        }
    }

    async fn within<T>(&self, stage: Stage, work: impl Future<Output = T>) -> Result<T, DialError> {
        let waited = timeout_at(self.at, work).await;
        waited.map_err(|_| DialError::Timeout {
            stage,
            after: self.after,
        })
    }
}

fn upgrade_request(target: &DialTarget, request: &DialRequest<'_>) -> Result<Request<()>, DialError> {
    let field = |name, value: &str| HeaderValue::from_str(value).map_err(|_| DialError::Header { name });
    let mut upgrade = Request::builder()
        .uri(target.url.as_str())
        .header(HOST, field("Host", &target.authority())?)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, generate_key())
        .header(USER_AGENT, field("User-Agent", request.user_agent)?);
    if let Some(bearer) = request.bearer {
        let mut value = field("Authorization", &format!("Bearer {}", bearer.expose_secret()))?;
        value.set_sensitive(true);
        upgrade = upgrade.header(AUTHORIZATION, value);
    }
    upgrade.body(()).map_err(|_| DialError::Url {
        reason: "it holds characters that a request cannot carry".to_owned(),
    })
}

fn bounds(max_message_bytes: usize, max_write_buffer_bytes: usize) -> WebSocketConfig {
    let max = max_write_buffer_bytes.max(1);
    WebSocketConfig::default()
        .max_message_size(Some(max_message_bytes))
        .max_frame_size(Some(max_message_bytes))
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES.min(max / 2))
        .max_write_buffer_size(max)
}

/// Maps a failed upgrade. The response body is never kept.
fn refusal(target: &DialTarget, error: tungstenite::Error) -> DialError {
    use tungstenite::Error;
    let host = target.host.clone();
    let reason = match error {
        Error::Http(answer) => return refused(target, &answer),
        // With TLS 1.3 a refused client certificate only shows once the server is read from.
        Error::Io(cause) if tls_cause(&cause).is_some() => return DialError::Tls { host, cause },
        Error::Io(cause) => format!("the connection broke ({cause})"),
        Error::Protocol(problem) => problem.to_string().to_lowercase(),
        Error::Capacity(_) | Error::AttackAttempt => "the answer's headers are too large".to_owned(),
        _ => "the answer is not HTTP".to_owned(),
    };
    DialError::Upgrade { host, reason }
}

fn refused(target: &DialTarget, answer: &Response<Option<Vec<u8>>>) -> DialError {
    let status = answer.status();
    if status.is_redirection() {
        let location = answer.headers().get(http::header::LOCATION);
        let place = location.and_then(|value| target.url.join(value.to_str().ok()?).ok());
        return DialError::Redirected {
            status: status.as_u16(),
            location_host: place.and_then(|place| place.host_str().map(str::to_owned)),
        };
    }
    DialError::Refused {
        status: status.as_u16(),
        retry_after: client::retry_after(answer.headers()),
        server_date: client::server_date(answer.headers()),
    }
}

/// Why a dial opened no socket.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The dial URL is not a WebSocket URL.
    #[error(
        "the connector URL cannot be dialled: {reason}; it should look like wss://connector.example/relay"
    )]
    Url {
        /// The fault of the URL, without the URL itself.
        reason: String,
    },
    /// A header field cannot carry the value it was given.
    #[error("the {name} value holds characters that an HTTP header cannot carry; correct it")]
    Header {
        /// The field's name.
        name: &'static str,
    },
    /// The URL would send the bearer unencrypted over a network.
    #[error(
        "refusing to talk to {host} without encryption; use a wss:// (https://) URL, or set `allow_plaintext: true` \
         if you accept that anyone on the way can read and take over the link"
    )]
    Plaintext {
        /// The host in the URL.
        host: String,
    },
    /// The connector's name does not resolve.
    #[error("cannot resolve {host}: {cause}; check the URL and this machine's DNS")]
    Dns {
        /// The name that does not resolve.
        host: String,
        /// The error of the resolver.
        cause: io::Error,
    },
    /// No address of the connector accepts a connection.
    #[error(
        "cannot connect to {host} port {port}: {cause}; check that something listens there and no firewall is in between"
    )]
    Connect {
        /// The connector's host.
        host: String,
        /// The connector's port.
        port: u16,
        /// The error of the operating system for the last address.
        cause: io::Error,
    },
    /// The proxy cannot be reached or gives no tunnel.
    #[error("no tunnel through the proxy {proxy}{}: {reason}", shown_status(*status))]
    Proxy {
        /// The proxy's host and port.
        proxy: String,
        /// The HTTP status of the proxy, if it answered.
        status: Option<u16>,
        /// The cause, and what to do about it.
        reason: String,
    },
    /// The TLS handshake failed.
    #[error("no secure connection to {host}: {}; {}", tls_reason(cause), tls_hint(cause))]
    Tls {
        /// The connector's host.
        host: String,
        /// The error; holds a [`rustls::Error`] unless the connection itself broke.
        cause: io::Error,
    },
    /// A stage of the dial took too long.
    #[error("gave up after {} s while {stage}; check the network, or whether the connector is overloaded", after.as_secs_f32())]
    Timeout {
        /// The stage that took too long.
        stage: Stage,
        /// The timeout of the whole dial.
        after: Duration,
    },
    /// The connector answered the upgrade with a status other than 101.
    #[error("the connector refused the connection with HTTP {status}: {}", refusal_hint(*status))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The response's `Retry-After`, at most a day.
        retry_after: Option<Duration>,
        /// The connector's clock.
        server_date: Option<SystemTime>,
    },
    /// The connector answered with a redirect, which is never followed: the bearer must not travel.
    #[error(
        "the connector answered with a redirect (HTTP {status}) to {}, which is not followed; if that is the right \
         place, put it in the connector URL",
        location_host.as_deref().unwrap_or("an unnamed place")
    )]
    Redirected {
        /// The HTTP status.
        status: u16,
        /// The host it points to.
        location_host: Option<String>,
    },
    /// The answer is not a WebSocket upgrade.
    #[error(
        "no WebSocket at {host}: {reason}; check that the URL is the connector's and that no proxy in between strips upgrades"
    )]
    Upgrade {
        /// The connector's host.
        host: String,
        /// What was wrong with the answer.
        reason: String,
    },
}

impl DialError {
    /// The connector's clock, where its answer gave it.
    pub fn server_date(&self) -> Option<SystemTime> {
        match self {
            Self::Refused { server_date, .. } => *server_date,
            _ => None,
        }
    }

    /// What to do about a refusal or a failed TLS handshake, where the reason itself does not say.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Tls { cause, .. } => Some(tls_hint(cause)),
            Self::Refused { status, .. } => Some(refusal_hint(*status)),
            _ => None,
        }
    }

    /// Whether the connector's certificate, or one above it, is past its last day.
    pub fn is_expired_certificate(&self) -> bool {
        let Self::Tls { cause, .. } = self else {
            return false;
        };
        matches!(
            tls_cause(cause),
            Some(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. }
            ))
        )
    }
}

/// What a dial waits for, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The connector's addresses.
    Dns,
    /// A TCP connection to the connector.
    Connect,
    /// A tunnel through the proxy.
    Proxy,
    /// The TLS handshake.
    Tls,
    /// The answer to the WebSocket upgrade.
    Upgrade,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dns => "resolving the connector's name",
            Self::Connect => "connecting to the connector",
            Self::Proxy => "asking the proxy for a tunnel",
            Self::Tls => "setting up TLS with the connector",
            Self::Upgrade => "waiting for the connector to answer the WebSocket upgrade",
        })
    }
}

/// The TLS error inside an I/O error, if that is what it is.
pub(crate) fn tls_cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Why the handshake failed, for people.
pub(crate) fn tls_reason(cause: &io::Error) -> String {
    match tls_cause(cause) {
        Some(error) if is_self_signed(error) => {
            "the certificate is self-signed and not trusted here".to_owned()
        }
        _ => cause.to_string(),
    }
}

fn shown_status(status: Option<u16>) -> String {
    status.map_or_else(String::new, |status| format!(" (HTTP {status})"))
}

fn refusal_hint(status: u16) -> &'static str {
    match status {
        401 | 403 => "it does not accept this relay's credentials; enroll again if that persists",
        400 | 404 | 405 | 426 => "it does not know this address; check the URL and its path (/relay)",
        429 => "too many attempts; it will be tried again later",
        500..=599 => "it is unavailable; it will be tried again later",
        _ => "check that the URL is the connector's",
    }
}

fn tls_hint(cause: &io::Error) -> &'static str {
    use CertificateError as Bad;
    match tls_cause(cause) {
        Some(rustls::Error::InvalidCertificate(bad)) => match bad {
            Bad::UnknownIssuer | Bad::BadSignature => {
                "if the connector has a certificate of a private CA, name that CA's file in `tls.ca_file`"
            }
            Bad::Other(_) if tls_cause(cause).is_some_and(is_self_signed) => {
                "if it is the connector's, save it on this machine and name its file in `tls.ca_file`"
            }
            Bad::Expired | Bad::ExpiredContext { .. } | Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "check this machine's clock and the dates of the connector's certificate"
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "the certificate is for another name; check the host in the URL"
            }
            _ => "the connector's certificate cannot be accepted; report it to the connector's operator",
        },
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        )) => "the connector wants a client certificate that it trusts; set `client_cert` and `client_key`",
        Some(_) => "check that the port speaks TLS",
        None => "check that the port speaks TLS and that no firewall cuts the connection",
    }
}
