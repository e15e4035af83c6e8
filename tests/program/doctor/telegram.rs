//! A Telegram bot of one's own: what the doctor asks the Bot API, and what it makes of the answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::dev::{ApiPerson, BotApi, BotApiSettings};
use axum::body::Body;
use axum::http::Response;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::doctor::rig::{Report, doctor};
use crate::support::http_stub::{Seen, Stub, json_reply, nobody, plain_http, reply};
use crate::support::relay_process::{SOON, Setup};

const TOKEN: &str = "123456:AAbb_cc-DD";
/// Probes that only a connector has.
const CONNECTOR_PROBES: [&str; 5] = ["url", "credentials", "upgrade", "token", "handshake"];

fn ok(result: &Value) -> Response<Body> {
    json_reply(200, &json!({"ok": true, "result": result}))
}

fn refusal(code: u16, description: &str) -> Response<Body> {
    json_reply(
        code,
        &json!({"ok": false, "error_code": code, "description": description}),
    )
}

fn method(seen: &Seen) -> &str {
    seen.path().rsplit('/').next().unwrap_or_default()
}

/// What a healthy bot answers.
fn healthy(seen: &Seen) -> Response<Body> {
    match method(seen) {
        "getMe" => {
            ok(&json!({"id": 123_456, "is_bot": true, "first_name": "Helper", "username": "helper_bot"}))
        }
        "getWebhookInfo" => ok(&json!({"url": "", "pending_update_count": 2})),
        "getUpdates" => ok(&json!([])),
        _ => refusal(404, "Not Found: method not found"),
    }
}

/// A Bot API that answers one method in its own way.
async fn api(named: &'static str, answer: fn() -> Response<Body>) -> Stub {
    Stub::start(move |seen| {
        if method(seen) == named {
            answer()
        } else {
            healthy(seen)
        }
    })
    .await
}

fn setup(base: &str) -> Setup {
    Setup::new()
        .setting("direct.telegram", &format!("{{api_base: '{base}'}}"))
        .env("TELEGRAM_BOT_TOKEN", TOKEN)
}

#[tokio::test]
async fn a_bot_without_rules_is_a_warning_whatever_its_agent_is() {
    let api = Stub::start(healthy).await;
    let report = doctor(setup(&api.base()), &[]).await;
    let access = report.rows.iter().find(|row| row["id"] == "access").unwrap();
    assert_eq!(access["outcome"], "warn", "{access}");
    assert!(access["detail"].as_str().unwrap().contains("echo"), "{access}");
}

/// Neither the token nor its secret half is anywhere in the report.
#[track_caller]
fn hides_the_token(report: &Report) {
    let text = Value::from(report.rows.clone()).to_string();
    assert!(!text.contains("AAbb_cc-DD"), "{text}");
}

#[tokio::test]
async fn a_healthy_bot_passes_everything_and_nothing_is_confirmed() {
    let api = Stub::start(healthy).await;
    let listed = setup(&api.base())
        .setting("access.mode", "list")
        .setting("access.people", "[{platform: telegram, user: '1', role: owner}]");
    let report = doctor(listed, &[]).await;
    for row in &report.rows {
        let skipped = row["id"] == "clock" && row["outcome"] == "skipped";
        assert!(row["outcome"] == "ok" || skipped, "{row}");
    }
    assert_eq!(report.code, 0);
    hides_the_token(&report);
    let probed = |id: &str| report.rows.iter().any(|row| row["id"] == id);
    assert!(!CONNECTOR_PROBES.into_iter().any(probed), "{:?}", report.rows);
    let about = |subject: Value| {
        let rows = report.of("telegram");
        let row = rows.into_iter().find(|row| row["subject"] == subject);
        row.expect("a row")["detail"].as_str().unwrap().to_owned()
    };
    assert_eq!(about(Value::Null), "@helper_bot (Helper), number 123456");
    assert!(about("groups".into()).contains("privacy mode is on"));
    assert!(about("queue".into()).starts_with("2 updates wait"));
    assert!(about("other programs".into()).contains("none polled"));

    let seen = api.seen();
    let methods: Vec<&str> = seen
        .iter()
        .map(method)
        .filter(|method| !method.is_empty())
        .collect();
    assert_eq!(methods, ["getMe", "getWebhookInfo", "getUpdates"]);
    let poll = seen.last().unwrap();
    assert_eq!(
        poll.json(),
        json!({"limit": 1, "timeout": 6}),
        "no offset confirms nothing"
    );
    assert_eq!(poll.path(), format!("/bot{TOKEN}/getUpdates"));
}

#[tokio::test]
async fn a_missing_a_malformed_and_a_revoked_token_are_told_apart() {
    let base = nobody();
    let report = doctor(setup(&base).without_env("TELEGRAM_BOT_TOKEN"), &["--telegram"]).await;
    let row = report.row("bot_token");
    assert_eq!(row["outcome"], "failed", "{row}");
    assert!(row["remedy"].as_str().unwrap().contains("@BotFather"), "{row}");

    let report = doctor(setup(&base).env("TELEGRAM_BOT_TOKEN", "123456 AAbb_cc-DD"), &[]).await;
    let row = report.row("bot_token");
    assert!(row["detail"].as_str().unwrap().contains("no colon"), "{row}");
    hides_the_token(&report);

    for (code, description) in [(401, "Unauthorized"), (404, "Not Found")] {
        let api = Stub::start(move |_| refusal(code, description)).await;
        let report = doctor(setup(&api.base()), &[]).await;
        report.blames("telegram", "does not accept the token", "@BotFather");
        hides_the_token(&report);
    }
}

#[tokio::test]
async fn a_webhook_and_another_poller_are_found() {
    let webhook = api("getWebhookInfo", || {
        ok(&json!({"url": "https://other.example/hook/s3cret", "pending_update_count": 0}))
    });
    let report = doctor(setup(&webhook.await.base()), &[]).await;
    report.warns("telegram", "at other.example", "removes the webhook");
    let text = Value::from(report.rows.clone()).to_string();
    assert!(!text.contains("s3cret"), "{text}");
    assert_eq!(report.code, 0, "the relay copes with it");

    let conflict = api("getUpdates", || {
        refusal(
            409,
            "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
        )
    });
    let report = doctor(setup(&conflict.await.base()), &[]).await;
    report.blames(
        "telegram",
        "another program polls this bot",
        "stop the other program",
    );
    hides_the_token(&report);
}

#[tokio::test]
async fn privacy_mode_that_hides_what_the_settings_need_is_a_warning() {
    let api = Stub::start(healthy).await;
    let open = setup(&api.base()).setting("policy.telegram", "{require_mention: false}");
    let report = doctor(open, &[]).await;
    report.warns("telegram", "lets it answer other messages", "/setprivacy");
    let policy = report.row("policy");
    assert!(
        policy["detail"]
            .as_str()
            .unwrap()
            .starts_with("mention required: no"),
        "{policy}"
    );
}

#[tokio::test]
async fn a_bot_api_that_cannot_be_reached_is_named_by_the_step_that_fails() {
    let report = doctor(setup(&nobody()), &[]).await;
    report
        .blames("tcp", "cannot connect to 127.0.0.1", "HTTPS_PROXY")
        .skips(&["tls", "clock", "telegram"])
        .passes(&["api", "bot_token", "dns"]);

    let unknown = setup("https://no-such-host.invalid");
    let report = doctor(unknown, &[]).await;
    report
        .blames("dns", "no-such-host.invalid", "api_base")
        .skips(&["tcp", "tls", "telegram"]);

    let page = Stub::start(|_| reply(200, "<html>a captive portal</html>")).await;
    let report = doctor(setup(&page.base()), &[]).await;
    report.blames("telegram", "no usable answer", "proxy in between");
}

#[tokio::test]
async fn a_connector_with_the_platform_of_a_bot_is_named_with_both_settings() {
    let both = setup(&nobody())
        .env("GATEWAY_RELAY_URL", "wss://connector.example")
        .env("GATEWAY_RELAY_PLATFORMS", "slack,telegram");
    let report = doctor(both, &[]).await;
    report.blames("settings", "`direct.telegram`", "GATEWAY_RELAY_PLATFORMS");
    hides_the_token(&report);
}

#[tokio::test]
async fn while_a_relay_runs_its_own_conflict_is_reported_and_nothing_is_polled() {
    let polls = AtomicUsize::new(0);
    let api = Stub::start(move |seen| match method(seen) {
        "getUpdates" if polls.fetch_add(1, Ordering::SeqCst) > 0 => {
            refusal(409, "Conflict: terminated by other getUpdates request")
        }
        _ => healthy(seen),
    })
    .await;
    let setup = setup(&api.base());
    let relay = setup.start();
    relay.wait_for_log("another program polls this bot").await;
    let polled = || api.seen().iter().filter(|seen| seen.json()["limit"] == 1).count();
    let report = doctor(setup, &[]).await;
    report
        .blames(
            "telegram",
            "another program polls this bot",
            "stop the other program",
        )
        .passes(&["lock"]);
    assert_eq!(polled(), 0, "a second poll would end the relay's");
    relay.stop().await;
}

#[tokio::test]
async fn a_second_poller_of_a_real_queue_is_found_and_the_queue_stays() {
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(100, "Ada"));
    let token = api.token().expose_secret().to_owned();
    let setup = || setup(&api.base()).env("TELEGRAM_BOT_TOKEN", &token);
    let poll = format!("{}/bot{token}/getUpdates", api.base());
    let other = tokio::spawn(async move {
        let client = plain_http();
        // Polls again at once, whatever it is told.
        loop {
            let _ = client.post(&poll).json(&json!({"timeout": 50})).send().await;
        }
    });
    api.wait_polled(SOON).await.unwrap();
    let report = doctor(setup(), &[]).await;
    report.blames(
        "telegram",
        "another program polls this bot",
        "stop the other program",
    );
    other.abort();

    api.say(100, 100, "wait for the relay");
    let report = doctor(setup(), &[]).await;
    assert_eq!(report.code, 0, "{:?}", report.rows);
    assert_eq!(api.pending_count(), 1, "the doctor confirms nothing");
    let text = Value::from(report.rows.clone()).to_string();
    assert!(
        text.contains("1 update waits") && !text.contains(&token),
        "{text}"
    );

    api.set_webhook(Some("https://other.example/hook"));
    let report = doctor(setup(), &[]).await;
    report.warns("telegram", "at other.example", "removes the webhook");
    assert_eq!(api.webhook().as_deref(), Some("https://other.example/hook"));
    api.set_revoked(true);
    let report = doctor(setup(), &[]).await;
    report.blames("telegram", "does not accept the token", "@BotFather");
}
