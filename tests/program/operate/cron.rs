//! `hermes-relay cron` on its journal, with no relay running: every verb, what it prints, what it refuses.

use std::fs;

use serde_json::{Value, json};

use crate::operate::{VerbOutput, verb, verb_with};
use crate::support::relay_process::Setup;

pub(super) async fn cron(setup: &Setup, args: &[&str]) -> VerbOutput {
    verb(setup, &[&["cron"], args].concat()).await
}

pub(super) async fn cron_json(setup: &Setup, args: &[&str]) -> Value {
    cron(setup, &[args, &["--json"]].concat()).await.json()
}

pub(super) async fn jobs(setup: &Setup, args: &[&str]) -> Vec<Value> {
    let listed = cron_json(setup, &[&["list"], args].concat()).await;
    listed["jobs"].as_array().unwrap().clone()
}

/// Makes a job and returns its id.
pub(super) async fn added(setup: &Setup, args: &[&str]) -> String {
    let job = cron_json(setup, &[&["add"], args].concat()).await;
    job["id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn refused(output: &VerbOutput, parts: &[&str]) {
    output.fails(1, parts);
}

#[tokio::test]
async fn a_job_is_made_and_listed_while_no_relay_runs() {
    let setup = Setup::new();
    assert_eq!(jobs(&setup, &[]).await, [] as [Value; 0]);
    assert!(!setup.state_dir().exists(), "a look makes nothing");
    let schedule = [
        "weekdays at 9am",
        "What is new?",
        "--name",
        "inbox",
        "--timezone",
        "Europe/Berlin",
    ];
    let made = cron_json(
        &setup,
        &[
            &["add"],
            &schedule[..],
            &["--deliver", "discord:42", "--timeout", "2m"],
        ]
        .concat(),
    )
    .await;
    let id = made["id"].as_str().unwrap();
    assert!(
        id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{made}"
    );
    assert_eq!(made["armed"], false);
    assert!(
        made["note"].as_str().unwrap().contains("`hermes-relay run`"),
        "{made}"
    );
    assert_eq!(
        (&made["timeout_secs"], &made["timezone"]),
        (&json!(120), &json!("Europe/Berlin"))
    );
    let next = made["next_runs"].as_array().unwrap();
    assert_eq!((next.len(), &next[0]), (3, &made["next_run_at"]));
    for at in next {
        let at = at.as_str().unwrap();
        assert!(
            at.contains("T09:00:00+0") && !at.ends_with("+00:00"),
            "in the job's zone: {at}"
        );
    }
    let listed = jobs(&setup, &[]).await;
    assert_eq!(listed.len(), 1);
    for key in [
        "id",
        "name",
        "next_run_at",
        "deliver",
        "prompt",
        "schedule",
        "state",
    ] {
        assert_eq!(listed[0][key], made[key], "{key}");
    }
    let shown = cron(&setup, &["list"]).await.out;
    assert!(
        shown.contains(id) && shown.contains("inbox") && shown.contains("to discord:42"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_job_is_changed_paused_run_and_removed_while_no_relay_runs() {
    let setup = Setup::new();
    let id = &added(&setup, &["weekdays at 9am", "What is new?", "--name", "inbox"]).await;
    let edited = cron_json(
        &setup,
        &[
            "edit",
            "INBOX",
            "--schedule",
            "every 30m",
            "--repeat",
            "5",
            "--name",
            "mail",
        ],
    )
    .await;
    assert_eq!((&edited["id"], &edited["name"]), (&json!(id), &json!("mail")));
    assert_eq!(
        (&edited["kind"], &edited["repeat"]["times"]),
        (&json!("interval"), &json!(5))
    );
    for (times, stored) in [("-1", Value::Null), ("once", json!(1)), ("forever", Value::Null)] {
        let edited = cron_json(&setup, &["edit", "mail", "--repeat", times]).await;
        assert_eq!(edited["repeat"]["times"], stored, "{times}");
    }
    let paused = cron_json(&setup, &["pause", &id.to_uppercase()]).await;
    assert_eq!((&paused["id"], &paused["state"]), (&json!(id), &json!("paused")));
    let listed = jobs(&setup, &[]).await;
    assert_eq!(
        (&listed[0]["state"], &listed[0]["next_run_at"]),
        (&json!("paused"), &Value::Null)
    );
    let resumed = cron_json(&setup, &["resume", id]).await;
    assert_eq!(
        (&resumed["state"], &resumed["armed"]),
        (&json!("scheduled"), &json!(false))
    );
    assert!(resumed["next_run_at"].is_string());
    let ran = cron_json(&setup, &["run", id]).await;
    assert_eq!(
        (&ran["requested"], &ran["started"]),
        (&json!(true), &json!(false))
    );
    refused(
        &cron(&setup, &["run", id]).await,
        &["already about to run", "hint:"],
    );
    let runs = cron_json(&setup, &["runs", "mail"]).await;
    assert_eq!(
        (&runs["runs"][0]["status"], &runs["runs"][0]["source"]),
        (&json!("requested"), &json!("manual"))
    );
    let status = cron_json(&setup, &["status"]).await;
    assert_eq!(
        (&status["relay_running"], &status["jobs"]["active"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(
        (&status["next_job"], &status["provider"]),
        (&json!(id), &json!("builtin"))
    );
    let shown = cron(&setup, &["status"]).await.out;
    assert!(
        shown.contains("no relay is running") && shown.contains(id),
        "{shown}"
    );
    let removed = cron_json(&setup, &["remove", "mail"]).await;
    assert_eq!(removed, json!({"id": id, "removed": true}));
    assert_eq!(jobs(&setup, &["--all"]).await.len(), 0);
    assert_eq!(
        cron_json(&setup, &["runs"]).await["runs"],
        json!([]),
        "nothing runs for a job that is gone"
    );
}

#[tokio::test]
async fn a_schedule_is_in_the_zone_of_the_machine_and_the_preview_names_it() {
    let setup = Setup::new().env("TZ", "Asia/Tokyo");
    let job = cron_json(&setup, &["add", "every day at 7", "news"]).await;
    assert_eq!(job["timezone"], "Asia/Tokyo");
    assert!(
        job["next_run_at"].as_str().unwrap().ends_with("T07:00:00+09:00"),
        "{job}"
    );
    for (schedule, part) in [
        ("every day at 7", "every day at 7 = `0 7 * * *`, in Asia/Tokyo"),
        ("tomorrow at 8am", "once, in Asia/Tokyo"),
        (
            "every 2 weeks",
            "every 2 weeks, by elapsed time; shown in Asia/Tokyo",
        ),
        ("first of the month at 9", "= `0 9 1 * *`, in Asia/Tokyo"),
    ] {
        let shown = cron(&setup, &["add", schedule, "x"]).await.out;
        assert!(shown.contains(part), "{shown}");
    }
    let set = Setup::new()
        .env("TZ", "Asia/Tokyo")
        .setting("cron.timezone", "Europe/Berlin");
    let job = cron_json(&set, &["add", "every day at 7", "news"]).await;
    assert_eq!(job["timezone"], "Europe/Berlin", "the setting wins");
}

#[tokio::test]
async fn one_job_is_shown_with_all_its_facts() {
    let setup = Setup::new();
    let id = &added(
        &setup,
        &[
            "weekdays at 9am",
            "What is new?",
            "--name",
            "inbox",
            "--repeat",
            "5",
        ],
    )
    .await;
    let shown = cron(&setup, &["show", "INBOX"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for part in [
        format!("job        {id} (inbox)").as_str(),
        "state      scheduled",
        "schedule   weekdays at 9am = `0 9 * * 1-5`, in UTC",
        "next runs  ",
        "repeats    0 of 5 done",
        "deliver    local",
        "prompt     What is new?",
        "last run   none yet",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let json = cron_json(&setup, &["show", id]).await;
    assert_eq!((&json["id"], &json["last_output"]), (&json!(id), &Value::Null));
    assert_eq!(json["next_runs"].as_array().unwrap().len(), 3);
    refused(
        &cron(&setup, &["show", "inbx"]).await,
        &["inbx", "did you mean", "inbox"],
    );
}

#[tokio::test]
async fn the_meaning_of_a_schedule_is_shown_back() {
    let setup = Setup::new().setting("cron.timezone", "America/New_York");
    let shown = cron(&setup, &["add", "weekdays at 9am", "What", "is", "new?"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for part in [
        "(What is new?)",
        "`0 9 * * 1-5`",
        "America/New_York",
        "next runs  ",
        " 09:00 -0",
        "no relay is running",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    assert!(
        shown.out.contains("local") && shown.out.contains("--deliver"),
        "no chat: {}",
        shown.out
    );
    let once = cron_json(&setup, &["add", "30m", "tea"]).await;
    assert_eq!(
        (&once["kind"], once["next_runs"].as_array().unwrap().len()),
        (&json!("once"), 1)
    );
    assert_eq!(
        (&once["deliver"], &once["repeat"]["times"]),
        (&json!("local"), &json!(1))
    );
    let piped = verb_with(
        &setup,
        &["cron", "add", "every 2h", "-", "--json"],
        Some("from a pipe\n"),
    )
    .await;
    assert_eq!(piped.json()["prompt"], "from a pipe");
    let at_home = Setup::new().env("DISCORD_HOME_CHANNEL", "99");
    let job = cron_json(&at_home, &["add", "every 1h", "hello"]).await;
    assert_eq!(
        (&job["deliver"], &job["warnings"]),
        (&json!("discord"), &json!([]))
    );
    let bare = verb(&setup, &["cron", "--json"]).await.json();
    assert_eq!(
        bare["jobs"].as_array().unwrap().len(),
        3,
        "without a verb it lists"
    );
}

#[tokio::test]
async fn a_text_that_is_no_time_is_refused_with_the_nearest_one() {
    let setup = Setup::new();
    let add = async |args: &[&str]| cron(&setup, &[&["add"], args].concat()).await;
    refused(
        &add(&["evry 5 minutes", "x"]).await,
        &[
            "I cannot read `evry 5 minutes` as a time. Did you mean `every 5 minutes`?",
            "cron add --help",
        ],
    );
    refused(
        &add(&["every day at 25", "x"]).await,
        &["I cannot read `every day at 25` as a time. Did you mean `every day at 23`?"],
    );
    refused(
        &add(&["whenever", "x"]).await,
        &["I cannot read `whenever` as a time", "accepted: `every 30m`"],
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_what_can() {
    let setup = Setup::new()
        .env("GATEWAY_RELAY_PLATFORMS", "discord")
        .setting("agents.coder", "{kind: echo}");
    let add = async |args: &[&str]| cron(&setup, &[&["add"], args].concat()).await;
    refused(
        &add(&["every", "30m", "x"]).await,
        &["cannot read `every` as a time", "in quotes"],
    );
    refused(&add(&["every 10s", "x"]).await, &["minutes", "every 2m"]);
    refused(&add(&["0 9 30 2 *", "x"]).await, &["never runs"]);
    refused(
        &add(&["2020-01-01T00:00", "x"]).await,
        &["in the past", "give it a time ahead, such as \"in 30m\""],
    );
    refused(&add(&["9999-12-31T00:00", "x"]).await, &["a hundred years"]);
    refused(
        &add(&["every 1h", " "]).await,
        &["prompt is empty", "standard input"],
    );
    refused(
        &add(&["every 1h", "x", "--timezone", "Europe/Berln"]).await,
        &["no time zone", "`Europe/Berlin`"],
    );
    refused(
        &add(&["every 1h", "x", "--agent", "codr"]).await,
        &["no agent `codr`", "did you mean `coder`?"],
    );
    refused(
        &add(&["every 1h", "x", "--deliver", "discord:"]).await,
        &["names no chat", "PLATFORM:CHAT"],
    );
    refused(
        &add(&["every 1h", "x", "--deliver", "orgin"]).await,
        &["did you mean `origin`?"],
    );
    let escape = add(&["\u{1b}[2J", "x"]).await;
    assert!(escape.code == 1 && !escape.err.contains('\u{1b}'), "{escape:?}");
    let json = cron(&setup, &["add", "nonsense", "x", "--json"]).await;
    let error: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (json.code, &error["error"]["exit_code"]),
        (1, &json!(1)),
        "{json:?}"
    );
    let usage = add(&["every 1h"]).await;
    assert!(usage.code == 2 && usage.err.contains("<PROMPT>"), "{usage:?}");
    assert_eq!(cron(&setup, &["edit", "x"]).await.code, 2, "nothing to change");
    assert_eq!(jobs(&setup, &["--all"]).await.len(), 0, "nothing was made");

    // A platform that is not announced, or looks misspelt, is only warned about.
    let job = cron_json(
        &setup,
        &["add", "every 1h", "x", "--name", "twin", "--deliver", "slack:C1"],
    )
    .await;
    assert!(
        job["warnings"][0]
            .as_str()
            .unwrap()
            .contains("this relay serves discord"),
        "{job}"
    );
    let job = cron_json(
        &setup,
        &["add", "every 1h", "x", "--name", "Twin", "--deliver", "discrod:1"],
    )
    .await;
    assert!(
        job["warnings"][0]
            .as_str()
            .unwrap()
            .contains("did you mean `discord`?"),
        "{job}"
    );
    let ids: Vec<String> = (jobs(&setup, &[]).await.iter())
        .map(|job| job["id"].as_str().unwrap().to_owned())
        .collect();
    refused(
        &cron(&setup, &["pause", "twin"]).await,
        &["several jobs", &ids[0], &ids[1]],
    );
    refused(
        &cron(&setup, &["pause", "twim"]).await,
        &["no job `twim`", "did you mean", &ids[0]],
    );
    refused(
        &cron(&setup, &["remove", "something else"]).await,
        &["no job", "cron list --all"],
    );
    refused(
        &cron(&setup, &["runs", "tw"]).await,
        &["no job `tw`", "did you mean"],
    );
}

#[tokio::test]
async fn hermes_jobs_are_imported_and_exported_as_they_are() {
    let setup = Setup::new();
    let hermes = json!([
        {
            "id": "0123456789ab", "name": "report", "prompt": "what is new?", "skills": ["mail"], "skill": "mail",
            "schedule": {"kind": "cron", "expr": "0 9 * * *", "display": "0 9 * * *", "later": {"a": [1, 2.5, null]}},
            "schedule_display": "0 9 * * *", "repeat": {"times": null, "completed": 3, "policy": {"x": true}},
            "enabled": true, "state": "scheduled", "created_at": "2026-01-01T00:00:00+00:00",
            "next_run_at": "2035-01-01T09:00:00+09:00", "deliver": "telegram:-100:7",
            "origin": {"platform": "telegram", "chat_id": "-100", "icon": "\u{1F389}"},
            "provider_backoff": {"until": null, "nested": {"deep": ["x", {"y": "\u{202e}"}]}},
        },
        {
            "id": "ba9876543210", "name": "old", "prompt": "x", "enabled": false, "state": "paused",
            "schedule": {"kind": "interval", "minutes": 30},
            "created_at": "2026-02-01T00:00:00+00:00", "next_run_at": "2026-02-01T00:30:00+00:00",
            "paused_reason": "because", "attach_to_session": 7,
        },
    ]);
    let file = setup.home().join("jobs.json");
    fs::write(
        &file,
        json!({"jobs": hermes, "updated_at": "2026-02-01T00:00:00+00:00", "version": 3, "x": {"y": [null]}})
            .to_string(),
    )
    .unwrap();
    let path = file.to_str().unwrap();
    for _ in 0..2 {
        let imported = cron_json(&setup, &["import", path]).await;
        assert_eq!(imported["imported"], json!(["0123456789ab", "ba9876543210"]));
        assert_eq!(
            (&imported["skipped"], &imported["notes"]),
            (&json!([]), &json!([]))
        );
    }
    let listed = jobs(&setup, &[]).await;
    assert_eq!(listed.len(), 2);
    assert_eq!(
        listed[0]["next_run_at"], "2035-01-01T09:00:00+09:00",
        "a time ahead stays"
    );
    assert_eq!(
        listed[1]["schedule"], "every 30m",
        "also where the record has no text for it"
    );
    let printed = cron_json(&setup, &["export", "-"]).await;
    assert_eq!(printed["jobs"], hermes);
    assert_eq!(
        (&printed["version"], &printed["x"]),
        (&json!(3), &json!({"y": [null]})),
        "fields of the file itself"
    );
    let pretty = cron(&setup, &["export", "-"]).await.out;
    assert!(!pretty.contains('\u{202e}'), "{pretty}");
    assert_eq!(serde_json::from_str::<Value>(&pretty).unwrap()["jobs"], hermes);
    let copy = setup.home().join("copy.json");
    for _ in 0..2 {
        let exported = cron_json(&setup, &["export", copy.to_str().unwrap()]).await;
        assert_eq!(exported["exported"], 2);
    }
    let written: Value = serde_json::from_slice(&fs::read(&copy).unwrap()).unwrap();
    assert_eq!(written["jobs"], hermes);
    let other = Setup::new();
    let piped = verb_with(
        &other,
        &["cron", "import", "-", "--json"],
        Some(&written.to_string()),
    )
    .await;
    assert_eq!(piped.json()["imported"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_import_names_what_it_cannot_use_and_makes_up_for_nothing() {
    let setup = Setup::new();
    let every_day = json!({"kind": "cron", "expr": "0 9 * * *", "display": "daily"});
    let jobs_file = json!([
        {"id": "aaaaaaaaaaaa", "name": "late", "prompt": "x", "schedule": every_day, "next_run_at": "2020-01-01T09:00:00+00:00"},
        {"name": "nameless", "prompt": "x"},
        {"id": "../../etc", "prompt": "x"},
        "text",
        {"id": "bbbbbbbbbbbb", "name": "missed", "prompt": "x",
         "schedule": {"kind": "once", "run_at": "2020-01-01T09:00:00+00:00", "display": "once"},
         "next_run_at": "2020-01-01T09:00:00+00:00"},
    ]);
    let import = async |text: &str, args: &[&str]| {
        verb_with(&setup, &[&["cron", "import", "-"], args].concat(), Some(text)).await
    };
    let output = import(&jobs_file.to_string(), &["--json"]).await;
    assert_eq!(output.code, 1, "{output:?}");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report["imported"], json!(["aaaaaaaaaaaa", "bbbbbbbbbbbb"]));
    let entries: Vec<&Value> = report["skipped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bad| &bad["entry"])
        .collect();
    assert_eq!(entries, [&json!(2), &json!(3), &json!(4)]);
    assert_eq!(report["notes"].as_array().unwrap().len(), 2, "{report}");
    let listed = jobs(&setup, &["--all"]).await;
    let state = |id: &str| listed.iter().find(|job| job["id"] == id).unwrap().clone();
    assert!(state("aaaaaaaaaaaa")["next_run_at"].as_str().unwrap() > "2026");
    assert_eq!(state("bbbbbbbbbbbb")["state"], "paused");
    let shown = import(&jobs_file.to_string(), &[]).await;
    assert!(
        shown
            .out
            .contains("skipped: entry 3 ../../etc: it has no usable `id`"),
        "{shown:?}"
    );
    for (text, part) in [
        ("{", "not valid JSON"),
        ("{\"jobs\": 1}", "no list of jobs"),
        (&json!(vec![0; 1001]).to_string(), "1001 jobs"),
    ] {
        let output = import(text, &[]).await;
        assert!(
            output.code == 78 && output.err.contains(part),
            "{part}: {output:?}"
        );
    }
    let useless =
        json!([{"id": "cccccccccccc", "name": "odd", "prompt": "x", "schedule": {"kind": "weekly"}}]);
    let output = import(&useless.to_string(), &[]).await;
    assert!(
        output.code == 0 && output.out.contains("its schedule cannot be used"),
        "{output:?}"
    );
    let shown = cron(&setup, &["list"]).await.out;
    let odd = shown
        .lines()
        .find(|line| line.starts_with("cccccccccccc"))
        .unwrap();
    assert!(odd.contains("does not run"), "{shown}");
    let missing = cron(&setup, &["import", "nowhere.json"]).await;
    assert!(
        missing.code == 78 && missing.err.contains("nowhere.json"),
        "{missing:?}"
    );
    setup.write("precious.txt", "not jobs");
    let precious = setup.home().join("precious.txt");
    refused(
        &cron(&setup, &["export", precious.to_str().unwrap()]).await,
        &["not a file of jobs"],
    );
    assert_eq!(fs::read_to_string(&precious).unwrap(), "not jobs");
}
