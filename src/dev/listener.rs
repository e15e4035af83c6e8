//! The accept loop of the embedded servers: so many connections, all cut when the server goes down.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

const MAX_HTTP_CONNECTIONS: usize = 256;

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
        router.clone().call(request.map(Body::new))
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    let _ = served.await;
}
