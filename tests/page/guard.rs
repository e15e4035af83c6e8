//! Who the page answers: tried with requests that no browser of an honest person makes.

use hermes_relay::adapter::SessionNames;
use hermes_relay::dev::{Connector, ConnectorSettings, Hint, PageSettings};
use reqwest::{Client, Method, Response, header};

use crate::browser::plain_http;

fn settings() -> PageSettings {
    PageSettings {
        platform: "discord".to_owned(),
        agent: "echo".to_owned(),
        hints: Hint::for_agent("echo"),
        sessions: SessionNames::default(),
        relay: None,
    }
}

async fn ask(http: &Client, method: Method, url: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = http.request(method, url).body("{}");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

#[tokio::test]
async fn only_the_holder_of_the_token_at_this_address_is_answered() {
    let http = plain_http();
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let base = connector.http_base();
    let guess = format!("{base}/dev/{}/", "0".repeat(32));
    assert_eq!(
        ask(&http, Method::GET, &guess, &[]).await.status(),
        404,
        "not opened yet"
    );
    let url = connector.open_page(settings());
    assert_eq!(connector.open_page(settings()), url, "opened once");
    assert_eq!(ask(&http, Method::GET, &guess, &[]).await.status(), 404);
    assert_eq!(
        ask(&http, Method::GET, &format!("{base}/dev//"), &[])
            .await
            .status(),
        404
    );

    let page = ask(&http, Method::GET, &url, &[]).await;
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"));
    assert!(!policy.contains("unsafe") && !policy.contains('*'));
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    assert_eq!(page.headers()["referrer-policy"], "no-referrer");
    let slashless = url.trim_end_matches('/').to_owned();
    let moved = ask(&http, Method::GET, &slashless, &[]).await;
    assert_eq!(
        (moved.status().as_u16(), moved.url().as_str()),
        (200, url.as_str())
    );

    // A name that someone else pointed at loopback.
    for host in ["evil.example", "evil.example:80", "127.0.0.1:1"] {
        let status = ask(&http, Method::GET, &url, &[("host", host)]).await.status();
        assert_eq!(status, 403, "{host}");
    }
    // Requests of other pages.
    let say = format!("{url}say");
    let here = base.as_str();
    for origin in [None, Some("http://evil.example"), Some("null")] {
        let headers: Vec<_> = origin.map(|origin| ("origin", origin)).into_iter().collect();
        let status = ask(&http, Method::POST, &say, &headers).await.status();
        assert_eq!(status, 403, "{origin:?}");
    }
    let events = format!("{url}events");
    for headers in [
        [("origin", "http://evil.example")],
        [("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(ask(&http, Method::GET, &events, &headers).await.status(), 403);
    }
    // Our own page gets as far as being understood.
    let ours = [("origin", here)];
    let status = ask(&http, Method::POST, &say, &ours).await.status();
    assert_eq!(status, 400, "a command without a chat");
    let unknown = ask(&http, Method::POST, &format!("{url}no_such_command"), &ours).await;
    assert_eq!(unknown.status(), 404);
    let put = ask(&http, Method::PUT, &say, &ours).await;
    assert_eq!(put.status(), 405);
    let long = http
        .post(&say)
        .header("origin", here)
        .body("x".repeat(300 * 1024));
    assert_eq!(long.send().await.unwrap().status(), 413);
    assert_eq!(
        ask(&http, Method::GET, &format!("{url}../secrets"), &[])
            .await
            .status(),
        404
    );
}

#[tokio::test]
async fn a_file_is_shown_only_when_it_is_a_picture_and_pages_are_counted() {
    let http = plain_http();
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let url = connector.open_page(settings());
    for (mime, kind) in [
        ("image/png", "image/png"),
        ("image/svg+xml", "application/octet-stream"),
        ("text/html", "application/octet-stream"),
    ] {
        let kept = http
            .post(format!("{url}upload"))
            .header("origin", connector.http_base())
            .header("content-type", mime)
            .header("x-filename", "a%22b%0Ac.html")
            .body("<script>alert(1)</script>");
        let kept: serde_json::Value = kept.send().await.unwrap().json().await.unwrap();
        assert_eq!(kept["filename"], "a\"bc.html", "{kept}");
        let shown = ask(
            &http,
            Method::GET,
            &format!("{url}media/{}", kept["id"].as_str().unwrap()),
            &[],
        )
        .await;
        assert_eq!(shown.headers()[header::CONTENT_TYPE], kind);
        let inline = shown.headers()[header::CONTENT_DISPOSITION] == "inline";
        assert_eq!(inline, mime == "image/png");
        assert!(shown.headers().contains_key("content-security-policy"));
    }
    let mut listeners = Vec::new();
    loop {
        let answer = ask(&http, Method::GET, &format!("{url}events"), &[]).await;
        if answer.status() != 200 {
            assert_eq!(answer.status(), 503);
            break;
        }
        listeners.push(answer);
        assert!(listeners.len() <= 8, "no bound on pages");
    }
    assert_eq!(listeners.len(), 8);
}
