use std::time::Duration;

use crate::support::dev::{
    Connector, ConnectorSettings, GatewayCredentials, PlatformPreset, TokenCheck, When,
};
use hermes_relay::wire::UpgradeToken;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

use crate::dev_connector::client::{SOON, connector, dial, dial_as, greeted, now, token};

#[tokio::test]
async fn one_descriptor_answers_each_hello_in_order() {
    let connector = connector().await;
    let mut client = dial(&connector).await;
    assert!(client.upgrade.headers().contains_key("date"));
    for platform in ["discord", "telegram", "matrix", "discord"] {
        client.hello(platform).await;
    }
    let mut lengths = Vec::new();
    for platform in ["discord", "telegram", "matrix", "discord"] {
        let frame = client.line().await;
        assert_eq!(frame["type"], "descriptor");
        assert_eq!(frame["descriptor"]["platform"], platform);
        lengths.push(frame["descriptor"]["max_message_length"].as_u64().unwrap());
    }
    assert_eq!(lengths, [2000, 4096, 4096, 2000]);
    assert!(connector.addr().ip().is_loopback() && connector.is_connected());
    let dials = connector.dials();
    assert_eq!(dials.len(), 1);
    assert_eq!(dials[0].token, TokenCheck::Valid);
    assert_eq!(dials[0].gateway_id.as_deref(), Some("gw-dev"));
    assert!(!dials[0].headers.contains_key("authorization"));
    assert!(!format!("{:?}", dials[0]).contains(dials[0].bearer.as_ref().unwrap().expose_secret()));
}

#[tokio::test]
async fn recorded_frames_of_the_reference_are_understood() {
    let trace: Value = serde_json::from_str(include_str!("../../vectors/wire-trace.json")).unwrap();
    let lines = trace["gateway_to_connector"].as_array().unwrap();
    assert!(!lines.is_empty());
    let connector = connector().await;
    let mut client = dial(&connector).await;
    for line in lines {
        let line: Value = serde_json::from_str(line.as_str().unwrap()).unwrap();
        client.say(line).await;
    }
    let mut kinds = Vec::new();
    for _ in 0..6 {
        kinds.push(client.line().await["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        kinds,
        [
            "descriptor",
            "descriptor",
            "outbound_result",
            "outbound_result",
            "outbound_result",
            "going_idle_ack"
        ]
    );
    assert_eq!(connector.undecodable(), 0);
    let seen = connector.until("the ack", SOON, |connector| connector.acks().pop());
    assert!(!seen.await.unwrap().matched);
}

#[tokio::test]
async fn a_bad_token_is_upgraded_and_closed_with_4401() {
    let connector = connector().await;
    let good = connector.credentials().unwrap();
    let old = UpgradeToken::mint(&good.gateway_id, &good.secret, 300, now() - 301);
    let stranger = UpgradeToken::mint("gw-other", &good.secret, 300, now());
    let forged = UpgradeToken::mint(&good.gateway_id, &"wrong".into(), 300, now() - 301);
    let cases = [
        (None, "unauthorized", TokenCheck::Missing),
        (Some("nonsense"), "unauthorized", TokenCheck::Unauthorized),
        (Some(old.expose()), "expired", TokenCheck::Expired),
        (Some(stranger.expose()), "unauthorized", TokenCheck::Unauthorized),
        (Some(forged.expose()), "unauthorized", TokenCheck::Unauthorized),
    ];
    for (bearer, reason, verdict) in cases {
        let mut client = dial_as(&connector, bearer).await.unwrap();
        assert_eq!(client.closed().await, (4401, reason.to_owned()));
        assert_eq!(connector.dials().last().unwrap().token, verdict);
    }
    assert!(!connector.is_connected());
    greeted(&connector, "discord").await;
}

#[tokio::test]
async fn every_secret_of_a_rotation_is_good() {
    let gateway = |secret: &str| GatewayCredentials {
        gateway_id: "gw:a".to_owned(),
        secret: secret.into(),
    };
    let settings = ConnectorSettings {
        gateways: vec![gateway("old"), gateway("new")],
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    for secret in ["old", "new"] {
        let mut client = dial_as(&connector, Some(&token(&gateway(secret)))).await.unwrap();
        client.hello("slack").await;
        assert_eq!(client.line().await["type"], "descriptor");
    }
}

#[tokio::test]
async fn a_good_token_is_denied_on_request_at_each_stage() {
    let connector = connector().await;
    connector.unauthorized_next(1, "expired", When::AtOnce);
    connector.unauthorized_next(1, "unauthorized", When::AfterHello);
    connector.unauthorized_next(1, "unauthorized", When::AfterDescriptor);
    assert_eq!(dial(&connector).await.closed().await, (4401, "expired".into()));
    let mut client = dial(&connector).await;
    client.quiet().await;
    client.hello("discord").await;
    assert_eq!(client.closed().await, (4401, "unauthorized".into()));
    let mut client = greeted(&connector, "discord").await;
    assert_eq!(client.closed().await, (4401, "unauthorized".into()));
    greeted(&connector, "discord").await.quiet().await;
}

#[tokio::test]
async fn a_wrong_clock_shows_in_dates_and_in_tokens() {
    let connector = connector().await;
    connector.set_clock_offset(3_600);
    let mut client = dial(&connector).await;
    let date = client.upgrade.headers()["date"].to_str().unwrap().to_owned();
    let ahead = httpdate::parse_http_date(&date).unwrap();
    let offset = ahead.duration_since(std::time::SystemTime::now()).unwrap();
    assert!(offset > Duration::from_secs(3_590) && offset <= Duration::from_secs(3_600));
    assert_eq!(client.closed().await, (4401, "expired".into()));
    connector.set_clock_offset(-3_600);
    let client = greeted(&connector, "discord").await;
    let behind = client.upgrade.headers()["date"].to_str().unwrap().to_owned();
    assert!(httpdate::parse_http_date(&behind).unwrap() < std::time::SystemTime::now());
}

#[tokio::test]
async fn the_newest_connection_wins_or_is_refused() {
    let connector = connector().await;
    let mut old = greeted(&connector, "discord").await;
    let mut new = greeted(&connector, "discord").await;
    assert_eq!(old.closed().await, (4000, "replaced by a new dial".into()));
    assert!(connector.deliver_live(&json!({ "text": "x" })));
    assert_eq!(new.line().await["event"]["text"], "x");

    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    connector.refuse_second_connections();
    let mut old = greeted(&connector, "discord").await;
    let mut new = dial(&connector).await;
    assert_eq!(new.closed().await, (1008, "duplicate session".into()));
    old.quiet().await;
    drop(old);
    connector
        .until("the old one gone", SOON, |connector| {
            connector.open_connections().is_empty().then_some(())
        })
        .await
        .unwrap();
    greeted(&connector, "discord").await;
}

#[tokio::test]
async fn descriptors_can_be_set() {
    let connector = connector().await;
    connector.set_descriptor("discord", PlatformPreset::Legacy.wire("discord"));
    connector.set_descriptor("slack", json!({ "platform": "slack" }));
    let mut client = dial(&connector).await;
    client.hello("discord").await;
    assert!(client.line().await["descriptor"].get("supported_ops").is_none());
    client.hello("slack").await;
    assert_eq!(client.line().await["descriptor"], json!({ "platform": "slack" }));
}

#[tokio::test]
async fn a_request_without_an_upgrade_gets_a_clear_error() {
    let connector = connector().await;
    let plain = crate::dev_connector::routes::request(&connector, "GET", "/relay", None, "").await;
    assert_eq!(plain.status, 426);
    let mut request = tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(
        format!("{}/elsewhere", connector.url()),
    )
    .unwrap();
    request.headers_mut().insert("x", "y".parse().unwrap());
    let socket = tokio::net::TcpStream::connect(connector.addr()).await.unwrap();
    match tokio_tungstenite::client_async(request, socket).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 404),
        other => panic!("{:?}", other.map(|_| ())),
    }
}
