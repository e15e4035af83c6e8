//! Where a process' updates and questions wait for the turn that they belong to.
//!
//! The task that reads a connection puts them in without waiting; pieces of text that lie next to each other become
//! one. Bounded: progress is dropped when [`MAILS`] wait; a turn of which more than [`BYTES`] wait has overrun, and no
//! more of it is taken.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::message::{METHOD_NOT_FOUND, RpcError};
use super::permission::cancelled;
use super::rpc::Listener;
use super::sessions::is_id;
use super::update::{Ear, commands, title};
use crate::agent::{AgentCommand, AgentEvent};

/// Mails that wait before progress is dropped.
const MAILS: usize = 1024;

/// Bytes of text and questions that wait before a turn has overrun.
const BYTES: usize = 16 * 1024 * 1024;

/// Titles of sessions that wait for their next turn; more are dropped.
const TITLES: usize = 256;

/// Pieces of text become one up to this length, in bytes.
const PIECE: usize = 64 * 1024;

/// Something for a turn.
#[derive(Debug, PartialEq)]
pub(super) enum Mail {
    /// The agent says something.
    Said(AgentEvent),
    /// The agent asks for a permission, under this name.
    Asked(Value, Value),
}

/// What waits for one turn.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    bell: Notify,
    overrun: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    ear: Ear,
    mails: VecDeque<Mail>,
    bytes: usize,
}

impl Mailbox {
    /// The next mail. Cancel-safe. One turn waits at a time.
    pub(super) async fn next(&self) -> Mail {
        loop {
            if let Some(mail) = self.take() {
                return mail;
            }
            self.bell.notified().await;
        }
    }

    /// The next mail, when there is one.
    pub(super) fn take(&self) -> Option<Mail> {
        let mut waiting = self.waiting();
        let mail = waiting.mails.pop_front()?;
        waiting.bytes -= weight(&mail);
        Some(mail)
    }

    /// Waits until more was said than can wait; nothing is taken from then on. Cancel-safe.
    pub(super) async fn overrun(&self) {
        self.overrun.cancelled().await;
    }

    fn hear(&self, update: &Value) {
        let events = self.waiting().ear.hear(update);
        for event in events {
            self.put(Mail::Said(event));
        }
    }

    fn put(&self, mail: Mail) {
        if self.overrun.is_cancelled() {
            return;
        }
        if let Err(Overrun) = self.waiting().put(mail) {
            self.overrun.cancel();
        }
        self.bell.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More was said than can wait.
struct Overrun;

impl Waiting {
    fn put(&mut self, mail: Mail) -> Result<(), Overrun> {
        let weight = weight(&mail);
        if self.bytes + weight > BYTES {
            return Err(Overrun);
        }
        if self.mails.len() >= MAILS && is_progress(&mail) {
            return Ok(());
        }
        self.bytes += weight;
        match (self.mails.back_mut(), mail) {
            (Some(Mail::Said(AgentEvent::Text(last))), Mail::Said(AgentEvent::Text(more)))
            | (Some(Mail::Said(AgentEvent::Thought(last))), Mail::Said(AgentEvent::Thought(more)))
                if last.len() + more.len() <= PIECE =>
            {
                last.push_str(&more);
            }
            (_, mail) => self.mails.push_back(mail),
        }
        Ok(())
    }
}

/// Whether a mail may be lost.
pub(super) fn is_progress(mail: &Mail) -> bool {
    match mail {
        Mail::Said(event) => !matches!(
            event,
            AgentEvent::Text(_)
                | AgentEvent::Replace(_)
                | AgentEvent::Break
                | AgentEvent::Notice(_)
                | AgentEvent::Title(_)
                | AgentEvent::Media(_)
        ),
        Mail::Asked(..) => false,
    }
}

fn weight(mail: &Mail) -> usize {
    match mail {
        Mail::Said(AgentEvent::Text(text) | AgentEvent::Thought(text)) => text.len(),
        Mail::Said(AgentEvent::Notice(text) | AgentEvent::Title(text)) => 256 + text.len(),
        Mail::Said(_) => 256,
        // Its name is the agent's choice, like what it asks.
        Mail::Asked(id, params) => 256 + id.to_string().len() + params.to_string().len(),
    }
}

/// Which session's updates go where.
#[derive(Debug)]
pub(super) struct Routes {
    sessions: Mutex<HashMap<String, Route>>,
    /// Titles that came between turns: agents think of them late.
    titles: Mutex<HashMap<String, String>>,
    commands: Arc<Mutex<Vec<AgentCommand>>>,
}

#[derive(Debug)]
enum Route {
    /// A turn runs.
    Turn(Arc<Mailbox>),
    /// The session is being continued: what comes is a replay, and only counted.
    Replay(u64),
}

/// A session's place in the routes; given up when dropped.
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
            commands,
        })
    }

    /// From now on this session's updates go into a mailbox.
    pub(super) fn turn(self: &Arc<Self>, id: &str) -> (Routed, Arc<Mailbox>) {
        let mailbox = Arc::new(Mailbox::default());
        if let Some(title) = self.titles().remove(id) {
            mailbox.put(Mail::Said(AgentEvent::Title(title)));
        }
        (self.route(id, Route::Turn(Arc::clone(&mailbox))), mailbox)
    }

    /// From now on this session's updates are only counted.
    pub(super) fn replay(self: &Arc<Self>, id: &str) -> Routed {
        self.route(id, Route::Replay(0))
    }

    fn route(self: &Arc<Self>, id: &str, route: Route) -> Routed {
        self.sessions().insert(id.to_owned(), route);
        Routed {
            routes: Arc::clone(self),
            id: id.to_owned(),
        }
    }

    fn keep_title(&self, id: &str, update: &Value) {
        let Some(title) = title(update).filter(|_| is_id(id)) else {
            return;
        };
        let mut titles = self.titles();
        if titles.len() < TITLES || titles.contains_key(id) {
            titles.insert(id.to_owned(), title);
        }
    }

    fn titles(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.titles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Route>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Routed {
    /// Updates that were counted.
    pub(super) fn replayed(&self) -> u64 {
        match self.routes.sessions().get(&self.id) {
            Some(Route::Replay(count)) => *count,
            Some(Route::Turn(_)) | None => 0,
        }
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        self.routes.sessions().remove(&self.id);
    }
}

impl Listener for Routes {
    fn notified(&self, method: &str, params: Value) {
        if method != "session/update" {
            return;
        }
        let update = &params["update"];
        if let Some(commands) = commands(update) {
            *self.commands.lock().unwrap_or_else(PoisonError::into_inner) = commands;
            return;
        }
        let id = params["sessionId"].as_str().unwrap_or_default();
        match self.sessions().get_mut(id) {
            Some(Route::Turn(mailbox)) => mailbox.hear(update),
            Some(Route::Replay(count)) => *count += 1,
            // Between turns: of a late piece of a turn that was given up, a cost, a title, only that is of use.
            None => self.keep_title(id, update),
        }
    }

    fn requested(&self, id: Value, method: &str, params: Value) -> Option<Result<Value, RpcError>> {
        if method != "session/request_permission" {
            return Some(Err(RpcError {
                code: METHOD_NOT_FOUND,
                message: format!("the relay has no method {}", super::update::one_line(method, 80)),
            }));
        }
        match self
            .sessions()
            .get(params["sessionId"].as_str().unwrap_or_default())
        {
            Some(Route::Turn(mailbox)) => {
                mailbox.put(Mail::Asked(id, params));
                None
            }
            Some(Route::Replay(_)) | None => Some(Ok(cancelled())),
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

    fn says(routes: &Routes, session: &str, text: &str) {
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
        routes.notified("session/update", json!({"sessionId": session, "update": update}));
    }

    fn text(text: &str) -> Mail {
        Mail::Said(AgentEvent::Text(text.to_owned()))
    }

    #[tokio::test]
    async fn each_turn_gets_its_own_in_order_and_pieces_become_one() {
        let routes = routes();
        let (_a, first) = routes.turn("a");
        let (_b, second) = routes.turn("b");
        for piece in ["1", "2"] {
            says(&routes, "a", piece);
            says(&routes, "b", "x");
        }
        assert_eq!(
            routes.requested(json!(0), "session/request_permission", json!({"sessionId": "a"})),
            None
        );
        says(&routes, "a", "3");
        assert_eq!(first.next().await, text("12"));
        assert_eq!(
            first.take(),
            Some(Mail::Asked(json!(0), json!({"sessionId": "a"})))
        );
        assert_eq!(first.take(), Some(text("3")));
        assert_eq!((first.take(), second.take()), (None, Some(text("xx"))));
        assert_eq!(first.waiting().bytes, 0);
    }

    #[test]
    fn a_replay_is_only_counted_and_nobody_hears_a_session_without_a_turn() {
        let routes = routes();
        let replay = routes.replay("a");
        says(&routes, "a", "old");
        says(&routes, "b", "old");
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
    fn what_waits_is_bounded_and_text_is_never_dropped_silently() {
        let routes = routes();
        let (_routed, mailbox) = routes.turn("a");
        for number in 0..10 * MAILS {
            let update = json!({"sessionUpdate": "tool_call", "toolCallId": number.to_string()});
            routes.notified("session/update", json!({"sessionId": "a", "update": update}));
        }
        assert_eq!(mailbox.waiting().mails.len(), MAILS);
        let chunk = "x".repeat(1024 * 1024);
        for _ in 0..100 {
            says(&routes, "a", &chunk);
        }
        assert!(mailbox.overrun.is_cancelled());
        let mut said = 0;
        while let Some(mail) = mailbox.take() {
            if let Mail::Said(AgentEvent::Text(text)) = &mail {
                said += text.len();
            }
        }
        says(&routes, "a", "more");
        assert_eq!(mailbox.take(), None, "an answer with a hole is no answer");
        assert!(said > BYTES / 2 && said <= BYTES);
    }

    #[test]
    fn questions_weigh_what_they_hold_whatever_they_are_called() {
        let routes = routes();
        let (_routed, mailbox) = routes.turn("a");
        let name = json!("x".repeat(1024 * 1024));
        for _ in 0..100 {
            let params = json!({"sessionId": "a"});
            assert_eq!(
                routes.requested(name.clone(), "session/request_permission", params),
                None
            );
        }
        assert!(mailbox.overrun.is_cancelled());
        assert!(mailbox.waiting().mails.len() <= BYTES / (1024 * 1024));
    }

    #[test]
    fn a_title_that_comes_between_turns_is_told_in_the_next() {
        let routes = routes();
        for number in 0..10 * TITLES {
            let update = json!({"sessionUpdate": "session_info_update", "title": "Of mice"});
            let params = json!({"sessionId": number.to_string(), "update": update});
            routes.notified("session/update", params);
        }
        assert_eq!(routes.titles().len(), TITLES);
        let told = Mail::Said(AgentEvent::Title("Of mice".to_owned()));
        assert_eq!(routes.turn("0").1.take(), Some(told));
        assert_eq!(routes.turn("0").1.take(), None);
    }
}
