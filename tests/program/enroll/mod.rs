//! The `enroll` verb, end to end: what was typed, what was asked, what was printed, written and returned.

mod fixture;

use std::fs;

use crate::support::http_stub::{Seen, Stub, nobody, reply, reply_with};
use clap::Parser;
use fixture::{ACCEPTED, Cli, EnrollRun, Fixture, Input, OLD_ENV, assert_discreet, connector, mode};
use hermes_relay::cli::enroll::{EnrollOutcome, PinnedSetting};
use hermes_relay::config::dotenv_edit::lock;
use hermes_relay::net::connector_http::ProvisionRequest;
use secrecy::ExposeSecret;

/// Enrolls with a token from the pipe and asks to be woken.
async fn enroll_to_be_woken(fixture: &mut Fixture, stub: &Stub) -> EnrollRun {
    let args = [
        "--token",
        "-",
        "--connector-url",
        &stub.base(),
        "--wake-url",
        "https://w.example",
    ];
    fixture.run(&args).await
}

#[tokio::test]
async fn a_managed_install_is_refused_before_anything_else() {
    let line = "`hermes gateway enroll` is not available in a managed/hosted install.";
    let mut fixture = Fixture::new().await;
    fixture.env.push(("HERMES_MANAGED", "1".into()));
    fixture.fails(&[], line).await;
    let mut fixture = Fixture::new().await;
    fs::write(fixture.home.path().join(".managed"), "").unwrap();
    fixture
        .fails(&["--token", "t-hush", "--connector-url", &nobody()], line)
        .await;
}

#[tokio::test]
async fn the_checks_come_in_order_token_url_identity() {
    let mut fixture = Fixture::new().await;
    let no_token = "No enrollment token. Pass --token <token> (or set GATEWAY_RELAY_ENROLL_TOKEN).";
    fixture
        .fails(
            &["--token", " ", "--connector-url", "https://c.invalid"],
            no_token,
        )
        .await;
    fixture.input.terminal = Some("");
    fixture.fails(&[], no_token).await;
    let no_url = "No connector URL. Pass --connector-url <url> (or set GATEWAY_RELAY_URL / gateway.relay_url in config.yaml).";
    fixture.fails(&["--token", "t-hush"], no_url).await;
    fixture.env.clear();
    fixture
        .fails(
            &["--token", "t-hush", "--connector-url", "http://192.0.2.1"],
            "Enrollment failed: The connection to http://192.0.2.1 would not be encrypted, and tokens are sent over https only",
        )
        .await;
    let stub = Stub::always(200, ACCEPTED).await;
    fixture
        .fails(
            &["--token", "t-hush", "--connector-url", &stub.base()],
            "You're not logged into Nous Portal.",
        )
        .await;
    assert!(stub.seen().is_empty());
}

#[tokio::test]
async fn a_dry_run_checks_what_can_be_checked_and_spends_and_writes_nothing() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    // The whole command line for an enrolment, with one word more.
    let args = ["--dry-run", "--connector-url", &stub.base(), "--token", "t1"];
    let output = fixture.run(&args).await;
    assert!(matches!(output.outcome, EnrollOutcome::Checked), "{}", output.err);
    assert_eq!(output.outcome.exit_code(), 0);
    assert!(
        output.out.contains("gw-box") && output.out.contains(".env"),
        "{}",
        output.out
    );
    let seen = stub.seen();
    let [asked] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((asked.method.as_str(), asked.path()), ("GET", "/relay/enroll"));
    assert!(
        asked.header("authorization").is_none(),
        "nothing is sent that could use a token"
    );
    assert_eq!(fs::read_to_string(fixture.dotenv()).unwrap(), OLD_ENV);
    let gone = nobody();
    let line = format!("Enrollment failed: Could not reach the connector at {gone}: ");
    fixture
        .fails(&["--dry-run", "--connector-url", &gone], &line)
        .await;
    let without_route = Stub::always(404, "{}").await;
    let output = fixture
        .run(&["--dry-run", "--connector-url", &without_route.base()])
        .await;
    assert!(output.err.contains("has no enrollment route"), "{}", output.err);
    fixture.env.clear();
    let line = "You're not logged into Nous Portal.";
    fixture
        .fails(&["--dry-run", "--connector-url", &stub.base()], line)
        .await;
}

#[tokio::test]
async fn settings_that_come_before_the_file_are_named_before_the_token_is_used() {
    let stub = Stub::always(200, ACCEPTED).await;
    let url = stub.base();
    let pinned = |key: &'static str, value: Option<&str>| PinnedSetting {
        key,
        value: value.map(str::to_owned),
        origin: "/home/x/relay.yaml".to_owned(),
    };
    let mut fixture = Fixture::new().await;
    fixture.pinned = vec![
        pinned("connector.gateway_id", Some("old")),
        pinned("connector.secret_file", None),
        pinned("connector.url", Some(&url)),
    ];
    let dry = fixture.run(&["--dry-run", "--connector-url", &url]).await;
    let real = ["--token", "t1", "--connector-url", &url];
    for output in [dry, fixture.run(&real).await] {
        assert_eq!(output.outcome.exit_code(), 0, "{}", output.err);
        let named =
            "`connector.gateway_id` (/home/x/relay.yaml), `connector.secret_file` (/home/x/relay.yaml)";
        assert!(output.err.contains(named), "{}", output.err);
        assert!(!output.err.contains("`connector.url`"), "{}", output.err);
        assert!(!output.out.contains("within seconds"), "{}", output.out);
    }
    let file = fixture.home.path().join("enrolled.env").display().to_string();
    let elsewhere = fixture.run(&[&real[..], &["--output", &file]].concat()).await;
    assert!(!elsewhere.err.contains("secret_file"), "{}", elsewhere.err);
    fixture.pinned = vec![pinned("connector.gateway_id", Some("gw-box"))];
    let same = fixture.run(&real).await;
    assert!(!same.err.contains("gateway_id"), "{}", same.err);
}

#[tokio::test]
async fn a_dry_run_leaves_a_login_that_ran_out_as_it_is() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    fixture.env = vec![("HERMES_PORTAL_BASE_URL", stub.base())];
    let stored = |refresh: &str| {
        format!(
            r#"{{"providers":{{"nous":{{"access_token":"old-hush",{refresh}"expires_at":"2020-01-01T00:00:00+00:00"}}}}}}"#
        )
    };
    let path = fixture.home.path().join("auth.json");
    let login = stored(r#""refresh_token":"refresh-hush","#);
    fs::write(&path, &login).unwrap();
    let output = fixture.run(&["--dry-run", "--connector-url", &stub.base()]).await;
    assert!(matches!(output.outcome, EnrollOutcome::Checked), "{}", output.err);
    assert_eq!(fs::read_to_string(&path).unwrap(), login);
    let seen = stub.seen();
    let is_probe = |seen: &Seen| seen.path() == "/relay/enroll";
    assert!(seen.iter().all(is_probe), "the portal was not asked: {seen:?}");
    fs::write(&path, stored("")).unwrap();
    let output = fixture.run(&["--dry-run", "--connector-url", &stub.base()]).await;
    assert_eq!(output.outcome.exit_code(), 1, "nothing can refresh it");
}

#[tokio::test]
async fn every_secret_is_redacted_from_the_log_as_soon_as_it_is_known() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    fixture
        .run(&["--token", "t-hush", "--connector-url", &stub.base()])
        .await;
    let hidden = fixture.hidden.take();
    let values: Vec<_> = hidden.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["t-hush", "identity-hush", "secret-hush", "key-hush"]);
    // Also when nothing came of it.
    let stub = Stub::always(500, "{}").await;
    fixture
        .run(&["--token", "t-hush", "--connector-url", &stub.base()])
        .await;
    assert_eq!(fixture.hidden.take().len(), 2);
}

#[tokio::test]
async fn an_identity_failure_keeps_the_token_unspent() {
    let idp = Stub::always(500, r#"{"error":"broken"}"#).await;
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    fixture.env = vec![("GATEWAY_RELAY_IDP_TOKEN_URL", idp.base())];
    let line = "Could not resolve a caller-identity token: the identity provider returned HTTP 500: broken";
    fixture
        .fails(&["--token", "t-hush", "--connector-url", &stub.base()], line)
        .await;
    assert!(stub.seen().is_empty());
}

#[tokio::test]
async fn every_refusal_of_the_connector_is_reported_and_writes_nothing() {
    let oversize = "x".repeat(70_000);
    for (status, body, line) in [
        (
            401,
            "",
            "Enrollment failed: Connector rejected the caller identity (401). ",
        ),
        (
            403,
            r#"{"error":"Token was used."}"#,
            "Enrollment failed: Token was used.",
        ),
        (
            403,
            "",
            "Enrollment failed: Connector refused the enrollment token (403)",
        ),
        (404, "", "Enrollment failed: Connector returned HTTP 404"),
        (
            500,
            r#"{"error":"oops"}"#,
            "Enrollment failed: Connector returned HTTP 500: oops",
        ),
        (
            200,
            "{}",
            "Enrollment failed: Connector returned an unexpected response (no secret).",
        ),
        (
            200,
            "<html>",
            "Enrollment failed: Connector returned an unexpected response (no secret).",
        ),
        (
            200,
            &oversize,
            "Enrollment failed: Could not reach the connector at ",
        ),
    ] {
        let stub = Stub::always(status, body).await;
        Fixture::new()
            .await
            .fails(&["--token", "t-hush", "--connector-url", &stub.base()], line)
            .await;
    }
    let base = nobody();
    let line = format!("Enrollment failed: Could not reach the connector at {base}: ");
    Fixture::new()
        .await
        .fails(&["--token", "t-hush", "--connector-url", &base], &line)
        .await;
}

#[tokio::test]
async fn a_redirecting_connector_is_named_and_the_other_origin_is_never_contacted() {
    let other = Stub::always(200, ACCEPTED).await;
    let target = other.base();
    let stub = Stub::start(move |_| reply_with(307, &[("location", &target)], "")).await;
    let line = format!(
        "Enrollment failed: Could not reach the connector at {}: it redirected to {}",
        stub.base(),
        other.base()
    );
    Fixture::new()
        .await
        .fails(&["--token", "t-hush", "--connector-url", &stub.base()], &line)
        .await;
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_found_before_the_token_is_spent() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    let directory = fixture.home.path().to_str().unwrap().to_owned();
    let line = format!("Cannot write to {directory}: ");
    fixture
        .fails(
            &[
                "--token",
                "t",
                "--connector-url",
                &stub.base(),
                "--output",
                &directory,
            ],
            &line,
        )
        .await;
    assert!(stub.seen().is_empty());
}

#[tokio::test]
async fn a_second_enrollment_waits_for_the_first_and_keeps_its_token_if_that_takes_too_long() {
    let mut fixture = Fixture::new().await;
    let stub = Stub::always(200, ACCEPTED).await;
    let typed = ["--connector-url", &stub.base(), "--token", "tok"];
    let held = lock(&fixture.dotenv()).unwrap();
    let run = fixture.run(&typed).await;
    assert!(
        run.err.contains("being changed by another process") && run.err.contains("still unused"),
        "{}",
        run.err
    );
    assert_eq!(run.outcome.exit_code(), 1);
    assert_eq!(stub.seen().len(), 0, "the token was used");
    assert_eq!(fs::read_to_string(fixture.dotenv()).unwrap(), OLD_ENV);

    let first = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        held.update(&[("GATEWAY_RELAY_SECRET", "first"), ("FIRST", "1")])
            .unwrap();
        drop(held);
    };
    let (run, ()) = tokio::join!(fixture.run(&typed), first);
    assert!(matches!(run.outcome, EnrollOutcome::Enrolled), "{}", run.err);
    let file = fs::read_to_string(fixture.dotenv()).unwrap();
    assert!(
        file.contains("SECRET=secret-hush\n") && file.contains("FIRST=1\n"),
        "{file}"
    );
}

#[tokio::test]
async fn options_that_cannot_be_used_exit_with_2() {
    let mut fixture = Fixture::new().await;
    for typed in [
        ["--connector-url", "ftp://c.example"],
        ["--gateway-id", "a\nb"],
        ["--wake-url", "not a url"],
    ] {
        fixture.relay_url = Some("https://c.invalid".into());
        let output = fixture.run(&["--token", "t-hush", typed[0], typed[1]]).await;
        assert_eq!(output.outcome.exit_code(), 2, "{typed:?}: {}", output.err);
        assert_discreet(&output.err);
        fixture.untouched();
    }
    assert!(Cli::try_parse_from(["enroll", "--print", "--output", "x"]).is_err());
}

#[tokio::test]
async fn success_stores_the_keys_and_hides_the_secrets() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    // As typed: a WebSocket address with the path and a slash.
    let typed = format!("{}/relay/", stub.base().replace("http://", "ws://"));
    let output = fixture
        .run(&["--token", "enr-hush", "--connector-url", &typed])
        .await;
    assert_eq!(output.outcome.exit_code(), 0, "{}", output.err);

    let seen = stub.only();
    assert_eq!(seen.uri, "/relay/enroll");
    assert_eq!(
        seen.body,
        r#"{"enrollmentToken":"enr-hush","gatewayId":"gw-box"}"#
    );
    assert_eq!(seen.header("authorization"), Some("Bearer identity-hush"));

    let url = typed.trim_end_matches('/');
    let expected = format!(
        "# mine\nOTHER=1\nexport GATEWAY_RELAY_SECRET=secret-hush\nGATEWAY_RELAY_ID=gw-theirs\n\
         GATEWAY_RELAY_DELIVERY_KEY=key-hush\nGATEWAY_RELAY_URL={url}\n"
    );
    assert_eq!(fs::read_to_string(fixture.dotenv()).unwrap(), expected);
    assert_eq!(mode(&fixture.dotenv()), 0o640);

    assert!(
        output
            .out
            .starts_with("✓ Enrolled gateway \"gw-theirs\" for tenant acme\n"),
        "{}",
        output.out
    );
    for line in [
        "GATEWAY_RELAY_ID=gw-theirs",
        "GATEWAY_RELAY_SECRET=<hidden>",
        "GATEWAY_RELAY_DELIVERY_KEY=<hidden>",
    ] {
        assert!(output.out.contains(line), "{}", output.out);
    }
    assert!(
        output
            .err
            .contains("warning: a token on the command line is visible"),
        "{}",
        output.err
    );
    assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    assert_discreet(&(output.out + &output.err));
}

#[tokio::test]
async fn a_new_file_is_for_the_owner_only_and_only_given_addresses_are_stored() {
    let stub = Stub::always(200, r#"{"secret":"secret-hush"}"#).await;
    let mut fixture = Fixture::new().await;
    fixture.env.extend([
        ("GATEWAY_RELAY_URL", stub.base()),
        ("GATEWAY_RELAY_ENROLL_TOKEN", " env-token ".into()),
    ]);
    let file = fixture.home.path().join("made/here/relay.env");
    let output = fixture
        .run(&["--output", file.to_str().unwrap(), "--gateway-id", "gw mine"])
        .await;
    assert_eq!(output.outcome.exit_code(), 0, "{}", output.err);
    assert_eq!(
        stub.only().json(),
        serde_json::json!({"enrollmentToken": "env-token", "gatewayId": "gw mine"})
    );
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(
        text,
        "GATEWAY_RELAY_ID=\"gw mine\"\nGATEWAY_RELAY_SECRET=secret-hush\n"
    );
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_eq!(fs::read_to_string(fixture.dotenv()).unwrap(), OLD_ENV);
    assert!(
        output.out.starts_with("✓ Enrolled gateway \"gw mine\"\n"),
        "{}",
        output.out
    );
    assert_eq!(output.err, "");
}

#[tokio::test]
async fn the_token_comes_from_a_pipe_or_the_keyboard_and_the_url_from_the_configuration() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    fixture.relay_url = Some(stub.base());
    fixture.input = Input {
        terminal: Some("from keyboard"),
        pipe: "from pipe\n",
        ..Input::default()
    };
    for (typed, expected) in [(&["--token", "-"][..], "from pipe"), (&[][..], "from keyboard")] {
        let output = fixture.run(typed).await;
        assert_eq!((output.outcome.exit_code(), output.err.as_str()), (0, ""));
        assert_eq!(stub.seen().last().unwrap().json()["enrollmentToken"], expected);
    }
}

#[tokio::test]
async fn print_gives_the_lines_and_nothing_else_on_standard_output() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    fixture.input.pipe = "t";
    let output = fixture
        .run(&["--token", "-", "--print", "--connector-url", &stub.base()])
        .await;
    let url = stub.base();
    let expected = format!(
        "GATEWAY_RELAY_ID=gw-theirs\nGATEWAY_RELAY_SECRET=secret-hush\nGATEWAY_RELAY_DELIVERY_KEY=key-hush\nGATEWAY_RELAY_URL={url}\n"
    );
    assert_eq!((output.outcome.exit_code(), output.out), (0, expected));
    assert!(
        output
            .err
            .starts_with("✓ Enrolled gateway \"gw-theirs\" for tenant acme"),
        "{}",
        output.err
    );
    assert_discreet(&output.err);
    fixture.untouched();
}

#[tokio::test]
async fn a_clock_that_is_off_is_mentioned() {
    let stub = Stub::start(|_| {
        let date = ("date", "Sat, 09 Aug 2025 00:40:00 GMT");
        reply_with(200, &[date], ACCEPTED)
    })
    .await;
    let mut fixture = Fixture::new().await;
    fixture.input.pipe = "t";
    let output = fixture
        .run(&["--token", "-", "--connector-url", &stub.base()])
        .await;
    assert!(
        output.err.contains(" d ") && output.err.contains(" ahead of the connector's"),
        "{}",
        output.err
    );
    assert_eq!(output.outcome.exit_code(), 0);
}

#[tokio::test]
async fn a_wake_url_is_stored_and_registered_for_every_identity() {
    let stub = connector(|_| reply(200, r#"{"secretIssued":false}"#)).await;
    let mut fixture = Fixture::new().await;
    fixture.input.pipe = "t";
    let identity = |platform: &str| ProvisionRequest {
        platform: platform.into(),
        ..ProvisionRequest::default()
    };
    fixture.identities = vec![identity("discord"), identity("slack")];
    let output = fixture
        .run(&[
            "--token",
            "-",
            "--connector-url",
            &stub.base(),
            "--wake-url",
            "https://wake.example/x/",
        ])
        .await;
    assert_eq!((output.outcome.exit_code(), output.err.as_str()), (0, ""));
    let registered: Vec<_> = stub.seen()[1..].iter().map(Seen::json).collect();
    assert_eq!(registered.len(), 2);
    for (body, platform) in registered.iter().zip(["discord", "slack"]) {
        assert_eq!(body["platform"], platform);
        assert_eq!(
            (&body["gatewayId"], &body["wakeUrl"]),
            (&"gw-theirs".into(), &"https://wake.example/x".into())
        );
    }
    assert_eq!(
        stub.seen()[1].header("authorization"),
        Some("Bearer identity-hush")
    );
    assert!(
        fs::read_to_string(fixture.dotenv())
            .unwrap()
            .contains("GATEWAY_RELAY_WAKE_URL=https://wake.example/x\n")
    );
}

#[tokio::test]
async fn a_connector_that_does_not_provision_is_a_warning_and_one_that_fails_is_a_failure() {
    for (status, code, text) in [
        (
            404,
            0,
            "warning: this connector does not support /relay/provision",
        ),
        (
            500,
            1,
            "✗ Enrolled, but the wake URL was not registered: connector returned HTTP 500",
        ),
    ] {
        let stub = connector(move |_| reply(status, "")).await;
        let mut fixture = Fixture::new().await;
        fixture.input.pipe = "t";
        let output = enroll_to_be_woken(&mut fixture, &stub).await;
        assert_eq!(output.outcome.exit_code(), code);
        assert!(output.err.contains(text), "{}", output.err);
        assert!(
            fs::read_to_string(fixture.dotenv())
                .unwrap()
                .contains("secret-hush")
        );
    }
}

#[tokio::test]
async fn a_second_secret_is_mentioned_and_not_taken() {
    let stub = connector(|_| reply(200, r#"{"secret":"other-hush"}"#)).await;
    let mut fixture = Fixture::new().await;
    fixture.input.pipe = "t";
    let output = enroll_to_be_woken(&mut fixture, &stub).await;
    assert_eq!(output.outcome.exit_code(), 0);
    assert!(output.err.contains("another secret"), "{}", output.err);
    let stored = fs::read_to_string(fixture.dotenv()).unwrap();
    assert!(
        stored.contains("=secret-hush") && !stored.contains("other-hush"),
        "{stored}"
    );
    assert_discreet(&output.err);
}

/// Enrolls with a token from the pipe and returns what the file and standard error say about platforms.
async fn platforms_of(fixture: &mut Fixture, stub: &Stub, more: &[&str]) -> (Option<String>, EnrollRun) {
    fixture.input.pipe = "t";
    let base = stub.base();
    let typed = [&["--token", "-", "--connector-url", &base], more].concat();
    let output = fixture.run(&typed).await;
    assert_eq!(output.outcome.exit_code(), 0, "{}", output.err);
    let stored = fs::read_to_string(fixture.dotenv()).unwrap();
    let line = stored
        .lines()
        .find_map(|line| line.strip_prefix("GATEWAY_RELAY_PLATFORMS="));
    (line.map(str::to_owned), output)
}

#[tokio::test]
async fn platforms_come_from_the_command_line_the_connector_or_the_person() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    fixture.identities[0].platform = "relay".into();
    let (stored, output) = platforms_of(&mut fixture, &stub, &["--platform", "discrod,slack"]).await;
    assert_eq!(stored.as_deref(), Some("discrod,slack"));
    assert!(output.err.contains("did you mean `discord`?"), "{}", output.err);

    let naming = Stub::always(200, r#"{"secret":"secret-hush","platforms":["telegram"]}"#).await;
    let mut fixture = Fixture::new().await;
    fixture.identities[0].platform = "relay".into();
    let (stored, output) = platforms_of(&mut fixture, &naming, &[]).await;
    assert_eq!((stored.as_deref(), output.err.as_str()), (Some("telegram"), ""));
    assert!(fixture.dialled.borrow().is_empty() && fixture.input.questions.is_empty());

    let mut fixture = Fixture::new().await;
    fixture.identities[0].platform = "relay".into();
    fixture.dial = Ok(vec!["relay".into(), "whatsapp".into()]);
    let (stored, _) = platforms_of(&mut fixture, &stub, &[]).await;
    assert_eq!(stored.as_deref(), Some("whatsapp"), "the handshake described it");

    let mut fixture = Fixture::new().await;
    fixture.identities[0].platform = "relay".into();
    fixture.input.lines = ["discrod, acme", "y"].map(str::to_owned).into();
    let (stored, _) = platforms_of(&mut fixture, &stub, &[]).await;
    assert_eq!(stored.as_deref(), Some("discord,acme"));
    assert!(
        fixture.input.questions[1].contains("use `discord`?"),
        "{:?}",
        fixture.input.questions
    );
}

#[tokio::test]
async fn configured_platforms_are_kept_and_missing_ones_are_warned_about() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    fixture.identities[0].platform = "relay".into();
    let (stored, output) = platforms_of(&mut fixture, &stub, &[]).await;
    assert_eq!(stored, None);
    assert!(
        output.err.contains("GATEWAY_RELAY_PLATFORMS=discord,telegram"),
        "{}",
        output.err
    );

    fixture.identities[0].platform = "slack".into();
    fixture.dialled.take();
    let (stored, output) = platforms_of(&mut fixture, &stub, &[]).await;
    assert_eq!((stored, output.err.as_str()), (None, ""));
    assert!(fixture.dialled.borrow().is_empty(), "there is nothing to learn");
}

#[tokio::test]
async fn check_dials_once_with_the_new_credentials() {
    let stub = Stub::always(200, ACCEPTED).await;
    let mut fixture = Fixture::new().await;
    fixture.input.pipe = "t";
    let typed = ["--token", "-", "--connector-url", &stub.base(), "--check"];
    let output = fixture.run(&typed).await;
    assert_eq!(output.outcome.exit_code(), 0);
    assert!(
        output
            .out
            .ends_with("✓ The connector accepts the new credentials\n"),
        "{}",
        output.out
    );
    {
        let dialled = fixture.dialled.borrow();
        assert_eq!(dialled.len(), 1);
        assert_eq!(
            (dialled[0].gateway_id.as_str(), dialled[0].secret.expose_secret()),
            ("gw-theirs", "secret-hush")
        );
        assert_eq!(dialled[0].connector.http_base(), stub.base());
        assert_discreet(&format!("{dialled:?}"));
    }
    fixture.dial = Err("closed with 4401".into());
    let output = fixture.run(&typed).await;
    assert_eq!(output.outcome.exit_code(), 1);
    assert!(
        output
            .err
            .contains("✗ Enrolled, but the check failed: closed with 4401"),
        "{}",
        output.err
    );
}

#[test]
fn a_token_on_the_command_line_does_not_show_in_debug_output() {
    let args = Cli::try_parse_from(["enroll", "--token", "t-hush"]).unwrap().args;
    assert_discreet(&format!("{args:?}"));
}
