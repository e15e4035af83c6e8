//! Verbs with no relay to ask, with a typo, and those that need none.

use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use crate::operate::{connected, connector, verb};
use crate::support::relay_process::Setup;

#[tokio::test]
async fn with_nothing_running_every_verb_reports_it_and_how_to_start_one() {
    let setup = Setup::new();
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["status", "--watch"],
        &["sessions"],
        &["sessions", "list", "--json"],
        &["sessions", "stop", "agent:main:discord:dm:c1"],
        &["sessions", "stop", "agent:main:discord:dm:c1", "--json"],
        &["handover", "--take"],
        &["stop"],
        &["restart"],
        &["send", "--chat", "c1", "hi"],
        &["reload"],
        &["wake"],
    ] {
        let output = verb(&setup, args).await;
        assert_eq!(output.code, 69, "{args:?}: {output:?}");
        if !args.contains(&"--json") {
            assert_eq!(output.out, "", "{args:?}");
        }
        for part in ["no relay is running", "hermes-relay run", "--state-dir"] {
            assert!(output.err.contains(part), "{args:?}: {output:?}");
        }
    }
    let health = verb(&setup, &["health"]).await;
    assert_eq!(health.code, 1);
    assert!(
        health.out.starts_with("not ready: no relay is running"),
        "{health:?}"
    );
}

#[tokio::test]
async fn a_socket_that_a_dead_relay_left_is_no_relay_and_is_replaced() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    std::fs::create_dir(setup.state_dir()).unwrap();
    let socket = setup.state_dir().join("control.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    assert_eq!(verb(&setup, &["status"]).await.code, 69);
    let relay = connected(&setup).await;
    assert_eq!(verb(&setup, &["status"]).await.code, 0);
    relay.stop().await;
    assert!(!socket.exists(), "it goes with the relay");
    assert_eq!(verb(&setup, &["status"]).await.code, 69);
}

#[tokio::test]
async fn something_else_in_the_sockets_place_is_left_alone_and_the_relay_runs() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    std::fs::create_dir(setup.state_dir()).unwrap();
    let socket = setup.state_dir().join("control.sock");
    std::fs::write(&socket, "precious").unwrap();
    let relay = connected(&setup).await;
    relay.wait_for_log("cannot create the control socket").await;
    relay.stop().await;
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
}

#[tokio::test]
async fn a_relay_without_a_control_socket_explains_how_to_get_one() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("serve.control", "false");
    let relay = connected(&setup).await;
    assert!(!setup.state_dir().join("control.sock").exists());
    let output = verb(&setup, &["status"]).await;
    assert_eq!(output.code, 69);
    assert!(output.err.contains("serve.control"), "{output:?}");
    relay.stop().await;
}

#[tokio::test]
async fn a_typo_is_a_usage_error_with_a_suggestion() {
    let setup = Setup::new();
    for (args, meant) in [
        (&["staus"][..], "status"),
        (&["status", "--jsn"], "--json"),
        (&["completions", "bahs"], "bash"),
        (&["dev", "--platform", "discrod"], "discord"),
        (&["run", "--log-level", "dbug"], "debug"),
        (&["send", "hi"], "--chat"),
        (&["sessions", "stop"], "<SESSION>"),
    ] {
        let output = verb(&setup, args).await;
        assert_eq!(output.code, 2, "{args:?}: {output:?}");
        assert!(output.err.contains(meant), "{args:?}: {output:?}");
    }
    let output = verb(&setup, &["man", "sned"]).await;
    assert!(output.code == 2 && output.err.contains("`send`"), "{output:?}");
}

#[tokio::test]
async fn every_verb_explains_itself_with_an_example_and_in_the_manual() {
    let setup = Setup::new();
    let verbs = verbs_below(&setup, &[]).await;
    assert!(verbs.len() > 15, "{verbs:?}");
    for name in &verbs {
        let name = name.as_str();
        let mut help = explained(&setup, &[name]).await;
        for below in verbs_below(&setup, &[name]).await {
            help += &explained(&setup, &[name, &below]).await;
        }
        // Those that only print can do nothing else than succeed.
        if !["completions", "config"].contains(&name) {
            assert!(help.contains("Exit codes:"), "{name}: {help}");
        }
        let page = verb(&setup, &["man", name]).await;
        assert_eq!(page.code, 0);
        assert!(
            page.out.contains(&format!(".TH hermes-relay-{name} 1")),
            "{}",
            page.out
        );
    }
    let page = verb(&setup, &["man"]).await.out;
    assert!(
        page.contains(".TH hermes-relay 1") && page.contains("sessions"),
        "{page}"
    );
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = verb(&setup, &["completions", shell]).await;
        assert_eq!(script.code, 0);
        assert!(
            script.out.contains("sessions") && script.out.contains("state-dir"),
            "{shell}"
        );
    }
}

/// The verbs that a help page lists.
async fn verbs_below(setup: &Setup, above: &[&str]) -> Vec<String> {
    let asked = if above.is_empty() {
        vec!["help", "--all"]
    } else {
        [above, &["--help"]].concat()
    };
    let help = verb(setup, &asked).await.out;
    let mut is_listed = false;
    let mut verbs = Vec::new();
    for line in help.lines() {
        if !line.starts_with(' ') && line.ends_with(':') {
            is_listed = HEADINGS.contains(&line);
        }
        // A line that goes on is indented further.
        let named = line.strip_prefix("  ").filter(|line| !line.starts_with(' '));
        let word = named.and_then(|line| line.split(' ').next());
        verbs.extend(
            word.filter(|word| is_listed && *word != "help")
                .map(str::to_owned),
        );
    }
    verbs
}

/// The groups of verbs, and the heading of those below a verb.
const HEADINGS: [&str; 5] = ["Start:", "Operate:", "Diagnose:", "Tooling:", "Commands:"];

#[tokio::test]
async fn the_help_groups_the_verbs() {
    let setup = Setup::new();
    for option in ["--help", "help"] {
        let help = verb(&setup, &[option, "--all"]).await;
        assert_eq!(help.code, 0, "{help:?}");
        let places: Vec<_> = HEADINGS[..4]
            .iter()
            .map(|heading| help.out.find(&format!("\n{heading}\n")).expect(heading))
            .collect();
        assert!(places.is_sorted(), "{}", help.out);
        let tooling = &help.out[places[3]..];
        assert!(tooling.contains("\n  oracle "), "{tooling}");
        assert!(
            help.out.contains("\nOptions:\n") && help.out.contains("To begin:"),
            "{}",
            help.out
        );
    }
}

#[tokio::test]
async fn verbs_of_other_programs_lead_to_ours() {
    let setup = Setup::new();
    let version = verb(&setup, &["version"]).await;
    assert_eq!(
        (version.code, version.out),
        (0, verb(&setup, &["--version"]).await.out)
    );
    for (theirs, ours) in [("setup", "init"), ("login", "enroll")] {
        let help = verb(&setup, &[theirs, "--help"]).await;
        assert_eq!(help.code, 0, "{help:?}");
        assert_eq!(help.out, verb(&setup, &[ours, "--help"]).await.out);
    }
    for (args, parts) in [
        (
            &["start"][..],
            &["`start`", "hermes-relay run", "service install --user --now"][..],
        ),
        (&["service", "stop"], &["systemctl --user stop hermes-relay"]),
    ] {
        let output = verb(&setup, args).await;
        assert_eq!(output.code, 2, "{output:?}");
        for part in parts {
            assert!(output.err.contains(part), "{args:?}: {output:?}");
        }
    }
}

#[tokio::test]
async fn the_first_screen_shows_what_a_newcomer_needs() {
    let setup = Setup::new();
    let nothing = verb(&setup, &[]).await;
    assert_eq!(nothing.code, 2, "{nothing:?}");
    for option in ["--help", "-h", "help"] {
        let help = verb(&setup, &[option]).await;
        assert_eq!(help.code, 0, "{help:?}");
        assert_eq!(help.out, nothing.err, "the same without a word");
        let (_, list) = help.out.split_once("\nCommands:\n").expect("a list");
        let (list, rest) = list.split_once("\n\n").unwrap();
        let listed: Vec<_> = list
            .lines()
            .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(
            listed,
            [
                "init", "dev", "run", "access", "cron", "send", "status", "doctor", "service"
            ]
        );
        for part in ["hermes-relay help --all", "To begin:", "--state-dir DIR"] {
            assert!(rest.contains(part), "{part}: {rest}");
        }
        assert!(help.out.lines().count() < 45, "{}", help.out);
    }
}

#[tokio::test]
async fn global_options_work_before_and_after_the_command() {
    let setup = Setup::new();
    setup.write("other.yaml", "agent: noop\n");
    let file = setup.home().join("other.yaml").display().to_string();
    let state = setup.home().join("elsewhere").display().to_string();
    for args in [
        &[
            "--config",
            &file,
            "--state-dir",
            &state,
            "--json",
            "config",
            "show",
        ][..],
        &[
            "config",
            "--config",
            &file,
            "--json",
            "show",
            "--state-dir",
            &state,
        ],
        &[
            "config",
            "show",
            "--json",
            "--config",
            &file,
            "--state-dir",
            &state,
        ],
    ] {
        let shown = verb(&setup, args).await;
        assert_eq!(shown.code, 0, "{args:?}: {shown:?}");
        let shown = shown.json();
        let value = |key: &str| {
            let rows = shown["settings"].as_array().unwrap();
            let row = rows.iter().find(|row| row["key"] == key).unwrap();
            row["value"].as_str().unwrap().to_owned()
        };
        assert_eq!(
            (value("agent"), value("state_dir")),
            ("noop".to_owned(), state.clone())
        );
    }
    let early = verb(&setup, &["--json", "sessions"]).await;
    assert!(
        early.code == 69 && early.out.starts_with("{\"error\":"),
        "{early:?}"
    );
    let level = verb(&setup, &["--log-level", "dbug", "status"]).await;
    assert!(level.code == 2 && level.err.contains("debug"), "{level:?}");
    for args in [
        &["completions", "bash", "--json"][..],
        &["--json", "man"],
        &["agents", "test", "echo", "--json"],
        &["logs", "--json"],
        &["service", "install", "--dry-run", "--json"],
        &["dev", "replay", "wire.jsonl", "--json"],
        &["--json", "dev", "replay", "wire.jsonl"],
    ] {
        let refused = verb(&setup, args).await;
        assert_eq!(
            (refused.code, refused.out.as_str()),
            (2, ""),
            "{args:?}: {refused:?}"
        );
        assert!(
            refused.err.contains("prints nothing as JSON") && refused.err.contains("hint:"),
            "{args:?}: {refused:?}"
        );
    }
    let temporary = verb(&setup, &["dev", "--smoke", "--state-dir", &state]).await;
    assert!(
        temporary.code == 2 && temporary.err.contains("temporary"),
        "{temporary:?}"
    );
}

#[tokio::test]
async fn former_names_work_with_a_note_and_are_in_no_help() {
    let setup = Setup::new();
    for (former, now) in [
        (&["usage"][..], &["access", "usage"][..]),
        (&["connectors", "list"], &["notify", "--list"]),
    ] {
        let (old, new) = (verb(&setup, former).await, verb(&setup, now).await);
        assert_eq!((old.code, &old.out), (0, &new.out), "{former:?}: {old:?}");
        assert!(
            old.err.starts_with("note: ") && old.err.contains(&now.join(" ")),
            "{old:?}"
        );
        assert_eq!(new.err, "", "{now:?}");
        assert!(!verbs_below(&setup, &[]).await.contains(&former[0].to_owned()));
    }
}

#[tokio::test]
async fn options_for_programs_are_in_the_long_help_only() {
    let setup = Setup::new();
    for (command, option) in [
        (&["skills", "list"][..], "--if-none-match"),
        (&["skills", "list"], "--offset"),
        (&["data", "query"], "--offset"),
        (&["data", "query"], "--permissive-filters"),
    ] {
        let short = verb(&setup, &[command, &["-h"]].concat()).await.out;
        let long = verb(&setup, &[command, &["--help"]].concat()).await.out;
        assert!(!short.contains(option), "{command:?}: {short}");
        assert!(long.contains(option), "{command:?}: {long}");
    }
}

/// The help of a verb, which says what it is for, with an example, and shows no mark-up.
async fn explained(setup: &Setup, verbs: &[&str]) -> String {
    let help = verb(setup, &[verbs, &["--help"]].concat()).await;
    assert_eq!(help.code, 0, "{verbs:?}");
    let purpose = help.out.lines().next().unwrap_or_default();
    assert!(
        purpose.len() > 10 && !purpose.starts_with("Usage"),
        "{verbs:?}: {purpose}"
    );
    assert!(help.out.contains("\nExample"), "{verbs:?}: {}", help.out);
    assert!(!help.out.contains("$`"), "{verbs:?}: {}", help.out);
    help.out
}

#[tokio::test]
async fn the_exit_codes_are_one_table_in_the_help_the_manual_and_the_documents() {
    let setup = Setup::new();
    let help = verb(&setup, &["help", "--all"]).await.out;
    let (_, table) = help.split_once("Exit codes:\n").expect("a table");
    let rows: Vec<_> = table
        .lines()
        .filter_map(|line| line.trim_start().split_once(' '))
        .map(|(code, meaning)| (code, meaning.trim()))
        .collect();
    assert_eq!(rows.len(), 8, "{table}");
    let page = verb(&setup, &["man"]).await.out;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md");
    let document = std::fs::read_to_string(path).unwrap();
    for (code, meaning) in rows {
        assert!(
            page.contains(&format!(".TP\n{code}\n{meaning}\n")),
            "{code}: {page}"
        );
        let row = format!("| {code} | {meaning} |");
        assert!(document.contains(&row), "docs/operations.md lacks {row}");
    }
    let run = verb(&setup, &["run", "--help"]).await.out;
    let run = run.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        " 1 stopped twice,",
        " 75 the state directory or the port is in use or a restart",
    ] {
        assert!(run.contains(part), "{part}: {run}");
    }
}

#[tokio::test]
async fn a_port_in_use_is_tried_again_and_what_is_secret_is_in_no_complaint() {
    let connector = connector().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let setup = Setup::for_connector(&connector).setting("serve.http", &address);
    let output = verb(&setup, &["run"]).await;
    assert_eq!(output.code, 75, "{output:?}");
    assert!(
        output.err.contains("hint: stop the program that listens there"),
        "{output:?}"
    );

    let setup = Setup::new()
        .env("A_SERVICE_TOKEN", "token-in-the-wrong-place")
        .setting("log.level", "token-in-the-wrong-place");
    setup.write(".env", "OTHER_TOKEN=another-in-the-wrong-place\n");
    let output = verb(&setup, &["run"]).await;
    assert!(output.code == 78 && output.err.contains("<hidden>"), "{output:?}");
    let setup = setup.setting("log.level", "another-in-the-wrong-place");
    let other = verb(&setup, &["run"]).await;
    assert!(other.code == 78 && other.err.contains("<hidden>"), "{other:?}");
    assert!(!(output.err + &other.err).contains("wrong-place"));
}

/// One rule for every verb that has the switch: one JSON document on standard output, whatever happens, and the same
/// for people on standard error.
#[tokio::test]
async fn an_error_is_json_too_where_json_was_asked_for() {
    let setup = Setup::new();
    setup.write("wrong.yaml", "agnet: echo\n");
    let wrong = setup.home().join("wrong.yaml").display().to_string();
    for (args, code) in [
        (&["status", "--json"][..], 69),
        (&["sessions", "--json"], 69),
        (&["stop", "--json"], 69),
        (&["restart", "--json"], 69),
        (&["send", "--chat", "c", "hi", "--json"], 69),
        (&["reload", "--json"], 69),
        (&["wake", "--json"], 69),
        (&["status", "--json", "--config", &wrong], 78),
        (&["config", "show", "--json", "--config", &wrong], 78),
        (&["agents", "list", "--json", "--config", &wrong], 78),
        (&["journal", "list", "--json", "--config", &wrong], 78),
        (&["journal", "list", "--json"], 1),
        (&["journal", "show", "message:1", "--json"], 1),
    ] {
        let output = verb(&setup, args).await;
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        let document: Value = serde_json::from_str(&output.out).expect("one JSON document");
        assert_eq!(document["error"]["exit_code"], code, "{args:?}: {document}");
        let message = document["error"]["message"].as_str().unwrap();
        assert!(output.err.contains(message), "{args:?}: {output:?}");
    }
    let health = verb(&setup, &["health", "--json", "--config", &wrong]).await;
    let document: Value = serde_json::from_str(&health.out).expect("one JSON document");
    assert!(health.code == 1 && document["ready"] == false, "{health:?}");
}

#[tokio::test]
async fn a_full_disk_or_a_reader_that_has_gone_is_no_panic() {
    let setup = Setup::new();
    for args in [
        &["--help"][..],
        &["agents", "list"],
        &["agents", "test", "echo"],
        &["completions", "bash"],
        &["config", "check", "relay.yaml"],
        &["config", "reference"],
        &["config", "show"],
        &["dev", "--smoke"],
        &["doctor"],
        &["man"],
        &["oracle", "--list"],
        &["service", "install", "--user", "--dry-run"],
        &["service", "status"],
        &["status", "--json"],
        &["unenroll"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (reader, gone) = std::io::pipe().unwrap();
        drop(reader);
        for stdout in [std::process::Stdio::from(full), gone.into()] {
            let mut command = setup.verb(args);
            let output = command.stdout(stdout).output().await.unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let code = output
                .status
                .code()
                .unwrap_or_else(|| panic!("{args:?}: {stderr}"));
            assert!(
                code != 101 && !stderr.contains("panicked"),
                "{args:?}: {code} {stderr}"
            );
        }
    }
}

#[cfg(not(feature = "otlp"))]
#[tokio::test]
async fn a_program_built_without_traces_reports_it_when_they_are_enabled() {
    let setup = Setup::new().setting("telemetry.otlp_endpoint", "http://127.0.0.1:4318");
    let file = setup.home().join("relay.yaml").display().to_string();
    let checked = verb(&setup, &["config", "check", &file]).await;
    assert!(
        checked.code == 0 && checked.out.ends_with("is valid\n"),
        "{checked:?}"
    );
    let (code, ran) = setup.args(&["run"]).ends().await;
    assert_eq!(code, 78, "{ran}");
    for text in [checked.err, ran] {
        for part in ["warn", "built without `otlp`", "--features otlp"] {
            assert!(text.to_lowercase().contains(part), "{text}");
        }
    }
}

#[tokio::test]
async fn the_check_of_the_settings_of_this_machine_wants_the_token_of_a_bot() {
    for (bot, variable, token) in [
        ("telegram", "TELEGRAM_BOT_TOKEN", "123456:abcdef"),
        ("discord", "DISCORD_BOT_TOKEN", "MTA.Gx.abc"),
    ] {
        let setup = Setup::new().setting(&format!("direct.{bot}"), "{}");
        let without = verb(&setup, &["config", "check"]).await;
        assert!(
            without.code == 78 && without.err.contains(variable),
            "{without:?}"
        );
        let file = setup.home().join("relay.yaml").display().to_string();
        let alone = verb(&setup, &["config", "check", &file]).await;
        assert_eq!(alone.code, 0, "a file on its own: {alone:?}");
        let with = verb(&setup.env(variable, token), &["config", "check"]).await;
        assert_eq!(with.code, 0, "{with:?}");
    }
}

#[tokio::test]
async fn an_option_with_a_typo_is_named_and_not_taken_for_the_text() {
    let typo = verb(&Setup::new(), &["send", "--chat", "1", "--silnt", "hello"]).await;
    assert_eq!(typo.code, 2, "{typo:?}");
    assert!(
        typo.err.contains("there is no option `--silnt`") && typo.err.contains("`--silent`"),
        "{typo:?}"
    );
}

#[tokio::test]
async fn an_invalid_command_line_with_json_is_one_error_object() {
    let setup = Setup::new();
    for (args, what) in [
        (&["status", "--json", "--jsn"][..], "unexpected argument '--jsn'"),
        (&["--json", "journal", "show"], "<ID>"),
        (&["journal", "list", "--json", "--section", "inbx"], "'inbx'"),
        (&["--json", "staus"], "'staus'"),
        (&["--json", "dve"], "there is no command `dve`"),
        (
            &["send", "--json", "--chat", "c", "--silnt", "x"],
            "there is no option `--silnt`",
        ),
        (&["journal", "--json"], "requires a subcommand"),
        (&["--json"], "requires a subcommand"),
        (&["completions", "tcsh", "--json"], "'tcsh'"),
    ] {
        let refused = verb(&setup, args).await;
        assert_eq!(refused.out.lines().count(), 1, "{args:?}: {refused:?}");
        let document: Value = serde_json::from_str(&refused.out).unwrap();
        let error = &document["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(what), "{args:?}: {refused:?}");
        assert!(
            !message.contains('\n') && error["hint"].is_string(),
            "{refused:?}"
        );
        assert_eq!((refused.code, &error["exit_code"]), (2, &json!(2)), "{args:?}");
        let without: Vec<&str> = args.iter().filter(|arg| **arg != "--json").copied().collect();
        let text = verb(&setup, &without).await;
        assert_eq!((text.code, text.out.as_str()), (2, ""), "{without:?}");
    }
    // A notice that nobody got has its own document.
    let notice = verb(&setup, &["notify", "ops", "--json", "--kid", "x"]).await;
    let document: Value = serde_json::from_str(&notice.out).unwrap();
    assert_eq!(
        (notice.code, &document["agent"]),
        (2, &json!("ops")),
        "{notice:?}"
    );
}

#[tokio::test]
async fn a_command_in_an_agents_shell_is_about_the_relay_that_started_the_agent() {
    let relay = Setup::new();
    relay.write("noop.yaml", "agent: noop\n");
    let (file, state) = (relay.home().join("noop.yaml"), relay.state_dir());
    let [file, state] = [file, state].map(|path| path.display().to_string());
    let shell = Setup::new()
        .without_env("HERMES_RELAY_STATE_DIR")
        .env("RELAY_CONFIG", &file)
        .env("RELAY_STATE_DIR", &state);
    let shown = verb(&shell, &["config", "show", "--changed", "--json"])
        .await
        .json();
    let row = |key: &str| {
        let mut rows = shown["settings"].as_array().unwrap().iter();
        let row = rows.find(|row| row["key"] == key).unwrap();
        (row["value"].clone(), row["origin"].clone())
    };
    assert_eq!(
        row("state_dir"),
        (json!(state), json!("environment RELAY_STATE_DIR"))
    );
    assert_eq!(row("agent"), (json!("noop"), json!(file)));
    let checked = verb(&shell, &["config", "check"]).await;
    assert!(checked.out.contains(&file), "{checked:?}");
    let diagnosed = verb(&shell, &["doctor", "--verbose"]).await;
    assert!(
        diagnosed.out.contains(&file) && diagnosed.out.contains(&state),
        "{diagnosed:?}"
    );
    let agents = verb(&shell, &["agents", "list", "--json"]).await.json();
    let answers = |agent: &&Value| agent["answers"] == true;
    let answers: Vec<_> = agents.as_array().unwrap().iter().filter(answers).collect();
    assert!(answers.len() == 1 && answers[0]["name"] == "noop", "{agents}");
    let journal = verb(&shell, &["journal", "list"]).await;
    assert!(journal.code == 1 && journal.err.contains(&state), "{journal:?}");
    // Another one, by its name.
    let other = shell.home().join("other").display().to_string();
    let journal = verb(&shell, &["journal", "list", "--state-dir", &other]).await;
    assert!(
        journal.err.contains(&other) && !journal.err.contains(&state),
        "{journal:?}"
    );
}

#[tokio::test]
async fn a_look_at_the_rules_makes_no_files() {
    let setup = Setup::new();
    let rules = verb(&setup, &["access", "list"]).await;
    assert!(
        rules.code == 0 && rules.out.starts_with("mode upstream"),
        "{rules:?}"
    );
    let pending = verb(&setup, &["access", "pending", "--json"]).await.json();
    assert_eq!(pending, json!({"pending": [], "has_owner": false}));
    let log = verb(&setup, &["access", "log"]).await;
    assert_eq!((log.code, log.out.as_str()), (0, "no entries\n"), "{log:?}");
    assert!(!setup.state_dir().exists());
}

#[tokio::test]
async fn a_verb_that_finds_nothing_makes_no_files() {
    let setup = Setup::new();
    for args in [
        &["cron", "show", "inbox"][..],
        &["cron", "edit", "inbox", "--name", "mail"],
        &["cron", "pause", "inbox"],
        &["cron", "resume", "inbox"],
        &["cron", "run", "inbox"],
        &["cron", "remove", "inbox"],
        &["cron", "runs", "inbox"],
        &["cron", "runs"],
        &["cron", "list"],
        &["cron", "status"],
        &["cron", "export", "-"],
        &["access", "approve", "K7QWXP2M"],
        &["access", "forget", "telegram:1"],
        &["access", "usage"],
        &["journal", "list"],
        &["journal", "retry", "message:1"],
        &["journal", "drop", "message:1", "--yes"],
        &["sessions"],
        &["skills", "list"],
        &["skills", "show", "inbox"],
        &["skills", "approve", "inbox"],
        &["skills", "disable", "inbox"],
        &["skills", "delete", "inbox", "--yes"],
        &["skills", "versions", "inbox"],
        &["data", "list"],
        &["data", "query", "mail"],
        &["data", "get", "1"],
        &["data", "delete", "1", "--yes"],
        &["notify", "--list"],
        &["logs"],
    ] {
        let output = verb(&setup, args).await;
        assert!(output.code < 2 || output.code == 69, "{args:?}: {output:?}");
        assert!(!setup.state_dir().exists(), "{args:?}: {output:?}");
    }
    let unknown = verb(&setup, &["cron", "run", "inbox"]).await;
    unknown.fails(1, &["there are no jobs; `hermes-relay cron add`"]);
    let denied = Setup::new().setting("access.deny", r#"[{"platform": "telegram", "user": "1"}]"#);
    let refused = verb(&denied, &["access", "allow", "telegram:1"]).await;
    assert!(refused.code == 1 && !denied.state_dir().exists(), "{refused:?}");
}

#[cfg(feature = "nats")]
#[tokio::test]
async fn a_hand_over_outside_a_cluster_is_an_error_of_the_settings() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    for args in [&["handover"][..], &["handover", "--take"]] {
        verb(&setup, args).await.fails(
            78,
            &[
                "not a member of a cluster",
                "`cluster.name`",
                "`nats.url`",
                "docs/scaling.md",
            ],
        );
    }
    relay.stop().await;
}
