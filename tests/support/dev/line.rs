//! A line to a server that goes dead without being cut: nothing passes any more, and nobody is told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes connections on to the server behind it.
pub(crate) struct StallingLine {
    addr: SocketAddr,
    connections: Arc<Mutex<Vec<watch::Sender<bool>>>>,
}

impl StallingLine {
    pub(crate) async fn before(behind: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connections: Arc<Mutex<Vec<watch::Sender<bool>>>> = Arc::default();
        let opened = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((front, _)) = listener.accept().await {
                let stalled = watch::Sender::new(false);
                tokio::spawn(pass(front, behind, stalled.subscribe()));
                opened.lock().unwrap().push(stalled);
            }
        });
        Self { addr, connections }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.addr)
    }

    /// Passes nothing more over the connections that are open now.
    pub(crate) fn stall(&self) {
        self.set(true);
    }

    /// Takes [`stall`](Self::stall) back.
    pub(crate) fn resume(&self) {
        self.set(false);
    }

    fn set(&self, stalled: bool) {
        for connection in &*self.connections.lock().unwrap() {
            connection.send_replace(stalled);
        }
    }
}

async fn pass(front: TcpStream, behind: SocketAddr, stalled: watch::Receiver<bool>) {
    let Ok(back) = TcpStream::connect(behind).await else {
        return;
    };
    let (front, back) = (front.into_split(), back.into_split());
    tokio::join!(
        pump(front.0, back.1, stalled.clone()),
        pump(back.0, front.1, stalled)
    );
}

/// Ends the other side's half, too, when this one ends.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut stalled: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if stalled.wait_for(|stalled| !stalled).await.is_err() {
            return;
        }
        let read = tokio::select! {
            biased;
            _ = stalled.wait_for(|stalled| *stalled) => continue,
            read = from.read(&mut buffer) => read,
        };
        match read {
            Ok(count) if count > 0 && to.write_all(&buffer[..count]).await.is_ok() => {}
            _ => {
                let _ = to.shutdown().await;
                return;
            }
        }
    }
}
