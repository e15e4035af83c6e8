//! The HTTP listener: off unless wanted, on this machine unless told otherwise, and bounded.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::dev::text_event;
use http::StatusCode;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::operate::{answered, connected, connector, verb};
use crate::support::raw_http::exchange;
use crate::support::relay_process::{RelayProcess, SOON, Setup};

/// Where a relay says that it serves.
pub(crate) async fn address(relay: &RelayProcess) -> SocketAddr {
    let line = relay.wait_for_log("serving health and metrics over HTTP").await;
    let address = line
        .split("address=")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    address.unwrap().parse().unwrap()
}

/// The status and the body of an answer.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let answer = exchange(address, &request).await;
    (answer.status, answer.body)
}

fn served(setup: Setup) -> Setup {
    setup.setting("serve.http", "127.0.0.1:0")
}

#[tokio::test]
async fn each_endpoint_answers_as_documented() {
    let connector = connector().await;
    let setup = served(Setup::for_connector(&connector));
    let relay = connected(&setup).await;
    let here = address(&relay).await;
    assert!(here.ip().is_loopback());
    assert_eq!(ask(here, "GET", "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(ask(here, "GET", "/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(ask(here, "HEAD", "/readyz").await, (200, String::new()));
    let (status, page) = ask(here, "GET", "/metrics").await;
    assert!(status == 200 && page.contains("hermes_relay_link_up 1"), "{page}");
    for method in ["GET", "POST"] {
        assert_eq!(ask(here, method, "/wake").await.0, 202);
    }
    for (method, path, status) in [
        ("POST", "/", 405),
        ("GET", "/status", 404),
        ("GET", "/metrics/../control", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/wake", 405),
    ] {
        assert_eq!(ask(here, method, path).await.0, status, "{method} {path}");
    }
    let answer = exchange(here, &format!("GET /metrics HTTP/1.1\r\nHost: {here}\r\n\r\n")).await;
    assert!(answer.head.contains("text/plain; version=0.0.4"), "{answer:?}");
    relay.stop().await;
    assert!(TcpStream::connect(here).await.is_err(), "it goes with the relay");
}

#[tokio::test]
async fn the_status_page_shows_what_the_verb_shows_and_runs_nothing() {
    let connector = connector().await;
    let setup = served(Setup::for_connector(&connector));
    let relay = connected(&setup).await;
    let here = address(&relay).await;
    answered(&connector, "m1", "hello").await;
    let request = format!("GET / HTTP/1.1\r\nHost: {here}\r\n\r\n");
    let answer = exchange(here, &request).await;
    let (head, page) = (&answer.head, &answer.body);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for part in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    assert!(!page.contains("<script") && !page.contains("<form"), "{page}");
    let shown = verb(&setup, &["status"]).await.out;
    let labels = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.get(..9));
        lines.map(|label| label.trim().to_owned()).collect()
    };
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("<tr><th scope=\"row\">"));
    let rows: Vec<_> = rows.filter_map(|row| Some(row.split_once("</th>")?.0)).collect();
    assert_eq!(rows, labels(&shown), "{page}");
    assert!(page.contains("<span class=\"good\">live</span> for "), "{page}");
    assert!(page.contains("echo (echo) ready"), "{page}");
    let rebound = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(exchange(here, rebound).await.status, 421);
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_is_not_connected_is_alive_and_not_ready_and_a_knock_has_it_dial_immediately() {
    let connector = connector().await;
    connector.refuse_dials(StatusCode::SERVICE_UNAVAILABLE, Some(600));
    let setup = served(Setup::for_connector(&connector));
    let relay = setup.start();
    let here = address(&relay).await;
    relay.wait_for_log("cannot reach the connector").await;
    assert_eq!(ask(here, "GET", "/healthz").await.0, 200);
    let (status, why) = ask(here, "GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(why.contains("waiting") && why.contains("503"), "{why}");
    connector.accept_dials();
    assert_eq!(ask(here, "POST", "/wake").await.0, 202);
    connector.wait_connected(SOON).await.unwrap();
    relay.wait_for_log("connected to the connector").await;
    assert_eq!(ask(here, "GET", "/readyz").await.0, 200);
    relay.stop().await;
}

#[tokio::test]
async fn a_page_in_a_browser_reaches_nothing() {
    let connector = connector().await;
    let setup = served(Setup::for_connector(&connector));
    let relay = connected(&setup).await;
    let here = address(&relay).await;
    let rebound = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(exchange(here, rebound).await.status, 421);
    let twice = format!("GET /metrics HTTP/1.1\r\nHost: {here}\r\nHost: evil.example\r\n\r\n");
    assert_ne!(exchange(here, &twice).await.status, 200);
    let image = format!("GET /wake HTTP/1.1\r\nHost: {here}\r\nSec-Fetch-Site: cross-site\r\n\r\n");
    assert_eq!(exchange(here, &image).await.status, 403);
    relay.stop().await;
}

#[tokio::test]
async fn requests_from_other_machines_are_accepted_only_when_configured() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("serve.http", "0.0.0.0:0");
    let (code, log) = setup.ends().await;
    assert_eq!(code, 78, "{log}");
    assert!(
        log.contains("serve.allow_remote") && log.contains("relay.yaml"),
        "{log}"
    );
    let setup = setup.setting("serve.allow_remote", "true");
    let relay = connected(&setup).await;
    let here = address(&relay).await;
    assert!(here.ip().is_unspecified());
    relay.stop().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_reported_and_may_be_tried_again() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("serve.http", &address);
    let (code, log) = setup.ends().await;
    assert_eq!(code, 75, "{log}");
    assert!(log.contains(&address) && log.contains("hint:"), "{log}");
}

/// Ports that a process listens on, by the kernel's account.
fn listening(pid: i32) -> usize {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| {
            let link = link.to_string_lossy().into_owned();
            Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    assert!(!sockets.is_empty(), "a connected relay has a socket");
    let tables = ["tcp", "tcp6", "udp", "udp6"].map(|table| format!("/proc/{pid}/net/{table}"));
    let tables = tables
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok());
    let rows: Vec<String> = tables
        .flat_map(|table| table.lines().skip(1).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let is_ours = |row: &&String| {
        let fields: Vec<_> = row.split_whitespace().collect();
        fields[3] != "01" && sockets.iter().any(|socket| socket == fields[9])
    };
    rows.iter().filter(is_ours).count()
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn nothing_is_listened_on_unless_it_is_wanted() {
    let connector = connector().await;
    let relay = connected(&Setup::for_connector(&connector)).await;
    answered(&connector, "m1", "hello").await;
    assert_eq!(listening(relay.pid()), 0);
    relay.stop().await;
    let relay = connected(&served(Setup::for_connector(&connector))).await;
    assert_eq!(listening(relay.pid()), 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_busy_relay_still_answers_the_health_check() {
    const MESSAGES: usize = 1000;
    /// What asks restarts nothing before it heard nothing good so many times on end; one alone may be the machine.
    const ON_END: usize = 3;
    let connector = connector().await;
    let setup = served(Setup::for_connector(&connector));
    let relay = connected(&setup).await;
    let here = address(&relay).await;
    for number in 0..MESSAGES {
        let (chat, id) = (format!("c{number}"), format!("m{number}"));
        connector
            .deliver(&text_event("discord", &chat, &id, "x"))
            .unwrap();
    }
    let (mut well, mut ill) = (0, 0);
    while connector.sent_messages().len() < MESSAGES {
        let answer = ask(here, "GET", "/healthz").await;
        if answer.0 == 200 {
            (well, ill) = (well + 1, 0);
        } else {
            ill += 1;
        }
        assert!(
            ill < ON_END,
            "{answer:?} after it said {well} times that it lives"
        );
        // Whoever asks without a pause takes the time that the messages need.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(well > 0);
    relay.stop().await;
}

#[tokio::test]
async fn slow_and_wordy_clients_cost_only_their_own_connections() {
    let connector = connector().await;
    let setup = served(Setup::for_connector(&connector));
    let relay = connected(&setup).await;
    let here = address(&relay).await;
    let mut slow = Vec::new();
    for _ in 0..80 {
        let mut stream = TcpStream::connect(here).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHo").await.unwrap();
        slow.push(stream);
    }
    timeout(Duration::from_secs(4), answered(&connector, "m1", "hello"))
        .await
        .expect("chats do not wait for monitors");
    assert_eq!(
        ask(here, "GET", "/healthz").await.0,
        200,
        "once the slow ones are hung up on"
    );
    let wordy = format!(
        "GET /healthz HTTP/1.1\r\nHost: {here}\r\nX: {}\r\n\r\n",
        "y".repeat(100_000)
    );
    assert_ne!(exchange(here, &wordy).await.status, 200);
    let nonsense = exchange(here, "\u{1}\u{2} nonsense\r\n\r\n").await;
    assert_ne!(nonsense.status, 200, "{nonsense:?}");
    assert_eq!(ask(here, "GET", "/healthz").await.0, 200);
    relay.stop().await;
}
