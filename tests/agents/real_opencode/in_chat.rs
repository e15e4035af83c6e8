//! What people do in a chat with the real OpenCode: conversations that are listed and go on, also one that was begun in a terminal,
//! models and modes, and a process that ends while nobody talks to it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::time::timeout;

use super::{FIRST_ANSWER, QUIET, install, set_up};
use crate::real_hermes::home::OFFLINE;
use crate::real_hermes::model::{RECALL, SAY};
use crate::real_hermes::{conversation, model, processes};
use crate::support::dev::{Connector, text_event};

/// What stands in the command line of the agent's process.
const PROCESS: &str = "opencode acp";
/// How long an idle process may take to end.
const IDLE: Duration = Duration::from_secs(30);

/// A chat, and how many messages were written in it.
struct Chat<'c> {
    connector: &'c Connector,
    id: &'static str,
    written: usize,
}

impl<'c> Chat<'c> {
    fn new(connector: &'c Connector, id: &'static str) -> Self {
        Self {
            connector,
            id,
            written: 0,
        }
    }

    /// Writes something, and gives the message with this in it that comes then.
    async fn say(&mut self, text: &str, wanted: &str) -> String {
        self.written += 1;
        let before = self.connector.messages_in(self.id).len();
        let message = format!("{}-{}", self.id, self.written);
        let event = text_event("discord", self.id, &message, text);
        self.connector.deliver(&event).unwrap();
        let answer = |connector: &Connector| {
            let sent = connector.messages_in(self.id);
            let mut later = sent.into_iter().skip(before).map(|sent| sent.text);
            later.find(|text| text.contains(wanted))
        };
        match self.connector.until(wanted, FIRST_ANSWER, answer).await {
            Ok(answer) => answer,
            Err(error) => {
                let shown: Vec<String> = (self.connector.messages_in(self.id).into_iter())
                    .map(|sent| sent.text)
                    .collect();
                panic!("{error}; the chat shows {shown:#?}")
            }
        }
    }
}

/// Begins a conversation in a terminal.
async fn begun_in_a_terminal(opencode: &Path, home: &Path, work: &Path, text: &str) {
    let mut run = Command::new(opencode);
    run.args(["run", text])
        .env_clear()
        .envs(OFFLINE.iter().chain(&QUIET).copied())
        .env("HOME", home)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir(work)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output = timeout(FIRST_ANSWER, run.output())
        .await
        .expect("an end")
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("pike-9"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_go_on_models_switch_and_an_idle_process_ends() {
    let Some(opencode) = install::opencode().await else {
        return;
    };
    let model = model::start().await;
    let connector = conversation::connector().await;
    let (setup, work) = set_up(&connector, &opencode, &model.base(), ", idle_close_secs: 1");
    let folder = work.parent().unwrap_or(Path::new("/"));
    begun_in_a_terminal(&opencode, &setup.home(), &work, &format!("{SAY} pike-9.")).await;
    let relay = setup.start();
    connector.wait_connected(FIRST_ANSWER).await.unwrap();
    let mut chat = Chat::new(&connector, "c1");
    chat.say(&format!("{SAY} heron-71."), "You said").await;
    // Its process ends, and comes back with the conversation.
    processes::gone(folder, PROCESS, IDLE).await;
    let recalled = chat.say(&format!("{RECALL} it."), "You ask").await;
    assert!(recalled.contains("heron-71"), "{recalled}");
    // Models and modes.
    let models = chat.say("/model", "The models of o:").await;
    assert!(
        models.contains("made-up (in use)") && models.contains("test/other"),
        "{models}"
    );
    let confirmed = "The model is test/other from now on, in this conversation.";
    chat.say("/model test/other", confirmed).await;
    let offered = chat.say("/mode", "The modes of o:").await;
    assert!(
        offered.contains("build (in use)") && offered.contains("plan"),
        "{offered}"
    );
    let confirmed = "The mode is plan from now on, in this conversation.";
    chat.say("/mode plan", confirmed).await;
    // Another conversation, and back, though the process has ended in between.
    chat.say("/new", "Started a new conversation").await;
    let alone = chat.say(&format!("{RECALL} this."), "You ask").await;
    assert!(!alone.contains("heron-71"), "{alone}");
    processes::gone(folder, PROCESS, IDLE).await;
    let list = chat.say("/sessions", "Your conversations with o:").await;
    let terminal = list.lines().find(|line| line.ends_with(", terminal"));
    let terminal = terminal.unwrap_or_else(|| panic!("none was begun in a terminal: {list}"));
    assert_eq!(list.matches(", terminal").count(), 1, "{list}");
    chat.say("/resume 2", "This chat goes on with").await;
    let recalled = chat.say(&format!("{RECALL} both."), "You ask").await;
    assert!(recalled.contains("heron-71"), "{recalled}");
    let models = chat.say("/model", "The models of o:").await;
    assert!(models.contains("other (in use)"), "{models}");
    let number = terminal.split('.').next().unwrap_or_default();
    chat.say(&format!("/resume {number}"), "This chat goes on with")
        .await;
    let recalled = chat.say(&format!("{RECALL} the fish."), "You ask").await;
    assert!(recalled.contains("pike-9"), "{recalled}");
    relay.stop().await;
    processes::gone(folder, "", processes::LEAVING).await;
}

/// Resident memory of the agent's processes, in MB.
fn memory(folder: &Path) -> u64 {
    let mut processes = processes::around(folder);
    processes.retain(|line| line.contains(PROCESS));
    let resident = |line: &String| {
        let (process, _) = line.split_once(':')?;
        let status = fs::read_to_string(Path::new(process).join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    processes.iter().filter_map(resident).sum::<u64>() / 1024
}

/// Prints what `docs/agents.md` says.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures"]
async fn memory_of_ten_idle_conversations() {
    const CHATS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let Some(opencode) = install::opencode().await else {
        return;
    };
    let model = model::start().await;
    let connector = conversation::connector().await;
    let (setup, work) = set_up(&connector, &opencode, &model.base(), ", idle_close_secs: 10");
    let folder = work.parent().unwrap_or(Path::new("/"));
    let relay = setup.start();
    connector.wait_connected(FIRST_ANSWER).await.unwrap();
    for id in CHATS {
        Chat::new(&connector, id)
            .say(&format!("{SAY} hello."), "You said")
            .await;
    }
    println!("ten idle conversations: {} MB", memory(folder));
    processes::gone(folder, PROCESS, IDLE).await;
    println!("after idle_close_secs: {} MB", memory(folder));
    let begun = Instant::now();
    let mut again = Chat::new(&connector, CHATS[0]);
    again.written = 1;
    again.say(&format!("{RECALL} it."), "hello").await;
    println!("the next answer took {:.1} s", begun.elapsed().as_secs_f32());
    relay.stop().await;
}
