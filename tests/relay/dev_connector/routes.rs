use std::time::Duration;

use crate::support::dev::{
    Connector, ConnectorSettings, GatewayCredentials, HttpRoute, HttpRouteFault, text_event,
};
use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::dev_connector::client::{QUIET, SOON, connector, dial_as, greeted, token};

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) async fn request(
    connector: &Connector,
    method: &str,
    path: &str,
    bearer: Option<&str>,
    body: impl Into<Body>,
) -> Answer {
    let socket = TcpStream::connect(connector.addr()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(socket))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", connector.addr().to_string())
        .header("content-type", "application/json")
        .header("x-media-filename", "a.txt");
    if let Some(bearer) = bearer {
        request = request.header("authorization", format!("Bearer {bearer}"));
    }
    let response = sender
        .send_request(request.body(body.into()).unwrap())
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    assert!(parts.headers.contains_key("date"));
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: to_bytes(Body::new(body), usize::MAX).await.unwrap().to_vec(),
    }
}

async fn post(connector: &Connector, path: &str, bearer: Option<&str>, body: &Value) -> Answer {
    request(connector, "POST", path, bearer, body.to_string()).await
}

#[tokio::test]
async fn an_enrolment_token_is_good_once_and_its_secret_dials() {
    let settings = ConnectorSettings {
        gateways: Vec::new(),
        enrol_tokens: vec!["ENR".into()],
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let body = json!({ "enrollmentToken": "ENR", "gatewayId": "gw-mine" });
    let path = "/relay/enroll";
    assert_eq!(post(&connector, path, None, &body).await.status, 401);
    let unknown = json!({ "enrollmentToken": "nope", "gatewayId": "gw-mine" });
    let refused = post(&connector, path, Some("me"), &unknown).await;
    assert_eq!(refused.status, 403);
    assert!(refused.json()["error"].is_string());
    let enrolled = post(&connector, path, Some("me"), &body).await;
    assert_eq!(enrolled.status, 200);
    let answer = enrolled.json();
    assert_eq!(
        (&answer["gatewayId"], &answer["tenant"]),
        (&json!("gw-mine"), &json!("dev"))
    );
    assert!(answer["deliveryKey"].is_string());
    assert_eq!(post(&connector, path, Some("me"), &body).await.status, 403);
    let bearer = token(&GatewayCredentials {
        gateway_id: "gw-mine".into(),
        secret: answer["secret"].as_str().unwrap().into(),
    });
    connector
        .deliver(&text_event("discord", "c", "u1", "hi"))
        .unwrap();
    let mut client = dial_as(&connector, Some(&bearer)).await.unwrap();
    client.hello("discord").await;
    client.line().await;
    assert_eq!(client.line().await["event"]["text"], "hi");
    let statuses: Vec<_> = connector
        .requests()
        .iter()
        .map(|request| request.answered.as_u16())
        .collect();
    assert_eq!(statuses, [401, 403, 200, 403]);
    let seen = &connector.requests()[2];
    assert_eq!(seen.bearer.as_ref().unwrap().expose_secret(), "me");
    assert!(seen.json == body && !seen.headers.contains_key("authorization"));
}

#[tokio::test]
async fn provisioning_issues_a_secret_once() {
    let settings = ConnectorSettings {
        identity_tokens: Some(vec!["me".into()]),
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let body = json!({ "gatewayId": "gw-vm", "platform": "discord", "botId": "1", "gatewayEndpoint": "",
        "routeKeys": ["a", "b"] });
    let path = "/relay/provision";
    assert_eq!(post(&connector, path, Some("someone"), &body).await.status, 401);
    let first = post(&connector, path, Some("me"), &body).await.json();
    assert!(first["secret"].is_string() && first["deliveryKey"].is_string());
    assert_eq!(
        (&first["gatewayId"], &first["routeKeys"], &first["tenant"]),
        (&json!("gw-vm"), &json!(["a", "b"]), &json!("dev"))
    );
    let again = post(&connector, path, Some("me"), &body).await.json();
    assert_eq!(again["secretIssued"], false);
    assert!(again.get("secret").is_none());
    assert_eq!(post(&connector, path, Some("me"), &json!([])).await.status, 400);
}

#[tokio::test]
async fn a_policy_needs_an_upgrade_token() {
    let connector = connector().await;
    let bearer = token(&connector.credentials().unwrap());
    let body = json!({ "platform": "discord", "requireAddress": true, "freeResponseScopes": [], "allowOtherBots": false });
    assert_eq!(
        post(&connector, "/relay/policy", Some("me"), &body).await.status,
        401
    );
    assert_eq!(
        post(&connector, "/relay/policy", Some(&bearer), &body)
            .await
            .status,
        200
    );
    let seen = connector.requests().pop().unwrap();
    assert_eq!((seen.gateway_id.as_deref(), &seen.json), (Some("gw-dev"), &body));
    connector.revoke();
    assert_eq!(
        post(&connector, "/relay/policy", Some(&bearer), &body)
            .await
            .status,
        401
    );
    assert_eq!(request(&connector, "GET", "/nowhere", None, "").await.status, 404);
}

#[tokio::test]
async fn media_is_kept_for_its_owner_up_to_25_mib() {
    let gateway = |id: &str| GatewayCredentials {
        gateway_id: id.into(),
        secret: format!("secret of {id}").into(),
    };
    let settings = ConnectorSettings {
        gateways: vec![gateway("one"), gateway("two")],
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let (one, two) = (token(&gateway("one")), token(&gateway("two")));
    let upload = async |bearer: Option<&str>, body: Vec<u8>| {
        request(&connector, "POST", "/relay/media", bearer, body).await
    };
    assert_eq!(upload(None, vec![1]).await.status, 401);
    assert_eq!(upload(Some(&one), Vec::new()).await.status, 400);
    assert_eq!(
        upload(Some(&one), vec![0; 25 * 1024 * 1024 + 1]).await.status,
        413
    );
    assert_eq!(upload(Some(&one), vec![0; 25 * 1024 * 1024]).await.status, 200);
    let id = upload(Some(&one), b"hello".to_vec()).await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/relay/media/{id}");
    let download =
        async |path: &str, bearer: Option<&str>| request(&connector, "GET", path, bearer, "").await;
    assert_eq!(download(&path, None).await.status, 401);
    assert_eq!(download(&path, Some(&two)).await.status, 404);
    let file = download(&path, Some(&one)).await;
    assert_eq!((file.status, &*file.body), (200, &b"hello"[..]));
    assert_eq!(
        file.headers["content-disposition"],
        "attachment; filename=\"a.txt\""
    );
    let url = connector.put_media("image/png", None, vec![1, 2]);
    let file = download(url.strip_prefix(&connector.http_base()).unwrap(), Some(&one)).await;
    assert_eq!(
        (&file.headers["content-type"], &*file.body),
        (&"image/png".parse().unwrap(), &[1, 2][..])
    );
}

#[tokio::test]
async fn a_route_fails_as_configured_and_recovers() {
    let connector = connector().await;
    let body = json!({ "gatewayId": "gw-vm" });
    let ask = async || post(&connector, "/relay/provision", Some("me"), &body).await;
    connector.fail_route(
        HttpRoute::Provision,
        HttpRouteFault::answering(StatusCode::BAD_GATEWAY, "<html>").once(),
    );
    let redirect = HttpRouteFault {
        location: Some("http://127.0.0.1:1/".into()),
        ..HttpRouteFault::answering(StatusCode::TEMPORARY_REDIRECT, "")
    };
    connector.fail_route(HttpRoute::Provision, redirect);
    let broken = ask().await;
    assert_eq!((broken.status, &*broken.body), (502, &b"<html>"[..]));
    for _ in 0..2 {
        let elsewhere = ask().await;
        assert_eq!(
            (elsewhere.status, &elsewhere.headers["location"]),
            (307, &"http://127.0.0.1:1/".parse().unwrap())
        );
    }
    connector.mend_route(HttpRoute::Provision);
    assert_eq!(ask().await.status, 200);
}

#[tokio::test]
async fn a_sleeping_gateway_is_poked_once_per_cooldown() {
    let sleeper = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let wake_url = format!("http://{}/wake?me=1", sleeper.local_addr().unwrap());
    let connector = connector().await;
    let body = json!({ "gatewayId": "gw-dev", "wakeUrl": wake_url });
    assert_eq!(
        post(&connector, "/relay/provision", Some("me"), &body)
            .await
            .status,
        200
    );

    let client = greeted(&connector, "discord").await;
    connector
        .deliver(&text_event("discord", "c", "u1", "awake"))
        .unwrap();
    assert!(timeout(QUIET, sleeper.accept()).await.is_err(), "nobody sleeps");
    drop(client);
    connector
        .until("its end", SOON, |connector| {
            connector.open_connections().is_empty().then_some(())
        })
        .await
        .unwrap();
    connector
        .deliver(&text_event("discord", "c", "u2", "asleep"))
        .unwrap();
    let (mut poke, _) = timeout(SOON, sleeper.accept()).await.unwrap().unwrap();
    let mut head = vec![0; 15];
    timeout(SOON, poke.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(head, b"GET /wake?me=1 ");
    poke.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    connector
        .deliver(&text_event("discord", "c", "u3", "still asleep"))
        .unwrap();
    assert!(
        timeout(Duration::from_millis(150), sleeper.accept())
            .await
            .is_err(),
        "rests"
    );
}
