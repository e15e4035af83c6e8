//! Why a dial failed, in words a person can act on.
//!
//! No variant holds a secret: neither the bearer nor a proxy's password nor the dial URL gets here.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use rustls::{AlertDescription, CertificateError};

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The dial URL is not a WebSocket URL.
    #[error(
        "the connector URL cannot be dialled: {reason}; it should look like wss://connector.example/relay"
    )]
    Url {
        /// What is wrong with it, without the URL itself.
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
        /// The host.
        host: String,
    },
    /// The connector's name does not resolve.
    #[error("cannot resolve {host}: {cause}; check the URL and this machine's DNS")]
    Dns {
        /// The name.
        host: String,
        /// What the resolver said.
        cause: io::Error,
    },
    /// No address of the connector accepts a connection.
    #[error(
        "cannot connect to {host} port {port}: {cause}; check that the connector runs there and no firewall is in between"
    )]
    Connect {
        /// The connector's host.
        host: String,
        /// The connector's port.
        port: u16,
        /// What the system said about the last address tried.
        cause: io::Error,
    },
    /// The proxy cannot be reached or gives no tunnel.
    #[error("no tunnel through the proxy {proxy}{}: {reason}", shown_status(*status))]
    Proxy {
        /// The proxy's host and port.
        proxy: String,
        /// The HTTP status it answered with, if it answered.
        status: Option<u16>,
        /// Why, and what to do.
        reason: String,
    },
    /// The TLS handshake failed.
    #[error("no secure connection to {host}: {cause}; {}", tls_hint(cause))]
    Tls {
        /// The connector's host.
        host: String,
        /// What went wrong; holds a [`rustls::Error`] unless the connection itself broke.
        cause: io::Error,
    },
    /// A stage of the dial took too long.
    #[error("gave up after {} s while {stage}; check the network, or whether the connector is overloaded", after.as_secs_f32())]
    Timeout {
        /// What was being waited for.
        stage: Stage,
        /// The whole time the dial was given.
        after: Duration,
    },
    /// The connector answered the upgrade with a status other than 101.
    #[error("the connector refused the connection with HTTP {status}: {}", refusal_hint(*status))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// How long it asks to be left alone, at most a day.
        retry_after: Option<Duration>,
        /// Its clock.
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
    /// How long the connector asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

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
                "if the connector has a certificate of a private CA, name that CA's file in `ca_file`"
            }
            Bad::Expired | Bad::ExpiredContext { .. } | Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "check this machine's clock and the dates of the connector's certificate"
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "the certificate is for another name; check the host in the URL"
            }
            _ => "the connector's certificate cannot be accepted; tell whoever runs it",
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
