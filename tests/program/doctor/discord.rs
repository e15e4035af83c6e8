//! A Discord bot of one's own: what the doctor asks, and what it makes of the answers.

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};

use crate::doctor::rig::{Report, doctor};
use crate::support::http_stub::{Seen, Stub, json_reply};
use crate::support::relay_process::Setup;

const TOKEN: &str = "MTIz.abc.def-secret";

/// A Discord whose application may read messages or not, and that may have reset the token.
async fn api(flags: u64, is_reset: bool) -> Stub {
    Stub::start(move |seen: &Seen| -> Response<Body> {
        match seen.path() {
            _ if is_reset => json_reply(401, &json!({"message": "401: Unauthorized", "code": 0})),
            "/users/@me" => json_reply(200, &json!({"id": "500", "username": "helper"})),
            "/applications/@me" => json_reply(200, &json!({"id": "501", "flags": flags})),
            _ => json_reply(404, &json!({"message": "unknown", "code": 0})),
        }
    })
    .await
}

async fn report(setup: Setup, api: &Stub) -> Report {
    let setup = setup
        .setting("direct.discord", &format!("{{api_base: '{}'}}", api.base()))
        .setting("access.mode", "list")
        .setting("access.people", "[{platform: discord, user: '1', role: owner}]");
    let report = doctor(setup, &[]).await;
    let text = Value::from(report.rows.clone()).to_string();
    assert!(!text.contains("secret"), "{text}");
    report
}

fn row<'r>(report: &'r Report, id: &str, about: Option<&str>) -> &'r Value {
    let found = report
        .rows
        .iter()
        .find(|row| row["id"] == id && about.is_none_or(|about| row.to_string().contains(about)));
    found.unwrap_or_else(|| panic!("{id} {about:?}: {:#?}", report.rows))
}

#[tokio::test]
async fn a_healthy_bot_is_named_with_its_invitation() {
    let api = api(1 << 19, false).await;
    let report = report(Setup::new().env("DISCORD_BOT_TOKEN", TOKEN), &api).await;
    for id in ["discord_api", "discord_token", "discord"] {
        assert_eq!(row(&report, id, None)["outcome"], "ok", "{id}");
    }
    assert!(
        row(&report, "discord", Some("helper"))["detail"]
            .to_string()
            .contains("500")
    );
    row(&report, "discord", Some("client_id=501"));
    row(&report, "discord", Some("may read the content"));
}

#[tokio::test]
async fn a_bot_without_settings_is_checked_on_request() {
    let setup = Setup::new().env("DISCORD_BOT_TOKEN", "hunter2");
    let found = doctor(setup, &["--discord"]).await;
    let wrong = row(&found, "discord_token", None);
    assert_eq!(wrong["outcome"], "failed", "{wrong}");
    assert!(
        found.rows.iter().all(|row| row["id"] != "url"),
        "{:#?}",
        found.rows
    );
}

#[tokio::test]
async fn a_bot_that_cannot_work_says_which_switch_or_token_it_needs() {
    let blind = api(0, false).await;
    let found = report(Setup::new().env("DISCORD_BOT_TOKEN", TOKEN), &blind).await;
    let intent = row(&found, "discord", Some("Message Content Intent"));
    assert_eq!(intent["outcome"], "failed", "{intent}");
    let reset = api(0, true).await;
    let found = report(Setup::new().env("DISCORD_BOT_TOKEN", TOKEN), &reset).await;
    let refused = row(&found, "discord", Some("does not accept the token"));
    assert_eq!(refused["outcome"], "failed", "{refused}");
    let found = report(Setup::new().env("DISCORD_BOT_TOKEN", "hunter2"), &reset).await;
    let wrong = row(&found, "discord_token", None);
    assert_eq!(wrong["outcome"], "failed", "{wrong}");
    assert!(!wrong.to_string().contains("hunter2"), "{wrong}");
}
