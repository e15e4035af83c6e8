//! Dialling a connector: real sockets on loopback, from the upgrade request to every kind of refusal.

mod proxied;
mod secure;
mod server;

use std::time::{Duration, UNIX_EPOCH};

use futures_util::{SinkExt, StreamExt};
use hermes_relay::net::proxy::ProxyRules;
use hermes_relay::net::socket::{DialError, DialRequest, Dialer, Stage};
use hermes_relay::net::tls::{TlsSettings, client_config};
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::support::port::free_port;
use server::{Answer, PATIENCE, SILENCE, Server, assert_echoes, dialer, header, request};

const DATE: &str = "Date: Tue, 15 Nov 1994 12:00:00 GMT\r\n";
const DATE_SECS: u64 = 784_900_800;

fn answer(status: &str, headers: &str) -> Answer {
    Answer::Raw(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n{headers}\r\n"))
}

#[tokio::test]
async fn the_upgrade_request_has_the_headers_of_the_contract_and_no_other() {
    let mut server = Server::start(Answer::Echo(DATE)).await;
    let bearer = SecretString::from("Z3c6MQ-_token");
    let url = format!("ws://user:hunter2@localhost:{}/relay?a=1#part", server.port);
    let mut dialed = dialer()
        .dial(DialRequest {
            bearer: Some(&bearer),
            ..request(&url)
        })
        .await
        .expect("a socket");
    assert_eq!(
        dialed.server_date,
        Some(UNIX_EPOCH + Duration::from_secs(DATE_SECS))
    );

    let head = server.asked().await;
    assert!(head.starts_with("GET /relay?a=1 HTTP/1.1\r\n"), "{head}");
    assert_eq!(
        header(&head, "Host"),
        Some(format!("localhost:{}", server.port).as_str())
    );
    assert_eq!(header(&head, "authorization"), Some("Bearer Z3c6MQ-_token"));
    assert_eq!(header(&head, "user-agent"), Some("hermes-relay/test"));
    assert_eq!(header(&head, "Sec-WebSocket-Version"), Some("13"));
    let names = |lines: &mut dyn Iterator<Item = &str>| {
        let names = lines.filter_map(|line| Some(line.split(':').next()?.to_lowercase()));
        let mut names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names
    };
    let trace: Value = serde_json::from_str(include_str!("../../vectors/wire-trace.json")).unwrap();
    let recorded = trace["upgrade"]["headers_in_order"].as_array().unwrap();
    // Compression is not offered.
    let mut recorded = recorded
        .iter()
        .filter_map(Value::as_str)
        .filter(|line| !line.starts_with("Sec-WebSocket-Extensions"));
    for line in recorded.clone().filter(|line| !line.contains(['<', '/'])) {
        if let Some((name, value)) = line.split_once(": ") {
            assert_eq!(header(&head, name), Some(value));
        }
    }
    assert_eq!(names(&mut head.lines().skip(1)), names(&mut recorded));
    assert!(!head.contains("hunter2"), "{head}");
    assert_echoes(&mut dialed).await;
}

#[tokio::test]
async fn without_a_bearer_the_dial_is_unauthenticated() {
    let mut server = Server::start(Answer::Echo("")).await;
    let url = format!("ws://127.0.0.1:{}/relay", server.port);
    let dialed = dialer().dial(request(&url)).await.expect("a socket");
    assert_eq!(dialed.server_date, None);
    assert_eq!(header(&server.asked().await, "authorization"), None);
}

#[tokio::test]
async fn refusals_carry_status_wait_and_clock() {
    for (status, headers, code, wait) in [
        ("401 Unauthorized", "", 401, None),
        ("403 Forbidden", "Retry-After: soon\r\n", 403, None),
        ("503 Service Unavailable", "Retry-After: 17\r\n", 503, Some(17)),
        (
            "429 Too Many Requests",
            "Retry-After: Tue, 15 Nov 1994 12:00:42 GMT\r\n",
            429,
            Some(42),
        ),
        ("200 OK", "", 200, None),
    ] {
        let server = Server::start(answer(status, &format!("{DATE}{headers}"))).await;
        let url = format!("ws://localhost:{}/relay", server.port);
        let refused = dialer().dial(request(&url)).await.expect_err("a refusal");
        let wait = wait.map(Duration::from_secs);
        assert!(
            matches!(refused, DialError::Refused { status, retry_after, .. } if (status, retry_after) == (code, wait)),
            "{refused:?}"
        );
        assert_eq!(
            refused.server_date(),
            Some(UNIX_EPOCH + Duration::from_secs(DATE_SECS))
        );
        assert!(refused.to_string().contains(&code.to_string()), "{refused}");
    }
}

#[tokio::test]
async fn a_redirect_is_refused_and_its_target_never_contacted() {
    let elsewhere = Server::start(Answer::Echo("")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("Location: ws://u:p@localhost:{}/relay\r\n", elsewhere.port);
        let server = Server::start(answer(&format!("{status} Moved"), &location)).await;
        let url = format!("ws://127.0.0.1:{}/relay", server.port);
        let bearer = SecretString::from("token");
        let request = DialRequest {
            bearer: Some(&bearer),
            ..request(&url)
        };
        let refused = dialer().dial(request).await.expect_err("a redirect");
        match &refused {
            DialError::Redirected {
                status: seen,
                location_host,
            } => {
                assert_eq!(*seen, status);
                assert_eq!(location_host.as_deref(), Some("localhost"));
            }
            other => panic!("{other}"),
        }
        assert!(!refused.to_string().contains("u:p"), "{refused}");
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn plaintext_over_a_network_is_refused_before_any_packet() {
    let server = Server::start(Answer::Echo("")).await;
    // Every address of this machine answers here, but only a loopback one may go without encryption.
    let url = format!("ws://0.0.0.0:{}/relay", server.port);
    let refused = dialer().dial(request(&url)).await.expect_err("plaintext");
    assert!(
        matches!(&refused, DialError::Plaintext { host } if host == "0.0.0.0"),
        "{refused}"
    );
    assert!(refused.to_string().contains("allow_plaintext: true"), "{refused}");
    assert_eq!(server.connections(), 0);

    let allowed = DialRequest {
        allow_plaintext: true,
        ..request(&url)
    };
    let mut dialed = dialer().dial(allowed).await.expect("a socket");
    assert_echoes(&mut dialed).await;
}

#[tokio::test]
async fn urls_that_cannot_be_dialled_are_refused_without_being_quoted() {
    for url in [
        "",
        "hunter2.example/relay",
        "https://user:hunter2@h/relay",
        "ws://hunter2:0/relay",
        "ws:///",
    ] {
        let refused = dialer().dial(request(url)).await.expect_err("a bad URL");
        assert!(matches!(refused, DialError::Url { .. }), "{url}: {refused}");
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
    let bearer = SecretString::from("line\r\nbreak");
    let request = DialRequest {
        bearer: Some(&bearer),
        ..request("ws://localhost:9/relay")
    };
    let refused = dialer().dial(request).await.expect_err("a bad bearer");
    assert!(
        matches!(
            refused,
            DialError::Header {
                name: "Authorization"
            }
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn silence_ends_in_a_timeout_that_names_the_stage() {
    let server = Server::start(Answer::Silence).await;
    let tls = client_config(&TlsSettings::default()).expect("TLS settings");
    let dialer = Dialer::new(tls, ProxyRules::none(), SILENCE);
    for (scheme, expected) in [("ws", Stage::Upgrade), ("wss", Stage::Tls)] {
        let url = format!("{scheme}://localhost:{}/relay", server.port);
        let dial = timeout(PATIENCE, dialer.dial(request(&url)));
        let error = dial.await.expect("no hang").expect_err("silence");
        assert!(
            matches!(error, DialError::Timeout { stage, .. } if stage == expected),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_closed_port_is_a_connect_error() {
    let url = format!("ws://localhost:{}/relay", free_port());
    let error = dialer().dial(request(&url)).await.expect_err("nobody there");
    assert!(matches!(error, DialError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn answers_that_are_no_upgrade_are_upgrade_errors() {
    for raw in [
        "",
        "SSH-2.0-OpenSSH_9.6\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
    ] {
        let server = Server::start(Answer::Raw(raw.to_owned())).await;
        let url = format!("ws://localhost:{}/relay", server.port);
        let error = dialer().dial(request(&url)).await.expect_err("no upgrade");
        assert!(matches!(error, DialError::Upgrade { .. }), "{raw:?}: {error}");
    }
    let endless = Server::start(Answer::Raw(
        "HTTP/1.1 101 X\r\n".to_owned() + &"a: b\r\n".repeat(100_000),
    ))
    .await;
    let url = format!("ws://localhost:{}/relay", endless.port);
    let error = dialer().dial(request(&url)).await.expect_err("too many headers");
    assert!(matches!(error, DialError::Upgrade { .. }), "{error}");
}

#[tokio::test]
async fn compression_that_was_not_offered_is_refused() {
    let server = Server::start(Answer::Echo("Sec-WebSocket-Extensions: permessage-deflate\r\n")).await;
    let url = format!("ws://localhost:{}/relay", server.port);
    let error = dialer().dial(request(&url)).await.expect_err("an extension");
    assert!(matches!(error, DialError::Upgrade { .. }), "{error}");
}

#[tokio::test]
async fn a_message_over_the_bound_is_a_capacity_error() {
    let server = Server::start(Answer::Echo("")).await;
    let url = format!("ws://localhost:{}/relay", server.port);
    let small = DialRequest {
        max_message_bytes: 1024,
        ..request(&url)
    };
    let mut dialed = dialer().dial(small).await.expect("a socket");
    for (size, fits) in [(1024, true), (1025, false)] {
        dialed
            .socket
            .send(Message::text("x".repeat(size)))
            .await
            .expect("sent");
        let echo = timeout(PATIENCE, dialed.socket.next())
            .await
            .expect("an echo in time");
        match echo.expect("an answer") {
            Ok(message) => assert!(fits && message.len() == size, "{size}"),
            Err(error) => assert!(!fits && matches!(error, Error::Capacity(_)), "{error}"),
        }
    }
}

#[tokio::test]
async fn the_write_buffer_is_bounded_even_when_tiny() {
    for bound in [0, 1, 2, 64 * 1024] {
        let server = Server::start(Answer::Echo("")).await;
        let url = format!("ws://localhost:{}/relay", server.port);
        let tight = DialRequest {
            max_write_buffer_bytes: bound,
            ..request(&url)
        };
        let mut dialed = dialer().dial(tight).await.expect("a socket");
        let large = Message::text("x".repeat(bound + 1));
        let error = dialed.socket.send(large).await.expect_err("over the bound");
        assert!(matches!(error, Error::WriteBufferFull(_)), "{bound}: {error}");
    }
}

#[test]
fn a_dial_can_move_between_threads() {
    fn assert_send<T: Send>(_: &T) {}
    let dialer = dialer();
    assert_send(&dialer.dial(request("ws://localhost:9/relay")));
    assert_send(&dialer);
}
