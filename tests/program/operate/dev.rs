//! `dev`: whoever else is logged in on this machine gets nothing from its connector, or from its fake Telegram.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::operate::connected;
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::wait::eventually;

/// Every route, as a caller without the run's secrets would use it, with the answer that is due.
const ROUTES: [(&str, &str, u16); 9] = [
    ("POST", "/relay/enroll", 401),
    ("POST", "/relay/provision", 401),
    ("POST", "/relay/policy", 401),
    ("POST", "/relay/media", 401),
    ("GET", "/relay/media/00000000000000000000000000000001", 401),
    ("GET", "/dev/00000000000000000000000000000000/", 404),
    ("GET", "/dev/00000000000000000000000000000000/events", 404),
    (
        "GET",
        "/identity/0000000000000000000000000000000000000000000000000000000000000000",
        404,
    ),
    ("GET", "/", 404),
];

async fn status_of(address: SocketAddr, host: &str, method: &str, path: &str, bearer: &str) -> u16 {
    let body = r#"{"gatewayId":"gw-thief","enrollmentToken":"guess"}"#;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(SOON, stream.read_to_end(&mut answer)).await;
    read.expect("an end in time").unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains("\"secret\""), "{answer}");
    let status = answer.split_whitespace().nth(1);
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// What follows `before` on standard output or error, up to a space or the end of the line.
async fn printed(dev: &RelayProcess, before: &str) -> String {
    eventually(before, async || {
        let text = dev.stdout() + &dev.stderr();
        let line = text.lines().find_map(|line| line.trim().strip_prefix(before));
        line.map(|rest| rest.split_whitespace().next().unwrap_or_default().to_owned())
    })
    .await
}

async fn refuses_strangers(address: SocketAddr) {
    let own = address.to_string();
    for (method, path, wanted) in ROUTES {
        for bearer in ["dev-identity", "dev", "x", ""] {
            let status = status_of(address, &own, method, path, bearer).await;
            assert_eq!(status, wanted, "{method} {path} as {bearer:?}");
        }
    }
}

async fn refuses_foreign_hosts(address: SocketAddr) {
    for (method, path, _) in ROUTES.into_iter().chain([("GET", "/relay", 0)]) {
        for host in ["evil.example", "127.0.0.1.evil.example:80", ""] {
            let status = status_of(address, host, method, path, "x").await;
            assert_eq!(status, 403, "{method} {path} at {host:?}");
        }
    }
}

#[tokio::test]
async fn another_user_of_the_machine_cannot_enroll_with_dev_or_reach_its_page() {
    let dev = Setup::new().args(&["dev", "--no-tui", "--agent", "echo"]).start();
    let rest = printed(&dev, "http://").await;
    let address = rest.split('/').next().unwrap().parse().unwrap();
    refuses_strangers(address).await;
    refuses_foreign_hosts(address).await;
}

#[tokio::test]
async fn a_relay_in_another_shell_connects_with_the_lines_that_connector_only_prints() {
    let dev = Setup::new()
        .args(&["dev", "--connector-only", "--no-tui"])
        .start();
    let mut setup = Setup::new();
    for name in ["URL", "ID", "SECRET", "PLATFORMS"].map(|name| format!("GATEWAY_RELAY_{name}")) {
        let value = printed(&dev, &format!("{name}=")).await;
        setup = setup.env(&name, &value);
    }
    let address = printed(&dev, "GATEWAY_RELAY_URL=ws://").await.parse().unwrap();
    refuses_strangers(address).await;
    refuses_foreign_hosts(address).await;
    let relay = connected(&setup).await;

    // The identity of this run, and no other, provisions.
    let identity = printed(&dev, "identity token for /relay/provision: ").await;
    let mut request = TcpStream::connect(address).await.unwrap();
    let body = r#"{"gatewayId":"gw-mine"}"#;
    let text = format!(
        "POST /relay/provision HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {identity}\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    request.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    request.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(r#""secretIssued":true"#), "{answer}");
    relay.stop().await;
}

#[tokio::test]
async fn a_bot_of_another_program_uses_the_lines_that_bot_api_prints() {
    let dev = Setup::new()
        .args(&["dev", "--platform", "telegram", "--bot-api", "--connector-only"])
        .start();
    let token = printed(&dev, "TELEGRAM_BOT_TOKEN=").await;
    let address = printed(&dev, "TELEGRAM_API_BASE=http://").await;
    let (own, address): (String, SocketAddr) = (address.clone(), address.parse().unwrap());
    assert_eq!(
        status_of(address, &own, "GET", &format!("/bot{token}/getMe"), "").await,
        200
    );
    for (path, wanted) in [
        ("/bot7000000001:guess/getMe", 401),
        ("/file/bot7000000001:guess/photos/file_1.jpg", 401),
        ("/dev/00000000000000000000000000000000/", 404),
        ("/dev/00000000000000000000000000000000/events", 404),
        ("/", 404),
    ] {
        assert_eq!(status_of(address, &own, "GET", path, "").await, wanted, "{path}");
    }
    let elsewhere = status_of(address, "evil.example", "GET", &format!("/bot{token}/getMe"), "").await;
    assert_eq!(elsewhere, 403);
    let page = printed(&dev, "http://").await;
    let path = page.strip_prefix(&own).unwrap().to_owned();
    assert_eq!(status_of(address, &own, "GET", &path, "").await, 200);
}

#[tokio::test]
async fn the_fake_bot_api_is_for_telegram_and_discord() {
    let setup = Setup::new().args(&["dev", "--platform", "slack", "--bot-api", "--connector-only"]);
    let (code, text) = setup.ends().await;
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("add --platform telegram or --platform discord"),
        "{text}"
    );
}

#[tokio::test]
async fn the_relay_is_the_bot_of_the_fake_telegram() {
    let setup = Setup::new();
    let smoke = [
        "dev",
        "--platform",
        "telegram",
        "--bot-api",
        "--agent",
        "echo",
        "--smoke",
        "--json",
    ];
    let ended = timeout(SOON, setup.verb(&smoke).output())
        .await
        .expect("an end in time")
        .unwrap();
    let (printed_text, log) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    let trip: Value = serde_json::from_str(&printed_text).unwrap_or_else(|_| panic!("{printed_text}{log}"));
    assert_eq!(
        (&trip["ok"], &trip["reply"]),
        (&json!(true), &json!("echo: hello")),
        "{trip} {log}"
    );

    let dev = setup
        .args(&["dev", "--platform", "telegram", "--bot-api", "--agent", "echo"])
        .start();
    let token = printed(&dev, "TELEGRAM_BOT_TOKEN=").await;
    let own = printed(&dev, "TELEGRAM_API_BASE=http://").await;
    let address: SocketAddr = own.parse().unwrap();
    let page = printed(&dev, "http://").await;
    let path = page.strip_prefix(&own).unwrap().to_owned();
    // A person writes on the page, and the bot answers there.
    let body = r#"{"chat":"1001","who":"1001","text":"from the page"}"#;
    let mut request = TcpStream::connect(address).await.unwrap();
    let text = format!(
        "POST {path}say HTTP/1.1\r\nHost: {own}\r\nOrigin: http://{own}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    request.write_all(text.as_bytes()).await.unwrap();
    let mut said = String::new();
    request.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    let mut events = TcpStream::connect(address).await.unwrap();
    let text = format!("GET {path}events HTTP/1.1\r\nHost: {own}\r\n\r\n");
    events.write_all(text.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    eventually("the answer on the page", async || {
        let mut part = vec![0; 16 * 1024];
        let read = timeout(SOON, events.read(&mut part))
            .await
            .expect("events in time")
            .unwrap();
        seen.extend_from_slice(&part[..read]);
        String::from_utf8_lossy(&seen).contains("echo: from the page")
    })
    .await;
    assert!(
        !String::from_utf8_lossy(&seen).contains(&token),
        "the page never shows the token"
    );
}

#[tokio::test]
async fn dev_leaves_the_bot_of_the_settings_alone() {
    // Nothing listens there: a relay that were this bot could not answer.
    let setup = Setup::new()
        .setting("direct.telegram", "{api_base: \"http://127.0.0.1:9\"}")
        .env("TELEGRAM_BOT_TOKEN", "123456:abcdef");
    for args in [
        &["dev", "--agent", "echo", "--smoke"][..],
        &[
            "dev",
            "--agent",
            "echo",
            "--smoke",
            "--platform",
            "telegram",
            "--bot-api",
        ],
    ] {
        let ended = timeout(SOON, setup.verb(args).output())
            .await
            .expect("an end in time")
            .unwrap();
        let text = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        assert!(
            ended.status.success() && text.contains("echo: hello"),
            "{args:?}: {text}"
        );
    }
}
