//! What others ask of chats through the relay: to open a thread, and what a chat is called.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;

use super::core::Core;
use super::egress::{Listener, PassingOp};
use super::transport::ChatInfo;
use crate::adapter::stream::Priority;
use crate::adapter::{ChatFacts, ChatId, open_thread};
use crate::link::SendResult;
use crate::wire::{Action, Outcome};

/// Chats whose name is remembered; beyond it, the one asked for first is forgotten.
const MOST_KNOWN: usize = 1024;
/// How long a name is taken as it was.
const FRESH: Duration = Duration::from_secs(600);

/// What chats are called, as far as it was asked.
#[derive(Debug, Default)]
pub(super) struct ChatInfos {
    known: HashMap<ChatId, (ChatInfo, Duration)>,
    order: VecDeque<ChatId>,
}

impl ChatInfos {
    fn find(&self, chat: &ChatId, now: Duration) -> Option<ChatInfo> {
        let (info, since) = self.known.get(chat)?;
        (now.saturating_sub(*since) < FRESH).then(|| info.clone())
    }

    fn learn(&mut self, chat: ChatId, info: ChatInfo, now: Duration) {
        if self.known.insert(chat.clone(), (info, now)).is_none() {
            self.order.push_back(chat);
        }
        while self.order.len() > MOST_KNOWN {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

impl Core {
    /// Opens a thread in a chat that has spoken before.
    pub(super) fn open_thread(&mut self, chat: &str, name: &str, asker: oneshot::Sender<Option<String>>) {
        let Some((chat, facts)) = self.known_chat(chat) else {
            return;
        };
        let descriptor = self.view.descriptors.for_platform(&chat.platform);
        if !descriptor.is_some_and(|descriptor| descriptor.supports_op("thread_create")) {
            return;
        }
        let (action, lane) = (open_thread(&chat, &facts, name), chat.key().into());
        self.pass(
            &chat,
            &lane,
            &action,
            Priority::Text,
            None,
            Listener::Opener(asker),
        );
    }

    /// Finds out what a chat is called; its id and `dm` where the connector cannot tell.
    pub(super) fn inquire(&mut self, chat: &str, asker: oneshot::Sender<ChatInfo>) {
        let Some((chat, _)) = self.known_chat(chat) else {
            return;
        };
        if let Some(info) = self.chat_infos.find(&chat, self.clock.mono()) {
            return drop(asker.send(info));
        }
        let descriptor = self.view.descriptors.for_platform(&chat.platform);
        if !descriptor.is_some_and(|descriptor| descriptor.supports_op("get_chat_info")) {
            return drop(asker.send(ChatInfo::unknown(&chat.chat)));
        }
        let action = Action::GetChatInfo {
            chat_id: chat.chat.clone(),
        };
        let lane = chat.key().into();
        let listener = Listener::Inquirer(chat.clone(), asker);
        self.pass(&chat, &lane, &action, Priority::Text, None, listener);
    }

    fn known_chat(&self, chat: &str) -> Option<(ChatId, ChatFacts)> {
        let chat = self.chats.find(chat)?;
        Some((chat.clone(), self.chats.facts(chat)?.clone()))
    }

    /// Answers whoever asked for this op; gives it back when nobody did.
    pub(super) fn tell_asker(&mut self, op: PassingOp, outcome: &SendResult) -> Option<PassingOp> {
        match op.listener {
            Listener::Opener(asker) => {
                let thread = match outcome {
                    SendResult::Answered(outcome) => match &**outcome {
                        Outcome::Applied(result) => result.thread_id.as_ref().or(result.message_id.as_ref()),
                        Outcome::Refused { .. } | Outcome::Unknown => None,
                    },
                    SendResult::NotSent(_) => None,
                };
                let _ = asker.send(thread.map(|thread| thread.as_str().to_owned()));
                None
            }
            Listener::Inquirer(chat, asker) => {
                let info = ChatInfo::read(&chat.chat, outcome);
                if matches!(outcome, SendResult::Answered(outcome) if matches!(**outcome, Outcome::Applied(_)))
                {
                    self.chat_infos.learn(chat, info.clone(), self.clock.mono());
                }
                let _ = asker.send(info);
                None
            }
            Listener::Turn(..) | Listener::Question(_) | Listener::Nobody => Some(op),
        }
    }
}
