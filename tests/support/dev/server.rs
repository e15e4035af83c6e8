//! A port that goes down and comes up again, and connections that are cut on request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Among the extensions of an answer: the connection is closed, and the answer is not sent.
#[derive(Clone, Copy, Debug)]
struct CutConnection;

/// No answer: the connection is closed.
pub(crate) fn cut() -> Response {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(CutConnection);
    response
}

/// A server on 127.0.0.1.
pub(crate) struct Server {
    addr: SocketAddr,
    router: Router,
    stop: CancellationToken,
    port: Mutex<Port>,
}

enum Port {
    Open {
        down: CancellationToken,
        task: JoinHandle<()>,
    },
    /// Still bound where that can be, so that nobody else is given it: the system refuses whoever dials.
    Closed(Option<TcpSocket>),
}

/// Binds a port; 0 takes a free one.
pub(crate) async fn bind(port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

impl Server {
    /// Serves a router until `stop`.
    pub(crate) fn start(
        listener: TcpListener,
        addr: SocketAddr,
        router: Router,
        stop: CancellationToken,
    ) -> Self {
        let port = Mutex::new(listen(listener, &router, &stop));
        Self {
            addr,
            router,
            stop,
            port,
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Closes the port and cuts its connections.
    pub(crate) async fn take_down(&self) {
        let mut port = self.port.lock().await;
        if let Port::Open { down, task } = &mut *port {
            down.cancel();
            let _ = task.await;
            *port = Port::Closed(hold(self.addr).ok());
        }
    }

    /// Takes [`take_down`](Self::take_down) back, on the same port.
    pub(crate) async fn bring_up(&self) -> io::Result<()> {
        let mut port = self.port.lock().await;
        let Port::Closed(held) = &mut *port else {
            return Ok(());
        };
        let listener = match held.take() {
            Some(socket) => socket.listen(BACKLOG)?,
            None => TcpListener::bind(self.addr).await?,
        };
        *port = listen(listener, &self.router, &self.stop);
        Ok(())
    }
}

fn listen(listener: TcpListener, router: &Router, stop: &CancellationToken) -> Port {
    let down = stop.child_token();
    let task = tokio::spawn(accept(listener, router.clone(), down.clone()));
    Port::Open { down, task }
}

/// Binds the port without listening.
fn hold(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // As a listener has it: connections of before may not have ended.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

async fn accept(listener: TcpListener, router: Router, down: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = down.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        if let Ok((socket, _)) = accepted {
            let (router, down) = (router.clone(), down.clone());
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = down.cancelled() => {}
                    () = serve(socket, router) => {}
                }
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
