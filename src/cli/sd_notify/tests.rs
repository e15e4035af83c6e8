//! What arrives at the service manager's socket.

use super::*;

use std::cell::Cell;
use std::collections::BTreeMap;

/// A listener service manager and the environment that names it.
struct NotifySocket {
    socket: UnixDatagram,
    env: BTreeMap<&'static str, String>,
    _folder: tempfile::TempDir,
}

impl NotifySocket {
    fn at(name: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify").display().to_string();
        let name = name.unwrap_or(&path);
        let socket = std::os::unix::net::UnixDatagram::bind_addr(&address(name).unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket: UnixDatagram::from_std(socket).unwrap(),
            env: BTreeMap::from([("NOTIFY_SOCKET", name.to_owned())]),
            _folder: folder,
        }
    }

    fn env(mut self, name: &'static str, value: &str) -> Self {
        self.env.insert(name, value.to_owned());
        self
    }

    fn manager(&self) -> ServiceManager {
        ServiceManager::from_env(&|name| self.env.get(name).cloned(), 7)
    }

    async fn receive(&self) -> String {
        let mut buffer = [0; 4096];
        let size = self.socket.recv(&mut buffer).await.unwrap();
        String::from_utf8(buffer[..size].to_vec()).unwrap()
    }

    fn is_empty(&self) -> bool {
        self.socket.try_recv(&mut [0; 16]).is_err()
    }
}

#[tokio::test]
async fn notifications_arrive_at_a_path_and_at_an_abstract_name() {
    let abstract_name = format!("@hermes-relay-test-{}", std::process::id());
    for name in [None, Some(abstract_name.as_str())] {
        let listener = NotifySocket::at(name);
        let manager = listener.manager();
        manager.notify(&Notification::Ready).await;
        assert_eq!(listener.receive().await, "READY=1");
        manager.notify(&Notification::Stopping).await;
        assert_eq!(listener.receive().await, "STOPPING=1");
        manager.notify(&Notification::Reloading).await;
        let received = listener.receive().await;
        let micros = received.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0);
    }
}

#[tokio::test]
async fn a_status_is_one_short_line() {
    let listener = NotifySocket::at(None);
    let hostile = format!("gone\nWATCHDOG=1\r\0STOPPING=1{}", "x".repeat(9999));
    listener.manager().notify(&Notification::Status(hostile)).await;
    let received = listener.receive().await;
    assert!(
        received.starts_with("STATUS=gone WATCHDOG=1  STOPPING=1xxx"),
        "{received}"
    );
    assert!(received.len() < 220 && !received.contains(['\n', '\r', '\0']));
}

#[tokio::test]
async fn a_missing_manager_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone").display().to_string();
    for name in ["", "relative", "@", "vsock:2:1234", gone.as_str()] {
        let env = |asked: &str| (asked == "NOTIFY_SOCKET").then(|| name.to_owned());
        ServiceManager::from_env(&env, 7)
            .notify(&Notification::Ready)
            .await;
    }
    ServiceManager::from_env(&|_| None, 7)
        .notify(&Notification::Ready)
        .await;
}

#[tokio::test]
async fn each_change_of_the_link_is_reported_once() {
    let listener = NotifySocket::at(None);
    let manager = listener.manager();
    let (link, view) = watch::channel(LinkStatus::default());
    let received = async {
        assert_eq!(listener.receive().await, "STATUS=starting");
        link.send_modify(|view| view.state = "dialing".to_owned());
        assert_eq!(listener.receive().await, "STATUS=dialing");
        link.send_modify(|view| view.clock_skew_ms = Some(1));
        link.send_modify(|view| {
            view.state = "waiting".to_owned();
            view.last_loss = Some("no route".to_owned());
        });
        assert_eq!(listener.receive().await, "STATUS=not connected: no route");
    };
    tokio::select! {
        never = manager.report_link(view) => match never {},
        () = received => {}
    }
    assert!(listener.is_empty());
}

#[tokio::test]
async fn a_stuck_relay_does_not_feed_the_watchdog() {
    let listener = NotifySocket::at(None)
        .env("WATCHDOG_USEC", "20000")
        .env("WATCHDOG_PID", "7");
    let manager = listener.manager();
    let checks = Cell::new(0);
    let watchdog = manager.watchdog(|| {
        checks.set(checks.get() + 1);
        let is_stuck = checks.get() > 2;
        async move {
            if is_stuck {
                std::future::pending::<()>().await;
            }
            true
        }
    });
    let received = async {
        for _ in 0..2 {
            assert_eq!(listener.receive().await, "WATCHDOG=1");
        }
        while checks.get() < 6 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        never = watchdog => match never {},
        () = received => {}
    }
    assert!(listener.is_empty(), "nothing is sent after the relay got stuck");
}

#[test]
fn a_watchdog_for_another_process_is_ignored() {
    let with =
        |pid: &str, micros: &str| NotifySocket::watchdog(&[("WATCHDOG_PID", pid), ("WATCHDOG_USEC", micros)]);
    assert_eq!(with("7", "3000000"), Some(Duration::from_secs(3)));
    assert_eq!(with("8", "3000000"), None);
    assert_eq!(with("7", "0"), None);
    assert_eq!(with("7", "soon"), None);
    assert_eq!(
        NotifySocket::watchdog(&[("WATCHDOG_USEC", "5")]),
        Some(Duration::from_micros(5))
    );
}

impl NotifySocket {
    fn watchdog(vars: &[(&str, &str)]) -> Option<Duration> {
        let env = |name: &str| {
            let found = vars.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        ServiceManager::from_env(&env, 7).watchdog
    }
}
