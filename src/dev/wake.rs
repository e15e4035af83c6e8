//! The wake poke: one bodiless GET to a sleeping gateway's wake URL, on loopback only, best effort.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::state::Hub;
use crate::wire::is_loopback_host;

const PATIENCE: Duration = Duration::from_secs(10);

/// Pokes in the background; whether that worked is told to nobody, as by real connectors.
pub(super) fn poke(hub: &Arc<Hub>, url: Url) {
    let stop = hub.stop.clone();
    hub.runtime.spawn(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = timeout(PATIENCE, fetch(&url)) => {}
        }
    });
}

async fn fetch(url: &Url) -> Option<()> {
    let host = url.host_str().filter(|host| is_loopback_host(host))?;
    if url.scheme() != "http" {
        return None;
    }
    let port = url.port_or_known_default()?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let socket = TcpStream::connect((bare, port)).await.ok()?;
    if !socket.peer_addr().ok()?.ip().is_loopback() {
        return None;
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(socket))
        .await
        .ok()?;
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let request = Request::builder()
        .method(Method::GET)
        .uri(target)
        .header(header::HOST, format!("{host}:{port}"))
        .header(header::CONNECTION, "close")
        .body(Body::empty())
        .ok()?;
    let exchange = async {
        sender.send_request(request).await.ok()?;
        drop(sender);
        Some(())
    };
    let (_, answered) = tokio::join!(connection, exchange);
    answered
}
