//! A TCP proxy in front of the server, whose connections can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Passes connections on to a port of this machine until they are cut.
pub(super) struct Proxy {
    pub(super) port: u16,
    cuts: watch::Sender<u64>,
    is_open: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, cut) = watch::channel(0);
        let is_open = Arc::new(AtomicBool::new(true));
        let open = Arc::clone(&is_open);
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = cut.clone();
                cut.mark_unchanged();
                if !open.load(Ordering::SeqCst) {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(("127.0.0.1", to)).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self {
            port,
            cuts,
            is_open,
            task,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections; new ones are taken.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Cuts all connections, and closes new ones until [`Self::open`].
    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        self.cut();
    }

    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}
