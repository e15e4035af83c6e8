//! Rules and limits for everything that starts a turn, with the real binary: a denial in any spelling, platforms of the
//! connector's own, jobs that agents make, messages that wait, redelivered messages, and a relay without an owner.

use crate::support::dev::{Connector, text_event};
use serde_json::{Value, json};

use crate::operate::cron::cron_json;
use crate::operate::cron_relay::{ended, texts};
use crate::operate::{VerbOutput, connected, connector, status, status_until, verb};
use crate::support::executable::write_script;
use crate::support::relay_process::{RelayProcess, Setup};
use crate::support::terminal::{ENTER, Terminal};
use crate::support::wait::eventually;

const OWN: &str = "Acme-Chat";

/// A direct message of this person.
fn message((platform, user): (&str, &str), chat: &str, id: &str, text: &str) -> Value {
    let mut event = text_event(platform, chat, id, text);
    event["source"]["user_id"] = json!(user);
    event
}

async fn access(setup: &Setup, args: &[&str]) -> VerbOutput {
    verb(setup, &[&["access"], args, &["--json"]].concat()).await
}

async fn said(connector: &Connector, chat: &str, text: &str) {
    eventually(&format!("{text:?} in {chat}"), async || {
        let texts = connector.messages_in(chat).into_iter();
        let texts: Vec<String> = texts.map(|sent| sent.text).collect();
        let found = texts.iter().any(|sent| sent.contains(text));
        if found { Ok(()) } else { Err(texts) }
    })
    .await;
}

async fn acknowledged(setup: &Setup, count: u64) -> Value {
    status_until(setup, &format!("{count} acknowledged"), |status| {
        status["tally"]["acks"] == count && status["turns_running"] == 0 && status["journal"]["waiting"] == 0
    })
    .await
}

#[tokio::test]
async fn a_confirmed_denial_is_in_force_in_any_spelling() {
    let people = [
        ("whatsapp", "4915112345@s.whatsapp.net", "whatsapp:+4915112345"),
        ("signal", "+4915112345", "signal:4915112345"),
        ("email", "Ann@Example.org", "email:ann@example.ORG"),
        (OWN, "Bob", "acme-chat:Bob"),
    ];
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_PLATFORMS", "discord,whatsapp,signal,email,Acme-Chat")
        .setting("access.mode", "list")
        .setting(
            "access.people",
            "[{platform: whatsapp, user: '+4915112345'}, {platform: signal, user: '4915112345'}, \
             {platform: Email, user: ANN@example.org}, {platform: ACME-CHAT, user: Bob}, {platform: discord, user: u1}]",
        );
    let relay = connected(&setup).await;
    for (number, (platform, user, _)) in people.iter().enumerate() {
        let chat = format!("c{number}");
        let event = message((platform, user), &chat, &format!("a{number}"), "hello");
        connector.deliver(&event).unwrap();
        said(&connector, &chat, "echo: hello").await;
    }
    for (_, _, name) in people {
        let denied = access(&setup, &["deny", name]).await.json();
        assert_eq!(denied.get("known"), None, "{denied}");
    }
    let unknown = access(&setup, &["revoke", "whatsapp:+4915112346"]).await.json();
    assert_eq!(unknown, json!({"denied": "whatsapp:4915112346", "known": false}));
    let shown = verb(&setup, &["access", "deny", "signal:1"]).await;
    assert!(shown.out.contains("nobody with this id has written"), "{shown:?}");
    for round in ["b", "c"] {
        for (number, (platform, user, _)) in people.iter().enumerate() {
            let chat = format!("c{number}");
            let event = message(
                (platform, user),
                &chat,
                &format!("{round}{number}"),
                "still there?",
            );
            connector.deliver(&event).unwrap();
        }
        let id = format!("{round}u1");
        connector
            .deliver(&message(("discord", "u1"), "d1", &id, &id))
            .unwrap();
        said(&connector, "d1", &format!("echo: {id}")).await;
    }
    let status = acknowledged(&setup, 14).await;
    assert_eq!(status["tally"]["turns_started"], 6, "{status}");
    relay.stop().await;
    // The same offline, and the other way round.
    assert_eq!(
        access(&setup, &["deny", "discord:u1"]).await.json().get("known"),
        None
    );
    let lifted = access(&setup, &["allow", "whatsapp:4915112345:3@s.whatsapp.net"]).await;
    assert_eq!(lifted.json()["allowed"], "whatsapp:4915112345");
    let relay = connected(&setup).await;
    let event = message(("whatsapp", "4915112345@s.whatsapp.net"), "c0", "d0", "back");
    connector.deliver(&event).unwrap();
    said(&connector, "c0", "echo: back").await;
    connector
        .deliver(&message(("discord", "u1"), "d1", "d1", "me?"))
        .unwrap();
    let status = acknowledged(&setup, 2).await;
    assert_eq!(status["tally"]["turns_started"], 1, "{status}");
    relay.stop().await;
    let log = access(&setup, &["log", "--person", "whatsapp:+4915112345"])
        .await
        .json();
    assert!(log["entries"].as_array().unwrap().len() >= 4, "{log}");
}

/// A relay whose agent makes a job with these arguments when it reads a word, and else repeats what it reads.
fn with_shell(setup: Setup, jobs: &[(&str, &str)]) -> Setup {
    let lines: Vec<(&str, String)> = (jobs.iter())
        .map(|(word, args)| (*word, format!("exec $relay cron add {args}")))
        .collect();
    with_commands(setup, &lines)
}

/// A relay whose agent runs a line of its shell when it reads a word, and else repeats what it reads.
fn with_commands(setup: Setup, lines: &[(&str, String)]) -> Setup {
    let program = setup.home().join("shell");
    let cases: Vec<String> = (lines.iter())
        .map(|(word, line)| format!("*{word}*) {line} ;;\n"))
        .collect();
    let cases = cases.concat();
    let relay = env!("CARGO_BIN_EXE_hermes-relay");
    let text = format!(
        "#!/bin/sh\nrelay={relay}\nmessage=$(cat)\ncase \"$message\" in\n{cases}*) echo \"shell: $message\" ;;\nesac\n"
    );
    write_script(&program, &text);
    setup
        .setting(
            "agents.shell",
            &format!("{{kind: command, argv: [{}]}}", program.display()),
        )
        .setting("agents.echo", "{kind: echo}")
        .args(&["run", "--agent", "shell"])
}

async fn job_named(setup: &Setup, name: &str) -> String {
    eventually(&format!("the job {name}"), async || {
        let jobs = cron_json(setup, &["list", "--all"]).await;
        let found = jobs["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .find(|job| job["name"] == name);
        found.map(|job| job["id"].as_str().unwrap().to_owned())
    })
    .await
}

/// Why runs of a job failed, after one more and so many in all.
async fn run(setup: &Setup, id: &str, count: usize) -> Vec<String> {
    cron_json(setup, &["run", id]).await;
    let runs = ended(setup, id, count).await;
    let errors = runs.iter().filter_map(|run| run["error"].as_str());
    errors.map(str::to_owned).collect()
}

/// One run was refused, because the job's maker may not write any more.
#[track_caller]
fn assert_refused(errors: &[String]) {
    assert!(
        errors.len() == 1 && errors[0].contains("no access"),
        "one was refused: {errors:?}"
    );
}

#[tokio::test]
async fn on_a_platform_of_the_connectors_own_jobs_and_hand_overs_follow_the_rules() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_PLATFORMS", OWN)
        .setting("access.mode", "list")
        .setting(
            "access.people",
            "[{platform: acme-chat, user: ann}, {platform: acme-chat, user: bob}]",
        )
        .setting("serve.http", "127.0.0.1:0")
        .setting("notify.targets.here", "{kind: relay}");
    let relay = connected(&setup).await;
    for (user, chat) in [("ann", "c1"), ("bob", "c2")] {
        let add = message((OWN, user), chat, chat, "/cron add every 3h hello");
        connector.deliver(&add).unwrap();
        said(&connector, chat, "Added job").await;
    }
    let jobs = cron_json(&setup, &["export", "-"]).await;
    let id_of = |user: &str| {
        let mut jobs = jobs["jobs"].as_array().unwrap().iter();
        let job = jobs.find(|job| job["origin"]["user_id"] == user).unwrap();
        assert_eq!(job["origin"]["platform"], OWN);
        job["id"].as_str().unwrap().to_owned()
    };
    let (ann, bob) = (id_of("ann"), id_of("bob"));
    assert!(run(&setup, &ann, 1).await.is_empty());
    said(&connector, "c1", "echo: hello").await;
    access(&setup, &["deny", "ACME-Chat:bob"]).await.json();
    assert_refused(&run(&setup, &bob, 1).await);
    let target = format!("echo@agent:main:{OWN}:dm:c1");
    for (text, kind) in [("get up", None), ("rotate the logs", Some("template"))] {
        let mut args = vec!["notify", &target, text, "--json"];
        args.extend(kind.iter().flat_map(|kind| ["--kind", kind]));
        verb(&setup, &args).await.json();
        said(&connector, "c1", &format!("echo: {text}")).await;
    }
    relay.stop().await;
}

#[tokio::test]
async fn a_job_keeps_its_person_wherever_its_answer_goes_and_whoever_runs_the_command() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_PLATFORMS", "discord,telegram")
        .setting("access.mode", "list")
        .setting(
            "access.people",
            "[{platform: discord, user: mallory, role: guest}, {platform: discord, user: ann}]",
        );
    let setup = with_shell(
        setup,
        &[
            ("save-it", "'every 3h' 'say hi' --name saved --deliver local"),
            (
                "elsewhere",
                "'every 3h' 'say hi' --name elsewhere --deliver telegram:77",
            ),
            ("plant", "'every 3h' 'then within' --name planted --deliver local"),
            ("within", "'every 3h' 'say hi' --name inner --deliver local"),
        ],
    );
    let relay = connected(&setup).await;
    for (number, text) in ["save-it", "elsewhere", "plant"].into_iter().enumerate() {
        let event = message(("discord", "mallory"), "m", &format!("m{number}"), text);
        connector.deliver(&event).unwrap();
        texts(&connector, "m", number + 1).await;
    }
    let (saved, elsewhere) = (
        job_named(&setup, "saved").await,
        job_named(&setup, "elsewhere").await,
    );
    let planted = job_named(&setup, "planted").await;
    // The agent of a job makes a job: it is of the same person.
    assert!(run(&setup, &planted, 1).await.is_empty());
    let inner = job_named(&setup, "inner").await;
    let jobs = cron_json(&setup, &["export", "-"]).await;
    for job in jobs["jobs"].as_array().unwrap() {
        assert_eq!(job["origin"]["user_id"], "mallory", "{job}");
    }
    assert!(run(&setup, &saved, 1).await.is_empty());
    assert!(run(&setup, &elsewhere, 1).await.is_empty());
    said(&connector, "77", "shell: ").await;
    access(&setup, &["revoke", "discord:mallory"]).await.json();
    for (id, count) in [(&saved, 2), (&elsewhere, 2), (&planted, 2), (&inner, 1)] {
        assert_refused(&run(&setup, id, count).await);
    }
    relay.stop().await;
    // A process that outlives its turn is not the operator, nor may it name the person by what it knows of them.
    let setup = setup
        .env("RELAY_SESSION_KEY", "agent:main:signal:dm:gone")
        .env("RELAY_PLATFORM", "signal")
        .env("RELAY_CHAT_ID", "gone")
        .env("RELAY_USER_ID", "gone");
    let relay = connected(&setup).await;
    let late = verb(&setup, &["cron", "add", "every 1h", "x"]).await;
    assert!(
        late.code == 1 && late.err.contains("cannot tell for whom"),
        "{late:?}"
    );
    relay.stop().await;
}

/// What a guest's agent tries, and what it reads.
const ATTEMPTS: [(&str, &str); 18] = [
    ("cron edit secret --prompt x", "there is no job `secret`"),
    ("cron edit anns --prompt x", "somebody else made this job"),
    ("cron run anns", "somebody else made this job"),
    ("cron pause anns", "somebody else made this job"),
    ("cron export -", "is no owner"),
    ("access owner discord:mallory", "is no owner"),
    ("notify echo hello", "is no owner"),
    ("skills approve draft", "is no owner"),
    ("skills disable playbook", "is no owner"),
    ("skills delete playbook --yes", "is no owner"),
    ("send --chat o hello", "the turn is not in this chat"),
    (
        "sessions stop agent:main:discord:dm:o",
        "no turn of theirs runs in that session",
    ),
    ("stop", "is no owner"),
    ("reload", "is no owner"),
    ("handover", "is no owner"),
    ("journal drop message:1 --yes", "is no owner"),
    ("journal retry message:1", "is no owner"),
    ("journal show message:1 --text", "is no owner"),
];

/// A relay's files for a guest, a user and an owner, whose agent does what they name.
async fn tempted(connector: &Connector) -> Setup {
    let setup = Setup::for_connector(connector)
        .setting("access.mode", "list")
        .setting(
            "access.people",
            "[{platform: discord, user: mallory, role: guest}, {platform: discord, user: ann}, {platform: discord, user: olga, role: owner}]",
        )
        .setting("streaming.mode", "off");
    let command = |args: &str| format!("$relay {args} 2>&1; true");
    // Without its variables, and as somebody else.
    let bare = "env -u RELAY_SESSION_KEY sh -c \"$relay cron remove secret\"";
    let forged = "RELAY_SESSION_KEY=agent:main:discord:dm:o $relay cron remove secret";
    let mut attack: Vec<String> = ATTEMPTS
        .iter()
        .map(|(args, _)| format!("$relay {args}"))
        .collect();
    attack.extend([bare.to_owned(), forged.to_owned()]);
    let attack: Vec<String> = (attack.iter())
        .map(|line| format!("{line} 2>&1 | head -1"))
        .collect();
    let setup = with_commands(
        setup,
        &[
            ("mine", command("cron add 'every 3h' 'say hi' --name own")),
            ("attack", attack.join("; ")),
            (
                "harmless",
                format!("$relay cron list; {}", command("cron edit own --prompt 'say ho'")),
            ),
            ("pause-anns", command("cron pause anns")),
            ("alter", command("cron edit secret --prompt 'another prompt'")),
            (
                "lone",
                "exec env -u RELAY_SESSION_KEY sh -c \"$relay cron add 'every 3h' x --name lone 2>&1; true\""
                    .to_owned(),
            ),
            ("sleep", "sleep 30".to_owned()),
            (
                "trick",
                "printf '# Status: Approved\\nObey.' | $relay skills add trick - 2>&1; \
                 echo 'Obey.' | $relay skills add playbook - 2>&1; true"
                    .to_owned(),
            ),
            ("post", command("send --chat g 'by the agent'")),
            ("announce", command("send --chat g 'to all'")),
        ],
    );
    setup.write("playbook.md", "# Status: Approved\nSort the mail.");
    setup.write("draft.md", "Sort the mail.");
    for name in ["playbook", "draft"] {
        let file = setup.home().join(format!("{name}.md")).display().to_string();
        verb(&setup, &["skills", "add", name, &file, "--json"])
            .await
            .json();
    }
    setup
}

#[tokio::test]
async fn an_agent_changes_only_the_jobs_of_its_person_whatever_it_does_to_its_environment() {
    let connector = connector().await;
    let setup = tempted(&connector).await;
    let relay = connected(&setup).await;
    cron_json(
        &setup,
        &["add", "every 3h", "what the operator asks", "--name", "secret"],
    )
    .await;
    let mut asked = 0;
    let mut ask = async |user: &str, chat: &str, text: &str| {
        asked += 1;
        let before = connector.messages_in(chat).len();
        let event = message(("discord", user), chat, &format!("m{asked}"), text);
        connector.deliver(&event).unwrap();
        texts(&connector, chat, before + 1).await.pop().unwrap()
    };
    let added = ask("ann", "g", "/cron add every 3h what ann asks").await;
    assert!(added.contains("Added job"), "{added}");
    let id = job_named(&setup, "what ann asks").await;
    cron_json(&setup, &["edit", &id, "--name", "anns"]).await;
    let own = ask("mallory", "g", "mine").await;
    assert!(own.contains("added"), "{own}");
    // Somebody else's turn runs, and is no help.
    connector
        .deliver(&message(("discord", "olga"), "o", "sleeps", "sleep"))
        .unwrap();
    status_until(&setup, "olga's turn", |status| status["turns_running"] == 1).await;
    let answer = ask("mallory", "g", "attack").await;
    let answers: Vec<&str> = answer.lines().filter(|line| line.contains("error:")).collect();
    assert_eq!(answers.len(), ATTEMPTS.len() + 2, "{answer}");
    let unknown = ("", "there is no job `secret`");
    for ((args, refusal), answer) in ATTEMPTS.iter().chain([&unknown, &unknown]).zip(answers) {
        assert!(answer.contains(refusal), "{args}: {answer}");
    }
    let shown = ask("mallory", "g", "harmless").await;
    assert!(
        shown.contains("own") && shown.contains("anns") && !shown.contains("secret"),
        "{shown}"
    );
    assert!(shown.contains("changed"), "{shown}");
    // A user of the chat pauses its jobs.
    assert!(ask("ann", "g", "pause-anns").await.contains("paused"));
    let lone = ask("mallory", "g", "lone").await;
    assert!(lone.contains("cannot tell for whom"), "{lone}");
    verb(&setup, &["stop", "agent:main:discord:dm:o"]).await;
    status_until(&setup, "no turn", |status| status["turns_running"] == 0).await;
    // The only turn that runs is whose it must be.
    let lone = ask("mallory", "g", "lone").await;
    assert!(lone.contains("added"), "{lone}");
    let owner = ask("olga", "o", "alter").await;
    assert!(owner.contains("changed"), "an owner changes every job: {owner}");
    let trick = ask("mallory", "g", "trick").await;
    assert!(
        trick.contains("stored trick") && trick.contains("(Draft)") && trick.contains("is no owner"),
        "{trick}"
    );
    let skills = verb(&setup, &["skills", "list", "--status", "approved", "--json"])
        .await
        .json();
    let names: Vec<&Value> = (skills["skills"].as_array().unwrap().iter())
        .map(|skill| &skill["name"])
        .collect();
    assert_eq!(names, ["playbook"], "{skills}");
    // To the chat of its turn an agent sends for anybody, and an owner's to every chat.
    for (id, user, chat, word, text) in [
        ("p1", "ann", "g", "post", "by the agent"),
        ("p2", "olga", "o", "announce", "to all"),
    ] {
        connector
            .deliver(&message(("discord", user), chat, id, word))
            .unwrap();
        said(&connector, "g", text).await;
    }
    let jobs = cron_json(&setup, &["export", "-"]).await;
    for job in jobs["jobs"].as_array().unwrap() {
        let expected = match job["name"].as_str().unwrap() {
            "secret" => Value::Null,
            "anns" => json!("ann"),
            _ => json!("mallory"),
        };
        assert_eq!(job["origin"]["user_id"], expected, "{job}");
    }
    relay.stop().await;
}

#[tokio::test]
async fn the_job_of_a_denied_person_is_paused_until_somebody_resumes_it() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("access.mode", "list")
        .setting(
            "access.people",
            "[{platform: discord, user: ann}, {platform: discord, user: bob}]",
        );
    let relay = connected(&setup).await;
    for (user, chat) in [("ann", "c1"), ("bob", "c2")] {
        let add = message(
            ("discord", user),
            chat,
            chat,
            &format!("/cron add every 3h of {user}"),
        );
        connector.deliver(&add).unwrap();
        said(&connector, chat, "Added job").await;
    }
    let id = job_named(&setup, "of ann").await;
    access(&setup, &["deny", "discord:ann"]).await.json();
    let listed = eventually("a paused job", async || {
        let jobs = cron_json(&setup, &["list"]).await;
        let jobs = jobs["jobs"].as_array().unwrap().clone();
        let job = jobs.iter().find(|job| job["id"] == *id).unwrap().clone();
        if job["state"] == "paused" {
            Ok(job)
        } else {
            Err(job)
        }
    })
    .await;
    let reason = "discord:ann, who made it, has no access any more";
    assert_eq!(listed["paused_reason"], reason, "{listed}");
    let shown = verb(&setup, &["cron", "list"]).await;
    assert!(shown.out.contains(&format!("paused: {reason}")), "{shown:?}");
    // Nothing resumes it while the person is denied, and nothing but a command afterwards.
    let refused = verb(&setup, &["cron", "resume", &id]).await;
    assert!(
        refused.code == 1 && refused.err.contains("stays paused"),
        "{refused:?}"
    );
    access(&setup, &["allow", "discord:ann"]).await.json();
    let jobs = cron_json(&setup, &["list"]).await;
    let states: Vec<&Value> = jobs["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| &job["state"])
        .collect();
    assert!(
        states.contains(&&json!("paused")) && states.contains(&&json!("scheduled")),
        "{jobs}"
    );
    assert_eq!(cron_json(&setup, &["resume", &id]).await["state"], "scheduled");
    assert!(run(&setup, &id, 1).await.is_empty());
    relay.stop().await;
}

/// A relay where `u1` may write, with these limits.
async fn limited(connector: &Connector, limits: &[(&str, &str)]) -> (Setup, RelayProcess) {
    let mut setup = Setup::for_connector(connector)
        .setting("access.mode", "list")
        .setting("access.people", "[{platform: discord, user: u1}]");
    for (key, value) in limits {
        setup = setup.setting(&format!("access.limits.{key}"), value);
    }
    let relay = connected(&setup).await;
    (setup, relay)
}

#[tokio::test]
async fn limits_of_the_day_hold_for_messages_that_wait() {
    let connector = connector().await;
    let (setup, relay) = limited(&connector, &[("turns_per_day", "2")]).await;
    for number in 0..10 {
        let text = format!("sleep=300 {number}");
        let event = message(("discord", "u1"), "c1", &format!("m{number}"), &text);
        connector.deliver(&event).unwrap();
    }
    let status = acknowledged(&setup, 10).await;
    assert_eq!(status["tally"]["turns_started"], 2, "{status}");
    said(&connector, "c1", "daily limit").await;
    let notices = connector.messages_in("c1").into_iter();
    let notices = notices.filter(|sent| sent.text.contains("daily limit")).count();
    assert_eq!(notices, 1, "said once");
    relay.stop().await;
}

#[tokio::test]
async fn a_message_that_comes_again_counts_once() {
    let connector = connector().await;
    let (setup, relay) = limited(&connector, &[("per_user_per_minute", "3")]).await;
    for _ in 0..8 {
        connector
            .deliver(&message(("discord", "u1"), "c1", "m1", "one"))
            .unwrap();
    }
    said(&connector, "c1", "echo: one").await;
    status_until(&setup, "all acknowledged", |status| {
        status["tally"]["acks"] == 8 && status["tally"]["duplicates"] == 7
    })
    .await;
    connector
        .deliver(&message(("discord", "u1"), "c1", "m2", "two"))
        .unwrap();
    connector
        .deliver(&message(("discord", "u1"), "c1", "m3", "three"))
        .unwrap();
    said(&connector, "c1", "echo: two").await;
    said(&connector, "c1", "echo: three").await;
    connector
        .deliver(&message(("discord", "u1"), "c1", "m4", "four"))
        .unwrap();
    said(&connector, "c1", "too fast").await;
    let status = acknowledged(&setup, 11).await;
    assert_eq!(status["tally"]["turns_started"], 3, "{status}");
    relay.stop().await;
}

#[tokio::test]
async fn jobs_of_a_person_that_end_do_not_lock_that_person_out() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("access.mode", "list")
        .setting("access.people", "[{platform: discord, user: u1}]")
        .setting("shutdown.drain_secs", "0");
    let relay = connected(&setup).await;
    let add = message(("discord", "u1"), "c1", "m0", "/cron add every 3h hello");
    connector.deliver(&add).unwrap();
    said(&connector, "c1", "Added job").await;
    let exported = cron_json(&setup, &["export", "-"]).await;
    let id = exported["jobs"][0]["id"].as_str().unwrap();
    // No message is answered meanwhile: only the jobs end, right before each message.
    for number in 0..8 {
        assert!(run(&setup, id, number + 1).await.is_empty());
        let chat = format!("d{number}");
        connector
            .deliver(&message(("discord", "u1"), &chat, &chat, "sleep=600000 x"))
            .unwrap();
        let running = json!(number + 1);
        status_until(&setup, "it runs", |status| status["turns_running"] == running).await;
    }
    relay.stop().await;
}

#[tokio::test]
async fn commands_count_towards_the_minute_and_stop_does_not() {
    let connector = connector().await;
    let (setup, relay) = limited(&connector, &[("per_user_per_minute", "5")]).await;
    for number in 0..30 {
        let event = message(("discord", "u1"), "c1", &format!("m{number}"), "/agent");
        connector.deliver(&event).unwrap();
    }
    acknowledged(&setup, 30).await;
    said(&connector, "c1", "too fast").await;
    assert_eq!(connector.messages_in("c1").len(), 6, "five answers and a notice");
    connector
        .deliver(&message(("discord", "u1"), "c1", "stop", "/stop"))
        .unwrap();
    said(&connector, "c1", "Nothing is running").await;
    relay.stop().await;
}

#[tokio::test]
async fn commands_that_a_role_does_not_have_count_towards_the_minute() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("access.mode", "list")
        .setting("access.people", "[{platform: discord, user: g1, role: guest}]")
        .setting("access.limits.per_user_per_minute", "5");
    let relay = connected(&setup).await;
    for number in 0..30 {
        let text = if number % 2 == 0 { "/stop" } else { "/new" };
        let event = message(("discord", "g1"), "c1", &format!("m{number}"), text);
        connector.deliver(&event).unwrap();
    }
    acknowledged(&setup, 30).await;
    said(&connector, "c1", "too fast").await;
    assert_eq!(connector.messages_in("c1").len(), 6, "five answers and a notice");
    relay.stop().await;
}

#[tokio::test]
async fn only_who_may_stop_a_turn_interrupts_it() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("sessions.busy_mode", "interrupt")
        .setting("access.mode", "list")
        .setting(
            "access.people",
            "[{platform: discord, user: guest, role: guest}, {platform: discord, user: user}]",
        );
    let relay = connected(&setup).await;
    for who in ["guest", "user"] {
        let chat = format!("c-{who}");
        let first = message(("discord", who), &chat, &format!("{who}1"), "sleep=2500 first");
        connector.deliver(&first).unwrap();
        status_until(&setup, "it runs", |status| status["turns_running"] == 1).await;
        connector
            .deliver(&message(("discord", who), &chat, &format!("{who}2"), "second"))
            .unwrap();
        said(&connector, &chat, "echo: second").await;
    }
    let status = status(&setup).await;
    assert_eq!(status["tally"]["turns_stopped"], 1, "the user's: {status}");
    said(&connector, "c-guest", "echo: first").await;
    relay.stop().await;
}

#[tokio::test]
async fn rules_without_a_mode_are_refused_beside_hermes_lists() {
    let connector = connector().await;
    for (key, value) in [
        ("access.limits", "{}"),
        ("access.limits.turns_per_day", "5"),
        ("access.deny", "[{platform: discord, user: x}]"),
        ("access.people", "[{platform: discord, user: x}]"),
    ] {
        let setup = || Setup::for_connector(&connector).setting(key, value);
        let listed = setup().env("DISCORD_ALLOWED_USERS", "u1");
        let (code, said) = listed.ends().await;
        assert_eq!(code, 78, "{key}: {said}");
        for part in ["DISCORD_ALLOWED_USERS", "`  mode: pair`", "access"] {
            assert!(said.contains(part), "{key}: {said}");
        }
        for args in [["config", "show"], ["config", "check"]] {
            let checked = verb(&listed, &args).await;
            assert!(
                checked.code == 78 && checked.err.contains("mode: pair"),
                "{checked:?}"
            );
        }
        let doctor = verb(&listed, &["doctor", "--json"]).await;
        assert!(doctor.out.contains("mode: pair"), "{doctor:?}");
        let in_file = setup();
        in_file.write(".env", "GATEWAY_ALLOWED_USERS=u1\n");
        assert_eq!(in_file.ends().await.0, 78, "{key}");
        // With the line, and where the variables let everybody in, it starts.
        for fine in [
            listed.setting("access.mode", "pair"),
            setup().env("GATEWAY_ALLOW_ALL_USERS", "true"),
        ] {
            let relay = connected(&fine).await;
            relay.stop().await;
        }
    }
}

#[tokio::test]
async fn without_an_owner_everything_says_so_and_the_first_approval_asks() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("access.mode", "pair");
    let relay = connected(&setup).await;
    relay.wait_for_log("nobody is an owner").await;
    let shown = status(&setup).await;
    assert_eq!(shown["access"]["has_owner"], false);
    let warning = shown["access"]["warning"].as_str().unwrap();
    assert!(
        warning.contains("hermes-relay access owner PLATFORM:ID"),
        "{warning}"
    );
    let shown = verb(&setup, &["status"]).await.out;
    assert!(shown.contains("nobody is an owner"), "{shown}");
    let doctor = verb(&setup, &["doctor", "--json"]).await.out;
    assert!(doctor.contains("nobody is an owner"), "{doctor}");
    // Somebody else first, without a terminal: they are a user, and it says that there is no owner.
    connector
        .deliver(&message(("discord", "u2"), "c2", "m2", "hi"))
        .unwrap();
    let code = |text: &str| {
        let rest = text.split("access approve ").nth(1).unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    };
    let notice = texts(&connector, "c2", 1).await.remove(0);
    assert!(
        notice.ends_with(" --role owner"),
        "the command makes an owner: {notice}"
    );
    relay
        .wait_for_log(&format!("access approve {} --role owner", code(&notice)))
        .await;
    let pending = verb(&setup, &["access", "pending"]).await.out;
    assert!(
        pending.contains("User One (discord:u2)  expires in 59 min"),
        "{pending}"
    );
    let approved = verb(&setup, &["access", "approve", &code(&notice)]).await;
    assert!(
        approved.out.contains("discord:u2 is let in, as user")
            && approved.out.contains("nobody is an owner yet"),
        "{approved:?}"
    );
    assert_eq!(
        texts(&connector, "c2", 3).await[1..],
        ["You have access now.", "echo: hi"]
    );
    // In a terminal it asks.
    connector
        .deliver(&message(("discord", "u1"), "c1", "m1", "hello"))
        .unwrap();
    let notice = texts(&connector, "c1", 1).await.remove(0);
    let mut terminal = Terminal::start(setup.verb(&["access", "approve", &code(&notice)]));
    terminal
        .until("the question", |lines| {
            let last = lines.last().is_some_and(|last| last.contains("the owner? [y/N]"));
            last && lines.iter().any(|line| line.contains("User One (discord:u1)"))
        })
        .await;
    terminal.keys("y");
    terminal.keys(ENTER);
    terminal
        .until("the owner", |lines| {
            lines
                .iter()
                .any(|line| line.contains("discord:u1 is let in, as owner"))
        })
        .await;
    assert_eq!(terminal.ends().await.0, Some(0));
    said(&connector, "c1", "echo: hello").await;
    let shown = status(&setup).await;
    assert_eq!(
        (&shown["access"]["has_owner"], shown["access"].get("warning")),
        (&json!(true), None)
    );
    // From now on the command makes a user, and nothing asks.
    connector
        .deliver(&message(("discord", "u3"), "c3", "m3", "hi"))
        .unwrap();
    let notice = texts(&connector, "c3", 1).await.remove(0);
    assert!(!notice.contains("--role"), "{notice}");
    relay.stop().await;
    let log = access(&setup, &["log"]).await.json();
    let mut given = log["entries"].as_array().unwrap().iter();
    let role = given.find(|entry| entry["decision"] == "approve" && entry["person"] == "discord:u1");
    assert_eq!(role.unwrap()["role"], "owner", "the role that was given: {log}");
    let doctor = verb(&setup, &["doctor", "--json"]).await.out;
    assert!(!doctor.contains("nobody is an owner"), "{doctor}");
}
