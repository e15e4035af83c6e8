//! An address in a chat reaches the public internet and nothing around this machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hermes_relay::net::media::{MediaClient, MediaError, MediaSettings};
use hermes_relay::net::proxy::ProxyRules;

use crate::media::server::{Rig, Script, Server, access, answer, file, redirect};

fn allowing(hosts: &[&str]) -> MediaSettings {
    MediaSettings {
        timeout_secs: 20,
        allow_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        ..MediaSettings::default()
    }
}

#[tokio::test]
async fn no_spelling_of_a_private_number_is_reached() {
    let server = Server::start(|_| answer(&[], "secret")).await;
    let rig = Rig::new("https://connector.example", allowing(&[]));
    let port = server.port();
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "169.254.169.254",
        "0xa9fea9fe",
        "100.100.100.200",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "user@127.0.0.1",
        "user:pass@127.0.0.1",
    ] {
        rig.assert_refused(&format!("http://{host}:{port}/x")).await;
    }
    for other in [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "gopher://127.0.0.1:70/",
        "unix:/run/x",
        "//127.0.0.1/",
    ] {
        rig.assert_refused(other).await;
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn no_name_that_leads_inside_is_reached() {
    let server = Server::start(|_| answer(&[], "secret")).await;
    for answers in [
        &["127.0.0.1"][..],
        &["8.8.8.8", "127.0.0.1"],
        &["127.0.0.1", "8.8.8.8"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["169.254.169.254"],
        &["fd00:ec2::254"],
        &[],
    ] {
        let script = Script::of(&[answers]);
        let rig = Rig::with(allowing(&[]), access("https://connector.example"), |room| {
            room.with_lookup(Arc::clone(&script) as _)
        });
        rig.assert_refused(&format!("http://cdn.example:{}/x", server.port()))
            .await;
        assert_eq!(script.asked.load(Ordering::SeqCst), 1);
    }
    assert!(server.seen().is_empty());
}

/// 127.0.0.1 plays the public internet, 127.0.0.2 a machine inside.
#[tokio::test]
async fn a_name_that_changes_its_mind_is_not_asked_twice() {
    let outside = Server::start(|_| answer(&[], "public")).await;
    let port = outside.port();
    let inside = Server::at(("127.0.0.2", port), Duration::ZERO, |_| answer(&[], "secret")).await;
    let script = Script::of(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let rig = Rig::with(allowing(&[]), access("https://connector.example"), |room| {
        room.with_lookup(Arc::clone(&script) as _)
            .with_address_rule(|address| address.to_string() == "127.0.0.1")
    });
    let url = format!("http://rebind.example:{port}/x");
    let (received, folder) = rig.fetch_one(&url).await;
    assert_eq!(std::fs::read(file(&received)).unwrap(), b"public");
    assert_eq!(script.asked.load(Ordering::SeqCst), 1);
    drop(folder);
    rig.assert_refused(&url).await;
    assert!(inside.seen().is_empty());
    assert_eq!(
        (outside.seen().len(), script.asked.load(Ordering::SeqCst)),
        (1, 2)
    );
}

#[tokio::test]
async fn every_stop_of_a_redirect_is_judged() {
    let inside = Server::at("127.0.0.2:0", Duration::ZERO, |_| answer(&[], "secret")).await;
    let target = inside.url("/latest/meta-data");
    let port = inside.port();
    let outside = Server::start(move |seen| match seen.uri.as_str() {
        "/number" => redirect(&target),
        "/mapped" => redirect(&format!("http://[::ffff:127.0.0.2]:{port}/")),
        "/name" => redirect(&format!("http://localhost.:{port}/")),
        "/user" => redirect(&format!("http://a:b@127.0.0.1:{port}/")),
        "/file" => redirect("file:///etc/passwd"),
        "/relative" => redirect("number"),
        "/loop" => redirect("/loop"),
        "/nowhere" => redirect("http://"),
        _ => answer(&[], "never"),
    })
    .await;
    let rig = Rig::public_loopback(allowing(&[]));
    for path in [
        "/number",
        "/mapped",
        "/name",
        "/user",
        "/file",
        "/relative",
        "/loop",
        "/nowhere",
    ] {
        rig.assert_refused(&outside.url(path)).await;
    }
    assert!(inside.seen().is_empty());
    let laps = outside.seen().iter().filter(|seen| seen.uri == "/loop").count();
    assert_eq!(laps, 6);
}

#[tokio::test]
async fn five_redirects_are_followed_without_a_referrer() {
    let server = Server::start(|seen| {
        let left: u32 = seen.uri.trim_start_matches('/').parse().expect("a number");
        match left.checked_sub(1) {
            None => answer(&[], "here"),
            Some(next) => redirect(&format!("/{next}")),
        }
    })
    .await;
    let rig = Rig::public_loopback(allowing(&[]));
    let (received, fetched) = rig.fetch_one(&server.url("/5")).await;
    assert_eq!(std::fs::read(file(&received)).unwrap(), b"here");
    assert!(server.seen().iter().all(|seen| seen.header("referer").is_none()));
    drop(fetched);
    rig.assert_refused(&server.url("/6")).await;
}

#[tokio::test]
async fn a_listed_host_is_reached_on_its_port_only() {
    let listed = Server::start(|_| answer(&[], "mine")).await;
    let other = Server::start(|_| answer(&[], "secret")).await;
    let rig = Rig::new(
        "https://connector.example",
        allowing(&[&format!("127.0.0.1:{}", listed.port())]),
    );
    file(&rig.fetch_one(&listed.url("/x")).await.0);
    rig.assert_refused(&other.url("/x")).await;
    rig.assert_refused(&format!("http://localhost:{}/x", listed.port()))
        .await;
    assert_eq!((listed.seen().len(), other.seen().len()), (1, 0));

    let state = tempfile::tempdir().unwrap();
    let opened = MediaClient::open(
        state.path(),
        allowing(&["*.example"]),
        access("https://c.example"),
    );
    assert!(matches!(opened, Err(MediaError::AllowHosts(entry)) if entry == "*.example"));
}

#[tokio::test]
async fn a_proxy_is_asked_for_public_addresses_only() {
    let proxy = Server::start(|seen| answer(&[], seen.uri.clone())).await;
    let script = Script::of(&[&["127.0.0.1"]]);
    let mut access = access("https://connector.example");
    let address = proxy.url("");
    access.egress.proxies = ProxyRules::from_env(&|name| (name == "HTTP_PROXY").then(|| address.clone()));
    let rig = Rig::with(allowing(&["10.9.9.9"]), access, |room| {
        room.with_lookup(Arc::clone(&script) as _)
    });
    let (received, fetched) = rig.fetch_one("http://cdn.example/x.png").await;
    assert_eq!(
        std::fs::read(file(&received)).unwrap(),
        b"http://cdn.example/x.png"
    );
    drop(fetched);
    file(&rig.fetch_one("http://10.9.9.9/x").await.0);
    for url in [
        "http://10.0.0.1/",
        "http://0xa9fea9fe/",
        "http://[::ffff:10.0.0.1]/",
        "http://router/",
        "http://metadata.google.internal/",
        "http://127.0.0.1/",
        "http://localhost/",
    ] {
        rig.assert_refused(url).await;
    }
    assert_eq!(proxy.seen().len(), 2);
    assert!(
        proxy
            .seen()
            .iter()
            .all(|seen| seen.header("authorization").is_none())
    );
}

#[tokio::test]
async fn a_proxy_that_leaves_resolving_to_us_is_not_asked_for_a_private_name() {
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("socks5://{}", proxy.local_addr().unwrap());
    let script = Script::of(&[&["8.8.8.8", "10.0.0.1"]]);
    let mut access = access("https://connector.example");
    access.egress.proxies = ProxyRules::from_env(&|name| (name == "ALL_PROXY").then(|| address.clone()));
    let rig = Rig::with(allowing(&[]), access, |room| {
        room.with_lookup(Arc::clone(&script) as _)
    });
    rig.assert_refused("http://cdn.example/x").await;
    assert_eq!(script.asked.load(Ordering::SeqCst), 1);
    let contacted = tokio::time::timeout(Duration::from_millis(1), proxy.accept()).await;
    assert!(contacted.is_err());
}
