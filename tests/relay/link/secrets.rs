//! What must not be seen: secrets, tokens and what people say, at the most talkative level.

use crate::support::dev::{Connector, ConnectorSettings, When, text_event};
use secrecy::ExposeSecret as _;

use crate::support::http_stub::Stub;
use crate::support::relay_process::{RelayProcess, SOON, Setup};

const SAID: &str = "the-quick-brown-fox";
const ENROL_TOKEN: &str = "enrol-token-6b1f";
const IDENTITY: &str = "identity-token-93c2";

fn talkative(setup: Setup) -> Setup {
    setup.env("RUST_LOG", "trace")
}

/// Every secret that this connector knows of.
fn secrets(connector: &Connector) -> Vec<String> {
    let shown = connector.dials().into_iter().filter_map(|dial| dial.bearer);
    let posted = connector
        .requests()
        .into_iter()
        .filter_map(|request| request.bearer);
    let own = connector.credentials().map(|credentials| credentials.secret);
    let all = shown.chain(posted).chain(own);
    all.map(|secret| secret.expose_secret().to_owned()).collect()
}

fn nothing_of(secrets: &[String], output: &str) {
    assert!(!secrets.is_empty());
    for secret in secrets {
        assert!(!output.contains(secret.as_str()), "a secret was shown:\n{output}");
        // Nor a part that would do: the signature of a token, the middle of a secret.
        let middle = &secret[secret.len() / 4..secret.len() * 3 / 4];
        assert!(
            !output.contains(middle),
            "a part of a secret was shown:\n{output}"
        );
    }
}

fn everything(relay: &RelayProcess) -> String {
    relay.stderr() + &relay.stdout()
}

#[tokio::test]
async fn no_secret_and_no_message_text_is_logged_even_at_trace() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let setup = talkative(Setup::for_connector(&connector));
    setup.write("config.yaml", "require_mention: true\n");
    let mut relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    connector
        .deliver(&text_event("discord", "c1", "m1", SAID))
        .unwrap();
    let sent = connector.reply_to(SOON, "m1").await.unwrap();
    assert!(sent.text.contains(SAID));
    // Poison and refusals, which are logged in more words.
    let torn = format!("{{\"type\":\"inbound\",\"event\":\"{SAID}\"}}\n{{\"text\":\"{SAID}\n");
    assert!(connector.send_raw(&torn));
    relay.wait_for_log("cannot decode a frame").await;
    relay.wait_for_log("accepted the relevance policy").await;
    connector.unauthorized_next(1, "unauthorized", When::AfterHello);
    connector.revoke();
    assert_eq!(relay.exit_code(SOON).await, 77);
    let output = everything(&relay);
    assert!(
        output.lines().any(|line| line.contains("DEBUG")),
        "it was talkative"
    );
    nothing_of(&secrets(&connector), &output);
    // The log's net would have hidden them; nothing was there to be hidden.
    assert!(!output.contains("<hidden>"), "the net had work to do:\n{output}");
    assert!(!output.contains(SAID), "message text was logged:\n{output}");
}

#[tokio::test]
async fn enrolling_and_checking_shows_no_secret_and_says_that_the_check_went_well() {
    let connector = Connector::start(ConnectorSettings {
        enrol_tokens: vec![ENROL_TOKEN.to_owned()],
        identity_tokens: Some(vec![IDENTITY.to_owned()]),
        ..ConnectorSettings::default()
    });
    let connector = connector.await.unwrap();
    let answer = format!("{{\"access_token\":\"{IDENTITY}\"}}");
    let provider = Stub::always(200, &answer).await;
    let url = connector.http_base();
    let setup = talkative(Setup::new())
        .env("GATEWAY_RELAY_IDP_TOKEN_URL", &provider.base())
        .env("GATEWAY_RELAY_IDP_CLIENT_ID", "robot")
        .env("GATEWAY_RELAY_IDP_CLIENT_SECRET", "hush-hush-client")
        .env("GATEWAY_RELAY_ENROLL_TOKEN", ENROL_TOKEN)
        .env("GATEWAY_RELAY_PLATFORMS", "discord")
        .args(&[
            "enroll",
            "--connector-url",
            &url,
            "--gateway-id",
            "gw-home",
            "--check",
        ]);
    let mut enrolling = setup.start();
    let code = enrolling.exit_code(SOON).await;
    let output = everything(&enrolling);
    assert_eq!(code, 0, "{output}");
    assert!(
        enrolling
            .stdout()
            .contains("The connector accepts the new credentials"),
        "{output}"
    );
    let dials = connector.dials();
    assert_eq!(dials.len(), 1, "once");
    assert_eq!(dials[0].gateway_id.as_deref(), Some("gw-home"));
    let dotenv = std::fs::read_to_string(setup.home().join(".env")).unwrap();
    let secret = dotenv
        .lines()
        .find_map(|line| line.strip_prefix("GATEWAY_RELAY_SECRET="));
    let mut hidden = secrets(&connector);
    hidden.push(secret.unwrap().trim_matches(['"', '\'']).to_owned());
    hidden.extend([ENROL_TOKEN, IDENTITY, "hush-hush-client"].map(str::to_owned));
    nothing_of(&hidden, &output);
    // What was written is what the relay runs with.
    let relay = talkative(setup.without_env("GATEWAY_RELAY_ENROLL_TOKEN"))
        .args(&["run", "--agent", "echo"])
        .start();
    connector
        .deliver(&text_event("discord", "c1", "m1", SAID))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    nothing_of(&hidden, &everything(&relay));
    relay.stop().await;
}

#[tokio::test]
async fn a_check_between_clocks_that_differ_takes_one_more_dial() {
    let connector = Connector::start(ConnectorSettings {
        enrol_tokens: vec![ENROL_TOKEN.to_owned()],
        ..ConnectorSettings::default()
    });
    let connector = connector.await.unwrap();
    connector.set_clock_offset(1000);
    let provider = Stub::always(200, &format!("{{\"access_token\":\"{IDENTITY}\"}}")).await;
    let setup = Setup::new()
        .env("GATEWAY_RELAY_IDP_TOKEN_URL", &provider.base())
        .env("GATEWAY_RELAY_ENROLL_TOKEN", ENROL_TOKEN)
        .args(&["enroll", "--connector-url", &connector.http_base(), "--check"]);
    let mut enrolling = setup.start();
    let code = enrolling.exit_code(SOON).await;
    assert_eq!(code, 0, "{}", everything(&enrolling));
    assert!(enrolling.stdout().contains("accepts the new credentials"));
    assert_eq!(connector.dials().len(), 2);
}

#[tokio::test]
async fn a_check_that_fails_reports_why_and_shows_no_secret() {
    let connector = Connector::start(ConnectorSettings {
        enrol_tokens: vec![ENROL_TOKEN.to_owned()],
        ..ConnectorSettings::default()
    });
    let connector = connector.await.unwrap();
    connector.refuse_dials(http::StatusCode::FORBIDDEN, None);
    let provider = Stub::always(200, &format!("{{\"access_token\":\"{IDENTITY}\"}}")).await;
    let url = connector.http_base();
    let setup = talkative(Setup::new())
        .env("GATEWAY_RELAY_IDP_TOKEN_URL", &provider.base())
        .env("GATEWAY_RELAY_ENROLL_TOKEN", ENROL_TOKEN)
        .args(&[
            "enroll",
            "--connector-url",
            &url,
            "--gateway-id",
            "gw-home",
            "--check",
        ]);
    let mut enrolling = setup.start();
    assert_ne!(enrolling.exit_code(SOON).await, 0);
    let output = everything(&enrolling);
    assert!(output.contains("403"), "{output}");
    assert_eq!(connector.dials().len(), 1, "once");
    nothing_of(&secrets(&connector), &output);
}
