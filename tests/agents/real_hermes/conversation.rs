//! The conversation that every way to Hermes must hold, and OpenCode too: an answer, an approval, a stop in the middle of a tool, and an answer
//! that shows that all of it is remembered.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings, PlatformPreset, SentMessage, text_event};
use hermes_relay::wire::Action;
use tokio::time::{Instant, timeout};

use crate::real_hermes::model::{RECALL, RUN, SAY};
use crate::real_hermes::processes;
use crate::support::relay_process::{RelayProcess, Setup};
use crate::support::wait::eventually_within;

/// Longest wait for any one thing; a cold start of Hermes on a busy machine is the slowest.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a tool may run on after its turn was stopped.
const STOPPED: Duration = Duration::from_secs(20);
/// The chat in which all is said.
const CHAT: &str = "c1";
/// The session of that chat.
const SESSION: &str = "agent:main:discord:dm:c1";

/// A connector that offers what Discord does.
pub(crate) async fn connector() -> Connector {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    connector.set_descriptor("discord", PlatformPreset::Discord.wire("discord"));
    connector
}

/// Holds the whole conversation with a relay that has been set up, and ends the relay.
/// The agent works in `work`, and every process of the test names the folder around that.
pub(crate) async fn held(connector: &Connector, setup: &Setup, work: &Path) {
    let relay = setup.start();
    let chat = Chat { connector, work };
    chat.connected().await;
    let begun = Instant::now();
    let result = async {
        chat.is_answered().await;
        chat.asks_before_it_removes().await;
        chat.is_stopped_while_a_tool_runs().await;
        chat.remembers().await;
    };
    let result = timeout(TIMEOUT * 3, result).await;
    assert!(result.is_ok(), "no end of it; the chat shows {:#?}", chat.shown());
    println!("four messages took {:.1} s", begun.elapsed().as_secs_f32());
    ended(relay).await;
}

async fn ended(relay: RelayProcess) {
    let begun = Instant::now();
    relay.stop().await;
    println!("the relay ended in {:.1} s", begun.elapsed().as_secs_f32());
}

struct Chat<'a> {
    connector: &'a Connector,
    work: &'a Path,
}

impl Chat<'_> {
    async fn connected(&self) {
        self.connector.wait_connected(TIMEOUT).await.unwrap();
    }

    fn folder(&self) -> &Path {
        self.work.parent().expect("the folder of the test")
    }

    fn send(&self, message_id: &str, text: &str) {
        let event = text_event("discord", CHAT, message_id, text);
        self.connector.deliver(&event).unwrap();
    }

    /// What stands in the chat.
    fn shown(&self) -> Vec<(&'static str, String)> {
        let sent = self.connector.sent_messages().into_iter();
        sent.map(|sent| (sent.op, sent.text)).collect()
    }

    /// Waits for a message of the relay.
    async fn sees(&self, what: &str, wanted: impl FnMut(&SentMessage) -> bool) -> SentMessage {
        match self.connector.wait_for_sent(what, TIMEOUT, wanted).await {
            Ok(sent) => sent,
            Err(error) => panic!("{error}; the chat shows {:#?}", self.shown()),
        }
    }

    async fn is_answered(&self) {
        self.send("m1", &format!("{SAY} that my bird is heron-71."));
        self.sees("the first answer", |sent| sent.text.contains("heron-71."))
            .await;
    }

    async fn asks_before_it_removes(&self) {
        let victim = self.work.join("victim");
        fs::create_dir(&victim).unwrap();
        let command = format!("rm -rf {} && echo removed-$((26 * 2))", victim.display());
        self.send("m2", &format!("{RUN} <{command}>"));
        let question = self.sees("a question", |sent| sent.op == "prompt").await;
        assert!(question.text.contains("rm -rf"), "{question:?}");
        assert!(victim.exists(), "it was asked before, not after");
        let Action::Prompt {
            prompt_id, options, ..
        } = &question.action
        else {
            panic!("{question:?}");
        };
        let once = options
            .iter()
            .find(|option| option.label.to_lowercase().contains("once"));
        let once = once.unwrap_or_else(|| panic!("nothing to press: {options:?}"));
        self.connector
            .press(prompt_id, &once.id)
            .expect("a button")
            .unwrap();
        let printed = self
            .sees("what the command printed", |sent| {
                sent.op == "send" && sent.text.contains("removed-52")
            })
            .await;
        assert!(printed.text.starts_with("The command"), "{printed:?}");
        assert!(!victim.exists(), "it was allowed, and done");
        self.sees("what was decided", |sent| {
            sent.message_id == question.message_id && sent.edits > 0
        })
        .await;
    }

    async fn is_stopped_while_a_tool_runs(&self) {
        let began = self.work.join("began");
        let ended = self.work.join("ended");
        let command = format!("touch {}; sleep 61.5; touch {}", began.display(), ended.display());
        self.send("m3", &format!("{RUN} <{command}>"));
        self.until_there(&began).await;
        let running = processes::around(self.folder());
        let seen = running.iter().any(|line| line.contains("sleep 61.5"));
        assert!(seen, "the tool is among the processes: {running:#?}");
        assert!(self.connector.interrupt(SESSION, CHAT));
        processes::gone(self.folder(), "sleep 61.5", STOPPED).await;
        assert!(!ended.exists(), "the command was cut short");
    }

    async fn remembers(&self) {
        self.send("m4", &format!("{RECALL} now."));
        let answer = self
            .sees("the last answer", |sent| {
                sent.text.contains("You ask:") && sent.text.contains("removed-52")
            })
            .await;
        assert!(answer.text.contains("heron-71"), "{answer:?}");
        let alone = answer.text.starts_with(&format!("You ask: {RECALL} now."));
        assert!(alone, "what was stopped is not asked for again: {answer:?}");
        let failed = self.shown().into_iter().find(|(_, text)| {
            ["Queued for", "went wrong", "failed"]
                .iter()
                .any(|sign| text.contains(sign))
        });
        assert_eq!(failed, None, "nothing in the chat is an error");
    }

    async fn until_there(&self, path: &Path) {
        eventually_within(TIMEOUT, "the tool has begun", async || {
            path.exists().then_some(()).ok_or_else(|| self.shown())
        })
        .await;
    }
}
