//! What the real program tells a service manager, over a real socket.

use std::path::Path;
use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings};
use rustix::process::Signal;
use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::support::relay_process::{SOON, Setup};

/// The manager's end.
struct NotifySocket {
    socket: UnixDatagram,
    folder: TempDir,
}

impl NotifySocket {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        Self { socket, folder }
    }

    fn path(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    async fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let size = timeout(SOON, self.socket.recv(&mut buffer)).await;
        let size = size.expect("the manager is told something").unwrap();
        String::from_utf8(buffer[..size].to_vec()).unwrap()
    }

    /// Everything up to the notice that begins like this.
    async fn until(&self, start: &str) -> Vec<String> {
        let mut received = Vec::new();
        while !received
            .last()
            .is_some_and(|last: &String| last.starts_with(start))
        {
            received.push(self.next().await);
        }
        received
    }

    /// Throws away what is there, and says whether anything comes within this time.
    async fn is_silent(&self, during: Duration) -> bool {
        while self.socket.try_recv(&mut [0; 4096]).is_ok() {}
        timeout(during, self.socket.recv(&mut [0; 4096])).await.is_err()
    }
}

#[tokio::test]
async fn a_relay_reports_that_it_is_ready_connected_alive_reloading_and_stopping() {
    let socket = NotifySocket::open();
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let mut relay = Setup::for_connector(&connector)
        .env("NOTIFY_SOCKET", &socket.path())
        .env("WATCHDOG_USEC", "400000")
        .start();
    assert_eq!(socket.next().await, "READY=1");
    let received = socket.until("STATUS=connected: discord").await;
    assert!(
        received.iter().any(|notice| notice == "STATUS=dialing"),
        "{received:?}"
    );
    for _ in 0..3 {
        socket.until("WATCHDOG=1").await;
    }

    connector.drop_sockets();
    socket.until("STATUS=not connected: ").await;
    socket.until("STATUS=connected: discord").await;

    relay.signal(Signal::HUP);
    socket.until("RELOADING=1\nMONOTONIC_USEC=").await;
    let mut received = socket.until("READY=1").await;
    received.retain(|notice| notice != "WATCHDOG=1");
    assert!(received.len() <= 3, "{received:?}");

    relay.terminate();
    socket.until("STOPPING=1").await;
    assert_eq!(relay.exit_code(SOON).await, 0);
    let log = relay.stderr();
    let secret = connector.credentials().unwrap();
    assert!(!log.contains(secret.secret.expose_secret()));
}

#[tokio::test]
async fn a_relay_that_is_stuck_does_not_feed_the_watchdog() {
    let socket = NotifySocket::open();
    let relay = Setup::with_url("ws://127.0.0.1:9")
        .env("NOTIFY_SOCKET", &socket.path())
        .env("WATCHDOG_USEC", "300000")
        .start();
    socket.until("WATCHDOG=1").await;
    relay.freeze().await;
    assert!(socket.is_silent(Duration::from_secs(1)).await);
    relay.signal(Signal::CONT);
    socket.until("WATCHDOG=1").await;
    relay.stop().await;
}

#[tokio::test]
async fn without_a_connector_the_relay_is_ready_and_says_what_is_wrong() {
    let socket = NotifySocket::open();
    let relay = Setup::with_url("ws://127.0.0.1:9")
        .env("NOTIFY_SOCKET", &socket.path())
        .start();
    assert_eq!(socket.next().await, "READY=1");
    let received = socket.until("STATUS=not connected: ").await;
    assert!(
        !received.iter().any(|notice| notice.contains("WATCHDOG")),
        "{received:?}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_never_ready() {
    let socket = NotifySocket::open();
    let (code, log) = Setup::with_url("ws://127.0.0.1:9")
        .env("NOTIFY_SOCKET", &socket.path())
        .setting("link.backoff_min_ms", "soon")
        .ends()
        .await;
    assert_eq!(code, 78, "{log}");
    assert!(socket.is_silent(Duration::from_millis(50)).await);
    assert!(Path::new(&socket.path()).exists());
}
