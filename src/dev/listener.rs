//! The accept loop of the embedded servers: so many connections, all cut when the server goes down.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

const MAX_HTTP_CONNECTIONS: usize = 256;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Among the extensions of an answer: the connection is closed, and the answer is not sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutConnection;

/// The port of a server that can go down and come up again.
pub(super) enum ServerPort {
    Open {
        down: CancellationToken,
        task: JoinHandle<()>,
    },
    /// Still bound where that can be, so that nobody else is given it: the system refuses whoever dials.
    Closed(Option<TcpSocket>),
}

impl ServerPort {
    /// Closes it, if it is open, and waits until nobody listens.
    pub(super) async fn close(&mut self, addr: SocketAddr) {
        if let Self::Open { down, task } = self {
            down.cancel();
            let _ = task.await;
            *self = Self::Closed(hold(addr).ok());
        }
    }

    /// A listener on the port, if it was closed.
    pub(super) async fn reopen(&mut self, addr: SocketAddr) -> io::Result<Option<TcpListener>> {
        let Self::Closed(held) = self else {
            return Ok(None);
        };
        let listener = match held.take() {
            Some(socket) => socket.listen(BACKLOG)?,
            None => TcpListener::bind(addr).await?,
        };
        Ok(Some(listener))
    }
}

/// Binds the port without listening.
fn hold(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // As a listener has it: connections of before may not have ended.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

/// Serves connections until `down`.
pub(super) async fn accept(listener: TcpListener, router: Router, down: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_HTTP_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = down.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((socket, _)) = accepted else {
            // Out of descriptors, most likely: give the sockets that are open a moment to end.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let (router, down) = (router.clone(), down.clone());
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = down.cancelled() => {}
                    () = serve(socket, router) => {}
                }
                drop(place);
            });
        }
    }
}

async fn serve(socket: TcpStream, router: Router) {
    let _ = socket.set_nodelay(true);
    let service = hyper::service::service_fn(move |request: http::Request<Incoming>| {
        let answering = router.clone().call(request.map(Body::new));
        async move {
            let Ok(response) = answering.await;
            match response.extensions().get::<CutConnection>() {
                Some(_) => Err(io::Error::other("cut on request")),
                None => Ok(response),
            }
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    let _ = served.await;
}
