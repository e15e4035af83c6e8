//! The fake Bot API, with a script for its calls.

use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use hermes_relay::dev::{self, BotApiNotSeen, BotApiSettings, QueuedUpdate, unix_now};
use serde_json::{Value, json};

use super::bot_api_calls::{self, BotApiCall, BotApiRule, CallScript, Front};
use super::flood_control::{FloodLimits, FloodViolation};
use super::seen::{self, SeenDraft, SeenMessage, SeenPress};
use super::server::{Server, bind};

/// How long an update waits, in seconds.
const LIFETIME_SECS: i64 = 24 * 60 * 60;

/// A fake Bot API on 127.0.0.1.
pub(crate) struct BotApi {
    inner: dev::BotApi,
    server: Server,
    pub(super) front: Front,
    pub(super) presses: Mutex<Vec<SeenPress>>,
}

impl Deref for BotApi {
    type Target = dev::BotApi;

    fn deref(&self) -> &dev::BotApi {
        &self.inner
    }
}

impl BotApi {
    pub(crate) async fn start(settings: BotApiSettings) -> io::Result<Self> {
        let (listener, addr) = bind(settings.port).await?;
        let inner = dev::BotApi::new(settings, addr);
        let front = Front {
            hub: Arc::clone(&inner.hub),
            script: Arc::new(Mutex::new(CallScript::default())),
            repeat_set: Arc::default(),
        };
        let layer = from_fn_with_state(front.clone(), bot_api_calls::handle);
        let server = Server::start(
            listener,
            addr,
            inner.router().layer(layer),
            inner.hub.stop.clone(),
        );
        Ok(Self {
            inner,
            server,
            front,
            presses: Mutex::default(),
        })
    }

    /// Closes the port and cuts every connection. The port is not given to anybody else; chats and updates stay.
    pub(crate) async fn take_down(&self) {
        self.server.take_down().await;
    }

    /// Takes [`take_down`](Self::take_down) back, on the same port.
    pub(crate) async fn bring_up(&self) -> io::Result<()> {
        self.server.bring_up().await
    }

    /// The bot's id.
    pub(crate) fn bot_id(&self) -> i64 {
        self.hub.lock().bot.id
    }
}

/// What goes wrong.
impl BotApi {
    /// Adds a rule for what goes wrong.
    pub(crate) fn script(&self, rule: BotApiRule) {
        self.front.lock().rules.add(rule);
    }

    /// Takes every rule away.
    pub(crate) fn clear_script(&self) {
        self.front.lock().rules.clear();
    }

    /// Refuses the token from now on, or accepts it again.
    pub(crate) fn set_revoked(&self, is_revoked: bool) {
        self.front.lock().is_revoked = is_revoked;
    }

    /// Holds calls to limits from now on; `None` holds them to none.
    pub(crate) fn set_flood_limits(&self, limits: Option<FloodLimits>) {
        self.front.lock().flood.set(limits);
    }

    /// Ends the poll that waits, as another poller with the same token does. Returns whether one waited.
    pub(crate) fn steal_poll(&self) -> bool {
        let why = "terminated by other getUpdates request; make sure that only one bot instance is running";
        self.hub.change(|state| state.end_poll(why))
    }

    /// Gives the last `count` delivered updates once more with the next poll.
    pub(crate) fn repeat_updates(&self, count: usize) {
        self.front.lock().repeat = count;
        self.front.repeat_set.notify_waiters();
    }

    /// Turns the next `count` batches around that have several updates.
    pub(crate) fn reverse_batches(&self, count: usize) {
        self.front.lock().reverse = count;
    }

    /// Lets the ids of updates go on from here, as after a quiet week. Refused while updates wait.
    pub(crate) fn restart_update_ids(&self, id: i64) -> bool {
        self.hub.change(|state| {
            let is_quiet = state.updates.queue.is_empty();
            if is_quiet {
                state.updates.next_id = id;
            }
            is_quiet
        })
    }

    /// Makes updates that wait and messages older.
    pub(crate) fn age(&self, by: Duration) {
        let seconds = i64::try_from(by.as_secs()).unwrap();
        self.hub.change(|state| {
            for update in &mut state.updates.queue {
                update.expires_at -= seconds;
            }
            for message in state
                .chats
                .values_mut()
                .flat_map(|chat| chat.messages.values_mut())
            {
                message.sent_at -= seconds;
            }
        });
    }

    /// Sets a webhook, as somebody else with the token does; `None` takes it away.
    pub(crate) fn set_webhook(&self, url: Option<&str>) {
        self.hub.change(|state| {
            state.webhook = url.map(str::to_owned);
            if url.is_some() {
                state.end_poll("terminated by setWebhook request");
            }
        });
    }

    /// The webhook that is set.
    pub(crate) fn webhook(&self) -> Option<String> {
        self.hub.lock().webhook.clone()
    }

    /// Queues an update as it is, whatever it is; returns the id that it gets if it has none.
    pub(crate) fn push_update(&self, mut body: Value) -> i64 {
        self.hub.change(|state| {
            let id = state.updates.next_id;
            state.updates.next_id += 1;
            if let Some(object) = body.as_object_mut() {
                object.entry("update_id").or_insert(json!(id));
            }
            let expires_at = unix_now() + LIFETIME_SECS;
            state
                .updates
                .queue
                .push_back(QueuedUpdate { id, body, expires_at });
            id
        })
    }
}

/// Observations.
impl BotApi {
    /// The messages of a chat, oldest first.
    pub(crate) fn messages(&self, chat_id: i64) -> Vec<SeenMessage> {
        seen::messages(self, chat_id)
    }

    /// The bot's messages of a chat, oldest first.
    pub(crate) fn answers(&self, chat_id: i64) -> Vec<SeenMessage> {
        let mut messages = self.messages(chat_id);
        messages.retain(|message| message.is_by_bot);
        messages
    }

    /// The drafts that are shown in a chat.
    pub(crate) fn drafts(&self, chat_id: i64) -> Vec<SeenDraft> {
        seen::drafts(self, chat_id)
    }

    /// What the bot is doing in a chat, like `typing`.
    pub(crate) fn action(&self, chat_id: i64) -> Option<String> {
        let state = self.hub.lock();
        let (action, _, until) = state.chats.get(&chat_id)?.action.as_ref()?;
        (unix_now() < *until).then(|| action.clone())
    }

    /// The name of a topic.
    pub(crate) fn topic_name(&self, chat_id: i64, thread_id: i64) -> Option<String> {
        let state = self.hub.lock();
        let topic = state.chats.get(&chat_id)?.topics.get(&thread_id)?;
        Some(topic.name.clone())
    }

    /// Every call on record.
    pub(crate) fn calls(&self) -> Vec<BotApiCall> {
        self.front.lock().calls.clone()
    }

    /// The calls of one method.
    pub(crate) fn calls_of(&self, method: &str) -> Vec<BotApiCall> {
        let mut calls = self.calls();
        calls.retain(|call| call.method.eq_ignore_ascii_case(method));
        calls
    }

    /// How many calls the page can show.
    pub(crate) fn calls_on_the_page(&self) -> usize {
        self.hub.lock().calls.since(0).count()
    }

    /// How many calls there were, on record or not.
    pub(crate) fn call_count(&self) -> u64 {
        self.front.lock().counted
    }

    /// Forgets the calls on record.
    pub(crate) fn forget_calls(&self) {
        self.front.lock().calls.clear();
    }

    /// The updates that wait, oldest first.
    pub(crate) fn pending_updates(&self) -> Vec<Value> {
        let state = self.hub.lock();
        state
            .updates
            .queue
            .iter()
            .map(|update| update.body.clone())
            .collect()
    }

    /// How many updates wait.
    pub(crate) fn pending_count(&self) -> usize {
        self.hub.lock().updates.pending_count()
    }

    /// The last offset that confirmed something or could have.
    pub(crate) fn confirmed_offset(&self) -> Option<i64> {
        self.hub.lock().updates.confirmed()
    }

    /// How many updates were dropped: not wanted, expired, or one too many.
    pub(crate) fn dropped_updates(&self) -> u64 {
        self.hub.lock().updates.dropped()
    }

    /// Whether a poll waits for updates.
    pub(crate) fn is_polled(&self) -> bool {
        self.hub.lock().poll.is_waiting
    }

    /// The presses, oldest first.
    pub(crate) fn presses(&self) -> Vec<SeenPress> {
        let mut presses = self.presses.lock().unwrap().clone();
        let state = self.hub.lock();
        for press in &mut presses {
            let known = state
                .presses
                .iter()
                .find(|known| known.query_id == press.query_id);
            press.answer = known.and_then(|known| known.answer.clone());
        }
        presses
    }

    /// The calls that exceeded a limit.
    pub(crate) fn violations(&self) -> Vec<FloodViolation> {
        self.front.lock().flood.violations().cloned().collect()
    }

    /// Waits until something is so, and gives what `look` found. It looks again after every change, so
    /// `look` should change nothing itself.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, BotApiNotSeen> {
        self.inner.until(what, deadline, |_| look(self)).await
    }

    /// Waits for a message of the bot that is as wanted.
    pub(crate) async fn wait_for_answer(
        &self,
        chat_id: i64,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&SeenMessage) -> bool,
    ) -> Result<SeenMessage, BotApiNotSeen> {
        self.until(what, deadline, |api| {
            api.answers(chat_id).into_iter().find(&mut wanted)
        })
        .await
    }
}
