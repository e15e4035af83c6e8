//! What is wrong with the talk, and a set-up with which nothing is.

use crate::support::dev::{DialRule, PlatformPreset, When, text_event};
use http::StatusCode;

use crate::doctor::rig::{connector, doctor};
use crate::support::relay_process::{SOON, Setup};

#[tokio::test]
async fn a_healthy_set_up_passes_everything_and_keeps_its_secret() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).env("GATEWAY_RELAY_PLATFORMS", "discord,telegram");
    let report = doctor(setup, &[]).await;
    for row in &report.rows {
        assert_eq!(row["outcome"], "ok", "{row}");
        assert_eq!(row["remedy"], serde_json::Value::Null, "{row}");
        let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
        let stable = [
            "blocked_by",
            "detail",
            "id",
            "outcome",
            "remedy",
            "subject",
            "title",
        ];
        assert_eq!(keys, stable);
    }
    assert_eq!(report.code, 0);
    report.keeps_secret(&connector);
    let platforms: Vec<&str> = report
        .of("handshake")
        .iter()
        .map(|row| row["subject"].as_str().unwrap())
        .collect();
    assert_eq!(platforms, ["discord", "telegram"]);
    assert_eq!(connector.dials().len(), 1, "one dial for all");
    let gone = connector.until("the doctor is gone", SOON, |connector| {
        connector.open_connections().is_empty().then_some(())
    });
    gone.await.unwrap();
}

#[tokio::test]
async fn a_message_that_waits_is_not_taken() {
    let connector = connector().await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "wait for the relay"))
        .unwrap();
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.passes(&["handshake"]);
    assert!(connector.acks().is_empty(), "the doctor acknowledges nothing");
    let relay = Setup::for_connector(&connector).start();
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.stop().await;
}

#[tokio::test]
async fn a_wrong_path_is_distinguished_from_wrong_credentials() {
    let connector = connector().await;
    let wrong = format!("{}/elsewhere", connector.url());
    let report = doctor(Setup::with_url(&wrong).enrolled_with(&connector), &[]).await;
    report
        .blames("upgrade", "HTTP 404", "path")
        .skips(&["token", "handshake"]);

    connector.refuse_dials(StatusCode::BAD_REQUEST, None);
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.blames("upgrade", "HTTP 400", "path");

    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
        connector.refuse_dials(status, None);
        let report = doctor(Setup::for_connector(&connector), &[]).await;
        let cause = format!("HTTP {}: the credentials", status.as_u16());
        report
            .blames("upgrade", &cause, "GATEWAY_RELAY_ID")
            .keeps_secret(&connector);
    }

    connector.answer_dials(DialRule::Redirect {
        location: "wss://elsewhere.example/relay".to_owned(),
    });
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.blames("upgrade", "redirected to elsewhere.example", "connector URL");

    connector.refuse_dials(StatusCode::SERVICE_UNAVAILABLE, Some(3));
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.blames("upgrade", "HTTP 503", "unavailable");
}

#[tokio::test]
async fn a_wrong_secret_is_distinguished_from_an_expired_token() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).env("GATEWAY_RELAY_SECRET", "hush-hush");
    let report = doctor(setup, &[]).await;
    report
        .blames("token", "4401 `unauthorized`", "hermes-relay enroll")
        .passes(&["upgrade", "clock"])
        .skips(&["handshake"]);
    assert!(
        !report
            .rows
            .iter()
            .any(|row| row.to_string().contains("hush-hush"))
    );

    connector.unauthorized_next(1, "expired", When::AfterHello);
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.blames("token", "4401 `expired`", "clock");
}

#[tokio::test]
async fn no_credentials_are_a_warning_and_the_connector_says_the_rest() {
    let connector = connector().await;
    let report = doctor(Setup::with_url(&connector.url()), &[]).await;
    report
        .warns(
            "credentials",
            "neither a gateway id nor a secret",
            "hermes-relay enroll",
        )
        .blames("token", "4401", "hermes-relay enroll");

    let hosted =
        Setup::with_url(&connector.url()).env("GATEWAY_RELAY_IDP_TOKEN_URL", "http://127.0.0.1:1/token");
    let before = connector.dials().len();
    let report = doctor(hosted, &[]).await;
    report.passes(&["credentials"]).skips(&["token", "handshake"]);
    assert_eq!(report.code, 0, "the relay provisions itself");
    assert_eq!(connector.dials().len(), before);
    assert!(connector.requests().is_empty(), "the doctor does not");
}

#[tokio::test]
async fn a_connector_that_answers_no_hello_and_one_that_speaks_of_another_platform_are_reported() {
    let connector = connector().await;
    connector.ignore_hellos(true);
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report
        .blames("handshake", "no descriptor", "relay endpoint")
        .passes(&["token"]);

    connector.ignore_hellos(false);
    connector.set_descriptor("discord", PlatformPreset::Telegram.wire("telegram"));
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.warns(
        "handshake",
        "no descriptor for this identity",
        "GATEWAY_RELAY_PLATFORMS",
    );
    report.warns(
        "handshake",
        "not a configured identity",
        "GATEWAY_RELAY_PLATFORMS",
    );
    assert_eq!(report.code, 0);
}

#[tokio::test]
async fn a_relay_that_names_no_platform_takes_what_the_connector_declares() {
    let connector = connector().await;
    connector.set_descriptor("relay", PlatformPreset::Telegram.wire("telegram"));
    let setup = Setup::for_connector(&connector).without_env("GATEWAY_RELAY_PLATFORMS");
    let report = doctor(setup, &[]).await;
    report.passes(&["handshake"]);
    assert!(
        report.row("handshake")["detail"]
            .as_str()
            .unwrap()
            .starts_with("Telegram")
    );
}

#[tokio::test]
async fn a_policy_is_reported_and_declared_only_with_permission() {
    let connector = connector().await;
    let setup = || {
        let setup = Setup::for_connector(&connector);
        setup.write("config.yaml", "require_mention: true\n");
        setup
    };
    let declared = || {
        let requests = connector.requests();
        requests
            .iter()
            .filter(|request| request.path == "/relay/policy")
            .count()
    };
    let report = doctor(setup(), &[]).await;
    let row = report.row("policy");
    assert!(row["detail"].as_str().unwrap().contains("--declare"), "{row}");
    assert_eq!(declared(), 0, "looking changes nothing");
    let report = doctor(setup(), &["--declare"]).await;
    report.passes(&["policy"]);
    assert_eq!(declared(), 1);

    let setup = setup().env("GATEWAY_RELAY_SECRET", "hush-hush");
    let report = doctor(setup, &["--declare"]).await;
    let row = report.row("policy");
    assert_eq!(row["outcome"], "failed", "{row}");
    assert!(row["remedy"].as_str().unwrap().contains("enroll"), "{row}");
}

#[tokio::test]
async fn people_see_marks_that_their_terminal_has_and_remedies_below_failures() {
    let connector = connector().await;
    let wrong = || {
        Setup::for_connector(&connector)
            .env("GATEWAY_RELAY_SECRET", "hush-hush")
            .args(&["doctor"])
    };
    let mut plain = wrong().start();
    assert_eq!(plain.exit_code(SOON).await, 1);
    let text = plain.stdout();
    assert!(text.is_ascii(), "{text}");
    let at = text
        .lines()
        .position(|line| line.starts_with("x Token accepted"))
        .unwrap();
    assert!(
        text.lines()
            .nth(at + 1)
            .unwrap()
            .trim_start()
            .starts_with("-> check"),
        "{text}"
    );
    let shown: Vec<&str> = text.lines().filter(|line| line.starts_with(['+', '-'])).collect();
    assert!(shown.is_empty(), "only problems: {text}");
    let end = text.lines().last().unwrap();
    assert!(end.starts_with("1 failed"), "{text}");
    assert!(
        end.contains(" checks passed, ") && end.ends_with(" skipped (--verbose shows them)."),
        "{text}"
    );

    let fancy = wrong().env("LANG", "de_DE.UTF-8");
    let mut fancy = fancy.args(&["doctor", "--verbose"]).start();
    assert_eq!(fancy.exit_code(SOON).await, 1);
    let text = fancy.stdout();
    assert!(
        text.contains("✗ Token accepted") && text.contains("✓ Settings") && text.contains("– Handshake"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "no colours into a file: {text}");
}
