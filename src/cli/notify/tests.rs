//! What arrives at a manager's socket, in order, and what does not.

use super::*;

use std::cell::Cell;
use std::collections::BTreeMap;

/// A manager that listens, and the environment that leads to it.
struct Listening {
    socket: UnixDatagram,
    env: BTreeMap<&'static str, String>,
    _folder: tempfile::TempDir,
}

impl Listening {
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

    fn manager(&self) -> Manager {
        Manager::of(&|name| self.env.get(name).cloned(), 7)
    }

    async fn heard(&self) -> String {
        let mut buffer = [0; 4096];
        let size = self.socket.recv(&mut buffer).await.unwrap();
        String::from_utf8(buffer[..size].to_vec()).unwrap()
    }

    fn silent(&self) -> bool {
        self.socket.try_recv(&mut [0; 16]).is_err()
    }
}

#[tokio::test]
async fn notices_arrive_at_a_path_and_at_an_abstract_name() {
    let abstract_name = format!("@hermes-relay-test-{}", std::process::id());
    for name in [None, Some(abstract_name.as_str())] {
        let listening = Listening::at(name);
        let manager = listening.manager();
        manager.tell(&Notice::Ready).await;
        assert_eq!(listening.heard().await, "READY=1");
        manager.tell(&Notice::Stopping).await;
        assert_eq!(listening.heard().await, "STOPPING=1");
        manager.tell(&Notice::Reloading).await;
        let heard = listening.heard().await;
        let micros = heard.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0);
    }
}

#[tokio::test]
async fn a_status_is_one_short_line_whatever_the_connector_said() {
    let listening = Listening::at(None);
    let hostile = format!("gone\nWATCHDOG=1\r\0STOPPING=1{}", "x".repeat(9999));
    listening.manager().tell(&Notice::Status(hostile)).await;
    let heard = listening.heard().await;
    assert!(
        heard.starts_with("STATUS=gone WATCHDOG=1  STOPPING=1xxx"),
        "{heard}"
    );
    assert!(heard.len() < 220 && !heard.contains(['\n', '\r', '\0']));
}

#[tokio::test]
async fn nobody_listening_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone").display().to_string();
    for name in ["", "relative", "@", "vsock:2:1234", gone.as_str()] {
        let env = |asked: &str| (asked == "NOTIFY_SOCKET").then(|| name.to_owned());
        Manager::of(&env, 7).tell(&Notice::Ready).await;
    }
    Manager::of(&|_| None, 7).tell(&Notice::Ready).await;
}

#[tokio::test]
async fn each_change_of_the_link_is_told_once() {
    let listening = Listening::at(None);
    let manager = listening.manager();
    let (link, view) = watch::channel(LinkView::default());
    let told = async {
        assert_eq!(listening.heard().await, "STATUS=starting");
        link.send_modify(|view| view.state = "dialing".to_owned());
        assert_eq!(listening.heard().await, "STATUS=dialing");
        link.send_modify(|view| view.clock_skew_ms = Some(1));
        link.send_modify(|view| {
            view.state = "waiting".to_owned();
            view.last_loss = Some("no route".to_owned());
        });
        assert_eq!(listening.heard().await, "STATUS=not connected: no route");
    };
    tokio::select! {
        never = manager.follow(view) => match never {},
        () = told => {}
    }
    assert!(listening.silent());
}

#[tokio::test]
async fn a_relay_that_hangs_does_not_feed_the_watchdog() {
    let listening = Listening::at(None)
        .env("WATCHDOG_USEC", "20000")
        .env("WATCHDOG_PID", "7");
    let manager = listening.manager();
    let looks = Cell::new(0);
    let watching = manager.watch(|| {
        looks.set(looks.get() + 1);
        let hangs = looks.get() > 2;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            true
        }
    });
    let told = async {
        for _ in 0..2 {
            assert_eq!(listening.heard().await, "WATCHDOG=1");
        }
        while looks.get() < 6 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        never = watching => match never {},
        () = told => {}
    }
    assert!(listening.silent(), "nothing was told after the relay hung");
}

#[test]
fn a_watchdog_that_is_meant_for_another_process_is_left_alone() {
    let with =
        |pid: &str, micros: &str| Listening::watchdog(&[("WATCHDOG_PID", pid), ("WATCHDOG_USEC", micros)]);
    assert_eq!(with("7", "3000000"), Some(Duration::from_secs(3)));
    assert_eq!(with("8", "3000000"), None);
    assert_eq!(with("7", "0"), None);
    assert_eq!(with("7", "soon"), None);
    assert_eq!(
        Listening::watchdog(&[("WATCHDOG_USEC", "5")]),
        Some(Duration::from_micros(5))
    );
}

impl Listening {
    fn watchdog(vars: &[(&str, &str)]) -> Option<Duration> {
        let env = |name: &str| {
            let found = vars.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Manager::of(&env, 7).watchdog
    }
}
