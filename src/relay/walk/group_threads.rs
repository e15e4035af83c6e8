//! Messages in groups that start threads: asking for the thread, and going on in it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::access::{EventKind, MessageTime};
use crate::adapter::stream::Priority;
use crate::adapter::{Chat, ChatId, move_to_thread};
use crate::link::Moment;
use crate::relay::effects::{AgentWaiter, Effect, HeldMessage, PlaceKey};
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::{EphemeralOp, OpBody, OpOwner};
use crate::relay::parts::access::Starter;
use crate::relay::parts::group_threads::ThreadPlace;
use crate::relay::parts::turns::decode_line;
use crate::session::TurnId;
use crate::store::InboxKind;

use super::command::route_input;

/// How long a message waits for its thread.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

impl EventLoop {
    /// A message in the thread that it belongs to; none while that is being opened.
    pub fn in_its_thread(&mut self, held: HeldMessage, now: Moment) -> Option<HeldMessage> {
        if held.message.kind != InboxKind::Inbound {
            return Some(held);
        }
        match self.group_threads.place(&held.event) {
            ThreadPlace::Thread(thread) => Some(self.enter_thread(held, &thread)),
            ThreadPlace::Awaited(key) => {
                self.group_threads.hold(key, held);
                None
            }
            ThreadPlace::Unknown(key) if self.starts_thread(&held, now) => {
                let chat = Chat::from(ChatId::from_source(&held.event.source));
                self.group_threads.hold(Arc::clone(&key), held);
                match self.unknown_project(&chat) {
                    Some(place) => self.read_project(place, AgentWaiter::Thread(key)),
                    None => self.open_thread(key),
                }
                None
            }
            ThreadPlace::AsWritten | ThreadPlace::Unknown(_) => Some(held),
        }
    }

    /// Whether a message is for an agent, on a platform where it starts a thread. Commands and answers to questions stay where they
    /// are written, and nobody without access, or over a limit, opens anything.
    fn starts_thread(&mut self, held: &HeldMessage, now: Moment) -> bool {
        let event = &held.event;
        let is_new = !event.is_edit && !event.is_deleted && !event.is_empty();
        if !is_new || !self.adapters.get(event.source.platform.as_str()).opens_threads() {
            return false;
        }
        let author = self.access.author(Starter::Message(&event.source));
        let response = self.response(&held.session, (event, &author), now);
        let may_start = response.is_none()
            && self.commands.of(event).is_none()
            && self.access.decide(&author, EventKind::Message).allowed;
        let time = MessageTime {
            now_ms: now.unix_ms,
            written_ms: event.written_ms(),
        };
        // Those that wait for their threads are not counted yet.
        let others = self.group_threads.alike(event);
        may_start && !self.access.would_exceed(&author, others, time)
    }

    /// Opens a thread for the message that waits for it.
    pub fn open_thread(&mut self, key: Arc<str>) {
        let Some(event) = self.group_threads.first(&key) else {
            return;
        };
        let chat = Chat::from(ChatId::from_source(&event.source));
        let project = self.agents.shown_project(&route_input(&chat));
        let adapter = self.adapters.get(&chat.id.platform);
        let action = adapter.open_thread(event, project.as_deref());
        self.effects.push(Effect::Queue(EphemeralOp {
            id: self.outbox.next_id(),
            body: OpBody::new(&adapter, chat.id.key().into(), &action),
            priority: Priority::Text,
            timeout: Some(OPEN_TIMEOUT),
            owner: OpOwner::GroupThread(key),
        }));
    }

    /// The thread of a message is there; without one it is answered where it was written.
    pub fn thread_answered(&mut self, key: Arc<str>, thread: Option<String>) {
        if thread.is_none() {
            tracing::warn!("cannot open a thread for a message; it is answered in the group");
        }
        let now = self.clock.now();
        for held in self.group_threads.opened(key, thread) {
            self.take_message(held, now);
        }
    }

    /// The same message as if it had been written in the thread.
    fn enter_thread(&mut self, mut held: HeldMessage, thread: &str) -> HeldMessage {
        let platform = &held.event.source.platform;
        let moved = serde_json::from_slice::<Value>(&held.message.line)
            .ok()
            .and_then(|mut frame| {
                let source = frame.get_mut("event")?.get_mut("source")?.as_object_mut()?;
                move_to_thread(source, platform, thread);
                let line = serde_json::to_vec(&frame).ok()?;
                let event = decode_line(InboxKind::Inbound, &line, self.chats.labels())?;
                Some((line, Box::new(event)))
            });
        if let Some((line, mut event)) = moved {
            held.session = self.chats.name(&mut event);
            held.message.line = line.into();
            held.event = event;
        }
        held
    }

    /// The place of a group whose project is not known.
    fn unknown_project(&self, group: &Chat) -> Option<PlaceKey> {
        self.agents.unknown_place(&route_input(group))
    }

    /// A thread that a message started has the project of its group. `false` while that is not known; it is read then, and the
    /// turn comes here again.
    pub fn inherit_project(&mut self, turn: TurnId, place: &PlaceKey, group: &Chat) -> bool {
        if let Some(unknown) = self.unknown_project(group) {
            self.read_project(unknown, AgentWaiter::Turn(turn));
            return false;
        }
        let project = self
            .agents
            .project(&route_input(group))
            .filter(|(_, is_routed)| !is_routed);
        let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
        let project = project.map(|(name, _)| name);
        self.agents.bind(Arc::clone(place), project, now_ms, effects);
        true
    }
}
