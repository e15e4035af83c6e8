//! A command, in both of its ways to speak. Its peer is a shell script.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_relay::agent::{
    Agent, BaseEnv, CommandAgent, CommandInput, CommandOutput, CommandSettings, EnvAdditions, TurnEnd,
};

use crate::conformance::harness::{Chat, Reply, Stop};
use crate::conformance::suite::{Act, Fixture, conform};
use crate::support::wait::eventually;

/// Speaks plain text.
const TEXT: &str = r#"
case "$(cat)" in
    say) printf 'one '; sleep 0.02; printf 'two '; sleep 0.02; echo three;;
    nothing) ;;
    much) head -c 300000 /dev/zero | tr '\0' x;;
    cut) printf 'gr\303'; sleep 0.05; printf '\274\303\237e \346\227'; sleep 0.05
        printf '\245\346\234\254 \360\237'; sleep 0.05; printf '\216\211 end\n';;
    hang) sleep 600;;
    speak-and-hang) echo one; sleep 600 & sleep 600;;
    deaf) trap '' TERM INT HUP; echo one; while :; do sleep 0.05; done;;
    crash) printf half; sleep 0.05; kill -KILL $$;;
    fail) exit 3;;
    flood) head -c 5000000 /dev/zero | tr '\0' e >&2; echo survived;;
    orphan) sleep 600 & echo left;;
    escaped) setsid sleep 30 & echo left;;
    endless) tr '\0' x </dev/zero;;
    garbled) printf 'a\377\376b\303 survived\n';;
    close) echo left; exec >&-; sleep 600;;
    daemon) setsid sleep 30 & echo left;;
esac
"#;

/// Speaks in lines of JSON and reads answers.
const LINES: &str = r#"
read -r prompt
delta() { printf '{"type":"delta","text":"%s"}\n' "$1"; }
word() { printf '%s' "$2" | sed -n 's/.*"'"$1"'":"\([a-z-]*\)".*/\1/p'; }
case "$(word text "$prompt")" in
    say) delta 'one '; sleep 0.02; delta 'two '; sleep 0.02; delta three; echo '{"type":"final"}';;
    nothing) ;;
    much) for i in 1 2 3 4 5 6; do delta "$(head -c 50000 /dev/zero | tr '\0' x)"; done;;
    cut) printf '{"type":"delta","text":"gr\303'; sleep 0.05; printf '\274\303\237e \346\227'; sleep 0.05
        printf '\245\346\234\254 \360\237'; sleep 0.05; printf '\216\211 end"}\n';;
    hang) read -r more; sleep 600;;
    speak-and-hang) delta one; sleep 600 & sleep 600;;
    deaf) trap '' TERM INT HUP; delta one; while :; do sleep 0.05; done;;
    ask) echo '{"type":"ask","id":"q","text":"May I?","options":["once","deny"]}'
        read -r answer; delta "chosen $(word choice "$answer")"; echo '{"type":"final"}';;
    crash) delta half; sleep 0.05; kill -KILL $$;;
    fail) echo '{"type":"error","message":"it does not work"}';;
    flood) head -c 5000000 /dev/zero | tr '\0' e >&2; delta survived;;
    orphan) sleep 600 & delta left;;
    endless) tr '\0' x </dev/zero;;
    garbled) printf '\377\376{"type":"\303"\n'; delta survived;;
    close) delta left; exec >&-; sleep 600;;
    daemon) setsid sleep 30 & delta left;;
    remember) echo '{"type":"keep","memory":"plum"}'; delta noted;;
    recall) delta "remembered $(word memory "$prompt")";;
esac
"#;

struct CommandFixture {
    folder: tempfile::TempDir,
    settings: CommandSettings,
}

impl CommandFixture {
    fn new(script: &str, conversing: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("script"), script).unwrap();
        // The program is found in the folder, so that it can be taken away.
        std::os::unix::fs::symlink("/bin/sh", folder.path().join("peer")).unwrap();
        let mut settings = CommandSettings {
            argv: [folder.path().join("peer"), folder.path().join("script")]
                .map(|path| path.to_str().unwrap().to_owned())
                .to_vec(),
            kill_grace_secs: 1,
            ..CommandSettings::default()
        };
        if conversing {
            settings.input = CommandInput::Json;
            settings.output = CommandOutput::Jsonl;
        }
        Self { folder, settings }
    }

    fn peer(&self) -> PathBuf {
        self.folder.path().join("peer")
    }

    fn marked(mut self, mark: &str) -> Self {
        self.settings.env = EnvAdditions(BTreeMap::from([("TEST_MARK".to_owned(), mark.to_owned())]));
        self
    }
}

impl Fixture for CommandFixture {
    fn agent(&self) -> Arc<dyn Agent> {
        let path = (OsString::from("PATH"), OsString::from("/usr/bin:/bin"));
        let base = Arc::new(BaseEnv::new([path]));
        CommandAgent::guarded("peer", self.settings.clone(), base).unwrap()
    }

    fn text(&self, act: Act) -> Option<String> {
        let conversing = self.settings.output == CommandOutput::Jsonl;
        let word = match act {
            Act::Say => "say",
            Act::Nothing => "nothing",
            Act::Much => "much",
            Act::Cut => "cut",
            Act::Hang => "hang",
            Act::SpeakAndHang => "speak-and-hang",
            Act::Deaf => "deaf",
            Act::Ask if conversing => "ask",
            Act::Crash => "crash",
            Act::Fail => "fail",
            Act::Flood => "flood",
            Act::Orphan => "orphan",
            Act::Endless => "endless",
            Act::Garbled => "garbled",
            Act::Close => "close",
            Act::Daemon => "daemon",
            Act::Remember if conversing => "remember",
            Act::Recall if conversing => "recall",
            Act::Ask | Act::Remember | Act::Recall => return None,
        };
        Some(word.to_owned())
    }

    fn silence(&self) -> &'static str {
        "(no reply)"
    }

    fn break_down(&self, broken: bool) -> bool {
        if broken {
            std::fs::remove_file(self.peer()).unwrap();
        } else {
            std::os::unix::fs::symlink("/bin/sh", self.peer()).unwrap();
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_command_conforms() {
    let not_applicable = [
        "takes_an_answer",
        "takes_a_refusal",
        "takes_a_late_answer",
        "goes_on_when_nobody_answers",
        "remembers_across_a_restart",
        "stops_while_it_asks",
    ];
    conform("command", &CommandFixture::new(TEXT, false), &not_applicable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_json_lines_command_conforms() {
    conform("command (jsonl)", &CommandFixture::new(LINES, true), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_left_the_group_and_holds_the_pipes_does_not_hold_the_turn() {
    let fixture = CommandFixture::new(TEXT, false);
    let began = Instant::now();
    let record = Chat::new("escaped").turn(&*fixture.agent(), "escaped").await;
    assert_eq!((record.text.as_str(), record.end), ("left", TurnEnd::Completed));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// Processes whose environment has the mark.
#[cfg(target_os = "linux")]
fn marked(mark: &str) -> Vec<String> {
    let holds = |environment: Vec<u8>| {
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == format!("TEST_MARK={mark}").as_bytes())
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| std::fs::read(format!("/proc/{name}/environ")).is_ok_and(holds))
        .collect()
}

/// Children of this program that have ended and were not reaped.
#[cfg(target_os = "linux")]
fn zombies() -> usize {
    let own = format!(" Z {} ", std::process::id());
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(&own)))
        .count()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_stopped_turns_leave_no_process() {
    let mark = format!("stopped-{}", std::process::id());
    let mut fixture = CommandFixture::new(TEXT, false).marked(&mark);
    fixture.settings.kill_grace_secs = 0;
    fixture.settings.max_parallel = 8;
    let agent = fixture.agent();
    {
        let chat = Chat::new("seen");
        let hanging = chat.stopped_turn(&*agent, "hang", Stop::Never, Reply::Open);
        let look = eventually("a running process is seen by its mark", async || {
            !marked(&mark).is_empty()
        });
        tokio::select! {
            record = hanging => panic!("it does not hang: {record:?}"),
            () = look => {}
        }
    }

    let mut turns = tokio::task::JoinSet::new();
    for number in 0..200_u64 {
        let agent = Arc::clone(&agent);
        turns.spawn(async move {
            let (text, stop) = match number % 5 {
                0 => ("speak-and-hang", Stop::Speaking),
                1 => ("deaf", Stop::Speaking),
                2 => ("hang", Stop::Begun),
                3 => ("hang", Stop::After(Duration::from_millis(number % 40))),
                _ => ("speak-and-hang", Stop::After(Duration::from_millis(number % 60))),
            };
            let chat = Chat::new(&number.to_string());
            if number % 10 == 4 {
                // Given up, as the relay does with an agent that does not stop.
                let turn = chat.stopped_turn(&*agent, text, Stop::Never, Reply::Open);
                let _ = tokio::time::timeout(Duration::from_millis(100), turn).await;
            } else {
                let end = chat.stopped_turn(&*agent, text, stop, Reply::Open).await.end;
                assert_eq!(end, TurnEnd::Cancelled { confirmed: true });
            }
        });
    }
    while let Some(turn) = turns.join_next().await {
        turn.unwrap();
    }
    eventually("no process is left behind", async || match marked(&mark) {
        left if left.is_empty() && zombies() == 0 => Ok(()),
        left => Err((left, zombies())),
    })
    .await;
}
