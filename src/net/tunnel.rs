//! Getting through a proxy: HTTP `CONNECT` and SOCKS 5 over an open TCP connection.
//!
//! The proxy learns the target's host and port and its own credentials, nothing else: the bearer and
//! everything that follows travels inside the tunnel.

use std::future::{Ready, ready};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::proxy::SocksV5;
use hyper_util::rt::TokioIo;
use secrecy::ExposeSecret;
use tokio::net::TcpStream;
use tower_service::Service;

use super::connect;
use super::proxy::{ProxyCredentials, ProxyScheme, ProxyTarget};

/// The most bytes of an answer to `CONNECT` that are kept.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Why a proxy refused a tunnel, with the HTTP status if there was one.
#[derive(Debug)]
pub(crate) struct TunnelError {
    pub(crate) status: Option<u16>,
    pub(crate) reason: String,
}

impl TunnelError {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            status: None,
            reason: reason.into(),
        }
    }
}

/// Connects to `proxy` and asks it for a tunnel to `host`, bracketed when it is an IPv6 address.
pub(crate) async fn open(proxy: &ProxyTarget, host: &str, port: u16) -> Result<TcpStream, TunnelError> {
    match proxy.scheme {
        ProxyScheme::Http => {
            let stream = reach(proxy).await?;
            http_connect(stream, &format!("{host}:{port}"), proxy.credentials.as_ref()).await
        }
        ProxyScheme::Socks5h => socks5(proxy, &format!("{host}:{port}")).await,
        ProxyScheme::Socks5 => {
            let found = connect::resolve(host.trim_matches(['[', ']']), port).await;
            let addresses = found
                .map_err(|error| TunnelError::new(format!("cannot resolve the connector's name: {error}")))?;
            let first = addresses
                .first()
                .ok_or_else(|| TunnelError::new("the connector's name has no address"))?;
            socks5(proxy, &first.to_string()).await
        }
        unsupported @ (ProxyScheme::Https | ProxyScheme::Socks4 | ProxyScheme::Socks4a) => {
            Err(TunnelError::new(format!(
                "{}:// proxies are not supported; use an http:// or socks5:// one",
                unsupported.as_str()
            )))
        }
    }
}

async fn reach(proxy: &ProxyTarget) -> Result<TcpStream, TunnelError> {
    let unreachable = |error: io::Error| {
        TunnelError::new(format!(
            "it cannot be reached ({error}); check the proxy settings"
        ))
    };
    let addresses = connect::resolve(&proxy.host, proxy.port)
        .await
        .map_err(unreachable)?;
    connect::connect(&addresses).await.map_err(unreachable)
}

async fn http_connect(
    stream: TcpStream,
    authority: &str,
    credentials: Option<&ProxyCredentials>,
) -> Result<TcpStream, TunnelError> {
    let garbled = |_| TunnelError::new("its answer is not HTTP, or it hung up");
    let request = connect_request(authority, credentials)
        .map_err(|_| TunnelError::new("the connector's host cannot be asked for"))?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_ANSWER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(garbled)?;
    let mut exchange = pin!(async {
        let answer = sender.send_request(request).await.map_err(garbled)?;
        match answer.status() {
            status if status.is_success() => hyper::upgrade::on(answer).await.map_err(garbled),
            status => Err(refusal(status, credentials.is_some())),
        }
    });
    // The connection has to be polled for the exchange to move; when it ends first the exchange has its answer.
    let upgraded = tokio::select! {
        biased;
        done = &mut exchange => done,
        _ = connection.with_upgrades() => exchange.await,
    }?;
    let parts = upgraded
        .downcast::<TokioIo<TcpStream>>()
        .map_err(|_| TunnelError::new("the tunnel cannot be taken over"))?;
    if !parts.read_buf.is_empty() {
        return Err(TunnelError::new("it sent data of its own into the tunnel"));
    }
    Ok(parts.io.into_inner())
}

fn connect_request(
    authority: &str,
    credentials: Option<&ProxyCredentials>,
) -> Result<Request<String>, http::Error> {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri(authority)
        .header(HOST, authority);
    if let Some(credentials) = credentials {
        let mut value = HeaderValue::from_str(credentials.basic().expose_secret())?;
        value.set_sensitive(true);
        request = request.header(PROXY_AUTHORIZATION, value);
    }
    request.body(String::new())
}

fn refusal(status: StatusCode, had_credentials: bool) -> TunnelError {
    let reason = match (status, had_credentials) {
        (StatusCode::PROXY_AUTHENTICATION_REQUIRED, false) => {
            "it wants credentials; put user:password@ in front of its host in the proxy setting"
        }
        (StatusCode::PROXY_AUTHENTICATION_REQUIRED, true) => {
            "it does not accept the credentials of the proxy setting; correct them"
        }
        (StatusCode::FORBIDDEN, _) => {
            "it does not allow this target; ask whoever runs it, or list the host in NO_PROXY"
        }
        _ => "check the proxy, or list the host in NO_PROXY",
    };
    TunnelError {
        status: Some(status.as_u16()),
        reason: reason.to_owned(),
    }
}

async fn socks5(proxy: &ProxyTarget, authority: &str) -> Result<TcpStream, TunnelError> {
    let bad_target = |_| TunnelError::new("the connector's host cannot be asked for");
    let target = Uri::builder()
        .scheme("https")
        .authority(authority)
        .path_and_query("/");
    let target = target.build().map_err(bad_target)?;
    let stream = reach(proxy).await?;
    let mut socks = SocksV5::new(Uri::default(), ProxyStream(Some(TokioIo::new(stream))));
    if let Some(credentials) = &proxy.credentials {
        let password = credentials.password.expose_secret().to_owned();
        socks = socks.with_auth(credentials.user.clone(), password);
    }
    match socks.call(target).await {
        Ok(stream) => Ok(stream.into_inner()),
        Err(error) => Err(TunnelError::new(format!("SOCKS: {error}"))),
    }
}

/// A connection that is already there, in the shape of something that makes one.
struct ProxyStream(Option<TokioIo<TcpStream>>);

impl Service<Uri> for ProxyStream {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}
