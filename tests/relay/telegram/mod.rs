//! A Telegram bot of one's own, over a fake Bot API: what people write, press and stop, what they get to see, and what
//! happens when the server limits, fails, conflicts or repeats itself.

mod albums;
mod files;
mod groups;
mod limits;
mod messages;
mod polling;
mod process;
mod prompts;
mod refusals;
mod repeats;
mod rich_messages;
mod streaming;
mod unknown_outcomes;
mod voice;

use std::sync::{Arc, Mutex};

use crate::support::dev::{
    ApiChatKind, ApiPerson, BotApi, BotApiCall, BotApiSettings, BotStanding, SeenMessage,
};
use hermes_relay::agent::{
    Agent, AgentFuture, AgentInfo, EchoAgent, MediaLocation, Turn, TurnEnd, TurnInput,
};
use hermes_relay::config::{Durability, Settings, TelegramConfig};
use hermes_relay::relay::{AgentSlot, BuildError, ExitReason, Relay, RelayHandle, Status};
use hermes_relay::store::OpenError;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::wait::{SOON, eventually};

const ADA: i64 = 100;
const BOB: i64 = 101;
const OTHER_BOT: i64 = 102;
const GROUP: i64 = -200;
const SUPERGROUP: i64 = -1_000_250;
const FORUM: i64 = -1_000_300;
const CHANNEL: i64 = -1_000_400;

/// A fake with people and chats, and the state and working directory of the relays on it.
struct World {
    api: BotApi,
    state: TempDir,
    work: TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with(BotApiSettings::default()).await
    }

    async fn with(settings: BotApiSettings) -> Self {
        let api = BotApi::start(settings).await.unwrap();
        api.add_person(ApiPerson::named(ADA, "Ada"));
        api.add_person(ApiPerson::named(BOB, "Bob"));
        api.add_person(ApiPerson {
            is_bot: true,
            ..ApiPerson::named(OTHER_BOT, "other_bot")
        });
        api.add_chat(GROUP, ApiChatKind::Group, "Team");
        api.add_chat(SUPERGROUP, ApiChatKind::Supergroup, "Hall");
        api.add_chat(FORUM, ApiChatKind::Forum, "Project");
        api.set_standing(FORUM, ADA, BotStanding::Administrator);
        // A forum's first message has the number of its General topic.
        api.say(FORUM, ADA, "opened");
        api.add_chat(CHANNEL, ApiChatKind::Channel, "News");
        api.forget_updates();
        Self {
            api,
            state: tempfile::tempdir().unwrap(),
            work: tempfile::tempdir().unwrap(),
        }
    }

    /// A relay with the echoing agent.
    async fn start(&self) -> Running {
        self.start_with(EchoAgent, |_| {}).await
    }

    /// A relay that is connected.
    async fn start_with(&self, agent: impl Agent + Clone, adjust: impl FnOnce(&mut Settings)) -> Running {
        let running = self.launch(agent, adjust).await;
        self.api.wait_polled(SOON).await.unwrap();
        running
    }

    /// A relay that may not be connected yet.
    async fn launch(&self, agent: impl Agent + Clone, adjust: impl FnOnce(&mut Settings)) -> Running {
        let mut settings = Settings::embedded(self.state.path());
        settings.streaming.first_hold_ms = 0;
        settings.journal.durability = Durability::Process;
        settings.shutdown.drain_secs = 0;
        settings.direct.telegram = Some(TelegramConfig {
            api_base: self.api.base(),
            ..TelegramConfig::new(Some(self.api.token()))
        });
        adjust(&mut settings);
        let relay = eventually("the journal of the relay before is released", async || {
            let slot = AgentSlot {
                workdir: Some(self.work.path().to_owned()),
                ..AgentSlot::new(Arc::new(agent.clone()))
            };
            let built = Relay::builder(settings.clone())
                .agents([("tested".to_owned(), slot)])
                .build();
            match built {
                Ok(relay) => Some(relay),
                Err(BuildError::Journal(OpenError::InUse { .. })) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        let handle = relay.handle();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
        Running { handle, stop, task }
    }

    /// Waits for a message of the bot whose text is this.
    async fn answer(&self, chat: i64, text: &str) -> SeenMessage {
        let wanted = |seen: &SeenMessage| seen.text == text;
        let found = self.api.wait_for_answer(chat, text, SOON, wanted).await;
        found.unwrap_or_else(|error| panic!("{error}; answers: {:?}", self.texts(chat)))
    }

    /// Waits for an answer that ends like this.
    async fn answer_ending(&self, chat: i64, end: &str) -> SeenMessage {
        let wanted = |seen: &SeenMessage| seen.text.ends_with(end);
        let found = self.api.wait_for_answer(chat, end, SOON, wanted).await;
        found.unwrap_or_else(|error| panic!("{error}; answers: {:?}", self.texts(chat)))
    }

    /// The texts of the bot in a chat.
    fn texts(&self, chat: i64) -> Vec<String> {
        let answers = self.api.answers(chat).into_iter();
        answers.map(|answer| answer.text).collect()
    }

    /// Ada says something in private and gets an answer: whatever came before was handled.
    async fn settle(&self, text: &str) {
        self.api.say(ADA, ADA, text);
        self.answer(ADA, &format!("echo: {text}")).await;
    }

    /// Waits until something is so.
    async fn until<T>(&self, what: &str, look: impl FnMut(&BotApi) -> Option<T>) -> T {
        let found = self.api.until(what, SOON, look).await;
        found.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until Telegram keeps no update any more.
    async fn confirmed(&self) {
        self.until("every update confirmed", |api| {
            (api.pending_count() == 0).then_some(())
        })
        .await;
    }

    /// The calls of a method to a chat.
    fn calls(&self, method: &str, chat: i64) -> Vec<BotApiCall> {
        let mut calls = self.api.calls_of(method);
        calls.retain(|call| call.chat_id() == Some(chat));
        calls
    }
}

/// A running relay.
struct Running {
    handle: RelayHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<ExitReason>,
}

impl Running {
    async fn status(&self) -> Status {
        self.handle.status().await.expect("the relay runs")
    }

    /// Waits until the status is as wanted.
    async fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        eventually(what, async || {
            let status = self.status().await;
            if wanted(&status) { Ok(status) } else { Err(status) }
        })
        .await
    }

    /// Ends it in order.
    async fn stop(self) {
        drop(self.stop);
        let ended = timeout(SOON, self.task).await.expect("an end in time").unwrap();
        assert_eq!(ended, ExitReason::Shutdown);
    }

    /// Cuts it off in the middle of whatever it does.
    async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Echoes, and keeps what it was given, with the bytes of the files.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<Noted>>>);

/// A message, and what its files hold.
type Noted = (TurnInput, Vec<Vec<u8>>);

impl Noting {
    fn inputs(&self) -> Vec<(TurnInput, Vec<Vec<u8>>)> {
        self.0.lock().unwrap().clone()
    }

    fn texts(&self) -> Vec<String> {
        let inputs = self.inputs().into_iter();
        inputs.map(|(input, _)| input.text).collect()
    }

    /// Waits for so many turns.
    async fn turns(&self, count: usize) -> Vec<(TurnInput, Vec<Vec<u8>>)> {
        eventually(&format!("{count} turns"), async || {
            let inputs = self.inputs();
            if inputs.len() >= count {
                Ok(inputs)
            } else {
                Err(self.texts())
            }
        })
        .await
    }
}

impl Agent for Noting {
    fn info(&self) -> AgentInfo {
        EchoAgent.info()
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        let files = turn
            .input
            .attachments
            .iter()
            .filter_map(|file| match &file.location {
                MediaLocation::File(path) => Some(std::fs::read(path).unwrap()),
                MediaLocation::Url(_) => None,
            });
        let noted = (turn.input.clone(), files.collect());
        self.0.lock().unwrap().push(noted);
        EchoAgent.run(turn)
    }
}

/// A parameter of a call as a number, however it was written.
fn number(call: &BotApiCall, name: &str) -> Option<i64> {
    match &call.params[name] {
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    }
}
