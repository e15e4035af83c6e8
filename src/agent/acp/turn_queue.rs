//! Queues of updates and permission requests per turn.
//!
//! The reading task enqueues without waiting; adjacent text chunks are joined. Bounded: progress is dropped beyond
//! [`MAX_ITEMS`]; beyond [`MAX_BYTES`] the queue overflows and takes nothing more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::message::{METHOD_NOT_FOUND, RpcError, SkippedMessage};
use super::permission::cancelled;
use super::preferences::{KnownOptions, SessionOptions};
use super::prompt::StopCause;
use super::rpc::MessageHandler;
use super::sessions::is_id;
use super::update::{UpdateReader, commands, title};
use crate::agent::{AgentCommand, AgentEvent};

/// Maximum queued items before progress is dropped.
const MAX_ITEMS: usize = 1024;

/// Maximum queued bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Maximum titles kept for the next turn.
const MAX_TITLES: usize = 256;

/// Maximum size of a joined chunk, in bytes.
const MAX_CHUNK_BYTES: usize = 64 * 1024;

/// An item for a turn.
#[derive(Debug, PartialEq)]
pub(super) enum QueuedItem {
    /// An event of the agent.
    Event(AgentEvent),
    /// A permission request, with its id and parameters.
    Permission(Value, Value),
    /// The agent does not wait for the request with this id any more.
    Withdrawn(Value),
}

/// The queue of a turn.
#[derive(Debug, Default)]
pub(super) struct TurnQueue {
    waiting: Mutex<QueuedItems>,
    arrived: Notify,
    overflow: CancellationToken,
    /// Cancelled when something could not be read that may have been for the turn.
    unread: CancellationToken,
}

/// What could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lost {
    /// Everything was read.
    #[default]
    Nothing,
    /// A request or progress.
    Progress,
    /// Some of the answer.
    Text,
}

#[derive(Debug, Default)]
struct QueuedItems {
    reader: UpdateReader,
    items: VecDeque<QueuedItem>,
    bytes: usize,
    lost: Lost,
}

impl TurnQueue {
    /// The next item. Cancel-safe. One turn waits at a time.
    pub(super) async fn next(&self) -> QueuedItem {
        loop {
            if let Some(item) = self.take() {
                return item;
            }
            self.arrived.notified().await;
        }
    }

    /// The next item, when there is one.
    pub(super) fn take(&self) -> Option<QueuedItem> {
        let mut waiting = self.waiting();
        let item = waiting.items.pop_front()?;
        waiting.bytes -= size(&item);
        Some(item)
    }

    /// Waits until the turn cannot get its answer any more. Cancel-safe.
    pub(super) async fn broken(&self) -> StopCause {
        tokio::select! {
            biased;
            () = self.overflow.cancelled() => StopCause::Overflow,
            () = self.unread.cancelled() => StopCause::Unread,
        }
    }

    /// What of the turn could not be read.
    pub(super) fn lost(&self) -> Lost {
        self.waiting().lost
    }

    fn lose(&self, lost: Lost) {
        let mut waiting = self.waiting();
        waiting.lost = waiting.lost.max(lost);
    }

    fn read(&self, update: &Value) {
        let events = self.waiting().reader.read(update);
        for event in events {
            self.put(QueuedItem::Event(event));
        }
    }

    fn put(&self, item: QueuedItem) {
        if self.overflow.is_cancelled() {
            return;
        }
        if let Err(Overflow) = self.waiting().put(item) {
            self.overflow.cancel();
        }
        self.arrived.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, QueuedItems> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue has no room for a further item.
struct Overflow;

impl QueuedItems {
    fn put(&mut self, item: QueuedItem) -> Result<(), Overflow> {
        let size = size(&item);
        if self.bytes + size > MAX_BYTES {
            return Err(Overflow);
        }
        if self.items.len() >= MAX_ITEMS && is_progress(&item) {
            return Ok(());
        }
        self.bytes += size;
        match (self.items.back_mut(), item) {
            (Some(QueuedItem::Event(AgentEvent::Text(last))), QueuedItem::Event(AgentEvent::Text(more)))
            | (
                Some(QueuedItem::Event(AgentEvent::Thought(last))),
                QueuedItem::Event(AgentEvent::Thought(more)),
            ) if last.len() + more.len() <= MAX_CHUNK_BYTES => {
                last.push_str(&more);
            }
            (_, item) => self.items.push_back(item),
        }
        Ok(())
    }
}

/// Whether an item may be dropped.
pub(super) fn is_progress(item: &QueuedItem) -> bool {
    match item {
        QueuedItem::Event(event) => !matches!(
            event,
            AgentEvent::Text(_)
                | AgentEvent::Replace(_)
                | AgentEvent::Break
                | AgentEvent::Notice(_)
                | AgentEvent::Title(_)
                | AgentEvent::Media(_)
                | AgentEvent::Changed(_)
        ),
        QueuedItem::Permission(..) | QueuedItem::Withdrawn(_) => false,
    }
}

fn size(item: &QueuedItem) -> usize {
    match item {
        QueuedItem::Event(AgentEvent::Text(text) | AgentEvent::Thought(text)) => text.len(),
        QueuedItem::Event(AgentEvent::Notice(text) | AgentEvent::Title(text)) => 256 + text.len(),
        QueuedItem::Event(AgentEvent::Changed(change)) => {
            let texts = change.old.iter().chain(&change.new);
            256 + change.path.len() + texts.map(String::len).sum::<usize>()
        }
        QueuedItem::Event(_) => 256,
        // The id is the agent's choice, like the parameters.
        QueuedItem::Permission(id, params) => 256 + id.to_string().len() + params.to_string().len(),
        QueuedItem::Withdrawn(id) => 256 + id.to_string().len(),
    }
}

/// Routes updates by session.
#[derive(Debug)]
pub(super) struct Routes {
    sessions: Mutex<HashMap<String, SessionRoute>>,
    /// Titles received between turns.
    titles: Mutex<HashMap<String, String>>,
    options: Mutex<KnownOptions>,
    commands: Arc<Mutex<Vec<AgentCommand>>>,
}

#[derive(Debug)]
enum SessionRoute {
    /// A turn runs.
    Turn(Arc<TurnQueue>),
    /// The session is being resumed: updates are a replay and only counted.
    Replay(u64),
}

/// Routing of a session; ends on drop.
#[derive(Debug)]
pub(super) struct Routed {
    routes: Arc<Routes>,
    id: String,
}

impl Routes {
    /// Routes that note the agent's commands there.
    pub(super) fn new(commands: Arc<Mutex<Vec<AgentCommand>>>) -> Arc<Self> {
        Arc::new(Self {
            sessions: Mutex::default(),
            titles: Mutex::default(),
            options: Mutex::default(),
            commands,
        })
    }

    /// Routes a session's updates to a queue.
    pub(super) fn turn(self: &Arc<Self>, id: &str) -> (Routed, Arc<TurnQueue>) {
        let queue = Arc::new(TurnQueue::default());
        if let Some(title) = self.titles().remove(id) {
            queue.put(QueuedItem::Event(AgentEvent::Title(title)));
        }
        (self.route(id, SessionRoute::Turn(Arc::clone(&queue))), queue)
    }

    /// Counts a session's updates.
    pub(super) fn replay(self: &Arc<Self>, id: &str) -> Routed {
        self.route(id, SessionRoute::Replay(0))
    }

    /// What a session offers.
    pub(super) fn options(&self, id: &str) -> SessionOptions {
        self.known_options().get(id)
    }

    /// A session was opened, or somebody chose something in it.
    pub(super) fn set_options(&self, id: &str, options: SessionOptions) {
        self.known_options().set(id, options);
    }

    fn known_options(&self) -> MutexGuard<'_, KnownOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn route(self: &Arc<Self>, id: &str, route: SessionRoute) -> Routed {
        self.sessions().insert(id.to_owned(), route);
        Routed {
            routes: Arc::clone(self),
            id: id.to_owned(),
        }
    }

    fn save_title(&self, id: &str, update: &Value) {
        let Some(title) = title(update).filter(|_| is_id(id)) else {
            return;
        };
        let mut titles = self.titles();
        if titles.len() < MAX_TITLES || titles.contains_key(id) {
            titles.insert(id.to_owned(), title);
        }
    }

    /// Does something with the queue of a session, or with all if it is not known which session it is.
    fn each_turn(&self, params: &Value, act: impl Fn(&TurnQueue)) {
        let sessions = self.sessions();
        let id = params["sessionId"].as_str();
        for (_, route) in sessions
            .iter()
            .filter(|(other, _)| id.is_none_or(|id| id == *other))
        {
            if let SessionRoute::Turn(queue) = route {
                act(queue);
            }
        }
    }

    fn titles(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.titles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, SessionRoute>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Routed {
    /// Updates that were counted.
    pub(super) fn replayed(&self) -> u64 {
        match self.routes.sessions().get(&self.id) {
            Some(SessionRoute::Replay(count)) => *count,
            Some(SessionRoute::Turn(_)) | None => 0,
        }
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        self.routes.sessions().remove(&self.id);
    }
}

impl MessageHandler for Routes {
    fn notified(&self, method: &str, params: Value) {
        match method {
            "session/update" => {}
            // It does not say which session the request was about.
            "$/cancel_request" => {
                let id = &params["requestId"];
                return self.each_turn(&Value::Null, |queue| queue.put(QueuedItem::Withdrawn(id.clone())));
            }
            _ => return,
        }
        let update = &params["update"];
        if let Some(commands) = commands(update) {
            *self.commands.lock().unwrap_or_else(PoisonError::into_inner) = commands;
            return;
        }
        let id = params["sessionId"].as_str().unwrap_or_default();
        self.known_options().update(id, update);
        match self.sessions().get_mut(id) {
            Some(SessionRoute::Turn(queue)) => queue.read(update),
            Some(SessionRoute::Replay(count)) => *count += 1,
            // Between turns only titles matter.
            None => self.save_title(id, update),
        }
    }

    fn requested(&self, id: Value, method: &str, params: Value) -> Option<Result<Value, RpcError>> {
        if method != "session/request_permission" {
            return Some(Err(RpcError {
                code: METHOD_NOT_FOUND,
                message: format!("the relay has no method {}", crate::text::one_line(method, 80)),
            }));
        }
        match self
            .sessions()
            .get(params["sessionId"].as_str().unwrap_or_default())
        {
            Some(SessionRoute::Turn(queue)) => {
                queue.put(QueuedItem::Permission(id, params));
                None
            }
            Some(SessionRoute::Replay(_)) | None => Some(Ok(cancelled())),
        }
    }

    fn skipped(&self, message: &SkippedMessage) {
        match message {
            // Whoever waits for it is told.
            SkippedMessage::Answer { .. } => {}
            SkippedMessage::Request { params, .. } => {
                self.each_turn(params, |queue| queue.lose(Lost::Progress));
            }
            SkippedMessage::Notification { method, params } if method == "session/update" => {
                let id = params["sessionId"].as_str().unwrap_or_default();
                if let Some(SessionRoute::Replay(count)) = self.sessions().get_mut(id) {
                    *count += 1;
                }
                let update = &params["update"];
                let lost = match (
                    update["sessionUpdate"].as_str(),
                    update["content"]["type"].as_str(),
                ) {
                    (Some("agent_message_chunk") | None, Some("text" | "resource_link") | None) => Lost::Text,
                    _ => Lost::Progress,
                };
                self.each_turn(params, |queue| queue.lose(lost));
            }
            // It may have been a request that nobody answers now.
            SkippedMessage::Notification { params, .. } => {
                self.each_turn(params, |queue| queue.unread.cancel());
            }
            // It may have been anything.
            SkippedMessage::Unknown => self.each_turn(&Value::Null, |queue| queue.unread.cancel()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn routes() -> Arc<Routes> {
        Routes::new(Arc::default())
    }

    fn send_text(routes: &Routes, session: &str, text: &str) {
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
        routes.notified("session/update", json!({"sessionId": session, "update": update}));
    }

    fn text(text: &str) -> QueuedItem {
        QueuedItem::Event(AgentEvent::Text(text.to_owned()))
    }

    #[tokio::test]
    async fn each_turn_gets_its_own_in_order_and_pieces_become_one() {
        let routes = routes();
        let (_a, first) = routes.turn("a");
        let (_b, second) = routes.turn("b");
        for piece in ["1", "2"] {
            send_text(&routes, "a", piece);
            send_text(&routes, "b", "x");
        }
        assert_eq!(
            routes.requested(json!(0), "session/request_permission", json!({"sessionId": "a"})),
            None
        );
        send_text(&routes, "a", "3");
        assert_eq!(first.next().await, text("12"));
        assert_eq!(
            first.take(),
            Some(QueuedItem::Permission(json!(0), json!({"sessionId": "a"})))
        );
        assert_eq!(first.take(), Some(text("3")));
        assert_eq!((first.take(), second.take()), (None, Some(text("xx"))));
        assert_eq!(first.waiting().bytes, 0);
    }

    #[test]
    fn a_replay_is_only_counted_and_a_session_without_a_turn_is_ignored() {
        let routes = routes();
        let replay = routes.replay("a");
        send_text(&routes, "a", "old");
        send_text(&routes, "b", "old");
        assert_eq!(replay.replayed(), 1);
        assert_eq!(routes.turn("b").1.take(), None);
        drop(replay);
        assert!(routes.sessions().is_empty());
        let asked = routes.requested(json!(1), "session/request_permission", json!({"sessionId": "a"}));
        assert_eq!(asked, Some(Ok(cancelled())));
        let other = routes.requested(json!(1), "fs/read_text_file", json!({}));
        assert!(matches!(
            other,
            Some(Err(RpcError {
                code: METHOD_NOT_FOUND,
                ..
            }))
        ));
    }

    #[test]
    fn what_cannot_be_read_is_noted_in_the_turns_that_it_may_be_for() {
        let update = |session: Value, kind: &str| SkippedMessage::Notification {
            method: "session/update".to_owned(),
            params: json!({"sessionId": session, "update": {"sessionUpdate": kind}}),
        };
        let picture = SkippedMessage::Notification {
            method: "session/update".to_owned(),
            params: json!({"sessionId": "a", "update": {
                "sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": null}}}),
        };
        let other = |params| SkippedMessage::Notification {
            method: "session/request_permission".to_owned(),
            params,
        };
        let request = SkippedMessage::Request {
            id: json!(1),
            params: json!({"sessionId": "a"}),
        };
        let text = "agent_message_chunk";
        for (message, lost, is_unread) in [
            (update(json!("a"), text), [Lost::Text, Lost::Nothing], [false; 2]),
            (
                update(json!("a"), "tool_call"),
                [Lost::Progress, Lost::Nothing],
                [false; 2],
            ),
            (update(Value::Null, text), [Lost::Text, Lost::Text], [false; 2]),
            (update(json!("c"), text), [Lost::Nothing; 2], [false; 2]),
            (request, [Lost::Progress, Lost::Nothing], [false; 2]),
            (picture, [Lost::Progress, Lost::Nothing], [false; 2]),
            (SkippedMessage::Answer { id: 1 }, [Lost::Nothing; 2], [false; 2]),
            (
                other(json!({"sessionId": "a"})),
                [Lost::Nothing; 2],
                [true, false],
            ),
            (other(Value::Null), [Lost::Nothing; 2], [true; 2]),
            (SkippedMessage::Unknown, [Lost::Nothing; 2], [true; 2]),
        ] {
            let routes = routes();
            let (_a, first) = routes.turn("a");
            let (_b, second) = routes.turn("b");
            let replay = routes.replay("c");
            routes.skipped(&message);
            assert_eq!([first.lost(), second.lost()], lost, "{message:?}");
            let unread = [first, second].map(|queue| queue.unread.is_cancelled());
            assert_eq!(unread, is_unread, "{message:?}");
            let counted = u64::from(message == update(json!("c"), text));
            assert_eq!(replay.replayed(), counted, "{message:?}");
        }
    }

    #[test]
    fn what_waits_is_bounded_and_text_is_never_dropped_silently() {
        let routes = routes();
        let (_routed, queue) = routes.turn("a");
        for number in 0..10 * MAX_ITEMS {
            let update = json!({"sessionUpdate": "tool_call", "toolCallId": number.to_string()});
            routes.notified("session/update", json!({"sessionId": "a", "update": update}));
        }
        assert_eq!(queue.waiting().items.len(), MAX_ITEMS);
        let chunk = "x".repeat(1024 * 1024);
        for _ in 0..100 {
            send_text(&routes, "a", &chunk);
        }
        assert!(queue.overflow.is_cancelled());
        let mut length = 0;
        while let Some(item) = queue.take() {
            if let QueuedItem::Event(AgentEvent::Text(text)) = &item {
                length += text.len();
            }
        }
        send_text(&routes, "a", "more");
        assert_eq!(queue.take(), None, "an answer with a hole is no answer");
        assert!(length > MAX_BYTES / 2 && length <= MAX_BYTES);
    }

    #[test]
    fn questions_weigh_what_they_hold_whatever_they_are_called() {
        let routes = routes();
        let (_routed, queue) = routes.turn("a");
        let name = json!("x".repeat(1024 * 1024));
        for _ in 0..100 {
            let params = json!({"sessionId": "a"});
            assert_eq!(
                routes.requested(name.clone(), "session/request_permission", params),
                None
            );
        }
        assert!(queue.overflow.is_cancelled());
        assert!(queue.waiting().items.len() <= MAX_BYTES / (1024 * 1024));
    }

    #[test]
    fn a_title_between_turns_is_reported_in_the_next() {
        let routes = routes();
        for number in 0..10 * MAX_TITLES {
            let update = json!({"sessionUpdate": "session_info_update", "title": "Of mice"});
            let params = json!({"sessionId": number.to_string(), "update": update});
            routes.notified("session/update", params);
        }
        assert_eq!(routes.titles().len(), MAX_TITLES);
        let item = QueuedItem::Event(AgentEvent::Title("Of mice".to_owned()));
        assert_eq!(routes.turn("0").1.take(), Some(item));
        assert_eq!(routes.turn("0").1.take(), None);
    }
}
