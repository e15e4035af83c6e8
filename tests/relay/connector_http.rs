//! The connector's HTTP routes against real servers: what travels, what each answer means.

use std::time::{Duration, SystemTime};

use crate::support::http_stub::{Stub, client, client_on, nobody, reply, reply_with, trace};
use axum::body::Body as AnswerBody;
use axum::http::Response;
use hermes_relay::net::connector_http::{
    EnrollError, Grant, PolicyError, ProvisionError, ProvisionOutcome, ProvisionRequest, check_encryption,
    declare_policy, enroll, provision, provision_all,
};
use hermes_relay::net::http::{Body, HttpError, HttpPolicy, MAX_BODY, Request};
use hermes_relay::net::proxy::ProxyRules;
use hermes_relay::wire::UpgradeToken;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

fn identity() -> SecretString {
    "identity-hush".into()
}

fn request(platform: &str) -> ProvisionRequest {
    ProvisionRequest {
        gateway_id: "gw-vm".into(),
        platform: platform.into(),
        bot_id: "1".into(),
        ..ProvisionRequest::default()
    }
}

/// Fails when any secret of these tests shows.
fn assert_discreet(shown: &str) {
    for secret in ["hush", "Bearer"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn enrolling_sends_what_the_trace_shows_and_reads_the_answer() {
    let answer =
        json!({"secret": "s-hush", "deliveryKey": "d-hush", "tenant": "acme", "gatewayId": "gw-theirs"});
    let stub = Stub::always(201, &answer.to_string()).await;
    let enrolled = enroll(&client(), &stub.base(), &identity(), &"ENR".into(), "gw-mine")
        .await
        .unwrap();

    let seen = stub.only();
    let expected = &trace()["enroll"];
    assert_eq!(
        (seen.method.as_str(), seen.uri.as_str()),
        ("POST", "/relay/enroll")
    );
    assert_eq!(
        seen.json(),
        serde_json::from_str::<Value>(expected["body"].as_str().unwrap()).unwrap()
    );
    assert_eq!(seen.header("authorization"), Some("Bearer identity-hush"));
    for name in ["Content-Type", "Accept"] {
        assert_eq!(seen.header(name), expected["headers"][name].as_str(), "{name}");
    }
    assert_eq!(seen.header("user-agent"), Some("hermes-relay/test"));

    assert_eq!(enrolled.secret.expose_secret(), "s-hush");
    assert_eq!(enrolled.delivery_key.as_ref().unwrap().expose_secret(), "d-hush");
    assert_eq!(
        (enrolled.tenant.as_deref(), enrolled.gateway_id.as_str()),
        (Some("acme"), "gw-theirs")
    );
    let age = SystemTime::now()
        .duration_since(enrolled.date.expect("a date"))
        .unwrap_or_default();
    assert!(age < Duration::from_secs(60), "{age:?}");
    assert_discreet(&format!("{enrolled:?}"));
}

#[tokio::test]
async fn only_the_secret_is_mandatory_in_an_enrolment() {
    let stub = Stub::always(
        200,
        r#"{"secret":"s","deliveryKey":"","tenant":7,"gatewayId":null}"#,
    )
    .await;
    let enrolled = enroll(&client(), &stub.base(), &identity(), &"ENR".into(), "gw-mine")
        .await
        .unwrap();
    assert!(enrolled.delivery_key.is_none() && enrolled.tenant.is_none());
    assert_eq!(enrolled.gateway_id, "gw-mine");
}

#[tokio::test]
async fn each_answer_to_an_enrolment_has_its_own_error() {
    let oversize = format!(r#"{{"secret":"{}"}}"#, "x".repeat(MAX_BODY));
    let cases: [(u16, &str, &str); 12] = [
        (
            401,
            r#"{"error":"nope"}"#,
            "connector rejected the caller identity (401). ",
        ),
        (403, r#"{"error":"token already used"}"#, "token already used"),
        (403, "<html>", "connector refused the enrollment token (403)"),
        (
            403,
            r#"{"error":{"a":1}}"#,
            "connector refused the enrollment token (403)",
        ),
        (
            500,
            r#"{"error":"a\u001b[31m\nb"}"#,
            "connector returned HTTP 500: a [31m b",
        ),
        (429, "", "connector returned HTTP 429"),
        (304, "", "connector returned HTTP 304"),
        (
            200,
            "{}",
            "connector returned an unexpected response (no secret).",
        ),
        (
            200,
            r#"{"secret":""}"#,
            "connector returned an unexpected response (no secret).",
        ),
        (
            200,
            "not json",
            "connector returned an unexpected response (no secret).",
        ),
        (
            200,
            "[]",
            "connector returned an unexpected response (no secret).",
        ),
        (200, &oversize, "the response is longer than 65536 bytes"),
    ];
    for (status, body, expected) in cases {
        let stub = Stub::always(status, body).await;
        let error = enroll(&client(), &stub.base(), &identity(), &"ENR-hush".into(), "gw")
            .await
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{status}: {error}");
        assert_discreet(&format!("{error} {error:?}"));
    }
}

#[tokio::test]
async fn long_reasons_are_cut() {
    let stub = Stub::always(500, &json!({"error": "e".repeat(10_000)}).to_string()).await;
    let error = enroll(&client(), &stub.base(), &identity(), &"ENR".into(), "gw")
        .await
        .unwrap_err();
    assert!(error.to_string().len() < 300, "{}", error.to_string().len());
}

#[tokio::test]
async fn a_connector_that_is_not_there_is_named_with_the_reason() {
    let base = nobody();
    let error = enroll(&client(), &base, &identity(), &"ENR".into(), "gw")
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("could not reach the connector at {base}: ")),
        "{text}"
    );
    assert!(text.to_lowercase().contains("refused"), "{text}");
}

#[tokio::test]
async fn a_redirect_is_an_error_and_the_bearer_never_reaches_the_other_origin() {
    let other = Stub::always(200, r#"{"secret":"s"}"#).await;
    for status in [301, 302, 303, 307, 308] {
        let target = other.base();
        let first = Stub::start(move |_| {
            let target = format!("{target}/relay/enroll?x=hush");
            reply_with(status, &[("location", &target)], "")
        })
        .await;
        let error = enroll(&client(), &first.base(), &identity(), &"ENR".into(), "gw")
            .await
            .unwrap_err();
        let EnrollError::Unreachable {
            reason: HttpError::Redirect { target, .. },
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(*target, other.base());
        assert_discreet(&error.to_string());
    }
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn plain_http_stays_on_this_machine() {
    let http = client();
    let send = async |url: &str, bearer: bool| {
        let secret = identity();
        let bearer = bearer.then_some(&secret);
        http.send(Request::new(url, Body::Get).bearer(bearer)).await
    };
    for url in ["http://192.0.2.1/", "http://connector.invalid/"] {
        assert!(
            matches!(send(url, true).await, Err(HttpError::Plaintext { .. })),
            "{url}"
        );
    }
    assert!(check_encryption(&http, "http://127.0.0.1:1").is_ok());
    assert!(check_encryption(&http, "http://192.0.2.1").is_err());
    let refused = enroll(&http, "http://192.0.2.1", &identity(), &"t".into(), "gw-1").await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, EnrollError::Plaintext { .. }), "{refused:?}");
    assert!(refused.to_string().contains("over https only"), "{refused}");
    // A metadata service may be asked, but is never told anything.
    assert!(matches!(
        send("http://169.254.169.254/", true).await,
        Err(HttpError::Plaintext { .. })
    ));
    for url in ["ftp://c.example/", "c.example", "https://user:hush@c.example/"] {
        let error = send(url, true).await.unwrap_err();
        assert!(matches!(error, HttpError::Address(_)), "{url}");
        assert_discreet(&format!("{error} {error:?}"));
    }
    let unsendable = "two\nlines-hush".into();
    let request = Request::new("https://c.invalid/", Body::Get).bearer(Some(&unsendable));
    let error = http.send(request).await.unwrap_err();
    assert!(matches!(error, HttpError::Credential));
}

#[tokio::test]
async fn requests_go_through_the_proxy_with_its_credentials() {
    let proxy = Stub::always(200, r#"{"secret":"s"}"#).await;
    let address = format!("http://user:p%40ss@{}", proxy.address());
    let rules = ProxyRules::from_env(&|name| (name == "http_proxy").then(|| address.clone()));
    let policy = HttpPolicy {
        allow_plaintext: true,
        ..HttpPolicy::default()
    };
    let http = client_on(rules, policy);
    enroll(
        &http,
        "http://connector.invalid",
        &identity(),
        &"ENR".into(),
        "gw",
    )
    .await
    .unwrap();
    let seen = proxy.only();
    assert_eq!(seen.uri, "http://connector.invalid/relay/enroll");
    assert_eq!(seen.header("proxy-authorization"), Some("Basic dXNlcjpwQHNz"));
}

#[tokio::test]
async fn the_servers_clock_is_reported() {
    let stub = Stub::start(|_| {
        let date = ("date", "Sat, 09 Aug 2025 00:40:00 GMT");
        reply_with(200, &[date], "{}")
    })
    .await;
    let base = stub.base();
    let answer = client().send(Request::new(&base, Body::Get)).await.unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_754_700_400);
    assert_eq!(answer.clock_skew_secs(now), Some(-400));
}

#[tokio::test]
async fn provisioning_sends_what_the_trace_shows() {
    let stub = Stub::always(200, r#"{"secret":"s-hush","routeKeys":["a",3,"b"],"tenant":"t"}"#).await;
    let request = ProvisionRequest {
        route_keys: vec!["a".into(), "b".into()],
        instance_id: Some("inst".into()),
        wake_url: Some("https://w".into()),
        ..request("discord")
    };
    let provisioned = provision(&client(), &stub.base(), &identity(), &request)
        .await
        .unwrap();
    let seen = stub.only();
    assert_eq!(
        (seen.method.as_str(), seen.uri.as_str()),
        ("POST", "/relay/provision")
    );
    assert_eq!(seen.header("authorization"), Some("Bearer identity-hush"));
    let expected: Value = serde_json::from_str(trace()["provision"]["body"].as_str().unwrap()).unwrap();
    assert_eq!(seen.json(), expected);
    assert_eq!(provisioned.route_keys, ["a", "b"]);
    assert_eq!(provisioned.gateway_id, "gw-vm");
    assert!(matches!(&provisioned.grant, Grant::Issued { secret, .. } if secret.expose_secret() == "s-hush"));
    assert_discreet(&format!("{provisioned:?}"));
}

#[tokio::test]
async fn no_secret_is_accepted_only_as_a_literal_false() {
    let stub = Stub::always(200, r#"{"secretIssued":false}"#).await;
    let provisioned = provision(&client(), &stub.base(), &identity(), &request("x"))
        .await
        .unwrap();
    assert!(matches!(provisioned.grant, Grant::Withheld));
    for body in [
        "{}",
        r#"{"secretIssued":"false"}"#,
        r#"{"secretIssued":0}"#,
        r#"{"secretIssued":null}"#,
        r#"{"secretIssued":true}"#,
    ] {
        let stub = Stub::always(200, body).await;
        let error = provision(&client(), &stub.base(), &identity(), &request("x"))
            .await
            .unwrap_err();
        assert!(matches!(error, ProvisionError::NoSecret), "{body}: {error:?}");
        assert_eq!(
            error.to_string(),
            "connector returned an unexpected response (no secret)"
        );
    }
}

/// A connector that answers by platform.
async fn by_platform(answer: impl Fn(&str) -> Response<AnswerBody> + Send + Sync + 'static) -> Stub {
    Stub::start(move |seen| answer(seen.json()["platform"].as_str().unwrap())).await
}

#[tokio::test]
async fn one_bad_identity_does_not_stop_the_rest() {
    let stub = by_platform(|platform| match platform {
        "down" => reply(503, r#"{"error":"busy"}"#),
        "html" => reply(200, "<html>"),
        "withheld" => reply(200, r#"{"secretIssued":false}"#),
        "first" => reply(
            200,
            r#"{"secret":"first-hush","deliveryKey":"key-hush","gatewayId":"gw-1"}"#,
        ),
        _ => reply(200, r#"{"secret":"second-hush","gatewayId":"gw-2"}"#),
    })
    .await;
    let requests = ["down", "html", "withheld", "first", "second"].map(request);
    let provisioning = provision_all(&client(), &stub.base(), &identity(), &requests).await;

    let asked: Vec<_> = stub
        .seen()
        .iter()
        .map(|seen| seen.json()["platform"].clone())
        .collect();
    assert_eq!(asked, ["down", "html", "withheld", "first", "second"]);
    let texts: Vec<_> = provisioning
        .results
        .iter()
        .filter_map(|r| r.as_ref().err())
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        texts,
        [
            "connector returned HTTP 503: busy",
            "connector returned an unexpected response (not JSON)"
        ]
    );
    let ProvisionOutcome::Issued {
        gateway_id,
        secret,
        delivery_key,
    } = provisioning.outcome()
    else {
        panic!("no credentials")
    };
    assert_eq!((gateway_id, secret.expose_secret()), ("gw-1", "first-hush"));
    assert_eq!(delivery_key.unwrap().expose_secret(), "key-hush");
    assert_discreet(&format!("{provisioning:?}"));
}

#[tokio::test]
async fn withheld_everywhere_and_failed_everywhere_are_distinguished() {
    let withheld = by_platform(|p| {
        if p == "a" {
            reply(500, "")
        } else {
            reply(200, r#"{"secretIssued":false}"#)
        }
    })
    .await;
    let provisioning =
        provision_all(&client(), &withheld.base(), &identity(), &["a", "b"].map(request)).await;
    assert!(matches!(provisioning.outcome(), ProvisionOutcome::Withheld));

    let provisioning = provision_all(&client(), &nobody(), &identity(), &["a", "b"].map(request)).await;
    assert!(matches!(provisioning.outcome(), ProvisionOutcome::Failed));
    let text = provisioning.results[1].as_ref().unwrap_err().to_string();
    assert!(text.starts_with("could not reach connector: "), "{text}");
}

#[tokio::test]
async fn a_policy_is_declared_with_the_upgrade_token_and_only_200_counts() {
    let token = UpgradeToken::mint("gw-test", &"topsecret-hush".into(), 300, 1_754_700_000);
    let policy: Value = serde_json::from_str(trace()["policy"]["body"].as_str().unwrap()).unwrap();
    let stub = Stub::always(200, "").await;
    declare_policy(&client(), &stub.base(), &token, &policy)
        .await
        .unwrap();
    let seen = stub.only();
    assert_eq!(
        (seen.method.as_str(), seen.uri.as_str()),
        ("POST", "/relay/policy")
    );
    assert_eq!(
        seen.header("authorization"),
        Some(format!("Bearer {}", token.expose()).as_str())
    );
    assert_eq!(seen.json(), policy);

    for (status, body, expected) in [
        (201, "", "connector returned HTTP 201"),
        (204, "", "connector returned HTTP 204"),
        (
            401,
            r#"{"error":"expired"}"#,
            "connector returned HTTP 401: expired",
        ),
    ] {
        let stub = Stub::always(status, body).await;
        let error = declare_policy(&client(), &stub.base(), &token, &policy)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error, PolicyError::Status { date: Some(_), .. }));
    }
    let error = declare_policy(&client(), &nobody(), &token, &policy)
        .await
        .unwrap_err();
    assert!(matches!(error, PolicyError::Unreachable(_)));
}
