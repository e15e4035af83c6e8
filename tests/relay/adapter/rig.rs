//! A relay and a connector that plays one platform, with an agent made for the test.

use std::sync::Arc;
use std::time::Duration;

use crate::support::dev::FrameKinds as _;
use crate::support::dev::{Connector, ConnectorSettings, SentMessage, text_event};
use crate::support::scripted_agent::ScriptedAgent;
pub(crate) use crate::support::wait::SOON;
use crate::support::wait::eventually;
use hermes_relay::agent::{AgentCommand, TurnEnd};
use hermes_relay::config::{BotIdentity, Settings};
use hermes_relay::relay::{Credentials, ExitReason, Relay, RelayHandle};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// Says these pieces, `pause` apart.
pub(crate) fn streams(pieces: Vec<String>, pause: Duration) -> ScriptedAgent {
    ScriptedAgent::sharing(&Arc::new(pieces), move |turn, pieces| async move {
        for piece in pieces.iter() {
            turn.events.text(piece.clone()).await;
            tokio::time::sleep(pause).await;
        }
        TurnEnd::Completed
    })
}

pub(crate) struct Rig {
    pub(crate) connector: Connector,
    pub(crate) handle: RelayHandle,
    platform: String,
    stop: Arc<Notify>,
    running: JoinHandle<ExitReason>,
    _dir: tempfile::TempDir,
}

/// Starts both ends and waits until they are connected.
pub(crate) async fn start(platform: &str, agent: ScriptedAgent, tune: impl FnOnce(&mut Settings)) -> Rig {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(dir.path());
    settings.streaming.first_hold_ms = 0;
    settings.connector.url = Some(connector.url());
    settings.connector.identities = vec![BotIdentity::new(platform, "bot-1")];
    settings.link.backoff_min_ms = 20;
    settings.streaming.interval_ms = 40;
    settings.streaming.typing_after_ms = 60;
    settings.streaming.typing_every_ms = 100;
    settings.budget.per_minute = 6000;
    settings.budget.burst = 200;
    tune(&mut settings);
    let known = connector.credentials().map(|known| Credentials {
        gateway_id: known.gateway_id,
        secret: known.secret,
    });
    let (_, credentials) = watch::channel(known);
    let command = AgentCommand {
        name: "play".to_owned(),
        description: "play something".to_owned(),
    };
    let relay = Relay::builder(settings)
        .agent("player", agent.with_commands(vec![command]))
        .credentials(credentials)
        .build()
        .unwrap();
    let handle = relay.handle();
    let stop = Arc::new(Notify::new());
    let asked = Arc::clone(&stop);
    let running = tokio::spawn(relay.run(async move { asked.notified().await }));
    connector.wait_connected(SOON).await.unwrap();
    Rig {
        connector,
        handle,
        platform: platform.to_owned(),
        stop,
        running,
        _dir: dir,
    }
}

impl Rig {
    /// Somebody writes in a chat.
    pub(crate) fn deliver(&self, chat: &str, id: &str, text: &str) {
        self.deliver_event(&text_event(&self.platform, chat, id, text));
    }

    pub(crate) fn deliver_event(&self, event: &Value) {
        self.connector.deliver(event).unwrap();
    }

    /// Waits until nothing runs and nothing is pending.
    pub(crate) async fn is_quiet(&self, turns: u64) {
        eventually("nothing runs and nothing is pending", async || {
            let status = self.handle.status().await.expect("the relay runs");
            let tally = &status.tally;
            let ended = tally.turns_done + tally.turns_stopped + tally.turns_failed;
            let at_rest =
                status.turns_running + status.ends_uncommitted + status.ops_durable + status.ops_ephemeral
                    == 0;
            if ended >= turns && at_rest {
                Ok(())
            } else {
                Err(status)
            }
        })
        .await;
    }

    /// What a person sees in a chat: its messages now.
    pub(crate) fn shown(&self, chat: &str) -> Vec<SentMessage> {
        let sent = self.connector.sent_messages();
        sent.into_iter()
            .filter(|message| message.chat_id == chat && !message.deleted)
            .collect()
    }

    /// The same as texts.
    pub(crate) fn texts(&self, chat: &str) -> Vec<String> {
        self.shown(chat).into_iter().map(|message| message.text).collect()
    }

    /// The ops that the connector was asked for, in order.
    pub(crate) fn asked_for(&self) -> Vec<(String, Value)> {
        let outbound = self
            .connector
            .frames()
            .into_iter()
            .filter(|frame| frame.is_from_gateway("outbound"));
        outbound
            .map(|frame| {
                let action = frame.json()["action"].clone();
                (action["op"].as_str().unwrap_or_default().to_owned(), action)
            })
            .collect()
    }

    /// The ops of one name.
    pub(crate) fn ops(&self, op: &str) -> Vec<Value> {
        let named = self.asked_for().into_iter().filter(|(name, _)| name == op);
        named.map(|(_, action)| action).collect()
    }

    pub(crate) async fn stop(self) {
        self.stop.notify_one();
        assert_eq!(self.running.await.unwrap(), ExitReason::Shutdown);
        self.connector.stop().await;
    }
}
