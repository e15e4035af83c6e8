//! The bearer goes to the connector's own shelf, and to nobody and nothing else.

use std::collections::HashSet;

use hermes_relay::net::media::MediaSettings;
use hermes_relay::wire::UpgradeToken;

use crate::media::server::{Rig, SECRET, Seen, Server, access_minting, answer, file, now, redirect};

/// Whose token a request carried.
fn caller(seen: &Seen) -> Option<String> {
    let token = seen.header("authorization")?.strip_prefix("Bearer ")?;
    UpgradeToken::verify(token, [SECRET], now())
}

fn allowing_loopback() -> MediaSettings {
    MediaSettings {
        allow_hosts: vec!["127.0.0.1".into(), "localhost".into()],
        ..MediaSettings::default()
    }
}

#[tokio::test]
async fn the_connectors_own_files_are_asked_for_with_a_token() {
    let connector = Server::start(|_| answer(&[], "x")).await;
    let rig = Rig::new(&connector.url("/relay"), MediaSettings::default());
    for url in [
        connector.url("/relay/media/a"),
        connector.url("/relay/media/b?sig=1"),
    ] {
        file(&rig.fetch_one(&url).await.0);
    }
    assert!(
        connector
            .seen()
            .iter()
            .all(|seen| caller(seen).as_deref() == Some("gw"))
    );
    assert_eq!(connector.seen().len(), 2);
}

#[tokio::test]
async fn a_token_is_minted_for_each_request() {
    let connector = Server::start(|_| answer(&[], "x")).await;
    let count = std::sync::atomic::AtomicI64::new(1);
    let access = access_minting(&connector.url(""), move || {
        let ttl = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Some(UpgradeToken::mint("gw", &SECRET.into(), 100 + ttl, now()))
    });
    let rig = Rig::with(MediaSettings::default(), access, |room| room);
    let url = connector.url("/relay/media/a");
    assert_eq!(rig.fetch(&[&url, &url, &url]).await.files.len(), 3);
    let tokens: HashSet<_> = connector
        .seen()
        .iter()
        .filter_map(|seen| seen.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(tokens.len(), 3);
}

#[tokio::test]
async fn look_alikes_see_no_token() {
    let foreign = Server::start(|_| answer(&[], "x")).await;
    let connector = Server::start(|_| answer(&[], "x")).await;
    let rig = Rig::new(&connector.url(""), allowing_loopback());
    let port = connector.port();
    for url in [
        foreign.url("/relay/media/a"),
        connector.url("/relay/mediaa/x"),
        connector.url("/relay/media/"),
        connector.url("/relay/media/../policy"),
        connector.url("/relay/media/%2e%2e/policy"),
        connector.url("/relay/media/..%2fpolicy"),
        connector.url("/x/relay/media/a"),
        connector.url("//relay/media/a"),
        connector.url("/RELAY/media/a"),
        format!("http://localhost:{port}/relay/media/a"),
        format!(
            "http://127.0.0.1:{port}\\@127.0.0.1:{}/relay/media/a",
            foreign.port()
        ),
        format!(
            "http://127.0.0.1:{port}@127.0.0.1:{}/relay/media/a",
            foreign.port()
        ),
    ] {
        let _files = rig.fetch(&[&url]).await;
    }
    assert!(
        foreign.seen().len() == 1 && connector.seen().len() >= 8,
        "{:?}",
        connector.seen()
    );
    for seen in foreign.seen().iter().chain(&connector.seen()) {
        assert_eq!(seen.header("authorization"), None, "{seen:?}");
    }
}

#[tokio::test]
async fn a_redirect_of_the_connectors_is_not_followed() {
    let foreign = Server::start(|_| answer(&[], "x")).await;
    let target = foreign.url("/relay/media/a");
    let connector = Server::start(move |seen| match seen.uri.as_str() {
        "/relay/media/away" => redirect(&target),
        "/relay/media/on" => redirect("/relay/media/a"),
        _ => answer(&[], "x"),
    })
    .await;
    let rig = Rig::new(&connector.url(""), allowing_loopback());
    let urls = [
        connector.url("/relay/media/away"),
        connector.url("/relay/media/on"),
    ];
    let fetched = rig.fetch(&[&urls[0], &urls[1]]).await;
    assert_eq!((fetched.files.len(), fetched.missing), (0, 2));
    assert!(fetched.note().unwrap().contains('2'));
    assert!(foreign.seen().is_empty());
    assert_eq!(connector.seen().len(), 2);
    rig.assert_clean();
}

#[tokio::test]
async fn a_redirect_to_the_connector_brings_no_token() {
    let connector = Server::start(|_| answer(&[], "x")).await;
    let target = connector.url("/relay/media/a");
    let foreign = Server::start(move |_| redirect(&target)).await;
    let rig = Rig::new(&connector.url(""), allowing_loopback());
    file(&rig.fetch_one(&foreign.url("/x")).await.0);
    assert_eq!(connector.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn without_credentials_only_public_files_come() {
    let server = Server::start(|_| answer(&[], "x")).await;
    let access = access_minting(&server.url(""), || None);
    let rig = Rig::with(allowing_loopback(), access, |room| room);
    let fetched = rig
        .fetch(&[&server.url("/relay/media/a"), &server.url("/public")])
        .await;
    file(&fetched.files[0]);
    assert_eq!(
        (fetched.files.len(), fetched.missing, server.seen().len()),
        (1, 1, 1)
    );
}

#[tokio::test]
async fn a_token_does_not_cross_the_network_unencrypted() {
    let access = access_minting("http://192.0.2.1:9", || panic!("a token was minted"));
    let rig = Rig::with(MediaSettings::default(), access, |room| room);
    let fetched = rig.fetch(&["http://192.0.2.1:9/relay/media/a"]).await;
    assert_eq!((fetched.files.len(), fetched.missing), (0, 1));
}
