//! Attachments through a whole relay: the embedded connector on one side, an agent of the test's own on the other.

mod diff;
mod incoming;
mod long_code;
mod outgoing;
mod voice;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::media::server::{Rig, access_minting, file, now};
use crate::support::dev::{Connector, ConnectorSettings, text_event};
use crate::support::wait::{SOON, eventually};
use hermes_relay::agent::{
    Agent, AgentEvent, AgentFuture, AgentInfo, Media, MediaLocation, Turn, TurnEnd, TurnInput,
};
use hermes_relay::config::{BotIdentity, Durability, Settings};
use hermes_relay::net::media::MediaSettings;
use hermes_relay::relay::{AgentSlot, ExitReason, Relay, RelayHandle};
use hermes_relay::wire::{SessionKey, TOKEN_TTL_SECS, UpgradeToken};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// An agent that does what the test says.
struct Scripted<F>(F);

impl<F, R> Agent for Scripted<F>
where
    F: Fn(Turn) -> R + Send + Sync + 'static,
    R: Future<Output = TurnEnd> + Send + 'static,
{
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "scripted".into(),
            steers: true,
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(self.0(turn))
    }

    fn reports_changes(&self) -> bool {
        true
    }

    /// Takes everything that it is handed, and does nothing with it.
    fn steer(&self, _session: &SessionKey, _input: &TurnInput) -> bool {
        true
    }
}

/// A relay at work beside its connector.
struct Running {
    platform: String,
    connector: Connector,
    handle: RelayHandle,
    state: TempDir,
    /// Where the agent works.
    work: TempDir,
    stop: oneshot::Sender<()>,
    task: JoinHandle<ExitReason>,
}

impl Running {
    async fn start(platform: &str, agent: impl Agent, adjust: impl FnOnce(&mut Settings)) -> Self {
        let work = tempfile::tempdir().unwrap();
        let member = AgentSlot {
            workdir: Some(work.path().to_owned()),
            ..AgentSlot::new(Arc::new(agent))
        };
        Self::start_member(platform, member, work, adjust).await
    }

    async fn start_member(
        platform: &str,
        member: AgentSlot,
        work: TempDir,
        adjust: impl FnOnce(&mut Settings),
    ) -> Self {
        let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut settings = Settings::embedded(state.path());
        settings.streaming.first_hold_ms = 0;
        let who = connector.credentials().unwrap();
        settings.connector.url = Some(connector.url());
        settings.connector.gateway_id = Some(who.gateway_id);
        settings.connector.secret = Some(who.secret);
        settings.connector.identities = vec![BotIdentity::new(platform, "")];
        settings.journal.durability = Durability::Process;
        settings.shutdown.drain_secs = 0;
        adjust(&mut settings);
        let relay = Relay::builder(settings)
            .agents([("tested".to_owned(), member)])
            .build()
            .unwrap();
        let handle = relay.handle();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
        connector.wait_connected(SOON).await.unwrap();
        Self {
            platform: platform.to_owned(),
            connector,
            handle,
            state,
            work,
            stop,
            task,
        }
    }

    /// A message with files, by address and mime type.
    fn deliver(&self, chat: &str, id: &str, text: &str, files: &[(&str, &str)]) {
        let mut event = text_event(&self.platform, chat, id, text);
        event["media_urls"] = files.iter().map(|(url, _)| json!(url)).collect();
        event["media"] = files
            .iter()
            .map(|(url, mime)| json!({"url": url, "mime": mime}))
            .collect();
        self.connector.deliver(&event).unwrap();
    }

    /// What the chat was told, once it is so much: the op and the text.
    async fn replies(&self, chat: &str, count: usize) -> Vec<(&'static str, String)> {
        let sent_texts = |connector: &Connector| {
            let sent = connector.sent_messages().into_iter();
            let sent = sent.filter(|sent| sent.chat_id == chat);
            sent.map(|sent| (sent.op, sent.text)).collect::<Vec<_>>()
        };
        let what = format!("{count} messages to {chat}");
        self.connector
            .until(&what, SOON, |connector| {
                Some(sent_texts(connector)).filter(|sent_texts| sent_texts.len() >= count)
            })
            .await
            .unwrap()
    }

    /// The bytes of a file that the connector got.
    async fn uploaded(&self, source_url: &str) -> Vec<u8> {
        let who = self.connector.credentials().unwrap();
        let access = access_minting(&self.connector.url(), move || {
            let (id, secret) = (&who.gateway_id, &who.secret);
            Some(UpgradeToken::mint(id, secret, TOKEN_TTL_SECS, now()))
        });
        let rig = Rig::with(MediaSettings::default(), access, |room| room);
        let (received, _fetched) = rig.fetch_one(source_url).await;
        std::fs::read(file(&received)).unwrap()
    }

    async fn wait_for_turns(&self, turns: usize) {
        eventually("so many turns", async || {
            self.handle.status().await.unwrap().turns_running == turns
        })
        .await;
    }

    fn folder(&self) -> PathBuf {
        self.state.path().join("media")
    }

    /// Puts a file where the agent works.
    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.work.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Ends the relay in order; nothing of any message is left on the disk.
    async fn stop(self) {
        let folder = self.folder();
        drop(self.stop);
        timeout(SOON, self.task).await.unwrap().unwrap();
        assert_eq!(entries(&folder), 0);
    }
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// What an agent was given: its input, and the bytes of the files in it.
type Given = (TurnInput, Vec<Vec<u8>>);

/// An agent that tells the test what it is given, and then does what the message says: `wait` for its end, else
/// answer.
fn reader() -> (impl Agent, mpsc::Receiver<Given>) {
    let (sender, given) = mpsc::channel(64);
    let agent = Scripted(move |turn: Turn| {
        let sender = sender.clone();
        async move {
            let bytes = turn
                .input
                .attachments
                .iter()
                .filter_map(|one| match &one.location {
                    MediaLocation::File(path) => Some(std::fs::read(path).unwrap()),
                    MediaLocation::Url(_) => None,
                });
            let given = (turn.input.clone(), bytes.collect());
            sender.send(given).await.unwrap();
            if turn.input.text == "wait" {
                turn.cancel.cancelled().await;
                return TurnEnd::Cancelled { confirmed: true };
            }
            turn.events.text(format!("read {}", turn.input.text)).await;
            TurnEnd::Completed
        }
    });
    (agent, given)
}

async fn next(given: &mut mpsc::Receiver<Given>) -> Given {
    timeout(SOON, given.recv()).await.unwrap().unwrap()
}

fn media(location: MediaLocation, caption: &str) -> AgentEvent {
    AgentEvent::Media(Media {
        location,
        caption: caption.into(),
        kind: None,
        name: None,
    })
}
