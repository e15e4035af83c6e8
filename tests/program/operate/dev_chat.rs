//! The chat of `dev` in a real terminal: what people type, and what they see.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use serde_json::json;

use crate::operate::verb;
use crate::support::http_stub::{Pieces, Stub, json_reply, plain_http, streamed_reply};
use crate::support::relay_process::Setup;
use crate::support::terminal::{CTRL_C, CTRL_D, ENTER, PASTE_BEGIN, PASTE_END, Terminal, UP};
use crate::support::wait::eventually;

fn chat(args: &[&str]) -> Terminal {
    Terminal::start(Setup::new().verb(args))
}

/// The page's address is another one in every run.
fn normalised(line: &str) -> String {
    if line.trim_start().starts_with("http://127.0.0.1:") {
        "  http://127.0.0.1:PORT/dev/TOKEN/".to_owned()
    } else {
        line.trim_end().to_owned()
    }
}

/// The transcript in the quick start: the command and everything below it.
fn transcript() -> (Vec<String>, Vec<String>) {
    let text = include_str!("../../../docs/quick-start.md");
    let begin = "```console\n$ hermes-relay dev\nA connector";
    let from = text.find(begin).expect("the transcript") + "```console\n".len();
    let (block, _) = text[from..].split_once("```").expect("its end");
    let mut lines = block.lines().map(str::to_owned);
    let command = lines.next().expect("a command");
    let args = command.strip_prefix("$ hermes-relay ").expect("the program");
    let args = args.split_whitespace().map(str::to_owned).collect();
    (args, lines.collect())
}

#[tokio::test]
async fn the_first_five_minutes_are_as_the_quick_start_shows_them() {
    let (args, wanted) = transcript();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let mut terminal = chat(&args);
    let mut inputs = 0;
    for (number, line) in wanted.iter().enumerate() {
        let Some(typed) = line.strip_prefix("> ") else {
            continue;
        };
        inputs += 1;
        if typed == "^C" {
            // While it is running, as its sign of activity shows.
            terminal
                .until("activity", |lines| {
                    lines.iter().any(|line| line.starts_with("echo: \u{2026}"))
                })
                .await;
            terminal.keys(CTRL_C);
        } else {
            terminal.enter(typed).await;
        }
        let Some(answer) = wanted.get(number + 1).filter(|line| !line.starts_with("> ")) else {
            continue;
        };
        terminal.answered(answer).await;
    }
    assert!(inputs >= 5, "{wanted:#?}");
    let shown = Arc::new(Mutex::new(Vec::new()));
    eventually("the whole transcript", async || {
        let lines = terminal.lines();
        *shown.lock().unwrap() = lines.clone();
        lines.last().is_some_and(|line| line == "> /quit")
    })
    .await;
    assert_eq!(terminal.ends().await, (Some(0), true));
    let shown: Vec<_> = shown
        .lock()
        .unwrap()
        .iter()
        .map(|line| normalised(line))
        .collect();
    let wanted: Vec<_> = wanted.iter().map(|line| normalised(line)).collect();
    assert_eq!(shown, wanted);
}

#[tokio::test]
async fn messages_after_a_stopped_turn_are_answered() {
    let mut terminal = chat(&["dev"]);
    for round in 0..2 {
        terminal.enter("sleep=60000 slow").await;
        let activity = |line: &String| line.starts_with("echo: \u{2026}");
        terminal
            .until("activity", |lines| lines.iter().any(activity))
            .await;
        // What was being typed stays.
        terminal.keys("one");
        terminal
            .until("typed text", |lines| {
                lines.last().is_some_and(|line| line == "> one")
            })
            .await;
        terminal.keys(CTRL_C);
        let lines = terminal
            .until("a stopped turn", |lines| {
                let stopped = lines.iter().filter(|line| *line == "(turn stopped)");
                stopped.count() == round + 1 && lines.last().is_some_and(|line| line == "> one")
            })
            .await;
        assert!(!lines.iter().any(activity), "{lines:#?}");
        assert!(!lines.iter().any(|line| line == "(stopping)"), "{lines:#?}");
        terminal.keys(&format!(" {round}{ENTER}"));
        terminal.answered(&format!("echo: echo: one {round}")).await;
        for text in ["two", "three"] {
            let text = format!("{text} {round}");
            terminal.enter(&text).await;
            terminal.answered(&format!("echo: echo: {text}")).await;
        }
    }
    // Takes back what is typed; then there is nothing to stop.
    terminal.keys("oops");
    terminal
        .until("typed text", |lines| {
            lines.last().is_some_and(|line| line == "> oops")
        })
        .await;
    // A Ctrl-C that meets the end of the last turn says what became of it.
    let ends = |lines: &[String]| {
        let is_end = |line: &&String| *line == "(turn stopped)" || *line == "(the turn had ended)";
        lines.iter().filter(is_end).count()
    };
    let mut ended = 2;
    loop {
        terminal.keys(CTRL_C);
        let lines = terminal
            .until("a prompt", |lines| {
                let is_taken_back = lines.last().is_some_and(|line| line == ">");
                let is_spent = ends(lines) > ended && lines.last().is_some_and(|line| line == "> oops");
                is_taken_back || is_spent
            })
            .await;
        if lines.last().is_some_and(|line| line == ">") {
            break;
        }
        ended = ends(&lines);
    }
    terminal.keys(CTRL_C);
    assert_eq!(terminal.ends().await, (Some(0), true));
}

#[tokio::test]
async fn ctrl_c_stops_what_runs_on_every_simulated_platform() {
    for platform in ["slack", "plain", "legacy"] {
        let mut terminal = chat(&["dev", "--platform", platform]);
        for round in 1..=2 {
            terminal.enter("sleep=600000 slow").await;
            let activity = "echo: \u{2026}";
            terminal
                .until("activity", |lines| {
                    lines.iter().any(|line| line.starts_with(activity))
                })
                .await;
            terminal.keys(CTRL_C);
            terminal
                .until("a stopped turn", |lines| {
                    let stopped = lines.iter().filter(|line| *line == "(turn stopped)");
                    stopped.count() == round
                })
                .await;
        }
        terminal.enter("still here").await;
        terminal.answered("echo: echo: still here").await;
        terminal.enter("/quit").await;
        assert_eq!(terminal.ends().await, (Some(0), true), "{platform}");
    }
}

#[tokio::test]
async fn a_streamed_answer_grows_in_place_above_what_is_typed() {
    let mut terminal = chat(&["dev"]);
    terminal.enter("stream=700 one two three four five six").await;
    terminal.keys("half a li");
    let grows = |lines: &[String]| {
        let answer = lines.iter().find(|line| line.starts_with("echo: echo: one"));
        answer.is_some_and(|line| !line.contains("six"))
            && lines.last().is_some_and(|line| line == "> half a li")
    };
    terminal.until("half an answer", grows).await;
    let whole = "echo: echo: one two three four five six";
    let lines = terminal
        .until("the whole answer", |lines| {
            lines.iter().any(|line| line == whole) && lines.last().is_some_and(|line| line == "> half a li")
        })
        .await;
    let answers = lines.iter().filter(|line| line.starts_with("echo:"));
    assert_eq!(answers.count(), 1, "{lines:#?}");
    terminal.keys(&format!("ne{ENTER}"));
    terminal.answered("echo: echo: half a line").await;
}

#[tokio::test]
async fn a_line_typed_while_an_answer_grows_stays_between_the_answers() {
    let mut terminal = chat(&["dev"]);
    terminal
        .enter("stream=600 one two three four five six seven eight nine ten eleven twelve")
        .await;
    terminal
        .until("half an answer", |lines| {
            lines
                .iter()
                .any(|line| line.contains("echo: one") && !line.contains("ten"))
        })
        .await;
    terminal.keys(&format!("next{ENTER}"));
    let lines = terminal.answered("echo: echo: next").await;
    let from = lines
        .iter()
        .position(|line| line.starts_with("> stream"))
        .unwrap();
    let wanted = [
        "> stream=600 one two three four five six seven eight nine ten eleven twelve",
        "> next",
        "echo: echo: one two three four five six seven eight nine ten eleven twelve",
        "echo: echo: next",
        ">",
    ];
    assert_eq!(lines[from..], wanted);
}

#[tokio::test]
async fn pasted_lines_are_one_message_and_the_history_has_it() {
    let mut terminal = chat(&["dev"]);
    terminal.enter("hello").await;
    terminal.answered("echo: echo: hello").await;
    terminal.keys(&format!("{PASTE_BEGIN}two\rlines{PASTE_END}"));
    terminal
        .until("pasted text", |lines| {
            lines.last().is_some_and(|line| line == "lines")
        })
        .await;
    terminal.keys(ENTER);
    terminal.answered("echo: echo: two").await;
    // Once more than there are messages: the last one has two lines.
    terminal.keys(&format!("{UP}{UP}{UP}"));
    terminal
        .until("the first line", |lines| {
            lines.last().is_some_and(|line| line == "> hello")
        })
        .await;
    terminal.keys(&format!(" again{ENTER}"));
    terminal.answered("echo: echo: hello again").await;
    terminal.keys("/sta\t");
    terminal
        .until("a completed command", |lines| {
            lines.last().is_some_and(|line| line == "> /status")
        })
        .await;
    terminal.keys(ENTER);
    terminal
        .until("the status", |lines| {
            lines
                .iter()
                .any(|line| line.starts_with("echo: Agent echo is idle"))
        })
        .await;
    terminal.keys(CTRL_D);
    assert_eq!(terminal.ends().await, (Some(0), true));
}

#[tokio::test]
async fn a_question_is_answered_by_number() {
    let mut terminal = chat(&["dev"]);
    terminal.enter("ask deploy").await;
    let lines = terminal.answered("  Answer with a number.").await;
    assert!(lines.iter().any(|line| line == "  1) Allow once"), "{lines:#?}");
    terminal.enter("1").await;
    terminal.answered("echo: echo: allowed once deploy").await;
    // Nobody asks now.
    terminal.enter("1").await;
    terminal.answered("echo: echo: 1").await;
}

/// A model that answers as the test says, piece by piece.
pub(super) async fn model() -> (Stub, Arc<Mutex<Option<Pieces>>>) {
    let pieces = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&pieces);
    let stub = Stub::start(move |seen| {
        // Whether it is healthy is asked, too.
        if !seen.uri.ends_with("/chat/completions") {
            return json_reply(200, &json!({"data": []}));
        }
        let (sender, response) = streamed_reply(200, "text/event-stream");
        *slot.lock().unwrap() = Some(sender);
        response
    });
    (stub.await, pieces)
}

pub(super) async fn write(pieces: &Arc<Mutex<Option<Pieces>>>, text: &str) {
    let sender = eventually("a request to the model", async || pieces.lock().unwrap().clone()).await;
    let event = json!({ "choices": [{ "delta": { "content": text } }] });
    sender
        .send(Ok(Bytes::from(format!("data: {event}\n\n"))))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_models_answer_grows_and_cannot_drive_the_terminal() {
    let (stub, pieces) = model().await;
    let setup = Setup::new()
        .setting(
            "agents.llm",
            &format!("{{kind: openai, base_url: \"{}\", model: m}}", stub.url("/v1")),
        )
        .setting("access.mode", "open");
    let config = setup.home().join("relay.yaml");
    let args = ["dev", "--agent", "llm", "--config", config.to_str().unwrap()];
    let mut terminal = Terminal::start(setup.verb(&args));
    let lines = terminal
        .until("tips", |lines| lines.last().is_some_and(|line| line == ">"))
        .await;
    assert!(
        !lines.iter().any(|line| line.contains("sleep=")),
        "tips for another agent: {lines:#?}"
    );
    terminal.enter("hello").await;
    terminal
        .until("a sign of activity", |lines| {
            lines.iter().any(|line| line.starts_with("llm: \u{2026}"))
        })
        .await;
    write(&pieces, "The first words, ").await;
    terminal
        .until("the first words", |lines| {
            lines.iter().any(|line| line.starts_with("llm: The first words,"))
        })
        .await;
    write(
        &pieces,
        "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e} and the last.",
    )
    .await;
    let escaped = "\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u202e and the last.";
    terminal
        .until("escaped text", |lines| {
            lines.iter().any(|line| line.contains(escaped))
        })
        .await;
    pieces.lock().unwrap().take();
    terminal
        .answered(&format!("llm: The first words, {escaped}"))
        .await;
    let written = terminal.written();
    for hostile in ["\u{1b}]", "\u{7}", "\u{1b}[2J", "\u{9b}", "\u{202e}"] {
        assert!(!written.contains(hostile), "{hostile:?} reached the terminal");
    }
    terminal.enter("/quit").await;
    assert_eq!(terminal.ends().await, (Some(0), true));
}

#[tokio::test]
async fn a_gateway_enrolls_with_the_dev_connector_and_its_streamed_answer_is_shown_whole() {
    let mut dev = chat(&["dev", "--connector-only"]);
    let lines = dev
        .until("a prompt", |lines| lines.last().is_some_and(|line| line == ">"))
        .await;
    let command = lines
        .iter()
        .position(|line| line.contains("hermes-relay enroll"))
        .unwrap();
    // The token is longer than the terminal is wide.
    let command = lines[command..command + 2].concat();
    let args: Vec<_> = command.split_whitespace().skip(1).collect();
    let args = &args[..args
        .iter()
        .position(|arg| *arg == "hermes-relay")
        .unwrap_or(args.len())];
    let mut setup = Setup::new();
    let text = lines.concat();
    let (_, rest) = text.split_once("export GATEWAY_RELAY_IDP_TOKEN_URL=").unwrap();
    let url = rest.split_whitespace().next().unwrap();
    setup = setup.env("GATEWAY_RELAY_IDP_TOKEN_URL", url);
    let enrolled = verb(&setup, args).await;
    assert_eq!(enrolled.code, 0, "{enrolled:?}");
    let again = verb(&setup, args).await;
    assert_ne!(again.code, 0, "the token is good once");
    let relay = crate::operate::connected(&setup).await;
    dev.enter("stream=700 one two three four five six seven").await;
    dev.until("half an answer", |lines| {
        lines
            .iter()
            .any(|line| line.starts_with("gateway: echo: one") && !line.contains("seven"))
    })
    .await;
    let whole = "gateway: echo: one two three four five six seven";
    let lines = dev.answered(whole).await;
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("gateway:")).count(),
        1,
        "{lines:#?}"
    );
    relay.stop().await;
    dev.keys(CTRL_D);
    assert_eq!(dev.ends().await, (Some(0), true));
}

#[tokio::test]
async fn smoke_prints_one_json_object_with_its_times() {
    let setup = Setup::new();
    let smoke = verb(&setup, &["dev", "--smoke", "--no-tui", "--json"])
        .await
        .json();
    assert_eq!(
        (&smoke["ok"], &smoke["reply"]),
        (&json!(true), &json!("echo: hello"))
    );
    let ms = |name: &str| smoke[name].as_u64().unwrap();
    assert!(ms("total_ms") >= ms("connected_ms") + ms("reply_ms"), "{smoke}");
    let refused = verb(&setup, &["dev", "--json"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    let dead = setup
        .setting(
            "agents.dead",
            "{kind: openai, base_url: \"http://127.0.0.1:9/v1\", model: m}",
        )
        .setting("access.mode", "open");
    let config = dead.home().join("relay.yaml");
    let args = [
        "dev",
        "--smoke",
        "--json",
        "--agent",
        "dead",
        "--config",
        config.to_str().unwrap(),
    ];
    let failed = verb(&dead, &args).await;
    assert_eq!(failed.code, 1, "{failed:?}");
    let json: serde_json::Value = serde_json::from_str(&failed.out).unwrap();
    assert_eq!(json["ok"], false);
    assert!(
        json["error"].as_str().unwrap().contains("`dead` failed"),
        "{json}"
    );
}

#[tokio::test]
async fn a_job_is_made_in_the_chat_armed_fired_on_the_page_and_answered() {
    let mut terminal = chat(&["dev"]);
    // At most a minute ahead, so that a fire owns it at once.
    terminal.enter("/cron add every 1m look outside").await;
    let lines = terminal
        .until("the job's id", |lines| {
            lines.iter().any(|line| line.contains("Added job "))
        })
        .await;
    let added = lines.iter().find(|line| line.contains("Added job ")).unwrap();
    let (_, rest) = added.split_once("Added job ").unwrap();
    let id = rest.split(':').next().unwrap().to_owned();
    assert!(
        !lines.iter().any(|line| line.contains("has not taken it")),
        "{lines:#?}"
    );
    let page = lines
        .iter()
        .find_map(|line| line.trim().strip_prefix("http://"))
        .unwrap();
    let page = format!("http://{page}");
    let origin = page.split("/dev/").next().unwrap().to_owned();
    let client = plain_http();
    let jobs = client.get(format!("{page}jobs")).send().await.unwrap();
    let jobs: serde_json::Value = jobs.json().await.unwrap();
    assert_eq!(jobs["armed"][0]["job_id"], id.as_str(), "{jobs}");
    let fired = client
        .post(format!("{page}fire"))
        .header("origin", origin)
        .header("content-type", "application/json")
        .body(json!({"job_id": id, "twice": true}).to_string())
        .send()
        .await
        .unwrap();
    let fired: serde_json::Value = fired.json().await.unwrap();
    let mut statuses: Vec<_> = fired["attempts"].as_array().unwrap().iter().collect();
    statuses.sort_by_key(|attempt| attempt["status"].as_u64());
    assert_eq!(
        (&statuses[0]["status"], &statuses[1]["status"]),
        (&json!(200), &json!(202)),
        "{fired}"
    );
    terminal
        .until("the answer", |lines| {
            lines.iter().any(|line| line.contains("echo: look outside"))
        })
        .await;
    terminal.keys(CTRL_D);
    assert_eq!(terminal.ends().await, (Some(0), true));
}

/// Whoever sits at the keyboard is an owner, so projects can be set here as well.
#[tokio::test]
async fn a_project_is_set_in_the_chat_of_dev() {
    let setup = Setup::new()
        .setting("projects.docs", "{workdir: /tmp}")
        .setting("projects.site", "{workdir: /}");
    let mut terminal = Terminal::start(setup.verb(&["dev"]));
    terminal.enter("/project").await;
    terminal.shows("None is set here.").await;
    terminal.shows("2. site").await;
    terminal.enter("/project site").await;
    terminal.shows("The project is site from now on").await;
    terminal.enter("/status").await;
    terminal.shows("Agent echo is idle. The project is site.").await;
    terminal.enter("hello").await;
    terminal.answered("echo: echo: hello").await;
    terminal.keys(CTRL_D);
    assert_eq!(terminal.ends().await, (Some(0), true));
}
