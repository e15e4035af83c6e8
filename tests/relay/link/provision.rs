//! Before the first dial: credentials from the connector, and the relevance policy.

use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings, HttpRoute, HttpRouteFault, TokenCheck, text_event};
use http::StatusCode;
use rustix::process::Signal;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::link::handshake::connector;
use crate::support::http_stub::{Stub, reply};
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;

/// A token endpoint that knows one client.
async fn identity_provider() -> Stub {
    Stub::start(|seen| {
        let form = seen.body.contains("grant_type=client_credentials");
        let known = seen.body.contains("client_id=robot") || seen.header("authorization").is_some();
        if seen.method == "POST" && form && known {
            reply(
                200,
                r#"{"access_token":"who-i-am","token_type":"Bearer","expires_in":60}"#,
            )
        } else {
            reply(401, r#"{"error":"invalid_client"}"#)
        }
    })
    .await
}

/// A connector that accepts the provider's token, and a relay that has nothing but the provider.
async fn strangers() -> (Connector, Stub, Setup) {
    let settings = ConnectorSettings {
        identity_tokens: Some(vec!["who-i-am".to_owned()]),
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let provider = identity_provider().await;
    let setup = Setup::with_url(&connector.url())
        .env(
            "GATEWAY_RELAY_IDP_TOKEN_URL",
            &format!("{}/token", provider.base()),
        )
        .env("GATEWAY_RELAY_IDP_CLIENT_ID", "robot")
        .env("GATEWAY_RELAY_IDP_CLIENT_SECRET", "hush-hush")
        .env("GATEWAY_RELAY_PLATFORMS", "discord,telegram");
    (connector, provider, setup)
}

fn posted(connector: &Connector, path: &str) -> Vec<(StatusCode, Value)> {
    let requests = connector.requests().into_iter();
    requests
        .filter(|request| request.path == path)
        .map(|request| (request.answered, request.json))
        .collect()
}

#[tokio::test]
async fn a_relay_without_a_secret_asks_for_one_as_every_identity_and_keeps_it_to_itself() {
    let (connector, provider, setup) = strangers().await;
    let setup = setup
        .env("GATEWAY_RELAY_ID", "gw-new")
        .env("GATEWAY_RELAY_ROUTE_KEYS", "team-a, team-b")
        .env("GATEWAY_RELAY_BOT_IDS", r#"{"telegram":{"botId":"42"}}"#);
    let relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    assert_eq!(provider.seen().len(), 1);
    let asked = posted(&connector, "/relay/provision");
    assert!(
        asked.iter().all(|(status, _)| *status == StatusCode::OK),
        "{asked:?}"
    );
    assert_eq!(
        asked[0].1,
        json!({
            "gatewayId": "gw-new",
            "platform": "discord",
            "botId": "",
            "gatewayEndpoint": "",
            "routeKeys": ["team-a", "team-b"],
        })
    );
    assert_eq!(
        (&asked[1].1["platform"], &asked[1].1["botId"]),
        (&json!("telegram"), &json!("42"))
    );
    assert_eq!(asked.len(), 2, "one for each identity");
    let dials = connector.dials();
    assert_eq!(dials.len(), 1);
    assert_eq!(
        (dials[0].token, dials[0].gateway_id.as_deref()),
        (TokenCheck::Valid, Some("gw-new"))
    );
    connector
        .deliver(&text_event("telegram", "c1", "m1", "hello"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    assert!(!setup.home().join(".env").exists(), "nothing is written");
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_asks_for_a_secret_tells_how_it_stands_and_reloads() {
    let (connector, provider, setup) = strangers().await;
    let slow = HttpRouteFault {
        delay: Duration::from_secs(600),
        ..HttpRouteFault::answering(StatusCode::OK, "{}")
    };
    connector.fail_route(HttpRoute::Provision, slow);
    let relay = setup.start();
    eventually("an identity", async || !provider.seen().is_empty()).await;
    relay.signal(Signal::USR2);
    relay.wait_for_log("dump: link not dialled yet").await;
    let pinned = connector.credentials().unwrap();
    let (id, secret) = (pinned.gateway_id, pinned.secret);
    let secret = secret.expose_secret();
    setup.write(
        ".env",
        &format!("GATEWAY_RELAY_ID={id}\nGATEWAY_RELAY_SECRET={secret}\n"),
    );
    relay.signal(Signal::HUP);
    relay.wait_for_log("settings reloaded").await;
    connector.wait_connected(SOON).await.unwrap();
    let dials = connector.dials();
    assert_eq!(
        (dials[0].token, dials[0].gateway_id.as_ref()),
        (TokenCheck::Valid, Some(&id))
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_connector_that_withholds_the_secret_is_reported_and_dialled_without_one() {
    let (connector, _provider, setup) = strangers().await;
    let mut relay = setup.env("GATEWAY_RELAY_ID", "gw-dev").start();
    let line = relay.wait_for_log("gave no secret").await;
    assert!(
        line.contains("rotate") && line.contains("GATEWAY_RELAY_SECRET"),
        "{line}"
    );
    relay.wait_for_log("does not accept our credentials").await;
    assert_eq!(connector.dials()[0].token, TokenCheck::Missing);
    assert!(!relay.has_ended());
}

#[tokio::test]
async fn an_identity_that_fails_does_not_keep_the_others_from_being_provisioned() {
    let (connector, _provider, setup) = strangers().await;
    let broken = HttpRouteFault::answering(StatusCode::INTERNAL_SERVER_ERROR, r#"{"error":"out of order"}"#);
    connector.fail_route(HttpRoute::Provision, broken.once());
    let relay = setup.env("GATEWAY_RELAY_ID", "gw-new").start();
    connector.wait_connected(SOON).await.unwrap();
    let line = relay.wait_for_log("did not provision this identity").await;
    assert!(
        line.contains("discord") && line.contains("out of order"),
        "{line}"
    );
    assert_eq!(connector.dials()[0].token, TokenCheck::Valid);
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_nobody_vouches_for_starts_all_the_same() {
    let connector = connector().await;
    let mut relay = Setup::with_url(&connector.url()).start();
    let line = relay.wait_for_log("no identity to request one with").await;
    assert!(line.contains("dialing without credentials"), "{line}");
    relay.wait_for_log("does not accept our credentials").await;
    assert!(!relay.has_ended());
    assert!(connector.requests().is_empty());
}

#[tokio::test]
async fn pinned_credentials_are_not_asked_for_again() {
    let (connector, provider, setup) = strangers().await;
    let relay = setup.enrolled_with(&connector).start();
    connector.wait_connected(SOON).await.unwrap();
    assert!(provider.seen().is_empty());
    assert!(posted(&connector, "/relay/provision").is_empty());
    relay.stop().await;
}

#[tokio::test]
async fn the_policy_is_declared_for_each_platform_that_has_one() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_PLATFORMS", "discord,telegram,slack")
        .env("TELEGRAM_ALLOW_BOTS", "Mentions");
    setup.write(
        "config.yaml",
        "discord:\n  require_mention: true\n  free_response_channels: [123, ' general ']\n",
    );
    let relay = setup.start();
    let declared = connector.until("two policies", SOON, |connector| {
        let posted = posted(connector, "/relay/policy");
        (posted.len() >= 2).then_some(posted)
    });
    let declared = declared.await.unwrap();
    let body = |platform: &str, address: bool, scopes: &[&str], bots: bool| {
        let body = json!({
            "platform": platform,
            "requireAddress": address,
            "freeResponseScopes": scopes,
            "allowOtherBots": bots,
        });
        (StatusCode::OK, body)
    };
    assert_eq!(
        declared,
        [
            body("discord", true, &["123", "general"], false),
            body("telegram", false, &[], true)
        ]
    );
    let request = &connector.requests()[0];
    assert_eq!(
        request.gateway_id.as_deref(),
        Some("gw-dev"),
        "signed like a dial"
    );
    relay.stop().await;
    assert_eq!(posted(&connector, "/relay/policy").len(), 2, "nothing for slack");
}

#[tokio::test]
async fn a_policy_that_is_not_taken_is_declared_again() {
    let connector = connector().await;
    let broken = HttpRouteFault::answering(StatusCode::NO_CONTENT, "");
    connector.fail_route(HttpRoute::Policy, broken.once());
    let setup = Setup::for_connector(&connector);
    setup.write("config.yaml", "require_mention: true\n");
    let relay = setup.start();
    relay.wait_for_log("did not accept the relevance policy").await;
    relay.wait_for_log("accepted the relevance policy").await;
    let statuses: Vec<_> = posted(&connector, "/relay/policy")
        .iter()
        .map(|(status, _)| status.as_u16())
        .collect();
    assert_eq!(statuses, [204, 200]);
    relay.stop().await;
}

#[tokio::test]
async fn a_slow_policy_route_keeps_nobody_waiting() {
    let connector = connector().await;
    let slow = HttpRouteFault {
        delay: Duration::from_secs(60),
        ..HttpRouteFault::answering(StatusCode::OK, "{}")
    };
    connector.fail_route(HttpRoute::Policy, slow);
    let setup = Setup::for_connector(&connector);
    setup.write("config.yaml", "require_mention: true\n");
    let relay = setup.start();
    connector
        .deliver(&text_event("discord", "c1", "m1", "hello"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    assert!(
        posted(&connector, "/relay/policy").is_empty(),
        "still not answered"
    );
    relay.stop().await;
}

#[tokio::test]
async fn no_policy_is_declared_when_none_is_configured() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector).start();
    connector
        .deliver(&text_event("discord", "c1", "m1", "hello"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.stop().await;
    assert!(connector.requests().is_empty());
}
