//! The transcripts of `docs/chat.md`, replayed line by line: the real relay, the embedded connector, and an agent that says what
//! the page has it say.
//!
//! A block that begins with `you` is a transcript. Each line names who speaks, `you (...)` how; lines below it go on. What `relay` and
//! an agent say has to come as it stands there, in that order, and nothing else; `chat` is what is shown of the line of the agent
//! above it. `...` stands for anything, a time for any other, `[label]` for a button, a line in parentheses for what happens.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::task::LocalSet;

use crate::support::dev::{Connector, ConnectorSettings, PlatformPreset, SentMessage, text_event};
use crate::support::relay_process::Setup;
use crate::support::wait::eventually_within;
use hermes_relay::wire::Action;

/// Time for one line.
const FOR_A_LINE: Duration = Duration::from_secs(30);
/// The agents of a scene; `agent` is the first.
const AGENTS: [&str; 2] = ["code", "research"];
/// The sections of the page that show something, each with what it needs.
const SCENES: [Scene; 13] = [
    Scene::new("Conversations"),
    Scene::new("From a terminal").with_terminal(),
    Scene::new("Projects").with(&[
        ("projects.docs", "{workdir: /tmp}"),
        ("projects.site", "{workdir: /}"),
    ]),
    Scene::new("Models and modes"),
    Scene::new("Voice").streaming().with(&[
        ("transcribe.argv", "[/bin/cat]"),
        ("speak.argv", "[/bin/cat]"),
        // A tool call that takes a moment would be a message of its own.
        ("streaming.tool_progress", "false"),
    ]),
    Scene::new("Commands of the agent"),
    Scene::new("Long turns and quiet hours").streaming().with(&[
        ("chat.progress_after_secs", "1"),
        ("chat.notify_after_secs", "1"),
        ("cron.timezone", "Europe/Berlin"),
    ]),
    Scene::new("Edited and deleted messages"),
    Scene::new("Idle agents"),
    Scene::new("Language"),
    Scene::new("Tables"),
    Scene::new("Groups").in_group(),
    Scene::new("Threads")
        .in_group()
        .with(&[("chat.group_threads", "true")]),
];

/// What a section of the page is replayed with.
#[derive(Clone, Copy)]
struct Scene {
    section: &'static str,
    settings: &'static [(&'static str, &'static str)],
    chat_type: &'static str,
    streams: bool,
    /// Whether something was said to the agent in a terminal before.
    has_terminal: bool,
}

impl Scene {
    const fn new(section: &'static str) -> Self {
        Self {
            section,
            settings: &[],
            chat_type: "dm",
            streams: false,
            has_terminal: false,
        }
    }

    const fn with(mut self, settings: &'static [(&'static str, &'static str)]) -> Self {
        self.settings = settings;
        self
    }

    const fn in_group(mut self) -> Self {
        self.chat_type = "group";
        self
    }

    const fn with_terminal(mut self) -> Self {
        self.has_terminal = true;
        self
    }

    const fn streaming(mut self) -> Self {
        self.streams = true;
        self
    }
}

/// One line of a transcript, with those that go on with it.
#[derive(Debug)]
struct Line {
    who: String,
    how: String,
    text: String,
    buttons: Vec<String>,
}

#[tokio::test]
async fn what_the_page_shows_is_what_is_said() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/chat.md");
    let transcripts = transcripts(&fs::read_to_string(page).unwrap());
    for scene in SCENES {
        let shown = transcripts.iter().any(|(section, _)| section == scene.section);
        assert!(shown, "{} shows no transcript", scene.section);
    }
    let (tasks, mut replayed) = (LocalSet::new(), Vec::new());
    for (section, lines) in transcripts {
        let scene = SCENES.iter().find(|scene| scene.section == section);
        let scene = *scene.unwrap_or_else(|| panic!("{section} is not replayed"));
        replayed.push(tasks.spawn_local(async move { replay(scene, &lines).await }));
    }
    // The others go on when one fails.
    let ended = tasks.run_until(join_all(replayed)).await;
    assert!(ended.iter().all(Result::is_ok), "see above");
}

/// The transcripts of a page, by their sections.
fn transcripts(page: &str) -> Vec<(String, Vec<Line>)> {
    let (mut section, mut found) = (String::new(), Vec::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line == "```text" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if block.first().is_some_and(|line| line.starts_with("you")) {
                found.push((section.clone(), read(&block)));
            }
        } else if let Some(title) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            title.clone_into(&mut section);
        }
    }
    found
}

fn read(block: &[&str]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in block {
        if let Some(happens) = line.strip_prefix('(') {
            lines.push(Line {
                who: "(".to_owned(),
                how: String::new(),
                text: happens.trim_end_matches(')').to_owned(),
                buttons: Vec::new(),
            });
        } else if line.starts_with(' ') {
            let (last, text) = (lines.last_mut().expect("a line above"), line.trim());
            if text.starts_with('[') {
                let labels = text
                    .split_inclusive(']')
                    .map(|label| label.trim().trim_matches(['[', ']']));
                last.buttons.extend(labels.map(str::to_owned));
            } else {
                last.text.extend(["\n", text]);
            }
        } else {
            let (who, text) = line
                .split_once("  ")
                .unwrap_or_else(|| panic!("who says {line:?}?"));
            let (who, how) = who.split_once(" (").unwrap_or((who, ""));
            lines.push(Line {
                who: who.to_owned(),
                how: how.trim_end_matches(')').to_owned(),
                text: text.trim().to_owned(),
                buttons: Vec::new(),
            });
        }
    }
    lines
}

/// A relay whose agents say what they are told to, and how far the transcript is.
struct Stage {
    scene: Scene,
    connector: Connector,
    store: tempfile::TempDir,
    sent: usize,
    /// Messages that were compared.
    compared: usize,
    /// Answers that each agent was told.
    told: [usize; AGENTS.len()],
    /// The id and the text of the last message that is no command.
    last: String,
}

async fn replay(scene: Scene, lines: &[Line]) {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    connector.set_descriptor("discord", PlatformPreset::Discord.wire("discord"));
    let store = tempfile::tempdir().unwrap();
    let mut setup = Setup::for_connector(&connector).args(&["run", "--agent", AGENTS[0]]);
    for name in AGENTS {
        let folder = store.path().join(name);
        fs::create_dir(&folder).unwrap();
        let list = if scene.has_terminal {
            fs::write(folder.join("t-1"), "plant trees").unwrap();
            " list"
        } else {
            ""
        };
        let agent = format!(
            "{{kind: acp, argv: [\"{}\"], idle_close_secs: 1, env: {{ACP_AGENT: rehearsed load models{list}, ACP_AGENT_STORE: \"{}\"}}}}",
            super::PEER,
            folder.display()
        );
        setup = setup.setting(&format!("agents.{name}"), &agent);
    }
    if !scene.streams {
        setup = setup
            .setting("streaming.mode", "\"off\"")
            .setting("streaming.tool_progress", "false");
    }
    for (key, value) in scene.settings {
        setup = setup.setting(key, value);
    }
    let relay = setup.start();
    connector.wait_connected(FOR_A_LINE).await.unwrap();
    let mut stage = Stage {
        scene,
        connector,
        store,
        sent: 0,
        compared: 0,
        told: [0; AGENTS.len()],
        last: String::new(),
    };
    for (at, line) in lines.iter().enumerate() {
        let is_shown_otherwise = lines.get(at + 1).is_some_and(|next| next.who == "chat");
        stage.play(line, is_shown_otherwise).await;
    }
    relay.stop().await;
    let sent = stage.connector.sent_messages();
    let more: Vec<&str> = sent[stage.compared..]
        .iter()
        .map(|sent| sent.text.as_str())
        .collect();
    assert!(more.is_empty(), "{} does not show {more:?}", scene.section);
}

impl Stage {
    async fn play(&mut self, line: &Line, is_shown_otherwise: bool) {
        match line.who.as_str() {
            "you" => self.write(line).await,
            "relay" | "chat" => self.expect(line).await,
            "(" => self.happen(&line.text).await,
            agent => {
                self.tell(agent, &line.text).await;
                if !is_shown_otherwise {
                    self.expect(line).await;
                }
            }
        }
    }

    /// Somebody writes, and the relay has it.
    async fn write(&mut self, line: &Line) {
        self.sent += 1;
        let id = if line.how == "edit" {
            self.last.clone()
        } else {
            format!("p{}", self.sent)
        };
        let mut event = text_event("discord", "c1", &id, &line.text);
        event["source"]["chat_type"] = json!(self.scene.chat_type);
        match line.how.as_str() {
            "" => {}
            "edit" => event["message_is_edit"] = json!(true),
            "voice" => {
                let bytes = line.text.clone().into_bytes();
                let url = self.connector.put_media("audio/ogg", Some("voice.ogg"), bytes);
                event["text"] = json!("");
                event["media_urls"] = json!([url]);
                event["media"] = json!([{"url": url, "mime": "audio/ogg"}]);
            }
            language => event["source"]["language_code"] = json!(language),
        }
        if !line.text.starts_with('/') {
            self.last = id;
        }
        let buffered = self.connector.deliver(&event).unwrap().to_string();
        let is_taken = |connector: &Connector| {
            let mut acks = connector.acks().into_iter();
            acks.any(|ack| ack.buffer_id == buffered).then_some(())
        };
        (self.connector.until(&line.text, FOR_A_LINE, is_taken))
            .await
            .unwrap();
    }

    /// An agent says this to what it was asked next.
    async fn tell(&mut self, agent: &str, text: &str) {
        let name = if agent == "agent" { AGENTS[0] } else { agent };
        let at = AGENTS.iter().position(|known| *known == name);
        let at = at.unwrap_or_else(|| panic!("{}: who is {agent}?", self.scene.section));
        let what = format!(
            "{}: {name} is asked what it answers with {text:?}",
            self.scene.section
        );
        eventually_within(FOR_A_LINE, &what, async || {
            (self.asked(name).len() > self.told[at]).then_some(())
        })
        .await;
        self.told[at] += 1;
        let mut says = File::options()
            .append(true)
            .create(true)
            .open(self.folder(name).join("says"))
            .unwrap();
        says.write_all(format!("{}\n", json!(text)).as_bytes()).unwrap();
    }

    /// The next message in the chats is this one.
    async fn expect(&mut self, line: &Line) {
        let what = format!("{}: {} says {:?}", self.scene.section, line.who, line.text);
        eventually_within(FOR_A_LINE, &what, async || {
            let next = self.connector.sent_messages().into_iter().nth(self.compared);
            let is_it = next.as_ref().is_some_and(|next| is_same(line, next));
            if is_it {
                Ok(())
            } else {
                Err(next.map(|next| next.text))
            }
        })
        .await;
        self.compared += 1;
    }

    async fn happen(&self, what: &str) {
        if let Some(name) = what.strip_prefix("a thread opens: ") {
            let op = (self.connector)
                .wait_for("a thread", FOR_A_LINE, |frame| {
                    frame.json()["action"]["op"] == "thread_create"
                })
                .await;
            assert_eq!(op.unwrap().json()["action"]["thread_name"], name);
            return;
        }
        assert!(
            what.ends_with("the agent's process has ended"),
            "what is {what:?}?"
        );
        let asked = self.asked(AGENTS[0]);
        let process = asked.last().expect("it was asked")["process"].to_string();
        let is_gone = || !Path::new("/proc").join(&process).exists();
        eventually_within(FOR_A_LINE, what, async || is_gone()).await;
    }

    /// What an agent was asked: the text, and the process that was.
    fn asked(&self, agent: &str) -> Vec<Value> {
        let asked = fs::read_to_string(self.folder(agent).join("asked")).unwrap_or_default();
        asked
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    fn folder(&self, agent: &str) -> PathBuf {
        self.store.path().join(agent)
    }
}

/// Whether a message is the one of a line.
fn is_same(line: &Line, message: &SentMessage) -> bool {
    if !line.buttons.is_empty() {
        let Action::Prompt { options, .. } = &message.action else {
            return false;
        };
        let labels: Vec<&String> = options.iter().map(|option| &option.label).collect();
        if labels != line.buttons.iter().collect::<Vec<_>>() {
            return false;
        }
    }
    let shown: Vec<&str> = (message.text.lines().map(str::trim))
        .filter(|line| !line.is_empty() && !line.starts_with("```"))
        .collect();
    let (wanted, shown) = (without_times(&line.text), without_times(&shown.join("\n")));
    let mut rest = shown.as_str();
    let mut parts = wanted.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else {
        return false;
    };
    rest = after;
    let mut is_open = false;
    for part in parts {
        is_open = part.is_empty();
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    is_open || rest.is_empty()
}

/// The same text with one word for every time.
fn without_times(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let mut words: Vec<String> = Vec::new();
        for word in line.split(' ') {
            let (unit, mark) = word.split_at(word.trim_end_matches([':', '.', ',']).len());
            let is_number = |word: &String| word.parse::<u32>().is_ok();
            if matches!(unit, "s" | "min" | "h") && words.last().is_some_and(is_number) {
                words.pop();
                if words.last().is_some_and(|last| last == "TIME") {
                    words.pop();
                }
                words.push(format!("TIME{mark}"));
            } else {
                words.push(word.to_owned());
            }
        }
        words.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}
