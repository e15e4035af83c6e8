//! What the real program tells a service manager, over a real socket.

use std::path::Path;
use std::time::Duration;

use hermes_relay::dev::{Connector, ConnectorSettings};
use rustix::process::Signal;
use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::support::relay_process::{SOON, Setup};

/// The manager's end.
struct Ear {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Ear {
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
        let mut heard = Vec::new();
        while !heard.last().is_some_and(|last: &String| last.starts_with(start)) {
            heard.push(self.next().await);
        }
        heard
    }

    /// Throws away what is there, and says whether anything comes within this time.
    async fn is_silent(&self, during: Duration) -> bool {
        while self.socket.try_recv(&mut [0; 4096]).is_ok() {}
        timeout(during, self.socket.recv(&mut [0; 4096])).await.is_err()
    }
}

#[tokio::test]
async fn a_relay_reports_that_it_is_ready_connected_alive_reloading_and_stopping() {
    let ear = Ear::open();
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let mut relay = Setup::for_connector(&connector)
        .env("NOTIFY_SOCKET", &ear.path())
        .env("WATCHDOG_USEC", "400000")
        .start();
    assert_eq!(ear.next().await, "READY=1");
    let heard = ear.until("STATUS=connected: discord").await;
    assert!(heard.iter().any(|notice| notice == "STATUS=dialing"), "{heard:?}");
    for _ in 0..3 {
        ear.until("WATCHDOG=1").await;
    }

    connector.drop_sockets();
    ear.until("STATUS=not connected: ").await;
    ear.until("STATUS=connected: discord").await;

    relay.signal(Signal::HUP);
    ear.until("RELOADING=1\nMONOTONIC_USEC=").await;
    assert!(ear.until("READY=1").await.len() <= 3);

    relay.terminate();
    ear.until("STOPPING=1").await;
    assert_eq!(relay.exit_code(SOON).await, 0);
    let said = relay.stderr();
    let secret = connector.credentials().unwrap();
    assert!(!said.contains(secret.secret.expose_secret()));
}

#[tokio::test]
async fn a_relay_that_is_stuck_does_not_feed_the_watchdog() {
    let ear = Ear::open();
    let relay = Setup::with_url("ws://127.0.0.1:9")
        .env("NOTIFY_SOCKET", &ear.path())
        .env("WATCHDOG_USEC", "300000")
        .start();
    ear.until("WATCHDOG=1").await;
    relay.signal(Signal::STOP);
    assert!(ear.is_silent(Duration::from_secs(1)).await);
    relay.signal(Signal::CONT);
    ear.until("WATCHDOG=1").await;
    relay.stop().await;
}

#[tokio::test]
async fn without_a_connector_the_relay_is_ready_and_says_what_is_wrong() {
    let ear = Ear::open();
    let relay = Setup::with_url("ws://127.0.0.1:9")
        .env("NOTIFY_SOCKET", &ear.path())
        .start();
    assert_eq!(ear.next().await, "READY=1");
    let heard = ear.until("STATUS=not connected: ").await;
    assert!(
        !heard.iter().any(|notice| notice.contains("WATCHDOG")),
        "{heard:?}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_never_ready() {
    let ear = Ear::open();
    let (code, said) = Setup::with_url("ws://127.0.0.1:9")
        .env("NOTIFY_SOCKET", &ear.path())
        .setting("link.backoff_min_ms", "soon")
        .ends()
        .await;
    assert_eq!(code, 78, "{said}");
    assert!(ear.is_silent(Duration::from_millis(50)).await);
    assert!(Path::new(&ear.path()).exists());
}
