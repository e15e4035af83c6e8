//! The real binary as a bot: its exit codes, its secrets, its log, and who may write to it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::dev::{
    ApiPerson, BotApi, BotApiAnswer, BotApiRule, BotApiSettings, PersonFile, PersonMessage,
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ADA, BOB, SOON};
use crate::support::relay_process::{RelayProcess, Setup};
use crate::support::wait::eventually;

/// By then the journal has noted that a call is under way: it does so after a few milliseconds.
const NOTED_AFTER: Duration = Duration::from_millis(500);
const CONNECTED: &str = "connected to Telegram";

async fn fake() -> BotApi {
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    api.add_person(ApiPerson::named(BOB, "Bob"));
    api
}

async fn started(setup: &Setup) -> RelayProcess {
    let relay = setup.start();
    relay.wait_for_log(CONNECTED).await;
    relay
}

async fn answer(api: &BotApi, chat: i64, text: &str) {
    let found = api
        .wait_for_answer(chat, text, SOON, |seen| seen.text == text)
        .await;
    found.unwrap();
}

/// Runs a verb: its exit code, standard output and standard error.
async fn verb(setup: &Setup, args: &[&str]) -> (i32, String, String) {
    let mut command = setup.verb(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = timeout(SOON, command.output())
        .await
        .expect("an end in time")
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        ended.status.code().unwrap(),
        text(ended.stdout),
        text(ended.stderr),
    )
}

async fn json_of(setup: &Setup, args: &[&str]) -> Value {
    let (code, out, err) = verb(setup, args).await;
    assert_eq!(code, 0, "{args:?}: {err}");
    serde_json::from_str(&out).unwrap()
}

#[tokio::test]
async fn the_binary_answers_as_a_bot_and_reports_itself() {
    let api = fake().await;
    let setup = Setup::for_bot(&api);
    let relay = setup.start();
    api.say(ADA, ADA, "hello");
    answer(&api, ADA, "echo: hello").await;
    println!("from start to the first answer: {:?}", relay.started.elapsed());
    let status = json_of(&setup, &["status", "--json"]).await;
    assert_eq!(status["link"], "live", "{status}");
    assert_eq!(status["platforms"], json!(["telegram"]), "{status}");
    relay.stop().await;
    assert_eq!(api.pending_count(), 0);
}

#[tokio::test]
async fn run_telegram_needs_no_settings_but_the_token() {
    let api = fake().await;
    let setup = Setup::for_bot(&api).args(&["run", "--agent", "echo", "--telegram"]);
    let relay = started(&setup).await;
    api.say(ADA, ADA, "hello");
    answer(&api, ADA, "echo: hello").await;
    relay.stop().await;
}

#[tokio::test]
async fn the_policy_says_whether_groups_must_mention_the_bot() {
    let api = fake().await;
    api.add_chat(super::GROUP, crate::support::dev::ApiChatKind::Group, "Team");
    let setup = Setup::for_bot(&api);
    let relay = started(&setup).await;
    api.say(super::GROUP, BOB, "chatter");
    api.say(ADA, ADA, "hello");
    answer(&api, ADA, "echo: hello").await;
    assert!(api.answers(super::GROUP).is_empty());
    relay.stop().await;
    let setup = setup.setting("policy.telegram", "{require_mention: false}");
    let relay = started(&setup).await;
    api.say(super::GROUP, BOB, "chatter");
    answer(&api, super::GROUP, "echo: chatter").await;
    relay.stop().await;
}

#[tokio::test]
async fn a_wrong_token_ends_with_77_and_a_remedy() {
    let api = fake().await;
    let wrong = "7000000001:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let setup = Setup::for_bot(&api).env("TELEGRAM_BOT_TOKEN", wrong);
    let (code, err) = setup.ends().await;
    assert_eq!(code, 77, "{err}");
    assert!(err.contains("@BotFather") && err.contains("token"), "{err}");
    assert!(!err.contains(wrong), "{err}");
}

#[tokio::test]
async fn no_token_or_an_unusable_one_ends_with_78() {
    let api = fake().await;
    let (code, err) = Setup::for_bot(&api)
        .without_env("TELEGRAM_BOT_TOKEN")
        .ends()
        .await;
    assert_eq!(code, 78, "{err}");
    assert!(
        err.contains("TELEGRAM_BOT_TOKEN") && err.contains("token_file"),
        "{err}"
    );
    let (code, err) = Setup::for_bot(&api)
        .env("TELEGRAM_BOT_TOKEN", "my secret words")
        .ends()
        .await;
    assert_eq!(code, 78, "{err}");
    assert!(!err.contains("my secret words"), "{err}");
}

#[tokio::test]
async fn a_connector_and_a_bot_of_one_platform_end_with_78_naming_both() {
    let api = fake().await;
    let setup = Setup::for_bot(&api)
        .env("GATEWAY_RELAY_URL", "wss://connector.example/relay")
        .env("GATEWAY_RELAY_PLATFORMS", "telegram");
    let (code, err) = setup.ends().await;
    assert_eq!(code, 78, "{err}");
    assert!(
        err.contains("GATEWAY_RELAY_PLATFORMS") && err.contains("direct.telegram"),
        "{err}"
    );
    assert_eq!(api.call_count(), 0);
}

#[tokio::test]
async fn the_token_may_come_from_a_private_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let api = fake().await;
    let setup = Setup::for_bot(&api).without_env("TELEGRAM_BOT_TOKEN").setting(
        "direct.telegram",
        &format!("{{api_base: \"{}\", token_file: bot.token}}", api.base()),
    );
    setup.write("bot.token", &format!("{}\n", api.token().expose_secret()));
    let file = setup.home().join("bot.token");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let relay = started(&setup).await;
    api.say(ADA, ADA, "hello");
    answer(&api, ADA, "echo: hello").await;
    relay.stop().await;
}

/// The files below a directory that contain this.
fn holding(dir: &Path, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, secret));
        } else {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(secret.len()).any(|part| part == secret.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[tokio::test]
async fn the_token_is_nowhere_but_where_it_was_put() {
    let api = fake().await;
    let token = api.token().expose_secret().to_owned();
    let secret = token.split_once(':').unwrap().1.to_owned();
    let agent = "cat > got; env > env; pwd > where; echo done";
    let setup = Setup::for_bot(&api)
        .args(&["run", "--agent", "spy", "--log-level", "debug"])
        .env("PATH", "/usr/bin:/bin");
    let work = setup.state_dir().parent().unwrap().join("work");
    std::fs::create_dir(&work).unwrap();
    let setup = setup.setting(
        "agents.spy",
        &format!(
            "{{kind: command, argv: [/bin/sh, -c, \"{agent}\"], cwd: \"{}\"}}",
            work.display()
        ),
    );
    let relay = started(&setup).await;
    let photo = PersonFile::new("photo", "p.jpg", *b"\xff\xd8\xff\xe0 photo");
    api.send(ADA, ADA, PersonMessage::file(photo, "look"));
    answer(&api, ADA, "done").await;
    // Failures have errors, and errors have addresses.
    for fate in [
        BotApiAnswer::BadGateway,
        BotApiAnswer::CutBefore,
        BotApiAnswer::refuse(400, "Bad Request: something"),
    ] {
        api.script(BotApiRule::on("sendMessage", fate).once());
    }
    api.script(BotApiRule::on("file", BotApiAnswer::CutBefore).once());
    let photo = PersonFile::new("photo", "p.jpg", *b"\xff\xd8\xff\xe0 photo");
    api.send(BOB, BOB, PersonMessage::file(photo, "look"));
    answer(&api, BOB, "done").await;
    api.push_update(json!({"something_new": {}}));
    relay.wait_for_log("ignored an update").await;
    api.take_down().await;
    relay.wait_for_log("cannot reach Telegram").await;
    api.bring_up().await.unwrap();
    for args in [
        &["status", "--json"][..],
        &["status"],
        &["config", "show"],
        &["config", "show", "--json"],
        &["journal", "list", "--section", "finished"],
    ] {
        let (_, out, err) = verb(&setup, args).await;
        assert!(!out.contains(&secret) && !err.contains(&secret), "{args:?}");
    }
    let log = relay.stderr();
    assert!(log.contains("DEBUG"), "the log is at debug level");
    assert!(!log.contains(&secret));
    let environment = std::fs::read_to_string(work.join("env")).unwrap();
    assert!(
        !environment.contains(&secret) && !environment.contains("TELEGRAM_BOT_TOKEN"),
        "{environment}"
    );
    assert_eq!(holding(setup.state_dir().parent().unwrap(), &secret), [""; 0]);
    relay.stop().await;
    assert_eq!(holding(setup.state_dir().parent().unwrap(), &secret), [""; 0]);
}

#[tokio::test]
async fn a_conflict_is_one_warning_per_outage() {
    let api = fake().await;
    let setup = Setup::for_bot(&api);
    let relay = started(&setup).await;
    api.wait_polled(SOON).await.unwrap();
    let conflict = BotApiAnswer::refuse(409, "Conflict: terminated by other getUpdates request");
    api.script(BotApiRule::on("getUpdates", conflict).once());
    assert!(api.steal_poll());
    relay.wait_for_log("another program polls this bot").await;
    api.say(ADA, ADA, "after all");
    answer(&api, ADA, "echo: after all").await;
    assert_eq!(relay.count("another program polls this bot"), 1);
    api.wait_polled(SOON).await.unwrap();
    assert!(api.steal_poll());
    eventually("a warning for the next outage", async || {
        relay.count("another program polls this bot") == 2
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_webhook_is_reported() {
    let api = fake().await;
    api.set_webhook(Some("https://elsewhere.example/hook"));
    api.say(ADA, ADA, "waiting");
    let relay = started(&Setup::for_bot(&api)).await;
    answer(&api, ADA, "echo: waiting").await;
    assert_eq!(relay.count("a webhook is set for this bot"), 1);
    relay.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_listed_and_refusals_are_in_status_and_log() {
    let api = fake().await;
    let setup = Setup::for_bot(&api).setting("sessions.refused_retries", "0");
    let relay = started(&setup).await;
    api.push_update(json!({"message": {"text": "no chat"}}));
    // Long enough for a look from another process.
    api.say(BOB, BOB, "sleep=6000 bye");
    eventually("the turn", async || {
        json_of(&setup, &["status", "--json"]).await["turns_running"] == 1
    })
    .await;
    api.block(BOB);
    let status = eventually("a refusal", async || {
        let status = json_of(&setup, &["status", "--json"]).await;
        (!status["last_refusal"].is_null()).then_some(status)
    })
    .await;
    assert!(
        status["last_refusal"]["error"]
            .as_str()
            .unwrap()
            .contains("blocked"),
        "{status}"
    );
    relay.wait_for_log("cannot send to a chat any more").await;
    let (code, listed, err) = verb(&setup, &["journal", "list", "--section", "quarantine"]).await;
    assert_eq!(code, 0, "{err}");
    assert!(listed.contains("quarantine:1"), "{listed}");
    relay.stop().await;
}

#[tokio::test]
async fn a_stranger_is_paired_over_the_bot() {
    let api = fake().await;
    let setup = Setup::for_bot(&api).setting("access.mode", "pair");
    let owner = json_of(&setup, &["access", "owner", &format!("telegram:{ADA}"), "--json"]).await;
    assert_eq!(owner["role"], "owner");
    let relay = started(&setup).await;
    api.say(ADA, ADA, "hello");
    answer(&api, ADA, "echo: hello").await;
    api.say(BOB, BOB, "let me in");
    let notice = api.wait_for_answer(BOB, "a code", SOON, |_| true).await.unwrap();
    let pending = json_of(&setup, &["access", "pending", "--json"]).await;
    let code = pending["pending"][0]["code"].as_str().unwrap();
    assert_eq!(pending["pending"][0]["person"], format!("telegram:{BOB}"));
    assert!(notice.text.contains(code), "{}", notice.text);
    json_of(&setup, &["access", "approve", code, "--json"]).await;
    api.say(BOB, BOB, "again");
    answer(&api, BOB, "echo: again").await;
    relay.stop().await;
}

#[tokio::test]
async fn a_killed_relay_goes_on_where_it_was() {
    let api = fake().await;
    let setup = Setup::for_bot(&api);
    let mut relay = started(&setup).await;
    api.say(ADA, ADA, "before");
    answer(&api, ADA, "echo: before").await;
    api.script(BotApiRule::on("sendMessage", BotApiAnswer::HangBefore));
    api.say(ADA, ADA, "in between");
    api.until("an answer under way", Duration::from_secs(20), |api| {
        let calls = api.calls_of("sendMessage");
        (calls.len() == 2).then_some(())
    })
    .await
    .unwrap();
    relay.kill().await;
    api.clear_script();
    api.say(ADA, ADA, "while away");
    let relay = started(&setup).await;
    answer(&api, ADA, "echo: in between").await;
    answer(&api, ADA, "echo: while away").await;
    let texts: Vec<String> = api.answers(ADA).into_iter().map(|seen| seen.text).collect();
    assert_eq!(texts, ["echo: before", "echo: in between", "echo: while away"]);
    relay.stop().await;
}

/// How an album of three files fares in a relay that is killed while it is sent, and is started again: how often the chat has each
/// file in the end.
async fn files_after_a_kill(fate: BotApiAnswer, resend: &str) -> Vec<usize> {
    let api = fake().await;
    let work = tempfile::tempdir().unwrap();
    let names = ["a.txt", "b.txt", "c.txt"];
    for name in names {
        std::fs::write(work.path().join(name), name).unwrap();
    }
    let lines = names.map(|name| format!(r#"echo '{{\"type\":\"media\",\"path\":\"{name}\"}}'"#));
    let agent = format!(
        "{{kind: command, argv: [sh, -c, \"{}\"], output: jsonl, workdir: \"{}\"}}",
        lines.join("; "),
        work.path().display()
    );
    let setup = Setup::for_bot(&api)
        .setting("agents.filer", &agent)
        .setting("sessions.resend_unknown", resend)
        .args(&["run", "--agent", "filer"]);
    let mut relay = started(&setup).await;
    api.script(BotApiRule::on("sendMediaGroup", fate).once());
    api.say(ADA, ADA, "the files, please");
    api.until("an album under way", SOON, |api| {
        (!api.calls_of("sendMediaGroup").is_empty()).then_some(())
    })
    .await
    .unwrap();
    let called = std::time::Instant::now();
    eventually("the call is noted", async || called.elapsed() > NOTED_AFTER).await;
    relay.kill().await;
    let relay = started(&setup).await;
    eventually("nothing is owed", async || {
        let status = json_of(&setup, &["status", "--json"]).await;
        status["ops_durable"] == 0 && status["turns_running"] == 0
    })
    .await;
    relay.stop().await;
    let sent: Vec<String> = api
        .answers(ADA)
        .into_iter()
        .filter_map(|seen| seen.file?.name)
        .collect();
    let count = |name: &str| sent.iter().filter(|sent| *sent == name).count();
    names.map(count).to_vec()
}

#[tokio::test]
async fn an_album_in_a_killed_relay_loses_no_file_and_repeats_none_without_need() {
    // Telegram said that it did not take it.
    let refused = files_after_a_kill(BotApiAnswer::too_many(60), "answers").await;
    assert_eq!(refused, [1, 1, 1]);
    // Nobody knows whether Telegram took it: files are repeated only where the settings say so, and then all of them.
    for (fate, resend, count) in [
        (BotApiAnswer::HangAfter, "answers", 1),
        (BotApiAnswer::HangBefore, "all", 1),
        (BotApiAnswer::HangAfter, "all", 2),
    ] {
        let files = files_after_a_kill(fate.clone(), resend).await;
        assert_eq!(files, [count; 3], "{fate:?} {resend}");
    }
}
