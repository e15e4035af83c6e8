//! What others may ask of a running relay.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::core::Core;
use super::metrics::Metrics;
use super::owed_op::OwedOp;
use super::sessions::SessionList;
use super::status::{AgentStatus, Staff, Status};
use super::transport::ChatInfo;
use crate::adapter::{ChatFacts, ChatId};
use crate::wire::SessionKey;

/// Questions and wishes that wait for the relay.
pub(super) const COMMANDS: usize = 64;

/// Messages sent unasked that may wait for the journal.
const MOST_UNASKED: usize = 1024;

/// A question or wish.
#[derive(Debug)]
pub(super) enum Command {
    Status(oneshot::Sender<Status>),
    StopTurn(SessionKey, oneshot::Sender<bool>),
    Sessions(usize, oneshot::Sender<SessionList>),
    Metrics(oneshot::Sender<Metrics>),
    Agents(oneshot::Sender<Staff>),
    Wake(oneshot::Sender<()>),
    Send(ChatName, String, oneshot::Sender<Result<(), SendError>>),
    OpenThread(String, String, oneshot::Sender<Option<String>>),
    ChatInfo(String, oneshot::Sender<ChatInfo>),
}

/// A chat by its id, on this platform or on whichever knows it.
#[derive(Debug)]
pub(super) struct ChatName {
    platform: Option<String>,
    chat: String,
}

/// Why a message was not taken for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Nothing is known of that chat, so its tenant cannot be named.
    #[error("this chat has never spoken here, so the connector would not know whose it is")]
    UnknownChat,
    /// There is nothing to send.
    #[error("the text is empty")]
    Empty,
    /// The journal is behind, and enough is waiting for it.
    #[error("the journal is behind; try again later")]
    Busy,
    /// The journal cannot hold it.
    #[error("the journal refused the message")]
    Refused,
    /// The relay is not running, or ended before the journal had the message.
    #[error("the relay is not running")]
    NotRunning,
}

/// A running relay, for those who did not start it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RelayHandle(pub(super) mpsc::Sender<Command>);

impl RelayHandle {
    /// How the relay stands; nothing when it is not running.
    pub async fn status(&self) -> Option<Status> {
        self.ask(Command::Status).await
    }

    /// The sessions that run or wait, those that run first, at most so many.
    pub async fn sessions(&self, limit: usize) -> Option<SessionList> {
        self.ask(|answer| Command::Sessions(limit, answer)).await
    }

    /// What was counted and measured so far.
    pub async fn metrics(&self) -> Option<Metrics> {
        self.ask(Command::Metrics).await
    }

    /// How the agents stand: all asked at once, and those that take longer than `within` told as silent. The relay
    /// goes on meanwhile.
    pub async fn agents(&self, within: Duration) -> Option<Vec<AgentStatus>> {
        Some(self.ask(Command::Agents).await?.health(within).await)
    }

    /// Dials at once if there is no connection; `false` when the relay is not running. May be called for every
    /// stranger's knock: dials keep their shortest distance.
    pub async fn wake(&self) -> bool {
        self.ask(Command::Wake).await.is_some()
    }

    /// Stops a session's turn, and no other; `false` when it has none. What waits in the session runs next.
    pub async fn stop_turn(&self, session: SessionKey) -> bool {
        self.ask(|answer| Command::StopTurn(session, answer))
            .await
            .unwrap_or(false)
    }

    /// Sends a message to a chat that has spoken before, by its id; also before the last restart. Returns once
    /// the journal has it: it goes out when the link is up, be it in a later run. Waits while the journal
    /// cannot be written.
    pub async fn send(&self, chat: &str, text: &str) -> Result<(), SendError> {
        self.send_in(None, chat, text).await
    }

    /// The same to a chat of this platform, where chats of several have the same id.
    pub async fn send_on(&self, platform: &str, chat: &str, text: &str) -> Result<(), SendError> {
        self.send_in(Some(platform.to_owned()), chat, text).await
    }

    async fn send_in(&self, platform: Option<String>, chat: &str, text: &str) -> Result<(), SendError> {
        let (chat, text) = (chat.to_owned(), text.to_owned());
        self.ask(|answer| Command::Send(ChatName { platform, chat }, text, answer))
            .await
            .unwrap_or(Err(SendError::NotRunning))
    }

    /// Opens a thread in a chat that has spoken before and gives the thread's id; nothing where the platform has
    /// no threads, the connector refuses, or there is no connection.
    pub async fn open_thread(&self, chat: &str, name: &str) -> Option<String> {
        let (chat, name) = (chat.to_owned(), name.to_owned());
        self.ask(|answer| Command::OpenThread(chat, name, answer))
            .await
            .flatten()
    }

    /// What a chat that has spoken before is called, and its type; remembered for a while. Nothing when the chat is
    /// not known or there is no connection.
    pub async fn chat_info(&self, chat: &str) -> Option<ChatInfo> {
        let chat = chat.to_owned();
        self.ask(|answer| Command::ChatInfo(chat, answer)).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.send(command(answer)).await.ok()?;
        answered.await.ok()
    }
}

impl Core {
    pub(super) fn take_command(&mut self, command: Command) {
        match command {
            Command::Status(answer) => {
                let _ = answer.send(self.status());
            }
            Command::Sessions(limit, answer) => {
                let _ = answer.send(self.session_list(limit));
            }
            Command::Metrics(answer) => {
                let _ = answer.send(self.metrics());
            }
            Command::Agents(answer) => {
                let _ = answer.send(self.staff());
            }
            Command::Wake(answer) => {
                self.wake();
                let _ = answer.send(());
            }
            Command::StopTurn(session, answer) => {
                let stopped = self.interrupt(&session, None);
                let _ = answer.send(stopped);
            }
            Command::Send(chat, text, answer) => {
                self.send_unasked(&chat, &text, answer);
            }
            Command::OpenThread(chat, name, answer) => self.open_thread(&chat, &name, answer),
            Command::ChatInfo(chat, answer) => self.inquire(&chat, answer),
        }
    }

    fn send_unasked(&mut self, chat: &ChatName, text: &str, asker: oneshot::Sender<Result<(), SendError>>) {
        match self.plan_unasked(chat, text) {
            Ok(ops) => self.owe(ops, Some(asker)),
            Err(error) => {
                let _ = asker.send(Err(error));
            }
        }
    }

    fn plan_unasked(&self, name: &ChatName, text: &str) -> Result<Vec<OwedOp>, SendError> {
        if text.trim().is_empty() {
            return Err(SendError::Empty);
        }
        if self.adding.len() >= MOST_UNASKED {
            return Err(SendError::Busy);
        }
        let named = name.platform.as_ref().map(|platform| ChatId {
            platform: platform.clone(),
            chat: name.chat.clone(),
        });
        let chat = named.as_ref().or_else(|| self.chats.find(&name.chat));
        let chat = chat.ok_or(SendError::UnknownChat)?;
        let facts = self.chats.facts(chat).ok_or(SendError::UnknownChat)?;
        let facts = ChatFacts {
            message_id: None,
            ..facts.clone()
        };
        Ok(self.plan(text, &SessionKey::from_text(""), chat, &facts))
    }
}
