//! A whole relay over a connector in memory, with a real journal.

use hermes_relay::agent::Agent;
use hermes_relay::config::{Durability, Settings};
use hermes_relay::relay::{
    BuildError, ExitReason, MemoryConnector, MemoryTransport, Record, Relay, RelayHandle, ReplyMode, Status,
};
use hermes_relay::store::OpenError;
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) use super::wait::SOON;
use super::wait::eventually;

/// A running relay.
pub(crate) struct Running {
    pub(crate) connector: MemoryConnector,
    pub(crate) handle: RelayHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<ExitReason>,
}

/// A relay with an agent of the test's own.
pub(crate) async fn start_with<A: Agent + Clone>(
    dir: &Path,
    agent: A,
    adjust: impl FnOnce(&mut Settings),
) -> Running {
    start_on(dir, agent, &CapabilityDescriptor::placeholder("discord"), adjust).await
}

/// The same on a platform of the test's own.
pub(crate) async fn start_on<A: Agent + Clone>(
    dir: &Path,
    agent: A,
    platform: &CapabilityDescriptor,
    adjust: impl FnOnce(&mut Settings),
) -> Running {
    start_answering(dir, agent, platform, ReplyMode::Apply, adjust).await
}

/// The same with a connector that answers so from the first op on.
pub(crate) async fn start_answering<A: Agent + Clone>(
    dir: &Path,
    agent: A,
    platform: &CapabilityDescriptor,
    answering: ReplyMode,
    adjust: impl FnOnce(&mut Settings),
) -> Running {
    let mut settings = Settings::embedded(dir);
    settings.streaming.first_hold_ms = 0;
    settings.journal.durability = Durability::Process;
    adjust(&mut settings);
    let (relay, connector) = eventually("the journal of the relay before is released", async || {
        let (transport, connector) = MemoryTransport::pair([platform.clone()]);
        connector.set_reply_mode(answering.clone());
        let built = Relay::builder(settings.clone())
            .agent("tested", agent.clone())
            .transport(Arc::new(transport))
            .build();
        match built {
            Ok(relay) => Some((relay, connector)),
            Err(BuildError::Journal(OpenError::InUse { .. })) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    let handle = relay.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
    let running = Running {
        connector,
        handle,
        stop,
        task,
    };
    running.seen("a connection", |seen| seen.connected).await;
    running
}

impl Running {
    /// Waits until the connector has seen what is wanted.
    pub(crate) async fn seen(&self, what: &str, wanted: impl FnMut(&Record) -> bool) -> Record {
        let seen = self.connector.wait_for(SOON, wanted).await;
        let now = || self.connector.record().borrow().clone();
        seen.unwrap_or_else(|| panic!("not seen: {what}; saw {:?}", now()))
    }

    /// Waits until a chat has at least so many messages, and returns them.
    pub(crate) async fn replies(&self, chat: &str, count: usize) -> Vec<String> {
        let what = format!("{count} messages to {chat}");
        let seen = self.seen(&what, |seen| seen.texts(chat).len() >= count).await;
        seen.texts(chat).into_iter().map(str::to_owned).collect()
    }

    /// Waits until the relay's status is as wanted.
    pub(crate) async fn wait_for_status(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        eventually(what, async || {
            let status = self.handle.status().await.expect("the relay runs");
            if wanted(&status) { Ok(status) } else { Err(status) }
        })
        .await
    }

    /// Waits until so many turns run.
    pub(crate) async fn wait_for_turns(&self, turns: usize) -> Status {
        self.wait_for_status(&format!("{turns} turns"), |status| status.turns_running == turns)
            .await
    }

    /// Delivers a message under a buffer id that is made of its chat and its id.
    pub(crate) async fn deliver(&self, chat: &str, id: &str, text: &str) {
        let buffer_id = format!("{chat}-{id}");
        let delivered = self
            .connector
            .deliver_buffered(&buffer_id, event(chat, id, text))
            .await;
        delivered.unwrap();
    }

    pub(crate) async fn interrupt(&self, chat: &str) {
        self.connector.interrupt(&session(chat), chat).await.unwrap();
    }

    /// Asks the relay to end, without waiting for it.
    pub(crate) fn ask_to_stop(self) -> Ending {
        drop(self.stop);
        Ending {
            connector: self.connector,
            task: self.task,
        }
    }

    /// Ends the relay in order.
    pub(crate) async fn stop(self) -> Record {
        self.ask_to_stop().ended().await
    }

    /// Cuts the relay off in the middle of whatever it does.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// A relay on its way to the end.
pub(crate) struct Ending {
    pub(crate) connector: MemoryConnector,
    task: JoinHandle<ExitReason>,
}

impl Ending {
    /// Waits for the end and gives what the connector saw.
    pub(crate) async fn ended(self) -> Record {
        let ended = timeout(SOON, self.task).await.expect("an end in time").unwrap();
        assert_eq!(ended, ExitReason::Shutdown);
        self.connector.record().borrow().clone()
    }
}

/// A direct message as it stands on the wire.
pub(crate) fn event(chat: &str, id: &str, text: &str) -> Value {
    json!({
        "text": text,
        "message_type": "text",
        "message_id": id,
        "source": {
            "platform": "discord",
            "chat_id": chat,
            "chat_type": "dm",
            "user_id": format!("user-of-{chat}"),
            "scope_id": "guild",
            "message_id": id,
        },
    })
}

/// The session of a direct chat.
pub(crate) fn session(chat: &str) -> String {
    format!("agent:main:discord:dm:{chat}")
}
