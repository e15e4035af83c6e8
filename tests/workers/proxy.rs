//! A TCP proxy in front of the server, whose connections can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A cut of some connections is for one in so many.
const PARTS: u64 = 3;

/// Passes connections on to a port of this machine until they are cut.
pub(super) struct Proxy {
    pub(super) port: u16,
    /// Counts the cuts, and says which connections the last one is for.
    cuts: watch::Sender<(u64, Option<u64>)>,
    is_open: Arc<AtomicBool>,
    cut_links: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, cut) = watch::channel((0, None));
        let is_open = Arc::new(AtomicBool::new(true));
        let open = Arc::clone(&is_open);
        let cut_links = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&cut_links);
        let task = tokio::spawn(async move {
            let mut number = 0;
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = cut.clone();
                cut.mark_unchanged();
                number += 1;
                let (own, counted) = (number % PARTS, Arc::clone(&counted));
                if !open.load(Ordering::SeqCst) {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(("127.0.0.1", to)).await else {
                        return;
                    };
                    let is_cut = async {
                        while cut.changed().await.is_ok() {
                            let (_, which) = *cut.borrow_and_update();
                            if which.is_none_or(|which| which == own) {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        () = is_cut => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    }
                });
            }
        });
        Self {
            port,
            cuts,
            is_open,
            cut_links,
            task,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections; new ones are taken.
    pub(super) fn cut(&self) {
        self.cuts
            .send_modify(|(cuts, part)| (*cuts, *part) = (*cuts + 1, None));
    }

    /// Cuts some of the connections at a time, at random times, until the task is aborted.
    pub(super) fn cut_at_random(&self, mut seed: u64) -> JoinHandle<()> {
        let cuts = self.cuts.clone();
        tokio::spawn(async move {
            loop {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let random = seed >> 33;
                tokio::time::sleep(Duration::from_millis(50 + random % 200)).await;
                let which = Some(random % PARTS);
                cuts.send_modify(|(cuts, part)| (*cuts, *part) = (*cuts + 1, which));
            }
        })
    }

    /// Connections that were cut so far.
    pub(super) fn cut_links(&self) -> u64 {
        self.cut_links.load(Ordering::Relaxed)
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
