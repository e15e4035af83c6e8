//! What is wrong on the way to the connector.

use std::time::Duration;

use crate::doctor::rig::{connector, doctor};
use crate::support::http_stub::{silent, verbatim};
use crate::support::relay_process::Setup;
use crate::support::tls_front::{self_signed_terminator, terminator};

#[tokio::test]
async fn a_name_that_does_not_resolve_is_named() {
    let report = doctor(Setup::with_url("wss://no-such-host.invalid"), &[]).await;
    report
        .blames("dns", "no-such-host.invalid", "DNS")
        .skips(&["tcp", "tls", "clock", "upgrade", "token", "handshake"])
        .passes(&["url", "proxy"]);
}

#[tokio::test]
async fn a_port_where_nothing_listens_is_named() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let port = connector.port().to_string();
    connector.take_down().await;
    let report = doctor(setup, &[]).await;
    report
        .blames("tcp", &port, "check that the connector runs")
        .skips(&["tls", "clock", "upgrade", "token", "handshake"])
        .passes(&["dns"]);
}

#[tokio::test]
async fn an_unknown_authority_is_named_and_its_file_is_the_remedy() {
    let connector = connector().await;
    let (port, pem) = terminator("localhost", connector.addr(), 1000).await;
    let setup = || Setup::with_url(&format!("wss://localhost:{port}")).enrolled_with(&connector);
    let report = doctor(setup(), &[]).await;
    report
        .blames("tls", "UnknownIssuer", "ca_file")
        .skips(&["clock", "upgrade", "token", "handshake"])
        .passes(&["dns", "tcp"]);
    assert!(connector.dials().is_empty(), "no token goes to a stranger");

    let mended = setup().setting("tls.ca_file", "authority.pem");
    mended.write("authority.pem", &pem);
    let report = doctor(mended, &[]).await;
    report.passes(&["tls", "clock", "upgrade", "token", "handshake"]);
    assert_eq!(report.code, 0);
    assert!(
        report.row("tls")["detail"]
            .as_str()
            .unwrap()
            .contains("authority.pem")
    );

    let missing = setup().setting("tls.ca_file", "nowhere.pem");
    let report = doctor(missing, &[]).await;
    report.blames("tls", "nowhere.pem", "tls.ca_file");
}

#[tokio::test]
async fn a_self_signed_certificate_is_named_and_works_once_its_file_is() {
    let connector = connector().await;
    let (port, pem) = self_signed_terminator("localhost", connector.addr()).await;
    let setup = || Setup::with_url(&format!("wss://localhost:{port}")).enrolled_with(&connector);
    let report = doctor(setup(), &[]).await;
    report.blames("tls", "self-signed", "`tls.ca_file`");
    let relay = setup().start();
    relay.wait_for_log("the certificate is self-signed").await;
    relay.stop().await;

    let mended = setup().setting("tls.ca_file", "connector.pem");
    mended.write("connector.pem", &pem);
    let relay = mended.start();
    relay.wait_for_log("connected to the connector").await;
    relay.stop().await;
    let report = doctor(mended, &[]).await;
    report.passes(&["tls", "clock", "upgrade", "token", "handshake"]);
}

#[tokio::test]
async fn a_certificate_that_ends_soon_is_a_warning() {
    let connector = connector().await;
    let (port, pem) = terminator("localhost", connector.addr(), 3).await;
    let setup = Setup::with_url(&format!("wss://localhost:{port}"))
        .enrolled_with(&connector)
        .setting("tls.ca_file", "authority.pem");
    setup.write("authority.pem", &pem);
    let report = doctor(setup, &[]).await;
    report
        .warns("tls", "expires within 14 days", "renew")
        .passes(&["token", "handshake"]);
    assert_eq!(report.code, 0);
}

#[tokio::test]
async fn a_clock_that_is_an_hour_off_is_named_and_the_secret_is_not_blamed() {
    let connector = connector().await;
    connector.set_clock_offset(3600);
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report
        .blames("clock", " behind the connector's", "timedatectl")
        .passes(&["upgrade", "token", "handshake"]);
    connector.set_clock_offset(-3600);
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.blames("clock", " ahead of the connector's", "timedatectl");
    connector.set_clock_offset(120);
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.warns("clock", " behind the connector's", "timedatectl");
    assert_eq!(report.code, 0, "the relay allows for so little");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let port = verbatim(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        .await
        .port();
    let setup = Setup::with_url("wss://connector.invalid").env(
        "HTTPS_PROXY",
        &format!("http://someone:hush-hush@localhost:{port}"),
    );
    let report = doctor(setup, &[]).await;
    report
        .blames("proxy", "HTTP 403", "NO_PROXY")
        .blames("proxy", &format!("localhost:{port}"), "NO_PROXY")
        .skips(&["dns", "tcp", "tls", "clock", "upgrade", "token", "handshake"]);
    assert!(
        !report
            .rows
            .iter()
            .any(|row| row.to_string().contains("hush-hush"))
    );

    let port = verbatim(b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n")
        .await
        .port();
    let setup =
        Setup::with_url("wss://connector.invalid").env("HTTPS_PROXY", &format!("http://localhost:{port}"));
    doctor(setup, &[])
        .await
        .blames("proxy", "HTTP 407", "user:password@");
}

#[tokio::test]
async fn a_proxy_variable_that_is_no_proxy_is_reported() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).env("HTTPS_PROXY", "gopher://old");
    let report = doctor(setup, &[]).await;
    report
        .warns("proxy", "HTTPS_PROXY", "http://host:port")
        .passes(&["handshake"]);
}

#[tokio::test]
async fn a_host_that_takes_the_connection_and_sends_nothing_ends_within_the_time() {
    let port = silent().await.port();
    let begun = std::time::Instant::now();
    let report = doctor(Setup::with_url(&format!("wss://localhost:{port}")), &[]).await;
    report
        .blames("tls", "no response within 5 s", "speaks TLS")
        .skips(&["upgrade"]);
    assert!(begun.elapsed() < Duration::from_secs(30));
}
