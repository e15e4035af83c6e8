//! Commands that do as they should, and commands that do not.

use std::collections::BTreeMap;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::agent::turn::NO_REPLY;
use crate::agent::{AgentEvent, AgentSignal, EventSink, MediaLocation, PromptAnswer, TurnInput};

fn command(script: &str, change: impl FnOnce(&mut CommandSettings)) -> CommandAgent {
    let mut settings = CommandSettings {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        kill_grace_secs: 1,
        ..CommandSettings::default()
    };
    change(&mut settings);
    let base = BaseEnv::new(
        [("PATH", "/usr/bin:/bin"), ("GATEWAY_RELAY_SECRET", "s3cret")]
            .map(|(name, value)| (OsString::from(name), OsString::from(value))),
    );
    CommandAgent::new("test", settings, Arc::new(base)).unwrap()
}

fn conversing(settings: &mut CommandSettings) {
    settings.input = CommandInput::Json;
    settings.output = CommandOutput::Jsonl;
}

struct TurnRecord {
    text: String,
    events: Vec<AgentEvent>,
    kept: Option<Vec<u8>>,
    end: TurnEnd,
}

async fn drive(command: &CommandAgent, input: TurnInput, memory: Option<&str>) -> TurnRecord {
    let (events, mut signals) = EventSink::new();
    let turn = Turn::alone(input, events, CancellationToken::new());
    let mut record = TurnRecord {
        text: String::new(),
        events: Vec::new(),
        kept: None,
        end: TurnEnd::Refused,
    };
    let listen = async {
        while let Some(signal) = signals.recv().await {
            match signal {
                AgentSignal::Event(AgentEvent::Text(text)) => record.text.push_str(&text),
                AgentSignal::Event(AgentEvent::Replace(text)) => record.text = text,
                AgentSignal::Event(event) => record.events.push(event),
                AgentSignal::Question(question, answer) => {
                    let _ = answer.send(PromptAnswer::Chosen(question.options[0].id.clone()));
                }
                AgentSignal::SaveState(memory) => record.kept = Some(memory),
                AgentSignal::LoadState(answer) => {
                    let _ = answer.send(memory.map(|memory| memory.as_bytes().to_vec()));
                }
            }
        }
    };
    let (end, ()) = tokio::time::timeout(Duration::from_secs(20), async {
        tokio::join!(command.run(turn), listen)
    })
    .await
    .expect("the turn ends");
    record.end = end;
    record
}

fn message(text: &str) -> TurnInput {
    TurnInput {
        text: text.to_owned(),
        author: Some("$(rm) \0 name".into()),
        ..TurnInput::default()
    }
}

fn failure(record: &TurnRecord) -> &Failure {
    match &record.end {
        TurnEnd::Failed(failure) => failure,
        other => panic!("wanted a failure, got {other:?}"),
    }
}

#[tokio::test]
async fn the_message_goes_in_and_the_answer_comes_out() {
    let record = drive(&command("cat; echo", |_| ()), message("--help\n$HOME"), None).await;
    assert_eq!(
        (record.text.as_str(), &record.end),
        ("--help\n$HOME", &TurnEnd::Completed)
    );
    let nothing = drive(&command("cat > /dev/null; echo", |_| ()), message("x"), None).await;
    assert_eq!(
        (nothing.text.as_str(), &nothing.end),
        (NO_REPLY, &TurnEnd::Completed)
    );
}

#[tokio::test]
async fn lines_without_an_answer_read_as_no_reply() {
    for lines in [
        r#"echo '{"type":"final"}'"#,
        r#"echo '{"type":"final","text":" "}'"#,
        r#"echo '{"type":"status","text":"on it"}'"#,
    ] {
        let mute = command(&format!("cat > /dev/null; {lines}"), |settings| {
            settings.output = CommandOutput::Jsonl;
        });
        let record = drive(&mute, message("x"), None).await;
        assert_eq!(
            (record.text.trim(), &record.end),
            (NO_REPLY, &TurnEnd::Completed),
            "{lines}"
        );
    }
}

#[tokio::test]
async fn usage_behind_more_lines_than_the_sink_holds_is_not_dropped() {
    let script = r#"
        cat > /dev/null
        { yes '{"type":"status","text":""}' | head -n 100
          echo '{"type":"usage","input_tokens":3,"output_tokens":4}'; } | tail -n 101"#;
    let talker = command(script, |settings| settings.output = CommandOutput::Jsonl);
    let record = drive(&talker, message("x"), None).await;
    let usage = |event: &AgentEvent| match event {
        AgentEvent::Usage(usage) => Some((usage.input_tokens, usage.output_tokens)),
        _ => None,
    };
    assert_eq!(record.events.iter().find_map(usage), Some((3, 4)));
}

#[tokio::test]
async fn a_command_that_reads_nothing_still_answers() {
    let much = message(&"x".repeat(2_000_000));
    let record = drive(&command("exec 0<&-; echo fine", |_| ()), much, None).await;
    assert_eq!((record.text.as_str(), &record.end), ("fine", &TurnEnd::Completed));
}

#[tokio::test]
async fn the_environment_says_where_it_came_from_and_holds_no_secret() {
    let record = drive(&command("env", |_| ()), message("x"), None).await;
    assert!(
        record.text.contains("RELAY_USER_NAME=$(rm)  name"),
        "{}",
        record.text
    );
    assert!(record.text.contains("RELAY_TURN_ID=7"), "{}", record.text);
    assert!(!record.text.contains("s3cret"), "{}", record.text);
    let added = command("echo \"$ADDED\"", |settings| {
        settings.env = EnvAdditions(BTreeMap::from([("ADDED".to_owned(), "this".to_owned())]));
    });
    assert_eq!(drive(&added, message("x"), None).await.text, "this");
}

/// Notes each run, and does `then` with the number of the run in `$n`.
fn counted(dir: &TempDir, then: &str) -> String {
    let file = dir.path().join("runs").display().to_string();
    format!("echo >> {file}; n=$(grep -c '' {file}); {then}")
}

fn runs(dir: &TempDir) -> usize {
    std::fs::read_to_string(dir.path().join("runs"))
        .unwrap()
        .lines()
        .count()
}

#[tokio::test]
async fn a_command_that_asks_for_a_retry_is_run_again_twice_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let script = counted(&dir, "[ $n = 3 ] && echo done || exit 75");
    let record = drive(&command(&script, |_| ()), message("x"), None).await;
    assert_eq!(
        (record.text.as_str(), runs(&dir)),
        ("done", 3),
        "{:?}",
        record.end
    );

    for then in ["exit 75", r#"echo '{"type":"thought","text":"hm"}'; exit 75"#] {
        let dir = tempfile::tempdir().unwrap();
        let agent = command(&counted(&dir, then), |settings| {
            if then.contains("type") {
                settings.output = CommandOutput::Jsonl;
            }
        });
        let record = drive(&agent, message("x"), None).await;
        assert!(failure(&record).retryable && !failure(&record).side_effects_possible);
        assert_eq!(runs(&dir), 3, "{then}");
    }
}

#[tokio::test]
async fn a_command_that_may_have_acted_is_not_run_again() {
    for then in [
        "exit 74",
        "echo half; exit 75",
        r#"echo '{"type":"tool","id":"1","title":"rm","state":"done"}'; exit 75"#,
        r#"echo '{"type":"status","text":"Checking"}'; exit 75"#,
        r#"echo '{"type":"keep","memory":"m"}'; exit 75"#,
        r#"echo '{"type":"error","message":"no","retryable":true}'"#,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let agent = command(&counted(&dir, then), |settings| {
            if then.contains("type") {
                settings.output = CommandOutput::Jsonl;
            }
        });
        failure(&drive(&agent, message("x"), None).await);
        assert_eq!(runs(&dir), 1, "{then}");
    }
}

#[tokio::test]
async fn exit_codes_decide_and_the_text_so_far_stays() {
    let record = drive(
        &command("echo half; echo why >&2; exit 3", |_| ()),
        message("x"),
        None,
    )
    .await;
    assert_eq!(record.text, "half");
    assert_eq!(failure(&record).class, FailureClass::Reported);
    assert!(
        failure(&record).detail.ends_with("standard error: why"),
        "{:?}",
        record.end
    );
    assert!(!failure(&record).public_text.contains("why"));
    assert!(!failure(&record).retryable);

    let later = drive(&command("echo half; exit 75", |_| ()), message("x"), None).await;
    assert!(failure(&later).retryable && !failure(&later).side_effects_possible);
    assert_eq!(later.text, "half", "it is not run again");
    let killed = drive(&command("kill -SEGV $$", |_| ()), message("x"), None).await;
    assert_eq!(failure(&killed).class, FailureClass::Crashed);

    let missing = command("", |settings| settings.argv = vec!["surely-not-here".to_owned()]);
    let record = drive(&missing, message("x"), None).await;
    assert_eq!(failure(&record).class, FailureClass::Unavailable);
    assert!(!failure(&record).side_effects_possible);
    assert!(
        matches!(missing.health().await, AgentHealth::NotInstalled(why) if why.contains("surely-not-here"))
    );
    let nowhere = command("", |settings| settings.cwd = Some("/surely/not/here".into()));
    assert!(matches!(nowhere.health().await, AgentHealth::Down(why) if why.contains("/surely/not/here")));
    assert_eq!(
        CommandAgent::new("x", CommandSettings::default(), Arc::default()).unwrap_err(),
        NoProgram
    );
}

#[tokio::test]
async fn too_much_output_is_cut_and_the_command_stopped() {
    let endless = command("while :; do echo 0123456789; done", |settings| {
        settings.max_output_bytes = 100_000;
    });
    let record = drive(&endless, message("x"), None).await;
    assert_eq!(record.end, TurnEnd::Truncated(Truncation::Size));
    assert!(
        (99_990..=100_000).contains(&record.text.len()),
        "{}",
        record.text.len()
    );
}

#[tokio::test]
async fn lines_carry_everything_an_agent_can_say() {
    let script = r#"
        read -r prompt
        echo '{"type":"status","text":"on it"}'
        echo 'not json at all'
        head -c 2000000 /dev/zero | tr '\0' x; echo
        echo '{"type":"tool","id":"t","title":"ls","kind":"execute","state":"running"}'
        echo '{"type":"media","url":"https://example.com/a.png","caption":"a"}'
        echo '{"type":"title","text":"tea"}'
        echo '{"type":"keep","memory":"m2"}'
        echo '{"type":"delta","text":"draft"}'
        echo '{"type":"ask","id":"q1","text":"May I?","options":["once","deny"]}'
        read -r answer
        case "$prompt" in *'"memory":"m1"'*) remembered=yes;; *) remembered=no;; esac
        case "$answer" in
            *'"choice":"once"'*'"id":"q1"'*) echo '{"type":"final","text":"allowed, remembered '$remembered'"}';;
            *) echo '{"type":"error","message":"denied"}';;
        esac
        exit 1"#;
    let talker = command(script, |settings| {
        conversing(settings);
        settings.max_output_bytes = 4_000_000;
    });
    assert!(talker.info().asks);
    let record = drive(&talker, message("x"), Some("m1")).await;
    assert_eq!(
        (record.text.as_str(), &record.end),
        ("allowed, remembered yes", &TurnEnd::Completed)
    );
    assert_eq!(record.kept.as_deref(), Some(&b"m2"[..]));
    assert!(matches!(&record.events[0], AgentEvent::Notice(text) if text == "on it"));
    assert!(matches!(&record.events[1], AgentEvent::Tool(tool) if tool.title == "ls"));
    let AgentEvent::Media(media) = &record.events[2] else {
        panic!("{:?}", record.events)
    };
    assert_eq!(
        media.location,
        MediaLocation::Url("https://example.com/a.png".to_owned())
    );
    assert!(matches!(&record.events[3], AgentEvent::Title(text) if text == "tea"));
}

#[tokio::test]
async fn an_error_line_fails_the_turn_with_its_message() {
    let script = r#"echo '{"type":"delta","text":"half"}'; printf '{"type":"error","message":"no quota","retryable":true}'"#;
    let record = drive(
        &command(script, |settings| settings.output = CommandOutput::Jsonl),
        message("x"),
        None,
    )
    .await;
    assert_eq!(record.text, "half");
    assert_eq!(failure(&record).public_text, "no quota");
    assert!(failure(&record).retryable);
}

#[tokio::test]
async fn shutdown_ends_what_runs_and_waits_for_it() {
    let command = command("sleep 600", |_| ());
    let (record, ()) = tokio::join!(drive(&command, message("x"), None), async {
        tokio::time::timeout(Duration::from_secs(10), async {
            while command.running.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("it starts");
        command.shutdown().await;
        assert!(command.running.is_empty());
    });
    assert_eq!(record.end, TurnEnd::Cancelled { confirmed: true });
}

#[test]
fn values_of_variables_are_not_shown_and_unknown_fields_are_refused() {
    let written = r#"{"argv": ["llm"], "env": {"LLM_KEY": "hidden-value"}, "output": "jsonl"}"#;
    let settings: CommandSettings = serde_json::from_str(written).unwrap();
    assert_eq!(settings.output, CommandOutput::Jsonl);
    let shown = format!("{settings:?} {}", serde_json::to_string(&settings).unwrap());
    assert!(
        shown.contains("LLM_KEY") && !shown.contains("hidden-value"),
        "{shown}"
    );
    assert!(serde_json::from_str::<CommandSettings>(r#"{"shell": "llm"}"#).is_err());
}
