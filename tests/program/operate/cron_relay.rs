//! `hermes-relay cron` beside a running relay: jobs are armed, run, and delivered; agents make them from their shells.

use std::fs;
use std::time::Duration;

use crate::support::dev::{Connector, EmbeddedScheduler, SchedulerFault, SchedulerSettings, text_event};
use hermes_relay::serve::{ControlRequest, client};
use serde_json::{Value, json};

use crate::operate::cron::{added, cron, cron_json, jobs};
use crate::operate::{answered, connected, connector, verb};
use crate::support::executable::write_script;
use crate::support::http_stub::{Stub, reply};
use crate::support::raw_http::ask;
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;

/// The texts of a chat, once there are so many.
pub(super) async fn texts(connector: &Connector, chat: &str, count: usize) -> Vec<String> {
    eventually(&format!("{count} messages in {chat}"), async || {
        let texts: Vec<String> = (connector.messages_in(chat).into_iter())
            .map(|sent| sent.text)
            .collect();
        if texts.len() >= count {
            Ok(texts)
        } else {
            Err(texts)
        }
    })
    .await
}

/// The runs of a job, once so many are over.
pub(super) async fn ended(setup: &Setup, id: &str, count: usize) -> Vec<Value> {
    eventually("the runs end", async || {
        let runs = cron_json(setup, &["runs", id]).await["runs"]
            .as_array()
            .unwrap()
            .clone();
        let over = runs.iter().filter(|run| run["ended_at"].is_string()).count();
        if over >= count { Ok(runs) } else { Err(runs) }
    })
    .await
}

#[tokio::test]
async fn a_job_is_armed_runs_at_its_time_and_is_delivered() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let job = cron_json(
        &setup,
        &["add", "+1s", "hello from the past", "--deliver", "discord:home"],
    )
    .await;
    assert_eq!(
        (&job["armed"], &job["warnings"]),
        (&json!(true), &json!([])),
        "{job}"
    );
    let id = job["id"].as_str().unwrap();
    let answer = texts(&connector, "home", 1).await.remove(0);
    assert!(
        answer.contains("echo: hello from the past") && answer.contains(id),
        "{answer}"
    );
    let runs = ended(&setup, id, 1).await;
    assert_eq!(
        (&runs[0]["status"], &runs[0]["source"]),
        (&json!("completed"), &json!("builtin"))
    );
    let output = setup.state_dir().join(runs[0]["output"].as_str().unwrap());
    eventually("the output is saved", async || output.exists()).await;
    let shown = cron_json(&setup, &["show", id]).await;
    assert_eq!(shown["last_run"]["status"], "completed", "{shown}");
    let text = shown["last_output"]["text"].as_str().unwrap();
    assert_eq!(
        text.trim(),
        "echo: hello from the past",
        "the answer without the prompt"
    );
    let shown = cron(&setup, &["show", id]).await.out;
    assert!(
        shown.contains("last run   completed") && shown.ends_with("\n  echo: hello from the past\n"),
        "{shown}"
    );
    assert_eq!(jobs(&setup, &[]).await.len(), 0, "it has run for the last time");
    assert_eq!(jobs(&setup, &["--all"]).await[0]["state"], "completed");

    // Once more on request, without a change of the schedule.
    let id = added(
        &setup,
        &[
            "every 3h",
            "on request",
            "--name",
            "asked",
            "--deliver",
            "discord:home",
        ],
    )
    .await;
    let before = jobs(&setup, &[]).await.remove(0);
    assert_eq!(before["armed"], true);
    let ran = cron_json(&setup, &["run", "asked"]).await;
    assert_eq!((&ran["requested"], &ran["started"]), (&json!(true), &json!(true)));
    let answer = texts(&connector, "home", 2).await.remove(1);
    assert!(answer.contains("echo: on request"), "{answer}");
    let runs = ended(&setup, &id, 1).await;
    assert_eq!(
        (&runs[0]["status"], &runs[0]["source"]),
        (&json!("completed"), &json!("manual"))
    );
    let after = jobs(&setup, &[]).await.remove(0);
    assert_eq!(
        (&after["next_run_at"], &after["repeat"]),
        (&before["next_run_at"], &before["repeat"])
    );
    assert_eq!(after["last_status"], "ok");
    let status = cron_json(&setup, &["status"]).await;
    assert_eq!(
        (&status["relay_running"], &status["armed"]),
        (&json!(true), &json!(1))
    );
    for args in [
        &["pause", "asked"][..],
        &["resume", "asked"],
        &["remove", "asked"],
    ] {
        assert_eq!(cron(&setup, args).await.code, 0, "{args:?}");
    }
    eventually("the relay knows no job", async || {
        verb(&setup, &["status", "--json"]).await.json()["cron"]["jobs"] == 0
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_verb_reads_schedules_in_the_zone_of_the_running_relay() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("cron.timezone", "Asia/Tokyo");
    let relay = connected(&setup).await;
    let other = setup.home().join("other.yaml");
    fs::write(&other, "agent: echo\n").unwrap();
    let (file, state) = (
        other.display().to_string(),
        setup.state_dir().display().to_string(),
    );
    let here = ["--config", &file, "--state-dir", &state];
    let job = cron_json(&setup, &[&["add", "0 9 * * *", "x"], &here[..]].concat()).await;
    assert_eq!(job["timezone"], "Asia/Tokyo", "{job}");
    for at in job["next_runs"].as_array().unwrap() {
        assert!(at.as_str().unwrap().ends_with("T09:00:00+09:00"), "{job}");
    }
    relay.stop().await;
    let status = cron_json(&setup, &[&["status"], &here[..]].concat()).await;
    assert_eq!(status["timezone"], "UTC", "its own settings, when none runs");
}

#[tokio::test]
async fn a_run_that_is_asked_for_while_the_job_runs_comes_after_it() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let id = added(
        &setup,
        &["every 3h", "sleep=4000 slow", "--deliver", "discord:home"],
    )
    .await;
    cron_json(&setup, &["run", &id]).await;
    eventually("it runs", async || {
        let sessions = verb(&setup, &["sessions", "--json"]).await.json();
        sessions["sessions"][0]["session"] == format!("cron:{id}")
    })
    .await;
    cron_json(&setup, &["run", &id]).await;
    let runs = ended(&setup, &id, 2).await;
    assert!(runs.iter().all(|run| run["status"] == "completed"), "{runs:?}");
    texts(&connector, "home", 2).await;
    relay.stop().await;
}

#[tokio::test]
async fn what_was_made_while_the_relay_was_stopped_runs_when_it_starts() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let id = added(&setup, &["every 3h", "later", "--deliver", "discord:home"]).await;
    cron_json(&setup, &["run", &id]).await;
    let relay = connected(&setup).await;
    assert!(texts(&connector, "home", 1).await[0].contains("echo: later"));
    // The relay reports what it knows to whoever asks on its socket.
    let dir = setup.state_dir();
    let report = tokio::task::spawn_blocking(move || client::call(&dir, &ControlRequest::JobsChanged));
    let report = report.await.unwrap().unwrap();
    assert_eq!(
        report,
        json!({"provider": "builtin", "unavailable": null, "jobs": {}, "shutting_down": false})
    );
    relay.stop().await;
}

#[tokio::test]
async fn several_processes_make_jobs_at_the_same_time() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let prompts: Vec<String> = (0..8).map(|number| format!("job {number}")).collect();
    let adding = prompts.iter().map(async |prompt| {
        let job = cron_json(&setup, &["add", "every 3h", prompt, "--deliver", "discord:home"]).await;
        assert_eq!(job["armed"], true, "{job}");
        cron_json(&setup, &["run", prompt]).await;
    });
    futures_util::future::join_all(adding).await;
    assert_eq!(jobs(&setup, &[]).await.len(), prompts.len());
    let mut answers = texts(&connector, "home", prompts.len()).await;
    answers.sort();
    for (answer, prompt) in answers.iter().zip(&prompts) {
        assert!(answer.contains(&format!("echo: {prompt}")), "{answers:?}");
    }
    relay.stop().await;
}

#[tokio::test]
async fn a_listener_without_a_scheduler_is_healthy_and_refuses_every_fire() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("cron.provider", "chronos")
        .setting("cron.listen", "127.0.0.1:0");
    let relay = connected(&setup).await;
    let line = relay.wait_for_log("serving fires of the managed scheduler").await;
    let address = line.split("address=").nth(1).unwrap();
    let address = address.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(ask(address, ("GET", "/healthz"), &[], "").await.status, 200);
    let token = [("Authorization", "Bearer a.b.c")];
    let fire = ask(address, ("POST", "/api/cron/fire"), &token, r#"{"job_id": "x"}"#).await;
    assert_eq!(
        (fire.status, fire.json()),
        (401, json!({"error": "invalid fire token"}))
    );
    relay.wait_for_log("the managed scheduler is not set up").await;
    // The relay's own timer starts jobs meanwhile.
    let id = added(&setup, &["in 0s", "hi"]).await;
    ended(&setup, &id, 1).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_starts_no_jobs_or_cannot_be_notified_is_no_arm() {
    let connector = connector().await;
    let off = Setup::for_connector(&connector).setting("cron.provider", "off");
    let relay = connected(&off).await;
    let job = cron_json(&off, &["add", "every 1h", "x"]).await;
    assert_eq!(job["armed"], false);
    assert!(
        job["note"].as_str().unwrap().contains("`cron.provider` is off"),
        "{job}"
    );
    relay.stop().await;
    let mute = Setup::for_connector(&connector).setting("serve.control", "false");
    let relay = connected(&mute).await;
    let job = cron_json(&mute, &["add", "every 1h", "x"]).await;
    assert_eq!(job["armed"], false);
    let note = job["note"].as_str().unwrap();
    assert!(
        note.contains("no control socket") && note.contains("restart"),
        "{job}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn creation_tells_the_truth_about_the_managed_scheduler() {
    let connector = connector().await;
    let managed = EmbeddedScheduler::start(SchedulerSettings::default())
        .await
        .unwrap();
    let chronos = json!({
        "portal_url": managed.portal_url(), "callback_url": "http://127.0.0.1:9",
        "expected_audience": managed.audience(), "nas_jwks_url": managed.jwks_url(),
    });
    let setup = Setup::for_connector(&connector)
        .setting("cron.provider", "chronos")
        .setting("cron.chronos", &chronos.to_string());
    managed.write_login(&setup.home()).unwrap();
    let stopped = cron_json(&setup, &["add", "every 2h", "made before"]).await;
    assert_eq!(stopped["armed"], false);
    assert!(
        stopped["note"]
            .as_str()
            .unwrap()
            .contains("will run at its time once"),
        "{stopped}"
    );
    let relay = connected(&setup).await;
    let job = cron_json(&setup, &["add", "every 1h", "x", "--name", "good"]).await;
    assert_eq!(
        (&job["armed"], &job["note"]),
        (&json!(true), &json!("will run: the managed scheduler has it"))
    );
    assert_eq!(managed.view().armed.len(), 2, "that from before too");
    let listed = eventually("the journal knows", async || {
        let listed = jobs(&setup, &[]).await;
        if listed.iter().all(|job| job["armed"] == true) {
            Ok(listed)
        } else {
            Err(listed)
        }
    })
    .await;
    assert_eq!(listed.len(), 2);
    managed.fault(SchedulerFault::Outage);
    let output = cron(&setup, &["add", "every 1h", "x", "--name", "bad", "--json"]).await;
    let job = output.json();
    assert_eq!(job["armed"], false);
    let note = job["note"].as_str().unwrap();
    assert!(
        note.starts_with("saved; the scheduler has not taken it: ") && note.ends_with("; will retry"),
        "{note}"
    );
    let why = job["arm_error"].as_str().unwrap();
    assert!(note.contains(why) && why.contains("HTTP 503"), "{job}");
    eventually("the status names it", async || {
        let status = cron_json(&setup, &["status"]).await;
        let named = status["not_armed"][0]["id"] == job["id"];
        if named { Ok(()) } else { Err(status) }
    })
    .await;
    // A chat reads that it is not armed, and nothing that only an operator understands.
    answered(&connector, "m1", "/cron add every 3h hello").await;
    let said = texts(&connector, "c1", 1).await.remove(0);
    assert!(
        said.contains("saved; the scheduler has not taken it")
            && said.contains("will retry")
            && !said.contains("HTTP"),
        "{said}"
    );
    managed.mend(SchedulerFault::Outage);
    eventually("they are armed after all", async || {
        managed.view().armed.len() == 4
    })
    .await;
    let status = cron_json(&setup, &["status"]).await;
    assert_eq!(status["provider"], "chronos");
    answered(&connector, "m2", &format!("/cron remove {}", id_in(&said))).await;
    eventually("its arm is cancelled", async || managed.view().armed.len() == 3).await;
    cron_json(&setup, &["remove", "good"]).await;
    eventually("its arm is cancelled", async || managed.view().armed.len() == 2).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_scheduler_that_does_not_answer_keeps_nobody_waiting_for_long() {
    let connector = connector().await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let portal = format!("http://{}", silent.local_addr().unwrap());
    let chronos = json!({
        "portal_url": portal, "callback_url": "http://127.0.0.1:9",
        "expected_audience": "agent:x", "nas_jwks_url": format!("{portal}/keys"),
    });
    let setup = Setup::for_connector(&connector)
        .setting("cron.provider", "chronos")
        .setting("cron.chronos", &chronos.to_string());
    let login = json!({"version": 1, "active_provider": "nous", "providers": {"nous": {
        "access_token": "token", "refresh_token": "refresh", "token_type": "Bearer", "client_id": "hermes-cli-vps",
        "portal_base_url": portal, "expires_at": "2099-01-01T00:00:00Z",
    }}});
    setup.write("auth.json", &login.to_string());
    let relay = connected(&setup).await;
    let began = std::time::Instant::now();
    let job = cron_json(&setup, &["add", "every 1h", "x"]).await;
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(job["armed"], false);
    let note = job["note"].as_str().unwrap();
    assert!(note.contains("has not answered yet; will retry"), "{note}");
    // Chats do not wait for it either.
    answered(&connector, "m1", "hello").await;
    relay.terminate();
}

#[tokio::test]
async fn a_relay_that_stops_while_it_refreshes_the_login_keeps_the_login() {
    let connector = connector().await;
    let slowly = Duration::from_secs(1);
    let portal = Stub::at("127.0.0.1:0", slowly, |_| {
        let granted = json!({"access_token": "new", "refresh_token": "rotated", "expires_in": 3600});
        reply(200, granted.to_string())
    })
    .await;
    let chronos = json!({
        "portal_url": portal.base(), "callback_url": "http://127.0.0.1:9",
        "expected_audience": "agent:x", "nas_jwks_url": portal.url("/keys"),
    });
    let setup = Setup::for_connector(&connector)
        .setting("cron.provider", "chronos")
        .setting("cron.chronos", &chronos.to_string());
    let expired = json!({
        "access_token": "old", "refresh_token": "single-use", "expires_at": 1, "portal_base_url": portal.base(),
    });
    setup.write("auth.json", &json!({"providers": {"nous": expired}}).to_string());
    let relay = setup.start();
    eventually("the token is spent", async || {
        portal.seen().iter().any(|seen| seen.path() == "/api/oauth/token")
    })
    .await;
    relay.stop().await;
    let stored = fs::read_to_string(setup.home().join("auth.json")).unwrap();
    assert!(stored.contains("rotated"), "{stored}");
}

/// The id in the answer to `/cron add`.
fn id_in(said: &str) -> &str {
    let rest = said.split_once("Added job ").unwrap().1;
    rest.split_once(':').unwrap().0
}

#[tokio::test]
async fn an_answer_that_the_connector_refuses_for_good_is_noted() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("sessions.refused_retries", "0");
    let relay = connected(&setup).await;
    let id = added(&setup, &["every 2h", "hi", "--deliver", "discord:c9,telegram:5"]).await;
    cron_json(&setup, &["run", &id]).await;
    let job = eventually("the job says so", async || {
        let job = jobs(&setup, &[]).await.remove(0);
        if job["last_delivery_error"].is_string() {
            Ok(job)
        } else {
            Err(job)
        }
    })
    .await;
    let why = job["last_delivery_error"].as_str().unwrap();
    assert!(
        why.starts_with("telegram:5: ") && why.contains("not fronted"),
        "{job}"
    );
    assert_eq!(job["last_status"], "ok", "the agent did its part");
    let runs = ended(&setup, &id, 1).await;
    assert_eq!(runs[0]["delivery_error"], why);
    assert!(texts(&connector, "c9", 1).await[0].contains("echo: hi"));
    let status = verb(&setup, &["status"]).await.out;
    assert!(status.contains("not delivered to telegram:5"), "{status}");
    relay.stop().await;
}

#[tokio::test]
async fn a_command_without_output_is_no_answer_of_a_job() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting(
            "agents.mute",
            "{kind: command, argv: [/bin/sh, -c, 'cat > /dev/null']}",
        )
        .args(&["run", "--agent", "mute"]);
    let relay = connected(&setup).await;
    answered(&connector, "m1", "hello").await;
    assert_eq!(texts(&connector, "c1", 1).await, ["(no reply)"]);
    let id = added(&setup, &["every 2h", "hi", "--deliver", "discord:c9"]).await;
    cron_json(&setup, &["run", &id]).await;
    let runs = ended(&setup, &id, 1).await;
    assert_eq!(
        (&runs[0]["status"], &runs[0]["error"]),
        (&json!("failed"), &json!("the agent gave no answer"))
    );
    let texts = texts(&connector, "c9", 1).await;
    assert!(
        texts[0].contains("gave no answer") && !texts[0].contains("(no reply)"),
        "{texts:?}"
    );
    relay.stop().await;
}

/// A relay whose agent is a script that runs `hermes-relay` as an agent would from its shell.
fn with_shell(setup: Setup, script: &str) -> Setup {
    let program = setup.home().join("shell");
    let text = format!(
        "#!/bin/sh\nread -r message\nexec {} {script}\n",
        env!("CARGO_BIN_EXE_hermes-relay")
    );
    write_script(&program, &text);
    let agent = format!("{{kind: command, argv: [{}]}}", program.display());
    setup
        .setting("agents.shell", &agent)
        .setting("agents.echo", "{kind: echo}")
        .args(&["run", "--agent", "shell"])
}

#[tokio::test]
async fn an_agent_makes_a_job_from_its_shell_and_its_chat_gets_the_answer() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).env("GATEWAY_RELAY_PLATFORMS", "discord,whatsapp");
    let setup = with_shell(
        setup,
        "cron add 'every 3h' 'made by the agent' --agent echo --json",
    );
    let relay = connected(&setup).await;
    answered(&connector, "m1", "remind me").await;
    // The answer may grow by edits.
    let made: Value = eventually("the whole answer", async || {
        let answer = texts(&connector, "c1", 1).await.remove(0);
        serde_json::from_str(&answer).map_err(|_| answer)
    })
    .await;
    assert_eq!(
        (&made["deliver"], &made["armed"]),
        (&json!("origin"), &json!(true)),
        "{made}"
    );
    let exported = cron_json(&setup, &["export", "-"]).await;
    let origin = &exported["jobs"][0]["origin"];
    assert_eq!(
        origin,
        &json!({"platform": "discord", "chat_id": "c1", "chat_type": "dm", "user_id": "u1"})
    );
    cron_json(&setup, &["run", made["id"].as_str().unwrap()]).await;
    let texts_now = texts(&connector, "c1", 2).await;
    assert!(texts_now[1].contains("echo: made by the agent"), "{texts_now:?}");

    // Where agents see no real ids, the relay knows them.
    let phone = "491701234567@c.us";
    connector
        .deliver(&text_event("whatsapp", phone, "m2", "me too"))
        .unwrap();
    connector.reply_to(SOON, "m2").await.unwrap();
    let exported = cron_json(&setup, &["export", "-"]).await;
    let ids: Vec<&Value> = (exported["jobs"].as_array().unwrap().iter())
        .map(|job| &job["origin"]["chat_id"])
        .collect();
    assert_eq!(ids, [&json!("c1"), &json!(phone)]);
    relay.stop().await;
}

#[tokio::test]
async fn a_shell_outside_of_a_turn_has_no_origin() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    // The turn is over: what its environment said still holds, unless it hides who it was.
    let of_turn = |setup: Setup, chat: &str| {
        setup
            .env("RELAY_SESSION_KEY", "agent:main:discord:dm:gone")
            .env("RELAY_PLATFORM", "discord")
            .env("RELAY_CHAT_ID", chat)
    };
    let setup = of_turn(setup, "c9");
    assert_eq!(
        cron_json(&setup, &["add", "every 1h", "x"]).await["deliver"],
        "origin"
    );
    let setup = of_turn(setup, "chat_0123456789abcdef");
    let job = cron_json(&setup, &["add", "every 1h", "x"]).await;
    assert_eq!(job["deliver"], "local");
    assert!(
        job["warnings"][0].as_str().unwrap().contains("--deliver"),
        "{job}"
    );
    let exported = cron_json(&setup, &["export", "-"]).await;
    let origins = exported["jobs"].as_array().unwrap();
    assert_eq!(
        (
            origins[0]["origin"]["chat_id"].as_str(),
            origins[1]["origin"].is_null()
        ),
        (Some("c9"), true)
    );
    tokio::time::timeout(Duration::from_secs(20), relay.stop())
        .await
        .unwrap();
}

/// The journal's database, as somebody else would write it.
fn database(setup: &Setup) -> rusqlite::Connection {
    rusqlite::Connection::open(setup.state_dir().join("journal.db")).unwrap()
}

#[tokio::test]
async fn a_job_that_cannot_be_read_is_listed_and_logged_once_and_can_be_removed() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let good = added(&setup, &["every 1h", "works"]).await;
    let torn = added(&setup, &["every 1h", "torn"]).await;
    let other = added(&setup, &["every 1h", "other"]).await;
    let database = database(&setup);
    for (id, record) in [(&torn, "{\"id\": "), (&other, "{\"id\": \"another\"}")] {
        let changed = database.execute(
            "UPDATE cron_jobs SET record = ?2 WHERE id = ?1",
            [id.as_str(), record],
        );
        assert_eq!(changed.unwrap(), 1);
    }
    let relay = connected(&setup).await;
    let reports = || relay.count("a scheduled job cannot be read");
    eventually("a report of each", async || reports() == 2).await;
    let listed = cron_json(&setup, &["list"]).await;
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["jobs"][0]["id"], *good);
    let reason = |id: &str| {
        let unreadable = listed["unreadable"].as_array().unwrap();
        let job = unreadable.iter().find(|job| job["id"] == id);
        job.unwrap_or_else(|| panic!("{listed}"))["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(reason(&torn).contains("no JSON"), "{listed}");
    assert!(reason(&other).contains("another id"), "{listed}");
    let text = cron(&setup, &["list"]).await.out;
    assert!(text.contains(&format!("{torn}  cannot be read\n")), "{text}");
    // The relay reads the jobs again, and says it no more.
    cron(&setup, &["pause", &good]).await;
    cron(&setup, &["resume", &good]).await;
    assert_eq!(reports(), 2, "{}", relay.stderr());
    let removed = cron(&setup, &["remove", &torn]).await;
    assert_eq!(removed.code, 0, "{removed:?}");
    let listed = cron_json(&setup, &["list"]).await;
    assert_eq!(listed["unreadable"].as_array().unwrap().len(), 1, "{listed}");
    relay.stop().await;
}

#[tokio::test]
async fn a_job_that_a_clock_ahead_of_its_time_has_parked_runs_when_its_schedule_says() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let daily = added(&setup, &["every day at 9am", "look"]).await;
    let hourly = added(&setup, &["every 1h", "look"]).await;
    let wanted: Vec<Value> = jobs(&setup, &[])
        .await
        .into_iter()
        .map(|job| job["next_run_at"].clone())
        .collect();
    let database = database(&setup);
    let parked = database.execute(
        "UPDATE cron_jobs SET record = json_set(record, '$.next_run_at', '2051-01-02T09:00:00+00:00'),
         consumed = 2556090000000000",
        [],
    );
    assert_eq!(parked.unwrap(), 2);
    let relay = connected(&setup).await;
    let stored = |id: &str| {
        let find = "SELECT json_extract(record, '$.next_run_at') FROM cron_jobs WHERE id = ?1";
        database
            .query_row(find, [id], |row| row.get::<_, String>(0))
            .unwrap()
    };
    eventually("repaired jobs", async || {
        let both = [stored(&daily), stored(&hourly)];
        if both.iter().any(|next| next.starts_with("2051")) {
            Err(both)
        } else {
            Ok(both)
        }
    })
    .await;
    assert!(
        wanted.contains(&json!(stored(&daily))),
        "{} {wanted:?}",
        stored(&daily)
    );
    let parked: i64 = database
        .query_row(
            "SELECT count(*) FROM cron_jobs WHERE consumed IS NOT NULL",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(parked, 0, "what a wrong clock consumed does not count");
    relay.stop().await;
}
