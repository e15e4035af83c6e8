//! `hermes-relay skills`: every verb on both stores, what it refuses, and jobs that run skills.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::operate::cron::{added, cron, cron_json};
use crate::operate::cron_relay::{ended, texts};
use crate::operate::{VerbOutput, connected, connector, verb, verb_with};
use crate::support::relay_process::Setup;
use crate::support::terminal::{ENTER, Terminal};

async fn skills(setup: &Setup, args: &[&str]) -> VerbOutput {
    verb(setup, &[&["skills"], args].concat()).await
}

async fn skills_json(setup: &Setup, args: &[&str]) -> Value {
    skills(setup, &[args, &["--json"]].concat()).await.json()
}

async fn add(setup: &Setup, name: &str, text: &str) -> Value {
    let args = ["skills", "add", name, "-", "--json"];
    verb_with(setup, &args, Some(text)).await.json()
}

/// A skill that jobs may run.
async fn approved(setup: &Setup, name: &str, text: &str) {
    add(setup, name, text).await;
    skills_json(setup, &["approve", name]).await;
}

#[track_caller]
fn refused(output: &VerbOutput, parts: &[&str]) {
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.out.is_empty(), "{output:?}");
    for part in parts {
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
}

/// One setup per store.
fn setups() -> [Setup; 2] {
    [Setup::new(), Setup::new().setting("skills.store", "filesystem")]
}

#[tokio::test]
async fn a_skill_is_added_read_approved_changed_disabled_and_deleted() {
    for setup in setups() {
        let listed = skills_json(&setup, &["list"]).await;
        assert_eq!(listed, json!({"catalog_version": "empty", "skills": []}));
        assert!(!setup.state_dir().exists(), "a look makes nothing");

        let text = "# Description: Sort the mail\n# Tags: mail, daily\n\nSort it.\n";
        let file = setup.home().join("inbox.md");
        fs::write(&file, text).unwrap();
        let stored = skills_json(
            &setup,
            &["add", "inbox", file.to_str().unwrap(), "--author", "ada"],
        )
        .await;
        assert_eq!(
            (&stored["name"], &stored["status"]),
            (&json!("inbox"), &json!("Draft"))
        );
        let shown = skills_json(&setup, &["show", "inbox"]).await;
        let keys: Vec<&String> = shown.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["content_hash", "metadata", "name", "source", "version"]);
        assert_eq!(
            (&shown["source"], &shown["version"]),
            (&json!(text), &stored["version"])
        );
        let hash = shown["content_hash"].as_str().unwrap();
        assert_eq!(
            (hash.len(), &hash[..12]),
            (64, stored["version"].as_str().unwrap())
        );
        assert_eq!(shown["metadata"]["tags"], json!(["mail", "daily"]));
        assert_eq!(shown["metadata"]["author"], "ada");

        let before = skills_json(&setup, &["list"]).await;
        let token = before["catalog_version"].as_str().unwrap().to_owned();
        let same = skills_json(&setup, &["list", "--if-none-match", &token]).await;
        assert_eq!(same, json!({"not_modified": true, "catalog_version": token}));
        let approved = skills_json(&setup, &["approve", "inbox"]).await;
        assert_eq!(
            (&approved["previous_status"], &approved["status"]),
            (&json!("Draft"), &json!("Approved"))
        );
        let after = skills_json(&setup, &["list"]).await;
        assert_ne!(after["catalog_version"], before["catalog_version"]);
        assert_eq!(after["skills"][0]["status"], "Approved");
        let source = skills_json(&setup, &["show", "inbox"]).await["source"].clone();
        assert_eq!(source, json!(format!("# Status: Approved\n{text}")));

        let changed = add(&setup, "inbox", "Sort it twice.").await;
        assert_eq!(changed["status"], "Draft", "a new text needs a new approval");
        let disabled = skills(&setup, &["disable", "inbox"]).await;
        assert!(
            disabled.out.contains("inbox is Disabled (was Draft)"),
            "{disabled:?}"
        );
        let versions = skills_json(&setup, &["versions", "inbox"]).await;
        let statuses: Vec<&str> = (versions["versions"].as_array().unwrap().iter())
            .map(|version| version["status"].as_str().unwrap())
            .collect();
        assert_eq!(statuses, ["Draft", "Approved", "Draft", "Disabled"]);

        let first = versions["versions"][1]["version"].as_str().unwrap();
        let earlier = skills(&setup, &["show", "inbox", "--version", first, "--json"]).await;
        // The filesystem keeps the current text only.
        if earlier.code == 0 {
            let earlier = earlier.json();
            assert_eq!(earlier["source"], source);
            assert_eq!(earlier["version"], first);
            for key in ["version", "content_hash"] {
                assert_eq!(earlier["metadata"][key], earlier[key], "{earlier}");
            }
            assert_eq!(earlier["metadata"]["status"], "Approved");
        }

        let kept = skills(&setup, &["delete", "inbox"]).await;
        refused(&kept, &["not a terminal", "--yes"]);
        let deleted = skills_json(&setup, &["delete", "inbox", "--yes"]).await;
        assert_eq!(deleted, json!({"name": "inbox", "deleted": true}));
        refused(
            &skills(&setup, &["show", "inbox"]).await,
            &["no skill `inbox`", "skills add"],
        );
    }
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    for setup in setups() {
        for (name, text) in [
            ("alpha", "# Status: Approved\n# Tags: red\nx"),
            ("beta", "# Tags: red, blue\nx"),
            ("gamma", "# Status: Disabled\nx"),
        ] {
            add(&setup, name, text).await;
        }
        for (args, names) in [
            (&["--tag", "red"][..], &["alpha", "beta"][..]),
            (&["--tag", "red", "--tag", "blue"], &["beta"]),
            (
                &["--status", "approved", "--status", "Disabled"],
                &["alpha", "gamma"],
            ),
            (&["--name", "*a*a", "--limit", "1"], &["alpha"]),
            (&["--offset", "1", "--limit", "1"], &["beta"]),
            (&["--author", "nobody"], &[]),
        ] {
            let listed = skills_json(&setup, &[&["list"], args].concat()).await;
            let found: Vec<&str> = (listed["skills"].as_array().unwrap().iter())
                .map(|skill| skill["name"].as_str().unwrap())
                .collect();
            assert_eq!(found, names, "{args:?}");
        }
        assert_eq!(skills(&setup, &["list", "--status", "Final"]).await.code, 2);
        let people = skills(&setup, &["list"]).await.out;
        assert!(
            people.contains("alpha  Approved") && people.contains("gamma  Disabled"),
            "{people}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_a_skill_is_refused() {
    for setup in setups() {
        add(&setup, "inbox", "x").await;
        refused(
            &verb_with(&setup, &["skills", "add", "../x", "-"], Some("x")).await,
            &["`../x` cannot be a name"],
        );
        refused(
            &verb_with(&setup, &["skills", "add", "x", "-"], Some(" ")).await,
            &["the text is empty"],
        );
        refused(
            &verb_with(&setup, &["skills", "add", "x", "-"], Some("# Status: Final\nx")).await,
            &["Final", "Draft, Approved or Disabled"],
        );
        let long = "x".repeat((1 << 20) + 1);
        refused(
            &verb_with(&setup, &["skills", "add", "x", "-"], Some(&long)).await,
            &["longer than 1024 KiB"],
        );
        let bytes = setup.home().join("bytes");
        fs::write(&bytes, b"\xff").unwrap();
        refused(
            &skills(&setup, &["add", "x", bytes.to_str().unwrap()]).await,
            &["not UTF-8 text"],
        );
        let missing = skills(&setup, &["add", "x", "/no/such/file"]).await;
        assert_eq!(missing.code, 78, "{missing:?}");
        refused(
            &skills(&setup, &["approve", "inbux"]).await,
            &["did you mean `inbox`?"],
        );
        let output = skills(&setup, &["show", "nothing", "--json"]).await;
        let error: Value = serde_json::from_str(&output.out).unwrap();
        assert_eq!((output.code, &error["error"]["exit_code"]), (1, &json!(1)));
        let taken = verb_with(&setup, &["skills", "add", "a", "-", "--author", "ada"], Some("x")).await;
        assert_eq!(taken.code, 0, "{taken:?}");
        refused(
            &verb_with(&setup, &["skills", "add", "a", "-", "--author", "bob"], Some("y")).await,
            &["belongs to the author `ada`"],
        );
    }
}

#[tokio::test]
async fn files_and_database_are_private_and_the_relay_accepts_the_directory() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    add(&setup, "inbox", "x").await;
    verb(&setup, &["data", "write", "kept", "--json"]).await.json();
    for name in ["skills.db", "data.db"] {
        let mode = fs::metadata(setup.state_dir().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // A state directory without a journal is still the relay's own.
    connected(&setup).await.stop().await;
}

#[tokio::test]
async fn a_terminal_is_asked_before_a_skill_is_deleted() {
    let setup = Setup::new();
    add(&setup, "inbox", "x").await;
    for (answer, says) in [("n", "is kept"), ("y", "deleted inbox")] {
        let mut terminal = Terminal::start(setup.verb(&["skills", "delete", "inbox"]));
        let asks = "Delete it with its history? [y/N]";
        for (shown, keys) in [(asks, format!("{answer}{ENTER}")), (says, String::new())] {
            let is_shown = |lines: &[String]| lines.iter().any(|line| line.contains(shown));
            terminal.until(shown, is_shown).await;
            terminal.keys(&keys);
        }
        let code = terminal.ends().await.0;
        assert_eq!(code, Some(i32::from(answer == "n")));
    }
    refused(&skills(&setup, &["show", "inbox"]).await, &["no skill"]);
}

#[tokio::test]
async fn only_an_approved_skill_can_be_scheduled() {
    let setup = Setup::new();
    refused(
        &cron(&setup, &["add", "every 3h", "--skill", "inbox"]).await,
        &["no skill `inbox`", "skills add"],
    );
    add(&setup, "inbox", "Sort it.").await;
    let draft = cron(&setup, &["add", "every 3h", "--skill", "inbox"]).await;
    refused(&draft, &["`inbox` is Draft", "skills approve inbox"]);
    skills_json(&setup, &["disable", "inbox"]).await;
    let disabled = cron(&setup, &["add", "every 3h", "--skill", "inbox"]).await;
    refused(&disabled, &["`inbox` is Disabled", "skills approve inbox"]);
    skills_json(&setup, &["approve", "inbox"]).await;
    let job = cron_json(&setup, &["add", "every 3h", "--skill", "inbox"]).await;
    assert_eq!(
        (&job["skill"], &job["prompt"], &job["name"]),
        (&json!("inbox"), &json!(""), &json!("inbox"))
    );
    assert_eq!(
        cron(&setup, &["add", "every 3h"]).await.code,
        2,
        "a job needs one of them"
    );

    let id = job["id"].as_str().unwrap();
    let used = skills(&setup, &["delete", "inbox", "--yes"]).await;
    refused(&used, &["used by scheduled jobs", id, "--force"]);
    refused(
        &cron(&setup, &["edit", id, "--skill", ""]).await,
        &["the prompt is empty"],
    );
    let edited = cron_json(&setup, &["edit", id, "--skill", "", "--prompt", "What is new?"]).await;
    assert_eq!(edited["skill"], Value::Null);
    let edited = cron_json(&setup, &["edit", id, "--skill", "inbox"]).await;
    assert_eq!(edited["skill"], "inbox");
    let exported = cron(&setup, &["export", "-"]).await.out;
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let record = &exported["jobs"][0];
    assert_eq!(
        (&record["skill"], &record["skills"]),
        (&json!("inbox"), &json!(["inbox"]))
    );
    skills_json(&setup, &["delete", "inbox", "--yes", "--force"]).await;
}

#[tokio::test]
async fn a_job_runs_its_skill_as_it_is_at_that_time() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    approved(&setup, "inbox", "Sort the mail.").await;
    let relay = connected(&setup).await;
    let plain = [
        "every 3h",
        "--skill",
        "inbox",
        "--name",
        "plain",
        "--deliver",
        "discord:home",
    ];
    let id = added(&setup, &plain).await;
    cron_json(&setup, &["run", &id]).await;
    let answer = texts(&connector, "home", 1).await.remove(0);
    assert!(
        answer.contains("echo: # Status: Approved\nSort the mail."),
        "{answer}"
    );

    let with_input = [
        "every 3h",
        "only unread",
        "--skill",
        "inbox",
        "--deliver",
        "discord:home",
    ];
    let other = added(&setup, &with_input).await;
    cron_json(&setup, &["run", &other]).await;
    let answer = texts(&connector, "home", 2).await.remove(1);
    assert!(answer.contains("Sort the mail.\n\nonly unread"), "{answer}");

    // A withdrawn approval counts at the next run, and the chat learns why.
    let disabled = skills(&setup, &["disable", "inbox"]).await;
    assert!(
        disabled.out.contains("these jobs fail") && disabled.out.contains(&id),
        "{disabled:?}"
    );
    cron_json(&setup, &["run", &id]).await;
    let answer = texts(&connector, "home", 3).await.remove(2);
    assert!(
        answer.contains("the skill `inbox` is Disabled, not Approved"),
        "{answer}"
    );
    let runs = ended(&setup, &id, 2).await;
    assert_eq!(runs[0]["status"], "failed", "{runs:?}");

    skills_json(&setup, &["delete", "inbox", "--yes", "--force"]).await;
    cron_json(&setup, &["run", &id]).await;
    let answer = texts(&connector, "home", 4).await.remove(3);
    assert!(answer.contains("there is no skill `inbox`"), "{answer}");
    relay.stop().await;
}

#[tokio::test]
async fn an_approved_skill_is_handed_to_an_agent_as_a_playbook() {
    let setup = Setup::new();
    setup.write(
        "relay.yaml",
        "notify:\n  targets:\n    drop: {kind: file, dir: inbox, agents: [ops]}\n",
    );
    let inbox = setup.home().join("inbox");
    fs::create_dir(&inbox).unwrap();
    add(&setup, "rotate", "Rotate the logs.\n").await;
    let output = verb(&setup, &["notify", "ops", "--skill", "rotate", "--json"]).await;
    assert_eq!(output.code, 1, "{output:?}");
    let refusal: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        (&refusal["agent"], &refusal["dispatched"]),
        (&json!("ops"), &json!([]))
    );
    assert_eq!(refusal["error"]["cause_kind"], "client_validation");
    assert!(
        output.err.contains("is Draft") && output.err.contains("skills approve rotate"),
        "{output:?}"
    );
    skills_json(&setup, &["disable", "rotate"]).await;
    refused(
        &verb(&setup, &["notify", "ops", "--skill", "rotate"]).await,
        &["is Disabled", "skills approve"],
    );
    refused(
        &verb(&setup, &["notify", "ops", "--skill", "rotatr"]).await,
        &["did you mean `rotate`?"],
    );
    assert_eq!(fs::read_dir(&inbox).unwrap().count(), 0, "nothing was delivered");

    skills_json(&setup, &["approve", "rotate"]).await;
    let context = [
        "notify", "ops", "--skill", "rotate", "--kind", "augment", "--json",
    ];
    let output = verb(&setup, &context).await;
    let refusal: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        (output.code, &refusal["dispatched"]),
        (2, &json!([])),
        "a skill is a playbook"
    );
    let sent = verb(
        &setup,
        &[
            "notify", "ops", "--skill", "rotate", "--kind", "template", "--json",
        ],
    )
    .await
    .json();
    assert_eq!(sent["dispatched"][0]["ok"], true, "{sent}");
    let file = fs::read_dir(&inbox).unwrap().next().unwrap().unwrap().path();
    let body: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(
        (
            &body["kind"],
            &body["prompt"],
            &body["meta"]["origin"]["skill_name"]
        ),
        (
            &json!("template"),
            &json!("# Status: Approved\nRotate the logs.\n"),
            &json!("rotate")
        )
    );
    assert_eq!(body["meta"].get("event_type"), None);

    // The header names the event type, unless the call does.
    let text = "# Status: Approved\n# Event-type: nightly\nRotate the logs.\n";
    add(&setup, "rotate", text).await;
    for (call, wanted) in [(&[][..], "nightly"), (&["--event-type", "now"], "now")] {
        let args = [&["notify", "ops", "--skill", "rotate", "--json"], call].concat();
        let sent = verb(&setup, &args).await.json();
        let path = sent["dispatched"][0]["receipt"]["delivery_id"].as_str().unwrap();
        let body: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(body["meta"]["event_type"], wanted, "{body}");
        assert_eq!(body["meta"]["origin"].get("caller_agent_id"), None, "{body}");
    }
    for args in [
        &["notify", "ops", "text", "--skill", "rotate"][..],
        &["notify", "ops", "--skill", "rotate", "--kind", "augment"],
        &["notify", "ops"],
    ] {
        assert_eq!(verb(&setup, args).await.code, 2, "{args:?}");
    }
}

#[tokio::test]
async fn processes_that_write_at_once_lose_nothing() {
    for setup in setups() {
        let names: Vec<String> = (0..6).map(|number| format!("skill-{number}")).collect();
        // None of the files exists yet: they also race to make them.
        let adding = names.iter().map(|name| add(&setup, name, "x"));
        join_all(adding).await;
        let changing = (0..6).map(|number| {
            let text = format!("text {number}");
            let setup = &setup;
            async move { add(setup, "shared", &text).await }
        });
        join_all(changing).await;
        let listed = skills_json(&setup, &["list"]).await;
        assert_eq!(listed["skills"].as_array().unwrap().len(), 7);
        let versions = skills_json(&setup, &["versions", "shared"]).await;
        assert_eq!(versions["versions"].as_array().unwrap().len(), 6);
    }
}

#[tokio::test]
async fn a_job_of_hermes_runs_all_its_skills() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    for name in ["one", "two"] {
        add(&setup, name, &format!("# Status: Approved\nSkill {name}.")).await;
    }
    let job = json!({
        "id": "0123456789ab", "name": "both", "prompt": "And this.", "skills": ["one", "two"], "skill": "one",
        "schedule": {"kind": "interval", "minutes": 600, "display": "every 600m"}, "enabled": true,
        "state": "scheduled", "next_run_at": "2035-01-01T09:00:00+00:00", "deliver": "discord:home",
    });
    let file = setup.home().join("jobs.json");
    fs::write(&file, json!({ "jobs": [job] }).to_string()).unwrap();
    let relay = connected(&setup).await;
    cron_json(&setup, &["import", file.to_str().unwrap()]).await;
    cron_json(&setup, &["run", "both"]).await;
    let answer = texts(&connector, "home", 1).await.remove(0);
    let asked = "echo: # Status: Approved\nSkill one.\n\n# Status: Approved\nSkill two.\n\nAnd this.";
    assert!(answer.contains(asked), "{answer}");
    relay.stop().await;
}
