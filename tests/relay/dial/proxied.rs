//! Dialling through a proxy.

use hermes_relay::net::proxy::ProxyRules;
use hermes_relay::net::socket::{DialError, DialRequest, Dialer, Stage};
use hermes_relay::net::tls::{TlsSettings, client_config};
use secrecy::SecretString;
use tokio::time::timeout;

use crate::dial::server::{Answer, PATIENCE, SILENCE, Server, assert_echoes, dialer_with, header, request};
use crate::support::port::free_port;

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

fn rules(set: &[(&str, String)]) -> ProxyRules {
    ProxyRules::from_env(&|name| {
        set.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.clone())
    })
}

fn dialing(set: &[(&str, String)]) -> Dialer {
    dialer_with(&TlsSettings::default(), rules(set))
}

/// A dial of a name that only the proxy can know.
fn behind_proxy(bearer: &SecretString) -> DialRequest<'_> {
    DialRequest {
        bearer: Some(bearer),
        allow_plaintext: true,
        ..request("ws://connector.invalid:8443/relay")
    }
}

#[tokio::test]
async fn a_connect_proxy_sees_its_credentials_and_never_the_bearer() {
    for established in [
        ESTABLISHED,
        "HTTP/1.0 200 OK\r\nProxy-Agent: old\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    ] {
        let mut server = Server::start(Answer::Echo("")).await;
        let mut proxy = Server::connect_proxy(established, server.port).await;
        let url = format!("http://us%40er:p%3Ass@localhost:{}", proxy.port);
        let bearer = SecretString::from("token");
        let mut dialed = dialing(&[("HTTP_PROXY", url)])
            .dial(behind_proxy(&bearer))
            .await
            .expect("a tunnel");

        let asked = proxy.asked().await;
        assert!(
            asked.starts_with("CONNECT connector.invalid:8443 HTTP/1.1\r\n"),
            "{asked}"
        );
        assert_eq!(header(&asked, "host"), Some("connector.invalid:8443"));
        assert_eq!(
            header(&asked, "proxy-authorization"),
            Some("Basic dXNAZXI6cDpzcw==")
        );
        assert!(
            !asked.to_lowercase().contains("\nauthorization") && !asked.contains("token"),
            "{asked}"
        );

        let head = server.asked().await;
        assert_eq!(header(&head, "Host"), Some("connector.invalid:8443"));
        assert_eq!(header(&head, "authorization"), Some("Bearer token"));
        assert!(!head.to_lowercase().contains("proxy"), "{head}");
        assert_echoes(&mut dialed).await;
    }
}

#[tokio::test]
async fn no_proxy_goes_around_the_proxy() {
    let server = Server::start(Answer::Echo("")).await;
    let proxy = Server::connect_proxy(ESTABLISHED, server.port).await;
    // Not a loopback address by its text, yet it reaches this machine.
    let url = format!("ws://0.0.0.0:{}/relay", server.port);
    let target = DialRequest {
        allow_plaintext: true,
        ..request(&url)
    };
    let through = ("ALL_PROXY", format!("http://127.0.0.1:{}", proxy.port));

    let around = [through.clone(), ("NO_PROXY", "10.0.0.0/8, 0.0.0.0/8".to_owned())];
    let mut dialed = dialing(&around).dial(target).await.expect("a direct socket");
    assert_echoes(&mut dialed).await;
    assert_eq!(proxy.connections(), 0);

    dialing(std::slice::from_ref(&through))
        .dial(target)
        .await
        .expect("a tunnel");
    assert_eq!(proxy.connections(), 1);

    let url = format!("ws://localhost:{}/relay", server.port);
    dialing(&[through])
        .dial(request(&url))
        .await
        .expect("loopback is direct");
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn a_refusal_names_the_proxy_and_its_status_but_no_secret() {
    for (answer, expected) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
            Some(407),
        ),
        (
            "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n<html>no</html>",
            Some(403),
        ),
        (
            "HTTP/1.1 302 Found\r\nLocation: http://login/\r\nContent-Length: 0\r\n\r\n",
            Some(302),
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            Some(101),
        ),
        ("RTSP nonsense\r\n\r\n", None),
        ("", None),
    ] {
        let proxy = Server::connect_proxy(answer, 0).await;
        let address = format!("127.0.0.1:{}", proxy.port);
        let bearer = SecretString::from("token");
        let error = dialing(&[("ALL_PROXY", format!("http://user:hunter2@{address}"))])
            .dial(behind_proxy(&bearer))
            .await
            .expect_err("a refusal");
        match &error {
            DialError::Proxy { proxy, status, .. } => {
                assert_eq!(
                    (proxy.as_str(), *status),
                    (address.as_str(), expected),
                    "{answer}"
                );
            }
            other => panic!("{answer}: {other}"),
        }
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(&address), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("token"), "{shown}");
    }
}

#[tokio::test]
async fn data_ahead_of_the_tunnel_is_refused() {
    let server = Server::start(Answer::Echo("")).await;
    let proxy = Server::connect_proxy("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 Hi\r\n", server.port).await;
    let bearer = SecretString::from("token");
    let error = dialing(&[("ALL_PROXY", format!("http://127.0.0.1:{}", proxy.port))])
        .dial(behind_proxy(&bearer))
        .await
        .expect_err("injected data");
    assert!(matches!(error, DialError::Proxy { status: None, .. }), "{error}");
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_named() {
    let bearer = SecretString::from("token");
    let error = dialing(&[("ALL_PROXY", format!("http://localhost:{}", free_port()))])
        .dial(behind_proxy(&bearer))
        .await
        .expect_err("no proxy");
    assert!(
        matches!(&error, DialError::Proxy { status: None, proxy, .. } if proxy.starts_with("localhost:")),
        "{error}"
    );
    let error = dialing(&[("ALL_PROXY", "socks4://localhost:1".to_owned())])
        .dial(behind_proxy(&bearer))
        .await
        .expect_err("an old protocol");
    assert!(error.to_string().contains("socks4://"), "{error}");
}

#[tokio::test]
async fn a_socks_proxy_resolves_the_name_and_checks_the_password() {
    let mut server = Server::start(Answer::Echo("")).await;
    let mut proxy = Server::socks_proxy("user", "p@ss", server.port).await;
    let bearer = SecretString::from("token");
    let right = format!("socks5h://user:p%40ss@127.0.0.1:{}", proxy.port);
    let mut dialed = dialing(&[("ALL_PROXY", right)])
        .dial(behind_proxy(&bearer))
        .await
        .expect("a tunnel");
    assert_eq!(proxy.asked().await, "connector.invalid:8443");
    assert_eq!(
        header(&server.asked().await, "authorization"),
        Some("Bearer token")
    );
    assert_echoes(&mut dialed).await;

    let wrong = format!("socks5h://user:hunter2@127.0.0.1:{}", proxy.port);
    let error = dialing(&[("ALL_PROXY", wrong)])
        .dial(behind_proxy(&bearer))
        .await
        .expect_err("a wrong password");
    assert!(matches!(error, DialError::Proxy { .. }), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_socks_proxy_without_remote_names_is_given_an_address() {
    let server = Server::start(Answer::Echo("")).await;
    let mut proxy = Server::socks_proxy("user", "pass", server.port).await;
    let url = format!("socks5://user:pass@127.0.0.1:{}", proxy.port);
    let target = DialRequest {
        allow_plaintext: true,
        ..request("ws://192.0.2.7/relay")
    };
    let mut dialed = dialing(&[("http_proxy", url)])
        .dial(target)
        .await
        .expect("a tunnel");
    assert_eq!(proxy.asked().await, "192.0.2.7:80");
    assert_echoes(&mut dialed).await;
}

#[tokio::test]
async fn a_silent_proxy_ends_in_a_timeout() {
    let proxy = Server::start(Answer::Silence).await;
    let tls = client_config(&TlsSettings::default()).expect("TLS settings");
    let rules = rules(&[("ALL_PROXY", format!("http://127.0.0.1:{}", proxy.port))]);
    let dialer = Dialer::new(tls, rules, SILENCE);
    let bearer = SecretString::from("token");
    let dial = timeout(PATIENCE, dialer.dial(behind_proxy(&bearer)));
    let error = dial.await.expect("no hang").expect_err("silence");
    assert!(
        matches!(
            error,
            DialError::Timeout {
                stage: Stage::Proxy,
                ..
            }
        ),
        "{error}"
    );
}
